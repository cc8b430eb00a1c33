// %% [markdown]
// # 20 · The backward pass on tensor cores
//
// **Question.** Phase 09 makes dQ, dK and dV with multiply-adds, one for each lane and instruction. An `mma` does 2,048
// at once. The forward pass has used it since phase 10: there P lies in registers just as the next product wants it.
// The backward pass has five products, and it needs P and dS transposed, too. What must lie where?
//
// **Idea.** Turn the first two products around. Where the rows of S are keys, Pᵀ and dSᵀ lie in registers as the
// products for dV and dK want them. Only dQ needs dS the other way, and gets it through shared memory.
//
// **The way.** As in phase 09, a block owns a K/V tile and the Q tiles stream by. The work of a tile is too much for
// the registers of one kind of warp. So there are two kinds: four warps make P and dV, four make dS and dK, and P is
// handed over.
//
// **Changed since 09.** All products. The formulas, the kept m and l, and O's low bits are those of
// [page 09](../09-backward/notebook.cpp), and the forward pass is [phase 13](../13-instruction-diet/notebook.cpp)'s.
// There is one new trick in the sums, which the last third of this page is about.

// %% tags=["hide-input"]
#include "phases/20-backward-tensor-cores/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/09-backward/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/counted.hpp"
#include "phases/pages/exact.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/lesson.hpp"
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

using namespace flash;
using phase20::Mode;

template <class T>
using Lesson = HeadOf<T, phase20::phase>;

// %% [markdown]
// ## Rows are keys
//
// An `mma` takes its left operand, A, from registers, and leaves its result, C, in registers. Both have an order of
// their own ([page 10](../10-tensor-cores/notebook.cpp)): in C a lane has two neighbours of a row, in A it has two
// neighbours of a row as well. So what a product leaves can be the left operand of the next one, after rounding, in the
// same lanes.
//
// dV = Pᵀ dO wants Pᵀ on the left. If we compute S = Q Kᵀ as the forward pass does, we get P, and most elements lie in
// the wrong lanes for Pᵀ. If we compute Sᵀ = K Qᵀ, we get Pᵀ.
//
// ```{question}
// A warp holds 16 × 16 elements of P, 8 in each lane. For how many of the 256 is the lane that has them the one that
// needs them in Pᵀ?
// ```

// %%
// Whose is element (row, column) of a product of 16 x 16, and whose is it in the left operand of the next one?
static int lane_of(int row, int column) {
  return row % 8 * 4 + column % 8 / 2;
}

CELL("In the right lanes, or not") {
  int as_it_is = 0, transposed = 0;
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 16; ++column) {
      transposed += lane_of(row, column) == lane_of(row, column);  // Sᵀ was computed: C(row, column) is A(row, column)
      as_it_is += lane_of(column, row) == lane_of(row, column);    // S was computed: C(column, row) is A(row, column)
    }
  std::printf("Sᵀ computed: %d of 256 elements lie in the lane that needs them; S computed: %d\n", transposed,
              as_it_is);
  expect(transposed == 256 && as_it_is == 32, "only the transposed product is an operand where it lies");
}

// %% [markdown]
// ```{answer}
// For 32. A lane has the row lane / 4 and columns 2 (lane % 4) and the next one. For the transposed element to be in
// the same lane, row and column must lie in the same place of both numbers, and for few they do.
// ```
//
// The same holds for dS: dPᵀ = V dOᵀ leaves dSᵀ, and dK = dSᵀ Q takes it as it lies. The right operands come from
// shared memory by `ldmatrix`, which can turn a square around on the way. So one copy of each tile serves both kinds of
// products.

