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
    if (!sent_) message(to_, rank).state = Meeting::Message::None;
    sent_ = received_ = true;
  }

 protected:
  void start(const std::vector<Bytes>& send, const std::vector<Room>& receive) override {
    const std::lock_guard lock(meeting_.mutex);
    receive_ = receive, sent_ = received_ = false;
    message(to_, rank) = {send, Meeting::Message::Sent};
  }
  bool progress() override {
    const std::lock_guard lock(meeting_.mutex);
    if (meeting_.failure) throw OtherFailed();
    using Message = Meeting::Message;
    Message &coming = message(rank, from_), &going = message(to_, rank);
    if (!received_ && coming.state == Message::Sent) {
      if (sizes(coming.pieces) != sizes(receive_))
        refuse("the message of rank " + std::to_string(from_), sizes(coming.pieces) + " bytes",
               sizes(receive_) + " in rank " + std::to_string(rank), "give all ranks the same problem");
      for (std::size_t i = 0; i < receive_.size(); ++i)
        if (!receive_[i].empty()) std::memcpy(receive_[i].data(), coming.pieces[i].data(), receive_[i].size());
      coming.state = Message::Taken, received_ = true;
    }
    if (!sent_ && going.state == Message::Taken) going.state = Message::None, sent_ = true;
    return sent_ && received_;
  }
  bool has_sent() override { return sent_; }
  bool has_received() override { return received_; }

 private:
  template <class Piece>
  static std::string sizes(const std::vector<Piece>& pieces) {
    std::string text;
    for (const Piece& piece : pieces) text += (text.empty() ? "" : " + ") + std::to_string(piece.size());
    return text;
  }
  Meeting::Message& message(int to, int from) { return meeting_.messages[static_cast<std::size_t>(to * size + from)]; }

  Meeting& meeting_;
  std::vector<Room> receive_;
  bool sent_ = true, received_ = true;
};

// body(comm) on each rank; rethrows what the first rank threw that failed. Returns what all ranks have sent, in bytes.
template <class Body>
std::uint64_t on_threads(int ranks, double limit_seconds, const Body& body) {
  Meeting meeting;
  meeting.messages.resize(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks));
  std::uint64_t sent = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      ThreadComm comm(meeting, rank, ranks, limit_seconds);
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
