// xtensor.hpp: the only file that includes xtensor, which moved its headers in 0.26.
// Apart from tensor.hpp so that the build can read it once for many files (precompiled headers, CMakeLists.txt).
// Use: #include "phases/arrays/tensor.hpp"
#pragma once
#if __has_include(<xtensor/containers/xtensor.hpp>)
#include <xtensor/containers/xtensor.hpp>
#else
#include <xtensor/xtensor.hpp>
#endif
