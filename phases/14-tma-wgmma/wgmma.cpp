// %% [markdown]
// # 14 · wgmma: a warpgroup multiplies
//
// **Question.** With `mma` a warp first loads fragments of 16 × 16 into registers, by `ldmatrix`, and then multiplies
// them. [The page before](tma.cpp) brought whole tiles to shared memory. Can tensor cores multiply them where they lie?
//
// **Idea.** Yes: with **wgmma**. Four warps, a {term}`warpgroup`, issue it together. It multiplies 64 × 16 numbers of A
// by 16 × N of B, with N up to 256, and adds the result to 64 × N numbers in registers. B is read from shared memory,
// and A from there or from registers. The instruction runs beside the threads: they issue it, go on, and wait for it
// later.

// %% tags=["hide-input"]
#include <algorithm>
#include <array>
#include <cstdio>

#include "phases/14-tma-wgmma/steps/steps.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/svg.hpp"
#include "sim/number.hpp"

using namespace flash;
using phase14::Floats, phase14::Halves, phase14::Ran;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;
static const phase14::Small& small = phase14::small_on(machine);

static bool counts() {
  if (machine == Where::Checked) return true;
  std::printf("this build has no checked simulator, and the fast one does not count\n");
  return false;
}

// 64 x 64 numbers; and what 128 threads hold of a product of 64 x 64, 32 numbers each.
template <class F>
static Halves tile(const F& element) {
  Halves all(64 * 64);
  for (int i = 0; i < 64 * 64; ++i) all[i] = from_float<half>(static_cast<float>(element(i / 64, i % 64)));
  return all;
}
// A's elements are their own numbers; B is the identity. So an element of S = A Bᵀ says where it belongs.
static const Halves A = tile([](int row, int column) { return 64 * row + column - 2048; });
static const Halves identity = tile([](int row, int column) { return row == column; });
static int number(float element) {
  return static_cast<int>(element) + 2048;
}
static Floats product() {
  Floats S(64 * 64);
  small.product({}, A, identity, S);
  return S;
}

static const char* grey = "fill=\"#666\"";

CELL("One instruction") {
  const Floats S = product();
  std::array<int, 64> warp_of{};  // of each row of S
  for (int i = 0; i < 64 * 64; ++i) warp_of[number(S[i]) / 64] = i / 32 / 32;
  svg::Canvas canvas(620, 400, "wgmma m64n64k16: S += A Bᵀ, by four warps together");
  static const char* hues[] = {"#8ecae6", "#ffd27a", "#a8d08d", "#f4a6a5"};
  const double x = 150, y = 130, scale = 3.2;
  bool bands = true;
  for (int row = 0; row < 64; row += 16) {
    for (int r = row; r < row + 16; ++r) bands = bands && warp_of[r] == warp_of[row];
    for (const double left : {x - 16 * scale - 12, x})
      canvas.rect(left, y + scale * row, scale * (left < x ? 16 : 64), scale * 16,
                  std::string("stroke=\"white\" fill=\"") + hues[warp_of[row]] + "\"");
    canvas.text(x + 32 * scale, y + scale * (row + 8) + 4, "warp " + std::to_string(warp_of[row]),
                "text-anchor=\"middle\"");
  }
  canvas.rect(x, y - 16 * scale - 12, 64 * scale, 16 * scale, "stroke=\"white\" fill=\"#cdb4db\"");
  canvas.text(x + 32 * scale, y - 8 * scale - 8, "Bᵀ, 16 × 64", "text-anchor=\"middle\"");
  canvas.text(16, y + 32 * scale, "A, 64 × 16");
  canvas.text(x, y + 64 * scale + 20, "S, 64 × 64: 32 registers of each of 128 threads");
  const double notes = x + 64 * scale + 24;
  canvas.text(notes, y - 8 * scale - 8, "B: shared memory");
  canvas.text(notes, y + 28 * scale, "A: shared memory,");
  canvas.text(notes, y + 28 * scale + 17, "or registers");
  canvas.text(notes, y + 28 * scale + 44, "S: registers");
  canvas.text(16, 388, "Which warp holds which rows was read from the result of the kernel below.", grey);
  picture("14-wgmma", canvas.str());
  expect(bands && warp_of[0] == 0 && warp_of[63] == 3, "warp w has rows 16 w to 16 w + 15");
}

