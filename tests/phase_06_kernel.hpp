// phase_06_kernel.hpp: phase 06's kernel itself, on the fast simulator, for a test that must pass it pointers of its own.
// A header of the "system" kind, because g++ has no other way to overlook nvcc's #pragma unroll in one file.
// Use: include it last; it defines FLASH_MACHINE.
#pragma once
#pragma GCC system_header
#define FLASH_MACHINE on_sim
#include "phases/06-4d-grid/attention.cuh"
