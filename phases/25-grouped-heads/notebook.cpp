// %% [markdown]
// # 25 · Grouped heads
//
// **Question.** Up to here each head of Q had a head of K and V of its own. Most models of today have fewer of them: 32
// heads of Q share 8 of K and V, say. What a model keeps of the tokens before, its K/V cache, is a quarter as large
// then. The fastest kernels of this course took hundreds of lines each. What must change in them?
//
// **Idea.** Nothing of the arithmetic. A head of Q meets keys and values as before; they only lie somewhere else. So a
// kernel should not compute where a head lies. It should *ask*, and whoever launches it brings the answer.
//
// **Changed since 13 and 19.** Their kernels take a *variant* where they took a band: which keys a row sees, and where
// a head's rows and keys lie. The plain variant answers what the kernels did by themselves before, and costs nothing:
// the machine code for Hopper is the same, byte for byte. Grouped heads are another variant, of one function.

// %% tags=["hide-input"]
#include "phases/25-grouped-heads/phase.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include "phases/arrays/tensor.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/counted.hpp"
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

using namespace flash;

// Heads of Q that share heads of K and V, and room for O and for gradients.
template <class T>
struct Lesson {
  Tensor<T> q, k, v, o, dout, dq, dk, dv;
  std::vector<float> m, l;

  Lesson(std::int64_t H, std::int64_t Hk, std::int64_t N, std::int64_t D, std::int64_t Dv)
      : q(random_tensor<T>({1, H, N, D}, 25, 0)),
        k(random_tensor<T>({1, Hk, N, D}, 25, 1)),
        v(random_tensor<T>({1, Hk, N, Dv}, 25, 2)),
        o(make_tensor<T>({1, H, N, Dv})),
        dout(random_tensor<T>({1, H, N, Dv}, 25, 3)),
        dq(make_tensor<T>({1, H, N, D})),
        dk(make_tensor<T>({1, Hk, N, D})),
        dv(make_tensor<T>({1, Hk, N, Dv})),
        m(static_cast<std::size_t>(H * N)),
        l(m) {}
  Lesson(std::int64_t H, std::int64_t Hk, std::int64_t N, std::int64_t D) : Lesson(H, Hk, N, D, D) {}
  Problem<T> problem(const Options& options = {}) {
    return {view(std::as_const(q)), view(std::as_const(k)), view(std::as_const(v)), view(o), nullptr, options};
  }
  // The forward pass for training, then dQ, dK and dV.
  Run gradients(const Phase& phase, Where where, BackwardMode mode = BackwardMode::Deterministic) {
    Kept kept;
    kept.m = m.data(), kept.l = l.data();
    forward_training(phase, problem(), kept);
    const Problem<T> p = problem();
    return backward(
        phase,
        GradientProblem<T>{
            p.q, p.k, p.v, p.o, kept, view(std::as_const(dout)), view(dq), view(dk), view(dv), nullptr, nullptr, {}},
        where, {}, mode);
  }
};

// %% [markdown]
// ## A kernel that asks
//
// The plain variant is a band (phase 07) that says where things lie, too. A kernel asks it three questions:
//
// - `band.end(i)`: how many keys does row i see?
// - `band.rows(head, H, i)`: where is row i of this head, in Q and in O?
// - `band.keys(head, H, j)`: where is key j that it meets, in K and in V?
//
// ```{region} ../interface/variant.cuh variant
// ```
//
// In phases 18 and 19 the answers go to TMA, as coordinates of a box: Q's where the drawing thread fills the ring, O's
// where a tile is stored. K's and V's are asked for once for each Q tile, by the thread that loads them:
//
// ```{region} ../17-persistent/schedule.cuh keys
// ```
//
// In phase 13 each block asks once, and then has the pointers of its heads:
//
// ```{region} ../13-instruction-diet/attention.cuh grid
// ```
//
// A variant comes by value, as a type that the compiler knows. Nothing is looked up while the kernel runs, and a
// variant without an answer of its own has none of its own in the machine code. Later phases bring other answers:
// windows, packed sequences, what becomes of a score.
//
// ## Another answer
//
// With H heads of Q and Hk of K, H / Hk neighbours share a head: a *group*. Heads 0 to 3 of 32 read head 0 of 8, heads
// 4 to 7 read head 1. That is the whole variant:
//
// ```{region} grouped.cuh grouped
// ```
//
// ```{exercise} 25.1
// ```
//
// A phase that has it launches the old kernels with the new variant, and declares what it can do now:
//
// ```{region} attention.cuh launch
// ```
// ```{region} phase.hpp features
// ```
//
// ## Who shares what
//
// Eight heads of Q with 64 rows each, and 64 keys. Each row of a picture is a head of Q, each column a tile of 16 keys
// of a head of K. A cell is coloured where the blocks of the head were recorded to copy from the tile.

