// %% [markdown]
// # 14 · From 12 to 14, step by step
//
// **Question.** Hopper copies whole tiles and multiplies them out of shared memory. How does a kernel get there that
// copies 16 bytes per thread and loads fragments?
//
// **Where it starts.** At [phase 12](../12-async-copies/notebook.cpp), not at 13. Phase 13's diet saves instructions
// between two `mma`: row tiles, addresses that differ by a constant, a rescale that is rare. Here there will be no
// `mma`, no fragments of K, and so no addresses of fragments. Growing 14 from 13 would mean taking most of that diet
// out again. What 14 does keep of it comes back below: the scale in a multiply-add, tiles from the last to the first,
// one division for a row, the longest Q tiles first.
//
// **Idea.** Eight small changes, each a whole kernel. The first five bring the softmax and the loop into the form that
// all Hopper phases share. Then come the layout, [TMA](tma.cpp) and [wgmma](wgmma.cpp), one at a time. The kernel of
// [the page after this one](notebook.cpp) is the ninth.
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
#include "phases/pages/svg.hpp"

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

// A prediction, and whether it was right: they are counted.
static int made, right;
static void predicted(bool holds, const std::string& what) {
  ++made, right += holds;
  expect(holds, what);
}

CELL("Who copies, and who multiplies") {
  if (!counts()) return;
  svg::Canvas canvas(620, 336, "Nine steps: who copies, and who multiplies");
  const auto cell = [&](double x, double y, const char* what, bool hardware) {
    canvas.rect(x, y, 84, 26, hardware ? "stroke=\"white\" fill=\"#9ec9e6\"" : "stroke=\"white\" fill=\"#f2d0a4\"");
    canvas.text(x + 42, y + 17, what, "text-anchor=\"middle\"");
  };
  for (int i = 0; i < 3; ++i)
    canvas.text(382 + 86 * i, 52,
                i == 0   ? "copies"
                : i == 1 ? "S"
                         : "PV",
                "text-anchor=\"middle\" font-weight=\"bold\"");
  const auto name_of = [](std::size_t step) {
    if (step == copies || step == last) return std::string(step == last ? "14" : "12");
    const std::string name = steps[step - 1]->name;
    return name.substr(name.find('/') + 1);
  };
  static const char* what[] = {"where it starts",
                               "softmax in words",
                               "which keys a row sees, once",
                               "one division for a row",
                               "from the last tile to the first",
                               "two tiles on their way",
                               "tiles of two panels",
                               "TMA copies",
                               "S by wgmma",
                               "PV by wgmma"};
  bool one_by_one = true;
  for (std::size_t step = copies; step <= last; ++step) {
    Ledger ledger = result_of(step).ledger;
    const bool by_tma = ledger.array("K").read_requests<warps * tiles, loads = ledger.shared_read_requests> 0;
    const bool by_wgmma = ledger.wgmma_shared_bytes > 0;
    const double y = 60 + 27 * double(step);
    canvas.text(16, y + 17, name_of(step), "font-weight=\"bold\"");
    canvas.text(116, y + 17, what[step]);
    cell(340, y, by_tma ? "TMA" : "cp.async", by_tma);
    cell(426, y, by_wgmma ? "wgmma" : "mma", by_wgmma);
    cell(512, y, loads ? "mma" : "wgmma", !loads);
    one_by_one = one_by_one && by_tma == (step >= tma) && by_wgmma == (step >= s_by_wgmma) && loads == (step < last);
  }
  picture("14-steps", canvas.str());
  expect(one_by_one, "TMA, wgmma for S and wgmma for PV come one at a time: seen in what the steps count");
}

