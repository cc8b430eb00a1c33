// cooperative_groups.h: in place of CUDA's header of this name, for programs that ./flash check compiles: blocks, tiles
// of a warp, coalesced threads, clusters of blocks, and grids whose blocks all run at a time
// (cudaLaunchCooperativeKernel). Use: #include <cooperative_groups.h>
#pragma once
#include <cuda_runtime.h>

#include "sim/core/named_barriers.hpp"

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

// A value of up to 32 bytes through shuffles of words: each(word) is the shuffle of one.
template <class T, class Shuffle>
__device__ T flash_shuffled(const T& value, const Shuffle& each) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 32, "groups exchange values of at most 32 bytes");
  if constexpr (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8) {
    return each(value);
  } else {
    unsigned words[(sizeof(T) + 3) / 4] = {};
    __builtin_memcpy(words, &value, sizeof(T));
    for (unsigned& word : words) word = each(word);
    T result;
    __builtin_memcpy(&result, words, sizeof(T));
    return result;
  }
}

// Lanes of a warp that are named by a mask, counted from its lowest bit.
class flash_lanes {
 public:
  __device__ flash_lanes(unsigned mask, unsigned rank, unsigned size, unsigned number = 0, unsigned count = 1)
      : mask_(mask), rank_(rank), size_(size), number_(number), count_(count) {}
  __device__ void sync(FLASH_SITE) const { __syncwarp(mask_, site); }
  __device__ unsigned thread_rank() const { return rank_; }
  __device__ unsigned size() const { return size_; }
  __device__ unsigned num_threads() const { return size_; }
  __device__ unsigned mask() const { return mask_; }  // not CUDA's: for thread_group
  __device__ int any(int predicate, FLASH_SITE) const { return __any_sync(mask_, predicate, site); }
  __device__ int all(int predicate, FLASH_SITE) const { return __all_sync(mask_, predicate, site); }
  // Which part this is of what was divided, and of how many.
  __device__ unsigned meta_group_rank() const { return number_; }
  __device__ unsigned meta_group_size() const { return count_; }

 protected:
  // The lanes of a mask of the warp's, as this group's ranks.
  __device__ unsigned packed(unsigned lanes) const {
    unsigned result = 0, rank = 0;
    for (unsigned left = mask_; left != 0; left &= left - 1, ++rank)
      result |= (lanes >> (__ffs(static_cast<int>(left)) - 1) & 1) << rank;
    return result;
  }
  unsigned mask_, rank_, size_, number_, count_;
};

template <unsigned N, class Parent = void>
class thread_block_tile : public flash_lanes {
  static_assert(N == 1 || N == 2 || N == 4 || N == 8 || N == 16 || N == 32, "a tile has 1, 2, 4, 8, 16 or 32 threads");

 public:
  // The part that the thread `rank` of the block is in; number and count: of what was divided.
  __device__ thread_block_tile(unsigned rank, unsigned number, unsigned count)
      : flash_lanes((N == 32 ? ~0u : (1u << N % 32) - 1) << rank / N * N % 32, rank % N, N, number, count) {}
  template <class Other>
  __device__ thread_block_tile(const thread_block_tile<N, Other>& tile)
      : flash_lanes(tile.mask(), tile.thread_rank(), N, tile.meta_group_rank(), tile.meta_group_size()) {}
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  template <class T>
  __device__ T shfl(T value, int lane, FLASH_SITE) const {
    return flash_shuffled(value, [&](auto word) { return __shfl_sync(mask_, word, lane, N, site); });
  }
  template <class T>
  __device__ T shfl_up(T value, unsigned distance, FLASH_SITE) const {
    return flash_shuffled(value, [&](auto word) { return __shfl_up_sync(mask_, word, distance, N, site); });
  }
  template <class T>
  __device__ T shfl_down(T value, unsigned distance, FLASH_SITE) const {
    return flash_shuffled(value, [&](auto word) { return __shfl_down_sync(mask_, word, distance, N, site); });
  }
  template <class T>
  __device__ T shfl_xor(T value, int bits, FLASH_SITE) const {
    return flash_shuffled(value, [&](auto word) { return __shfl_xor_sync(mask_, word, bits, N, site); });
  }
  __device__ unsigned ballot(int predicate, FLASH_SITE) const {
    return (__ballot_sync(mask_, predicate, site) & mask_) >> __ffs(static_cast<int>(mask_)) - 1;
  }
  template <class T>
  __device__ unsigned match_any(T value, FLASH_SITE) const {
    return __match_any_sync(mask_, value, site) >> __ffs(static_cast<int>(mask_)) - 1;
  }
  template <class T>
  __device__ unsigned match_all(T value, int& all, FLASH_SITE) const {
    return __match_all_sync(mask_, value, &all, site) >> __ffs(static_cast<int>(mask_)) - 1;
  }
};

