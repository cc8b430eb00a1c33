// stuck.hpp: do the blocks that run wait for one another in vain? One worker cannot tell: another's block may help.
// It is so when all workers' threads spin, and each of them has looked at memory again since the last that went on.
// Use: one Stuck for a launch, one Look for each worker; sim/core/block.cpp.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
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
  // let_others_run: gives up the core; a test's own function may do there what other workers do meanwhile.
  explicit Stuck(std::size_t workers, std::function<void()> let_others_run = std::this_thread::yield)
      : active_(workers), rounds_(workers), let_others_run_(std::move(let_others_run)) {}

  // All threads of this worker's block have spun again.
  bool hopeless(Look& look) {
    if (!look.stuck) look.stuck = true, state_ += kStuck;
    ++rounds_[look.worker];
    // First the rounds are read, then the state. It is the one of the worker's old look only if nobody has gone on
    // since then, so that these rounds were all in vain. The other way round the operating system may stop this worker
    // between the two, and others go on, help it, and have looked often enough when it runs again.
    const bool all_looked = looked_since(look);
    let_others_run_();
    // Were all stuck at this moment, whoever changes memory from here on goes on first, or says so a round later.
    // active_ is read after it: a worker that was not stuck then and runs no more has changed what it could.
    const std::uint64_t state = state_;
    if (state % kGoneOn < active_) return look.rounds.clear(), false;
    if (look.rounds.empty() || look.state != state) {
      look.state = state;
      look.rounds.assign(rounds_.begin(), rounds_.end());
      return false;
    }
    if (!all_looked) return false;
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
  // Has every worker that still runs looked at memory often enough since this one's old look?
  bool looked_since(const Look& look) const {
    if (look.rounds.empty()) return false;
    for (std::size_t w = 0; w < rounds_.size(); ++w)
      if (rounds_[w] != kDone && rounds_[w] < look.rounds[w] + kRounds) return false;
    return true;
  }

  static constexpr std::uint64_t kDone = ~std::uint64_t{0}, kRounds = 16;       // more than until it says so
  static constexpr std::uint64_t kStuck = 1, kGoneOn = std::uint64_t{1} << 20;  // in state_
  std::atomic<std::size_t> active_;
  // How many are stuck, and how often one has gone on. In one number: read one after the other, a worker that goes on
  // in between would count as stuck and as long gone.
  std::atomic<std::uint64_t> state_{0};
  std::atomic<bool> found_{false};
  std::vector<std::atomic<std::uint64_t>> rounds_;
  const std::function<void()> let_others_run_;
};

}  // namespace flash::simt
