// recorder.cpp: see recorder.hpp. Bytes are added up access by access, apart from the counters, so that the two can be
// compared. Where data on chip come from is what the thread loaded last and had not stored yet.
// Use: see recorder.hpp.
#include "sim/report/recorder.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "sim/checks/keys.hpp"
#include "sim/core/outside.hpp"
#include "sim/core/tensor_map.hpp"
#include "sim/core/variables.hpp"
#include "sim/core/warpgroup.hpp"
#include "sim/report/lines.hpp"

namespace flash::simt {
namespace {

constexpr std::size_t kMostOpen = 24;  // segments of a warp between two meetings

enum : int { kBegin, kMark, kLoad, kStore, kCompute, kWait, kValue, kExpect, kPhase };

// "K" of "… S::K)]"; of a member of a member "K_ring.full", or "Q_ring[1].full".
std::string member_name(const Member& member) {
  const auto name = [](const std::string& pretty) {
    const std::size_t begin = pretty.rfind("::") + 2;
    return pretty.substr(begin, pretty.find_first_of(")]", begin) - begin);
  };
  if (!member.within) return name(member.pretty);
  const std::string element = member.element < 0 ? "" : "[" + std::to_string(member.element) + "]";
  return name(member.within) + element + "." + name(member.pretty);
}

// Two warps that have come to one barrier, and nothing else.
bool comes_beside(const Recording::Step& step, const Recording::Step& last) {
  const auto bare = [](const Recording::Step& s) {
    return s.warp >= 0 && !s.waits.empty() && s.parts.empty() && s.values.empty() && s.arrivals.empty();
  };
  return bare(step) && bare(last) && step.launch == last.launch && step.block == last.block &&
         step.waits == last.waits && step.at == last.at && step.label == last.label && step.waited == last.waited;
}

void add(std::vector<std::size_t>& all, std::size_t one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

}  // namespace

Spot spot(const Site& site) {
  return std::bit_cast<std::uintptr_t>(site) | kSourceLocation;
}

Recorder::Recorder(Recording& out, const DeviceMemory& memory, const Launch& launch)
    : out_(out), memory_(memory), launch_(launch), steps_(out.steps.size()) {
  const auto three = [](dim3 n) { return std::array<unsigned, 3>{n.x, n.y, n.z}; };
  Recording::Launch own{"", three(launch.grid), three(launch.block), launch.shared_bytes};
  if (launch.layout) {
    own.chip_bytes = launch.layout->extent();
    for (const SharedLayout::Array& array : launch.layout->arrays())
      own.chip.push_back({array.name, array.at, array.bytes, 1, 0});
  }
  out_.launches.push_back(own);
}

void Recorder::end_launch(const KernelReport& report) {
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
      const auto site = std::bit_cast<Site>(spots_[i] & kAddressBits);
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
      if (line[spot] >= 0) add(at, static_cast<std::size_t>(line[spot]));
    step.at = at;
  }
  out_.sort_lines();
}

void Recorder::stands(Recording::Step& step, Spot spot) {
  const auto known = std::find(spots_.begin(), spots_.end(), spot);
  add(step.at, static_cast<std::size_t>(known - spots_.begin()));
  if (known == spots_.end()) spots_.push_back(spot);
}

void Recorder::struct_is(Members members) {
  std::vector<Recording::Place>& chip = out_.launches.back().chip;
  if (!chip.empty() || !members) return;
  std::array<Member, kMostMembers> all;
  const std::size_t count = members(all.data());
  for (std::size_t i = 0; i < count; ++i)
    chip.push_back({member_name(all[i]), all[i].at, all[i].bytes, all[i].element_bytes, all[i].columns});
}

// ---- blocks --------------------------------------------------------------------------------------------------------

void Recorder::begin_block(const Worker& worker) {
  worker_ = &worker;
  warps_.assign(worker.warps.size(), {});
  held_.assign(worker.warps.size() + 1, {});
  loaded_.assign(worker.threads.size(), {});
  seen_.assign(out_.launches.back().mbarriers.size(), {});
  detailed_ = !full();
  if (!detailed_ && wanted()) ++rest().blocks;
}

// The step of all that is not shown step by step.
Recording::Step& Recorder::rest() {
  release(true);
  Recording::Step* last = &out_.steps.back();
  if (last->blocks == 0 || last->launch + 1 != out_.launches.size())
    last = &(step(-1), release(true), out_.steps.back());
  return *last;
}

void Recorder::end_block() {
  if (wanted())
    for (unsigned w = 0; w < warps_.size(); ++w) emit(w, warps_[w].open.size());
  release(true);
  if (!first_) return;
  // The report shows two threads farther apart where there are such, and their remedy holds for the first two as well.
  const RawFinding& now = worker_->findings.all().front();
  first_->remedy = now.remedy, first_->same_value = now.same_value;
}

// Nothing is recorded after a finding, which the last access or meeting made.
bool Recorder::wanted() {
  if (out_.finding.empty() && !worker_->findings.all().empty()) found(worker_->findings.all().front());
  return out_.finding.empty();
}

void Recorder::found(const RawFinding& raw) {
  // What happened before; of the warp that noticed, what its lanes did until the one that noticed was there.
  const unsigned thread = raw.sides.empty() ? 0 : raw.sides[0].thread, noticed = thread / kWarpSize;
  for (unsigned w = 0; w < warps_.size(); ++w)
    if (w != noticed) emit(w, warps_[w].open.size());
  if (const OfWarp& of = warps_[noticed]; !of.open.empty()) emit(noticed, of.at[thread % kWarpSize] + 1);
  release(true);
  first_ = raw;
  Recording::Finding finding{raw.kind, ""};
  for (const FindingSide& side : raw.sides) finding.threads.push_back({side.block, side.thread});
  const auto of_access = {"race", "lockstep assumed", "asynchronous copy", "uninitialised"};
  if (std::find(of_access.begin(), of_access.end(), raw.kind) != of_access.end())
    finding.on_chip = last_.on_chip, finding.place = static_cast<std::ptrdiff_t>(last_.place),
    finding.span = last_.span;
  out_.finding.push_back(finding);
}

// ---- segments ------------------------------------------------------------------------------------------------------

Recorder::Segment& Recorder::segment() {
  OfWarp& of = warps_[worker_->current / kWarpSize];
  if (of.open.empty()) of.open.push_back({{kBegin, nullptr, 0}});
  return of.open[of.at[worker_->current % kWarpSize]];
}

// The running lane begins something else: what another lane has begun before it, or what none has.
Recorder::Segment& Recorder::cut(const Key& key) {
  Segment& now = segment();
  OfWarp& of = warps_[worker_->current / kWarpSize];
  std::size_t& at = of.at[worker_->current % kWarpSize];
  if (of.fused || now.key == key) return now;
  for (std::size_t next = at + 1; next < of.open.size(); ++next)
    if (of.open[next].key == key) return of.open[at = next];
  if (of.open.size() == kMostOpen) {
    fuse(of);
    return of.open[0];
  }
  // What others do later, this lane may do as well, after this.
  ++at;
  for (unsigned lane = 0; lane < kWarpSize; ++lane)
    if (lane != worker_->current % kWarpSize && of.at[lane] >= at) ++of.at[lane];
  return *of.open.insert(of.open.begin() + static_cast<std::ptrdiff_t>(at), Segment{key});
}

// Where the running lane's access belongs: not to what it did before it showed values.
Recorder::Segment& Recorder::after_values() {
  OfWarp& of = warps_[worker_->current / kWarpSize];
  return std::exchange(of.shown[worker_->current % kWarpSize], false) ? cut({kValue, nullptr, 0}) : segment();
}

void Recorder::fuse(OfWarp& of) {
  Recording::Step& all = of.open[0].step;
  for (std::size_t i = 1; i < of.open.size(); ++i) {
    Recording::Step& step = of.open[i].step;
    for (const Recording::Part& from : step.parts) {
      Recording::Part& to = part(all, from.kind, from.place, from.source);
      to.bytes += from.bytes;
      to.spans.insert(to.spans.end(), from.spans.begin(), from.spans.end());
      to.from.insert(to.from.end(), from.from.begin(), from.from.end());
    }
    all.values.insert(all.values.end(), step.values.begin(), step.values.end());
    all.arrivals.insert(all.arrivals.end(), step.arrivals.begin(), step.arrivals.end());
    all.wgmma.insert(all.wgmma.end(), step.wgmma.begin(), step.wgmma.end());
    for (const std::size_t spot : step.at) add(all.at, spot);
  }
  of.open.resize(1);
  of.at = {};
  of.fused = true;
}

Recording::Part& Recorder::part(Recording::Step& step, Recording::Kind kind, std::size_t place, std::ptrdiff_t source) {
  for (Recording::Part& p : step.parts)
    if (p.kind == kind && p.place == place && p.source == source) return p;
  return step.parts.emplace_back(Recording::Part{.kind = kind, .place = place, .source = source});
}

Recording::Step& Recorder::step(int warp) {
  ++steps_;
  const auto w = static_cast<std::size_t>(warp);
  Recording::Step& made = held_[warp < 0 ? warps_.size() : w].emplace_back();
  made.launch = out_.launches.size() - 1, made.block = worker_->block, made.warp = warp;
  if (warp < 0) return made;
  made.label = warps_[w].label, made.waited = std::exchange(warps_[w].waited, {});
  return made;
}

// The warp's first segments are complete: each becomes a step.
void Recorder::emit(unsigned w, std::size_t count) {
  OfWarp& of = warps_[w];
  Recording::Step* made = nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    Segment segment = std::move(of.open.front());
    of.open.pop_front();
    const auto& [kind, what, number] = segment.key;
    if (kind == kMark) of.label = static_cast<const char*>(what) + (" " + std::to_string(number));
    if (kind == kPhase)
      of.waited.push_back({mbarrier(static_cast<const std::byte*>(what)), static_cast<std::uint64_t>(number)});
    const Key* const next = of.open.empty() ? nullptr : &of.open.front().key;
    const bool waits = next && std::get<0>(*next) == kPhase;
    if (segment.empty() && !waits) continue;
    if (full()) {
      made = nullptr;
      Recording::Step& all = rest();
      all.blocks = std::max<std::uint64_t>(all.blocks, 1);  // what is left of this one
      for (const Recording::Part& p : segment.step.parts)
        if (p.kind == Recording::Kind::read || p.kind == Recording::Kind::write)
          part(all, p.kind, p.place).bytes += p.bytes;
      continue;
    }
    if (!segment.empty() || !made || !made->waits.empty()) {
      made = &step(static_cast<int>(w));
      made->parts = std::move(segment.step.parts), made->values = std::move(segment.step.values);
      made->requests = std::move(segment.step.requests);
      made->arrivals = std::move(segment.step.arrivals), made->wgmma = std::move(segment.step.wgmma);
      made->at = std::move(segment.step.at);
    }
    if (waits && !of.open.front().step.at.empty()) add(made->at, of.open.front().step.at[0]);
    if (waits)
      made->waits = out_.launches.back().mbarriers[mbarrier(static_cast<const std::byte*>(std::get<1>(*next)))].name;
  }
  for (std::size_t& at : of.at) at -= std::min(at, count);
  if (of.open.empty()) of.fused = false;
}

