// phase_09_test.cpp: the backward pass: the derivation equation by equation, the naive backward, the kernels on the
// simulator; against fp64, finite differences, integer formulas of what is read and written, and bad input.
// ctest --test-dir build -L phase09        the list of cases and the figures: phase_09_test -s
#include <doctest/doctest.h>

#include "phases/08-lse/phase.hpp"
#include "phases/09-backward/naive.hpp"
#include "phases/09-backward/phase.hpp"
#include "tests/gradients.hpp"
#include "tests/row_kernels.hpp"

using namespace flash;
using namespace flash::test;
using phase09::Delta;
using phase09::Mode;

const Phase& flash::test::phase_under_test() {
  return phase09::phase;
}

namespace {

// A case with everything that the backward pass takes and gives, each array in poison of its own.
template <class T>
struct GradientInputs {
  Inputs<T> in;
  Strided<std::int16_t> o_lo;
  Strided<T> dout, dq, dk, dv;
  std::vector<float> m, l, dlse;

  explicit GradientInputs(const Case& c)
      : in(c),
        o_lo({c.B, c.H, c.Sq, c.D}, c.layout, 1),
        dout({c.B, c.H, c.Sq, c.D}, c.layout, 2),
        dq({c.B, c.H, c.Sq, c.D}, c.layout, 3),
        dk({c.B, c.H, c.Sk, c.D}, c.layout, 0),
        dv({c.B, c.H, c.Sk, c.D}, c.layout, 2),
        m(static_cast<std::size_t>(c.B * c.H * c.Sq + 1), NAN),  // + 1: never a null pointer
        l(m) {
    const Random random(c.seed, 3), random_lse(c.seed, 4);
    const Distribution d = c.input == Input::Uniform    ? Distribution::Uniform
                           : c.input == Input::Shifted  ? Distribution::Shifted
                           : c.input == Input::Outliers ? Distribution::Outliers
                                                        : Distribution::Normal;
    dout.fill(c.Sq, [&](std::uint64_t i, std::int64_t) { return draw(random, d, i); });
    for (std::int64_t i = 0; i < c.B * c.H * c.Sq; ++i)
      dlse.push_back(random_lse.normal(static_cast<std::uint64_t>(i)));
  }

  Problem<T> forward() { return in.problem(true); }
  // fp16 and bf16 keep O's low-order bits, fp32 has none.
  phase09::Kept kept() { return {sizeof(T) == 2 ? o_lo.view : View<std::int16_t>{}, m.data(), l.data()}; }

