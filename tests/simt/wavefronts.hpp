// wavefronts.hpp: one warp, one shared load, any addresses: what does it cost? Measured on hardware, recorded as data.
// docs/results/wavefronts-h200.csv holds a pattern per row: bytes per lane, the lanes' indices, wavefronts, conflicts.
// Use: run_wavefronts(options, read_patterns(path)) launches each pattern once and returns what the machine counted.
#pragma once
#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "sim/ledger.hpp"
#include "sim/machine_options.hpp"

namespace flash {

struct WavefrontPattern {
  std::string instruction;    // 8 or 16: a load of so many bytes per lane; ldmatrix;
  std::array<int, 32> index;  // which 8 or 16 bytes each lane accesses
  int wavefronts, conflicts;  // as the hardware counted
};

inline std::vector<WavefrontPattern> read_patterns(const std::string& path) {
  std::vector<WavefrontPattern> patterns;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#' || line[0] == 'i' || line[0] == 'b') continue;  // comment, heading
    for (char& c : line) c = c == ',' ? ' ' : c;
    std::istringstream in(line);
    WavefrontPattern p{};
    in >> p.instruction;
    for (int& i : p.index) in >> i;
    if (in >> p.wavefronts >> p.conflicts) patterns.push_back(p);
  }
  return patterns;
}

namespace on_sim {
std::vector<Ledger> run_wavefronts(const MachineOptions& options, const std::vector<WavefrontPattern>& patterns);
std::vector<Ledger> run_ptx_wavefronts(const MachineOptions& options, const std::vector<WavefrontPattern>& patterns);
}  // namespace on_sim
namespace on_checked {
std::vector<Ledger> run_wavefronts(const MachineOptions& options, const std::vector<WavefrontPattern>& patterns);
std::vector<Ledger> run_ptx_wavefronts(const MachineOptions& options, const std::vector<WavefrontPattern>& patterns);
}  // namespace on_checked
namespace on_gpu {
std::vector<Ledger> run_wavefronts(const MachineOptions& options, const std::vector<WavefrontPattern>& patterns);
std::vector<Ledger> run_ptx_wavefronts(const MachineOptions& options, const std::vector<WavefrontPattern>& patterns);
}  // namespace on_gpu

}  // namespace flash
