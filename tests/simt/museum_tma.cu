// museum_tma.cu: the museum's exhibits of mbarriers and TMA (gpu/hopper.cuh), which need compute capability 9.0. Each
// has the switch `Fixed` and the marks of museum.cu; its name begins with tma_ or mbarrier_.
// Run: as museum_ptx.cu, whose run_ptx_exhibit comes here.
#include "gpu/hopper.cuh"
#include "sim/error.hpp"
#include "tests/simt/museum.hpp"

namespace flash::inline FLASH_MACHINE {

// Tensors of 64 rows of 64 elements; a box has 8 rows. Its first row of 64 elements is not swizzled.
constexpr int kBoxRows = 8;
constexpr unsigned kBoxBytes = kBoxRows * 64 * 2;
struct Box {
  alignas(1024) unsigned short tile[kBoxRows][64];
  alignas(8) std::uint64_t full, empty;
};

__device__ inline void make(std::uint64_t* barrier, unsigned arrivals) {
  mbarrier_init(barrier, arrivals);  //@ mbarrier_made_twice:2 mbarrier_of_none:1
  fence_mbarrier_init();
}
__device__ inline void make_for_all(std::uint64_t* barrier, unsigned arrivals) {
  if (threadIdx.x == 0) make(barrier, arrivals);
  __syncthreads();
}

// ---- loads -----------------------------------------------------------------------------------------------------

template <bool Fixed>
__global__ void tma_no_wait(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;  // 64 threads
  make_for_all(&s.full, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
    cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 0);  //@ tma_no_wait:2
  }
  if (Fixed) mbarrier_wait(&s.full, 0);
  __syncthreads();
  out[t] = s.tile[0][t];  //@ tma_no_wait:1
}

template <bool Fixed>
__global__ void tma_wrong_parity(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
    cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 0);  //@ tma_wrong_parity:2
  }
  mbarrier_wait(&s.full, Fixed ? 0 : 1);
  out[t] = s.tile[0][t];  //@ tma_wrong_parity:1
}

template <bool Fixed>
__global__ void tma_one_waits(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
    cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 0);  //@ tma_one_waits:2
  }
  __syncthreads();  // before the wait: it says nothing of the tile
  if (Fixed || t < 32) mbarrier_wait(&s.full, 0);
  out[t] = s.tile[0][t];  //@ tma_one_waits:1
}

template <bool Fixed>
__global__ void tma_expects_too_much(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap,
                                     float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, Fixed ? kBoxBytes : 2 * kBoxBytes);
    cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 0);
  }
  mbarrier_wait(&s.full, 0);  //@ tma_expects_too_much:1
  out[t] = s.tile[0][t];
}

// The box hangs over the tensor's end by half: its bytes count all the same. One lane waits for its warp.
template <bool Fixed>
__global__ void tma_counts_valid_rows(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap,
                                      float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, Fixed ? kBoxBytes : kBoxBytes / 2);
    cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 64 - kBoxRows / 2);
  }
  if (t % 32 == 0) mbarrier_wait(&s.full, 0);  //@ tma_counts_valid_rows:1
  __syncwarp();                                //@ tma_counts_valid_rows:2
  out[t] = s.tile[0][t];
}

struct TwoBoxes {
  alignas(1024) unsigned short tile[2][kBoxRows][64];
  alignas(8) std::uint64_t full[2];
};

template <bool Fixed>
__global__ void tma_expects_too_little(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap,
                                       float* out) {
  TwoBoxes& s = shared<TwoBoxes>();
  const int t = threadIdx.x;
  make_for_all(s.full, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(s.full, Fixed ? 2 * kBoxBytes : kBoxBytes);
    cp_async_bulk_tensor(s.tile[0], &in, s.full, 0, 0);
    cp_async_bulk_tensor(s.tile[1], &in, s.full, 0, kBoxRows);  //@ tma_expects_too_little:2
  }
  mbarrier_wait(s.full, 0);
  out[t] = s.tile[0][0][t] + s.tile[1][0][t];  //@ tma_expects_too_little:1
}

template <bool Fixed>
__global__ void tma_refilled_early(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap,
                                   float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  float sum = 0;
  for (int box = 0; box < 2; ++box) {
    if (t == 0) {
      mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
      cp_async_bulk_tensor(s.tile, &in, &s.full, 0, box * kBoxRows);  //@ tma_refilled_early:1
    }
    mbarrier_wait(&s.full, box);
    sum += s.tile[0][t];  //@ tma_refilled_early:2
    if (Fixed) __syncthreads();
  }
  out[t] = sum;
}

