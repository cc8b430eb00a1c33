// translation.cpp: see translation.hpp. Of gettext's format it reads what translators write: msgid, msgstr, "#, fuzzy".
// A text is a paragraph: its lines are joined by spaces, and a translation is broken into lines anew, two columns for a
// Chinese character. Indented lines (formulas, tables) are messages of their own. Use: see translation.hpp.
#include "phases/exercises/translation.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>

namespace flash::exercise {
namespace {

constexpr std::size_t kColumns = 116;  // of a line of text

// Between the quotes of a line of a .po file.
std::string unquoted(const std::string& line) {
  const std::size_t begin = line.find('"') + 1, end = line.rfind('"');
  std::string text;
  for (std::size_t i = begin; i < end; ++i) {
    if (line[i] == '\\' && i + 1 < end) ++i;
    text += line[i];
  }
  return text;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) result += (c == '"' || c == '\\' ? "\\" : "") + std::string(1, c);
  return result + '"';
}

bool indented(const std::string& line) {
  return line.empty() || line[0] == ' ';
}

// Columns that the character at `at` takes; `bytes` becomes how many bytes it has.
std::size_t columns(const std::string& text, std::size_t at, std::size_t& bytes) {
  const auto first = static_cast<unsigned char>(text[at]);
  bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  return first >= 0xe3 ? 2 : 1;  // from U+3000 on
}

// Broken at spaces, and behind wide characters; not before a closing mark.
Lines wrapped(const std::string& text) {
  static const std::set<std::string> closing{"，", "。", "；", "：", "、", "！", "？", "）", "”"};
  Lines lines;
  std::size_t begin = 0, last = 0, width = 0;  // of this line; where it may end
  for (std::size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const std::size_t wide = columns(text, at, bytes);
    if (text[at] == ' ' || (wide == 2 && !closing.count(text.substr(at, bytes)))) last = at;
    width += wide;
    if (width <= kColumns || last <= begin) continue;
    lines.push_back(text.substr(begin, last - begin - (text[last - 1] == ' ')));  // no space at a line's end
    begin = last + (text[last] == ' ');
    at = begin;
    width = columns(text, at, bytes);
  }
  lines.push_back(text.substr(begin));
  return lines;
}

// Calls `each` with the text's paragraphs and indented lines, and gives the lines back that it makes of them.
Lines by_paragraphs(const Lines& lines, const std::function<Lines(const std::string&)>& each) {
  Lines result;
  std::string paragraph;
  const auto end = [&] {
    if (paragraph.empty()) return;
    for (const std::string& line : each(paragraph)) result.push_back(line);
    paragraph.clear();
  };
  for (const std::string& line : lines) {
    if (indented(line)) {
      end();
      if (line.empty())
        result.push_back(line);
      else
        for (const std::string& same : each(line)) result.push_back(same);
    } else {
      paragraph += (paragraph.empty() ? "" : " ") + line;
    }
  }
  end();
  return result;
}

}  // namespace

Catalog::Catalog(const std::filesystem::path& po) {
  std::ifstream in(po);
  std::string id, translation, *now = nullptr;
  bool fuzzy = false;
  const auto end = [&] {
    if (!id.empty() && !translation.empty() && !fuzzy) texts_[id] = translation;
    id.clear(), translation.clear(), now = nullptr;
  };
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, 8, "#, fuzzy") == 0) end(), fuzzy = true;
    if (line.compare(0, 5, "msgid") == 0) {
      if (now) end(), fuzzy = false;
      now = &id;
    }
    if (line.compare(0, 6, "msgstr") == 0) now = &translation;
    if (now && !line.empty() && line[0] != '#') *now += unquoted(line);
  }
  end();
}

std::string Catalog::text(const std::string& english) const {
  const auto found = texts_.find(english);
  return found == texts_.end() ? english : found->second;
}

std::string Catalog::sentence(const std::string& english) const {
  Lines numbers;
  const auto found = texts_.find(with_places(english, numbers));
  if (found == texts_.end()) return english;
  return filled(found->second, numbers);
}

