// recorder.cpp: see recorder.hpp. Bytes are added up access by access, apart from the counters, so that the two can be
// compared. Where data on chip come from is what the thread loaded last and had not stored yet.
// Use: see recorder.hpp.
#include "sim/report/recorder.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "sim/core/code_names.hpp"
#include "sim/core/tensor_map.hpp"
#include "sim/core/variables.hpp"
#include "sim/core/warpgroup.hpp"
#include "sim/report/lines.hpp"

namespace flash::simt {
namespace {

constexpr std::size_t kMostOpen = 24;  // segments of a warp between two meetings

enum : int { kBegin, kMark, kLoad, kStore, kCompute, kWait, kValue, kExpect, kPhase, kMake };

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

}  // namespace

Recorder::Recorder(LaunchRecorder& all, const Worker& worker) : all_(all), out_(all.out_), worker_(&worker) {}

void Recorder::stands(Recording::Step& step, Site site) {
  all_.stands(step, spot(site));
}

void Recorder::shared_struct(Members members) {
  std::vector<Recording::Place>& chip = all_.told().chip;
  if (!chip.empty() || !members) return;
  std::array<Member, kMostMembers> all;
  const std::size_t count = members(all.data());
  for (std::size_t i = 0; i < count; ++i)
    chip.push_back({member_name(all[i]), all[i].at, all[i].bytes, all[i].element_bytes, all[i].columns});
}

// ---- blocks --------------------------------------------------------------------------------------------------------

void Recorder::begin_block() {
  warps_.assign(worker_->warps.size(), {});
  held_.assign(worker_->warps.size() + 1, {});
  loaded_.assign(worker_->threads.size(), {});
  seen_.assign(all_.told().mbarriers.size(), {});
  ++all_.running_;
  detailed_ = !all_.full(), in_rest_ = false;
  if (!detailed_ && wanted()) rest();
}

// The step of all that is not shown step by step.
Recording::Step& Recorder::rest() {
  all_.release(true);
  Recording::Step* last = &out_.steps.back();
  if (last->blocks == 0 || last->launch + 1 != out_.launches.size())
    last = &(step(-1), all_.release(true), out_.steps.back());
  if (!std::exchange(in_rest_, true)) ++last->blocks;
  return *last;
}

// Steps that wait for others do so until the last block of the cluster has ended.
void Recorder::end_block(bool) {
  for (unsigned w = 0; w < warps_.size(); ++w) converge(w);  // what a stopped block left
  if (wanted()) emit_all();
  all_.release(--all_.running_ == 0);
  if (all_.found_by_ != worker_) return;
  // The report shows two threads farther apart where there are such, and their remedy holds for the first two as well.
  const RawFinding& now = worker_->findings.all().front();
  all_.first_->remedy = now.remedy, all_.first_->same_value = now.same_value;
}

// Nothing is recorded after a finding, which the last access or meeting made.
bool Recorder::wanted() {
  for (Recorder& block : all_.blocks_)
    if (out_.finding.empty() && !block.worker_->findings.all().empty())
      block.found(block.worker_->findings.all().front());
  return out_.finding.empty();
}

void Recorder::found(const RawFinding& raw) {
  // What happened before; of the warp that noticed, what its lanes did until the one that noticed was there.
  const unsigned thread = raw.sides.empty() ? 0 : raw.sides[0].thread;
  const unsigned noticed = raw.sides.empty() || raw.sides[0].block == worker_->block ? thread / kWarpSize : kNoWarp;
  for (Recorder& block : all_.blocks_) block.emit_all(&block == this ? noticed : kNoWarp);
  if (noticed != kNoWarp && !warps_[noticed].open.empty()) emit(noticed, warps_[noticed].at[thread % kWarpSize] + 1);
  all_.release(true);
  all_.first_ = raw, all_.found_by_ = worker_;
  Recording::Finding finding{raw.kind, ""};
  for (const FindingSide& side : raw.sides) finding.threads.push_back({side.block, side.thread});
  const auto of_access = {"race", "lockstep assumed", "asynchronous copy", "uninitialised"};
  if (std::find(of_access.begin(), of_access.end(), raw.kind) != of_access.end()) {
    finding.on_chip = last_.on_chip, finding.place = static_cast<std::ptrdiff_t>(last_.place);
    finding.rank = last_.rank, finding.span = last_.span;
  }
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
      Recording::Part& to = part(all, from.kind, from.place, from.rank, from.source);
      to.bytes += from.bytes;
      to.spans.insert(to.spans.end(), from.spans.begin(), from.spans.end());
      to.from.insert(to.from.end(), from.from.begin(), from.from.end());
    }
    all.values.insert(all.values.end(), step.values.begin(), step.values.end());
    all.arrivals.insert(all.arrivals.end(), step.arrivals.begin(), step.arrivals.end());
    all.made.insert(all.made.end(), step.made.begin(), step.made.end());
    all.wgmma.insert(all.wgmma.end(), step.wgmma.begin(), step.wgmma.end());
    for (const std::size_t spot : step.at) add_once(all.at, spot);
  }
  of.open.resize(1);
  of.at = {};
  of.fused = true;
}

