// measured.cpp: flash-measured writes the source file of measured.hpp. It is part of the build, which needs neither
// Python nor the tests for it.
// flash-measured OUT.cpp FILE.json…
#include "phases/library/measured.hpp"

int main(int count, char** words) try {
  if (count < 3) throw flash::Error("expected OUT.cpp FILE.json…");
  const std::string text = flash::measured_source({words + 2, words + count});
  if (!(std::ofstream(words[1], std::ios::binary) << text).flush())
    throw flash::Error(std::string("cannot write ") + words[1]);
} catch (const flash::Error& e) {
  std::fprintf(stderr, "flash-measured: %s\n", e.what());
  return 2;
}
