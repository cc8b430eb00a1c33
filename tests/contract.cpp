// contract.cpp: see contract.hpp. Compiled once for the three element types; phases' tests link it.
// What a case is made of, how one is examined, and the list of cases. The promises themselves: promises.cpp.
// ctest -L common tests it (contract_test.cpp).
#include "tests/contract.hpp"

#include <map>
#include <sstream>
#include <tuple>

namespace flash::test {

void fill_with_poison(void* memory, std::size_t bytes) {
  auto* byte = static_cast<unsigned char*>(memory);
  for (std::size_t i = 0; i < bytes; ++i) byte[i] = poison[i % 2];
}
bool is_poison(const void* memory, std::size_t bytes) {
  const auto* byte = static_cast<const unsigned char*>(memory);
  for (std::size_t i = 0; i < bytes; ++i)
    if (byte[i] != poison[i % 2]) return false;
  return true;
}

std::string text(const Case& c) {
  std::ostringstream s;
  s << "B=" << c.B << " H=" << c.H << " Sq=" << c.Sq << " Sk=" << c.Sk << " D=" << c.D << " " << name(c.input) << " "
    << name(c.mask) << " scale=";
  if (c.scale)
    s << *c.scale;
  else
    s << "default";
  s << " blocks=" << c.block_q << "x" << c.block_k << " " << name(c.layout);
  return s.str();
}

template <class T>
Strided<T>::Strided(const std::array<std::int64_t, 4>& shape, Layout layout, int slot, std::int64_t granule) {
  const auto [B, H, S, D] = shape;
  if (layout == Layout::Mixed) layout = static_cast<Layout>(slot);
  std::int64_t first = guard;
  view.shape = shape;
  if (layout == Layout::Dense) view.stride = {H * S * D, S * D, D, 1};
  if (layout == Layout::Bshd) view.stride = {S * H * D, D, H * D, 1};
  if (layout == Layout::Packed) {
    view.stride = {S * 3 * H * D, D, 3 * H * D, 1};
    first += slot % 3 * H * D;
  }
  if (layout == Layout::Padded) {
    const std::int64_t row = D + (3 + slot) * granule, head = S * row + (5 + slot) * granule;
    view.stride = {H * head + (7 + slot) * granule, head, row, 1};
  }
  memory.resize(static_cast<std::size_t>(first + view.span() + guard));
  fill_with_poison(memory.data(), memory.size() * sizeof(T));
  view.data = memory.data() + first;
}

template <class T>
bool Strided<T>::gaps_intact() const {
  std::vector<bool> mine(memory.size());
  for (std::int64_t b = 0; b < view.B(); ++b)
    for (std::int64_t h = 0; h < view.H(); ++h)
      for (std::int64_t s = 0; s < view.S(); ++s)
        for (std::int64_t d = 0; d < view.D(); ++d)
          mine[static_cast<std::size_t>(view.row(b, h, s) + d - memory.data())] = true;
  for (std::size_t i = 0; i < memory.size(); ++i)
    if (!mine[i] && !is_poison(&memory[i], sizeof(T))) return false;
  return true;
}

template <class T>
Inputs<T>::Inputs(const Case& c_)
    : c(c_),
      q({c.B, c.H, c.Sq, c.D}, c.layout, 0, c.granule),
      k({c.B, c.H, c.Sk, c.D}, c.layout, 1, c.granule),
      v({c.B, c.H, c.Sk, c.D}, c.layout, 2, c.granule),
      o({c.B, c.H, c.Sq, c.D}, c.layout, 3, c.granule),
      lse(static_cast<std::size_t>(c.B * c.H * c.Sq + 2 * guard)) {
  fill_with_poison(lse.data(), lse.size() * sizeof(float));
  fill();
}

template <class T>
Problem<T> Inputs<T>::problem(bool want_lse) {
  Problem<T> p;
  p.q = q.view;
  p.k = k.view;
  p.v = v.view;
  p.o = o.view;
  p.lse = want_lse ? lse.data() + guard : nullptr;
  p.options = {.scale = c.scale,
               .mask = c.mask,
               .block_q = c.block_q,
               .block_k = c.block_k,
               .sram_bytes = c.sram_bytes,
               .threads = c.threads};
  return p;
}

const std::vector<float>& drawn(std::uint64_t seed, std::uint32_t stream, Distribution d, std::int64_t count) {
  static std::map<std::tuple<std::uint64_t, std::uint32_t, Distribution>, std::vector<float>> all;
  std::vector<float>& numbers = all[{seed % 4, stream, d}];
  const Random random(seed % 4, stream);
  while (static_cast<std::int64_t>(numbers.size()) < count) numbers.push_back(draw(random, d, numbers.size()));
  return numbers;
}

template <class T>
void Inputs<T>::fill() {
  const std::int64_t head = c.B * c.H * c.D, most_q = head * c.Sq, most_kv = std::max(head * c.Sk, c.D);
  const std::vector<float>& nq = drawn(c.seed, 0, Distribution::Normal, most_q);
  const std::vector<float>& nk = drawn(c.seed, 1, Distribution::Normal, most_kv);
  const std::int64_t keys = c.mask == Mask::top_left() ? std::min(c.Sk, c.Sq) : c.Sq == 0 ? 0 : c.Sk;
  const auto all = [&](float q_factor, float kv_factor, Distribution d) {
    const std::vector<float>&rq = drawn(c.seed, 0, d, most_q), &rk = drawn(c.seed, 1, d, most_kv),
          &rv = drawn(c.seed, 2, d, most_kv);
    q.fill(c.Sq, [&](std::uint64_t i, std::int64_t) { return q_factor * rq[i]; });
    k.fill(keys, [&](std::uint64_t i, std::int64_t) { return kv_factor * rk[i]; });
    v.fill(keys, [&](std::uint64_t i, std::int64_t) { return kv_factor * rv[i]; });
  };
  switch (c.input) {
    case Input::Halved:
      return all(0.5f, 0.5f, Distribution::Normal);
    case Input::Normal:
      return all(1, 1, Distribution::Normal);
    case Input::Uniform:
      return all(1, 1, Distribution::Uniform);
    case Input::Shifted:
      return all(1, 1, Distribution::Shifted);
    case Input::Outliers:
      return all(1, 1, Distribution::Outliers);
    case Input::Q4:
      return all(4, 1, Distribution::Normal);
    case Input::QKV4:
      return all(4, 4, Distribution::Normal);
    case Input::Q60:
      return all(60, 1, Distribution::Normal);
    case Input::Denormals: {  // for fp16 below 2^-14
      const float up = std::is_same_v<T, half> ? 0x1p112f : 1.0f;
      return all(up, up, Distribution::Denormals);
    }
    case Input::Equal:
      all(1, 1, Distribution::Normal);
      return k.fill(keys, [&](std::uint64_t i, std::int64_t) { return nk[i % static_cast<std::uint64_t>(c.D)]; });
    case Input::EqualHigh:  // exact in fp16 and bf16 where sqrt(D) is a power of two
      all(1, 1, Distribution::Normal);
      q.fill(c.Sq, [](std::uint64_t, std::int64_t) { return 3.5f; });
      return k.fill(keys, [&](std::uint64_t, std::int64_t) { return 90.5f / std::sqrt(static_cast<float>(c.D)); });
    case Input::Rising:
    case Input::Falling:
    case Input::Shuffled:
      // q·k grows by 40 from the first key to the last: Q is near (1 … 1), K_j near x_j·(1 … 1), x_j in [-1, 1].
      all(1, 1, Distribution::Normal);
      q.fill(c.Sq, [&](std::uint64_t i, std::int64_t) { return 1 + 0.1f * nq[i]; });
      return k.fill(keys, [&](std::uint64_t i, std::int64_t j) {
        if (c.input == Input::Falling) j = c.Sk - 1 - j;
        if (c.input == Input::Shuffled) j = j * 7919 % c.Sk;  // a permutation: 7919 is a prime larger than any Sk here
        const float x = 2.0f * static_cast<float>(j) / static_cast<float>(std::max<std::int64_t>(c.Sk - 1, 1)) - 1;
        return (20 * x + nk[i]) / std::sqrt(static_cast<float>(c.D));
      });
    case Input::LowEqual:
    case Input::LowVaried: {
      // Powers of two, so that q·k is exact in fp32 in any order: within a factor 1.5 of -2e6.
      all(1, 1, Distribution::Normal);
      const float scale = problem(false).scale();
      const double each = scale == 0 ? 1 : 2e6 / std::abs(scale) / static_cast<double>(c.D);  // |q_d · k_d|
      const int exponent = static_cast<int>(std::lround(std::log2(each)));
      const float sign = scale < 0 ? 1.0f : -1.0f;
      const float q0 = std::ldexp(1.0f, exponent / 2), k0 = sign * std::ldexp(1.0f, exponent - exponent / 2);
      const float last_place = std::is_same_v<T, float> ? 1e-6f : 0x1p-9f;
      q.fill(c.Sq, [&](std::uint64_t, std::int64_t) { return q0; });
      return k.fill(keys, [&](std::uint64_t i, std::int64_t) {
        return c.input == Input::LowEqual ? k0 : k0 * (1 + last_place * nk[i]);
      });
    }
  }
}

template <class T>
bool Inputs<T>::lse_guards_intact() const {
  return is_poison(lse.data(), guard * sizeof(float)) &&
         is_poison(lse.data() + lse.size() - guard, guard * sizeof(float));
}

template <class T>
Bars bars(const Case& c, const Reference& want) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  if (c.input == Input::LowVaried || c.input == Input::Denormals) return {infinite, infinite};  // no NaN, and LSE
  if (std::is_same_v<T, float>) {
    // Ordinary logits: the listed inputs, of which Q*4 has the largest; a scale over 4/sqrt(D) makes larger ones.
    const double times = c.scale ? std::abs(*c.scale) * std::sqrt(static_cast<double>(c.D)) : 1;
    if (c.input <= Input::Q4 && times * (c.input == Input::Q4 ? 4 : 1) <= 4.001) return {2e-6, 1e-5};
    if (c.input == Input::LowEqual) return {2e-6, infinite};  // equal logits are exactly equal: the mean of V
    return {2e-6 + 4 * 0x1p-24 * want.max_abs_logit, infinite};
  }
  const double times = want.o.size() < 500 ? 2.0 : 1.5;
  return {times * rounding_floor<T>(want.o, c.D).relative + 0x1p-24, infinite};
}

