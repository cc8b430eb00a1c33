// %% [markdown]
// # 24 · Passed on
//
// **Question.** In phase 23 the products are fast, and two small kernels stand around them. The one in front clears the
// sum of dQ, the one behind reads it again and rounds it. They only move bytes, and where sequences are short that
// takes a good part of the time. Can the kernel between them do both on the way?
//
// **Idea.** All blocks of a head add to the same Q tiles. Let each tile go from block to block: the first one *stores*
// its share of dQ, so nobody has to clear anything. The last one does not add its share. It takes the sum of the others
// out of the L2 cache, adds its own in registers, rounds, and stores dQ. It must know that the others are there. So
// shares are counted, and a block waits only for shares that have been drawn before its own.
//
// **Changed since 23.** Each Q tile has a count of the shares that have come. Two threads instead of one send dQ on,
// one for each place in shared memory. A block stays and draws one K/V tile after another. Q tiles are done from the
// last one to the first. And where each share waits for all before it, the sum has the same bits in every run: the
// deterministic mode needs no kernel of its own any more.

// %% tags=["hide-input"]
#include "phases/24-backward-fused/phase.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>

#include "phases/pages/cell.hpp"
#include "phases/pages/counted.hpp"
#include "phases/pages/exact.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/lesson.hpp"
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

using namespace flash;
using phase24::Mode;

// The tiles of a block: 64 queries at D = 128, 128 at D = 64, and always 128 keys.
static Options blocks_of(std::int64_t D) {
  return {.block_q = D == 64 ? 128 : 64, .block_k = 128};
}

template <class T>
using Lesson = HeadOf<T, phase24::phase>;

// %% [markdown]
// ## First, last, between
//
// A share of dQ is what one K/V tile adds to one Q tile. Which share is the last one is known without asking: with a
// causal mask it is that of the tile on the diagonal, without a mask that of the last K/V tile.
//
// Here are the shares of three K/V tiles and six Q tiles (N = 384, D = 128), without a mask and with a causal one. Not
// every Q tile has a sum in HBM:

// %% tags=["hide-input"]
CELL("Whose share is which") {
  constexpr int kQ = 6, kK = 3;
  static constexpr const char *stored = "#9ec9e6", *added = "#f2b96b", *last = "#7fc8a9", *alone = "#cfe8dc";
  svg::Canvas canvas(760, 256, "Shares of dQ: which are stored, added, rounded");
  int counts_of[2][4] = {};
  for (const bool causal : {false, true}) {
    const double left = causal ? 420 : 40;
    canvas.text(left, 48, causal ? "causal: Q tile, K/V tile" : "no mask: Q tile, K/V tile");
    for (int q = 0; q < kQ; ++q)
      for (int k = 0; k < kK; ++k) {
        const int shares = causal ? q / 2 + 1 : kK;
        if (k >= shares) continue;
        const int role = shares == 1 ? 3 : k == 0 ? 0 : k == shares - 1 ? 2 : 1;
        ++counts_of[causal][role];
        const char* const colours[] = {stored, added, last, alone};
        canvas.rect(left + 44 * q, 60 + 44 * k, 42, 42, std::string("fill=\"") + colours[role] + "\"");
        canvas.text(left + 44 * q + 10, 86 + 44 * k, std::to_string(q) + "," + std::to_string(k), "font-size=\"12\"");
      }
  }
  const std::pair<const char*, const char*> legend[] = {
      {stored, "stores"}, {added, "adds"}, {last, "takes the sum, rounds"}, {alone, "alone: rounds"}};
  for (int i = 0; i < 4; ++i) {
    canvas.rect(40 + 170 * i, 220, 16, 16, std::string("fill=\"") + legend[i].first + "\"");
    canvas.text(62 + 170 * i, 233, legend[i].second);
  }
  picture("24-shares", canvas.str());
  std::printf("Q tile, K/V tile                stored  added  taken  alone\n");
  for (const bool causal : {false, true})
    std::printf("%-30s %6d %6d %6d %6d\n", causal ? "causal" : "no mask", counts_of[causal][0], counts_of[causal][1],
                counts_of[causal][2], counts_of[causal][3]);
  expect(counts_of[0][0] == 6 && counts_of[0][1] == 6 && counts_of[0][2] == 6, "no mask: six of each");
  expect(counts_of[1][0] == 4 && counts_of[1][1] == 2 && counts_of[1][2] == 4 && counts_of[1][3] == 2,
         "causal: 4, 2 and 4, and two tiles never leave their block but rounded");
  if (!counts()) return;
  constexpr std::uint64_t N = 384, D = 128, tile = 64 * D * 4;
  bool same = true;
  for (const bool causal : {false, true}) {
    Lesson<half> lesson(N, D);
    Options options = blocks_of(D);
    options.mask = causal ? Mask::top_left() : Mask::none();
    lesson.forward(options.mask);
    const int(&of)[4] = counts_of[causal];
    std::printf("%s\n", causal ? "causal" : "no mask");
    Ledger l = phase24::backward(lesson.backward(options), machine, {}, Mode::Atomic).ledger;
    same &= equal(l.array("dQ_sum").written_bytes, of[0] * tile, "  bytes stored");
    same &= equal(l.array("dQ_sum").reduced_bytes, of[1] * tile, "  bytes added");
    same &= equal(l.array("dQ_sum").read_bytes, of[2] * tile, "  bytes taken");
    const HbmBytes formula = phase24::hbm_bytes(lesson.backward(options), {64, 128});
    same &= equal(l.hbm_read_bytes(), formula.read, "  all bytes read, by the formula");
    same &= equal(l.hbm_written_bytes(), formula.written, "  all bytes written, likewise");
    const Ledger before = phase23::backward(lesson.backward(options), machine, {}, Mode::Atomic).ledger;
    std::printf("  HBM bytes of phase 23 %s, here %s\n", grouped(before.hbm_bytes()).c_str(),
                grouped(l.hbm_bytes()).c_str());
  }
  expect(same, "predicted = counted");
}

