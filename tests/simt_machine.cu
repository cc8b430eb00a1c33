// simt_machine.cu: kernels with which the simulator tests itself, compiled for each machine from this one text.
// Each run_ function is host code that is the same on every machine; simt_machine_test.cpp calls them.
// Build: flash_add_kernel(simt_machine_kernels simt_machine.cu)
#include "gpu/kernel.cuh"
#include "tests/simt/dialect_like.hpp"
#include "tests/simt_machine.hpp"

// Outside of our namespace half and nv_bfloat16 are CUDA's.
__device__ inline half plus_half(float x) {
  const half h = x;
  return h + half(0.5f);
}
__device__ inline nv_bfloat16 plus_half_bfloat16(float x) {
  const nv_bfloat16 h = x;
  return h + nv_bfloat16(0.5f);
}

namespace flash::inline FLASH_MACHINE {

struct TransposeTile {
  float tile[32][33];  // one column of padding: no bank conflicts
};

__global__ void __launch_bounds__(256) transpose(const float* in /*[n,n]*/, float* out /*[n,n]*/, int n) {
  TransposeTile& s = shared<TransposeTile>();
  const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int r = 0; r < 32; r += 8) s.tile[threadIdx.y + r][threadIdx.x] = in[(y + r) * n + x];
  __syncthreads();  // the whole tile is written
  const int tx = blockIdx.y * 32 + threadIdx.x, ty = blockIdx.x * 32 + threadIdx.y;
  for (int r = 0; r < 32; r += 8) out[(ty + r) * n + tx] = s.tile[threadIdx.x][threadIdx.y + r];
}

void run_transpose(Machine& m, const float* host_in, float* host_out, int n) {
  Array<float> in = m.upload("in", host_in, size_t(n) * n);
  Array<float> out = m.alloc<float>("out", size_t(n) * n);
  launch<TransposeTile>(m, transpose, dim3(n / 32, n / 32), dim3(32, 8), in.data(), out.data(), n);
  m.download(host_out, out);
}

struct Partial {
  float value[32];
};

// Sum of each block's 256 elements: shuffles inside warps, shared memory between them.
__global__ void block_sum(const float* in /*[grid*256]*/, float* out /*[grid]*/) {
  Partial& s = shared<Partial>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sum = in[blockIdx.x * 256 + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) s.value[warp] = sum;
  __syncthreads();  // all partial sums are written
  if (warp == 0) {
    sum = lane < 8 ? s.value[lane] : 0.0f;
    for (int step = 4; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (lane == 0) out[blockIdx.x] = sum;
  }
}

void run_block_sum(Machine& m, const float* host_in, float* host_out, int blocks) {
  Array<float> in = m.upload("in", host_in, size_t(blocks) * 256);
  Array<float> out = m.alloc<float>("out", blocks);
  launch<Partial>(m, block_sum, blocks, 256, in.data(), out.data());
  m.download(host_out, out);
}

// ---- launches ------------------------------------------------------------------------------------------------------

template <int Kilobytes>
struct Bytes {
  char byte[Kilobytes * 1024];
};

__global__ void nothing() {}
template <int Kilobytes>
__global__ void touch_last(char* out /*[1]*/) {
  Bytes<Kilobytes>& s = shared<Bytes<Kilobytes>>();
  s.byte[Kilobytes * 1024 - 1] = 7;
  *out = s.byte[Kilobytes * 1024 - 1];
}

void run_nothing(Machine& m, const unsigned grid[3], const unsigned block[3]) {
  launch(m, nothing, dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]));
}

int run_shared(Machine& m, int kilobytes) {
  Array<char> out = m.alloc<char>("out", 1);
  char value = 0;
  if (kilobytes == 163) launch<Bytes<163>>(m, touch_last<163>, 1, 1, out.data());
  if (kilobytes == 164) launch<Bytes<164>>(m, touch_last<164>, 1, 1, out.data());
  if (kilobytes == 227) launch<Bytes<227>>(m, touch_last<227>, 1, 1, out.data());
  if (kilobytes == 228) launch<Bytes<228>>(m, touch_last<228>, 1, 1, out.data());
  m.download(&value, out);
  return value;
}

void run_wrong_struct(Machine& m) {
  Array<char> out = m.alloc<char>("out", 1);
  launch<Bytes<1>>(m, touch_last<2>, 1, 1, out.data());
}

// Each thread writes its own place in a 3-D grid of 3-D blocks.
__global__ void number_threads(unsigned* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[i] = i;
}

