// Phase 30: what the ranks of a ring do in a forward pass, written down by their engine and their workers while they do
// it, then put into an order that no thread decides. The page draws it, the player shows it step by step.
// Use: const RingRun run = run_written_down(split, local, definition::phase, 60 /*seconds*/);
#pragma once
#include <tuple>

#include "phases/30-ring/ring.hpp"
#include "phases/ring/local.hpp"
#include "phases/ring/threads.hpp"

namespace flash::phase30 {

// One thing that a rank did. Rounds are counted by the exchanges that the rank has waited for.
struct Deed {
  enum What { Begins, Calls, Merges, Waits, Finishes } what;
  int rank, round;
  int keys = 0;       // Begins, Calls: they lie with its own (0), or in the first or second room for others (1, 2)
  int whose = 0;      // the keys that are sent, used or have come
  int to = 0;         // Begins: the rank that gets them
  Section part = {};  // Calls, Merges: of the rank's rows, of those keys
  const void* o = nullptr;            // Calls, Merges: where O of the set is; Finishes: where the sum is
  std::vector<float> m = {}, l = {};  // Merges: of the part's rows of all heads, after it; m in base e
};

// What one rank does, by the addresses that it works with.
class RankLog {
 public:
  RankLog(int rank, const AnyProblem& mine)
      : rank_(rank), mine_(mine), memory_{Bytes{static_cast<const std::byte*>(mine.k.data), bytes(mine.k)}} {}
  std::vector<Deed> deeds;

  void begins(const Outgoing& out, const Incoming& in) {
    Deed& d = add(Deed::Begins);
    d.keys = where(out.pieces[0].data()), d.to = out.to;
    memory_[static_cast<std::size_t>(1 + round_ % 2)] = in.pieces[0];
  }
  void calls(const AnyProblem& part) {
    Deed& d = add(Deed::Calls);
    d.keys = where(part.k.data), d.o = part.o.data;
    d.part = {row(mine_.q.data, part.q), part.Sq(), row(memory_[static_cast<std::size_t>(d.keys)].data(), part.k),
              part.Sk(), part.options.mask};
  }
  void merges(const Merged& to, const Set& set) {
    Deed& d = add(Deed::Merges);
    const std::int64_t S = to.o.shape[2], rows = set.o.shape[2];
    d.part.q0 = set.first, d.part.rows = rows, d.o = set.o.memory.get();
    for (std::int64_t r = 0; r < set.o.shape[0] * set.o.shape[1] * rows; ++r) {
      const RowSum row = HostWorker::get(to, r / rows * S + set.first + r % rows);
      d.m.push_back(row.top * 0.693147181f);
      d.l.push_back(row.l());
    }
  }
  void arrived() {  // K, then V
    if (++arrived_ % 2 == 0) add(Deed::Waits), ++round_;
  }
  void finishes(const Merged& from) { add(Deed::Finishes).o = from.o.memory.get(); }

 private:
  Deed& add(Deed::What what) { return deeds.emplace_back(Deed{what, rank_, round_}); }
  std::size_t bytes(const AnyView& view) const {
    return static_cast<std::size_t>(view.elements() * bytes_of(mine_.type));
  }
  // In which of the three places for keys this is.
  int where(const void* k) const {
    for (int i = 0; i < 3; ++i) {
      const Bytes& there = memory_[static_cast<std::size_t>(i)];
      if (k == there.data() || (k > there.data() && k < there.data() + there.size())) return i;
    }
    throw Error("rank " + std::to_string(rank_) + " has keys where none were put; expected its own or those that came");
  }
  // The number of the first row of `part`, a part of the dense array that begins there.
  std::int64_t row(const void* begin, const AnyView& part) const {
    return (static_cast<const std::byte*>(part.data) - static_cast<const std::byte*>(begin)) /
           (part.stride[2] * bytes_of(mine_.type));
  }

  int rank_, round_ = 0, arrived_ = 0;
  AnyProblem mine_;
  std::array<Bytes, 3> memory_;  // K: its own, and the two rooms
};

class RecordedComm : public ThreadComm {
 public:
  using ThreadComm::ThreadComm;
  RankLog* log = nullptr;

 protected:
  void start() override {
    log->begins(send_[0], receive_[0]);
    ThreadComm::start();
  }
};

class RecordingWorker : public HostWorker {
 public:
  RecordingWorker(const Phase& phase, RankLog& log) : HostWorker(phase), log_(log) {}
  void arrived(Room) const override { log_.arrived(); }
  void call(const AnyProblem& part) const override { log_.calls(part), HostWorker::call(part); }
  void merge(const Merged& to, const Set& set) const override { HostWorker::merge(to, set), log_.merges(to, set); }
  void finish(const Merged& from, const std::optional<Set>& last, const AnyProblem& mine) const override {
    HostWorker::finish(from, last, mine), log_.finishes(from);
  }

 private:
  RankLog& log_;
};

struct RingRun {
  std::vector<Deed> deeds;  // by round, by what is done, by rank
  std::uint64_t sent;       // by all ranks, bytes, as the engine counted
};

// The forward pass of all ranks, on threads. `local`: what each of them holds.
inline RingRun run_written_down(const Split& split, const std::vector<Local>& local, const Phase& phase,
                                double limit_seconds) {
  const int n = static_cast<int>(local.size());
  std::vector<RankLog> logs;
  for (int rank = 0; rank < n; ++rank) logs.emplace_back(rank, local[static_cast<std::size_t>(rank)].problem());
  RingRun run;
  run.sent = on_threads<RecordedComm>(n, limit_seconds, [&](RecordedComm& comm) {
    const std::size_t rank = static_cast<std::size_t>(comm.rank);
    comm.log = &logs[rank];
    ring_forward(comm, split, local[rank].problem(), RecordingWorker(phase, logs[rank]));
  });
  for (const RankLog& log : logs) run.deeds.insert(run.deeds.end(), log.deeds.begin(), log.deeds.end());
  std::stable_sort(run.deeds.begin(), run.deeds.end(), [](const Deed& a, const Deed& b) {
    return std::tuple(a.round, a.what, a.rank) < std::tuple(b.round, b.what, b.rank);
  });
  // Whose keys lie in which of a rank's places: what it was sent is what the sender had there.
  std::vector<std::array<int, 3>> whose(static_cast<std::size_t>(n));
  std::vector<int> used(static_cast<std::size_t>(n));
  for (std::size_t rank = 0; rank < whose.size(); ++rank) whose[rank][0] = static_cast<int>(rank);
  for (Deed& d : run.deeds) {
    const std::size_t rank = static_cast<std::size_t>(d.rank), room = static_cast<std::size_t>(1 + d.round % 2);
    d.whose = d.what == Deed::Waits ? whose[rank][room] : whose[rank][static_cast<std::size_t>(d.keys)];
    if (d.what == Deed::Begins) whose[static_cast<std::size_t>(d.to)][room] = d.whose;
    if (d.what == Deed::Calls) used[rank] = d.whose;
    if (d.what == Deed::Merges) d.whose = used[rank];
  }
  return run;
}

}  // namespace flash::phase30
