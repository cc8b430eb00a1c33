// main.cpp: the program behind ./flash exercise: lists, tries, hints, watches, resets, reports, and proves exercises.
// Progress, one line per exercise ("05.2 hints kind"), is a file beside the reader's copies.
// Use: ./flash exercise --help
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include "phases/exercises/attempt.hpp"
#include "phases/exercises/translation.hpp"
#include "sim/error.hpp"

namespace flash::exercise {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage =
#include "phases/exercises/usage.txt"
    ;

const Workshop kWorkshop{FLASH_CHECK_SETTINGS, FLASH_TRIAL_LIBRARY, FLASH_ATTEMPT_HEADER};

// ---- the reader's language ------------------------------------------------------------------------------------------

// The translations of an exercise, "05.2", or of what this program says, "program".
fs::path po_of(const std::string& name, const std::string& to = "zh_CN") {
  return fs::path(FLASH_SOURCE_DIR) / "docs/book/locale" / to / "exercises" / (name + ".po");
}
Catalog catalog_of(const std::string& name) {
  return language().empty() ? Catalog() : Catalog(po_of(name, language()));
}

// All that this program says to a reader who works on an exercise.
const Lines kWords{"right",
                   "does not compile",
                   "finding",
                   "wrong answer",
                   "wrong count",
                   "no prediction yet",
                   "crash",
                   "not tried",
                   "not yet: ",
                   "next",
                   "A solution: ",
                   "your file: ",
                   "a hint: ",
                   "Predict: ",
                   "Edit ⟦1⟧ where it says TODO. As it is now, it gets this:",
                   "hint ⟦1⟧ of ⟦2⟧",
                   "This replaces ⟦1⟧. Type ⟦2⟧ to do it: ",
                   "Left as it is.",
                   "⟦1⟧ is new.",
                   "waiting for the next save; Ctrl-C ends",
                   "⟦1⟧ of ⟦2⟧ are right",
                   "; next: ",
                   "(⟦1⟧ s)",
                   "Right, and as you predicted: ⟦1⟧.",
                   "Right. You predicted ⟦1⟧; it is ⟦2⟧.",
                   "The code is right. Before you see the count: write your prediction, too.",
                   "A loop in your code does not end: it was stopped after ⟦1⟧ seconds.",
                   "It took longer than ⟦1⟧ seconds: does a loop on the host end?",
                   "The program ended with status ⟦1⟧ and no verdict: your code harmed the judge.",
                   "No kernel was launched.",
                   "Exercise",
                   "Try it: ",
                   "A hint: ",
                   "Before you run it, predict:"};
std::string said(const std::string& english, const Lines& values = {}) {
  static const Catalog words = catalog_of("program");
  return values.empty() ? words.sentence(english) : filled(words.text(english), values);
}

// ---- the reader's folder --------------------------------------------------------------------------------------------

fs::path folder() {
  const char* named = std::getenv("FLASH_EXERCISES");
  return named && *named ? fs::path(named) : fs::path(FLASH_SOURCE_DIR) / "exercises";
}

fs::path copy_of(const Exercise& exercise) {
  return folder() / exercise.copy_name();
}

// As the reader would type it.
std::string shown(const fs::path& path) {
  std::error_code error;
  const fs::path near = fs::relative(path, fs::current_path(), error);
  return error || near.empty() || *near.begin() == ".." ? path.string() : near.string();
}

void write(const fs::path& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream out(path);
  out << text << std::flush;
  if (!out) refuse("the file " + path.string(), "not writable", "a folder of yours", "set FLASH_EXERCISES");
}

// What is remembered of an exercise.
struct Mark {
  int hints = 0;
  std::string kind = "not tried";
};

class Progress {
 public:
  Progress() {
    std::ifstream in(folder() / "progress");
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string id;
      Mark mark;
      if (words >> id >> mark.hints && std::getline(words >> std::ws, mark.kind)) marks_[id] = mark;
    }
  }
  Mark of(const std::string& id) const {
    const auto found = marks_.find(id);
    return found == marks_.end() ? Mark() : found->second;
  }
  void set(const std::string& id, const Mark& mark) {
    marks_[id] = mark;
    std::ostringstream out;
    for (const auto& [known, m] : marks_) out << known << " " << m.hints << " " << m.kind << "\n";
    write(folder() / "progress", out.str());
  }

