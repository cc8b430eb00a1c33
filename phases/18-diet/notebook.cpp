// %% [markdown]
// # 18 · A diet for warpgroups
//
// **Question.** In phase 17 the tensor cores still wait, though no longer for memory. A warpgroup has instructions of
// its own to issue between two products, and its products read operands that they have read before. Phase 13 took
// instructions out of a loop around `mma`. What is there to take out around `wgmma`?
//
// **Idea.** Six things, none of them large. The picture numbers them where they act.
//
// **Changed since 17.** The consumers' code, a third stage for K, and the barriers of Q. Each of the six is a kernel of
// its own on this page, on top of those before it, and a seventh step makes phase 18 of the last one. The whole kernel
// follows.

// %% tags=["hide-input"]
#include "phases/18-diet/phase.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <random>

#include "phases/17-persistent/phase.hpp"
#include "phases/18-diet/steps/steps.hpp"
#include "phases/pages/barrier_life.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;

static const Options blocks{.block_q = 128, .block_k = 128};

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-34s predicted %10s   counted %10s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}

// %% tags=["hide-input"]
CELL("Where there is something to take out") {
  svg::Canvas canvas(760, 318, "Phase 17: one warpgroup, where a Q tile ends and the next begins");
  const double left = 82, scale = 33.5;
  canvas.text(16, 72, "wgmma", "fill=\"#666\"");
  canvas.text(16, 112, "the rest", "fill=\"#666\"");
  const auto bar = [&](int row, double from, double length, const std::string& text, bool next_tile) {
    canvas.rect(left + from * scale, 52 + 40 * row, length * scale - 2, 32,
                next_tile ? "rx=\"2\" fill=\"#f2d0a4\"" : "rx=\"2\" fill=\"#9ec9e6\"");
    canvas.text(left + (from + length / 2) * scale, 72 + 40 * row, text, "text-anchor=\"middle\"");
  };
  bar(0, 0, 2, "S 0", false), bar(0, 2, 2, "PV 1", false), bar(1, 2, 3, "softmax 0", false);
  bar(0, 5, 2, "PV 0", false), bar(1, 7, 2, "O leaves", false);
  bar(0, 9, 2, "S 3", true), bar(1, 11, 3, "softmax 3", true);
  bar(0, 14, 2, "S 2", true), bar(0, 16, 2, "PV 3", true), bar(1, 16, 3, "softmax 2", true);
  static const char* changes[] = {"S reads Q again, for each K/V tile, out of shared memory",
                                  "S needs its K early, and K has two stages, as V has",
                                  "the maximum: an instruction for each score",
                                  "each tile is asked whether a mask hides some of it",
                                  "Q comes for both warpgroups at once: who is done first waits for the other",
                                  "nothing is multiplied beside the way out of O, nor beside the first softmax"};
  const auto number = [&](double x, double y, int n) {
    canvas.raw("<circle cx=\"" + svg::num(x) + "\" cy=\"" + svg::num(y) + "\" r=\"9\" fill=\"#d55e00\"/>");
    canvas.text(x, y + 4, std::to_string(n), "text-anchor=\"middle\" fill=\"white\" font-weight=\"bold\"");
  };
  for (const auto& [at, row, n] : {std::tuple{0.4, 0, 1}, {14.4, 0, 2}, {2.4, 1, 3}, {11.4, 1, 4}, {9.4, 0, 5}})
    number(left + at * scale, 54 + 40 * row, n);
  number(left + 12.5 * scale, 68, 6);
  for (int n = 1; n <= 6; ++n) {
    number(left + 8, 146 + 26 * (n - 1), n);
    canvas.text(left + 26, 150 + 26 * (n - 1), changes[n - 1]);
  }
  canvas.text(left, 308, "Blue: the Q tile that ends, orange: the next one; K/V tiles 3 to 0. Lengths are made up.",
              "fill=\"#666\"");
  picture("18-places", canvas.str());
}

