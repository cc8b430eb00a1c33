// phase_28_test.cpp: proof of phase 28, modified scores on Hopper and by mma.sync: without a modifier the bits of the
// phase before, with them fp64's answers within the contract; every two features together, or refused.
// ctest --test-dir build -L phase28
#include <doctest/doctest.h>

#include "phases/28-modifiers/phase.hpp"
#include "tests/features.hpp"
#include "tests/promises.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase28::phase;
}

namespace {

const Phase* const both[] = {&phase28m::phase, &phase28::phase};

bool cannot_run(const Phase& phase, Where where) {
  return skipped_without(phase.forward->features, where);
}

// Small problems of any features.
FeatureCase small(const FeatureSet& on, std::int64_t D, std::uint64_t seed = 1) {
  return {.on = on, .B = 2, .H = 2, .Sq = 70, .Sk = 150, .D = D, .seed = seed};
}

// Only the forward pass can leave O in fp32; phase 28's backward pass has no kernel for D = 256.
bool goes_back(const Phase& phase, const FeatureCase& c) {
  return !c.has(Feature::WideOutput) && std::max(c.D, c.Dv) <= phase.backward->features.largest_D();
}

bool meets(const FeatureSet& set) {
  return std::all_of(set.begin(), set.end(), [](Feature feature) {
    return feature != Feature::Window && feature != Feature::Packed && feature != Feature::Used &&
           feature != Feature::Dropout;
  });
}

// Both passes, within the bars of the definition.
template <class T>
void check_case(const Phase& phase, Where where, const FeatureCase& c, const MachineOptions& options = {}) {
  FeatureInputs<T> in(c);
  INFO(phase.name << ": " << text(c));
  const bool back = goes_back(phase, c);
  enter(phase, in.problem(), where, options);
  if (back) enter(phase, in.gradients(), where, options);
  expect_none(in.complaints(back, 2, true));
}

// Every feature alone and every two: within the bars, or refused by name.
template <class T>
void check_pairs(const Phase& phase, Where where, const FeatureCase& sizes) {
  int computed = 0, refused = 0;
  for (const FeatureSet& on : singles_and_pairs()) {
    FeatureCase c = sizes;
    c.on = on, c.seed = static_cast<std::uint64_t>(computed + refused), c.sharing = (computed + refused) % 8;
    c.keeps = (computed + refused) % 3 != 2;
    if (meets(on)) {
      check_case<T>(phase, where, c);
      ++computed;
      continue;
    }
    FeatureInputs<T> in(c);
    INFO(phase.name << ": " << text(c));
    const std::vector<unsigned char> before = in.results();
    CHECK_THROWS_WITH_AS(enter(phase, in.problem(), where),
                         doctest::Contains("choose a phase that has it: ./flash help"), Error);
    CHECK(in.results() == before);
    ++refused;
  }
  CHECK(computed == 1 + 12 + 66);
  CHECK(refused > 40);
}

}  // namespace

TEST_CASE_TEMPLATE("without a modifier: the bits of the phase before", T, half, bfloat16) {
  for (const Phase* phase : both) {
    FeatureInputs<T> before(small({Feature::Causal}, 128)), after(small({Feature::Causal}, 128));
    enter(*phase->forward->before, before.problem()), enter(*phase->backward->before, before.gradients());
    enter(*phase, after.problem()), enter(*phase, after.gradients());
    CHECK(before.results() == after.results());
  }
}

TEST_CASE("every two features: computed or refused") {
  check_pairs<half>(phase28m::phase, Where::Sim, small({}, 64));
  check_pairs<bfloat16>(phase28::phase, Where::Sim, small({}, 64));
}

