// %% [markdown]
// # 05 · Into CUDA
//
// **Question.** Phase 04 is a nest of loops that a few CPU threads run. A GPU runs thousands of threads at once. How is
// such a program written, and how do we tell a good one from a bad one?
//
// **Idea.** Nine small kernels, from `y = a · x` to almost the kernel of phase 05. Each is complete, and each differs
// from the one before in one idea. For each idea there is a counter: we predict it by hand, run the kernel, and
// compare.
//
// **What you need.** C++, and phases 01 to 04. No CUDA and no GPU: the kernels run on a simulator that checks every
// memory access and counts it. They are ordinary CUDA; nvcc compiles the same files for a GPU.

// %% tags=["hide-input"]
#include "phases/05-first-kernel/steps/steps.hpp"

#include <cstdio>
#include <set>

#include "phases/04-tiled-v2/phase.hpp"
#include "phases/05-first-kernel/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

using namespace flash;
using namespace flash::phase05;

// Only the checked simulator counts; a build with AddressSanitizer does not have it.
static bool counts() {
  if (was_built(Where::Checked)) return true;
  std::printf("this build has no checked simulator, and the fast one does not count\n");
  return false;
}

static Floats numbered(int count) {
  Floats x(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(i);
  return x;
}

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-44s predicted %12s   counted %12s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}

static const char *blue = "#bcd9ee", *orange = "#d55e00", *grey = "#e4e4e4";
static std::string fill(const std::string& colour, const std::string& more = "") {
  return "fill=\"" + colour + "\"" + more;
}
static const std::string middle = "text-anchor=\"middle\"", bold = "font-weight=\"bold\"", faint = "fill=\"#666\"",
                         edge = " stroke=\"#999\"";

CELL("A GPU, as far as this page needs it") {
  svg::Canvas canvas(760, 318, "Two sides, and three kinds of memory");
  const auto box = [&](double x, double y, double w, double h, const char* colour, const std::string& text) {
    canvas.rect(x, y, w, h, fill(colour, edge));
    canvas.text(x + 10, y + 18, text, bold);
  };
  box(16, 44, 150, 258, "#f7f7f7", "host: the CPU");
  canvas.text(26, 92, "runs main()");
  canvas.text(26, 122, "launches kernels");
  canvas.text(26, 276, "copies arrays");
  box(214, 44, 530, 258, "#f7f7f7", "device: the GPU");
  for (const double y : {122.0, 272.0}) canvas.arrow(170, y, 208, y, "#222", 1);
  canvas.text(190, 114, "launch", middle);
  canvas.text(190, 264, "copy", middle);
  const char* names[] = {"multiprocessor 1", "multiprocessor 2", "… 132 in an H200"};
  for (int m = 0; m < 3; ++m) {
    const double x = 226 + 172.0 * m;
    canvas.rect(x, 72, 162, 160, fill("white", edge));
    canvas.text(x + 10, 90, names[m]);
    for (int b = 0; b < 2; ++b) {
      const double y = 98 + 66.0 * b;
      canvas.rect(x + 8, y, 146, 58, fill(blue));
      canvas.text(x + 14, y + 15, m < 2 ? "block " + std::to_string(2 * b + m) : "…");
      for (int t = 0; t < 16; ++t) canvas.rect(x + 15 + 8.5 * t, y + 21, 5, 10, fill("#0072b2"));
      canvas.rect(x + 14, y + 37, 134, 16, fill("#f2b36b"));
      canvas.text(x + 81, y + 49, "shared memory", middle);
    }
  }
  canvas.text(226, 254, "Each small bar is a thread, with registers of its own.", faint);
  canvas.rect(226, 266, 506, 26, fill("#9fd8c4"));
  canvas.text(479, 284, "HBM: the arrays, seen by all blocks", middle);
  picture("05-machine", canvas.str());
}

// %% [markdown]
// ## 1 · Threads, blocks and an index
//
// A program that uses a GPU has two sides. The *host* is the CPU and runs `main`. The *device* is the GPU, with a
// memory of its own, which the papers call HBM. A {term}`kernel` is a function that the host calls and the device runs:
// `__global__` marks it. It runs once per *thread*, in thousands of threads at the same time, and all of them execute
// the same code:
//
// ```{region} steps/1-index.cuh scale
// ```
//
// The threads differ in their number. Threads come in {term}`blocks <block>` of equal size. Inside the function
// `threadIdx.x` is the thread's number in its block, `blockIdx.x` the block's number, and `blockDim.x` the number of
// threads in a block. The first line therefore gives every thread a different `i`, and there is no loop: where phase 04
// says `for (i = 0; i < n; ++i)`, a kernel has one thread for each `i`.

// %% tags=["hide-input"]
CELL("Who takes which element?") {
  const Floats x = numbered(1000);
  Floats y(x.size());
  const KernelReport report = steps_on(Where::Sim).scale({}, 2.0f, x, y).report;
  const unsigned blocks = report.grid[0], threads = report.block[0], n = 1000, b = 2, t = 37, i = b * threads + t;
  const double left = 90, wide = 640.0 / blocks, each = wide / threads;  // per block, per thread
  svg::Canvas canvas(746, 268, "A launch for 1000 elements: 8 blocks of 128 threads");
  const double top = 190, cell = 5;  // block 2 below, unfolded: a cell for each of its threads
  canvas.raw("<polygon points=\"" + svg::num(left + wide * b) + ",78 " + svg::num(left + wide * (b + 1)) + ",78 " +
             svg::num(left + 640) + "," + svg::num(top) + " " + svg::num(left) + "," + svg::num(top) +
             "\" fill=\"#f2b36b\" fill-opacity=\"0.2\"/>");
  canvas.text(16, 66, "grid");
  canvas.text(16, 112, "array x");
  for (unsigned k = 0; k < blocks; ++k) {
    const double at = left + wide * k;
    const unsigned elements = std::min(n - k * threads, threads);
    canvas.rect(at, 48, wide - 2, 30, fill(k == b ? "#f2b36b" : blue));
    canvas.text(at + wide / 2, 67, "block " + std::to_string(k), middle);
    canvas.rect(at, 94, each * elements, 28, fill(k % 2 ? "#cfe8df" : "#9fd8c4"));
    canvas.text(at + 2, 138, std::to_string(k * threads), faint + " font-size=\"11\"");
  }
  const double end = left + each * n, place = left + each * i;
  canvas.rect(end, 94, left + 640 - end, 28, "fill=\"none\" stroke=\"#999\" stroke-dasharray=\"3 2\"");
  canvas.text(left + 640, 156, std::to_string(blocks * threads - n) + " threads of block 7 have no element",
              "text-anchor=\"end\" " + faint);
  canvas.rect(place - 1.5, 92, 3, 32, fill(orange));
  canvas.rect(left, top, cell * threads, 24, fill("#f2b36b"));
  for (unsigned k = 1; k < threads; ++k)
    canvas.line(left + cell * k, top, left + cell * k, top + 24, "stroke=\"white\"");
  canvas.rect(left + cell * t, top, cell, 24, fill(orange));
  canvas.path(svg::num(left + cell * (t + 0.5)) + "," + svg::num(top) + " " + svg::num(place) + ",124",
              "stroke=\"" + std::string(orange) + "\"");
  canvas.text(16, top + 17, "block 2");
  canvas.text(left + cell * t, top + 42, "thread 37");
  canvas.text(left + 640, top + 42, "thread 127", "text-anchor=\"end\" " + faint);
  canvas.text(left, top + 42, "thread 0", faint);
  canvas.text(left, top + 66, "i = blockIdx.x · blockDim.x + threadIdx.x = 2 · 128 + 37 = " + std::to_string(i), bold);
  picture("05-grid", canvas.str());
  expect(blocks == 8 && threads == 128 && i == 293, "thread 37 of block 2 takes element 2 · 128 + 37 = 293");
}

