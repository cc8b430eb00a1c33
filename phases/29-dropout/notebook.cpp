// %% [markdown]
// # 29 · Dropout
//
// **Question.** Models that are trained with dropout leave out a share p of P's numbers, each by chance, and the others
// count 1 / (1 - p) times as much. The backward pass must leave out the same ones. A mask in memory would be as large
// as P, and not to have P in memory is what this course is about. Where does chance come from, twice the same?
//
// **Idea.** From a function. Philox makes four words of a counter and a key, and no word shows which counter it came
// from. With the seed as its key and (b, h, i, j) as the counter there is nothing to store: whoever needs the mask of a
// place computes it. No tile size, no machine and no order of blocks has a part in it.
//
// **Changed since 25.** P loses numbers when it has been rounded and summed, on its way to V. l and LSE know nothing of
// it. O is multiplied by 1 / (1 - p) once, in the end. In the backward pass Pᵀ loses the same numbers on its way to dO,
// and so does dP; P itself, in dS = P ∘ (dP - δ), is whole.

// %% tags=["hide-input"]
#include "phases/29-dropout/phase.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "phases/29-dropout/steps/steps.hpp"
#include "phases/arrays/tensor.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/counted.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;
using phase29::Fragment;

// %% [markdown]
// ## The generator
//
// Ten rounds, each of two products of 32 x 32 bits, of which both halves are used. A GPU has an instruction for such a
// product, and one for an xor of three words. The keys of the ten rounds depend on the seed alone, and are made once:
//
// ```{region} philox.cuh philox
// ```
//
// A call makes 128 bits. Here 16 of them decide about a number of P, so a call serves 8 keys: j / 8 is in the counter,
// not j. P_ij is left out where its 16 bits are less than 65536 p. Then p is a multiple of 1/65536, and 1 / (1 - p) is
// worked out from that multiple, so that what is left has exactly the right weight.
//
// ```{exercise} 29.1
// ```
//
// ```{question}
// Rounds 2 to 10 take two products and two xors each. How many instructions is that for a number of P, and how many
// would it be if each number had a call of its own?
// ```

// %% tags=["hide-input"]
CELL("What share is kept") {
  const std::array<std::int64_t, 4> shape = {1, 1, 512, 512};
  bool close = true;
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    const Dropout dropout{p, 29};
    double kept = 0;
    for (const std::uint8_t x : phase29::asked_on(Where::Sim).mask(Fragment::Rows, dropout, shape)) kept += x;
    const double all = 512 * 512, share = kept / all, exact = 1 - dropout.threshold() / 65536.0;
    std::printf("p = %.1f: %5d of 65536 are left out, %.4f of all places are kept, factor %.6f\n", double(p),
                int(dropout.threshold()), share, double(dropout.factor()));
    close = close && std::abs(share - exact) < 4 * std::sqrt(exact * (1 - exact) / all);
  }
  constexpr int instructions = 9 * 4;
  std::printf("rounds 2 to 10 are %d instructions: %.1f for a number of P, %d if each had a call of its own\n",
              instructions, instructions / 8.0, instructions);
  expect(close, "the share that is kept is 1 - p, within four standard deviations");
}

// %% [markdown]
// ```{answer}
// Nine rounds of four are 36 instructions; divided by 8 keys that is 4.5. Alone it would be 36.
// ```
//
// ## Two comparisons at once
//
// A word has the bits of two neighbouring keys. Both halves are compared with the threshold t at the same time. If all
// 16 bits of a half were needed for a difference, a borrow would reach the other half. So the highest bits are left
// aside: x >= t is what two of three bits say, x's highest bit, the highest bit of the difference of the others, and
// the complement of t's. That is one instruction for the majority, as it is for any function of three words' bits:
//
// ```{region} philox.cuh keeper
// ```
//
// ## Who calls?
//
// A product's eight neighbouring columns lie in four lanes, two in each (phase 10). So four lanes need a quarter of
// each call. Either each of them makes every call, and throws three quarters away; or each makes a quarter of the
// calls, and they exchange what they have found. What is exchanged should be small. Words would take a shuffle for each
// two numbers of P. But a lane needs no words, only the answers: of 16 calls it makes four, whose 32 answers fit one
// register. Two shuffles later it has the 32 answers of its own elements:
//
// ```{region} flags.cuh exchange
// ```
// ```{region} flags.cuh rows
// ```
//
// In the backward pass products are transposed: their rows are keys. Eight keys lie in eight lanes, which are 4 apart.
// Now each lane makes one call of eight, and there are three exchanges, again of one register for 32 numbers:
//
// ```{region} flags.cuh keys
// ```
//
// ```{exercise} 29.2
// ```
//
// The picture is what a kernel has written that draws its flags as attention does: 64 rows and 64 keys of two heads. A
// dark cell is kept. The frames show a call each.

