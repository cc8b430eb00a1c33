// counters_test.cpp: the checked machine's counters of tests/simt/counters.cu against formulas, as integers.
// What Nsight Compute reads on an H200 for the same source is in docs/results/counters-h200.md.
// Run: ctest -L simt, or simt_counters_test
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/simt/counters.hpp"

namespace {

using flash::Ledger;

struct Traffic {
  std::uint64_t load_requests, load_sectors, store_requests, store_sectors;
  bool operator==(const Traffic&) const = default;
};

Traffic traffic(const Ledger& ledger) {
  Traffic sum{};
  for (const flash::ArrayTraffic& a : ledger.arrays) {
    sum.load_requests += a.read_requests;
    sum.load_sectors += a.read_sectors;
    sum.store_requests += a.write_requests;
    sum.store_sectors += a.write_sectors;
  }
  return sum;
}

struct Shared {
  std::uint64_t load_requests, store_requests, wavefronts, conflicts;
  bool operator==(const Shared&) const = default;
};

Shared shared_traffic(const Ledger& l) {
  return {l.shared_read_requests, l.shared_write_requests, l.shared_wavefronts, l.bank_conflicts()};
}

const std::vector<Ledger>& ledgers() {
  static const std::vector<Ledger> all = flash::on_checked::run_counters({});
  REQUIRE(all.size() == std::size(flash::counter_cases));
  return all;
}

const Ledger& ledger(const char* name) {
  for (std::size_t i = 0; i < std::size(flash::counter_cases); ++i)
    if (std::strcmp(flash::counter_cases[i], name) == 0) return ledgers()[i];
  FAIL("no such case: ", name);
  return ledgers()[0];
}

constexpr std::uint64_t n = 1 << 14;     // elements of a copy; also of a 128 x 128 matrix
constexpr std::uint64_t warps = n / 32;  // requests when each lane moves one element
constexpr std::uint64_t coalesced = 4;   // sectors of 32 lanes * 4 bytes
constexpr Shared no_shared{0, 0, 0, 0};

// Rows of docs/results/ncu-counters.csv: "ID", ..., "Metric Name", "Metric Unit", "Metric Value"; one ID per launch.
std::map<std::size_t, std::map<std::string, std::uint64_t>> read_by_ncu(const std::string& name) {
  std::map<std::size_t, std::map<std::string, std::uint64_t>> hardware;
  std::ifstream file(FLASH_SOURCE_DIR "/docs/results/" + name);
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> fields{""};
    for (std::size_t i = 1; i + 1 < line.size(); ++i) {  // between the first and the last quote
      if (line.compare(i, 3, "\",\"") == 0) {
        fields.emplace_back();
        i += 2;
      } else if (line[i] != ',') {  // 16,384
        fields.back() += line[i];
      }
    }
    if (fields.size() > 3 && fields[0] != "ID")
      hardware[std::stoul(fields[0])][fields[fields.size() - 3]] = std::stoull(fields.back());
  }
  return hardware;
}

}  // namespace

TEST_CASE("copies: sectors per request") {
  CHECK(traffic(ledger("copy_float")) == Traffic{warps, coalesced * warps, warps, coalesced * warps});
  // A quarter of the requests, each four times as wide.
  CHECK(traffic(ledger("copy_float4")) == Traffic{warps / 4, 16 * warps / 4, warps / 4, 16 * warps / 4});
  // 128 bytes that begin 4 bytes into a sector touch five.
  CHECK(traffic(ledger("copy_shifted")) == Traffic{warps, 5 * warps, warps, coalesced * warps});
  CHECK(traffic(ledger("copy_stride_2")) == Traffic{warps, 8 * warps, warps, coalesced * warps});
  CHECK(traffic(ledger("copy_stride_8")) == Traffic{warps, 32 * warps, warps, coalesced * warps});
  for (const char* name : {"copy_float", "copy_float4", "copy_shifted", "copy_stride_2", "copy_stride_8"}) {
    CAPTURE(name);
    CHECK(shared_traffic(ledger(name)) == no_shared);
    CHECK(ledger(name).hbm_read_bytes() == 4 * n);  // requested bytes know no stride
    CHECK(ledger(name).hbm_written_bytes() == 4 * n);
    CHECK(ledger(name).barriers == 0);
  }
}

TEST_CASE("transposes: strided stores, bank conflicts, padding") {
  CHECK(traffic(ledger("transpose_direct")) == Traffic{warps, coalesced * warps, warps, 32 * warps});
  CHECK(shared_traffic(ledger("transpose_direct")) == no_shared);
  for (const char* name : {"transpose_tile", "transpose_padded"}) {
    CAPTURE(name);
    CHECK(traffic(ledger(name)) == Traffic{warps, coalesced * warps, warps, coalesced * warps});
    CHECK(ledger(name).barriers == n / 1024);  // one per block
  }
  // A column of float[32][32] lies in one bank: the load takes 32 wavefronts where 1 is ideal.
  CHECK(shared_traffic(ledger("transpose_tile")) == Shared{warps, warps, (1 + 32) * warps, 31 * warps});
  CHECK(shared_traffic(ledger("transpose_padded")) == Shared{warps, warps, 2 * warps, 0});
  CHECK(ledger("transpose_tile").shared_bytes_peak == 32 * 32 * 4);
  CHECK(ledger("transpose_padded").shared_bytes_peak == 32 * 33 * 4);
}

