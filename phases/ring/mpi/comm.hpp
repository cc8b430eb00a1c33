// Phase 30: ranks that are MPI processes. Only calls that return at once are used, and a clock runs beside those that
// cannot be (MPI_Init, MPI_Finalize): a rank that hangs keeps nobody for ever.
// Use: Watchdog watchdog(30, "MPI_Init"); MPI_Init(…); watchdog.stop();  MpiComm comm(30);
#pragma once
#include <mpi.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "phases/30-ring/comm.hpp"
#include "phases/interface/progress.hpp"
#include "phases/ring/mpi/keeper.hpp"

namespace flash::phase30 {

// Ends the process, with one line, unless it is stopped within the limit.
class Watchdog {
 public:
  Watchdog(double limit_seconds, const std::string& where)
      : thread_([this, limit_seconds, where] {
          std::unique_lock lock(mutex_);
          if (wake_.wait_for(lock, std::chrono::duration<double>(limit_seconds), [this] { return stopped_; })) return;
          std::fprintf(stderr,
                       "flash-ring: rank %s has waited %g s in %s; expected all ranks there; see which is not\n",
                       rank_name(), limit_seconds, where.c_str());
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

inline int rank_of_this() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
inline int number_of_ranks() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

class MpiComm : public Comm {
 public:
  explicit MpiComm(double limit_seconds) : Comm(rank_of_this(), number_of_ranks(), limit_seconds) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }

 protected:
  // MPI counts in int: a long message goes in parts.
  void start(const std::vector<Bytes>& send, const std::vector<Room>& receive) override {
    sends_.clear(), receives_.clear(), expected_.clear();
    sent_ = received_ = false;
    for (const Room& piece : receive)
      for_each_part(piece.size(), [&](std::size_t at, int bytes) {
        expected_.push_back(bytes);
        check(MPI_Irecv(piece.data() + at, bytes, MPI_BYTE, from_, 0, MPI_COMM_WORLD, &receives_.emplace_back()),
              from_);
      });
    for (const Bytes& piece : send)
      for_each_part(piece.size(), [&](std::size_t at, int bytes) {
        check(MPI_Isend(piece.data() + at, bytes, MPI_BYTE, to_, 0, MPI_COMM_WORLD, &sends_.emplace_back()), to_);
      });
  }
  bool progress() override {
    const bool was_over = sent_ && received_;
    int done = 1;
    if (!received_) {
      std::vector<MPI_Status> status(receives_.size());
      check(MPI_Testall(static_cast<int>(receives_.size()), receives_.data(), &done, status.data()), from_);
      for (std::size_t i = 0; done && i < status.size(); ++i) {
        int bytes = 0;
        MPI_Get_count(&status[i], MPI_BYTE, &bytes);
        if (bytes != expected_[i])
          refuse("the message of rank " + std::to_string(from_), std::to_string(bytes) + " bytes",
                 std::to_string(expected_[i]) + " in rank " + std::to_string(rank), "give all ranks the same problem");
      }
      received_ = done;
    }
    if (!sent_) {
      check(MPI_Testall(static_cast<int>(sends_.size()), sends_.data(), &done, MPI_STATUSES_IGNORE), to_);
      sent_ = done;
    }
    if (sent_ && received_ && !was_over) ++steps_done;
    return sent_ && received_;
  }
  bool has_sent() override { return sent_; }
  bool has_received() override { return received_; }

 private:
  // At least one part, so that an empty piece is one, too.
  template <class F>
  static void for_each_part(std::size_t bytes, const F& f) {
    constexpr std::size_t most = std::size_t{1} << 30;
    std::size_t at = 0;
    do {
      const std::size_t part = std::min(most, bytes - at);
      f(at, static_cast<int>(part));
      at += part;
    } while (at < bytes);
  }
  void check(int code, int peer) const {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw RankLost("rank " + std::to_string(rank) + " cannot exchange with rank " + std::to_string(peer) + ": " + text +
                   "; expected success; see what rank " + std::to_string(peer) + " does");
  }

  std::vector<MPI_Request> sends_, receives_;
  std::vector<int> expected_;  // bytes of each part
  bool sent_ = true, received_ = true;
};

// What each rank says, by rank: everybody learns of everybody.
template <class T>
std::vector<T> gather(Comm& comm, const T& mine, const std::string& step) {
  std::vector<T> all(static_cast<std::size_t>(comm.size));
  all[static_cast<std::size_t>(comm.rank)] = mine;
  for (int far = 1; far < comm.size; ++far) {
    const int to = (comm.rank + far) % comm.size, from = (comm.rank + comm.size - far) % comm.size;
    comm.begin(to, std::as_bytes(std::span(&mine, 1)), from,
               std::as_writable_bytes(std::span(&all[static_cast<std::size_t>(from)], 1)));
    comm.wait(step);
  }
  return all;
}

}  // namespace flash::phase30
