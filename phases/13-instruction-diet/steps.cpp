// %% [markdown]
// # 13 · From 12 to 13, step by step
//
// **Question.** Phase 12 copies while it multiplies, and has no bank conflicts. Between two `mma`, though, stand other
// instructions: loads of fragments, addresses, comparisons, maxima, exponentials, multiplications. A warp issues one
// instruction at a time, so each of them delays the next `mma`. Which ones can go?
//
// **Idea.** Eight small changes, each a kernel of its own. For each we predict what the counters say, run it, and
// compare. Not all instructions have a counter here. For the others, the table at the end of the page has what nvcc
// makes of each step: how many instructions a warp issues for one K/V tile, and how many of them are `mma`.
//
// **The setting.** Each step is a whole kernel, phase 12's with what the steps so far have changed.
// [Phase 13](notebook.cpp) is the last one, and can prepare a backward pass, too. Here they are compared in one case
// only: bf16, D = 128, dense tensors [B, H, N, 128], and an N that is a multiple of 128, so that no tile is ragged. The
// mask is none or causal, and LSE is always written.

// %% tags=["hide-input"]
#include "phases/13-instruction-diet/steps/steps.hpp"

#include <cstdio>
#include <cstring>
#include <map>

#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;
using namespace flash::phase13;

// Only the checked simulator counts; a build with AddressSanitizer does not have it.
static bool counts() {
  if (was_built(Where::Checked)) return true;
  std::printf("this build has no checked simulator, and the fast one does not count\n");
  return false;
}

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-40s predicted %11s   counted %11s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}

// One head of random rows: what a step makes of it, run once for each mask.
constexpr std::uint64_t N = 256, D = 128;
struct Result {
  Rounded<bfloat16> data{random_example(N, D)};
  Ledger ledger;

  bool operator==(const Result& other) const {
    return std::memcmp(data.o.data(), other.data.o.data(), data.o.size() * sizeof(bfloat16)) == 0 &&
           std::memcmp(data.lse.data(), other.data.lse.data(), data.lse.size() * sizeof(float)) == 0;
  }
};
enum : std::size_t { copies, scale, loops, addresses, output, tiles, state, rows, order, rescale, maximum, beside };
static const Result& result_of(std::size_t step, Mask causal = Mask::none()) {
  static std::map<std::pair<std::size_t, Mask>, Result> kept;
  const auto [at, fresh] = kept.try_emplace({step, causal});
  const Where where = was_built(Where::Checked) ? Where::Checked : Where::Sim;
  if (fresh) at->second.ledger = run_step(step, at->second.data.problem({.mask = causal}), where).ledger;
  return at->second;
}
static const ArrayTraffic& traffic(const Ledger& ledger, const std::string& array) {
  return *std::find_if(ledger.arrays.begin(), ledger.arrays.end(), [&](const auto& a) { return a.name == array; });
}

// %% [markdown]
// ## 0 · Where we begin: phase 12
//
// This is [phase 12](../12-async-copies/notebook.cpp) in the setting above. A block has 64 rows and four warps, 16 rows
// for each.
//
// *Prediction*, N = 256: 4 Q tiles meet 4 K/V tiles each, that is 16 pairs of tiles. A pair takes 4 · 64 · 64 · D FLOP.
// Each warp loads K and V of the pair in squares of 16 × 16, which is 4 · 8 loads for each, and Q once, which is 8. A
// load by `ldmatrix` takes four wavefronts. There is an exponential for each element of P, and in each pair one for
// each row of a lane. Elements of O leave 2 bytes at a time.

// %%
constexpr std::uint64_t pairs = N / 64 * (N / 64), warps = N / 16;

