// museum.cu: one small kernel per kind of bug, each with a switch `Fixed` that turns it into its correct twin.
// The catalogue with the real bugs that they stand for is in museum.hpp; `//@ name:k` marks the k-th line of a report.
// Run: museum <name> bug|twin on a GPU; simt_museum_test asserts the simulator's reports word for word.
#include "gpu/kernel.cuh"
#include "sim/error.hpp"
#include "tests/simt/museum.hpp"

namespace flash::inline FLASH_MACHINE {

constexpr unsigned all_lanes = 0xffffffffu;

// Nearly all exhibits have this signature and run as one block of 64 threads, in [64], out [64].
using Kernel = void (*)(const float*, float*, int);

// ---- Memory errors ---------------------------------------------------------------------------------------------

template <bool Fixed>
__global__ void write_past_end(const float* in /*[n]*/, float* out /*[n]*/, int n) {
  const int i = threadIdx.x;                   // 64 threads, n = 40
  if (Fixed ? i < n : i <= n) out[i] = in[0];  //@ write_past_end:1
}

template <bool Fixed>
__global__ void read_far(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  const int row_length = Fixed ? 1 : 1 << 20;
  if (i < n) out[i] = in[i * row_length];  //@ read_far:1
}

template <bool Fixed>
__global__ void read_before_start(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  const int left = Fixed && i == 0 ? 0 : i - 1;
  if (i < n) out[i] = in[i] - in[left];  //@ read_before_start:1
}

template <bool Fixed>
__global__ void straddles_end(const float* in, float* out, int n) {
  const int i = threadIdx.x;                                             // 32 threads, n = 41
  const auto* pairs = reinterpret_cast<const unsigned long long*>(out);  // the last one is half outside
  float sum = in[i];
  if (2 * i + (Fixed ? 1 : 0) < n) sum += static_cast<float>(pairs[i] & 1);  //@ straddles_end:1
  __syncthreads();
  out[i] = sum;
}

struct Row32 {
  float row[32];
};

template <bool Fixed>
__global__ void shared_past_end(const float* in, float* out, int) {
  Row32& s = shared<Row32>();
  const int lane = threadIdx.x;               // 32 threads
  s.row[Fixed ? lane : lane + 1] = in[lane];  //@ shared_past_end:1
  out[lane] = in[lane];
}

template <bool Fixed>
__global__ void misaligned_float4(const float* in, float* out, int) {
  const int i = threadIdx.x;                                                        // 8 threads
  const float4 v = *reinterpret_cast<const float4*>(in + 4 * i + (Fixed ? 0 : 1));  //@ misaligned_float4:1
  reinterpret_cast<float4*>(out)[i] = v;  // all four are used, or nvcc would load them one by one
}

// A struct that needs multiples of 8 may be anywhere among them, though it is as large.
struct Sixteen {
  double x;
  int n;
};
template <bool Fixed>
__global__ void misaligned_by_half(const float* in, float* out, int) {
  const int i = threadIdx.x;  // 8 threads
  if (Fixed) {
    const Sixteen v = *reinterpret_cast<const Sixteen*>(in + 4 * i + 2);
    reinterpret_cast<Sixteen*>(out + 2)[i] = v;
  } else {
    reinterpret_cast<float4*>(out)[i] = *reinterpret_cast<const float4*>(in + 4 * i + 2);  //@ misaligned_by_half:1
  }
}

template <bool Fixed>
__global__ void misaligned_member(const float* in, float* out, int) {
  const int i = threadIdx.x;  // 8 threads
  const float4* p = reinterpret_cast<const float4*>(in + 4 * i + (Fixed ? 0 : 1));
  out[i] = p->x;  //@ misaligned_member:1
}

template <bool Fixed>
__global__ void misaligned_shared(const float* in, float* out, int) {
  Row32& s = shared<Row32>();
  const int lane = threadIdx.x;
  s.row[lane] = in[lane];
  __syncwarp();
  const auto* pair = reinterpret_cast<const unsigned long long*>(&s.row[Fixed ? lane & 30 : lane % 31]);
  out[lane] = static_cast<float>(*pair & 1);  //@ misaligned_shared:1
}

template <bool Fixed>
__global__ void kernel_heap(const float* in, float* out, int) {
  const int t = threadIdx.x;                                           // 8 threads
  float* const mine = static_cast<float*>(malloc(4 * sizeof(float)));  //@ kernel_heap:2
  float* const another = new float[2];
  for (int i = 0; i < (Fixed ? 4 : 5); ++i) mine[i] = in[t];  //@ kernel_heap:1
  another[0] = mine[3];
  out[t] = another[0];
  delete[] another;
  free(mine);
}

template <bool Fixed>
__global__ void freed_twice(const float* in, float* out, int) {
  const int t = threadIdx.x;  // 8 threads
  float* const mine = new float(in[t]);
  out[t] = *mine;
  delete mine;
  if (!Fixed && t == 3) delete mine;  //@ freed_twice:1
}

// The host launches `fill` over n - 1 elements (bug) or n (twin) of the array that this kernel reads.
template <bool Fixed>
__global__ void read_unwritten(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  if (i < n) out[i] = in[i];  //@ read_unwritten:1
}

__global__ void fill(float* out, int n) {
  const int i = threadIdx.x;
  if (i < n) out[i] = 1.0f;
}

struct Row64 {
  float x[64];
};

template <bool Fixed>
__global__ void ragged_tile(const float* in, float* out, int n) {
  Row64& s = shared<Row64>();
  const int t = threadIdx.x;  // 64 threads, n = 40 valid rows
  if (t < n) s.x[t] = in[t];
  if (Fixed && t >= n) s.x[t] = 0.0f;
  __syncthreads();
  if (t < n) out[t] = s.x[63 - t];  //@ ragged_tile:1
}

template <bool Fixed>
__global__ void half_written_word(const float* in, float* out, int) {
  const int i = threadIdx.x;
  unsigned short* halves = reinterpret_cast<unsigned short*>(out + i);
  halves[0] = 0;
  if (Fixed || i != 7) halves[1] = 0x3f80;
  out[i] = out[i] + in[i];  //@ half_written_word:1
}

struct Tagged {
  unsigned char tag;  // three bytes of padding follow
  int value;
};
struct TaggedRow {
  Tagged row[64];
};

// Members are written one by one, structs are copied as a whole: from global memory, through shared memory, to a local.
template <bool Fixed>
__global__ void copied_struct(Tagged* items /*[64]*/, Tagged* copies /*[64]*/, unsigned char* raw /*[64 * 8]*/,
                              float* out) {
  TaggedRow& s = shared<TaggedRow>();
  const int t = threadIdx.x;
  items[t].tag = static_cast<unsigned char>(t);
  if (Fixed || t != 5) items[t].value = t;
  Tagged* const unnamed = reinterpret_cast<Tagged*>(raw) + t;  // of memory that has no type
  unnamed->tag = 1;
  unnamed->value = 2;
  copies[t] = items[t];  //@ copied_struct:1
  s.row[t].tag = 3;
  s.row[t].value = 4;
  __syncthreads();
  const Tagged local = s.row[63 - t], other = *unnamed;
  out[t] = static_cast<float>(local.value + other.value);
}

template <bool Fixed>
__global__ void atomic_on_fresh(unsigned* fresh /*[64]*/) {
  const int t = threadIdx.x;
  if (Fixed) atomicExch(&fresh[t], 0u);
  atomicAdd(&fresh[t], 1u);  //@ atomic_on_fresh:1
}

template <bool Fixed>
__global__ void memset_past_end(const float* in, float* out, int n) {
  if (threadIdx.x == 0) memset(out, 0, (Fixed ? n : n + 1) * sizeof(float));  //@ memset_past_end:1
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < n) out[threadIdx.x] = out[threadIdx.x] + in[threadIdx.x];
}

