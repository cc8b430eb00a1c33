// diet_bench.cpp: the staircase of phase 13 on a GPU, between phases 12 and 13: each step verified, then timed in turn.
// bf16, D = 128, H = 16, B · N = 16384. The page "From 12 to 13" counts what the steps do; this says what it is worth.
// flash-diet-bench [results.json]      about a minute on an H200
#include <cmath>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <thread>
#include <tuple>

#include "phases/12-async-copies/phase.hpp"
#include "phases/13-instruction-diet/steps/steps.hpp"
#include "phases/common/random.hpp"
#include "tests/bench/results.hpp"

using namespace flash;
using namespace flash::bench;
using phase13::run_step, phase13::step_count, phase13::step_names;

namespace {

constexpr std::int64_t H = 16, D = 128, BN = 16384;
constexpr int rounds = 3;

// N(0,1), made by all cores.
std::vector<bfloat16> random_numbers(std::uint32_t stream) {
  const Random random(13, stream);
  std::vector<bfloat16> x(static_cast<std::size_t>(BN * H * D));
  const std::size_t workers = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < workers; ++w)
    threads.emplace_back([&, w] {
      for (std::size_t i = x.size() * w / workers; i < x.size() * (w + 1) / workers; ++i)
        x[i] = from_float<bfloat16>(random.normal(i));
    });
  for (std::thread& t : threads) t.join();
  return x;
}

// All of O must be finite. Some rows of the first, of the last and of heads between against fp64: O within the
// contract's bar for bf16, 1.5 times what rounding the exact result costs; LSE within 2e-6. Returns O's relative error
// and that rounding's.
std::pair<double, double> verify(const Problem<bfloat16>& p) {
  const auto wide = [](bfloat16 x) { return static_cast<double>(to_float(x)); };
  if (std::any_of(p.o.data, p.o.data + p.o.elements(), [](bfloat16 x) { return (x.bits & 0x7f80) == 0x7f80; }))
    throw Error("O has elements that are no finite numbers");
  double off = 0, rounding = 0, size = 0;
  for (std::int64_t n = 0; n < 32; ++n) {
    const std::int64_t b = n * (p.B() - 1) / 31, h = n * 5 % H, i = n * (p.Sq() - 1) / 31, keys = p.visible(i);
    std::vector<double> s(static_cast<std::size_t>(keys)), want(D);
    double m = -INFINITY, l = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      for (std::int64_t d = 0; d < D; ++d) s[j] += wide(p.q.row(b, h, i)[d]) * wide(p.k.row(b, h, j)[d]);
      s[j] *= static_cast<double>(p.scale());
      m = std::max(m, s[j]);
    }
    for (std::int64_t j = 0; j < keys; ++j) {
      const double weight = std::exp(s[j] - m);
      l += weight;
      for (std::int64_t d = 0; d < D; ++d) want[d] += weight * wide(p.v.row(b, h, j)[d]);
    }
    for (std::int64_t d = 0; d < D; ++d) {
      const double exact = want[d] / l;
      off += std::pow(wide(p.o.row(b, h, i)[d]) - exact, 2);
      rounding += std::pow(wide(from_float<bfloat16>(static_cast<float>(exact))) - exact, 2);
      size += exact * exact;
    }
    const double lse = m + std::log(l), got = static_cast<double>(p.lse[(b * H + h) * p.Sq() + i]);
    if (!(std::abs(got - lse) <= 2e-6 * std::max(1.0, std::abs(lse)))) throw Error("the LSE is wrong");
  }
  const double error = std::sqrt(off / size), floor = std::sqrt(rounding / size);
  if (!(error <= 1.5 * floor + 0x1p-24))
    throw Error("relative error " + std::to_string(error) + ", rounding floor " + std::to_string(floor));
  return {error, floor};
}

// Phase 12 with its tiles, the steps, phase 13 with its tiles.
constexpr std::size_t kernel_count = step_count + 2;
std::string name_of(std::size_t kernel) {
  return kernel == 0 ? phase12::features.phase : kernel > step_count ? phase13::features.phase : step_names[kernel - 1];
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
  const std::vector<bfloat16> q = random_numbers(0), k = random_numbers(1), v = random_numbers(2);
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
                                {.causal = causal ? Causal::TopLeft : Causal::None}};
      // Rounds over all kernels, so that a slow minute of the chip's is everybody's; of a kernel's medians the median.
      std::vector<Row> row(kernel_count);
      std::vector<std::vector<double>> medians(kernel_count);
      std::vector<std::vector<bfloat16>> verified(kernel_count);
      for (int round = 0; round < rounds; ++round)
        for (std::size_t i = 0; i < kernel_count; ++i) {
          std::fill(o.begin(), o.end(), bfloat16{0x7fc0});  // NaN
          const Timing timing = run(i, p, {.samples = 30}).timing;
          try {
            if (round == 0) {
              std::tie(row[i].error, row[i].floor) = verify(p);
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
