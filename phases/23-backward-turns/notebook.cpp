// %% [markdown]
// # 23 · Taking turns
//
// **Question.** In phase 22 the two warpgroups of a block meet at a barrier in each Q tile: dQ sums over the keys of
// both, so neither can make its part before both have stored dS. Who comes early waits. Behind the barrier both do the
// same at the same time, multiply or calculate, and then their lanes add dQ to HBM, four numbers at a time. Must they
// meet? And must a warpgroup stand there until its sums have left?
//
// **Idea.** They take turns. One warpgroup makes *all* of dQ of a tile, the other one all of the next tile's, each a
// tile late. So what a turn needs has usually been there for a while. And dQ has another way out: it is put into shared
// memory, and one thread tells TMA to add it up.
//
// **Changed since 22.** The barrier of all consumers has become two pairs of mbarriers, for dS and for dQ's way out. A
// second thread of the producer's warpgroup adds. m and 1 / l of a row have become one number, which saves
// instructions and room. And with a causal mask, blocks go through the heads in sections.

// %% tags=["hide-input"]
#include "phases/23-backward-turns/phase.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <tuple>

#include "phases/pages/cell.hpp"
#include "phases/pages/counted.hpp"
#include "phases/pages/exact.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/lesson.hpp"
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

using namespace flash;
using phase23::Mode;

// The tiles of a block: 64 queries at D = 128, 128 at D = 64, and always 128 keys.
static Options blocks_of(std::int64_t D) {
  return {.block_q = D == 64 ? 128 : 64, .block_k = 128};
}

template <class T>
using Lesson = HeadOf<T, phase23::phase>;

// %% [markdown]
// ## A barrier, or turns
//
// dS goes through two places in shared memory, as in phase 22. What has changed is who waits, and for what. Each place
// has a pair of mbarriers, as K's stages have had since [page 15](../15-warp-specialised/notebook.cpp). Only this time
// it is not TMA that fills it, but eight warps. *Full* says: dS of all 128 keys is there. *Empty* says: dQ has been
// made of it.
//
// ```{region} pieces.cuh handover
// ```
//
// `publish` is the order of things in three lines. Lanes store by ordinary instructions, while `wgmma` and TMA read
// shared memory by a way of their own: hence the fence, which each lane calls for what it has stored. `__syncwarp` then
// makes sure that all of them have, and one lane arrives for the warp.
//
// So a warpgroup that has stored its half of dS goes on at once: with dK, and with the next tile. When it has come to
// dQ of the tile *before*, the other one has stored its half long ago, as a rule.
//
// ```{question}
// A block has six Q tiles. How often does a warpgroup find that the other one's half of dS is not there yet: in phase
// 22, and here?
// ```

// %% tags=["hide-input"]
// The recorded kernel of dK and dV, block 0, one of four warps of each warpgroup, the loading thread, the adding one.
static Recording recorded(const Phase& phase, std::int64_t D, std::int64_t N, Order order, unsigned seed) {
  Lesson<half> lesson(N, D);
  lesson.forward();
  Recording run;
  backward(phase, lesson.backward(blocks_of(D)), Where::Checked,
           {.order = order, .seed = seed, .threads = 1, .recording = &run}, Mode::Atomic);
  return run;
}
static bool shown(const Recording& run, const Recording::Step& step) {
  return step.block == 0 && run.launches[step.launch].block[0] == 384 && step.warp >= 0 &&
         (step.warp % 4 == 0 || step.warp == 9);
}
static bool touches(const Recording& run, const Recording::Step& step, Recording::Kind kind, const std::string& place) {
  return std::any_of(step.parts.begin(), step.parts.end(), [&](const Recording::Part& part) {
    return part.kind == kind && run.launches[step.launch].chip[part.place].name == place;
  });
}