// The host frees `old` before `in` is allocated, and passes the one (bug) or the other (twin).
template <bool Fixed>
__global__ void freed_and_reused(const float* in, float* out, int) {
  out[threadIdx.x] = in[threadIdx.x];  //@ freed_and_reused:1
}

// ---- Data races in shared memory -------------------------------------------------------------------------------

template <bool Fixed>
__global__ void reduction_without_barrier(const float* in, float* out, int) {
  Row64& s = shared<Row64>();
  const int t = threadIdx.x;
  s.x[t] = in[t];
  __syncthreads();
  for (int stride = 32; stride > 0; stride /= 2) {
    if (t < stride) s.x[t] = s.x[t] + s.x[t + stride];  //@ reduction_without_barrier:1 reduction_without_barrier:2
    if (Fixed) __syncthreads();
  }
  if (t == 0) out[0] = s.x[0];
}

template <bool Fixed>
__global__ void loop_carried_war(const float* in, float* out, int n) {
  Row64& s = shared<Row64>();
  const int t = threadIdx.x;
  for (int round = 0; round < 2; ++round) {
    s.x[t] = in[t] * round;  //@ loop_carried_war:1
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += s.x[k];  //@ loop_carried_war:2
    out[t] = sum;
    if (Fixed) __syncthreads();  // all have read the buffer before anybody refills it
  }
}

struct Aliased {
  union {
    float scores[64];
    float values[64];
  };
};

template <bool Fixed>
__global__ void aliased_arrays(const float* in, float* out, int) {
  Aliased& s = shared<Aliased>();
  const int t = threadIdx.x;
  s.scores[t] = in[t];
  __syncthreads();
  const float score = s.scores[63 - t];  //@ aliased_arrays:2
  if (Fixed) __syncthreads();            // scores are dead before values are born
  s.values[t] = 2.0f * score;            //@ aliased_arrays:1
  __syncthreads();
  out[t] = s.values[63 - t];
}

template <bool Fixed>
__global__ void warp_synchronous(const float* in, float* out, int) {
  Row32& s = shared<Row32>();
  const int lane = threadIdx.x;  // 32 threads: one warp
  s.row[lane] = in[lane];
  __syncwarp();
  for (int stride = 16; stride > 0; stride /= 2) {
    if (lane < stride) s.row[lane] = s.row[lane] + s.row[lane + stride];  //@ warp_synchronous:1 warp_synchronous:2
    if (Fixed) __syncwarp();
  }
  if (lane == 0) out[0] = s.row[0];
}

