// phase_25_test.cpp: proof of phase 25, grouped heads on Hopper and by mma.sync: without them the bits of phases 19 and
// 13, with them the bits that those have with K and V repeated; every two features together, against fp64 or refused.
// ctest --test-dir build -L phase25
#include <doctest/doctest.h>

#include "phases/25-grouped-heads/phase.hpp"
#include "tests/features.hpp"
#include "tests/promises.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase25::phase;
}

namespace {

const Phase* const both[] = {&phase25m::phase, &phase25::phase};

// K and V of each so many heads become the same, those of the first of them.
template <class T>
void share_heads(FeatureInputs<T>& in, std::int64_t group) {
  for (Strided<T>* x : {&in.k, &in.v})
    for (std::int64_t b = 0; b < x->view.B(); ++b)
      for (std::int64_t h = 0; h < x->view.H(); ++h)
        for (std::int64_t s = 0; s < x->view.S(); ++s)
          std::copy_n(x->view.row(b, h / group * group, s), x->view.D(), x->view.row(b, h, s));
}
// The first of them alone, of the same memory.
AnyProblem with_groups(AnyProblem p, std::int64_t group) {
  for (AnyView* view : {&p.k, &p.v, &p.dk, &p.dv}) view->shape[1] /= group, view->stride[1] *= group;
  return p;
}

// Each head dimension and one between, all blocks, several tiles, rows that see no key.
template <class F>
void for_each_size(const Features& can, const F& f) {
  for (const std::int64_t D : {40, 128, 200})
    for (const Blocks& blocks : blocks_for(can, D)) f(D, blocks);
}

// O, LSE, m, l and O's low bits, or O in fp32: all bits of the phase before, whose K and V are repeated. Groups, masks
// and what is wanted go round.
template <class T>
void check_bits(const Phase& phase, Where where, const std::vector<std::int64_t>& groups, const FeatureCase& sizes) {
  static constexpr std::array<Feature, 3> features = {Feature::Causal, Feature::WideOutput, Feature::Causal};
  std::uint64_t number = 0;
  for_each_size(phase.forward->features, [&](std::int64_t D, const Blocks& blocks) {
    FeatureCase c = sizes;
    if (number % 4 > 0) c.on = {features[number % 4 - 1]};
    c.D = D, c.layout = static_cast<Layout>(number % 5), c.seed = number, c.keeps = number % 3 != 2;
    const std::int64_t group = groups[number++ % groups.size()];
    FeatureInputs<T> repeated(c), shared(c);
    share_heads(repeated, group), share_heads(shared, group);
    INFO(phase.name << ": " << text(c) << ", " << blocks.Br << " x " << blocks.Bc << ", groups of " << group);
    enter(*phase.forward->before, with_blocks(repeated.problem(), blocks), where);
    enter(phase, with_groups(with_blocks(shared.problem(), blocks), group), where);
    CHECK(repeated.results() == shared.results());
    if (!goes_back(phase, c.on, D)) return;
    // dQ is what it was. dK and dV are those of a group's heads together; where that is one head, the same bits.
    enter(*phase.backward->before, repeated.gradients(), where);
    enter(phase, with_groups(shared.gradients(), group), where);
    CHECK(same_bits(repeated.dq.memory, shared.dq.memory));
    if (group == 1) CHECK(repeated.results() == shared.results());
  });
}

// Every feature alone and every two.
template <class T>
void check_all_pairs(const Phase& phase, Where where, const FeatureCase& sizes) {
  const FeatureSet met = {Feature::GroupedHeads, Feature::OtherDv, Feature::Causal, Feature::WideOutput,
                          Feature::LseGradient};
  CHECK(check_pairs<T>(phase, where, sizes, met) == Pairs{1 + 5 + 10, 116});
}

}  // namespace

TEST_CASE_TEMPLATE("without groups: the bits of the phase before", T, half, bfloat16) {
  for (const Phase* phase : both) check_bits<T>(*phase, Where::Sim, {1}, {.B = 1, .H = 2, .Sq = 140, .Sk = 150});
}