CELL("Phase 12, counted") {
  if (!counts()) return;
  const Result& now = result_of(copies);
  const std::uint64_t loads = pairs * 4 * (32 + 32) + warps * 8;
  bool same = equal(now.ledger.tensor_flops, pairs * 4 * 64 * 64 * D, "FLOP of mma");
  same &= equal(now.ledger.shared_read_requests, loads, "loads of shared memory");
  same &= equal(now.ledger.shared_wavefronts, 4 * loads, "wavefronts");
  same &= equal(now.ledger.bank_conflicts(), 0, "of these, conflicts");
  same &= equal(now.ledger.exps, N * N + pairs * 128 * 2, "exponentials");
  same &= equal(now.ledger.barriers, pairs, "barriers");
  same &= equal(traffic(now.ledger, "O").write_requests, N * D / 32, "stores of O");
  expect(same, "predicted = counted");
}

// %% [markdown]
// ## 1 · The scale
//
// Each score is multiplied by c = scale · log₂ e, and later m is subtracted from it. Both fit into one multiply-add
// right before the exponential: exp2(c · s − c · m), where m is now the maximum of unscaled scores. And `exp2f` is more
// than one instruction, because it gets subnormal results right. `ex2_approx_ftz` is one; a weight below 2⁻¹²⁶ becomes
// 0, which is what it is worth.
//
// Two things follow. The maximum of unscaled scores is the right one for c > 0 only: a negative scale turns the signs
// of Q once. And a scale of 0 becomes tiny, since −∞ · 0 is NaN.
//
// ```{difference} ../12-async-copies/attention.cuh steps/1-scale.cuh
// ```
//
// *Prediction*: the counter of FLOPs counts 2 per `fmaf` and does not see a lone multiplication. Step 0 has one `fmaf`
// per row, in LSE. Now there is one per element of P too. All else stays.

// %%
CELL("A multiply-add per element of P") {
  const Result &before = result_of(copies), &now = result_of(scale);
  expect(!(before == now), "other last bits: c · s is no longer rounded by itself");
  if (!counts()) return;
  bool same = equal(before.ledger.flops, 2 * N, "0-copies: FLOP of fmaf");
  same &= equal(now.ledger.flops, 2 * N + 2 * N * N, "1-scale:  FLOP of fmaf");
  same &= equal(now.ledger.exps, before.ledger.exps, "exponentials");
  expect(same, "predicted = counted");
}

// %% [markdown]
// ## 2 · Two loops
//
// Only the tiles on the diagonal are masked, and only the first tile fetches Q. The loop asks both questions for each
// tile. So its body is compiled twice, once for masked tiles and once for whole ones; Q is fetched before the loops.
// Tiles now go from the last to the first: the masked ones come first, and no loop has to look for the end of K, not
// even where the last tile is ragged.
//
// ```{difference} steps/1-scale.cuh steps/2-loops.cuh
// ```
//
// *Prediction*: one barrier more in each of the 4 blocks. With a mask, block b sees b + 1 tiles: 10 pairs instead of
// 16. Comparisons and branches have no counter.

// %%
CELL("A barrier more per block") {
  const Result &before = result_of(scale), &now = result_of(loops), &causal = result_of(loops, Mask::top_left());
  expect(!(before == now), "other last bits: other maxima on the way");
  if (!counts()) return;
  bool same = equal(now.ledger.barriers, pairs + 4, "barriers");
  same &= equal(causal.ledger.barriers, 10 + 4, "causal: barriers");
  same &= equal(causal.ledger.tensor_flops, 10 * 4 * 64 * 64 * D, "causal: FLOP of mma");
  same &= equal(now.ledger.shared_wavefronts, before.ledger.shared_wavefronts, "wavefronts");
  expect(same, "predicted = counted");
}

// %% [markdown]
// ## 3 · Addresses
//
// `ldmatrix` needs an address from each lane. So far row, column and XOR are worked out anew for each fragment. But the
// XOR touches three bits of the address only. Eight rows further down is a constant, and so is 64 columns to the right.
// The four places in between are four pointers:
//
// ```{region} fragments.cuh fragments
// ```
//
// What is left is a constant offset, which is part of the load instruction and costs nothing. The copies are simpler
// still. 128 threads copy 8 rows at a time, so that each thread stays in its column and all its rows have one swizzle.
//
// ```{difference} steps/2-loops.cuh steps/3-addresses.cuh
// ```
//
// *Prediction*: no bit and no counter changes. nvcc needs 34 registers less.

