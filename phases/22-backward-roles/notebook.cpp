// %% [markdown]
// # 22 · Roles in the backward pass, and an order that hides
//
// **Question.** Phase 21 makes all five products by `wgmma`, and waits for each of them before it does anything else.
// While its lanes work out P, dS or dQ's additions, no product of their warpgroup runs. Which of this work can be done
// beside which product?
//
// **Idea.** A product that needs nothing of the work at hand can be begun before it. dP needs no P, so it runs while P
// is made. dV needs no dQ, so it runs while the warpgroups meet before dQ. And dK runs while dQ is added in HBM. As in
// [phase 15](../15-warp-specialised/notebook.cpp), a warpgroup of its own loads, so that nobody who multiplies has to
// know when a stage may be filled again.
//
// **Changed since 21.** The order in a tile, a producer with full and empty barriers, and registers that move from the
// producer to the consumers. The five products, their operands and their sums are
// [phase 21](../21-backward-wgmma/notebook.cpp)'s.

// %% tags=["hide-input"]
#include "phases/22-backward-roles/phase.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>

#include "phases/21-backward-wgmma/phase.hpp"
#include "phases/pages/barrier_life.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/exact.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/lesson.hpp"
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

using namespace flash;
using phase22::Mode;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-38s predicted %11s   counted %11s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}
static bool counts() {
  if (was_built(Where::Checked)) return true;
  std::printf("this build has no checked machine, and the fast one neither counts nor records\n");
  return false;
}

template <class T>
using Lesson = HeadOf<T, phase22::phase>;
// %% [markdown]
// ## One thing after the other
//
// The checked machine can record a run. Here is the first warpgroup of phase 21, for the first three of four Q tiles. A
// product's bar begins where it is issued, and ends where the warpgroup has waited for it.

// %% tags=["hide-input"]
static constexpr int kQueries = 64, kKeys = 128, kColumns = 128, kRows = 256;  // Br, Bc, D; four Q tiles, two blocks

// The kernel of dK and dV alone: its steps in the first block.
static Recording recorded(const Phase& phase) {
  Lesson<half> lesson(kRows, kColumns);
  lesson.forward();
  Recording all, out;
  backward(phase, lesson.backward({.block_q = kQueries, .block_k = kKeys}), Where::Checked,
           {.threads = 1, .recording = &all}, Mode::Atomic);
  const auto is_it = [](const Recording::Launch& l) { return l.kernel.find("keys_backward") != std::string::npos; };
  const auto launch = std::find_if(all.launches.begin(), all.launches.end(), is_it);
  out.arrays = all.arrays, out.launches = {*launch};
  for (Recording::Step& step : all.steps)
    if (step.launch == std::size_t(launch - all.launches.begin()) && step.block == 0)
      step.launch = 0, out.steps.push_back(step);
  return out;
}

