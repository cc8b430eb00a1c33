// recording_test.cpp: a recording is the run: its bytes are the ledger's, its numbers those of the result, its steps
// the same under each schedule, and nothing follows a finding. What the page shows of it: player_test.sh.
// ctest -R "^recording"
#include "sim/report/recording.hpp"

#include <doctest/doctest.h>
#include <cstdlib>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "phases/30-ring/shares.hpp"
#include "phases/app/player.hpp"
#include "phases/interface/phase.hpp"
#include "phases/pages/example.hpp"
#include "sim/core/members.hpp"
#include "sim/report/lines.hpp"
#include "tests/recording.hpp"

using namespace flash;
using Kind = Recording::Kind;

namespace {

struct Recorded {
  Recording recording;
  Run run;
  std::vector<float> o, lse;
};

template <class T>
Recorded record_as(const Phase& phase, std::int64_t N, Mask causal, MachineOptions machine, bool wanted) {
  const std::int64_t D = phase.forward->features.tensor_cores ? 64 : 32;
  Rounded<T> inputs(random_example(N, D));
  Options options{.mask = causal};
  if (phase.forward->features.tensor_maps()) options.block_k = 64;
  for (const Blocks b : phase.forward->features.blocks)  // the last ones that there are
    if (phase.forward->features.has(static_cast<int>(D), b) && (!options.block_k || b.Bc == options.block_k))
      options.block_q = b.Br;
  Recorded r;
  if (wanted) machine.recording = &r.recording;
  auto p = inputs.problem(options);
  if (!phase.forward->features.meets(Demand::Lse)) p.lse = nullptr;
  r.run = forward(phase, p, phase.kernel() ? Where::Checked : Where::Sim, machine);
  for (std::size_t i = 0; i < inputs.o.size(); ++i) r.o.push_back(to_float(inputs.o.data()[i]));
  r.lse = inputs.lse;
  return r;
}

Recorded record(const Phase& phase, std::int64_t N, Mask causal = Mask::none(), const MachineOptions& machine = {},
                bool wanted = true) {
  return phase.forward->features.types.contains(Type::Float32) ? record_as<float>(phase, N, causal, machine, wanted)
                                                               : record_as<half>(phase, N, causal, machine, wanted);
}

// Array by array, those that nothing happened to left out.
using Bytes = std::map<std::string, std::pair<std::uint64_t, std::uint64_t>>;
Bytes bytes(const std::vector<ArrayTraffic>& arrays) {
  Bytes all;
  for (const ArrayTraffic& a : arrays)
    if (a.read_bytes + a.written_bytes + a.reduced_bytes > 0)
      all[a.name] = {a.read_bytes, a.written_bytes + a.reduced_bytes};
  return all;
}
Bytes bytes(const Recording& r) {
  return bytes(r.traffic(r.steps.size()));
}

std::uint64_t sum(const Recording& r, Kind kind) {
  std::uint64_t total = 0;
  for (const Recording::Step& step : r.steps)
    for (const Recording::Part& part : step.parts)
      if (part.kind == kind) total += part.bytes;
  return total;
}

// A CPU phase in small tiles.
Recording tiled(const char* phase) {
  Recording r;
  Example example = random_example(41, 32);
  forward(find_phase(phase), example.problem({.block_q = 16, .block_k = 8}), Where::Sim, {.recording = &r});
  return r;
}

// So many rows that there are several Q tiles, and more K/V tiles than stages where there are few.
std::int64_t rows_of(const Phase& phase) {
  return phase.forward->features.tensor_maps() ? 150 : 41;
}

std::vector<int> warps_of(const Recording::Step& step) {
  std::vector<int> warps(step.also);
  if (step.warp >= 0) warps.push_back(step.warp);
  return warps;
}

// Blocks that draw their Q tiles: which one draws which is the schedule's affair.
bool draws(const Recording& r) {
  const auto& chip = r.launches[0].chip;
  return std::any_of(chip.begin(), chip.end(), [](const Recording::Place& place) { return place.name == "mail.work"; });
}

// The last number of this name that each row showed.
std::map<long, float> last(const Recording& r, const char* name) {
  std::map<long, float> all;
  for (const Recording::Step& step : r.steps)
    for (const Recording::Value& v : step.values)
      if (std::strcmp(v.name, name) == 0) all[v.row] = v.value;
  return all;
}

// What each warp of each block does, in its own words: what a schedule decides is left out.
using ByWarp = std::map<std::pair<std::uint64_t, std::string>, std::string>;
ByWarp by_warp(const Recording& r) {
  ByWarp all;
  for (Recording::Step step : r.steps) {
    Recording one;
    std::vector<std::string> whose;
    for (const int warp : warps_of(step)) whose.push_back(std::to_string(warp));
    const auto& mbarriers = r.launches[step.launch].mbarriers;
    // TMA's steps: in which order barriers complete is the schedule's affair, too.
    if (whose.empty()) whose = {step.arrivals.empty() ? "all" : mbarriers[step.arrivals[0].mbarrier].name};
    // Of warps that come to the cluster's barrier together one step has the sum.
    for (Recording::Arrival& a : step.arrivals)
      if (mbarriers[a.mbarrier].of_cluster) a.count /= static_cast<unsigned>(whose.size());
    // So are the numbers of mbarriers: here their names count.
    const auto by_name = [&](std::size_t m) {
      return static_cast<std::size_t>(std::count_if(mbarriers.begin(), mbarriers.end(),
                                                    [&](const auto& other) { return other.name < mbarriers[m].name; }));
    };
    for (Recording::Arrival& a : step.arrivals) a.mbarrier = by_name(a.mbarrier);
    for (Recording::Waited& wait : step.waited) wait.mbarrier = by_name(wait.mbarrier);
    for (Recording::Made& made : step.made) made.mbarrier = by_name(made.mbarrier);
    step.warp = 0, step.also.clear();
    step.requests.clear();  // of equally slow ones the first is shown
    // In which order the arrays came into being, and the parts of a step, is the schedule's affair.
    one.arrays = r.arrays;
    std::vector<std::string> parts;
    for (Recording::Part part : step.parts) {
      std::string names;
      if (part.kind == Kind::read || part.kind == Kind::write) names = one.arrays[std::exchange(part.place, 0)].name;
      if (part.source >= 0 && part.from_rank < 0)
        names += " " + one.arrays[static_cast<std::size_t>(std::exchange(part.source, 0))].name;
      one.steps = {{.parts = {part}}};
      parts.push_back(names + to_json(one).substr(to_json(one).find("\"steps\"")) + "\n");
    }
    std::sort(parts.begin(), parts.end());
    std::string text;
    for (const std::string& part : parts) text += part;
    step.parts.clear();
    one.steps = {step};
    text += to_json(one).substr(to_json(one).find("\"steps\""));
    for (const std::size_t at : step.at) text += r.lines[at].file + ":" + std::to_string(r.lines[at].number) + "\n";
    for (const std::string& who : whose) all[{step.block, who}] += text;
  }
  return all;
}
const MachineOptions kSchedules[] = {{.order = Order::forward},
                                     {.order = Order::reverse, .completion = Completion::eager},
                                     {.order = Order::random, .seed = 3, .completion = Completion::random}};

// Plays what the steps do to mbarriers and to the cluster's barrier, and what is under way: a wait is for phases that
// are complete, no phase has more arrivals than it expects, nothing ends that has not begun. How many waits there were.
std::uint64_t waits_played(const Recording& r) {
  struct Barrier {
    unsigned expected, missing = expected;
    std::int64_t bytes = 0;
    std::uint64_t complete = 0;
  };
  std::map<std::pair<unsigned, std::size_t>, Barrier> barriers;  // by rank and number
  std::uint64_t cluster = ~std::uint64_t{0}, waits = 0;
  std::map<std::tuple<Kind, unsigned, std::size_t>, std::int64_t> under_way;  // bytes
  for (const Recording::Step& step : r.steps) {
    const Recording::Launch& launch = r.launches[step.launch];
    if (std::exchange(cluster, step.block / launch.cluster[0]) != step.block / launch.cluster[0]) {
      barriers.clear();
      for (unsigned rank = 0; rank < launch.cluster[0]; ++rank)
        for (std::size_t m = 0; m < launch.mbarriers.size(); ++m) barriers[{rank, m}] = {launch.mbarriers[m].arrivals};
    }
    for (const Recording::Waited& wait : step.waited) {
      CHECK(barriers[{wait.rank, wait.mbarrier}].complete >= wait.phases);
      ++waits;
    }
    for (const Recording::Made& made : step.made) barriers[{step.rank, made.mbarrier}] = {made.arrivals};
    for (const Recording::Arrival& a : step.arrivals) {
      Barrier& barrier = barriers[{a.rank, a.mbarrier}];
      CHECK(a.count <= barrier.missing);
      barrier.missing -= a.count;
      if (launch.mbarriers[a.mbarrier].of_cluster) {
        CHECK(a.rank == 0);
        if (!step.released) continue;
        CHECK(a.come == barrier.expected - barrier.missing);
      } else {
        barrier.bytes += a.expected - a.come;
        if (barrier.missing > 0 || barrier.bytes != 0) continue;
      }
      barrier.missing = barrier.expected, ++barrier.complete;
    }
    for (const Recording::Part& part : step.parts)
      for (const auto& [begins, ends] :
           {std::pair{Kind::copy, Kind::landed}, {Kind::product, Kind::multiplied}, {Kind::store, Kind::stored}}) {
        if (part.kind != begins && part.kind != ends) continue;
        std::int64_t& bytes = under_way[{begins, part.rank, part.place}];
        bytes += (part.kind == begins ? 1 : -1) * static_cast<std::int64_t>(part.bytes);
        CHECK(bytes >= 0);
      }
  }
  for (const auto& [what, bytes] : under_way) CHECK(bytes == 0);
  return waits;
}

Recording recorded(const char* cluster_kernel, int blocks, const MachineOptions& machine = {}) {
  Recording r;
  MachineOptions options = machine;
  options.recording = &r;
  on_checked::run_cluster_kernel(cluster_kernel, blocks, options);
  return r;
}

}  // namespace