// ---- tiles of several warps ---------------------------------------------------------------------------------------

// What a GPU without memory of its own for it needs of the program: this_thread_block(memory). Here it is not used.
template <unsigned kMostThreads = 1024>
struct block_tile_memory {
  unsigned long long of_warps[kMostThreads / 32];
};
template <unsigned kMostThreads>
__device__ thread_block this_thread_block(block_tile_memory<kMostThreads>&) {
  __syncthreads();
  return {};
}

// Where the warps of a block's tiles of N threads leave values for one another. Each N has its own: tiles of one size wait
// for one another, and not for those of another size.
template <class T, unsigned N>
__device__ T* flash_values_of_warps() {
  __shared__ T values[32];
  return values;
}

// A part of a block, of 64 to 512 threads. Its barrier is one of its own; a value goes from warp to warp through shared
// memory, behind one barrier and before another one.
template <unsigned N>
class flash_warps {
  static_assert(N == 64 || N == 128 || N == 256 || N == 512, "a tile of several warps has 64, 128, 256 or 512 threads");

 public:
  __device__ flash_warps(unsigned rank, unsigned number, unsigned count)
      : in_block_(rank / N), rank_(rank % N), number_(number), count_(count) {}
  __device__ void sync(FLASH_SITE) const {
    const flash::simt::NamedBarrierOperands said{flash::simt::kTileBarrier + static_cast<int>(in_block_), N};
    flash::simt::warp_op(flash::simt::WarpOp::bar_sync, ~0u, reinterpret_cast<std::uintptr_t>(&said), site);
  }
  __device__ unsigned thread_rank() const { return rank_; }
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  __device__ unsigned meta_group_rank() const { return number_; }
  __device__ unsigned meta_group_size() const { return count_; }
  __device__ int any(int predicate, FLASH_SITE) const { return combined(__any_sync(~0u, predicate, site), Or{}, site); }
  __device__ int all(int predicate, FLASH_SITE) const {
    return combined(__all_sync(~0u, predicate, site), And{}, site);
  }
  template <class T>
  __device__ T shfl(T value, unsigned rank, FLASH_SITE) const {
    T* const values = flash_values_of_warps<T, N>() + first_warp();
    if (rank_ == rank) values[0] = value;
    sync(site);
    const T result = values[0];
    sync(site);
    return result;
  }
  // Not CUDA's by this name: operation(values of the warps), from the first one on; each is the same in all of its lanes.
  template <class T, class Operation>
  __device__ T combined(T of_warp, Operation operation, flash::simt::Site site) const {
    T* const values = flash_values_of_warps<T, N>() + first_warp();
    if (rank_ % 32 == 0) values[rank_ / 32] = of_warp;
    sync(site);
    T result = values[0];
    for (unsigned warp = 1; warp < N / 32; ++warp) result = operation(result, values[warp]);
    sync(site);
    return result;
  }

 private:
  struct Or {
    __device__ int operator()(int a, int b) const { return a | b; }
  };
  struct And {
    __device__ int operator()(int a, int b) const { return a & b; }
  };
  __device__ unsigned first_warp() const { return in_block_ * (N / 32); }
  unsigned in_block_, rank_, number_, count_;
};
template <unsigned N, class Parent>
  requires(N > 32)
class thread_block_tile<N, Parent> : public flash_warps<N> {
 public:
  using flash_warps<N>::flash_warps;
  template <class Other>
  __device__ thread_block_tile(const thread_block_tile<N, Other>& tile) : flash_warps<N>(tile) {}
};