// One lane releases the tile for its warp. It knows that its own row is read, not that the others' are.
template <bool Fixed>
__global__ void tma_q_released_early(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap,
                                     float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x, lane = t % 32;  // the first warp takes what the second one loads
  if (t == 0) make(&s.full, 1), make(&s.empty, 1);
  __syncthreads();
  float sum = 0;
  for (int box = 0; box < 8; ++box) {
    if (t == 32) {
      mbarrier_wait(&s.empty, (box & 1) ^ 1);
      mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
      cp_async_bulk_tensor(s.tile, &in, &s.full, 0, box * kBoxRows);  //@ tma_q_released_early:1
    }
    if (t < 32) {
      mbarrier_wait(&s.full, box & 1);
      unsigned registers[4];
      ldmatrix_x4(registers, &s.tile[lane % 8][lane / 8 * 8]);  //@ tma_q_released_early:2
      if (Fixed) __syncwarp();
      if (lane == 0) mbarrier_arrive(&s.empty);
      sum += (registers[0] & 0xffffu) + (registers[1] & 0xffffu) + (registers[2] & 0xffffu) + (registers[3] & 0xffffu);
    }
  }
  out[t] = sum;
}

template <bool Fixed>
__global__ void tma_over_stores(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  if (t == 0) make(&s.full, 1);
  s.tile[0][t] = 0;  //@ tma_over_stores:2
  if (Fixed) fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
    cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 0);  //@ tma_over_stores:1
  }
  mbarrier_wait(&s.full, 0);
  out[t] = s.tile[0][t];
}

template <bool Fixed>
__global__ void tma_misaligned(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap, float* out) {
  TwoBoxes& s = shared<TwoBoxes>();
  const int t = threadIdx.x;
  make_for_all(s.full, 1);
  unsigned short* const tile = s.tile[0][0] + (Fixed ? 64 : 8);
  if (t == 0) {
    mbarrier_arrive_expect_tx(s.full, kBoxBytes);
    cp_async_bulk_tensor(tile, &in, s.full, 0, 0);  //@ tma_misaligned:1
  }
  mbarrier_wait(s.full, 0);
  out[t] = tile[8 * (t / 8)];
}

template <bool Fixed>
__global__ void tma_past_end(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap, float* out) {
  TwoBoxes& s = shared<TwoBoxes>();
  const int t = threadIdx.x;
  make_for_all(s.full, 1);
  auto* const tile = &s.tile[0][0][0] + (Fixed ? 0 : 3 * kBoxRows * 64);
  if (t == 0) {
    mbarrier_arrive_expect_tx(s.full, kBoxBytes);
    cp_async_bulk_tensor(tile, &in, s.full, 0, 0);  //@ tma_past_end:1
  }
  mbarrier_wait(s.full, 0);
  out[t] = tile[t];
}

template <bool Fixed>
__global__ void tma_rank(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
    if (Fixed)
      cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 0);
    else
      cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 0, 0);  //@ tma_rank:1
  }
  mbarrier_wait(&s.full, 0);
  out[t] = s.tile[0][t];
}

// The host's map says 65 rows of an array that has 64 (bug), or 64 (twin).
template <bool Fixed>
__global__ void tma_map_too_large(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
    cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 60);  //@ tma_map_too_large:1
  }
  mbarrier_wait(&s.full, 0);
  out[t] = s.tile[0][t];
}

// The host's map begins 8 rows before the array (bug), or with it (twin). The box ends 4 rows behind the array.
template <bool Fixed>
__global__ void tma_map_before(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
    cp_async_bulk_tensor(s.tile, &in, &s.full, 0, Fixed ? 60 : 68);  //@ tma_map_before:1
  }
  mbarrier_wait(&s.full, 0);
  out[t] = s.tile[0][t];
}

