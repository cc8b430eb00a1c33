// %% [markdown]
// # 07 · Causal: which tiles are needed?
//
// **Question.** A program that writes a text word by word knows the words so far and none of those to come: row i may
// see only the keys j ≤ i. Nearly half of all pairs are forbidden. Does the kernel then cost half as much, or as much
// as before and a mask on top?
//
// **Idea.** A tile of S is of one of three kinds. Left of the diagonal each row sees all of it, and no mask is needed.
// On the diagonal some pairs are forbidden, and it is masked element by element. Right of the diagonal no row sees
// anything, and the tile is not even loaded.
//
// **Changed since 06.** A `band` says which keys a row sees; `tile_range` turns it into two tile numbers per Q tile,
// `full` and `seen`; the loop ends at `seen` instead of at the last tile, and masks from `full` on.

// %% tags=["hide-input"]
#include "phases/07-causal/phase.hpp"

#include <cstdio>
#include <cstring>
#include <limits>

#include "phases/02-online-softmax/phase.hpp"
#include "phases/06-4d-grid/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static Example random_pair(std::int64_t Sq, std::int64_t Sk, std::int64_t D) {
  Example e = random_example(Sq, D);
  e.k = random_tensor<float>({1, 1, Sk, D}, 1, 1), e.v = random_tensor<float>({1, 1, Sk, D}, 1, 2);
  return e;
}

// One head in fp64, keys beyond visible(i) masked.
static RowMajor<double> exact_causal(const Example& e, const Problem<float>& p, int h) {
  RowMajor<double> S = scores<double>(e, h);
  for (int i = 0; i < S.rows(); ++i) S.row(i).tail(S.cols() - p.visible(i).end).setConstant(-infinity);
  return exact_softmax(S) * head(e.v, h).cast<double>();
}

