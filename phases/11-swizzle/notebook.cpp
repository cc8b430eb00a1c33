// %% [markdown]
// # 11 · Swizzle
//
// **Question.** In phase 10 four of five wavefronts of shared memory are bank conflicts. Where do they come from, and
// how do they go away without spending memory on them?
//
// **Idea.** Two things change together. {term}`ldmatrix` is an instruction that loads fragments, and one `ldmatrix`
// does the work of four or eight loads of phase 10. And each row of a tile is stored with its pieces of 16 bytes in
// another order, a different one for each of eight neighbouring rows: a {term}`swizzle`. Nothing else changes, and
// every bit of the result stays.
//
// **Changed since 10.** The index `swizzled(row, column)` in every access to a tile, and the three functions that load
// fragments.

// %% tags=["hide-input"]
#include "phases/11-swizzle/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/10-tensor-cores/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

using namespace flash;

static const Options blocks{.block_q = 64, .block_k = 64};

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-30s predicted %10s   counted %10s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}

// %% [markdown]
// ## Why eight rows begin in one bank
//
// Shared memory has 32 banks of 4 bytes. A row of D = 64 elements is 128 bytes: it takes each bank once, and the next
// row begins in bank 0 again. With D = 128 or 256 a row goes round the banks two or four times, and the next one begins
// in bank 0 as well. A fragment wants the same 16 bytes of eight rows. These lie below each other, in the same four
// banks, and four banks deliver 16 bytes at a time.
//
// Phase 05 moved each row on by four banks with spare columns. That works here too, but D = 64 would pay an eighth more
// shared memory for it. A permutation takes no memory. Call 16 bytes a piece: a row of 128 bytes has 8 pieces, and
// piece c of row r is stored where piece c {term}`XOR` (r mod 8) would be. This function, and those with `ldmatrix`
// further below, stand in a file of their own, `fragments.cuh`, since later phases lay out their tiles in the same way:
//
// ```{region} fragments.cuh swizzled
// ```
//
// For a fixed c, c XOR (r mod 8) is a different number in each of eight neighbouring rows, so the pieces lie in eight
// different groups of four banks. For a fixed row the pieces only change places within 128 bytes, so a row that is
// stored as a whole still fills all banks once. The picture shows what the simulator recorded: where the lanes of a
// warp read when they loaded a fragment of K, in phase 10 and in this one, and how many {term}`wavefronts <wavefront>`
// that took.
//
// ```{exercise} 11.1
// ```

// %% tags=["hide-input"]
// Where piece c of row r lies in its row, without the swizzle and with it.
static int place(int r, int c, bool swizzled) {
  return swizzled ? c ^ r % 8 : c;
}

// How many wavefronts the pieces c of the rows first … first + 7 take, of rows of D elements: the fullest bank decides.
static int wavefronts(int first, int c, int D, bool swizzled) {
  std::array<int, 8> pieces_of_bank_group{};
  for (int r = first; r < first + 8; ++r) ++pieces_of_bank_group[(r * D / 8 + place(r, c, swizzled)) % 8];
  return *std::max_element(pieces_of_bank_group.begin(), pieces_of_bank_group.end());
}

// A load of K by a warp, as the simulator saw it: where in the tile each lane's bytes begin, and what it cost.
template <class Forward>
static Recording::Request a_load_of_k(const Forward& forward) {
  Recording recording;
  Rounded<half> e(random_example(64, 64));
  forward(e.problem(blocks), Where::Checked, {.recording = &recording});
  for (const Recording::Step& step : recording.steps)
    for (Recording::Request request : step.requests) {
      const Recording::Place& place = recording.launches[step.launch].chip[request.place];
      if (request.write || place.name != "K") continue;
      for (std::int64_t& lane : request.lanes) lane -= std::int64_t(place.at);
      return request;
    }
  throw Error("nobody has read K");
}

