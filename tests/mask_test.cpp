// mask_test.cpp: proof of phases/interface/mask.hpp: which keys a row sees, pair by pair, for every kind of mask.
// The reading that it is compared with is tests/reference.hpp's, which looks at one pair at a time.
// ctest -L common
#include "phases/interface/mask.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "tests/reference.hpp"

using namespace flash;
using test::sees;

TEST_CASE("masks: the interval of a row is the set of pairs that see each other") {
  std::vector<Mask> masks = {Mask::none(), Mask::top_left(), Mask::bottom_right()};
  for (const std::int64_t left : {Mask::all, std::int64_t{0}, std::int64_t{3}, std::int64_t{-2}, std::int64_t{1000}})
    for (const std::int64_t right : {Mask::all, std::int64_t{0}, std::int64_t{2}, std::int64_t{-3}, std::int64_t{1000}})
      for (const Alignment alignment : {Alignment::TopLeft, Alignment::BottomRight})
        for (const std::int64_t shift : {0, 5, -7}) masks.push_back({left, right, alignment, shift});
  int wrong = 0, rows = 0, without_keys = 0;
  for (const Mask& mask : masks)
    for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {9, 9}, {4, 13}, {13, 4}, {5, 0}})
      for (std::int64_t i = 0; i < Sq; ++i, ++rows) {
        const KeyRange<std::int64_t> range = mask.visible(i, Sq, Sk);
        const KeyRange<int> narrow = mask.band<int>(Sq, Sk).visible(static_cast<int>(i));
        for (std::int64_t j = 0; j < Sk; ++j) wrong += range.contains(j) != sees(mask, i, j, Sq, Sk);
        wrong += range.size() == 0 && range.end != 0;  // an empty interval is {0, 0}
        wrong += narrow.begin != range.begin || narrow.end != range.end;
        if (!mask.is_window()) wrong += mask.band(Sq, Sk).end(i) != range.end;  // as kernels without windows ask
        without_keys += range.size() == 0;
      }
  CHECK(wrong == 0);
  CHECK(rows > 4000);
  CHECK(without_keys > 100);
}

// Kernels count rows in 32 bits where TMA does, up to 2^30: no sum of a row and a distance may leave them.
TEST_CASE("masks: the largest lengths stay within 32 bits") {
  const std::int64_t most = std::int64_t{1} << 30;
  for (const Mask& mask : {Mask::none(), Mask::top_left(), Mask::bottom_right(), Mask{.left = 5, .right = most * 2},
                           Mask{.left = 0, .right = 0, .shift = -3 * most}})
    for (const auto& [Sq, Sk] : {std::pair{most, most}, {most, std::int64_t{1}}, {std::int64_t{1}, most}})
      for (const std::int64_t i : {std::int64_t{0}, Sq / 2, Sq - 1}) {
        const KeyRange<std::int64_t> range = mask.visible(i, Sq, Sk);
        const KeyRange<int> narrow = mask.band<int>(Sq, Sk).visible(static_cast<int>(i));
        CHECK(narrow.begin == range.begin);
        CHECK(narrow.end == range.end);
      }
}

// A shard of the rows sees what these rows see in the whole.
TEST_CASE("masks: a shard's mask is the whole's, shifted") {
  const std::int64_t N = 24, rows = 6;
  for (const Mask& mask : {Mask::top_left(), Mask{.left = 4, .right = 1}})
    for (std::int64_t first = 0; first < N; first += rows)
      for (std::int64_t i = 0; i < rows; ++i)
        CHECK(mask.shifted(first).visible(i, rows, N) == mask.visible(first + i, N, N));
}
