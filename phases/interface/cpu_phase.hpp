// cpu_phase.hpp: the entry points of a CPU phase from its implementation, a function template that returns a ledger.
// The kernel phases' counterpart is kernel_phase.cuh.
// Use: static const Added added(phase, Where::Sim, cpu_entries<features>([](const auto& p) { return attention(p); }));
#pragma once
#include <chrono>

#include "phases/interface/phase.hpp"
#include "sim/report/memory_recorder.hpp"

namespace flash {

// One thread, whose memory tells what it does.
template <class T, class Attention>
Ledger recorded(Recording& recording, Problem<T> p, Attention attention) {
  p.options.threads = 1;
  MemoryRecorder recorder(recording);
  memory_observer = &recorder;
  try {
    recording.ledger = attention(p);
  } catch (...) {
    memory_observer = nullptr;
    throw;
  }
  memory_observer = nullptr;
  return recording.ledger;
}

template <const Features& kCan, class Attention>
Entries cpu_entries(Attention) {
  Entries entries;
  const auto add = []<class T>(ForwardEntry<T>& entry) {
    if constexpr (kCan.types.contains(type_of<T>))
      entry = [](const Problem<T>& p, const Kept&, const MachineOptions& options) {
        const auto begin = std::chrono::steady_clock::now();
        Run run;
        run.ledger = options.recording ? recorded(*options.recording, p, Attention()) : Attention()(p);
        run.counted = true;
        run.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
        return run;
      };
  };
  std::apply([&](auto&... each) { (add(each), ...); }, entries.forward);
  return entries;
}

}  // namespace flash
