// svg_test.cpp: pictures are well-formed, escape their text, survive NaN, and say what was put in.
// Where things are and how dark or high is read back from the text (tests/markup.hpp).
// ./flash test     or: build/default/bin/svg_test
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "phases/pages/barrier_life.hpp"
#include "phases/pages/stages.hpp"
#include "phases/pages/svg.hpp"
#include "phases/pages/tile_walk.hpp"
#include "tests/markup.hpp"

using namespace flash;
using namespace flash::test;

static const double nan_value = std::numeric_limits<double>::quiet_NaN();

static int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t i = text.find(part); i != std::string::npos; i = text.find(part, i + 1)) ++n;
  return n;
}

TEST_CASE("the checker can say no") {
  CHECK(well_formed("<svg><g a=\"1\"/></svg>"));
  for (const char* bad :
       {"<svg>", "<svg></g>", "<svg a=\"></svg>", "<svg>a & b</svg>", "<svg x=\"nan\"/>", "<svg <g/>"})
    CHECK_FALSE(well_formed(bad));
}

TEST_CASE("text is escaped, numbers are short") {
  CHECK(svg::escape("a<b & \"c\">") == "a&lt;b &amp; &quot;c&quot;&gt;");
  CHECK(svg::num(1.50) == "1.5");
  CHECK(svg::num(-0.001) == "0");
  CHECK(svg::num(100) == "100");
  CHECK(svg::num(12.345) == "12.3");
  CHECK(svg::num(12.345, 2) == "12.35");
  CHECK(svg::num(100, 0) == "100");
  CHECK(svg::short_number(16384) == "16384");
  CHECK(svg::short_number(65536) == "64 Ki");
  CHECK(svg::short_number(1.5 * 1073741824) == "1.5 Gi");
  CHECK(svg::short_number(0) == "0");
  CHECK(svg::short_number(0.25) == "0.25");
  CHECK(svg::short_number(0.0009765625) == "0.00098");  // not 0: labels of a log axis
}

TEST_CASE("bars are as long as their values, the largest as long as there is room") {
  const std::string picture = svg::bars("a & b", {{"one", 1500}, {"two < 1", 3000}, {"none", 0}});
  CHECK(well_formed(picture));
  const std::vector<Element> rects = elements(picture, "rect");  // the background first
  REQUIRE(rects.size() == 4);
  CHECK(rects[2].number("width") == 2 * rects[1].number("width"));
  CHECK(rects[3].number("width") == 0);
  CHECK(count(picture, ">1,500<") == 1);
  CHECK(count(picture, ">two &lt; 1<") == 1);
  CHECK(well_formed(svg::bars("empty", {})));
}

TEST_CASE("heat map: darkest is the largest, almost nothing is not drawn, NaN is red") {
  const std::string picture = svg::heat_map("P <1>", {0.5, 0.25, 0.0, nan_value}, {"r&1", "r2"}, {"c1", "c2"});
  CHECK(well_formed(picture));
  CHECK(count(picture, "stroke-opacity=\"1\"") == 1);
  CHECK(count(picture, "stroke-opacity=\"0.5\"") == 1);
  CHECK(count(picture, "stroke-opacity=") == 2);
  CHECK(count(picture, "#d62728") == 1);
  CHECK(count(picture, "r&amp;1") == 1);
  CHECK(well_formed(svg::heat_map("empty", {}, {}, {})));
  CHECK(well_formed(svg::heat_map("all NaN", {nan_value}, {"r"}, {"c"})));
}

TEST_CASE("an arrow's head is at its end") {
  svg::Canvas canvas(100, 100, "arrow");
  canvas.arrow(10, 50, 90, 50, "#222");
  CHECK(well_formed(canvas.str()));
  CHECK(elements(canvas.str(), "polygon").at(0).word("points") == "90,50 82,54 82,46 ");
  CHECK(elements(canvas.str(), "line").at(0).number("x2") == 82);
}

