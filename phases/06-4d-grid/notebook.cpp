// %% [markdown]
// # 06 · All heads in one grid
//
// **Question.** Phase 05 launched one head at a time, and most of the chip had nothing to do. The heads are independent
// of each other. Why wait?
//
// **Idea.** One launch with a grid of two dimensions: `blockIdx.x` is the Q tile, `blockIdx.y` the head. A block does
// the same work as before; it only looks up where its head begins.
//
// **Changed since 05.** `Heads` (a pointer, and 64-bit {term}`strides <stride>` for b, h and s) in place of `Head`; a
// kernel of three lines, which finds its block's head; one launch where there was a loop. The work itself, `attend`, is
// phase 05's kernel.

// %% tags=["hide-input"]
#include "phases/06-4d-grid/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/04-tiled-v2/phase.hpp"
#include "phases/05-first-kernel/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;
using phase06::Grid;

static const Options blocks{.block_q = 64, .block_k = 32};

static bool same_bits(const Tensor<float>& a, const Tensor<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// B batch entries of H heads; Sq queries, Sk keys.
static Example random_heads(std::int64_t B, std::int64_t H, std::int64_t Sq, std::int64_t Sk, std::int64_t D) {
  const auto tensor = [&](std::int64_t S, std::uint32_t stream) {
    return random_tensor<float>({B, H, S, D}, 6, stream);
  };
  return {tensor(Sq, 0), tensor(Sk, 1), tensor(Sk, 2), make_tensor<float>({B, H, Sq, D}), {}};
}

static std::string text(const std::array<unsigned, 3>& grid) {
  return "(" + std::to_string(grid[0]) + ", " + std::to_string(grid[1]) + ", " + std::to_string(grid[2]) + ")";
}

// The machine that sees most, of those that this build holds (sanitizer builds have no Checked).
static const Where watched = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static const char* const head_colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e0b000", "#777777"};

CELL("The same blocks, launched head by head or at once") {
  Example e = sentence();
  const auto many = phase05::forward(e.problem({.block_q = 16, .block_k = 16}), Where::Sim).kernels,
             one = phase06::forward(e.problem({.block_q = 16, .block_k = 16}), Where::Sim).kernels;
  svg::Canvas canvas(760, 346, "Twelve heads of 4 Q tiles on a chip with 132 multiprocessors");
  const double y0 = 78, height = 216, slot = 25, place = height / 132;
  unsigned blocks_of_05 = 0, blocks_of_06 = 0;
  const auto panel = [&](double x0, const std::string& title, const std::vector<KernelReport>& launches,
                         unsigned& all) {
    canvas.text(x0, 60, title, "font-weight=\"bold\"");
    canvas.rect(x0, y0, slot * 12, height, "fill=\"#f1f1f1\" stroke=\"#999\"");
    for (std::size_t t = 0; t < launches.size(); ++t) {
      const auto [tiles, heads, layers] = launches[t].grid;
      for (unsigned h = 0; h < heads; ++h)  // a bar for each head: its Q tiles are neighbours
        canvas.rect(x0 + slot * double(t) + 1, y0 + place * h * tiles, slot - 2, place * tiles - 0.5,
                    std::string("fill=\"") + head_colours[(t + h) % std::size(head_colours)] + "\"");
      all += tiles * heads * layers;
    }
    const unsigned busy = launches[0].grid[0] * launches[0].grid[1];
    canvas.text(x0, y0 + height + 20,
                std::to_string(busy) + " blocks at a time, " + std::to_string(132 - busy) + " places empty");
  };
  panel(66, "phase 05: a launch for each head", many, blocks_of_05);
  panel(436, "phase 06: one launch", one, blocks_of_06);
  canvas.text(16, y0 + 10, "place 1", "font-size=\"11\"");
  canvas.text(60, y0 + height, "132", "text-anchor=\"end\" font-size=\"11\"");
  canvas.text(66, 338, "time →   a colour is a head; assumed: a block for each place, all blocks equally long",
              "fill=\"#666\"");
  picture("06-launches", canvas.str());
  expect(many.size() == 12 && one.size() == 1 && blocks_of_05 == 48 && blocks_of_06 == 48,
         "48 blocks either way: 12 launches of 4, or 1 of 48");
}

// %% [markdown]
// ## The code
//
// Phase 05's kernel has become a device function, `attend`. (`__device__` marks a function that kernels call.) It is
// told which Q tile is its own instead of asking `blockIdx`, so that the kernel of any grid can call it. Everything
// after these lines is as in phase 05.
//
// ```{region} attention.cuh attend
// ```
//
// The kernel itself has three lines. It works out which head its block belongs to, and `Q.head(b, h)` finds where that
// head begins: `b` times one stride plus `h` times another. CUDA allows at most 65,535 blocks along y, so further heads
// continue in z. In the last layer of z there may be blocks without a head. They do nothing: `if (b < B)`.
//
// ```{region} attention.cuh grid
// ```
//
// On the host, one launch takes the place of two loops. `grid_of` folds the heads as just described.
// `allow_shared_memory` asks for more than the 48 KiB that a block gets without asking.
//
// ```{region} attention.cuh launch
// ```
//
// What this changed, against phase 05:
//
// ```{difference} ../05-first-kernel/attention.cuh attention.cuh
// ```

// %% [markdown]
// ## Run it: the same bits in one launch

// %% tags=["hide-input"]
CELL("Phase 05, bit for bit") {
  Example before = sentence(), now = sentence();
  const Run many = phase05::forward(before.problem({.block_q = 16, .block_k = 16}), watched);
  const Run one = phase06::forward(now.problem({.block_q = 16, .block_k = 16}), watched);
  std::printf("05: %2d launches, grid %s\n06: %2d launch,   grid %s\n", int(many.kernels.size()),
              text(many.kernels[0].grid).c_str(), int(one.kernels.size()), text(one.kernels[0].grid).c_str());
  expect(
      many.kernels.size() == 12 && one.kernels.size() == 1 && one.kernels[0].grid == std::array<unsigned, 3>{4, 12, 1},
      "12 launches of 4 blocks have become one of 4 × 12");
  expect(same_bits(before.o, now.o) && worst_head(now) <= 2e-6, "no bit of O has changed");
  expect(many.ledger == one.ledger, "nor has any counter: bytes, sectors, flops, barriers");
  if (!was_built(Where::Checked)) return;
  const std::uint64_t once = 12 * 50 * 32 * 4;
  Ledger l = one.ledger;
  std::printf("         predicted     counted\n");
  bool equal = true;
  for (const auto& [array, predicted] : {std::pair{"Q", once}, {"K", 4 * once}, {"V", 4 * once}, {"O", once}}) {
    const std::uint64_t counted = l.array(array).read_bytes + l.array(array).written_bytes;
    std::printf("%s     %13s %11s\n", array, grouped(predicted).c_str(), grouped(counted).c_str());
    equal = equal && counted == predicted;
  }
  expect(equal, "predicted = counted: Q and O once, K and V once for each of the 4 Q tiles of a head");
}

// %% [markdown]
// ## Strides
//
// A kernel for attention is written for [B, H, S, D], where the rows of a head follow each other. But the linear layer,
// the matrix product that makes Q, K and V from the tokens, writes [B, S, H, D]: the heads of one token side by side.
// Many programs therefore copy their tensors ("transpose, contiguous") before they call attention. It is enough to say
// where the next head and the next row begin. Only the D numbers of a row must lie side by side. Strides and offsets
// have 64 bits, because B·H·S·D may exceed 2³¹.
//
// ```{exercise} 06.1
// ```

// %% tags=["hide-input"]
CELL("No copy") {
  const std::int64_t B = 2, H = 3, S = 100, D = 32;
  Example dense = random_heads(B, H, S, S, D), token = random_heads(B, H, S, S, D);
  const auto permuted = [&](Tensor<float>& t) {  // t's memory as [B, S, H, D]
    return View<float>{t.data(), {B, H, S, D}, {S * H * D, D, H * D, 1}};
  };
  const auto each_row = [&](const auto& f) {
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t h = 0; h < H; ++h)
        for (std::int64_t s = 0; s < S; ++s) f(b, h, s);
  };
  for (auto [from, to] : {std::pair{&dense.q, &token.q}, {&dense.k, &token.k}, {&dense.v, &token.v}})
    each_row([&](auto... row) { std::copy_n(view(*from).row(row...), D, permuted(*to).row(row...)); });

  const Run plain = phase06::forward(dense.problem(blocks), watched);
  const Problem<float> p{permuted(token.q), permuted(token.k), permuted(token.v), permuted(token.o), nullptr, blocks};
  const Run strided = phase06::forward(p, watched);
  bool same = true;
  each_row([&](auto... row) {
    same = same && std::memcmp(p.o.row(row...), view(dense.o).row(row...), D * sizeof(float)) == 0;
  });
  expect(same, "[B, S, H, D] in, [B, S, H, D] out, the bits of [B, H, S, D]");
  expect(plain.ledger == strided.ledger, "the same bytes and sectors: a row of D floats is contiguous either way");
}