// What the first warpgroup has under way, tile after tile: five products, three kinds of work of its lanes. Issuing
// products takes a column, work takes one, and waiting none.
enum Row { kS, kDP, kDV, kDQ, kDK, kMakesP, kMakesDS, kAddsDQ, kRowCount };
struct Stretch {
  int row;
  double begin, end;
};
static std::vector<Stretch> pieces_of(const Recording& run) {
  std::vector<Stretch> pieces;
  std::array<std::deque<double>, kRowCount> under_way;
  double now = 0;
  bool p_is_made = false;  // of this tile
  // The operands that a step names in shared memory, in their order, as products.
  const auto products_of = [](const std::vector<std::string>& operands) {
    std::vector<int> rows;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const std::string& left = operands[i];
      const bool pair = left == "K" || left == "V" || left == "dS";
      rows.push_back(left == "K" ? kS : left == "V" ? kDP : left == "dS" ? kDQ : left == "dO" ? kDV : kDK);
      if (pair) ++i;
    }
    return rows;
  };
  for (const Recording::Step& step : run.steps) {
    if (step.warp != 0) continue;
    const auto work = [&](int row) { pieces.push_back({row, now, now + 1}), ++now; };
    std::vector<std::string> begun, done;
    bool reads_rows = false, adds = false;
    for (const Recording::Part& part : step.parts) {
      using Kind = Recording::Kind;
      const bool chip = part.kind != Kind::read && part.kind != Kind::write;
      const std::string& place = chip ? run.launches[0].chip[part.place].name : run.arrays[part.place].name;
      if (part.kind == Kind::product) begun.push_back(place);
      if (part.kind == Kind::multiplied) done.push_back(place);
      reads_rows = reads_rows || (part.kind == Kind::chip_read && place == "rows");
      adds = adds || (part.kind == Kind::write && place == "dQ_sum");
    }
    for (const int row : products_of(done))
      pieces.push_back({row, under_way[row].front(), now}), under_way[row].pop_front();
    if (reads_rows) work(p_is_made ? kMakesDS : kMakesP), p_is_made = !p_is_made;
    if (adds) work(kAddsDQ);
    for (const int row : products_of(begun)) under_way[row].push_back(now);
    if (!begun.empty()) ++now;
  }
  return pieces;
}
// During how many pieces of this work a product is under way; of which product, if one is named.
static int beside(const std::vector<Stretch>& pieces, int row, int product = kRowCount) {
  return int(std::count_if(pieces.begin(), pieces.end(), [&](const Stretch& work) {
    return work.row == row && std::any_of(pieces.begin(), pieces.end(), [&](const Stretch& p) {
             return p.row < kMakesP && (product == kRowCount || p.row == product) && p.begin < work.begin + 0.5 &&
                    p.end > work.begin + 0.5;
           });
  }));
}
static void told(const std::vector<Stretch>& pieces) {
  for (const auto& [row, what] : {std::pair{kMakesP, "P is made"}, {kMakesDS, "dS is made"}, {kAddsDQ, "dQ is added"}})
    std::printf("%-12s in 4 tiles, beside a product: %d times\n", what, beside(pieces, row));
}
static std::string drawn(const std::string& title, const std::vector<Stretch>& pieces) {
  constexpr int kShown = 3;  // tiles
  static const char* rows[] = {"Sᵀ", "dPᵀ", "dV", "dQ", "dK", "makes P", "makes dS", "adds dQ"};
  static const char* colours[] = {"#9ec9e6", "#8fd0c4", "#b9d7a8", "#c9c3e6",
                                  "#9fb8dd", "#f2d0a4", "#f2b36b", "#e0986f"};
  double last = 0;
  std::array<int, kRowCount> tile{};
  for (const Stretch& piece : pieces)
    if (tile[piece.row]++ < kShown) last = std::max(last, piece.end);
  const double left = 110, scale = 630 / last, high = 26;
  const auto y_of = [&](int row) { return 46 + high * row + (row >= kMakesP ? 26 : 0); };
  svg::Canvas canvas(760, y_of(kRowCount) + 30, title);
  tile = {};
  canvas.text(16, y_of(kMakesP) - 8, "the lanes", "fill=\"#666\" font-size=\"11\"");
  for (int row = 0; row < kRowCount; ++row) {
    canvas.text(16, y_of(row) + 16, rows[row]);
    canvas.rect(left, y_of(row), 630, high - 4, "fill=\"#f6f6f6\"");
  }
  for (const Stretch& piece : pieces) {
    if (tile[piece.row] == kShown) continue;
    const double x = left + scale * piece.begin, width = scale * (piece.end - piece.begin);
    canvas.rect(x, y_of(piece.row), width, high - 4,
                std::string("stroke=\"white\" fill=\"") + colours[piece.row] + "\"");
    canvas.text(x + width / 2, y_of(piece.row) + 16, std::to_string(tile[piece.row]++), "text-anchor=\"middle\"");
  }
  canvas.text(left, y_of(kRowCount) + 20,
              "Q tiles 0 to 2. From left to right: the order of a recorded run, not its time.", "fill=\"#666\"");
  return canvas.str();
}

CELL("Phase 21: no work beside a product") {
  if (!counts()) return;
  const std::vector<Stretch> pieces = pieces_of(recorded(phase21::phase));
  picture("22-before", drawn("Phase 21: what a warpgroup has under way", pieces));
  told(pieces);
  expect(pieces.size() == 4 * kRowCount, "five products and three kinds of work for each of four tiles");
  expect(beside(pieces, kMakesP) + beside(pieces, kMakesDS) + beside(pieces, kAddsDQ) == 0,
         "the lanes work, or a product is under way: never both");
}

