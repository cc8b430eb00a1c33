// copies.hpp: the asynchronous copies (cp.async) of one block that their threads have not waited for yet.
// PTX ISA, "cp.async": a copy's writes are visible to its thread after a wait for its group, and to others after a
// barrier behind that wait; nothing else says when it happens. So when its bytes arrive is a choice (Completion).
// Use: Worker issues, commits and waits; the checks ask which copy is under way at an address.
#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "sim/core/simt.hpp"

namespace flash::simt {

struct Copy {
  std::byte* to;                 // shared memory
  const std::byte* from;         // global memory
  unsigned bytes, source_bytes;  // the rest of the destination becomes zero
  Site site;
  unsigned thread = 0;
  std::uint64_t group = 0;  // of its thread, counted from 0
  bool arrived = false;     // its bytes are there, although nobody may know it yet
  std::uint64_t left = 0;   // the last wait since its group was committed left so many groups, this one among them
};

class Copies {
 public:
  void begin_block(std::size_t threads, Completion completion, std::uint64_t seed);
  // The destination holds NaN from here on (or its new bytes, with Completion::eager).
  void issue(Copy copy, unsigned thread);
  void commit(unsigned thread) { ++threads_[thread].committed; }
  // The thread waits for them by its next arrival at an mbarrier.
  void wait_by_arrival(unsigned thread) { threads_[thread].waits_by_arrival = true; }
  // Does it? Asked by that arrival.
  bool waits_by_arrival(unsigned thread) { return std::exchange(threads_[thread].waits_by_arrival, false); }
  // The thread's copies but those of its last `pending` groups are done: calls ended(copy) for each, in order of issue.
  template <class Ended>
  void wait(unsigned thread, std::uint64_t pending, const Ended& ended);
  bool empty() const { return under_way_ == 0; }
  std::uint64_t committed(unsigned thread) const { return threads_[thread].committed; }  // groups
  bool is_committed(const Copy& copy) const { return copy.group < threads_[copy.thread].committed; }
  // The copy that writes this byte, or that reads it; null: none.
  const Copy* writing(const void* address) const;
  const Copy* reading(const void* address, std::size_t bytes) const;
  // The most bytes that each thread had under way, added up: what the block has in flight when its warps run together.
  std::uint64_t most_bytes() const;

 private:
  struct OfThread {
    std::vector<Copy> copies;  // under way, in order of issue
    std::uint64_t committed = 0, bytes = 0, most_bytes = 0;
    bool waits_by_arrival = false;
  };
  static void arrive(Copy& copy);
  void maybe_arrive();
  std::vector<OfThread> threads_;
  std::size_t under_way_ = 0;
  Completion completion_ = Completion::late;
  std::mt19937_64 random_;
};

template <class Ended>
void Copies::wait(unsigned thread, std::uint64_t pending, const Ended& ended) {
  maybe_arrive();
  OfThread& own = threads_[thread];
  std::size_t done = 0;
  for (; done < own.copies.size() && own.copies[done].group + pending < own.committed; ++done) {
    Copy& copy = own.copies[done];
    arrive(copy);
    own.bytes -= copy.bytes;
    ended(copy);
  }
  own.copies.erase(own.copies.begin(), own.copies.begin() + static_cast<std::ptrdiff_t>(done));
  for (Copy& copy : own.copies)
    if (copy.group < own.committed) copy.left = pending;
  under_way_ -= done;
}

}  // namespace flash::simt