// %% [markdown]
// ## More heads than a grid is high
//
// The limit of 65,535 holds along y and z; along x it is 2³¹ − 1. Heads that do not fit along y are folded into z.
//
// ```{question}
// 65,536 heads with a single Q tile each: one more than y allows. What is the grid now, and how many of its blocks have
// no head?
// ```

// %% tags=["hide-input"]
CELL("65,536 heads") {
  Example e = random_heads(256, 256, 1, 2, 4);
  const Run run = phase06::forward(e.problem({.block_q = 16, .block_k = 16}), Where::Sim);
  std::printf("grid %s\n", text(run.kernels[0].grid).c_str());
  const RowMajor<double> got = Eigen::Map<RowMajor<float>>(e.o.data(), 65536, 4).cast<double>();
  phase04::forward(e.problem());
  const RowMajor<double> want = Eigen::Map<RowMajor<float>>(e.o.data(), 65536, 4).cast<double>();
  const double first = relative_error(got.topRows(65535), want.topRows(65535));
  const double last = relative_error(got.bottomRows(1), want.bottomRows(1));
  std::printf("off phase 04: heads 0 to 65,534 %.1e, head 65,535 %.1e\n", first, last);
  expect(run.kernels[0].grid == std::array<unsigned, 3>{1, 65535, 2}, "one head more than y holds: a second layer");
  expect(first <= 4e-6 && last <= 4e-6, "phase 04's output, also from the second layer");
  Example wide = random_heads(1, 65536, 1, 1, 1);
  std::string message = "no error";
  try {
    phase06::forward_variant(wide.problem(), Grid::Three, Where::Sim);
  } catch (const Error& error) {
    message = error.what();
  }
  std::printf("without folding: %s\n", message.c_str());
  expect(message.find("grid.y is 65536") != message.npos, "a grid that does not fold is refused by name");
}

