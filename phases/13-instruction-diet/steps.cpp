// %% [markdown]
// # 13 · From 12 to 13, step by step
//
// **Question.** Phase 12 copies while it multiplies, and has no bank conflicts. Between two `mma`, though, stand other
// instructions: loads of fragments, addresses, comparisons, maxima, exponentials, multiplications. A warp issues one
// instruction at a time, so each of them delays the next `mma`. Which ones can go?
//
// **Idea.** Eight small changes, each a kernel of its own. For each you predict what the counters say; then it runs.
// Not all instructions have a counter here. For the others, the table at the end of the page has what nvcc makes of
// each step: how many instructions a warp issues for one K/V tile, and how many of them are `mma`.
//
// **The setting.** Each step is a whole kernel: phase 12's, with what the steps so far have changed. The last one is
// [phase 13](notebook.cpp), but for what that keeps for a backward pass. Here they are compared in one case only: bf16,
// D = 128, dense tensors [B, H, N, 128], and an N that is a multiple of 128, so that no tile is ragged. The mask is
// none or causal, and LSE is always written.

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
enum Number : std::size_t {
  copies,
  scale,
  loops,
  addresses,
  output,
  tiles,
  state,
  rows,
  order,
  rescale,
  maximum,
  beside
};
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
// for each. What does one of these warps issue for one K/V tile? Three kinds of instructions have a counter. How many
// of the others there are follows from the kernel's loops.

// %% tags=["hide-input"]
constexpr std::uint64_t pairs = N / 64 * (N / 64), warps = N / 16;

CELL("What a warp issues for one K/V tile") {
  if (!counts()) return;
  const Ledger& l = result_of(copies).ledger;
  const std::uint64_t tiles_of_warps = pairs * 4, Bc = 64;
  struct Kind {
    const char* name;
    std::uint64_t count;
    bool counted = false;
  };
  const std::vector<Kind> kinds = {{"mma", l.tensor_flops / 4096 / tiles_of_warps, true},
                                   {"ldmatrix", l.shared_read_requests / tiles_of_warps, true},
                                   {"exponentials", l.exps / 32 / tiles_of_warps, true},
                                   {"S · scale", Bc / 2},
                                   {"maxima", Bc / 2},
                                   {"S − m", Bc / 2},
                                   {"sums for l", Bc / 2},
                                   {"P to 16 bits", Bc / 4},
                                   {"O · α", D / 2}};
  svg::Canvas canvas(600, 56 + 26 * double(kinds.size()) + 26, "One K/V tile: what a warp of phase 12 issues");
  double y = 44;
  std::uint64_t beside = 0;
  for (const Kind& kind : kinds) {
    const double length = 3 * double(kind.count);
    canvas.text(112, y + 15, kind.name, "text-anchor=\"end\"");
    canvas.rect(120, y, length, 20,
                std::string("fill=\"") +
                    (&kind == &kinds[0] ? "#009e73"
                     : kind.counted     ? "#0072b2"
                                        : "#9ec9e6") +
                    "\"");
    canvas.text(120 + length + 8, y + 15, std::to_string(kind.count));
    std::printf("%4s  %s%s\n", grouped(kind.count).c_str(), kind.name, kind.counted ? ", counted" : "");
    beside += &kind == &kinds[0] ? 0 : kind.count;
    y += 26;
  }
  canvas.text(16, y + 16, "Strong colours: counted. Weak: from the kernel's loops. Not here: addresses, comparisons.",
              "fill=\"#666\"");
  picture("13-between", canvas.str());
  std::printf("%llu beside %llu mma\n", static_cast<unsigned long long>(beside),
              static_cast<unsigned long long>(kinds[0].count));
  expect(kinds[0].count == 128 && kinds[1].count == 64 + 2 && kinds[2].count == 32 + 2,
         "counted: 128 mma; 64 ldmatrix for K and V, 2 for a quarter of Q; 32 exponentials for P, 2 for a lane's rows");
}

// %% [markdown]
// Only the first bar is work for the tensor cores. And the picture is not complete: nvcc makes more than twice as many
// instructions of this loop (the first table at the end). The rest are addresses and comparisons, and what `exp2f` does
// besides the exponential.
//
// Now the counters as a whole, for N = 256. Each of 4 Q tiles meets 4 K/V tiles, which makes 16 pairs of tiles.
//
// ```{question}
// A warp loads K and V of a pair in squares of 16 × 16, and its 16 rows of Q once. How many `ldmatrix` is that for the
// 16 warps, and how many wavefronts?
// ```

