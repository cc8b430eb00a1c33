// museum_bulk.cu: the museum's exhibits of copies of bytes, bulk reductions, and mbarriers that are asked or
// invalidated, and of counts (gpu/hopper.cuh), which need compute capability 9.0. Each has the switch `Fixed` and the
// marks of museum.cu; its name begins with bulk_, reduce_, poll_, inval_ or count_.
// Run: as museum_ptx.cu, whose run_ptx_exhibit comes here.
#include "gpu/hopper.cuh"
#include "sim/error.hpp"
#include "tests/simt/museum.hpp"

namespace flash::inline FLASH_MACHINE {

constexpr int kFloats = 64;
constexpr unsigned kBytes = kFloats * sizeof(float);
struct Line {
  alignas(16) float tile[2][kFloats];
  alignas(8) std::uint64_t full, empty;
  unsigned role;
};

__device__ inline void make_barrier(std::uint64_t* barrier, unsigned arrivals = 1) {
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, arrivals);
    fence_mbarrier_init();
  }
  __syncthreads();
}
// Each block's number in the order in which they begin, so that a block never waits for a later one.
__device__ inline unsigned role_of_block(Line& s, unsigned* tickets) {
  if (threadIdx.x == 0) s.role = atomicAdd(tickets, 1u);
  __syncthreads();
  return s.role;
}
__device__ inline void set_flag(unsigned* flag) {
  __threadfence();
  *static_cast<volatile unsigned*>(flag) = 1;
}
__device__ inline void wait_for_flag(unsigned* flag) {
  while (*static_cast<volatile unsigned*>(flag) == 0) {
  }
  __threadfence();
}

// ---- copies of bytes -------------------------------------------------------------------------------------------

template <bool Fixed>
__global__ void bulk_no_wait(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;  // 64 threads
  make_barrier(&s.full);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBytes);
    cp_async_bulk(s.tile[0], in, kBytes, &s.full);  //@ bulk_no_wait:2
  }
  if (Fixed) mbarrier_wait(&s.full, 0);
  __syncthreads();
  out[t] = s.tile[0][t];  //@ bulk_no_wait:1
}

template <bool Fixed>
__global__ void bulk_odd_bytes(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  const unsigned bytes = Fixed ? 32 : 20;
  make_barrier(&s.full);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, bytes);
    cp_async_bulk(s.tile[0], in, bytes, &s.full);  //@ bulk_odd_bytes:1
  }
  mbarrier_wait(&s.full, 0);
  if (t < 5) out[t] = s.tile[0][t];
}

template <bool Fixed>
__global__ void bulk_no_bytes(const float*, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  const unsigned bytes = Fixed ? 16 : 0;
  if (t < 4) s.tile[0][t] = 1;
  fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    cp_reduce_async_bulk_add(out, s.tile[0], bytes);  //@ bulk_no_bytes:1
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
  }
}

template <bool Fixed>
__global__ void bulk_misaligned(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  float* const tile = s.tile[0] + (Fixed ? 4 : 2);
  make_barrier(&s.full);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBytes);
    cp_async_bulk(tile, in, kBytes, &s.full);  //@ bulk_misaligned:1
  }
  mbarrier_wait(&s.full, 0);
  out[t] = tile[t];
}

template <bool Fixed>
__global__ void bulk_misaligned_source(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  make_barrier(&s.full);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBytes);
    cp_async_bulk(s.tile[0], in + (Fixed ? 4 : 5), kBytes, &s.full);  //@ bulk_misaligned_source:1
  }
  mbarrier_wait(&s.full, 0);
  out[t] = s.tile[0][t];
}

// `in` has 130 floats, which are no multiple of 16 bytes.
template <bool Fixed>
__global__ void bulk_source_past_end(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  const unsigned bytes = kBytes - (Fixed ? 16 : 0);
  make_barrier(&s.full);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, bytes);
    cp_async_bulk(s.tile[0], in + 68, bytes, &s.full);  //@ bulk_source_past_end:1
  }
  mbarrier_wait(&s.full, 0);
  if (t < 60) out[t] = s.tile[0][t];
}

template <bool Fixed>
__global__ void bulk_past_end(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  float* const tile = Fixed ? s.tile[0] : s.tile[1] + 32;
  make_barrier(&s.full);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBytes);
    cp_async_bulk(tile, in, kBytes, &s.full);  //@ bulk_past_end:1
  }
  mbarrier_wait(&s.full, 0);
  out[t] = tile[t];
}

