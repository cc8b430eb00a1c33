// bench.cpp: ./flash bench [NN], the CPU phases side by side in one run: time and extra memory against N.
// B1 H8 D64 fp32, the same threads for all; each measurement in a process of its own, so that its peak is its own.
// Results are compared with phase 01 before anything is timed. Ratios are what counts: times are this machine's.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "phases/common/phase.hpp"
#include "phases/common/random.hpp"

namespace {

using namespace flash;

constexpr std::int64_t B = 1, H = 8, D = 64;

// Milliseconds of one run of a CPU phase.
double time_phase(int phase, const Problem<float>& p) {
  const auto begin = std::chrono::steady_clock::now();
  forward(find_phase(std::to_string(phase)), p);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

struct Sample {
  double milliseconds, extra_mib;
};

std::vector<float> normals(std::int64_t N, std::uint32_t stream) {
  std::vector<float> x(static_cast<std::size_t>(B * H * N * D));
  const Random random(2026, stream);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.normal(i);
  return x;
}

struct Inputs {
  std::vector<float> q, k, v, o;
  Problem<float> problem;
  Inputs(std::int64_t N, int threads) : q(normals(N, 0)), k(normals(N, 1)), v(normals(N, 2)), o(q.size()) {
    const std::array<std::int64_t, 4> shape{B, H, N, D};
    problem.q = dense_view<const float>(q.data(), shape);
    problem.k = dense_view<const float>(k.data(), shape);
    problem.v = dense_view<const float>(v.data(), shape);
    problem.o = dense_view(o.data(), shape);
    problem.options.threads = threads;
  }
};

double resident_mib() {
  long pages = 0, resident = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// Median of three runs (one where a run takes over 5 s), and the peak above what the tensors themselves take.
Sample measure(int phase, std::int64_t N, int threads) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) throw Error("pipe failed");
  const pid_t child = fork();
  if (child == 0) {
    Inputs in(N, threads);
    const double before = resident_mib();
    std::vector<double> times;
    do times.push_back(time_phase(phase, in.problem));
    while (times.size() < 3 && times[0] < 5000);
    std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const Sample s{times[times.size() / 2], static_cast<double>(usage.ru_maxrss) / 1024 - before};
    _exit(write(pipe_ends[1], &s, sizeof s) == sizeof s ? 0 : 1);
  }
  int status = 0;
  Sample s{};
  close(pipe_ends[1]);
  const bool got = read(pipe_ends[0], &s, sizeof s) == sizeof s;
  close(pipe_ends[0]);
  waitpid(child, &status, 0);
  if (!got || status != 0) throw Error("phase " + std::to_string(phase) + " failed at N = " + std::to_string(N));
  return s;
}

// Verify before timing: every phase must agree with phase 01.
void verify(const std::vector<int>& phases, int threads) {
  Inputs naive(512, threads), other(512, threads);
  time_phase(1, naive.problem);
  for (const int phase : phases) {
    time_phase(phase, other.problem);
    for (std::size_t i = 0; i < naive.o.size(); ++i)
      if (!(std::abs(naive.o[i] - other.o[i]) <= 1e-5f))
        throw Error("phase " + std::to_string(phase) + " is wrong: not timed");
  }
}

}  // namespace

int main(int count, char** words) try {
  std::vector<int> phases{1, 4};
  if (count > 1) {
    const std::string text = words[1];
    if (text.size() != 2 || text < "01" || text > "04") refuse("phase", "'" + text + "'", "01 to 04", "a CPU phase");
    phases = {1, text[1] - '0'};
  }
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  verify(phases, threads);
  std::printf("B1 H8 D64 fp32, %d threads; ms: median time, MiB: peak memory above Q, K, V, O\n%6s", threads, "N");
  for (const int phase : phases) std::printf("   %02d: ms      MiB", phase);
  std::printf("   %02d : %02d\n", phases[0], phases.back());
  for (std::int64_t N = 512; N <= 8192; N *= 2) {
    std::printf("%6lld", static_cast<long long>(N));
    std::vector<Sample> row;
    for (const int phase : phases) {
      row.push_back(measure(phase, N, threads));
      std::printf(" %8.1f %8.1f", row.back().milliseconds, row.back().extra_mib);
      std::fflush(stdout);
    }
    std::printf("   %6.2f\n", row[0].milliseconds / row.back().milliseconds);
  }
} catch (const flash::Error& e) {
  std::fprintf(stderr, "flash-bench: %s\n", e.what());
  return 2;
}
