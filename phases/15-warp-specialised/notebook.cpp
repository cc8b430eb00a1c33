// %% [markdown]
// # 15 · Producer and consumers
//
// **Question.** In phase 14 all threads do the same: wait for K, multiply, calculate a softmax, multiply, wait for each
// other. But loading takes one thread and a few instructions, and the two warpgroups have different rows and nothing to
// say to each other. Why do they meet at a barrier with every tile?
//
// **Idea.** Because somebody has to know that a stage may be filled again. That can be somebody who does nothing else.
// One warpgroup becomes the *producer*: one of its threads loads all tiles, and it does no arithmetic. The others are
// *consumers* and load nothing. Each stage has two mbarriers: *full*, which the consumers wait for, and *empty*, which
// the producer waits for. This is called *warp specialisation*.
//
// **Changed since 14.** Empty barriers; two branches instead of one loop; the barrier of the block is gone from the
// loop; registers move from the producer to the consumers. Products and softmax are called as in phase 14.

// %% tags=["hide-input"]
#include "phases/15-warp-specialised/phase.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/pages/barrier_life.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-36s predicted %11s   counted %11s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}

// %% tags=["hide-input"]
CELL("Who does what") {
  svg::Canvas canvas(760, 236, "One warpgroup loads, two calculate; stages between them");
  const auto box = [&](double x, double y, double width, double height, const char* colour) {
    canvas.rect(x, y, width, height, std::string("rx=\"6\" stroke=\"#666\" fill=\"") + colour + "\"");
  };
  const auto centred = [&](double x, double y, const std::string& text, const char* more = "") {
    canvas.text(x, y, text, std::string("text-anchor=\"middle\" ") + more);
  };
  const auto arrow = [&](double x1, double y1, double x2, double y2) {
    const double head = x2 > x1 ? -9 : 9;
    canvas.line(x1, y1, x2 + head, y2, "stroke=\"#444\" stroke-width=\"2\"");
    canvas.raw("<polygon fill=\"#444\" points=\"" + svg::num(x2) + "," + svg::num(y2) + " " + svg::num(x2 + head) +
               "," + svg::num(y2 - 5) + " " + svg::num(x2 + head) + "," + svg::num(y2 + 5) + "\"/>");
  };
  box(16, 50, 150, 150, "#f9e4c5");
  centred(91, 76, "producer", "font-weight=\"bold\"");
  centred(91, 116, "one thread");
  centred(91, 134, "loads all tiles");
  box(290, 50, 150, 150, "#eef7f2"), centred(365, 76, "ring", "font-weight=\"bold\"");
  box(584, 50, 160, 150, "#eef5fb"), centred(664, 76, "consumers", "font-weight=\"bold\"");
  for (int i = 0; i < 2; ++i) {
    box(304, 90 + 54 * i, 122, 44, "#c5e5d6"), centred(365, 117 + 54 * i, "stage " + std::to_string(i));
    box(598, 90 + 54 * i, 132, 44, "#c3ddf0"), centred(664, 117 + 54 * i, "warpgroup " + std::to_string(i));
  }
  arrow(166, 96, 290, 96), centred(228, 88, "TMA fills a stage");
  arrow(440, 96, 584, 96), centred(512, 88, "full: it is there");
  arrow(584, 166, 440, 166), centred(512, 158, "empty: all have read");
  arrow(290, 166, 166, 166), centred(228, 158, "may be filled");
  canvas.text(16, 226, "Each warpgroup reads every tile. Nobody waits for all threads of the block.", "fill=\"#666\"");
  picture("15-who", canvas.str());
}

// %% [markdown]
// ## Full and empty
//
// ```{region} attention.cuh tiles
// ```
//
// `K` and `V` are rings of two stages each, and a `Ring` is their barriers. Everybody who walks along a ring keeps a
// `Cursor` of its own: the stage that is next, and the parity of its barriers, which flips each time round.
//
// ```{region} ring.cuh ring
// ```
//
// ```{region} attention.cuh setup
// ```
//
// The producer's loop is the whole of what loads:
//
// ```{region} attention.cuh producer
// ```
//
// For each tile it waits until the stage is empty, says how many bytes will come, and begins the copies. It waits with
// the opposite of its cursor's parity. Before a barrier's first phase, parity 1 counts as complete, so the first time
// round nobody has to say that the stages are empty.
//
// The thread returns while its last copies are under way. It may: the consumers wait for each of them before they end.
//
// ```{exercise} 15.1
// ```
//
// The consumers go through the same rings:
//
// ```{region} attention.cuh consumer
// ```
// ```{region} attention.cuh loop
// ```
//
// ```{question}
// The empty barriers are made for `Br / 16` arrivals. Who arrives? And could a consumer arrive for K already before
// `wgmma_wait`?
// ```