// %% tags=["hide-input"]
// Of each head of Q the tiles of K that its blocks copy, as recorded: 16 keys each, counted through all heads of K.
static std::vector<std::set<int>> recorded_tiles(int H, int Hk) {
  constexpr int N = 64, D = 64, Br = 32, Bc = 16;
  Lesson<half> lesson(H, Hk, N, D);
  Recording run;
  phase25m::forward(lesson.problem({.block_q = Br, .block_k = Bc}), Where::Checked, {.threads = 1, .recording = &run});
  std::vector<std::set<int>> tiles(static_cast<std::size_t>(H));
  for (const Recording::Step& step : run.steps)
    for (const Recording::Part& part : step.parts) {
      if (part.kind != Recording::Kind::copy || run.arrays[std::size_t(part.source)].name != "K") continue;
      const std::size_t head = step.block / (N / Br);
      for (const Recording::Span& span : part.from) tiles[head].insert(int(span.first / (Bc * D * sizeof(half))));
    }
  return tiles;
}

CELL("Which heads load which tiles") {
  if (!counts()) return;
  constexpr int H = 8, kTiles = 4;  // of a head of K
  static constexpr const char* colours[] = {"#9ec9e6", "#f2b96b", "#7fc8a9", "#d9b3d0",
                                            "#8fb0d9", "#e6a08a", "#b6d48a", "#c9b28f"};
  svg::Canvas canvas(760, 250, "Which tiles of K each head of Q loads: 8, 2 and 1 heads of K");
  bool as_told = true;
  double left = 66;
  std::printf("heads of K   tiles of K   loads by heads of Q   heads that load a tile\n");
  for (const int Hk : {8, 2, 1}) {
    const std::vector<std::set<int>> tiles = recorded_tiles(H, Hk);
    const double cell = Hk == 8 ? 11 : 22, high = 20;
    canvas.text(left, 54, std::to_string(Hk) + (Hk > 1 ? " heads of K" : " head of K"), "font-weight=\"bold\"");
    std::size_t loads = 0;
    for (int h = 0; h < H; ++h) {
      loads += tiles[std::size_t(h)].size();
      if (Hk == 8) canvas.text(16, 79 + high * h, "Q " + std::to_string(h), "fill=\"#666\"");
      for (int tile = 0; tile < Hk * kTiles; ++tile) {
        const bool loaded = tiles[std::size_t(h)].count(tile) > 0;
        as_told = as_told && loaded == (tile / kTiles == h / (H / Hk));
        canvas.rect(left + cell * tile, 64 + high * h, cell - 1, high - 2,
                    std::string("fill=\"") + (loaded ? colours[tile / kTiles] : "#eeeeee") + "\"");
      }
    }
    std::printf("%10d %12d %21zu %24zu\n", Hk, Hk * kTiles, loads, loads / std::size_t(Hk * kTiles));
    left += cell * Hk * kTiles + 36;
  }
  canvas.text(66, 242, "Each column is a tile of 16 keys; each colour is a head of K.", "fill=\"#666\"");
  picture("25-shared-tiles", canvas.str());
  expect(as_told, "head h of Q loads the tiles of head h / (H / Hk) of K, and no others");
}

