// recordings.cpp: the player of the book: small runs of every phase, recorded now, in one page, or as the JSON array
// that the page has in the place of `[/* recordings */]`. The sizes are chosen so that a tile is cut off somewhere and
// the page stays below 400 KB gzipped; any other choice: ./flash run --player.
// build/default/bin/flash-recordings PLAYER.html     build/default/bin/flash-recordings --json RECORDINGS.json
#include <cstdio>
#include <cstring>

#include "phases/app/player.hpp"
#include "phases/arrays/npy.hpp"
#include "phases/pages/example.hpp"

namespace flash {
namespace {

template <class T>
std::string recorded(const Phase& phase, const Problem<T>& p, Told& told) {
  Recording recording;
  const Where where = phase.kernel() ? Where::Checked : Where::Sim;
  const Run run = forward(phase, p, where, {.recording = &recording});
  const bool tiled = phase.kernel();
  describe(recording, phase, p, tiled ? run.blocks : Blocks{p.options.block_q, p.options.block_k});
  return to_json(recording, &told);
}

Example heads(std::int64_t H, std::int64_t N, std::int64_t D) {
  const auto tensor = [&](std::uint32_t stream) { return random_tensor<float>({1, H, N, D}, 1, stream); };
  return {tensor(0), tensor(1), tensor(2), make_tensor<float>({1, H, N, D}), {}};
}

void record(const Phase& phase, std::int64_t H, std::int64_t N, Blocks blocks, Mask causal,
            std::vector<std::string>& all, Told& told) {
  const Features& can = phase.forward->features;
  const std::int64_t D = can.tensor_cores ? 64 : 32;
  Example example = heads(H, N, D);
  const Options options{.mask = causal, .block_q = blocks.Br, .block_k = blocks.Bc};
  if (can.types.contains(Type::Float32)) {
    all.push_back(recorded(phase, example.problem(options), told));
  } else {
    Rounded<half> rounded(example);
    all.push_back(recorded(phase, rounded.problem(options), told));
  }
}

}  // namespace
}  // namespace flash

int main(int count, char** words) {
  using namespace flash;
  const bool json = count == 3 && std::strcmp(words[1], "--json") == 0;
  if (!json && (count != 2 || words[1][0] == '-')) {
    std::fprintf(stderr, "usage: flash-recordings PLAYER.html | --json RECORDINGS.json\n");
    return 2;
  }
  Told told;
  std::vector<std::string> all;
  try {
    for (const Phase* phase : forward_phases()) {
      const Features& can = phase->forward->features;
      if (can.kernel && !available(can, Where::Checked)) continue;
      if (can.meets(Demand::Ranks)) {  // 62 rows, which four ranks cannot share evenly
        for (const RingLayout layout : {RingLayout::ZigZag, RingLayout::Contiguous}) {
          Example example = heads(1, 62, 32);
          const Options options{.mask = Mask::top_left(), .ring = {4, layout}};
          all.push_back(recorded(*phase, example.problem_with_lse(options), told));
        }
        continue;
      }
      // Nobody asks for lengths or modifiers here: phases that have them would run as those before them.
      if (!can.records || can.meets(Demand::Lengths) || can.meets(Demand::Softcap)) continue;
      // Without tiles a row is a step of its own: few rows.
      std::vector<Blocks> blocks = {{0, 0}};
      std::vector<std::int64_t> lengths = {16, 20};
      if (can.tiles) lengths = {64, 80};
      if (can.tiles)
        blocks = can.kernel ? std::vector<Blocks>(can.blocks.begin(), can.blocks.end())
                            : std::vector<Blocks>{{32, 16}, {16, 32}};
      if (can.tensor_maps()) {  // larger blocks: one of them, and rows for three Q tiles of 128
        std::erase_if(blocks, [&](Blocks b) { return b.Bc != 128 || !can.has(64, b); });
        lengths = {288};
      }
      // Blocks that stay for several Q tiles take them of two heads.
      const bool draws = can.workspace != no_workspace;
      const std::int64_t H = draws ? 2 : 1;
      if (draws) lengths = {160};
      for (const std::int64_t N : lengths)
        for (const Blocks b : blocks)
          for (const Mask causal : {Mask::none(), Mask::top_left()})
            if (causal == Mask::none() || (can.meets(Demand::Causal) && !can.tensor_maps()))
              record(*phase, H, N, b, causal, all, told);
    }
    write_file(words[count - 1], json ? json_array(all) : player_page(all));
  } catch (const Error& e) {
    std::fprintf(stderr, "flash-recordings: %s\n", e.what());
    return 2;
  }
  std::printf("%zu runs -> %s\n", all.size(), words[count - 1]);
}
