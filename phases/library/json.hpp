// json.hpp: a strict reader for our own result files. What it does not know it refuses, with the place: no \u escapes,
// no duplicate names, nothing after the end.
// Use: const Json file = read_json("docs/results/h200-phases.json"); file.at("rows").items
#pragma once
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "sim/error.hpp"

namespace flash {

struct Json {
  enum Kind { Null, Bool, Number, Text, List, Object } kind = Null;
  bool truth = false;
  double number = 0;
  std::string text;
  std::vector<Json> items;                           // List
  std::vector<std::pair<std::string, Json>> fields;  // Object, in the file's order

  const Json* find(const std::string& name) const {
    for (const auto& [key, value] : fields)
      if (key == name) return &value;
    return nullptr;
  }
  const Json& at(const std::string& name) const {
    if (const Json* value = find(name)) return *value;
    throw Error("JSON: no field '" + name + "'");
  }
};

class JsonReader {
 public:
  JsonReader(const std::string& text, std::string name) : text_(text), name_(std::move(name)) {}

  Json file() {
    Json value = read();
    if (next() != 0) fail("the end of the file");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    std::size_t line = 1;
    for (std::size_t i = 0; i < at_ && i < text_.size(); ++i) line += text_[i] == '\n';
    throw Error(name_ + ":" + std::to_string(line) + ": expected " + expected);
  }
  // The next character that is no space, 0 at the end.
  char next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }
  bool take_word(const std::string& word) {
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }

  Json read() {
    Json value;
    const char c = next();
    if (take('{')) {
      value.kind = Json::Object;
      while (!take('}')) {
        if (!value.fields.empty() && !take(',')) fail("',' or '}'");
        if (next() != '"') fail("a name in quotes");
        std::string name = read_text();
        if (value.find(name)) fail("'" + name + "' only once");
        if (!take(':')) fail("':'");
        value.fields.emplace_back(std::move(name), read());
      }
    } else if (take('[')) {
      value.kind = Json::List;
      while (!take(']')) {
        if (!value.items.empty() && !take(',')) fail("',' or ']'");
        value.items.push_back(read());
      }
    } else if (c == '"') {
      value.kind = Json::Text;
      value.text = read_text();
    } else if (c == '-' || std::isdigit(static_cast<unsigned char>(c))) {
      value.kind = Json::Number;
      char* end = nullptr;
      value.number = std::strtod(text_.c_str() + at_, &end);
      at_ = static_cast<std::size_t>(end - text_.c_str());
    } else if (take_word("true")) {
      value.kind = Json::Bool;
      value.truth = true;
    } else if (take_word("false")) {
      value.kind = Json::Bool;
    } else if (!take_word("null")) {
      fail("a value");
    }
    return value;
  }

  std::string read_text() {
    std::string text;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
        if (at_ >= text_.size() || (text_[at_] != '"' && text_[at_] != '\\')) fail("no escapes but \\\" and \\\\");
      }
      if (static_cast<unsigned char>(text_[at_]) < ' ') fail("'\"'");
      text += text_[at_];
    }
    if (at_ >= text_.size()) fail("'\"'");
    ++at_;
    return text;
  }

  const std::string& text_;
  std::string name_;
  std::size_t at_ = 0;
};

inline Json parse_json(const std::string& text, const std::string& name) {
  return JsonReader(text, name).file();
}

inline Json read_json(const std::filesystem::path& path) {
  std::ostringstream text;
  if (!(text << std::ifstream(path, std::ios::binary).rdbuf())) throw Error("cannot read " + path.string());
  return parse_json(text.str(), path.filename().string());
}

}  // namespace flash