// %% [markdown]
// Without a mask six shares are stored, six are added, and six sums are taken for the rounding. With one, Q tiles 0 and
// 1 see a single K/V tile: they are rounded where they are made. Four are stored and taken, and two shares are added in
// between.
//
// ## Who waits for whom
//
// A share may be added only when the first one has been stored, and rounded only when all others have come. So blocks
// wait for blocks, and that is dangerous: on a full GPU a block may wait for one that cannot begin before it has ended.
// Nothing says in which order a GPU starts blocks. Therefore the blocks that *run* draw numbers, and a number says
// which K/V tile is next:
//
// ```{region} pieces.cuh relay
// ```
//
// A block waits for shares of smaller keys in its own head alone, and these have smaller numbers. Whoever has drawn
// such a number runs. It may have to finish another share first, but that one has a smaller number still. The share
// with the smallest number waits for nobody.
//
// ## Blocks that stay
//
// A block per K/V tile begins and ends often. It sets up its barriers, draws, and waits for its first tiles. All the
// while the multiprocessor has nothing to multiply: a block needs all of its shared memory, so no other one is there to
// fill the gap. So there is one block per multiprocessor, as in phase 17, and it draws share after share. One thread
// draws the next one as soon as it has loaded the last tile of this one:
//
// ```{region} pieces.cuh load-shares
// ```
//
// The first Q tiles of the next share are there when the consumers come to them. Only K and V are late: dK and dV go
// out through their places.
//
// ```{question}
// Q tiles are done from the last one down. With a causal mask block 0 of a head has all Q tiles, the last block one or
// two. Four blocks with eight Q tiles begin at the same time, and each makes a tile per step. How many steps does a
// block wait, all together? And how many would it be from the *first* tile up, as in phase 23?
// ```