Exercise Catalog::of(Exercise exercise) const {
  if (texts_.empty()) return exercise;
  const auto each = [&](const std::string& english) {
    return indented(english) ? Lines{text(english)} : wrapped(text(english));
  };
  exercise.title = text(exercise.title);
  exercise.asked = text(exercise.asked);
  for (Lines* lines : {&exercise.question, &exercise.because, &exercise.next}) *lines = by_paragraphs(*lines, each);
  for (Lines& hint : exercise.hints) hint = by_paragraphs(hint, each);
  for (Stretch& stretch : exercise.code) stretch.task = text(stretch.task);
  return exercise;
}

std::string Catalog::renewed(const Lines& messages) const {
  std::string po =
      "msgid \"\"\nmsgstr \"\"\n\"Language: zh_CN\\n\"\n\"Content-Type: text/plain; charset=UTF-8\\n\"\n"
      "\"Content-Transfer-Encoding: 8bit\\n\"\n";
  for (const std::string& message : messages)
    po += "\nmsgid " + quoted(message) + "\nmsgstr " + (has(message) ? quoted(text(message)) : "\"\"") + "\n";
  for (const auto& [english, translation] : texts_)
    if (std::find(messages.begin(), messages.end(), english) == messages.end())
      po += "\n#~ msgid " + quoted(english) + "\n#~ msgstr " + quoted(translation) + "\n";
  return po;
}

Lines messages_of(const Exercise& exercise) {
  Lines messages;
  const auto add = [&](const std::string& text) {
    if (!text.empty() && std::find(messages.begin(), messages.end(), text) == messages.end()) messages.push_back(text);
    return Lines();
  };
  add(exercise.title);
  by_paragraphs(exercise.question, add);
  add(exercise.asked);
  for (const Stretch& stretch : exercise.code) add(stretch.task);
  for (const Lines& hint : exercise.hints) by_paragraphs(hint, add);
  by_paragraphs(exercise.because, add);
  by_paragraphs(exercise.next, add);
  return messages;
}

std::string with_places(const std::string& sentence, Lines& numbers) {
  std::string result;
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (std::size_t at = 0; at < sentence.size();) {
    const bool fresh = at == 0 || !is_word(sentence[at - 1]);
    std::size_t end = at;
    if (fresh && sentence[end] == '-' && (at == 0 || sentence[at - 1] == ' ')) ++end;
    const std::size_t digits = end;
    for (const char* name : {"nan", "inf"})  // numbers, too, unless they begin a word
      if (sentence.compare(end, 3, name) == 0 && (end + 3 == sentence.size() || !is_word(sentence[end + 3]))) end += 3;
    while (end < sentence.size() &&
           (std::isdigit(static_cast<unsigned char>(sentence[end])) ||
            (end > digits && sentence[end] == '.' && end + 1 < sentence.size() && std::isdigit(sentence[end + 1])) ||
            (end > digits && sentence.compare(end, 2, "e-") == 0) ||
            (end > digits && sentence.compare(end, 2, "e+") == 0) ||
            (end > digits && (sentence[end] == '-' || sentence[end] == '+') && sentence[end - 1] == 'e')))
      ++end;
    if (!fresh || end == digits) {
      result += sentence[at++];
      continue;
    }
    numbers.push_back(sentence.substr(at, end - at));
    result += "⟦" + std::to_string(numbers.size()) + "⟧";
    at = end;
  }
  return result;
}

std::string filled(std::string text, const Lines& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string place = "⟦" + std::to_string(i + 1) + "⟧";
    for (std::size_t at; (at = text.find(place)) != std::string::npos;) text.replace(at, place.size(), values[i]);
  }
  return text;
}

bool same_places(const std::string& a, const std::string& b) {
  for (int i = 1; i < 100; ++i) {
    const std::string place = "⟦" + std::to_string(i) + "⟧";
    if ((a.find(place) == std::string::npos) != (b.find(place) == std::string::npos)) return false;
  }
  return true;
}

std::string language() {
  for (const char* name : {"FLASH_LANG", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"})
    if (const char* value = std::getenv(name); value && *value) return std::string(value, 0, 2) == "zh" ? "zh_CN" : "";
  return "";
}

}  // namespace flash::exercise