TEST_CASE("every phase: at the last step the bytes are the ledger's, and the result is that of an ordinary run") {
  for (const Phase* phase : all_phases()) {
    if (!phase->forward->features.records) continue;
    for (const Mask causal : {Mask::none(), Mask::top_left()}) {
      if (causal != Mask::none() && !phase->forward->features.meets(Demand::Causal)) continue;
      CAPTURE(phase->name);
      const std::int64_t N = rows_of(*phase);
      const Recorded r = record(*phase, N, causal), plain = record(*phase, N, causal, {}, false);
      CHECK(bytes(r.recording) == bytes(r.run.ledger.arrays));
      CHECK(r.run.ledger == plain.run.ledger);
      CHECK(r.recording.ledger.arrays == r.run.ledger.arrays);
      CHECK(r.recording.finding.empty());
      CHECK(std::memcmp(r.o.data(), plain.o.data(), r.o.size() * sizeof(float)) == 0);
      // A barrier is a step, and all warps that have not ended have come to it.
      std::uint64_t barriers = 0;
      std::map<int, bool> waits;
      for (const Recording::Step& step : r.recording.steps) {
        for (const int warp : warps_of(step)) waits[warp] = !step.waits.empty() || step.ended;
        if (!step.released) continue;
        ++barriers;
        for (const auto& [warp, waiting] : waits) CHECK(waiting);
      }
      CHECK(barriers == r.run.ledger.barriers);
      CHECK(sum(r.recording, Kind::copy) == sum(r.recording, Kind::landed));
      CHECK(sum(r.recording, Kind::store) == sum(r.recording, Kind::stored));
      CHECK(sum(r.recording, Kind::product) == r.run.ledger.wgmma_shared_bytes);
      CHECK(sum(r.recording, Kind::multiplied) == r.run.ledger.wgmma_shared_bytes);
    }
  }
}

