// run.cpp: the way into every phase: check, find the entry, call it. What phase.hpp declares.
// Use: enter(phase, p, Where::Checked)
#include "phases/interface/validate.hpp"

namespace flash {

Run enter(const Phase& phase, const AnyProblem& p, Where where, const MachineOptions& options) {
  validate(p, phase);
  check_lengths(p);
  const Pass& pass = pass_of(phase, p.direction);
  require(phase.name, pass.features, where);
  const Entry entry = pass.entries[static_cast<std::size_t>(where)];
  if (!entry) refuse("machine", name(where), "one that this program was linked with", "link the phase's kernel for it");
  return entry(p, options);
}

}  // namespace flash