TEST_CASE("patches: equal neighbours are one rectangle, and each cell is in one") {
  const std::vector<int> values = {1, 1, 2,   //
                                   1, 1, 2,   //
                                   1, 2, 2};  // the last 1 is no rectangle with the others, nor is the last 2
  std::vector<int> covered(values.size());
  const std::vector<svg::Patch> patches = svg::patches(values, 3);
  for (const svg::Patch& p : patches)
    for (int r = p.row; r < p.row + p.rows; ++r)
      for (int c = p.column; c < p.column + p.columns; ++c) {
        CHECK(values.at(3 * r + c) == p.value);
        ++covered.at(3 * r + c);
      }
  CHECK(covered == std::vector<int>(values.size(), 1));
  CHECK(patches.size() == 4);
  CHECK(patches.at(0).rows == 2);
  CHECK(patches.at(0).columns == 2);
  CHECK(svg::patches(std::vector<int>(12, 7), 4).size() == 1);
  CHECK(svg::patches({}, 4).empty());
}

TEST_CASE("chart: every line has its label, bad points are left out") {
  const std::vector<svg::Line> lines = {{"a < b", {{1, 10}, {2, 100}, {4, 1000}}, {{1, 10}}},
                                        {"dots", {}, {{2, 50}, {4, nan_value}}},
                                        {"bad", {{2, nan_value}, {0, 1}, {4, -5}}, {}, true}};
  for (const bool log : {true, false}) {
    const std::string picture = svg::chart({"title & more", "x", "y", log}, lines);
    CHECK(well_formed(picture));
    CHECK(count(picture, ">a &lt; b</text>") == 1);
    CHECK(count(picture, "<circle") == 2);
    CHECK(count(picture, "stroke-dasharray") == 1);
  }
  CHECK(well_formed(svg::chart({"none", "x", "y"}, {})));
  CHECK(well_formed(svg::chart({"one point", "x", "y"}, {{"p", {{3, 3}}}})));
}

TEST_CASE("ticks are round and inside") {
  CHECK(svg::ticks(16, 128, true) == std::vector<double>{16, 32, 64, 128});
  CHECK(svg::ticks(64, 16384, true) == std::vector<double>{64, 256, 1024, 4096, 16384});
  CHECK(svg::ticks(0, 50, false) == std::vector<double>{0, 10, 20, 30, 40, 50});
  CHECK(svg::ticks(-4.7, 8, false) == std::vector<double>{-4, -2, 0, 2, 4, 6, 8});
}

TEST_CASE("tile walk: the outer loop's tiles come once, the inner loop's at every step") {
  svg::Walk v1{"V1", 2, 3, 1, {}}, v2{"V2", 2, 3, 0, {}};
  for (int j = 0; j < 3; ++j)
    for (int i = 0; i < 2; ++i) v1.order.push_back({i, j});
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j <= i; ++j) v2.order.push_back({i, j});  // causal: tile (1, 0) loads K again, tile 2 is never seen
  CHECK(svg::fetches(v1, 0) == std::vector<int>{3, 3});
  CHECK(svg::fetches(v1, 1) == std::vector<int>{1, 1, 1});
  CHECK(svg::fetches(v2, 0) == std::vector<int>{1, 1});
  CHECK(svg::fetches(v2, 1) == std::vector<int>{2, 1, 0});

  const std::string picture = svg::tile_walks("both & more", {v1, v2});
  CHECK(well_formed(picture));
  CHECK(count(picture, "<g class=\"on w0\"") == 6);
  CHECK(count(picture, "<g class=\"on w1\"") == 3);
  CHECK(count(picture, "prefers-reduced-motion:no-preference") == 2);
  CHECK(well_formed(svg::tile_walks("nothing visited", {{"none", 1, 1, 0, {}}})));
}

// ---- Positions and values: what is where ----------------------------------------------------------------------------

// The only text of a picture with these words.
static Element label(const std::string& picture, const std::string& words) {
  std::vector<Element> found;
  for (const Element& e : elements(picture, "text"))
    if (e.text == words) found.push_back(e);
  REQUIRE_MESSAGE(found.size() == 1, words);
  return found[0];
}

static bool inside(double at, double begin, double size) {
  return begin <= at && at <= begin + size;
}

