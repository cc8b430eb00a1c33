// phase_27_test.cpp: proof of phase 27, lengths on Hopper and by mma.sync: without them the bits of phase 26, with them
// for each sequence the bits that it has alone, whatever lies beside it; every two features together, or refused.
// ctest --test-dir build -L phase27
#include <doctest/doctest.h>

#include <functional>

#include "phases/27-lengths/phase.hpp"
#include "tests/features.hpp"
#include "tests/promises.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase27::phase;
}

namespace {

const Phase* const both[] = {&phase27m::phase, &phase27::phase};

bool cannot_run(const Phase& phase, Where where) {
  return skipped_without(phase.forward->features, where);
}

// To TMA batch entries must be rows of one tensor: other layouts are refused by name (check_entries).
FeatureCase fit(const Phase& phase, FeatureCase c) {
  if (&phase == &phase27::phase && c.B > 1 && !c.has(Feature::Packed)) c.layout = static_cast<Layout>(c.seed % 3);
  return c;
}

// A window that leaves out no key at the front: those that one leaves out move the tiles, and so the bits.
constexpr Mask from_row_0{.left = 40, .right = 10};

// ---- No lengths -----------------------------------------------------------------------------------------------------

// The bits of phase 26. Sizes, masks, groups and what is wanted go round.
template <class T>
void check_bits(const Phase& phase, Where where, const FeatureCase& sizes) {
  static constexpr std::array<Feature, 3> features = {Feature::Causal, Feature::WideOutput, Feature::Causal};
  std::uint64_t number = 0;
  for (const std::int64_t D : {40, 128, 200})
    for (const Blocks& blocks : blocks_for(phase.forward->features, D)) {
      FeatureCase c = sizes;
      if (number % 4 > 0) c.on = {features[number % 4 - 1]};
      if (number % 2) c.on.insert(Feature::GroupedHeads);
      c.D = D, c.layout = static_cast<Layout>(number % 5), c.seed = number, c.keeps = number % 3 != 2, ++number;
      if (number % 4 == 0) c.mask = from_row_0;
      c = fit(phase, c);
      FeatureInputs<T> before(c), now(c);
      INFO(phase.name << ": " << text(c) << ", " << blocks.Br << " x " << blocks.Bc);
      enter(*phase.forward->before, with_blocks(before.problem(), blocks), where);
      enter(phase, with_blocks(now.problem(), blocks), where);
      if (goes_back(phase, c.on, D)) {
        enter(*phase.backward->before, before.gradients(), where);
        enter(phase, now.gradients(), where);
      }
      CHECK(before.results() == now.results());
    }
}

// ---- Sequences ------------------------------------------------------------------------------------------------------

// Rows and keys of a sequence, as a problem of its own.
AnyProblem alone(AnyProblem p, std::int64_t n) {
  const Sequence at = p.sequence(n);
  for (const Operand& operand : operands) {
    AnyView& view = p.*operand.view;
    const bool of_rows = operand.shape[2] == Length::Sq, of_keys = operand.shape[2] == Length::Sk;
    if (!view.given() || (!of_rows && !of_keys)) continue;
    const std::int64_t first = at.b * view.stride[0] + (of_rows ? at.first_row : at.first_key) * view.stride[2];
    view.data = static_cast<char*>(view.data) + first * bytes_of(type_of_elements(operand.element, p));
    view.shape[0] = 1, view.shape[2] = of_rows ? at.rows : at.keys;
  }
  p.first_rows = p.first_keys = p.rows_of = p.keys_of = {};
  return p;
}

// What is there for each row, dense: of a sequence alone it lies in another order, so that it has arrays of its own.
struct Numbers {
  std::array<std::vector<float>, 4> of_rows;  // LSE, m, l, dLSE

