// player.hpp: what the player says about a run: the phase, the sizes, the rows of Q, K, V and O.
// Use: Recording recording; enter(phase, p, where, {.recording = &recording}); describe(recording, phase, p, blocks);
#pragma once
#include <string>
#include <tuple>

#include "phases/interface/phase.hpp"
#include "sim/report/recording.hpp"

namespace flash {

inline void describe(Recording& recording, const Phase& phase, const AnyProblem& p, Blocks blocks) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  recording.title = phase.name;
  recording.note = "B " + number(p.B()) + " · H " + number(p.H()) + " · N " + number(p.Sq()) +
                   (p.Sk() == p.Sq() ? "" : " × " + number(p.Sk())) + " · D " + number(p.D()) + " · " + name(p.type) +
                   (blocks.Br ? " · Br " + number(blocks.Br) + " · Bc " + number(blocks.Bc) : "") + " · causal " +
                   name(p.options.mask);
  if (!recording.launches.empty() && recording.launches[0].ranks)
    recording.note += " · ranks " + number(recording.launches[0].grid[0]) + " · layout " + name(p.options.ring.layout);
  // Where all heads lie one behind the other, a row's number tells its head, too.
  const auto all_heads = [&](const Recording::Place& array, std::int64_t rows, bool dense) {
    return dense && p.B() * p.H() > 1 && array.columns > 0 &&
           array.bytes == array.element_bytes * array.columns * static_cast<std::uint64_t>(p.B() * p.H() * rows);
  };
  const auto dense = [&](const auto& tensor, std::int64_t rows) {
    return tensor.stride[2] == p.D() && tensor.stride[1] == rows * p.D() &&
           (p.B() == 1 || tensor.stride[0] == p.H() * rows * p.D());
  };
  // A row of a tensor whose rows lie one behind the other; what has no columns yet has one number per row.
  for (Recording::Place& array : recording.arrays)
    if (array.columns == 0)
      array.columns =
          array.bytes == array.element_bytes * static_cast<std::uint64_t>(p.B() * p.H() * p.Sq()) ? 1
          : array.bytes % (array.element_bytes * static_cast<std::uint64_t>(std::max<std::int64_t>(p.D(), 1)))
              ? 0
              : static_cast<std::uint64_t>(p.D());
  for (Recording::Place& array : recording.arrays)
    for (const auto& [name, rows, lie] : {std::tuple{"Q", p.Sq(), dense(p.q, p.Sq())},
                                          {"K", p.Sk(), dense(p.k, p.Sk())},
                                          {"V", p.Sk(), dense(p.v, p.Sk())},
                                          {"O", p.Sq(), dense(p.o, p.Sq())},
                                          {"LSE", p.Sq(), true}})
      if (array.name == name && all_heads(array, rows, lie))
        array.head_rows = static_cast<std::uint64_t>(rows), array.heads = static_cast<std::uint64_t>(p.H());
}

}  // namespace flash
