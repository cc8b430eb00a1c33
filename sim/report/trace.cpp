// trace.cpp: see trace.hpp. The JSON is Chrome's "trace event format": complete events (ph X), pid = launch and block,
// tid = warp; copies are async events (ph b and e), which may overlap and have rows of their own.
// Use: see trace.hpp.
#include "sim/report/trace.hpp"

#include <map>
#include <ostream>
#include <string>

#include "sim/report/json.hpp"

namespace flash::simt {

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
