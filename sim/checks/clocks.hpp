// clocks.hpp: what is known of the times of threads: the clocks of one block's (Clocks), of all blocks' (View), what an
// address hands over (Published).
// Use: happens_before.cpp has the rules; a Checker keeps a View for each thread that uses fences or atomics.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/checks/cells.hpp"

namespace flash::simt {

// Clocks of one block's threads, before which all is ordered: one for all of them, and of some a later one.
class Clocks {
 public:
  std::uint64_t of(unsigned thread) const;
  void raise_all(std::uint64_t clock);
  void raise(unsigned thread, std::uint64_t clock);
  void join(const Clocks& other);

 private:
  std::uint64_t all_ = 0;
  struct Later {
    unsigned thread;
    std::uint64_t clock;  // above all_
  };
  std::vector<Later> later_;  // by thread
};

// What a thread learned through releases: the clocks of each block. Copies share their contents until one changes: all
// threads of a block learn the same at a barrier, and the last of 1000 blocks learns of 1000.
class View {
 public:
  bool empty() const { return !blocks_ || blocks_->empty(); }
  bool is(const View& other) const { return blocks_ == other.blocks_; }
  void clear() { blocks_.reset(); }
  const Clocks* find(unsigned block) const;
  Clocks& of(unsigned block);
  void join(const View& other);

  // Of accesses that are over, reads and copies, more may be known than of stores. It stands beside, as of another
  // block.
  static constexpr unsigned kReads = 1u << 31;
  void join_as_reads(const View& other);

 private:
  using Blocks = std::map<unsigned, Clocks>;
  Blocks& own();  // not shared any more
  std::shared_ptr<Blocks> blocks_;
};

// What the atomics and volatile stores of one address hand over to who reads it. A fence of block scope counts in its
// block alone, and so does an atomic: who is in another block neither reads its value nor what was there before it.
struct Published {
  struct Views {
    View far, near;  // to all blocks; to the own one
  };
  View far;
  std::map<unsigned, Views> blocks;  // what each gave
  bool own = false;                  // the last atomic was of block scope: there is one block
  // Additions of red_release_add. Who waits for a number need not have seen those that have found as much.
  struct Count {
    unsigned before;  // the number that it has found
    unsigned block;   // of the thread that adds
    View view;        // what it hands over
  };
  std::vector<Count> counts;
  View not_counted;  // what all other atomics hand over
};

}  // namespace flash::simt
