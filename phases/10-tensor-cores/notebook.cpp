// %% [markdown]
// # 10 · Tensor cores
//
// **Question.** Phase 08 multiplies with `fmaf`, one multiply-add per thread and instruction. An H200 also has
// {term}`tensor cores <tensor core>`, which multiply small matrices about fifteen times as fast (990 against 67
// TFLOP/s, by its data sheet). What has to change before attention can use them?
//
// **Idea.** One instruction, `mma.m16n8k16`, multiplies a matrix A of 16 × 16 by a matrix B of 16 × 8 and adds the
// result to a matrix C of 16 × 8. The whole warp executes it together. It does 16 · 8 · 16 multiply-adds, which is 4096
// FLOP; a warp's `fmaf` does 32 multiply-adds, which is 64 FLOP. Two things follow:
//
// - A and B hold 16-bit numbers, fp16 or bf16. C stays fp32. So Q, K and V have to be 16-bit, and P is rounded before
//   it is multiplied by V. Phases 05 to 08 round P as well, so nothing changes there.
// - No lane holds a matrix. Each of the 32 lanes holds a few elements of A, of B and of C, in registers, at places that
//   the instruction prescribes. NVIDIA calls a lane's share a {term}`fragment`.
//
// **Changed since 08.** A thread no longer owns a row. A warp owns 16 rows, and each row is spread over four lanes.
// The loops over tiles, the masks and the arithmetic of online softmax stay what they were.

// %% tags=["hide-input"]
#include "phases/10-tensor-cores/phase.hpp"

#include <cstdio>

#include "phases/08-lse/phase.hpp"
#include "phases/10-tensor-cores/steps/steps.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"
#include "sim/core/tensor_core.hpp"

using namespace flash;

static const Options blocks{.block_q = 64, .block_k = 64};

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-30s predicted %10s   counted %10s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}

// %% [markdown]
// ## Which lane holds what
//
// The instruction's description (PTX ISA, "Matrix Fragments for `mma.m16n8k16`") gives each lane two numbers: g = lane
// / 4, from 0 to 7, and t = lane % 4, from 0 to 3. A register holds two neighbouring 16-bit elements. Three functions
// load fragments out of a tile in shared memory:
//
// ```{region} fragments.cuh fragments
// ```
//
// Q is an A as it lies in memory. K is a B that has to be transposed: S = QKᵀ wants column n of B to be key n, and key
// n is a row of K. The two elements of a register lie side by side in that row, so one load of 4 bytes brings both. V
// is a B as it lies. There the two elements of a register belong to two keys, so they come from two rows, by two loads
// of 2 bytes.
//
// We do not have to believe the comment. This kernel fills a tile with the elements' own numbers, 16 · row + column,
// loads fragments with these functions, and writes down what each lane got. For C it multiplies the numbers by the
// identity matrix:
//
// ```{region} steps/fragments.cuh ask
// ```

// %% tags=["hide-input"]
static const char* hues[] = {"#8ecae6", "#ffb703", "#90be6d", "#f28482", "#cdb4db", "#d4a373", "#84a59d", "#ffd6a5"};

// Which lane holds which element of 16 rows, -1: none or several.
template <class Elements>
static std::vector<int> owners(const Elements& held, int columns) {
  std::vector<int> owner(std::size_t(16 * columns), -1), holders(owner.size());
  for (std::size_t lane = 0; lane < 32; ++lane)
    for (const int element : held[lane]) {
      const std::size_t at = std::size_t(element / 16 * columns + element % 16);
      owner[at] = ++holders[at] == 1 ? int(lane) : -1;
    }
  return owner;
}