TEST_CASE("the numbers that a kernel shows are those of its result: LSE = m + log l") {
  int tried = 0;
  for (const Phase* phase : all_phases()) {
    if (!phase->forward->features.meets(Demand::Lse) || !phase->forward->features.records) continue;
    CAPTURE(phase->name);
    const std::int64_t N = phase->forward->features.tensor_maps() ? 150 : phase->forward->features.tiles ? 40 : 20;
    const Recorded r = record(*phase, N);
    const auto m = last(r.recording, "m"), l = last(r.recording, "l");
    if (m.empty()) continue;  // 01 has no state
    for (long row = 0; row < N; ++row) {
      REQUIRE(m.contains(row));
      REQUIRE(l.contains(row));
      // m in base 2 in kernels; from phase 13 on they keep the maximum of S itself.
      const double natural = phase->kernel() ? 0.6931471805599453 * m.at(row) : m.at(row);
      const double scaled = static_cast<double>(m.at(row)) / 8;  // 1/√64
      const double lse = r.lse[static_cast<std::size_t>(row)], rest = std::log(static_cast<double>(l.at(row)));
      CHECK(std::min(std::abs(natural + rest - lse), std::abs(scaled + rest - lse)) <= 1e-5);
      ++tried;
    }
  }
  CHECK(tried >= 20 + 40 * 6 + 150 * 6);
}

TEST_CASE("each warp's steps are the same under every schedule") {
  for (const Phase* phase : all_phases()) {
    if (!phase->kernel()) continue;
    CAPTURE(phase->name);
    const std::int64_t N = !phase->forward->features.tensor_maps() ? 64
                           : draws(record(*phase, 16).recording)   ? 128
                                                                   : 150;
    std::vector<ByWarp> seen;
    for (const MachineOptions& machine : kSchedules)
      seen.push_back(by_warp(record(*phase, N, Mask::none(), machine).recording));
    CHECK(seen[0] == seen[1]);
    CHECK(seen[0] == seen[2]);
  }
}

TEST_CASE("a step follows those that it has waited for: arrivals and copies at mbarriers, wgmma, stores") {
  for (const Phase* phase : all_phases()) {
    if (!phase->forward->features.tensor_maps()) continue;
    CAPTURE(phase->name);
    for (const MachineOptions& machine :
         {MachineOptions{.order = Order::reverse},
          MachineOptions{.order = Order::random, .seed = 7, .completion = Completion::random}}) {
      const Recording r = record(*phase, 280, Mask::top_left(), machine).recording;  // three Q tiles
      CHECK(waits_played(r) > 20);
    }
  }
}

TEST_CASE("TMA and wgmma: which rows are in which stage, who loads, who multiplies") {
  const Recorded of_15 = record(find_phase("15"), 150);
  const Recording& r = of_15.recording;
  const auto name = [&](const Recording::Part& part) { return r.launches[0].chip[part.place].name; };
  // The producer's first lane loads K's last tile, rows 128 to 149 and zeros, into the first stage.
  const auto copies = [&](const Recording::Step& step) {
    return !step.parts.empty() && step.parts.back().kind == Kind::copy && name(step.parts.back()) == "K";
  };
  const auto first = std::find_if(r.steps.begin(), r.steps.end(), copies);
  REQUIRE(first != r.steps.end());
  CHECK(first->warp == 8);
  const std::uint64_t row = 64 * sizeof(half), at = r.launches[0].chip[first->parts[1].place].at;
  REQUIRE(first->parts.size() == 3);  // read, copy, zeros
  REQUIRE(first->parts[0].spans.size() == 1);
  CHECK(first->parts[0].kind == Kind::read);
  CHECK(first->parts[0].spans[0].first == 128 * row);
  CHECK(first->parts[0].spans[0].end == 150 * row);
  REQUIRE(first->parts[1].spans.size() == 1);
  CHECK(first->parts[1].spans[0].first == at);
  CHECK(first->parts[1].spans[0].end == at + 22 * row);
  CHECK(first->parts[2].source == -1);
  CHECK(first->parts[2].spans[0].end == at + 64 * row);
  REQUIRE(first->arrivals.size() == 1);
  CHECK(r.launches[0].mbarriers[first->arrivals[0].mbarrier].name == "K_ring.full[0]");
  CHECK(first->arrivals[0].expected == 64 * static_cast<std::int64_t>(row));
  // Each product is one of warps 0 to 7, the first of a warpgroup; it reads K, or V, and of S = QKᵀ Q, too.
  std::map<std::string, unsigned> products;
  for (const Recording::Step& step : r.steps)
    for (const Recording::Part& part : step.parts) {
      if (part.kind != Kind::product) continue;
      CHECK((step.warp == 0 || step.warp == 4));
      products[name(part)] += step.wgmma[0].count;
      CHECK(step.wgmma[0].columns == 64);
    }
  // Two blocks, in each two warpgroups, three tiles of four times 16 columns (of 16 keys).
  CHECK(products == std::map<std::string, unsigned>{{"Q", 48}, {"K", 48}, {"V", 48}});
}