// %% [markdown]
// ## The smallest kernel
//
// Two tiles of 64 × 64 come by TMA, as panels. One warpgroup multiplies them: S = A Bᵀ. Each instruction takes 16
// columns of both tiles, so it takes four for all 64.
//
// ```{region} steps/products.cuh first-product
// ```
//
// Three calls stand around the product, `wgmma_fence`, `wgmma_commit` and `wgmma_wait`. They have a section of their
// own further down. First, how much does one instruction do?
//
// ```{question}
// How many FLOP are in one m64n64k16? How many bytes of shared memory does it read? And how many FLOP are in one `mma`
// of phase 10, m16n8k16?
// ```

// %%
CELL("What one instruction does") {
  if (!counts()) return;
  Floats S(64 * 64);
  Ledger ledger = small.one_step({}, A, identity, S).report.ledger;
  std::printf("wgmma m64n64k16: %s FLOP, %s bytes read from shared memory\n", grouped(ledger.tensor_flops).c_str(),
              grouped(ledger.wgmma_shared_bytes).c_str());
  const std::uint64_t of_mma = 2 * 16 * 8 * 16;
  std::printf("mma m16n8k16:    %s FLOP, which is 1 / %d of it\n", grouped(of_mma).c_str(),
              int(ledger.tensor_flops / of_mma));
  expect(ledger.tensor_flops == 2 * 64 * 64 * 16, "2 · 64 · 64 · 16 FLOP");
  expect(ledger.wgmma_shared_bytes == (64 * 16 + 64 * 16) * 2, "16 columns of A and of B, each once");
  expect(ledger.shared_read_requests == 0, "no thread loaded anything from shared memory");
}

// %% [markdown]
// ```{answer}
// 131,072 FLOP, 32 times the 4,096 of an `mma`. It reads 4,096 bytes, 16 columns of each tile.
// ```
//
// ## The descriptor
//
// `wgmma` gets neither a pointer nor fragments. It gets a **descriptor** for each operand in shared memory: 64 bits
// that say where the matrix begins and how it is laid out. All distances in it are counted in units of 16 bytes:
//
// - `address`: where the matrix begins;
// - `stride`: how far it is from eight rows to the next eight. Rows have 128 bytes, so that is 1,024. PTX says *stride
//   dimension byte offset*, SBO;
// - `leading`: how far it is from one panel to the next one, where an instruction needs several; else it is ignored.
//   PTX says *leading dimension byte offset*, LBO;
// - `base`: 0 for tiles that begin at multiples of 1,024 bytes, as ours do;
// - `swizzle`: 1 stands for the swizzle of 128 bytes, the one that TMA has used.
//
// The next 16 columns have the same descriptor, with another address. That is the whole address arithmetic of a
// product.
//
// ```{region} steps/products.cuh describe
// ```

// %% tags=["hide-input"]
struct Field {
  const char* name;
  unsigned first, bits;
  const char* colour;
  unsigned bytes;  // in units of so many bytes; 0: a plain number
};
static constexpr Field fields[] = {{"swizzle", 62, 2, "#f4a6a5", 0},
                                   {"base", 49, 3, "#dddddd", 0},
                                   {"stride", 32, 14, "#a8d08d", 16},
                                   {"leading", 16, 14, "#ffd27a", 16},
                                   {"address", 0, 14, "#8ecae6", 16}};
static unsigned value(std::uint64_t bits, const Field& field) {
  return unsigned(bits >> field.first & ((1u << field.bits) - 1)) * std::max(field.bytes, 1u);
}

