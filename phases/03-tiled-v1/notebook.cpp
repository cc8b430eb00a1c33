// %% [markdown]
// # 03 · FlashAttention-1: tiles
//
// **Question.** Phase 02 keeps one row on chip and streams all keys past it, N times. Our model's fast memory holds 192
// KiB, as much as one {term}`multiprocessor` of an NVIDIA A100 has, and phase 02 used 1 KiB. What if it held a block of
// keys and a block of queries?
//
// **Idea.** Cut Q and O into T_r tiles of B_r rows, K and V into T_c tiles of B_c rows. Bring each K_j and V_j on chip
// once, stream all tiles Q_i past them, and correct O_i by the rule of phase 02, a tile at a time. The state (m, l, O)
// of all rows waits in HBM between two K/V tiles: it is read, corrected, written back.
//
// **Changed since 02.** Two loops over tiles, K and V outside; O stays divided by l in HBM. This is FlashAttention-1,
// V1 for short. (Dao et al., arXiv:2205.14135, Algorithm 1.)

// %% tags=["hide-input"]
#include "phases/03-tiled-v1/attention.hpp"

#include <cstdio>

#include "phases/01-naive/phase.hpp"
#include "phases/02-online-softmax/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"
#include "phases/pages/tile_walk.hpp"

using namespace flash;

static std::int64_t tiles(std::int64_t N, std::int64_t B) {
  return (N + B - 1) / B;
}

// K and V outside: all Q tiles pass by each K/V tile.
static svg::Walk v1_walk(const Problem<float>& p) {
  const int rows = int(tiles(p.Sq(), p.options.block_q)), columns = int(tiles(p.Sk(), p.options.block_k));
  svg::Walk walk{"V1: down the columns", rows, columns, 1, {}, "O is written back as often (and zeroed once)"};
  for (int j = 0; j < columns; ++j)
    for (int i = 0; i < rows; ++i) walk.order.push_back({i, j});
  return walk;
}

// %% [markdown]
// ## One step, before the code
//
// The sentence of page 01 has 50 tokens. With B_r = 13 and B_c = 17, S falls into 4 × 3 tiles. The algorithm walks from
// one to the next. The picture shows one step of this walk, to scale and as the memory model saw it: what is on chip
// while the third tile of Q meets the second of K, and what had to move for it.

// %% tags=["hide-input"]
CELL("What moves in one step") {
  Example e = sentence();
  const Problem<float> p = e.problem({.block_q = 13, .block_k = 17, .threads = 1});
  Moves moves;  // of each step of the run
  const Ledger ledger = phase03::forward(p).ledger;
  svg::Walk walk = v1_walk(p);
  const std::size_t seventh = 6;  // the second column's third tile
  walk.title = "K and V outside: down a column of S, then the next";
  walk.note = grouped(moves.bytes(seventh)) + " bytes move in this step";
  picture("03-step", svg::one_step("One step of FlashAttention-1", {50, 32, 13, 17}, {{walk, seventh, moves}}));

  std::uint64_t numbers = 0;
  for (const auto& [name, size] : moves.tiles) {
    std::printf("%s %s", numbers ? "," : "on chip:", name.c_str());
    numbers += size;
  }
  std::printf("; %s numbers\nmoved in this step:", grouped(numbers).c_str());
  for (const Moved& move : moves.steps[seventh]) std::printf(" %s %s", move.array.c_str(), move.read ? "in" : "out");
  std::printf("; %s bytes\n", grouped(moves.bytes(seventh)).c_str());
  expect(moves.tiles.size() == 7 && 4 * numbers == ledger.shared_bytes_peak,
         "these seven tiles are all that is on chip");
  expect(moves.bytes(seventh) == 4 * (3 * 13 * 32 + 4 * 13), "Q_i comes in; O_i, l_i and m_i come in and go out again");
}