CELL("Eight rows, before and after") {
  if (!was_built(Where::Checked)) return void(std::printf("this build has no checked machine, which sees the lanes\n"));
  svg::Canvas canvas(760, 342, "Rows of 128 bytes in 32 banks: what a fragment wants of eight rows");
  canvas.raw("<g text-anchor=\"middle\">");
  std::array<unsigned, 2> turns{};
  for (const bool swizzled : {false, true}) {
    const Recording::Request load = swizzled ? a_load_of_k(phase11::forward) : a_load_of_k(phase10::forward);
    std::array<std::array<bool, 8>, 8> wanted{};            // of the first eight rows: pieces of 16 bytes
    for (int lane = 0; lane < (swizzled ? 8 : 32); ++lane)  // the first of ldmatrix's four matrices
      wanted.at(load.lanes[lane] / 128).at(load.lanes[lane] % 128 / 16) = true;
    const double left = swizzled ? 420 : 68;
    canvas.text(left + 160, 52, swizzled ? "phase 11: piece c lies at c XOR r" : "phase 10: piece c lies at c",
                "font-weight=\"bold\"");
    for (int at = 0; at < 8; ++at)
      canvas.text(left + 40 * at + 20, 74, std::to_string(4 * at) + "–" + std::to_string(4 * at + 3),
                  "font-size=\"11\" fill=\"#666\"");
    for (int r = 0; r < 8; ++r)
      for (int c = 0; c < 8; ++c) {
        const int at = place(r, c, swizzled);
        const bool dark = wanted[r][at];
        canvas.rect(left + 40 * at, 82 + 26 * r, 40, 26,
                    std::string("stroke=\"white\" fill=\"") + (dark ? "#0072b2" : "#cfe3f1") + "\"");
        canvas.text(left + 40 * at + 20, 99 + 26 * r, std::to_string(c), dark ? "fill=\"white\"" : "");
      }
    // A wavefront brings 128 bytes at most: four lanes of 4 bytes in one row, or an 8 x 8 matrix of ldmatrix.
    turns[swizzled] = load.wavefronts / (32 * load.bytes / 128);
    canvas.text(left + 160, 310, std::to_string(turns[swizzled]) + (swizzled ? " wavefront" : " wavefronts"),
                "font-size=\"14\" font-weight=\"bold\"");
    std::printf("phase %d: a load of %3u bytes takes %u wavefronts, %u would do\n", swizzled ? 11 : 10, 32 * load.bytes,
                load.wavefronts, load.ideal);
  }
  canvas.raw("</g>");
  for (int r = 0; r < 8; ++r) canvas.text(16, 99 + 26 * r, "row " + std::to_string(r), "fill=\"#666\"");
  canvas.text(16, 74, "banks", "font-size=\"11\" fill=\"#666\"");
  canvas.text(16, 334,
              "A number is a piece of 16 bytes. Strong blue: what a load of K was seen to read. Wavefronts: counted.",
              "fill=\"#666\"");
  picture("11-banks", canvas.str());
  expect(turns[0] == 8 && turns[1] == 1, "counted: the same 128 bytes of eight rows take 8 wavefronts, then 1");

  bool before = true, after = true;
  for (const int D : {64, 128, 256})
    for (int c = 0; c < D / 8; ++c)
      for (int first = 0; first < 64; first += 8) {
        before = before && wavefronts(first, c, D, false) == 8;
        after = after && wavefronts(first, c, D, true) == 1;
      }
  expect(before, "by hand, without a swizzle: 8 wavefronts for each piece of eight rows, D = 64, 128, 256");
  expect(after, "by hand, with it: 1");
}

// %% [markdown]
// ## ldmatrix
//
// `ldmatrix_x4` loads four matrices of 8 × 8 elements for a warp. Each of the 32 lanes gives one address, of one row of
// one matrix: lanes 0 to 7 the rows of the first matrix, 8 to 15 of the second, and so on. A row is 16 bytes, one
// piece. What a lane gets has nothing to do with the address that it gave: of each matrix lane 4g + t receives the
// elements 2t and 2t + 1 of row g, in one register. That is the layout that `mma` wants of A and of a transposed B.
// `ldmatrix_x4_trans` hands out columns instead of rows, which is the layout that `mma` wants of a B that is not
// transposed, as V is.
//
// ```{question}
// Lane 5 points to row 5 of the first matrix. Which two elements of that matrix does it get?
// ```

