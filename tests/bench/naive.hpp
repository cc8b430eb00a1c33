// naive.hpp: the baseline on a GPU, declared as phases are: S and P written to device memory and read back.
// Not a phase: the naive phase is 01, on the CPU; this one shows what FlashAttention saves on a GPU.
// Use: Run run = forward(naive::phase, problem, Where::Gpu);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::naive {

inline constexpr Features features{.phase = "naive",
                                   .change = "S and P go through device memory",
                                   .kernel = true,
                                   .types = {Type::Float32, Type::Float16}};

inline constinit Phase phase{features, nullptr};

// What it needs beside Q, K, V and O: S in fp32, P in the element type.
template <class T>
std::uint64_t extra_bytes(const Problem<T>& p) {
  return static_cast<std::uint64_t>(p.B() * p.H() * p.Sq() * p.Sk()) * (sizeof(float) + sizeof(T));
}

}  // namespace flash::naive
