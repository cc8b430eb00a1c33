// host.cu: launches the kernel of fragments.cuh with one warp and unpacks what it wrote. Compiled once per machine.
// Two 16-bit floats in a register, the first in its lower half.
// Use: steps.hpp declares what is here.
#include <span>

#include "phases/10-tensor-cores/steps/fragments.cuh"
#include "phases/10-tensor-cores/steps/steps.hpp"

namespace flash::phase10::inline FLASH_MACHINE {

static Held ask_a_warp() {
  Machine m;
  const auto A = m.alloc<unsigned>("A", 128), B = m.alloc<unsigned>("B", 64), Bt = m.alloc<unsigned>("Bt", 64);
  const auto C = m.alloc<float>("C", 128);
  ask<<<1, 32, sizeof(Squares)>>>(A.data(), B.data(), Bt.data(), C.data());
  std::array<unsigned, 128> a;
  std::array<unsigned, 64> b, bt;
  std::array<float, 128> c;
  m.download(a.data(), A), m.download(b.data(), B), m.download(bt.data(), Bt), m.download(c.data(), C);
  const auto element = [](std::span<const unsigned> registers, std::size_t i) {
    return static_cast<int>(to_float(half::of_bits(static_cast<std::uint16_t>(registers[i / 2] >> 16 * (i % 2)))));
  };
  Held held;
  for (std::size_t lane = 0; lane < 32; ++lane) {
    for (std::size_t i = 0; i < 8; ++i) held.A[lane][i] = element(a, 8 * lane + i);
    for (std::size_t i = 0; i < 4; ++i) {
      held.B[lane][i] = element(b, 4 * lane + i);
      held.B_transposed[lane][i] = element(bt, 4 * lane + i);
      held.C[lane][i] = static_cast<int>(c[4 * lane + i]);
    }
  }
  return held;
}

static const bool added = [] {
  ask_by_machine[static_cast<std::size_t>(this_machine)] = ask_a_warp;
  return true;
}();

}  // namespace flash::phase10::inline FLASH_MACHINE
