// Phase 30: a clock that runs beside a call which may never return, as MPI_Init does where a rank does not come.
// Use: Watchdog watchdog(30, "2", "MPI_Init"); MPI_Init(…); watchdog.stop();
#pragma once
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace flash::phase30 {

inline constexpr int kLost = 3;  // exit status: a rank did not do its part

// Ends the process, with one line, unless it is stopped within the limit.
class Watchdog {
 public:
  Watchdog(double limit_seconds, const std::string& rank, const std::string& where)
      : thread_([this, limit_seconds, rank, where] {
          std::unique_lock lock(mutex_);
          if (wake_.wait_for(lock, std::chrono::duration<double>(limit_seconds), [this] { return stopped_; })) return;
          std::fprintf(stderr,
                       "flash-ring: rank %s has waited %g s in %s; expected all ranks there; see which is not\n",
                       rank.c_str(), limit_seconds, where.c_str());
          std::fflush(stderr);
          std::_Exit(kLost);
        }) {}
  ~Watchdog() { stop(); }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopped_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace flash::phase30
