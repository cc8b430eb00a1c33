// features.cpp: see features.hpp.
// Use: linked with flash_contract.
#include "tests/features.hpp"

namespace flash::test {

const char* name(Feature feature) {
  static constexpr const char* names[] = {
      "grouped heads", "Dv",        "causal",    "window",     "packed", "used",    "softcap", "ALiBi",
      "bias",          "bool mask", "documents", "block mask", "sinks",  "dropout", "dLSE",    "O in float32"};
  return names[static_cast<int>(feature)];
}

bool is_refused(const FeatureSet& set) {
  if (set.count(Feature::Causal) && set.count(Feature::Window)) return true;  // one mask
  if (!set.count(Feature::Packed)) return false;
  for (const Feature f : {Feature::Bias, Feature::BoolMask, Feature::Documents, Feature::BlockMask})
    if (set.count(f)) return true;
  return false;
}

std::vector<FeatureSet> singles_and_pairs() {
  std::vector<FeatureSet> all = {{}};
  for (int a = 0; a < features; ++a)
    for (int b = a; b < features; ++b)
      if (FeatureSet set = {static_cast<Feature>(a), static_cast<Feature>(b)}; !is_refused(set)) all.push_back(set);
  return all;
}

std::string text(const FeatureCase& c) {
  std::string text;
  for (const Feature f : c.on) text += (text.empty() ? "" : " + ") + std::string(name(f));
  return (text.empty() ? "nothing" : text) + ", B " + std::to_string(c.B) + ", H " + std::to_string(c.H) + ", " +
         std::to_string(c.Sq) + " x " + std::to_string(c.Sk) + ", D " + std::to_string(c.D) + ", sharing " +
         std::to_string(c.sharing) + ", seed " + std::to_string(c.seed);
}

namespace {

// Rows and keys of the packed sequences; three rows and two keys more belong to none.
std::vector<std::int64_t> lengths(std::int64_t S, bool of_keys) {
  if (of_keys) return {S / 3, 9, S, 0, 1};
  return {S / 2, 0, S, 5, 1};
}
std::vector<std::int32_t> ends(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> ends = {0};
  for (const std::int64_t n : lengths) ends.push_back(ends.back() + static_cast<std::int32_t>(n));
  return ends;
}

Shape shape_of(const FeatureCase& c) {
  const std::int64_t Dv = !c.has(Feature::OtherDv) ? c.D : c.Dv ? c.Dv : c.D / 2 + 8;
  Shape s{c.B, c.H, c.has(Feature::GroupedHeads) ? c.H / 2 : c.H, c.Sq, c.Sk, c.D, Dv};
  if (c.has(Feature::Packed))
    s.B = 1, s.Sq = ends(lengths(c.Sq, false)).back() + 3, s.Sk = ends(lengths(c.Sk, true)).back() + 2, s.N = 5;
  return s;
}

AnyView view_of(const void* data, const std::array<std::int64_t, 4>& shape) {
  return any_of(dense_view(static_cast<const unsigned char*>(data), shape));
}

std::int64_t size(const std::array<std::int64_t, 4>& shape) {
  return shape[0] * shape[1] * shape[2] * shape[3];
}

template <class T>
std::vector<double> wide(const std::vector<T>& x) {
  std::vector<double> out;
  for (const T& y : x) out.push_back(static_cast<double>(to_float(y)));
  return out;
}

}  // namespace

template <class T>
std::array<std::int64_t, 4> FeatureInputs<T>::shared_shape() const {
  return {c.sharing & 1 ? 1 : shape.B, c.sharing & 2 ? 1 : shape.H, c.sharing & 4 ? 1 : shape.Sq, shape.Sk};
}
template <class T>
std::array<std::int64_t, 4> FeatureInputs<T>::shape_of_blocks() const {
  return {c.sharing & 1 ? 1 : shape.B, c.sharing & 2 ? 1 : shape.H, (shape.Sq + 63) / 64, (shape.Sk + 63) / 64};
}

template <class T>
FeatureInputs<T>::FeatureInputs(const FeatureCase& c_)
    : c(c_),
      shape(shape_of(c)),
      q({shape.B, shape.H, shape.Sq, shape.D}, c.layout, 0, 8),
      k({shape.B, shape.Hk, shape.Sk, shape.D}, c.layout, 1, 8),
      v({shape.B, shape.Hk, shape.Sk, shape.Dv}, c.layout, 2, 8),
      o({shape.B, shape.H, shape.Sq, shape.Dv}, c.layout, 3, 8),
      dout(o.view.shape, c.layout, 0, 8),
      dq(q.view.shape, c.layout, 1, 8),
      dk(k.view.shape, c.layout, 2, 8),
      dv(v.view.shape, c.layout, 3, 8),
      o_wide(o.view.shape, c.layout, 1, 8),
      o_lo(o.view.shape, c.layout, 2, 8) {
  const auto filled = [&](Strided<T>& x, std::uint32_t stream) {
    const std::array<std::int64_t, 4>& size = x.view.shape;
    const std::vector<float>& numbers =
        drawn(c.seed, stream, Distribution::Normal, size[0] * size[1] * size[2] * size[3]);
    x.fill(x.view.S(), [&](std::uint64_t i, std::int64_t) { return numbers[i]; });
  };
  filled(q, 0), filled(k, 1), filled(v, 2), filled(dout, 3);
  const std::size_t rows = static_cast<std::size_t>(shape.B * shape.H * shape.Sq);
  for (std::vector<float>* of_rows : {&lse, &m, &l}) {
    of_rows->resize(rows);
    fill_with_poison(of_rows->data(), rows * sizeof(float));
  }
  const Random random(c.seed, 4);
  std::uint64_t drawn = 0;
  const auto normal = [&] { return random.normal(drawn++); };
  const auto chance = [&](float p) { return random.uniform(drawn++) < p; };
  for (std::size_t i = 0; i < rows && c.has(Feature::LseGradient); ++i) dlse.push_back(normal());
  for (int h = 0; h < shape.H && c.has(Feature::Alibi); ++h)
    slopes.push_back(std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(shape.H)));
  for (int h = 0; h < shape.H && c.has(Feature::Sinks); ++h) sinks.push_back(2 * normal());
  dsinks.resize(sinks.size(), NAN);
  for (std::int64_t i = 0; i < size(shared_shape()) && c.has(Feature::Bias); ++i)
    bias.push_back(from_float<T>(chance(0.1f) ? -INFINITY : normal()));
  dbias.resize(bias.size(), NAN);
  for (std::int64_t i = 0; i < size(shared_shape()) && c.has(Feature::BoolMask); ++i)  // some rows see nothing
    allowed.push_back(chance(0.7f) && i / shape.Sk % 7 != 3);
  for (std::int64_t b = 0; b < shape.B && c.has(Feature::Documents); ++b) {  // in batch entry 1 the first has no keys
    for (std::int64_t i = 0; i < shape.Sq; ++i) document_q.push_back(static_cast<std::int32_t>(i / (23 - 5 * b)));
    for (std::int64_t j = 0; j < shape.Sk; ++j) document_k.push_back(static_cast<std::int32_t>(j / (31 - 5 * b) + b));
  }
  for (std::int64_t i = 0; i < size(shape_of_blocks()) && c.has(Feature::BlockMask); ++i)
    blocks.push_back(static_cast<std::uint8_t>((i * 7 + 5) % 11 % 3));
  if (c.has(Feature::Packed)) first_rows = ends(lengths(c.Sq, false)), first_keys = ends(lengths(c.Sk, true));
  if (c.has(Feature::Used)) {
    const AnyProblem whole = problem();
    for (std::int64_t n = 0; n < shape.N; ++n) {
      const Sequence at = whole.sequence(n);
      rows_of.push_back(static_cast<std::int32_t>(n % 2 ? at.rows : at.rows - at.rows / 5));
      keys_of.push_back(static_cast<std::int32_t>(n % 2 ? at.keys - at.keys / 4 : at.keys));
    }
  }
  // What belongs to no sequence is poison.
  std::vector<std::pair<Strided<T>*, bool>> of_rows = {{&q, true}, {&dout, true}, {&k, false}, {&v, false}};
  const AnyProblem p = problem();
  for (const auto& [x, is_q] : of_rows)
    for (std::int64_t b = 0; b < shape.B; ++b)
      for (std::int64_t s = 0; s < x->view.S(); ++s) {
        bool idle = true;
        for (std::int64_t n = 0; n < shape.N; ++n) {
          const Sequence at = p.sequence(n);
          const std::int64_t first = is_q ? at.first_row : at.first_key, count = is_q ? at.rows : at.keys;
          idle &= at.b != b || s < first || s >= first + count;
        }
        for (std::int64_t h = 0; h < x->view.H() && idle; ++h)
          fill_with_poison(x->view.row(b, h, s), static_cast<std::size_t>(x->view.D()) * sizeof(T));
      }
}

