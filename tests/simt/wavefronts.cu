// wavefronts.cu: a warp loads float2 or float4 from shared memory at indices that the host chooses, one launch each.
// The indices come from memory, so that no compiler sees the pattern; all of V is stored, so that it loads all of it.
// Use: wavefronts.hpp.
#include "gpu/kernel.cuh"
#include "tests/simt/wavefronts.hpp"

namespace flash::inline FLASH_MACHINE {

constexpr int kFloats = 8192;

struct WavefrontSmem {
  alignas(128) float words[kFloats];
};

template <class V>
__global__ void load_by_index(const int* index /*[32]*/, V* out /*[32]*/) {
  WavefrontSmem& s = shared<WavefrontSmem>();
  for (int i = threadIdx.x; i < kFloats; i += 32) s.words[i] = static_cast<float>(i);
  __syncwarp();  // the words are there before another lane's are read
  out[threadIdx.x] = reinterpret_cast<const V*>(s.words)[index[threadIdx.x]];
}

std::vector<Ledger> run_wavefronts(const MachineOptions& options, const std::vector<WavefrontPattern>& patterns) {
  Machine m(options);
  auto out2 = m.alloc<float2>("out", 32);
  auto out4 = m.alloc<float4>("out", 32);
  for (const WavefrontPattern& p : patterns) {
    const auto index = m.upload("index", p.index.data(), p.index.size());
    if (p.instruction == "8")
      launch<WavefrontSmem>(m, load_by_index<float2>, dim3(1), dim3(32), index.data(), out2.data());
    else
      launch<WavefrontSmem>(m, load_by_index<float4>, dim3(1), dim3(32), index.data(), out4.data());
  }
  std::vector<Ledger> ledgers;
  for (const KernelReport& report : m.reports()) ledgers.push_back(report.ledger);
  return ledgers;
}

}  // namespace flash::inline FLASH_MACHINE