  static constexpr AnyView AnyProblem::*views[] = {&AnyProblem::lse, &AnyProblem::m, &AnyProblem::l, &AnyProblem::dlse};
  // Gives the problem of a sequence its own; those of the whole one are in `all`.
  void take(AnyProblem& p, const AnyProblem& all, const Sequence& at) {
    for (std::size_t i = 0; i < 4; ++i) {
      AnyView& view = p.*views[i];
      if (!view.given()) continue;
      const AnyView& from = all.*views[i];
      of_rows[i].clear();
      for (std::int64_t h = 0; h < all.H(); ++h)
        for (std::int64_t row = 0; row < at.rows; ++row)
          of_rows[i].push_back(view_as<const float>(from).row(at.b, h, at.first_row + row)[0]);
      view = any_of(dense_view(of_rows[i].data(), {1, all.H(), at.rows, 1}));
    }
  }
};

// Everything that is written of a sequence, as bytes.
std::vector<unsigned char> results_of(const AnyProblem& p, const Sequence& at) {
  std::vector<unsigned char> bytes;
  for (const Operand& operand : operands) {
    const AnyView& view = p.*operand.view;
    const bool of_rows = operand.shape[2] == Length::Sq, of_keys = operand.shape[2] == Length::Sk;
    const bool written = operand.forward == Role::Out || operand.backward == Role::Out;
    if (!view.given() || !written || (!of_rows && !of_keys)) continue;
    const std::int64_t size = bytes_of(type_of_elements(operand.element, p));
    for (std::int64_t h = 0; h < view.H(); ++h)
      for (std::int64_t s = 0; s < (of_rows ? at.rows : at.keys); ++s) {
        const std::int64_t row = (of_rows ? at.first_row : at.first_key) + s;
        const auto* const begin = static_cast<const unsigned char*>(view.data) +
                                  (at.b * view.stride[0] + h * view.stride[1] + row * view.stride[2]) * size;
        bytes.insert(bytes.end(), begin, begin + view.D() * size);
      }
  }
  return bytes;
}

// Each sequence has the bits that phase 26 gives it alone, empty ones included, forward and backward.
template <class T>
void check_sequences(const Phase& phase, Where where, const FeatureCase& sizes, const Blocks& blocks,
                     const std::function<void(FeatureInputs<T>&)>& change = {}) {
  const FeatureCase c = fit(phase, sizes);
  FeatureInputs<T> in(c), by_itself(c);
  if (change) change(in), change(by_itself);
  INFO(phase.name << ": " << text(c) << ", " << blocks.Br << " x " << blocks.Bc);
  const bool back = goes_back(phase, c.on, c.D);
  enter(phase, with_blocks(in.problem(), blocks), where);
  if (back) enter(phase, in.gradients(), where);
  const AnyProblem all = back ? in.gradients() : in.problem();
  const AnyProblem other = back ? by_itself.gradients() : by_itself.problem();
  for (std::int64_t n = 0; n < all.sequences(); ++n) {
    const Sequence at = all.sequence(n);
    if (at.rows == 0 && at.keys == 0) continue;
    INFO("sequence " << n << ": " << at.rows << " rows, " << at.keys << " keys");
    Numbers numbers;
    AnyProblem one = alone(with_blocks(by_itself.problem(), blocks), n);
    numbers.take(one, other, at);
    if (at.rows > 0) enter(*phase.forward->before, one, where);
    AnyProblem results = one;
    if (back) {
      AnyProblem gradients = alone(other, n);
      Numbers of_backward;
      of_backward.take(gradients, other, at);
      gradients.lse = one.lse, gradients.m = one.m, gradients.l = one.l;
      enter(*phase.backward->before, gradients, where);
      results = gradients;
    }
    CHECK(results_of(all, at) == results_of(results, {0, 0, at.rows, 0, at.keys}));
  }
}

// Of sequences that lie side by side every second one becomes NaN, in all that is read: the others keep their bits.
template <class T>
void check_neighbours(const Phase& phase, Where where, FeatureCase c) {
  const bool back = goes_back(phase, c.on, c.D);
  c = fit(phase, c);
  FeatureInputs<T> in(c);
  const auto run = [&](FeatureInputs<T>& of) {
    enter(phase, of.problem(), where);
    if (back) enter(phase, of.gradients(), where);
  };
  run(in);
  for (const std::int64_t odd : {0, 1}) {
    FeatureInputs<T> beside(c);
    const AnyProblem p = beside.gradients();
    for (std::int64_t n = odd; n < p.sequences(); n += 2) {
      const Sequence at = p.sequence(n);
      for (Strided<T>* x : {&beside.q, &beside.k, &beside.v, &beside.dout}) {
        const bool of_rows = x == &beside.q || x == &beside.dout;
        for (std::int64_t h = 0; h < x->view.H(); ++h)
          for (std::int64_t s = 0; s < (of_rows ? at.rows : at.keys); ++s)
            std::fill_n(x->view.row(at.b, h, (of_rows ? at.first_row : at.first_key) + s), x->view.D(),
                        from_float<T>(NAN));
      }
    }
    run(beside);
    INFO(phase.name << ": " << text(c) << ", NaN in " << (odd ? "odd" : "even") << " sequences");
    for (std::int64_t n = 1 - odd; n < p.sequences(); n += 2)
      CHECK(results_of(in.gradients(), p.sequence(n)) == results_of(beside.gradients(), p.sequence(n)));
  }
}

// ---- Features -------------------------------------------------------------------------------------------------------

const FeatureSet met = {Feature::GroupedHeads, Feature::OtherDv, Feature::Causal,     Feature::Window,
                        Feature::Packed,       Feature::Used,    Feature::WideOutput, Feature::LseGradient};

// Every feature alone and every two: within the bars of the definition, or refused by name. One mask at a time.
template <class T>
void check_all_pairs(const Phase& phase, Where where, FeatureCase c) {
  c = fit(phase, c);
  CHECK(check_pairs<T>(phase, where, c, met, {Feature::Packed, Feature::Used}) == Pairs{2 + 13, 96});
}

}  // namespace

