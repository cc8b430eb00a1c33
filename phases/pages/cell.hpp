// cell.hpp: a notebook is a plain program of titled cells, which run from top to bottom when the program runs.
// Prose stands between the cells in comment blocks that begin with // %% [markdown]; code begins with // %%.
// Use:  CELL("One plus one") { std::printf("%d\n", 1 + 1);  expect(1 + 1 == 2, "one plus one is two"); }
#pragma once
#include <string>
#include <vector>

#include "phases/pages/text.hpp"  // grouped(), for the numbers that cells print

namespace flash {

struct Cell {
  const char* title;
  const char* file;
  int line;
  void (*run)();
};

// All cells of the program, in the order of the source file.
inline std::vector<Cell>& cells() {
  static std::vector<Cell> all;
  return all;
}
inline bool add_cell(const Cell& cell) {
  cells().push_back(cell);
  return true;
}

// What the reader should see, and whether it is so: prints the claim. A notebook with a false claim returns 1.
void expect(bool holds, const std::string& claim, const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Writes <name>.svg into the folder for pictures and prints its path.
void picture(const std::string& name, const std::string& svg);

}  // namespace flash

#define FLASH_JOIN_(a, b) a##b
#define FLASH_JOIN(a, b) FLASH_JOIN_(a, b)
#define FLASH_CELL(title, name, added)                                                                  \
  static void name();                                                                                   \
  [[maybe_unused]] static const bool added = ::flash::add_cell({(title), __FILE__, __LINE__, &(name)}); \
  static void name()
#define CELL(title) FLASH_CELL(title, FLASH_JOIN(cell_at_line_, __LINE__), FLASH_JOIN(added_at_line_, __LINE__))
