// Phase 30: what the ring needs of an engine: begin an exchange, poll it, rank and size. Waiting is polling with a
// limit, so that a rank that hangs is named and the others end. Engines: threads and MPI (phases/ring).
// Use: comm.begin(next, send, before, receive); …; comm.wait("step 2");
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "sim/error.hpp"

namespace flash::phase30 {

// #region communicator
// A rank did not do its part. The command ends with exit status 3.
struct RankLost : Error {
  using Error::Error;
};

using Bytes = std::span<const std::byte>;
using Room = std::span<std::byte>;

class Comm {
 public:
  const int rank, size;
  std::uint64_t bytes_sent = 0;  // to other ranks

  Comm(int rank, int size, double limit_seconds) : rank(rank), size(size), limit_(limit_seconds) {}
  virtual ~Comm() = default;
  Comm(const Comm&) = delete;

  // One message to a rank and one from a rank, each in pieces; their lengths are known to both sides. Until wait() has
  // returned `send` may be read and `receive` may not be touched. One exchange at a time.
  void begin(int to, const std::vector<Bytes>& send, int from, const std::vector<Room>& receive) {
    to_ = to, from_ = from, ++exchanges_;
    for (const Bytes& piece : send)
      if (to != rank) bytes_sent += piece.size();
    start(send, receive);
  }
  void begin(int to, Bytes send, int from, Room receive) { begin(to, std::vector{send}, from, std::vector{receive}); }
  // Lets the exchange go on. Is it over?
  bool poll() { return progress(); }
  // Throws RankLost when it is not over within the limit; `step` is for the message. Whoever is further on waits a
  // little longer, up to half the limit: it waits for one that waits, and a neighbour of the lost rank shall be first.
  void wait(const std::string& step) {
    const auto begin = std::chrono::steady_clock::now();
    for (int polls = 0; !poll(); ++polls) {
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
      if (waited.count() > limit_ + limit_ / 2 * exchanges_ / (exchanges_ + 8)) lost(step);
      polls < 100 ? std::this_thread::yield() : std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  // Neither half of the exchange happens any more: their memory is about to go.
  virtual void withdraw() {}

 protected:
  int to_ = 0, from_ = 0;  // of the exchange

  virtual void start(const std::vector<Bytes>& send, const std::vector<Room>& receive) = 0;
  virtual bool progress() = 0;
  // Which halves of the exchange are over, for a message.
  virtual bool has_sent() = 0;
  virtual bool has_received() = 0;

 private:
  [[noreturn]] void lost(const std::string& step) {
    char limit[32];
    std::snprintf(limit, sizeof limit, "%g s", limit_);
    const bool sent = has_sent(), received = has_received();
    throw RankLost("rank " + std::to_string(rank) + " has waited " + limit + " in " + step + ": " +
                   (received ? "received from rank " : "nothing from rank ") + std::to_string(from_) +
                   (sent ? ", sent to rank " : ", not taken by rank ") + std::to_string(to_) +
                   "; expected both; see what rank " + std::to_string(received ? to_ : from_) + " does");
  }

  double limit_, exchanges_ = 0;
};

// Stands behind the memory of an exchange: when an error ends the step, the exchange ends before the memory does.
struct Withdraws {
  Comm& comm;
  ~Withdraws() { comm.withdraw(); }
};
// #endregion

}  // namespace flash::phase30