// %% [markdown]
// ```{answer}
// (1, 65535, 2), and 65,534 blocks have no head. The second layer of z has room for as many heads as the first, and
// holds only the last one. Its other blocks leave at once.
// ```
//
// ## Three grids
//
// `variants.cuh` has two more grids, which other projects use: (Q tile) with a loop over heads inside the block, and
// (batch, head, Q tile). The work for a Q tile is the same, and so are the bits and the counters. What differs is the
// number of blocks, and which of them run at the same time. Blocks of one head read the same K and V. CUDA does not
// promise an order in which blocks start. Suppose that it is the order of their index, x fastest. Then the picture
// below shows which heads are read at once. Whether a cache gains from it was not measured.
//
// Each grid has a name, and a number of blocks along each of x, y and z:
//
// ```{region} grid.hpp grids
// ```
// ```{region} grid.hpp extents
// ```
//
// The variants call the same `attend`. In the first, a block works through all heads one after the other:
//
// ```{region} variants.cuh one-dimension
// ```
//
// In the second, x counts the batch entries, y the heads and z the Q tiles:
//
// ```{region} variants.cuh three-dimensions
// ```
// ```{region} variants.cuh launch-variant
// ```
//
// How many heads are being read at a time follows from the order alone:
//
// ```{region} grid.hpp heads-in-flight
// ```
//
// The picture takes each block's tiles and their length from the simulator's trace, and places the blocks in this order
// on a small chip with room for 8. A colour is a head.