TEST_CASE("clusters and their words: bytes, order, and each warp's steps under every schedule") {
  for (const auto& [kernel, blocks] :
       {std::pair<std::string, int>{"pair", 4}, {"around", 8}, {"leaves", 4}, {"both", 4}, {"words", 1}}) {
    CAPTURE(kernel);
    std::vector<ByWarp> seen;
    for (const MachineOptions& machine : kSchedules) {
      const Recording r = recorded(kernel.c_str(), blocks, machine);
      CHECK(r.launches.size() == 1);
      CHECK(r.finding.empty());
      CHECK(bytes(r) == bytes(r.ledger.arrays));
      CHECK(waits_played(r) >= 4);
      seen.push_back(by_warp(r));
    }
    CHECK(seen[0] == seen[1]);
    CHECK(seen[0] == seen[2]);
  }
}

TEST_CASE("pairs of blocks: what is sent to which block, and where an arrival from the other block counts") {
  const Recording r = recorded("pair", 4);
  const auto& [chip, mbarriers] = std::tie(r.launches[0].chip, r.launches[0].mbarriers);
  CHECK(r.launches[0].cluster == std::array<unsigned, 3>{2, 1, 1});
  std::map<std::pair<std::uint64_t, std::string>, unsigned> sent, arrived;  // by block
  for (const Recording::Step& step : r.steps) {
    CHECK(step.rank == step.block % 2);
    for (const Recording::Part& part : step.parts) {
      if (part.kind != Kind::copy) continue;
      CHECK(part.rank == 1 - step.rank);
      CHECK(part.from_rank == static_cast<int>(step.rank));
      REQUIRE(part.spans.size() == 1);
      REQUIRE(part.from.size() == 1);
      CHECK(chip[part.place].name == "partner_dS");
      CHECK(chip[static_cast<std::size_t>(part.source)].name == "dS");
      CHECK(part.spans[0].first == chip[part.place].at);
      CHECK(part.from[0].first == chip[static_cast<std::size_t>(part.source)].at);
      CHECK(part.bytes == 256);
      ++sent[{step.block, step.label}];
    }
    for (const Recording::Arrival& a : step.arrivals)
      if (mbarriers[a.mbarrier].name == "empty") {
        CHECK(a.rank == 1 - step.rank);
        arrived[{step.block, step.label}] += a.count;
      }
  }
  CHECK(sent.size() == 4 * 3);
  CHECK(arrived.size() == 4 * 3);
  for (const auto& [who, times] : sent) CHECK(times == 1);
  for (const auto& [who, arrivals] : arrived) CHECK(arrivals == 64);
  // One cluster after the other.
  CHECK(std::is_sorted(r.steps.begin(), r.steps.end(),
                       [](const auto& a, const auto& b) { return a.block / 2 < b.block / 2; }));
}

TEST_CASE("accesses to another block's shared memory: in which block, and where the bytes are from") {
  const Recording r = recorded("around", 4);
  std::map<std::pair<unsigned, unsigned>, std::uint64_t> written, read;  // from, to
  for (const Recording::Step& step : r.steps)
    for (const Recording::Part& part : step.parts) {
      if (part.kind == Kind::chip_read) read[{step.rank, part.rank}] += part.bytes;
      if (part.kind != Kind::chip_write) continue;
      written[{step.rank, part.rank}] += part.bytes;
      if (part.rank == step.rank) continue;  // zeros
      REQUIRE(part.from.size() == 1);
      CHECK(part.from[0].first / 256 == step.block);
    }
  CHECK(written.size() == 8);
  CHECK(read.size() == 8);
  for (unsigned rank = 0; rank < 4; ++rank) {
    CHECK(written[{rank, (rank + 3) % 4}] == 256);
    CHECK(read[{rank, (rank + 3) % 4}] == 256);
    CHECK(read[{rank, rank}] == 256);
  }
}

TEST_CASE("the cluster's barrier: its phases end when all have come that have not exited") {
  const Recording r = recorded("leaves", 2);
  REQUIRE(r.launches[0].mbarriers.size() == 1);
  CHECK(r.launches[0].mbarriers[0].name == "barrier.cluster");
  CHECK(r.launches[0].mbarriers[0].of_cluster);
  CHECK(r.launches[0].mbarriers[0].arrivals == 128);
  std::vector<std::int64_t> phases;
  for (const Recording::Step& step : r.steps)
    if (step.released) phases.push_back(step.arrivals.at(0).come);
  CHECK(phases == std::vector<std::int64_t>{128, 64});
}

TEST_CASE("multicast: a tile comes to both blocks, and is read once") {
  const Recording r = recorded("both", 2);
  CHECK(bytes(r)["tile"].first == 8 * 128);
  std::map<std::pair<unsigned, unsigned>, std::uint64_t> copied, landed;  // rank and half of the tile
  for (const Recording::Step& step : r.steps)
    for (const Recording::Part& part : step.parts) {
      if (part.kind != Kind::copy && part.kind != Kind::landed) continue;
      CHECK(part.from_rank == -1);
      const auto half = static_cast<unsigned>(part.spans.at(0).first / 512);
      CHECK(part.from.at(0).first == half * 512);
      if (part.kind == Kind::landed) CHECK(part.rank == step.rank);
      if (part.kind == Kind::copy) CHECK(half == step.rank);
      (part.kind == Kind::copy ? copied : landed)[{part.rank, half}] += part.bytes;
    }
  CHECK(copied.size() == 4);
  CHECK(landed == copied);
  for (const auto& [where, n] : copied) CHECK(n == 512);
}