template <unsigned N>
__device__ thread_block_tile<N, thread_block> tiled_partition(const thread_block& block) {
  return {block.thread_rank(), block.thread_rank() / N, (block.size() + N - 1) / N};
}
template <unsigned N, unsigned M, class Parent>
__device__ thread_block_tile<N, thread_block_tile<M, Parent>> tiled_partition(
    const thread_block_tile<M, Parent>& tile) {
  static_assert(N <= M, "a part is no larger than the whole");
  return {this_thread_block().thread_rank(), tile.thread_rank() / N, M / N};
}

// Any group, for functions that take each: a block, a tile, coalesced threads.
class thread_group {
 public:
  __device__ thread_group(const thread_block& block) : rank_(block.thread_rank()), size_(block.size()) {}
  __device__ thread_group(const flash_lanes& lanes)
      : mask_(lanes.mask()), rank_(lanes.thread_rank()), size_(lanes.size()) {}
  __device__ unsigned mask() const { return mask_; }  // not CUDA's: for tiled_partition
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
  __device__ explicit coalesced_group(unsigned mask, unsigned number = 0, unsigned count = 1)
      : flash_lanes(mask, static_cast<unsigned>(__popc(mask & ((1u << this_thread_block().thread_rank() % 32) - 1))),
                    static_cast<unsigned>(__popc(mask)), number, count) {}
  template <class T>
  __device__ T shfl(T value, unsigned rank, FLASH_SITE) const {
    return from(value, rank % size_, site);
  }
  // Who has nobody so far away keeps its own value.
  template <class T>
  __device__ T shfl_up(T value, unsigned distance, FLASH_SITE) const {
    return from(value, rank_ < distance ? rank_ : rank_ - distance, site);
  }
  template <class T>
  __device__ T shfl_down(T value, unsigned distance, FLASH_SITE) const {
    return from(value, rank_ + distance < size_ ? rank_ + distance : rank_, site);
  }
  __device__ unsigned ballot(int predicate, FLASH_SITE) const { return packed(__ballot_sync(mask_, predicate, site)); }
  template <class T>
  __device__ unsigned match_any(T value, FLASH_SITE) const {
    return packed(__match_any_sync(mask_, value, site));
  }
  template <class T>
  __device__ unsigned match_all(T value, int& all, FLASH_SITE) const {
    return packed(__match_all_sync(mask_, value, &all, site));
  }

 private:
  template <class T>
  __device__ T from(T value, unsigned rank, flash::simt::Site site) const {
    unsigned lanes = mask_;
    for (; rank > 0; --rank) lanes &= lanes - 1;
    const int lane = __ffs(static_cast<int>(lanes)) - 1;
    return flash_shuffled(value, [&](auto word) { return __shfl_sync(mask_, word, lane, 32, site); });
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
// Parts of `size` threads (a power of two) of any group, by rank.
__device__ inline coalesced_group tiled_partition(const coalesced_group& group, unsigned size) {
  unsigned mask = 0, rank = 0, part = group.thread_rank() / size;
  for (unsigned left = group.mask(); left != 0; left &= left - 1, ++rank)
    if (rank / size == part) mask |= left & -left;
  return coalesced_group(mask, part, (group.size() + size - 1) / size);
}
template <unsigned N>
__device__ coalesced_group tiled_partition(const coalesced_group& group) {
  return tiled_partition(group, N);
}
__device__ inline thread_group tiled_partition(const thread_group& group, unsigned size) {
  if (group.mask() != 0) return tiled_partition(coalesced_group(group.mask()), size);
  const unsigned rank = group.thread_rank(), lanes = size == 32 ? ~0u : (1u << size) - 1;
  return flash_lanes(lanes << rank / size * size % 32, rank % size, size);
}

// f(arguments…) by one thread of the group; the second gives its result to all of them.
template <class Group, class F, class... Arguments>
__device__ void invoke_one(const Group& group, F&& f, Arguments&&... arguments) {
  if (group.thread_rank() == 0) f(static_cast<Arguments&&>(arguments)...);
}
template <class Group, class F, class... Arguments>
__device__ auto invoke_one_broadcast(const Group& group, F&& f, Arguments&&... arguments) {
  decltype(f(static_cast<Arguments&&>(arguments)...)) result{};
  if (group.thread_rank() == 0) result = f(static_cast<Arguments&&>(arguments)...);
  return group.shfl(result, 0);
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

}  // namespace cooperative_groups