// A matrix whose cells name the lane that holds them: `colour` says which colour a lane has.
template <class Colour>
static void draw_lanes(svg::Canvas& canvas, double left, double top, double cell, const std::vector<int>& owner,
                       int columns, const Colour& colour) {
  std::vector<int> colours;
  for (const int lane : owner) colours.push_back(colour(lane));
  for (const svg::Patch& p : svg::patches(colours, columns))
    canvas.rect(left + cell * p.column, top + cell * p.row, cell * p.columns, cell * p.rows,
                "fill=\"" + std::string(p.value < 0 ? "#eee" : hues[p.value]) + "\"");
  canvas.raw("<g stroke=\"white\" fill=\"none\">");
  std::vector<svg::Patch> lanes = svg::patches(owner, columns);
  for (const svg::Patch& p : lanes)
    canvas.rect(left + cell * p.column, top + cell * p.row, cell * p.columns, cell * p.rows, "");
  canvas.raw("</g><g text-anchor=\"middle\">");
  for (const svg::Patch& p : lanes)
    if (colour(p.value) >= 0)
      canvas.text(left + cell * (p.column + p.columns / 2.0), top + cell * (p.row + p.rows / 2.0) + 4,
                  std::to_string(p.value));
  canvas.raw("</g>");
}

CELL("Which lane holds which element") {
  const phase10::Held held = phase10::ask_on(machine)();
  svg::Canvas canvas(760, 456, "Each patch names the lane that holds it; a colour is a group of four lanes");
  bool once = true;
  const auto draw = [&](double left, const char* title, const std::vector<int>& owner, int columns) {
    canvas.text(left, 54, title, "font-weight=\"bold\"");
    draw_lanes(canvas, left, 64, 22, owner, columns, [](int lane) { return lane < 0 ? -1 : lane / 4; });
    once = once && std::count(owner.begin(), owner.end(), -1) == 0;
  };
  draw(12, "A [16, 16]: Q, P", owners(held.A, 16), 16);
  draw(384, "B [16, 8]: V, Kᵀ", owners(held.B, 8), 8);
  draw(576, "C [16, 8]: S, O", owners(held.C, 8), 8);
  canvas.text(12, 442, "lane = 4 g + t. Found by a kernel that loads a tile of numbers.", "fill=\"#666\"");
  picture("10-fragments", canvas.str());
  expect(once, "every element of A, B and C is held by exactly one lane: 8, 4 and 4 elements per lane");

  bool rows = true, transposed = true;
  for (std::size_t lane = 0; lane < 32; ++lane) {
    const int g = int(lane) / 4;
    for (const int element : held.C[lane]) rows = rows && (element / 16 == g || element / 16 == g + 8);
    for (std::size_t i = 0; i < 4; ++i) {
      const int b = held.B[lane][i], bt = held.B_transposed[lane][i];
      transposed = transposed && b / 16 == bt % 16 && b % 16 == bt / 16;
    }
  }
  expect(rows,
         "a row of C lies in the four lanes of one group: lane 4g + t holds columns 2t and 2t + 1 of rows g, g + 8");
  expect(transposed, "load_b_transposed gives each lane what load_b would give it of the transposed tile");
}

// %% [markdown]
// ```{exercise} 10.1
// ```
//
// ## A row in four lanes, and C becomes A
//
// S is a C: it comes out of the first product. P = exp(S − m) is an A: it goes into the second. C has 8 columns and A
// has 16, so two neighbouring C are as large as one A. Here are both, with one group of four lanes in colour: the four
// lanes that share row 5. They share row 13, too.

