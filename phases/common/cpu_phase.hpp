// cpu_phase.hpp: the entry points of a CPU phase from its implementation, a function template that returns a ledger.
// The kernel phases' counterpart is kernel_phase.cuh.
// Use: static const Added added(phase, Where::Sim, cpu_entries<features>([](const auto& p) { return attention(p); }));
#pragma once
#include <chrono>

#include "phases/common/phase.hpp"

namespace flash {

template <const Features& kCan, class Attention>
Entries cpu_entries(Attention) {
  Entries entries;
  const auto add = []<class T>(ForwardEntry<T>& entry) {
    if constexpr (kCan.types.contains(type_of<T>))
      entry = [](const Problem<T>& p, const Kept&, const MachineOptions&) {
        const auto begin = std::chrono::steady_clock::now();
        Run run;
        run.ledger = Attention()(p);
        run.counted = true;
        run.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
        return run;
      };
  };
  std::apply([&](auto&... each) { (add(each), ...); }, entries.forward);
  return entries;
}

}  // namespace flash