TEST_CASE("a reduction adds, mbarrier.inval ends an mbarrier, and another one is made in its place") {
  const Recording r = recorded("words", 1);
  std::vector<unsigned> made;
  std::map<std::string, std::pair<int, int>> stores;  // by array: those that store, those that add
  for (const Recording::Step& step : r.steps) {
    for (const Recording::Made& one : step.made) made.push_back(one.arrivals);
    for (const Recording::Part& part : step.parts)
      if (part.kind == Kind::store) {
        auto& [plain, adds] = stores[r.arrays[static_cast<std::size_t>(part.source)].name];
        ++(part.adds ? adds : plain);
      }
  }
  CHECK(made == std::vector<unsigned>{0, 2, 0});
  CHECK(stores == std::map<std::string, std::pair<int, int>>{{"out", {2, 0}}, {"sums", {0, 2}}});
}

TEST_CASE("a race between blocks of a cluster: the recording ends there, with the block whose memory it is") {
  for (const Order order : {Order::forward, Order::reverse}) {
    Recording r;
    CHECK_THROWS_AS(on_checked::run_cluster_kernel("around, unordered", 4, {.order = order, .recording = &r}), Error);
    REQUIRE(r.finding.size() == 1);
    const Recording::Finding& f = r.finding[0];
    CAPTURE(f.text);
    CHECK(f.kind == "race");
    CHECK(f.on_chip);
    // Block 0 writes the row of block 3, which has read it; or block 3 reads what block 0 has written there.
    const bool forward = order == Order::forward;
    CHECK(f.threads.at(0).first == (forward ? 0 : 3));
    CHECK(f.threads.at(1).first == (forward ? 3 : 0));
    CHECK(f.rank == 3);
    CHECK((f.text.find(" of block (3,0,0)") != std::string::npos) == forward);
    CHECK(r.steps.back().block == (forward ? 0 : 3));
  }
}

TEST_CASE("O on its way out: stmatrix writes the tile, TMA reads it, rows beyond the end stay") {
  const Recording r = record(find_phase("17"), 150).recording;
  std::uint64_t written = 0;
  for (const Recording::Step& step : r.steps)
    for (const Recording::Part& part : step.parts)
      if (part.kind == Kind::chip_write && r.launches[0].chip[part.place].name == "O") written += part.bytes;
  CHECK(written == 2 * 128 * 64 * sizeof(half));  // two Q tiles
  CHECK(sum(r, Kind::store) == 150 * 64 * sizeof(half));
}

TEST_CASE(
    "source lines: each step that does something stands at lines of its phase, which hold what they are said to") {
  for (const Phase* phase : forward_phases()) {
    if (!phase->forward->features.records) continue;
    CAPTURE(phase->name);
    const Recording r = record(*phase, rows_of(*phase)).recording;
    // A phase from 25 on gives another one's kernel a variant.
    const Phase* kernels_of = phase;
    while (std::atoi(kernels_of->name) >= 25) kernels_of = kernels_of->forward->before;
    std::size_t own = 0;
    for (const Recording::Step& step : r.steps) {
      const bool from_trace = phase->kernel() && step.parts.empty() && step.arrivals.empty() && step.waits.empty();
      if (step.released || step.ended || step.blocks || from_trace)
        continue;  // numbers that a kernel shows have no line
      if (!phase->kernel() || (step.parts.size() > 0 && step.parts[0].kind != Kind::stored)) CHECK(!step.at.empty());
      for (const std::size_t at : step.at)
        own += r.lines[at].file.find(phase->name) != std::string::npos ||
               r.lines[at].file.find(kernels_of->name) != std::string::npos;
      CHECK(std::is_sorted(step.at.begin(), step.at.end()));
    }
    CHECK(own > 10);
    for (const Recording::Line& line : r.lines) CHECK(line.file.find('/') != std::string::npos);  // below the root
  }
  // A load, a product and a softmax of phase 04.
  const Recording r = tiled("04");
  const auto says = [&](const Recording::Step& step, const char* text) {
    return std::any_of(step.at.begin(), step.at.end(),
                       [&](std::size_t at) { return r.lines[at].text.find(text) != std::string::npos; });
  };
  int loads = 0, products = 0, softmaxes = 0;
  for (const Recording::Step& step : r.steps) {
    if (step.parts.empty()) continue;
    const auto& chip = r.launches[0].chip;
    const bool of_hbm = step.parts[0].kind == Kind::read || step.parts[0].kind == Kind::write;
    if (step.parts[0].kind == Kind::read && r.arrays[step.parts[0].place].name == "K")
      CHECK((step.at.size() == 1 && says(step, "memory.load(K_j, K, j);"))), ++loads;
    else if (!step.values.empty())
      CHECK((says(step, "const float alpha = std::exp(m - m_safe);") && !says(step, "memory.load"))), ++softmaxes;
    else if (!of_hbm && chip[step.parts[0].place].name == "S_ij")
      CHECK((step.at.size() == 1 && says(step, "product(memory, S, mat(Q_i), mat(K_j).transpose());"))), ++products;
  }
  CHECK(loads == 18);  // 3 tiles of Q times 6 of K
  CHECK(products == loads);
  CHECK(softmaxes == loads);
}

TEST_CASE("CPU phases: what is calculated on chip is told, tile by tile, and only where numbers have changed") {
  const Recording r = tiled("04");
  std::map<std::string, std::uint64_t> calculated, loaded;  // bytes
  for (const Recording::Step& step : r.steps)
    for (const Recording::Part& part : step.parts)
      if (part.kind == Kind::chip_write)
        (part.source < 0 ? calculated : loaded)[r.launches[0].chip[part.place].name] += part.bytes;
  CHECK(calculated.count("Q_i") + calculated.count("K_j") + calculated.count("V_j") == 0);
  CHECK(loaded.count("O_i") + loaded.count("S_ij") + loaded.count("l_i") + loaded.count("m_i") == 0);
  for (const char* name : {"O_i", "S_ij", "l_i", "m_i"}) CHECK(calculated[name] > 0);
  // l grows with each tile of keys; m does not in each row.
  CHECK(calculated["m_i"] < calculated["l_i"]);
  // 03 loads O, l and m as well.
  std::map<std::string, int> kinds;
  const Recording of_03 = tiled("03");
  for (const Recording::Step& step : of_03.steps)
    for (const Recording::Part& part : step.parts)
      if (part.kind == Kind::chip_write) kinds[of_03.launches[0].chip[part.place].name] |= part.source < 0 ? 1 : 2;
  CHECK(kinds == std::map<std::string, int>{
                     {"Q_i", 2}, {"K_j", 2}, {"V_j", 2}, {"S_ij", 1}, {"O_i", 3}, {"l_i", 3}, {"m_i", 3}});
}

