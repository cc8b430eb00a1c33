// phase_26_test.cpp: proof of phase 26, sliding windows on Hopper and by mma.sync: without a window the bits of phases
// 25 and 25m, with one what fp64 gives; what lies outside is neither read nor heard of; bytes and tiles as predicted.
// ctest --test-dir build -L phase26
#include <doctest/doctest.h>

#include "phases/26-windows/phase.hpp"
#include "tests/features.hpp"
#include "tests/promises.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase26::phase;
}

namespace {

const Phase* const both[] = {&phase26m::phase, &phase26::phase};

// Windows of all kinds: of one key, within a tile, of whole tiles; without a bound on one side; beside the diagonal, on
// either side; without a key for some rows, or for any.
std::vector<Mask> windows() {
  constexpr std::int64_t all = Mask::all;
  constexpr Alignment end = Alignment::BottomRight;
  return {{0, 0},
          {21, 6, end},
          {64, 0},
          {127, 0, end},
          {200, 0},
          {5, all},
          {130, all, end},
          {-5, 20},
          {10, -3, end},
          {150, -70},
          {-70, 100, end},
          {-9, all},
          {-80, all, end},
          {40, 40, end},
          {-66, 66},
          {5, -7},
          {90, 1, Alignment::TopLeft, -200},
          {90, 1, Alignment::TopLeft, 150}};
}

// ---- Without a window -----------------------------------------------------------------------------------------------

// All bits of the phase before: of passes without a window; and of windows that leave nothing out on the left.
template <class T>
void check_bits(const Phase& phase, Where where, FeatureCase c) {
  static constexpr std::int64_t all = Mask::all;
  std::uint64_t number = 0;
  for (const std::int64_t D : {40, 128, 200})
    for (const Blocks& blocks : blocks_for(phase.forward->features, D)) {
      c.D = D, c.layout = static_cast<Layout>(number % 5), c.seed = number, c.keeps = number % 3 != 2;
      c.on = number % 2 ? FeatureSet{Feature::GroupedHeads} : FeatureSet{};
      const std::int64_t shift = c.Sk - c.Sq;
      const std::pair<Mask, Mask> masks[] = {{Mask::none(), Mask::none()},
                                             {Mask::top_left(), {c.Sq, 0}},
                                             {Mask::bottom_right(), {c.Sk, 0, Alignment::BottomRight}},
                                             {{all, 5 + shift}, {c.Sq - 1, 5, Alignment::BottomRight, 0}}};
      auto [without, with] = masks[number++ % std::size(masks)];
      if (with.left == c.Sq - 1) with.left += std::max<std::int64_t>(shift, 0);
      FeatureCase other = c;
      c.mask = without, other.mask = with;
      FeatureInputs<T> before(c), now(other);
      INFO(phase.name << ": " << text(c) << ", " << blocks.Br << " x " << blocks.Bc << ", window of " << with.left);
      enter(*phase.forward->before, with_blocks(before.problem(), blocks), where);
      enter(phase, with_blocks(now.problem(), blocks), where);
      CHECK(before.results() == now.results());
      if (!goes_back(phase, c.on, D)) continue;
      for (const BackwardMode mode : {BackwardMode::Deterministic, BackwardMode::Atomic}) {
        if (mode == BackwardMode::Atomic && where == Where::Gpu) continue;  // dQ is summed in the order of chance
        AnyProblem p = before.gradients(), q = now.gradients();
        p.options.mode = q.options.mode = mode;
        MachineOptions one;
        one.threads = 1;  // in which atomic sums have one order
        enter(*phase.backward->before, p, where, one);
        enter(phase, q, where, one);
        CHECK(before.results() == now.results());
      }
    }
}

// ---- With one: against fp64 -----------------------------------------------------------------------------------------

template <class T>
void check_windows(const Phase& phase, Where where, const std::vector<FeatureCase>& sizes,
                   const MachineOptions& options = {}) {
  std::uint64_t number = 0;
  for (const Mask& mask : windows())
    for (FeatureCase c : sizes) {
      const std::vector<Blocks> listed = blocks_for(phase.forward->features, c.D);
      const Blocks blocks = listed[number / 2 % listed.size()];
      c.mask = mask, c.seed = number, c.layout = static_cast<Layout>(number % 5), c.keeps = number % 3 != 2;
      if (number % 7 == 3) c.scale = -0.1f;
      if (number % 4 == 1) c.on.insert(Feature::LseGradient);
      FeatureInputs<T> in(c);
      INFO(phase.name << ": " << text(c) << ", " << blocks.Br << " x " << blocks.Bc << ", window of " << mask.left
                      << " and " << mask.right << " keys, number " << number);
      enter(phase, with_blocks(in.problem(), blocks), where, options);
      const bool back = goes_back(phase, c.on, c.D);
      if (back) {
        const std::vector<Blocks> own = blocks_for(phase.backward->features, c.D);
        AnyProblem g = with_blocks(in.gradients(), own[number / 3 % own.size()]);
        g.options.mode = number % 2 ? BackwardMode::Atomic : BackwardMode::Deterministic;
        enter(phase, g, where, options);
      }
      expect_none(in.complaints(back, 2, true));
      // Exactly: a row without a key, a key without a row.
      for (std::int64_t i = 0; i < c.Sq; ++i)
        if (in.problem().visible(i).size() == 0)
          for (std::int64_t d = 0; d < c.D; ++d) {
            if (to_float(in.o.view.row(0, 0, i)[d]) != 0) FAIL_CHECK("O of row " << i << " is not 0");
            if (back && to_float(in.dq.view.row(0, 0, i)[d]) != 0) FAIL_CHECK("dQ of row " << i << " is not 0");
          }
      const KeyRange<std::int64_t> seen = in.problem().seen(0, c.Sq - 1);
      for (std::int64_t j = 0; j < c.Sk && back; ++j)
        for (std::int64_t d = 0; d < c.D && !seen.contains(j); ++d)
          if (to_float(in.dk.view.row(0, 0, j)[d]) != 0 || to_float(in.dv.view.row(0, 0, j)[d]) != 0)
            FAIL_CHECK("dK or dV of key " << j << " is not 0");
      ++number;
    }
}

// ---- What is outside ------------------------------------------------------------------------------------------------

template <class T>
void poison_keys(FeatureInputs<T>& in, const std::function<bool(std::int64_t)>& where, bool of_k = true) {
  for (Strided<T>* x : {&in.k, &in.v})
    for (std::int64_t b = 0; b < x->view.B() && (of_k || x == &in.v); ++b)
      for (std::int64_t h = 0; h < x->view.H(); ++h)
        for (std::int64_t j = 0; j < x->view.S(); ++j)
          if (where(j)) fill_with_poison(x->view.row(b, h, j), static_cast<std::size_t>(x->view.D()) * sizeof(T));
}

// The keys that nobody sees, on either side, are poison: all bits as before. Keys lie around 2, so that the backward
// pass counts them from the mean of those that are seen.
template <class T>
void check_unseen_keys(const Phase& phase, Where where, std::int64_t D) {
  for (const Mask& mask :
       {Mask{90, 1, Alignment::TopLeft, 150}, Mask{-70, 133}, Mask{20, -10, Alignment::BottomRight}}) {
    FeatureCase c{.on = {Feature::GroupedHeads}, .B = 1, .H = 2, .Sq = 100, .Sk = 400, .D = D, .mask = mask};
    FeatureInputs<T> clean(c), poisoned(c);
    for (Strided<T>* k : {&clean.k, &poisoned.k})
      for (std::int64_t h = 0; h < k->view.H(); ++h)
        for (std::int64_t j = 0; j < c.Sk; ++j)
          for (std::int64_t d = 0; d < D; ++d)
            k->view.row(0, h, j)[d] = from_float<T>(to_float(k->view.row(0, h, j)[d]) + 2);
    INFO(phase.name << ": " << text(c) << ", " << mask.left << " and " << mask.right);
    const KeyRange<std::int64_t> seen = clean.problem().seen(0, c.Sq - 1);
    REQUIRE(seen.begin > 0);
    poison_keys(poisoned, [&](std::int64_t j) { return !seen.contains(j); });
    for (FeatureInputs<T>* in : {&clean, &poisoned}) {
      enter(phase, in->problem(), where);
      if (D <= phase.backward->features.largest_D()) enter(phase, in->gradients(), where);
    }
    CHECK(clean.results() == poisoned.results());
    expect_none(clean.complaints(D <= phase.backward->features.largest_D(), 2, true));
  }
}

template <class T>
bool all_finite(const T* row, std::int64_t D) {
  return std::all_of(row, row + D, [](T x) { return std::isfinite(to_float(x)); });
}
template <class T>
bool none_finite(const T* row, std::int64_t D) {
  return std::none_of(row, row + D, [](T x) { return std::isfinite(to_float(x)); });
}

// One key is NaN. Where its tile is outside of the window nobody hears of it; and where K alone is NaN, or V in the
// backward pass, none of those who do not see it.
template <class T>
void check_nan(const Phase& phase, Where where, std::int64_t D) {
  const std::int64_t key = 333;
  FeatureCase c{.B = 1, .H = 1, .Sq = 700, .Sk = 700, .D = D, .mask = Mask{100, 20}};
  FeatureInputs<T> clean(c), nan_v(c), nan_k(c);
  poison_keys(
      nan_v, [&](std::int64_t j) { return j == key; }, false);
  fill_with_poison(nan_k.k.view.row(0, 0, key), static_cast<std::size_t>(D) * sizeof(T));
  Run run;
  for (FeatureInputs<T>* in : {&clean, &nan_v, &nan_k}) run = enter(phase, in->problem(), where);
  const AnyProblem p = clean.problem();
  const auto [Br, Bc] = run.blocks;
  int outside = 0, near = 0;
  for (std::int64_t i = 0; i < c.Sq; ++i) {
    INFO(phase.name << ", row " << i);
    const std::int64_t first = i / Br * Br, tile = key / Bc * Bc;
    const KeyRange<std::int64_t> seen = p.seen(first, std::min(first + Br, c.Sq) - 1);
    const T *o = clean.o.view.row(0, 0, i), *with_v = nan_v.o.view.row(0, 0, i), *with_k = nan_k.o.view.row(0, 0, i);
    if (p.visible(i).contains(key)) {
      CHECK((none_finite(with_v, D) && none_finite(with_k, D)));
      continue;
    }
    CHECK(all_finite(with_k, D));
    ++near;
    if (seen.begin < tile + Bc && tile < seen.end) continue;
    ++outside;
    CHECK(std::memcmp(o, with_v, static_cast<std::size_t>(D) * sizeof(T)) == 0);
  }
  CHECK(outside > 50);
  CHECK(near > outside);
  if (D > phase.backward->features.largest_D()) return;
  enter(phase, clean.gradients(), where);
  std::copy(clean.o.memory.begin(), clean.o.memory.end(), nan_v.o.memory.begin());
  std::copy(clean.o_lo.memory.begin(), clean.o_lo.memory.end(), nan_v.o_lo.memory.begin());
  nan_v.m = clean.m, nan_v.l = clean.l, nan_v.lse = clean.lse;
  const Blocks back = enter(phase, nan_v.gradients(), where).blocks;
  const auto same = [&](const Strided<T>& a, const Strided<T>& b, std::int64_t i) {
    return std::memcmp(a.view.row(0, 0, i), b.view.row(0, 0, i), static_cast<std::size_t>(D) * sizeof(T)) == 0;
  };
  for (std::int64_t i = 0; i < c.Sq; ++i) {
    INFO(phase.name << ", row or key " << i);
    // Phase 24 multiplies dP by P = 0; phase 20 selects dS.
    const std::int64_t first = i / back.Br * back.Br, tile = key / back.Bc * back.Bc;
    const KeyRange<std::int64_t> seen = p.seen(first, std::min(first + back.Br, c.Sq) - 1);
    const bool loads = seen.begin < tile + back.Bc && tile < seen.end;
    if (p.visible(i).contains(key))
      CHECK(none_finite(nan_v.dq.view.row(0, 0, i), D));
    else if (!loads || &phase == &phase26m::phase)
      CHECK(same(clean.dq, nan_v.dq, i));
    if (i != key) CHECK((same(clean.dk, nan_v.dk, i) && same(clean.dv, nan_v.dv, i)));
  }
}

// ---- Every two features ---------------------------------------------------------------------------------------------

// Every feature alone and every two; a window is not causal, too.
template <class T>
void check_all_pairs(const Phase& phase, Where where, const FeatureCase& sizes) {
  const FeatureSet met = {Feature::GroupedHeads, Feature::OtherDv,    Feature::Causal,
                          Feature::Window,       Feature::WideOutput, Feature::LseGradient};
  CHECK(check_pairs<T>(phase, where, sizes, met, {Feature::Window}) == Pairs{1 + 4, 111});
}

const std::vector<FeatureCase> small = {{.B = 1, .H = 2, .Sq = 300, .Sk = 330, .D = 64},
                                        {.on = {Feature::GroupedHeads}, .B = 1, .H = 2, .Sq = 330, .Sk = 150, .D = 40}};

}  // namespace

