// %% [markdown]
// # 21 · The backward pass on wgmma
//
// **Question.** `wgmma` multiplies tiles where they lie in shared memory. In the backward pass each tile is multiplied
// more than once, and each time the sum runs over another index: S = Q Kᵀ sums over the columns of Q, dK = dSᵀ Q over
// its rows. Does every tile need a transposed copy beside it?
//
// **Idea.** No. `wgmma` reads an operand as its rows lie (**K-major**) or across them (**MN-major**). Which of the two
// is a bit of the instruction. One copy of each tile serves all five products.
//
// **Changed since 20.** Hopper's instructions. TMA brings the tiles, an mbarrier says when one is there, and a
// warpgroup makes all five products for its 64 keys. So nobody hands P over any more, and the loop has no `ldmatrix`.
// The formulas are [phase 20](../20-backward-tensor-cores/notebook.cpp)'s, and so are the three small kernels around
// the loop. The forward pass is [phase 19](../19-beyond/notebook.cpp)'s. Here all threads have one role and wait for
// each product. [Phase 22](../22-backward-roles/notebook.cpp) and [phase 23](../23-backward-turns/notebook.cpp) change
// that.

// %% tags=["hide-input"]
#include "phases/21-backward-wgmma/phase.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "phases/20-backward-tensor-cores/phase.hpp"
#include "phases/21-backward-wgmma/steps/steps.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/exact.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/lesson.hpp"
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

using namespace flash;
using phase21::Mode;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-40s predicted %10s   counted %10s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}
static bool counts() {
  if (was_built(Where::Checked)) return true;
  std::printf("this build has no checked machine, and the fast one does not count\n");
  return false;
}

template <class T>
using Lesson = HeadOf<T, phase21::phase>;

// The tiles of a Q tile and a K/V tile: both hold 64 x 128 numbers of Q for each D.
static Options tiles_of(std::int64_t D, const Mask& mask = {}) {
  return {.mask = mask, .block_q = 64 * 128 / D, .block_k = 128};
}

// %% [markdown]
// ## One copy, two majors
//
// A product's left operand A is 64 × 16 for one `wgmma`, its right operand B is 16 × N. The 16 are the index that is
// summed over, and PTX calls that index k. Where its neighbours are neighbours in memory the operand is K-major, else
// it is MN-major. [Phase 14](../14-tma-wgmma/wgmma.cpp) met both: K in S = Q Kᵀ and V in O = P V. New here is that the
// *same bytes* are read both ways, and that the left operand may lie across, too.
//
// As in phase 20 the rows of the first two products are keys. So P and dS lie in registers as the left operands of dV
// and dK. Only dQ sums over keys, and takes dS from shared memory.

// %% tags=["hide-input"]
CELL("One panel, read in both majors") {
  // A panel has 64 rows of 128 bytes. TMA puts piece c of row r, 16 bytes or 8 columns, at place c ^ r % 8.
  constexpr int kRows = 64, kPieces = 8;
  static constexpr const char* colours[] = {"#8fc1e3", "#f2b36b", "#9bd0b5", "#d9a0c3"};
  svg::Canvas canvas(760, 410, "One panel of 64 rows and 64 columns: the four steps of a product");
  for (const bool across : {false, true}) {
    const double left = across ? 266 : 16, wide = 26, high = 4.6, top = 84;
    canvas.text(left, 54, across ? "MN-major: the sum is over rows" : "K-major: the sum is over columns",
                "font-weight=\"bold\"");
    canvas.text(left, 72, across ? "a step is 16 rows: 2,048 bytes on" : "a step is 16 columns: 32 bytes on",
                "fill=\"#666\" font-size=\"12\"");
    for (int row = 0; row < kRows; ++row)
      for (int place = 0; place < kPieces; ++place) {
        const int piece = place ^ row % 8, step = across ? row / 16 : piece / 2;
        canvas.rect(left + wide * place, top + high * row, wide - 1, high - 0.6,
                    std::string("fill=\"") + colours[step] + "\"");
      }
  }
  const double x = 516;
  const char* lines[] = {"Sᵀ = K Qᵀ",   "K and Q as they lie",
                         "dPᵀ = V dOᵀ", "V and dO as they lie",
                         "dV += Pᵀ dO", "dO across",
                         "dK += dSᵀ Q", "Q across",
                         "dQ = dS K",   "dSᵀ and K, both across"};
  for (int i = 0; i < 10; ++i)
    canvas.text(x + (i % 2) * 16, 100 + 57 * (i / 2) + (i % 2) * 20, lines[i],
                i % 2 ? "fill=\"#666\"" : "font-weight=\"bold\"");
  canvas.text(16, 400, "A row of the picture is 128 bytes of shared memory. A colour is what one wgmma reads.",
              "fill=\"#666\"");
  picture("21-majors", canvas.str());
}

