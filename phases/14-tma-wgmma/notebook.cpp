// %% [markdown]
// # 14 · TMA and wgmma
//
// **Question.** Part 3 ended with instructions that were made for the generation before Hopper. Most of what its
// threads do is not arithmetic: they compute addresses, begin copies of 16 bytes, load fragments, and wait for each
// other. An H200 has units that copy a whole tile, and multiply two tiles, on the word of a few threads. What does a
// kernel look like that uses them?
//
// **Idea.** Two instructions, and a barrier between them:
//
// - **TMA**, the Tensor Memory Accelerator, copies a box of a tensor to shared memory. *One thread* says which box.
// - An **mbarrier** counts the bytes: whoever wants the tile waits until all of them are there.
// - **wgmma** multiplies 64 × 16 by 16 × N, with N up to 256. A *warpgroup*, four warps, issues it together. It reads
//   its right operand from shared memory, the left one from there or from registers, and it runs on while the threads
//   do something else.
//
// **Changed since 12.** Everything between HBM and the registers. The mask, online softmax and the order of blocks are
// the old ones, written for the new layout of S. This phase grows from 12 and not from 13: most of 13's diet is about
// fragments and addresses that `wgmma` does not have. [The page before](steps.cpp) goes from 12 to 14 in eight steps.
// The kernel runs on compute capability 9.0 alone, since `wgmma` exists there only.

// %% tags=["hide-input"]
#include "phases/14-tma-wgmma/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/13-instruction-diet/phase.hpp"
#include "phases/14-tma-wgmma/steps/steps.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

// %% [markdown]
// ## Tiles are panels
//
// The host describes each tensor once, in a *tensor map*: where it begins, how long its four axes are, how far apart
// their elements lie, and how large the box of one copy is. A kernel gets the map as an argument. A copy then needs no
// more than the map, four coordinates, a place in shared memory and an mbarrier. Addresses, bounds and the swizzle are
// TMA's business. What lies outside the tensor becomes zero, so loading a ragged last tile takes no code at all.
//
// ```{region} tiles.cuh maps
// ```
// ```{region} attention.cuh launch
// ```
//
// The keys' maps end where the last row of Q stops seeing. What lies behind, NaN included, is outside the tensor.
//
// Phase 11 swizzled rows of any length. TMA swizzles rows of at most 128 bytes, which are 64 elements. So a tile of 128
// columns is two *panels* of 64 columns, one after the other, each loaded by a copy of its own:
//
// ```{region} attention.cuh tiles
// ```
// ```{region} tiles.cuh load-tile
// ```
//
// Piece c of row r lies where piece c XOR (r mod 8) would be: phase 11's permutation. The hardware takes the row's
// number from the address, which is why tiles begin at multiples of 1024 bytes, eight rows. Begun 512 bytes further on,
// a kernel like this one computed nonsense on an H200.
//
// We can ask for the layout, and for `wgmma`'s accumulators too. Here is the smallest kernel that does all that is new:
//
// ```{region} steps/tile.cuh ask
// ```

// %% tags=["hide-input"]
static const char* hues[] = {"#8ecae6", "#ffb703", "#90be6d", "#f28482", "#cdb4db", "#d4a373", "#84a59d", "#ffd6a5"};
static const char* small = "font-size=\"11\" fill=\"#666\"";

