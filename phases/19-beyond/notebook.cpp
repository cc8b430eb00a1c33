// %% [markdown]
// # 19 · A design for each head dimension
//
// **Question.** Phase 18 was made for D = 128. There two warpgroups of 64 rows fill the registers, and three stages of
// K and two of V fill the shared memory. At D = 64 much of that lies idle, and phase 18 has no kernel for D = 256 at
// all. What is short there, and what is the design that has enough of it?
//
// **Idea.** Two budgets decide: 64 Ki registers and 227 KiB of shared memory for a block. O takes D/2 registers of each
// thread, S takes half as many as a tile has keys, and P a quarter.
//
// - D = 64: registers are left over, so there are three or four warpgroups of consumers instead of two. While the
//   softmax keeps some of them busy, the others multiply.
// - D = 128: phase 18, as it is.
// - D = 256: O takes 128 registers and Q 64 KiB of shared memory. Q cannot stay in registers, tiles have 64 or 80 keys,
//   and there is no room for O on its way out. It is stored from registers, after an exchange between lanes.
//
// **Changed since 18.** What was a constant is in a table. A warpgroup passes over tiles that only others see. At D =
// 256 O has a third way out. [The page before](steps.cpp) goes from 18 to 19 in seven steps.

// %% tags=["hide-input"]
#include "phases/19-beyond/phase.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "phases/18-diet/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-38s predicted %10s   counted %10s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}

// %% [markdown]
// ## What is short
//
// For each score a tensor core has 4 · D floating-point operations to do, and the exponential is one. By NVIDIA's
// documents a multiprocessor of Hopper does 4096 such operations per clock on its tensor cores (16 bits), and 16
// exponentials.
//
// ```{question}
// For a tile of 64 × 64 scores, how many clocks do the products take, and how many the exponentials, at D = 64, 128 and
// 256?
// ```

// %% tags=["hide-input"]
CELL("Products and exponentials") {
  std::printf("64 x 64 scores      clocks of tensor cores   clocks of exponentials\n");
  bool balanced = true;
  for (const int D : {64, 128, 256}) {
    const int products = 4 * D * 64 * 64 / 4096, exponentials = 64 * 64 / 16;
    std::printf("D = %3d %36d %24d\n", D, products, exponentials);
    balanced = balanced && products == exponentials * D / 64;
  }
  expect(balanced, "at D = 64 both take equally long");
}

// %% [markdown]
// ```{answer}
// 256, 512 and 1024 for the products, and always 256 for the exponentials.
// ```
//
// At D = 256 the tensor cores have four times as much to do as the unit for exponentials, and all that is needed is to
// keep them fed. At D = 64 both are busy equally long, even before the maxima, sums and conversions are counted. There
// the softmax limits, and what helps is to have more warpgroups that can run beside each other.
//
// ## The designs
//
// ```{region} attention.cuh design
// ```

// %% tags=["hide-input"]
CELL("What fits") {
  std::printf("  D    tiles      registers of a consumer         of a block   shared memory\n");
  std::printf("                S    P    O    Q   of these   (65,536 at most)  (KiB, 227 at most)\n");
  bool fits = true, same = true;
  struct Row {
    int D, Br, Bc, registers, producer, q_buffers, k_stages, v_stages;
    bool staged, q_in_registers;
  };
  for (const Row& r : {Row{64, 256, 64, 112, 32, 2, 4, 4, true, false},
                       {64, 192, 128, 160, 32, 2, 2, 2, true, false},
                       {128, 128, 128, 232, 40, 1, 3, 2, true, true},
                       {256, 128, 64, 232, 40, 1, 2, 2, false, false},
                       {256, 128, 80, 232, 40, 1, 2, 2, false, false}}) {
    Rounded<half> e(random_example(r.Br, r.D));
    const Run run = phase19::forward(e.problem({.block_q = r.Br, .block_k = r.Bc}), Where::Sim);
    const int bytes = 2 * r.D * (r.q_buffers * r.Br + (r.k_stages + r.v_stages) * r.Bc + (r.staged ? r.Br : 0));
    const int warpgroups = r.Br / 64, of_block = 128 * (warpgroups * r.registers + r.producer);
    const int S = r.Bc / 2, P = r.Bc / 4, O = r.D / 2, Q = r.q_in_registers ? r.D / 4 : 0;
    std::printf("%3d %4d x %3d %4d %4d %4d %4d %10d %18s %13d\n", r.D, r.Br, r.Bc, S, P, O, Q, r.registers,
                grouped(std::uint64_t(of_block)).c_str(), bytes / 1024);
    fits = fits && S + P + O + Q < r.registers && of_block <= 65536;
    same = same && int(run.ledger.shared_bytes_peak) == bytes + 1024;
    fits = fits && run.ledger.shared_bytes_peak <= 227 * 1024;
  }
  expect(fits, "registers and shared memory are enough for each design");
  expect(same, "the simulator counts the same shared memory, and one KiB that holds the barriers");
}