CELL("How often dS is not there yet") {
  if (!counts()) return;
  constexpr int T = 6, D = 128;
  int meetings[2] = {}, late = 0;
  bool only_the_last = true;
  for (const bool turns : {false, true})
    for (const auto& [order, seed] : {std::pair{Order::forward, 0u}, {Order::reverse, 0u}, {Order::random, 1u}}) {
      const Recording run = recorded(turns ? phase23::phase : phase22::phase, D, T * 64, order, seed);
      std::map<std::string, int> arrived,
          turns_at;  // of dS_ring.full[…]: warps that have stored; turns that came there
      int met = 0, missing = 0;
      for (const Recording::Step& step : run.steps) {
        if (step.block != 0 || run.launches[step.launch].block[0] != 384) continue;
        for (const Recording::Arrival& a : step.arrivals)
          arrived[run.launches[step.launch].mbarriers[a.mbarrier].name] += int(a.count);
        met += step.warp == 0 && step.waits == "bar.sync 3";
        if (step.warp % 4 != 0 || step.waits.rfind("dS_ring.full", 0) != 0) continue;
        const int turn = turns_at[step.waits]++;
        if (arrived[step.waits] >= 8 * (turn + 1)) continue;
        ++missing, only_the_last = only_the_last && turn == T / 2 - 1 && step.waits == "dS_ring.full[1]";
      }
      meetings[turns] = std::max(meetings[turns], met), late = std::max(late, missing);
    }
  std::printf("%d Q tiles, three orders of threads    phase 22   phase 23\n", T);
  std::printf("all consumers meet at a barrier       %9d  %9d\n", meetings[0], meetings[1]);
  std::printf("turns that come before dS is there    %9s  %9d\n", "", late);
  expect(meetings[0] == T + 1 && meetings[1] == 1, "a barrier for each Q tile is gone; the one before the end is left");
  expect(late <= 1 && only_the_last, "at most the last turn comes before dS is there");
}

// %% [markdown]
// ```{answer}
// In phase 22 six times: at a barrier there is always one who comes first. Here a turn is a tile late, and dS has been
// stored meanwhile. Only the last turn cannot hide behind a next tile.
// ```
//
// How far can one warpgroup run ahead of the other? In phase 22 it stores the next dS only behind the barrier at which
// both have met. Here it may be two tiles ahead with dS, as many as there are places. Q and dO have two stages, too, so
// more places for dS alone would let nobody drift further.
//
// The table in `Tiles` lists all barriers of the block:
//
// ```{region} attention.cuh tiles
// ```
//
// ```{exercise} 23.1
// ```
//
// ## Whose turn
//
// dQ of even tiles is made by warpgroup 1, of odd ones by warpgroup 0. In the picture, time goes from left to right, as
// a recorded run of the checked simulator went. It has no clock: a column is a step of the run, not a length of time.
// Grey is a wait for a barrier that is not complete yet.

