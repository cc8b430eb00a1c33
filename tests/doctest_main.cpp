// doctest_main.cpp: the main() of every doctest program, compiled once (doctest's implementation takes 3.5 s).
// It ends with 0 where all is right, with kSkipped where the tests say that they cannot be made here, else with 1: so
// it does where a test case checks nothing, and where there is no such test case.
// Test files include <doctest/doctest.h> and define no main.
// ./build/default/tests/… or: ctest --test-dir build/default -L phase03
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "tests/skip.hpp"

namespace {

bool skips = false;                        // the running test case says that it cannot be made here
int checked = 0, skipped = 0, hollow = 0;  // test cases that checked something, that could not, that had nothing to say

// Looks at each test case when it has ended.
class Watcher : public doctest::IReporter {
 public:
  explicit Watcher(const doctest::ContextOptions&) {}
  void test_case_start(const doctest::TestCaseData& test) override { running_ = &test, skips = false; }
  void test_case_end(const doctest::CurrentTestCaseStats& of) override {
    if (skips) {
      ++skipped;
    } else if (of.numAssertsCurrentTest > 0 || of.failure_flags != doctest::TestCaseFailureReason::None) {
      ++checked;
    } else {
      ++hollow;
      std::printf(
          "TEST CASE: %s\n%s:%u: ERROR: it checks nothing; let it say that it is skipped, or do not register it\n",
          running_->m_name, running_->m_file.c_str(), running_->m_line);
    }
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& of) override { ran = of.numTestCasesPassingFilters > 0; }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

  inline static bool ran = true;

 private:
  const doctest::TestCaseData* running_ = nullptr;
};
REGISTER_LISTENER("watcher", 1, Watcher);

}  // namespace

void flash::test::skip(const std::string& reason) {
  if (!skips) std::printf("skipped: %s\n", reason.c_str());
  skips = true;
}

int main(int argc, char** argv) {
  const int status = doctest::Context(argc, argv).run();
  if (!Watcher::ran) std::puts("ERROR: there is no such test case");
  if (status != 0 || hollow > 0 || !Watcher::ran) return 1;
  return checked == 0 && skipped > 0 ? flash::test::kSkipped : 0;
}
