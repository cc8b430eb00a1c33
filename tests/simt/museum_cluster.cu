// museum_cluster.cu: the museum's exhibits of clusters, of two blocks here (gpu/hopper.cuh), which need compute
// capability 9.0. Each has the switch `Fixed` and the marks of museum.cu; its name begins with cluster_.
// Run: as museum_ptx.cu, whose run_ptx_exhibit comes here.
#include "gpu/hopper.cuh"
#include "sim/error.hpp"
#include "tests/simt/museum.hpp"

namespace flash::inline FLASH_MACHINE {

// Each block has a row of 64 numbers, a thread for each.
struct Pair {
  float row[64];
  alignas(8) std::uint64_t full, empty;
};

__device__ inline void barrier_of_cluster() {
  barrier_cluster_arrive();
  barrier_cluster_wait();  //@ cluster_half_arrives:1
}

// ---- is the other block there? -------------------------------------------------------------------------------------

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_not_begun(const float* in /*[128]*/, float* out /*[128]*/) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned other = cluster_ctarank() ^ 1;
  if (Fixed) barrier_of_cluster();
  mapa(s.row, other)[t] = in[i];  //@ cluster_not_begun:1
  barrier_of_cluster();
  out[i] = s.row[t];
}

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_left_early(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s.row[t] = in[i];
  barrier_of_cluster();
  if (cluster_ctarank() == 0) out[t] = mapa(s.row, 1)[t];  //@ cluster_left_early:1
  if (cluster_ctarank() == 1) out[64 + t] = s.row[t];
  if (Fixed) barrier_of_cluster();
}

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_left_before_arrival(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
  out[i] = in[i];
  if (t == 0) mbarrier_arrive_cluster_relaxed(&s.full, cluster_ctarank() ^ 1);  //@ cluster_left_before_arrival:1
  if (Fixed) mbarrier_wait_cluster(&s.full, 0);
}

// ---- is what it wrote there? ---------------------------------------------------------------------------------------

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_no_barrier(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s.row[t] = 0;
  barrier_of_cluster();
  mapa(s.row, cluster_ctarank() ^ 1)[t] = in[i];  //@ cluster_no_barrier:2
  __syncthreads();
  barrier_cluster_arrive();
  if (Fixed) barrier_cluster_wait();
  out[i] = s.row[t];  //@ cluster_no_barrier:1
  if (!Fixed) barrier_cluster_wait();
}

// The barrier of the block alone: both blocks have begun, but what the other one has written since is not known.
template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_syncthreads(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s.row[t] = 0;
  barrier_of_cluster();
  s.row[t] = in[i];  //@ cluster_syncthreads:2
  __syncthreads();
  if (Fixed) barrier_of_cluster();
  out[i] = mapa(s.row, cluster_ctarank() ^ 1)[63 - t];  //@ cluster_syncthreads:1
  barrier_of_cluster();
}