// %% tags=["hide-input"]
CELL("Two warpgroups taking turns") {
  if (!counts()) return;
  using Kind = Recording::Kind;
  constexpr int T = 6, D = 128;
  const Recording run = recorded(phase23::phase, D, T * 64, Order::random, 1);
  static constexpr const char *work = "#9ec9e6", *turn = "#7fc8a9", *waits = "#d5d5d5", *leaves = "#f2b96b";
  struct Bar {
    int row;  // 0, 2: a warpgroup's tiles; 1, 3: its turns; 4: the adding thread
    double from, to;
    int tile;  // -1: none
    const char* colour;
  };
  struct Role {
    double tile_since = 0, turn_since = 0, waits_since = 0;
    int tile = 0, turn = 0;
    std::string waits_for = {};
  };
  Role roles[3];                                     // two warpgroups, the adding thread
  std::vector<Bar> bars, waiting;                    // waiting: until the barrier is complete
  std::vector<std::array<double, 2>> stored;         // column, row
  std::vector<double> sent;                          // reductions
  std::vector<int> made_by(T, -1);                   // dQ of tile i
  std::map<std::string, std::vector<double>> comes;  // arrivals at a barrier, by all warps: their columns
  double column = 0;
  int gone = 0;
  for (const Recording::Step& step : run.steps) {
    if (step.block != 0 || run.launches[step.launch].block[0] != 384) continue;
    const auto& mbarriers = run.launches[step.launch].mbarriers;
    bool gives_q_back = false, gives_dq = false;
    for (const Recording::Arrival& a : step.arrivals) {
      const std::string& name = mbarriers[a.mbarrier].name;
      comes[name].insert(comes[name].end(), a.count, column);
      gives_q_back = gives_q_back || name.rfind("Q_ring.empty", 0) == 0;
      gives_dq = gives_dq || name.rfind("dQ_ring.full", 0) == 0;
    }
    if (!shown(run, step) || step.warp == 8) continue;
    const int number = step.warp == 9 ? 2 : step.warp / 4;
    Role& role = roles[number];
    int dq_of = -1;  // the tile whose dS it has waited for
    for (const Recording::Waited& w : step.waited) {
      const std::string& name = mbarriers[w.mbarrier].name;
      if (name.rfind("dS_ring.full", 0) == 0) dq_of = int(w.phases - 1) * 2 + (name == "dS_ring.full[1]");
      if (number == 2 || name != role.waits_for) continue;
      const double complete = comes[name].at(w.phases * mbarriers[w.mbarrier].arrivals - 1);
      const int row = number * 2 + (name.rfind("dS_ring.empty", 0) != 0);
      if (complete > role.waits_since) waiting.push_back({row, role.waits_since, complete, -1, waits});
      role.waits_for.clear();
    }
    const bool begins = touches(run, step, Kind::product, "K") && touches(run, step, Kind::product, "Q");
    const bool stores = touches(run, step, Kind::chip_write, "dS");
    if (begins) role.tile_since = column;
    if (stores) stored.push_back({column + 0.5, double(number * 2)});
    if (gives_q_back) bars.push_back({number * 2, role.tile_since, column + 1, role.tile++, work});
    if (dq_of >= 0) role.turn_since = column, role.turn = dq_of, made_by.at(dq_of) = number;
    if (gives_dq) bars.push_back({number * 2 + 1, role.turn_since, column + 1, role.turn, turn});
    for (const Recording::Part& part : step.parts) {
      if (number == 2 && part.kind == Kind::store) sent.push_back(column);
      if (number == 2 && part.kind == Kind::stored)
        bars.push_back({4, sent.at(gone), column + 1, gone, leaves}), ++gone;
    }
    column += begins || stores || gives_q_back || dq_of >= 0 || gives_dq || number == 2;
    if (step.waits.rfind("dS_ring", 0) == 0 || step.waits.rfind("dQ_ring", 0) == 0)
      role.waits_for = step.waits, role.waits_since = column;
  }
  const double left = 112, scale = 632 / column;
  const char* names[] = {"warpgroup 0", "its turns", "warpgroup 1", "its turns", "adding thread"};
  svg::Canvas canvas(760, 268, "Six Q tiles of a block: who works on which, and whose turn dQ is");
  for (int row = 0; row < 5; ++row) {
    canvas.text(16, 64 + 36 * row, names[row], row % 2 ? "fill=\"#666\"" : "");
    canvas.rect(left, 44 + 36 * row, 632, 30, "fill=\"#f6f6f6\"");
  }
  bars.insert(bars.end(), waiting.begin(), waiting.end());
  for (const Bar& bar : bars) {
    const double x = left + scale * bar.from;
    canvas.rect(x, 44 + 36 * bar.row, scale * (bar.to - bar.from), 30,
                std::string("stroke=\"white\" fill=\"") + bar.colour + "\"");
    if (bar.tile >= 0) canvas.text(x + 4, 57 + 36 * bar.row, std::to_string(bar.tile), "font-size=\"11\"");
  }
  for (const auto& [at, row] : stored) canvas.dot(left + scale * at, 66 + 36 * row, "fill=\"#d55e00\"");
  const std::pair<const char*, const char*> legend[] = {
      {work, "a Q tile"}, {turn, "dQ of a tile"}, {leaves, "is added up"}, {waits, "waits"}};
  for (int i = 0; i < 4; ++i) {
    canvas.rect(left + 124 * i, 238, 16, 16, std::string("fill=\"") + legend[i].first + "\"");
    canvas.text(left + 22 + 124 * i, 251, legend[i].second);
  }
  canvas.dot(left + 504, 246, "fill=\"#d55e00\"");
  canvas.text(left + 516, 251, "dS is stored");
  picture("23-turns", canvas.str());
  bool by_turns = true;
  for (int i = 0; i < T; ++i) by_turns = by_turns && made_by[i] == (i % 2 == 0);
  expect(by_turns, "dQ of even tiles is warpgroup 1's, of odd ones warpgroup 0's");
  expect(gone == T && roles[0].tile == T && roles[1].tile == T, "six tiles of each, six reductions");
}