// %% tags=["hide-input"]
CELL("The life of K's two stages") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not record\n"));
  const int N = 256, Bc = 64, tiles = N / Bc;  // two blocks; the first one is shown
  Rounded<half> e(random_example(N, 64));
  Recording run;
  phase15::forward(e.problem({.block_q = 128, .block_k = Bc}), Where::Checked, {.recording = &run});
  bool all = true;
  for (const int stage : {0, 1}) {
    const std::string barrier = "K_ring.empty[" + std::to_string(stage) + "]";
    std::vector<int> warps = svg::arrived_at(run, barrier);
    std::printf("%s: %d arrivals for %d tiles, by warps", barrier.c_str(), int(warps.size()), tiles / 2);
    for (const int warp : warps) std::printf(" %d", warp);
    std::printf("\n");
    std::sort(warps.begin(), warps.end());
    for (std::size_t i = 0; i < warps.size(); ++i) all = all && warps[i] == int(i) * 2 / tiles;
    all = all && int(warps.size()) == 8 * tiles / 2;
  }
  picture("15-stages", svg::barrier_life("K's two stages: four tiles, from 3 to 0", run,
                                         {{"stage 0", "K_ring.full[0]", "K_ring.empty[0]", {"tile 3", "tile 1"}},
                                          {"stage 1", "K_ring.full[1]", "K_ring.empty[1]", {"tile 2", "tile 0"}}},
                                         {{"loading thread", 8, 8}, {"warpgroup 0", 0, 3}, {"warpgroup 1", 4, 7}}));
  expect(all, "each of the consumers' eight warps arrives once for each tile, and nobody else does");
}

// %% [markdown]
// ```{answer}
// The consumers' warps, 8 of them, one lane for each. And no: only the wait makes it true that the warp has read the
// tile. Before it the products may still be reading, and the producer would overwrite K under them.
// ```
//
// The checked simulator finds such mistakes, and its museum has them as exhibits. An arrival that comes too early gets
// *write after wgmma* (`wgmma_released_early`). Where the wait for *empty* is missing, TMA writes a tile that is still
// read (`tma_refilled_early`). Without the arrival no thread can go on: a deadlock, and the report says how many
// arrivals are missing (`mbarrier_arrivals_missing`).
//
// ## Without a common barrier
//
// What did the barrier of the block cost? The simulator has no clock, so a model with made-up lengths has to answer.

// %% tags=["hide-input"]
// A declared model, to show who waits for whom: how long each warpgroup works on each tile, and how long a copy takes.
struct Span {
  double begin, end;
};
struct Timeline {
  std::vector<Span> copies;
  std::array<std::vector<Span>, 2> work;
  double end() const { return std::max(work[0].back().end, work[1].back().end); }
};
static constexpr int tiles = 6, stages = 2;
static constexpr double copy_time = 2, work_time[2] = {3, 5};

static Timeline timeline(bool roles) {
  Timeline line;
  for (int tile = 0; tile < tiles; ++tile) {
    double filled = tile == 0 ? 0 : line.copies[tile - 1].end;  // from when on: copies come one after the other, ...
    for (int group = 0; group < 2 && tile >= stages; ++group)   // ... and both have left the stage
      filled = std::max(filled, line.work[group][tile - stages].end);
    line.copies.push_back({filled, filled + copy_time});
    for (int group = 0; group < 2; ++group) {
      double begin = line.copies[tile].end;
      if (tile > 0) begin = std::max(begin, line.work[group][tile - 1].end);
      if (tile > 0 && !roles) begin = std::max(begin, line.work[1 - group][tile - 1].end);  // the block's barrier
      line.work[group].push_back({begin, begin + work_time[(tile + group) % 2]});
    }
  }
  return line;
}

