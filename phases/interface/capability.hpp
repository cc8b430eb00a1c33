// capability.hpp: can a GPU run a phase? By its compute capability, whether it is here or not.
// where.cpp asks it of the device that is here, automatic_test.cpp of others.
// Use: if (runs_on(pass.features, {8, 0})) …
#pragma once
#include "phases/interface/features.hpp"

namespace flash {

inline bool runs_on(const Features& can, const Capability& device) {
  const Capability& wants = can.capability;
  if (wants.exactly) return device.major == wants.major && device.minor == wants.minor;
  return device.major > wants.major || (device.major == wants.major && device.minor >= wants.minor);
}

}  // namespace flash
