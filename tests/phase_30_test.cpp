// phase_30_test.cpp: proof of phase 30: pieces of all ranks are the mask, each pair once; the contract on 1 to 4 ranks
// in every layout, forward and backward; one rank has one call's bits; bytes by formula; ranks that die, hang, differ.
// ctest --test-dir build -L phase30
#include <doctest/doctest.h>

#include <atomic>

#include "phases/04-tiled-v2/phase.hpp"
#include "phases/08-lse/phase.hpp"
#include "phases/09-backward/phase.hpp"
#include "phases/20-backward-tensor-cores/phase.hpp"
#include "phases/30-ring/phase.hpp"
#include "phases/30-ring/ring.hpp"
#include "phases/30-ring/ulysses.hpp"
#include "phases/ring/gpu.hpp"
#include "phases/ring/local.hpp"
#include "phases/ring/threads.hpp"
#include "tests/backward_promises.hpp"
#include "tests/features.hpp"
#include "tests/promises.hpp"

using namespace flash;
using namespace flash::test;
using namespace flash::phase30;

const Phase& flash::test::phase_under_test() {
  return phase30::phase;
}

namespace {

constexpr RingLayout all_layouts[] = {RingLayout::Contiguous, RingLayout::ZigZag, RingLayout::Striped};  // of a ring

template <class AProblem>
AProblem on_ring(AProblem p, RingLayout layout, int ranks) {
  p.options.ring = {ranks, layout};
  return p;
}

// With any phase at the ranks' calls. Returns the bytes that were sent.
using Way = void (*)(Comm&, const Split&, const AnyProblem&, const Worker&);
std::uint64_t run_with(const AnyProblem& whole, int ranks, const Worker& worker, Way way = on_rank) {
  const Split split(whole, ranks);
  std::vector<Local> local;
  local.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) local.emplace_back(whole, split, rank);
  const std::uint64_t sent = on_threads(
      ranks, 60, [&](Comm& comm) { way(comm, split, local[static_cast<std::size_t>(comm.rank)].problem(), worker); });
  for (Local& mine : local) mine.put_back(whole);
  return sent;
}

}  // namespace

// ---- Layouts --------------------------------------------------------------------------------------------------------

TEST_CASE("pieces of all ranks together are the mask, each pair once") {
  using enum Alignment;
  const Mask masks[] = {Mask::none(),
                        Mask::top_left(),
                        Mask::bottom_right(),
                        Mask::top_left().shifted(3),
                        Mask::bottom_right().shifted(-4),
                        Mask::top_left().shifted(100),
                        Mask::top_left().shifted(-100),
                        {.right = 2},
                        {.left = 3, .right = 0},
                        {.left = 2, .right = 1, .alignment = BottomRight},
                        {.left = 4},
                        {.left = 0, .right = 0, .alignment = BottomRight},
                        {.left = -2, .right = 4},
                        {.left = 5, .right = -2}};
  std::int64_t splits = 0, wrong = 0;
  for (const RingLayout layout : all_layouts)
    for (const Mask& mask : masks)
      for (std::int64_t Sq = 0; Sq < 17; ++Sq)
        for (std::int64_t Sk = 0; Sk < 17; ++Sk)
          for (int n = 1; n <= 5; ++n) {
            if (layout == RingLayout::ZigZag && mask.is_window()) continue;
            const Split split(layout, n, Sq, Sk, mask);
            std::vector<int> seen(static_cast<std::size_t>(Sq * Sk)), rows(static_cast<std::size_t>(Sq)),
                keys(static_cast<std::size_t>(Sk));
            for (int rank = 0; rank < n; ++rank) {
              const Share q = split.rows(rank), own = split.keys(rank);
              for (std::int64_t i = 0; i < q.size(); ++i) ++rows.at(static_cast<std::size_t>(q[i]));
              for (std::int64_t j = 0; j < own.size(); ++j) ++keys.at(static_cast<std::size_t>(own[j]));
              for (int from = 0; from < n; ++from) {
                const Share k = split.keys(from);
                const Section p = split.section(rank, from);
                for (std::int64_t i = 0; i < p.rows; ++i) {
                  const KeyRange<std::int64_t> range = p.mask.visible(i, p.rows, p.keys);
                  for (std::int64_t j = range.begin; j < range.end; ++j)
                    ++seen.at(static_cast<std::size_t>(q[p.q0 + i] * Sk + k[p.k0 + j]));
                }
              }
            }
            for (const int x : rows) wrong += x != 1;
            for (const int x : keys) wrong += x != 1;
            for (std::int64_t i = 0; i < Sq; ++i)
              for (std::int64_t j = 0; j < Sk; ++j)
                wrong += seen[static_cast<std::size_t>(i * Sk + j)] != sees(mask, i, j, Sq, Sk);
            ++splits;
          }
  CHECK(wrong == 0);
  CHECK(splits == 17 * 17 * 5 * (14 + 8 + 14));
}