// %% tags=["hide-input"]
CELL("The mask, drawn by both kinds of fragments") {
  const std::array<std::int64_t, 4> shape = {1, 2, 64, 64};
  const Dropout dropout{0.3f, 2029};
  const auto rows = phase29::asked_on(Where::Sim).mask(Fragment::Rows, dropout, shape);
  const auto keys = phase29::asked_on(Where::Sim).mask(Fragment::Keys, dropout, shape);
  svg::Canvas canvas(760, 400, "Which numbers of P are kept: two heads, 64 rows and 64 keys, p = 0.3");
  constexpr double cell = 5;
  std::size_t together = 0, kept[2] = {};
  for (int h = 0; h < 2; ++h) {
    const double left = 40 + 370 * h, top = 50;
    canvas.text(left, 36, "head " + std::to_string(h), "font-weight=\"bold\"");
    for (std::size_t i = 0; i < 64; ++i)
      for (std::size_t j = 0; j < 64; ++j) {
        const bool is_kept = rows[(std::size_t(h) * 64 + i) * 64 + j];
        kept[h] += is_kept, together += h && is_kept && rows[i * 64 + j];
        canvas.rect(left + cell * double(j), top + cell * double(i), cell - 0.6, cell - 0.6,
                    is_kept ? "fill=\"#4a7fb0\"" : "fill=\"#e8e8e8\"");
      }
    for (int k = 0; k < 8; ++k)
      canvas.rect(left + 8 * cell * k - 0.5, top - 0.5, 8 * cell, cell + 0.4, "fill=\"none\" stroke=\"#d0662f\"");
  }
  canvas.text(40, 392, "Rows are queries, columns keys. Framed: the eight calls for row 0.", "fill=\"#666\"");
  picture("29-mask", canvas.str());
  std::printf("head 0 keeps %zu of 4096, head 1 %zu, both keep %zu\n", kept[0], kept[1], together);
  expect(rows == keys, "lanes that share a row and lanes that share a column draw the same mask");
}

// %% [markdown]
// ## In the kernels
//
// The flags of a tile are two registers a lane on Hopper. They do not depend on S, so they are drawn while S is being
// multiplied: between the start of the products and the wait for them, where the warps of a warpgroup would have
// nothing to do. When P has been rounded the flags become masks of 16 bits, and an `and` leaves zeros:
//
// ```{region} dropped.cuh forward
// ```
// ```{region} dropped.cuh backward
// ```
//
// The price, read off phase 18's machine code: about 7 instructions a number for the flags, beside the tensor cores'
// work, and 1.3 for the `and`. A round waits for the one before, so several calls should run side by side. But phase 18
// has 232 registers a thread: with all eight calls of a tile side by side it spilled 36. With two it spills four, and
// none inside the loop over K/V tiles. Words in place of flags would have cost 32 shuffles a tile; flags cost four.
//
// Phase 20 has a warp for P and another one for dS, which gets P through shared memory. P is never negative, so its
// sign is free. The first warp draws the flags for both, and hands P over with a sign where it is left out:
//
// ```{region} dropped.cuh handover
// ```
//
// In the kernel they stand in a group of their own:
//
// ```{region} ../20-backward-tensor-cores/attention.cuh dropout
// ```
//
// ```{question}
// N = 256, D = 64, 2 heads, 16 bits. How many bytes does phase 29 read and write more than phase 25?
// ```

// %% tags=["hide-input"]
static constexpr std::int64_t H = 2, N = 256, D = 64;
struct Lesson {
  Tensor<half> q = random_tensor<half>({1, H, N, D}, 29, 0), k = random_tensor<half>({1, H, N, D}, 29, 1),
               v = random_tensor<half>({1, H, N, D}, 29, 2), o = make_tensor<half>({1, H, N, D});
  std::vector<float> lse = std::vector<float>(std::size_t(H * N));
  Problem<half> problem(const Options& options) {
    return {view(std::as_const(q)), view(std::as_const(k)), view(std::as_const(v)), view(o), lse.data(), options};
  }
};

