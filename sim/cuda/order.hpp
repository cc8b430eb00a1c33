// order.hpp: which launches in streams are in order. Each stream, each event and the host know of every stream the last
// operation that is over for them: vector clocks. An operation in a stream comes after what its stream and the host
// know; one in the legacy stream after all blocking streams, and one in a blocking stream after the legacy stream.
// Use: streams.cpp; Program::run asks for the launches that the running one has no order with.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

namespace flash::cuda {

class Known {
 public:
  void learn(unsigned stream, std::uint64_t operation) {
    std::uint64_t& last = last_[stream];
    if (operation > last) last = operation;
  }
  void join(const Known& other) {
    for (const auto& [stream, operation] : other.last_) learn(stream, operation);
  }
  std::uint64_t of(unsigned stream) const {
    const auto found = last_.find(stream);
    return found == last_.end() ? 0 : found->second;
  }

 private:
  std::map<unsigned, std::uint64_t> last_;  // operations are counted over all streams
};

// The launches that the host has not waited for.
class Launches {
 public:
  void add(unsigned stream, std::uint64_t operation) { of_[stream].push_back(operation); }
  // Those that are not over for who knows so much, the earliest first.
  std::vector<std::uint64_t> beside(const Known& known) const;
  void forget(const Known& known);
  bool empty() const { return of_.empty(); }

 private:
  std::map<unsigned, std::vector<std::uint64_t>> of_;  // by stream, in the order of the program
};

// Of the operation that runs in a stream: its number, and the launches before it that it has no order with.
struct Turn {
  std::uint64_t operation = 0;
  bool all_over = true;  // the host has waited for all of them: nobody will ever ask about them
  std::vector<std::uint64_t> beside = {};
};
const Turn& turn();

}  // namespace flash::cuda