// %% [markdown]
// The steps are compiled for one setting: bf16, D = 128, tiles of 128 × 128. What we expected of each leaned on [a
// table of part 4](../../docs/book/part-4.md#what-each-part-is-worth), in which most of these changes are taken out of
// phase 18, one at a time. What each was worth on an H200 follows the expectation ([all
// figures](../../docs/results/hopper-steps-h200.md)). Of the seven predictions two came true, the fifth and the
// seventh, and the first at two of six shapes. The second, third and sixth gave less than we had expected, the fourth
// more.
//
// ## 1 · Q in registers
//
// `wgmma` takes its left operand from shared memory or from registers. P has come from registers since phase 14. Q does
// not change while a block goes through K and V, so it can stay in registers, too. Its layout there is P's, and its
// fragments are fetched as in phase 11, out of a tile that TMA has swizzled. `load_q` does it once for a Q tile.
//
// A lane needs D/4 registers for Q. At D = 128 that makes 32, beside 64 for S, 32 for P and 64 for O: 192 of the 232
// that a consumer has.
//
// Once Q has been fetched, its place in shared memory is free for the next Q tile, after the first S instead of the
// last. But when exactly? `ldmatrix` reads by the ordinary way, and TMA will write by its own. So the lane puts
// `fence_proxy_async` between the two. And it arrives at the ring's `empty` only when the first S is done: S needs what
// was fetched, so the fetch is over then. A release right behind `ldmatrix` went wrong in a trial on an H200: the
// arrival overtook the fetch, TMA overwrote Q, and a few rows were wrong in most runs. (The checked simulator reports
// it: exhibit `tma_q_released_early` of its museum, tests/simt/museum_tma.cu.)
//
// ```{difference} ../17-persistent/attention.cuh steps/1-registers.cuh
// ```
//
// *Expected*: `wgmma` reads less. The tensor cores did not often wait for these reads, so a per cent or two, and mostly
// for short sequences.
//
// ```{question}
// D = 64, tiles of 128 × 128. For a K/V tile, a warpgroup's products read Q, K and V out of shared memory in phase 17.
// How many bytes is that, and how many are left in phase 18?
// ```

// %% tags=["hide-input"]
CELL("What wgmma reads") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not count\n"));
  const std::uint64_t N = 256, D = 64, T = N / 128, warpgroups = 2, warps = 8;
  const std::uint64_t q = 64 * D * 2, kv = 2 * 128 * D * 2, tiles = T * T * warpgroups;
  Rounded<half> e(random_example(N, D));
  const Ledger before = phase17::forward(e.problem(blocks), Where::Checked).ledger;
  const Ledger now = phase18::forward(e.problem(blocks), Where::Checked).ledger;
  std::printf("a K/V tile: %s bytes with Q, %s without\n\n", grouped(q + kv).c_str(), grouped(kv).c_str());
  bool same = equal(before.wgmma_shared_bytes, tiles * (q + kv), "phase 17: bytes that wgmma reads");
  same &= equal(now.wgmma_shared_bytes, tiles * kv, "phase 18: bytes that wgmma reads");
  same &= equal(now.shared_read_requests - before.shared_read_requests, T * warps * D / 16, "ldmatrix for Q");
  same &= equal(now.shared_bytes_peak / 1024 * 1024, before.shared_bytes_peak / 1024 * 1024 + 128 * D * 2,
                "shared memory (whole KiB)");
  same &= equal(now.tensor_flops, before.tensor_flops, "FLOP of wgmma");
  same &= equal(now.bank_conflicts(), before.bank_conflicts(), "bank conflicts");
  expect(same, "predicted = counted");
}

