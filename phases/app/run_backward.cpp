// run_backward.cpp: see run_backward.hpp.
// The forward pass runs first, since only it knows m, l and the bits of O that δ needs (docs/backward.md).
// ./flash run … --dout dO.npy --dq dQ.npy --dk dK.npy --dv dV.npy [--dlse dLSE.npy] [--mode atomic]
#include "phases/app/run_backward.hpp"

namespace flash {

BackwardMode backward_mode(const Arguments& args) {
  const std::string text = args.text("mode", "deterministic");
  if (text == "deterministic") return BackwardMode::Deterministic;
  if (text == "atomic") return BackwardMode::Atomic;
  refuse("--mode", "'" + text + "'", "deterministic or atomic", "omit it for deterministic");
}

void check_backward(const Arguments& args, const Phase* phase) {
  if (!args.has("dout")) {
    for (const char* flag : {"dlse", "dq", "dk", "dv", "dbias", "dsinks", "mode"})
      if (args.has(flag)) refuse(std::string("--") + flag, "given", "--dout with it", "add --dout dO.npy or omit it");
    return;
  }
  if (phase && !phase->backward)
    refuse("--dout", "given", std::string("none for phase ") + phase->name,
           "choose a phase with gradients: ./flash help");
  for (const char* flag : {"dq", "dk", "dv"}) args.required(flag);
  backward_mode(args);
}

Run run_training(const Phase& phase, const ProblemFiles& files, const Options& problem_options, Where where,
                 const MachineOptions& options) {
  Run run = enter(phase, files.problem(Direction::Forward, problem_options), where, options);
  const Run second = enter(phase, files.problem(Direction::Backward, problem_options), where, options);
  run.ledger.add(second.ledger);
  run.milliseconds += second.milliseconds;
  run.tiles = second.tiles;
  run.kernels.insert(run.kernels.end(), second.kernels.begin(), second.kernels.end());
  return run;
}

}  // namespace flash
