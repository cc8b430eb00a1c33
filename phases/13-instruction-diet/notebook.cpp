// %% [markdown]
// # 13 · The instruction diet
//
// **Question.** [The page before](steps.cpp) took instructions out of phase 12's loop, one kind at a time, in one
// setting: bf16, D = 128, whole tiles. What does it take to keep all that for any size, any strides and any scale?
//
// **Idea.** Whatever depends on the setting goes where it costs least: into constants that depend on D, in front of the
// loop, into its first tile, or into a branch that is rarely taken.
//
// **Changed since 12.** Much of the file, so it is shown in full below. The page before has the reasons step by step;
// this one goes through the file from top to bottom.

// %% tags=["hide-input"]
#include "phases/13-instruction-diet/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/12-async-copies/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"

using namespace flash;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-34s predicted %10s   counted %10s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}
static bool counts() {
  if (was_built(Where::Checked)) return true;
  std::printf("this build has no checked machine, and the fast one does not count\n");
  return false;
}

// %% [markdown]
// ## What fits
//
// A warp with 32 rows needs twice as many registers for S, P and O as one with 16. What fits into the 255 that a thread
// may have, and leaves room for two blocks on a multiprocessor, depends on D:
//
// ```{region} attention.cuh layout
// ```
//
// For D = 64 there is room for Q's fragments, too, so they are loaded once. For D = 128 they are fetched again for each
// tile. For D = 256 there are no registers for 32 rows, and one block takes 192 KiB of shared memory: it has its
// multiprocessor to itself.
//
// ## Copies
//
// As on the page before, a thread copies one column of pieces, whose rows have one swizzle but for a constant. New are
// the ends. The column's limit is worked out once. The rows' limit matters only to the first copies, since the loop
// runs from the last tile to the first: all others are whole, `kWhole`.
//
// ```{region} copies.cuh load-tile
// ```
//
// The fragments' addresses are those of [step 3](steps.cpp). The four pointers are made anew for each tile, by four
// XORs. Twelve pointers that live through the whole loop cost more: with D = 128 all 255 registers are taken, and what
// is missing is the room to load a fragment ahead of its `mma`.
//
// ## Two loops
//
// A block goes from the last tile to the first, by two loops. Masked are the tiles on the diagonal, and the one in
// which K ends; what a warp does with a tile is compiled for each loop.
//
// ```{region} attention.cuh block
// ```
//
// A tile that the block needs may still be out of sight for all rows of one warp. Such a warp takes part in the copies
// and the barriers and skips the rest.
//
// ## What a warp holds, and what it does
//
// As in phase 10, the members say what a lane holds; now for one or two row tiles, with two numbers about m that the
// sections below explain. Where the warp's rows begin is a function: nvcc takes such a struct apart only once the loops
// over its arrays are unrolled, and with four numbers and four pointers more in it, D = 128 had 636 bytes of spills.
//
// ```{region} attention.cuh warp
// ```
//
// From S to O, a tile takes five steps:
//
// ```{region} attention.cuh multiply
// ```
//
// ## The scale
//
// exp2(c · s − c · m) takes its maximum over unscaled scores. That is right for c > 0 only. A negative scale turns the
// signs of Q once, before the loop, and a scale of 0 becomes tiny, since −∞ · 0 is NaN.
//
// ```{region} attention.cuh scores
// ```
// ```{region} attention.cuh mask
// ```
//
// ## The maximum
//
// The bound of 2⁸, beyond which a warp rescales, has a price. Where m is the exact maximum, the largest P is 1 and has
// no rounding error; otherwise it has one like all others. With tiles of 16 keys, where the first maximum is a poor
// guess, 2 of the 424 cases of the contract then missed O's error bar, by 0.6 and 0.7 %. And a masked tile may hold few
// keys that a row sees. So small and masked tiles follow each growth; the bound holds from the first whole tile of 64
// keys on.
//
// With tiles of 16 keys, or a bottom-right mask, a row may see no key of a tile that its warp multiplies. Its m stays
// −∞, and −∞ − −∞ would be NaN: 0 is subtracted then.
//
// ```{region} maximum.cuh maximum-of-three
// ```
// ```{region} attention.cuh maximum
// ```
//
// ## The exponential
//
// `moderate` keeps that guard out of the way, too. A row without a key is not moderate, so the branch that subtracts m
// first, for maxima beyond 512, takes care of it.
//
// ```{region} attention.cuh probabilities
// ```
//
// ```{region} attention.cuh output-product
// ```
//
// ## The way out
//
// Rows and columns may end before the tile does, and O's rows may begin anywhere: where they are no multiples of 16
// bytes they leave element by element, in the same order. Of the four lanes that share their rows each divides, and
// takes the logarithm, for one.
//
// ```{region} attention.cuh output
// ```
// ```{region} output.cuh store-rows
// ```
//
// Where a mask hides keys, the Q tiles take different times, and the long ones start first.
//
// ```{region} attention.cuh grid
// ```
// ```{region} attention.cuh launch
// ```
//
// ## For a backward pass, or in fp32
//
// What phase 09's backward pass wants kept ([docs/backward.md](../../docs/backward.md)): m and l of each row, where l
// sums P as P·V does, rounded; and what rounding to 16 bits takes from O, which leaves by the same way as O. Partial
// results that are still to be added up want O in fp32. Both take a kernel of their own, `kKeeps`: where neither is
// asked for, no instruction is added. LSE is the same in both, from the sum of P before it is rounded.
//
// ```{region} training.cuh outputs
// ```
// ```{region} training.cuh training
// ```
// ```{region} output.cuh store-output
// ```
//
// All of it, against the last step of the page before:
//
// ```{difference} steps/8-beside.cuh attention.cuh
// ```