// Softcap and ALiBi have kernels of their own where D is 128. cap: with 1.5 most scores are far, with 30 none.
TEST_CASE("checked: each modifier at D = 128") {
  for (const Phase* phase : both) {
    if (cannot_run(*phase, Where::Checked)) continue;
    for (const Feature feature : {Feature::Softcap, Feature::Alibi, Feature::Bias, Feature::BoolMask,
                                  Feature::Documents, Feature::BlockMask, Feature::Sinks})
      check_case<bfloat16>(*phase, Where::Checked, small({feature}, 128));
    for (const Feature feature : {Feature::Softcap, Feature::Alibi})
      check_case<half>(*phase, Where::Checked, small({feature, Feature::GroupedHeads, Feature::Causal}, 128, 2));
  }
}

// Alone it has a kernel of its own, where eight neighbours are one access: with 296 keys, not with 151. sharing: of
// rows, heads and batch entries. The kernel stores dbias, too, without it, or adds, if two share it, or in the atomic
// mode. Some of it is -inf.
TEST_CASE_TEMPLATE("a bias alone", T, half, bfloat16) {
  for (const int sharing : {0, 1, 3, 6})
    for (const bool causal : {false, true}) {
      FeatureCase c{.on = {Feature::Bias}, .B = 2, .H = 2, .Sq = 200, .Sk = 296, .D = 128, .sharing = sharing};
      if (causal) c.on.insert(Feature::Causal), c.on.insert(Feature::GroupedHeads), c.keeps = false;
      check_case<T>(phase28::phase, Where::Sim, c);
    }
  for (const int sharing : {3, 7}) {
    FeatureInputs<T> in({.on = {Feature::Bias, Feature::Causal}, .Sq = 70, .Sk = 96, .D = 128, .sharing = sharing});
    AnyProblem gradients = in.gradients();
    gradients.options.mode = BackwardMode::Atomic;
    enter(phase28::phase, in.problem()), enter(phase28::phase, gradients);
    INFO(text(in.c));
    expect_none(in.complaints(true, 2, true));
  }
  FeatureCase odd = small({Feature::Bias}, 128);
  odd.Sk = 151;
  check_case<T>(phase28::phase, Where::Sim, odd);
}

// The last eight neighbours are no eight keys; behind the keys of a row is NaN, behind those of the last one nothing.
TEST_CASE("checked: a bias alone, whose rows are farther apart than they are long") {
  if (cannot_run(phase28::phase, Where::Checked)) return;
  for (const std::int64_t Sk : {162, 161}) {
    FeatureInputs<half> in({.on = {Feature::Bias}, .B = 1, .H = 2, .Sq = 140, .Sk = Sk, .D = 128});
    const std::int64_t rows = 2 * 140, stride = 168;
    std::vector<half> apart(static_cast<std::size_t>((rows - 1) * stride + Sk), from_float<half>(NAN));
    for (std::int64_t n = 0; n < rows; ++n) std::copy_n(&in.bias[n * Sk], Sk, &apart[n * stride]);
    for (AnyProblem p : {in.problem(), in.gradients()}) {
      p.bias.data = apart.data(), p.bias.stride = {rows * stride, 140 * stride, stride, 1};
      enter(phase28::phase, p, Where::Checked);  // throws what it finds
    }
    INFO(text(in.c));
    expect_none(in.complaints(true, 2, true));
  }
}

TEST_CASE("checked: a bias alone") {
  if (cannot_run(phase28::phase, Where::Checked)) return;
  for (const int sharing : {0, 1, 4}) {
    FeatureCase c{.on = {Feature::Bias, Feature::Causal}, .B = 2, .H = 1, .Sq = 130, .Sk = 152, .D = 128};
    c.sharing = sharing;
    check_case<half>(phase28::phase, Where::Checked, c);
  }
}

// A tile before the diagonal, tiles on it, and tiles behind it.
TEST_CASE("checked: ALiBi on both sides of the diagonal") {
  for (const Phase* phase : both)
    if (!cannot_run(*phase, Where::Checked))
      check_case<half>(*phase, Where::Checked,
                       {.on = {Feature::Alibi}, .B = 1, .H = 2, .Sq = 420, .Sk = 300, .D = 128});
}