// %% [markdown]
// What a thread does with a tile:
//
// ```{region} attention.cuh consumer
// ```
//
// A step begins as in phase 22: S and dP are begun, and P is made while dP is under way. Then the order depends on
// `kEarly`, that is on what the registers allow. With 64 queries (D = 128), dV is begun as soon as P is rounded, and
// runs while dS is made. With 128 queries (D = 64), S and dP take twice the registers. There dV is begun behind dS. In
// exchange dQ fits beside dK, and need not wait for it.
//
// These are all barriers of a step, in the order in which they are met:
//
// - `Q_ring.wait_full`, `dO_ring.wait_full`: TMA has brought the tile, and the numbers of its rows.
// - `dS_ring.wait_empty`: dQ of two tiles ago, whose dS lay in this place, has been made.
// - `publish(dS_ring)`: this warp's part of dS is there.
// - `leave_tile`: dV and dK are there, so nobody reads Q and dO of this tile any more. `wgmma_wait` orders what `wgmma`
//   reads. The numbers of rows were read by lanes, and `__syncwarp` says that all of them have.
// - whose turn it is: `dS_ring.wait_full` for the tile before, then `release` behind `wgmma_wait`.
// - `dQ_ring.wait_empty`: the adding thread says that TMA has read what lay in this place. Then the warps store dQ and
//   `publish` it.
//
// Behind the last tile one turn is left, and it falls to one of the two.
//
// ```{region} attention.cuh setup
// ```
// ```{region} attention.cuh loop
// ```
//
// ## Halves, or all
//
// In phase 22 each warpgroup made half of each dQ: 64 × 64 numbers. Here one makes all of it, 64 × 128 at D = 128, in
// `wgmma`s that are twice as wide.
//
// ```{question}
// A `wgmma` of 64 × n × 16 reads 64 × 16 numbers of its left operand and 16 × n of its right one from shared memory.
// Both phases multiply the same numbers. How many bytes does dQ of one tile read at D = 128, in phase 22 and here? And
// at D = 64?
// ```

// %% tags=["hide-input"]
CELL("What dQ reads of shared memory") {
  if (!counts()) return;
  constexpr int T = 3;
  const auto read_by_dq = [&](const Phase& phase, std::int64_t D) {  // bytes for one tile
    const Recording run = recorded(phase, D, T * blocks_of(D).block_q, Order::forward, 0);
    std::uint64_t bytes = 0;
    for (const Recording::Step& step : run.steps) {
      if (!shown(run, step) || step.warp > 4 || !touches(run, step, Recording::Kind::product, "dS")) continue;
      for (const Recording::Wgmma& w : step.wgmma)  // dQ's are the only ones of their step
        bytes += w.count * (64 * 16 + 16 * w.columns) * 2;
    }
    return bytes / T;
  };
  const auto half_each = [](std::uint64_t) { return 2 * (128 / 16) * (64 * 16 + 16 * 64) * 2; };
  bool same = true;
  for (const std::int64_t D : {128, 64}) {
    std::printf("D = %d\n", int(D));
    same &= equal(read_by_dq(phase22::phase, D), half_each(D), "  phase 22: two halves");
    const std::uint64_t products = D == 128 ? 1 : 2;  // of 64 x D, for 64 queries each
    same &=
        equal(read_by_dq(phase23::phase, D), products * (128 / 16) * (64 * 16 + 16 * D) * 2, "  phase 23: all of it");
  }
  expect(same, "predicted = counted");
}

