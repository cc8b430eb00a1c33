// %% [markdown]
// # 13 · The instruction diet
//
// **Question.** [The page before](steps.cpp) took instructions out of phase 12's loop, one kind at a time, in one
// setting: bf16, D = 128, whole tiles. What does it take to keep all that for any size, any strides and any scale?
//
// **Idea.** Whatever depends on the setting goes where it costs least: into constants that depend on D, in front of the
// loop, into its first tile, or into a branch that is rarely taken. We take these one by one, try each, and then put
// the kernel together.
//
// **Changed since 12.** Much of the file. The page before gives the reasons, step by step. This one shows the whole
// file.

// %% tags=["hide-input"]
#include "phases/13-instruction-diet/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/12-async-copies/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/counted.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

using namespace flash;

// %% [markdown]
// ## What fits
//
// 32 rows a warp halve the loads of K and V, but a lane needs twice as many registers for S, P and O. A thread may have
// 255. What fits depends on D:

// %% tags=["hide-input"]
CELL("32 rows where they fit") {
  struct Chosen {
    int D, rows;
    bool keeps_q;
  };
  std::vector<Chosen> chosen;
  for (const int D : {64, 128, 256}) {
    Rounded<half> e(random_example(128, D));
    const Run run = phase13::forward(e.problem(), machine);
    const int threads = int(run.kernels.at(0).block[0]), rows = int(run.blocks.Br) / (threads / 32);
    // ldmatrix if Q is loaded once: of Q, of K and V in 128 / 64 tiles, and 16 bytes a lane of O on its way out.
    const int once = threads / 32 * (rows / 16 * D / 16 + 2 * 2 * 4 * D / 16) + 128 * D / 8 / 32;
    chosen.push_back({D, rows, run.counted ? int(run.ledger.shared_read_requests) == once : D == 64});
    std::printf("D = %3d: %d rows in %d threads, %d a warp, %s bytes of shared memory\n", D, int(run.blocks.Br),
                threads, rows, grouped(run.ledger.shared_bytes_peak).c_str());
  }
  static const char* names[] = {"O", "S", "P", "Q, if kept"};
  static const char* colours[] = {"#0072b2", "#56b4e9", "#009e73", "#e69f00"};
  svg::Canvas canvas(760, 286, "Registers that a lane's numbers need, for tiles of 64 keys");
  const double left = 140, each = 1.3;
  double y = 70;
  for (int i = 0; i < 4; ++i) {
    canvas.rect(left + 110 * i, 38, 14, 14, std::string("fill=\"") + colours[i] + "\"");
    canvas.text(left + 110 * i + 20, 50, names[i]);
  }
  bool fits = true;
  for (const Chosen& c : chosen)
    for (const int rows : {16, 32}) {
      const int tiles = rows / 16, numbers[] = {tiles * c.D / 2, tiles * 64 / 2, tiles * 4, tiles * c.D / 4};
      canvas.text(16, y + 16, "D = " + std::to_string(c.D) + ", " + std::to_string(rows) + " rows",
                  rows == c.rows ? "font-weight=\"bold\"" : "fill=\"#666\"");
      double x = left;
      for (int i = 0; i < 4; ++i) {
        canvas.rect(x, y, each * numbers[i], 22,
                    std::string("fill=\"") + colours[i] + (i < 3 || c.keeps_q ? "\"" : "\" fill-opacity=\"0.35\""));
        x += each * numbers[i];
      }
      const int without_q = numbers[0] + numbers[1] + numbers[2];
      if (rows == 32) fits = fits && (without_q < 255) == (c.rows == 32);
      y += 30;
    }
  canvas.line(left + each * 255, 60, left + each * 255, y, "stroke=\"#d55e00\" stroke-width=\"2\"");
  canvas.text(left + each * 255, y + 16, "255", "text-anchor=\"middle\" fill=\"#b34d00\"");
  canvas.text(16, y + 16, "Bold: what phase 13 takes. Weak colour: Q, fetched again.", "fill=\"#666\"");
  picture("13-fits", canvas.str());
  expect(fits, "a warp has 32 rows where O, S and P of 32 rows leave some of the 255 registers: D = 64 and 128");
}

