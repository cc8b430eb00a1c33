// tables.cpp: flash-tables, which keeps what follows from docs/results/*.json equal to it: the tables in README.md and
// docs, the pictures of phases. --check (a test) names what is stale and exits with 1; --write renews it.
// flash-tables --check|--write [ROOT]
#include "tests/bench/tables.hpp"

#include <cstdio>
#include <functional>
#include <map>

#include "phases/interface/phase.hpp"
#include "tests/bench/staircase.hpp"

// The table of phases: name and what is new.
static std::string with_phases(const std::string& page) {
  static const std::string begin = "<!-- phases -->\n", end = "<!-- end of phases -->";
  const std::size_t head = page.find(begin), tail = page.find(end);
  if (head == std::string::npos || tail == std::string::npos) return page;
  std::string table = "\n| phase | what is new |\n|---|---|\n";
  for (const flash::Phase* phase : flash::all_phases()) {
    const std::string name = phase->name;
    table += "| [" + name + "](phases/" + name + "/notebook.cpp) | " + phase->change + " |\n";
  }
  return page.substr(0, head + begin.size()) + table + "\n" + page.substr(tail);
}

int main(int count, char** words) try {
  namespace fs = std::filesystem;
  using namespace flash;
  const std::string mode = count > 1 ? words[1] : "";
  if (mode != "--check" && mode != "--write") refuse("mode", "'" + mode + "'", "--check or --write", "pass one");
  const fs::path root = count > 2 ? words[2] : FLASH_SOURCE_DIR;
  std::vector<fs::path> pages{root / "README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  const fs::path results = root / "docs/results";
  // Files that are written as a whole.
  std::map<fs::path, std::function<std::string()>> whole{
      {results / "staircase.svg", [&] { return bench::staircase(results); }}};
  // Of what is measured: the steps within phase 13 may have a file of their own.
  bench::Marker tensor_cores;
  for (const char* name : {"predictions-tensor-cores.json", "h200-beside.json", "h200-beside-steps.json"})
    if (fs::exists(results / name)) tensor_cores.files.push_back(name);
  bench::Marker beside;
  beside.files = {"h200-beside.json"};
  if (fs::exists(results / "h200-beside.json")) {
    whole[results / "tensor-cores.svg"] = [&] {
      return bench::tensor_core_staircase(bench::rows_of(tensor_cores, results));
    };
    whole[results / "hopper.svg"] = [&] { return bench::speed_lines("13", bench::rows_of(beside, results)); };
  }
  for (const auto& [path, draw] : whole) pages.push_back(path);
  int stale = 0;
  for (const fs::path& path : pages) {
    std::ostringstream page;
    if (!(page << std::ifstream(path, std::ios::binary).rdbuf()) && path.extension() == ".md")
      throw Error("cannot read " + path.string());
    std::string fresh;
    try {
      const auto written = whole.find(path);
      fresh = written != whole.end() ? written->second() : with_phases(bench::renewed(page.str(), results));
    } catch (const Error& e) {
      throw Error(fs::relative(path, root).string() + ": " + e.what());
    }
    if (fresh == page.str()) continue;
    if (mode == "--write" && !(std::ofstream(path, std::ios::binary) << fresh).flush())
      throw Error("cannot write " + path.string());
    std::printf("%s: %s\n", fs::relative(path, root).c_str(),
                mode == "--write" ? "renewed" : "differs from docs/results; run flash-tables --write");
    ++stale;
  }
  return mode == "--check" && stale > 0 ? 1 : 0;
} catch (const flash::Error& e) {
  std::fprintf(stderr, "flash-tables: %s\n", e.what());
  return 2;
}
