// %% [markdown]
// # 16 · Overlap
//
// **Question.** In phase 15 a warpgroup multiplies, then calculates exponentials, then multiplies. While it calculates,
// it has no product under way: the tensor cores depend on the other warpgroup for work. How long does that last, and
// must it be so?
//
// **Idea.** `wgmma` runs beside the threads, so a warpgroup can have products under way while it calculates. It only
// needs two that do not wait for each other. S of the *next* tile is one: it needs Q and K, and nothing of this tile's
// softmax. So S of tile j + 1 is issued before PV of tile j, and the softmax of tile j + 1 begins while that PV runs.
//
// **Changed since 15.** The order of the consumer's loop, the order in which the producer loads, and P, which now lives
// beside the next S. No product and no exponential is added or left out.

// %% tags=["hide-input"]
#include "phases/16-overlap/phase.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "phases/15-warp-specialised/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

using namespace flash;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

// What the first warpgroup does with five K/V tiles, read off a recorded run: the products of S and of PV, each from
// its issue to the wait for it, and the softmaxes. A column is a step of the warpgroup.
struct Stretch {
  int row;  // 0: S, 1: PV, 2: softmax
  double begin, end;
};
static std::vector<Stretch> pieces_of(const Phase& phase) {
  Rounded<half> e(random_example(320, 64));  // several blocks; the first one is read
  Recording run;
  forward(phase, e.problem({.block_q = 128, .block_k = 64}), Where::Checked, {.recording = &run});
  std::vector<Stretch> pieces, under_way;
  double column = 0;
  for (const Recording::Step& step : run.steps) {
    if (step.block != 0 || step.warp != 0) continue;
    bool issues = false, softmax = false;
    for (const auto& value : step.values) softmax = softmax || value.name == std::string("m");
    for (const auto& part : step.parts) {
      const std::string& place = run.launches[0].chip[part.place].name;
      const bool product = part.kind == Recording::Kind::product, done = part.kind == Recording::Kind::multiplied;
      if ((!product && !done) || (place != "K" && place != "V")) continue;
      const int row = place == "V";
      if (product) under_way.push_back({row, column, 0}), issues = true;
      if (!done) continue;
      const auto first =
          std::find_if(under_way.begin(), under_way.end(), [&](const Stretch& p) { return p.row == row; });
      pieces.push_back({row, first->begin, column}), under_way.erase(first);
    }
    if (softmax) pieces.push_back({2, column, column + 1});
    if (issues || softmax) ++column;
  }
  return pieces;
}
// During how many softmaxes a product is under way.
static int beside(const std::vector<Stretch>& pieces) {
  int count = 0;
  for (const Stretch& softmax : pieces)
    count += softmax.row == 2 && std::any_of(pieces.begin(), pieces.end(), [&](const Stretch& p) {
               return p.row < 2 && p.begin < softmax.begin + 0.5 && p.end > softmax.begin + 0.5;
             });
  return count;
}
static std::string drawn(const std::string& title, const std::vector<Stretch>& pieces) {
  static const char *rows[] = {"S", "PV", "softmax"}, *colours[] = {"#9ec9e6", "#7fb3a6", "#f2d0a4"};
  double last = 0;
  for (const Stretch& piece : pieces) last = std::max(last, piece.end);
  svg::Canvas canvas(760, 176, title);
  const double left = 100, scale = 640 / last;
  for (int row = 0; row < 3; ++row) {
    int tile = 4;
    canvas.text(16, 65 + 36 * row, rows[row]);
    canvas.rect(left, 46 + 36 * row, 640, 30, "fill=\"#f6f6f6\"");
    for (const Stretch& piece : pieces) {
      if (piece.row != row) continue;
      const double x = left + scale * piece.begin, width = scale * (piece.end - piece.begin);
      canvas.rect(x, 46 + 36 * row, width, 30, std::string("stroke=\"white\" fill=\"") + colours[row] + "\"");
      canvas.text(x + width / 2, 66 + 36 * row, std::to_string(tile--), "text-anchor=\"middle\"");
    }
  }
  canvas.text(left, 168, "K/V tiles 4 to 0. From left to right: the order of a recorded run, not its time.",
              "fill=\"#666\"");
  return canvas.str();
}

CELL("Phase 15, one step after the other") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not record\n"));
  const std::vector<Stretch> pieces = pieces_of(phase15::phase);
  picture("16-turns", drawn("Phase 15: what one warpgroup has under way", pieces));
  std::printf("a product is under way during %d of 5 softmaxes\n", beside(pieces));
  expect(pieces.size() == 15 && beside(pieces) == 0, "15 pieces of work, and no softmax with a product beside it");
}