template <class T>
AnyProblem FeatureInputs<T>::arrays() {
  AnyProblem p;
  p.type = type_of<T>;
  p.out = c.has(Feature::WideOutput) ? Type::Float32 : p.type;
  p.q = any_of(q.view), p.k = any_of(k.view), p.v = any_of(v.view);
  p.o = p.out == p.type ? any_of(o.view) : any_of(o_wide.view);
  const std::array<std::int64_t, 4> of_rows = {shape.B, shape.H, shape.Sq, 1};
  p.lse = view_of(lse.data(), of_rows);
  if (c.keeps) p.m = view_of(m.data(), of_rows), p.l = view_of(l.data(), of_rows);
  if (c.keeps && p.out != Type::Float32) p.o_lo = any_of(o_lo.view);
  const auto give = [](AnyView& view, const auto& data, const std::array<std::int64_t, 4>& shape) {
    if (!data.empty()) view = view_of(data.data(), shape);
  };
  give(p.slopes, slopes, {1, shape.H, 1, 1}), give(p.sinks, sinks, {1, shape.H, 1, 1});
  give(p.bias, bias, shared_shape()), give(p.allowed, allowed, shared_shape());
  give(p.document_q, document_q, {shape.B, 1, shape.Sq, 1}), give(p.document_k, document_k, {shape.B, 1, shape.Sk, 1});
  give(p.blocks, blocks, shape_of_blocks());
  give(p.first_rows, first_rows, {1, 1, shape.N + 1, 1}), give(p.first_keys, first_keys, {1, 1, shape.N + 1, 1});
  give(p.rows_of, rows_of, {1, 1, shape.N, 1}), give(p.keys_of, keys_of, {1, 1, shape.N, 1});
  if (c.has(Feature::Causal)) p.options.mask = Mask::bottom_right();
  if (c.has(Feature::Window)) p.options.mask = {.left = 21, .right = 6, .alignment = Alignment::BottomRight};
  if (c.mask) p.options.mask = *c.mask;
  p.options.scale = c.scale;
  if (c.has(Feature::Softcap)) p.options.softcap = 1.5f;
  if (c.has(Feature::Dropout)) p.options.dropout = {0.17f, 0x123456789abcdef + c.seed};
  return p;
}

