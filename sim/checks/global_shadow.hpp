// global_shadow.hpp: what the checkers of all workers share: marks of global memory, who has which clocks, which sites
// there are, what atomics on global memory have published.
// Use: a checked machine has one; it tells of launches and of arrays that are freed.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/checks/additions.hpp"
#include "sim/checks/cells.hpp"
#include "sim/checks/clocks.hpp"
#include "sim/core/device_memory.hpp"
#include "sim/core/simt.hpp"
#include "sim/machine_options.hpp"

namespace flash::simt {

using MoreMarks = std::unordered_map<const Marks*, std::vector<Epoch>>;

class Checker;

// Of the marks of an instruction: its name, and what is to be done about a race with it.
struct AsyncSite {
  const char *instruction, *remedy;
};

// What all workers of a machine share.
class GlobalShadow {
 public:
  explicit GlobalShadow(DeviceMemory& memory);
  void forget(const void* begin);  // an array is freed
  void begin_launch(std::size_t workers, const Launch& launch);
  void end_launch(const std::vector<Checker*>& checkers, KernelReport& report);

  // The first clock of a new chunk, which from now on belongs to the block.
  std::uint64_t new_clocks(unsigned block);
  unsigned block_of(std::uint64_t clock) const { return owners_[clock / kChunk - first_chunk_]; }
  // Until the atomic has changed the value, other atomics wait. Wide ones, of up to 16 bytes, begin at multiples of
  // their size.
  std::unique_lock<std::mutex> lock_value(const void* address) {
    return std::unique_lock(atomics[reinterpret_cast<std::uintptr_t>(address) / 16 % atomics.size()]);
  }
  // Dense index of a site (a program counter or a source location) in this launch; 0 is "unknown".
  unsigned site_index(std::uintptr_t key);
  std::uintptr_t site_key(unsigned index);
  std::vector<UnorderedAdditions> unordered(const std::vector<Checker*>& checkers);

  static constexpr std::uint64_t kChunk = 16;
  DeviceMemory& memory;

 private:
  Space space_;  // of the tables

 public:
  Cells cells;
  Additions additions;
  // Before the first of these nothing collides: this launch's begin, or that of one that may run beside it.
  Epoch launch_begin = 0, own_begin = 0;
  // Of an earlier access at this clock: may its launch run beside this one? And that launch's grid.
  bool beside(std::uint64_t clock) const;
  dim3 grid_of(std::uint64_t clock) const { return launch_at(clock).grid; }
  bool parallel = false;  // several workers: cells are then exchanged atomically

  std::unordered_map<unsigned, AsyncSite> async_sites;  // by index of the site, of all workers
  std::set<const void*> point_to_point;                 // kernels that use more than barriers and whole warps
  MoreMarks more;

  // Has any byte of the array been written?
  bool any_written(const DeviceArray& array);

  // By word of `cells`; and whether there are any.
  std::unordered_map<std::size_t, Carried> carried;
  std::atomic<bool> any_carried{false};

  // Views published by atomics and volatile writes, by address.
  std::mutex mutex;
  std::unordered_map<const void*, Published> published;
  std::atomic<bool> any_published{false};
  // One for all addresses with the same remainder: an atomic's mark and its value change in one step.
  std::array<std::mutex, 256> atomics;

 private:
  // The launches since which chunks and sites are kept: the host has waited for all earlier ones.
  struct Launched {
    std::uint64_t first_chunk, number;
    dim3 grid;
  };
  const Launched& launch_at(std::uint64_t clock) const;
  std::vector<Launched> launches_;
  std::vector<std::uint64_t> beside_;  // numbers of those that may run beside this one, the earliest first
  std::atomic<std::uint64_t> next_chunk_{1};
  std::uint64_t first_chunk_ = 1;
  Table<unsigned> owners_;         // per chunk of this launch: its block
  std::set<const void*> written_;  // arrays that any_written() has found to be
  std::vector<std::uintptr_t> sites_;
  std::unordered_map<std::uintptr_t, unsigned> site_indices_;
};

}  // namespace flash::simt