// The last turn loads a box ahead that nobody will use.
template <bool Fixed>
__global__ void tma_one_too_many(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap, float* out) {
  TwoBoxes& s = shared<TwoBoxes>();
  const int t = threadIdx.x;
  const auto load = [&](int box) {
    mbarrier_arrive_expect_tx(&s.full[box % 2], kBoxBytes);
    cp_async_bulk_tensor(s.tile[box % 2], &in, &s.full[box % 2], 0, box * kBoxRows);  //@ tma_one_too_many:1
  };
  if (t == 0) make(&s.full[0], 1), make(&s.full[1], 1);
  __syncthreads();
  if (t == 0) load(0);
  float sum = 0;
  for (int box = 0; box < 3; ++box) {
    if (t == 0 && (!Fixed || box < 2)) load(box + 1);
    mbarrier_wait(&s.full[box % 2], box / 2);
    sum += s.tile[box % 2][0][t];
    __syncthreads();
  }
  out[t] = sum;
}

// ---- stores ----------------------------------------------------------------------------------------------------

template <bool Fixed>
__global__ void tma_no_proxy_fence(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to,
                                   float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  for (int row = 0; row < kBoxRows; ++row) s.tile[row][t] = static_cast<unsigned short>(t);  //@ tma_no_proxy_fence:2
  if (Fixed) fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    cp_async_bulk_tensor_store(&to, s.tile, 0, 0);  //@ tma_no_proxy_fence:1
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
  out[t] = 0;
}

template <bool Fixed>
__global__ void tma_store_no_barrier(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to,
                                     float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  for (int row = 0; row < kBoxRows; ++row) s.tile[row][t] = static_cast<unsigned short>(t);  //@ tma_store_no_barrier:2
  fence_proxy_async();
  if (Fixed) __syncthreads();
  if (t == 63) {
    cp_async_bulk_tensor_store(&to, s.tile, 0, 0);  //@ tma_store_no_barrier:1
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
  out[t] = 0;
}

template <bool Fixed>
__global__ void tma_staging_reused(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to,
                                   float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  for (int box = 0; box < 2; ++box) {
    for (int row = 0; row < kBoxRows; ++row)
      s.tile[row][t] = static_cast<unsigned short>(box);  //@ tma_staging_reused:1
    fence_proxy_async();
    __syncthreads();
    if (t == 0) {
      cp_async_bulk_tensor_store(&to, s.tile, 0, box * kBoxRows);  //@ tma_staging_reused:2
      cp_async_bulk_commit();
      if (Fixed || box == 1) cp_async_bulk_wait_read<0>();
    }
    __syncthreads();
  }
  out[t] = 0;
}

template <bool Fixed>
__global__ void tma_left_early(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  for (int row = 0; row < kBoxRows; ++row) s.tile[row][t] = static_cast<unsigned short>(t);
  fence_proxy_async();
  __syncthreads();
  out[t] = 0;
  if (t == 0) {
    cp_async_bulk_tensor_store(&to, s.tile, 0, 0);  //@ tma_left_early:1
    cp_async_bulk_commit();
    if (Fixed) cp_async_bulk_wait_read<0>();
  }
}

template <bool Fixed>
__global__ void tma_no_commit(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  for (int row = 0; row < kBoxRows; ++row) s.tile[row][t] = static_cast<unsigned short>(t);
  fence_proxy_async();
  __syncthreads();
  out[t] = 0;
  if (t == 0) {
    cp_async_bulk_tensor_store(&to, s.tile, 0, 0);  //@ tma_no_commit:1
    if (Fixed) cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
}

template <bool Fixed>
__global__ void tma_odd_column(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
    cp_async_bulk_tensor(s.tile, &in, &s.full, Fixed ? 8 : 4, 0);  //@ tma_odd_column:1
  }
  mbarrier_wait(&s.full, 0);
  out[t] = s.tile[0][t];
}

template <bool Fixed>
__global__ void tma_store_before(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  for (int row = 0; row < kBoxRows; ++row) s.tile[row][t] = static_cast<unsigned short>(t);
  fence_proxy_async();
  __syncthreads();
  out[t] = 0;
  if (t == 0) {
    cp_async_bulk_tensor_store(&to, s.tile, 0, Fixed ? 60 : -4);  //@ tma_store_before:1
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
}

// The block reads back what it has stored. `result` is where the stored tensor lies: out is its memory.
template <bool Fixed>
__global__ void tma_read_is_not_written(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to,
                                        float* out, const unsigned short* result) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  for (int row = 0; row < kBoxRows; ++row) s.tile[row][t] = static_cast<unsigned short>(t / 8);
  fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    cp_async_bulk_tensor_store(&to, s.tile, 0, 0);  //@ tma_read_is_not_written:2
    cp_async_bulk_commit();
    if (Fixed)
      cp_async_bulk_wait<0>();
    else
      cp_async_bulk_wait_read<0>();
  }
  __syncthreads();
  out[t] = result[t];  //@ tma_read_is_not_written:1
}