// %%
CELL("The same, by other addresses") {
  const Result &before = result_of(loops), &now = result_of(addresses);
  expect(before == now, "the same bits");
  if (counts()) expect(before.ledger == now.ledger, "the same counters, all of them");
}

// %% [markdown]
// ## 4 · The way out
//
// A lane stores its elements of O one by one, 2 bytes at a time, and divides each of them. Now O goes through shared
// memory once more, into the warp's own rows of Q, which nobody else reads. From there each lane stores 16 bytes of a
// row. And instead of a division per element there is one per row, and a multiplication per element.
//
// ```{difference} steps/3-addresses.cuh steps/4-output.cuh
// ```
//
// *Prediction*: 8 elements per store instead of one. A store of 2 bytes per lane touches 8 rows, four lanes in each:
// 8 sectors, each half filled by two stores. A store of 16 bytes fills all the 16 sectors that it touches. The way
// through shared memory costs a store for each pair of elements and a load for each 8.

// %%
CELL("An eighth of the stores") {
  const Result &before = result_of(addresses), &now = result_of(output);
  if (!counts()) return;
  const std::uint64_t stores = N * D / 2 / 32, loads = N * D / 8 / 32;
  bool same = equal(traffic(before.ledger, "O").write_sectors, N * D / 32 * 8, "3-addresses: sectors stored");
  same &= equal(traffic(now.ledger, "O").write_sectors, N * D * 2 / 32, "4-output:    sectors stored");
  same &= equal(traffic(now.ledger, "O").write_requests, loads, "stores of O");
  same &= equal(now.ledger.shared_write_requests, stores, "stores to shared memory");
  same &= equal(now.ledger.shared_wavefronts, before.ledger.shared_wavefronts + 4 * loads + stores, "wavefronts");
  expect(same && now.ledger.bank_conflicts() == 0, "predicted = counted, and no conflict");
}

// %% [markdown]
// ## 5 · 32 rows per warp
//
// A fragment of K, once loaded, is multiplied by 16 rows of Q. Let a warp have 32 rows, two row tiles of 16, and it is
// multiplied by both. That halves the loads of K and V, and since the block has 128 rows now, their bytes too.
//
// The price is registers: twice as much of S, P and O per lane. Q's fragments no longer fit into the 255 that a thread
// may have, and are fetched again for each tile. With a mask, a block's last tile may be out of sight for all rows of
// one warp. Such a warp takes part in the copies and the barriers and skips the rest.
//
// Before the numbers change, the notation does, in two moves that change no bit and no counter: loops over row tiles,
// first where Q meets K, then for m, l, P and O. There is one row tile so far.
//
// ```{difference} steps/4-output.cuh steps/5-tiles.cuh
// ```
// ```{difference} steps/5-tiles.cuh steps/5-state.cuh
// ```
//
// Now the step itself.
//
// ```{difference} steps/5-state.cuh steps/5-rows.cuh
// ```
//
// With a mask, larger Q tiles make the times of blocks differ more. So in a step of its own they are numbered such that
// the long ones start first, those of all heads; short ones then fill the gaps at the end. CUDA does not promise an
// order of blocks; this is a hint.
//
// ```{difference} steps/5-rows.cuh steps/5-order.cuh
// ```
//
// *Prediction*: half the pairs, 8, and 4 warps per pair as before. Each warp loads 32 + 32 squares of K and V, and
// now 16 of Q as well. So 80 loads serve 256 `mma`, where 64 served 128.