Recording::Part& Recorder::part(Recording::Step& step, Recording::Kind kind, std::size_t place, unsigned rank,
                                std::ptrdiff_t source) {
  for (Recording::Part& p : step.parts)
    if (p.kind == kind && p.place == place && p.rank == rank && p.source == source) return p;
  return step.parts.emplace_back(Recording::Part{.kind = kind, .place = place, .source = source, .rank = rank});
}

Recording::Step& Recorder::step(int warp) {
  ++all_.steps_;
  const auto w = static_cast<std::size_t>(warp);
  Recording::Step& made = held_[warp < 0 ? warps_.size() : w].emplace_back();
  made.launch = out_.launches.size() - 1, made.block = worker_->block, made.rank = worker_->rank, made.warp = warp;
  if (warp < 0) return made;
  made.label = warps_[w].label, made.waited = std::exchange(warps_[w].waited, {});
  return made;
}

void Recorder::emit_all(unsigned but) {
  for (unsigned w = 0; w < warps_.size(); ++w)
    if (w != but) emit(w, warps_[w].open.size());
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
    if (kind == kPhase) {
      const auto [rank, m] = barrier(what);
      of.waited.push_back({m, rank, static_cast<std::uint64_t>(number)});
    }
    const Key* const next = of.open.empty() ? nullptr : &of.open.front().key;
    const bool waits = next && std::get<0>(*next) == kPhase;
    if (segment.empty() && !waits) continue;
    if (all_.full()) {
      made = nullptr;
      Recording::Step& all = rest();
      for (const Recording::Part& p : segment.step.parts)
        if (p.kind == Recording::Kind::read || p.kind == Recording::Kind::write)
          part(all, p.kind, p.place).bytes += p.bytes;
      continue;
    }
    if (!segment.empty() || !made || !made->waits.empty()) {
      made = &step(static_cast<int>(w));
      made->parts = std::move(segment.step.parts), made->values = std::move(segment.step.values);
      made->requests = std::move(segment.step.requests);
      made->arrivals = std::move(segment.step.arrivals), made->made = std::move(segment.step.made);
      made->wgmma = std::move(segment.step.wgmma);
      made->at = std::move(segment.step.at);
    }
    if (waits && !of.open.front().step.at.empty()) add_once(made->at, of.open.front().step.at[0]);
    if (waits) made->waits = all_.told().mbarriers[barrier(std::get<1>(*next)).number].name;
  }
  for (std::size_t& at : of.at) at -= std::min(at, count);
  if (of.open.empty()) of.fused = false;
}

// ---- warps ---------------------------------------------------------------------------------------------------------

// All lanes go on where the one is that has come farthest.
void Recorder::converge(unsigned w) {
  if (!wanted() || !detailed_) return;
  OfWarp& of = warps_[w];
  of.at.fill(*std::max_element(of.at.begin(), of.at.end()));
  goes_on(w);
}

void Recorder::thread_ends() {
  const unsigned w = worker_->current / kWarpSize;
  const Warp& warp = worker_->warps[w];
  if ((warp.ended | warp.at_barrier) != warp.exists) goes_on(w);  // else the warp has met
}

// A lane has come to a wait, or has exited.
void Recorder::goes_on(unsigned w) {
  if (!wanted() || !detailed_) return;
  const OfWarp& of = warps_[w];
  std::size_t complete = of.open.size();
  for (unsigned m = worker_->warps[w].exists & ~worker_->warps[w].ended; m; m &= m - 1)
    complete = std::min(complete, of.at[static_cast<std::size_t>(std::countr_zero(m))]);
  emit(w, complete);
  all_.release();
}