TEST_CASE("lines around those of a step come with them, and their texts once for several recordings") {
  Recording r;
  r.steps.push_back({.at = {r.line(__FILE__, 1)}});
  r.steps.push_back({.at = {r.line(__FILE__, 9), r.line(__FILE__, 8)}});
  r.sort_lines();
  REQUIRE(r.lines.size() == 9);  // 1 to 3, 6 to 11
  CHECK(r.lines[0].number == 1);
  CHECK(r.lines[0].text.find("// recording_test.cpp: ") == 0);
  CHECK(r.lines[r.steps[1].at[0]].number == 8);
  CHECK(r.lines[r.steps[1].at[1]].number == 9);
  Told told;
  const std::string first = to_json(r, &told), second = to_json(r, &told);
  CHECK(first.find("// recording_test.cpp: ") != std::string::npos);
  CHECK(second.find("// recording_test.cpp: ") == std::string::npos);
  CHECK(second.size() < first.size());
  CHECK(to_json(r) == first);
}

TEST_CASE("several heads: a row of a tensor knows its head") {
  Rounded<half> inputs([] {
    const auto tensor = [](std::uint32_t stream) { return random_tensor<float>({1, 2, 40, 64}, 1, stream); };
    return Example{tensor(0), tensor(1), tensor(2), make_tensor<float>({1, 2, 40, 64}), {}};
  }());
  const auto p = inputs.problem({});
  Recording r;
  const std::string name = "17";
  const Phase& phase = find_phase(name);
  const Run run = forward(phase, p, Where::Checked, {.recording = &r});
  describe(r, phase, p, run.blocks);
  int told = 0;
  for (const Recording::Place& array : r.arrays)
    if (array.name != "counter") CHECK((array.head_rows == 40 && array.heads == 2)), ++told;
  CHECK(told == 5);
}

TEST_CASE("banks: without a swizzle requests are in conflict, with one none is") {
  const auto conflicts = [](const char* phase) {
    int slow = 0, all = 0;
    const Recorded r = record(find_phase(phase), 64);
    for (const Recording::Step& step : r.recording.steps)
      for (const Recording::Request& q : step.requests) {
        ++all, slow += q.wavefronts > q.ideal;
        for (const std::int64_t lane : q.lanes) CHECK(lane < static_cast<std::int64_t>(r.run.ledger.shared_bytes_peak));
      }
    CHECK(all > 10);
    return slow;
  };
  CHECK(conflicts("10") > 0);
  CHECK(conflicts("11") == 0);
}

// Phase 30's, causal, of 62 rows: four ranks cannot share them evenly.
static Recording ring(RingLayout layout, int ranks = 4) {
  Recording r;
  Example example = random_example(62, 32);
  const Options options{.mask = Mask::top_left(), .ring = {ranks, layout}};
  const auto p = example.problem(options);
  forward(find_phase("30"), p, Where::Sim, {.recording = &r});
  describe(r, find_phase("30"), p, {});
  return r;
}

TEST_CASE("a ring of ranks: who sends what to whom, and each row meets each key that it sees once") {
  for (const auto& [layout, calls_of] : {std::pair{RingLayout::Contiguous, std::vector{1, 2, 3, 4}},
                                         {RingLayout::ZigZag, std::vector{4, 4, 4, 4}},
                                         {RingLayout::Striped, std::vector{4, 4, 4, 4}}}) {
    CAPTURE(name(layout));
    const Recording r = ring(layout);
    const Recording::Launch& launch = r.launches.at(0);
    CHECK((launch.ranks && launch.grid == launch.cluster && launch.grid[0] == 4));
    CHECK(waits_played(r) == 0);  // and what was begun has landed
    CHECK(bytes(r) == bytes(r.ledger.arrays));
    CHECK(bytes(r).at("messages").first == 3 * 2 * 62 * 32 * sizeof(float));
    // Played: which token's row of Q or K lies in each row of each place.
    std::map<std::tuple<unsigned, std::size_t, std::uint64_t>, std::uint64_t> held;
    const auto rows_at = [&](const Recording::Spans& spans, std::uint64_t row, std::uint64_t begin) {
      std::vector<std::uint64_t> rows;
      for (const Recording::Span& s : spans)
        for (std::uint64_t at = s.first; at < s.end; at += row) rows.push_back((at - begin) / row);
      return rows;
    };
    std::map<std::pair<std::uint64_t, std::uint64_t>, int> met;
    std::vector<int> calls(4);
    for (const Recording::Step& step : r.steps) {
      CHECK((step.block == step.rank && step.rank < 4));
      std::vector<std::uint64_t> q, k;
      for (const Recording::Part& part : step.parts) {
        if (part.kind == Kind::read || part.kind == Kind::write) continue;
        if (part.kind != Kind::copy) CHECK(part.rank == step.rank);
        const Recording::Place& place = launch.chip[part.place];
        const std::vector<std::uint64_t> here = rows_at(part.spans, place.element_bytes * place.columns, place.at);
        std::vector<std::uint64_t> from;
        if (part.kind == Kind::copy) {
          const Recording::Place& theirs = launch.chip[static_cast<std::size_t>(part.source)];
          CHECK((part.rank == (step.rank + 1) % 4 && part.from_rank == static_cast<int>(step.rank)));
          for (const std::uint64_t row : rows_at(part.from, 32 * sizeof(float), theirs.at))
            from.push_back(held.at({step.rank, static_cast<std::size_t>(part.source), row}));
        } else if (part.kind == Kind::chip_write && part.source >= 0) {
          from = rows_at(part.from, 32 * sizeof(float), 0);
        }
        if (!from.empty()) REQUIRE(from.size() == here.size());
        for (std::size_t i = 0; i < from.size(); ++i) held[{part.rank, part.place, here[i]}] = from[i];
        if (part.kind == Kind::chip_read && (place.name == "Q" || place.name[0] == 'K'))
          for (const std::uint64_t row : here)
            (place.name == "Q" ? q : k).push_back(held.at({step.rank, part.place, row}));
      }
      if (q.empty()) continue;
      ++calls[step.rank];
      for (const std::uint64_t row : q)
        for (const std::uint64_t key : k) ++met[{row, key}];
      const phase30::Split split(layout, 4, 62, 62, Mask::top_left());
      const std::string whose = step.label.substr(5);
      REQUIRE(step.label == "rank " + whose);
      const phase30::Share keys = split.keys(std::stoi(whose));
      std::set<std::uint64_t> owned;
      for (std::int64_t i = 0; i < keys.size(); ++i) owned.insert(static_cast<std::uint64_t>(keys[i]));
      for (const std::uint64_t key : k) CHECK(owned.contains(key));
    }
    CHECK(calls == calls_of);
    for (const auto& [pair, times] : met) CHECK(times == 1);
    for (std::uint64_t row = 0; row < 62; ++row)
      for (std::uint64_t key = 0; key <= row; ++key) CHECK(met.contains({row, key}));
    for (int again = 0; again < 3; ++again) CHECK(to_json(ring(layout)) == to_json(r));  // no thread decides it
  }
}