CELL("Two warpgroups, with a barrier of the block and without") {
  svg::Canvas canvas(760, 322, "Who waits for whom: six tiles, two stages, two warpgroups");
  const char* names[] = {"copies", "warpgroup 0", "warpgroup 1"};
  bool kept = true;
  for (const bool roles : {false, true}) {
    const Timeline line = timeline(roles);
    const double top = roles ? 190 : 62, scale = 20;
    canvas.text(16, top, roles ? "phase 15: full and empty barriers" : "phase 14: a barrier of the block for each tile",
                "font-weight=\"bold\"");
    for (int row = 0; row < 3; ++row) {
      canvas.text(16, top + 26 + 30 * row, names[row], "fill=\"#666\"");
      const std::vector<Span>& spans = row == 0 ? line.copies : line.work[row - 1];
      for (int tile = 0; tile < tiles; ++tile) {
        const double x = 100 + scale * spans[tile].begin, width = scale * (spans[tile].end - spans[tile].begin);
        canvas.rect(x, top + 10 + 30 * row, width, 24,
                    std::string("stroke=\"white\" rx=\"3\" fill=\"") +
                        (row == 0        ? tile % stages ? "#f7e3c8" : "#f2d0a4"
                         : tile % stages ? "#cfe3f1"
                                         : "#9ec9e6") +
                        "\"");
        canvas.text(x + width / 2, top + 26 + 30 * row, std::to_string(tile), "text-anchor=\"middle\"");
        if (row > 0 && tile >= stages) kept = kept && line.copies[tile].begin >= line.work[row - 1][tile - stages].end;
        if (row > 0) kept = kept && line.work[row - 1][tile].begin >= line.copies[tile].end;
      }
    }
    std::printf("%s: all done after %.0f steps\n", roles ? "phase 15" : "phase 14", line.end());
  }
  canvas.text(16, 312,
              "Tiles in the order of use. Durations are declared, not measured: a tile takes 3 or 5 steps, a copy 2.",
              "fill=\"#666\"");
  picture("15-roles", canvas.str());
  expect(kept, "no tile is multiplied before it is there, and no stage filled before both have left it");
  expect(timeline(true).end() < timeline(false).end(), "without the block's barrier both are done earlier");
}

// %% [markdown]
// In the picture a warpgroup takes 3 steps for one tile and 5 for the next, and while one is slow the other is fast.
// With a barrier for each tile both take 5. Without it each goes its own way, as far as two stages let it: a warpgroup
// can be one tile ahead, then it waits until the other one has emptied a stage.
//
// The lengths are made up, but there is a reason for them. When one warpgroup has the tensor cores, the other has to
// wait. Once it is half a tile behind, one multiplies while the other calculates its softmax, and nothing brings them
// back into step.

// %% [markdown]
// ## Registers move
//
// A multiprocessor has 65,536 registers, and they are dealt out when a block starts, to all threads alike. The producer
// needs few, the consumers many. Hopper has an instruction, `setmaxnreg`, by which a warpgroup changes how many
// registers each of its threads has: the producer gives some back, and the consumers take them.

// %% tags=["hide-input"]
CELL("How many registers") {
  const int all = 65536, threads = 384, consumers = 232, producer = 40;
  const int at_launch = all / threads / 8 * 8;
  std::printf("at launch: %d threads, %d registers each (a multiple of 8)\n", threads, at_launch);
  std::printf("after it:  256 threads with %d, 128 with %d\n", consumers, producer);
  expect(2 * consumers + producer <= 3 * at_launch, "the consumers take no more than the producer gives back");
  for (const int D : {64, 128})
    for (const int Bc : {64, 128})
      std::printf("D = %3d, Bc = %3d: S takes %d registers of a thread, O %d, P %d\n", D, Bc, Bc / 2, D / 2, Bc / 4);
}

// %% [markdown]
// S, O and P are D/2 and 3/4 Bc registers of each consumer: 160 for D = 128 and Bc = 128, if all three are alive. With
// 168 there is next to nothing left for the rest. A compiler that runs out of registers does something worse to `wgmma`
// than to other code: it waits for each product as soon as it is issued, and says so in a warning, C7512. This phase
// just fits into 168. Phase 18 does not: without `setmaxnreg` it is less than half as fast. The end of part 4 has the
// [measurements](../../docs/book/part-4.md#what-each-part-is-worth).
//
// A warpgroup that wants more registers waits until the others have given back enough. If the sum is too large, that
// never happens: a deadlock, on a GPU too (exhibit `setmaxnreg_over_budget`).
//
// ```{region} attention.cuh launch
// ```

// %% [markdown]
// ## Run it: the same bits
//
// Each warpgroup does what it did before, with the same tiles in the same order. All that has changed is who loads
// them.
//
// ```{question}
// Against phase 14, what becomes of the barriers of the block, of the bytes from HBM, and of the bytes that `wgmma`
// reads?
// ```

