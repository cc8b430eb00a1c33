// launch.cpp: a launch: checks limits, spreads blocks over workers, gathers reports, findings and the trace.
// Every block runs even when an early one has findings, so that the result does not depend on the number of workers.
// Use: MachineCore::run (sim/machine.cpp).
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <iostream>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "sim/core/variables.hpp"
#include "sim/limits.hpp"
#include "sim/machine_state.hpp"
#include "sim/report/findings.hpp"
#include "sim/report/found.hpp"
#include "sim/report/recorder.hpp"

namespace flash::simt {
namespace {

std::array<unsigned, 3> three(dim3 n) {
  return {n.x, n.y, n.z};
}

std::string written(dim3 shape) {
  return std::to_string(shape.x) + " x " + std::to_string(shape.y) + " x " + std::to_string(shape.z);
}

std::string name_of(const Launch& launch) {
  return kernel_name(launch.kernel, launch.kernel_name);
}

// How many blocks of a launch have run: on a terminal one line that is written over and over, elsewhere a line now and
// then, so that a log tells of it, too.
class Progress {
 public:
  Progress(double seconds, const Launch& launch)
      : wanted_(seconds > 0),
        interval_(isatty(STDERR_FILENO) ? std::chrono::milliseconds(100)
                                        : std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000))),
        launch_(launch) {}
  void show(std::uint64_t blocks) {
    if (!wanted_ || Clock::now() < next_) return;
    next_ = Clock::now() + interval_;
    const bool terminal = isatty(STDERR_FILENO);
    if (terminal)
      shown_ = true, std::cerr << "\r" << blocks << " of " << launch_.blocks() << " blocks " << std::flush;
    else
      std::cerr << name_of(launch_) << ": " << blocks << " of " << launch_.blocks() << " blocks have run" << std::endl;
  }
  void end() {
    if (std::exchange(shown_, false)) std::cerr << "\r\033[K" << std::flush;
  }
  ~Progress() { end(); }

 private:
  using Clock = std::chrono::steady_clock;
  const bool wanted_;
  const std::chrono::milliseconds interval_;
  const Launch& launch_;
  bool shown_ = false;
  Clock::time_point next_ = Clock::now() + interval_;
};

// Which cluster a block is in, counted as Launch::block_of counts them.
std::uint64_t cluster_of(const Launch& launch, std::uint64_t block) {
  const dim3 &grid = launch.grid, &shape = launch.cluster;
  const std::uint64_t x = block % grid.x / shape.x, y = block / grid.x % grid.y / shape.y;
  const std::uint64_t z = block / grid.x / grid.y / shape.z;
  return x + grid.x / shape.x * (y + grid.y / shape.y * z);
}

// ---- what may be launched ------------------------------------------------------------------------------------------

void check_shared_memory(const MachineState& machine, const Launch& launch, const SharedLayout& layout) {
  const std::size_t statically = layout.static_bytes();
  if (statically > kSharedWithoutAsking)
    refuse("static shared memory of " + name_of(launch), std::to_string(statically) + " bytes",
           "at most " + std::to_string(kSharedWithoutAsking),
           "make the largest array extern __shared__ and give its bytes at the launch");
  if (layout.extent() > kSharedSpan)
    refuse("the distance between a kernel's shared variables", std::to_string(layout.extent()) + " bytes",
           "at most " + std::to_string(kSharedSpan), "use fewer kernels with __shared__ variables in one program");
  // What was not asked for is shared by static and dynamic memory.
  const auto asked = machine.allowed_shared.find(launch.kernel);
  const std::size_t allowed = std::max(kSharedWithoutAsking - statically,
                                       asked == machine.allowed_shared.end() ? std::size_t{0} : asked->second);
  if (launch.shared_bytes <= allowed) return;
  const std::string name = name_of(launch);
  const std::string ask = "call cudaFuncSetAttribute(" + name + ", cudaFuncAttributeMaxDynamicSharedMemorySize, " +
                          std::to_string(launch.shared_bytes) + ") before the launch";
  refuse("dynamic shared memory of " + name, std::to_string(launch.shared_bytes) + " bytes",
         "at most " + std::to_string(allowed),
         launch.kernel ? ask : "write its template arguments at the launch, and " + ask);
}

void check_cooperative(const MachineOptions& options, const Launch& launch, std::size_t shared_bytes) {
  if (!launch.cooperative) return;
  const std::size_t fit = cooperative_blocks(options.profile, static_cast<int>(launch.threads()), shared_bytes);
  if (launch.blocks() > fit)
    refuse("blocks of a cooperative launch", launch.blocks(),
           "at most the " + std::to_string(fit) + " that fit at a time",
           "use fewer blocks, each with a loop over its share of the work");
  if (launch.cluster_blocks() > 1)
    refuse("a cooperative launch in clusters of", launch.cluster_blocks(), "1 block", "launch it without clusters");
  if (options.recording && launch.blocks() > 1)
    refuse("a cooperative launch", launch.blocks(), "1 block in a recording", "do not record it");
}

