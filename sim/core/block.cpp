// block.cpp: the scheduler of one block: run, barrier, end, and why a block is stuck. Warp operations: warp.cpp.
// All state belongs to one OS thread; nothing here is shared between workers.
// Use: see block.hpp.
#include "sim/core/block.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "sim/core/code_names.hpp"
#include "sim/core/observer.hpp"
#include "sim/core/variables.hpp"
#include "sim/error.hpp"

namespace flash::simt {

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim{}, gridDim{};
constinit thread_local Tally tally{};
constinit thread_local bool memory_changed = false;
constinit thread_local Worker* active_worker = nullptr;
const DeviceMemory* host_watched = nullptr;
void (*host_accessed)(const void*, bool, const void*) = nullptr;
constinit thread_local Worker* running_worker = nullptr;

bool same_site(const Site& a, const Site& b) {
  const char *const of_a = a.file_name(), *const of_b = b.file_name();
  return a.line() == b.line() && a.column() == b.column() && (of_a == of_b || std::strcmp(of_a, of_b) == 0);
}

Entered::Entered() {
  if (!worker()) throw Error("a device function was called outside of a kernel; call it from a kernel");
}

// The functions that kernels call: find the worker, leave kernel code, do it.
int barrier(Vote vote, int predicate, Site site) {
  const auto* frame = static_cast<const CallFrame*>(__builtin_frame_address(0));
  Entered worker;
  return worker->barrier(vote, predicate, site, frame);
}

std::uint64_t warp_op(WarpOp op, unsigned mask, std::uint64_t value, Site site, unsigned param, unsigned width) {
  return Entered()->warp_op(op, mask, value, site, param, width);
}

std::byte* shared_memory(std::size_t bytes, const char* type, Padding padding, Members members) {
  return Entered()->shared_memory(bytes, type, padding, members);
}
void check_launch_bounds(unsigned threads, unsigned blocks, unsigned) {
  Entered worker;
  const Launch& launch = *worker->launch;
  if (launch.threads() <= threads) return worker->launch_bounds(threads, blocks);
  const std::string name = launch.kernel ? function_name(launch.kernel) : as_written(launch.kernel_name);
  refuse("threads in a block of " + name, launch.threads(),
         "at most " + std::to_string(threads) + ", as its __launch_bounds__ says", "launch fewer or raise the bound");
}
void before_atomic(const void* address, std::size_t bytes, bool reads, Scope scope, Site site) {
  Entered()->before_atomic(address, bytes, reads, scope, site);
}
void adds(const void* address, std::size_t bytes, unsigned element, Site site) {
  Entered worker;
  for (Observer* observer : worker->observers) observer->adds(address, bytes, element, site);
}
void after_atomic(const void* address) {
  Entered worker;
  for (Observer* observer : worker->observers) observer->after_atomic(address);
}
void counts(Counting how, unsigned number) {
  Entered worker;
  for (Observer* observer : worker->observers) observer->counts(how, number);
}
bool is_shared(const void* address) {
  return Entered()->in_shared(address);
}
void fence(Scope scope) {
  Entered()->fence(scope);
}
void wait_at_least(const unsigned* count, unsigned least, Site site) {
  while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < least) Entered()->look_again(site);
}
void ldmatrix_row(const void* row, LdmatrixRegisters& registers, Site site) {
  Entered()->matrix_row(row, registers, site);
}
void stmatrix_row(void* row, const StmatrixRegisters& registers, Site site) {
  Entered()->matrix_row_written(row, registers, site);
}
std::uint64_t matrix_descriptor(const void* tile, unsigned leading_bytes, unsigned stride_bytes, Site site) {
  return Entered()->matrix_descriptor(static_cast<const std::byte*>(tile), leading_bytes, stride_bytes, site);
}
void cp_async(void* shared, const void* global, unsigned bytes, unsigned source_bytes, Site site) {
  Entered()->cp_async(
      {static_cast<std::byte*>(shared), static_cast<const std::byte*>(global), bytes, source_bytes, site});
}
void cp_async_commit() {
  Entered()->cp_async_commit();
}
void cp_async_wait(unsigned pending, Site site) {
  Entered()->cp_async_wait(pending, site);
}
void cp_async_for_mbarrier() {
  const Entered worker;
  worker->cp_async_commit();
  worker->copies.wait_by_arrival(worker->current);
}
void mark(const char* label, long value) {
  Entered()->mark(label, value);
}
void show(const char* name, long row, float value) {
  Entered worker;
  for (Observer* observer : worker->observers) observer->value(name, row, value);
}

