// page.cpp: see page.hpp. Plain text processing: no cell runs here, and nothing is printed.
// The format is Jupyter's percent format; directives are MyST's, of which five are ours.
// Use: cell_main.cpp prints pages in the terminal and as JSON; tests/book_test.cpp checks their quotations.
#include "phases/pages/page.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/error.hpp"

namespace flash {
namespace {

std::string read(const std::string& root, const std::string& file) {
  std::ostringstream text;
  std::ifstream in(std::filesystem::path(root) / file, std::ios::binary);
  if (!(text << in.rdbuf())) throw Error(file + ": cannot be read");
  return text.str();
}

bool begins(const std::string& text, const std::string& with) {
  return text.compare(0, with.size(), with) == 0;
}

std::string trimmed(const std::string& line) {
  const auto first = line.find_first_not_of(' ');
  return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(' ') - first + 1);
}

// Joined lines, without the blank ones at either end.
std::string joined(const std::vector<std::string>& lines) {
  std::size_t begin = 0, end = lines.size();
  while (begin < end && lines[begin].empty()) ++begin;
  while (end > begin && lines[end - 1].empty()) --end;
  std::string text;
  for (std::size_t i = begin; i < end; ++i) text += lines[i] + "\n";
  return text;
}

std::string without_indentation(const std::vector<std::string>& lines) {
  std::size_t least = std::string::npos;
  for (const std::string& line : lines)  // the compiler's own lines stand at the margin wherever the code is
    if (!line.empty() && line[0] != '#') least = std::min(least, line.find_first_not_of(' '));
  std::vector<std::string> moved;
  for (const std::string& line : lines)
    moved.push_back(line.empty() || line[0] == '#' || least == std::string::npos ? line : line.substr(least));
  return joined(moved);
}

// A file named in a page: relative to the page's folder, or from the root when it begins with one of the rooms.
std::string resolved(const std::string& notebook, const std::string& file) {
  for (const char* room : {"phases/", "sim/", "gpu/", "tests/"})
    if (begins(file, room)) return file;
  return (std::filesystem::path(notebook).parent_path() / file).lexically_normal().string();
}

// A file's lines for a difference: without the head of three lines, which is another in each phase, and the markers.
std::vector<std::string> bare(const std::string& text) {
  std::vector<std::string> lines = lines_of(text);
  lines.erase(lines.begin(), std::find_if(lines.begin(), lines.end(), [](const auto& l) { return !begins(l, "// "); }));
  std::erase_if(lines, is_region_marker);
  return lines;
}

// The phase's own name in an include or a namespace (phases/05-first-kernel, phase05) is no difference.
std::vector<std::string> without_number(std::vector<std::string> lines) {
  for (std::string& line : lines)
    for (const std::string word : {"phases/", "phase"})
      for (std::size_t at = 0; (at = line.find(word, at)) != std::string::npos;) {
        const std::size_t begin = at += word.size();
        while (at < line.size() && std::isdigit(static_cast<unsigned char>(line[at]))) ++at;
        if (at == begin) continue;  // no number
        while (word == "phases/" && at < line.size() && line[at] != '/') ++at;
        line.erase(begin, at - begin);
        at = begin;
      }
  return lines;
}

Part quotation(const std::string& root, const std::string& notebook, int line, const std::string& directive) {
  std::istringstream words(directive.substr(directive.find('{')));
  std::string kind, first, second, more;
  words >> kind >> first >> second;
  const std::string where = notebook + ":" + std::to_string(line);
  if (second.empty() || words >> more) throw Error(where + ": " + kind + " wants two words");
  if (kind == "{difference}") {
    Part part{Part::Kind::Difference, line};
    part.other = resolved(notebook, first), part.file = resolved(notebook, second);
    const std::vector<std::string> before = bare(read(root, part.other)), after = bare(read(root, part.file));
    std::size_t i = 0, j = 0;
    for (const std::string& each : difference(without_number(before), without_number(after))) {
      part.text += each[0] + (each[0] == '-' ? before[i] : after[j]) + "\n";
      i += each[0] != '+', j += each[0] != '-';
    }
    return part;
  }
  Part part{Part::Kind::Region, line};
  part.file = resolved(notebook, first), part.other = second;
  std::string names;
  for (const Region& region : regions_of(root, part.file)) {
    if (region.name == second) part.text = region.text, part.first = region.first;
    names += " " + region.name;
  }
  if (part.first == 0)
    throw Error(where + ": " + part.file + " has no region '" + second +
                "'; it has:" + (names.empty() ? " none" : names));
  return part;
}

// What a page asks before a cell runs has to be answered behind that cell, in the same section.
class OpenQuestion {
 public:
  explicit OpenQuestion(const std::string& notebook) : notebook_(notebook) {}

