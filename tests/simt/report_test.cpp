// report_test.cpp: what the machine counted, as integers, as JSON and as a table: every figure derived by hand, and no
// two of one kernel alike where they could be taken for each other. The trace's file too.
// Run: ctest -R simt_report
#include "sim/report/report.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <tuple>

#include "sim/error.hpp"
#include "sim/report/trace.hpp"
#include "tests/simt/report.hpp"

using flash::KernelReport;
using flash::Ledger;

TEST_CASE("a kernel's name has the types that its author wrote") {
  for (const std::vector<KernelReport>& reports : {flash::on_sim::run_typed({}), flash::on_checked::run_typed({})}) {
    REQUIRE(reports.size() == 2);
    CHECK(reports[0].kernel == "doubled<__half, 2>");
    CHECK(reports[1].kernel == "doubled<__nv_bfloat16, 3>");
  }
}

// uneven: 6 blocks of 2 warps. Per warp: loads of `in` 2 requests of 4 sectors and 128 bytes, 1 store of `out`; shared:
// 1 store, 3 loads; wavefronts 1 for the store, 2 for the strided load, 1 for the reversed one, 1 for the broadcast.
TEST_CASE("every figure stands where it belongs, in JSON and in the table") {
  const std::vector<KernelReport> reports = flash::on_checked::run_uneven({});
  REQUIRE(reports.size() == 2);
  CHECK(flash::to_json({reports[0]}) ==
        "[\n  {\"kernel\": \"uneven\", \"grid\": [1, 3, 2], \"block\": [16, 4, 1],\n"
        "   \"flops\": 2304, \"tensor_flops\": 0, \"exps\": 384, \"barriers\": 12, \"shared_bytes_peak\": 256, "
        "\"async_bytes_peak\": 0,\n"
        "   \"shared_read_requests\": 36, \"shared_write_requests\": 12, \"shared_wavefronts\": 60, "
        "\"bank_conflicts\": 12, \"wgmma_shared_bytes\": 0,\n"
        "   \"arrays\": [\n"
        "    {\"name\": \"in\", \"read_bytes\": 3072, \"read_requests\": 24, \"read_sectors\": 96, "
        "\"written_bytes\": 0, \"write_requests\": 0, \"write_sectors\": 0},\n"
        "    {\"name\": \"out\", \"read_bytes\": 0, \"read_requests\": 0, \"read_sectors\": 0, "
        "\"written_bytes\": 1536, \"write_requests\": 12, \"write_sectors\": 48}]}\n]\n");
  std::ostringstream table;
  print_report(table, reports[0]);
  CHECK(table.str() ==
        "uneven  grid (1,3,2)  block (16,4,1)\n"
        "  global memory                requested bytes    requests     sectors  sectors/req\n"
        "  in                  load                3072          24          96         4.00\n"
        "  out                 store               1536          12          48         4.00\n"
        "  shared load requests                      36  smsp__inst_executed_op_shared_ld\n"
        "  shared store requests                     12  smsp__inst_executed_op_shared_st\n"
        "  shared wavefronts                         60  l1tex__data_pipe_lsu_wavefronts_mem_shared\n"
        "  bank conflicts                            12  l1tex__data_bank_conflicts_pipe_lsu_mem_shared\n"
        "  shared memory per block                  256  launch__shared_mem_per_block\n"
        "  barriers of all blocks                    12  \n"
        "  FLOP                                    2304  \n"
        "  exp calls                                384  \n");
}

