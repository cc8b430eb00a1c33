// svg.cpp: see svg.hpp. Compiled once, since every notebook draws.
// Colours are Okabe and Ito's, which colour-blind readers tell apart; the numbers below are pixels.
// Use: linked with flash_common.
#include "phases/pages/svg.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

#include "phases/pages/text.hpp"

namespace flash::svg {

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

std::string num(double v, int decimals) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", decimals, v);
  std::string s = text;
  if (s.find('.') != std::string::npos) s.erase(s.find_last_not_of('0') + 1);
  if (s.back() == '.') s.pop_back();
  return s == "-0" ? "0" : s;
}

Canvas::Canvas(double width, double height, const std::string& title, const std::string& style) {
  const std::string w = num(width), h = num(height);
  raw("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + w + " " + h + "\" width=\"" + w + "\" height=\"" +
      h + "\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\" fill=\"#222\">");
  raw("<title>" + escape(title) + "</title>\n<style>" + style + "</style>");
  rect(0, 0, width, height, "fill=\"white\"");
  text(16, 24, title, "font-size=\"15\" font-weight=\"bold\"");
}

void Canvas::arrow(double x1, double y1, double x2, double y2, const std::string& colour, double width) {
  const double length = std::hypot(x2 - x1, y2 - y1), dx = (x2 - x1) / length, dy = (y2 - y1) / length;
  const double back = 2 + 3 * width, side = 1 + 1.5 * width;  // the head: how long, and half as wide as
  const auto at = [](double x, double y) { return num(x) + "," + num(y) + " "; };
  line(x1, y1, x2 - back * dx, y2 - back * dy, "stroke=\"" + colour + "\" stroke-width=\"" + num(width) + "\"");
  raw("<polygon points=\"" + at(x2, y2) + at(x2 - back * dx - side * dy, y2 - back * dy + side * dx) +
      at(x2 - back * dx + side * dy, y2 - back * dy - side * dx) + "\" fill=\"" + colour + "\"/>");
}

std::vector<Patch> patches(const std::vector<int>& values, int columns) {
  const int rows = static_cast<int>(values.size()) / columns;
  const auto at = [&](int r, int c) { return static_cast<std::size_t>(r * columns + c); };
  std::vector<bool> taken(values.size());
  std::vector<Patch> all;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      if (taken[at(r, c)]) continue;
      Patch patch{r, c, 1, 1, values[at(r, c)]};
      const auto free = [&](int row, int column) {
        return row < rows && column < columns && !taken[at(row, column)] && values[at(row, column)] == patch.value;
      };
      while (free(r, c + patch.columns)) ++patch.columns;
      const auto free_row = [&](int row) {
        for (int i = 0; i < patch.columns; ++i)
          if (!free(row, c + i)) return false;
        return true;
      };
      while (free_row(r + patch.rows)) ++patch.rows;
      for (int i = 0; i < patch.rows; ++i)
        for (int j = 0; j < patch.columns; ++j) taken[at(r + i, c + j)] = true;
      all.push_back(patch);
    }
  return all;
}

