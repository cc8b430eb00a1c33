// %% [markdown]
// # 09 · The backward pass
//
// **Question.** Training needs dQ, dK and dV. They are made of P, which we took such pains not to store. What now?
//
// **Idea.** Store two numbers per row, the m and l that online softmax ended with, and compute P again, tile by tile:
// P_ij = exp(S_ij − m_i) / l_i. Arithmetic is cheap, memory is not. With dO, the gradient of the loss for O,
//
//     dV = PᵀdO     dP = dO Vᵀ     δ_i = Σ_d dO_id O_id     dS = P ∘ (dP − δ)     dQ = scale·dS K     dK = scale·dSᵀQ
//
// **Changed since 08.** Five products where the forward pass has two; a second kernel with the loops in the other
// order; several threads per row; and a forward pass that keeps m, l and the bits of O that rounding would lose. The
// last third of this page is about those bits: without them dQ can be wrong by a quarter of its size.

// %%
#include "phases/09-backward/phase.hpp"

#include <bit>
#include <cstdio>

#include "phases/09-backward/naive.hpp"
#include "phases/common/cell.hpp"
#include "phases/common/example.hpp"
#include "phases/common/svg.hpp"

using namespace flash;
using phase09::Delta;
using phase09::GradientProblem;

// One head: inputs, what the forward pass left behind, room for gradients; and the exact gradients of the same inputs.
template <class T>
struct Lesson {
  std::int64_t N, D;
  std::vector<T> q, k, v, o, dout, dq, dk, dv;
  std::vector<std::int16_t> o_lo;
  std::vector<float> lse, m, l;
  RowMajor<double> Q, K, V, dO, dQ, dK, dV;  // fp64

  Lesson(std::int64_t N_, std::int64_t D_, Distribution distribution) : N(N_), D(D_) {
    const std::size_t n = static_cast<std::size_t>(N * D);
    for (auto* x : {&o, &dq, &dk, &dv}) x->resize(n);
    o_lo.resize(n);
    for (auto* x : {&lse, &m, &l}) x->resize(static_cast<std::size_t>(N));
    const auto fill = [&](std::vector<T>& x, RowMajor<double>& wide, std::uint32_t stream) {
      for (std::size_t i = 0; i < n; ++i) x.push_back(from_float<T>(draw(Random(9, stream), distribution, i)));
      wide = matrix(x);
    };
    fill(q, Q, 0), fill(k, K, 1), fill(v, V, 2), fill(dout, dO, 3);
    const phase09::ExactGradients exact = phase09::exact_gradients(backward());
    const auto exactly = [&](const std::vector<double>& x) {
      return Eigen::Map<const RowMajor<double>>(x.data(), N, D);
    };
    dQ = exactly(exact.dq), dK = exactly(exact.dk), dV = exactly(exact.dv);
  }

  RowMajor<double> matrix(const std::vector<T>& x) const {
    RowMajor<double> m(N, D);
    for (std::int64_t i = 0; i < N * D; ++i) m.data()[i] = to_float(x[static_cast<std::size_t>(i)]);
    return m;
  }
  Problem<T> forward() {
    const std::array<std::int64_t, 4> shape{1, 1, N, D};
    return {dense_view<const T>(q.data(), shape),
            dense_view<const T>(k.data(), shape),
            dense_view<const T>(v.data(), shape),
            dense_view(o.data(), shape),
            lse.data(),
            {}};
  }
  phase09::Kept kept(bool with_low_bits = true) {
    const bool low = sizeof(T) == 2 && with_low_bits;
    return {low ? dense_view(o_lo.data(), {1, 1, N, D}) : View<std::int16_t>{}, m.data(), l.data()};
  }
  GradientProblem<T> backward(bool with_low_bits = true) {
    const Problem<T> f = forward();
    const auto view = [&](auto& x) { return dense_view(x.data(), f.q.shape); };
    return {f.q, f.k, f.v, f.o, kept(with_low_bits), view(dout), view(dq), view(dk), view(dv), lse.data(), nullptr, {}};
  }
  double error_of_dq() const { return relative_error(matrix(dq), dQ); }
  double floor_of_dq() const {  // the best that T can hold
    RowMajor<double> rounded = dQ;
    for (std::int64_t i = 0; i < N * D; ++i)
      rounded.data()[i] = to_float(from_float<T>(static_cast<float>(dQ.data()[i])));
    return relative_error(rounded, dQ);
  }
};

