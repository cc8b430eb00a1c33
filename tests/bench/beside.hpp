// beside.hpp: tables of what beside_h200.py and flash-ceilings measured: speeds beside the libraries', how many times
// one kernel is as fast as another, and the range of that for a sentence.
// Use: tables.hpp, where their kinds are listed; range_text(rows, {{"kernel", {"13-instruction-diet"}}, …})
#pragma once
#include <cmath>
#include <map>
#include <set>

#include "tests/bench/table.hpp"

namespace flash::bench {

// What a marker says beside the files: field=value,value. An underscore stands for a space.
using Words = std::map<std::string, std::vector<std::string>>;

inline std::string one_of(const Words& words, const std::string& name) {
  const auto found = words.find(name);
  if (found == words.end() || found->second.size() != 1) throw Error("expected " + name + "=VALUE in the marker");
  return found->second[0];
}

inline std::string text_of(const Json& value) {
  if (value.kind == Json::Bool) return value.truth ? "true" : "false";
  return value.kind == Json::Number ? format("%g", value.number) : value.text;
}

// The rows whose fields have one of the values that the words give; `kernel` and `over` are left to the table.
inline std::vector<Json> only(const Words& words, std::vector<Json> rows) {
  std::erase_if(rows, [&](const Json& row) {
    return std::any_of(words.begin(), words.end(), [&](const auto& word) {
      if (word.first == "kernel" || word.first == "over") return false;
      const Json* field = row.find(word.first);
      return !field || std::find(word.second.begin(), word.second.end(), text_of(*field)) == word.second.end();
    });
  });
  return rows;
}

// The same measurement of another kernel, or null.
inline const Json* same_of(const Json& row, const std::vector<Json>& rows, const std::string& kernel) {
  for (const Json& other : rows) {
    if (!other.find("kernel") || kernel_of(other) != kernel || !other.find("tflops")) continue;
    const auto equal = [&](const char* name) { return text_of(row.at(name)) == text_of(other.at(name)); };
    if (equal("sweep") && equal("B") && equal("H") && equal("N") && equal("D") && equal("causal") && equal("type"))
      return &other;
  }
  return nullptr;
}

// How many times the speed of `over`; NaN where one of both was not measured.
inline double times_as_fast(const Json& row, const std::vector<Json>& rows, const std::string& over) {
  const Json* other = same_of(row, rows, over);
  return other && row.find("tflops") ? row.at("tflops").number / other->at("tflops").number : std::nan("");
}

inline std::string shape_of(const Json& row) {
  return format("D %.0f, ", row.at("D").number) + (row.at("causal").truth ? "causal" : "no mask") + ", " +
         row.at("type").text;
}

// kernel=A over=B: a line per D, mask and type, a column per N: how many times as fast A is as B.
inline std::string ratios_table(const std::vector<Json>& rows, const Words& words) {
  const std::string kernel = one_of(words, "kernel"), over = one_of(words, "over");
  std::vector<Json> known;
  for (const Json& row : only(words, rows))
    if (kernel_of(row) == kernel && !std::isnan(times_as_fast(row, rows, over))) known.push_back(row);
  if (known.empty()) throw Error("no row of " + kernel + " beside " + over);
  return grid_table(
      known, {kernel + " / " + over}, shape_of, N_of,
      [&](const Json& row) { return format("%.2f", times_as_fast(row, rows, over)); }, "",
      [](const std::string& N) { return "N = " + N; });
}

// For a sentence: the least and the most of the same, "1.10 to 1.33".
inline std::string range_text(const std::vector<Json>& rows, const Words& words) {
  double least = INFINITY, most = -INFINITY;
  for (const Json& row : only(words, rows)) {
    const double times =
        kernel_of(row) == one_of(words, "kernel") ? times_as_fast(row, rows, one_of(words, "over")) : std::nan("");
    if (!std::isnan(times)) least = std::min(least, times), most = std::max(most, times);
  }
  if (most < least) throw Error("no row of " + one_of(words, "kernel") + " beside " + one_of(words, "over"));
  return format("%.2f", least) + " to " + format("%.2f", most);
}

// A table per D, mask and type: a line per N, a column per kernel, TFLOP/s. Of our phases also how many times that is
// torch flash's and torch cudnn's speed; of all, the matrix product that was timed in the same rounds.
inline std::string beside_tables(const std::vector<Json>& all, const Words& words) {
  std::vector<Json> rows = only(words, all);
  std::erase_if(rows, [](const Json& row) { return !row.find("tflops"); });
  if (rows.empty()) throw Error("no row is left to show");
  std::string text;
  for (const std::string& shape : values_of(rows, shape_of)) {
    std::vector<Json> in_shape;
    std::set<double> tokens;
    for (const Json& row : rows)
      if (shape_of(row) == shape) in_shape.push_back(row), tokens.insert(row.at("B").number * row.at("N").number);
    const Json& first = in_shape[0];
    const std::string batch =
        tokens.size() == 1 ? format("B·N = %.0f, ", *tokens.begin()) + format("H = %.0f", first.at("H").number)
                           : format("B = %.0f, ", first.at("B").number) + format("H = %.0f", first.at("H").number);
    const std::vector<std::string> kernels = values_of(in_shape, kernel_of);
    std::vector<std::string> head{"N"};
    head.insert(head.end(), kernels.begin(), kernels.end());
    const bool product = first.find("cublas_tflops");
    if (product) head.push_back("cuBLAS");
    text += shape + "; " + batch + "\n\n" + table_head(head);
    for (const std::string& N : values_of(in_shape, N_of)) {
      std::vector<std::string> cells{N};
      std::string cublas;
      for (const std::string& kernel : kernels) {
        cells.push_back("");
        for (const Json& row : in_shape) {
          if (N_of(row) != N || kernel_of(row) != kernel) continue;
          cells.back() = short_number(row.at("tflops").number);
          const double flash = times_as_fast(row, rows, "torch flash"), cudnn = times_as_fast(row, rows, "torch cudnn");
          if (std::isdigit(static_cast<unsigned char>(kernel[0])) && !std::isnan(flash) && !std::isnan(cudnn))
            cells.back() += " (" + format("%.2f", flash) + ", " + format("%.2f", cudnn) + ")";
          if (product) cublas = short_number(row.at("cublas_tflops").number);
        }
      }
      if (product) cells.push_back(cublas);
      text += table_line(cells);
    }
    text += "\n";
  }
  return text;
}

// The fastest of our phases: a line per D, mask, type and H, a column per N: its name, microseconds, and in brackets
// how many times that is torch cudnn's speed.
inline std::string fastest_table(const std::vector<Json>& rows, const Words& words) {
  const Name line_of = [](const Json& row) { return shape_of(row) + format(", H %.0f", row.at("H").number); };
  std::vector<Json> fastest;
  std::map<std::string, std::size_t> place;  // of a cell
  for (const Json& row : only(words, rows)) {
    if (!row.find("tflops") || !std::isdigit(static_cast<unsigned char>(kernel_of(row)[0]))) continue;
    const auto [at, fresh] = place.emplace(line_of(row) + " " + N_of(row), fastest.size());
    if (fresh)
      fastest.push_back(row);
    else if (row.at("tflops").number > fastest[at->second].at("tflops").number)
      fastest[at->second] = row;
  }
  if (fastest.empty()) throw Error("no row of a phase");
  return grid_table(
      fastest, {"the fastest phase"}, line_of, N_of,
      [&](const Json& row) {
        const double times = times_as_fast(row, rows, "torch cudnn");
        return kernel_of(row) + " " + short_number(row.at("median_ms").number * 1e3) +
               (std::isnan(times) ? "" : format(" (%.2f)", times));
      },
      "", [](const std::string& N) { return "N = " + N + ": µs"; });
}

// What each mix reached: a line per mix and number of warps.
inline std::string ceilings_table(const std::vector<Json>& rows) {
  std::string text = table_head({"a warp issues, over and over", "warps per SM", "mma: FLOP/clk/SM", "TFLOP/s",
                                 "ldmatrix: B/clk/SM", "ex2/clk/SM", "SM clock, MHz"});
  for (const Json& row : rows) {
    std::vector<std::string> cells{row.at("mix").text};
    for (const char* name :
         {"warps", "mma_flop_per_clk", "tflops", "ldmatrix_bytes_per_clk", "ex2_per_clk", "sm_mhz"}) {
      const Json* value = row.find(name);
      cells.push_back(!value ? "" : format(value->number < 20 && *name == 'e' ? "%.1f" : "%.0f", value->number));
    }
    text += table_line(cells);
  }
  return text + "\n";
}

}  // namespace flash::bench
