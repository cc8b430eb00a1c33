// contract.hpp: what every phase promises, as checks that any `forward(const Problem<T>&)` can be put through.
// The bars are those of docs/conventions.md and are asserted as written there; NaN fails everything. Compiled once, in
// contract.cpp. Use:  check_forward<float>({.Sq = 33}, [](const auto& p) { phase04::forward(p); }, phase04::features);
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "phases/arrays/random.hpp"
#include "phases/interface/features.hpp"
#include "phases/interface/limits.hpp"
#include "sim/ledger.hpp"
#include "tests/reference.hpp"

namespace flash::test {

// Compiled in contract.cpp, with the optimiser at work.
extern template Reference reference<float>(const Problem<float>&);
extern template Reference reference<half>(const Problem<half>&);
extern template Reference reference<bfloat16>(const Problem<bfloat16>&);

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
  EqualHigh,  // all logits equal and so high that c · m, 457 in base 2, is rounded to a multiple of 2^-15
};

inline const char* name(Input input) {
  static constexpr const char* names[] = {
      "N(0,1)/2", "N(0,1)", "uniform[0,1)", "N(1,1)",   "outliers",      "Q*4",       "QKV*4",     "Q*60",
      "equal",    "rising", "falling",      "shuffled", "equal at -2e6", "near -2e6", "denormals", "equal at 317"};
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

struct Case {
  std::int64_t B = 2, H = 2, Sq = 16, Sk = 16, D = 16;
  Input input = Input::Normal;
  Mask mask = {};
  std::optional<float> scale = {};
  std::int64_t block_q = 0, block_k = 0;
  Layout layout = Layout::Dense;
  std::int64_t granule = 1;  // elements: what the gaps of a padded layout are multiples of
  std::int64_t sram_bytes = 192 * 1024;
  int threads = 1;
  std::uint64_t seed = 1;
  bool twice = true;  // run it again: same input, same bits
};

std::string text(const Case& c);

// --- Memory with poison around it ------------------------------------------------------------------------------------

// What no run may touch. Two of these bytes are a NaN in fp16 and bf16, four in fp32; they are not the bytes with which
// machines fill fresh memory, so that a copy of such memory is noticed.
inline constexpr unsigned char poison[2] = {0xd3, 0x7f};
void fill_with_poison(void* memory, std::size_t bytes);
bool is_poison(const void* memory, std::size_t bytes);
inline constexpr std::int64_t guard = 64;  // poisoned elements before and after each array

// A strided [B, H, S, D] tensor inside memory that is poison everywhere else. `slot` (Q 0, K 1, V 2, O 3) makes the
// strides of the four tensors differ.
template <class T>
struct Strided {
  std::vector<T> memory;
  View<T> view;

  Strided(const std::array<std::int64_t, 4>& shape, Layout layout, int slot, std::int64_t granule = 1);
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
  bool gaps_intact() const;
};

// The first `count` numbers of a stream. Tests would spend most of their time drawing: each is drawn once per program,
// from four seeds that the cases take in turn.
const std::vector<float>& drawn(std::uint64_t seed, std::uint32_t stream, Distribution d, std::int64_t count);

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

  explicit Inputs(const Case& c);
  Problem<T> problem(bool want_lse);
  bool lse_guards_intact() const;

 private:
  void fill();
};

// --- The bars --------------------------------------------------------------------------------------------------------

struct Bars {
  double relative, worst_row;  // infinity: not promised
};

// O's bars for a type, an input and the exact answer.
template <class T>
Bars bars(const Case& c, const Reference& want);

// O's bars where S_k keys are added up one after the other; below some 7,000 keys they hardly differ from bars().
// Rounding to nearest has no sign. Each addition is off by 0.42 · 2^-24 of the running sum (root mean square), and S_k
// of them by 0.3 · 2^-24 · √S_k of the last sum, if it grows as that of random V does.
// Tensor cores cut the running sum towards zero instead, with each 16 keys by 3/8 of its last place on the average
// (sim/core/tensor_core.cpp): 0.54 · 2^-24 of the sum. A key suffers all cuts after its own, so that its weight is too
// small by 0 to S_k/16 · 0.54 · 2^-24; the root mean square of that is S_k/51 · 2^-24. O's own rounding is independent
// of it: the two add as squares do.
template <class T>
Bars bars_of_length(Bars bar, std::int64_t Sk, const Features& can) {
  const auto keys = static_cast<double>(Sk);
  if (can.tensor_cores) bar.relative = std::hypot(bar.relative, keys / 48 * 0x1p-24);
  if (std::is_same_v<T, float>) {
    bar.relative = std::max(bar.relative, 0.4 * 0x1p-24 * std::sqrt(keys));
    bar.worst_row = std::max(bar.worst_row, 0.8 * 0x1p-24 * std::sqrt(keys));
  }
  return bar;
}

inline double lse_bar(double lse) {
  return 2e-6 * std::max(1.0, std::abs(lse));
}

