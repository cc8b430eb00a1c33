// run_backward.hpp: what ./flash run does for --dout: the training forward pass, then the backward pass.
// run.cpp checks the words first (check_backward) and calls run_training in place of the forward pass.
// ./flash run --q q.npy --k k.npy --v v.npy --o o.npy --dout dO.npy --dq dQ.npy --dk dK.npy --dv dV.npy
#pragma once
#include "phases/app/files.hpp"
#include "phases/app/options.hpp"
#include "phases/interface/phase.hpp"

namespace flash {

// Refuses a gradient flag without --dout, --dout without all three outputs, and --dout for a phase without gradients
// (the one that was named, or null).
void check_backward(const Arguments& args, const Phase* phase);
// By --mode.
BackwardMode backward_mode(const Arguments& args);

// O, LSE and the gradients; of both passes together. The problem is valid in both directions.
Run run_training(const Phase& phase, const ProblemFiles& files, const Options& problem_options, Where where,
                 const MachineOptions& options);

}  // namespace flash
