// cooperative_groups.h: in place of CUDA's header of this name, for programs that ./flash check compiles: blocks, tiles
// of a warp, coalesced threads, clusters of blocks, and grids whose blocks all run at a time
// (cudaLaunchCooperativeKernel). Use: #include <cooperative_groups.h>
#pragma once
#include <cuda_runtime.h>

namespace cooperative_groups {

class thread_block {
 public:
  __device__ void sync(FLASH_SITE) const { __syncthreads(site); }
  __device__ unsigned thread_rank() const {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  }
  __device__ unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
  __device__ unsigned num_threads() const { return size(); }
  __device__ dim3 group_index() const { return blockIdx; }
  __device__ dim3 thread_index() const { return threadIdx; }
  __device__ dim3 group_dim() const { return blockDim; }
  __device__ dim3 dim_threads() const { return blockDim; }
};

__device__ inline thread_block this_thread_block() {
  return {};
}

// Lanes of a warp that are named by a mask, counted from its lowest bit.
class flash_lanes {
 public:
  __device__ flash_lanes(unsigned mask, unsigned rank, unsigned size) : mask_(mask), rank_(rank), size_(size) {}
  __device__ void sync(FLASH_SITE) const { __syncwarp(mask_, site); }
  __device__ unsigned thread_rank() const { return rank_; }
  __device__ unsigned size() const { return size_; }
  __device__ unsigned num_threads() const { return size_; }
  __device__ unsigned mask() const { return mask_; }  // not CUDA's: for thread_group
  __device__ int any(int predicate, FLASH_SITE) const { return __any_sync(mask_, predicate, site); }
  __device__ int all(int predicate, FLASH_SITE) const { return __all_sync(mask_, predicate, site); }

 protected:
  unsigned mask_, rank_, size_;
};

template <unsigned N, class Parent = void>
class thread_block_tile : public flash_lanes {
  static_assert(N == 1 || N == 2 || N == 4 || N == 8 || N == 16 || N == 32, "a tile has 1, 2, 4, 8, 16 or 32 threads");

 public:
  // Of the block's thread `rank`.
  __device__ thread_block_tile(unsigned rank, unsigned threads)
      : flash_lanes((N == 32 ? ~0u : (1u << N % 32) - 1) << rank / N * N % 32, rank % N, N),
        number_(rank / N),
        count_((threads + N - 1) / N) {}
  template <class Other>
  __device__ thread_block_tile(const thread_block_tile<N, Other>& tile)
      : flash_lanes(tile.mask(), tile.thread_rank(), N),
        number_(tile.meta_group_rank()),
        count_(tile.meta_group_size()) {}
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  __device__ unsigned meta_group_rank() const { return number_; }
  __device__ unsigned meta_group_size() const { return count_; }
  template <class T>
  __device__ T shfl(T value, int lane, FLASH_SITE) const {
    return __shfl_sync(mask_, value, lane, N, site);
  }
  template <class T>
  __device__ T shfl_up(T value, unsigned distance, FLASH_SITE) const {
    return __shfl_up_sync(mask_, value, distance, N, site);
  }
  template <class T>
  __device__ T shfl_down(T value, unsigned distance, FLASH_SITE) const {
    return __shfl_down_sync(mask_, value, distance, N, site);
  }
  template <class T>
  __device__ T shfl_xor(T value, int bits, FLASH_SITE) const {
    return __shfl_xor_sync(mask_, value, bits, N, site);
  }
  __device__ unsigned ballot(int predicate, FLASH_SITE) const {
    return (__ballot_sync(mask_, predicate, site) & mask_) >> __ffs(static_cast<int>(mask_)) - 1;
  }
  template <class T>
  __device__ unsigned match_any(T value, FLASH_SITE) const {
    return __match_any_sync(mask_, value, site) >> __ffs(static_cast<int>(mask_)) - 1;
  }

 private:
  unsigned number_, count_;
};

template <unsigned N>
__device__ thread_block_tile<N, thread_block> tiled_partition(const thread_block& block) {
  return {block.thread_rank(), block.size()};
}
template <unsigned N, unsigned M, class Parent>
__device__ thread_block_tile<N> tiled_partition(const thread_block_tile<M, Parent>& tile) {
  static_assert(N <= M, "a part is no larger than the whole");
  const thread_block block = this_thread_block();
  (void)tile;
  return {block.thread_rank(), block.size()};
}

// Any group, for functions that take each: a block or a tile.
class thread_group {
 public:
  __device__ thread_group(const thread_block& block) : rank_(block.thread_rank()), size_(block.size()) {}
  template <unsigned N, class Parent>
  __device__ thread_group(const thread_block_tile<N, Parent>& tile)
      : mask_(tile.mask()), rank_(tile.thread_rank()), size_(N) {}
  __device__ void sync(FLASH_SITE) const {
    if (mask_ == 0)
      __syncthreads(site);
    else
      __syncwarp(mask_, site);
  }
  __device__ unsigned thread_rank() const { return rank_; }
  __device__ unsigned size() const { return size_; }
  __device__ unsigned num_threads() const { return size_; }

