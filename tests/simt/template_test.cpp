// template_test.cpp: the kernel of template.cu on both builds of the simulator, against a loop on the host.
// Copy it with template.cu; docs/write-your-own-kernel.md explains the two.
// Run: ctest -L simt, or simt_template_test
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "sim/machine.hpp"

// Defined in template.cu, once per machine.
namespace flash {
namespace on_sim {
void run_axpy_sum(Machine& m, float a, const float* x, float* y, float* sums, int n);
}
namespace on_checked {
void run_axpy_sum(Machine& m, float a, const float* x, float* y, float* sums, int n);
}
}  // namespace flash

TEST_CASE_TEMPLATE("axpy_sum: right at sizes around a block", Machine, flash::on_sim::Machine,
                   flash::on_checked::Machine) {
  for (int n : {1, 127, 128, 129, 1000}) {
    std::vector<float> x(n), y(n), expected(n), sums((n + 127) / 128), expected_sums(sums.size());
    for (int i = 0; i < n; ++i) {
      x[i] = static_cast<float>(i % 13);
      y[i] = static_cast<float>(i % 7);
      expected[i] = std::fma(2.0f, x[i], y[i]);
      expected_sums[i / 128] += expected[i];  // small integers: exact in any order
    }
    Machine m;
    run_axpy_sum(m, 2.0f, x.data(), y.data(), sums.data(), n);  // throws when the kernel has a defect
    CHECK(y == expected);
    CHECK(sums == expected_sums);
  }
}

TEST_CASE("docs/write-your-own-kernel.md quotes template.cu as it is") {
  std::ifstream source(FLASH_SOURCE_DIR "/tests/simt/template.cu"),
      page(FLASH_SOURCE_DIR "/docs/write-your-own-kernel.md");
  std::stringstream kernel;
  kernel << source.rdbuf();
  std::string quote, line;
  int quotes = 0;
  for (bool inside = false; std::getline(page, line);) {
    if (line == "```cpp") {
      inside = true;
    } else if (inside && line == "```") {
      inside = false;
      ++quotes;
      CHECK_MESSAGE(kernel.str().find(quote) != std::string::npos, quote);
      quote.clear();
    } else if (inside) {
      quote += line + "\n";
    }
  }
  CHECK(quotes == 2);
}