// %% [markdown]
// ## How long is a softmax?
//
// Each score costs multiply-adds in two products, S and PV, and one exponential. Tensor cores do the multiply-adds. The
// exponential is the work of another unit, which does 16 in a cycle of a multiprocessor (CUDA Programming Guide,
// "Arithmetic Instructions", compute capability 9.0). The data sheet's 990 TFLOP/s are about 4,096 FLOP in a cycle of a
// multiprocessor.
//
// ```{question}
// How many FLOP of the tensor cores are there for each exponential, for D = 128? While the other unit does 16
// exponentials in one cycle, how many cycles' worth of work do the tensor cores get?
// ```

// %% tags=["hide-input"]
CELL("FLOP for each exponential") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not count\n"));
  bool as_said = true;
  for (const std::uint64_t D : {64, 128}) {
    const std::uint64_t N = 256, alphas = N / 128 * N * 4;  // of each row for each tile, in each of its four lanes
    Rounded<half> e(random_example(N, D));
    const Ledger now = phase16::forward(e.problem({.block_q = 128, .block_k = 128}), Where::Checked).ledger;
    as_said = as_said && now.tensor_flops == 4 * D * N * N && now.exps == N * N + alphas;
    const double each = double(now.tensor_flops) / double(now.exps);
    std::printf("D = %3d: %s FLOP, %s exponentials: %.0f FLOP for each (4 D = %d)\n", int(D),
                grouped(now.tensor_flops).c_str(), grouped(now.exps).c_str(), each, int(4 * D));
    std::printf("         for 16 of them, which take a cycle, the tensor cores multiply for %.1f\n", 16 * each / 4096);
  }
  expect(as_said, "4 D FLOP and one exponential for each score, and a few to rescale O");
}

// %% [markdown]
// ```{answer}
// About 4 D = 512: 496, because O's rescaling takes exponentials, too. For 16 of them that is about two cycles of the
// tensor cores. For D = 64 it is one: there the exponentials alone take as long as the products.
// ```
//
// And exponentials are not all of it. Maximum, multiply-add, sum and rounding are several instructions for each score,
// on units that the tensor cores do not use. If the products and all of this take turns, each side is idle while the
// other works.
//
// ## Two products under way
//
// ```{region} attention.cuh consumer
// ```
//
// The first S has no PV beside it, and the last PV no S. Between them each round has the same five steps:
//
// 1. Issue S of this tile, then PV of the tile before. They are two groups, and run in this order.
// 2. `wgmma_wait<1>(s)`: all groups but the last are done. S is there, PV may still be running. K's stage is released.
// 3. Mask and softmax of this tile, beside PV.
// 4. `wgmma_wait<0>(o, p)`: PV is done, too. V's stage is released.
// 5. Rescale O by this tile's alpha, and round P. Both had to wait, since PV was using these registers.
//
// In phase 15 O was rescaled before PV was added; here it is rescaled after the PV of the tile before. That is the same
// place in the sequence of operations, so not a bit changes.
//
// ```{exercise} 16.1
// ```
//
// ```{question}
// A warpgroup goes through five K/V tiles. During how many of the five softmaxes does it have a product under way, and
// which?
// ```

// %% tags=["hide-input"]
CELL("Phase 16, two products under way") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not record\n"));
  const std::vector<Stretch> pieces = pieces_of(phase16::phase);
  picture("16-under-way", drawn("Phase 16: what one warpgroup has under way", pieces));
  std::printf("a product is under way during %d of 5 softmaxes\n", beside(pieces));
  expect(pieces.size() == 15 && beside(pieces) == 4, "the same 15 pieces, and PV beside all softmaxes but the first");
}

// %% [markdown]
// ```{answer}
// During 4, all but the first. It is PV of the tile before: the first softmax has none before it, and the last PV has
// no softmax left beside it.
// ```
//
// What that is worth depends on how long each piece takes. The lengths in the next picture are made up.

// %% tags=["hide-input"]
// A declared model of one warpgroup that has the tensor cores for itself: a product takes 4 steps, a softmax 6, and
// rescaling and rounding 1. Both products of a round are issued together; the tensor cores take one after the other.
struct Bar {
  std::string what;
  bool tensor;
  double begin, end;
};
static constexpr double product_time = 4, softmax_time = 6, rounding_time = 1;