// %% [markdown]
// For D = 64 there is room for Q's fragments, too, so they are loaded once. For D = 128 they would be too many, and are
// fetched again for each tile. For D = 256 a warp keeps 16 rows. A block takes 192 KiB of shared memory there and has
// its multiprocessor to itself; the others share one with a second block.
//
// ```{region} attention.cuh layout
// ```
//
// ## Copies, to the end of K
//
// As on the page before, a thread copies one column of pieces, and all its rows have one swizzle but for a constant.
// What is new is the end of the tensor. Whether the column lies inside is worked out once. The rows' limit matters only
// to the first copies, since the loop runs from the last tile to the first: all others are whole, `kWhole`.
//
// ```{region} copies.cuh load-tile
// ```
//
// The fragments' addresses are those of [step 3](steps.cpp). The four pointers are made anew for each tile, by four
// XORs. Twelve pointers that live through the whole loop cost more: with D = 128 all 255 registers are taken, and what
// is missing is the room to load a fragment ahead of its `mma`.
//
// ## Two loops
//
// A block goes from the last tile to the first, by two loops. The tiles on the diagonal are masked, and so is the one
// in which K ends. What a warp does with a tile is compiled for each loop.
//
// ```{region} attention.cuh block
// ```
// ```{region} attention.cuh mask
// ```
//
// ```{question}
// 300 queries, 420 keys, a bottom-right mask: row i sees the keys up to i + 120. The tiles have 128 rows and 64 keys.
// The three blocks visit 17 tiles. How many of them go through the masked loop?
// ```

// %% tags=["hide-input"]
CELL("Which loop takes which tile") {
  Tensor<half> q({1, 1, 300, 64}), k({1, 1, 420, 64}), o({1, 1, 300, 64});
  q.fill(from_float<half>(0)), k.fill(from_float<half>(0));
  std::vector<float> lse(300);
  const auto keys = view(std::as_const(k));
  const Problem<half> problem{view(std::as_const(q)), keys, keys, view(o), lse.data(), {.mask = Mask::bottom_right()}};
  const Run run = phase13::forward(problem, machine, {.trace = "memory"});
  svg::Canvas canvas(760, 246, "300 × 420, bottom-right: which loop takes which tile, and in which order");
  canvas.raw("<g text-anchor=\"middle\">");
  std::array<int, 2> count{};
  std::array<int, 3> order{};
  for (int tile = 0; tile < 7; ++tile)
    canvas.text(140 + 84 * tile, 54, "keys " + std::to_string(64 * tile) + "…", "fill=\"#666\"");
  for (const TraceEvent& e : run.trace) {
    const bool masked = e.name == "masked";
    if (e.warp != 0 || (!masked && e.name != "full")) continue;
    const int q_tile = 2 - int(e.block[0]);  // the longest first
    ++count[masked];
    canvas.rect(98 + 84 * e.value, 62 + 46 * q_tile, 81, 43,
                std::string("rx=\"3\" fill=\"") + (masked ? "#f2b45c" : "#9ec9e6") + "\"");
    canvas.text(138 + 84 * e.value, 88 + 46 * q_tile, std::to_string(++order.at(q_tile)) + (masked ? " masked" : ""));
  }
  canvas.raw("</g>");
  for (int q_tile = 0; q_tile < 3; ++q_tile)
    canvas.text(16, 88 + 46 * q_tile, "rows " + std::to_string(128 * q_tile) + "…", "fill=\"#666\"");
  canvas.text(16, 226, "From the simulator's trace. Empty: no row of the block sees these keys.", "fill=\"#666\"");
  picture("13-loops", canvas.str());
  for (const int first : {0, 128, 256})
    std::printf("rows %3d to %3d see %3d to %3d keys\n", first, std::min(first + 127, 299), first + 121,
                std::min(first + 127, 299) + 121);
  std::printf("masked %d, full %d, of %d\n", count[1], count[0], count[0] + count[1]);
  expect(count[1] == 8 && count[0] == 9, "8 of 17 tiles are masked: 3, 3 and 2 of the blocks");
  expect(run.tiles.masked == 8 && run.tiles.full == 9, "as the host counts them");
}

