// run_backward.hpp: what ./flash run does for --dout: the training forward pass, then the backward pass.
// run.cpp checks the words first (check_backward), calls run_backward in place of forward, then write_gradients.
// ./flash run --q q.npy --k k.npy --v v.npy --o o.npy --dout dO.npy --dq dQ.npy --dk dK.npy --dv dV.npy
#pragma once
#include <string>

#include "phases/app/options.hpp"
#include "phases/arrays/tensor.hpp"
#include "phases/interface/phase.hpp"

namespace flash {

// Flags that belong to the backward pass, without "--"; the first is what asks for it. dq, dk, dv are outputs.
inline constexpr const char* backward_flags[] = {"dout", "dlse", "dq", "dk", "dv", "mode"};

// Refuses a gradient flag without --dout, --dout without all three outputs, and --dout for a phase without gradients
// (the one that was named, or null).
void check_backward(const Arguments& args, const Phase* phase);
// By --mode.
BackwardMode backward_mode(const Arguments& args);

template <class T>
struct Gradients {
  Tensor<T> dq, dk, dv;
  Run run;  // forward and backward together
};

// Writes p.o, and p.lse if it is wanted, and returns the gradients of --dout (and --dlse, fp32 [B, H, Sq]).
template <class T>
Gradients<T> run_backward(const Phase& phase, const Problem<T>& p, const Arguments& args, Where where, NpyType type,
                          const MachineOptions& options);

// Writes --dq, --dk and --dv in the shapes and types of the files that q, k and v came from.
template <class T>
void write_gradients(const Gradients<T>& g, const Arguments& args, const NpyArray& q, const NpyArray& k,
                     const NpyArray& v);

}  // namespace flash