// %% [markdown]
// Every head of Q still loads four tiles. What has become less is K itself: with two heads of K there are 8 tiles in
// place of 32, and each is loaded by four heads of Q.
//
// ```{question}
// N = 256, D = 64, 8 heads of Q, 2 of K and V, 16 bits, no mask; Q tiles of 256 rows. How many bytes has K, and how
// many does phase 25 ask for? And phase 19, with 8 heads of K?
// ```

// %% tags=["hide-input"]
CELL("What is asked for, and what there is") {
  if (!counts()) return;
  constexpr std::uint64_t N = 256, D = 64, H = 8;
  bool same = true;
  for (const std::uint64_t Hk : {8, 2, 1}) {
    Lesson<half> lesson(H, std::int64_t(Hk), N, D);
    const Problem<half> p = lesson.problem({.block_q = 256, .block_k = 64});
    const Run run = phase25::forward(p, machine);
    Ledger l = run.ledger;
    std::printf("%d heads of K, which has %s bytes\n", int(Hk), grouped(Hk * N * D * 2).c_str());
    same &= equal(l.array("K").read_bytes, H * N * D * 2, "  bytes of K asked for");
    const HbmBytes formula = phase25::features.hbm_bytes(p, run.blocks);
    same &= equal(l.hbm_read_bytes(), formula.read, "  all bytes read, by the formula");
    same &= equal(l.hbm_written_bytes(), formula.written, "  all bytes written, likewise");
  }
  expect(same, "predicted = counted");
}

// %% [markdown]
// ```{answer}
// K has 65,536 bytes with two heads; with eight it has 262,144. Phase 25 asks for 262,144 in either case, as phase 19
// does: each head of Q has a Q tile, and each Q tile goes through all of its keys.
// ```
//
// So the kernel moves as much from the L2 cache into shared memory as before. What it saves is HBM, if a group's tiles
// meet in the cache: there each byte of K and V has to come once, for all heads that share it. Blocks draw Q tiles head
// by head, so a group's heads are at work at the same time. With a causal mask phases 17 to 19 draw heads in
// *sections*, as many heads as have K and V in 32 MB. Those are heads of K: with groups a section has H / Hk times as
// many heads of Q.
//
// Where there are few rows, there is more to win. A model that writes text has one new query for each head, and a Q
// tile that is nearly empty. There a group's queries can be the rows of one tile:
//
// ```{exercise} 25.2
// ```
//
// ## The same bits
//
// A kernel whose arithmetic is the same must compute the same bits, if K and V are written out once for each head of Q
// and the phase before is asked:

// %% tags=["hide-input"]
CELL("Repeated and shared") {
  constexpr std::int64_t H = 6, Hk = 2, N = 150, D = 64;
  Lesson<bfloat16> shared(H, Hk, N, D), repeated(H, H, N, D);
  for (const auto pair : {&Lesson<bfloat16>::k, &Lesson<bfloat16>::v})
    for (std::int64_t h = 0; h < H; ++h)
      std::copy_n((shared.*pair).data() + h / (H / Hk) * N * D, N * D, (repeated.*pair).data() + h * N * D);
  const std::size_t bytes = std::size_t(H * N * D) * sizeof(bfloat16);
  bool same = true;
  for (const bool on_hopper : {true, false}) {
    const Phase &now = on_hopper ? phase25::phase : phase25m::phase,
                &before = on_hopper ? phase19::phase : phase13::phase;
    for (const Mask& mask : {Mask::none(), Mask::top_left()}) {
      forward(now, shared.problem({.mask = mask}));
      forward(before, repeated.problem({.mask = mask}));
      const bool equal = std::memcmp(shared.o.data(), repeated.o.data(), bytes) == 0;
      std::printf("%-17s beside %-21s %-9s %s\n", now.name, before.name, name(mask),
                  equal ? "same bits" : "other bits");
      same = same && equal;
    }
  }
  expect(same, "O of shared heads is O of repeated heads, bit for bit");
}