// %% [markdown]
// ```{answer}
// 65,536 and 49,152: a quarter less, since dS is read once instead of twice. At D = 64 dQ is 128 × 64. The halves were
// other rows there, and all of it is two products of 64 × 64 again: nothing is saved.
// ```
//
// ## dQ's way out
//
// In phase 22 the lanes added dQ themselves, and stood there until the memory system had taken their additions. Here
// they put it into shared memory, 16 bytes a lane, in the order in which the sum lies in HBM. So the tile is one piece
// of memory on both sides, and `cp.reduce.async.bulk` adds it as a whole. One thread says so:
//
// ```{region} attention.cuh producer
// ```
//
// The thread that loads and the one that adds are of different warps: neither has to wait where the other does. Two
// waits guard the way out:
//
// - `cp_async_bulk_wait_read<1>`: all reductions but the last have read shared memory. So the *other* place may be
//   written again, and its `empty` is told so.
// - `cp_async_bulk_wait<0>` before the thread ends: the block's shared memory must live until TMA has read it.
//
// ```{exercise} 23.2
// ```
//
// ```{question}
// With 64 queries and D = 128, how many instructions of a warp add a tile's dQ in phase 22, if one adds 512 bytes? And
// how many do here?
// ```

// %% tags=["hide-input"]
CELL("Added by lanes, added by TMA") {
  if (!counts()) return;
  const std::uint64_t N = 384, D = 128, Br = 64, Bc = 128, pairs = N / Br * (N / Bc), tile = Br * D * 4;
  Lesson<half> lesson(N, D);
  lesson.forward();
  const Options options{.block_q = 64, .block_k = 128, .mode = Mode::Atomic};
  Ledger before = phase22::backward(lesson.backward(options), machine, {}, Mode::Atomic).ledger;
  const Run run = phase23::backward(lesson.backward(options), machine, {}, Mode::Atomic);
  Ledger now = run.ledger;
  const std::uint64_t once = N * D * 4, sum = before.array("dQ_sum").written_bytes - once;
  bool same = equal(sum, pairs * tile, "phase 22: bytes added by lanes");
  const std::uint64_t added = before.array("dQ_sum").write_requests - once / 512;
  same &= equal(added, pairs * tile / 512, "phase 22: additions, each of a warp");
  same &= equal(now.array("dQ_sum").reduced_bytes, pairs * tile, "phase 23: bytes added by TMA");
  same &= equal(now.array("dQ_sum").reduce_requests, pairs, "phase 23: reductions");
  same &= equal(now.array("dQ_sum").written_bytes, once, "phase 23: cleared by stores");
  same &= equal(now.array("dQ_sum").read_bytes, once, "phase 23: read by the last kernel");
  const HbmBytes formula = phase23::hbm_bytes(lesson.backward(options), {64, 128});
  same &= equal(now.hbm_read_bytes(), formula.read, "all bytes read, by phase.hpp's formula");
  same &= equal(now.hbm_written_bytes(), formula.written, "all bytes written, likewise");
  same &= equal(now.tensor_flops, before.tensor_flops - 16 * N * N, "FLOP: phase 22's, less its sums of rows");
  expect(same, "predicted = counted");
  std::printf("\n                        phase 22    phase 23\n");
  const auto line = [](const char* what, std::uint64_t a, std::uint64_t b) {
    std::printf("%-20s %11s %11s\n", what, grouped(a).c_str(), grouped(b).c_str());
  };
  line("HBM bytes", before.hbm_bytes(), now.hbm_bytes());
  line("shared memory", before.shared_bytes_peak, now.shared_bytes_peak);
  line("stores to shared", before.shared_write_requests, now.shared_write_requests);
  line("bank conflicts", before.bank_conflicts(), now.bank_conflicts());
  expect(now.bank_conflicts() == 0, "no bank conflict on dQ's way out");
}

