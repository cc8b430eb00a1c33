// pages.cpp: reads the pages of the course and prints them as JSON, for the program that writes the book: one line for
// each page, {"file": …, "parts": [{"kind": …, "line": …, "text": …, …}, …]}. No cell runs; all it needs is page.cpp.
// build/default/bin/flash-pages ROOT phases/01-naive/notebook.cpp …
#include <cstdio>

#include "phases/pages/page.hpp"
#include "sim/error.hpp"
#include "sim/report/json.hpp"

namespace flash {

static void print_as_json(const Part& part, bool first) {
  static const char* kinds[] = {"prose", "code", "region", "difference", "question", "answer", "exercise", "exercises"};
  std::printf(
      "%s{\"kind\": \"%s\", \"line\": %d, \"text\": %s, \"folded\": %s, \"file\": %s, \"other\": %s, \"first\": %d}",
      first ? "" : ", ", kinds[static_cast<int>(part.kind)], part.line, json_string(part.text).c_str(),
      part.folded ? "true" : "false", json_string(part.file).c_str(), json_string(part.other).c_str(), part.first);
}

}  // namespace flash

int main(int count, char** words) {
  using namespace flash;
  if (count < 3) {
    std::fprintf(stderr, "usage: flash-pages ROOT NOTEBOOK…\n");
    return 2;
  }
  try {
    for (int i = 2; i < count; ++i) {
      std::printf("{\"file\": %s, \"parts\": [", json_string(words[i]).c_str());
      bool first = true;
      for (const Part& part : read_page(words[1], words[i])) print_as_json(part, first), first = false;
      std::printf("]}\n");
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