// %% tags=["hide-input"]
struct Step {
  std::int64_t head;
  std::uint64_t length;
};

CELL("The same bytes, another order") {
  const std::int64_t B = 2, H = 3, q_tiles = 4, kv_tiles = 3, places = 8;
  svg::Canvas canvas(760, 690, "Three grids on a chip with 8 places: 6 heads (colours), 4 Q tiles each");
  Example base = random_heads(B, H, 256, 96, 32);
  const Run two = phase06::forward(base.problem(blocks), watched);
  bool same = true;
  double scale = 0;
  std::array<std::uint64_t, 3> whole{};
  std::printf("grid               blocks   heads in flight   bytes\n");
  for (const Grid grid : {Grid::One, Grid::Two, Grid::Three}) {
    const int g = static_cast<int>(grid);
    Example e = random_heads(B, H, 256, 96, 32);
    const Run run =
        phase06::forward_variant(e.problem(blocks), grid, watched, {.order = Order::forward, .trace = "memory"});
    same = same && same_bits(e.o, base.o) && run.ledger == two.ledger;
    const std::array<unsigned, 3> size = run.kernels[0].grid;
    std::vector<std::vector<Step>> work(std::size_t(size[0]) * size[1] * size[2]);  // by linear index
    for (const TraceEvent& event : run.trace) {
      if (event.name != "tile" || event.warp != 0) continue;
      const auto [x, y, z] = event.block;
      std::vector<Step>& steps = work[(std::size_t(z) * size[1] + y) * size[0] + x];
      const std::int64_t head = grid == Grid::One   ? std::int64_t(steps.size()) / kv_tiles
                                : grid == Grid::Two ? z * size[1] + y
                                                    : x * H + y;
      std::uint64_t before = 0;
      for (const Step& step : steps) before += step.length;
      steps.push_back({head, event.end - before});  // with the loading of Q, which comes before the first mark
      if (grid == Grid::One) scale = 640.0 / double(event.end);  // the longest blocks of all
    }
    const double top = 62 + 208 * g;
    canvas.text(16, top,
                std::string(grid == Grid::One   ? "(Q tile), heads in a loop"
                            : grid == Grid::Two ? "(Q tile, head): phase 06"
                                                : "(batch, head, Q tile)") +
                    ": " + std::to_string(work.size()) + " blocks",
                "font-weight=\"bold\"");
    std::array<std::uint64_t, places> busy{};  // until when
    std::set<std::int64_t> first_heads;
    for (std::size_t n = 0; n < work.size(); ++n) {
      const std::size_t place = std::size_t(std::min_element(busy.begin(), busy.end()) - busy.begin());
      if (n < places) first_heads.insert(work[n][0].head);
      for (const Step& step : work[n]) {
        canvas.rect(90 + double(busy[place]) * scale, top + 10 + 20 * double(place), double(step.length) * scale, 18,
                    std::string("stroke=\"white\" fill=\"") + head_colours[step.head] + "\"");
        busy[place] += step.length;
      }
    }
    whole[g] = *std::max_element(busy.begin(), busy.end());
    const std::int64_t in_flight = phase06::heads_in_flight(grid, B, H, q_tiles, places).size();
    for (int place = 0; place < places; ++place)
      canvas.text(16, top + 24 + 20 * place, "place " + std::to_string(place + 1), "fill=\"#666\"");
    std::printf("%-18s %6d %17d   %s\n", text(size).c_str(), int(work.size()), int(in_flight),
                grouped(run.ledger.hbm_bytes()).c_str());
    same = same && std::int64_t(first_heads.size()) == in_flight;
  }
  picture("06-grids", canvas.str());
  expect(same, "the same bits, the same counters; heads in flight as grid.hpp says");
  expect(whole[0] == 2 * whole[1] && whole[1] == whole[2], "4 blocks leave half of the 8 places empty: twice the time");
}

