// contract.hpp: what every phase promises, as checks that any `forward(const Problem<T>&)` can be put through.
// The bars are those of docs/conventions.md and are asserted as written there; NaN fails everything.
// Use:  check_contract<float>([](const auto& p) { phase04::forward(p); }, phase04::features);
#pragma once
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "phases/common/problem.hpp"
#include "phases/common/random.hpp"
#include "sim/ledger.hpp"
#include "tests/reference.hpp"

// The element types that a phase's test goes through. A mutant is built with one, to be quick.
#ifndef FLASH_TEST_TYPES
#define FLASH_TEST_TYPES float, half, bfloat16
#endif

namespace flash::test {

// --- What a case is made of ------------------------------------------------------------------------------------------

// How Q, K and V are filled. The first six, to Q4, have fp32 bars of their own; see bars().
enum class Input {
  Halved,     // N(0,1) / 2
  Normal,     // N(0,1)
  Uniform,    // uniform[0,1)
  Shifted,    // N(1,1)
  Outliers,   // N(0,1) + N(0,100)·Bernoulli(0.001)
  Q4,         // N(0,1), Q times 4
  QKV4,       // N(0,1), Q, K and V times 4
  Q60,        // N(0,1), Q times 60: one key takes nearly all
  Equal,      // all keys alike: all logits of a row equal, O is the mean of V
  Rising,     // row maxima rise with j: every key rescales
  Falling,    // they fall: no key but the first does
  Shuffled,   // the same logits in a shuffled order
  LowEqual,   // all logits equal and near -2e6, below any finite "minus infinity"
  LowVaried,  // near -2e6, K varies in its last places
  Denormals,  // all numbers below the type's smallest normal one
};

inline const char* name(Input input) {
  static constexpr const char* names[] = {"N(0,1)/2", "N(0,1)",   "uniform[0,1)",  "N(1,1)",    "outliers",
                                          "Q*4",      "QKV*4",    "Q*60",          "equal",     "rising",
                                          "falling",  "shuffled", "equal at -2e6", "near -2e6", "denormals"};
  return names[static_cast<int>(input)];
}

// Where rows lie. Every array starts and ends with poison; Packed and Padded have poison between their rows too.
enum class Layout {
  Dense,   // [B, H, S, D]
  Bshd,    // [B, S, H, D], permuted by strides
  Packed,  // one slot of [B, S, 3, H, D], as a fused QKV projection writes it
  Padded,  // rows, heads and batches further apart than needed, by different amounts for Q, K, V and O
  Mixed,   // Q, K, V and O each in another of the four layouts
};

inline const char* name(Layout layout) {
  static constexpr const char* names[] = {"dense", "BSHD", "packed", "padded", "mixed"};
  return names[static_cast<int>(layout)];
}

inline const char* name(Causal causal) {
  static constexpr const char* names[] = {"full", "top-left", "bottom-right"};
  return names[static_cast<int>(causal)];
}

struct Case {
  std::int64_t B = 2, H = 2, Sq = 16, Sk = 16, D = 16;
  Input input = Input::Normal;
  Causal causal = Causal::None;
  std::optional<float> scale = {};
  std::int64_t block_q = 0, block_k = 0;
  Layout layout = Layout::Dense;
  std::int64_t sram_bytes = 192 * 1024;
  int threads = 1;
  std::uint64_t seed = 1;
};

inline std::string text(const Case& c) {
  std::ostringstream s;
  s << "B=" << c.B << " H=" << c.H << " Sq=" << c.Sq << " Sk=" << c.Sk << " D=" << c.D << " " << name(c.input) << " "
    << name(c.causal) << " scale=";
  if (c.scale)
    s << *c.scale;
  else
    s << "default";
  s << " blocks=" << c.block_q << "x" << c.block_k << " " << name(c.layout);
  return s.str();
}

// --- Memory with poison around it ------------------------------------------------------------------------------------

inline constexpr unsigned char poison = 0xff;  // four, or two, of these bytes are a NaN in fp32, fp16 and bf16
inline constexpr std::int64_t guard = 64;      // poisoned elements before and after each array

// A strided [B, H, S, D] tensor inside memory that is poison everywhere else. `slot` (Q 0, K 1, V 2, O 3) makes the
// strides of the four tensors differ.
template <class T>
struct Strided {
  std::vector<T> memory;
  View<T> view;

  Strided(const std::array<std::int64_t, 4>& shape, Layout layout, int slot) {
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
      const std::int64_t row = D + 3 + slot, head = S * row + 5 + slot;
      view.stride = {H * head + 7 + slot, head, row, 1};
    }
    memory.resize(static_cast<std::size_t>(first + view.span() + guard));
    std::memset(static_cast<void*>(memory.data()), poison, memory.size() * sizeof(T));
    view.data = memory.data() + first;
  }
  Strided(const Strided&) = delete;
  Strided& operator=(const Strided&) = delete;

