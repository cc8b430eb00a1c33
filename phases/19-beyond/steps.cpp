// %% [markdown]
// # 19 · From 18 to 19, step by step
//
// **Question.** [Phase 18](../18-diet/notebook.cpp) was made for D = 128, where its two warpgroups fill the registers.
// What must change so that the same kernel serves D = 64 well, and D = 256 at all?
//
// **Idea.** Seven small changes, each a whole kernel. The first five are about D = 64, where there are registers for
// more warpgroups, as the picture shows. The last two are about D = 256, where nothing is left over. [Phase
// 19](notebook.cpp) has them all.
//
// **The setting.** Each step is compiled for one case: bf16, D = 64 with tiles of 256 × 64 (the first one of 128 × 64),
// from step 6 on D = 256 with tiles of 128 × 64. The predictions are about bytes, products and registers. How much time
// each step is worth was measured on an H200 afterwards, and stands at the end.

// %% tags=["hide-input"]
#include "phases/19-beyond/steps/steps.hpp"

#include <cstdio>
#include <cstring>
#include <map>

#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

using namespace flash;
using namespace flash::phase19;

// Only the checked simulator counts; a build with AddressSanitizer does not have it.
static bool counts() {
  if (was_built(Where::Checked)) return true;
  std::printf("this build has no checked simulator, and the fast one does not count\n");
  return false;
}

static bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-40s predicted %10s   counted %10s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}

// One head of 256 random rows, causal: what a phase or a step makes of it, run once.
constexpr std::uint64_t N = 256;
struct Result {
  Rounded<bfloat16> data;
  Ledger ledger;

  Result(const Phase& phase, std::int64_t D) : data(random_example(N, D)) {
    const Options options{
        .mask = Mask::top_left(), .block_q = &phase == &phase18::phase ? std::int64_t{128} : 0, .block_k = 64};
    ledger =
        flash::forward(phase, data.problem(options), was_built(Where::Checked) ? Where::Checked : Where::Sim).ledger;
  }
  bool operator==(const Result& other) const {
    return std::memcmp(data.o.data(), other.data.o.data(), data.o.size() * sizeof(bfloat16)) == 0 &&
           std::memcmp(data.lse.data(), other.data.lse.data(), data.lse.size() * sizeof(float)) == 0;
  }
};
static Result& result_of(const Phase& phase, std::int64_t D = 64) {
  static std::map<const Phase*, Result> kept;
  return kept.try_emplace(&phase, phase, D).first->second;
}
// Products of 64 rows with 64 keys: Q Kᵀ and P V.
static std::uint64_t squares(const Ledger& ledger, std::uint64_t D) {
  return ledger.tensor_flops / (4 * 64 * 64 * D);
}

CELL("64 Ki registers at D = 64") {
  Budget before = design_of_18;  // its registers do not depend on the tiles' keys
  const Budget& after = designs[0];
  before.Bc = after.Bc;
  svg::Canvas canvas(760, 216, "D = 64: what the registers of a block are for");
  const double left = 16, scale = 728.0 / (64 * 1024);
  const auto draw = [&](double top, const Budget& b, const std::string& title) {
    const int held = b.Bc / 2 + b.Bc / 4 + b.D / 2 + (b.q_in_registers ? b.D / 4 : 0);
    double x = left;
    const auto box = [&](int registers, const char* colour, const std::string& text) {
      const double width = scale * 128 * registers;
      canvas.rect(x, top + 10, width, 40, std::string("stroke=\"white\" fill=\"") + colour + "\"");
      canvas.text(x + width / 2, top + 35, text, "text-anchor=\"middle\"");
      x += width;
    };
    canvas.text(left, top, title, "font-weight=\"bold\"");
    for (int consumer = 0; consumer < b.consumers; ++consumer)
      box(held, "#9ec9e6", std::to_string(held)),
          box(b.registers - held, "#dddddd", std::to_string(b.registers - held));
    box(b.producer_registers, "#f2d0a4", std::to_string(b.producer_registers));
    std::printf("%s: %d of a thread's %d registers hold S, P, O or Q\n", title.c_str(), held, b.registers);
    return held;
  };
  const int held = draw(60, before, "phase 18: two warpgroups of consumers");
  draw(134, after, "from step 2 on: four");
  canvas.text(left, 208, "Blue: S, P, O and Q; grey: all else; orange: the producer. Numbers: registers of a thread.",
              "fill=\"#666\"");
  picture("19-registers", canvas.str());
  expect(2 * held < before.registers, "in phase 18 less than half of them hold matrices");
}

