// Phase 30: its entry points: the whole problem is cut into ranks, the ring runs on threads, the results are put back.
// Nothing is written before all ranks are done.
// Use: phase.hpp
#include <chrono>
#include <limits>

#include "phases/30-ring/phase.hpp"
#include "phases/30-ring/ulysses.hpp"
#include "phases/ring/local.hpp"
#include "phases/ring/threads.hpp"

namespace flash::phase30 {

static int ranks_of(const AnyProblem& p) {
  const int ranks = p.options.ring.ranks;
  if (ranks < 0 || ranks > most_ranks)
    refuse("ranks", ranks, "1 to " + std::to_string(most_ranks), "omit --ranks for " + std::to_string(default_ranks));
  return ranks ? ranks : default_ranks;
}

static Run run(const AnyProblem& p, const MachineOptions&) {
  const auto begin = std::chrono::steady_clock::now();
  const int ranks = ranks_of(p);
  const Split split(p, ranks);
  std::vector<Local> local;
  local.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) local.emplace_back(p, split, rank);
  const HostWorker worker{definition::phase};
  const std::uint64_t sent = on_threads(ranks, std::numeric_limits<double>::infinity(), [&](Comm& comm) {
    on_rank(comm, split, local[static_cast<std::size_t>(comm.rank)].problem(), worker);
  });
  for (Local& mine : local) mine.put_back(p);
  Run run;
  run.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  run.ledger.array("messages") = {.name = "messages", .read_bytes = sent, .written_bytes = sent};
  return run;
}

static const Added forward_added(forward_pass, Where::Sim, run), backward_added(backward_pass, Where::Sim, run);

}  // namespace flash::phase30
