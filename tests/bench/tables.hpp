// tables.hpp: Markdown tables from docs/results/*.json, written between two markers of a page:
//   <!-- results kernels h200-phases.json h200-torch.json -->  …  <!-- end of results -->
// The first word is a sweep ("kernels"), "summary" or "sectors". flash-tables (tables.cpp) checks and writes all pages.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "phases/common/text.hpp"
#include "tests/bench/json.hpp"

namespace flash::bench {

inline std::string format(const char* pattern, double x) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, x);
  return text;
}

// Three significant figures: 0.0321, 4.56, 78.9, 1234.
inline std::string short_number(double x) {
  return format(x < 0.1 ? "%.4f" : x < 1 ? "%.3f" : x < 10 ? "%.2f" : x < 100 ? "%.1f" : "%.0f", x);
}

inline std::string table_line(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

inline std::string table_head(const std::vector<std::string>& cells) {
  std::string line = "|---|";
  for (std::size_t i = 1; i < cells.size(); ++i) line += "---:|";
  return table_line(cells) + line + "\n";
}

// The different values of `name` among rows, in their order.
using Name = std::function<std::string(const Json&)>;
inline std::vector<std::string> values_of(const std::vector<Json>& rows, const Name& name) {
  std::vector<std::string> values;
  for (const Json& row : rows)
    if (std::find(values.begin(), values.end(), name(row)) == values.end()) values.push_back(name(row));
  return values;
}

inline std::string kernel_of(const Json& row) {
  return row.at("kernel").text;
}
inline std::string N_of(const Json& row) {
  return std::to_string(static_cast<long long>(row.at("N").number));
}
inline std::string series_of(const Json& row) {
  std::string text;
  for (const char* size : {"B", "H", "D"})
    text += size + std::to_string(static_cast<long long>(row.at(size).number)) + " ";
  return text + (row.at("causal").truth ? "causal" : "full");
}

inline std::string cell(const Json& row) {
  if (const Json* bytes = row.find("out_of_memory_bytes"))
    return "out of memory (wants " + format("%.0f", bytes->number * 1e-9) + " GB)";
  return short_number(row.at("tflops").number) + " (" + short_number(row.at("median_ms").number) + " ms)";
}

// One table per series: a line per N, a column per kernel.
inline std::string sweep_tables(const std::string& sweep, const std::vector<Json>& all) {
  std::vector<Json> rows;
  for (const Json& row : all)
    if (row.at("sweep").text == sweep) rows.push_back(row);
  if (rows.empty()) throw Error("no row of sweep " + sweep);
  std::string text;
  for (const std::string& series : values_of(rows, series_of)) {
    std::vector<Json> in_series;
    for (const Json& row : rows)
      if (series_of(row) == series) in_series.push_back(row);
    const std::vector<std::string> kernels = values_of(in_series, kernel_of);
    std::vector<std::string> head{"N"};
    head.insert(head.end(), kernels.begin(), kernels.end());
    text += series + ", " + in_series[0].at("type").text + ": TFLOP/s (median time)\n\n" + table_head(head);
    for (const std::string& N : values_of(in_series, N_of)) {
      std::vector<std::string> cells{N};
      for (const std::string& kernel : kernels) {
        cells.push_back("");
        for (const Json& row : in_series)
          if (N_of(row) == N && kernel_of(row) == kernel) cells.back() = cell(row);
      }
      text += table_line(cells);
    }
    text += "\n";
  }
  return text;
}

// Every kernel at one shape, the largest of the kernels' sweep, and how far it is from the fastest one in the same table.
inline std::string summary_table(const std::vector<Json>& all) {
  const auto chosen = [&](bool causal) {
    std::vector<Json> rows;
    for (const Json& row : all)
      if (row.at("sweep").text == "kernels" && N_of(row) == "8192" && row.at("D").number == 64 &&
          row.at("causal").truth == causal && !row.find("out_of_memory_bytes"))
        rows.push_back(row);
    return rows;
  };
  const std::vector<Json> full = chosen(false), causal = chosen(true);
  if (full.empty()) throw Error("no row of the summary's shape");
  const auto cells = [](const std::vector<Json>& rows, const std::string& kernel) {
    double best = 0;
    for (const Json& row : rows) best = std::max(best, row.at("tflops").number);
    for (const Json& row : rows)
      if (kernel_of(row) == kernel)
        return std::vector<std::string>{short_number(row.at("median_ms").number), short_number(row.at("tflops").number),
                                        format("%.1f %%", 100 * row.at("tflops").number / best)};
    return std::vector<std::string>{"", "", ""};
  };
  std::string text =
      series_of(full[0]).substr(0, series_of(full[0]).rfind(' ')) + ", N = 8192, " + full[0].at("type").text + "\n\n" +
      table_head({"kernel", "ms", "TFLOP/s", "of the fastest", "causal: ms", "TFLOP/s", "of the fastest"});
  for (const std::string& kernel : values_of(full, kernel_of)) {
    std::vector<std::string> line{kernel};
    for (const auto& rows : {full, causal})
      for (const std::string& c : cells(rows, kernel)) line.push_back(c);
    text += table_line(line);
  }
  return text + "\n";
}

// The simulator's counters beside the hardware's: one number where they agree, both, in bold, where they do not.
inline std::string sectors_table(const std::vector<Json>& rows) {
  const Name case_of = [](const Json& row) { return row.at("case").text; };
  const Name counter_of = [](const Json& row) { return row.at("counter").text; };
  const std::vector<std::string> counters = values_of(rows, counter_of);
  std::vector<std::string> head{"phase and shape"};
  head.insert(head.end(), counters.begin(), counters.end());
  std::string text = table_head(head);
  const auto whole = [](const Json& n) { return grouped(static_cast<std::uint64_t>(n.number)); };
  for (const std::string& name : values_of(rows, case_of)) {
    std::vector<std::string> cells{name};
    for (const std::string& counter : counters) {
      cells.push_back("");
      for (const Json& row : rows) {
        if (case_of(row) != name || counter_of(row) != counter) continue;
        const Json &ours = row.at("simulator"), &theirs = row.at("gpu");
        if (ours.kind == Json::Null || theirs.kind == Json::Null)
          cells.back() = whole(ours.kind == Json::Null ? theirs : ours);
        else
          cells.back() = ours.number == theirs.number ? whole(ours) : "**" + whole(ours) + " / " + whole(theirs) + "**";
      }
    }
    text += table_line(cells);
  }
  return text + "\n";
}

// "NVIDIA H200, driver 580, CUDA 13.0, …; SM clock 1965 to 1980 MHz; commit abc, 2025-11-21"
inline std::string environment_line(const Json& file) {
  const auto field = [&](const char* name) { return file.at("environment").at(name).text; };
  std::string text = field("gpu") + ", driver " + field("driver") + ", CUDA " + field("cuda");
  if (const Json* torch = file.at("environment").find("torch")) text += ", torch " + torch->text;
  double low = 0, high = 0;
  for (const Json& row : file.at("rows").items)
    if (const Json* mhz = row.find("sm_mhz")) {
      low = low == 0 ? mhz->number : std::min(low, mhz->number);
      high = std::max(high, mhz->number);
    }
  if (high > 0) text += "; SM clock " + format("%.0f", low) + " to " + format("%.0f", high) + " MHz while timed";
  return text + "; commit " + field("commit") + ", " + field("date") + "\n";
}

// What belongs between the markers. `words`: the kind of table, then file names in `folder`.
inline std::string render(const std::vector<std::string>& words, const std::filesystem::path& folder) {
  std::vector<Json> rows;
  std::string sources, missing;
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::ifstream file(folder / words[i], std::ios::binary);
    if (!file) {
      missing += (missing.empty() ? "" : ", ") + words[i];
      continue;
    }
    std::ostringstream text;
    text << file.rdbuf();
    const Json json = parse_json(text.str(), words[i]);
    const std::vector<Json>& more = json.at("rows").items;
    rows.insert(rows.end(), more.begin(), more.end());
    sources += (sources.empty() ? "" : "<br>\n") + words[i] + ": " + environment_line(json);
    sources.pop_back();
  }
  if (!missing.empty()) missing = "Not measured yet: " + missing + " in docs/results.\n";
  if (rows.empty()) return missing;
  std::string table;
  if (words[0] == "summary")
    table = summary_table(rows);
  else if (words[0] == "sectors")
    table = sectors_table(rows);
  else
    table = sweep_tables(words[0], rows);
  return table + sources + "\n" + missing;
}

// The page with all its tables renewed; the same text where none was stale.
inline std::string renewed(const std::string& page, const std::filesystem::path& folder) {
  static const std::string begin = "<!-- results ", close = " -->\n", end = "<!-- end of results -->";
  std::string out;
  std::size_t at = 0;
  for (std::size_t marker; (marker = page.find(begin, at)) != std::string::npos;) {
    const std::size_t head = page.find(close, marker), tail = page.find(end, marker);
    if (head == std::string::npos || tail == std::string::npos || tail < head)
      throw Error("a marker '" + begin + "…' without its ' -->' or '" + end + "'");
    std::istringstream line(page.substr(marker + begin.size(), head - marker - begin.size()));
    std::vector<std::string> words;
    for (std::string word; line >> word;) words.push_back(word);
    if (words.size() < 2) throw Error("a marker '" + begin + "…' without table or file");
    out += page.substr(at, head + close.size() - at) + "\n" + render(words, folder) + "\n";
    at = tail;
  }
  return out + page.substr(at);
}

}  // namespace flash::bench