// Rows whose logits are sums of much larger terms of both signs: rounding such a sum once in fp32 may cost more than
// LSE's bar. They are counted, and held to O's rule for large logits: bar + 4·2^-24·size. Tensor cores cut off bits of
// the sum, up to 2·2^-24 of it, with each 16 columns: bar + D/16·2·2^-24·size.
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

std::string text(const Figures& f);

// --- One case --------------------------------------------------------------------------------------------------------

// A phase on one machine.
template <class T>
using Forward = std::function<void(const Problem<T>&)>;

using Complaints = std::vector<std::string>;

// Asserts that nobody complained.
inline void expect_none(const Complaints& complaints) {
  for (const std::string& complaint : complaints) FAIL_CHECK(complaint);
  CHECK(complaints.empty());
}

// Runs forward on one case and compares it with fp64. Returns what is wrong, in words; empty: all as promised.
template <class T>
Complaints examine(const Case& c, const Forward<T>& forward, const Features& can, Figures* figures = nullptr);
template <class T>
void check_forward(const Case& c, const Forward<T>& forward, const Features& can, Figures* figures = nullptr);

// The same case through two phases: no further apart than their bars allow together.
template <class T>
void check_equals_previous(const Case& c, const Forward<T>& before, const Forward<T>& after);

// --- The list of cases -----------------------------------------------------------------------------------------------

// The values that each parameter takes; a phase narrows what it cannot do (a kernel's block sizes, small shapes for a
// checked run).
struct Domain {
  std::vector<std::pair<std::int64_t, std::int64_t>> batch_heads = {{1, 2}, {2, 1}, {2, 3}};
  std::vector<std::pair<std::int64_t, std::int64_t>> lengths = {
      {1, 1},    {1, 97},   {97, 1},  {7, 5},     // S = 1; smaller than any tile, both ways
      {16, 16},  {15, 33},  {33, 15}, {64, 64},   // a tile; one under and one over
      {63, 129}, {129, 63}, {65, 65}, {31, 127},  // the same for larger tiles; primes
      {127, 31}, {128, 96}, {17, 101}};
  std::vector<std::int64_t> dims = {16, 32, 64, 128, 256, 33, 5};
  std::vector<Input> inputs = {Input::Normal,   Input::Uniform,  Input::Shifted,   Input::Outliers, Input::Q4,
                               Input::QKV4,     Input::Q60,      Input::Equal,     Input::Rising,   Input::Falling,
                               Input::Shuffled, Input::LowEqual, Input::LowVaried, Input::Denormals};
  std::vector<Mask> causals = {Mask::none(), Mask::top_left(), Mask::bottom_right()};
  std::vector<float> scales = {1, -1, 0.4f};  // times 1/sqrt(D); 1: left out, so that the phase's default is used
  std::vector<std::pair<std::int64_t, std::int64_t>> blocks = {{0, 0},   {16, 16}, {64, 32}, {32, 64},
                                                               {16, 48}, {13, 7},  {1, 1}};
  std::vector<Layout> layouts = {Layout::Dense, Layout::Bshd, Layout::Packed, Layout::Padded, Layout::Mixed};
  std::int64_t granule = 1;
  bool evenly = false;
  std::int64_t sram_bytes = 1024 * 1024;  // for the explicit block sizes; automatic ones get the default
};

// A short list of cases in which every value of every parameter meets every value of every other at least once.
// Greedy and deterministic: start from the first pair that is still missing, then add the values that cover most. Of
// such that cover as much it is the one on which least work was spent, so that what is large comes as often as it must;
// with Domain::evenly the one that was used least.
std::vector<Case> pairwise(const Domain& domain);

// The shapes that published kernels ran, with their block sizes, scales and masks; batch and heads cut down, and the
// length where it says so, so that two cores finish them.
std::vector<Case> published_cases();

// A few rows of Q and very many keys, logits drawn and all equal. What is done a little wrongly at each tile adds up
// here: with the number of tiles if it has one sign, with the root of that number if it is rounding.
std::vector<Case> long_cases(std::int64_t Sk);

// --- What a run costs ------------------------------------------------------------------------------------------------

struct Traffic {
  const char* array;
  std::int64_t read, written;  // bytes
};

// The ledger's arrays are these, with these bytes, and no others moved any.
void check_traffic(const Ledger& ledger, const std::vector<Traffic>& want);

// --- Bad input -------------------------------------------------------------------------------------------------------

// A refused call throws Error with exactly this line and leaves O and LSE as they were.
template <class T, class Break>
void check_refused(const Forward<T>& forward, const Features& can, const std::string& message, const Break& break_it) {
  Inputs<T> in({.B = 2, .H = 3, .Sq = 4, .Sk = 5, .D = 8});
  Problem<T> p = in.problem(can.meets(Demand::Lse));
  break_it(p);
  CHECK_THROWS_WITH_AS(forward(p), message.c_str(), Error);
  CHECK(message.find('\n') == std::string::npos);
  CHECK(is_poison(in.o.memory.data(), in.o.memory.size() * sizeof(T)));
  CHECK(is_poison(in.lse.data(), in.lse.size() * sizeof(float)));
}

}  // namespace flash::test
