// player.hpp: what the player says about a run: the phase, the sizes, the rows of Q, K, V and O.
// Use: Recording recording; forward(phase, p, where, {.recording = &recording}); describe(recording, phase, p);
#pragma once
#include <string>

#include "phases/interface/phase.hpp"
#include "sim/report/recording.hpp"

namespace flash {

template <class T>
void describe(Recording& recording, const Phase& phase, const Problem<T>& p, Blocks blocks) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  recording.title = phase.name;
  recording.note = "B " + number(p.B()) + " · H " + number(p.H()) + " · N " + number(p.Sq()) +
                   (p.Sk() == p.Sq() ? "" : " × " + number(p.Sk())) + " · D " + number(p.D()) + " · " +
                   name(type_of<T>) + (blocks.Br ? " · Br " + number(blocks.Br) + " · Bc " + number(blocks.Bc) : "") +
                   " · causal " + name(p.options.mask);
  // A row of a tensor whose rows lie one behind the other; what has no columns yet has one number per row.
  for (Recording::Place& array : recording.arrays)
    if (array.columns == 0)
      array.columns =
          array.bytes == array.element_bytes * static_cast<std::uint64_t>(p.B() * p.H() * p.Sq()) ? 1
          : array.bytes % (array.element_bytes * static_cast<std::uint64_t>(std::max<std::int64_t>(p.D(), 1)))
              ? 0
              : static_cast<std::uint64_t>(p.D());
}

}  // namespace flash