  GradientProblem<T> problem(bool with_dlse = false) {
    const Problem<T> f = forward();
    return {
        f.q,      f.k, f.v, f.o, kept(), dout.view, dq.view, dk.view, dv.view, f.lse, with_dlse ? dlse.data() : nullptr,
        f.options};
  }
};

// Runs the training forward and the backward on the same machine. Throws when the checked machine finds anything.
template <class T>
Run run_both(GradientInputs<T>& in, Where where, Mode mode = Mode::Deterministic, bool with_dlse = false,
             const MachineOptions& options = {}) {
  phase09::forward_training(in.forward(), in.kept(), where, options);
  return phase09::backward(in.problem(with_dlse), where, options, mode);
}

bool has_bar(Input input) {
  return input != Input::LowEqual && input != Input::LowVaried && input != Input::Denormals;
}

// The worst shares of their bars, as text for the log.
struct Worst {
  int cases = 0;
  double q = 0, k = 0, v = 0;
  std::string q_case, k_case, v_case;
  void note(const GradientErrors& e, const Case& c) {
    ++cases;
    const auto keep = [&](double share, double& worst, std::string& where) {
      if (!(share <= worst)) worst = share, where = text(c);
    };
    keep(e.dq.share, q, q_case), keep(e.dk.share, k, k_case), keep(e.dv.share, v, v_case);
  }
  std::string line() const {
    std::ostringstream s;
    s.precision(2);
    s << cases << " cases; of its bar dQ reaches at most " << q << " (" << q_case << "), dK " << k << " (" << k_case
      << "), dV " << v << " (" << v_case << ")";
    return s.str();
  }
};

// What is wrong with the gradients that lie in `in`; `before` is a copy of the inputs' memory.
template <class T>
Complaints examine_gradients(GradientInputs<T>& in, bool with_dlse, Worst* worst = nullptr) {
  Complaints complaints;
  const Case& c = in.in.c;
  const auto complain = [&](const std::string& what) {
    complaints.push_back(std::string(type_name<T>()) + " " + text(c) + ": " + what);
  };
  const GradientProblem<T> p = in.problem(with_dlse);
  const GradientReference want = gradient_reference(p);
  if (has_bar(c.input)) {
    const GradientErrors errors = gradient_errors(p, want, c.input, phase09::backward_features);
    const auto judge = [&](const char* name, const GradientError& e) {
      std::ostringstream s;
      s << name << "'s relative error is " << e.relative << ", " << e.share << " of what is allowed; floor " << e.floor;
      if (!(e.share <= 1)) complain(s.str());
    };
    judge("dQ", errors.dq), judge("dK", errors.dk), judge("dV", errors.dv);
    if (worst) worst->note(errors, c);
  }
  for (const auto& [name, got] : {std::pair{"dQ", gather64(p.dq)}, {"dK", gather64(p.dk)}, {"dV", gather64(p.dv)}})
    if (!std::all_of(got.begin(), got.end(), [](double x) { return std::isfinite(x); }))
      complain(std::string(name) + " is not finite");

  // Exactly 0 for a row that sees no key, and for a key that no row sees.
  for (std::int64_t head = 0; head < c.B * c.H; ++head) {
    const auto zero = [&](const View<T>& x, std::int64_t row) {
      const T* data = x.row(head / c.H, head % c.H, row);
      return std::all_of(data, data + c.D, [](T y) { return as_double(y) == 0; });
    };
    for (std::int64_t i = 0; i < c.Sq; ++i) {
      bool any = false;
      for (std::int64_t j = 0; j < c.Sk; ++j) any = any || sees(c.mask, i, j, c.Sq, c.Sk);
      if (!any && !zero(p.dq, i)) complain("dQ of row " + std::to_string(i) + ", which sees no key, is not 0");
    }
    for (std::int64_t j = 0; j < c.Sk; ++j) {
      bool any = false;
      for (std::int64_t i = 0; i < c.Sq; ++i) any = any || sees(c.mask, i, j, c.Sq, c.Sk);
      if (!any && !(zero(p.dk, j) && zero(p.dv, j)))
        complain("dK or dV of key " + std::to_string(j) + ", which no row sees, is not 0");
    }
  }
  if (!in.dq.gaps_intact() || !in.dk.gaps_intact() || !in.dv.gaps_intact())
    complain("something was written outside the gradients' rows");
  return complaints;
}

}  // namespace

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
  for (const Case& c : pairwise(domain)) {
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

// --- The kernels -----------------------------------------------------------------------------------------------------

namespace {
Domain gradient_domain() {
  return restrict_to({}, phase09::features);
}

// The contract's gradient bars on every case of the list.
template <class T>
void check_gradients(Where where, Mode mode) {
  Worst worst;
  for (const Case& c : pairwise(gradient_domain())) {
    if (mode == Mode::Atomic && c.seed % 3 != 1) continue;
    GradientInputs<T> in(c);
    const bool with_dlse = c.seed % 2 == 0;
    run_both(in, where, mode, with_dlse);
    expect_none(examine_gradients(in, with_dlse, &worst));
  }
  MESSAGE(std::string(type_name<T>()) << ": " << worst.line());
}
}  // namespace

TEST_CASE_TEMPLATE("backward: the contract on the simulator", T, float, half, bfloat16) {
  check_gradients<T>(Where::Sim, Mode::Deterministic);
}

TEST_CASE_TEMPLATE("one-pass variant: the contract on the simulator", T, float, half, bfloat16) {
  check_gradients<T>(Where::Sim, Mode::Atomic);
}

// A caller with somebody else's LSE: the same bars, at the logits of the list.
TEST_CASE_TEMPLATE("from LSE alone: the contract on the simulator", T, float, half, bfloat16) {
  Worst worst;
  for (const Case& c : pairwise(gradient_domain())) {
    if (c.seed % 3 != 2) continue;
    GradientInputs<T> in(c);
    const bool with_dlse = c.seed % 2 == 0;
    phase09::forward_training(in.forward(), in.kept(), Where::Sim);
    GradientProblem<T> p = in.problem(with_dlse);
    p.kept.m = p.kept.l = nullptr;
    phase09::backward(p, Where::Sim);
    expect_none(examine_gradients(in, with_dlse, &worst));
  }
  MESSAGE(std::string(type_name<T>()) << ": " << worst.line());
}

TEST_CASE_TEMPLATE("backward: gpu", T, float, half, bfloat16) {
  if (skipped_without(Where::Gpu)) return;
  check_gradients<T>(Where::Gpu, Mode::Deterministic);
  check_gradients<T>(Where::Gpu, Mode::Atomic);
  const Case c{.B = 2, .H = 3, .Sq = 300, .Sk = 200, .D = 64, .mask = Mask::bottom_right()};
  GradientInputs<T> first(c), again(c);
  run_both(first, Where::Gpu);
  run_both(again, Where::Gpu);
  CHECK(same_bits(first.dq.memory, again.dq.memory));  // deterministic: the same bits in every run
  CHECK(same_bits(first.dk.memory, again.dk.memory));
  CHECK(same_bits(first.dv.memory, again.dv.memory));
}

// The backward pass needs more shared memory than the forward one: at D = 256 only its smallest blocks fit an A100.
TEST_CASE("backward: blocks fall back to what fits") {
  const std::array<std::pair<Profile, Blocks>, 2> fitting{
      {{Profile::sm_80, Blocks{16, 16}}, {Profile::sm_90, phase09::features.blocks[0]}}};
  for (const auto& [profile, blocks] : fitting) {
    GradientInputs<half> in({.B = 1, .H = 1, .Sq = 20, .Sk = 30, .D = 256});
    const Run run = run_both(in, Where::Sim, Mode::Deterministic, false, {.profile = profile});
    CHECK(run.blocks == blocks);
    expect_none(examine_gradients(in, false));
  }
}

// CUDA's grid.y ends at 65,535: more heads than that, each with gradients of its own.
TEST_CASE("backward: 65,792 heads") {
  const Case c{.B = 257, .H = 256, .Sq = 1, .Sk = 2, .D = 3, .block_q = 16, .block_k = 16};
  for (const Mode mode : {Mode::Deterministic, Mode::Atomic}) {
    GradientInputs<half> in(c);
    run_both(in, Where::Sim, mode);
    expect_none(examine_gradients(in, false));
  }
}

// Each tensor's rows, heads and batch entries further apart than 2^31 elements: the same bits as close together.
TEST_CASE_TEMPLATE("backward: strides over 2^31", T, float, half) {
  const Case c{.B = 2, .H = 2, .Sq = 18, .Sk = 18, .D = 8, .mask = Mask::top_left()};
  GradientInputs<T> near(c);
  FarApart far(1);
  GradientProblem<T> p = near.problem();
  const View<T> o = far(near.in.o.view), dq = p.dq = far(p.dq), dk = p.dk = far(p.dk), dv = p.dv = far(p.dv);
  p.q = far(p.q), p.k = far(p.k), p.v = far(p.v), p.o = o, p.dout = far(p.dout);
  if (p.kept.o_lo.data) p.kept.o_lo = far(p.kept.o_lo);
  const Problem<T> forward{p.q, p.k, p.v, o, near.forward().lse, p.options};
  phase09::forward_training(forward, p.kept, Where::Sim, {.in_place = true});
  phase09::backward(p, Where::Sim, {.in_place = true});
  run_both(near, Where::Sim);
  CHECK(gather64(dq) == gather64(near.dq.view));
  CHECK(gather64(dk) == gather64(near.dk.view));
  CHECK(gather64(dv) == gather64(near.dv.view));
}

// Large enough for the means to matter: the figures of docs/backward.md. The last column is what libraries do: δ from
// the rounded O. It must miss the bar, or this test could not tell the difference.
TEST_CASE_TEMPLATE("precision: delta keeps what rounding cuts off", T, half, bfloat16) {
  for (const Input input : {Input::Normal, Input::Shifted, Input::Uniform, Input::Outliers, Input::QKV4}) {
    const Case c{.B = 1, .H = 1, .Sq = 1024, .Sk = 1024, .D = 64, .input = input};
    GradientInputs<T> in(c);
    run_both(in, Where::Sim);
    const GradientProblem<T> p = in.problem();
    const GradientReference want = gradient_reference(p);
    const GradientErrors ours = gradient_errors(p, want, input, phase09::backward_features);
    GradientProblem<T> rounded = p;
    rounded.kept.o_lo = {};
    phase09::backward(rounded, Where::Sim);
    const GradientErrors theirs = gradient_errors(rounded, want, input, phase09::backward_features);
    std::ostringstream s;
    s.precision(3);
    s << type_name<T>() << " " << name(input) << ": error over floor of dQ " << ours.dq.relative / ours.dq.floor
      << ", dK " << ours.dk.relative / ours.dk.floor << ", dV " << ours.dv.relative / ours.dv.floor << " (floor "
      << ours.dq.floor << "); dQ with δ from the rounded O " << theirs.dq.relative / theirs.dq.floor;
    MESSAGE(s.str());
    CHECK(ours.worst_share() <= 1);
    if (input == Input::Uniform) CHECK_FALSE(theirs.dq.share <= 1);
  }
}

// --- Large logits ----------------------------------------------------------------------------------------------------

namespace {
// How Q and K are made large.
enum class Large {
  Spread,  // N(0, size): logits as large as `size`, of both signs; a key or two take all
  Offset,  // one feature adds `size` to the logits of N(0,1): all keys count, as far as fp32 can tell them apart
  Signs    // each number is +size or -size: equal logits are exactly equal, and many are
};

template <class T>
void make_large(GradientInputs<T>& in, Large large, float size) {
  const Case& c = in.in.c;
  const Random of_q(c.seed, 0), of_k(c.seed, 1);
  const float feature = std::sqrt(size * std::sqrt(static_cast<float>(c.D)));
  const auto value = [&](const Random& random, std::uint64_t i) {
    const float x = random.normal(i);
    if (large == Large::Spread) return std::sqrt(size) * x;
    if (large == Large::Signs) return std::copysign(size, x);
    return i % static_cast<std::uint64_t>(c.D) == 0 ? feature : x;
  };
  in.in.q.fill(c.Sq, [&](std::uint64_t i, std::int64_t) { return value(of_q, i); });
  in.in.k.fill(c.Sk, [&](std::uint64_t i, std::int64_t) { return value(of_k, i); });
}

struct LargeCase {
  Large large;
  float size;
  Case c;
};

// Each size of logits with each kind of inputs, masks and ragged shapes going round.
std::vector<LargeCase> large_cases() {
  std::vector<LargeCase> cases;
  const Case shapes[] = {{.B = 1, .H = 2, .Sq = 70, .Sk = 83, .D = 64, .mask = Mask::none()},
                         {.B = 2, .H = 1, .Sq = 61, .Sk = 50, .D = 40, .mask = Mask::top_left()},
                         {.B = 1, .H = 2, .Sq = 50, .Sk = 131, .D = 33, .mask = Mask::bottom_right()}};
  for (const auto& [large, size] : {std::pair{Large::Spread, 1e3f},
                                    {Large::Spread, 1e4f},
                                    {Large::Spread, 1e6f},
                                    {Large::Offset, 1e3f},
                                    {Large::Offset, 1e4f},
                                    {Large::Offset, 1e6f},
                                    {Large::Signs, 1e4f}})
    for (Case c : shapes) {
      c.seed = cases.size() + 1, c.layout = Layout::Mixed;
      cases.push_back({large, size, c});
    }
  return cases;
}

std::string text(const LargeCase& l) {
  static constexpr const char* names[] = {"spread", "offset", "signs"};
  std::ostringstream s;
  s << names[static_cast<int>(l.large)] << " " << l.size << " " << text(l.c);
  return s.str();
}

// The P of the backward pass, [B, H, Sq, Sk]: dV = Pᵀ dO, and where dO has its only 1 of column d in row i, column d of
// dV is row i of P. D rows at a time.
std::vector<double> p_of_backward(GradientInputs<float>& in, Mode mode, const phase09::Kept& kept) {
  const Case& c = in.in.c;
  std::vector<double> P(static_cast<std::size_t>(c.B * c.H * c.Sq * c.Sk));
  GradientProblem<float> p = in.problem();
  p.kept = kept;
  for (std::int64_t first = 0; first < c.Sq; first += c.D) {
    in.dout.fill(c.Sq, [&](std::uint64_t i, std::int64_t row) {
      return row - first == static_cast<std::int64_t>(i) % c.D ? 1.0f : 0.0f;
    });
    phase09::backward(p, Where::Sim, {}, mode);
    for (std::int64_t head = 0; head < c.B * c.H; ++head)
      for (std::int64_t i = first; i < std::min(first + c.D, c.Sq); ++i)
        for (std::int64_t j = 0; j < c.Sk; ++j)
          P[(head * c.Sq + i) * c.Sk + j] = in.dv.view.row(head / c.H, head % c.H, j)[i - first];
  }
  return P;
}

// The P of the forward pass: O = P V, and where V has its only 1 of column d in row j, column d of O is column j of P.
// Leaves in `in` what the forward pass writes beside O.
std::vector<double> p_of_forward(GradientInputs<float>& in) {
  const Case& c = in.in.c;
  std::vector<double> P(static_cast<std::size_t>(c.B * c.H * c.Sq * c.Sk));
  for (std::int64_t first = 0; first < c.Sk; first += c.D) {
    in.in.v.fill(c.Sk, [&](std::uint64_t i, std::int64_t row) {
      return row - first == static_cast<std::int64_t>(i) % c.D ? 1.0f : 0.0f;
    });
    phase09::forward_training(in.forward(), in.kept(), Where::Sim);
    for (std::int64_t head = 0; head < c.B * c.H; ++head)
      for (std::int64_t i = 0; i < c.Sq; ++i)
        for (std::int64_t j = first; j < std::min(first + c.D, c.Sk); ++j)
          P[(head * c.Sq + i) * c.Sk + j] = in.in.o.view.row(head / c.H, head % c.H, i)[j - first];
  }
  return P;
}

// How far the sum of a row of P is from 1, at worst; rows that see no key aside.
double worst_row_sum(const std::vector<double>& P, const Case& c) {
  double worst = 0;
  for (std::int64_t row = 0; row < c.B * c.H * c.Sq; ++row) {
    if (!sees(c.mask, row % c.Sq, 0, c.Sq, c.Sk)) continue;
    double sum = 0;
    for (std::int64_t j = 0; j < c.Sk; ++j) sum += P[row * c.Sk + j];
    if (!(std::abs(sum - 1) <= worst)) worst = std::abs(sum - 1);
  }
  return worst;
}
}  // namespace

// P itself: each row sums to 1, and each element is the forward pass's.
TEST_CASE("large logits: the backward pass has the forward's P, whose rows sum to 1") {
  double worst_kept = 0, worst_alone = 0, worst_element = 0;
  for (const LargeCase& l : large_cases())
    for (const Mode mode : {Mode::Deterministic, Mode::Atomic}) {
      INFO(text(l) << (mode == Mode::Atomic ? " atomic" : ""));
      GradientInputs<float> in(l.c);
      make_large(in, l.large, l.size);
      const std::vector<double> forward = p_of_forward(in), P = p_of_backward(in, mode, in.kept());
      const double off = worst_row_sum(P, l.c);
      CHECK(off <= 1e-6);
      int different = 0;
      for (std::size_t i = 0; i < P.size(); ++i) {
        different += !(std::abs(P[i] - forward[i]) <= 1e-6);
        worst_element = std::max(worst_element, std::abs(P[i] - forward[i]));
      }
      CHECK(different == 0);
      worst_kept = std::max(worst_kept, off);
      worst_alone = std::max(worst_alone, worst_row_sum(p_of_backward(in, mode, {}), l.c));
    }
  MESSAGE("row sums of P are off by " << worst_kept << " at most, elements by " << worst_element
                                      << "; from LSE alone the sums are off by " << worst_alone);
  CHECK_FALSE(worst_alone <= 1e-2);  // or these logits would prove nothing
}

// Inputs that fp16 and bf16 hold give them the P that fp32 has: what they store of dV is the rounded fp32.
TEST_CASE_TEMPLATE("large logits: fp16 and bf16 have the P of fp32", T, half, bfloat16) {
  for (const LargeCase& l : large_cases()) {
    INFO(text(l));
    GradientInputs<T> in(l.c);
    make_large(in, l.large, l.size);
    GradientInputs<float> wide(l.c);
    const auto copy = [&](const View<T>& from, const View<float>& to) {
      for (std::int64_t head = 0; head < l.c.B * l.c.H; ++head)
        for (std::int64_t s = 0; s < from.S(); ++s)
          for (std::int64_t d = 0; d < l.c.D; ++d)
            to.row(head / l.c.H, head % l.c.H, s)[d] = to_float(from.row(head / l.c.H, head % l.c.H, s)[d]);
    };
    copy(in.in.q.view, wide.in.q.view), copy(in.in.k.view, wide.in.k.view), copy(in.in.v.view, wide.in.v.view);
    copy(in.dout.view, wide.dout.view);
    run_both(in, Where::Sim);
    run_both(wide, Where::Sim);
    CHECK(same_bits(in.m, wide.m));
    CHECK(same_bits(in.l, wide.l));
    int different = 0;
    for (std::int64_t head = 0; head < l.c.B * l.c.H; ++head)
      for (std::int64_t j = 0; j < l.c.Sk; ++j)
        for (std::int64_t d = 0; d < l.c.D; ++d)
          different += !(to_float(in.dv.view.row(head / l.c.H, head % l.c.H, j)[d]) ==
                         to_float(from_float<T>(wide.dv.view.row(head / l.c.H, head % l.c.H, j)[d])));
    CHECK(different == 0);
  }
}

// The naive backward is the reference of the tour and the benches: at these logits too, but for fp64's own rounding of
// them, 1e-7 where logits are 1e9.
TEST_CASE("large logits: the naive backward in fp64 is exact") {
  for (const LargeCase& l : large_cases()) {
    INFO(text(l));
    GradientInputs<float> in(l.c);
    make_large(in, l.large, l.size);
    const GradientProblem<float> from = in.problem(true);
    const auto [dq, dk, dv] = phase09::exact_gradients(from);
    const GradientReference want = gradient_reference(from);
    const auto near = [&](const std::vector<double>& got, const std::vector<double>& exact, double g) {
      double difference = 0;
      for (std::size_t i = 0; i < got.size(); ++i) difference += (got[i] - exact[i]) * (got[i] - exact[i]);
      CHECK(std::sqrt(difference) <= (1e-12 + 4 * 0x1p-53 * want.max_abs_logit) * g);
    };
    near(dq, want.dq, want.gq), near(dk, want.dk, want.gk), near(dv, want.dv, want.gv);
  }
}

// The gradients are those of the forward pass's P: in fp64 from that very P they differ by the contract's bar alone.
TEST_CASE("large logits: the gradients are those of the forward's P") {
  for (const LargeCase& l : large_cases())
    for (const Mode mode : {Mode::Deterministic, Mode::Atomic}) {
      INFO(text(l) << (mode == Mode::Atomic ? " atomic" : ""));
      GradientInputs<float> of_p(l.c), in(l.c);
      make_large(of_p, l.large, l.size), make_large(in, l.large, l.size);
      const std::vector<double> P = p_of_forward(of_p);
      run_both(in, Where::Sim, mode, true);
      const GradientProblem<float> p = in.problem(true);
      CHECK(gradient_errors_beside_o(p, gradient_reference(p, false, &P), 0).worst_share() <= 1);
    }
}

// And so they are about as right as O is. A spread of logits leaves one key, or two that are nearly equal: there fp32's
// rounding of the logits is all of dQ and dK and little of O, and they are allowed what O is allowed for such logits.
// From LSE alone the bar must be missed, or this test could not tell the difference.
TEST_CASE_TEMPLATE("large logits: dV, dQ and dK are as precise as O", T, float, half, bfloat16) {
  double worst = 0, worst_alone = 0;
  for (const LargeCase& l : large_cases()) {
    const Mode mode = l.c.seed % 2 ? Mode::Deterministic : Mode::Atomic;
    const bool with_dlse = l.c.seed % 3 == 0;
    GradientInputs<T> in(l.c);
    make_large(in, l.large, l.size);
    run_both(in, Where::Sim, mode, with_dlse);
    GradientProblem<T> p = in.problem(with_dlse);
    const GradientReference want = gradient_reference(p);
    const double error_of_o = distance(gather(in.in.o.view), reference(in.forward()).o, l.c.D).relative;
    const double more = l.large == Large::Spread ? 4 * 0x1p-24 * want.max_abs_logit : 0;
    const GradientErrors ours = gradient_errors_beside_o(p, want, error_of_o, more);
    p.kept.m = p.kept.l = nullptr;
    phase09::backward(p, Where::Sim, {}, mode);
    const GradientErrors alone = gradient_errors_beside_o(p, want, error_of_o, more);
    INFO(type_name<T>() << " " << text(l) << ": O is off by " << error_of_o << ", dQ " << ours.dq.relative << ", dK "
                        << ours.dk.relative << ", dV " << ours.dv.relative << "; from LSE alone " << alone.dq.relative
                        << ", " << alone.dk.relative << ", " << alone.dv.relative);
    CHECK(ours.worst_share() <= 1);
    if (!(ours.worst_share() <= worst)) worst = ours.worst_share();
    if (!(alone.worst_share() <= worst_alone)) worst_alone = alone.worst_share();
  }
  MESSAGE(std::string(type_name<T>()) << ": of the bar " << worst << " at most; from LSE alone " << worst_alone);
  CHECK_FALSE(worst_alone <= 10);
}

// Its forward pass is a phase like the others.
TEST_CASE_TEMPLATE("forward: counters equal formulas", T, float, half, bfloat16) {
  check_row_kernel<T>();
}

TEST_CASE_TEMPLATE("forward: O and O_lo together hold the fp32 result", T, half, bfloat16) {
  for (const Input input : {Input::Normal, Input::Uniform, Input::QKV4}) {
    GradientInputs<T> in(
        {.Sq = 70, .Sk = 50, .D = 40, .input = input, .mask = Mask::top_left(), .layout = Layout::Mixed});
    phase09::forward_training(in.forward(), in.kept(), Where::Sim);
    const Reference want = reference(in.forward());
    std::vector<double> got;
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t s = 0; s < 70; ++s)
          for (std::int64_t d = 0; d < 40; ++d) {
            const float o = to_float(in.in.o.view.row(b, h, s)[d]);
            got.push_back(std::bit_cast<float>(std::bit_cast<std::int32_t>(o) + in.o_lo.view.row(b, h, s)[d]));
          }
    CHECK(distance(got, want.o, 40).relative <= 2e-6);
    CHECK(in.o_lo.gaps_intact());
  }
}