// tiles_ahead: 2 blocks of 2 warps, 3 tiles each. Per warp and tile: a copy of 512 bytes in 16 sectors, an ldmatrix of
// 4 wavefronts, an mma of 2 * 16 * 8 * 16 FLOP; per warp: a store of 128 bytes. A thread has two copies of 16 bytes
// under way, a block 2 * 16 * 64 bytes. What cp.async writes to shared memory is no request of its own.
TEST_CASE("tensor cores and asynchronous copies: every figure stands where it belongs") {
  const std::vector<KernelReport> reports = flash::on_checked::run_tiles_ahead({}).reports;
  REQUIRE(reports.size() == 2);
  CHECK(reports[1].ledger.async_bytes_peak == 0);  // the second launch copies nothing
  CHECK(flash::to_json({reports[0]}) ==
        "[\n  {\"kernel\": \"tiles_ahead\", \"grid\": [2, 1, 1], \"block\": [64, 1, 1],\n"
        "   \"flops\": 0, \"tensor_flops\": 49152, \"exps\": 0, \"barriers\": 6, \"shared_bytes_peak\": 3072, "
        "\"async_bytes_peak\": 2048,\n"
        "   \"shared_read_requests\": 12, \"shared_write_requests\": 0, \"shared_wavefronts\": 48, "
        "\"bank_conflicts\": 0, \"wgmma_shared_bytes\": 0,\n"
        "   \"arrays\": [\n"
        "    {\"name\": \"in\", \"read_bytes\": 6144, \"read_requests\": 12, \"read_sectors\": 192, "
        "\"written_bytes\": 0, \"write_requests\": 0, \"write_sectors\": 0},\n"
        "    {\"name\": \"out\", \"read_bytes\": 0, \"read_requests\": 0, \"read_sectors\": 0, "
        "\"written_bytes\": 512, \"write_requests\": 4, \"write_sectors\": 16}]}\n]\n");
  std::ostringstream table;
  print_report(table, reports[0]);
  CHECK(table.str() ==
        "tiles_ahead  grid (2,1,1)  block (64,1,1)\n"
        "  global memory                requested bytes    requests     sectors  sectors/req\n"
        "  in                  load                6144          12         192        16.00\n"
        "  out                 store                512           4          16         4.00\n"
        "  shared load requests                      12  smsp__inst_executed_op_shared_ld\n"
        "  shared store requests                      0  smsp__inst_executed_op_shared_st\n"
        "  shared wavefronts                         48  l1tex__data_pipe_lsu_wavefronts_mem_shared\n"
        "  bank conflicts                             0  l1tex__data_bank_conflicts_pipe_lsu_mem_shared\n"
        "  shared memory per block                 3072  launch__shared_mem_per_block\n"
        "  barriers of all blocks                     6  \n"
        "  bytes in flight per block               2048  \n"
        "  FLOP                                       0  \n"
        "  tensor FLOP                            49152  \n"
        "  exp calls                                  0  \n");
  for (const flash::Completion completion : {flash::Completion::eager, flash::Completion::random})
    CHECK(flash::on_checked::run_tiles_ahead({.completion = completion}).reports[0].ledger == reports[0].ledger);
}

TEST_CASE("additions of floats in no fixed order are told, array by array, whatever the schedule") {
  const std::vector<KernelReport> reports = flash::on_checked::run_added({});
  REQUIRE(reports[0].unordered.size() == 1);
  const flash::UnorderedAdditions& sums = reports[0].unordered[0];
  CHECK(sums.array == "sums");
  CHECK(sums.elements == 32);
  CHECK(sums.first.starts_with("report.cu:"));
  CHECK(sums.second == sums.first);
  CHECK(reports[1].unordered.empty());  // one block, after all of the last launch
  CHECK(flash::to_json({reports[0]})
            .ends_with(",\n   \"unordered_additions\": [\n    {\"name\": \"sums\", \"elements\": "
                       "32, \"first\": \"" +
                       sums.first + "\", \"second\": \"" + sums.first + "\"}]}\n]\n"));
  CHECK(flash::to_json({reports[1]}).find("unordered") == std::string::npos);
  std::ostringstream table;
  print_report(table, reports[0]);
  CHECK(
      table.str().ends_with("  additions in no fixed order               32  elements of sums, " + sums.first + "\n"));
  for (const flash::Order order : {flash::Order::forward, flash::Order::reverse, flash::Order::random})
    for (const int threads : {1, 3})
      CHECK(flash::on_checked::run_added({.order = order, .threads = threads})[0].unordered == reports[0].unordered);
  CHECK_THROWS_WITH_AS(flash::on_checked::run_added({.deterministic = true}), doctest::Contains("nondeterministic"),
                       flash::Error);
}

