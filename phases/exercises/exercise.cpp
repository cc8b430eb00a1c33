// exercise.cpp: see exercise.hpp. Directives are comments "//# word text"; lines of variants begin with "//| ", and
// "//~ old ==> new" changes the solution's lines instead.
// A mistake in a file of ours must not reach a reader, so whatever is not understood is refused with its line.
// Use: see exercise.hpp.
#include "phases/exercises/exercise.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "sim/error.hpp"

namespace flash::exercise {
namespace {

bool begins_with(const std::string& text, const std::string& begin) {
  return text.compare(0, begin.size(), begin) == 0;
}
std::string without_indent(const std::string& line) {
  return line.substr(std::min(line.size(), line.find_first_not_of(' ')));
}
// "first rest" -> "first"; text becomes "rest".
std::string take_word(std::string& text) {
  const std::size_t space = text.find(' ');
  const std::string word = text.substr(0, space);
  text = space == std::string::npos ? "" : without_indent(text.substr(space));
  return word;
}

class Reader {
 public:
  explicit Reader(const std::filesystem::path& file) : file_(file) {
    exercise_.file = file;
    const std::string phase = file.parent_path().parent_path().filename().string();
    exercise_.name = file.stem().string();
    const std::size_t dash = exercise_.name.find('-');
    if (phase.size() < 3 || dash == std::string::npos) fail("a file phases/NN-name/exercises/K-name.cu");
    exercise_.id = phase.substr(0, 2) + "." + exercise_.name.substr(0, dash);
    exercise_.name.erase(0, dash + 1);
  }

  Exercise read() {
    std::ifstream in(file_);
    for (std::string line; std::getline(in, line);) {
      ++number_;
      if (number_ == 1) {
        head(line);
      } else if (section_ == "judge") {
        exercise_.judge.push_back(line);
      } else if (const std::string text = without_indent(line); begins_with(text, "//# ")) {
        directive(text.substr(4), line.substr(0, line.size() - text.size()));
      } else {
        add(line);
      }
    }
    check();
    return std::move(exercise_);
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    throw Error(file_.string() + ":" + std::to_string(number_) + ": expected " + expected +
                "; docs/exercises.md has the format");
  }

  // "// 05.6 two-barriers: a tile is filled by all and read by all."
  void head(const std::string& line) {
    const std::string begin = "// " + exercise_.id + " " + exercise_.name + ": ";
    if (!begins_with(line, begin)) fail("a first line that begins with " + begin);
    exercise_.title = line.substr(begin.size());
  }

  void directive(std::string text, const std::string& indent) {
    const std::string word = take_word(text);
    Stretch* hole = in_hole_ ? &exercise_.code.back() : nullptr;
    if (word == "question" || word == "because" || word == "next" || word == "code" || word == "judge") {
      if (hole) fail("//# end of the hole before //# " + word);
      if (word == "judge") exercise_.judge_line = number_ + 1;
      if (word == "code") exercise_.code.emplace_back();
    } else if (word == "hint") {
      exercise_.hints.emplace_back();
    } else if (word == "predict") {
      const std::string count = take_word(text);
      const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), exercise_.prediction);
      if (error != std::errc() || end != count.data() + count.size() || text.empty())
        fail("//# predict NUMBER QUESTION");
      exercise_.asked = text;
    } else if (word == "hole" && section_ == "code" && !hole) {
      if (text.empty()) fail("//# hole TASK");
      exercise_.code.push_back({text, indent, {}, {}});
      in_hole_ = true;
      return;
    } else if (word == "skeleton:" && hole) {
      hole->variants.push_back({"skeleton", text, {}});
      return;
    } else if (word == "wrong" && hole) {
      std::string name = take_word(text);
      if (name.empty() || name.back() != ':') fail("//# wrong NAME: SENTENCE");
      name.pop_back();
      hole->variants.push_back({name, text, {}});
      return;
    } else if (word == "also" && hole) {
      if (text.empty() || text.find(' ') != std::string::npos) fail("//# also NAME");
      hole->variants.push_back({text, kRight, {}});
      return;
    } else if (word == "end" && hole) {
      in_hole_ = false;
      exercise_.code.emplace_back();
      return;
    } else {
      fail("question, predict, hint, because, next, code, judge, or in the code hole, skeleton:, wrong, also, end");
    }
    section_ = word;
  }

