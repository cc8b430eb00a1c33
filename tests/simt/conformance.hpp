// conformance.hpp: the intrinsics' conformance suite as the host sees it: families, each a list of 32-bit words.
// One source (conformance.cu) runs on every machine; what an H200 gave is in docs/results/conformance-h200.txt, and for
// the families of conformance_wgmma.cu and conformance_hopper.cu in conformance-wgmma-h200.txt, conformance-hopper-….
// Use: for (const Family& f : on_checked::run_conformance(options)) compare(f, recorded);
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/machine_options.hpp"

namespace flash {

struct Family {
  std::string name;
  std::vector<std::uint32_t> words;
  int max_ulp = 0;  // 0: the bits must be equal; else: floats that may differ by so many units in the last place
};

// FNV-1a over the words' bytes, least significant first.
inline std::uint64_t hash_words(const std::uint32_t* words, std::size_t count) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < count; ++i)
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (words[i] >> shift & 0xffu)) * 0x100000001b3u;
  return hash;
}

namespace on_sim {
std::vector<Family> run_conformance(const MachineOptions& options);      // all of them
std::vector<Family> run_ptx_conformance(const MachineOptions& options);  // conformance_ptx.cu
std::vector<Family> run_wgmma_conformance(const MachineOptions& options);  // conformance_wgmma.cu, not among them
std::vector<Family> run_hopper_conformance(const MachineOptions& options);  // conformance_hopper.cu, nor these
std::vector<Family> run_cluster_conformance(const MachineOptions& options);  // conformance_cluster.cu, nor these
std::vector<Family> run_words_conformance(const MachineOptions& options);  // conformance_words.cu, nor these
}
namespace on_checked {
std::vector<Family> run_conformance(const MachineOptions& options);      // all of them
std::vector<Family> run_ptx_conformance(const MachineOptions& options);  // conformance_ptx.cu
std::vector<Family> run_wgmma_conformance(const MachineOptions& options);  // conformance_wgmma.cu, not among them
std::vector<Family> run_hopper_conformance(const MachineOptions& options);  // conformance_hopper.cu, nor these
std::vector<Family> run_cluster_conformance(const MachineOptions& options);  // conformance_cluster.cu, nor these
std::vector<Family> run_words_conformance(const MachineOptions& options);  // conformance_words.cu, nor these
}
namespace on_gpu {
std::vector<Family> run_conformance(const MachineOptions& options);      // all of them
std::vector<Family> run_ptx_conformance(const MachineOptions& options);  // conformance_ptx.cu
std::vector<Family> run_wgmma_conformance(const MachineOptions& options);  // conformance_wgmma.cu, not among them
std::vector<Family> run_hopper_conformance(const MachineOptions& options);  // conformance_hopper.cu, nor these
std::vector<Family> run_cluster_conformance(const MachineOptions& options);  // conformance_cluster.cu, nor these
std::vector<Family> run_words_conformance(const MachineOptions& options);  // conformance_words.cu, nor these
}

}  // namespace flash