TEST_CASE_TEMPLATE("without a window: the bits of the phase before", T, half, bfloat16) {
  for (const Phase* phase : both) check_bits<T>(*phase, Where::Sim, {.B = 1, .H = 2, .Sq = 140, .Sk = 150});
}

TEST_CASE("windows: as fp64") {
  check_windows<half>(phase26m::phase, Where::Sim, small);
  check_windows<bfloat16>(phase26::phase, Where::Sim, small);
}

TEST_CASE("windows: as fp64, at other head dimensions") {
  // 256 keys are whole tiles, so that the last one may be cut on the left alone.
  const std::vector<FeatureCase> wide = {{.B = 1, .H = 1, .Sq = 290, .Sk = 256, .D = 128},
                                         {.B = 1, .H = 1, .Sq = 150, .Sk = 170, .D = 200}};
  check_windows<bfloat16>(phase26m::phase, Where::Sim, {wide[0]});
  check_windows<half>(phase26::phase, Where::Sim, wide);
}

TEST_CASE("keys that nobody sees may be anything") {
  for (const Phase* phase : both)
    for (const std::int64_t D : {64, 256}) check_unseen_keys<half>(*phase, Where::Sim, D);
}

TEST_CASE("a NaN outside of the window") {
  for (const Phase* phase : both)
    for (const std::int64_t D : {64, 128}) check_nan<bfloat16>(*phase, Where::Sim, D);
}