template <bool Fixed>
__global__ void bulk_to_shared(const float*, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  s.tile[0][t] = 1;
  fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    cp_async_bulk_store(Fixed ? out : s.tile[1], s.tile[0], kBytes);  //@ bulk_to_shared:1
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
  }
}

template <bool Fixed>
__global__ void bulk_expects_too_much(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  make_barrier(&s.full);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, Fixed ? kBytes : kBytes + 16);
    cp_async_bulk(s.tile[0], in, kBytes, &s.full);
  }
  mbarrier_wait(&s.full, 0);  //@ bulk_expects_too_much:1
  out[t] = s.tile[0][t];
}

template <bool Fixed>
__global__ void bulk_expects_too_little(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  make_barrier(&s.full);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, Fixed ? 2 * kBytes : kBytes);
    cp_async_bulk(s.tile[0], in, kBytes, &s.full);
    cp_async_bulk(s.tile[1], in + kFloats, kBytes, &s.full);  //@ bulk_expects_too_little:2
  }
  mbarrier_wait(&s.full, 0);
  out[t] = s.tile[0][t] + s.tile[1][t];  //@ bulk_expects_too_little:1
}

template <bool Fixed>
__global__ void bulk_staging_reused(const float*, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  for (int i = 0; i < 2; ++i) {
    s.tile[0][t] = static_cast<float>(i);  //@ bulk_staging_reused:1
    fence_proxy_async();
    __syncthreads();
    if (t == 0) {
      cp_async_bulk_store(out + i * kFloats, s.tile[0], kBytes);  //@ bulk_staging_reused:2
      cp_async_bulk_commit();
      if (Fixed || i == 1) cp_async_bulk_wait_read<0>();
    }
    __syncthreads();
  }
}

// A block stores, sets a flag; another one reads.
template <bool Fixed>
__global__ void bulk_flag_too_early(const float*, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  if (role_of_block(s, flags) == 0) {
    s.tile[0][t] = 1;
    fence_proxy_async();
    __syncthreads();
    if (t > 0) return;
    cp_async_bulk_store(out, s.tile[0], kBytes);  //@ bulk_flag_too_early:2
    cp_async_bulk_commit();
    if (Fixed)
      cp_async_bulk_wait<0>();
    else
      cp_async_bulk_wait_read<0>();
    set_flag(flags + 1);
  } else {
    if (t == 0) wait_for_flag(flags + 1);
    __syncthreads();
    out[kFloats + t] = 1 + out[t];  //@ bulk_flag_too_early:1
  }
}

// ---- reductions ------------------------------------------------------------------------------------------------

template <bool Fixed>
__global__ void reduce_staging_reused(const float*, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  for (int i = 0; i < 4; ++i) {
    s.tile[i % 2][t] = static_cast<float>(i);  //@ reduce_staging_reused:1
    fence_proxy_async();
    __syncthreads();
    if (t == 0) {
      cp_reduce_async_bulk_add(out, s.tile[i % 2], kBytes);  //@ reduce_staging_reused:2
      cp_async_bulk_commit();
      if (Fixed)
        cp_async_bulk_wait_read<1>();
      else
        cp_async_bulk_wait_read<2>();  // there are two tiles, not three
      if (i == 3) cp_async_bulk_wait_read<0>();
    }
    __syncthreads();
  }
}

template <bool Fixed>
__global__ void reduce_no_proxy_fence(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  s.tile[0][t] = in[t];  //@ reduce_no_proxy_fence:2
  if (Fixed) fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    cp_reduce_async_bulk_add(out, s.tile[0], kBytes);  //@ reduce_no_proxy_fence:1
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
}

template <bool Fixed>
__global__ void reduce_left_early(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  s.tile[0][t] = in[t];
  fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    cp_reduce_async_bulk_add(out, s.tile[0], kBytes);  //@ reduce_left_early:1
    cp_async_bulk_commit();
    if (Fixed) cp_async_bulk_wait_read<0>();
  }
}

template <bool Fixed>
__global__ void reduce_read_is_not_added(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  s.tile[0][t] = in[t];
  fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    cp_reduce_async_bulk_add(out, s.tile[0], kBytes);  //@ reduce_read_is_not_added:2
    cp_async_bulk_commit();
    if (Fixed)
      cp_async_bulk_wait<0>();
    else
      cp_async_bulk_wait_read<0>();
  }
  __syncthreads();
  out[kFloats + t] = out[t];  //@ reduce_read_is_not_added:1
}

