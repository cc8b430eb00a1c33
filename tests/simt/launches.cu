// launches.cu: CUDA's launches in every form: each must compile for the simulator as nvcc compiles it, and run alike.
// Every kernel adds a number per thread to a sum, so that the sum tells its grid, its block and its arguments.
// Run: simt_launches_test; nvcc -std=c++20 -I. -c tests/simt/launches.cu
#include "gpu/kernel.cuh"
#include "tests/simt/launches.hpp"

FLASH_LAUNCHES(FLASH_MACHINE)

namespace flash::inline FLASH_MACHINE {

// ---- kernels ------------------------------------------------------------------------------------------------------

__global__ void add(int* sum, int n) {
  atomicAdd(sum, n);
}
__global__ void nothing() {}

template <class T, int N>
__global__ void add_n(T* sum) {
  atomicAdd(sum, T{N});
}
template <class T>
__global__ void add_as(T* sum, T n) {
  atomicAdd(sum, n);
}
template <int N, class T>
__global__ void add_to(T* sum) {
  atomicAdd(sum, T{N});
}

__global__ void overloaded(int* sum) {
  atomicAdd(sum, 1);
}
__global__ void overloaded(int* sum, int n) {
  atomicAdd(sum, 10 * n);
}

// Adds the block's dynamic shared memory in words; without `sum` it does nothing.
struct Word {
  int value;
};
__global__ void add_optional(int* sum, const int* more, int2 pair) {
  Word& s = shared<Word>();
  if (threadIdx.x == 0) s.value = pair.x + pair.y;
  __syncthreads();  // the word is written
  if (sum) atomicAdd(sum, s.value + (more ? *more : 0));
}

__global__ void add_default(int* sum, int n = 3, int times = 2) {
  atomicAdd(sum, n * times);
}

__global__ void add_float(int* sum, float x) {
  atomicAdd(sum, static_cast<int>(2 * x));
}

__global__ void add_shape(int* sum) {
  atomicAdd(sum, 100 * (gridDim.x + 10 * gridDim.y) + blockDim.x + 10 * blockDim.y + blockDim.z);
}

namespace outer {
namespace {
__global__ void hidden(int* sum) {
  atomicAdd(sum, 7);
}
}  // namespace
namespace inner {
template <class T>
__global__ void add_one(T* sum) {
  atomicAdd(sum, T{1});
}
}  // namespace inner
}  // namespace outer

template <class T>
struct Traits {
  static constexpr int n = 4;
  static constexpr int twice(int x) { return 2 * x; }
};
template <class A, int N>
struct Pair {
  static constexpr int n = N;
};
template <class T>
constexpr int count(int x) {
  return x;
}

// ---- launches -----------------------------------------------------------------------------------------------------
// Laid out by hand: blanks and line breaks are part of what is tried.
// clang-format off

#define LAUNCH(kernel, grid, block, ...) kernel<<<(grid), (block)>>>(__VA_ARGS__)
#define LAUNCH_FORM(name, ...)     \
  do {                             \
    add_##name<<<1, 32>>>(__VA_ARGS__); \
  } while (0)
#define SHAPE 3, dim3(2, 2)
#define ONE_WARP <<<1, 32>>>
#define CHECKED(call) \
  do {                \
    call;             \
    if (cudaGetLastError() != cudaSuccess) *failed = true; \
  } while (0)

// A sum in device memory, and what it should be after each form.
class Sum {
 public:
  explicit Sum(Machine& m) : m_(m), sum_(m.upload("sum", &zero, 1)) {}
  int* at() const { return sum_.data(); }
  void expect(int expected, const char* name) {
    int got = -1;
    m_.download(&got, sum_);
    forms.push_back({name, expected, got});
    m_.upload(sum_, &zero);
  }
  std::vector<Form> forms;