std::string text(const Figures& f) {
  std::ostringstream s;
  s.precision(2);
  s << f.cases << " cases; of its bar O reaches at most " << f.o << " (" << f.o_case << ")";
  if (f.row > 0) s << ", a row of O " << f.row << " (" << f.row_case << ")";
  if (f.lse > 0) s << ", LSE " << f.lse << " (" << f.lse_case << ")";
  if (f.rows_out_of_reach > 0)
    s << "; " << f.rows_out_of_reach << " of " << f.rows << " rows of LSE are out of fp32's reach: up to "
      << f.lse_out_of_reach << " times the bar (" << f.lse_out_of_reach_case << ")";
  return s.str();
}

template <class T>
Complaints examine(const Case& c, const Forward<T>& forward, const Features& can, Figures* figures) {
  Complaints complaints;
  const auto complain = [&](const std::string& what, double is, double bar) {
    std::ostringstream s;
    s << type_name<T>() << " " << text(c) << ": " << what << " is " << is << ", bar " << bar;
    complaints.push_back(s.str());
  };
  Inputs<T> in(c);
  const auto q_before = in.q.memory, k_before = in.k.memory, v_before = in.v.memory;
  const Problem<T> p = in.problem(can.meets(Demand::Lse));
  forward(p);

  // O against its bars; a row without keys is exactly 0 (distance() accepts nothing else there).
  const Reference want = reference(p);
  const Distance d = distance(gather(in.o.view), want.o, std::max<std::int64_t>(c.D, 1));
  const Bars bar = bars_of_length<T>(bars<T>(c, want), c.Sk, can);
  if (!(d.relative <= bar.relative)) complain("O's relative error", d.relative, bar.relative);
  if (!(d.worst_row <= bar.worst_row)) complain("the relative error of O's worst row", d.worst_row, bar.worst_row);

  // Denormals and logits near -2e6 have no bar for O, but no O leaves the range of V (rounded once).
  if (!(bar.relative < INFINITY)) {
    double largest = 0;
    for (const double x : gather(in.v.view)) largest = std::max(largest, std::isnan(x) ? 0 : std::abs(x));
    for (const double x : gather(in.o.view))
      if (!(std::abs(x) <= 1.01 * largest)) complain("an element of O", x, largest);
  }

  // LSE, natural log; exactly -inf where no key is seen.
  for (std::size_t i = 0; can.meets(Demand::Lse) && i < want.lse.size(); ++i) {
    const double got = in.lse[static_cast<std::size_t>(guard) + i];
    if (std::isinf(want.lse[i])) {
      if (!(got == want.lse[i])) complain("LSE of row " + std::to_string(i) + " without keys", got, want.lse[i]);
      continue;
    }
    const double error = std::abs(got - want.lse[i]), share = error / lse_bar(want.lse[i]);
    const bool out_of_reach = lse_bar_out_of_reach(want.lse[i], want.condition[i]);
    const double roundings = can.tensor_cores ? can.padded(c.D) / 16 * 2 : out_of_reach ? 4 : 0;
    const double lse_limit = lse_bar(want.lse[i]) + roundings * 0x1p-24 * want.condition[i];
    if (!(error <= lse_limit))
      complain("the error of LSE[" + std::to_string(i) + "] = " + std::to_string(want.lse[i]), error, lse_limit);
    if (figures) {
      ++figures->rows;
      figures->rows_out_of_reach += out_of_reach;
      if (out_of_reach)
        figures->note(share, &Figures::lse_out_of_reach, &Figures::lse_out_of_reach_case, c);
      else
        figures->note(share, &Figures::lse, &Figures::lse_case, c);
    }
    if (complaints.size() > 3) break;
  }

  // Nothing is written outside O's rows and LSE, and nothing at all to the inputs.
  const auto complain_about = [&](const std::string& what) {
    complaints.push_back(std::string(type_name<T>()) + " " + text(c) + ": " + what);
  };
  if (!in.o.gaps_intact()) complain_about("something was written outside O's rows");
  if (!in.lse_guards_intact()) complain_about("something was written outside LSE");
  if (!same_bits(q_before, in.q.memory) || !same_bits(k_before, in.k.memory) || !same_bits(v_before, in.v.memory))
    complain_about("an input was written to");

  // Same input, same bits.
  if (c.twice) {
    Inputs<T> again(c);
    forward(again.problem(can.meets(Demand::Lse)));
    if (!same_bits(in.o.memory, again.o.memory)) complain_about("a second run gives other bits in O");
    if (!same_bits(in.lse, again.lse)) complain_about("a second run gives other bits in LSE");
  }

  if (figures) {
    ++figures->cases;
    figures->note(d.relative / bar.relative, &Figures::o, &Figures::o_case, c);
    figures->note(d.worst_row / bar.worst_row, &Figures::row, &Figures::row_case, c);
  }
  return complaints;
}