CELL("A panel in shared memory, and S in the registers of a warpgroup") {
  const phase14::Laid laid = phase14::ask_on(machine)();
  svg::Canvas canvas(900, 520, "What TMA wrote, and who holds what wgmma computed");
  canvas.text(16, 62, "Rows 0–7 of a panel: which piece lies where", "font-weight=\"bold\"");
  bool swizzled = true;
  for (int r = 0; r < 64; ++r)
    for (int place = 0; place < 8; ++place) {
      const int element = laid.tile[r][8 * place], piece = element % 64 / 8;
      swizzled = swizzled && piece == (place ^ r % 8);
      for (int i = 0; i < 8; ++i) swizzled = swizzled && laid.tile[r][8 * place + i] == 64 * r + 8 * piece + i;
      if (r >= 8) continue;
      canvas.rect(70 + 36 * place, 74 + 28 * r, 36, 28,
                  std::string("stroke=\"white\" fill=\"") + (piece == 3 ? "#0072b2" : "#cfe3f1") + "\"");
      canvas.text(88 + 36 * place, 92 + 28 * r, std::to_string(piece),
                  std::string("text-anchor=\"middle\"") + (piece == 3 ? " fill=\"white\"" : ""));
      if (place == 0) canvas.text(16, 92 + 28 * r, "row " + std::to_string(r), small);
    }
  std::array<int, 64 * 64> thread_of;
  thread_of.fill(-1);
  for (int thread = 0; thread < 128; ++thread)
    for (const int element : laid.S[thread]) thread_of[element] = thread;
  canvas.text(430, 62, "S [64, 64]: which lane holds it, in each warp's first rows", "font-weight=\"bold\"");
  for (int warp = 0; warp < 4; ++warp)
    for (int r = 0; r < 3; ++r)
      for (int c = 0; c < 16; ++c) {
        const int thread = thread_of[64 * (16 * warp + r) + c];
        const double x = 500 + 24 * c, y = 74 + 108 * warp + 26 * r;
        canvas.rect(x, y, 24, 26, std::string("stroke=\"white\" fill=\"") + hues[thread % 32 / 4] + "\"");
        canvas.text(x + 12, y + 17, std::to_string(thread % 32), "text-anchor=\"middle\" font-size=\"11\"");
        if (c > 0) continue;
        canvas.text(430, y + 17, "row " + std::to_string(16 * warp + r), small);
        const std::string last = std::to_string(16 * warp + 15), its_warp = std::to_string(thread / 32);
        if (r == 2) canvas.text(500, y + 42, "… to row " + last + ": warp " + its_warp, small);
      }
  canvas.text(16, 326, "A piece is 16 bytes, 8 elements. Piece 3 is dark.", "fill=\"#666\"");
  canvas.text(16, 512, "Found by the kernel above: the tile's elements are their own numbers.", "fill=\"#666\"");
  picture("14-panel", canvas.str());
  expect(swizzled, "piece c of row r lies at c XOR (r mod 8), in all 64 rows");

  bool as_said = true, as_operand = true;
  for (int thread = 0; thread < 128; ++thread)
    for (int i = 0; i < 32; ++i) {
      const int warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
      const int row = laid.S[thread][i] / 64, column = laid.S[thread][i] % 64;
      as_said = as_said && row == 16 * warp + g + 8 * (i / 2 % 2) && column == i / 4 * 8 + 2 * t + i % 2;
      // Phase 10's A, 16 x 16: register j of a lane holds row g + 8 (j % 2), columns 2t + 8 (j / 2) and the next one.
      const int j = i % 8 / 2;
      as_operand = as_operand && row % 16 == g + 8 * (j % 2) && column % 16 == 2 * t + 8 * (j / 2) + i % 2;
    }
  expect(as_said, "element i of a thread: row 16 w + l / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (l % 4) + i % 2");
  expect(as_operand, "8 elements of S, in their order, are the 4 registers of a left operand of 16 columns");
}

// %% [markdown]
// The last claim is phase 10's again: P needs no exchange between lanes on its way from the first product to the
// second. A warp has 16 of the warpgroup's 64 rows, and within a warp lanes share rows as they did with `mma`.
//
// **Not every tensor can be copied so.** TMA wants 16 bytes at a time: the address, the bytes of a row and all strides
// must be multiples of 16, and it counts rows in 32 bits. Other tensors are refused by name. Phase 13 takes them, since
// its threads can copy element by element.
//
// ## The barrier that counts bytes
//
// `__syncthreads()` waits for threads. An mbarrier, 8 bytes of shared memory, waits for two things: so many *arrivals*
// of threads, and so many *bytes* of copies. When nothing is missing any more its phase is complete, and the next one
// begins, with the same number of arrivals. A waiting thread names the phase by its parity, 0 or 1:
//
// - `mbarrier_init(b, n)`: a phase has n arrivals. `fence_mbarrier_init()` and a `__syncthreads()` show the barrier to
//   TMA and to the other threads.
// - `mbarrier_arrive_expect_tx(b, bytes)`: an arrival, and so many bytes are missing in addition. Here the thread that
//   begins the copies is the only one to arrive: n is 1.
// - a copy: its bytes are no longer missing. They are the bytes of the *box*, what lies outside the tensor included.
// - `mbarrier_wait(b, parity)`: goes on when the phase of that parity is complete.
//
// ```{region} attention.cuh setup
// ```
// ```{region} attention.cuh first-loads
// ```
//
// ```{question}
// A row of Q tiles has five K/V tiles, 4 to 0, and there are two stages. With which parity do the threads wait for tile
// 2, and for tile 0? What would they multiply if they always waited for parity 0?
// ```