// %% [markdown]
// In no column do the lanes work beside a product. Two warpgroups help: one can multiply while the other works. But all
// threads meet at a barrier of the block with each tile, and so the two can never be far apart.
//
// ## A warpgroup that loads
//
// The roles are those of phase 15: a third warpgroup of which one thread loads, and two consumers. Q and dO pass
// through a ring of two stages each:
//
// ```{region} attention.cuh tiles
// ```
// ```{region} attention.cuh setup
// ```
//
// Two rings, since Q and dO are not wanted at the same time: S needs Q alone, and can begin while dO is on its way.
// With Q come the numbers of its rows, m, 1 / l and δ, on the same barrier:
//
// ```{region} attention.cuh producer
// ```
//
// ```{question}
// An arrival at `empty` says that this warp has read the stage. `release` is one lane's arrival, for all 32. Behind
// `wgmma_wait` that is right for dO. Why does Q's release have a `__syncwarp()` before it?
// ```

// %% tags=["hide-input"]
CELL("The life of Q's and dO's stages") {
  if (!counts()) return;
  const Recording run = recorded(phase22::phase);
  picture("22-stages", svg::barrier_life("Two rings: who waits for whom, four Q tiles", run,
                                         {{"Q, stage 0", "Q_ring.full[0]", "Q_ring.empty[0]", {"tile 0", "tile 2"}},
                                          {"Q, stage 1", "Q_ring.full[1]", "Q_ring.empty[1]", {"tile 1", "tile 3"}},
                                          {"dO, stage 0", "dO_ring.full[0]", "dO_ring.empty[0]", {"tile 0", "tile 2"}},
                                          {"dO, stage 1", "dO_ring.full[1]", "dO_ring.empty[1]", {"tile 1", "tile 3"}}},
                                         {{"loading thread", 8, 8}, {"warpgroup 0", 0, 3}, {"warpgroup 1", 4, 7}}));
  bool all = true;
  for (const char* barrier : {"Q_ring.empty[0]", "Q_ring.empty[1]", "dO_ring.empty[0]", "dO_ring.empty[1]"}) {
    std::vector<int> warps = svg::arrived_at(run, barrier);
    std::sort(warps.begin(), warps.end());
    all = all && warps.size() == 2 * 8;
    for (std::size_t i = 0; i < warps.size(); ++i) all = all && warps[i] == int(i) / 2;
  }
  expect(all, "each of eight warps arrives once for each of a stage's two tiles, and nobody else does");
  // A warp's arrivals: dO's before Q's, tile by tile.
  std::vector<std::string> order;
  for (const Recording::Step& step : run.steps)
    for (const Recording::Arrival& a : step.arrivals)
      if (step.warp == 0 && a.count > 0) order.push_back(run.launches[0].mbarriers[a.mbarrier].name);
  expect(order.size() == 8 && order[0] == "dO_ring.empty[0]" && order[1] == "Q_ring.empty[0]",
         "a warp gives dO's stage back before Q's");
}

// %% [markdown]
// ```{answer}
// `wgmma_wait` orders what `wgmma` has read, for the whole warp. But the numbers of rows are read by the lanes
// themselves, with ordinary loads, and nothing says how far another lane is. Without `__syncwarp()` lane 0 could give
// the stage back before lane 5 has read its δ. The checked machine found this race while the phase was written.
// ```
//
// ```{exercise} 22.1
// ```
//
// ## An order that hides
//
// A consumer's tile, from the wait for Q to the release of Q:
//
// ```{region} attention.cuh consumer
// ```
//
// Groups of `wgmma` are done in the order in which they were committed, so `wgmma_wait<1>` means: all but the last one.
// The tile has three places where that one stays under way:
//
// 1. S and dP are issued together. P is made from S while dP runs.
// 2. dV is issued as soon as dS has been stored. It runs while the warpgroups meet, before dQ.
// 3. dK is issued behind dQ. dQ is added in HBM while dK runs.
//
// ```{question}
// The lanes have three kinds of work in a tile: they make P, make dS, and add dQ. For which of them does the
// warpgroup have a product under way? Which one has none, and why?
// ```

// %% tags=["hide-input"]
CELL("Phase 22: products beside the work") {
  if (!counts()) return;
  const std::vector<Stretch> pieces = pieces_of(recorded(phase22::phase));
  picture("22-under-way", drawn("Phase 22: what a warpgroup has under way", pieces));
  told(pieces);
  expect(pieces.size() == 4 * kRowCount, "the same five products and three kinds of work, four times");
  expect(beside(pieces, kMakesP, kDP) == 4, "P is made beside dP, in each tile");
  expect(beside(pieces, kAddsDQ, kDK) == 4, "dQ is added beside dK, in each tile");
  expect(beside(pieces, kMakesDS) == 0, "dS is made while no product of this warpgroup is under way");
}