// %% [markdown]
// K_2 and V_2 stay while all tiles of Q pass by. O, l and m of each row are unfinished until the last column, so they
// come and go at each step.
//
// ## The code
//
// First, how large are the tiles? The paper's formula divides the chip among four tiles of d columns.
//
// ```{region} phase.hpp paper-blocks
// ```
//
// More than these four has to be on chip: the scores, and l and m.
//
// ```{region} phase.hpp on-chip-bytes
// ```
//
// So we take the paper's tiles where they fit and shrink them where they do not. A caller may also ask for sizes of its
// own.
//
// ```{region} phase.hpp fitting-blocks
// ```
// ```{region} phase.hpp choose-blocks
// ```
//
// The state of all rows, (O, l, m), lies in HBM between two passes. It must be initialised there, and that already
// costs a write.
//
// ```{region} attention.hpp state-in-hbm
// ```
//
// Seven tiles have to be on chip at the same time.
//
// ```{region} attention.hpp tiles-on-chip
// ```
//
// Two loops: K and V outside, Q inside. In the inner loop look at what is loaded. Only Q_i is an input; O_i, l_i and
// m_i are unfinished results on their way through the chip.
//
// ```{region} attention.hpp two-loops
// ```
//
// Now the work on one tile. The numbers in the comments are the lines of the paper's Algorithm 1. Line 10 finds the
// maximum and the sum of this tile alone, line 11 merges them with the row's state, line 12 corrects O. Since O is kept
// divided by l, it has to be multiplied by the old l first and divided by the new one after.
//
// ```{region} attention.hpp online-softmax
// ```
//
// Beside the matrix products, most of the work is in line 10's two passes over each row, `scale_and_max` and
// `exp_minus`. They go through the row one CPU register full of numbers at a time:
//
// ```{region} softmax_row.hpp passes
// ```
//
// Their exponential is a polynomial. It need not handle what cannot occur here: x is never positive, and results below
// 1e-38 may become 0.
//
// ```{region} softmax_row.hpp exponential
// ```
//
// A row that has seen no key needs a guard here as well.
//
// ```{region} attention.hpp no-key
// ```
//
// Exponentials and rescales are declared, because the ledger cannot see them. Then O_i, l_i and m_i go back to HBM,
// until the next K/V tile asks for them.
//
// ```{region} attention.hpp count-and-store
// ```
//
// What this changed, against phase 02:
//
// ```{difference} ../02-online-softmax/attention.hpp attention.hpp
// ```

// %% [markdown]
// ## Run it: the walk over the tiles
//
// Now all twelve steps, with the same tiles of 13 rows and 17 keys. The tiles of S never exist all at once: the walk
// goes down the columns, and each tile replaces the one before it.
//
// ```{question}
// There are 4 tiles of Q and 3 of K and V, and the loop over K and V is outside. How often does each row of Q come on
// chip, and how often is each row of O written to HBM?
// ```

// %% tags=["hide-input"]
CELL("The walk") {
  Example e = sentence();
  const Problem<float> p = e.problem({.block_q = 13, .block_k = 17});
  const Ledger ledger = phase03::forward(p).ledger;
  std::printf("12 heads, relative error against fp64: %.1e\n", worst_head(e));
  expect(worst_head(e) <= 2e-6, "the same attention, from tiles");

  const svg::Walk walk = v1_walk(p);
  expect(walk.rows == 4 && walk.columns == 3, "4 × 3 tiles");
  picture("03-walk", svg::tile_walks("The tiles of S (×n: how often a tile comes on chip)", {walk}));

  const std::uint64_t once = 12 * 50 * 32 * 4;  // bytes of Q (or K, V, O) of all heads
  for (const ArrayTraffic& a : ledger.arrays)
    if (a.name.size() == 1 && a.name[0] < 'a')
      std::printf("%s: read %.0f times, written %.0f times\n", a.name.c_str(), double(a.read_bytes) / once,
                  double(a.written_bytes) / once);
  Ledger copy = ledger;
  expect(copy.array("K").read_bytes == once * svg::fetches(walk, 1)[0] &&
             copy.array("Q").read_bytes == once * svg::fetches(walk, 0)[0],
         "the ledger says what the picture says");
}

// %% [markdown]
// ```{answer}
// Q comes in 3 times, once for each K/V tile. O is read 3 times and written 4 times, because it has to be zeroed before
// the first pass. K and V come in once.
// ```
//
// ## How large may a tile be?
//
// The paper's line 1: B_c = ⌈M / 4d⌉ and B_r = min(B_c, d), where M is the size of the SRAM. Two traps:
//
// - **M counts numbers**, not bytes: 192 KiB hold 49,152 numbers of fp32.
// - **S is forgotten.** The 4 stands for Q_i, K_j, V_j, O_i. The scores S_ij, B_r × B_c numbers, are on chip as well.
//   With B_r = d everything together takes 3M/4 + 2d² + 2d numbers: that fits only if M ≥ 8d² + 8d.
//
// The cell tries the sizes of real GPUs' memories; its last line says whose they are. There a CUDA {term}`kernel` gets
// 48 KiB without asking, the static limit, and more if it asks for it (opt-in).
//
// ```{exercise} 03.1
// ```