template <bool Fixed>
__global__ void unrolled_last_warp(const float* in, float* out, int) {
  Row64& s = shared<Row64>();
  const int t = threadIdx.x;  // 32 threads: one warp
  volatile float* const x = s.x;
  x[t] = in[t];
  x[t + 32] = in[t + 32];
  __syncwarp();
  for (int stride = 32; stride > 0; stride /= 2) {
    const float other = x[t + stride];  //@ unrolled_last_warp:2
    if (Fixed) __syncwarp();
    x[t] = x[t] + other;  //@ unrolled_last_warp:1
    if (Fixed) __syncwarp();
  }
  if (t == 0) out[0] = x[0];
}

struct Flagged {
  unsigned flag;
  float x[2];
};

// Lanes 0 and 1 read x, then a thread of the other warp does; __syncwarp orders the two lanes, not the third reader.
template <bool Fixed>
__global__ void far_reader(const float* in, float* out, int) {
  Flagged& s = shared<Flagged>();
  const int t = threadIdx.x;
  if (t == 0) s.flag = 0, s.x[0] = s.x[1] = in[0];
  __syncthreads();
  if (t < 2 || t == 32) out[t] = s.x[0];  //@ far_reader:2
  if (t == 32) atomicExch(&s.flag, 1u);
  if (t == 31)
    while (atomicAdd(&s.flag, 0u) == 0u) {
    }
  __syncwarp();
  if (t == 0) s.x[Fixed ? 1 : 0] = 1.0f;  //@ far_reader:1
}

struct Word {
  float x;
};

// Three lanes read x; the writer has met the first two.
template <bool Fixed>
__global__ void third_reader(const float* in, float* out, int) {
  Word& s = shared<Word>();
  const int lane = threadIdx.x;
  if (lane == 0) s.x = in[0];
  if (lane < 4) __syncwarp(0xfu);
  if (lane < 3) out[lane] = s.x;  //@ third_reader:2
  if (lane < 4 && (Fixed || lane != 2)) __syncwarp(Fixed ? 0xfu : 0xbu);
  if (lane == 3) s.x = 1.0f;  //@ third_reader:1
}

struct Counter {
  unsigned value, seen;
};

template <bool Fixed>
__global__ void atomic_hides_reader(const float* in, float* out, int) {
  Counter& s = shared<Counter>();
  const int t = threadIdx.x;
  if (t == 0) s.value = 0;
  __syncthreads();
  if (t == 0) s.seen = s.value;  //@ atomic_hides_reader:2
  if (Fixed) __syncthreads();
  atomicAdd(&s.value, 1u);  //@ atomic_hides_reader:1
  out[t] = in[t];
}

template <bool Fixed>
__global__ void volatile_and_plain(const float*, float* out, int) {
  Counter& s = shared<Counter>();
  const int t = threadIdx.x;
  if (t == 0) s.value = 0;
  __syncthreads();
  if (t == 0) out[0] = static_cast<float>(*const_cast<volatile unsigned*>(&s.value));  //@ volatile_and_plain:2
  if (Fixed) __syncthreads();
  if (t == 32) s.value = 1;  //@ volatile_and_plain:1
}

// The last store races with both: __syncwarp would order it after the load only.
template <bool Fixed>
__global__ void near_and_far(const float* in, float* out, int) {
  Word& s = shared<Word>();
  const int t = threadIdx.x;
  if (t == 0) s.x = in[0];  //@ near_and_far:2
  if (Fixed) __syncthreads();
  if (t == 32) out[0] = s.x;  //@ near_and_far:1
  if (Fixed) __syncthreads();
  if (t == 33) s.x = in[1];  //@ near_and_far:3
}

template <bool Fixed>
__global__ void memcpy_unordered(const float* in, float* out, int) {
  Row64& s = shared<Row64>();
  const int t = threadIdx.x;
  if (t == 0) memcpy(s.x, in, sizeof s.x);  //@ memcpy_unordered:2
  if (Fixed) __syncthreads();
  out[t] = s.x[t];  //@ memcpy_unordered:1
}

// ---- Data races in global memory -------------------------------------------------------------------------------

template <bool Fixed>
__global__ void init_accumulate(const float* in, float* out, int) {
  const int t = threadIdx.x;
  out[t] = 0.0f;  //@ init_accumulate:2
  if (Fixed) __syncthreads();
  out[63 - t] = out[63 - t] + in[t];  //@ init_accumulate:1
}

// ---- Sums whose bits nothing fixes (MachineOptions::deterministic) -----------------------------------------------

// Split-K: each block adds its part. Two parts give the same sum in either order, three do not.
template <bool Fixed>
__global__ void add_blocks(const float* in, float* sums /*[64], 0*/, unsigned*) {
  const int t = threadIdx.x;
  if (Fixed && blockIdx.x == 2) return;
  atomicAdd(&sums[t], in[t]);  //@ add_blocks:1
}

// Onto what is there already two parts are one too many.
template <bool Fixed>
__global__ void add_to_value(const float* in, float* sums /*[128], 0, then 0.5*/, unsigned*) {
  const int t = threadIdx.x;
  atomicAdd(&sums[Fixed ? t : t + 64], in[t]);  //@ add_to_value:1
}