// %% [markdown]
// | product, of a warpgroup | left operand A | right operand B | sums over |
// |---|---|---|---|
// | Sᵀ = K Qᵀ | its 64 rows of K, K-major | Q, K-major | columns |
// | dPᵀ = V dOᵀ | its 64 rows of V, K-major | dO, K-major | columns |
// | dV += Pᵀ dO | Pᵀ, from registers | dO, MN-major | queries |
// | dK += dSᵀ Q | dSᵀ, from registers | Q, MN-major | queries |
// | dQ = dS K | dSᵀ, MN-major | K, MN-major | keys |
//
// Q, dO and K are read in both majors. V is read in one, and dSᵀ is read in the other one alone.
//
// The first four products need no new word: `begin_scores` and `begin_output` are phase 14's. dQ does. Both of its
// operands have keys as rows, and keys are what it sums over. The next 16 keys are 16 rows of 128 bytes further on in
// both of them.
//
// ```{region} tiles.cuh dq
// ```
//
// dSᵀ comes out of registers by `stmatrix`, into panels of 64 queries. Each row of a panel is a key. So dSᵀ is stored
// as it is, without a transposition on the way, and `Major::MN` makes it dS.
//
// ```{exercise} 21.1
// ```
//
// ```{question}
// For each pair of a Q tile and a K/V tile: how often do products read K, V, Q, dO and dSᵀ, in units of the tile?
// D = 64, 128 queries, 128 keys, two warpgroups.
// ```

// %% tags=["hide-input"]
CELL("What products read, tile by tile") {
  if (!counts()) return;
  for (const std::int64_t D : {64, 128}) {
    const std::int64_t Br = 64 * 128 / D, Bc = 128;
    Lesson<bfloat16> lesson(Br, D);  // one Q tile; of the K/V tiles' blocks the first one is looked at
    lesson.forward();
    Recording recording;
    phase21::backward(lesson.backward(tiles_of(D)), machine, {.threads = 1, .recording = &recording}, Mode::Atomic);
    const auto read = [&](const std::string& name) {
      std::uint64_t bytes = 0;
      for (const Recording::Step& step : recording.steps) {
        const auto& launch = recording.launches.at(step.launch);
        if (launch.block[0] != 256 || step.block != 0) continue;
        for (const Recording::Part& part : step.parts)
          if (part.kind == Recording::Kind::product && launch.chip.at(part.place).name == name) bytes += part.bytes;
      }
      return bytes;
    };
    // A is read once by its warpgroup, B by each of the two.
    const std::uint64_t keys = Bc * D * 2, queries = Br * D * 2, panel = Bc * 64 * 2;
    std::printf("D = %d, %d queries, 128 keys; bytes that products read\n", int(D), int(Br));
    bool same = equal(read("K"), keys + 2 * panel, "  K: A of Sᵀ; a panel for each one's dQ");
    same &= equal(read("V"), keys, "  V: A of dPᵀ");
    same &= equal(read("Q"), 2 * queries + 2 * queries, "  Q: B of Sᵀ and of dK");
    same &= equal(read("dO"), 2 * queries + 2 * queries, "  dO: B of dPᵀ and of dV");
    same &= equal(read("dS"), 2 * panel, "  dSᵀ: a panel for each one's dQ");
    expect(same, "predicted = counted");
  }
}

// %% [markdown]
// ```{answer}
// K three times: once as A, in halves, and once by each warpgroup for dQ. V once. Q and dO four times, by each
// warpgroup in two products. dSᵀ once: each warpgroup reads its panel of 64 queries. Nothing is read from a second
// copy, since there is none.
// ```
//
// ## What a thread holds
//
// Phase 20 had two kinds of warps, because dK, dV, S and dP did not fit the registers of one. A warpgroup has 128
// threads for 64 keys.
//
// ```{region} attention.cuh consumer
// ```
//
// ```{question}
// How many registers of a thread do dV, dK, S and dP take together, with D columns and Br queries? Why has a tile 128
// queries at D = 64, and 64 at D = 128?
// ```