// What the backward pass is spared costs the forward pass 2·D + 8 bytes per row; what nobody wants costs nothing.
TEST_CASE("forward: bytes of what is kept") {
  if (skipped_without(Where::Checked)) return;
  GradientInputs<half> in({.B = 2, .H = 3, .Sq = 37, .Sk = 20, .D = 24, .layout = Layout::Padded});
  const auto written = [&](const phase09::Kept& kept, bool lse, const char* name) {
    Problem<half> p = in.forward();
    if (!lse) p.lse = nullptr;
    const Run run = phase09::forward_training(p, kept, Where::Checked);
    for (const ArrayTraffic& a : run.ledger.arrays)
      if (a.name == name) return a.written_bytes;
    return std::uint64_t{0};
  };
  const std::uint64_t rows = 2 * 3 * 37;
  CHECK(written(in.kept(), true, "O_lo") == rows * 24 * 2);
  for (const char* name : {"LSE", "m", "l"}) CHECK(written(in.kept(), true, name) == rows * 4);
  CHECK(written(in.kept(), false, "LSE") == 0);
  for (const char* name : {"O_lo", "m", "l"}) CHECK(written({}, true, name) == 0);
}

TEST_CASE("backward: checked: clean, and the same bits as the fast simulator") {
  if (skipped_without(Where::Checked)) return;
  const auto try_all = [&]<class T>(T, const Case& c, Mode mode, bool with_dlse, const MachineOptions& options) {
    INFO(text(c) << " order " << static_cast<int>(options.order));
    GradientInputs<T> checked(c), sim(c);
    REQUIRE_NOTHROW(run_both(checked, Where::Checked, mode, with_dlse, options));
    expect_none(examine_gradients(checked, with_dlse));
    run_both(sim, Where::Sim, mode, with_dlse);
    CHECK(same_bits(checked.in.o.memory, sim.in.o.memory));
    CHECK(same_bits(checked.dk.memory, sim.dk.memory));
    CHECK(same_bits(checked.dv.memory, sim.dv.memory));
    if (mode == Mode::Deterministic) CHECK(same_bits(checked.dq.memory, sim.dq.memory));
    GradientProblem<T> from_lse = checked.problem(with_dlse);  // a caller that has only O and LSE
    from_lse.kept = {};
    REQUIRE_NOTHROW(phase09::backward(from_lse, Where::Checked, options, mode));
  };
  for (const Mode mode : {Mode::Deterministic, Mode::Atomic}) {
    // three tiles and more in both directions, ragged, rows shared by two threads
    const Case tiles{.B = 1, .Sq = 50, .Sk = 61, .D = 64, .block_q = 16, .block_k = 16};
    try_all(float{}, tiles, mode, false, {.order = Order::forward});
    try_all(bfloat16{}, tiles, mode, true, {.order = Order::reverse});
    Case masked = tiles;
    masked.mask = Mask::bottom_right();
    masked.layout = Layout::Mixed;
    try_all(half{}, masked, mode, true, {.order = Order::random, .seed = 5});
    masked.Sq = 61, masked.Sk = 50, masked.D = 33;  // rows that see nothing
    try_all(float{}, masked, mode, false, {.order = Order::random, .seed = 6});
    masked.mask = Mask::top_left();
    masked.block_q = 64, masked.block_k = 32, masked.D = 16;
    try_all(bfloat16{}, masked, mode, false, {.order = Order::random, .seed = 7});
    masked.block_q = 32, masked.block_k = 64, masked.D = 130, masked.B = 1, masked.H = 1, masked.Sq = 40;
    try_all(half{}, masked, mode, true, {.order = Order::reverse});
  }
}

