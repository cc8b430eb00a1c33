// doctest_main_test.cpp: how a test program ends (doctest_main.cpp), by which CTest tells passed, skipped and failed
// apart. The cases below that are skipped here are run by this program, started once more.
// ctest -L common -R "^doctest_main"
#include <doctest/doctest.h>

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "tests/skip.hpp"

TEST_CASE("1 checks" * doctest::skip()) {
  CHECK(1 + 1 == 2);
}
TEST_CASE("2 checks nothing" * doctest::skip()) {}
TEST_CASE("3 cannot be made" * doctest::skip()) {
  flash::test::skip("no such machine");
  flash::test::skip("said once");
}
TEST_CASE("4 fails" * doctest::skip()) {
  flash::test::skip("no reason to pass");
  CHECK(1 + 1 == 3);
}
TEST_CASE("5 throws" * doctest::skip()) {
  throw std::runtime_error("before it checks");
}

namespace {

struct Ended {
  int status;
  std::string printed;
};
Ended run(const std::string& cases) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  FILE* const pipe = popen(("'" + self + "' --no-skip --test-case='" + cases + "' 2>&1").c_str(), "r");
  REQUIRE(pipe);
  Ended ended;
  for (int c; (c = std::fgetc(pipe)) != EOF;) ended.printed += static_cast<char>(c);
  ended.status = WEXITSTATUS(pclose(pipe));
  return ended;
}

}  // namespace

TEST_CASE("a program ends with 0 for tests that passed, 77 for what was skipped, 1 for all else") {
  CHECK(run("1*").status == 0);
  CHECK(run("3*").status == flash::test::kSkipped);
  CHECK(run("1*,3*").status == 0);
  CHECK(run("4*").status == 1);
  CHECK(run("1*,4*").status == 1);
  CHECK(run("5*").status == 1);
  const std::string why = run("3*").printed;
  CHECK(why.find("\nskipped: no such machine\n") != std::string::npos);
  CHECK(why.find("said once") == std::string::npos);
}

TEST_CASE("a test that checks nothing fails, and so does a name that no test has") {
  const Ended hollow = run("1*,2*");
  CHECK(hollow.status == 1);
  CHECK(hollow.printed.find("TEST CASE: 2 checks nothing\n") != std::string::npos);
  CHECK(hollow.printed.find(": ERROR: it checks nothing") != std::string::npos);
  CHECK(run("6*").status == 1);
  CHECK(run("6*").printed.find("ERROR: there is no such test case") != std::string::npos);
}