// %% [markdown]
// ## Run it: the same attention
//
// The bits differ from phase 12's: the scale is applied elsewhere, m may be another, and 1/l is rounded once more. The
// errors must not.

// %% tags=["hide-input"]
static double worst_lse(const Rounded<half>& run) {
  const Example e = run.widened();
  double worst = 0;
  const std::int64_t H = view(e.q).H(), N = view(e.q).S();
  for (std::int64_t h = 0; h < H; ++h) {
    const RowMajor<double> S = scores<double>(e, h);
    for (std::int64_t i = 0; i < N; ++i) {
      const double m = S.row(i).maxCoeff();
      worst = worse(worst, std::abs(e.lse[h * N + i] - m - std::log((S.row(i).array() - m).exp().sum())));
    }
  }
  return worst;
}

CELL("Right, and the same bits whenever copies arrive") {
  Rounded<half> before(sentence()), now(sentence());
  phase12::forward(before.problem(), Where::Sim);
  phase13::forward(now.problem(), machine);
  const double error = worst_head(now.widened()), old = worst_head(before.widened());
  std::printf("worst head against fp64: phase 13 %.1e, phase 12 %.1e\n", error, old);
  std::printf("worst LSE against fp64:  phase 13 %.1e, phase 12 %.1e\n", worst_lse(now), worst_lse(before));
  expect(error <= 1.05 * old, "O is as precise as phase 12's");
  expect(worst_lse(now) <= 2 * worst_lse(before), "LSE is off by no more than twice as much");

  bool same = true;
  for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
    for (const Order order : {Order::forward, Order::random}) {
      Rounded<half> again(sentence());
      phase13::forward(again.problem(), machine, {.order = order, .seed = 13, .completion = completion});
      same = same && std::memcmp(again.o.data(), now.o.data(), now.o.size() * sizeof(half)) == 0;
    }
  expect(same, "copies late, eager or random, threads in two orders: the same bits");
}

// %% [markdown]
// ## Predicted = counted
//
// The simulator does not count instructions of every kind, but it counts some of those that were to be saved. Blocks
// have 128 rows here and 64 in phase 12, so K and V pass half as often, too.
//
// ```{question}
// A warp has 32 rows where phase 12 has 16, and the same products to compute. What becomes of the 33,280 wavefronts?
// ```

// %% tags=["hide-input"]
CELL("What is saved") {
  if (!counts()) return;
  const std::uint64_t N = 512, D = 64, Tr = N / 128, pairs = Tr * (N / 64), once = N * D * 2;
  Rounded<half> e(random_example(N, D));
  Ledger before = phase12::forward(e.problem({.block_q = 64, .block_k = 64}), Where::Checked).ledger;
  Ledger now = phase13::forward(e.problem({.block_q = 128, .block_k = 64}), Where::Checked).ledger;
  // By ldmatrix, all four warps: K and V with each tile, Q once; then O, 16 bytes a lane, out of Q's rows.
  const std::uint64_t kv = 4 * (4 * D / 16 + 4 * D / 16), q = 4 * 2 * D / 16, out = 128 * D * 2 / 16 / 32;
  const std::uint64_t into_q = 4 * 2 * 2 * D / 8;  // O's pairs of elements into Q's rows
  bool same = equal(now.shared_read_requests, pairs * kv + Tr * (q + out), "loads of shared memory");
  same &= equal(now.shared_write_requests, Tr * into_q, "stores to it");
  same &= equal(now.shared_wavefronts, 4 * (pairs * kv + Tr * (q + out)) + Tr * into_q, "wavefronts");
  same &= equal(now.bank_conflicts(), 0, "of these, conflicts");
  same &= equal(now.array("K").read_bytes + now.array("V").read_bytes, 2 * Tr * once, "HBM bytes of K and V");
  same &= equal(now.array("O").write_requests, Tr * 128 * D * 2 / 16 / 32, "stores of O, 16 bytes a lane");
  expect(same, "predicted = counted");

  std::printf("\n                      phase 12    phase 13\n");
  const auto line = [](const char* what, std::uint64_t a, std::uint64_t b) {
    std::printf("%-18s %11s %11s\n", what, grouped(a).c_str(), grouped(b).c_str());
  };
  line("FLOP of mma", before.tensor_flops, now.tensor_flops);
  line("wavefronts", before.shared_wavefronts, now.shared_wavefronts);
  line("barriers", before.barriers, now.barriers);
  line("HBM bytes", before.hbm_bytes(), now.hbm_bytes());
  line("stores of O", before.array("O").write_requests, now.array("O").write_requests);
  expect(before.tensor_flops == now.tensor_flops, "the same products");
  expect(2 * now.shared_wavefronts < 1.1 * before.shared_wavefronts, "about half the wavefronts");
}