TEST_CASE_TEMPLATE("deterministic: the same bits in every run, order, company and number of workers", T, float,
                   bfloat16) {
  const Case c{.B = 2, .H = 2, .Sq = 70, .Sk = 83, .D = 64, .mask = Mask::bottom_right(), .block_q = 16, .block_k = 16};
  GradientInputs<T> first(c);
  run_both(first, Where::Sim, Mode::Deterministic, true);
  for (const MachineOptions& options : {MachineOptions{}, MachineOptions{.order = Order::reverse, .threads = 1},
                                        MachineOptions{.order = Order::random, .seed = 3}}) {
    GradientInputs<T> again(c);
    run_both(again, Where::Sim, Mode::Deterministic, true, options);
    CHECK(same_bits(first.dq.memory, again.dq.memory));
    CHECK(same_bits(first.dk.memory, again.dk.memory));
    CHECK(same_bits(first.dv.memory, again.dv.memory));
  }
  // A head alone.
  GradientInputs<T> alone(c);
  phase09::forward_training(alone.forward(), alone.kept(), Where::Sim);
  for (std::int64_t b = 0; b < c.B; ++b)
    for (std::int64_t h = 0; h < c.H; ++h) {
      GradientProblem<T> p = alone.problem(true);
      const auto cut = [&](auto& view) {
        if (!view.data) return;
        view.data = view.head(b, h);
        view.shape[0] = view.shape[1] = 1;
      };
      cut(p.q), cut(p.k), cut(p.v), cut(p.o), cut(p.kept.o_lo), cut(p.dout), cut(p.dq), cut(p.dk), cut(p.dv);
      for (float** x : {&p.kept.m, &p.kept.l}) *x += (b * c.H + h) * c.Sq;
      p.dlse += (b * c.H + h) * c.Sq;
      phase09::backward(p, Where::Sim);
    }
  CHECK(same_bits(first.dq.memory, alone.dq.memory));
  CHECK(same_bits(first.dk.memory, alone.dk.memory));
  CHECK(same_bits(first.dv.memory, alone.dv.memory));
}