static std::vector<Bar> one_warpgroup(bool overlap, int tiles) {
  std::vector<Bar> bars;
  double tensor = 0, threads = 0;  // when each is free again
  const auto multiply = [&](const std::string& what, double issued) {
    const double begin = std::max(tensor, issued);
    bars.push_back({what, true, begin, tensor = begin + product_time});
    return tensor;
  };
  const auto calculate = [&](const std::string& what, double ready, double time) {
    const double begin = std::max(threads, ready);
    bars.push_back({what, false, begin, threads = begin + time});
  };
  const auto number = [](const char* what, int tile) { return what + std::to_string(tile); };
  for (int tile = 0; tile < tiles; ++tile) {
    const double issued = threads;
    const double S = multiply(number("S", tile), issued);
    double PV = 0;
    if (overlap && tile > 0) PV = multiply(number("PV", tile - 1), issued);
    calculate(number("softmax ", tile), S, softmax_time);
    calculate("", PV, rounding_time);
    if (!overlap) threads = multiply(number("PV", tile), threads);
  }
  if (overlap) multiply(number("PV", tiles - 1), threads);
  return bars;
}

CELL("One warpgroup, in turns and overlapped") {
  svg::Canvas canvas(760, 276, "One warpgroup with the tensor cores for itself: four tiles");
  std::array<double, 2> busy{}, end{};
  for (const bool overlap : {false, true}) {
    const double top = overlap ? 162 : 62, scale = 10.8;
    canvas.text(16, top,
                overlap ? "phase 16: S of the next tile before PV of this one" : "phase 15: one after the other",
                "font-weight=\"bold\"");
    canvas.text(16, top + 26, "tensor cores", "fill=\"#666\"");
    canvas.text(16, top + 56, "threads", "fill=\"#666\"");
    for (const Bar& bar : one_warpgroup(overlap, 4)) {
      const double x = 104 + scale * bar.begin, y = top + (bar.tensor ? 10 : 40), width = scale * (bar.end - bar.begin);
      const char* colour = !bar.tensor          ? bar.what.empty() ? "#e7d3c0" : "#f2d0a4"
                           : bar.what[0] == 'S' ? "#9ec9e6"
                                                : "#7fb3a6";
      canvas.rect(x, y, width, 24, std::string("stroke=\"white\" rx=\"3\" fill=\"") + colour + "\"");
      canvas.text(x + width / 2, y + 16, bar.what, "text-anchor=\"middle\" font-size=\"11\"");
      busy[overlap] += bar.tensor ? bar.end - bar.begin : 0;
      end[overlap] = std::max(end[overlap], bar.end);
    }
    std::printf("%s: %.0f steps, tensor cores busy in %.0f of them\n", overlap ? "phase 16" : "phase 15", end[overlap],
                busy[overlap]);
  }
  canvas.text(16, 266,
              "Durations are declared, not measured: a product 4 steps, a softmax 6, rescaling and rounding 1.",
              "fill=\"#666\"");
  picture("16-overlap", canvas.str());
  expect(busy[0] == busy[1], "the same products");
  expect(end[1] < end[0], "in less time");
}

// %% [markdown]
// A second warpgroup fills part of the gaps of phase 15, as the page before has shown. It does not fill them all: both
// warpgroups have the same sequence of work, and when both calculate, nobody multiplies. With two products under way in
// each, it happens less often that the tensor cores have nothing to do.
//
// ## In the order of use
//
// The consumers now need K of a tile before V of the tile before, so the producer loads in that order: K, then K and V
// in turns.
//
// ```{region} ../15-warp-specialised/ring.cuh load-keys
// ```
//
// The phases after this one load in this order too, so the function stands beside the ring. The rest is phase 15's.
//
// ```{region} attention.cuh tiles
// ```
// ```{region} attention.cuh setup
// ```
// ```{region} attention.cuh producer
// ```
// ```{region} attention.cuh loop
// ```
// ```{region} attention.cuh launch
// ```

// %% [markdown]
// ## Run it: the same bits
//
// The operations on each element of O, m and l are the same, in the same order.

// %% tags=["hide-input"]
template <class T>
static bool same_as_phase_15(const Example& example, const Options& options, const MachineOptions& how = {}) {
  Rounded<T> before(example), now(example);
  phase15::forward(before.problem(options), Where::Sim);
  phase16::forward(now.problem(options), machine, how);
  return std::memcmp(before.o.data(), now.o.data(), now.o.size() * sizeof(T)) == 0 &&
         std::memcmp(before.lse.data(), now.lse.data(), now.lse.size() * sizeof(float)) == 0;
}