  void ask(int line) {
    close("the next question");
    asked_ = line, shown_ = false;
  }
  void show() { shown_ = true; }
  void answer(int line) {
    const std::string where = notebook_ + ":" + std::to_string(line);
    if (asked_ == 0) throw Error(where + ": an answer without a {question} before it");
    if (!shown_) throw Error(where + ": the cell that shows the answer must stand before it, behind the {question}");
    asked_ = 0;
  }
  void close(const char* before) const {
    if (asked_ != 0)
      throw Error(notebook_ + ":" + std::to_string(asked_) + ": the {question} has no {answer} before " + before);
  }

 private:
  std::string notebook_;
  int asked_ = 0;       // in which line
  bool shown_ = false;  // is there a cell behind it?
};

// "05.1 how many blocks?": the number and the title in an exercise's first line, which is "// 05.1 name: title".
std::string titled_exercise(const std::string& root, const std::filesystem::path& file) {
  const std::string head = lines_of(read(root, file.string())).at(0);
  const std::size_t title = head.find(": ");
  if (!begins(head, "// ") || title == std::string::npos)
    throw Error(file.string() + ":1: expected // NN.K name: title");
  return head.substr(3, head.find(' ', 3) - 3) + head.substr(title + 1) + "\n";
}

// The exercises of a phase's folder, a line for each, in their order.
std::string exercises_of(const std::string& root, const std::filesystem::path& phase) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  if (fs::is_directory(root / phase / "exercises"))
    for (const auto& entry : fs::directory_iterator(root / phase / "exercises"))
      files.push_back(phase / "exercises" / entry.path().filename());
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) text += titled_exercise(root, file);
  return text;
}

// The exercise NN.K, wherever its phase is: its line.
std::string exercise_named(const std::string& root, const std::string& number, const std::string& notebook, int line) {
  namespace fs = std::filesystem;
  for (const auto& entry : fs::directory_iterator(fs::path(root) / "phases"))
    if (begins(entry.path().filename().string(), number.substr(0, 2) + "-"))
      for (const std::string& line : lines_of(exercises_of(root, "phases" / entry.path().filename())))
        if (begins(line, number + " ")) return line + "\n";
  throw Error(notebook + ":" + std::to_string(line) + ": there is no exercise '" + number + "'");
}

}  // namespace

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

bool is_region_marker(const std::string& line) {
  const std::string text = trimmed(line);
  return begins(text, "// #region") || begins(text, "// #endregion");
}

std::vector<Region> regions_of(const std::string& root, const std::string& file) {
  std::vector<Region> regions;
  std::vector<std::string> inside;
  bool open = false;
  int number = 0;
  for (const std::string& line : lines_of(read(root, file))) {
    ++number;
    const std::string where = file + ":" + std::to_string(number) + ": ";
    if (!is_region_marker(line)) {
      if (open) inside.push_back(line);
      continue;
    }
    if (begins(trimmed(line), "// #endregion")) {
      if (!open) throw Error(where + "#endregion without #region");
      regions.back().text = without_indentation(inside), regions.back().last = number - 1;
      open = false, inside.clear();
      continue;
    }
    const std::string marker = trimmed(line).substr(std::string("// #region").size());
    const std::string name = trimmed(marker.substr(0, marker.find(':')));
    if (open) throw Error(where + "a region inside region '" + regions.back().name + "'");
    if (name.empty()) throw Error(where + "a region without a name");
    for (const Region& other : regions)
      if (other.name == name) throw Error(where + "a second region '" + name + "'");
    regions.push_back({name, "", number + 1, 0});
    open = true;
  }
  if (open) throw Error(file + ": region '" + regions.back().name + "' has no end");
  return regions;
}