// %% [markdown]
// ## The formulas, and the only judge that knows none of them
//
// Move one number of the input by ±h, run the forward pass twice, divide the difference of the losses by 2h: that is a
// derivative, and no formula was used. In fp64 with h = 10⁻⁵ it is good to about 10⁻⁹. docs/backward.md derives the
// formulas; the tests check each of them this way.

// %%
CELL("Formula against finite difference") {
  Lesson<float> lesson(6, 4, Distribution::Normal);
  const auto loss = [&] {  // L = Σ dO ∘ O, whose gradient with respect to O is dO
    const RowMajor<double> S = lesson.Q * lesson.K.transpose() * 0.5;
    return (lesson.dO.array() * (exact_softmax(S) * lesson.V).array()).sum();
  };
  double worst = 0;
  std::printf("            formula       difference\n");
  for (auto [name, input, gradient] :
       {std::tuple{"dQ", &lesson.Q, &lesson.dQ}, {"dK", &lesson.K, &lesson.dK}, {"dV", &lesson.V, &lesson.dV}})
    for (std::int64_t i = 0; i < 24; ++i) {
      const double h = 1e-5, before = input->data()[i];
      input->data()[i] = before + h;
      const double up = loss();
      input->data()[i] = before - h;
      const double down = loss();
      input->data()[i] = before;
      const double difference = (up - down) / (2 * h);
      if (i == 5) std::printf("%s[1][1]  %+.9f  %+.9f\n", name, gradient->data()[i], difference);
      worst = std::max(worst, std::abs(difference - gradient->data()[i]));
    }
  std::printf("largest distance of 72: %.1e\n", worst);
  expect(worst <= 1e-8, "dQ, dK and dV are right");
}

// %% [markdown]
// ## Two kernels, one for each direction
//
// dK and dV are sums over rows: a block keeps a K/V tile and Q passes by. dQ is a sum over keys: a block keeps a Q tile
// and K, V pass by. Both recompute S and dP, seven products in all. A single kernel could do with five, but then many
// blocks would add to the same row of dQ, in whatever order they come, and floating-point sums depend on the order.

// %%
CELL("Naive and tiled agree; the ledger does not") {
  Lesson<float> naive(128, 64, Distribution::Normal), tiled(128, 64, Distribution::Normal);
  const Ledger whole = phase09::naive_backward(naive.backward(), Delta::FromP);
  phase09::forward_training(tiled.forward(), tiled.kept(), Where::Sim);
  const Where where = was_built(Where::Checked) ? Where::Checked : Where::Sim;
  const Run run = phase09::backward(tiled.backward(), where);
  const RowMajor<double> naive_dq = naive.matrix(naive.dq), naive_dk = naive.matrix(naive.dk);
  expect(relative_error(tiled.matrix(tiled.dq), naive_dq) <= 5e-6 &&
             relative_error(tiled.matrix(tiled.dk), naive_dk) <= 5e-6,
         "the same dQ and dK");
  if (where == Where::Sim) return;
  std::printf("%-8s %14s %14s   [bytes read and written]\n", "", "naive", "tiled");
  for (const char* name : {"S", "P", "dP", "dS", "Q", "K", "V", "dO", "O", "m", "l", "delta", "dQ", "dK", "dV"}) {
    std::uint64_t bytes[2] = {};
    for (int i = 0; i < 2; ++i)
      for (const ArrayTraffic& a : (i ? run.ledger : whole).arrays)
        if (a.name == name) bytes[i] = a.read_bytes + a.written_bytes;
    std::printf("%-8s %14s %14s\n", name, grouped(bytes[0]).c_str(), grouped(bytes[1]).c_str());
  }
  const std::uint64_t square = 128 * 128 * 4;
  std::uint64_t matrices = 0;
  for (const ArrayTraffic& a : whole.arrays)
    if (a.name == "S" || a.name == "P" || a.name == "dP" || a.name == "dS") matrices += a.read_bytes + a.written_bytes;
  expect(matrices == 10 * square, "naive moves an N × N matrix ten times");
  const std::uint64_t row = 64 * 4, tiles_q = 2, tiles_k = 4;  // 64 rows of Q, 32 of K and V
  std::uint64_t q_bytes = 0, k_bytes = 0;
  for (const ArrayTraffic& a : run.ledger.arrays) {
    if (a.name == "Q") q_bytes = a.read_bytes;
    if (a.name == "K") k_bytes = a.read_bytes;
  }
  expect(q_bytes == 128 * row * (tiles_k + 1) && k_bytes == 128 * row * (tiles_q + 1),
         "tiled: Q passes once per K/V tile and once for dQ; K once per Q tile and once for dK");
}

