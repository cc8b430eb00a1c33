// %% [markdown]
// # 09 · The backward pass
//
// **Question.** Training needs dQ, dK and dV, the {term}`gradients <gradient>` of Q, K and V. Their formulas contain P,
// the very matrix that we took such pains not to store. What now?
//
// **Idea.** Store two numbers per row, the m and l that online softmax ended with, and compute P again, tile by tile:
// P_ij = exp(S_ij − m_i) / l_i. Arithmetic is cheap, memory is not.
//
// **The way.** First come the formulas with whole matrices, in six lines of Eigen. Then three kernels do the same in
// tiles: one for δ, a number per row that the formulas contain, one for dK and dV, and one for dQ. In the picture ∘
// multiplies element by element.
//
// **Changed since 08.** Five matrix products where the forward pass has two; a second kernel with the loops in the
// other order; several threads per row; and a forward pass that keeps m, l and the bits of O that rounding would lose.
// The last third of this page is about those bits: without them dQ is wrong by 15 % of its size in an example of 1024
// rows.

// %% tags=["hide-input"]
#include "phases/09-backward/phase.hpp"

#include <bit>
#include <cstdio>

#include "phases/09-backward/naive.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/exact.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

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
    const ExactGradients exact = exact_gradients(backward());
    dQ = exact.dq, dK = exact.dk, dV = exact.dv;
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

CELL("Five products, and what each sums over") {
  svg::Canvas canvas(760, 396, "The products of the backward pass: N rows, N keys, D columns");
  const double n = 48, d = 20;  // to scale with each other
  const auto shape = [&](double x, double y, bool rows_are_n, bool columns_are_n, const std::string& name) {
    const double w = columns_are_n ? n : d, h = rows_are_n ? n : d;
    canvas.rect(x, y - h / 2, w, h,
                std::string("fill=\"") + (rows_are_n && columns_are_n ? "#e4e4e4" : "#bcd9ee") + "\"");
    canvas.text(x + w / 2, y + 4, name, "text-anchor=\"middle\" font-size=\"11\"");
  };
  struct Product {
    const char *text, *then, *left, *right, *result, *sum, *loop;
  };
  const Product products[] = {
      {"S = scale · Q Kᵀ", "then P = softmax(S)", "Q", "Kᵀ", "S", "the columns d", "any pair of tiles"},
      {"dP = dO Vᵀ", "then dS = P ∘ (dP − δ)", "dO", "Vᵀ", "dP", "the columns d", "any pair of tiles"},
      {"dV = Pᵀ dO", "", "Pᵀ", "dO", "dV", "the rows i", "keys outside, rows inside"},
      {"dK = scale · dSᵀ Q", "", "dSᵀ", "Q", "dK", "the rows i", "keys outside, rows inside"},
      {"dQ = scale · dS K", "", "dS", "K", "dQ", "the keys j", "rows outside, keys inside"}};
  canvas.text(460, 52, "summed over", "fill=\"#666\"");
  canvas.text(570, 52, "loops of the kernel", "fill=\"#666\"");
  double y = 92;
  for (const auto& [text, then, left, right, result, sum, loop] : products) {
    const bool square = result[0] == 'S' || result[1] == 'P';
    canvas.text(16, y + (*then ? -2 : 4), text, "font-weight=\"bold\"");
    if (*then) canvas.text(16, y + 16, then, "fill=\"#666\"");
    shape(square ? 226 : 198, y, true, !square, left);
    canvas.text(256, y + 4, "·", "text-anchor=\"middle\"");
    shape(266, y, !square, square, right);
    canvas.text(square ? 326 : 300, y + 4, "=", "text-anchor=\"middle\"");
    shape(square ? 340 : 314, y, true, square, result);
    canvas.text(460, y + 4, sum);
    canvas.text(570, y + 4, loop);
    y += 62;
  }
  canvas.text(16, y - 18, "grey: N × N, never stored", "fill=\"#666\"");
  picture("09-products", canvas.str());
}

