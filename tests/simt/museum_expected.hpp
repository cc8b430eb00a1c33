// museum_expected.hpp: what the checked machine must say of the exhibits of museum_tma.cu, word for word; what it says
// of the others is in museum_test.cpp. "{k}" is the file and line that carries the mark "//@ exhibit:k".
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
// clang-format on

}  // namespace flash