// %%
CELL("Accumulators of a thread, and a block's shared memory") {
  for (const int D : {64, 128})
    for (const int Br : {64, 128})
      std::printf("D = %3d, %3d queries: dV and dK %3d, Sᵀ and dPᵀ %3d, together %3d of 255 registers%s\n", D, Br, D,
                  Br, D + Br, phase21::has(D, {Br, 128}) ? "   <- phase 21" : "");
  expect(64 + 128 < 255 && 128 + 128 > 255, "192 fit, and 256 do not");
  if (!counts()) return;
  bool same = true;
  for (const std::uint64_t D : {64, 128}) {
    const std::uint64_t Br = 64 * 128 / D, Bc = 128;
    Lesson<bfloat16> lesson(128, D);
    lesson.forward();
    const Run run = phase21::backward(lesson.backward(tiles_of(D)), machine, {}, Mode::Atomic);
    const std::uint64_t keys = 2 * Bc * D * 2, queries = 2 * 2 * Br * D * 2, ds = 2 * Br * Bc * 2;
    const std::uint64_t rest = 2 * 3 * Br * 4 + 5 * 8;  // three numbers a row, and five barriers
    same &= equal(run.ledger.shared_bytes_peak, keys + queries + ds + (rest + 1023) / 1024 * 1024,
                  D == 64 ? "D = 64: bytes of shared memory" : "D = 128: bytes of shared memory");
  }
  expect(same, "K, V; two stages of Q and dO; two places of dSᵀ; numbers of rows and barriers, in multiples of 1,024");
}

// %% [markdown]
// ```{answer}
// D + Br: 64 rows of D columns are D / 2 numbers of each of 128 threads, twice; 64 rows of Br columns are Br / 2,
// twice. So it is 192 for both. With 128 queries at D = 128 it would be 256, and a thread has no more than 255. dQ
// takes the place of S and dP, which are dead by then.
// ```
//
// ## Whose tile is where
//
// ```{region} attention.cuh tiles
// ```
//
// K lies as a tile of its own for each warpgroup, `K[warpgroup]`, because a warpgroup's A is its 64 rows. As the right
// operand of dQ it is 128 keys, and `begin_dq` steps from one of these tiles to the other.
//
// Three barriers count bytes. Q's barrier counts the numbers of its rows, too: they come by three further copies.
//
// ```{region} tiles.cuh row-terms
// ```
// ```{region} tiles.cuh words
// ```
//
// ```{region} attention.cuh setup
// ```
// ```{region} attention.cuh first-loads
// ```
//
// Which keys a block has, and which queries see them, is a question of the mask. With a causal one the first keys are
// seen by most rows, so their blocks come first. Only the Q tiles before `full` have scores to hide.
//
// ```{region} tiles.cuh queries
// ```
//
// The loop has one barrier of the block for each Q tile:
//
// ```{region} attention.cuh loop
// ```
//
// That barrier protects three things:
//
// - *The stage.* Both warpgroups have read this tile's Q, dO and numbers of rows, so TMA may overwrite them.
// - *dSᵀ is there.* dQ sums over the keys of both warpgroups. `fence_proxy_async` stands before the barrier, because
//   ordinary stores and `wgmma` go to shared memory on different ways.
// - *The other place of dSᵀ is free.* Both have made dQ of the tile before, and have read its dSᵀ.
//
// ```{question}
// dSᵀ has two places. What would happen with one place, and nothing else changed? How many barriers would a tile need?
// ```
//
// P and dS are computed in place. A row that does not exist has m = +∞, so its P is 0, and the loop masks no queries.
//
// ```{region} tiles.cuh elements
// ```