TEST_CASE("the trace: a copy lasts from its first lane to the wait that ends its group, beside its warp's bars") {
  std::vector<flash::TraceEvent> first;
  for (const flash::Order order : {flash::Order::forward, flash::Order::reverse, flash::Order::random})
    for (const flash::Completion completion :
         {flash::Completion::late, flash::Completion::eager, flash::Completion::random}) {
      std::vector<flash::TraceEvent> events =
          flash::on_checked::run_tiles_ahead({.order = order, .seed = 3, .completion = completion, .trace = "memory"})
              .trace;
      std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
        return std::tuple(a.block, a.warp, a.name, a.begin) < std::tuple(b.block, b.warp, b.name, b.begin);
      });
      // Of each of 4 warps: 3 barriers, 3 copies, 3 marks, 3 waits, in this order.
      REQUIRE(events.size() == 4 * 12);
      for (std::size_t warp = 0; warp < 4; ++warp)
        for (std::size_t tile = 0; tile < 3; ++tile) {
          const flash::TraceEvent *const of_warp = &events[warp * 12], &barrier = of_warp[tile];
          const flash::TraceEvent &copy = of_warp[3 + tile], &mark = of_warp[6 + tile], &wait = of_warp[9 + tile];
          CHECK(copy.name == "copy");
          CHECK(copy.beside);
          CHECK(copy.value == 512);
          CHECK(wait.name == "wait");
          CHECK(!wait.beside);
          CHECK(wait.value == 1);
          CHECK(copy.end == wait.end);
          CHECK(wait.begin < wait.end);
          CHECK(wait.end <= barrier.begin);
          CHECK(mark.begin <= wait.begin);
          CHECK(wait.end <= mark.end);
          if (tile == 0) CHECK(copy.begin < mark.begin);
          if (tile > 0) CHECK(of_warp[6 + tile - 1].begin < copy.begin);
          if (tile > 0) CHECK(copy.begin < of_warp[3 + tile - 1].end);  // one is under way while the next begins
        }
      if (first.empty()) first = events;
      for (std::size_t i = 0; i < events.size(); ++i) {
        CHECK(events[i].begin == first[i].begin);
        CHECK(events[i].end == first[i].end);
      }
    }
}

TEST_CASE("a launch counts what is its own") {
  const std::vector<KernelReport> reports = flash::on_checked::run_uneven({.threads = 1});
  Ledger sum;
  for (int block = 0; block < 6; ++block) sum.add(reports[1].ledger);  // it had one block, the first launch six
  CHECK(sum == reports[0].ledger);
  CHECK(reports[1].ledger.shared_bytes_peak == reports[0].ledger.shared_bytes_peak);
  // Nobody says which worker takes which block: of so many launches each worker has its share of some.
  for (int round = 0; round < 200; ++round) {
    const std::vector<KernelReport> again = flash::on_checked::run_uneven({.threads = 2 + round % 2});
    CHECK(again[0].ledger == reports[0].ledger);
  }
}

TEST_CASE("adding ledgers adds each figure to its own") {
  Ledger a;
  a.array("x") = {"x", 1, 2, 3, 4, 5, 6};
  a.flops = 7, a.exps = 8, a.rescales = 9, a.shared_bytes_peak = 10, a.barriers = 11;
  a.tensor_flops = 16, a.async_bytes_peak = 17, a.wgmma_shared_bytes = 18;
  a.shared_read_requests = 12, a.shared_write_requests = 13, a.shared_wavefronts = 15, a.shared_wavefronts_ideal = 14;
  Ledger b = a;
  b.array("y") = {"y", 100, 200, 300, 400, 500, 600};
  b.shared_bytes_peak = 9;
  b.add(a);
  Ledger want;
  want.array("x") = {"x", 2, 4, 6, 8, 10, 12};
  want.array("y") = {"y", 100, 200, 300, 400, 500, 600};
  want.flops = 14, want.exps = 16, want.rescales = 18, want.shared_bytes_peak = 10, want.barriers = 22;
  want.tensor_flops = 32, want.async_bytes_peak = 17, want.wgmma_shared_bytes = 36;
  want.shared_read_requests = 24, want.shared_write_requests = 26;
  want.shared_wavefronts = 30, want.shared_wavefronts_ideal = 28;
  CHECK(b == want);
  CHECK(b.hbm_read_bytes() == 102);
  CHECK(b.hbm_written_bytes() == 204);
  CHECK(b.bank_conflicts() == 2);
}

// 64 bytes from each of two places: the sectors come in the order 0, 8, 0, 8, …
TEST_CASE("a sector that several lanes touch counts once, in whatever order they do") {
  const Ledger l = flash::on_checked::run_interleaved({})[0].ledger;
  CHECK(l.arrays[0].read_requests == 1);
  CHECK(l.arrays[0].read_sectors == 4);
  CHECK(l.arrays[0].read_bytes == 128);
}

// A lane that takes no part agrees with its neighbour: the load is served by half warps, four lanes and 64 bytes each.
// The store before it: lanes 0 to 7, 128 bytes, no two at one address, so by quarter warps; only the first has lanes.
TEST_CASE("lanes that take no part do not divide a wide load") {
  const Ledger l = flash::on_checked::run_sparse({})[0].ledger;
  CHECK(l.shared_read_requests == 1);
  CHECK(l.shared_write_requests == 1);
  CHECK(l.shared_wavefronts == 2 + 1);
  CHECK(l.bank_conflicts() == 0);
  CHECK(l.arrays[0].written_bytes == 8 * 16);
}

