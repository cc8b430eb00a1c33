// ceilings_bench.cpp: flash-ceilings, the ceilings of the chip for kernels made of mma, ldmatrix and ex2, in SM cycles,
// which do not depend on the clock, and in seconds, which do. Some five seconds on an H200.
// flash-ceilings [results.json]
#include <cstdio>
#include <sstream>

#include "tests/bench/ceilings.hpp"
#include "tests/bench/results.hpp"

int main(int count, char** words) try {
  using namespace flash;
  using namespace flash::ceilings;
  if (count > 2) refuse("argument", std::string("'") + words[2] + "'", "one file for the results", "omit it");
  if (!available(Where::Gpu)) refuse("machine", "no CUDA device", "a GPU", "run this where there is one");
  int device = 0, multiprocessors = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    throw Error("the device does not say how many multiprocessors it has");
  std::vector<std::string> rows;
  for (const Mix& mix : mixes)
    for (const int warps : {4, 8, 16}) {
      const Load load{mix, multiprocessors, warps, 80000 / warps};
      const Measured measured = measure_on(Where::Gpu)(load, 50);
      const Timing& timing = measured.run.timing;
      const double sm_cycles = measured.cycles * multiprocessors;
      std::ostringstream row;
      row << "{\"sweep\": \"ceilings\", \"mix\": " << json_string(name(mix)) << ", \"warps\": " << warps
          << ", \"cycles\": " << static_cast<std::uint64_t>(measured.cycles) << ", \"samples\": " << timing.samples
          << ", \"median_ms\": " << timing.median_ms << ", \"p10_ms\": " << timing.p10_ms
          << ", \"p90_ms\": " << timing.p90_ms << ", \"sm_mhz\": " << measured.cycles / timing.median_ms / 1000;
      if (mix.mma)
        row << ", \"mma_flop_per_clk\": " << static_cast<double>(mma_flops(load)) / sm_cycles
            << ", \"tflops\": " << static_cast<double>(mma_flops(load)) / timing.median_ms * 1e-9;
      if (mix.ldmatrix)
        row << ", \"ldmatrix_bytes_per_clk\": " << static_cast<double>(ldmatrix_bytes(load)) / sm_cycles;
      if (mix.ex2) row << ", \"ex2_per_clk\": " << static_cast<double>(ex2_count(load)) / sm_cycles;
      rows.push_back(row.str() + "}");
      std::printf("%s\n", rows.back().c_str());
    }
  if (count > 1) bench::write_file(words[1], bench::results_text(bench::environment(), rows));
} catch (const flash::Error& e) {
  std::fprintf(stderr, "flash-ceilings: %s\n", e.what());
  return 2;
}