template <class T>
AnyProblem FeatureInputs<T>::problem() {
  return arrays();
}

template <class T>
AnyProblem FeatureInputs<T>::gradients() {
  AnyProblem p = arrays();
  p.direction = Direction::Backward;
  p.dout = any_of(dout.view), p.dq = any_of(dq.view), p.dk = any_of(dk.view), p.dv = any_of(dv.view);
  if (!dlse.empty()) p.dlse = view_of(dlse.data(), p.lse.shape);
  if (!bias.empty()) p.dbias = view_of(dbias.data(), p.bias.shape);
  if (!sinks.empty()) p.dsinks = view_of(dsinks.data(), p.sinks.shape);
  return p;
}

template <class T>
Complaints FeatureInputs<T>::complaints(bool backward, double floors, bool tensor_cores) {
  Complaints wrong;
  const AnyProblem p = gradients();
  // Rows that belong to no sequence are poison in the problem, and 0 in the answer: the reference must not read them.
  const Whole want(p);
  const auto complain = [&](const std::string& what, double is, double most) {
    if (!(is <= most))
      wrong.push_back(text(c) + ": " + what + " is " + std::to_string(is) + " of " + std::to_string(most));
  };
  const std::vector<double> got_o = p.out == p.type ? gather64(o.view) : gather64(o_wide.view);
  const bool narrow = sizeof(T) == 2 && (p.out == p.type || tensor_cores);
  const Distance d = distance(got_o, want.o, shape.Dv);
  const double floor = rounding_floor<T>(want.o, shape.Dv).relative;
  complain("O's error / bar", d.relative / (narrow ? (want.o.size() < 500 ? 2 : 1.5) * floor + 0x1p-24 : 2e-6), 1);
  if (!narrow) complain("O's worst row / bar", d.worst_row / 1e-5, 1);
  for (std::size_t i = 0; i < lse.size(); ++i) {
    const auto got = static_cast<double>(lse[i]);
    if (got != want.lse[i]) complain("LSE's error / bar", std::abs(got - want.lse[i]) / lse_bar(want.lse[i]), 1);
  }
  if (!o.gaps_intact() || !o_wide.gaps_intact() || !o_lo.gaps_intact()) wrong.push_back(text(c) + ": O's gaps");
  if (!backward) return wrong;

  const auto check = [&](const char* what, const GradientError& e) {
    complain(what + std::string(" / bar"), e.share, 1);
  };
  check("dQ", gradient_error<T>(gather64(dq.view), want.dq, want.size_q.g, 5e-6, floors));
  check("dK", gradient_error<T>(gather64(dk.view), want.dk, want.size_k.g, 5e-6, floors));
  check("dV", gradient_error<T>(gather64(dv.view), want.dv, want.size_v.g, 5e-6, floors));
  // They are fp32. But δ comes from O, and on tensor cores O has the rounding of P in it: then as gradients of type T.
  const auto check_wide = [&](const char* what, const std::vector<float>& got, const std::vector<double>& exact,
                              const Whole::Size& size) {
    if (tensor_cores)
      check(what, gradient_error<T>(wide(got), exact, size.g, 5e-6, floors, 0, size.r));
    else
      check(what, gradient_error<float>(wide(got), exact, size.g, 5e-6, floors));
  };
  check_wide("dbias", dbias, want.dbias, want.size_bias), check_wide("dsinks", dsinks, want.dsinks, want.size_sinks);
  if (!dq.gaps_intact() || !dk.gaps_intact() || !dv.gaps_intact()) wrong.push_back(text(c) + ": gaps of gradients");
  return wrong;
}

