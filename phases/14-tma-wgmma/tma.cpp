// %% [markdown]
// # 14 · TMA: one thread copies a tile
//
// **Question.** In [phase 12](../12-async-copies/notebook.cpp) all threads copy. Each computes addresses, compares rows
// with the tensor's end, and begins copies of 16 bytes. A tile of K and one of V, 64 × 128 each, take 2,048 of these.
// Could one thread say "that tile, please", and the hardware do the rest?
//
// **Idea.** Hopper has a unit for this, **TMA**, the Tensor Memory Accelerator. *One thread* names a box of a tensor
// and a place in shared memory, and goes on. TMA works out the addresses, copies, and writes zeros for what lies
// outside the tensor. The threads learn that the bytes are there from an **mbarrier**, a barrier that counts bytes as
// well as threads.
//
// This page and [the next one](wgmma.cpp) are about one instruction each, in kernels of a few lines. [After
// them](steps.cpp) both are built into attention. TMA needs compute capability 9.0, and the simulator has it.

// %% tags=["hide-input"]
#include <cstdio>

#include "phases/14-tma-wgmma/phase.hpp"
#include "phases/14-tma-wgmma/steps/steps.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/stages.hpp"

using namespace flash;
using phase14::Numbers, phase14::Ran;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;
static const phase14::Small& small = phase14::small_on(machine);

static bool counts() {
  if (machine == Where::Checked) return true;
  std::printf("this build has no checked simulator, and the fast one does not count\n");
  return false;
}

// A tensor of 20 rows and 128 columns, whose elements are their own numbers from 1 on: a 0 comes from outside.
constexpr int kRows = 20, kColumns = 128;
static int number(int row, int column) {
  return row < kRows ? row * kColumns + column + 1 : 0;
}
static Numbers tensor() {
  Numbers all;
  for (int row = 0; row < kRows; ++row)
    for (int column = 0; column < kColumns; ++column) all.push_back(static_cast<std::uint16_t>(number(row, column)));
  return all;
}

// The box that copy_box brought, as it lies in shared memory; and what the launch counted.
struct Copied {
  Numbers tile;
  Ran ran;
  Copied(int x, int y) : tile(16 * 64) { ran = small.box({}, tensor(), kColumns, x, y, tile); }
};

static const char* hues[] = {"#8ecae6", "#ffb703", "#90be6d", "#f28482", "#cdb4db", "#d4a373", "#84a59d", "#ffd6a5"};
static const char* grey = "fill=\"#666\"";

