// template_test.cpp: the kernel of template.cu on both builds of the simulator, against a loop on the host.
// Copy it with template.cu; docs/write-your-own-kernel.md explains the two.
// Run: ctest -L simt, or simt_template_test
#include <doctest/doctest.h>

#include <cmath>
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