// %% tags=["hide-input"]
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
// ```{answer}
// 4,224: in each of the 16 pairs four warps load 4 · 8 squares of K and as many of V, and each of the 16 warps loads 8
// of Q. Each takes four wavefronts, 16,896 in all.
// ```
//
// ## 1 · The scale
//
// Each score is multiplied by c = scale · log₂ e, and later m is subtracted from it. Both fit into one multiply-add
// right before the exponential: exp2(c · s − c · m), where m is now the maximum of unscaled scores. And `exp2f` is more
// than one instruction, because it gets subnormal results right. `ex2_approx_ftz` is one; a weight below 2⁻¹²⁶ becomes
// 0, which is what it is worth.
//
// Two things follow. The maximum of unscaled scores is the right one for c > 0 only, so a negative scale turns the
// signs of Q, once. And a scale of 0 becomes tiny, since −∞ · 0 is NaN.
//
// ```{difference} ../12-async-copies/attention.cuh steps/1-scale.cuh
// ```
//
// ```{question}
// The counter of FLOP counts 2 for each `fmaf`, and does not see a multiplication alone. Step 0 has one `fmaf` a row,
// in LSE: 512 FLOP. What is the count now, with 256 queries and keys? Does O keep its bits?
// ```

// %% tags=["hide-input"]
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
// ```{answer}
// 131,584: the 512 of before, and 2 for each element of P. The last bits change, because c · s is no longer rounded by
// itself before m is subtracted.
// ```
//
// ## 2 · Two loops
//
// Only the tiles on the diagonal are masked, and only the first tile fetches Q. Phase 12's loop tests for both with
// each tile. Now its body is compiled twice, once for masked tiles and once for whole ones, and Q is fetched before the
// loops. Tiles go from the last to the first: the masked ones come first, and no loop has to look for the end of K, not
// even where the last tile is ragged.
//
// ```{exercise} 13.2
// ```
//
// ```{difference} steps/1-scale.cuh steps/2-loops.cuh
// ```
//
// Comparisons and branches have no counter. But Q now has a barrier of its own, before the loops.
//
// ```{question}
// How many barriers do the 4 blocks pass now, without a mask? With the causal mask block b sees b + 1 tiles: how many
// then?
// ```

// %% tags=["hide-input"]
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
// ```{answer}
// 20 and 14. Each pair of tiles has one, as before, and each of the 4 blocks has one more.
// ```
//
// ## 3 · Addresses
//
// `ldmatrix` needs an address from each lane. So far row, column and XOR are worked out anew for each fragment. But the
// XOR touches only three bits of the address. To go eight rows down is to add a constant, and so is to go 64 columns to
// the right. The four places in between are four pointers:
//
// ```{region} fragments.cuh fragments
// ```
//
// What is left is a constant offset, which is part of the load instruction and costs nothing. The copies are simpler
// still. 128 threads copy 8 rows at a time, so each thread stays in its column, and all its rows have one swizzle.
//
// ```{difference} steps/2-loops.cuh steps/3-addresses.cuh
// ```
//
// ```{question}
// Which counters change? And what happens to the registers of a thread?
// ```

// %% tags=["hide-input"]
CELL("The same, by other addresses") {
  const Result &before = result_of(loops), &now = result_of(addresses);
  expect(before == now, "the same bits");
  if (counts()) expect(before.ledger == now.ledger, "the same counters, all of them");
}

// %% [markdown]
// ```{answer}
// None, and no bit either: the same loads, by other addresses. nvcc needs fewer registers, and of all steps this one
// takes away the most instructions (the first table at the end). Step 5 will want the registers.
// ```
//
// ## 4 · The way out
//
// A lane stores its elements of O one by one, 2 bytes at a time, and divides each of them. Now O goes through shared
// memory once more, into the warp's own rows of Q, which nobody else reads. From there each lane stores 16 bytes of a
// row. And instead of a division per element there is one per row, and a multiplication per element.
//
// ```{difference} steps/3-addresses.cuh steps/4-output.cuh
// ```
//
// ```{question}
// A lane stored 2 bytes of O at a time, in 1,024 requests of a warp. Now it stores 16. How many requests are left? And
// which counter grows?
// ```

