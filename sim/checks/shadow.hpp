// shadow.hpp: the checked build's memory about memory: who wrote and who read each half word last, and when.
// A Checker belongs to one worker and judges each access: bounds, alignment, initialisation, races by happens-before.
// Use: sim/checks/hooks.cpp calls access(); sim/core/block.cpp reports barriers and warp meetings.
//
// Time. Each block counts its own synchronisations; a clock value belongs to one block (clocks are dealt out in chunks,
// increasing, machine-wide). A thread's accesses carry its clock; each synchronisation gives its participants a new
// one. An earlier access by thread u at clock c happened before the running thread t when one of these holds:
// - it belongs to an earlier launch;
// - same block, and c is before the last __syncthreads;
// - same warp, and t and u met in a __syncwarp at a clock after c (or through others: `seen_` rows are joined);
// - u released and t acquired: fence, atomic, same atomic read, fence or barrier (`View`).
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/core/block.hpp"
#include "sim/core/device_memory.hpp"
#include "sim/core/variables.hpp"
#include "sim/counters/counters.hpp"

namespace flash::simt {

// Who accessed a cell: clock, whether by an atomic, site, thread. Ordered by clock, so that one comparison tells age.
using Epoch = std::uint64_t;
constexpr int kThreadBits = 10, kSiteBits = 16, kClockShift = kThreadBits + kSiteBits + 1;
constexpr Epoch kAtomicEpoch = Epoch{1} << (kThreadBits + kSiteBits);
constexpr unsigned thread_of(Epoch e) {
  return e & ((1u << kThreadBits) - 1);
}
constexpr unsigned site_index_of(Epoch e) {
  return e >> kThreadBits & ((1u << kSiteBits) - 1);
}
constexpr std::uint64_t clock_of(Epoch e) {
  return e >> kClockShift;
}

// Four bytes of memory. Two readers suffice when they are as far apart as possible: whichever thread writes next, one
// of them is unordered with it if any reader is (readers of one warp, one block, several blocks: farther replaces
// nearer). Halves that are accessed apart get a cell each: the upper half's is in a second plane, touched only then.
struct Cell {
  Epoch write, reader, far_reader;
  std::uint64_t split;
};

// What a thread learned through a release: for each block, per thread, the clock before which all is ordered.
using View = std::map<unsigned, std::vector<std::uint64_t>>;
void join(View& into, const View& from);

class Checker;

// What all workers of a machine share.
class GlobalShadow {
 public:
  explicit GlobalShadow(DeviceMemory& memory);
  ~GlobalShadow();
  void forget(const void* begin);  // an array is freed
  void begin_launch(std::size_t workers);
  void end_launch(const std::vector<Checker*>& checkers, Ledger& ledger);

  // The first clock of a new chunk, which from now on belongs to the block.
  std::uint64_t new_clocks(unsigned block);
  unsigned block_of(std::uint64_t clock) const { return owners_[clock / kChunk - first_chunk_]; }
  // Dense index of a site (a program counter or a source location) in this launch; 0 is "unknown".
  unsigned site_index(std::uintptr_t key);
  std::uintptr_t site_key(unsigned index);

  static constexpr std::uint64_t kChunk = 16;
  DeviceMemory& memory;
  Cell *low, *high;  // the two planes
  Epoch launch_begin = 0;
  bool parallel = false;  // several workers: cells are then exchanged atomically

  // Views published by atomics, by address.
  std::mutex mutex;
  std::unordered_map<const void*, View> published;
  std::atomic<bool> any_published{false};

 private:
  std::atomic<std::uint64_t> next_chunk_{1};
  std::uint64_t first_chunk_ = 1;
  unsigned* owners_;  // per chunk of this launch: its block
  std::vector<std::uintptr_t> sites_;
  std::unordered_map<std::uintptr_t, unsigned> site_indices_;
};

class Checker : public Observer {
 public:
  Checker(Worker& worker, GlobalShadow& global);
  ~Checker() override;
  void begin_launch();
  void end_launch(const Tally& tally) { counters.tally = tally; }

  // What the scheduler tells (sim/core/observer.hpp).
  void begin_block() override;
  void end_block() override;
  void switched() override;
  void block_barrier() override;
  void warp_sync(unsigned warp, unsigned lanes) override;
  void converge(unsigned warp) override;
  std::size_t pending(unsigned warp) const override { return counters.pending(warp); }
  void atomic(const void* address, std::size_t bytes, Site site) override;
  void acquire(const void* address) override;
  void fence() override;