// A histogram of one bin: whole numbers have no order.
template <bool Fixed>
__global__ void add_counts(const float* in, float* sums, unsigned* counts) {
  const int t = threadIdx.x;
  if (Fixed)
    atomicAdd(counts, in[t] >= 0 ? 1u : 0u);
  else
    atomicAdd(sums, in[t] >= 0 ? 1.0f : 0.0f);  //@ add_counts:1
}

// Warps take turns at a semaphore, as blocks do at a tile of dQ.
template <bool Fixed>
__global__ void add_in_turns(const float* in, float* sums, unsigned* turn) {
  const unsigned t = threadIdx.x, warp = t / 32;  // 96 threads
  while (atomicAdd(turn, 0u) < 32 * warp) {
  }
  if (Fixed) __threadfence();
  atomicAdd(&sums[t % 32], in[t]);  //@ add_in_turns:1
  if (Fixed) __threadfence();
  atomicAdd(turn, 1u);
}

// The lanes of a warp, at one element of shared memory.
template <bool Fixed>
__global__ void add_lanes(const float* in, float* sums, unsigned*) {
  __shared__ float sum;
  const int lane = threadIdx.x;  // 32 threads
  float part = in[lane];
  if (lane == 0) sum = 0;
  __syncwarp();
  if (Fixed)
    for (int apart = 16; apart > 0; apart /= 2) part += __shfl_xor_sync(all_lanes, part, apart);
  if (!Fixed || lane == 0) atomicAdd(&sum, part);  //@ add_lanes:1
  __syncwarp();
  if (lane == 0) sums[0] = sum;
}

// A bin for two warps, which is emptied for the next turn: each turn has two additions to 0.
template <bool Fixed>
__global__ void add_again(const float* in, float* sums, unsigned*) {
  __shared__ float bins[32];
  const int t = threadIdx.x;  // 64 threads
  float sum = 0;
  for (int turn = 0; turn < 3; ++turn) {
    if (Fixed || turn == 0)
      if (t < 32) bins[t] = 0;
    __syncthreads();
    atomicAdd(&bins[t % 32], in[t]);  //@ add_again:1
    __syncthreads();
    sum += bins[t % 32];
    __syncthreads();
  }
  sums[t] = sum;
}

template <bool Fixed>
__global__ void atomic_and_plain(const float* in, float* out, int) {
  const int t = threadIdx.x;
  if (t == 0) out[0] = 0.0f;  //@ atomic_and_plain:2
  if (Fixed) __syncthreads();
  atomicAdd(&out[0], in[t]);  //@ atomic_and_plain:1
}

template <bool Fixed>
__global__ void blocks_write_same(const float* in, float* out, int) {
  const int block = blockIdx.x, t = threadIdx.x;                        // 2 blocks of 32 threads
  out[Fixed ? block * 32 + t : t] = in[t] + static_cast<float>(block);  //@ blocks_write_same:1
}

template <bool Fixed>
__global__ void blocks_read_halo(float* x, float* out, int n) {
  const int i = blockIdx.x * 32 + threadIdx.x;      // 2 blocks of 32 threads
  const float right = i + 1 < n ? x[i + 1] : 0.0f;  //@ blocks_read_halo:1
  __syncthreads();                                  // enough inside a block, nothing between blocks
  float* const y = Fixed ? out : x;
  y[i] = right;  //@ blocks_read_halo:2
}

template <bool Fixed>
__global__ void last_block_without_fence(const float* in, float* partial /*[gridDim.x]*/, unsigned* ticket,
                                         float* out) {
  partial[blockIdx.x] = in[blockIdx.x];  //@ last_block_without_fence:2     (one thread per block)
  if (Fixed) __threadfence();
  if (atomicAdd(ticket, 1u) == gridDim.x - 1) {
    if (Fixed) __threadfence();
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];  //@ last_block_without_fence:1
    out[0] = sum;
  }
}

// CUDA's threadFenceReduction sample: the last block sets the ticket back with a plain store. The thread whose atomic
// read the others' comes after them; the shuffle tells lane 1 who was last, but orders no memory.
template <bool Fixed>
__global__ void last_block_resets(const float* in, float* partial /*[gridDim.x]*/, unsigned* ticket, float* out) {
  const unsigned lane = threadIdx.x;  // 32 threads
  unsigned last = 0;
  if (lane == 0) {
    partial[blockIdx.x] = in[blockIdx.x];
    __threadfence();
    last = atomicInc(ticket, gridDim.x) == gridDim.x - 1;  //@ last_block_resets:2
    __threadfence();
  }
  last = __shfl_sync(all_lanes, last, 0);
  if (last == 0) return;
  if (lane == (Fixed ? 0 : 1)) *ticket = 0;  //@ last_block_resets:1
  float sum = 0;
  if (lane == 0)
    for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];
  if (lane == 0) out[0] = sum;
}