TEST_CASE("checked: clean with all modifiers together") {
  const FeatureSet all = {Feature::Softcap,   Feature::Alibi,       Feature::Bias,     Feature::BoolMask,
                          Feature::Documents, Feature::Causal,      Feature::Sinks,    Feature::GroupedHeads,
                          Feature::OtherDv,   Feature::LseGradient, Feature::BlockMask};
  for (const Phase* phase : both) {
    if (cannot_run(*phase, Where::Checked)) continue;
    FeatureCase c = small(all, 64);
    for (c.sharing = 0; c.sharing < 8; c.sharing += 7) check_case<half>(*phase, Where::Checked, c);
  }
}

// ---- Tiles that a block mask hides whole ----------------------------------------------------------------------------

// Of 128 x 128 pairs two in three are hidden, another third in each head and batch entry; the third 128 rows see
// nothing in head 0, and nobody sees keys 128 to 255 in head 1. What is left is asked, or seen whole.
template <class T>
struct Sparse : FeatureInputs<T> {
  explicit Sparse(const FeatureCase& c) : FeatureInputs<T>(c) {
    const AnyView blocks = this->problem().blocks;
    std::size_t n = 0;
    for (std::int64_t b = 0; b < blocks.B(); ++b)
      for (std::int64_t h = 0; h < blocks.H(); ++h)
        for (std::int64_t i = 0; i < blocks.S(); ++i)
          for (std::int64_t j = 0; j < blocks.D(); ++j) {
            const bool hidden = (i / 2 + j / 2 + h + b) % 3 > 0 || (h == 0 && i / 2 == 2) || (h == 1 && j / 2 == 1);
            this->blocks[n++] = static_cast<std::uint8_t>(hidden ? 0 : 1 + (i + j) % 2);
          }
  }
};

// sharing: which of the axes B and H of the masks are 1. With 1 heads share K, and the masks are theirs alone. Of the
// fourth 128 rows and the first, some K/V tiles have both, and none between them.
void check_lists(const Phase& phase, Where where, int sharing, std::int64_t D) {
  FeatureSet on = {Feature::BlockMask, Feature::BoolMask, Feature::LseGradient};
  if (sharing % 2 == 0) on.insert(Feature::Causal);
  if (sharing > 0) on.insert(Feature::GroupedHeads);
  Sparse<bfloat16> in({.on = on, .B = 2, .H = 2, .Sq = 460, .Sk = 400, .D = D, .sharing = sharing});
  INFO(phase.name << ": " << text(in.c));
  AnyProblem gradients = in.gradients();
  if (sharing == 3) gradients.options.mode = BackwardMode::Atomic;
  enter(phase, in.problem(), where), enter(phase, gradients, where);
  expect_none(in.complaints(true, 2, true));
}

TEST_CASE("tiles by lists") {
  for (const Phase* phase : both)
    for (int sharing = 0; sharing < 4; ++sharing) check_lists(*phase, Where::Sim, sharing, sharing % 2 == 1 ? 128 : 64);
}

TEST_CASE("checked: tiles by lists") {
  for (const Phase* phase : both)
    if (!cannot_run(*phase, Where::Checked))
      for (const int sharing : {0, 3}) check_lists(*phase, Where::Checked, sharing, 64);
}

// Rows of dS are summed where keys have a mean: by the share of dQ that comes first, whichever that is.
TEST_CASE("tiles by lists, keys with a mean") {
  for (const Phase* phase : both) {
    Sparse<bfloat16> in(
        {.on = {Feature::BlockMask, Feature::LseGradient}, .B = 1, .H = 2, .Sq = 330, .Sk = 400, .D = 64});
    const Random random(28, 9);
    in.k.fill(400, [&](std::uint64_t i, std::int64_t) { return random.normal(i) + 1; });
    enter(*phase, in.problem()), enter(*phase, in.gradients());
    INFO(phase->name);
    expect_none(in.complaints(true, 10, true));
  }
}