// All lanes are at an instruction of the warp, which divides steps; what it is that they wait for, if anything.
void Recorder::meets(unsigned w, Site site, const char* waits) {
  if (!wanted() || !detailed_) return;
  const std::size_t before = all_.steps_;
  emit(w, warps_[w].open.size());
  if (all_.steps_ > before && !held_[w].empty()) held_[w].back().waits = waits, stands(held_[w].back(), site);
  warps_[w].shown = {};
  all_.release();
}

void Recorder::warp_waits(unsigned w, const char* instruction, Site site) {
  meets(w, site, instruction);
}

// All lanes that have not exited are at the barrier.
void Recorder::comes_to(unsigned w, const std::string& barrier, Site site) {
  if (!wanted() || !detailed_ || all_.full()) return;
  const std::size_t before = all_.steps_;
  emit(w, warps_[w].open.size());
  if (all_.steps_ == before) step(static_cast<int>(w));
  if (!held_[w].empty()) held_[w].back().waits = barrier, stands(held_[w].back(), site);
  warps_[w].shown = {};
  all_.release();
}

void Recorder::warp_at_barrier(unsigned w, Site site) {
  comes_to(w, site_of(site), site);
}

void Recorder::warp_at_named_barrier(unsigned w, const char* instruction, int barrier, bool waits, Site site) {
  waits ? comes_to(w, instruction + (" " + std::to_string(barrier)), site) : meets(w, site);
}

void Recorder::warp_ends(unsigned w) {
  if (!wanted() || !detailed_) return;
  const std::size_t before = all_.steps_;
  const bool was_full = all_.full();
  emit(w, warps_[w].open.size());
  if (was_full) return;
  if (all_.steps_ == before) step(static_cast<int>(w));
  if (!held_[w].empty()) held_[w].back().ended = true;
  all_.release();
}

void Recorder::block_barrier(bool, Site) {
  if (!wanted() || !detailed_ || all_.full()) return;
  step(-1).released = true;
  all_.release();
}

// ---- accesses ------------------------------------------------------------------------------------------------------

void Recorder::global_access(std::size_t owner, std::size_t offset, unsigned bytes, Access access, Spot spot) {
  if (!wanted()) return;
  const std::size_t array = all_.array_of(owner);
  Recording::Step* to = detailed_ ? nullptr : &rest();
  if (detailed_) {
    Segment* in = &after_values();
    if (in->array != static_cast<std::ptrdiff_t>(array) || in->computes)
      in = &cut({is_read(access) ? kLoad : kStore, nullptr, static_cast<long>(array)});
    in->array = static_cast<std::ptrdiff_t>(array);
    to = &in->step;
    all_.stands(*to, spot);
  }
  for (const bool writes : {false, true}) {
    if (!(writes ? is_write(access) : is_read(access))) continue;
    Recording::Part& p = part(*to, writes ? Recording::Kind::write : Recording::Kind::read, array);
    p.bytes += bytes;
    if (detailed_) add_span(p.spans, offset, offset + bytes);
  }
  if (is_read(access)) loaded_[worker_->current] = {static_cast<std::ptrdiff_t>(array), offset, offset + bytes};
  last_ = {false, 0, array, {offset, offset + bytes}};
}

void Recorder::shared_access(unsigned rank, std::size_t offset, unsigned bytes, Access access, Spot spot) {
  if (!wanted() || !detailed_) return;
  const std::size_t place = all_.place_of(offset);
  Segment* in = &after_values();
  if (is_read(access) && in->array >= 0 && !in->computes) in = &cut({kCompute, nullptr, 0});
  if (is_read(access)) {
    in->computes = true;
    Recording::Part& p = part(in->step, Recording::Kind::chip_read, place, rank);
    p.bytes += bytes, add_span(p.spans, offset, offset + bytes);
  }
  if (is_write(access)) put(*in, Recording::Kind::chip_write, place, rank, offset, bytes);
  all_.stands(in->step, spot);
  last_ = {true, rank, place, {offset, offset + bytes}};
}

// Bytes come to a place on chip; where from, the thread's last load tells.
void Recorder::put(Segment& in, Recording::Kind kind, std::size_t place, unsigned rank, std::size_t offset,
                   unsigned bytes) {
  const Loaded loaded = std::exchange(loaded_[worker_->current], {});
  Recording::Part& p = part(in.step, kind, place, rank, loaded.array);
  p.bytes += bytes, add_span(p.spans, offset, offset + bytes);
  if (loaded.array >= 0) add_span(p.from, loaded.first, loaded.end);
}

