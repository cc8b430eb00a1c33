// json.hpp: text as a JSON string, for everybody who writes JSON: reports, traces, results.
// Control characters are escaped (RFC 8259, section 7); the text is UTF-8 and stays as it is otherwise.
// Use: out << "{\"kernel\": " << json_string(name) << "}";
#pragma once
#include <cstdio>
#include <string>

namespace flash {

inline std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
    out += escape;
  }
  return out + "\"";
}

}  // namespace flash