// %% tags=["hide-input"]
// Four blocks of a head, eight Q tiles, a causal mask: tile q has shares of blocks 0 to q / 2.
static constexpr int kBlocks = 4, kTiles = 8;
enum Deed { kStores, kAdds, kRounds, kAlone };
static Deed deed_of(int block, int tile) {
  return tile / 2 == 0 ? kAlone : block == 0 ? kStores : block == tile / 2 ? kRounds : kAdds;
}
// What a block does in each step: a tile, or -1, where it waits. A share stands in one of two places until it may
// leave, between two steps. A block makes no tile whose place is taken; and no last share before the others have left.
static std::vector<std::vector<int>> steps_of(bool downwards) {
  std::vector<std::vector<int>> steps(kBlocks);
  int made[kBlocks] = {}, shares[kTiles] = {}, places[kBlocks][2];  // places: the tile that stands there
  std::fill_n(&places[0][0], 2 * kBlocks, -1);
  for (bool busy = true; std::exchange(busy, false);) {
    for (int block = 0; block < kBlocks; ++block)
      for (int& tile : places[block])
        if (tile >= 0 && (block == 0 || deed_of(block, tile) == kRounds || shares[tile] > 0)) ++shares[tile], tile = -1;
    for (int block = 0; block < kBlocks; ++block) {
      const int first = 2 * block, all = kTiles - first;
      if (made[block] == all) continue;
      busy = true;
      const int tile = downwards ? kTiles - 1 - made[block] : first + made[block];
      int& place = places[block][made[block] % 2];
      const bool waits = place >= 0 || (deed_of(block, tile) == kRounds && shares[tile] < block);
      steps[block].push_back(waits ? -1 : tile);
      if (!waits) place = tile, ++made[block];
    }
  }
  return steps;
}
// The recorded kernel on such a problem: how many shares of a Q tile were stored and added, and in how many launches of
// TMA's stores dQ was written. A block has several K/V tiles, in an order that the blocks' numbers leave open.
struct Deeds {
  std::array<int, kTiles> stored{}, added{}, rounded{};
};
static Deeds recorded_deeds() {
  constexpr int N = 64 * kTiles, D = 128;
  Lesson<half> lesson(N, D);
  Options options = blocks_of(D);
  options.mask = Mask::top_left();
  lesson.forward(options.mask);
  Recording run;
  backward(phase24::phase, lesson.backward(options), Where::Checked, {.threads = 1, .recording = &run}, Mode::Atomic);
  Deeds deeds;
  for (const Recording::Step& step : run.steps)
    for (const Recording::Part& part : step.parts) {
      if (part.kind != Recording::Kind::store || run.launches[step.launch].block[0] != 384) continue;
      const Recording::Place& array = run.arrays[std::size_t(part.source)];
      const bool sum = array.name == "dQ_sum";
      if (!sum && array.name != "dQ") continue;
      const auto tile = std::size_t(part.from[0].first / (64 * D * (sum ? 4 : 2)));
      ++(!sum ? deeds.rounded : part.adds ? deeds.added : deeds.stored)[tile];
    }
  return deeds;
}

CELL("From which end") {
  static constexpr const char* colours[] = {"#9ec9e6", "#f2b96b", "#7fc8a9", "#cfe8dc"};
  const double left = 92, wide = 58, high = 28;
  svg::Canvas canvas(760, 384, "Four blocks of a head, causal: what each does with its share of which Q tile");
  int waited[2] = {}, length[2] = {};
  for (const bool downwards : {true, false}) {
    const double top = downwards ? 62 : 212;
    canvas.text(16, top - 10, downwards ? "from the last Q tile down" : "from the first one up",
                "font-weight=\"bold\"");
    const auto steps = steps_of(downwards);
    for (int block = 0; block < kBlocks; ++block) {
      const double y = top + high * block;
      canvas.text(16, y + 18, "block " + std::to_string(block));
      length[downwards] = std::max(length[downwards], int(steps[block].size()));
      for (std::size_t i = 0; i < steps[block].size(); ++i) {
        const int tile = steps[block][i];
        waited[downwards] += tile < 0;
        canvas.rect(left + wide * double(i), y, wide - 2, high - 3,
                    std::string("fill=\"") + (tile < 0 ? "#dddddd" : colours[deed_of(block, tile)]) + "\"");
        if (tile >= 0) canvas.text(left + wide * double(i) + 24, y + 17, std::to_string(tile));
      }
    }
  }
  const char* names[] = {"stores", "adds", "adds the sum, rounds", "alone: rounds"};
  for (int i = 0; i < 5; ++i) {
    const double x = 16 + 132 * i + (i > 2 ? 48 : 0);
    canvas.rect(x, 346, 16, 16, std::string("fill=\"") + (i == 4 ? "#dddddd" : colours[i]) + "\"");
    canvas.text(x + 22, 359, i == 4 ? "waits" : names[i]);
  }
  picture("24-which-end", canvas.str());
  std::printf("                            down   up\n");
  std::printf("steps that blocks wait      %4d %4d\n", waited[1], waited[0]);
  std::printf("steps until all have ended  %4d %4d\n", length[1], length[0]);
  expect(waited[1] == kBlocks - 1, "downwards each block but the first waits for one step");
  expect(waited[0] == 3 + 6 + 9, "upwards they wait for 3, 6 and 9 steps");
  if (!counts()) return;
  const Deeds deeds = recorded_deeds();
  bool same = true;
  for (std::size_t tile = 0; tile < kTiles; ++tile) {
    int of[4] = {};
    for (int block = 0; block <= int(tile) / 2; ++block) ++of[deed_of(block, int(tile))];
    same = same && deeds.stored[tile] == of[kStores] && deeds.added[tile] == of[kAdds] && deeds.rounded[tile] > 0;
  }
  expect(same, "a recorded run: the same shares are stored, added and rounded");
}

