// steps_bench.cpp: the staircase of phase 05 on a GPU, one head of N = 16384: each step verified, then timed.
// The page "05 · Into CUDA" counts what the steps do; this says what the counts are worth.
// flash-steps-bench [results.json]
#include <cmath>
#include <cstdio>
#include <sstream>

#include "phases/05-first-kernel/steps/steps.hpp"
#include "phases/arrays/random.hpp"
#include "tests/bench/results.hpp"

using namespace flash;
using namespace flash::phase05;

namespace {

constexpr int N = 16384, D = step_D;

Floats random_floats(std::uint32_t stream) {
  const Random random(5, stream);
  Floats x(static_cast<std::size_t>(N) * D);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.normal(i);
  return x;
}

// Every thousandth row against fp64.
double worst_row(const Floats& q, const Floats& k, const Floats& v, const Floats& o) {
  double worst = 0;
  for (int i = 0; i < N; i += 1000) {
    std::vector<double> s(N), want(D);
    double m = -INFINITY, l = 0, off = 0, size = 0;
    for (int j = 0; j < N; ++j) {
      for (int d = 0; d < D; ++d) s[j] += double(q[i * D + d]) * k[j * D + d] / std::sqrt(double(D));
      m = std::max(m, s[j]);
    }
    for (int j = 0; j < N; ++j) {
      const double p = std::exp(s[j] - m);
      l += p;
      for (int d = 0; d < D; ++d) want[d] += p * v[j * D + d];
    }
    for (int d = 0; d < D; ++d) {
      off += std::pow(o[i * D + d] - want[d] / l, 2);
      size += std::pow(want[d] / l, 2);
    }
    const double error = std::sqrt(off / size);
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

}  // namespace

int main(int count, char** words) try {
  const Floats q = random_floats(0), k = random_floats(1), v = random_floats(2);
  std::vector<std::string> rows;
  for (const NamedStep& step : attention_steps) {
    Floats o(q.size());
    const Timing timing = (steps_on(Where::Gpu).*step.run)({.samples = 20}, q, k, v, o).timing;
    const double error = worst_row(q, k, v, o), tflops = 4.0 * N * N * D / timing.median_ms * 1e-9;
    std::printf("%-12s %9.3f ms %6.2f TFLOP/s   worst row %.1e\n", step.name, timing.median_ms, tflops, error);
    if (!(error <= 1e-5)) throw Error(std::string(step.name) + " is wrong");
    std::ostringstream row;
    row << "{\"step\": \"" << step.name << "\", \"N\": " << N << ", \"D\": " << D << ", \"samples\": " << timing.samples
        << ", \"median_ms\": " << timing.median_ms << ", \"p10_ms\": " << timing.p10_ms
        << ", \"p90_ms\": " << timing.p90_ms << ", \"tflops\": " << tflops << ", \"sm_mhz\": " << timing.sm_mhz
        << ", \"error\": " << error << "}";
    rows.push_back(row.str());
  }
  if (count > 1) bench::write_file(words[1], bench::results_text(bench::environment(), rows));
} catch (const Error& error) {
  std::fprintf(stderr, "flash-steps-bench: %s\n", error.what());
  return 2;
}
