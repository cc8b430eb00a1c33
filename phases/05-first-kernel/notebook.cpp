// %% [markdown]
// # 05 · The first kernel
//
// **Question.** Step 9 of [Into CUDA](steps.cpp) computes one head with D = 32 in fp32. A library's kernel takes any
// length, several head dimensions, tile sizes and element types, and tensors with gaps. What has to change?
//
// **Idea.** Hardly anything. What the compiler must know becomes a template argument; what only the launch knows
// becomes a function argument. The division of the work is that of step 9:
//
//     phase 04                              phase 05
//     for each head                         a launch
//     for each Q tile i                     a block: blockIdx.x
//     for each K/V tile j                   still a loop: the state m, l, o goes from tile to tile
//     fetch a tile                          all threads together, into shared memory; __syncthreads()
//     for each row of the tile              a thread: threadIdx.x. m, l, o are its registers
//     for each key, for each d              still loops, inside the thread
//
// **Changed since 04.** The file is CUDA C++ (`attention.cuh`). One text runs on three machines: `Where::Sim`, a fast
// simulator; `Where::Checked`, which watches every access; `Where::Gpu`.

// %% tags=["hide-input"]
#include "phases/05-first-kernel/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/04-tiled-v2/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;

static const std::int64_t N = 150, D = 32, Br = 64, Bc = 32, Tr = 3, Tc = 5;
static const Options blocks{.block_q = Br, .block_k = Bc};

