// %% [markdown]
// # 14 · TMA and wgmma
//
// **Question.** One thread copies whole tiles, and a warpgroup multiplies them where they lie. What does an attention
// kernel look like whose threads do neither?
//
// **Idea.** [TMA](tma.cpp) fills two stages of K and V, and an mbarrier for each of their places says when a tile is
// there. [wgmma](wgmma.cpp) computes S from shared memory, and O += P V with P from registers. What is left to the
// threads is softmax, and waiting.
//
// **Changed since 12.** Everything between HBM and the registers. [The page before](steps.cpp) went there in eight
// steps; here is the whole kernel. It runs on compute capability 9.0 alone, since `wgmma` exists there only.

// %% tags=["hide-input"]
#include "phases/14-tma-wgmma/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/13-instruction-diet/phase.hpp"
#include "phases/14-tma-wgmma/steps/steps.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/stages.hpp"

using namespace flash;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static bool counts() {
  if (machine == Where::Checked) return true;
  std::printf("this build has no checked simulator, and the fast one does not count\n");
  return false;
}

// A Q tile of 128 rows and five K/V tiles, D = 64: what its block does, as it is recorded.
CELL("Two stages of K and V") {
  if (!counts()) return;
  const std::int64_t D = 64, rows = 128, tiles = 5;
  Rounded<half> e(random_example(tiles * rows, D));
  Recording recording;
  phase14::forward(e.problem({.block_q = rows, .block_k = rows}), machine, {.recording = &recording});
  std::vector<svg::Place> places;
  for (const int stage : {0, 1})
    for (const std::string tile : {"K", "V"}) {
      const std::uint64_t bytes = rows * D * 2, at = bytes * (tile == "K" ? 1 + stage : 3 + stage);  // behind Q
      places.push_back({tile + ", stage " + std::to_string(stage), at, at + bytes,
                        tile + "_full[" + std::to_string(stage) + "]", tile == "K" ? "S" : "PV"});
    }
  const svg::Lives lives = svg::lives(recording, places);
  picture("14-stages",
          svg::stages("A Q tile and five K/V tiles, in the order of what happens", lives, {.between = "softmax"}));
  bool in_order = true;
  for (std::size_t place = 0; place < places.size(); ++place) {
    const std::vector<svg::Stay>& stays = lives.stays[place];
    in_order = in_order && stays.size() == (place < 2 ? 3 : 2);
    for (std::size_t i = 0; i < stays.size(); ++i) {
      in_order = in_order && stays[i].tile == 4 - long(2 * i + place / 2) && stays[i].readings.size() == 2;
      for (const auto& reading : stays[i].readings)
        in_order = in_order && reading.begin >= stays[i].complete &&
                   (i + 1 == stays.size() || reading.end <= stays[i + 1].begun);
    }
  }
  expect(in_order, "each tile is multiplied after its phase is complete, and before the next copy to its stage begins");
}

// %% [markdown]
// The picture is a recording of the first block. Tiles are taken from the last to the first. While tile 4 is
// multiplied, tile 3 is under way; then comes tile 2, into the stage that tile 4 has left. It shows an order and no
// times. On the simulator one warpgroup runs after the other, and a copy takes as long as the program allows.
//
// ## What lies in shared memory
//
// Q has a tile for each warpgroup, K and V have two stages. All are {term}`panels <panel>` of 64 columns. K and V have
// barriers of their own, so that S can begin when K is there.
//
// ```{region} attention.cuh tiles
// ```
//
// ```{question}
// How many bytes of shared memory has a block with D = 128 and tiles of 128 × 128? A multiprocessor has 227 KiB for its
// blocks. How many such blocks fit?
// ```

// %%
CELL("Shared memory of a block") {
  const std::uint64_t N = 128, all = 227 * 1024;
  for (const std::uint64_t D : {64, 128}) {
    Rounded<half> e(random_example(N, D));
    const Ledger ledger = phase14::forward(e.problem({.block_q = 128, .block_k = 128}), machine).ledger;
    const std::uint64_t tile = 128 * D * 2, bytes = ledger.shared_bytes_peak;
    std::printf("D = %3d: 5 tiles of %s bytes, with the barriers %s: %d block(s) in %s\n", int(D),
                grouped(tile).c_str(), grouped(bytes).c_str(), int(all / bytes), grouped(all).c_str());
    expect(bytes == 5 * tile + 1024, "Q, two of K, two of V, and the barriers, in multiples of 1,024 bytes");
  }
}