// %% [markdown]
// ```{answer}
// For P it is dP, and for dQ's additions it is dK. dS has none: it needs dP, which was the last product under way.
// ```
//
// dV could be that product: it needs P alone, and P is there. But dS needs P as well, so that the rounded P and the
// one in fp32 would have to be kept side by side. [Phase 23](../23-backward-turns/notebook.cpp) does so at D = 128.
// Here the other warpgroup has to keep the tensor cores busy while dS is made.
//
// ```{exercise} 22.2
// ```
//
// ## One barrier for two places
//
// dQ sums over all 128 keys, so each warpgroup needs the other one's dS. A named barrier of the consumers,
// `kOfConsumers`, stands between writing dS and reading it. It protects two things.
//
// - dS of this tile is there. `fence_proxy_async` comes first, since `stmatrix` writes as threads do and `wgmma` reads
//   through the asynchronous proxy.
// - The dS of two tiles ago has been read. Its place is written anew in this tile, *before* this tile's barrier. But
//   who writes has passed the barrier of the tile before, and the other warpgroup came there only after it had waited
//   for its dQ of two tiles ago. With one place instead of two there would have to be a second barrier in each tile.
//
// The producer does not come to this barrier. It is the only thing left that joins the two warpgroups, and phase 23 is
// about doing without it.
//
// ## Registers
//
// The accumulators of dV and dK live through all tiles. The others come and go:

// %% tags=["hide-input"]
CELL("What a consumer's thread holds") {
  const int at_launch = 65536 / 384 / 8 * 8, consumers = 240, producer = 24;
  std::printf("numbers of a thread          D = 64, 128 queries   D = 128, 64 queries\n");
  const auto line = [](const char* what, const auto& of) {
    std::printf("%-28s %12d %21d\n", what, of(64, 128), of(128, 64));
    return std::max(of(64, 128), of(128, 64));
  };
  line("dV, dK", [](int D, int) { return D; });
  const int beside_p = line("and S, dP, while P is made", [](int D, int Br) { return D + Br; });
  const int beside_dq = line("and P, dS rounded, and dQ", [](int D, int Br) { return D + Br / 2 + 32; });
  std::printf("at launch each of 384 threads has %d; then consumers %d, the producer's %d\n", at_launch, consumers,
              producer);
  expect(2 * consumers + producer <= 3 * at_launch, "the consumers take no more than the producer gives back");
  expect(std::max(beside_p, beside_dq) > at_launch, "with the registers at launch the accumulators alone do not fit");
  expect(std::max(beside_p, beside_dq) < consumers, "with those of a consumer they do");
}

// %% [markdown]
// ```{region} attention.cuh loop
// ```
//
// The loop counts down to 0. A counter that begins with a number that depends on the block was kept by nvcc 13 in a
// register of each lane, and had to be moved to a register of the warp for each descriptor of `wgmma`. One that ends at
// 0 stays in the warp's. In the producer's loop `#pragma unroll 1` does another service: unrolled, it would not fit 24
// registers.
//
// In the end each warpgroup stores dV over V, of which it is the only reader. K is different: both warpgroups have read
// all of it, for dQ. So they meet once more before dK goes out in its place.
//
// ```{region} attention.cuh store
// ```
// ```{region} attention.cuh launch
// ```
//
// ## Run it: the same bits
//
// Each warpgroup multiplies the same operands in the same order as in phase 21.
//
// ```{question}
// Against phase 21, what becomes of the barriers of the block, of the bytes from HBM, and of the bytes that `wgmma`
// reads from shared memory?
// ```

// %%
template <class T>
static bool same_as_phase_21(std::int64_t N, std::int64_t D, const Mask& mask, const MachineOptions& how = {}) {
  const Options options{.mask = mask};
  Lesson<T> before(N, D), now(N, D);
  before.forward(mask), now.forward(mask);
  phase21::backward(before.backward(options), Where::Sim, {}, Mode::Atomic);
  phase22::backward(now.backward(options), machine, how, Mode::Atomic);
  const bool one_block = N <= 128;  // where several blocks add, the order of the additions is not fixed
  return same_bits(before.dk, now.dk) && same_bits(before.dv, now.dv) && (!one_block || same_bits(before.dq, now.dq));
}