TEST_CASE_TEMPLATE("groups: the bits of repeated heads", T, half, bfloat16) {
  for (const Phase* phase : both) check_bits<T>(*phase, Where::Sim, {2, 3, 6}, {.H = 6, .Sq = 50, .Sk = 150});
}

// dQ of two heads that share keys is that of two heads with the same keys; `change` is made to the inputs of both.
template <class F>
void check_dq_of_two(const FeatureSet& on, const F& change) {
  for (const Phase* phase : both) {
    INFO(phase->name);
    const FeatureCase c{.on = on, .B = 1, .H = 2, .Sq = 150, .Sk = 140, .D = 64};
    FeatureInputs<half> repeated(c), shared(c);
    for (FeatureInputs<half>* in : {&repeated, &shared}) change(*in), share_heads(*in, 2);
    enter(*phase->forward->before, repeated.problem()), enter(*phase->backward->before, repeated.gradients());
    enter(*phase, with_groups(shared.problem(), 2)), enter(*phase, with_groups(shared.gradients(), 2));
    CHECK(same_bits(repeated.dq.memory, shared.dq.memory));
  }
}
template <class F>
void change_all(const View<half>& x, std::int64_t h, const F& f) {
  for (std::int64_t s = 0; s < x.S(); ++s)
    for (std::int64_t d = 0; d < x.D(); ++d) x.row(0, h, s)[d] = from_float<half>(f(to_float(x.row(0, h, s)[d])));
}

// Rows whose logits are huge have P by a way of their own; a block that comes to the group's other heads must know.
TEST_CASE("groups: one head has huge logits") {
  check_dq_of_two({}, [](auto& in) { change_all(in.q.view, 1, [](float x) { return x * 1024; }); });
}

// Where keys have a mean, dQ is counted from it, and each head's rows of dS have sums of their own: its part of dLSE.
TEST_CASE("groups: keys with a mean, and a gradient of LSE") {
  check_dq_of_two({Feature::LseGradient}, [](auto& in) { change_all(in.k.view, 0, [](float x) { return x + 2; }); });
}

TEST_CASE("every two features: computed or refused") {
  check_all_pairs<half>(phase25m::phase, Where::Sim, {.D = 64});
  check_all_pairs<bfloat16>(phase25::phase, Where::Sim, {.D = 64});
  check_all_pairs<bfloat16>(phase25m::phase, Where::Sim, {.B = 1, .H = 2, .D = 256});
  check_all_pairs<half>(phase25::phase, Where::Sim, {.B = 1, .H = 2, .D = 256});
}

TEST_CASE("V wider than Q: the kernel is made for V") {
  for (const Phase* phase : both)
    for (const auto& [D, Dv] : {std::pair{40, 128}, std::pair{128, 200}}) {
      FeatureInputs<bfloat16> in({.on = {Feature::GroupedHeads, Feature::OtherDv}, .D = D, .Dv = Dv});
      INFO(phase->name << ": " << text(in.c) << ", Dv " << Dv);
      const bool back = goes_back(*phase, in.c.on, Dv);
      enter(*phase, in.problem());
      if (back) enter(*phase, in.gradients());
      expect_none(in.complaints(back, 2, true));
    }
}

TEST_CASE("checked: every two features") {
  for (const Phase* phase : both)
    if (!skipped_without(*phase, Where::Checked))
      check_all_pairs<bfloat16>(*phase, Where::Checked, {.H = 2, .Sk = 150, .D = 64});
}