// %% tags=["hide-input"]
CELL("Who writes dSᵀ, and who adds dQ") {
  if (!counts()) return;
  bool right = true;
  for (const std::int64_t D : {64, 128}) {
    const std::int64_t Br = 64 * 128 / D;
    Lesson<bfloat16> lesson(128, D);
    lesson.forward();
    Recording recording;
    const Run run =
        phase21::backward(lesson.backward(tiles_of(D)), machine, {.threads = 1, .recording = &recording}, Mode::Atomic);
    std::vector<int> ds(static_cast<std::size_t>(2 * Br * 128 * 2), -1), dq(static_cast<std::size_t>(128 * D * 4), -1);
    for (const Recording::Step& step : recording.steps) {
      const auto& launch = recording.launches.at(step.launch);
      if (step.warp < 0 || launch.block[0] != 256) continue;
      for (const Recording::Part& part : step.parts) {
        const bool chip = part.kind == Recording::Kind::chip_write;
        if (!chip && part.kind != Recording::Kind::write) continue;
        const Recording::Place& place = chip ? launch.chip.at(part.place) : recording.arrays.at(part.place);
        if (place.name != (chip ? "dS" : "dQ_sum")) continue;
        for (const auto& span : part.spans)
          for (std::uint64_t byte = span.first; byte < span.end; ++byte)
            (chip ? ds : dq).at(byte - (chip ? place.at : 0)) = step.warp;
      }
    }
    for (int key = 0; key < 128; ++key) right = right && ds.at(static_cast<std::size_t>(key) * 128) == key / 16;
    // dQ_sum lies [rows / 16][columns / 8] of 512 bytes; of a tile's 64 x 64 blocks each warpgroup has one.
    for (int row = 0; row < 128; row += 16)
      for (int column = 0; column < D; column += 8) {
        const int warpgroup = D == 64 ? row / 64 : column / 64, warp = warpgroup * 4 + row % 64 / 16;
        right = right && dq.at(static_cast<std::size_t>(row / 16 * D / 8 + column / 8) * 512) == warp;
      }
    right = right && run.ledger.barriers == static_cast<std::uint64_t>(2 + 2 + 128 / Br);
    std::printf(
        "D = %3d: warp w writes keys 16 w to 16 w + 15 of dSᵀ; warpgroup w adds 64 %s of each tile's dQ; "
        "%d Q tile(s), %d barriers\n",
        int(D), D == 64 ? "rows" : "columns", int(128 / Br), int(run.ledger.barriers));
  }
  for (const int D : {64, 128}) std::printf("D = %3d: a place of dSᵀ has %d KiB\n", D, 64 * 128 / D * 128 * 2 / 1024);
  expect(right,
         "each warp writes dSᵀ of its own keys, a warpgroup adds 64 × 64 of a tile's dQ; a barrier for each Q tile, "
         "and two; two where the centre is found");
}

// %% [markdown]
// ```{answer}
// A fast warpgroup would write the next tile's dSᵀ while the other one still makes dQ of this one. With one place a
// second barrier would have to stand behind dQ. The second place costs 16 KiB of shared memory at D = 128 and 32 KiB at
// D = 64, and saves that barrier.
// ```
//
// ```{exercise} 21.2
// ```
//
// At the end dV and dK leave through the places of V and K. K is also read by the other warpgroup's dQ, so a barrier
// stands before dK is written there. V is read by its own warpgroup alone.
//
// ```{region} attention.cuh store
// ```
// ```{region} tiles.cuh maps
// ```
// ```{region} attention.cuh launch
// ```
//
// ## A sum may lie in any order
//
// The first kernel that one would write keeps dQ_sum as dQ lies, row by row, and each lane adds its 32 numbers one at a
// time. That is a step file, compiled for bf16 and D = 128. Lines with a minus are phase 21's, those with a plus are
// the step's:
//
// ```{difference} attention.cuh steps/1-scalar.cuh
// ```
//
// Nobody reads dQ_sum but the last kernel. So it may lie as the accumulators do, and a lane adds four numbers at once.
//
// ```{question}
// A warp adds 16 × 64 numbers of dQ. How many requests is that in the step, and how many sectors of 32 bytes do they
// touch? And in phase 21?
// ```

