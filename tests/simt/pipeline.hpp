// pipeline.hpp: a small attention kernel in which all of Hopper's instructions work together, as the host sees it.
// One source (pipeline.cu) runs on every machine. Use: on_checked::attend(q, k, v, rows, keys, options)
#pragma once
#include <cstdint>
#include <vector>

#include "sim/ledger.hpp"
#include "sim/machine_options.hpp"

namespace flash {

struct Attended {
  std::vector<std::uint16_t> o;  // [rows][64], bits of half
  std::vector<Finding> findings;
  Ledger ledger;
};

// Bits of half: Q [rows][64], K and V [keys][64].
namespace on_sim {
Attended attend(const std::vector<std::uint16_t>& q, const std::vector<std::uint16_t>& k,
                const std::vector<std::uint16_t>& v, const MachineOptions& options);
}
namespace on_checked {
Attended attend(const std::vector<std::uint16_t>& q, const std::vector<std::uint16_t>& k,
                const std::vector<std::uint16_t>& v, const MachineOptions& options);
}

}  // namespace flash
