// training_promises.cpp: what a forward pass promises that can keep what a backward pass needs (Demand::Kept: m, l and
// O's low bits, docs/backward.md), or that can leave O in fp32 (Demand::WideOutput). Compiled once, linked into the
// test of each phase that has a kernel. Gradients made of it: training_gradients.hpp.
// ./flash test 13
#include <bit>

#include "tests/promises.hpp"

namespace flash::test {
namespace {

// A case with room for all that can be wanted, and poison around it.
template <class T>
struct Kept {
  Inputs<T> in;
  Strided<std::int16_t> o_lo;
  Strided<float> wide;
  std::vector<float> m, l;

  explicit Kept(const Case& c)
      : in(c),
        o_lo({c.B, c.H, c.Sq, c.D}, c.layout, 1, c.granule),
        wide({c.B, c.H, c.Sq, c.D}, c.layout, 2, c.granule),
        m(in.lse.size()),
        l(in.lse.size()) {
    fill_with_poison(m.data(), m.size() * sizeof(float)), fill_with_poison(l.data(), l.size() * sizeof(float));
  }

  // O rounded, with its low bits where it has any; or O in fp32, without them. LSE, m and l in either case.
  AnyProblem problem(bool in_fp32) {
    Problem<T> p = with_listed_blocks(in.problem(true), features_under_test());
    p.kept.m = &m[guard], p.kept.l = &l[guard];
    if (sizeof(T) == 2 && !in_fp32) p.kept.o_lo = o_lo.view;
    AnyProblem any(p);
    if (in_fp32) any.out = Type::Float32, any.o = any_of(wide.view);
    return any;
  }
  // O as it was before it was rounded.
  float restored(const T* o, std::int64_t at_b, std::int64_t h, std::int64_t i, std::int64_t d) const {
    const float near = to_float(o[d]);
    if (sizeof(T) == 4) return near;
    return std::bit_cast<float>(std::bit_cast<std::int32_t>(near) + o_lo.view.row(at_b, h, i)[d]);
  }
  bool intact() const {
    const auto ends = [](const std::vector<float>& x) {
      return is_poison(x.data(), guard * sizeof(float)) &&
             is_poison(x.data() + x.size() - guard, guard * sizeof(float));
    };
    return in.o.gaps_intact() && o_lo.gaps_intact() && wide.gaps_intact() && ends(in.lse) && ends(m) && ends(l);
  }
};

// On the simulator kernels work on the caller's own memory, so that what they write beside it is seen.
template <class T>
void run(Kept<T>& kept, bool in_fp32, Where where) {
  enter(phase_under_test(), kept.problem(in_fp32), where, {.in_place = where == Where::Sim});
}

// Each head dimension and one between, each mask, several K/V tiles; rows without keys.
std::vector<Case> training_cases() {
  const Features& can = features_under_test();
  std::vector<Case> cases;
  std::vector<std::int64_t> dims(can.head_dims.begin(), can.head_dims.end());
  dims.push_back(next_D(40, can));
  for (const std::int64_t D : dims)
    for (const Mask& mask : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
      cases.push_back({.B = 2,
                       .H = 1,
                       .Sq = 150,
                       .Sk = 130,
                       .D = D,
                       .input = D == 64 ? Input::QKV4 : Input::Normal,
                       .mask = mask,
                       .layout = Layout::Padded,
                       .granule = granule(can)});
  return cases;
}

template <class Row>
void for_each_row(const Case& c, const Row& row) {
  for (std::int64_t b = 0; b < c.B; ++b)
    for (std::int64_t h = 0; h < c.H; ++h)
      for (std::int64_t i = 0; i < c.Sq; ++i) row(b, h, i, guard + (b * c.H + h) * c.Sq + i);
}

// The numbers of a kept row, against fp64: with w_j = exp2(S_ij log2 e - m_i), l is their sum but for the rounding of
// P, and so is O · l the sum of w_j V_j. Half a unit of T's last place is 2^-9 of a number, or 2^-12; fp32's sums add
// less than 2^-16, and its rounding of logits 2^-23 of the largest.
template <class T>
void check_row(Kept<T>& kept, const Problem<T>& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t at) {
  const double m = kept.m[static_cast<std::size_t>(at)], l = kept.l[static_cast<std::size_t>(at)];
  const std::int64_t keys = p.visible(i).end;
  if (keys == 0) {
    CHECK(m == -INFINITY);
    CHECK(l == 0);
    return;
  }
  const auto D = static_cast<std::size_t>(p.D());
  std::vector<double> sums(D), sizes(D);
  double sum = 0, largest = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    double s = 0;
    for (std::size_t d = 0; d < D; ++d)
      s += double(to_float(p.q.row(b, h, i)[d])) * double(to_float(p.k.row(b, h, j)[d]));
    s *= p.scale() * 1.4426950408889634, largest = std::max(largest, std::abs(s));
    const double weight = std::exp2(s - m);
    sum += weight;
    for (std::size_t d = 0; d < D; ++d) {
      const double v = to_float(p.v.row(b, h, j)[d]);
      sums[d] += weight * v, sizes[d] += weight * std::abs(v);
    }
  }
  const double of_p = (std::is_same_v<T, bfloat16> ? 0x1p-9
                       : std::is_same_v<T, half>   ? 0x1p-12
                                                   : 0) +
                      0x1p-16 + 0x1p-23 * largest;
  CHECK(std::abs(l - sum) <= of_p * sum);
  double worst = 0;
  for (std::size_t d = 0; d < D; ++d) {
    const double o = kept.restored(p.o.row(b, h, i), b, h, i, static_cast<std::int64_t>(d));
    const double share = std::abs(o - sums[d] / sum) / (2 * of_p * sizes[d] / sum);
    if (!(share <= worst)) worst = share;
  }
  CHECK(worst <= 1);
}

template <class T>
void check_training(Where where) {
  for (const Case& c : training_cases()) {
    INFO(text(c));
    Inputs<T> plain(c);
    flash::forward(phase_under_test(), with_listed_blocks(plain.problem(true), features_under_test()), where);
    Kept<T> kept(c);
    run(kept, false, where);
    CHECK(kept.intact());
    CHECK(same_bits(kept.in.lse, plain.lse));  // what is kept beside it changes nothing in LSE
    const Problem<T> p = kept.in.problem(true);
    for_each_row(c, [&](auto... at) { check_row(kept, p, at...); });
  }
}

// O is a mean of V: of V = 1 exactly 1, but for sums in fp32 (a cut of 2^-23 for each 16 keys on tensor cores). Were O
// divided by the sum of what P was before it was rounded, it would be off by far more, and a row's δ with it.
template <class T>
void check_mean(Where where) {
  for (const Case& c : training_cases()) {
    INFO(text(c));
    Kept<T> kept(c);
    kept.in.v.fill(c.Sk, [](std::uint64_t, std::int64_t) { return 1.0f; });
    run(kept, false, where);
    const Problem<T> p = kept.in.problem(true);
    double worst = 0;
    for_each_row(c, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t) {
      for (std::int64_t d = 0; d < c.D; ++d) {
        const double off = std::abs(kept.restored(p.o.row(b, h, i), b, h, i, d) - (p.visible(i).end > 0 ? 1.0 : 0.0));
        if (!(off <= worst)) worst = off;
      }
    });
    CHECK(worst <= 0x1p-19);
  }
}

// O in fp32 is what O and its low bits are together (halfway between two bf16 the distance is 2^15, one more than 16
// bits hold; of a subnormal fp16 it is cut off); m, l and LSE are the same, and nothing else is touched.
template <class T>
void check_wide(Where where) {
  for (const Case& c : training_cases()) {
    INFO(text(c));
    Kept<T> narrow(c), wide(c);
    run(narrow, false, where);
    run(wide, true, where);
    CHECK(wide.intact());
    CHECK(is_poison(wide.in.o.memory.data(), wide.in.o.memory.size() * sizeof(T)));
    CHECK(same_bits(wide.in.lse, narrow.in.lse));
    CHECK(same_bits(wide.m, narrow.m));
    CHECK(same_bits(wide.l, narrow.l));
    int others = 0;
    const Problem<T> p = narrow.in.problem(true);
    for_each_row(c, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t) {
      for (std::int64_t d = 0; d < c.D; ++d) {
        const float O = wide.wide.view.row(b, h, i)[d], restored = narrow.restored(p.o.row(b, h, i), b, h, i, d);
        if (std::is_same_v<T, half> && std::abs(O) < 0x1p-14f) continue;
        others += std::abs(std::bit_cast<std::int32_t>(O) - std::bit_cast<std::int32_t>(restored)) > 1;
      }
    });
    CHECK(others == 0);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("training: m, l, LSE and O's low bits" * only_if(has_type) *
                       only_if(features_under_test().meets(Demand::Kept)),
                   T, float, half, bfloat16) {
  check_training<T>(Where::Sim);
}
TEST_CASE_TEMPLATE("training: O is a mean of V" * only_if(has_type) *
                       only_if(features_under_test().meets(Demand::Kept)),
                   T, float, half, bfloat16) {
  check_mean<T>(Where::Sim);
}
TEST_CASE_TEMPLATE("O in fp32" * only_if(has_type) * only_if(features_under_test().meets(Demand::WideOutput)), T, half,
                   bfloat16) {
  check_wide<T>(Where::Sim);
}
TEST_CASE_TEMPLATE("gpu: training, and O in fp32" * only_if(has_type) *
                       only_if(features_under_test().meets(Demand::Kept)),
                   T, float, half, bfloat16) {
  if (skipped_without(Where::Gpu)) return;
  check_training<T>(Where::Gpu);
  check_mean<T>(Where::Gpu);
  if (features_under_test().meets(Demand::WideOutput)) check_wide<T>(Where::Gpu);
}

// On the checked machine: no finding, the bits of the fast one, the bytes of the formula.
TEST_CASE_TEMPLATE("checked: training, and O in fp32" * only_if(has_type) *
                       only_if(features_under_test().meets(Demand::Kept)),
                   T, float, half, bfloat16) {
  if (skipped_without(Where::Checked)) return;
  const Features& can = features_under_test();
  for (const bool in_fp32 : {false, true}) {
    if (!can.meets(in_fp32 ? Demand::WideOutput : Demand::Kept)) continue;
    for (const int D : can.head_dims) {
      const Case c{.B = 1,
                   .H = 2,
                   .Sq = 70,
                   .Sk = 90,
                   .D = D,
                   .mask = D == 64 ? Mask::none() : Mask::bottom_right(),
                   .layout = Layout::Padded,
                   .granule = granule(can)};
      INFO(text(c));
      Kept<T> fast(c), checked(c);
      enter(phase_under_test(), fast.problem(in_fp32), Where::Sim);
      const AnyProblem p = checked.problem(in_fp32);
      Run run;
      CHECK_NOTHROW(run = enter(phase_under_test(), p, Where::Checked, {.order = Order::random, .seed = 7}));
      CHECK(checked.intact());
      CHECK(same_bits(fast.in.o.memory, checked.in.o.memory));
      CHECK(same_bits(fast.o_lo.memory, checked.o_lo.memory));
      CHECK(same_bits(fast.wide.memory, checked.wide.memory));
      CHECK(same_bits(fast.m, checked.m));
      CHECK(same_bits(fast.l, checked.l));
      const HbmBytes predicted = can.hbm_bytes(p, run.blocks);
      CHECK(predicted.read == run.ledger.hbm_read_bytes());
      CHECK(predicted.written == run.ledger.hbm_written_bytes());
    }
  }
}

}  // namespace flash::test