CELL("Phase 15, bit for bit, in every order") {
  bool same = true;
  for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
    same = same && same_as_phase_15<half>(random_example(200, 64), {.mask = causal, .block_k = 64}) &&
           same_as_phase_15<bfloat16>(random_example(200, 128), {.mask = causal, .block_k = 64});
  expect(same, "O and LSE, fp16 and bf16, with each mask");

  bool again = true;
  const Example example = random_example(300, 64);
  for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
    for (const Order order : {Order::forward, Order::reverse, Order::random})
      again = again &&
              same_as_phase_15<half>(example, {.block_k = 64}, {.order = order, .seed = 16, .completion = completion});
  expect(again, "copies and products late, eager or random, threads in three orders");
}

CELL("Not one count changes") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not count\n"));
  Rounded<half> e(random_example(256, 128));
  const Options blocks{.block_q = 128, .block_k = 64};
  const Ledger before = phase15::forward(e.problem(blocks), Where::Checked).ledger;
  const Ledger now = phase16::forward(e.problem(blocks), Where::Checked).ledger;
  std::printf("                      phase 15    phase 16\n");
  const auto line = [](const char* what, std::uint64_t a, std::uint64_t b) {
    std::printf("%-18s %11s %11s\n", what, grouped(a).c_str(), grouped(b).c_str());
  };
  line("HBM bytes", before.hbm_bytes(), now.hbm_bytes());
  line("FLOP of wgmma", before.tensor_flops, now.tensor_flops);
  line("bytes to wgmma", before.wgmma_shared_bytes, now.wgmma_shared_bytes);
  line("exponentials", before.exps, now.exps);
  line("barriers", before.barriers, now.barriers);
  line("shared memory", before.shared_bytes_peak, now.shared_bytes_peak);
  expect(before == now, "the whole ledger is the same");
}

// %% [markdown]
// What it costs is registers. In phase 15 P took the place of S. Now P of one tile waits in registers for its product
// while S of the next one arrives: for D = 128 and Bc = 128, S, P and O are 160 registers of the 232.
//
// **What did not help.** The compiler moves some of the exponentials behind the wait for PV. There no product of their
// own warpgroup runs beside them. They were forced to stay in front of the wait, and nothing became faster
// ([measured](../../docs/book/part-4.md#what-each-part-is-worth) in phase 18): the other warpgroup's products run
// beside them wherever they stand.
//
// **What you saw.** Two products under way, one wait for the first of them, and the same operations in another order.
// No counter of the simulator moved, because the simulator has no clock.
//
// **Measured** on an H200, with the table at the end of this part: for long sequences and D = 128 this is the largest
// step since `wgmma`. Short ones gain less, and with a mask they gain least: there blocks begin and end all the time.
// [Phase 17](../17-persistent/notebook.cpp) is about that.
//
// **To think about.** 1. What would the simulator say if `wgmma_wait<1>(s)` were `wgmma_wait<1>(s, o)`, and the
// rescaling came right behind it? 2. Issue PV before S. What does `wgmma_wait<1>` wait for then, and which array may be
// named? 3. Keep phase 15's order of loads. The result is right; what waits longer, in the first round? 4. S of two
// tiles ahead would give the tensor cores even more. How many registers would it take for D = 128, and for which Bc
// would they fit?
//
// <details><summary>Answers</summary>
//
// 1. *asynchronous product: wgmma_wait<1> names an array whose product it leaves under way*: PV is in the last group,
//    for which this wait does not wait. The rescaling would be a second finding, the read of O while `wgmma` writes it.
//    The first is the exhibit `wgmma_named_early` of tests/simt/museum_wgmma.cu.
//
// 2. For PV of the tile before, the older of the two groups. Then `o` and `p` may be named, but not `s`, which the
//    softmax needs next. It would have to wait for both, and nothing would run beside it.
//
// 3. S of the second tile. Its K would be loaded behind V of the first tile, and so it would come later; in the order
//    of use it is begun before that V.
//
// 4. Another S: Bc/2 registers. With P and O that makes 64 + Bc/2 + Bc/2 + Bc/4 for D = 128: 224 of 232 for Bc = 128,
//    which leaves 8 for everything else, and 144 for Bc = 64. So 64 keys would fit, 128 would not.
//
// </details>