// %% [markdown]
// ```{answer}
// 8 of 17. The first row of a block says how many tiles are full: in 121, 249 and 377 keys there are 1, 3 and 5. The
// last row says how many the block visits: 4, 6 and 7.
// ```
//
// A tile that the block needs may still be out of sight for all rows of one warp. Such a warp takes part in the copies
// and the barriers and skips the rest.
//
// ## Any scale
//
// exp2(c · s − c · m) takes its maximum over unscaled scores. That is right for c > 0 only. So c is taken from the
// scale's size, and a negative sign goes to Q, whose sign bits are flipped once, before the loop.
//
// ```{region} attention.cuh scores
// ```
//
// ```{question}
// What is O if the scale is 0? And what would the kernel compute for a masked key, whose score is −∞, if c were 0?
// ```

// %% tags=["hide-input"]
CELL("A negative scale, and a scale of 0") {
  const auto o_of = [](float sign, float scale) {
    Example example = random_example(200, 64);
    example.q *= sign;
    Rounded<half> e(example);
    phase13::forward(e.problem({.scale = scale, .mask = Mask::top_left()}), machine);
    return std::vector<half>(e.o.begin(), e.o.end());
  };
  const auto same = [](const std::vector<half>& a, const std::vector<half>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(half)) == 0;
  };
  expect(same(o_of(1, -0.125f), o_of(-1, 0.125f)), "Q with the scale −1/8 gives the bits of −Q with 1/8");
  expect(same(o_of(1, 0), o_of(0, 0.125f)),
         "Q with the scale 0 gives the bits of Q = 0: each row the mean of what it sees");
  expect(std::isnan(0.0f * -INFINITY) && std::exp2(1e-30f * -INFINITY) == 0, "0 · −∞ is NaN, and 2 to 10⁻³⁰ · −∞ is 0");
}

// %% [markdown]
// ```{answer}
// The mean of the values that a row sees. −∞ · 0 is NaN, so c is never 0: a scale of 0 becomes 10⁻³⁰.
// ```
//
// ## The maximum
//
// As in [step 6](steps.cpp), m follows only if a maximum has outgrown it by more than 2⁸ in P, and a {term}`vote` of
// the warp decides. What is new is when this bound holds. Where m is the exact maximum, the largest P is 1 and has no
// rounding error; otherwise it has one like all other elements of P. With tiles of 16 keys, where the first maximum is
// a poor guess, 2 of the 424 cases of the {term}`contract <the contract>` then missed O's error bar, by 0.6 and 0.7 %.
// And a masked tile may hold few keys that a row sees. So m follows each growth in small tiles and in masked ones, and
// the bound holds from the first whole tile of 64 keys on: that is `slack`.
//
// With tiles of 16 keys, or a bottom-right mask, a row may see no key of a tile that its warp multiplies. Its m stays
// −∞, and −∞ − −∞ would be NaN: 0 is subtracted then.
//
// ```{region} attention.cuh maximum
// ```
//
// ```{question}
// Random scores, all alike, in 8 tiles of 64 keys. With how many of its tiles does a warp of 32 rows rescale O, if each
// new maximum counts? And with the bound of 2⁸?
// ```

// %% tags=["hide-input"]
static double expected_growths(int tiles) {
  double sum = 0;
  for (int j = 1; j <= tiles; ++j) sum += 1 - std::pow(1 - 1.0 / j, 32);
  return sum;
}