// All lanes go on where the one is that has come farthest.
void Recorder::converged(unsigned w) {
  if (!wanted() || !detailed_) return;
  OfWarp& of = warps_[w];
  of.at.fill(*std::max_element(of.at.begin(), of.at.end()));
  goes_on(w);
}

void Recorder::goes_on(unsigned w) {
  if (!wanted() || !detailed_) return;
  const OfWarp& of = warps_[w];
  std::size_t complete = of.open.size();
  for (unsigned m = worker_->warps[w].exists & ~worker_->warps[w].ended; m; m &= m - 1)
    complete = std::min(complete, of.at[static_cast<std::size_t>(std::countr_zero(m))]);
  emit(w, complete);
  release();
}

void Recorder::meets(unsigned w, const Site& site, const char* waits) {
  if (!wanted() || !detailed_) return;
  const std::size_t before = steps_;
  emit(w, warps_[w].open.size());
  if (steps_ > before && !held_[w].empty()) held_[w].back().waits = waits, stands(held_[w].back(), spot(site));
  warps_[w].shown = {};
  release();
}

void Recorder::arrives(unsigned w, const std::string& barrier, const Site& site) {
  if (!wanted() || !detailed_ || full()) return;
  const std::size_t before = steps_;
  emit(w, warps_[w].open.size());
  if (steps_ == before) step(static_cast<int>(w));
  if (!held_[w].empty()) held_[w].back().waits = barrier, stands(held_[w].back(), spot(site));
  warps_[w].shown = {};
  release();
}

