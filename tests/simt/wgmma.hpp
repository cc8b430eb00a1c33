// wgmma.hpp: products of whole tiles by wgmma as the host sees them, for comparison with exact sums.
// One source (wgmma.cu) runs on every machine. Use: on_checked::multiply(shape, a, b, c, options)
#pragma once
#include <cstdint>
#include <vector>

#include "sim/ledger.hpp"
#include "sim/machine_options.hpp"

namespace flash {

// D [64,n] = C + A B with A [64,k] and B [k,n]; k is a multiple of 64.
struct WgmmaShape {
  bool bfloat16 = true;  // else half
  bool a_in_registers = false;
  bool a_mn_major = false;  // A lies as [k][64], else as [64][k]; not in registers
  bool b_mn_major = false;  // B lies as [k][n], else as [n][k]
  int n = 64, k = 64;
  int warpgroups = 1;  // all multiply the same
};

struct WgmmaResult {
  std::vector<float> d;  // [warpgroups][64][n]
  Ledger ledger;
};

// Elements as bits of their type, A and B by rows [64][k] and [k][n].
namespace on_sim {
WgmmaResult multiply(const WgmmaShape& shape, const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b,
                     const std::vector<float>& c, const MachineOptions& options);
// With tiles that are __shared__ variables: A is row + 1 in all columns, B is 1.
WgmmaResult multiply_variables(const MachineOptions& options);
// Each of 64 threads adds 1 to 4 floats of 0, 1, 2 … by red_add_v4, 2 by atomicAdd of a float4.
WgmmaResult add_vectors(const MachineOptions& options);
// What is found when A's descriptor begins `start` bytes behind a multiple of 1024.
std::vector<Finding> multiply_from(const MachineOptions& options, unsigned start);
// What is found when one lane of each warp asks for another number of registers than the others.
std::vector<Finding> ask_differently(const MachineOptions& options);
}  // namespace on_sim
namespace on_checked {
WgmmaResult multiply(const WgmmaShape& shape, const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b,
                     const std::vector<float>& c, const MachineOptions& options);
WgmmaResult multiply_variables(const MachineOptions& options);
WgmmaResult add_vectors(const MachineOptions& options);
// What is found when A's descriptor begins `start` bytes behind a multiple of 1024.
std::vector<Finding> multiply_from(const MachineOptions& options, unsigned start);
// What is found when one lane of each warp asks for another number of registers than the others.
std::vector<Finding> ask_differently(const MachineOptions& options);
}  // namespace on_checked

}  // namespace flash