CELL("Descriptors, bit by bit") {
  std::vector<unsigned> words(8);
  small.descriptors({}, words);
  static const char* whose[] = {"K", "K, 16 columns further on", "V", "V, 16 rows further on"};
  svg::Canvas canvas(744, 340, "Four descriptors, bits 63 to 0: dark is 1");
  std::uint64_t all[4];
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t bits = all[i] = std::uint64_t{words[2 * i + 1]} << 32 | words[2 * i];
    const double y = 62 + 66 * i, cell = 11;
    const auto x_of = [&](unsigned bit) { return 20 + cell * (63 - bit); };  // the bit's left end
    canvas.text(20, y - 6, whose[i], "font-weight=\"bold\"");
    canvas.rect(20, y, cell * 64, 20, "fill=\"#f4f4f4\"");
    for (const Field& field : fields) {
      const double width = cell * field.bits, x = x_of(field.first + field.bits - 1);
      canvas.rect(x, y, width, 20, std::string("stroke=\"white\" fill=\"") + field.colour + "\"");
      const unsigned v = value(bits, field);
      const bool left = field.first == 62;
      canvas.text(left ? x : x + width / 2, y + 35, std::string(field.name) + " " + grouped(v),
                  left ? "" : "text-anchor=\"middle\"");
    }
    for (unsigned bit = 0; bit < 64; ++bit)
      if (bits >> bit & 1) canvas.rect(x_of(bit) + 1, y + 3, cell - 2, 14, "fill=\"#333\"");
  }
  canvas.text(16, 330, "Distances and addresses in bytes. Drawn from the bits that the kernel wrote.", grey);
  picture("14-descriptor", canvas.str());

  for (int i = 0; i < 4; ++i) {
    std::printf("%-26s", whose[i]);
    for (int f = 4; f >= 0; --f) std::printf(" %s %6s ", fields[f].name, grouped(value(all[i], fields[f])).c_str());
    std::printf("\n");
  }
  const auto address = [&](int i) { return value(all[i], fields[4]); };
  bool as_said = address(1) == address(0) + 32 && address(3) == address(2) + 16 * 128;
  for (int i = 0; i < 4; ++i)
    as_said =
        as_said && value(all[i], fields[0]) == 1 && value(all[i], fields[1]) == 0 && value(all[i], fields[2]) == 1024;
  expect(as_said, "16 columns are 32 bytes further on, 16 rows 2,048; stride 1,024, swizzle 1, base 0");
  expect(address(2) - address(0) == 2 * 64 * 128, "V lies two panels of 64 rows behind K");
  expect(value(all[2], fields[3]) == 64 * 128, "V's panels are 64 rows of 128 bytes apart");
}

// %% [markdown]
// In `leading`, and in the step to the next 16, K and V differ because of the index that is summed over. In S = Q Kᵀ
// the sum runs over the columns of K, so neighbours in the sum are neighbours in memory. Such an operand is called
// **K-major**; its k is the index of the sum, not our matrix. In O = P V the sum runs over V's rows. Neighbours in
// memory belong to neighbouring columns of O, and V is **MN-major**. `wgmma` reads both as they lie. What took phase 11
// two kinds of `ldmatrix` is one template argument, `Major`.
//
// An instruction on V reads 16 rows of all panels, so it must know how far apart they are. An instruction on K reads 16
// columns of all rows, and these lie in one panel.
//
// ## Who holds what
//
// S comes out in the registers of all 128 threads, 32 numbers each. Each element of our A is its own number, and B is
// the identity. So the result tells where each element went.