void check(const MachineState& machine, const Launch& launch, const SharedLayout& layout) {
  const Profile profile = machine.options.profile;
  check_launch(profile, three(launch.grid), three(launch.block), layout.static_bytes() + launch.shared_bytes);
  check_cluster(profile, three(launch.grid), three(launch.cluster));
  check_shared_memory(machine, launch, layout);
  if (launch.blocks() > 0xffffffffu)
    refuse("blocks in a grid", launch.blocks(), "at most 4294967295", "split the launch");
  check_cooperative(machine.options, launch, layout.static_bytes() + launch.shared_bytes);
}

void take_options(const MachineOptions& options, Launch& launch) {
  launch.order = options.order, launch.completion = options.completion, launch.seed = options.seed;
  launch.trace = !options.trace.empty(), launch.deterministic = options.deterministic;
}

// ---- who runs it ---------------------------------------------------------------------------------------------------

// taskset and containers leave a program fewer than there are.
unsigned cores_to_use() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

// One worker per core, at most one per block; the calling thread is worker 0. Each block of a cluster has a worker;
// they take turns, so that a team of them keeps one core busy.
struct Teams {
  std::size_t count, workers_of_each;
  std::size_t workers() const { return count * workers_of_each; }
};

Teams teams_for(const MachineOptions& options, const Launch& launch) {
  const std::size_t in_cluster = launch.cluster_blocks();
  if (launch.cooperative) return {static_cast<std::size_t>(launch.blocks()), in_cluster};
  if (options.recording) return {1, in_cluster};  // blocks are recorded one after another
  const std::uint64_t cores = options.threads ? static_cast<std::uint64_t>(options.threads) : cores_to_use();
  return {static_cast<std::size_t>(std::min(cores, launch.blocks() / in_cluster)), in_cluster};
}

void provide_workers(MachineState& machine, std::size_t count) {
  while (machine.workers.size() < count) {
    Worker& worker = *machine.workers.emplace_back(std::make_unique<Worker>());
    if (!machine.checked) continue;
    auto checker = std::make_unique<Checker>(worker, *machine.shadow);
    machine.checkers.push_back(checker.get());
    worker.observers.push_back(checker.get());
    worker.checks = std::move(checker);
  }
}

// ---- the run -------------------------------------------------------------------------------------------------------

class Run {
 public:
  Run(MachineState& machine, Launch& launch, const Teams& teams);
  // All blocks, or those that begin before something throws or the time is over.
  void run_blocks();
  // The shape that the kernel asked for in vain.
  std::optional<dim3> needed_cluster() const;
  // As if it had not been.
  void forget();
  // Adds up what the workers know. Throws what a kernel has thrown.
  std::vector<Finding> report();
  bool interrupted() const { return watched_.interrupted(); }

 private:
  std::vector<Worker*> team(std::size_t number) const;
  std::uint64_t cluster_at(std::uint64_t turn) const;
  bool is_checked(std::uint64_t cluster) const;
  void work(std::size_t w);
  std::vector<RawFinding> take_findings();
  void keep_trace();
  KernelReport added_up();

  MachineState& machine_;
  const Launch& launch_;
  const Teams teams_;
  const std::uint64_t clusters_;
  const std::uint64_t checked_;  // clusters whose plain accesses are checked
  Stuck stuck_;
  std::optional<LaunchRecorder> recorder_;
  std::vector<std::unique_ptr<Cluster>> in_turns_;  // of each team
  std::vector<std::uint32_t> shuffled_;             // clusters, where their order is random
  std::atomic<std::uint64_t> next_{0};              // cluster's turn
  std::vector<std::exception_ptr> errors_;          // of each worker
  Watched watched_;
  Progress progress_;
};

// Where all blocks run at a time each waits for the others: then all are checked.
std::uint64_t sample(const MachineState& machine, const Launch& launch, const Teams& teams) {
  const std::uint64_t clusters = launch.blocks() / teams.workers_of_each, wanted = machine.options.checked_blocks;
  if (wanted == 0 || launch.cooperative || !machine.checked) return clusters;
  return std::clamp<std::uint64_t>(wanted / teams.workers_of_each, 1, clusters);
}

