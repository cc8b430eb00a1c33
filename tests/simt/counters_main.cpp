// counters_main.cpp: launches the kernels of counters.cu once each and prints what the machine counted, as CSV.
// Built for the GPU it runs under Nsight Compute, which does the counting there.
// Run: counters_checked > ours.csv, ncu_counters.sh on a GPU; counters_table.py joins the two.
#include <cstdio>

#include "tests/simt/counters.hpp"

#ifndef FLASH_COUNTERS_MACHINE
#define FLASH_COUNTERS_MACHINE on_gpu
#endif

int main() {
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