// %% tags=["hide-input"]
CELL("The four lanes of a row") {
  const phase10::Held held = phase10::ask_on(machine)();
  const int quad = 5;                      // the lanes 4 · 5 … 4 · 5 + 3
  std::array<std::vector<int>, 32> two_c;  // columns 0 to 7 of the first product, 8 to 15 of its neighbour
  for (std::size_t lane = 0; lane < 32; ++lane)
    for (const int right : {0, 8})
      for (const int element : held.C[lane]) two_c[lane].push_back(element + right);

  svg::Canvas canvas(760, 470, "The four lanes that share rows 5 and 13: of S, and of P");
  const auto colour = [&](int lane) { return lane / 4 == quad ? lane % 4 : -1; };
  const auto draw = [&](double left, const char* title, const std::vector<int>& owner) {
    canvas.text(left, 54, title, "font-weight=\"bold\"");
    draw_lanes(canvas, left, 64, 18, owner, 16, colour);
    for (const int row : {quad, quad + 8})
      canvas.text(left - 6, 64 + 18 * row + 13, std::to_string(row), "text-anchor=\"end\" fill=\"#666\"");
  };
  draw(40, "S: two neighbouring C", owners(two_c, 16));
  draw(440, "P: one A", owners(held.A, 16));
  canvas.line(184, 60, 184, 356, "stroke=\"#222\" stroke-width=\"2\"");  // between the two C
  canvas.text(384, 196, "exp, round", "text-anchor=\"middle\"");
  canvas.arrow(350, 210, 412, 210, "#222");

  const std::size_t lane = 4 * quad + 1;
  canvas.text(16, 382, "What lane 21 holds, register by register: (row, column)", "font-weight=\"bold\"");
  const auto registers = [&](double y, const char* name, const auto& elements, int each) {
    canvas.text(16, y + 18, name);
    for (int i = 0; i < 8; i += each) {
      canvas.rect(102 + 80 * i, y, 80 * each - 6, 26, std::string("rx=\"3\" fill=\"") + hues[lane % 4] + "\"");
      for (int j = i; j < i + each; ++j)
        canvas.text(102 + 80 * j + 37, y + 17,
                    "(" + std::to_string(elements[j] / 16) + ", " + std::to_string(elements[j] % 16) + ")",
                    "text-anchor=\"middle\"");
    }
  };
  registers(392, "S, fp32", two_c[lane], 1);
  registers(426, "P, 16 bits", held.A[lane], 2);
  picture("10-quad", canvas.str());
  bool same = true;
  for (std::size_t each = 0; each < 32; ++each)
    same = same && std::equal(two_c[each].begin(), two_c[each].end(), held.A[each].begin());
  expect(same, "two neighbouring C and one A lie in the same lanes, in the same order");
}

// %% [markdown]
// This is why attention suits tensor cores. Each lane computes exp of its own elements of S, rounds them to 16 bits,
// puts two into a register, and holds its fragment of P. No element changes its lane, and P never touches shared
// memory.
//
// ## The kernel, piece by piece
//
// Tiles hold 16-bit elements, as bits, since nothing but loads and stores touches them there:
//
// ```{region} attention.cuh tiles
// ```
//
// Eight elements, 16 bytes, are the most that one instruction of a thread moves. A row can be read in such pieces if
// the array begins at a multiple of 16 bytes and the stride and D are multiples of 8; otherwise a plain loop copies
// element by element. What lies outside becomes zero. That matters more than before: a row beyond the end is multiplied
// by 0, and 0 · NaN is NaN.
//
// ```{region} attention.cuh load-tile
// ```
//
// `key_tiles` is phase 07's `tile_range` with a third number: no row of the Q tile sees the keys from `keys` on, so
// they are not loaded, and zeros take their place. It stands in a file of its own, since phases 11 to 13 use it, too.
//
// ```{region} keys.cuh tile-range
// ```
//
// S and O are products, here and in all later phases. What a lane has of a product is a flat array of registers. A file
// of its own, `rows.cuh`, says which row and column each register belongs to, and has the functions that work by rows:
//
// ```{region} rows.cuh layout
// ```
//
// A mask selects by column. `hide` does that for the next phases; this one has a `mask` of its own, below. A rescale
// multiplies each row by its factor:
//
// ```{region} rows.cuh hide
// ```
// ```{region} rows.cuh rescale
// ```
//
// A row's elements lie in four neighbouring lanes. So its maximum takes two {term}`shuffles <shuffle>`: with the
// neighbouring lane, then with the neighbouring pair of lanes.
//
// ```{region} rows.cuh four-lanes
// ```
//
// S becomes P as in the picture above. It takes no shuffle and no computed index, because the pairs of a lane's
// registers are already in the order in which A wants them.
//
// ```{region} rows.cuh round-p
// ```
// ```{region} rows.cuh log-sum
// ```
//
// What a block does is phase 08's: it brings tiles to shared memory, and its warps multiply them. A warp has 16 rows,
// so a block of 64 rows has four warps, 128 threads.
//
// ```{region} attention.cuh head
// ```
// ```{region} attention.cuh loop
// ```
//
// What a warp does is a struct. Its members say what a lane holds, two rows' worth of state; its functions are the
// steps from S to O:
//
// ```{region} attention.cuh warp
// ```
// ```{region} attention.cuh multiply
// ```
//
// The first product. For each 16 columns of Q the warp loads one A and, for each 8 keys, one B:
//
// ```{region} attention.cuh scores
// ```
// ```{region} attention.cuh mask
// ```
//
// Online softmax as in phase 08, with the row's maximum over four lanes. The sum l needs no shuffle yet: each lane adds
// up its own columns, and the four sums meet once, at the end.
//
// ```{region} attention.cuh maximum
// ```
//
// ```{region} attention.cuh probabilities
// ```
//
// The second product adds to O, which was rescaled. Its B comes out of V: 16 keys and 8 columns at a time.
//
// ```{region} attention.cuh output-product
// ```
//
// At the end the four lanes of a row add up their shares of l, and each lane divides and stores its own elements:
//
// ```{region} attention.cuh output
// ```
//
// The grid is phase 08's:
//
// ```{region} attention.cuh grid
// ```
// ```{region} attention.cuh launch
// ```
//
// Most of the file is new, so the difference to phase 08 is folded:
//
// ```{difference} ../08-lse/attention.cuh attention.cuh
// ```

