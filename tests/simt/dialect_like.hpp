// dialect_like.hpp: a user's header whose name begins like the simulator's own; findings must name its lines.
// Included by tests/simt_machine.cu.
// Run: simt_machine_test
#pragma once

namespace flash::inline FLASH_MACHINE {

__device__ inline void put(int* p, int value) {
  *p = value;
}

}  // namespace flash::inline FLASH_MACHINE