// %% [markdown]
// ## 1 · Q stays in shared memory
//
// Phase 18 loads Q into registers, D/4 of each thread. At D = 256 there is no room for it there. At D = 64 these
// registers are what a fourth warpgroup needs. So products read Q where TMA has put it, and a Q tile is given back
// behind its last product.
//
// ```{difference} ../18-diet/attention.cuh steps/1-shared.cuh
// ```
//
// *Prediction*: no bit changes. `wgmma` reads three tiles of shared memory for each 64 × 64 scores, where it read two.
// By itself that gains nothing. It makes room for the next step.

// %%
CELL("A third tile to read") {
  Result &before = result_of(phase18::phase), &now = result_of(shared_step);
  expect(before == now, "the bits of phase 18");
  if (!counts()) return;
  const std::uint64_t tile = 64 * 64 * 2;
  bool same = equal(before.ledger.wgmma_shared_bytes, 12 * 2 * tile, "18-diet:  bytes that wgmma reads");
  same &= equal(now.ledger.wgmma_shared_bytes, 12 * 3 * tile, "1-shared: bytes that wgmma reads");
  expect(same, "predicted = counted");
}

// %% [markdown]
// ## 2 · A table in place of constants
//
// Stages, registers and warpgroups depend on D and on the tiles, so they move into a table. At D = 64 it asks for four
// warpgroups of consumers, or three with tiles of 128 keys. Q now has two places: in step 1 the next Q could come only
// when the last product with this one was over.
//
// ```{difference} steps/1-shared.cuh steps/2-design.cuh
// ```
//
// *Prediction*: at D = 64 the exponentials take as long as the products (phase 16 counted it). With more warpgroups
// there is more often one that multiplies while others do their softmax. This should be the step that gains most. A
// block has 256 rows, which halves what is read of K and V without a mask. With a causal mask the larger Q tiles bring
// products that nobody needs.
//
// ## 3 · Tiles that only later rows see
//
// Of 256 rows on the diagonal the first 64 see only one of four K/V tiles. Now each warpgroup counts its own tiles. It
// passes over the others: it waits for each and gives it back at once.
//
// ```{difference} steps/2-design.cuh steps/3-pass.cuh
// ```
//
// *Prediction*: without a mask nothing changes. With one, each block of 256 rows saves six squares of 64 × 64 scores:
// a quarter of all at N = 512, and 4 % at N = 4096.
//
// ```{question}
// One head, N = 256, causal. How many squares of 64 × 64 scores are multiplied in step 1, in step 2 and in step 3?
// ```

// %% tags=["hide-input"]
// How many K/V tiles each 64 rows of a step are multiplied with: as often as the kernel shows the maximum of the first.
static std::array<int, 4> tiles_of(const Phase& step) {
  Rounded<bfloat16> e(random_example(N, 64));
  Recording run;
  flash::forward(step, e.problem({.mask = Mask::top_left(), .block_k = 64}), Where::Checked, {.recording = &run});
  std::array<int, 4> tiles{};
  for (const Recording::Step& s : run.steps)
    for (const Recording::Value& value : s.values)
      if (value.name == std::string("m") && value.row % 64 == 0) ++tiles[std::size_t(value.row) / 64];
  return tiles;
}