// %% [markdown]
// The host allocates memory on the device, copies the input there, *launches* the kernel and copies the result back:
//
// ```{region} steps/host.cu host-scale
// ```
//
// `kernel<<<blocks, threads>>>(arguments)` is the launch: the number of blocks, and the number of threads in each.
// Together the blocks are the *grid*. A GPU consists of *multiprocessors* (NVIDIA's H200 has 132); each block runs on
// one of them, and each of them runs several blocks at a time. A program of one file would call `cudaMalloc` and
// `cudaMemcpy`; this project says `m.alloc`, `m.upload` and `m.download`. So each array has a name and a size, and the
// simulator can name it in its counters and in its {term}`findings <finding>`. `m` is the `Machine`, the device that
// the kernel runs on; `ran` launches and collects what the machine reports. `data()` is the device pointer, which the
// host must not dereference.
//
// ```{exercise} 05.1
// ```
//
// One more line stands at the top of every kernel file: `namespace flash::phase05::inline FLASH_MACHINE`. The build
// compiles each file once per machine, and turns FLASH_MACHINE into `on_sim` (the fast simulator), `on_checked` (the
// one that checks and counts) or `on_gpu`, so that one program can hold all three.

// %%
CELL("A thread per element") {
  const Floats x = numbered(1000);
  Floats y(x.size());
  const Ran ran = steps_on(Where::Sim).scale({}, 2.0f, x, y);
  bool right = true;
  for (std::size_t i = 0; i < x.size(); ++i) right = right && y[i] == 2 * x[i];
  const unsigned blocks = ran.report.grid[0], threads = ran.report.block[0];
  std::printf("%u blocks of %u threads = %u threads for 1000 elements\n", blocks, threads, blocks * threads);
  expect(right && blocks == 8 && threads == 128, "y = 2 · x, by ⌈1000 / 128⌉ = 8 blocks");
  expect(blocks * threads - 1000 == 24, "24 threads of the last block have no element: `if (i < n)` is for them");
}

// %% [markdown]
// ## What a warp asks of memory
//
// The hardware runs threads in groups of 32, the {term}`warps <warp>`; a thread's place in its warp is its
// {term}`lane`. When a warp comes to a load, its 32 lanes load together: that is one {term}`request`. Memory answers in
// aligned pieces of 32 bytes, the {term}`sectors <sector>`. If the 32 lanes want 32 neighbouring floats, the request is
// for 128 bytes, which are 4 sectors. Nothing that is fetched is wasted, and the access is called {term}`coalesced`.
//
// Now let neighbouring threads take elements that lie far apart, n / 32 from each other:
//
// ```{region} steps/1-index.cuh scale-apart
// ```
//
// Each lane's float lies in a sector of its own. The warp asks for 128 bytes and memory has to deliver 32 sectors, 1024
// bytes. On the CPU it was good to give each thread a contiguous piece of the array; here it is the worst choice.

// %% tags=["hide-input"]
// A run on the checked machine, written down step by step: which warp touched which bytes of which array.
template <class Launch>
static Recording recorded(const Launch& launch) {
  Recording recording;
  MachineOptions options;
  options.recording = &recording;
  launch(options);
  return recording;
}

// The 4-byte words that a warp of a block touches at one place: the first time that it reads it, or writes it.
static std::vector<std::uint64_t> words(const Recording& r, std::uint64_t block, int warp, Recording::Kind kind,
                                        const std::string& place) {
  std::vector<std::uint64_t> touched;
  for (const Recording::Step& step : r.steps)
    for (const Recording::Part& part : step.parts) {
      const bool hbm = part.kind == Recording::Kind::read || part.kind == Recording::Kind::write;
      const std::string& name = (hbm ? r.arrays : r.launches[step.launch].chip)[part.place].name;
      if (!touched.empty() || step.block != block || step.warp != warp || part.kind != kind || name != place) continue;
      for (const Recording::Span& span : part.spans)
        for (std::uint64_t byte = span.first; byte < span.end; byte += 4) touched.push_back(byte / 4);
    }
  return touched;
}
static std::set<std::uint64_t> sectors_of(const std::vector<std::uint64_t>& words) {
  std::set<std::uint64_t> sectors;
  for (const std::uint64_t word : words) sectors.insert(word / 8);
  return sectors;
}

CELL("One request, 4 sectors or 32") {
  if (!counts()) return;
  const Floats x = numbered(4096);
  Floats y(x.size());
  svg::Canvas canvas(712, 288, "A warp loads 32 floats: what memory has to deliver");
  const double left = 56, lane = 20;
  bool right = true;
  int panel = 0;
  for (const auto& [run, name] :
       {std::pair{&Steps::scale, "neighbouring elements"}, {&Steps::scale_apart, "elements that lie 128 apart"}}) {
    const Recording r = recorded([&](const MachineOptions& o) { (steps_on(Where::Checked).*run)(o, 2.0f, x, y); });
    const std::vector<std::uint64_t> loaded = words(r, 0, 0, Recording::Kind::read, "x");
    const std::set<std::uint64_t> sectors = sectors_of(loaded);
    const double top = 66 + 122.0 * panel, wide = 32 * lane / double(sectors.size()), word = (wide - 3) / 8;
    canvas.text(left, top - 6, name, bold);
    canvas.text(16, top + 15, "lanes");
    canvas.text(16, top + 62, "HBM");
    for (int k = 0; k < 32; ++k) {
      canvas.rect(left + lane * k + 1, top, lane - 3, 20, fill("#f2b36b"));
      canvas.text(left + lane * (k + 0.5), top + 14, std::to_string(k), middle + " font-size=\"11\"");
    }
    double at = left;
    std::size_t next = 0;  // lane; a lane's number grows with its address in both kernels
    for (const std::uint64_t sector : sectors) {
      canvas.rect(at, top + 46, wide - 3, 24, fill(grey, edge));
      for (std::uint64_t w = 0; w < 8; ++w)
        if (next < loaded.size() && loaded[next] == 8 * sector + w) {
          const double middle_of = at + word * (double(w) + 0.5);
          canvas.rect(at + word * double(w), top + 46, std::max(word - 1, 1.5), 24, fill(orange));
          canvas.line(left + lane * (double(next++) + 0.5), top + 20, middle_of, top + 46, "stroke=\"#999\"");
        }
      at += wide;
    }
    canvas.text(left, top + 86,
                std::to_string(sectors.size()) + " sectors: " + std::to_string(32 * sectors.size()) +
                    " bytes come, 128 are used");
    right = right && loaded.size() == 32 && next == 32 && sectors.size() == (panel == 0 ? 4 : 32);
    ++panel;
  }
  picture("05-sectors", canvas.str());
  expect(right, "as the first warp did it: 4 sectors with neighbours, 32 apart");
}