// %% [markdown]
// ```{answer}
// 64: a tile has 64 × 128 × 4 bytes. Here it is one instruction of one thread. The simulator counts what
// TMA adds by itself: in phase 22 the same bytes were read *and* written.
// ```
//
// dQ's way out takes twice 32 KiB of shared memory. At D = 64 a tile has 128 queries, and dS takes as much again. That
// fills a multiprocessor's 227 KiB to the last kilobyte, and no place is left for three numbers a row.
//
// ## One number in place of two
//
// P = exp2(c · S − m) / l needs two numbers of a row, δ is the third. Written as exp2(c · S − (m + log₂ l)), P needs
// one, and an element two instructions instead of four. But page 09 warned: the sum is rounded, and what rounding takes
// from it is a factor on the whole row of P ([P must be the forward's](../../docs/backward.md)).
//
// ```{question}
// By which factor can a row of P be off if |m| is about 500, and by which if all logits are near −2·10⁶? What does it
// compare to: the rounding of P to fp16?
// ```

// %%
// By how much P is off in the worst of many rows, as a share of itself, with m + log2 l in one fp32 number.
static double worst_row(double size) {
  double worst = 0;
  for (int i = 0; i < 4096; ++i) {
    const float m = -float(size * (1 + i / 4096.0)) / 2, log2_l = std::log2(1 + float(i % 1021));
    const float both = m + log2_l;
    worst = std::max(worst, std::abs(std::exp2(double(m) + double(log2_l) - double(both)) - 1));
  }
  return worst;
}

CELL("What one number costs") {
  const double fp16 = std::exp2(-12), bf16 = std::exp2(-9);  // half a step of P, as a share of it, at the most
  std::printf("|m| up to    P is off by, at most\n");
  for (const double size : {16.0, 128.0, 512.0, 4096.0, 65536.0, 3e6})
    std::printf("%9.0f    %.1e\n", size, worst_row(size));
  std::printf("rounding P   %.1e in fp16, %.1e in bf16\n", fp16, bf16);
  expect(worst_row(512) <= std::exp2(-16), "up to 512: at most 2^-16, a sixteenth of fp16's rounding");
  expect(worst_row(3e6) > bf16, "near 3e6: more than bf16's rounding");

  // All logits alike and near -2e6, so P = 1/N; with one number it would be off as said above.
  Lesson<bfloat16> lesson(320, 64);
  std::fill(lesson.q.begin(), lesson.q.end(), from_float<bfloat16>(-512));
  std::fill(lesson.k.begin(), lesson.k.end(), from_float<bfloat16>(488));
  lesson.forward();
  phase23::backward(lesson.backward(), machine, {}, Mode::Atomic);
  const double error = floors(lesson)[2], floor = rounding_floor<bfloat16>(exact_gradients(lesson.backward()).dv);
  const float m = lesson.m[0], both = m + std::log2(lesson.l[0]);
  const double off = std::abs(std::exp2(double(m) + std::log2(double(lesson.l[0])) - double(both)) - 1);
  std::printf("\nall logits %.0f, 320 keys: dV is off by %.2f floors; with one number it would be %.1f more\n",
              -512.0 * 488 * 8, error, off / floor);
  expect(error <= 2 && off / floor > 10, "two numbers where they are needed: dV within 2 floors");
}

// %% [markdown]
// ```{answer}
// Up to 512 the sum is rounded by 2⁻¹⁶ at most, and P is off by 1.1e-05 of itself: much less than by its own rounding.
// Logits near two million are near three million in base 2. There the next fp32 number is a quarter away, and a row of
// P is off by up to 9.0e-02.
// ```
//
// So a *piece*, the numbers of 64 rows, says which of the two it is:
//
// ```{region} phase.hpp piece
// ```
//
// A block of the first kernel makes a piece. It also clears 64 rows of the sum of dQ:
//
// ```{region} pieces.cuh row-pieces
// ```
//
// Where a row of a piece is extreme, `base` has log₂ l alone, and m is fetched from HBM and subtracted first, as the
// forward pass did. All lanes read the same flags, so no warp diverges.
//
// ```{region} pieces.cuh elements
// ```
//
// ```{question}
// Two stages of pieces hold 8 bytes a row and a flag. With m and 1 / l apart it would be 12 bytes a row. Would that fit
// at D = 64, where a block may have 232,448 bytes of shared memory?
// ```

