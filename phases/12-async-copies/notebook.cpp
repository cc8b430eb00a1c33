// %% [markdown]
// # 12 · Asynchronous copies
//
// **Question.** Phase 11 loads a tile, waits until it is there, multiplies, waits until all have multiplied, and loads
// the next tile. While it loads, the tensor cores do nothing; while it multiplies, nothing is on its way from HBM. Why
// not both at once?
//
// **Idea.** An ordinary load goes through registers: the thread has to wait for the value before it can store it to
// shared memory. {term}`cp.async` is a copy from global to shared memory that a thread only *begins*. It goes on to
// other work, and waits for the copy later. With room for two K/V tiles, two {term}`stages <stage>`, tile j + 1 arrives
// in one while tile j is multiplied in the other.
//
// **Changed since 11.** Two stages for K and V; `load_tile` begins copies instead of making them; one barrier per tile
// instead of two. Q's fragments are loaded once, in the first round, and stay in registers.

// %% tags=["hide-input"]
#include "phases/12-async-copies/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/11-swizzle/phase.hpp"
#include "phases/12-async-copies/steps/steps.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;

static const Options blocks{.block_q = 64, .block_k = 64};

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-30s predicted %10s   counted %10s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}

// %% [markdown]
// ## What may be known, and when
//
// Three instructions belong together:
//
// - `cp_async_16(to, from, bytes)` begins to copy 16 bytes. If `bytes` is 0, it reads nothing and writes zeros: that is
//   how rows beyond the end become zero.
// - `cp_async_commit()` closes a *group*: all copies that this thread has begun since its last group.
// - `cp_async_wait<n>()` waits until all but the last n groups of this thread are done.
//
// Between the first and the third, nothing is known about the destination. It may hold the old bytes or the new ones,
// and the source must not change. After the wait, the thread knows that its own copies are there. It knows nothing
// about those of other threads. For these it takes a barrier after the wait, as always when threads exchange something.
//
// A program that gets this wrong often works, because copies often arrive in time. The checked simulator therefore lets
// them arrive as late as it is allowed to, keeps NaN in the destination until then, and reports whoever touches it.
//
// ## Two stages, and three
//
// Before attention comes a kernel that does nothing but this. It adds up the tiles of x: tile j + 1 is on its way while
// tile j is added. A thread copies 16 bytes of a tile, and adds four numbers that another thread has copied. It is
// compiled for two stages and for three:
//
// ```{region} steps/stages.cuh stages
// ```
//
// With two stages one tile is on its way while another is added. With three, two tiles are, and the wait leaves the
// youngest group alone: `cp_async_wait<1>`. The picture is what the simulator recorded of one warp.

// %% tags=["hide-input"]
// The copies and the sums of a kernel with that many stages, as warp 0 went through them. Returns how many copies were
// on their way while a tile was added, at most.
static int draw_stages(svg::Canvas& canvas, double top, int stages, const std::vector<TraceEvent>& trace) {
  const double left = 84, step = 15;
  std::vector<TraceEvent> copies, waits;
  for (const TraceEvent& e : trace)
    if (e.warp == 0 && (e.name == "copy" || e.name == "wait")) (e.name == "copy" ? copies : waits).push_back(e);
  canvas.text(16, top, stages == 2 ? "Two stages: cp_async_wait<0>" : "Three stages: cp_async_wait<1>",
              "font-weight=\"bold\"");
  for (int stage = 0; stage < stages; ++stage)
    canvas.text(16, top + 30 + 32 * stage, "stage " + std::to_string(stage), "fill=\"#666\"");
  const auto bar = [&](const char* what, int tile, std::uint64_t begin, std::uint64_t end, const char* colour) {
    const double x = left + step * double(begin), y = top + 12 + 32 * (tile % stages),
                 width = step * double(end - begin);
    canvas.rect(x, y, width - 3, 27, std::string("rx=\"3\" fill=\"") + colour + "\"");
    canvas.text(x + width / 2 - 1, y + 18, (width > 60 ? what : "") + std::to_string(tile), "text-anchor=\"middle\"");
  };
  for (const TraceEvent& e : trace)
    if (e.warp == 0 && e.name == "barrier")
      canvas.rect(left + step * double(e.end) - 3, top + 8, 3, 32 * stages + 2, "fill=\"#d55e00\"");
  for (std::size_t tile = 0; tile < copies.size(); ++tile)
    bar("copy ", int(tile), copies[tile].begin, copies[tile].end, "#f2d0a4");
  int most = 0;
  for (const TraceEvent& e : trace) {
    if (e.warp != 0 || e.name != "add") continue;
    std::uint64_t end = e.end;  // the mark lasts until the next one; the sum until the next wait
    for (const TraceEvent& wait : waits)
      if (wait.begin > e.begin) end = std::min(end, wait.begin);
    bar("add ", int(e.value), e.begin, end, "#9ec9e6");
    const auto beside = [&](const TraceEvent& copy) { return copy.begin <= e.begin && copy.end >= end; };
    most = std::max(most, int(std::count_if(copies.begin(), copies.end(), beside)));
  }
  return most;
}

