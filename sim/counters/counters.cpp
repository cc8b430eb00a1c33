// counters.cpp: what a finished request costs, in Nsight Compute's words.
// Global: sectors = distinct aligned 32-byte pieces that its lanes touch. Shared: 32 banks of 4 bytes; a wavefront
// serves one word of each bank, to as many lanes as lanes_per_pass() says. See docs/simulator.md.
#include "sim/counters/counters.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

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

// Goes on to the run that has the lane's next request; false: no lane has come so far.
bool Counters::next_run(const Site& at, Lane& lane) {
  for (; lane.reached - at.at_hand[lane.run].first >= at.at_hand[lane.run].count; lane.run = at.at_hand[lane.run].next)
    if (at.at_hand[lane.run].next == kNone) return false;
  return true;
}

// The first lane to come this far: is it one more of the last run, whose second one decides the step?
bool Counters::extend(Site& at, Lane& lane, std::uintptr_t address, unsigned space) {
  if (at.requests == 0 || at.space != space || at.runs[at.last].table != kNone) return false;
  RequestRun& last = at.runs[at.last];
  const auto apart = static_cast<std::int64_t>(address - place(*warp_, at, last, lane_, 0).address);
  if (last.count == 1 && std::abs(apart) < 1 << 30) last.step = static_cast<std::int32_t>(apart);
  if (apart != std::int64_t{last.step} * last.count) return false;
  ++last.count, ++at.requests, ++lane.reached;
  return true;
}

void Counters::log_otherwise(unsigned site, std::uintptr_t address, unsigned bytes, Access access, unsigned space) {
  if (site >= site_count_) more_sites(site);
  Site& at = sites_[site];
  Lane& lane = at.lanes[lane_];
  if (lane.reached == at.requests)
    begin_request(site, address, bytes, access, space);
  else
    differ(at, lane, address, space);
  ++lane.reached;
}

// The first lane to come this far begins a run.
void Counters::begin_request(unsigned site, std::uintptr_t address, unsigned bytes, Access access, unsigned space) {
  Site& at = sites_[site];
  if (at.requests == 0) {
    warp_->touched.push_back(site);
    at.space = space, at.bytes = static_cast<std::uint8_t>(bytes), at.access = access;
  }
  const auto run = static_cast<std::uint32_t>(at.runs.size());
  if (run > 0) at.runs[at.last].next = run;
  at.runs.push_back({address, 0, 0, at.requests++, 1, kNone, kNone});
  at.at_hand = at.runs.data(), at.last = run;
  if (at.space == space) return;
  at.runs[run].table = table_of(at, at.runs[run], 0, 0);
  warp_->scattered.back()[lane_] = {address, space};
}

// The lane is elsewhere than the run says, from its next request on. Where one lane alone has come so far, these two
// decide the stride; else the lanes' addresses go into a table.
void Counters::differ(Site& at, Lane& lane, std::uintptr_t address, unsigned space) {
  const std::uint32_t before = lane.reached - at.runs[lane.run].first;
  if (before > 0) lane.run = split(at, lane.run, before);
  RequestRun& run = at.runs[lane.run];
  if (run.table == kNone) {
    const unsigned others = lanes_beyond(at, lane.reached);
    const int first = std::countr_zero(others), lanes_apart = static_cast<int>(lane_) - first;
    const std::uintptr_t base = place(*warp_, at, run, static_cast<unsigned>(first), 0).address;
    const auto apart = static_cast<std::int64_t>(address - base);
    if (std::has_single_bit(others) && at.space == space && apart % lanes_apart == 0 && std::abs(apart) < 1 << 30) {
      run.stride = static_cast<std::int32_t>(apart / lanes_apart);
      run.base = base - static_cast<std::uintptr_t>(std::int64_t{run.stride} * first);
      return;
    }
    run.table = table_of(at, run, 0, others);
  }
  warp_->scattered[run.table][lane_] = {address, space};
}

// The run keeps so many requests; the rest becomes a run behind it, which is returned.
std::uint32_t Counters::split(Site& at, std::uint32_t index, std::uint32_t requests) {
  const auto rest = static_cast<std::uint32_t>(at.runs.size());
  RequestRun behind = at.runs[index];
  behind.base += static_cast<std::uintptr_t>(std::int64_t{behind.step} * requests);
  if (behind.table != kNone) behind.table = table_of(at, at.runs[index], requests, lanes_beyond(at, behind.first));
  behind.first += requests, behind.count -= requests;
  at.runs[index].count = requests, at.runs[index].next = rest;
  at.runs.push_back(behind);
  at.at_hand = at.runs.data();
  if (at.last == index) at.last = rest;
  return rest;
}

// A new table: where these lanes are in a request of the run.
std::uint32_t Counters::table_of(const Site& at, const RequestRun& run, std::uint32_t request, unsigned lanes) {
  Addresses table;
  for (unsigned m = lanes; m; m &= m - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(m));
    table[lane] = place(*warp_, at, run, lane, request);
  }
  warp_->scattered.push_back(table);
  return static_cast<std::uint32_t>(warp_->scattered.size() - 1);
}

// The lanes that take part in the request of that number.
unsigned Counters::lanes_beyond(const Site& at, std::uint32_t request) {
  unsigned lanes = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) lanes |= unsigned{at.lanes[lane].reached > request} << lane;
  return lanes;
}