// The same of a reduction, with a barrier before the flag is set.
template <bool Fixed>
__global__ void reduce_flag_too_early(const float*, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  if (role_of_block(s, flags) == 0) {
    s.tile[0][t] = 1;
    fence_proxy_async();
    __syncthreads();
    if (t == 0) {
      cp_reduce_async_bulk_add(out, s.tile[0], kBytes);  //@ reduce_flag_too_early:2
      cp_async_bulk_commit();
      if (Fixed)
        cp_async_bulk_wait<0>();
      else
        cp_async_bulk_wait_read<0>();
    }
    __syncthreads();  // says nothing of the additions
    if (t == 0) set_flag(flags + 1);
  } else {
    if (t == 0) wait_for_flag(flags + 1);
    __syncthreads();
    out[kFloats + t] = out[t];  //@ reduce_flag_too_early:1
  }
}

// The reader has waited for its own addition, which says nothing of the other block's.
template <bool Fixed>
__global__ void reduce_own_wait(const float*, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  const unsigned role = role_of_block(s, flags);
  s.tile[0][t] = 1;
  fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    cp_reduce_async_bulk_add(out, s.tile[0], kBytes);  //@ reduce_own_wait:2
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
    if (role == 0) set_flag(flags + 1);
    if (role == 1 && Fixed) wait_for_flag(flags + 1);
  }
  __syncthreads();
  if (role == 1) out[kFloats + t] = out[t];  //@ reduce_own_wait:1
}

// Two tiles in turn: the semaphore says that both were added, the wait leaves the second one under way.
template <bool Fixed>
__global__ void reduce_turn_too_early(const float*, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  if (role_of_block(s, flags) == 0) {
    s.tile[0][t] = s.tile[1][t] = 1;
    fence_proxy_async();
    __syncthreads();
    if (t > 0) return;
    for (int i = 0; i < 2; ++i) {
      cp_reduce_async_bulk_add(out + i * kFloats, s.tile[i], kBytes);  //@ reduce_turn_too_early:2
      cp_async_bulk_commit();
    }
    cp_async_bulk_wait_read<0>();
    if (Fixed)
      cp_async_bulk_wait<0>();
    else
      cp_async_bulk_wait<1>();
    __threadfence();
    atomicExch(flags + 1, 1u);
  } else {
    if (t == 0) {
      while (atomicAdd(flags + 1, 0u) == 0) {
      }
      __threadfence();
    }
    __syncthreads();
    out[t] = 2;
    out[kFloats + t] = 2;  //@ reduce_turn_too_early:1
  }
}

// Three blocks take turns at a semaphore, so that their additions have an order, and the sums the same bits every time.
template <bool Fixed>
__global__ void reduce_in_turns(const float* in, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  const unsigned role = role_of_block(s, flags);
  s.tile[0][t] = in[t] / static_cast<float>(role + 3);
  fence_proxy_async();
  __syncthreads();
  if (t > 0) return;
  while (atomicAdd(flags + 1, 0u) != role) {
  }
  __threadfence();
  cp_reduce_async_bulk_add(out, s.tile[0], kBytes);  //@ reduce_in_turns:1
  cp_async_bulk_commit();
  if (Fixed)
    cp_async_bulk_wait<0>();
  else
    cp_async_bulk_wait_read<0>();
  __threadfence();
  atomicAdd(flags + 1, 1u);
}

// A block clears what others add to; the twin adds 0 by atomics, which leave one another be.
template <bool Fixed>
__global__ void reduce_and_plain(const float*, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  if (role_of_block(s, flags) == 0) {
    if (Fixed)
      atomicAdd(&out[t], 1.0f);
    else
      out[t] = 0;  //@ reduce_and_plain:2
    return;
  }
  s.tile[0][t] = 1;
  fence_proxy_async();
  __syncthreads();
  if (t > 0) return;
  cp_reduce_async_bulk_add(out, s.tile[0], kBytes);  //@ reduce_and_plain:1
  cp_async_bulk_commit();
  cp_async_bulk_wait<0>();
}

