// attempt.hpp: tries one exercise: compiles a reader's file with its judge for the checked simulator, and runs it.
// A second or two; what is wrong comes back as one verdict.
// Use: const Verdict v = try_exercise(exercise, {"exercises/05.6-two-barriers.cu"}, workshop).front();
#pragma once
#include <filesystem>
#include <vector>

#include "phases/exercises/exercise.hpp"
#include "phases/exercises/trial.hpp"

namespace flash::exercise {

// Where things are: the build's check.settings (cmake/kernels.cmake), the library of trial.cpp, and the header that
// attempts begin with, which the build has compiled.
struct Workshop {
  std::filesystem::path settings, library, header;
};

// Thrown when the reader has pressed Ctrl-C.
struct Interrupted {};

// The verdicts on files as Exercise::source makes them. They are compiled as one, since what they have in common
// takes most of the time; each runs by itself. One that does not compile is the verdict on all.
std::vector<Verdict> try_exercise(const Exercise& exercise, const std::vector<std::filesystem::path>& attempts,
                                  const Workshop& workshop);

// Without the namespace that keeps attempts apart, "attempt0::", which no reader has written.
std::string without_attempts(const std::string& text);

// The error that a reader should see first, of a compiler's messages: "line 31: 'foo' was not declared in this scope".
std::string first_error(const std::string& messages, const std::string& attempt_name);

}  // namespace flash::exercise
