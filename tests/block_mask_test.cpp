// block_mask_test.cpp: the block mask that a kernel makes from a predicate (block_mask.cu), against loops on the host.
// Run: block_mask_test
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "sim/machine.hpp"

// Defined in block_mask.cu, once per machine.
namespace flash {
namespace on_sim {
void run_document_blocks(Machine& m, const std::int32_t* q, const std::int32_t* k, std::uint8_t* kinds, int B, int Sq,
                         int Sk);
void run_strided_blocks(Machine& m, int stride, std::uint8_t* kinds, int B, int H, int Sq, int Sk);
}  // namespace on_sim
namespace on_checked {
void run_document_blocks(Machine& m, const std::int32_t* q, const std::int32_t* k, std::uint8_t* kinds, int B, int Sq,
                         int Sk);
void run_strided_blocks(Machine& m, int stride, std::uint8_t* kinds, int B, int H, int Sq, int Sk);
}  // namespace on_checked
}  // namespace flash

namespace {

// [B, H, ⌈Sq/64⌉, ⌈Sk/64⌉]: 0 where no pair of the block is seen, 2 where all are, else 1.
template <class Sees>
std::vector<std::uint8_t> expected(int B, int H, int Sq, int Sk, const Sees& sees) {
  std::vector<std::uint8_t> kinds;
  for (int b = 0; b < B; ++b)
    for (int h = 0; h < H; ++h)
      for (int row = 0; row < Sq; row += 64)
        for (int column = 0; column < Sk; column += 64) {
          int seen = 0, pairs = 0;
          for (int i = row; i < std::min(row + 64, Sq); ++i)
            for (int j = column; j < std::min(column + 64, Sk); ++j) seen += sees(b, h, i, j), ++pairs;
          kinds.push_back(static_cast<std::uint8_t>(seen == 0 ? 0 : seen == pairs ? 2 : 1));
        }
  return kinds;
}
bool has_all_kinds(const std::vector<std::uint8_t>& kinds) {
  return std::set<std::uint8_t>(kinds.begin(), kinds.end()).size() == 3;
}

}  // namespace

TEST_CASE_TEMPLATE("documents: the blocks that the definition says", Machine, flash::on_sim::Machine,
                   flash::on_checked::Machine) {
  constexpr int B = 2, Sq = 300, Sk = 325;
  std::vector<std::int32_t> q, k;
  for (int b = 0; b < B; ++b) {
    for (int i = 0; i < Sq; ++i) q.push_back(i / (90 + 60 * b));
    for (int j = 0; j < Sk; ++j) k.push_back(j / (100 + 60 * b));
  }
  const std::vector<std::uint8_t> want =
      expected(B, 1, Sq, Sk, [&](int b, int, int i, int j) { return q[b * Sq + i] == k[b * Sk + j]; });
  CHECK(has_all_kinds(want));
  std::vector<std::uint8_t> kinds(want.size());
  Machine m;
  run_document_blocks(m, q.data(), k.data(), kinds.data(), B, Sq, Sk);
  CHECK(kinds == want);
}

TEST_CASE_TEMPLATE("a reader's predicate", Machine, flash::on_sim::Machine, flash::on_checked::Machine) {
  for (const int stride : {512, 7}) {
    constexpr int B = 1, H = 2, Sq = 200, Sk = 129;
    const std::vector<std::uint8_t> want =
        expected(B, H, Sq, Sk, [&](int, int h, int i, int j) { return h == 0 || j % stride <= i % stride; });
    CHECK(has_all_kinds(want) == (stride == 512));
    std::vector<std::uint8_t> kinds(want.size());
    Machine m;
    run_strided_blocks(m, stride, kinds.data(), B, H, Sq, Sk);
    CHECK(kinds == want);
  }
}

TEST_CASE("no rows, or no keys: no blocks") {
  flash::on_sim::Machine m;
  std::uint8_t untouched = 7;
  run_strided_blocks(m, 7, &untouched, 1, 2, 0, 100);
  CHECK(untouched == 7);
}