// %% tags=["hide-input"]
CELL("Five products, and where their operands are") {
  svg::Canvas canvas(760, 370, "The five products: rows are keys, until dQ");
  struct Product {
    const char *text, *left, *right, *result, *who;
    int left_kind, right_kind, result_kind;  // 0: shared memory; 1: shared memory, turned; 2: registers
  };
  static constexpr const char* colours[] = {"#f2d0a4", "#f2b36b", "#9ec9e6"};
  const Product products[] = {{"Sᵀ = K Qᵀ", "K", "Q", "Sᵀ, then Pᵀ", "P warps", 0, 0, 2},
                              {"dPᵀ = V dOᵀ", "V", "dO", "dPᵀ, then dSᵀ", "dS warps", 0, 0, 2},
                              {"dV += Pᵀ dO", "Pᵀ", "dO", "dV", "P warps", 2, 1, 2},
                              {"dK += dSᵀ Q", "dSᵀ", "Q", "dK", "dS warps", 2, 1, 2},
                              {"dQ = dS K", "dS", "K", "to HBM", "all warps", 1, 1, 2}};
  const char* heads[] = {"product", "left", "right", "result", "made by"};
  const double columns[] = {16, 170, 300, 430, 620};
  for (int i = 0; i < 5; ++i) canvas.text(columns[i], 56, heads[i], "fill=\"#666\"");
  double y = 72;
  for (const Product& p : products) {
    canvas.text(16, y + 24, p.text, "font-weight=\"bold\"");
    const auto box = [&](double x, double width, const char* text, int kind) {
      canvas.rect(x, y, width, 38, std::string("rx=\"4\" fill=\"") + colours[kind] + "\"");
      canvas.text(x + width / 2, y + 24, text, "text-anchor=\"middle\"");
    };
    box(170, 110, p.left, p.left_kind), box(300, 110, p.right, p.right_kind), box(430, 160, p.result, p.result_kind);
    canvas.text(620, y + 24, p.who);
    y += 48;
  }
  const char* words[] = {"shared memory", "shared memory, turned by ldmatrix", "registers"};
  const double at[] = {16, 170, 450};
  for (int i = 0; i < 3; ++i) {
    canvas.rect(at[i], 330, 16, 16, std::string("fill=\"") + colours[i] + "\"");
    canvas.text(at[i] + 24, 343, words[i]);
  }
  picture("20-products", canvas.str());
}

// %% [markdown]
// Both kinds of products are loops around `mma`. In the first, both operands lie in shared memory:
//
// ```{region} products.cuh add-product
// ```
//
// In the second, the left one is what the first has left in registers:
//
// ```{region} products.cuh add-product-of-registers
// ```
//
// ## Two kinds of warps
//
// With tiles of 128 keys and D = 128, dK and dV together are 32,768 numbers in fp32, half of a multiprocessor's
// registers. A warp that made everything for its keys would hold 16 rows of both, S and dP beside them, and the
// fragments. Instead each warp has 32 keys and *one* of the two: warp w makes P and dV, warp w + 4 has the same keys
// and makes dS and dK. A fragment that `ldmatrix` has loaded is multiplied by twice as many rows, as in phase 13.
//
// ```{region} tiles.cuh layout
// ```
//
// The price: dS = P ∘ (dP − δ) needs P, and another warp has it. It is handed over in fp32, in the order of the
// registers, so that a lane writes and reads 16 bytes on end.

