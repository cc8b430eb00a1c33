// bulk_test.cpp: copies of bytes, bulk reductions, mbarriers that are asked and made anew: right, silent and counted
// alike under every schedule and whenever copies complete. The wrong ones are in museum_bulk.cu.
// Run: ctest -L simt, or simt_bulk_test; the GPU takes part where there is one of compute capability 9.0.
#include "tests/simt/bulk.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "phases/interface/where.hpp"
#include "sim/core/bulk.hpp"
#include "sim/report/recording.hpp"
#include "sim/report/report.hpp"
#include "tests/skip.hpp"

namespace {

using flash::BulkCase, flash::BulkResult, flash::Completion, flash::MachineOptions, flash::Order;

std::vector<MachineOptions> schedules() {
  std::vector<MachineOptions> all;
  for (const Order order : {Order::forward, Order::reverse, Order::random})
    for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
      for (const int threads : {1, 4})
        all.push_back({.order = order, .seed = 3, .completion = completion, .threads = threads, .keep_going = true});
  return all;
}

// All are whole numbers, so that their sums are exact in any order.
void is_right(const BulkCase& c, const BulkResult& r) {
  std::vector<float> sum(c.floats), seen, out;
  for (unsigned block = 0; block < c.blocks; ++block)
    for (unsigned i = 0; i < c.floats; ++i) {
      const auto x = static_cast<float>((block * c.floats + i) % 1000);
      seen.push_back(x), out.push_back(2 * x), sum[i] += 2 * x + (c.atomics_beside ? 1 : 0);
    }
  CHECK(r.seen == seen);
  CHECK(r.out == out);
  CHECK(r.sum == sum);
  CHECK(r.answers == std::vector<unsigned>{1, 0, 1, 1, 0, 1});
  for (const flash::Finding& finding : r.findings) MESSAGE(finding.text);
  CHECK(r.findings.empty());
}

const BulkCase cases[] = {{4, 1}, {8, 3}, {100, 5}, {1024, 2}, {64, 6, false, true}, {64, 4, true}};

}  // namespace

TEST_CASE("bytes are copied, stored and added, under every schedule") {
  for (const BulkCase& c : cases) {
    CAPTURE(c.floats);
    const BulkResult first = flash::on_checked::run_bulk({.keep_going = true}, c);
    is_right(c, first);
    for (const MachineOptions& options : schedules()) {
      const BulkResult other = flash::on_checked::run_bulk(options, c);
      is_right(c, other);
      if (!c.turns) CHECK(other.ledger == first.ledger);  // who asks for its turn asks more or less often
      is_right(c, flash::on_sim::run_bulk(options, c));
    }
  }
}

// Many workers add to the same floats at the same time.
TEST_CASE("no addition is lost") {
  const BulkCase c{256, 64, false, true};
  is_right(c, flash::on_sim::run_bulk({.threads = 8}, c));
  is_right(c, flash::on_checked::run_bulk({.threads = 8}, c));
}

TEST_CASE("blocks that take turns find the sum of all before them") {
  const BulkCase c{64, 4, true};
  for (const MachineOptions& options : schedules()) {
    const BulkResult r = flash::on_checked::run_bulk(options, c);
    for (unsigned turn = 0; turn < c.blocks; ++turn)
      for (unsigned i = 0; i < c.floats; ++i) {
        const float before = r.before[turn * c.floats + i];
        const float after = turn + 1 < c.blocks ? r.before[(turn + 1) * c.floats + i] : r.sum[i];
        CHECK((turn > 0 || before == 0));
        CHECK(std::fmod((after - before) / 2 - static_cast<float>(i), 64.0f) == 0);
      }
  }
}

