// cluster.cpp: the checks of shared memory that several blocks of a cluster access. Its marks are in the cells of the
// block that owns it; who looks at them is the accessing thread's checker, with that thread's knowledge.
// A block's shared memory is there from when the block has begun until it ends. Who accesses another block's must know
// that it has begun, and the other block, before it ends, of the access: both follow from what synchronises them.
// Use: see checker.hpp; PTX ISA, "mapa", "barrier.cluster"; CUDA Programming Guide, "Distributed Shared Memory".
#include <algorithm>

#include "sim/checks/accesses.hpp"
#include "sim/checks/keys.hpp"
#include "sim/core/outside.hpp"

namespace flash::simt {

Checker& Checker::home_of(const void* address) const {
  const Worker* const owner = worker_.cluster ? worker_.cluster->owner(address) : nullptr;
  return owner ? of(*owner) : of(worker_);
}

// What is handed over at the cluster's barrier is kept by the block of rank 0; at an mbarrier, by the one that has it.
Checker::Handover& Checker::handover(const void* object) {
  if (!worker_.cluster) return handovers_[object];
  return (object == worker_.cluster ? of(worker_.cluster->member(0)) : home_of(object)).handovers_[object];
}

bool Checker::is_in_cluster(unsigned block) const {
  if (!worker_.cluster) return false;
  for (unsigned rank = 0; rank < worker_.cluster->size(); ++rank)
    if (worker_.cluster->member(rank).block == block) return true;
  return false;
}

// Does the running thread know that the block has begun? Whatever it has learned of one of its threads says so.
bool Checker::knows_of(unsigned block) const {
  const auto& extra = extra_[worker_.current];
  return extra && extra->known.find(block);
}

// Is the other block, whose shared memory the running thread is to access, there? If not, that is said. False: it has
// ended.
bool Checker::is_there(const Checker& other, Epoch mine, const char* what, const void* address, std::size_t bytes) {
  const bool begun = knows_of(other.worker_.block);
  if (!begun || other.ended_) no_block_there(mine, what, address, bytes, begun);
  return !other.ended_;
}

// The same, and that block must know of the access before it ends.
bool Checker::visits(Checker& other, Epoch mine, const char* what, const void* address, std::size_t bytes) {
  if (!is_there(other, mine, what, address, bytes)) return false;
  if (knows_of(other.worker_.block))
    other.visits_[{worker_.block, worker_.current}] = {mine, what, address, bytes, this};
  return true;
}

void Checker::no_block_there(Epoch mine, const char* what, const void* address, std::size_t bytes, bool begun) {
  const Outside outside;
  if (worker_.findings.repeated("cluster", site_index_of(mine), begun, worker_.block)) return;
  worker_.findings.add({"cluster",
                        std::string(what) + " of " + element(address, bytes) + " (" + counted(bytes) +
                            "), whose block may " + (begun ? "have ended" : "not have begun"),
                        begun ? "let the block end behind a barrier of the cluster that all who access its memory pass"
                              : "let all threads pass a barrier of the cluster before the first access to another "
                                "block's shared memory",
                        {side(what, mine)},
                        worker_.block});
}

// The block ends: does one of its threads know of what others did to its shared memory?
void Checker::look_at_visits() {
  if (const AsyncOperation* const copy = worker_.async.sending()) {
    const unsigned s = site(spot(copy->site) | kOfAsyncRead);
    no_block_there(Epoch{s} << kThreadBits | copy->thread, copy->instruction, copy->pieces[0].begin,
                   copy->pieces[0].bytes, true);
  }
  for (const auto& [who, visit] : visits_) {
    const auto knows = [&, block = who.first](const std::unique_ptr<Extra>& extra) {
      const auto reaches = [&](const Clocks* clocks) {
        return clocks && clock_of(visit.epoch) < clocks->of(thread_of(visit.epoch));
      };
      return extra && (reaches(extra->known.find(block)) || reaches(extra->known.find(block | View::kReads)));
    };
    if (std::none_of(extra_.begin(), extra_.begin() + static_cast<long>(worker_.threads.size()), knows))
      visit.by->no_block_there(visit.epoch, visit.what, visit.address, visit.bytes, true);
  }
}

// The making is an ordinary store of the other block's thread. What a copy does when it completes is no access of the
// thread that issues it.
bool Checker::far_mbarrier(const void* barrier, const char* instruction, bool arrives, Site site_) {
  Checker& other = home_of(barrier);
  const Epoch mine = at_mbarrier(instruction, site_);
  const bool there =
      arrives ? visits(other, mine, instruction, barrier, 8) : is_there(other, mine, instruction, barrier, 8);
  if (!there || !knows_of(other.worker_.block)) worker_.stop_block();
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(barrier) - other.shared_);
  const Epoch made = other.cells_.planes[0].write[offset / 4];
  if (made < block_begin_ || !ordered<kCluster>(made)) return false;
  if (!arrives) return true;
  other.share(offset, 8);
  other.far_uses_[barrier][{worker_.block, worker_.current}] = mine;
  home_ = &other;
  touch_all<kCluster, 8, Access::atomic>(other.cells_, offset, mine | kLastEpoch, true, barrier);
  home_ = this;
  return true;
}

// The words belong to several blocks from here on.
void Checker::share(std::size_t offset, std::size_t bytes) {
  for (std::size_t word = offset / 4; word < (offset + bytes + 3) / 4; ++word) cells_.set(word, Cells::kCluster);
  any_state_ = true;
}

}  // namespace flash::simt
