// phase_29_test.cpp: proof of phase 29, dropout on Hopper and by mma.sync: the generator's published answers; a mask
// with the definition's bits, whoever draws it; O, dQ, dK and dV leave out those places and no others; without dropout
// the bits of phase 25; every two features together, against fp64 or refused.
// ctest --test-dir build -L phase29
#include <doctest/doctest.h>

#include "phases/29-dropout/phase.hpp"
#include "phases/29-dropout/steps/steps.hpp"
#include "tests/features.hpp"
#include "tests/promises.hpp"

using namespace flash;
using namespace flash::test;
using phase29::asked_on, phase29::Fragment, phase29::Words;

const Phase& flash::test::phase_under_test() {
  return phase29::phase;
}

namespace {

const Phase* const both[] = {&phase29m::phase, &phase29::phase};

// ---- The generator --------------------------------------------------------------------------------------------------

void check_answers(Where where) {  // Random123, kat_vectors
  const auto philox = asked_on(where).philox;
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

// Probabilities whose thresholds have each of their two parts, and each alone; the smallest and the largest.
const float probabilities[] = {1 / 65536.0f, 0.1f, 0.5f, 0.51f, 0.9999f, 65535 / 65536.0f};

void check_mask(Where where, const std::array<std::int64_t, 4>& shape) {
  std::uint64_t seed = 0xfedcba9876543210;
  for (const float p : probabilities) {
    const Dropout dropout{p, seed++};
    std::vector<std::uint8_t> want;
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t h = 0; h < shape[1]; ++h)
        for (std::int64_t i = 0; i < shape[2]; ++i)
          for (std::int64_t j = 0; j < shape[3]; ++j) want.push_back(is_kept(dropout, b, h, i, j));
    INFO("p = " << p);
    CHECK(asked_on(where).mask(Fragment::Rows, dropout, shape) == want);
    CHECK(asked_on(where).mask(Fragment::Keys, dropout, shape) == want);
  }
}

// ---- Which places are left out --------------------------------------------------------------------------------------

// All rows of all heads: row s has a 1 in column s - first, if there is one, else zeros; or a 1 in column 0.
template <class T>
void set_identity(Strided<T>& x, std::int64_t first) {
  for (std::int64_t b = 0; b < x.view.B(); ++b)
    for (std::int64_t h = 0; h < x.view.H(); ++h)
      for (std::int64_t s = 0; s < x.view.S(); ++s)
        for (std::int64_t d = 0; d < x.view.D(); ++d)
          x.view.row(b, h, s)[d] = from_float<T>(first < 0 ? d == 0 : d == s - first);
}
template <class T>
void set_zero(Strided<T>& x) {
  set_identity(x, x.view.S());
}

// Where S = 0 all P are 1 / Sk. Identities in place of tensors, a piece of them at a time, show P, dropped, in O = P V;
// in dV = Pᵀ dO; and dS = P ∘ dP, with dP = 1 and δ = 0, in dQ = dS K and in dK = dSᵀ Q. The value of what is left is
// 1 / Sk times 1 / (1 - p).
template <class T>
void check_places(const Phase& phase, Where where, const Dropout& dropout, FeatureCase c) {
  c.keeps = false, c.seed = dropout.seed;
  FeatureInputs<T> in(c);
  INFO(phase.name << ": " << text(c) << ", p = " << dropout.p);
  const auto with_dropout = [&](AnyProblem p) {
    p.options.dropout = dropout, p.options.scale = 1.0f;
    return p;
  };
  const float value = dropout.factor() / static_cast<float>(c.Sk);
  std::int64_t wrong = 0, compared = 0;
  const auto compare = [&](const Strided<T>& x, std::int64_t first, bool rows_are_keys) {
    for (std::int64_t b = 0; b < c.B; ++b)
      for (std::int64_t h = 0; h < c.H; ++h)
        for (std::int64_t s = 0; s < x.view.S(); ++s)
          for (std::int64_t d = 0; d < c.D && first + d < (rows_are_keys ? c.Sq : c.Sk); ++d, ++compared) {
            const std::int64_t i = rows_are_keys ? first + d : s, j = rows_are_keys ? s : first + d;
            const float got = to_float(x.view.row(b, h, s)[d]), want = is_kept(dropout, b, h, i, j) ? value : 0;
            wrong += !(std::abs(got - want) <= want / 100);
          }
  };
  for (std::int64_t first = 0; first < std::max(c.Sq, c.Sk); first += c.D) {
    set_zero(in.q), set_zero(in.k), set_identity(in.v, first);
    enter(phase, with_dropout(in.problem()), where);
    if (first < c.Sk) compare(in.o, first, false);
    for (const float lse : in.lse) wrong += !(std::abs(lse - std::log(static_cast<float>(c.Sk))) < 1e-5f);
    set_zero(in.o);  // so that δ = 0
    set_identity(in.dout, first);
    enter(phase, with_dropout(in.gradients()), where);
    if (first < c.Sq) compare(in.dv, first, true);
    set_identity(in.v, -1), set_identity(in.dout, -1), set_identity(in.k, first);
    enter(phase, with_dropout(in.gradients()), where);
    if (first < c.Sk) compare(in.dq, first, false);
    set_zero(in.k), set_identity(in.q, first);
    enter(phase, with_dropout(in.gradients()), where);
    if (first < c.Sq) compare(in.dk, first, true);
  }
  CHECK(compared == 4 * c.B * c.H * c.Sq * c.Sk);
  CHECK(wrong == 0);
}

// ---- Bits and bars --------------------------------------------------------------------------------------------------

// Without dropout: O, LSE, m, l and O's low bits, or O in fp32, and gradients: all bits of the phase before. `p`: one
// that leaves out nothing.
template <class T>
void check_bits(const Phase& phase, Where where, float p, const FeatureCase& sizes) {
  static constexpr Feature features[] = {Feature::Causal, Feature::WideOutput, Feature::OtherDv};
  std::uint64_t number = 0;
  for (const std::int64_t D : {40, 128, 200})
    for (const Blocks& blocks : blocks_for(phase.forward->features, D)) {
      FeatureCase c = sizes;
      c.on = {Feature::GroupedHeads};
      if (number % 4 > 0) c.on.insert(features[number % 4 - 1]);
      c.D = D, c.Dv = 48, c.layout = static_cast<Layout>(number % 5), c.seed = number, c.keeps = number % 3 != 2;
      ++number;
      FeatureInputs<T> without(c), with(c);
      const auto options = [&](AnyProblem problem, bool here) {
        if (here) problem.options.dropout = {p, 7};
        return problem.backward() ? problem : with_blocks(problem, blocks);
      };
      INFO(phase.name << ": " << text(c) << ", " << blocks.Br << " x " << blocks.Bc);
      enter(*phase.forward->before, options(without.problem(), false), where);
      enter(phase, options(with.problem(), true), where);
      if (goes_back(phase, c.on, D)) {
        enter(*phase.backward->before, without.gradients(), where);
        enter(phase, options(with.gradients(), true), where);
      }
      CHECK(without.results() == with.results());
    }
}

// Dropout alone and with every other feature. Pairs without it are those of the phase before.
template <class T>
void check_all_pairs(const Phase& phase, Where where, const FeatureCase& sizes,
                     BackwardMode mode = BackwardMode::Deterministic) {
  const FeatureSet met = {Feature::GroupedHeads, Feature::OtherDv,     Feature::Causal,
                          Feature::WideOutput,   Feature::LseGradient, Feature::Dropout};
  CHECK(check_pairs<T>(phase, where, sizes, met, {Feature::Dropout}, mode) == Pairs{1 + 5, 110});
}

// Every block of both directions, with dropout and grouped heads.
template <class T>
void check_blocks(const Phase& phase, Where where, const FeatureCase& sizes) {
  for (const std::int64_t D : {64, 128, 256}) {
    FeatureCase c = sizes;
    c.on = {Feature::Dropout, Feature::GroupedHeads}, c.D = D;
    const auto check = [&](bool back, const Blocks& blocks) {
      FeatureInputs<T> in(c);
      INFO(phase.name << ": " << text(c) << ", " << blocks.Br << " x " << blocks.Bc << (back ? " back" : ""));
      enter(phase, back ? in.problem() : with_blocks(in.problem(), blocks), where);
      if (back) enter(phase, with_blocks(in.gradients(), blocks), where);
      expect_none(in.complaints(back, 2, true));
    };
    for (const Blocks& blocks : blocks_for(phase.forward->features, D)) check(false, blocks);
    if (goes_back(phase, c.on, D))
      for (const Blocks& blocks : blocks_for(phase.backward->features, D)) check(true, blocks);
  }
}

}  // namespace