// %% tags=["hide-input"]
CELL("Who writes what") {
  if (!counts()) return;
  Lesson<half> lesson(128, 64);
  lesson.forward();
  Recording recording;
  const Options blocks{.block_q = 128, .block_k = 128};
  phase20::backward(lesson.backward(blocks), machine, {.threads = 1, .recording = &recording}, Mode::Atomic);
  // From the recording: the warp that wrote each byte of dS and of P, and added each one of dQ.
  const auto writers = [&](const std::string& name, bool chip) {
    std::vector<int> of;
    for (const Recording::Step& step : recording.steps) {
      const auto& launch = recording.launches.at(step.launch);
      if (step.warp < 0 || launch.block[0] != 256) continue;
      for (const Recording::Part& part : step.parts) {
        if (part.kind != (chip ? Recording::Kind::chip_write : Recording::Kind::write)) continue;
        const Recording::Place& place = chip ? launch.chip.at(part.place) : recording.arrays.at(part.place);
        if (place.name != name) continue;
        of.resize(place.bytes, -1);
        for (const auto& span : part.spans)
          for (std::uint64_t byte = span.first; byte < span.end; ++byte) of[byte - (chip ? place.at : 0)] = step.warp;
      }
    }
    return of;
  };
  const std::vector<int> ds = writers("dS", true), p = writers("P", true), dq = writers("dQ_sum", false);
  static constexpr const char* colours[] = {"#8fc1e3", "#bcd9ee", "#7fcdb0", "#c5e5d6",
                                            "#f2a45c", "#f9d9ae", "#d9a0c3", "#f0d5e4"};
  svg::Canvas canvas(760, 330, "Who writes what, 128 keys and queries, D = 64: a colour is a warp");
  const auto tile = [&](double left, const std::string& title, const std::string& rows, const std::string& columns,
                        int height, int width, double high, double wide, const auto& warp_at) {
    std::vector<int> values;
    for (int row = 0; row < height; ++row)
      for (int column = 0; column < width; ++column) values.push_back(warp_at(row, column));
    canvas.text(left, 52, title, "font-weight=\"bold\"");
    canvas.text(left, 70, columns + " →, " + rows + " ↓", "fill=\"#666\" font-size=\"11\"");
    for (const svg::Patch& patch : svg::patches(values, width)) {
      const double x = left + wide * patch.column, y = 80 + high * patch.row;
      canvas.rect(x, y, wide * patch.columns, high * patch.rows,
                  std::string("stroke=\"white\" fill=\"") + (patch.value < 0 ? "#eee" : colours[patch.value]) + "\"");
      canvas.text(x + wide * patch.columns / 2, y + high * patch.rows / 2 + 4, "warp " + std::to_string(patch.value),
                  "text-anchor=\"middle\" font-size=\"11\"");
    }
  };
  // P lies [4 pairs][2 steps][2 row tiles · 8][32 lanes] of 16 bytes.
  tile(16, "Pᵀ, handed over", "keys", "queries", 128, 128, 1.6, 1.6, [&](int key, int query) {
    const int place = ((key / 32 * 2 + query / 64) * 16 + key % 32 / 16 * 8 + query % 64 / 8) * 32;
    return p.at(static_cast<std::size_t>(place) * 16);
  });
  tile(256, "dSᵀ, rounded", "keys", "queries", 128, 128, 1.6, 1.6,
       [&](int key, int query) { return ds.at(static_cast<std::size_t>(key * 128 + query) * 2); });
  // dQ_sum lies [rows / 16][columns / 8] of 512 bytes.
  tile(500, "dQ, added", "queries", "columns", 128, 64, 1.6, 3.6,
       [&](int row, int column) { return dq.at(static_cast<std::size_t>(row / 16 * 8 + column / 8) * 512); });
  canvas.text(16, 310, "From a recording of the kernel. Warps 0 to 3 make P and dV, warps 4 to 7 dS and dK.",
              "fill=\"#666\"");
  picture("20-writers", canvas.str());
  bool right = true;
  for (int key = 0; key < 128; ++key) right = right && ds.at(static_cast<std::size_t>(key) * 256) == 4 + key / 32;
  expect(right, "dS of 32 keys is written by the warp that has them, 4 to 7");
  std::array<int, 8> shares{};
  for (const int warp : dq) ++shares.at(static_cast<std::size_t>(warp));
  expect(std::all_of(shares.begin(), shares.end(), [&](int n) { return n * 8 == int(dq.size()); }),
         "each of the eight warps adds an eighth of dQ");
}

// %% [markdown]
// dQ = dS K sums over *all* keys of the tile, so it needs the dS of all four warps. They round it and store it in
// shared memory, and a Q tile later, behind the barrier that the loop has anyway, all eight warps compute a rectangle
// of dQ each. `ldmatrix` turns dSᵀ into dS.
//
// ```{region} attention.cuh dq
// ```
//
// ## Handing over P
//
// The block's barrier would be too much: only the two warps with the same keys have to meet, and only one of them has
// to wait. A *named barrier* does that: `bar_arrive` says that this warp has come and goes on, `bar_sync` waits until
// all 64 threads have come.
//
// ```{region} attention.cuh elements
// ```
//
// P itself is made from S by the operations of the forward pass, in the same order
// ([docs/backward.md](../../docs/backward.md#p-must-be-the-forwards)):
//
// ```{region} products.cuh p-again
// ```
//
// ```{question}
// There is one place for each step's P, and no barrier says that the other warp has read it. Why may warp w write the
// next tile's P there?
// ```
//
// In the picture a bar is as long as its part has `mma`s. The warps that wait for P begin a tile with their share of
// dQ, the others end with it. So nobody has to wait long:

