// markup.hpp: is a piece of SVG or HTML well-formed? A small checker of tags that stands in for a parser.
// And the elements of a picture, with their attributes, so that tests can ask where things are.
// Use:  CHECK(well_formed(svg));  for (const Element& rect : elements(svg, "rect")) rect.number("x")
#pragma once
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "sim/error.hpp"

namespace flash::test {

// Every tag is closed in order (but for HTML's void ones), quotes are paired, no stray '<' or '&', no "nan" or "inf" in
// an attribute.
inline bool well_formed(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '&') {
      const std::string entity = text.substr(i, text.find(';', i) - i + 1);
      if (entity != "&amp;" && entity != "&lt;" && entity != "&gt;" && entity != "&quot;") return false;
    }
    if (text[i] != '<') continue;
    const std::size_t end = text.find('>', i);
    if (end == std::string::npos) return false;
    const std::string tag = text.substr(i + 1, end - i - 1), name = tag.substr(0, tag.find_first_of(" \n"));
    if (tag.find('<') != std::string::npos || std::count(tag.begin(), tag.end(), '"') % 2) return false;
    if (tag.find("nan") != std::string::npos || tag.find("inf\"") != std::string::npos) return false;
    if (name.empty()) return false;
    if (name[0] == '/') {
      if (open.empty() || open.back() != name.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/' && name != "meta" && name != "!doctype") {
      open.push_back(name);
    }
    i = end;
  }
  return open.empty();
}

struct Element {
  std::map<std::string, std::string> attributes;
  std::string text;  // up to the next tag

  double number(const std::string& name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) throw Error("no attribute " + name);
    return std::strtod(found->second.c_str(), nullptr);
  }
  std::string word(const std::string& name) const {
    const auto found = attributes.find(name);
    return found == attributes.end() ? "" : found->second;
  }
};

// All elements of this name in a well-formed text, in order.
inline std::vector<Element> elements(const std::string& text, const std::string& name) {
  std::vector<Element> all;
  for (std::size_t at = 0; (at = text.find("<" + name, at)) != std::string::npos; ++at) {
    const std::size_t end = text.find('>', at);
    std::size_t next = at + 1 + name.size();
    if (text[next] != ' ' && text[next] != '>' && text[next] != '/') continue;  // <g> is not <glyph>
    Element e;
    for (std::size_t quote; (quote = text.find('"', next)) < end; next = text.find('"', quote + 1) + 1) {
      const std::size_t first = text.find_first_not_of(" \n", next);
      e.attributes[text.substr(first, text.find('=', first) - first)] =
          text.substr(quote + 1, text.find('"', quote + 1) - quote - 1);
    }
    if (text[end - 1] != '/') e.text = text.substr(end + 1, text.find('<', end) - end - 1);
    all.push_back(e);
  }
  return all;
}

}  // namespace flash::test
