// bulk.cpp: TMA: issue, completion, waits; the words of its findings. The rules: bulk.hpp, mbarrier.hpp.
// Use: the functions of simt.hpp that sim/dialect/hopper.hpp wraps.
#include "sim/core/bulk.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "sim/core/block.hpp"
#include "sim/core/observer.hpp"

namespace flash::simt {
namespace {

constexpr char kLoad[] = "cp.async.bulk.tensor", kStore[] = "cp.async.bulk.tensor (store)";
constexpr char kPrefetch[] = "cp.async.bulk.prefetch.tensor";
constexpr char kLineLoad[] = "cp.async.bulk", kLineStore[] = "cp.async.bulk (store)";
constexpr char kReduction[] = "cp.reduce.async.bulk", kLinePrefetch[] = "cp.async.bulk.prefetch";
constexpr char kMulticast[] = "multicast", kSend[] = "cp.async.bulk (cluster)";
constexpr char kOfLoad[] = "let the thread wait on the load's mbarrier (mbarrier_wait)";
constexpr char kOfStoreRead[] = "let the issuing thread wait for it (cp_async_bulk_wait_read), then a barrier,";
constexpr char kOfStoreWrite[] = "let the issuing thread wait for the writes (cp_async_bulk_wait, not its _read form)";
constexpr std::size_t kTileAlignment = 128, kLineAlignment = 16;

// The bytes of a box in shared memory, or those that hold elements of the tensor; of a line they are one piece.
std::vector<AsyncPiece> pieces_on_chip(const TensorBox& box, bool inside) {
  if (box.is_line()) return {{box.tile(), box.bytes()}};
  std::vector<AsyncPiece> pieces;
  box.for_each_piece(inside, [&](const std::byte* begin) { pieces.push_back({begin, 16}); });
  return pieces;
}

// Adds floats to those in global memory, to which other workers may add at the same time.
void add(const TensorBox& line, const std::byte* bytes) {
  line.for_each_run([&](std::byte* begin, std::size_t size) {
    for (std::size_t at = 0; at < size; at += sizeof(float)) {
      float more;
      std::memcpy(&more, bytes + at, sizeof more);
      replace(reinterpret_cast<float*>(begin + at), [more](float old) { return bulk_sum(old, more); });
    }
  });
}

}  // namespace

// The functions that kernels call.
void mbarrier_init(std::uint64_t* barrier, unsigned arrivals, Site site) {
  Entered()->bulk.init(barrier, arrivals, site);
}
void fence_mbarrier_init() {
  Entered()->bulk.fence_init();
}
void mbarrier_arrive(std::uint64_t* barrier, bool expects, unsigned bytes, Site site) {
  const Entered worker;
  if (worker->copies.waits_by_arrival(worker->current)) worker->cp_async_wait(0, site);
  worker->bulk.arrive(barrier, expects, bytes, site);
}
unsigned mbarrier_parity(const std::uint64_t* barrier) {
  return Entered()->bulk.parity(barrier);
}
void mbarrier_wait(std::uint64_t* barrier, unsigned parity, Site site) {
  Entered()->bulk.wait(barrier, parity, false, site);
}
void mbarrier_arrive_cluster(std::uint64_t* barrier, unsigned rank, bool relaxed, Site site) {
  Entered()->bulk.arrive_cluster(barrier, rank, relaxed, site);
}
void mbarrier_wait_cluster(std::uint64_t* barrier, unsigned parity, Site site) {
  Entered()->bulk.wait(barrier, parity, true, site);
}
bool mbarrier_test_wait(std::uint64_t* barrier, unsigned parity, const char* instruction, Site site) {
  return Entered()->bulk.test_wait(barrier, parity, instruction, site);
}
void mbarrier_inval(std::uint64_t* barrier, Site site) {
  Entered()->bulk.invalidate(barrier, site);
}
void bulk_load(void* shared, const void* global, unsigned bytes, std::uint64_t* barrier, Site site) {
  Entered()->bulk.load(shared, global, bytes, barrier, site);
}
void bulk_prefetch(const void* global, unsigned bytes, Site site) {
  Entered()->bulk.prefetch(global, bytes, site);
}
void bulk_store(void* global, const void* shared, unsigned bytes, bool adds, Site site) {
  Entered()->bulk.store(global, shared, bytes, adds, site);
}
void tensor_load(void* tile, const TensorMap* map, std::uint64_t* barrier, const int* coordinates, unsigned rank,
                 Site site) {
  Entered()->bulk.load(tile, map, barrier, coordinates, rank, site);
}
void tensor_multicast(void* tile, const TensorMap* map, std::uint64_t* barrier, const int* coordinates, unsigned rank,
                      unsigned blocks, Site site) {
  Entered()->bulk.multicast(tile, map, barrier, coordinates, rank, blocks, site);
}
void bulk_send(void* to, const void* from, unsigned bytes, std::uint64_t* barrier, Site site) {
  Entered()->bulk.send(to, from, bytes, barrier, site);
}
void tensor_store(const TensorMap* map, const void* tile, const int* coordinates, unsigned rank, Site site) {
  Entered()->bulk.store(map, tile, coordinates, rank, site);
}
void tensor_prefetch(const TensorMap* map, unsigned rank, Site site) {
  Entered()->bulk.prefetch(map, rank, site);
}
void bulk_commit() {
  Entered()->bulk.commit();
}
void bulk_wait(unsigned pending, bool read) {
  Entered()->bulk.wait_stores(pending, read);
}
void fence_proxy_async() {
  const Entered worker;
  for (Observer* observer : worker->observers) observer->fence_proxy();
}

float bulk_sum(float a, float b) {
  const float sum = a + b;
  return sum != sum ? std::bit_cast<float>(0x7fffffffu) : sum;
}

void Bulk::begin_block(Completion completion, std::uint64_t seed) {
  completion_ = completion;
  if (completion == Completion::random) random_.seed(seed + 1);
  if (barriers_.empty() && threads_.empty()) return;
  barriers_.clear(), at_.clear(), were_at_.clear(), loads_.clear(), threads_.clear();
}

// ---- mbarriers -----------------------------------------------------------------------------------------------------

void Bulk::init(std::uint64_t* barrier, unsigned arrivals, Site site) {
  Thread& thread = worker_.threads[worker_.current];
  thread.site = site;
  if (arrivals < 1 || arrivals > Mbarrier::kMost)
    worker_.misuse("mbarrier", "mbarrier_init of " + counted(arrivals, "arrival"), "expect 1 to 1048575 arrivals",
                   {worker_.side("makes", thread)});
  if (!worker_.near_shared(barrier))
    worker_.misuse("out of bounds", "mbarrier_init of an address outside the block's shared memory",
                   "give it an address in shared memory", {worker_.side("makes", thread)});
  if (reinterpret_cast<std::uintptr_t>(barrier) % sizeof *barrier != 0)
    worker_.misuse("misaligned", "mbarrier_init of " + worker_.place(barrier),
                   "an mbarrier needs an address that is a multiple of 8", {worker_.side("makes", thread)});
  if (const auto found = at_.find(barrier); found != at_.end())
    worker_.misuse("mbarrier", "mbarrier_init of " + worker_.place(barrier) + ", which is an mbarrier already",
                   "make each mbarrier once; its phases follow one another",
                   {worker_.side("makes", thread),
                    {"made", nullptr, found->second->site, true, worker_.block, found->second->thread}});
  for (Observer* observer : worker_.observers) observer->mbarrier_begins(barrier, arrivals, site);
  Mbarrier& made = barriers_.emplace_back();
  made.at = reinterpret_cast<std::byte*>(barrier);
  made.expected = made.missing = arrivals, made.site = site, made.thread = worker_.current;
  at_[barrier] = &made;
  were_at_.erase(barrier);
}

void Bulk::fence_init() {
  for (Mbarrier& barrier : barriers_) barrier.fenced |= barrier.thread == worker_.current;
}

Mbarrier& Bulk::barrier_at(std::uint64_t* barrier, const char* instruction, Site site) {
  Thread& thread = worker_.threads[worker_.current];
  thread.site = site, thread.atomics_in_a_row = 0;
  const auto found = at_.find(barrier);
  if (const auto was = were_at_.find(barrier); was != were_at_.end())
    worker_.misuse("mbarrier",
                   std::string(instruction) + " on " + worker_.place(barrier) + " after mbarrier.inval of it",
                   "invalidate it behind its last use, or let mbarrier_init make another one of it",
                   {worker_.side("uses", thread),
                    {"mbarrier.inval", nullptr, was->second.site, true, worker_.block, was->second.thread}});
  if (found == at_.end())
    worker_.misuse("mbarrier",
                   std::string(instruction) + " on " +
                       (worker_.near_shared(barrier) ? worker_.place(barrier) : "an address outside shared memory") +
                       ", which is no mbarrier",
                   "let one thread call mbarrier_init and fence_mbarrier_init for it, then __syncthreads()",
                   {worker_.side("uses", thread)});
  for (Observer* observer : worker_.observers) observer->mbarrier_used(barrier, instruction, site);
  return *found->second;
}

// A rule that is broken although the block can go on.
void Bulk::accuse(const std::string& what, const std::string& remedy, FindingSide side) {
  if (!worker_.checks || worker_.findings.repeated("mbarrier", side.site.line(), side.site.column(), worker_.block))
    return;
  worker_.findings.add({"mbarrier", what, remedy, {std::move(side)}, worker_.block});
}

void Bulk::arrive(std::uint64_t* at, bool expects, unsigned bytes, Site site) {
  arrive(barrier_at(at, expects ? "mbarrier.arrive.expect_tx" : "mbarrier.arrive", site), worker_, expects, bytes,
         site);
}

// Nobody is accused here: of an arrival at what is no mbarrier the finding comes right behind.
unsigned Bulk::parity(const std::uint64_t* at) {
  maybe_complete();
  const auto found = at_.find(const_cast<std::uint64_t*>(at));
  return found == at_.end() ? 0 : static_cast<unsigned>(found->second->phase & 1);
}

void Bulk::arrive_cluster(std::uint64_t* own, unsigned rank, bool relaxed, Site site) {
  auto* const at = reinterpret_cast<std::uint64_t*>(worker_.map(own, rank, site));
  if (at == own) return arrive(barrier_at(own, "mbarrier.arrive", site), worker_, false, 0, site, relaxed);
  Worker& other = worker_.cluster->member(rank);
  Thread& thread = worker_.threads[worker_.current];
  thread.atomics_in_a_row = 0;
  other.bulk.arrive(far_barrier_at(other, at, "mbarrier.arrive", true, site), worker_, false, 0, site, relaxed);
}

// An mbarrier of another block, which the running thread uses.
Mbarrier& Bulk::far_barrier_at(Worker& other, std::uint64_t* at, const char* instruction, bool arrives, Site site) {
  const auto found = other.bulk.at_.find(at);
  const bool known = !worker_.checks || worker_.checks->far_mbarrier(at, instruction, arrives, site);
  if (found == other.bulk.at_.end() || !known)
    worker_.misuse("mbarrier",
                   std::string(instruction) + " on " + worker_.place(at) + ", which is not known to be an mbarrier",
                   "call mbarrier_init and fence_mbarrier_init, then let all threads pass a barrier of the cluster",
                   {worker_.side("uses", worker_.threads[worker_.current])});
  return *found->second;
}

// By a thread of this block, or of another one of the cluster.
void Bulk::arrive(Mbarrier& barrier, Worker& by, bool expects, unsigned bytes, Site site, bool relaxed) {
  const std::byte* const at = barrier.at;
  const Thread& thread = by.threads[by.current];
  maybe_complete();
  if (barrier.bytes + bytes > Mbarrier::kMost)
    by.misuse(
        "mbarrier",
        "mbarrier " + by.place(at) + " is to expect " + counted(static_cast<std::uint64_t>(barrier.bytes + bytes)),
        "expect at most 1048575 bytes in a phase", {by.side("expects", thread)});
  if (barrier.missing == 0)
    by.misuse("mbarrier",
              "a phase of mbarrier " + by.place(at) + " has more arrivals than the " +
                  std::to_string(barrier.expected) + " of its mbarrier_init",
              "let as many threads arrive as mbarrier_init was told", {by.side("arrives", thread)});
  if (!barrier.observed)
    by.bulk.accuse("an arrival at mbarrier " + by.place(at) + " before anybody has waited for its last phase",
                   "wait for each phase before the arrivals of the next one", by.side("arrives", thread));
  for (Observer* observer : by.observers) {
    relaxed ? observer->releases_reads(at) : observer->releases(at);
    observer->arrives(at, barrier.phase, expects, bytes, site);
  }
  if (worker_.launch->trace && &by == &worker_)
    barrier.last_arrival =
        std::max(barrier.last_arrival, worker_.tracer.now(thread.warp, worker_.requests_ahead(thread.warp)));
  barrier.bytes += bytes, barrier.expected_bytes += bytes;
  --barrier.missing;
  end_phase_if_done(barrier);
}

void Bulk::wait(std::uint64_t* at, unsigned parity, bool far, Site site) {
  Mbarrier& barrier = barrier_at(at, "mbarrier.try_wait", site);
  maybe_complete();
  for (Observer* observer : worker_.observers)
    observer->waits_for(barrier.at, barrier.phase + !barrier.done(parity), site);
  Thread& thread = worker_.threads[worker_.current];
  thread.width = far;
  if (!barrier.done(parity)) {
    thread.value = reinterpret_cast<std::uintptr_t>(at), thread.param = parity, thread.state = State::at_mbarrier;
    barrier.waiting.push_back(worker_.current);
    worker_.run_next();
    barrier.released.reset(worker_.current);
    return returned(barrier);
  }
  finds_complete(barrier, far);
}

// The running thread asks for a phase that is complete already.
void Bulk::finds_complete(Mbarrier& barrier, bool far) {
  returned(barrier);
  if (barrier.phase == 0) return;  // a fresh one: as if a phase before the first were complete
  barrier.observed = true;
  learn(barrier, worker_.current, far);
}

// The running thread's wait.
void Bulk::returned(Mbarrier& barrier) {
  const Thread& thread = worker_.threads[worker_.current];
  if (worker_.launch->trace && thread.lane == 0)
    worker_.tracer.waited(worker_.block, thread.warp, barrier.completed_at, worker_.requests_ahead(thread.warp));
}

// A false answer says nothing: it is no wait, and nobody has observed a phase by it. The thread will ask again.
bool Bulk::test_wait(std::uint64_t* at, unsigned parity, const char* instruction, Site site) {
  Mbarrier& barrier = barrier_at(at, instruction, site);
  maybe_complete();
  if (!barrier.done(parity)) {
    Thread& thread = worker_.threads[worker_.current];
    thread.value = reinterpret_cast<std::uintptr_t>(at), thread.param = parity;
    ++barrier.polling, barrier.polled = barrier.phase;
    worker_.spin(State::polls, site, nullptr);
    --barrier.polling;
    return false;
  }
  for (Observer* observer : worker_.observers) observer->waits_for(barrier.at, barrier.phase, site);
  finds_complete(barrier, false);
  return true;
}

void Bulk::invalidate(std::uint64_t* at, Site site) {
  Mbarrier& barrier = barrier_at(at, "mbarrier.inval", site);
  const FindingSide here = worker_.side("mbarrier.inval", worker_.threads[worker_.current]);
  const std::string what = "mbarrier.inval of " + worker_.place(at);
  if (!barrier.waiting.empty())
    worker_.misuse("mbarrier", what + " while a thread waits at it", "let all waits return before mbarrier_inval",
                   {here, worker_.side("waits", worker_.threads[barrier.waiting[0]])});
  const auto unawaited = [&](const char* name, Site copy, unsigned block, unsigned issuer) {
    worker_.misuse("mbarrier", what + ", and no thread has waited for a copy that completes on it",
                   "wait for it (mbarrier_wait) before mbarrier_inval",
                   {here, {name, nullptr, copy, true, block, issuer}});
  };
  for (const Load& load : loads_)
    if (load.barrier == &barrier) unawaited(load.name, load.site, load.block, load.thread);
  for (const auto* copies : {&barrier.arrived, &barrier.complete})
    for (const Mbarrier::Brought& copy : *copies) unawaited(copy.name, copy.site, copy.block, copy.issuer);
  for (Observer* observer : worker_.observers) observer->mbarrier_ends(at, site);
  std::memset(at, 0xff, sizeof *at);
  at_.erase(at);
  were_at_[at] = {site, worker_.current};
}

void Bulk::end_phase_if_done(Mbarrier& barrier) {
  if (barrier.missing > 0 || barrier.bytes != 0) return;
  for (const Load& load : loads_)
    if (load.barrier == &barrier && load.phase == barrier.phase) {
      accuse("a phase of mbarrier " + worker_.place(barrier.at) + " expects " +
                 counted(static_cast<std::uint64_t>(barrier.expected_bytes)) + ", its copies bring " +
                 std::to_string(barrier.copied_bytes),
             kExpectBytes, {load.name, nullptr, load.site, true, load.block, load.thread});
      break;
    }
  if (barrier.released.any())
    accuse("a phase of mbarrier " + worker_.place(barrier.at) + " completes while a thread waits for the last one",
           "let who waits for a phase release the next one",
           worker_.side("waits", worker_.threads[barrier.released._Find_first()]));
  if (worker_.launch->trace) trace_completion(barrier);
  ++barrier.phase;
  barrier.missing = barrier.expected, barrier.expected_bytes = barrier.copied_bytes = 0;
  barrier.complete.insert(barrier.complete.end(), barrier.arrived.begin(), barrier.arrived.end());
  barrier.arrived.clear();
  barrier.observed = !barrier.waiting.empty();
  worker_.yields_without_progress_ = 0;
  for (Observer* observer : worker_.observers) observer->completes(barrier.at);
  barrier.released.reset();
  for (const unsigned thread : barrier.waiting) {
    barrier.released.set(thread);
    learn(barrier, thread, worker_.threads[thread].width);
    worker_.make_ready(thread);
  }
  barrier.waiting.clear();
}

// In the trace a phase lasts until its last arrival and, where threads wait for it, until the first of them does.
void Bulk::trace_completion(Mbarrier& barrier) {
  std::uint64_t first = ~std::uint64_t{0};
  for (const unsigned thread : barrier.waiting) {
    const unsigned warp = thread / kWarpSize;
    first = std::min(first, worker_.tracer.now(warp, worker_.requests_ahead(warp)) + 1);
  }
  barrier.completed_at = std::max(barrier.last_arrival, barrier.waiting.empty() ? 0 : first);
  for (const Mbarrier::Brought& copy : barrier.arrived) worker_.tracer.end_load(copy.event, barrier.completed_at);
}

// The thread's wait has returned: what was released and what was copied before the phase was complete is known to it.
void Bulk::learn(Mbarrier& barrier, unsigned thread, bool far) {
  if (!worker_.checks) return barrier.complete.clear();
  for (const Mbarrier::Brought& copy : std::exchange(barrier.complete, {})) {
    Worker& reader = copy.reader ? *copy.reader : worker_;
    const std::uint64_t read = reader.end_async(copy.reading);
    if (copy.reader) worker_.checks->async_handed_over(barrier.at, reader.block, copy.issuer, read);
    worker_.checks->async_handed_over(barrier.at, worker_.block, copy.issuer, worker_.end_async(copy.writing));
  }
  for (Observer* observer : worker_.observers) observer->acquires(barrier.at, thread, far);
}

std::string Bulk::missing(const std::byte* at, unsigned parity) const {
  if (!at_.contains(at)) return " an mbarrier that is none any more";
  const Mbarrier& barrier = *at_.at(at);
  std::string text = " mbarrier " + worker_.place(at) + ", parity " + std::to_string(parity & 1) + ": ";
  if (barrier.missing > 0) text += counted(barrier.missing, "arrival");
  if (barrier.missing > 0 && barrier.bytes != 0) text += " and ";
  if (barrier.bytes != 0) text += counted(static_cast<std::uint64_t>(std::abs(barrier.bytes)));
  if (barrier.bytes < 0) text += " too many";
  return text + (barrier.bytes < 0 ? "" : " missing");
}

bool Bulk::misses_bytes(const std::byte* at) const {
  if (!at_.contains(at)) return false;
  const Mbarrier& barrier = *at_.at(at);
  return barrier.missing == 0 || barrier.bytes < 0;
}

// ---- loads ---------------------------------------------------------------------------------------------------------

void Bulk::check_rank(const TensorMap& map, unsigned rank, const char* name, const char* verb, Site site) {
  Thread& thread = worker_.threads[worker_.current];
  thread.site = site;
  if (map.rank < 2 || map.rank > kMostDimensions || map.rank != rank)
    worker_.misuse("asynchronous copy",
                   std::string(name) + " with " + std::to_string(rank) + " coordinates, its tensor map has " +
                       std::to_string(map.rank) + " dimensions",
                   "give a coordinate for each dimension of a map that tensor_map made", {worker_.side(verb, thread)});
}

void Bulk::prefetch(const TensorMap* map, unsigned rank, Site site) {
  check_rank(*map, rank, kPrefetch, "fetches", site);
}

TensorBox Bulk::box_at(const TensorMap* map, const void* tile, const int* coordinates, unsigned rank, const char* name,
                       Site site) {
  const Thread& thread = worker_.threads[worker_.current];
  const char* const verb = name == kStore ? "stores" : "loads";
  check_rank(*map, rank, name, verb, site);
  const TensorBox box(*map, coordinates, const_cast<std::byte*>(static_cast<const std::byte*>(tile)));
  if (!worker_.near_shared(tile) || !worker_.near_shared(box.tile_end()))
    worker_.misuse("out of bounds", std::string(name) + " with a tile outside the block's shared memory",
                   "give it a tile in shared memory", {worker_.side(verb, thread)});
  if (reinterpret_cast<std::uintptr_t>(tile) % kTileAlignment != 0)
    worker_.misuse("misaligned", std::string(name) + " with a tile at " + worker_.place(tile),
                   "a tile begins at a multiple of 128 bytes; of 1024, if its first row is not to be swizzled",
                   {worker_.side(verb, thread)});
  if (coordinates[0] % 8 != 0)
    worker_.misuse("misaligned",
                   std::string(name) + " of a box that begins at " + std::to_string(coordinates[0]) + " of x",
                   "x is a multiple of 8, which are 16 bytes (an H200 stops the kernel)", {worker_.side(verb, thread)});
  if (name != kStore && worker_.checks && !worker_.checks->in_array(map->data) && box.is_cut())
    worker_.misuse(
        "out of bounds", std::string(name) + " of a box that is partly outside a tensor which begins in no array",
        "begin the map in an array: TMA may read there for what it fills with zeros", {worker_.side(verb, thread)});
  return box;
}

void Bulk::check_line(const void* global, unsigned bytes, const char* name, const char* verb, Site site) {
  Thread& thread = worker_.threads[worker_.current];
  thread.site = site;
  if (bytes == 0 || bytes % kLineAlignment != 0)
    worker_.misuse("asynchronous copy", std::string(name) + " of " + counted(bytes),
                   "copy a multiple of 16 bytes, at least 16", {worker_.side(verb, thread)});
  if (worker_.in_shared(global))
    worker_.misuse("out of bounds", std::string(name) + ": its address in global memory is one of shared memory",
                   "give it the address of an array in global memory", {worker_.side(verb, thread)});
  // With checks the finding names the array: Checker::async_begins.
  if (reinterpret_cast<std::uintptr_t>(global) % kLineAlignment != 0 && (!worker_.checks || name == kLinePrefetch))
    worker_.misuse("misaligned", std::string(name) + " with an address in global memory that is no multiple of 16",
                   "both addresses are multiples of 16", {worker_.side(verb, thread)});
}

TensorBox Bulk::line_at(const void* shared, const void* global, unsigned bytes, const char* name, const char* verb,
                        Site site) {
  check_line(global, bytes, name, verb, site);
  const Thread& thread = worker_.threads[worker_.current];
  auto* const at = static_cast<std::byte*>(const_cast<void*>(shared));
  if (!worker_.near_shared(at) || !worker_.near_shared(at + bytes))
    worker_.misuse("out of bounds", std::string(name) + " with bytes outside the block's shared memory",
                   "give it an address in shared memory", {worker_.side(verb, thread)});
  if (reinterpret_cast<std::uintptr_t>(at) % kLineAlignment != 0)
    worker_.misuse("misaligned", std::string(name) + " with " + worker_.place(at), "both addresses are multiples of 16",
                   {worker_.side(verb, thread)});
  return {global, at, bytes};
}

void Bulk::prefetch(const void* global, unsigned bytes, Site site) {
  check_line(global, bytes, kLinePrefetch, "fetches", site);
}

void Bulk::load(void* tile, const TensorMap* map, std::uint64_t* at, const int* coordinates, unsigned rank, Site site) {
  begin(box_at(map, tile, coordinates, rank, kLoad, site), at, kLoad, site);
}

void Bulk::load(void* shared, const void* global, unsigned bytes, std::uint64_t* at, Site site) {
  begin(line_at(shared, global, bytes, kLineLoad, "loads", site), at, kLineLoad, site);
}

void Bulk::begin(const TensorBox& box, std::uint64_t* at, const char* name, Site site) {
  begin(box, barrier_at(at, name, site), name, site, worker_);
}

void Bulk::multicast(void* tile, const TensorMap* map, std::uint64_t* at, const int* coordinates, unsigned rank,
                     unsigned blocks, Site site) {
  box_at(map, tile, coordinates, rank, kMulticast, site);  // the own block's stands for all
  const Thread& thread = worker_.threads[worker_.current];
  const unsigned size = worker_.cluster ? worker_.cluster->size() : 1;
  if (blocks == 0 || blocks >> size != 0)
    worker_.misuse("cluster",
                   std::string(kMulticast) + " to the blocks " + std::to_string(blocks) + " of a cluster of " +
                       counted(size, "block"),
                   "set a bit for each rank below cluster_nctarank() that is to get the box",
                   {worker_.side("loads", thread)});
  bool counted = false;
  for (unsigned to = 0; to < size; ++to) {
    if (!(blocks >> to & 1)) continue;
    Worker& other = worker_.cluster ? worker_.cluster->member(to) : worker_;
    auto* const theirs = reinterpret_cast<std::uint64_t*>(worker_.map(at, to, site));
    Mbarrier& barrier =
        &other == &worker_ ? barrier_at(at, kMulticast, site) : far_barrier_at(other, theirs, kMulticast, false, site);
    other.bulk.begin(TensorBox(*map, coordinates, worker_.map(tile, to, site)), barrier, kMulticast, site, worker_,
                     std::exchange(counted, true));
  }
}

void Bulk::send(void* to, const void* from, unsigned bytes, std::uint64_t* at, Site site) {
  Thread& thread = worker_.threads[worker_.current];
  thread.site = site;
  const auto wrong = [&](const char* kind, const std::string& what, const char* remedy) {
    worker_.misuse(kind, kSend + what, remedy, {worker_.side("copies", thread)});
  };
  const auto owner_of = [&](const void* address) {
    return worker_.cluster                ? worker_.cluster->nearest_owner(address)
           : worker_.near_shared(address) ? &worker_
                                          : nullptr;
  };
  if (bytes == 0 || bytes % kLineAlignment != 0)
    wrong("asynchronous copy", " of " + counted(bytes), "copy a multiple of 16 bytes, at least 16");
  if (!worker_.near_shared(from))
    wrong("out of bounds", " from an address outside the block's shared memory",
          "copy from the block's own shared memory to that of a block of the cluster");
  Worker* const other = owner_of(to);
  if (!other) wrong("out of bounds", " to an address outside the cluster's shared memory", "give it what mapa gives");
  if (owner_of(at) != other)
    wrong("cluster", " completes on an mbarrier that is not in the block which gets the bytes",
          "let mapa give both addresses with the same rank");
  for (const void* address : {from, static_cast<const void*>(to)})
    if (reinterpret_cast<std::uintptr_t>(address) % kLineAlignment != 0)
      wrong("misaligned", " with " + worker_.place(address), "both addresses are multiples of 16");
  Mbarrier& barrier = other == &worker_ ? barrier_at(at, kSend, site) : far_barrier_at(*other, at, kSend, false, site);
  other->bulk.begin(TensorBox(from, static_cast<std::byte*>(to), bytes), barrier, kSend, site, worker_);
}

// A copy to this block, issued by its own thread or by one of another block of the cluster.
void Bulk::begin(const TensorBox& box, Mbarrier& barrier, const char* name, Site site, Worker& by, bool counted) {
  maybe_complete();
  Load load{box, &barrier, name, site, by.current, barrier.phase};
  load.block = by.block, load.reader = name == kSend ? &by : nullptr;
  for (Observer* observer : by.observers) observer->load_begins(box, counted, barrier.at, site);
  if (worker_.launch->trace) {
    const unsigned warp = by.current / kWarpSize;
    load.event = worker_.tracer.load(worker_.block, warp, box.bytes(), worker_.requests_ahead(warp));
  }
  for (Observer* observer : by.observers) observer->completes_on(barrier.at, barrier.fenced, site);
  if (by.checks) {
    AsyncOperation reading{name, kOfLoad, false, site, by.current, {}}, writing = reading;
    writing.writes = true, writing.pieces = pieces_on_chip(box, false);
    box.for_each_run([&](const std::byte* begin, std::size_t bytes) { reading.pieces.push_back({begin, bytes}); });
    if (box.is_line()) reading.alignment = kLineAlignment;
    reading.counted = counted, reading.sends = load.reader;
    load.reading = by.begin_async(load.reader ? by : worker_, std::move(reading));
    const bool unwritten = by.checks->read_unwritten();
    load.writing = by.begin_async(worker_, writing);
    if (unwritten)
      box.for_each_pair([&](const std::byte* to, const std::byte* from, std::size_t bytes) {
        by.checks->carries(writing, to, from, bytes);
      });
  }
  box.for_each_piece(false, [](std::byte* begin) { std::memset(begin, 0xff, 16); });
  barrier.copied_bytes += static_cast<std::int64_t>(box.bytes());
  loads_.push_back(load);
  if (completion_ == Completion::eager) complete(std::prev(loads_.end()));
}

void Bulk::complete(std::list<Load>::iterator load) {
  const Load done = *load;
  loads_.erase(load);
  done.box.load();
  for (Observer* observer : worker_.observers) observer->load_ends(done.box, done.barrier->at, done.site);
  done.barrier->bytes -= static_cast<std::int64_t>(done.box.bytes());
  done.barrier->arrived.push_back(
      {done.reading, done.writing, done.thread, done.name, done.site, done.event, done.block, done.reader});
  end_phase_if_done(*done.barrier);
}

bool Bulk::advance() {
  const auto wanted =
      std::find_if(loads_.begin(), loads_.end(), [](const Load& load) { return load.barrier->awaited(); });
  if (wanted == loads_.end()) return false;
  complete(wanted);
  return true;
}

// Completion::random: now one copy, now another, in no order.
void Bulk::maybe_complete() {
  if (completion_ != Completion::random) return;
  if (!loads_.empty() && random_() % 2)
    complete(std::next(loads_.begin(), static_cast<long>(random_() % loads_.size())));
  for (auto& [thread, own] : threads_)
    for (Store& store : own.stores) {
      if (random_() % 4) continue;
      if (!store.was_read) read(store);
      if (random_() % 2) write(store);
    }
}

// ---- stores and reductions -----------------------------------------------------------------------------------------

void Bulk::store(const TensorMap* map, const void* tile, const int* coordinates, unsigned rank, Site site) {
  // A load has zeros behind a row's last element; a store writes all of the 16 bytes where it lies (so does an H200).
  TensorMap written = *map;
  written.sizes[0] = (map->sizes[0] + 7) / 8 * 8;
  const TensorBox box = box_at(&written, tile, coordinates, rank, kStore, site);
  const int* const before = std::find_if(coordinates, coordinates + rank, [](int at) { return at < 0; });
  if (before < coordinates + rank)
    worker_.misuse("out of bounds",
                   std::string(kStore) + " to a box that begins at " + std::to_string(*before) + " of " +
                       "xyzwv"[before - coordinates],
                   "a store's box may end beyond the tensor, but not begin before it (an H200 stops the kernel)",
                   {worker_.side("stores", worker_.threads[worker_.current])});
  begin(box, false, kStore, site);
}

void Bulk::store(void* global, const void* shared, unsigned bytes, bool adds, Site site) {
  const char* const name = adds ? kReduction : kLineStore;
  begin(line_at(shared, global, bytes, name, adds ? "adds" : "stores", site), adds, name, site);
}

void Bulk::begin(const TensorBox& box, bool adds, const char* name, Site site) {
  maybe_complete();
  OfThread& own = threads_[worker_.current];
  Store store{box, name, adds, site, worker_.current, own.committed, 0, 0, false, false, false, {}};
  for (Observer* observer : worker_.observers) observer->store_begins(box, adds, site);
  if (worker_.checks) {
    AsyncOperation reading{name, kOfStoreRead, false, site, worker_.current, pieces_on_chip(box, true)},
        writing{name, kOfStoreWrite, true, site, worker_.current, {}};
    box.for_each_run([&](const std::byte* begin, std::size_t bytes) { writing.pieces.push_back({begin, bytes}); });
    reading.copies = writing.copies = !adds, writing.adds = adds ? sizeof(float) : 0, writing.in_order = true;
    if (box.is_line()) writing.alignment = kLineAlignment;
    store.reading = worker_.begin_async(std::move(reading));
    const bool unwritten = worker_.checks->read_unwritten();
    store.writing = worker_.begin_async(writing);
    if (unwritten)
      box.for_each_pair([&](const std::byte* from, const std::byte* to, std::size_t bytes) {
        worker_.checks->carries(writing, to, from, bytes);
      });
  }
  if (!adds) box.for_each_run([](std::byte* begin, std::size_t bytes) { std::memset(begin, 0xff, bytes); });
  own.stores.push_back(std::move(store));
  if (completion_ == Completion::eager) read(own.stores.back()), write(own.stores.back());
}

void Bulk::read(Store& store) {
  if (std::exchange(store.was_read, true)) return;
  store.bytes.resize(store.box.bytes());
  store.box.read(store.bytes.data());
}

void Bulk::write(Store& store) {
  if (std::exchange(store.was_written, true)) return;
  store.adds ? add(store.box, store.bytes.data()) : store.box.store(store.bytes.data());
}

bool Bulk::finish_stores() {
  bool any = false;
  for (auto& [thread, own] : threads_)
    for (Store& store : own.stores) {
      any |= !store.was_written;
      read(store), write(store);
    }
  return any;
}

void Bulk::commit() {
  ++threads_[worker_.current].committed;
}

void Bulk::wait_stores(unsigned pending, bool only_read) {
  maybe_complete();
  OfThread& own = threads_[worker_.current];
  const auto learn = [&](AsyncRanges::Id id, bool in_order) {
    const std::uint64_t clock = worker_.end_async(id);
    if (worker_.checks) worker_.checks->async_known(worker_.current, 1, worker_.current, clock, in_order);
  };
  for (auto store = own.stores.begin(); store != own.stores.end() && store->group + pending < own.committed;) {
    if (!store->known)
      for (Observer* observer : worker_.observers) observer->store_was_read(store->box);
    read(*store);
    if (!std::exchange(store->known, true)) learn(store->reading, false);
    if (only_read) {
      ++store;
      continue;
    }
    write(*store);
    learn(store->writing, true);
    store = own.stores.erase(store);
  }
}

// ---- the end -------------------------------------------------------------------------------------------------------

// What the block leaves behind: writes that are under way still come; a tile that was not read is no more.
void Bulk::end_block(bool regularly) {
  if (!regularly) return;
  const auto left = [this](const char* what, const char* remedy, const char* name, Site site, unsigned block,
                           unsigned thread) {
    if (!worker_.checks || worker_.findings.repeated("asynchronous copy", site.line(), site.column(), worker_.block))
      return;
    worker_.findings.add({"asynchronous copy",
                          std::string("the block ends ") + what,
                          remedy,
                          {{name, nullptr, site, true, block, thread}},
                          worker_.block});
  };
  for (auto& [thread, own] : threads_)
    for (Store& store : own.stores) {
      if (!store.known) {
        left(store.adds ? "before a reduction was known to have read its source"
                        : "before a store was known to have read its tile",
             store.group < own.committed
                 ? "let the issuing thread wait for it (cp_async_bulk_wait_read<0>) before it exits"
                 : "commit it (cp_async_bulk_commit) and wait for it (cp_async_bulk_wait_read<0>) before the exit",
             store.name, store.site, worker_.block, thread);
        if (!std::exchange(store.was_read, true)) store.bytes.assign(store.box.bytes(), std::byte{0xff});
      }
      write(store);
    }
  if (worker_.findings.any(worker_.block)) return;  // what was wrong with their mbarriers was said
  constexpr char kUnawaited[] = "and no thread has waited for a load";
  constexpr char kAwait[] = "wait on its mbarrier (mbarrier_wait) before the block ends, or do not load";
  for (const Load& load : loads_) left(kUnawaited, kAwait, load.name, load.site, load.block, load.thread);
  for (const Mbarrier& barrier : barriers_)
    for (const auto* copies : {&barrier.arrived, &barrier.complete})
      for (const Mbarrier::Brought& copy : *copies)
        left(kUnawaited, kAwait, copy.name, copy.site, copy.block, copy.issuer);
}

}  // namespace flash::simt