static bool same_bits(const Tensor<float>& a, const Tensor<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

enum Fate { Skipped, Full, Masked };
static constexpr const char* colours[] = {"#e4e4e4", "#9ec9e6", "#f2b36b"};  // skipped, full, masked

// What the trace says: which blocks loaded which tiles under which name.
struct Tiling {
  std::string title;
  Problem<float> p;  // for its sizes and its mask
  int Br, Bc, Sq, Sk;
  std::vector<Fate> fate;  // [Q tiles, K/V tiles]
  int rows() const { return (Sq + Br - 1) / Br; }
  int columns() const { return (Sk + Bc - 1) / Bc; }
  Fate& at(std::int64_t i, std::int64_t j) { return fate[i * columns() + j]; }
  TileCounts counts() const {
    const auto of = [&](Fate f) { return std::uint64_t(std::count(fate.begin(), fate.end(), f)); };
    return {of(Full), of(Masked), of(Skipped)};
  }
};

static Tiling empty_tiling(const std::string& title, const Problem<float>& p) {
  Tiling t{title, p, int(p.options.block_q), int(p.options.block_k), int(p.Sq()), int(p.Sk()), {}};
  t.fate.assign(t.rows() * t.columns(), Skipped);
  return t;
}
static Tiling traced(const std::string& title, const Problem<float>& p, const Run& run) {
  Tiling t = empty_tiling(title, p);
  for (const TraceEvent& event : run.trace)
    if (event.name != "barrier") t.at(event.block[0], event.value) = event.name == "full" ? Full : Masked;
  return t;
}
static void legend(svg::Canvas& canvas, double y, const std::vector<std::pair<const char*, const char*>>& entries) {
  double x = 16;
  for (const auto& [name, colour] : entries) {
    canvas.rect(x, y - 10, 12, 12, std::string("fill=\"") + colour + "\"");
    canvas.text(x + 18, y, name);
    x += 46 + 7.0 * double(std::strlen(name));
  }
}

// Tilings side by side, to scale, with the edge of what each row sees.
static std::string draw(const std::string& title, std::vector<Tiling> tilings, double scale) {
  double width = 16, height = 0;
  for (const Tiling& t : tilings) width += std::max(scale * t.Sk, 146.0) + 40, height = std::max(height, scale * t.Sq);
  svg::Canvas canvas(std::max(width, 620.0), height + 142, title);
  double x0 = 16;
  const double y0 = 66;
  for (Tiling& t : tilings) {
    const TileCounts n = t.counts();
    canvas.text(x0, y0 - 10, t.title, "font-weight=\"bold\"");
    const auto x = [&](int key) { return x0 + scale * std::min(key, t.Sk); };
    const auto y = [&](int row) { return y0 + scale * std::min(row, t.Sq); };
    for (int i = 0; i < t.rows(); ++i)
      for (int j = 0, end = 0; j < t.columns(); j = end) {  // neighbours of one kind
        for (end = j + 1; end < t.columns() && t.at(i, end) == t.at(i, j);) ++end;
        canvas.rect(x(j * t.Bc), y(i * t.Br), x(end * t.Bc) - x(j * t.Bc), y((i + 1) * t.Br) - y(i * t.Br),
                    std::string("fill=\"") + colours[t.at(i, j)] + "\"");
      }
    for (int j = 1; j < t.columns(); ++j) canvas.line(x(j * t.Bc), y(0), x(j * t.Bc), y(t.Sq), "stroke=\"white\"");
    for (int i = 1; i < t.rows(); ++i) canvas.line(x(0), y(i * t.Br), x(t.Sk), y(i * t.Br), "stroke=\"white\"");
    std::string edge;
    const auto end_of = [&](int row) { return static_cast<int>(t.p.visible(row).end); };
    const auto step = [&](int row) { return end_of(row + 1) - end_of(row); };
    for (int i = 0; i < t.Sq; ++i)  // a stair for each row where they can be seen, else where the edge bends
      if (scale >= 2 || i == 0 || i + 1 == t.Sq || step(i) != step(i - 1)) {
        edge += svg::num(x(end_of(i))) + "," + svg::num(y(i)) + " ";
        if (scale >= 2 || i + 1 == t.Sq) edge += svg::num(x(end_of(i))) + "," + svg::num(y(i + 1)) + " ";
      }
    canvas.path(edge, "stroke=\"#222\" stroke-width=\"1.5\"");
    canvas.text(x0, y0 + scale * t.Sq + 18, std::to_string(n.full) + " full, " + std::to_string(n.masked) + " masked,");
    canvas.text(x0, y0 + scale * t.Sq + 34, std::to_string(n.skipped) + " skipped");
    x0 += std::max(scale * t.Sk, 146.0) + 40;
  }
  legend(canvas, height + 126,
         {{"full: no mask", colours[Full]},
          {"masked element by element", colours[Masked]},
          {"skipped: never loaded", colours[Skipped]}});
  return canvas.str();
}

CELL("Which tiles a causal kernel loads") {
  std::vector<Tiling> tilings;
  for (const Mask mask : {Mask::none(), Mask::top_left()}) {
    Example e = random_example(80, 16);
    const Problem<float> p = e.problem({.mask = mask, .block_q = 16, .block_k = 16});
    const Run run = phase07::forward(p, Where::Sim, {.trace = "memory"});
    tilings.push_back(traced(mask == Mask::none() ? "no mask: as phase 06" : "causal", p, run));
  }
  picture("07-tiles", draw("S for 80 rows and 80 keys, in tiles of 16 × 16", tilings, 3.2));
  expect(tilings[0].counts() == TileCounts{25, 0, 0} && tilings[1].counts() == TileCounts{10, 5, 10},
         "of 25 tiles a causal kernel loads 15, and masks 5 of them");
}

// %% [markdown]
// ## The code
//
// A row sees an interval of keys, and all rows together see a band of S along the diagonal. This phase has two masks,
// {term}`top-left` and {term}`bottom-right`, which differ where S_q ≠ S_k. Both bound the band on the right only, so
// one number says what row i sees: `end(i)`, one past its last key. For the top-left mask `right` is 0, for the
// bottom-right one S_k − S_q; without a mask it is S_k − 1, and every row sees all keys. This phase does not use
// `left`, which is for sliding windows. Host, kernels and formulas all ask this struct.
//
// ```{region} ../interface/mask.hpp band
// ```
//
// ```{exercise} 07.1
// ```
//
// For a Q tile two numbers say everything. Its first row sees the least, so tiles that it sees whole are seen whole by
// all rows: `full` of them, rounded down. Its last row sees the most, so no row needs a tile beyond that: `seen` of
// them, rounded up.
//
// ```{region} attention.cuh tile-range
// ```
//
// ```{exercise} 07.2
// ```
//
// The loop over K/V tiles ends at `seen`. This line saves half of the work. `trace_mark` tells the simulator what the
// block is about to do; on a GPU it does nothing.
//
// ```{region} attention.cuh tile-loop
// ```
//
// From tile `full` on, scores of keys that the row does not see become −∞. The condition on `tile` is the same for all
// threads of a block, so no thread has to wait while another takes a branch of its own.
//
// ```{region} attention.cuh mask
// ```
//
// What this changed, against phase 06. The other changed lines hand `band` down from the host.
//
// ```{difference} ../06-4d-grid/attention.cuh attention.cuh
// ```

// %% [markdown]
// ## Run it: the sentence, without looking ahead
//
// The encoder that our sentence went through lets each word see all others. How much do its heads look ahead?

// %% tags=["hide-input"]
CELL("The future, taken away") {
  Example e = sentence();
  const Problem<float> p = e.problem({.mask = Mask::top_left()});
  phase07::forward(p, machine);
  double worst = 0;
  std::vector<double> ahead(12, 0);  // share of the weight on later words, mean over the rows
  std::printf("head            ");
  for (int h = 0; h < 12; ++h) {
    const RowMajor<double> P = exact_softmax(scores<double>(e, h));
    for (int i = 0; i < 50; ++i) ahead[h] += P.row(i).tail(49 - i).sum() / 50;
    worst = worse(worst, relative_error(head(e.o, h), exact_causal(e, p, h)));
    std::printf("%5d", h);
  }
  std::printf("\nweight ahead, %% ");
  for (const double share : ahead) std::printf("%5.0f", 100 * share);
  std::printf("\nworst head against fp64 with the mask: %.1e\n", worst);
  expect(ahead[8] > 0.7, "head 8 spends over 70 % of its weight on later words (the next one): it would be lost here");
  expect(worst <= 2e-6, "with the mask: softmax over the keys up to i only");
}

// %% [markdown]
// ## Which tiles
//
// A tile is *full* if all its pairs may be seen, *skipped* if none may, and *masked* otherwise. The cell below counts
// the three kinds in four ways. It looks at every pair. It adds up the kernel's formula over the Q tiles (`run.tiles`).
// It reads the simulator's {term}`trace`, in which the kernel leaves a mark for each tile that it loads. And it counts
// by hand: with square tiles of B rows and B keys, where T = N/B is whole, T(T − 1)/2 are full, T masked and T(T − 1)/2
// skipped.
//
// ```{question}
// N = 256. Which tiles need the mask more often: those of 64 rows and 32 keys, or those of 32 rows and 64 keys?
// ```

// %% tags=["hide-input"]
static Tiling pair_by_pair(const Problem<float>& p) {
  Tiling t = empty_tiling("", p);
  for (int i = 0; i < t.rows(); ++i)
    for (int j = 0; j < t.columns(); ++j) {
      int seen = 0, rows = 0;
      for (int r = i * t.Br; r < std::min((i + 1) * t.Br, t.Sq); ++r, ++rows)
        for (int k = j * t.Bc; k < (j + 1) * t.Bc; ++k) seen += k < p.visible(r).end;
      t.at(i, j) = seen == 0 ? Skipped : seen == rows * t.Bc ? Full : Masked;
    }
  return t;
}

CELL("Full, masked, skipped: four counts of the same tiles") {
  const int N = 256;
  std::vector<Tiling> tilings;
  bool agree = true;
  for (const auto& [Br, Bc] : {std::pair{16, 16}, {64, 32}, {32, 64}}) {
    Example e = random_example(N, 16);
    const Problem<float> p = e.problem({.mask = Mask::top_left(), .block_q = Br, .block_k = Bc});
    const Run run = phase07::forward(p, machine, {.trace = "memory"});
    const std::string name = std::to_string(Br) + " × " + std::to_string(Bc);
    tilings.push_back(traced("tiles " + name, p, run));
    const TileCounts n = run.tiles;
    std::printf("%s: %3d full, %2d masked, %3d skipped\n", name.c_str(), int(n.full), int(n.masked), int(n.skipped));
    agree = agree && tilings.back().fate == pair_by_pair(p).fate && tilings.back().counts() == n;
  }
  const std::uint64_t T = N / 16;
  expect(agree, "trace, pairs and run.tiles agree, tile by tile");
  expect(tilings[0].counts() == TileCounts{T * (T - 1) / 2, T, T * (T - 1) / 2}, "and the formula, for square tiles");
  picture("07-triangle", draw("Causal, N = 256: what the kernel loaded", tilings, 0.8));
}

// %% [markdown]
// ```{answer}
// Neither: 8 are masked in both. With 64 × 32 each of the four Q tiles has two tiles on the diagonal; with 32 × 64 each
// of the eight Q tiles has one.
// ```
//
// ## What it costs
//
// This is the prediction, again for square tiles that divide N. Q and O pass once, and each visited tile brings B rows
// of K and B rows of V. Q Kᵀ is computed for whole tiles, so nearly half of each diagonal tile is wasted. P V is
// computed only over the pairs that are seen. l takes one multiply-add per row and tile.
//
// ```{question}
// The mask hides half of all pairs. Does it halve the bytes? Guess their share for N = 64 and for N = 512, with tiles
// of 16 × 16.
// ```

// %% tags=["hide-input"]
CELL("Bytes and multiply-adds: predicted = counted") {
  if (!was_built(Where::Checked)) return;
  const std::uint64_t D = 16, B = 16;
  bool equal = true;
  double share = 1;
  std::printf("    N       bytes, no mask       causal          FLOP, no mask      causal\n");
  for (std::uint64_t N = 64; N <= 512; N *= 2) {
    const std::uint64_t T = N / B;
    std::uint64_t bytes[2], flops[2];
    for (const int causal : {0, 1}) {
      Example e = random_example(N, D);
      const Options options{.mask = causal ? Mask::top_left() : Mask::none(), .block_q = 16, .block_k = 16};
      const Run run = phase07::forward(e.problem(options), machine);
      const std::uint64_t tiles = causal ? T * (T + 1) / 2 : T * T, pairs = causal ? N * (N + 1) / 2 : N * N;
      bytes[causal] = 4 * (2 * N * D + tiles * 2 * B * D),
      flops[causal] = 2 * D * (tiles * B * B + pairs) + 2 * B * tiles;
      equal = equal && run.ledger.hbm_bytes() == bytes[causal] && run.ledger.flops == flops[causal];
    }
    share = double(bytes[1]) / double(bytes[0]);
    std::printf("%5d %16s %14s (%.2f) %14s %12s (%.2f)\n", int(N), grouped(bytes[0]).c_str(), grouped(bytes[1]).c_str(),
                share, grouped(flops[0]).c_str(), grouped(flops[1]).c_str(), double(flops[1]) / double(flops[0]));
  }
  expect(equal, "predicted = counted, at every N, with and without the mask");
  expect(share > 0.5 && share < 0.54, "about half, and nearer to it the more tiles there are");
}

// %% [markdown]
// ```{answer}
// Not quite: 0.70 at N = 64, 0.53 at N = 512. A tile on the diagonal is loaded whole, and T(T + 1)/2 of T² tiles are
// visited; with more tiles the diagonal counts for less. Q and O pass once either way.
// ```
//
// ## Where is the diagonal when S_q ≠ S_k?
//
// *Top-left*: query 0 sees key 0 (j ≤ i). *Bottom-right*: the last query sees all keys (j ≤ i + S_k − S_q), as it must
// when the keys of earlier words come from a cache ({term}`decoding`). Both are called "causal", so here the caller has
// to name one of them. With more queries than keys, bottom-right leaves the first S_q − S_k queries nothing to see.
// Their O is 0 and their LSE −∞ (phase 02).

// %% tags=["hide-input"]
CELL("Top-left and bottom-right") {
  std::vector<Tiling> tilings;
  bool right = true;
  for (const auto& [Sq, Sk] : {std::pair{96, 160}, {160, 96}})
    for (const Mask causal : {Mask::top_left(), Mask::bottom_right()}) {
      Example e = random_pair(Sq, Sk, 16);
      const Problem<float> p = e.problem_with_lse({.mask = causal, .block_q = 16, .block_k = 16});
      phase02::forward(p);  // for LSE, which the kernel stores from phase 08 on
      Problem<float> without = p;
      without.lse = nullptr;
      const Run run = phase07::forward(without, machine, {.trace = "memory"});
      tilings.push_back(traced(std::to_string(Sq) + " × " + std::to_string(Sk) +
                                   (causal == Mask::top_left() ? ", top-left" : ", bottom-right"),
                               p, run));
      const double error = relative_error(head(e.o, 0), exact_causal(e, p, 0));
      int blind = 0;
      for (int i = 0; i < Sq; ++i)
        if (p.visible(i).end == 0) {
          ++blind;
          right = right && head(e.o, 0).row(i).isZero(0) && e.lse[i] == -infinity;
        }
      std::printf("%-23s %2d rows see nothing; error %.1e\n", tilings.back().title.c_str(), blind, error);
      right = right && error <= 2e-6 && tilings.back().fate == pair_by_pair(p).fate &&
              blind == (causal == Mask::bottom_right() ? std::max(0, Sq - Sk) : 0);
    }
  expect(right, "tiles as the pairs say; rows that see no key are 0, their LSE −inf");
  picture("07-alignment", draw("S_q ≠ S_k: which corner does the diagonal start from?", tilings, 0.9));
}

// %% [markdown]
// ## More keys than rows in a tile
//
// There is another way to leave tiles out. {term}`Triton`'s tutorial on fused attention
// (`python/tutorials/06-fused-attention.py`) has BLOCK_M rows in a Q tile and BLOCK_N keys in a K/V tile. For Q tile
// number `start_m` it divides the loop in two: stage 1 from key 0 to `start_m·BLOCK_M` without a mask, stage 2 from
// there to `(start_m + 1)·BLOCK_M` with one, both in steps of BLOCK_N. If BLOCK_N does not divide `start_m·BLOCK_M`,
// the last tile of stage 1 reaches past it. Keys of the future come in without a mask, and stage 2 takes keys that
// stage 1 has taken a second time. The tutorial tries several pairs and keeps the fastest; 64 × 128 used to be among
// them, where D is 128 or more (commit 003da47). Since [pull request
// 8853](https://github.com/triton-lang/triton/pull/8853) of November 2025, which describes the wrong results, it leaves
// out pairs with BLOCK_M < BLOCK_N under a causal mask. This page's kernel counts in keys and rounds to tiles last, so
// any two sizes will do.

// %% tags=["hide-input"]
// How often row i of such a kernel takes each key.
static std::vector<int> stages_take(int N, int Br, int Bc, int i) {
  std::vector<int> takes(N, 0);
  const int begin = i / Br * Br;
  for (int start = 0; start < begin; start += Bc)
    for (int j = start; j < std::min(start + Bc, N); ++j) ++takes[j];
  for (int start = begin; start < begin + Br; start += Bc)
    for (int j = start; j < std::min(start + Bc, N); ++j) takes[j] += j <= i;
  return takes;
}

CELL("Past the diagonal") {
  const int N = 512;
  Example e = random_example(N, 64);
  const RowMajor<double> weight = scores<double>(e, 0).array().exp(), V = head(e.v, 0).cast<double>();
  const RowMajor<double> want = exact_causal(e, e.problem({.mask = Mask::top_left()}), 0);
  std::printf(" Br × Bc   future pairs   pairs taken twice   error of O\n");
  bool rule = true;
  int future_32_64 = 0, twice_32_64 = 0;
  for (const auto& [Br, Bc] : {std::pair{128, 64}, {32, 32}, {32, 64}, {32, 128}, {64, 128}}) {
    int future = 0, twice = 0;
    RowMajor<double> O(N, 64);
    for (int i = 0; i < N; ++i) {
      const std::vector<int> takes = stages_take(N, Br, Bc, i);
      const Eigen::RowVectorXd p =
          weight.row(i).cwiseProduct(Eigen::Map<const Eigen::RowVectorXi>(&takes[0], N).cast<double>());
      O.row(i) = p * V / p.sum();
      for (int j = 0; j < N; ++j) future += j > i && takes[j] > 0, twice += takes[j] > 1;
    }
    const double error = relative_error(O, want);
    std::printf("%3d × %3d %12d %16d        %.1e\n", Br, Bc, future, twice, error);
    rule = rule && (Br % Bc == 0 ? future == 0 && twice == 0 && error <= 1e-13 : error > 0.1);
    if (Br == 32 && Bc == 64) future_32_64 = future, twice_32_64 = twice;
  }
  expect(rule, "two stages are right where Bc divides Br and wrong by over a tenth elsewhere");
  expect(
      future_32_64 == N / 64 * (32 * 31 / 2) && twice_32_64 == N / 64 * (32 * 33 / 2),
      "32 × 64: every other Q tile lets the upper triangle of its diagonal square through and takes the lower twice");

  const Run run = phase07::forward(e.problem({.mask = Mask::top_left(), .block_q = 32, .block_k = 64}), Where::Sim);
  const double error = relative_error(head(e.o, 0), want);
  std::printf("phase 07, 32 × 64: %d full, %d masked tiles, error %.1e\n", int(run.tiles.full), int(run.tiles.masked),
              error);
  expect(error <= 2e-6, "phase 07 has no such rule");

  svg::Canvas canvas(584, 358, "Tiles 32 × 64, N = 128: which pairs row i takes");
  const char* fills[] = {"#9ec9e6", "#8a3d70", "#d62728"};  // once, twice, future
  const auto panel = [&](double x0, const std::string& title, auto takes_of) {
    canvas.text(x0, 56, title, "font-weight=\"bold\"");
    for (int i = 0; i < 128; ++i) {
      const std::vector<int> takes = takes_of(i);
      const auto kind = [&](int j) { return takes[j] == 0 ? -1 : j > i ? 2 : takes[j] - 1; };
      for (int j = 0, end = 0; j < 128; j = end) {  // runs of one kind
        for (end = j; end < 128 && kind(end) == kind(j);) ++end;
        if (kind(j) >= 0)
          canvas.rect(x0 + 2 * j, 66 + 2 * i, 2 * (end - j), 2, std::string("fill=\"") + fills[kind(j)] + "\"");
      }
    }
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 2; ++j) canvas.rect(x0 + 128 * j, 66 + 64 * i, 128, 64, "fill=\"none\" stroke=\"#777\"");
  };
  panel(16, "two stages, 32 × 64", [](int i) { return stages_take(128, 32, 64, i); });
  panel(312, "phase 07: keys up to i", [](int i) {
    std::vector<int> takes(128, 0);
    std::fill_n(takes.begin(), i + 1, 1);
    return takes;
  });
  legend(canvas, 342, {{"taken once", fills[0]}, {"taken twice", fills[1]}, {"future, let through", fills[2]}});
  picture("07-past-the-diagonal", canvas.str());
}

