// diet_bench.cpp: the staircase of phase 13 on a GPU, between phases 12 and 13: each step verified, then timed in turn.
// bf16, D = 128, H = 16, B · N = 16384. The page "From 12 to 13" counts what the steps do; this says what it is worth.
// flash-diet-bench [results.json]      about a minute on an H200
#include <cmath>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "phases/12-async-copies/phase.hpp"
#include "phases/13-instruction-diet/steps/steps.hpp"
#include "tests/bench/forward_check.hpp"
#include "tests/bench/results.hpp"

using namespace flash;
using namespace flash::bench;
using phase13::run_step, phase13::step_count, phase13::step_names;

namespace {

constexpr std::int64_t H = 16, D = 128, BN = 16384;
constexpr int rounds = 3;

// Phase 12 with its tiles, the steps, phase 13 with its tiles.
constexpr std::size_t kernel_count = step_count + 2;
std::string name_of(std::size_t kernel) {
  return kernel == 0 ? phase12::phase.name : kernel > step_count ? phase13::phase.name : step_names[kernel - 1];
}
Run run(std::size_t kernel, const Problem<bfloat16>& p, const MachineOptions& options) {
  if (kernel == 0) return phase12::forward(p, Where::Gpu, options);
  if (kernel > step_count) return phase13::forward(p, Where::Gpu, options);
  return run_step(kernel - 1, p, Where::Gpu, options);
}

std::string row_text(const Row& row) {
  std::ostringstream s;
  const Case& c = row.at;
  s << "{\"sweep\": \"diet\", \"kernel\": " << json_string(row.kernel) << ", \"B\": " << c.B << ", \"H\": " << c.H
    << ", \"N\": " << c.N << ", \"D\": " << c.D << ", \"causal\": " << (c.causal ? "true" : "false")
    << ", \"type\": \"bfloat16\", \"samples\": " << row.timing.samples << ", \"median_ms\": " << row.timing.median_ms
    << ", \"lowest_ms\": " << row.timing.p10_ms << ", \"highest_ms\": " << row.timing.p90_ms
    << ", \"tflops\": " << tflops(row) << ", \"sm_mhz\": " << row.timing.sm_mhz << ", \"error\": " << row.error
    << ", \"rounding_floor\": " << row.floor << "}";
  return s.str();
}

}  // namespace

int main(int count, char** words) try {
  constexpr auto numbers = static_cast<std::size_t>(BN * H * D);
  const std::vector<bfloat16> q = random_numbers(numbers, 0), k = random_numbers(numbers, 1),
                              v = random_numbers(numbers, 2);
  std::vector<bfloat16> o(q.size());
  std::vector<float> lse(q.size() / D);
  std::vector<std::string> rows;
  for (const bool causal : {false, true})
    for (const std::int64_t N : {512, 2048, 8192}) {
      const std::array<std::int64_t, 4> shape{BN / N, H, N, D};
      const Problem<bfloat16> p{dense_view(q.data(), shape),
                                dense_view(k.data(), shape),
                                dense_view(v.data(), shape),
                                dense_view(o.data(), shape),
                                lse.data(),
                                {.mask = causal ? Mask::top_left() : Mask::none()}};
      // Rounds over all kernels, so that a slow minute of the chip's is everybody's; of a kernel's medians the median.
      std::vector<Row> row(kernel_count);
      std::vector<std::vector<double>> medians(kernel_count);
      std::vector<std::vector<bfloat16>> verified(kernel_count);
      for (int round = 0; round < rounds; ++round)
        for (std::size_t i = 0; i < kernel_count; ++i) {
          std::fill(o.begin(), o.end(), bfloat16::of_bits(0x7fc0));  // NaN
          const Timing timing = run(i, p, {.samples = 30}).timing;
          try {
            if (round == 0) {
              const Verdict verdict = verify(p, 2e-6);
              row[i].error = verdict.error, row[i].floor = verdict.floor;
              verified[i] = o;
            }
            if (std::memcmp(o.data(), verified[i].data(), o.size() * sizeof(bfloat16)) != 0)
              throw Error("other bits than in the first round");
          } catch (const Error& error) {
            throw Error(name_of(i) + ", N = " + std::to_string(N) + ": " + error.what() + "; nothing is written");
          }
          medians[i].push_back(timing.median_ms);
          row[i].timing.samples += timing.samples, row[i].timing.sm_mhz = timing.sm_mhz;
        }
      for (std::size_t i = 0; i < kernel_count; ++i) {
        std::sort(medians[i].begin(), medians[i].end());
        row[i].at = {"diet", BN / N, H, N, D, causal};
        row[i].kernel = name_of(i);
        row[i].timing.median_ms = medians[i][rounds / 2];
        row[i].timing.p10_ms = medians[i].front(), row[i].timing.p90_ms = medians[i].back();
        std::printf("%-20s N %5lld %-6s %8.4f ms (%.4f to %.4f) %6.1f TFLOP/s   error %.1e\n", row[i].kernel.c_str(),
                    static_cast<long long>(N), causal ? "causal" : "", row[i].timing.median_ms, row[i].timing.p10_ms,
                    row[i].timing.p90_ms, tflops(row[i]), row[i].error);
        rows.push_back(row_text(row[i]));
      }
      std::fflush(stdout);
    }
  if (count > 1) write_file(words[1], results_text(environment(), rows));
} catch (const Error& error) {
  std::fprintf(stderr, "flash-diet-bench: %s\n", error.what());
  return 2;
}