CELL("Copies on their way while a tile is added") {
  std::vector<float> x(5 * 512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(i % 512 + i / 512);
  svg::Canvas canvas(760, 296, "Five tiles through two stages and three: what is copied while what is added");
  bool right = true;
  std::array<int, 2> beside{};
  std::array<std::uint64_t, 2> in_flight{};
  for (const int stages : {2, 3}) {
    const phase12::SumWithStages& with = phase12::stages_on(machine);
    const phase12::Sum sum = (stages == 2 ? with.two : with.three)({.trace = "memory"}, x);
    beside[stages - 2] = draw_stages(canvas, stages == 2 ? 54 : 150, stages, sum.trace);
    in_flight[stages - 2] = sum.ledger.async_bytes_peak;
    for (std::size_t i = 0; i < 512; ++i) right = right && sum.y[i] == 5 * float(511 - i) + 10;
  }
  canvas.text(16, 282, "Time: steps of a warp. A copy lasts until it is waited for. Orange line: the barrier.",
              "fill=\"#666\"");
  picture("12-timeline", canvas.str());
  expect(right, "both add up the tiles");
  expect(beside[0] == 1 && beside[1] == 2,
         "while a tile is added one copy is on its way with two stages, two with three");
  if (!was_built(Where::Checked)) return;
  expect(in_flight[0] == 512 * 4 && in_flight[1] == 2 * 512 * 4,
         "counted: one tile of 2,048 bytes in flight, then two");
}

// %% [markdown]
// A third stage gives each copy twice the time to arrive, at the price of another tile of shared memory. Attention's
// tiles are large, and phase 12 takes two stages.
//
// ```{exercise} 12.1
// ```
//
// ## The code
//
// Tile j lies in stage j mod 2:
//
// ```{region} attention.cuh tiles
// ```
// ```{region} attention.cuh load-tile
// ```
//
// The plain loop at the end of `load_tile` is for rows that are no multiple of 16 bytes. It copies at once, as before,
// and the barrier that follows covers it, too.
//
// Copies of K and V of one tile are a group. Those of Q are in the first:
//
// ```{region} attention.cuh begin-copies
// ```
//
// A round of the loop begins with three steps, and their order is the whole design: wait, barrier, next copies.
//
// ```{region} attention.cuh loop
// ```
//
// The wait says: my copies of tile j are there. The barrier then says two things. All threads have come past their
// waits, so the whole tile is there. The second is the subject of the question below. Phase 11 needed two barriers to
// say the same, because it had one place only.
//
// ```{question}
// The copies of tile 2 go to the stage of tile 0. Why may they not begin before the barrier of round 1? And which tile
// is multiplied while they are under way?
// ```

// %% tags=["hide-input"]
CELL("Two stages") {
  svg::Canvas canvas(760, 196, "What the two stages hold, round by round");
  const int rounds = 5;
  bool alone = true;
  for (int stage = 0; stage < 2; ++stage)
    canvas.text(16, 82 + 44 * stage, "stage " + std::to_string(stage), "fill=\"#666\"");
  for (int round = 0; round <= rounds; ++round) {
    const double x = 80 + 112 * round;
    canvas.text(x + 54, 52, round == 0 ? "before the loop" : "round " + std::to_string(round - 1),
                "text-anchor=\"middle\" fill=\"#666\"");
    if (round > 0) canvas.rect(x - 3, 58, 3, 84, "fill=\"#d55e00\"");
    const auto box = [&](int tile, const char* what, const char* colour) {
      canvas.rect(x + 4, 60 + 44 * (tile % 2), 102, 38, std::string("rx=\"3\" fill=\"") + colour + "\"");
      canvas.text(x + 55, 84 + 44 * (tile % 2), std::string(what) + std::to_string(tile), "text-anchor=\"middle\"");
    };
    const int multiplied = round - 1, copied = round;
    if (multiplied >= 0) box(multiplied, "multiply tile ", "#9ec9e6");
    if (copied < rounds) box(copied, "copy tile ", "#f2d0a4");
    alone = alone && multiplied % 2 != copied % 2;
  }
  canvas.text(16, 182, "Orange line: wait for one's copies, then the barrier. Five K/V tiles.", "fill=\"#666\"");
  picture("12-stages", canvas.str());
  expect(alone, "a tile never arrives in the stage that is being multiplied");
}

// %% [markdown]
// ```{answer}
// Before it a slower thread may still be in round 0 and read tile 0, which the copies would overwrite. The barrier says
// that all threads have left that round. Tile 1 is multiplied meanwhile.
// ```
//
// ```{exercise} 12.2
// ```
//
// A fragment of Q is needed again for each K/V tile. Phase 11 fetched it again each time. Here a lane keeps its D/16
// fragments of 4 registers: 16 registers for D = 64, 32 for D = 128. With D = 256 it would be 64, beside 128 for O and
// 32 for S, and a thread has 255. So for D = 256 the kernel goes on fetching them.
//
// ```{region} attention.cuh keep-q
// ```
// ```{region} attention.cuh begin
// ```
//
// What this changed, against phase 11:
//
// ```{difference} ../11-swizzle/attention.cuh attention.cuh
// ```

// %% [markdown]
// ## Run it: whenever the bytes arrive
//
// If no thread reads a tile too early and none overwrites one too soon, it makes no difference when copies arrive. So
// we let the simulator choose: as late as possible, at once, or at random; threads in order, backwards, or at random. A
// kernel that has forgotten a wait or the barrier would give other bits in one of them, or a finding, or both. [The
// page on findings](../../docs/book/reading-a-finding.md) shows what one looks like.

// %% tags=["hide-input"]
CELL("The same bits, and those of phase 11") {
  Rounded<half> before(random_example(200, 64));
  phase11::forward(before.problem({.mask = Mask::top_left()}), Where::Sim);
  bool same = true;
  int runs = 0;
  for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
    for (const Order order : {Order::forward, Order::reverse, Order::random}) {
      Rounded<half> now(random_example(200, 64));
      phase12::forward(now.problem({.mask = Mask::top_left()}), machine,
                       {.order = order, .seed = 12, .completion = completion});
      same = same && std::memcmp(before.o.data(), now.o.data(), now.o.size() * sizeof(half)) == 0 &&
             std::memcmp(before.lse.data(), now.lse.data(), now.lse.size() * sizeof(float)) == 0;
      ++runs;
    }
  std::printf("%d runs on %s\n", runs, name(machine));
  expect(same, "copies late, eager or random, threads in three orders: the bits of phase 11");
}

// %% [markdown]
// ## Predicted = counted
//
// *Bytes in flight* are bytes that have been asked for and not yet waited for. They decide whether a kernel can keep
// HBM busy: what is on its way at one time, divided by how long a byte is on its way, is the rate at which bytes come.
// A block of this kernel has at most Q and the first tile of K and V in flight, and one tile of K and V in each later
// round.
//
// ```{question}
// Against phase 11: which of these halves, which grows, which stays the same? Barriers; shared memory; bytes read from
// HBM.
// ```

// %% tags=["hide-input"]
CELL("Barriers, shared memory, bytes in flight") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not count\n"));
  const std::uint64_t N = 256, D = 64, T = N / 64, pairs = T * T, tile = 64 * D * 2;
  Rounded<half> e(random_example(N, D));
  const Ledger before = phase11::forward(e.problem(blocks), Where::Checked).ledger;
  const Ledger now = phase12::forward(e.problem(blocks), Where::Checked).ledger;
  bool same = equal(now.barriers, pairs, "barriers");
  same &= equal(now.shared_bytes_peak, 5 * tile, "shared memory of a block");
  same &= equal(now.async_bytes_peak, 3 * tile, "bytes in flight, of a block");
  // ldmatrix: Q once a block, K and V with each tile; of all four warps. cp.async is no store of a thread.
  const std::uint64_t q = 4 * D / 16, kv = 4 * (4 * D / 16 + 4 * D / 16);
  same &= equal(now.shared_read_requests, T * q + pairs * kv, "loads of shared memory");
  same &= equal(now.shared_write_requests, 0, "stores to it");
  same &= equal(now.shared_wavefronts, 4 * (T * q + pairs * kv), "wavefronts");
  same &= equal(now.bank_conflicts(), 0, "of these, conflicts");
  expect(same, "predicted = counted");
  std::printf("\n                        phase 11    phase 12\n");
  const auto line = [](const char* what, std::uint64_t a, std::uint64_t b) {
    std::printf("%-20s %11s %11s\n", what, grouped(a).c_str(), grouped(b).c_str());
  };
  line("barriers", before.barriers, now.barriers);
  line("shared memory", before.shared_bytes_peak, now.shared_bytes_peak);
  line("bytes in flight", before.async_bytes_peak, now.async_bytes_peak);
  line("loads of fragments", before.shared_read_requests, now.shared_read_requests);
  line("HBM bytes", before.hbm_bytes(), now.hbm_bytes());
  line("FLOP of mma", before.tensor_flops, now.tensor_flops);
  expect(before.barriers == 2 * now.barriers, "half as many barriers");
  expect(before.hbm_bytes() == now.hbm_bytes() && before.tensor_flops == now.tensor_flops,
         "the same bytes from HBM and the same products");
}