Run::Run(MachineState& machine, Launch& launch, const Teams& teams)
    : machine_(machine),
      launch_(launch),
      teams_(teams),
      clusters_(launch.blocks() / teams.workers_of_each),
      checked_(sample(machine, launch, teams)),
      stuck_(teams.count),
      errors_(teams.workers()),
      watched_(machine.options.timeout),
      progress_(machine.options.progress, launch) {
  launch.workers = teams.workers();
  launch.stuck = &stuck_;
  if (machine.options.recording && machine.checked)
    recorder_.emplace(*machine.options.recording, machine.memory, launch, team(0));
  if (launch.order == Order::random) {
    shuffled_.resize(clusters_);
    std::iota(shuffled_.begin(), shuffled_.end(), 0u);
    std::shuffle(shuffled_.begin(), shuffled_.end(), std::mt19937_64(launch.seed));
  }
  for (std::size_t number = 0; number < teams.count && teams.workers_of_each > 1; ++number)
    in_turns_.push_back(std::make_unique<Cluster>(team(number), number));
}

std::vector<Worker*> Run::team(std::size_t number) const {
  std::vector<Worker*> members;
  for (std::size_t rank = 0; rank < teams_.workers_of_each; ++rank)
    members.push_back(machine_.workers[number * teams_.workers_of_each + rank].get());
  return members;
}

// Workers take clusters in the order that the options ask for.
std::uint64_t Run::cluster_at(std::uint64_t turn) const {
  return launch_.order == Order::forward   ? turn
         : launch_.order == Order::reverse ? clusters_ - 1 - turn
                                           : shuffled_[turn];
}

// Spread over all, the first and the last among them.
bool Run::is_checked(std::uint64_t cluster) const {
  if (checked_ == clusters_) return true;
  if (checked_ == 1) return cluster == 0;
  const std::uint64_t k = (cluster * (checked_ - 1) + clusters_ - 2) / (clusters_ - 1);
  return k * (clusters_ - 1) / (checked_ - 1) == cluster;
}

void Run::run_blocks() {
  std::vector<std::thread> pool;
  for (std::size_t w = 1; w < teams_.workers(); ++w) pool.emplace_back([this, w] { work(w); });
  work(0);
  for (std::thread& thread : pool) thread.join();
  progress_.end();  // findings follow
}

// What one worker does, on an OS thread of its own.
void Run::work(std::size_t w) {
  Worker& worker = *machine_.workers[w];
  worker.barriers = worker.most_copied = worker.matrix_bytes = 0;
  worker.look = {};
  worker.look.worker = w;
  worker.tracer.events.clear();
  tally = {};
  watched_.enter();
  worker.cluster = in_turns_.empty() ? nullptr : in_turns_[w / teams_.workers_of_each].get();
  worker.rank = static_cast<unsigned>(w % teams_.workers_of_each);
  const auto draw = [&]() -> std::uint64_t {
    return watched_.over() ? clusters_ : next_.fetch_add(1, std::memory_order_relaxed);
  };
  const auto attempt = [&](const auto& act) {
    try {
      act();
    } catch (...) {
      errors_[w] = std::current_exception();
      next_ = clusters_;
    }
  };
  attempt([&] {
    if (machine_.checked) machine_.checkers[w]->begin_launch();
  });
  for (std::uint64_t turn; (turn = worker.cluster ? worker.cluster->meet(draw) : draw()) < clusters_;) {
    if (w == 0) progress_.show(turn * teams_.workers_of_each);
    if (machine_.checked) machine_.checkers[w]->watch(is_checked(cluster_at(turn)));
    attempt([&] { worker.run(launch_, launch_.block_of(cluster_at(turn), worker.rank)); });
  }
  if (worker.rank == 0) stuck_.done(worker.cluster ? worker.cluster->look : worker.look);
  watched_.leave();
  if (machine_.checked) machine_.checkers[w]->end_launch(tally);
}

std::optional<dim3> Run::needed_cluster() const {
  for (const std::exception_ptr& error : errors_) try {
      if (error) std::rethrow_exception(error);
    } catch (const NeedsCluster& needs) {
      return needs.cluster;
    } catch (...) {
    }
  return {};
}

void Run::forget() {
  for (std::size_t w = 0; w < teams_.workers(); ++w) machine_.workers[w]->findings.take();
  if (recorder_) recorder_->forget();
  recorder_.reset();
}

// ---- what it was ---------------------------------------------------------------------------------------------------

std::vector<Finding> Run::report() {
  std::vector<RawFinding> raw = take_findings();
  KernelReport report = added_up();
  keep_trace();
  machine_.reports.push_back(report);
  machine_.unnamed.emplace_back(launch_.kernel, launch_.kernel_name);
  if (recorder_) recorder_->end_launch(machine_.named_reports().back());
  for (const std::exception_ptr& error : errors_)
    if (error) std::rethrow_exception(error);
  return worded(std::move(raw), report.grid);
}

