// hopper_steps_bench.cpp: the staircases that lead to phases 14, 17, 18 and 19 on a GPU, with the phase before them:
// each kernel verified against fp64, then timed in turn, round after round. bf16, B · N = 16384, H · D = 2048. Writes
// JSON and a table; in brackets a step's speed over that of the kernel before: the median of the rounds' ratios, since
// both ran at nearly the same clock. flash-hopper-steps-bench RESULTS.json TABLE.md      a minute on an H200
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>

#include "phases/12-async-copies/phase.hpp"
#include "phases/14-tma-wgmma/steps/steps.hpp"
#include "phases/16-overlap/phase.hpp"
#include "phases/17-persistent/steps/steps.hpp"
#include "phases/18-diet/steps/steps.hpp"
#include "phases/19-beyond/steps/steps.hpp"
#include "tests/bench/forward_check.hpp"
#include "tests/bench/results.hpp"

using namespace flash;
using namespace flash::bench;

namespace {

constexpr std::int64_t tokens = 16384, width = 2048;
constexpr std::int64_t lengths[] = {512, 2048, 8192};
constexpr int rounds = 13;
constexpr double ms_a_round = 4;  // of a kernel

// Kernels that follow one another, at one head dimension.
struct Staircase {
  std::string title;
  std::int64_t D;
  std::vector<const Phase*> kernels;
};

std::vector<Staircase> staircases() {
  const auto between = [](const Phase& before, const auto& steps, const Phase& after) {
    std::vector<const Phase*> all = {&before};
    all.insert(all.end(), steps.begin(), steps.end());
    all.push_back(&after);
    return all;
  };
  const auto& to_19 = phase19::steps;
  return {{"From 12 to 14", 128, between(phase12::phase, phase14::steps, phase14::phase)},
          {"From 16 to 17", 128, between(phase16::phase, phase17::steps, phase17::phase)},
          {"From 17 to 18", 128, between(phase17::phase, phase18::steps, phase18::phase)},
          {"From 18 to 19, D = 64", 64,
           between(phase18::phase, std::vector<const Phase*>(to_19.begin(), to_19.begin() + 5), phase19::phase)},
          {"From 18 to 19, D = 256", 256, {to_19[5], to_19[6], &phase19::phase}}};
}

void check(cudaError_t error) {
  if (error != cudaSuccess) throw MachineError(cudaGetErrorString(error));
}

// An array in device memory.
template <class T>
class OnGpu {
 public:
  explicit OnGpu(std::size_t count) : count_(count) { check(cudaMalloc(&data_, std::max<std::size_t>(bytes(), 4))); }
  explicit OnGpu(const std::vector<T>& from) : OnGpu(from.size()) {
    check(cudaMemcpy(data_, from.data(), bytes(), cudaMemcpyHostToDevice));
  }
  OnGpu(const OnGpu&) = delete;
  ~OnGpu() { cudaFree(data_); }
  T* data() const { return static_cast<T*>(data_); }
  std::size_t bytes() const { return count_ * sizeof(T); }
  void fetch(std::vector<T>& to) const { check(cudaMemcpy(to.data(), data_, bytes(), cudaMemcpyDeviceToHost)); }

 private:
  std::size_t count_;
  void* data_ = nullptr;
};

// A kernel with its workspace, on arrays that are in device memory.
class Timed {
 public:
  Timed(const Phase& kernel, const AnyProblem& p) : pass_(*kernel.forward), p_(p) {
    pass_.on_stream(Where::Gpu, p_, nullptr);
    for (const Piece& piece : pass_.features.workspace(p)) {
      pieces_.push_back(std::make_unique<OnGpu<float>>(static_cast<std::size_t>(piece.count)));
      check(cudaMemset(pieces_.back()->data(), 0, pieces_.back()->bytes()));
      stream_.workspace[pieces_.size() - 1] = pieces_.back()->data();
    }
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event));
    launch();
    check(cudaDeviceSynchronize());
    samples_ = std::clamp(static_cast<int>(ms_a_round / ms(1)), 1, 20);
  }
  Timed(const Timed&) = delete;
  ~Timed() {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  int samples() const { return samples_; }
  double ms() const { return ms(samples_); }

 private:
  void launch() const { pass_.on_stream(Where::Gpu, p_, &stream_); }
  double ms(int samples) const {
    float ms = 0;
    check(cudaEventRecord(events_[0]));
    for (int i = 0; i < samples; ++i) launch();
    check(cudaEventRecord(events_[1]));
    check(cudaEventSynchronize(events_[1]));
    check(cudaEventElapsedTime(&ms, events_[0], events_[1]));
    return static_cast<double>(ms) / samples;
  }

  const Pass& pass_;
  AnyProblem p_;
  Stream stream_{nullptr, {}};
  std::vector<std::unique_ptr<OnGpu<float>>> pieces_;
  cudaEvent_t events_[2] = {};
  int samples_ = 1;
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

}  // namespace