// %% [markdown]
// - D = 64, 256 × 64: four warpgroups with 112 registers each; tiles of 64 keys, because S and P of 128 would not fit.
//   Tiles of 256 rows read K and V half as often as those of 128.
// - D = 64, 192 × 128: three warpgroups with 160 registers. Fewer, longer steps: faster for long sequences.
// - Both have two places for Q, so that a Q tile's load need not wait for the last product with the one before.
// - D = 256: 80 keys are the most that fits, and a size that `wgmma` knows. 64 keys are better for short sequences, and
//   divide 512 without a rest. There is one place for Q. While it is taken, the next Q tile is fetched into the L2
//   cache (`cp.async.bulk.prefetch.tensor`): from there it arrives sooner.
//
// ## Tiles that only others see
//
// A block of 256 rows on the diagonal needs up to four K/V tiles of 64 keys, but its first 64 rows need only one of
// them. In phases 14 to 18 a warpgroup multiplied them all and masked what it did not see. Here each warpgroup counts
// its own tiles, `my_tiles`. The loop begins with the last tile, so those that it does not see come first, and it
// passes over them: it waits until a stage is full and releases it at once (`pass_K`, `pass_V`). It cannot skip the
// wait. An arrival counts for the phase that the barrier is in, and without the wait it might be too early.
//
// ```{question}
// One head, N = 256, causal, D = 64, tiles of 256 × 64. All products together are 16 squares of 64 × 64 scores. How
// many of them are multiplied here, and how many in phase 18 with tiles of 128 × 64?
// ```

// %% tags=["hide-input"]
CELL("What a warpgroup passes over") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not count\n"));
  const std::uint64_t N = 256, D = 64, square = 4 * 64 * 64 * D, once = N * D * 2;
  Rounded<half> e(random_example(N, D));
  Ledger before =
      phase18::forward(e.problem({.mask = Mask::top_left(), .block_q = 128, .block_k = 64}), Where::Checked).ledger;
  Ledger now =
      phase19::forward(e.problem({.mask = Mask::top_left(), .block_q = 256, .block_k = 64}), Where::Checked).ledger;
  bool same = equal(before.tensor_flops / square, 2 * 2 + 2 * 4, "phase 18: squares");
  same &= equal(now.tensor_flops / square, 1 + 2 + 3 + 4, "phase 19: squares");
  same &= equal(before.array("K").read_bytes, once / 2 + once, "phase 18: bytes of K");
  same &= equal(now.array("K").read_bytes, once, "phase 19: bytes of K");
  expect(same, "predicted = counted");
}