// ---- atomics and volatile stores need the proxy fence, too ----------------------------------------------------------

// The box's 256 words, cleared for all threads and the async proxy.
__device__ inline unsigned* cleared_words(Box& s) {
  auto* const words = reinterpret_cast<unsigned*>(s.tile);
  for (int i = threadIdx.x; i < kBoxRows * 32; i += blockDim.x) words[i] = 0;
  fence_proxy_async();
  __syncthreads();
  return words;
}
// All threads have written the box. One stores it.
__device__ inline void store_box(Box& s, const TensorMap& to) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  cp_async_bulk_tensor_store(&to, s.tile, 0, 0);  //@ tma_after_atomics:1 tma_after_exchange:1 tma_after_volatile:1
  cp_async_bulk_commit();
  cp_async_bulk_wait_read<0>();
}

template <bool Fixed>
__global__ void tma_after_atomics(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  unsigned* const words = cleared_words(s);
  atomicAdd(&words[t / 2], 1u + static_cast<unsigned>(t));  //@ tma_after_atomics:2
  if (Fixed) fence_proxy_async();
  store_box(s, to);
  out[t] = 0;
}

template <bool Fixed>
__global__ void tma_after_exchange(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to,
                                   float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  unsigned* const words = cleared_words(s);
  atomicExch(&words[t], static_cast<unsigned>(t));  //@ tma_after_exchange:2
  if (Fixed) fence_proxy_async();
  store_box(s, to);
  out[t] = 0;
}

template <bool Fixed>
__global__ void tma_after_volatile(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to,
                                   float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  volatile unsigned* const words = cleared_words(s);
  words[t] = static_cast<unsigned>(t);  //@ tma_after_volatile:2
  if (Fixed) fence_proxy_async();
  store_box(s, to);
  out[t] = 0;
}

// All threads add to the same words. A fence of the thread that stores, before the barrier, is for its own addition.
template <bool Fixed>
__global__ void tma_one_fences(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  unsigned* const words = cleared_words(s);
  for (int i = 0; i < 4; ++i) atomicAdd(&words[i], static_cast<unsigned>(t));  //@ tma_one_fences:2
  if (Fixed || t < 32) fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    cp_async_bulk_tensor_store(&to, s.tile, 0, 0);  //@ tma_one_fences:1
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
  out[t] = 0;
}

template <bool Fixed>
__global__ void tma_over_atomics(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  unsigned* const words = cleared_words(s);
  atomicAdd(&words[t], 1u);  //@ tma_over_atomics:2
  const unsigned sum = words[t];
  if (Fixed) fence_proxy_async();
  make_for_all(&s.full, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
    cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 0);  //@ tma_over_atomics:1
  }
  mbarrier_wait(&s.full, 0);
  out[t] = static_cast<float>(s.tile[0][t] + sum);
}

// ---- a cache that is not full --------------------------------------------------------------------------------------

// It has room for 64 rows of 64 elements, of which the first ones are written.
__global__ void append(unsigned short* cache, int rows) {
  for (int i = threadIdx.x; i < rows * 64; i += blockDim.x) cache[i] = 0x3c00;  // 1, as a half
}
constexpr int kFirstRow = 36;  // of the box in which the last written rows lie

// Loads the box, for all threads.
__device__ inline void load_box(Box& s, const TensorMap& cache) {
  make_for_all(&s.full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
    cp_async_bulk_tensor(s.tile, &cache, &s.full, 0, kFirstRow);  //@ tma_unwritten_row:2 tma_nothing_written:1
  }
  mbarrier_wait(&s.full, 0);
}

template <bool Fixed>
__global__ void tma_unwritten_row(const __grid_constant__ TensorMap cache, const __grid_constant__ TensorMap,
                                  float* out, const unsigned short*, int rows) {
  Box& s = shared<Box>();
  load_box(s, cache);
  out[threadIdx.x] = s.tile[rows - kFirstRow - Fixed][threadIdx.x % 64];  //@ tma_unwritten_row:1
}