template <class T>
std::vector<unsigned char> FeatureInputs<T>::results() {
  std::vector<unsigned char> bytes;
  const auto add = [&](const auto& x) {
    const auto* begin = reinterpret_cast<const unsigned char*>(x.data());
    bytes.insert(bytes.end(), begin, begin + x.size() * sizeof x[0]);
  };
  add(o.memory), add(o_wide.memory), add(o_lo.memory), add(dq.memory), add(dk.memory), add(dv.memory);
  add(lse), add(m), add(l), add(dbias), add(dsinks);
  return bytes;
}

AnyProblem with_blocks(AnyProblem p, Blocks blocks) {
  p.options.block_q = blocks.Br, p.options.block_k = blocks.Bc;
  return p;
}

bool goes_back(const Phase& phase, const FeatureSet& on, std::int64_t widest) {
  return !on.count(Feature::WideOutput) && widest <= phase.backward->features.largest_D();
}

template <class T>
Pairs check_pairs(const Phase& phase, Where where, const FeatureCase& sizes, const FeatureSet& met,
                  const FeatureSet& fresh, BackwardMode mode) {
  Pairs pairs = {};
  const auto all_of = [](const FeatureSet& set, const FeatureSet& on) {
    return std::includes(set.begin(), set.end(), on.begin(), on.end());
  };
  for (const FeatureSet& on : singles_and_pairs()) {
    const bool computed = all_of(met, on);
    if (computed && !fresh.empty() && std::none_of(on.begin(), on.end(), [&](Feature f) { return fresh.count(f) > 0; }))
      continue;
    FeatureCase c = sizes;
    if (!computed) c.Sq = 5, c.Sk = 6, c.D = 16;  // nobody looks into its arrays
    c.on = on, c.seed = static_cast<std::uint64_t>(pairs.computed + pairs.refused);
    FeatureInputs<T> in(c);
    AnyProblem gradients = in.gradients();
    gradients.options.mode = mode;
    INFO(phase.name << ": " << text(c));
    if (computed) {
      const bool back = goes_back(phase, on, std::max(in.shape.D, in.shape.Dv));
      enter(phase, in.problem(), where);
      if (back) enter(phase, gradients, where);
      expect_none(in.complaints(back, 2, true));
      ++pairs.computed;
    } else {
      const std::vector<unsigned char> before = in.results();
      const doctest::Contains says("choose a phase that has it: ./flash help");
      CHECK_THROWS_WITH_AS(enter(phase, in.problem(), where), says, Error);
      CHECK_THROWS_WITH_AS(enter(phase, gradients, where), says, Error);
      CHECK(in.results() == before);
      ++pairs.refused;
    }
  }
  return pairs;
}

template Pairs check_pairs<half>(const Phase&, Where, const FeatureCase&, const FeatureSet&, const FeatureSet&,
                                 BackwardMode);
template Pairs check_pairs<bfloat16>(const Phase&, Where, const FeatureCase&, const FeatureSet&, const FeatureSet&,
                                     BackwardMode);
template struct FeatureInputs<float>;
template struct FeatureInputs<half>;
template struct FeatureInputs<bfloat16>;

}  // namespace flash::test