int main(int count, char** words) try {
  if (count != 3) refuse("arguments", count - 1, "2: RESULTS.json TABLE.md", "name both");
  constexpr auto numbers = static_cast<std::size_t>(tokens * width);
  const std::vector<bfloat16> q = random_numbers(numbers, 0), k = random_numbers(numbers, 1),
                              v = random_numbers(numbers, 2);
  std::vector<bfloat16> o(q.size());
  std::vector<float> lse(q.size() / 64);
  const OnGpu<bfloat16> gpu_q(q), gpu_k(k), gpu_v(v), gpu_o(o.size());
  const OnGpu<float> gpu_lse(lse.size());
  std::vector<std::string> rows;
  std::ostringstream tables;
  for (const Staircase& stairs : staircases()) {
    const std::int64_t D = stairs.D;
    std::vector<std::string> lines;
    for (const Phase* kernel : stairs.kernels) lines.push_back(std::string("| ") + kernel->name + " |");
    for (const bool causal : {false, true})
      for (const std::int64_t N : lengths) {
        const std::array<std::int64_t, 4> shape{tokens / N, width / D, N, D};
        const auto problem = [&](const bfloat16* Q, const bfloat16* K, const bfloat16* V, bfloat16* O, float* LSE) {
          return Problem<bfloat16>{dense_view(Q, shape),
                                   dense_view(K, shape),
                                   dense_view(V, shape),
                                   dense_view(O, shape),
                                   LSE,
                                   {.mask = causal ? Mask::top_left() : Mask::none()}};
        };
        const Problem<bfloat16> on_host = problem(q.data(), k.data(), v.data(), o.data(), lse.data());
        const AnyProblem p = problem(gpu_q.data(), gpu_k.data(), gpu_v.data(), gpu_o.data(), gpu_lse.data());
        std::vector<Row> row(stairs.kernels.size());
        std::vector<std::vector<double>> ms(row.size());
        std::vector<std::unique_ptr<Timed>> timed;
        for (std::size_t i = 0; i < row.size(); ++i) {
          check(cudaMemset(gpu_o.data(), 0xff, gpu_o.bytes()));  // NaN
          timed.push_back(std::make_unique<Timed>(*stairs.kernels[i], p));
          gpu_o.fetch(o), gpu_lse.fetch(lse);
          const Verdict verdict = verify(on_host, 2e-6);
          row[i].error = verdict.error, row[i].floor = verdict.floor;
        }
        for (int round = 0; round < rounds; ++round)
          for (std::size_t i = 0; i < row.size(); ++i) ms[i].push_back(timed[i]->ms());
        for (std::size_t i = 0; i < row.size(); ++i) {
          std::vector<double> sorted = ms[i], ratios;
          std::sort(sorted.begin(), sorted.end());
          for (int round = 0; i > 0 && round < rounds; ++round) ratios.push_back(ms[i - 1][round] / ms[i][round]);
          row[i].at = {"hopper-steps", tokens / N, width / D, N, D, causal}, row[i].kernel = stairs.kernels[i]->name;
          row[i].type = "bfloat16";
          row[i].timing.samples = rounds * timed[i]->samples(), row[i].timing.median_ms = sorted[rounds / 2];
          row[i].timing.p10_ms = sorted[rounds / 10], row[i].timing.p90_ms = sorted[rounds - 1 - rounds / 10];
          rows.push_back(json_row(row[i]));
          char cell[64];
          if (i == 0)
            std::snprintf(cell, sizeof cell, " %.0f |", tflops(row[i]));
          else
            std::snprintf(cell, sizeof cell, " %.0f (%.3f) |", tflops(row[i]), median(ratios));
          lines[i] += cell;
        }
      }
    tables << "\n## " << stairs.title << "\n\nTFLOP/s, D = " << D << "\n\n| kernel |";
    for (const char* mask : {"", ", causal"})
      for (const std::int64_t N : lengths) tables << " N " << N << mask << " |";
    tables << "\n|---|---:|---:|---:|---:|---:|---:|\n";
    for (const std::string& line : lines) tables << line << "\n";
    std::printf("%s\n", tables.str().c_str());
    std::fflush(stdout);
  }
  const Environment where = environment();
  const std::string text =
      "# The staircases of the Hopper phases on an H200\n\n`flash-hopper-steps-bench`: bf16, B · N = 16384, H · D = "
      "2048; each kernel verified against fp64, then\ntimed in turn, 13 rounds. In brackets: over the kernel "
      "before, median of the rounds' ratios.\n" +
      tables.str() + "\n" + line_of(where);
  write_file(words[1], results_text(where, rows));
  write_file(words[2], text);
} catch (const Error& error) {
  std::fprintf(stderr, "flash-hopper-steps-bench: %s\n", error.what());
  return 2;
}