// Each is within its bar of fp64; of each other, and of the naive backward, they are within both bars.
TEST_CASE_TEMPLATE("block sizes, the one-pass variant and the naive backward agree", T, float, half) {
  const Case c{.B = 1, .H = 2, .Sq = 130, .Sk = 97, .D = 48, .mask = Mask::top_left()};
  GradientInputs<T> naive(c);
  phase09::naive_backward(naive.problem());
  const GradientReference want = gradient_reference(naive.problem());
  const auto agree = [&](GradientInputs<T>& in) {
    const auto near = [&](const View<T>& a, const View<T>& b, const std::vector<double>& exact, double g) {
      const std::vector<double> x = gather64(a), y = gather64(b);
      std::vector<double> difference(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) difference[i] = exact[i] + (x[i] - y[i]);
      CHECK(gradient_error<T>(difference, exact, g, 5e-6, floors(c.input, phase09::backward_features, true)).share <=
            2);
    };
    near(in.dq.view, naive.dq.view, want.dq, want.gq);
    near(in.dk.view, naive.dk.view, want.dk, want.gk);
    near(in.dv.view, naive.dv.view, want.dv, want.gv);
  };
  for (const auto& [block_q, block_k] : {std::pair{16, 16}, {64, 32}, {32, 64}})
    for (const Mode mode : {Mode::Deterministic, Mode::Atomic}) {
      Case blocks = c;
      blocks.block_q = block_q, blocks.block_k = block_k;
      GradientInputs<T> in(blocks);
      run_both(in, Where::Sim, mode);
      agree(in);
    }
}

