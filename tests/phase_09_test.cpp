// phase_09_test.cpp: proof of phase 09: all that phases, kernels and backward passes promise (promises.hpp,
// backward_promises.hpp). Then the derivation equation by equation, the naive backward, and what its kernels count.
// ctest --test-dir build -L phase09        the list of cases and the figures: phase09_test -s
#include <doctest/doctest.h>

#include "phases/08-lse/phase.hpp"
#include "phases/09-backward/naive.hpp"
#include "phases/09-backward/phase.hpp"
#include "tests/backward_promises.hpp"
#include "tests/row_kernels.hpp"

using namespace flash;
using namespace flash::test;
using phase09::Mode;

const Phase& flash::test::phase_under_test() {
  return phase09::phase;
}

// --- The derivation (docs/backward.md), equation by equation ---------------------------------------------------------

TEST_CASE("derivation: each equation against finite differences in fp64") {
  constexpr std::int64_t Sq = 4, Sk = 5, D = 3;
  const auto draw_all = [](std::uint32_t stream, std::int64_t n) {
    std::vector<double> x;
    for (std::int64_t i = 0; i < n; ++i) x.push_back(Random(3, stream).normal(static_cast<std::uint64_t>(i)));
    return x;
  };
  std::vector<double> S = draw_all(0, Sq * Sk), V = draw_all(1, Sk * D), dO = draw_all(2, Sq * D), P(Sq * Sk);
  const std::vector<double> dLSE = draw_all(3, Sq);
  const auto loss_of_P = [&] {  // L = Σ dO ∘ (P V)
    double sum = 0;
    for (std::int64_t i = 0; i < Sq; ++i)
      for (std::int64_t j = 0; j < Sk; ++j)
        for (std::int64_t d = 0; d < D; ++d) sum += dO[i * D + d] * P[i * Sk + j] * V[j * D + d];
    return sum;
  };
  const auto loss_of_S = [&] {  // P = softmax(S), and LSE
    double lse = 0;
    for (std::int64_t i = 0; i < Sq; ++i) {
      double l = 0;
      for (std::int64_t j = 0; j < Sk; ++j) l += P[i * Sk + j] = std::exp(S[i * Sk + j]);
      for (std::int64_t j = 0; j < Sk; ++j) P[i * Sk + j] /= l;
      lse += dLSE[i] * std::log(l);
    }
    return loss_of_P() + lse;
  };
  loss_of_S();

  // (1) dV = Pᵀ dO
  std::vector<double> dV(Sk * D);
  for (std::int64_t j = 0; j < Sk; ++j)
    for (std::int64_t d = 0; d < D; ++d)
      for (std::int64_t i = 0; i < Sq; ++i) dV[j * D + d] += P[i * Sk + j] * dO[i * D + d];
  CHECK(largest_difference(finite_differences(V, loss_of_P), dV) <= 1e-8);

  // (2) dP = dO Vᵀ
  std::vector<double> dP(Sq * Sk);
  for (std::int64_t i = 0; i < Sq; ++i)
    for (std::int64_t j = 0; j < Sk; ++j)
      for (std::int64_t d = 0; d < D; ++d) dP[i * Sk + j] += dO[i * D + d] * V[j * D + d];
  CHECK(largest_difference(finite_differences(P, loss_of_P), dP) <= 1e-8);

  // (3) δ = rowsum(P ∘ dP) = rowsum(dO ∘ O)
  std::vector<double> delta(Sq), of_o(Sq);
  for (std::int64_t i = 0; i < Sq; ++i)
    for (std::int64_t j = 0; j < Sk; ++j) {
      delta[i] += P[i * Sk + j] * dP[i * Sk + j];
      for (std::int64_t d = 0; d < D; ++d) of_o[i] += dO[i * D + d] * P[i * Sk + j] * V[j * D + d];
    }
  CHECK(largest_difference(delta, of_o) <= 1e-14);

  // (4) dS = P ∘ (dP − δ + dLSE), and its rows sum to dLSE
  std::vector<double> dS(Sq * Sk), row_sum(Sq);
  for (std::int64_t i = 0; i < Sq; ++i)
    for (std::int64_t j = 0; j < Sk; ++j)
      row_sum[i] += dS[i * Sk + j] = P[i * Sk + j] * (dP[i * Sk + j] - delta[i] + dLSE[i]);
  CHECK(largest_difference(finite_differences(S, loss_of_S), dS) <= 1e-8);
  CHECK(largest_difference(row_sum, dLSE) <= 1e-14);
}

