// host.cu: launches the kernel of tile.cuh with one warpgroup and turns what it wrote into numbers of elements. And the
// host's side of the staircase: each step as phases are run, for one size. Compiled once per machine.
// Use: steps.hpp declares what is here.
#include "phases/14-tma-wgmma/steps/1-softmax.cuh"
#include "phases/14-tma-wgmma/steps/2-rows.cuh"
#include "phases/14-tma-wgmma/steps/3-finish.cuh"
#include "phases/14-tma-wgmma/steps/4-order.cuh"
#include "phases/14-tma-wgmma/steps/5-ahead.cuh"
#include "phases/14-tma-wgmma/steps/6-panels.cuh"
#include "phases/14-tma-wgmma/steps/7-tma.cuh"
#include "phases/14-tma-wgmma/steps/8-scores.cuh"
#include "phases/14-tma-wgmma/steps/steps.hpp"
#include "phases/14-tma-wgmma/steps/tile.cuh"

namespace flash::phase14::inline FLASH_MACHINE {

static Laid ask_a_warpgroup() {
  std::vector<half> numbers(64 * 64), identity(64 * 64);
  for (int i = 0; i < 64 * 64; ++i) {
    numbers[i] = from_float<half>(static_cast<float>(i - 2048));
    identity[i] = from_float<half>(i / 64 == i % 64);
  }
  Machine m;
  const auto A = m.upload("numbers", numbers.data(), numbers.size());
  const auto I = m.upload("identity", identity.data(), identity.size());
  const auto tile = m.alloc<std::uint16_t>("tile", 64 * 64);
  const auto S = m.alloc<float>("S", 64 * 64);
  const auto map = [](const auto& array) { return tensor_map<__half, 2>(array.data(), {64, 64}, {128}, {64, 64}); };
  ask<<<1, 128, sizeof(TwoTiles)>>>(map(A), map(I), tile.data(), S.data());
  std::vector<std::uint16_t> bits(64 * 64);
  std::vector<float> s(64 * 64);
  m.download(bits.data(), tile), m.download(s.data(), S);
  Laid laid;
  for (int i = 0; i < 64 * 64; ++i) {
    laid.tile[i / 64][i % 64] = static_cast<int>(to_float(half{bits[i]})) + 2048;
    laid.S[i / 32][i % 32] = static_cast<int>(s[i]) + 2048;
  }
  return laid;
}

static const bool added = [] {
  ask_by_machine[static_cast<std::size_t>(this_machine)] = ask_a_warpgroup;
  return true;
}();

static const Added added_steps[] = {
    added_pass<one_size, words::Attention>(softmax_pass), added_pass<one_size, rows_once::Attention>(rows_pass),
    added_pass<one_size, finish::Attention>(finish_pass), added_pass<one_size, order::Attention>(order_pass),
    added_pass<one_size, ahead::Attention>(ahead_pass),   added_pass<one_size, panels::Attention>(panels_pass),
    added_pass<one_size, tma::Attention>(tma_pass),       added_pass<one_size, scores::Attention>(scores_pass),
};

}  // namespace flash::phase14::inline FLASH_MACHINE