// In whatever order blocks come.
TEST_CASE("dQ has the same bits in every run") {
  for (const Phase* phase : both) {
    const FeatureCase c{.B = 1, .H = 2, .Sq = 500, .Sk = 600, .D = 64, .mask = Mask{130, 3, Alignment::BottomRight}};
    FeatureInputs<half> in(c);
    enter(*phase, in.problem(), Where::Sim);
    std::vector<unsigned char> first;
    for (const std::uint64_t seed : {1, 2, 3}) {
      fill_with_poison(in.dq.memory.data(), in.dq.memory.size() * sizeof(half));
      MachineOptions options;
      options.order = Order::random, options.seed = seed;
      enter(*phase, in.gradients(), Where::Sim, options);
      if (first.empty()) first = in.results();
      CHECK(in.results() == first);
    }
    expect_none(in.complaints(true, 2, true));
  }
}

TEST_CASE("every two features: computed or refused") {
  check_all_pairs<half>(phase26m::phase, Where::Sim, {.D = 64});
  check_all_pairs<bfloat16>(phase26::phase, Where::Sim, {.D = 64});
  check_all_pairs<half>(phase26::phase, Where::Sim, {.B = 1, .H = 2, .D = 256});
}

// From the mask alone, pair by pair: a tile is cut on the left where a row does not see its first key, though a later
// one; on the right where a row does not see its last place.
TEST_CASE("tiles: whole, cut and skipped, left and right") {
  for (const Phase* phase : both)
    for (const Mask& mask : windows())
      for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{300, 330}, {53, 400}, {400, 100}}) {
        FeatureInputs<half> in({.B = 1, .H = 1, .Sq = Sq, .Sk = Sk, .D = 64, .mask = mask});
        const Run run = enter(*phase, in.problem());
        const auto [Br, Bc] = run.blocks;
        TileCounts want;
        for (std::int64_t i = 0; i < Sq; i += Br)
          for (std::int64_t j = 0; j < Sk; j += Bc) {
            std::int64_t pairs = 0;
            bool left = false, right = false, before = true;  // before: all keys are left of what the rows see
            const std::int64_t rows = std::min(Br, Sq - i), keys = std::min(Bc, Sk - j);
            const std::int64_t diagonal = mask.shift + (mask.alignment == Alignment::BottomRight ? Sk - Sq : 0);
            for (std::int64_t r = i; r < i + rows; ++r) {
              for (std::int64_t k = j; k < j + keys; ++k) pairs += sees(mask, r, k, Sq, Sk);
              left |= mask.left < Mask::all && j < r + diagonal - mask.left;
              right |= j + Bc > Sk || (mask.right < Mask::all && j + Bc - 1 > r + diagonal + mask.right);
              before &= mask.left < Mask::all && j + keys - 1 < r + diagonal - mask.left;
            }
            if (pairs == 0)
              ++want.skipped, want.skipped_left += before;
            else if (!left && !right)
              ++want.full;
            else
              ++want.masked, want.masked_left += left, want.masked_both += left && right;
          }
        INFO(phase->name << ": " << text(FeatureCase{.Sq = Sq, .Sk = Sk}) << ", " << mask.left << " and "
                         << mask.right);
        CHECK(run.tiles.full == want.full);
        CHECK(run.tiles.masked == want.masked);
        CHECK(run.tiles.masked_left == want.masked_left);
        CHECK(run.tiles.masked_both == want.masked_both);
        CHECK(run.tiles.skipped == want.skipped);
        if (mask.left + mask.right >= 0) CHECK(run.tiles.skipped_left == want.skipped_left);
      }
}