  // One access of the running thread. Findings that would make the access itself harmful stop the block.
  template <unsigned kBytes, Access kAccess>
  void access(void* address, std::uintptr_t site_key);
  // The same for the most frequent case: shared memory, nothing remarkable. False, and nothing done, in any other.
  template <unsigned kBytes, Access kAccess>
  bool quick(void* address, std::uintptr_t site_key);
  void range(const void* address, std::size_t bytes, Access access, std::uintptr_t site_key);

  Counters counters;

 private:
  friend class GlobalShadow;
  struct Extra {  // of a thread that uses fences and atomics
    View known, pending, released;
  };
  unsigned site(std::uintptr_t key);
  template <bool kGlobal>
  void touch(Cell& cell, Access access, Epoch mine, bool initialised, bool& reported, const void* address,
             std::size_t bytes);
  template <bool kGlobal>
  void cells(Cell* low, Cell* high, std::size_t offset, std::size_t bytes, Access access, Epoch mine, bool initialised,
             const void* address);
  bool is_built_in(const std::byte* at) const;
  bool elsewhere(const void* address, Access access) const;
  template <bool kGlobal>
  bool ordered(Epoch earlier) const;
  bool ordered_otherwise(Epoch earlier, bool global) const;
  bool ordered_by_views(Epoch earlier, unsigned block) const;
  unsigned distance(Epoch a, Epoch b, bool global) const;
  template <bool kGlobal>
  void remember_reader(Cell& cell, Epoch mine);
  bool enough_readers(const Cell& cell, Epoch mine) const;
  void advance();
  void set_clock(unsigned thread, std::uint64_t clock);
  void meet(const std::vector<unsigned>& threads);

  std::string element(const void* address) const;
  FindingSide side(const char* what, Epoch epoch) const;
  void race(Epoch earlier, bool earlier_writes, Access access, Epoch mine, const void* address, std::size_t bytes);
  void uninitialised(Access access, Epoch mine, const void* address, std::size_t bytes);
  [[noreturn]] void bad_address(const void* address, std::size_t bytes, Access access, std::uintptr_t site_key);

