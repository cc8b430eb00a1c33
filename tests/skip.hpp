// skip.hpp: a test that cannot be made here (no GPU, …) says why. Its program then ends with kSkipped, by which CTest
// tells it from one that has passed; ./flash test lists the reasons.
// Use: if (!available(Where::Gpu)) return skip("no GPU");
#pragma once
#include <string>

namespace flash::test {

// The exit code of what was not tried; scripts and other programs end with it too (SKIP_RETURN_CODE).
inline constexpr int kSkipped = 77;

// Says so for the test case that is running (doctest_main.cpp).
void skip(const std::string& reason);

}  // namespace flash::test
