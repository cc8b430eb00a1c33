// accesses.hpp: one access of a kernel: which memory it is to, whether it may be there, and then its cells (marks.hpp).
// The path of every access, so all of it is inline; rarer kinds of accesses are in accesses.cpp.
// Use: sim/checks/hooks.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

#include "sim/checks/marks.hpp"
#include "sim/core/device_memory.hpp"

namespace flash::simt {

inline unsigned Checker::site(std::uintptr_t key) {
  CachedSite& cached = site_cache_[key];
  if (cached.key != key) [[unlikely]] {
    if (cached.left > 0) give_back(cached);
    cached.key = key, cached.index = global_.site_index(key);
  }
  return cached.index;
}

// ---- reads that are expected ----------------------------------------------------------------------------------------

// The running thread has read where other lanes of its warp have. If it goes on as they did, and what it reads is
// settled, so many reads are counted here and need no more than a look at their addresses (hooks.cpp).
template <unsigned kBytes>
[[gnu::noinline]] void Checker::foresee(CachedSite& cached, bool shared) {
  constexpr std::uint16_t kLeast = 4, kMost = 1024;
  const Counters::Ahead ahead = counters.ahead(cached.index);
  if (ahead.count < kLeast || cached.index == 0) return;  // site 0 is several
  const std::uint32_t most = std::min<std::uint32_t>(ahead.count, cached.most = std::max(cached.most, kLeast));
  const std::uint32_t settled = settled_.count(ahead.address, ahead.step, most, kBytes, shared);
  if (settled < kLeast || (!cached.listed && foreseen_count_ == foreseen_.size())) return;
  if (settled == cached.most && cached.most < kMost) cached.most *= 2;
  if (!std::exchange(cached.listed, true)) foreseen_[foreseen_count_++] = &cached;
  counters.take(cached.index, settled);
  cached.expected = ahead.address, cached.step = ahead.step, cached.left = settled;
}

// Would a plain read of a word of global memory find nothing, and leave no mark? So it is where two other blocks have
// read it in this launch and nobody writes it, as long as this block knows of no others.
inline bool Checker::read_by_others(std::size_t word, bool initialised) const {
  const Cells::Plane& plane = global_.cells.planes[0];
  if (global_.cells.state[word] != 0) return false;
  const Epoch write = __atomic_load_n(&plane.write[word], __ATOMIC_RELAXED);
  if (write >= global_.launch_begin || (write == 0 && !initialised)) return false;
  const Epoch one = __atomic_load_n(&plane.readers[word].one, __ATOMIC_RELAXED);
  const Epoch other = __atomic_load_n(&plane.readers[word].other, __ATOMIC_RELAXED);
  if (one < global_.launch_begin || other < global_.launch_begin) return false;
  const unsigned first = global_.block_of(clock_of(one)), second = global_.block_of(clock_of(other));
  return first != second && first != worker_.block && second != worker_.block;
}

// Is it so of what is read here? Then the whole line is looked at, since others of the block will read the rest of it.
template <unsigned kBytes>
[[gnu::always_inline]] inline bool Checker::settle(const DeviceArray& array, const std::byte* at, unsigned space) {
  if (any_extra_ || point_to_point_) return false;
  const std::size_t word = global_.memory.offset(at) / 4;
  for (unsigned i = 0; i < kBytes / 4; ++i)
    if (!read_by_others(word + i, array.initialised)) return false;
  const bool lasts = !array.constant && !array.of_kernel && !others_watch_ && !stored_.finding;
  if (!lasts || reinterpret_cast<std::uintptr_t>(array.begin) % Settled::kLine != 0) return true;
  const std::size_t in_line = reinterpret_cast<std::uintptr_t>(at) % Settled::kLine / 4;
  const std::byte* const begin = at - in_line * 4;
  const auto words =
      std::min<std::size_t>(Settled::kLine, static_cast<std::size_t>(array.begin + array.bytes - begin)) / 4;
  std::uint32_t settled = 0;
  for (std::size_t i = 0; i < words; ++i)
    settled |= std::uint32_t{read_by_others(word - in_line + i, array.initialised)} << i;
  settled_.add(reinterpret_cast<std::uintptr_t>(begin), settled, false, space);
  return true;
}

// ---- every access ---------------------------------------------------------------------------------------------------

template <Access kAccess>
[[gnu::always_inline]] inline Epoch Checker::flags() const {
  if (is_atomic(kAccess)) return kLastEpoch | (scope_ == Scope::block ? kBlockEpoch : 0);
  return kAccess == Access::volatile_write && fenced_[worker_.current] ? kFlagEpoch : 0;
}

template <unsigned kBytes, Access kAccess>
[[gnu::always_inline]] inline bool Checker::quick(void* address, std::uintptr_t site_key) {
  if constexpr (kBytes < 4 || !is_plain(kAccess)) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::size_t in_shared = at - reinterpret_cast<std::uintptr_t>(shared_);
  const bool shared = in_shared < quick_bytes_;
  CachedSite& cached = site_cache_[site_key];
  if (cached.key != site_key) return false;
  if (kAccess == Access::read) {
    if (cached.left > 0) give_back(cached);  // the thread has gone elsewhere
    if (at % kBytes == 0 && settled_.has(at, kBytes, shared)) {
      if (!counters.join(cached.index, at, settled_.space(at))) return false;
      foresee<kBytes>(cached, shared);
      return true;
    }
  }
  if (!shared || in_shared % kBytes != 0) return false;
  if (is_write(kAccess) && layout_ && !layout_->holds(in_shared, kBytes)) return false;  // gaps are never written
  // Look first: was the memory written in this block, before the last barrier or by this thread, and are the readers as
  // they should be?
  constexpr unsigned kWords = kBytes < 4 ? 1 : kBytes / 4;
  const std::uint8_t* const state = &cells_.state[in_shared / 4];
  Epoch* const write = &cells_.planes[0].write[in_shared / 4];
  Marks* const readers = &cells_.planes[0].readers[in_shared / 4];
  bool lasting = settles_;
  for (unsigned i = 0; i < kWords; ++i) {
    if (state[i] != 0) return false;
    if (write[i] >= barrier_) {
      if (thread_of(write[i]) != thread_of(running_) || stored_.finding) return false;
      lasting = false;
    } else if (!is_write(kAccess) && write[i] < block_begin_) {
      return false;
    }
    if (readers[i].one >= barrier_ && (is_write(kAccess) || !(only_barriers_ || enough(readers[i])))) return false;
  }
  if (!counters.join(cached.index, at, kSharedSpace)) return false;
  // Then write.
  const Epoch mine = running_ | Epoch{cached.index} << kThreadBits;
  if (is_write(kAccess)) unsettle(at, kBytes, true);
  for (unsigned i = 0; i < kWords; ++i) {
    if (is_write(kAccess))
      write[i] = mine, readers[i] = {};
    else if (!enough(readers[i]))
      remember_in_block(readers[i], mine), lasting = lasting && enough(readers[i]);
  }
  if (!is_write(kAccess) && lasting) settled_.add(at, Settled::words(at, kBytes), true, kSharedSpace);
  return true;
}

[[gnu::always_inline]] inline bool Checker::quick_on_stack(const void* address, unsigned bytes, Access access_,
                                                           std::uintptr_t site_key) {
  const auto* at = static_cast<const std::byte*>(address);
  if (static_cast<std::size_t>(at - worker_.stack) >= worker_.stack_bytes || stored_.finding) return false;
  if (registers_.fenced(worker_.current)) on_stack(at, bytes, access_, site_key);
  return true;
}

template <unsigned kBytes, Access kAccess>
[[gnu::always_inline]] inline void Checker::access(void* address, std::uintptr_t site_key) {
  if (stored_.finding) [[unlikely]]
    if (is_write(kAccess) || std::exchange(stored_.announced, true)) see_what_was_stored();
  const auto* at = static_cast<const std::byte*>(address);
  const std::size_t in_shared = static_cast<std::size_t>(at - shared_);
  if (in_shared < shared_bytes_) {
    if (in_shared + kBytes > shared_bytes_ || in_shared % kBytes != 0 ||
        (layout_ && !layout_->holds(in_shared, kBytes))) [[unlikely]] {
      if (is_built_in(at)) return;
      bad_address(address, kBytes, kAccess, site_key);
    }
    const unsigned s = site(site_key);
    const Epoch mine = running_ | Epoch{s} << kThreadBits | flags<kAccess>();
    counters.log(s, reinterpret_cast<std::uintptr_t>(at), kBytes, kAccess, kSharedSpace);
    if (others_watch_) [[unlikely]]
      tell_shared(worker_.rank, in_shared, kBytes, kAccess, site_key);
    touch_all<false, kBytes, kAccess>(cells_, in_shared, mine, false, address);
    if (is_volatile(kAccess)) order_volatile(address, is_write(kAccess));
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
    const Epoch mine = running_ | Epoch{s} << kThreadBits | flags<kAccess>();
    if (is_atomic(kAccess) && global_.parallel) value_ = global_.lock_value(address);
    // The constant cache serves one address at a time and is no part of global memory's traffic.
    if (!array.constant)
      counters.log(s, reinterpret_cast<std::uintptr_t>(at), kBytes, kAccess, static_cast<unsigned>(owner));
    if (others_watch_ && !array.constant) [[unlikely]]
      tell_global(owner, in_array, kBytes, kAccess, site_key);
    if (is_write(kAccess) && !worker_.copies.empty()) [[unlikely]]
      if (const Copy* const copy = worker_.copies.reading(address, kBytes))
        disturbs_copy(*copy, kAccess, mine, address, kBytes);
    if (!worker_.async.empty()) [[unlikely]]
      if (const AsyncOperation* const operation =
              worker_.async.disturbed(address, kBytes, is_write(kAccess), is_atomic(kAccess)))
        disturbs_async(*operation, kAccess, mine, address, kBytes);
    const std::size_t offset = global_.memory.offset(address);
    if constexpr (kAccess == Access::read && kBytes >= 4)
      if (settle<kBytes>(array, at, static_cast<unsigned>(owner))) return;
    touch_all<true, kBytes, kAccess>(global_.cells, offset, mine, array.initialised, address);
    if (is_volatile(kAccess)) order_volatile(address, is_write(kAccess));
    return;
  }
  if (static_cast<std::size_t>(at - worker_.stack) < worker_.stack_bytes) {
    if (registers_.fenced(worker_.current)) on_stack(at, kBytes, kAccess, site_key);
    return;
  }
  if (worker_.cluster && of_other_block<kBytes, kAccess>(address, site_key)) return;
  if (!elsewhere(address, kAccess)) [[unlikely]]
    bad_address(address, kBytes, kAccess, site_key);
}

// Shared memory of another block of the cluster.
template <unsigned kBytes, Access kAccess>
[[gnu::noinline]] bool Checker::of_other_block(void* address, std::uintptr_t site_key) {
  const Worker* const owner = worker_.cluster->owner(address);
  if (!owner || owner == &worker_) return false;
  Checker& other = of(*owner);
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - owner->shared);
  if (offset + kBytes > owner->shared_bytes || offset % kBytes != 0 || (layout_ && !layout_->holds(offset, kBytes)))
    bad_address(address, kBytes, kAccess, site_key);
  const unsigned s = site(site_key);
  const Epoch mine = running_ | Epoch{s} << kThreadBits | flags<kAccess>();
  counters.log(s, reinterpret_cast<std::uintptr_t>(address), kBytes, kAccess, kClusterSpace);
  if (others_watch_) tell_shared(owner->rank, offset, kBytes, kAccess, site_key);
  if (!visits(other, mine, name_of(kAccess), address, kBytes)) return true;
  other.share(offset, kBytes);
  home_ = &other;
  touch_all<kCluster, kBytes, kAccess>(other.cells_, offset, mine, false, address);
  home_ = this;
  if (is_volatile(kAccess)) order_volatile(address, is_write(kAccess));
  return true;
}

}  // namespace flash::simt