std::vector<RawFinding> Run::take_findings() {
  std::vector<RawFinding> raw;
  for (std::size_t w = 0; w < teams_.workers(); ++w)
    for (RawFinding& finding : machine_.workers[w]->findings.take()) raw.push_back(std::move(finding));
  // Of blocks that are not checked the core's findings alone mean something.
  const auto of_checks = {"race", "lockstep assumed", "uninitialised", "asynchronous copy", "proxy fence"};
  std::erase_if(raw, [&](const RawFinding& finding) {
    return checked_ < clusters_ && !is_checked(cluster_of(launch_, finding.block)) &&
           std::find(of_checks.begin(), of_checks.end(), finding.kind) != of_checks.end();
  });
  const bool stopped_running =
      std::any_of(raw.begin(), raw.end(), [](const RawFinding& finding) { return finding.kind == kNoEnd; });
  if (watched_.over() && !stopped_running)  // the time was over between two blocks
    raw.push_back({kNoEnd,
                   std::to_string(std::min<std::uint64_t>(next_ * teams_.workers_of_each, launch_.blocks())) + " of " +
                       std::to_string(launch_.blocks()) +
                       " blocks had run when the launch was to end (its time is over, or Ctrl-C)",
                   "give it more time, or less work",
                   {},
                   0});
  return raw;
}

KernelReport Run::added_up() {
  KernelReport report;
  if (checked_ < clusters_) report.checked_blocks = checked_ * teams_.workers_of_each;
  report.grid = three(launch_.grid), report.block = three(launch_.block);
  report.ledger.shared_bytes_peak = (launch_.layout ? launch_.layout->static_bytes() : 0) + launch_.shared_bytes;
  for (std::size_t w = 0; w < teams_.workers(); ++w) {
    const Worker& worker = *machine_.workers[w];
    report.ledger.barriers += worker.barriers;
    report.ledger.wgmma_shared_bytes += worker.matrix_bytes;
    report.ledger.async_bytes_peak = std::max(report.ledger.async_bytes_peak, worker.most_copied);
  }
  const auto first = machine_.checkers.begin();
  if (machine_.shadow)
    machine_.shadow->end_launch({first, first + static_cast<std::ptrdiff_t>(teams_.workers())}, report);
  return report;
}

void Run::keep_trace() {
  std::vector<Tracer::Event> events;
  for (std::size_t w = 0; w < teams_.workers(); ++w) {
    const std::vector<Tracer::Event>& own = machine_.workers[w]->tracer.events;
    events.insert(events.end(), own.begin(), own.end());
  }
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.block < b.block; });
  for (const Tracer::Event& e : events)
    machine_.trace.push_back({machine_.reports.size(), three(position(e.block, launch_.grid)), e.warp, e.name, e.value,
                              e.begin, e.end, e.beside});
}

// Of all workers. Ctrl-C ends the program once it has been said where the launch was.
void tell(MachineState& machine, const std::vector<Finding>& found, bool interrupted) {
  machine.findings.insert(machine.findings.end(), found.begin(), found.end());
  const auto print = [&] {
    for (const Finding& finding : found) std::cerr << finding.text << "\n";
  };
  if (interrupted) {
    print();
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
  }
  if (found.empty() || machine.options.keep_going) return;
  print();
  throw Found("kernel " + machine.named_reports().back().kernel + " has " + std::to_string(found.size()) +
                  (found.size() == 1 ? " finding: " : " findings, the first: ") +
                  found[0].text.substr(0, found[0].text.find('\n')),
              found);
}

}  // namespace

void run_launch(MachineState& machine, Launch& launch) {
  // A kernel's __cluster_dims__ are known from its first launch on.
  const void* const kernel = launch.kernel ? launch.kernel : reinterpret_cast<const void*>(launch.invoke);
  const auto known = machine.cluster_dims.find(kernel);
  if (known != machine.cluster_dims.end() && launch.cluster_blocks() == 1) launch.cluster = known->second;
  const SharedLayout layout(launch);
  launch.layout = layout.empty() ? nullptr : &layout;
  check(machine, launch, layout);
  take_options(machine.options, launch);

  const Teams teams = teams_for(machine.options, launch);
  provide_workers(machine, teams.workers());
  if (machine.shadow) machine.shadow->begin_launch(teams.count, launch);
  Run run(machine, launch, teams);
  run.run_blocks();
  if (const std::optional<dim3> needed = run.needed_cluster()) {  // its first statement said so: nothing was done
    if (launch.cluster_blocks() > 1)
      refuse("the cluster of the launch of " + name_of(launch), written(launch.cluster),
             written(*needed) + ", as its __cluster_dims__ say", "launch it in those, or leave the attribute out");
    run.forget();
    launch.cluster = machine.cluster_dims[kernel] = *needed;
    return run_launch(machine, launch);
  }
  tell(machine, run.report(), run.interrupted());
}

}  // namespace flash::simt
