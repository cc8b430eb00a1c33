// hopper_steps_bench.cpp: the staircases that lead to phases 14, 17, 18 and 19 on a GPU, with the phase before them:
// each kernel verified against fp64, then timed in turn, round after round. bf16, B · N = 16384, H · D = 2048. Writes
// JSON and a table; a step's figure in brackets is its speed over that of the kernel before.
// flash-hopper-steps-bench RESULTS.json TABLE.md      some two minutes on an H200
#include <algorithm>
#include <cstdio>
#include <sstream>

#include "phases/12-async-copies/phase.hpp"
#include "phases/14-tma-wgmma/steps/steps.hpp"
#include "phases/16-overlap/phase.hpp"
#include "phases/17-persistent/steps/steps.hpp"
#include "phases/18-diet/steps/steps.hpp"
#include "phases/19-beyond/steps/steps.hpp"
#include "phases/arrays/random.hpp"
#include "tests/bench/forward_check.hpp"
#include "tests/bench/results.hpp"

using namespace flash;
using namespace flash::bench;

namespace {

constexpr std::int64_t tokens = 16384, width = 2048;
constexpr std::int64_t lengths[] = {512, 2048, 8192};
constexpr int rounds = 3;

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

std::vector<bfloat16> random_numbers(std::uint32_t stream) {
  const Random random(13, stream);
  std::vector<bfloat16> x(static_cast<std::size_t>(tokens * width));
  in_parallel(x.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) x[i] = from_float<bfloat16>(random.normal(i));
  });
  return x;
}

std::string row_text(const Row& row) {
  std::string text = json_row(row);
  const std::string type = "\"float16\"";
  return text.replace(text.find(type), type.size(), "\"bfloat16\"");
}

}  // namespace

int main(int count, char** words) try {
  if (count != 3) refuse("arguments", count - 1, "2: RESULTS.json TABLE.md", "name both");
  const std::vector<bfloat16> q = random_numbers(0), k = random_numbers(1), v = random_numbers(2);
  std::vector<bfloat16> o(q.size());
  std::vector<float> lse(q.size() / 64);
  std::vector<std::string> rows;
  std::ostringstream tables;
  for (const Staircase& stairs : staircases()) {
    const std::int64_t D = stairs.D;
    std::vector<std::string> lines;
    for (const Phase* kernel : stairs.kernels) lines.push_back(std::string("| ") + kernel->name + " |");
    for (const bool causal : {false, true})
      for (const std::int64_t N : lengths) {
        const std::array<std::int64_t, 4> shape{tokens / N, width / D, N, D};
        const Problem<bfloat16> p{dense_view(q.data(), shape),
                                  dense_view(k.data(), shape),
                                  dense_view(v.data(), shape),
                                  dense_view(o.data(), shape),
                                  lse.data(),
                                  {.mask = causal ? Mask::top_left() : Mask::none()}};
        std::vector<Row> row(stairs.kernels.size());
        std::vector<std::vector<double>> medians(row.size());
        for (int round = 0; round < rounds; ++round)
          for (std::size_t i = 0; i < row.size(); ++i) {
            std::fill(o.begin(), o.end(), bfloat16{0x7fc0});  // NaN
            const Timing timing = forward(*stairs.kernels[i], p, Where::Gpu, {.samples = 20}).timing;
            if (round == 0) {
              const Verdict verdict = verify(p, 2e-6);
              row[i].error = verdict.error, row[i].floor = verdict.floor;
            }
            medians[i].push_back(timing.median_ms);
            row[i].timing.samples += timing.samples, row[i].timing.sm_mhz = timing.sm_mhz;
          }
        for (std::size_t i = 0; i < row.size(); ++i) {
          std::sort(medians[i].begin(), medians[i].end());
          row[i].at = {"hopper-steps", tokens / N, width / D, N, D, causal}, row[i].kernel = stairs.kernels[i]->name;
          row[i].timing.median_ms = medians[i][rounds / 2];
          row[i].timing.p10_ms = medians[i].front(), row[i].timing.p90_ms = medians[i].back();
          rows.push_back(row_text(row[i]));
          char cell[64];
          if (i == 0)
            std::snprintf(cell, sizeof cell, " %.0f |", tflops(row[i]));
          else
            std::snprintf(cell, sizeof cell, " %.0f (%.3f) |", tflops(row[i]),
                          row[i - 1].timing.median_ms / row[i].timing.median_ms);
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
  std::string text =
      "# The staircases of the Hopper phases on an H200\n\n`flash-hopper-steps-bench`: bf16, B · N = 16384, H · D = "
      "2048; each kernel verified against fp64, then\ntimed in turn, median of three rounds. In brackets: over the "
      "kernel before.\n" +
      tables.str() + "\n";
  for (const auto& [name, value] : where) text += name + " " + value + (name == where.back().first ? "\n" : ", ");
  write_file(words[1], results_text(where, rows));
  write_file(words[2], text);
} catch (const Error& error) {
  std::fprintf(stderr, "flash-hopper-steps-bench: %s\n", error.what());
  return 2;
}
