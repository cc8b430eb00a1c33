// bench.cpp: ./flash bench [NN], the CPU phases side by side in one run: time and extra memory against N.
// B1 H8 D64 fp32, the same threads for all; each measurement in a process of its own, so that its peak is its own.
// Results are compared with phase 01 before anything is timed. Ratios count: absolute times are this machine's.
// flash-bench --serve FOLDER N D none|top-left THREADS: phase 04 beside torch; peers_cpu.py asks it line by line.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "phases/01-naive/attention.hpp"
#include "phases/02-online-softmax/attention.hpp"
#include "phases/03-tiled-v1/attention.hpp"
#include "phases/04-tiled-v2/attention.hpp"
#include "phases/common/random.hpp"

namespace {

using namespace flash;

constexpr std::int64_t B = 1, H = 8, D = 64;
constexpr std::int64_t sram_bytes = 1 << 20;  // room for tiles as large as suits a CPU's caches; the default is a GPU's

// OpenBLAS is at its best with larger tiles than phase 04 chooses for Eigen's product, and needs less memory itself.
Problem<float> with_tiles(Problem<float> p) {
#ifdef FLASH_BLAS
  p.options.block_q = p.options.block_k = 256;
#endif
  return p;
}

// Milliseconds of one run of a CPU phase.
double time_phase(int phase, const Problem<float>& p) {
  const auto begin = std::chrono::steady_clock::now();
  if (phase == 1) phase01::forward(p);
  if (phase == 2) phase02::forward(p);
  if (phase == 3) phase03::forward(p);
  if (phase == 4) phase04::forward(with_tiles(p));
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
    problem.options.sram_bytes = sram_bytes;
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

// A number of /proc/self/status, in MiB: VmRSS, or VmHWM, the largest that VmRSS ever was.
double status_mib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (double kib; word == name + ":" && status >> kib) return kib / 1024;
  throw Error("/proc/self/status has no " + name);
}

// Says "ready", runs phase 04 once per line of input and answers with milliseconds; the first answer has the memory
// above the tensors as well. O goes to FOLDER/ours.raw, so that the other side judges it before it asks for more.
int serve(const std::string& folder, std::int64_t N, std::int64_t width, const std::string& mask, int threads) {
  const std::array<std::int64_t, 4> shape{B, H, N, width};
  const auto view = [&](std::vector<float>& x) { return dense_view(x.data(), shape); };
  std::array<std::vector<float>, 4> tensors;
  for (auto& x : tensors) x.resize(static_cast<std::size_t>(B * H * N * width));
  auto& [q, k, v, o] = tensors;
  for (const auto& [name, x] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
    std::ifstream file(folder + "/" + name + ".raw", std::ios::binary);
    if (!file.read(reinterpret_cast<char*>(x->data()), static_cast<std::streamsize>(x->size() * sizeof(float))))
      throw Error("cannot read " + folder + "/" + name + ".raw");
  }
  Problem<float> p{view(q), view(k), view(v), view(o), nullptr, {}};
  p.options.causal = mask == "none" ? Causal::None : Causal::TopLeft;
  p.options.threads = threads;
  p.options.sram_bytes = sram_bytes;
  Inputs tiny(16, threads);
  time_phase(4, tiny.problem);  // libraries are loaded before memory is looked at

  std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM forgets
  const double before = status_mib("VmRSS");
  std::puts("ready");
  std::fflush(stdout);
  bool first = true;
  for (std::string line; std::getline(std::cin, line); first = false) {
    std::printf("%.6f", time_phase(4, p));
    if (first) {
      std::printf(" %.3f", status_mib("VmHWM") - before);
      std::ofstream file(folder + "/ours.raw", std::ios::binary);
      if (!file.write(reinterpret_cast<const char*>(o.data()), static_cast<std::streamsize>(o.size() * sizeof(float))))
        throw Error("cannot write " + folder + "/ours.raw");
    }
    std::puts("");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) try {
  const std::vector<std::string> args(words, words + count);
  if (count == 7 && args[1] == "--serve")
    return serve(args[2], std::stoll(args[3]), std::stoll(args[4]), args[5], std::stoi(args[6]));
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