TEST_CASE("a ring with several heads, with fewer rows than ranks, and what is refused by name") {
  Rounded<half> inputs([] {
    const auto tensor = [](std::uint32_t stream) { return random_tensor<float>({2, 2, 9, 16}, 1, stream); };
    return Example{tensor(0), tensor(1), tensor(2), make_tensor<float>({2, 2, 9, 16}), {}};
  }());
  const Phase& phase = find_phase("30");
  const auto record = [&](RingOptions options) {
    Recording r;
    const auto p = inputs.problem({.mask = Mask::top_left(), .ring = options});
    forward(phase, p, Where::Sim, {.recording = &r});
    describe(r, phase, p, {});
    CHECK(waits_played(r) == 0);
    CHECK(bytes(r) == bytes(r.ledger.arrays));
    return r;
  };
  const Recording r = record({3, RingLayout::ZigZag});
  CHECK(r.note.find(" · ranks 3 · layout zig-zag") != std::string::npos);
  CHECK((r.arrays.at(0).head_rows == 9 && r.arrays.at(0).heads == 2));
  CHECK(last(r, "m").size() == 2 * 2 * 9);
  CHECK(record({16, RingLayout::Contiguous}).launches[0].grid[0] == 16);
  CHECK(record({1, RingLayout::Striped}).steps.size() == 5);  // loads, calls, merges, divides, stores
  const auto refused = [&](RingOptions options, const std::string& line) {
    CHECK_THROWS_WITH_AS(record(options), doctest::Contains(line.c_str()), Error);
  };
  refused({2, RingLayout::Ulysses}, "--player is given with layout ulysses; expected a ring, whose steps are shown");
  refused({17, RingLayout::Striped}, "--player is of 17 ranks; expected at most 16; pass --ranks 4");
}

TEST_CASE("on chip: the members of the struct, and from which rows of which array their contents are") {
  Recording r;
  on_checked::run_turned(2, true, {.recording = &r});
  REQUIRE(r.launches.size() == 1);
  const std::vector<Recording::Place>& chip = r.launches[0].chip;
  REQUIRE(chip.size() == 3);
  const auto is = [](const Recording::Place& p, const char* name, unsigned at, unsigned size, unsigned columns) {
    return p.name == name && p.at == at && p.bytes == size && p.columns == columns;
  };
  CHECK(is(chip[0], "pair", 0, 512, 16));
  CHECK(is(chip[1], "rows", 512, 4608, 36));
  CHECK(is(chip[2], "count", 5120, 4, 1));
  // Warp 1 of block 1 stores zeros, which come from nowhere, in row 1, then the 32 numbers that it has loaded.
  bool found = false, zeros = false;
  for (const Recording::Step& step : r.steps)
    for (const Recording::Part& part : step.parts) {
      if (step.block != 1 || step.warp != 1 || part.kind != Kind::chip_write || part.place != 1) continue;
      REQUIRE(part.spans.size() == 1);
      const auto row = [](std::uint64_t n) { return 512 + n * 36 * 4; };
      if (part.source < 0) {
        zeros = part.spans[0].first == row(1) && part.spans[0].end == row(1) + 128;
        continue;
      }
      CHECK(r.arrays[static_cast<std::size_t>(part.source)].name == "in");
      REQUIRE(part.from.size() == 1);
      CHECK(part.from[0].first == (64 + 32) * 4);
      CHECK(part.from[0].end == 2 * 64 * 4);
      found = part.spans[0].first == row(1) && part.spans[0].end == row(1) + 128;
    }
  CHECK(found);
  CHECK(zeros);
  CHECK(last(r, "seen").at(5) == 1.0f);
}