TEST_CASE_TEMPLATE("without lengths: the bits of phase 26", T, half, bfloat16) {
  for (const Phase* phase : both) check_bits<T>(*phase, Where::Sim, {.B = 1, .H = 2, .Sq = 140, .Sk = 150});
}

TEST_CASE("each sequence has the bits that it has alone") {
  for (const Phase* phase : both) {
    std::uint64_t seed = 0;
    for (const std::int64_t D : {64, 128, 256})
      for (const Blocks& blocks : blocks_for(phase->forward->features, D)) {
        FeatureCase c{.H = 2, .Sq = 150, .Sk = 140, .D = D, .layout = static_cast<Layout>(seed % 5), .seed = seed};
        c.on = seed % 2 ? FeatureSet{Feature::Used} : FeatureSet{Feature::Packed};
        if (seed / 2 % 2) c.on.insert(Feature::Causal);
        if (seed % 3 == 0) c.on.insert(Feature::LseGradient);
        if (seed % 4 == 1) c.mask = from_row_0;
        ++seed;
        check_sequences<bfloat16>(*phase, Where::Sim, c, blocks);
      }
    check_sequences<half>(*phase, Where::Sim, {.on = {Feature::Packed, Feature::Used}, .H = 2, .D = 64},
                          blocks_for(phase->forward->features, 64)[0]);
  }
}