// %% [markdown]
// ## Two promises
//
// The first promise: without a mask not one bit has changed. The second: a key that a row may not see has no influence
// on the row, whatever it holds. A mask that multiplies by 0 cannot promise that, as 0 · NaN = NaN. Ours selects, and
// does not touch the values of unseen keys.
//
// ```{question}
// Key 40 and its value are NaN, in all 12 heads of 50 rows, and the mask is causal. Tiles have 16 rows and 16 keys. If
// the second promise holds, how many rows of O become NaN?
// ```

// %% tags=["hide-input"]
CELL("The same bits as 06; a NaN in the future") {
  bool same = true;
  for (const auto& [Br, Bc] : {std::pair{16, 16}, {64, 32}, {32, 64}}) {
    Example e = sentence();
    const Problem<float> p = e.problem({.block_q = Br, .block_k = Bc});
    phase06::forward(p, Where::Sim);
    const Tensor<float> before = e.o;
    phase07::forward(p, Where::Sim);
    same = same && same_bits(before, e.o);
  }
  expect(same, "mask off: bit for bit phase 06, three tile sizes");

  const int broken = 40;  // this key and its value are NaN
  Example e = sentence();
  const Problem<float> p = e.problem({.mask = Mask::top_left(), .block_q = 16, .block_k = 16});
  phase07::forward(p, machine);
  const Tensor<float> clean = e.o;
  for (int h = 0; h < 12; ++h)
    for (int d = 0; d < 32; ++d) e.k(0, h, broken, d) = e.v(0, h, broken, d) = std::numeric_limits<float>::quiet_NaN();
  phase07::forward(p, machine);
  int untouched = 0, poisoned = 0;
  for (int h = 0; h < 12; ++h)
    for (int i = 0; i < 50; ++i) {
      untouched += std::memcmp(&e.o(0, h, i, 0), &clean(0, h, i, 0), 32 * sizeof(float)) == 0;
      poisoned += std::isnan(e.o(0, h, i, 0));
    }
  std::printf("key %d is NaN: %d rows untouched, %d rows NaN\n", broken, untouched, poisoned);
  expect(untouched == 12 * broken && poisoned == 12 * (50 - broken),
         "rows before it keep their bits, also those in its own tile; rows from it on see it and say so");
}

