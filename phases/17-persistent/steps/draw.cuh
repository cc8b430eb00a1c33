// draw.cuh: who draws what: blocks of one thread that do nothing but draw numbers, as phase 17's blocks do.
// The schedule and the draw are the phase's own (attention.cuh).
// Run it: ./flash notebook 17
#pragma once
#include "phases/17-persistent/schedule.cuh"

namespace flash::phase17::inline FLASH_MACHINE {

// #region draw-all
// Tile (head, q_tile) has the number head · q_tiles + q_tile here. order: the tiles as the schedule lists them; times:
// how often each of them was drawn.
__global__ void draw_all(Schedule schedule, unsigned* counter /*0*/, int* order, unsigned* times) {
  for (unsigned i = blockIdx.x; i < schedule.tiles(); i += gridDim.x) {
    const Work work = schedule.at(i);
    order[i] = work.head * static_cast<int>(schedule.q_tiles) + work.q_tile;
  }
  for (Work work = draw(schedule, counter, true); work.head >= 0; work = draw(schedule, counter, false))
    atomicAdd(&times[work.head * static_cast<int>(schedule.q_tiles) + work.q_tile], 1u);
}
// #endregion

}  // namespace flash::phase17::inline FLASH_MACHINE