std::string heat_map(const std::string& title, const std::vector<double>& values, const std::vector<std::string>& rows,
                     const std::vector<std::string>& columns, const std::string& row_axis,
                     const std::string& column_axis) {
  const double left = 110, top = 128, n_columns = static_cast<double>(columns.size());
  const double cell = std::clamp(std::floor(620 / std::max(n_columns, 1.0)), 11.0, 14.0);  // 50 words are 734 wide
  const double width = cell * n_columns, height = cell * static_cast<double>(rows.size());
  Canvas canvas(std::max(left + width + 24, 520.0), top + height + 24, title);
  canvas.text(16, top - 8, row_axis, "fill=\"#666\"");
  canvas.text(16, 46, column_axis + " →", "fill=\"#666\"");
  double largest = 0;
  for (const double v : values) largest = std::isfinite(v) ? std::max(largest, v) : largest;
  canvas.raw("<g font-size=\"11\">");
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const std::string x = num(left + cell * static_cast<double>(c) + cell / 2 + 4), y = num(top - 6);
    canvas.text(0, 0, columns[c], "transform=\"translate(" + x + "," + y + ") rotate(-90)\"");
  }
  for (std::size_t r = 0; r < rows.size(); ++r)
    canvas.text(left - 6, top + cell * static_cast<double>(r) + cell - 3, rows[r], "text-anchor=\"end\"");
  canvas.raw("</g>");

  const auto style = [&](double v) {  // what a cell looks like; nothing where it stays white
    if (!std::isfinite(v)) return std::string("stroke=\"#d62728\"");
    const double shade = largest > 0 ? v / largest : 0;
    return shade >= 0.01 ? "stroke-opacity=\"" + num(shade, 2) + "\"" : std::string();
  };
  std::map<std::string, std::string> strokes;  // how they look -> where they run
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto look_of = [&](std::size_t c) { return style(values[r * columns.size() + c]); };
    for (std::size_t c = 0, end; c < columns.size(); c = end) {
      const std::string look = look_of(c);
      for (end = c + 1; end < columns.size() && look_of(end) == look;) ++end;
      if (!look.empty())
        strokes[look] += "M" + num(left + cell * static_cast<double>(c)) + " " +
                         num(top + cell * (static_cast<double>(r) + 0.5)) + "h" +
                         num(cell * static_cast<double>(end - c));
    }
  }
  canvas.raw("<g stroke=\"#08519c\" stroke-width=\"" + num(cell) + "\">");
  for (const auto& [look, runs] : strokes) canvas.raw("<path " + look + " d=\"" + runs + "\"/>");
  canvas.raw("</g>");
  canvas.rect(left, top, width, height, "fill=\"none\" stroke=\"#999\"");
  canvas.text(left, top + height + 16, "white: 0, darkest: " + num(largest, 2), "fill=\"#666\"");
  return canvas.str();
}

std::string bars(const std::string& title, const std::vector<std::pair<std::string, std::uint64_t>>& values) {
  const double left = 120, width = 400, row = 26, top = 40;
  Canvas canvas(left + width + 160, top + row * static_cast<double>(values.size()) + 8, title);
  std::uint64_t largest = 1;
  for (const auto& [name, value] : values) largest = std::max(largest, value);
  double y = top;
  for (const auto& [name, value] : values) {
    const double length = width * static_cast<double>(value) / static_cast<double>(largest);
    canvas.text(left - 8, y + 15, name, "text-anchor=\"end\"");
    canvas.rect(left, y, length, row - 6, "fill=\"#0072b2\"");
    canvas.text(left + length + 8, y + 15, grouped(value));
    y += row;
  }
  return canvas.str();
}

std::string short_number(double v) {
  if (v != 0 && std::abs(v) < 1) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2g", v);
    return text;
  }
  static constexpr const char* units[] = {"", " Ki", " Mi", " Gi", " Ti", " Pi"};
  int unit = 0;
  if (std::abs(v) >= 32768)
    for (; std::abs(v) >= 1024 && unit < 5; ++unit) v /= 1024;
  return num(v, 2) + units[unit];
}

std::vector<double> ticks(double lo, double hi, bool log) {
  std::vector<double> out;
  if (log) {
    const double octaves = std::log2(hi / lo), step = octaves <= 7 ? 1 : octaves <= 14 ? 2 : 4;
    for (double e = std::ceil(std::log2(lo) / step - 1e-9); e * step <= std::log2(hi) + 1e-9; ++e)
      out.push_back(std::exp2(e * step));
  } else {
    double step = std::pow(10, std::floor(std::log10((hi - lo) / 4)));
    for (const double factor : {2.0, 2.5, 2.0})
      if ((hi - lo) / step > 8) step *= factor;
    for (double t = std::ceil(lo / step - 1e-9); t * step <= hi + step * 1e-9; ++t) out.push_back(t * step);
  }
  return out;
}

