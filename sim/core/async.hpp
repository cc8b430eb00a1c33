// async.hpp: what the asynchronous operations of one block (TMA copies, wgmma) will still read or write, and where.
// From issue until somebody may know that it is complete nobody may write what it reads or touch what it writes. Its
// accesses are no thread's: each thread has a companion that runs the operations which the thread issues. Others come
// to know of the companion's accesses as they come to know of a thread's, through what the operation completes on.
// Use: Worker::begin_async and end_async; only the checked build asks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/core/simt.hpp"

namespace flash::simt {

struct AsyncPiece {
  const std::byte* begin;  // of shared or of global memory, a multiple of 4, as is the size
  std::size_t bytes;
};

struct AsyncOperation {
  const char* instruction;         // as findings name it: "wgmma"
  const char* remedy;              // for who comes too early: "wait for it (wgmma_wait) before this"
  bool writes;                     // the pieces; else it reads them
  Site site;                       // where it was issued
  unsigned thread;                 // by whom; of a warpgroup the first one
  std::vector<AsyncPiece> pieces;  // none of them overlap
  // It adds to floats of so many bytes in global memory, each by an atomic of its own, and `writes` then; 0: it does
  // not.
  unsigned adds = 0;
  // It belongs to a bulk group, and is what the group writes: who knows that it is complete knows the same of those
  // that its thread issued before, and of no others.
  bool in_order = false;
  bool copies = true;       // what it reads it writes elsewhere; else it uses it
  unsigned alignment = 1;   // of the pieces in global memory
  std::uint64_t begun = 0;  // the clock of the checks
  unsigned block = ~0u;     // of another block of the cluster: its number
  bool sends = false;       // from a block's shared memory to another's: it reads the former
  bool counted = false;     // its traffic is: a multicast reads once for all blocks
};

class AsyncRanges {
 public:
  using Id = std::uint64_t;
  void begin_block(const std::byte* shared, std::size_t shared_bytes);
  Id begin(AsyncOperation operation);
  AsyncOperation end(Id id);
  bool empty() const { return operations_.empty(); }
  // The oldest operation that an access to these bytes disturbs; null: none. Atomics do not disturb additions.
  const AsyncOperation* disturbed(const void* address, std::size_t bytes, bool writes, bool atomic = false) const;
  // One that reads the block's shared memory for another block; null: none.
  const AsyncOperation* sending() const;
  // Does any operation use this word of shared memory?
  bool uses(std::size_t word) const { return word < users_.size() && users_[word] > 0; }

 private:
  void count(const AsyncOperation& operation, int change);
  struct UnderWay {
    AsyncOperation operation;
    const std::byte *begin, *end;  // all pieces lie between them
  };
  std::map<Id, UnderWay> operations_;  // oldest first
  Id last_ = 0;
  const std::byte* shared_ = nullptr;
  std::size_t shared_bytes_ = 0;
  std::vector<std::uint16_t> users_;  // operations per word of shared memory
};

}  // namespace flash::simt
