// stuck.hpp: do the blocks that run wait for one another in vain? One worker cannot tell: another's block may help.
// It is so when all workers' threads spin, and each of them has looked at memory again since the last that went on.
// Use: one Stuck for a launch, one Look for each worker; sim/core/block.cpp.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace flash::simt {

class Stuck {
 public:
  // What a worker remembers.
  struct Look {
    std::size_t worker = 0;
    bool stuck = false;
    std::uint64_t state = 0;
    std::vector<std::uint64_t> rounds = {};  // of all workers, when all were stuck; empty: they were not
  };
  explicit Stuck(std::size_t workers) : active_(workers), rounds_(workers) {}

  // All threads of this worker's block have spun again.
  bool hopeless(Look& look) {
    if (!look.stuck) look.stuck = true, state_ += kStuck;
    ++rounds_[look.worker];
    std::this_thread::yield();
    // Were all stuck at this moment, whoever changes memory from here on goes on first, or says so a round later.
    // active_ is read after it: a worker that was not stuck then and runs no more has changed what it could.
    const std::uint64_t state = state_;
    if (state % kGoneOn < active_) return look.rounds.clear(), false;
    if (look.rounds.empty() || look.state != state) {
      look.state = state;
      look.rounds.assign(rounds_.begin(), rounds_.end());
      return false;
    }
    for (std::size_t w = 0; w < rounds_.size(); ++w)
      if (rounds_[w] != kDone && rounds_[w] < look.rounds[w] + kRounds) return false;
    return found_ = true;
  }
  // It goes on: a thread saw what it waited for, or the block has ended.
  void goes_on(Look& look) {
    if (!look.stuck) return;
    look.stuck = false;
    state_ += kGoneOn - kStuck;
  }
  // The worker runs no more blocks.
  void done(const Look& look) { rounds_[look.worker] = kDone, --active_; }
  // Some block of this launch was stuck for ever.
  bool found() const { return found_; }

 private:
  static constexpr std::uint64_t kDone = ~std::uint64_t{0}, kRounds = 16;       // more than until it says so
  static constexpr std::uint64_t kStuck = 1, kGoneOn = std::uint64_t{1} << 20;  // in state_
  std::atomic<std::size_t> active_;
  // How many are stuck, and how often one has gone on. In one number: read one after the other, a worker that goes on
  // in between would count as stuck and as long gone.
  std::atomic<std::uint64_t> state_{0};
  std::atomic<bool> found_{false};
  std::vector<std::atomic<std::uint64_t>> rounds_;
};

}  // namespace flash::simt