// Predicted = counted, with fewer heads and other widths: each block size, ragged and not, each mask.
TEST_CASE("bytes equal the formula") {
  for (const Phase* phase : both) {
    if (skipped_without(*phase, Where::Checked)) return;
    std::uint64_t number = 0;
    for (const std::int64_t D : {48, 208})
      for (const Blocks& blocks : blocks_for(phase->forward->features, D))
        for (const bool causal : {false, true}) {
          FeatureCase c{
              .on = {Feature::GroupedHeads}, .B = 1, .Sq = 53, .Sk = 100, .D = D, .seed = ++number, .keeps = false};
          if (causal) c.on.insert(Feature::Causal), std::swap(c.Sq, c.Sk);
          if (number % 2 || D == 208) c.on.insert(Feature::OtherDv);
          FeatureInputs<half> in(c);
          const AnyProblem p = with_blocks(in.problem(), blocks);
          INFO(phase->name << ": " << text(c));
          Run run = enter(*phase, p, Where::Checked);
          const HbmBytes counted{run.ledger.hbm_read_bytes(), run.ledger.hbm_written_bytes()};
          CHECK(phase->forward->features.hbm_bytes(p, blocks).read == counted.read);
          CHECK(phase->forward->features.hbm_bytes(p, blocks).written == counted.written);
          // Each byte of K that a row of some head sees is asked for once for each Q tile of each head that shares it.
          if (!causal)
            CHECK(run.ledger.array("K").read_bytes ==
                  static_cast<std::uint64_t>((c.Sq + blocks.Br - 1) / blocks.Br * 2 * p.k.elements() * 2));
        }
  }
}

TEST_CASE("bad input") {
  for (const Phase* phase : both) {
    const std::string in_phase = std::string(" in phase ") + phase->name;
    const auto refused = [&](const FeatureSet& on, const std::string& message, const auto& break_it) {
      FeatureInputs<half> in({.on = on, .Sq = 5, .Sk = 6});
      const std::vector<unsigned char> before = in.results();
      AnyProblem p = in.problem();
      break_it(p);
      CHECK_THROWS_WITH_AS(enter(*phase, p), message.c_str(), Error);
      CHECK(in.results() == before);
    };
    refused({}, "K's number of heads H is 3; expected a divisor of 4, Q's; repeat heads",
            [](AnyProblem& p) { p.k.shape[1] = p.v.shape[1] = 3; });
    refused({}, "K's number of heads H is 8; expected a divisor of 4, Q's; repeat heads",
            [](AnyProblem& p) { p.k.shape[1] = p.v.shape[1] = 8, p.k.stride[1] = p.v.stride[1] = 0; });
    refused({Feature::GroupedHeads}, "V's number of heads H is 4; expected 2 as in K; make the shapes agree",
            [](AnyProblem& p) { p.v.shape[1] = 4; });
    refused({Feature::OtherDv}, "O's head dimension D is 24; expected 16 as in V; make the shapes agree",
            [](AnyProblem& p) { p.o.shape[3] = 24; });
    refused({}, "V's head dimension D is 264; expected 1 to 256; split the head",
            [](AnyProblem& p) { p.v.shape[3] = p.o.shape[3] = p.o_lo.shape[3] = 264; });
    refused({}, "V's head dimension D is 0; expected 1 to 256; split the head",
            [](AnyProblem& p) { p.v.shape[3] = p.o.shape[3] = p.o_lo.shape[3] = 0; });
    refused(
        {},
        "type is float32; expected float16 or bfloat16" + in_phase + "; convert, or choose another phase: ./flash help",
        [](AnyProblem& p) { p.type = p.out = Type::Float32, p.o_lo = {}; });
  }
}

// ---- On a GPU -------------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("gpu: the bits of the phase before, and of repeated heads", T, half, bfloat16) {
  for (const Phase* phase : both) {
    if (skipped_without(*phase, Where::Gpu)) return;
    for (const std::int64_t group : {1, 2, 3, 6})
      check_bits<T>(*phase, Where::Gpu, {group}, {.H = 6, .Sq = 1030, .Sk = 1200});
  }
}

TEST_CASE_TEMPLATE("gpu: every two features", T, half, bfloat16) {
  for (const Phase* phase : both) {
    if (skipped_without(*phase, Where::Gpu)) return;
    for (const std::int64_t D : {64, 128, 256}) check_all_pairs<T>(*phase, Where::Gpu, {.Sq = 200, .Sk = 330, .D = D});
  }
}