template <class T>
void check_forward(const Case& c, const Forward<T>& forward, const Features& can, Figures* figures) {
  expect_none(examine<T>(c, forward, can, figures));
}

std::vector<Case> pairwise(const Domain& domain) {
  const std::array<std::size_t, 8> sizes = {domain.batch_heads.size(), domain.lengths.size(), domain.dims.size(),
                                            domain.inputs.size(),      domain.causals.size(), domain.scales.size(),
                                            domain.blocks.size(),      domain.layouts.size()};
  constexpr std::size_t n = 8, none = SIZE_MAX;
  std::array<std::size_t, n + 1> offset{};  // of parameter a's values in one common numbering
  for (std::size_t a = 0; a < n; ++a) offset[a + 1] = offset[a] + sizes[a];
  const std::size_t values = offset[n];
  // What a case with this value costs beside one with another: heads, pairs of rows and keys, columns, in tiles.
  std::vector<double> cost(values, 1), spent(values);
  const auto tiles = [](std::int64_t x) { return static_cast<double>(std::max<std::int64_t>(x, 32)); };
  for (std::size_t x = 0; x < sizes[0] && !domain.evenly; ++x)
    cost[offset[0] + x] = static_cast<double>(domain.batch_heads[x].first * domain.batch_heads[x].second);
  for (std::size_t x = 0; x < sizes[1] && !domain.evenly; ++x)
    cost[offset[1] + x] = tiles(domain.lengths[x].first) * tiles(domain.lengths[x].second);
  for (std::size_t x = 0; x < sizes[2] && !domain.evenly; ++x) cost[offset[2] + x] = tiles(domain.dims[x]);
  std::vector<char> covered(values * values);
  const auto cover = [&](std::size_t a, std::size_t x, std::size_t b, std::size_t y) -> char& {
    return a < b ? covered[(offset[a] + x) * values + offset[b] + y]
                 : covered[(offset[b] + y) * values + offset[a] + x];
  };
  const auto after = [&](std::size_t a, std::size_t x) { return spent[offset[a] + x] + cost[offset[a] + x]; };
  std::vector<Case> cases;
  const auto add_case_with = [&](std::size_t a0, std::size_t x0, std::size_t b0, std::size_t y0) {
    std::array<std::size_t, n> pick;
    pick.fill(none);
    pick[a0] = x0;
    pick[b0] = y0;
    for (std::size_t a = 0; a < n; ++a) {
      if (pick[a] != none) continue;
      std::size_t best = 0;
      int best_gain = -1;
      for (std::size_t x = 0; x < sizes[a]; ++x) {
        int gain = 0;
        for (std::size_t b = 0; b < n; ++b) gain += b != a && pick[b] != none && !cover(a, x, b, pick[b]);
        if (gain > best_gain || (gain == best_gain && after(a, x) < after(a, best))) {
          best = x;
          best_gain = gain;
        }
      }
      pick[a] = best;
    }
    for (std::size_t a = 0; a < n; ++a) {
      spent[offset[a] + pick[a]] += cost[offset[a] + pick[a]];
      for (std::size_t b = a + 1; b < n; ++b) cover(a, pick[a], b, pick[b]) = 1;
    }
    const auto [B, H] = domain.batch_heads[pick[0]];
    const auto [Sq, Sk] = domain.lengths[pick[1]];
    const std::int64_t D = domain.dims[pick[2]];
    const auto [block_q, block_k] = domain.blocks[pick[6]];
    std::optional<float> scale;
    if (const float times = domain.scales[pick[5]]; times != 1) scale = times / std::sqrt(static_cast<float>(D));
    cases.push_back({.B = B,
                     .H = H,
                     .Sq = Sq,
                     .Sk = Sk,
                     .D = D,
                     .input = domain.inputs[pick[3]],
                     .mask = domain.causals[pick[4]],
                     .scale = scale,
                     .block_q = block_q,
                     .block_k = block_k,
                     .layout = domain.layouts[pick[7]],
                     .granule = domain.granule,
                     .sram_bytes = block_q || block_k ? domain.sram_bytes : Options{}.sram_bytes,
                     .seed = cases.size() + 1});
  };
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = a + 1; b < n; ++b)
      for (std::size_t x = 0; x < sizes[a]; ++x)
        for (std::size_t y = 0; y < sizes[b]; ++y)
          if (!cover(a, x, b, y)) add_case_with(a, x, b, y);
  return cases;
}

