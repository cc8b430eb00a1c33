// faults.cu: kernels that the processor or the clock stops: endless recursion, local arrays, a division, a long loop.
// faults_test.cpp finds the lines by their //@ marks. On a GPU most of them would end in an error or never.
// Use: faults.hpp.
#include "gpu/kernel.cuh"
#include "tests/simt/faults.hpp"

namespace flash::inline FLASH_MACHINE {

// No compiler makes a loop of it: each call needs an address in the one before.
__device__ int sum_to(int n, int* above) {                  //@ recursion
  int mine[2] = {n, *above};                                //@ recursion
  return n == 0 ? mine[1] : sum_to(n - 1, mine) + mine[1];  //@ recursion
}

__global__ void recursion(int depth, int* out) {
  int zero = 0;
  out[threadIdx.x] = sum_to(depth, &zero);
}

// Fills a local array from the far end, in steps of a page and less.
template <int Kilobytes>
__global__ void local_array(int from, int* out) {
  int local[Kilobytes * 256];  //@ array
  for (int i = Kilobytes * 256 - 1; i >= 0; --i) local[i] = i == from ? 7 : i % 2;
  int sum = 0;
  for (int i = threadIdx.x; i < Kilobytes * 256; i += 1024) sum += local[(i * 5 + from) % (Kilobytes * 256)];
  out[threadIdx.x] = sum + local[from];
}

// An array whose length the thread knows alone.
__global__ void variable_array(int kilobytes, int* out) {
  int* const local = static_cast<int*>(__builtin_alloca(static_cast<std::size_t>(kilobytes) * 1024));  //@ variable
  for (int i = 0; i < kilobytes * 256; ++i) local[i] = i;
  out[threadIdx.x] = local[kilobytes * 256 - 1];
}

__global__ void division(int a, int b, int* out) {
  out[threadIdx.x] = a / b;  //@ division
}

// A walk of period 2^32: seconds long, unless `stop` is near.
__global__ void long_walk(unsigned stop, unsigned* out) {  //@ loop
  unsigned n = threadIdx.x, steps = 0;  //@ loop
  while (n != stop) {                //@ loop
    n = n * 1664525u + 1013904223u;  //@ loop
    ++steps;                         //@ loop
  }
  out[blockIdx.x] = steps;
}

// Loops without end, each spending its time elsewhere: in the C library, in shared memory, in the simulator's atomics
// and barriers, in its hooks for volatile loads, in a function, in the C++ library.
__device__ __noinline__ unsigned stepped(unsigned n) {  //@ endless
  return n * 1664525u + 1013904223u;                    //@ endless
}                                                       //@ endless

template <int Kind>
__global__ void endless(unsigned* sum, const volatile unsigned* flag) {  //@ endless
  __shared__ unsigned tile[64];
  tile[threadIdx.x] = threadIdx.x;
  __syncthreads();
  unsigned n = threadIdx.x;
  while (*sum != ~0u) {                                                             //@ endless
    if constexpr (Kind == 0) n = static_cast<unsigned>(sinf(n + 0.5f) * 1e6f);      //@ endless
    if constexpr (Kind == 1) tile[threadIdx.x] = n = tile[threadIdx.x] + n;         //@ endless
    if constexpr (Kind == 2) n += atomicAdd(&sum[1], 1u);                           //@ endless
    if constexpr (Kind == 3) __syncthreads();                                       //@ endless
    if constexpr (Kind == 4) n += *flag;                                            //@ endless
    if constexpr (Kind == 5) n = stepped(n);                                        //@ endless
    if constexpr (Kind == 6) std::swap(tile[threadIdx.x], n), n = std::max(n, 7u);  //@ endless
    sum[2 + threadIdx.x] = n;                                                       //@ endless
  }
}

__global__ void wild(const float* in, ptrdiff_t index, float* out) {
  out[0] = in[index];  //@ wild
}

int run_recursion(Machine& m, int depth) {
  const auto out = m.alloc<int>("out", 1);
  recursion<<<1, 1>>>(depth, out.data());
  int result = 0;
  m.download(&result, out);
  return result;
}

int run_local_array(Machine& m, int kilobytes, int from) {
  const auto out = m.alloc<int>("out", 1);
  if (kilobytes <= 400)
    local_array<400><<<1, 1>>>(from, out.data());
  else
    local_array<900><<<1, 1>>>(from, out.data());
  int result = 0;
  m.download(&result, out);
  return result;
}

int run_variable_array(Machine& m, int kilobytes) {
  const auto out = m.alloc<int>("out", 1);
  variable_array<<<1, 1>>>(kilobytes, out.data());
  int result = 0;
  m.download(&result, out);
  return result;
}

int run_division(Machine& m, int a, int b) {
  const auto out = m.alloc<int>("out", 1);
  division<<<1, 1>>>(a, b, out.data());
  int result = 0;
  m.download(&result, out);
  return result;
}

unsigned run_long(Machine& m, unsigned stop, int blocks) {
  const auto out = m.alloc<unsigned>("out", static_cast<std::size_t>(blocks));
  long_walk<<<blocks, 1>>>(stop, out.data());
  std::vector<unsigned> result(static_cast<std::size_t>(blocks));
  m.download(result.data(), out);
  return result[0];
}

void run_endless(Machine& m, int kind) {
  static constexpr decltype(&endless<0>) kKinds[] = {endless<0>, endless<1>, endless<2>, endless<3>,
                                                     endless<4>, endless<5>, endless<6>};
  const std::vector<unsigned> zeros(2 + 64);
  const auto sum = m.upload("sum", zeros.data(), zeros.size());
  const auto flag = m.upload("flag", zeros.data(), 1);
  kKinds[kind]<<<1, 64>>>(sum.data(), flag.data());
}

float run_wild(Machine& m, ptrdiff_t index) {
  const float value = 3;
  const auto in = m.upload("in", &value, 1);
  const auto out = m.alloc<float>("out", 1);
  wild<<<1, 1>>>(in.data(), index, out.data());
  float result = 0;
  m.download(&result, out);
  return result;
}

void run_huge_allocation(Machine& m) {
  m.alloc<double>("huge", static_cast<std::size_t>(-1) / 4);
}

}  // namespace flash::inline FLASH_MACHINE