 private:
  std::map<std::string, Mark> marks_;
};

// ---- one exercise ---------------------------------------------------------------------------------------------------

void print(const Lines& lines, const char* indent = "") {
  for (const std::string& line : lines) std::cout << indent << line << "\n";
}

// Tries it, says what came of it, remembers it. The exit status.
int attempt(const Exercise& exercise) {
  const fs::path copy = copy_of(exercise);
  const auto begin = std::chrono::steady_clock::now();
  const Verdict verdict = try_exercise(exercise, {copy}, kWorkshop).front();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const bool right = verdict.kind == Verdict::Kind::Right;
  const std::string sentence = said(catalog_of(exercise.id).sentence(verdict.sentence));
  std::cout << (right ? "" : said("not yet: ")) << said(name(verdict.kind)) << "\n  " << sentence << "\n";
  if (right) {
    print(exercise.because, "  ");
    std::cout << said("next") << "\n";
    print(exercise.next, "  ");
    std::cout << "  " << said("A solution: ") << shown(exercise.file) << "\n";
  } else {
    if (verdict.kind == Verdict::Kind::NoPrediction) std::cout << "  " << exercise.asked << "\n";
    std::istringstream details(verdict.details);
    std::string line;
    for (int n = 0; n < 12 && std::getline(details, line); ++n) std::cout << "    " << line << "\n";
    std::cout << said("your file: ") << shown(copy) << "     " << said("a hint: ") << "./flash exercise " << exercise.id
              << " --hint\n";
  }
  std::ostringstream time;
  time << std::fixed << std::setprecision(1) << seconds.count();
  std::cout << said("(⟦1⟧ s)", {time.str()}) << "\n" << std::flush;
  Progress progress;
  Mark mark = progress.of(exercise.id);
  mark.kind = name(verdict.kind);
  progress.set(exercise.id, mark);
  return right ? 0 : 1;
}

// Makes the reader's file where there is none; shows the question then.
void begin(const Exercise& exercise) {
  const fs::path copy = copy_of(exercise);
  std::cout << exercise.id << " " << exercise.name << ": " << exercise.title << "\n";
  if (fs::exists(copy)) return;
  write(copy, exercise.source("skeleton"));
  std::cout << "\n";
  print(exercise.question, "  ");
  std::cout << "\n  " << said("Predict: ") << exercise.asked << "\n\n"
            << said("Edit ⟦1⟧ where it says TODO. As it is now, it gets this:", {shown(copy)}) << "\n\n";
}

int hint(const Exercise& exercise) {
  Progress progress;
  Mark mark = progress.of(exercise.id);
  const int all = static_cast<int>(exercise.hints.size());
  mark.hints = std::min(mark.hints + 1, all);
  for (int i = 0; i < mark.hints; ++i) {
    std::cout << said("hint ⟦1⟧ of ⟦2⟧", {std::to_string(i + 1), std::to_string(all)}) << "\n";
    print(exercise.hints[static_cast<std::size_t>(i)], "  ");
  }
  progress.set(exercise.id, mark);
  return 0;
}

int reset(const Exercise& exercise) {
  const fs::path copy = copy_of(exercise);
  if (fs::exists(copy)) {
    std::cout << said("This replaces ⟦1⟧. Type ⟦2⟧ to do it: ", {shown(copy), exercise.id}) << std::flush;
    std::string answer;
    std::getline(std::cin, answer);
    if (answer != exercise.id) {
      std::cout << "\n" << said("Left as it is.") << "\n";
      return 1;
    }
  }
  write(copy, exercise.source("skeleton"));
  Progress().set(exercise.id, Mark());
  std::cout << said("⟦1⟧ is new.", {shown(copy)}) << "\n";
  return 0;
}