CELL("How often a warp rescales") {
  if (!counts()) return;
  const int warps = 16, tiles = 8;  // N = 512
  const Example example = random_example(512, 64);
  Rounded<half> e(example);
  Recording recording;
  const Options blocks{.block_q = 128, .block_k = 64};
  const Ledger l = phase13::forward(e.problem(blocks), Where::Checked, {.recording = &recording}).ledger;

  // Whether any of a warp's rows has a new maximum in the tile that is visited as number `visit`, the last one first.
  std::array<std::array<bool, tiles>, warps> grows{}, rescales{};
  const RowMajor<float> S = scores<float>(example, 0);
  for (int row = 0; row < 512; ++row) {
    float m = -INFINITY;
    for (int visit = 0; visit < tiles; ++visit) {
      const float top = S.row(row).segment(64 * (tiles - 1 - visit), 64).maxCoeff();
      grows[row / 32][visit] = grows[row / 32][visit] || top > m;
      m = std::max(m, top);
    }
  }
  for (const Recording::Step& step : recording.steps)  // "full 3": tile 3
    for (const Recording::Value& value : step.values)
      if (std::string(value.name) == "alpha")
        rescales.at(value.row / 32).at(tiles - 1 - std::stoi(step.label.substr(step.label.rfind(' ') + 1))) = true;

  svg::Canvas canvas(760, 354, "Where a warp rescales: 16 warps, 8 tiles each, random scores");
  const auto draw = [&](double left, const char* title, const auto& yes) {
    int count = 0;
    canvas.text(left, 54, title, "font-weight=\"bold\"");
    std::vector<int> values;
    for (const auto& warp : yes)
      for (const bool cell : warp) values.push_back(cell), count += cell;
    for (const svg::Patch& p : svg::patches(values, tiles))
      canvas.rect(left + 36 * p.column, 64 + 15 * p.row, 36 * p.columns - 1, 15 * p.rows - 1,
                  std::string("fill=\"") + (p.value ? "#d55e00" : "#cfe3f1") + "\"");
    for (int visit = 1; visit < tiles; ++visit)
      canvas.line(left + 36 * visit - 0.5, 64, left + 36 * visit - 0.5, 304, "stroke=\"white\"");
    for (int warp = 1; warp < warps; ++warp)
      canvas.line(left, 63.5 + 15 * warp, left + 288, 63.5 + 15 * warp, "stroke=\"white\"");
    canvas.text(left, 324, std::to_string(count) + " of 128", "font-size=\"14\" font-weight=\"bold\"");
    return count;
  };
  const int without = draw(90, "each new maximum counts", grows), with = draw(440, "the bound of 2⁸", rescales);
  for (const int warp : {0, 15}) canvas.text(16, 76 + 15 * warp, "warp " + std::to_string(warp), "fill=\"#666\"");
  canvas.text(90, 342, "From left to right: the tiles as they are visited. Orange: m and O follow.", "fill=\"#666\"");
  picture("13-vote", canvas.str());
  std::printf("of 128 tiles of a warp: %d, then %d\n", without, with);
  expect(equal((l.exps - 512 * 512) / (32 * 4), warps, "times that a warp rescales") && with == warps, "once per warp");
  for (const int N : {512, 2048, 8192})
    std::printf("N = %4d: without the bound %.1f of %d tiles, by chance\n", N, expected_growths(N / 64), N / 64);
}

// %% [markdown]
// ```{answer}
// With the bound once, in the first tile that the warp sees: 16 warps, 16 rescales. Without it with practically every
// one of the 8 tiles, 8.0 by chance, because one of the 32 rows has nearly always found a new maximum.
// ```
//
// By chance the j-th tile that a row sees holds the largest score so far with probability 1/j. A warp has 32 rows, and
// one is enough: 1 − (1 − 1/j)³². That is nearly certain for the first dozen tiles. With the bound it is different:
// these scores have a standard deviation of 1, in base 2 of 1.44, and no maximum outgrows that of its first 64 keys by
// 8. The exponentials tell: one for each element of P, and four per lane where a warp rescales.
//
// ## Large maxima
//
// m lies inside the multiply-add as c · m, and that product is rounded once more than in phase 12.
//
// ```{question}
// fp16 has 11 bits, so rounding changes P by up to 2⁻¹¹ of itself, or 0.00049. From about which size of c · m on is it
// worse that c · m was rounded to 24 bits?
// ```

