// svg.hpp: our own pictures, written as SVG text: a canvas, a heat map, bars, a line chart. Tile walks: tile_walk.hpp.
// Drawn on white, so that they read on dark pages too; no script; x is the column (key), y the row (query).
// Use:  picture("bytes", svg::chart({.title = "HBM bytes", .x = "N", .y = "bytes"}, {{"naive", {{256, 4e6}, …}}}));
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace flash::svg {

// Text as XML wants it: & < > and quotes are escaped.
std::string escape(const std::string& text);

// A number with at most so many decimals and no trailing zeros: one is enough for pixels.
std::string num(double v, int decimals = 1);

// An SVG document under construction. `more` is further attributes, written as they are.
class Canvas {
 public:
  Canvas(double width, double height, const std::string& title, const std::string& style = "");
  void raw(const std::string& element) { body_ += element + "\n"; }
  void rect(double x, double y, double width, double height, const std::string& more) {
    raw("<rect" + at({{"x", x}, {"y", y}, {"width", width}, {"height", height}}) + more + "/>");
  }
  void line(double x1, double y1, double x2, double y2, const std::string& more) {
    raw("<line" + at({{"x1", x1}, {"y1", y1}, {"x2", x2}, {"y2", y2}}) + more + "/>");
  }
  void dot(double x, double y, const std::string& more) {
    raw("<circle" + at({{"cx", x}, {"cy", y}, {"r", 4}}) + more + "/>");
  }
  void text(double x, double y, const std::string& text, const std::string& more = "") {
    raw("<text" + at({{"x", x}, {"y", y}}) + more + ">" + escape(text) + "</text>");
  }
  // A line with a head at its end.
  void arrow(double x1, double y1, double x2, double y2, const std::string& colour, double width = 2);
  void path(const std::string& points, const std::string& more) {
    raw("<polyline points=\"" + points + "\" fill=\"none\" " + more + "/>");
  }
  std::string str() const { return body_ + "</svg>\n"; }

 private:
  static std::string at(std::initializer_list<std::pair<const char*, double>> numbers) {
    std::string text = " ";
    for (const auto& [name, value] : numbers) text += std::string(name) + "=\"" + num(value) + "\" ";
    return text;
  }
  std::string body_;
};

// The rectangles of equal neighbours in values[row * columns + column]: what can be drawn as one. Sizes are in cells.
struct Patch {
  int row, column, rows, columns, value;
};
std::vector<Patch> patches(const std::vector<int>& values, int columns);

// values[r * columns.size() + c], drawn from white (0) to blue (the largest); what is not finite is red. Cells of one
// shade are one path: each run of them within a row is a stroke as wide as the row is high.
std::string heat_map(const std::string& title, const std::vector<double>& values, const std::vector<std::string>& rows,
                     const std::vector<std::string>& columns, const std::string& row_axis = "query i (y)",
                     const std::string& column_axis = "key j (x)");

// A bar for each {name, value}, with the value beside it; the longest bar is the largest value.
std::string bars(const std::string& title, const std::vector<std::pair<std::string, std::uint64_t>>& values);

using Points = std::vector<std::array<double, 2>>;  // {x, y}
struct Line {
  std::string label;
  Points points, dots = {};  // joined by a line; drawn as dots
  bool dashed = false;
};
struct Axes {
  std::string title, x, y;
  bool log = true;  // both axes
};

// 4096 -> "4096", 65536 -> "64 Ki", 2^30 -> "1 Gi", 2^-10 -> "0.00098".
std::string short_number(double v);

// Round values between lo and hi: powers of 2, 4 or 16 on a log axis, else multiples of 1, 2 or 5.
std::vector<double> ticks(double lo, double hi, bool log);

// Lines over x, labelled at their right ends.
std::string chart(const Axes& axes, const std::vector<Line>& lines);

}  // namespace flash::svg
