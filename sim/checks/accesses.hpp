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
  CachedSite& cached = site_cache_[key % 1024];
  if (cached.key != key) [[unlikely]]
    cached = {key, global_.site_index(key)};
  return cached.index;
}

template <Access kAccess>
[[gnu::always_inline]] inline Epoch Checker::flags() const {
  if (is_atomic(kAccess)) return kLastEpoch | (scope_ == Scope::block ? kBlockEpoch : 0);
  return kAccess == Access::volatile_write && fenced_[worker_.current] ? kFlagEpoch : 0;
}

template <unsigned kBytes, Access kAccess>
[[gnu::always_inline]] inline bool Checker::quick(void* address, std::uintptr_t site_key) {
  if constexpr (kBytes < 4 || !is_plain(kAccess)) return false;
  const auto in_shared = static_cast<std::size_t>(static_cast<const std::byte*>(address) - shared_);
  const CachedSite& cached = site_cache_[site_key % 1024];
  if (in_shared >= quick_bytes_ || in_shared % kBytes != 0 || cached.key != site_key) return false;
  if (is_write(kAccess) && layout_ && !layout_->holds(in_shared, kBytes)) return false;  // gaps are never written
  // Look first: was the memory written in this block, before the last barrier, and are the readers as they should be?
  constexpr unsigned kWords = kBytes < 4 ? 1 : kBytes / 4;
  const std::uint8_t* const state = &cells_.state[in_shared / 4];
  Epoch* const write = &cells_.planes[0].write[in_shared / 4];
  Marks* const readers = &cells_.planes[0].readers[in_shared / 4];
  for (unsigned i = 0; i < kWords; ++i) {
    if (state[i] != 0) return false;
    if (is_write(kAccess) ? write[i] >= barrier_ : write[i] - block_begin_ >= written_before_) return false;
    if (readers[i].one >= barrier_ && (is_write(kAccess) || !enough(readers[i]))) return false;
  }
  if (!counters.join(cached.index, reinterpret_cast<std::uintptr_t>(address), kSharedSpace)) return false;
  // Then write.
  for (unsigned i = 0; i < kWords; ++i) {
    if (!is_write(kAccess) && readers[i].one >= barrier_) [[likely]]
      continue;
    const Epoch mine = running_ | Epoch{cached.index} << kThreadBits;
    if (is_write(kAccess))
      write[i] = mine, readers[i] = {};
    else
      readers[i].one = mine;
  }
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
    touch_all<true, kBytes, kAccess>(global_.cells, global_.memory.offset(address), mine, array.initialised, address);
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