template <bool Fixed>
__global__ void tma_unwritten_stored(const __grid_constant__ TensorMap cache, const __grid_constant__ TensorMap to,
                                     float* out, const unsigned short* stored, int rows) {
  Box& s = shared<Box>();
  load_box(s, cache);
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(&to, s.tile, 0, 0);  //@ tma_unwritten_stored:2
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
  }
  __syncthreads();
  out[threadIdx.x] = stored[(rows - kFirstRow - Fixed) * 64 + threadIdx.x % 64];  //@ tma_unwritten_stored:1
}

// The tile has four rows of results; the box that is stored has eight.
template <bool Fixed>
__global__ void tma_half_filled(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to, float* out,
                                const unsigned short* stored, int) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;  // 128 threads
  for (int row = t / 64; row < 4; row += 2) s.tile[row][t % 64] = 1;
  fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    cp_async_bulk_tensor_store(&to, s.tile, 0, 0);  //@ tma_half_filled:2
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
  }
  __syncthreads();
  out[t] = stored[(Fixed ? 3 : 4) * 64 + t % 64];  //@ tma_half_filled:1
}

// Another box lies wholly outside the tensor: of its store nothing is left to copy.
template <bool Fixed>
__global__ void tma_unwritten_beside(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap to,
                                     float* out, const unsigned short* stored, int) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;  // 128 threads
  for (int i = t; i < kBoxRows * 64; i += 128) s.tile[i / 64][i % 64] = 1;
  fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    cp_async_bulk_tensor_store(&to, s.tile, 0, 0);
    cp_async_bulk_tensor_store(&to, s.tile, 0, 64);
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
  }
  __syncthreads();
  out[t] = stored[(Fixed ? 3 : 20) * 64 + t % 64];  //@ tma_unwritten_beside:1
}

// K and V are one cache here. Scores of rows that are not there are thrown away. Their weights are 0, and 0 times what
// lies there need not be 0. With 40 rows, one of the four steps of the sum has both kinds; with 48 none.
struct Attend {
  alignas(1024) unsigned short q[64 * 64], kv[64 * 64];
  alignas(8) std::uint64_t full;
};

template <bool Fixed>
__global__ void tma_unwritten_v(const __grid_constant__ TensorMap cache, const __grid_constant__ TensorMap, float* out,
                                const unsigned short*, int rows) {
  Attend& s = shared<Attend>();
  const int t = threadIdx.x, column = t % 4 * 2;  // 128 threads
  for (int i = t; i < 64 * 64; i += 128) s.q[i] = 0x3c00;
  fence_proxy_async();
  make_for_all(&s.full, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, sizeof s.kv);
    cp_async_bulk_tensor(s.kv, &cache, &s.full, 0, 0);  //@ tma_unwritten_v:2 tma_unwritten_step:2
  }
  mbarrier_wait(&s.full, 0);
  float scores[32], o[32];
  wgmma_fence();
  for (int step = 0; step < 4; ++step)
    wgmma_m64nNk16<__half>(scores, matrix_descriptor(s.q) + step * 32, matrix_descriptor(s.kv) + step * 32, step > 0);
  wgmma_commit();
  wgmma_wait<0>(scores);
  float score = 0;
  for (int i = 0; i < 32; ++i)
    if (column + i / 4 * 8 + i % 2 < rows) score += scores[i];
  unsigned p[4][4];
  for (int i = 0; i < 16; ++i) {
    const int k = i / 4 * 16 + column + i % 4 / 2 * 8;
    p[i / 4][i % 4] = k < rows ? 0x3c003c00u : 0;
  }
  if (Fixed) {
    __syncthreads();
    for (int i = rows * 64 + t; i < 64 * 64; i += 128) s.kv[i] = 0;
    fence_proxy_async();
    __syncthreads();
  }
  const MatrixDescriptor v = matrix_descriptor(s.kv);
  wgmma_fence();
  for (int step = 0; step < 4; ++step)
    wgmma_m64nNk16<__half, Major::MN>(o, p[step], v + step * 2048, step);  //@ tma_unwritten_v:1 tma_unwritten_step:1
  wgmma_commit();
  wgmma_wait<0>(o, p);
  out[t] = score + o[0];
}

// ---- mbarriers -------------------------------------------------------------------------------------------------

