// definition_test.cpp: proof of phases/definition: every feature alone and every two together, forward and backward,
// against fp64 with whole matrices (whole.hpp), whose gradients are tried against finite differences.
// ctest -L common
#include "phases/definition/definition.hpp"

#include "phases/definition/phase.hpp"
#include "tests/features.hpp"

using namespace flash;
using namespace flash::test;

namespace {

template <class T>
void run(FeatureInputs<T>& in, int threads = 1) {
  AnyProblem forward = in.problem(), backward = in.gradients();
  forward.options.threads = backward.options.threads = threads;
  enter(definition::phase, forward);
  enter(definition::phase, backward);
}

// A small problem's gradients by finite differences: those of Q, K and V, and of what else has one.
void check_differences(const FeatureCase& c) {
  FeatureInputs<float> in(c);
  WideInputs wide(in.gradients());
  const Whole want(wide);
  for (const auto& [what, numbers, gradient] : {std::tuple{"dQ", &wide.q, &want.dq},
                                                {"dK", &wide.k, &want.dk},
                                                {"dV", &wide.v, &want.dv},
                                                {"dbias", &wide.bias, &want.dbias},
                                                {"dsinks", &wide.sinks, &want.dsinks}}) {
    std::vector<double> by_differences = finite_differences(*numbers, [&] { return wide.loss(); });
    for (std::size_t i = 0; i < by_differences.size(); ++i)  // what is poison, or -inf, has none
      if (!std::isfinite((*numbers)[i])) by_differences[i] = (*gradient)[i];
    CAPTURE(text(c) + ": " + what);
    CHECK(largest_difference(by_differences, *gradient) <= 2e-8);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("definition: every feature alone and every two", T, float, half, bfloat16) {
  int cases = 0;
  for (const FeatureSet& on : singles_and_pairs()) {
    const auto number = static_cast<std::uint64_t>(cases++);
    const FeatureCase c{.on = on,
                        .D = number % 3 == 0 ? 20 : 32,
                        .layout = static_cast<Layout>(number % 5),
                        .seed = number,
                        .keeps = sizeof(T) == 2 || number % 2 == 0,
                        .sharing = static_cast<int>(number * 3 % 8)};
    FeatureInputs<T> in(c);
    run(in);
    expect_none(in.complaints());
  }
  CHECK(cases == 1 + 16 + 15 * 16 / 2 - 5);
}

TEST_CASE("definition: the reference's gradients are finite differences") {
  int number = 0;
  for (const FeatureSet& on : singles_and_pairs())
    check_differences({.on = on,
                       .H = 2,
                       .Sq = 6,
                       .Sk = 7,
                       .D = 3,
                       .seed = static_cast<std::uint64_t>(number),
                       .sharing = number++ % 8});
}

TEST_CASE("definition: what all axes share") {
  for (int sharing = 0; sharing < 8; ++sharing) {
    FeatureInputs<float> in({.on = {Feature::Bias, Feature::GroupedHeads, Feature::BoolMask}, .sharing = sharing});
    run(in);
    expect_none(in.complaints());
  }
}

TEST_CASE("definition: the bits do not depend on threads") {
  for (const FeatureSet& on :
       {FeatureSet{}, {Feature::Bias, Feature::Sinks}, {Feature::Packed, Feature::GroupedHeads}}) {
    std::vector<unsigned char> first;
    for (const int threads : {1, 2, 7, 0}) {
      FeatureInputs<half> in({.on = on, .Sq = 150, .Sk = 130, .sharing = 7});
      run(in, threads);
      if (first.empty()) first = in.results();
      CHECK(in.results() == first);
    }
  }
}

// A key that nobody sees has a gradient of exactly 0, and so it is found. Then it is NaN, and nothing changes.
TEST_CASE("definition: NaN in keys that nobody sees reaches nothing") {
  for (const Feature hides :
       {Feature::Window, Feature::Bias, Feature::BoolMask, Feature::Documents, Feature::BlockMask}) {
    const FeatureCase c{.on = {hides, Feature::Sinks}, .Sq = 50, .Sk = 300, .D = 8, .sharing = 6};
    FeatureInputs<float> in(c);
    run(in);
    const std::vector<unsigned char> before = in.results();
    int hidden = 0;
    for (std::int64_t b = 0; b < c.B; ++b)
      for (std::int64_t h = 0; h < c.H; ++h)
        for (std::int64_t j = 0; j < c.Sk; ++j) {
          const float* dv = in.dv.view.row(b, h, j);
          if (!std::all_of(dv, dv + c.D, [](float x) { return x == 0; })) continue;
          ++hidden;
          fill_with_poison(in.k.view.row(b, h, j), static_cast<std::size_t>(c.D) * sizeof(float));
          fill_with_poison(in.v.view.row(b, h, j), static_cast<std::size_t>(c.D) * sizeof(float));
        }
    CAPTURE(std::string(name(hides)));
    CHECK(hidden > 0);
    run(in);
    CHECK(in.results() == before);
  }
}

// A sequence's results are those that it has alone, whatever is packed beside it.
TEST_CASE("definition: packed sequences have the bits of each alone") {
  FeatureInputs<float> in({.on = {Feature::Packed, Feature::Causal, Feature::Softcap, Feature::GroupedHeads}});
  run(in);
  const AnyProblem all = in.gradients();
  for (std::int64_t n = 0; n < all.sequences(); ++n) {
    const Sequence at = all.sequence(n);
    FeatureInputs<float> alone(in.c);  // room for what it writes
    const auto cut = [&](AnyView view, std::int64_t first, std::int64_t rows) {
      view.data = static_cast<float*>(view.data) + first * view.stride[2], view.shape[2] = rows;
      return view;
    };
    for (AnyProblem one : {alone.problem(), alone.gradients()}) {
      one.first_rows = one.first_keys = {};
      for (const auto view : {&AnyProblem::q, &AnyProblem::o, &AnyProblem::dout, &AnyProblem::dq})
        if ((one.*view).given()) one.*view = cut(one.*view, at.first_row, at.rows);
      for (const auto view : {&AnyProblem::k, &AnyProblem::v, &AnyProblem::dk, &AnyProblem::dv})
        if ((one.*view).given()) one.*view = cut(one.*view, at.first_key, at.keys);
      for (const auto view : {&AnyProblem::lse, &AnyProblem::m, &AnyProblem::l})  // dense, so not cut but short
        (one.*view).shape[2] = at.rows, (one.*view).stride = dense_strides((one.*view).shape);
      enter(definition::phase, one);
    }
    const auto same = [&](const View<float>& a, const View<float>& b, std::int64_t first, std::int64_t rows) {
      bool same = true;
      for (std::int64_t h = 0; h < a.H(); ++h)
        for (std::int64_t s = first; s < first + rows; ++s)
          same &= std::memcmp(a.row(0, h, s), b.row(0, h, s), static_cast<std::size_t>(a.D()) * sizeof(float)) == 0;
      return same;
    };
    CHECK(same(in.o.view, alone.o.view, at.first_row, at.rows));
    CHECK(same(in.dq.view, alone.dq.view, at.first_row, at.rows));
    CHECK(same(in.dk.view, alone.dk.view, at.first_key, at.keys));
    CHECK(same(in.dv.view, alone.dv.view, at.first_key, at.keys));
  }
}

// What a row has that sees nothing; and problems without rows, keys or batch entries.
TEST_CASE("definition: rows without keys, and what is empty") {
  FeatureInputs<float> in({.on = {Feature::Sinks, Feature::Used}, .Sk = 0});
  run(in);
  expect_none(in.complaints());
  for (std::size_t row = 0; row < in.lse.size(); ++row) {
    const std::size_t b = row / 280, h = row / 70 % 4, i = row % 70;
    if (b == 0 && i >= 56)  // of no sequence
      CHECK(in.lse[row] == -INFINITY);
    else
      CHECK(std::abs(in.lse[row] - in.sinks[h]) <= 1e-6f);
  }
  for (const FeatureCase& c : {FeatureCase{.Sq = 0},
                               {.Sk = 0},
                               {.B = 0},
                               {.on = {Feature::Packed}, .Sq = 0, .Sk = 0},
                               {.on = {Feature::Bias}, .Sq = 0}}) {
    FeatureInputs<half> empty(c);
    run(empty);
    expect_none(empty.complaints());
  }
}

TEST_CASE("definition: dropout leaves out its share, and nothing of it is left") {
  const Dropout half_of_all{0.5f, 7}, hardly{0.3f / 65536, 7};
  CHECK(half_of_all.factor() == 2);
  CHECK_FALSE(hardly.given());
  for (const float p : {0.1f, 0.17f, 0.5f, 0.9f}) {
    const Dropout dropout{p, 99};
    int kept = 0, all = 0;
    for (std::int64_t i = 0; i < 100; ++i)
      for (std::int64_t j = 0; j < 1000; ++j, ++all) kept += is_kept(dropout, 1, 2, i, j);
    const double share = static_cast<double>(kept) / all, deviation = std::sqrt(p * (1 - p) / all);
    CHECK(std::abs(share - (1 - dropout.threshold() / 65536.0)) <= 4 * deviation);
    CHECK(std::abs(dropout.threshold() - 65536.0 * static_cast<double>(p)) <= 0.5);
  }
}

// By one line: what the argument is, what it was, what may be.
TEST_CASE("definition: what is refused") {
  using Break = std::function<void(AnyProblem&, FeatureInputs<float>&)>;
  struct Refused {
    FeatureSet on;
    const char* message;
    Break break_it;
  };
  const std::vector<Refused> all = {
      {{}, "softcap is -1", [](AnyProblem& p, auto&) { p.options.softcap = -1; }},
      {{}, "softcap is nan", [](AnyProblem& p, auto&) { p.options.softcap = NAN; }},
      {{}, "dropout is 1", [](AnyProblem& p, auto&) { p.options.dropout.p = 1; }},
      {{}, "dropout is nan", [](AnyProblem& p, auto&) { p.options.dropout.p = NAN; }},
      {{Feature::GroupedHeads},
       "K's number of heads H is 3; expected a divisor of 4",
       [](AnyProblem& p, auto&) { p.k.shape[1] = p.v.shape[1] = p.dk.shape[1] = p.dv.shape[1] = 3; }},
      {{Feature::Bias},
       "bias's number of heads H is 3; expected 4 or 1 as in Q",
       [](AnyProblem& p, auto&) { p.bias.shape[1] = 3; }},
      {{Feature::Bias},
       "bias's head dimension D is 89; expected 90 as in K",
       [](AnyProblem& p, auto&) { p.bias.shape[3] = 89; }},
      {{Feature::Bias}, "bias is null; expected a pointer beside dbias", [](AnyProblem& p, auto&) { p.bias = {}; }},
      {{Feature::Sinks}, "sinks is null; expected a pointer beside dsinks", [](AnyProblem& p, auto&) { p.sinks = {}; }},
      {{Feature::Documents},
       "doc_k is null; expected a pointer beside doc_q",
       [](AnyProblem& p, auto&) { p.document_k = {}; }},
      {{Feature::Packed},
       "cu_seqlens_k is null; expected a pointer beside cu_seqlens_q",
       [](AnyProblem& p, auto&) { p.first_keys = {}; }},
      {{Feature::Packed}, "cu_seqlens_q[0] is 1; expected 0 to 0", [](AnyProblem&, auto& in) { in.first_rows[0] = 1; }},
      {{Feature::Packed}, "cu_seqlens_k[2] is 3; expected 30 to", [](AnyProblem&, auto& in) { in.first_keys[2] = 3; }},
      {{Feature::Packed},
       "cu_seqlens_q[5] is 1000; expected 110 to 114",
       [](AnyProblem&, auto& in) { in.first_rows[5] = 1000; }},
      {{Feature::Packed},
       "cu_seqlens_k's sequence length S is 5; expected 6 as in the sequences' ends",
       [](AnyProblem& p, auto&) { p.first_keys.shape[2] = 5; }},
      {{Feature::Packed, Feature::Used},
       "seqused_q[2] is 71; expected 0 to 70",
       [](AnyProblem&, auto& in) { in.rows_of[2] = 71; }},
      {{Feature::Used}, "seqused_k[0] is -1; expected 0 to 90", [](AnyProblem&, auto& in) { in.keys_of[0] = -1; }},
      {{Feature::BlockMask},
       "block_mask[0, 1, 0, 1] is 255; expected 0 (none), 1 (ask) or 2 (whole)",
       [](AnyProblem&, auto& in) { in.blocks[5] = 255; }},
      {{Feature::Alibi},
       "slopes is given; expected none with a shifted mask",
       [](AnyProblem& p, auto&) { p.options.mask = Mask::top_left().shifted(3); }},
      {{Feature::Dropout},
       "mode is atomic; expected deterministic in phase definition",
       [](AnyProblem& p, auto&) { p.options.mode = BackwardMode::Atomic; }},
  };
  for (const Refused& refused : all) {
    FeatureInputs<float> in({.on = refused.on});
    AnyProblem p = in.gradients();
    refused.break_it(p, in);
    const std::vector<unsigned char> before = in.results();
    std::string said;
    try {
      enter(definition::phase, p);
    } catch (const Error& e) {
      said = e.what();
    }
    CHECK(said.rfind(refused.message, 0) == 0);
    CHECK(said.find('\n') == std::string::npos);
    CHECK(in.results() == before);
    if (said.rfind(refused.message, 0) != 0) MESSAGE(said);
  }
  for (const Feature feature : {Feature::Bias, Feature::BoolMask, Feature::Documents, Feature::BlockMask}) {
    FeatureInputs<float> in({.on = {feature, Feature::Packed}});
    CHECK(is_refused(in.c.on));
    CHECK_THROWS_WITH_AS(enter(definition::phase, in.problem()), doctest::Contains("none with cu_seqlens_q"), Error);
  }
}