// %% [markdown]
// *Prediction*, n = 4096: 4096 / 32 = 128 requests either way; 4 · 128 sectors with neighbours, 32 · 128 apart.

// %%
CELL("Neighbours share sectors") {
  if (!counts()) return;
  const Floats x = numbered(4096);
  Floats y(x.size());
  Ledger neighbours = steps_on(Where::Checked).scale({}, 2.0f, x, y).report.ledger,
         apart = steps_on(Where::Checked).scale_apart({}, 2.0f, x, y).report.ledger;
  const bool requests = equal(neighbours.array("x").read_requests, 128, "neighbours: requests to load x") &
                        equal(apart.array("x").read_requests, 128, "apart:      requests to load x");
  const bool sectors = equal(neighbours.array("x").read_sectors, 4 * 128, "neighbours: sectors") &
                       equal(apart.array("x").read_sectors, 32 * 128, "apart:      sectors");
  expect(requests && sectors, "the same bytes and requests, 8 times the sectors");
}

// %% [markdown]
// ```{exercise} 05.2
// ```
//
// ## 2 · A tile in shared memory
//
// A transpose that goes element by element cannot be coalesced on both sides: if a warp reads along a row, it writes
// along a column.
//
// ```{region} steps/2-tile.cuh transpose-directly
// ```
//
// Blocks and grids may have two or three dimensions; `dim3(32, 32)` is a block of 32 × 32 threads, and threads with
// neighbouring `threadIdx.x` are neighbouring lanes. The host's side is the same for all three kernels of this file:
//
// ```{region} steps/host.cu host-transpose
// ```
//
// The way out is *shared memory*: a small memory on the chip, one for each block, that all threads of the block can
// read and write. `__shared__` declares a variable there. The block copies a tile of the matrix into it, row by row,
// and reads it column by column. Shared memory has no sectors, so the columns cost nothing extra in HBM:
//
// ```{region} steps/2-tile.cuh transpose
// ```
//
// Between the two halves stands `__syncthreads()`, a {term}`barrier`: no thread of the block passes it before all have
// reached it. The kernel needs it, because each thread reads an element that another thread has written.
//
// The picture follows one warp through both kernels. Its 32 elements are drawn where the simulator saw them read (blue)
// and written (orange):

// %% tags=["hide-input"]
CELL("The way of one warp") {
  if (!counts()) return;
  const int n = 64, warp = 5;
  const std::uint64_t block = 1;  // the second of four: blockIdx is (1, 0)
  const Floats in = numbered(n * n);
  Floats out(in.size());
  const auto run = [&](auto step) {
    return recorded([&](const MachineOptions& o) { (steps_on(Where::Checked).*step)(o, in, out, n); });
  };
  const Recording direct = run(&Steps::transpose_directly), tiled = run(&Steps::transpose);
  svg::Canvas canvas(760, 494, "A transpose: warp 5 of the second block");
  // A square of `columns` words a row, with the tile of this block and the words that the warp touches.
  const auto square = [&](double x, double y, double cell, int columns, const std::string& name,
                          const std::vector<std::uint64_t>& touched, int tile_column, int tile_row, bool reads) {
    canvas.rect(x, y, cell * columns, cell * columns, fill("#f7f7f7", edge));
    canvas.rect(x + cell * tile_column, y + cell * tile_row, 32 * cell, 32 * cell, fill(grey));
    for (std::size_t k = 0, end = 0; k < touched.size(); k = end) {  // neighbours in a row are one bar
      for (end = k + 1; end < touched.size() && touched[end] == touched[end - 1] + 1;) ++end;
      const auto c = static_cast<double>(touched[k] % std::uint64_t(columns)),
                 r = static_cast<double>(touched[k] / std::uint64_t(columns));
      canvas.rect(x + cell * c, y + cell * r, cell * double(end - k), cell, fill(reads ? "#0072b2" : orange));
    }
    canvas.text(x, y - 7, name);
  };
  const auto count = [&](double x, double y, const char* what, const std::vector<std::uint64_t>& touched) {
    canvas.text(x, y, std::string(what) + ": " + std::to_string(sectors_of(touched).size()) + " sectors");
  };
  using Kind = Recording::Kind;
  const auto direct_in = words(direct, block, warp, Kind::read, "in"),
             direct_out = words(direct, block, warp, Kind::write, "out"),
             tiled_in = words(tiled, block, warp, Kind::read, "in"),
             tiled_out = words(tiled, block, warp, Kind::write, "out"),
             filled = words(tiled, block, warp, Kind::chip_write, "tile"),
             taken = words(tiled, block, warp, Kind::chip_read, "tile");
  const double cell = 2.6, side = cell * 64;
  canvas.text(16, 46, "directly", bold);
  square(90, 66, cell, 64, "in", direct_in, 32, 0, true);
  count(90, 84 + side, "read", direct_in);
  canvas.arrow(100 + side, 66 + side / 2, 564, 66 + side / 2, "#222", 1);
  square(574, 66, cell, 64, "out", direct_out, 0, 32, false);
  count(574, 84 + side, "written", direct_out);
  const double y = 296;
  canvas.text(16, y - 25, "through a tile", bold);
  square(90, y, cell, 64, "in", tiled_in, 32, 0, true);
  count(90, y + side + 18, "read", tiled_in);
  canvas.arrow(98 + side, y + side / 2, 278, y + side / 2, "#222", 1);
  square(288, y + 42, cell, 32, "tile", filled, 0, 0, false);
  canvas.text(288, y + 42 + 32 * cell + 16, "a row written");
  canvas.arrow(376, y + side / 2, 428, y + side / 2, "#222", 1);
  canvas.text(402, y + side / 2 - 8, "barrier", middle);
  square(438, y + 42, cell, 32, "tile", taken, 0, 0, true);
  canvas.text(438, y + 42 + 32 * cell + 16, "a column read");
  canvas.arrow(528, y + side / 2, 564, y + side / 2, "#222", 1);
  square(574, y, cell, 64, "out", tiled_out, 0, 32, false);
  count(574, y + side + 18, "written", tiled_out);
  picture("05-transpose", canvas.str());
  expect(sectors_of(direct_in).size() == 4 && sectors_of(direct_out).size() == 32,
         "directly: a row is read, a column written");
  expect(sectors_of(tiled_in).size() == 4 && sectors_of(tiled_out).size() == 4 && filled != taken,
         "through the tile: a row is read and a row written; the column is on the chip");
}

// %% [markdown]
// *Prediction*, n = 64: 64 · 64 / 32 = 128 requests each way. Directly: 4 sectors for each load and 32 for each store.
// Through the tile: 4 and 4.

// %%
CELL("Rows in, rows out") {
  if (!counts()) return;
  const int n = 64;
  const Floats in = numbered(n * n);
  Floats out(in.size()), again(in.size());
  Ledger direct = steps_on(Where::Checked).transpose_directly({}, in, out, n).report.ledger,
         tiled = steps_on(Where::Checked).transpose({}, in, again, n).report.ledger;
  const bool directly = equal(direct.array("in").read_sectors, 4 * 128, "directly: sectors loaded") &
                        equal(direct.array("out").write_sectors, 32 * 128, "directly: sectors stored");
  const bool through = equal(tiled.array("in").read_sectors, 4 * 128, "through a tile: sectors loaded") &
                       equal(tiled.array("out").write_sectors, 4 * 128, "through a tile: sectors stored");
  expect(out == again && directly && through, "the same transpose, an eighth of the stored sectors");
}