CELL("A box of a tensor becomes a tile") {
  const Copied copied(64, 8);
  svg::Canvas canvas(740, 376, "One thread asks, TMA copies, the mbarrier counts");
  const double top = 74, row_height = 11;
  const auto band = [&](double x, int line, double width, int row) {  // row: of the tensor, or -1: zeros
    canvas.rect(x, top + row_height * line, width, row_height,
                std::string("stroke=\"white\" fill=\"") + (row < 0 ? "#e6e6e6" : hues[row % 8]) + "\"");
  };
  canvas.text(16, 52, "HBM: a tensor of 20 rows, 128 columns", "font-weight=\"bold\"");
  canvas.rect(16, top, 256, row_height * kRows, "fill=\"#f4f4f4\" stroke=\"#999\"");
  for (int row = 8; row < kRows; ++row) band(144, row, 128, row);
  canvas.rect(144, top + 8 * row_height, 128, 16 * row_height,
              "fill=\"none\" stroke=\"#d55e00\" stroke-width=\"2\" stroke-dasharray=\"5 3\"");
  canvas.text(16, top + 22.4 * row_height, "outside the tensor", grey);
  canvas.text(144, top + 7 * row_height - 4, "box at x = 64, y = 8");

  canvas.text(536, 52, "shared memory: a tile", "font-weight=\"bold\"");
  bool by_rows = true;
  for (int line = 0; line < 16; ++line) {
    int row = -1, zeros = 0;  // which row of the tensor came to this one
    for (int column = 0; column < 64; ++column) {
      const int element = copied.tile[line * 64 + column];
      if (element > 0) row = (element - 1) / kColumns;
      zeros += element == 0;
    }
    by_rows = by_rows && (row < 0 ? zeros == 64 && line + 8 >= kRows : zeros == 0 && row == line + 8);
    band(536, line, 128, row);
  }
  canvas.text(672, top + 7 * row_height, "16 rows", grey);
  canvas.text(672, top + 14.5 * row_height, "zeros", grey);

  const auto arrow = [&](double x1, double y1, double x2, double y2) {
    canvas.line(x1, y1, x2, y2, "stroke=\"#d55e00\" stroke-width=\"2\"");
    const double back = x2 > x1 ? -7 : 7;
    if (y1 == y2)
      canvas.path(svg::num(x2 + back) + "," + svg::num(y2 - 5) + " " + svg::num(x2) + "," + svg::num(y2) + " " +
                      svg::num(x2 + back) + "," + svg::num(y2 + 5),
                  "stroke=\"#d55e00\" stroke-width=\"2\"");
    if (x1 == x2)
      canvas.path(svg::num(x2 - 5) + "," + svg::num(y2 - 7) + " " + svg::num(x2) + "," + svg::num(y2) + " " +
                      svg::num(x2 + 5) + "," + svg::num(y2 - 7),
                  "stroke=\"#d55e00\" stroke-width=\"2\"");
  };
  const auto unit = [&](double y, double height, const char* first, const char* second) {
    canvas.rect(322, y, 166, height, "fill=\"#fdf1e3\" stroke=\"#d55e00\" rx=\"4\"");
    canvas.text(405, y + (*second ? 18 : 20), first, "text-anchor=\"middle\"");
    canvas.text(405, y + 35, second, "text-anchor=\"middle\" font-size=\"11\"");
  };
  unit(74, 44, "thread 0", "map, x = 64, y = 8");
  unit(162, 44, "TMA", "addresses, zeros, swizzle");
  unit(250, 44, "mbarrier", "2,048 bytes expected");
  arrow(405, 118, 405, 162);
  arrow(276, 184, 322, 184);
  arrow(488, 184, 532, 184);
  arrow(405, 206, 405, 250);
  canvas.text(414, 232, "bytes", grey);
  canvas.text(16, 364, "Rows have colours. Drawn from what the kernel found in shared memory.", grey);
  picture("14-box", canvas.str());
  expect(by_rows, "row r of the tile is row y + r of the tensor, or zeros where the tensor has no such row");
}

// %% [markdown]
// ## The tensor map
//
// Four things have to be said once for a tensor: where it begins, how long its axes are, how far apart its rows lie,
// and how large the box of one copy is. The host puts them into a **tensor map** of 128 bytes, and a kernel gets the
// map as an argument. A copy then needs no more than the map, the coordinates at which the box begins (columns first),
// a place in shared memory, and an mbarrier.
//
// ```{region} steps/boxes.cuh copy-box
// ```
//
// Five calls are new. In their order:
//
// 1. `mbarrier_init(b, 1)`: 8 bytes of shared memory become a barrier at which one arrival is expected.
// 2. `fence_mbarrier_init()` shows it to TMA. `__syncthreads()` then shows it to the other threads.
// 3. `mbarrier_arrive_expect_tx(b, bytes)`: thread 0 arrives, and says how many bytes will come.
// 4. `cp_async_bulk_tensor(tile, &map, b, x, y)` begins the copy, and does not wait for it.
// 5. `mbarrier_wait(b, 0)`: all threads wait until the arrival and the bytes have come.
//
// There is no loop over rows, no address, and no comparison with the tensor's end.
//
// ```{question}
// The box at x = 64, y = 8 has 16 rows of 64 columns, 2 bytes each. The tensor has 20 rows. How many bytes does TMA
// read from HBM? Why does the barrier expect 2,048 all the same?
// ```

