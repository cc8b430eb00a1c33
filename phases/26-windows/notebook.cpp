// %% [markdown]
// # 26 · Sliding windows
//
// **Question.** In a long text each token sees all tokens before it, and the work goes by N². Many models let most of
// their layers see only the last 512 or 4096 tokens: a *sliding window*. Then the work should go by N times the
// window. What must a kernel do for that?
//
// **Idea.** A causal mask made K/V tiles right of the diagonal disappear: nobody loads them (phase 07). A window has an
// edge on the left, too. What is right for the one edge is right for the other: tiles beyond it are *skipped*, tiles
// that it cuts are masked, and all tiles between are whole.
//
// **Changed since 25.** The variant says where a row's keys begin. The kernels of phases 13, 18, 19, 20 and 24 get a
// first tile and a third loop, for the tiles that are cut on the left. In phase 24 another K/V tile begins the sum dQ.

// %% tags=["hide-input"]
#include "phases/26-windows/phase.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "phases/arrays/tensor.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/counted.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;

// A head, and room for O and for gradients.
template <class T>
struct Lesson {
  Tensor<T> q, k, v, o, dout, dq, dk, dv;
  std::vector<float> m, l;

  Lesson(std::int64_t N, std::int64_t D, std::int64_t H = 1)
      : q(random_tensor<T>({1, H, N, D}, 26, 0)),
        k(random_tensor<T>({1, H, N, D}, 26, 1)),
        v(random_tensor<T>({1, H, N, D}, 26, 2)),
        o(make_tensor<T>({1, H, N, D})),
        dout(random_tensor<T>({1, H, N, D}, 26, 3)),
        dq(make_tensor<T>({1, H, N, D})),
        dk(make_tensor<T>({1, H, N, D})),
        dv(make_tensor<T>({1, H, N, D})),
        m(static_cast<std::size_t>(H * N)),
        l(m) {}
  Problem<T> problem(const Options& options = {}) {
    return {view(std::as_const(q)), view(std::as_const(k)), view(std::as_const(v)), view(o), nullptr, options};
  }
  // The forward pass for training, then dQ, dK and dV.
  Run gradients(const Phase& phase, Where where, const Options& options, const MachineOptions& on = {}) {
    Kept kept;
    kept.m = m.data(), kept.l = l.data();
    forward_training(phase, problem(options), kept);
    const Problem<T> p = problem(options);
    return backward(phase,
                    GradientProblem<T>{p.q, p.k, p.v, p.o, kept, view(std::as_const(dout)), view(dq), view(dk),
                                       view(dv), nullptr, nullptr, options},
                    where, on, options.mode);
  }
};