std::vector<unsigned> run_number_threads(Machine& m) {
  std::vector<unsigned> host(2 * 3 * 4 * 5 * 3 * 2);
  Array<unsigned> out = m.alloc<unsigned>("out", host.size());
  launch(m, number_threads, dim3(2, 3, 4), dim3(5, 3, 2), out.data());
  m.download(host.data(), out);
  return host;
}

// ---- waiting -------------------------------------------------------------------------------------------------------

__global__ void crossed(float* out) {
  if (threadIdx.x == 0)
    while (atomicAdd(&out[0], 0.0f) == 0.0f) {  //@ spin
    }
  __syncthreads();  //@ wait
}

void run_crossed(Machine& m) {
  const float zero = 0;
  Array<float> out = m.upload("out", &zero, 1);
  launch(m, crossed, 1, 40, out.data());
}

// A spinning thread lets the one run that it waits for, in each order.
__global__ void hand_over(int* flag, int* out) {
  if (threadIdx.x == 0) {
    while (atomicAdd(flag, 0) == 0) {
    }
    __threadfence();
    out[0] = out[1];
  }
  if (threadIdx.x == 33) {
    out[1] = 42;
    __threadfence();
    atomicExch(flag, 1);
  }
}

template <int Threads>
__global__ void bounded(int* out);

template <int Threads>
__global__ void __launch_bounds__(Threads * 2, 1) bounded(int* out) {
  out[threadIdx.x] = Threads;
}

void run_bounded(Machine& m, unsigned threads) {
  const Array<int> out = m.alloc<int>("out", threads);
  launch(m, bounded<32>, 1, threads, out.data());
}

__global__ void copy_float3(const float3* in, float3* out) {
  out[threadIdx.x] = in[threadIdx.x];
}

void run_copy_float3(Machine& m) {
  const std::vector<float3> zeros(32);
  const Array<float3> in = m.upload("in", zeros.data(), zeros.size()), out = m.alloc<float3>("out", 32);
  launch(m, copy_float3, 1, 32, in.data(), out.data());
}

__global__ void put_all(int* out) {
  put(out, static_cast<int>(threadIdx.x));
}

void run_put(Machine& m) {
  const Array<int> out = m.alloc<int>("out", 1);
  launch(m, put_all, 1, 2, out.data());
}

struct Fresh {
  float x;
};

__global__ void fresh(const float* never_written, int* all_nan) {
  const float in_shared = shared<Fresh>().x, in_global = *never_written;
  *all_nan = in_shared != in_shared && in_global != in_global;
}

// Is fresh memory NaN, in shared and in global memory, also where other values were before?
bool run_fresh(Machine& m) {
  const float one = 1;
  int all_nan = 0;
  m.upload("before", &one, 1);
  const Array<float> never_written = m.alloc<float>("never_written", 1);
  const Array<int> result = m.alloc<int>("result", 1);
  launch<Fresh>(m, fresh, 1, 1, never_written.data(), result.data());
  m.download(&all_nan, result);
  return all_nan;
}

__global__ void sequence(unsigned* count, unsigned* out) {
  out[atomicAdd(count, 1u)] = blockIdx.x * blockDim.x + threadIdx.x;
}

// Global thread indices in the order in which they ran.
std::vector<unsigned> run_sequence(Machine& m, unsigned blocks, unsigned threads) {
  const unsigned zero = 0;
  std::vector<unsigned> order(blocks * threads);
  const Array<unsigned> count = m.upload("count", &zero, 1), out = m.alloc<unsigned>("out", order.size());
  launch(m, sequence, blocks, threads, count.data(), out.data());
  m.download(order.data(), out);
  return order;
}

// Two blocks wait for each other: they must run at a time.
__global__ void rendezvous(unsigned* arrived) {
  atomicAdd(arrived, 1u);
  while (atomicAdd(arrived, 0u) < gridDim.x) {
  }
}

unsigned run_rendezvous(Machine& m) {
  unsigned arrived = 0;
  const Array<unsigned> count = m.upload("count", &arrived, 1);
  launch(m, rendezvous, 2, 1, count.data());
  m.download(&arrived, count);
  return arrived;
}

// Thread 0 counts up to `until` alone, then all count together: nobody ever waits.
__global__ void counting(unsigned* count, unsigned until, int each) {
  if (threadIdx.x == 0)
    while (atomicAdd(count, 1u) + 1 < until) {
    }
  __syncthreads();
  for (int i = 0; i < each; ++i) atomicAdd(count, 1u);
}