// 4 ranks, 34 rows each, causal: the pairs that each calculates.
TEST_CASE("contiguous pieces are unbalanced, the other layouts are not") {
  const auto pairs = [](RingLayout layout) {
    const Split split(layout, 4, 136, 136, Mask::top_left());
    std::vector<std::int64_t> out;
    for (int rank = 0; rank < 4; ++rank) {
      out.push_back(0);
      for (int from = 0; from < 4; ++from) out.back() += split.section(rank, from).pairs();
    }
    return out;
  };
  CHECK(pairs(RingLayout::Contiguous) == std::vector<std::int64_t>{595, 1751, 2907, 4063});
  CHECK(pairs(RingLayout::ZigZag) == std::vector<std::int64_t>{2329, 2329, 2329, 2329});
  CHECK(pairs(RingLayout::Striped) == std::vector<std::int64_t>{2278, 2312, 2346, 2380});
}

TEST_CASE("what cannot be split is refused by name") {
  Inputs<float> in({.mask = {.left = 3, .right = 0}});
  const auto refused = [&](RingOptions ring, const char* message) {
    Problem<float> p = in.problem(false);
    p.options.ring = ring;
    CHECK_THROWS_WITH_AS(phase30::forward(p), message, Error);
    CHECK(is_poison(in.o.memory.data(), in.o.memory.size() * sizeof(float)));
  };
  refused({4, RingLayout::ZigZag},
          "layout is zig-zag; expected contiguous or striped with a window; pass --layout striped");
  refused({-1}, "ranks is -1; expected 1 to 64; omit --ranks for 4");
  refused({65}, "ranks is 65; expected 1 to 64; omit --ranks for 4");
}

// ---- Against fp64 ---------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("the contract's list on 1 to 4 ranks, in every layout", T, float, half, bfloat16) {
  Figures figures;
  int number = 0;
  for (Case c : pairwise(restrict_to({}, phase30::features))) {
    c.twice = false;
    const RingLayout layout = all_layouts[number % 3];
    const int ranks = 1 + number / 3 % 4;
    ++number;
    INFO(std::string(name(layout)) << " on " << ranks << " ranks");
    expect_none(examine<T>(
        c, [&](const Problem<T>& p) { phase30::forward(on_ring(p, layout, ranks)); }, phase30::features, &figures));
  }
  MESSAGE(std::string(type_name<T>()) << ": " << text(figures));
}

