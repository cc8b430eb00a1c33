// memory_test.cpp: proof of sim/memory/memory.hpp, the two-level memory: every byte is counted, no tile too large fits.
// And of sim/ledger.hpp, which adds up what several workers did.
// ctest -L common
#include "sim/memory/memory.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

using namespace flash;

TEST_CASE("tiles take their bytes and give them back") {
  Memory memory(1000);
  {
    const Tile a = memory.tile("a", 10, 10);  // 400 bytes
    const Tile b = memory.tile("b", 5, 30);   // 600 bytes: full
    CHECK(memory.ledger().shared_bytes_peak == 1000);
    CHECK_THROWS_WITH_AS(memory.tile("c", 1, 1),
                         "tile c [1, 1] needs 4 bytes of SRAM; 0 of 1000 are free; use smaller blocks or a larger "
                         "--sram",
                         Error);
  }
  const Tile again = memory.tile("again", 250, 1);  // all of it is free again
  CHECK(memory.ledger().shared_bytes_peak == 1000);
}

TEST_CASE("a tile that moves keeps its bytes once") {
  Memory memory(800);
  Tile a = memory.tile("a", 10, 10);
  Tile b = std::move(a);
  CHECK_NOTHROW(memory.tile("c", 10, 10));
  CHECK_THROWS_AS(memory.tile("c", 10, 11), Error);
}

TEST_CASE("a refused tile names bytes needed and free") {
  Memory memory(192 * 1024);
  const Tile q = memory.tile("Q_i", 64, 64);
  CHECK_THROWS_WITH_AS(
      memory.tile("K_j", 768, 64),
      "tile K_j [768, 64] needs 196608 bytes of SRAM; 180224 of 196608 are free; use smaller blocks or "
      "a larger --sram",
      Error);
  CHECK(memory.ledger().shared_bytes_peak == 64 * 64 * 4);
}

TEST_CASE("fresh tiles hold NaN") {
  Memory memory(1 << 20);
  const Tile t = memory.tile("t", 7, 9);
  for (int i = 0; i < 63; ++i) CHECK(std::isnan(t.data()[i]));
  CHECK(reinterpret_cast<std::uintptr_t>(t.data()) % 64 == 0);
}

TEST_CASE("a tile takes the place of one of its size that is gone, and is as fresh") {
  Memory memory(1 << 20);
  const float* places[2];
  for (const int i : {0, 1}) {
    const Tile a = memory.tile("a", 7, 9), b = memory.tile("b", 9, 7), c = memory.tile("c", 5, 5);
    CHECK(a.data() != b.data());  // both live: never the same place
    for (int j = 0; j < 63; ++j) CHECK((std::isnan(a.data()[j]) && std::isnan(b.data()[j])));
    std::fill_n(a.data(), 63, 1.0f);
    std::fill_n(b.data(), 63, 2.0f);
    CHECK(a.data()[62] == 1);
    places[i] = c.data();
  }
  CHECK(places[0] == places[1]);
  CHECK(memory.ledger().shared_bytes_peak == 4 * (63 + 63 + 25));
}

TEST_CASE_TEMPLATE("load and store move rows and count their bytes", T, float, half, bfloat16) {
  constexpr std::int64_t rows = 5, cols = 3, stride = 4;
  std::vector<T> in, out(rows * stride, from_float<T>(-1.0f));
  for (int i = 0; i < rows * stride; ++i) in.push_back(from_float<T>(static_cast<float>(i)));
  Memory memory(1 << 20);
  const auto A = memory.matrix("A", in.data(), rows, cols, stride);
  const auto B = memory.matrix("B", out.data(), rows, cols, stride);
  Tile t = memory.tile("t", 4, cols);
  const std::uint64_t e = sizeof(T);

  CHECK(memory.load(t, A, 0) == 4);  // a full tile
  CHECK(t.data()[3 * cols + 2] == 3 * stride + 2);
  memory.store(t, B, 0);
  CHECK(memory.ledger().arrays[0].read_bytes == 4 * cols * e);
  CHECK(memory.ledger().arrays[1].written_bytes == 4 * cols * e);

  CHECK(memory.load(t, A, 4) == 1);  // the tail: one row is left
  CHECK(t.rows == 1);
  memory.store(t, B, 4);
  CHECK(memory.ledger().arrays[0].read_bytes == 5 * cols * e);
  CHECK(memory.ledger().arrays[1].written_bytes == 5 * cols * e);

  CHECK(memory.load(t, A, 5) == 0);  // past the end: nothing
  CHECK(memory.load(t, A, 8) == 0);
  CHECK(memory.ledger().hbm_read_bytes() == 5 * cols * e);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) CHECK(to_float(out[r * stride + c]) == static_cast<float>(r * stride + c));
    CHECK(to_float(out[r * stride + cols]) == -1);  // the gap between rows
  }
}

