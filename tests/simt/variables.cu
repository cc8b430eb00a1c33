// variables.cu: __shared__, extern __shared__, __device__ and __constant__ variables in every form: each must mean for
// the simulator what it means for nvcc. The second half leaves its arrays on purpose; lines are marked //@ name.
// Run: simt_variables_test; nvcc -std=c++20 -I. -c tests/simt/variables.cu
#include "gpu/kernel.cuh"
#include "tests/simt/variables.hpp"

FLASH_VARIABLES(FLASH_MACHINE)

namespace flash::inline FLASH_MACHINE {

// ---- forms --------------------------------------------------------------------------------------------------------
// Laid out by hand: the forms are what is tried.
// clang-format off

__constant__ float coefficients[4];
__constant__ const int primes[] = {2, 3, 5, 7};
__device__ int counter;
__device__ unsigned char bytes[6] = {1, 2, 3, 4, 5, 6};
static __device__ float4 vectors[2];
__device__ int first_of_two, second_of_two = 40;
__shared__ int of_the_file[32];
namespace inner { __device__ long wide = 1l << 40; }
template <class T> struct Table { T values[3]; };
__device__ Table<double> table = {{1, 2, 3}};
__device__ double halves[4];

// A function with a variable of its own: each kernel that calls it has one.
__device__ int rotated(int x) {
  __shared__ int scratch[64];
  scratch[threadIdx.x] = x;
  __syncthreads();
  const int result = scratch[(threadIdx.x + 1) % blockDim.x];
  __syncthreads();
  return result;
}

// A constructor has two names in assembly, of which one is declared to be the other.
struct OneMore {
  int value;
  __noinline__ __device__ OneMore(int x) : value(rotated(x) + 1) {}
};
__global__ void construct(int* sum) { atomicAdd(sum, OneMore(threadIdx.x).value); }

template <class T, int N>
__global__ void transpose(const T* in, T* out) {
  __shared__ T tile[N][N + 1];
  tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * N + threadIdx.x];
  __syncthreads();
  out[threadIdx.y * N + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void several(int* sum) {
  __shared__ int a[64], b[64];
  __shared__ alignas(16) float four[4];
  __shared__ __align__(8) int pair[2];
  volatile __shared__ int flag;
  static __shared__ short small[3];
  __shared__ union { int i; float f; } both;
  const int t = threadIdx.x;
  a[t] = t, b[t] = rotated(t);
  if (t < 4) four[t] = static_cast<float>(t);
  if (t < 2) pair[t] = 1;
  if (t < 3) small[t] = static_cast<short>(t);
  if (t == 0) flag = 7, both.f = 1.0f;
  __syncthreads();
  const float4 v = *reinterpret_cast<float4*>(four);
  if (t == 0) atomicAdd(sum, flag + small[2] + static_cast<int>(v.w) + pair[1] + (both.i >> 23));
  atomicAdd(sum, a[63 - t] - b[t]);
  if (t < 32) of_the_file[t] = t, atomicAdd(sum, of_the_file[t]);
}

// Two arrays, each handed to two helpers, in a loop: g++ adds $As@tpoff to the thread's pointer.
__device__ void fill(const int* a, const int* b, int* As, int* Bs, int row, int column) {
  for (int i = 0; i + 8 <= 32; i += 8) As[column * 32 + row + i] = a[(row + i) * 16 + column];
  for (int i = 0; i + 8 <= 8; i += 8) Bs[(i + row % 8) * 32 + column] = b[(i + row % 8) * 32 + column];
}
__device__ int product(const int* As, const int* Bs, int t) {
  int sum = 0;
  for (int k = 0; k < 8; ++k) sum += As[k * 32 + t % 32] * Bs[k * 32 + t % 8];
  return sum;
}
__global__ void handed_on(const int* a, const int* b, int* sum) {
  __shared__ int As[8 * 32];
  __shared__ int Bs[8 * 32];
  for (int k = 0; k < 16; k += 8) {
    fill(a + k, b + k * 32, As, Bs, threadIdx.x / 8, threadIdx.x % 8);
    __syncthreads();
    atomicAdd(sum, product(As, Bs, threadIdx.x));
    __syncthreads();
  }
}

__device__ float* dynamic_floats() {
  extern __shared__ float raw[];
  return raw;
}

// Both names mean the block's dynamic shared memory, as in CUDA.
template <class T>
__global__ void dynamic(T* sum) {
  extern __shared__ __align__(16) float raw[];
  raw[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  atomicAdd(sum, static_cast<T>(dynamic_floats()[blockDim.x - 1 - threadIdx.x]));
}

template <class T>
__global__ void dynamic_bytes(int* sum) {
  extern __shared__ unsigned char storage[];
  T* values = reinterpret_cast<T*>(storage);
  values[threadIdx.x] = static_cast<T>(threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(sum, static_cast<int>(values[blockDim.x - 1]));
}

__global__ void device_variables(int* sum) {
  atomicAdd(&counter, 1);
  if (threadIdx.x == 0) {
    vectors[1].w = 5;
    first_of_two = 2;
    atomicAdd(sum, static_cast<int>(coefficients[3]) + primes[3] + bytes[5] + static_cast<int>(vectors[1].w) +
                       first_of_two + second_of_two + static_cast<int>(inner::wide >> 40) +
                       static_cast<int>(table.values[2]));
  }
}

#define LOCAL_SHARED(type, name, count) __shared__ type name[count]
__global__ void from_macro(int* sum) {
  LOCAL_SHARED(int, hidden, 4);
  auto fill = [&](int i) { __shared__ int in_lambda[4]; in_lambda[i] = i; hidden[i] = in_lambda[i]; };
  fill(threadIdx.x);
  atomicAdd(sum, hidden[threadIdx.x]);
}
// clang-format on

namespace {

int downloaded(Machine& m, const Array<int>& sum) {
  int value = 0;
  m.download(&value, sum);
  return value;
}

}  // namespace

std::vector<VariableForm> run_variables(Machine& m) {
  std::vector<VariableForm> forms;
  const auto expect = [&](const char* name, long expected, long got) { forms.push_back({name, expected, got}); };
  const int zero = 0;
  const auto fresh = [&] { return m.upload("sum", &zero, 1); };

  std::vector<float> in(16 * 16), out(16 * 16);
  for (int i = 0; i < 256; ++i) in[i] = static_cast<float>(i);
  const Array<float> d_in = m.upload("in", in.data(), 256), d_out = m.alloc<float>("out", 256);
  transpose<float, 16><<<1, dim3(16, 16)>>>(d_in.data(), d_out.data());
  m.download(out.data(), d_out);
  long wrong = 0;
  for (int i = 0; i < 256; ++i) wrong += out[i] != in[i % 16 * 16 + i / 16];
  expect("an array in a template", 0, wrong);

  const Array<int> a = fresh();
  several<<<1, 64>>>(a.data());
  expect("arrays, scalars, unions, alignments, a device function's, a file's", 7 + 2 + 3 + 1 + 127 + 496,
         downloaded(m, a));

  const Array<int> b = fresh();
  dynamic<<<3, 32, 32 * sizeof(float)>>>(b.data());
  dynamic<int><<<1, 16, 16 * sizeof(float)>>>(b.data());
  expect("extern arrays, one name in two functions", 3 * 496 + 120, downloaded(m, b));
  const Array<int> c = fresh();
  dynamic_bytes<double><<<1, 32, 32 * sizeof(double)>>>(c.data());
  dynamic_bytes<short><<<2, 32, 32 * sizeof(short)>>>(c.data());
  expect("extern bytes, taken for other types", 3 * 31, downloaded(m, c));

  const float four[4] = {1, 2, 3, 4};
  cudaMemcpyToSymbol(coefficients, four, sizeof four);
  cudaMemcpyToSymbol(counter, &zero, sizeof zero);
  const float nine = 9;
  cudaMemcpyToSymbol(coefficients, &nine, sizeof nine, 3 * sizeof(float));
  const Array<int> d = fresh();
  device_variables<<<1, 8>>>(d.data());
  expect("__device__ and __constant__ variables", 9 + 7 + 6 + 5 + 2 + 40 + 1 + 3, downloaded(m, d));
  int count = 0;
  cudaMemcpyFromSymbol(&count, counter, sizeof count);
  expect("cudaMemcpyFromSymbol", 8, count);
  float third = 0;
  cudaMemcpyFromSymbol(&third, coefficients, sizeof third, 2 * sizeof(float));
  expect("cudaMemcpyFromSymbol with an offset", 3, static_cast<long>(third));

  const Array<int> e = fresh();
  from_macro<<<1, 4>>>(e.data());
  expect("arrays in a macro and in a lambda", 6, downloaded(m, e));

  const Array<int> f = fresh();
  construct<<<1, 8>>>(f.data());
  expect("a constructor's array", 28 + 8, downloaded(m, f));

  const std::vector<int> ones(32 * 16, 1);
  const Array<int> ones_a = m.upload("a", ones.data(), ones.size()), ones_b = m.upload("b", ones.data(), ones.size());
  const Array<int> g = fresh();
  handed_on<<<1, 64>>>(ones_a.data(), ones_b.data(), g.data());
  expect("two arrays, each handed to two functions", 64 * 16, downloaded(m, g));
  return forms;
}

// ---- defects ------------------------------------------------------------------------------------------------------

__global__ void over_static(int* out, int i) {
  __shared__ int left[32];
  __shared__ int middle[8][4];
  __shared__ int right[32];
  const int t = threadIdx.x;
  left[t] = right[t] = middle[t / 4][t % 4] = t;
  __syncthreads();
  if (t == 0) middle[i][0] = 1;  //@ over_static
  out[t] = left[t] + right[t];
}

__global__ void over_dynamic(int* out, int i) {
  extern __shared__ float staged[];
  staged[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 31) out[0] = static_cast<int>(staged[i]);  //@ over_dynamic
}

// All lanes but the last write inside, so that the access is one of a regular request.
__global__ void over_regular(int* out, int) {
  __shared__ int row[31];
  row[threadIdx.x] = 1;  //@ over_regular
  out[threadIdx.x] = 0;
}

__global__ void over_device(int*, int i) {
  reinterpret_cast<int*>(&counter)[i] = 1;  //@ over_device
}
__global__ void over_double(int*, int i) {
  halves[i] = 0.5;  //@ over_double
}
__global__ void over_struct(int* out, int i) {
  out[0] = static_cast<int>(table.values[i]);  //@ over_struct
}
__global__ void over_constant(int* out, int i) {
  out[0] = static_cast<int>(coefficients[i]);  //@ over_constant
}
__global__ void write_constant(int*, int i) {
  const_cast<float*>(coefficients)[i] = 0;  //@ write_constant
}
__global__ void race_on_device(int*, int) {
  counter = 1;  //@ race_on_device
}
__global__ void race_on_shared(int* out, int) {
  __shared__ int value;
  value = threadIdx.x;  //@ race_on_shared
  out[threadIdx.x] = 0;
}
__global__ void unwritten_shared(int* out, int i) {
  __shared__ int stale[4];
  if (i == 0) stale[0] = 1;
  out[0] = stale[2];  //@ unwritten_shared
}
// The volatile flag that a block reads before it is written.
__global__ void unwritten_dynamic(int* out, int i) {
  extern __shared__ int words[];
  out[0] = words[i];  //@ unwritten_dynamic
}
#if !defined(__CUDACC__)  // ptxas refuses it, as the launch does here
__global__ void too_large(int* out, int) {
  __shared__ int a[12288], b;
  a[0] = b = 1;
  out[0] = a[0];
}
#endif
__global__ void beside_dynamic(int* out, int) {
  __shared__ char statically[40000];
  extern __shared__ int words[];
  statically[threadIdx.x] = 1, words[threadIdx.x] = 1;
  out[0] = 1;
}

void run_defect(Machine& m, const std::string& name, int index) {
  const Array<int> out = m.alloc<int>("out", 32);
  if (name == "over_static") over_static<<<1, 32>>>(out.data(), index);
  if (name == "over_dynamic") over_dynamic<<<1, 32, 32 * sizeof(float)>>>(out.data(), index);
  if (name == "over_regular") over_regular<<<1, 32>>>(out.data(), index);
  if (name == "over_device") over_device<<<1, 1>>>(out.data(), index);
  if (name == "over_double") over_double<<<1, 1>>>(out.data(), index);
  if (name == "over_struct") over_struct<<<1, 1>>>(out.data(), index);
  if (name == "over_constant") over_constant<<<1, 1>>>(out.data(), index);
  if (name == "write_constant") write_constant<<<1, 1>>>(out.data(), index);
  if (name == "race_on_device") race_on_device<<<2, 1>>>(out.data(), index);
  if (name == "race_on_shared") race_on_shared<<<1, 32>>>(out.data(), index);
  if (name == "unwritten_shared") unwritten_shared<<<1, 1>>>(out.data(), index);
  if (name == "unwritten_dynamic") unwritten_dynamic<<<1, 1, 64>>>(out.data(), index);
#if !defined(__CUDACC__)
  if (name == "too_large") too_large<<<1, 1>>>(out.data(), index);
#endif
  if (name == "beside_dynamic") beside_dynamic<<<1, 1, index>>>(out.data(), index);
}

void copy_symbol(std::size_t bytes, bool host) {
  float values[8] = {};
  static int on_host;
  if (host)
    cudaMemcpyToSymbol(on_host, values, bytes);
  else
    cudaMemcpyToSymbol(coefficients, values, bytes);
}

}  // namespace flash::inline FLASH_MACHINE