CELL("Run twice: the same bits, or nearly the same") {
  Lesson<float> first(256, 32, Distribution::Normal), second(256, 32, Distribution::Normal);
  for (const phase09::Mode mode : {phase09::Mode::Deterministic, phase09::Mode::Atomic}) {
    MachineOptions forwards, backwards;
    backwards.order = Order::reverse;          // blocks and threads in another order, as a GPU might
    forwards.threads = backwards.threads = 1;  // so that this page prints the same numbers each time
    for (Lesson<float>* lesson : {&first, &second}) {
      phase09::forward_training(lesson->forward(), lesson->kept(), Where::Sim);
      phase09::backward(lesson->backward(), Where::Sim, lesson == &first ? forwards : backwards, mode);
    }
    int different = 0;
    for (std::size_t i = 0; i < first.dq.size(); ++i) different += first.dq[i] != second.dq[i];
    const double distance = relative_error(second.matrix(second.dq), first.matrix(first.dq));
    std::printf("%s: %s numbers of dQ differ, by %.1e of its size\n",
                mode == phase09::Mode::Atomic ? "one pass, atomic additions" : "two passes",
                different == 0 ? "no" : "some", distance);
    if (mode == phase09::Mode::Deterministic) expect(different == 0, "bit for bit");
    if (mode == phase09::Mode::Atomic) expect(distance <= 5e-6, "equal but for rounding");
  }
}

// %% [markdown]
// ## Why not LSE?
//
// Libraries keep one number per row, LSE = m + log l, and P = exp(S − LSE). In exact arithmetic that is the same P. In
// fp32 LSE is rounded by up to 2⁻²⁴ of its size, and exp makes a factor of that for the whole row. A row of P should
// sum to 1; dV shows P when dO is the unit matrix: dV = Pᵀ dO = Pᵀ.

// %%
CELL("A row of P sums to 1, or to what LSE makes of it") {
  constexpr std::int64_t N = 64;
  std::printf("logits near    from m and l    from LSE     [how far the worst row's sum is from 1]\n");
  double worst = 0, last_alone = 0;
  for (const float size : {1e1f, 1e3f, 1e4f, 1e6f}) {
    Lesson<float> lesson(N, N, Distribution::Normal);
    for (std::int64_t i = 0; i < N; ++i)  // the first column adds `size` to all logits
      lesson.q[i * N] = lesson.k[i * N] = std::sqrt(size * 8);
    for (std::int64_t i = 0; i < N * N; ++i) lesson.dout[i] = i / N == i % N ? 1.0f : 0.0f;
    phase09::forward_training(lesson.forward(), lesson.kept(), Where::Sim);
    double off[2];
    for (const bool lse_alone : {false, true}) {
      GradientProblem<float> p = lesson.backward();
      if (lse_alone) p.kept = {};
      phase09::backward(p, Where::Sim);
      off[lse_alone] = (lesson.matrix(lesson.dv).colwise().sum().array() - 1).abs().maxCoeff();
    }
    std::printf("%8.0e       %.1e         %.1e\n", size, off[0], off[1]);
    worst = std::max(worst, off[0]);
    last_alone = off[1];
  }
  expect(worst <= 1e-6, "with m and l rows sum to 1 at any logits");
  expect(last_alone > 1e-2, "LSE alone is off by per cents at 10⁶");
}

// %% [markdown]
// ## The story of δ
//
// Everything above is in every library. Now give Q, K, V and dO a mean, as activations often have: uniform numbers
// between 0 and 1, in bf16. Libraries compute δ = rowsum(dO ∘ O) from the O that they returned, rounded to 8 bits.

