// happens_before.cpp: what orders accesses: barriers, warps that meet, fences, atomics; and whether two are in order.
// Use: see checker.hpp.
//
// Time. Each block counts its own synchronisations; a clock value belongs to one block (clocks are dealt out in chunks,
// increasing, machine-wide). A thread's accesses carry its clock; each synchronisation gives its participants a new
// one. An earlier access by thread u at clock c happened before the running thread t when one of these holds:
// - it belongs to an earlier launch that is over when this one begins (of streams: sim/cuda/order.hpp);
// - same block, and c is before the last __syncthreads;
// - same warp, and t and u met in a __syncwarp at a clock after c (or through others: `seen_` rows are joined);
// - u released and t acquired: fence, atomic or volatile write, the same read, fence or barrier (`View`);
// - it is an atomic whose value, or what further atomics made of it, an atomic read that happened before (follow()).
// Of companions' accesses (cells.hpp) no barrier of their block tells the threads of another block.
#include <algorithm>
#include <bit>
#include <memory>
#include <mutex>
#include <utility>

#include "sim/checks/marks.hpp"
#include "sim/core/outside.hpp"

namespace flash::simt {
namespace {

constexpr std::size_t kMostMarks = 8;  // of a kind at one place, beyond two

}  // namespace

// ---- the threads of a block meet ------------------------------------------------------------------------------------

void Checker::advance() {
  if (++now_ < chunk_end_) return;
  now_ = global_.new_clocks(worker_.block);
  chunk_end_ = now_ + GlobalShadow::kChunk;
}

void Checker::set_clock(unsigned thread, std::uint64_t clock) {
  epochs_[thread] = clock << kClockShift | thread;
  running_ = epochs_[worker_.current];
}

void Checker::block_barrier(bool some_exited, Site site_) {
  if (some_exited) {
    barrier_site_ = site_;
    for (Passed& passed : ways_)
      if (passed.way == Way::of_exited) passed.way = Way::around;
  }
  advance();
  barrier_ = Epoch{now_} << kClockShift;
  enough_from_ = point_to_point_ ? kNever : barrier_;
  const auto n = static_cast<unsigned>(worker_.threads.size());
  for (unsigned t = 0; t < n; ++t) set_clock(t, now_);
  only_barriers_ = !any_extra_ && !point_to_point_;
  settled_.forget_shared();
  if (!any_extra_) return;
  std::fill(fenced_.begin(), fenced_.end(), false);
  std::vector<unsigned> all(n);
  for (unsigned t = 0; t < n; ++t) all[t] = t;
  meet(all);
}

void Checker::warp_sync(unsigned warp, unsigned lanes) {
  advance();
  only_barriers_ = false;
  forget_settled();
  const Warp& w = worker_.warps[warp];
  if (lanes != (w.exists & ~w.ended)) not_only_barriers();
  std::array<std::uint64_t, kWarpSize> joined{};
  std::vector<unsigned> threads;
  for (unsigned m = lanes; m; m &= m - 1) threads.push_back(warp * kWarpSize + std::countr_zero(m));
  for (unsigned t : threads)
    for (unsigned lane = 0; lane < kWarpSize; ++lane) joined[lane] = std::max(joined[lane], seen_[t][lane]);
  for (unsigned t : threads) joined[t % kWarpSize] = now_;
  for (unsigned t : threads) {
    seen_[t] = joined;
    fenced_[t] = false;
    set_clock(t, now_);
  }
  if (any_extra_) meet(threads);
}

// Fences and atomics that some of these threads made hold for all of them from here on.
void Checker::meet(const std::vector<unsigned>& threads) {
  Extra common;
  for (unsigned t : threads) {
    if (!extra_[t]) continue;
    for (const void* address : std::exchange(extra_[t]->loaded, {})) acquire(t, address, Scope::device);
    common.known.join(extra_[t]->known);
    common.known.join(extra_[t]->pending);
    common.known.join(extra_[t]->pending_near);
    common.released.join(extra_[t]->released);
    common.released_near.join(extra_[t]->released_near);
    common.fenced.join(extra_[t]->fenced);
  }
  if (common.known.empty() && common.released_near.empty() && common.fenced.empty()) return;
  for (unsigned t : threads) extra_of(t) = common;
}

// Two marks of a kind are not enough any more: a third thread may be the one that has no order.
void Checker::not_only_barriers() {
  forget_settled();
  only_barriers_ = false;
  enough_from_ = kNever;
  if (std::exchange(point_to_point_, true)) return;
  const std::lock_guard lock(global_.mutex);
  global_.point_to_point.insert(worker_.launch->kernel);
}

// ---- fences and atomics ---------------------------------------------------------------------------------------------

void Checker::fence(Scope scope) {
  const unsigned t = worker_.current;
  not_only_barriers();
  Extra& extra = extra_of(t);
  fenced_[t] = true;
  // Acquire: what atomics and volatile loads read before the fence is known after it.
  for (const void* address : std::exchange(extra.loaded, {})) acquire(t, address, Scope::device);
  extra.known.join(extra.pending_near);
  extra.pending_near.clear();
  if (scope == Scope::device) {
    extra.known.join(extra.pending);
    extra.pending.clear();
  }
  // Release: what is known now, own accesses included, goes with the atomics that follow.
  add_own(extra.known.of(worker_.block));
  extra.released_near = extra.known;
  if (scope == Scope::device) extra.released = extra.known;
}

Checker::Extra& Checker::extra_of(unsigned thread) {
  any_extra_ = true;
  auto& extra = extra_[thread];
  if (!extra) extra = std::make_unique<Extra>();
  return *extra;
}

// Adds what the running thread knows beside its View: its own accesses up to here, those before the last barrier, its
// warp's.
void Checker::add_own(Clocks& known) {
  const unsigned t = worker_.current, first = t / kWarpSize * kWarpSize;
  advance();
  set_clock(t, now_);
  known.raise_all(clock_of(barrier_));
  const auto threads = static_cast<unsigned>(worker_.threads.size());
  for (unsigned lane = 0; lane < kWarpSize && first + lane < threads; ++lane) known.raise(first + lane, seen_[t][lane]);
  known.raise(t, now_);
}

void Checker::counts(Counting how, unsigned number) {
  extra_of(worker_.current).counts = {how, number};
}

void Checker::after_atomic(const void* address) {
  Extra* const extra = extra_[worker_.current].get();
  if (!extra && unwatched_memory && worker_.in_shared(address)) return;  // as in atomic()
  const auto [how, number] = extra ? std::exchange(extra->counts, {}) : decltype(extra->counts){};
  if (how == Counting::adds) count_up(address, number);
  if (value_) value_.unlock();
  if (how == Counting::adds) return;  // no value comes back, and so no order
  acquire(worker_.current, address, scope_, how == Counting::waits ? std::optional(number) : std::nullopt);
  for (std::size_t at = added_.element; at < added_.bytes; at += added_.element)
    acquire(worker_.current, static_cast<const std::byte*>(address) + at, scope_);
}

// What a thread released goes with its atomic or volatile store. An atomic passes on what it reads, too.
void Checker::publish(const void* address, bool atomic) {
  static const Extra nothing;
  const Extra& extra = extra_[worker_.current] ? *extra_[worker_.current] : nothing;
  if (extra.counts.how == Counting::waits) return;  // a load
  const bool in_shared = !global_.memory.contains(address);
  auto& shared_published = home_of(address).published_;
  if (extra.released_near.empty() && (in_shared ? shared_published.empty() : !global_.any_published.load())) return;
  std::unique_lock<std::mutex> lock(global_.mutex, std::defer_lock);
  if (!in_shared) lock.lock();
  Published& all = (in_shared ? shared_published : global_.published)[address];
  const unsigned block = worker_.block;
  const bool reads = atomic && (!all.own || all.blocks.contains(block));
  if (!reads) all = {};
  Published::Views& mine = all.blocks[block];
  mine.far.join(extra.released);
  if (extra.counts.how == Counting::no) mine.near.join(extra.released_near), all.not_counted.join(extra.released);
  all.own = atomic && scope_ == Scope::block;
  if (all.own) {
    all.far.clear(), all.not_counted.clear(), all.counts.clear();
    std::erase_if(all.blocks, [&](const auto& entry) { return entry.first != block; });
  } else {
    all.far.join(mine.far);
  }
  if (!in_shared) global_.any_published = true;
}

// The addition of red_release_add has been made.
void Checker::count_up(const void* address, unsigned added) {
  const Extra& extra = *extra_[worker_.current];
  const bool in_shared = !global_.memory.contains(address);
  std::unique_lock<std::mutex> lock(global_.mutex, std::defer_lock);
  if (!in_shared) lock.lock();
  Published& all = (in_shared ? home_of(address).published_ : global_.published)[address];
  const unsigned number = __atomic_load_n(static_cast<const unsigned*>(address), __ATOMIC_RELAXED);
  all.counts.push_back({number - added, worker_.block, extra.released});
}

// A volatile store releases, a volatile load acquires, as an atomic does: together with the thread's fences.
void Checker::order_volatile(const void* address, bool writes) {
  const Outside outside;
  if (writes) return publish(address, false);
  asked_ = true;
  if (!global_.memory.contains(address) || !global_.parallel) return acquire(worker_.current, address, Scope::device);
  // Other workers: the value is loaded after this, so look only when the fence comes.
  std::vector<const void*>& loaded = extra_of(worker_.current).loaded;
  if (loaded.empty() || loaded.back() != address) loaded.push_back(address);
}

void Checker::acquire(unsigned thread, const void* address, Scope scope, std::optional<unsigned> least) {
  const bool in_shared = !global_.memory.contains(address);
  const auto& shared_published = home_of(address).published_;
  if (in_shared ? shared_published.empty() : !global_.any_published.load()) return;
  std::unique_lock<std::mutex> lock(global_.mutex, std::defer_lock);
  if (!in_shared) lock.lock();
  const auto& all = in_shared ? shared_published : global_.published;
  const auto found = all.find(address);
  if (found == all.end()) return;
  forget_settled();
  only_barriers_ = false, point_to_point_ = true, enough_from_ = kNever;  // as the one that published noted
  Extra& extra = extra_of(thread);
  const Published& published = found->second;
  // Who waits may have looked when the number was just large enough, whatever it is by now.
  const auto may_be_late = [&](const Published::Count& count) { return least && count.before >= *least; };
  const bool all_seen = std::ranges::none_of(published.counts, may_be_late);
  if (scope == Scope::device) extra.pending.join(all_seen ? published.far : published.not_counted);
  for (const Published::Count& count : published.counts) {
    if (may_be_late(count)) continue;
    if (count.block == worker_.block)
      extra.pending_near.join(count.view);
    else if (!all_seen && scope == Scope::device)
      extra.pending.join(count.view);
  }
  const auto near = published.blocks.find(worker_.block);
  if (near != published.blocks.end()) extra.pending_near.join(near->second.near);
}

// ---- are two accesses in order? -------------------------------------------------------------------------------------

// Of a mark in shared memory.
bool Checker::ordered_at(const Cells& cells, std::size_t word, Epoch earlier) const {
  const bool cluster = &cells != &cells_ || cells.state[word] & Cells::kCluster;
  return cluster ? ordered<kCluster>(earlier) : ordered<kOwn>(earlier);
}

bool Checker::ordered_otherwise(Epoch earlier, bool global) const {
  // What flags say between two launches is not looked at: nothing promises that both run.
  if (global && earlier < global_.own_begin) return !global_.beside(clock_of(earlier));
  const unsigned block = global ? global_.block_of(clock_of(earlier)) : worker_.block;
  if (block == worker_.block) {
    const unsigned u = thread_of(earlier), t = worker_.current;
    if (earlier < barrier_ || u == t) return true;
    if (u / kWarpSize == t / kWarpSize && clock_of(earlier) < seen_[t][u % kWarpSize]) return true;
  }
  return any_extra_ && ordered_by_views(earlier, block);
}

bool Checker::ordered_by_views(Epoch earlier, unsigned block) const {
  const auto& extra = extra_[worker_.current];
  if (!extra) return false;
  const Outside outside;
  const Clocks* clocks = extra->known.find(block);
  return clocks && clock_of(earlier) < clocks->of(known_as(earlier));
}

// Is it known of a read that it is over, though not that what was stored before it is there? Of a copy's write that is
// enough for who writes there next.
bool Checker::is_over(Epoch earlier, Access before, Access access) const {
  if (!any_extra_ || (is_write(before) && !(is_of_companion(earlier) && is_write(access)))) return false;
  const auto& extra = extra_[worker_.current];
  const Clocks* const clocks = extra ? extra->known.find(global_.block_of(clock_of(earlier)) | View::kReads) : nullptr;
  return clocks && clock_of(earlier) < clocks->of(known_as(earlier));
}

// How far apart two unordered accesses are: 1 same warp, 2 same block, 3 different blocks.
unsigned Checker::distance(Epoch a, Epoch b, bool global) const {
  if (global && (std::min(a, b) < global_.own_begin || global_.block_of(clock_of(a)) != global_.block_of(clock_of(b))))
    return 3;
  return thread_of(a) / kWarpSize == thread_of(b) / kWarpSize ? 1 : 2;
}

// ---- marks beyond two -----------------------------------------------------------------------------------------------

// Whatever comes later and collides with an access that was ordered before this one collides with this one.
template <int kSpace>
void Checker::keep(Cells& cells, std::size_t word, const Marks& marks, Epoch epoch) {
  constexpr bool kGlobal = kSpace == kGlobalMemory;
  const Outside outside;
  std::unique_lock<std::mutex> lock(global_.mutex, std::defer_lock);
  if (kGlobal) lock.lock();
  std::vector<Epoch>& all = (kGlobal ? global_.more : home_->more_)[&marks];
  std::erase_if(all, [&](Epoch earlier) { return !collides<kSpace>(earlier); });
  if (all.size() < kMostMarks) all.push_back(epoch);
  cells.set(word, Cells::kMore);
  home_->any_state_ = true;
}
template void Checker::keep<Checker::kOwn>(Cells&, std::size_t, const Marks&, Epoch);
template void Checker::keep<Checker::kGlobalMemory>(Cells&, std::size_t, const Marks&, Epoch);
template void Checker::keep<Checker::kCluster>(Cells&, std::size_t, const Marks&, Epoch);

std::vector<Epoch> Checker::kept(const Marks& marks, bool global) const {
  const Outside outside;
  std::unique_lock<std::mutex> lock(global_.mutex, std::defer_lock);
  if (global) lock.lock();
  const MoreMarks& more = global ? global_.more : home_->more_;
  const auto found = more.find(&marks);
  return found == more.end() ? std::vector<Epoch>{} : found->second;
}

void Checker::drop(const Cells::Plane& plane, std::size_t word, bool global) {
  const Outside outside;
  std::unique_lock<std::mutex> lock(global_.mutex, std::defer_lock);
  if (global) lock.lock();
  for (const Table<Marks>* table : {&plane.readers, &plane.atomics, &plane.loads, &plane.stores})
    (global ? global_.more : home_->more_).erase(&(*table)[word]);
}

}  // namespace flash::simt