// %% [markdown]
// ## 1 · Softmax in words
//
// What a lane does with its two rows is the same in all phases from here on, so it gets functions of its own, in
// `softmax.cuh`. The scale goes into the multiply-add before the exponential, as [in phase
// 13](../13-instruction-diet/steps.cpp). That saves a multiplication for each score. What a lane holds is phase 10's
// layout: two rows, 8 apart, and of each a quarter of the columns. A negative scale turns the signs of S. Where c · m
// is large, c being the scale times log₂ e, m is subtracted first. What is gone is the bound of 2⁸ below which phase 13
// does not rescale O: the maximum is exact again.
//
// ```{region} softmax.cuh softmax
// ```
//
// In the kernel it takes the place of what stood there:
//
// ```{difference} ../12-async-copies/attention.cuh steps/1-softmax.cuh
// ```
//
// *Prediction*: other last bits, since c · s is no longer rounded by itself.
//
// ## 2 · Which keys a row sees, once
//
// Phase 12 works out for each masked tile which keys a lane's rows see. Now that is done ahead of the loop, in 32 bits.
// TMA counts rows in 32 bits, too.
//
// ```{region} tiles.cuh keys
// ```
//
// `tile_range` is for this step, and `work_of_block` for the one after the next.
//
// ```{difference} steps/1-softmax.cuh steps/2-rows.cuh
// ```
//
// *Prediction*: no bit and no counter changes.
//
// ## 3 · One division for a row
//
// Until now each element of O was divided and stored by itself. Now each row is divided once, and a lane stores two
// neighbouring elements at a time. S and P become members, beside O: what `wgmma` works on must stay in the same
// registers while it runs.
//
// ```{region} softmax.cuh finish
// ```
// ```{region} tiles.cuh store
// ```
// ```{difference} steps/2-rows.cuh steps/3-finish.cuh
// ```
//
// *Prediction*: half as many stores of O. LSE keeps its bits. O is rounded once more, in fp32.
//
// ## 4 · From the last tile to the first
//
// Now the masked tiles come first. And where a mask hides keys, the longest Q tiles of all heads start first.
//
// ```{difference} steps/3-finish.cuh steps/4-order.cuh
// ```
//
// *Prediction*: other last bits, since other maxima are met on the way. No counter changes.
//
// ## 5 · Two tiles ahead
//
// Phase 12 begins to copy a tile while the one before it is multiplied. Now both stages are filled before the first
// product. A stage is filled again when all have read it, and a second barrier says so. That is the loop in which one
// thread can do all the copying.
//
// ```{difference} steps/4-order.cuh steps/5-ahead.cuh
// ```
//
// *Prediction*: no bit changes. Two barriers for each tile where there was one: by itself this step brings no speed.
//
// ## 6 · Panels
//
// TMA and `wgmma` want rows of 128 bytes. So a tile of 128 columns becomes two {term}`panels <panel>` of 64. Within a
// panel pieces of 16 bytes are swizzled as before, by the row modulo 8. Phase 12's copies element by element are
// dropped, since TMA wants strides that are multiples of 16 bytes.
//
// ```{difference} steps/5-ahead.cuh steps/6-panels.cuh
// ```
//
// *Prediction*: no bit and no counter changes. Eight rows of a panel still lie in eight different groups of banks.

// %%
CELL("The loop and the layout of the Hopper phases") {
  predicted(!(result_of(copies) == result_of(softmax)), "1-softmax: other last bits");
  predicted(result_of(softmax) == result_of(rows), "2-rows: the same bits");
  predicted(result_of(rows).same_lse(result_of(finish)), "3-finish: the same bits of LSE");
  predicted(!(result_of(finish) == result_of(order)), "4-order: other last bits");
  predicted(result_of(order) == result_of(ahead), "5-ahead: the same bits");
  predicted(result_of(ahead) == result_of(panels), "6-panels: the same bits");
  if (!counts()) return;
  const auto ledger = [](std::size_t step) -> Ledger& { return result_of(step).ledger; };
  predicted(ledger(softmax) == ledger(rows), "2-rows: the same counters, all of them");
  predicted(equal(ledger(rows).array("O").write_requests, N * D / 32, "2-rows:   stores of O") &
                equal(ledger(finish).array("O").write_requests, N * D / 2 / 32, "3-finish: stores of O"),
            "3-finish: half as many stores of O");
  predicted(ledger(finish) == ledger(order), "4-order: the same counters, all of them");
  predicted(equal(ledger(order).barriers, tiles, "4-order:  barriers") &
                equal(ledger(ahead).barriers, 2 * tiles, "5-ahead:  barriers"),
            "5-ahead: two barriers for each tile");
  predicted(ledger(ahead) == ledger(panels) && equal(ledger(panels).bank_conflicts(), 0, "6-panels: bank conflicts"),
            "6-panels: the same counters, all of them; no bank conflicts");
}