TEST_CASE("stages: a stay is a copy, a phase that is complete, and who reads, of the first block alone") {
  using Kind = Recording::Kind;
  const auto step = [](int warp, Kind kind, std::uint64_t first, std::uint64_t from = 0) {
    Recording::Step one{.warp = warp};
    one.parts.push_back({.kind = kind, .place = 0, .bytes = 64, .spans = {{first, first + 64}}});
    if (kind == Kind::copy) one.parts[0].source = 0, one.parts[0].from = {{from, from + 64}};
    return one;
  };
  Recording recording;
  recording.steps = {step(0, Kind::copy, 0, 128),  step(0, Kind::copy, 64, 64),   step(-1, Kind::landed, 0),
                     step(0, Kind::product, 0),    step(0, Kind::multiplied, 0),  step(4, Kind::product, 0),
                     step(4, Kind::multiplied, 0), step(0, Kind::chip_write, 256)};
  recording.steps.push_back({.released = true});
  recording.steps.push_back(step(0, Kind::copy, 0, 0));
  recording.steps.push_back(step(0, Kind::copy, 64, 0));
  recording.steps.back().block = 1;
  const svg::Lives lives = svg::lives(recording, {{"A", 0, 64, "a", "S"}, {"B", 64, 128, "b", "PV"}});
  CHECK(lives.events == 9);  // 7, the barrier and a copy: the store is somewhere else, the last copy another block's
  CHECK(lives.barriers == std::vector<int>{7});
  REQUIRE(lives.stays[0].size() == 2);
  const svg::Stay& stay = lives.stays[0][0];
  CHECK(stay.tile == 2);
  CHECK(stay.bytes == 64);
  CHECK(stay.begun == 0);
  CHECK(stay.complete == 3);
  REQUIRE(stay.readings.size() == 2);
  CHECK(stay.readings[0].begin == 3);
  CHECK(stay.readings[0].end == 5);
  CHECK(stay.readings[1].reader == 4);
  CHECK(lives.stays[0][1].begun == 8);
  REQUIRE(lives.stays[1].size() == 1);
  CHECK(lives.stays[1][0].complete == 0);  // nobody waited for it

  const std::string picture = svg::stages("two & more", lives, {.between = "softmax"});
  CHECK(well_formed(picture));
  CHECK(count(picture, ">warpgroup ") == 2);
  CHECK(count(picture, ">A<") == 1);
  CHECK(count(picture, ">its phase<") == 2);
}

// A run of equal cells in a row of a heat map: M<x> <y>h<width> of a path, a stroke as wide as the row is high.
struct Run {
  double x, y, width, height;
  Element path;
};
static std::vector<Run> runs(const std::string& picture) {
  double height = 0;
  for (const Element& g : elements(picture, "g"))
    if (!g.word("stroke-width").empty()) height = g.number("stroke-width");
  std::vector<Run> all;
  for (const Element& path : elements(picture, "path")) {
    const std::string d = path.word("d");
    for (std::size_t at = d.find('M'); at != std::string::npos; at = d.find('M', at + 1)) {
      char *after_x = nullptr, *after_y = nullptr;
      const double x = std::strtod(d.c_str() + at + 1, &after_x), middle = std::strtod(after_x, &after_y);
      REQUIRE(*after_y == 'h');
      all.push_back({x, middle - height / 2, std::strtod(after_y + 1, nullptr), height, path});
    }
  }
  return all;
}

TEST_CASE("heat map: equal neighbours in a row are one stroke, equal rows are not") {
  const std::string picture =
      svg::heat_map("P", {1, 1, 0.5, 1, 0, 0, 1, 1, nan_value, nan_value}, {"a", "b"}, {"1", "2", "3", "4", "5"});
  CHECK(well_formed(picture));
  const double cell = runs(picture).at(0).height;
  std::multimap<std::string, std::array<double, 2>> where;  // look -> {row, cells}
  for (const Run& run : runs(picture))
    where.insert({run.path.word("stroke") + run.path.word("stroke-opacity"),
                  {(run.y - runs(picture)[0].y) / cell, run.width / cell}});
  CHECK(where.count("1") == 3);
  CHECK(where.count("0.5") == 1);
  CHECK(where.count("#d62728") == 1);
  CHECK(where.find("#d62728")->second[1] == 2);
  CHECK(where.size() == 5);
}

TEST_CASE("heat map: as wide as a column of text where there are 50 keys") {
  const std::vector<std::string> words(50, "w");
  const std::string picture = svg::heat_map("P", std::vector<double>(2500, 1), words, words);
  CHECK(elements(picture, "svg").at(0).number("width") <= 760);
  CHECK(picture.size() < 20000);
}

