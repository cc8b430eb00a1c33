// faults_test.cpp: what the processor or the clock stops is one finding with its line, not a signal, and the machine
// goes on; Ctrl-C too says where the program was. See sim/core/faults.hpp.
// Run: ctest -R simt_faults
#include "tests/simt/faults.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "sim/error.hpp"
#include "tests/simt/machines.hpp"

namespace {

// Does without checked kernels (tests/CMakeLists.txt looks for FLASH_NO_CHECKED_KERNELS): MACHINES is Sim then.

// Does the finding name a line of faults.cu with this mark?
bool names(const std::string& text, const std::string& mark) {
  const std::vector<std::string> places = flash::test::lines_of("simt/faults.cu", mark);
  return std::any_of(places.begin(), places.end(),
                     [&](const std::string& place) { return text.find(place + " ") != std::string::npos; });
}

// One finding with this first line, at a line with this mark (none: anywhere), by thread 0 of the last block that ran.
void expect(const std::vector<flash::Finding>& findings, const std::string& first, const std::string& mark) {
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].count == 1);
  const std::string& text = findings[0].text;
  INFO(text);
  CHECK(text.rfind(first + "\n", 0) == 0);
  CHECK(text.find("block (0,0,0) warp 0 lane 0") != std::string::npos);
  CHECK((mark.empty() || names(text, mark)));
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__)  // there its own reports take the place of these
TEST_CASE_TEMPLATE("a stack that is full is a finding", Machine, MACHINES) {
  Machine m({.threads = 1, .keep_going = true});
  CHECK(run_recursion(m, 1000) == 500500);
  CHECK(run_local_array(m, 400, 3) > 0);  // a GPU has 512 KiB for each thread
  CHECK(m.findings().empty());
  run_recursion(m, 100 * 1000 * 1000);
  expect(m.findings(), "stack overflow: local variables and calls need more than the thread's 640 KiB", "recursion");
  m.clear();
  run_local_array(m, 900, 3);
  expect(m.findings(), "stack overflow: local variables and calls need more than the thread's 640 KiB", "");
  m.clear();
  CHECK(run_variable_array(m, 400) == 400 * 256 - 1);
  CHECK(m.findings().empty());
  run_variable_array(m, 700);  // steps over all of the guard
  expect(m.findings(), "stack overflow: local variables and calls need more than the thread's 640 KiB", "variable");
  m.clear();
  CHECK(run_recursion(m, 1000) == 500500);
  CHECK(m.findings().empty());
}

TEST_CASE_TEMPLATE("an integer division by zero is a finding", Machine, MACHINES) {
  Machine m({.threads = 1, .keep_going = true});
  run_division(m, 7, 0);
  expect(m.findings(), "division by zero: of an integer (or the least number by -1)", "division");
  CHECK(run_division(m, 7, 2) == 3);
  Machine strict;
  CHECK_THROWS_WITH_AS(run_division(strict, 7, 0), doctest::Contains("kernel division has 1 finding: division by zero"),
                       flash::Error);
}

TEST_CASE("an address that is nobody's is a finding on the fast machine too") {
  Sim m({.threads = 1, .keep_going = true});
  run_wild(m, -(std::ptrdiff_t{1} << 38));
  REQUIRE(m.findings().size() == 1);
  INFO(m.findings()[0].text);
  CHECK(m.findings()[0].text.rfind("out of bounds: access to 0x", 0) == 0);
  CHECK(names(m.findings()[0].text, "wild"));
  CHECK(run_wild(m, 0) == 3);
}

#endif

TEST_CASE_TEMPLATE("a launch that takes too long is stopped where it is", Machine, MACHINES) {
  Machine m({.threads = 1, .keep_going = true, .timeout = 0.05});
  run_long(m, 12345u, 3);
  REQUIRE(m.findings().size() == 1);
  expect(m.findings(), "no end: a thread still runs when the launch is to end (its time is over, or Ctrl-C)", "loop");
  m.clear();
  CHECK(run_long(m, 1013904223u, 3) == 1);  // one step from 0
  CHECK(m.findings().empty());
  Machine patient({.threads = 1});
  CHECK(run_long(patient, 1013904223u, 3) == 1);
}

