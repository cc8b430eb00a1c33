// cell_test.cpp: the notebooks' own machinery: cells run in order, a false claim fails, bad options are refused.
// The real main is compiled in under another name; these two cells are its notebook.
// ./flash test     or: build/default/bin/cell_test
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "phases/pages/cell.hpp"

#define main notebook_main
#include "phases/pages/cell_main.cpp"
#undef main
#include "tests/folder.hpp"

// %% [markdown]
// Two cells of a page.
// {term}`Words <word>` of a {term}`glossary`.
// $$\alpha = \exp(m - m') \quad P = S^\top / \sqrt d$$
// ```{region} tests/cell_test.cpp second
// ```
//
// ```{question}
// Is it {term}`small`?
// ```

// %%
static std::string ran;
static double measured;
static bool throws;

CELL("first") {
  ran += "1";
  flash::expect(measured <= 1, "small");
}

// %% [markdown]
// ```{answer}
// It is.
// ```

// %%
CELL("second") {
  // #region second
  ran += "2";
  // #endregion
  std::printf("one\n");
  if (throws) flash::refuse("x", 1, "2", "say 2");
  flash::picture("square", "<svg/>");
}

// Runs the notebook with these options; returns its exit status.
static int run(std::vector<std::string> options) {
  std::vector<char*> argv{const_cast<char*>("notebook")};
  for (std::string& option : options) argv.push_back(option.data());
  ran.clear();
  return notebook_main(static_cast<int>(argv.size()), argv.data());
}

// What the notebook prints with these options.
static std::string printed(std::vector<std::string> options) {
  const flash::test::Folder folder;
  std::fflush(stdout);
  const int terminal = dup(STDOUT_FILENO);
  REQUIRE(std::freopen((folder / "printed").c_str(), "w", stdout));
  run(options);
  std::fflush(stdout);
  dup2(terminal, STDOUT_FILENO);
  close(terminal);
  return flash::test::get(folder / "printed");
}

// Where the pictures go: not there yet. One for all test cases, gone when the program ends.
static const flash::test::Folder temporary;
static const std::string folder = temporary / "svg";

TEST_CASE("cells know their titles and lines, and run in order") {
  REQUIRE(flash::cells().size() == 2);
  CHECK(std::string(flash::cells()[0].title) == "first");
  CHECK(flash::cells()[0].line < flash::cells()[1].line);
  CHECK(std::string(flash::cells()[0].file).find("cell_test.cpp") != std::string::npos);
  measured = 1;
  CHECK(run({"--svg", folder}) == 0);
  CHECK(ran == "12");
  CHECK(run({"--cell", "2", "--svg", folder}) == 0);
  CHECK(ran == "2");
  CHECK(run({"--list"}) == 0);
  CHECK(ran.empty());
}

TEST_CASE("a picture lands in the folder, which is made") {
  std::filesystem::remove_all(folder);
  measured = 1;
  CHECK(run({"--svg", folder}) == 0);
  std::ifstream file(folder + "/square.svg");
  std::string text;
  CHECK(std::getline(file, text));
  CHECK(text == "<svg/>");
}

TEST_CASE("a false claim and NaN make the notebook fail, and the rest still runs") {
  for (const double value : {2.0, std::numeric_limits<double>::quiet_NaN()}) {
    measured = value;
    CHECK(run({"--svg", folder}) == 1);
    CHECK(ran == "12");
  }
  measured = 1;
  CHECK(run({"--svg", folder}) == 0);  // and a later run starts afresh
}

TEST_CASE("an error in a cell makes the notebook fail") {
  measured = 1;
  throws = true;
  CHECK(run({"--svg", folder}) == 1);
  throws = false;
}

TEST_CASE("a page has its prose, quoted code and cells in order, and as JSON a line for each cell") {
  measured = 1;
  const std::string page = printed({"--page", "--svg", folder});
  CHECK(ran == "12");
  const auto at = [&](const char* text) { return page.find(text); };
  CHECK(at("\nWords of a glossary.\n") != page.npos);
  CHECK(at("\n    α = exp(m - m')   P = Sᵀ / √d\n") != page.npos);
  CHECK(at("Two cells of a page.") < at("│ ran += \"2\";"));
  CHECK(at("│ ran += \"2\";") < at("── 1. first ──\n✓ small\n"));
  CHECK(at("? Predict, before you read on:\n? Is it small?\n") < at("── 1. first ──"));
  CHECK(at("── 1. first ──") < at("! The answer:\n! It is.\n"));
  CHECK(at("! It is.\n") < at("── 2. second ──\npicture: "));
  CHECK(at("2. second") != page.npos);
  CHECK(at("\033") == page.npos);  // no colours in a file

  const std::string jsonl = printed({"--jsonl", "--svg", folder});
  CHECK(jsonl.find("\"title\": \"first\"") < jsonl.find("\"title\": \"second\""));
  CHECK(std::count(jsonl.begin(), jsonl.end(), '\n') == 2);
  CHECK(jsonl.find("\"text\": \"\", \"claims\": [{\"claim\": \"small\", \"holds\": true}], \"pictures\": []}\n") !=
        jsonl.npos);
  CHECK(jsonl.find("\"text\": \"one\\u000a\", \"claims\": [], \"pictures\": [\"square.svg\"]}\n") != jsonl.npos);

  measured = 2;  // false claims are told apart by the exit status too
  CHECK(run({"--page", "--svg", folder}) == 1);
  CHECK(printed({"--jsonl", "--svg", folder}).find("\"holds\": false") != jsonl.npos);
  throws = true;
  CHECK(run({"--jsonl", "--svg", folder}) == 1);
  throws = false;
}

TEST_CASE("bad options: exit status 2, nothing runs") {
  const std::vector<std::vector<std::string>> bad = {{"--page", "--jsonl"},
                                                     {"--page", "--list"},
                                                     {"--jsonl", "--cell", "1"},
                                                     {"--cells"},
                                                     {"first"},
                                                     {"--cell"},
                                                     {"--cell", "0"},
                                                     {"--cell", "3"},
                                                     {"--cell", "2x"},
                                                     {"--cell", "-1"},
                                                     {"--svg"},
                                                     {"--svg", ""},
                                                     {"--cell", ""},
                                                     {"--list", "more"},
                                                     {"--cell", "99999999999"}};
  for (const auto& options : bad) {
    CAPTURE(options.back());
    CHECK(run(options) == 2);
    CHECK(ran.empty());
  }
}

TEST_CASE("numbers are grouped by thousands") {
  CHECK(flash::grouped(0) == "0");
  CHECK(flash::grouped(999) == "999");
  CHECK(flash::grouped(1000) == "1,000");
  CHECK(flash::grouped(16777216) == "16,777,216");
}
