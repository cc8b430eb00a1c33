// book_test.cpp: pages as the book reads them: parts, regions, differences; and that the pages of all phases show every
// line of the implementations. Needs nothing that renders: the site itself is checked by ./flash book --check.
// ./flash test     or: build/default/bin/book_test
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "phases/pages/page.hpp"
#include "sim/error.hpp"
#include "tests/folder.hpp"

using namespace flash;
using Kind = Part::Kind;

static const test::Folder temporary;

static void write(const std::string& name, const std::string& text) {
  std::ofstream(temporary / name) << text;
}
static std::string root() {
  return temporary / "";
}

template <class F>
static std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a page's parts: prose, code that ends with its cell, code that is folded away") {
  write("page.cpp",
        "// %% [markdown]\n// # Title\n//\n// Words.\n\n// %%\n#include <x>\n\nCELL(\"a\") {\n  one();\n}\n\n"
        "static int f();\n\nCELL(\"b\") {\n}\n// %% tags=[\"hide-input\"]\nstatic void draw();\n");
  const std::vector<Part> parts = read_page(root(), "page.cpp");
  REQUIRE(parts.size() == 4);
  CHECK(parts[0].kind == Kind::Prose);
  CHECK(parts[0].text == "# Title\n\nWords.\n");
  CHECK(parts[1].text == "#include <x>\n\nCELL(\"a\") {\n  one();\n}\n");
  CHECK(parts[1].line == 7);
  CHECK(parts[2].text == "static int f();\n\nCELL(\"b\") {\n}\n");
  CHECK(parts[2].line == 13);
  CHECK_FALSE(parts[2].folded);
  CHECK(parts[3].folded);
  CHECK(parts[3].text == "static void draw();\n");
}

TEST_CASE("a region is quoted without its indentation, between the words about it") {
  write("code.hpp", "int a;\n  // #region sum\n  for (;;)\n#pragma unroll\n    ++a;\n  // #endregion\n");
  write("page.cpp", "// %% [markdown]\n// Before.\n// ```{region} code.hpp sum\n// ```\n// After.\n");
  const std::vector<Part> parts = read_page(root(), "page.cpp");
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].text == "Before.\n");
  CHECK(parts[1].kind == Kind::Region);
  CHECK(parts[1].text == "for (;;)\n#pragma unroll\n  ++a;\n");
  CHECK(parts[1].first == 3);
  CHECK(parts[2].text == "After.\n");
}

TEST_CASE("a quotation of what is not there is refused by name") {
  write("code.hpp", "// #region sum\nint a;\n// #endregion\n");
  const auto page = [](const std::string& directive) {
    write("page.cpp", "// %% [markdown]\n// ```" + directive + "\n// ```\n");
    return refusal([] { read_page(root(), "page.cpp"); });
  };
  CHECK(page("{region} code.hpp sum").empty());
  CHECK(page("{region} code.hpp product") == "page.cpp:2: code.hpp has no region 'product'; it has: sum");
  CHECK(page("{region} nowhere.hpp sum") == "nowhere.hpp: cannot be read");
  CHECK(page("{region} code.hpp") == "page.cpp:2: {region} wants two words");
  CHECK(page("{difference} code.hpp code.hpp more") == "page.cpp:2: {difference} wants two words");
  write("page.cpp", "// %% [markdown]\n// ```{region} code.hpp sum\n// Words\n");
  CHECK(refusal([] { read_page(root(), "page.cpp"); }) == "page.cpp:3: expected ``` alone in its line");
}