// (5) dQ = scale · dS K, (6) dK = scale · dSᵀ Q, and the whole chain.
TEST_CASE("gradient check: the naive backward in fp64 against finite differences") {
  for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
    for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{5, 5}, {7, 4}, {3, 8}, {1, 1}})
      for (const Input input : {Input::Normal, Input::Uniform}) {
        GradientInputs<float> in({.B = 1, .Sq = Sq, .Sk = Sk, .D = 6, .input = input, .mask = causal, .seed = 7});
        INFO(text(in.in.c));
        WideProblem e(in.problem(true));
        if (Sq == 5) e.options.scale = -0.7f;
        phase09::naive_backward(e.problem());
        const auto loss = [&] { return e.loss(); };
        CHECK(largest_difference(finite_differences(e.q, loss), e.dq) <= 1e-8);
        CHECK(largest_difference(finite_differences(e.k, loss), e.dk) <= 1e-8);
        CHECK(largest_difference(finite_differences(e.v, loss), e.dv) <= 1e-8);
        const GradientReference want = gradient_reference(e.problem());  // and the reference is no worse
        CHECK(largest_difference(want.dq, e.dq) <= 1e-13);
        CHECK(largest_difference(want.dk, e.dk) <= 1e-13);
        CHECK(largest_difference(want.dv, e.dv) <= 1e-13);
      }
}

// --- The naive backward ----------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("naive backward: the contract", T, float, half, bfloat16) {
  Domain domain;
  domain.blocks = {{0, 0}};
  Worst worst;
  std::vector<Case> cases = pairwise(domain);
  cases.push_back({.B = 1, .H = 2, .Sq = 130, .Sk = 97, .D = 48, .mask = Mask::top_left()});
  for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
    for (const auto& [B, Sq, Sk] : {std::array<std::int64_t, 3>{2, 0, 20}, {2, 20, 0}, {2, 0, 0}, {0, 5, 5}})
      cases.push_back({.B = B, .Sq = Sq, .Sk = Sk, .mask = causal, .layout = Layout::Padded});
  for (const Case& c : cases) {
    GradientInputs<T> in(c);
    const bool with_dlse = c.seed % 2 == 0;
    phase09::naive_backward(in.problem(with_dlse));
    expect_none(examine_gradients(in, with_dlse, &worst));
  }
  MESSAGE("naive " << std::string(type_name<T>()) << ": " << worst.line());
}

TEST_CASE("naive backward: bytes and FLOPs are the formula's") {
  const Case c{.B = 2, .H = 3, .Sq = 20, .Sk = 12, .D = 8};
  GradientInputs<half> in(c);
  const Ledger ledger = phase09::naive_backward(in.problem());
  const std::uint64_t heads = 6, rows = 20 * 8 * 2, keys = 12 * 8 * 2, square = 20 * 12 * 4;  // bytes
  const auto is = [&](const char* name, std::uint64_t read, std::uint64_t written) {
    INFO(name);
    for (const ArrayTraffic& a : ledger.arrays)
      if (a.name == name) {
        CHECK(a.read_bytes == heads * read);
        CHECK(a.written_bytes == heads * written);
        return;
      }
    FAIL_CHECK("no such array");
  };
  is("Q", 2 * rows, 0), is("K", 2 * keys, 0), is("V", keys, 0), is("dO", 2 * rows, 0);
  is("S", square, square), is("P", 2 * square, square), is("dP", square, square), is("dS", 2 * square, square);
  is("dQ", 0, rows), is("dK", 0, keys), is("dV", 0, keys);
  CHECK(ledger.flops == heads * 5 * 2 * 20 * 12 * 8);  // the forward pass has two products, so 2.5 times as many
  CHECK(ledger.exps == heads * 20 * 12);
}

