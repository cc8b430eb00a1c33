// definition.hpp: attention as docs/conventions.md defines it, with all that a problem may ask for, on the CPU: row by
// row in fp32, no array of N x N, forward and backward. Threads share heads and tiles; the bits depend on neither.
// Use: definition::forward(problem, threads);  definition::backward(problem, 0 /*all cores*/);
#pragma once
#include "phases/interface/problem.hpp"

namespace flash::definition {

// O, and of LSE, m, l and O_lo what the problem has. The problem is valid (validate(), check_lengths()).
void forward(const AnyProblem& p, int threads);
// dQ, dK, dV, and of dbias and dsinks what the problem has.
void backward(const AnyProblem& p, int threads);

}  // namespace flash::definition