// %% [markdown]
// ```{answer}
// 40,960 and 32,768: a fifth less. Of what S alone reads, Q is a third.
// ```
//
// *Measured*: 0.5 to 1.2 %.
//
// ## 2 · A third stage of K
//
// S runs ahead of PV, so a tile of K is needed earlier than its V. A block has room for one more stage, and K gets it.
//
// ```{difference} steps/1-registers.cuh steps/2-stages.cuh
// ```
//
// *Expected*: a per cent or two for long sequences. With two stages most copies are early enough. *Measured*: half a
// per cent for long ones, and a loss of 1.6 % at N = 512. In the finished phase 18 the third stage helps long causal
// sequences, and does next to nothing at the other shapes of part 4's table (`18-two-stages-of-k`).
//
// ## 3 · The maximum of three integers
//
// Phase 13 did this with its `mma`, [in its seventh step](../13-instruction-diet/steps.cpp), and here it is done again
// for a warpgroup's scores. Of a tile of 128 keys a lane has 64 scores, 32 of each of its two rows, and for each score
// there is one `fmaxf`. Hopper has an instruction for the maximum of three integers, which halves that. Read as
// integers, the bits of floats that are not negative are in the same order as the floats. A negative float is a
// negative integer, so it can never win against one that is not negative. Only among negative floats is the order
// reversed.
//
// ```{region} maximum.cuh maximum
// ```
//
// So the result is right if it is 0 or more. It may also be negative, or so large that the rounding of c · m would show
// in P (`is_extreme`). The lanes of a warp take a {term}`vote`, `__any_sync`. If one of them says yes, the whole warp
// goes the way that phase 14 goes for large maxima: `fmaxf`, and m is subtracted first. Rows that have seen no key go
// that way, too: their −∞ is negative.
//
// ```{exercise} 18.1
// ```
//
// ```{difference} steps/2-stages.cuh steps/3-maximum.cuh
// ```
//
// *Expected*: two per cent. A softmax has some ten instructions for two scores, and one of them goes away. Besides, c ·
// m is kept from tile to tile, which saves two multiplications for each.
//
// ```{question}
// All scores of a row are negative. What does `integer_maxima` find, and what becomes of the row?
// ```

// %% tags=["hide-input"]
CELL("Floats as integers") {
  const auto integer = [](float x) { return std::bit_cast<std::int32_t>(x); };
  const auto largest = [&](const std::vector<float>& row) {
    std::int32_t top = INT32_MIN;
    for (const float x : row) top = std::max(top, integer(x));
    return std::bit_cast<float>(top);
  };
  for (const std::vector<float>& row :
       {std::vector<float>{0.5f, 3.25f, 2.0f}, {-7.5f, 0.25f, -0.5f}, {-7.5f, -0.25f, -0.5f}})
    std::printf("%6.2f %6.2f %6.2f   as floats %6.2f   as integers %6.2f\n", row[0], row[1], row[2],
                *std::max_element(row.begin(), row.end()), largest(row));
  std::mt19937 random(18);
  std::normal_distribution<float> score;
  int right = 0, asked = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<float> row(8);
    for (float& x : row) x = score(random);
    const float top = *std::max_element(row.begin(), row.end());
    if (top < 0) continue;
    ++asked, right += largest(row) == top;
  }
  std::printf("%d random rows of 8 whose maximum is not negative\n", asked);
  expect(right == asked, "the maximum of integers is theirs");

  // The same attention, with scores of one sign each.
  const auto error_of = [&](float sign, bool same_as_before) {
    Example e = random_example(256, 64);
    for (std::size_t i = 0; i < e.q.size(); ++i) e.q.data()[i] = std::abs(e.q.data()[i]);
    for (std::size_t i = 0; i < e.k.size(); ++i) e.k.data()[i] = sign * std::abs(e.k.data()[i]);
    Rounded<half> before(e), now(e);
    phase17::forward(before.problem(blocks), Where::Sim);
    phase18::forward(now.problem(blocks), machine);
    const double error = worst_head(now.widened()), old = worst_head(before.widened());
    std::printf("scores all %s: error of phase 17 %.1e, of phase 18 %.1e\n", sign < 0 ? "negative" : "positive", old,
                error);
    const bool same = std::memcmp(before.o.data(), now.o.data(), now.o.size() * sizeof(half)) == 0;
    return error <= 1.05 * old && (same || !same_as_before);
  };
  expect(error_of(1, true), "positive scores: the bits of phase 17");
  expect(error_of(-1, false), "negative scores: as precise");
}