// %% [markdown]
// ## The formulas, with whole matrices
//
// L is the {term}`loss`, the number that training makes smaller, and dX stands for ∂L/∂X. dO comes from outside, from
// the layer that used O. One head, no mask. The forward pass was
//
// $$S = \mathrm{scale} \cdot Q K^\top \qquad P = \mathrm{softmax}(S) \text{, row by row} \qquad O = P V$$
//
// O is linear in V and in P. So the gradients of both are products of dO with the other factor:
//
// $$dV = P^\top \, dO \qquad dP = dO \, V^\top$$
//
// In a row of softmax every score changes every weight: ∂P_ij / ∂S_ik = P_ij (1[j = k] − P_ik), where 1[j = k] is 1 if
// j = k and 0 otherwise. The second term gives the same sum for all keys of the row, δ_i:
//
// $$dS_{ij} = P_{ij} \, (dP_{ij} - \delta_i) \qquad \delta_i = \sum_j P_{ij} \, dP_{ij}$$
//
// And S is linear in Q and in K:
//
// $$dQ = \mathrm{scale} \cdot dS \, K \qquad dK = \mathrm{scale} \cdot dS^\top \, Q$$
//
// The next cell is this in Eigen. `exact_gradients` in `phases/pages/exact.cpp` is the same program with masks. The
// gradients below are compared with one of the two.

// %%
struct Matrices {
  RowMajor<double> P, O, dP, dS, dQ, dK, dV;
  Eigen::VectorXd delta;
};

template <class T>
static Matrices backward_with_matrices(const Lesson<T>& x, double scale) {
  Matrices m;
  m.P = exact_softmax(x.Q * x.K.transpose() * scale);
  m.O = m.P * x.V;
  m.dV = m.P.transpose() * x.dO;
  m.dP = x.dO * x.V.transpose();
  m.delta = (m.P.array() * m.dP.array()).rowwise().sum();
  m.dS = m.P.array() * (m.dP.colwise() - m.delta).array();
  m.dQ = scale * m.dS * x.K;
  m.dK = scale * m.dS.transpose() * x.Q;
  return m;
}

CELL("Six lines of Eigen") {
  const Lesson<float> lesson(50, 32, Distribution::Normal);
  const Matrices m = backward_with_matrices(lesson, 1 / std::sqrt(32.0));
  const double dq = relative_error(m.dQ, lesson.dQ), dk = relative_error(m.dK, lesson.dK),
               dv = relative_error(m.dV, lesson.dV);
  std::printf("difference to exact_gradients: dQ %.1e, dK %.1e, dV %.1e\n", dq, dk, dv);
  expect(dq <= 1e-6 && dk <= 1e-6 && dv <= 1e-6, "the program of this page and exact.cpp agree");
  const double row_sum = m.dS.rowwise().sum().array().abs().maxCoeff();
  std::printf("largest sum of a row of dS: %.1e\n", row_sum);
  expect(row_sum <= 1e-12, "a row of dS sums to 0: adding a number to all scores of a row changes nothing");
}

// %% [markdown]
// ## A judge that knows no formula
//
// Change one number of the input by ±h, run the forward pass twice, and divide the difference of the losses by 2h. That
// gives the derivative without any formula ({term}`finite difference`). In fp64 with h = 10⁻⁵ it is accurate to about
// 10⁻⁹. The tests check each formula in this way; docs/backward.md derives them.

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
// ## δ, without P
//
// δ_i is a sum over the keys, of products from two N × N matrices. But there is another way to write it:
//
// $$\delta_i = \sum_j P_{ij} \, dP_{ij} = \sum_j P_{ij} \sum_d dO_{id} V_{jd} = \sum_d dO_{id} \sum_j P_{ij} V_{jd}$$
// $$= \sum_d dO_{id} O_{id}$$
//
// This is a sum of D products of numbers from two arrays that exist anyway. That is why P need not be stored: δ comes
// from O, and P is computed again from m and l.
//
// ```{exercise} 09.1
// ```

// %%
CELL("Two sums, one delta") {
  const Lesson<float> lesson(50, 32, Distribution::Normal);
  const Matrices m = backward_with_matrices(lesson, 1 / std::sqrt(32.0));
  const Eigen::VectorXd from_o = (lesson.dO.array() * m.O.array()).rowwise().sum();
  std::printf("row 0: Σ_j P dP = %.9f\n       Σ_d dO O = %.9f\n", m.delta[0], from_o[0]);
  expect((from_o - m.delta).norm() <= 1e-12 * m.delta.norm(), "δ from N² numbers equals δ from N·D");
}