// %% tags=["hide-input"]
CELL("The accumulators of a warpgroup") {
  const Floats S = product();
  static const char* hues[] = {"#8ecae6", "#ffb703", "#90be6d", "#f28482", "#cdb4db", "#d4a373", "#84a59d", "#ffd6a5"};
  std::array<int, 64 * 64> thread_of{};
  for (int i = 0; i < 64 * 64; ++i) thread_of[number(S[i])] = i / 32;
  svg::Canvas canvas(560, 340, "S in registers: which lane of warp 0 holds it");
  const auto cell = [&](int row, int column, double y) {
    const double x = 84 + 28 * column;
    const int lane = thread_of[64 * row + column];
    canvas.rect(x, y, 28, 28, std::string("stroke=\"white\" fill=\"") + hues[lane / 4] + "\"");
    canvas.text(x + 14, y + 19, std::to_string(lane), "text-anchor=\"middle\"");
  };
  canvas.text(84, 58, "columns 0 to 15 of 64", grey);
  for (int line = 0; line < 8; ++line) {
    const int row = line < 4 ? line : line + 4;  // rows 0 to 3, 8 to 11
    const double y = 68 + 28 * line + (line < 4 ? 0 : 16);
    canvas.text(16, y + 19, "row " + std::to_string(row), grey);
    for (int column = 0; column < 16; ++column) cell(row, column, y);
  }
  canvas.text(16, 68 + 28 * 4 + 12, "…", grey);
  canvas.text(84, 326, "Colours: the eight groups of four lanes.", grey);
  picture("14-accumulators", canvas.str());

  bool as_said = true, as_operand = true;
  for (int thread = 0; thread < 128; ++thread)
    for (int i = 0; i < 32; ++i) {
      const int warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
      const int row = number(S[thread * 32 + i]) / 64, column = number(S[thread * 32 + i]) % 64;
      as_said = as_said && row == 16 * warp + g + 8 * (i / 2 % 2) && column == i / 4 * 8 + 2 * t + i % 2;
      // Phase 10's A, 16 x 16: register j of a lane holds row g + 8 (j % 2), columns 2t + 8 (j / 2) and the next one.
      const int j = i % 8 / 2;
      as_operand = as_operand && row % 16 == g + 8 * (j % 2) && column % 16 == 2 * t + 8 * (j / 2) + i % 2;
    }
  expect(as_said, "element i of a thread: row 16 w + l / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (l % 4) + i % 2");
  expect(as_operand, "8 elements of S, in their order, are the 4 registers of a left operand of 16 columns");
}

// %% [markdown]
// Four lanes share a row, as with `mma` in phase 10, and a lane has two rows, 8 apart. The last claim is phase 10's
// again: P needs no exchange between lanes on its way from the first product to the second.
//
// ## P from registers, V as it lies
//
// The second product takes its left operand from registers. A thread rounds the 32 numbers that it holds to 16 bits,
// two to a register, and passes four registers to each instruction.
//
// ```{region} steps/products.cuh second-product
// ```
//
// The `if constexpr` lines are for the section after this one.
//
// ```{question}
// V is zero but for V[k][k + 1] = 1: O = P V moves the columns of P by one to the right. What does the product become
// if we tell `wgmma` that V is K-major?
// ```

// %% tags=["hide-input"]
CELL("MN-major, and taken for K-major") {
  const Floats P = product();
  const Halves V = tile([](int k, int d) { return d == (k + 1) % 64; });
  for (const bool right : {true, false}) {
    Floats O(64 * 64);
    const Ran ran = (right ? small.second : small.second_k_major)({}, P, V, O);
    const int by = number(P[1]) - number(O[1]);  // what came to column 1 of row 0
    bool all = ran.findings.empty();
    for (int i = 0; i < 64 * 64; ++i) {
      const int at = number(P[i]), from = at / 64 * 64 + (at + 64 - by) % 64;
      all = all && number(O[i]) == from;
    }
    std::printf("V as %-8s column 1 of O is column %d of P: moved by %d\n",
                right ? "MN-major:" : "K-major:", number(O[1]) % 64, by);
    expect(all && by == (right ? 1 : -1), right ? "as MN-major: all columns move right, no element is lost"
                                                : "as K-major: all columns move left, and nothing is reported");
  }
}