template <bool Fixed>
__global__ void fence_of_the_block(const float* in, float* partial /*[gridDim.x]*/, unsigned* ticket, float* out) {
  partial[blockIdx.x] = in[blockIdx.x];  //@ fence_of_the_block:2
  if (Fixed)
    __threadfence();
  else
    __threadfence_block();
  if (atomicAdd(ticket, 1u) == gridDim.x - 1) {
    __threadfence();
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];  //@ fence_of_the_block:1
    out[0] = sum;
  }
}

template <bool Fixed>
__global__ void half_overlap(const float* in, __half* out) {
  const int t = threadIdx.x;
  out[Fixed ? t : t / 2] = __float2half_rn(in[t]);  //@ half_overlap:1
}

template <bool Fixed>
__global__ void byte_overlap(const float* in, unsigned char* out) {
  const int t = threadIdx.x;
  out[Fixed ? t : t / 2] = static_cast<unsigned char>(in[t]);  //@ byte_overlap:1
}

template <bool Fixed>
__global__ void flag_by_all(const float* in, float* out, int) {
  const int t = threadIdx.x;
  if (in[t] >= 0.0f && (!Fixed || t == 0)) out[0] = 1.0f;  //@ flag_by_all:1
}

template <bool Fixed>
__global__ void volatile_flag(const float* in, float* data, float* out, volatile int* flag) {
  if (threadIdx.x == 32) {
    *data = in[0];  //@ volatile_flag:2
    if (Fixed) __threadfence();
    *flag = 1;
  }
  if (threadIdx.x == 0) {
    while (*flag == 0) {
    }
    if (Fixed) __threadfence();
    out[0] = *data;  //@ volatile_flag:1
  }
}

// ---- Barriers --------------------------------------------------------------------------------------------------

template <bool Fixed>
__global__ void barrier_in_branch(const float* in, float* out, int) {
  Row64& s = shared<Row64>();
  const int t = threadIdx.x;
  if (Fixed && t >= 16) return;  // who has exited need not come
  if (t < 16) {
    s.x[t] = in[t];
    __syncthreads();  //@ barrier_in_branch:1
  }
  out[t] = t < 16 ? s.x[15 - t] : 0.0f;  //@ barrier_in_branch:2
}

template <bool Fixed>
__global__ void barrier_two_sites(const float* in, float* out, int) {
  const int t = threadIdx.x;
  float v = in[t];
  if (Fixed) {
    __syncthreads();
    v += 1.0f;
  } else if (t < 32) {
    __syncthreads();  //@ barrier_two_sites:1
    v += 1.0f;
  } else {
    __syncthreads();  //@ barrier_two_sites:2
    v += 2.0f;
  }
  out[t] = v;
}

template <bool Fixed>
__global__ void barrier_one_line(const float* in, float* out, int) {
  const int t = threadIdx.x;
  if (Fixed) __syncthreads();
  // Not t < 32 ? a : b: nvcc 13 makes a void value of that, which its own next step refuses.
  if (!Fixed) (void)((t < 32 && (__syncthreads(), true)) || (__syncthreads(), true));  //@ barrier_one_line:1
  out[t] = in[t];
}

template <bool Fixed>
__global__ void barrier_trip_count(const float* in, float* out, int) {
  const int t = threadIdx.x;
  const int rounds = Fixed ? 2 : 1 + t / 32;
  for (int i = 0; i < rounds; ++i) __syncthreads();  //@ barrier_trip_count:1
  out[t] = in[t];                                    //@ barrier_trip_count:2
}

__device__ __attribute__((noinline)) void wait_for_all() {
  __syncthreads();
}

template <bool Fixed>
__global__ void barrier_two_calls(const float* in, float* out, int) {
  const int t = threadIdx.x;
  float v = in[t];
  if (Fixed) {
    wait_for_all();
    v += 1.0f;
  } else if (t < 32) {
    wait_for_all();  //@ barrier_two_calls:1
    v += 1.0f;
  } else {
    wait_for_all();  //@ barrier_two_calls:2
    v += 2.0f;
  }
  out[t] = v;
}

template <bool Fixed>
__global__ void crossed_waits(const float* in, float* out, int) {
  const int lane = threadIdx.x;  // 32 threads
  if (Fixed || lane < 16) {
    __syncthreads();  //@ crossed_waits:2
    __syncwarp();
  } else {
    __syncwarp();  //@ crossed_waits:1
    __syncthreads();
  }
  out[lane] = in[lane];
}

template <bool Fixed>
__global__ void spin_forever(const float* in, float* out, unsigned* flag) {
  const int t = threadIdx.x;  // 64 threads
  if (Fixed && t == 0) atomicExch(flag, 1u);
  if (t > 0)
    while (atomicAdd(flag, 0u) == 0u) {  //@ spin_forever:1
    }
  out[t] = in[t];
}

// ---- Warp operations -------------------------------------------------------------------------------------------

template <bool Fixed>
__global__ void shuffle_outside_mask(const float* in, float* out, int) {
  const int lane = threadIdx.x;
  out[lane] = __shfl_sync(Fixed ? all_lanes : 0x0000ffffu, in[lane], 0);  //@ shuffle_outside_mask:1
}

