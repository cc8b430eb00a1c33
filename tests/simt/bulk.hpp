// bulk.hpp: copies of bytes and bulk reductions as a kernel uses them. Each block copies its part of `in` to shared
// memory, asks for it, doubles it, stores it to its part of `out`, and adds it to `sum`; where `turns` says so the
// blocks add one after another, each reading the sum of those before it. Then the mbarrier is made anew.
// Use: run_bulk(options, case) on each machine; bulk_test.cpp says what must come out.
#pragma once
#include <vector>

#include "sim/machine_options.hpp"

namespace flash {

struct BulkCase {
  unsigned floats;  // of a block: a multiple of 4, at most 1024
  unsigned blocks;
  bool turns = false, atomics_beside = false;  // the latter: threads add 1 to `sum` by atomicAdd, too
};

struct BulkResult {
  std::vector<float> seen, out;   // [blocks, floats]: what the copy brought, and twice that
  std::vector<float> sum;         // [floats]
  std::vector<float> before;      // [blocks, floats], with turns: the sum that the i-th block found
  std::vector<unsigned> answers;  // of mbarrier_test_wait, see bulk.cu
  std::vector<Finding> findings;
  std::vector<TraceEvent> trace;
  Ledger ledger;
};

namespace on_sim {
BulkResult run_bulk(const MachineOptions& options, const BulkCase& c);
}
namespace on_checked {
BulkResult run_bulk(const MachineOptions& options, const BulkCase& c);
}
namespace on_gpu {
BulkResult run_bulk(const MachineOptions& options, const BulkCase& c);
}

}  // namespace flash