// %% tags=["hide-input"]
CELL("One barrier, three phases") {
  const int D = 128, Bc = 128, tiles = 5, stages = 2;
  int phase = 0, arrivals = 1, bytes = 0;  // missing in this phase
  std::printf("K_full[0], D = %d, Bc = %d\n%-36s phase  arrivals missing  bytes missing\n", D, Bc, "");
  const auto now = [&](const std::string& what, int fewer_arrivals, int more_bytes) {
    arrivals -= fewer_arrivals, bytes += more_bytes;
    if (arrivals == 0 && bytes == 0) ++phase, arrivals = 1;
    std::printf("%-36s %5d %17d %14s\n", what.c_str(), phase, arrivals, grouped(std::uint64_t(bytes)).c_str());
  };
  const auto passes = [&](int parity) { return phase % 2 != parity; };  // the phase of that parity is over
  now("mbarrier_init(b, 1)", 0, 0);
  bool right = true, always_0 = true;
  for (int tile = tiles - 1, loaded = 0; tile >= 0; --tile, ++loaded) {
    if (tile % stages != 0) continue;  // the other stage
    const int parity = loaded / stages % 2;
    right = right && !passes(parity);
    always_0 = always_0 && !passes(0);
    now("expect the bytes of tile " + std::to_string(tile), 1, Bc * D * 2);
    for (int panel = 0; panel < D / 64; ++panel)
      now("its panel " + std::to_string(panel) + " is there", 0, -Bc * 64 * 2);
    std::printf("%-36s\n", ("  mbarrier_wait(b, " + std::to_string(parity) + ") goes on").c_str());
    right = right && passes(parity);
  }
  expect(right, "loaded / 2 % 2: each wait lasts until its own tile is there");
  expect(!always_0, "parity 0 all the time: one of the waits does not last until then");
}