template <bool Fixed>
__global__ void shuffle_inactive_source(const float* in, float* out, int) {
  const int lane = threadIdx.x;
  if (lane < 16) out[lane] = __shfl_sync(0x0000ffffu, in[lane], Fixed ? 3 : 20);  //@ shuffle_inactive_source:1
}

template <bool Fixed>
__global__ void shuffle_after_return(const float* in, float* out, int n) {
  const int lane = threadIdx.x;  // 32 threads, n = 24
  if (lane >= n) return;
  out[lane] = __shfl_sync(Fixed ? 0x00ffffffu : all_lanes, in[lane], 0);  //@ shuffle_after_return:1
}

template <bool Fixed>
__global__ void shuffle_two_sites(const float* in, float* out, int) {
  const int lane = threadIdx.x;
  float v = in[lane];
  if (Fixed) {
    v = __shfl_xor_sync(all_lanes, v, 1);
  } else if (lane % 2 == 0) {
    v = 2.0f * __shfl_xor_sync(all_lanes, v, 1);  //@ shuffle_two_sites:1
  } else {
    v = 3.0f * __shfl_xor_sync(all_lanes, v, 1);  //@ shuffle_two_sites:2
  }
  out[lane] = v;
}

template <bool Fixed>
__global__ void syncwarp_in_branches(const float* in, float* out, int) {
  Row32& s = shared<Row32>();
  const int lane = threadIdx.x;
  if (lane < 16) {
    s.row[lane] = in[lane];
    __syncwarp();  //@ syncwarp_in_branches:1
  } else {
    s.row[lane] = 2.0f * in[lane];
    __syncwarp(Fixed ? all_lanes : 0xffff0000u);
  }
  out[lane] = s.row[Fixed ? 31 - lane : lane];
}

template <bool Fixed>
__global__ void shuffle_width(const float* in, float* out, int) {
  const int lane = threadIdx.x;
  out[lane] = __shfl_xor_sync(all_lanes, in[lane], 1, Fixed ? 16 : 12);  //@ shuffle_width:1
}

template <bool Fixed>
__global__ void shuffle_beyond_block(const float* in, float* out, int) {
  const int t = threadIdx.x;                                   // 48 threads: the second warp has 16 lanes
  out[t] = __shfl_xor_sync(all_lanes, in[t], Fixed ? 8 : 16);  //@ shuffle_beyond_block:1
}

// ---- Bugs that stay invisible: every address is legal, ordered and written ------------------------------------

struct TwoRows {
  float a[32], b[32];
};

template <bool Fixed>
__global__ void blind_member_overrun(const float* in, float* out, int) {
  TwoRows& s = shared<TwoRows>();
  const int lane = threadIdx.x;
  s.a[lane] = in[lane];
  s.b[lane] = 0.0f;
  __syncthreads();
  const float* a = s.a;
  out[lane] = a[Fixed ? lane : lane + 1];
}

template <bool Fixed>
__global__ void blind_row_overrun(const float* in /*[2, 32]*/, float* out, int) {
  const int lane = threadIdx.x;
  out[lane] = in[Fixed ? lane : lane + 1];
}

// ---- Host side -------------------------------------------------------------------------------------------------

// Runs kernel(in [64], out [n], n) with `threads` threads in each of `blocks` blocks.
template <class... Shared>
void show(Machine& m, Kernel kernel, int n = 64, int threads = 64, int blocks = 1) {
  float host[64];
  for (int i = 0; i < 64; ++i) host[i] = static_cast<float>(i);
  const Array<float> in = m.upload("in", host, 64);
  const Array<float> out = m.upload("out", host, static_cast<size_t>(n));  // written: only the planted bug may show
  launch<Shared...>(m, kernel, dim3(blocks), dim3(threads), in.data(), out.data(), n);
}

template <bool Fixed>
void show_read_unwritten(Machine& m) {
  const float host[64] = {};
  const Array<float> in = m.alloc<float>("in", 64);
  const Array<float> out = m.upload("out", host, 64);
  launch(m, fill, dim3(1), dim3(64), in.data(), Fixed ? 64 : 63);
  launch(m, read_unwritten<Fixed>, dim3(1), dim3(64), in.data(), out.data(), 64);
}

template <bool Fixed>
void show_blocks_read_halo(Machine& m) {
  const float host[64] = {};
  const Array<float> x = m.upload("x", host, 64);
  const Array<float> out = m.alloc<float>("out", 64);
  launch(m, blocks_read_halo<Fixed>, dim3(2), dim3(32), x.data(), out.data(), 64);
}

void show_last_block(Machine& m, void (*kernel)(const float*, float*, unsigned*, float*), int threads = 1) {
  const float host[4] = {1, 2, 3, 4};
  const unsigned zero = 0;
  const Array<float> in = m.upload("in", host, 4);
  const Array<float> partial = m.alloc<float>("partial", 4);
  const Array<unsigned> ticket = m.upload("ticket", &zero, 1);
  const Array<float> out = m.alloc<float>("out", 1);
  launch(m, kernel, dim3(4), dim3(threads), in.data(), partial.data(), ticket.data(), out.data());
}

