// results.hpp: measurements as JSON files (docs/results/*.json): the computer, the commit, one line per measurement.
// Programs in Python write the same format (results.py); docs/results/tables.py puts it into README.md and docs.
// Use: write_results(path, environment(), rows);
#pragma once
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#ifdef FLASH_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include "gpu/timing.hpp"
#include "sim/report/json.hpp"
#include "tests/bench/cases.hpp"

namespace flash::bench {

struct Row {
  Case at;
  std::string kernel;
  Timing timing = {};
  double error = 0, floor = 0;  // relative error of sampled rows; that of the exact result rounded to fp16
  double work = 1;              // in forward passes: a backward pass counts as 2.5, whatever it does
  std::string type = "float16";
  std::optional<std::uint64_t> wanted = {};  // bytes of S and P, where they did not fit: nothing was timed
};

inline double flops_of(const Row& row) {
  return row.work * static_cast<double>(flops(row.at));
}

inline double tflops(const Row& row) {
  return flops_of(row) / row.timing.median_ms * 1e-9;
}

// First line that a command prints, or "unknown".
inline std::string first_line(const char* command) {
  char line[256] = "";
  if (FILE* pipe = popen(command, "r")) {
    if (!std::fgets(line, sizeof line, pipe)) line[0] = 0;
    pclose(pipe);
  }
  std::string text = line;
  while (!text.empty() && text.back() <= ' ') text.pop_back();
  return text.empty() ? "unknown" : text;
}

inline std::string from_smi(const std::string& what) {
  return first_line(("nvidia-smi --query-gpu=" + what + " --format=csv,noheader 2>/dev/null").c_str());
}

using Environment = std::vector<std::pair<std::string, std::string>>;

// FLASH_COMMIT serves where the sources are a copy without their history.
inline Environment environment() {
  const char* commit = std::getenv("FLASH_COMMIT");
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  std::string cuda = "none";
#ifdef FLASH_HAVE_CUDA
  int version = 0;
  if (cudaRuntimeGetVersion(&version) == cudaSuccess)
    cuda = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
#endif
  return {{"gpu", from_smi("name")},
          {"driver", from_smi("driver_version")},
          {"cuda", cuda},
          {"memory", from_smi("memory.total")},
          {"sm_clock_max", from_smi("clocks.max.sm")},
          {"memory_clock_max", from_smi("clocks.max.mem")},
          {"power_limit", from_smi("power.limit")},
          {"commit", commit ? commit : first_line("git rev-parse --short HEAD 2>/dev/null")},
          {"date", date}};
}

// Of what was measured without a GPU: the processor, what else is to be known, commit and date.
inline Environment cpu_environment(const std::string& note) {
  Environment where{{"cpu", first_line("sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null")}, {"note", note}};
  for (const auto& [name, value] : environment())
    if (name == "commit" || name == "date") where.emplace_back(name, value);
  return where;
}

// {"environment": {…}, "rows": [one object per line]}
inline std::string results_text(const Environment& where, const std::vector<std::string>& rows) {
  std::string text = "{\n  \"environment\": {";
  const char* separator = "\n    ";
  for (const auto& [name, value] : where) {
    text += separator + json_string(name) + ": " + json_string(value);
    separator = ",\n    ";
  }
  text += "\n  },\n  \"rows\": [";
  separator = "\n    ";
  for (const std::string& row : rows) {
    text += separator + row;
    separator = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

inline std::string json_row(const Row& row) {
  std::ostringstream s;
  s.precision(6);
  const Case& c = row.at;
  s << "{\"sweep\": " << json_string(c.sweep) << ", \"kernel\": " << json_string(row.kernel) << ", \"B\": " << c.B
    << ", \"H\": " << c.H << ", \"N\": " << c.N << ", \"D\": " << c.D
    << ", \"causal\": " << (c.causal ? "true" : "false") << ", \"type\": " << json_string(row.type)
    << ", \"flops\": " << static_cast<std::uint64_t>(flops_of(row));
  if (row.wanted) {
    s << ", \"out_of_memory_bytes\": " << *row.wanted;
  } else {
    s << ", \"samples\": " << row.timing.samples << ", \"median_ms\": " << row.timing.median_ms
      << ", \"p10_ms\": " << row.timing.p10_ms << ", \"p90_ms\": " << row.timing.p90_ms
      << ", \"tflops\": " << tflops(row) << ", \"sm_mhz\": " << row.timing.sm_mhz << ", \"error\": " << row.error
      << ", \"rounding_floor\": " << row.floor;
  }
  s << "}";
  return s.str();
}

// The same measurements' computer as the last line of a table.
inline std::string line_of(const Environment& where) {
  std::string line;
  for (const auto& [name, value] : where)
    if (name == "gpu" || name == "driver" || name == "cuda" || name == "commit") line += name + " " + value + ", ";
  return line + where.back().second + "\n";
}

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text) || !file.flush()) throw Error("cannot write " + path);
}

}  // namespace flash::bench