// %% [markdown]
// The kernel for it gives each row to a warp. Lane n takes the columns n, n + 32, …, so that neighbouring lanes load
// neighbouring numbers. Then the 32 sums are added up by `__shfl_xor_sync`, a *shuffle*: each lane gets the value of
// the lane whose number differs in one bit. After five rounds, with distances 16, 8, 4, 2 and 1, every lane has the
// whole sum. No shared memory and no barrier is needed:
//
// ```{region} attention.cuh delta
// ```
//
// `O_lo` and `restore` are the subject of the last third of this page. All kernels get their arrays in one struct. In
// it dLSE is the gradient of LSE, for callers that used LSE in the loss:
//
// ```{region} attention.cuh arguments
// ```
//
// ## dK and dV: a block keeps a K/V tile
//
// dV_j = Σ_i P_ij dO_i and dK_j are sums over *rows*. So the outer loop goes over the keys, as in phase 03: a block
// owns a K/V tile, keeps its dK and dV in registers, and the Q tiles pass by. For each pair of tiles it computes S and
// dP, from them P and dS, and adds the products with dO and Q to its sums. dQ, which comes further below, needs the
// loops of the forward pass. The picture shows the order in which the two kernels visited the tiles of S:

// %% tags=["hide-input"]
// The kernels' gradients of a lesson, on the machine that sees most.
static const Where watched = was_built(Where::Checked) ? Where::Checked : Where::Sim;
static Run run_kernels(Lesson<float>& lesson) {
  phase09::forward_training(lesson.forward(), lesson.kept(), Where::Sim);
  return phase09::backward(lesson.backward(), watched);
}
static ArrayTraffic traffic(const Ledger& ledger, const std::string& name) {
  for (const ArrayTraffic& a : ledger.arrays)
    if (a.name == name) return a;
  return {};
}

CELL("Which loop is outside") {
  Lesson<float> lesson(192, 64, Distribution::Normal);
  phase09::forward_training(lesson.forward(), lesson.kept(), Where::Sim);
  MachineOptions options;
  options.trace = "memory";
  const Run run = phase09::backward(lesson.backward(), Where::Sim, options);
  const int rows = 3, columns = 6, wide = 44, high = 62;  // tiles of 64 rows and 32 keys
  static constexpr const char* colours[] = {"#bcd9ee", "#f2b36b", "#9fd8c4", "#e3b7d0", "#e8d27a", "#c9c9c9"};
  svg::Canvas canvas(760, 356, "192 rows and keys: a colour is a block, a number its step");
  std::size_t visits = 0;
  bool in_order = true;
  for (const std::size_t launch : {1u, 2u}) {
    const bool keys = launch == 1;
    const double x0 = keys ? 66 : 412, y0 = 96;
    canvas.text(x0, 54, keys ? "dK and dV: keys outside" : "dQ: rows outside", "font-weight=\"bold\"");
    for (int j = 0; j < columns; ++j)
      canvas.text(x0 + wide * (j + 0.5), y0 - 8, "K V " + std::to_string(j + 1),
                  "text-anchor=\"middle\" font-size=\"11\"");
    for (int i = 0; i < rows; ++i)
      canvas.text(x0 - 8, y0 + high * (i + 0.5) + 4, "Q " + std::to_string(i + 1),
                  "text-anchor=\"end\" font-size=\"11\"");
    std::vector<int> step(6, 0);  // of each block
    for (const TraceEvent& event : run.trace) {
      if (event.launch != launch || event.name != "tile" || event.warp != 0) continue;
      const int block = int(event.block[0]), tile = int(event.value), i = keys ? tile : block, j = keys ? block : tile;
      in_order = in_order && tile == step[std::size_t(block)];
      canvas.rect(x0 + wide * j, y0 + high * i, wide, high,
                  std::string("stroke=\"white\" stroke-width=\"2\" fill=\"") + colours[block] + "\"");
      canvas.text(x0 + wide * (j + 0.5), y0 + high * (i + 0.5) + 4, std::to_string(++step[std::size_t(block)]),
                  "text-anchor=\"middle\"");
      ++visits;
    }
    for (int b = 0; b < (keys ? columns : rows); ++b) {  // where a block's sums go
      const double x = keys ? x0 + wide * b : x0 + wide * columns + 26,
                   y = keys ? y0 + high * rows + 26 : y0 + high * b;
      if (keys)
        canvas.arrow(x + wide / 2, y - 24, x + wide / 2, y - 3, "#222", 1);
      else
        canvas.arrow(x - 24, y + high / 2, x - 3, y + high / 2, "#222", 1);
      canvas.rect(x + 1, y + 1, wide - 2, (keys ? 34 : high) - 2, std::string("fill=\"") + colours[b] + "\"");
      canvas.text(x + wide / 2, y + (keys ? 15 : high / 2 + 4), keys ? "dK" : "dQ",
                  "text-anchor=\"middle\" font-size=\"11\"");
      if (keys) canvas.text(x + wide / 2, y + 28, "dV", "text-anchor=\"middle\" font-size=\"11\"");
    }
  }
  picture("09-loops", canvas.str());
  expect(visits == 2 * rows * columns && in_order,
         "each kernel visits each pair of tiles once, a block its own in order");
}

