// %% [markdown]
// # 14 · From 12 to 14, step by step
//
// **Question.** Hopper copies whole tiles and multiplies them out of shared memory. How does a kernel get there that
// copies 16 bytes per thread and loads fragments?
//
// **Where it starts.** At [phase 12](../12-async-copies/notebook.cpp), not at 13. Phase 13's diet saves instructions
// between two `mma`: row tiles, addresses that differ by a constant, a rescale that is rare. Here there will be no
// `mma`, no fragments of K and no addresses of theirs. So 14 does not take up most of that diet, and growing it from 13
// would mean to take it out again. What 14 does keep of it comes back below, in its own words: the scale in a
// multiply-add, tiles from the last to the first, one division for a row, the longest Q tiles first.
//
// **Idea.** Eight small changes, each a whole kernel. The first five bring the softmax and the loop into the form that
// all Hopper phases share. Then come the layout, TMA and `wgmma`, one at a time.
// [Phase 14](notebook.cpp) is the ninth.
//
// **The setting.** Each step is compiled for one case: bf16, D = 128, tiles of 128 × 64. The predictions are about what
// the simulator counts. How much time each step is worth was measured on an H200 afterwards, and stands at the end.

// %% tags=["hide-input"]
#include "phases/14-tma-wgmma/steps/steps.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "phases/12-async-copies/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"

using namespace flash;
using phase14::steps;

// Only the checked simulator counts; a build with AddressSanitizer does not have it.
static bool counts() {
  if (was_built(Where::Checked)) return true;
  std::printf("this build has no checked simulator, and the fast one does not count\n");
  return false;
}

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-40s predicted %10s   counted %10s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}

// One head of 256 random rows: what each step makes of it, and phase 12 before them, phase 14 behind. Run once.
constexpr std::uint64_t N = 256, D = 128;
struct Result {
  Rounded<bfloat16> data;
  Ledger ledger;

  explicit Result(const Phase& phase) : data(random_example(N, D)) {
    Options options;
    if (&phase != &phase12::phase) options.block_q = 128, options.block_k = 64;
    ledger =
        flash::forward(phase, data.problem(options), was_built(Where::Checked) ? Where::Checked : Where::Sim).ledger;
  }
  bool same_lse(const Result& other) const {
    return std::memcmp(data.lse.data(), other.data.lse.data(), data.lse.size() * sizeof(float)) == 0;
  }
  bool operator==(const Result& other) const {
    return std::memcmp(data.o.data(), other.data.o.data(), data.o.size() * sizeof(bfloat16)) == 0 && same_lse(other);
  }
};
enum : std::size_t { copies, softmax, rows, finish, order, ahead, panels, tma, s_by_wgmma, last };
static Result& result_of(std::size_t step) {
  static const std::vector<const Phase*> phases = [] {
    std::vector<const Phase*> all = {&phase12::phase};
    all.insert(all.end(), steps.begin(), steps.end());
    all.push_back(&phase14::phase);
    return all;
  }();
  static std::vector<std::unique_ptr<Result>> kept(phases.size());
  if (!kept[step]) kept[step] = std::make_unique<Result>(*phases[step]);
  return *kept[step];
}
constexpr std::uint64_t blocks = N / 128, tiles = blocks * (N / 64), warps = 8;