// %% [markdown]
// ```{answer}
// It finds the smallest of them, −7.50 in the third line above. That is less than 0, so the warp takes the path with
// `fmaxf`, and the row's result is as precise as any other's. What it costs is time, and only there.
// ```
//
// *Measured*: 0.6 to 0.8 %, and nothing for short causal sequences.
//
// ## 4 · Two loops
//
// Until here the code asks for each tile whether it is the first of its Q tile, and whether a mask hides some of it.
// Now a Q tile's first K/V tile, those that may be masked, and all others have code of their own, and none of it asks.
// `step` is compiled twice, as in phase 13.
//
// ```{difference} steps/3-maximum.cuh steps/4-loops.cuh
// ```
//
// *Expected*: a per cent or two. A comparison for each tile costs little, but without the branch the compiler may move
// instructions from one side of it to the other. *Measured*: 2 to 2.6 %, the largest of these steps; 0.4 % for short
// causal sequences.
//
// ## 5 · Q for each warpgroup
//
// In phase 17 Q has one pair of barriers. Here each warpgroup has a pair for its own 64 rows. The drawing thread first
// fills the last rows, once their warpgroup has left them, and then the first ones. Here this order hardly matters. In
// phase 19 it does, where warpgroups pass over tiles that they do not see.
//
// ```{difference} steps/4-loops.cuh steps/5-barriers.cuh
// ```
//
// *Expected*: next to nothing. The two warpgroups have equally much to do, and K and V keep them together.
//
// ```{question}
// A place of Q is empty when all have arrived at its barrier. How many arrivals is that in phase 17, how many in phase
// 18? And for which warpgroup must the drawing thread wait, before it loads rows 64 to 127 of the next Q tile?
// ```

// %% tags=["hide-input"]
CELL("The life of Q's barriers") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not record\n"));
  Rounded<half> e(random_example(512, 64));  // four Q tiles for two blocks
  Recording before, now;
  phase17::forward(e.problem(blocks), Where::Checked, {.recording = &before});
  phase18::forward(e.problem(blocks), Where::Checked, {.recording = &now});
  const std::vector<std::string> two{"Q tile", "next Q tile"};
  const std::vector<svg::RoleOf> roles{{"drawing thread", 9, 9}, {"warpgroup 0", 0, 3}, {"warpgroup 1", 4, 7}};
  picture("18-q-before", svg::barrier_life("Phase 17: one pair of barriers for Q", before,
                                           {{"rows 0 to 127", "Q_ring.full", "Q_ring.empty", two}}, roles));
  picture("18-q", svg::barrier_life("Phase 18: a pair for each warpgroup's rows", now,
                                    {{"rows 0 to 63", "Q_ring[0].full", "Q_ring[0].empty", two},
                                     {"rows 64 to 127", "Q_ring[1].full", "Q_ring[1].empty", two}},
                                    roles));
  bool own = true;
  const auto print = [&](const Recording& run, const char* phase, const std::string& barrier, int first, int warps) {
    const std::vector<int> arrived = svg::arrived_at(run, barrier);
    std::vector<std::size_t> times(8);
    for (const int warp : arrived) ++times[std::size_t(warp)];
    const std::size_t q_tiles = times[std::size_t(first)];  // of the first block
    std::printf("%s, %-16s %d arrivals for each Q tile, by warps %d to %d\n", phase, (barrier + ":").c_str(),
                int(arrived.size() / q_tiles), *std::min_element(arrived.begin(), arrived.end()),
                *std::max_element(arrived.begin(), arrived.end()));
    for (int warp = 0; warp < 8; ++warp)
      own = own && times[std::size_t(warp)] == (warp >= first && warp < first + warps ? q_tiles : 0);
  };
  print(before, "phase 17", "Q_ring.empty", 0, 8);
  print(now, "phase 18", "Q_ring[0].empty", 0, 4);
  print(now, "phase 18", "Q_ring[1].empty", 4, 4);
  expect(own, "each warp arrives once for each Q tile, and in phase 18 at the barrier of its own warpgroup");
}

