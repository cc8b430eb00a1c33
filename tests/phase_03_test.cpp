// phase_03_test.cpp: proof of phase 03, FlashAttention-1: same results tile by tile, exactly T_c passes over Q and O.
// Also what the paper's block sizes need on chip, and a published example whose numbers do not fit.
// ./flash test 03
#include <doctest/doctest.h>

#include "phases/02-online-softmax/phase.hpp"
#include "phases/03-tiled-v1/attention.hpp"
#include "tests/promises.hpp"

using namespace flash;
using namespace flash::test;

const Phase& flash::test::phase_under_test() {
  return phase03::phase;
}

namespace {
const auto run = [](const auto& p) { phase03::forward(p); };
constexpr std::int64_t KiB = 1024;
}  // namespace

// O is divided by l after each tile: right where phases that divide at the end overflow.
TEST_CASE("V up to FLT_MAX, with any number of keys") {
  CHECK_FALSE(check_range_of_v<float>(Where::Sim));
}

TEST_CASE_TEMPLATE("ledger", T, float, half, bfloat16) {
  for (const std::int64_t Sk : {std::int64_t{100}, std::int64_t{96}, std::int64_t{5}}) {
    const Case c{.B = 2, .H = 3, .Sq = 53, .Sk = Sk, .D = 24, .block_q = 16, .block_k = 32};
    Inputs<T> in(c);
    const Ledger ledger = phase03::forward(in.problem(false)).ledger;
    const std::int64_t heads = c.B * c.H, e = sizeof(T), f = sizeof(float);
    const std::int64_t Tc = (c.Sk + c.block_k - 1) / c.block_k;
    const std::int64_t o = heads * c.Sq * c.D, row = heads * c.Sq;  // numbers in O, and in l or m
    // K and V once; Q, O, l and m once per K/V tile. O stays fp32 until its last pass. Initialising writes O, l, m.
    check_traffic(ledger, {{"Q", Tc * o * e, 0},
                           {"K", heads * c.Sk * c.D * e, 0},
                           {"V", heads * c.Sk * c.D * e, 0},
                           {"O", Tc * o * f, o * f + (Tc - 1) * o * f + o * e},
                           {"l", Tc * row * f, row * f + Tc * row * f},
                           {"m", Tc * row * f, row * f + Tc * row * f}});
    CHECK(ledger.flops == 4 * heads * c.Sq * c.Sk * c.D);
    CHECK(ledger.exps == heads * c.Sq * (c.Sk + 2 * Tc));  // P, and two factors per row and tile
    CHECK(ledger.rescales == 2 * row * Tc);
    const std::int64_t Br = c.block_q, Bc = c.block_k;
    CHECK(ledger.shared_bytes_peak == f * (2 * Br * c.D + 2 * Bc * c.D + Br * Bc + 2 * Br));  // Q O, K V, S, l m
  }
}

TEST_CASE_TEMPLATE("ledger without keys", T, float, half, bfloat16) {
  const Case c{.B = 2, .H = 3, .Sq = 53, .Sk = 0, .D = 24, .block_q = 16, .block_k = 32};
  Inputs<T> in(c);
  const Ledger ledger = phase03::forward(in.problem(false)).ledger;
  const std::int64_t o = c.B * c.H * c.Sq * c.D, row = c.B * c.H * c.Sq, e = sizeof(T), f = sizeof(float);
  check_traffic(ledger, {{"O", o * f, o * f + o * e}, {"l", 0, row * f}, {"m", 0, row * f}});
  CHECK(ledger.flops == 0);
}

TEST_CASE("twice the SRAM halves the passes over Q and O") {
  std::uint64_t q_bytes[2];
  for (const int i : {0, 1}) {
    Inputs<float> in({.B = 1, .H = 1, .Sq = 16, .Sk = 1024, .D = 64, .sram_bytes = (256 << i) * KiB});
    q_bytes[i] = phase03::forward(in.problem(false)).ledger.array("Q").read_bytes;
  }
  CHECK(q_bytes[0] == 4 * 16 * 64 * sizeof(float));  // B_c = 65,536/4/64 = 256: T_c = 4
  CHECK(q_bytes[1] == 2 * 16 * 64 * sizeof(float));
}

TEST_CASE("the paper's block sizes leave S out") {
  // Line 1 of Algorithm 1, with M in numbers: 192 KiB are 49,152 fp32 numbers.
  CHECK(phase03::paper_blocks(192 * KiB / 4, 64).Bc == 192);
  CHECK(phase03::paper_blocks(192 * KiB / 4, 64).Br == 64);
  CHECK(phase03::paper_blocks(192 * KiB, 64).Bc == 768);  // M in bytes: four times too many
  CHECK(phase03::paper_blocks(100, 64).Bc == 1);          // rounded up
  for (const std::int64_t sram : {48 * KiB, 99 * KiB, 163 * KiB, 192 * KiB, 227 * KiB})
    for (std::int64_t D = 1; D <= 256; ++D) {
      INFO("SRAM " << sram << ", D " << D);
      const Blocks paper = phase03::paper_blocks(sram / 4, D);
      const auto [Br, Bc] = paper;
      const std::int64_t need = 4 * (2 * Br * D + 2 * Bc * D + Br * Bc + 2 * Br);
      CHECK(phase03::sram_bytes_needed(paper, D) == need);
      // Over the budget for every D from 128 on; at 48 and 99 KiB for D = 64 too, at 163 KiB and more not.
      if (D >= 128) CHECK(need > sram);
      if (D == 64) CHECK((need > sram) == (sram < 163 * KiB));
      // What is used instead fits, and one row more would not (unless the paper itself stops there).
      const Blocks fit = phase03::fitting_blocks(sram, D);
      CHECK(phase03::sram_bytes_needed(fit, D) <= sram);
      const Blocks more{std::min(fit.Bc + 1, D), fit.Bc + 1};
      if (need > sram)
        CHECK(phase03::sram_bytes_needed(more, D) > sram);
      else
        CHECK(fit.Bc == paper.Bc);
    }
}

// N = 1024, d = 64, scores not scaled, tiles of 64 x 768 said to fit an SRAM of 192 KiB: there M was counted in bytes.
TEST_CASE("a published example: 64 x 768 tiles need more than 192 KiB") {
  for (const Input input : {Input::Uniform, Input::Normal}) {
    Case c{.B = 1, .H = 1, .Sq = 1024, .Sk = 1024, .D = 64, .input = input, .scale = 1.0f};
    c.block_q = 64;
    c.block_k = 768;
    Inputs<float> in(c);
    CHECK_THROWS_WITH_AS(run(in.problem(false)),
                         "tile K_j [768, 64] needs 196608 bytes of SRAM; 163840 of 196608 are free; use smaller blocks "
                         "or a larger --sram",
                         Error);
    CHECK(is_poison(in.o.memory.data(), in.o.memory.size() * sizeof(float)));
    c.sram_bytes = 1024 * KiB;
    check_forward<float>(c, run, phase03::features);
    Inputs<float> larger(c);
    CHECK(phase03::forward(larger.problem(false)).ledger.shared_bytes_peak == 623104);  // 608.5 KiB
    c.block_q = c.block_k = 0;                                                          // what does fit
    c.sram_bytes = 192 * KiB;
    check_forward<float>(c, run, phase03::features);
  }
}