template <class T>
static bool same_bits(const Tensor<T>& a, const Tensor<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// %% [markdown]
// ## Two edges
//
// Row i sees the keys i − left to i + right, both included, as far as they exist. A causal window has right = 0. One of
// the two may be missing, and either may be negative: left = −5 begins five keys behind the diagonal. Where Sq ≠ Sk it
// matters where the diagonal is, and it has the two names that it had in phase 07, {term}`top-left` and
// {term}`bottom-right`.
//
// A Q tile's first row sees the farthest to the left, its last row the farthest to the right. So two rows tell which
// tiles are needed, and two tell which of them are whole:
//
// | tile … | is | since |
// |---|---|---|
// | before the first row's first key | skipped, on the left | nobody sees it |
// | with a key before the last row's first key | cut on the left | the last row does not see it whole |
// | with a key behind the first row's last key | cut on the right | the first row does not see it whole |
// | behind the last row's last key | skipped, on the right | nobody sees it |
//
// All others are whole. In a narrow window a tile can be cut on both sides. In phases 18 and 19:
//
// ```{region} windowed.cuh window-keys
// ```
//
// ```{exercise} 26.1
// ```
//
// What phase 26m's kernel really loads, as it was traced: a tile for each mark that it leaves. The picture has 256 rows
// and keys, in tiles of 32 rows and 16 keys.

// %% tags=["hide-input"]
enum Fate { Skipped, Full, Left, Right, Both };
static constexpr const char* colours[] = {"#e4e4e4", "#9ec9e6", "#7fc8a9", "#f2b36b", "#d9b3d0"};

// Of each pair of tiles what the kernel did with it, and on which side the mask cuts what it masked.
static std::vector<Fate> traced(Lesson<half>& lesson, const Options& options, Run& run) {
  const Problem<half> p = lesson.problem(options);
  run = phase26m::forward(p, Where::Sim, {.threads = 1, .trace = "memory"});
  const Band<std::int64_t> band = options.mask.band(p.Sq(), p.Sk());
  const std::int64_t Br = options.block_q, Bc = options.block_k, rows = p.Sq() / Br, columns = p.Sk() / Bc;
  std::vector<Fate> fate(std::size_t(rows * columns), Skipped);
  for (const TraceEvent& event : run.trace) {
    if (event.name != "full" && event.name != "masked") continue;
    const std::int64_t i = band.cuts_right() ? rows - 1 - event.block[0] : event.block[0], j = event.value;
    const bool left = band.begin(i * Br + Br - 1) > j * Bc, right = band.end(i * Br) < (j + 1) * Bc;
    fate[std::size_t(i * columns + j)] = event.name == "full" ? Full : left && right ? Both : left ? Left : Right;
  }
  return fate;
}

CELL("Which tiles a window loads") {
  constexpr int N = 256, Br = 32, Bc = 16, rows = N / Br, columns = N / Bc;
  const std::pair<const char*, Mask> windows[] = {{"causal", Mask::top_left()},
                                                  {"64 keys before, 0 behind", {64, 0}},
                                                  {"40 before, 24 behind", {40, 24}},
                                                  {"8 before, 0 behind", {8, 0}}};
  svg::Canvas canvas(760, 292, "Tiles that are loaded: without a bound on the left, and with one");
  bool agree = true;
  double x0 = 16;
  std::printf("%-26s  whole   cut left  right  both   skipped left  right\n", "keys");
  for (const auto& [title, mask] : windows) {
    Lesson<half> lesson(N, 64);
    Run run;
    const std::vector<Fate> fate = traced(lesson, {.mask = mask, .block_q = Br, .block_k = Bc}, run);
    canvas.text(x0, 50, title, "font-weight=\"bold\"");
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j)
        canvas.rect(x0 + 10.5 * j, 62 + 21 * i, 9.5, 20,
                    std::string("fill=\"") + colours[fate[std::size_t(i * columns + j)]] + "\"");
    const auto of = [&](Fate f) { return std::uint64_t(std::count(fate.begin(), fate.end(), f)); };
    const TileCounts n = run.tiles;
    std::printf("%-26s  %5d   %8d  %5d  %4d   %12d  %5d\n", title, int(n.full), int(n.masked_left),
                int(n.masked_right()), int(n.masked_both), int(n.skipped_left), int(n.skipped_right()));
    agree = agree && of(Full) == n.full && of(Left) + of(Both) == n.masked_left && of(Both) == n.masked_both &&
            of(Right) + of(Both) == n.masked_right() && of(Skipped) == n.skipped;
    canvas.text(x0, 252, std::to_string(of(Full)) + " whole, " + std::to_string(n.masked) + " cut,");
    canvas.text(x0, 268, std::to_string(of(Skipped)) + " skipped");
    x0 += 186;
  }
  double x = 16;
  const std::pair<const char*, Fate> legend[] = {{"whole", Full},
                                                 {"cut on the left", Left},
                                                 {"on the right", Right},
                                                 {"on both sides", Both},
                                                 {"skipped", Skipped}};
  for (const auto& [name, fate] : legend) {
    canvas.rect(x, 276, 12, 12, std::string("fill=\"") + colours[fate] + "\"");
    canvas.text(x + 18, 286, name);
    x += 46 + 7.0 * double(std::strlen(name));
  }
  picture("26-tiles", canvas.str());
  expect(agree, "the trace and run.tiles agree in all kinds, on either side");
}

// %% [markdown]
// ## Three loops
//
// A kernel goes through the tiles of a Q tile from the last to the first (phase 13). First come those that are cut on
// the right, then whole ones. With a window those that are cut on the left come last, in a loop of their own:
//
// ```{region} ../13-instruction-diet/attention.cuh block
// ```
//
// `Variant::windows` is known when the kernel is compiled. In the plain variant and in that of phase 25 it is false,
// and the third loop does not exist: for Hopper the machine code of these kernels is what it was.
//
// Within a cut tile scores become −∞ by selection, on the left as on the right:
//
// ```{region} windowed.cuh hide-left
// ```
//
// In phase 19 each warpgroup has 64 rows of its own, and other tiles than its neighbours. It had to pass tiles on the
// right that only later rows see; now it passes some on the left, too.
//
// The variant itself is small. TMA is told nothing of the keys before the first one that some row sees, so that what is
// there, NaN or not, counts as zeros. It counts from that key, and `keys` says so:
//
// ```{region} windowed.cuh windowed
// ```
//
// ## What a visible pair costs
//
// A tile that is cut costs as much as a whole one. A window of w keys costs each Q tile of Br rows about w + Br keys in
// place of w, and up to a tile more where the window does not begin with one.
//
// ```{question}
// Q tiles of 128 rows, K/V tiles of 128 keys, far from the beginning. Row i sees the keys i − 128 to i. How many tiles
// does a Q tile load, and how many times as many pairs are multiplied as are seen? And with i − 1024 to i?
// ```