// Forward and backward with what models use, alone and by two: odd lengths, more ranks than some have rows.
TEST_CASE_TEMPLATE("features: alone and in pairs, forward and backward", T, float, half, bfloat16) {
  using enum Feature;
  const FeatureSet can = {GroupedHeads, OtherDv, Causal, Window, Softcap, LseGradient, WideOutput};
  int number = 0, tried = 0, zig_zag = 0;
  for (const FeatureSet& on : singles_and_pairs()) {
    if (!std::includes(can.begin(), can.end(), on.begin(), on.end())) continue;
    const RingLayout layout = all_layouts[number % 3];
    const int ranks = 2 + number / 3 % 3;
    ++number;
    const FeatureCase c{.on = on,
                        .Sq = number % 4 ? 37 : 3,
                        .Sk = number % 5 ? 50 : 2,
                        .seed = static_cast<std::uint64_t>(number),
                        .keeps = sizeof(T) == 2 || number % 2 == 0};
    INFO(text(c) << ", " << std::string(name(layout)) << " on " << ranks << " ranks");
    FeatureInputs<T> in(c);
    const AnyProblem there = on_ring(in.problem(), layout, ranks), back = on_ring(in.gradients(), layout, ranks);
    if (layout == RingLayout::ZigZag && c.has(Window)) {
      CHECK_THROWS_AS(enter(phase30::phase, there), Error);
      ++zig_zag;
      continue;
    }
    enter(phase30::phase, there);
    enter(phase30::phase, back);
    expect_none(in.complaints());
    ++tried;
  }
  CHECK(tried + zig_zag == 1 + 7 + 20);  // a causal mask and a window are one window
  CHECK(zig_zag > 0);
}

TEST_CASE_TEMPLATE("gradients on 1 to 4 ranks, in every layout", T, float, half, bfloat16) {
  for (const RingLayout layout : all_layouts)
    for (int ranks = 1; ranks <= 4; ++ranks)
      for (const Mask mask : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
        for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{45, 45}, {29, 70}, {70, 29}}) {
          const Case c{.B = 1, .Sq = Sq, .Sk = Sk, .D = 24, .mask = mask};
          INFO(text(c) << ", " << std::string(name(layout)) << " on " << ranks << " ranks");
          GradientInputs<T> in(c);
          Problem<T> there = on_ring(in.forward(), layout, ranks);
          flash::forward_training(phase30::phase, there, in.kept());
          flash::backward(phase30::phase, on_ring(in.problem(true), layout, ranks));
          expect_none(examine_gradients(in, true));
        }
}

TEST_CASE_TEMPLATE("one rank has the bits of one call", T, float, half) {
  for (const Mask mask : {Mask::none(), Mask::bottom_right()}) {
    FeatureInputs<T> ring({.on = {Feature::GroupedHeads}, .mask = mask}),
        call({.on = {Feature::GroupedHeads}, .mask = mask});
    enter(phase30::phase, on_ring(ring.problem(), RingLayout::Striped, 1));
    enter(definition::phase, call.problem());
    CHECK(same_bits(ring.o.memory, call.o.memory));
    CHECK(same_bits(ring.m, call.m));
    CHECK(same_bits(ring.l, call.l));
  }
}

// ---- Other phases at the calls --------------------------------------------------------------------------------------

TEST_CASE("any phase computes the pieces: 04, and 08 and 09 on both simulators") {
  for (const RingLayout layout : all_layouts)
    for (const Mask mask : {Mask::none(), Mask::top_left(), Mask::bottom_right()}) {
      const Case c{.B = 1, .Sq = 37, .Sk = 43, .mask = mask};
      INFO(text(c) << ", " << std::string(name(layout)));
      const auto check = [&](const HostWorker& worker) {
        if (skipped_without(worker.phase, worker.where)) return;
        GradientInputs<float> in(c);
        Problem<float> p = on_ring(in.forward(), layout, 3);
        p.kept = in.kept();
        run_with(p, 3, worker);
        expect_none(examine<float>(
            c, [&](const Problem<float>& q) { run_with(on_ring(q, layout, 3), 3, worker); }, phase30::features));
        if (!worker.phase.backward) return;
        run_with(on_ring(in.problem(false), layout, 3), 3, worker);
        expect_none(examine_gradients(in, false));
      };
      check(HostWorker{phase04::phase});
      check(HostWorker{phase08::phase});
      check(HostWorker{phase08::phase, Where::Checked});
      check(HostWorker{phase09::phase});
      if (layout == RingLayout::Striped) check(HostWorker{phase09::phase, Where::Checked});
    }
}

