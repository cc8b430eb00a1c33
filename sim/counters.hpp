// counters.hpp: groups the lanes' accesses into warp requests and counts bytes, sectors, wavefronts, bank conflicts.
// Lanes run one after another here, so a request is put together afterwards: the n-th access of a lane at a site since
// the warp last met belongs to the same request as every other lane's n-th there. Exact for uniform control flow.
// Use: Checker logs each access; flush() when a warp meets; the totals go into the launch's Ledger.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "sim/ledger.hpp"
#include "sim/simt.hpp"

namespace flash::simt {

// Bits: 1 reads, 2 writes, 4 atomic or volatile.
enum class Access : unsigned { read = 1, write = 2, atomic_read = 5, atomic_write = 6, atomic = 7 };
constexpr bool is_read(Access a) {
  return static_cast<unsigned>(a) & 1;
}
constexpr bool is_write(Access a) {
  return static_cast<unsigned>(a) & 2;
}
constexpr bool is_atomic(Access a) {
  return static_cast<unsigned>(a) & 4;
}

constexpr unsigned kSharedSpace = ~0u;  // instead of an array's index

// One instruction of one warp. Most requests are affine in the lane (also with stride 0: a broadcast); others keep
// each lane's address in a table.
struct Request {
  std::uint32_t next;       // the same site's following request + 1, 0 = none
  std::uint32_t lanes;      // mask
  std::uintptr_t base;      // address of the first lane that came, if affine
  std::int32_t stride;      // bytes from lane to lane
  std::uint32_t scattered;  // index into the table + 1, 0 = affine
  std::uint32_t space;
  std::uint8_t bytes, first_lane;
  Access access;
};

class Counters {
 public:
  void begin_launch(std::size_t arrays);
  void begin_block(std::size_t warps);
  void log(unsigned thread, unsigned site, std::uintptr_t address, unsigned bytes, Access access, unsigned space);
  // Counts and forgets the warp's requests; returns how many there were.
  std::size_t flush(unsigned warp);
  // Requests since the warp last met in which lane 0 takes part.
  std::size_t pending(unsigned warp) const;

  std::vector<ArrayTraffic> arrays;
  std::uint64_t shared_reads = 0, shared_writes = 0, wavefronts = 0, ideal_wavefronts = 0;
  Tally tally{};

 private:
  static constexpr unsigned kLanes = 32;
  struct LaneAddress {
    std::uintptr_t address = 0;
    std::uint32_t space = 0;
  };
  using Addresses = std::array<LaneAddress, kLanes>;
  struct Site {
    std::uint32_t first = 0;                     // its first request + 1
    std::array<std::uint32_t, kLanes> latest{};  // per lane: its latest request + 1
  };
  struct Warp {
    std::vector<Request> requests;
    std::vector<Site> sites;
    std::vector<unsigned> touched;
    std::vector<Addresses> scattered;
  };
  void scatter(Warp& warp, Request& request);
  void count(const Request& request, const Addresses& addresses, unsigned lanes, unsigned space);
  std::vector<Warp> warps_;
};

inline void Counters::log(unsigned thread, unsigned site, std::uintptr_t address, unsigned bytes, Access access,
                          unsigned space) {
  Warp& warp = warps_[thread / kLanes];
  const unsigned lane = thread % kLanes;
  if (site >= warp.sites.size()) [[unlikely]]
    warp.sites.resize(site + 1);
  Site& at = warp.sites[site];
  std::uint32_t& latest = at.latest[lane];
  std::uint32_t& link = latest ? warp.requests[latest - 1].next : at.first;
  if (link == 0) {
    // The first lane to come this far begins the request.
    if (at.first == 0) warp.touched.push_back(site);
    const auto index = static_cast<std::uint32_t>(warp.requests.size() + 1);
    link = index;  // before push_back, which may move the link
    latest = index;
    warp.requests.push_back({0, 1u << lane, address, 0, 0, space, static_cast<std::uint8_t>(bytes),
                             static_cast<std::uint8_t>(lane), access});
    return;
  }
  latest = link;
  Request& request = warp.requests[link - 1];
  if (request.scattered == 0) {
    const std::int64_t lanes_apart = static_cast<int>(lane) - request.first_lane;
    const std::int64_t apart = static_cast<std::int64_t>(address - request.base);
    if ((request.lanes & (request.lanes - 1)) == 0) request.stride = static_cast<std::int32_t>(apart / lanes_apart);
    if (request.stride * lanes_apart != apart || request.space != space) [[unlikely]]
      scatter(warp, request);
  }
  if (request.scattered != 0) warp.scattered[request.scattered - 1][lane] = {address, space};
  request.lanes |= 1u << lane;
}

}  // namespace flash::simt