// `fresh` is as the host has allocated it.
template <bool Fixed>
__global__ void reduce_on_fresh(const float*, float* out, unsigned*, float* fresh) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  if (Fixed) fresh[t] = 0;
  s.tile[0][t] = 1;
  fence_proxy_async();
  __syncthreads();
  if (t > 0) return;
  cp_reduce_async_bulk_add(fresh, s.tile[0], kBytes);  //@ reduce_on_fresh:1
  cp_async_bulk_commit();
  cp_async_bulk_wait<0>();
  out[0] = fresh[0];
}

// ---- mbarriers that are asked ----------------------------------------------------------------------------------

template <bool Fixed>
__global__ void poll_wrong_parity(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  make_barrier(&s.full);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBytes);
    cp_async_bulk(s.tile[0], in, kBytes, &s.full);  //@ poll_wrong_parity:2
  }
  while (!mbarrier_test_wait(&s.full, Fixed ? 0 : 1)) {
  }
  out[t] = s.tile[0][t];  //@ poll_wrong_parity:1
}

template <bool Fixed>
__global__ void poll_in_vain(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  make_barrier(&s.full, Fixed ? 1 : 2);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBytes);
    cp_async_bulk(s.tile[0], in, kBytes, &s.full);
  }
  while (!mbarrier_test_wait(&s.full, 0)) {  //@ poll_in_vain:1
  }
  out[t] = s.tile[0][t];
}

// ---- mbarriers that are no more --------------------------------------------------------------------------------

template <bool Fixed>
__global__ void inval_waiting(const float*, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  make_barrier(&s.full);
  make_barrier(&s.empty, 63);
  if (t > 0) {
    mbarrier_arrive(&s.empty);
    mbarrier_wait(&s.full, 0);  //@ inval_waiting:2
  } else {
    mbarrier_wait(&s.empty, 0);
    if (Fixed)
      mbarrier_arrive(&s.full);
    else
      mbarrier_inval(&s.full);  //@ inval_waiting:1
  }
  __syncthreads();
  if (Fixed && t == 0) mbarrier_inval(&s.full);
  out[t] = 1;
}

template <bool Fixed>
__global__ void inval_under_way(const float* in, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  make_barrier(&s.full);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kBytes);
    cp_async_bulk(s.tile[0], in, kBytes, &s.full);  //@ inval_under_way:2
    if (Fixed) mbarrier_wait(&s.full, 0);
    mbarrier_inval(&s.full);  //@ inval_under_way:1
  }
  out[t] = 1;
}

template <bool Fixed>
__global__ void inval_used_after(const float*, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  make_barrier(&s.full);
  if (t == 0) mbarrier_arrive(&s.full);
  mbarrier_wait(&s.full, 0);
  __syncthreads();
  if (t == 0) mbarrier_inval(&s.full);  //@ inval_used_after:2
  __syncthreads();
  if (Fixed) make_barrier(&s.full);
  if (t == 0) mbarrier_arrive(&s.full);  //@ inval_used_after:1
  if (Fixed) mbarrier_wait(&s.full, 0);
  out[t] = 1;
}

// The last thread knows that the phase is complete, not that the others' waits have returned.
template <bool Fixed>
__global__ void inval_unordered(const float*, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  make_barrier(&s.full);
  if (t == 0) mbarrier_arrive(&s.full);
  mbarrier_wait(&s.full, 0);  //@ inval_unordered:2
  if (Fixed) __syncthreads();
  if (t == 63) mbarrier_inval(&s.full);  //@ inval_unordered:1
  out[t] = 1;
}

template <bool Fixed>
__global__ void inval_forgotten(const float*, float* out, unsigned*) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  make_barrier(&s.full);
  if (t == 0) mbarrier_arrive(&s.full);
  mbarrier_wait(&s.full, 0);
  __syncthreads();
  if (Fixed && t == 0) mbarrier_inval(&s.full);
  __syncthreads();
  if (t == 1) *reinterpret_cast<float*>(&s.full) = 3;  //@ inval_forgotten:1
  __syncthreads();
  out[t] = Fixed ? *reinterpret_cast<float*>(&s.full) : 3;
}

// ---- counts in global memory: red_release_add, wait_at_least ----------------------------------------------------