unsigned run_counting(Machine& m) {
  unsigned count = 0;
  const Array<unsigned> device = m.upload("count", &count, 1);
  launch(m, counting, 1, 100, device.data(), 1'100'000u, 1'000);
  m.download(&count, device);
  return count;
}

int run_hand_over(Machine& m) {
  const int zero[2] = {};
  int host[2];
  Array<int> flag = m.upload("flag", zero, 1), out = m.upload("out", zero, 2);
  launch(m, hand_over, 1, 64, flag.data(), out.data());
  m.download(host, out);
  return host[0];
}

// The last block adds up what the others left: fence, ticket, barrier (the CUDA Programming Guide's example).
struct LastBlock {
  float value[64];
  bool last;
};

template <bool Fence>
__global__ void last_block(const float* in /*[grid*64]*/, float* partial /*[grid]*/, unsigned* ticket, float* out) {
  LastBlock& s = shared<LastBlock>();
  const int t = threadIdx.x;
  s.value[t] = in[blockIdx.x * 64 + t];
  __syncthreads();
  if (t == 0) {
    float sum = 0;
    for (int i = 0; i < 64; ++i) sum += s.value[i];
    partial[blockIdx.x] = sum;
    if (Fence) __threadfence();
    s.last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (s.last && t == 0) {
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];
    *out = sum;
  }
}

float run_last_block(Machine& m, bool fence) {
  const std::vector<float> ones(32 * 64, 1.0f);
  const unsigned zero = 0;
  float host = 0;
  Array<float> in = m.upload("in", ones.data(), ones.size()), partial = m.alloc<float>("partial", 32);
  Array<unsigned> ticket = m.upload("ticket", &zero, 1);
  Array<float> out = m.alloc<float>("out", 1);
  launch<LastBlock>(m, fence ? last_block<true> : last_block<false>, 32, 64, in.data(), partial.data(), ticket.data(),
                    out.data());
  m.download(&host, out);
  return host;
}

// Blocks 0 and 31 meet in one element, whatever worker runs them.
__global__ void distant_blocks(float* out) {
  if (blockIdx.x % 31 == 0) out[0] = static_cast<float>(blockIdx.x);
}

void run_distant_blocks(Machine& m) {
  Array<float> out = m.alloc<float>("out", 1);
  launch(m, distant_blocks, 32, 1, out.data());
}

// ---- warps ---------------------------------------------------------------------------------------------------------

// Two halves of a warp work at the same time with masks of their own.
__global__ void half_warps(int* out /*[32]*/) {
  const int lane = threadIdx.x;
  int sum = lane;
  if (lane < 16)
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0x0000ffffu, sum, step);
  else
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xffff0000u, sum, step);
  out[lane] = sum + (lane % 2 ? 0 : static_cast<int>(__popc(__activemask())) * 1000);
}

std::vector<int> run_half_warps(Machine& m) {
  std::vector<int> host(32);
  Array<int> out = m.alloc<int>("out", 32);
  launch(m, half_warps, 1, 32, out.data());
  m.download(host.data(), out);
  return host;
}

// ---- halfs ---------------------------------------------------------------------------------------------------------

// Halfs without an initialiser, in shared memory and in a union.
struct Halfs {
  __half h[2];
  __nv_bfloat16 b[2];
};
union Bits {
  __half h;
  unsigned short bits;
};

// Numbers become halfs and halfs numbers as CUDA's constructors do it; x, y and n are not known to the compiler.
__global__ void halves(float x, double y, int n, unsigned* out /*[18]*/) {
  Halfs& s = shared<Halfs>();
  const __half from_float = x;
  const __half h[] = {__half(x), static_cast<__half>(x), from_float, __half(y), __half(n), __half(1u << 30)};
  const __nv_bfloat16 b[] = {__nv_bfloat16(x), static_cast<__nv_bfloat16>(x), __nv_bfloat16(y), __nv_bfloat16(n)};
  for (int i = 0; i < 6; ++i) out[i] = __half_as_ushort(h[i]);
  for (int i = 0; i < 4; ++i) out[6 + i] = __bfloat16_as_ushort(b[i]);
  s.h[0] = x, s.h[1] = n, s.b[0] = y, s.b[1] = -n;  // assigned as they are
  Bits u;
  u.h = s.h[0];
  const float back = s.h[1], back_bfloat16 = s.b[1];
  const bool is = static_cast<bool>(s.h[0]);
  out[10] = u.bits, out[11] = __bfloat16_as_ushort(s.b[0]);
  out[12] = __float_as_uint(back), out[13] = __float_as_uint(back_bfloat16), out[14] = is;
  out[15] = __half_as_ushort(plus_half(x)), out[16] = __bfloat16_as_ushort(plus_half_bfloat16(x));
  out[17] = sizeof(__half2) + sizeof s;
}