// A flag in the other block's shared memory: without a fence it says nothing of the row. (The arrival and the wait of
// the block's scope, which say nothing of it either, see to it that the flag is set.)
template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_flag_without_fence(const float* in, float* out) {
  Pair& s = shared<Pair>();
  auto* flag = reinterpret_cast<unsigned long long*>(&s.full);
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned other = cluster_ctarank() ^ 1;
  if (t == 0) {
    *flag = 0;
    mbarrier_init(&s.empty, 1);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
  if (t == 0) {
    mapa(s.row, other)[5] = in[i];  //@ cluster_flag_without_fence:2
    if (Fixed) __threadfence();
    atomicExch(mapa(flag, other), 1);
    mbarrier_arrive_cluster(&s.empty, other);
    mbarrier_wait(&s.empty, 0);
    const bool set = atomicAdd(flag, 0) == 1;
    if (Fixed) __threadfence();
    out[i] = set ? s.row[5] : -1;  //@ cluster_flag_without_fence:1
  } else {
    out[i] = 0;
  }
  barrier_of_cluster();
}

// ---- mbarriers of the other block ----------------------------------------------------------------------------------

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_mbarrier_not_known(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  barrier_of_cluster();
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (Fixed) barrier_of_cluster();
  if (t == 0) mbarrier_arrive_cluster(&s.full, cluster_ctarank() ^ 1);  //@ cluster_mbarrier_not_known:1
  mbarrier_wait_cluster(&s.full, 0);
  out[i] = in[i];
  barrier_of_cluster();
}

// The wait has the scope of the block: of what the other block has written it says nothing.
template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_wait_of_block(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned other = cluster_ctarank() ^ 1;
  if (t == 0) {
    mbarrier_init(&s.full, 64);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
  mapa(s.row, other)[t] = in[i];  //@ cluster_wait_of_block:2
  mbarrier_arrive_cluster(&s.full, other);
  if (Fixed)
    mbarrier_wait_cluster(&s.full, 0);
  else
    mbarrier_wait(&s.full, 0);
  out[i] = s.row[t];  //@ cluster_wait_of_block:1
  barrier_of_cluster();
}

// Tiles of dS go to the partner, one after the other, each in the place of the last one: the partner has to say that it
// has read it.
template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_tile_refilled(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned other = cluster_ctarank() ^ 1;
  if (t == 0) {
    mbarrier_init(&s.full, 64);
    mbarrier_init(&s.empty, 64);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
  float sum = 0;
  for (int tile = 0; tile < 3; ++tile) {
    if (Fixed && tile > 0) mbarrier_wait_cluster(&s.empty, (tile - 1) & 1);
    mapa(s.row, other)[t] = in[i] * static_cast<float>(tile + 1);  //@ cluster_tile_refilled:1
    mbarrier_arrive_cluster(&s.full, other);
    mbarrier_wait_cluster(&s.full, tile & 1);  //@ cluster_tile_refilled:3
    sum += s.row[63 - t];                      //@ cluster_tile_refilled:2
    if (Fixed || tile == 2) mbarrier_arrive_cluster(&s.empty, other);
  }
  out[i] = sum;
  barrier_of_cluster();
}

// A relaxed arrival passes on what the thread has read, so that the other block may overwrite it, not what it has
// written.
template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_relaxed_after_store(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned other = cluster_ctarank() ^ 1;
  if (t == 0) {
    mbarrier_init(&s.full, 64);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
  mapa(s.row, other)[t] = in[i];  //@ cluster_relaxed_after_store:2
  if (Fixed)
    mbarrier_arrive_cluster(&s.full, other);
  else
    mbarrier_arrive_cluster_relaxed(&s.full, other);
  mbarrier_wait_cluster(&s.full, 0);
  out[i] = s.row[t];  //@ cluster_relaxed_after_store:1
  barrier_of_cluster();
}
template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_relaxed_before_read(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned other = cluster_ctarank() ^ 1;
  if (t == 0) {
    mbarrier_init(&s.full, 64);
    mbarrier_init(&s.empty, 64);
    fence_mbarrier_init();
  }
  s.row[t] = in[i];
  barrier_of_cluster();
  if (!Fixed) mbarrier_arrive_cluster_relaxed(&s.empty, other);
  const float first = s.row[63 - t];  //@ cluster_relaxed_before_read:2
  if (Fixed) mbarrier_arrive_cluster_relaxed(&s.empty, other);
  mbarrier_wait_cluster(&s.empty, 0);
  mapa(s.row, other)[t] = first;  //@ cluster_relaxed_before_read:1
  mbarrier_arrive_cluster(&s.full, other);
  mbarrier_wait_cluster(&s.full, 0);  //@ cluster_relaxed_before_read:3
  out[i] = s.row[t];
  barrier_of_cluster();
}

// What a copy has brought the other block may overwrite behind a relaxed arrival, but not read.
template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_relaxed_after_copy(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned other = cluster_ctarank() ^ 1;
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    mbarrier_init(&s.empty, 64);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, sizeof s.row);
    cp_async_bulk(s.row, in + blockIdx.x * 64, sizeof s.row, &s.full);  //@ cluster_relaxed_after_copy:2
  }
  mbarrier_wait(&s.full, 0);
  mbarrier_arrive_cluster_relaxed(&s.empty, other);
  mbarrier_wait_cluster(&s.empty, 0);
  float* const theirs = mapa(s.row, other);
  if (Fixed)
    theirs[t] = 1;
  else
    out[i] = theirs[t];  //@ cluster_relaxed_after_copy:1
  barrier_of_cluster();
  if (Fixed) out[i] = s.row[t];
}

// Each block waits for the other one's arrival before it arrives there.
template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_deadlock(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned other = cluster_ctarank() ^ 1;
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
  if (Fixed && t == 0) mbarrier_arrive_cluster(&s.full, other);
  mbarrier_wait_cluster(&s.full, 0);  //@ cluster_deadlock:1
  if (!Fixed && t == 0) mbarrier_arrive_cluster(&s.full, other);
  out[i] = in[i];
  barrier_of_cluster();
}

// ---- the barrier itself, and addresses -----------------------------------------------------------------------------

// Half of a block does not come to the barrier, and waits for the other half.
template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_half_arrives(const float* in, float* out) {
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  if (Fixed || blockIdx.x == 0 || t < 32) barrier_of_cluster();
  __syncthreads();  //@ cluster_half_arrives:2
  out[i] = in[i];
}

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_wait_alone(const float* in, float* out) {
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  if (Fixed || blockIdx.x == 0) barrier_cluster_arrive();
  barrier_cluster_wait();  //@ cluster_wait_alone:1
  out[i] = in[i];
}

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_arrives_twice(const float* in, float* out) {
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  barrier_cluster_arrive();
  if (Fixed) barrier_cluster_wait();
  barrier_cluster_arrive();  //@ cluster_arrives_twice:1
  barrier_cluster_wait();
  out[i] = in[i];
}

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_rank_too_large(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s.row[t] = in[i];
  barrier_of_cluster();
  const unsigned next = Fixed ? (cluster_ctarank() + 1) % cluster_nctarank() : cluster_ctarank() + 1;
  out[i] = mapa(s.row, next)[t];  //@ cluster_rank_too_large:1
  barrier_of_cluster();
}

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_mapa_of_global(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s.row[t] = in[i];
  barrier_of_cluster();
  out[i] = *mapa(Fixed ? s.row + t : const_cast<float*>(in) + t, 1);  //@ cluster_mapa_of_global:1
  barrier_of_cluster();
}

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_past_end(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s.row[t] = in[i];
  barrier_of_cluster();
  out[i] = mapa(s.row, 1)[Fixed ? t : t + 64];  //@ cluster_past_end:1
  barrier_of_cluster();
}

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_unwritten(const float* in, float* out) {
  Pair& s = shared<Pair>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  if (Fixed || t != 40) s.row[t] = in[i];
  barrier_of_cluster();
  out[i] = mapa(s.row, cluster_ctarank() ^ 1)[t];  //@ cluster_unwritten:1
  barrier_of_cluster();
}

// ---- copies to other blocks ----------------------------------------------------------------------------------------

// A tensor of 64 rows of 64 elements; each block loads half of a box of 8 rows and gives it to both.
constexpr unsigned kHalfBytes = 4 * 64 * 2;
struct Halves {
  alignas(1024) unsigned short tile[2][4][64];
  alignas(8) std::uint64_t full, empty;
};
__device__ inline void make_barriers(std::uint64_t* full, std::uint64_t* empty, unsigned arrivals) {
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, arrivals);
    fence_mbarrier_init();
  }
  barrier_of_cluster();
}

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_multicast_half(const __grid_constant__ TensorMap in, float* out) {
  Halves& s = shared<Halves>();
  const unsigned t = threadIdx.x, rank = cluster_ctarank();
  make_barriers(&s.full, &s.empty, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, Fixed ? 2 * kHalfBytes : kHalfBytes);
    const int row = static_cast<int>(4 * rank);
    cp_async_bulk_tensor_multicast(s.tile[rank], &in, &s.full, 0, row, 3);  //@ cluster_multicast_half:1
  }
  mbarrier_wait(&s.full, 0);
  out[rank * 64 + t] = s.tile[0][0][t] + s.tile[1][0][t];  //@ cluster_multicast_half:2
  barrier_of_cluster();
}

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_multicast_to_none(const __grid_constant__ TensorMap in, float* out) {
  Halves& s = shared<Halves>();
  const unsigned t = threadIdx.x, rank = cluster_ctarank();
  make_barriers(&s.full, &s.empty, 1);
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, kHalfBytes);
    if (rank == 0)
      cp_async_bulk_tensor_multicast(s.tile[0], &in, &s.full, 0, 0, Fixed ? 3 : 7);  //@ cluster_multicast_to_none:1
  }
  mbarrier_wait(&s.full, 0);
  out[rank * 64 + t] = s.tile[0][0][t];
  barrier_of_cluster();
}

