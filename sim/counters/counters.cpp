// counters.cpp: what a finished request costs, in Nsight Compute's words.
// Global: sectors = distinct aligned 32-byte pieces that its lanes touch. Shared: 32 banks of 4 bytes; a wavefront
// serves one word of each bank, to as many lanes as lanes_per_pass() says. See docs/simulator.md.
#include "sim/counters/counters.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace flash::simt {

namespace {

// How many lanes are served together: 128 bytes' worth, that is half a warp for 8-byte accesses and a quarter for
// 16-byte ones; twice as many when in the whole warp each lane wants the same address as lane ^ 1 (or lane ^ 2).
// ldmatrix and stmatrix take their matrices, the rows of 8 lanes, one after the other, whatever their addresses are.
// Measured: docs/results/wavefronts-h200.csv, wavefronts-ptx-h200.csv. A lane that takes no part agrees with its
// neighbour.
unsigned lanes_per_pass(unsigned bytes, Access access, bool neighbours_agree) {
  if (bytes <= 4) return 32;
  return (128 / bytes) * (neighbours_agree && (static_cast<unsigned>(access) & 32) == 0 ? 2 : 1);
}

template <class Addresses>
bool neighbours_agree(const Addresses& addresses, unsigned lanes) {
  for (const unsigned apart : {1u, 2u}) {
    bool agree = true;
    for (unsigned m = lanes; m && agree; m &= m - 1) {
      const auto lane = static_cast<unsigned>(std::countr_zero(m)), other = lane ^ apart;
      agree = !(lanes >> other & 1) || addresses[lane].address == addresses[other].address;
    }
    if (agree) return true;
  }
  return false;
}

}  // namespace

void Counters::begin_launch(std::size_t array_count) {
  arrays.assign(array_count, ArrayTraffic{});
  shared_reads = shared_writes = wavefronts = ideal_wavefronts = 0;
  cluster_read_bytes = cluster_written_bytes = 0;
  for (Warp& warp : warps_) warp.sites.clear();  // sites are numbered anew
}

void Counters::begin_block(std::size_t warps) {
  if (warps_.size() < warps) warps_.resize(warps);
}

void Counters::select(unsigned thread) {
  warp_ = &warps_[thread / kLanes];
  lane_ = thread % kLanes;
  lane_bit_ = 1u << lane_;
  sites_ = warp_->sites.data();
  site_count_ = static_cast<unsigned>(warp_->sites.size());
}

void Counters::more_sites(unsigned site) {
  warp_->sites.resize(site + 1);
  sites_ = warp_->sites.data();
  site_count_ = site + 1;
}

// The first lane to come this far begins the request.
void Counters::begin_request(unsigned site, std::uintptr_t address, unsigned bytes, Access access, unsigned space) {
  Site& at = sites_[site];
  if (at.requests.empty()) {
    warp_->touched.push_back(site);
    at.space = space, at.bytes = static_cast<std::uint8_t>(bytes), at.access = access;
  }
  at.requests.push_back({kIrregular | address, 0, lane_bit_});
  at.first = at.requests.data(), at.count = static_cast<std::uint32_t>(at.requests.size());
  if (at.space != space) irregular(at, at.requests.back(), address, space);
}

// The second lane decides the stride; a lane that does not fit turns the request into a table of addresses.
void Counters::irregular(Site& at, Request& request, std::uintptr_t address, unsigned space) {
  if (!(request.base & kIrregular) || request.stride == 0) {
    const bool one = request.base & kIrregular;
    const std::uintptr_t base = request.base & ~kIrregular;
    const int first = std::countr_zero(request.lanes), lanes_apart = static_cast<int>(lane_) - first;
    const auto apart = static_cast<std::int64_t>(address - base);
    if (one && lanes_apart != 0 && at.space == space && apart % lanes_apart == 0 && std::abs(apart) < 1 << 30) {
      request.stride = static_cast<std::int32_t>(apart / lanes_apart);
      request.base = base - static_cast<std::uintptr_t>(std::int64_t{request.stride} * first);
      return;
    }
    Addresses& table = warp_->scattered.emplace_back();
    for (unsigned m = request.lanes; m; m &= m - 1) {
      const int lane = std::countr_zero(m);
      table[lane] = {base + static_cast<std::uintptr_t>(std::int64_t{request.stride} * lane), at.space};
    }
    request = {kIrregular, static_cast<std::int32_t>(warp_->scattered.size()), request.lanes};
  }
  warp_->scattered[static_cast<std::size_t>(request.stride) - 1][lane_] = {address, space};
}

std::size_t Counters::pending(unsigned w) const {
  std::size_t requests = 0;
  for (unsigned site : warps_[w].touched) requests += warps_[w].sites[site].reached[0];
  return requests;
}

std::size_t Counters::flush(unsigned w) {
  Warp& warp = warps_[w];
  std::size_t requests = 0;
  for (unsigned site : warp.touched) {
    for (const Request& request : warp.sites[site].requests)
      observers ? tell(w, warp.sites[site], request) : count(warp, warp.sites[site], request);
    requests += warp.sites[site].requests.size();
    warp.sites[site].requests.clear();
    warp.sites[site].count = 0;
    warp.sites[site].reached = {};
  }
  warp.touched.clear();
  warp.scattered.clear();
  return requests;
}

