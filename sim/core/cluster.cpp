// cluster.cpp: turns among the blocks of a cluster, their barrier, and why none of them can go on. See cluster.hpp.
// What a kernel calls is at the end: ranks, mapa, barrier.cluster.
// Use: the functions of simt.hpp that sim/dialect/dialect.hpp wraps.
#include "sim/core/cluster.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/core/block.hpp"
#include "sim/core/observer.hpp"

namespace flash::simt {

Cluster::Cluster(std::vector<Worker*> members, std::size_t team)
    : members_(std::move(members)), runs_(members_.size()), wake_(members_.size()) {
  look.worker = team;
}

Worker* Cluster::owner(const void* address) const {
  for (Worker* member : members_)
    if (member->in_shared(address)) return member;
  return nullptr;
}

Worker* Cluster::nearest_owner(const void* address) const {
  if (Worker* const member = owner(address)) return member;
  for (Worker* member : members_)
    if (member->near_shared(address)) return member;
  return nullptr;
}

// ---- turns ---------------------------------------------------------------------------------------------------------

void Cluster::begin() {
  came_ = laid_out_ = 0, turn_ = kNobody;
  std::fill(runs_.begin(), runs_.end(), true);
  stopped_ = stuck_ = false;
  yields_ = spinning_ = in_vain_ = 0;
  begin_barrier();
}

void Cluster::lay_out(unsigned rank) {
  std::unique_lock lock(mutex_);
  wake_[rank].wait(lock, [&] { return laid_out_ == rank; });
}

void Cluster::laid_out(bool failed) {
  const std::lock_guard lock(mutex_);
  stopped_ |= failed;
  if (++laid_out_ < size()) return wake_[laid_out_].notify_one();
  const Launch& launch = *members_[0]->launch;
  if (launch.order == Order::random) random_.seed(launch.seed * 0x9e3779b97f4a7c15u + members_[0]->block + 1);
  give(next());
}

bool Cluster::turn(unsigned rank) {
  std::unique_lock lock(mutex_);
  if (turn_ == rank && members_[rank]->ready_.empty()) give(next());
  wake_[rank].wait(lock, [&] { return turn_ == rank; });
  return !stuck_;
}

void Cluster::leave(unsigned rank, bool stopped) {
  const std::lock_guard lock(mutex_);
  runs_[rank] = false;
  stopped_ |= stopped;
  turn_ = kNobody;
  if (any() < size()) give(next());
}

void Cluster::give(unsigned rank) {
  turn_ = rank;
  wake_[rank].notify_one();
}

// The first block that has not ended; size(): none.
unsigned Cluster::any() const {
  return static_cast<unsigned>(std::find(runs_.begin(), runs_.end(), true) - runs_.begin());
}

// The block that runs next.
unsigned Cluster::next() {
  const Order order = members_[0]->launch->order;
  while (!stuck_) {
    std::vector<unsigned> can;
    for (unsigned rank = 0; rank < size(); ++rank)
      if (runs_[rank] && !members_[rank]->ready_.empty()) can.push_back(rank);
    if (!can.empty())
      return order == Order::forward ? can.front() : order == Order::reverse ? can.back() : can[random_() % can.size()];

    // No thread can run: a copy completes that one of them waits for, or lanes are active together.
    const auto helps = [&](unsigned rank) {
      return runs_[rank] && (members_[rank]->bulk.advance() || members_[rank]->resolve_activemask());
    };
    bool helped = false;
    for (unsigned rank = 0; rank < size() && !helped; ++rank) helped = helps(rank);
    if (helped) continue;

    // Those that spin look again, until that is in vain.
    if (hopeless()) {
      stuck_ = true;
      if (!stopped_) explain();  // else it waits for the block that has stopped, and why that has is known
    }
    for (unsigned rank = 0; rank < size() && !stuck_; ++rank)
      if (runs_[rank]) std::swap(members_[rank]->ready_, members_[rank]->spinning_);
  }
  return any();
}

bool Cluster::hopeless() {
  std::uint64_t yields = 0, spinning = 0;
  for (unsigned rank = 0; rank < size(); ++rank) {
    yields += members_[rank]->yields_without_progress_;
    if (runs_[rank]) spinning += members_[rank]->spinning_.count();
  }
  if (spinning == 0) return true;
  in_vain_ = yields == yields_ + spinning_ ? in_vain_ + spinning_ : 0;
  yields_ = yields, spinning_ = spinning;
  const Launch& launch = *members_[0]->launch;
  const std::uint64_t limit = launch.stuck->found() ? kLeastSpins : kSpinsBeforeDeadlock / launch.workers;
  if (in_vain_ >= std::max(limit, kLeastSpins)) {
    bool finished = false;
    for (unsigned rank = 0; rank < size(); ++rank) finished |= members_[rank]->bulk.finish_stores();
    if (!finished) return launch.stuck->hopeless(look);
    in_vain_ = 0;
  }
  launch.stuck->goes_on(look);
  return false;
}

// In a block a reason may be plain to see; if there is none, all say where they wait.
void Cluster::explain() {
  bool explained = false;
  for (unsigned rank = 0; rank < size(); ++rank) explained |= runs_[rank] && members_[rank]->explain_block();
  if (explained) return;
  Worker& first = *members_[any()];
  RawFinding finding = Worker::deadlock("no thread of the cluster can go on", first.block);
  for (const Worker* member : members_) member->add_waiting(finding);
  first.findings.add(std::move(finding));
}

// ---- barrier.cluster -----------------------------------------------------------------------------------------------

void Cluster::begin_barrier() {
  phase_ = 0, arrived_ = 0;
  waiting_.clear();
}

unsigned Cluster::threads() const {
  unsigned count = 0;
  for (const Worker* member : members_) count += static_cast<unsigned>(member->threads.size()) - member->ended_;
  return count;
}

void Cluster::arrive() {
  ++arrived_;
  complete_if_all_came();
}

void Cluster::exits(bool arrived) {
  arrived_ -= arrived;
  complete_if_all_came();
}

// PTX: barrier.cluster.wait waits for all non-exited threads of the cluster.
void Cluster::complete_if_all_came() {
  if (arrived_ == 0 || arrived_ < threads()) return;
  ++phase_;
  arrived_ = 0;
  for (Worker* member : members_) member->yields_without_progress_ = 0;
  for (Observer* observer : members_[0]->observers) observer->completes(this);
  for (const Waiting& waiting : std::exchange(waiting_, {})) waiting.worker->make_ready(waiting.thread);
}

std::string Cluster::arrivals() const {
  return std::to_string(arrived_) + " of " + counted(threads(), "thread") + " have arrived";
}

// ---- what kernels call ---------------------------------------------------------------------------------------------

Cluster& Worker::group() {
  if (cluster) return *cluster;
  if (!alone_) alone_ = std::make_unique<Cluster>(std::vector<Worker*>{this});
  return *alone_;
}

void Worker::cluster_arrive(Site site) {
  Thread& thread = threads[current];
  thread.site = site, thread.atomics_in_a_row = 0;
  if (thread.cluster_phase != 0)
    misuse("cluster", "barrier.cluster.arrive by a thread that has not waited since it arrived last",
           "let each thread call barrier_cluster_wait() between two arrivals", {side("arrives", thread)});
  Cluster& all = group();
  thread.cluster_phase = all.phase() + 1;
  for (Observer* observer : observers) observer->releases(&all), observer->arrives_at_cluster(&all, site);
  all.arrive();
}

void Worker::cluster_wait(Site site) {
  Thread& thread = threads[current];
  thread.site = site, thread.atomics_in_a_row = 0;
  if (thread.cluster_phase == 0)
    misuse("cluster", "barrier.cluster.wait by a thread that has not arrived",
           "let each thread call barrier_cluster_arrive() before it", {side("waits", thread)});
  Cluster& all = group();
  for (Observer* observer : observers) observer->waits_for(&all, thread.cluster_phase, site);
  if (all.phase() < thread.cluster_phase) {
    thread.state = State::at_cluster;
    all.wait(*this, current);
    run_next();
  }
  thread.cluster_phase = 0;
  for (Observer* observer : observers) observer->acquires(&all, current);
}

// The running thread exits: nobody waits for it any more. What it did before is known to who waits, as with a block's
// barrier.
void Worker::exits_cluster() {
  if (!cluster && !alone_) return;
  const bool arrived = threads[current].cluster_phase > group().phase();
  if (!arrived)
    for (Observer* observer : observers) observer->releases(&group());
  group().exits(arrived);
}

std::byte* Worker::map(const void* address, unsigned of, Site site) {
  Thread& thread = threads[current];
  thread.site = site;
  const unsigned size = cluster ? cluster->size() : 1;
  if (of >= size)
    misuse("cluster", "mapa of rank " + std::to_string(of) + " in a cluster of " + counted(size, "block"),
           "give a rank below cluster_nctarank()", {side("maps", thread)});
  if (!near_shared(address))
    misuse("cluster", "mapa of an address outside the block's shared memory",
           "give it an address in the block's own shared memory", {side("maps", thread)});
  std::byte* const theirs = cluster ? cluster->member(of).shared : shared;
  return theirs + (static_cast<const std::byte*>(address) - shared);
}

unsigned cluster_rank() {
  return Entered()->rank;
}
unsigned cluster_size() {
  const Entered worker;
  return worker->cluster ? worker->cluster->size() : 1;
}
dim3 cluster_shape() {
  return Entered()->launch->cluster;
}
void barrier_cluster_arrive(Site site) {
  Entered()->cluster_arrive(site);
}
void barrier_cluster_wait(Site site) {
  Entered()->cluster_wait(site);
}
void* map_shared(const void* address, unsigned rank, Site site) {
  return Entered()->map(address, rank, site);
}

void check_cluster_dims(unsigned x, unsigned y, unsigned z) {
  Entered worker;
  const dim3 given = worker->launch->cluster;
  if (given.x == x && given.y == y && given.z == z) return;
  throw NeedsCluster{{x, y, z}};
}

}  // namespace flash::simt
