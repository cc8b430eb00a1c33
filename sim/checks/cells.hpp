// cells.hpp: what is remembered of each piece of memory: who wrote it last, who read it, who used atomics or volatile.
// A word (4 bytes) has one cell until somebody accesses a part of it; then each half, and later each byte, has its own.
// Use: Checker (checker.hpp) looks at cells and leaves marks in them; one Cells for global memory, one per block.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>

namespace flash::simt {

// An access as a mark: clock, site, thread. Ordered by clock, so that one comparison tells age. Half of the numbers of
// threads are their companions', who run their asynchronous operations (sim/core/async.hpp).
using Epoch = std::uint64_t;
constexpr int kThreadBits = 11, kSiteBits = 15, kClockShift = kThreadBits + kSiteBits + 2;
// Of a volatile store: behind a fence of its thread, which is how a flag is set. Of an atomic: the value is still its
// own, so that the next atomic reads it.
constexpr Epoch kFlagEpoch = Epoch{1} << (kThreadBits + kSiteBits), kLastEpoch = kFlagEpoch;
// Of an atomic: its scope is the block. Of a companion: a bulk group writes this (AsyncOperation::in_order).
constexpr Epoch kBlockEpoch = kFlagEpoch << 1, kInOrderEpoch = kBlockEpoch;
constexpr unsigned thread_of(Epoch e) {
  return e & ((1u << kThreadBits) - 1);
}
constexpr unsigned kCompanion = 1u << (kThreadBits - 1);
constexpr bool is_of_companion(Epoch e) {
  return e & kCompanion;
}
// What others know of a companion's bulk groups is apart from what they know of its other operations.
constexpr unsigned kInOrder = kCompanion << 1;
constexpr unsigned known_as(Epoch e) {
  return thread_of(e) | (is_of_companion(e) && e & kInOrderEpoch ? kInOrder : 0);
}
constexpr unsigned site_index_of(Epoch e) {
  return e >> kThreadBits & ((1u << kSiteBits) - 1);
}
constexpr std::uint64_t clock_of(Epoch e) {
  return e >> kClockShift;
}

// Two accesses of one kind, as far apart as possible: whichever thread comes next, one of them is unordered with it if
// any of that kind is (lanes of one warp, warps of one block, several blocks: farther replaces nearer).
struct Marks {
  Epoch one, other;
};

// Address space for all tables of a checker: one system call, and not one for each of them.
class Space {
 public:
  // As many bytes as the tables have.
  explicit Space(std::size_t bytes);
  ~Space();
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;
  // The next bytes of it, from a page's begin on.
  void* take(std::size_t bytes);

 private:
  std::byte* memory_;
  std::size_t bytes_, taken_ = 0;
};

// An array of zeros whose pages are taken as they are touched.
template <class T>
class Table {
 public:
  Table(Space& space, std::size_t count) : data_(static_cast<T*>(space.take(count * sizeof(T)))) {}
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  T& operator[](std::size_t i) const { return data_[i]; }
  // Zeros again, without their pages; both multiples of 4096.
  void forget(std::size_t first, std::size_t count) { forgotten(data_ + first, count * sizeof(T)); }

 private:
  static void forgotten(void* memory, std::size_t bytes);
  T* data_;
};

// Each kind of access has marks of its own, so that none displaces another that collides with more. They lie in planes,
// whose pages cost nothing until they are touched: what is only read needs 4 bytes for each byte, what is only written
// 2. Plane n holds the cell that begins at byte n of each word.
class Cells {
 public:
  static constexpr std::size_t kBytes = 4 * (sizeof(Epoch) + 4 * sizeof(Marks)) + 1;  // for each word
  Cells(Space& space, std::size_t words);
  // Back to what fresh memory has.
  void forget(std::size_t first_word, std::size_t words);
  // Sees to it that the word has cells of at most `bytes` (1 or 2); returns its state. By several workers at a time.
  unsigned split(std::size_t word, unsigned bytes);
  // Says that the word has what the bits stand for; they are never taken back.
  void set(std::size_t word, std::uint8_t bits) {
    uses(bits);
    __atomic_fetch_or(&state[word], bits, __ATOMIC_SEQ_CST);
  }

  struct Plane {
    Plane(Space& space, std::size_t words)
        : write(space, words),
          readers(space, words),
          atomics(space, words),
          loads(space, words),
          stores(space, words) {}
    Table<Epoch> write;          // the last plain write
    Table<Marks> readers;        // plain reads
    Table<Marks> atomics;        // since that write
    Table<Marks> loads, stores;  // volatile ones, since that write
  };
  std::array<Plane, 4> planes;
  // Bits 0, 1: one cell for the word, one for each half, one for each byte; 3 = being split. Bit 2: there are marks of
  // atomics or volatile accesses. Bit 3: more of the word lies beside the cells: marks where there are more than two of
  // a kind (Checker::keep), or what a copy has brought here unwritten (Carried). Bit 4: an asynchronous copy
  // (cp.async) writes here. Bit 5: another asynchronous operation reads or writes here. Bit 6: an mbarrier. Bit 7:
  // another block of the cluster has been here.
  static constexpr std::uint8_t kLevel = 3, kHalves = 1, kSingle = 2, kSplitting = 3, kUnusual = 4, kMore = 8,
                                kCarried = kMore, kInFlight = 16, kAsync = 32, kMbarrier = 64, kCluster = 128;
  Table<std::uint8_t> state;

 private:
  // Bits that some word has had: tables that none has asked for need not be forgotten.
  void uses(std::uint8_t bits) {
    if ((__atomic_load_n(&used_, __ATOMIC_RELAXED) & bits) != bits) __atomic_fetch_or(&used_, bits, __ATOMIC_RELAXED);
  }
  std::uint8_t used_ = 0;
};

// Bytes of a word that a copy has brought from memory which nobody had written. To copy them is no defect, to use them
// is.
struct Carried {
  std::uint8_t bytes = 0;             // a bit for each
  const std::byte* from = nullptr;    // the first of them; null: shared memory
  const char* instruction = nullptr;  // that copied them
  std::source_location site{};
  unsigned block = 0, thread = 0;
};

}  // namespace flash::simt
