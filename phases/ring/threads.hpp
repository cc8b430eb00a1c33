// Phase 30: ranks that are threads of one process, so that everybody can run, debug and test the ring.
// A message is a copy out of the sender's memory, made by the receiver when it polls.
// Use: on_threads(4, 30 /*seconds*/, [&](Comm& comm) { ring_forward(comm, …); });
#pragma once
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "phases/30-ring/comm.hpp"

namespace flash::phase30 {

// What the ranks share: a place for a message from each to each.
struct Meeting {
  struct Message {
    std::vector<Bytes> pieces;
    enum { None, Sent, Taken } state = None;
  };
  std::mutex mutex;
  std::vector<Message> messages;  // [to][from]
  std::exception_ptr failure;     // the first; the other ranks end by it
};

// Another rank has failed: this one ends without a word of its own.
struct OtherFailed : std::exception {};

class ThreadComm : public Comm {
 public:
  ThreadComm(Meeting& meeting, int rank, int size, double limit) : Comm(rank, size, limit), meeting_(meeting) {}

  void withdraw() override {
    const std::lock_guard lock(meeting_.mutex);
    for (std::size_t i = 0; i < send_.size(); ++i)
      if (!sent_[i]) message(send_[i].to, rank).state = Meeting::Message::None;
    sent_.assign(send_.size(), true), received_.assign(receive_.size(), true);
  }

 protected:
  void start() override {
    const std::lock_guard lock(meeting_.mutex);
    sent_.assign(send_.size(), false), received_.assign(receive_.size(), false);
    for (const Outgoing& out : send_) message(out.to, rank) = {out.pieces, Meeting::Message::Sent};
  }
  bool progress() override {
    const std::lock_guard lock(meeting_.mutex);
    if (meeting_.failure) throw OtherFailed();
    bool over = true;
    for (std::size_t i = 0; i < receive_.size(); ++i) {
      if (!received_[i]) received_[i] = take(receive_[i]);
      over = over && received_[i];
    }
    for (std::size_t i = 0; i < send_.size(); ++i) {
      Meeting::Message& going = message(send_[i].to, rank);
      if (!sent_[i] && going.state == Meeting::Message::Taken) going.state = Meeting::Message::None, sent_[i] = true;
      over = over && sent_[i];
    }
    return over;
  }
  bool has_sent(std::size_t i) override { return sent_[i]; }
  bool has_received(std::size_t i) override { return received_[i]; }

 private:
  // False: it has not been sent.
  bool take(const Incoming& in) {
    Meeting::Message& coming = message(rank, in.from);
    if (coming.state != Meeting::Message::Sent) return false;
    if (sizes(coming.pieces) != sizes(in.pieces))
      refuse("the message of rank " + std::to_string(in.from), sizes(coming.pieces) + " bytes",
             sizes(in.pieces) + " in rank " + std::to_string(rank), "give all ranks the same problem");
    for (std::size_t i = 0; i < in.pieces.size(); ++i)
      if (!in.pieces[i].empty()) std::memcpy(in.pieces[i].data(), coming.pieces[i].data(), in.pieces[i].size());
    coming.state = Meeting::Message::Taken;
    return true;
  }
  template <class Piece>
  static std::string sizes(const std::vector<Piece>& pieces) {
    std::string text;
    for (const Piece& piece : pieces) text += (text.empty() ? "" : " + ") + std::to_string(piece.size());
    return text;
  }
  Meeting::Message& message(int to, int from) { return meeting_.messages[static_cast<std::size_t>(to * size + from)]; }

  Meeting& meeting_;
  std::vector<char> sent_, received_;  // of the exchange's messages
};

// body(comm) on each rank; rethrows what the first rank threw that failed. Returns what all ranks have sent, in bytes.
template <class Engine = ThreadComm, class Body>
std::uint64_t on_threads(int ranks, double limit_seconds, const Body& body) {
  Meeting meeting;
  meeting.messages.resize(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks));
  std::uint64_t sent = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Engine comm(meeting, rank, ranks, limit_seconds);
      std::exception_ptr failure;
      try {
        body(comm);
      } catch (const OtherFailed&) {
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard lock(meeting.mutex);
      sent += comm.bytes_sent;
      if (!meeting.failure) meeting.failure = failure;
    });
  for (std::thread& thread : threads) thread.join();
  if (meeting.failure) std::rethrow_exception(meeting.failure);
  return sent;
}

}  // namespace flash::phase30