// K and V of a tile of pairs are read where a block of it is not hidden, and in the backward pass Q; nothing else is.
TEST_CASE("tiles that nobody sees are not loaded") {
  for (const Phase* phase : both) {
    if (cannot_run(*phase, Where::Checked)) continue;
    Sparse<half> in({.on = {Feature::BlockMask}, .B = 2, .H = 2, .Sq = 330, .Sk = 400, .D = 64});
    const AnyProblem p = in.problem();
    // Sums up over all tiles that are seen what `of` says of their rows and keys.
    const auto sum = [&](Blocks tile, const auto& of) {
      std::uint64_t all = 0;
      for (std::int64_t n = 0; n < p.B() * p.H(); ++n)
        for (std::int64_t i = 0; i < p.Sq(); i += tile.Br)
          for (std::int64_t j = 0; j < p.Sk(); j += tile.Bc) {
            const std::int64_t rows = std::min(tile.Br, p.Sq() - i), keys = std::min(tile.Bc, p.Sk() - j);
            bool seen = false;
            for (std::int64_t r = i; r < i + rows; ++r)
              for (std::int64_t c = j; c < j + keys; ++c)
                seen |= view_as<const std::uint8_t>(p.blocks).row(n / p.H(), n % p.H(), r / 64)[c / 64] != 0;
            if (seen) all += static_cast<std::uint64_t>(of(rows, keys));
          }
      return all;
    };
    const Run forward = enter(*phase, p, Where::Checked);
    const Run backward = enter(*phase, in.gradients(), Where::Checked);
    Ledger of_forward = forward.ledger, of_backward = backward.ledger;
    const std::uint64_t row = static_cast<std::uint64_t>(p.row_bytes());
    const std::uint64_t keys = sum(forward.blocks, [](std::int64_t, std::int64_t keys) { return keys; });
    const std::uint64_t rows = sum(backward.blocks, [](std::int64_t rows, std::int64_t) { return rows; });
    // By mma.sync dQ has a kernel of its own, which reads Q once more.
    const std::uint64_t once = phase == &phase28m::phase ? static_cast<std::uint64_t>(p.B() * p.H() * p.Sq()) : 0;
    const std::uint64_t all = static_cast<std::uint64_t>(p.B() * p.H() * p.Sk() * ((p.Sq() + 127) / 128));
    INFO(phase->name << ": " << keys << " of " << all << " keys");
    CHECK(2 * keys < all);
    CHECK(of_forward.array("K").read_bytes == keys * row);
    CHECK(of_forward.array("V").read_bytes == keys * static_cast<std::uint64_t>(p.v_row_bytes()));
    CHECK(of_backward.array("Q").read_bytes == (rows + once) * row);
  }
}

TEST_CASE("D = 256: forward on Hopper, both ways by mma.sync") {
  for (const Phase* phase : both)
    check_case<bfloat16>(*phase, Where::Sim, small({Feature::Softcap, Feature::Bias}, 256));
}

// A cap that no score comes near: tanh goes by its polynomial alone. LSE's bar is what tanh.approx would miss.
TEST_CASE("softcap of 30") {
  for (const Phase* phase : both) {
    FeatureInputs<half> in(small({Feature::Softcap}, 128));
    const auto capped = [](AnyProblem p) {
      p.options.softcap = 30;
      return p;
    };
    enter(*phase, capped(in.problem())), enter(*phase, capped(in.gradients()));
    const Whole want(capped(in.gradients()));
    for (std::size_t i = 0; i < in.lse.size(); ++i) CHECK(std::abs(in.lse[i] - want.lse[i]) <= lse_bar(want.lse[i]));
    const double floor = rounding_floor<half>(want.o, 128).relative;
    CHECK(distance(gather64(in.o.view), want.o, 128).relative <= 1.5 * floor + 0x1p-24);
    CHECK(gradient_error<half>(gather64(in.dq.view), want.dq, want.size_q.g, 5e-6, 2).share <= 1);
    CHECK(gradient_error<half>(gather64(in.dk.view), want.dk, want.size_k.g, 5e-6, 2).share <= 1);
  }
}

