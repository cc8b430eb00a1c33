// recording.cu: kernels whose recordings recording_test.cpp looks into: a race, many blocks, a warp that never meets
// others, a struct with members of several shapes.
// ctest -R "^recording"
#include <vector>

#include "gpu/kernel.cuh"
#include "tests/recording.hpp"

namespace flash::inline FLASH_MACHINE {

struct Shapes {
  std::uint16_t pair[2][8][16];
  alignas(16) float rows[32][36];
  int count;
};

// Each block: zeros, a barrier, in → rows, a barrier (or none), the number of the other warp's lane → out.
__global__ void turned(const float* in /*[blocks, 64]*/, float* out /*[blocks, 64]*/, bool wait) {
  Shapes& s = shared<Shapes>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, i = blockIdx.x * 64 + threadIdx.x;
  s.rows[warp][lane] = 0;
  if (threadIdx.x == 0) s.count = 64;
  __syncthreads();
  s.rows[warp][lane] = in[i];
  if (wait) __syncthreads();
  const float seen = s.rows[1 - warp][lane];
  trace_value("seen", threadIdx.x, seen);
  out[i] = seen;
}

// Two arrays in turn, more often than there can be steps between two meetings.
__global__ void in_turn(const float* a /*[n]*/, const float* b /*[n]*/, float* out /*[32]*/, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += a[i] - b[i];
  out[threadIdx.x] = sum;
}

// A block that goes on for long.
__global__ void tiles(const float* in /*[n]*/, float* out /*[32]*/, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) {
    sum += in[i];
    __syncthreads();
  }
  out[threadIdx.x] = sum;
}

void run_turned(int blocks, bool wait, const MachineOptions& options) {
  Machine m(options);
  const std::vector<float> numbers(static_cast<std::size_t>(blocks) * 64, 1.0f);
  const auto in = m.upload("in", numbers.data(), numbers.size());
  const auto out = m.alloc<float>("out", numbers.size());
  turned<<<blocks, 64, sizeof(Shapes)>>>(in.data(), out.data(), wait);
}

void run_in_turn(int n, const MachineOptions& options) {
  Machine m(options);
  const std::vector<float> numbers(static_cast<std::size_t>(n), 1.0f);
  const auto a = m.upload("a", numbers.data(), numbers.size()), b = m.upload("b", numbers.data(), numbers.size());
  const auto out = m.alloc<float>("out", 32);
  in_turn<<<1, 32>>>(a.data(), b.data(), out.data(), n);
}

void run_tiles(int n, const MachineOptions& options) {
  Machine m(options);
  const std::vector<float> numbers(static_cast<std::size_t>(n), 1.0f);
  const auto in = m.upload("in", numbers.data(), numbers.size());
  const auto out = m.alloc<float>("out", 32);
  tiles<<<1, 32>>>(in.data(), out.data(), n);
}

}  // namespace flash::inline FLASH_MACHINE