void Recorder::copy_begins(const Copy& copy) {
  if (!wanted() || !detailed_) return;
  const auto offset = static_cast<std::size_t>(copy.to - worker_->shared);
  const std::size_t place = all_.place_of(offset);
  Segment* in = &after_values();  // zeros alone are no part of what it calculates
  if (in->computes && copy.source_bytes == 0) in = &cut({kStore, nullptr, -1});
  put(*in, Recording::Kind::copy, place, worker_->rank, offset, copy.bytes);
  stands(in->step, copy.site);
  last_ = {true, worker_->rank, place, {offset, offset + copy.bytes}};
}

void Recorder::copy_ends(const Copy& copy, Site wait) {
  if (!wanted() || !detailed_) return;
  const auto offset = static_cast<std::size_t>(copy.to - worker_->shared);
  Recording::Step& step = cut({kWait, nullptr, 0}).step;
  stands(step, wait);
  Recording::Part& p = part(step, Recording::Kind::landed, all_.place_of(offset), worker_->rank);
  p.bytes += copy.bytes, add_span(p.spans, offset, offset + copy.bytes);
}

// ---- TMA, mbarriers, wgmma -----------------------------------------------------------------------------------------

Recorder::OnChip Recorder::on_chip(const void* address) const {
  const Worker* const near = worker_->cluster ? worker_->cluster->nearest_owner(address) : nullptr;
  const Worker& owner = near ? *near : *worker_;
  return {owner.rank, static_cast<std::size_t>(static_cast<const std::byte*>(address) - owner.shared)};
}

// What a box has of its tensor in HBM; of bytes that another block sends, what they are on its chip.
Recorder::Runs Recorder::runs_of(const TensorBox& box) {
  const DeviceMemory& memory = all_.memory_;
  Runs runs;
  box.for_each_run([&](const std::byte* begin, std::size_t bytes) {
    if (worker_->cluster && worker_->cluster->owner(begin)) {
      const auto [rank, offset] = on_chip(begin);
      runs.array = static_cast<std::ptrdiff_t>(all_.place_of(offset)), runs.rank = static_cast<int>(rank);
      return add_span(runs.spans, offset, offset + bytes);
    }
    const std::size_t owner = memory.contains(begin) ? memory.owner(begin) : memory.arrays.size();
    if (owner == memory.arrays.size()) return;  // a finding follows
    const auto first = static_cast<std::uint64_t>(begin - memory.arrays[owner].begin);
    runs.array = static_cast<std::ptrdiff_t>(all_.array_of(owner)), runs.bytes += bytes;
    add_span(runs.spans, first, first + bytes);
  });
  return runs;
}

// The tile of a box on chip: what is of the tensor, and, of a load, the zeros beside it.
void Recorder::tile(Recording::Step& step, Recording::Kind kind, const TensorBox& box, bool adds) {
  const Runs runs = runs_of(box);
  std::vector<const std::byte*> inside, all;
  box.for_each_piece(true, [&](const std::byte* at) { inside.push_back(at); });
  if (kind == Recording::Kind::copy || kind == Recording::Kind::landed)
    box.for_each_piece(false, [&](const std::byte* at) { all.push_back(at); });
  std::sort(inside.begin(), inside.end()), std::sort(all.begin(), all.end());
  std::vector<const std::byte*> zeros;
  std::set_difference(all.begin(), all.end(), inside.begin(), inside.end(), std::back_inserter(zeros));
  // A part of its own for each box: so it is known which rows lie where.
  const auto add = [&](const std::vector<const std::byte*>& pieces, const Runs& from) {
    if (pieces.empty()) return;
    const auto [rank, first] = on_chip(pieces[0]);
    Recording::Part& p = step.parts.emplace_back(Recording::Part{.kind = kind,
                                                                 .place = all_.place_of(first),
                                                                 .bytes = 16 * pieces.size(),
                                                                 .source = from.array,
                                                                 .from = from.spans,
                                                                 .rank = rank,
                                                                 .from_rank = from.rank,
                                                                 .adds = adds});
    for (const std::byte* at : pieces) {
      const std::uint64_t offset = first + static_cast<std::uint64_t>(at - pieces[0]);
      add_span(p.spans, offset, offset + 16);
    }
  };
  add(inside, runs), add(zeros, {});
}