// %% [markdown]
// ```{answer}
// 8 and 4: one lane arrives for each warp that reads the place. In phase 17 the drawing thread waits for both
// warpgroups. In phase 18 it waits for warpgroup 1 alone. By the time it loads the rows of warpgroup 0 it has waited
// for both, since it fills one place after the other.
// ```
//
// *Measured*: 0 to 0.6 %.
//
// ## 6 · The seam
//
// The picture shows how a Q tile ends and the next one begins, as one warpgroup sees it. The lengths of the bars are
// made up; their order is not.

// %% tags=["hide-input"]
CELL("From one Q tile to the next") {
  const double s = 2, pv = 2, softmax = 3, finish = 2;  // made up
  svg::Canvas canvas(760, 252, "The end of a Q tile and the beginning of the next, of one warpgroup");
  double next[2] = {};
  for (const bool diet : {false, true}) {
    const double top = diet ? 162 : 62, scale = 31.5;
    canvas.text(16, top - 8, diet ? "phase 18" : "phase 17", "font-weight=\"bold\"");
    canvas.text(16, top + 20, "wgmma", "fill=\"#666\"");
    canvas.text(16, top + 52, "the rest", "fill=\"#666\"");
    const auto bar = [&](int row, double from, double length, const std::string& text, bool next_tile) {
      canvas.rect(90 + from * scale, top + 2 + 32 * row, length * scale - 2, 28,
                  next_tile ? "rx=\"2\" fill=\"#f2d0a4\"" : "rx=\"2\" fill=\"#9ec9e6\"");
      canvas.text(90 + (from + length / 2) * scale, top + 20 + 32 * row, text, "text-anchor=\"middle\"");
      return from + length;
    };
    // S of K/V tile 0 and PV of tile 1 are issued together; the softmax runs beside PV.
    const double scores = bar(0, 0, s, "S 0", false), output = bar(0, scores, pv, "PV 1", false);
    double at = std::max(output, bar(1, scores, softmax, "softmax 0", false));
    if (!diet) {
      at = bar(0, at, pv, "PV 0", false);
      at = bar(1, at, finish, "O leaves", false);
      at = bar(0, at, s, "S 3", true);
      at = bar(1, at, softmax, "softmax 3", true);
    } else {
      const double s_done = bar(0, at, s, "S 3", true), pv_done = bar(0, s_done, pv, "PV 0", false);
      at = std::max(pv_done, bar(1, s_done, softmax, "softmax 3", true));
      at = bar(1, at, finish, "O leaves", false);
    }
    next[diet] = at;
    bar(0, at, s, "S 2", true), bar(0, at + s, pv, "PV 3", true);
  }
  canvas.text(90, 244, "Blue: the Q tile that ends, orange: the next one; K/V tiles 3 to 0.", "fill=\"#666\"");
  picture("18-seam", canvas.str());
  expect(next[1] < next[0], "the loop of the next Q tile begins earlier");
}

// %% [markdown]
// In phase 17 nothing runs beside the first softmax of a Q tile. Here the first S stands where an S always stands:
// right before a PV, which then runs beside its softmax. The code pays for it. `run` goes over all Q tiles of the
// block, and two of them are under way at once. So what belongs to the one that ends has a name of its own, `done` and
// `its`, while `work`, `keys` and `rows` belong to the next.
//
// ```{difference} steps/5-barriers.cuh steps/6-seam.cuh
// ```
//
// *Expected*: for each Q tile there is one softmax fewer that nothing runs beside. With four K/V tiles, N = 512, that
// is some three per cent; with 64 of them, nothing that can be measured. *Measured*: 0.7 % at N = 512, with a mask
// 1.5 %; 0.2 % for longer ones, but with a mask a loss of 1 to 1.4 %.
//
// ## 7 · What a backward pass needs
//
// For a backward pass phase 18 can keep m, l and what rounding took from O. A second kernel does that, `kKeeps`. It
// uses functions of [phase 13](../13-instruction-diet/notebook.cpp) and two more for warpgroups.
//
// ```{region} ../13-instruction-diet/training.cuh hopper
// ```
// ```{region} ../13-instruction-diet/training.cuh keeps
// ```
// ```{difference} steps/6-seam.cuh attention.cuh
// ```
//
// *Expected*: no change of the first kernel. *Measured*: none.
//
// ## All seven, counted
//
// ```{question}
// The simulator counts bytes and loads, no instructions and no time. Which of the seven changes do its counters show?
// ```