template <bool Fixed>
void show_spin_forever(Machine& m) {
  const float host[64] = {};
  const unsigned zero = 0;
  const Array<float> in = m.upload("in", host, 64);
  const Array<float> out = m.upload("out", host, 64);
  const Array<unsigned> flag = m.upload("flag", &zero, 1);
  launch(m, spin_forever<Fixed>, dim3(1), dim3(64), in.data(), out.data(), flag.data());
}

template <bool Fixed>
void show_half_overlap(Machine& m) {
  float host[64];
  for (int i = 0; i < 64; ++i) host[i] = static_cast<float>(i);
  const Array<float> in = m.upload("in", host, 64);
  const Array<__half> out = m.alloc<__half>("out", 64);
  launch(m, half_overlap<Fixed>, dim3(1), dim3(64), in.data(), out.data());
}

template <bool Fixed>
void show_half_written_word(Machine& m) {
  const float host[64] = {};
  const Array<float> in = m.upload("in", host, 64);
  const Array<float> out = m.alloc<float>("out", 64);
  launch(m, half_written_word<Fixed>, dim3(1), dim3(64), in.data(), out.data(), 64);
}

template <bool Fixed>
void show_copied_struct(Machine& m) {
  const float host[64] = {};
  const Array<Tagged> items = m.alloc<Tagged>("items", 64), copies = m.alloc<Tagged>("copies", 64);
  const Array<unsigned char> raw = m.alloc<unsigned char>("raw", 64 * sizeof(Tagged));
  const Array<float> out = m.upload("out", host, 64);
  launch<TaggedRow>(m, copied_struct<Fixed>, dim3(1), dim3(64), items.data(), copies.data(), raw.data(), out.data());
}

template <bool Fixed>
void show_atomic_on_fresh(Machine& m) {
  const Array<unsigned> fresh = m.alloc<unsigned>("fresh", 64);
  launch(m, atomic_on_fresh<Fixed>, dim3(1), dim3(64), fresh.data());
}

template <bool Fixed>
void show_freed_and_reused(Machine& m) {
  const float host[64] = {};
  const float* stale = m.upload("old", host, 64).data();
  const Array<float> in = m.upload("in", host, 64), out = m.upload("out", host, 64);
  launch(m, freed_and_reused<Fixed>, dim3(1), dim3(64), Fixed ? in.data() : stale, out.data(), 64);
}

template <bool Fixed>
void show_byte_overlap(Machine& m) {
  float host[64];
  for (int i = 0; i < 64; ++i) host[i] = static_cast<float>(i);
  const Array<float> in = m.upload("in", host, 64);
  const Array<unsigned char> out = m.alloc<unsigned char>("out", 64);
  launch(m, byte_overlap<Fixed>, dim3(1), dim3(64), in.data(), out.data());
}

template <bool Fixed>
void show_volatile_flag(Machine& m) {
  const float host[64] = {};
  const int zero = 0;
  const Array<float> in = m.upload("in", host, 64), data = m.upload("data", host, 1), out = m.upload("out", host, 1);
  const Array<int> flag = m.upload("flag", &zero, 1);
  launch(m, volatile_flag<Fixed>, dim3(1), dim3(64), in.data(), data.data(), out.data(), flag.data());
}

void show_additions(Machine& m, void (*kernel)(const float*, float*, unsigned*), int threads = 64, int blocks = 1) {
  float host[128];
  const unsigned zero = 0;
  const Array<unsigned> counts = m.upload("counts", &zero, 1);
  for (int i = 0; i < 128; ++i) host[i] = i < 64 ? 0.0f : 0.5f;
  const Array<float> sums = m.upload("sums", host, 128);
  for (int i = 0; i < 128; ++i) host[i] = 1.0f / static_cast<float>(i + 1);
  const Array<float> in = m.upload("in", host, 128);
  launch(m, kernel, dim3(blocks), dim3(threads), in.data(), sums.data(), counts.data());
}

