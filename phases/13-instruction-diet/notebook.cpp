// %% [markdown]
// # 13 · The instruction diet
//
// **Question.** Phase 12 copies while it multiplies, and has no bank conflicts. Between two `mma`, though, stand other
// instructions: loads of fragments, addresses, comparisons, maxima, exponentials, multiplications. A warp issues one
// instruction at a time, so each of them delays the next `mma`. Which ones can go?
//
// **Idea.** A dozen small changes. None changes what is computed but for its rounding. Each saves one kind of
// instruction, and this page says which.
//
// **Changed since 12.** Much of the file, so it is shown in full below. The folder holds the final kernel only: the
// changes are explained one by one here, but they have not been measured one by one yet.

// %% tags=["hide-input"]
#include "phases/13-instruction-diet/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/12-async-copies/phase.hpp"
#include "phases/common/cell.hpp"
#include "phases/common/example.hpp"

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
// ## 32 rows per warp
//
// A fragment of K, once loaded, was multiplied by 16 rows of Q. Let a warp have 32 rows, two row tiles of 16, and it is
// multiplied by both. That halves the `ldmatrix` of K and V, and the wavefronts with them. The price is registers:
// twice as much of S, P and O per lane. What still fits into the 255 that a thread may have, and leaves room for two
// blocks on a multiprocessor, depends on D:
//
// ```{region} attention.cuh layout
// ```
//
// For D = 128 Q's fragments no longer fit, and are fetched again for each tile as in phase 11. For D = 256 there are no
// registers for 32 rows, and one block takes 192 KiB of shared memory: it has its multiprocessor to itself.
//
// ## Copies and addresses
//
// A thread copies one column of pieces, so that the column's limit is worked out once and a pointer is moved on by a
// constant. Its rows are a power of two apart; so the swizzle of each row is the first one's, XORed with a constant
// that the compiler knows. Only the first copies have to look where K and V end, since the loop runs from the last tile
// to the first. All others are whole: `kWhole`.
//
// ```{region} attention.cuh load-tile
// ```
//
// `ldmatrix` needs an address per lane. Phase 12 computed row, column and XOR anew for each. But the XOR touches three
// bits of the address only. Eight rows further down is a constant, and so is 64 columns to the right; the four places
// in between are four pointers. What is left is a constant offset, which is part of the load instruction and costs
// nothing. The four pointers are made anew for each tile, by four XORs. Twelve pointers that live through the whole
// loop cost more: with D = 128 all 255 registers are taken, and what is missing is the room to load a fragment ahead of
// its `mma`.
//
// ```{region} attention.cuh fragments
// ```
//
// ## The scale
//
// Phase 12 multiplied each score by scale · log₂ e and subtracted m later. Both fit into one multiply-add inside the
// exponential: exp2(c · s − c · m). So S is never scaled, and m is a maximum of unscaled scores. That is right for c >
// 0 only. A negative scale turns the signs of Q once instead, and a scale of 0 becomes tiny, since −∞ · 0 is NaN.
//
// ```{region} attention.cuh head
// ```
// ```{region} attention.cuh first-copies
// ```
//
// ## Two loops
//
// A masked tile needs comparisons that a whole tile does not. `step` is compiled twice, for `masked` true and false,
// and the loop over tiles becomes two. The masked tiles are the last ones, so they come first.
//
// ```{region} attention.cuh two-loops
// ```
//
// A step begins as in phase 12. New is the last line: a tile that the block needs may still be out of sight for all
// rows of one warp. Such a warp takes part in the copies and the barriers and skips the rest.
//
// ```{region} attention.cuh tile-begins
// ```
// ```{region} attention.cuh scores
// ```
// ```{region} attention.cuh mask
// ```
//
// ## The maximum
//
// Online softmax works with any m, as long as P, l and O use the same one; m only keeps the exponentials in range. So
// m, l and O may stay as they are until a maximum has outgrown its m by much: by a factor of 2⁸ in P, which fp16 and
// bf16 both hold. Each lane looks at its own columns, and one vote of the warp decides. Without growth there is no
// shuffle, no exp2 for α, and no multiplication of O.
//
// The bound has a price. Where m is the exact maximum, the largest P is 1 and has no rounding error; otherwise it has
// one like all others. With tiles of 16 keys, where the first maximum is a poor guess, 2 of the 424 cases of the
// contract then missed O's error bar, by 0.6 and 0.7 %. So such small tiles follow each growth, and tiles of 64 keys
// have the bound.
//
// The maximum itself is cheaper by bits. Positive floats are ordered like the integers with the same bits, and there is
// an instruction for the maximum of three integers, which takes two scores at once. `moderate` says whether that holds
// for all rows of the warp; it can change only when an m does.
//
// ```{region} attention.cuh maximum
// ```
// ```{region} attention.cuh rescale
// ```
//
// ## The exponential
//
// `ex2_approx_ftz` is one instruction of the GPU. `exp2f` is more than that, because it gets subnormal results right;
// here they become 0, which is what a weight below 2⁻¹²⁶ is worth. The multiply-add rounds c · s − c · m once, so c · m
// must not be so large that its own rounding shows: beyond 512 the subtraction comes first, as in phase 12. That is the
// other half of what `moderate` says.
//
// ```{region} attention.cuh probabilities
// ```
//
// P is made 16 keys at a time, right before the products that need it. The exponentials of the next 16 do not depend on
// these products, so the GPU can work on both at once. In the products an `ldmatrix` of V serves both row tiles, too:
//
// ```{region} attention.cuh output-product
// ```
//
// ## The way out
//
// In phase 12 a lane stored its elements of O one by one, 2 bytes at a time. Here O goes through shared memory once
// more, into the warp's own rows of Q, which nobody needs any longer. From there each lane stores 16 bytes. And instead
// of a division per element there is one per row, and a multiplication per element. Four lanes share their four rows,
// so each of them divides, and takes the logarithm, for one.
//
// ```{region} attention.cuh output
// ```
//
// With a causal mask the Q tiles take different times. The grid starts the long ones first, so that at the end short
// ones fill the gaps. CUDA does not promise an order of blocks; this is a hint.
//
// ```{region} attention.cuh grid
// ```
// ```{region} attention.cuh launch
// ```
//
// All of it, against phase 12:
//
// ```{difference} ../12-async-copies/attention.cuh attention.cuh
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
// How often is O rescaled? Take random scores, all alike. The j-th tile that a row sees holds the largest score so far
// with probability 1/j. A warp has 32 rows, and one is enough: 1 − (1 − 1/j)³². That is nearly certain for the first
// dozen tiles. With the bound it is different: these scores have a standard deviation of 1, in base 2 of 1.44, and no
// maximum outgrows that of its first 64 keys by 8. So each warp rescales once, in its first tile. The exponentials
// tell: one for each element of P, and four per lane where a warp rescales.

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
// With a causal mask, Q tiles of 128 rows reach further beyond the diagonal than those of 64. The warps that see
// nothing there skip it, so that no more is multiplied than with 64 rows:

// %% tags=["hide-input"]
CELL("What a warp does not see") {
  if (!counts()) return;
  Rounded<half> e(random_example(512, 64));
  const Options causal{.causal = Causal::TopLeft};
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
// **What you saw.** No new idea, but a dozen things that a loop need not do each time: load a fragment twice, scale,
// compare, shuffle, rescale, divide, work out an address. What each is worth in time is for a GPU to say; the counters
// above say only that they are gone.
//
// **Measured:** the kernel, on an H200; [the end of part 3](../../docs/book/part-3.md) has the table. Its steps are not
// measured one by one yet.
//
// **Exercise.** 1. Which of these changes would have helped phase 08? 2. Let scores rise from key to key. How often
// does a warp rescale then, and what does it cost? Remember which tile comes first. 3. By how much may m lag behind
// before fp16 overflows in P, and before l does? 4. Why may O be written to Q's rows
// without a barrier of the block?
