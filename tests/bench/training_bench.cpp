// training_bench.cpp: what a forward pass costs that keeps m, l and O's low bits for a backward pass, and one that
// leaves O in fp32 (docs/backward.md): phases on tensor cores that can, beside themselves without, on a GPU. In turn,
// round after round; the cost is the median of the rounds' ratios. Proof of the numbers: tests/training_promises.cpp.
// flash-training-bench RESULTS.json TABLE.md      two minutes on an H200
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "phases/arrays/random.hpp"
#include "tests/bench/results.hpp"

using namespace flash;

namespace {

constexpr int rounds = 3;
constexpr std::int64_t tokens = 16384, width = 2048;  // B · N, H · D

struct Tensors {
  std::array<std::int64_t, 4> shape;
  Options options;
  std::vector<bfloat16> q, k, v, o;
  std::vector<std::int16_t> o_lo;
  std::vector<float> lse, m, l, wide;

  Tensors(std::int64_t N, std::int64_t D, Mask mask)
      : shape{tokens / N, width / D, N, D}, options{.mask = mask}, o(tokens * width), o_lo(o.size()), wide(o.size()) {
    std::uint32_t stream = 0;
    for (auto* x : {&q, &k, &v}) {
      const Random random(9, stream++);
      constexpr std::size_t drawn = std::size_t{1} << 20;  // more repeats them: time does not depend on the numbers
      x->resize(o.size());
      for (std::size_t i = 0; i < x->size(); ++i)
        (*x)[i] = i < drawn ? from_float<bfloat16>(random.normal(i)) : (*x)[i - drawn];
    }
    for (auto* x : {&lse, &m, &l}) x->resize(o.size() / static_cast<std::size_t>(D));
  }

  AnyProblem problem(bool keeps, bool in_fp32) {
    const auto in = [&](const auto& x) { return dense_view<const bfloat16>(x.data(), shape); };
    Problem<bfloat16> p{in(q), in(k), in(v), dense_view(o.data(), shape), lse.data(), options, {}};
    if (keeps) p.kept = {dense_view(o_lo.data(), shape), m.data(), l.data()};
    AnyProblem any(p);
    if (in_fp32) any.out = Type::Float32, any.o = any_of(dense_view(wide.data(), shape));
    return any;
  }
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

}  // namespace

int main(int count, char** words) try {
  if (count != 3) refuse("arguments", count - 1, "2: RESULTS.json TABLE.md", "name both");
  std::ostringstream table;
  std::vector<std::string> rows;
  for (const std::int64_t D : {64, 128, 256})
    for (const bool causal : {false, true})
      for (const std::int64_t N : {512, 2048, 16384})
        for (const Phase* phase : forward_phases()) {
          const Features& can = phase->forward->features;
          if (!can.meets(Demand::Kept) || !can.tensor_cores || D > can.largest_D()) continue;
          require(phase->name, can, Where::Gpu);
          Tensors tensors(N, D, causal ? Mask::top_left() : Mask::none());
          std::vector<double> plain, kept, wide;
          for (int round = 0; round < rounds; ++round) {
            const auto time = [&](bool keeps, bool in_fp32) {
              const AnyProblem p = tensors.problem(keeps, in_fp32);
              return enter(*phase, p, Where::Gpu, {.samples = 10}).timing.median_ms;
            };
            plain.push_back(time(false, false));
            kept.push_back(time(true, false) / plain.back());
            wide.push_back(time(false, true) / plain.back());
          }
          const double ms = median(plain), cost = median(kept), cost_wide = median(wide);
          std::printf("%-20s D %3d %-6s N %5d  %8.3f ms   training %.3f   O in fp32 %.3f\n", phase->name, int(D),
                      causal ? "causal" : "full", int(N), ms, cost, cost_wide);
          std::fflush(stdout);
          char line[160];
          std::snprintf(line, sizeof line, "| %s | %d | %s | %d | %.3f | %.2f | %.2f |\n", phase->name, int(D),
                        causal ? "yes" : "", int(N), ms, cost, cost_wide);
          table << line;
          rows.push_back("{\"phase\": " + json_string(phase->name) + ", \"D\": " + std::to_string(D) +
                         ", \"causal\": " + (causal ? "true" : "false") + ", \"N\": " + std::to_string(N) +
                         ", \"type\": \"bfloat16\", \"median_ms\": " + std::to_string(ms) +
                         ", \"training\": " + std::to_string(cost) + ", \"wide\": " + std::to_string(cost_wide) + "}");
        }
  const bench::Environment where = bench::environment();
  bench::write_file(words[1], bench::results_text(where, rows));
  const std::string text =
      "# What a forward pass for training costs\n\n`flash-training-bench`: bf16, B · N = 16384, H · D = 2048. The "
      "plain "
      "forward pass with LSE in ms; then, as a multiple\nof its time, the one that keeps m, l and O's low bits, and "
      "the "
      "one that leaves O in fp32; medians of three rounds.\n\n| phase | D | causal | N | plain, ms | training | O in "
      "fp32 "
      "|\n|---|---:|---|---:|---:|---:|---:|\n" +
      table.str() + "\n" + bench::line_of(where);
  bench::write_file(words[2], text);
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "flash-training-bench: %s\n", error.what());
  return 2;
}