// %% tags=["hide-input"]
CELL("What a visible pair costs") {
  if (!counts()) return;
  constexpr std::int64_t N = 1920, D = 64, Br = 192, Bc = 128;
  bool same = true, less = true;
  double before = 1e9;
  Lesson<half> lesson(N, D);
  std::printf("keys before   tiles of a Q tile, at most   pairs seen   multiplied for each\n");
  for (const std::int64_t left : {64, 128, 512, 1024, 1919}) {
    const Mask mask{left, 0};
    const Problem<half> p = lesson.problem({.mask = mask, .block_q = Br, .block_k = Bc});
    const Run run = phase26::forward(p, machine);
    std::uint64_t pairs = 0, tiles = 0;
    for (std::int64_t i = 0; i < N; ++i) pairs += std::uint64_t(p.visible(i).size());
    // Each warpgroup multiplies the tiles that its 64 rows see.
    for (std::int64_t i = 0; i < N; i += 64) {
      const KeyRange<std::int64_t> seen = mask.band(N, N).seen(i, std::min(i + 64, N) - 1);
      tiles += std::uint64_t((seen.end + Bc - 1) / Bc - seen.begin / Bc);
    }
    const std::int64_t most = (left + 64 + Bc - 2) / Bc + 1;
    const double each = double(tiles * 64 * Bc) / double(pairs);
    std::printf("%11d   %26d   %10s   %.2f\n", int(left), int(most), grouped(pairs).c_str(), each);
    same &= equal(run.ledger.tensor_flops, tiles * 64 * Bc * 4 * D, "  floating-point operations");
    const HbmBytes bytes = phase26::features.hbm_bytes(p, run.blocks);
    Ledger l = run.ledger;
    same &= equal(l.hbm_read_bytes(), bytes.read, "  bytes read, by the formula");
    less = less && each < before, before = each;
  }
  std::printf("128 rows, tiles of 128 keys\n");
  for (const int left : {128, 1024}) {
    const int tiles = left / 128 + 1;
    std::printf("%11d   %26d tiles: %d keys for %d, %.2f\n", left, tiles, tiles * 128, left + 1,
                double(tiles * 128) / double(left + 1));
  }
  expect(same, "predicted = counted");
  expect(less, "the wider the window, the less is multiplied in vain");
}

// %% [markdown]
// ```{answer}
// Two tiles hold 128 keys left of the Q tile's first key and its own 128: 2 · 128 keys for 129 that each row sees, 1.98
// times as many. With 1024: nine tiles, 1152 keys for 1025, 1.12 times as many.
// ```
//
// So no kernel with these tiles can have more than 1025/1152 = 0.89 of the rate that whole tiles have, if the rate goes
// by visible pairs. Smaller tiles would waste less at the edges, and be slower everywhere. The table is of D = 64: a
// warpgroup multiplies only the tiles that its own 64 rows see there.
//
// ## Who is drawn first
//
// With a causal mask the last rows see the most keys, and blocks draw their Q tiles first (phase 13). With a causal
// window all Q tiles cost the same, but for the first few, which see fewer keys. They are the last that are drawn, as
// before, and fill the gaps in the end. Without a bound on the right the first rows see the most; there blocks draw
// head by head from the first row on, as without a mask.
//
// Heads are drawn in sections, as many as have K and V in the L2 cache. With a window what must stay there is less: of
// each head the keys that the Q tiles at work see. So a section has more heads, and its short Q tiles come later:
//
// ```{region} ../17-persistent/schedule.cuh grid
// ```
//
// ## What is outside
//
// No tile outside of the window is read; that is what the bytes say. A NaN in there reaches nobody. And within a tile
// that is cut? Its score is replaced, and the row's P is 0. But tensor cores multiply V by that 0, and 0 · NaN is NaN.
//
// ```{question}
// N = 700, row i sees the keys i − 100 to i + 20. V's row 333 is NaN. How many rows of O must be NaN? Which others are,
// with Q tiles of 128 rows?
// ```

