// tile_walk.cpp: see tile_walk.hpp.
// One column of boxes for Q, one for O, a row for K and V, and the tiles of S between them with their order.
// Use: linked with flash_common.
#include "phases/pages/tile_walk.hpp"

#include <algorithm>

namespace flash::svg {

std::vector<int> fetches(const Walk& walk, int axis) {
  std::vector<int> count(static_cast<std::size_t>(axis == 0 ? walk.rows : walk.columns));
  for (std::size_t s = 0; s < walk.order.size(); ++s)
    if (axis != walk.outer || s == 0 || walk.order[s][axis] != walk.order[s - 1][axis])
      ++count[static_cast<std::size_t>(walk.order[s][axis])];
  return count;
}

std::string tile_walks(const std::string& title, const std::vector<Walk>& walks) {
  const double tile = 46, side = 58, head = 34, gap = 8, top = 68, seconds = 0.5;
  const auto width_of = [&](const Walk& walk) { return 2 * (side + gap) + tile * walk.columns; };
  double width = 16, rows = 0;
  std::string style = ".on{opacity:0}";
  for (std::size_t w = 0; w < walks.size(); ++w) {
    const std::string name = "w" + std::to_string(w), steps = num(static_cast<double>(walks[w].order.size()) * seconds);
    style += "@keyframes " + name + "{0%{opacity:1}" + num(100.0 / static_cast<double>(walks[w].order.size())) +
             "%,100%{opacity:0}}@media (prefers-reduced-motion:no-preference){." + name + "{animation:" + name + " " +
             steps + "s step-end infinite}}";
    width += width_of(walks[w]) + 40;
    rows = std::max<double>(rows, walks[w].rows);
  }
  Canvas canvas(std::max(width, 32 + 9.5 * static_cast<double>(title.size())), top + head + gap + tile * rows + 40,
                title, style);

  double x0 = 16;
  for (std::size_t w = 0; w < walks.size(); x0 += width_of(walks[w]) + 40, ++w) {
    const Walk& walk = walks[w];
    const auto x_of = [&](int j) { return x0 + side + gap + tile * j; };
    const auto y_of = [&](int i) { return top + head + gap + tile * i; };
    const double right = x_of(walk.columns) + gap;
    const auto box = [&](double x, double y, double bw, double bh, const std::string& name, int count) {
      canvas.rect(x, y, bw, bh, "fill=\"#f1f1f1\" stroke=\"#999\"");
      canvas.text(x + bw / 2, y + bh / 2 - 2, name, "text-anchor=\"middle\" font-size=\"11\"");
      canvas.text(x + bw / 2, y + bh / 2 + 12, "×" + std::to_string(count),
                  "text-anchor=\"middle\" font-weight=\"bold\"");
    };
    canvas.text(x0, top - 14, walk.title, "font-weight=\"bold\"");
    if (!walk.note.empty()) canvas.text(x0, y_of(walk.rows) + 22, walk.note);
    for (int j = 0; j < walk.columns; ++j)
      box(x_of(j), top, tile, head, "K V " + std::to_string(j + 1), fetches(walk, 1)[static_cast<std::size_t>(j)]);
    for (int i = 0; i < walk.rows; ++i) {
      const int count = fetches(walk, 0)[static_cast<std::size_t>(i)];
      box(x0, y_of(i), side, tile, "Q " + std::to_string(i + 1), count);
      box(right, y_of(i), side, tile, "O " + std::to_string(i + 1), count);
    }
    canvas.rect(x_of(0), y_of(0), tile * walk.columns, tile * walk.rows, "fill=\"#ddd\"");
    std::string path;
    for (const auto& [i, j] : walk.order) {
      canvas.rect(x_of(j), y_of(i), tile, tile, "fill=\"#bcd9ee\" stroke=\"white\" stroke-width=\"2\"");
      path += num(x_of(j) + tile / 2) + "," + num(y_of(i) + tile / 2) + " ";
    }
    canvas.path(path, "stroke=\"#d55e00\" stroke-opacity=\"0.5\"");
    for (std::size_t s = 0; s < walk.order.size(); ++s) {
      const auto [i, j] = walk.order[s];
      canvas.text(
          x_of(j) + tile / 2, y_of(i) + tile / 2 + 5, std::to_string(s + 1),
          "text-anchor=\"middle\" font-size=\"14\" paint-order=\"stroke\" stroke=\"#bcd9ee\" stroke-width=\"6\"");
      canvas.raw("<g class=\"on w" + std::to_string(w) + "\" style=\"animation-delay:" +
                 num(seconds * static_cast<double>(s)) + "s\" fill=\"#d55e00\" fill-opacity=\"0.45\">");
      canvas.rect(x_of(j), y_of(i), tile, tile, "");
      canvas.rect(x_of(j), top, tile, head, "");
      canvas.rect(x0, y_of(i), side, tile, "");
      canvas.rect(right, y_of(i), side, tile, "");
      canvas.raw("</g>");
    }
  }
  return canvas.str();
}

}  // namespace flash::svg