template <bool Fixed>
__global__ void count_without_release(const float* in, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  if (role_of_block(s, flags) == 0) {
    out[t] = in[t];  //@ count_without_release:2
    __syncthreads();
    if (t > 0) return;
    if (Fixed)
      red_release_add(flags + 1, 1);
    else
      atomicAdd(flags + 1, 1u);
  } else {
    wait_at_least(flags + 1, 1);
    out[kFloats + t] = out[t];  //@ count_without_release:1
  }
}

// The block's other threads may not have stored when the first one counts for them.
template <bool Fixed>
__global__ void count_without_barrier(const float* in, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  if (role_of_block(s, flags) == 0) {
    out[t] = in[t];  //@ count_without_barrier:2
    if (Fixed) __syncthreads();
    if (t == 0) red_release_add(flags + 1, 1);
  } else {
    wait_at_least(flags + 1, 1);
    out[kFloats + t] = out[t];  //@ count_without_barrier:1
  }
}

template <bool Fixed>
__global__ void count_waits_alone(const float* in, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  if (role_of_block(s, flags) == 0) {
    out[t] = in[t];  //@ count_waits_alone:2
    __syncthreads();
    if (t == 0) red_release_add(flags + 1, 1);
  } else {
    if (t == 0) wait_at_least(flags + 1, 1);
    if (Fixed) __syncthreads();
    out[kFloats + t] = out[t];  //@ count_waits_alone:1
  }
}

template <bool Fixed>
__global__ void count_of_none(const float* in, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  const unsigned role = role_of_block(s, flags);
  if (role == 0) {
    out[t] = in[t];  //@ count_of_none:2
    __syncthreads();
    if (t == 0) red_release_add(flags + 1, 1);
  } else {
    wait_at_least(flags + 1, Fixed ? role : role - 1);
    out[kFloats + t] = out[t];  //@ count_of_none:1
  }
}

// To count is not to wait: an addition brings nothing back.
template <bool Fixed>
__global__ void count_without_wait(const float* in, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x, role = static_cast<int>(role_of_block(s, flags));
  if (t / 32 == role) out[t] = in[t];  //@ count_without_wait:2
  __syncthreads();
  if (t == 0) red_release_add(flags + 1, 1);
  if (Fixed) wait_at_least(flags + 1, static_cast<unsigned>(role) + 1);
  __syncthreads();
  if (role == 1 && t < 32) out[kFloats + t] = out[t];  //@ count_without_wait:1
}

// Nor is to wait to count.
template <bool Fixed>
__global__ void count_by_waiting(const float* in, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  const unsigned role = role_of_block(s, flags);
  if (role == 0 && t == 0) red_release_add(flags + 1, 1);
  if (role == 1) {
    out[t] = in[t];  //@ count_by_waiting:2
    __syncthreads();
    if (t > 0) return;
    if (Fixed) red_release_add(flags + 1, 1);
    __threadfence();
    wait_at_least(flags + 1, 1);
  }
  if (role == 2) {
    wait_at_least(flags + 1, Fixed ? 2 : 1);
    out[kFloats + t] = out[t];  //@ count_by_waiting:1
  }
}

// Two blocks count, the third one waits for the first of them and reads what both have stored.
template <bool Fixed>
__global__ void count_too_few(const float* in, float* out, unsigned* flags) {
  Line& s = shared<Line>();
  const int t = threadIdx.x;
  const unsigned role = role_of_block(s, flags);
  if (role < 2) {
    if (t / 32 == static_cast<int>(role)) out[t] = in[t];  //@ count_too_few:2
    __syncthreads();
    if (t == 0) red_release_add(flags + 1, 2);
  } else {
    wait_at_least(flags + 1, Fixed ? 3 : 2);
    out[kFloats + t] = out[t];  //@ count_too_few:1
  }
}

// ---- Host side -------------------------------------------------------------------------------------------------

template <class... More>
PtxExhibit show(Machine& m, unsigned blocks, void (*kernel)(const float*, float*, unsigned*, More...)) {
  PtxExhibit shown;
  shown.out.assign(2 * kFloats, 0);
  std::vector<float> numbers(130);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const std::vector<unsigned> none(2);
  const auto in = m.upload("in", numbers.data(), numbers.size());
  const auto out = m.upload("out", shown.out.data(), shown.out.size());
  const auto flags = m.upload("flags", none.data(), none.size());
  const auto fresh = m.alloc<float>("fresh", kFloats);
  if constexpr (sizeof...(More) == 0)
    launch<Line>(m, kernel, dim3(blocks), dim3(64), in.data(), out.data(), flags.data());
  else
    launch<Line>(m, kernel, dim3(blocks), dim3(64), in.data(), out.data(), flags.data(), fresh.data());
  m.download(shown.out.data(), out);
  shown.findings = m.findings(), shown.ledger = m.reports().back().ledger;
  return shown;
}