// %% [markdown]
// ## What the barrier protects
//
// Here is the same kernel with the barrier deleted:
//
// ```{region} steps/2-tile.cuh without-barrier
// ```
//
// Take the four threads at the tile's upper left corner. Two of them read what they have written themselves; the other
// two exchange their elements. Here is when each of them writes and reads on the fast simulator, which runs the threads
// of a block one after another as far as it can:

// %% tags=["hide-input"]
// Is element [y][x] of the transposed 32 × 32 matrix what it should be? Thread (x, y) has written it.
static std::vector<bool> right_elements(Ran (*transpose)(const MachineOptions&, const Floats&, Floats&, int),
                                        Order order) {
  const Floats in = numbered(32 * 32);
  Floats out(in.size());
  transpose({.order = order}, in, out, 32);
  std::vector<bool> right(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) right[i] = out[i] == in[i % 32 * 32 + i / 32];
  return right;
}

// The elements that come out wrong without the barrier, drawn and counted.
static int draw_wrong(svg::Canvas& canvas, double x0, const char* title, Order order) {
  const auto right = right_elements(steps_on(Where::Sim).transpose_without_barrier, order);
  const double y0 = 62, cell = 8.5;
  int wrong = 0;
  canvas.text(x0, y0 - 8, title);
  canvas.rect(x0, y0, 32 * cell, 32 * cell, fill("#cfe8df"));
  for (int y = 0; y < 32; ++y)
    for (int x = 0, end = 0; x < 32; x = end) {  // runs of wrong elements
      const auto bad = [&](int at) { return !right[std::size_t(32 * y + at)]; };
      for (end = x + 1; end < 32 && bad(end) == bad(x);) ++end;
      if (!bad(x)) continue;
      canvas.rect(x0 + cell * x, y0 + cell * y, cell * (end - x), cell, fill(orange));
      wrong += end - x;
    }
  return wrong;
}

CELL("Who writes before whom reads") {
  const auto with = right_elements(steps_on(Where::Sim).transpose, Order::forward),
             without = right_elements(steps_on(Where::Sim).transpose_without_barrier, Order::forward);
  svg::Canvas canvas(760, 358, "Four threads of a block: who writes before whom reads?");
  // Thread (x, y) writes tile[y][x] and reads tile[x][y].
  const std::array<std::array<int, 2>, 4> threads{{{0, 0}, {1, 0}, {0, 1}, {1, 1}}};  // x, y, in the order they run
  const double left = 110, slot = 78, row = 30;
  int wrong = 0;
  for (const bool barrier : {true, false}) {
    const double top = barrier ? 66 : 222;
    canvas.text(16, top - 14, barrier ? "with the barrier" : "without it", bold);
    std::array<double, 4> written{}, read{};  // when: the left edge of the box
    for (int k = 0; k < 4; ++k) {
      written[k] = left + slot * (barrier ? k : 2 * k);
      read[k] = left + (barrier ? 14 + slot * (4 + k) : slot * (2 * k + 1));
    }
    for (int k = 0; k < 4; ++k)
      canvas.line(left, top + row * k + 12, left + 8 * slot + 20, top + row * k + 12, "stroke=\"#ddd\"");
    std::array<bool, 4> right{};
    for (int k = 0; k < 4; ++k) {  // from the box that writes to the box that reads
      const auto [x, y] = threads[k];
      const int source = 2 * x + y;  // which of the four writes tile[x][y]
      right[k] = (barrier ? with : without)[std::size_t(32 * y + x)];
      wrong += !right[k];
      if (source != k)
        canvas.line(written[source] + (right[k] ? slot - 4 : 0), top + row * source + 12,
                    read[k] + (right[k] ? 0 : slot - 4), top + row * k + 12,
                    std::string("stroke-width=\"2\" stroke=\"") + (right[k] ? "#009e73\"" : "#d55e00\""));
    }
    for (int k = 0; k < 4; ++k) {
      const auto [x, y] = threads[k];
      canvas.text(16, top + row * k + 17, "thread (" + std::to_string(x) + ", " + std::to_string(y) + ")");
      const auto box = [&](double from, const std::string& text, const char* colour, bool light) {
        canvas.rect(from, top + row * k, slot - 4, 24, fill(colour));
        canvas.text(from + slot / 2 - 2, top + row * k + 16, text,
                    middle + " font-size=\"11\"" + (light ? " fill=\"white\"" : ""));
      };
      box(written[k], "writes [" + std::to_string(y) + "][" + std::to_string(x) + "]", blue, false);
      box(read[k], "reads [" + std::to_string(x) + "][" + std::to_string(y) + "]", right[k] ? "#9fd8c4" : orange,
          !right[k]);
    }
    if (barrier) canvas.rect(left + 4 * slot + 3, top - 8, 5, 4 * row + 8, fill("#8a3d70"));
    if (barrier) canvas.text(left + 4 * slot + 14, top - 10, "barrier: all have written", "fill=\"#8a3d70\"");
  }
  canvas.text(left, 352, "time →   green: what it reads has been written; orange: not yet", faint);
  picture("05-barrier", canvas.str());
  expect(std::count(with.begin(), with.end(), false) == 0, "with the barrier all elements are right");
  expect(wrong == 1, "without it, one of these four reads too early");
}

// %% [markdown]
// On a GPU such a kernel may give the right answer for years, because the warps of a block often run in a lucky order.
// The fast simulator's order does not vary, so the damage shows each time. The checked simulator does not need bad
// luck: it notices when nothing puts two accesses in order, and names both. In its words `tile+128` is byte 128 of
// `tile`, which is the element tile[1][0]. Fresh shared memory counts as unwritten, so a read that comes before any
// write is a finding, too.
//
// ```{question}
// The picture has four threads, and one of them reads too early. A tile has 32 × 32. How many of its 1024 elements does
// the transpose get wrong on the fast simulator: nearly all, nearly half, or about 32?
// ```

// %%
CELL("A missing barrier") {
  svg::Canvas canvas(640, 356, "Without the barrier: elements of the result that are wrong (orange)");
  const int wrong = draw_wrong(canvas, 16, "threads run from the first to the last", Order::forward),
            back = draw_wrong(canvas, 336, "threads run from the last to the first", Order::reverse);
  picture("05-early", canvas.str());
  std::printf("fast simulator: %d of 1024 elements are wrong\n", wrong);
  expect(wrong > 0, "without the barrier the transpose is wrong");
  expect(wrong == back && wrong == 32 * 31 / 2, "in either order of threads, one of each pair across the diagonal");

  if (!counts()) return;
  const Floats in = numbered(32 * 32);
  Floats out(in.size());
  const Ran ran = steps_on(Where::Checked).transpose_without_barrier({.threads = 1, .keep_going = true}, in, out, 32);
  for (const Finding& finding : ran.findings) std::printf("\n%s\n", finding.text.c_str());
  bool race = false;
  for (const Finding& finding : ran.findings) race = race || finding.kind == "race";
  expect(race, "the checked simulator reports the race and names both lines");
}