// What a copy moves in HBM, in a step of the running thread; null: it is not shown step by step.
Recorder::Segment* Recorder::traffic(const TensorBox& box, bool writes, bool counted) {
  const Runs runs = counted ? Runs{} : runs_of(box);
  const auto kind = writes ? Recording::Kind::write : Recording::Kind::read;
  const auto array = static_cast<std::size_t>(runs.array);
  if (!detailed_) {
    if (runs.bytes > 0) part(rest(), kind, array).bytes += runs.bytes;
    return nullptr;
  }
  const auto [rank, offset] = on_chip(box.tile());
  last_ = {true, rank, all_.place_of(offset), {offset, offset + box.bytes()}};
  Segment* in = &after_values();
  if (runs.bytes == 0) return in;
  if (in->array >= 0 && in->array != runs.array) in = &cut({writes ? kStore : kLoad, nullptr, runs.array});
  in->array = runs.array;
  Recording::Part& p = part(in->step, kind, array);
  p.bytes += runs.bytes, p.spans.insert(p.spans.end(), runs.spans.begin(), runs.spans.end());
  return in;
}

void Recorder::load_begins(const TensorBox& box, bool counted, const void* at, Site site) {
  if (!wanted()) return;
  Segment* const in = traffic(box, false, counted);
  if (!in) return;
  tile(in->step, Recording::Kind::copy, box);
  stands(in->step, site);
  arrival(in->step, at).begun += static_cast<std::int64_t>(box.bytes());
}

void Recorder::store_begins(const TensorBox& box, bool adds, Site site) {
  if (!wanted()) return;
  Segment* const in = traffic(box, true);
  if (!in) return;
  tile(in->step, Recording::Kind::store, box, adds);
  stands(in->step, site);
}

void Recorder::store_was_read(const TensorBox& box) {
  if (wanted() && detailed_) tile(cut({kWait, nullptr, 0}).step, Recording::Kind::stored, box);
}

// From its first making on the block has it; a later one is told of, as its end is.
void Recorder::mbarrier_begins(const void* at, unsigned arrivals, Site site) {
  if (!wanted() || !detailed_) return;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(at) - worker_->shared);
  const Recording::Place& place = all_.told().chip[all_.place_of(offset)];
  const std::string name =
      place.name + (place.bytes > 8 ? "[" + std::to_string((offset - place.at) / 8) + "]" : std::string());
  const std::size_t m = all_.mbarrier(name, arrivals, false);
  if (m >= seen_.size() || !seen_[m].at) return knows(m, at, arrivals);
  remakes(m, arrivals, site);
}

void Recorder::mbarrier_ends(const void* at, Site site) {
  if (!wanted() || !detailed_) return;
  remakes(barrier(at).number, 0, site);
}

void Recorder::remakes(std::size_t m, unsigned arrivals, Site site) {
  Segment* in = &segment();
  if (!in->empty()) in = &cut({kMake, nullptr, 0});
  in->step.made.push_back({m, arrivals});
  stands(in->step, site);
}

void Recorder::knows(std::size_t m, const void* at, unsigned arrivals) {
  if (m >= seen_.size()) seen_.resize(m + 1);
  seen_[m] = {at, arrivals, arrivals};
}

// An mbarrier, or the cluster's barrier; nothing else.
std::optional<Recorder::Barrier> Recorder::known(const void* at) const {
  for (const Recorder& block : all_.blocks_)
    for (std::size_t m = 0; m < block.seen_.size(); ++m)
      if (block.seen_[m].at == at) return Barrier{block.worker_->rank, m};
  return {};
}

Recorder::Barrier Recorder::barrier(const void* at) const {
  return known(at).value_or(Barrier{0, 0});  // there is none: a finding follows
}

Recording::Arrival& Recorder::arrival(Recording::Step& step, const void* at) const {
  const auto [rank, m] = barrier(at);
  if (step.arrivals.empty() || step.arrivals.back().mbarrier != m || step.arrivals.back().rank != rank)
    step.arrivals.push_back({m, rank});
  return step.arrivals.back();
}

// An arrival that expects bytes begins a step, which their copies follow.
void Recorder::arrives(const void* at, std::uint64_t phase, bool expects, unsigned bytes, Site site) {
  if (!wanted() || !detailed_) return;
  Segment* in = &segment();
  if (expects && !in->empty()) in = &cut({kExpect, at, static_cast<long>(phase)});
  Recording::Arrival& a = arrival(in->step, at);
  ++a.count, a.expected += bytes;
  stands(in->step, site);
}