// Predicted = counted: each window, forward and backward, ragged, both modes.
TEST_CASE("bytes equal the formula") {
  for (const Phase* phase : both) {
    if (skipped_without(*phase, Where::Checked)) return;
    std::uint64_t number = 0;
    for (const Mask& mask : windows()) {
      const bool wide = number % 3 == 2;
      FeatureCase c{.on = {Feature::GroupedHeads},
                    .B = 1,
                    .H = 2,
                    .Sq = 170,
                    .Sk = 300,
                    .D = wide ? 128 : 48,
                    .seed = ++number,
                    .keeps = number % 2 > 0,
                    .mask = mask};
      if (number % 2) std::swap(c.Sq, c.Sk);
      FeatureInputs<half> in(c);
      INFO(phase->name << ": " << text(c) << ", " << mask.left << " and " << mask.right);
      const auto compare = [&](const AnyProblem& p, const Pass& pass) {
        Run run = enter(*phase, p, Where::Checked);
        const HbmBytes formula = pass.features.hbm_bytes(p, run.blocks);
        CHECK(formula.read == run.ledger.hbm_read_bytes());
        CHECK(formula.written == run.ledger.hbm_written_bytes());
      };
      const std::vector<Blocks> forward = blocks_for(phase->forward->features, c.D),
                                backward = blocks_for(phase->backward->features, c.D);
      compare(with_blocks(in.problem(), forward[number % forward.size()]), *phase->forward);
      AnyProblem g = with_blocks(in.gradients(), backward[number % backward.size()]);
      if (number % 4 < 2) g.options.mode = BackwardMode::Atomic;
      compare(g, *phase->backward);
    }
  }
}