template <bool Fixed>
__global__ void mbarrier_not_published(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap,
                                       float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  if (t == 0) {
    mbarrier_init(&s.full, 1);  //@ mbarrier_not_published:2
    if (Fixed) fence_mbarrier_init();
  }
  __syncthreads();
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
    cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 0);  //@ mbarrier_not_published:1
  }
  mbarrier_wait(&s.full, 0);
  out[t] = s.tile[0][t];
}

template <bool Fixed>
__global__ void mbarrier_init_unordered(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap,
                                        float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  if (t == 0) {
    mbarrier_init(&s.full, 1);  //@ mbarrier_init_unordered:2
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
    cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 0);
  }
  if (Fixed) __syncthreads();
  mbarrier_wait(&s.full, 0);  //@ mbarrier_init_unordered:1
  out[t] = s.tile[0][t];
}

template <bool Fixed>
__global__ void mbarrier_arrivals_missing(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap,
                                          float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, Fixed ? 1 : 32);  // one lane arrives for its warp
  if (t < 32) s.tile[0][t] = static_cast<unsigned short>(t);
  __syncwarp();
  if (t == 0) mbarrier_arrive(&s.full);
  mbarrier_wait(&s.full, 0);  //@ mbarrier_arrivals_missing:1
  out[t] = s.tile[0][t % 32];
}

template <bool Fixed>
__global__ void mbarrier_too_many_arrivals(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap,
                                           float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  if (t == 0) mbarrier_arrive_expect_tx(&s.full, kBoxBytes);
  if (!Fixed && t == 0) mbarrier_arrive(&s.full);  //@ mbarrier_too_many_arrivals:1
  if (t == 0) cp_async_bulk_tensor(s.tile, &in, &s.full, 0, 0);
  mbarrier_wait(&s.full, 0);
  out[t] = s.tile[0][t];
}

template <bool Fixed>
__global__ void mbarrier_phase_skipped(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap,
                                       float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  for (int phase = 0; phase < 2; ++phase) {
    if (t == 0) mbarrier_arrive(&s.full);  //@ mbarrier_phase_skipped:1
    if (Fixed || phase == 1) mbarrier_wait(&s.full, phase);
    __syncthreads();
  }
  out[t] = 0;
}

// One thread goes on while others may still wait for the phase before the last.
template <bool Fixed>
__global__ void mbarrier_overtaken(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  for (int phase = 0; phase < 2; ++phase) {
    if (t == 0) mbarrier_arrive(&s.full);
    mbarrier_wait(&s.full, phase);  //@ mbarrier_overtaken:1
    if (Fixed) __syncthreads();
  }
  out[t] = 0;
}

template <bool Fixed>
__global__ void mbarrier_misaligned(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  auto* const barrier = reinterpret_cast<std::uint64_t*>(reinterpret_cast<char*>(&s.full) + (Fixed ? 0 : 4));
  if (t == 0) mbarrier_init(barrier, 1);  //@ mbarrier_misaligned:1
  __syncthreads();
  if (t == 0) mbarrier_arrive(barrier);
  mbarrier_wait(barrier, 0);
  out[t] = 0;
}

template <bool Fixed>
__global__ void mbarrier_made_twice(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  if (t == 0) make(&s.full, 1);
  __syncthreads();
  if (t == 0) mbarrier_arrive(&s.full);
  mbarrier_wait(&s.full, 0);
  __syncthreads();
  if (!Fixed && t == 0) mbarrier_init(&s.full, 1);  //@ mbarrier_made_twice:1
  __syncthreads();
  if (t == 0) mbarrier_arrive(&s.full);
  mbarrier_wait(&s.full, Fixed ? 1 : 0);
  out[t] = 0;
}

template <bool Fixed>
__global__ void mbarrier_not_made(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  if (Fixed) make_for_all(&s.empty, 1);
  if (t == 0) mbarrier_arrive(&s.full), mbarrier_arrive(&s.empty);  //@ mbarrier_not_made:1
  mbarrier_wait(&s.full, 0);
  mbarrier_wait(&s.empty, 0);
  out[t] = 0;
}

template <bool Fixed>
__global__ void mbarrier_overwritten(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, 1);
  unsigned short* const after = &s.tile[kBoxRows - 1][63] + 1;  // the mbarriers lie behind the tile
  if (t == 0) after[Fixed ? -1 : 0] = 0;                        //@ mbarrier_overwritten:1
  if (t == 0) mbarrier_arrive(&s.full);
  if (Fixed || t == 0) mbarrier_wait(&s.full, 0);
  out[t] = 0;
}

