// source.cpp: see source.hpp: the lexer, and putting the edits in place.
// "<" and ">" are tokens of their own: what they mean is not known here.
// Use: see source.hpp.
#include "sim/compiler/source.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>

namespace flash::compiler {

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c));
}

namespace {

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

}  // namespace

Source::Source(std::string_view text) : text_(text) {
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
      directives_.push_back({at, end});
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
    tokens_.push_back(token);
    at = token.end;
    line_begins = false;
  }
}

std::size_t Source::closing(std::size_t i) const {
  static constexpr std::string_view kOpen = "([{", kClose = ")]}";
  const std::string_view open = at(i), close = kClose.substr(kOpen.find(open), 1);
  for (int depth = 0; i < size(); ++i) {
    depth += (at(i) == open) - (at(i) == close);
    if (depth == 0) return i;
  }
  return size();
}

std::string Source::rewritten() const {
  std::string result;
  std::size_t copied = 0;
  for (const auto& [begin, edit] : edits_) {
    result.append(text_.substr(copied, begin - copied)).append(edit.text);
    copied = edit.end;
  }
  return result.append(text_.substr(copied));
}

std::string Source::line_breaks(std::size_t begin, std::size_t end) const {
  std::string breaks;
  for (const Directive& directive : directives_) {
    if (directive.begin < begin || directive.begin >= end) continue;
    breaks.append(newlines(begin, directive.begin), '\n');
    breaks.append(text_.substr(directive.begin, directive.end - directive.begin));
    begin = directive.end;
  }
  return breaks.append(newlines(begin, end), '\n');
}

std::size_t Source::newlines(std::size_t begin, std::size_t end) const {
  const std::string_view part = text_.substr(begin, end - begin);
  return static_cast<std::size_t>(std::count(part.begin(), part.end(), '\n'));
}

namespace {

// Of a line marker, # 12 "file" 1 3: the file, the line, whether an include leads there (1) or has led from there (2),
// and whether it is one of the system's headers (3).
struct Marker {
  std::string file;
  long line = 0;
  bool enters = false, leaves = false, system = false;

  explicit Marker(const std::string& text) {
    char name[4096];
    int end = 0;
    if (std::sscanf(text.c_str(), "# %ld \"%4095[^\"]\"%n", &line, name, &end) != 2) return;
    file = name;
    enters = text.find(" 1", static_cast<std::size_t>(end)) != std::string::npos;
    leaves = text.find(" 2", static_cast<std::size_t>(end)) != std::string::npos;
    system = text.find(" 3", static_cast<std::size_t>(end)) != std::string::npos;
  }
};

}  // namespace

Malformed Source::malformed(std::size_t token, const std::string& what) const {
  std::string file = "?";
  long line = 1;
  std::size_t since = 0;
  for (const Directive& directive : directives_) {
    if (directive.begin > tokens_[token].begin) break;
    const Marker marker(std::string(text_.substr(directive.begin, directive.end - directive.begin)));
    if (!marker.file.empty()) file = marker.file, line = marker.line, since = directive.end + 1;
  }
  line += static_cast<long>(newlines(since, tokens_[token].begin));
  return Malformed(file + ":" + std::to_string(line) + ": error: " + what);
}

std::vector<Source::Entry> Source::entries() const {
  std::vector<Entry> result;
  std::vector<std::size_t> open;  // those that are not left yet: # 4 "a.cu" 2 leaves one that stands on line 3
  for (const Directive& directive : directives_) {
    const Marker marker(std::string(text_.substr(directive.begin, directive.end - directive.begin)));
    if (marker.enters) {
      open.push_back(result.size());
      result.push_back({marker.file, "?"});
    } else if (marker.leaves && !open.empty()) {
      result[open.back()].from = marker.file + ":" + std::to_string(marker.line - 1);
      open.pop_back();
    }
  }
  return result;
}

bool Source::of_system(std::size_t token) const {
  bool system = false;
  for (const Directive& directive : directives_) {
    if (directive.begin > tokens_[token].begin) break;
    const Marker marker(std::string(text_.substr(directive.begin, directive.end - directive.begin)));
    if (!marker.file.empty()) system = marker.system;
  }
  return system;
}

std::set<std::string> Source::files() const {
  std::set<std::string> result;
  for (const Directive& directive : directives_) {
    const Marker marker(std::string(text_.substr(directive.begin, directive.end - directive.begin)));
    if (!marker.system && !marker.file.empty() && marker.file[0] != '<' && marker.file.back() != '/')
      result.insert(marker.file);
  }
  return result;
}

}  // namespace flash::compiler