TEST_CASE("16-byte accesses to shared memory are served by quarter warps, without conflicts") {
  CHECK(shared_traffic(ledger("shared_float4")) == Shared{4, 4, 4 * (4 + 4), 0});
  CHECK(traffic(ledger("shared_float4")) == Traffic{4, 16 * 4, 4, 16 * 4});
}

TEST_CASE("tiled matrix product") {
  constexpr std::uint64_t blocks = 16, k_tiles = 4, block_warps = 32;
  constexpr std::uint64_t tile_loads = blocks * k_tiles * block_warps * 2;  // a's and b's tile, one request per warp
  constexpr std::uint64_t products = blocks * k_tiles * block_warps * 32;   // fmaf per warp
  CHECK(traffic(ledger("matmul_tiled")) == Traffic{tile_loads, coalesced * tile_loads, warps, coalesced * warps});
  // a[y][k] is a broadcast, b[k][x] a row: one wavefront each.
  CHECK(shared_traffic(ledger("matmul_tiled")) == Shared{2 * products, tile_loads, tile_loads + 2 * products, 0});
  CHECK(ledger("matmul_tiled").flops == 2 * 128 * 128 * 128);
  CHECK(ledger("matmul_tiled").barriers == blocks * k_tiles * 2);
}

TEST_CASE("every schedule gives the same counters") {
  for (flash::Order order : {flash::Order::reverse, flash::Order::random})
    for (std::uint64_t seed = 0; seed < (order == flash::Order::random ? 20 : 1); ++seed) {
      CAPTURE(seed);
      CHECK(flash::on_checked::run_counters({.order = order, .seed = seed}) == ledgers());
    }
}

TEST_CASE("the same numbers as Nsight Compute read on an H200") {
  const auto hardware = read_by_ncu("ncu-counters.csv");
  REQUIRE(hardware.size() == ledgers().size());
  for (std::size_t i = 0; i < ledgers().size(); ++i) {
    CAPTURE(i);
    const auto metric = [&](const std::string& name) { return hardware.at(i).at(name + ".sum"); };
    const std::string lsu = "_pipe_lsu_mem_global_op_";
    CHECK(traffic(ledgers()[i]) ==
          Traffic{metric("l1tex__t_requests" + lsu + "ld"), metric("l1tex__t_sectors" + lsu + "ld"),
                  metric("l1tex__t_requests" + lsu + "st"), metric("l1tex__t_sectors" + lsu + "st")});
    const std::string wavefronts = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_",
                      conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_";
    CHECK(shared_traffic(ledgers()[i]) == Shared{metric("smsp__sass_inst_executed_op_shared_ld"),
                                                 metric("smsp__sass_inst_executed_op_shared_st"),
                                                 metric(wavefronts + "ld") + metric(wavefronts + "st"),
                                                 metric(conflicts + "ld") + metric(conflicts + "st")});
  }
}

TEST_CASE("what TMA moves: bytes and sectors of loads, stores and reductions, each by itself") {
  const std::vector<Ledger> all = flash::on_checked::run_tma_counters({});
  REQUIRE(all.size() == std::size(flash::tma_counter_cases));
  constexpr std::uint64_t bytes = 64 * 1024;
  const auto moved = [&](const char* name) {
    flash::ArrayTraffic sum;
    for (std::size_t i = 0; i < all.size(); ++i)
      for (const flash::ArrayTraffic& a : all[i].arrays) {
        if (std::strcmp(flash::tma_counter_cases[i], name) != 0) continue;
        sum.read_bytes += a.read_bytes, sum.read_requests += a.read_requests, sum.read_sectors += a.read_sectors;
        sum.written_bytes += a.written_bytes, sum.write_requests += a.write_requests;
        sum.write_sectors += a.write_sectors, sum.reduced_bytes += a.reduced_bytes;
        sum.reduce_requests += a.reduce_requests, sum.reduce_sectors += a.reduce_sectors;
      }
    return sum;
  };
  using flash::ArrayTraffic;
  for (const char* name : {"bulk_load", "tensor_load"})
    CHECK(moved(name) == ArrayTraffic{"", bytes, 0, 64, bytes / 32});
  for (const char* name : {"bulk_store", "tensor_store"})
    CHECK(moved(name) == ArrayTraffic{"", 0, bytes, 0, 0, 64, bytes / 32});
  for (const char* name : {"bulk_reduce", "bulk_reduce_one"})
    CHECK(moved(name) == ArrayTraffic{"", 0, 0, 0, 0, 0, 0, bytes, 64, bytes / 32});
  // An atomic counts as a read and a write, a request for each warp.
  CHECK(moved("atomic_add") == ArrayTraffic{"", bytes, bytes, bytes / 128, bytes / 32, bytes / 128, bytes / 32});
  // The multiprocessors of an H200 ask the same of its L2 cache; for a box of a tensor its map, too.
  const auto hardware = read_by_ncu("ncu-counters-tma.csv");
  REQUIRE(hardware.size() == all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string name = flash::tma_counter_cases[i];
    CAPTURE(name);
    const auto sectors = [&](const char* op) {
      return hardware.at(i).at(std::string("lts__t_sectors_srcunit_tex_op_") + op + ".sum");
    };
    ArrayTraffic ours = moved(name.c_str());
    if (name == "atomic_add") std::swap(ours.reduce_sectors, ours.write_sectors), ours.read_sectors = 0;
    CHECK(sectors("red") + sectors("atom") == ours.reduce_sectors);
    CHECK(sectors("write") == ours.write_sectors);
    CHECK(sectors("read") >= ours.read_sectors);
    if (!name.starts_with("tensor")) CHECK(sectors("read") == ours.read_sectors);
  }
}