// The barrier is one of the block of rank 0.
void Recorder::arrives_at_cluster(const void* at, Site site) {
  if (!wanted() || !detailed_) return;
  const unsigned blocks = worker_->cluster ? worker_->cluster->size() : 1;
  const std::size_t m = all_.mbarrier("barrier.cluster", blocks * all_.launch_.threads(), true);
  Recorder& first = all_.blocks_[0];
  if (m >= first.seen_.size() || !first.seen_[m].at) first.knows(m, at, 0);
  Recording::Step& step = segment().step;
  Recording::Arrival& a = arrival(step, at);
  ++a.count, ++a.begun, ++first.seen_[m].arrived;
  stands(step, site);
}

// What copies have brought to an mbarrier others may know of from here on.
void Recorder::completes(const void* object) {
  const std::optional<Barrier> barrier = known(object);
  if (!barrier || !wanted() || !detailed_ || all_.full()) return;
  const bool of_cluster = all_.told().mbarriers[barrier->number].of_cluster;
  of_cluster ? cluster_completes(barrier->number) : mbarrier_completes(barrier->number);
}

void Recorder::cluster_completes(std::size_t m) {
  Recording::Step& made = step(-1);
  made.released = true;
  made.arrivals.push_back({.mbarrier = m, .come = std::exchange(all_.blocks_[0].seen_[m].arrived, 0)});
  all_.release();
}

void Recorder::waits_for(const void* at, std::uint64_t phases, Site site) {
  if (!wanted() || !detailed_ || phases == 0) return;  // a fresh one: nothing to wait for
  warps_[worker_->current / kWarpSize].shown[worker_->current % kWarpSize] = false;
  stands(cut({kPhase, at, static_cast<long>(phases)}).step, site);
  goes_on(worker_->current / kWarpSize);
}

void Recorder::load_ends(const TensorBox& box, const void* at, Site site) {
  if (!wanted() || !detailed_) return;
  Recording::Step& brought = seen_[barrier(at).number].brought;
  tile(brought, Recording::Kind::landed, box);
  arrival(brought, at).come += static_cast<std::int64_t>(box.bytes());
  stands(brought, site);
}

void Recorder::mbarrier_completes(std::size_t m) {
  Recording::Step brought = std::exchange(seen_[m].brought, {});
  if (brought.parts.empty()) return;
  Recording::Step& made = step(-1);
  made.parts = std::move(brought.parts), made.arrivals = std::move(brought.arrivals);
  made.at = std::move(brought.at);
  all_.release();
}

void Recorder::product_issued(unsigned w, const Product& issued, Site site) {
  product(w, issued, false, site);
}

void Recorder::product_waited_for(unsigned w, const Product& done, Site wait) {
  product(w, done, true, wait);
}

void Recorder::product(unsigned w, const Product& product, bool done, Site site) {
  if (!wanted() || !detailed_) return;
  if (!segment().step.values.empty()) meets(w, site);  // all its lanes have come to the product
  Segment& in = segment();
  stands(in.step, site);
  const auto kind = done ? Recording::Kind::multiplied : Recording::Kind::product;
  for (const auto* chunks : {&product.a_chunks, &product.b_chunks})
    for (const std::byte* at : *chunks) {
      const auto offset = static_cast<std::size_t>(at - worker_->shared);
      Recording::Part& p = part(in.step, kind, all_.place_of(offset), worker_->rank);
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

void Recorder::request(const SharedRequest& request) {
  if (!wanted() || !detailed_) return;
  Recording::Request seen{0,
                          request.bytes,
                          static_cast<unsigned>(request.wavefronts),
                          static_cast<unsigned>(request.ideal),
                          is_write(request.access),
                          {}};
  for (unsigned lane = kWarpSize; lane-- > 0;) {
    seen.lanes[lane] = -1;
    if (!request.addresses[lane]) continue;
    seen.lanes[lane] = reinterpret_cast<const std::byte*>(request.addresses[lane]) - worker_->shared;
    seen.place = all_.place_of(static_cast<std::size_t>(seen.lanes[lane]));
  }
  // It belongs to the first step that reads or writes there; of several the one that takes longest is kept.
  for (Segment& segment : warps_[request.warp].open)
    for (const Recording::Part& p : segment.step.parts) {
      if (p.place != seen.place || p.rank != worker_->rank ||
          p.kind != (seen.write ? Recording::Kind::chip_write : Recording::Kind::chip_read))
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
