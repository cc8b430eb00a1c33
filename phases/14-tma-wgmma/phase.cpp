// Phase 14's object: its declaration and what it moves. Its entry points are added by attention.cu.
// Rows of Q whose tile sees no key at all are not read.
// Use: phase.hpp declares what is here.
#include "phases/14-tma-wgmma/phase.hpp"

namespace flash::phase14 {

HbmBytes hbm_bytes_of_tiles(const Sizes& s, Blocks blocks, bool all_of_q) {
  const std::int64_t heads = s.B * s.H, row = s.D * s.element_bytes;
  std::int64_t keys = 0, q_rows = 0;
  for (std::int64_t i = 0; i < s.Sq; i += blocks.Br) {
    const std::int64_t end = std::min(i + blocks.Br, s.Sq), seen = s.visible(end - 1);
    keys += std::min((seen + blocks.Bc - 1) / blocks.Bc * blocks.Bc, s.visible(s.Sq - 1));
    q_rows += all_of_q || seen > 0 ? end - i : 0;
  }
  const std::int64_t read = q_rows * row + 2 * keys * row, written = s.Sq * row + (s.lse ? s.Sq * 4 : 0);
  return {static_cast<std::uint64_t>(heads * read), static_cast<std::uint64_t>(heads * written)};
}

HbmBytes hbm_bytes(const Sizes& s, Blocks blocks) {
  return hbm_bytes_of_tiles(s, blocks, false);
}

constinit Phase phase{features, hbm_bytes};

}  // namespace flash::phase14
