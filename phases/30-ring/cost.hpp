// Phase 30: how long attention takes on n GPUs, on paper: by the ring, by all-to-all (Ulysses), and by both together
// (2-D: all-to-all inside a host, a ring across hosts). One formula, no events; what it assumes is written at Machine.
// Use: cost_of_ring({.S = 1 << 20, .H = 64, .Hk = 8, .D = 128}, two_h200, 64).seconds
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>

#include "phases/interface/problem.hpp"

namespace flash::phase30 {

// #region machine
// A message: bytes / bytes_per_second, after so many seconds in which nothing flows.
struct Link {
  double bytes_per_second, latency;
};

// All links of a kind are as fast as each other, none waits for another's messages, and no kernel is slower beside one.
struct Machine {
  double forward, backward;  // FLOP/s of a long call, of those that count: pairs of a row and a key that it sees
  double call;               // s that a call takes besides: its beginning, and the end where a GPU runs out of tiles
  double memory;             // bytes/s of the kernels that merge, add and copy
  Link inside, between;      // from GPU to GPU of one host; of two hosts, by the GPU's own network card
  int host;                  // GPUs of a host
};

// From two H200s of one host, B 1, H 16, D 128, bf16, causal.
inline constexpr Machine two_h200 = {
    .forward = 735e12,         // measured: a line through 16 Ki and 64 Ki rows on one GPU (690 and 728 TFLOP/s) …
    .backward = 675e12,        // measured: phase 24, 16 Ki rows without a mask
    .call = 80e-6,             // … and where that line begins
    .memory = 3.84e12,         // assumed: 0.8 of the declared 4.8 TB/s
    .inside = {373e9, 20e-6},  // measured: 67.1 MB by NCCL on NVLink took 0.18 ms; latency assumed
    .between = {45e9, 30e-6},  // assumed: 0.9 of the declared 400 Gbit/s of a card; latency assumed
    .host = 8,
};
// #endregion

// #region paper
struct OnPaper {
  std::int64_t S, H, Hk, D;  // as many rows as keys; batch 1
  int bytes = 2;             // of a number of Q, K, V, O and the gradients
  bool causal = true;
  RingLayout layout = RingLayout::ZigZag;  // of the ring
  bool backward = false;                   // then both passes, one after the other
};
// Of the rank that is last, and what all ranks together send.
struct Cost {
  double seconds = 0;
  std::uint64_t bytes = 0;
};

// Pairs of the busiest rank in a step of the ring: m rows and m keys.
inline double busiest_pairs(const OnPaper& p, std::int64_t m, int step) {
  const double block = static_cast<double>(m) * static_cast<double>(m);
  if (!p.causal) return block;
  if (step == 0 || p.layout == RingLayout::Striped) return (block + static_cast<double>(m)) / 2;  // its own triangle
  return p.layout == RingLayout::ZigZag ? block / 2 : block;  // contiguous: some rank has a whole block
}
// Two products in the forward pass, five in the backward pass; 2 FLOPs for each pair and column of a head.
inline double call_seconds(const OnPaper& p, const Machine& machine, std::int64_t heads, double pairs, bool back) {
  const double flops = (back ? 10 : 4) * static_cast<double>(heads * p.D) * pairs;
  return machine.call + flops / (back ? machine.backward : machine.forward);
}
// One GPU that has all.
inline double seconds_on_one(const OnPaper& p, const Machine& machine) {
  double seconds = 0;
  for (const bool back : {false, true})
    if (!back || p.backward) seconds += call_seconds(p, machine, p.H, busiest_pairs(p, p.S, 0), back);
  return seconds;
}
inline double seconds_of(const Link& link, double bytes) {
  return bytes > 0 ? link.latency + bytes / link.bytes_per_second : 0;
}
// #endregion

// #region paper-ring
// The ring among `ranks`, each with m rows of all the heads in `p`. A step's message and its call begin together and
// the step is over when both are. What a merge or a sum moves in memory, in bytes a number: ring.hpp.
inline Cost ring_on(const OnPaper& p, const Machine& machine, const Link& link, int ranks) {
  const std::int64_t m = p.S / ranks, rows = m * p.H * p.D, keys = 2 * m * p.Hk * p.D;
  double seconds = 0, sent = 0;
  for (const bool back : {false, true}) {
    if (back && !p.backward) break;
    for (int step = 0; step < ranks; ++step) {
      double moved = 0;  // by the kernels behind the call
      if (ranks == 1)
        moved = 0;  // it is the call alone
      else if (back)
        moved = static_cast<double>((rows + keys) * (p.bytes + 8));  // a part is read, a sum is read and written
      else if (step + 1 == ranks)
        moved = static_cast<double>(rows * (8 + p.bytes));  // the sum and the last set are read, O is written
      else if (step > 0)
        moved = static_cast<double>(rows * 12);  // the first set is where the sum is to be
      double message = step + 1 < ranks ? static_cast<double>(keys * p.bytes) : 0;
      if (back && step > 0) message += static_cast<double>(4 * keys);  // dK and dV follow their keys
      const double call = call_seconds(p, machine, p.H, busiest_pairs(p, m, step), back);
      seconds += std::max(call + moved / machine.memory, seconds_of(link, message)), sent += message;
    }
    if (!back || ranks == 1) continue;
    seconds += seconds_of(link, static_cast<double>(4 * keys)), sent += static_cast<double>(4 * keys);  // home
    seconds += static_cast<double>((rows + keys) * (4 + p.bytes)) / machine.memory;                     // rounded
  }
  return {seconds, static_cast<std::uint64_t>(sent) * static_cast<std::uint64_t>(ranks)};
}
inline Cost cost_of_ring(const OnPaper& p, const Machine& machine, int gpus) {
  return ring_on(p, machine, gpus <= machine.host ? machine.inside : machine.between, gpus);
}
// #endregion

// #region paper-all-to-all
// What a rank's arrays take to change between rows and heads, and back: an array has n - 1 messages, one after the
// other, each of an n-th part, and is packed and unpacked by a copy. Passed are Q, K, V, O and LSE; in the backward
// pass these again, dO, dQ, dK and dV. `heads`, `heads_k`: of all the `ranks`.
inline Cost exchanges(const OnPaper& p, const Machine& machine, int ranks) {
  const std::int64_t m = p.S / ranks;
  const int near = std::min(ranks, machine.host) - 1, far = ranks - 1 - near;
  Cost cost;
  const auto array = [&](std::int64_t bytes, int times) {
    const double part = static_cast<double>(bytes / ranks);
    cost.seconds += times * (near * seconds_of(machine.inside, part) + far * seconds_of(machine.between, part) +
                             4 * static_cast<double>(bytes) / machine.memory);
    cost.bytes += static_cast<std::uint64_t>(times * (bytes / ranks) * (ranks - 1) * ranks);
  };
  array(m * p.H * p.D * p.bytes, p.backward ? 2 + 4 : 2);
  array(m * p.Hk * p.D * p.bytes, p.backward ? 2 + 4 : 2);
  array(m * p.H * 4, p.backward ? 2 : 1);
  return cost;
}
// Nothing where K's heads cannot be spread.
inline std::optional<Cost> cost_of_ulysses(const OnPaper& p, const Machine& machine, int gpus) {
  if (p.H % gpus != 0 || p.Hk % gpus != 0) return std::nullopt;
  Cost cost = exchanges(p, machine, gpus);
  for (const bool back : {false, true})
    if (!back || p.backward) cost.seconds += call_seconds(p, machine, p.H / gpus, busiest_pairs(p, p.S, 0), back);
  return cost;
}
// #endregion

// #region paper-2d
// The GPUs of a host change rows for heads among them; then each has the host's rows of some heads, and goes round a
// ring with the GPU of the same place of each other host. Every network card is used, and a step has `host` times the
// work for as many bytes: `host` times as many rows, and as many times fewer heads.
inline std::optional<Cost> cost_of_2d(const OnPaper& p, const Machine& machine, int gpus) {
  const int host = std::min(gpus, machine.host), hosts = gpus / host;
  if (p.H % host != 0 || p.Hk % host != 0) return std::nullopt;
  OnPaper part = p;
  part.H /= host, part.Hk /= host;
  Cost ring = ring_on(part, machine, machine.between, hosts);
  part = p, part.S /= hosts;
  const Cost inside = exchanges(part, machine, host);
  return Cost{ring.seconds + inside.seconds,
              ring.bytes * static_cast<std::uint64_t>(host) + inside.bytes * static_cast<std::uint64_t>(hosts)};
}
// #endregion

}  // namespace flash::phase30