 private:
  static constexpr int zero = 0;
  Machine& m_;
  Array<int> sum_;
};

template <class T, class F>
void with(T* x, F f) {
  f([=] { add_n<T, sizeof(T) * (8 > 4 ? 2 : 1)><<<dim3(1, 2), Traits<Traits<T>>::n, Traits<T>::n * sizeof(T)>>>(x); });
}

template <class T>
void deduced_in_template(T* x) {
  outer::inner::template add_one<T><<<1, Traits<T>::n>>>(x);
}

struct Launcher {
  int* sum;
  int blocks;
  void (*kernel)(int*, int);
  void run() const { kernel<<<blocks, 1>>>(sum, 2); }
};

std::vector<Form> run_forms(Machine& m) {
  Sum s(m);
  int* const x = s.at();
  const int n = 6;
  const cudaStream_t stream = 0;
  bool went_wrong = false;
  bool* const failed = &went_wrong;

  // The configuration.
  add<<<2, 3>>>(x, 5);
  s.expect(30, "numbers");
  add <<< dim3(2, 2), dim3(3, 2, 2) >>> (x, 1);
  s.expect(48, "dim3, blanks");
  add_shape<<<{2, 3}, {4, 5, 1}>>>(x);
  s.expect(3255 * 2 * 3 * 4 * 5, "braces");
  add<<<n >> 1, 1 << 2>>>(x, 1);
  s.expect(12, "shifts");
  add<<<(n + 31) / 32, dim3(8, n / 2), 32 * sizeof(float), stream>>>(x, 1);
  s.expect(24, "bytes and a stream");
  add<<<1, 2, 0, nullptr>>>(x, 1);
  s.expect(2, "no bytes and no stream");
  add<<<1, Traits<Traits<Traits<int>>>::n>>>(x, 1);
  s.expect(4, ">>> inside");
  add<<<1, Traits<Traits<Traits<int>>>::twice(3)>>>(x, 1);
  s.expect(6, ">>> inside, with a call");
  add<<<count<Traits<Traits<int>>>(3), Pair<Traits<Traits<int>>, 2>::n>>>(x, 1);
  s.expect(6, ">>>( inside");
  add<<<1, (n < 5) ? 3 : 2>>>(x, 1);
  s.expect(2, "a comparison");
  add<<<1, n < 5 ? 3 : 2>>>(x, 1);
  s.expect(2, "a comparison without parentheses");
  add<<<1, [&] { return n > 1 ? 32 : 64; }()>>>(x, 1);
  s.expect(32, "a lambda");
  add<<<SHAPE>>>(x, 1);
  s.expect(12, "a macro's configuration");

  // The kernel.
  add_n<int, 32><<<1, 2>>>(x);
  s.expect(64, "template arguments");
  add_n<int, (32 >> 2)><<<1, 2>>>(x);
  s.expect(16, "a shift among them");
  add_n<int, (3 > 2) + 1><<<1, 2>>>(x);
  s.expect(4, "a comparison among them");
  add_as<<<1, 2>>>(x, 3);
  s.expect(6, "deduced");
  add_to<4><<<1, 2>>>(x);
  s.expect(8, "deduced in part");
  overloaded<<<1, 2>>>(x), overloaded<<<1, 3>>>(x, 4);
  s.expect(2 + 120, "overloaded");
  outer::hidden<<<1, 1>>>(x);
  s.expect(7, "a namespace");
  ::flash::outer::inner::add_one<<<1, 2>>>(x);
  s.expect(2, "the global namespace");
  outer::inner::add_one<int><<<1, 3>>>(x);
  s.expect(3, "a namespace and template arguments");
  void (*pointer)(int*, int) = add;
  pointer<<<1, 2>>>(x, 3);
  (*pointer)<<<1, 2>>>(x, 4);
  s.expect(14, "a function pointer");
  void (*table[2])(int*, int) = {nullptr, pointer};
  table[n & 1 ? 0 : 1]<<<1, 2>>>(x, 1);
  s.expect(2, "a table");
  const auto chosen = [&](int i) { return table[i]; };
  chosen(1)<<<1, 5>>>(x, 1);
  s.expect(5, "a call");
  static_cast<void (*)(int*)>(overloaded)<<<1, 5>>>(x);
  s.expect(5, "a cast");
  const Launcher launcher{x, 3, add};
  launcher.run();
  launcher.kernel<<<1, 1>>>(x, 1);
  (&launcher)->kernel<<<1, 1>>>(x, 1);
  s.expect(8, "a member");
  add_n<
      int,
      5><<<
      1,
      2
  >>>(
      x);
  s.expect(10, "several lines");
  nothing<<<1, 1>>>();
  s.expect(0, "no arguments");

  // The arguments.
  add_float<<<1, 1>>>(x, n);
  s.expect(12, "an int for a float");
  add_optional<<<1, 2, sizeof(Word)>>>(x, NULL, {3, 4});
  add_optional<<<1, 2, sizeof(Word)>>>(x, nullptr, make_int2(3, 4));
  add_optional<<<1, 2, sizeof(Word)>>>(0, 0, {});
  s.expect(28, "NULL, nullptr, 0 and braces");
  add_default<<<1, 1>>>(x), add_default<<<1, 1>>>(x, 10), add_default<<<1, 1>>>(x, 100, 1);
  s.expect(6 + 20 + 100, "default arguments");
  add<<<1, 2>>>(x, [&] {
    add<<<1, 1>>>(x, 100);
    return 1;
  }());
  s.expect(102, "a launch in a launch");

  // Where it stands.
  if (n > 0)
    add<<<1, 2>>>(x, n);
  else
    add<<<2, 2>>>(x, 100);
  if (n > 0) (*pointer)<<<1, 1>>>(x, 1);
  for (int i = 1; i < 3; ++i) add<<<i, 2>>>(x, i);
  s.expect(12 + 1 + 10, "if, else, for");
  n > 9 ? add<<<1, 1>>>(x, 1) : ::flash::add<<<1, 1>>>(x, 2);
  s.expect(2, "a conditional expression");
  const auto lambda = [&](int b) { add<<<b, 2>>>(x, b); };
  lambda(3);
  s.expect(18, "inside a lambda");
  const auto deduced_return = [&] { return add<<<1, 1>>>(x, 1); };
  deduced_return();
  s.expect(1, "returned");
  with(x, [](auto f) { f(); });
  s.expect(2 * 4 * 8, "generic code");
  deduced_in_template(x);
  s.expect(4, "a template's template");

  // Macros.
  LAUNCH(add, 1, 2, x, n);
  LAUNCH((add_n<int, 32>), 1, 2, x);
  LAUNCH_FORM(as, x, 1);
  add ONE_WARP (x, 1);
  CHECKED((add<<<1, 2>>>(x, 1)));
  s.expect(12 + 64 + 32 + 32 + 2, "macros");
  if (*failed || cudaDeviceSynchronize() != cudaSuccess) s.expect(0, "an error");

  // What only looks like one.
  const char *text = "add<<<1, 2>>>(x, 1);", *raw = R"(add<<<1, 2>>>(x, 1);)";
  // add<<<1, 2>>>(x, 1);
  /* add<<<1, 2>>>(x, 1); */
  s.forms.push_back({"text", 20, static_cast<int>(std::string(text).size())});
  s.forms.push_back({"raw text", 20, static_cast<int>(std::string(raw).size())});
  s.forms.push_back({"shifts", 24, n << 3 >> 1});
  s.expect(0, "comments");
  return s.forms;
}
// clang-format on

// ---- one launch each ----------------------------------------------------------------------------------------------

void launch_nothing() {
  nothing<<<1, 1>>>();
}

#if !defined(__CUDACC__)
__global__ void parent() {
  nothing<<<1, 1>>>();
}
void run_parent(Machine&) {
  parent<<<1, 1>>>();
}
#endif

// Its lines must be right although launches of several lines, and macros, stand before them and in them.
__global__ void defects(int* sum /*[1]*/) {
  if (threadIdx.x < 32)
    __syncthreads();  //@ defect:1
  else
    __syncthreads();         //@ defect:2
  sum[threadIdx.x + 1] = 0;  //@ defect:3
}

void run_defects(Machine& m) {
  Sum s(m);
  defects<<<1,
            // a comment of its own

            64>>>(s.at());
}

void run_shared(int bytes, int asked) {
  if (asked != -1) cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, asked);
  nothing<<<1, 1, bytes>>>();
}

void run_shared_deduced(Machine& m, int bytes) {
  Sum s(m);
  add_as<<<1, 1, bytes>>>(s.at(), 1);
}

struct Row {
  char bytes[256];
};

__global__ void write_struct(int at) {
  *reinterpret_cast<int*>(shared<Row>().bytes + at) = 1;
}

void run_struct(int bytes, int at) {
  write_struct<<<1, 1, bytes>>>(at);
}

}  // namespace flash::inline FLASH_MACHINE