template <bool Fixed>
__global__ void mbarrier_of_none(const __grid_constant__ TensorMap, const __grid_constant__ TensorMap, float* out) {
  Box& s = shared<Box>();
  const int t = threadIdx.x;
  make_for_all(&s.full, Fixed ? 1 : 0);
  if (t == 0) mbarrier_arrive(&s.full);
  mbarrier_wait(&s.full, 0);
  out[t] = 0;
}

// ---- Host side -------------------------------------------------------------------------------------------------

constexpr std::size_t kElements = 64 * 64;

TensorMap map_of(const unsigned short* data, std::uint64_t rows) {
  return tensor_map<__half, 2>(reinterpret_cast<const __half*>(data), {64, rows}, {128}, {64, kBoxRows});
}

template <class Shared, class... More>
PtxExhibit show(Machine& m, void (*kernel)(TensorMap, TensorMap, float*, More...), std::uint64_t rows = 64,
                int before = 0) {
  PtxExhibit shown;
  shown.out.resize(64);
  std::vector<std::uint16_t> numbers(kElements);
  for (std::size_t i = 0; i < kElements; ++i) numbers[i] = static_cast<std::uint16_t>(i);
  const auto in = m.upload("in", numbers.data(), kElements);
  const auto to = m.upload("to", numbers.data(), kElements);
  const auto out = m.upload("out", shown.out.data(), 64);
  if constexpr (sizeof...(More) == 0)
    launch<Shared>(m, kernel, dim3(1), dim3(64), map_of(in.data() - before * 64, rows), map_of(to.data(), 64),
                   out.data());
  else
    launch<Shared>(m, kernel, dim3(1), dim3(64), map_of(in.data(), rows), map_of(to.data(), 64), out.data(), to.data());
  m.download(shown.out.data(), out);
  m.download(numbers.data(), to);
  for (const std::uint16_t number : numbers) shown.out.push_back(number);
  shown.findings = m.findings(), shown.ledger = m.reports().back().ledger;
  return shown;
}

// A cache with so many rows; boxes of `box` rows.
template <class Shared>
PtxExhibit show_cache(Machine& m, void (*kernel)(TensorMap, TensorMap, float*, const unsigned short*, int),
                      int rows = 40, int written = 40, std::uint32_t box = kBoxRows) {
  PtxExhibit shown;
  shown.out.resize(128);
  const auto cache = m.alloc<std::uint16_t>("cache", kElements), stored = m.alloc<std::uint16_t>("stored", kElements);
  const auto out = m.upload("out", shown.out.data(), 128);
  const auto map = [&](const unsigned short* data) {
    return tensor_map<__half, 2>(reinterpret_cast<const __half*>(data), {64, 64}, {128}, {64, box});
  };
  launch<char>(m, append, dim3(1), dim3(64), cache.data(), written);
  launch<Shared>(m, kernel, dim3(1), dim3(128), map(cache.data()), map(stored.data()), out.data(), stored.data(), rows);
  m.download(shown.out.data(), out);
  shown.findings = m.findings(), shown.ledger = m.reports().back().ledger;
  return shown;
}

