// counters.hpp: groups the lanes' accesses into warp requests and counts bytes, sectors, wavefronts, bank conflicts.
// Lanes run one after another here, so a request is put together afterwards: the n-th access of a lane at a site since
// the warp last met belongs to the same request as every other lane's n-th there. Exact for uniform control flow.
// Use: Checker logs each access; flush() when a warp meets; the totals go into the launch's Ledger.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "sim/core/access.hpp"
#include "sim/core/observer.hpp"
#include "sim/ledger.hpp"

namespace flash::simt {

// Instead of an array's index: shared memory, that of another block of the cluster.
constexpr unsigned kSharedSpace = ~0u, kClusterSpace = kSharedSpace - 1;

// Requests that follow one another at a site, most often all of a loop, each a `step` behind the one before. Most often
// the lanes are a `stride` apart (0: a broadcast); else a table has their addresses in the first request. Which lanes
// take part follows from how far each has come.
struct RequestRun {
  std::uintptr_t base;         // address of lane 0 in the first request
  std::int32_t stride, step;   // bytes
  std::uint32_t first, count;  // the first request's number
  std::uint32_t next;          // run; kNone: it is the last
  std::uint32_t table;         // kNone: by base and stride
};
constexpr std::uint32_t kNone = ~0u;

class Counters {
 public:
  void begin_launch(std::size_t arrays);
  void begin_block(std::size_t warps);
  // The thread that runs from here on.
  void select(unsigned thread);
  void log(unsigned site, std::uintptr_t address, unsigned bytes, Access access, unsigned space);
  // The same where the lane joins a request that others have begun, or begins one more of a run; false, and nothing
  // counted, otherwise.
  bool join(unsigned site, std::uintptr_t address, unsigned space);
  // After join(): the lane's next accesses at the site, if it goes on as others did. take() counts so many of them in
  // advance, give_back() those that it has not made.
  struct Ahead {
    std::uintptr_t address;
    std::int32_t step;
    std::uint32_t count;
  };
  Ahead ahead(unsigned site) const;
  void take(unsigned site, std::uint32_t accesses) { sites_[site].lanes[lane_].reached += accesses; }
  void give_back(unsigned site, std::uint32_t accesses) { sites_[site].lanes[lane_].reached -= accesses; }
  // Counts and forgets the warp's requests; returns how many there were. Calls use(site) for what these lanes reached.
  template <class Use>
  std::size_t flush(unsigned warp, unsigned lanes, const Use& use);
  // Calls use(site) for each site that the lanes reached since their warp last met.
  template <class Use>
  void for_each_site(unsigned warp, unsigned lanes, const Use& use) const;
  // Requests since the warp last met in which lane 0 takes part.
  std::size_t pending(unsigned warp) const;

  std::vector<ArrayTraffic> arrays;
  std::uint64_t shared_reads = 0, shared_writes = 0, wavefronts = 0, ideal_wavefronts = 0;
  std::uint64_t cluster_read_bytes = 0, cluster_written_bytes = 0;
  Tally tally{};
  const Observers* observers = nullptr;  // who is told of requests to shared memory; null: nobody