// %% tags=["hide-input"]
CELL("A NaN in V") {
  constexpr std::int64_t N = 700, D = 128, key = 333;
  bool as_told = true;
  for (const Phase* phase : {&phase26::phase, &phase26m::phase}) {
    const Options options{.mask = Mask{100, 20}};
    Lesson<half> clean(N, D), with_nan(N, D);
    for (std::int64_t d = 0; d < D; ++d) with_nan.v(0, 0, key, d) = from_float<half>(NAN);
    const Run run = forward(*phase, clean.problem(options));
    forward(*phase, with_nan.problem(options));
    const auto [Br, Bc] = run.blocks;
    const Problem<half> p = clean.problem(options);
    const Band<std::int64_t> band = options.mask.band(N, N);
    int seeing = 0, beside = 0, same = 0;
    for (std::int64_t i = 0; i < N; ++i) {
      const half *o = clean.o.data() + i * D, *other = with_nan.o.data() + i * D;
      const bool nan = std::isnan(to_float(other[0])), sees = p.visible(i).contains(key);
      const KeyRange<std::int64_t> seen = band.seen(i / Br * Br, std::min(i / Br * Br + Br, N) - 1);
      const bool loaded = seen.begin < (key / Bc + 1) * Bc && key / Bc * Bc < seen.end;
      const bool equal = std::memcmp(o, other, D * sizeof(half)) == 0;
      as_told = as_told && (sees ? nan : loaded || equal);
      sees ? ++seeing : nan ? ++beside : ++same;
    }
    std::printf("%-12s tiles of %3d × %3d: %3d rows see the key, %3d more are NaN, %3d are as before\n", phase->name,
                int(Br), int(Bc), seeing, beside, same);
    as_told = as_told && seeing == 121;
  }
  expect(as_told, "who does not load the tile has the bits that it had");
}

// %% [markdown]
// ```{answer}
// 121 rows see it. The other rows of their Q tiles load the same tile, and multiply its row by 0. A kernel without
// tensor cores has no such rows; one with them says so (`Features::tensor_cores`).
// ```
//
// ## Without a window
//
// A window that leaves nothing out is none. Then first tile and third loop do nothing, and all bits are phase 25's:

// %% tags=["hide-input"]
CELL("Windows that leave nothing out") {
  constexpr std::int64_t N = 300, D = 64;
  bool same = true;
  for (const bool on_hopper : {true, false}) {
    const Phase &now = on_hopper ? phase26::phase : phase26m::phase,
                &before = on_hopper ? phase25::phase : phase25m::phase;
    const std::pair<Mask, Mask> masks[] = {{Mask::none(), Mask::none()}, {Mask::top_left(), {N, 0}}};
    for (const auto& [mask, window] : masks) {
      Lesson<bfloat16> a(N, D), b(N, D);
      a.gradients(before, Where::Sim, {.mask = mask}), b.gradients(now, Where::Sim, {.mask = window});
      const bool equal = same_bits(a.o, b.o) && same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv);
      std::printf("%-12s beside %-17s %-9s %s\n", now.name, before.name, name(mask),
                  equal ? "same bits" : "other bits");
      same = same && equal;
    }
  }
  expect(same, "O, dQ, dK and dV have the bits of the phase before");
}

// %% [markdown]
// ## Gradients: whose share is the first?
//
// In the backward pass a block has a K/V tile, and Q tiles stream by: those whose rows see some of its keys. With a
// causal mask they go on to the end; with a window they end with the last row that sees the tile's last key. Of columns
// now, in a product whose rows are keys, some are hidden on either side:
//
// ```{region} windowed.cuh hide-queries
// ```
//
// On Hopper dQ of a Q tile goes from block to block (phase 24). The first K/V tile stores its share, others add theirs,
// in order, and the last one rounds the sum. The first was K/V tile 0, and a tile's number was the number of its share.
// With a window a Q tile's first K/V tile is another one. The shares count from there:
//
// ```{region} attention.cuh share
// ```
//
// ```{exercise} 26.2
// ```
//
// Blocks begin with the last Q tile that sees their keys. The one that has the next K/V tile begins with the same Q
// tile or a later one. So neighbours work on a Q tile one behind the other, and each finds the share before its own.
//
// ```{question}
// N = 512, D = 64, tiles of 128 rows and 128 keys, row i sees i − 128 to i. Each Q tile but the first has two shares.
// How many bytes of dQ_sum are written, and how many are read?
// ```

