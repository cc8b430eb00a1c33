// cpu_phase.hpp: the entry point of a CPU phase from its implementation, a function template that returns a ledger.
// The kernel phases' counterpart is kernel_phase.cuh.
// Use: static const Added added(forward_pass, Where::Sim, cpu_entry<features>([](auto& p) { return attention(p); }));
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
  recording.sort_lines();
  return recording.ledger;
}

// Attention is a function object without state: attention(problem) -> Ledger.
template <const Features& kCan, class Attention>
Run run_on_cpu(const AnyProblem& any, const MachineOptions& options) {
  Run run;
  const auto attend = [&]<class T>() {
    if constexpr (kCan.types.contains(type_of<T>)) {
      const Problem<T> p = problem_as<T>(any);
      const auto begin = std::chrono::steady_clock::now();
      run.ledger = options.recording ? recorded(*options.recording, p, Attention()) : Attention()(p);
      run.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    }
  };
  any.type == Type::Float32   ? attend.template operator()<float>()
  : any.type == Type::Float16 ? attend.template operator()<half>()
                              : attend.template operator()<bfloat16>();
  run.counted = true;
  return run;
}

template <const Features& kCan, class Attention>
Entry cpu_entry(Attention) {
  return run_on_cpu<kCan, Attention>;
}

}  // namespace flash
