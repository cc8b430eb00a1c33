// table.hpp: what the tables of results are made of: numbers, lines of Markdown, grids of cells, the names of rows.
// The tables themselves: tables.hpp, beside.hpp.
// Use: grid_table(rows, {"step"}, name_of_line, name_of_column, text_of_cell)
#pragma once
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "phases/library/json.hpp"

namespace flash::bench {

inline std::string format(const char* pattern, double x) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, x);
  return text;
}

// Three significant figures: 0.0321, 4.56, 78.9, 1234.
inline std::string short_number(double x) {
  return format(x < 0.1 ? "%.4f" : x < 1 ? "%.3f" : x < 10 ? "%.2f" : x < 100 ? "%.1f" : "%.0f", x);
}

inline std::string table_line(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

inline std::string table_head(const std::vector<std::string>& cells) {
  std::string line = "|---|";
  for (std::size_t i = 1; i < cells.size(); ++i) line += "---:|";
  return table_line(cells) + line + "\n";
}

// The different values of `name` among rows, in their order.
using Name = std::function<std::string(const Json&)>;
inline std::vector<std::string> values_of(const std::vector<Json>& rows, const Name& name) {
  std::vector<std::string> values;
  for (const Json& row : rows)
    if (std::find(values.begin(), values.end(), name(row)) == values.end()) values.push_back(name(row));
  return values;
}

// A line for each value of `line_of`, a column for each of `column_of`; where no row has both, `missing` stands.
// `head`: what stands above the lines' names. `heading` says what a column's value is called.
inline std::string grid_table(const std::vector<Json>& rows, std::vector<std::string> head, const Name& line_of,
                              const Name& column_of, const Name& cell_of, const std::string& missing = "",
                              const std::function<std::string(const std::string&)>& heading = {}) {
  const std::vector<std::string> columns = values_of(rows, column_of);
  for (const std::string& column : columns) head.push_back(heading ? heading(column) : column);
  std::string text = table_head(head);
  for (const std::string& line : values_of(rows, line_of)) {
    std::vector<std::string> cells{line};
    for (const std::string& column : columns) {
      cells.push_back(missing);
      for (const Json& row : rows)
        if (line_of(row) == line && column_of(row) == column) cells.back() = cell_of(row);
    }
    text += table_line(cells);
  }
  return text + "\n";
}

inline std::string kernel_of(const Json& row) {
  return row.at("kernel").text;
}
inline std::string N_of(const Json& row) {
  return std::to_string(static_cast<long long>(row.at("N").number));
}
inline std::string series_of(const Json& row) {
  std::string text;
  for (const char* size : {"B", "H", "D"})
    text += size + std::to_string(static_cast<long long>(row.at(size).number)) + " ";
  return text + (row.at("causal").truth ? "causal" : "full");
}

}  // namespace flash::bench