template <bool Fixed>
void run_variant(Machine& m, const std::string& name) {
  if (name == "write_past_end") return show(m, write_past_end<Fixed>, 40);
  if (name == "read_far") return show(m, read_far<Fixed>);
  if (name == "read_before_start") return show(m, read_before_start<Fixed>);
  if (name == "shared_past_end") return show<Row32>(m, shared_past_end<Fixed>, 64, 32);
  if (name == "misaligned_float4") return show(m, misaligned_float4<Fixed>, 64, 8);
  if (name == "misaligned_by_half") return show(m, misaligned_by_half<Fixed>, 64, 8);
  if (name == "misaligned_member") return show(m, misaligned_member<Fixed>, 64, 8);
  if (name == "kernel_heap") return show(m, kernel_heap<Fixed>, 64, 8);
  if (name == "freed_twice") return show(m, freed_twice<Fixed>, 64, 8);
  if (name == "straddles_end") return show(m, straddles_end<Fixed>, 41, 32);
  if (name == "misaligned_shared") return show<Row32>(m, misaligned_shared<Fixed>, 64, 32);
  if (name == "barrier_one_line") return show(m, barrier_one_line<Fixed>);
  if (name == "read_unwritten") return show_read_unwritten<Fixed>(m);
  if (name == "ragged_tile") return show<Row64>(m, ragged_tile<Fixed>, 40);
  if (name == "half_written_word") return show_half_written_word<Fixed>(m);
  if (name == "copied_struct") return show_copied_struct<Fixed>(m);
  if (name == "atomic_on_fresh") return show_atomic_on_fresh<Fixed>(m);
  if (name == "memset_past_end") return show(m, memset_past_end<Fixed>, 40);
  if (name == "freed_and_reused") return show_freed_and_reused<Fixed>(m);
  if (name == "unrolled_last_warp") return show<Row64>(m, unrolled_last_warp<Fixed>, 64, 32);
  if (name == "far_reader") return show<Flagged>(m, far_reader<Fixed>);
  if (name == "third_reader") return show<Word>(m, third_reader<Fixed>, 64, 32);
  if (name == "atomic_hides_reader") return show<Counter>(m, atomic_hides_reader<Fixed>);
  if (name == "volatile_and_plain") return show<Counter>(m, volatile_and_plain<Fixed>);
  if (name == "near_and_far") return show<Word>(m, near_and_far<Fixed>);
  if (name == "memcpy_unordered") return show<Row64>(m, memcpy_unordered<Fixed>);
  if (name == "byte_overlap") return show_byte_overlap<Fixed>(m);
  if (name == "flag_by_all") return show(m, flag_by_all<Fixed>);
  if (name == "volatile_flag") return show_volatile_flag<Fixed>(m);
  if (name == "reduction_without_barrier") return show<Row64>(m, reduction_without_barrier<Fixed>);
  if (name == "loop_carried_war") return show<Row64>(m, loop_carried_war<Fixed>);
  if (name == "aliased_arrays") return show<Aliased>(m, aliased_arrays<Fixed>);
  if (name == "warp_synchronous") return show<Row32>(m, warp_synchronous<Fixed>, 64, 32);
  if (name == "init_accumulate") return show(m, init_accumulate<Fixed>);
  if (name == "atomic_and_plain") return show(m, atomic_and_plain<Fixed>);
  if (name == "add_blocks") return show_additions(m, add_blocks<Fixed>, 64, 3);
  if (name == "add_to_value") return show_additions(m, add_to_value<Fixed>, 64, 2);
  if (name == "add_counts") return show_additions(m, add_counts<Fixed>);
  if (name == "add_in_turns") return show_additions(m, add_in_turns<Fixed>, 96);
  if (name == "add_lanes") return show_additions(m, add_lanes<Fixed>, 32);
  if (name == "add_again") return show_additions(m, add_again<Fixed>);
  if (name == "blocks_write_same") return show(m, blocks_write_same<Fixed>, 64, 32, 2);
  if (name == "blocks_read_halo") return show_blocks_read_halo<Fixed>(m);
  if (name == "last_block_without_fence") return show_last_block(m, last_block_without_fence<Fixed>);
  if (name == "last_block_resets") return show_last_block(m, last_block_resets<Fixed>, 32);
  if (name == "fence_of_the_block") return show_last_block(m, fence_of_the_block<Fixed>);
  if (name == "half_overlap") return show_half_overlap<Fixed>(m);
  if (name == "barrier_in_branch") return show<Row64>(m, barrier_in_branch<Fixed>);
  if (name == "barrier_two_sites") return show(m, barrier_two_sites<Fixed>);
  if (name == "barrier_trip_count") return show(m, barrier_trip_count<Fixed>);
  if (name == "barrier_two_calls") return show(m, barrier_two_calls<Fixed>);
  if (name == "crossed_waits") return show(m, crossed_waits<Fixed>, 64, 32);
  if (name == "spin_forever") return show_spin_forever<Fixed>(m);
  if (name == "shuffle_outside_mask") return show(m, shuffle_outside_mask<Fixed>, 64, 32);
  if (name == "shuffle_inactive_source") return show(m, shuffle_inactive_source<Fixed>, 64, 32);
  if (name == "shuffle_after_return") return show(m, shuffle_after_return<Fixed>, 24, 32);
  if (name == "shuffle_two_sites") return show(m, shuffle_two_sites<Fixed>, 64, 32);
  if (name == "syncwarp_in_branches") return show<Row32>(m, syncwarp_in_branches<Fixed>, 64, 32);
  if (name == "shuffle_width") return show(m, shuffle_width<Fixed>, 64, 32);
  if (name == "shuffle_beyond_block") return show(m, shuffle_beyond_block<Fixed>, 64, 48);
  if (name == "blind_member_overrun") return show<TwoRows>(m, blind_member_overrun<Fixed>, 64, 32);
  if (name == "blind_row_overrun") return show(m, blind_row_overrun<Fixed>, 64, 32);
  refuse("exhibit", name, "a name from museum.hpp", "list them with museum --list");
}

std::vector<Finding> run_exhibit(const std::string& name, Variant variant, const MachineOptions& options) {
  MachineOptions all = options;
  all.deterministic = is_of_additions(name);
  if (is_of_ptx(name)) return run_ptx_exhibit(name, variant, all).findings;
  Machine m(all);
  if (variant == Variant::bug)
    run_variant<false>(m, name);
  else
    run_variant<true>(m, name);
  return m.findings();
}

}  // namespace flash::inline FLASH_MACHINE
