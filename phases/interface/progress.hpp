// progress.hpp: how far a long run is, on one line of a terminal. Workers count tasks; nobody waits for anybody.
// A run of several steps counts these, too: the tasks are then those of one of them.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <thread>

namespace flash {

inline std::atomic<std::int64_t> tasks_done = 0, tasks_total = 0;
inline std::atomic<int> steps_done = 0, steps_total = 0;  // 0 in all: a run that is one step

// While it lives, and if `enabled`, shows "42 %", "7 s" or "step 2 of 8, 7 s" on stderr twice a second, from the first
// half second on.
class ProgressLine {
 public:
  explicit ProgressLine(bool enabled) {
    if (enabled) thread_ = std::thread([this] { show(); });
  }
  ~ProgressLine() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

 private:
  void show() {
    std::unique_lock lock(mutex_);
    bool shown = false;
    std::int64_t half_seconds = 0;
    while (!wake_.wait_for(lock, std::chrono::milliseconds(500), [this] { return stop_; })) {
      const std::int64_t total = tasks_total;
      if (const int steps = steps_total; steps > 0)
        std::fprintf(stderr, "\rstep %d of %d, ", std::min(steps_done + 1, steps), steps);
      else
        std::fprintf(stderr, "\r");
      if (total > 0)
        std::fprintf(stderr, "%3lld %% ", static_cast<long long>(100 * tasks_done / total));
      else  // a kernel: it does not say how far it is
        std::fprintf(stderr, "%lld s ", static_cast<long long>(++half_seconds / 2));
      shown = true;
    }
    if (shown) std::fprintf(stderr, "\r%*s\r", steps_total > 0 ? 30 : 10, "");
  }

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
};

}  // namespace flash