// %% [markdown]
// ```{answer}
// 496 of 1024, nearly half. Each thread reads the element that its mirror image across the diagonal writes. Of every
// such pair the thread that runs first reads too early; the other finds what it needs, and on the diagonal a thread
// reads what it has written itself. On a GPU the number may differ from run to run. The first race that the checked
// simulator names is the orange one of the four threads: lane 1 of warp 0 is thread (1, 0), which reads tile[1][0], and
// lane 0 of warp 1 is thread (0, 1), which writes it.
// ```
//
// ```{exercise} 05.5
// ```
//
// ```{exercise} 05.6
// ```
//
// With shared memory and barriers the threads of a block can add up what each of them has: a *reduction*. The 32 lanes
// of a warp need neither for that: `__shfl_xor_sync` hands each lane another lane's register, a *shuffle*. Softmax
// needs such a sum for each row. This page has no use for it, because a thread owns a whole row; from phase 10 on four
// lanes share one.
//
// ```{exercise} 05.3
// ```
//
// ```{exercise} 05.4
// ```
//
// ## 3 · Attention, one thread per row
//
// A correct attention kernel needs nothing more. This one is phase 01 with the loop over the rows replaced by threads.
// It writes S to HBM, reads it back for the maximum, turns it into P and reads that again. `fmaf(a, b, c)` is a · b + c
// with one rounding, which the hardware does in one instruction; it counts as 2 FLOPs.
//
// ```{region} steps/3-naive.cuh attention
// ```
//
// ```{region} steps/host.cu host-naive
// ```
//
// Phase 01 brought tiles of Q, K, P and V into SRAM for its products. This kernel does not: each operand comes from HBM
// every time it is used. For each of the N² pairs of a query and a key it loads D elements of Q, of K and of V, and P
// once for each of the D columns of O:
//
//     read     Q: N²D    K: N²D    V: N²D    S: N² (maximum) + N² (P) + N²D (O)
//     written  S: N² (S) + N² (P)            O: ND
//
// The sectors tell two kinds of loads apart. In the loop over j all lanes of a warp load *the same* element of K: 32
// lanes want one sector. This is a {term}`broadcast`, the cheapest request there is. From Q each lane loads its own
// row, and the rows lie D · 4 = 128 bytes apart: a sector per lane.

// %% tags=["hide-input"]
static const int N = 150, D = step_D;
static const std::uint64_t Tr = 3, Tc = 5, warps = 2 * Tr, n = N, d = D;  // Q tiles, K/V tiles, warps of all blocks

// One step on N = 150 random rows, three Q tiles of 64 of which the last is ragged. Its O stays in `e`.
static Ran run_step(AttentionStep Steps::*step, Example& e, Where where) {
  const auto floats = [](const Tensor<float>& t) { return Floats(t.data(), t.data() + t.size()); };
  Floats o(e.o.size());
  const Ran ran = (steps_on(where).*step)({}, floats(e.q), floats(e.k), floats(e.v), o);
  std::copy(o.begin(), o.end(), e.o.data());
  return ran;
}

static Ledger count(AttentionStep Steps::*step) {
  Example e = random_example(N, D);
  return run_step(step, e, Where::Checked).report.ledger;
}

static bool same_bits(AttentionStep Steps::*a, AttentionStep Steps::*b) {
  Example x = random_example(N, D), y = random_example(N, D);
  run_step(a, x, Where::Sim), run_step(b, y, Where::Sim);
  return std::equal(x.o.data(), x.o.data() + x.o.size(), y.o.data());
}

// %%
CELL("Correct and wasteful") {
  Example e = random_example(N, D);
  run_step(&Steps::naive, e, Where::Sim);
  std::printf("error against fp64: %.1e\n", worst_head(e));
  expect(worst_head(e) <= 2e-6, "the kernel computes attention");

  if (!counts()) return;
  Ledger l = count(&Steps::naive);
  bool bytes = equal(l.array("Q").read_bytes, 4 * n * n * d, "bytes of Q, read") &
               equal(l.array("K").read_bytes, 4 * n * n * d, "bytes of K, read") &
               equal(l.array("V").read_bytes, 4 * n * n * d, "bytes of V, read") &
               equal(l.array("S").read_bytes, 4 * (2 * n * n + n * n * d), "bytes of S and P, read") &
               equal(l.array("S").written_bytes, 4 * 2 * n * n, "bytes of S and P, written") &
               equal(l.array("O").written_bytes, 4 * n * d, "bytes of O, written");
  expect(bytes, "bytes of each array as predicted");
  const std::uint64_t requests = (n + 31) / 32 * n * d;  // five warps, each for all keys and columns
  bool sectors = equal(l.array("K").read_sectors, requests, "sectors of K: one for each request") &
                 equal(l.array("Q").read_sectors, n * n * d, "sectors of Q: one for each lane");
  expect(sectors, "a broadcast touches one sector, rows that lie apart touch one each");
}

// %% [markdown]
// ## 4 · Tiles on the chip
//
// Now phase 04's algorithm. A block takes a Q tile of B_r = 64 rows, and a thread one row of it. The block walks along
// the K/V tiles of B_c = 32 rows.

// %% tags=["hide-input"]
CELL("What lies where") {
  if (!counts()) return;
  Ledger l = count(&Steps::tiled);
  svg::Canvas canvas(760, 372, "Step 4: block 1 at its third K/V tile");
  const double top = 92, row = 1.5, wide = 48;
  const auto tile = [&](double x, double y, double rows, double columns, const char* colour) {
    canvas.rect(x, y, columns * 1.5, rows * row, fill(colour, " stroke=\"white\" stroke-width=\"2\""));
  };
  canvas.text(16, 54, "HBM: 150 rows of 32", bold);
  double x = 16;
  const std::uint64_t once = 4 * n * d;
  bool as_drawn = true;
  for (const auto& [name, times] : {std::pair{"Q", 1u}, {"K", 3u}, {"V", 3u}, {"O", 1u}}) {
    const bool of_rows = name[0] == 'Q' || name[0] == 'O', out = name[0] == 'O';
    const int height = of_rows ? step_Br : step_Bc, current = of_rows ? 1 : 2;
    canvas.text(x + wide / 2, top - 10, name, middle);
    for (int first = 0, k = 0; first < N; first += height, ++k)
      tile(x, top + row * first, std::min(height, N - first), 32,
           k == current ? (of_rows ? "#f2b36b" : "#7fb8dc") : grey);
    const std::uint64_t bytes = out ? l.array(name).written_bytes : l.array(name).read_bytes;
    canvas.text(x + wide / 2, top + row * N + 18, "× " + std::to_string(bytes / once), middle + " " + bold);
    as_drawn = as_drawn && bytes == times * once;
    x += 74;
  }
  canvas.text(16, top + row * N + 42, "How often each array passes, all blocks together", faint);
  canvas.arrow(300, top + 130, 346, top + 130, "#222", 1);
  canvas.text(356, 54, "shared memory: " + grouped(l.shared_bytes_peak) + " bytes", bold);
  canvas.text(380, top - 10, "Q_tile", middle);
  tile(356, top, step_Br, 32, "#f2b36b");
  canvas.text(470, top - 10, "K_tile", middle);
  tile(446, top, step_Bc, 32, "#7fb8dc");
  canvas.text(470, top + 82, "V_tile", middle);
  tile(446, top + 92, step_Bc, 32, "#7fb8dc");
  for (int t = 0; t < step_Br; t += 4)
    canvas.line(406, top + row * (t + 0.5), 414, top + row * (t + 0.5), "stroke=\"#666\"");
  canvas.text(356, top + 164, "one thread for each row of Q_tile");
  canvas.arrow(520, top + 130, 566, top + 130, "#222", 1);
  canvas.text(580, 54, "registers of a thread", bold);
  const auto registers = [&](double y, const char* name, int numbers) {
    canvas.text(580, y + 12, name);
    for (int k = 0; k < numbers; ++k) canvas.rect(606 + 4.2 * k, y, 3.2, 16, fill("#cc79a7"));
  };
  registers(top, "m", 1), registers(top + 30, "l", 1), registers(top + 60, "o", D), registers(top + 90, "s", step_Bc);
  picture("05-tiles", canvas.str());
  expect(as_drawn && l.shared_bytes_peak == 4 * (step_Br + 2 * step_Bc) * D,
         "Q and O pass once, K and V once for each of the three blocks; three tiles lie in shared memory");
}