TEST_CASE("heat map: the value of query i and key j stands in the row of label i and the column of label j") {
  const std::vector<double> values = {0.1, 0.2, 0.3, nan_value, 0.5, 0.9};  // 2 queries, 3 keys
  const std::vector<std::string> rows = {"query 0", "query 1"}, columns = {"key 0", "key 1", "key 2"};
  const std::string picture = svg::heat_map("P", values, rows, columns);
  CHECK(label(picture, "key j (x) →").number("y") < label(picture, "key 0").number("y") + 60);
  CHECK(label(picture, "query 0").number("y") < label(picture, "query 1").number("y"));  // y grows downwards
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < columns.size(); ++j) {
      INFO(i << ", " << j);
      const double y = label(picture, rows[i]).number("y");
      // column labels are turned: their place is in the transformation, "translate(x,y) rotate(-90)"
      const std::string turned = label(picture, columns[j]).word("transform");
      const double x = std::strtod(turned.c_str() + turned.find('(') + 1, nullptr);
      std::vector<Element> there;
      for (const Run& run : runs(picture))
        if (run.width == run.height && inside(x, run.x, run.width) && inside(y, run.y, run.height))
          there.push_back(run.path);
      REQUIRE(there.size() == 1);
      const double value = values[i * columns.size() + j];
      if (std::isnan(value))
        CHECK(there[0].word("stroke") == "#d62728");
      else
        CHECK(there[0].number("stroke-opacity") == doctest::Approx(value / 0.9).epsilon(0.02));
    }
  CHECK(label(picture, "white: 0, darkest: 0.9").number("y") > label(picture, "query 1").number("y"));
}

// "1,2 3,4 " -> {{1, 2}, {3, 4}}
static svg::Points points_of(const std::string& text) {
  svg::Points points;
  for (const char* at = text.c_str(); *at; ++at) {
    char* end = nullptr;
    const double x = std::strtod(at, &end), y = std::strtod(end + 1, &end);
    points.push_back({x, y});
    at = end;
  }
  return points;
}

TEST_CASE("chart: labels of lines that end together at the bottom stand apart, and above the axis") {
  const std::string picture =
      svg::chart({"t", "N", "y"}, {{"high", {{1, 64}, {2, 64}}}, {"low", {{1, 1}, {2, 1}}}, {"too", {{1, 1}, {2, 1}}}});
  const auto y_of = [&](const std::string& label) {
    const std::size_t end = picture.find(">" + label + "</text>"), at = picture.rfind(" y=\"", end);
    REQUIRE(end != std::string::npos);
    return std::stod(picture.substr(at + 4));
  };
  const double axis = y_of("N") - 42;  // the axis' name stands below it
  CHECK(std::abs(y_of("low") - y_of("too")) >= 16);
  CHECK(std::max(y_of("low"), y_of("too")) <= axis + 8);
  CHECK(y_of("high") < axis - 100);
}

