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
  const double tile = 42, side = 58, head = 34, gap = 8, first_top = 68, seconds = 0.5, widest = 760;
  const auto width_of = [&](const Walk& walk) { return 2 * (side + gap) + tile * walk.columns; };
  std::string style = ".on{opacity:0}";
  std::vector<std::array<double, 2>> corners;  // of each walk: beside the one before where there is room, or below it
  double width = 0, x_next = 16, top_next = first_top, bottom = first_top;
  for (std::size_t w = 0; w < walks.size(); ++w) {
    const std::string name = "w" + std::to_string(w), steps = num(static_cast<double>(walks[w].order.size()) * seconds);
    style += "@keyframes " + name + "{0%{opacity:1}" + num(100.0 / static_cast<double>(walks[w].order.size())) +
             "%,100%{opacity:0}}@media (prefers-reduced-motion:no-preference){." + name + "{animation:" + name + " " +
             steps + "s step-end infinite}}";
    if (w > 0 && x_next + width_of(walks[w]) > widest) x_next = 16, top_next = bottom + 40;
    corners.push_back({x_next, top_next});
    x_next += width_of(walks[w]) + 32;
    width = std::max(width, x_next - 16);
    bottom = std::max(bottom, top_next + head + gap + tile * walks[w].rows + (walks[w].note.empty() ? 0 : 26));
  }
  Canvas canvas(std::max(width, 32 + 9.5 * static_cast<double>(title.size())), bottom + 14, title, style);

  for (std::size_t w = 0; w < walks.size(); ++w) {
    const Walk& walk = walks[w];
    const auto [x_corner, top_corner] = corners[w];
    const double x0 = x_corner, top = top_corner;
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

std::string one_step(const std::string& title, const Sizes& sizes, const std::vector<Step>& steps) {
  const char *stays = "#9ecae8", *moves = "#f2b27a", *grey = "#cfcfcf";
  const double px = steps.size() == 1 ? 2 : 1.5, gap = 9, top = 88;  // px: pixels for a number
  const double d = px * sizes.d, N = px * sizes.N, br = px * sizes.Br, bc = px * sizes.Bc, column = 18;
  const double hbm = 4 * (d + gap) + column + 11, panel = hbm + 14 + N + 8;
  const double below = top + N + 10, chip = below + 50, tile = chip + 14, end = tile + std::max(br, bc) + 26;
  Canvas canvas(32 + panel * static_cast<double>(steps.size()) + 20 * static_cast<double>(steps.size() - 1), end + 62,
                title);
  double x0 = 16;
  for (const Step& step : steps) {
    const auto [i, j] = step.walk.order[step.number];
    const auto text = [&](double x, double y, const std::string& words) {
      canvas.text(x, y, words, "text-anchor=\"middle\"");
    };
    const auto box = [&](double x, double y, double width, double height, const std::string& fill) {
      canvas.rect(x, y, width, height, "fill=\"" + fill + "\" stroke=\"#999\"");
    };
    canvas.text(x0, 50, step.walk.title, "font-weight=\"bold\"");
    canvas.rect(x0, top - 24, hbm, below - top + 24, "fill=\"#eee\"");
    canvas.text(x0 + 8, top - 8, "HBM");
    canvas.rect(x0, chip, panel, end - chip, "fill=\"#eee\" stroke=\"#999\"");
    canvas.text(x0 + 8, end - 8, "on chip");

    // An array: its tiles in HBM, the one that is meant among them, that one on chip, and what moved between the two.
    double x = x0 + 10;
    const auto array = [&](const std::string& name, double width, int tiles, double height, int which) {
      const bool in = step.run.moves(step.number, name, true), out = step.run.moves(step.number, name, false);
      const std::string fill = in || out ? moves : stays;
      const bool in_hbm = step.run.knows(name);
      for (int t = 0; t < tiles && in_hbm; ++t)
        box(x, top + height * t, width, std::min(height, N - height * t), t == which ? fill : "white");
      box(x, tile, width, height, fill);
      const double middle = x + width / 2, side = in && out ? width / 4 : 0;
      if (in) canvas.arrow(middle - side, below + 2, middle - side, tile - 2, "#d55e00");
      if (out) canvas.arrow(middle + side, tile - 2, middle + side, below + 2, "#d55e00");
      if (width == column) {
        text(middle, in_hbm ? top - 8 : tile + height + 16, "l, m");
      } else {
        const std::string label = name + " " + std::to_string(which + 1);
        text(middle, top + height * which + std::min(height, N - height * which) / 2 + 4, label);
        text(middle, tile + height / 2 + 4, label);
      }
      x += width + gap;
    };
    array("Q", d, step.walk.rows, br, i);
    array("K", d, step.walk.columns, bc, j);
    array("V", d, step.walk.columns, bc, j);
    array("O", d, step.walk.rows, br, i);
    x -= gap - 3;
    array("l", column, step.walk.rows, br, i);  // and m, which goes where l goes

    // S: the tile that exists now, and the way through those that come and go.
    const double s = x0 + hbm + 14;
    for (int r = 0; r < step.walk.rows; ++r)
      for (int c = 0; c < step.walk.columns; ++c)
        canvas.rect(s + bc * c, top + br * r, std::min(bc, N - bc * c), std::min(br, N - br * r),
                    "fill=\"none\" stroke=\"#999\" stroke-dasharray=\"2 3\"");
    const auto middle = [&](int t, double size) { return size * t + std::min(size, N - size * t) / 2; };
    std::string path;
    for (const auto& [r, c] : step.walk.order) path += num(s + middle(c, bc)) + "," + num(top + middle(r, br)) + " ";
    canvas.path(path, "stroke=\"#888\"");
    box(s + bc * j, top + br * i, bc, br, grey);
    box(s + bc * j, tile, bc, br, grey);
    text(s + bc * j + bc / 2, tile + br / 2 + 4, "S");
    text(s + N / 2, top - 8, "S, never whole");
    canvas.text(x0, end + 20, step.walk.note);
    x0 += panel + 20;
  }
  canvas.rect(16, end + 36, 14, 14, std::string("fill=\"") + moves + "\" stroke=\"#999\"");
  canvas.text(36, end + 48, "moves in this step");
  canvas.rect(196, end + 36, 14, 14, std::string("fill=\"") + stays + "\" stroke=\"#999\"");
  canvas.text(216, end + 48, "stays on chip from step to step");
  return canvas.str();
}

}  // namespace flash::svg