// %% [markdown]
// A tile is copied into shared memory once, by all threads together, and then read by all of them from there:
//
// ```{region} steps/4-tiled.cuh load-tile
// ```
//
// `__device__` marks a function that kernels call. The tile holds D = 32 columns, so a warp copies one row at a time:
// its lanes take neighbouring floats, and the load is coalesced. The last tile may reach beyond the last row; there it
// is filled with zeros. The kernel begins with its tiles and with the state of phase 02's {term}`online softmax`, m, l
// and o. The state belongs to one row, so it lives in the thread's own variables, which the compiler keeps in
// *registers*:
//
// ```{region} steps/4-tiled.cuh tiles
// ```
//
// A thread without a row (the last block has 42 of them) computes on zeros and leaves just before the store. Until then
// it must stay: it helps to copy the tiles, and the barriers wait for it. The loop over the K/V tiles stays a loop,
// since the state goes from one tile to the next:
//
// ```{region} steps/4-tiled.cuh loop
// ```
//
// The scores of my row against the tile's keys:
//
// ```{region} steps/4-tiled.cuh scores
// ```
//
// The compiler should keep `s` in registers, too; step 9 says why it does not yet. Then comes the online softmax, as in
// phase 02, but a tile at a time:
//
// ```{region} steps/4-tiled.cuh online-softmax
// ```
//
// Then the output. After the barrier at the end of the loop's body the tiles may be overwritten. After the loop there
// is one division, and the row is stored:
//
// ```{region} steps/4-tiled.cuh output
// ```
//
// The host is the same for all steps from here on. `template <auto kernel>` takes the kernel as a template argument:
//
// ```{region} steps/host.cu host-tiled
// ```
//
// *Prediction*: Q and O pass once, K and V once per Q tile, as in phase 04: 4 · (2ND + T_r · 2ND) bytes, T_r = 3.

// %%
CELL("The bytes of phase 04") {
  if (!counts()) return;
  const std::uint64_t naive = count(&Steps::naive).hbm_bytes();
  Ledger l = count(&Steps::tiled);
  const bool bytes = equal(l.hbm_bytes(), 4 * (2 * n * d + Tr * 2 * n * d), "HBM bytes");
  Example e = random_example(N, D);
  const Ledger cpu = phase04::forward(e.problem({.block_q = step_Br, .block_k = step_Bc})).ledger;
  std::printf("naive kernel: %s bytes, %d times as many\n", grouped(naive).c_str(), int(naive / l.hbm_bytes()));
  expect(bytes && l.hbm_bytes() == cpu.hbm_bytes(), "as many bytes as phase 04 with the same tiles");
  expect(l.barriers == 2 * Tr * Tc, "two barriers per tile: the tile is complete; the tile may be overwritten");
}

// %% [markdown]
// HBM traffic is now that of phase 04. The remaining steps do not change it. They are about what happens on the chip.
//
// ## 5 · Padding: banks
//
// Shared memory is divided into 32 {term}`banks <bank>`. Float i of it lies in bank i mod 32, and each bank delivers
// one float at a time. A request takes as many rounds, which are called {term}`wavefronts <wavefront>`, as its fullest
// bank needs. 32 lanes that read 32 neighbouring floats use each bank once: one wavefront. Lanes that read the same
// float share it: one wavefront, again. But here is what the scores do:
//
//     Q_tile[row][d]     lane = row; rows are 32 floats long, so all 32 lanes read bank d: 32 wavefronts
//     K_tile[j][d]       all lanes read the same float: 1 wavefront
//
// That is a *bank conflict*. The cure is one spare float at the end of each row. Row r then begins in bank r mod 32,
// and a column has an element in every bank. In the picture a line is 128 bytes of shared memory, one word (4 bytes) of
// each bank. The orange words are those that the 32 lanes read in one request, as the simulator saw it:

// %% tags=["hide-input"]
// The first request that a warp makes to read Q_tile.
static Recording::Request request_for_q(AttentionStep Steps::*step) {
  Example e = random_example(64, D);
  const auto floats = [](const Tensor<float>& t) { return Floats(t.data(), t.data() + t.size()); };
  Floats o(e.o.size());
  const Recording r = recorded([&](const MachineOptions& options) {
    (steps_on(Where::Checked).*step)(options, floats(e.q), floats(e.k), floats(e.v), o);
  });
  for (const Recording::Step& s : r.steps)
    for (const Recording::Request& request : s.requests)
      if (!request.write && r.launches[s.launch].chip[request.place].name == "Q_tile") return request;
  return {};
}

// Shared memory by banks, a line for 128 bytes, and the words of 32 rows of Q that a request reads. Lanes that are
// served together, those of a quarter of the warp if each reads 16 bytes, have one colour.
static void draw_banks(svg::Canvas& canvas, double x0, int pitch, const Recording::Request& request) {
  static constexpr const char* colours[] = {"#d55e00", "#009e73", "#8a3d70", "#0072b2"};
  const double y0 = 88, cell = 9.5;
  const int lines = (31 * pitch + D + 31) / 32;
  const std::int64_t first = *std::min_element(request.lanes.begin(), request.lanes.end());
  const auto words = [&](std::int64_t word, std::int64_t count, const char* colour) {
    canvas.rect(x0 + cell * double(word % 32), y0 + cell * double(word / 32), cell * double(count), cell, fill(colour));
  };
  canvas.text(x0, 54, "rows of " + std::to_string(pitch) + " floats", bold);
  canvas.text(x0, y0 - 8, "bank 0", faint);
  canvas.text(x0 + 32 * cell, y0 - 8, "bank 31", "text-anchor=\"end\" " + faint);
  canvas.rect(x0, y0, 32 * cell, lines * cell, fill("#cfe3f2"));
  for (int row = 0; row < 31; ++row)  // the spare words of each row
    for (int word = row * pitch + D; word < (row + 1) * pitch; ++word) words(word, 1, "white");
  for (int k = 1; k < 32; ++k)
    canvas.line(x0 + cell * k, y0, x0 + cell * k, y0 + lines * cell, "stroke=\"white\" stroke-width=\"0.5\"");
  for (int k = 1; k < lines; ++k)
    canvas.line(x0, y0 + cell * k, x0 + 32 * cell, y0 + cell * k, "stroke=\"white\" stroke-width=\"0.5\"");
  canvas.rect(x0, y0, 32 * cell, lines * cell, "fill=\"none\"" + edge);
  for (int lane = 0; lane < 32; ++lane) {
    const std::int64_t word = (request.lanes[lane] - first) / 4;
    words(word, request.bytes / 4, colours[request.bytes == 16 ? lane / 8 : 0]);
    if (lane % 31 == 0)
      canvas.text(x0 - 6, y0 + cell * (double(word / 32) + 1), "lane " + std::to_string(lane), "text-anchor=\"end\"");
  }
  if (pitch > D) canvas.text(x0 + 32 * cell, y0 + lines * cell + 20, "white: spare", "text-anchor=\"end\" " + faint);
  canvas.text(x0, y0 + lines * cell + 20,
              std::to_string(request.wavefronts) + (request.wavefronts == 1 ? " wavefront" : " wavefronts"), bold);
}

