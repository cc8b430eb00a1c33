// trace.cpp: see trace.hpp. Logical time: a warp's clock advances by 1 per mark, wait and barrier and, in the checked
// build, by 1 per memory request; a barrier sets all warps of the block to the latest clock, a wait on an mbarrier its
// warp to that of the last arrival.
// The JSON is Chrome's "trace event format": complete events (ph X), pid = launch and block, tid = warp; copies are
// async events (ph b and e), which may overlap and have rows of their own.
#include "sim/report/trace.hpp"

#include <algorithm>
#include <map>
#include <ostream>
#include <utility>

#include "sim/report/json.hpp"

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

void write_trace(std::ostream& out, const std::vector<TraceEvent>& events, const std::vector<KernelReport>& launches) {
  std::map<std::string, std::size_t> processes;  // one per launch and block
  out << "{\"traceEvents\": [\n";
  const char* separator = "";
  std::size_t copies = 0;
  for (const TraceEvent& e : events) {
    const std::string process = std::to_string(e.launch) + " " + launches[e.launch].kernel + " block (" +
                                std::to_string(e.block[0]) + "," + std::to_string(e.block[1]) + "," +
                                std::to_string(e.block[2]) + ")";
    const auto [position, fresh] = processes.try_emplace(process, processes.size());
    if (fresh) {
      out << separator << "{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": " << position->second
          << ", \"args\": {\"name\": " << json_string(process) << "}}";
      separator = ",\n";
    }
    if (e.beside) {
      const std::string rest =
          "\", \"cat\": \"warp " + std::to_string(e.warp) + "\", \"id\": " + std::to_string(copies++) +
          ", \"pid\": " + std::to_string(position->second) + ", \"tid\": " + std::to_string(e.warp) + ", \"ts\": ";
      out << separator << "{\"name\": " << json_string(e.name) << ", \"ph\": \"b" << rest << e.begin
          << ", \"args\": {\"value\": " << e.value << "}},\n{\"name\": " << json_string(e.name) << ", \"ph\": \"e"
          << rest << e.end << "}";
      continue;
    }
    out << separator << "{\"name\": " << json_string(e.name) << ", \"ph\": \"X\", \"pid\": " << position->second
        << ", \"tid\": " << e.warp << ", \"ts\": " << e.begin << ", \"dur\": " << e.end - e.begin
        << ", \"args\": {\"value\": " << e.value << "}}";
  }
  out << "\n]}\n";
}

}  // namespace flash::simt
