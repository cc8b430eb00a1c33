// naive.hpp: the baseline of seed 003 as a host function: S and P written to device memory and read back.
// Not a phase: the naive phase is 01, on the CPU; this one shows what FlashAttention saves on a GPU.
// Use: Run run = naive::on_gpu::run(problem, options);
#pragma once
#include "phases/common/problem.hpp"
#include "phases/common/where.hpp"

namespace flash::naive {

inline constexpr Features features{.phase = "naive"};

// What it needs beside Q, K, V and O: S in fp32, P in the element type.
template <class T>
std::uint64_t extra_bytes(const Problem<T>& p) {
  return static_cast<std::uint64_t>(p.B() * p.H() * p.Sq() * p.Sk()) * (sizeof(float) + sizeof(T));
}

// naive.cu, compiled once per machine. Dense tensors only. OutOfMemory where S and P do not fit.
inline namespace on_sim {
template <class T>
Run run(const Problem<T>& p, const MachineOptions& options);
}
inline namespace on_checked {
template <class T>
Run run(const Problem<T>& p, const MachineOptions& options);
}
inline namespace on_gpu {
template <class T>
Run run(const Problem<T>& p, const MachineOptions& options);
}

}  // namespace flash::naive