// Each rank has a GPU of its own, here a simulator. Returns what the checked one has found.
using MakeWorker = std::unique_ptr<GpuWorker> (*)(const Phase&, const MachineOptions&);
std::string run_on_gpus(const AnyProblem& whole, int ranks, const Phase& phase, MakeWorker make) {
  const Split split(whole, ranks);
  std::vector<Local> local;
  local.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) local.emplace_back(whole, split, rank);
  std::mutex mutex;
  std::string found;
  on_threads(ranks, 60, [&](Comm& comm) {
    const std::unique_ptr<GpuWorker> worker = make(phase, {});
    const Uploaded mine(*worker, local[static_cast<std::size_t>(comm.rank)].problem());
    on_rank(comm, split, mine.problem(), *worker);
    mine.download();
    const std::lock_guard lock(mutex);
    for (const Finding& finding : worker->findings()) found += finding.text + "\n";
  });
  for (Local& mine : local) mine.put_back(whole);
  return found;
}

TEST_CASE_TEMPLATE("a GPU's worker, on the simulator: the host's bits, forward and backward", T, half, bfloat16) {
  for (const RingLayout layout : all_layouts)
    for (const Mask mask : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
      for (const int ranks : {1, 3}) {
        const Case c{.B = 1, .Sq = 37, .Sk = 70, .D = ranks == 3 ? 36 : 64, .mask = mask};
        INFO(text(c) << ", " << std::string(name(layout)) << " on " << ranks << " ranks");
        GradientInputs<T> gpu(c), host(c);
        const auto results = [&](GradientInputs<T>& in, const auto& run) {
          Problem<T> p = on_ring(in.forward(), layout, ranks);
          p.kept = in.kept();
          run(AnyProblem(p));
          run(AnyProblem(on_ring(in.problem(true), layout, ranks)));
          expect_none(examine_gradients(in, true));
        };
        results(gpu, [&](const AnyProblem& p) { run_on_gpus(p, ranks, phase20::phase, on_sim::gpu_worker); });
        results(host, [&](const AnyProblem& p) { run_with(p, ranks, HostWorker{phase20::phase}); });
        CHECK(same_bits(gpu.in.o.memory, host.in.o.memory));
        CHECK(same_bits(gpu.dq.memory, host.dq.memory));
        CHECK(same_bits(gpu.dk.memory, host.dk.memory));
        CHECK(same_bits(gpu.dv.memory, host.dv.memory));
      }
}

// With all that a rank can be asked to keep, rows that see no key of a rank, and a rank whose rows see none at all.
TEST_CASE("a GPU's worker: checked: clean, and the same bits") {
  if (skipped_without(phase20::phase, Where::Checked)) return;
  for (const auto& [layout, causal] : {std::pair{RingLayout::Contiguous, Mask::top_left()},
                                       {RingLayout::Contiguous, Mask::bottom_right()},
                                       {RingLayout::ZigZag, Mask::top_left()},
                                       {RingLayout::Striped, Mask::top_left()},
                                       {RingLayout::Ulysses, Mask::top_left()}}) {
    const bool few_keys = causal == Mask::bottom_right();  // the first rank's rows see none
    const Case c{.B = 1, .H = 2, .Sq = few_keys ? 40 : 21, .Sk = few_keys ? 9 : 35, .D = 21, .mask = causal};
    INFO(text(c) << ", " << std::string(name(layout)));
    GradientInputs<half> fast(c), checked(c);
    const auto results = [&](GradientInputs<half>& in, MakeWorker make) {
      Problem<half> p = on_ring(in.forward(), layout, 2);
      p.kept = in.kept();
      const std::string there = run_on_gpus(p, 2, phase20::phase, make);
      return there + run_on_gpus(on_ring(in.problem(true), layout, 2), 2, phase20::phase, make);
    };
    CHECK(results(fast, on_sim::gpu_worker).empty());
    CHECK(results(checked, on_checked::gpu_worker) == "");
    CHECK(same_bits(fast.in.o.memory, checked.in.o.memory));
    CHECK(same_bits(fast.o_lo.memory, checked.o_lo.memory));
    CHECK(same_bits(fast.in.lse, checked.in.lse));
    CHECK(same_bits(fast.m, checked.m));
    CHECK(same_bits(fast.dq.memory, checked.dq.memory));
    CHECK(same_bits(fast.dk.memory, checked.dk.memory));
    CHECK(same_bits(fast.dv.memory, checked.dv.memory));
  }
}

TEST_CASE("groups of heads one after the other: the same bits, and the same bytes") {
  for (const std::int64_t group : {1, 2}) {
    FeatureInputs<half> all({.on = {Feature::GroupedHeads}, .H = 6}), some({.on = {Feature::GroupedHeads}, .H = 6});
    for (const bool backward : {false, true}) {
      const auto p = [&](FeatureInputs<half>& in) {
        return on_ring(backward ? in.gradients() : in.problem(), RingLayout::ZigZag, 3);
      };
      static std::int64_t heads;
      heads = group;
      const Way by_groups = [](Comm& comm, const Split& split, const AnyProblem& mine, const Worker& worker) {
        in_groups(comm, split, mine, worker, heads, on_rank);
      };
      const HostWorker worker{definition::phase};
      CHECK(run_with(p(all), 3, worker) == run_with(p(some), 3, worker, by_groups));
    }
    CHECK(all.results() == some.results());
  }
}

// ---- Bytes ----------------------------------------------------------------------------------------------------------

// Of the keys of all ranks those whose dK and dV go home: to their rank from each other one whose rows see any of its
// piece; zig-zag has two pieces, and a causal mask hides the second of an earlier rank.
static std::uint64_t keys_that_go_home(const Split& split, RingLayout layout, int ranks, bool causal) {
  std::int64_t keys = 0;
  for (int rank = 0; rank < ranks; ++rank)
    for (int from = 0; from < ranks; ++from) {
      if (from == rank) continue;
      const Share q = split.rows(rank), k = split.keys(from);
      const auto seen = [&](std::int64_t first, std::int64_t end) {  // by any row: then the piece is in the call
        for (std::int64_t j = first; j < end; ++j)
          for (std::int64_t i = 0; i < q.size(); ++i)
            if (!causal || k[j] <= q[i]) return end - first;
        return std::int64_t{0};
      };
      keys += layout == RingLayout::ZigZag ? seen(0, k.count) + seen(k.count, k.size()) : seen(0, k.size());
    }
  return static_cast<std::uint64_t>(keys);
}

TEST_CASE("bytes: what is sent is the formula, and a mask saves dK and dV that nobody makes") {
  for (const RingLayout layout : all_layouts)
    for (const Mask mask : {Mask::none(), Mask::top_left()})
      for (int ranks = 1; ranks <= 5; ++ranks) {
        INFO(std::string(name(layout)) << ", " << name(mask) << ", " << ranks << " ranks");
        FeatureInputs<half> in({.on = {Feature::GroupedHeads, Feature::OtherDv}, .Sq = 47, .Sk = 47, .mask = mask});
        const Shape s = in.problem().shape();
        const auto numbers = static_cast<std::uint64_t>(s.B * s.Hk * (s.D + s.Dv)), n = std::uint64_t(ranks);
        const auto sent = [&](const AnyProblem& p) {
          return enter(phase30::phase, on_ring(p, layout, ranks)).ledger.array("messages").written_bytes;
        };
        const std::uint64_t there = (n - 1) * 2 * numbers * static_cast<std::uint64_t>(s.Sk);
        const std::uint64_t home =
            4 * numbers *
            keys_that_go_home(Split(layout, ranks, s.Sq, s.Sk, mask), layout, ranks, !(mask == Mask::none()));
        CHECK(sent(in.problem()) == there);
        CHECK(sent(in.gradients()) == there + home);
        CHECK(bytes_sent(in.problem(), layout, ranks) == there);
        CHECK(bytes_sent(in.gradients(), layout, ranks) == there + home);
        if (mask == Mask::none()) CHECK(home == (n - 1) * 4 * numbers * static_cast<std::uint64_t>(s.Sk));
      }
}

TEST_CASE_TEMPLATE("Ulysses: the bits of one call, forward and backward, and bytes by formula", T, float, half) {
  for (const int ranks : {1, 2, 4})
    for (const Feature feature : {Feature::Causal, Feature::Window, Feature::Softcap, Feature::OtherDv}) {
      const FeatureCase c{.on = {feature}, .Sq = 45, .Sk = 50};
      INFO(text(c) << " on " << ranks << " ranks");
      FeatureInputs<T> in(c), call(c);
      for (const bool backward : {false, true}) {
        const AnyProblem p = on_ring(backward ? in.gradients() : in.problem(), RingLayout::Ulysses, ranks);
        const auto sent = enter(phase30::phase, p).ledger.array("messages").written_bytes;
        CHECK(sent == ulysses_bytes_sent(p, ranks));
        enter(definition::phase, backward ? call.gradients() : call.problem());
      }
      CHECK(in.results() == call.results());
    }
}

TEST_CASE("Ulysses: heads that cannot be spread are refused by name") {
  FeatureInputs<float> in({.on = {Feature::GroupedHeads}, .H = 4});
  const auto refused = [&](int ranks, const char* message) {
    CHECK_THROWS_WITH_AS(enter(phase30::phase, on_ring(in.problem(), RingLayout::Ulysses, ranks)), message, Error);
  };
  refused(4, "K's number of heads H is 2; expected a multiple of the 4 ranks in layout ulysses; pass --layout striped");
  refused(3, "Q's number of heads H is 4; expected a multiple of the 3 ranks in layout ulysses; pass --layout striped");
  CHECK(in.results() == FeatureInputs<float>({.on = {Feature::GroupedHeads}, .H = 4}).results());  // as it was
}

// ---- Ranks that fail ------------------------------------------------------------------------------------------------

namespace {

// A step of a ring by hand; `fault` is called where the rank should begin its exchange.
std::atomic<int> ranks_that_waited = 0;  // until the limit
template <class Fault>
std::string message_of(int ranks, const Fault& fault) {
  ranks_that_waited = 0;
  try {
    on_threads(ranks, 3, [&](Comm& comm) {
      std::vector<std::byte> here(64), coming(64);
      const Withdraws at_an_error{comm};
      for (int step = 0; step < 3; ++step) {
        if (fault(comm, step)) return;
        comm.begin((comm.rank + 1) % ranks, here, (comm.rank + ranks - 1) % ranks, coming);
        try {
          comm.wait("step " + std::to_string(step));
        } catch (const RankLost&) {
          ++ranks_that_waited;
          throw;
        }
      }
    });
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a rank that does not come is named by one of its neighbours") {
  CHECK(message_of(4, [](Comm&, int) { return false; }).empty());
  const std::string line = message_of(4, [](Comm& comm, int step) { return comm.rank == 2 && step == 1; });
  const std::string left =
      "rank 1 has waited 3 s in step 1: received from rank 0, not taken by rank 2; expected both; see what rank 2 "
      "does";
  const std::string right =
      "rank 3 has waited 3 s in step 1: nothing from rank 2, sent to rank 0; expected both; see what rank 2 does";
  INFO(line);
  CHECK((line == left || line == right));
}

TEST_CASE("a rank that throws ends the others at once, with its own words") {
  CHECK(message_of(4, [](Comm& comm, int step) -> bool {
          if (comm.rank == 1 && step == 2) throw std::runtime_error("rank 1 has no memory");
          return false;
        }) == "rank 1 has no memory");
  CHECK(ranks_that_waited == 0);
}

TEST_CASE("ranks with other sizes disagree in one line") {
  const std::string line = [] {
    try {
      on_threads(2, 5, [](Comm& comm) {
        std::vector<std::byte> here(64), coming(comm.rank ? 60 : 64);
        const Withdraws at_an_error{comm};
        comm.begin(1 - comm.rank, here, 1 - comm.rank, coming);
        comm.wait("step 0");
      });
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  }();
  CHECK(line == "the message of rank 0 is 64 bytes; expected 60 in rank 1; give all ranks the same problem");
}