TEST_CASE("checked: windows") {
  const std::vector<FeatureCase> few = {{.B = 1, .H = 1, .Sq = 200, .Sk = 270, .D = 64}};
  check_windows<half>(phase26m::phase, Where::Checked, few);
  check_windows<bfloat16>(phase26::phase, Where::Checked, few);
}

// ---- On a GPU -------------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("gpu: the bits of the phase before", T, half, bfloat16) {
  for (const Phase* phase : both) {
    if (skipped_without(*phase, Where::Gpu)) return;
    for (int i = 0; i < 4; ++i) check_bits<T>(*phase, Where::Gpu, {.H = 6, .Sq = 1030 + i, .Sk = 1200});
  }
}

TEST_CASE_TEMPLATE("gpu: windows", T, half, bfloat16) {
  for (const Phase* phase : both) {
    if (skipped_without(*phase, Where::Gpu)) return;
    for (const std::int64_t D : {64, 128, 256})
      check_windows<T>(*phase, Where::Gpu, {{.Sq = 700, .Sk = 713, .D = D}, {.Sq = 1100, .Sk = 500, .D = D}});
  }
}

TEST_CASE_TEMPLATE("gpu: what is outside, and every two features", T, half, bfloat16) {
  for (const Phase* phase : both) {
    if (skipped_without(*phase, Where::Gpu)) return;
    for (const std::int64_t D : {64, 128, 256}) {
      check_unseen_keys<T>(*phase, Where::Gpu, D);
      check_nan<T>(*phase, Where::Gpu, D);
      check_all_pairs<T>(*phase, Where::Gpu, {.Sq = 200, .Sk = 330, .D = D});
    }
  }
}

TEST_CASE("gpu: dQ has the same bits in every run") {
  for (const Phase* phase : both) {
    if (skipped_without(*phase, Where::Gpu)) return;
    for (const std::int64_t D : {64, 128}) {
      FeatureInputs<bfloat16> in({.H = 8, .Sq = 3000, .Sk = 3000, .D = D, .mask = Mask{511, 0}});
      enter(*phase, in.problem(), Where::Gpu);
      std::vector<unsigned char> first;
      for (int run = 0; run < 10; ++run) {
        enter(*phase, in.gradients(), Where::Gpu);
        if (first.empty()) first = in.results();
        CHECK(in.results() == first);
      }
    }
  }
}