// %% [markdown]
// `25m-grouped-heads` is phase 13's kernel with the same variant, for GPUs without Hopper's instructions and for
// tensors that TMA cannot copy:
//
// ```{region} mma.cuh launch-mma
// ```
//
// ## Values of another width
//
// Rows of V, and so of O, need not be as long as those of Q and K. Some models have 192 columns for the scores and 128
// for the values. A kernel of this course is made for one size, 64, 128 or 256, and pads what is narrower with zeros
// that TMA writes. Here it is made for the wider of the two. That is right for every pair up to 256, and not always
// cheap.
//
// ```{question}
// Products have 2 · D floating-point operations for a score, and 2 · Dv for its share of O. How many times as many does
// a kernel of size 256 make for D = 192 and Dv = 128 as the problem asks for?
// ```

// %% tags=["hide-input"]
CELL("What padding costs") {
  if (!counts()) return;
  constexpr std::int64_t N = 128;
  bool same = true;
  for (const auto& [D, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 64}, {64, 128}, {128, 64}, {192, 128}}) {
    Lesson<half> lesson(2, 1, N, D, Dv);
    const Run run = phase25::forward(lesson.problem(), machine);
    const auto asked = std::uint64_t(2 * N * N * 2 * (D + Dv)), size = std::uint64_t(std::max(D, Dv) > 128 ? 256 : 128);
    const std::uint64_t made = std::max(D, Dv) == 64 ? asked : std::uint64_t(2 * N * N * 2) * 2 * size;
    std::printf("D %3d, Dv %3d: %10s asked for, %.2f times as many are made\n", int(D), int(Dv), grouped(asked).c_str(),
                double(made) / double(asked));
    if (std::max(D, Dv) > 64) same &= equal(run.ledger.tensor_flops, made, "  floating-point operations");
  }
  expect(same, "predicted = counted");
}

// %% [markdown]
// ```{answer}
// 2 · 256 columns in place of 192 + 128: 1.60 times as many.
// ```
//
// ## Gradients: who adds up?
//
// A key that four heads of Q meet has a gradient from each of them, and dK is their sum. If each head's block added its
// share in HBM, the order would be that in which blocks come. But a block of the backward pass owns a K/V tile, and
// goes through the Q tiles with dK and dV in registers. It simply goes on: in phase 20 through the Q tiles of the
// group's first head, then through those of the next one. `band.group` tells how many there are, and is 1 in the plain
// variant:
//
// ```{region} ../20-backward-tensor-cores/attention.cuh keys-backward
// ```
//
// The sum is made in one order, whatever the machine does. And here sharing does save copies: K and V of a tile come
// once for the whole group, and dK and dV leave once.
//
// On Hopper that order would cost time. In phase 24 dQ goes from block to block: the *share* of a K/V tile in dQ of a Q
// tile waits for the shares before it. With a causal mask late K/V tiles have few Q tiles. Their blocks would come to
// the group's second head while the first K/V tile's block still is at the first one, and wait there. All blocks would
// take as long as the longest: the mask would save nothing. So a block takes the last Q tile of all heads first, then
// the one before it. Now all blocks come to a Q tile of any head at the same time, as they do where each head has its
// own keys. Numbers say this order, and `tile_of` and `member_of` (above, in `Grouped`) which Q tile and which head a
// number means:
//
// ```{region} ../24-backward-fused/pieces.cuh load-shares
// ```
//
// ```{region} ../24-backward-fused/pieces.cuh load-shares
// ```
//
// ```{question}
// 8 heads of Q, N = 128, D = 64, 16 bits. A kernel in front reads the first 64 keys for each head of Q, to know about
// where they lie. How many bytes of K are read, if there are 8 heads of K, and if there are 2? (dQ in atomic mode: no
// kernel of its own.)
// ```

