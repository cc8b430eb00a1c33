// museum.hpp: the bug museum's catalogue: which exhibits exist, what each must make a checker say, what it stands for.
// An exhibit is a kernel of museum.cu, museum_ptx.cu or museum_tma.cu, as a bug and as a correct twin, at which every
// tool is silent.
// Use: for (const Exhibit& e : exhibits) on_checked::run_exhibit(e.name, Bug, options);   (on_gpu, on_sim alike)
#pragma once
#include <string>
#include <vector>

#include "sim/machine_options.hpp"

namespace flash {

enum class Variant { bug, twin };

struct Exhibit {
  const char* name;        // also the kernel's name and the word behind the //@ marks
  const char* bug;         // what is wrong, in a few words
  const char* stands_for;  // the real bug that it is a small copy of, or the rule that it breaks
  const char* tool;        // the compute-sanitizer tool whose job it is; "" where none has that job
  bool visible = true;     // false: a bug that no checker of this kind can see; both variants stay silent
};

inline constexpr Exhibit exhibits[] = {
    {"write_past_end", "`<=` for `<`: writes one element past the end of an array", "the classic edge mistake",
     "memcheck"},
    {"read_far", "an index in rows used as an index in elements: reads far outside", "stride mistakes", "memcheck"},
    {"read_before_start", "a stencil reads element -1", "edge of a sliding window", "memcheck"},
    {"shared_past_end", "writes one element past the end of the shared struct", "tile one column too small",
     "memcheck"},
    {"misaligned_float4", "a 16-byte load from an address that is a multiple of 4", "row length not a multiple of 4",
     "memcheck"},
    {"misaligned_member", "reads a member through a float4* from an address that is a multiple of 4",
     "the compiler may load the whole, which faults", "memcheck"},
    {"kernel_heap", "writes past the end of what malloc gave in the kernel", "per-thread scratch buffers", "memcheck"},
    {"freed_twice", "a kernel deletes what it has deleted", "clean-up in two branches", "memcheck"},
    {"straddles_end", "an 8-byte load of the last 4 bytes of an array", "vectorised loads of an odd length",
     "memcheck"},
    {"misaligned_shared", "an 8-byte load from a multiple of 4 in shared memory", "vectorised loads of a tile",
     "memcheck"},
    {"read_unwritten", "reads the one element of an array that no kernel has written", "a buffer that is not cleared",
     "initcheck"},
    {"ragged_tile", "the tail of a tile is read although only its valid rows were loaded",
     "K/V tail beyond the sequence's end", ""},
    {"half_written_word", "a 4-byte read of a word of which only half was written", "a pair of which one is forgotten",
     "initcheck"},
    {"copied_struct", "a struct with an unwritten member is copied; the twin's has unwritten padding only",
     "false alarms: padding is copied, not used", "initcheck"},
    {"atomic_on_fresh", "atomicAdd on memory that was never written; the twin begins with atomicExch",
     "a counter that is not cleared", "initcheck"},
    {"memset_past_end", "memset clears one element too many", "elements taken for bytes", "memcheck"},
    {"freed_and_reused", "reads through a pointer to a freed array, after another one was allocated",
     "a pointer kept across a reallocation", "memcheck"},
    {"reduction_without_barrier", "tree reduction in shared memory, barrier missing inside the loop",
     "the first bug of every reduction tutorial", "racecheck"},
    {"loop_carried_war", "the next iteration overwrites a reduction buffer that others still read",
     "JustVugg/colibri#1098, gittensor-ai-lab/sparkinfer#705", "racecheck"},
    {"aliased_arrays", "two shared arrays occupy the same bytes, the barrier between their uses is missing",
     "Q's tile reused for O, scores reused for values", "racecheck"},
    {"warp_synchronous", "a warp reduction in shared memory without __syncwarp",
     "code from before Volta: lanes do not run in lockstep", "racecheck"},
    {"unrolled_last_warp", "the same with volatile instead of __syncwarp: lanes need not run in step",
     "NVIDIA's reduction tutorial of 2007, step 5", "racecheck"},
    {"far_reader", "a write after reads by two lanes, which are ordered, and by another warp, which is not",
     "a checker that keeps the last readers only", "racecheck"},
    {"third_reader", "a write after reads by three lanes, of which the writer has met two",
     "masks of __syncwarp that leave a lane out", "racecheck"},
    {"atomic_hides_reader", "one thread reads a counter plainly, then all add to it atomically",
     "an atomic must not make a checker forget the plain read before it", "racecheck"},
    {"volatile_and_plain", "one thread polls a word that another stores to plainly",
     "a flag that is volatile on one side", "racecheck"},
    {"near_and_far", "a store races with a load in its warp and a store in another", "the remedy must be for both",
     "racecheck"},
    {"memcpy_unordered", "one thread copies a row into shared memory, the others read it without a barrier",
     "bulk copies by one thread", "racecheck"},
    {"init_accumulate", "one thread clears an element of global memory while another accumulates into it",
     "karpathy/llm.c#847", ""},
    {"atomic_and_plain", "a plain store of the initial value mixes with the others' atomicAdd",
     "karpathy/llm.c#847 with atomics", ""},
    {"blocks_write_same", "two blocks write the same elements: the block's index is missing",
     "grid mapping mistakes, split-K without a reduction", ""},
    {"blocks_read_halo", "a stencil in place: a block reads what its neighbour overwrites",
     "in-place updates across blocks", ""},
    {"last_block_without_fence", "the last block sums partial results that no fence has published",
     "split-KV reductions: CUDA's threadFenceReduction sample without the fence", ""},
    {"last_block_resets", "another lane than the one that took the last ticket sets it back, ordered by a shuffle only",
     "CUDA's threadFenceReduction sample, which is the twin", ""},
    {"fence_of_the_block", "the last block sums partial results that __threadfence_block has published to no other",
     "a fence too narrow", ""},
    {"half_overlap", "two threads write the same fp16 element; the twin writes neighbours in one 32-bit word",
     "false alarms: triton-lang/triton#11205, #11608", ""},
    {"byte_overlap", "two threads write the same byte; the twin writes neighbours in one word",
     "false alarms: quantisers, flags", ""},
    {"flag_by_all", "all threads store the same value to one element", "a flag for \"somebody found something\"", ""},
    {"volatile_flag", "a message behind a volatile flag, without fences", "message passing between warps", ""},
    {"barrier_in_branch", "__syncthreads in a branch that some threads go around; the twin's have exited before it",
     "ggml-org/llama.cpp#27870", "synccheck"},
    {"barrier_two_sites", "both sides of a branch have their own __syncthreads", "barriers duplicated by hand",
     "synccheck"},
    {"barrier_one_line", "two barriers on one line of the source, half the threads at each", "conditional expressions",
     "synccheck"},
    {"barrier_trip_count", "a loop with a barrier runs once for one warp and twice for the other",
     "causal loops whose bound depends on the row", "synccheck"},
    {"barrier_two_calls", "threads wait in two calls of a function that has the barrier",
     "a helper that synchronises, called in both sides of a branch", ""},
    {"crossed_waits", "half a warp waits at __syncthreads, the other half at __syncwarp for the first half",
     "warp-specialised code with crossed waits", "synccheck"},
    {"spin_forever", "63 threads spin on a flag that nobody sets", "a semaphore whose release was forgotten", ""},
    {"shuffle_outside_mask", "lanes call a shuffle with a mask that does not name them",
     "masks copied from another branch", ""},
    {"shuffle_inactive_source", "reads the register of a lane that the mask does not name: an undefined value",
     "wrong width after a partial warp", ""},
    {"shuffle_after_return", "full-mask shuffle after some lanes have returned",
     "ggml-org/llama.cpp#27870, #27955 (same kernel family)", ""},
    {"shuffle_two_sites", "the lanes of one mask reach two different shuffles", "shuffles duplicated by a branch", ""},
    {"syncwarp_in_branches",
     "the lanes of one warp call __syncwarp with different masks; the twin's meet in two branches",
     "divergent code that synchronises", "synccheck"},
    {"shuffle_width", "a shuffle in segments of 12 lanes", "the width must be a power of two", ""},
    {"shuffle_beyond_block", "lanes of a half-empty last warp read lanes that do not exist", "block sizes of 48", ""},
    {"mma_lane_returned", "a lane has returned before its warp's mma", "an early return for rows beyond the end", ""},
    {"mma_half_warp", "an mma in a warp of 16 lanes", "block sizes that are no multiple of 32", ""},
    {"mma_two_sites", "the lanes of one warp reach two different mma", "an mma in both sides of a branch", ""},
    {"ldmatrix_past_end", "the last lane's row lies past the end of the shared struct", "tile one row too small",
     "memcheck"},
    {"ldmatrix_misaligned", "rows of ldmatrix begin at multiples of 8 bytes", "tiles padded by half a row", "memcheck"},
    {"ldmatrix_of_global", "ldmatrix is given rows of global memory", "the tile's pointer mistaken for the array's",
     "memcheck"},
    {"ldmatrix_ragged_tile", "ldmatrix reads rows that nobody has written", "K/V tail beyond the sequence's end", ""},
    {"ldmatrix_without_barrier", "another warp writes the rows of ldmatrix, the barrier is missing",
     "tiles loaded by other warps", "racecheck"},
    {"cp_async_no_wait", "reads a tile without a wait for its copies", "a barrier taken for a wait", ""},
    {"cp_async_wait_too_short", "waits for all groups but one, and reads that one's tile",
     "the last tile of a double-buffered loop", ""},
    {"cp_async_no_commit", "waits for copies that belong to no group yet", "a forgotten commit", ""},
    {"cp_async_no_barrier", "reads what others have copied: their wait is there, the barrier behind it is missing",
     "a wait taken for a barrier", "racecheck"},
    {"cp_async_wait_after_barrier", "waits behind the barrier instead of before it", "two lines in the wrong order",
     "racecheck"},
    {"cp_async_refilled_early", "the next tile is copied over one that others still read",
     "the barrier at the end of a loop over tiles", "racecheck"},
    {"cp_async_same_stage", "the copy ahead goes into the stage that is being read", "a stage's index not switched",
     ""},
    {"cp_async_source_overwritten", "a thread overwrites what its own copy reads, before the wait", "in-place updates",
     ""},
    {"cp_async_source_of_others", "overwrites what another warp's copies read, behind a barrier but before their wait",
     "in-place updates", ""},
    {"cp_async_two_to_one_place", "two copies under way to one place", "a tile's row index that repeats", ""},
    {"cp_async_to_global", "the destination of cp.async is global memory", "arguments in memcpy's manner", "memcheck"},
    {"cp_async_past_end", "the last copy's destination lies past the end of the shared struct",
     "tile one row too small", "memcheck"},
    {"cp_async_misaligned", "the destination's rows are no multiples of 16 bytes", "padding against bank conflicts",
     "memcheck"},
    {"cp_async_misaligned_source", "the source's rows are no multiples of 16 bytes", "a leading dimension of 5",
     "memcheck"},
    {"cp_async_misaligned_tail", "the same where fewer bytes are read than the copy has", "rows of 3 elements",
     "memcheck"},
    {"cp_async_source_past_end", "the last copy reads past the end of its array; the twin fills with zeros",
     "K/V tail beyond the sequence's end", "memcheck"},
    {"cp_async_source_too_large", "the number of bytes to read exceeds the copy's 16", "a tail not limited to one copy",
     ""},
    {"tma_no_wait", "reads a tile without a wait on the mbarrier of its load", "a barrier taken for a wait", ""},
    {"tma_wrong_parity", "waits for the parity of the phase before the first, which counts as complete",
     "the consumer's parity begun at 1, as the producer's", ""},
    {"tma_one_waits", "one warp waits for the tile, two read it", "a wait in a branch", "racecheck"},
    {"tma_expects_too_much", "the mbarrier expects the bytes of two loads, there is one: nobody goes on",
     "a box that was made smaller, its bytes not", "synccheck"},
    {"tma_counts_valid_rows", "the mbarrier expects the bytes inside the tensor; the whole box's come",
     "K/V tail beyond the sequence's end", "synccheck"},
    {"tma_expects_too_little", "the mbarrier expects the bytes of one load, there are two", "a second panel added", ""},
    {"tma_refilled_early", "the next tile is loaded over one that others still read",
     "the barrier at the end of a loop over tiles", "racecheck"},
    {"tma_q_released_early", "one lane releases a tile right after its warp's ldmatrix: the others' rows may be unread",
     "Q's tile of a persistent kernel: 5 of 6 runs wrong on an H200", "racecheck"},
    {"tma_over_stores", "a load into a tile that was cleared by ordinary stores, without a proxy fence",
     "a tile's padding cleared once", ""},
    {"tma_misaligned", "the tile begins at a multiple of 16 bytes, not of 128", "tiles behind a small array",
     "memcheck"},
    {"tma_past_end", "the tile's second half lies past the end of the shared struct", "a stage too many", "memcheck"},
    {"tma_rank", "three coordinates for a map of two dimensions", "a map made for another layout", "memcheck"},
    {"tma_map_too_large", "the map says one row more than the array has", "a padded length taken for the true one",
     "memcheck"},
    {"tma_one_too_many", "the last turn of a loop loads a tile ahead that nobody waits for",
     "the tile after the last one", ""},
    {"tma_no_proxy_fence", "a bulk store of a tile that ordinary stores wrote, without a proxy fence",
     "pengcuo/FlashMLA-ETAP#3; an H200 shows nothing", ""},
    {"tma_store_no_barrier", "a bulk store of a tile that other threads wrote, with their fences, without a barrier",
     "a fence taken for a barrier", "racecheck"},
    {"tma_staging_reused", "the tile of a bulk store is written again before it was read",
     "O's staging, an H200 shows nothing", "racecheck"},
    {"tma_left_early", "the block ends before its bulk store is known to have read its tile",
     "the last line of an epilogue; an H200 shows nothing", ""},
    {"tma_no_commit", "the wait is for groups, the store is in none", "a forgotten commit", ""},
    {"tma_read_is_not_written", "reads what a bulk store writes after the wait with .read", "the two waits confused",
     ""},
    {"mbarrier_not_published", "a load completes on an mbarrier that fence_mbarrier_init has not published",
     "an H200 shows nothing", ""},
    {"mbarrier_init_unordered", "others wait on an mbarrier that may not be made yet", "a forgotten barrier",
     "synccheck"},
    {"mbarrier_arrivals_missing", "mbarrier_init says 32 arrivals, one lane arrives for its warp", "threads or warps",
     "synccheck"},
    {"mbarrier_too_many_arrivals", "mbarrier_init says one arrival, there are two in one phase",
     "arrive.expect_tx taken for expect_tx", "synccheck"},
    {"mbarrier_phase_skipped", "arrivals of the next phase before anybody has waited for the last one",
     "a consumer that need not wait", ""},
    {"mbarrier_overtaken", "two phases complete while threads may still wait for the first",
     "an mbarrier used as a barrier for all", "synccheck"},
    {"mbarrier_misaligned", "an mbarrier at a multiple of 4 bytes", "an mbarrier behind an int", "memcheck"},
    {"mbarrier_made_twice", "mbarrier_init of an mbarrier in use", "a loop over tiles around the set-up", "synccheck"},
    {"mbarrier_not_made", "arrives at an mbarrier that nobody has made", "one stage too few in the set-up",
     "synccheck"},
    {"mbarrier_overwritten", "a tile's element too far is the mbarrier behind it", "tile one column too small", ""},
    {"mbarrier_of_none", "mbarrier_init of 0 arrivals", "a count of consumers that rounds down", "synccheck"},
    {"blind_member_overrun", "an index overruns one array of the shared struct into the next", "padding mistakes", "",
     false},
    {"blind_row_overrun", "a column index overruns its row into the next row of the same array",
     "leading dimension mistakes", "", false},
};

// An exhibit of an instruction of PTX: with what it calculated and what was counted, which no schedule may change.
struct PtxExhibit {
  std::vector<Finding> findings;
  std::vector<float> out;
  Ledger ledger;
};
inline bool is_of_tma(const std::string& name) {
  return name.starts_with("tma_") || name.starts_with("mbarrier_");
}
inline bool is_of_ptx(const std::string& name) {
  return name.starts_with("mma_") || name.starts_with("ldmatrix_") || name.starts_with("cp_async_") || is_of_tma(name);
}

// Runs one exhibit on a fresh machine and returns what the machine has to say (nothing on `on_sim` and `on_gpu`).
// An unknown name is refused.
namespace on_sim {
std::vector<Finding> run_exhibit(const std::string& name, Variant variant, const MachineOptions& options);
PtxExhibit run_ptx_exhibit(const std::string& name, Variant variant, const MachineOptions& options);
PtxExhibit run_tma_exhibit(const std::string& name, Variant variant, const MachineOptions& options);
}  // namespace on_sim
namespace on_checked {
std::vector<Finding> run_exhibit(const std::string& name, Variant variant, const MachineOptions& options);
PtxExhibit run_ptx_exhibit(const std::string& name, Variant variant, const MachineOptions& options);
PtxExhibit run_tma_exhibit(const std::string& name, Variant variant, const MachineOptions& options);
}  // namespace on_checked
namespace on_gpu {
std::vector<Finding> run_exhibit(const std::string& name, Variant variant, const MachineOptions& options);
PtxExhibit run_ptx_exhibit(const std::string& name, Variant variant, const MachineOptions& options);
PtxExhibit run_tma_exhibit(const std::string& name, Variant variant, const MachineOptions& options);
}  // namespace on_gpu

}  // namespace flash