// %% tags=["hide-input"]
CELL("A tile of two warps, in units of mma") {
  // D = 64, 128 queries, 32 keys of 128 for each pair of warps; a product of 16 x 16 x 8 is an mma.
  constexpr int D = 64, Br = 128, Bc = 128, kKeys = 32;
  constexpr int scores = kKeys / 16 * D / 16 * Br / 8, sums = kKeys / 16 * Br / 16 * D / 8;
  constexpr int share = Br / 16 * Bc / 16 * D / 8 / 8;
  svg::Canvas canvas(760, 250, "A Q tile in the two warps that have the same keys");
  const double left = 110, scale = 620.0 / (scores + sums + share), y[] = {70, 140};
  struct Bar {
    int warp;
    double length;
    const char *text, *colour;
  };
  // Each step has half of the tile's queries.
  const Bar bars[] = {{0, scores / 2.0, "Sᵀ", "#9ec9e6"},  {0, sums / 2.0, "dV", "#0072b2"},
                      {0, scores / 2.0, "Sᵀ", "#9ec9e6"},  {0, sums / 2.0, "dV", "#0072b2"},
                      {0, share, "dQ", "#cccccc"},         {1, share, "dQ", "#cccccc"},
                      {1, scores / 2.0, "dPᵀ", "#f2b36b"}, {1, sums / 2.0, "dK", "#d55e00"},
                      {1, scores / 2.0, "dPᵀ", "#f2b36b"}, {1, sums / 2.0, "dK", "#d55e00"}};
  double at[2] = {0, 0};
  std::vector<double> made, wanted;
  for (const Bar& bar : bars) {
    canvas.rect(left + scale * at[bar.warp], y[bar.warp], scale * bar.length - 2, 40,
                std::string("rx=\"3\" fill=\"") + bar.colour + "\"");
    const bool dark = bar.colour[1] == '0' || bar.colour[1] == 'd';
    canvas.text(left + scale * (at[bar.warp] + bar.length / 2), y[bar.warp] + 25, bar.text,
                std::string("text-anchor=\"middle\"") + (dark ? " fill=\"white\"" : ""));
    at[bar.warp] += bar.length;
    if (bar.text[0] == 'S') made.push_back(at[0]);
    if (bar.text[1] == 'P') wanted.push_back(at[1]);
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    canvas.arrow(left + scale * made[i], 110, left + scale * wanted[i], 139, "#222");
    canvas.text(left + scale * made[i] - 18, 130, "P", "font-weight=\"bold\"");
  }
  canvas.text(16, 95, "warp w"), canvas.text(16, 165, "warp w + 4");
  canvas.text(16, 216, "dQ is that of the tile before. An arrow: bar_arrive above, bar_sync below.", "fill=\"#666\"");
  picture("20-turns", canvas.str());
  std::printf("mma of a warp and tile: %d for Sᵀ or dPᵀ, %d for dV or dK, %d for dQ\n", scores, sums, share);
  expect(made[0] <= wanted[0] && made[1] <= wanted[1], "in units of mma, P is there before it is wanted");
  if (!counts()) return;
  Lesson<half> lesson(128, D);
  lesson.forward();
  const Run run = phase20::backward(lesson.backward({.block_q = Br, .block_k = Bc}), machine, {}, Mode::Atomic);
  const int row_sums = Br / 16 * Bc / 16;  // the last third of this page
  expect(run.ledger.tensor_flops == std::uint64_t{4096} * (8 * (scores + sums + share) + row_sums),
         "counted: eight warps with as many mma as drawn, and 64 more for sums of rows");
}

// %% [markdown]
// ```{answer}
// The block's barrier at the beginning of each Q tile stands between them. The other warp has read P before it came to
// that barrier, and warp w writes the next P behind it.
// ```
//
// One struct serves both kinds of warps. A warp is of one kind from the beginning to the end, and so the same registers
// are dV in the one and dK in the other:
//
// ```{region} attention.cuh warp
// ```
//
// Either kind makes two products and takes the operands from other tiles: K by Q and P by dO, or V by dO and dS by Q.
// So the code is the same, and only addresses differ:
//
// ```{region} attention.cuh product
// ```
//
// At D = 64 the fragments of a warp's keys fit into 32 registers of a lane. `begin` loads them once, and the Q tiles
// that follow need not load them again:
//
// ```{region} products.cuh add-product-of-kept
// ```
//
// What a warp does with a Q tile, with steps of 64 queries, so that S or dP needs 64 registers of a lane:
//
// ```{region} attention.cuh multiply
// ```
//
// With a tile of Q and dO come m, 1 / l and δ of its rows. They are copied in the same group, so that one wait covers
// everything:
//
// ```{region} tiles.cuh copies
// ```
//
// And the kernel, from a block's first Q tile to its last:
//
// ```{region} attention.cuh keys-backward
// ```
//
// dV and dK leave through shared memory, as O does in [phase 13](../13-instruction-diet/notebook.cpp): then
// neighbouring lanes store neighbouring bytes. dV takes the place of Q, and dK that of V, since nobody reads them any
// more:
//
// ```{region} attention.cuh store
// ```

