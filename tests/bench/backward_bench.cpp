// backward_bench.cpp: phase 09's backward pass on seed 001's sweeps on a GPU: verified against fp64, then timed, for both
// modes and two block sizes. TFLOP/s are of 2.5 times the forward pass's 4·D per visible pair, by convention.
// flash-backward-bench [LARGEST_N]      default 8192; prints a table
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "phases/09-backward/phase.hpp"
#include "phases/09-backward/naive.hpp"
#include "phases/common/random.hpp"

using namespace flash;
using phase09::Mode;

namespace {

struct Tensors {
  std::array<std::int64_t, 4> shape;
  Options options;
  std::vector<half> q, k, v, o, dout, dq, dk, dv;
  std::vector<std::int16_t> o_lo;
  std::vector<float> m, l;

  Tensors(const std::array<std::int64_t, 4>& s, const Options& opt) : shape(s), options(opt) {
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

  Run run(Mode mode, const MachineOptions& machine) {
    const auto in = [&](const std::vector<half>& x) { return dense_view<const half>(x.data(), shape); };
    const auto out = [&](auto& x) { return dense_view(x.data(), shape); };
    const phase09::Kept kept{out(o_lo), m.data(), l.data()};
    phase09::forward_training<half>({in(q), in(k), in(v), out(o), nullptr, options}, kept, Where::Gpu);
    return phase09::backward<half>(
        {in(q), in(k), in(v), in(o), kept, in(dout), out(dq), out(dk), out(dv), nullptr, nullptr, options}, Where::Gpu,
        machine, mode);
  }
};

// Relative error of dQ, dK and dV of one head of 512 against fp64; the bar is twice the rounding floor, about 2e-4.
double verify(std::int64_t D, const Options& options, Mode mode) {
  Tensors t({1, 1, 512, D}, options);
  t.run(mode, {});
  const auto wide = [](const std::vector<half>& x) {
    std::vector<double> out;
    for (const half y : x) out.push_back(to_float(y));
    return out;
  };
  const std::vector<double> q = wide(t.q), k = wide(t.k), v = wide(t.v), dout = wide(t.dout);
  std::vector<double> dq(q.size()), dk(q.size()), dv(q.size());
  phase09::GradientProblem<double> p;
  p.q = dense_view(q.data(), t.shape), p.k = dense_view(k.data(), t.shape), p.v = dense_view(v.data(), t.shape);
  p.dout = dense_view(dout.data(), t.shape), p.dq = dense_view(dq.data(), t.shape);
  p.dk = dense_view(dk.data(), t.shape), p.dv = dense_view(dv.data(), t.shape), p.options = options;
  phase09::naive_backward(p);
  double worst = 0;
  for (const auto& [got, want] : {std::pair{&t.dq, &dq}, {&t.dk, &dk}, {&t.dv, &dv}}) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < want->size(); ++i) {
      const double d = to_float((*got)[i]) - (*want)[i];
      difference += d * d, norm += (*want)[i] * (*want)[i];
    }
    const double error = std::sqrt(difference / norm);
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    require(phase09::features, Where::Gpu);
    const std::int64_t largest = argc > 1 ? std::atoll(argv[1]) : 8192;
    int wrong = 0;
    std::printf(
        "| B, H | D | mask | N | mode | blocks | error | ms | p10-p90 | TFLOP/s | SM MHz |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n");
    struct Sweep {
      std::int64_t B, H, D, first_N, last_N;
    };
    for (const auto& [B, H, D, first_N, last_N] :
         {Sweep{4, 48, 64, 512, 8192}, Sweep{4, 48, 16, 512, 8192}, Sweep{8, 32, 128, 4096, 4096}})
      for (const Causal causal : {Causal::None, Causal::TopLeft})
        for (const auto& [Br, Bc] : {std::pair<int, int>{64, 32}, {32, 64}})
          for (const Mode mode : {Mode::Deterministic, Mode::Atomic}) {
            Options options;
            options.causal = causal, options.block_q = Br, options.block_k = Bc;
            const double error = verify(D, options, mode);
            const bool right = error <= 4.2e-4;
            wrong += !right;
            for (std::int64_t N = first_N; N <= std::min(largest, last_N) && right; N *= 2) {
              Tensors t({B, H, N, D}, options);
              const Timing time = t.run(mode, {.samples = 10}).timing;
              const double pairs = causal == Causal::None ? double(N) * double(N) : 0.5 * double(N) * double(N + 1);
              const double flops = 2.5 * 4 * double(B * H) * pairs * double(D);
              std::printf("| %d, %d | %d | %s | %d | %s | %dx%d | %.1e | %.3f | %.3f-%.3f | %.2f | %.0f |\n",
                          static_cast<int>(B), static_cast<int>(H), static_cast<int>(D),
                          causal == Causal::None ? "full" : "causal", static_cast<int>(N),
                          mode == Mode::Atomic ? "atomic" : "deterministic", Br, Bc, error, time.median_ms, time.p10_ms,
                          time.p90_ms, flops / time.median_ms / 1e9, time.sm_mhz);
              std::fflush(stdout);
            }
            if (!right)
              std::printf("| | %d | %s | | %s | %dx%d | %.1e: wrong, not timed |\n", static_cast<int>(D),
                          causal == Causal::None ? "full" : "causal", mode == Mode::Atomic ? "atomic" : "deterministic",
                          Br, Bc, error);
          }
    return wrong > 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