// %% tags=["hide-input"]
CELL("Who gives an address, and who gets what") {
  static const char* hues[] = {"#8ecae6", "#ffb703", "#90be6d", "#f28482", "#cdb4db", "#d4a373", "#84a59d", "#ffd6a5"};
  svg::Canvas canvas(760, 330, "One matrix of ldmatrix: a cell names the lane that gets it");
  std::array<int, 32> got{};
  for (const bool transposed : {false, true}) {
    const double left = transposed ? 470 : 110;
    canvas.text(left, 60, transposed ? "ldmatrix, transposed: V" : "ldmatrix: Q, K", "font-weight=\"bold\"");
    for (int r = 0; r < 8; ++r) {
      canvas.text(left - 94, 90 + 29 * r, "lane " + std::to_string(r) + " points →", "font-size=\"11\" fill=\"#666\"");
      for (int c = 0; c < 8; ++c) {
        const int lane = transposed ? 4 * c + r / 2 : 4 * r + c / 2;
        ++got[lane];
        canvas.rect(left + 29 * c, 71 + 29 * r, 29, 29,
                    std::string("stroke=\"white\" fill=\"") + hues[lane / 4] + "\"");
        canvas.text(left + 29 * c + 14.5, 90 + 29 * r, std::to_string(lane), "text-anchor=\"middle\" font-size=\"11\"");
      }
    }
  }
  canvas.text(16, 322, "After PTX ISA, \"ldmatrix\". A row is 16 bytes of shared memory.", "fill=\"#666\"");
  picture("11-ldmatrix", canvas.str());
  expect(
      got ==
          [] {
            std::array<int, 32> four;
            four.fill(4);
            return four;
          }(),
      "each lane gets two elements of each matrix, whichever way");
}

// %% [markdown]
// ```{answer}
// Elements 2 and 3 of row 1, because 5 = 4 · 1 + 1. Neither lies where the lane pointed. With the transposed load it
// gets rows 2 and 3 of column 1.
// ```
//
// A fragment of A, 16 × 16, is four such matrices: upper left, lower left, upper right, lower right. Lanes 0 to 15
// point to the rows of the left half, 16 to 31 to those of the right half:
//
// ```{region} fragments.cuh load-a
// ```
//
// Four matrices are also two neighbouring B of 16 × 8. So the loops over n take two at a time:
//
// ```{region} fragments.cuh load-b
// ```
// ```{region} attention.cuh scores
// ```
//
// The second product likewise, with two neighbouring 8 columns of V:
//
// ```{region} attention.cuh output-product
// ```
//
// What this changed, against phase 10:
//
// ```{difference} ../10-tensor-cores/attention.cuh attention.cuh
// ```

// %% [markdown]
// ## Run it: the same bits
//
// Elements lie elsewhere and come by another instruction, but each `mma` multiplies the same numbers in the same order.

// %% tags=["hide-input"]
template <class T>
static bool same_as_phase_10(const Example& example, const Options& options) {
  Rounded<T> before(example), now(example);
  phase10::forward(before.problem(options), Where::Sim);
  phase11::forward(now.problem(options), machine);
  return std::memcmp(before.o.data(), now.o.data(), now.o.size() * sizeof(T)) == 0 &&
         std::memcmp(before.lse.data(), now.lse.data(), now.lse.size() * sizeof(float)) == 0;
}

CELL("Phase 10, bit for bit") {
  bool same = true;
  for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
    same = same && same_as_phase_10<half>(sentence(), {.mask = causal}) &&
           same_as_phase_10<bfloat16>(random_example(100, 128), {.mask = causal});
  expect(same, "O and LSE, fp16 and bf16, with each mask");
  expect(same_as_phase_10<half>(random_example(70, 33), {}), "and for D = 33, whose rows are no multiple of 16 bytes");
}

// %% [markdown]
// ## Conflicts, before and after
//
// Predicted per pair of tiles and for all four warps: Q takes D/16 `ldmatrix` per warp, K and V take 4 · D/16 each.
// Every one moves 512 bytes, and 32 banks deliver 128 at a time, so 4 wavefronts are the fewest that there can be.
//
// ```{question}
// In phase 10 each `mma` costs 18.6 wavefronts of shared memory. How many are left, if not one is a conflict?
// ```