TEST_CASE("Philox 4x32-10 gives the published answers") {
  check_answers(Where::Sim);
}

TEST_CASE("the mask has the definition's bits") {
  check_mask(Where::Sim, {2, 3, 37, 70});
}

TEST_CASE("the mask is drawn without a finding") {
  if (!skipped_without(phase29::phase, Where::Checked)) check_mask(Where::Checked, {1, 2, 70, 37});
}

TEST_CASE("O, dV, dQ and dK leave out the places of the mask") {
  for (const Phase* phase : both)
    for (const float p : {0.1f, 65535 / 65536.0f})
      check_places<bfloat16>(*phase, Where::Sim, {p, 0xabcdef9876543210},  // three K/V tiles
                             {.B = 2, .H = 2, .Sq = 70, .Sk = 270, .D = 128});
}

TEST_CASE_TEMPLATE("nothing is left out: the bits of the phase before", T, half, bfloat16) {
  for (const Phase* phase : both)
    check_bits<T>(*phase, Where::Sim, std::is_same_v<T, half> ? 0 : 0.4f / 65536,
                  {.B = 1, .H = 2, .Sq = 70, .Sk = 150});
}

TEST_CASE("all blocks drop") {
  for (const Phase* phase : both) check_blocks<half>(*phase, Where::Sim, {.B = 2, .H = 2, .Sq = 70, .Sk = 150});
}