// %% tags=["hide-input"]
CELL("What the rounding of c · m does to P") {
  std::printf("     c · m    in one multiply-add    m subtracted first\n");
  const float c = 0.180337f;  // log2 e / 8: D = 64
  std::array<std::array<double, 2>, 4> errors{};
  static constexpr double sizes[] = {8, 512, 4096, 65536};
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    for (int trial = 0; trial < 4000; ++trial) {
      const float m = float(sizes[i] / c) * (1 - 0.0001f * float(trial)), s = m - 0.01f * float(trial % 1000);
      const double exact = std::exp2(double(c) * (double(s) - double(m)));
      const double at_once = std::exp2(double(std::fmaf(s, c, -(m * c)))), before = std::exp2(double((s - m) * c));
      errors[i][0] = std::max(errors[i][0], std::abs(at_once / exact - 1));
      errors[i][1] = std::max(errors[i][1], std::abs(before / exact - 1));
    }
    std::printf("%10.0f %22.6f %21.6f\n", sizes[i], errors[i][0], errors[i][1]);
  }
  expect(errors[1][0] < 0x1p-11 / 40, "up to 512: less than a fortieth of what rounding P to fp16 does");
  expect(errors[3][0] > 2 * 0x1p-11, "at 65,536: more than twice as much");
}

// %% [markdown]
// ```{answer}
// From somewhere between the last two rows: the error is 0.000085 at 4096 and 0.001354 at 65536. If m is subtracted
// first there is no such error at all. The kernel draws the line far below, at 512.
// ```
//
// So there are two ways to compute P, and a bit for the warp says which one is taken: {term}`moderate` maxima, 0 ≤ c ·
// m ≤ 512, take the multiply-add. All others, and rows that have seen no key, have m subtracted first. The same bit
// allows the maximum of three integers, which wants positive numbers.
//
// ```{region} attention.cuh probabilities
// ```
// ```{region} maximum.cuh maximum-of-three
// ```
// ```{region} attention.cuh output-product
// ```
//
// ## The way out
//
// Rows and columns may end before the tile does, and O's rows may begin anywhere. Where they do not begin at multiples
// of 16 bytes, they are stored element by element, in the same order. Four lanes share the same rows, and each of them
// divides, and takes the logarithm, for one row.
//
// ```{region} attention.cuh output
// ```
// ```{region} output.cuh store-rows
// ```
//
// ## The kernel
//
// Now all the pieces are there. The members of a warp say what a lane holds, for one or two row tiles. Where the warp's
// rows begin is a function: nvcc takes such a struct apart only once the loops over its arrays are unrolled, and with
// four numbers and four pointers more in it, D = 128 had 636 bytes of spills.
//
// ```{region} attention.cuh warp
// ```
//
// What a warp does with a tile has five steps: S, the mask, the vote, what is subtracted, and P with the product.
//
// ```{region} attention.cuh multiply
// ```
//
// Where a mask hides keys, some Q tiles take longer than others, and these start first.
//
// ```{region} attention.cuh grid
// ```
// ```{region} attention.cuh launch
// ```
//
// ## For a backward pass, or in fp32
//
// A backward pass like phase 09's needs more ([docs/backward.md](../../docs/backward.md)): m and l of each row, where l
// sums P as P·V does, rounded; and what rounding to 16 bits takes from O, stored the same way as O. That is a kernel of
// its own, `kKeeps`, so that nobody else pays for the second sum. LSE is the same in both, from the sum of P before it
// is rounded. Partial results that are still to be added up need O in fp32: either kernel stores it so.
//
// ```{region} training.cuh outputs
// ```
// ```{region} training.cuh training
// ```
// ```{region} output.cuh store-output
// ```
//
// All of it, against the last step of the page before:
//
// ```{difference} steps/8-beside.cuh attention.cuh
// ```

