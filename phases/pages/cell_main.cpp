// cell_main.cpp: the main of every notebook: runs its cells in order and fails when a claim is false.
// One object file for all notebooks; each notebook is linked with it and has no main of its own.
// Use:  phase01_notebook [--list] [--cell N] [--svg DIR] [--page] [--jsonl]
//   --page   the whole page: prose and quoted code between the cells' output
//   --jsonl  for programs: what each cell prints, claims and draws as a JSON object in a line of its own
//   --svg    where pictures go, ./out unless said otherwise
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "phases/arrays/npy.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/page.hpp"
#include "sim/error.hpp"
#include "sim/report/json.hpp"

namespace flash {

struct NotebookOptions {
  int only = 0;  // the one cell to run
  bool list = false, page = false, jsonl = false;
};

static std::string picture_folder;
static int false_claims;
static bool collecting;  // for --jsonl: claims and pictures of the cell that runs
static std::string claims, pictures;

static void append(std::string& list, const std::string& item) {
  list += (list.empty() ? "" : ", ") + item;
}

void expect(bool holds, const std::string& claim, const char* file, int line) {
  false_claims += !holds;
  if (collecting)
    append(claims, "{\"claim\": " + json_string(claim) + ", \"holds\": " + (holds ? "true" : "false") + "}");
  else if (holds)
    std::printf("✓ %s\n", claim.c_str());
  else
    std::printf("✗ FALSE: %s   (%s:%d)\n", claim.c_str(), file, line);
}

void picture(const std::string& name, const std::string& svg) {
  std::error_code error;
  std::filesystem::create_directories(picture_folder, error);
  if (error) refuse("--svg", picture_folder, "a folder that can be made (" + error.message() + ")", "name another");
  const std::string path = (std::filesystem::path(picture_folder) / (name + ".svg")).string();
  write_file(path, svg);
  if (collecting)
    append(pictures, json_string(name + ".svg"));
  else
    std::printf("picture: %s\n", path.c_str());
}

static NotebookOptions read_options(int argc, char** argv) {
  NotebookOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (option == "--list") {
      options.list = true;
    } else if (option == "--page") {
      options.page = true;
    } else if (option == "--jsonl") {
      options.jsonl = true;
    } else if (option == "--cell") {
      const int last = static_cast<int>(cells().size());
      const auto end = value.data() + value.size();
      const auto [stop, error] = std::from_chars(value.data(), end, options.only);
      if (error != std::errc() || stop != end || options.only < 1 || options.only > last)
        refuse("--cell", '"' + value + '"', "1 to " + std::to_string(last), "see --list");
      ++i;
    } else if (option == "--svg") {
      if (value.empty()) refuse("--svg", "\"\"", "a folder", "pass --svg out");
      picture_folder = value;
      ++i;
    } else {
      refuse("option", '"' + option + '"', "--list, --cell N, --svg DIR, --page or --jsonl",
             "pass none to run all cells");
    }
  }
  if (options.list + options.page + options.jsonl + (options.only > 0) > 1)
    refuse("options", "two", "one of --list, --cell, --page and --jsonl", "leave the others out");
  return options;
}

// Runs a cell; false when it ended with an error.
static bool run(const Cell& cell, int number) {
  try {
    cell.run();
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "cell %d, \"%s\": %s\n", number, cell.title, error.what());
    return false;
  }
  std::fflush(stdout);
  return true;
}

static bool run_titled(const Cell& cell, int number, bool first) {
  std::printf("%s── %d. %s ──\n", first ? "" : "\n", number, cell.title);
  return run(cell, number);
}

// Runs a cell and prints what it printed, claimed and drew as one line of JSON.
static bool run_as_json(const Cell& cell, int number) {
  std::fflush(stdout);
  std::FILE* file = std::tmpfile();
  const int terminal = dup(STDOUT_FILENO);
  if (!file || terminal < 0 || dup2(fileno(file), STDOUT_FILENO) < 0) throw Error("cannot catch a cell's output");
  claims.clear(), pictures.clear(), collecting = true;
  const bool good = run(cell, number);
  collecting = false;
  dup2(terminal, STDOUT_FILENO);
  close(terminal);
  std::string printed;
  std::rewind(file);
  for (int c; (c = std::fgetc(file)) != EOF;) printed += static_cast<char>(c);
  std::fclose(file);
  std::printf(
      "{\"kind\": \"output\", \"number\": %d, \"line\": %d, \"title\": %s, \"text\": %s, \"claims\": [%s], "
      "\"pictures\": [%s]}\n",
      number, cell.line, json_string(cell.title).c_str(), json_string(printed).c_str(), claims.c_str(),
      pictures.c_str());
  return good;
}

// A formula for a terminal: of TeX's commands what the pages use, α for \\alpha, and spaces for \\quad.
static std::string without_tex(std::string formula) {
  static const std::pair<const char*, const char*> commands[] = {
      {"$$", ""},         {"^\\top", "ᵀ"},  {"\\alpha", "α"}, {"\\delta", "δ"}, {"\\varepsilon", "ε"},
      {"\\sum", "Σ"},     {"\\sqrt ", "√"}, {"\\cdot", "·"},  {"\\to", "→"},    {"\\infty", "∞"},
      {"\\qquad", "   "}, {"\\quad", " "},  {"\\, ", ""},      {"\\text", ""},   {"\\mathrm", ""},
      {"\\max", "max"},   {"\\exp", "exp"}, {"\\log", "log"}, {"{", ""},        {"}", ""}};
  for (const auto& [tex, plain] : commands)
    for (std::size_t at; (at = formula.find(tex)) != std::string::npos;) formula.replace(at, std::strlen(tex), plain);
  return "    " + formula;
}