// %% [markdown]
// A row of dK and one of dV at D = 128 are 256 numbers, more than the 255 registers of a thread. So several threads
// share a key, each with 32 of its columns:
//
// ```{region} attention.cuh columns
// ```
//
// P and dS of the pair of tiles lie in shared memory, since each thread needs the elements that others computed:
//
// ```{region} attention.cuh tiles
// ```
//
// ```{region} attention.cuh keys-head
// ```
//
// The loop begins at the first Q tile that sees one of the keys. Each row of Q brings its dO, m, 1 / l and δ:
//
// ```{region} attention.cuh keys-loop
// ```
//
// ```{region} attention.cuh row-scale
// ```
//
// S and dP are computed together, since both go over the same columns. P is computed by exactly the operations of the
// forward pass:
//
// ```{region} attention.cuh two-products
// ```
//
// ```{region} attention.cuh p-again
// ```
//
// ```{region} attention.cuh keys-p-and-ds
// ```
//
// After the barrier a thread walks down its key's column of P and dS and adds up rows of dO and Q. The mask is where
// this loop begins:
//
// ```{region} attention.cuh keys-sums
// ```
//
// ```{region} attention.cuh add-row
// ```
//
// ```{region} attention.cuh keys-store
// ```

// %%
CELL("dK and dV") {
  Lesson<float> lesson(128, 64, Distribution::Normal);
  const Run run = run_kernels(lesson);
  const Matrices m = backward_with_matrices(lesson, 0.125);
  const double dk = relative_error(lesson.matrix(lesson.dk), m.dK), dv = relative_error(lesson.matrix(lesson.dv), m.dV);
  std::printf("against the whole matrices: dK %.1e, dV %.1e\n", dk, dv);
  expect(dk <= 5e-6 && dv <= 5e-6, "the tiles add up to the products of whole matrices");
  for (const KernelReport& kernel : run.kernels)
    std::printf("%-45s %3u blocks of %u threads\n", kernel.kernel.c_str(), kernel.grid[0], kernel.block[0]);
  expect(run.kernels.size() == 3 && run.kernels[1].grid[0] == 128 / 32 && run.kernels[1].block[0] == 2 * 32,
         "the second kernel: a block for each K/V tile of 32 keys, two threads for each key");
}

// %% [markdown]
// ## dQ: a block keeps a Q tile
//
// dQ_i = scale · Σ_j dS_ij K_j is a sum over *keys*, as O was. So the third kernel has the loops of the forward pass: a
// block owns a Q tile, and K and V pass by. It has to compute S and dP a second time:
//
// ```{region} attention.cuh rows-head
// ```
//
// ```{region} attention.cuh rows-loop
// ```
//
// ```{region} attention.cuh rows-ds
// ```
//
// ```{region} attention.cuh rows-sum
// ```
//
// The host launches the three kernels one after the other. A launch begins when the one before has ended, so δ is
// there:
//
// ```{region} attention.cuh host
// ```
//
// ```{question}
// The naive backward pass has S, P, dP and dS as whole matrices. How many times does an N × N matrix go to HBM or come
// back? The tiled version moves none of them. Which of the small arrays pass more than once instead?
// ```