// NaN or Inf in one key, value, row of Q or row of dO reaches only the gradients that see it.
TEST_CASE_TEMPLATE("poison stays where it is seen", T, float, half) {
  for (const Mode mode : {Mode::Deterministic, Mode::Atomic})
    for (const Mask causal : {Mask::top_left(), Mask::bottom_right()})
      for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{40, 40}, {25, 45}, {45, 25}})
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
          for (int tensor = 0; tensor < 4; ++tensor)
            for (const std::int64_t place : {std::int64_t{1}, std::int64_t{17}, tensor < 2 ? Sk - 1 : Sq - 1}) {
              const Case c{.B = 1, .H = 2, .Sq = Sq, .Sk = Sk, .D = 32, .mask = causal, .block_q = 16, .block_k = 16};
              INFO(text(c) << ", " << bad << " in " << tensor << "[" << place << "]");
              GradientInputs<T> clean(c), poisoned(c);
              Strided<T>* tensors[] = {&poisoned.in.k, &poisoned.in.v, &poisoned.in.q, &poisoned.dout};
              for (std::int64_t d = 0; d < c.D; ++d) tensors[tensor]->view.row(0, 1, place)[d] = from_float<T>(bad);
              run_both(clean, Where::Sim, mode);
              run_both(poisoned, Where::Sim, mode);
              // A bad key or value spoils the rows that see it; a bad row of Q or dO spoils itself. A spoilt row spoils
              // the keys that it sees.
              const auto spoilt_row = [&](std::int64_t i) {
                return tensor < 2 ? sees(causal, i, place, Sq, Sk) : i == place;
              };
              const auto spoilt_key = [&](std::int64_t j) {
                for (std::int64_t i = 0; i < Sq; ++i)
                  if (spoilt_row(i) && sees(causal, i, j, Sq, Sk)) return true;
                return false;
              };
              int touched = 0;
              const auto compare = [&](const View<T>& a, const View<T>& b, std::int64_t h, std::int64_t s) {
                for (std::int64_t d = 0; d < c.D; ++d) {
                  const double x = as_double(a.row(0, h, s)[d]), y = as_double(b.row(0, h, s)[d]);
                  touched += mode == Mode::Atomic ? !(std::abs(x - y) <= 1e-3 * (1 + std::abs(x))) : !(x == y);
                }
              };
              for (std::int64_t h = 0; h < 2; ++h) {
                for (std::int64_t i = 0; i < Sq; ++i)
                  if (h == 0 || !spoilt_row(i)) compare(clean.dq.view, poisoned.dq.view, h, i);
                for (std::int64_t j = 0; j < Sk; ++j)
                  if (h == 0 || !spoilt_key(j)) {
                    compare(clean.dk.view, poisoned.dk.view, h, j);
                    compare(clean.dv.view, poisoned.dv.view, h, j);
                  }
              }
              CHECK(touched == 0);
            }
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
      for (std::int64_t i0 = 0; i0 < s.Sq; i0 += s.Br)
        for (std::int64_t j0 = 0; j0 < s.Sk; j0 += s.Bc) {
          std::uint64_t seen = 0;
          for (std::int64_t i = i0; i < std::min(i0 + s.Br, s.Sq); ++i) {
            std::uint64_t of_row = 0;
            for (std::int64_t j = j0; j < std::min(j0 + s.Bc, s.Sk); ++j) of_row += sees(s.causal, i, j, s.Sq, s.Sk);
            seen += of_row;
            added_rows += of_row > 0;
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
      if (atomic) is("dQ_sum", added_rows * D * 4 + Sq * D * 4, added_rows * D * 4 + Sq * D * 4);

      // Tiles: S and dP whole, once per pass; dV, dK and dQ only for pairs that see each other.
      const std::uint64_t of_tile = 2 * 2 * s.Br * s.Bc * wide, passes = atomic ? 1 : 2;
      CHECK(run.ledger.flops == heads * (2 * Sq * D + passes * tiles * of_tile + 3 * 2 * pairs * wide));
      CHECK(run.ledger.exps == heads * passes * tiles * s.Br * s.Bc);
      CHECK(run.tiles == TileCounts{heads * full, heads * (tiles - full),
                                    heads * ((Sq + s.Br - 1) / s.Br * ((Sk + s.Bc - 1) / s.Bc) - tiles)});
    }
}