// Again after each save, until it is right; then the next one that is not, of `all`.
int watch(const Exercise& exercise, const std::vector<Exercise>& all) {
  const fs::path copy = copy_of(exercise);
  begin(exercise);
  fs::file_time_type tried{};
  for (;;) {
    std::error_code gone;  // some editors remove the file for a moment when they save
    const fs::file_time_type saved = fs::last_write_time(copy, gone);
    if (!gone && saved != tried) {
      tried = saved;
      if (attempt(exercise) == 0) {
        const Progress progress;
        const auto next = std::find_if(all.begin(), all.end(), [&](const Exercise& e) {
          return e.id > exercise.id && progress.of(e.id).kind != name(Verdict::Kind::Right);
        });
        if (next == all.end()) return 0;
        std::cout << "\n" << std::flush;
        return watch(*next, all);
      }
      std::cout << said("waiting for the next save; Ctrl-C ends") << "\n\n" << std::flush;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// ---- all of them ----------------------------------------------------------------------------------------------------

int list(const std::vector<Exercise>& exercises) {
  const Progress progress;
  std::size_t right = 0;
  const Exercise* next = nullptr;
  for (const Exercise& e : exercises) {
    const Mark mark = progress.of(e.id);
    const bool done = mark.kind == name(Verdict::Kind::Right);
    right += done;
    if (!done && !next) next = &e;
    std::cout << (done ? "  [x] " : "  [ ] ") << e.id << "  " << std::left << std::setw(22) << e.name << std::setw(20)
              << said(mark.kind) << " " << e.title << "\n";
  }
  std::cout << said("⟦1⟧ of ⟦2⟧ are right", {std::to_string(right), std::to_string(exercises.size())});
  if (next) std::cout << said("; next: ") << "./flash exercise " << next->id;
  std::cout << "\n";
  return 0;
}

// Runs `job` for each number below n, on all cores.
template <class Job>
void for_all(std::size_t n, const Job& job) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failed;
  std::vector<std::jthread> workers;
  for (unsigned w = 0; w < std::max(1u, std::thread::hardware_concurrency()); ++w)
    workers.emplace_back([&] {
      try {
        for (std::size_t i; (i = next++) < n;) job(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failed = std::current_exception();
        next = n;
      }
    });
  workers.clear();
  if (failed) std::rethrow_exception(failed);
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else if (static_cast<unsigned char>(c) >= 32 || c == '\n')
      result += c;
  }
  return result;
}

int junit(const std::vector<Exercise>& exercises, const fs::path& file) {
  const auto refused = [&] { refuse("--junit", file, "a file that can be written", "choose another"); };
  const bool there = fs::exists(file);
  if (!std::ofstream(file, std::ios::app)) refused();  // at once, not when all have been tried
  if (!there) fs::remove(file);
  std::vector<std::optional<Verdict>> verdicts(exercises.size());
  for_all(exercises.size(), [&](std::size_t i) {
    if (fs::exists(copy_of(exercises[i])))
      verdicts[i] = try_exercise(exercises[i], {copy_of(exercises[i])}, kWorkshop).front();
  });
  std::size_t failures = 0, skipped = 0;
  std::ostringstream cases;
  for (std::size_t i = 0; i < exercises.size(); ++i) {
    const Exercise& e = exercises[i];
    cases << "  <testcase classname=\"exercises\" name=\"" << e.id << " " << escaped(e.name) << "\"";
    if (!verdicts[i]) {
      ++skipped;
      cases << "><skipped message=\"not begun\"/></testcase>\n";
    } else if (verdicts[i]->kind == Verdict::Kind::Right) {
      cases << "/>\n";
    } else {
      ++failures;
      cases << "><failure type=\"" << name(verdicts[i]->kind) << "\" message=\"" << escaped(verdicts[i]->sentence)
            << "\">" << escaped(verdicts[i]->details) << "</failure></testcase>\n";
    }
  }
  std::ofstream out(file);
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"flash exercise\" tests=\"" << exercises.size()
      << "\" failures=\"" << failures << "\" skipped=\"" << skipped << "\">\n"
      << cases.str() << "</testsuite>\n"
      << std::flush;
  if (!out) refused();
  std::cout << exercises.size() - failures - skipped << " right, " << failures << " not yet, " << skipped
            << " not begun; " << file.string() << "\n";
  return failures ? 1 : 0;
}

// The messages of a translation, with what the verdicts on all variants have said.
Lines with_sentences(Lines messages, const std::vector<Verdict>& verdicts) {
  for (const Verdict& verdict : verdicts) {
    Lines numbers;
    const std::string message = with_places(verdict.sentence, numbers);
    if (std::find(kWords.begin(), kWords.end(), message) != kWords.end()) continue;  // the same in all exercises
    if (std::find(messages.begin(), messages.end(), message) == messages.end()) messages.push_back(message);
  }
  return messages;
}

// What a translation lacks, in a line; "" if nothing, or if nobody has begun it.
std::string lacking(const std::string& id, const Lines& messages) {
  if (!fs::exists(po_of(id))) return "";
  const Catalog catalog(po_of(id));
  Lines missing;
  for (const std::string& message : messages)
    if (!catalog.has(message) || !same_places(message, catalog.text(message))) missing.push_back(message);
  if (missing.empty()) return "";
  return "zh_CN " + id + ": " + std::to_string(missing.size()) + " of " + std::to_string(messages.size()) +
         " messages are missing, fuzzy or without a ⟦number⟧, the first: " + missing.front();
}

bool must_be_complete(const std::string& id) {
  std::ifstream in(po_of(id).replace_filename("complete.txt"));
  for (std::string line; std::getline(in, line);)
    if (line == id) return true;
  return false;
}

// Each solution is right and as predicted; each skeleton and each variant gets its sentence. And translations have all
// of them; or are renewed.
int check(const std::vector<Exercise>& exercises, bool renew) {
  std::string pattern = (fs::temp_directory_path() / "flash-exercises.XXXXXX").string();
  if (!mkdtemp(pattern.data())) refuse("TMPDIR", fs::temp_directory_path(), "a folder to write to", "set TMPDIR");
  const fs::path work = pattern;
  std::mutex mutex;
  std::size_t all = 0, failed = 0;
  for_all(exercises.size(), [&](std::size_t i) {
    const Exercise& exercise = exercises[i];
    Lines variants{"", "skeleton"};
    for (const std::string& name : exercise.variants()) variants.push_back(name);
    std::vector<fs::path> copies;
    for (const std::string& variant : variants) {
      copies.push_back(work / exercise.id / ("v-" + variant) / exercise.copy_name());
      write(copies.back(), exercise.source(variant));
    }
    const std::vector<Verdict> verdicts = try_exercise(exercise, copies, kWorkshop);
    const std::lock_guard lock(mutex);
    const Lines messages = with_sentences(messages_of(exercise), verdicts);
    if (renew && (fs::exists(po_of(exercise.id)) || exercises.size() == 1))
      write(po_of(exercise.id), Catalog(po_of(exercise.id)).renewed(messages));
    if (const std::string lack = lacking(exercise.id, messages); !lack.empty()) {
      failed += !renew && must_be_complete(exercise.id);
      all += !renew && must_be_complete(exercise.id);
      std::cout << (must_be_complete(exercise.id) ? "FAIL " : "     ") << lack << "\n";
    }
    for (std::size_t v = 0; v < variants.size(); ++v) {
      const Verdict& verdict = verdicts[v];
      const std::string said = std::string(name(verdict.kind)) + ": " + verdict.sentence;
      const std::string wanted = v == 0 ? "right: Right, and as you predicted" : exercise.expected(variants[v]);
      const bool good = said.find(wanted) != std::string::npos;
      ++all;
      failed += !good;
      std::cout << (good ? "ok   " : "FAIL ") << exercise.id << " " << (v == 0 ? "solution" : variants[v]) << "\n     "
                << said << "\n";
      if (!good) std::cout << "     wanted: " << wanted << "\n" << verdict.details << "\n";
    }
    std::cout << std::flush;
  });
  std::error_code ignored;
  fs::remove_all(work, ignored);
  if (renew) write(po_of("program"), Catalog(po_of("program")).renewed(kWords));
  const std::string lack = lacking("program", kWords);
  if (!lack.empty()) std::cout << (must_be_complete("program") ? "FAIL " : "     ") << lack << "\n";
  failed += !lack.empty() && !renew && must_be_complete("program");
  std::cout << exercises.size() << " exercises, " << all - failed << " of " << all << " verdicts as they should be\n";
  return failed ? 1 : 0;
}

// ---- the command line -----------------------------------------------------------------------------------------------

std::vector<Exercise> chosen(const std::vector<Exercise>& all, const std::string& word) {
  std::vector<Exercise> some;
  for (const Exercise& e : all)
    if (e.id == word || e.id.substr(0, 2) == word) some.push_back(e);
  if (!some.empty()) return some;
  std::string ids;  // of its phase
  for (const Exercise& e : all)
    if (e.id.substr(0, 3) == word.substr(0, 3)) ids += (ids.empty() ? "one of " : " ") + e.id;
  refuse("exercise", "'" + word + "'", ids.empty() ? "a phase that has some, as in 05, or one, as in 05.2" : ids,
         "./flash exercise lists them");
}

int run(const Lines& words) {
  std::string id, mode, file;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.empty() || word[0] != '-') {
      if (!id.empty()) refuse("'" + word + "'", "one argument too many", "one exercise", "try them one by one");
      id = word;
      if (std::isdigit(id[0]) && (id.size() == 1 || id[1] == '.')) id.insert(0, "0");  // 5.2 means 05.2
    } else if (word == "--help" || word == "-h") {
      std::cout << kUsage + 1;  // without the first line's end
      return 0;
    } else if (word == "--hint" || word == "--watch" || word == "--reset" || word == "--check" ||
               word == "--messages" || word == "--junit") {
      if (!mode.empty()) refuse(word, "a second flag", "one of them", "leave " + mode + " out");
      mode = word;
      if (word == "--junit") {
        if (i + 1 == words.size()) refuse(word, "without a value", "a file to write", "write --junit FILE");
        file = words[++i];
      }
    } else {
      refuse("flag", "'" + word + "'", "--hint, --watch, --reset, --junit, --check or --messages",
             "see ./flash exercise --help");
    }
  }
  std::vector<Exercise> all = read_exercises(FLASH_SOURCE_DIR);
  if (mode == "--check" || mode == "--messages") return check(id.empty() ? all : chosen(all, id), mode == "--messages");
  for (Exercise& exercise : all) {
    exercise = catalog_of(exercise.id).of(exercise);
    exercise.phrases = {said("Exercise"), said("Try it: "), said("A hint: "), said("Before you run it, predict:")};
  }
  const std::vector<Exercise> some = id.empty() ? all : chosen(all, id);
  if (mode == "--junit") return junit(some, file);
  if (id.size() < 4) {
    if (!mode.empty()) refuse(mode, "without an exercise", "one, as in 05.2", "./flash exercise lists them");
    return list(some);
  }
  if (mode == "--hint") return hint(some[0]);
  if (mode == "--reset") return reset(some[0]);
  if (mode == "--watch") return watch(some[0], all);
  begin(some[0]);
  return attempt(some[0]);
}

}  // namespace
}  // namespace flash::exercise

int main(int count, char** words) {
  try {
    return flash::exercise::run({words + 1, words + count});
  } catch (const flash::exercise::Interrupted&) {
    return 130;  // as shells say it
  } catch (const std::exception& error) {
    std::cerr << "flash exercise: " << error.what() << "\n";
    return 2;
  }
}
