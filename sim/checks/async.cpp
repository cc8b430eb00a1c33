// async.cpp: the checks of asynchronous operations (TMA, wgmma), of what they complete on, and of proxy fences.
// A companion's marks lie in the cells like a thread's (sim/core/async.hpp). What an operation reads or overwrites must
// be in order with the issuing thread and, if it was written by ordinary stores, behind a proxy fence.
// Use: see checker.hpp; PTX ISA, "Async proxy", "mbarrier".
#include <algorithm>
#include <bit>
#include <utility>

#include "sim/checks/accesses.hpp"
#include "sim/checks/keys.hpp"
#include "sim/core/outside.hpp"

namespace flash::simt {
namespace {

Epoch of_companion(Epoch running, const AsyncOperation& operation, unsigned site) {
  return (running >> kClockShift << kClockShift) | (operation.in_order ? kInOrderEpoch : 0) |
         Epoch{site} << kThreadBits | kCompanion | operation.thread;
}

// The largest access that fits: pieces are multiples of 2 bytes at addresses that are.
unsigned next_size(const std::byte* at, std::size_t bytes) {
  for (unsigned size = 16; size > 2; size /= 2)
    if (bytes >= size && reinterpret_cast<std::uintptr_t>(at) % size == 0) return size;
  return 2;
}

}  // namespace

std::uint64_t Checker::async_begins(const AsyncOperation& operation) {
  not_only_barriers();
  const std::uintptr_t key = spot(operation.site) | (operation.writes ? kOfAsyncWrite : kOfAsyncRead);
  const unsigned s = site(key);
  if (async_sites_.try_emplace(s, AsyncSite{operation.instruction, operation.remedy}).second) {
    const std::lock_guard lock(global_.mutex);
    global_.async_sites[s] = {operation.instruction, operation.remedy};
  }
  if (operation.in_order) advance();  // each has a clock of its own
  const Epoch mine = of_companion(operation.in_order ? now_ << kClockShift : running_, operation, s);
  const Access access_ = operation.adds ? Access::reduction : operation.writes ? Access::write : Access::read;
  if (!operation.writes)
    read_unwritten_ = false, tile_written_ = false;
  else if (!operation.adds)
    for (const AsyncPiece& piece : operation.pieces) forget_carried(piece.begin, piece.bytes);
  if (operation.pieces.empty()) return now_;  // a box wholly outside its tensor
  if (global_.memory.contains(operation.pieces[0].begin)) {
    copying_ = operation.copies;
    for (const AsyncPiece& piece : operation.pieces) global_piece(operation, piece, access_, mine, key);
    copying_ = false;
    if (operation.adds) adds(operation, mine);
    if (!operation.counted) count_traffic(operation);
    return now_;
  }
  Checker& other = home_of(operation.pieces[0].begin);
  other.any_state_ = true;
  if (&other != this && !is_there(other, mine, operation.instruction, operation.pieces[0].begin, 16)) return now_;
  copying_ = operation.copies;
  home_ = &other;
  for (const AsyncPiece& piece : operation.pieces)
    for (std::size_t at = 0; !operation.writes && !tile_written_ && at < piece.bytes; at += 2)
      tile_written_ =
          static_cast<std::size_t>(piece.begin + at - other.shared_) < shared_bytes_ && written(piece.begin + at);
  home_ = this;
  for (const AsyncPiece& piece : operation.pieces) {
    const auto offset = static_cast<std::size_t>(piece.begin - other.shared_);
    for (std::size_t at = offset; at < offset + piece.bytes; at += 4)
      if (at >= shared_bytes_ || (layout_ && !layout_->holds(at, 4))) bad_address(other.shared_ + at, 4, access_, key);
    if (&other != this) other.share(offset, piece.bytes);
    home_ = &other;
    needs_proxy_fence(operation, piece, mine);
    for (std::size_t at = 0; at < piece.bytes;) {
      const unsigned size = next_size(piece.begin + at, piece.bytes - at);
      for_size<2, 4, 8, 16>(size, [&]<unsigned kBytes>() {
        if (operation.writes)
          touch_all<false, kBytes, Access::write>(other.cells_, offset + at, mine, false, piece.begin + at);
        else
          touch_all<false, kBytes, Access::read>(other.cells_, offset + at, mine, false, piece.begin + at);
      });
      at += size;
    }
    home_ = this;
    for (std::size_t word = offset / 4; word < (offset + piece.bytes) / 4; ++word)
      other.cells_.state[word] |= Cells::kAsync;
  }
  copying_ = false;
  return now_;
}

bool Checker::in_array(const void* address) const {
  if (!global_.memory.contains(address)) return false;
  const std::size_t owner = global_.memory.owner(address);
  if (owner >= global_.memory.arrays.size()) return false;
  const DeviceArray& array = global_.memory.arrays[owner];
  return array.live && static_cast<std::size_t>(static_cast<const std::byte*>(address) - array.begin) < array.bytes;
}

// A run of elements of a global array: judged, and counted as one instruction's traffic.
void Checker::global_piece(const AsyncOperation& operation, const AsyncPiece& piece, Access access_, Epoch mine,
                           std::uintptr_t key) {
  const std::size_t owner = global_.memory.owner(piece.begin);
  if (owner >= global_.memory.arrays.size()) bad_address(piece.begin, 2, access_, key);
  const DeviceArray& array = global_.memory.arrays[owner];
  const std::size_t in_array = static_cast<std::size_t>(piece.begin - array.begin);
  if (in_array >= array.bytes || !array.live || (is_write(access_) && array.constant))
    bad_address(piece.begin, 2, access_, key);
  if (reinterpret_cast<std::uintptr_t>(piece.begin) % operation.alignment != 0)
    misaligned(piece.begin, operation.writes ? "a destination of a bulk copy" : "a source of a bulk copy",
               operation.alignment, key);
  const unsigned unit = operation.alignment > 1 ? 4 : 2;  // lines are of words, boxes of 16-bit elements
  if (in_array + piece.bytes > array.bytes) bad_address(array.begin + array.bytes, unit, access_, key);
  if (const AsyncOperation* const other =
          worker_.async.disturbed(piece.begin, piece.bytes, operation.writes, operation.adds))
    return disturbs_async(*other, access_, mine, piece.begin, next_size(piece.begin, piece.bytes));
  for (std::size_t at = 0; at < piece.bytes;) {
    const std::byte* const address = piece.begin + at;
    if (is_reduction(access_)) {  // each float by itself
      touch_all<true, 4, Access::reduction>(global_.cells, global_.memory.offset(address), mine, array.initialised,
                                            address);
      at += 4;
      continue;
    }
    const unsigned size = next_size(address, piece.bytes - at);
    for_size<2, 4, 8, 16>(size, [&]<unsigned kBytes>() {
      const std::size_t offset = global_.memory.offset(address);
      if (is_write(access_))
        touch_all<true, kBytes, Access::write>(global_.cells, offset, mine, array.initialised, address);
      else
        touch_all<true, kBytes, Access::read>(global_.cells, offset, mine, array.initialised, address);
    });
    at += size;
  }
}

// A copy is one request; its sectors are the distinct ones of each run of elements.
void Checker::count_traffic(const AsyncOperation& operation) {
  const std::size_t array = global_.memory.owner(operation.pieces[0].begin);
  if (array >= counters.arrays.size()) counters.arrays.resize(array + 1);
  ArrayTraffic& traffic = counters.arrays[array];
  std::uint64_t bytes = 0, sectors = 0;
  std::uintptr_t last = 0;
  for (const AsyncPiece& piece : operation.pieces) {
    const auto begin = reinterpret_cast<std::uintptr_t>(piece.begin);
    const std::uintptr_t first = begin / 32, end = (begin + piece.bytes - 1) / 32 + 1;
    bytes += piece.bytes, sectors += end - first - (first + 1 == last);
    last = end;
  }
  const auto count = [&](std::uint64_t& own_bytes, std::uint64_t& requests, std::uint64_t& own_sectors) {
    own_bytes += bytes, ++requests, own_sectors += sectors;
  };
  if (operation.adds)
    count(traffic.reduced_bytes, traffic.reduce_requests, traffic.reduce_sectors);
  else if (operation.writes)
    count(traffic.written_bytes, traffic.write_requests, traffic.write_sectors);
  else
    count(traffic.read_bytes, traffic.read_requests, traffic.read_sectors);
}

// One of a bulk group is known as far as its thread had come when it issued it: the mark of that time stays.
std::uint64_t Checker::async_ends(const AsyncOperation& operation) {
  if (operation.in_order) return operation.begun + 1;
  advance();
  const std::uintptr_t key = spot(operation.site) | (operation.writes ? kOfAsyncWrite : kOfAsyncRead);
  const Epoch mine = of_companion(now_ << kClockShift, operation, site(key));
  if (operation.sends)  // the block must know of it before it ends, as of another block's read
    visits_[{worker_.block, thread_of(mine)}] = {mine, operation.instruction, operation.pieces[0].begin,
                                                 operation.pieces[0].bytes, this};
  for (const AsyncPiece& piece : operation.pieces) {
    if (global_.memory.contains(piece.begin)) {
      leave_marks<true>(global_.cells, global_.memory.offset(piece.begin), piece.bytes, operation.writes, mine);
      continue;
    }
    const auto offset = static_cast<std::size_t>(piece.begin - shared_);
    leave_marks<false>(cells_, offset, piece.bytes, operation.writes, mine);
    for (std::size_t word = offset / 4; word < (offset + piece.bytes) / 4; ++word)
      if (!worker_.async.uses(word)) cells_.state[word] &= static_cast<std::uint8_t>(~Cells::kAsync);
  }
  advance();  // so that this operation is before the clock, and the next one is not
  return now_;
}

// The marks of an operation's accesses, younger ones than when it began; nobody was there meanwhile, or it was said.
template <int kSpace>
void Checker::leave_marks(Cells& cells, std::size_t offset, std::size_t bytes, bool writes, Epoch mine) {
  const auto leave = [&](const Cells::Plane& plane, std::size_t word) {
    if (writes)
      __atomic_store_n(&plane.write[word], mine, __ATOMIC_SEQ_CST);
    else if (kSpace == kOwn && cells.state[word] & Cells::kCluster)
      remember<kCluster, Access::read>(cells, word, plane.readers[word], mine);
    else
      remember<kSpace, Access::read>(cells, word, plane.readers[word], mine);
  };
  const std::size_t end = offset + bytes;
  for (std::size_t word = offset / 4; word * 4 < end; ++word) {
    const bool whole = word * 4 + 4 <= end;  // a row may end with half of a word; it begins with a word
    unsigned level = cells.state[word] & Cells::kLevel;
    if (level == 0 && !whole) level = cells.split(word, 2) & Cells::kLevel;
    leave(cells.planes[0], word);
    if (level == Cells::kSingle) leave(cells.planes[1], word);
    if (whole && level != 0) leave(cells.planes[2], word);
    if (whole && level == Cells::kSingle) leave(cells.planes[3], word);
  }
}

void Checker::async_known(unsigned first, unsigned threads, unsigned issuer, std::uint64_t clock, bool in_order) {
  not_only_barriers();
  View ended;
  ended.of(worker_.block).raise(issuer | kCompanion | (in_order ? kInOrder : 0), clock);
  for (unsigned t = first; t < first + threads; ++t) extra_of(t).known.join(ended);
}

void Checker::async_handed_over(const void* object, unsigned block, unsigned issuer, std::uint64_t clock) {
  Handover& handed = handover(object);
  for (View* known : {&handed.released.known, &handed.complete.known})
    known->of(block).raise(issuer | kCompanion, clock);
}

// ---- what they complete on, and other objects where threads meet ----------------------------------------------------

void Checker::releases(const void* object) {
  not_only_barriers();
  const Extra& extra = extra_of(worker_.current);
  Handover& handed = handover(object);
  if (worker_.cluster && object != worker_.cluster && &home_of(object) != this) {  // another block's mbarrier
    handed.far_released.known.join(extra.known);
    handed.far_released.fenced.join(extra.fenced);
    return add_own(handed.far_released.known.of(worker_.block));
  }
  const auto give = [](const View& view, View& released, View& last) {
    if (!last.is(view)) released.join(view), last = view;
  };
  give(extra.known, handed.released.known, handed.joined.known);
  give(extra.fenced, handed.released.fenced, handed.joined.fenced);
  add_own(handed.released.known.of(worker_.block));
}

// The same by a relaxed arrival: of what the thread and those that it knows of have read, and of copies that are over.
void Checker::releases_reads(const void* object) {
  not_only_barriers();
  const Extra& extra = extra_of(worker_.current);
  Handover& handed = handover(object);
  const bool far = worker_.cluster && object != worker_.cluster && &home_of(object) != this;
  View& released = far ? handed.far_released.known : handed.released.known;
  released.join_as_reads(extra.known);
  add_own(released.of(worker_.block | View::kReads));
}

void Checker::completes(const void* object) {
  Handover& handed = handover(object);
  handed.complete = handed.released;
  handed.far_complete = handed.far_released;
}

void Checker::acquires(const void* object, unsigned thread, bool far) {
  not_only_barriers();
  const Handover& handed = handover(object);
  Extra& extra = extra_of(thread);
  for (const Handover::Views* views : {&handed.complete, &handed.far_complete}) {
    if (views == &handed.far_complete && !far) continue;
    extra.known.join(views->known);
    extra.fenced.join(views->fenced);
  }
}

// What it knew before is part of what was handed over. Many threads then share one View, and what they learn later is
// joined once.
void Checker::learns_all(const void* object, unsigned thread) {
  const Handover::Views& complete = handover(object).complete;
  Extra& extra = extra_of(thread);
  extra.known = complete.known;
  extra.fenced = complete.fenced;
}

// An mbarrier is made by an ordinary store and used by atomics, which must be in order with that.
Epoch Checker::at_mbarrier(const char* instruction, Site site_) {
  const unsigned s = site(spot(site_) | kOfMbarrier);
  async_sites_[s] = {instruction, ""};
  return running_ | Epoch{s} << kThreadBits;
}

void Checker::mbarrier_begins(const void* barrier, unsigned, Site site_) {
  const std::size_t offset = in_shared(barrier, 8, Access::write, spot(site_) | kOfMbarrier);
  const Epoch mine = at_mbarrier("mbarrier.init", site_);
  any_state_ = true;
  handovers_.erase(barrier), uses_.erase(barrier);  // of one that was here before
  touch_all<false, 8, Access::write>(cells_, offset, mine, true, barrier);
  for (const std::size_t word : {offset / 4, offset / 4 + 1}) cells_.state[word] |= Cells::kMbarrier;
}

void Checker::mbarrier_used(const void* barrier, const char* instruction, Site site_) {
  const std::size_t offset = in_shared(barrier, 8, Access::atomic, spot(site_) | kOfMbarrier);
  const Epoch mine = at_mbarrier(instruction, site_);
  any_state_ = true;
  std::vector<Epoch>& uses = uses_[barrier];
  uses.resize(worker_.threads.size());
  uses[worker_.current] = mine;
  touch_all<false, 8, Access::atomic>(cells_, offset, mine | kLastEpoch, true, barrier);
}

// Its last use as an ordinary store, behind which its bytes are ordinary memory. Atomics that follow one another keep
// the last mark alone, so each thread's own use is looked at.
void Checker::mbarrier_ends(const void* barrier, Site site_) {
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(barrier) - shared_);
  const Epoch mine = at_mbarrier("mbarrier.inval", site_);
  Wrong wrong;
  for (const Epoch use : uses_[barrier])
    if (collides<false>(use) && distance(mine, use, false) > wrong.distance)
      wrong.distance = distance(mine, use, false), wrong.before = Access::atomic, wrong.earlier = use;
  for (const auto& [who, use] : far_uses_[barrier])
    if (collides<kCluster>(use)) wrong.distance = 3, wrong.before = Access::atomic, wrong.earlier = use;
  if (wrong.distance > 0) race(wrong, Access::atomic, mine, barrier, 8);
  for (const std::size_t word : {offset / 4, offset / 4 + 1}) {
    cells_.state[word] &= static_cast<std::uint8_t>(~Cells::kMbarrier);
    cells_.planes[0].atomics[word] = {};
  }
  touch_all<false, 8, Access::write>(cells_, offset, mine, true, barrier);
}