std::vector<Case> published_cases() {
  std::vector<Case> cases;
  const auto add = [&](std::int64_t B, std::int64_t H, std::int64_t Sq, std::int64_t Sk, std::int64_t D,
                       std::int64_t block_q, std::int64_t block_k, std::optional<float> scale) {
    for (const Mask causal : {Mask::none(), Mask::top_left()})
      cases.push_back({.B = B,
                       .H = H,
                       .Sq = Sq,
                       .Sk = Sk,
                       .D = D,
                       .input = scale ? Input::Halved : Input::Normal,
                       .mask = causal,
                       .scale = scale,
                       .block_q = block_q,
                       .block_k = block_k,
                       .sram_bytes = 1024 * 1024,
                       .seed = 20});
  };
  // A Triton kernel's seven, with N(0,1)/2; six have more keys than rows in a tile.
  add(2, 3, 32, 32, 64, 32, 32, 0.5f);
  add(2, 3, 64, 64, 64, 32, 64, 0.5f);
  add(1, 2, 128, 128, 128, 32, 128, 0.5f);
  add(1, 1, 128, 128, 128, 64, 128, 0.5f);
  add(1, 1, 128, 128, 128, 32, 128, 0.5f);
  add(1, 2, 128, 128, 256, 32, 128, 0.5f);
  add(1, 1, 256, 256, 256, 32, 256, 0.5f);
  add(1, 2, 128, 128, 128, 64, 64, {});  // a course's self, ragged and cross attention (1024 x 4096 cut to 256 x 1024)
  add(1, 1, 500, 500, 128, 64, 64, {});
  add(1, 1, 256, 1024, 128, 64, 64, {});
  add(1, 2, 256, 256, 64, 64, 64, {});  // a simplified example's two
  add(1, 1, 512, 512, 128, 64, 64, {});
  add(1, 2, 512, 512, 64, 128, 64, {});  // a tutorial's 4 x 18 x 2048, cut
  return cases;
}

