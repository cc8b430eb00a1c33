// conformance_test.cpp: the intrinsics' results on the simulator against what an H200 gave, bit for bit.
// Functions that may differ in the last places (exp2f, rsqrtf, …) are compared in units in the last place.
// Run: ctest -L simt, or simt_conformance_test
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/simt/conformance.hpp"

namespace {

using flash::Family;

const char* const recorded_path = FLASH_SOURCE_DIR "/docs/results/conformance-h200.txt";

struct Recorded {
  std::size_t count = 0;
  std::uint64_t hash = 0;
  std::vector<std::uint32_t> words;  // not for long families
};

// The file that tests/simt/record.cpp printed; empty when there is none.
std::map<std::string, Recorded> recorded() {
  std::map<std::string, Recorded> families;
  std::ifstream file(recorded_path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string name;
    Recorded r;
    fields >> name >> r.count >> std::hex >> r.hash;
    REQUIRE_MESSAGE(!fields.fail(), line);
    for (std::uint32_t word; fields >> word;) r.words.push_back(word);
    families[name] = r;
  }
  return families;
}

// Distance in units in the last place; two NaN are equal, a NaN and a number are far apart.
std::int64_t ulp_distance(std::uint32_t a, std::uint32_t b) {
  const float x = std::bit_cast<float>(a), y = std::bit_cast<float>(b);
  if (x != x || y != y) return x != x && y != y ? 0 : 1ll << 40;
  const auto ordered = [](std::uint32_t u) {
    return u & 0x80000000u ? -static_cast<std::int64_t>(u & 0x7fffffffu) : static_cast<std::int64_t>(u);
  };
  return std::abs(ordered(a) - ordered(b));
}

std::uint64_t hash(const Family& f) {
  return flash::hash_words(f.words.data(), f.words.size());
}

void compare_with_hardware(const std::vector<Family>& families) {
  const std::map<std::string, Recorded> hardware = recorded();
  if (hardware.empty()) {
    MESSAGE("skipped: not recorded yet: ", std::string(recorded_path));
    return;
  }
  CHECK(hardware.size() == families.size());
  for (const Family& family : families) {
    CAPTURE(family.name);
    const auto found = hardware.find(family.name);
    CHECK(found != hardware.end());
    if (found == hardware.end()) continue;
    const Recorded& r = found->second;
    CHECK(r.count == family.words.size());
    if (family.max_ulp == 0) {
      CHECK(hash(family) == r.hash);
      for (std::size_t i = 0; i < std::min(r.words.size(), family.words.size()); ++i)
        CHECK_MESSAGE(family.words[i] == r.words[i], "word ", i);
      continue;
    }
    REQUIRE(r.words.size() == family.words.size());
    std::int64_t worst = 0;
    for (std::size_t i = 0; i < r.words.size(); ++i) worst = std::max(worst, ulp_distance(family.words[i], r.words[i]));
    MESSAGE(family.name, ": at most ", worst, " ulp from the H200");
    CHECK(worst <= family.max_ulp);
  }
}

const std::vector<Family>& checked() {
  static const std::vector<Family> families = flash::on_checked::run_conformance({});
  return families;
}

bool equal(const std::vector<Family>& a, const std::vector<Family>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Family& x, const Family& y) {
    if (x.words != y.words) MESSAGE("first difference in ", x.name);
    return x.name == y.name && x.words == y.words;
  });
}

}  // namespace

TEST_CASE("checked: the same bits as an H200") {
  compare_with_hardware(checked());
}

TEST_CASE("sim: the same bits as an H200") {
  compare_with_hardware(flash::on_sim::run_conformance({}));
}

TEST_CASE("sim and checked give the same bits in every family") {
  CHECK(equal(flash::on_sim::run_conformance({}), checked()));
}

TEST_CASE("every schedule gives the same bits") {
  CHECK(equal(flash::on_checked::run_conformance({.order = flash::Order::reverse}), checked()));
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    CHECK(equal(flash::on_checked::run_conformance({.order = flash::Order::random, .seed = seed}), checked()));
}

TEST_CASE("asynchronous copies give the same bits whenever they arrive") {
  for (const flash::Completion completion :
       {flash::Completion::late, flash::Completion::eager, flash::Completion::random}) {
    const flash::MachineOptions options{.seed = 5, .completion = completion};
    CHECK(equal(flash::on_checked::run_ptx_conformance(options), flash::on_sim::run_ptx_conformance({})));
  }
}