void Checker::completes_on(const void* barrier, bool fenced, Site copy) {
  const Checker& other = home_of(barrier);
  const auto word = static_cast<std::size_t>(static_cast<const std::byte*>(barrier) - other.shared_) / 4;
  const Epoch made = other.cells_.planes[0].write[word];
  if (fenced || is_fenced(made) || !ordered_at(other.cells_, word, made)) return;  // without order it is a race
  const unsigned s = site(spot(copy) | kOfMbarrier);
  if (worker_.findings.repeated("proxy fence", s, site_index_of(made), worker_.block)) return;
  worker_.findings.add(
      {"proxy fence",
       "a copy completes on mbarrier " + element(barrier, 8) + ", which no fence has published since mbarrier_init",
       "call fence_mbarrier_init() behind mbarrier_init, before the barrier",
       {side("copies", running_ | Epoch{s} << kThreadBits), side("mbarrier.init", made, other.worker_.block)},
       worker_.block});
}

// ---- proxies -------------------------------------------------------------------------------------------------------

void Checker::fence_proxy() {
  not_only_barriers();
  Extra& extra = extra_of(worker_.current);
  extra.fenced.join(extra.known);
  add_own(extra.fenced.of(worker_.block));
}

bool Checker::is_fenced(Epoch write) const {
  const auto& extra = extra_[worker_.current];
  const Clocks* const fenced = extra ? extra->fenced.find(global_.block_of(clock_of(write))) : nullptr;
  return fenced && clock_of(write) < fenced->of(thread_of(write));
}