TEST_CASE("a question stands before its cell, the answer behind it, both in one section") {
  const std::string cell = "\n// %%\nCELL(\"a\") {\n}\n\n// %% [markdown]\n";
  const auto page = [&](const std::string& text) {
    write("page.cpp", "// %% [markdown]\n" + text);
    return refusal([] { read_page(root(), "page.cpp"); });
  };
  const std::string question = "// ```{question}\n// How many?\n// ```\n",
                    answer = "// ```{answer}\n// Three,\n// or so.\n// ```\n";
  CHECK(page("// Words.\n" + question + cell + answer + "// More.\n// # Next\n").empty());
  const std::vector<Part> parts = read_page(root(), "page.cpp");
  REQUIRE(parts.size() == 5);
  CHECK(parts[1].kind == Kind::Question);
  CHECK(parts[1].text == "How many?\n");
  CHECK(parts[1].line == 4);
  CHECK(parts[3].kind == Kind::Answer);
  CHECK(parts[3].text == "Three,\nor so.\n");
  CHECK(parts[4].text == "More.\n# Next\n");

  CHECK(page(question + cell) == "page.cpp:2: the {question} has no {answer} before the page's end");
  CHECK(page(question + cell + "// # Next\n" + answer) ==
        "page.cpp:2: the {question} has no {answer} before the next heading");
  CHECK(page(question + cell + question) == "page.cpp:2: the {question} has no {answer} before the next question");
  CHECK(page(answer) == "page.cpp:2: an answer without a {question} before it");
  CHECK(page(question + cell + answer + answer).find("an answer without a {question}") != std::string::npos);
  CHECK(page(question + answer) ==
        "page.cpp:5: the cell that shows the answer must stand before it, behind the {question}");
  CHECK(page("// ```{question}\n// How many?\n" + cell) ==
        "page.cpp:3: expected text, and ``` alone in a line behind it");
  CHECK(page("// ```{question}\n// ```\n" + cell) == "page.cpp:3: expected text, and ``` alone in a line behind it");
}

TEST_CASE("a phase's page ends with the exercises beside it") {
  const test::Folder folder;
  const std::filesystem::path phase = folder.path() / "phases" / "07-x";
  std::filesystem::create_directories(phase / "exercises");
  const auto file = [&](const char* name, const char* text) { std::ofstream(phase / name) << text; };
  const auto last = [&](const char* page) { return read_page(folder.path().string(), page).back(); };
  file("notebook.cpp", "// %% [markdown]\n// Words.\n");
  file("steps.cpp", "// %% [markdown]\n// Words.\n");
  CHECK(last("phases/07-x/notebook.cpp").kind == Kind::Prose);
  file("exercises/2-b.cu", "// 07.2 b: what: is it?\n");
  file("exercises/1-a.cu", "// 07.1 a: how many?\nint i;\n");
  CHECK(last("phases/07-x/notebook.cpp").kind == Kind::Exercises);
  CHECK(last("phases/07-x/notebook.cpp").text == "07.1 how many?\n07.2 what: is it?\n");
  CHECK(last("phases/07-x/steps.cpp").kind == Kind::Prose);
  file("exercises/1-a.cu", "// How many?\n");
  CHECK(refusal([&] { last("phases/07-x/notebook.cpp"); }) ==
        "phases/07-x/exercises/1-a.cu:1: expected // NN.K name: title");
}

TEST_CASE("a page names an exercise where its idea appears, and ends with those that it names") {
  const test::Folder folder;
  const std::filesystem::path phase = folder.path() / "phases" / "07-x";
  std::filesystem::create_directories(phase / "exercises");
  const auto file = [&](const char* name, const char* text) { std::ofstream(phase / name) << text; };
  file("exercises/1-a.cu", "// 07.1 a: how many?\n");
  file("exercises/2-b.cu", "// 07.2 b: what is it?\n");
  file("steps.cpp", "// %% [markdown]\n// Before.\n// ```{exercise} 07.2\n// ```\n// After.\n");
  const std::vector<Part> parts = read_page(folder.path().string(), "phases/07-x/steps.cpp");
  REQUIRE(parts.size() == 4);
  CHECK(parts[0].text == "Before.\n");
  CHECK(parts[1].kind == Kind::Exercise);
  CHECK(parts[1].text == "07.2 what is it?\n");
  CHECK(parts[2].text == "After.\n");
  CHECK(parts[3].kind == Kind::Exercises);
  CHECK(parts[3].text == "07.2 what is it?\n");
  for (const std::string number : {"07.3", "08.1", ""}) {
    file("steps.cpp", ("// %% [markdown]\n// ```{exercise} " + number + "\n// ```\n").c_str());
    CHECK(refusal([&] { read_page(folder.path().string(), "phases/07-x/steps.cpp"); }) ==
          "phases/07-x/steps.cpp:2: there is no exercise '" + number + "'");
  }
}