TEST_CASE("chart: each point is where the grid says that its values are, more is higher and further right") {
  const svg::Points up = {{16, 1}, {32, 4}, {64, 8}, {128, 64}}, down = {{16, 32}, {128, 2}};
  for (const bool log : {true, false}) {
    const std::string picture = svg::chart({"title", "N", "bytes", log},
                                           {{"flat", {{16, 1}, {128, 1}}}, {"falls", down, {{32, 16}}}, {"rises", up}});
    // The place of a value, from the labels of the axes: those of x stand in one line, those of y in one column.
    std::map<double, double> x_at, y_at;
    double lowest = 0;
    for (const Element& e : elements(picture, "text"))
      if (e.word("text-anchor") == "middle" && e.text != "N") lowest = std::max(lowest, e.number("y"));
    for (const Element& e : elements(picture, "text")) {
      const double value = std::strtod(e.text.c_str(), nullptr);
      if (e.word("text-anchor") == "middle" && e.number("y") == lowest && e.text != "N") x_at[value] = e.number("x");
      if (e.word("text-anchor") == "end") y_at[value] = e.number("y") - 4;  // the middle of a line of text
    }
    REQUIRE(x_at.size() >= 4);
    REQUIRE(y_at.size() >= 4);
    double last = -1;
    for (const auto& [value, x] : x_at) {
      CHECK(x > last);
      last = x;
    }
    last = 1e9;
    for (const auto& [value, y] : y_at) {
      CHECK(y < last);
      last = y;
    }
    // A straight line through two labels says where everything is.
    const auto place = [&](const std::map<double, double>& labels, double value) {
      const auto scaled = [&](double v) { return log ? std::log(v) : v; };
      const auto [v0, p0] = *labels.begin();
      const auto [v1, p1] = *labels.rbegin();
      return p0 + (p1 - p0) * (scaled(value) - scaled(v0)) / (scaled(v1) - scaled(v0));
    };
    const std::vector<Element> lines = elements(picture, "polyline");
    REQUIRE(lines.size() == 3);
    for (const auto& [line, data] : {std::pair{lines[2], up}, {lines[1], down}}) {
      const svg::Points drawn = points_of(line.word("points"));
      REQUIRE(drawn.size() == data.size());
      for (std::size_t i = 0; i < data.size(); ++i) {
        CHECK(std::abs(drawn[i][0] - place(x_at, data[i][0])) <= 0.5);
        CHECK(std::abs(drawn[i][1] - place(y_at, data[i][1])) <= 0.5);
      }
    }
    REQUIRE(elements(picture, "circle").size() == 1);
    const Element dot = elements(picture, "circle")[0];
    CHECK(std::abs(dot.number("cx") - place(x_at, 32)) <= 0.5);
    CHECK(std::abs(dot.number("cy") - place(y_at, 16)) <= 0.5);
    // Labels stand at the right ends, in their line's colour and in the order of the ends, apart enough to be read.
    const Element rises = label(picture, "rises"), falls = label(picture, "falls"), flat = label(picture, "flat");
    CHECK(std::abs(rises.number("y") - 4 - place(y_at, 64)) <= 0.5);
    CHECK(rises.number("y") < falls.number("y"));
    CHECK(falls.number("y") + 16 <= flat.number("y"));
    CHECK(rises.number("x") > place(x_at, 128));
    CHECK(rises.word("fill") == lines[2].word("stroke"));
    CHECK(falls.word("fill") == lines[1].word("stroke"));
    CHECK(rises.word("fill") != falls.word("fill"));
    CHECK(dot.word("fill") == lines[1].word("stroke"));
  }
}

TEST_CASE("tile walk: Q and O stand beside their rows, K and V above their columns, with how often each comes") {
  svg::Walk walk{"V1", 2, 3, 1, {}};  // K/V outside: each of its tiles comes once, each of Q's three times
  for (int j = 0; j < 3; ++j)
    for (int i = 0; i < 2; ++i) walk.order.push_back({i, j});
  svg::Walk other{"V2", 2, 3, 0, {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}}};
  const std::map<std::string, std::string> v1 = {{"Q 1", "×3"},   {"Q 2", "×3"},   {"O 1", "×3"},  {"O 2", "×3"},
                                                 {"K V 1", "×1"}, {"K V 2", "×1"}, {"K V 3", "×1"}},
                                           v2 = {{"Q 1", "×1"},   {"Q 2", "×1"},   {"O 1", "×1"},  {"O 2", "×1"},
                                                 {"K V 1", "×2"}, {"K V 2", "×2"}, {"K V 3", "×1"}};
  for (const auto& [shown, counts] : {std::pair{walk, v1}, {other, v2}}) {
    const std::string picture = svg::tile_walks("walk", {shown});
    // The name of a box and, just below it, how often what is in it comes.
    const auto count_below = [&](const Element& name) {
      for (const Element& e : elements(picture, "text"))
        if (e.number("x") == name.number("x") && e.number("y") > name.number("y") &&
            e.number("y") <= name.number("y") + 16 && e.word("font-weight") == "bold")
          return e.text;
      return std::string();
    };
    for (const auto& [name, times] : counts) {
      INFO(shown.title << " " << name);
      CHECK(count_below(label(picture, name)) == times);
    }
    // Step s is written where its row and its column meet, and there the light is at that time.
    std::vector<Element> lights;  // four for each step: the tile, K and V, Q, O
    for (std::size_t at = 0; (at = picture.find("<g class=\"on", at)) != std::string::npos; ++at)
      for (const Element& rect : elements(picture.substr(at, picture.find("</g>", at) - at), "rect"))
        lights.push_back(rect);
    const std::vector<Element> groups = elements(picture, "g");
    REQUIRE(lights.size() == 4 * shown.order.size());
    REQUIRE(groups.size() == shown.order.size());
    for (std::size_t s = 0; s < shown.order.size(); ++s) {
      const auto [i, j] = shown.order[s];
      INFO("step " << s + 1);
      const Element step = label(picture, std::to_string(s + 1)), q = label(picture, "Q " + std::to_string(i + 1)),
                    o = label(picture, "O " + std::to_string(i + 1)),
                    kv = label(picture, "K V " + std::to_string(j + 1));
      CHECK(step.number("x") == kv.number("x"));
      CHECK(std::abs(step.number("y") - q.number("y")) <= 10);
      CHECK(q.number("y") == o.number("y"));
      CHECK(q.number("x") < step.number("x"));
      CHECK(step.number("x") < o.number("x"));
      CHECK(kv.number("y") < step.number("y"));
      const Element* what[] = {&step, &kv, &q, &o};
      for (std::size_t l = 0; l < 4; ++l) {
        const Element& light = lights[4 * s + l];
        CHECK(inside(what[l]->number("x"), light.number("x"), light.number("width")));
        CHECK(inside(what[l]->number("y"), light.number("y"), light.number("height")));
      }
      CHECK(groups[s].word("style") == "animation-delay:" + svg::num(0.5 * static_cast<double>(s)) + "s");
    }
    // The path runs through the steps in order.
    const svg::Points path = points_of(elements(picture, "polyline")[0].word("points"));
    REQUIRE(path.size() == shown.order.size());
    for (std::size_t s = 0; s < path.size(); ++s)
      CHECK(path[s][0] == label(picture, std::to_string(s + 1)).number("x"));
  }
}