// %% [markdown]
// ```{answer}
// 17,920, somewhat more than half. A fragment of K or V that was loaded once for 16 rows now serves 32. O's way out
// through shared memory adds some that phase 12 did not need; in return O takes an eighth of the stores.
// ```
//
// ```{question}
// Random scores, all alike, in 8 tiles of 64 keys. With how many of its tiles does a warp of 32 rows rescale O, if each
// new maximum counts? And with the bound of 2⁸?
// ```

// %% tags=["hide-input"]
static double expected_growths(int tiles) {
  double sum = 0;
  for (int j = 1; j <= tiles; ++j) sum += 1 - std::pow(1 - 1.0 / j, 32);
  return sum;
}

CELL("How often a warp rescales") {
  if (!counts()) return;
  const std::uint64_t warps = 16;  // N = 512
  Rounded<half> e(random_example(512, 64));
  const Ledger l = phase13::forward(e.problem({.block_q = 128, .block_k = 64}), Where::Checked).ledger;
  expect(equal((l.exps - 512 * 512) / (32 * 4), warps, "times that a warp rescales"), "once per warp");
  for (const int N : {512, 2048, 8192})
    std::printf("N = %4d: without the bound %.1f of %d tiles, by chance\n", N, expected_growths(N / 64), N / 64);
}

// %% [markdown]
// ```{answer}
// With the bound once, in the first tile that the warp sees: 16 warps, 16 rescales. Without it the warp rescales with
// practically every one of the 8 tiles, 8.0 by chance, because one of its 32 rows has nearly always found a new
// maximum.
// ```
//
// How often is O rescaled? Take random scores, all alike. The j-th tile that a row sees holds the largest score so far
// with probability 1/j. A warp has 32 rows, and one is enough: 1 − (1 − 1/j)³². That is nearly certain for the first
// dozen tiles. With the bound it is different: these scores have a standard deviation of 1, in base 2 of 1.44, and no
// maximum outgrows that of its first 64 keys by 8. So each warp rescales once, in its first tile. The exponentials
// tell: one for each element of P, and four per lane where a warp rescales.
//
// With a causal mask, Q tiles of 128 rows reach further beyond the diagonal than those of 64. The warps that see
// nothing there skip it, so that no more is multiplied than with 64 rows:

// %% tags=["hide-input"]
CELL("What a warp does not see") {
  if (!counts()) return;
  Rounded<half> e(random_example(512, 64));
  const Options causal{.mask = Mask::top_left()};
  const Ledger before = phase12::forward(e.problem(causal), Where::Checked).ledger;
  const Run now = phase13::forward(e.problem(causal), Where::Checked);
  const std::uint64_t seen = now.tiles.full + now.tiles.masked, each = 4 * 128 * 64 * 64;
  std::printf("FLOP of mma: phase 12 %s, phase 13 %s; all warps in each tile would be %s\n",
              grouped(before.tensor_flops).c_str(), grouped(now.ledger.tensor_flops).c_str(),
              grouped(seen * each).c_str());
  expect(now.ledger.tensor_flops == before.tensor_flops && now.ledger.tensor_flops < seen * each,
         "as many as with tiles of 64 rows");
}

// %% [markdown]
// **What you saw.** A kernel that is tuned for one setting becomes one for all, and its loop stays as it was. What is
// added stands before it, after it, and in branches that whole tiles do not take.
//
// **Measured** on an H200: the steps one by one at the end of [the page before](steps.cpp), the kernel beside the
// libraries at [the end of part 3](../../docs/book/part-3.md).
//
// **Exercise.** 1. Which of the changes would have helped phase 08? 2. Let scores rise from key to key. How often
// does a warp rescale then, and what does it cost? Remember which tile comes first. 3. By how much may m lag behind
// before fp16 overflows in P, and before l does? 4. Why may O be written to Q's rows
// without a barrier of the block?
