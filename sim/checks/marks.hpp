// marks.hpp: one access at the cells of its bytes: it leaves a mark, and is compared with the marks that are there.
// The path of every access, so all of it is inline; what is called seldom is in happens_before.cpp.
// Use: touch_all(), by whoever knows which cells an access is to.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/checks/checker.hpp"

namespace flash::simt {

template <int kSpace>
[[gnu::always_inline]] inline bool Checker::ordered(Epoch earlier) const {
  if (kSpace == kCluster) return earlier < block_begin_ || ordered_otherwise(earlier, true);
  constexpr bool kGlobal = kSpace == kGlobalMemory;
  if (!kGlobal && (earlier < barrier_ || thread_of(earlier) == thread_of(running_))) return true;
  if (!kGlobal && only_barriers_) return false;
  if (kGlobal && earlier < global_.launch_begin) return true;
  return ordered_otherwise(earlier, kGlobal);
}

template <int kSpace>
[[gnu::always_inline]] inline bool Checker::collides(Epoch earlier) const {
  const Epoch first = kSpace == kGlobalMemory ? global_.launch_begin : kSpace == kCluster ? block_begin_ : barrier_;
  return earlier >= first && !ordered<kSpace>(earlier);
}

// The frequent case: two threads of this block are there, as far apart as the running one could make them.
[[gnu::always_inline]] inline bool Checker::enough(const Marks& marks) const {
  const auto same_warp = [](Epoch a, Epoch b) { return ((a ^ b) & ((1u << kThreadBits) - kWarpSize)) == 0; };
  return marks.other >= enough_from_ &&  // then marks.one is as young: `other` is set beside one that collides
         (!same_warp(marks.one, marks.other) || (only_barriers_ && same_warp(marks.one, running_)));
}

// Puts `mine` among the marks, unless two that are at least as far apart are there already.
template <int kSpace, Access kAccess>
[[gnu::always_inline]] inline void Checker::remember(Cells& cells, std::size_t word, Marks& marks, Epoch mine) {
  constexpr bool kGlobal = kSpace == kGlobalMemory;
  if (marks.one < (kGlobal              ? global_.launch_begin
                   : kSpace == kCluster ? block_begin_
                                        : barrier_) &&
      !(kGlobal && global_.parallel))
    marks.one = mine;
  else if (kSpace != kOwn || is_volatile(kAccess) || !enough(marks))
    remember_one_more<kSpace>(cells, word, marks, mine, is_volatile(kAccess) || point_to_point_);
}

// The same in the own shared memory where threads meet at barriers alone, so that other threads' marks all collide.
[[gnu::always_inline]] inline void Checker::remember_in_block(Marks& marks, Epoch mine) const {
  const auto takes = [&](Epoch mark) { return mark < barrier_ || thread_of(mark) == thread_of(mine); };
  const auto same_warp = [](Epoch a, Epoch b) { return thread_of(a) / kWarpSize == thread_of(b) / kWarpSize; };
  if (takes(marks.one))
    marks.one = mine;
  else if (takes(marks.other) || (same_warp(marks.one, marks.other) && !same_warp(marks.one, mine)))
    marks.other = mine;
}

template <int kSpace>
void Checker::remember_one_more(Cells& cells, std::size_t word, Marks& marks, Epoch mine, bool all) {
  constexpr bool kGlobal = kSpace == kGlobalMemory, kFar = kSpace != kOwn;
  for (Epoch* mark : {&marks.one, &marks.other}) {
    for (;;) {
      Epoch old = __atomic_load_n(mark, __ATOMIC_RELAXED);
      const bool again = !kFar && thread_of(old) == thread_of(mine);  // what knows of this one knows of that
      const bool near = again || !collides<kSpace>(old);
      if (!near && mark == &marks.one) break;  // keep it, try the other one
      if (!near && distance(mine, marks.one, kFar) <= distance(old, marks.one, kFar)) {
        if (all) keep<kSpace>(cells, word, marks, mine);
        return;
      }
      if (!kGlobal || !global_.parallel)
        *mark = mine;
      else if (!__atomic_compare_exchange_n(mark, &old, mine, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        continue;
      if (all && !near) keep<kSpace>(cells, word, marks, old);
      return;
    }
  }
}

// An atomic comes after the one whose value it reads (PTX: observation order), and after those whose values that one
// read. What comes after it comes after all of them, so its mark takes the place of theirs.
template <int kSpace>
void Checker::follow(Cells& cells, std::size_t word, Marks& marks, Epoch mine) {
  const auto set = [](Epoch& mark, Epoch to) { __atomic_store_n(&mark, to, __ATOMIC_SEQ_CST); };
  for (Epoch* mark : {&marks.one, &marks.other}) {
    if (!(*mark & kLastEpoch)) continue;
    if (!((*mark | mine) & kBlockEpoch) || distance(mine, *mark, kSpace != kOwn) < 3) {
      if (kSpace != kGlobalMemory && !(cells.state[word] & Cells::kMbarrier) && collides<kSpace>(*mark))
        overtakes(marks, *mark);
      return set(*mark, mine);
    }
    set(*mark, *mark & ~kLastEpoch);
  }
  for (Epoch* mark : {&marks.one, &marks.other})
    if (!collides<kSpace>(*mark)) return set(*mark, mine);
  keep<kSpace>(cells, word, marks, marks.other);
  set(marks.other, mine);
}

// Is there a volatile access of another lane of the warp to which this one has no order? One of the two is a store.
template <int kSpace>
void Checker::lockstep(const Marks& marks, bool more, Access before, Access access, Epoch mine, const void* address,
                       std::size_t bytes) {
  const auto meets = [&](Epoch earlier) {
    return !(earlier & kFlagEpoch) && collides<kSpace>(earlier) && distance(mine, earlier, kSpace != kOwn) == 1 &&
           !(before == access && site_index_of(earlier) == site_index_of(mine));
  };
  for (const Epoch earlier : {marks.one, marks.other})
    if (meets(earlier)) return assumes_lockstep(earlier, before, access, mine, address, bytes);
  if (more)
    for (const Epoch earlier : kept(marks, kSpace == kGlobalMemory))
      if (meets(earlier)) return assumes_lockstep(earlier, before, access, mine, address, bytes);
}

// Is the earlier access unordered with the running one, and farther away than what was found so far?
template <int kSpace, Access kAccess>
[[gnu::always_inline]] inline void Checker::check(Epoch earlier, Access before, Epoch mine, Wrong& wrong) const {
  if (!collides<kSpace>(earlier)) [[likely]]
    return;
  if (is_over(earlier, before, kAccess)) return;
  const unsigned far = distance(mine, earlier, kSpace != kOwn);
  if (far > wrong.distance) wrong.distance = far, wrong.before = before, wrong.earlier = earlier;
}

template <int kSpace, Access kAccess>
[[gnu::always_inline]] inline void Checker::check_all(const Marks& marks, bool more, Access before, Epoch mine,
                                                      Wrong& wrong) const {
  for (const Epoch earlier : {marks.one, marks.other}) check<kSpace, kAccess>(earlier, before, mine, wrong);
  if (more) [[unlikely]]
    for (const Epoch earlier : kept(marks, kSpace == kGlobalMemory))
      check<kSpace, kAccess>(earlier, before, mine, wrong);
}

// A plain write collides with everything. What comes later and collides with what was here collides with it, too.
template <int kSpace>
[[gnu::always_inline]] inline void Checker::overwrite(const Cells::Plane& plane, std::size_t word, std::uint8_t state,
                                                      Epoch mine, Wrong& wrong) {
  constexpr bool kGlobal = kSpace == kGlobalMemory;
  const bool more = state & Cells::kMore;
  Epoch& write = plane.write[word];
  Marks& readers = plane.readers[word];
  Epoch before = mine;
  if (kGlobal && global_.parallel)
    before = __atomic_exchange_n(&write, mine, __ATOMIC_SEQ_CST);
  else
    std::swap(before, write);
  if ((readers.one | readers.other) != 0) {
    check_all<kSpace, Access::write>(readers, more, Access::read, mine, wrong);
    readers = {};
  }
  if (state & Cells::kUnusual) [[unlikely]] {
    check_all<kSpace, Access::write>(plane.atomics[word], more, Access::atomic, mine, wrong);
    check_all<kSpace, Access::write>(plane.loads[word], more, Access::volatile_read, mine, wrong);
    check_all<kSpace, Access::write>(plane.stores[word], more, Access::volatile_write, mine, wrong);
    plane.atomics[word] = plane.loads[word] = plane.stores[word] = {};
  }
  check<kSpace, Access::write>(before, Access::write, mine, wrong);
  if (more) [[unlikely]]
    drop(plane, word, kGlobal);
}

// The mark of an atomic or a volatile access; the cell is known to have such.
template <int kSpace, Access kAccess>
[[gnu::always_inline]] inline void Checker::leave_unusual(Cells& cells, const Cells::Plane& plane, std::size_t word,
                                                          bool more, Epoch mine, const void* address,
                                                          std::size_t bytes) {
  if (is_volatile(kAccess) && !(mine & kFlagEpoch)) {
    lockstep<kSpace>(plane.stores[word], more, Access::volatile_write, kAccess, mine, address, bytes);
    if (is_write(kAccess))
      lockstep<kSpace>(plane.loads[word], more, Access::volatile_read, kAccess, mine, address, bytes);
  }
  // Who adds reads no value, so that no order follows from it.
  if constexpr (is_reduction(kAccess))
    remember_one_more<kSpace>(cells, word, plane.atomics[word], mine, false);
  else if constexpr (is_atomic(kAccess))
    follow<kSpace>(cells, word, plane.atomics[word], mine);
  else
    remember<kSpace, kAccess>(cells, word, (is_write(kAccess) ? plane.stores : plane.loads)[word], mine);
  if (kAccess == Access::volatile_write)  // no atomic reads what was there
    for (Epoch* mark : {&plane.atomics[word].one, &plane.atomics[word].other})
      if (*mark & kLastEpoch) __atomic_fetch_and(mark, ~kLastEpoch, __ATOMIC_RELAXED);
}

// One cell. Leave the own mark first, then look at the others': of two workers at one cell at least one sees the other.
template <int kSpace, Access kAccess>
[[gnu::always_inline]] inline void Checker::touch(Cells& cells, const Cells::Plane& plane, std::size_t word, Epoch mine,
                                                  bool initialised, Wrong& wrong, const void* address,
                                                  std::size_t bytes) {
  constexpr bool kGlobal = kSpace == kGlobalMemory;
  const std::uint8_t state = cells.state[word];
  constexpr std::uint8_t kTaken = kGlobal ? 0 : Cells::kInFlight | Cells::kAsync | Cells::kMbarrier;
  constexpr std::uint8_t kOfOthers = kSpace == kOwn ? Cells::kCluster : 0;
  if (state & (kTaken | kOfOthers | Cells::kCarried)) [[unlikely]] {
    if (state & kTaken && disturbs(state, word, kAccess, mine, wrong.said, address, bytes)) return;
    if constexpr (kSpace == kOwn)
      if (state & Cells::kCluster)
        return touch<kCluster, kAccess>(cells, plane, word, mine, initialised, wrong, address, bytes);
    if (state & Cells::kCarried && !initialised && !wrong.said)
      wrong.said = meets_carried(kGlobal, word, kAccess, mine, address, bytes);
  }
  if constexpr (kAccess == Access::write) return overwrite<kSpace>(plane, word, state, mine, wrong);

  const bool more = state & Cells::kMore;
  bool unusual = state & Cells::kUnusual;
  Epoch& write = plane.write[word];
  Marks& readers = plane.readers[word];
  const Epoch begin = kGlobal ? Epoch{1} : block_begin_;  // older marks are of memory that was fresh since
  if (needs_value(kAccess)) {
    const bool written = write >= begin || initialised ||
                         (unusual && (plane.atomics[word].one >= begin || plane.stores[word].one >= begin));
    if (!written && !wrong.said && wrong.distance == 0) [[unlikely]]
      wrong.said = uninitialised(kAccess, mine, address, bytes);
  }
  if constexpr (kAccess == Access::read) {
    remember<kSpace, kAccess>(cells, word, readers, mine);
  } else {
    if (!unusual) cells.set(word, Cells::kUnusual), unusual = true, home_->any_state_ = true;
    leave_unusual<kSpace, kAccess>(cells, plane, word, more, mine, address, bytes);
  }
  check<kSpace, kAccess>(__atomic_load_n(&write, __ATOMIC_RELAXED), Access::write, mine, wrong);
  if (is_write(kAccess)) check_all<kSpace, kAccess>(readers, more, Access::read, mine, wrong);
  if (kAccess == Access::read && unusual) {
    check_all<kSpace, kAccess>(plane.atomics[word], more, Access::atomic, mine, wrong);
    check_all<kSpace, kAccess>(plane.stores[word], more, Access::volatile_write, mine, wrong);
  }
}

inline void Checker::unsettle(std::uintptr_t address, unsigned bytes, bool shared) {
  if (settled_.remove(address, bytes, shared)) forget_foreseen();
}

template <int kSpace, unsigned kBytes, Access kAccess>
[[gnu::always_inline]] inline void Checker::touch_all(Cells& cells, std::size_t offset, Epoch mine, bool initialised,
                                                      const void* address) {
  Wrong wrong;
  std::size_t word = offset / 4;
  if constexpr (kAccess != Access::read)
    unsettle(reinterpret_cast<std::uintptr_t>(address), kBytes, kSpace != kGlobalMemory);
  const auto touch_one = [&](unsigned plane) {
    touch<kSpace, kAccess>(cells, cells.planes[plane], word, mine, initialised, wrong, address, kBytes);
  };
  const auto judge = [&] {
    if (wrong.distance > 0 && !wrong.said) [[unlikely]]
      race(wrong, kAccess, mine, address, kBytes);
  };
  if constexpr (kBytes < 4) {
    unsigned level = cells.state[word] & Cells::kLevel;
    if (level == Cells::kSplitting || level < (kBytes == 2 ? Cells::kHalves : Cells::kSingle)) [[unlikely]]
      level = cells.split(word, kBytes) & Cells::kLevel, home_->any_state_ = true;
    touch_one(offset % 4);
    if (kBytes == 2 && level == Cells::kSingle) touch_one(offset % 4 + 1);
    return judge();
  }
  for (std::size_t i = 0; i < kBytes / 4; ++i, ++word) {
    touch_one(0);
    const unsigned level = cells.state[word] & Cells::kLevel;
    if (level == 0) [[likely]]
      continue;
    if (level != Cells::kHalves) touch_one(1);
    touch_one(2);
    if (level != Cells::kHalves) touch_one(3);
    if (kSpace != kGlobalMemory && kAccess == Access::write)
      cells.state[word] &= static_cast<std::uint8_t>(~Cells::kLevel);
  }
  judge();
}

}  // namespace flash::simt