// --- Edges and bad input ---------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("empty tensors", T, float, bfloat16) {
  for (const Mode mode : {Mode::Deterministic, Mode::Atomic})
    for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
      for (const auto& [B, Sq, Sk] : {std::array<std::int64_t, 3>{2, 0, 20}, {2, 20, 0}, {2, 0, 0}, {0, 5, 5}}) {
        GradientInputs<T> in({.B = B, .Sq = Sq, .Sk = Sk, .mask = causal, .layout = Layout::Padded});
        INFO(text(in.in.c));
        run_both(in, Where::Sim, mode, true);
        expect_none(examine_gradients(in, true));
        GradientInputs<T> naive(in.in.c);
        phase09::naive_backward(naive.problem());
        expect_none(examine_gradients(naive, true));
      }
}

// All logits of a row overflow to -inf: O = 0 and LSE = -inf, as if the row saw nothing, and its gradients are 0.
TEST_CASE("a row whose logits are all -inf has gradient 0") {
  for (const Mode mode : {Mode::Deterministic, Mode::Atomic}) {
    GradientInputs<float> in({.B = 1, .H = 1, .Sq = 3, .Sk = 5, .D = 4});
    in.in.q.fill(3, [](std::uint64_t, std::int64_t s) { return s == 1 ? 1e30f : 0.0f; });
    in.in.k.fill(5, [](std::uint64_t, std::int64_t) { return -1e30f; });
    run_both(in, Where::Sim, mode);
    for (std::int64_t d = 0; d < 4; ++d) CHECK(in.dq.view.row(0, 0, 1)[d] == 0);
    for (std::int64_t j = 0; j < 5; ++j)
      for (std::int64_t d = 0; d < 4; ++d) {
        CHECK(std::isfinite(in.dk.view.row(0, 0, j)[d]));
        CHECK(std::isfinite(in.dv.view.row(0, 0, j)[d]));
      }
  }
}