// %%
CELL("Naive and tiled agree; the ledger does not") {
  Lesson<float> naive(128, 64, Distribution::Normal), tiled(128, 64, Distribution::Normal);
  const Ledger whole = phase09::naive_backward(naive.backward(), Delta::FromP);
  const Run run = run_kernels(tiled);
  const RowMajor<double> naive_dq = naive.matrix(naive.dq), naive_dk = naive.matrix(naive.dk);
  expect(relative_error(tiled.matrix(tiled.dq), naive_dq) <= 5e-6 &&
             relative_error(tiled.matrix(tiled.dk), naive_dk) <= 5e-6,
         "the same dQ and dK");
  if (!run.counted) return;
  std::printf("%-8s %14s %14s   [bytes read and written]\n", "", "naive", "tiled");
  for (const char* name : {"S", "P", "dP", "dS", "Q", "K", "V", "dO", "O", "m", "l", "delta", "dQ", "dK", "dV"}) {
    std::uint64_t bytes[2];
    for (int i = 0; i < 2; ++i) {
      const ArrayTraffic a = traffic(i ? run.ledger : whole, name);
      bytes[i] = a.read_bytes + a.written_bytes;
    }
    std::printf("%-8s %14s %14s\n", name, grouped(bytes[0]).c_str(), grouped(bytes[1]).c_str());
  }
  const std::uint64_t square = 128 * 128 * 4;
  std::uint64_t matrices = 0;
  for (const char* name : {"S", "P", "dP", "dS"})
    matrices += traffic(whole, name).read_bytes + traffic(whole, name).written_bytes;
  expect(matrices == 10 * square, "naive moves an N × N matrix ten times");
  const std::uint64_t row = 64 * 4, tiles_q = 2, tiles_k = 4;  // 64 rows of Q, 32 of K and V
  expect(traffic(run.ledger, "Q").read_bytes == 128 * row * (tiles_k + 1) &&
             traffic(run.ledger, "K").read_bytes == 128 * row * (tiles_q + 1),
         "tiled: Q passes once per K/V tile and once for dQ; K once per Q tile and once for dK");
}

// %% [markdown]
// ```{answer}
// Ten times: each of the four is written once, S and dP are read once, P and dS twice. In the tiled version Q and dO
// pass once for each K/V tile and once more for dQ, and dO passes a further time for δ. K and V pass once for each Q
// tile and once more for dK and dV.
// ```
//
// ## One pass instead of two
//
// S and dP are computed twice: seven products in all. A single kernel could make do with five, if the blocks of dK and
// dV also added their share to dQ. But then many blocks add to the same row, and they have to do it with `atomicAdd`
// (an addition that no other thread can interrupt), in whatever order they come. Floating-point sums depend on the
// order:
//
// ```{region} attention.cuh keys-add-dq
// ```
//
// ```{region} attention.cuh finish
// ```
//
// ```{exercise} 09.2
// ```

// %%
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
// fp32, LSE is rounded by up to 2⁻²⁴ of its size, and exp turns that into a factor on the whole row. So the forward
// pass of this phase keeps m and l apart. This is what it stores beyond phase 08's, together with the low bits of O:
//
// ```{difference} ../08-lse/attention.cuh forward.cuh
// ```
//
// A row of P should sum to 1. dV shows P when dO is the unit matrix: dV = Pᵀ dO = Pᵀ.
//
// ```{question}
// At logits near 10⁶ fp32 still has seven digits. How far from 1 is the sum of a row of P, if P is computed from LSE?
// ```

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
  expect(last_alone > 1e-2, "LSE alone is off by more than 1 % at 10⁶");
}

