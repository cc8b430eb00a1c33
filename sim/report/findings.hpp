// findings.hpp: how the simulator reports the defects of a kernel that the core and the checks have found.
// The text is stable: tests assert it. Sites are file:line with the file's last path component.
// Use: Machine turns the findings of its workers into reports after the launch.
#pragma once
#include <array>
#include <vector>

#include "sim/core/findings.hpp"
#include "sim/machine_options.hpp"

// The format. First line "<kind>: <what>", then one line per side, the remedy, and the count when it is above 1.
// Array elements are "name[index]"; shared memory is "shared Struct+offset" in bytes. A side is
// "  <what padded to the longest><2 spaces><file:line>  block (x,y,z) warp w lane l".
//
//   race: write after read of shared Smem+128 (4 bytes)
//     write  reduce.cu:31  block (0,0,0) warp 1 lane 3
//     read   reduce.cu:28  block (0,0,0) warp 0 lane 3
//     remedy: put __syncthreads() between the two
//     seen 12 times
//
// Sites are padded to the longest one too. "seen n times" counts over all blocks and elements.
//
//   "race": "<access> after <access> of <element> (<n> bytes)", with access one of write, read, atomic, volatile write,
//     volatile read, cp.async (which writes). The later access comes first. Of all pairs of these two lines one that is
//     farthest apart is shown,
//     and the remedy is that pair's. Within a warp: "put __syncwarp() between the two"; within a block:
//     "put __syncthreads() between the two"; between blocks: "blocks are unordered: give each block its own elements,
//     use an atomic, or split the kernel". If both are plain and the block has used atomics or volatile loads: "put
//     __syncthreads() between the two; with a flag: __threadfence() before it is set and after it is read"; "if a flag
//     orders the blocks: __threadfence() before it is set and after it is read; else split the kernel". If all pairs
//     are stores and none changed the value: "all store the same value: harmless on today's GPUs, but undefined; let
//     one thread store it, or use an atomic". After cp.async: "put __syncthreads() between the copying thread's
//     cp_async_wait and this read".
//     Of two launches in streams without order the earlier side is "write of an earlier launch", the remedy an event.
//   "out of bounds": "<read|write|atomic> of in[1024] (4 bytes); in has 1024 elements", for an array whose type nobody
//     told "of in[1024] (4 bytes); in has 4096 bytes", counted in units of the access, for shared memory
//     "read of shared Smem+4096 (4 bytes); Smem has 4096 bytes" (", the block 8192" when the launch gives more than the
//     struct needs), for an address that belongs to nobody
//     "read of 4 bytes at an address outside every device array". One side. Remedy: "guard the access or fix the index"
//     "ldmatrix of an address outside the block's shared memory" (side "reads"), "cp.async to an address outside …"
//     ("copies").
//     The block stops there.
//   "use after free": "read of old[0] (4 bytes); old was freed". One side.
//     Remedy: "free an array after the last kernel that uses it". The block stops there.
//     "free of memory that no kernel holds". One side "frees". Remedy: "free what new or malloc gave, once".
//   "misaligned": "read of 16 bytes at byte 4 of in" (or "at byte 4 of shared Smem"). One side.
//     Remedy: "an n-byte access needs an address that is a multiple of n". The block stops there.
//     "use of float4 at byte 4 of in", also where only a member is used. One side "uses".
//     Remedy: "its type needs an address that is a multiple of 16". The block stops there.
//   "lockstep assumed": "volatile read after volatile write of <element> (<n> bytes)", by another lane of the warp; one
//     of the two is a write. Two sides. Remedy: "put __syncwarp() between the two: lanes need not run in step"
//   "uninitialised": "read of out[3] (4 bytes)" or "read of shared Smem+12 (4 bytes)". One side.
//     Remedy: "write it before reading it: fresh memory holds NaN"
//     "read of shared Smem+12 (4 bytes), copied from in[3], which nobody had written", by cp.async or TMA: two sides,
//     the second is the copy. Remedy: "write it before it is copied, or do not read what was copied from there: fresh
//     memory holds NaN". "wgmma sums over shared Smem+12 (2 bytes), copied from in[3], …", together with others that
//     were written. Remedy: "let the copy bring zeros (a tensor map that ends before them) or fill them: 0 times NaN
//     is NaN"
//   "barrier divergence": (a) "threads of one block wait at different barriers", two sides, each "waits";
//     Remedy: "let all threads reach the same __syncthreads()"
//   "divergent call": "threads of one block wait at one barrier in different calls of its function", two sides "waits"
//     with the lines of the calls. Remedy: "let all threads reach __syncthreads() by the same calls"
//   "barrier skipped": "a thread exited by a way around the barrier at which others wait": it ran code that these run
//     after the barrier, and did not wait; the hardware tolerates it. Sides: "waits" (the barrier), "exited" (that
//     code). Remedy: "let all threads reach the same __syncthreads(), or return before it"
//   "warp operation": (a) "__shfl_sync with mask 0x0000ffff called by a lane that is not in it", one side "calls";
//     Remedy: "name in the mask exactly the lanes that make the call"
//     (b) "lanes of one mask meet at different operations" (kind of operation or site differ), two sides "calls";
//     Remedy: "let all lanes of the mask make the same call"
//     (c) "__shfl_sync with mask 0xffffffff waits for a lane that has exited", sides "calls", "exited" (without site);
//     (d) "__shfl_sync with mask 0xffffffff waits for a lane that waits in another operation", sides "calls", "waits";
//     (e) "__shfl_sync with mask 0xffffffff waits for a lane that waits at a barrier", sides "calls", "waits";
//     Remedy of c, d, e as of (a). The block stops there in a to e.
//     (f) "__shfl_sync reads lane 20, which is not in the mask 0x0000ffff", one side "calls". Remedy as of (a).
//     (g) "__shfl_sync reads lane 20, but its warp has 16 lanes", one side "calls".
//     Remedy: "read lanes that exist, or give the block whole warps"
//     (i) "mma.sync in a warp of 16 lanes", one side "calls". Remedy: "give the block whole warps". b to e of mma.sync
//     and ldmatrix say "let all 32 lanes of the warp come to the same instruction".
//     (h) "__shfl_sync with width 12", one side "calls". Remedy: "the width is 1, 2, 4, 8, 16 or 32". The block stops.
//   "deadlock": "no thread of the block can go on" and one side per group of threads that wait at one place:
//     "31 wait at __syncthreads  k.cu:12  block (0,0,0) warp 0 lane 0" (the group's first thread), at the end
//     "1 exited  block (0,0,0) warp 1 lane 31" when there are any.
//     The remedy is that of what they wait for: "let as many arrive in each phase as mbarrier_init counts"; where some
//     wait in one way and some in another, "these wait for one another: let all threads come to both places, in one
//     order". The block stops there.
//     At an mbarrier: "64 wait at mbarrier shared Smem+0, parity 0: 1 arrival and 1024 bytes missing  k.cu:9  …"; where
//     bytes alone are missing, or too many came, the remedy is "expect as many bytes as the phase's copies have,
//     edges of boxes included".
//     It is used when neither of the more precise kinds above explains why nothing moves, and for threads that
//     spin on an atomic, or a volatile load, which nobody changes ("32 spin on an atomic  k.cu:9  ...").
//   "asynchronous copy": "read of <element> (<n> bytes) while cp.async writes it" (or a write), "write of <element>
//     (<n> bytes) while cp.async reads it". Two sides, the second "cp.async". Remedy: "let the copying thread wait for
//     its copy (cp_async_wait), then __syncthreads()"; by the same thread: "let the thread wait for its copy
//     (cp_async_wait) before this read"; if its group was not committed: "commit the copy's group (cp_async_commit)
//     before the wait"; if a wait has left it: "wait for the copy's group, too: the last cp_async_wait<1> left it under
//     way".
//     "cp.async of <element> (<n> bytes) while another writes it", two sides "cp.async". Remedy: "copy to
//     another place, or let the other copy's thread wait for it first (cp_async_wait)"
//     "cp.async of 16 bytes reads 20", "cp.async of 12 bytes": one side "copies". The block stops there.
//     Of TMA ("cp.async.bulk.tensor", "cp.async.bulk.tensor (store)", "cp.async.bulk", "cp.async.bulk (store)",
//     "cp.reduce.async.bulk", which "adds to it") and wgmma the same two forms, with the remedies
//     "let the thread wait on the load's mbarrier (mbarrier_wait) before this read"; "let the issuing thread wait for
//     it (cp_async_bulk_wait_read), then a barrier, before this write"; "let the issuing thread wait for the writes
//     (cp_async_bulk_wait, not its _read form) before this read". Races name them as they name cp.async; where another
//     block reads what a flag tells of: "a flag needs cp_async_bulk_wait (not _read) and __threadfence() before it is
//     set, __threadfence() after".
//     "cp.async.bulk of 20 bytes", "cp.reduce.async.bulk of 0 bytes": one side "loads", "stores", "adds" or "fetches".
//     Remedy: "copy a multiple of 16 bytes, at least 16". The block stops there.
//     "the block ends before a store was known to have read its tile" (of a reduction: "its source"), "the block ends
//     and no thread has waited for a load" (where nothing else was wrong): one side, the copy. "cp.async.bulk.tensor
//     with 3 coordinates, its tensor map has 2 dimensions": one side "loads" or "stores". The block stops there.
//   "proxy fence": "cp.async.bulk.tensor (store) reads shared Smem+0, written by an ordinary store without a proxy
//     fence" (or "overwrites"; "by an atomic", "by a volatile store"): two sides, the second "write", "atomic" or
//     "volatile write". Remedy: "let the storing thread call fence_proxy_async() before the barrier".
//     "a copy completes on mbarrier shared Smem+0, which no fence has published since mbarrier_init": two sides,
//     "copies" and "mbarrier.init".
//   "mbarrier": misuse of one; one side, or two: "mbarrier_init of shared Smem+0, which is an mbarrier already". The
//     words are in sim/core/bulk.cpp; tests/simt/museum_expected.hpp has an example of most.
//   "asynchronous product": of wgmma's registers. "read of d[5] while wgmma writes it" (d: the accumulators), "write of
//     a[2] while wgmma reads it": two sides, the second "wgmma". Remedy: "let the warpgroup wait for it (wgmma_wait)
//     before this read"; not committed: "commit the product (wgmma_commit), then wait for it (wgmma_wait) before this
//     read"; if a wait has left it: "wait for its group, too: the last wgmma_wait<1> left it under way".
//     "read of an accumulator that no wgmma_wait has named", "wgmma_wait<1> names an array whose product it leaves
//     under way", "the block has ended while wgmma is under way": one side.
//   "warpgroup operation": what a warpgroup must do as one. "wgmma waits for a warp of its warpgroup that has exited"
//     (or "waits at …"), "warps of one warpgroup meet at different instructions": two sides. "wgmma: the threads of a
//     warpgroup give different matrix descriptors"; "wgmma without a wgmma_fence before it", "wgmma after an access to
//     d[0], and no wgmma_fence between the two". The block stops there, but for fences.
//   "named barrier", "register budget": "bar.sync 1, 128: the first to come said 96 threads", "setmaxnreg.inc 40: the
//     warpgroup's threads have 168". The block stops there. tests/simt/museum_expected.hpp has an example of each.
//     Also "wgmma.wait_group: the threads of a warpgroup give different numbers of groups to leave".
//   "nondeterministic" (MachineOptions::deterministic): "additions to <element> (<n> bytes) in no fixed order", once
//     for each element. Two sides "adds", the later one first. Remedy: "fix the order: let threads take turns at a
//     semaphore, or store the parts and add them up in a second pass"; where the earlier one is asynchronous and may be
//     under way: "…, each after the full wait for the additions before it (cp_async_bulk_wait), or …".
//     A vector of floats in shared memory: "out of bounds", "addition of a vector of floats to <element>".
//   "no end", "division by zero", "stack overflow", "out of bounds" on the fast machine: sim/core/faults.cpp has the
//     words. One side "runs". The block stops there.
namespace flash::simt {

// Sorts by block, words the reports, merges what has the same kind and sites.
std::vector<Finding> worded(std::vector<RawFinding> raw, const std::array<unsigned, 3>& grid);

}  // namespace flash::simt
