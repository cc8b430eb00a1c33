// machine.cpp: a launch: checks limits, spreads blocks over workers, gathers reports, findings and the trace.
// Every block runs even when an early one has findings, so that the result does not depend on the number of workers.
// Use: see machine.hpp.
#include "sim/machine.hpp"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "sim/checks/shadow.hpp"
#include "sim/core/block.hpp"
#include "sim/core/code_names.hpp"
#include "sim/core/device_memory.hpp"
#include "sim/core/faults.hpp"
#include "sim/core/layouts.hpp"
#include "sim/core/variables.hpp"
#include "sim/limits.hpp"
#include "sim/report/findings.hpp"
#include "sim/report/recorder.hpp"
#include "sim/report/trace.hpp"

namespace flash::simt {
namespace {

// All machines that live, in the order of their making: the last one of a thread is its current one. A machine may be
// destroyed by any thread and in any order.
struct Living {
  struct Entry {
    MachineCore* machine;
    bool checked;
    std::thread::id thread;
  };
  std::mutex mutex;
  std::vector<Entry> machines;
};

Living& living() {
  static Living all;
  return all;
}

std::string kernel_name(const void* kernel, const char* in_launch) {
  return kernel ? function_name(kernel) : as_written(in_launch);
}

// How many blocks of a launch have run, on one line of a terminal that is written over and over, ten times a second.
class Progress {
 public:
  explicit Progress(bool wanted) : wanted_(wanted) {}
  void show(std::uint64_t blocks, std::uint64_t all) {
    if (!wanted_ || Clock::now() < next_) return;
    next_ = Clock::now() + kInterval;
    shown_ = true;
    std::cerr << "\r" << blocks << " of " << all << " blocks " << std::flush;
  }
  ~Progress() {
    if (shown_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kInterval{100};
  const bool wanted_;
  bool shown_ = false;
  Clock::time_point next_ = Clock::now() + kInterval;
};

}  // namespace

struct MachineCore::State {
  MachineOptions options;
  bool checked;
  Handlers handlers;
  DeviceMemory memory;
  std::unique_ptr<GlobalShadow> shadow;  // checked only
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<Checker*> checkers;  // checked only: the workers' observers
  std::vector<KernelReport> reports;
  // Kernels of the last reports, and their names in the source: looked up when somebody asks.
  std::vector<std::pair<const void*, const char*>> unnamed;
  std::vector<Finding> findings;
  std::vector<TraceEvent> trace;
  std::map<const void*, std::size_t> allowed_shared;  // bytes, by kernel
  std::map<const void*, dim3> cluster_dims;           // of kernels that have said so
};

MachineCore::MachineCore(const MachineOptions& options, bool checked) : state_(std::make_unique<State>()) {
  refuse_two_layouts();
  state_->options = options;
  state_->checked = checked;
  if (options.threads < 0) refuse("threads", options.threads, "0 (all cores) or more", "pass 0");
  if (checked) state_->shadow = std::make_unique<GlobalShadow>(state_->memory);
  const std::lock_guard lock(living().mutex);
  living().machines.push_back({this, checked, std::this_thread::get_id()});
}

MachineCore::~MachineCore() {
  {
    const std::lock_guard lock(living().mutex);
    std::erase_if(living().machines, [this](const Living::Entry& entry) { return entry.machine == this; });
  }
  const std::string& path = state_->options.trace;
  if (path.empty() || path == "memory") return;
  std::ofstream file(path);
  write_trace(file, state_->trace, reports());
}

const MachineOptions& MachineCore::options() const {
  return state_->options;
}
const std::vector<KernelReport>& MachineCore::reports() const {
  State& s = *state_;
  const std::size_t first = s.reports.size() - s.unnamed.size();
  for (std::size_t i = 0; i < s.unnamed.size(); ++i)
    s.reports[first + i].kernel = kernel_name(s.unnamed[i].first, s.unnamed[i].second);
  s.unnamed.clear();
  return s.reports;
}
const std::vector<Finding>& MachineCore::findings() const {
  return state_->findings;
}
const std::vector<TraceEvent>& MachineCore::trace() const {
  return state_->trace;
}

void MachineCore::clear() {
  state_->reports.clear();
  state_->unnamed.clear();
  state_->findings.clear();
  state_->trace.clear();
}

void* MachineCore::allocate(const char* name, std::size_t count, std::size_t element_bytes, Padding padding) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes))
    refuse("device memory for " + std::string(name),
           std::to_string(count) + " elements of " + std::to_string(element_bytes) + " bytes", "less than 2^64 bytes",
           "correct the count");
  return state_->memory.allocate(name, bytes, element_bytes, padding);
}