// The next box comes when the own block has read the last one; the other one may not have.
template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_multicast_refilled(const __grid_constant__ TensorMap in, float* out) {
  Halves& s = shared<Halves>();
  const unsigned t = threadIdx.x, rank = cluster_ctarank();
  make_barriers(&s.full, &s.empty, Fixed ? 128 : 64);
  float sum = 0;
  for (int box = 0; box < 3; ++box) {
    if (t == 0) {
      mbarrier_arrive_expect_tx(&s.full, kHalfBytes);
      if (rank == 0) {
        if (box > 0) mbarrier_wait_cluster(&s.empty, (box - 1) & 1);
        cp_async_bulk_tensor_multicast(s.tile[0], &in, &s.full, 0, 4 * box, 3);  //@ cluster_multicast_refilled:1
      }
    }
    mbarrier_wait(&s.full, box & 1);
    sum += s.tile[0][0][t];  //@ cluster_multicast_refilled:2
    if (Fixed || rank == 0) mbarrier_arrive_cluster(&s.empty, 0);
    __syncthreads();
  }
  out[rank * 64 + t] = sum;
  barrier_of_cluster();
}

// A row goes to the partner as bytes; then the row is to hold the next one.
struct Sent {
  alignas(16) float row[64];
  alignas(16) float got[64];
  alignas(8) std::uint64_t full, empty;
};

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_send_refilled(const float* in, float* out) {
  Sent& s = shared<Sent>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned other = cluster_ctarank() ^ 1;
  make_barriers(&s.full, &s.empty, 64);
  float sum = 0;
  for (int turn = 0; turn < 2; ++turn) {
    if (turn > 0 && Fixed) mbarrier_wait_cluster(&s.empty, 0);
    s.row[t] = in[i] + static_cast<float>(turn);  //@ cluster_send_refilled:1
    fence_proxy_async();
    __syncthreads();
    if (turn > 0 && !Fixed) mbarrier_wait_cluster(&s.empty, 0);
    if (t == 0) {
      mbarrier_arrive_expect_tx(&s.full, sizeof s.got);
      cp_async_bulk_cluster(mapa(s.got, other), s.row, sizeof s.row, mapa(&s.full, other));  //@ cluster_send_refilled:2
    }
    mbarrier_wait(&s.full, turn & 1);
    sum += s.got[t];
    mbarrier_arrive_cluster(&s.empty, other);
  }
  out[i] = sum;
  barrier_of_cluster();
}

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_send_no_fence(const float* in, float* out) {
  Sent& s = shared<Sent>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned other = cluster_ctarank() ^ 1;
  make_barriers(&s.full, &s.empty, 64);
  s.row[t] = in[i];  //@ cluster_send_no_fence:2
  if (Fixed) fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, sizeof s.got);
    cp_async_bulk_cluster(mapa(s.got, other), s.row, sizeof s.row, mapa(&s.full, other));  //@ cluster_send_no_fence:1
  }
  mbarrier_wait(&s.full, 0);
  out[i] = s.got[t];
  barrier_of_cluster();
}