 private:
  unsigned mask_ = 0, rank_, size_;  // mask 0: the whole block
};

// The lanes that are at this place together.
class coalesced_group : public flash_lanes {
 public:
  __device__ explicit coalesced_group(unsigned mask)
      : flash_lanes(mask, static_cast<unsigned>(__popc(mask & ((1u << this_thread_block().thread_rank() % 32) - 1))),
                    static_cast<unsigned>(__popc(mask))) {}
  template <class T>
  __device__ T shfl(T value, unsigned rank, FLASH_SITE) const {
    unsigned lanes = mask_;
    for (; rank > 0; --rank) lanes &= lanes - 1;
    return __shfl_sync(mask_, value, __ffs(static_cast<int>(lanes)) - 1, 32, site);
  }
};
__device__ inline coalesced_group coalesced_threads(FLASH_SITE) {
  return coalesced_group(__activemask(site));
}
// The lanes of a tile or a coalesced group that have the same label, or the same truth value.
template <class Label>
__device__ coalesced_group labeled_partition(const flash_lanes& group, Label label, FLASH_SITE) {
  return coalesced_group(__match_any_sync(group.mask(), label, site));
}
__device__ inline coalesced_group binary_partition(const flash_lanes& group, bool predicate, FLASH_SITE) {
  const unsigned yes = __ballot_sync(group.mask(), predicate, site);
  return coalesced_group(predicate ? yes : group.mask() & ~yes);
}

// ---- clusters -----------------------------------------------------------------------------------------------------

// The blocks of a cluster: __cluster_dims__ or cudaLaunchKernelEx. Without one, the block.
class cluster_group {
 public:
  struct arrival_token {};
  __device__ void sync(FLASH_SITE) const {
    __cluster_barrier_arrive(site);
    __cluster_barrier_wait(site);
  }
  __device__ arrival_token barrier_arrive(FLASH_SITE) const {
    __cluster_barrier_arrive(site);
    return {};
  }
  __device__ void barrier_wait(FLASH_SITE) const { __cluster_barrier_wait(site); }
  __device__ void barrier_wait(arrival_token&&, FLASH_SITE) const { __cluster_barrier_wait(site); }
  template <class T>
  __device__ T* map_shared_rank(T* shared, int rank, FLASH_SITE) const {
    return static_cast<T*>(__cluster_map_shared_rank(shared, static_cast<unsigned>(rank), site));
  }
  __device__ dim3 block_index() const { return __clusterRelativeBlockIdx(); }
  __device__ unsigned block_rank() const { return __clusterRelativeBlockRank(); }
  __device__ dim3 dim_blocks() const { return __clusterDim(); }
  __device__ unsigned num_blocks() const { return __clusterSizeInBlocks(); }
  __device__ dim3 thread_index() const {
    const dim3 block = block_index();
    return dim3(block.x * blockDim.x + threadIdx.x, block.y * blockDim.y + threadIdx.y,
                block.z * blockDim.z + threadIdx.z);
  }
  __device__ unsigned thread_rank() const {
    return block_rank() * this_thread_block().size() + this_thread_block().thread_rank();
  }
  __device__ dim3 dim_threads() const {
    const dim3 blocks = dim_blocks();
    return dim3(blocks.x * blockDim.x, blocks.y * blockDim.y, blocks.z * blockDim.z);
  }
  __device__ unsigned num_threads() const { return num_blocks() * this_thread_block().size(); }
  __device__ unsigned size() const { return num_threads(); }
};
__device__ inline cluster_group this_cluster() {
  return {};
}

// ---- grids --------------------------------------------------------------------------------------------------------

inline __device__ unsigned grid_barrier_arrived, grid_barrier_generation;

class grid_group {
 public:
  __device__ bool is_valid() const { return flash::simt::all_blocks_run(); }
  __device__ unsigned long long size() const {
    return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z * this_thread_block().size();
  }
  __device__ unsigned long long num_threads() const { return size(); }
  __device__ unsigned long long num_blocks() const {
    return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
  }
  __device__ unsigned long long block_rank() const {
    return blockIdx.x + static_cast<unsigned long long>(gridDim.x) * (blockIdx.y + gridDim.y * blockIdx.z);
  }
  __device__ unsigned long long thread_rank() const {
    return block_rank() * this_thread_block().size() + this_thread_block().thread_rank();
  }
  __device__ dim3 group_dim() const { return gridDim; }
  // The last block to arrive lets the others go.
  __device__ void sync(FLASH_SITE) const {
    flash::simt::need_all_blocks(site);
    __syncthreads(site);
    if (this_thread_block().thread_rank() == 0) {
      const unsigned generation = atomicAdd(&grid_barrier_generation, 0, site);
      __threadfence();
      if (atomicAdd(&grid_barrier_arrived, 1, site) == num_blocks() - 1) {
        atomicExch(&grid_barrier_arrived, 0, site);
        __threadfence();
        atomicAdd(&grid_barrier_generation, 1, site);
      } else {
        while (atomicAdd(&grid_barrier_generation, 0, site) == generation) flash::simt::let_other_blocks_run();
      }
      __threadfence();
    }
    __syncthreads(site);
  }
};
__device__ inline grid_group this_grid() {
  return {};
}

template <class Group>
__device__ void sync(const Group& group, FLASH_SITE) {
  group.sync(site);
}

// ---- reductions: cooperative_groups/reduce.h ------------------------------------------------------------------------

template <class T>
struct plus {
  __device__ T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct less {
  __device__ T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
  __device__ T operator()(T a, T b) const { return a < b ? b : a; }
};
template <unsigned N, class Parent, class T, class Operation>
__device__ T reduce(const thread_block_tile<N, Parent>& tile, T value, Operation operation, FLASH_SITE) {
  for (unsigned bits = N / 2; bits > 0; bits /= 2)
    value = operation(value, tile.shfl_xor(value, static_cast<int>(bits), site));
  return value;
}

}  // namespace cooperative_groups