// %% [markdown]
// ## Three small kernels around it
//
// All kernels get the same struct. Besides the tensors, it has what one kernel leaves for the next:
//
// ```{region} row_terms.cuh arguments
// ```
//
// Before the loop can begin, each row needs m, 1 / l and δ. They are written by a kernel of their own, several lanes to
// a row, and padded to whole tiles. A row that does not exist or sees nothing has m = +∞, so its P is 0 and the loop
// need not ask.
//
// ```{region} row_terms.cuh row-terms
// ```
//
// Reading O and dO is most of its work. So a lane reads 8 elements by one access where rows begin at multiples of 16
// bytes, and one by one elsewhere:
//
// ```{region} row_terms.cuh pieces
// ```
//
// In the *atomic* mode dQ is added up in HBM in fp32, by all blocks of a head. Nobody else reads this array, so it may
// lie in any order: in that of the accumulators, where a warp adds 512 bytes on end. From compute capability 9.0 on one
// instruction adds four numbers of a lane. The last kernel turns, scales and rounds:
//
// ```{region} row_terms.cuh dq-sum
// ```
// ```{region} row_terms.cuh finish
// ```
//
// In the *deterministic* mode nobody adds to the same number. As in phase 09 a third kernel has the loops of the
// forward pass: a block owns a Q tile and makes S and dP again. Here rows are queries: dS is the left operand of dQ.
//
// Its tiles are small enough for two blocks on a multiprocessor, up to D = 128. Then one of them can multiply while the
// other waits for its copies:
//
// ```{region} rows_backward.cuh rows-tiles
// ```
//
// The loop has no P to wait for, since each warp makes its own:
//
// ```{region} rows_backward.cuh rows-backward
// ```
//
// Each mode has three launches. The last one makes dQ, or rounds the sum that the second has made of it. It begins when
// the second has ended, so that nothing is missing in that sum:
//
// ```{region} attention.cuh host
// ```
//
// ```{region} rows_backward.cuh before-and-behind
// ```
//
// ```{exercise} 20.1
// ```
//
// ## Run it: the same gradients
//
// ```{question}
// dV sums products of P and dO, of which P is rounded to bf16 first. Then dV is rounded, too. The two errors are of the
// same size and know nothing of each other. How many floors is dV away, if a floor is the rounding of dV alone?
// ```

// %%
CELL("Right, and the same bits whenever copies arrive") {
  const Options causal{.mask = Mask::top_left()};
  Lesson<bfloat16> ours(300, 64), theirs(300, 64);
  for (auto* lesson : {&ours, &theirs}) lesson->forward(causal.mask);
  phase20::backward(ours.backward(causal), machine);
  phase09::backward(theirs.backward(causal), Where::Sim);
  const auto now = floors(ours, causal), before = floors(theirs, causal);
  std::printf("errors in floors, bf16, causal, N = 300, D = 64\n            dQ     dK     dV\n");
  std::printf("phase 20  %.2f   %.2f   %.2f\nphase 09  %.2f   %.2f   %.2f\n", now[0], now[1], now[2], before[0],
              before[1], before[2]);
  const double worst = *std::max_element(now.begin(), now.end());
  expect(worst <= 1.6, "P and dS rounded: about √2 floors");

  bool same = true;
  for (const Completion completion : {Completion::eager, Completion::random})
    for (const Order order : {Order::forward, Order::random}) {
      Lesson<bfloat16> again(300, 64);
      again.forward(causal.mask);
      phase20::backward(again.backward(causal), machine, {.order = order, .seed = 20, .completion = completion});
      same = same && same_bits(again.dq, ours.dq) && same_bits(again.dk, ours.dk) && same_bits(again.dv, ours.dv);
    }
  expect(same, "deterministic: copies eager or random, threads in two orders: the same bits");

  Lesson<bfloat16> atomic(300, 64);
  atomic.forward(causal.mask);
  phase20::backward(atomic.backward(causal), machine, {}, Mode::Atomic);
  expect(same_bits(atomic.dk, ours.dk) && same_bits(atomic.dv, ours.dv), "dK and dV are the same in both modes");
  expect(relative_error(atomic.matrix(atomic.dq), ours.matrix(ours.dq)) <= 3e-3, "dQ is, but for rounding");
}