void Recorder::ends(unsigned w) {
  if (!wanted() || !detailed_) return;
  const std::size_t before = steps_;
  const bool was_full = full();
  emit(w, warps_[w].open.size());
  if (was_full) return;
  if (steps_ == before) step(static_cast<int>(w));
  if (!held_[w].empty()) held_[w].back().ended = true;
  release();
}

void Recorder::released() {
  if (!wanted() || !detailed_ || full()) return;
  step(-1).released = true;
  release();
}

// ---- in which order ------------------------------------------------------------------------------------------------

// What a step has waited for, and the copies that it says are there, must have been told before.
bool Recorder::may_follow(const Recording::Step& step) const {
  for (const Recording::Waited& wait : step.waited)
    if (seen_[wait.mbarrier].complete < wait.phases) return false;
  for (const Recording::Arrival& a : step.arrivals)
    if (seen_[a.mbarrier].begun < a.come) return false;
  return true;
}

// The step is told: what it does to mbarriers.
void Recorder::follows(const Recording::Step& step) {
  for (Recording::Arrival a : step.arrivals) {
    Seen& seen = seen_[a.mbarrier];
    seen.begun += a.begun - a.come, seen.bytes += a.expected - a.come;
    do {
      const unsigned now = std::min(a.count, seen.missing);
      a.count -= now, seen.missing -= now;
      if (seen.missing > 0 || seen.bytes != 0) break;
      ++seen.complete, seen.missing = seen.expected;
    } while (a.count > 0);
  }
}