// %% tags=["hide-input"]
template <class T>
static bool same_as_phase_14(const Example& example, const Options& options, const MachineOptions& how = {}) {
  Rounded<T> before(example), now(example);
  phase14::forward(before.problem(options), Where::Sim);
  phase15::forward(now.problem(options), machine, how);
  return std::memcmp(before.o.data(), now.o.data(), now.o.size() * sizeof(T)) == 0 &&
         std::memcmp(before.lse.data(), now.lse.data(), now.lse.size() * sizeof(float)) == 0;
}

CELL("Phase 14, bit for bit, in every order") {
  bool same = true;
  for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
    same = same && same_as_phase_14<half>(random_example(200, 64), {.mask = causal}) &&
           same_as_phase_14<bfloat16>(random_example(200, 128), {.mask = causal, .block_k = 64});
  expect(same, "O and LSE, fp16 and bf16, with each mask");

  bool again = true;
  const Example example = random_example(300, 64);
  for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
    for (const Order order : {Order::forward, Order::reverse, Order::random})
      again = again &&
              same_as_phase_14<half>(example, {.block_k = 64}, {.order = order, .seed = 15, .completion = completion});
  expect(again, "copies and products late, eager or random, threads in three orders");
}

CELL("Predicted = counted") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not count\n"));
  const std::uint64_t N = 256, D = 128, Tr = N / 128, Tc = N / 64;
  const Options blocks{.block_q = 128, .block_k = 64};
  Rounded<half> e(random_example(N, D));
  const Ledger before = phase14::forward(e.problem(blocks), Where::Checked).ledger;
  const Ledger now = phase15::forward(e.problem(blocks), Where::Checked).ledger;
  bool same = equal(before.barriers, Tr * (1 + Tc), "barriers of the block, phase 14");
  same &= equal(now.barriers, Tr, "phase 15");
  same &= equal(now.hbm_bytes(), before.hbm_bytes(), "HBM bytes");
  same &= equal(now.tensor_flops, 4 * N * N * D, "FLOP of wgmma");
  same &= equal(now.wgmma_shared_bytes, before.wgmma_shared_bytes, "bytes that wgmma reads");
  same &= equal(now.exps, before.exps, "exponentials");
  same &= equal(now.shared_bytes_peak, before.shared_bytes_peak, "shared memory of a block");
  expect(same, "one barrier for each block, and everything else as it was");
}

// %% [markdown]
// ```{answer}
// One barrier of the block is left, the one behind which the mbarriers may be used. The bytes stay the same, to the
// last one: what is copied and what is multiplied has not changed.
// ```
//
// **What you saw.** A producer and consumers, and a pair of barriers for each stage between them. No count of bytes or
// products has changed, and not a bit of the result. What has changed is who waits for whom.
//
// **Measured** on an H200, with the table at the end of this part: faster than phase 14 at every length. But within a
// warpgroup S, softmax and PV still take turns. [The next page](../16-overlap/notebook.cpp) lets them overlap.
//
// **To think about.** 1. Give the rings one stage. Does the kernel still work, and who waits when? 2. Let the consumer
// arrive for K's `empty` before `wgmma_wait`. Which findings does `./flash test 15` print? 3. Without a producer, let
// thread 0 of the first consumer load tile j − 2 just before it multiplies tile j. Who waits for whom then, for ever?
// 4. A block of three consumer warpgroups has 512 threads. How many registers can each have, and which D and Bc fit?
//
// <details><summary>Answers</summary>
//
// 1. It works, with the same bits. The loading thread then waits for `empty` before each tile but the first, and all
//    consumers for `full`: a copy of K runs beside the softmax and PV of the tile before, but never beside its S.
//
// 2. *race: cp.async.bulk.tensor after wgmma*, at a place within K: TMA fills the stage while a product still reads it.
//    The remedy that it names is `wgmma_wait`.
//
// 3. Tile j − 2 goes where tile j lies. So the thread waits until all warps have given that stage back, its own warp
//    among them, and that one does so after the product which the thread has not begun. It waits for itself.
//
// 4. 65,536 / 512 = 128 at launch. If the producer keeps 32, each consumer can have 160. S, P and O take 80 for D = 64
//    with 64 keys, 128 with 128 keys, 112 for D = 128 with 64 keys: these fit. For D = 128 with 128 keys they take all
//    160, and nothing is left for the rest.
//
// </details>