// %% tags=["hide-input"]
CELL("The paper's tiles, and what they need") {
  bool all_fit = true;
  int over = 0;
  std::printf("   d   SRAM KiB |  paper B_r × B_c    needs KiB        | shrunk to fit       needs KiB\n");
  for (const std::int64_t d : {32, 64, 128, 256})
    for (const std::int64_t kib : {48, 99, 163, 192, 227}) {
      const auto paper = phase03::paper_blocks(kib * 256, d), fit = phase03::fitting_blocks(kib * 1024, d);
      const std::int64_t needs = phase03::sram_bytes_needed(paper, d), fit_needs = phase03::sram_bytes_needed(fit, d);
      std::printf("%4d %10d | %7d × %-6d %10.1f %-12s| %8d × %-6d %10.1f\n", int(d), int(kib), int(paper.Br),
                  int(paper.Bc), double(needs) / 1024, needs > kib * 1024 ? "does not fit" : "", int(fit.Br),
                  int(fit.Bc), double(fit_needs) / 1024);
      over += needs > kib * 1024;
      all_fit = all_fit && fit_needs <= kib * 1024;
    }
  std::printf(
      "48: static limit per block; 99, 163, 227: opt-in limit of consumer cards, A100, H100; 192: A100's L1 in all\n");
  expect(over == 12 && all_fit, "12 of the 20 tiles from the formula do not fit; ours do");
}

// %% [markdown]
// ## Bytes taken for numbers
//
// What if somebody puts an A100's 192 KiB into the formula as a number of bytes? For d = 64 it then gives B_c = 768. A
// program in Python would run with such tiles, since Python knows no SRAM. Our model does.

// %% tags=["hide-input"]
CELL("B_c = 768 on an A100") {
  const std::int64_t sram = 192 * 1024;
  const auto bytes_as_numbers = phase03::paper_blocks(sram, 64), numbers = phase03::paper_blocks(sram / 4, 64);
  std::printf("M = %d (bytes):   B_c = %d, B_r = %d\n", int(sram), int(bytes_as_numbers.Bc), int(bytes_as_numbers.Br));
  std::printf("M =  %d (numbers): B_c = %d, B_r = %d\n", int(sram / 4), int(numbers.Bc), int(numbers.Br));
  expect(bytes_as_numbers.Bc == 768 && bytes_as_numbers.Br == 64, "768 comes from taking bytes for numbers");

  Example e = random_example(1024, 64, Distribution::Uniform);
  Options options{.block_q = 64, .block_k = 768, .sram_bytes = sram};
  std::string refusal;
  try {
    phase03::forward(e.problem(options));
  } catch (const Error& error) {
    refusal = error.what();
  }
  std::printf("the model refuses: %s\n", refusal.c_str());
  expect(refusal.find("needs 196608 bytes") != std::string::npos, "K_j alone would fill the SRAM");

  const std::int64_t needed = phase03::sram_bytes_needed({64, 768}, 64);
  options.sram_bytes = needed;
  const Ledger ledger = phase03::forward(e.problem(options)).ledger;
  const double error = worst_head(e);
  std::printf("with %s bytes (%.1f KiB) it runs: on-chip peak %s, relative error %.1e\n",
              grouped(std::uint64_t(needed)).c_str(), double(needed) / 1024, grouped(ledger.shared_bytes_peak).c_str(),
              error);
  expect(ledger.shared_bytes_peak == std::uint64_t(needed) && error <= 2e-6, "correct, on a chip three times the size");
}

// %% [markdown]
// ## What it costs
//
// K and V come in once. Q, O, l and m come in once for each of the T_c tiles of K and V, and O, l and m go back each
// time.

// %%
static std::uint64_t v1_bytes(std::uint64_t N, std::uint64_t d, std::uint64_t Tc) {
  return 4 * (2 * N * d                     // K, V
              + N * d + 2 * N               // O = 0, l = 0, m = −∞ written at the start
              + Tc * (3 * N * d + 4 * N));  // per pass: Q, O, l, m read; O, l, m written
}

CELL("The ledger") {
  const std::int64_t N = 256, d = 64, Bc = 50, Tc = tiles(N, Bc);  // ragged on purpose: 5 tiles of 50 and one of 6
  Example e = random_example(N, d);
  const Ledger ledger = phase03::forward(e.problem({.block_q = 64, .block_k = Bc})).ledger;
  for (const ArrayTraffic& a : ledger.arrays)
    std::printf("  %-4s read %12s   written %12s\n", a.name.c_str(), grouped(a.read_bytes).c_str(),
                grouped(a.written_bytes).c_str());
  const std::uint64_t formula = v1_bytes(N, d, std::uint64_t(Tc));
  std::printf("counted %s = 4 · (3Nd + 2N + T_c (3Nd + 4N)) = %s, T_c = %d\n", grouped(ledger.hbm_bytes()).c_str(),
              grouped(formula).c_str(), int(Tc));
  expect(ledger.hbm_bytes() == formula, "counted = formula");
  Example same = random_example(N, d);
  const std::uint64_t rowwise = phase02::forward(same.problem()).ledger.hbm_bytes();
  std::printf("phase 02 moved %s bytes: %.0f times as many\n", grouped(rowwise).c_str(),
              double(rowwise) / double(formula));
  expect((head(e.o, 0) - head(same.o, 0)).norm() <= 4e-6 * head(same.o, 0).norm(), "and gave the same output");
}

