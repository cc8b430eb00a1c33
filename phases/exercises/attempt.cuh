// attempt.cuh: what stands before an attempt at an exercise, compiled by the build: words of CUDA, C++ and the judge.
// The reader's file and the judge follow, inside namespace flash::on_checked::attempt (attempt.cpp writes that).
// Use: an exercise's file includes nothing; these names are there.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "gpu/hopper.cuh"
#include "gpu/kernel.cuh"
// (behind the kernel's words, which name the machine that trial.hpp asks for)
#include "phases/exercises/trial.hpp"