// %% tags=["hide-input"]
CELL("Shares of dQ") {
  if (!counts()) return;
  constexpr std::int64_t N = 512, D = 64, Br = 128, Bc = 128;
  bool same = true;
  for (const std::int64_t left : {128, 200, 512}) {
    Lesson<half> lesson(N, D);
    const Options options{.mask = Mask{left, 0}, .block_q = Br, .block_k = Bc};
    Kept kept;
    kept.m = lesson.m.data(), kept.l = lesson.l.data();
    forward_training(phase26::phase, lesson.problem({.mask = options.mask}), kept);
    const Problem<half> p = lesson.problem(options);
    const Run run =
        backward(phase26::phase,
                 GradientProblem<half>{p.q, p.k, p.v, p.o, kept, view(std::as_const(lesson.dout)), view(lesson.dq),
                                       view(lesson.dk), view(lesson.dv), nullptr, nullptr, options},
                 machine, {}, BackwardMode::Deterministic);
    Ledger l = run.ledger;
    std::uint64_t several = 0, shares = 0;
    for (std::int64_t i = 0; i < N; i += Br) {
      const KeyRange<std::int64_t> seen = options.mask.band(N, N).seen(i, i + Br - 1);
      const std::int64_t tiles = (seen.end + Bc - 1) / Bc - seen.begin / Bc;
      several += tiles > 1, shares += std::uint64_t(tiles);
    }
    std::printf("%d keys before: %d shares of 4 Q tiles\n", int(left), int(shares));
    same &= equal(l.array("dQ_sum").written_bytes, several * Br * D * 4, "  bytes of dQ_sum stored");
    same &= equal(l.array("dQ_sum").read_bytes, several * Br * D * 4, "  bytes of dQ_sum read");
  }
  expect(same, "predicted = counted");

  bool repeated = true;
  Lesson<half> first(N, D);
  first.gradients(phase26::phase, Where::Sim, {.mask = Mask{200, 0}});
  for (const std::uint64_t seed : {1, 2, 3}) {
    Lesson<half> again(N, D);
    again.gradients(phase26::phase, Where::Sim, {.mask = Mask{200, 0}}, {.order = Order::random, .seed = seed});
    repeated = repeated && same_bits(first.dq, again.dq);
  }
  expect(repeated, "dQ has the same bits in whatever order blocks come");
}

// %% [markdown]
// ```{answer}
// Three Q tiles have a first share that is not the last: 3 · 128 · 64 numbers of 4 bytes are stored, 98,304 bytes, and
// as many read by those that round. With a bound of 200 keys some have three shares; the one between adds, which is
// neither reading nor writing.
// ```
//
// Q tiles that see no key at all get a dQ of zeros from the kernel in front; K/V tiles that no row sees get zeros for
// dK and dV from their block, which finds no Q tile.
//
// Phase 26m's kernel of dQ goes through the K/V tiles of a Q tile as the forward pass does, from the window's first one
// on. A mean of K, which corrects dQ (phase 20), is taken of the keys that some row sees.
//
// **What you saw.** A window's left edge is treated as its right edge. Two rows of a Q tile tell which tiles are
// needed, and two which of them are whole; a third loop does those that are cut on the left. Cost goes by the window,
// and an edge costs a tile's share: the narrower the window, the more. Who does not load a tile does not hear of it. In
// the backward pass the sum of dQ begins with the first K/V tile that a Q tile sees.
//
// **To think about.** 1. All Q tiles far from the beginning cost the same. Why is it still right to draw the last rows
// first? 2. With tiles of 128 × 128 a window of 100 keys loads two tiles for each Q tile. How many would it be with Q
// tiles of 64 rows, and what would that cost? 3. Row i sees the keys from i + 1 on, left = −1. Which row sees nothing?
//
// <details><summary>Answers</summary>
//
// 1. The first rows see fewer keys, since there are none before key 0. Drawn last they are the short ones in the end.
//
// 2. Two as well: the 164 keys that 64 rows see touch two tiles. Each Q tile would load as much for half of the rows,
//    so K and V would be read twice as often.
//
// 3. The last one, in a square problem. Its O and dQ are 0, its LSE is −∞. And no row sees key 0, whose dK and dV are
//    0.
//
// </details>
//
// ## The rest of the code
//
// ```{region} windowed.cuh window-tiles
// ```
//
// ```{region} windowed.cuh window-queries
// ```
//
// ```{region} attention.cuh window-query-range
// ```
//
// ```{region} attention.cuh warpgroup
// ```
//
// ```{region} attention.cuh launch
// ```
//
// ```{region} mma.cuh load-seen
// ```
//
// ```{region} ../20-backward-tensor-cores/rows_backward.cuh rows-window
// ```
//
// ```{region} mma.cuh rows-window
// ```
//
// ```{region} mma.cuh launch-mma
// ```