// %% [markdown]
// ## 1 · Softmax in words
//
// What a lane does with its two rows is the same in all phases from here on, so it gets words of its own, in
// `softmax.cuh`. The scale goes into the multiply-add before the exponential, as [in phase
// 13](../13-instruction-diet/steps.cpp).
//
// ```{difference} ../12-async-copies/attention.cuh steps/1-softmax.cuh
// ```
//
// *Prediction*: other last bits, since c · s is no longer rounded by itself. A multiplication less for each score.
//
// ## 2 · Which keys a row sees, once
//
// Phase 12 works out for each masked tile which keys a lane's rows see. Now that is done ahead of the loop, in 32 bits.
// TMA counts rows in 32 bits, too.
//
// ```{difference} steps/1-softmax.cuh steps/2-rows.cuh
// ```
//
// *Prediction*: no bit and no counter changes.
//
// ## 3 · One division for a row
//
// Each element of O was divided, and stored by itself. Now each row is divided once, and a lane stores two neighbouring
// elements at a time. S and P become members, beside O: what `wgmma` works on must stay in the same registers while it
// runs.
//
// ```{difference} steps/2-rows.cuh steps/3-finish.cuh
// ```
//
// *Prediction*: half as many stores of O. LSE keeps its bits; O is rounded once more.
//
// ## 4 · From the last tile to the first
//
// Masked tiles come first then, and where a mask hides keys the longest Q tiles of all heads start first.
//
// ```{difference} steps/3-finish.cuh steps/4-order.cuh
// ```
//
// *Prediction*: other last bits, since other maxima are met on the way. No counter changes.
//
// ## 5 · Two tiles ahead
//
// Phase 12 begins to copy a tile when the one before is multiplied. Now both stages are filled before the first
// product. A stage is filled again when all have read it, and a second barrier says so. That is the loop in which one
// thread can do all the copying.
//
// ```{difference} steps/4-order.cuh steps/5-ahead.cuh
// ```
//
// *Prediction*: no bit changes. Two barriers for each tile where there was one: by itself this step is no gain.
//
// ## 6 · Panels
//
// TMA and `wgmma` want rows of 128 bytes. So a tile of 128 columns becomes two panels of 64. Within a panel pieces of
// 16 bytes are swizzled as before, by the row modulo 8. Copies of other sizes go: TMA wants strides of 16 bytes.
//
// ```{difference} steps/5-ahead.cuh steps/6-panels.cuh
// ```
//
// *Prediction*: no bit and no counter changes. Eight rows of a panel still lie in eight different groups of banks.

// %%
CELL("The loop and the layout of the Hopper phases") {
  expect(!(result_of(copies) == result_of(softmax)), "1-softmax: other last bits");
  expect(result_of(softmax) == result_of(rows), "2-rows: the same bits");
  expect(result_of(rows).same_lse(result_of(finish)), "3-finish: the same bits of LSE");
  expect(!(result_of(finish) == result_of(order)), "4-order: other last bits");
  expect(result_of(order) == result_of(ahead) && result_of(ahead) == result_of(panels),
         "5-ahead, 6-panels: the same bits");
  if (!counts()) return;
  expect(result_of(softmax).ledger == result_of(rows).ledger, "2-rows: the same counters, all of them");
  bool same = equal(result_of(rows).ledger.array("O").write_requests, N * D / 32, "2-rows:   stores of O");
  same &= equal(result_of(finish).ledger.array("O").write_requests, N * D / 2 / 32, "3-finish: stores of O");
  same &= equal(result_of(order).ledger.barriers, tiles, "4-order:  barriers");
  same &= equal(result_of(ahead).ledger.barriers, 2 * tiles, "5-ahead:  barriers");
  same &= equal(result_of(panels).ledger.bank_conflicts(), 0, "6-panels: bank conflicts");
  expect(same, "predicted = counted");
}