// %%
CELL("Fewer loads for the same products") {
  const Result &before = result_of(output), &moved = result_of(tiles), &moved_again = result_of(state);
  expect(before == moved && moved == moved_again, "the notation: the same bits");
  if (counts()) expect(before.ledger == moved.ledger && moved.ledger == moved_again.ledger, "and the same counters");
  const Result& now = result_of(rows);
  expect(before == now && now == result_of(order), "the same bits");
  if (!counts()) return;
  const std::uint64_t out = N * D / 8 / 32, loads = pairs / 2 * 4 * (32 + 32 + 16) + out;
  bool same = equal(now.ledger.tensor_flops, before.ledger.tensor_flops, "FLOP of mma");
  same &= equal(now.ledger.shared_read_requests, loads, "loads of shared memory");
  same &= equal(now.ledger.shared_wavefronts, 4 * loads + N * D / 2 / 32, "wavefronts");
  same &= equal(now.ledger.barriers, pairs / 2 + 2, "barriers");
  same &= equal(traffic(now.ledger, "K").read_bytes, N / 128 * N * D * 2, "HBM bytes of K");
  std::printf("4-output took %s wavefronts\n", grouped(before.ledger.shared_wavefronts).c_str());
  const std::uint64_t causal = result_of(rows, Mask::top_left()).ledger.tensor_flops;
  same &= equal(causal, result_of(output, Mask::top_left()).ledger.tensor_flops, "causal: FLOP of mma");
  expect(same, "predicted = counted: with a mask, warps skip what larger tiles would add");
}

// %% [markdown]
// ## 6 · No rescale
//
// Online softmax works with any m, as long as P, l and O use the same one; m only keeps the exponentials in range. So
// m, l and O may stay as they are until a maximum has outgrown its m by much: by a factor of 2⁸ in P, which bf16 and
// fp16 both hold. Each lane looks at its own columns, and one vote of the warp decides. Without growth there is no
// shuffle, no exponential for α, and no multiplication of O. The bound holds once m comes from a whole tile: in a
// masked one a row may see a single key, and take its score for a maximum.
//
// ```{difference} steps/5-order.cuh steps/6-rescale.cuh
// ```
//
// *Prediction*: scores of random numbers have a standard deviation of 1, in base 2 of 1.44. No maximum outgrows that of
// its first 64 keys by 8. So each of the 8 warps rescales once, in its first tile, and a lane has four rows.

// %%
CELL("Once per warp") {
  const Result &before = result_of(order), &now = result_of(rescale);
  expect(!(before == now), "other last bits: m is no longer the maximum");
  if (!counts()) return;
  bool same = equal(before.ledger.exps, N * N + pairs / 2 * 128 * 4, "5-order:   exponentials");
  same &= equal(now.ledger.exps, N * N + N / 32 * 32 * 4, "6-rescale: exponentials");
  expect(same, "predicted = counted");
}

// %% [markdown]
// ## 7 · The maximum of three integers
//
// Positive floats are ordered like the integers with the same bits, and there is an instruction for the maximum of
// three integers. It takes two scores at once. A score with a negative sign is a negative integer, so it never beats a
// positive m. `moderate` says whether all m of the warp are positive; it can change only when an m does.
//
// It says something else at the same time. The multiply-add rounds c · s − c · m once, but c · m was rounded before. If
// that is beyond 512, its rounding shows in P, and the subtraction comes first, as in phase 12.
//
// ```{difference} steps/6-rescale.cuh steps/7-maximum.cuh
// ```
//
// *Prediction*: no bit changes where all maxima are positive. That is so without a mask, since the largest of 64 random
// scores is. No counter knows a maximum.

// %%
CELL("The same maxima") {
  const Result &before = result_of(rescale), &now = result_of(maximum);
  expect(before == now, "the same bits");
  if (counts()) expect(before.ledger == now.ledger, "the same counters, all of them");
}

// %% [markdown]
// ## 8 · Exponentials beside products
//
// P is made for 64 keys, then multiplied by V. While the exponentials run, the tensor cores wait, and the other way
// round. Now P is made 16 keys at a time, right before the products that need it. The exponentials of the next 16 do
// not depend on these products, so the GPU can work on both at once.
//
// ```{difference} steps/7-maximum.cuh steps/8-beside.cuh
// ```
//
// *Prediction*: the same instructions in another order, so the same bits and counters. And these are
// phase 13's.