void Recorder::release(bool all) {
  for (bool any = true; any;) {
    any = false;
    for (std::deque<Recording::Step>& steps : held_)
      for (; !steps.empty() && (all || may_follow(steps.front())); steps.pop_front(), any = true) {
        follows(steps.front());
        if (!out_.steps.empty() && comes_beside(steps.front(), out_.steps.back()))
          out_.steps.back().also.push_back(steps.front().warp);
        else
          out_.steps.push_back(std::move(steps.front()));
      }
  }
}

// ---- accesses ------------------------------------------------------------------------------------------------------

std::size_t Recorder::array_of(std::size_t owner) {
  if (owner >= arrays_.size()) arrays_.resize(owner + 1, -1);
  if (arrays_[owner] < 0) {
    const DeviceArray& a = memory_.arrays[owner];
    arrays_[owner] = static_cast<std::ptrdiff_t>(
        out_.array(a.of_kernel ? "heap" : a.name, a.bytes, a.untyped ? 1 : a.element_bytes, 0));
  }
  return static_cast<std::size_t>(arrays_[owner]);
}

std::size_t Recorder::place_of(std::size_t offset) {
  std::vector<Recording::Place>& chip = out_.launches.back().chip;
  if (chip.empty()) chip.push_back({"shared memory", 0, launch_.shared_bytes, 1, 0});
  std::size_t place = 0;
  while (place + 1 < chip.size() && chip[place + 1].at <= offset) ++place;
  return place;
}

void Recorder::global(std::size_t owner, std::size_t offset, unsigned bytes, Access access, Spot spot) {
  const Outside outside;
  if (!wanted()) return;
  const std::size_t array = array_of(owner);
  Recording::Step* to = detailed_ ? nullptr : &rest();
  if (detailed_) {
    Segment* in = &after_values();
    if (in->array != static_cast<std::ptrdiff_t>(array) || in->computes)
      in = &cut({is_read(access) ? kLoad : kStore, nullptr, static_cast<long>(array)});
    in->array = static_cast<std::ptrdiff_t>(array);
    to = &in->step;
    stands(*to, spot);
  }
  for (const bool writes : {false, true}) {
    if (!(writes ? is_write(access) : is_read(access))) continue;
    Recording::Part& p = part(*to, writes ? Recording::Kind::write : Recording::Kind::read, array);
    p.bytes += bytes;
    if (detailed_) add_span(p.spans, offset, offset + bytes);
  }
  if (is_read(access)) loaded_[worker_->current] = {static_cast<std::ptrdiff_t>(array), offset, offset + bytes};
  last_ = {false, array, {offset, offset + bytes}};
}

