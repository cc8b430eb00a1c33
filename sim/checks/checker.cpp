// checker.cpp: a checker's launches and blocks: what begins anew, what is looked at in the end.
// What happens between the two is in the files that checker.hpp names.
// Use: see checker.hpp.
#include "sim/checks/checker.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

namespace flash::simt {

SiteCache no_sites;
constinit thread_local SiteCache* running_sites = &no_sites;
constinit thread_local DeviceMemory* unwatched_memory = nullptr;

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
  site_cache_.clear();
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
  settled_.forget_all();
  settles_ = !worker_.cluster && reinterpret_cast<std::uintptr_t>(worker_.shared) % 16 == 0;
  shared_ = worker_.shared, shared_bytes_ = worker_.shared_bytes, layout_ = worker_.launch->layout;
  others_watch_ = worker_.observers.size() > 1;
  counters.observers = others_watch_ ? &worker_.observers : nullptr;
  quick_bytes_ = others_watch_ || !watches_ ? 0 : shared_bytes_ / 16 * 16;
  unwatched_memory = watches_ ? nullptr : &global_.memory;
  published_.clear();
  handovers_.clear();
  uses_.clear(), far_uses_.clear();
  registers_.begin_block(worker_.threads.size());
  asked_ = false;
  counters.begin_block(worker_.warps.size());
}

void Checker::switched() {
  forget_foreseen();
  running_sites = unwatched_memory ? &no_sites : &site_cache_;
  if (stored_.finding) see_what_was_stored();
  settled_.select(worker_.current / kWarpSize);
  running_ = epochs_[worker_.current];
  counters.select(worker_.current);
}

// Another thread runs from here on, or something else than accesses comes.
void Checker::forget_foreseen() {
  for (std::size_t i = 0; i < foreseen_count_; ++i) {
    if (foreseen_[i]->left > 0) give_back(*foreseen_[i]);
    foreseen_[i]->listed = false;
  }
  foreseen_count_ = 0;
}

// Reads that were expected and did not come: fewer are looked at the next time.
void Checker::give_back(CachedSite& cached) {
  counters.give_back(cached.index, cached.left);
  cached.left = 0, cached.most = 0;
}

void Checker::forget_settled() {
  forget_foreseen();
  settled_.forget_all();
}

void Checker::end_block(bool regularly) {
  see_what_was_stored();
  ended_ = regularly;
  forget_foreseen();
  running_sites = &no_sites;
  unwatched_memory = nullptr;
  if (regularly && worker_.cluster) look_at_visits();
  if (value_) value_.unlock();                                      // the block ended in an atomic: its time was up
  for (unsigned w = 0; w < worker_.warps.size(); ++w) converge(w);  // what a stopped block left
}

}  // namespace flash::simt