// A block of the backward pass knows from one number whether a row is extreme in any head that meets its keys.
TEST_CASE("extreme rows in the last head of a group") {
  const FeatureCase c{.on = {Feature::Packed, Feature::GroupedHeads}, .H = 4, .Sq = 150, .Sk = 140, .D = 64};
  const auto change = [](FeatureInputs<half>& in) {
    const AnyProblem p = in.problem();
    for (std::int64_t n = 0; n < p.sequences(); ++n) {
      const Sequence at = p.sequence(n);
      if (at.rows == 0 || at.keys == 0) continue;
      for (std::int64_t h = 0; h < in.k.view.H(); ++h)
        std::fill_n(in.k.view.row(0, h, at.first_key), 64, from_float<half>(8));
      const std::int64_t last = p.H() / in.k.view.H() - 1;
      std::fill_n(in.q.view.row(0, last, at.first_row + at.rows - 1), 64, from_float<half>(60));
    }
  };
  for (const Phase* phase : both)
    check_sequences<half>(*phase, Where::Sim, c, blocks_for(phase->forward->features, 64)[0], change);
}

TEST_CASE("NaN beside a sequence stays there") {
  for (const Phase* phase : both)
    for (const FeatureSet& on : {FeatureSet{Feature::Packed}, {Feature::Packed, Feature::Used, Feature::Causal}})
      for (const std::int64_t D : {64, 128, 256}) {
        if (D == 256 && on.size() > 1) continue;
        check_neighbours<half>(*phase, Where::Sim, {.on = on, .H = 2, .D = D});
      }
}

// Top-left: of a sequence with more keys than rows some are seen by none, and NaN there is as if it were not there.
TEST_CASE("NaN in keys that no row of a sequence sees") {
  for (const Phase* phase : both)
    for (const std::int64_t D : {64, 128}) {
      const FeatureCase c = fit(*phase, {.on = {Feature::Used}, .B = 3, .H = 2, .Sq = 70, .Sk = 210, .D = D});
      FeatureInputs<half> in(c), with_nan(c);
      const AnyProblem p = in.problem();
      for (std::int64_t n = 0; n < p.sequences(); ++n)
        for (Strided<half>* x : {&with_nan.k, &with_nan.v})
          for (std::int64_t h = 0; h < x->view.H(); ++h)
            for (std::int64_t key = p.sequence(n).rows; key < p.sequence(n).keys; ++key)
              std::fill_n(x->view.row(n, h, key), D, from_float<half>(NAN));
      for (FeatureInputs<half>* of : {&in, &with_nan})
        for (AnyProblem problem : {of->problem(), of->gradients()}) {
          problem.options.mask = Mask::top_left();
          enter(*phase, problem);
        }
      INFO(phase->name << ": " << text(c));
      CHECK(in.results() == with_nan.results());
    }
}

// Bottom-right with a window: of a sequence with more keys than rows the first ones are seen by none, nor the last ones
// of a window that ends before its diagonal. They are left out, and their gradients are 0. Grouped heads, too.
TEST_CASE("a window of each sequence, and NaN in front of it") {
  for (const Phase* phase : both)
    for (const Feature lengths : {Feature::Packed, Feature::Used})
      for (const std::int64_t D : {64, 128}) {
        FeatureCase c{.on = {lengths, Feature::Window, Feature::GroupedHeads}, .H = 4, .Sq = 70, .Sk = 300, .D = D};
        c.mask = Mask{.left = 20, .right = D == 64 ? 0 : -3, .alignment = Alignment::BottomRight};
        c = fit(*phase, c);
        FeatureInputs<half> in(c), with_nan(c);
        const AnyProblem p = in.problem();
        int unseen = 0;
        for (std::int64_t n = 0; n < p.sequences(); ++n) {
          const Sequence at = p.sequence(n);
          const Band<std::int64_t> band = c.mask->band(at.rows, at.keys);
          const KeyRange<std::int64_t> seen = at.rows > 0 ? band.seen(0, at.rows - 1) : KeyRange<std::int64_t>{};
          for (Strided<half>* x : {&with_nan.k, &with_nan.v})
            for (std::int64_t h = 0; h < x->view.H(); ++h)
              for (std::int64_t key = 0; key < at.keys; ++key)
                if (!seen.contains(key))
                  std::fill_n(x->view.row(at.b, h, at.first_key + key), x->view.D(), from_float<half>(NAN)), ++unseen;
        }
        CHECK(unseen > 100);
        for (FeatureInputs<half>* of : {&in, &with_nan}) {
          enter(*phase, of->problem());
          enter(*phase, of->gradients());
        }
        INFO(phase->name << ": " << text(c));
        expect_none(in.complaints(true, 2, true));
        CHECK(in.results() == with_nan.results());
      }
}

