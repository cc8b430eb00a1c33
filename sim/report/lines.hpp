// lines.hpp: the lines of the program in a recording, and the joining of spans. In a header, because CPU phases are
// built without the simulator.
// Use: included by MemoryRecorder and recording.cpp.
#pragma once
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/report/recording.hpp"

namespace flash {

// The lines of a file; none if it cannot be read. Recordings ask for many lines of few files.
inline const std::vector<std::string>& lines_of_file(const std::string& path) {
  static thread_local std::map<std::string, std::vector<std::string>> known;
  const auto [position, fresh] = known.try_emplace(path);
  std::ifstream in;
  if (fresh) in.open(path);
  for (std::string line; fresh && std::getline(in, line);) position->second.push_back(line);
  return position->second;
}

inline std::size_t Recording::line(const std::string& path, unsigned number) {
  using Path = std::filesystem::path;
  static const std::string root =  // this file is sim/report/lines.hpp
      Path(__FILE__).lexically_normal().parent_path().parent_path().parent_path().string() + "/";
  const std::string plain = Path(path).lexically_normal().string();
  const std::string file =
      plain.starts_with(root) ? plain.substr(root.size()) : plain.substr(plain.find_last_of('/') + 1);
  const auto known =
      std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.number == number && l.file == file; });
  if (known != lines.end()) return static_cast<std::size_t>(known - lines.begin());
  const std::vector<std::string>& all = lines_of_file(plain);
  lines.push_back({file, number, number <= all.size() ? all[number - 1] : "", plain});
  return lines.size() - 1;
}

inline bool Recording::is_code(std::size_t line) const {
  const std::string& text = lines[line].text;
  const std::size_t first = text.find_first_not_of(" \t"), last = text.find_first_of("()=;");
  return first != std::string::npos && last != std::string::npos && text.compare(first, 2, "//") != 0 &&
         text.find_first_not_of(" \t{}();") != std::string::npos;
}

inline void Recording::sort_lines() {
  std::set<std::size_t> used;
  for (const Step& step : steps) used.insert(step.at.begin(), step.at.end());
  for (const std::size_t at : used) {
    const Line one = lines[at];
    const std::size_t all = lines_of_file(one.path).size();
    for (unsigned n = one.number > 2 ? one.number - 2 : 1; n <= one.number + 2 && n <= all; ++n) line(one.path, n);
  }
  std::vector<std::size_t> order(lines.size()), rank(lines.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::tie(lines[a].file, lines[a].number) < std::tie(lines[b].file, lines[b].number);
  });
  std::vector<Line> sorted;
  for (std::size_t i = 0; i < order.size(); ++i) rank[order[i]] = i, sorted.push_back(std::move(lines[order[i]]));
  lines = std::move(sorted);
  for (Step& step : steps) {
    for (std::size_t& line : step.at) line = rank[line];
    std::sort(step.at.begin(), step.at.end());
  }
}

constexpr std::size_t kUntidy = 1024;  // spans that are kept before they are joined

inline void add_span(Recording::Spans& spans, std::uint64_t first, std::uint64_t end) {
  if (!spans.empty() && spans.back().first <= first && first <= spans.back().end) {
    spans.back().end = std::max(spans.back().end, end);
    return;
  }
  spans.push_back({first, end});
  if (spans.size() >= kUntidy && (spans.size() & (spans.size() - 1)) == 0) tidy(spans);
}

inline void tidy(Recording::Spans& spans) {
  std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Recording::Spans joined;
  for (const Recording::Span& span : spans)
    if (!joined.empty() && span.first <= joined.back().end)
      joined.back().end = std::max(joined.back().end, span.end);
    else
      joined.push_back(span);
  spans = std::move(joined);
}

}  // namespace flash