// %% [markdown]
// ```{answer}
// Tile 2 is the second one in stage 0: parity 1. Tile 0 is the third: parity 0 again. A wait for parity 0 goes on while
// phase 1 lasts, because phase 0 is complete. The threads would multiply what lies there: a tile that is about to be
// overwritten, half of it perhaps already.
// ```
//
// The checked simulator knows which bytes a thread may know of, whatever the schedule. The wrong parity is an exhibit
// of its museum, `tma_wrong_parity` in tests/simt/museum_tma.cu: *asynchronous copy: read … while
// cp.async.bulk.tensor writes it*. Its neighbours expect too many bytes (a deadlock, with the number that is missing)
// and too few (`tma_expects_too_little`), or count only the rows inside the tensor (`tma_counts_valid_rows`).
//
// ## A product of tiles
//
// `wgmma` does not get a tile, and no fragments either. It gets a *descriptor*, 64 bits: where the matrix begins in
// shared memory, how it is swizzled, and how far apart its blocks of eight rows, or its panels, are. The next 16
// columns are the same descriptor, moved on.
//
// ```{region} tiles.cuh products
// ```
//
// Q and K are both read along their rows. That is called K-major: k, the index of the sum, is the one along which
// neighbours lie in memory. V is not: its sum runs over keys, and its rows are keys. That is MN-major, and the
// instruction reads it as it lies. What took phase 11 two kinds of `ldmatrix` is one template argument here.
//
// Three more words belong to a product, because it runs beside the threads that issued it:
//
// - `wgmma_fence()`: what the threads have done with the registers comes before it.
// - `wgmma_commit()`: the products since the last commit become a *group*.
// - `wgmma_wait<n>(…)`: all but the last n groups are done. Until then nobody may read or write their registers, and
//   nobody may overwrite the tiles that they read. The arguments are the arrays that the wait is about: the compiler
//   must not move their use to before it.
//
// `wgmma_no_fence`, `wgmma_no_commit` and `wgmma_wait_too_short` are exhibits too (museum_wgmma.cu). A test on a GPU is
// no substitute. Left out in a kernel like this one, the fence changed no bit in any run on an H200: the compiler put
// one there, and said so.
//
// ## Softmax in this layout
//
// A lane holds two rows, 8 apart, and of each a quarter of the columns. These are phase 13's rules: the scale is part
// of exp2's multiply-add, a negative scale turns the signs of S, and where c · m is large m is subtracted first. What
// is gone is the bound of 2⁸ below which O was not rescaled: the maximum is exact again.
//
// ```{region} tiles.cuh uniform
// ```
// ```{region} tiles.cuh keys
// ```
// ```{region} softmax.cuh softmax
// ```
//
// These words stand in two headers of this phase, `tiles.cuh` and `softmax.cuh`, and the phases after it use them as
// they are.
//
// ## The loop
//
// What a thread holds of its warpgroup's 64 rows has one place, and so has what it does with a K/V tile:
//
// ```{region} attention.cuh consumer
// ```
// ```{region} attention.cuh loop
// ```
//
// Wait for K, multiply, softmax; wait for V, multiply. The `__syncthreads()` at the end is for the stage: both
// warpgroups have read it, so thread 0 may begin to fill it again. There are two stages, so that tile j − 1 is under
// way while tile j is multiplied. K and V have barriers of their own, so that S can begin when K is there.
//
// In the end a row is divided by its l, and O goes out from the registers:
//
// ```{region} softmax.cuh finish
// ```
// ```{region} tiles.cuh store
// ```
//
// ## Run it: whenever bytes and products arrive
//
// Copies and products have no thread. The simulator finishes them as late as the program allows, at once, or at random,
// and what is not there yet is NaN.

// %% tags=["hide-input"]
CELL("Right, and the same bits in every order") {
  Rounded<half> before(random_example(200, 64)), now(random_example(200, 64));
  const Options causal{.mask = Mask::top_left()};
  phase13::forward(before.problem(), Where::Sim);
  phase14::forward(now.problem(), Where::Sim);
  const double old = worst_head(before.widened()), error = worst_head(now.widened());
  std::printf("error against fp64: phase 13 %.1e, phase 14 %.1e\n", old, error);
  expect(error <= 1.05 * old, "O is as precise as phase 13's");

  phase14::forward(now.problem(causal), Where::Sim);
  bool same = true;
  for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
    for (const Order order : {Order::forward, Order::random}) {
      Rounded<half> again(random_example(200, 64));
      phase14::forward(again.problem(causal), machine, {.order = order, .seed = 14, .completion = completion});
      same = same && std::memcmp(again.o.data(), now.o.data(), now.o.size() * sizeof(half)) == 0 &&
             std::memcmp(again.lse.data(), now.lse.data(), now.lse.size() * sizeof(float)) == 0;
    }
  expect(same, "copies and products late, eager or random, threads in two orders: the same bits");
}

// %% [markdown]
// ## Predicted = counted
//
// TMA's bytes are those inside the tensor, and each copy is one request. What a product reads from shared memory is
// counted apart from what threads read: B each time, 16 × N elements, and A where it lies there, 64 × 16.
//
// ```{question}
// How many loads and stores of shared memory do the threads of this kernel execute? And does a warpgroup of 64 rows
// read more or fewer bytes of K and V than phase 13's warps of 32?
// ```