// %%
CELL("The last step has phase 13's bits") {
  const Result &before = result_of(maximum), &now = result_of(beside);
  expect(before == now, "the same bits");
  if (counts()) expect(before.ledger == now.ledger, "the same counters, all of them");
  Result phase;
  phase13::forward(phase.data.problem({.block_q = 128, .block_k = 64}));
  expect(now == phase, "the bits of phase 13");
}

// %% [markdown]
// ## All steps

// %% tags=["hide-input"]
CELL("The staircase") {
  if (!counts()) return;
  std::printf("step          HBM bytes   loads   wavefronts   barriers      exps   stores of O\n");
  std::vector<std::pair<std::string, std::uint64_t>> wavefronts;
  for (std::size_t step = 0; step < step_count; ++step) {
    const Ledger& l = result_of(step).ledger;
    std::printf("%-12s %10s %7s %12s %10s %9s %13s\n", step_names[step], grouped(l.hbm_bytes()).c_str(),
                grouped(l.shared_read_requests).c_str(), grouped(l.shared_wavefronts).c_str(),
                grouped(l.barriers).c_str(), grouped(l.exps).c_str(), grouped(traffic(l, "O").write_requests).c_str());
    wavefronts.emplace_back(step_names[step], l.shared_wavefronts);
  }
  picture("13-steps", svg::bars("Wavefronts of shared memory, N = 256, D = 128", wavefronts));
}

// %% [markdown]
// ## What did not help, or not enough
//
// All of this was tried on an H200 with phase 13's kernel in bf16. Figures like 1.08 are multiples of
// FlashAttention-2's speed at N = 2048 without a mask; they come from trials while the kernel was written, not from the
// benchmark below.
//
// - **Another bound than 2⁸.** If a warp rescales with each growth, D = 64 falls to 0.90 and D = 128 to 1.05. A bound
//   of 2¹ gives 1.10 instead of 1.17 at D = 64, and 1.07 to 1.09 instead of 1.14 at D = 128. It would let tiles of 16
//   keys have a bound, too: with 2⁸, 2 of 424 cases of the contract miss O's bar there, by 0.6 and 0.7 %.
// - **Votes and rescaling per 16 rows instead of 32.** With the bound 2¹ that is 1 to 2 % faster at D = 128 and
//   1 to 2 % slower at D = 64. With 2⁸ it makes no difference: nobody rescales.
// - **Waiting for the first K alone,** so that S can begin before V is there: between nothing and 1.5 % slower.
// - **Pointers carried from tile to tile** instead of computed for each: 1 % slower at D = 64 and 128, half a percent
//   faster at D = 256.
// - **Twelve pointers for fragments that live through the loop** instead of four that are made for each tile: 1.08
//   instead of 1.155 at D = 128. There are no registers left for a fragment of V that is loaded ahead of its `mma`. In
//   the machine code 25 of 80 `ldmatrix` stood right before the `mma` that needs them, instead of 5 of 80.
// - **`[[likely]]` and `[[unlikely]]`**: the same machine code. A function of its own for loads element by element: 3 %
//   slower at D = 128, where it costs registers, and nothing at D = 64.
// - **One stage instead of two for D = 256**, which would leave room for a second block: 0.96 to 0.99 times the speed.
//
// **What you saw.** No new idea, but a list of things that a loop need not do each time. Three of the steps move no
// counter of the simulator: 3, 7 and 8. The machine code shows the first two, in registers and instructions. The third
// only changes the order, and only the clock can tell what that is worth.
//
// **Exercise.** 1. Step 5 has fewer wavefronts. What would 48 rows per warp bring, and which limit forbids it? 2. Let
// `6-rescale.cuh` rescale beyond 2⁰ and count the exponentials. How many warps rescale in their second tile? 3. Replace
// `cp_async_wait<0>` in `8-beside.cuh` by `cp_async_wait<1>` and run this page. What does the finding name? 4. Why may
// the lanes of a warp store O to Q's rows without a barrier of the block, and why not without `__syncwarp`?