template <bool Fixed>
PtxExhibit bulk_variant(Machine& m, const std::string& name) {
  if (name == "bulk_no_wait") return show(m, 1, bulk_no_wait<Fixed>);
  if (name == "bulk_odd_bytes") return show(m, 1, bulk_odd_bytes<Fixed>);
  if (name == "bulk_no_bytes") return show(m, 1, bulk_no_bytes<Fixed>);
  if (name == "bulk_misaligned") return show(m, 1, bulk_misaligned<Fixed>);
  if (name == "bulk_misaligned_source") return show(m, 1, bulk_misaligned_source<Fixed>);
  if (name == "bulk_source_past_end") return show(m, 1, bulk_source_past_end<Fixed>);
  if (name == "bulk_past_end") return show(m, 1, bulk_past_end<Fixed>);
  if (name == "bulk_to_shared") return show(m, 1, bulk_to_shared<Fixed>);
  if (name == "bulk_expects_too_much") return show(m, 1, bulk_expects_too_much<Fixed>);
  if (name == "bulk_expects_too_little") return show(m, 1, bulk_expects_too_little<Fixed>);
  if (name == "bulk_staging_reused") return show(m, 1, bulk_staging_reused<Fixed>);
  if (name == "bulk_flag_too_early") return show(m, 2, bulk_flag_too_early<Fixed>);
  if (name == "reduce_staging_reused") return show(m, 1, reduce_staging_reused<Fixed>);
  if (name == "reduce_no_proxy_fence") return show(m, 1, reduce_no_proxy_fence<Fixed>);
  if (name == "reduce_left_early") return show(m, 1, reduce_left_early<Fixed>);
  if (name == "reduce_read_is_not_added") return show(m, 1, reduce_read_is_not_added<Fixed>);
  if (name == "reduce_flag_too_early") return show(m, 2, reduce_flag_too_early<Fixed>);
  if (name == "reduce_own_wait") return show(m, 2, reduce_own_wait<Fixed>);
  if (name == "reduce_turn_too_early") return show(m, 2, reduce_turn_too_early<Fixed>);
  if (name == "reduce_in_turns") return show(m, 3, reduce_in_turns<Fixed>);
  if (name == "reduce_and_plain") return show(m, 2, reduce_and_plain<Fixed>);
  if (name == "reduce_on_fresh") return show(m, 1, reduce_on_fresh<Fixed>);
  if (name == "poll_wrong_parity") return show(m, 1, poll_wrong_parity<Fixed>);
  if (name == "poll_in_vain") return show(m, 1, poll_in_vain<Fixed>);
  if (name == "inval_waiting") return show(m, 1, inval_waiting<Fixed>);
  if (name == "inval_under_way") return show(m, 1, inval_under_way<Fixed>);
  if (name == "inval_used_after") return show(m, 1, inval_used_after<Fixed>);
  if (name == "inval_unordered") return show(m, 1, inval_unordered<Fixed>);
  if (name == "inval_forgotten") return show(m, 1, inval_forgotten<Fixed>);
  if (name == "count_without_release") return show(m, 2, count_without_release<Fixed>);
  if (name == "count_without_barrier") return show(m, 2, count_without_barrier<Fixed>);
  if (name == "count_waits_alone") return show(m, 2, count_waits_alone<Fixed>);
  if (name == "count_of_none") return show(m, 2, count_of_none<Fixed>);
  if (name == "count_without_wait") return show(m, 2, count_without_wait<Fixed>);
  if (name == "count_by_waiting") return show(m, 3, count_by_waiting<Fixed>);
  if (name == "count_too_few") return show(m, 3, count_too_few<Fixed>);
  refuse("exhibit", name, "a name from museum.hpp", "list them with museum --list");
}

PtxExhibit run_bulk_exhibit(const std::string& name, Variant variant, const MachineOptions& options) {
  Machine m(options);
  return variant == Variant::bug ? bulk_variant<false>(m, name) : bulk_variant<true>(m, name);
}

}  // namespace flash::inline FLASH_MACHINE
