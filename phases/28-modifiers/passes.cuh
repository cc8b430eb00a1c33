// passes.cuh: entry points of a phase that does something only where a problem asks for it: elsewhere they are those of
// the phase before.
// Use: static const Added added = added_where_modified<features, Attention, forward_pass>();
#pragma once
#include "phases/28-modifiers/phase.hpp"
#include "phases/interface/kernel_phase.cuh"

namespace flash::inline FLASH_MACHINE {

// #region passes
template <const Features& kCan, class Kernel, Pass& pass>
Run run_where_modified(const AnyProblem& p, const MachineOptions& options) {
  if (is_modified(p)) return run_pass<kCan, Kernel>(p, options);
  return pass.before->pass(p.direction)->entries[static_cast<std::size_t>(this_machine)](p, options);
}
template <const Features& kCan, class Kernel, Pass& pass>
void enqueue_where_modified(const AnyProblem& p, const Stream* stream) {
  if (is_modified(p)) return enqueue_pass<kCan, Kernel>(p, stream);
  pass.before->pass(p.direction)->on_stream(this_machine, p, stream);
}
template <const Features& kCan, class Kernel, Pass& pass>
Added added_where_modified() {
  return {pass, this_machine, run_where_modified<kCan, Kernel, pass>, enqueue_where_modified<kCan, Kernel, pass>};
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