TEST_CASE_TEMPLATE("a launch that is stopped names a line of its kernel, wherever the thread is", Machine, MACHINES) {
  // The C library, shared memory, atomics, barriers, volatile loads, a function, the C++ library.
  for (int kind = 0; kind < 7; ++kind) {
    for (int run = 0; run < 3;) {
      Machine m({.threads = 1, .keep_going = true, .timeout = 0.01 + 0.0007 * run});
      run_endless(m, kind);
      INFO("kind " << kind << ", run " << run);
      REQUIRE(m.findings().size() == 1);
      const std::string& text = m.findings()[0].text;
      INFO(text);
      CHECK(text.rfind("no end: ", 0) == 0);
      if (text.find(" blocks had run") != std::string::npos) continue;  // a busy computer: it had not begun
      CHECK(names(text, "endless"));
      ++run;
    }
  }
}

namespace {
volatile std::sig_atomic_t own_answers = 0;
}

TEST_CASE("a signal that is no kernel's reaches the program's own handler, each time") {
  const auto old = signal(SIGFPE, [](int) { own_answers = own_answers + 1; });
  {
    Sim m({.threads = 1, .keep_going = true});
    run_division(m, 7, 2);
    raise(SIGFPE);
    raise(SIGFPE);
    CHECK(own_answers == 2);
#if !defined(__SANITIZE_ADDRESS__)  // -fsanitize=undefined asks before it divides
    run_division(m, 7, 0);
    CHECK(m.findings().size() == 1);
#endif
  }
  raise(SIGFPE);
  CHECK(own_answers == 3);
  signal(SIGFPE, old);
}

TEST_CASE("Ctrl-C between two launches ends the program") {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGINT, SIG_DFL);
    Sim m;
    run_division(m, 7, 2);
    raise(SIGINT);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
}

TEST_CASE("signals are the program's own when no machine lives") {
  const auto handlers = [] {
    std::vector<void (*)(int)> all;
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGURG, SIGINT}) {
      struct sigaction now {};
      sigaction(number, nullptr, &now);
      all.push_back(now.sa_handler);
    }
    return all;
  };
  const auto before = handlers();
  {
    Sim m, hurried({.keep_going = true, .timeout = 0.01});
    run_division(m, 7, 2);
    run_long(hurried, 12345u, 1);
    CHECK(handlers() != before);
  }
  CHECK(handlers() == before);
}

TEST_CASE_TEMPLATE("an array of more bytes than 64 bits can count is refused", Machine, MACHINES) {
  Machine m;
  CHECK_THROWS_WITH_AS(run_huge_allocation(m),
                       "device memory for huge is 4611686018427387903 elements of 8 bytes; expected less than 2^64 "
                       "bytes; correct the count",
                       flash::Error);
}

TEST_CASE_TEMPLATE("Ctrl-C names the line, and ends the program as it always does", Machine, MACHINES) {
  int said[2];
  REQUIRE(pipe(said) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(said[1], STDERR_FILENO);
    signal(SIGINT, SIG_DFL);  // doctest has an answer of its own
    alarm(5);                 // in case there is none
    Machine m({.threads = 1, .keep_going = true});
    run_long(m, 12345u, 1000);
    _exit(0);
  }
  close(said[1]);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  kill(child, SIGINT);
  std::string text;
  char buffer[1024];
  for (ssize_t n; (n = read(said[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  close(said[0]);
  int status = 0;
  waitpid(child, &status, 0);
  INFO(text);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
  CHECK(text.rfind("no end: ", 0) == 0);
  CHECK(names(text, "loop"));
}