TEST_CASE("what bulk copies move is counted: bytes, sectors, one request each") {
  const BulkCase c{100, 5};
  const BulkResult r = flash::on_checked::run_bulk({}, c);
  const auto traffic = [&](const char* name) {
    for (const flash::ArrayTraffic& a : r.ledger.arrays)
      if (a.name == name) return a;
    return flash::ArrayTraffic{};
  };
  // 400 bytes that begin at a multiple of 400, which is one of 16, of a sector in every second block.
  CHECK(traffic("in") == flash::ArrayTraffic{"in", 5 * 400, 0, 5, 3 * 13 + 2 * 13});
  CHECK(traffic("out") == flash::ArrayTraffic{"out", 0, 5 * 400, 0, 0, 5, 5 * 13});
  CHECK(traffic("sum") == flash::ArrayTraffic{"sum", 0, 0, 0, 0, 0, 0, 5 * 400, 5, 5 * 13});
  CHECK(r.ledger.hbm_reduced_bytes() == 5 * 400);
  CHECK(r.ledger.hbm_bytes() == r.ledger.hbm_read_bytes() + r.ledger.hbm_written_bytes() + 5 * 400);
  const std::string json = flash::to_json({{"k", {1, 1, 1}, {1, 1, 1}, r.ledger, {}}});
  CHECK(json.find("\"reduced_bytes\": 2000, \"reduce_requests\": 5, \"reduce_sectors\": 65}") != std::string::npos);
}

TEST_CASE("the trace shows each copy until its mbarrier's phase is complete, and who asked for it") {
  const BulkResult r = flash::on_checked::run_bulk({.trace = "memory"}, {100, 1});
  unsigned copies = 0, waits = 0;
  for (const flash::TraceEvent& event : r.trace) {
    copies += event.name == "copy" && event.value == 400;
    waits += event.name == "wait";
  }
  CHECK(copies == 1);
  CHECK(waits >= 2);
}

TEST_CASE("a recording has the bytes of bulk copies, what is added as written, and the mbarrier that was asked") {
  flash::Recording recording;
  const BulkResult r = flash::on_checked::run_bulk({.recording = &recording}, {100, 2});
  is_right({100, 2}, r);
  const std::vector<flash::ArrayTraffic> recorded = recording.traffic(recording.steps.size());
  for (const flash::ArrayTraffic& ours : r.ledger.arrays)
    for (const flash::ArrayTraffic& a : recorded) {
      if (a.name != ours.name) continue;
      CHECK(a.read_bytes == ours.read_bytes);
      CHECK(a.written_bytes == ours.written_bytes + ours.reduced_bytes);
    }
  using Kind = flash::Recording::Kind;
  const auto bytes = [&](Kind kind) {
    std::uint64_t sum = 0;
    for (const flash::Recording::Step& step : recording.steps)
      for (const flash::Recording::Part& part : step.parts) sum += part.kind == kind ? part.bytes : 0;
    return sum;
  };
  CHECK(bytes(Kind::copy) == 2 * 400);
  CHECK(bytes(Kind::landed) == 2 * 400);
  CHECK(bytes(Kind::store) == 2 * 2 * 400);
  CHECK(bytes(Kind::stored) == 2 * 2 * 400);
  const auto waited = [](const flash::Recording::Step& step) { return !step.waited.empty(); };
  CHECK(std::any_of(recording.steps.begin(), recording.steps.end(), waited));
  CHECK(flash::to_json(recording).find("\"sum\":[0,800]") != std::string::npos);
}

TEST_CASE("a bulk reduction adds as an H200 does: subnormals kept, one NaN") {
  using limits = std::numeric_limits<float>;
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  CHECK(bits(flash::simt::bulk_sum(limits::denorm_min(), limits::denorm_min())) == 2);
  CHECK(bits(flash::simt::bulk_sum(limits::min(), -limits::denorm_min())) == 0x007fffff);
  CHECK(bits(flash::simt::bulk_sum(-0.0f, -0.0f)) == 0x80000000);
  CHECK(bits(flash::simt::bulk_sum(limits::infinity(), -limits::infinity())) == 0x7fffffff);
  CHECK(bits(flash::simt::bulk_sum(limits::signaling_NaN(), 1)) == 0x7fffffff);
  CHECK(flash::simt::bulk_sum(1, 0x1p-24f) == 1);  // to even
  CHECK(flash::simt::bulk_sum(1 + 0x1p-23f, 0x1p-24f) == 1 + 0x1p-22f);
}

#ifdef FLASH_HAVE_CUDA
TEST_CASE("the GPU agrees") {
  const flash::Features hopper{.kernel = true, .capability = {9, 0, true}};
  if (!flash::available(hopper, flash::Where::Gpu)) return flash::test::skip("no GPU of compute capability 9.0");
  for (const BulkCase& c : cases) is_right(c, flash::on_gpu::run_bulk({}, c));
}
#endif
