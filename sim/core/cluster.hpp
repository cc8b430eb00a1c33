// cluster.hpp: the blocks of one cluster: whose turn it is to run, the barrier of all their threads, and whose shared
// memory an address lies in. PTX ISA, "Cluster of Cooperative Thread Arrays", "barrier.cluster", "mapa".
// Each block has an OS thread of its own, since __shared__ variables are the OS thread's; but only one of them runs at
// a time. A block gives its turn away when none of its threads can run. Whose turn is next follows from the order and
// the seed, so the blocks may touch one another's state without locks, and runs repeat.
// Use: a launch (sim/launch.cpp) has one for each team of workers. A block without a cluster is a cluster of one.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "sim/core/simt.hpp"
#include "sim/core/stuck.hpp"

namespace flash::simt {

class Worker;

class Cluster {
 public:
  // The workers run the blocks, by rank.
  explicit Cluster(std::vector<Worker*> members, std::size_t team = 0);

  unsigned size() const { return static_cast<unsigned>(members_.size()); }
  Worker& member(unsigned rank) const { return *members_[rank]; }
  // The block whose shared memory this address lies in; or lies beside, if it lies in none's. Null: none.
  Worker* owner(const void* address) const;
  Worker* nearest_owner(const void* address) const;

  // ---- turns: each OS thread of the team calls these for the block that it runs -----------------------------------

  // Waits for the whole team. One of them draws the number of the next cluster, the same for all.
  template <class Draw>
  std::uint64_t meet(const Draw& draw);
  // Returns when the blocks of lower rank are laid out; then it is this one's turn to be.
  void lay_out(unsigned rank);
  void laid_out(bool failed);
  // Returns when it is this block's turn: true, a thread of it can run; false, it has to end, because no thread of the
  // cluster can go on.
  bool turn(unsigned rank);
  // The block has ended. `stopped`: before all of its threads had.
  void leave(unsigned rank, bool stopped);

  // ---- barrier.cluster --------------------------------------------------------------------------------------------

  void begin_barrier();
  std::uint32_t phase() const { return phase_; }  // the number of the current one, from 0
  void arrive();
  void exits(bool arrived);  // a thread, which may have arrived in the current phase
  void wait(Worker& worker, unsigned thread) { waiting_.push_back({&worker, thread}); }
  std::string arrivals() const;  // "70 of 128 threads have arrived"

  Stuck::Look look;  // the team's

 private:
  void begin();
  void give(unsigned rank);
  unsigned next();
  unsigned any() const;
  bool hopeless();
  void explain();
  unsigned threads() const;  // that have not exited
  void complete_if_all_came();

  std::vector<Worker*> members_;
  std::vector<bool> runs_;  // which of them have not ended
  bool stopped_ = false;    // a finding has stopped one of them
  bool stuck_ = false;      // no thread can go on

  std::mutex mutex_;  // who has the turn holds it only to give the turn away
  std::condition_variable met_;
  std::vector<std::condition_variable> wake_;  // by rank
  unsigned came_ = 0;                          // to the meeting
  std::uint64_t meeting_ = 0, drawn_ = 0;
  unsigned laid_out_ = 0;
  static constexpr unsigned kNobody = ~0u;
  unsigned turn_ = kNobody;

  std::mt19937_64 random_;
  // When nobody could run the last time: how often threads had spun, and how many were to spin again. Then how often
  // they have since nothing else happened.
  std::uint64_t yields_ = 0, spinning_ = 0, in_vain_ = 0;

  struct Waiting {
    Worker* worker;
    unsigned thread;
  };
  std::vector<Waiting> waiting_;
  std::uint32_t phase_ = 0;
  unsigned arrived_ = 0;  // threads in this phase, without those that have exited since
};

template <class Draw>
std::uint64_t Cluster::meet(const Draw& draw) {
  std::unique_lock lock(mutex_);
  const std::uint64_t meeting = meeting_;
  if (++came_ == size()) {
    drawn_ = draw();
    begin();
    ++meeting_;
    met_.notify_all();
  }
  met_.wait(lock, [&] { return meeting_ != meeting; });
  return drawn_;
}

}  // namespace flash::simt
