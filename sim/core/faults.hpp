// faults.hpp: what only the processor notices of a kernel's mistakes (a full stack, a division by zero, an address that
// is nobody's) becomes a finding with its line; a launch that takes too long, or that Ctrl-C ends, says where it is.
// A fault's signal is answered on a stack of its own: it sends the fiber to a function that ends the block.
// Use: a machine has a Handlers, a launch (sim/launch.cpp) a Watched. A launch makes no system call for them.
#pragma once
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <vector>

namespace flash::simt {

constexpr const char* kNoEnd = "no end";  // the kind of finding of a launch that was stopped

// While one lives, signals come here first. What is no kernel's goes on to the program's own handlers.
class Handlers {
 public:
  Handlers();
  ~Handlers();
  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;
};

// A launch under watch. Faults of its fibers are findings; when its time is over or Ctrl-C comes, the threads that run
// its blocks are stopped where they are, each with a finding kNoEnd, and no block begins any more.
class Watched {
 public:
  explicit Watched(double seconds);  // 0: no limit
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  // The calling OS thread runs blocks from here on; until leave().
  void enter();
  void leave();
  bool over() const { return over_.load(std::memory_order_relaxed); }
  bool interrupted() const { return interrupted_; }

 private:
  friend struct Watch;
  std::vector<pthread_t> threads_;
  std::chrono::steady_clock::time_point deadline_;
  std::atomic<bool> over_{false};
  bool interrupted_ = false;
};

}  // namespace flash::simt
