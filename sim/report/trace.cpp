// trace.cpp: see trace.hpp. Logical time: a warp's clock advances by 1 per mark and barrier and, in the checked
// build, by 1 per memory request; a barrier sets all warps of the block to the latest clock.
// The JSON is Chrome's "trace event format": complete events (ph X), pid = launch and block, tid = warp.
#include "sim/report/trace.hpp"

#include <algorithm>
#include <map>
#include <ostream>

#include "sim/report/json.hpp"

namespace flash::simt {

void Tracer::mark(unsigned block, unsigned warp, const char* label, long value, std::uint64_t ahead) {
  const std::uint64_t now = clocks_[warp]++ + ahead;
  if (open_[warp] != kNone) events[open_[warp]].end = now;
  open_[warp] = events.size();
  events.push_back({block, warp, label, value, now, now + 1});
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
}

void write_trace(std::ostream& out, const std::vector<TraceEvent>& events, const std::vector<KernelReport>& launches) {
  std::map<std::string, std::size_t> processes;  // one per launch and block
  out << "{\"traceEvents\": [\n";
  const char* separator = "";
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
    out << separator << "{\"name\": " << json_string(e.name) << ", \"ph\": \"X\", \"pid\": " << position->second
        << ", \"tid\": " << e.warp << ", \"ts\": " << e.begin << ", \"dur\": " << e.end - e.begin
        << ", \"args\": {\"value\": " << e.value << "}}";
  }
  out << "\n]}\n";
}

}  // namespace flash::simt