// %% tags=["hide-input"]
CELL("A full multiprocessor") {
  if (!counts()) return;
  bool same = true;
  for (const std::uint64_t D : {128, 64}) {
    const std::uint64_t Br = D == 64 ? 128 : 64, Bc = 128, limit = 232448;
    const std::uint64_t tiles = 2 * Bc * D * 2 + 2 * 2 * Br * D * 2, ds = 2 * Br * Bc * 2, dq = 2 * Br * D * 4;
    const std::uint64_t rows = 2 * Br / 64 * sizeof(phase23::RowPiece), barriers = (2 + 4 * 4) * 8;
    const std::uint64_t all = (tiles + ds + dq + rows + barriers + 1023) / 1024 * 1024;  // begins at a multiple of 1024
    Lesson<half> lesson(128, D);
    lesson.forward();
    const Ledger l = phase23::backward(lesson.backward(blocks_of(D)), machine, {}, Mode::Atomic).ledger;
    std::printf("D = %d: K, V, Q, dO %s, dS %s, dQ %s, rows %s, barriers %s\n", int(D), grouped(tiles).c_str(),
                grouped(ds).c_str(), grouped(dq).c_str(), grouped(rows).c_str(), grouped(barriers).c_str());
    same &= equal(l.shared_bytes_peak, all, "  bytes of shared memory");
    const std::int64_t left = std::int64_t(limit) - std::int64_t(tiles + ds + dq + 2 * Br * 12 + barriers);
    std::printf("  with 12 bytes a row: %lld bytes %s\n", (long long)std::abs(left),
                left < 0 ? "too many" : "are left");
    same &= all <= limit && (left < 0) == (D == 64);
  }
  expect(same, "predicted = counted; three numbers a row fit at D = 128 alone");
}

// %% [markdown]
// ```{answer}
// No. dS and dQ take 64 KiB each, twice those of K and V together, and 144 bytes would be missing.
// ```
//
// ## Sections
//
// With a causal mask the first K/V tiles of a head have most to do: all rows see them. In phase 22 they came first in
// *all* heads, so that short ones fill the gaps in the end. But then a head's Q and dO are read again only after those
// of all other heads, and the cache has lost them. Here heads are done in sections: as many at a time as the L2 cache
// has room for with Q, dO and the sum of dQ. [Page 17](../17-persistent/notebook.cpp) did the same with K and V.
//
// ```{region} pieces.cuh sections
// ```
//
// ```{region} attention.cuh store
// ```
// ```{region} attention.cuh launch
// ```
//
// ## Run it: the gradients of phase 22

// %%
CELL("Right, whenever copies arrive") {
  for (const std::int64_t D : {64, 128}) {
    const Options causal{.mask = Mask::top_left(), .block_q = blocks_of(D).block_q, .block_k = 128};
    Lesson<bfloat16> before(300, D), now(300, D);
    before.forward(causal.mask), now.forward(causal.mask);
    phase22::backward(before.backward(causal), Where::Sim, {}, Mode::Atomic);
    phase23::backward(now.backward(causal), machine, {}, Mode::Atomic);
    const auto old = floors(before, causal), ours = floors(now, causal);
    std::printf("D = %3d, errors in floors   dQ %.2f   dK %.2f   dV %.2f   (phase 22: %.2f   %.2f   %.2f)\n", int(D),
                ours[0], ours[1], ours[2], old[0], old[1], old[2]);
    expect(*std::max_element(ours.begin(), ours.end()) <= 1.6, "P and dS rounded: about √2 floors");
    bool same = true, near = true;
    for (const Completion completion : {Completion::eager, Completion::random})
      for (const Order order : {Order::forward, Order::random}) {
        Lesson<bfloat16> again(300, D);
        again.forward(causal.mask);
        phase23::backward(again.backward(causal), machine, {.order = order, .seed = 23, .completion = completion},
                          Mode::Atomic);
        same = same && same_bits(again.dk, now.dk) && same_bits(again.dv, now.dv);
        near = near && relative_error(again.matrix(again.dq), now.matrix(now.dq)) <= 1e-3;
      }
    expect(same, "copies eager or random, threads in two orders: the same bits of dK and dV");
    expect(near, "dQ is the same but for the order of its sum, which rounding can show");
  }
}

