// phase.hpp: a phase as programs and tests see it: its name, and a pass for each direction that it has.
// They know a phase by this object alone, never by its number: adding one touches its folder, its test and one line of
// CMakeLists.txt. Use: for (const Phase* phase : all_phases()) forward(*phase, problem, Where::Checked);
#pragma once
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "phases/interface/features.hpp"
#include "phases/interface/where.hpp"

namespace flash {

struct Phase;

// On one machine, with the problem's arrays in the host's memory.
using Entry = Run (*)(const AnyProblem& p, const MachineOptions& options);
// On a stream of the current GPU, or on the current simulator: the arrays are device memory, nothing is waited for,
// nothing allocated. `workspace`: a pointer for each piece that the features ask for. Without a stream it only throws
// what it would throw.
struct Stream {
  void* stream;  // a cudaStream_t
  std::array<void*, 8> workspace;
};
using StreamEntry = void (*)(const AnyProblem& p, const Stream* stream);

// One direction of a phase. Its entries are added by the files that compile it for a machine, when the program starts.
struct Pass {
  const Features& features;
  const Phase* before = nullptr;   // its proof compares it with this phase's pass
  std::array<Entry, 3> entries{};  // by machine; null where this program does not hold it
  std::array<StreamEntry, 3> stream_entries{};

  void on_stream(Where where, const AnyProblem& p, const Stream* stream) const {
    stream_entries[static_cast<std::size_t>(where)](p, stream);
  }
};

struct Phase {
  const char* name;    // "07-causal"
  const char* change;  // what is new since the phase before, one sentence
  Pass* forward;       // its own, or another phase's
  Pass* backward = nullptr;

  bool kernel() const { return forward->features.kernel; }
  const Pass* pass(Direction direction) const { return direction == Direction::Forward ? forward : backward; }
};

// Adds entry points when the program starts: static const Added added(forward_pass, Where::Sim, entry);
struct Added {
  Added(Pass& pass, Where where, Entry entry, StreamEntry on_stream = nullptr) {
    pass.entries[static_cast<std::size_t>(where)] = entry;
    pass.stream_entries[static_cast<std::size_t>(where)] = on_stream;
  }
};

// The pass, or a refusal by name.
inline const Pass& pass_of(const Phase& phase, Direction direction) {
  const Pass* pass = phase.pass(direction);
  if (!pass)
    refuse("backward", "wanted", std::string("none from phase ") + phase.name,
           "choose a phase that has it: ./flash help");
  return *pass;
}

// O = softmax(Q Kᵀ · scale) V, or its gradients, on the machine that `where` names. Throws Error with one line for what
// it refuses.
Run enter(const Phase& phase, const AnyProblem& p, Where where = Where::Sim, const MachineOptions& options = {});

template <class T>
Run forward(const Phase& phase, const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  return enter(phase, p, where, options);
}
// The same, and what `kept` has room for: m and l (8 bytes per row), so that the backward pass has the very P of this
// forward pass; O_lo (2·N·D bytes), so that its δ is precise. For fp32 leave o_lo out.
template <class T>
Run forward_training(const Phase& phase, Problem<T> p, const Kept& kept, Where where = Where::Sim,
                     const MachineOptions& options = {}) {
  p.kept = kept;
  return enter(phase, p, where, options);
}
// dQ, dK and dV.
template <class T>
Run backward(const Phase& phase, GradientProblem<T> p, Where where = Where::Sim, const MachineOptions& options = {},
             BackwardMode mode = BackwardMode::Deterministic) {
  p.options.mode = mode;
  return enter(phase, p, where, options);
}

// What a phase's header calls `forward`: forward(problem, Where::Checked).
struct ForwardOf {
  const Phase& phase;
  template <class T>
  Run operator()(const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) const {
    return flash::forward(phase, p, where, options);
  }
};

// The list of CMakeLists.txt, in its order.
const std::vector<const Phase*>& all_phases();
// Those whose forward pass is their own, not an earlier phase's.
inline std::vector<const Phase*> forward_phases() {
  std::vector<const Phase*> own;
  for (const Phase* phase : all_phases())
    if (std::none_of(own.begin(), own.end(), [&](const Phase* other) { return other->forward == phase->forward; }))
      own.push_back(phase);
  return own;
}
// "4", "04" or "04-tiled-v2"; anything else is refused.
const Phase& find_phase(const std::string& text);

}  // namespace flash
