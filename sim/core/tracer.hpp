// tracer.hpp: records what warps do in logical time.
// A mark opens a region of its warp that lasts until the next mark of the warp or the block's end.
// Asynchronous copies are drawn beside these: a bar for each group of a warp, from its first copy to the wait that ends
// it. Lane 0 stands for its warp; the bytes are those of all lanes.
// Use: MachineOptions::trace; kernels call trace_mark("load K", tile). Written to a file: sim/report/trace.hpp.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace flash::simt {

// One worker's events of one launch; block indices are linear until Machine words them.
class Tracer {
 public:
  struct Event {
    unsigned block, warp;
    const char* name;
    long value;
    std::uint64_t begin, end;
    bool beside = false;
  };
  void begin_block(unsigned warps) {
    clocks_.assign(warps, 0);
    open_.assign(warps, kNone);
    groups_.assign(warps, {});
  }
  void step(unsigned warp, std::uint64_t amount) { clocks_[warp] += amount; }
  // `ahead`: steps of the warp that step() has not been told yet.
  void mark(unsigned block, unsigned warp, const char* label, long value, std::uint64_t ahead);
  // A lane begins a copy that belongs to its group number `group`; lane 0 waits for all groups before number `end`.
  void copy(unsigned block, unsigned warp, unsigned lane, std::uint64_t group, unsigned bytes, std::uint64_t ahead);
  void wait(unsigned block, unsigned warp, std::uint64_t end, unsigned pending, std::uint64_t ahead);
  // The warp's time, with steps that step() has not been told yet.
  std::uint64_t now(unsigned warp, std::uint64_t ahead) const { return clocks_[warp] + ahead; }
  // A load of TMA that the warp issues; the event, whose end is told when its mbarrier's phase is complete.
  std::size_t load(unsigned block, unsigned warp, std::size_t bytes, std::uint64_t ahead);
  void end_load(std::size_t event, std::uint64_t time) { events[event].end = std::max(events[event].end, time); }
  // The warp has waited for what happened at that time.
  void waited(unsigned block, unsigned warp, std::uint64_t happened, std::uint64_t ahead);
  // All warps have met: one bar for each from its arrival to the common time.
  void barrier(unsigned block);
  void end_block();
  std::vector<Event> events;

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<std::uint64_t> clocks_;  // per warp: logical time
  std::vector<std::size_t> open_;      // per warp: its last mark
  struct Group {
    std::size_t event = kNone;  // none before lane 0's first copy
    long bytes = 0;
    bool done = false;
  };
  std::vector<std::vector<Group>> groups_;  // per warp, by number
};

}  // namespace flash::simt
