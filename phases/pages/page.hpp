// page.hpp: a notebook's source, read as a page of the book: prose, code, and what the prose quotes from other files.
// A quotation is a fenced directive: ```{region} FILE NAME``` shows the lines between `// #region NAME` and
// `// #endregion`; ```{difference} FILE FILE``` what changed between two files, but for heads and phases' names.
// ```{question}``` asks for a prediction before a cell, ```{answer}``` follows that cell; ```{exercise} NN.K``` names
// an exercise where its idea appears, and exercises end a page.
// Use:  for (const Part& part : read_page(FLASH_SOURCE_DIR, "phases/01-naive/notebook.cpp")) …
#pragma once
#include <string>
#include <vector>

namespace flash {

struct Part {
  enum class Kind { Prose, Code, Region, Difference, Question, Answer, Exercise, Exercises };
  Kind kind;
  int line;                // where it begins in the notebook
  std::string text = {};   // difference: each line begins with ' ', '+' or '-'; exercises: "05.1 title", a line each
  bool folded = false;     // code that is not the lesson: // %% tags=["hide-input"]
  std::string file = {};   // region: the file quoted; difference: the newer one. Paths begin at the root.
  std::string other = {};  // region: its name; difference: the older file
  int first = 0;           // region: its first line's number in the file
};

// The parts of a notebook, in order; a code part holds one cell at most. Refuses a region, file or exercise that is not
// there, a question that no cell and no answer follow, and an answer to nothing. Last come exercises, their numbers and
// titles: of notebook.cpp all that its phase has, of another page those that it names.
std::vector<Part> read_page(const std::string& root, const std::string& notebook);

// A named region of a file: `// #region NAME` or `// #region NAME: what it holds`.
struct Region {
  std::string name, text;  // without the indentation that all its lines share
  int first, last;         // line numbers
};
// The regions of a file, in order. Refuses nested, unnamed, unfinished and equally named ones.
std::vector<Region> regions_of(const std::string& root, const std::string& file);

std::vector<std::string> lines_of(const std::string& text);
bool is_region_marker(const std::string& line);

// The lines of both texts in order; in front ' ' (in both), '-' (in `before` alone) or '+' (in `after` alone).
std::vector<std::string> difference(const std::vector<std::string>& before, const std::vector<std::string>& after);

}  // namespace flash