std::vector<unsigned> run_halves(Machine& m, float x, double y, int n) {
  std::vector<unsigned> host(18);
  Array<unsigned> out = m.alloc<unsigned>("out", 18);
  launch<Halfs>(m, halves, 1, 1, x, y, n, out.data());
  m.download(host.data(), out);
  return host;
}

// ---- what the checks must let pass ---------------------------------------------------------------------------------

__device__ constexpr int kTable[4] = {3, 1, 4, 1};  // a constant of the program
struct Triple {
  short a, b, c;
};
struct Big {
  int value[100];
};

__device__ void fill_local(int (&local)[8], int x) {
  for (int i = 0; i < 8; ++i) local[i] = x * kTable[i % 4];
}

__global__ void allowed(Big by_value, int* out, const Triple* triples) {
  int local[8];
  fill_local(local, by_value.value[threadIdx.x]);
  const Triple t = triples[threadIdx.x];  // 6 bytes: a struct without an alignment of its own
  out[threadIdx.x] = local[threadIdx.x % 8] + t.a + t.b + t.c;
  if (threadIdx.x == 0) printf("block of %d threads, %s, %g\n", blockDim.x, "printf", 0.5);
}

std::vector<int> run_allowed(Machine& m) {
  Big big;
  for (int i = 0; i < 100; ++i) big.value[i] = i;
  const std::vector<Triple> triples(32, Triple{1, 2, 3});
  std::vector<int> host(32);
  Array<Triple> device_triples = m.upload("triples", triples.data(), 32);
  Array<int> out = m.alloc<int>("out", 32);
  launch(m, allowed, 1, 32, big, out.data(), device_triples.data());
  m.download(host.data(), out);
  return host;
}

// ---- what the checks take ------------------------------------------------------------------------------------------

// Each element of x [n] is read by threads of two blocks. (A sum that large does not come up.)
template <class T>
__global__ void read_elements(const T* x, int n, float* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const float sum = static_cast<float>(x[i]) + static_cast<float>(x[n - 1 - i]);
  if (sum > 1e4f) *out = sum;
}
template <class T>
__global__ void write_elements(T* x) {
  x[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<T>(1.0f);
}

template <class T>
double grown(Machine& m, bool writes, double (*measure)()) {
  const int n = 1 << 20, threads = 256;
  const std::vector<T> ones(n, T(1.0f));
  Array<T> x = m.upload("x", ones.data(), n);
  Array<float> out = m.alloc<float>("out", 1);
  const double before = measure();
  if (writes)
    launch(m, write_elements<T>, n / threads, threads, x.data());
  else
    launch(m, read_elements<T>, n / threads, threads, x.data(), n, out.data());
  return (measure() - before) / (n * sizeof(T));
}

// By how much what `measure` says grows for each byte of an array of floats or halfs that a launch reads or writes.
double run_elements(Machine& m, bool halves, bool writes, double (*measure)()) {
  return halves ? grown<__half>(m, writes, measure) : grown<float>(m, writes, measure);
}

// ---- trace ---------------------------------------------------------------------------------------------------------

struct Row {
  float value[64];
};

__global__ void marked(const float* in /*[4*64]*/, float* out /*[64]*/) {
  Row& s = shared<Row>();
  float sum = 0;
  for (int tile = 0; tile < 4; ++tile) {
    trace_mark("load", tile);
    s.value[threadIdx.x] = in[tile * 64 + threadIdx.x];
    __syncthreads();
    trace_mark("use", tile);
    sum += s.value[63 - threadIdx.x];
    __syncthreads();
  }
  out[threadIdx.x] = sum;
}

void run_marked(Machine& m) {
  const std::vector<float> ones(256, 1.0f);
  Array<float> in = m.upload("in", ones.data(), 256), out = m.alloc<float>("out", 64);
  launch<Row>(m, marked, 1, 64, in.data(), out.data());
}

}  // namespace flash::inline FLASH_MACHINE