CELL("A column of Q in the banks") {
  if (!counts()) return;
  const Recording::Request before = request_for_q(&Steps::tiled), after = request_for_q(&Steps::padded);
  svg::Canvas canvas(760, 436, "Which bank holds the word that a lane reads?");
  draw_banks(canvas, 76, D, before);
  draw_banks(canvas, 436, D + 1, after);
  picture("05-banks", canvas.str());
  expect(before.wavefronts == 32 && after.wavefronts == 1,
         "all lanes in one bank: 32 wavefronts; a bank for each lane: 1");
}

// %% [markdown]
// ```{exercise} 05.7
// ```
//
// The change is one number:
//
// ```{difference} steps/4-tiled.cuh steps/5-padded.cuh
// ```
//
// *Prediction*: a warp reads Q, K and V once for each of the N keys and D columns. There are 6 warps, so 6ND requests
// for each of the three. The Q requests take 32 wavefronts each before, and 1 after. Copying a tile in is one wavefront
// per row.

// %% tags=["hide-input"]
// Each warp writes rows of D = 32 floats, one wavefront for each: half the rows of every tile, since a block has two.
static const std::uint64_t copies = warps * (step_Br / 2 + Tc * 2 * step_Bc / 2);

// How many wavefronts 32 lanes take for a float each from column 0 of rows of `pitch` floats: the fullest bank decides.
static int wavefronts(int pitch) {
  std::array<int, 32> in_bank{};
  for (int lane = 0; lane < 32; ++lane) ++in_bank[static_cast<std::size_t>(lane * pitch % 32)];
  return *std::max_element(in_bank.begin(), in_bank.end());
}

// %%
CELL("Rows of 32 floats, and of 33") {
  expect(wavefronts(32) == 32 && wavefronts(33) == 1, "by hand: 32 wavefronts for a column of Q, then 1");
  expect(same_bits(&Steps::tiled, &Steps::padded), "the same bits: only places in memory have changed");
  if (!counts()) return;
  const Ledger before = count(&Steps::tiled), after = count(&Steps::padded);
  const bool predicted =
      equal(before.shared_wavefronts, 32 * warps * n * d + 2 * warps * n * d + copies, "4-tiled:  wavefronts") &
      equal(after.shared_wavefronts, 3 * warps * n * d + copies, "5-padded: wavefronts");
  expect(predicted && after.bank_conflicts() == 0, "no bank conflict is left");
}

// %% [markdown]
// ## 6 · Reuse: one read of Q for all keys
//
// For every key the thread reads its whole row of Q again. Exchange the two loops, and an element of Q is read once per
// tile and meets all 32 keys. The 32 scores are then summed up side by side, in `s`:
//
// ```{difference} steps/5-padded.cuh steps/6-reuse.cuh
// ```
//
// *Prediction*: Q's requests fall from 6ND to 6 · T_c · D, with T_c = 5 tiles.

// %%
CELL("A third of the requests disappears") {
  expect(same_bits(&Steps::padded, &Steps::reuse), "the same bits: each score adds up in the same order");
  if (!counts()) return;
  const Ledger before = count(&Steps::padded), after = count(&Steps::reuse);
  const bool predicted =
      equal(before.shared_read_requests, 3 * warps * n * d, "5-padded: requests that read") &
      equal(after.shared_read_requests, 2 * warps * n * d + warps * Tc * d, "6-reuse:  requests that read");
  expect(predicted, "counted = predicted");
}

// %% [markdown]
// ## 7 · `float4`: four floats per request
//
// A lane can load 16 bytes with one instruction. `float4` is CUDA's type for it, four floats x, y, z and w. It needs an
// address that is a multiple of 16. Hence `alignas(16)`, and rows of D + 4 floats instead of D + 1. Each row then
// begins four banks after the one before, and 8 lanes with 4 floats each fill the 32 banks exactly. The hardware serves
// 8 lanes at a time; in the picture the lanes that are served together have one colour:

// %% tags=["hide-input"]
CELL("Eight lanes at a time") {
  if (!counts()) return;
  const Recording::Request request = request_for_q(&Steps::float4s);
  svg::Canvas canvas(460, 456, "A float4 for each lane: four times all banks");
  draw_banks(canvas, 76, D + 4, request);
  picture("05-float4", canvas.str());
  bool each_bank_once = true;
  for (std::size_t lane = 0; lane < 32; lane += 8) {
    std::set<std::int64_t> banks;
    for (std::size_t k = lane; k < lane + 8; ++k)
      for (int i = 0; i < 4; ++i) banks.insert((request.lanes[k] / 4 + i) % 32);
    each_bank_once = each_bank_once && banks.size() == 32;
  }
  expect(request.bytes == 16 && request.wavefronts == 4 && each_bank_once,
         "4 wavefronts: each time 8 lanes read a word from every bank");
}

// %% [markdown]
// ```{difference} steps/6-reuse.cuh steps/7-float4.cuh
// ```
//
// *Prediction*: a quarter of the requests that read. A `float4` from each lane's own row of Q is 32 · 16 = 512 bytes: 4
// wavefronts of 128. The broadcasts of K and V take 2 wavefronts for each request. That is how the hardware serves
// them; it was measured ([simulator](../../docs/simulator.md#counters)). So the requests fall to a quarter, but the
// wavefronts only to about half.

// %%
CELL("Fewer and wider") {
  expect(same_bits(&Steps::reuse, &Steps::float4s), "the same bits: x, y, z and w in the old order");
  if (!counts()) return;
  const Ledger before = count(&Steps::reuse), after = count(&Steps::float4s);
  const std::uint64_t q = warps * Tc * d / 4, kv = 2 * warps * n * d / 4;
  const bool predicted = equal(after.shared_read_requests, before.shared_read_requests / 4, "requests that read") &
                         equal(after.shared_wavefronts, 4 * q + 2 * kv + copies, "wavefronts");
  std::printf("6-reuse took %s wavefronts\n", grouped(before.shared_wavefronts).c_str());
  expect(predicted && after.bank_conflicts() == 0, "counted = predicted, and still no conflict");
}

// %% [markdown]
// ## 8 · exp2
//
// A GPU has an instruction for 2ˣ (`ex2.approx` in PTX, the assembly language that nvcc generates) and none for eˣ. In
// the PTX of nvcc 13.0, `exp2f` is this one instruction, and `expf` is the same with nine more around it, which
// multiply by log₂e and guard the range. But scores are multiplied by `scale` anyway: let the host pass scale · log₂e,
// and the factor is free.
//
// ```{difference} steps/7-float4.cuh steps/8-exp2.cuh
// ```
//
// *Prediction*: no counter moves, because the counters treat `exp` and `exp2` alike. What does move is the last bit:
// scale · log₂e is rounded once more.