TEST_CASE("a marker may say what its region holds") {
  write("code.hpp", "// #region sum: of all numbers\nint a;\n// #endregion\n");
  const std::vector<Region> regions = regions_of(root(), "code.hpp");
  REQUIRE(regions.size() == 1);
  CHECK(regions[0].name == "sum");
  CHECK(regions[0].text == "int a;\n");
  write("code.hpp", "// #region : of all numbers\nint a;\n// #endregion\n");
  CHECK(refusal([] { regions_of(root(), "code.hpp"); }) == "code.hpp:1: a region without a name");
}

TEST_CASE("regions that are nested, unnamed, named twice or without an end are refused") {
  const auto of = [](const std::string& text) {
    write("code.hpp", text);
    return refusal([] { regions_of(root(), "code.hpp"); });
  };
  CHECK(of("// #region a\n// #region b\n") == "code.hpp:2: a region inside region 'a'");
  CHECK(of("// #region\n") == "code.hpp:1: a region without a name");
  CHECK(of("// #endregion\n") == "code.hpp:1: #endregion without #region");
  CHECK(of("// #region a\n") == "code.hpp: region 'a' has no end");
  CHECK(of("// #region a\n// #endregion\n// #region a\n// #endregion\n") == "code.hpp:3: a second region 'a'");
}

TEST_CASE("a difference has every line of both, in order, and as few changes as can be") {
  using Lines = std::vector<std::string>;
  CHECK(difference({"a", "b", "c"}, {"a", "x", "c", "d"}) == Lines{" a", "-b", "+x", " c", "+d"});
  CHECK(difference({}, {"a"}) == Lines{"+a"});
  CHECK(difference({"a"}, {}) == Lines{"-a"});
  CHECK(difference({"a", "b", "a", "b"}, {"b", "a", "b", "a"}) == Lines{"-a", " b", " a", " b", "+a"});
  write("old.hpp", "// Old.\n#include \"phases/01-naive/phase.hpp\"\n// #region a\nint a;\n// #endregion\n");
  write("new.hpp", "// New.\n#include \"phases/02-other/phase.hpp\"\nint a;\n// #region b\nint b;\n// #endregion\n");
  write("page.cpp", "// %% [markdown]\n// ```{difference} old.hpp new.hpp\n// ```\n");
  const std::vector<Part> parts = read_page(root(), "page.cpp");
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].kind == Kind::Difference);
  CHECK(parts[0].text == " #include \"phases/02-other/phase.hpp\"\n int a;\n+int b;\n");  // no heads, no markers
}

// A phase's files: its pages, and the implementation that they have to show. What a phase says of itself, what starts
// its steps and what its results are compared with are no part of that.
struct Folder {
  std::vector<std::string> pages, files;
};
static Folder folder_of(const std::filesystem::path& phase) {
  static const std::set<std::string> beside = {"phase.hpp", "phase.cpp", "attention.cu", "mma.cu",
                                               "host.cu",   "steps.hpp", "naive.hpp",    "naive.cpp"};
  Folder folder;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(phase)) {
    if (!entry.is_regular_file() || beside.count(entry.path().filename().string())) continue;
    if (entry.path().parent_path().filename() == "exercises") continue;  // they ask what pages would give away
    const std::string file = std::filesystem::relative(entry.path(), FLASH_SOURCE_DIR).string();
    const bool page = test::get(entry.path().string()).rfind("// %%", 0) == 0;
    (page ? folder.pages : folder.files).push_back(file);
  }
  return folder;
}

// The head of three lines, an include, a namespace's brace or a blank line need not be shown.
static bool counts(const std::string& line, int number) {
  const auto begins = [&](const char* with) { return line.rfind(with, 0) == 0; };
  return !(number <= 3 && begins("//")) && line.find_first_not_of(' ') != std::string::npos &&
         !begins("#pragma once") && !begins("#include") && !begins("namespace") && !begins("}  // namespace") &&
         !is_region_marker(line);
}

