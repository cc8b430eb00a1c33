// wavefronts_test.cpp: the simulator's rule for wide shared loads and ldmatrix against an H200, pattern by pattern.
// Broadcasts, pairs, strides, halves, permutations: 112 patterns of 8 and 16 bytes per lane, 56 of ldmatrix.
// Run: ctest -R simt_wavefronts
#include "tests/simt/wavefronts.hpp"

#include <doctest/doctest.h>

namespace {

// Each pattern against what shared memory costs besides: `fill` stores that fill it, a wavefront each.
void compare(const std::vector<flash::WavefrontPattern>& patterns, const std::vector<flash::Ledger>& ledgers,
             std::uint64_t fill) {
  REQUIRE(ledgers.size() == patterns.size());
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    CAPTURE(i);
    CHECK(ledgers[i].shared_wavefronts == fill + static_cast<std::uint64_t>(patterns[i].wavefronts));
    CHECK(ledgers[i].bank_conflicts() == static_cast<std::uint64_t>(patterns[i].conflicts));
    CHECK(ledgers[i].shared_read_requests == 1);
  }
}

}  // namespace

TEST_CASE("wide shared loads cost the wavefronts that an H200 counts") {
  const auto patterns = flash::read_patterns(FLASH_SOURCE_DIR "/docs/results/wavefronts-h200.csv");
  REQUIRE(patterns.size() == 112);
  compare(patterns, flash::on_checked::run_wavefronts({}, patterns), 8192 / 32);
}

TEST_CASE("ldmatrix costs the wavefronts that an H200 counts") {
  const auto patterns = flash::read_patterns(FLASH_SOURCE_DIR "/docs/results/wavefronts-ptx-h200.csv");
  REQUIRE(patterns.size() == 56);
  compare(patterns, flash::on_checked::run_ptx_wavefronts({}, patterns), 8192 / 32);
}