CELL("What it moves") {
  if (!counts()) return;
  Lesson lesson;
  Options with, without;
  with.dropout = {0.1f, 29};
  without.block_q = with.block_q = 192, without.block_k = with.block_k = 128;
  const Run before = phase25::forward(lesson.problem(without), machine);
  const std::vector<float> lse = lesson.lse;
  const Run run = phase29::forward(lesson.problem(with), machine);
  bool same = equal(run.ledger.hbm_read_bytes(), before.ledger.hbm_read_bytes(), "bytes read, with dropout");
  same &= equal(run.ledger.hbm_written_bytes(), before.ledger.hbm_written_bytes(), "bytes written, with dropout");
  same &= equal(run.ledger.exps, before.ledger.exps, "exps, with dropout");
  std::printf("a mask in memory, a byte each, would have %s bytes\n", grouped(H * N * N).c_str());
  expect(same, "as many as phase 25 without");
  expect(lse == lesson.lse, "LSE has phase 25's bits: it knows nothing of dropout");
}

// %% [markdown]
// ```{answer}
// None. A mask of bytes would have had 131,072, written once and read in both directions.
// ```
//
// Tile sizes and machines do not show either. O of one block size and O of another one differ by roundings; were a
// single number of P kept in one and left out in the other, they would differ by far more:

// %% tags=["hide-input"]
CELL("Other tiles, other kernels, the same places") {
  const auto result = [](const Phase& phase, std::int64_t Br, std::int64_t Bc) {
    Lesson lesson;
    Options options;
    options.dropout = {0.5f, 29}, options.block_q = Br, options.block_k = Bc;
    forward(phase, lesson.problem(options));
    std::vector<double> o;
    for (std::int64_t i = 0; i < H * N * D; ++i) o.push_back(to_float(lesson.o.data()[i]));
    return o;
  };
  const std::vector<double> first = result(phase29::phase, 192, 128);
  bool close = true;
  const auto compare = [&](const Phase& phase, std::int64_t Br, std::int64_t Bc) {
    const std::vector<double> o = result(phase, Br, Bc);
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < o.size(); ++i) difference += std::pow(o[i] - first[i], 2), size += first[i] * first[i];
    const double relative = std::sqrt(difference / size);
    std::printf("%-11s in tiles of %3d x %3d: O differs by less than %s\n", phase.name, int(Br), int(Bc),
                relative < 1e-3 ? "a thousandth" : "nothing that is small");
    close = close && relative < 1e-3;
  };
  compare(phase29::phase, 256, 64), compare(phase29m::phase, 128, 64), compare(phase29m::phase, 32, 16);
  expect(close, "all leave out the same numbers of P");
}

// %% [markdown]
// **What you saw.** Dropout needs no memory if chance is a function of the place. A call of Philox serves eight keys;
// the lanes that hold them share the calls, and exchange answers, 32 in a register. The generator runs while tensor
// cores multiply. LSE and δ are what they are without dropout, but for O, whose mean δ has.
//
// **To think about.** 1. Why is P dropped after it has been summed, and not before? 2. δ = Σ_d dO_d O_d is made from O
// with dropout. Why is that the right one for dS = P ∘ (dP - δ)? 3. What would go wrong if the counter held the number
// of a tile, and a place in it?
//
// <details><summary>Answers</summary>
//
// 1. l is the sum of all exponentials: dropout leaves out probabilities, and these are what they are because all keys
//    were there. Summed behind it, l would be another one, the rest would sum to 1, and LSE would be of no use.
//
// 2. δ stands for Σ_j P_ij dP_ij. dP is dropped and scaled, as P was on its way to V; so that sum is dO times the O
//    that was computed from the dropped P.
//
// 3. The mask would depend on tile sizes. Forward and backward have different ones, and would leave out different
//    places.
//
// </details>
//
// ## The rest of the code
//
// ```{region} dropped.cuh variant
// ```
//
// ```{region} attention.cuh launch
// ```
//
// ```{region} mma.cuh launch-mma
// ```
//
// ```{region} steps/mask.cuh write-mask
// ```
//
// ```{region} steps/mask.cuh one-call
// ```
