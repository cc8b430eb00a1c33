// machine.cpp: a launch: checks limits, spreads blocks over workers, gathers reports, findings and the trace.
// Every block runs even when an early one has findings, so that the result does not depend on the number of workers.
// Use: see machine.hpp.
#include "sim/machine.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <iostream>
#include <numeric>
#include <random>
#include <thread>

#include "sim/checks/shadow.hpp"
#include "sim/core/block.hpp"
#include "sim/core/device_memory.hpp"
#include "sim/limits.hpp"

namespace flash::simt {

struct MachineCore::State {
  MachineOptions options;
  bool checked;
  DeviceMemory memory;
  std::unique_ptr<GlobalShadow> shadow;  // checked only
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<Checker*> checkers;  // checked only: the workers' observers
  std::vector<KernelReport> reports;
  std::vector<const void*> unnamed;  // kernels of the last reports: names are looked up when somebody asks
  std::vector<Finding> findings;
  std::vector<TraceEvent> trace;
};

MachineCore::MachineCore(const MachineOptions& options, bool checked) : state_(std::make_unique<State>()) {
  state_->options = options;
  state_->checked = checked;
  if (options.threads < 0) refuse("threads", options.threads, "0 (all cores) or more", "pass 0");
  if (checked) state_->shadow = std::make_unique<GlobalShadow>(state_->memory);
}

MachineCore::~MachineCore() {
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
  for (std::size_t i = 0; i < s.unnamed.size(); ++i) s.reports[first + i].kernel = function_name(s.unnamed[i]);
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

void* MachineCore::allocate(const char* name, std::size_t count, std::size_t element_bytes) {
  return state_->memory.allocate(name, count * element_bytes, element_bytes);
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

void MachineCore::run(Launch& launch) {
  State& s = *state_;
  KernelReport report;
  report.grid = {launch.grid.x, launch.grid.y, launch.grid.z};
  report.block = {launch.block.x, launch.block.y, launch.block.z};
  check_launch(s.options.profile, report.grid, report.block, launch.shared_bytes);
  if (launch.blocks() > 0xffffffffu)
    refuse("blocks in a grid", launch.blocks(), "at most 4294967295", "split the launch");
  launch.order = s.options.order, launch.seed = s.options.seed, launch.trace = !s.options.trace.empty();

  // One worker per core, at most one per block; the calling thread is worker 0.
  const std::uint64_t cores = s.options.threads ? s.options.threads : std::max(1u, std::thread::hardware_concurrency());
  const std::uint64_t blocks = launch.blocks();
  const std::size_t count = static_cast<std::size_t>(std::min(cores, blocks));
  launch.workers = count;
  while (s.workers.size() < count) {
    s.workers.push_back(std::make_unique<Worker>());
    if (!s.checked) continue;
    auto checker = std::make_unique<Checker>(*s.workers.back(), *s.shadow);
    s.checkers.push_back(checker.get());
    s.workers.back()->observer = std::move(checker);
  }
  if (s.shadow) s.shadow->begin_launch(count);

  // Workers take blocks in the order that the options ask for.
  std::vector<std::uint32_t> shuffled;
  if (launch.order == Order::random) {
    shuffled.resize(blocks);
    std::iota(shuffled.begin(), shuffled.end(), 0u);
    std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(launch.seed));
  }
  std::atomic<std::uint64_t> next{0};
  std::vector<std::exception_ptr> errors(count);
  const auto work = [&](std::size_t w) {
    Worker& worker = *s.workers[w];
    worker.barriers = 0;
    worker.tracer.events.clear();
    tally = {};
    try {
      if (s.checked) s.checkers[w]->begin_launch();
      for (std::uint64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < blocks;)
        worker.run(launch, launch.order == Order::forward   ? i
                           : launch.order == Order::reverse ? blocks - 1 - i
                                                            : shuffled[i]);
    } catch (...) {
      errors[w] = std::current_exception();
      next = blocks;
    }
    if (s.checked) s.checkers[w]->end_launch(tally);
  };
  std::vector<std::thread> pool;
  for (std::size_t w = 1; w < count; ++w) pool.emplace_back(work, w);
  work(0);
  for (std::thread& thread : pool) thread.join();

  // Add up what the workers know.
  report.ledger.shared_bytes_peak = launch.shared_bytes;
  std::vector<RawFinding> raw;
  std::vector<Tracer::Event> events;
  for (std::size_t w = 0; w < count; ++w) {
    Worker& worker = *s.workers[w];
    report.ledger.barriers += worker.barriers;
    for (RawFinding& finding : worker.findings.take()) raw.push_back(std::move(finding));
    events.insert(events.end(), worker.tracer.events.begin(), worker.tracer.events.end());
  }
  if (s.shadow)
    s.shadow->end_launch({s.checkers.begin(), s.checkers.begin() + static_cast<long>(count)}, report.ledger);
  const auto coordinates = [&](unsigned b) {
    return std::array<unsigned, 3>{b % launch.grid.x, b / launch.grid.x % launch.grid.y,
                                   b / (launch.grid.x * launch.grid.y)};
  };
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.block < b.block; });
  for (const Tracer::Event& e : events)
    s.trace.push_back({s.reports.size(), coordinates(e.block), e.warp, e.name, e.value, e.begin, e.end});
  s.reports.push_back(report);
  s.unnamed.push_back(launch.kernel);
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);

  const std::vector<Finding> found = worded(std::move(raw), report.grid);
  s.findings.insert(s.findings.end(), found.begin(), found.end());
  if (found.empty() || s.options.keep_going) return;
  for (const Finding& finding : found) std::cerr << finding.text << "\n";
  throw Error("kernel " + reports().back().kernel + " has " + std::to_string(found.size()) +
              (found.size() == 1 ? " finding: " : " findings, the first: ") +
              found[0].text.substr(0, found[0].text.find('\n')));
}

}  // namespace flash::simt