void Recorder::chip(std::size_t offset, unsigned bytes, Access access, Spot spot) {
  const Outside outside;
  if (!wanted() || !detailed_) return;
  const std::size_t place = place_of(offset);
  Segment* in = &after_values();
  if (is_read(access) && in->array >= 0 && !in->computes) in = &cut({kCompute, nullptr, 0});
  if (is_read(access)) {
    in->computes = true;
    Recording::Part& p = part(in->step, Recording::Kind::chip_read, place);
    p.bytes += bytes, add_span(p.spans, offset, offset + bytes);
  }
  if (is_write(access)) put(*in, Recording::Kind::chip_write, place, offset, bytes);
  stands(in->step, spot);
  last_ = {true, place, {offset, offset + bytes}};
}

// Bytes come to a place on chip; where from, the thread's last load tells.
void Recorder::put(Segment& in, Recording::Kind kind, std::size_t place, std::size_t offset, unsigned bytes) {
  const Loaded loaded = std::exchange(loaded_[worker_->current], {});
  Recording::Part& p = part(in.step, kind, place, loaded.array);
  p.bytes += bytes, add_span(p.spans, offset, offset + bytes);
  if (loaded.array >= 0) add_span(p.from, loaded.first, loaded.end);
}

void Recorder::copy(const Copy& copy, bool landed, const Site& site) {
  if (!wanted() || !detailed_) return;
  const auto offset = static_cast<std::size_t>(copy.to - worker_->shared);
  const std::size_t place = place_of(offset);
  if (landed) {
    Recording::Step& step = cut({kWait, nullptr, 0}).step;
    stands(step, spot(site));
    Recording::Part& p = part(step, Recording::Kind::landed, place);
    p.bytes += copy.bytes, add_span(p.spans, offset, offset + copy.bytes);
  } else {
    Segment* in = &after_values();  // zeros alone are no part of what it calculates
    if (in->computes && copy.source_bytes == 0) in = &cut({kStore, nullptr, -1});
    put(*in, Recording::Kind::copy, place, offset, copy.bytes);
    stands(in->step, spot(site));
    last_ = {true, place, {offset, offset + copy.bytes}};
  }
}

// ---- TMA, mbarriers, wgmma -----------------------------------------------------------------------------------------

// What a box has of its tensor in HBM.
Recorder::Runs Recorder::runs_of(const TensorBox& box) {
  Runs runs;
  box.for_each_run([&](const std::byte* begin, std::size_t bytes) {
    const std::size_t owner = memory_.contains(begin) ? memory_.owner(begin) : memory_.arrays.size();
    if (owner == memory_.arrays.size()) return;  // a finding follows
    const auto first = static_cast<std::uint64_t>(begin - memory_.arrays[owner].begin);
    runs.array = static_cast<std::ptrdiff_t>(array_of(owner)), runs.bytes += bytes;
    add_span(runs.spans, first, first + bytes);
  });
  return runs;
}

// The tile of a box on chip: what is of the tensor, and, of a load, the zeros beside it.
void Recorder::tile(Recording::Step& step, Recording::Kind kind, const TensorBox& box) {
  const Runs runs = runs_of(box);
  std::vector<const std::byte*> inside, all;
  box.for_each_piece(true, [&](const std::byte* at) { inside.push_back(at); });
  if (kind == Recording::Kind::copy || kind == Recording::Kind::landed)
    box.for_each_piece(false, [&](const std::byte* at) { all.push_back(at); });
  std::sort(inside.begin(), inside.end()), std::sort(all.begin(), all.end());
  std::vector<const std::byte*> zeros;
  std::set_difference(all.begin(), all.end(), inside.begin(), inside.end(), std::back_inserter(zeros));
  // A part of its own for each box: so it is known which rows lie where.
  const auto add = [&](const std::vector<const std::byte*>& pieces, std::ptrdiff_t source,
                       const Recording::Spans& from) {
    if (pieces.empty()) return;
    const std::size_t place = place_of(static_cast<std::size_t>(pieces[0] - worker_->shared));
    Recording::Part& p = step.parts.emplace_back(
        Recording::Part{.kind = kind, .place = place, .bytes = 16 * pieces.size(), .source = source, .from = from});
    for (const std::byte* at : pieces) {
      const auto offset = static_cast<std::uint64_t>(at - worker_->shared);
      add_span(p.spans, offset, offset + 16);
    }
  };
  add(inside, runs.array, runs.spans), add(zeros, -1, {});
}

