// backward_bench.cpp: the phases' backward passes on the kernels' sweep (cases.hpp) on a GPU, both modes, all blocks
// but the smallest: verified against fp64, then timed. TFLOP/s are of 2.5 times the forward pass's 4·D per visible
// pair, by convention.
// flash-backward-bench [LARGEST_N] [--out results.json]      default 8192, no file
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "phases/arrays/random.hpp"
#include "tests/bench/gradient_check.hpp"
#include "tests/bench/results.hpp"

using namespace flash;
using Mode = BackwardMode;

namespace {

struct Tensors {
  const Phase& phase;
  std::array<std::int64_t, 4> shape;
  Options options;
  std::vector<half> q, k, v, o, dout, dq, dk, dv;
  std::vector<std::int16_t> o_lo;
  std::vector<float> m, l;

  Tensors(const Phase& of, const std::array<std::int64_t, 4>& s, const Options& opt)
      : phase(of), shape(s), options(opt) {
    const std::size_t n = static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
    constexpr std::size_t drawn = std::size_t{1} << 20;  // more repeats them: time does not depend on the numbers
    std::uint32_t stream = 0;
    for (auto* x : {&q, &k, &v, &dout}) {
      const Random random(9, stream++);
      x->resize(n);
      for (std::size_t i = 0; i < n; ++i) (*x)[i] = i < drawn ? from_float<half>(random.normal(i)) : (*x)[i - drawn];
    }
    for (auto* x : {&o, &dq, &dk, &dv}) x->resize(n);
    o_lo.resize(n);
    for (auto* x : {&m, &l}) x->resize(n / static_cast<std::size_t>(shape[3]));
  }

  GradientProblem<half> problem() {
    const auto in = [&](const std::vector<half>& x) { return dense_view<const half>(x.data(), shape); };
    const auto out = [&](auto& x) { return dense_view(x.data(), shape); };
    const Kept kept{out(o_lo), m.data(), l.data()};
    return {in(q), in(k), in(v), in(o), kept, in(dout), out(dq), out(dk), out(dv), nullptr, nullptr, options};
  }

  Run run(Mode mode, const MachineOptions& machine) {
    const GradientProblem<half> p = problem();
    const Problem<half> forward{p.q, p.k, p.v, dense_view(o.data(), shape), nullptr, options};
    forward_training(phase, forward, p.kept, Where::Gpu);
    return backward(phase, p, Where::Gpu, machine, mode);
  }
};

// dQ, dK and dV of one head of 512: no farther from fp64 than the contract's bar for N(0,1), two rounding floors?
// Leaves the largest error and its floor in the row.
bool verify(const Phase& phase, const Options& options, Mode mode, bench::Row& row) {
  Tensors t(phase, {1, 1, 512, row.at.D}, options);
  t.run(mode, {});
  bool right = true;
  for (const bench::GradientError& e : bench::gradient_errors(t.problem())) {
    right = right && e.error <= 2 * e.floor;
    if (e.error > row.error) row.error = e.error, row.floor = e.floor;
  }
  return right;
}

}  // namespace

int main(int count, char** words) try {
  std::int64_t largest = 8192;
  std::string out;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    char* end = nullptr;
    if (word == "--out" && i + 1 < count)
      out = words[++i];
    else if (largest = std::strtoll(word.c_str(), &end, 10); *end || largest <= 0)
      refuse("argument", "'" + word + "'", "the largest N or --out FILE", "correct it");
  }
  std::vector<std::string> rows;
  int wrong = 0;
  // One measurement: a row, unless it is wrong.
  const auto measure = [&](const Phase& phase, const bench::Case& c, Blocks blocks, Mode mode) {
    const Options options{
        .mask = c.causal ? Mask::top_left() : Mask::none(), .block_q = blocks.Br, .block_k = blocks.Bc};
    bench::Row row;
    row.at = c, row.work = 2.5;
    row.kernel = std::string(phase.name, std::strchr(phase.name, '-')) +
                 (mode == Mode::Atomic ? " atomic " : " deterministic ") + std::to_string(blocks.Br) + "x" +
                 std::to_string(blocks.Bc);
    const bool right = verify(phase, options, mode, row);
    std::printf("B%d H%d D%-3d %s N %5d  %-24s error %.1e", int(c.B), int(c.H), int(c.D),
                c.causal ? "causal" : "full  ", int(c.N), row.kernel.c_str(), row.error);
    if (!right) {
      std::printf(": wrong, not timed\n");
      ++wrong;
      return;
    }
    row.timing = Tensors(phase, {c.B, c.H, c.N, c.D}, options).run(mode, {.samples = 10}).timing;
    std::printf(" %9.3f ms %6.2f TFLOP/s\n", row.timing.median_ms, bench::tflops(row));
    std::fflush(stdout);
    rows.push_back(json_row(row));
  };
  for (const bench::Case& c : bench::cases()) {
    if (c.sweep != "kernels" || c.N > largest) continue;
    for (const Phase* phase : bench::backward_phases(Type::Float16)) {
      require(phase->name, phase->backward->features, Where::Gpu);
      for (const Blocks& blocks : phase->backward->features.blocks)
        for (const Mode mode : {Mode::Deterministic, Mode::Atomic})
          if (blocks.Br * blocks.Bc >= 1024) measure(*phase, c, blocks, mode);
    }
  }
  // As flash-gpu-bench: what has a wrong case is not kept under the name that was asked for.
  if (!out.empty()) bench::write_file(wrong ? out + ".refused" : out, bench::results_text(bench::environment(), rows));
  return wrong > 0;
} catch (const Error& error) {
  std::fprintf(stderr, "flash-backward-bench: %s\n", error.what());
  return 2;
}