// %% [markdown]
// ```{answer}
// By several per cent. Neighbouring fp32 numbers near 10⁶ are a sixteenth apart. LSE is rounded to one of them, and
// what is an absolute error of the exponent is a relative error of P. m is itself one of the scores, so S − m is exact
// for those that count.
// ```
//
// ## The story of δ
//
// Libraries compute δ_i = Σ_d dO_id O_id from the O that they returned, which in {term}`bf16` is rounded to 8 bits. Is
// that good enough? Activations, the outputs of a network's layers, often have a mean that is not 0. So let Q, K, V and
// dO be uniform numbers between 0 and 1, in bf16. The *floor* in the table is the error of the exact dQ after rounding
// to bf16: no result in bf16 can be better.

// %%
CELL("Fifteen per cent of dQ is noise") {
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
  expect(rounded.points.back()[1] > 0.15, "δ from the rounded O: 15 % of dQ at N = 1024");
  expect(last_rounded > 50, "more than 50 times the error of rounding dQ itself");
  expect(worst_ratio <= 1.1, "with the low bits dQ is as good as bf16 can hold");
  picture("09-delta",
          svg::chart({"relative error of dQ, bf16, uniform[0,1), D = 64", "N", "error"}, {rounded, ours, floor}));
}

// %% [markdown]
// **Why.** dP_ij is a sum of 64 products of positive numbers: near 16, for all keys, and so is δ_i. What matters is
// their difference, near 1. If δ_i is wrong by ε_i, all of row i is wrong in the same direction, and dQ_i by
//
// $$-\mathrm{scale} \cdot \varepsilon_i \cdot \sum_j P_{ij} K_j$$
//
// The sum is a weighted *mean* of K. It is near ½ in every column and does not get smaller with N. The true dQ_i is a
// {term}`covariance`, which does. If that is the whole story, ε alone predicts the error of dQ:

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
  std::printf("δ itself is off by only %.1e of its size\n",
              epsilon.norm() / (lesson.dO.array() * (P * lesson.V).array()).rowwise().sum().matrix().norm());
  expect((error - predicted).norm() <= 0.05 * error.norm(), "ε explains the error to within 5 %");
}

// %% [markdown]
// So δ needs O as it was before it was rounded. The forward pass has it in fp32. `O_lo` keeps what rounding took away:
// the distance from the rounded number to the exact one, in units of fp32's last place, in 16 bits. `restore` adds it
// again.

// %%
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
// **What you saw.** In this example two bytes for each number of O make dQ 30 to 92 times as precise, without any
// further matrix product. δ computed from P and dP is as good, but costs two more matrix products.
//
// **To think about.** 1. dS has rows that sum to 0. So dQ = scale · dS (K − c) for *any* row c: subtract the mean of K
// before the last product, and use the rounded O. How precise is dQ now? When does this trick not help (think of a
// causal mask, and of dLSE)? 2. Let the forward pass round P to bf16 before P·V, as phases 05 to 08 do, but keep O_lo:
// what does δ lose? Then divide by the sum of the rounded P. 3. Let all keys be equal. Which of dQ, dK and dV is 0, and
// what do the kernels return for it, if δ comes from the rounded O?
//
// <details><summary>Answers</summary>
//
// The figures are for the example above (bf16, uniform, N = 1024, D = 64), with everything else in fp64.
//
// 1. 0.19 % of its size instead of 15 %; rounding dQ to bf16 costs 0.17 %. What is left of ε_i is multiplied by the
// difference of two means of K, which is small. Under a causal mask it is 0.34 % instead of 7.6 %: rows that see few
// keys have a mean of their own, and one c cannot serve them all. With dLSE a row of dS sums to dLSE_i and not to 0, so
// that scale · dLSE_i · c must be added again.
//
// 2. l sums weights that are not rounded, so that O is off by a factor for each row. δ is off by only 6·10⁻⁵ of its
// size, but all of a row in the same direction, and dQ is off by 3.4 %. Divided by the sum of the rounded P, O is again
// a mean of V, and dQ is off by 0.29 %.
//
// 3. dQ: it is dS times a matrix with equal rows, and a row of dS sums to 0. With the rounded O the sum is −ε_i, and
// what comes out is −scale · ε_i times the key: of size 0.04 in this example, where that of dK is 19. The other two are
// not 0.
//
// </details>