// %% [markdown]
// ```{answer}
// 10 and 12. The four squares on the diagonal and the six below it are needed. In phase 18 there are two blocks: in the
// first both warpgroups multiply 2 tiles, in the second 4.
// ```
//
// ```{region} attention.cuh setup
// ```
// ```{region} attention.cuh producer
// ```
// ```{region} attention.cuh consumer
// ```
//
// Five lines look as if they could stand elsewhere, or be written in another way.
//
// - Where a Q tile ends, phase 18 begins the next S before the last PV. Here PV comes first, and O goes out while the
//   next S is multiplied. At D = 64 that is faster for short sequences
//   ([measured](../../docs/book/part-4.md#what-each-part-is-worth)).
// - `wait_for_output` comes before the exponentials, right behind the maximum. What follows it, such as the rescaling
//   of O, can then run in the shadow of the exponentials. On an H200 the two orders are level.
// - The producer loads the last warpgroup's rows of Q first. With a mask that warpgroup begins with tiles that the
//   others pass over. In the other order D = 256 is slower with a mask
//   ([measured](../../docs/book/part-4.md#what-each-part-is-worth)).
// - `Q.next()` stands in `next_work`, on a path that all lanes take. Inside a branch, the compiler did not know that
//   the place of Q is the same for all lanes. It kept the addresses in each lane's registers and copied them for each
//   `wgmma` to those of the warp, which the instruction wants, four `R2UR` each time. D = 64 was clearly slower.
//   tests/bench/loops.py fails where a loop has such copies.
// - `uniform()` has the same purpose: `my_tiles`, `masked` and `unseen` are the same in all lanes, and now the compiler
//   knows it.
//
// ```{region} attention.cuh loop
// ```
//
// ## O out of registers
//
// In the accumulators a lane has two neighbouring columns of each group of eight, 4 bytes. Four lanes have a row of the
// group together. If they exchange what they have, each can store a whole group, 16 bytes:

// %% tags=["hide-input"]
CELL("Four lanes exchange") {
  static const char* hues[] = {"#8ecae6", "#ffb703", "#90be6d", "#f28482"};
  struct Pair {
    int group, pair;
  };
  std::array<std::array<Pair, 4>, 4> w;  // by lane and register
  for (int lane = 0; lane < 4; ++lane)
    for (int e = 0; e < 4; ++e) w[lane][e] = {e, lane};
  svg::Canvas canvas(860, 252, "Four lanes exchange pairs of columns, in two steps of shuffles");
  const auto draw = [&](int step, const char* title) {
    const double left = 90 + 260 * step;
    canvas.text(left, 56, title, "font-weight=\"bold\"");
    for (int lane = 0; lane < 4; ++lane) {
      if (step == 0) canvas.text(16, 92 + 38 * lane, "lane " + std::to_string(lane), "fill=\"#666\"");
      for (int e = 0; e < 4; ++e) {
        const Pair& p = w[lane][e];
        canvas.rect(left + 56 * e, 70 + 38 * lane, 54, 34, std::string("rx=\"2\" fill=\"") + hues[p.group] + "\"");
        canvas.text(left + 56 * e + 27, 92 + 38 * lane,
                    std::to_string(8 * p.group + 2 * p.pair) + ", " + std::to_string(8 * p.group + 2 * p.pair + 1),
                    "text-anchor=\"middle\" font-size=\"12\"");
      }
    }
  };
  draw(0, "four registers of a lane");
  for (const int lane : {0, 2}) std::swap(w[lane][1], w[lane + 1][0]), std::swap(w[lane][3], w[lane + 1][2]);
  draw(1, "after the exchange with lane ^ 1");
  for (const int lane : {0, 1}) std::swap(w[lane][2], w[lane + 2][0]), std::swap(w[lane][3], w[lane + 2][1]);
  draw(2, "after that with lane ^ 2");
  canvas.text(90, 242, "The numbers are columns of O, the colours groups of eight.", "fill=\"#666\"");
  picture("19-exchange", canvas.str());
  bool whole = true;
  for (int lane = 0; lane < 4; ++lane)
    for (int e = 0; e < 4; ++e) whole = whole && w[lane][e].group == lane && w[lane][e].pair == e;
  expect(whole, "each lane has eight neighbouring columns, in order");
}