// %% [markdown]
// ```{question}
// Give V1 twice as much SRAM. What happens to its bytes? And does it move fewer than naive attention, however small the
// SRAM is?
// ```

// %% tags=["hide-input"]
CELL("Bytes against SRAM") {
  const std::int64_t N = 512, d = 64;
  svg::Line v1{"V1, tiles shrunk to fit", {}}, law{"12 · N²d²/M numbers", {}}, naive{"naive", {}};
  law.dashed = naive.dashed = true;
  bool equal = true, halves = true;
  std::uint64_t before = 0;
  for (std::int64_t kib = 16; kib <= 512; kib *= 2) {
    Example e = random_example(N, d);
    const auto blocks = phase03::fitting_blocks(kib * 1024, d);
    const std::uint64_t counted = phase03::forward(e.problem({.sram_bytes = kib * 1024})).ledger.hbm_bytes();
    const std::uint64_t without_tiles = phase01::forward(e.problem({.sram_bytes = kib * 1024})).ledger.hbm_bytes();
    std::printf("%4d KiB: B_r × B_c = %3d × %-4d T_c = %2d, %12s bytes; naive %12s\n", int(kib), int(blocks.Br),
                int(blocks.Bc), int(tiles(N, blocks.Bc)), grouped(counted).c_str(), grouped(without_tiles).c_str());
    v1.points.push_back({double(kib), double(counted)});
    law.points.push_back({double(kib), 4 * 12.0 * double(N * N * d * d) / (double(kib) * 256)});
    naive.points.push_back({double(kib), double(without_tiles)});
    equal = equal && counted == v1_bytes(N, d, std::uint64_t(tiles(N, blocks.Bc)));
    halves = halves && (before == 0 || counted < before);
    before = counted;
  }
  v1.dots = v1.points;
  expect(equal && halves, "counted = formula; more SRAM, fewer bytes");
  expect(v1.points[0][1] > naive.points[0][1] && v1.points[1][1] > naive.points[1][1] &&
             v1.points[2][1] < naive.points[2][1],
         "with 16 and 32 KiB V1 moves more than naive, with 64 KiB less");
  picture("03-sram",
          svg::chart({"HBM bytes of V1 against SRAM, N = 512, d = 64", "SRAM [KiB]", "bytes"}, {v1, law, naive}));
}

// %% [markdown]
// ```{answer}
// They nearly halve: B_c doubles, and Q and O pass T_c = N/B_c times, which is half as often. At the end of the table
// they fall by less, because K, V and the first write of O remain. With 16 and 32 KiB V1 moves more than naive
// attention, because Q, O, l and m pass so often that S and P would have been cheaper.
// ```
//
// **What you saw.** There are T_c = N/B_c passes of about 3Nd numbers each, and B_c ≈ M/4d: together 12 N²d²/M. That is
// the paper's Θ(N²d²/M), with its constant. The traffic is still quadratic in N, but divided by the size of the chip.
// Tiles need room, though: in a small SRAM they lose to naive attention.
//
// **To think about.** 1. At which SRAM does V1 beat naive for d = 128? 2. O, l and m go to HBM and back in each pass
// although they are results, not inputs. What would have to change so that they could stay? 3. Which of the 20 tiles
// above would fit if K, V and S were fp16?
//
// <details><summary>Answers</summary>
//
// 1. V1 moves about 12 N²d²/M numbers and naive attention about 4N², so V1 wins when M is larger than 3d² numbers: 48
// KiB for d = 64, 192 KiB for d = 128. The exact formulas for N = 512 say from 51 KiB and from 202 KiB on, because S_ij
// needs room, too.
//
// 2. The loop over Q would have to be outside. A row's state is then needed by one pass over K and V only, and can stay
// on chip until the pass is over. Phase 04 does that.
//
// 3. All 20. The tightest fit is d = 128 with 227 KiB, of which 197.3 KiB are needed: K, V and S take half the room,
// while Q, O, l and m need as much as before.
//
// </details>
