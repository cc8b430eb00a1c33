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

// From two H200s of one host, B 1, H 16, D 128, bf16, causal, in turns without a rest (docs/results/ring-h200.md).
inline constexpr Machine two_h200 = {
    .forward = 676e12,         // measured: 64 Ki rows on one GPU
    .backward = 578e12,        // measured: the same, both passes less the forward pass
    .call = 30e-6,             // measured: what 4 Ki rows take beside the FLOPs, at the speed of 16 Ki rows
    .memory = 2.8e12,          // measured: the merge of 8 Ki rows of 16 heads
    .inside = {234e9, 53e-6},  // measured: a line through 67 MB and 268 MB by NCCL on NVLink, 340 and 1,200 us
    .between = {45e9, 60e-6},  // assumed: 0.9 of the declared 400 Gbit/s of a card; latency assumed
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
// Of the keys of all ranks those whose dK and dV go home from another rank: those that its rows see.
inline std::int64_t keys_going_home(const OnPaper& p, std::int64_t m, int ranks) {
  const std::int64_t pairs_of_ranks = std::int64_t{ranks} * (ranks - 1);
  if (!p.causal || p.layout == RingLayout::Striped) return pairs_of_ranks * m;
  return pairs_of_ranks / 2 * (p.layout == RingLayout::ZigZag ? m + m / 2 : m);  // of an earlier rank half of the keys
}
// The ring among `ranks`, each with m rows of all the heads in `p`. A step's message and its call begin together and
// the step is over when both are. What a merge or a sum moves in memory, in bytes a number: ring.hpp.
inline Cost ring_on(const OnPaper& p, const Machine& machine, const Link& link, int ranks) {
  const std::int64_t m = p.S / ranks, rows = m * p.H * p.D, keys = 2 * m * p.Hk * p.D;
  const auto in_memory = [&](std::int64_t numbers, int bytes) {
    return static_cast<double>(numbers * bytes) / machine.memory;
  };
  const auto call = [&](int step, bool back) { return call_seconds(p, machine, p.H, busiest_pairs(p, m, step), back); };
  const auto passed_on = [&](int step) { return step + 1 < ranks ? static_cast<double>(keys * p.bytes) : 0.0; };
  Cost cost;
  for (int step = 0; step < ranks; ++step) {
    double merge = 0;  // the first set is where the sum is to be
    if (step > 0) merge = in_memory(rows, step + 1 < ranks ? 12 : 8 + p.bytes);
    cost.seconds += std::max(call(step, false) + merge, seconds_of(link, passed_on(step)));
  }
  const std::int64_t hops = std::int64_t{ranks} * (ranks - 1);
  cost.bytes = static_cast<std::uint64_t>(hops * keys * p.bytes);
  if (!p.backward) return cost;
  cost.bytes += cost.bytes + static_cast<std::uint64_t>(2 * keys_going_home(p, m, ranks) * p.Hk * p.D * p.bytes);
  if (ranks == 1) return cost.seconds += call(0, true), cost;
  for (int step = 0; step <= ranks; ++step) {  // what was left in a step goes home beside the next call
    const double home = step > 1 ? static_cast<double>(keys * p.bytes) : 0;
    double work = 0;
    if (step == 0) work = call(step, true) + in_memory(rows + keys, p.bytes + 4);  // the sums begin
    if (step > 0 && step < ranks) work = call(step, true) + in_memory(rows, p.bytes + 8);
    cost.seconds += std::max(work, seconds_of(link, passed_on(step) + home));
    if (step > 1) cost.seconds += in_memory(keys, p.bytes + 8);
  }
  cost.seconds += in_memory(rows + keys, 4 + p.bytes);  // rounded
  return cost;
}
inline Cost cost_of_ring(const OnPaper& p, const Machine& machine, int gpus) {
  return ring_on(p, machine, gpus <= machine.host ? machine.inside : machine.between, gpus);
}
// #endregion

// #region paper-all-to-all
// What a rank's arrays take to change between rows and heads, and back: those that a call reads at once, those that it
// writes at once, each packed and unpacked by a copy. `heads`, `heads_k`: of all the `ranks`.
inline Cost exchanges(const OnPaper& p, const Machine& machine, int ranks) {
  const std::int64_t m = p.S / ranks, rows = m * p.H * p.D * p.bytes, keys = m * p.Hk * p.D * p.bytes,
                     lse = m * p.H * 4;
  const int near = std::min(ranks, machine.host) - 1, far = ranks - 1 - near;
  Cost cost;
  const auto all_to_all = [&](std::int64_t bytes) {  // of a rank; an n-th goes to each
    const double part = static_cast<double>(bytes / ranks);
    cost.seconds += std::max(seconds_of(machine.inside, near * part), seconds_of(machine.between, far * part)) +
                    4 * static_cast<double>(bytes) / machine.memory;
    cost.bytes += static_cast<std::uint64_t>(bytes / ranks * (ranks - 1) * ranks);
  };
  all_to_all(rows + 2 * keys), all_to_all(rows + lse);  // Q, K, V; O, LSE
  if (p.backward) all_to_all(3 * rows + 2 * keys + lse), all_to_all(rows + 2 * keys);
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
