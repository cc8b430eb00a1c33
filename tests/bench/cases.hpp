// cases.hpp: what the GPU benchmark times: three sweeps, which kernel takes part in which, and what a run must do.
// Only sizes and arithmetic, so that it is tested where there is no GPU (tests/bench/bench_test.cpp).
// Use: for (const Entry& e : plan()) …; flash-gpu-bench --dry-run prints it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "phases/interface/phase.hpp"
#include "tests/bench/naive.hpp"

namespace flash::bench {

// Sq = Sk = N; elements are fp16; causal is top-left, which for Sq = Sk is bottom-right as well.
struct Case {
  std::string sweep;  // "kernels", "naive-vs-flash" or "steps"
  std::int64_t B, H, N, D;
  bool causal;
};

// Pairs (query, key) that meet: what a mask hides is no work.
inline std::uint64_t visible_pairs(const Case& c) {
  const std::uint64_t N = static_cast<std::uint64_t>(c.N), heads = static_cast<std::uint64_t>(c.B * c.H);
  return heads * (c.causal ? N * (N + 1) / 2 : N * N);
}

// Two multiply-adds per pair and column, one in Q·K and one in P·V.
inline std::uint64_t flops(const Case& c) {
  return 4 * visible_pairs(c) * static_cast<std::uint64_t>(c.D);
}

// Q, K, V read once and O written once: no algorithm moves less.
inline std::uint64_t least_bytes(const Case& c) {
  return static_cast<std::uint64_t>(4 * c.B * c.H * c.N * c.D) * sizeof(half);
}

// The naive baseline, and all kernel phases with a forward pass of their own.
inline const std::vector<const Phase*>& kernels() {
  static const std::vector<const Phase*> all = [] {
    std::vector<const Phase*> list = {&naive::phase};
    for (const Phase* phase : forward_phases())
      if (phase->kernel()) list.push_back(phase);
    return list;
  }();
  return all;
}

// kernels: all kernel phases, on the sizes of Triton's tutorial. naive-vs-flash: in doublings, up to where the naive
// one no longer fits. steps: of two tiles, so that uneven last waves show.
inline std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::int64_t D : {64, 16})
    for (const bool causal : {false, true})
      for (std::int64_t N = 512; N <= 8192; N *= 2) all.push_back({"kernels", 4, 48, N, D, causal});
  for (const bool causal : {false, true}) all.push_back({"kernels", 8, 32, 4096, 128, causal});
  for (std::int64_t N = 512; N <= 16384; N *= 2) all.push_back({"naive-vs-flash", 4, 32, N, 64, false});
  for (std::int64_t N = 256; N <= 4096; N += 128) all.push_back({"steps", 4, 12, N, 64, false});
  return all;
}

inline bool takes_part(const Phase& kernel, const Case& c) {
  if (c.causal && !kernel.forward->features.meets(Demand::Causal)) return false;
  const bool is_naive = &kernel == &naive::phase;
  const auto without = std::find_if(kernels().rbegin(), kernels().rend(), [](const Phase* phase) {
    const Features& can = phase->forward->features;  // and not for training
    return !can.tensor_cores && !can.meets(Demand::Kept);
  });
  const bool is_newest = &kernel == kernels().back(), is_last_without_tensor_cores = &kernel == *without;
  if (c.sweep == "kernels") return !is_naive;
  if (c.sweep == "naive-vs-flash") return is_naive || is_last_without_tensor_cores || is_newest;
  return is_newest;
}

// One measurement.
struct Measurement {
  const Phase* kernel;
  Case at;
};

inline std::vector<Measurement> plan() {
  std::vector<Measurement> measurements;
  for (const Case& c : cases())
    for (const Phase* kernel : kernels())
      if (takes_part(*kernel, c)) measurements.push_back({kernel, c});
  return measurements;
}

// Do two cases differ in N alone?
inline bool same_series(const Case& a, const Case& b) {
  return a.sweep == b.sweep && a.B == b.B && a.H == b.H && a.D == b.D && a.causal == b.causal;
}

// The sanity law: more keys cannot cost less. Each block does at least N2/N1 times the work, and there are no fewer of
// them; a fifth of slack for the part that does not grow with N (start, first loads) and for uneven last waves.
inline bool grows(std::int64_t N1, double ms1, std::int64_t N2, double ms2) {
  return ms2 >= 0.8 * ms1 * static_cast<double>(N2) / static_cast<double>(N1);
}

}  // namespace flash::bench