// %%
CELL("Fifteen per cent of dQ are noise") {
  std::printf("bf16, D = 64     floor     |  δ from rounded O    δ from P ∘ dP     δ from O with its low bits\n");
  svg::Line rounded{"δ from the rounded O", {}}, ours{"δ from O and its low bits", {}}, floor{"rounding dQ", {}};
  floor.dashed = true;
  double worst_ratio = 0, last_rounded = 0;
  for (const std::int64_t N : {128, 256, 512, 1024}) {
    Lesson<bfloat16> lesson(N, 64, Distribution::Uniform);
    phase09::forward_training(lesson.forward(), lesson.kept(), Where::Sim);
    phase09::backward(lesson.backward(false), Where::Sim);
    const double from_rounded = lesson.error_of_dq();
    phase09::naive_backward(lesson.backward(), Delta::FromP);
    const double from_p = lesson.error_of_dq();
    phase09::backward(lesson.backward(), Where::Sim);
    const double from_both = lesson.error_of_dq(), best = lesson.floor_of_dq();
    std::printf("N = %5d       %.2e   |  %.2e (%5.1f ×)   %.2e (%.2f ×)   %.2e (%.2f ×)\n", static_cast<int>(N), best,
                from_rounded, from_rounded / best, from_p, from_p / best, from_both, from_both / best);
    rounded.points.push_back({double(N), from_rounded});
    ours.points.push_back({double(N), from_both});
    floor.points.push_back({double(N), best});
    worst_ratio = std::max(worst_ratio, from_both / best);
    last_rounded = from_rounded / best;
  }
  expect(last_rounded > 50, "δ from the rounded O costs dQ more than 50 rounding errors");
  expect(worst_ratio <= 1.1, "with the low bits dQ is as good as bf16 can hold");
  picture("09-delta",
          svg::chart({"relative error of dQ, bf16, uniform[0,1), D = 64", "N", "error"}, {rounded, ours, floor}));
}

// %% [markdown]
// **Why.** dP_ij is a sum of 64 products of positive numbers: near 16, for all keys, and so is δ_i. What matters is
// their difference, near 1. If δ_i is wrong by ε_i, all of row i is wrong in the same direction, and dQ_i by
//
//     −scale · ε_i · Σ_j P_ij K_j
//
// a weighted *mean* of K, which is ½ in every column and does not get smaller with N. The true dQ_i is a covariance,
// which does. If that is the whole story, it predicts the error of dQ from ε alone:

// %%
CELL("The error, predicted") {
  Lesson<bfloat16> lesson(512, 64, Distribution::Uniform);
  phase09::forward_training(lesson.forward(), lesson.kept(), Where::Sim);
  phase09::backward(lesson.backward(false), Where::Sim);
  const RowMajor<double> P = exact_softmax(RowMajor<double>(lesson.Q * lesson.K.transpose() * 0.125));
  const RowMajor<double> rounding = lesson.matrix(lesson.o) - P * lesson.V;                // of O
  const Eigen::VectorXd epsilon = (lesson.dO.array() * rounding.array()).rowwise().sum();  // of δ
  const RowMajor<double> predicted = -0.125 * (epsilon.asDiagonal() * (P * lesson.K));
  const RowMajor<double> error = lesson.matrix(lesson.dq) - lesson.dQ;
  std::printf("‖error of dQ‖ = %.3e, ‖predicted‖ = %.3e, ‖their difference‖ = %.1e\n", error.norm(), predicted.norm(),
              (error - predicted).norm());
  std::printf("δ itself is off by %.1e of its size only\n",
              epsilon.norm() / (lesson.dO.array() * (P * lesson.V).array()).rowwise().sum().matrix().norm());
  expect((error - predicted).norm() <= 0.05 * error.norm(), "ε explains the error, all but 5 %");
}

CELL("Sixteen bits") {
  const float exact = 0.5017092f;
  const bfloat16 rounded = from_float<bfloat16>(exact);
  const auto low =
      static_cast<std::int16_t>(std::bit_cast<std::int32_t>(exact) - std::bit_cast<std::int32_t>(to_float(rounded)));
  const float restored = std::bit_cast<float>(std::bit_cast<std::int32_t>(to_float(rounded)) + low);
  std::printf("fp32 %.9f = bf16 %.9f and %d units of its last place: restored %.9f\n", exact, to_float(rounded), low,
              restored);
  expect(restored == exact, "O and O_lo together are the fp32 O");
  const std::uint64_t N = 8192, D = 128;
  std::printf("one head, N = %llu, D = %llu: O_lo is %s bytes; P would be %s\n", static_cast<unsigned long long>(N),
              static_cast<unsigned long long>(D), grouped(2 * N * D).c_str(), grouped(2 * N * N).c_str());
}

// %% [markdown]
// **What you saw.** Two bytes per number of O and nothing else: no extra product, and dQ is 100 times as precise where
// it matters. δ computed again from P and dP is as good, but costs two more matrix products.
//
// **Exercise.** 1. dS has rows that sum to 0. So dQ = scale · dS (K − c) for *any* row c: subtract the mean of K before
// the last product, and use the rounded O. How precise is dQ now? When does this trick not help (think of a causal
// mask, and of dLSE)? 2. Let the forward pass round P to bf16 before P·V, as phases 05-08 do, but keep O_lo: what does
// δ lose? Then divide by the sum of the rounded P. 3. Which of dQ, dK, dV changes if dO is constant?
