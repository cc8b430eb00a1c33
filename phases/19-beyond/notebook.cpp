// %% [markdown]
// # 19 · A design for each head dimension
//
// **Question.** Phase 18 was made for D = 128. There two warpgroups of 64 rows fill the registers, and three stages of
// K and two of V fill the shared memory. At D = 64 much of that lies idle, and phase 18 has no kernel for D = 256 at
// all. What is short there, and which design makes do with it?
//
// **Idea.** Two budgets decide: 64 Ki registers and 227 KiB of shared memory for a block. O takes D/2 registers of each
// thread, S takes half as many as a tile has keys, P a quarter, and Q D/4 if it is kept in registers. In shared memory
// there are tiles of Q, stages of K and V, and O on its way out.
//
// **Changed since 18.** What were constants are now entries of a table. A warpgroup passes over tiles that only others
// see. At D = 256 O has a third way out. [The page before](steps.cpp) goes from 18 to 19 in seven steps, each a kernel.
// This page works the table out, then takes its three new parts one at a time, and shows the kernel behind them.

// %% tags=["hide-input"]
#include "phases/19-beyond/phase.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "phases/18-diet/phase.hpp"
#include "phases/19-beyond/steps/steps.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;
using phase19::Budget;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-38s predicted %10s   counted %10s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}

// What a design takes: registers of a consumer's thread for S, P, O and Q; KiB of a block for Q, K, V and O.
static constexpr int all_registers = 64 * 1024, most_kib = 227;
static std::array<int, 4> registers_of(const Budget& b) {
  return {b.Bc / 2, b.Bc / 4, b.D / 2, b.q_in_registers ? b.D / 4 : 0};
}
static std::array<int, 4> kib_of(const Budget& b) {
  return {b.q_places * b.Br * b.D / 512, b.k_stages * b.Bc * b.D / 512, b.v_stages * b.Bc * b.D / 512,
          b.staged ? b.Br * b.D / 512 : 0};
}
static int sum_of(const std::array<int, 4>& parts) {
  return parts[0] + parts[1] + parts[2] + parts[3];
}
static int at_launch(int warpgroups) {  // registers of a thread, a multiple of 8
  return all_registers / (128 * warpgroups) / 8 * 8;
}

static std::string drawn(const std::string& title, const std::vector<Budget>& budgets, const std::string& note) {
  static const char* colours[] = {"#9ec9e6", "#f2d0a4", "#a8d5c2", "#d9b3d0"};
  static const char *in_registers[] = {"S", "P", "O", "Q"}, *in_shared[] = {"Q", "K", "V", "O"};
  const double row = 40, top = 76, left[2] = {100, 414}, scale[2] = {0.77, 0.57};
  const double bottom = top + row * double(budgets.size());
  svg::Canvas canvas(760, bottom + 26, title);
  canvas.text(left[0], 52, "registers of a thread", "font-weight=\"bold\"");
  canvas.text(left[1], 52, "KiB of shared memory", "font-weight=\"bold\"");
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    const Budget& b = budgets[i];
    const double y = top + row * double(i);
    canvas.text(16, y + 12, "D = " + std::to_string(b.D), "font-weight=\"bold\"");
    canvas.text(16, y + 27, std::to_string(b.Br) + " × " + std::to_string(b.Bc));
    for (const int side : {0, 1}) {
      const std::array<int, 4> parts = side == 0 ? registers_of(b) : kib_of(b);
      const int limit = side == 0 ? b.registers : most_kib, all = sum_of(parts);
      double x = left[side];
      canvas.rect(x, y, scale[side] * limit, 28, "fill=\"#eeeeee\"");
      for (int part = 0; part < 4; ++part) {
        if (parts[part] == 0) continue;
        const std::string name = (side == 0 ? in_registers : in_shared)[part];
        const double width = scale[side] * parts[part];
        canvas.rect(x, y, width, 28,
                    std::string("stroke=\"white\" fill=\"") + colours[(part + (side == 0 ? 0 : 3)) % 4] + "\"");
        const std::string label = width > 34 ? name + " " + std::to_string(parts[part]) : width > 12 ? name : "";
        canvas.text(x + width / 2, y + 19, label, "text-anchor=\"middle\"");
        x += width;
      }
      const double end = left[side] + scale[side] * limit;
      canvas.line(end, y - 4, end, y + 32, "stroke=\"#c1272d\" stroke-width=\"2\"");
      canvas.text(std::max(x, end) + 5, y + 19, std::to_string(all) + " of " + std::to_string(limit),
                  all > limit ? "fill=\"#c1272d\" font-weight=\"bold\"" : "");
    }
  }
  canvas.text(16, bottom + 14, note, "fill=\"#666\"");
  return canvas.str();
}

