// counters.hpp: the kernels whose counters are compared with Nsight Compute's, as the host sees them.
// run_counters launches them in this order, one launch each, and returns what the machine counted.
// Use: on_checked::run_counters(options)[i] belongs to counter_cases[i].
#pragma once
#include <iterator>
#include <vector>

#include "sim/ledger.hpp"
#include "sim/machine_options.hpp"

namespace flash {

inline constexpr const char* counter_cases[] = {
    "copy_float",        // coalesced, 4 bytes a lane
    "copy_float4",       // coalesced, 16 bytes a lane
    "copy_shifted",      // coalesced, but one element off the sector boundary
    "copy_stride_2",     // lanes 8 bytes apart
    "copy_stride_8",     // lanes 32 bytes apart: a sector each
    "transpose_direct",  // no shared memory: the stores are strided by a row
    "transpose_tile",    // through float tile[32][32]: 32-way bank conflicts
    "transpose_padded",  // through float tile[32][33]: none
    "shared_float4",     // 16-byte loads and stores in shared memory
    "matmul_tiled",      // fp32, 32 x 32 tiles
};

// The same of counters_tma.cu and run_tma_counters.
inline constexpr const char* tma_counter_cases[] = {
    "bulk_load",        // 64 KiB, 1 KiB a copy
    "tensor_load",      // the same by boxes
    "bulk_store",       //
    "tensor_store",     //
    "bulk_reduce",      // each block has its own KiB
    "bulk_reduce_one",  // all blocks add to one KiB
    "atomic_add",       // the same floats as bulk_reduce, by the threads; they count as read and written
};

namespace on_sim {
std::vector<Ledger> run_counters(const MachineOptions& options);
std::vector<Ledger> run_tma_counters(const MachineOptions& options);
}  // namespace on_sim
namespace on_checked {
std::vector<Ledger> run_counters(const MachineOptions& options);
std::vector<Ledger> run_tma_counters(const MachineOptions& options);
}  // namespace on_checked
namespace on_gpu {
std::vector<Ledger> run_counters(const MachineOptions& options);
std::vector<Ledger> run_tma_counters(const MachineOptions& options);
}  // namespace on_gpu

}  // namespace flash
