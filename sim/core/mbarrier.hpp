// mbarrier.hpp: one mbarrier of a block: arrivals and bytes of its current phase, what its completed phases brought.
// PTX ISA, "mbarrier": a phase is complete when no arrival is pending and the tx-count is 0; then the next one begins.
// Use: Bulk (bulk.hpp) has those of the running block.
#pragma once
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/core/async.hpp"
#include "sim/core/simt.hpp"

namespace flash::simt {

class Worker;

struct Mbarrier {
  static constexpr std::int64_t kMost = (1 << 20) - 1;  // arrivals, and bytes

  std::byte* at;        // its 8 bytes of shared memory
  unsigned expected;    // arrivals in each phase
  unsigned missing;     // arrivals in the current one
  Site site;            // of its mbarrier_init
  unsigned thread;      // that made it
  bool fenced = false;  // fence_mbarrier_init came behind it

  std::int64_t bytes = 0;                             // the tx-count: expected, and not there yet
  std::int64_t expected_bytes = 0, copied_bytes = 0;  // in this phase: by arrivals, by copies that were issued
  std::uint64_t phase = 0;                            // so many are complete
  bool observed = true;                               // a wait has returned for the last complete one
  std::vector<unsigned> waiting;                      // threads, for the current phase
  std::bitset<1024> released;                         // threads that waited for the last one and have not run since
  unsigned polling = 0;                               // threads that let others run before they ask again
  std::uint64_t polled = 0;                           // the phase that the last of these asked for

  // Copies whose bytes came in this phase; in earlier ones, and no wait has returned since.
  struct Brought {
    AsyncRanges::Id reading, writing;
    unsigned issuer;
    const char* name;  // of its instruction
    Site site;
    std::size_t event;  // in the trace
    unsigned block;     // the issuer's
    Worker* reader;     // the block whose shared memory it reads; null: it reads global memory
  };
  std::vector<Brought> arrived, complete;
  std::uint64_t last_arrival = 0, completed_at = 0;  // the trace's time: in this phase; the last complete one

  // Does a thread want the current phase to be complete?
  bool awaited() const { return !waiting.empty() || (polling > 0 && polled == phase); }
  bool done(unsigned parity) const { return (phase & 1) != (parity & 1); }
};

}  // namespace flash::simt
