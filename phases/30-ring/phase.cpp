// Phase 30: its entry points: the whole problem is cut into ranks, the ring runs on threads, the results are put back.
// Nothing is written before all ranks are done.
// Use: phase.hpp
#include <chrono>
#include <limits>

#include "phases/30-ring/phase.hpp"
#include "phases/30-ring/ulysses.hpp"
#include "phases/ring/local.hpp"
#include "phases/ring/steps.hpp"

namespace flash::phase30 {

static int ranks_of(const AnyProblem& p) {
  const int ranks = p.options.ring.ranks;
  if (ranks < 0 || ranks > most_ranks)
    refuse("ranks", ranks, "1 to " + std::to_string(most_ranks), "omit --ranks for " + std::to_string(default_ranks));
  return ranks ? ranks : default_ranks;
}

// The ring's forward pass alone is written down.
static void check_recorded(const AnyProblem& p, int ranks) {
  const auto refused = [](const std::string& is, const char* expected, const char* remedy) {
    refuse("--player", is, expected, remedy);
  };
  if (p.backward()) refused("given with gradients", "phase 30's forward pass", "omit --dout");
  if (p.options.ring.layout == RingLayout::Ulysses)
    refused("given with layout ulysses", "a ring, whose steps are shown", "pass --layout striped");
  if (ranks > 16) refused("of " + std::to_string(ranks) + " ranks", "at most 16", "pass --ranks 4");
}

static Run run(const AnyProblem& p, const MachineOptions& machine) {
  const auto begin = std::chrono::steady_clock::now();
  const int ranks = ranks_of(p);
  if (machine.recording) check_recorded(p, ranks);
  const Split split(p, ranks);
  std::vector<Local> local;
  local.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) local.emplace_back(p, split, rank);
  constexpr double no_limit = std::numeric_limits<double>::infinity();
  std::uint64_t sent = 0;
  if (machine.recording) {
    const RingRun written = run_written_down(split, local, definition::phase, no_limit);
    RingSteps(*machine.recording, p, split, ranks).write(written);
    sent = written.sent;
  } else {
    const HostWorker worker{definition::phase};
    sent = on_threads(ranks, no_limit, [&](Comm& comm) {
      on_rank(comm, split, local[static_cast<std::size_t>(comm.rank)].problem(), worker);
    });
  }
  Run run;
  for (Local& mine : local) mine.put_back(p);
  for (const Local& mine : local) run.ledger.add(mine.ledger);
  run.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  run.ledger.array("messages") = {.name = "messages", .read_bytes = sent, .written_bytes = sent};
  if (machine.recording) machine.recording->ledger = run.ledger;
  return run;
}

static const Added forward_added(forward_pass, Where::Sim, run), backward_added(backward_pass, Where::Sim, run);

}  // namespace flash::phase30
