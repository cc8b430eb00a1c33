// ledger.hpp: what a run cost, as exact integers. Every machine fills one; tests compare it with formulas.
// Requested bytes are the sum over all accesses (the papers' "HBM accesses"); no cache is modelled.
// Words as in Nsight Compute: request, sector, wavefront, bank conflict.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace flash {

// Traffic of one named array in device memory ("HBM").
struct ArrayTraffic {
  std::string name;
  std::uint64_t read_bytes = 0, written_bytes = 0;
  // Filled by the SIMT machine's checked build only.
  std::uint64_t read_requests = 0, read_sectors = 0;    // warp-level loads; 32-byte sectors that they touch
  std::uint64_t write_requests = 0, write_sectors = 0;  // the same for stores
  // Added to what is there, with no value coming back: bulk reductions. In neither of the others.
  std::uint64_t reduced_bytes = 0, reduce_requests = 0, reduce_sectors = 0;

  void add(const ArrayTraffic& other) {
    read_bytes += other.read_bytes, written_bytes += other.written_bytes;
    read_requests += other.read_requests, read_sectors += other.read_sectors;
    write_requests += other.write_requests, write_sectors += other.write_sectors;
    reduced_bytes += other.reduced_bytes;
    reduce_requests += other.reduce_requests, reduce_sectors += other.reduce_sectors;
  }
#if __cplusplus >= 202002L  // a program of ./flash check may be C++17
  bool operator==(const ArrayTraffic&) const = default;
#endif
};

struct Ledger {
  std::vector<ArrayTraffic> arrays;     // in order of allocation
  std::uint64_t flops = 0;              // 2 per multiply-add
  std::uint64_t tensor_flops = 0;       // the same of tensor cores (mma, wgmma), which `flops` leaves out
  std::uint64_t exps = 0;               // calls of exp/exp2
  std::uint64_t rescales = 0;           // multiplications of an O row by exp(m_old - m_new) (CPU phases)
  std::uint64_t shared_bytes_peak = 0;  // on-chip high-water mark, bytes
  std::uint64_t async_bytes_peak = 0;   // of cp.async: the most bytes that a block's threads had under way, added up
  std::uint64_t barriers = 0;           // block-wide barriers, one per block and barrier
  std::uint64_t shared_read_requests = 0, shared_write_requests = 0;
  std::uint64_t shared_wavefronts = 0, shared_wavefronts_ideal = 0;  // bank conflicts = wavefronts - ideal
  std::uint64_t cluster_read_bytes = 0, cluster_written_bytes = 0;  // of shared memory of a cluster's other blocks
  std::uint64_t wgmma_shared_bytes = 0;  // that wgmma reads from shared memory: B, and A where it lies there

  std::uint64_t hbm_read_bytes() const { return sum(&ArrayTraffic::read_bytes); }
  std::uint64_t hbm_written_bytes() const { return sum(&ArrayTraffic::written_bytes); }
  std::uint64_t hbm_reduced_bytes() const { return sum(&ArrayTraffic::reduced_bytes); }
  std::uint64_t hbm_bytes() const { return hbm_read_bytes() + hbm_written_bytes() + hbm_reduced_bytes(); }
  std::uint64_t bank_conflicts() const { return shared_wavefronts - shared_wavefronts_ideal; }

  // The array's traffic; a fresh zero entry is appended when the name is new.
  ArrayTraffic& array(const std::string& name) {
    for (ArrayTraffic& a : arrays)
      if (a.name == name) return a;
    return arrays.emplace_back(ArrayTraffic{name});
  }

  // Work done beside this one by another worker: counts add up, the on-chip peak is per worker.
  void add(const Ledger& other) {
    for (const ArrayTraffic& theirs : other.arrays) array(theirs.name).add(theirs);
    flops += other.flops;
    tensor_flops += other.tensor_flops;
    exps += other.exps;
    rescales += other.rescales;
    shared_bytes_peak = std::max(shared_bytes_peak, other.shared_bytes_peak);
    async_bytes_peak = std::max(async_bytes_peak, other.async_bytes_peak);
    barriers += other.barriers;
    shared_read_requests += other.shared_read_requests;
    shared_write_requests += other.shared_write_requests;
    shared_wavefronts += other.shared_wavefronts;
    shared_wavefronts_ideal += other.shared_wavefronts_ideal;
    cluster_read_bytes += other.cluster_read_bytes;
    cluster_written_bytes += other.cluster_written_bytes;
    wgmma_shared_bytes += other.wgmma_shared_bytes;
  }

#if __cplusplus >= 202002L  // a program of ./flash check may be C++17
  bool operator==(const Ledger&) const = default;
#endif

 private:
  std::uint64_t sum(std::uint64_t ArrayTraffic::*field) const {
    std::uint64_t total = 0;
    for (const ArrayTraffic& a : arrays) total += a.*field;
    return total;
  }
};

}  // namespace flash