// %% [markdown]
// ## Run it: the same attention
//
// The sentence's Q, K and V are stored as fp16, so that nothing is lost by giving them to this kernel. O is fp16 too.
// Its error has a floor: the exact answer, rounded to fp16. `worst_head` compares with fp64.

// %% tags=["hide-input"]
CELL("The sentence, in fp16") {
  Rounded<half> e(sentence()), before(sentence());
  phase10::forward(e.problem(), machine);
  phase08::forward(before.problem(), machine);
  Example exact = e.widened();
  for (int h = 0; h < 12; ++h)
    Eigen::Map<RowMajor<float>>(&exact.o(0, h, 0, 0), 50, 32) = exact_head(exact, h).cast<float>();
  for (float& x : exact.o) x = to_float(from_float<half>(x));
  const double floor = worst_head(exact), error = worst_head(e.widened());
  std::printf("worst head against fp64: phase 10 %.1e, phase 08 %.1e; the exact answer as fp16 %.1e\n", error,
              worst_head(before.widened()), floor);
  expect(error <= 2 * floor, "within twice the error of the exact answer rounded to fp16");
}

// %% [markdown]
// ## A sum that is cut off
//
// `fmaf` rounds to the nearest number after each multiply-add. A tensor core adds 17 terms at once, 16 products and C's
// element. NVIDIA does not document how; others have found it by probing (Li et al., "MMA-Sim"), and the simulator
// follows them: all terms are aligned to the largest one's exponent, the bits beyond 25 binary places are cut off, the
// rest is added exactly, and the sum is rounded towards zero. An H200 gave the same bits for 14 families of random
// operands, 131,072 results each (docs/results/conformance-h200.txt). So we take the simulator's `mma` for the GPU's.
//
// Take one product of 1 and fifteen small ones. Terms of 2⁻²⁴ all count, and the sum is cut off once; `fmaf` rounds
// each of them away. Terms of 2⁻²⁶ are cut off before they are added:

// %% tags=["hide-input"]
// 1 + 15 · x · y by one mma; x and y are powers of two that fp16 holds.
static float by_mma(float x, float y) {
  const auto pair = [](float first, float second) {
    return from_float<half>(first).bits | std::uint32_t{from_float<half>(second).bits} << 16;
  };
  // Row 0 of A is 1, x, …, x and column 0 of B is 1, y, …, y. They belong to the lanes 0 to 3.
  std::uint32_t a[32][4] = {}, b[32][2] = {};
  float c[32][4] = {}, d[32][4];
  std::array<simt::MmaRegisters, 32> lanes;
  for (int lane = 0; lane < 32; ++lane) {
    if (lane < 4) a[lane][0] = a[lane][2] = pair(x, x), b[lane][0] = b[lane][1] = pair(y, y);
    lanes[lane] = {a[lane], b[lane], c[lane], d[lane]};
  }
  a[0][0] = pair(1, x), b[0][0] = pair(1, y);
  simt::mma_m16n8k16(lanes, simt::MmaType::half);
  return d[0][0];
}

CELL("Sixteen products, one rounding") {
  const auto beyond_one = [](double sum) { return (sum - 1) * 0x1p23; };
  std::printf("1 + 15 terms, in units of 2^-23 beyond 1\nterm      exact   nearest      fmaf       mma\n");
  std::array<double, 2> mma{};
  for (const int i : {0, 1}) {
    const float x = 0x1p-12f, y = i == 0 ? 0x1p-12f : 0x1p-14f;
    float added = 1;
    for (int k = 1; k < 16; ++k) added = std::fmaf(x, y, added);
    const double exact = 1 + 15.0 * x * y;
    mma[i] = beyond_one(by_mma(x, y));
    std::printf("2^%d %9.4f %9.4f %9.4f %9.4f\n", i == 0 ? -24 : -26, beyond_one(exact), beyond_one(float(exact)),
                beyond_one(added), mma[i]);
  }
  expect(mma[0] == 7, "terms of 2^-24: the exact sum is 7.5 units, and half a unit is cut off");
  expect(mma[1] == 0, "terms of 2^-26, below the 25th binary place: lost, however many");
}

// %% [markdown]
// What does that do to attention? To O, very little: 16-bit inputs and outputs are coarser by far. LSE is fp32 and
// would show it. A score is D/16 such sums, each of which may be short by 2 · 2⁻²⁴ of the size of its terms. So for
// these kernels {term}`the contract` allows LSE an error of 2·10⁻⁶ · max(1, |LSE|) plus D/16 · 2 · 2⁻²⁴ times that
// size, which is Σ|q·k| · scale, averaged over the keys as softmax weighs them.

// %% tags=["hide-input"]
struct LseError {
  double worst = 0, mean = 0, share_of_bar = 0;
};
static LseError lse_error(const Rounded<half>& run) {
  const Example e = run.widened();
  const RowMajor<double> S = scores<double>(e, 0), P = exact_softmax(S);
  const RowMajor<double> sizes = head(e.q, 0).cast<double>().cwiseAbs() *
                                 head(e.k, 0).cast<double>().cwiseAbs().transpose() / std::sqrt(double(e.q.shape(3)));
  LseError error;
  for (int i = 0; i < S.rows(); ++i) {
    const double m = S.row(i).maxCoeff(), lse = m + std::log((S.row(i).array() - m).exp().sum());
    const double bar =
        2e-6 * std::max(1.0, std::abs(lse)) + double(e.q.shape(3)) / 16 * 2 * 0x1p-24 * P.row(i).dot(sizes.row(i));
    error.worst = worse(error.worst, std::abs(e.lse[i] - lse));
    error.mean += (e.lse[i] - lse) / double(S.rows());
    error.share_of_bar = worse(error.share_of_bar, std::abs(e.lse[i] - lse) / bar);
  }
  return error;
}

CELL("What LSE loses") {
  Example random = random_example(256, 128);
  random.q *= 4.0f;  // larger scores, which have more to lose
  Rounded<half> now(random), before(random);
  phase10::forward(now.problem(blocks), Where::Sim);
  phase08::forward(before.problem(), Where::Sim);
  const LseError tensor = lse_error(now), fmaf = lse_error(before);
  std::printf("LSE − fp64       worst      mean\nphase 08    %10.1e %9.0e\nphase 10    %10.1e %9.0e\n", fmaf.worst,
              fmaf.mean, tensor.worst, tensor.mean);
  expect(std::abs(tensor.mean) > 4 * std::abs(fmaf.mean), "what is cut off adds up; what is rounded evens out");
  expect(tensor.share_of_bar <= 1, "LSE of tensor cores is within its bar, every row");
}