void MachineCore::release(const void* data) {
  if (state_->shadow) state_->shadow->forget(data);
  state_->memory.release(data);
}

void MachineCore::copy_in(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);  // an empty vector's data() may be null
  DeviceMemory& memory = state_->memory;
  memory.arrays[memory.owner(to)].initialised = true;
}

void MachineCore::copy_out(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

const DeviceArray* MachineCore::array_at(const void* address) const {
  const DeviceMemory& memory = state_->memory;
  if (!memory.contains(address)) return nullptr;
  const std::size_t i = memory.owner(address);
  return i < memory.arrays.size() ? &memory.arrays[i] : nullptr;
}

void MachineCore::manage(const void* begin) {
  DeviceArray& array = state_->memory.arrays[state_->memory.owner(begin)];
  state_->memory.clear(array.begin);
  array.managed = array.initialised = true;
}

void MachineCore::forget_type(const void* begin) {
  state_->memory.arrays[state_->memory.owner(begin)].untyped = true;
}

std::size_t MachineCore::used_memory() const {
  return state_->memory.used();
}

MachineCore& MachineCore::current(bool checked, const char* action, const char* kernel) {
  if (std::exchange(active_worker, nullptr))  // from here on accesses are ours, not the kernel's
    refuse("a call in a kernel", action + std::string(kernel), "it in host code",
           "dynamic parallelism is not simulated");
  const std::lock_guard lock(living().mutex);
  const std::vector<Living::Entry>& all = living().machines;
  for (auto entry = all.rbegin(); entry != all.rend(); ++entry)
    if (entry->checked == checked && entry->thread == std::this_thread::get_id()) return *entry->machine;
  refuse("the current machine", "none", std::string("one that this thread made, for ") + action + kernel,
         "construct a Machine before it");
}

void MachineCore::allow_shared_memory(const void* kernel, std::int64_t bytes) {
  const Profile profile = state_->options.profile;
  const auto limit = static_cast<std::int64_t>(shared_memory_limit(profile));
  if (bytes < 0 || bytes > limit)
    refuse("dynamic shared memory of " + function_name(kernel), std::to_string(bytes) + " bytes",
           "0 to " + std::to_string(limit) + (profile == Profile::sm_80 ? " on sm_80" : " on sm_90"),
           "use smaller tiles");
  state_->allowed_shared[kernel] = static_cast<std::size_t>(bytes);
}

namespace {

std::string written(dim3 shape) {
  return std::to_string(shape.x) + " x " + std::to_string(shape.y) + " x " + std::to_string(shape.z);
}

// The shape that a kernel asked for in vain.
std::optional<dim3> needed_cluster(const std::vector<std::exception_ptr>& errors) {
  for (const std::exception_ptr& error : errors) try {
      if (error) std::rethrow_exception(error);
    } catch (const NeedsCluster& needs) {
      return needs.cluster;
    } catch (...) {
    }
  return {};
}

}  // namespace

void MachineCore::run(Launch& launch) {
  State& s = *state_;
  // A kernel's __cluster_dims__ are known from its first launch on.
  const void* const kernel = launch.kernel ? launch.kernel : reinterpret_cast<const void*>(launch.invoke);
  if (const auto known = s.cluster_dims.find(kernel); known != s.cluster_dims.end() && launch.cluster_blocks() == 1)
    launch.cluster = known->second;
  KernelReport report;
  report.grid = {launch.grid.x, launch.grid.y, launch.grid.z};
  report.block = {launch.block.x, launch.block.y, launch.block.z};
  const SharedLayout layout(launch);
  launch.layout = layout.empty() ? nullptr : &layout;
  const std::size_t statically = layout.static_bytes();
  check_launch(s.options.profile, report.grid, report.block, statically + launch.shared_bytes);
  check_cluster(s.options.profile, report.grid, {launch.cluster.x, launch.cluster.y, launch.cluster.z});
  if (statically > kSharedWithoutAsking)
    refuse("static shared memory of " + kernel_name(launch.kernel, launch.kernel_name),
           std::to_string(statically) + " bytes", "at most " + std::to_string(kSharedWithoutAsking),
           "make the largest array extern __shared__ and give its bytes at the launch");
  if (layout.extent() > kSharedSpan)
    refuse("the distance between a kernel's shared variables", std::to_string(layout.extent()) + " bytes",
           "at most " + std::to_string(kSharedSpan), "use fewer kernels with __shared__ variables in one program");
  // What was not asked for is shared by static and dynamic memory.
  const std::size_t allowed = std::max(kSharedWithoutAsking - statically, s.allowed_shared[launch.kernel]);
  if (launch.shared_bytes > allowed) {
    const std::string name = kernel_name(launch.kernel, launch.kernel_name);
    const std::string ask = "call cudaFuncSetAttribute(" + name + ", cudaFuncAttributeMaxDynamicSharedMemorySize, " +
                            std::to_string(launch.shared_bytes) + ") before the launch";
    refuse("dynamic shared memory of " + name, std::to_string(launch.shared_bytes) + " bytes",
           "at most " + std::to_string(allowed),
           launch.kernel ? ask : "write its template arguments at the launch, and " + ask);
  }
  if (launch.blocks() > 0xffffffffu)
    refuse("blocks in a grid", launch.blocks(), "at most 4294967295", "split the launch");
  launch.order = s.options.order, launch.completion = s.options.completion, launch.seed = s.options.seed;
  launch.trace = !s.options.trace.empty(), launch.deterministic = s.options.deterministic;

  // One worker per core, at most one per block; the calling thread is worker 0.
  const bool one = s.options.recording;  // blocks are recorded one after another
  static const unsigned all_cores = std::max(1u, std::thread::hardware_concurrency());  // it opens a file
  const std::uint64_t cores = one ? 1 : s.options.threads ? s.options.threads : all_cores;
  const std::uint64_t blocks = launch.blocks();
  if (launch.cooperative && blocks > kCooperativeBlocks)
    refuse("blocks of a cooperative launch", blocks, "at most " + std::to_string(kCooperativeBlocks),
           "use fewer blocks, each with a loop over its share of the work");
  // Each block of a cluster has a worker; they take turns, so that a team of them keeps one core busy.
  const std::size_t in_cluster = launch.cluster_blocks();
  const std::uint64_t clusters = blocks / in_cluster;
  if (in_cluster > 1 && launch.cooperative)
    refuse("a cooperative launch in clusters of", in_cluster, "1 block", "launch it without clusters");
  const std::size_t teams = static_cast<std::size_t>(launch.cooperative ? blocks : std::min(cores, clusters));
  const std::size_t count = teams * in_cluster;
  launch.workers = count;
  Stuck stuck(teams);
  launch.stuck = &stuck;
  while (s.workers.size() < count) {
    Worker& worker = *s.workers.emplace_back(std::make_unique<Worker>());
    if (!s.checked) continue;
    auto checker = std::make_unique<Checker>(worker, *s.shadow);
    s.checkers.push_back(checker.get());
    worker.observers.push_back(checker.get());
    worker.checks = std::move(checker);
  }
  if (s.shadow) s.shadow->begin_launch(teams);
  if (one && launch.cooperative && blocks > 1)
    refuse("a cooperative launch", blocks, "1 block in a recording", "do not record it");
  std::optional<LaunchRecorder> recorder;
  if (one && s.checked) {
    std::vector<Worker*> recorded;
    for (std::size_t rank = 0; rank < in_cluster; ++rank) recorded.push_back(s.workers[rank].get());
    recorder.emplace(*s.options.recording, s.memory, launch, recorded);
  }

  // Workers take blocks in the order that the options ask for.
  std::vector<std::uint32_t> shuffled;
  if (launch.order == Order::random) {
    shuffled.resize(clusters);
    std::iota(shuffled.begin(), shuffled.end(), 0u);
    std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(launch.seed));
  }
  const auto taken = [&](std::uint64_t i) {
    return launch.order == Order::forward ? i : launch.order == Order::reverse ? clusters - 1 - i : shuffled[i];
  };
  std::vector<std::unique_ptr<Cluster>> in_turns;  // of each team
  for (std::size_t team = 0; team < teams && in_cluster > 1; ++team) {
    std::vector<Worker*> members;
    for (std::size_t w = team * in_cluster; w < (team + 1) * in_cluster; ++w) members.push_back(s.workers[w].get());
    in_turns.push_back(std::make_unique<Cluster>(members, team));
  }
  std::atomic<std::uint64_t> next{0};
  std::vector<std::exception_ptr> errors(count);
  Watched watched(s.options.timeout);
  std::optional<Progress> progress(s.options.progress);
  const auto work = [&](std::size_t w) {
    Worker& worker = *s.workers[w];
    worker.barriers = worker.most_copied = worker.matrix_bytes = 0;
    worker.look = {};
    worker.look.worker = w;
    worker.tracer.events.clear();
    tally = {};
    watched.enter();
    worker.cluster = in_turns.empty() ? nullptr : in_turns[w / in_cluster].get();
    worker.rank = static_cast<unsigned>(w % in_cluster);
    const auto draw = [&]() -> std::uint64_t {
      return watched.over() ? clusters : next.fetch_add(1, std::memory_order_relaxed);
    };
    const auto attempt = [&](const auto& act) {
      try {
        act();
      } catch (...) {
        errors[w] = std::current_exception();
        next = clusters;
      }
    };
    attempt([&] {
      if (s.checked) s.checkers[w]->begin_launch();
    });
    for (std::uint64_t i; (i = worker.cluster ? worker.cluster->meet(draw) : draw()) < clusters;) {
      if (w == 0) progress->show(i * in_cluster, blocks);
      attempt([&] { worker.run(launch, launch.block_of(taken(i), worker.rank)); });
    }
    if (worker.rank == 0) stuck.done(worker.cluster ? worker.cluster->look : worker.look);
    watched.leave();
    if (s.checked) s.checkers[w]->end_launch(tally);
  };
  std::vector<std::thread> pool;
  for (std::size_t w = 1; w < count; ++w) pool.emplace_back(work, w);
  work(0);
  for (std::thread& thread : pool) thread.join();
  progress.reset();                                                 // findings follow
  if (const std::optional<dim3> needed = needed_cluster(errors)) {  // its first statement said so: nothing was done
    if (in_cluster > 1)
      refuse("the cluster of the launch of " + kernel_name(launch.kernel, launch.kernel_name), written(launch.cluster),
             written(*needed) + ", as its __cluster_dims__ say", "launch it in those, or leave the attribute out");
    for (std::size_t w = 0; w < count; ++w) s.workers[w]->findings.take();
    if (recorder) recorder->forget();
    recorder.reset();
    launch.cluster = s.cluster_dims[kernel] = *needed;
    return run(launch);
  }

  // Add up what the workers know.
  report.ledger.shared_bytes_peak = statically + launch.shared_bytes;
  std::vector<RawFinding> raw;
  std::vector<Tracer::Event> events;
  for (std::size_t w = 0; w < count; ++w) {
    Worker& worker = *s.workers[w];
    report.ledger.barriers += worker.barriers;
    report.ledger.wgmma_shared_bytes += worker.matrix_bytes;
    report.ledger.async_bytes_peak = std::max(report.ledger.async_bytes_peak, worker.most_copied);
    for (RawFinding& finding : worker.findings.take()) raw.push_back(std::move(finding));
    events.insert(events.end(), worker.tracer.events.begin(), worker.tracer.events.end());
  }
  const bool stopped_running =
      std::any_of(raw.begin(), raw.end(), [](const RawFinding& finding) { return finding.kind == kNoEnd; });
  if (watched.over() && !stopped_running)  // the time was over between two blocks
    raw.push_back({kNoEnd,
                   std::to_string(std::min<std::uint64_t>(next * in_cluster, blocks)) + " of " +
                       std::to_string(blocks) +
                       " blocks had run when the launch was to end (its time is over, or Ctrl-C)",
                   "give it more time, or less work",
                   {},
                   0});
  if (s.shadow) s.shadow->end_launch({s.checkers.begin(), s.checkers.begin() + static_cast<long>(count)}, report);
  const auto coordinates = [&](unsigned b) {
    return std::array<unsigned, 3>{b % launch.grid.x, b / launch.grid.x % launch.grid.y,
                                   b / (launch.grid.x * launch.grid.y)};
  };
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.block < b.block; });
  for (const Tracer::Event& e : events)
    s.trace.push_back({s.reports.size(), coordinates(e.block), e.warp, e.name, e.value, e.begin, e.end, e.beside});
  s.reports.push_back(report);
  s.unnamed.emplace_back(launch.kernel, launch.kernel_name);
  if (recorder) recorder->end_launch(reports().back());
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);

  const std::vector<Finding> found = worded(std::move(raw), report.grid);
  s.findings.insert(s.findings.end(), found.begin(), found.end());
  if (watched.interrupted()) {  // say where, then end as Ctrl-C ends a program
    for (const Finding& finding : found) std::cerr << finding.text << "\n";
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
  }
  if (found.empty() || s.options.keep_going) return;
  for (const Finding& finding : found) std::cerr << finding.text << "\n";
  throw Error("kernel " + reports().back().kernel + " has " + std::to_string(found.size()) +
              (found.size() == 1 ? " finding: " : " findings, the first: ") +
              found[0].text.substr(0, found[0].text.find('\n')));
}

}  // namespace flash::simt
