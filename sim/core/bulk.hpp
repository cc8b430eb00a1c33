// bulk.hpp: TMA of one block: copies of boxes between global and shared memory, the mbarriers that loads complete on,
// the bulk groups that stores belong to. PTX ISA, "cp.async.bulk.tensor".
// A load is complete when its bytes are there and its mbarrier has been told; when that happens before somebody waits
// is a choice (Completion; late: when no thread can run any more). A store reads its tile before a wait for its group
// returns, and writes before one without .read does, or before the block ends.
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
#include "sim/core/mbarrier.hpp"
#include "sim/core/simt.hpp"
#include "sim/core/tensor_map.hpp"
#include "sim/report/findings.hpp"

namespace flash::simt {

class Worker;

class Bulk {
 public:
  explicit Bulk(Worker& worker) : worker_(worker) {}
  void begin_block(Completion completion, std::uint64_t seed);
  void end_block(bool regularly);

  // What a kernel calls, by the running thread.
  void init(std::uint64_t* barrier, unsigned arrivals, Site site);
  void fence_init();
  void arrive(std::uint64_t* barrier, bool expects, unsigned bytes, Site site);
  void arrive_cluster(std::uint64_t* barrier, unsigned rank, Site site);
  // `far`: it knows of what other blocks of the cluster have released, too.
  void wait(std::uint64_t* barrier, unsigned parity, bool far, Site site);
  void load(void* tile, const TensorMap* map, std::uint64_t* barrier, const int* coordinates, unsigned rank, Site site);
  void prefetch(const TensorMap* map, unsigned rank, Site site);
  void store(const TensorMap* map, const void* tile, const int* coordinates, unsigned rank, Site site);
  void commit();
  void wait_stores(unsigned pending, bool read);

  // No thread can run: completes a load that one waits for; false if there is none.
  bool advance();
  // "wait at mbarrier shared Smem+0, parity 1: 2 arrivals and 1024 bytes missing"; an mbarrier where bytes alone are.
  std::string missing(const std::byte* barrier, unsigned parity) const;
  bool misses_bytes(const std::byte* barrier) const;

 private:
  struct Load {
    TensorBox box;
    Mbarrier* barrier;
    Site site;
    unsigned thread;
    std::uint64_t phase;  // of the barrier when it was issued
    AsyncRanges::Id reading = 0, writing = 0;
    std::size_t event = 0;  // in the trace
  };
  struct Store {
    TensorBox box;
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
  void complete(std::list<Load>::iterator load);
  void maybe_complete();
  void end_phase_if_done(Mbarrier& barrier);
  void arrive(Mbarrier& barrier, Worker& by, bool expects, unsigned bytes, Site site);
  void learn(Mbarrier& barrier, unsigned thread, bool far = false);
  void read(Store& store);
  void write(Store& store);
  void trace_completion(Mbarrier& barrier);
  void accuse(const std::string& what, const std::string& remedy, FindingSide side);

  Worker& worker_;
  Completion completion_ = Completion::late;
  std::mt19937_64 random_;
  std::deque<Mbarrier> barriers_;  // stay where they are
  std::map<const void*, Mbarrier*> at_;
  std::list<Load> loads_;  // under way, oldest first
  std::map<unsigned, OfThread> threads_;
};

}  // namespace flash::simt