// %% tags=["hide-input"]
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
// ```{answer}
// 128 requests, an eighth. A store of 2 bytes a lane touches 8 rows, four lanes in each: 8 sectors, each filled to a
// quarter. Now each sector is written once, 2,048 instead of 8,192. The wavefronts of shared memory grow to 17,920:
// each pair of elements is stored there, and each 8 are loaded again.
// ```
//
// ## 5 · 32 rows per warp
//
// A fragment of K, once loaded, is multiplied by 16 rows of Q. If a warp has 32 rows, two row tiles of 16, the fragment
// is multiplied by both. That halves the loads of K and V, and since the block has 128 rows now, their bytes too.
//
// The price is registers: a lane has twice as much of S, P and O. Q's fragments no longer fit into the 255 that a
// thread may have, and are fetched again for each tile. With a mask, a block's last tile may be out of sight for all
// rows of one warp. Such a warp takes part in the copies and the barriers and skips the rest.
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
// With a mask, larger Q tiles make the blocks' times differ more. So, in a step of its own, the blocks are numbered in
// such a way that the long ones of all heads start first. Short ones then fill the gaps at the end. CUDA does not
// promise an order of blocks; this is a hint.
//
// ```{difference} steps/5-rows.cuh steps/5-order.cuh
// ```
//
// ```{question}
// In step 4 a warp loaded 32 squares of K and 32 of V for the 128 `mma` of a tile. How many `mma` are there now for
// each `ldmatrix`? Do not forget Q: a warp fetches 16 squares of it with each tile.
// ```

// %% tags=["hide-input"]
// A square of K or V, 16 x 16, and the row tiles of a warp that it is multiplied by; two mma for each.
static void draw_row_tiles(svg::Canvas& canvas, double left, int row_tiles, const std::string& title,
                           const std::string& counted) {
  canvas.text(left, 56, title, "font-weight=\"bold\"");
  canvas.rect(left + 150, 70, 120, 56, "rx=\"3\" fill=\"#f2d0a4\"");
  canvas.text(left + 210, 94, "K: 16 keys", "text-anchor=\"middle\"");
  canvas.text(left + 210, 112, "1 ldmatrix", "text-anchor=\"middle\"");
  for (int rt = 0; rt < row_tiles; ++rt) {
    const double y = 134 + 66 * rt;
    canvas.rect(left, y, 142, 60, "rx=\"3\" fill=\"#cfe3f1\"");
    canvas.text(left + 71, y + 34, "Q: 16 rows", "text-anchor=\"middle\"");
    for (int half = 0; half < 2; ++half) {
      canvas.rect(left + 150 + 61 * half, y, 59, 60, "rx=\"3\" fill=\"#009e73\" fill-opacity=\"0.55\"");
      canvas.text(left + 179.5 + 61 * half, y + 34, "mma", "text-anchor=\"middle\"");
    }
  }
  canvas.text(left, 290, counted, "font-size=\"14\" font-weight=\"bold\"");
}

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
  svg::Canvas canvas(760, 306, "What an ldmatrix of K serves: 16 rows a warp, and 32");
  std::array<double, 2> each{};
  for (const bool more : {false, true}) {
    const Ledger& l = (more ? now : before).ledger;
    const std::uint64_t loaded = l.shared_read_requests - out, products = l.tensor_flops / 4096;
    each[more] = double(loaded) / double(products);
    char counted[80];
    std::snprintf(counted, sizeof counted, "%s ldmatrix for %s mma: %.2f each", grouped(loaded).c_str(),
                  grouped(products).c_str(), each[more]);
    std::printf("%s: %s\n", more ? "5-rows  " : "4-output", counted);
    draw_row_tiles(canvas, more ? 400 : 24, more ? 2 : 1, more ? "32 rows a warp" : "16 rows a warp", counted);
  }
  picture("13-rows", canvas.str());
  std::printf("mma for each ldmatrix: %.1f, then %.1f\n", 1 / each[0], 1 / each[1]);
  expect(each[0] == 66.0 / 128 && each[1] == 80.0 / 256, "counted: 66 ldmatrix for 128 mma, then 80 for 256");
  const std::uint64_t causal = result_of(rows, Mask::top_left()).ledger.tensor_flops;
  same &= equal(causal, result_of(output, Mask::top_left()).ledger.tensor_flops, "causal: FLOP of mma");
  expect(same, "predicted = counted: with a mask, warps skip what larger tiles would add");
}