CELL("Squares that are multiplied") {
  Result &shared = result_of(shared_step), &design = result_of(design_step), &pass = result_of(pass_step);
  expect(shared == design && design == pass, "the same bits");
  if (!counts()) return;
  bool same = equal(squares(shared.ledger, 64), 2 * 2 + 2 * 4, "1-shared: squares");
  same &= equal(squares(design.ledger, 64), 4 * 4, "2-design: squares");
  same &= equal(squares(pass.ledger, 64), 1 + 2 + 3 + 4, "3-pass:   squares");
  svg::Canvas canvas(760, 236, "Squares of 64 × 64 scores that are multiplied: one head, N = 256, causal");
  const std::pair<const char*, Result*> steps[] = {{"step 1", &shared}, {"step 2", &design}, {"step 3", &pass}};
  for (int i = 0; i < 3; ++i) {
    const std::array<int, 4> tiles = tiles_of(i == 0 ? shared_step : i == 1 ? design_step : pass_step);
    const double left = 100 + 230 * i, top = 70, size = 34;
    int all = 0;
    for (int row = 0; row < 4; ++row) {
      if (i == 0) canvas.text(16, top + size * row + 22, "rows " + std::to_string(64 * row), "fill=\"#666\"");
      for (int column = 0; column < 4; ++column)
        canvas.rect(left + size * column, top + size * row, size, size,
                    std::string("stroke=\"white\" fill=\"") +
                        (column >= tiles[row] ? "#eeeeee"
                         : column > row       ? "#f2b96b"
                                              : "#9ec9e6") +
                        "\"");
      all += tiles[row];
    }
    canvas.line(left, top, left + 4 * size, top + 4 * size, "stroke=\"#444\"");
    canvas.text(left, 56, steps[i].first + (": " + std::to_string(all)), "font-weight=\"bold\"");
    same = same && squares(steps[i].second->ledger, 64) == std::uint64_t(all);
  }
  canvas.text(16, 228, "Blue: needed; orange: multiplied, and hidden by the mask. K/V tiles from left to right.",
              "fill=\"#666\"");
  picture("19-squares", canvas.str());
  same &= equal(shared.ledger.array("K").read_bytes, (2 + 4) * 64 * 64 * 2, "1-shared: bytes of K");
  same &= equal(design.ledger.array("K").read_bytes, 4 * 64 * 64 * 2, "2-design: bytes of K");
  same &= equal(pass.ledger.array("K").read_bytes, 4 * 64 * 64 * 2, "3-pass:   bytes of K");
  expect(same, "predicted = counted");
}

// %% [markdown]
// ```{answer}
// 12, 16 and 10. In step 1 two blocks have two warpgroups each, which multiply 2 and 4 tiles. In step 2 one block has
// four, and each multiplies 4. In step 3 they multiply 1, 2, 3 and 4.
// ```
//
// ## 4 · The last PV first
//
// Where a Q tile ends, phase 18 begins S of the next one before the last PV of this one. Meanwhile it must keep m and l
// of both Q tiles. Now PV comes first, and O goes out while the next S is multiplied.
//
// ```{difference} steps/3-pass.cuh steps/4-order.cuh
// ```
//
// *Prediction*: nothing for long sequences, where a Q tile rarely ends. For short ones the stores of O are hidden. And
// the second m and l are gone. With 112 registers a thread, nvcc 13.0 spilled 20 bytes in step 2 and 8 in step 3,
// outside of the loops. Now it spills none.
//
// ## 5 · Wait for PV early
//
// Until now the wait for PV of the tile before came after the exponentials. Now it comes right after the maximum, so
// that what follows PV can run beside the exponentials.
//
// ```{difference} steps/4-order.cuh steps/5-early.cuh
// ```
//
// *Prediction*: the same instructions in another order, so the same bits and counters. Whether it is faster depends on
// when PV is done. The longer the softmax takes, the less is lost by waiting.

// %%
CELL("Two other orders") {
  Result &pass = result_of(pass_step), &order = result_of(order_step), &early = result_of(early_step);
  expect(pass == order && order == early, "the same bits");
  if (counts()) expect(pass.ledger == order.ledger && order.ledger == early.ledger, "the same counters, all of them");
}

// %% [markdown]
// ## 6 · D = 256
//
// O alone takes 128 registers and Q 64 KiB of shared memory, K and V with two stages of 64 keys another 128 KiB. That
// leaves no room for O on its way out, nor for a second Q. So a lane stores O from its registers, as in phase 14. The
// next Q is fetched into the L2 cache while its place is taken.
//
// ```{difference} steps/5-early.cuh steps/6-wide.cuh
// ```
//
// *Prediction*: the products take four times as long as the exponentials, so two warpgroups are enough. A lane stores 4
// bytes at a time. Four lanes fill half a sector of 32 bytes, so each sector is written twice.
//
// ## 7 · Four lanes exchange
//
// Four lanes have the pieces of 64 bytes of a row between them, 4 bytes here and 4 bytes there. They exchange these by
// shuffles, so that each has 16 bytes in a row, as [the page of phase 19](notebook.cpp) draws it.
//
// ```{exercise} 19.1
// ```
//
// ```{difference} steps/6-wide.cuh steps/7-exchange.cuh
// ```
//
// *Prediction*: a quarter of the stores and half of the sectors, at the price of a few shuffles. No bit changes.