// Counts a request, and tells of it if it is one of shared memory.
void Counters::tell(unsigned w, const Site& at, const Request& request) {
  const std::uint64_t wavefronts_before = wavefronts, ideal_before = ideal_wavefronts;
  count(warps_[w], at, request);
  if (wavefronts == wavefronts_before) return;
  SharedRequest told{w, at.access, at.bytes, {}, wavefronts - wavefronts_before, ideal_wavefronts - ideal_before};
  const bool table = request.base & kIrregular && request.stride != 0;
  for (unsigned m = request.lanes; m; m &= m - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(m));
    const std::uintptr_t affine = (request.base & ~kIrregular) +
                                  static_cast<std::uintptr_t>(std::int64_t{request.stride} * static_cast<int>(lane));
    const LaneAddress own =
        table ? warps_[w].scattered[static_cast<std::size_t>(request.stride) - 1][lane] : LaneAddress{affine, at.space};
    if (own.space == kSharedSpace) told.addresses[lane] = own.address;
  }
  for (Observer* observer : *observers) observer->request(told);
}

void Counters::count(const Warp& warp, const Site& at, const Request& request) {
  if (request.base & kIrregular && request.stride != 0) {
    // Lanes may point into different arrays: one request for each.
    const Addresses& addresses = warp.scattered[static_cast<std::size_t>(request.stride) - 1];
    for (unsigned rest = request.lanes; rest;) {
      const unsigned space = addresses[std::countr_zero(rest)].space;
      unsigned lanes = 0;
      for (unsigned m = rest; m; m &= m - 1)
        if (addresses[std::countr_zero(m)].space == space) lanes |= m & -m;
      count(at, addresses, lanes, space);
      rest &= ~lanes;
    }
    return;
  }
  if (request.stride == 0 && at.space == kSharedSpace) {
    // A broadcast: the most frequent request of tiled kernels. One wavefront for each group of lanes.
    const unsigned group = lanes_per_pass(at.bytes, at.access, true);
    std::uint64_t groups = 0;
    for (unsigned first = 0; first < kLanes; first += group)
      groups += (request.lanes >> first & (group == 32 ? ~0u : (1u << group) - 1)) != 0;
    wavefronts += groups, ideal_wavefronts += groups;
    shared_reads += is_read(at.access), shared_writes += is_write(at.access);
    return;
  }
  Addresses affine;
  for (unsigned m = request.lanes; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    affine[lane].address =
        (request.base & ~kIrregular) + static_cast<std::uintptr_t>(std::int64_t{request.stride} * lane);
  }
  count(at, affine, request.lanes, at.space);
}

void Counters::count(const Site& at, const Addresses& addresses, unsigned lanes, unsigned space) {
  const unsigned bytes = at.bytes;
  if (space == kClusterSpace) {
    const std::uint64_t requested = std::uint64_t{bytes} * static_cast<unsigned>(std::popcount(lanes));
    if (is_read(at.access)) cluster_read_bytes += requested;
    if (is_write(at.access)) cluster_written_bytes += requested;
    return;
  }
  if (space != kSharedSpace) {
    std::array<std::uintptr_t, kLanes> sectors;
    std::size_t touched = 0;
    for (unsigned m = lanes; m; m &= m - 1) {
      const std::uintptr_t sector = addresses[std::countr_zero(m)].address / 32;
      if (touched == 0 || sectors[touched - 1] != sector) sectors[touched++] = sector;
    }
    if (!std::is_sorted(sectors.begin(), sectors.begin() + touched))
      std::sort(sectors.begin(), sectors.begin() + touched);
    const auto distinct =
        static_cast<std::uint64_t>(std::unique(sectors.begin(), sectors.begin() + touched) - sectors.begin());
    if (space >= arrays.size()) arrays.resize(space + 1);  // the kernel allocated it
    ArrayTraffic& array = arrays[space];
    const std::uint64_t requested = std::uint64_t{bytes} * std::popcount(lanes);
    if (is_reduction(at.access)) {
      array.reduced_bytes += requested, ++array.reduce_requests, array.reduce_sectors += distinct;
      return;
    }
    if (is_read(at.access)) array.read_bytes += requested, ++array.read_requests, array.read_sectors += distinct;
    if (is_write(at.access)) array.written_bytes += requested, ++array.write_requests, array.write_sectors += distinct;
    return;
  }
  shared_reads += is_read(at.access), shared_writes += is_write(at.access);
  const unsigned group = lanes_per_pass(bytes, at.access, bytes > 4 && neighbours_agree(addresses, lanes));
  for (unsigned first = 0; first < kLanes; first += group) {
    // Distinct words per bank; the fullest bank decides.
    std::array<std::array<std::uintptr_t, kLanes>, kLanes> words;
    std::array<unsigned, kLanes> filled{};
    unsigned fullest = 0;
    for (unsigned lane = first; lane < first + group; ++lane) {
      if (!(lanes >> lane & 1)) continue;
      for (std::uintptr_t word = addresses[lane].address / 4; word <= (addresses[lane].address + bytes - 1) / 4;
           ++word) {
        auto& bank = words[word % kLanes];
        unsigned& n = filled[word % kLanes];
        if (std::find(bank.begin(), bank.begin() + n, word) == bank.begin() + n) bank[n++] = word;
        fullest = std::max(fullest, n);
      }
    }
    wavefronts += fullest, ideal_wavefronts += fullest != 0;
  }
}

}  // namespace flash::simt
