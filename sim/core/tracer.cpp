// tracer.cpp: see tracer.hpp. Logical time: a warp's clock advances by 1 per mark, wait and barrier and, in the checked
// build, by 1 per memory request; a barrier sets all warps of the block to the latest clock, a wait on an mbarrier its
// warp to that of the last arrival.
// Use: see tracer.hpp.
#include "sim/core/tracer.hpp"

#include <utility>

namespace flash::simt {

void Tracer::mark(unsigned block, unsigned warp, const char* label, long value, std::uint64_t ahead) {
  const std::uint64_t now = clocks_[warp]++ + ahead;
  if (open_[warp] != kNone) events[open_[warp]].end = now;
  open_[warp] = events.size();
  events.push_back({block, warp, label, value, now, now + 1});
}

void Tracer::copy(unsigned block, unsigned warp, unsigned lane, std::uint64_t group, unsigned bytes,
                  std::uint64_t ahead) {
  std::vector<Group>& groups = groups_[warp];
  if (group >= groups.size()) groups.resize(group + 1);
  Group& own = groups[group];
  own.bytes += bytes;
  if (lane == 0 && own.event == kNone) {
    const std::uint64_t now = clocks_[warp] + ahead;
    own.event = events.size();
    events.push_back({block, warp, "copy", 0, now, now + 1, true});
  }
  if (own.event != kNone) events[own.event].value = own.bytes;
}

void Tracer::wait(unsigned block, unsigned warp, std::uint64_t end, unsigned pending, std::uint64_t ahead) {
  const std::uint64_t now = clocks_[warp]++ + ahead;
  events.push_back({block, warp, "wait", static_cast<long>(pending), now, now + 1});
  std::vector<Group>& groups = groups_[warp];
  for (std::size_t group = 0; group < std::min<std::size_t>(end, groups.size()); ++group)
    if (groups[group].event != kNone && !std::exchange(groups[group].done, true))
      events[groups[group].event].end = now + 1;
}

std::size_t Tracer::load(unsigned block, unsigned warp, std::size_t bytes, std::uint64_t ahead) {
  const std::uint64_t begin = now(warp, ahead);
  events.push_back({block, warp, "copy", static_cast<long>(bytes), begin, begin + 1, true});
  return events.size() - 1;
}

void Tracer::waited(unsigned block, unsigned warp, std::uint64_t happened, std::uint64_t ahead) {
  const std::uint64_t begin = now(warp, ahead), end = std::max(begin + 1, happened);
  events.push_back({block, warp, "wait", 0, begin, end});
  clocks_[warp] = end - ahead;
}

void Tracer::barrier(unsigned block) {
  const std::uint64_t latest = *std::max_element(clocks_.begin(), clocks_.end()) + 1;
  for (unsigned warp = 0; warp < clocks_.size(); ++warp) {
    events.push_back({block, warp, "barrier", 0, clocks_[warp], latest});
    clocks_[warp] = latest;
  }
}

void Tracer::end_block() {
  for (unsigned warp = 0; warp < open_.size(); ++warp)
    if (open_[warp] != kNone) events[open_[warp]].end = std::max(events[open_[warp]].end, clocks_[warp]);
  for (unsigned warp = 0; warp < groups_.size(); ++warp)
    for (const Group& group : groups_[warp])  // nobody waited for
      if (group.event != kNone && !group.done)
        events[group.event].end = std::max(events[group.event].end, clocks_[warp]);
}

}  // namespace flash::simt