TEST_CASE("The life of a stage: filled, there, read and given back, and who waits for it") {
  Recording run;
  run.launches.push_back({"kernel"});
  run.launches[0].mbarriers = {{"full", 1}, {"empty", 2}};
  const auto step = [&](int warp, std::vector<Recording::Arrival> arrivals, const std::string& waits = "",
                        std::vector<Recording::Waited> waited = {}, std::uint64_t block = 0) -> Recording::Step& {
    Recording::Step& made = run.steps.emplace_back();
    made.warp = warp, made.block = block, made.arrivals = arrivals, made.waits = waits, made.waited = waited;
    return made;
  };
  const auto fills = Recording::Arrival{.mbarrier = 0, .count = 1, .expected = 16, .begun = 16};
  const auto leaves = Recording::Arrival{.mbarrier = 1, .count = 1};
  step(0, {fills});
  step(2, {}, "full").also = {3};
  step(2, {leaves}, "", {{0, 0, 1}}, 1);  // of another block
  step(-1, {{.mbarrier = 0, .come = 16}});
  step(2, {leaves}, "", {{0, 0, 1}});
  step(3, {leaves}, "", {{0, 0, 1}});
  step(0, {fills}, "", {{1, 0, 1}});  // of a filling that is not asked for

  CHECK(svg::arrived_at(run, "empty") == std::vector<int>{2, 3});
  const std::string picture =
      svg::barrier_life("A stage", run, {{"stage", "full", "empty", {"tile 7"}}}, {{"loads", 0, 0}, {"reads", 2, 3}});
  CHECK(well_formed(picture));
  CHECK(count(picture, "<circle") == 3 + 1);  // arrivals, and one that explains them
  const double column = 614.0 / 5;
  const auto bar = [&](const std::string& colour, double from, double to) {
    int found = 0;
    for (const Element& rect : elements(picture, "rect"))
      found += rect.word("fill") == colour && std::abs(rect.number("x") - (130 + column * from)) < 0.1 &&
               std::abs(rect.number("width") - column * (to - from)) < 0.1;
    return found == 1;
  };
  CHECK(bar("#f2b96b", 0.5, 2.5));  // on its way
  CHECK(bar("#7fc8a9", 2.5, 4.5));  // there
  CHECK(bar("#d5d5d5", 2, 3));      // waits
  CHECK(bar("#9ec9e6", 3, 4.5));    // reads
  CHECK(label(picture, "tile 7").number("x") == doctest::Approx(130 + column * 3.5).epsilon(1e-3));
}

