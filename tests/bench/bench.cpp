// bench.cpp: ./flash bench [NN], the CPU phases side by side in one run: time and extra memory against N.
// B1 H8 D64 fp32, the same threads for all; each measurement in a process of its own, so that its peak is its own.
// Results are compared with phase 01 before anything is timed. Ratios are what counts: times are this machine's.
// flash-bench --serve FOLDER N D none|top-left THREADS: phase 04 beside torch, for peers_cpu.py, line by line.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "phases/arrays/random.hpp"
#include "phases/interface/phase.hpp"

namespace {

using namespace flash;

constexpr std::int64_t B = 1, H = 8, D = 64;
constexpr std::int64_t sram_bytes = 1 << 20;  // room for tiles as large as suits a CPU's caches; the default is a GPU's

const Phase& first_phase() {
  return *all_phases().front();
}
const Phase& last_cpu_phase() {
  const Phase* last = nullptr;
  for (const Phase* phase : all_phases())
    if (!phase->kernel()) last = phase;
  return *last;
}

// OpenBLAS is at its best with larger tiles than the last CPU phase chooses for Eigen's product.
Problem<float> with_tiles(Problem<float> p, [[maybe_unused]] const Phase& phase) {
#ifdef FLASH_BLAS
  if (&phase == &last_cpu_phase()) p.options.block_q = p.options.block_k = 256;
#endif
  return p;
}

// Milliseconds of one run of a CPU phase.
double time_phase(const Phase& phase, const Problem<float>& problem) {
  const Problem<float> p = with_tiles(problem, phase);
  const auto begin = std::chrono::steady_clock::now();
  forward(phase, p);
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
Sample measure(const Phase& phase, std::int64_t N, int threads) {
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
  if (!got || status != 0) throw Error(std::string("phase ") + phase.name + " failed at N = " + std::to_string(N));
  return s;
}

// Verify before timing: every phase must agree with phase 01.
void verify(const std::vector<const Phase*>& phases, int threads) {
  Inputs naive(512, threads), other(512, threads);
  time_phase(first_phase(), naive.problem);
  for (const Phase* phase : phases) {
    time_phase(*phase, other.problem);
    for (std::size_t i = 0; i < naive.o.size(); ++i)
      if (!(std::abs(naive.o[i] - other.o[i]) <= 1e-5f))
        throw Error(std::string("phase ") + phase->name + " is wrong: not timed");
  }
}

// A number of /proc/self/status, in MiB: VmRSS, or VmHWM, the largest that VmRSS ever was.
double status_mib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (double kib; word == name + ":" && status >> kib) return kib / 1024;
  throw Error("/proc/self/status has no " + name);
}

// Says "ready", runs the last CPU phase once per line of input and answers with milliseconds; the first answer has the
// memory above the tensors as well. O stays in FOLDER/ours.raw: the other side judges it before it asks for more.
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
  p.options.mask = mask == "none" ? Mask::none() : Mask::top_left();
  p.options.threads = threads;
  p.options.sram_bytes = sram_bytes;
  Inputs tiny(16, threads);
  time_phase(last_cpu_phase(), tiny.problem);  // libraries are loaded before memory is looked at

  std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM forgets
  const double before = status_mib("VmRSS");
  std::puts("ready");
  std::fflush(stdout);
  bool first = true;
  for (std::string line; std::getline(std::cin, line); first = false) {
    std::printf("%.6f", time_phase(last_cpu_phase(), p));
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
  std::vector<const Phase*> phases{&first_phase(), &last_cpu_phase()};
  if (count > 1) {
    phases[1] = &find_phase(words[1]);
    require(phases[1]->name, phases[1]->forward->features, Where::Sim);
    if (phases[1]->kernel()) refuse("phase", words[1], "a CPU phase", "kernels: flash-gpu-bench");
  }
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  verify(phases, threads);
  std::printf("B1 H8 D64 fp32, %d threads; ms: median time, MiB: peak memory above Q, K, V, O\n%6s", threads, "N");
  const auto number = [](const Phase& phase) { return std::string(phase.name, std::strchr(phase.name, '-')); };
  for (const Phase* phase : phases) std::printf("   %s: ms      MiB", number(*phase).c_str());
  std::printf("   %s : %s\n", number(*phases[0]).c_str(), number(*phases[1]).c_str());
  for (std::int64_t N = 512; N <= 8192; N *= 2) {
    std::printf("%6lld", static_cast<long long>(N));
    std::vector<Sample> row;
    for (const Phase* phase : phases) {
      row.push_back(measure(*phase, N, threads));
      std::printf(" %8.1f %8.1f", row.back().milliseconds, row.back().extra_mib);
      std::fflush(stdout);
    }
    std::printf("   %6.2f\n", row[0].milliseconds / row.back().milliseconds);
  }
} catch (const flash::Error& e) {
  std::fprintf(stderr, "flash-bench: %s\n", e.what());
  return 2;
}
