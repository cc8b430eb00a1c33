// Phase 30: what the ring needs of an engine: begin an exchange, poll it, rank and size. Waiting is polling with a
// limit, so that a rank that hangs is named and the others end. Engines: threads, MPI and NCCL (phases/ring).
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

#include "phases/interface/progress.hpp"
#include "sim/error.hpp"

namespace flash::phase30 {

// #region communicator
// A rank did not do its part. The command ends with exit status 3.
struct RankLost : Error {
  using Error::Error;
};

using Bytes = std::span<const std::byte>;
using Room = std::span<std::byte>;
// A message in pieces, to a rank or from one; both know their lengths.
struct Outgoing {
  int to;
  std::vector<Bytes> pieces;
};
struct Incoming {
  int from;
  std::vector<Room> pieces;
};

class Comm {
 public:
  const int rank, size;
  std::uint64_t bytes_sent = 0;  // to other ranks

  Comm(int rank, int size, double limit_seconds) : rank(rank), size(size), limit_(limit_seconds) {}
  virtual ~Comm() = default;
  Comm(const Comm&) = delete;

  // At most one message to each rank and one from each. Until wait() has returned, what is sent may be read, and where
  // it is received may not be touched. One exchange at a time.
  void begin(const std::vector<Outgoing>& send, const std::vector<Incoming>& receive) {
    send_ = send, receive_ = receive, ++exchanges_;
    for (const Outgoing& message : send)
      for (const Bytes& piece : message.pieces)
        if (message.to != rank) bytes_sent += piece.size();
    over_ = false;
    start();
  }
  void begin(int to, Bytes send, int from, Room receive) { begin({{to, {send}}}, {{from, {receive}}}); }
  // Lets the exchange go on. Is it over?
  bool poll() {
    if (!over_ && progress()) over_ = true, ++steps_done;  // for who looks on
    return over_;
  }
  // Throws RankLost when it is not over within the limit; `step` is for the message. Whoever is further on waits a
  // little longer, up to half the limit: it waits for one that waits, and a neighbour of the lost rank shall be first.
  void wait(const std::string& step) {
    for (const auto begin = std::chrono::steady_clock::now(); !poll();) {
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
      if (waited.count() > limit_ + limit_ / 2 * exchanges_ / (exchanges_ + 8)) lost(step);
      waited.count() < 0.002 ? std::this_thread::yield() : std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  // Nothing of the exchange happens any more: its memory is about to go.
  virtual void withdraw() {}

 protected:
  std::vector<Outgoing> send_;  // of the exchange
  std::vector<Incoming> receive_;

  virtual void start() = 0;
  virtual bool progress() = 0;
  // Which of its messages are over, by their place in send_ and receive_.
  virtual bool has_sent(std::size_t i) = 0;
  virtual bool has_received(std::size_t i) = 0;

 private:
  [[noreturn]] void lost(const std::string& step) {
    char limit[32];
    std::snprintf(limit, sizeof limit, "%g s", limit_);
    std::size_t in = 0, out = 0;  // the first of each that is not over, or the first
    for (std::size_t i = receive_.size(); i-- > 0;)
      if (!has_received(i)) in = i;
    for (std::size_t i = send_.size(); i-- > 0;)
      if (!has_sent(i)) out = i;
    const bool received = has_received(in), sent = has_sent(out);
    const std::string from = std::to_string(receive_[in].from), to = std::to_string(send_[out].to);
    throw RankLost("rank " + std::to_string(rank) + " has waited " + limit + " in " + step + ": " +
                   (received ? "received from rank " : "nothing from rank ") + from +
                   (sent ? ", sent to rank " : ", not taken by rank ") + to + "; expected both; see what rank " +
                   (received ? to : from) + " does");
  }

  double limit_, exchanges_ = 0;
  bool over_ = true;
};

// Stands behind the memory of an exchange: when an error ends the step, the exchange ends before the memory does.
struct Withdraws {
  Comm& comm;
  ~Withdraws() { comm.withdraw(); }
};
// #endregion

}  // namespace flash::phase30
