// entries.cpp: the definition's entry points.
// Use: linked with the list of phases (cmake/phases.cmake); phase.hpp declares what is here.
#include <chrono>

#include "phases/definition/definition.hpp"
#include "phases/definition/phase.hpp"

namespace flash::definition {

static Run run(const AnyProblem& p, const MachineOptions&) {
  const auto begin = std::chrono::steady_clock::now();
  p.backward() ? backward(p, p.options.threads) : forward(p, p.options.threads);
  Run run;
  run.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return run;
}

static const Added forward_added(forward_pass, Where::Sim, run), backward_added(backward_pass, Where::Sim, run);

}  // namespace flash::definition