// What a copy moves in HBM, in a step of the running thread; null: it is not shown step by step.
Recorder::Segment* Recorder::traffic(const TensorBox& box, bool writes) {
  const Runs runs = runs_of(box);
  const auto kind = writes ? Recording::Kind::write : Recording::Kind::read;
  const auto array = static_cast<std::size_t>(runs.array);
  if (!detailed_) {
    if (runs.bytes > 0) part(rest(), kind, array).bytes += runs.bytes;
    return nullptr;
  }
  const auto offset = static_cast<std::size_t>(box.tile() - worker_->shared);
  last_ = {true, place_of(offset), {offset, offset + box.bytes()}};
  Segment* in = &after_values();
  if (runs.bytes == 0) return in;
  if (in->array >= 0 && in->array != runs.array) in = &cut({writes ? kStore : kLoad, nullptr, runs.array});
  in->array = runs.array;
  Recording::Part& p = part(in->step, kind, array);
  p.bytes += runs.bytes, p.spans.insert(p.spans.end(), runs.spans.begin(), runs.spans.end());
  return in;
}

void Recorder::load(const TensorBox& box, const std::byte* at, const Site& site) {
  if (!wanted()) return;
  Segment* const in = traffic(box, false);
  if (!in) return;
  tile(in->step, Recording::Kind::copy, box);
  stands(in->step, spot(site));
  arrival(in->step, at).begun += static_cast<std::int64_t>(box.bytes());
}

void Recorder::store(const TensorBox& box, bool was_read, const Site& site) {
  if (!wanted()) return;
  Segment* in = nullptr;
  if (!was_read)
    in = traffic(box, true);
  else if (detailed_)
    in = &cut({kWait, nullptr, 0});
  if (!in) return;
  tile(in->step, was_read ? Recording::Kind::stored : Recording::Kind::store, box);
  stands(in->step, spot(site));
}

void Recorder::makes(const std::byte* at, unsigned arrivals) {
  if (!wanted() || !detailed_) return;
  const auto offset = static_cast<std::size_t>(at - worker_->shared);
  const std::size_t number = place_of(offset);
  const Recording::Place& place = out_.launches.back().chip[number];
  const std::string name =
      place.name + (place.bytes > 8 ? "[" + std::to_string((offset - place.at) / 8) + "]" : std::string());
  std::vector<Recording::Mbarrier>& known = out_.launches.back().mbarriers;
  const auto same = std::find_if(known.begin(), known.end(), [&](const auto& m) { return m.name == name; });
  const auto m = static_cast<std::size_t>(same - known.begin());
  if (same == known.end()) known.push_back({name, arrivals});
  seen_.resize(known.size());
  if (seen_[m].complete > 0) release(true);  // of the one that was here before
  seen_[m] = {at, arrivals, arrivals};
}

std::size_t Recorder::mbarrier(const std::byte* at) const {
  const auto known = std::find_if(seen_.begin(), seen_.end(), [&](const Seen& seen) { return seen.at == at; });
  return static_cast<std::size_t>(known - seen_.begin());
}

Recording::Arrival& Recorder::arrival(Recording::Step& step, const std::byte* at) const {
  const std::size_t m = mbarrier(at);
  if (step.arrivals.empty() || step.arrivals.back().mbarrier != m) step.arrivals.push_back({m});
  return step.arrivals.back();
}

// An arrival that expects bytes begins a step, which their copies follow.
void Recorder::arrives_at(const std::byte* at, std::uint64_t phase, bool expects, unsigned bytes, const Site& site) {
  if (!wanted() || !detailed_) return;
  Segment* in = &segment();
  if (expects && !in->empty()) in = &cut({kExpect, at, static_cast<long>(phase)});
  Recording::Arrival& a = arrival(in->step, at);
  ++a.count, a.expected += bytes;
  stands(in->step, spot(site));
}