// %% [markdown]
// ```{answer}
// √2. Errors of the same size that know nothing of each other add up like the sides of a right angle. Libraries have
// the same 1.41 on such inputs ([measured](../../docs/results/gradients-h200.md)).
// ```
//
// ## Predicted = counted
//
// ```{question}
// How often are the five products computed in the deterministic mode? And which arrays pass as often as there are K/V
// tiles?
// ```

// %%
CELL("What is multiplied, and what moves") {
  if (!counts()) return;
  const std::uint64_t N = 512, D = 64, tiles = N / 128, once = N * D * 2, wide = N * D * 4;
  Lesson<half> lesson(512, 64), before(512, 64);
  lesson.forward();
  const Options blocks{.block_q = 128, .block_k = 128};
  Run runs[2];
  for (const Mode mode : {Mode::Deterministic, Mode::Atomic}) {
    Options options = blocks;
    options.mode = mode;
    const HbmBytes formula = phase20::hbm_bytes(lesson.backward(options), {128, 128});
    Run& run = runs[mode == Mode::Atomic];
    run = phase20::backward(lesson.backward(blocks), machine, {}, mode);
    Ledger& l = run.ledger;
    std::printf("%s\n", mode == Mode::Atomic ? "atomic" : "deterministic");
    const std::uint64_t product = 2 * N * N * D, sums = N / 16 * N / 16 * 4096;
    bool same = equal(l.tensor_flops, (mode == Mode::Atomic ? 5 : 7) * product + sums, "  FLOP of mma");
    same &= equal(l.exps, (mode == Mode::Atomic ? 1 : 2) * N * N, "  exponentials");
    same &= equal(l.bank_conflicts(), 0, "  bank conflicts");
    const std::uint64_t again = mode == Mode::Atomic ? 0 : 1;
    same &= equal(l.array("Q").read_bytes, (tiles + again) * once, "  bytes of Q");
    same &= equal(l.array("dO").read_bytes, (tiles + 1 + again) * once, "  bytes of dO");
    same &= equal(l.array("V").read_bytes, (1 + again * tiles) * once, "  bytes of V");
    same &= equal(l.array("dQ_sum").read_bytes, mode == Mode::Atomic ? (tiles + 1) * wide : 0, "  of dQ_sum, read");
    same &= equal(l.hbm_bytes(), formula.read + formula.written, "  all bytes, by phase.hpp's formula");
    expect(same, "predicted = counted");
  }
  before.forward();
  const Run old = phase09::backward(before.backward({.block_q = 64, .block_k = 32}), Where::Checked);
  std::printf("\n%-22s %12s %15s %12s\n", "", "phase 09", "deterministic", "atomic");
  const auto line = [&](const char* what, const auto& of) {
    std::printf("%-22s %12s %15s %12s\n", what, grouped(of(old.ledger)).c_str(), grouped(of(runs[0].ledger)).c_str(),
                grouped(of(runs[1].ledger)).c_str());
  };
  line("HBM bytes", [](const Ledger& l) { return l.hbm_bytes(); });
  line("wavefronts", [](const Ledger& l) { return l.shared_wavefronts; });
  line("FLOP of multiply-adds", [](const Ledger& l) { return l.flops; });
  line("FLOP of mma", [](const Ledger& l) { return l.tensor_flops; });
  expect(10 * runs[0].ledger.shared_wavefronts < old.ledger.shared_wavefronts,
         "less than a tenth of phase 09's wavefronts of shared memory");
}

