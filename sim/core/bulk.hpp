// bulk.hpp: TMA of one block: copies of boxes and lines between global and shared memory, the mbarriers that loads
// complete on, the bulk groups that stores and reductions belong to. PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk".
// A load is complete when its bytes are there and its mbarrier has been told; when that happens before somebody waits
// is a choice (Completion; late: when no thread can run any more). A store reads its tile before a wait for its group
// returns, and writes before one without .read does, or before the block ends. A reduction is a store that adds.
// Use: Worker has one; kernels come through sim/dialect/hopper.hpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "sim/core/async.hpp"
#include "sim/core/findings.hpp"
#include "sim/core/mbarrier.hpp"
#include "sim/core/simt.hpp"
#include "sim/core/tensor_map.hpp"

namespace flash::simt {

class Worker;

// What a bulk reduction makes of two floats: rounded to nearest, subnormals kept, a NaN always this one. An H200's
// results are in docs/results/conformance-hopper-h200.txt.
float bulk_sum(float a, float b);

// The remedy where an mbarrier expects other bytes than come.
constexpr char kExpectBytes[] = "expect as many bytes as the phase's copies have, edges of boxes included";

class Bulk {
 public:
  explicit Bulk(Worker& worker) : worker_(worker) {}
  void begin_block(Completion completion, std::uint64_t seed);
  void end_block(bool regularly);

  // What a kernel calls, by the running thread.
  void init(std::uint64_t* barrier, unsigned arrivals, Site site);
  void fence_init();
  void arrive(std::uint64_t* barrier, bool expects, unsigned bytes, Site site);
  void arrive_cluster(std::uint64_t* barrier, unsigned rank, bool relaxed, Site site);
  // `far`: it knows of what other blocks of the cluster have released, too.
  unsigned parity(const std::uint64_t* barrier);
  void wait(std::uint64_t* barrier, unsigned parity, bool far, Site site);
  bool test_wait(std::uint64_t* barrier, unsigned parity, const char* instruction, Site site);
  void invalidate(std::uint64_t* barrier, Site site);
  void load(void* tile, const TensorMap* map, std::uint64_t* barrier, const int* coordinates, unsigned rank, Site site);
  void load(void* shared, const void* global, unsigned bytes, std::uint64_t* barrier, Site site);
  // To the same place in the cluster's blocks whose bits are set, each with its own mbarrier.
  void multicast(void* tile, const TensorMap* map, std::uint64_t* barrier, const int* coordinates, unsigned rank,
                 unsigned blocks, Site site);
  // From this block's shared memory to that of the cluster's block that the mbarrier is of.
  void send(void* to, const void* from, unsigned bytes, std::uint64_t* barrier, Site site);
  void prefetch(const TensorMap* map, unsigned rank, Site site);
  void prefetch(const void* global, unsigned bytes, Site site);
  void store(const TensorMap* map, const void* tile, const int* coordinates, unsigned rank, Site site);
  void store(void* global, const void* shared, unsigned bytes, bool adds, Site site);
  void commit();
  void wait_stores(unsigned pending, bool read);

  // No thread can run: completes a load that one waits for, or asks for; false if there is none.
  bool advance();
  // Threads only spin, on memory perhaps: completes the stores under way; false if there are none.
  bool finish_stores();
  // " mbarrier shared Smem+0, parity 1: 2 arrivals and 1024 bytes missing"; an mbarrier where bytes alone are.
  std::string missing(const std::byte* barrier, unsigned parity) const;
  bool misses_bytes(const std::byte* barrier) const;

 private:
  struct Load {
    TensorBox box;
    Mbarrier* barrier;
    const char* name;
    Site site;
    unsigned thread;
    std::uint64_t phase;  // of the barrier when it was issued
    AsyncRanges::Id reading = 0, writing = 0;
    std::size_t event = 0;     // in the trace
    unsigned block = 0;        // the issuer's
    Worker* reader = nullptr;  // as Mbarrier::Brought's
  };
  struct Store {
    TensorBox box;
    const char* name;
    bool adds;
    Site site;
    unsigned thread;
    std::uint64_t group;  // of its thread, counted from 0
    AsyncRanges::Id reading, writing;
    bool was_read = false, was_written = false, known = false;  // known: its thread knows that it was read
    std::vector<std::byte> bytes;
  };
  struct OfThread {
    std::list<Store> stores;
    std::uint64_t committed = 0;
  };

  Mbarrier& barrier_at(std::uint64_t* barrier, const char* instruction, Site site);
  void check_rank(const TensorMap& map, unsigned rank, const char* name, const char* verb, Site site);
  TensorBox box_at(const TensorMap* map, const void* tile, const int* coordinates, unsigned rank, const char* name,
                   Site site);
  void check_line(const void* global, unsigned bytes, const char* name, const char* verb, Site site);
  TensorBox line_at(const void* shared, const void* global, unsigned bytes, const char* name, const char* verb,
                    Site site);
  void begin(const TensorBox& box, std::uint64_t* barrier, const char* name, Site site);
  void begin(const TensorBox& box, Mbarrier& barrier, const char* name, Site site, Worker& by, bool counted = false);
  Mbarrier& far_barrier_at(Worker& other, std::uint64_t* barrier, const char* instruction, bool arrives, Site site);
  void begin(const TensorBox& box, bool adds, const char* name, Site site);
  void finds_complete(Mbarrier& barrier, bool far);
  void returned(Mbarrier& barrier);
  void complete(std::list<Load>::iterator load);
  void maybe_complete();
  void end_phase_if_done(Mbarrier& barrier);
  void arrive(Mbarrier& barrier, Worker& by, bool expects, unsigned bytes, Site site, bool relaxed = false);
  void learn(Mbarrier& barrier, unsigned thread, bool far);
  void read(Store& store);
  void write(Store& store);
  void trace_completion(Mbarrier& barrier);
  void accuse(const std::string& what, const std::string& remedy, FindingSide side);

  Worker& worker_;
  Completion completion_ = Completion::late;
  std::mt19937_64 random_;
  std::deque<Mbarrier> barriers_;  // stay where they are
  std::map<const void*, Mbarrier*> at_;
  struct Invalidated {
    Site site;
    unsigned thread;
  };
  std::map<const void*, Invalidated> were_at_;  // and no other one since
  std::list<Load> loads_;                       // under way, oldest first
  std::map<unsigned, OfThread> threads_;
};

}  // namespace flash::simt