  // Sets element (b, h, s, d) to value(i, s), i = its number in dense order. Rows from `rows` on stay poison.
  template <class Value>
  void fill(std::int64_t rows, const Value& value) {
    for (std::int64_t b = 0; b < view.B(); ++b)
      for (std::int64_t h = 0; h < view.H(); ++h)
        for (std::int64_t s = 0; s < std::min(rows, view.S()); ++s)
          for (std::int64_t d = 0; d < view.D(); ++d)
            view.row(b, h, s)[d] =
                from_float<T>(value(static_cast<std::uint64_t>(((b * view.H() + h) * view.S() + s) * view.D() + d), s));
  }

  // Is every byte that belongs to no row still poison?
  bool gaps_intact() const {
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

  static bool is_poison(const void* p, std::size_t bytes) {
    const auto* byte = static_cast<const unsigned char*>(p);
    return std::all_of(byte, byte + bytes, [](unsigned char x) { return x == poison; });
  }
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Q, K, V filled as a case says, and an O and an LSE of poison. Keys that no row may see are poison as well.
template <class T>
struct Inputs {
  Case c;
  Strided<T> q, k, v, o;
  std::vector<float> lse;  // [guard][B, H, Sq][guard]

  explicit Inputs(const Case& c_)
      : c(c_),
        q({c.B, c.H, c.Sq, c.D}, c.layout, 0),
        k({c.B, c.H, c.Sk, c.D}, c.layout, 1),
        v({c.B, c.H, c.Sk, c.D}, c.layout, 2),
        o({c.B, c.H, c.Sq, c.D}, c.layout, 3),
        lse(static_cast<std::size_t>(c.B * c.H * c.Sq + 2 * guard)) {
    std::memset(lse.data(), poison, lse.size() * sizeof(float));
    fill();
  }

  Problem<T> problem(bool want_lse) {
    Problem<T> p;
    p.q = q.view;
    p.k = k.view;
    p.v = v.view;
    p.o = o.view;
    p.lse = want_lse ? lse.data() + guard : nullptr;
    p.options = {.scale = c.scale,
                 .causal = c.causal,
                 .block_q = c.block_q,
                 .block_k = c.block_k,
                 .sram_bytes = c.sram_bytes,
                 .threads = c.threads};
    return p;
  }

  bool lse_guards_intact() const {
    return Strided<T>::is_poison(lse.data(), guard * sizeof(float)) &&
           Strided<T>::is_poison(lse.data() + lse.size() - guard, guard * sizeof(float));
  }

 private:
  void fill() {
    const Random rq(c.seed, 0), rk(c.seed, 1), rv(c.seed, 2);
    const std::int64_t keys = c.causal == Causal::TopLeft ? std::min(c.Sk, c.Sq) : c.Sq == 0 ? 0 : c.Sk;
    const auto all = [&](float q_factor, float kv_factor, Distribution d) {
      q.fill(c.Sq, [&](std::uint64_t i, std::int64_t) { return q_factor * draw(rq, d, i); });
      k.fill(keys, [&](std::uint64_t i, std::int64_t) { return kv_factor * draw(rk, d, i); });
      v.fill(keys, [&](std::uint64_t i, std::int64_t) { return kv_factor * draw(rv, d, i); });
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
        return k.fill(keys,
                      [&](std::uint64_t i, std::int64_t) { return rk.normal(i % static_cast<std::uint64_t>(c.D)); });
      case Input::Rising:
      case Input::Falling:
      case Input::Shuffled:
        // q·k grows by 40 from the first key to the last: Q is near (1 … 1), K_j near x_j·(1 … 1), x_j in [-1, 1].
        all(1, 1, Distribution::Normal);
        q.fill(c.Sq, [&](std::uint64_t i, std::int64_t) { return 1 + 0.1f * rq.normal(i); });
        return k.fill(keys, [&](std::uint64_t i, std::int64_t j) {
          if (c.input == Input::Falling) j = c.Sk - 1 - j;
          if (c.input == Input::Shuffled)
            j = j * 7919 % c.Sk;  // a permutation: 7919 is a prime larger than any Sk here
          const float x = 2.0f * static_cast<float>(j) / static_cast<float>(std::max<std::int64_t>(c.Sk - 1, 1)) - 1;
          return (20 * x + rk.normal(i)) / std::sqrt(static_cast<float>(c.D));
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
          return c.input == Input::LowEqual ? k0 : k0 * (1 + last_place * rk.normal(i));
        });
      }
    }
  }
};

// --- The bars --------------------------------------------------------------------------------------------------------

struct Bars {
  double relative, worst_row;  // infinity: not promised
};

// O's bars for a type, an input and the exact answer.
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

inline double lse_bar(double lse) {
  return 2e-6 * std::max(1.0, std::abs(lse));
}

// Rows whose logits are sums of much larger terms of both signs: rounding such a sum once in fp32 may cost more than
// LSE's bar. They are counted, and held to O's rule for large logits: bar + 4·2^-24·size.
inline bool lse_bar_out_of_reach(double lse, double condition) {
  return 0x1p-24 * condition > lse_bar(lse);
}

// The worst figures that a check has seen, as shares of their bars.
struct Figures {
  int cases = 0;
  std::int64_t rows = 0, rows_out_of_reach = 0;  // of LSE
  double o = 0, row = 0, lse = 0, lse_out_of_reach = 0;
  std::string o_case, row_case, lse_case, lse_out_of_reach_case;