// But for fp64's own rounding of the logits, 1e-7 where they are 1e9.
TEST_CASE("large logits: the naive backward in fp64 is exact") {
  for (const LargeCase& l : large_cases()) {
    INFO(text(l));
    GradientInputs<float> in(l.c);
    make_large(in, l);
    WideProblem wide(in.problem(true));
    phase09::naive_backward(wide.problem());
    const GradientReference want = gradient_reference(in.problem(true));
    const auto near = [&](const std::vector<double>& got, const std::vector<double>& exact, double g) {
      double difference = 0;
      for (std::size_t i = 0; i < got.size(); ++i) difference += (got[i] - exact[i]) * (got[i] - exact[i]);
      CHECK(std::sqrt(difference) <= (1e-12 + 4 * 0x1p-53 * want.max_abs_logit) * g);
    };
    near(wide.dq, want.dq, want.gq), near(wide.dk, want.dk, want.gk), near(wide.dv, want.dv, want.gv);
  }
}

// --- The kernels -----------------------------------------------------------------------------------------------------

// At D = 256 only its smallest blocks fit an A100.
TEST_CASE("backward: blocks at D = 256") {
  const std::array<std::pair<Profile, Blocks>, 2> fitting{
      {{Profile::sm_80, Blocks{16, 16}}, {Profile::sm_90, phase09::features.blocks[0]}}};
  for (const auto& [profile, blocks] : fitting) {
    GradientInputs<half> in({.B = 1, .H = 1, .Sq = 20, .Sk = 30, .D = 256});
    CHECK(run_both(in, Where::Sim, Mode::Deterministic, false, {.profile = profile}).blocks == blocks);
  }
}

// Its forward pass is a phase like the others.
TEST_CASE_TEMPLATE("forward: counters equal formulas", T, float, half, bfloat16) {
  check_row_kernel<T>();
}

// --- What is read, written and computed, from a formula of the sizes -------------------------------------------------

