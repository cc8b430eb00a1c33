// launch_recorder.cpp: what the recorders of a launch's blocks have in common: the names of arrays, places and
// barriers, the lines of the program, and in which order the steps of all blocks are told.
// Use: see recorder.hpp.
#include <algorithm>

#include "sim/core/code_names.hpp"
#include "sim/core/variables.hpp"
#include "sim/report/lines.hpp"
#include "sim/report/recorder.hpp"

namespace flash::simt {

void add_once(std::vector<std::size_t>& all, std::size_t one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

LaunchRecorder::LaunchRecorder(Recording& out, const DeviceMemory& memory, const Launch& launch,
                               std::vector<Worker*> workers)
    : out_(out), memory_(memory), launch_(launch), workers_(std::move(workers)), steps_(out.steps.size()) {
  const auto three = [](dim3 n) { return std::array<unsigned, 3>{n.x, n.y, n.z}; };
  Recording::Launch own{"", three(launch.grid), three(launch.block), three(launch.cluster), launch.shared_bytes};
  if (launch.layout) {
    own.chip_bytes = launch.layout->extent();
    for (const SharedLayout::Array& array : launch.layout->arrays())
      own.chip.push_back({array.name, array.at, array.bytes, 1, 0});
  }
  out_.launches.push_back(own);
  for (Worker* worker : workers_) worker->observers.push_back(&blocks_.emplace_back(*this, *worker));
}

LaunchRecorder::~LaunchRecorder() {
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) std::erase(workers_[rank]->observers, &blocks_[rank]);
}

void LaunchRecorder::end_launch(const KernelReport& report) {
  out_.launches.back().kernel = report.kernel;
  out_.ledger.add(report.ledger);
  if (first_) out_.finding[0].text = worded({*first_}, report.grid)[0].text;
  for (Recording::Step& step : out_.steps) {
    for (Recording::Part& part : step.parts) tidy(part.spans), tidy(part.from);
    std::stable_sort(step.values.begin(), step.values.end(),
                     [](const auto& a, const auto& b) { return a.row < b.row; });
  }
  // Spots become lines, all at once: to look them up one by one takes long.
  std::vector<const void*> calls;
  for (const Spot spot : spots_)
    if (!(spot & kSourceLocation)) calls.push_back(reinterpret_cast<const void*>(spot & kAddressBits));
  const std::vector<std::vector<CodeLine>> looked_up = lines_of(calls);
  std::vector<std::ptrdiff_t> line;  // of each spot; -1: nobody knows
  for (std::size_t i = 0, call = 0; i < spots_.size(); ++i) {
    CodeLine at;
    if (spots_[i] & kSourceLocation) {
      const auto site = site_at(spots_[i]);
      at = {site.file_name(), site.line()};
    } else if (const auto& all = looked_up[call++]; !all.empty()) {
      at = all[0];
    }
    line.push_back(at.line ? static_cast<std::ptrdiff_t>(out_.line(at.file, at.line)) : -1);
  }
  for (Recording::Step& step : out_.steps) {
    if (step.launch + 1 != out_.launches.size()) continue;
    std::vector<std::size_t> at;
    for (const std::size_t spot : step.at)
      if (line[spot] >= 0) add_once(at, static_cast<std::size_t>(line[spot]));
    step.at = at;
  }
  out_.sort_lines();
}

void LaunchRecorder::forget() {
  out_.launches.pop_back();
  std::erase_if(out_.steps, [&](const Recording::Step& step) { return step.launch == out_.launches.size(); });
}

void LaunchRecorder::stands(Recording::Step& step, Spot spot) {
  const auto known = std::find(spots_.begin(), spots_.end(), spot);
  add_once(step.at, static_cast<std::size_t>(known - spots_.begin()));
  if (known == spots_.end()) spots_.push_back(spot);
}

// ---- names ---------------------------------------------------------------------------------------------------------

std::size_t LaunchRecorder::array_of(std::size_t owner) {
  if (owner >= arrays_.size()) arrays_.resize(owner + 1, -1);
  if (arrays_[owner] < 0) {
    const DeviceArray& a = memory_.arrays[owner];
    arrays_[owner] = static_cast<std::ptrdiff_t>(
        out_.array(a.of_kernel ? "heap" : a.name, a.bytes, a.untyped ? 1 : a.element_bytes, 0));
  }
  return static_cast<std::size_t>(arrays_[owner]);
}

std::size_t LaunchRecorder::place_of(std::size_t offset) {
  std::vector<Recording::Place>& chip = told().chip;
  if (chip.empty()) chip.push_back({"shared memory", 0, launch_.shared_bytes, 1, 0});
  std::size_t place = 0;
  while (place + 1 < chip.size() && chip[place + 1].at <= offset) ++place;
  return place;
}

std::size_t LaunchRecorder::mbarrier(const std::string& name, unsigned arrivals, bool of_cluster) {
  std::vector<Recording::Mbarrier>& known = told().mbarriers;
  const auto same = std::find_if(known.begin(), known.end(), [&](const auto& m) { return m.name == name; });
  if (same != known.end()) return static_cast<std::size_t>(same - known.begin());
  known.push_back({name, arrivals, of_cluster});
  return known.size() - 1;
}

// ---- in which order ------------------------------------------------------------------------------------------------

// What a step has waited for, and the copies that it says are there, must have been told before.
bool LaunchRecorder::may_follow(const Recording::Step& step) const {
  for (const Recording::Waited& wait : step.waited)
    if (blocks_[wait.rank].seen_[wait.mbarrier].complete < wait.phases) return false;
  for (const Recording::Arrival& a : step.arrivals)
    if (blocks_[a.rank].seen_[a.mbarrier].begun < a.come) return false;
  return true;
}

// The step is told: what it does to mbarriers.
void LaunchRecorder::follows(const Recording::Step& step) {
  for (const Recording::Made& made : step.made) {
    Recorder::Seen& seen = blocks_[step.rank].seen_[made.mbarrier];
    if (made.arrivals > 0) seen = {seen.at, made.arrivals, made.arrivals};
  }
  for (Recording::Arrival a : step.arrivals) {
    Recorder::Seen& seen = blocks_[a.rank].seen_[a.mbarrier];
    seen.begun += a.begun - a.come, seen.bytes += a.expected - a.come;
    if (seen.expected == 0) {
      seen.complete += step.released;
      continue;
    }
    do {
      const unsigned now = std::min(a.count, seen.missing);
      a.count -= now, seen.missing -= now;
      if (seen.missing > 0 || seen.bytes != 0) break;
      ++seen.complete, seen.missing = seen.expected;
    } while (a.count > 0);
  }
}

// Two warps that have come to one barrier, and nothing else.
bool LaunchRecorder::comes_beside(const Recording::Step& step, const Recording::Step& last) const {
  const Recording::Launch& launch = out_.launches.back();
  const auto bare = [&](const Recording::Step& s) {
    const bool at_cluster = s.arrivals.size() == 1 && launch.mbarriers[s.arrivals[0].mbarrier].of_cluster;
    return s.warp >= 0 && !s.waits.empty() && s.parts.empty() && s.values.empty() && s.made.empty() &&
           (s.arrivals.empty() || at_cluster);
  };
  return step.launch == last.launch && bare(step) && bare(last) && step.block == last.block &&
         step.waits == last.waits && step.at == last.at && step.label == last.label && step.waited == last.waited &&
         step.arrivals.size() == last.arrivals.size();
}

void LaunchRecorder::tell(Recording::Step&& step) {
  follows(step);
  if (out_.steps.empty() || !comes_beside(step, out_.steps.back())) return out_.steps.push_back(std::move(step));
  Recording::Step& last = out_.steps.back();
  last.also.push_back(step.warp);
  for (const Recording::Arrival& a : step.arrivals)
    last.arrivals[0].count += a.count, last.arrivals[0].begun += a.begun;
}

void LaunchRecorder::release(bool all) {
  for (bool any = true; any;) {
    any = false;
    for (Recorder& block : blocks_)
      for (std::deque<Recording::Step>& steps : block.held_)
        for (; !steps.empty() && (all || may_follow(steps.front())); steps.pop_front(), any = true)
          tell(std::move(steps.front()));
  }
}

}  // namespace flash::simt