std::vector<Part> read_page(const std::string& root, const std::string& notebook) {
  std::vector<Part> parts;
  std::vector<std::string> lines;  // of the part that is being read
  Part current{Part::Kind::Code, 1};
  bool in_cell = false, in_quotation = false, in_question = false;  // the last: or in an answer
  std::string named;                                                // the exercises that the page names
  OpenQuestion question(notebook);
  const auto close = [&](Part next) {
    const bool asked = current.kind == Part::Kind::Question || current.kind == Part::Kind::Answer;
    if (asked && (in_question || joined(lines).empty()))
      throw Error(notebook + ":" + std::to_string(current.line) + ": expected text, and ``` alone in a line behind it");
    current.text = joined(lines);
    if (!current.text.empty()) parts.push_back(current);
    lines.clear();
    current = std::move(next);
  };
  int number = 0;
  for (const std::string& line : lines_of(read(root, notebook))) {
    ++number;
    if (begins(line, "// %%")) {
      const bool prose = line.find("[markdown]") != std::string::npos;
      close({prose ? Part::Kind::Prose : Part::Kind::Code, number + 1});
      current.folded = line.find("\"hide-input\"") != std::string::npos;
    } else if (current.kind == Part::Kind::Code) {
      if (lines.empty() && line.empty()) continue;
      if (lines.empty()) current.line = number;
      lines.push_back(line);
      if (begins(line, "CELL(")) in_cell = true, question.show();
      if (!in_cell || line != "}") continue;
      in_cell = false;  // a cell ends its part
      Part next{Part::Kind::Code, number + 1};
      next.folded = current.folded;
      close(next);
    } else {
      const std::string prose = begins(line, "// ") ? line.substr(3) : begins(line, "//") ? line.substr(2) : line;
      if (begins(prose, "```{region}") || begins(prose, "```{difference}")) {
        close({Part::Kind::Prose, number + 2});
        parts.push_back(quotation(root, notebook, number, prose));
        in_quotation = true;  // until the closing fence
      } else if (const std::string directive = "```{exercise} "; begins(prose, directive)) {
        const std::string line_of_it = exercise_named(root, prose.substr(directive.size()), notebook, number);
        close({Part::Kind::Prose, number + 2});
        parts.push_back({.kind = Part::Kind::Exercise, .line = number, .text = line_of_it});
        named += line_of_it;
        in_quotation = true;
      } else if (prose == "```{question}" || prose == "```{answer}") {
        const bool asks = prose == "```{question}";
        asks ? question.ask(number) : question.answer(number);
        close({asks ? Part::Kind::Question : Part::Kind::Answer, number + 1});
        in_question = true;
      } else if (in_question && prose == "```") {
        in_question = false;
        close({Part::Kind::Prose, number + 1});
      } else if (in_quotation) {
        if (prose != "```") throw Error(notebook + ":" + std::to_string(number) + ": expected ``` alone in its line");
        in_quotation = false;
      } else {
        if (begins(prose, "#")) question.close("the next heading");
        lines.push_back(prose);
      }
    }
  }
  close({Part::Kind::Code, number});
  question.close("the page's end");
  const std::filesystem::path path = notebook;
  std::string text = path.filename() == "notebook.cpp" ? exercises_of(root, path.parent_path()) : named;
  if (!text.empty()) parts.push_back({.kind = Part::Kind::Exercises, .line = number + 1, .text = std::move(text)});
  return parts;
}

std::vector<std::string> difference(const std::vector<std::string>& before, const std::vector<std::string>& after) {
  // common[i][j]: the length of the longest common subsequence of what follows line i of one and line j of the other.
  const std::size_t n = before.size(), m = after.size();
  std::vector<std::vector<int>> common(n + 1, std::vector<int>(m + 1));
  for (std::size_t i = n; i-- > 0;)
    for (std::size_t j = m; j-- > 0;)
      common[i][j] = before[i] == after[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  std::vector<std::string> lines;
  for (std::size_t i = 0, j = 0; i < n || j < m;) {
    if (i < n && j < m && before[i] == after[j])
      lines.push_back(" " + before[i]), ++i, ++j;
    else if (j == m || (i < n && common[i + 1][j] >= common[i][j + 1]))
      lines.push_back("-" + before[i++]);
    else
      lines.push_back("+" + after[j++]);
  }
  return lines;
}

}  // namespace flash
