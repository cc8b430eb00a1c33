// counters_main.cpp: launches the kernels of counters.cu once each and prints what the machine counted, as CSV.
// Built for the GPU it runs under Nsight Compute, which does the counting there.
// Run: counters_table.py PROGRAM puts it beside what ncu_counters.sh has read on a GPU.
// counters tma: those of counters_tma.cu, which move whole sectors by TMA; bytes and sectors of each kind.
#include <cstdio>
#include <cstring>

#include "tests/simt/counters.hpp"

#ifndef FLASH_COUNTERS_MACHINE
#define FLASH_COUNTERS_MACHINE on_gpu
#endif

namespace {

int print_tma() {
  const std::vector<flash::Ledger> ledgers = flash::FLASH_COUNTERS_MACHINE::run_tma_counters({});
  if (ledgers.size() != std::size(flash::tma_counter_cases)) return 1;
  std::printf("case,load sectors,store sectors,reduction sectors,load bytes,store bytes,reduction bytes\n");
  const auto number = [](std::uint64_t x) { return static_cast<unsigned long long>(x); };
  for (std::size_t i = 0; i < ledgers.size(); ++i) {
    flash::ArrayTraffic all;
    for (const flash::ArrayTraffic& a : ledgers[i].arrays) {
      all.read_sectors += a.read_sectors, all.write_sectors += a.write_sectors;
      all.reduce_sectors += a.reduce_sectors;
    }
    std::printf("%s,%llu,%llu,%llu,%llu,%llu,%llu\n", flash::tma_counter_cases[i], number(all.read_sectors),
                number(all.write_sectors), number(all.reduce_sectors), number(ledgers[i].hbm_read_bytes()),
                number(ledgers[i].hbm_written_bytes()), number(ledgers[i].hbm_reduced_bytes()));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "tma") == 0) return print_tma();
  const std::vector<flash::Ledger> ledgers = flash::FLASH_COUNTERS_MACHINE::run_counters({});
  if (ledgers.size() != std::size(flash::counter_cases)) return 1;
  std::printf(
      "case,global load requests,global load sectors,global store requests,global store sectors,"
      "shared load requests,shared store requests,shared wavefronts,shared bank conflicts\n");
  const auto number = [](std::uint64_t x) { return static_cast<unsigned long long>(x); };
  for (std::size_t i = 0; i < ledgers.size(); ++i) {
    std::uint64_t loads = 0, load_sectors = 0, stores = 0, store_sectors = 0;
    for (const flash::ArrayTraffic& a : ledgers[i].arrays) {
      loads += a.read_requests;
      load_sectors += a.read_sectors;
      stores += a.write_requests;
      store_sectors += a.write_sectors;
    }
    std::printf("%s,%llu,%llu,%llu,%llu,%llu,%llu,%llu,%llu\n", flash::counter_cases[i], number(loads),
                number(load_sectors), number(stores), number(store_sectors), number(ledgers[i].shared_read_requests),
                number(ledgers[i].shared_write_requests), number(ledgers[i].shared_wavefronts),
                number(ledgers[i].bank_conflicts()));
  }
  return 0;
}
