// where.hpp: on which machine a phase runs, and what it tells afterwards. The same call serves all three.
// Sim: the simulator, fast (CPU phases: the two-level memory). Checked: checks and counts every access. Gpu: CUDA.
// Use: Run run = phase05::forward(problem, Where::Checked);  run.ledger.array("K").read_bytes
#pragma once
#include <cstdint>
#include <vector>

#include "gpu/timing.hpp"
#include "phases/interface/features.hpp"
#include "sim/error.hpp"
#include "sim/ledger.hpp"
#include "sim/machine_options.hpp"
namespace flash {

enum class Where { Sim, Checked, Gpu };

inline const char* name(Where where) {
  static constexpr const char* names[] = {"sim", "checked", "gpu"};
  return names[static_cast<int>(where)];
}

// What became of the K/V tiles of all Q tiles of all heads (phase 07 and later; zeros before).
struct TileCounts {
  std::uint64_t full = 0, masked = 0, skipped = 0;  // computed without a mask; with one; never loaded
  // Of these, with a window (phase 26): those left of it that are never loaded; those that it cuts on the left; and of
  // the latter those that it cuts on the right, too. What is not told here is on the right.
  std::uint64_t skipped_left = 0, masked_left = 0, masked_both = 0;

  std::uint64_t skipped_right() const { return skipped - skipped_left; }
  std::uint64_t masked_right() const { return masked - masked_left + masked_both; }
  bool operator==(const TileCounts&) const = default;
};

struct Run {
  Ledger ledger;                      // of all launches together
  bool counted = false;               // does the ledger hold counts? The fast simulator and the GPU do not count
  Blocks blocks{};                    // of a kernel: those that it ran with
  double milliseconds = 0;            // host time from the first launch to the end of the last, copies left out
  std::vector<KernelReport> kernels;  // one per launch
  std::vector<TraceEvent> trace;      // who did what in which order, where MachineOptions::trace asks for it
  TileCounts tiles;
  Timing timing;  // of all launches together, repeated: on the GPU, where MachineOptions::samples asks for it
};

// What this build holds: nvcc and a sanitizer build decide (cmake/kernels.cmake).
bool was_built(Where where);
// Does this build hold the machine, does this computer have it, and can it run such a phase? The second form asks about
// the machine alone.
bool available(const Features& can, Where where);
bool available(Where where);
// Refuses what is not available, by the phase's name.
void require(const char* phase, const Features& can, Where where);

}  // namespace flash