unsigned ReadySet::count() const {
  unsigned count = 0;
  for (const std::uint64_t word : words_) count += static_cast<unsigned>(std::popcount(word));
  return count;
}

unsigned ReadySet::pop_otherwise(Order order, std::mt19937_64& random) {
  if (order == Order::reverse) {
    const unsigned word = 31 - std::countl_zero(summary_);
    return remove(word, 63 - std::countl_zero(words_[word]));
  }
  unsigned skip = random() % count(), word = 0;
  while (skip >= static_cast<unsigned>(std::popcount(words_[word]))) skip -= std::popcount(words_[word++]);
  std::uint64_t bits = words_[word];
  while (skip-- > 0) bits &= bits - 1;
  return remove(word, std::countr_zero(bits));
}

Worker::Worker() {
  void* memory =
      mmap(nullptr, kSharedRegion, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw Error("no memory for a block's shared memory");
  own_shared_ = static_cast<std::byte*>(memory) + kSharedBefore;
}

Worker::~Worker() {
  munmap(own_shared_ - kSharedBefore, kSharedRegion);
}

void Worker::run(const Launch& this_launch, std::uint64_t linear_block) {
  error_ = nullptr;
  if (cluster) cluster->lay_out(rank);
  try {
    lay_out(this_launch, linear_block);
  } catch (...) {  // no memory: the others must not wait for this block
    error_ = std::current_exception();
    ready_.clear();
  }
  const bool failed = error_ != nullptr;
  if (cluster) cluster->laid_out(failed);
  if (cluster || !failed) run_threads();
  if (!failed) finish();
  if (cluster) cluster->leave(rank, stopped_ || error_);
  if (error_) std::rethrow_exception(error_);
}

// Threads, warps, poisoned shared memory.
void Worker::lay_out(const Launch& this_launch, std::uint64_t linear_block) {
  launch = &this_launch;
  block = static_cast<unsigned>(linear_block);
  const dim3 g = launch->grid, b = launch->block;
  const unsigned n = launch->threads();

  main_ = this_thread_as_fiber();
  if (fibers_.size() < n) fibers_.reserve(n);
  threads.assign(n, Thread{});
  warps.resize((n + kWarpSize - 1) / kWarpSize);
  for (Warp& warp : warps) warp = Warp{};
  ready_.clear(), spinning_.clear();
  for (unsigned i = 0; i < n; ++i) {
    threads[i].index = position(i, b);
    threads[i].warp = i / kWarpSize, threads[i].lane = i % kWarpSize;
    warps[i / kWarpSize].exists |= 1u << i % kWarpSize;
    fibers_.prepare(i, fiber_main);
    ready_.insert(i);
  }
  if (const SharedLayout* layout = launch->layout) {
    shared = layout->region(), shared_bytes = layout->extent();
    for (const SharedLayout::Array& array : layout->arrays()) std::memset(shared + array.at, 0xff, array.bytes);
  } else {
    shared = own_shared_, shared_bytes = launch->shared_bytes;
    std::memset(shared, 0xff, shared_bytes);
  }
  shared_struct = nullptr, shared_struct_bytes = 0, shared_padding = nullptr;
  blockIdx = position(block, g);
  blockDim = b, gridDim = g;
  std::uint64_t seed_of_copies = 0;
  if (launch->order == Order::random || launch->completion == Completion::random) {  // seeding takes a while
    random_.seed(launch->seed * 0x9e3779b97f4a7c15u + linear_block);
    seed_of_copies = random_();
  }
  copies.begin_block(n, launch->completion, seed_of_copies);
  async.begin_block(shared, shared_bytes);
  products.resize((warps.size() + 3) / 4);
  for (Products& of_warpgroup : products) of_warpgroup.begin_block();
  warpgroups_.assign(products.size(), {});
  named_barriers_ = {};
  budget_.begin_block(products.size());
  used_barrier_ = used_zero_ = {};
  bulk.begin_block(launch->completion, seed_of_copies);
  waiting_ = ended_ = 0;
  yields_without_progress_ = 0;
  stopped_ = barrier_divergence_seen_ = false;
  if (launch->trace) tracer.begin_block(warps.size());
  if (alone_) alone_->begin_barrier();
  for (Observer* observer : observers) observer->begin_block();
}

// Until all threads have ended, a finding stops the block, or nothing can move.
void Worker::run_threads() {
  while (!cluster || cluster->turn(rank)) {
    running_worker = this;
    choose();
    switch_fiber(main_, fibers_[current]);
    active_worker = running_worker = nullptr;  // a stopped fiber left them set
    if (stopped_ || error_ || ended_ == threads.size()) break;
    if (cluster || !ready_.empty()) continue;
    if (!bulk.advance() && !resolve_activemask()) {
      explain_stall();
      break;
    }
  }
}

void Worker::finish() {
  const bool to_the_end = ended_ == threads.size() && !stopped_ && !error_;
  bulk.end_block(to_the_end);
  if (to_the_end) left_under_way();
  most_copied = std::max(most_copied, copies.most_bytes());
  launch->stuck->goes_on(cluster ? cluster->look : look);
  for (Observer* observer : observers) observer->end_block(to_the_end);
  if (launch->trace) tracer.end_block();
}

// A fiber's life.
void Worker::fiber_main() {
  fiber_started();
  Worker* worker = running_worker;
  active_worker = worker;
  try {
    worker->launch->invoke(worker->launch->arguments);
  } catch (...) {
    worker->error_ = std::current_exception();
  }
  active_worker = nullptr;
  Thread& thread = worker->threads[worker->current];
  thread.state = State::ended;
  Warp& warp = worker->warps[thread.warp];
  warp.ended |= 1u << thread.lane;
  ++worker->ended_;
  worker->yields_without_progress_ = 0;
  for (Observer* observer : worker->observers) observer->thread_ends();
  if ((warp.ended | warp.at_barrier) == warp.exists) worker->met(thread.warp);
  if (worker->waiting_ > 0 && worker->waiting_ + worker->ended_ == worker->threads.size()) worker->complete_barrier();
  worker->exits_cluster();
  worker->run_next(true);
}

// Leaves the running fiber for the next ready one, or for run() when there is none.
void Worker::run_next(bool ended) {
  Fiber& from = fibers_[current];
  if (!cluster) {  // else another block comes first
    while (ready_.empty() && !error_ && bulk.advance()) {
    }
    if (ready_.empty() && !spinning_.empty() && !hopeless()) std::swap(ready_, spinning_);
  }
  if (ready_.empty() || error_) {
    switch_fiber(from, main_, ended);
    return;
  }
  choose();
  if (&fibers_[current] != &from) switch_fiber(from, fibers_[current], ended);
}

// All threads that could run spin: is there nothing that they could wait for?
bool Worker::hopeless() {
  const std::uint64_t limit = launch->stuck->found() ? kLeastSpins : kSpinsBeforeDeadlock / launch->workers;
  if (yields_without_progress_ >= std::max(limit, kLeastSpins)) {
    if (!bulk.finish_stores()) return launch->stuck->hopeless(look);
    yields_without_progress_ = 0;
  }
  launch->stuck->goes_on(look);
  return false;
}

// Makes the next ready thread the running one.
void Worker::choose() {
  current = ready_.pop(launch->order, random_);
  threadIdx = threads[current].index;
  stack = fibers_[current].stack, stack_bytes = fibers_[current].stack_bytes;
  for (Observer* observer : observers) observer->switched();
}

void Worker::make_ready(unsigned thread) {
  threads[thread].state = State::ready;
  ready_.insert(thread);
}

void Worker::stop_block() {
  stopped_ = true;
  switch_fiber(fibers_[current], main_, true);
  __builtin_unreachable();
}

int Worker::barrier(Vote vote, int predicate, Site site, const CallFrame* frame) {
  Thread& thread = threads[current];
  thread.site = site, thread.value = predicate != 0, thread.state = State::at_barrier, thread.atomics_in_a_row = 0;
  used_barrier_ = site;
  if (used_zero_.line()) barrier_zero();
  Warp& warp = warps[thread.warp];
  warp.at_barrier |= 1u << thread.lane;
  if ((warp.ended | warp.at_barrier) == warp.exists) met(thread.warp);
  if (waiting_ == 0) {
    barrier_site_ = site, barrier_first_ = current, vote_ = vote;
    barrier_calls_.clear();
  }
  if (checks && !barrier_divergence_seen_) {
    if (same_site(site, barrier_site_)) {
      compare_calls(frame);
    } else {
      barrier_divergence_seen_ = true;
      findings.add({"barrier divergence",
                    "threads of one block wait at different barriers",
                    "let all threads reach the same __syncthreads()",
                    {side("waits", thread), side("waits", threads[barrier_first_])},
                    block});
    }
  }
  // Those that have exited need not come: CUDA Programming Guide, "all non-exited threads in the thread block".
  if (++waiting_ + ended_ == threads.size()) complete_barrier();
  run_next();
  return static_cast<int>(threads[current].result);
}

// All lanes of a warp are at the barrier or have exited.
void Worker::met(unsigned w) {
  const unsigned waiting = warps[w].at_barrier;
  for (Observer* observer : observers) {
    observer->converge(w);
    if (waiting)
      observer->warp_at_barrier(w, threads[w * kWarpSize + static_cast<unsigned>(std::countr_zero(waiting))].site);
    else
      observer->warp_ends(w);
  }
}

// One barrier in a function that threads called from different lines: each call is a barrier of its own to the reader.
// The compiler may duplicate a call, so that addresses differ where lines do not.
void Worker::compare_calls(const CallFrame* frame) {
  std::size_t depth = 0;
  const auto on_stack = [&](const CallFrame* f) {
    return static_cast<std::size_t>(reinterpret_cast<const std::byte*>(f) - stack) <= stack_bytes - sizeof *f;
  };
  for (; on_stack(frame) && depth < 32; ++depth) {
    const void* const call = frame->return_address;
    if (current == barrier_first_) {
      barrier_calls_.push_back(call);
    } else if (depth == barrier_calls_.size()) {
      return;
    } else if (const void* const first = barrier_calls_[depth]; first != call && !same_calls_.contains({first, call})) {
      if (calls_of(first) != calls_of(call)) {
        barrier_divergence_seen_ = true;
        findings.add({"divergent call",
                      "threads of one block wait at one barrier in different calls of its function",
                      "let all threads reach __syncthreads() by the same calls",
                      {side("waits", call), {"waits", first, {}, true, block, barrier_first_}},
                      block});
        return;
      }
      same_calls_.insert({first, call});
    }
    if (frame->caller <= frame) return;
    frame = frame->caller;
  }
}

void Worker::complete_barrier() {
  std::uint64_t count = 0;
  for (const Thread& thread : threads) count += thread.state == State::at_barrier && thread.value;
  if (vote_ == Vote::all) count = count == waiting_;
  if (vote_ == Vote::any) count = count != 0;
  for (unsigned i = 0; i < threads.size(); ++i) {
    if (threads[i].state != State::at_barrier) continue;
    threads[i].result = count;
    make_ready(i);
  }
  for (Warp& warp : warps) warp.at_barrier = 0;
  waiting_ = 0;
  barrier_divergence_seen_ = false;
  yields_without_progress_ = 0;
  ++barriers;
  for (Observer* observer : observers) observer->block_barrier(ended_ > 0, barrier_site_);
  if (launch->trace) tracer.barrier(block);
}

std::byte* Worker::shared_memory(std::size_t bytes, const char* type, Padding padding, Members members) {
  if (launch->layout)
    refuse("shared<" + type_name(type) + ">()", "called in a kernel that has __shared__ variables, too",
           "one of the two", "declare the struct as extern __shared__");
  shared_struct = type, shared_struct_bytes = bytes, shared_padding = padding;
  if (bytes > launch->shared_bytes) {
    const std::string name = type_name(type);
    refuse("the shared struct " + name, std::to_string(bytes) + " bytes",
           "at most the " + std::to_string(launch->shared_bytes) + " that the launch gives",
           "launch with <<<grid, block, sizeof(" + name + ")>>>");
  }
  for (Observer* observer : observers) observer->shared_struct(members);
  return shared;
}

void Worker::before_atomic(const void* address, std::size_t bytes, bool reads, Scope scope, Site site) {
  let_others_run(site, nullptr);
  for (Observer* observer : observers) observer->atomic(address, bytes, reads, scope, site);
}

void Worker::before_volatile_read(const void* pc) {
  let_others_run({}, pc);
}

void Worker::look_again(Site site) {
  spin(State::spins, site, nullptr);
}

// Every now and then, since the thread may be waiting for one of them in a loop.
void Worker::let_others_run(Site site, const void* pc) {
  if (++threads[current].atomics_in_a_row >= kAtomicsBeforeYield) spin(State::spins, site, pc);
}

void Worker::spin(State how, Site site, const void* pc) {
  Thread& thread = threads[current];
  thread.atomics_in_a_row = 0, thread.site = site, thread.pc = pc, thread.state = how;
  if (std::exchange(memory_changed, false)) yields_without_progress_ = 0;
  ++yields_without_progress_;
  spinning_.insert(current);
  run_next();
  thread.state = State::ready, thread.pc = nullptr;
}

void Worker::fence(Scope scope) {
  for (Observer* observer : observers) observer->fence(scope);
}

// Shared memory and what lies just beside it, where the checks know what was meant.
bool Worker::near_shared(const void* address) const {
  const auto beyond = static_cast<std::size_t>(static_cast<const std::byte*>(address) - (shared - kSharedBefore));
  return beyond < kSharedBefore + shared_bytes + kSharedBefore;
}

void Worker::matrix_row(const void* row, LdmatrixRegisters& registers, Site site) {
  Thread& thread = threads[current];
  thread.site = site;
  if (!near_shared(row))
    misuse("out of bounds", "ldmatrix of an address outside the block's shared memory",
           "give it the address of a row in shared memory", {side("reads", thread)});
  for (Observer* observer : observers) observer->matrix_row(row, site);
  std::memcpy(registers.row, row, sizeof registers.row);
}

void Worker::cp_async(Copy copy) {
  Thread& thread = threads[current];
  thread.site = copy.site;
  if (copy.bytes != 4 && copy.bytes != 8 && copy.bytes != 16)
    misuse("asynchronous copy", "cp.async of " + std::to_string(copy.bytes) + " bytes",
           "copy 4, 8 or 16 bytes at a time", {side("copies", thread)});
  if (copy.source_bytes > copy.bytes)
    misuse("asynchronous copy",
           "cp.async of " + std::to_string(copy.bytes) + " bytes reads " + std::to_string(copy.source_bytes),
           "the source has at most the bytes of the copy", {side("copies", thread)});
  if (!near_shared(copy.to))
    misuse("out of bounds", "cp.async to an address outside the block's shared memory",
           "copy from global to shared memory", {side("copies", thread)});
  copy.thread = current;
  if (launch->trace)
    tracer.copy(block, thread.warp, thread.lane, copies.committed(current), copy.bytes, requests_ahead(thread.warp));
  for (Observer* observer : observers) observer->copy_begins(copy);
  copies.issue(copy, current);
}

void Worker::cp_async_wait(unsigned pending, Site site) {
  const Thread& thread = threads[current];
  const std::uint64_t groups = copies.committed(current);
  if (launch->trace && thread.lane == 0)
    tracer.wait(block, thread.warp, groups > pending ? groups - pending : 0, pending, requests_ahead(thread.warp));
  copies.wait(current, pending, [&](const Copy& copy) {
    for (Observer* observer : observers) observer->copy_ends(copy, site);
  });
}

AsyncRanges::Id Worker::begin_async(Worker& owner, AsyncOperation operation) {
  if (!checks) return 0;
  if (&owner != this) operation.block = block;
  operation.begun = checks->async_begins(operation);
  return owner.async.begin(std::move(operation));
}

std::uint64_t Worker::end_async(AsyncRanges::Id id) {
  if (!checks) return 0;
  return checks->async_ends(async.end(id));
}

void Worker::mark(const char* label, long value) {
  const Thread& thread = threads[current];
  for (Observer* observer : observers) observer->mark(label, value);
  if (!launch->trace || thread.lane != 0) return;
  tracer.mark(block, thread.warp, label, value, requests_ahead(thread.warp));
}

std::string Worker::place(const void* address) const {
  const Worker* const owner = cluster ? cluster->nearest_owner(address) : nullptr;
  if (owner && owner != this)  // the same place here, where the struct's name is known
    return place(shared + (static_cast<const std::byte*>(address) - owner->shared)) + " of block " +
           owner->coordinates();
  const std::ptrdiff_t offset = static_cast<const std::byte*>(address) - shared;
  if (launch->layout) {
    const SharedLayout::Array* const array = launch->layout->nearest(offset);
    if (!array) return "an address that is in no shared array";
    return std::string("shared ") + array->name + "+" + std::to_string(offset - static_cast<std::ptrdiff_t>(array->at));
  }
  return "shared " + (shared_struct ? type_name(shared_struct) : "memory") + (offset < 0 ? "" : "+") +
         std::to_string(offset);
}

std::string Worker::coordinates() const {
  const uint3 at = position(block, launch->grid);
  return "(" + std::to_string(at.x) + "," + std::to_string(at.y) + "," + std::to_string(at.z) + ")";
}

FindingSide Worker::side(const char* what, const void* pc) const {
  return {what, pc, {}, true, block, current};
}

FindingSide Worker::side(const std::string& what, const Thread& thread) const {
  const unsigned index = static_cast<unsigned>(&thread - threads.data());
  return {what, thread.pc, thread.site, thread.state != State::ended, block, index};
}

// Nothing is ready: finds the most precise reason, one finding per block.
void Worker::explain_stall() {
  if (explain_block()) return;
  RawFinding finding = deadlock("no thread of the block can go on", block);
  add_waiting(finding);
  findings.add(std::move(finding));
}

// What is wrong within one warp or warpgroup; false: nothing.
bool Worker::explain_block() {
  bool spinning = false;
  for (const Thread& thread : threads) spinning |= thread.state == State::spins;
  for (unsigned w = 0; w < warps.size() && !spinning; ++w)
    for (const OpenOp& op : warps[w].open) {
      const unsigned missing = op.mask & warps[w].exists & ~op.arrived;
      const Thread& caller = threads[w * kWarpSize + op.first_lane];
      const Thread& absent = threads[w * kWarpSize + std::countr_zero(missing)];
      // That is what all wait for.
      if (absent.state == State::at_mbarrier || absent.state == State::polls || absent.state == State::at_cluster)
        continue;
      const bool ended = absent.state == State::ended;
      findings.add({"warp operation",
                    described(op) + " waits for a lane that " +
                        (ended                               ? "has exited"
                         : absent.state == State::at_barrier ? "waits at a barrier"
                                                             : "waits in another operation"),
                    remedy_for_missing(op.op),
                    {side("calls", caller), side(ended ? "exited" : "waits", absent)},
                    block});
      return true;
    }
  return !spinning && explain_warpgroup();
}

namespace {
constexpr char kWaitForEachOther[] = "these wait for one another: let all threads come to both places, in one order";

const char* remedy_for_waiting(State state) {
  if (state == State::spins) return "let a thread that runs at the same time change what they spin on";
  if (state == State::at_mbarrier || state == State::polls)
    return "let as many arrive in each phase as mbarrier_init counts";
  if (state == State::at_cluster) return "let all threads of the cluster arrive, and as often";
  return "let as many threads come as are waited for, and as often";
}
}  // namespace

RawFinding Worker::deadlock(const char* what, unsigned block) {
  return {"deadlock", what, "", {}, block};  // add_waiting() knows the remedy
}

// A side for each group of threads that wait for one thing; the exited ones come last.
void Worker::add_waiting(RawFinding& finding) const {
  bool bytes_missing = false;
  std::vector<unsigned> counts;
  std::vector<const Thread*> firsts;
  for (const bool exited : {false, true})
    for (const Thread& thread : threads) {
      if ((thread.state == State::ended) != exited) continue;
      std::size_t group = 0;
      while (group < firsts.size() &&
             !(firsts[group]->state == thread.state &&
               ((thread.state != State::at_mbarrier && thread.state != State::polls) ||
                firsts[group]->value == thread.value) &&
               (thread.state != State::at_warp_op || place_of(*firsts[group]) == place_of(thread)) &&
               (exited || (firsts[group]->pc == thread.pc && same_site(firsts[group]->site, thread.site)))))
        ++group;
      if (group == firsts.size()) counts.push_back(0), firsts.push_back(&thread);
      ++counts[group];
    }
  for (std::size_t group = 0; group < firsts.size(); ++group) {
    const Thread& first = *firsts[group];
    const auto* const barrier = reinterpret_cast<const std::byte*>(first.value);
    bytes_missing |= (first.state == State::at_mbarrier || first.state == State::polls) && bulk.misses_bytes(barrier);
    const std::string where =
        first.state == State::ended         ? " exited"
        : first.state == State::at_barrier  ? " wait at __syncthreads"
        : first.state == State::at_mbarrier ? " wait at" + bulk.missing(barrier, first.param)
        : first.state == State::polls       ? " poll" + bulk.missing(barrier, first.param)
        : first.state == State::at_cluster  ? " wait at barrier.cluster: " + (cluster ? *cluster : *alone_).arrivals()
        : first.state == State::spins       ? first.pc ? " spin on a volatile load" : " spin on an atomic"
                                            : " wait at " + place_of(first);
    finding.sides.push_back(side(std::to_string(counts[group]) + where, first));
  }
  const auto asks = [](const Thread& thread) {
    return thread.state == State::at_warp_op && thread.op == WarpOp::setmaxnreg;
  };
  // One way of waiting has its remedy; where there are several, also among the blocks of a cluster, one keeps another
  // from coming.
  for (const Thread* first : firsts) {
    if (first->state == State::ended || finding.remedy == kExpectBytes) continue;
    const char* const remedy = remedy_for_waiting(first->state);
    finding.remedy = finding.remedy.empty() || finding.remedy == remedy ? remedy : kWaitForEachOther;
  }
  if (std::any_of(threads.begin(), threads.end(), asks))
    finding.remedy = "let the numbers add up, over the warpgroups, to no more than " + std::to_string(products.size()) +
                     " times the " + std::to_string(budget_.at_launch) + " of the launch";
  if (bytes_missing) finding.remedy = kExpectBytes;
}

}  // namespace flash::simt