void Recorder::waits_for(const std::byte* at, std::uint64_t phases, const Site& site) {
  if (!wanted() || !detailed_ || phases == 0) return;  // a fresh one: nothing to wait for
  warps_[worker_->current / kWarpSize].shown[worker_->current % kWarpSize] = false;
  stands(cut({kPhase, at, static_cast<long>(phases)}).step, spot(site));
  goes_on(worker_->current / kWarpSize);
}

void Recorder::brings(const TensorBox& box, const std::byte* at, const Site& site) {
  if (!wanted() || !detailed_) return;
  Recording::Step& brought = seen_[mbarrier(at)].brought;
  tile(brought, Recording::Kind::landed, box);
  arrival(brought, at).come += static_cast<std::int64_t>(box.bytes());
  stands(brought, spot(site));
}

void Recorder::completes(const std::byte* at) {
  if (!wanted() || !detailed_ || full()) return;
  Recording::Step brought = std::exchange(seen_[mbarrier(at)].brought, {});
  if (brought.parts.empty()) return;
  Recording::Step& made = step(-1);
  made.parts = std::move(brought.parts), made.arrivals = std::move(brought.arrivals);
  made.at = std::move(brought.at);
  release();
}

void Recorder::product(unsigned w, const Product& product, bool done, const Site& site) {
  if (!wanted() || !detailed_) return;
  if (!segment().step.values.empty()) meets(w, site);  // all its lanes have come to the product
  Segment& in = segment();
  stands(in.step, spot(site));
  const auto kind = done ? Recording::Kind::multiplied : Recording::Kind::product;
  for (const auto* chunks : {&product.a_chunks, &product.b_chunks})
    for (const std::byte* at : *chunks) {
      const auto offset = static_cast<std::size_t>(at - worker_->shared);
      Recording::Part& p = part(in.step, kind, place_of(offset));
      p.bytes += 16, add_span(p.spans, offset, offset + 16);
    }
  if (done) return;
  std::vector<Recording::Wgmma>& all = in.step.wgmma;
  if (all.empty() || all.back().columns != product.of.columns) all.push_back({0, product.of.columns});
  ++all.back().count;
}

// ---- words ---------------------------------------------------------------------------------------------------------

void Recorder::mark(const char* label, long value) {
  if (wanted() && detailed_) cut({kMark, label, value});
}

// Several lanes may show the same row; the last one's word counts.
void Recorder::value(const char* name, long row, float value) {
  if (!wanted() || !detailed_) return;
  std::vector<Recording::Value>& values = segment().step.values;
  const auto same = [&](const Recording::Value& v) { return v.row == row && std::strcmp(v.name, name) == 0; };
  const auto known = std::find_if(values.begin(), values.end(), same);
  if (known == values.end())
    values.push_back({name, row, value});
  else
    known->value = value;
  warps_[worker_->current / kWarpSize].shown[worker_->current % kWarpSize] = true;
}

void Recorder::request(unsigned w, Access access, unsigned bytes,
                       const std::array<std::uintptr_t, kWarpSize>& addresses, std::uint64_t wavefronts,
                       std::uint64_t ideal) {
  if (!wanted() || !detailed_) return;
  Recording::Request seen{0, bytes, static_cast<unsigned>(wavefronts), static_cast<unsigned>(ideal), is_write(access),
                          {}};
  for (unsigned lane = kWarpSize; lane-- > 0;) {
    seen.lanes[lane] = -1;
    if (!addresses[lane]) continue;
    seen.lanes[lane] = reinterpret_cast<const std::byte*>(addresses[lane]) - worker_->shared;
    seen.place = place_of(static_cast<std::size_t>(seen.lanes[lane]));
  }
  // It belongs to the first step that reads or writes there; of several the one that takes longest is kept.
  for (Segment& segment : warps_[w].open)
    for (const Recording::Part& p : segment.step.parts) {
      if (p.place != seen.place || p.kind != (seen.write ? Recording::Kind::chip_write : Recording::Kind::chip_read))
        continue;
      for (Recording::Request& known : segment.step.requests)
        if (known.place == seen.place && known.write == seen.write) {
          if (known.wavefronts < seen.wavefronts) known = seen;
          return;
        }
      segment.step.requests.push_back(seen);
      return;
    }
}

}  // namespace flash::simt
