// where.hpp: on which machine a kernel phase runs, and what it tells afterwards. The same call serves all three.
// Sim: the simulator, fast. Checked: the simulator that checks and counts every access. Gpu: a CUDA device.
// Use: Run run = phase05::forward(problem, Where::Checked);  run.ledger.array("K").read_bytes
#pragma once
#include <cstdint>
#include <vector>

#include "gpu/timing.hpp"
#include "sim/error.hpp"
#include "sim/ledger.hpp"
#include "sim/machine_options.hpp"
#ifdef FLASH_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace flash {

enum class Where { Sim, Checked, Gpu };

inline const char* name(Where where) {
  static constexpr const char* names[] = {"sim", "checked", "gpu"};
  return names[static_cast<int>(where)];
}

// What became of the K/V tiles of all Q tiles of all heads (phase 07 and later; zeros before).
struct TileCounts {
  std::uint64_t full = 0, masked = 0, skipped = 0;  // computed without a mask; with one; never loaded

  // A Q tile of each of `heads` heads: of its `all` K/V tiles, `full_tiles` are seen
  // whole and `seen` at least in part.
  void add(std::int64_t heads, std::int64_t full_tiles, std::int64_t seen, std::int64_t all) {
    full += static_cast<std::uint64_t>(heads * full_tiles);
    masked += static_cast<std::uint64_t>(heads * (seen - full_tiles));
    skipped += static_cast<std::uint64_t>(heads * (all - seen));
  }
  bool operator==(const TileCounts&) const = default;
};

struct Run {
  Ledger ledger;                      // of all launches together
  double milliseconds = 0;            // host time from the first launch to the end of the last, copies left out
  std::vector<KernelReport> kernels;  // one per launch
  std::vector<TraceEvent> trace;      // who did what in which order, where MachineOptions::trace asks for it
  TileCounts tiles;
  Timing timing;  // of all launches together, repeated: on the GPU, where MachineOptions::samples asks for it
};

// What this build holds: nvcc and a sanitizer build decide (cmake/kernels.cmake).
#ifdef FLASH_HAVE_CUDA
inline constexpr bool gpu_was_built = true;
#else
inline constexpr bool gpu_was_built = false;
#endif
#ifdef FLASH_NO_CHECKED_KERNELS
inline constexpr bool checked_was_built = false;
#else
inline constexpr bool checked_was_built = true;
#endif

inline bool available(Where where) {
  if (where == Where::Checked) return checked_was_built;
  if (where == Where::Sim) return true;
#ifdef FLASH_HAVE_CUDA
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
#else
  return false;
#endif
}

// Refuses a machine that this build or this computer does not have.
inline void require(Where where) {
  if (available(where)) return;
  if (where == Where::Checked)
    refuse("machine", "checked", "sim in a build with AddressSanitizer", "use a build without it");
  refuse("machine", "gpu", "sim or checked here",
         gpu_was_built ? "no CUDA device was found" : "this build has no CUDA: configure with -DFLASH_CUDA=ON");
}

}  // namespace flash