  void note(double share, double Figures::*worst, std::string Figures::*where, const Case& c) {
    if (share <= this->*worst) return;
    this->*worst = share;
    this->*where = text(c);
  }
};

inline std::string text(const Figures& f) {
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

// --- One case --------------------------------------------------------------------------------------------------------

using Complaints = std::vector<std::string>;

// Asserts that nobody complained.
inline void expect_none(const Complaints& complaints) {
  for (const std::string& complaint : complaints) FAIL_CHECK(complaint);
  CHECK(complaints.empty());
}

// Runs forward on one case and compares it with fp64. Returns what is wrong, in words; empty: all as promised.
template <class T, class Forward>
Complaints examine(const Case& c, const Forward& forward, const Features& can, Figures* figures = nullptr) {
  Complaints complaints;
  const auto complain = [&](const std::string& what, double is, double bar) {
    std::ostringstream s;
    s << type_name<T>() << " " << text(c) << ": " << what << " is " << is << ", bar " << bar;
    complaints.push_back(s.str());
  };
  Inputs<T> in(c);
  const auto q_before = in.q.memory, k_before = in.k.memory, v_before = in.v.memory;
  const Problem<T> p = in.problem(can.lse);
  forward(p);

  // O against its bars; a row without keys is exactly 0 (distance() accepts nothing else there).
  const Reference want = reference(p);
  const Distance d = distance(gather(in.o.view), want.o, std::max<std::int64_t>(c.D, 1));
  const Bars bar = bars<T>(c, want);
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
  for (std::size_t i = 0; can.lse && i < want.lse.size(); ++i) {
    const double got = in.lse[static_cast<std::size_t>(guard) + i];
    if (std::isinf(want.lse[i])) {
      if (!(got == want.lse[i])) complain("LSE of row " + std::to_string(i) + " without keys", got, want.lse[i]);
      continue;
    }
    const double error = std::abs(got - want.lse[i]), share = error / lse_bar(want.lse[i]);
    const bool out_of_reach = lse_bar_out_of_reach(want.lse[i], want.condition[i]);
    const double lse_limit = lse_bar(want.lse[i]) + (out_of_reach ? 4 * 0x1p-24 * want.condition[i] : 0);
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
  Inputs<T> again(c);
  forward(again.problem(can.lse));
  if (!same_bits(in.o.memory, again.o.memory)) complain_about("a second run gives other bits in O");
  if (!same_bits(in.lse, again.lse)) complain_about("a second run gives other bits in LSE");

  if (figures) {
    ++figures->cases;
    figures->note(d.relative / bar.relative, &Figures::o, &Figures::o_case, c);
    figures->note(d.worst_row / bar.worst_row, &Figures::row, &Figures::row_case, c);
  }
  return complaints;
}

template <class T, class Forward>
void check_forward(const Case& c, const Forward& forward, const Features& can, Figures* figures = nullptr) {
  expect_none(examine<T>(c, forward, can, figures));
}

// --- The list of cases -----------------------------------------------------------------------------------------------

// The values that each parameter takes; a phase narrows what it cannot do (a kernel's block sizes, small shapes for a
// checked run).
struct Domain {
  std::vector<std::pair<std::int64_t, std::int64_t>> batch_heads = {{2, 2}, {3, 2}, {2, 3}};
  std::vector<std::pair<std::int64_t, std::int64_t>> lengths = {
      {1, 1},    {1, 97},   {97, 1},  {7, 5},     // S = 1; smaller than any tile, both ways
      {16, 16},  {15, 33},  {33, 15}, {64, 64},   // a tile; one under and one over
      {63, 129}, {129, 63}, {65, 65}, {31, 127},  // the same for larger tiles; primes
      {127, 31}, {128, 96}, {17, 101}};
  std::vector<std::int64_t> dims = {16, 32, 64, 128, 256, 33, 5};
  std::vector<Input> inputs = {Input::Normal,   Input::Uniform,  Input::Shifted,   Input::Outliers, Input::Q4,
                               Input::QKV4,     Input::Q60,      Input::Equal,     Input::Rising,   Input::Falling,
                               Input::Shuffled, Input::LowEqual, Input::LowVaried, Input::Denormals};
  std::vector<Causal> causals = {Causal::None, Causal::TopLeft, Causal::BottomRight};
  std::vector<float> scales = {1, -1, 0.4f};  // times 1/sqrt(D); 1: left out, so that the phase's default is used
  std::vector<std::pair<std::int64_t, std::int64_t>> blocks = {{0, 0},   {16, 16}, {64, 32}, {32, 64},
                                                               {16, 48}, {13, 7},  {1, 1}};
  std::vector<Layout> layouts = {Layout::Dense, Layout::Bshd, Layout::Packed, Layout::Padded, Layout::Mixed};
  std::int64_t sram_bytes = 1024 * 1024;  // for the explicit block sizes; automatic ones get the default
};

// A short list of cases in which every value of every parameter meets every value of every other at least once.
// Greedy and deterministic: start from the first pair that is still missing, then add the values that cover most.
inline std::vector<Case> pairwise(const Domain& domain) {
  const std::array<std::size_t, 8> sizes = {domain.batch_heads.size(), domain.lengths.size(), domain.dims.size(),
                                            domain.inputs.size(),      domain.causals.size(), domain.scales.size(),
                                            domain.blocks.size(),      domain.layouts.size()};
  constexpr std::size_t n = 8, none = SIZE_MAX;
  std::array<std::size_t, n + 1> offset{};  // of parameter a's values in one common numbering
  for (std::size_t a = 0; a < n; ++a) offset[a + 1] = offset[a] + sizes[a];
  const std::size_t values = offset[n];
  std::vector<char> covered(values * values);
  std::vector<std::size_t> uses(values);
  const auto cover = [&](std::size_t a, std::size_t x, std::size_t b, std::size_t y) -> char& {
    return a < b ? covered[(offset[a] + x) * values + offset[b] + y]
                 : covered[(offset[b] + y) * values + offset[a] + x];
  };
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
        if (gain > best_gain || (gain == best_gain && uses[offset[a] + x] < uses[offset[a] + best])) {
          best = x;
          best_gain = gain;
        }
      }
      pick[a] = best;
    }
    for (std::size_t a = 0; a < n; ++a) {
      ++uses[offset[a] + pick[a]];
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
                     .causal = domain.causals[pick[4]],
                     .scale = scale,
                     .block_q = block_q,
                     .block_k = block_k,
                     .layout = domain.layouts[pick[7]],
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

// The shapes that the seeds ran, with their block sizes, scales and masks; batch and heads cut down, and the length
// where it says so, so that two cores finish them.
inline std::vector<Case> published_cases() {
  std::vector<Case> cases;
  const auto add = [&](std::int64_t B, std::int64_t H, std::int64_t Sq, std::int64_t Sk, std::int64_t D,
                       std::int64_t block_q, std::int64_t block_k, std::optional<float> scale) {
    for (const Causal causal : {Causal::None, Causal::TopLeft})
      cases.push_back({.B = B,
                       .H = H,
                       .Sq = Sq,
                       .Sk = Sk,
                       .D = D,
                       .input = scale ? Input::Halved : Input::Normal,
                       .causal = causal,
                       .scale = scale,
                       .block_q = block_q,
                       .block_k = block_k,
                       .sram_bytes = 1024 * 1024,
                       .seed = 20});
  };
  add(4, 32, 32, 32, 64, 32, 32,
      0.5f);  // a Triton kernel's seven, with N(0,1)/2; six have more keys than rows in a tile
  add(4, 32, 64, 64, 64, 32, 64, 0.5f);
  add(1, 2, 128, 128, 128, 32, 128, 0.5f);
  add(1, 1, 128, 128, 128, 64, 128, 0.5f);
  add(1, 1, 128, 128, 128, 32, 128, 0.5f);
  add(2, 2, 128, 128, 256, 32, 128, 0.5f);
  add(1, 2, 256, 256, 256, 32, 256, 0.5f);
  add(2, 2, 128, 128, 128, 64, 64, {});  // a course's self, ragged and cross attention (1024 x 4096 cut to 256 x 1024)
  add(1, 2, 500, 500, 128, 64, 64, {});
  add(1, 1, 256, 1024, 128, 64, 64, {});
  add(2, 4, 256, 256, 64, 64, 64, {});  // a simplified example's two
  add(1, 2, 512, 512, 128, 64, 64, {});
  add(2, 2, 512, 512, 64, 128, 64, {});  // a tutorial's 4 x 18 x 2048, cut
  return cases;
}

// A phase's part of a list: what it cannot do is tested as a refusal, not as a case.
inline Domain restrict_to(Domain domain, const Features& can) {
  if (!can.causal) domain.causals = {Causal::None};
  return domain;
}

// The whole pairwise list on one phase and type. Prints how many cases, the worst figures and, with -s, the list.
template <class T, class Forward>
void check_contract(const Forward& forward, const Features& can, const Domain& domain = {}) {
  const std::vector<Case> cases = pairwise(restrict_to(domain, can));
  Figures figures;
  for (const Case& c : cases) {
    INFO(text(c));
    const Complaints complaints = examine<T>(c, forward, can, &figures);
    expect_none(complaints);
  }
  MESSAGE(std::string(can.phase) << " " << std::string(type_name<T>()) << ": " << text(figures));
}

template <class T, class Forward>
void check_published(const Forward& forward, const Features& can) {
  Figures figures;
  for (const Case& c : published_cases())
    if (c.causal == Causal::None || can.causal) check_forward<T>(c, forward, can, &figures);
  MESSAGE(std::string(can.phase) << " " << std::string(type_name<T>()) << ": published shapes: " << text(figures));
}

// --- Promises that need two runs or special inputs -------------------------------------------------------------------

// O (and LSE) of one run, dense.
template <class T>
struct Result {
  std::vector<double> o;
  std::vector<float> lse;
};

template <class T, class Forward>
Result<T> run_case(Inputs<T>& in, const Forward& forward, bool want_lse) {
  forward(in.problem(want_lse));
  return {gather(in.o.view), std::vector<float>(in.lse.begin() + guard, in.lse.end() - guard)};
}

// NaN in a key or value never reaches a row that cannot see it: those rows keep their bits, and their LSE too.
template <class T, class Forward>
void check_poison(const Forward& forward, const Features& can) {
  if (!can.causal) return;
  for (const Causal causal : {Causal::TopLeft, Causal::BottomRight})
    for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{70, 70}, {40, 75}, {75, 40}})
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
        for (const bool in_v : {false, true})
          for (const std::int64_t key : {std::int64_t{0}, std::int64_t{17}, Sk / 2, Sk - 1}) {
            const Case c{.Sq = Sq, .Sk = Sk, .D = 32, .causal = causal, .block_q = 32, .block_k = 16};
            INFO(text(c) << ", " << bad << " in " << (in_v ? "V" : "K") << "[" << key << "]");
            Inputs<T> clean(c), poisoned(c);
            for (std::int64_t d = 0; d < c.D; ++d)
              (in_v ? poisoned.v : poisoned.k).view.row(1, 1, key)[d] = from_float<T>(bad);
            const Result<T> a = run_case(clean, forward, can.lse), b = run_case(poisoned, forward, can.lse);
            std::int64_t touched = 0;
            for (std::int64_t row = 0; row < c.B * c.H * Sq; ++row) {
              const bool blind = row / Sq != c.H + 1 || !sees(causal, row % Sq, key, Sq, Sk);
              if (!blind) continue;
              for (std::int64_t d = row * c.D; d < (row + 1) * c.D; ++d) touched += !(a.o[d] == b.o[d]);
              if (can.lse) touched += !(a.lse[row] == b.lse[row]);
            }
            CHECK(touched == 0);
          }
}

// Inputs whose answer is known without a reference: one key takes all, so that O is a row of V, bit for bit.
template <class T, class Forward>
void check_one_hot(const Forward& forward, const Features& can) {
  const Case c{.Sq = 45, .Sk = 37, .D = 40, .block_q = 16, .block_k = 16};
  Inputs<T> in(c);
  const auto partner = [&](std::int64_t i) { return (5 * i + 3) % c.Sk; };  // the key that row i looks for
  in.q.fill(c.Sq, [](std::uint64_t, std::int64_t) { return 0.0f; });
  in.k.fill(c.Sk, [](std::uint64_t, std::int64_t) { return 0.0f; });
  for (std::int64_t head = 0; head < c.B * c.H; ++head) {
    for (std::int64_t i = 0; i < c.Sq; ++i)
      in.q.view.row(head / c.H, head % c.H, i)[partner(i)] = from_float<T>(1000.0f);
    for (std::int64_t j = 0; j < c.Sk; ++j) in.k.view.row(head / c.H, head % c.H, j)[j] = from_float<T>(1.0f);
  }
  run_case(in, forward, can.lse);  // logits: 1000/sqrt(40) = 158 for the partner, else 0, and exp(-158) is 0 in fp32
  std::int64_t wrong = 0;
  for (std::int64_t head = 0; head < c.B * c.H; ++head)
    for (std::int64_t i = 0; i < c.Sq; ++i)
      wrong += std::memcmp(in.o.view.row(head / c.H, head % c.H, i), in.v.view.row(head / c.H, head % c.H, partner(i)),
                           static_cast<std::size_t>(c.D) * sizeof(T)) != 0;
  CHECK(wrong == 0);
}

// All logits equal, S_k a power of two and V small integers: every sum is exact, so O is the mean of V, bit for bit,
// whatever the logits' common value.
template <class T, class Forward>
void check_exact_mean(const Forward& forward, const Features& can) {
  for (const Input input : {Input::Equal, Input::LowEqual}) {
    const Case c{.Sq = 19, .Sk = 64, .D = 32, .input = input, .block_q = 16, .block_k = 32};
    INFO(text(c));
    Inputs<T> in(c);
    in.q.fill(c.Sq, [&](std::uint64_t, std::int64_t) { return input == Input::Equal ? 0.5f : 512.0f; });
    in.k.fill(c.Sk, [&](std::uint64_t, std::int64_t) { return input == Input::Equal ? 0.25f : -512.0f; });
    in.v.fill(c.Sk, [](std::uint64_t i, std::int64_t) { return static_cast<float>(i * 37 % 17) - 8; });
    forward(in.problem(can.lse));
    std::int64_t wrong = 0;
    for (std::int64_t head = 0; head < c.B * c.H; ++head)
      for (std::int64_t d = 0; d < c.D; ++d) {
        float sum = 0;
        for (std::int64_t j = 0; j < c.Sk; ++j) sum += to_float(in.v.view.row(head / c.H, head % c.H, j)[d]);
        for (std::int64_t i = 0; i < c.Sq; ++i)
          wrong += !(to_float(in.o.view.row(head / c.H, head % c.H, i)[d]) ==
                     to_float(from_float<T>(sum / static_cast<float>(c.Sk))));
      }
    CHECK(wrong == 0);
  }
}

// Any finite scale: 0 (the mean of V), 1 (unscaled), negative, tiny, large.
template <class T, class Forward>
void check_scales(const Forward& forward, const Features& can) {
  for (const float scale : {0.0f, 1.0f, -1.0f, 1e-30f, 4.0f, -4.0f})
    check_forward<T>({.Sq = 33, .Sk = 41, .D = 24, .input = Input::QKV4, .scale = scale, .block_q = 16, .block_k = 16},
                     forward, can);
}

// S_q = 0, S_k = 0, B = 0 and H = 0 are legal: nothing to write, or O = 0 and LSE = -inf.
template <class T, class Forward>
void check_empty(const Forward& forward, const Features& can) {
  for (const Causal causal : {Causal::None, Causal::TopLeft, Causal::BottomRight})
    if (causal == Causal::None || can.causal) {
      check_forward<T>({.Sq = 0, .Sk = 20, .causal = causal}, forward, can);
      check_forward<T>({.Sq = 20, .Sk = 0, .causal = causal, .layout = Layout::Padded}, forward, can);
      check_forward<T>({.Sq = 0, .Sk = 0, .causal = causal}, forward, can);
      check_forward<T>({.B = 0, .causal = causal}, forward, can);
      check_forward<T>({.H = 0, .causal = causal}, forward, can);
    }
  // Tensors without elements need no memory.
  Problem<T> p;
  p.q.shape = p.k.shape = p.v.shape = p.o.shape = {0, 2, 3, 4};
  p.q.stride = p.k.stride = p.v.stride = p.o.stride = dense_strides(p.q.shape);
  CHECK_NOTHROW(forward(p));
}

// A batch entry or a head gives the same bits alone as in company.
template <class T, class Forward>
void check_batch_invariance(const Forward& forward, const Features& can) {
  const Case c{.B = 3, .H = 2, .Sq = 50, .Sk = 61, .D = 32, .block_q = 16, .block_k = 16, .layout = Layout::Mixed};
  Inputs<T> together(c), alone(c);
  forward(together.problem(can.lse));
  for (std::int64_t b = 0; b < c.B; ++b)
    for (std::int64_t h = 0; h < c.H; ++h) {
      Problem<T> p = alone.problem(can.lse);
      for (auto* view : {&p.q, &p.k, &p.v}) {
        view->data = view->head(b, h);
        view->shape[0] = view->shape[1] = 1;
      }
      p.o.data = p.o.head(b, h);
      p.o.shape[0] = p.o.shape[1] = 1;
      if (p.lse) p.lse += (b * c.H + h) * c.Sq;
      forward(p);
    }
  CHECK(same_bits(together.o.memory, alone.o.memory));
  CHECK(same_bits(together.lse, alone.lse));
}

// O's bits do not depend on whether LSE is wanted, and without it nothing is written there.
template <class T, class Forward>
void check_lse_is_a_by_product(const Forward& forward, const Features& can) {
  if (!can.lse) return;
  const Case c{.Sq = 50, .Sk = 61, .D = 32, .causal = Causal::BottomRight, .block_q = 16, .block_k = 16};
  Inputs<T> with(c), without(c);
  forward(with.problem(true));
  forward(without.problem(false));
  CHECK(same_bits(with.o.memory, without.o.memory));
  CHECK(Strided<T>::is_poison(without.lse.data(), without.lse.size() * sizeof(float)));
}

// The same case through two phases: no further apart than their bars allow together.
template <class T, class Before, class After>
void check_equals_previous(const Case& c, const Before& before, const After& after) {
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

// More than 2^31 elements between two batch entries: offsets must be 64-bit. The memory is reserved, not used.
template <class T, class Forward>
void check_far_strides(const Forward& forward, const Features& can) {
  const Case c{.B = 2, .H = 1, .Sq = 5, .Sk = 9, .D = 8};
  constexpr std::int64_t far = (std::int64_t{1} << 31) + 5;
  Inputs<T> near(c);
  const Result<T> want = run_case(near, forward, can.lse);
  const std::size_t bytes = (static_cast<std::size_t>(far) + 4096) * sizeof(T);
  std::vector<void*> maps;
  const auto move_away = [&]<class U>(View<U>& view) {
    void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(map != MAP_FAILED);
    maps.push_back(map);
    View<T> moved{static_cast<T*>(map), view.shape, {far, view.stride[1], view.stride[2], 1}};
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t s = 0; s < view.S(); ++s)
        std::memcpy(moved.row(b, 0, s), view.row(b, 0, s), static_cast<std::size_t>(c.D) * sizeof(T));
    view = moved;
    return moved;
  };
  Problem<T> p = near.problem(false);
  move_away(p.q);
  move_away(p.k);
  move_away(p.v);
  const View<T> o = move_away(p.o);
  forward(p);
  CHECK(gather(o) == want.o);
  for (void* map : maps) munmap(map, bytes);
}

// --- What a run costs ------------------------------------------------------------------------------------------------

struct Traffic {
  const char* array;
  std::int64_t read, written;  // bytes
};

// The ledger's arrays are these, with these bytes, and no others moved any.
inline void check_traffic(const Ledger& ledger, const std::vector<Traffic>& want) {
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

// --- Bad input -------------------------------------------------------------------------------------------------------

// A refused call throws Error with exactly this line and leaves O and LSE as they were.
template <class T, class Forward, class Break>
void check_refused(const Forward& forward, const Features& can, const std::string& message, const Break& break_it) {
  Inputs<T> in({.B = 2, .H = 3, .Sq = 4, .Sk = 5, .D = 8});
  Problem<T> p = in.problem(can.lse);
  break_it(p);
  CHECK_THROWS_WITH_AS(forward(p), message.c_str(), Error);
  CHECK(message.find('\n') == std::string::npos);
  CHECK(Strided<T>::is_poison(in.o.memory.data(), in.o.memory.size() * sizeof(T)));
  CHECK(Strided<T>::is_poison(in.lse.data(), in.lse.size() * sizeof(float)));
}

// Every refusal that all phases share. O = [2, 3, 4, 8], K = V = [2, 3, 5, 8] before each is broken.
template <class T, class Forward>
void check_refusals(const Forward& forward, const Features& can) {
  using P = Problem<T>;
  const auto refused = [&](const std::string& message, const auto& break_it) {
    check_refused<T>(forward, can, message, break_it);
  };
  static constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();

  // Shapes: each dimension of K, V and O.
  refused("K's batch size B is 1; expected 2 as in Q; make the shapes agree", [](P& p) { p.k.shape[0] = 1; });
  refused("V's batch size B is 1; expected 2 as in Q; make the shapes agree", [](P& p) { p.v.shape[0] = 1; });
  refused("O's batch size B is 1; expected 2 as in Q; make the shapes agree", [](P& p) { p.o.shape[0] = 1; });
  refused("K's number of heads H is 1; expected 3 as in Q; make the shapes agree", [](P& p) { p.k.shape[1] = 1; });
  refused("V's number of heads H is 2; expected 3 as in Q; make the shapes agree", [](P& p) { p.v.shape[1] = 2; });
  refused("O's number of heads H is 1; expected 3 as in Q; make the shapes agree", [](P& p) { p.o.shape[1] = 1; });
  refused("V's sequence length S is 4; expected 5 as in K; make the shapes agree", [](P& p) { p.v.shape[2] = 4; });
  refused("O's sequence length S is 3; expected 4 as in Q; make the shapes agree", [](P& p) { p.o.shape[2] = 3; });
  refused("K's head dimension D is 7; expected 8 as in Q; make the shapes agree", [](P& p) { p.k.shape[3] = 7; });
  refused("V's head dimension D is 7; expected 8 as in Q; make the shapes agree", [](P& p) { p.v.shape[3] = 7; });
  refused("O's head dimension D is 7; expected 8 as in Q; make the shapes agree", [](P& p) { p.o.shape[3] = 7; });
  refused("Q.sequence length S is -1; expected 0 or more; correct the shape", [](P& p) { p.q.shape[2] = -1; });
  const auto set_d = [](P& p, std::int64_t D) {
    for (auto* shape : {&p.q.shape, &p.k.shape, &p.v.shape, &p.o.shape}) (*shape)[3] = D;
  };
  refused("Q's head dimension D is 0; expected 1 to 256; split the head", [&](P& p) { set_d(p, 0); });
  refused("Q's head dimension D is 257; expected 1 to 256; split the head", [&](P& p) { set_d(p, 257); });
  refused(
      "Q's number of elements [4294967296, 4294967296, 4, 8] is over 2^63; expected less than 2^63; split the batch",
      [](P& p) { p.q.shape[0] = p.q.shape[1] = std::int64_t{1} << 32; });

  // Strides and pointers.
  refused("K's last stride is 2; expected 1 (D contiguous); pass a contiguous copy", [](P& p) { p.k.stride[3] = 2; });
  refused("O's last stride is 0; expected 1 (D contiguous); pass a contiguous copy", [](P& p) { p.o.stride[3] = 0; });
  refused("V's stride of sequence length S is -8; expected 0 or more; pass a copy", [](P& p) { p.v.stride[2] = -8; });
  refused("O's stride of number of heads H is 0; expected at least 1; give each row its own memory",
          [](P& p) { p.o.stride[1] = 0; });
  refused("O's stride of sequence length S is 7; expected at least 8; give each row its own memory",
          [](P& p) { p.o.stride[2] = 7; });
  refused("O's stride of batch size B is 95; expected at least 96; give each row its own memory",
          [](P& p) { p.o.stride[0] = 95; });
  refused("V's extent in memory is over 2^63 bytes; expected less than 2^63 bytes; correct shape and strides",
          [](P& p) { p.v.stride[0] = std::int64_t{1} << 61; });
  refused("K's data is null; expected a pointer; allocate it", [](P& p) { p.k.data = nullptr; });

  // Options.
  refused("scale is nan; expected a finite number; omit it for 1/sqrt(D)", [](P& p) { p.options.scale = nan; });
  refused("scale is inf; expected a finite number; omit it for 1/sqrt(D)", [](P& p) { p.options.scale = inf; });
  refused("scale is -inf; expected a finite number; omit it for 1/sqrt(D)", [](P& p) { p.options.scale = -inf; });
  refused("block_q is -1; expected 0 (automatic) to 1048576; omit --block-q", [](P& p) { p.options.block_q = -1; });
  refused("block_k is -64; expected 0 (automatic) to 1048576; omit --block-k", [](P& p) { p.options.block_k = -64; });
  refused("block_q is 4611686018427387904; expected 0 (automatic) to 1048576; omit --block-q",
          [](P& p) { p.options.block_q = std::int64_t{1} << 62; });
  refused("block_k is 1048577; expected 0 (automatic) to 1048576; omit --block-k",
          [](P& p) { p.options.block_k = 1048577; });
  refused("sram is 0; expected at least 1 byte; pass --sram 196608", [](P& p) { p.options.sram_bytes = 0; });
  refused("threads is -2; expected 0 (all cores) or more; omit --threads", [](P& p) { p.options.threads = -2; });

  // A feature that the phase lacks: refused by name, with who has it.
  const std::string phase = can.phase;
  if (!can.causal) {
    refused("causal is top-left; expected none in phase " + phase + "; use phase 01, 04, or 07 and later",
            [](P& p) { p.options.causal = Causal::TopLeft; });
    refused("causal is bottom-right; expected none in phase " + phase + "; use phase 01, 04, or 07 and later",
            [](P& p) { p.options.causal = Causal::BottomRight; });
  }
  if (!can.lse) {
    float lse[24] = {};
    refused("lse is wanted; expected no LSE from phase " + phase + "; use phase 02, 04, or 08 and later",
            [&](P& p) { p.lse = lse; });
    CHECK(std::all_of(lse, lse + 24, [](float x) { return x == 0; }));
  }
}

// Everything above except the long lists: a phase's test calls this once per element type.
template <class T, class Forward>
void check_promises(const Forward& forward, const Features& can) {
  check_poison<T>(forward, can);
  check_one_hot<T>(forward, can);
  check_exact_mean<T>(forward, can);
  check_scales<T>(forward, can);
  check_empty<T>(forward, can);
  check_batch_invariance<T>(forward, can);
  check_lse_is_a_by_product<T>(forward, can);
}

}  // namespace flash::test
