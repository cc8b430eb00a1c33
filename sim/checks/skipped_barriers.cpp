// skipped_barriers.cpp: a thread may exit while others wait at barriers to come, but not by a way around one of them.
// Whether it did shows in which sites of the program threads reach before and after it.
// Use: see checker.hpp.
#include <cstdint>

#include "sim/checks/checker.hpp"
#include "sim/core/outside.hpp"

namespace flash::simt {

std::size_t Checker::pending(unsigned warp) {
  forget_foreseen();
  return counters.pending(warp);
}

void Checker::converge(unsigned warp) {
  forget_foreseen();
  const Warp& w = worker_.warps[warp];
  const auto reached = [this](unsigned site) {
    Passed& passed = way_of(site);
    if (passed.way == Way::around) went_around(site);
    passed.way = Way::usual;
  };
  const std::size_t requests = counters.flush(warp, w.exists & ~w.ended, reached);
  if (worker_.launch->trace) worker_.tracer.step(warp, requests);
}

// A thread may exit while others wait at barriers to come. If what it did last is what the others do only after such a
// barrier, it went around it.
void Checker::thread_ends() {
  forget_foreseen();
  const unsigned t = worker_.current;
  counters.for_each_site(t / kWarpSize, 1u << t % kWarpSize, [&](unsigned site) {
    Passed& passed = way_of(site);
    if (passed.way == Way::around) went_around(site);
    if (passed.way == Way::unknown) passed = {Way::of_exited, static_cast<std::uint16_t>(t)};
  });
}

Checker::Passed& Checker::way_of(unsigned site) {
  if (site >= ways_.size()) ways_.resize(site + 1);
  return ways_[site];
}

// A thread that waited ran this site after the barrier.
void Checker::went_around(unsigned site) {
  const Outside outside;
  const unsigned exited = ways_[site].thread;
  for (Passed& passed : ways_)  // once for this barrier
    if (passed.way == Way::around) passed.way = Way::usual;
  worker_.findings.add({"barrier skipped",
                        "a thread exited by a way around the barrier at which others wait",
                        "let all threads reach the same __syncthreads(), or return before it",
                        {{"waits", nullptr, barrier_site_, true, worker_.block, worker_.current},
                         side("exited", Epoch{site} << kThreadBits | exited)},
                        worker_.block});
}

}  // namespace flash::simt