// %% tags=["hide-input"]
CELL("Step by step, counted") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not count\n"));
  const std::uint64_t N = 384, D = 128, T = N / 128, q = 64 * D * 2, kv = 2 * 128 * D * 2, warps = 8;
  std::vector<const Phase*> kernels{&phase17::phase};
  kernels.insert(kernels.end(), phase18::steps.begin(), phase18::steps.end());
  kernels.push_back(&phase18::phase);
  std::printf("%-20s %12s %16s %14s\n", "", "wgmma reads", "loads of shared", "shared memory");
  std::vector<Rounded<bfloat16>> results;
  Ledger first;
  bool same = true, counted = true;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    Rounded<bfloat16>& now = results.emplace_back(random_example(N, D));
    const Ledger l = forward(*kernels[i], now.problem(blocks), Where::Checked).ledger;
    std::printf("%-20s %12s %16s %14s\n", kernels[i]->name, grouped(l.wgmma_shared_bytes).c_str(),
                grouped(l.shared_read_requests).c_str(), grouped(l.shared_bytes_peak).c_str());
    if (i == 0) first = l;
    counted = counted && l.wgmma_shared_bytes == T * T * 2 * (i == 0 ? q + kv : kv) &&
              l.shared_read_requests == first.shared_read_requests + (i == 0 ? 0 : T * warps * D / 16) &&
              l.shared_bytes_peak == first.shared_bytes_peak + (i < 2 ? 0 : 128 * D * 2);
    same = same && std::memcmp(now.o.data(), results[0].o.data(), now.o.size() * sizeof(bfloat16)) == 0 &&
           std::memcmp(now.lse.data(), results[0].lse.data(), now.lse.size() * sizeof(float)) == 0;
  }
  expect(counted, "predicted = counted, of each");
  expect(same, "the same bits from phase 17 to phase 18");
}

// %% [markdown]
// ```{answer}
// The first and the second. With Q in registers `wgmma` reads 1,179,648 bytes instead of 1,474,560, and `ldmatrix`
// brings the loads from 85 to 277. With a third stage a block has 230,400 bytes of shared memory instead of 197,632.
// The other five change when something is done, or by which instruction. The bits are the same throughout.
// ```
//
// ## The kernel
//
// Shared memory and the barriers, Q as the left operand, and what a consumer does:
//
// ```{region} attention.cuh tiles
// ```
// ```{region} attention.cuh q-in-registers
// ```
// ```{region} attention.cuh consumer
// ```
//
// The two roles, and the launch, which is as it was:
//
// ```{region} attention.cuh setup
// ```
// ```{region} attention.cuh producer
// ```
// ```{region} attention.cuh loop
// ```
// ```{region} attention.cuh launch
// ```

// %% [markdown]
// ## Run it
//
// The products take the same numbers in the same order, wherever Q comes from, and a maximum is the same number however
// it was found. Only the path that subtracts m first rounds in another way. With a causal mask the first rows of a Q
// tile may take it. In the K/V tile that they begin with, the first row sees a single key, whose score is as often
// negative as not. If it is negative, the whole warp takes that path. Here K has the sign that makes it so for row 0.