// %%
CELL("Number by number, or four at once") {
  if (!counts()) return;
  const std::uint64_t N = 256, D = 128, Br = 64, Bc = 128;
  Lesson<bfloat16> lesson(N, D);
  lesson.forward();
  ArrayTraffic added[2];
  std::vector<bfloat16> dq[2];
  for (const bool step : {false, true}) {
    const Phase& phase = step ? phase21::scalar_step : phase21::phase;
    Run run = flash::backward(phase, lesson.backward(tiles_of(D)), machine, {}, Mode::Atomic);
    added[step] = run.ledger.array("dQ_sum"), dq[step] = lesson.dq;
  }
  const std::uint64_t bytes = 16 * 64 * 4;
  std::printf("a warp's 16 x 64 numbers are %s bytes: in the step %d requests of %d sectors, %d in all;\n",
              grouped(bytes).c_str(), 32, 8, 32 * 8);
  std::printf("in phase 21 %d requests of 512 bytes, %d sectors each, %d in all\n", 8, 16, int(bytes / 32));
  // Both clear the sum alike, so the difference is that of the additions.
  const std::uint64_t warps = N / Br * (N / Bc) * 8;  // that add 16 x 64, in all
  bool same = equal(added[1].write_requests - added[0].write_requests, warps * (32 - 8), "requests, more in the step");
  same &=
      equal(added[1].write_sectors - added[0].write_sectors, warps * (32 * 8 - 8 * 16), "sectors, more in the step");
  same &= equal(added[1].written_bytes, added[0].written_bytes, "bytes added in the step");
  expect(same, "predicted = counted: a quarter of the requests, half of the sectors, the same bytes");
  expect(relative_error(lesson.matrix(dq[0]), lesson.matrix(dq[1])) <= 3e-3, "the same dQ, but for rounding");
}

// %% [markdown]
// ```{answer}
// In the step 32 requests of 8 sectors: a lane's two neighbours are added one after the other, so each request uses
// half of every sector. In phase 21 it is 8 requests of 512 bytes on end, 16 sectors each. That is 256 sectors before
// and 128 after, and the latter is what 4,096 bytes need at least.
// ```
//
// *Prediction*: additions go to the L2 cache, and a quarter of the requests with half of the sectors should be worth
// more than any change to the products. From a trial kernel we expect a factor of 1.6 at D = 128 and N = 8192. What
// became of it is in the table at [the end of part 5](../../docs/book/part-5.md).
//
// ## Run it: the same gradients

// %%
CELL("Right, and the same bits whenever copies and products are done") {
  const Mask mask = Mask::top_left();
  const Options causal{.mask = mask};
  Lesson<bfloat16> ours(200, 64);
  ours.forward(mask);
  Lesson<bfloat16> theirs = ours;
  phase21::backward(ours.backward(causal), Where::Sim);
  phase20::backward(theirs.backward(causal), Where::Sim);
  const auto now = floors(ours, causal), before = floors(theirs, causal);
  std::printf("errors in floors, bf16, causal, N = 200, D = 64\n            dQ     dK     dV\n");
  std::printf("phase 21  %.2f   %.2f   %.2f\nphase 20  %.2f   %.2f   %.2f\n", now[0], now[1], now[2], before[0],
              before[1], before[2]);
  expect(*std::max_element(now.begin(), now.end()) <= 1.6, "P and dS rounded: about √2 floors, as in phase 20");

  bool same = true, near = true;
  for (const Completion completion : {Completion::late, Completion::eager, Completion::random}) {
    Lesson<bfloat16> again = ours;
    const Order order = completion == Completion::late ? Order::forward : Order::random;
    phase21::backward(again.backward(causal), machine, {.order = order, .seed = 21, .completion = completion},
                      Mode::Atomic);
    same = same && same_bits(again.dk, ours.dk) && same_bits(again.dv, ours.dv);
    near = near && relative_error(again.matrix(again.dq), ours.matrix(ours.dq)) <= 3e-3;
  }
  expect(same, "copies and products late, eager or random, in both modes: the same bits of dK and dV");
  expect(near, "dQ added up by all blocks is that of the deterministic mode, but for rounding");
}

// %% [markdown]
// The rows of dS are held to their sums, as [page 20](../20-backward-tensor-cores/notebook.cpp) does it. dSᵀ lies in
// shared memory, where a warp reads it transposed. While `wgmma` makes dQ, each warp sums 16 rows.
//
// ```{region} tiles.cuh excess
// ```

// %%
CELL("Inputs with a mean") {
  std::printf("bf16, N = 512, D = 64: dQ in floors   without the sums, predicted   with them\n");
  double worst = 0;
  for (const auto& [name, distribution, to_k, predicted] :
       {std::tuple{"uniform[0,1)", Distribution::Uniform, 0.0f, std::sqrt(8.0)},
        {"N(0,1), K + 4", Distribution::Normal, 4.0f, std::sqrt(34.0)}}) {
    Lesson<bfloat16> lesson(512, 64, distribution, to_k);
    lesson.forward();
    phase21::backward(lesson.backward(), machine, {}, Mode::Atomic);
    const double error = floors(lesson)[0];
    std::printf("%-34s %30.2f %11.2f\n", name, predicted, error);
    worst = std::max(worst, error);
  }
  expect(worst <= 2, "dQ within 2 floors");
}