// %% [markdown]
// ```{answer}
// Downwards 3: all blocks begin with the same tile, and each but the first waits once, when its own share is first the
// last one. Upwards 18: the last block has two tiles, and block 0 comes to them at its very end. All the while the
// block keeps a multiprocessor from working for another head.
// ```
//
// A thread for each of the two places sends dQ on. It gives the place to the consumers when it is free. Where theirs is
// the last share, it first has TMA bring the sum of the others there.
//
// ```{region} pieces.cuh pass-on
// ```
//
// Five things stand between a share and who reads it:
//
// - `cp_async_bulk_wait<0>`: TMA has written, or added. The wait with `_read` would only say that the place is free.
// - `red_release_add`: counts, and whatever this thread knows goes with it.
// - `wait_at_least`: sees the count, and knows from then on what those know who have counted.
// - `fence_proxy_async_global`: what this thread knows, the copies that it begins see, too.
// - the place's mbarrier: its bytes say that the sum has come, to the lanes that add to it.
//
// ```{exercise} 24.1
// ```
//
// The consumers make dQ as before. Whether a share is stored, added or rounded is decided where it leaves:
//
// ```{region} attention.cuh consumer
// ```
//
// ## The same order in every run
//
// `wait_at_least(done, 1)` lets shares come as they like, and the sum of dQ differs by its last bits from run to run.
// `wait_at_least(done, kv_tile)` lets them come in the order of the keys. It is the same kernel.
//
// ```{question}
// In an order each share waits for the one before it. Does a head of 128 K/V tiles then take 128 times as long?
// ```

// %%
CELL("Right, and the same bits") {
  for (const std::int64_t D : {64, 128}) {
    const Options causal{.mask = Mask::top_left(), .block_q = blocks_of(D).block_q, .block_k = 128};
    Lesson<bfloat16> before(300, D), now(300, D);
    before.forward(causal.mask), now.forward(causal.mask);
    phase23::backward(before.backward(causal), Where::Sim, {}, Mode::Atomic);
    phase24::backward(now.backward(causal), machine, {}, Mode::Deterministic);
    const auto old = floors(before, causal), ours = floors(now, causal);
    std::printf("D = %3d, errors in floors   dQ %.2f   dK %.2f   dV %.2f   (phase 23: %.2f   %.2f   %.2f)\n", int(D),
                ours[0], ours[1], ours[2], old[0], old[1], old[2]);
    expect(*std::max_element(ours.begin(), ours.end()) <= 1.6, "P and dS rounded: about √2 floors");
    bool same = true;
    for (const Completion completion : {Completion::eager, Completion::random})
      for (const Order order : {Order::reverse, Order::random}) {
        Lesson<bfloat16> again(300, D);
        again.forward(causal.mask);
        phase24::backward(again.backward(causal), machine, {.order = order, .seed = 24, .completion = completion},
                          Mode::Deterministic);
        same = same && same_bits(again.dq, now.dq) && same_bits(again.dk, now.dk) && same_bits(again.dv, now.dv);
      }
    expect(same, "blocks, threads and copies in any order: the same bits of dQ, dK and dV");
  }
}

