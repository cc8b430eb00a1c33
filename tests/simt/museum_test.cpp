// museum_test.cpp: the checked machine must report each bug of the museum word for word and stay silent on each twin.
// "{k}" in an expected report is the file and line in museum.cu that carries the mark "//@ exhibit:k".
// Run: ctest -L simt, or simt_museum_test
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "sim/error.hpp"
#include "tests/simt/museum.hpp"

namespace {

using flash::Exhibit, flash::Finding, flash::MachineOptions, flash::Order, flash::Variant;

// One worker and the forward order make reports repeatable to the last thread number.
const MachineOptions repeatable{.threads = 1, .keep_going = true};

struct Expected {
  const char* exhibit;
  const char* report;  // all findings, one after the other
};

const Expected expected[] = {
    {"", ""},
};

// "exhibit:k" -> "museum.cu:line", read from the marks.
std::map<std::string, std::string> marks() {
  std::map<std::string, std::string> found;
  std::ifstream source(FLASH_SOURCE_DIR "/tests/simt/museum.cu");
  int number = 0;
  const std::regex mark("[a-z_0-9]+:[0-9]+");
  for (std::string line; std::getline(source, line);) {
    ++number;
    const std::size_t at = line.find("//@");
    if (at == std::string::npos) continue;
    for (std::sregex_iterator m(line.begin() + static_cast<long>(at), line.end(), mark), end; m != end; ++m)
      found[m->str()] = "museum.cu:" + std::to_string(number);
  }
  return found;
}

std::string text(const std::vector<Finding>& findings) {
  std::string all;
  for (const Finding& f : findings) all += f.text + "\n";
  return all;
}

std::vector<Finding> run(const char* name, Variant variant, const MachineOptions& options) {
  return flash::on_checked::run_exhibit(name, variant, options);
}

std::vector<MachineOptions> schedules() {
  std::vector<MachineOptions> all{{.keep_going = true}, {.order = Order::reverse, .keep_going = true}};
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    all.push_back({.order = Order::random, .seed = seed, .keep_going = true});
  return all;
}

}  // namespace

TEST_CASE("each bug is reported word for word") {
  const std::map<std::string, std::string> line = marks();
  for (const Exhibit& exhibit : flash::exhibits) {
    std::string report = "(the test expects nothing for this exhibit)";
    for (const Expected& e : expected)
      if (std::string(e.exhibit) == exhibit.name) report = e.report;
    if (!exhibit.visible) report = "";
    for (int k = 1; k <= 2; ++k)
      for (std::size_t at; (at = report.find("{" + std::to_string(k) + "}")) != std::string::npos;) {
        const auto mark = line.find(std::string(exhibit.name) + ":" + std::to_string(k));
        REQUIRE(mark != line.end());
        report.replace(at, 3, mark->second);
      }
    const std::string got = text(run(exhibit.name, Variant::bug, repeatable));
    CHECK_MESSAGE(got == report, exhibit.name, "\n--- got\n", got, "--- expected\n", report);
  }
}

TEST_CASE("each twin is silent, whatever the schedule") {
  for (const Exhibit& exhibit : flash::exhibits)
    for (const MachineOptions& options : schedules()) {
      const std::string got = text(run(exhibit.name, Variant::twin, options));
      CHECK_MESSAGE(got == "", exhibit.name, ", seed ", options.seed, "\n", got);
    }
}

TEST_CASE("each bug is found, whatever the schedule") {
  for (const Exhibit& exhibit : flash::exhibits)
    for (const MachineOptions& options : schedules())
      CHECK_MESSAGE(run(exhibit.name, Variant::bug, options).empty() != exhibit.visible, exhibit.name, ", order ",
                    static_cast<int>(options.order), ", seed ", options.seed);
}

TEST_CASE("without keep_going a finding is an error") {
  CHECK_THROWS_AS(run("loop_carried_war", Variant::bug, {}), flash::Error);
  CHECK_NOTHROW(run("loop_carried_war", Variant::twin, {}));
}

TEST_CASE("an unknown exhibit is refused") {
  CHECK_THROWS_WITH_AS(run("no such", Variant::bug, {}), doctest::Contains("exhibit is no such"), flash::Error);
}