template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_send_own_barrier(const float* in, float* out) {
  Sent& s = shared<Sent>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned other = cluster_ctarank() ^ 1;
  make_barriers(&s.full, &s.empty, 64);
  s.row[t] = in[i];
  fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, sizeof s.got);
    std::uint64_t* const full = Fixed ? mapa(&s.full, other) : &s.full;
    cp_async_bulk_cluster(mapa(s.got, other), s.row, sizeof s.row, full);  //@ cluster_send_own_barrier:1
  }
  mbarrier_wait(&s.full, 0);
  out[i] = s.got[t];
  barrier_of_cluster();
}

// The block's own row may not have been read when it ends: the other one's has come, but who has got this one?
template <bool Fixed>
__global__ void __cluster_dims__(2) cluster_send_left_early(const float* in, float* out) {
  Sent& s = shared<Sent>();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned other = cluster_ctarank() ^ 1;
  make_barriers(&s.full, &s.empty, 64);
  s.row[t] = in[i];
  fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, sizeof s.got);
    cp_async_bulk_cluster(mapa(s.got, other), s.row, sizeof s.row, mapa(&s.full, other));  //@ cluster_send_left_early:1
  }
  mbarrier_wait(&s.full, 0);
  out[i] = s.got[t];
  if (Fixed) barrier_of_cluster();
}

// ---- running them --------------------------------------------------------------------------------------------------

template <class Shared = Pair>
PtxExhibit show(Machine& m, void (*kernel)(const float*, float*)) {
  PtxExhibit shown;
  std::vector<float> numbers(128);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  shown.out.resize(128);
  const auto in = m.upload("in", numbers.data(), 128);
  const auto out = m.upload("out", shown.out.data(), 128);
#if defined(__CUDACC__)
  kernel<<<2, 64, sizeof(Shared)>>>(in.data(), out.data());
#else
  launch<Shared>(m, kernel, dim3(2), dim3(64), in.data(), out.data());
#endif
  m.download(shown.out.data(), out);
  shown.findings = m.findings();
  if (!m.reports().empty()) shown.ledger = m.reports().back().ledger;
  return shown;
}