// %% [markdown]
// ```{answer}
// 164,864 bytes: five tiles of 32,768, and the barriers. One block fits. While it waits, no other block is there to
// multiply. With D = 64 there is memory for two.
// ```
//
// ## Barriers and first copies
//
// Thread 0 makes the barriers. Then it begins to copy Q, and as many K/V tiles as there are stages.
//
// ```{region} attention.cuh setup
// ```
// ```{region} attention.cuh first-loads
// ```
//
// ## The loop
//
// What a thread holds of its warpgroup's 64 rows, and what it does with a K/V tile, stand together in a struct. The
// functions that it calls were introduced one at a time: `hide` by phase 10, `softmax` and `finish_rows` by [the
// steps](steps.cpp), `load_tile`, `begin_scores` and `begin_output` by the pages on the two instructions. They stand in
// `tiles.cuh` and `softmax.cuh`, and the phases after this one use them as they are.
//
// ```{region} attention.cuh consumer
// ```
// ```{region} attention.cuh loop
// ```
//
// Wait for K, multiply, softmax; wait for V, multiply. The `__syncthreads()` at the end is for the stage: both
// warpgroups have read it, so thread 0 may begin to fill it again. There are two stages, so that tile j − 1 is under
// way while tile j is multiplied. `loaded` counts the tiles, so `loaded / kStages` counts the phases of a stage's
// barriers, and its lowest bit is the parity.
//
// The host makes the maps, and starts a block of 2 Br threads for each Q tile:
//
// ```{region} attention.cuh launch
// ```
//
// ## Run it: whenever bytes and products arrive
//
// Copies and products run beside the threads. The simulator finishes them as late as the program allows, at once, or at
// random, and what is not there yet is NaN.

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
  if (!counts()) return;
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
// for 64 rows where a warp of phase 13 fetched it for 32, so K and V are read half as often.
// ```
//
// The bytes of phase 13 are its wavefronts times 128, the most that 32 banks deliver. A fifth of what is left here is
// Q, which is read again with each K tile. [Phase 18](../18-diet/notebook.cpp) keeps it in registers.
//
// **What you saw.** One thread copies, a barrier counts bytes, and a warpgroup multiplies what lies in shared memory.
// The threads' work has shrunk to softmax and waiting.
//
// **Measured** on an H200, with the table at the end of this part: for long sequences and D = 128 this kernel is
// clearly faster than phase 13. For 512 tokens it is slower, and so it is with D = 64 at every length. Phase 13 has two
// blocks on a multiprocessor, and while one begins or ends the other one multiplies. Here a block of D = 128 has its
// multiprocessor to itself, and all of its threads wait for the same tile at the same time. On [the next
// page](../15-warp-specialised/notebook.cpp) some threads load and others multiply.
//
// **To think about.** 1. Expect `sizeof tiles.K[stage] / 2` bytes and run `./flash test 14`. What does the finding say?
// With D = 64 a tile is one panel, with D = 128 two: what is the difference? 2. TMA writes zeros for keys behind the
// last one. Why does the kernel mask them all the same? 3. Make `kStages` 3. Which lines change, and does D = 128 still
// fit into 227 KiB?
//
// <details><summary>Answers</summary>
//
// 1. With D = 64: *deadlock: no thread of the block can go on*, and below it *8192 bytes too many*. The box brings
//    16,384 bytes at once, and the phase never comes to exactly zero. With D = 128 each panel brings 16,384 bytes, as
//    many as are expected, so a phase is complete when one of them has come. The finding is *mbarrier: a phase …
//    expects 16384 bytes, its copies bring 32768*, and another one says that `wgmma` reads a panel while TMA writes it.
//
// 2. A key of zeros has the score 0, and exp(0 − m) is not 0: l would be too large. `hide` sets these scores to −∞. The
//    zeros are needed for V: P is 0 there, and 0 times NaN would be NaN.
//
// 3. Only that line: stages and parities are computed from it. 7 tiles of 32,768 bytes and the barriers are 230,400
//    bytes, and 227 KiB are 232,448. It fits.
//
// </details>
