// conformance_test.cpp: the intrinsics' results on the simulator against what an H200 gave, bit for bit.
// Functions that may differ in the last places (exp2f, rsqrtf, …) are compared in units in the last place.
// Run: ctest -L simt, or simt_conformance_test
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "sim/core/tensor_core.hpp"
#include "sim/number.hpp"
#include "tests/simt/conformance.hpp"

namespace {

using flash::Family;

const std::string results = FLASH_SOURCE_DIR "/docs/results/";

struct Recorded {
  std::size_t count = 0;
  std::uint64_t hash = 0;
  std::vector<std::uint32_t> words;  // not for long families
};

// The file that tests/simt/record.cpp printed on a GPU.
std::map<std::string, Recorded> recorded(const std::string& name_of_file) {
  std::map<std::string, Recorded> families;
  std::ifstream file(results + name_of_file);
  REQUIRE_MESSAGE(file, "there is no ", results, name_of_file);
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

void compare_with_hardware(const std::vector<Family>& families, const std::string& file = "conformance-h200.txt") {
  const std::map<std::string, Recorded> hardware = recorded(file);
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

TEST_CASE("wgmma: the same bits as an H200, in both builds and under every schedule") {
  const std::vector<Family> families = flash::on_sim::run_wgmma_conformance({});
  compare_with_hardware(families, "conformance-wgmma-h200.txt");
  CHECK(equal(flash::on_checked::run_wgmma_conformance({}), families));
  for (const flash::Completion completion : {flash::Completion::eager, flash::Completion::random})
    CHECK(equal(
        flash::on_sim::run_wgmma_conformance({.order = flash::Order::random, .seed = 5, .completion = completion}),
        families));
  // The same operands in every form, and with any leading distance: the same products. Others give others.
  std::map<std::string, const Family*> of_shape;
  std::set<std::uint64_t> hashes;
  for (const Family& family : families) {
    CAPTURE(family.name);
    if (family.name.starts_with("add_")) continue;
    std::string shape = family.name;
    for (const char* form : {"_ss_k", "_ss_mn", "_rs_k", "_rs_mn", "_at_k", "_at_mn", "_at_leading", "_leading"})
      if (const std::size_t at = shape.find(form); at != std::string::npos)
        shape.replace(at, std::string(form).size(), std::string(form).ends_with("_leading") ? "_n64" : "");
    const auto [first, fresh] = of_shape.try_emplace(shape, &family);
    if (fresh) hashes.insert(hash(family));
    const auto& words = first->second->words;  // some families have fewer blocks
    CHECK(std::equal(words.begin(), words.begin() + static_cast<long>(std::min(words.size(), family.words.size())),
                     family.words.begin()));
  }
  CHECK(hashes.size() == of_shape.size());
}

TEST_CASE("bulk copies, reductions and mbarriers: the same bits as an H200, in both builds and under every schedule") {
  const std::vector<Family> families = flash::on_sim::run_hopper_conformance({});
  compare_with_hardware(families, "conformance-hopper-h200.txt");
  CHECK(equal(flash::on_checked::run_hopper_conformance({}), families));
  for (const flash::Completion completion : {flash::Completion::eager, flash::Completion::random})
    CHECK(equal(
        flash::on_checked::run_hopper_conformance({.order = flash::Order::random, .seed = 5, .completion = completion}),
        families));
}

TEST_CASE("clusters: the same bits as an H200, in both builds and under every schedule") {
  const std::vector<Family> families = flash::on_sim::run_cluster_conformance({});
  compare_with_hardware(families, "conformance-cluster-h200.txt");
  CHECK(equal(flash::on_checked::run_cluster_conformance({}), families));
  for (const flash::Completion completion : {flash::Completion::eager, flash::Completion::random})
    CHECK(equal(flash::on_checked::run_cluster_conformance(
                    {.order = flash::Order::random, .seed = 5, .completion = completion}),
                families));
}

TEST_CASE("words and further functions: the same bits as an H200, in both builds and under another schedule") {
  const std::vector<Family> families = flash::on_sim::run_words_conformance({});
  compare_with_hardware(families, "conformance-words-h200.txt");
  CHECK(equal(flash::on_checked::run_words_conformance({.order = flash::Order::random, .seed = 3}), families));
}

TEST_CASE("asynchronous copies give the same bits whenever they arrive") {
  for (const flash::Completion completion :
       {flash::Completion::late, flash::Completion::eager, flash::Completion::random}) {
    const flash::MachineOptions options{.seed = 5, .completion = completion};
    CHECK(equal(flash::on_checked::run_ptx_conformance(options), flash::on_sim::run_ptx_conformance({})));
  }
}

// 2.5 million elements. Fields of exponents from windows of any place and width, so that terms are near and far; C's
// reach that of the products and all of fp32; zeros, no numbers, and products that cancel, up to a bit now and then.
TEST_CASE("the tensor core's vectors give the bits of its rule") {
  using namespace flash::simt;
  std::mt19937_64 random(1);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  for (const MmaType type : {MmaType::half, MmaType::bfloat16}) {
    const unsigned fraction = type == MmaType::half ? 10 : 7, fields = 1u << (15 - fraction), bias = fields / 2 - 1;
    std::array<int, 3> kinds{};  // elements of D that are finite, infinite, NaN
    for (int i = 0; i < 10000; ++i) {
      const unsigned width = 1 + below(i % 2 ? 8 : fields - 1), zeros = below(4), specials = below(16) ? 0 : 64;
      const bool cancel = below(4) == 0;
      const auto number = [&](unsigned first) {
        if (zeros && below(8) < zeros) return 0u;
        const unsigned field = specials && below(specials) == 0 ? fields - 1 : (first + below(width)) % (fields - 1);
        return below(2) << 15 | field << fraction | (below(8) ? below(1u << fraction) : 0);
      };
      std::uint16_t a[16][kMmaDepth], b[8][kMmaDepth];
      float c[16][8];
      const unsigned first_a = below(fields - 1), first_b = below(fields - 1);
      for (auto& row : a)
        for (auto& element : row) element = static_cast<std::uint16_t>(number(first_a));
      for (auto& column : b)
        for (auto& element : column) element = static_cast<std::uint16_t>(number(first_b));
      for (int k = 0; cancel && k < kMmaDepth; k += 2) {
        for (auto& row : a) row[k + 1] = static_cast<std::uint16_t>(row[k] ^ (below(64) == 0));
        for (auto& column : b) column[k + 1] = column[k] ^ 0x8000;
      }
      const int near = static_cast<int>(first_a + first_b) - 2 * static_cast<int>(bias) + 127;
      for (auto& row : c)
        for (float& element : row) {
          const unsigned field = i % 4 < 2 ? below(256) : static_cast<unsigned>(near) + below(40) - 30;
          element = std::bit_cast<float>(below(2) << 31 | (below(8) ? field & 255 : 0) << 23 |
                                         (below(8) ? below(1u << 23) : 0));
        }

      std::uint32_t registers_a[32][4], registers_b[32][2];
      float registers_c[32][4];
      std::array<MmaRegisters, 32> lanes;
      const auto pair = [](unsigned low, unsigned high) { return low | high << 16; };
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4 * 2;
        for (int r = 0; r < 4; ++r) {
          const std::uint16_t* from = &a[g + r % 2 * 8][t + r / 2 * 8];
          registers_a[lane][r] = pair(from[0], from[1]);
          registers_c[lane][r] = c[g + r / 2 * 8][t + r % 2];
        }
        for (int r = 0; r < 2; ++r) registers_b[lane][r] = pair(b[g][t + r * 8], b[g][t + r * 8 + 1]);
        lanes[static_cast<std::size_t>(lane)] = {registers_a[lane], registers_b[lane], registers_c[lane],
                                                 registers_c[lane]};
      }
      mma_m16n8k16(lanes, type);
      for (int lane = 0; lane < 32; ++lane)
        for (int r = 0; r < 4; ++r) {
          const int row = lane / 4 + r / 2 * 8, column = lane % 4 * 2 + r % 2;
          const float want = mma_element(a[row], b[column], c[row][column], type), got = registers_c[lane][r];
          ++kinds[std::isnan(want) ? 2 : std::isinf(want)];
          if (std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(want))
            FAIL("matrices " << i << ", row " << row << ", column " << column << ": " << got << ", not " << want);
        }
    }
    for (const int kind : kinds) CHECK(kind > 1000);
  }
}