// The atomic's mark is about to make way for the mark of one that reads its value, by a thread that need not know of
// it: a proxy fence of that thread says nothing of this atomic.
void Checker::overtakes(const Marks& marks, Epoch earlier) {
  if (thread_of(earlier) == thread_of(running_)) return;
  const Outside outside;
  std::array<Epoch, kThreadBits>& all = home_->overtaken_[&marks];
  if (all[0] < barrier_) all = {};
  const unsigned differs = all[0] == 0 ? 0 : thread_of(all[0]) ^ thread_of(earlier);
  Epoch& place = all[static_cast<std::size_t>(std::bit_width(differs))];
  if (place == 0 || thread_of(place) == thread_of(earlier)) place = earlier;
}

// Stores and atomics that an asynchronous operation reads or overwrites must lie before a proxy fence.
void Checker::needs_proxy_fence(const AsyncOperation& operation, const AsyncPiece& piece, Epoch mine) {
  const Cells& cells = home_->cells_;
  const auto offset = static_cast<std::size_t>(piece.begin - home_->shared_);
  for (std::size_t word = offset / 4; word < (offset + piece.bytes) / 4; ++word)
    for (unsigned byte = 0; byte < 4; ++byte) {
      const unsigned level = cells.state[word] & Cells::kLevel;
      if (byte % (level == 0 ? 4 : level == Cells::kHalves ? 2 : 1) != 0) continue;
      const auto judge = [&](Epoch write, Access access_) {
        if (write < block_begin_ || is_of_companion(write) || !ordered_at(cells, word, write) || is_fenced(write))
          return false;
        no_proxy_fence(operation, mine, write, access_, home_->shared_ + word * 4);
        return true;
      };
      const Cells::Plane& plane = cells.planes[byte];
      if (judge(plane.write[word], Access::write)) return;
      if (!(cells.state[word] & Cells::kUnusual)) continue;
      const auto judge_all = [&](const Marks& marks, Access access_) {
        if (judge(marks.one, access_) || judge(marks.other, access_)) return true;
        if (!(cells.state[word] & Cells::kMore)) return false;
        return std::ranges::any_of(kept(marks, false), [&](Epoch epoch) { return judge(epoch, access_); });
      };
      const Marks& atomics = plane.atomics[word];
      if (judge_all(plane.stores[word], Access::volatile_write) || judge_all(atomics, Access::atomic)) return;
      const auto others = home_->overtaken_.find(&atomics);
      if (others == home_->overtaken_.end() || (atomics.one | atomics.other) == 0) continue;
      for (const Epoch epoch : others->second)
        if (judge(epoch, Access::atomic)) return;
      if (operation.writes) home_->overtaken_.erase(others);
    }
}

