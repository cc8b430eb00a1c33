// machine_options.hpp: what a machine is told (MachineOptions) and what it tells (KernelReport, Finding, TraceEvent).
// The same types for every machine: on_sim, on_checked, on_gpu; no kernel word and no CUDA header enters here.
// Use: on_checked::Machine m({.order = Order::random, .seed = 7, .profile = Profile::sm_80, .keep_going = true});
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/ledger.hpp"
#include "sim/order.hpp"

namespace flash {

struct Recording;  // sim/report/recording.hpp

// Which GPU's launch limits are enforced.
enum class Profile { sm_80, sm_90 };

struct MachineOptions {
  Order order = Order::forward;
  std::uint64_t seed = 0;                    // for Order::random: the whole schedule follows from it
  Completion completion = Completion::late;  // of asynchronous copies; Completion::random follows from the seed
  Profile profile = Profile::sm_90;
  int threads = 0;          // worker threads, 0 = all cores; 1 makes reports of races between blocks repeatable
  std::string trace = "";   // "" = none, "memory" = only Machine::trace(), else a path for Chrome/Perfetto JSON
  bool keep_going = false;  // collect findings instead of throwing flash::Error after the launch
  bool deterministic = false;  // checked: additions of floats in no fixed order are a finding
  // The simulator: a launch that takes longer says on stderr how far it is: on a terminal ten times a second, elsewhere
  // a line each time so many seconds have passed. 0: never.
  double progress = 0;
  std::uint64_t checked_blocks = 0;  // checked: so many blocks of a grid alone, spread over it; 0: all
  double timeout = 0;       // seconds that a launch may take on the simulator, 0: no limit
  bool in_place = false;    // sim: kernels work on the caller's own memory, nothing is copied
  Recording* recording = nullptr;  // checked: every step is written down there, for the player; one worker
  int samples = 0;  // gpu: launch again so many times at most, and take the time (gpu/timer.cuh); 0: do not
};

// An array to whose elements atomics add floating-point numbers in an order that nothing fixes: the bits of the sums
// may differ from run to run.
struct UnorderedAdditions {
  std::string array;           // its name, or "shared memory"
  std::uint64_t elements = 0;  // so many of them
  std::string first, second;   // two of the additions, as file:line, in the order of these words

#if __cplusplus >= 202002L  // a program of ./flash check may be C++17
  bool operator==(const UnorderedAdditions&) const = default;
#endif
};

struct KernelReport {
  std::string kernel;  // as in the source, without namespace: "transpose", "forward<float, 64>"
  std::array<unsigned, 3> grid{}, block{};
  Ledger ledger;  // checked: every counter; sim: shared_bytes_peak and barriers; gpu: shared_bytes_peak
  std::vector<UnorderedAdditions> unordered;  // checked
  std::uint64_t checked_blocks = 0;           // of a sample (MachineOptions::checked_blocks); 0: all were checked
};

// One defect of a kernel, first of its kind (kind and sites), with the number of times that it was seen.
// The exact text is specified in sim/report/findings.hpp.
struct Finding {
  std::string kind;  // "race", "out of bounds", "misaligned", "uninitialised", "barrier divergence", ...
  std::string text;  // the whole report, several lines, without a newline at the end
  std::uint64_t count = 1;
  // Those of one cause have one mistake behind them: the same places race, in other orders (sim/report/causes.hpp).
  std::string cause = {};                // "": nobody has looked
  std::string what = {};                 // "write after read", of a race
  std::vector<std::string> places = {};  // file:line of each side
  unsigned distance = 0;                 // of a race: 1 within a warp, 2 within a block, 3 between blocks
};

// One bar of the trace: a region of a warp, a barrier, a wait for asynchronous copies, or a group of such copies.
// Time is logical (see docs/simulator.md), never a prediction.
struct TraceEvent {
  std::size_t launch = 0;  // index into Machine::reports()
  std::array<unsigned, 3> block{};
  unsigned warp = 0;
  std::string name;  // the kernel's trace_mark label, or "barrier", "wait", "copy"
  long value = 0;    // the number given to trace_mark (a tile's index); wait: groups left under way; copy: bytes
  std::uint64_t begin = 0, end = 0;
  bool beside = false;  // a copy: it goes on while its warp does other things
};

}  // namespace flash