// Entries of a batch that are not rows of one tensor, in all that has rows or all that has keys.
TEST_CASE("TMA refuses batches in other layouts, by name") {
  for (const Layout layout : {Layout::Padded, Layout::Mixed}) {
    FeatureInputs<half> in({.on = {Feature::Used}, .B = 2, .H = 2, .D = 64, .layout = layout});
    const std::vector<unsigned char> before = in.results();
    for (const AnyProblem& p : {in.problem(), in.gradients()})
      CHECK_THROWS_WITH_AS(enter(phase27::phase, p), doctest::Contains("stride of B is"), Error);
    CHECK(in.results() == before);
    enter(phase27m::phase, in.problem()), enter(phase27m::phase, in.gradients());
    expect_none(in.complaints(true, 2, true));
  }
}

TEST_CASE("atomic: the shares of dQ come in any order") {
  for (const Phase* phase : both)
    for (const FeatureSet& on : {FeatureSet{Feature::Packed}, {Feature::Packed, Feature::Used, Feature::Causal}})
      for (const std::int64_t D : {64, 128}) {
        FeatureInputs<bfloat16> in(fit(*phase, {.on = on, .H = 2, .Sq = 150, .Sk = 140, .D = D}));
        INFO(phase->name << ": " << text(in.c));
        AnyProblem gradients = in.gradients();
        gradients.options.mode = BackwardMode::Atomic;
        enter(*phase, in.problem());
        enter(*phase, gradients, cannot_run(*phase, Where::Checked) ? Where::Sim : Where::Checked);
        expect_none(in.complaints(true, 2, true));
      }
}

TEST_CASE("every two features: computed or refused") {
  check_all_pairs<half>(phase27m::phase, Where::Sim, {.H = 2, .D = 64});
  check_all_pairs<bfloat16>(phase27::phase, Where::Sim, {.H = 2, .D = 64, .seed = 2});
  check_all_pairs<bfloat16>(phase27m::phase, Where::Sim, {.B = 1, .H = 2, .D = 256});
  check_all_pairs<half>(phase27::phase, Where::Sim, {.B = 1, .H = 2, .Sq = 150, .Sk = 140, .D = 128});
}

TEST_CASE("checked: clean with every two features") {
  for (const Phase* phase : both)
    if (!cannot_run(*phase, Where::Checked))
      check_all_pairs<bfloat16>(*phase, Where::Checked, {.B = 1, .H = 2, .Sk = 150, .D = 64});
}

// A row of Q is read once in each of its heads, and nothing else of Q; a key for each Q tile of its own sequence.
TEST_CASE("what is read is the sequences', and nothing beside them") {
  for (const Phase* phase : both) {
    if (cannot_run(*phase, Where::Checked)) return;
    for (const FeatureSet& on : {FeatureSet{Feature::Packed}, {Feature::Used}, {Feature::Packed, Feature::Used}}) {
      FeatureCase c{.on = on, .B = 3, .H = 2, .Sq = 150, .Sk = 140, .D = 64, .keeps = false};
      FeatureInputs<half> in(fit(*phase, c));
      const AnyProblem p = in.problem();
      const Run run = enter(*phase, p, Where::Checked);
      std::uint64_t rows = 0, keys = 0;
      for (std::int64_t n = 0; n < p.sequences(); ++n) {
        const Sequence at = p.sequence(n);
        const std::int64_t q_tiles = (at.rows + run.blocks.Br - 1) / run.blocks.Br;
        // Phase 13 does not load the rows of a sequence without keys.
        if (at.keys > 0 || phase == &phase27::phase) rows += static_cast<std::uint64_t>(at.rows);
        keys += static_cast<std::uint64_t>(q_tiles * at.keys);
      }
      INFO(phase->name << ": " << text(c));
      const std::uint64_t of_all = static_cast<std::uint64_t>(p.H() * p.row_bytes());
      Ledger ledger = run.ledger;
      CHECK(ledger.array("Q").read_bytes == rows * of_all);
      CHECK(ledger.array("K").read_bytes == keys * of_all);
      CHECK(ledger.array("V").read_bytes == keys * of_all);
      CHECK(ledger.array("O").written_bytes == static_cast<std::uint64_t>(p.B() * p.Sq()) * of_all);
    }
  }
}

