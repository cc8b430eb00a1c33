// shadow.cpp: happens-before: clocks, meetings, releases; and what is said when something is wrong.
// The path of an ordinary access is in shadow.hpp; everything here is called seldom.
// Use: see shadow.hpp.
#include "sim/checks/shadow.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "sim/checks/keys.hpp"
#include "sim/core/code_names.hpp"
#include "sim/core/copies.hpp"
#include "sim/core/outside.hpp"
#include "sim/error.hpp"

extern "C" const char __executable_start, _end;  // the linker's: the program's own constants lie between them

namespace flash::simt {
namespace {

constexpr Epoch kNever = ~Epoch{0};
constexpr std::size_t kMostMarks = 8;  // of a kind at one place, beyond two
constexpr std::size_t kChunkTable = std::size_t{1} << 32;

// The struct that the running kernel takes its shared memory for.
std::string shared_name(const Worker& worker) {
  return worker.shared_struct ? type_name(worker.shared_struct) : "memory";
}

// A type's padding, looked up once.
const std::vector<unsigned char>& padding_bytes(Padding padding, std::size_t bytes) {
  static std::mutex mutex;
  static std::map<Padding, std::vector<unsigned char>> known;
  const std::lock_guard lock(mutex);
  std::vector<unsigned char>& found = known[padding];
  if (found.empty()) found.resize(bytes), padding(found.data());
  return found;
}

// "float4" for "'const struct float4'".
std::string plain_type(std::string name) {
  for (const char* word : {"'", "const ", "volatile ", "struct "})
    for (std::size_t at; (at = name.find(word)) != std::string::npos;) name.erase(at, std::strlen(word));
  return as_written(name);
}

}  // namespace

const char* name_of(Access access) {
  if (is_atomic(access)) return "atomic";
  if (is_volatile(access)) return is_write(access) ? "volatile write" : "volatile read";
  return is_write(access) ? "write" : "read";
}

// ---- what a thread has learned -------------------------------------------------------------------------------------

std::uint64_t Clocks::of(unsigned thread) const {
  const auto found = std::ranges::lower_bound(later_, thread, {}, &Later::thread);
  if (found != later_.end() && found->thread == thread) return found->clock;
  return thread < kCompanion ? all_ : 0;
}

void Clocks::raise_all(std::uint64_t clock) {
  if (clock <= all_) return;
  all_ = clock;
  std::erase_if(later_, [this](const Later& later) { return later.clock <= all_ && later.thread < kCompanion; });
}

void Clocks::raise(unsigned thread, std::uint64_t clock) {
  if (clock <= all_ && thread < kCompanion) return;
  const auto found = std::ranges::lower_bound(later_, thread, {}, &Later::thread);
  if (found == later_.end() || found->thread != thread)
    later_.insert(found, {thread, clock});
  else
    found->clock = std::max(found->clock, clock);
}

void Clocks::join(const Clocks& other) {
  raise_all(other.all_);
  if (other.later_.empty()) return;
  std::vector<Later> both;
  both.reserve(later_.size() + other.later_.size());
  auto mine = later_.begin();
  for (const Later& theirs : other.later_) {
    while (mine != later_.end() && mine->thread < theirs.thread) both.push_back(*mine++);
    if (mine != later_.end() && mine->thread == theirs.thread)
      both.push_back({theirs.thread, std::max(mine++->clock, theirs.clock)});
    else if (theirs.clock > all_ || theirs.thread >= kCompanion)
      both.push_back(theirs);
  }
  both.insert(both.end(), mine, later_.end());
  later_ = std::move(both);
}

View::Blocks& View::own() {
  if (!blocks_)
    blocks_ = std::make_shared<Blocks>();
  else if (blocks_.use_count() > 1)
    blocks_ = std::make_shared<Blocks>(*blocks_);
  return *blocks_;
}

const Clocks* View::find(unsigned block) const {
  if (!blocks_) return nullptr;
  const auto found = blocks_->find(block);
  return found == blocks_->end() ? nullptr : &found->second;
}

Clocks& View::of(unsigned block) {
  return own()[block];
}

void View::join(const View& other) {
  if (other.empty() || blocks_ == other.blocks_) return;
  // All threads that meet learn the same, one after the other: they are to share what comes of it.
  struct Last {
    std::shared_ptr<Blocks> one, other, joined;
  };
  static thread_local std::array<Last, 8> recent;
  const auto number = [](const auto& pointer) { return reinterpret_cast<std::uintptr_t>(pointer.get()) / 16; };
  Last& last = recent[(number(blocks_) + 3 * number(other.blocks_)) % recent.size()];
  if (!empty() && last.one == blocks_ && last.other == other.blocks_) {
    blocks_ = last.joined;
    return;
  }
  const bool small = !empty() && blocks_->size() + other.blocks_->size() <= 4;  // else a copy costs more
  if (small) last = {blocks_, other.blocks_, nullptr};
  View less = other;
  if (empty() || blocks_->size() < less.blocks_->size()) std::swap(blocks_, less.blocks_);
  if (less.empty()) return;
  Blocks& mine = own();
  for (const auto& [block, clocks] : *less.blocks_) mine[block].join(clocks);
  if (small) last.joined = blocks_;
}

// ---- shared by all workers -----------------------------------------------------------------------------------------

GlobalShadow::GlobalShadow(DeviceMemory& device_memory)
    : memory(device_memory),
      space_(DeviceMemory::kSpan / 4 * (Cells::kBytes + Additions::kBytes) + kChunkTable * sizeof(unsigned)),
      cells(space_, DeviceMemory::kSpan / 4),
      additions(space_, DeviceMemory::kSpan / 4),
      owners_(space_, kChunkTable) {}

void GlobalShadow::forget(const void* begin) {
  const std::size_t i = memory.contains(begin) ? memory.owner(begin) : memory.arrays.size();
  if (i >= memory.arrays.size() || memory.arrays[i].bytes == 0) return;
  constexpr std::size_t kGranule = DeviceMemory::kGranule;
  const std::size_t first = memory.offset(begin) / 4;
  const std::size_t words = (memory.arrays[i].bytes / kGranule + 1) * kGranule / 4;
  cells.forget(first, words);
  additions.forget(first, words);
  written_.erase(begin);
  std::erase_if(carried, [=](const auto& entry) { return entry.first - first < words; });
}

void GlobalShadow::begin_launch(std::size_t workers) {
  parallel = workers > 1;
  memory.make_room();
  first_chunk_ = next_chunk_;
  launch_begin = Epoch{first_chunk_ * kChunk} << kClockShift;
  sites_.assign(1, 0);
  site_indices_.clear();
  async_sites.clear();
  published.clear();
  any_published = false;
  more.clear();
}

void GlobalShadow::end_launch(const std::vector<Checker*>& checkers, KernelReport& report) {
  Ledger& ledger = report.ledger;
  ArrayTraffic heap{"heap"};  // what kernels allocated, as one
  for (std::size_t i = 0; i < memory.arrays.size(); ++i) {
    const DeviceArray& array = memory.arrays[i];
    if (!array.live && !array.of_kernel) continue;
    ArrayTraffic own{array.name};
    ArrayTraffic& total = array.of_kernel ? heap : own;
    for (const Checker* checker : checkers)
      if (i < checker->counters.arrays.size()) total.add(checker->counters.arrays[i]);
    // Variables: where they are used.
    const bool wanted = !array.variable || own.read_requests + own.write_requests + own.reduce_requests > 0;
    if (!array.of_kernel && wanted) ledger.arrays.push_back(own);
  }
  if (heap.read_requests + heap.write_requests + heap.reduce_requests > 0) ledger.arrays.push_back(heap);
  for (const Checker* checker : checkers) {
    const Counters& c = checker->counters;
    ledger.flops += c.tally.flops, ledger.exps += c.tally.exps, ledger.tensor_flops += c.tally.tensor_flops;
    ledger.shared_read_requests += c.shared_reads, ledger.shared_write_requests += c.shared_writes;
    ledger.cluster_read_bytes += c.cluster_read_bytes, ledger.cluster_written_bytes += c.cluster_written_bytes;
    ledger.shared_wavefronts += c.wavefronts, ledger.shared_wavefronts_ideal += c.ideal_wavefronts;
  }
  report.unordered = unordered(checkers);
}

std::uint64_t GlobalShadow::new_clocks(unsigned block) {
  const std::uint64_t chunk = next_chunk_.fetch_add(1);
  if (chunk - first_chunk_ >= kChunkTable)
    throw Error("too many synchronisations in one launch for the checks; use a smaller grid");
  owners_[chunk - first_chunk_] = block;
  return chunk * kChunk;
}

unsigned GlobalShadow::site_index(std::uintptr_t key) {
  const Outside outside;
  const std::lock_guard lock(mutex);
  const auto [position, fresh] = site_indices_.try_emplace(key, static_cast<unsigned>(sites_.size()));
  if (fresh && sites_.size() >= (1u << kSiteBits)) return position->second = 0;
  if (fresh) sites_.push_back(key);
  return position->second;
}

std::uintptr_t GlobalShadow::site_key(unsigned index) {
  const std::lock_guard lock(mutex);
  return sites_[index];
}

// ---- clocks of one block -------------------------------------------------------------------------------------------

Checker::Checker(Worker& worker, GlobalShadow& global)
    : worker_(worker),
      global_(global),
      space_(kSharedSpan / 4 * (Cells::kBytes + Additions::kBytes)),
      cells_(space_, kSharedSpan / 4),
      additions_(space_, kSharedSpan / 4),
      shared_(worker.shared),
      epochs_(kMaxThreads),
      seen_(kMaxThreads),
      extra_(kMaxThreads),
      fenced_(kMaxThreads) {}

void Checker::begin_launch() {
  site_cache_.fill({});
  async_sites_.clear();
  unordered_.clear();
  counters.begin_launch(global_.memory.arrays.size());
  // The built-in variables of this OS thread, which a kernel reads all the time; shared variables may lie between them.
  const auto range = [](const auto& variable) {
    return BuiltIn{reinterpret_cast<const std::byte*>(&variable), sizeof variable};
  };
  built_ins_ = {range(threadIdx), range(blockIdx), range(blockDim), range(gridDim), range(tally)};
}

void Checker::begin_block() {
  now_ = global_.new_clocks(worker_.block);
  chunk_end_ = now_ + GlobalShadow::kChunk;
  block_begin_ = barrier_ = Epoch{now_} << kClockShift;
  // Of a cluster all blocks begin before a thread runs, the block of rank 0 first.
  if (worker_.rank > 0) block_begin_ = of(worker_.cluster->member(0)).block_begin_;
  written_before_ = barrier_ - block_begin_;
  home_ = this, ended_ = false;
  visits_.clear();
  for (unsigned t = 0; t < worker_.threads.size(); ++t) set_clock(t, now_);
  if (any_extra_)
    for (auto& extra : extra_) extra.reset();
  any_extra_ = false;
  std::fill(fenced_.begin(), fenced_.end(), false);
  {
    const std::lock_guard lock(global_.mutex);
    point_to_point_ = global_.point_to_point.contains(worker_.launch->kernel);
  }
  only_barriers_ = !point_to_point_;
  enough_from_ = point_to_point_ ? kNever : barrier_;
  if (std::exchange(any_state_, false)) std::memset(&cells_.state[0], 0, shared_bytes_ / 4 + 1);  // the last block's
  more_.clear(), overtaken_.clear(), carried_.clear();
  copying_ = false;
  ways_.clear();
  shared_ = worker_.shared, shared_bytes_ = worker_.shared_bytes, layout_ = worker_.launch->layout;
  others_watch_ = worker_.observers.size() > 1;
  counters.observers = others_watch_ ? &worker_.observers : nullptr;
  quick_bytes_ = others_watch_ ? 0 : shared_bytes_ / 16 * 16;
  published_.clear();
  handovers_.clear();
  uses_.clear(), far_uses_.clear();
  registers_.begin_block(worker_.threads.size());
  asked_ = false;
  counters.begin_block(worker_.warps.size());
}

void Checker::advance() {
  if (++now_ < chunk_end_) return;
  now_ = global_.new_clocks(worker_.block);
  chunk_end_ = now_ + GlobalShadow::kChunk;
}

void Checker::set_clock(unsigned thread, std::uint64_t clock) {
  epochs_[thread] = clock << kClockShift | thread;
  running_ = epochs_[worker_.current];
}

void Checker::switched() {
  if (stored_.finding) see_what_was_stored();
  running_ = epochs_[worker_.current];
  counters.select(worker_.current);
}

void Checker::block_barrier(bool some_exited, Site site_) {
  if (some_exited) {
    barrier_site_ = site_;
    for (Passed& passed : ways_)
      if (passed.way == Way::of_exited) passed.way = Way::around;
  }
  advance();
  barrier_ = Epoch{now_} << kClockShift;
  written_before_ = barrier_ - block_begin_;
  enough_from_ = point_to_point_ ? kNever : barrier_;
  const auto n = static_cast<unsigned>(worker_.threads.size());
  for (unsigned t = 0; t < n; ++t) set_clock(t, now_);
  only_barriers_ = !any_extra_ && !point_to_point_;
  if (!any_extra_) return;
  std::fill(fenced_.begin(), fenced_.end(), false);
  std::vector<unsigned> all(n);
  for (unsigned t = 0; t < n; ++t) all[t] = t;
  meet(all);
}

void Checker::warp_sync(unsigned warp, unsigned lanes) {
  advance();
  only_barriers_ = false;
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

void Checker::end_block(bool regularly) {
  see_what_was_stored();
  ended_ = regularly;
  if (regularly && worker_.cluster) look_at_visits();
  if (value_) value_.unlock();                                      // the block ended in an atomic: its time was up
  for (unsigned w = 0; w < worker_.warps.size(); ++w) converge(w);  // what a stopped block left
}

void Checker::converge(unsigned warp) {
  const Warp& w = worker_.warps[warp];
  const auto reached = [this](unsigned site) {
    Passed& passed = way_of(site);
    if (passed.way == Way::around) went_around(site);
    passed.way = Way::usual;
  };
  const std::size_t requests = counters.flush(warp, w.exists & ~w.ended, reached);
  if (worker_.launch->trace) worker_.tracer.step(warp, requests);
}

// A thread may exit while others wait at barriers to come. If what it did last is what the others do only after such a
// barrier, it went around it.
void Checker::thread_ends() {
  const unsigned t = worker_.current;
  counters.for_each_site(t / kWarpSize, 1u << t % kWarpSize, [&](unsigned site) {
    Passed& passed = way_of(site);
    if (passed.way == Way::around) went_around(site);
    if (passed.way == Way::unknown) passed = {Way::of_exited, static_cast<std::uint16_t>(t)};
  });
}

Checker::Passed& Checker::way_of(unsigned site) {
  if (site >= ways_.size()) ways_.resize(site + 1);
  return ways_[site];
}

// A thread that waited ran this site after the barrier.
void Checker::went_around(unsigned site) {
  const Outside outside;
  const unsigned exited = ways_[site].thread;
  for (Passed& passed : ways_)  // once for this barrier
    if (passed.way == Way::around) passed.way = Way::usual;
  worker_.findings.add({"barrier skipped",
                        "a thread exited by a way around the barrier at which others wait",
                        "let all threads reach the same __syncthreads(), or return before it",
                        {{"waits", nullptr, barrier_site_, true, worker_.block, worker_.current},
                         side("exited", Epoch{site} << kThreadBits | exited)},
                        worker_.block});
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
  only_barriers_ = false;
  enough_from_ = kNever;
  if (std::exchange(point_to_point_, true)) return;
  const std::lock_guard lock(global_.mutex);
  global_.point_to_point.insert(worker_.launch->kernel);
}

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

void Checker::atomic(const void* address, std::size_t bytes, bool reads, Scope scope, Site site_) {
  scope_ = scope, asked_ = true;
  const auto key = spot(site_) | std::uintptr_t{bytes} << kPieceShift;
  void* at = const_cast<void*>(address);
  const auto one = [&]<unsigned kBytes>() {
    return reads ? access<kBytes, Access::atomic>(at, key) : access<kBytes, Access::exchange>(at, key);
  };
  for_size<2, 4, 8, 16>(bytes, one);
  added_ = {};
  publish(address, true);
}

// The offset of an access that is to shared memory; if it is out of bounds or misaligned, the block ends.
std::size_t Checker::in_shared(const void* address, std::size_t bytes, Access access_, std::uintptr_t key) {
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - shared_);
  if (offset + bytes > shared_bytes_ || offset % bytes != 0 || (layout_ && !layout_->holds(offset, bytes)))
    bad_address(address, bytes, access_, key);
  return offset;
}

// A lane's row of ldmatrix or stmatrix.
template <Access kAccess>
void Checker::row_of_matrix(const void* row, Site site_) {
  constexpr Access kTouches = is_write(kAccess) ? Access::write : Access::read;
  const Spot key = spot(site_);
  const std::size_t offset = in_shared(row, 16, kTouches, key);
  const unsigned s = site(key);
  counters.log(s, reinterpret_cast<std::uintptr_t>(row), 16, kAccess, kSharedSpace);
  if (others_watch_) tell_shared(worker_.rank, offset, 16, kAccess, key);
  touch_all<kOwn, 16, kTouches>(cells_, offset, running_ | Epoch{s} << kThreadBits, false, row);
}

void Checker::matrix_row(const void* row, Site site_) {
  row_of_matrix<Access::matrix_row>(row, site_);
}

void Checker::matrix_row_written(void* row, Site site_) {
  row_of_matrix<Access::matrix_row_written>(row, site_);
}

// An asynchronous copy: its thread writes the destination and reads the source when it begins, and does both again when
// it has waited, which is what others may not overtake. In between nobody may touch the one or write the other.
void Checker::copy_begins(const Copy& copy) {
  const auto key = spot(copy.site);
  const std::uintptr_t whole = key | std::uintptr_t{copy.bytes} << kPieceShift;
  auto* const from = const_cast<std::byte*>(copy.from);
  copying_ = true, read_unwritten_ = false;
  if (copy.source_bytes > 0 && copy.source_bytes < copy.bytes &&
      reinterpret_cast<std::uintptr_t>(from) % copy.bytes != 0)
    misaligned(from, "a source of cp.async", copy.bytes, key);
  if (copy.source_bytes < copy.bytes)
    range(from, copy.source_bytes, copy.bytes, Access::read, key);
  else
    for_size<4, 8, 16>(copy.bytes, [&]<unsigned kBytes>() { access<kBytes, Access::read>(from, whole); });
  const std::size_t offset = in_shared(copy.to, copy.bytes, Access::write, key | kOfCopy);
  forget_carried(copy.to, copy.bytes);
  write_by_copy(copy);
  copying_ = false;
  if (read_unwritten_)
    carries({"cp.async", "", true, copy.site, copy.thread, {}}, copy.to, copy.from, copy.source_bytes);
  for (std::size_t i = 0; i < copy.bytes; i += 4) cells_.state[(offset + i) / 4] |= Cells::kInFlight;
  any_state_ = true;
}

void Checker::copy_ends(const Copy& copy, Site) {
  const auto offset = static_cast<std::size_t>(copy.to - shared_);
  for (std::size_t i = 0; i < copy.bytes; i += 4)
    cells_.state[(offset + i) / 4] &= static_cast<std::uint8_t>(~Cells::kInFlight);
  copying_ = true;
  write_by_copy(copy);
  copying_ = false;
  const auto key = spot(copy.site);
  const Epoch mine = running_ | Epoch{site(key | std::uintptr_t{copy.bytes} << kPieceShift)} << kThreadBits;
  for (unsigned i = 0; i + 4 <= copy.source_bytes; i += 4)  // whole words: those of a tail were judged at the beginning
    if (global_.memory.contains(copy.from))
      touch_all<true, 4, Access::read>(global_.cells, global_.memory.offset(copy.from + i), mine, true, copy.from + i);
}

void Checker::write_by_copy(const Copy& copy) {
  const unsigned s = site(spot(copy.site) | kOfCopy);
  const Epoch mine = running_ | Epoch{s} << kThreadBits;
  const auto offset = static_cast<std::size_t>(copy.to - shared_);
  for_size<4, 8, 16>(copy.bytes, [&]<unsigned kBytes>() {
    touch_all<false, kBytes, Access::write>(cells_, offset, mine, false, copy.to);
  });
}

// What made the access: an instruction that copies, or the kind of access.
const char* Checker::named(Epoch epoch, Access access_) const {
  if (const char* const instruction = async_site(site_index_of(epoch)).instruction) return instruction;
  return is_of_copy(epoch) ? "cp.async" : name_of(access_);
}

AsyncSite Checker::async_site(unsigned site) const {
  if (const auto own = async_sites_.find(site); own != async_sites_.end()) return own->second;
  const std::lock_guard lock(global_.mutex);
  const auto others = global_.async_sites.find(site);
  return others == global_.async_sites.end() ? AsyncSite{} : others->second;
}

bool Checker::is_of_copy(Epoch epoch) const {
  const std::uintptr_t key = global_.site_key(site_index_of(epoch));
  return key & kSourceLocation && (key & kPieceBits) == kOfCopy;
}

void Checker::after_atomic(const void* address) {
  if (value_) value_.unlock();
  acquire(worker_.current, address, scope_);
  for (std::size_t at = added_.element; at < added_.bytes; at += added_.element)
    acquire(worker_.current, static_cast<const std::byte*>(address) + at, scope_);
}

// What a thread released goes with its atomic or volatile store. An atomic passes on what it reads, too.
void Checker::publish(const void* address, bool atomic) {
  static const Extra nothing;
  const Extra& extra = extra_[worker_.current] ? *extra_[worker_.current] : nothing;
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
  mine.far.join(extra.released), mine.near.join(extra.released_near);
  all.own = atomic && scope_ == Scope::block;
  if (all.own) {
    all.far.clear();
    std::erase_if(all.blocks, [&](const auto& entry) { return entry.first != block; });
  } else {
    all.far.join(mine.far);
  }
  if (!in_shared) global_.any_published = true;
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

void Checker::acquire(unsigned thread, const void* address, Scope scope) {
  const bool in_shared = !global_.memory.contains(address);
  const auto& shared_published = home_of(address).published_;
  if (in_shared ? shared_published.empty() : !global_.any_published.load()) return;
  std::unique_lock<std::mutex> lock(global_.mutex, std::defer_lock);
  if (!in_shared) lock.lock();
  const auto& all = in_shared ? shared_published : global_.published;
  const auto found = all.find(address);
  if (found == all.end()) return;
  only_barriers_ = false, point_to_point_ = true, enough_from_ = kNever;  // as the one that published noted
  Extra& extra = extra_of(thread);
  if (scope == Scope::device) extra.pending.join(found->second.far);
  const auto near = found->second.blocks.find(worker_.block);
  if (near != found->second.blocks.end()) extra.pending_near.join(near->second.near);
}

// Of a mark in shared memory.
bool Checker::ordered_at(const Cells& cells, std::size_t word, Epoch earlier) const {
  const bool cluster = &cells != &cells_ || cells.state[word] & Cells::kCluster;
  return cluster ? ordered<kCluster>(earlier) : ordered<kOwn>(earlier);
}

bool Checker::ordered_otherwise(Epoch earlier, bool global) const {
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

// How far apart two unordered accesses are: 1 same warp, 2 same block, 3 different blocks.
unsigned Checker::distance(Epoch a, Epoch b, bool global) const {
  if (global && (b < global_.launch_begin || global_.block_of(clock_of(a)) != global_.block_of(clock_of(b)))) return 3;
  return thread_of(a) / kWarpSize == thread_of(b) / kWarpSize ? 1 : 2;
}

void Checker::tell_shared(unsigned rank, std::size_t offset, unsigned bytes, Access access_, Spot spot) const {
  const Outside outside;
  for (Observer* observer : worker_.observers) observer->shared_access(rank, offset, bytes, access_, spot);
}

void Checker::tell_global(std::size_t array, std::size_t offset, unsigned bytes, Access access_, Spot spot) const {
  const Outside outside;
  for (Observer* observer : worker_.observers) observer->global_access(array, offset, bytes, access_, spot);
}

// ---- other addresses -----------------------------------------------------------------------------------------------

void Checker::range(const void* address, std::size_t bytes, std::size_t widest, Access access_,
                    std::uintptr_t site_key) {
  auto* at = static_cast<std::byte*>(const_cast<void*>(address));
  copy_ = {at, bytes};
  while (bytes > 0) {
    std::size_t piece = widest;
    while (piece > bytes || reinterpret_cast<std::uintptr_t>(at) % piece != 0) piece /= 2;
    const std::uintptr_t key = site_key | std::uintptr_t{piece} << kPieceShift;
    const auto one = [&]<unsigned kBytes>() {
      switch (access_) {
        case Access::read:
          return access<kBytes, Access::read>(at, key);
        case Access::write:
          return access<kBytes, Access::write>(at, key);
        case Access::volatile_read:
          return access<kBytes, Access::volatile_read>(at, key);
        default:
          return access<kBytes, Access::volatile_write>(at, key);
      }
    };
    for_size<1, 2, 4, 8, 16>(piece, one);
    at += piece, bytes -= piece;
  }
  copy_ = {};
}

bool Checker::is_built_in(const std::byte* at) const {
  for (const BuiltIn& variable : built_ins_)
    if (static_cast<std::size_t>(at - variable.begin) < variable.bytes) return true;
  return false;
}

// Neither device array, nor shared memory, nor the running thread's stack: built-in variables, kernel arguments and
// the program's constants may be read.
bool Checker::elsewhere(const void* address, Access access_) const {
  const auto* at = static_cast<const std::byte*>(address);
  if (is_built_in(at)) return true;
  if (is_write(access_)) return false;
  const auto* arguments = static_cast<const std::byte*>(worker_.launch->arguments);
  if (at >= arguments && at < arguments + worker_.launch->argument_bytes) return true;
  return static_cast<const void*>(at) >= &__executable_start && static_cast<const void*>(at) < &_end;
}

void* Checker::allocate(std::size_t bytes, const void* pc) {
  const std::string name = "memory of " + site_of(pc);
  const std::lock_guard lock(global_.mutex);
  return global_.memory.allocate_in_kernel(name, bytes);
}

void Checker::release(void* begin, const void* pc) {
  if (!begin) return;
  see_what_was_stored();
  const std::unique_lock lock(global_.mutex);
  global_.forget(begin);
  if (global_.memory.release_in_kernel(begin)) return;
  worker_.findings.add({"use after free",
                        "free of memory that no kernel holds",
                        "free what new or malloc gave, once",
                        {worker_.side("frees", pc)},
                        worker_.block});
}

// ---- findings ------------------------------------------------------------------------------------------------------

std::string Checker::element(const void* address, std::size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(address);
  if (worker_.cluster && worker_.cluster->nearest_owner(address)) return worker_.place(address);
  if (layout_ ? static_cast<std::size_t>(at - worker_.shared) < worker_.shared_bytes
              : static_cast<std::size_t>(at - (worker_.shared - kSharedBefore)) < kSharedRegion)
    return worker_.place(address);
  const DeviceArray& array = global_.memory.arrays[global_.memory.owner(address)];
  return array.name + "[" + std::to_string(array.index(at, bytes)) + "]";
}

FindingSide Checker::side(const char* what, Epoch epoch, unsigned block) const {
  FindingSide side{what, nullptr, {}, true, block, thread_of(epoch) % kCompanion};
  const std::uintptr_t key = global_.site_key(site_index_of(epoch));
  if (key & kSourceLocation)
    side.site = site_at(key);
  else
    side.pc = reinterpret_cast<const void*>(key & kAddressBits);
  return side;
}

void Checker::race(const Wrong& wrong, Access access_, Epoch mine, const void* address, std::size_t bytes) {
  const Outside outside;
  const bool copied = is_of_copy(wrong.earlier);
  const char* const before = named(wrong.earlier, wrong.before);
  const char* const now = named(mine, access_);
  const std::uintptr_t kinds = static_cast<std::uintptr_t>(wrong.before) << 8 | static_cast<std::uintptr_t>(access_);
  const std::uintptr_t sites = std::uintptr_t{site_index_of(mine)} << 16 | site_index_of(wrong.earlier);
  RawFinding* finding = worker_.findings.repeated("race", sites, kinds, worker_.block);
  if (!finding || wrong.distance > finding->distance) {
    FindingSide later_side = side(now, mine), earlier_side = side(before, wrong.earlier);
    if (global_.memory.contains(address) || worker_.cluster)
      earlier_side.block = global_.block_of(clock_of(wrong.earlier));
    const bool flag = asked_ && (is_plain(wrong.before) || is_of_companion(wrong.earlier)) && is_plain(access_);
    RawFinding found{
        "race",
        std::string(now) + " after " + before + " of " + element(address, bytes) + " (" + counted(bytes) + ")",
        is_of_companion(wrong.earlier) && wrong.distance < 3
            ? std::string(async_site(site_index_of(wrong.earlier)).remedy) + " before this " + now
        : is_of_companion(mine) && wrong.distance < 3 ? "put __syncthreads() or an mbarrier between the two; a "
                                                        "lane that arrives for its warp needs __syncwarp() first"
        : copied && wrong.distance < 3
            ? std::string("put ") + (wrong.distance == 1 ? "__syncwarp()" : "__syncthreads()") +
                  " between the copying thread's cp_async_wait and this " + (is_of_copy(mine) ? "copy" : now)
        : wrong.distance == 1 ? "put __syncwarp() between the two"
        : is_in_cluster(earlier_side.block) && wrong.distance == 3
            ? std::string("put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, "
                          "mbarrier_wait_cluster here")
        : wrong.distance == 2 ? std::string("put __syncthreads() between the two") +
                                    (flag ? "; with a flag: __threadfence() before it is set and after it is read" : "")
        : flag && known_as(wrong.earlier) & kInOrder
            ? "a flag needs cp_async_bulk_wait (not _read) and __threadfence() before it is set, __threadfence() after"
        : flag ? "if a flag orders the blocks: __threadfence() before it is set and after it is read; else split the "
                 "kernel"
               : "blocks are unordered: give each block its own elements, use an atomic, or split the kernel",
        {std::move(later_side), std::move(earlier_side)},
        worker_.block};
    found.distance = wrong.distance;
    found.same_value =
        finding ? finding->same_value : wrong.before == Access::write && access_ == Access::write && copy_.bytes == 0;
    if (finding) found.count = finding->count;
    finding = finding ? &(*finding = std::move(found)) : &worker_.findings.add(std::move(found));
  }
  if (!finding->same_value) return;
  stored_ = {finding, address, bytes, {}, false};
  std::memcpy(stored_.before.data(), address, bytes);
}

// The store that hooks announced has been made since.
void Checker::see_what_was_stored() {
  if (RawFinding* const finding = std::exchange(stored_.finding, nullptr))
    finding->same_value &= std::memcmp(stored_.before.data(), stored_.address, stored_.bytes) == 0;
}

void Checker::assumes_lockstep(Epoch earlier, Access before, Access access_, Epoch mine, const void* address,
                               std::size_t bytes) {
  const Outside outside;
  if (worker_.findings.repeated("lockstep assumed", site_index_of(mine), site_index_of(earlier), worker_.block)) return;
  worker_.findings.add({"lockstep assumed",
                        std::string(name_of(access_)) + " after " + name_of(before) + " of " + element(address, bytes) +
                            " (" + std::to_string(bytes) + " bytes)",
                        "put __syncwarp() between the two: lanes need not run in step",
                        {side(name_of(access_), mine), side(name_of(before), earlier)},
                        worker_.block});
}

// Was this byte of shared or global memory ever written?
bool Checker::written(const std::byte* at) const {
  const bool global = global_.memory.contains(at);
  const Cells& cells = global ? global_.cells : home_->cells_;
  const auto offset = global ? global_.memory.offset(at) : static_cast<std::size_t>(at - home_->shared_);
  const unsigned state = cells.state[offset / 4], level = state & Cells::kLevel;
  if (state & Cells::kCarried && carried_at(at).bytes) return false;
  const Cells::Plane& plane = cells.planes[level == 0 ? 0 : offset % 4 & (level == Cells::kHalves ? 2 : 3)];
  const Epoch begin = global ? Epoch{1} : block_begin_;
  return plane.write[offset / 4] >= begin ||
         (state & Cells::kUnusual && (plane.atomics[offset / 4].one >= begin || plane.stores[offset / 4].one >= begin));
}

// Is all that was not written padding? The type of the memory tells. Where it has none and a struct is copied: what may
// be padding, that is to say what lies behind a member and before an address that a larger member could have.
bool Checker::only_padding(const std::byte* address, std::size_t bytes) const {
  const std::byte* begin = home_->shared_;
  std::size_t element_bytes = worker_.shared_struct_bytes;
  Padding padding = worker_.shared_padding;
  if (global_.memory.contains(address)) {
    const DeviceArray& array = global_.memory.arrays[global_.memory.owner(address)];
    begin = array.begin, element_bytes = array.element_bytes, padding = array.padding;
  }
  if (padding) {
    const std::vector<unsigned char>& known = padding_bytes(padding, element_bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      if (!written(address + i) && !known[static_cast<std::size_t>(address + i - begin) % element_bytes]) return false;
    return true;
  }
  const std::byte* const end = copy_.begin + copy_.bytes;
  for (const std::byte* at = copy_.begin; at < end; ++at) {
    if (written(at)) continue;
    const std::byte* const first = at;
    while (at < end && !written(at)) ++at;
    const auto stop = reinterpret_cast<std::uintptr_t>(at);
    if (first == copy_.begin || static_cast<std::uintptr_t>(at - first) >= std::min<std::uintptr_t>(stop & -stop, 16))
      return false;
  }
  return copy_.bytes > 0;
}

void Checker::disturbs_copy(const Copy& copy, Access access_, Epoch mine, const void* address, std::size_t bytes) {
  const Outside outside;
  const std::uintptr_t sites = std::uintptr_t{site_index_of(mine)} << 32 | copy.site.line();
  if (worker_.findings.repeated("asynchronous copy", sites, copy.site.column(), worker_.block)) return;
  const bool of_source = global_.memory.contains(address);
  const char* const now = named(mine, access_);
  std::string remedy;
  if (is_of_copy(mine))
    remedy = "copy to another place, or let the other copy's thread wait for it first (cp_async_wait)";
  else if (!home_->worker_.copies.is_committed(copy))
    remedy = "commit the copy's group (cp_async_commit) before the wait";
  else if (copy.left > 0)
    remedy =
        "wait for the copy's group, too: the last cp_async_wait<" + std::to_string(copy.left) + "> left it under way";
  else if (copy.thread == thread_of(mine) && home_ == this)
    remedy = std::string("let the thread wait for its copy (cp_async_wait) before this ") + now;
  else
    remedy = "let the copying thread wait for its copy (cp_async_wait), then __syncthreads()";
  worker_.findings.add({"asynchronous copy",
                        std::string(now) + " of " + element(address, bytes) + " (" + counted(bytes) + ") while " +
                            (is_of_copy(mine) ? "another " : "cp.async ") + (of_source ? "reads it" : "writes it"),
                        remedy,
                        {side(now, mine), {"cp.async", nullptr, copy.site, true, home_->worker_.block, copy.thread}},
                        worker_.block});
}

bool Checker::uninitialised(Access access_, Epoch mine, const void* address, std::size_t bytes) {
  const Outside outside;
  if (only_padding(static_cast<const std::byte*>(address), bytes)) return false;
  if (copying_ && may_carry(static_cast<const std::byte*>(address))) {
    read_unwritten_ = true;
    return false;
  }
  if (worker_.findings.repeated("uninitialised", site_index_of(mine), 0, worker_.block)) return true;
  const char* const now = is_reduction(access_) ? named(mine, access_) : name_of(access_);
  worker_.findings.add({"uninitialised",
                        std::string(now) + " of " + element(address, bytes) + " (" + counted(bytes) + ")",
                        "write it before reading it: fresh memory holds NaN",
                        {side(now, mine)},
                        worker_.block});
  return true;
}

void Checker::misaligned(const void* address, const char* type, unsigned alignment, std::uintptr_t key) {
  const auto* at = static_cast<const std::byte*>(address);
  const auto in_shared = static_cast<std::size_t>(at - shared_);
  if (in_shared >= shared_bytes_ && !global_.memory.contains(address)) return;
  active_worker = nullptr;
  std::string where = "byte " + std::to_string(in_shared) + " of shared " + shared_name(worker_);
  if (global_.memory.contains(address)) {
    const std::size_t owner = global_.memory.owner(address);
    if (owner >= global_.memory.arrays.size()) bad_address(address, 1, Access::read, key);
    const DeviceArray& array = global_.memory.arrays[owner];
    where = "byte " + std::to_string(at - array.begin) + " of " + array.name;
  }
  worker_.findings.add({"misaligned",
                        "use of " + plain_type(type) + " at " + where,
                        "its type needs an address that is a multiple of " + std::to_string(alignment),
                        {side("uses", running_ | Epoch{site(key)} << kThreadBits)},
                        worker_.block});
  worker_.stop_block();
}

void Checker::bad_address(const void* address, std::size_t bytes, Access access_, std::uintptr_t key) {
  active_worker = nullptr;
  const auto* at = static_cast<const std::byte*>(address);
  const std::string size = " (" + counted(bytes) + ")";
  std::string what = std::string(name_of(access_)), kind = "out of bounds",
              remedy = "guard the access or fix the index";
  std::string name;
  std::ptrdiff_t begin = 0, limit = 0;
  const DeviceArray* global = nullptr;
  const std::byte* base = nullptr;
  bool freed = false;
  const Worker* const near = worker_.cluster ? worker_.cluster->nearest_owner(address) : nullptr;
  const Worker& owner = near ? *near : worker_;
  const std::string whose = &owner == &worker_ ? "" : " of block " + owner.coordinates();
  const auto in_region = static_cast<std::size_t>(at - (owner.shared - kSharedBefore));
  const SharedLayout::Array* array = layout_ ? layout_->nearest(at - owner.shared) : nullptr;
  if (array) {
    base = owner.shared + array->at, limit = static_cast<std::ptrdiff_t>(array->bytes), name = array->name;
  } else if (!layout_ && in_region < kSharedRegion) {
    base = owner.shared, limit = static_cast<std::ptrdiff_t>(worker_.launch->shared_bytes);
    name = limit ? shared_name(worker_) : "";
  } else if (global_.memory.contains(address) && global_.memory.owner(address) < global_.memory.arrays.size()) {
    // The nearest array: an index below 0 of one is beyond the red zone of the one before.
    const std::vector<DeviceArray>& arrays = global_.memory.arrays;
    std::size_t i = global_.memory.owner(address);
    if (i + 1 < arrays.size() && arrays[i + 1].begin - at < at - (arrays[i].begin + arrays[i].bytes)) ++i;
    global = &arrays[i];
    base = global->begin, limit = static_cast<std::ptrdiff_t>(global->bytes), name = global->name;
    begin = global->index(at, bytes);
    freed = !global->live;
  }
  const bool constant = global && is_write(access_) && at >= base && at + bytes <= base + limit && global->constant;
  if (constant) {
    what += " of " + name + "[" + std::to_string(begin) + "]" + size + "; " + name + " is __constant__";
    remedy = "only the host writes it (cudaMemcpyToSymbol); declare it __device__";
  } else if (freed) {
    kind = "use after free";
    what += " of " + name + "[" + std::to_string(begin) + "]" + size + "; " + name + " was freed";
    remedy = "free an array after the last kernel that uses it";
  } else if (base && at >= base && at + bytes <= base + limit) {
    kind = "misaligned";
    what += " of " + counted(bytes) + " at byte " + std::to_string(at - base) + " of " +
            (global ? name : "shared " + name + whose);
    remedy = "an n-byte access needs an address that is a multiple of n";
  } else if (global) {
    what += " of " + name + "[" + std::to_string(begin) + "]" + size + "; " + name + " has ";
    what +=
        global->untyped ? counted(global->bytes) : std::to_string(global->bytes / global->element_bytes) + " elements";
  } else if (base && !name.empty()) {
    const std::ptrdiff_t offset = at - base;
    what += " of shared " + name + (offset < 0 ? "" : "+") + std::to_string(offset) + whose + size + "; " + name +
            " has " +
            std::to_string(worker_.shared_struct ? static_cast<std::ptrdiff_t>(worker_.shared_struct_bytes) : limit) +
            " bytes";
    if (worker_.shared_struct && worker_.shared_struct_bytes < worker_.launch->shared_bytes)
      what += ", the block " + std::to_string(limit);
  } else {
    what += " of " + counted(bytes) + " at an address outside every device array";
  }
  const Epoch mine = running_ | Epoch{site(key)} << kThreadBits;
  worker_.findings.add({kind, what, remedy, {side(named(mine, access_), mine)}, worker_.block});
  worker_.stop_block();
}

}  // namespace flash::simt