// All scores are about -3, twice the cap: a maximum below zero, of which integers have the order turned.
TEST_CASE("scores far below zero") {
  for (const Phase* phase : both) {
    FeatureInputs<half> in(small({Feature::Softcap}, 128));
    const Random random(28, 11);
    in.q.fill(70, [&](std::uint64_t i, std::int64_t) { return 0.5 + 0.1 * random.normal(i); });
    in.k.fill(150, [&](std::uint64_t i, std::int64_t) { return -0.5 + 0.1 * random.normal(i); });
    enter(*phase, in.problem()), enter(*phase, in.gradients());
    INFO(phase->name);
    expect_none(in.complaints(true, 10, true));
  }
}

// A score that is NaN, or infinite, is what it was behind a softcap, and nobody else's.
TEST_CASE("softcap of NaN") {
  for (const Phase* phase : both) {
    FeatureInputs<half> in(small({Feature::Softcap}, 128));
    std::fill_n(in.q.view.row(1, 1, 5), 128, from_float<half>(NAN));
    enter(*phase, in.problem());
    for (std::int64_t i = 0; i < 70; ++i) CHECK(std::isnan(to_float(*in.o.view.row(1, 1, i))) == (i == 5));
  }
}

TEST_CASE("NaN in keys that a mask or a bias hides") {
  for (const Phase* phase : both)
    for (const auto& [feature, D, Sk] : {std::tuple<Feature, std::int64_t, std::int64_t>{Feature::BoolMask, 64, 150},
                                         {Feature::Bias, 64, 150},
                                         {Feature::Bias, 128, 152}}) {
      FeatureCase c = small({feature}, D);
      c.Sk = Sk;
      FeatureInputs<half> with(c), without(c);
      for (FeatureInputs<half>* in : {&with, &without})
        for (std::int64_t n = 0; n < 2 * 2 * 70; ++n)
          for (const std::int64_t j : {3, 140}) {
            const auto at = static_cast<std::size_t>(n * Sk + j);
            if (feature == Feature::Bias) in->bias[at] = from_float<half>(-INFINITY);
            if (feature == Feature::BoolMask) in->allowed[at] = 0;
          }
      for (int b = 0; b < 2; ++b)
        for (const std::int64_t j : {3, 140}) std::fill_n(with.k.view.row(b, 1, j), D, from_float<half>(NAN));
      enter(*phase, with.problem()), enter(*phase, without.problem());
      CHECK(with.results() == without.results());
    }
}

// Where a sink is far above all logits O is nearly 0; where it is far below it is as if it were not there.
TEST_CASE("sinks far above and far below") {
  for (const Phase* phase : both) {
    FeatureInputs<bfloat16> in(small({Feature::Sinks, Feature::LseGradient}, 64));
    in.sinks = {40, -40};
    enter(*phase, in.problem()), enter(*phase, in.gradients());
    expect_none(in.complaints(true, 2, true));
  }
}

// Where keys have a mean, rounded rows of dS are set right by it, if their sums are known: phase 20. Here they are not.
TEST_CASE("keys with a mean") {
  for (const Phase* phase : both)
    for (const Feature feature : {Feature::Softcap, Feature::Sinks}) {
      FeatureInputs<bfloat16> in(small({feature}, 64));
      const Random random(28, 9);
      in.k.fill(150, [&](std::uint64_t i, std::int64_t) { return random.normal(i) + 1; });
      enter(*phase, in.problem()), enter(*phase, in.gradients());
      INFO(phase->name << ": " << name(feature));
      expect_none(in.complaints(true, 10, true));
    }
}

// ---- On a GPU -------------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("gpu: every two features", T, half, bfloat16) {
  for (const Phase* phase : both) {
    if (cannot_run(*phase, Where::Gpu)) return;
    for (const std::int64_t D : {64, 128}) check_pairs<T>(*phase, Where::Gpu, {.Sq = 200, .Sk = 328, .D = D});
  }
}