  Worker& worker_;
  GlobalShadow& global_;
  Cell *low_, *high_;  // shared memory's two planes
  const std::byte* shared_;
  std::size_t shared_bytes_ = 0, quick_bytes_ = 0;  // the latter a multiple of 16
  std::uint64_t now_ = 0, chunk_end_ = 0;
  Epoch block_begin_ = 0, barrier_ = 0;                     // everything of this block before barrier_ is ordered
  Epoch running_ = 0;                                       // epochs_ of the running thread
  std::vector<Epoch> epochs_;                               // per thread: its clock and number, site 0
  std::vector<std::array<std::uint64_t, kWarpSize>> seen_;  // per thread: what it knows of its warp's lanes
  std::vector<std::unique_ptr<Extra>> extra_;
  bool any_extra_ = false;
  bool only_barriers_ = true;                        // no other synchronisation in this block since the last barrier
  std::unordered_map<const void*, View> published_;  // by atomics on shared memory
  const SharedLayout* layout_ = nullptr;             // of the kernel's __shared__ variables; null: no gaps
  struct BuiltIn {
    const std::byte* begin;
    std::size_t bytes;
  };
  std::array<BuiltIn, 5> built_ins_{};  // this OS thread's threadIdx and companions
  struct CachedSite {
    std::uintptr_t key;
    unsigned index;
  };
  std::array<CachedSite, 1024> site_cache_;
};

// ---- The path that every access takes ----------------------------------------------------------------------------

inline unsigned Checker::site(std::uintptr_t key) {
  CachedSite& cached = site_cache_[key % 1024];
  if (cached.key != key) [[unlikely]]
    cached = {key, global_.site_index(key)};
  return cached.index;
}

template <bool kGlobal>
[[gnu::always_inline]] inline bool Checker::ordered(Epoch earlier) const {
  if (!kGlobal && (earlier < barrier_ || thread_of(earlier) == thread_of(running_))) return true;
  if (!kGlobal && only_barriers_) return false;
  if (kGlobal && earlier < global_.launch_begin) return true;
  return ordered_otherwise(earlier, kGlobal);
}

// Puts `mine` into the reader slots, unless readers that are at least as far apart are there already.
template <bool kGlobal>
void Checker::remember_reader(Cell& cell, Epoch mine) {
  for (Epoch* slot : {&cell.reader, &cell.far_reader}) {
    for (;;) {
      Epoch old = __atomic_load_n(slot, __ATOMIC_RELAXED);
      const bool near = old < (kGlobal ? global_.launch_begin : barrier_) || ordered<kGlobal>(old);
      if (!near && slot == &cell.reader) break;  // keep it, try the other slot
      if (!near && distance(mine, cell.reader, kGlobal) <= distance(old, cell.reader, kGlobal)) return;
      if (!kGlobal || !global_.parallel) {
        *slot = mine;
        return;
      }
      if (__atomic_compare_exchange_n(slot, &old, mine, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) return;
    }
  }
}

// The frequent case of remember_reader: two other threads of this block, as far apart as this one can make them.
[[gnu::always_inline]] inline bool Checker::enough_readers(const Cell& cell, Epoch mine) const {
  const auto same_warp = [](Epoch a, Epoch b) { return ((a ^ b) & ((1u << kThreadBits) - kWarpSize)) == 0; };
  return only_barriers_ && cell.far_reader >= barrier_ && thread_of(cell.reader) != thread_of(mine) &&
         thread_of(cell.far_reader) != thread_of(mine) &&
         (!same_warp(cell.reader, cell.far_reader) || same_warp(cell.reader, mine));
}

template <bool kGlobal>
[[gnu::always_inline]] inline void Checker::touch(Cell& cell, Access access, Epoch mine, bool initialised,
                                                  bool& reported, const void* address, std::size_t bytes) {
  const Epoch old_enough = kGlobal ? global_.launch_begin : barrier_;
  Epoch before = 0;
  // Leave the own mark first, then look at the others': of two workers at one cell at least one sees the other.
  if (is_write(access) && !is_atomic(access)) {
    if (kGlobal && global_.parallel)
      before = __atomic_exchange_n(&cell.write, mine, __ATOMIC_SEQ_CST);
    else
      before = cell.write, cell.write = mine;
    const Epoch reader = cell.reader, far_reader = cell.far_reader;
    if ((reader | far_reader) != 0) {
      if (reader >= old_enough && !ordered<kGlobal>(reader) && !reported)
        reported = true, race(reader, false, access, mine, address, bytes);
      if (far_reader >= old_enough && !ordered<kGlobal>(far_reader) && !reported)
        reported = true, race(far_reader, false, access, mine, address, bytes);
      cell.reader = cell.far_reader = 0;
    }
    if (before >= old_enough && !ordered<kGlobal>(before) && !reported)
      reported = true, race(before, true, access, mine, address, bytes);
    return;
  }
  // A volatile read leaves no mark. An atomic that writes is remembered among the readers.
  if (access != Access::atomic_read) {
    if (cell.reader < old_enough && !(kGlobal && global_.parallel))
      cell.reader = mine;
    else if (kGlobal || !enough_readers(cell, mine))
      remember_reader<kGlobal>(cell, mine);
  }
  before = cell.write;
  const bool written = before >= (kGlobal ? Epoch{1} : block_begin_) || initialised;
  if (!written || before >= old_enough) [[unlikely]] {
    if (!written && is_read(access) && !reported) reported = true, uninitialised(access, mine, address, bytes);
    if (before >= old_enough && !(is_atomic(access) && (before & kAtomicEpoch)) && !ordered<kGlobal>(before) &&
        !reported)
      reported = true, race(before, true, access, mine, address, bytes);
  }
  // Plain reads collide with atomics that write, atomics that write with plain reads.
  if (access == Access::atomic_read || (access == Access::read && !((cell.reader | cell.far_reader) & kAtomicEpoch)))
    return;
  for (const Epoch other : {cell.reader, cell.far_reader})
    if (other >= old_enough && is_atomic(access) != ((other & kAtomicEpoch) != 0) && !reported &&
        !ordered<kGlobal>(other))
      reported = true, race(other, false, access, mine, address, bytes);
  // A recent plain write stays, so that other threads' atomics still collide with it.
  if (is_write(access) && (before < old_enough || (before & kAtomicEpoch)))
    __atomic_store_n(&cell.write, mine, __ATOMIC_RELAXED);
}

template <bool kGlobal>
[[gnu::always_inline]] inline void Checker::cells(Cell* low, Cell* high, std::size_t offset, std::size_t bytes,
                                                  Access access, Epoch mine, bool initialised, const void* address) {
  bool reported = false;
  std::size_t word = offset / 4;
  if (bytes < 4) {
    Cell& cell = low[word];
    std::uint64_t state = __atomic_load_n(&cell.split, __ATOMIC_ACQUIRE);
    if (state != 1) [[unlikely]] {
      // 0 = one cell for the word, 2 = somebody is splitting it, 1 = split
      while (state != 1) {
        state = 0;
        if (__atomic_compare_exchange_n(&cell.split, &state, 2, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
          high[word] = cell;
          __atomic_store_n(&cell.split, 1, __ATOMIC_RELEASE);
          state = 1;
        }
      }
    }
    touch<kGlobal>(offset & 2 ? high[word] : cell, access, mine, initialised, reported, address, bytes);
    return;
  }
  for (std::size_t i = 0; i < bytes / 4; ++i, ++word) {
    touch<kGlobal>(low[word], access, mine, initialised, reported, address, bytes);
    if (low[word].split != 0) [[unlikely]] {
      touch<kGlobal>(high[word], access, mine, initialised, reported, address, bytes);
      if (!kGlobal && access == Access::write) low[word].split = 0;
    }
  }
}

template <unsigned kBytes, Access kAccess>
[[gnu::always_inline]] inline bool Checker::quick(void* address, std::uintptr_t site_key) {
  if constexpr (kBytes < 4 || is_atomic(kAccess)) return false;
  const auto in_shared = static_cast<std::size_t>(static_cast<const std::byte*>(address) - shared_);
  const CachedSite& cached = site_cache_[site_key % 1024];
  if (in_shared >= quick_bytes_ || in_shared % kBytes != 0 || cached.key != site_key) return false;
  if (layout_ && !layout_->holds(in_shared, kBytes)) return false;
  // Look first: was the memory written in this block, before the last barrier, and are the readers as they should be?
  const Epoch mine = running_ | Epoch{cached.index} << kThreadBits;
  Cell* const cell = low_ + in_shared / 4;
  for (unsigned i = 0; i < kBytes / 4; ++i) {
    if (cell[i].split != 0 || cell[i].write >= barrier_) return false;
    if (is_write(kAccess) && (cell[i].reader >= barrier_ || cell[i].far_reader >= barrier_)) return false;
    if (!is_write(kAccess) &&
        (cell[i].write < block_begin_ || (cell[i].reader >= barrier_ && !enough_readers(cell[i], mine))))
      return false;
  }
  if (!counters.join(cached.index, reinterpret_cast<std::uintptr_t>(address), kSharedSpace)) return false;
  // Then write.
  for (unsigned i = 0; i < kBytes / 4; ++i) {
    if (is_write(kAccess))
      cell[i].write = mine, cell[i].reader = cell[i].far_reader = 0;
    else if (cell[i].reader < barrier_)
      cell[i].reader = mine;
  }
  return true;
}

template <unsigned kBytes, Access kAccess>
[[gnu::always_inline]] inline void Checker::access(void* address, std::uintptr_t site_key) {
  const auto* at = static_cast<const std::byte*>(address);
  const std::size_t in_shared = static_cast<std::size_t>(at - shared_);
  if (in_shared < shared_bytes_) {
    if (in_shared + kBytes > shared_bytes_ || in_shared % kBytes != 0 ||
        (layout_ && !layout_->holds(in_shared, kBytes))) [[unlikely]] {
      if (is_built_in(at)) return;
      bad_address(address, kBytes, kAccess, site_key);
    }
    const unsigned s = site(site_key);
    const Epoch mine = running_ | Epoch{s} << kThreadBits | (is_atomic(kAccess) ? kAtomicEpoch : 0);
    counters.log(s, reinterpret_cast<std::uintptr_t>(at), kBytes, kAccess, kSharedSpace);
    cells<false>(low_, high_, in_shared, kBytes, kAccess, mine, false, address);
    return;
  }
  if (global_.memory.contains(address)) {
    const std::size_t owner = global_.memory.owner(address);
    if (owner >= global_.memory.arrays.size()) [[unlikely]]
      bad_address(address, kBytes, kAccess, site_key);
    const DeviceArray& array = global_.memory.arrays[owner];
    const std::size_t in_array = static_cast<std::size_t>(at - array.begin);
    if (in_array >= array.bytes || in_array + kBytes > array.bytes || in_array % kBytes != 0 || !array.live ||
        (is_write(kAccess) && array.constant)) [[unlikely]]
      bad_address(address, kBytes, kAccess, site_key);
    const unsigned s = site(site_key);
    const Epoch mine = running_ | Epoch{s} << kThreadBits | (is_atomic(kAccess) ? kAtomicEpoch : 0);
    // The constant cache serves one address at a time and is no part of global memory's traffic.
    if (!array.constant)
      counters.log(s, reinterpret_cast<std::uintptr_t>(at), kBytes, kAccess, static_cast<unsigned>(owner));
    cells<true>(global_.low, global_.high, global_.memory.offset(address), kBytes, kAccess, mine, array.initialised,
                address);
    return;
  }
  if (static_cast<std::size_t>(at - worker_.stack) < worker_.stack_bytes) return;
  if (!elsewhere(address, kAccess)) [[unlikely]]
    bad_address(address, kBytes, kAccess, site_key);
}

}  // namespace flash::simt
