// wavefronts_test.cpp: the simulator's rule for wide shared loads against an H200, pattern by pattern.
// Broadcasts, pairs, strides, halves, permutations: 112 patterns of 8 and 16 bytes per lane.
// Run: ctest -R simt_wavefronts
#include "tests/simt/wavefronts.hpp"

#include <doctest/doctest.h>

TEST_CASE("wide shared loads cost the wavefronts that an H200 counts") {
  const auto patterns = flash::read_patterns(FLASH_SOURCE_DIR "/docs/results/wavefronts-h200.csv");
  REQUIRE(patterns.size() == 112);
  const std::vector<flash::Ledger> ledgers = flash::on_checked::run_wavefronts({}, patterns);
  REQUIRE(ledgers.size() == patterns.size());
  constexpr std::uint64_t fill = 8192 / 32;  // stores that fill shared memory, a wavefront each
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    CAPTURE(i);
    CHECK(ledgers[i].shared_wavefronts == fill + static_cast<std::uint64_t>(patterns[i].wavefronts));
    CHECK(ledgers[i].bank_conflicts() == static_cast<std::uint64_t>(patterns[i].conflicts));
  }
}