std::vector<Case> long_cases(std::int64_t Sk) {
  const std::int64_t D = Sk > 1 << 17 ? 16 : 64;  // not gigabytes of fp64
  std::vector<Case> cases;
  for (const Input input : {Input::Normal, Input::EqualHigh})
    cases.push_back({.B = 1, .H = 1, .Sq = 1024 / D, .Sk = Sk, .D = D, .input = input, .twice = false});
  return cases;
}

template <class T>
void check_equals_previous(const Case& c, const Forward<T>& before, const Forward<T>& after) {
  Inputs<T> a(c), b(c);
  before(a.problem(false));
  after(b.problem(false));
  const Reference want = reference(a.problem(false));
  const std::vector<double> o_a = gather(a.o.view), o_b = gather(b.o.view);
  std::vector<double> difference(o_a.size());
  for (std::size_t i = 0; i < o_a.size(); ++i) difference[i] = want.o[i] + (o_b[i] - o_a[i]);
  INFO(text(c));
  const double bar = 2 * bars<T>(c, want).relative;
  CHECK(distance(difference, want.o, c.D).relative <= bar);
}

void check_traffic(const Ledger& ledger, const std::vector<Traffic>& want) {
  std::uint64_t read = 0, written = 0;
  for (const Traffic& w : want) {
    INFO("array " << std::string(w.array));
    std::uint64_t is_read = 0, is_written = 0;
    for (const ArrayTraffic& a : ledger.arrays)
      if (a.name == w.array) {
        is_read = a.read_bytes;
        is_written = a.written_bytes;
      }
    CHECK(is_read == static_cast<std::uint64_t>(w.read));
    CHECK(is_written == static_cast<std::uint64_t>(w.written));
    read += is_read;
    written += is_written;
  }
  CHECK(ledger.hbm_read_bytes() == read);
  CHECK(ledger.hbm_written_bytes() == written);
}

#define FLASH_INSTANTIATE(T)                                                                 \
  template Reference reference<T>(const Problem<T>&);                                        \
  template struct Strided<T>;                                                                \
  template struct Inputs<T>;                                                                 \
  template Bars bars<T>(const Case&, const Reference&);                                      \
  template Complaints examine<T>(const Case&, const Forward<T>&, const Features&, Figures*); \
  template void check_forward<T>(const Case&, const Forward<T>&, const Features&, Figures*); \
  template void check_equals_previous<T>(const Case&, const Forward<T>&, const Forward<T>&);
FLASH_INSTANTIATE(float)
FLASH_INSTANTIATE(half)
FLASH_INSTANTIATE(bfloat16)
template struct Strided<std::int16_t>;  // O's low bits

}  // namespace flash::test
