// steps.hpp: the staircase from phase 16 to 17: its kernels as phases of their own, which no list has. And what blocks
// draw, as the page asks it of the simulator (tiles by their number, head · q_tiles + q_tile), and a section's heads.
// Use: forward(*phase17::steps[2], problem, Where::Checked); or: Drawn drawn = asked_on(Where::Sim).draw(6, 8, 3, 5);
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "phases/17-persistent/phase.hpp"
#include "phases/interface/where.hpp"

namespace flash::phase17 {

// Compiled for one setting: bf16, D = 128, tiles of 128 × 128. From the second one on all of Q is read, even where no
// key is seen; nobody draws.
inline constexpr Features one_size = [] {
  Features f = features;
  f.types = {Type::BFloat16}, f.head_dims = {128}, f.blocks = {{128, 128}};
  f.hbm_bytes = [](const AnyProblem& p, Blocks blocks) { return phase14::hbm_bytes_of_tiles(p, blocks, true); };
  f.workspace = no_workspace;
  return f;
}();
inline constexpr Features first_size = [] {
  Features f = one_size;
  f.hbm_bytes = phase14::hbm_bytes;
  return f;
}();

inline constinit Pass output_pass{first_size, &phase16::phase};
inline constinit Phase output_step{"17-persistent/1-output", "O leaves by stmatrix and TMA", &output_pass};

inline constinit Pass keys_pass{one_size, &output_step};
inline constinit Phase keys_step{"17-persistent/2-keys", "each Q tile has a K/V tile", &keys_pass};

inline constinit Pass stays_pass{one_size, &keys_step};
inline constinit Phase stays_step{"17-persistent/3-stays", "a block takes one Q tile after the other", &stays_pass};

inline constinit Pass threads_pass{one_size, &stays_step};
inline constinit Phase threads_step{"17-persistent/4-threads", "one thread loads Q, another K and V", &threads_pass};

inline constexpr std::array<const Phase*, 4> steps = {&output_step, &keys_step, &stays_step, &threads_step};

struct Drawn {
  std::vector<int> order;       // tiles as the schedule lists them
  std::vector<unsigned> times;  // by tile: how often it was drawn
  unsigned counter;             // after the launch
};
struct Asked {
  Drawn (*draw)(unsigned heads, unsigned q_tiles, unsigned section, unsigned blocks);
  unsigned (*section_of)(std::int64_t heads, std::int64_t Sk, int D);
};

// By machine; filled by host.cu, which is compiled once for each.
inline constinit std::array<Asked, 3> asked_by_machine{};
inline const Asked& asked_on(Where where) {
  return asked_by_machine[static_cast<std::size_t>(where)];
}

}  // namespace flash::phase17