CELL("Phase 18 at three head dimensions") {
  Budget narrow = phase19::design_of_18, middle = phase19::designs[2], wide = middle;
  wide.D = 256;  // there is no such kernel
  bool same = true;
  for (const Budget& b : {narrow, middle})  // the barriers' KiB aside
    same = same && std::size_t(sum_of(kib_of(b)) + 1) * 1024 == b.shared_bytes;
  picture("19-short", drawn("What phase 18 takes, or would take", {narrow, middle, wide},
                            "The red line is what there is. Phase 18 has no kernel for D = 256."));
  expect(same, "its kernels at D = 64 and 128 have as much shared memory, and one KiB that holds the barriers");
  expect(sum_of(registers_of(wide)) > wide.registers && sum_of(kib_of(wide)) > most_kib,
         "at D = 256 neither budget would be enough");
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
// ## How many warpgroups
//
// A block's registers are dealt out when it starts: 64 Ki divided by its threads, rounded down to a multiple of 8. Then
// the producer keeps 32 or 40 for each of its threads, and the consumers share the rest, again in multiples of 8.
//
// ```{question}
// The producer keeps 32. How many registers can each thread of a consumer have, with three and with four warpgroups of
// consumers? And which of them has room for S and P of 128 keys at D = 64, beside O?
// ```

// %% tags=["hide-input"]
CELL("Registers for three and four") {
  bool same = true;
  std::printf("consumers   threads   at launch   a consumer   S, P, O of 128 keys   of 64 keys   (D = 64)\n");
  for (const int consumers : {3, 4}) {
    const int launched = at_launch(consumers + 1), each = ((consumers + 1) * launched - 32) / consumers / 8 * 8;
    std::printf("%9d %9d %11d %12d %21d %12d\n", consumers, 128 * (consumers + 1), launched, each, 64 + 32 + 32,
                32 + 16 + 32);
    for (const Budget& b : phase19::designs)
      if (b.consumers == consumers) same = same && b.registers == each && b.producer_registers == 32;
  }
  for (const Budget& b : phase19::designs)
    same = same && b.consumers * b.registers + b.producer_registers <= (b.consumers + 1) * at_launch(b.consumers + 1);
  expect(same, "these are the numbers of the kernel, and no design takes more than was dealt out");
}

// %% [markdown]
// ```{answer}
// 160 and 112. With 128 keys S, P and O take 128. With three warpgroups a thread has room for them, with four it has
// not. With 64 keys they take 80.
// ```
//
// ## The designs
//
// The table of the kernel says the same for each head dimension and each size of tiles:
//
// ```{region} attention.cuh design
// ```

// %% tags=["hide-input"]
CELL("What fits") {
  std::printf("  D    tiles      registers of a consumer         of a block   shared memory\n");
  std::printf("                S    P    O    Q   of these   (65,536 at most)  (KiB, 227 at most)\n");
  bool fits = true, same = true;
  for (const Budget& b : phase19::designs) {
    Rounded<half> e(random_example(b.Br, b.D));
    const Run run = phase19::forward(e.problem({.block_q = b.Br, .block_k = b.Bc}), Where::Sim);
    const std::array<int, 4> r = registers_of(b);
    const int of_block = 128 * (b.consumers * b.registers + b.producer_registers), kib = sum_of(kib_of(b));
    std::printf("%3d %4d x %3d %4d %4d %4d %4d %10d %18s %13d\n", b.D, b.Br, b.Bc, r[0], r[1], r[2], r[3], b.registers,
                grouped(std::uint64_t(of_block)).c_str(), kib);
    fits = fits && sum_of(r) < b.registers && of_block <= all_registers && b.shared_bytes <= most_kib * 1024;
    same = same && run.ledger.shared_bytes_peak == b.shared_bytes && b.shared_bytes == std::size_t(kib + 1) * 1024;
  }
  picture("19-budgets",
          drawn("The two budgets of each design", {phase19::designs.begin(), phase19::designs.end()},
                "Grey: what is left, for addresses, m, l and the rest; in shared memory for the barriers."));
  expect(fits, "registers and shared memory are enough for each design");
  expect(same, "the simulator counts the same shared memory, and one KiB that holds the barriers");
}

// %% [markdown]
// - D = 64, 256 × 64: four warpgroups with 112 registers each; tiles of 64 keys, because S and P of 128 would not fit.
//   Tiles of 256 rows read K and V half as often as those of 128.
// - D = 64, 192 × 128: three warpgroups with 160 registers. Fewer, longer steps: faster for long sequences.
// - Both have two places for Q, so that a Q tile's load need not wait for the last product with the one before.
// - D = 128: phase 18, as it is.
// - D = 256: 80 keys are the most that fit, and `wgmma` has products of that size. 64 keys are better for short
//   sequences, and divide 512 without a remainder. There is one place for Q, and none for O. While Q's place is taken,
//   the next Q tile is fetched into the L2 cache (`cp.async.bulk.prefetch.tensor`): from there it arrives sooner.
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
// One head, N = 256, causal, D = 64. The page before counted 10 squares of 64 × 64 scores for blocks of 256 rows that
// pass over tiles, and 12 for blocks of 128 rows, which phase 18 has. How many bytes of K does each of the two kernels
// read?
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
// Phase 19 reads 32,768: one block goes through K once, even where a warpgroup passes over a tile. Phase 18 reads
// 49,152: of its two blocks the first reads half of K, and the second all of it.
// ```
//
// ## O out of registers
//
// At D = 256 there is no place for O in shared memory. In the accumulators a lane has two neighbouring columns of each
// group of eight: rounded, 4 bytes. Four lanes together have a row of the group. If they exchange what they have, each
// can store a whole group, 16 bytes:

// %% tags=["hide-input"]
CELL("Four lanes exchange") {
  static const char* hues[] = {"#8ecae6", "#ffb703", "#90be6d", "#f28482"};
  struct Pair {
    int group, pair;
  };
  std::array<std::array<Pair, 4>, 4> w;  // by lane and register
  for (int lane = 0; lane < 4; ++lane)
    for (int e = 0; e < 4; ++e) w[lane][e] = {e, lane};
  svg::Canvas canvas(760, 252, "Four lanes exchange pairs of columns, in two steps of shuffles");
  const auto draw = [&](int step, const char* title) {
    const double left = 76 + 230 * step, pair = 52;
    canvas.text(left, 56, title, "font-weight=\"bold\"");
    for (int lane = 0; lane < 4; ++lane) {
      if (step == 0) canvas.text(16, 92 + 38 * lane, "lane " + std::to_string(lane), "fill=\"#666\"");
      for (int e = 0; e < 4; ++e) {
        const Pair& p = w[lane][e];
        canvas.rect(left + pair * e, 70 + 38 * lane, pair - 2, 34,
                    std::string("rx=\"2\" fill=\"") + hues[p.group] + "\"");
        canvas.text(left + pair * e + 25, 92 + 38 * lane,
                    std::to_string(8 * p.group + 2 * p.pair) + ", " + std::to_string(8 * p.group + 2 * p.pair + 1),
                    "text-anchor=\"middle\" font-size=\"12\"");
      }
    }
  };
  draw(0, "four registers of a lane");
  for (const int lane : {0, 2}) std::swap(w[lane][1], w[lane + 1][0]), std::swap(w[lane][3], w[lane + 1][2]);
  draw(1, "exchanged with lane ^ 1");
  for (const int lane : {0, 1}) std::swap(w[lane][2], w[lane + 2][0]), std::swap(w[lane][3], w[lane + 2][1]);
  draw(2, "then with lane ^ 2");
  canvas.text(76, 242, "The numbers are columns of O, the colours groups of eight.", "fill=\"#666\"");
  picture("19-exchange", canvas.str());
  bool whole = true;
  for (int lane = 0; lane < 4; ++lane)
    for (int e = 0; e < 4; ++e) whole = whole && w[lane][e].group == lane && w[lane][e].pair == e;
  expect(whole, "each lane has eight neighbouring columns, in order");
}

// %% [markdown]
// ```{exercise} 19.1
// ```
//
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
// ## The kernel
//
// ```{region} attention.cuh setup
// ```
// ```{region} attention.cuh producer
// ```
// ```{region} attention.cuh consumer
// ```
// ```{region} attention.cuh loop
// ```
//
// Five places look as if they could be written in another way.
//
// - Where a Q tile ends, phase 18 begins the next S before the last PV. Here PV comes first, and O goes out while the
//   next S is multiplied. Without a mask the other order is slower, by a few per cent at D = 64 and by up to a tenth at
//   D = 256 ([measured](../../docs/book/part-4.md#what-each-part-is-worth)).
// - `wait_for_output` comes before the exponentials, right behind the maximum. What follows it, such as the rescaling
//   of O, can then run beside the exponentials. On an H200 the two orders are equally fast.
// - The producer loads the last warpgroup's rows of Q first. With a mask that warpgroup begins with tiles that the
//   others pass over. In the other order D = 256 is slower with a mask
//   ([measured](../../docs/book/part-4.md#what-each-part-is-worth)).
// - `Q.next()` stands in `next_work`, on a path that all lanes take. Inside a branch, the compiler did not know that
//   the place of Q is the same for all lanes. So it kept the addresses in each lane's registers and copied them, by
//   four {term}`R2UR` for each `wgmma`, to those that the whole warp shares. D = 64 was clearly slower.
//   tests/bench/loops.py fails where a loop has such copies.
// - `uniform()` has the same purpose: `my_tiles`, `masked` and `unseen` are the same in all lanes, and now the compiler
//   knows it.
//
// ## Which design when
//
// ```{region} attention.cuh launch
// ```
//
// `preferred` names the tiles that were measured to be fastest. Whoever asks for other blocks gets them.

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
// is short of something else: D = 64 of time for the softmax, D = 256 of registers and shared memory, D = 128 of
// nothing in particular.
//
// **Measured** on an H200: [the end of part 4](../../docs/book/part-4.md) has the table, with every head dimension
// beside the libraries.
//
// **Write it yourself.** The capstone of part 4 is a kernel of your own that loads by TMA while it multiplies
// by `wgmma`.
//
// ```{exercise} 19.2
// ```
//
// **To think about.** 1. Which design would you try for D = 96? Work out its registers and its shared memory. 2. Five
// warpgroups of consumers at D = 64: how many registers has each, and what fits? 3. In `store_rows`, exchange with lane
// ^ 2 first. Does the result change? 4. Let `pass_K` arrive without waiting. With how many stages is that wrong, and
// what would the checked simulator say?
//
// <details><summary>Answers</summary>
//
// 1. Three warpgroups with 160 registers and tiles of 192 × 96 are one that fits: S takes 48, P 24 and O 48, 120 in
//    all. A row of 96 columns fills a panel of 64 and half of another. With whole panels Q takes 48 KiB, two stages of
//    K and V 96 and O 48: 192 of 227, and no second place for Q.
//
// 2. 768 threads are launched with 80 registers each; if the producer keeps 32, a consumer has 88. S, P and O of 64
//    keys take 80 of them, which leaves 8 for everything else. Tiles of 32 keys would fit, with 56.
//
// 3. No. One exchange swaps the lowest bit of the lane with that of the register, the other the next bit of both.
//    Neither changes what the other one looks at.
//
// 4. With any number: what counts is how far another warpgroup may be behind in the Q tile before. Tried with N = 1024
//    and 4 stages, where three tiles are passed: while copies are late the simulator finds nothing. With eager copies
//    it reports an arrival "before anybody has waited for its last phase", races between TMA and `wgmma`, and
//    deadlocks.
//
// </details>
