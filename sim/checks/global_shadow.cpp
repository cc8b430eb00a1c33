// global_shadow.cpp: see global_shadow.hpp.
// At a launch's end the counters of all checkers become its ledger.
// Use: see global_shadow.hpp.
#include "sim/checks/global_shadow.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/checks/checker.hpp"
#include "sim/core/outside.hpp"
#include "sim/error.hpp"

namespace flash::simt {
namespace {

constexpr std::size_t kChunkTable = std::size_t{1} << 32;

}  // namespace

GlobalShadow::GlobalShadow(DeviceMemory& device_memory)
    : memory(device_memory),
      space_(DeviceMemory::kSpan / 4 * (Cells::kBytes + Additions::kBytes) + kChunkTable * sizeof(unsigned)),
      cells(space_, DeviceMemory::kSpan / 4),
      additions(space_, DeviceMemory::kSpan / 4),
      owners_(space_, kChunkTable) {}

void GlobalShadow::forget(const void* begin) {
  const std::size_t i = memory.contains(begin) ? memory.owner(begin) : memory.arrays.size();
  if (i >= memory.arrays.size() || memory.arrays[i].bytes == 0) return;
  constexpr std::size_t kGranule = DeviceMemory::kGranule;
  const std::size_t first = memory.offset(begin) / 4;
  const std::size_t words = (memory.arrays[i].bytes / kGranule + 1) * kGranule / 4;
  cells.forget(first, words);
  additions.forget(first, words);
  written_.erase(begin);
  std::erase_if(carried, [=](const auto& entry) { return entry.first - first < words; });
}

void GlobalShadow::begin_launch(std::size_t workers, const Launch& launch) {
  parallel = workers > 1;
  memory.make_room();
  const auto begin_of = [](std::uint64_t chunk) { return Epoch{chunk * kChunk} << kClockShift; };
  launch_begin = own_begin = begin_of(next_chunk_);
  beside_.assign(launch.beside, launch.beside + launch.beside_count);
  published.clear();
  any_published = false;
  if (!launch.all_over && !launches_.empty()) {
    launches_.push_back({next_chunk_, launch.number, launch.grid});
    for (std::size_t i = 0; !beside_.empty() && i < launches_.size(); ++i)
      if (std::binary_search(beside_.begin(), beside_.end(), launches_[i].number))
        launch_begin = std::min(launch_begin, begin_of(launches_[i].first_chunk));
    return;
  }
  first_chunk_ = next_chunk_;
  launches_ = {{first_chunk_, launch.number, launch.grid}};
  sites_.assign(1, 0);
  site_indices_.clear();
  async_sites.clear();
  more.clear();
}

const GlobalShadow::Launched& GlobalShadow::launch_at(std::uint64_t clock) const {
  const auto after = [](std::uint64_t chunk, const Launched& launch) { return chunk < launch.first_chunk; };
  return *std::prev(std::upper_bound(launches_.begin(), launches_.end(), clock / kChunk, after));
}

bool GlobalShadow::beside(std::uint64_t clock) const {
  return std::binary_search(beside_.begin(), beside_.end(), launch_at(clock).number);
}

void GlobalShadow::end_launch(const std::vector<Checker*>& checkers, KernelReport& report) {
  Ledger& ledger = report.ledger;
  ArrayTraffic heap{"heap"};  // what kernels allocated, as one
  for (std::size_t i = 0; i < memory.arrays.size(); ++i) {
    const DeviceArray& array = memory.arrays[i];
    if (!array.live && !array.of_kernel) continue;
    ArrayTraffic own{array.name};
    ArrayTraffic& total = array.of_kernel ? heap : own;
    for (const Checker* checker : checkers)
      if (i < checker->counters.arrays.size()) total.add(checker->counters.arrays[i]);
    // Variables: where they are used.
    const bool wanted = !array.variable || own.read_requests + own.write_requests + own.reduce_requests > 0;
    if (!array.of_kernel && wanted) ledger.arrays.push_back(own);
  }
  if (heap.read_requests + heap.write_requests + heap.reduce_requests > 0) ledger.arrays.push_back(heap);
  for (const Checker* checker : checkers) {
    const Counters& c = checker->counters;
    ledger.flops += c.tally.flops, ledger.exps += c.tally.exps, ledger.tensor_flops += c.tally.tensor_flops;
    ledger.shared_read_requests += c.shared_reads, ledger.shared_write_requests += c.shared_writes;
    ledger.cluster_read_bytes += c.cluster_read_bytes, ledger.cluster_written_bytes += c.cluster_written_bytes;
    ledger.shared_wavefronts += c.wavefronts, ledger.shared_wavefronts_ideal += c.ideal_wavefronts;
  }
  report.unordered = unordered(checkers);
}

std::uint64_t GlobalShadow::new_clocks(unsigned block) {
  const std::uint64_t chunk = next_chunk_.fetch_add(1);
  if (chunk - first_chunk_ >= kChunkTable)
    throw Error("too many synchronisations in one launch for the checks; use a smaller grid");
  owners_[chunk - first_chunk_] = block;
  return chunk * kChunk;
}

unsigned GlobalShadow::site_index(std::uintptr_t key) {
  const Outside outside;
  const std::lock_guard lock(mutex);
  const auto [position, fresh] = site_indices_.try_emplace(key, static_cast<unsigned>(sites_.size()));
  if (fresh && sites_.size() >= (1u << kSiteBits)) return position->second = 0;
  if (fresh) sites_.push_back(key);
  return position->second;
}

std::uintptr_t GlobalShadow::site_key(unsigned index) {
  const std::lock_guard lock(mutex);
  return sites_[index];
}

}  // namespace flash::simt