// %% tags=["hide-input"]
CELL("Predicted = counted") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not count\n"));
  const std::uint64_t D = 64, T = 2, pairs = T * T, element = 2;
  Rounded<half> e(random_example(128, D));
  const Ledger before = phase10::forward(e.problem(blocks), Where::Checked).ledger;
  const Ledger now = phase11::forward(e.problem(blocks), Where::Checked).ledger;
  const std::uint64_t loads = 4 * (D / 16 + 4 * D / 16 + 4 * D / 16);
  const std::uint64_t stores = (T + pairs * 2) * 64 * D * element / 16 / 32;  // 16 bytes a lane, 32 lanes
  bool same = equal(now.shared_read_requests, pairs * loads, "loads of shared memory");
  same &= equal(now.shared_write_requests, stores, "stores to it");
  same &= equal(now.shared_wavefronts, 4 * (pairs * loads + stores), "wavefronts");
  same &= equal(now.bank_conflicts(), 0, "of these, conflicts");
  expect(same, "predicted = counted: not one conflict");
  std::printf("\n                      phase 10    phase 11\n");
  const auto line = [](const char* what, std::uint64_t a, std::uint64_t b) {
    std::printf("%-18s %11s %11s\n", what, grouped(a).c_str(), grouped(b).c_str());
  };
  line("requests", before.shared_read_requests + before.shared_write_requests,
       now.shared_read_requests + now.shared_write_requests);
  line("wavefronts", before.shared_wavefronts, now.shared_wavefronts);
  line("conflicts", before.bank_conflicts(), now.bank_conflicts());
  line("HBM bytes", before.hbm_bytes(), now.hbm_bytes());
  line("FLOP of mma", before.tensor_flops, now.tensor_flops);
  expect(before.hbm_bytes() == now.hbm_bytes() && before.tensor_flops == now.tensor_flops &&
             before.shared_bytes_peak == now.shared_bytes_peak,
         "the same bytes, the same products, the same amount of shared memory");
  std::printf("wavefronts for each mma: %.1f, then %.1f\n",
              double(before.shared_wavefronts) / (before.tensor_flops / 4096),
              double(now.shared_wavefronts) / (now.tensor_flops / 4096));
}

// %% [markdown]
// ```{answer}
// 2.9, less than a sixth. Taking away the conflicts alone would have left more: a load of V brought half a register,
// and so used half of what a wavefront can deliver. `ldmatrix` uses all of it.
// ```
//
// The simulator's rule for `ldmatrix` is not an assumption: the same access patterns were run on an H200 under Nsight
// Compute, and docs/results keeps both counts (`wavefronts-ptx-h200.csv`).
//
// **What you saw.** A permutation by XOR and an instruction made for fragments take away every conflict, and with them
// most of what shared memory had to do. Results keep their bits. But the kernel still loads a tile, waits, multiplies
// it, waits, and loads the next one. Phase 12 loads and multiplies at the same time.
//
// **Measured:** on an H200; [the end of part 3](../../docs/book/part-3.md) has the table.
//
// **To think about.** 1. Draw the pieces of rows 8 to 15. Why is r mod 8 enough? 2. Rows of D = 32 elements are 64
// bytes. In how many wavefronts do eight of them deliver a piece without a swizzle? Which XOR would help? 3. Give
// `load_b` the instruction without `_trans` and run this page. Which claim is the first to fail? 4. Spare columns would
// do instead of the XOR. How many, and what would a block with D = 64 pay for them?
//
// <details><summary>Answers</summary>
//
// 1. They lie as those of rows 0 to 7. A row has only eight places for a piece, and `ldmatrix` takes eight neighbouring
// rows at a time: these have eight different r mod 8, wherever they begin.
//
// 2. In 4. Row r begins in bank 0 if it is even and in bank 16 if it is odd, so four rows share the banks of a piece.
// c XOR (r / 2 mod 4) helps: two neighbouring rows fill all banks once, so the order of the pieces need only change
// with every second row.
//
// 3. "O and LSE, fp16 and bf16, with each mask": the bits are not phase 10's. The banks are as before, and so are the
// counts.
//
// 4. 8 elements, 16 bytes, as page 10 found. Three tiles of 64 rows would be 3,072 bytes larger: an eighth.
//
// </details>