// %%
CELL("Stores of O") {
  Result &wide = result_of(wide_step, 256), &exchange = result_of(exchange_step, 256);
  expect(wide == exchange, "the same bits");
  if (!counts()) return;
  const std::uint64_t bytes = N * 256 * 2;
  bool same = equal(wide.ledger.array("O").write_requests, bytes / 4 / 32, "6-wide:     stores of O");
  same &= equal(exchange.ledger.array("O").write_requests, bytes / 16 / 32, "7-exchange: stores of O");
  same &= equal(wide.ledger.array("O").write_sectors, 2 * bytes / 32, "6-wide:     sectors of O");
  same &= equal(exchange.ledger.array("O").write_sectors, bytes / 32, "7-exchange: sectors of O");
  expect(same, "predicted = counted");
}

// %% [markdown]
// ## What is left
//
// Phase 19 chooses. It takes phase 18's kernel for D = 128, and the tiles that were measured to be fastest where nobody
// asks for others. And it prepares a backward pass, for which the steps have the code but no kernel.
//
// ```{difference} steps/7-exchange.cuh attention.cuh
// ```

// %% tags=["hide-input"]
CELL("The last steps have phase 19's bits") {
  const auto same_as = [](Result& step, std::int64_t D, std::int64_t Br) {
    Rounded<bfloat16> e(random_example(N, D));
    phase19::forward(e.problem({.mask = Mask::top_left(), .block_q = Br, .block_k = 64}));
    return std::memcmp(e.o.data(), step.data.o.data(), e.o.size() * sizeof(bfloat16)) == 0 &&
           std::memcmp(e.lse.data(), step.data.lse.data(), e.lse.size() * sizeof(float)) == 0;
  };
  expect(same_as(result_of(early_step), 64, 256), "5-early at D = 64");
  expect(same_as(result_of(exchange_step, 256), 256, 128), "7-exchange at D = 256");
}

// %% [markdown]
// ## What each step was worth
//
// Measured on an H200 for N = 512, 2048 and 8192, without a mask and with one; each figure is over the step before
// ([all of them](../../docs/results/hopper-steps-h200.md)). Q in shared memory costs a fifth by itself. Four warpgroups
// win 25 to 31 % without a mask and 6 to 20 % with one. Passing over tiles brings 9 to 31 % with a mask; without one
// the questions that it asks cost 1 to 2 %. The new order brings 1.3 to 3.5 %, and waiting ahead of the exponentials
// 1.3 % at most. Phase 19 itself then takes tiles of 192 × 128 for long sequences: 7 to 14 %. At D = 256 the exchange
// brings 4 to 26 %, the most for short sequences, where O is a larger part of the work.
//
// What the predictions say of bits, bytes and squares came true in all seven steps; the cells above count it. Four of
// them speak of time. Without a mask the second gained most, as we had thought, but with one it did so only for long
// sequences. The third came true with a mask, and not without. The fourth came true for short sequences; for long ones,
// where nothing was predicted, it gave 1.3 to 1.8 %. The first said only that nothing is gained, not that a fifth is
// lost.
//
// **What you saw.** Q moves back into shared memory, and that makes room for the steps after it. No step changes a bit:
// they change where things are, who does them and when.
//
// **To think about.** 1. Which of the steps would help D = 128, and why does phase 19 leave it as it is? 2. In step 2,
// give Q one place again. Which wait becomes longer? 3. For which N does step 3 save less than 1 % of the products?
//
// <details><summary>Answers</summary>
//
// 1. At most the orders of steps 4 and 5. Q in shared memory makes phase 18 up to 4 % slower at D = 128
//    (`18-q-in-shared` in part 4's table). A third warpgroup would have to do with 160 registers for each thread, and
//    with 128 keys S, P and O alone take 160. Step 3 saves nothing, since both warpgroups of 128 rows see the same
//    tiles of 128 keys.
//
// 2. That for Q at the beginning of a Q tile. Its load can begin only when the last S of the Q tile before is done, and
//    then runs beside little more than one softmax.
//
// 3. With n = N / 256 blocks for a head, step 2 multiplies 8 n (n + 1) squares and step 3 saves 6 n of them: a share of
//    3 / (4 n + 4). That is less than 1 % from n = 75 on, N = 19,200.
//
// </details>
