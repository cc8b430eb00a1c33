// svg_test.cpp: pictures are well-formed, escape their text, survive NaN, and say what was put in.
// Where things are and how dark or high is read back from the text (tests/markup.hpp).
// ./flash test     or: build/default/bin/svg_test
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "phases/common/svg.hpp"
#include "phases/common/tile_walk.hpp"
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
  CHECK(svg::short_number(16384) == "16384");
  CHECK(svg::short_number(65536) == "64 Ki");
  CHECK(svg::short_number(1.5 * 1073741824) == "1.5 Gi");
}

TEST_CASE("heat map: darkest is the largest, almost nothing is not drawn, NaN is red") {
  const std::string picture = svg::heat_map("P <1>", {0.5, 0.25, 0.0, nan_value}, {"r&1", "r2"}, {"c1", "c2"});
  CHECK(well_formed(picture));
  CHECK(count(picture, "fill-opacity=\"1\"") == 1);
  CHECK(count(picture, "fill-opacity=\"0.5\"") == 1);
  CHECK(count(picture, "fill-opacity=") == 2);
  CHECK(count(picture, "#d62728") == 1);
  CHECK(count(picture, "r&amp;1") == 1);
  CHECK(well_formed(svg::heat_map("empty", {}, {}, {})));
  CHECK(well_formed(svg::heat_map("all NaN", {nan_value}, {"r"}, {"c"})));
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
