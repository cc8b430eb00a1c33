// Phase 30: ranks that are MPI processes. Only calls that return at once are used, and a clock runs beside those that
// cannot be (MPI_Init, MPI_Finalize): a rank that hangs keeps nobody for ever.
// Use: MpiComm comm(30);
#pragma once
#include <mpi.h>

#include <vector>

#include "phases/30-ring/comm.hpp"
#include "phases/ring/mpi/keeper.hpp"
#include "phases/ring/watchdog.hpp"

namespace flash::phase30 {

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
  void start() override {
    receives_.assign(receive_.size(), {}), sends_.assign(send_.size(), {});
    for (std::size_t i = 0; i < receive_.size(); ++i)
      for (const Room& piece : receive_[i].pieces)
        for_each_part(piece.size(), [&](std::size_t at, int bytes) {
          receives_[i].bytes.push_back(bytes);
          check(MPI_Irecv(piece.data() + at, bytes, MPI_BYTE, receive_[i].from, 0, MPI_COMM_WORLD,
                          &receives_[i].parts.emplace_back()),
                receive_[i].from);
        });
    for (std::size_t i = 0; i < send_.size(); ++i)
      for (const Bytes& piece : send_[i].pieces)
        for_each_part(piece.size(), [&](std::size_t at, int bytes) {
          check(MPI_Isend(piece.data() + at, bytes, MPI_BYTE, send_[i].to, 0, MPI_COMM_WORLD,
                          &sends_[i].parts.emplace_back()),
                send_[i].to);
        });
  }
  bool progress() override {
    bool over = true;
    for (std::size_t i = 0; i < receives_.size(); ++i) over = test(receives_[i], receive_[i].from) && over;
    for (std::size_t i = 0; i < sends_.size(); ++i) over = test(sends_[i], send_[i].to) && over;
    return over;
  }
  bool has_sent(std::size_t i) override { return sends_[i].over; }
  bool has_received(std::size_t i) override { return receives_[i].over; }

 private:
  struct Message {
    std::vector<MPI_Request> parts;
    std::vector<int> bytes;  // of each that is received
    bool over = false;
  };
  bool test(Message& message, int peer) {
    if (message.over) return true;
    int done = 1;
    std::vector<MPI_Status> status(message.parts.size());
    check(MPI_Testall(static_cast<int>(message.parts.size()), message.parts.data(), &done, status.data()), peer);
    for (std::size_t i = 0; done && i < message.bytes.size(); ++i) {
      int bytes = 0;
      MPI_Get_count(&status[i], MPI_BYTE, &bytes);
      if (bytes != message.bytes[i])
        refuse("the message of rank " + std::to_string(peer), std::to_string(bytes) + " bytes",
               std::to_string(message.bytes[i]) + " in rank " + std::to_string(rank),
               "give all ranks the same problem");
    }
    return message.over = done;
  }
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

  std::vector<Message> sends_, receives_;
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