TEST_CASE("bad input is refused with one line, and nothing is written") {
  const auto refused = [](const std::string& message, const auto& break_it) {
    GradientInputs<half> in({.B = 2, .H = 3, .Sq = 4, .Sk = 5, .D = 8});
    GradientProblem<half> p = in.problem();
    break_it(p);
    CHECK_THROWS_WITH_AS(phase09::backward(p, Where::Sim), message.c_str(), Error);
    for (const Strided<half>* x : {&in.dq, &in.dk, &in.dv})
      CHECK(is_poison(x->memory.data(), x->memory.size() * sizeof(half)));
  };
  using P = GradientProblem<half>;
  for (int i = 0; i < 4; ++i) {
    const std::string axis =
        std::array{"batch size B", "number of heads H", "sequence length S", "head dimension D"}[i];
    const std::string q = std::array{"2", "3", "4", "8"}[i], k = std::array{"2", "3", "5", "8"}[i];
    refused("dO's " + axis + " is 1; expected " + q + " as in Q; make the shapes agree",
            [i](P& p) { p.dout.shape[i] = 1; });
    refused("dQ's " + axis + " is 1; expected " + q + " as in Q; make the shapes agree",
            [i](P& p) { p.dq.shape[i] = 1; });
    const std::string who = std::array{"Q", "Q", "K", "Q"}[i];  // says how long the axis is
    refused("dK's " + axis + " is 1; expected " + k + " as in " + who + "; make the shapes agree",
            [i](P& p) { p.dk.shape[i] = 1; });
    refused("dV's " + axis + " is 1; expected " + k + " as in " + who + "; make the shapes agree",
            [i](P& p) { p.dv.shape[i] = 1; });
    refused("O_lo's " + axis + " is 1; expected " + q + " as in Q; make the shapes agree",
            [i](P& p) { p.kept.o_lo.shape[i] = 1; });
  }
  refused("dO's data is null; expected a pointer; allocate it", [](P& p) { p.dout.data = nullptr; });
  refused("dK's data is null; expected a pointer; allocate it", [](P& p) { p.dk.data = nullptr; });
  refused("O's data is null; expected a pointer; allocate it", [](P& p) { p.o.data = nullptr; });
  refused("LSE's data is null; expected a pointer; run forward_training with LSE, or with m and l, first",
          [](P& p) { p.lse = p.kept.m = p.kept.l = nullptr; });
  refused("m is null; expected a pointer beside l; keep both or neither", [](P& p) { p.kept.m = nullptr; });
  refused("l is null; expected a pointer beside m; keep both or neither", [](P& p) { p.kept.l = nullptr; });
  refused("dV's last stride is 2; expected 1 (D contiguous); pass a contiguous copy", [](P& p) { p.dv.stride[3] = 2; });
  refused("dQ's stride of sequence length S is 0; expected at least 1; give each row its own memory",
          [](P& p) { p.dq.stride[2] = 0; });
  refused("dK's stride of number of heads H is 39; expected at least 40; give each row its own memory",
          [](P& p) { p.dk.stride[1] = 39; });
  refused("dV's stride of sequence length S is 7; expected at least 8; give each row its own memory",
          [](P& p) { p.dv.stride[2] = 7; });
  refused("scale is nan; expected a finite number; omit it for 1/sqrt(D)", [](P& p) { p.options.scale = NAN; });
  refused("block size is 48xany; expected one of 64x32, 32x64, 16x16; omit --block-q and --block-k",
          [](P& p) { p.options.block_q = 48; });

  // The forward pass writes what is kept: O's low bits need Q's shape and memory of their own.
  const auto forward_refused = [](const std::string& message, const auto& break_it) {
    GradientInputs<half> in({.B = 2, .H = 3, .Sq = 4, .Sk = 5, .D = 8});
    phase09::Kept kept = in.kept();
    break_it(kept);
    CHECK_THROWS_WITH_AS(phase09::forward_training(in.forward(), kept, Where::Sim), message.c_str(), Error);
    CHECK(is_poison(in.in.o.memory.data(), in.in.o.memory.size() * sizeof(half)));
    CHECK(is_poison(in.o_lo.memory.data(), in.o_lo.memory.size() * sizeof(std::int16_t)));
    CHECK(is_poison(in.in.lse.data(), in.in.lse.size() * sizeof(float)));
    CHECK(std::isnan(in.m[0]));
  };
  using K = phase09::Kept;
  for (int i = 0; i < 4; ++i)
    forward_refused("O_lo's " + std::string(axis_names[i]) + " is 1; expected " + std::array{"2", "3", "4", "8"}[i] +
                        " as in Q; make the shapes agree",
                    [i](K& kept) { kept.o_lo.shape[i] = 1; });
  forward_refused("O_lo's stride of sequence length S is 7; expected at least 8; give each row its own memory",
                  [](K& kept) { kept.o_lo.stride[2] = 7; });
  forward_refused("O_lo's stride of batch size B is 0; expected at least 1; give each row its own memory",
                  [](K& kept) { kept.o_lo.stride[0] = 0; });
  forward_refused("O_lo's last stride is 2; expected 1 (D contiguous); pass a contiguous copy",
                  [](K& kept) { kept.o_lo.stride[3] = 2; });
  forward_refused("m is null; expected a pointer beside l; keep both or neither", [](K& kept) { kept.m = nullptr; });
  forward_refused("l is null; expected a pointer beside m; keep both or neither", [](K& kept) { kept.l = nullptr; });

  GradientInputs<float> in({});
  GradientProblem<float> p = in.problem();
  p.kept.o_lo = in.o_lo.view;
  CHECK_THROWS_WITH_AS(phase09::backward(p, Where::Sim),
                       "O_lo is given; expected none for float32; omit it: O itself is precise enough", Error);
  CHECK_THROWS_WITH_AS(phase09::forward_training(in.forward(), {in.o_lo.view}, Where::Sim),
                       "O_lo is given; expected none for float32; omit it: O itself is precise enough", Error);
}