// %% tags=["hide-input"]
CELL("What moves") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not count\n"));
  const std::uint64_t N = 256, D = 128, Br = 128, Bc = 128, Tr = N / Br, Tc = N / Bc, pairs = Tr * Tc;
  Rounded<half> e(random_example(N, D));
  Ledger before = phase13::forward(e.problem({.block_q = 128, .block_k = 64}), Where::Checked).ledger;
  Ledger now = phase14::forward(e.problem({.block_q = 128, .block_k = 128}), Where::Checked).ledger;
  bool same = true;
  const auto equal = [&](std::uint64_t counted, std::uint64_t predicted, const char* what) {
    std::printf("%-36s predicted %11s   counted %11s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
    same = same && counted == predicted;
  };
  equal(now.array("Q").read_bytes, N * D * 2, "HBM bytes of Q");
  equal(now.array("K").read_bytes, Tr * N * D * 2, "of K, for each Q tile all of them");
  equal(now.array("V").read_bytes, Tr * N * D * 2, "of V");
  equal(now.array("Q").read_requests, Tr * Br / 64 * D / 64, "copies of Q: panels of 64 rows");
  equal(now.array("K").read_requests, pairs * D / 64, "copies of K: panels of a tile");
  equal(now.tensor_flops, 4 * N * N * D, "FLOP of wgmma");
  const std::uint64_t scores = D / 16 * (64 * 16 + 16 * Bc) * 2, output = Bc / 16 * (16 * D) * 2;
  equal(now.wgmma_shared_bytes, pairs * Br / 64 * (scores + output), "bytes that wgmma reads");
  equal(now.shared_read_requests, 0, "loads of shared memory by threads");
  equal(now.shared_write_requests, 0, "stores to it");
  equal(now.barriers, Tr * (1 + Tc), "barriers of the block");
  equal(now.shared_bytes_peak, 5 * 128 * D * 2 + 1024, "shared memory of a block");
  expect(same, "predicted = counted");

  std::printf("\n                            phase 13     phase 14\n");
  const auto line = [](const char* what, std::uint64_t a, std::uint64_t b) {
    std::printf("%-24s %11s  %11s\n", what, grouped(a).c_str(), grouped(b).c_str());
  };
  const std::uint64_t by_threads = 128 * before.shared_wavefronts;
  line("FLOP of tensor cores", before.tensor_flops, now.tensor_flops);
  line("requests for K", before.array("K").read_requests, now.array("K").read_requests);
  line("shared accesses", before.shared_read_requests + before.shared_write_requests, 0);
  line("bytes through shared", by_threads, now.wgmma_shared_bytes);
  expect(before.tensor_flops == now.tensor_flops, "the same products");
  expect(now.wgmma_shared_bytes < by_threads, "fewer bytes through shared memory");
  const std::uint64_t of_Q = pairs * Br / 64 * D / 16 * 64 * 16 * 2;
  std::printf("of the bytes that wgmma reads, Q's: %.0f %%\n", 100.0 * double(of_Q) / double(now.wgmma_shared_bytes));
}

// %% [markdown]
// ```{answer}
// None, and fewer. TMA fills the tiles, `wgmma` reads them, and S, P and O live in registers. A product reads B once
// for 64 rows where a warp of phase 13 fetched it for 32, so K and V pass half as often.
// ```
//
// The bytes of phase 13 are its wavefronts times 128, the most that 32 banks deliver. A fifth of what is left here is
// Q, which is read again with each K tile. [Phase 18](../18-diet/notebook.cpp) keeps it in registers.
//
// **What you saw.** One thread copies, a barrier counts bytes, a warpgroup multiplies what lies in shared memory, and
// every word that was left out has a finding. The threads' work has shrunk to softmax, and to waiting.
//
// **Measured** on an H200, with the table at the end of this part: for long sequences this kernel is faster than phase
// 13 by a good part. For 512 tokens it is not, and with a mask it is slower there. Phase 13 has two blocks on a
// multiprocessor, and while one begins or ends the other one multiplies. Here a block of D = 128 has its multiprocessor
// to itself, and all of its threads wait for the same tile at the same time. [The next
// page](../15-warp-specialised/notebook.cpp) takes that apart.
//
// **Exercise.** 1. Expect `sizeof tiles.K[stage] / 2` bytes and run `./flash test 14`. What does the finding say? With
// D = 64 a tile is one panel, with D = 128 two: what is the difference? 2. With which N does the last K/V tile hang
// over the end, and by how many rows? What hides the zeros? 3. Make `kStages` 3. Which lines change, and does D = 128
// still fit into 227 KiB?