CELL("Phase 21, bit for bit, in every order") {
  expect(same_as_phase_21<half>(300, 64, Mask::none()) && same_as_phase_21<bfloat16>(200, 128, Mask::top_left()),
         "dK and dV, fp16 and bf16, with a mask and without");
  bool again = true;
  for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
    for (const Order order : {Order::forward, Order::random})
      again = again && same_as_phase_21<half>(128, 128, Mask::top_left(),
                                              {.order = order, .seed = 22, .completion = completion});
  expect(again, "and dQ, where one block makes it: copies and products late, eager or random, threads in two orders");

  Lesson<bfloat16> lesson(300, 64);
  lesson.forward();
  phase22::backward(lesson.backward(), Where::Sim, {}, Mode::Atomic);
  const std::array<double, 3> error = floors(lesson);
  std::printf("errors in floors, bf16, N = 300, D = 64: dQ %.2f, dK %.2f, dV %.2f\n", error[0], error[1], error[2]);
  expect(*std::max_element(error.begin(), error.end()) <= 1.6, "P and dS rounded: about √2 floors");
}

CELL("Predicted = counted") {
  if (!counts()) return;
  const std::uint64_t Tr = kRows / kQueries, blocks = kRows / kKeys;
  Options options{.block_q = kQueries, .block_k = kKeys};
  Lesson<half> lesson(kRows, kColumns);
  lesson.forward();
  const Ledger before = phase21::backward(lesson.backward(options), machine, {}, Mode::Atomic).ledger;
  const Ledger now = phase22::backward(lesson.backward(options), machine, {}, Mode::Atomic).ledger;
  options.mode = Mode::Atomic;
  const HbmBytes formula = phase22::backward_features.hbm_bytes(lesson.backward(options), {kQueries, kKeys});
  bool same = equal(now.hbm_bytes(), formula.read + formula.written, "HBM bytes, by the declared formula");
  same &= equal(before.hbm_bytes(), now.hbm_bytes(), "HBM bytes, phase 21");
  same &= equal(now.tensor_flops, before.tensor_flops, "FLOP of tensor cores");
  same &= equal(now.wgmma_shared_bytes, before.wgmma_shared_bytes, "bytes that wgmma reads");
  same &= equal(now.exps, before.exps, "exponentials");
  same &= equal(before.barriers - now.barriers, blocks * (Tr + 1), "barriers of the block, fewer by");
  expect(same, "a barrier of the block less for each tile and one for the end; everything else as it was");
}

// %% [markdown]
// ```{answer}
// A block has one fewer for each Q tile, and one fewer in the end. The first one is left, behind which the mbarriers
// may be used. The bytes stay the same, to the last one.
// ```
//
// ## Predicted and measured
//
// Before it was measured we predicted 590 TFLOP/s for D = 128 and 8,192 tokens without a mask.
//
// **Measured** on an H200 ([the end of part 5](../../docs/book/part-5.md) has the tables): less than that. Without a
// mask it is faster than phase 21 at every length, and with a causal mask for long sequences. With a causal mask and up
// to 2,048 tokens next to nothing is won, which phase 23 takes up.
//
// **What you saw.** One thread that loads, and an order in which P is made beside dP, and dQ is added beside dK. No
// count of bytes or products has changed, and not a bit of dK and dV.
//
// **To think about.** 1. In the picture of the rings dO's stages are given back before Q's, and filled after
// them. What would it take to fill them earlier? 2. Issue dK before dQ. Which work is then done beside which product?
// 3. Could the producer clear a part of dQ_sum while it waits? 4. Why does the wait for dV name `p` as well,
// and that for dP no operand?
//
// <details><summary>Answers</summary>
//
// 1. The loading thread waits for Q's stage first, and it waits for one thing at a time. A second thread could load dO.
//
// 2. dQ would be the last group, so to wait for it is to wait for dK, too: dQ is added with no product under way.
//
// 3. No. Blocks of other K/V tiles add to the same rows, perhaps before this block has cleared them. It must be done
//    before any block begins, and so a kernel before this one does it.
//
// 4. dV takes P from registers, and these must not be written while it runs. dP has both operands in shared memory.
//
// </details>