// %% [markdown]
// ```{answer}
// No. While one block's share of a tile is on its way, the next tile's is being made. A block runs a little behind the
// one before it, by the time that a share takes to get to the L2 cache and be counted. Once all have fallen into step
// nobody waits, and the delay is paid once.
// ```
//
// The delay shrinks further where blocks of a head do not begin together. So heads are done in sections, with a mask
// and without: of a section first all heads' first K/V tiles, then the second ones. When the last one wants the sum,
// the first share has long been there.
//
// ## Keys less their mean
//
// A row of dS sums to zero, but for dLSE. Rounded, it misses that by e, and dQ then errs by e times the mean of K, much
// where the mean is long. Pages 20 and 23 add up e of a row over all blocks. Here each block takes its own part of e
// times the mean off its share, in registers. So no sums of rows go through HBM, and their order is no question.
//
// Adding up the rows of dS takes time, though. And where the mean is short beside what the keys differ by, it changes
// dQ's error by a few percent only. The kernel in front looks at some keys, as phase 20's does, and says for each head
// whether the rows are to be summed:
//
// ```{region} pieces.cuh centre
// ```

// %%
CELL("Where the mean matters") {
  for (const Distribution distribution : {Distribution::Normal, Distribution::Uniform, Distribution::Shifted}) {
    Lesson<bfloat16> lesson(512, 64, distribution);
    lesson.forward();
    phase24::backward(lesson.backward(), Where::Sim, {}, Mode::Deterministic);
    const auto errors = floors(lesson);
    const char* const name = distribution == Distribution::Normal    ? "N(0,1)"
                             : distribution == Distribution::Uniform ? "uniform[0,1)"
                                                                     : "N(1,1)";
    std::printf("%-13s errors in floors   dQ %.2f   dK %.2f   dV %.2f\n", name, errors[0], errors[1], errors[2]);
    expect(errors[0] <= 2.4 && errors[1] <= 2 && errors[2] <= 2, "within the contract's bars");
  }
}

// %% [markdown]
// ## The rest of the kernel
//
// ```{region} tiles.cuh tiles
// ```
// ```{region} pieces.cuh block
// ```
// ```{region} attention.cuh setup
// ```
// ```{region} attention.cuh producer
// ```
// ```{region} attention.cuh loop
// ```
// ```{region} pieces.cuh row-pieces
// ```
// ```{region} attention.cuh launch
// ```
//
// ## D = 256
//
// Here another thing is short. dV and dK of 64 keys are 128 KiB, half of a multiprocessor's registers, and so a block
// cannot have 128 keys. With half of the keys it adds to dQ twice as often. The kernel is in a file of its own,
// `wide.cuh`. One warpgroup makes P and dV, the other dS and dK, and each hands to the other what that needs.
//
// ```{question}
// A tile of 64 queries and 64 keys has five products of 512 clocks each. A multiprocessor's share of what the memory
// system can add is about 16 bytes a clock. What limits such a block? And two of them that each make half of the
// columns of dQ, for the keys of both?
// ```

// %% tags=["hide-input"]
CELL("Why pairs of blocks") {
  constexpr int Br = 64, Bc = 64, D = 256, kProducts = 5, kMacs = 2048, kAdded = 16;  // a clock: products, bytes
  const int products = kProducts * Br * Bc * D / kMacs, alone = Br * D * 4 / kAdded, pair = alone / 2;
  std::printf("clocks of a tile, for each block\n");
  std::printf("  products                     %5d\n", products);
  std::printf("  dQ added, a block by itself  %5d\n", alone);
  std::printf("  dQ added, by a pair          %5d\n", pair);
  expect(products < alone && pair < products, "alone the additions are the limit; in pairs the products are");
  const int registers = Bc * D / 128 + Br * Bc / 128 + Bc * 128 / 2 / 128 + Br * Bc / 2 / 128;
  std::printf("registers of a lane: dV or dK, S or dP, half of K or V, P or dS: %d of 240\n", registers);
  expect(registers <= 240 && Bc * D / 128 * 2 > 240, "one of dV and dK fits a lane, both do not");
}