// %% [markdown]
// ```{answer}
// 120, those that see the key: the last ten of each head. The rows before them in the same tile compute the score of
// key 40, too, and throw it away. Their bits stay as they were.
// ```
//
// **What you saw.** Causal attention costs half because tiles are left out, not because pairs are masked; the mask is
// needed on the diagonal only. Two integers per Q tile are enough if one counts in keys, and rounds to tiles last.
//
// **To think about.** 1. The last Q tile visits all tiles, the first only one: in which order should a GPU start the
// blocks? 2. A sliding window (i − w < j ≤ i) has a second diagonal: which two further numbers does `TileRange` need
// then? 3. How much of Q Kᵀ is thrown away in diagonal tiles with 64 × 32, and how much with 32 × 64?
//
// <details><summary>Answers</summary>
//
// 1. The longest first. If the last Q tile began last, one block would still walk along all keys when the others have
// finished; short blocks at the end fill the gaps. [Phase 17](../17-persistent/notebook.cpp) gives out its work in this
// order.
//
// 2. The first tile that any row sees, which is the one of the first row's first key, rounded down; and the first tile
// that all rows see, which is the one of the last row's first key, rounded up. Between the two, tiles are masked on the
// left.
//
// 3. 2,016 of 4,096 pairs, nearly half, in both. Two tiles of 64 × 32 side by side cover a square of 64 × 64 on the
// diagonal, and so do two of 32 × 64 one below the other. Of this square, 64 · 65 / 2 = 2,080 pairs are seen.
//
// </details>