std::size_t Counters::pending(unsigned w) const {
  std::size_t requests = 0;
  for (unsigned site : warps_[w].touched) requests += warps_[w].sites[site].lanes[0].reached;
  return requests;
}

std::size_t Counters::flush(unsigned w) {
  Warp& warp = warps_[w];
  std::size_t requests = 0;
  for (unsigned site : warp.touched) {
    Site& at = warp.sites[site];
    observers ? tell(w, at) : count(warp, at);
    requests += at.requests;
    at.runs.clear();
    at.at_hand = &kNothing, at.requests = 0;
    at.lanes = {};
  }
  warp.touched.clear();
  warp.scattered.clear();
  return requests;
}

// Counts the requests one by one, and tells of those of shared memory.
void Counters::tell(unsigned w, const Site& at) {
  for (std::uint32_t index = 0; index != kNone; index = at.runs[index].next) {
    const RequestRun& run = at.runs[index];
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const unsigned lanes = lanes_beyond(at, run.first + i);
      const std::uint64_t wavefronts_before = wavefronts, ideal_before = ideal_wavefronts;
      count(warps_[w], at, run, i, 1, lanes);
      if (wavefronts == wavefronts_before) continue;
      SharedRequest told{w, at.access, at.bytes, {}, wavefronts - wavefronts_before, ideal_wavefronts - ideal_before};
      for (unsigned m = lanes; m; m &= m - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(m));
        const LaneAddress own = place(warps_[w], at, run, lane, i);
        if (own.space == kSharedSpace) told.addresses[lane] = own.address;
      }
      for (Observer* observer : *observers) observer->request(told);
    }
  }
}

// Lanes may stop at different requests.
void Counters::count(const Warp& warp, const Site& at) {
  const unsigned all = lanes_beyond(at, 0);
  const bool together = lanes_beyond(at, at.requests - 1) == all;
  for (std::uint32_t index = 0; index != kNone; index = at.runs[index].next) {
    const RequestRun& run = at.runs[index];
    for (std::uint32_t from = 0, to = run.count; from < run.count; from = to, to = run.count) {
      const unsigned lanes = together ? all : lanes_beyond(at, run.first + from);
      for (unsigned m = together ? 0 : lanes; m; m &= m - 1)
        to = std::min(to, at.lanes[static_cast<std::size_t>(std::countr_zero(m))].reached - run.first);
      count(warp, at, run, from, to - from, lanes);
    }
  }
}

// Requests of a run that have the same lanes.
void Counters::count(const Warp& warp, const Site& at, const RequestRun& run, std::uint32_t from,
                     std::uint32_t requests, unsigned lanes) {
  if (run.table == kNone && run.stride == 0 && at.space == kSharedSpace) {
    // A broadcast: the most frequent request of tiled kernels. One wavefront for each group of lanes.
    const unsigned group = lanes_per_pass(at.bytes, at.access, true);
    std::uint64_t groups = 0;
    for (unsigned first = 0; first < kLanes; first += group)
      groups += (lanes >> first & (group == 32 ? ~0u : (1u << group) - 1)) != 0;
    groups *= requests;
    wavefronts += groups, ideal_wavefronts += groups;
    shared_reads += is_read(at.access) * std::uint64_t{requests};
    shared_writes += is_write(at.access) * std::uint64_t{requests};
    return;
  }
  // Requests that lie whole words of shared memory apart, or whole sectors, cost the same.
  const unsigned unit = run.table == kNone && at.space == kSharedSpace ? 4 : 32;
  const std::uint32_t kinds = std::min(requests, unit / std::gcd(unit, static_cast<unsigned>(std::abs(run.step))));
  for (std::uint32_t kind = 0; kind < kinds; ++kind) {
    Addresses addresses;
    for (unsigned m = lanes; m; m &= m - 1) {
      const auto lane = static_cast<unsigned>(std::countr_zero(m));
      addresses[lane] = place(warp, at, run, lane, from + kind);
    }
    // Lanes may point into different arrays: one request for each.
    for (unsigned rest = lanes; rest;) {
      const unsigned space = addresses[std::countr_zero(rest)].space;
      unsigned of_space = 0;
      for (unsigned m = rest; m; m &= m - 1)
        if (addresses[std::countr_zero(m)].space == space) of_space |= m & -m;
      count(at, addresses, of_space, space, (requests - kind + kinds - 1) / kinds);
      rest &= ~of_space;
    }
  }
}

// A request, and as many like it as `times` says.
void Counters::count(const Site& at, const Addresses& addresses, unsigned lanes, unsigned space, std::uint64_t times) {
  const unsigned bytes = at.bytes;
  const std::uint64_t requested = std::uint64_t{bytes} * std::popcount(lanes) * times;
  if (space == kClusterSpace) {
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
    const auto add = [&](std::uint64_t& of_bytes, std::uint64_t& of_requests, std::uint64_t& of_sectors) {
      of_bytes += requested, of_requests += times, of_sectors += distinct * times;
    };
    if (is_reduction(at.access)) return add(array.reduced_bytes, array.reduce_requests, array.reduce_sectors);
    if (is_read(at.access)) add(array.read_bytes, array.read_requests, array.read_sectors);
    if (is_write(at.access)) add(array.written_bytes, array.write_requests, array.write_sectors);
    return;
  }
  shared_reads += is_read(at.access) * times, shared_writes += is_write(at.access) * times;
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
    wavefronts += fullest * times, ideal_wavefronts += (fullest != 0) * times;
  }
}

}  // namespace flash::simt