// %%
CELL("What one copy costs") {
  if (!counts()) return;
  const Copied copied(64, 8);
  Ledger ledger = copied.ran.report.ledger;
  const std::uint64_t inside = (kRows - 8) * 64 * 2, box = 16 * 64 * 2;
  std::printf("read from HBM   %s bytes in %d copy: %d rows\n", grouped(ledger.array("tensor").read_bytes).c_str(),
              int(ledger.array("tensor").read_requests), int(ledger.array("tensor").read_bytes / 128));
  std::printf("the box has     %s bytes: %d rows\n", grouped(box).c_str(), int(box / 128));
  std::printf("the threads stored %d times to shared memory\n", int(ledger.shared_write_requests));
  expect(ledger.array("tensor").read_bytes == inside, "rows outside the tensor are not read");
  expect(ledger.array("tensor").read_requests == 1, "one copy");
  expect(ledger.shared_write_requests == 0 && copied.ran.findings.empty(), "no thread stored anything of it, clean");
}

// %% [markdown]
// ```{answer}
// It reads 1,536 bytes: 12 rows lie inside. For the other 4 rows TMA writes zeros, and the barrier counts what is
// written to shared memory: 2,048 bytes.
// ```
//
// **Not every tensor can be copied this way.** TMA moves 16 bytes at a time. The tensor's address and all of its
// strides must be multiples of 16 bytes, and rows are counted in 32 bits. Other tensors are refused by name, and phase
// 13 takes them, since its threads can copy element by element.

// %% tags=["hide-input"]
CELL("What TMA cannot copy") {
  Rounded<half> e(random_example(40, 60));  // a row of 60 elements has 120 bytes
  std::string refusal;
  try {
    phase14::forward(e.problem(), Where::Sim);
  } catch (const Error& error) {
    refusal = error.what();
  }
  std::printf("%s\n", refusal.c_str());
  expect(refusal.find("a multiple of 16") != std::string::npos, "rows of 120 bytes are refused");
}

// %% [markdown]
// ## Panels
//
// `wgmma` is going to read the tile, and rows of 128 bytes all begin at the same bank. [Phase
// 11](../11-swizzle/notebook.cpp) mended that by a swizzle: a row's pieces of 16 bytes change places. TMA does this
// itself while it writes, if the map says so, for rows of up to 128 bytes. That is 64 elements.
//
// So a tile with more columns is cut into **panels** of 64 columns, one behind the other in shared memory. Each is
// copied as a box of its own: with D = 128 a tile is two panels.
//
// ```{question}
// A row of a panel has 8 pieces. Where in row 5 does TMA put piece 3? (It uses the permutation of phase 11.)
// ```

// %% tags=["hide-input"]
CELL("Which piece lies where") {
  const Copied copied(0, 0);
  svg::Canvas canvas(560, 560, "A panel as TMA wrote it: which piece lies where");
  bool swizzled = true;
  for (int place = 0; place < 8; ++place)
    canvas.text(130 + 44 * place, 58, std::to_string(place), "text-anchor=\"middle\" fill=\"#666\"");
  canvas.text(16, 58, "place in the row", grey);
  for (int row = 0; row < 16; ++row) {
    const double y = 68 + 28 * row;
    canvas.text(16, y + 19, "row " + std::to_string(row), grey);
    for (int place = 0; place < 8; ++place) {
      const int piece = (copied.tile[row * 64 + 8 * place] - 1) % kColumns / 8;
      swizzled = swizzled && piece == (place ^ row % 8);
      for (int i = 0; i < 8; ++i)
        swizzled = swizzled && copied.tile[row * 64 + 8 * place + i] == number(row, 8 * piece + i);
      canvas.rect(108 + 44 * place, y, 44, 28,
                  std::string("stroke=\"white\" fill=\"") + (piece == 3 ? "#0072b2" : "#cfe3f1") + "\"");
      canvas.text(130 + 44 * place, y + 19, std::to_string(piece),
                  std::string("text-anchor=\"middle\"") + (piece == 3 ? " fill=\"white\"" : ""));
      if (row == 5 && piece == 3) std::printf("row 5: piece 3 lies at place %d\n", place);
    }
  }
  canvas.text(16, 544, "A piece is 16 bytes, 8 elements. Piece 3 is dark.", grey);
  picture("14-panel", canvas.str());
  expect(swizzled, "piece c of row r lies at place c XOR (r mod 8)");
}