// %% [markdown]
// ```{answer}
// Barriers halve, 16 instead of 32. Shared memory grows from three tiles to five, 40,960 bytes. The bytes from HBM stay
// the same: an asynchronous copy moves no less, it only begins earlier.
// ```
//
// The wavefronts of `cp.async` itself are not in this count: the simulator counts requests of threads, and these bytes
// reach shared memory without one. Nsight Compute counted them on an H200: four for each copy of a warp, where tiles
// are full ([benchmarks](../../docs/benchmarks.md)).
//
// The price is shared memory. With five tiles instead of three fewer blocks fit on a multiprocessor at a time, and a
// second block is the other way to have something to do while one waits.
//
// **What you saw.** A copy is begun, and waited for later. There are two places for tiles, and one barrier per tile
// guards both. Nothing that is counted in bytes or products has changed; what changed is *when*. The simulator has no
// clock, so this page cannot show what it is worth.
//
// **Measured:** on an H200; [the end of part 3](../../docs/book/part-3.md) has the table.
//
// **To think about.** 1. `warp.begin()` loads Q's fragments in round 0, and the loop asks for the round each time. Why
// does it not stand before the loop? 2. The small kernel commits an empty group where there is nothing left to copy.
// Why? Phase 12 does not: why not? 3. With one place for K and one for V they can still take turns: V is copied while S
// is computed, the next K while O is. Where do the barriers go? 4. A multiprocessor has 228 KiB of shared memory. How
// many blocks of this kernel fit for D = 64, 128 and 256?
//
// <details><summary>Answers</summary>
//
// 1. Q's copies are in the first group. Before the first wait and the first barrier nothing is known about them. Phase
// 13 takes one barrier more, in front of the loop.
//
// 2. Waits count groups. Without the empty one the youngest group in the last round is the last tile's own, and
// `cp_async_wait<1>` would leave it under way. `cp_async_wait<0>` leaves nothing under way: phase 12 needs no empty
// group.
//
// 3. Wait for K, barrier, begin V, compute S; wait for V, barrier, begin the next K, add to O. Each barrier also says
// that all have left the place that is filled next. That is two barriers a tile, and phase 11's three tiles of memory.
//
// 4. Five tiles of 64 rows are 40, 80 and 160 KiB, and each block costs 1 KiB more: 5 blocks, 2 and 1.
//
// </details>
