// conformance.cuh: what the kernel files of the conformance suite share: their inputs, and a kernel's run as a family.
// Inputs are made in the kernels, from words that are the same on every machine.
// Use: Family family = collect<unsigned>(m, "votes", 64 * 96, dim3(1), dim3(32), votes);
#pragma once
#include "gpu/kernel.cuh"
#include "tests/simt/conformance.hpp"

namespace flash::inline FLASH_MACHINE {

// A well-mixed word for each index (lowbias32): the inputs of all families, made in the kernel.
__device__ inline unsigned mix(unsigned x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// Runs kernel(args…, out) and returns the words that it wrote (zero where it wrote nothing).
template <class Out, class... Parameters, class... Arguments>
Family collect(Machine& m, const char* name, std::size_t words, dim3 grid, dim3 block, void (*kernel)(Parameters...),
               const Arguments&... arguments) {
  Family family{name, std::vector<std::uint32_t>(words), 0};
  const Array<std::uint32_t> out = m.upload(name, family.words.data(), words);
  launch(m, kernel, grid, block, arguments..., reinterpret_cast<Out*>(out.data()));
  m.download(family.words.data(), out);
  return family;
}

}  // namespace flash::inline FLASH_MACHINE