// What a terminal shows of the book's markup: of {term}`word` and {term}`words <word>`, which are links, the word; of
// <details><summary>word</summary>, which a browser folds, the word.
static std::string without_markup(std::string line) {
  if (line.rfind("$$", 0) == 0) return without_tex(line);
  for (const std::string tag : {"<details>", "<summary>", "</summary>", "</details>"})
    if (const std::size_t at = line.find(tag); at != std::string::npos) line.erase(at, tag.size());
  for (std::size_t at; (at = line.find("{term}`")) != std::string::npos;) {
    line.erase(at, std::strlen("{term}`"));
    const std::size_t end = line.find('`', at), link = line.find(" <", at);
    if (end != std::string::npos) line.erase(std::min(end, link), end + 1 - std::min(end, link));
  }
  return line;
}

// Prose and quoted code for a terminal. Unchanged lines of a difference are left out, but for three around a change.
static void print(const Part& part) {
  static const bool plain = !isatty(STDOUT_FILENO) || std::getenv("NO_COLOR");
  const auto styled = [](const char* style, const std::string& line) {
    std::printf(plain ? "%.0s%s\n" : "\033[%sm%s\033[0m\n", style, line.c_str());
  };
  static const char *bold = "1", *dim = "2", *red = "31", *green = "32";
  const std::vector<std::string> lines = lines_of(part.text);
  for (const std::string& line : lines)
    if (part.kind == Part::Kind::Prose)
      line[0] == '#' ? styled(bold, without_markup(line)) : void(std::printf("%s\n", without_markup(line).c_str()));
  if (part.kind == Part::Kind::Question || part.kind == Part::Kind::Answer) {
    const bool asks = part.kind == Part::Kind::Question;
    styled(bold, asks ? "? Predict, before you read on:" : "! The answer:");
    for (const std::string& line : lines) std::printf("%s %s\n", asks ? "?" : "!", without_markup(line).c_str());
  }
  if (part.kind == Part::Kind::Exercises) styled(bold, "## Exercises that grade themselves");
  if (part.kind == Part::Kind::Exercises || part.kind == Part::Kind::Exercise)
    for (const std::string& line : lines)  // "05.1 how many blocks?"
      std::printf("  ./flash exercise %s  %s\n", line.substr(0, 4).c_str(), line.substr(5).c_str());
  if (part.kind == Part::Kind::Region) {
    styled(dim, "┌ " + part.file + ":" + std::to_string(part.first) + "  " + part.other);
    for (const std::string& line : lines) std::printf("│ %s\n", line.c_str());
  }
  if (part.kind == Part::Kind::Difference) {
    styled(dim, "┌ " + part.other + " → " + part.file);
    const auto changed = [&](std::size_t i) { return i < lines.size() && lines[i][0] != ' '; };
    std::size_t left_out = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      bool near = false;
      for (std::size_t d = 0; d <= 3; ++d) near = near || changed(i + d) || (i >= d && changed(i - d));
      if (near && left_out > 0) styled(dim, "│ … " + std::to_string(left_out) + " lines");
      left_out = near ? 0 : left_out + 1;
      if (near && !changed(i)) std::printf("│ %s\n", lines[i].c_str());
      if (near && changed(i)) styled(lines[i][0] == '+' ? green : red, "│ " + lines[i]);
    }
    if (left_out > 0) styled(dim, "│ … " + std::to_string(left_out) + " lines");
  }
}

// The whole page in order, each cell where its code stands in the source.
static bool run_page() {
  if (cells().empty()) return true;
  std::string notebook = cells().front().file;  // as the compiler was told; the page's names begin at the root
  for (const char* room : {"/phases/", "/tests/"})
    if (const std::size_t at = notebook.rfind(room); at != std::string::npos) notebook.erase(0, at + 1);
  std::size_t next = 0;
  bool first = true;
  const auto run_next = [&] {
    const Cell& cell = cells()[next++];
    return run_titled(cell, int(next), true);
  };
  for (const Part& part : read_page(FLASH_SOURCE_DIR, notebook)) {
    while (next < cells().size() && cells()[next].line < part.line)
      if (!run_next()) return false;
    if (part.kind != Part::Kind::Code) std::printf("%s", first ? "" : "\n");
    first = false;
    print(part);
    const int end = part.line + static_cast<int>(lines_of(part.text).size());
    while (next < cells().size() && part.kind == Part::Kind::Code && cells()[next].line < end) {
      std::printf("\n");
      if (!run_next()) return false;
    }
  }
  return true;
}

}  // namespace flash

int main(int argc, char** argv) {
  using namespace flash;
  picture_folder = "out";
  false_claims = 0;
  NotebookOptions options;
  try {
    options = read_options(argc, argv);
    if (options.page && !run_page()) return 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  int number = 0;
  for (const Cell& cell : cells()) {
    ++number;
    if (options.list) std::printf("%2d  %s:%d  %s\n", number, cell.file, cell.line, cell.title);
    if (options.list || options.page || (options.only != 0 && options.only != number)) continue;
    if (!(options.jsonl ? run_as_json(cell, number) : run_titled(cell, number, number == 1 || options.only != 0)))
      return 1;
  }
  if (false_claims && !options.jsonl) std::printf("\n%d false claim(s)\n", false_claims);
  return false_claims ? 1 : 0;
}