// %% [markdown]
// ## 7 · TMA
//
// Each thread computed addresses and began copies of 16 bytes. Now one thread names a tile, and TMA copies it. An
// mbarrier counts the bytes. The products are still `mma` on fragments: what TMA has written, `ldmatrix` can read.
//
// Two kinds of access meet here, since TMA writes to shared memory by a way of its own, the async {term}`proxy`. So
// each thread fences its reads before TMA may write where it has read. The checked simulator does not ask for this
// fence: PTX says how writes become visible to the other proxy, and little about reads.
//
// ```{difference} steps/6-panels.cuh steps/7-tma.cuh
// ```
//
// *Prediction*: no bit changes. Of each pair of barriers one is left, and each block has one more at its start. K comes
// in two copies a tile, a panel each. Before, K and V took 8 copies of each thread for a tile, with their addresses and
// comparisons.
//
// ## 8 · S by wgmma
//
// A warpgroup multiplies 64 rows of Q by a tile of K. Both operands stay in shared memory. Q's fragments are gone, and
// with them D/4 registers of each thread. A descriptor must be the same in all lanes of a warp, and the compiler has to
// know that it is. One function tells it:
//
// ```{region} tiles.cuh uniform
// ```
// ```{difference} steps/7-tma.cuh steps/8-scores.cuh
// ```
//
// *Prediction*: no bit changes on the simulator. The loads of K's and Q's fragments go, those of V stay. `wgmma` reads
// K once for 64 rows, where `ldmatrix` did for 16: a quarter.
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
  predicted(result_of(panels) == result_of(tma), "7-tma: the same bits");
  predicted(result_of(tma) == result_of(s_by_wgmma), "8-scores: the same bits");
  predicted(result_of(s_by_wgmma) == result_of(last), "phase 14: the same bits");
  if (!counts()) return;
  const auto ledger = [](std::size_t step) -> Ledger& { return result_of(step).ledger; };
  const std::uint64_t of_tile = 4 * (D / 16), tile = 64 * D * 2, threads = 32 * warps;
  predicted(equal(ledger(tma).barriers, blocks + tiles, "7-tma:    barriers"),
            "7-tma: a barrier for each tile, and one");
  predicted(
      equal(ledger(panels).array("K").read_requests, tiles * 4 * threads / 32, "6-panels: copies of K, by warps") &
          equal(ledger(tma).array("K").read_requests, tiles * 2, "7-tma:    copies of K"),
      "7-tma: two copies of K for each tile, where each thread began four");
  predicted(equal(ledger(tma).shared_read_requests, warps * (tiles * 2 * of_tile + blocks * (D / 16)),
                  "7-tma:    loads of fragments") &
                equal(ledger(s_by_wgmma).shared_read_requests, warps * tiles * of_tile, "8-scores: loads of fragments"),
            "8-scores: no loads of K and Q are left, those of V are");
  predicted(equal(ledger(s_by_wgmma).wgmma_shared_bytes, tiles * 2 * 2 * tile, "8-scores: bytes that wgmma reads"),
            "8-scores: each warpgroup reads K and Q once");
  predicted(equal(ledger(last).shared_read_requests, 0, "phase 14: loads of fragments"), "phase 14: no load is left");
  equal(ledger(last).wgmma_shared_bytes, tiles * 2 * 3 * tile, "phase 14: bytes that wgmma reads");
  std::printf("for one tile: by ldmatrix %s bytes of K and V, by wgmma %s of Q, K and V\n",
              grouped(warps * 2 * of_tile * 512).c_str(), grouped(2 * 3 * tile).c_str());
  std::printf("\npredictions about bits and counters so far: %d, right: %d\n", made, right);
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
// ([all of them](../../docs/results/hopper-steps-h200.md)). The new softmax costs 7 to 14 % at first. To work out only
// once which keys a row sees gives 2 % back, one division for a row 4 to 18 %, and the new order 4 to 17 %. With that
// the kernel is ahead of phase 12 again. Copies that begin earlier bring 1 to 2 %, panels 7 to 12 %: a load of a
// fragment needs fewer instructions for its address. TMA brings 4 to 8 %. The two `wgmma` bring the most, 15 to 30 %
// for S and 12 to 28 % for PV.
//
// **How often the predictions were right.** The page makes 19 predictions about bits and counters, and the cells say
// that all of them are right. It makes one about time, that step 5 by itself brings no speed. That one was wrong: the
// step brought 0.7 to 2.1 %.
//
// **What you saw.** The unit that copies and the unit that multiplies can be exchanged one at a time, because the
// layout of the tiles was brought into line first.
//
// **To think about.** 1. Leave out the second barrier of step 5. What does the checked simulator say? 2. Give K and V a
// barrier each in step 7. Does the loop wait less? 3. Which of phase 13's changes would help step 6?
//
// <details><summary>Answers</summary>
//
// 1. *race: cp.async after read*, with the remedy to put `__syncthreads()` between the two: a warp fills the stage that
//    another one still reads. With 256 rows there are further findings, copies that are read while they are under way.
//    With 128 rows it is clean: there are two tiles then, and no stage is filled a second time.
//
// 2. It waits for V later: behind S and the softmax instead of in front of S. That helps where V is not there in time.
//    The copies of the first tiles are such a case. In the middle of the loop they began a whole tile earlier. Phase 14
//    has a barrier each.
//
// 3. Those about fragments, since step 6 still has them: addresses that differ by a constant, and two row tiles for
//    each warp, so that a fragment of K or V serves 32 rows instead of 16. And two about softmax, which 14 leaves out:
//    the rescale that is rare, and maxima of three numbers. In [13's table](../13-instruction-diet/steps.cpp) these are
//    the steps 3, 5, 6 and 7. The first two are pointless once `wgmma` reads tiles by itself.
//
// </details>