TEST_CASE("store rounds to the matrix's type") {
  Memory memory(1 << 20);
  half h;
  bfloat16 b;
  Tile t = memory.tile("t", 1, 1);
  t.data()[0] = 1.0f + 0x1p-11f + 0x1p-20f;  // just over halfway between two halfs
  memory.store(t, memory.matrix("h", &h, 1, 1, 1), 0);
  memory.store(t, memory.matrix("b", &b, 1, 1, 1), 0);
  CHECK(to_float(h) == 1.0f + 0x1p-10f);
  CHECK(to_float(b) == 1.0f);
  CHECK(memory.ledger().hbm_written_bytes() == 4);
}

TEST_CASE("matrices of one name share a counter, even as others are named") {
  Memory memory(1 << 20);
  std::vector<float> data(100);
  const auto first = memory.matrix("A", data.data(), 2, 5, 5);
  std::vector<Matrix<float>> others;
  for (int i = 0; i < 1000; ++i) others.push_back(memory.matrix("x" + std::to_string(i), data.data(), 1, 1, 1));
  memory.count_read(first);
  memory.count_read(memory.matrix("A", data.data() + 10, 4, 5, 5));
  memory.count_write(first);
  CHECK(memory.ledger().arrays[0] == ArrayTraffic{"A", 30 * 4, 10 * 4});
  CHECK(memory.ledger().arrays.size() == 1001);
}

TEST_CASE("arithmetic is counted") {
  Memory memory(1);
  memory.count_matmul(3, 5, 7);
  memory.count_exps(11);
  memory.count_rescales(13);
  memory.count_matmul(1 << 20, 1 << 20, 1 << 10);  // over 2^31
  CHECK(memory.ledger().flops == 2 * 3 * 5 * 7 + (std::uint64_t{1} << 51));
  CHECK(memory.ledger().exps == 11);
  CHECK(memory.ledger().rescales == 13);
}

TEST_CASE("ledgers add up by array name and keep the larger peak") {
  Ledger a, b;
  a.array("Q").read_bytes = 1;
  a.array("O").written_bytes = 2;
  b.array("O").written_bytes = 3;
  b.array("K").read_bytes = 4;
  a.flops = b.flops = 5;
  a.exps = b.exps = 6;
  a.rescales = b.rescales = 7;
  a.shared_bytes_peak = 8;
  b.shared_bytes_peak = 9;
  a.add(b);
  CHECK(a.arrays == std::vector<ArrayTraffic>{{"Q", 1, 0}, {"O", 0, 5}, {"K", 4, 0}});
  CHECK(a.hbm_read_bytes() == 5);
  CHECK(a.hbm_written_bytes() == 5);
  CHECK(a.hbm_bytes() == 10);
  CHECK(a.flops == 10);
  CHECK(a.exps == 12);
  CHECK(a.rescales == 14);
  CHECK(a.shared_bytes_peak == 9);
}

TEST_CASE("a tile whose size overflows is refused") {
  Memory memory(1 << 20);
  CHECK_THROWS_WITH_AS(memory.tile("huge", std::int64_t{1} << 62, 4),
                       "tile huge [4611686018427387904, 4] needs over 2^63 bytes of SRAM; 1048576 of 1048576 are free; "
                       "use smaller blocks or a larger --sram",
                       Error);
  CHECK_THROWS_AS(memory.tile("huge", std::int64_t{1} << 32, std::int64_t{1} << 32), Error);
}