TEST_CASE("every other feature beside dropout: computed or refused") {
  check_all_pairs<half>(phase29m::phase, Where::Sim, {.H = 2, .D = 64});
  check_all_pairs<bfloat16>(phase29::phase, Where::Sim, {.H = 2, .D = 128});
  check_all_pairs<bfloat16>(phase29m::phase, Where::Sim, {.H = 2, .D = 128}, BackwardMode::Atomic);
}

TEST_CASE("checked: every other feature beside dropout") {
  for (const Phase* phase : both)
    if (!skipped_without(*phase, Where::Checked))
      check_all_pairs<bfloat16>(*phase, Where::Checked, {.B = 1, .H = 2, .D = 64});
}

// The generator reads nothing: predicted = counted, and as many bytes as without dropout.
TEST_CASE("bytes equal the formula") {
  for (const Phase* phase : both) {
    if (skipped_without(*phase, Where::Checked)) return;
    FeatureInputs<half> in({.on = {Feature::Dropout}, .B = 1, .H = 2, .Sq = 53, .Sk = 150, .D = 64, .keeps = false});
    const auto check = [&](const Pass& pass, const AnyProblem& p) {
      Run run = enter(*phase, p, Where::Checked);
      CHECK(pass.features.hbm_bytes(p, run.blocks).read == run.ledger.hbm_read_bytes());
      CHECK(pass.features.hbm_bytes(p, run.blocks).written == run.ledger.hbm_written_bytes());
    };
    INFO(phase->name);
    check(*phase->forward, in.problem()), check(*phase->backward, in.gradients());
  }
}

TEST_CASE("bad input") {
  for (const Phase* phase : both)
    for (const auto& [p, word] : {std::pair{1.0f, "1"}, {-0.1f, "-0.1"}, {NAN, "nan"}, {65535.7f / 65536, "0.99999"}}) {
      FeatureInputs<half> in({.on = {Feature::Dropout}, .Sq = 5, .Sk = 6});
      const std::vector<unsigned char> before = in.results();
      for (AnyProblem problem : {in.problem(), in.gradients()}) {
        problem.options.dropout.p = p;
        CHECK_THROWS_WITH_AS(enter(*phase, problem), doctest::Contains((std::string("dropout is ") + word).c_str()),
                             Error);
      }
      CHECK(in.results() == before);
    }
}

// ---- On a GPU -------------------------------------------------------------------------------------------------------

TEST_CASE("gpu: the generator and its mask have the same bits") {
  if (skipped_without(phase29m::phase, Where::Gpu)) return;
  check_answers(Where::Gpu);
  check_mask(Where::Gpu, {2, 3, 300, 513});
}

TEST_CASE("gpu: O, dV, dQ and dK leave out the places of the mask") {
  for (const Phase* phase : both) {
    if (skipped_without(*phase, Where::Gpu)) return;
    for (const float p : probabilities)
      check_places<bfloat16>(*phase, Where::Gpu, {p, 0xabcdef9876543210},
                             {.B = 2, .H = 3, .Sq = 200, .Sk = 330, .D = 128});
  }
}

TEST_CASE_TEMPLATE("gpu: nothing is left out: the bits of the phase before", T, half, bfloat16) {
  for (const Phase* phase : both) {
    if (skipped_without(*phase, Where::Gpu)) return;
    check_bits<T>(*phase, Where::Gpu, 0, {.H = 6, .Sq = 1030, .Sk = 1200});
  }
}

TEST_CASE_TEMPLATE("gpu: dropout with all blocks, and beside every other feature", T, half, bfloat16) {
  for (const Phase* phase : both) {
    if (skipped_without(*phase, Where::Gpu)) return;
    check_blocks<T>(*phase, Where::Gpu, {.Sq = 200, .Sk = 330});
    for (const std::int64_t D : {64, 128}) check_all_pairs<T>(*phase, Where::Gpu, {.Sq = 200, .Sk = 330, .D = D});
    check_all_pairs<T>(phase29m::phase, Where::Gpu, {.Sq = 200, .Sk = 330, .D = 128}, BackwardMode::Atomic);
  }
}