// %% [markdown]
// ```{answer}
// P Vᵀ: the columns move to the left. Both are products that somebody might want, so no check can object. Only a
// comparison with the right result shows the mistake.
// ```
//
// ```{exercise} 14.2
// ```
//
// ## Three words around a product
//
// A product runs beside the threads that issued it, so three calls say what comes before what:
//
// - `wgmma_fence()`: what the threads have done with the registers comes before it. It stands before the first product.
// - `wgmma_commit()`: the products since the last commit become a *group*.
// - `wgmma_wait<n>(…)` waits until all but the last n groups are done. Until then nobody may read or write their
//   registers, and nobody may overwrite the tiles that they read. The arguments are the arrays that the wait is about:
//   the compiler must not move a use of theirs to before it.
//
// ```{question}
// Leave out the fence, or the commit, or wait by `wgmma_wait<1>` for the only group. Which of the three does the
// checked simulator find?
// ```

// %% tags=["hide-input"]
CELL("A word left out") {
  if (!counts()) return;
  const Floats P = product();
  const MachineOptions go_on{.threads = 1, .keep_going = true};
  bool all = true;
  const auto tell = [&](const char* what, phase14::Second kernel) {
    Floats O(64 * 64);
    const Ran ran = kernel(go_on, P, identity, O);
    const std::string text = ran.findings.empty() ? "nothing" : ran.findings[0].text;
    all = all && !ran.findings.empty();
    std::printf("%s:\n  %s\n", what, text.substr(0, text.find('\n')).c_str());
  };
  tell("no wgmma_fence", small.without_fence);
  tell("no wgmma_commit", small.without_commit);
  tell("wgmma_wait<1>", small.wait_too_short);
  expect(all, "each of the three is found");
}

// %% [markdown]
// ```{answer}
// All three. Without a commit the products are in no group, so no wait covers them. `wgmma_wait<1>` leaves the youngest
// group under way, which here is the only one.
// ```
//
// In the museum these are `wgmma_no_fence`, `wgmma_no_commit` and `wgmma_wait_too_short` (tests/simt/museum_wgmma.cu).
// A test on a GPU is no substitute. Without the fence, a kernel like this one gave the right bits in every run on an
// H200. The reason is `ptxas`, the program that turns PTX into machine code. It notices that the fence is missing and
// puts one in. It says so in a message, C7519, which stops no build. For the kernel above nvcc 13.0 does the same.
//
// Where `ptxas` cannot tell what belongs before a product and what after it, it does something worse: it puts a wait
// behind every single product. The kernel is right, and slow. The messages are C7509 to C7515. C7512, too few registers
// for the products under way, is one that later pages meet. Our test `ptxas` fails on all of them.
//
// In the attention kernels both products are functions. `begin_scores` multiplies Q and K from shared memory, and
// `begin_output` takes P from registers:
//
// ```{region} tiles.cuh products
// ```
//
// **What you saw.** An operand in shared memory is named by 64 bits that say how it lies. A product of 64 rows costs
// its threads one instruction for 16 columns. Its result lies so that it can be the next product's left operand.
//
// **To think about.** 1. A tile of Q has 64 rows and 128 columns. By how many bytes does the descriptor move from
// columns 48 … 63 to columns 64 … 79? 2. S of 64 × 128 and O of 64 × 128 are in registers at the same time, and P
// beside them. How many registers of a thread is that? 3. Why may nobody overwrite K before `wgmma_wait`, although all
// threads have long issued the product?
//
// <details><summary>Answers</summary>
//
// 1. From 48 · 2 = 96 bytes to the second panel, which begins 64 · 128 = 8,192 bytes behind the first: by 8,096.
//    `begin_scores` computes both as d / 64 · sizeof Q[0] + d % 64 · 2.
//
// 2. S 64, O 64, P 32: 160 of 255. Each of 128 threads has 64 of a product's 64 · 128 elements, and two of P's fit into
//    a register.
//
// 3. Issuing is not reading. The tensor cores read the tile while the product runs, and only the wait says that it is
//    done.
//
// </details>