// %% [markdown]
// ```{answer}
// By itself a block adds 64 KiB for each tile: 4096 clocks, beside 2560 for the products. Two blocks of a cluster send
// each other dS, 8 KiB a tile. Then each adds half of the columns, for both: 2048 clocks.
// ```
//
// ```{region} wide.cuh wide-tiles
// ```
// ```{region} wide.cuh consumer
// ```
// ```{region} wide.cuh setup
// ```
// ```{region} wide.cuh producer
// ```
// ```{region} wide.cuh loop
// ```
// ```{region} wide.cuh store
// ```
//
// ## What came of it
//
// **Expected**: up to N = 2048 at least 1.05 times the speed of phase 23, on the mean. The order of the shares was to
// cost 12 %. At D = 256 we expected 1.15 times the speed of cuDNN. **Measured** on an H200: the verdicts stand at the
// end of this page in the book, the tables at [the end of part 5](../../docs/book/part-5.md).
//
// What was tried beside it, on the same H200:
//
// - The sums of dS's rows take time. They are left out where K's mean does not ask for them.
// - Slower: blocks of a head begin together, as without sections, up to N = 2048. There the order of the shares cost
//   more, too.
// - Slower: to look before each Q tile whether it has a mask or extreme rows, and to have code of its own for a tile
//   without. Which code a tile needs must then be known before S is begun, and that wait costs more than the code
//   saves.
// - Faster, and kept: such code, where no tile has to be looked at. Which tiles a mask concerns follows from the K/V
//   tile. Whether a head has an extreme row the kernel in front finds out, once for all.
// - Hardly faster: blocks numbered by `blockIdx.x`, without drawing. It gains next to nothing and no longer says why
//   blocks cannot wait for ever.
// - Faster, and kept: blocks that stay. They were expected to gain what a block's beginning and end take, which weighs
//   most where sequences are short, with a mask and without. Without a mask they do. With a causal one they gain
//   little: there each K/V tile's last share must wait for the others, and the consumers wait with it.
// - Not kept: the last share is added like the others, the sum fetched back into its place, and a warp rounds it there,
//   so that no consumer waits. Causal passes at D = 64 gain several percent; without a mask, where one block rounds all
//   Q tiles of a head, as much is lost.
// - Not kept: three warpgroups of consumers and 192 keys a block at D = 64. Two thirds of the additions; faster with a
//   causal mask up to N = 4096, slower otherwise.
// - No difference: an L2 hint for the sums of dQ; the last tile's dQ made by the other warpgroup.
// - From N = 4096 on, waiting for shares costs nearly as much as clearing and rounding did. Phase 23 without its sums
//   of rows would be hardly slower there.
//
// **What you saw.** A sum over blocks needs neither a clear before it nor a pass behind it, if the first one knows that
// it is the first, and the last one that it is the last. An order that is kept by counting costs only the delay from
// one block to the next. And a rule that lets nobody wait for who has not begun keeps it all going.
//
// **To think about.** 1. Why is the count raised only behind `cp_async_bulk_wait<0>`? 2. Which block writes dQ of rows
// that see no key at all? 3. The last share could be added by TMA like the others, and the sum be rounded behind it.
// What would that cost? 4. Would it be enough if a block waited in a loop for blocks with smaller `blockIdx.x`?
//
// <details><summary>Answers</summary>
//
// 1. Until then TMA may still be adding. The wait with `_read` says only that shared memory has been read.
//
// 2. The kernel in front, for whole Q tiles that see nothing. In other tiles such a row has dS = 0, and its dQ is 0
//    like any other sum.
//
// 3. A trip to the L2 cache and back for 32 KiB. And who adds last would be known only afterwards: some warps would
//    have to fetch the tile, while the block's registers are taken.
//
// 4. On the GPUs that we know it works. Nothing promises that blocks begin in the order of their numbers.
//
// </details>