// %% [markdown]
// ```{region} attention.cuh store
// ```

// %% tags=["hide-input"]
CELL("Stores of 16 bytes") {
  if (!was_built(Where::Checked))
    return void(std::printf("this build has no checked machine, and the fast one does not count\n"));
  const std::uint64_t N = 128, D = 256;
  Rounded<half> e(random_example(N, D));
  Ledger l = phase19::forward(e.problem({.block_q = 128, .block_k = 64}), Where::Checked).ledger;
  bool same = equal(l.array("O").write_requests, N * D * 2 / 16 / 32, "stores of O, 16 bytes a lane");
  same &= equal(l.array("O").write_sectors, N * D * 2 / 32, "sectors of O");
  same &= equal(l.wgmma_shared_bytes, 2 * 2 * (64 * D * 2 + 2 * 64 * D * 2), "bytes that wgmma reads, Q's too");
  expect(same, "predicted = counted");
}

// %% [markdown]
// ## Which design when
//
// ```{region} attention.cuh launch
// ```
//
// `preferred` is a table of measurements. Whoever asks for other blocks gets them.

// %% [markdown]
// ## Run it

// %% tags=["hide-input"]
CELL("The bits of phase 18, and what it cannot do") {
  const auto same_bits = [](std::int64_t N, std::int64_t D, const Options& old_options, const Options& options,
                            Completion completion) {
    Rounded<half> before(random_example(N, D)), now(random_example(N, D));
    phase18::forward(before.problem(old_options), Where::Sim);
    phase19::forward(now.problem(options), machine, {.order = Order::random, .seed = 19, .completion = completion});
    return std::memcmp(before.o.data(), now.o.data(), now.o.size() * sizeof(half)) == 0 &&
           std::memcmp(before.lse.data(), now.lse.data(), now.lse.size() * sizeof(float)) == 0;
  };
  bool narrow = true, middle = true;
  for (const Completion completion : {Completion::late, Completion::random})
    for (const Mask causal : {Mask::none(), Mask::top_left()}) {
      narrow = narrow && same_bits(300, 64, {.mask = causal, .block_q = 128, .block_k = 64},
                                   {.mask = causal, .block_q = 256, .block_k = 64}, completion);
      narrow = narrow && same_bits(300, 64, {.mask = causal, .block_q = 128, .block_k = 128},
                                   {.mask = causal, .block_q = 192, .block_k = 128}, completion);
      middle = middle && same_bits(150, 128, {.mask = causal}, {.mask = causal}, completion);
    }
  expect(narrow, "D = 64: the bits of phase 18 with as many keys per tile, with a mask and without");
  expect(middle, "D = 128: the bits of phase 18, whose kernel it is");

  double error = 0;
  for (const std::int64_t Bc : {64, 80}) {
    Rounded<half> wide(random_example(150, 256));
    phase19::forward(wide.problem({.block_q = 128, .block_k = Bc}), machine);
    std::printf("D = 256, tiles of %d keys: error against fp64 %.1e\n", int(Bc), worst_head(wide.widened()));
    error = worse(error, worst_head(wide.widened()));
  }
  expect(error <= 4.9e-4, "D = 256: no more than half a unit of fp16's last place, relatively");
}

// %% [markdown]
// **What you saw.** The same parts in three arrangements. None of them is best for all head dimensions, because each D
// is short of something else: of time for the softmax, of nothing in particular, or of registers and shared memory.
//
// **Measured** on an H200: [the end of part 4](../../docs/book/part-4.md) has the table, with every head dimension
// beside the libraries.
//
// **Exercise.** 1. Which design would you try for D = 96? Work out its registers and its shared memory. 2. Five
// warpgroups of consumers at D = 64: how many registers has each, and what fits? 3. In `store_rows`, exchange with lane
// ^ 2 first. Does the result change? 4. Let `pass_K` arrive without waiting. With how many stages is that wrong, and
// what would the checked simulator say?