  void add(const std::string& line) {
    if (section_.empty() || section_ == "predict") return;
    if (section_ == "code") {
      Stretch& now = exercise_.code.back();
      const std::string text = without_indent(line);
      if (!in_hole_ || now.variants.empty()) {
        // (an editor may have moved the directive; what stands in a hole is where the solution is)
        if (in_hole_ && now.lines.empty()) now.indent = line.substr(0, line.size() - text.size());
        now.lines.push_back(line);
      } else if (begins_with(text, "//|")) {
        now.variants.back().lines.push_back(text.size() > 4 ? now.indent + text.substr(4) : "");
      } else if (begins_with(text, "//~ ")) {
        substitute(now, text.substr(4));
      } else {
        fail("//| before a variant's line, //~ before a substitution, or //# end");
      }
      return;
    }
    if (line.empty()) return;
    if (!begins_with(line, "//")) fail("a comment");
    const std::string text = line.size() > 3 ? line.substr(3) : "";
    if (section_ == "question") exercise_.question.push_back(text);
    if (section_ == "because") exercise_.because.push_back(text);
    if (section_ == "next") exercise_.next.push_back(text);
    if (section_ == "hint") exercise_.hints.back().push_back(text);
  }

  // "old ==> new": the variant is the solution with this in place of that, which stands there once.
  void substitute(Stretch& hole, const std::string& text) {
    const std::size_t arrow = text.find(" ==>");
    if (arrow == std::string::npos) fail("//~ OLD ==> NEW");
    const std::string from = text.substr(0, arrow), to = without_indent(text.substr(arrow + 4));
    Lines& lines = hole.variants.back().lines;
    if (lines.empty()) lines = hole.lines;
    std::string* place = nullptr;
    for (std::string& line : lines) {
      const std::size_t at = line.find(from);
      if (at == std::string::npos) continue;
      if (place || line.find(from, at + 1) != std::string::npos) fail("'" + from + "' once in the solution");
      place = &line;
    }
    if (!place) fail("'" + from + "' in the solution");
    place->replace(place->find(from), from.size(), to);
  }

  void check() {
    const Exercise& e = exercise_;
    const bool has_hole = std::any_of(e.code.begin(), e.code.end(), [](const Stretch& s) { return !s.task.empty(); });
    if (in_hole_) fail("//# end");
    if (!has_hole) fail("a //# hole in the //# code");
    if (e.question.empty()) fail("a //# question");
    if (e.asked.empty()) fail("//# predict");
    if (e.hints.size() != 3) fail("three times //# hint");
    if (e.because.empty() || e.next.empty()) fail("//# because and //# next");
    if (e.judge.empty()) fail("//# judge");
    if (e.expected("skeleton").empty()) fail("//# skeleton: with the sentence that it must get");
    std::size_t wrong = 0;
    for (const std::string& name : e.variants()) {
      if (e.expected(name).empty()) fail("the sentence that " + name + " must get");
      wrong += e.expected(name) != kRight;
    }
    if (wrong < 2) fail("two //# wrong variants or more");
  }

  std::filesystem::path file_;
  Exercise exercise_;
  std::size_t number_ = 0;
  std::string section_;
  bool in_hole_ = false;
};

}  // namespace

Lines Exercise::variants() const {
  Lines names;
  for (const Stretch& stretch : code)
    for (const Variant& variant : stretch.variants)
      if (variant.name != "skeleton" && std::find(names.begin(), names.end(), variant.name) == names.end())
        names.push_back(variant.name);
  return names;
}

std::string Exercise::expected(const std::string& variant) const {
  for (const Stretch& stretch : code)
    for (const Variant& v : stretch.variants)
      if (v.name == variant && !v.sentence.empty()) return v.sentence;
  return "";
}

std::string Exercise::source(const std::string& variant) const {
  std::ostringstream out;
  const bool skeleton = variant == "skeleton";
  out << "// " << phrases.exercise << " " << id << ", " << name << ": " << title << "\n//\n";
  for (const std::string& line : question) out << "//" << (line.empty() ? "" : " ") << line << "\n";
  out << "//\n// " << phrases.try_it << "./flash exercise " << id << "     " << phrases.hint << "./flash exercise "
      << id << " --hint\n\n// " << phrases.predict << "\n// " << asked << "\n"
      << "constexpr long long prediction = " << (skeleton ? "unknown" : std::to_string(prediction)) << ";\n";
  for (const Stretch& stretch : code) {
    const Lines* lines = &stretch.lines;
    for (const Variant& v : stretch.variants)
      if (v.name == variant) lines = &v.lines;
    if (!stretch.task.empty()) out << stretch.indent << (skeleton ? "// TODO: " : "// ") << stretch.task << "\n";
    for (const std::string& line : *lines) out << line << "\n";
  }
  std::string text = out.str();
  text.erase(text.find_last_not_of('\n') + 2);
  return text;
}

Exercise read_exercise(const std::filesystem::path& file) {
  return Reader(file).read();
}

std::vector<Exercise> read_exercises(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> files;
  for (const auto& phase : std::filesystem::directory_iterator(root / "phases")) {
    const std::filesystem::path folder = phase.path() / "exercises";
    if (!std::filesystem::is_directory(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".cu") files.push_back(entry.path());
  }
  std::vector<Exercise> all;
  for (const auto& file : files) all.push_back(read_exercise(file));
  std::sort(all.begin(), all.end(), [](const Exercise& a, const Exercise& b) { return a.id < b.id; });
  return all;
}

}  // namespace flash::exercise