// More sequences than tiles of any kind, most of them empty; keys alone; and none at all.
TEST_CASE("a thousand sequences, and none") {
  for (const Phase* phase : both)
    for (const std::pair<int, bool>& kind : {std::pair{1000, true}, {1000, false}, {0, false}}) {
      const int N = kind.first;
      FeatureInputs<half> in({.on = {Feature::Packed}, .H = 2, .Sq = 100, .Sk = 90, .D = 64});
      const auto ends = [&](std::vector<std::int32_t>& all, std::int64_t S) {
        all.assign(static_cast<std::size_t>(N + 1), 0);
        for (int n = 1; n <= N; ++n) all[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(n * S / 1000);
      };
      ends(in.first_rows, kind.second ? in.shape.Sq : 0), ends(in.first_keys, in.shape.Sk), in.shape.N = N;
      for (Strided<half>* x : {&in.q, &in.k, &in.v, &in.dout})
        x->fill(x->view.S(), [](std::uint64_t i, std::int64_t) {
          return static_cast<float>(static_cast<int>(i * 7 % 23) - 11) / 8;
        });
      INFO(phase->name << ": " << N << " sequences");
      enter(*phase, in.problem());
      enter(*phase, in.gradients());
      expect_none(in.complaints(true, 4, true));
    }
}

// ---- On a GPU -------------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("gpu: without lengths the bits of phase 26", T, half, bfloat16) {
  for (const Phase* phase : both)
    if (!cannot_run(*phase, Where::Gpu)) check_bits<T>(*phase, Where::Gpu, {.H = 6, .Sq = 1030, .Sk = 1200});
}

TEST_CASE_TEMPLATE("gpu: sequences have the bits that they have alone, whatever is beside them", T, half, bfloat16) {
  for (const Phase* phase : both) {
    if (cannot_run(*phase, Where::Gpu)) return;
    std::uint64_t seed = 0;
    for (const std::int64_t D : {64, 128, 256})
      for (const FeatureSet& on : {FeatureSet{Feature::Packed},
                                   {Feature::Packed, Feature::Used, Feature::Causal},
                                   {Feature::Used, Feature::LseGradient},
                                   {Feature::Used, Feature::Causal}}) {
        const FeatureCase c{.on = on, .H = 4, .Sq = 700, .Sk = 900, .D = D, .seed = ++seed};
        for (const Blocks& blocks : blocks_for(phase->forward->features, D))
          check_sequences<T>(*phase, Where::Gpu, c, blocks);
        check_neighbours<T>(*phase, Where::Gpu, c);
      }
  }
}

TEST_CASE_TEMPLATE("gpu: every two features", T, half, bfloat16) {
  for (const Phase* phase : both) {
    if (cannot_run(*phase, Where::Gpu)) return;
    for (const std::int64_t D : {64, 128, 256})
      check_all_pairs<T>(*phase, Where::Gpu,
                         {.Sq = 200, .Sk = 330, .D = D, .seed = static_cast<std::uint64_t>(D / 64)});
  }
}
