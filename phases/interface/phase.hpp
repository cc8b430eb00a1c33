// phase.hpp: a phase as programs and tests see it: its declaration, a formula of its bytes, and its entry points.
// They know a phase by this object alone, never by its number: adding one touches its folder, its test and one line of
// CMakeLists.txt. Use: for (const Phase* phase : all_phases()) forward(*phase, problem, Where::Checked);
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "phases/interface/gradients.hpp"
#include "phases/interface/problem.hpp"
#include "phases/interface/where.hpp"

namespace flash {

// Of one type on one machine. A forward pass for training also fills what is kept; others ignore it.
template <class T>
using ForwardEntry = Run (*)(const Problem<T>&, const Kept&, const MachineOptions&);
// The same on a stream (a cudaStream_t) of the current GPU: the problem's pointers are device memory, nothing is waited
// for, nothing allocated. If it needs a workspace, it asks for so many bytes of device memory that is 0 before the
// first launch, and leaves it so. Without `workspace` it only throws what it would throw for these sizes. Returns the
// bytes.
template <class T>
using StreamEntry = std::size_t (*)(const Problem<T>&, const std::function<void*(std::size_t bytes)>& workspace,
                                    void* stream);
template <class T>
using BackwardEntry = Run (*)(const GradientProblem<T>&, BackwardMode, const MachineOptions&);

// Of all types on one machine; null where the phase does not have the type, or this program does not hold the machine.
struct Entries {
  std::tuple<ForwardEntry<float>, ForwardEntry<half>, ForwardEntry<bfloat16>> forward{};
  std::tuple<StreamEntry<float>, StreamEntry<half>, StreamEntry<bfloat16>> on_stream{};  // on the GPU alone
  std::tuple<BackwardEntry<float>, BackwardEntry<half>, BackwardEntry<bfloat16>> backward{};
};

// HBM traffic, without any cache.
struct HbmBytes {
  std::uint64_t read = 0, written = 0;
  bool operator==(const HbmBytes&) const = default;
};

struct Phase {
  Features features;
  // What the forward pass moves, from the sizes alone; `blocks` are those that a kernel runs with.
  HbmBytes (*hbm_bytes)(const Sizes& sizes, Blocks blocks);
  std::array<Entries, 3> entries{};  // by machine
};

// A file that compiles a phase for a machine adds its entry points when the program starts:
//   static const Added added(phase, Where::Sim, entries);
struct Added {
  Added(Phase& phase, Where where, const Entries& entries) { phase.entries[static_cast<std::size_t>(where)] = entries; }
};

// The entry point, or a refusal by name.
template <class Pointer, class Pointers>
Pointer entry_of(const Phase& phase, Where where, Pointers Entries::*which) {
  require(phase.features, where);
  const Pointer entry = std::get<Pointer>(phase.entries[static_cast<std::size_t>(where)].*which);
  if (!entry) refuse("machine", name(where), "one that this program was linked with", "link the phase's kernel for it");
  return entry;
}

// O = softmax(Q Kᵀ · scale) V on the machine that `where` names. Throws Error with one line for what it refuses.
template <class T>
Run forward(const Phase& phase, const Problem<T>& p, Where where = Where::Sim, const MachineOptions& options = {}) {
  validate(p, phase.features);
  return entry_of<ForwardEntry<T>>(phase, where, &Entries::forward)(p, {}, options);
}

// The same, and what `kept` has room for: m and l (8 bytes per row), so that the backward pass has the very P of this
// forward pass; O_lo (2·N·D bytes), so that its δ is precise. For fp32 leave o_lo out.
template <class T>
Run forward_training(const Phase& phase, const Problem<T>& p, const Kept& kept, Where where = Where::Sim,
                     const MachineOptions& options = {}) {
  validate(p, phase.features);
  validate(kept, p.q);
  check_backward(phase.features);
  return entry_of<ForwardEntry<T>>(phase, where, &Entries::forward)(p, kept, options);
}

// dQ, dK and dV.
template <class T>
Run backward(const Phase& phase, const GradientProblem<T>& p, Where where = Where::Sim,
             const MachineOptions& options = {}, BackwardMode mode = BackwardMode::Deterministic) {
  check_backward(phase.features);
  validate(p, phase.features);
  return entry_of<BackwardEntry<T>>(phase, where, &Entries::backward)(p, mode, options);
}

// The list of CMakeLists.txt, in its order.
const std::vector<const Phase*>& all_phases();
// "4", "04" or "04-tiled-v2"; anything else is refused.
const Phase& find_phase(const std::string& text);

}  // namespace flash