// %% [markdown]
// ```{question}
// B = 4, H = 32, and 32 Q tiles for each head. 132 blocks run at a time. From how many different heads do they read K
// and V, if x counts the Q tiles, and if x counts the batch entries?
// ```

// %% tags=["hide-input"]
CELL("At full size") {
  std::printf("B = 4, H = 32, 2048 rows in tiles of 64; 132 multiprocessors, one block each\n");
  for (const Grid grid : {Grid::One, Grid::Two, Grid::Three}) {
    const auto size = phase06::extents_of(grid, 4, 32, 32);
    const auto heads = std::uint64_t(phase06::heads_in_flight(grid, 4, 32, 32, 132).size());
    std::printf("%-14s %5s blocks, K and V of %3d heads in flight: %12s bytes in fp16, D = 128\n", text(size).c_str(),
                grouped(std::uint64_t(size[0]) * size[1] * size[2]).c_str(), int(heads),
                grouped(heads * 2 * 2048 * 128 * 2).c_str());
  }
  expect(phase06::heads_in_flight(Grid::Two, 4, 32, 32, 132).size() == 5 &&
             phase06::heads_in_flight(Grid::Three, 4, 32, 32, 132).size() == 128,
         "(Q tile, head) fills the chip and reads 5 heads at once; (batch, head, Q tile) reads all 128");
}

// %% [markdown]
// ```{answer}
// 5 with (Q tile, head): 32 neighbouring blocks share a head, so 132 of them touch 5. All 128 with (batch, head, Q
// tile), where neighbours belong to different heads until every head has had its first Q tile.
// ```
//
// **What you saw.** Not one bit and not one counted byte has changed. What has changed is that the blocks of all heads
// can run at once. The simulator counts requests and knows neither time nor caches, so it cannot say what that is
// worth. [The benchmarks](../../docs/benchmarks.md) have phases 05 and 06 side by side on an H200, with the prediction
// that was made before.
//
// **To think about.** 1. For which B, H and S_q does phase 05 keep up with 06? 2. With one query ({term}`decoding`)
// T_r = 1: how many blocks are left, and what does that say about B·H? 3. Let all heads share one K and V (multi-query
// attention): which stride of K and V is 0 then? 4. Put the Q tile on z and the head on x: which row of the last table
// do you get?
//
// <details><summary>Answers</summary>
//
// 1. For B·H = 1 the two launch the same grid. With more heads phase 05 keeps up if one head fills the chip by itself,
// several times over: ⌈S_q / B_r⌉ must be much larger than the number of blocks that run at once, 132 at the least on
// an H200. With tiles of 64 rows that is far beyond 8192 rows.
//
// 2. B·H blocks, one for each head. With fewer heads than multiprocessors a part of the chip has nothing to do, however
// many keys there are. The keys must then be divided among blocks, too, and the results merged: phase 08 shows by what.
//
// 3. The one from head to head. All heads then begin at the same address, and the kernel does not notice. The sizes and
// the other strides stay.
//
// 4. The last one, with K and V of all 128 heads in flight: neighbouring blocks then belong to different heads.
//
// </details>