// %% [markdown]
// ## 0 · NaN
//
// Until now a key that a row may not see could hold anything. The mask replaced its score by −∞, and its value was
// never multiplied. A tensor core leaves nothing out: it multiplies the row's 0 by the value, and 0 · NaN is NaN. The
// promise that is left is about tiles: NaN in V spreads to the rows of a Q tile if one row of that tile sees the key.
// NaN in K does not spread, because the mask still selects scores. Here NaN stands in one key of 128, with a causal
// mask:
//
// ```{question}
// N = 128, tiles of 64, a causal mask, and NaN in key 100 of V. How many rows of O become NaN in phase 08, and how many
// in phase 10?
// ```

// %% tags=["hide-input"]
CELL("NaN behind the mask") {
  const auto rows_with_nan = [](bool in_v, auto&& run) {
    Rounded<half> e(random_example(128, 64));
    (in_v ? e.v : e.k)(0, 0, 100, 7) = from_float<half>(std::numeric_limits<float>::quiet_NaN());
    run(e.problem({.mask = Mask::top_left()}));
    const Example got = e.widened();
    int rows = 0;
    for (int i = 0; i < 128; ++i) rows += head(got.o, 0).row(i).hasNaN();
    return rows;
  };
  const auto ten = [](const Problem<half>& p) { phase10::forward(p, Where::Sim); };
  const auto eight = [](const Problem<half>& p) { phase08::forward(p, Where::Sim); };
  const int k10 = rows_with_nan(false, ten), k08 = rows_with_nan(false, eight);
  const int v10 = rows_with_nan(true, ten), v08 = rows_with_nan(true, eight);
  std::printf(
      "rows of O with NaN     phase 08   phase 10\nNaN in key 100 of K %11d %10d\nNaN in key 100 of V %11d %10d\n", k08,
      k10, v08, v10);
  expect(k08 == 28 && k10 == 28, "in K: the 28 rows from 100 on, which see the key");
  expect(v08 == 28 && v10 == 64, "in V: phase 10 loses all 64 rows of that Q tile, and no other");
}

// %% [markdown]
// ```{answer}
// 28 and 64. In phase 08 the rows from 100 on, which see the key. In phase 10 the whole second Q tile: P is 0 for the
// rows that may not see it, and the tensor core multiplies all the same.
// ```
//
// ## Predicted = counted
//
// One head, N = 128, D = 64, tiles of 64 × 64, so T_r = T_c = 2 and four pairs of tiles. HBM bytes follow phase 04's
// formula, with 2 bytes for each element. A pair of tiles costs 2 · 64 · 64 · D multiply-adds, all on tensor cores.
//
// Shared memory is where this kernel is bad, and one can see why without running it. Rows of D = 64 elements are 128
// bytes, exactly 32 banks. A fragment's load takes 4 words from each of 8 rows, and all 8 rows begin in bank 0. So 4
// banks serve 32 words, 8 each: 8 {term}`wavefronts <wavefront>` where 1 would do. For V a warp reads 8 neighbouring
// elements, 16 bytes, from each of four rows. That takes 4 wavefronts and brings each lane half a register. Loads per
// pair of tiles, all four warps:
//
//     Q   4 warps · D/16 fragments · 4 registers                  8 wavefronts each
//     K   4 warps · 64/8 · D/16 fragments · 2 registers           8
//     V   4 warps · 64/16 · D/8 fragments · 4 half registers      4
//
// ```{question}
// Of 100 wavefronts of shared memory, how many are bank conflicts?
// ```

