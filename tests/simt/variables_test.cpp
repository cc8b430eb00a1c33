// variables_test.cpp: __shared__, __device__ and __constant__ variables under g++: every form runs as in CUDA, and what
// leaves an array, races on it or reads it too early is found with the array's name and the source's line.
// Run: ctest -L simt, or simt_variables_test
#include <doctest/doctest.h>

#include <algorithm>

#include "sim/error.hpp"
#include "sim/machine.hpp"
#include "tests/folder.hpp"
#include "tests/simt/machines.hpp"
#include "tests/simt/variables.hpp"

FLASH_VARIABLES(on_sim)
FLASH_VARIABLES(on_checked)

using flash::Error;

namespace {

std::string line_of(const std::string& mark) {
  return flash::test::line_of("simt/variables.cu", mark);
}

// The first line of what is found and the first site; "" when nothing is.
std::string found(const std::string& kernel, int index, const flash::MachineOptions& asked = {}) {
  flash::MachineOptions options = asked;
  options.threads = 1, options.keep_going = true;
  Checked m(options);
  run_defect(m, kernel, index);
  if (m.findings().empty()) return "";
  CHECK(m.findings().size() == 1);
  const std::string& text = m.findings()[0].text;
  const std::size_t site = text.find("variables.cu:");
  return text.substr(0, text.find('\n')) + " | " + text.substr(site, text.find(' ', site) - site);
}

}  // namespace

TEST_CASE_TEMPLATE("variables in every form mean what they mean in CUDA", Machine, Sim, Checked) {
  Machine m;
  const std::vector<flash::VariableForm> forms = run_variables(m);
  CHECK(forms.size() == 10);
  for (const flash::VariableForm& form : forms) {
    CAPTURE(form.name);
    CHECK(form.got == form.expected);
  }
}

TEST_CASE("every schedule and number of workers gives the same") {
  for (const auto order : {flash::Order::reverse, flash::Order::random})
    for (const int threads : {1, 4}) {
      Checked m({.order = order, .seed = 5, .threads = threads});
      for (const flash::VariableForm& form : run_variables(m)) CHECK(form.got == form.expected);
    }
}

TEST_CASE_TEMPLATE("shared memory of a launch is what its kernel uses, and no other kernel's", Machine, Sim, Checked) {
  Machine m;
  run_variables(m);
  std::vector<std::uint64_t> peaks;
  for (const flash::KernelReport& report : m.reports()) peaks.push_back(report.ledger.shared_bytes_peak);
  // transpose: 16 * 17 floats. several: 2 * 256 + 16 + 8 + 4 + 6 (8) + 4 + 32 ints, and rotated's 256. Then what the
  // launches give. Last the two arrays that are handed on, 256 ints each.
  CHECK(peaks ==
        std::vector<std::uint64_t>{1088, 512 + 16 + 8 + 4 + 8 + 4 + 128 + 256, 128, 64, 256, 64, 0, 32, 256, 2048});
}

TEST_CASE("an index that leaves a shared array is out of bounds, near or far, also into its neighbours") {
  CHECK(found("over_static", 7) == "");
  const std::string at = " (4 bytes); middle has 128 bytes | " + line_of("over_static");
  for (const int row : {8, 9, 40}) {
    CAPTURE(row);
    CHECK(found("over_static", row) == "out of bounds: write of shared middle+" + std::to_string(16 * row) + at);
  }
  CHECK(found("over_static", -1) == "out of bounds: write of shared middle-16" + at);
  CHECK(found("over_regular", 0) ==
        "out of bounds: write of shared row+124 (4 bytes); row has 124 bytes | " + line_of("over_regular"));
}

TEST_CASE("extern arrays end where the launch's bytes end") {
  CHECK(found("over_dynamic", 31) == "");
  const std::string at = " (4 bytes); staged has 128 bytes | " + line_of("over_dynamic");
  CHECK(found("over_dynamic", 32) == "out of bounds: read of shared staged+128" + at);
  CHECK(found("over_dynamic", 5000) == "out of bounds: read of shared staged+20000" + at);
  CHECK(found("over_dynamic", -1) == "out of bounds: read of shared staged-4" + at);
}

TEST_CASE("__device__ and __constant__ variables have ends, too") {
  CHECK(found("over_device", 0) == "");
  CHECK(found("over_device", 1) ==
        "out of bounds: write of counter[1] (4 bytes); counter has 1 elements | " + line_of("over_device"));
  CHECK(found("over_device", -1) ==
        "out of bounds: write of counter[-1] (4 bytes); counter has 1 elements | " + line_of("over_device"));
  CHECK(found("over_double", 3) == "");
  CHECK(found("over_double", 4) ==
        "out of bounds: write of halves[4] (8 bytes); halves has 4 elements | " + line_of("over_double"));
  CHECK(found("over_struct", 2) == "");
  CHECK(found("over_struct", 3) ==
        "out of bounds: read of table.bytes[24] (8 bytes); table.bytes has 24 elements | " + line_of("over_struct"));
  CHECK(found("over_constant", 3) == "");
  CHECK(found("over_constant", 4) ==
        "out of bounds: read of coefficients[4] (4 bytes); coefficients has 4 elements | " + line_of("over_constant"));
  CHECK(found("write_constant", 1) ==
        "out of bounds: write of coefficients[1] (4 bytes); coefficients is __constant__ | " +
            line_of("write_constant"));
}

TEST_CASE("races and reads of unwritten memory name the variable") {
  CHECK(found("race_on_device", 0) ==
        "race: write after write of counter[0] (4 bytes) | " + line_of("race_on_device"));  // two blocks
  CHECK(found("race_on_shared", 0) ==
        "race: write after write of shared value+0 (4 bytes) | " + line_of("race_on_shared"));
  CHECK(found("unwritten_shared", 0) ==
        "uninitialised: read of shared stale+8 (4 bytes) | " + line_of("unwritten_shared"));
  CHECK(found("unwritten_dynamic", 3) ==
        "uninitialised: read of shared words+12 (4 bytes) | " + line_of("unwritten_dynamic"));
}

TEST_CASE_TEMPLATE("static shared memory ends at 48 KiB, and what it leaves of them is the launch's", Machine, Sim,
                   Checked) {
  Machine m;
  CHECK_THROWS_WITH_AS(run_defect(m, "too_large", 0),
                       "static shared memory of too_large is 49156 bytes; expected at most 49152; make the largest "
                       "array extern __shared__ and give its bytes at the launch",
                       Error);
  CHECK_NOTHROW(run_defect(m, "beside_dynamic", 9152));
  CHECK_THROWS_WITH_AS(run_defect(m, "beside_dynamic", 9156),
                       "dynamic shared memory of beside_dynamic is 9156 bytes; expected at most 9152; call "
                       "cudaFuncSetAttribute(beside_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 9156) before "
                       "the launch",
                       Error);
}

TEST_CASE("copies to symbols are refused beyond the variable's end, and for a variable of the host") {
  CHECK_NOTHROW(flash::on_sim::copy_symbol(16, false));
  CHECK_THROWS_WITH_AS(flash::on_sim::copy_symbol(20, false),
                       "the end of cudaMemcpyToSymbol of coefficients is 20 bytes; expected at most 16; copy no more "
                       "than sizeof(coefficients)",
                       Error);
  CHECK_THROWS_WITH_AS(flash::on_sim::copy_symbol(4, true),
                       "the symbol of cudaMemcpyToSymbol is a variable of the host; expected a __device__ or "
                       "__constant__ variable; declare it so, or use cudaMemcpy",
                       Error);
}