// %% [markdown]
// ## Run it: the same attention
//
// The bits differ from phase 12's: the scale is applied elsewhere, m may be another, and 1/l is rounded once more. The
// errors must not.

// %% tags=["hide-input"]
static double worst_lse(const Rounded<half>& run) {
  const Example e = run.widened();
  double worst = 0;
  const std::int64_t H = view(e.q).H(), N = view(e.q).S();
  for (std::int64_t h = 0; h < H; ++h) {
    const RowMajor<double> S = scores<double>(e, h);
    for (std::int64_t i = 0; i < N; ++i) {
      const double m = S.row(i).maxCoeff();
      worst = worse(worst, std::abs(e.lse[h * N + i] - m - std::log((S.row(i).array() - m).exp().sum())));
    }
  }
  return worst;
}

CELL("Right, and the same bits whenever copies arrive") {
  Rounded<half> before(sentence()), now(sentence());
  phase12::forward(before.problem(), Where::Sim);
  phase13::forward(now.problem(), machine);
  const double error = worst_head(now.widened()), old = worst_head(before.widened());
  std::printf("worst head against fp64: phase 13 %.1e, phase 12 %.1e\n", error, old);
  std::printf("worst LSE against fp64:  phase 13 %.1e, phase 12 %.1e\n", worst_lse(now), worst_lse(before));
  expect(error <= 1.05 * old, "O is as precise as phase 12's");
  expect(worst_lse(now) <= 2 * worst_lse(before), "LSE is off by no more than twice as much");

  bool same = true;
  for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
    for (const Order order : {Order::forward, Order::random}) {
      Rounded<half> again(sentence());
      phase13::forward(again.problem(), machine, {.order = order, .seed = 13, .completion = completion});
      same = same && std::memcmp(again.o.data(), now.o.data(), now.o.size() * sizeof(half)) == 0;
    }
  expect(same, "copies late, eager or random, threads in two orders: the same bits");
}

// %% [markdown]
// ## Predicted = counted
//
// The simulator does not count instructions of every kind, but it counts some of those that were to be saved. Blocks
// have 128 rows here and 64 in phase 12, so K and V are read half as often from HBM, too.
//
// ```{question}
// A warp has 32 rows where phase 12 has 16, and the same products to compute. What becomes of the 33,280 wavefronts?
// ```

// %% tags=["hide-input"]
CELL("What is saved") {
  if (!counts()) return;
  const std::uint64_t N = 512, D = 64, Tr = N / 128, pairs = Tr * (N / 64), once = N * D * 2;
  Rounded<half> e(random_example(N, D));
  Ledger before = phase12::forward(e.problem({.block_q = 64, .block_k = 64}), Where::Checked).ledger;
  Ledger now = phase13::forward(e.problem({.block_q = 128, .block_k = 64}), Where::Checked).ledger;
  // By ldmatrix, all four warps: K and V with each tile, Q once; then O, 16 bytes a lane, out of Q's rows.
  const std::uint64_t kv = 4 * (4 * D / 16 + 4 * D / 16), q = 4 * 2 * D / 16, out = 128 * D * 2 / 16 / 32;
  const std::uint64_t into_q = 4 * 2 * 2 * D / 8;  // O's pairs of elements into Q's rows
  bool same = equal(now.shared_read_requests, pairs * kv + Tr * (q + out), "loads of shared memory");
  same &= equal(now.shared_write_requests, Tr * into_q, "stores to it");
  same &= equal(now.shared_wavefronts, 4 * (pairs * kv + Tr * (q + out)) + Tr * into_q, "wavefronts");
  same &= equal(now.bank_conflicts(), 0, "of these, conflicts");
  same &= equal(now.array("K").read_bytes + now.array("V").read_bytes, 2 * Tr * once, "HBM bytes of K and V");
  same &= equal(now.array("O").write_requests, Tr * 128 * D * 2 / 16 / 32, "stores of O, 16 bytes a lane");
  expect(same, "predicted = counted");

  std::printf("\n                      phase 12    phase 13\n");
  const auto line = [](const char* what, std::uint64_t a, std::uint64_t b) {
    std::printf("%-18s %11s %11s\n", what, grouped(a).c_str(), grouped(b).c_str());
  };
  line("FLOP of mma", before.tensor_flops, now.tensor_flops);
  line("wavefronts", before.shared_wavefronts, now.shared_wavefronts);
  line("barriers", before.barriers, now.barriers);
  line("HBM bytes", before.hbm_bytes(), now.hbm_bytes());
  line("stores of O", before.array("O").write_requests, now.array("O").write_requests);
  expect(before.tensor_flops == now.tensor_flops, "the same products");
  expect(2 * now.shared_wavefronts < 1.1 * before.shared_wavefronts, "about half the wavefronts");
}

