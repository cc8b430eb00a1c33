// report_test.cpp: what the machine counted, as integers, as JSON and as a table: every figure derived by hand, and no
// two of one kernel alike where they could be taken for each other. The trace's file too.
// Run: ctest -R simt_report
#include "sim/report/report.hpp"

#include <doctest/doctest.h>

#include <sstream>

#include "sim/report/trace.hpp"
#include "tests/simt/report.hpp"

using flash::KernelReport;
using flash::Ledger;

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
        "\"bank_conflicts\": 12,\n"
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

TEST_CASE("a launch counts what is its own") {
  const std::vector<KernelReport> reports = flash::on_checked::run_uneven({});
  Ledger sum;
  for (int block = 0; block < 6; ++block) sum.add(reports[1].ledger);  // it had one block, the first launch six
  CHECK(sum == reports[0].ledger);
  CHECK(reports[1].ledger.shared_bytes_peak == reports[0].ledger.shared_bytes_peak);
  for (const int threads : {1, 2, 3}) {
    const std::vector<KernelReport> again = flash::on_checked::run_uneven({.threads = threads});
    CHECK(again[0].ledger == reports[0].ledger);
  }
}

TEST_CASE("adding ledgers adds each figure to its own") {
  Ledger a;
  a.array("x") = {"x", 1, 2, 3, 4, 5, 6};
  a.flops = 7, a.exps = 8, a.rescales = 9, a.shared_bytes_peak = 10, a.barriers = 11;
  a.shared_read_requests = 12, a.shared_write_requests = 13, a.shared_wavefronts = 15, a.shared_wavefronts_ideal = 14;
  Ledger b = a;
  b.array("y") = {"y", 100, 200, 300, 400, 500, 600};
  b.shared_bytes_peak = 9;
  b.add(a);
  Ledger want;
  want.array("x") = {"x", 2, 4, 6, 8, 10, 12};
  want.array("y") = {"y", 100, 200, 300, 400, 500, 600};
  want.flops = 14, want.exps = 16, want.rescales = 18, want.shared_bytes_peak = 10, want.barriers = 22;
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
  const std::vector<flash::TraceEvent> events = {{0, {1, 2, 3}, 4, "load", 5, 6, 13},
                                                 {1, {1, 2, 3}, 0, "sum", -2, 0, 1},
                                                 {0, {1, 2, 4}, 0, "sum", 7, 0, 3},
                                                 {0, {1, 2, 3}, 1, "x", 0, 2, 4}};
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
      "{\"name\": \"x\", \"ph\": \"X\", \"pid\": 0, \"tid\": 1, \"ts\": 2, \"dur\": 2, \"args\": {\"value\": 0}}\n"
      "]}\n");
}
