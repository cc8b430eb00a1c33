// museum_expected.hpp: what the checked machine must say of the exhibits of museum_tma.cu and museum_wgmma.cu, word for
// word; the others' are in museum_test.cpp. "{k}" is the file and line that carries the mark "//@ exhibit:k".
// Use: museum_test.cpp.
#pragma once

namespace flash {

struct Expected {
  const char* exhibit;
  const char* report;  // all findings, one after the other
};

// clang-format off
inline constexpr Expected tma_expected[] = {
    {"tma_no_wait",
     R"(asynchronous copy: read of shared Box+0 (2 bytes) while cp.async.bulk.tensor writes it
  read                  {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk.tensor  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait on the load's mbarrier (mbarrier_wait) before this read
  seen 64 times
)"},
    {"tma_wrong_parity",
     R"(asynchronous copy: read of shared Box+0 (2 bytes) while cp.async.bulk.tensor writes it
  read                  {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk.tensor  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait on the load's mbarrier (mbarrier_wait) before this read
  seen 64 times
)"},
    {"tma_one_waits",
     R"(asynchronous copy: read of shared Box+64 (2 bytes) while cp.async.bulk.tensor writes it
  read                  {1}  block (0,0,0) warp 1 lane 0
  cp.async.bulk.tensor  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait on the load's mbarrier (mbarrier_wait) before this read
  seen 32 times
)"},
    {"tma_expects_too_much",
     R"(deadlock: no thread of the block can go on
  64 wait at mbarrier shared Box+1024, parity 0: 1024 bytes missing  {1}  block (0,0,0) warp 0 lane 0
  remedy: expect as many bytes as the boxes of the phase's copies have, edges included
)"},
    {"tma_counts_valid_rows",
     R"(deadlock: no thread of the block can go on
  2 wait at mbarrier shared Box+1024, parity 0: 512 bytes too many  {1}  block (0,0,0) warp 0 lane 0
  62 wait at __syncwarp                                             {2}  block (0,0,0) warp 0 lane 1
  remedy: expect as many bytes as the boxes of the phase's copies have, edges included
)"},
    {"tma_expects_too_little",
     R"(mbarrier: a phase of mbarrier shared TwoBoxes+2048 expects 1024 bytes, its copies bring 2048
  cp.async.bulk.tensor  {2}  block (0,0,0) warp 0 lane 0
  remedy: expect as many bytes as the boxes of the phase's copies have, edges included
asynchronous copy: read of shared TwoBoxes+1024 (2 bytes) while cp.async.bulk.tensor writes it
  read                  {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk.tensor  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait on the load's mbarrier (mbarrier_wait) before this read
  seen 64 times
)"},
    {"tma_refilled_early",
     R"(asynchronous copy: read of shared Box+2 (2 bytes) while cp.async.bulk.tensor writes it
  read                  {2}  block (0,0,0) warp 0 lane 1
  cp.async.bulk.tensor  {1}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait on the load's mbarrier (mbarrier_wait) before this read
  seen 63 times
)"},
    {"tma_q_released_early",
     R"(race: cp.async.bulk.tensor after read of shared Box+16 (16 bytes)
  cp.async.bulk.tensor  {1}  block (0,0,0) warp 1 lane 0
  read                  {2}  block (0,0,0) warp 0 lane 8
  remedy: put __syncthreads() or an mbarrier between the two; a lane that arrives for its warp needs __syncwarp() first
  seen 217 times
)"},
    {"tma_over_stores",
     R"(proxy fence: cp.async.bulk.tensor overwrites shared Box+0, written by an ordinary store without a proxy fence
  cp.async.bulk.tensor  {1}  block (0,0,0) warp 0 lane 0
  write                 {2}  block (0,0,0) warp 0 lane 0
  remedy: let the storing thread call fence_proxy_async() before the barrier
  seen 8 times
)"},
    {"tma_misaligned",
     R"(misaligned: cp.async.bulk.tensor with a tile at shared TwoBoxes+16
  loads  {1}  block (0,0,0) warp 0 lane 0
  remedy: a tile begins at a multiple of 128 bytes; of 1024, if its first row is not to be swizzled
)"},
    {"tma_past_end",
     R"(out of bounds: write of shared TwoBoxes+3072 (4 bytes); TwoBoxes has 3072 bytes
  cp.async.bulk.tensor  {1}  block (0,0,0) warp 0 lane 0
  remedy: guard the access or fix the index
)"},
    {"tma_rank",
     R"(asynchronous copy: cp.async.bulk.tensor with 3 coordinates, its tensor map has 2 dimensions
  loads  {1}  block (0,0,0) warp 0 lane 0
  remedy: give a coordinate for each dimension of a map that tensor_map made
)"},
    {"tma_map_too_large",
     R"(out of bounds: read of in[4096] (2 bytes); in has 4096 elements
  cp.async.bulk.tensor  {1}  block (0,0,0) warp 0 lane 0
  remedy: guard the access or fix the index
)"},
    {"tma_one_too_many",
     R"(asynchronous copy: the block ends and no thread has waited for a load
  cp.async.bulk.tensor  {1}  block (0,0,0) warp 0 lane 0
  remedy: wait on its mbarrier (mbarrier_wait) before the block ends, or do not load
)"},
    {"tma_no_proxy_fence",
     R"(proxy fence: cp.async.bulk.tensor (store) reads shared Box+0, written by an ordinary store without a proxy fence
  cp.async.bulk.tensor (store)  {1}  block (0,0,0) warp 0 lane 0
  write                         {2}  block (0,0,0) warp 0 lane 0
  remedy: let the storing thread call fence_proxy_async() before the barrier
  seen 64 times
)"},
    {"tma_store_no_barrier",
     R"(race: cp.async.bulk.tensor (store) after write of shared Box+0 (16 bytes)
  cp.async.bulk.tensor (store)  {1}  block (0,0,0) warp 1 lane 31
  write                         {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() or an mbarrier between the two; a lane that arrives for its warp needs __syncwarp() first
  seen 64 times
)"},
    {"tma_staging_reused",
     R"(asynchronous copy: write of shared Box+0 (2 bytes) while cp.async.bulk.tensor (store) reads it
  write                         {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk.tensor (store)  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the issuing thread wait for it (cp_async_bulk_wait_read), then a barrier, before this write
  seen 512 times
)"},
    {"tma_left_early",
     R"(asynchronous copy: the block ends before a store was known to have read its tile
  cp.async.bulk.tensor (store)  {1}  block (0,0,0) warp 0 lane 0
  remedy: let the issuing thread wait for it (cp_async_bulk_wait_read<0>) before it exits
)"},
    {"tma_no_commit",
     R"(asynchronous copy: the block ends before a store was known to have read its tile
  cp.async.bulk.tensor (store)  {1}  block (0,0,0) warp 0 lane 0
  remedy: commit it (cp_async_bulk_commit) and wait for it (cp_async_bulk_wait_read<0>) before the exit
)"},
    {"tma_read_is_not_written",
     R"(asynchronous copy: read of to[0] (2 bytes) while cp.async.bulk.tensor (store) writes it
  read                          {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk.tensor (store)  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the issuing thread wait for the writes (cp_async_bulk_wait, not its _read form) before this read
  seen 64 times
)"},
    {"mbarrier_not_published",
     R"(proxy fence: a copy completes on mbarrier shared Box+1024, which no fence has published since mbarrier_init
  copies         {1}  block (0,0,0) warp 0 lane 0
  mbarrier.init  {2}  block (0,0,0) warp 0 lane 0
  remedy: call fence_mbarrier_init() behind mbarrier_init, before the barrier
)"},
    {"mbarrier_init_unordered",
     R"(race: mbarrier.try_wait after mbarrier.init of shared Box+1024 (8 bytes)
  mbarrier.try_wait  {1}  block (0,0,0) warp 1 lane 0
  mbarrier.init      {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
  seen 63 times
)"},
    {"mbarrier_arrivals_missing",
     R"(deadlock: no thread of the block can go on
  64 wait at mbarrier shared Box+1024, parity 0: 31 arrivals missing  {1}  block (0,0,0) warp 0 lane 0
  remedy: make every waiting thread's partners arrive
)"},
    {"mbarrier_too_many_arrivals",
     R"(mbarrier: a phase of mbarrier shared Box+1024 has more arrivals than the 1 of its mbarrier_init
  arrives  {1}  block (0,0,0) warp 0 lane 0
  remedy: let as many threads arrive as mbarrier_init was told
)"},
    {"mbarrier_phase_skipped",
     R"(mbarrier: an arrival at mbarrier shared Box+1024 before anybody has waited for its last phase
  arrives  {1}  block (0,0,0) warp 0 lane 0
  remedy: wait for each phase before the arrivals of the next one
)"},
    {"mbarrier_overtaken",
     R"(deadlock: no thread of the block can go on
  63 wait at mbarrier shared Box+1024, parity 0: 1 arrival missing  {1}  block (0,0,0) warp 0 lane 1
  1 exited                                                                             block (0,0,0) warp 0 lane 0
  remedy: make every waiting thread's partners arrive
)"},
    {"mbarrier_misaligned",
     R"(misaligned: mbarrier_init of shared Box+1028
  makes  {1}  block (0,0,0) warp 0 lane 0
  remedy: an mbarrier needs an address that is a multiple of 8
)"},
    {"mbarrier_made_twice",
     R"(mbarrier: mbarrier_init of shared Box+1024, which is an mbarrier already
  makes  {1}  block (0,0,0) warp 0 lane 0
  made   museum_tma.cu:19   block (0,0,0) warp 0 lane 0
  remedy: make each mbarrier once; its phases follow one another
)"},
    {"mbarrier_not_made",
     R"(mbarrier: mbarrier.arrive on shared Box+1032, which is no mbarrier
  uses  {1}  block (0,0,0) warp 0 lane 0
  remedy: let one thread call mbarrier_init and fence_mbarrier_init for it, then __syncthreads()
)"},
    {"mbarrier_overwritten",
     R"(mbarrier: write of shared Box+1024 (2 bytes), which is an mbarrier
  write  {1}  block (0,0,0) warp 0 lane 0
  remedy: leave an mbarrier's 8 bytes to the instructions on mbarriers
)"},
    {"mbarrier_of_none",
     R"(mbarrier: mbarrier_init of 0 arrivals
  makes  museum_tma.cu:19  block (0,0,0) warp 0 lane 0
  remedy: expect 1 to 1048575 arrivals
)"},
};
inline constexpr Expected wgmma_expected[] = {
    {"wgmma_no_fence",
     R"(warpgroup operation: wgmma without a wgmma_fence before it
  wgmma  {1}  block (0,0,0) warp 0 lane 0
  remedy: begin with wgmma_fence(): it puts the registers' values before
  seen 128 times
)"},
    {"wgmma_rescaled",
     R"(warpgroup operation: wgmma after an access to d[0], and no wgmma_fence between the two
  wgmma   {1}  block (0,0,0) warp 0 lane 0
  access  {2}  block (0,0,0) warp 0 lane 0
  remedy: put wgmma_fence() between the access and the product
  seen 256 times
)"},
    {"wgmma_no_wait",
     R"(asynchronous product: read of d[5] while wgmma writes it
  read   {1}  block (0,0,0) warp 0 lane 0
  wgmma  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the warpgroup wait for it (wgmma_wait) before this read
  seen 128 times
)"},
    {"wgmma_wait_too_short",
     R"(asynchronous product: read of d[0] while wgmma writes it
  read   {1}  block (0,0,0) warp 0 lane 0
  wgmma  {2}  block (0,0,0) warp 0 lane 0
  remedy: wait for its group, too: the last wgmma_wait<1> left it under way
  seen 128 times
)"},
    {"wgmma_no_commit",
     R"(asynchronous product: read of d[0] while wgmma writes it
  read   {1}  block (0,0,0) warp 0 lane 0
  wgmma  {2}  block (0,0,0) warp 0 lane 0
  remedy: commit the product (wgmma_commit), then wait for it (wgmma_wait) before this read
  seen 128 times
)"},
    {"wgmma_named_early",
     R"(asynchronous product: wgmma_wait<1> names an array whose product it leaves under way
  waits  {1}  block (0,0,0) warp 0 lane 0
  remedy: wait for fewer groups to be left, or name the array in the wait for its group
  seen 128 times
)"},
    {"wgmma_unnamed",
     R"(asynchronous product: read of an accumulator that no wgmma_wait has named
  read  {1}  block (0,0,0) warp 0 lane 0
  remedy: name the array in the wait, so that the compiler keeps this read behind it
  seen 128 times
)"},
    {"wgmma_a_rewritten",
     R"(asynchronous product: write of a[2] while wgmma reads it
  write  {1}  block (0,0,0) warp 0 lane 0
  wgmma  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the warpgroup wait for it (wgmma_wait) before this write
  seen 128 times
)"},
    {"wgmma_two_shapes",
     R"(warpgroup operation: wgmma of another shape, or of other registers, accumulates in d[0] at the time
  wgmma  {1}  block (0,0,0) warp 0 lane 0
  remedy: wait for it (wgmma_wait) first, then wgmma_fence()
  seen 128 times
)"},
    {"wgmma_never_waited",
     R"(asynchronous product: the block has ended while wgmma is under way
  wgmma  {1}  block (0,0,0) warp 0 lane 0
  remedy: wait for it before the end (wgmma_wait<0>)
)"},
    {"wgmma_without_barrier",
     R"(race: wgmma after write of shared Panels+0 (16 bytes)
  wgmma  {1}  block (0,0,0) warp 0 lane 0
  write  {2}   block (0,0,0) warp 0 lane 1
  remedy: put __syncthreads() or an mbarrier between the two; a lane that arrives for its warp needs __syncwarp() first
  seen 260 times
)"},
    {"wgmma_one_warp_waits",
     R"(race: wgmma after write of shared Panels+0 (4 bytes)
  wgmma  {1}  block (0,0,0) warp 1 lane 31
  write  {2}  block (0,0,0) warp 4 lane 0
  remedy: put __syncthreads() or an mbarrier between the two; a lane that arrives for its warp needs __syncwarp() first
  seen 3 times
)"},
    {"wgmma_no_proxy_fence",
     R"(proxy fence: wgmma reads shared Panels+0, written by an ordinary store without a proxy fence
  wgmma  {1}  block (0,0,0) warp 0 lane 0
  write  {2}   block (0,0,0) warp 0 lane 0
  remedy: let the storing thread call fence_proxy_async() before the barrier
  seen 113 times
)"},
    {"wgmma_ragged_tile",
     R"(uninitialised: read of shared Panels+13312 (16 bytes)
  read  {1}  block (0,0,0) warp 0 lane 0
  remedy: write it before reading it: fresh memory holds NaN
  seen 48 times
)"},
    {"wgmma_overwritten",
     R"(asynchronous copy: write of shared Panels+8192 (2 bytes) while wgmma reads it
  write  {1}   block (0,0,0) warp 0 lane 0
  wgmma  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the warpgroup wait for it (wgmma_wait) before this write
  seen 1024 times
)"},
    {"wgmma_released_early",
     R"(race: write after wgmma of shared Panels+8192 (2 bytes)
  write  {1}   block (0,0,0) warp 4 lane 0
  wgmma  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the warpgroup wait for it (wgmma_wait) before this write
  seen 1024 times
)"},
    {"wgmma_misaligned_tile",
     R"(misaligned: wgmma: A's descriptor: start 512, stride 1024
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: begin tiles and panels at multiples of 1024 bytes, as the swizzle's pattern does
)"},
    {"wgmma_past_end",
     R"(out of bounds: wgmma: B's descriptor (start 8192, stride 1024) reaches byte 16384 of shared memory
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: fix the descriptor, or make the tile as large as it says
)"},
    {"wgmma_of_global",
     R"(out of bounds: matrix_descriptor of an address outside the block's shared memory
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: give it the address of a tile in shared memory
)"},
    {"wgmma_no_swizzle",
     R"(warpgroup operation: wgmma: B's descriptor has swizzle mode 0 and base offset 0
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: the simulator knows the 128-byte swizzle (mode 1) with base offset 0
)"},
    {"wgmma_own_rows",
     R"(warpgroup operation: wgmma: the threads of a warpgroup give different matrix descriptors
  calls  {1}  block (0,0,0) warp 1 lane 0
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: it is one instruction of all 128 threads: let it not depend on the lane or the warp
)"},
    {"wgmma_warp_skips",
     R"(warpgroup operation: wgmma waits for a warp of its warpgroup that has exited
  calls   {1}  block (0,0,0) warp 1 lane 0
  exited                       block (0,0,0) warp 0 lane 0
  remedy: let all four warps of the warpgroup come to the same instruction
)"},
    {"wgmma_two_sites",
     R"(warpgroup operation: warps of one warpgroup meet at different instructions
  calls  {1}  block (0,0,0) warp 2 lane 0
  calls  {2}  block (0,0,0) warp 0 lane 0
  remedy: let all four warps of the warpgroup come to the same instruction
)"},
    {"wgmma_part_of_warpgroup",
     R"(warpgroup operation: wgmma.fence in a warpgroup of 2 warps
  calls  {1}  block (0,0,0) warp 4 lane 0
  remedy: give the block whole warpgroups, of 128 threads
)"},
    {"stmatrix_without_barrier",
     R"(race: write after read of shared Rows16+352 (16 bytes)
  write  {1}  block (0,0,0) warp 0 lane 11
  read   {2}  block (0,0,0) warp 0 lane 9
  remedy: put __syncwarp() between the two
  seen 16 times
race: read after write of shared Rows16+320 (2 bytes)
  read   {2}  block (0,0,0) warp 0 lane 11
  write  {1}  block (0,0,0) warp 0 lane 10
  remedy: put __syncwarp() between the two
  seen 16 times
)"},
    {"stmatrix_misaligned",
     R"(misaligned: write of 16 bytes at byte 8 of shared Rows16
  write  {1}  block (0,0,0) warp 0 lane 0
  remedy: an n-byte access needs an address that is a multiple of n
)"},
    {"stmatrix_past_end",
     R"(out of bounds: write of shared Rows16+512 (16 bytes); Rows16 has 512 bytes
  write  {1}  block (0,0,0) warp 0 lane 15
  remedy: guard the access or fix the index
)"},
    {"stmatrix_no_proxy_fence",
     R"(proxy fence: wgmma reads shared Panels+0, written by an ordinary store without a proxy fence
  wgmma  {1}  block (0,0,0) warp 0 lane 0
  write  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the storing thread call fence_proxy_async() before the barrier
  seen 57 times
)"},
    {"bar_too_many",
     R"(deadlock: no thread of the block can go on
  128 wait at bar.sync 1, where 128 of 256 threads have come  {1}  block (0,0,0) warp 0 lane 0
  128 exited                                                                       block (0,0,0) warp 4 lane 0
  remedy: make every waiting thread's partners arrive
)"},
    {"bar_too_few",
     R"(race: write after read of shared Message+256 (4 bytes)
  write  {1}  block (0,0,0) warp 2 lane 0
  read   {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
  seen 64 times
)"},
    {"bar_two_counts",
     R"(named barrier: bar.sync 1, 128: the first to come said 96 threads
  calls  {1}  block (0,0,0) warp 2 lane 0
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: give the same number at all calls of one barrier
)"},
    {"bar_odd_count",
     R"(named barrier: bar.sync 1, 100: no number of threads for a block of 128
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: name a multiple of 32, at most the block's threads
)"},
    {"bar_no_such",
     R"(named barrier: bar.sync 16, 128: there is no such barrier
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: name one of 0 to 15
)"},
    {"bar_zero",
     R"(named barrier: barrier 0 is used by name and by __syncthreads()
  bar.sync 0     {1}  block (0,0,0) warp 0 lane 0
  __syncthreads  {2}  block (0,0,0) warp 0 lane 0
  remedy: name one of 1 to 15
)"},
    {"bar_of_half_warp",
     R"(warp operation: lanes of one mask meet at different operations
  calls  {2}  block (0,0,0) warp 0 lane 16
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: let all 32 lanes of the warp come to the same instruction
)"},
    {"bar_arrives_only",
     R"(race: read after write of shared Message+0 (4 bytes)
  read   {1}  block (0,0,0) warp 4 lane 0
  write  {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
  seen 128 times
)"},
    {"bar_unequal_turns",
     R"(deadlock: no thread of the block can go on
  128 wait at bar.sync 2, where 128 of 256 threads have come  {1}  block (0,0,0) warp 4 lane 0
  128 exited                                                                       block (0,0,0) warp 0 lane 0
  remedy: make every waiting thread's partners arrive
)"},
    {"setmaxnreg_over_budget",
     R"(deadlock: no thread of the block can go on
  128 wait at setmaxnreg.inc 240: 72 more, 56 are free  {1}  block (0,0,0) warp 4 lane 0
  256 exited                                                                 block (0,0,0) warp 0 lane 0
  remedy: let the numbers add up, over the warpgroups, to no more than 3 times the 168 of the launch
)"},
    {"setmaxnreg_wrong_way",
     R"(register budget: setmaxnreg.inc 40: the warpgroup's threads have 168, as at the launch
  calls  {1}  block (0,0,0) warp 8 lane 0
  remedy: setmaxnreg.inc asks for more, setmaxnreg.dec leaves fewer
)"},
    {"setmaxnreg_of_one_warp",
     R"(warpgroup operation: setmaxnreg waits for a warp of its warpgroup that has exited
  calls   {1}  block (0,0,0) warp 11 lane 0
  exited                       block (0,0,0) warp 8 lane 0
  remedy: let all four warps of the warpgroup come to the same instruction
)"},
    {"setmaxnreg_no_bounds",
     R"(register budget: setmaxnreg.dec 40 in a kernel without __launch_bounds__(threads, blocks)
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: give both numbers: they say how many registers a thread has at the launch
)"},
};
inline constexpr Expected cluster_expected[] = {
    {"", ""},
};
// clang-format on

}  // namespace flash