// %% [markdown]
// ```{answer}
// 17,920, somewhat more than half. A fragment of K or V is loaded for 32 rows now, where it was loaded for 16. O's way
// out through shared memory adds some that phase 12 did not need; in return O takes an eighth of the stores.
// ```
//
// With a causal mask, Q tiles of 128 rows reach further beyond the diagonal than those of 64. The warps that see
// nothing there skip it, so that no more is multiplied than with 64 rows:

// %% tags=["hide-input"]
CELL("What a warp does not see") {
  if (!counts()) return;
  Rounded<half> e(random_example(512, 64));
  const Options causal{.mask = Mask::top_left()};
  const Ledger before = phase12::forward(e.problem(causal), Where::Checked).ledger;
  const Run now = phase13::forward(e.problem(causal), Where::Checked);
  const std::uint64_t seen = now.tiles.full + now.tiles.masked, each = 4 * 128 * 64 * 64;
  std::printf("FLOP of mma: phase 12 %s, phase 13 %s; all warps in each tile would be %s\n",
              grouped(before.tensor_flops).c_str(), grouped(now.ledger.tensor_flops).c_str(),
              grouped(seen * each).c_str());
  expect(now.ledger.tensor_flops == before.tensor_flops && now.ledger.tensor_flops < seen * each,
         "as many as with tiles of 64 rows");
}

// %% [markdown]
// **What you saw.** A kernel that was tuned for one setting becomes one for all, and its loop stays as it was. What is
// added stands before the loop, after it, and in branches that whole tiles do not take.
//
// **Measured** on an H200: the steps one by one at the end of [the page before](steps.cpp), the kernel beside the
// libraries at [the end of part 3](../../docs/book/part-3.md).
//
// **Write it yourself.** The capstone of part 3 is a kernel of your own with both products on tensor
// cores.
//
// ```{exercise} 13.3
// ```
//
// **To think about.** 1. Which of the changes would have helped phase 08? 2. Let scores rise from key to key. How often
// does a warp rescale then? And if they fall? Remember which tile comes first. 3. By how much may m lag behind before
// fp16 overflows in P, and before l does? 4. What are m, l, O and LSE of a row that sees no key?
//
// <details><summary>Answers</summary>
//
// 1. Hardly any. There a thread does 2 D multiply-adds for each score, 128 for D = 64, and the diet takes one or two
// instructions away beside them. It pays where an instruction does 2,048 multiply-adds at once.
//
// 2. Rising: once, since the last tile comes first and holds the largest scores. Falling: whenever they have gone more
// than 8 in base 2 beyond m. Counted with 512 keys: by 0.25 a key that is each of the 8 tiles, by 0.05 every other one.
//
// 3. fp16 ends at 65,504, so P may be just below 2¹⁶. l is fp32 and ends at 2¹²⁸: with 8,192 keys, 2¹³, it has room up
// to a lag of 115. The bound of 8 is far from both.
//
// 4. −∞, 0, 0 and −∞. Where l is 0 the row is multiplied by 0 instead of 1 / l, and LSE is −∞ + −∞.
//
// </details>