// %% [markdown]
// ```{answer}
// At place 6: 3 XOR 5. Eight rows further on the pattern begins again.
// ```
//
// The hardware takes the row's number from the address: three bits of it, at 128 bytes a row. That is why a tile must
// begin at a multiple of 1,024 bytes, which is eight rows. We tried a tile that began 512 bytes behind such a multiple.
// On an H200 that kernel's results were garbage.
//
// In the attention kernels tensors have four axes, so the map has four sizes, and a copy has four coordinates:
//
// ```{region} tiles.cuh maps
// ```
// ```{region} tiles.cuh load-tile
// ```
//
// The maps of K and V end with the last key that the last row of Q sees. What lies behind it, NaN included, counts as
// outside the tensor.
//
// ## The barrier that counts bytes
//
// `__syncthreads()` waits for threads. An mbarrier waits for two things: so many *arrivals*, and so many *bytes*. When
// nothing is missing any more, its **phase** is complete. (The word is the barrier's, and has nothing to do with the
// phases of this course.) The next phase then begins by itself, with the same number of arrivals to wait for. So one
// barrier serves a whole loop, a phase for each tile.
//
// A waiting thread has to say which phase it means. It says so with one bit, the phase's **parity**: phases 0, 2, 4 …
// have parity 0, and phases 1, 3, 5 … have parity 1. `mbarrier_wait(b, parity)` goes on if the phase of that parity is
// complete. The phase under way then has the other parity.
//
// With two stages a box can come while the one before it is read. Tile t lies in stage t mod 2, and each stage has a
// barrier:
//
// ```{region} steps/boxes.cuh two-stages
// ```

// %% tags=["hide-input"]
// Five tiles of 16 rows, all elements 1, and what the checked simulator recorded of it.
static Recording five_tiles() {
  Recording recording;
  std::vector<unsigned> sums(64);
  small.sums({.recording = machine == Where::Checked ? &recording : nullptr}, Numbers(80 * 64, 1), 1, sums);
  expect(sums == std::vector<unsigned>(64, 80), "the sums are right");
  return recording;
}
static const std::vector<svg::Place> places = {{"stage 0", 0, 2048, "full[0]"}, {"stage 1", 2048, 4096, "full[1]"}};

CELL("Two stages and their barriers") {
  const Recording recording = five_tiles();
  if (!counts()) return;
  const svg::Lives lives = svg::lives(recording, places);
  picture("14-two-stages",
          svg::stages("Two stages, five tiles of 16 rows", lives, {.reader = "warp", .warps_of_reader = 1}));
  bool in_order = true;
  for (const auto& stays : lives.stays)
    for (std::size_t i = 0; i < stays.size(); ++i) {
      in_order = in_order && stays[i].readings.size() == 2 && stays[i].bytes == 2048;
      for (const auto& reading : stays[i].readings)
        in_order = in_order && reading.begin >= stays[i].complete &&
                   (i + 1 == stays.size() || reading.end <= stays[i + 1].begun);
    }
  expect(in_order, "each tile is read after its phase is complete, and before the next copy to its stage begins");
}

// %% [markdown]
// The picture is drawn from a recording of that kernel, event by event. It shows no times: the simulator lets a copy
// take as long as the program allows, which is until somebody waits for it. While tile 0 is read, tile 1 is under way,
// and so on.
//
// Read the parities off it. Tiles 0 and 1 are waited for with parity 0, tiles 2 and 3 with parity 1, and tile 4 with
// parity 0 again.
//
// ```{question}
// Suppose that the parity never flips, and all waits say 0. For which of the five tiles does the wait go on too early?
// What do the threads read then?
// ```

