// tma.hpp: one box of a tensor, loaded by TMA, read by ordinary loads, and stored by TMA to the same place of another
// tensor: whatever its rank, and wherever it lies.
// And all of it together, as an attention kernel uses it: a warp that loads, four that compute, a ring between them.
// And a box of 8 rows in a __shared__ array, whose mbarrier expects so many bytes: 1024 are right.
// And a box of which some elements were never written.
// And a prefetch with four coordinates by a map of two dimensions.
// And a load or store of rows of 9 elements while another thread writes a column of each.
// Use: run_box(options, box), run_ring(options), … on each machine; tma_test.cpp says what must come out.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "sim/machine_options.hpp"

namespace flash {

// Addresses in bytes are numbers modulo 2^64, of elements modulo 2^63.
constexpr std::size_t kLargestIndex = ~std::size_t{0} >> 1;

struct BoxCase {
  unsigned rank;  // 2 to 5
  std::array<std::uint64_t, 5> sizes;
  std::array<std::uint64_t, 5> strides;  // in elements, of x always 1
  std::array<std::uint32_t, 5> box;
  std::array<int, 5> at;     // of the box's first element
  unsigned blocks = 1;       // thread blocks, each with a box to the right of the last one's
  bool in_place = false;     // it is stored where it came from
  bool stores = true;        // it is stored
  std::size_t elements = 0;  // in memory; 0: from coordinates 0 to the last ones
};

struct BoxResult {
  std::vector<std::uint16_t> seen;  // the box's elements in shared memory, x fastest
  std::vector<std::uint16_t> out;   // the other tensor's memory
  std::vector<Finding> findings;
  Ledger ledger;
};

// The first tensor's memory holds its index in each place, the other's 0xabcd.
inline constexpr std::uint16_t kUntouched = 0xabcd;
// A row ends with 16 bytes, of which stores write all.
constexpr std::uint64_t whole_pieces(std::uint64_t elements) {
  return (elements + 7) / 8 * 8;
}
inline std::size_t extent(const BoxCase& c) {
  if (c.elements > 0) return c.elements;
  std::size_t all = whole_pieces(c.sizes[0]);
  for (unsigned axis = 1; axis < c.rank; ++axis) all += (c.sizes[axis] - 1) * c.strides[axis];
  return all;
}

// For each item i: out[i, half, x] = q[i, x] * the sum over the rows r with r / 4 % 2 = half of k[r, x], modulo 2^16.
constexpr int kItems = 5, kRows = 44;
struct RingResult {
  std::vector<std::uint16_t> q, k, out;  // [kItems, 64], [kRows, 64], [kItems, 2, 64]
  std::vector<Finding> findings;
  std::vector<TraceEvent> trace;
  Ledger ledger;
};

// A tensor of 8 rows of 64 elements, of which the first `written` are. TMA loads the box from column 8 of row 2 on, and
// stores it. Threads use what comes from the first `used` elements, in shared memory and where it was stored.
namespace on_sim {
BoxResult run_box(const MachineOptions& options, const BoxCase& box);
RingResult run_ring(const MachineOptions& options);
std::vector<Finding> run_wrong_prefetch(const MachineOptions& options);
std::vector<Finding> run_odd_rows(const MachineOptions& options, bool stores, int column);
BoxResult run_static_tile(const MachineOptions& options, unsigned expected_bytes, unsigned more_bytes = 0);
std::vector<Finding> run_partly_written(const MachineOptions& options, int written, int used);
}  // namespace on_sim
namespace on_checked {
BoxResult run_box(const MachineOptions& options, const BoxCase& box);
RingResult run_ring(const MachineOptions& options);
std::vector<Finding> run_wrong_prefetch(const MachineOptions& options);
std::vector<Finding> run_odd_rows(const MachineOptions& options, bool stores, int column);
BoxResult run_static_tile(const MachineOptions& options, unsigned expected_bytes, unsigned more_bytes = 0);
std::vector<Finding> run_partly_written(const MachineOptions& options, int written, int used);
}  // namespace on_checked
namespace on_gpu {
BoxResult run_box(const MachineOptions& options, const BoxCase& box);
RingResult run_ring(const MachineOptions& options);
std::vector<Finding> run_wrong_prefetch(const MachineOptions& options);
std::vector<Finding> run_odd_rows(const MachineOptions& options, bool stores, int column);
BoxResult run_static_tile(const MachineOptions& options, unsigned expected_bytes, unsigned more_bytes = 0);
std::vector<Finding> run_partly_written(const MachineOptions& options, int written, int used);
}  // namespace on_gpu

}  // namespace flash