// %% [markdown]
// ## Predicted = counted
//
// The five products are 10 N² D FLOP, and each number of dS is summed by an `mma` with 8 columns of ones. What
// `wgmma` reads is the sum of the bytes above, for each pair of a Q tile and a K/V tile.

// %%
CELL("What is multiplied, and what moves") {
  if (!counts()) return;
  for (const std::uint64_t D : {64, 128}) {
    const std::uint64_t N = 256, Br = 64 * 128 / D, Bc = 128, pairs = N / Br * (N / Bc), wide = N * D * 4;
    Lesson<half> lesson(N, D);
    lesson.forward();
    Options options = tiles_of(D);
    options.mode = Mode::Atomic;
    const HbmBytes formula = phase21::backward_features.hbm_bytes(lesson.backward(options), {int(Br), int(Bc)});
    Ledger l = phase21::backward(lesson.backward(options), machine, {}, Mode::Atomic).ledger;
    const std::uint64_t of_pair = 2 * Bc * D * 2 + 8 * Br * D * 2 + 4 * Bc * 64 * 2;
    std::printf("D = %d\n", int(D));
    bool same = equal(l.tensor_flops, 10 * N * N * D + 16 * N * N, "  FLOP: five products, and sums of dS");
    same &= equal(l.exps, N * N, "  exponentials");
    same &= equal(l.wgmma_shared_bytes, pairs * of_pair, "  bytes that wgmma reads");
    same &= equal(l.array("Q").read_bytes, N / Bc * N * D * 2, "  bytes of Q, for each K/V tile");
    same &= equal(l.array("K").read_bytes, (N + 64) * D * 2, "  bytes of K, once, and 64 for the centre");
    same &= equal(l.array("dQ_sum").written_bytes, (N / Bc + 1) * wide, "  of dQ_sum: added, and cleared");
    same &= equal(l.hbm_bytes(), formula.read + formula.written, "  all bytes, by the phase's formula");
    same &= equal(l.bank_conflicts(), 0, "  bank conflicts");
    expect(same, "predicted = counted");

    Lesson<half> older = lesson;
    const Ledger before = phase20::backward(older.backward(tiles_of(D)), machine, {}, Mode::Atomic).ledger;
    const std::uint64_t then = 128 * before.shared_wavefronts, now = l.wgmma_shared_bytes + 128 * l.shared_wavefronts;
    std::printf("  bytes through shared memory: phase 20 %s, phase 21 %s\n", grouped(then).c_str(),
                grouped(now).c_str());
    expect(now < then, "fewer bytes through shared memory than phase 20");
  }
}

// %% [markdown]
// In the deterministic mode this kernel leaves dQ out, and phase 20's third kernel makes it on `mma`: seven products,
// and three of them at the speed of phase 20. What that costs is in the table, too.
//
// **Measured** on an H200: [the end of part 5](../../docs/book/part-5.md) has the speed of the step and of this phase
// beside phase 20, cuDNN and the phases that follow.
//
// **What you saw.** Five products out of one copy of each tile. An operand lies as it is or across, and the instruction
// is told which. All that threads still store in shared memory during the loop is dSᵀ. And a sum that nobody else reads
// may lie in the order in which it is made.
//
// **To think about.** 1. In fp16 and bf16 both operands may be MN-major. For fp8 `wgmma` takes K-major operands only.
// Which tiles would need a transposed copy? 2. Phase 20 keeps P in shared memory for the other warps. Where has it
// gone? 3. The 64 × 64 numbers of dQ that a warpgroup makes are other rows at D = 64, and other columns at D = 128.
// Could it be the other way round?
//
// <details><summary>Answers</summary>
//
// 1. Four: K and dSᵀ for dQ, Q for dK, dO for dV. V alone is read in one major.
//
// 2. Nowhere: a warpgroup makes P and dP for the same keys, so that dS = P ∘ (dP − δ) is made in the registers that
// hold both. Twice the accumulators in one thread are the price. They leave room for 64 keys only.
//
// 3. At D = 64 a row has 64 columns, so half of them would be 32: products of n = 32, of which each reads as many bytes
// of A as one of n = 64 does. At D = 128 a Q tile has 64 rows, and `wgmma` makes 64 at once: half of the rows is no
// product.
//
// </details>