// %% tags=["hide-input"]
CELL("One barrier, three phases") {
  const Recording recording = five_tiles();
  if (!counts()) return;
  std::printf("full[0]                                  phase  arrivals missing  bytes missing\n");
  long phase = 0, arrivals = 1, bytes = 0, waits = 0;
  const auto now = [&](const std::string& what) {
    if (arrivals == 0 && bytes == 0) ++phase, arrivals = 1;
    std::printf("%-38s %7ld %17ld %14s\n", what.c_str(), phase, arrivals, grouped(std::uint64_t(bytes)).c_str());
  };
  now("mbarrier_init(b, 1)");
  bool parities = true;
  for (const Recording::Step& step : recording.steps) {
    for (const Recording::Arrival& at : step.arrivals)
      if (recording.launches[0].mbarriers[at.mbarrier].name == "full[0]") {
        arrivals -= at.count, bytes += at.expected - at.come;
        now(at.count ? "thread 0 arrives, " + grouped(std::uint64_t(at.expected)) + " bytes will come"
                     : grouped(std::uint64_t(at.come)) + " bytes have come");
      }
    for (const Recording::Waited& wait : step.waited)
      if (recording.launches[0].mbarriers[wait.mbarrier].name == "full[0]" && step.warp == 0) {
        const long tile = 2 * waits, parity = long(wait.phases - 1) % 2;
        std::printf("  tile %ld: mbarrier_wait(b, %ld) goes on\n", tile, parity);
        parities = parities && parity == tile / 2 % 2 && phase == long(wait.phases);
        ++waits;
      }
  }
  expect(parities && waits == 3, "tile t of stage 0 is waited for with parity t / 2 mod 2");

  std::vector<unsigned> sums(64);
  const Ran wrong = small.sums({.threads = 1, .keep_going = true}, Numbers(80 * 64, 1), 0, sums);
  const std::string finding = wrong.findings.empty() ? "" : wrong.findings[0].text;
  std::printf("\nalways parity 0: %s\n", finding.substr(0, finding.find('\n')).c_str());
  expect(finding.find("while cp.async.bulk.tensor writes it") != std::string::npos,
         "with parity 0 all the time a tile is read while TMA writes it");
}

// %% [markdown]
// ```{answer}
// For tiles 2 and 3. They come in phase 1 of their barriers. While phase 1 lasts, a wait for parity 0 goes on at once,
// because phase 0 is complete. The threads then read what lies in the stage: the old tile, perhaps half overwritten.
// From there on nothing is certain.
// ```
//
// The last line of the output is the checked simulator's. It knows which bytes a thread may rely on, however fast the
// copies are. On a GPU the same program may give the right sums, as long as the copies happen to be in time.
//
// ```{exercise} 14.1
// ```
//
// Small kernels with one mistake each, and what the simulator says of them, make up its **museum**. Its *exhibits* are
// called by their mistakes. Those with TMA are in tests/simt/museum_tma.cu, and `tma_wrong_parity` is the mistake made
// here. Others expect too many bytes (`tma_expects_too_much`, a deadlock, with the number that is missing), too few
// (`tma_expects_too_little`), or only the bytes of the rows inside the tensor (`tma_counts_valid_rows`).
//
// **What you saw.** One thread asks, TMA copies a box and swizzles it, and an mbarrier counts the bytes. What a thread
// has to know is the size of the box, and the parity of the phase.
//
// **To think about.** 1. With which N does the last K/V tile of 128 rows hang over the end, and by how many rows? 2.
// Why does `sum_tiles` still need `__syncthreads()`? 3. Could three tiles be under way at once, with two barriers?
//
// <details><summary>Answers</summary>
//
// 1. With every N that is no multiple of 128, by 128 − N mod 128 rows. With N = 200 it is 56.
//
// 2. The mbarrier says that the tile is there. That all threads have read it, so that TMA may overwrite it, nothing
//    says but `__syncthreads()`. Without it the checked simulator finds the copy that comes too early:
//    `tma_refilled_early`. [Phase 15](../15-warp-specialised/notebook.cpp) has mbarriers for this, too.
//
// 3. Not if each is to be waited for by itself. Two of the tiles would share a barrier, and its phase would be complete
//    when both are there. A barrier cannot have two phases under way: the next one begins when the one before it ends.
//
// </details>
