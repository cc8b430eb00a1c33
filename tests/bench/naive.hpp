// naive.hpp: the baseline on a GPU, declared as phases are: S and P written to device memory and read back.
// Not a phase: the naive phase is 01, on the CPU; this one shows what FlashAttention saves on a GPU.
// Use: Run run = forward(naive::phase, problem, Where::Gpu);
#pragma once
#include "phases/interface/phase.hpp"

namespace flash::naive {

// What it needs beside Q, K, V and O: S in fp32, P in the element type.
inline Workspace s_and_p(const AnyProblem& p) {
  const std::int64_t pairs = p.B() * p.H() * p.Sq() * p.Sk();
  return {{"S", pairs}, {"P", (pairs * bytes_of(p.type) + 3) / 4}};
}

inline constexpr Features features{
    .kernel = true, .meets = {Demand::AnyStride}, .types = {Type::Float32, Type::Float16}, .workspace = s_and_p};

inline constinit Pass forward_pass{features};
inline constinit Phase phase{"naive", "S and P go through device memory", &forward_pass};

inline std::uint64_t extra_bytes(const AnyProblem& p) {
  std::int64_t bytes = 0;
  for (const Piece& piece : s_and_p(p)) bytes += piece.count * 4;
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace flash::naive