TEST_CASE("tile walks stand side by side where there is room, and below each other where there is none") {
  svg::Walk wide{"", 2, 5, 0, {{0, 0}}};
  std::vector<svg::Walk> walks(3, wide);
  for (int w = 0; w < 3; ++w) walks[w].title = "walk " + std::to_string(w);
  const std::string picture = svg::tile_walks("three", walks);
  CHECK(well_formed(picture));
  const Element svg = elements(picture, "svg").at(0), first = label(picture, "walk 0"),
                second = label(picture, "walk 1"), third = label(picture, "walk 2");
  CHECK(svg.number("width") <= 760);
  CHECK(second.number("y") == first.number("y"));
  CHECK(second.number("x") > first.number("x") + 300);
  CHECK(third.number("x") == first.number("x"));
  CHECK(third.number("y") > first.number("y") + 100);
  for (const Element& rect : elements(picture, "rect")) {
    CHECK(rect.number("x") + rect.number("width") <= svg.number("width"));
    CHECK(rect.number("y") + rect.number("height") <= svg.number("height"));
  }
}

// ---- One step: what moved, from the memory model --------------------------------------------------------------------

// Two K/V tiles outside, two Q tiles inside; O comes and goes at each step.
static void run_two_by_two() {
  std::vector<float> q(8), k(8), o(8);
  Memory memory(1024);
  memory_observer->begins();
  const auto Q = memory.matrix("Q", q.data(), 4, 2, 2), K = memory.matrix("K", k.data(), 4, 2, 2),
             O = memory.matrix("O", o.data(), 4, 2, 2);
  Tile Q_i = memory.tile("Q_i", 2, 2), K_j = memory.tile("K_j", 2, 2), O_i = memory.tile("O_i", 2, 2);
  memory.count_write(O);  // passes by, nothing comes on chip
  for (int j = 0; j < 4; j += 2) {
    memory.load(K_j, K, j);
    for (int i = 0; i < 4; i += 2) {
      memory.load(Q_i, Q, i);
      memory.load(O_i, O, i);
      memory.show("m", i, 0);
      memory.store(O_i, O, i);
    }
  }
}

TEST_CASE("moves: a step is what came for a tile of S and what left after it") {
  Moves moves;
  run_two_by_two();
  REQUIRE(moves.steps.size() == 4);
  CHECK(moves.tiles == std::map<std::string, std::uint64_t>{{"K_j", 4}, {"O_i", 4}, {"Q_i", 4}});
  for (std::size_t s = 0; s < 4; ++s) {
    INFO("step " << s);
    const bool first_of_column = s % 2 == 0;
    CHECK(moves.moves(s, "K", true) == first_of_column);
    CHECK(moves.moves(s, "Q", true));
    CHECK(moves.moves(s, "O", true));
    CHECK(moves.moves(s, "O", false));
    CHECK_FALSE(moves.moves(s, "Q", false));
    CHECK(moves.bytes(s) == (first_of_column ? 4 : 3) * 16);
  }
  CHECK(moves.knows("O"));
  CHECK_FALSE(moves.knows("l"));
}

TEST_CASE("moves: nobody is told once it is gone") {
  { Moves moves; }
  CHECK(memory_observer == nullptr);
}

TEST_CASE("one step: an arrow for each move, and what did not move is blue") {
  Moves moves;
  run_two_by_two();
  const svg::Walk walk{"down", 2, 2, 1, {{0, 0}, {1, 0}, {0, 1}, {1, 1}}, "a note"};
  for (const std::size_t step : {0, 1}) {
    const std::string picture = svg::one_step("a & b", {4, 2, 2, 2}, {{walk, step, moves}});
    CHECK(well_formed(picture));
    CHECK(elements(picture, "polygon").size() == moves.steps[step].size());
    // The tile of K, in HBM and on chip, is orange only in the step that loads it; the legend has one of each.
    CHECK(count(picture, "fill=\"#f2b27a\"") == 1 + 2 * (step == 0 ? 3 : 2));
    CHECK(count(picture, ">a note<") == 1);
    CHECK(count(picture, ">Q " + std::to_string(step + 1) + "<") == 2);
    CHECK(count(picture, ">K 1<") == 2);
  }
  const std::string two = svg::one_step("two", {50, 32, 13, 17}, {{walk, 0, moves}, {walk, 1, moves}});
  const Element svg = elements(two, "svg").at(0);
  CHECK(svg.number("width") <= 760);
  for (const Element& rect : elements(two, "rect"))
    CHECK(rect.number("x") + rect.number("width") <= svg.number("width"));
}