void Checker::no_proxy_fence(const AsyncOperation& operation, Epoch mine, Epoch write, Access access_,
                             const std::byte* address) {
  if (worker_.findings.repeated("proxy fence", site_index_of(mine), site_index_of(write), worker_.block)) return;
  worker_.findings.add(
      {"proxy fence",
       std::string(operation.instruction) + (operation.writes ? " overwrites " : " reads ") + element(address, 4) +
           ", written by " +
           (access_ == Access::write    ? "an ordinary store"
            : access_ == Access::atomic ? "an atomic"
                                        : "a volatile store") +
           " without a proxy fence",
       "let the storing thread call fence_proxy_async() before the barrier",
       {side(operation.instruction, mine), side(named(write, access_), write, global_.block_of(clock_of(write)))},
       worker_.block});
}

// ---- findings ------------------------------------------------------------------------------------------------------

// A word that an asynchronous operation uses, or that is an mbarrier: may it be accessed? What is wrong is said once
// for an access.
bool Checker::disturbs(std::uint8_t state, std::size_t word, Access access_, Epoch mine, bool& said,
                       const void* address, std::size_t bytes) {
  const std::byte* const at = home_->shared_ + word * 4;
  if (state & Cells::kInFlight) {
    if (!std::exchange(said, true)) disturbs_copy(*home_->worker_.copies.writing(at), access_, mine, address, bytes);
    return true;
  }
  if (state & Cells::kMbarrier && !is_atomic(access_)) {
    if (!std::exchange(said, true)) disturbs_mbarrier(access_, mine, address, bytes);
    return true;
  }
  if (!(state & Cells::kAsync)) return false;
  const AsyncOperation* const operation = home_->worker_.async.disturbed(at, 4, is_write(access_));
  if (operation && !std::exchange(said, true)) disturbs_async(*operation, access_, mine, address, bytes);
  return operation;
}

