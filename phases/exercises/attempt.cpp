// attempt.cpp: see attempt.hpp. The program is compiled as ./flash check compiles, by the shell, in a temporary folder.
// The attempt keeps its lines: findings and errors name the reader's file, or the exercise's where the judge stands.
// Use: see attempt.hpp.
#include "phases/exercises/attempt.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "sim/error.hpp"

namespace flash::exercise {
namespace {

namespace fs = std::filesystem;

// A folder of one's own, for as long as it is needed.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "flash-exercise.XXXXXX").string();
    if (!mkdtemp(pattern.data())) refuse("TMPDIR", fs::temp_directory_path(), "a folder to write to", "set TMPDIR");
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::string content(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

// A file's name as it stands between the quotes of #include and #line.
std::string in_quotes(const fs::path& path) {
  std::string result;
  for (const char c : path.string()) result += (c == '\\' || c == '"' ? "\\" : "") + std::string(1, c);
  return '"' + result + '"';
}

// The exit status of a shell's command; 128 and the signal's number where one ended it. Ctrl-C ends us, too.
int shell(const std::string& command) {
  const int result = std::system(command.c_str());
  const int status = WIFEXITED(result) ? WEXITSTATUS(result) : WIFSIGNALED(result) ? 128 + WTERMSIG(result) : 127;
  if (status == 128 + SIGINT) throw Interrupted();
  return status;
}

// What the program has left there.
Verdict verdict_in(const fs::path& file, int status) {
  std::ifstream in(file);
  std::string kind, sentence, details;
  if (status == 124) return {Verdict::Kind::Crash, "It took longer than 30 seconds: does a loop on the host end?", ""};
  if (status != 0 || !std::getline(in, kind) || !std::getline(in, sentence))
    return {Verdict::Kind::Crash,
            "The program ended with status " + std::to_string(status) + " and no verdict: your code harmed the judge.",
            ""};
  for (std::string line; std::getline(in, line);) details += (details.empty() ? "" : "\n") + line;
  return {kind_named(kind), without_attempts(sentence), without_attempts(details)};
}

}  // namespace

std::string without_attempts(const std::string& text) {
  static const std::regex prefix("attempt[0-9]+::");
  return std::regex_replace(text, prefix, "");
}

std::string first_error(const std::string& messages, const std::string& attempt_name) {
  std::istringstream lines(without_attempts(messages));
  std::string first;
  for (std::string line; std::getline(lines, line);) {
    if (first.empty() && !line.empty()) first = line;
    const std::size_t undefined = line.find("undefined reference to ");
    if (undefined != std::string::npos)
      return line.substr(undefined + 23) + " is declared and called, but nowhere defined";
    const std::size_t error = line.find(" error: ");
    if (error == std::string::npos) continue;
    // FILE:LINE:COLUMN: error: TEXT
    const std::size_t file = line.find(attempt_name + ":");
    if (file == std::string::npos || file > error)
      return "where the judge calls your code: " + line.substr(error + 8) +
             "; keep the names and arguments that were there, and see that each { has its }";
    const std::size_t number = file + attempt_name.size() + 1;
    return "line " + line.substr(number, line.find(':', number) - number) + ": " + line.substr(error + 8);
  }
  return first;
}

std::vector<Verdict> try_exercise(const Exercise& exercise, const std::vector<fs::path>& attempts,
                                  const Workshop& workshop) {
  const TemporaryFolder work;
  std::ofstream program(work / "attempt.cu");
  program << "namespace flash::inline FLASH_MACHINE {\nusing namespace flash::exercise;\n";
  std::string cases;
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    const std::string space = "attempt" + std::to_string(i);
    program << "namespace " << space << " {\n#include " << in_quotes(fs::absolute(attempts[i])) << "\n"
            << "#line " << exercise.judge_line << " " << in_quotes(exercise.file) << "\n";
    for (const std::string& line : exercise.judge) program << line << "\n";
    program << "}\n";
    cases += "  case " + std::to_string(i) + ": return flash::exercise::grade(flash::" + space +
             "::judge, flash::" + space + "::prediction, words + 2);\n";
  }
  program << "}\nint main(int, char** words) {\n  switch (std::stoi(words[1])) {\n" << cases << "  }\n  return 1;\n}\n";
  program.close();
  if (!program) refuse("TMPDIR", fs::temp_directory_path(), "room for a program of some megabytes", "set TMPDIR");

  // CXX, ROOT, LIBRARY, LAUNCHES, FLAGS_checked, LIBRARIES are the settings'; the flags are words. The checked machine
  // (-u) is linked first: of inline functions that both have, as those of std::string, the first is taken, and the
  // attempt's are instrumented: the checks would call themselves.
  const std::string errors = quoted((work / "errors").string()), binary = quoted((work / "program").string());
  const std::string object = quoted((work / "program.o").string());
  const int compiled =
      shell(". " + quoted(workshop.settings.string()) + "; export LC_ALL=C; exec 2>" + errors +
            "; \"$LAUNCHES\" \"$CXX\" $FLAGS_checked -w -fpch-preprocess -isystem \"$ROOT\" -include " +
            quoted(workshop.header.string()) + " -x c++ -o " + object + " -c " +
            quoted((work / "attempt.cu").string()) + " && \"$CXX\" -Wl,-u,__tsan_read4 \"$LIBRARY\" " + object + " " +
            quoted(workshop.library.string()) + " \"$LIBRARY\" $LIBRARIES -o " + binary);
  std::vector<Verdict> verdicts;
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    if (compiled != 0) {
      const std::string error = first_error(content(work / "errors"), attempts[i].filename().string());
      verdicts.push_back({Verdict::Kind::NotCompiled, error, ""});
      continue;
    }
    const fs::path file = work / "verdict";
    fs::remove(file);
    // Endless kernels end by themselves (Trial), host code does not.
    const std::string files = quoted(file.string()) + " " + quoted(attempts[i].string());
    const int status = shell("timeout --foreground 30 " + binary + " " + std::to_string(i) + " " + files);
    verdicts.push_back(verdict_in(file, status));
  }
  return verdicts;
}

}  // namespace flash::exercise