TEST_CASE("on chip: a struct with an anonymous union compiles, and none of its members is named") {
  struct First {
    union {
      float rows[4];
      int count;
    };
    int number;
  };
  struct Last {
    float rows[4][4];
    int number;
    union {
      float sums[4];
      int count;
    };
  };
  struct Alone {
    union {
      float sums[4];
      int count;
    };
  };
  simt::Member members[simt::kMostMembers];
  CHECK(simt::members<First>(members) == 0);
  CHECK(simt::members<Last>(members) == 0);
  CHECK(simt::members<Alone>(members) == 0);
}

TEST_CASE("on chip: of a member that is a struct with mbarriers, its members have the names") {
  struct Barriers {
    std::uint64_t full[2], empty[2];
  };
  struct Pair {
    float x, y;
  };
  struct Tiles {
    float K[2][4];
    Barriers K_ring, Q_ring[2];
    Pair pair;
  };
  simt::Member members[simt::kMostMembers];
  REQUIRE(simt::members<Tiles>(members) == 8);
  const std::size_t at[] = {0, 32, 48, 64, 80, 96, 112, 128};
  for (int i = 0; i < 8; ++i) {
    CHECK(members[i].at == at[i]);
    CHECK((members[i].within != nullptr) == (i > 0 && i < 7));
    CHECK(members[i].element == (i < 3 || i == 7 ? -1 : (i - 3) / 2));
    CHECK(members[i].bytes == (i == 0 ? 32 : i == 7 ? 8 : 16));
  }
}

TEST_CASE("a race: the recording ends there, with both threads and the place") {
  for (const Order order : {Order::forward, Order::reverse}) {
    Recording r;
    CHECK_THROWS_AS(on_checked::run_turned(1, false, {.order = order, .recording = &r}), Error);
    REQUIRE(r.finding.size() == 1);
    const Recording::Finding& f = r.finding[0];
    // The warp that comes second writes what the other's lane has read, or the other way round.
    CHECK(f.kind == "race");
    CHECK(f.text.find("race: write after read of shared Shapes+") == 0);
    CHECK(f.text.find("recording.cu:") != std::string::npos);
    CHECK(f.text.find("remedy: put __syncthreads() between the two") != std::string::npos);
    const unsigned second = order == Order::forward ? 1 : 0, lane = order == Order::forward ? 0 : 31;
    REQUIRE(f.threads.size() == 2);
    CHECK(f.threads[0].second == second * 32 + lane);
    CHECK(f.threads[1].second == (1 - second) * 32 + lane);
    CHECK(f.on_chip);
    CHECK(f.place == 1);
    CHECK(f.span.first == 512 + second * 36 * 4 + lane * 4);
    CHECK(f.span.end == f.span.first + 4);
    // The first warp had read all of its numbers, the second one had read one.
    CHECK(bytes(r) == Bytes{{"in", {33 * 4, 0}}, {"out", {0, 128}}});
    const std::size_t steps = r.steps.size();
    CHECK_THROWS_AS(on_checked::run_turned(1, false, {.recording = &r}), Error);  // a further launch adds nothing
    CHECK(r.steps.size() == steps);
    CHECK(r.finding.size() == 1);
  }
}

TEST_CASE("many blocks: the first ones step by step, all others in one step, and the bytes are the ledger's") {
  Recording r;
  on_checked::run_turned(1200, true, {.threads = 2, .recording = &r});
  CHECK(r.steps.size() < 4100);
  CHECK(r.steps.back().blocks > 500);
  const std::uint64_t shown = r.steps[r.steps.size() - 2].block;  // the last one, in part at least
  CHECK(r.steps.back().blocks + shown <= 1200);
  CHECK(r.steps.back().blocks + shown + 1 >= 1200);
  CHECK(bytes(r) == bytes(r.ledger.arrays));
  // The same of clusters of four, of which one is shown in part.
  const Recording clusters = recorded("around", 1200);
  CHECK(clusters.steps.size() < 4100);
  const std::uint64_t last = clusters.steps[clusters.steps.size() - 2].block / 4 * 4;  // block of its cluster
  CHECK(clusters.steps.back().blocks == 1200 - last);
  CHECK(bytes(clusters) == bytes(clusters.ledger.arrays));
}

TEST_CASE("two arrays in turn: too many steps become one, and no byte is lost") {
  Recording few, many;
  on_checked::run_in_turn(5, {.recording = &few});
  on_checked::run_in_turn(50, {.recording = &many});
  CHECK(few.steps.size() == 12);  // a, b, a, b, …, out, the end
  CHECK(many.steps.size() < 12);
  Recording long_block;  // longer than a recording may be, if its steps were kept apart
  on_checked::run_tiles(9000, {.recording = &long_block});
  CHECK(long_block.steps.size() <= 4002);
  CHECK(long_block.steps.back().blocks == 1);
  CHECK(bytes(long_block) == bytes(long_block.ledger.arrays));
  CHECK(bytes(few) == bytes(few.ledger.arrays));
  CHECK(bytes(many) == bytes(many.ledger.arrays));
}

TEST_CASE("the page holds the recordings, and nothing in them ends its script") {
  Recording r;
  r.title = "</script><b>";
  r.steps.push_back({.values = {{"m", 3, -INFINITY}}});
  const std::string page = player_page({to_json(r), to_json(r)});
  CHECK(page.find("</script><b>") == std::string::npos);
  CHECK(page.find("<\\/script><b>") != std::string::npos);
  CHECK(page.find("[\"m\",[3],[\"-inf\"]]") != std::string::npos);
  CHECK(page.find("http") == std::string::npos);  // it asks no network
  CHECK(page.find("const recordings = " + json_array({to_json(r), to_json(r)}) + ";\n") != std::string::npos);
  CHECK(page.rfind("</html>") != std::string::npos);
}