TEST_CASE("the ledger is the formula's: bytes of each array, FLOPs, exps, tiles") {
  if (skipped_without(Where::Checked)) return;
  struct Shape {
    std::int64_t Sq, Sk, D, Br, Bc;
    Mask causal;
  };
  for (const Shape& s :
       {Shape{50, 61, 64, 16, 16, Mask::none()}, Shape{50, 61, 33, 16, 16, Mask::top_left()},
        Shape{50, 61, 64, 16, 16, Mask::bottom_right()}, Shape{100, 40, 16, 64, 32, Mask::bottom_right()},
        Shape{40, 100, 24, 32, 64, Mask::top_left()}})
    for (const Mode mode : {Mode::Deterministic, Mode::Atomic}) {
      const Case c{
          .B = 1, .H = 2, .Sq = s.Sq, .Sk = s.Sk, .D = s.D, .mask = s.causal, .block_q = s.Br, .block_k = s.Bc};
      INFO(text(c) << std::string(mode == Mode::Atomic ? " atomic" : ""));
      GradientInputs<half> in(c);
      phase09::forward_training(in.forward(), in.kept(), Where::Sim);
      GradientProblem<half> p = in.problem(true);
      const bool lse_alone = s.D == 24;
      if (lse_alone) p.kept.m = p.kept.l = nullptr;
      const Run run = phase09::backward(p, Where::Checked, {}, mode);

      // Walk over the pairs of tiles as docs/backward.md says.
      const std::int64_t wide = s.D <= 16 ? 16 : s.D <= 32 ? 32 : 64;  // the instantiated head dimension
      std::uint64_t tiles = 0, full = 0, pairs = 0, rows_streamed = 0, keys_streamed = 0, added_rows = 0;
      std::vector<int> additions(static_cast<std::size_t>(s.Sq));  // to each row of dQ
      for (std::int64_t i0 = 0; i0 < s.Sq; i0 += s.Br)
        for (std::int64_t j0 = 0; j0 < s.Sk; j0 += s.Bc) {
          std::uint64_t seen = 0;
          for (std::int64_t i = i0; i < std::min(i0 + s.Br, s.Sq); ++i) {
            std::uint64_t of_row = 0;
            for (std::int64_t j = j0; j < std::min(j0 + s.Bc, s.Sk); ++j) of_row += sees(s.causal, i, j, s.Sq, s.Sk);
            seen += of_row;
            added_rows += of_row > 0, additions[static_cast<std::size_t>(i)] += of_row > 0;
          }
          pairs += seen;
          tiles += seen > 0;
          const std::int64_t rows = std::min(s.Br, s.Sq - i0), keys = std::min(s.Bc, s.Sk - j0);
          full += s.Bc == keys && seen == static_cast<std::uint64_t>(rows * keys);
          if (seen > 0) rows_streamed += rows, keys_streamed += keys;
        }
      const std::uint64_t heads = 2, Sq = s.Sq, Sk = s.Sk, D = s.D, row = 2 * D;  // bytes of a row in fp16
      const bool atomic = mode == Mode::Atomic;
      const auto is = [&](const char* name, std::uint64_t read, std::uint64_t written) {
        INFO(name);
        ArrayTraffic found;
        for (const ArrayTraffic& a : run.ledger.arrays)
          if (a.name == name) found = a;
        CHECK(found.read_bytes == heads * read);
        CHECK(found.written_bytes == heads * written);
      };
      // δ: O, O_lo, dO once. dK and dV: K, V once, Q and dO as often as they stream by. dQ: the other way round.
      is("O", Sq * row, 0);
      is("O_lo", Sq * 2 * D, 0);
      is("Q", (rows_streamed + (atomic ? 0 : Sq)) * row, 0);
      is("dO", (rows_streamed + (atomic ? 1 : 2) * Sq) * row, 0);
      is("K", (Sk + (atomic ? 0 : keys_streamed)) * row, 0);
      is("V", (Sk + (atomic ? 0 : keys_streamed)) * row, 0);
      is("dLSE", Sq * 4, 0);
      // a row's m and l (or LSE alone) and δ: each thread that shares the row reads them
      const std::uint64_t readers = atomic ? 0 : static_cast<std::uint64_t>(wide / std::min<std::int64_t>(wide, 32));
      is("m", lse_alone ? 0 : (rows_streamed + readers * Sq) * 4, 0);
      is("l", lse_alone ? 0 : (rows_streamed + readers * Sq) * 4, 0);
      is("LSE", lse_alone ? (rows_streamed + readers * Sq) * 4 : 0, 0);
      is("delta", (rows_streamed + readers * Sq) * 4, Sq * 4);
      is("dQ", 0, Sq * row);
      is("dK", 0, Sk * row);
      is("dV", 0, Sk * row);
      // Two additions to 0 give the same bits in either order; nothing fixes the order of three.
      std::uint64_t unordered = 0, rows_of_three = 0;
      for (const int count : additions) rows_of_three += count >= 3;
      for (const KernelReport& kernel : run.kernels)
        for (const UnorderedAdditions& u : kernel.unordered) {
          CHECK(u.array == "dQ_sum");
          CHECK(u.first == u.second);
          unordered += u.elements;
        }
      CHECK(unordered == (atomic ? heads * rows_of_three * D : 0));
      if (atomic) is("dQ_sum", added_rows * D * 4 + Sq * D * 4, added_rows * D * 4 + Sq * D * 4);

      // Tiles: S and dP whole, once per pass; dV, dK and dQ only for pairs that see each other.
      const std::uint64_t of_tile = 2 * 2 * s.Br * s.Bc * wide, passes = atomic ? 1 : 2;
      CHECK(run.ledger.flops == heads * (2 * Sq * D + passes * tiles * of_tile + 3 * 2 * pairs * wide));
      CHECK(run.ledger.exps == heads * passes * tiles * s.Br * s.Bc);
      CHECK(run.tiles == TileCounts{heads * full, heads * (tiles - full),
                                    heads * ((Sq + s.Br - 1) / s.Br * ((Sk + s.Bc - 1) / s.Bc) - tiles)});
    }
}
