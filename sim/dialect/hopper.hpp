// hopper.hpp: Hopper's instructions for barriers and bulk copies: mbarrier, tensor maps, TMA, proxy fences, elect.
// gpu/hopper.cuh has the same functions in inline assembly. Meaning: PTX ISA 9.0, whose sections are named here; what
// the simulator makes of it: sim/core/mbarrier.hpp, bulk.hpp, tensor_map.hpp. Use: #include "gpu/hopper.cuh".
#pragma once
#include <array>
#include <cstdint>
#include <type_traits>

#include "sim/core/simt.hpp"
#include "sim/core/tensor_map.hpp"
#include "sim/dialect/warpgroup.hpp"

namespace flash::inline FLASH_MACHINE {

// ---- mbarrier: 8 bytes of shared memory, a multiple of 8. "Parallel Synchronization and Communication: mbarrier" ---

// Makes an mbarrier whose phases have so many arrivals, 1 to 2^20 - 1. One thread, once, before anybody uses it:
// mbarrier_init, fence_mbarrier_init, __syncthreads.
FLASH_INLINE void mbarrier_init(std::uint64_t* barrier, unsigned arrivals, FLASH_SITE) {
  flash::simt::mbarrier_init(barrier, arrivals, site);
}
// Shows the mbarriers that this thread has made to the copies that will complete on them. "membar/fence"
FLASH_INLINE void fence_mbarrier_init() {
  flash::simt::fence_mbarrier_init();
}
// One arrival in the current phase. What this thread did before it is known to who waits for the phase (release, CTA).
FLASH_INLINE void mbarrier_arrive(std::uint64_t* barrier, FLASH_SITE) {
  flash::simt::mbarrier_arrive(barrier, false, 0, site);
}
// The same, and the phase is to last until so many further bytes have been copied: what the boxes of its copies have,
// parts outside the tensor included. At most 2^20 - 1 in a phase.
FLASH_INLINE void mbarrier_arrive_expect_tx(std::uint64_t* barrier, unsigned bytes, FLASH_SITE) {
  flash::simt::mbarrier_arrive(barrier, true, bytes, site);
}
// Waits until the phase of that parity is complete: the phases count 0, 1, 0, 1 …, and before the first one 1 counts as
// complete. Only the current phase and the one before it can be meant. Knows then what was released to it (acquire,
// CTA), and the bytes that the phase's copies have brought.
FLASH_INLINE void mbarrier_wait(std::uint64_t* barrier, unsigned parity, FLASH_SITE) {
  flash::simt::mbarrier_wait(barrier, parity, site);
}
// The same without waiting: is the phase complete? True means what a returned wait means; false says nothing. A loop
// that asks again lets the other threads run.
FLASH_INLINE bool mbarrier_test_wait(std::uint64_t* barrier, unsigned parity, FLASH_SITE) {
  return flash::simt::mbarrier_test_wait(barrier, parity, "mbarrier.test_wait", site);
}
// The same; on a GPU it may sleep for a while before it says false. Here it answers at once.
FLASH_INLINE bool mbarrier_try_wait(std::uint64_t* barrier, unsigned parity, FLASH_SITE) {
  return flash::simt::mbarrier_test_wait(barrier, parity, "mbarrier.try_wait", site);
}
// Ends the mbarrier: its 8 bytes are ordinary memory again, of which mbarrier_init may make another one. One thread,
// in order after all that the others did with it; nobody waits at it, and no copy is to complete on it.
FLASH_INLINE void mbarrier_inval(std::uint64_t* barrier, FLASH_SITE) {
  flash::simt::mbarrier_inval(barrier, site);
}

// ---- copies of bytes that follow one another: "Data Movement and Conversion: cp.async.bulk" -------------------------
// Both addresses are multiples of 16, as is the number of bytes, which is not 0. One thread. No tensor map is needed.

// Begins to copy bytes to shared memory. They complete on the mbarrier: they are there for who has waited for its
// phase.
FLASH_INLINE void cp_async_bulk(void* shared, const void* global, unsigned bytes, std::uint64_t* barrier, FLASH_SITE) {
  flash::simt::bulk_load(shared, global, bytes, barrier, site);
}
// Begins to fetch bytes into the L2 cache: nothing that a program could see or wait for. "cp.async.bulk.prefetch"
FLASH_INLINE void cp_async_bulk_prefetch(const void* global, unsigned bytes, FLASH_SITE) {
  flash::simt::bulk_prefetch(global, bytes, site);
}
// Begins to copy bytes to global memory. Proxy fence and groups: as of cp_async_bulk_tensor_store below.
FLASH_INLINE void cp_async_bulk_store(void* global, const void* shared, unsigned bytes, FLASH_SITE) {
  flash::simt::bulk_store(global, shared, bytes, false, site);
}
// Begins to add floats to those in global memory, each by an atomic addition of its own (relaxed, of the device): in
// which order those of several blocks come is open. Rounds to nearest, keeps subnormals. Proxy fence and groups: the
// same. "cp.reduce.async.bulk"
FLASH_INLINE void cp_reduce_async_bulk_add(float* global, const float* shared, unsigned bytes, FLASH_SITE) {
  flash::simt::bulk_store(global, shared, bytes, true, site);
}

// ---- copies of tiles (TMA): "Data Movement and Conversion: cp.async.bulk.tensor" -----------------------------------

// A tensor of 2 to 5 dimensions in global memory, and the box of it that one copy moves: `sizes` and `box` in elements,
// x first; `strides` of y and so on in bytes. In shared memory a box is a tile: rows of box[0] elements one after the
// other, the 16 bytes at address a moved to a ^ (a >> 3 & 0x70), the 128-byte swizzle. A kernel takes the map as
// `const __grid_constant__ TensorMap map` and passes &map on.
// Throws MachineError unless: the data begin at a multiple of 16; strides are multiples of 16 below 2^40; sizes are 1
// to 2^32, boxes 1 to 256; a row of the box has 16 to 128 bytes, a multiple of 16.
using TensorMap = flash::simt::TensorMap;
template <class T, std::size_t kRank>
TensorMap tensor_map(const T* data, const std::array<std::uint64_t, kRank>& sizes,
                     const std::array<std::uint64_t, kRank - 1>& strides, const std::array<std::uint32_t, kRank>& box) {
  static_assert(kRank >= 2 && kRank <= 5 && sizeof(T) == 2, "tensor_map: 2 to 5 dimensions of 16-bit floats");
  return flash::simt::make_tensor_map(data, kRank, sizes.data(), strides.data(), box.data());
}

// Begins to copy the box at these coordinates (x first; they may be negative, or past the end) to a tile in shared
// memory, a multiple of 128 bytes. Elements outside the tensor become zeros. Rows lie 128 bytes apart, however short.
// The box's bytes, all of them, complete on the mbarrier: they are there for who has waited for its phase. One thread.
FLASH_INLINE void cp_async_bulk_tensor(void* shared, const TensorMap* map, std::uint64_t* barrier, int x, int y,
                                       FLASH_SITE) {
  const int coordinates[] = {x, y};
  flash::simt::tensor_load(shared, map, barrier, coordinates, 2, site);
}
FLASH_INLINE void cp_async_bulk_tensor(void* shared, const TensorMap* map, std::uint64_t* barrier, int x, int y, int z,
                                       FLASH_SITE) {
  const int coordinates[] = {x, y, z};
  flash::simt::tensor_load(shared, map, barrier, coordinates, 3, site);
}
FLASH_INLINE void cp_async_bulk_tensor(void* shared, const TensorMap* map, std::uint64_t* barrier, int x, int y, int z,
                                       int w, FLASH_SITE) {
  const int coordinates[] = {x, y, z, w};
  flash::simt::tensor_load(shared, map, barrier, coordinates, 4, site);
}
FLASH_INLINE void cp_async_bulk_tensor(void* shared, const TensorMap* map, std::uint64_t* barrier, int x, int y, int z,
                                       int w, int v, FLASH_SITE) {
  const int coordinates[] = {x, y, z, w, v};
  flash::simt::tensor_load(shared, map, barrier, coordinates, 5, site);
}
// Begins to fetch the box into the L2 cache, where a later copy finds it. Nobody can tell but by the clock: nothing
// waits for it, and it brings no bytes to the multiprocessor.
FLASH_INLINE void cp_async_bulk_prefetch_tensor(const TensorMap* map, int, int, int, int, FLASH_SITE) {
  flash::simt::tensor_prefetch(map, 4, site);
}
FLASH_INLINE void cp_async_bulk_prefetch_tensor(const TensorMap* map, int, int, int, int, int, FLASH_SITE) {
  flash::simt::tensor_prefetch(map, 5, site);
}
// Begins to copy a tile to the box at these coordinates, none of them negative; what lies outside the tensor is left
// out. The tile's ordinary stores need fence_proxy_async by the threads that made them, and a barrier, before this.
FLASH_INLINE void cp_async_bulk_tensor_store(const TensorMap* map, const void* shared, int x, int y, FLASH_SITE) {
  const int coordinates[] = {x, y};
  flash::simt::tensor_store(map, shared, coordinates, 2, site);
}
FLASH_INLINE void cp_async_bulk_tensor_store(const TensorMap* map, const void* shared, int x, int y, int z,
                                             FLASH_SITE) {
  const int coordinates[] = {x, y, z};
  flash::simt::tensor_store(map, shared, coordinates, 3, site);
}
FLASH_INLINE void cp_async_bulk_tensor_store(const TensorMap* map, const void* shared, int x, int y, int z, int w,
                                             FLASH_SITE) {
  const int coordinates[] = {x, y, z, w};
  flash::simt::tensor_store(map, shared, coordinates, 4, site);
}
FLASH_INLINE void cp_async_bulk_tensor_store(const TensorMap* map, const void* shared, int x, int y, int z, int w,
                                             int v, FLASH_SITE) {
  const int coordinates[] = {x, y, z, w, v};
  flash::simt::tensor_store(map, shared, coordinates, 5, site);
}
// The stores and reductions that this thread began since its last group become a group (perhaps an empty one).
FLASH_INLINE void cp_async_bulk_commit() {
  flash::simt::bulk_commit();
}
// Waits until all but the last kPending groups of this thread are done: have written, or added, what they are to.
template <int kPending>
FLASH_INLINE void cp_async_bulk_wait() {
  flash::simt::bulk_wait(kPending, false);
}
// The same until they have read their tiles, which may then be written again.
template <int kPending>
FLASH_INLINE void cp_async_bulk_wait_read() {
  flash::simt::bulk_wait(kPending, true);
}
// Copies and wgmma reach shared memory by a way of their own, the async proxy. What this thread has stored before, and
// what it knows that others have, is there for those of them that come in order after this. "membar/fence"
FLASH_INLINE void fence_proxy_async() {
  flash::simt::fence_proxy_async();
}
// The same for global memory: between what tells this thread that others have written there, by stores or by copies of
// their own, and a copy that reads it or adds to it. The simulator does not ask for it (docs/simulator-limits.md).
FLASH_INLINE void fence_proxy_async_global() {}

// ---- clusters of blocks: "Cluster of Cooperative Thread Arrays", "barrier.cluster", "mapa" --------------------------

// A kernel that says __cluster_dims__(2) is launched in clusters of two blocks, which run at a time and reach one
// another's shared memory. This block's rank in its cluster and the cluster's number of blocks: 0 and 1 without one.
FLASH_INLINE unsigned cluster_ctarank() {
  return flash::simt::cluster_rank();
}
FLASH_INLINE unsigned cluster_nctarank() {
  return flash::simt::cluster_size();
}
// The barrier of all threads of the cluster that have not exited: each arrives and then waits, once in turn. What a
// thread did before it arrived is known to all that have waited (release, acquire; scope: the cluster).
FLASH_INLINE void barrier_cluster_arrive(FLASH_SITE) {
  flash::simt::barrier_cluster_arrive(site);
}
FLASH_INLINE void barrier_cluster_wait(FLASH_SITE) {
  flash::simt::barrier_cluster_wait(site);
}
// The address of the same variable in the shared memory of the block of that rank, for ordinary loads and stores and
// for atomics. `shared` is an address in the block's own shared memory. The other block must have begun, and must not
// end before the last access.
template <class T>
FLASH_INLINE T* mapa(T* shared, unsigned rank, FLASH_SITE) {
  return static_cast<T*>(flash::simt::map_shared(shared, rank, site));
}

// An arrival at the mbarrier of the cluster's block of that rank; `barrier` is this block's own, at the same place.
// What this thread did before it is known to who waits there with mbarrier_wait_cluster (release, cluster).
// The mbarrier is made, published and known: mbarrier_init, fence_mbarrier_init, then a barrier of the cluster.
FLASH_INLINE void mbarrier_arrive_cluster(std::uint64_t* barrier, unsigned rank, FLASH_SITE) {
  flash::simt::mbarrier_arrive_cluster(barrier, rank, false, site);
}
// The same for a thread that has only read: who waits may overwrite that, and what copies have brought or read; of what
// this thread has stored it knows nothing. (A release at the cluster's scope makes the GPU wait for all that the thread
// has written, additions to global memory too.)
FLASH_INLINE void mbarrier_arrive_cluster_relaxed(std::uint64_t* barrier, unsigned rank, FLASH_SITE) {
  flash::simt::mbarrier_arrive_cluster(barrier, rank, true, site);
}
// mbarrier_wait with the scope of the cluster: knows of other blocks' arrivals what they released (acquire, cluster).
// mbarrier_wait itself, whose scope is the block, returns as well, but knows of its own block's arrivals only.
FLASH_INLINE void mbarrier_wait_cluster(std::uint64_t* barrier, unsigned parity, FLASH_SITE) {
  flash::simt::mbarrier_wait_cluster(barrier, parity, site);
}

// Begins to copy that many bytes, a multiple of 16, from this block's shared memory to that of another one. The
// addresses are multiples of 16. `remote` and `remote_barrier` are what mapa gives for one rank; the bytes complete on
// that mbarrier. The source may be written again when the block that has got it says so. "cp.async.bulk"
FLASH_INLINE void cp_async_bulk_cluster(void* remote, const void* shared, unsigned bytes, std::uint64_t* remote_barrier,
                                        FLASH_SITE) {
  flash::simt::bulk_send(remote, shared, bytes, remote_barrier, site);
}
// cp_async_bulk_tensor to several blocks of the cluster, those of the ranks whose bits are set in `blocks`: the box
// goes to the same place in the shared memory of each, and its bytes complete on the mbarrier at the same place there.
// Each block expects its own. The bytes are read from global memory once. "cp.async.bulk.tensor", .multicast::cluster
FLASH_INLINE void cp_async_bulk_tensor_multicast(void* shared, const TensorMap* map, std::uint64_t* barrier, int x,
                                                 int y, unsigned short blocks, FLASH_SITE) {
  const int coordinates[] = {x, y};
  flash::simt::tensor_multicast(shared, map, barrier, coordinates, 2, blocks, site);
}
FLASH_INLINE void cp_async_bulk_tensor_multicast(void* shared, const TensorMap* map, std::uint64_t* barrier, int x,
                                                 int y, int z, unsigned short blocks, FLASH_SITE) {
  const int coordinates[] = {x, y, z};
  flash::simt::tensor_multicast(shared, map, barrier, coordinates, 3, blocks, site);
}
FLASH_INLINE void cp_async_bulk_tensor_multicast(void* shared, const TensorMap* map, std::uint64_t* barrier, int x,
                                                 int y, int z, int w, unsigned short blocks, FLASH_SITE) {
  const int coordinates[] = {x, y, z, w};
  flash::simt::tensor_multicast(shared, map, barrier, coordinates, 4, blocks, site);
}

// ---- and around them -----------------------------------------------------------------------------------------------

// Adds four floats to four that begin at `global`, a multiple of 16 in global memory: four atomic additions, relaxed,
// for the whole device, in one request; nothing comes back. Subnormal numbers count as zeros. "red"
FLASH_INLINE void red_add_v4(float* global, float4 value, FLASH_SITE) {
  atomicAdd(reinterpret_cast<float4*>(global), value, site);
}

// Adds to a number in global memory, a relaxed atomic of the device. Who reads the sum by wait_at_least knows what this
// thread did before it, and what it knew of (release). "red"
FLASH_INLINE void red_release_add(unsigned* count, unsigned value, FLASH_SITE) {
  __threadfence();
  flash::simt::counts(flash::simt::Counting::adds, value);
  atomicAdd(count, value, site);
}
// Waits until the number is at least that large: one that blocks count up. Knows then what those did whose additions
// made it so large (acquire, device); of later ones nothing, as it may have looked before them. Counts as one atomic,
// however often it has to look. Who counts must run: a block may not wait for one that begins after it. "ld"
FLASH_INLINE void wait_at_least(const unsigned* count, unsigned least, FLASH_SITE) {
  flash::simt::wait_at_least(count, least, site);
  flash::simt::counts(flash::simt::Counting::waits, least);
  atomicAdd(const_cast<unsigned*>(count), 0u, site);
  __threadfence();
}

// True for one lane of the warp, whose 32 lanes call it: the lowest here; PTX does not say which. "elect.sync"
FLASH_INLINE bool elect_sync(FLASH_SITE) {
  return flash::simt::warp_op(flash::simt::WarpOp::elect, 0xffffffffu, 0, site) != 0;
}

}  // namespace flash::inline FLASH_MACHINE