// %% [markdown]
// ```{answer}
// Seven: S and dP twice. Q and dO pass once for each K/V tile, and the atomic mode also reads and writes dQ_sum that
// often, in fp32. These tiles have four times the keys of phase 09's, so that they pass a quarter as often.
// ```
//
// ## A row of dS has a sum, and rounding does not know it
//
// On normal inputs a rounded dS costs little. On inputs with a mean it is another matter. A row of dS sums to 0
// ([page 09](../09-backward/notebook.cpp)), and so it does not matter to dQ = scale · dS K where the keys' mean lies.
// But the *rounded* row does not sum to 0. What it sums to is multiplied by the mean of K.
//
// How much that is can be predicted. Let each dS be off by a fraction c of itself, at random, and let the keys have
// mean μ and variance σ² in each column. Then the error of dQ is to dQ as c √(μ² + σ²) to σ, and with dQ's own rounding
//
// $$\sqrt{1 + \frac{\mathrm{E}[K^2]}{\mathrm{var}\, K}} \text{ floors}$$
//
// For uniform[0,1) that is √(1 + 4) = 2.24. And there is a second error of the same kind: the forward pass rounds P
// before P·V, so that δ is that of other weights than those of the backward pass. It misses by ε_i, and then
// the exact row does not sum to 0 either: −scale · ε_i · μ, another c μ / σ. Together: √(1 + 4 + 3) = 2.83.
//
// **The cure** costs one `mma` more for 40 at D = 64, for 80 at D = 128. We know what the row should sum to: 0, or
// dLSE_i. So we sum the rounded row, by `mma`s with a matrix of ones, and take the difference times a mean key away
// from dQ:
//
// $$dQ_i = \mathrm{scale} \cdot \Big( \sum_j dS_{ij} K_j - \big( \sum_j dS_{ij} - d\mathrm{LSE}_i \big) \bar K \Big)$$
//
// Whatever row K̄ is, that is right: with an exact dS nothing is taken away. The nearer it is to the mean, the smaller
// is what remains. Of up to 512 keys the mean of 64 is near enough.
//
// **Of longer rows more keys are needed**, because the difference holds something else, too. Tensor cores round sums
// towards zero. Where P and V have one sign, O is therefore too small, by a share that grows with the number of keys,
// and δ with it. All dS of the row are then too large, by P_ij times the same number. Of 2,048 keys every other one
// goes into K̄, of 4,096 each ([how much that is](../../docs/backward.md#a-rounded-row-of-ds-must-keep-its-sum)).
//
// Where the mean is short beside what the keys differ by, K̄ is a row of zeros. The mean of some keys is then mostly
// noise. That would do harm where δ comes from the rounded O and a row misses its sum by much.
//
// ```{region} products.cuh add-row-sums
// ```
// ```{region} row_terms.cuh centre
// ```
//
// The first blocks of `row_terms` have this to do before their rows, one for each head.
//
// ```{question}
// Add 4 to all keys. By how much does dQ change, in exact arithmetic? How many floors would it be off without the cure?
// ```

// %%
// dQ as a kernel would have it whose only roundings are those of P in the forward pass, of dS, and of dQ: in floors.
// Without the rounding of P, without the cure, or with all.
static double emulated(const Lesson<bfloat16>& x, const RowMajor<double>& exact, bool round_p, bool cure) {
  const auto rounded = [](double y) { return double(to_float(from_float<bfloat16>(float(y)))); };
  const RowMajor<double> Q = x.matrix(x.q), K = x.matrix(x.k), V = x.matrix(x.v), dO = x.matrix(x.dout);
  const double scale = 1 / std::sqrt(double(x.D));
  const RowMajor<double> S = scale * Q * K.transpose(), dP = dO * V.transpose();
  RowMajor<double> dS(x.N, x.N);
  for (std::int64_t i = 0; i < x.N; ++i) {
    const Eigen::ArrayXd p = (S.row(i).array() - S.row(i).maxCoeff()).exp();
    const Eigen::ArrayXd weights = round_p ? Eigen::ArrayXd(p.unaryExpr(rounded)) : p;
    const double delta = (weights * dP.row(i).transpose().array()).sum() / weights.sum();
    dS.row(i) = (p / weights.sum() * (dP.row(i).transpose().array() - delta)).unaryExpr(rounded).matrix().transpose();
  }
  RowMajor<double> dQ = scale * dS * K;
  if (cure) dQ -= scale * dS.rowwise().sum() * K.topRows(64).colwise().mean();
  return relative_error_of(dQ.unaryExpr(rounded), exact) / rounding_floor<bfloat16>(exact);
}

