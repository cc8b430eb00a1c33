// museum_test.cpp: the checked machine must report each bug of the museum word for word and stay silent on each twin.
// "{k}" in an expected report is the file and line that carries the mark "//@ exhibit:k".
// Run: ctest -L simt, or simt_museum_test
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "sim/error.hpp"
#include "tests/simt/museum.hpp"
#include "tests/simt/museum_expected.hpp"

namespace {

using flash::Completion, flash::Exhibit, flash::Expected, flash::Finding, flash::MachineOptions, flash::Order,
    flash::Variant;

// One worker and the forward order make reports repeatable to the last thread number.
const MachineOptions repeatable{.threads = 1, .keep_going = true};

// clang-format off
const Expected expected[] = {
    {"write_past_end", R"(out of bounds: write of out[40] (4 bytes); out has 40 elements
  write  {1}  block (0,0,0) warp 1 lane 8
  remedy: guard the access or fix the index
)"},
    {"read_far", R"(out of bounds: read of 4 bytes at an address outside every device array
  read  {1}  block (0,0,0) warp 0 lane 1
  remedy: guard the access or fix the index
)"},
    {"read_before_start", R"(out of bounds: read of in[-1] (4 bytes); in has 64 elements
  read  {1}  block (0,0,0) warp 0 lane 0
  remedy: guard the access or fix the index
)"},
    {"shared_past_end", R"(out of bounds: write of shared Row32+128 (4 bytes); Row32 has 128 bytes
  write  {1}  block (0,0,0) warp 0 lane 31
  remedy: guard the access or fix the index
)"},
    {"misaligned_float4", R"(misaligned: use of float4 at byte 4 of in
  uses  {1}  block (0,0,0) warp 0 lane 0
  remedy: its type needs an address that is a multiple of 16
)"},
    {"misaligned_by_half", R"(misaligned: use of float4 at byte 8 of in
  uses  {1}  block (0,0,0) warp 0 lane 0
  remedy: its type needs an address that is a multiple of 16
)"},
    {"misaligned_member", R"(misaligned: use of float4 at byte 4 of in
  uses  {1}  block (0,0,0) warp 0 lane 0
  remedy: its type needs an address that is a multiple of 16
)"},
    {"kernel_heap", R"(out of bounds: write of memory of {2}[4] (4 bytes); memory of {2} has 16 bytes
  write  {1}  block (0,0,0) warp 0 lane 0
  remedy: guard the access or fix the index
)"},
    {"freed_twice", R"(use after free: free of memory that no kernel holds
  frees  {1}  block (0,0,0) warp 0 lane 3
  remedy: free what new or malloc gave, once
)"},
    {"straddles_end", R"(out of bounds: read of out[40] (8 bytes); out has 41 elements
  read  {1}  block (0,0,0) warp 0 lane 20
  remedy: guard the access or fix the index
)"},
    {"misaligned_shared", R"(misaligned: read of 8 bytes at byte 4 of shared Row32
  read  {1}  block (0,0,0) warp 0 lane 1
  remedy: an n-byte access needs an address that is a multiple of n
)"},
    {"read_unwritten", R"(uninitialised: read of in[63] (4 bytes)
  read  {1}  block (0,0,0) warp 1 lane 31
  remedy: write it before reading it: fresh memory holds NaN
)"},
    {"ragged_tile", R"(uninitialised: read of shared Row64+252 (4 bytes)
  read  {1}  block (0,0,0) warp 0 lane 0
  remedy: write it before reading it: fresh memory holds NaN
  seen 24 times
)"},
    {"half_written_word", R"(uninitialised: read of out[7] (4 bytes)
  read  {1}  block (0,0,0) warp 0 lane 7
  remedy: write it before reading it: fresh memory holds NaN
)"},
    {"copied_struct", R"(uninitialised: read of items[5] (4 bytes)
  read  {1}  block (0,0,0) warp 0 lane 5
  remedy: write it before reading it: fresh memory holds NaN
)"},
    {"atomic_on_fresh", R"(uninitialised: atomic of fresh[0] (4 bytes)
  atomic  {1}  block (0,0,0) warp 0 lane 0
  remedy: write it before reading it: fresh memory holds NaN
  seen 64 times
)"},
    {"memset_past_end", R"(out of bounds: write of out[40] (4 bytes); out has 40 elements
  write  {1}  block (0,0,0) warp 0 lane 0
  remedy: guard the access or fix the index
)"},
    {"freed_and_reused", R"(use after free: read of old[0] (4 bytes); old was freed
  read  {1}  block (0,0,0) warp 0 lane 0
  remedy: free an array after the last kernel that uses it
)"},
    {"reduction_without_barrier", R"(race: write after read of shared Row64+4 (4 bytes)
  write  {1}  block (0,0,0) warp 0 lane 1
  read   {1}  block (0,0,0) warp 0 lane 0
  remedy: put __syncwarp() between the two
  seen 31 times
)"},
    {"loop_carried_war", R"(race: read after write of shared Row64+0 (4 bytes)
  read   {2}  block (0,0,0) warp 1 lane 0
  write  {1}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
  seen 2016 times
race: write after read of shared Row64+128 (4 bytes)
  write  {1}  block (0,0,0) warp 1 lane 0
  read   {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
  seen 63 times
)"},
    {"aliased_arrays", R"(race: read after write of shared Aliased+124 (4 bytes)
  read   {2}  block (0,0,0) warp 1 lane 0
  write  {1}  block (0,0,0) warp 0 lane 31
  remedy: put __syncthreads() between the two
  seen 32 times
race: write after read of shared Aliased+128 (4 bytes)
  write  {1}  block (0,0,0) warp 1 lane 0
  read   {2}  block (0,0,0) warp 0 lane 31
  remedy: put __syncthreads() between the two
  seen 32 times
)"},
    {"warp_synchronous", R"(race: write after read of shared Row32+4 (4 bytes)
  write  {1}  block (0,0,0) warp 0 lane 1
  read   {1}  block (0,0,0) warp 0 lane 0
  remedy: put __syncwarp() between the two
  seen 15 times
)"},
    {"unrolled_last_warp", R"(lockstep assumed: volatile write after volatile read of shared Row64+4 (4 bytes)
  volatile write  {1}  block (0,0,0) warp 0 lane 1
  volatile read   {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncwarp() between the two: lanes need not run in step
  seen 186 times
)"},
    {"far_reader", R"(race: write after read of shared Flagged+4 (4 bytes)
  write  {1}  block (0,0,0) warp 0 lane 0
  read   {2}  block (0,0,0) warp 1 lane 0
  remedy: put __syncthreads() between the two; with a flag: __threadfence() before it is set and after it is read
)"},
    {"third_reader", R"(race: write after read of shared Word+0 (4 bytes)
  write  {1}  block (0,0,0) warp 0 lane 3
  read   {2}  block (0,0,0) warp 0 lane 2
  remedy: put __syncwarp() between the two
)"},
    {"atomic_hides_reader", R"(race: atomic after read of shared Counter+0 (4 bytes)
  atomic  {1}  block (0,0,0) warp 1 lane 0
  read    {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
  seen 63 times
)"},
    {"volatile_and_plain", R"(race: write after volatile read of shared Counter+0 (4 bytes)
  write          {1}  block (0,0,0) warp 1 lane 0
  volatile read  {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
)"},
    {"near_and_far", R"(race: read after write of shared Word+0 (4 bytes)
  read   {1}  block (0,0,0) warp 1 lane 0
  write  {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
race: write after write of shared Word+0 (4 bytes)
  write  {3}  block (0,0,0) warp 1 lane 1
  write  {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
)"},
    {"memcpy_unordered", R"(race: read after write of shared Row64+128 (4 bytes)
  read   {1}  block (0,0,0) warp 1 lane 0
  write  {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
  seen 63 times
)"},
    {"init_accumulate", R"(race: write after write of out[32] (4 bytes)
  write  {2}  block (0,0,0) warp 1 lane 0
  write  {1}  block (0,0,0) warp 0 lane 31
  remedy: put __syncthreads() between the two
  seen 32 times
race: read after write of out[31] (4 bytes)
  read   {1}  block (0,0,0) warp 1 lane 0
  write  {2}  block (0,0,0) warp 0 lane 31
  remedy: put __syncthreads() between the two
  seen 32 times
race: write after write of out[31] (4 bytes)
  write  {1}  block (0,0,0) warp 1 lane 0
  write  {2}  block (0,0,0) warp 0 lane 31
  remedy: put __syncthreads() between the two
  seen 32 times
)"},
    {"atomic_and_plain", R"(race: atomic after write of out[0] (4 bytes)
  atomic  {1}  block (0,0,0) warp 1 lane 0
  write   {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
  seen 63 times
)"},
    {"add_blocks", R"(nondeterministic: additions to sums[0] (4 bytes) in no fixed order
  adds  {1}  block (2,0,0) warp 0 lane 0
  adds  {1}  block (1,0,0) warp 0 lane 0
  remedy: fix the order: let threads take turns at a semaphore, or store the parts and add them up in a second pass
  seen 64 times
)"},
    {"add_to_value", R"(nondeterministic: additions to sums[64] (4 bytes) in no fixed order
  adds  {1}  block (1,0,0) warp 0 lane 0
  adds  {1}  block (0,0,0) warp 0 lane 0
  remedy: fix the order: let threads take turns at a semaphore, or store the parts and add them up in a second pass
  seen 64 times
)"},
    {"add_counts", R"(nondeterministic: additions to sums[0] (4 bytes) in no fixed order
  adds  {1}  block (0,0,0) warp 0 lane 2
  adds  {1}  block (0,0,0) warp 0 lane 1
  remedy: fix the order: let threads take turns at a semaphore, or store the parts and add them up in a second pass
)"},
    {"add_in_turns", R"(nondeterministic: additions to sums[0] (4 bytes) in no fixed order
  adds  {1}  block (0,0,0) warp 2 lane 0
  adds  {1}  block (0,0,0) warp 1 lane 0
  remedy: fix the order: let threads take turns at a semaphore, or store the parts and add them up in a second pass
  seen 32 times
)"},
    {"add_lanes", R"(nondeterministic: additions to shared sum+0 (4 bytes) in no fixed order
  adds  {1}  block (0,0,0) warp 0 lane 2
  adds  {1}  block (0,0,0) warp 0 lane 1
  remedy: fix the order: let threads take turns at a semaphore, or store the parts and add them up in a second pass
)"},
    {"add_again", R"(nondeterministic: additions to shared bins+0 (4 bytes) in no fixed order
  adds  {1}  block (0,0,0) warp 1 lane 0
  adds  {1}  block (0,0,0) warp 0 lane 0
  remedy: fix the order: let threads take turns at a semaphore, or store the parts and add them up in a second pass
  seen 32 times
)"},
    {"blocks_write_same", R"(race: write after write of out[0] (4 bytes)
  write  {1}  block (1,0,0) warp 0 lane 0
  write  {1}  block (0,0,0) warp 0 lane 0
  remedy: blocks are unordered: give each block its own elements, use an atomic, or split the kernel
  seen 32 times
)"},
    {"blocks_read_halo", R"(race: write after read of x[32] (4 bytes)
  write  {2}  block (1,0,0) warp 0 lane 0
  read   {1}  block (0,0,0) warp 0 lane 31
  remedy: blocks are unordered: give each block its own elements, use an atomic, or split the kernel
)"},
    {"last_block_without_fence", R"(race: read after write of partial[0] (4 bytes)
  read   {1}  block (3,0,0) warp 0 lane 0
  write  {2}  block (0,0,0) warp 0 lane 0
  remedy: if a flag orders the blocks: __threadfence() before it is set and after it is read; else split the kernel
  seen 3 times
)"},
    {"last_block_resets", R"(race: write after atomic of ticket[0] (4 bytes)
  write   {1}  block (3,0,0) warp 0 lane 1
  atomic  {2}  block (3,0,0) warp 0 lane 0
  remedy: put __syncwarp() between the two
)"},
    {"fence_of_the_block", R"(race: read after write of partial[0] (4 bytes)
  read   {1}  block (3,0,0) warp 0 lane 0
  write  {2}  block (0,0,0) warp 0 lane 0
  remedy: if a flag orders the blocks: __threadfence() before it is set and after it is read; else split the kernel
  seen 3 times
)"},
    {"half_overlap", R"(race: write after write of out[0] (2 bytes)
  write  {1}  block (0,0,0) warp 0 lane 1
  write  {1}  block (0,0,0) warp 0 lane 0
  remedy: put __syncwarp() between the two
  seen 32 times
)"},
    {"byte_overlap", R"(race: write after write of out[0] (1 byte)
  write  {1}  block (0,0,0) warp 0 lane 1
  write  {1}  block (0,0,0) warp 0 lane 0
  remedy: put __syncwarp() between the two
  seen 32 times
)"},
    {"flag_by_all", R"(race: write after write of out[0] (4 bytes)
  write  {1}  block (0,0,0) warp 1 lane 0
  write  {1}  block (0,0,0) warp 0 lane 31
  remedy: all store the same value: harmless on today's GPUs, but undefined; let one thread store it, or use an atomic
  seen 63 times
)"},
    {"volatile_flag", R"(race: read after write of data[0] (4 bytes)
  read   {1}  block (0,0,0) warp 0 lane 0
  write  {2}  block (0,0,0) warp 1 lane 0
  remedy: put __syncthreads() between the two; with a flag: __threadfence() before it is set and after it is read
)"},
    {"barrier_in_branch", R"(barrier skipped: a thread exited by a way around the barrier at which others wait
  waits   {1}  block (0,0,0) warp 0 lane 0
  exited  {2}  block (0,0,0) warp 0 lane 16
  remedy: let all threads reach the same __syncthreads(), or return before it
)"},
    {"barrier_two_sites", R"(barrier divergence: threads of one block wait at different barriers
  waits  {2}  block (0,0,0) warp 1 lane 0
  waits  {1}  block (0,0,0) warp 0 lane 0
  remedy: let all threads reach the same __syncthreads()
)"},
    {"barrier_one_line", R"(barrier divergence: threads of one block wait at different barriers
  waits  {1}  block (0,0,0) warp 1 lane 0
  waits  {1}  block (0,0,0) warp 0 lane 0
  remedy: let all threads reach the same __syncthreads()
)"},
    {"barrier_trip_count", R"(barrier skipped: a thread exited by a way around the barrier at which others wait
  waits   {1}  block (0,0,0) warp 1 lane 0
  exited  {2}  block (0,0,0) warp 0 lane 0
  remedy: let all threads reach the same __syncthreads(), or return before it
)"},
    {"barrier_two_calls", R"(divergent call: threads of one block wait at one barrier in different calls of its function
  waits  {2}  block (0,0,0) warp 1 lane 0
  waits  {1}  block (0,0,0) warp 0 lane 0
  remedy: let all threads reach __syncthreads() by the same calls
)"},
    {"crossed_waits", R"(warp operation: __syncwarp with mask 0xffffffff waits for a lane that waits at a barrier
  calls  {1}  block (0,0,0) warp 0 lane 16
  waits  {2}  block (0,0,0) warp 0 lane 0
  remedy: name in the mask exactly the lanes that make the call
)"},
    {"spin_forever", R"(deadlock: no thread of the block can go on
  63 spin on an atomic  {1}  block (0,0,0) warp 0 lane 1
  1 exited                             block (0,0,0) warp 0 lane 0
  remedy: let a thread that runs at the same time change what they spin on
)"},
    {"shuffle_outside_mask", R"(warp operation: __shfl_sync with mask 0x0000ffff called by a lane that is not in it
  calls  {1}  block (0,0,0) warp 0 lane 16
  remedy: name in the mask exactly the lanes that make the call
)"},
    {"shuffle_inactive_source", R"(warp operation: __shfl_sync reads lane 20, which is not in the mask 0x0000ffff
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: name in the mask exactly the lanes that make the call
  seen 16 times
)"},
    {"shuffle_after_return", R"(warp operation: __shfl_sync with mask 0xffffffff waits for a lane that has exited
  calls   {1}  block (0,0,0) warp 0 lane 0
  exited                 block (0,0,0) warp 0 lane 24
  remedy: name in the mask exactly the lanes that make the call
)"},
    {"shuffle_two_sites", R"(warp operation: lanes of one mask meet at different operations
  calls  {2}  block (0,0,0) warp 0 lane 1
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: let all lanes of the mask make the same call
)"},
    {"syncwarp_in_branches", R"(warp operation: __syncwarp with mask 0xffffffff waits for a lane that has exited
  calls   {1}  block (0,0,0) warp 0 lane 0
  exited                 block (0,0,0) warp 0 lane 16
  remedy: name in the mask exactly the lanes that make the call
)"},
    {"shuffle_width", R"(warp operation: __shfl_xor_sync with width 12
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: the width is 1, 2, 4, 8, 16 or 32
)"},
    {"shuffle_beyond_block", R"(warp operation: __shfl_xor_sync reads lane 16, but its warp has 16 lanes
  calls  {1}  block (0,0,0) warp 1 lane 0
  remedy: read lanes that exist, or give the block whole warps
  seen 16 times
)"},
    {"mma_lane_returned", R"(warp operation: mma.sync waits for a lane that has exited
  calls   {1}  block (0,0,0) warp 0 lane 0
  exited                    block (0,0,0) warp 0 lane 31
  remedy: let all 32 lanes of the warp come to the same instruction
)"},
    {"mma_half_warp", R"(warp operation: mma.sync in a warp of 16 lanes
  calls  {1}  block (0,0,0) warp 1 lane 0
  remedy: give the block whole warps
)"},
    {"mma_two_sites", R"(warp operation: lanes of one mask meet at different operations
  calls  {2}  block (0,0,0) warp 0 lane 1
  calls  {1}  block (0,0,0) warp 0 lane 0
  remedy: let all 32 lanes of the warp come to the same instruction
)"},
    {"ldmatrix_past_end", R"(out of bounds: read of shared Rows+512 (16 bytes); Rows has 512 bytes
  read  {1}  block (0,0,0) warp 0 lane 31
  remedy: guard the access or fix the index
)"},
    {"ldmatrix_misaligned", R"(misaligned: read of 16 bytes at byte 8 of shared Rows
  read  {1}  block (0,0,0) warp 0 lane 0
  remedy: an n-byte access needs an address that is a multiple of n
)"},
    {"ldmatrix_of_global", R"(out of bounds: ldmatrix of an address outside the block's shared memory
  reads  {1}  block (0,0,0) warp 0 lane 0
  remedy: give it the address of a row in shared memory
)"},
    {"ldmatrix_ragged_tile", R"(uninitialised: read of shared Rows+384 (16 bytes)
  read  {1}  block (0,0,0) warp 0 lane 24
  remedy: write it before reading it: fresh memory holds NaN
  seen 8 times
)"},
    {"ldmatrix_without_barrier", R"(race: write after read of shared Rows+0 (2 bytes)
  write  {1}  block (0,0,0) warp 1 lane 0
  read   {2}  block (0,0,0) warp 0 lane 0
  remedy: put __syncthreads() between the two
  seen 32 times
)"},
    {"cp_async_no_wait", R"(asynchronous copy: read of shared Tile+252 (4 bytes) while cp.async writes it
  read      {1}  block (0,0,0) warp 0 lane 0
  cp.async  {2}  block (0,0,0) warp 0 lane 15
  remedy: let the copying thread wait for its copy (cp_async_wait), then __syncthreads()
  seen 64 times
)"},
    {"cp_async_wait_too_short", R"(asynchronous copy: read of shared Stages+508 (4 bytes) while cp.async writes it
  read      {1}  block (0,0,0) warp 0 lane 0
  cp.async  {2}  block (0,0,0) warp 0 lane 15
  remedy: wait for the copy's group, too: the last cp_async_wait<1> left it under way
  seen 64 times
)"},
    {"cp_async_no_commit", R"(asynchronous copy: read of shared Tile+252 (4 bytes) while cp.async writes it
  read      {1}  block (0,0,0) warp 0 lane 0
  cp.async  {2}  block (0,0,0) warp 0 lane 15
  remedy: commit the copy's group (cp_async_commit) before the wait
  seen 64 times
)"},
    {"cp_async_no_barrier", R"(race: read after cp.async of shared Tile+128 (4 bytes)
  read      {1}  block (0,0,0) warp 1 lane 0
  cp.async  {2}  block (0,0,0) warp 0 lane 8
  remedy: put __syncthreads() between the copying thread's cp_async_wait and this read
  seen 32 times
)"},
    {"cp_async_wait_after_barrier", R"(race: read after cp.async of shared Tile+128 (4 bytes)
  read      {1}  block (0,0,0) warp 1 lane 0
  cp.async  {2}  block (0,0,0) warp 0 lane 8
  remedy: put __syncthreads() between the copying thread's cp_async_wait and this read
  seen 32 times
)"},
    {"cp_async_refilled_early", R"(race: read after cp.async of shared Tile+128 (4 bytes)
  read      {2}  block (0,0,0) warp 1 lane 0
  cp.async  {1}  block (0,0,0) warp 0 lane 8
  remedy: put __syncthreads() between the copying thread's cp_async_wait and this read
  seen 32 times
)"},
    {"cp_async_same_stage", R"(asynchronous copy: read of shared Stages+204 (4 bytes) while cp.async writes it
  read      {1}  block (0,0,0) warp 0 lane 12
  cp.async  {2}  block (0,0,0) warp 0 lane 12
  remedy: let the thread wait for its copy (cp_async_wait) before this read
  seen 3 times
race: cp.async after read of shared Stages+208 (16 bytes)
  cp.async  {2}  block (0,0,0) warp 0 lane 13
  read      {1}  block (0,0,0) warp 0 lane 11
  remedy: put __syncwarp() between the two
  seen 9 times
race: read after cp.async of shared Stages+124 (4 bytes)
  read      {1}  block (0,0,0) warp 1 lane 0
  cp.async  {2}  block (0,0,0) warp 0 lane 7
  remedy: put __syncthreads() between the copying thread's cp_async_wait and this read
  seen 153 times
)"},
    {"cp_async_source_overwritten", R"(asynchronous copy: write of out[0] (4 bytes) while cp.async reads it
  write     {1}  block (0,0,0) warp 0 lane 0
  cp.async  {2}  block (0,0,0) warp 0 lane 0
  remedy: let the thread wait for its copy (cp_async_wait) before this write
  seen 16 times
)"},
    {"cp_async_source_of_others", R"(race: write after read of out[32] (4 bytes)
  write  {1}  block (0,0,0) warp 1 lane 0
  read   {2}  block (0,0,0) warp 0 lane 8
  remedy: put __syncthreads() between the two
  seen 32 times
)"},
    {"cp_async_two_to_one_place", R"(asynchronous copy: cp.async of shared Tile+0 (16 bytes) while another writes it
  cp.async  {1}  block (0,0,0) warp 0 lane 0
  cp.async  {2}  block (0,0,0) warp 0 lane 0
  remedy: copy to another place, or let the other copy's thread wait for it first (cp_async_wait)
  seen 16 times
)"},
    {"cp_async_to_global", R"(out of bounds: cp.async to an address outside the block's shared memory
  copies  {1}  block (0,0,0) warp 0 lane 0
  remedy: copy from global to shared memory
)"},
    {"cp_async_past_end", R"(out of bounds: write of shared Tile+256 (16 bytes); Tile has 256 bytes
  cp.async  {1}  block (0,0,0) warp 0 lane 16
  remedy: guard the access or fix the index
)"},
    {"cp_async_misaligned", R"(misaligned: write of 16 bytes at byte 20 of shared Stages
  cp.async  {1}  block (0,0,0) warp 0 lane 1
  remedy: an n-byte access needs an address that is a multiple of n
)"},
    {"cp_async_misaligned_source", R"(misaligned: read of 16 bytes at byte 20 of in
  read  {1}  block (0,0,0) warp 0 lane 1
  remedy: an n-byte access needs an address that is a multiple of n
)"},
    {"cp_async_misaligned_tail", R"(misaligned: use of a source of cp.async at byte 12 of in
  uses  {1}  block (0,0,0) warp 0 lane 1
  remedy: its type needs an address that is a multiple of 16
)"},
    {"cp_async_source_past_end", R"(out of bounds: read of in[40] (16 bytes); in has 42 elements
  read  {1}  block (0,0,0) warp 0 lane 10
  remedy: guard the access or fix the index
)"},
    {"cp_async_unwritten_read",
     R"(uninitialised: read of shared Tile+168 (4 bytes), copied from in[42], which nobody had written
  read      {1}  block (0,0,0) warp 1 lane 10
  cp.async  {2}  block (0,0,0) warp 0 lane 10
  remedy: write it before it is copied, or do not read what was copied from there: fresh memory holds NaN
  seen 22 times
)"},
    {"cp_async_source_too_large", R"(asynchronous copy: cp.async of 16 bytes reads 168
  copies  {1}  block (0,0,0) warp 0 lane 0
  remedy: the source has at most the bytes of the copy
)"},
};
// clang-format on

// "exhibit:k" -> "museum.cu:line", read from the marks.
std::map<std::string, std::string> marks() {
  std::map<std::string, std::string> found;
  const std::regex mark("[a-z_0-9]+:[0-9]+");
  for (const std::string file :
       {"museum.cu", "museum_ptx.cu", "museum_tma.cu", "museum_bulk.cu", "museum_wgmma.cu", "museum_cluster.cu"}) {
    std::ifstream source(FLASH_SOURCE_DIR "/tests/simt/" + file);
    int number = 0;
    for (std::string line; std::getline(source, line);) {
      ++number;
      const std::size_t at = line.find("//@");
      if (at == std::string::npos) continue;
      for (std::sregex_iterator m(line.begin() + static_cast<long>(at), line.end(), mark), end; m != end; ++m)
        found[m->str()] = file + ":" + std::to_string(number);
    }
  }
  return found;
}

std::string text(const std::vector<Finding>& findings) {
  std::string all;
  for (const Finding& f : findings) all += f.text + "\n";
  return all;
}

std::vector<Finding> run(const char* name, Variant variant, const MachineOptions& options) {
  return flash::on_checked::run_exhibit(name, variant, options);
}

// Every order; and every policy of when asynchronous copies complete, in each order. The other exhibits know nothing
// that could complete.
std::vector<MachineOptions> schedules(const Exhibit& exhibit) {
  std::vector<MachineOptions> all{{.keep_going = true}, {.order = Order::reverse, .keep_going = true}};
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    all.push_back({.order = Order::random, .seed = seed, .keep_going = true});
  if (!flash::is_of_ptx(exhibit.name)) return all;
  for (const Order order : {Order::forward, Order::reverse, Order::random})
    for (const Completion completion : {Completion::eager, Completion::random})
      all.push_back({.order = order, .seed = 7, .completion = completion, .keep_going = true});
  return all;
}

// How often a block looks at a flag is the schedule's affair.
flash::Ledger without_flags(flash::Ledger ledger) {
  std::erase_if(ledger.arrays, [](const flash::ArrayTraffic& a) { return a.name == "flags"; });
  return ledger;
}

}  // namespace

TEST_CASE("each bug is reported word for word") {
  const std::map<std::string, std::string> line = marks();
  for (const Exhibit& exhibit : flash::exhibits) {
    std::string report = "(the test expects nothing for this exhibit)";
    for (const Expected& e : expected)
      if (std::string(e.exhibit) == exhibit.name) report = e.report;
    for (const Expected& e : flash::wgmma_expected)
      if (std::string(e.exhibit) == exhibit.name) report = e.report;
    for (const Expected& e : flash::bulk_expected)
      if (std::string(e.exhibit) == exhibit.name) report = e.report;
    for (const Expected& e : flash::tma_expected)
      if (std::string(e.exhibit) == exhibit.name) report = e.report;
    for (const Expected& e : flash::cluster_expected)
      if (std::string(e.exhibit) == exhibit.name) report = e.report;
    if (!exhibit.visible) report = "";
    for (int k = 1; k <= 3; ++k)
      for (std::size_t at; (at = report.find("{" + std::to_string(k) + "}")) != std::string::npos;) {
        const auto mark = line.find(std::string(exhibit.name) + ":" + std::to_string(k));
        REQUIRE(mark != line.end());
        report.replace(at, 3, mark->second);
      }
    const std::string got = text(run(exhibit.name, Variant::bug, repeatable));
    CHECK_MESSAGE(got == report, std::string(exhibit.name), "\n--- got\n", got, "--- expected\n", report);
  }
}

TEST_CASE("each twin is silent, whatever the schedule") {
  for (const Exhibit& exhibit : flash::exhibits) {
    if (flash::is_of_ptx(exhibit.name)) continue;
    for (const MachineOptions& options : schedules(exhibit)) {
      const std::string got = text(run(exhibit.name, Variant::twin, options));
      CHECK_MESSAGE(got == "", std::string(exhibit.name), ", seed ", options.seed, "\n", got);
    }
  }
}

TEST_CASE("tensor cores and asynchronous copies: each twin is silent, its result and counters the same, always") {
  for (const Exhibit& exhibit : flash::exhibits) {
    if (!flash::is_of_ptx(exhibit.name)) continue;
    const flash::PtxExhibit first = flash::on_checked::run_ptx_exhibit(exhibit.name, Variant::twin, {});
    CAPTURE(exhibit.name);
    CHECK(flash::on_sim::run_ptx_exhibit(exhibit.name, Variant::twin, {}).out == first.out);
    for (MachineOptions options : schedules(exhibit)) {
      options.deterministic = flash::is_of_additions(exhibit.name);
      const flash::PtxExhibit other = flash::on_checked::run_ptx_exhibit(exhibit.name, Variant::twin, options);
      CHECK_MESSAGE(other.findings.empty(), "seed ", options.seed, "\n", text(other.findings));
      CHECK(other.out == first.out);
      CHECK(without_flags(other.ledger) == without_flags(first.ledger));
    }
  }
}

// The stage that is copied to holds what it held before, the same numbers: by luck the result would be right.
TEST_CASE("a tile that is read before its wait is NaN, unless copies arrive at once") {
  const auto sum = [](Completion completion) {
    const MachineOptions options{.completion = completion, .threads = 1, .keep_going = true};
    float all = 0;
    for (const float x : flash::on_checked::run_ptx_exhibit("cp_async_same_stage", Variant::bug, options).out) all += x;
    return all;
  };
  CHECK(std::isnan(sum(Completion::late)));
  CHECK(sum(Completion::eager) == 4 * (63 * 64 / 2));  // four tiles of 0 to 63
}

TEST_CASE("accumulators are NaN until the wait, unless products end at once") {
  const auto first = [](const char* exhibit, Completion completion) {
    const MachineOptions options{.completion = completion, .threads = 1, .keep_going = true};
    CHECK(flash::on_sim::run_ptx_exhibit(exhibit, Variant::twin, options).out[0] == 16);
    return flash::on_sim::run_ptx_exhibit(exhibit, Variant::bug, options).out[0];
  };
  CHECK(std::isnan(first("wgmma_no_wait", Completion::late)));
  CHECK(first("wgmma_no_wait", Completion::eager) == 16);
}

// One half of A's elements was 2 when the product was read, as late as it may.
TEST_CASE("operands are read as late as they may be") {
  const auto first = [](Completion completion) {
    const MachineOptions options{.completion = completion, .threads = 1, .keep_going = true};
    return flash::on_sim::run_ptx_exhibit("wgmma_a_rewritten", Variant::bug, options).out[0];
  };
  CHECK(first(Completion::late) > first(Completion::eager));
}

// Thread t copies from out[4 t], overwrites it, and stores what has come into out[4 t + 1].
TEST_CASE("the source of an asynchronous copy is read as late as it may be") {
  for (const auto& run : {flash::on_sim::run_ptx_exhibit, flash::on_checked::run_ptx_exhibit})
    for (const Completion completion : {Completion::late, Completion::eager}) {
      const MachineOptions options{.completion = completion, .threads = 1, .keep_going = true};
      const std::vector<float> out = run("cp_async_source_overwritten", Variant::bug, options).out;
      for (std::size_t t = 1; t < 16; ++t) CHECK((out[4 * t + 1] == out[4 * t]) == (completion == Completion::late));
    }
}

TEST_CASE("each bug is found, whatever the schedule") {
  for (const Exhibit& exhibit : flash::exhibits)
    for (const MachineOptions& options : schedules(exhibit))
      CHECK_MESSAGE(run(exhibit.name, Variant::bug, options).empty() != exhibit.visible, std::string(exhibit.name),
                    ", order ", static_cast<int>(options.order), ", seed ", options.seed);
}

TEST_CASE("without keep_going a finding is an error") {
  CHECK_THROWS_AS(run("loop_carried_war", Variant::bug, {}), flash::Error);
  CHECK_NOTHROW(run("loop_carried_war", Variant::twin, {}));
}

TEST_CASE("an unknown exhibit is refused") {
  CHECK_THROWS_WITH_AS(run("no such", Variant::bug, {}), doctest::Contains("exhibit is no such"), flash::Error);
}
