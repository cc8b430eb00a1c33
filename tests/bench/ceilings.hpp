// ceilings.hpp: how fast a multiprocessor can go at what the tensor-core phases are made of: mma, ldmatrix, ex2, and
// mixes of them, which say what gets in whose way. The kernel is in ceilings.cu; flash-ceilings times it on a GPU.
// Use: const Measured m = measure_on(Where::Gpu)({.mix = mixes[0], .blocks = 132, .warps = 8, .turns = 1000}, 20);
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "phases/interface/where.hpp"

namespace flash::ceilings {

// What a warp issues in one group. mma: m16n8k16, each adding to an accumulator of its own; ldmatrix: .x4, without bank
// conflicts, read by the mma of the group; ex2: each on a register of its own.
struct Mix {
  int mma, ldmatrix, ex2;
};

// Each alone, then beside eight mma as in an attention kernel: with 32 rows per warp two ldmatrix bring the operands of
// eight mma, with 16 rows four. Two ex2 per eight mma is the ratio of D = 128, four that of D = 64.
inline constexpr std::array<Mix, 9> mixes{
    {{8, 0, 0}, {0, 4, 0}, {0, 0, 8}, {8, 2, 0}, {8, 3, 0}, {8, 4, 0}, {8, 0, 2}, {8, 0, 4}, {8, 2, 2}}};

inline std::string name(const Mix& mix) {
  std::string text;
  const auto add = [&](int count, const char* what) {
    if (count > 0) text += (text.empty() ? "" : " + ") + std::to_string(count) + " " + what;
  };
  add(mix.mma, "mma"), add(mix.ldmatrix, "ldmatrix"), add(mix.ex2, "ex2");
  return text;
}

inline constexpr int groups_per_turn = 4;  // the loop's body

struct Load {
  Mix mix;  // one of mixes
  int blocks, warps, turns;
};

// How often the whole grid issues what each warp issues `per_group` times in a group.
inline std::uint64_t warp_instructions(const Load& load, int per_group) {
  return std::uint64_t{1} * load.blocks * load.warps * load.turns * groups_per_turn * per_group;
}
inline std::uint64_t mma_flops(const Load& load) {
  return warp_instructions(load, load.mix.mma) * 2 * 16 * 8 * 16;
}
inline std::uint64_t ldmatrix_bytes(const Load& load) {
  return warp_instructions(load, load.mix.ldmatrix) * 4 * 8 * 16;  // four matrices of 8 rows of 16 bytes
}
inline std::uint64_t ex2_count(const Load& load) {
  return warp_instructions(load, load.mix.ex2) * 32;
}

// `cycles`: of the loop, by the multiprocessor's own counter, the median of the blocks; run.timing: the whole kernel.
struct Measured {
  Run run;
  double cycles;
};

// By machine; filled by ceilings.cu, which is compiled once for each. The second argument: samples for the timer, or 0.
inline constinit std::array<Measured (*)(const Load&, int), 3> measure_by_machine{};
inline auto measure_on(Where where) {
  return measure_by_machine[static_cast<std::size_t>(where)];
}

}  // namespace flash::ceilings