CELL("dQ in floors, with and without the cure") {
  struct Inputs {
    const char* name;
    Distribution distribution;
    float to_k;
  };
  std::printf("bf16, N = 512, D = 64     dS rounded   and P     cured      the kernel    kernel, from rounded O\n");
  double uniform = 0, both = 0, worst = 0, from_rounded = 0;
  for (const Inputs& inputs : {Inputs{"N(0,1)", Distribution::Normal, 0},
                               {"uniform[0,1)", Distribution::Uniform, 0},
                               {"N(1,1)", Distribution::Shifted, 0},
                               {"N(0,1), K + 4", Distribution::Normal, 4}}) {
    Lesson<bfloat16> x(512, 64, inputs.distribution, inputs.to_k);
    const RowMajor<double> exact = exact_gradients(x.backward()).dq;
    const double ds = emulated(x, exact, false, false), p = emulated(x, exact, true, false),
                 cured = emulated(x, exact, true, true);
    x.forward();
    phase20::backward(x.backward({}, false), Where::Sim);
    const double alone = floors(x)[0];
    phase20::backward(x.backward(), Where::Sim);
    const double kernel = floors(x)[0];
    std::printf("%-24s %9.2f %9.2f %9.2f %13.2f %19.2f\n", inputs.name, ds, p, cured, kernel, alone);
    if (inputs.distribution == Distribution::Uniform) uniform = ds, both = p, from_rounded = alone;
    worst = std::max(worst, kernel);
  }
  std::printf("predicted for uniform[0,1): %.2f, then %.2f\n", std::sqrt(5.0), std::sqrt(8.0));
  std::printf("for N(0,1), K + 4, with E[K²] = 17 and μ² = 16: %.2f, then %.2f\n", std::sqrt(18.0), std::sqrt(34.0));
  expect(std::abs(uniform / std::sqrt(5.0) - 1) < 0.1, "rounding dS alone: √(1 + E[K²] / var K), within a tenth");
  expect(std::abs(both / std::sqrt(8.0) - 1) < 0.1, "and δ of rounded weights: within a tenth of √8");
  expect(worst <= 2, "the kernel: within 2 floors on all of them");
  expect(from_rounded > 2 * worst, "O's low bits are still needed: the cure does not replace them");
}

// %% [markdown]
// ```{answer}
// Not at all: a row of dS sums to 0. Without the cure it would be 5.83 floors by the formula, since E[K²] is 17 and μ²
// is 16. Emulated, it is 5.62.
// ```
//
// ```{exercise} 20.2
// ```
//
// In fp16 the cure removes one more error. Tensor cores cut O's sums towards zero ([page
// 10](../10-tensor-cores/notebook.cpp)), and δ misses by that. With uniform inputs and 1,024 keys dQ was 20 floors
// away, and is 1.9.
//
// ## What was tried
//
// **Measured** on an H200 ([the end of part 5](../../docs/book/part-5.md) has the tables): the atomic mode is faster
// than FlashAttention-2 from 512 to 8,192 tokens, and at 16,384 as fast or faster. cuDNN is faster than both.
//
// Changes to the order of the products, to the steps and to the registers made nothing faster. The sums of dS's rows
// take 3 to 9 % of the time, more than the number of their `mma`s says.
//
// **What you saw.** Five products, of which two are computed transposed, so that their results are operands of the next
// two where they lie. Two kinds of warps with half of the sums each. And a sum that is known in advance, which a
// rounded product can be held to.
//
// **To think about.** 1. The warps with dS could make P themselves, from their own S, instead of waiting for it. How
// many products would that be? 2. dK has no mean to suffer from, although dSᵀ is rounded there, too. Why is its error
// on uniform inputs about one floor? 3. Which tiles would D = 256 need, if a warp had 32 keys as at D = 128? 4. Without
// a mask, how many bytes of dQ_sum does a block add for each byte of Q and dO that it reads?
//
// <details><summary>Answers</summary>
//
// 1. Six instead of five, a fifth more for the tensor cores, in exchange for up to 64 KiB of shared memory and a wait.
//
// 2. A column of dS need not sum to 0. dO has a mean here, so the numbers of a column have one sign for the most part:
// dK grows with the number of rows, and errors of chance grow only with its root.
//
// 3. dK or dV of 32 keys would be 32 × 256 numbers, 256 of a lane: more than its 255 registers. With 16 keys it is 128,
// and a K/V tile has 64 keys.
//
// 4. One: a row of Q and dO are 4 D bytes in 16 bits, and the row of dQ_sum is 4 D bytes in fp32. Reads and writes of
// the L2 cache counted apart, it is two.
//
// </details>
