// counted.hpp: what pages try their kernels on: the machine that counts, and a count beside what was predicted.
// Use: if (!counts()) return;  expect(equal(run.ledger.flop, 4 * N * N * D, "FLOP"), "predicted = counted");
#pragma once
#include <cstdint>
#include <cstdio>

#include "phases/interface/phase.hpp"
#include "phases/pages/text.hpp"

namespace flash {

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
inline const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

// Does it count? Else it says why not.
inline bool counts() {
  if (was_built(Where::Checked)) return true;
  std::printf("this build has no checked machine, and the fast one does not count\n");
  return false;
}
inline bool equal(std::uint64_t counted, std::uint64_t predicted, const char* what) {
  std::printf("%-34s predicted %10s   counted %10s\n", what, grouped(predicted).c_str(), grouped(counted).c_str());
  return counted == predicted;
}

}  // namespace flash
