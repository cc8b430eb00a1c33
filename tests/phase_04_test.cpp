// phase_04_test.cpp: proof of phase 04, FlashAttention-2: same results, fewer bytes, LSE, any number of threads.
// Causal tiles beyond the last visible key are not even loaded: counted as integers.
// ./flash test 04
#include <doctest/doctest.h>

#include "phases/03-tiled-v1/phase.hpp"
#include "phases/04-tiled-v2/attention.hpp"
#include "tests/promises.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase04::phase;
}

namespace {
const auto run = [](const auto& p) { phase04::forward(p); };
}  // namespace

// One division, at the end: the price is in docs/conventions.md.
TEST_CASE("V beyond FLT_MAX / n overflows") {
  CHECK(check_range_of_v<float>(Where::Sim));
}

TEST_CASE_TEMPLATE("ledger", T, float, half, bfloat16) {
  for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{53, 100}, {100, 53}, {64, 64}})
    for (const auto& [Br, Bc] : {std::pair<std::int64_t, std::int64_t>{16, 32}, {32, 16}, {64, 64}})
      for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()}) {
        const Case c{.B = 2, .H = 3, .Sq = Sq, .Sk = Sk, .D = 24, .mask = causal, .block_q = Br, .block_k = Bc};
        INFO(text(c));
        Inputs<T> in(c);
        const Ledger ledger = phase04::forward(in.problem(true)).ledger;
        const std::int64_t heads = c.B * c.H, e = sizeof(T), f = sizeof(float);
        std::int64_t keys = 0, pairs = 0, steps = 0, matmul = 0;  // of one head
        for (std::int64_t i = 0; i < Sq; i += Br) {
          const std::int64_t rows = std::min(Br, Sq - i);
          std::int64_t last = 0;  // keys that the tile's last row sees
          for (std::int64_t r = 0; r < rows; ++r) {
            std::int64_t visible = 0;
            for (std::int64_t j = 0; j < Sk; ++j) visible += sees(causal, i + r, j, Sq, Sk);
            pairs += visible;
            steps += (visible + Bc - 1) / Bc;  // K/V tiles that this row takes part in
            last = visible;
          }
          const std::int64_t loaded = std::min((last + Bc - 1) / Bc * Bc, Sk);  // whole tiles up to the diagonal
          keys += loaded;
          matmul += rows * loaded;
        }
        // Q and O once; K and V once per Q tile, tiles that nobody sees not at all.
        check_traffic(ledger, {{"Q", heads * Sq * c.D * e, 0},
                               {"K", heads * keys * c.D * e, 0},
                               {"V", heads * keys * c.D * e, 0},
                               {"O", 0, heads * Sq * c.D * e},
                               {"LSE", 0, heads * Sq * f}});
        if (causal == Mask::none()) CHECK(keys == (Sq + Br - 1) / Br * Sk);
        CHECK(ledger.flops == 2 * heads * (matmul + pairs) * c.D);  // S of whole tiles, P V of visible keys
        CHECK(ledger.exps == heads * (pairs + steps));
        CHECK(ledger.rescales == heads * (steps + Sq));  // one per row and tile, one division at the end
        CHECK(ledger.shared_bytes_peak == f * (2 * Br * c.D + 2 * Bc * c.D + Br * Bc + 2 * Br));
      }
}

TEST_CASE("a causal square of 8 x 8 tiles loads 36 of 64") {
  Inputs<float> in(
      {.B = 1, .H = 1, .Sq = 128, .Sk = 128, .D = 16, .mask = Mask::top_left(), .block_q = 16, .block_k = 16});
  CHECK(phase04::forward(in.problem(false)).ledger.array("K").read_bytes == 36 * 16 * 16 * sizeof(float));
}

TEST_CASE("fewer bytes and fewer rescales than phase 03 with the same tiles") {
  const Case c{.Sq = 256, .Sk = 256, .D = 64, .block_q = 64, .block_k = 64, .sram_bytes = 1 << 20};
  Inputs<float> in(c);
  const Ledger v1 = phase03::forward(in.problem(false)).ledger, v2 = phase04::forward(in.problem(false)).ledger;
  CHECK(v2.hbm_bytes() < v1.hbm_bytes());
  CHECK(v2.rescales < v1.rescales);
  CHECK(v2.exps < v1.exps);
  CHECK(v2.flops == v1.flops);
  CHECK(v2.shared_bytes_peak == v1.shared_bytes_peak);
}

TEST_CASE("on-chip memory does not grow with the sequence") {
  std::uint64_t peak[2];
  for (const int i : {0, 1}) {
    Inputs<float> in({.B = 1, .H = 1, .Sq = 128 << i, .Sk = 256 << i, .D = 64});
    peak[i] = phase04::forward(in.problem(true)).ledger.shared_bytes_peak;
  }
  CHECK(peak[0] == peak[1]);
}

TEST_CASE_TEMPLATE("any number of threads gives the same bits and the same ledger", T, float, half, bfloat16) {
  for (const Mask causal : {Mask::none(), Mask::bottom_right()}) {
    Case c{.B = 2, .H = 3, .Sq = 77, .Sk = 90, .D = 32, .mask = causal, .block_q = 16, .block_k = 16};
    Inputs<T> one(c);
    const Ledger ledger = phase04::forward(one.problem(true)).ledger;
    for (const int threads : {2, 3, 8, 0}) {
      c.threads = threads;
      Inputs<T> many(c);
      CHECK(phase04::forward(many.problem(true)).ledger == ledger);
      CHECK(same_bits(one.o.memory, many.o.memory));
      CHECK(same_bits(one.lse, many.lse));
    }
  }
}

TEST_CASE("an error in a thread reaches the caller") {
  Inputs<float> in({.Sq = 64, .Sk = 64, .D = 64, .block_q = 64, .block_k = 64, .sram_bytes = 48 * 1024, .threads = 3});
  CHECK_THROWS_WITH_AS(run(in.problem(true)),
                       "tile V_j [64, 64] needs 16384 bytes of SRAM; 0 of 49152 are free; use smaller blocks or a "
                       "larger --sram",
                       Error);
  CHECK(is_poison(in.o.memory.data(), in.o.memory.size() * sizeof(float)));
}

TEST_CASE("automatic block sizes fit the SRAM") {
  for (const std::int64_t sram : {std::int64_t{8}, std::int64_t{48}, std::int64_t{99}, std::int64_t{192}})
    for (std::int64_t D = 1; D <= 256; ++D)
      for (const auto& [q, k] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {1, 0}, {0, 1}}) {
        const Options options{.block_q = q, .block_k = k, .sram_bytes = sram * 1024};
        INFO("SRAM " << sram << " KiB, D " << D << ", asked for " << q << "x" << k);
        const Blocks blocks = phase04::choose_blocks(options, D);
        CHECK(phase04::sram_bytes_needed(blocks, D) <= options.sram_bytes);
        if (q) CHECK(blocks.Br == q);
        if (k) CHECK(blocks.Bc == k);
      }
  // A CPU's budget holds the tiles that it multiplies fastest; the default holds 128 x 64.
  for (const std::int64_t D : {64, 128, 256}) {
    const Blocks blocks = phase04::choose_blocks({.sram_bytes = 1 << 20}, D);
    CHECK((blocks.Br == 192 && blocks.Bc == 192));
  }
  CHECK(phase04::choose_blocks({}, 64).Br == 128);
  CHECK(phase04::choose_blocks({}, 64).Bc == 64);
}