template <bool Fixed>
PtxExhibit tma_variant(Machine& m, const std::string& name) {
  if (name == "tma_no_wait") return show<Box>(m, tma_no_wait<Fixed>);
  if (name == "tma_wrong_parity") return show<Box>(m, tma_wrong_parity<Fixed>);
  if (name == "tma_one_waits") return show<Box>(m, tma_one_waits<Fixed>);
  if (name == "tma_expects_too_much") return show<Box>(m, tma_expects_too_much<Fixed>);
  if (name == "tma_counts_valid_rows") return show<Box>(m, tma_counts_valid_rows<Fixed>);
  if (name == "tma_expects_too_little") return show<TwoBoxes>(m, tma_expects_too_little<Fixed>);
  if (name == "tma_refilled_early") return show<Box>(m, tma_refilled_early<Fixed>);
  if (name == "tma_q_released_early") return show<Box>(m, tma_q_released_early<Fixed>);
  if (name == "tma_over_stores") return show<Box>(m, tma_over_stores<Fixed>);
  if (name == "tma_misaligned") return show<TwoBoxes>(m, tma_misaligned<Fixed>);
  if (name == "tma_past_end") return show<TwoBoxes>(m, tma_past_end<Fixed>);
  if (name == "tma_rank") return show<Box>(m, tma_rank<Fixed>);
  if (name == "tma_map_too_large") return show<Box>(m, tma_map_too_large<Fixed>, Fixed ? 64 : 65);
  if (name == "tma_map_before") return show<Box>(m, tma_map_before<Fixed>, Fixed ? 64 : 72, Fixed ? 0 : 8);
  if (name == "tma_one_too_many") return show<TwoBoxes>(m, tma_one_too_many<Fixed>);
  if (name == "tma_no_proxy_fence") return show<Box>(m, tma_no_proxy_fence<Fixed>);
  if (name == "tma_store_no_barrier") return show<Box>(m, tma_store_no_barrier<Fixed>);
  if (name == "tma_staging_reused") return show<Box>(m, tma_staging_reused<Fixed>);
  if (name == "tma_left_early") return show<Box>(m, tma_left_early<Fixed>);
  if (name == "tma_no_commit") return show<Box>(m, tma_no_commit<Fixed>);
  if (name == "tma_odd_column") return show<Box>(m, tma_odd_column<Fixed>);
  if (name == "tma_store_before") return show<Box>(m, tma_store_before<Fixed>);
  if (name == "tma_read_is_not_written") return show<Box>(m, tma_read_is_not_written<Fixed>);
  if (name == "tma_after_atomics") return show<Box>(m, tma_after_atomics<Fixed>);
  if (name == "tma_after_exchange") return show<Box>(m, tma_after_exchange<Fixed>);
  if (name == "tma_after_volatile") return show<Box>(m, tma_after_volatile<Fixed>);
  if (name == "tma_one_fences") return show<Box>(m, tma_one_fences<Fixed>);
  if (name == "tma_over_atomics") return show<Box>(m, tma_over_atomics<Fixed>);
  if (name == "tma_unwritten_row") return show_cache<Box>(m, tma_unwritten_row<Fixed>);
  if (name == "tma_unwritten_stored") return show_cache<Box>(m, tma_unwritten_stored<Fixed>);
  if (name == "tma_half_filled") return show_cache<Box>(m, tma_half_filled<Fixed>);
  if (name == "tma_unwritten_beside") return show_cache<Box>(m, tma_unwritten_beside<Fixed>);
  if (name == "tma_nothing_written") return show_cache<Box>(m, tma_unwritten_row<true>, 40, Fixed ? 40 : 0);
  if (name == "tma_unwritten_v") return show_cache<Attend>(m, tma_unwritten_v<Fixed>, 40, 40, 64);
  if (name == "tma_unwritten_step") return show_cache<Attend>(m, tma_unwritten_v<Fixed>, 48, 48, 64);
  if (name == "mbarrier_not_published") return show<Box>(m, mbarrier_not_published<Fixed>);
  if (name == "mbarrier_init_unordered") return show<Box>(m, mbarrier_init_unordered<Fixed>);
  if (name == "mbarrier_arrivals_missing") return show<Box>(m, mbarrier_arrivals_missing<Fixed>);
  if (name == "mbarrier_too_many_arrivals") return show<Box>(m, mbarrier_too_many_arrivals<Fixed>);
  if (name == "mbarrier_phase_skipped") return show<Box>(m, mbarrier_phase_skipped<Fixed>);
  if (name == "mbarrier_overtaken") return show<Box>(m, mbarrier_overtaken<Fixed>);
  if (name == "mbarrier_misaligned") return show<Box>(m, mbarrier_misaligned<Fixed>);
  if (name == "mbarrier_made_twice") return show<Box>(m, mbarrier_made_twice<Fixed>);
  if (name == "mbarrier_not_made") return show<Box>(m, mbarrier_not_made<Fixed>);
  if (name == "mbarrier_overwritten") return show<Box>(m, mbarrier_overwritten<Fixed>);
  if (name == "mbarrier_of_none") return show<Box>(m, mbarrier_of_none<Fixed>);
  refuse("exhibit", name, "a name from museum.hpp", "list them with museum --list");
}

PtxExhibit run_tma_exhibit(const std::string& name, Variant variant, const MachineOptions& options) {
  Machine m(options);
  return variant == Variant::bug ? tma_variant<false>(m, name) : tma_variant<true>(m, name);
}

}  // namespace flash::inline FLASH_MACHINE
