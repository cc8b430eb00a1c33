// museum_expected.hpp: what the checked machine must say of the exhibits of museum_tma.cu, museum_bulk.cu and
// museum_wgmma.cu, word for word; the others' are in museum_test.cpp. "{k}" is the file and line that carries the mark
// "//@ exhibit:k".
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
  remedy: expect as many bytes as the phase's copies have, edges of boxes included
)"},
    {"tma_counts_valid_rows",
     R"(deadlock: no thread of the block can go on
  2 wait at mbarrier shared Box+1024, parity 0: 512 bytes too many  {1}  block (0,0,0) warp 0 lane 0
  62 wait at __syncwarp                                             {2}  block (0,0,0) warp 0 lane 1
  remedy: expect as many bytes as the phase's copies have, edges of boxes included
)"},
    {"tma_expects_too_little",
     R"(mbarrier: a phase of mbarrier shared TwoBoxes+2048 expects 1024 bytes, its copies bring 2048
  cp.async.bulk.tensor  {2}  block (0,0,0) warp 0 lane 0
  remedy: expect as many bytes as the phase's copies have, edges of boxes included
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
    {"tma_map_before",
     R"(out of bounds: cp.async.bulk.tensor of a box that is partly outside a tensor which begins in no array
  loads  {1}  block (0,0,0) warp 0 lane 0
  remedy: begin the map in an array: TMA may read there for what it fills with zeros
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
    {"tma_after_atomics",
     R"(proxy fence: cp.async.bulk.tensor (store) reads shared Box+0, written by an atomic without a proxy fence
  cp.async.bulk.tensor (store)  {1}  block (0,0,0) warp 0 lane 0
  atomic                        {2}  block (0,0,0) warp 0 lane 1
  remedy: let the storing thread call fence_proxy_async() before the barrier
  seen 8 times
)"},
    {"tma_after_exchange",
     R"(proxy fence: cp.async.bulk.tensor (store) reads shared Box+0, written by an atomic without a proxy fence
  cp.async.bulk.tensor (store)  {1}  block (0,0,0) warp 0 lane 0
  atomic                        {2}  block (0,0,0) warp 0 lane 0
  remedy: let the storing thread call fence_proxy_async() before the barrier
  seen 16 times
)"},
    {"tma_after_volatile",
     R"(proxy fence: cp.async.bulk.tensor (store) reads shared Box+0, written by a volatile store without a proxy fence
  cp.async.bulk.tensor (store)  {1}  block (0,0,0) warp 0 lane 0
  volatile write                {2}  block (0,0,0) warp 0 lane 0
  remedy: let the storing thread call fence_proxy_async() before the barrier
  seen 16 times
)"},
    {"tma_one_fences",
     R"(proxy fence: cp.async.bulk.tensor (store) reads shared Box+0, written by an atomic without a proxy fence
  cp.async.bulk.tensor (store)  {1}  block (0,0,0) warp 0 lane 0
  atomic                        {2}  block (0,0,0) warp 1 lane 31
  remedy: let the storing thread call fence_proxy_async() before the barrier
)"},
    {"tma_over_atomics",
     R"(proxy fence: cp.async.bulk.tensor overwrites shared Box+0, written by an atomic without a proxy fence
  cp.async.bulk.tensor  {1}  block (0,0,0) warp 0 lane 0
  atomic                {2}  block (0,0,0) warp 0 lane 0
  remedy: let the storing thread call fence_proxy_async() before the barrier
  seen 16 times
)"},
    {"tma_unwritten_row",
     R"(uninitialised: read of shared Box+512 (2 bytes), copied from cache[2592], which nobody had written
  read                  {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk.tensor  {2}  block (0,0,0) warp 0 lane 0
  remedy: write it before it is copied, or do not read what was copied from there: fresh memory holds NaN
  seen 128 times
)"},
    {"tma_unwritten_stored",
     R"(uninitialised: read of stored[256] (2 bytes), copied from cache[2560], which nobody had written
  read                          {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk.tensor (store)  {2}  block (0,0,0) warp 0 lane 0
  remedy: write it before it is copied, or do not read what was copied from there: fresh memory holds NaN
  seen 128 times
)"},
    {"tma_half_filled",
     R"(uninitialised: read of stored[256] (2 bytes), copied from shared memory, which nobody had written
  read                          {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk.tensor (store)  {2}  block (0,0,0) warp 0 lane 0
  remedy: write it before it is copied, or do not read what was copied from there: fresh memory holds NaN
  seen 128 times
)"},
    {"tma_unwritten_beside",
     R"(uninitialised: read of stored[1280] (2 bytes)
  read  {1}  block (0,0,0) warp 0 lane 0
  remedy: write it before reading it: fresh memory holds NaN
  seen 128 times
)"},
    {"tma_nothing_written",
     R"(uninitialised: read of cache[2304] (16 bytes)
  read  {1}  block (0,0,0) warp 0 lane 0
  remedy: write it before reading it: fresh memory holds NaN
  seen 64 times
)"},
    {"tma_unwritten_v",
     R"(uninitialised: wgmma sums over shared Attend+13312 (2 bytes), copied from cache[2560], which nobody had written
  wgmma                 {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk.tensor  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the copy bring zeros (a tensor map that ends before them) or fill them: 0 times NaN is NaN
)"},
    {"tma_unwritten_step",
     R"(uninitialised: wgmma sums over shared Attend+14336 (2 bytes), copied from cache[3072], which nobody had written
  wgmma                 {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk.tensor  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the copy bring zeros (a tensor map that ends before them) or fill them: 0 times NaN is NaN
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
    {"tma_odd_column",
     R"(misaligned: cp.async.bulk.tensor of a box that begins at 4 of x
  loads  {1}  block (0,0,0) warp 0 lane 0
  remedy: x is a multiple of 8, which are 16 bytes (an H200 stops the kernel)
)"},
    {"tma_store_before",
     R"(out of bounds: cp.async.bulk.tensor (store) to a box that begins at -4 of y
  stores  {1}  block (0,0,0) warp 0 lane 0
  remedy: a store's box may end beyond the tensor, but not begin before it (an H200 stops the kernel)
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
  remedy: let as many arrive in each phase as mbarrier_init counts
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
  remedy: let as many arrive in each phase as mbarrier_init counts
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
inline constexpr Expected bulk_expected[] = {
    {"bulk_no_wait",
     R"(asynchronous copy: read of shared Line+0 (4 bytes) while cp.async.bulk writes it
  read           {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait on the load's mbarrier (mbarrier_wait) before this read
  seen 64 times
)"},
    {"bulk_odd_bytes",
     R"(asynchronous copy: cp.async.bulk of 20 bytes
  loads  {1}  block (0,0,0) warp 0 lane 0
  remedy: copy a multiple of 16 bytes, at least 16
)"},
    {"bulk_no_bytes",
     R"(asynchronous copy: cp.reduce.async.bulk of 0 bytes
  adds  {1}  block (0,0,0) warp 0 lane 0
  remedy: copy a multiple of 16 bytes, at least 16
)"},
    {"bulk_misaligned",
     R"(misaligned: cp.async.bulk with shared Line+8
  loads  {1}  block (0,0,0) warp 0 lane 0
  remedy: both addresses are multiples of 16
)"},
    {"bulk_misaligned_source",
     R"(misaligned: use of a source of a bulk copy at byte 20 of in
  uses  {1}  block (0,0,0) warp 0 lane 0
  remedy: its type needs an address that is a multiple of 16
)"},
    {"bulk_source_past_end",
     R"(out of bounds: read of in[130] (4 bytes); in has 130 elements
  cp.async.bulk  {1}  block (0,0,0) warp 0 lane 0
  remedy: guard the access or fix the index
)"},
    {"bulk_past_end",
     R"(out of bounds: write of shared Line+544 (4 bytes); Line has 544 bytes
  cp.async.bulk  {1}  block (0,0,0) warp 0 lane 0
  remedy: guard the access or fix the index
)"},
    {"bulk_to_shared",
     R"(out of bounds: cp.async.bulk (store): its address in global memory is one of shared memory
  stores  {1}  block (0,0,0) warp 0 lane 0
  remedy: give it the address of an array in global memory
)"},
    {"bulk_expects_too_much",
     R"(deadlock: no thread of the block can go on
  64 wait at mbarrier shared Line+512, parity 0: 16 bytes missing  {1}  block (0,0,0) warp 0 lane 0
  remedy: expect as many bytes as the phase's copies have, edges of boxes included
)"},
    {"bulk_expects_too_little",
     R"(mbarrier: a phase of mbarrier shared Line+512 expects 256 bytes, its copies bring 512
  cp.async.bulk  {2}  block (0,0,0) warp 0 lane 0
  remedy: expect as many bytes as the phase's copies have, edges of boxes included
asynchronous copy: read of shared Line+256 (4 bytes) while cp.async.bulk writes it
  read           {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait on the load's mbarrier (mbarrier_wait) before this read
  seen 64 times
)"},
    {"bulk_staging_reused",
     R"(asynchronous copy: write of shared Line+0 (4 bytes) while cp.async.bulk (store) reads it
  write                  {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk (store)  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the issuing thread wait for it (cp_async_bulk_wait_read), then a barrier, before this write
  seen 64 times
)"},
    {"bulk_flag_too_early",
     R"(race: read after cp.async.bulk (store) of out[0] (4 bytes)
  read                   {1}  block (1,0,0) warp 0 lane 0
  cp.async.bulk (store)  {2}  block (0,0,0) warp 0 lane 0
  remedy: a flag needs cp_async_bulk_wait (not _read) and __threadfence() before it is set, __threadfence() after
  seen 64 times
)"},
    {"reduce_staging_reused",
     R"(asynchronous copy: write of shared Line+0 (4 bytes) while cp.reduce.async.bulk reads it
  write                 {1}  block (0,0,0) warp 0 lane 0
  cp.reduce.async.bulk  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the issuing thread wait for it (cp_async_bulk_wait_read), then a barrier, before this write
  seen 128 times
)"},
    {"reduce_no_proxy_fence",
     R"(proxy fence: cp.reduce.async.bulk reads shared Line+0, written by an ordinary store without a proxy fence
  cp.reduce.async.bulk  {1}  block (0,0,0) warp 0 lane 0
  write                 {2}  block (0,0,0) warp 0 lane 0
  remedy: let the storing thread call fence_proxy_async() before the barrier
)"},
    {"reduce_left_early",
     R"(asynchronous copy: the block ends before a reduction was known to have read its source
  cp.reduce.async.bulk  {1}  block (0,0,0) warp 0 lane 0
  remedy: let the issuing thread wait for it (cp_async_bulk_wait_read<0>) before it exits
)"},
    {"reduce_read_is_not_added",
     R"(asynchronous copy: read of out[0] (4 bytes) while cp.reduce.async.bulk adds to it
  read                  {1}  block (0,0,0) warp 0 lane 0
  cp.reduce.async.bulk  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the issuing thread wait for the writes (cp_async_bulk_wait, not its _read form) before this read
  seen 64 times
)"},
    {"reduce_flag_too_early",
     R"(race: read after cp.reduce.async.bulk of out[0] (4 bytes)
  read                  {1}  block (1,0,0) warp 0 lane 0
  cp.reduce.async.bulk  {2}  block (0,0,0) warp 0 lane 0
  remedy: a flag needs cp_async_bulk_wait (not _read) and __threadfence() before it is set, __threadfence() after
  seen 64 times
)"},
    {"reduce_own_wait",
     R"(race: read after cp.reduce.async.bulk of out[0] (4 bytes)
  read                  {1}  block (1,0,0) warp 0 lane 0
  cp.reduce.async.bulk  {2}  block (0,0,0) warp 0 lane 0
  remedy: a flag needs cp_async_bulk_wait (not _read) and __threadfence() before it is set, __threadfence() after
  seen 64 times
)"},
    {"reduce_turn_too_early",
     R"(race: write after cp.reduce.async.bulk of out[64] (4 bytes)
  write                 {1}  block (1,0,0) warp 0 lane 0
  cp.reduce.async.bulk  {2}  block (0,0,0) warp 0 lane 0
  remedy: a flag needs cp_async_bulk_wait (not _read) and __threadfence() before it is set, __threadfence() after
  seen 64 times
)"},
    {"reduce_in_turns",
     R"(nondeterministic: additions to out[0] (4 bytes) in no fixed order
  adds  {1}  block (2,0,0) warp 0 lane 0
  adds  {1}  block (1,0,0) warp 0 lane 0
  remedy: fix the order: signal the next block behind the full wait (cp_async_bulk_wait), or add up in a second pass
  seen 64 times
)"},
    {"reduce_and_plain",
     R"(race: cp.reduce.async.bulk after write of out[0] (4 bytes)
  cp.reduce.async.bulk  {1}  block (1,0,0) warp 0 lane 0
  write                 {2}  block (0,0,0) warp 0 lane 0
  remedy: blocks are unordered: give each block its own elements, use an atomic, or split the kernel
  seen 64 times
)"},
    {"reduce_on_fresh",
     R"(uninitialised: cp.reduce.async.bulk of fresh[0] (4 bytes)
  cp.reduce.async.bulk  {1}  block (0,0,0) warp 0 lane 0
  remedy: write it before reading it: fresh memory holds NaN
  seen 64 times
)"},
    {"poll_wrong_parity",
     R"(asynchronous copy: read of shared Line+0 (4 bytes) while cp.async.bulk writes it
  read           {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait on the load's mbarrier (mbarrier_wait) before this read
  seen 64 times
)"},
    {"poll_in_vain",
     R"(deadlock: no thread of the block can go on
  64 poll mbarrier shared Line+512, parity 0: 1 arrival missing  {1}  block (0,0,0) warp 0 lane 0
  remedy: let as many arrive in each phase as mbarrier_init counts
)"},
    {"inval_waiting",
     R"(mbarrier: mbarrier.inval of shared Line+512 while a thread waits at it
  mbarrier.inval  {1}  block (0,0,0) warp 0 lane 0
  waits           {2}  block (0,0,0) warp 0 lane 1
  remedy: let all waits return before mbarrier_inval
)"},
    {"inval_under_way",
     R"(mbarrier: mbarrier.inval of shared Line+512, and no thread has waited for a copy that completes on it
  mbarrier.inval  {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk   {2}  block (0,0,0) warp 0 lane 0
  remedy: wait for it (mbarrier_wait) before mbarrier_inval
)"},
    {"inval_used_after",
     R"(mbarrier: mbarrier.arrive on shared Line+512 after mbarrier.inval of it
  uses            {1}  block (0,0,0) warp 0 lane 0
  mbarrier.inval  {2}  block (0,0,0) warp 0 lane 0
  remedy: invalidate it behind its last use, or let mbarrier_init make another one of it
)"},
    {"inval_unordered",
     R"(race: mbarrier.inval after mbarrier.try_wait of shared Line+512 (8 bytes)
  mbarrier.inval     {1}  block (0,0,0) warp 1 lane 31
  mbarrier.try_wait  {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
)"},
    {"inval_forgotten",
     R"(mbarrier: write of shared Line+512 (4 bytes), which is an mbarrier
  write  {1}  block (0,0,0) warp 0 lane 1
  remedy: leave an mbarrier's 8 bytes to the instructions on mbarriers
)"},
    {"count_without_release",
     R"(race: read after write of out[0] (4 bytes)
  read   {1}  block (1,0,0) warp 0 lane 0
  write  {2}  block (0,0,0) warp 0 lane 0
  remedy: if a flag orders the blocks: __threadfence() before it is set and after it is read; else split the kernel
  seen 64 times
)"},
    {"count_without_barrier",
     R"(race: read after write of out[1] (4 bytes)
  read   {1}  block (1,0,0) warp 0 lane 1
  write  {2}  block (0,0,0) warp 0 lane 1
  remedy: if a flag orders the blocks: __threadfence() before it is set and after it is read; else split the kernel
  seen 63 times
)"},
    {"count_waits_alone",
     R"(race: read after write of out[1] (4 bytes)
  read   {1}  block (1,0,0) warp 0 lane 1
  write  {2}  block (0,0,0) warp 0 lane 1
  remedy: if a flag orders the blocks: __threadfence() before it is set and after it is read; else split the kernel
  seen 63 times
)"},
    {"count_of_none",
     R"(race: read after write of out[0] (4 bytes)
  read   {1}  block (1,0,0) warp 0 lane 0
  write  {2}  block (0,0,0) warp 0 lane 0
  remedy: if a flag orders the blocks: __threadfence() before it is set and after it is read; else split the kernel
  seen 64 times
)"},
    {"count_without_wait",
     R"(race: read after write of out[0] (4 bytes)
  read   {1}  block (1,0,0) warp 0 lane 0
  write  {2}  block (0,0,0) warp 0 lane 0
  remedy: if a flag orders the blocks: __threadfence() before it is set and after it is read; else split the kernel
  seen 32 times
)"},
    {"count_by_waiting",
     R"(race: read after write of out[0] (4 bytes)
  read   {1}  block (2,0,0) warp 0 lane 0
  write  {2}  block (1,0,0) warp 0 lane 0
  remedy: if a flag orders the blocks: __threadfence() before it is set and after it is read; else split the kernel
  seen 64 times
)"},
    {"count_too_few",
     R"(race: read after write of out[32] (4 bytes)
  read   {1}  block (2,0,0) warp 1 lane 0
  write  {2}  block (1,0,0) warp 1 lane 0
  remedy: if a flag orders the blocks: __threadfence() before it is set and after it is read; else split the kernel
  seen 32 times
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
    {"wgmma_after_atomics",
     R"(proxy fence: wgmma reads shared Panels+0, written by an atomic without a proxy fence
  wgmma   {1}  block (0,0,0) warp 0 lane 0
  atomic  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the storing thread call fence_proxy_async() before the barrier
  seen 4 times
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
    {"wgmma_waits_differ",
     R"(warpgroup operation: wgmma.wait_group: the threads of a warpgroup give different numbers of groups to leave
  calls  {1}  block (0,0,0) warp 1 lane 0
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: it is one instruction of all 128 threads: let it not depend on the lane or the warp
)"},
    {"wgmma_at_no_proxy_fence",
     R"(proxy fence: wgmma reads shared Panels+0, written by an ordinary store without a proxy fence
  wgmma  {1}  block (0,0,0) warp 0 lane 0
  write  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the storing thread call fence_proxy_async() before the barrier
)"},
    {"wgmma_at_overwritten",
     R"(asynchronous copy: write of shared Panels+6144 (16 bytes) while wgmma reads it
  write  {1}  block (0,0,0) warp 3 lane 0
  wgmma  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the warpgroup wait for it (wgmma_wait) before this write
  seen 128 times
)"},
    {"wgmma_at_past_end",
     R"(out of bounds: wgmma: A's descriptor (start 16384, stride 1024) reaches byte 16384 of shared memory
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: fix the descriptor, or make the tile as large as it says
)"},
    {"wgmma_at_stride",
     R"(misaligned: wgmma: A's descriptor: start 0, stride 1040
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: begin tiles and panels at multiples of 1024 bytes, as the swizzle's pattern does
)"},
    {"red_no_order",
     R"(nondeterministic: additions to out[1] (4 bytes) in no fixed order
  adds  {1}  block (0,0,0) warp 1 lane 0
  adds  {1}  block (0,0,0) warp 0 lane 0
  remedy: fix the order: let threads take turns at a semaphore, or store the parts and add them up in a second pass
  seen 128 times
)"},
    {"red_misaligned",
     R"(misaligned: atomic of 16 bytes at byte 20 of out
  atomic  {1}  block (0,0,0) warp 0 lane 1
  remedy: an n-byte access needs an address that is a multiple of n
)"},
    {"red_of_shared",
     R"(out of bounds: addition of a vector of floats to shared Panels+0
  adds  {1}  block (0,0,0) warp 0 lane 0
  remedy: vectors are added in global memory only: add the floats one by one
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
  remedy: let as many threads come as are waited for, and as often
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
  remedy: let as many threads come as are waited for, and as often
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
    {"cluster_not_begun",
     R"(cluster: write of shared Pair+0 of block (1,0,0) (4 bytes), whose block may not have begun
  write  {1}  block (0,0,0) warp 0 lane 0
  remedy: let all threads pass a barrier of the cluster before the first access to another block's shared memory
  seen 128 times
)"},
    {"cluster_left_early",
     R"(cluster: read of shared Pair+0 of block (1,0,0) (4 bytes), whose block may have ended
  read  {1}  block (0,0,0) warp 0 lane 0
  remedy: let the block end behind a barrier of the cluster that all who access its memory pass
  seen 64 times
)"},
    {"cluster_left_before_arrival",
     R"(cluster: mbarrier.arrive of shared Pair+256 of block (1,0,0) (8 bytes), whose block may have ended
  mbarrier.arrive  {1}  block (0,0,0) warp 0 lane 0
  remedy: let the block end behind a barrier of the cluster that all who access its memory pass
)"},
    {"cluster_no_barrier",
     R"(race: write after read of shared Pair+0 of block (1,0,0) (4 bytes)
  write  {2}  block (0,0,0) warp 0 lane 0
  read   {1}  block (1,0,0) warp 0 lane 0
  remedy: put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, mbarrier_wait_cluster here
  seen 64 times
race: read after write of shared Pair+0 (4 bytes)
  read   {1}  block (0,0,0) warp 0 lane 0
  write  {2}  block (1,0,0) warp 0 lane 0
  remedy: put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, mbarrier_wait_cluster here
  seen 64 times
)"},
    {"cluster_syncthreads",
     R"(race: write after read of shared Pair+0 (4 bytes)
  write  {2}  block (0,0,0) warp 0 lane 0
  read   {1}  block (1,0,0) warp 1 lane 31
  remedy: put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, mbarrier_wait_cluster here
  seen 64 times
race: read after write of shared Pair+252 of block (1,0,0) (4 bytes)
  read   {1}  block (0,0,0) warp 0 lane 0
  write  {2}  block (1,0,0) warp 1 lane 31
  remedy: put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, mbarrier_wait_cluster here
  seen 64 times
)"},
    {"cluster_flag_without_fence",
     R"(race: read after write of shared Pair+20 (4 bytes)
  read   {1}  block (0,0,0) warp 0 lane 0
  write  {2}  block (1,0,0) warp 0 lane 0
  remedy: put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, mbarrier_wait_cluster here
  seen 2 times
)"},
    {"cluster_mbarrier_not_known",
     R"(mbarrier: mbarrier.arrive on shared Pair+256 of block (1,0,0), which is not known to be an mbarrier
  uses  {1}  block (0,0,0) warp 0 lane 0
  remedy: call mbarrier_init and fence_mbarrier_init, then let all threads pass a barrier of the cluster
  seen 2 times
)"},
    {"cluster_wait_of_block",
     R"(race: read after write of shared Pair+0 (4 bytes)
  read   {1}  block (0,0,0) warp 0 lane 0
  write  {2}  block (1,0,0) warp 0 lane 0
  remedy: put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, mbarrier_wait_cluster here
  seen 128 times
)"},
    {"cluster_tile_refilled",
     R"(mbarrier: a phase of mbarrier shared Pair+256 completes while a thread waits for the last one
  waits  {3}  block (0,0,0) warp 0 lane 0
  remedy: let who waits for a phase release the next one
  seen 2 times
race: read after write of shared Pair+252 (4 bytes)
  read   {2}  block (0,0,0) warp 0 lane 0
  write  {1}  block (1,0,0) warp 1 lane 31
  remedy: put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, mbarrier_wait_cluster here
  seen 64 times
race: write after read of shared Pair+0 of block (1,0,0) (4 bytes)
  write  {1}  block (0,0,0) warp 0 lane 0
  read   {2}  block (1,0,0) warp 1 lane 31
  remedy: put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, mbarrier_wait_cluster here
  seen 64 times
)"},
    {"cluster_relaxed_after_store",
     R"(race: read after write of shared Pair+0 (4 bytes)
  read   {1}  block (0,0,0) warp 0 lane 0
  write  {2}  block (1,0,0) warp 0 lane 0
  remedy: put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, mbarrier_wait_cluster here
  seen 128 times
)"},
    {"cluster_relaxed_before_read",
     R"(race: write after read of shared Pair+0 of block (1,0,0) (4 bytes)
  write  {1}  block (0,0,0) warp 0 lane 0
  read   {2}  block (1,0,0) warp 1 lane 31
  remedy: put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, mbarrier_wait_cluster here
  seen 128 times
)"},
    {"cluster_relaxed_after_copy",
     R"(race: read after cp.async.bulk of shared Pair+0 of block (1,0,0) (4 bytes)
  read           {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk  {2}  block (1,0,0) warp 0 lane 0
  remedy: put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, mbarrier_wait_cluster here
  seen 128 times
)"},
    {"cluster_deadlock",
     R"(deadlock: no thread of the cluster can go on
  64 wait at mbarrier shared Pair+256, parity 0: 1 arrival missing  {1}  block (0,0,0) warp 0 lane 0
  64 wait at mbarrier shared Pair+256, parity 0: 1 arrival missing  {1}  block (1,0,0) warp 0 lane 0
  remedy: let as many arrive in each phase as mbarrier_init counts
)"},
    {"cluster_half_arrives",
     R"(deadlock: no thread of the cluster can go on
  64 wait at barrier.cluster: 96 of 128 threads have arrived  {1}   block (0,0,0) warp 0 lane 0
  32 wait at barrier.cluster: 96 of 128 threads have arrived  {1}   block (1,0,0) warp 0 lane 0
  32 wait at __syncthreads                                    {2}  block (1,0,0) warp 1 lane 0
  remedy: these wait for one another: let all threads come to both places, in one order
)"},
    {"cluster_wait_alone",
     R"(cluster: barrier.cluster.wait by a thread that has not arrived
  waits  {1}  block (1,0,0) warp 0 lane 0
  remedy: let each thread call barrier_cluster_arrive() before it
)"},
    {"cluster_arrives_twice",
     R"(cluster: barrier.cluster.arrive by a thread that has not waited since it arrived last
  arrives  {1}  block (0,0,0) warp 0 lane 0
  remedy: let each thread call barrier_cluster_wait() between two arrivals
  seen 2 times
)"},
    {"cluster_rank_too_large",
     R"(cluster: mapa of rank 2 in a cluster of 2 blocks
  maps  {1}  block (1,0,0) warp 1 lane 31
  remedy: give a rank below cluster_nctarank()
)"},
    {"cluster_mapa_of_global",
     R"(cluster: mapa of an address outside the block's shared memory
  maps  {1}  block (0,0,0) warp 0 lane 0
  remedy: give it an address in the block's own shared memory
  seen 2 times
)"},
    {"cluster_past_end",
     R"(uninitialised: read of shared Pair+256 of block (1,0,0) (4 bytes)
  read  {1}  block (0,0,0) warp 0 lane 0
  remedy: write it before reading it: fresh memory holds NaN
  seen 4 times
out of bounds: read of shared Pair+272 of block (1,0,0) (4 bytes); Pair has 272 bytes
  read  {1}  block (0,0,0) warp 0 lane 4
  remedy: guard the access or fix the index
  seen 2 times
)"},
    {"cluster_multicast_half",
     R"(mbarrier: a phase of mbarrier shared Halves+1024 expects 512 bytes, its copies bring 1024
  multicast  {1}  block (0,0,0) warp 0 lane 0
  remedy: expect as many bytes as the phase's copies have, edges of boxes included
  seen 2 times
asynchronous copy: read of shared Halves+0 (2 bytes) while multicast writes it
  read       {2}  block (0,0,0) warp 0 lane 0
  multicast  {1}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait on the load's mbarrier (mbarrier_wait) before this read
  seen 128 times
)"},
    {"cluster_multicast_to_none",
     R"(cluster: multicast to the blocks 7 of a cluster of 2 blocks
  loads  {1}  block (0,0,0) warp 0 lane 0
  remedy: set a bit for each rank below cluster_nctarank() that is to get the box
)"},
    {"cluster_multicast_refilled",
     R"(asynchronous copy: multicast of shared Halves+0 of block (1,0,0) (16 bytes) while another multicast writes it
  multicast  {1}  block (0,0,0) warp 0 lane 0
  multicast  {1}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait on the load's mbarrier (mbarrier_wait) before this multicast
  seen 64 times
mbarrier: a phase of mbarrier shared Halves+1024 expects 512 bytes, its copies bring 1536
  multicast  {1}  block (0,0,0) warp 0 lane 0
  remedy: expect as many bytes as the phase's copies have, edges of boxes included
asynchronous copy: read of shared Halves+0 (2 bytes) while multicast writes it
  read       {2}  block (1,0,0) warp 0 lane 0
  multicast  {1}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait on the load's mbarrier (mbarrier_wait) before this read
  seen 128 times
)"},
    {"cluster_send_refilled",
     R"(asynchronous copy: write of shared Sent+0 (4 bytes) while cp.async.bulk (cluster) reads it
  write                    {1}  block (0,0,0) warp 0 lane 0
  cp.async.bulk (cluster)  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait on the load's mbarrier (mbarrier_wait) before this write
  seen 64 times
)"},
    {"cluster_send_no_fence",
     R"(proxy fence: cp.async.bulk (cluster) reads shared Sent+0, written by an ordinary store without a proxy fence
  cp.async.bulk (cluster)  {1}  block (0,0,0) warp 0 lane 0
  write                    {2}  block (0,0,0) warp 0 lane 0
  remedy: let the storing thread call fence_proxy_async() before the barrier
  seen 2 times
)"},
    {"cluster_send_own_barrier",
     R"(cluster: cp.async.bulk (cluster) completes on an mbarrier that is not in the block which gets the bytes
  copies  {1}  block (0,0,0) warp 0 lane 0
  remedy: let mapa give both addresses with the same rank
  seen 2 times
)"},
    {"cluster_send_left_early",
     R"(cluster: cp.async.bulk (cluster) of shared Sent+0 (256 bytes), whose block may have ended
  cp.async.bulk (cluster)  {1}  block (0,0,0) warp 0 lane 0
  remedy: let the block end behind a barrier of the cluster that all who access its memory pass
)"},
    {"cluster_unwritten",
     R"(uninitialised: read of shared Pair+160 of block (1,0,0) (4 bytes)
  read  {1}  block (0,0,0) warp 1 lane 8
  remedy: write it before reading it: fresh memory holds NaN
  seen 2 times
)"},
};
// clang-format on

}  // namespace flash