// %% [markdown]
// ```{answer}
// 3.2: 80 `ldmatrix` serve 256 `mma`, where 66 served 128. A warp loads 32 squares of K and as many of V as before, for
// twice the products, and now 16 of Q. The wavefronts fall from 17,920 to 11,264, and K's bytes from HBM are halved.
// ```
//
// ## 6 · No rescale
//
// Online softmax works with any m, as long as P, l and O use the same one; m only keeps the exponentials in range. So
// m, l and O may stay as they are until a maximum has outgrown its m by much: by a factor of 2⁸ in P, which bf16 and
// fp16 both hold. Each lane looks at its own columns, and the warp takes a {term}`vote`: `__any_sync` tells all lanes
// whether one of them has seen such growth. Without it there is no shuffle, no exponential for α, and no multiplication
// of O. The bound holds once m comes from a whole tile: in a masked one a row may see a single key, and take its score
// for a maximum.
//
// ```{exercise} 13.1
// ```
//
// ```{difference} steps/5-order.cuh steps/6-rescale.cuh
// ```
//
// ```{question}
// Each of the 8 warps meets 4 tiles of 64 keys. The scores are random, all alike, with a standard deviation of 1, which
// is 1.44 in base 2. With how many of the tiles does a warp still rescale? The exponentials tell: a rescale takes four
// of each lane, which has four rows.
// ```

// %% tags=["hide-input"]
CELL("Once per warp") {
  const Result &before = result_of(order), &now = result_of(rescale);
  expect(!(before == now), "other last bits: m is no longer the maximum");
  if (!counts()) return;
  bool same = equal(before.ledger.exps, N * N + pairs / 2 * 128 * 4, "5-order:   exponentials");
  same &= equal(now.ledger.exps, N * N + N / 32 * 32 * 4, "6-rescale: exponentials");
  const std::uint64_t a_rescale = 32 * 4;
  std::printf("rescales: %s, then %s\n", grouped((before.ledger.exps - N * N) / a_rescale).c_str(),
              grouped((now.ledger.exps - N * N) / a_rescale).c_str());
  expect(same, "predicted = counted");
}

// %% [markdown]
// ```{answer}
// With its first one alone: no maximum outgrows that of its first 64 keys by 8, which is more than five standard
// deviations. So there are 8 rescales instead of 32.
// ```
//
// ## 7 · The maximum of three integers
//
// Positive floats are ordered like the integers with the same bits, and there is an instruction for the maximum of
// three integers. It takes two scores at once. A score with a negative sign is a negative integer, so it never beats a
// positive m. For this the kernel keeps one bit for each warp, `moderate`: are all m of the warp positive? It can
// change only when an m does.
//
// {term}`Moderate <moderate>` says something else at the same time. The multiply-add rounds c · s − c · m once, but
// c · m was rounded before. Up to 512 that does not show in P, as [the next page](notebook.cpp) tries. Beyond that, the
// subtraction comes first, as in phase 12.
//
// ```{difference} steps/6-rescale.cuh steps/7-maximum.cuh
// ```
//
// ```{question}
// Which bits of O and LSE change, and which counters?
// ```

// %% tags=["hide-input"]
CELL("The same maxima") {
  const Result &before = result_of(rescale), &now = result_of(maximum);
  expect(before == now, "the same bits");
  if (counts()) expect(before.ledger == now.ledger, "the same counters, all of them");
}

// %% [markdown]
// ```{answer}
// None. Without a mask a row's first tile always holds a positive score, since they are random. So all warps are
// moderate, and the maximum is the same by either instruction. No counter knows a maximum.
// ```
//
// ## 8 · Exponentials beside products
//
// P is made for 64 keys, then multiplied by V. While the exponentials run, the tensor cores wait, and the other way
// round. Now P is made 16 keys at a time, right before the products that need it. The exponentials of the next 16 do
// not depend on these products, so the GPU can work on both at once.
//
// ```{difference} steps/7-maximum.cuh steps/8-beside.cuh
// ```
//
// These are the same instructions in another order. So no bit and no counter should change, and what comes out should
// be phase 13's:

// %% tags=["hide-input"]
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
//
// Each row is a step, each column a counter. Orange is what the step has changed.