// %% tags=["hide-input"]
CELL("Gradients of a group") {
  if (!counts()) return;
  constexpr std::int64_t H = 8, N = 128, D = 64;
  bool same = true;
  for (const std::int64_t Hk : {8, 2}) {
    Lesson<half> lesson(H, Hk, N, D);
    Ledger l = lesson.gradients(phase25m::phase, machine, BackwardMode::Atomic).ledger;
    std::printf("%d heads of K\n", int(Hk));
    same &= equal(l.array("K").read_bytes, std::uint64_t((Hk * N + H * 64) * D * 2), "  bytes of K read");
    same &= equal(l.array("dK").written_bytes, std::uint64_t(Hk * N * D * 2), "  bytes of dK written");
  }
  expect(same, "predicted = counted");

  // dK of a group beside the sum of its heads' dK, and dQ beside dQ.
  constexpr std::int64_t Hk = 2, group = H / Hk;
  bool close = true, equal_dq = true;
  for (const Phase* phase : {&phase25::phase, &phase25m::phase}) {
    Lesson<half> shared(H, Hk, N, D), repeated(H, H, N, D);
    for (const auto pair : {&Lesson<half>::k, &Lesson<half>::v})
      for (std::int64_t h = 0; h < H; ++h)
        std::copy_n((shared.*pair).data() + h / group * N * D, N * D, (repeated.*pair).data() + h * N * D);
    shared.gradients(*phase, Where::Sim), repeated.gradients(*phase, Where::Sim);
    equal_dq = equal_dq && std::memcmp(shared.dq.data(), repeated.dq.data(), std::size_t(H * N * D) * 2) == 0;
    for (const auto gradient : {&Lesson<half>::dk, &Lesson<half>::dv}) {
      double difference = 0, size = 0;
      for (std::int64_t i = 0; i < Hk * N * D; ++i) {
        double sum = 0;
        for (std::int64_t h = 0; h < group; ++h)
          sum += to_float((repeated.*gradient).data()[(i / (N * D) * group + h) * N * D + i % (N * D)]);
        difference += std::pow(to_float((shared.*gradient).data()[i]) - sum, 2), size += sum * sum;
      }
      close = close && std::sqrt(difference / size) <= 0x1p-11;
    }
  }
  expect(equal_dq, "dQ has the bits that it has with repeated heads");
  expect(close, "dK and dV are the sums of the heads', within a rounding to 16 bits");
}

// %% [markdown]
// ```{answer}
// 196,608 with 8 heads of K: each tile once, and 64 keys for each head of Q. With 2 heads of K 98,304.
// ```
//
// Phase 25 has no backward kernel for D = 256: phase 24's is another one there, in `wide.cuh`, and does not ask. 25m
// has.
//
// **What you saw.** Grouped heads are a matter of *where*, and a kernel that asks where needs no other change. Each
// head of Q still asks for all of its keys. K and V are smaller, and heads of a group meet in the L2 cache. The bits
// are those of repeated heads, on Hopper and by mma.sync. In the backward pass a block goes on through the heads of the
// group, so that its sums are made in registers, in one order.
//
// **To think about.** 1. Why does the plain variant cost nothing, although kernels now call a function of it for each
// Q tile? 2. Grouped heads divide by a number that is known only when the kernel runs. How often does a block do so?
// 3. What would go wrong if a group were heads 0, 8, 16 and 24 of 32, and not four neighbours?
//
// <details><summary>Answers</summary>
//
// 1. The variant is a template's argument, so the compiler sees the function's two divisions, which the kernel had
//    before in the same place.
//
// 2. Once for each Q tile, in the one thread that loads K and V, beside thousands of clocks of products.
//
// 3. Nothing, if model and kernel agree. But models mean neighbours; and blocks draw heads in their order, so that
//    neighbours are at work together and find each other's keys in the L2 cache.
//
// </details>