// Of the 32 requests of a block's loop, 20 are of one sector. Request i of the others has the words from i to 31. Bytes
// are asked for by 32 + 31 + … + 1 lanes. Of eight rows the first begins with a sector.
TEST_CASE("lanes that leave a loop early, and part on the way, count where they were") {
  for (const flash::Order order : {flash::Order::forward, flash::Order::reverse}) {
    CAPTURE(static_cast<int>(order));
    const Ledger l = flash::on_checked::run_ragged({.order = order})[0].ledger;
    CHECK(l.arrays[0].read_requests == 4 * 32);
    CHECK(l.arrays[0].read_sectors == 4 * (20 + 4 * 2 + 8));
    CHECK(l.arrays[0].read_bytes == 4 * 4 * (32 * 33 / 2));
    CHECK(l.arrays[1].read_requests == 4 * 8);
    CHECK(l.arrays[1].read_sectors == 4 * (4 + 7 * 5));
  }
}

TEST_CASE("an array that is gone is not reported") {
  const Ledger l = flash::on_checked::run_freed({})[0].ledger;
  REQUIRE(l.arrays.size() == 2);
  CHECK(l.arrays[0].name == "in");
  CHECK(l.arrays[1].name == "out");
  CHECK(l.arrays[1].written_bytes == 128);
}

// A machine that does not count reports no traffic, but what it knows.
TEST_CASE("the fast machine reports barriers and shared memory alone") {
  const KernelReport report = flash::on_sim::run_uneven({})[0];
  Ledger want;
  want.barriers = 12, want.shared_bytes_peak = 256;
  CHECK(report.ledger == want);
  CHECK(report.grid == std::array<unsigned, 3>{1, 3, 2});
  CHECK(report.block == std::array<unsigned, 3>{16, 4, 1});
}

TEST_CASE("the trace: a bar begins when it begins and is as long as it is") {
  std::vector<KernelReport> launches(2);
  launches[0].kernel = "first", launches[1].kernel = "second \"quoted\"";
  std::ostringstream out;
  const std::vector<flash::TraceEvent> events = {
      {0, {1, 2, 3}, 4, "load", 5, 6, 13},       {1, {1, 2, 3}, 0, "sum", -2, 0, 1},
      {0, {1, 2, 4}, 0, "sum", 7, 0, 3},         {0, {1, 2, 3}, 1, "x", 0, 2, 4},
      {0, {1, 2, 3}, 1, "copy", 64, 3, 9, true}, {0, {1, 2, 3}, 1, "copy", 32, 5, 11, true}};
  flash::simt::write_trace(out, events, launches);
  CHECK(
      out.str() ==
      "{\"traceEvents\": [\n"
      "{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"name\": \"0 first block (1,2,3)\"}},\n"
      "{\"name\": \"load\", \"ph\": \"X\", \"pid\": 0, \"tid\": 4, \"ts\": 6, \"dur\": 7, \"args\": {\"value\": 5}},\n"
      "{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 1, \"args\": {\"name\": \"1 second \\\"quoted\\\" block "
      "(1,2,3)\"}},\n"
      "{\"name\": \"sum\", \"ph\": \"X\", \"pid\": 1, \"tid\": 0, \"ts\": 0, \"dur\": 1, \"args\": {\"value\": -2}},\n"
      "{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 2, \"args\": {\"name\": \"0 first block (1,2,4)\"}},\n"
      "{\"name\": \"sum\", \"ph\": \"X\", \"pid\": 2, \"tid\": 0, \"ts\": 0, \"dur\": 3, \"args\": {\"value\": 7}},\n"
      "{\"name\": \"x\", \"ph\": \"X\", \"pid\": 0, \"tid\": 1, \"ts\": 2, \"dur\": 2, \"args\": {\"value\": 0}},\n"
      "{\"name\": \"copy\", \"ph\": \"b\", \"cat\": \"warp 1\", \"id\": 0, \"pid\": 0, \"tid\": 1, \"ts\": 3, "
      "\"args\": {\"value\": 64}},\n"
      "{\"name\": \"copy\", \"ph\": \"e\", \"cat\": \"warp 1\", \"id\": 0, \"pid\": 0, \"tid\": 1, \"ts\": 9},\n"
      "{\"name\": \"copy\", \"ph\": \"b\", \"cat\": \"warp 1\", \"id\": 1, \"pid\": 0, \"tid\": 1, \"ts\": 5, "
      "\"args\": {\"value\": 32}},\n"
      "{\"name\": \"copy\", \"ph\": \"e\", \"cat\": \"warp 1\", \"id\": 1, \"pid\": 0, \"tid\": 1, \"ts\": 11}\n"
      "]}\n");
}
