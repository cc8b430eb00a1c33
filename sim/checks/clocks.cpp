// clocks.cpp: see clocks.hpp.
// What many threads learn at one place they share: a View is copied when one of them learns more.
// Use: see clocks.hpp.
#include "sim/checks/clocks.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace flash::simt {

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

void View::join_as_reads(const View& other) {
  if (other.empty()) return;
  const std::shared_ptr<Blocks> theirs = other.blocks_;  // perhaps our own
  for (const auto& [block, clocks] : *theirs) own()[block | kReads].join(clocks);
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

}  // namespace flash::simt