// %% [markdown]
// dK and dV belong to one block each, and no sum has changed its order. dQ is the sum of what several blocks add, in
// the order in which they come. The deterministic mode leaves it out here and has phase 20's kernel for it.
//
// ## Sums where they matter
//
// [Page 20](../20-backward-tensor-cores/notebook.cpp) has a cure for inputs with a mean: it sums the rows of dS.
// Phases 21 and 22 do so for all heads. Here shared memory is what the kernel is short of, and to read all of dS
// once more costs a tenth of the time and more. Page 20's formula says when that is worth it. With keys of mean μ
// and variance σ², dQ is √(2 + 2 μ²/σ²) floors off without the sums. Where μ² is less than σ²/8, a head loses at most
// √(2 + 1/4) = 1.5 in place of √2 = 1.41. There page 20's centre is a row of zeros, and the rows need not be summed.
// The kernel in front says for each head whether they are. A block asks once, and its turns branch.
//
// **Measured** on an H200: where the keys have no mean, all this costs 1 to 2 % of the time, and where they have one,
// 10 to 20 %. Slower were: the sums in two idle warps of the producer's warpgroup, which wait for shared memory too
// long; the loop compiled twice, with the sums and without; two kernels, of which a block ends the wrong one.

// %%
CELL("Which heads are summed") {
  std::printf("bf16, N = 512, D = 64     without the sums, predicted   dQ in floors\n");
  double worst = 0;
  for (const auto& [name, distribution, to_k, predicted] :
       {std::tuple{"N(0,1): without", Distribution::Normal, 0.0f, std::sqrt(2.0)},
        {"uniform[0,1): with", Distribution::Uniform, 0.0f, std::sqrt(8.0)},
        {"N(0,1), K + 4: with", Distribution::Normal, 4.0f, std::sqrt(34.0)}}) {
    Lesson<bfloat16> lesson(512, 64, distribution, to_k);
    lesson.forward();
    phase23::backward(lesson.backward(), Where::Sim, {}, Mode::Atomic);
    const double error = floors(lesson)[0];
    std::printf("%-25s %27.2f %14.2f\n", name, predicted, error);
    worst = std::max(worst, error);
  }
  expect(worst <= 1.6, "dQ: about √2 floors on all of them");
}

// %% [markdown]
// **Expected**, from trial kernels that did the same: 3 % at D = 128 and N = 8192 without a mask, for turns and
// reductions together. Either one alone was slower than phase 22. Sections should help where many heads are short.
// **Measured** on an H200: [the end of part 5](../../docs/book/part-5.md) has the table.
//
// What was tried beside it, on the same H200:
//
// - Slower: dV behind dS at D = 128, too; at D = 64, dQ behind dV and dK; sections of 8 MB for long sequences.
// - No difference: waiting until all reductions have read, instead of all but the last; a hint to the L2 cache to keep
//   the sum of dQ.
// - The price of extreme rows: the branch costs a little at D = 64, and nothing that can be measured at D = 128.
//
// **What you saw.** A sum over the work of two warpgroups does not need both to be there at the same time. It needs two
// places, and two barriers for each of them. What only leaves the chip needs no warp at all.
//
// **To think about.** 1. `my_turn` compares a stage with a warpgroup. Why is that the same as asking whether the tile
// is even? 2. Why does the adding thread give back the place of the reduction *before*, and not the one that it has
// just begun? 3. Leave `fence_proxy_async` out of `publish`. Which two readers may then see old bytes? 4. With one
// place for dS instead of two, would the block be slower, or come to a standstill?
//
// <details><summary>Answers</summary>
//
// 1. There are two stages, so a tile's stage is its number modulo 2, and `turn` stands at the tile before.
//
// 2. A reduction reads shared memory for a while. `cp_async_bulk_wait_read<1>` leaves the last one under way and says
//    that all before it have read. If the thread waited for the last one, too, the other place would stand idle
//    meanwhile.
//
// 3. `wgmma`, which reads dS for dQ, and TMA, which reads dQ.
//
// 4. It would come to a standstill. A warpgroup stores dS of a tile *before* its turn at the tile before. The place
//    would be free only behind that turn.
//
// </details>