void Checker::disturbs_mbarrier(Access access_, Epoch mine, const void* address, std::size_t bytes) {
  const char* const now = named(mine, access_);
  if (worker_.findings.repeated("mbarrier", site_index_of(mine), 0, worker_.block)) return;
  worker_.findings.add(
      {"mbarrier",
       std::string(now) + " of " + element(address, bytes) + " (" + counted(bytes) + "), which is an mbarrier",
       "leave an mbarrier's 8 bytes to the instructions on mbarriers",
       {side(now, mine)},
       worker_.block});
}

void Checker::disturbs_async(const AsyncOperation& operation, Access access_, Epoch mine, const void* address,
                             std::size_t bytes) {
  const char* const now = named(mine, access_);
  if (worker_.findings.repeated("asynchronous copy", std::uintptr_t{site_index_of(mine)} << 32 | operation.site.line(),
                                operation.site.column(), worker_.block))
    return;
  worker_.findings.add({"asynchronous copy",
                        std::string(now) + " of " + element(address, bytes) + " (" + counted(bytes) + ") while " +
                            (is_of_companion(mine) ? "another " : "") + operation.instruction +
                            (operation.adds     ? " adds to"
                             : operation.writes ? " writes"
                                                : " reads") +
                            " it",
                        std::string(operation.remedy) + " before this " + now,
                        {side(now, mine),
                         {operation.instruction, nullptr, operation.site, true,
                          operation.block == ~0u ? home_->worker_.block : operation.block, operation.thread}},
                        worker_.block});
}

}  // namespace flash::simt
