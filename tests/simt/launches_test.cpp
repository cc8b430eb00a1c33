// launches_test.cpp: kernel<<<grid, block>>>(…) under g++: every form runs right on both machines, lines stay exact, and
// what a GPU refuses is refused in one line. The launches are in launches.cu, which nvcc compiles too.
// Run: ctest -L simt, or simt_launches_test
#include "tests/simt/launches.hpp"

#include <doctest/doctest.h>

#include "sim/machine.hpp"

FLASH_LAUNCHES(on_sim)
FLASH_LAUNCHES(on_checked)

#define MACHINES flash::on_sim::Machine, flash::on_checked::Machine

TEST_CASE_TEMPLATE("a launch in every form reaches its kernel with its grid, block and arguments", Machine, MACHINES) {
  Machine m;
  const std::vector<flash::Form> forms = run_forms(m);
  CHECK(forms.size() == 42);
  for (const flash::Form& form : forms) {
    CAPTURE(form.name);
    CHECK(form.got == form.expected);
  }
}
