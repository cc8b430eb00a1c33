// launches.cpp: the program flash-launches, through which kernel files are compiled by g++: it turns CUDA's launches
// into C++. `kernel<<<grid, block>>>(x)` becomes a call of launch.hpp's on_this_machine(grid, block).kernel(…)(x), and
// __launch_bounds__(n) a check at the begin of the kernel.
// Use: cmake/kernels.cmake sets it before the compiler: flash-launches [ccache] g++ … -o file.o -c file.cpp

// It preprocesses the file, rewrites the result token by token and hands that to the compiler. Nothing else changes:
// each line keeps its number, so that errors, findings and debuggers name the lines of the kernel file.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

// ---- Tokens ------------------------------------------------------------------------------------------------------

enum class Kind { word, literal, punctuation };  // a word is a name, a keyword or a number

struct Token {
  std::size_t begin, end;  // its place in the text
  Kind kind;
};

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c));
}

// Where the literal that begins at `at` with a quote ends.
std::size_t end_of_literal(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != text[at]) end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

// The same for a raw string, R"end(…)end".
std::size_t end_of_raw_string(std::string_view text, std::size_t at) {
  const std::size_t open = text.find('(', at);
  if (open == std::string_view::npos) return text.size();
  const std::string close = ")" + std::string(text.substr(at + 1, open - at - 1)) + "\"";
  const std::size_t end = text.find(close, open);
  return end == std::string_view::npos ? text.size() : end + close.size();
}

std::size_t end_of_word(std::string_view text, std::size_t at) {
  const bool number = is_digit(text[at]) || text[at] == '.';
  const auto belongs = [&](std::size_t i) {
    if (in_word(text[i])) return true;
    if (!number) return false;
    const bool exponent = std::strchr("eEpP", text[i - 1]);
    return text[i] == '.' || text[i] == '\'' || (exponent && (text[i] == '+' || text[i] == '-'));
  };
  std::size_t end = at + 1;
  while (end < text.size() && belongs(end)) ++end;
  return end;
}

// A line that begins with #: a line marker, # 12 "file", or a pragma.
struct Directive {
  std::size_t begin, end;
};

struct Tokens {
  std::vector<Token> tokens;
  std::vector<Directive> directives;
};

// Of preprocessed text, where comments are gone. "<" and ">" are tokens of their own: what they mean is not known yet.
Tokens tokens_of(std::string_view text) {
  Tokens result;
  bool line_begins = true;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (std::isspace(static_cast<unsigned char>(c))) {
      line_begins |= c == '\n';
      ++at;
      continue;
    }
    Token token{at, at + 1, Kind::punctuation};
    if (c == '#' && line_begins) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      result.directives.push_back({at, end});
      at = end;
      continue;
    }
    if (c == '"' || c == '\'') {
      token = {at, end_of_literal(text, at), Kind::literal};
    } else if (in_word(c) || (c == '.' && at + 1 < text.size() && is_digit(text[at + 1]))) {
      token = {at, end_of_word(text, at), Kind::word};
      const std::string_view word = text.substr(at, token.end - at);
      if (token.end < text.size() && text[token.end] == '"' && word.ends_with('R') && word.size() <= 3)  // R, LR, u8R
        token = {at, end_of_raw_string(text, token.end), Kind::literal};
    } else if (text.substr(at, 2) == "::" || text.substr(at, 2) == "->") {
      token.end = at + 2;
    }
    result.tokens.push_back(token);
    at = token.end;
    line_begins = false;
  }
  return result;
}

// ---- Launches ----------------------------------------------------------------------------------------------------

struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Rewriter {
 public:
  explicit Rewriter(std::string_view text) : text_(text) {
    Tokens found = tokens_of(text);
    tokens_ = std::move(found.tokens), directives_ = std::move(found.directives);
  }

  // The text with all launches rewritten. Throws Malformed, "file:line: error: …".
  std::string rewritten() {
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      if (opens_launch(i))
        launch(i);
      else if (at(i) == "flash_launch_bounds")
        launch_bounds(i);
    std::string result;
    std::size_t copied = 0;
    for (const auto& [begin, edit] : edits_) {
      result.append(text_.substr(copied, begin - copied)).append(edit.text);
      copied = edit.end;
    }
    return result.append(text_.substr(copied));
  }

 private:
  struct Edit {
    std::size_t end;
    std::string text;
  };

  std::string_view at(std::size_t i) const {
    return i < tokens_.size() ? text_.substr(tokens_[i].begin, tokens_[i].end - tokens_[i].begin) : std::string_view();
  }
  // Do tokens i and i + 1 touch each other?
  bool touch(std::size_t i) const { return i + 1 < tokens_.size() && tokens_[i].end == tokens_[i + 1].begin; }
  // Three in a row. The preprocessor may put a blank after or before the pair when they come from a macro.
  bool triple(std::size_t i, std::string_view angle) const {
    return at(i) == angle && at(i + 1) == angle && at(i + 2) == angle && (touch(i) || touch(i + 1));
  }
  // `operator<<<int>` and `operator<< <>` are no launches.
  bool opens_launch(std::size_t i) const { return triple(i, "<") && (i == 0 || at(i - 1) != "operator"); }
  bool closes_launch(std::size_t i) const { return triple(i, ">") && at(i + 3) == "("; }

  // A name that an expression may contain: not a number, not `return` and its kind.
  bool is_name(std::size_t i) const {
    static constexpr std::string_view kKeywords[] = {"return", "else",   "do",       "case",     "if",       "while",
                                                     "for",    "switch", "co_yield", "co_await", "co_return"};
    return tokens_[i].kind == Kind::word && !is_digit(at(i)[0]) &&
           std::find(std::begin(kKeywords), std::end(kKeywords), at(i)) == std::end(kKeywords);
  }

  // The token that opens what token i closes; none when a statement begins in between.
  std::optional<std::size_t> opening(std::size_t i) const {
    static constexpr std::string_view kOpen = "([<", kClose = ")]>";
    const std::string_view close = at(i), open = kOpen.substr(kClose.find(close), 1);
    for (std::size_t depth = 1; i > 0 && depth > 0;) {
      const std::string_view token = at(--i);
      if (token == open && --depth == 0) return i;
      if (token == close) ++depth;
      if (close == ">" && (token == ")" || token == "]")) {  // (a > b) is no bracket
        const std::optional<std::size_t> inner = opening(i);
        if (!inner) return {};
        i = *inner;
      }
      if (close == ">" && (token == ";" || token == "{" || token == "}")) return {};
    }
    return {};
  }

  // The first token of the expression that ends before token `end`: k, ns::k<T, 32>, (*f), table[i], a.f, get(1).
  std::optional<std::size_t> kernel_begin(std::size_t end) const {
    for (std::size_t first = end; first > 0;) {
      std::size_t p = first - 1;
      // Subscripts, calls, template arguments: to the left of them stands what they belong to.
      while (at(p) == "]" || at(p) == ")" || at(p) == ">") {
        const std::optional<std::size_t> open = opening(p);
        if (!open) return {};
        const bool belongs = *open > 0 && (is_name(*open - 1) || at(*open - 1) == "]" || at(*open - 1) == ">");
        if (at(p) == ")" && !belongs) return *open;  // (*f)
        if (!belongs && !(at(p) == "]" && *open > 0 && at(*open - 1) == ")")) return {};
        p = *open - 1;
      }
      if (!is_name(p)) return {};
      first = p;
      // What is it a member of?
      if (first > 0 && at(first - 1) == "template") --first;
      if (first == 0) return first;
      if (at(first - 1) == "." || at(first - 1) == "->") {
        --first;
      } else if (at(first - 1) == "::") {
        --first;
        if (first == 0 || !(is_name(first - 1) || at(first - 1) == ">")) return first;  // ::k
      } else {
        return first;
      }
    }
    return {};
  }

  // The first token of the >>> that ends the configuration which begins at token i.
  std::optional<std::size_t> configuration_end(std::size_t i) const {
    // At first take "name<" for the begin of template arguments, as in k<<<1, Traits<Traits<A<T>>>(1)>>>; if that leads
    // nowhere, one of them was a comparison: then the first >>>( it is.
    for (const bool templates : {true, false}) {
      int depth = 0, angles = 0;
      for (std::size_t j = i; j < tokens_.size() && depth >= 0; ++j) {
        const std::string_view token = at(j);
        if (token == "(" || token == "[" || token == "{") ++depth;
        if (token == ")" || token == "]" || token == "}") --depth;
        if (depth > 0) continue;
        if (token == ";") break;
        if (angles == 0 && closes_launch(j)) return j;
        if (token == "<" && at(j + 1) == "<") {  // a shift
          ++j;
        } else if (templates && token == "<" && is_name(j - 1)) {
          ++angles;
        } else if (token == ">" && angles > 0) {
          --angles;
        }
      }
    }
    return {};
  }

  // Rewrites the launch whose <<< begins at token i.
  void launch(std::size_t i) {
    const std::optional<std::size_t> first = kernel_begin(i);
    if (!first) throw malformed(i, "there is no kernel's name before <<<");
    const std::optional<std::size_t> close = configuration_end(i + 3);
    if (!close) throw malformed(i, "there is no >>>(arguments) after <<<");

    // Line breaks and line markers inside the kernel's expression move in front of it; it comes on one line.
    const std::size_t begin = tokens_[*first].begin, end = tokens_[i + 2].end;
    const std::string kernel = one_line(*first, i);
    edits_[begin] = {end, line_breaks(begin, end) + "::flash::on_this_machine("};
    edits_[tokens_[*close].begin] = {tokens_[*close + 2].end,
                                     ").kernel(" + quoted(kernel) + ", [&](auto flash_use) -> decltype(flash_use(" +
                                         kernel + ")) { return flash_use(" + kernel +
                                         "); }, [&](auto... flash_arguments) { " + kernel + "(flash_arguments...); })"};
  }

  // __launch_bounds__(n, …) of a kernel becomes the first statement of its body; of a declaration, nothing.
  void launch_bounds(std::size_t i) {
    std::size_t close = i + 1, first_end = 0;
    for (int depth = 0; close < tokens_.size(); ++close) {
      if (at(close) == "(") ++depth;
      if (at(close) == "," && depth == 1 && first_end == 0) first_end = close;
      if (at(close) == ")" && --depth == 0) break;
    }
    const std::size_t begin = tokens_[i].begin, end = tokens_[std::min(close, tokens_.size() - 1)].end;
    edits_[begin] = {end, line_breaks(begin, end)};
    const std::string bound = one_line(i + 2, first_end ? first_end : close);
    int depth = 0;
    for (std::size_t j = close + 1; j < tokens_.size() && !(depth == 0 && at(j) == ";"); ++j) {
      if (depth == 0 && at(j) == "{") {
        edits_[tokens_[j].end] = {tokens_[j].end, " ::flash::simt::check_launch_bounds(" + bound + ");"};
        return;
      }
      if (at(j) == "(") ++depth;
      if (at(j) == ")") --depth;
    }
  }

  // Tokens first … end - 1, as one would write them: "k<T, 32>".
  std::string one_line(std::size_t first, std::size_t end) const {
    std::string line;
    for (std::size_t t = first; t < end; ++t) {
      const std::string_view token = at(t);
      if (!line.empty() && (line.back() == ',' || (in_word(line.back()) && in_word(token[0])))) line += ' ';
      line += token;
    }
    return line;
  }

  // What of this part of the text makes the compiler count lines.
  std::string line_breaks(std::size_t begin, std::size_t end) const {
    std::string breaks;
    for (const Directive& directive : directives_) {
      if (directive.begin < begin || directive.begin >= end) continue;
      breaks.append(newlines(begin, directive.begin), '\n');
      breaks.append(text_.substr(directive.begin, directive.end - directive.begin));
      begin = directive.end;
    }
    return breaks.append(newlines(begin, end), '\n');
  }

  std::size_t newlines(std::size_t begin, std::size_t end) const {
    const std::string_view part = text_.substr(begin, end - begin);
    return static_cast<std::size_t>(std::count(part.begin(), part.end(), '\n'));
  }

  static std::string quoted(const std::string& text) {
    std::string literal = "\"";
    for (char c : text) literal.append(c == '"' || c == '\\' ? "\\" : "").push_back(c);
    return literal + "\"";
  }

  // The error's place follows from the line markers, # 12 "file", and the lines since.
  Malformed malformed(std::size_t token, const std::string& what) const {
    std::string file = "?";
    long line = 1;
    std::size_t since = 0;
    for (const Directive& directive : directives_) {
      if (directive.begin > tokens_[token].begin) break;
      const std::string marker(text_.substr(directive.begin, directive.end - directive.begin));
      char name[4096];
      if (std::sscanf(marker.c_str(), "# %ld \"%4095[^\"]\"", &line, name) == 2) file = name, since = directive.end + 1;
    }
    line += static_cast<long>(newlines(since, tokens_[token].begin));
    return Malformed(file + ":" + std::to_string(line) + ": error: not a launch: " + what +
                     "; write kernel<<<grid, block, bytes, stream>>>(arguments)");
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  std::vector<Directive> directives_;
  std::map<std::size_t, Edit> edits_;  // by where they begin
};

// ---- The compiler ------------------------------------------------------------------------------------------------

using Words = std::vector<std::string>;

// Runs a command and waits; its exit status, or 128 + the signal that ended it. An interrupt ends the command only, so
// that we can remove what it left.
int run(const Words& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
    execvp(arguments[0], arguments.data());
    std::cerr << "flash-launches: cannot run " << command[0] << ": " << std::strerror(errno) << "\n";
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) {
    std::cerr << "flash-launches: cannot run " << command[0] << ": " << std::strerror(errno) << "\n";
    return 127;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A compiler's command, taken apart.
struct Command {
  Words compiler;              // ccache g++
  Words options;               // without -c and -o
  std::string source, object;  // of -c and -o; empty: nothing is compiled

  explicit Command(const Words& words) {
    std::size_t i = 0;
    while (i < words.size() && words[i][0] != '-') compiler.push_back(words[i++]);
    for (; i < words.size(); ++i) {
      if (words[i] == "-c" && i + 1 < words.size()) {
        source = words[++i];
      } else if (words[i] == "-o" && i + 1 < words.size()) {
        object = words[++i];
      } else {
        options.push_back(words[i]);
      }
    }
  }

  // From the source to text; writes the list of dependencies too, if it was asked for. Not through ccache.
  Words preprocess(const std::string& text) const {
    Words words{compiler.back()};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"-E", "-o", text, source});
    return words;
  }

  // From that text to the object: without the preprocessor's options, and without the warning that a comment which is
  // gone now, "fall through", would have silenced.
  Words compile(const std::string& text) const {
    static constexpr std::string_view kWithValue[] = {"-I",       "-isystem", "-iquote", "-idirafter", "-D", "-U",
                                                      "-include", "-imacros", "-MF",     "-MT",        "-MQ"};
    Words words = compiler;
    for (std::size_t i = 0; i < options.size(); ++i) {
      const std::string& option = options[i];
      if (std::find(std::begin(kWithValue), std::end(kWithValue), option) != std::end(kWithValue)) {
        ++i;
      } else if (!(option.starts_with("-I") || option.starts_with("-D") || option.starts_with("-U") ||
                   option.starts_with("-M"))) {
        words.push_back(option);
      }
    }
    words.insert(words.end(), {"-Wno-implicit-fallthrough", "-x", "c++-cpp-output", "-o", object, "-c", text});
    return words;
  }
};

int rewrite_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  std::string result;
  try {
    result = Rewriter(text).rewritten();
  } catch (const Malformed& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << result << std::flush;
  if (in && out) return 0;
  std::cerr << "flash-launches: cannot write " << path << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Words words(argv + 1, argv + argc);
  const Command command(words);
  if (command.compiler.empty()) {
    std::cerr << "usage: flash-launches [ccache] g++ [options] -o file.o -c file.cpp\n";
    return 2;
  }
  if (command.source.empty() || command.object.empty()) return run(words);  // nothing to compile

  for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  const std::string text = command.object + ".launches.ii";
  int status = run(command.preprocess(text));
  if (status == 0) status = rewrite_file(text);
  if (status == 0) status = run(command.compile(text));
  std::remove(text.c_str());
  return status;
}