 private:
  static constexpr unsigned kLanes = 32;
  struct LaneAddress {
    std::uintptr_t address = 0;
    std::uint32_t space = 0;
  };
  using Addresses = std::array<LaneAddress, kLanes>;
  struct Lane {
    std::uint32_t reached = 0;  // in how many requests it takes part
    std::uint32_t run = 0;      // where the next one is, or a run before that
  };
  struct alignas(64) Site {
    std::vector<RequestRun> runs;           // beginning with the first, in whatever order behind it
    const RequestRun* at_hand = &kNothing;  // its data()
    std::uint32_t requests = 0;
    std::uint32_t last = 0;   // run
    std::uint32_t space = 0;  // of the first request; others are in tables
    std::uint8_t bytes = 0;
    Access access{};
    std::array<Lane, kLanes> lanes{};
  };
  static constexpr RequestRun kNothing{0, 0, 0, 0, 0, kNone, kNone};
  struct Warp {
    std::vector<Site> sites;
    std::vector<unsigned> touched;
    std::vector<Addresses> scattered;
  };
  std::size_t flush(unsigned warp);
  void more_sites(unsigned site);
  static LaneAddress place(const Warp& warp, const Site& at, const RequestRun& run, unsigned lane,
                           std::uint32_t request);
  [[gnu::noinline]] static bool next_run(const Site& at, Lane& lane);
  [[gnu::noinline]] void log_otherwise(unsigned site, std::uintptr_t address, unsigned bytes, Access access,
                                       unsigned space);
  [[gnu::noinline]] bool extend(Site& at, Lane& lane, std::uintptr_t address, unsigned space);
  void begin_request(unsigned site, std::uintptr_t address, unsigned bytes, Access access, unsigned space);
  void differ(Site& at, Lane& lane, std::uintptr_t address, unsigned space);
  std::uint32_t split(Site& at, std::uint32_t run, std::uint32_t requests);
  std::uint32_t table_of(const Site& at, const RequestRun& run, std::uint32_t request, unsigned lanes);
  static unsigned lanes_beyond(const Site& at, std::uint32_t request);
  void count(const Warp& warp, const Site& at);
  void count(const Warp& warp, const Site& at, const RequestRun& run, std::uint32_t from, std::uint32_t requests,
             unsigned lanes);
  void count(const Site& at, const Addresses& addresses, unsigned lanes, unsigned space, std::uint64_t times);
  void tell(unsigned warp, const Site& at);
  std::vector<Warp> warps_;
  // Of the running thread:
  Warp* warp_ = nullptr;
  Site* sites_ = nullptr;
  unsigned site_count_ = 0, lane_ = 0, lane_bit_ = 1;
};

template <class Use>
void Counters::for_each_site(unsigned warp, unsigned lanes, const Use& use) const {
  for (unsigned site : warps_[warp].touched)
    for (unsigned m = lanes; m; m &= m - 1)
      if (warps_[warp].sites[site].lanes[static_cast<std::size_t>(std::countr_zero(m))].reached > 0) {
        use(site);
        break;
      }
}

template <class Use>
std::size_t Counters::flush(unsigned warp, unsigned lanes, const Use& use) {
  for_each_site(warp, lanes, use);
  return flush(warp);
}

// Where a lane is in a request of the run.
[[gnu::always_inline]] inline Counters::LaneAddress Counters::place(const Warp& warp, const Site& at,
                                                                    const RequestRun& run, unsigned lane,
                                                                    std::uint32_t request) {
  LaneAddress at_first{run.base + static_cast<std::uintptr_t>(std::int64_t{run.stride} * lane), at.space};
  if (run.table != kNone) at_first = warp.scattered[run.table][lane];
  return {at_first.address + static_cast<std::uintptr_t>(std::int64_t{run.step} * request), at_first.space};
}

[[gnu::always_inline]] inline void Counters::log(unsigned site, std::uintptr_t address, unsigned bytes, Access access,
                                                 unsigned space) {
  if (!join(site, address, space)) log_otherwise(site, address, bytes, access, space);
}

[[gnu::always_inline]] inline bool Counters::join(unsigned site, std::uintptr_t address, unsigned space) {
  if (site >= site_count_) return false;
  Site& at = sites_[site];
  Lane& lane = at.lanes[lane_];
  if (lane.reached - at.at_hand[lane.run].first >= at.at_hand[lane.run].count && !next_run(at, lane))
    return extend(at, lane, address, space);
  const RequestRun& run = at.at_hand[lane.run];
  const LaneAddress expected = place(*warp_, at, run, lane_, lane.reached - run.first);
  if (expected.address != address || expected.space != space) return false;
  ++lane.reached;
  return true;
}

[[gnu::always_inline]] inline Counters::Ahead Counters::ahead(unsigned site) const {
  const Site& at = sites_[site];
  const RequestRun& run = at.at_hand[at.lanes[lane_].run];
  const std::uint32_t request = at.lanes[lane_].reached - run.first;
  return {place(*warp_, at, run, lane_, request).address, run.step, run.count - request};
}

}  // namespace flash::simt
