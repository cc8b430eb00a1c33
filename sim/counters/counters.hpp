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

// One instruction of one warp. Most requests are affine in the lane (also with stride 0: a broadcast). Irregular ones,
// marked by a bit that no address has, are those with one lane so far (its address is the base) and those that keep
// each lane's address in a table (the stride is the index + 1).
struct Request {
  std::uintptr_t base;  // address of lane 0
  std::int32_t stride;  // bytes from lane to lane
  std::uint32_t lanes;  // mask
};
constexpr std::uintptr_t kIrregular = std::uintptr_t{1} << 63;

class Counters {
 public:
  void begin_launch(std::size_t arrays);
  void begin_block(std::size_t warps);
  // The thread that runs from here on.
  void select(unsigned thread);
  void log(unsigned site, std::uintptr_t address, unsigned bytes, Access access, unsigned space);
  // The same where the lane joins a regular request that others have begun; false, and nothing done, otherwise.
  bool join(unsigned site, std::uintptr_t address, unsigned space);
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
  struct alignas(64) Site {
    std::vector<Request> requests;  // in order of occurrence
    Request* first = nullptr;       // its data() and size(), at hand
    std::uint32_t count = 0;
    std::uint32_t space = 0;  // of the first request; others are irregular
    std::uint8_t bytes = 0;
    Access access{};
    std::array<std::uint32_t, kLanes> reached{};  // per lane: how many of them it takes part in
  };
  struct Warp {
    std::vector<Site> sites;
    std::vector<unsigned> touched;
    std::vector<Addresses> scattered;
  };
  std::size_t flush(unsigned warp);
  void more_sites(unsigned site);
  void begin_request(unsigned site, std::uintptr_t address, unsigned bytes, Access access, unsigned space);
  void irregular(Site& at, Request& request, std::uintptr_t address, unsigned space);
  void count(const Warp& warp, const Site& at, const Request& request);
  void tell(unsigned warp, const Site& at, const Request& request);
  void count(const Site& at, const Addresses& addresses, unsigned lanes, unsigned space);
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
      if (warps_[warp].sites[site].reached[static_cast<std::size_t>(std::countr_zero(m))] > 0) {
        use(site);
        break;
      }
}

template <class Use>
std::size_t Counters::flush(unsigned warp, unsigned lanes, const Use& use) {
  for_each_site(warp, lanes, use);
  return flush(warp);
}

[[gnu::always_inline]] inline void Counters::log(unsigned site, std::uintptr_t address, unsigned bytes, Access access,
                                                 unsigned space) {
  if (site >= site_count_) [[unlikely]]
    more_sites(site);
  Site& at = sites_[site];
  const std::uint32_t n = at.reached[lane_]++;
  if (n >= at.requests.size()) [[unlikely]] {
    begin_request(site, address, bytes, access, space);
    return;
  }
  Request& request = at.requests[n];
  if (at.space != space || request.base + static_cast<std::uintptr_t>(std::int64_t{request.stride} * lane_) != address)
      [[unlikely]]
    irregular(at, request, address, space);
  request.lanes |= lane_bit_;
}

[[gnu::always_inline]] inline bool Counters::join(unsigned site, std::uintptr_t address, unsigned space) {
  if (site >= site_count_) return false;
  Site& at = sites_[site];
  std::uint32_t& reached = at.reached[lane_];
  if (reached >= at.count || at.space != space) return false;
  Request& request = at.first[reached];
  if (request.base + static_cast<std::uintptr_t>(std::int64_t{request.stride} * lane_) != address) return false;
  ++reached;
  request.lanes |= lane_bit_;
  return true;
}

}  // namespace flash::simt