// %%
CELL("The same counts, other last bits") {
  Example natural = random_example(N, D), base_2 = random_example(N, D);
  run_step(&Steps::float4s, natural, Where::Sim), run_step(&Steps::exp2s, base_2, Where::Sim);
  std::printf("error against fp64: %.1e with exp, %.1e with exp2\n", worst_head(natural), worst_head(base_2));
  expect(worst_head(base_2) <= 2e-6 && !same_bits(&Steps::float4s, &Steps::exp2s), "other bits, within the error bar");
  if (!counts()) return;
  const Ledger l = count(&Steps::exp2s);
  const bool predicted = equal(l.exps, warps * 32 * (n + Tc), "exps: each thread one per key, one per tile");
  expect(predicted && l == count(&Steps::float4s), "all counters are those of step 7");
}

// %% [markdown]
// ## 9 · Registers
//
// The last step is for the compiler. Registers have no addresses, so an array stays in them only if every index is
// known when the kernel is compiled. That is the case when the loops over it are unrolled, and they can be unrolled
// completely only if their length is constant. `#pragma unroll` asks for that; `#pragma unroll 1` forbids it, where the
// code would become too long. (The simulator ignores both.) An array that is not in registers goes to *local memory*,
// which in spite of its name is a part of HBM.
//
// So the loops over keys run to B_c instead of `keys`, and keys that do not exist get the score −∞. Their weight is
// then zero. Only the loop of P·V stays as short as it was, and P needs an array that can be indexed there. It goes to
// shared memory, in a column of the thread's own, so no barrier is needed. `__launch_bounds__(Br)` promises that blocks
// have at most 64 threads. The compiler can then give each thread more of the multiprocessor's registers.
//
// ```{exercise} 05.8
// ```
//
// ```{difference} steps/8-exp2.cuh steps/9-unrolled.cuh
// ```
//
// *Prediction*: the counters get a little worse. Whole tiles are computed: T_c · B_c = 160 keys for N = 150. P adds one
// write for each of 160 keys and one read for each of 150. No counter shows what is gained. nvcc 13.0 does put `s` into
// local memory in steps 4 to 6 (`-Xptxas -v`: "128 bytes stack frame"). In steps 7 and 8 it unrolls the loops without
// being asked. Step 9 no longer depends on that.

// %%
CELL("What registers cost") {
  expect(same_bits(&Steps::exp2s, &Steps::unrolled), "the same bits: a key that does not exist adds 0");
  if (!counts()) return;
  const Ledger before = count(&Steps::exp2s), after = count(&Steps::unrolled);
  const std::uint64_t keys = Tc * step_Bc;
  const bool reads = equal(after.shared_read_requests, warps * (Tc * d / 4 + keys * d / 4 + n * d / 4 + n),
                           "requests that read: Q, K, V, P"),
             writes =
                 equal(after.shared_write_requests, before.shared_write_requests + warps * keys, "requests that write"),
             exps = equal(after.exps, warps * 32 * (keys + Tc), "exps");
  expect(reads && writes && exps, "counted = predicted");
  expect(after.bank_conflicts() == 0, "P's columns are neighbours in different banks: no conflict");
}

// %% [markdown]
// ## The staircase
//
// Here are all seven attention kernels on the same input. From step 3 to step 4 the HBM traffic falls. From step 4 to
// step 7 the work on the chip falls, and step 9 adds a little to it.

// %% tags=["hide-input"]
CELL("All steps") {
  if (!counts()) return;
  std::printf("step           HBM bytes   HBM sectors   shared requests   wavefronts    exps\n");
  std::vector<std::pair<std::string, Ledger>> all;
  std::vector<std::pair<std::string, std::uint64_t>> wavefronts;
  for (const NamedStep& step : attention_steps) all.emplace_back(step.name, count(step.run));
  for (const auto& [name, l] : all) {
    std::uint64_t sectors = 0;
    for (const ArrayTraffic& a : l.arrays) sectors += a.read_sectors + a.write_sectors;
    std::printf("%-12s %11s %13s %17s %12s %7s\n", name.c_str(), grouped(l.hbm_bytes()).c_str(),
                grouped(sectors).c_str(), grouped(l.shared_read_requests + l.shared_write_requests).c_str(),
                grouped(l.shared_wavefronts).c_str(), grouped(l.exps).c_str());
    wavefronts.emplace_back(name, l.shared_wavefronts);
  }
  picture("05-steps", svg::bars("Wavefronts of shared memory, N = 150, D = 32 (step 3 uses none)", wavefronts));

  Example last = random_example(N, D), phase = random_example(N, D);
  run_step(&Steps::unrolled, last, Where::Sim);
  phase05::forward(phase.problem({.block_q = step_Br, .block_k = step_Bc}), Where::Sim);
  expect(std::equal(last.o.data(), last.o.data() + last.o.size(), phase.o.data()),
         "step 9 gives the bits of phase 05's kernel");
}

// %% [markdown]
// **What you saw.** A kernel is a function that every thread runs with an index of its own. Neighbouring threads should
// touch neighbouring memory. Shared memory holds what several threads use, and a barrier stands between those who write
// it and those who read it. The effect of each step on the counters could be predicted before the kernel ran. What
// steps 8 and 9 aim at is in no counter: only the compiler sees it. What the steps are worth in milliseconds is at the
// end of this page.
//
// What is left for [05 · The first kernel](notebook.cpp): templates for the sizes, three element types, and any
// strides.
//
// **To think about.** 1. Delete a barrier in `steps/4-tiled.cuh` and run this page. Which lines does the finding name?
// 2. In step 7, make the rows D + 8 floats long. How many wavefronts does a request for Q take now? Check with the
// counter. 3. In `3-naive.cuh`, store S as [key, query] instead of [query, key]. Whose sectors change, and how many are
// left? 4. The tile of step 2 has a bank conflict, too. Which line, how many wavefronts, and what cures it?
//
// <details><summary>Answers</summary>
//
// 1. The line in `load_tile` that writes the tile, and a line that reads it: the one of the scores for K_tile, the one
// of P·V for V_tile. Without the first barrier Q_tile is named as well, and there are reads of memory that nobody has
// written yet. Without the second one there are only races: the tile is full, but the next round's copy overtakes the
// reader.
//
// 2. 8 instead of 4. Rows of 40 floats begin 8 banks apart, so that every fourth row begins in the same bank, and only
// 4 lanes' `float4` fill the banks without meeting. The counter of step 7 grows by 4 for each of the 240 requests for
// Q, from 30,912 to 31,872.
//
// 3. Those of S, since neighbouring lanes then have neighbouring elements. The loads fall from 765,000 sectors to
// 114,682, from 30 a request to 4.5; the stores from 45,000 to 6,746. It is 4.5 and not 4 because rows of 150 floats do
// not all begin at a sector.
//
// 4. `tile[threadIdx.x][threadIdx.y]`: the lanes of a warp differ in threadIdx.x, so they read a column of rows of 32
// floats, all in one bank, in 32 wavefronts. `tile[side][side + 1]` cures it.
//
// </details>
