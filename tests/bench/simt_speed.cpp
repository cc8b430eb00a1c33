// simt_speed.cpp: how fast the simulator is: the reference forward on both builds, on one core and on all.
// A benchmark, not a timed test: it prints, and fails only if the result is wrong or the two builds differ in a bit.
// Run: cmake --build build --target simt-speed && build/bin/simt-speed [N] [--out docs/results/simt-speed.json]
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "sim/error.hpp"
#include "sim/machine.hpp"
#include "tests/bench/results.hpp"

namespace flash::on_sim {
std::uint64_t run_reference_forward(Machine&, const float*, const float*, const float*, float*, int);
}
namespace flash::on_checked {
std::uint64_t run_reference_forward(Machine&, const float*, const float*, const float*, float*, int);
}

namespace {

constexpr int kD = 64;

// Seconds. One thread: CPU time, which other programs on the machine do not lengthen.
double now(int threads) {
  if (threads == 1) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Best of three runs; the first one also warms the machine's stacks.
template <class Machine, class Run>
double gflops(const Run& run, int n, int threads, const std::vector<float>& q, std::vector<float>& o) {
  Machine machine(flash::MachineOptions{.threads = threads});
  double best = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const double begin = now(threads);
    run(machine, q.data(), q.data(), q.data(), o.data(), n);
    const double seconds = now(threads) - begin;
    best = std::max(best, 4.0 * n * n * kD / seconds * 1e-9);
  }
  return best;
}

// The first row in double precision.
double error_of_first_row(const std::vector<float>& q, const std::vector<float>& o, int n) {
  std::vector<double> sum(kD);
  double l = 0, error = 0;
  for (int j = 0; j < n; ++j) {
    double dot = 0;
    for (int d = 0; d < kD; ++d) dot += double{q[d]} * q[j * kD + d];
    const double p = std::exp(dot / 8);
    l += p;
    for (int d = 0; d < kD; ++d) sum[d] += p * q[j * kD + d];
  }
  for (int d = 0; d < kD; ++d) error = std::fmax(error, std::fabs(sum[d] / l - o[d]));
  return error;
}

}  // namespace

int main(int count, char** words) try {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  int n = 1024;
  std::string out;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    char* end = nullptr;
    if (word == "--out" && i + 1 < count)
      out = words[++i];
    else if (n = static_cast<int>(std::strtol(word.c_str(), &end, 10)); *end || n <= 0 || n % 64 != 0)
      flash::refuse("argument", "'" + word + "'", "N, a multiple of 64, or --out FILE", "correct it");
  }
  std::vector<float> q(static_cast<std::size_t>(n) * kD), fast(q.size()), checked(q.size());
  std::uint32_t state = 1;
  for (float& x : q) x = static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f;

  std::printf("reference forward, N = %d, D = 64, fp32, 4 N^2 D flop\n", n);
  std::vector<std::string> rows;
  const auto report = [&](const char* build, int threads, double speed) {
    std::printf("%-8s %2d threads  %6.2f GFLOP/s\n", build, threads, speed);
    char row[128];
    std::snprintf(row, sizeof row, R"({"build": "%s", "N": %d, "threads": %d, "gflops": %.4g})", build, n, threads,
                  speed);
    rows.push_back(row);
  };
  for (const int threads : {1, cores}) {
    report("sim", threads, gflops<flash::on_sim::Machine>(flash::on_sim::run_reference_forward, n, threads, q, fast));
    report("checked", threads,
           gflops<flash::on_checked::Machine>(flash::on_checked::run_reference_forward, n, threads, q, checked));
    if (cores == 1) break;
  }
  const double error = error_of_first_row(q, fast, n);
  const bool same = std::memcmp(fast.data(), checked.data(), fast.size() * sizeof(float)) == 0;
  std::printf("largest error of row 0: %.2g, builds agree bit for bit: %s\n", error, same ? "yes" : "NO");
  if (!(error <= 1e-5) || !same) return 1;
  if (!out.empty()) flash::bench::write_file(out, flash::bench::results_text(flash::bench::cpu_environment(""), rows));
  return 0;
} catch (const flash::Error& e) {
  std::fprintf(stderr, "simt-speed: %s\n", e.what());
  return 2;
}