// %% tags=["hide-input"]
CELL("Bytes, FLOPs and wavefronts") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not count\n"));
  const std::uint64_t N = 128, D = 64, T = 2, pairs = T * T, element = 2;
  Rounded<half> e(random_example(N, D));
  Ledger l = phase10::forward(e.problem(blocks), Where::Checked).ledger;
  const std::uint64_t once = N * D * element;
  bool same = equal(l.array("Q").read_bytes + l.array("O").written_bytes, 2 * once, "HBM bytes of Q and O");
  same &= equal(l.array("K").read_bytes + l.array("V").read_bytes, 2 * T * once, "HBM bytes of K and V");
  same &= equal(l.array("LSE").written_bytes, 4 * N, "HBM bytes of LSE");
  same &= equal(l.tensor_flops, pairs * 4 * 64 * 64 * D, "FLOP of tensor cores");
  same &= equal(l.tensor_flops / 4096, pairs * (2 * 64 * 64 * D) / (16 * 8 * 16), "mma instructions");
  expect(same, "predicted = counted");

  const std::uint64_t q = 4 * 4 * D / 16, k = 4 * 2 * 8 * D / 16, v = 4 * 4 * 4 * D / 8;
  const std::uint64_t stores = (T + pairs * 2) * 64 * D * element / 16 / 32;  // 16 bytes a lane, 32 lanes
  same = equal(l.shared_read_requests, pairs * (q + k + v), "loads of shared memory");
  same &= equal(l.shared_write_requests, stores, "stores to it");
  same &= equal(l.shared_wavefronts, pairs * (8 * (q + k) + 4 * v) + 4 * stores, "wavefronts");
  same &= equal(l.bank_conflicts(), pairs * (7 * (q + k) + 3 * v), "of these, conflicts");
  expect(same, "predicted = counted, by hand");
  std::printf("%.0f %% of the wavefronts are bank conflicts; %.1f wavefronts for each mma\n",
              100.0 * double(l.bank_conflicts()) / double(l.shared_wavefronts),
              double(l.shared_wavefronts) / double(l.tensor_flops / 4096));
  expect(4 * l.bank_conflicts() > 3 * l.shared_wavefronts, "over three quarters of what shared memory does is waste");
}

// %% [markdown]
// ```{answer}
// 79. Of the wavefronts that load Q and K seven in eight are conflicts, of those that load V three in four. Only the
// stores, whole pieces of a row, have none.
// ```
//
// **What you saw.** A warp multiplies 16 × 16 by 16 × 8 in one instruction, and its lanes hold the matrices in pieces.
// S is already where P has to be. The rest of attention is unchanged. But the tensor cores have to be fed from shared
// memory, and four of five wavefronts that feed them are bank conflicts. Phase 11 removes these.
//
// **Measured:** on an H200; [the end of part 3](../../docs/book/part-3.md) has the table.
//
// **To think about.** 1. Which lane holds element (5, 11) of A? Which register, which half? 2. m16n8k8 has an A of
// 16 × 8. Does C still have A's layout then? 3. Phase 05 put 4 spare columns, 16 bytes, into each row of Q against bank
// conflicts. How many elements of 16 bits would do here, and why not fewer (think of 16-byte stores)? 4. Let V's tile
// be zeroed where no row of the Q tile sees the key. Does that save the promise about NaN inside a tile?
//
// <details><summary>Answers</summary>
//
// 1. Lane 21, the upper half of its third register: row 5 is g = 5, and column 11 is 2t + 9 with t = 1. It stands in
// the second picture.
//
// 2. Yes, and one C is one A then: lane 4g + t holds columns 2t and 2t + 1 of rows g and g + 8 of both.
//
// 3. 8 elements, 16 bytes again. Row r then begins 4 r banks further on, so that 4 g + t is another bank for each lane.
// With 4 elements row 1 would begin 8 bytes behind a multiple of 16, where no store of 16 bytes may begin.
//
// 4. No. What no row of the Q tile sees is zero already. The promise breaks at a key that one row of the tile sees and
// another does not, and that key's value cannot be zeroed.
//
// </details>