std::string chart(const Axes& axes, const std::vector<Line>& lines) {
  static constexpr const char* colours[] = {"#0072b2", "#d55e00", "#009e73", "#8a3d70", "#b07800", "#555555"};
  const double left = 74, top = 64, width = 470, height = 330, right = 216;
  Canvas canvas(left + width + right, top + height + 54, axes.title);
  const auto scaled = [&](double v) { return axes.log ? std::log(v) : v; };
  double lo[2] = {INFINITY, INFINITY}, hi[2] = {-INFINITY, -INFINITY};
  for (const Line& line : lines)
    for (const Points* points : {&line.points, &line.dots})
      for (const auto& p : *points)
        for (int a : {0, 1})
          if (std::isfinite(scaled(p[a]))) lo[a] = std::min(lo[a], p[a]), hi[a] = std::max(hi[a], p[a]);
  for (int a : {0, 1})
    if (!(lo[a] < hi[a])) lo[a] = std::isfinite(lo[a]) ? lo[a] : 1, hi[a] = lo[a] + 1;  // one point, or none
  const auto at = [&](int a, double v) { return (scaled(v) - scaled(lo[a])) / (scaled(hi[a]) - scaled(lo[a])); };
  const auto x_at = [&](double v) { return left + width * at(0, v); };
  const auto y_at = [&](double v) { return top + height * (1 - at(1, v)); };

  for (const double t : ticks(lo[0], hi[0], axes.log)) {
    canvas.line(x_at(t), top, x_at(t), top + height, "stroke=\"#ddd\"");
    canvas.text(x_at(t), top + height + 18, short_number(t), "text-anchor=\"middle\"");
  }
  for (const double t : ticks(lo[1], hi[1], axes.log)) {
    canvas.line(left, y_at(t), left + width, y_at(t), "stroke=\"#ddd\"");
    canvas.text(left - 8, y_at(t) + 4, short_number(t), "text-anchor=\"end\"");
  }
  canvas.rect(left, top, width, height, "fill=\"none\" stroke=\"#999\"");
  canvas.text(left + width / 2, top + height + 42, axes.x, "text-anchor=\"middle\"");
  canvas.text(left - 58, top - 16, axes.y);

  std::multimap<double, std::size_t> label_at;  // y of a line's right end -> line
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string colour = colours[i % std::size(colours)];
    std::string path;
    const auto finite = [&](const auto& p) { return std::isfinite(scaled(p[0])) && std::isfinite(scaled(p[1])); };
    for (const auto& p : lines[i].points)
      if (finite(p)) path += num(x_at(p[0])) + "," + num(y_at(p[1])) + " ";
    canvas.path(path,
                "stroke-width=\"2\" stroke=\"" + colour + (lines[i].dashed ? "\" stroke-dasharray=\"6 4\"" : "\""));
    for (const auto& p : lines[i].dots)
      if (finite(p)) canvas.dot(x_at(p[0]), y_at(p[1]), "fill=\"" + colour + "\"");
    const Points& end = lines[i].points.empty() ? lines[i].dots : lines[i].points;
    label_at.emplace(end.empty() || !finite(end.back()) ? top : y_at(end.back()[1]), i);
  }
  // At least one line of text apart: from the top down, and where that leads below the axis, from there up again.
  std::vector<std::pair<double, std::size_t>> labels(label_at.begin(), label_at.end());
  double lowest = top - 16, highest = top + height + 16;
  for (auto& [y, i] : labels) lowest = y = std::max(lowest + 16, y);
  for (auto label = labels.rbegin(); label != labels.rend(); ++label)
    highest = label->first = std::min(highest - 16, label->first);
  for (const auto& [y, i] : labels)
    canvas.text(left + width + 10, y + 4, lines[i].label,
                std::string("fill=\"") + colours[i % std::size(colours)] + "\"");
  return canvas.str();
}

}  // namespace flash::svg