PtxExhibit show(Machine& m, void (*kernel)(TensorMap, float*)) {
  PtxExhibit shown;
  std::vector<std::uint16_t> numbers(64 * 64);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint16_t>(i);
  shown.out.resize(128);
  const auto in = m.upload("in", numbers.data(), numbers.size());
  const auto out = m.upload("out", shown.out.data(), 128);
  const TensorMap map = tensor_map(reinterpret_cast<const __half*>(in.data()), std::array<std::uint64_t, 2>{64, 64},
                                   std::array<std::uint64_t, 1>{128}, std::array<std::uint32_t, 2>{64, 4});
#if defined(__CUDACC__)
  kernel<<<2, 64, sizeof(Halves)>>>(map, out.data());
#else
  launch<Halves>(m, kernel, dim3(2), dim3(64), map, out.data());
#endif
  m.download(shown.out.data(), out);
  shown.findings = m.findings();
  if (!m.reports().empty()) shown.ledger = m.reports().back().ledger;
  return shown;
}

template <bool Fixed>
PtxExhibit cluster_variant(Machine& m, const std::string& name) {
  if (name == "cluster_not_begun") return show(m, cluster_not_begun<Fixed>);
  if (name == "cluster_left_early") return show(m, cluster_left_early<Fixed>);
  if (name == "cluster_left_before_arrival") return show(m, cluster_left_before_arrival<Fixed>);
  if (name == "cluster_no_barrier") return show(m, cluster_no_barrier<Fixed>);
  if (name == "cluster_syncthreads") return show(m, cluster_syncthreads<Fixed>);
  if (name == "cluster_flag_without_fence") return show(m, cluster_flag_without_fence<Fixed>);
  if (name == "cluster_mbarrier_not_known") return show(m, cluster_mbarrier_not_known<Fixed>);
  if (name == "cluster_wait_of_block") return show(m, cluster_wait_of_block<Fixed>);
  if (name == "cluster_tile_refilled") return show(m, cluster_tile_refilled<Fixed>);
  if (name == "cluster_relaxed_after_store") return show(m, cluster_relaxed_after_store<Fixed>);
  if (name == "cluster_relaxed_before_read") return show(m, cluster_relaxed_before_read<Fixed>);
  if (name == "cluster_relaxed_after_copy") return show(m, cluster_relaxed_after_copy<Fixed>);
  if (name == "cluster_deadlock") return show(m, cluster_deadlock<Fixed>);
  if (name == "cluster_half_arrives") return show(m, cluster_half_arrives<Fixed>);
  if (name == "cluster_wait_alone") return show(m, cluster_wait_alone<Fixed>);
  if (name == "cluster_arrives_twice") return show(m, cluster_arrives_twice<Fixed>);
  if (name == "cluster_rank_too_large") return show(m, cluster_rank_too_large<Fixed>);
  if (name == "cluster_mapa_of_global") return show(m, cluster_mapa_of_global<Fixed>);
  if (name == "cluster_past_end") return show(m, cluster_past_end<Fixed>);
  if (name == "cluster_unwritten") return show(m, cluster_unwritten<Fixed>);
  if (name == "cluster_multicast_half") return show(m, cluster_multicast_half<Fixed>);
  if (name == "cluster_multicast_to_none") return show(m, cluster_multicast_to_none<Fixed>);
  if (name == "cluster_multicast_refilled") return show(m, cluster_multicast_refilled<Fixed>);
  if (name == "cluster_send_refilled") return show<Sent>(m, cluster_send_refilled<Fixed>);
  if (name == "cluster_send_no_fence") return show<Sent>(m, cluster_send_no_fence<Fixed>);
  if (name == "cluster_send_own_barrier") return show<Sent>(m, cluster_send_own_barrier<Fixed>);
  if (name == "cluster_send_left_early") return show<Sent>(m, cluster_send_left_early<Fixed>);
  refuse("exhibit", name, "a name from museum.hpp", "list them with museum --list");
}

PtxExhibit run_cluster_exhibit(const std::string& name, Variant variant, const MachineOptions& options) {
  Machine m(options);
  return variant == Variant::bug ? cluster_variant<false>(m, name) : cluster_variant<true>(m, name);
}

}  // namespace flash::inline FLASH_MACHINE