// %% tags=["hide-input"]
CELL("The staircase") {
  if (!counts()) return;
  struct Counter {
    const char* name;
    std::uint64_t (*of)(const Ledger&);
  };
  static const Counter counters[] = {
      {"HBM bytes", [](const Ledger& l) { return l.hbm_bytes(); }},
      {"loads", [](const Ledger& l) { return l.shared_read_requests; }},
      {"wavefronts", [](const Ledger& l) { return l.shared_wavefronts; }},
      {"barriers", [](const Ledger& l) { return l.barriers; }},
      {"FLOP of fmaf", [](const Ledger& l) { return l.flops; }},
      {"exponentials", [](const Ledger& l) { return l.exps; }},
      {"stores of O", [](const Ledger& l) { return traffic(l, "O").write_requests; }},
  };
  svg::Canvas canvas(760, 66 + 24 * double(step_count), "Which step changes which counter: one head, N = 256, D = 128");
  canvas.raw("<g text-anchor=\"end\">");
  std::vector<int> moved(step_count);
  for (std::size_t i = 0; i < std::size(counters); ++i) {
    const double right = 192 + 94 * double(i);
    canvas.text(right, 48, counters[i].name, "fill=\"#666\"");
    std::uint64_t largest = 1, before = counters[i].of(result_of(copies).ledger);
    for (std::size_t step = 0; step < step_count; ++step)
      largest = std::max(largest, counters[i].of(result_of(step).ledger));
    for (std::size_t step = 0; step < step_count; ++step) {
      const std::uint64_t value = counters[i].of(result_of(step).ledger);
      const double y = 56 + 24 * double(step), width = 86 * double(value) / double(largest);
      canvas.rect(right - width, y, width, 21,
                  std::string("fill=\"") + (value == before ? "#cfe3f1" : "#f2b45c") + "\"");
      canvas.text(right - 3, y + 15, grouped(value));
      moved[step] += value != before;
      before = value;
    }
  }
  canvas.raw("</g>");
  for (std::size_t step = 0; step < step_count; ++step) canvas.text(12, 71 + 24 * double(step), step_names[step]);
  picture("13-steps", canvas.str());
  std::printf("%-12s", "step");
  for (const Counter& counter : counters) std::printf(" %12s", counter.name);
  for (std::size_t step = 0; step < step_count; ++step) {
    std::printf("\n%-12s", step_names[step]);
    for (const Counter& counter : counters) std::printf(" %12s", grouped(counter.of(result_of(step).ledger)).c_str());
  }
  std::printf("\n");
  expect(std::count(moved.begin() + 1, moved.end(), 0) == 6,
         "six of the eleven kernels behind phase 12's change no counter: addresses, notation, order, maxima");
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
//   keys have a bound, too: with 2⁸, 2 of 424 cases of the {term}`contract <the contract>` miss O's error bar there, by
//   0.6 and 0.7 %.
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
// **What you saw.** There was no new idea, but a list of things that a loop need not do each time. Three of the eight
// steps move no counter of the simulator: 3, 7 and 8. The machine code shows the first two, in registers and
// instructions. Step 8 only changes the order, and only the clock can tell what that is worth.
//
// **To think about.** 1. Step 5 has fewer wavefronts. What would 48 rows a warp bring, and which limit forbids it? 2.
// Let `6-rescale.cuh` rescale beyond 2⁰ and count the exponentials. How many warps rescale in their second tile? 3.
// Replace `cp_async_wait<0>` in `8-beside.cuh` by `cp_async_wait<1>` and run this page. What do the findings name? 4.
// Why may the lanes of a warp store O to Q's rows without a barrier of the block, and why not without `__syncwarp`?
//
// <details><summary>Answers</summary>
//
// 1. 32 squares of K, 32 of V and 24 of Q are 88 `ldmatrix` for 384 `mma`, 0.23 each instead of 0.31. But O would take
// 192 registers of a lane and S another 96, and a thread may have 255.
//
// 2. All 8. The exponentials are those of step 5 again, so each warp rescales with each of its 4 tiles: one of its 32
// rows has always found a larger score.
//
// 3. First reads of Q, K and V "while cp.async writes it": the thread's own copies, with the remedy to wait for their
// group, too. Then races with the copies of other warps: they have not waited either, so the barrier says nothing.
//
// 4. The rows belong to this warp alone: once Q is complete no other warp reads them. But one lane may still load its
// part of Q's last fragment while another one is ahead and stores. And after the stores a lane reads what others wrote.
// Hence two `__syncwarp`, one before and one behind.
//
// </details>