// %% tags=["hide-input"]
CELL("The same bits, and where not") {
  const std::int64_t N = 300, D = 64, Br = 128;
  // Rows whose O, and rows whose LSE differs from phase 17's.
  const auto differing = [&](Mask causal, Completion completion, Order order) {
    Example e = random_example(N, D);
    const float sign = head(e.q, 0).row(0).dot(head(e.k, 0).row(0)) < 0 ? 1.0f : -1.0f;
    for (std::size_t i = 0; i < e.k.size(); ++i) e.k.data()[i] *= sign;
    Rounded<half> before(e), now(e);
    const Options options{.mask = causal, .block_q = Br, .block_k = 128};
    phase17::forward(before.problem(options), Where::Sim);
    phase18::forward(now.problem(options), machine, {.order = order, .seed = 18, .completion = completion});
    std::array<std::vector<std::int64_t>, 2> rows;
    for (std::int64_t i = 0; i < N; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (std::memcmp(before.o.data() + i * D, now.o.data() + i * D, D * sizeof(half)) != 0) rows[0].push_back(i);
      if (std::memcmp(&before.lse[at], &now.lse[at], sizeof(float)) != 0) rows[1].push_back(i);
    }
    return rows;
  };
  bool same = true, first = true;
  for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
    for (const Order order : {Order::forward, Order::random}) {
      const auto none = differing(Mask::none(), completion, order),
                 causal = differing(Mask::top_left(), completion, order);
      same = same && none[0].empty() && none[1].empty();
      for (const auto& rows : causal)
        for (const std::int64_t i : rows) first = first && i % Br < 16;
      if (completion != Completion::late || order != Order::forward) continue;
      std::printf("rows that differ from phase 17:   of O   of LSE\n");
      std::printf("no mask %30d %8d\n", int(none[0].size()), int(none[1].size()));
      std::printf("causal  %30d %8d\n", int(causal[0].size()), int(causal[1].size()));
    }
  expect(same, "no mask: the bits of phase 17, whenever copies and products are done");
  expect(first, "causal: no row differs but those of a Q tile's first warp");
}

// %% [markdown]
// ## What did not help
//
// - **Turns.** FlashAttention-3 lets its two warpgroups take turns by named barriers ([phase
//   17](../17-persistent/notebook.cpp) has some): while one has its softmax, the other multiplies ("ping-pong"). In
//   this kernel it makes nothing faster. With two warpgroups and a PV that runs beside each softmax, the tensor cores
//   have work without it.
// - **The exponentials before the wait.** The code waits for PV behind the softmax. The compiler moves most of the
//   exponentials behind that wait. Forcing them in front of it made no difference.
// - **One fence fewer.** `fence_proxy_async` behind `ldmatrix` costs nothing that could be measured, so nothing would
//   be gained without it.
//
// **What you saw.** Each of the changes is small, and so is what it gains. What counts for an instruction now is
// whether the tensor cores had to wait for it.
//
// **Measured** on an H200: [the end of part 4](../../docs/book/part-4.md) has the table, and
// [another](../../docs/book/part-4.md#what-each-part-is-worth) of this kernel with one change each.
//
// **To think about.** 1. Q in registers costs 32 registers at D = 128. Why does that rule out tiles of 192 keys? 2.
// `max` of two integers and NaN: what does `integer_maxima` make of a row that has one, and where is it noticed? 3.
// Release K before `wgmma_wait<1>`. Which exhibit of tests/simt/museum_wgmma.cu is that? 4. With one K/V tile per Q
// tile, which of the products still run beside a softmax?
//
// <details><summary>Answers</summary>
//
// 1. At D = 128 S would take 96 registers, P 48 and O 64: 208 of 232. With Q that makes 240.
//
// 2. As an integer a NaN without a sign is larger than all numbers, so m is NaN; one with a sign never wins against
//    anything that is not negative. Either way its own exponential is NaN, and with it l: the row's O and LSE are NaN,
//    as they must be. The warp's question is not disturbed, since a comparison with NaN is false.
//
// 3. `wgmma_released_early`: the stage is given back while S still reads K.
//
// 4. Each PV but the block's last: it runs beside the softmax of the next Q tile. No S does, since the next step is to
//    wait for it.
//
// </details>