// What all pages show: regions, by file and name. And of a difference, by file: what has not changed since an older
// file, and the new lines where they are less than half (else a difference explains nothing).
struct Shown {
  std::set<std::string> regions;
  std::map<std::string, std::string> older;
  std::map<std::string, std::set<std::string>> added;
};

static std::vector<std::string> lines_between(const std::string& text, int first, int last) {
  const std::vector<std::string> lines = lines_of(text);
  return {lines.begin() + first - 1, lines.begin() + last};
}

// The lines of a file that stand in a page.
static std::set<std::string> lines_shown(const Shown& shown, const std::string& file) {
  std::set<std::string> lines;
  for (const Region& region : regions_of(FLASH_SOURCE_DIR, file))
    if (shown.regions.count(file + " " + region.name))
      for (const std::string& line :
           lines_between(test::get(std::string(FLASH_SOURCE_DIR) + "/" + file), region.first, region.last))
        lines.insert(line);
  if (shown.added.count(file)) lines.insert(shown.added.at(file).begin(), shown.added.at(file).end());
  if (shown.older.count(file)) lines.merge(lines_shown(shown, shown.older.at(file)));
  return lines;
}

TEST_CASE("every exercise is named by a page, where its idea appears") {
  std::set<std::string> named;
  std::vector<std::string> exercises;
  for (const auto& phase : std::filesystem::directory_iterator(std::filesystem::path(FLASH_SOURCE_DIR) / "phases")) {
    if (!std::isdigit(phase.path().filename().string()[0])) continue;
    for (const std::string& page : folder_of(phase.path()).pages)
      for (const Part& part : read_page(FLASH_SOURCE_DIR, page)) {
        if (part.kind == Kind::Exercise) named.insert(part.text);
        if (part.kind == Kind::Exercises && page.find("/notebook.cpp") != std::string::npos)
          for (const std::string& line : lines_of(part.text)) exercises.push_back(line + "\n");
      }
  }
  REQUIRE(exercises.size() >= 36);
  for (const std::string& exercise : exercises) CHECK_MESSAGE(named.count(exercise), "no page names ", exercise);
}

TEST_CASE("every region stands in a page, and every line of the implementations") {
  std::set<std::filesystem::path> phases;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(FLASH_SOURCE_DIR) / "phases"))
    if (std::isdigit(entry.path().filename().string()[0])) phases.insert(entry.path());
  REQUIRE(phases.size() >= 9);
  Shown shown;
  for (const auto& phase : phases)
    for (const std::string& page : folder_of(phase).pages)
      for (const Part& part : read_page(FLASH_SOURCE_DIR, page)) {
        if (part.kind == Kind::Region) shown.regions.insert(part.file + " " + part.other);
        if (part.kind != Kind::Difference) continue;
        shown.older[part.file] = part.other;
        const std::vector<std::string> lines = lines_of(part.text);
        const auto same = std::count_if(lines.begin(), lines.end(), [](const auto& line) { return line[0] == ' '; });
        for (const std::string& line : lines)
          if (line[0] == '+' && 2 * same > std::int64_t(lines.size())) shown.added[part.file].insert(line.substr(1));
      }
  for (const auto& phase : phases) {
    int all = 0, in_a_page = 0;
    for (const std::string& file : folder_of(phase).files) {
      // A step has the regions of its neighbours, so that diff shows what is new and no more; the page has that.
      const bool step = file.find("/steps/") != std::string::npos && shown.older.count(file);
      for (const Region& region : regions_of(FLASH_SOURCE_DIR, file))
        CHECK_MESSAGE((step || shown.regions.count(file + " " + region.name)), file, ": no page shows '", region.name,
                      "'");
      const std::set<std::string> lines = lines_shown(shown, file);
      int number = 0;
      for (const std::string& line : lines_of(test::get(std::string(FLASH_SOURCE_DIR) + "/" + file))) {
        if (!counts(line, ++number)) continue;
        ++all;
        in_a_page += lines.count(line) > 0;
        CHECK_MESSAGE(lines.count(line), file, ":", number, ": no page shows this line: ", line);
      }
    }
    std::printf("%-18s %3d of %3d lines stand in a page\n", phase.filename().c_str(), in_a_page, all);
  }
}