// %% [markdown]
// ## 7 · TMA
//
// Each thread computed addresses and began copies of 16 bytes. Now one thread names a tile, and TMA copies it. An
// mbarrier counts the bytes. The products are still `mma` on fragments: what TMA has written, `ldmatrix` can read.
//
// Two kinds of access meet here: TMA writes by another way to shared memory, the async proxy. So each thread fences its
// reads before TMA may write where it has read. The checked simulator does not ask for this one, since PTX says how
// writes become visible to the other proxy and little about reads.
//
// ```{difference} steps/6-panels.cuh steps/7-tma.cuh
// ```
//
// *Prediction*: no bit changes. Of each pair of barriers one is left, and one more at the start. A thread issues no
// copies any more: for K and V of a tile those were 8 for each thread, with their addresses and comparisons.
//
// ## 8 · S by wgmma
//
// A warpgroup multiplies 64 rows of Q by a tile of K. Both operands stay in shared memory. Q's fragments are gone, and
// with them D/4 registers of each thread.
//
// ```{difference} steps/7-tma.cuh steps/8-scores.cuh
// ```
//
// *Prediction*: half of the loads of fragments go, K's and Q's. `wgmma` reads K once for 64 rows, where `ldmatrix` did
// for 16: a quarter.
//
// ## Phase 14 · PV by wgmma
//
// P is in registers, where S was, in the order in which `wgmma` takes its left operand. V stays in shared memory. K and
// V now have a barrier each, so that S can begin before V is there. No thread reads a tile any more, and the fence
// goes.
//
// ```{difference} steps/8-scores.cuh attention.cuh
// ```
//
// *Prediction*: no load of shared memory is left, and no bit changes on the simulator.
//
// ```{question}
// Per tile of 64 keys, eight warps load 8 · 64 fragments of K and V in step 7. How many bytes is that, and how many
// does `wgmma` read for the same tile in phase 14? (A load by `ldmatrix` fetches 512 bytes.)
// ```

// %%
CELL("Who reads shared memory") {
  expect(result_of(panels) == result_of(tma), "7-tma: the same bits");
  expect(result_of(tma) == result_of(s_by_wgmma) && result_of(s_by_wgmma) == result_of(last), "wgmma: the same bits");
  if (!counts()) return;
  const std::uint64_t of_tile = 4 * (D / 16), tile = 64 * D * 2;
  bool same = equal(result_of(tma).ledger.barriers, blocks + tiles, "7-tma:    barriers");
  same &= equal(result_of(tma).ledger.shared_read_requests, warps * (tiles * 2 * of_tile + blocks * (D / 16)),
                "7-tma:    loads of fragments");
  same &=
      equal(result_of(s_by_wgmma).ledger.shared_read_requests, warps * tiles * of_tile, "8-scores: loads of fragments");
  same &=
      equal(result_of(s_by_wgmma).ledger.wgmma_shared_bytes, tiles * 2 * 2 * tile, "8-scores: bytes that wgmma reads");
  same &= equal(result_of(last).ledger.shared_read_requests, 0, "phase 14: loads of fragments");
  same &= equal(result_of(last).ledger.wgmma_shared_bytes, tiles * 2 * 3 * tile, "phase 14: bytes that wgmma reads");
  std::printf("for one tile: by ldmatrix %s bytes of K and V, by wgmma %s of Q, K and V\n",
              grouped(warps * 2 * of_tile * 512).c_str(), grouped(2 * 3 * tile).c_str());
  expect(same, "predicted = counted");
}

// %% [markdown]
// ```{answer}
// 262,144 bytes by `ldmatrix`, 98,304 by `wgmma`, though it reads Q anew for each tile. Eight warps read all of K and V
// for themselves. Two warpgroups read it twice.
// ```
//
// ## What each step was worth
//
// Measured on an H200 for N = 512, 2048 and 8192, without a mask and with one; each figure is over the step before
// ([all of them](../../docs/results/hopper-steps-h200.md)). The new softmax costs 7 to 14 % at first. Rows' ends worked
// out once give 2 % back, the new way out 4 to 18 %, and the new order 4 to 17 %. With that the kernel is ahead of
// phase 12 again. Copies that begin earlier bring 1 to 2 %, panels 7 to 12 %: a load of a fragment needs fewer
// instructions for its address. TMA brings 4 to 8 %. The two `wgmma` bring the most, 15 to 30 % for S and 12 to 28 %
// for PV.
//
// **What you saw.** The unit that copies and the unit that multiplies can be exchanged one at a time, because the
// layout of the tiles was brought into line first.
//
// **Exercise.** 1. Leave out the second barrier of step 5. What does the checked simulator say? 2. Give K and V a
// barrier each in step 7. Does the loop wait less? 3. Which of phase 13's changes would help step 6?