static bool same_bits(const Tensor<float>& a, const Tensor<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The machine that sees most, of those that this build holds (sanitizer builds have no Checked).
static const Where watched = was_built(Where::Checked) ? Where::Checked : Where::Sim;

CELL("Blocks, threads and what they share") {
  Example e = random_example(N, D);
  const KernelReport report = phase05::forward(e.problem(blocks), Where::Sim).kernels[0];
  svg::Canvas canvas(760, 400, "S for 150 rows: a block for each Q tile, a thread for each row");
  const double x0 = 96, y0 = 84, scale = 1.5;
  static constexpr const char* colours[] = {"#bcd9ee", "#f2b36b", "#9fd8c4"};
  canvas.rect(x0, y0, scale * double(Bc * Tc), scale * double(Br * Tr),
              "fill=\"none\" stroke=\"#999\" stroke-dasharray=\"3 3\"");
  for (int j = 0; j < Tc; ++j)
    canvas.text(x0 + scale * double(Bc * j + Bc / 2), y0 - 10, "K V " + std::to_string(j + 1),
                "text-anchor=\"middle\" font-size=\"11\"");
  for (unsigned i = 0; i < report.grid[0]; ++i) {
    const double top = y0 + scale * double(Br * i), middle = top + scale * double(std::min(N - Br * i, Br)) / 2;
    canvas.text(16, middle + 4, "block " + std::to_string(i));
    for (int j = 0; j < Tc; ++j) {
      const double left = x0 + scale * double(Bc * j), wide = scale * double(std::min(N - Bc * j, Bc)),
                   high = scale * double(std::min(N - Br * i, Br));
      canvas.rect(left, top, wide, high, std::string("stroke=\"white\" fill=\"") + colours[i] + "\"");
    }
    const double end = x0 + scale * double(N) - 14;
    canvas.arrow(x0 + 12, middle, end, middle, "#222", 1);
  }
  canvas.text(16, y0 + scale * Br * Tr + 20, "dashed: computed, and left out of O", "fill=\"#666\"");

  const double at = 400;
  canvas.text(at, y0 - 10, "shared memory of a block", "font-weight=\"bold\"");
  double y = y0;
  std::uint64_t all = 0;
  struct Member {
    const char* name;
    std::int64_t rows, columns;
  };
  for (const auto& [name, rows, columns] : {Member{"Q", Br, D + 4}, {"K", Bc, D}, {"V", Bc, D}, {"P", Bc, Br}}) {
    const auto bytes = static_cast<std::uint64_t>(4 * rows * columns);
    canvas.rect(at, y, double(bytes) / 56, 24, "fill=\"#d9d9d9\"");
    canvas.text(at + 8, y + 16, std::string(name) + "[" + std::to_string(rows) + "][" + std::to_string(columns) + "]");
    canvas.text(at + double(bytes) / 56 + 8, y + 16, grouped(bytes) + " bytes");
    all += bytes;
    y += 32;
  }
  canvas.text(at, y + 14, "together " + grouped(report.ledger.shared_bytes_peak) + " bytes");
  canvas.text(at, y + 60, "registers of a thread", "font-weight=\"bold\"");
  canvas.text(at, y + 82, "m, l, o[32]: the state of its row");
  canvas.text(at, y + 102, "s[32]: its scores in the current tile");
  picture("05-block", canvas.str());
  expect(report.grid[0] == Tr && report.block[0] == Br, "3 blocks of 64 threads: 192 threads for 150 rows");
  expect(all == report.ledger.shared_bytes_peak, "Q, K, V and P are all that lies in shared memory");
}

// %% [markdown]
// ## The kernel, piece by piece
//
// Registers and loops are laid out for D, B_r and B_c, so these are template arguments, and so is the element type T. A
// kernel's arrays in shared memory then differ in size from one instantiation to the next. One struct holds them all:
//
// ```{region} attention.cuh tiles
// ```
//
// Only Q needs spare columns, since K and V are read as broadcasts. In `load_tile` a `Head` is the matrix of one head:
// pointer, rows, columns, and the `stride` from one row to the next, which is larger than the number of columns if
// there are gaps between rows. Offsets are computed in 64 bits: a tensor may have more than 2³¹ elements. D is the next
// larger head dimension that is compiled (32, 64, …); `cols` is the true one, and the columns beyond it are filled with
// zeros. `widen` converts a T to float:
//
// ```{region} attention.cuh load-tile
// ```
//
// The kernel begins with its arguments and its tiles. `shared<S>()` is the block's *dynamic* shared memory, taken as
// one struct. Its size is not part of the kernel but of the launch: `kernel<<<blocks, threads, bytes>>>`. In ordinary
// CUDA one writes `extern __shared__` and divides the bytes by hand:
//
// ```{region} attention.cuh head
// ```
//
// Then comes the loop over the K/V tiles. `trace_mark` leaves a note for the picture further down, and costs nothing on
// a GPU:
//
// ```{region} attention.cuh loop
// ```
//
// ```{region} attention.cuh scores
// ```
//
// ```{exercise} 05.8
// ```
//
// The mask is for the last tile alone, so it has an `if` around it. Here it *selects*: a key that does not exist gets
// −∞, whatever was computed for it. Multiplying by 0 would not do, because 0 · NaN is NaN:
//
// ```{region} attention.cuh mask
// ```
//
// In the online softmax `m_safe` is new since step 9: as long as a row has only seen keys with the score −∞, m is −∞,
// and −∞ − (−∞) would be NaN. `round_to<T>` rounds P to V's type, because both operands of a product on {term}`tensor
// cores <tensor core>` have the same type:
//
// ```{region} attention.cuh online-softmax
// ```
//
// ```{region} attention.cuh output
// ```
//
// Last comes the host's side. A block with more than 48 KiB of shared memory has to ask for it (`allow_shared_memory`),
// as on a GPU:
//
// ```{region} attention.cuh launch
// ```
//
// Beside step 9, line by line:
//
// ```{difference} steps/9-unrolled.cuh attention.cuh
// ```

// %% [markdown]
// ## Run it: the same attention
//
// The input is the twelve heads of the sentence. The kernel sums in another order than phase 04 and uses exp2(x·log2 e)
// for exp(x), so the last bits differ from 04's. But between the machines, and whatever the order in which blocks and
// threads run, no bit may differ: if one does, a thread has read what another thread was just writing.

// %%
CELL("Right, and the same bits on each machine") {
  Example cpu = sentence(), first = sentence();
  phase04::forward(cpu.problem({.block_q = 16, .block_k = 16}));
  const Run run = phase05::forward(first.problem({.block_q = 16, .block_k = 16}), Where::Sim);
  double apart = 0;
  for (int h = 0; h < 12; ++h)
    apart = worse(apart, relative_error(head(first.o, h), head(cpu.o, h).cast<double>().eval()));
  std::printf("%s: worst head %.1e off fp64; %.1e off phase 04\n", run.kernels[0].kernel.c_str(), worst_head(first),
              apart);
  expect(worst_head(first) <= 2e-6 && apart <= 4e-6, "the kernel computes what phase 04 computes");

  bool same = true;
  for (const Where where : {Where::Sim, watched})
    for (const Order order : {Order::forward, Order::reverse, Order::random}) {
      Example again = sentence();
      phase05::forward(again.problem({.block_q = 16, .block_k = 16}), where, {.order = order, .seed = 5});
      same = same && same_bits(first.o, again.o);
    }
  expect(same, std::string("the same bits on sim and ") + name(watched) + ", in three orders of blocks and threads");
}

// %% [markdown]
// ## The tile walk, as it happened
//
// The kernel calls `trace_mark("tile", j)` when it turns to K/V tile j. The simulator records it for each warp. It also
// records each barrier, from a warp's arrival to its release. Time is logical: steps, not nanoseconds. Each block walks
// along its own row of tiles, and none waits for another. Inside a block the warps stay in step, tile by tile.

// %% tags=["hide-input"]
CELL("What each warp does") {
  Example e = random_example(N, D);
  const Run run = phase05::forward(e.problem(blocks), watched, {.trace = "memory"});
  std::uint64_t end = 1;
  std::vector<std::vector<long>> walk(Tr * 2);  // tiles in the order of their visits, per warp
  for (const TraceEvent& event : run.trace) {
    end = std::max(end, event.end);
    if (event.name == "tile") walk[event.block[0] * 2 + event.warp].push_back(event.value);
  }
  svg::Canvas canvas(760, 86 + 30 * Tr * 2, "Three blocks of two warps walk along five K/V tiles");
  const auto x = [&](std::uint64_t t) { return 156 + 588 * double(t) / double(end); };
  const auto y = [&](const TraceEvent& event) { return 46 + 30.0 * (event.block[0] * 2 + event.warp); };
  for (const TraceEvent& event : run.trace)
    if (event.name == "tile") {
      canvas.rect(x(event.begin), y(event), x(event.end) - x(event.begin), 24, "fill=\"#bcd9ee\" stroke=\"white\"");
      canvas.text((x(event.begin) + x(event.end)) / 2, y(event) + 16, "K V " + std::to_string(event.value + 1),
                  "text-anchor=\"middle\"");
    }
  for (const TraceEvent& event : run.trace)
    if (event.name == "barrier") canvas.rect(x(event.end) - 3, y(event), 3, 24, "fill=\"#d55e00\"");
  for (int w = 0; w < Tr * 2; ++w)
    canvas.text(
        16, 62 + 30 * w,
        "Q " + std::to_string(w / 2 + 1) + " = block " + std::to_string(w / 2) + ", warp " + std::to_string(w % 2),
        "font-size=\"11\"");
  canvas.text(16, 66 + 30 * Tr * 2, std::string("logical time on ") + name(watched) + " →  orange: a barrier opens",
              "fill=\"#666\"");
  picture("05-walk", canvas.str());

  bool all = true;
  for (const auto& tiles : walk) all = all && tiles == std::vector<long>{0, 1, 2, 3, 4};
  expect(all, "each warp of each block visits the K/V tiles 1 to 5, once, in order");
  expect(run.ledger.barriers == 2 * Tr * Tc, "two barriers per tile: tile is full; tile may be overwritten");
}

// %% [markdown]
// ## The counters
//
// The bytes are predicted by phase 04's formula: Q and O once, K and V once per Q tile. Work is done on whole tiles:
// rows that do not exist are computed and thrown away, and keys that do not exist get a score (−∞) but never meet V.
// One cost that "Into CUDA" counted comes back here. Q is read as `float4`, 8 lanes at a time. 8 rows of 32 floats
// would all begin in bank 0, so `float Q[Br][D + 4]` moves each row on by four banks.
//
// ```{question}
// Which array costs the most bytes? And which one costs the most sectors of 32 bytes?
// ```

// %% tags=["hide-input"]
// How many wavefronts the lanes 0 … 7 take for a float4 each from rows of `pitch` floats: the fullest bank decides.
static int wavefronts(int pitch) {
  std::array<int, 32> words{};
  for (int lane = 0; lane < 8; ++lane)
    for (int i = 0; i < 4; ++i) ++words[(lane * pitch + i) % 32];
  return *std::max_element(words.begin(), words.end());
}

CELL("Predicted = counted") {
  expect(wavefronts(D) == 8 && wavefronts(D + 4) == 1, "by hand: 8 wavefronts without the spare columns, 1 with them");
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not count\n"));
  Example e = random_example(N, D);
  Ledger l = phase05::forward(e.problem(blocks), Where::Checked).ledger;
  const std::uint64_t once = N * D * 4;
  bool equal = true;
  std::printf("           predicted     counted   requests    sectors  sectors/request\n");
  for (const auto& [array, predicted] : {std::pair{"Q", once}, {"K", Tr * once}, {"V", Tr * once}, {"O", once}}) {
    const ArrayTraffic& a = l.array(array);
    const bool out = array[0] == 'O';
    const std::uint64_t counted = out ? a.written_bytes : a.read_bytes;
    const std::uint64_t requests = out ? a.write_requests : a.read_requests;
    const std::uint64_t sectors = out ? a.write_sectors : a.read_sectors;
    std::printf("%s %-6s %11s %11s %10s %10s %16.2f\n", array, out ? "store" : "load", grouped(predicted).c_str(),
                grouped(counted).c_str(), grouped(requests).c_str(), grouped(sectors).c_str(),
                double(sectors) / double(requests));
    equal = equal && counted == predicted;
  }
  expect(equal && l.hbm_bytes() == phase04::forward(e.problem(blocks)).ledger.hbm_bytes(),
         "bytes of each array as predicted; in all as many as phase 04");

  const std::uint64_t threads = Tr * Br, flops = 2 * threads * (Tc * Bc * D + N * D + Tc);
  std::printf("flops %s, of which %s are needed; exps %s; shared memory %s bytes per block\n", grouped(l.flops).c_str(),
              grouped(4 * N * N * D).c_str(), grouped(l.exps).c_str(), grouped(l.shared_bytes_peak).c_str());
  expect(l.flops == flops && l.exps == threads * Tc * (Bc + 1), "flops and exps of whole tiles");
  expect(l.shared_bytes_peak == 4 * (Br * (D + 4) + 2 * Bc * D + Bc * Br), "shared memory: Q, K, V and P, fp32");
  expect(l.array("K").read_sectors == 4 * l.array("K").read_requests,
         "loads: 32 neighbouring floats are 4 sectors, the fewest possible");
  expect(l.array("O").write_sectors == l.array("O").written_bytes / 4,
         "stores: each lane writes to its own row, a sector of 32 bytes for every 4");
  expect(l.shared_wavefronts > 0 && l.bank_conflicts() == 0, "no bank conflict in the whole kernel");
}

// %% [markdown]
// ```{answer}
// K and V cost the most bytes, 57,600 each: they pass once for each of the three Q tiles, Q and O only once. But O
// takes the most sectors, 4,800. Each lane stores its own row, so a request touches a sector for each lane that has a
// row, where a load touches 4.
// ```
//
// ## When something is wrong
//
// Only three tile sizes are compiled. A size that is not listed is refused with a message that names it, and so are
// tiles that would not fit into the shared memory of the chosen GPU (sm_80 is the A100). Nothing is computed then.

// %% tags=["hide-input"]
static std::string message(Example e, const Options& options, Profile profile) {
  try {
    phase05::forward(e.problem(options), Where::Sim, {.profile = profile});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

CELL("Refused by name") {
  const std::string odd = message(random_example(N, D), {.block_q = 48, .block_k = 48}, Profile::sm_90);
  const std::string large = message(random_example(16, 256), {.block_q = 32, .block_k = 64}, Profile::sm_80);
  std::printf("%s\n%s\n", odd.c_str(), large.c_str());
  expect(odd.find("48x48") != odd.npos && odd.find("64x32, 32x64, 16x16") != odd.npos, "what was asked, what exists");
  expect(large.find("bytes") != large.npos && message(random_example(16, 256), {}, Profile::sm_80) == "no error",
         "too large for sm_80: refused; left to itself the phase finds blocks that fit");
}

// %% [markdown]
// ## One launch per head
//
// The kernel knows one head, so the host launches it B·H times. A launch has only T_r = ⌈S_q / B_r⌉ blocks. An H200 has
// 132 *multiprocessors*, the units that run blocks, each with room for several. The next launch begins when the last
// block of this one has ended.
//
// ```{question}
// One head of 8192 rows, in Q tiles of 64. How many of the 132 multiprocessors have nothing to do?
// ```

// %%
CELL("A chip that starves") {
  Example e = sentence();
  const Run run = phase05::forward(e.problem({.block_q = 16, .block_k = 16}), Where::Sim);
  bool few = run.kernels.size() == 12;
  for (const KernelReport& kernel : run.kernels) few = few && kernel.grid == std::array<unsigned, 3>{4, 1, 1};
  expect(few, "the sentence: 12 launches of 4 blocks");
  unsigned most = 0;
  std::printf("  S_q   blocks per launch   multiprocessors with nothing to do, of 132\n");
  for (const int Sq : {512, 2048, 8192}) {
    Example long_text = random_example(Sq, 16);
    Problem<float> p = long_text.problem(blocks);
    p.k.shape[2] = p.v.shape[2] = 1;  // one key will do: the number of blocks depends on the queries alone
    most = phase05::forward(p, Where::Sim).kernels[0].grid[0];
    std::printf("%5d %19u %44u\n", Sq, most, 132 - std::min(most, 132u));
  }
  expect(most < 132, "even with 8192 rows there is less than one block for each");
}

// %% [markdown]
// ```{answer}
// 4: there are 128 blocks, one for each Q tile. Each of the other 128 multiprocessors has one block, where there is
// room for several, and no second block to turn to while the first waits for memory. At 512 rows 124 are idle.
// ```
//
// **What you saw.** Two loops of phase 04 became blocks and threads; the algorithm stayed, with the same tiles and the
// same bytes. Loads are coalesced, shared memory has no conflicts, and a warp's store touches eight times the bytes
// that it writes. With few rows most of the chip has nothing to do, however good one block is. That is the subject of
// phase 06. The times on an H200 are in [benchmarks](../../docs/benchmarks.md).
//
// **To think about.** 1. Delete one `__syncthreads()` in `attention.cuh` and run this page: which machine complains,
// and does it name the line? 2. Make it `Q[Br][D]`: which claim turns false, and how many conflicts are counted? 3.
// Route O through shared memory, so that neighbouring lanes store neighbouring columns. Which array can lend its space?
//
// <details><summary>Answers</summary>
//
// 1. Both do, in the second cell. The fast simulator's result is far from fp64. The checked one reports a race and
// names both sides: the write in `load_tile` by its line in `attention.cuh`, the read by that of `load4` in
// `phases/interface/device.cuh`, through which the kernel loads. The place is told as bytes of the struct:
// `Tiles<32, 16, 16>+2304` is K[0][0], behind 16 rows of 36 floats.
//
// 2. "No bank conflict in the whole kernel" turns false: 6,720 are counted. A request for Q takes 32 wavefronts instead
// of 4, and there are 240 of them (6 warps, 5 tiles, 8 `float4` in a row). The two claims about the size of shared
// memory turn false, too.
//
// 3. Q's. After the loop nobody reads it, it has as many rows as the block has threads, and its spare columns avoid
// conflicts here as well. Each thread writes its row of O there; a barrier; then the threads store the rows together,
// as they loaded them.
//
// </details>
