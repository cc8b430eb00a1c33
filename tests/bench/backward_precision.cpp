// backward_precision.cpp: large logits of five sizes, and the results of the newest backward pass that takes all types
// for them as .npy files, so that another program can judge them and run other libraries on the very same numbers
// (logits_h200.py; the file `phase` says whose results they are); or, on the simulator, what a delta from the rounded O
// costs, as JSON for docs/backward.md. Other inputs on the GPU: precision_h200.py.
// flash-backward-precision --logits DIRECTORY [gpu|sim] [S] [D] [B] [H]   default: gpu 2048 128 2 8, about 1.2 GB
// flash-backward-precision --delta OUT.json [S] [D]                       default: 1024 64, one head
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "phases/arrays/npy.hpp"
#include "phases/arrays/random.hpp"
#include "tests/bench/gradient_check.hpp"
#include "tests/bench/results.hpp"

using namespace flash;

namespace {

struct Input {
  const char *name, *label;
  Distribution distribution;  // of Q, K, V and dO
  float factor;               // of Q, K and V
  int bar;                    // the contract's, in rounding floors
  bool large_logits = false;  // the factor is of Q and K alone
  bool signs = false;         // each number of Q and K is +factor or -factor
};

constexpr Input inputs[] = {{"normal", "N(0,1)", Distribution::Normal, 1, 2},
                            {"shifted", "N(1,1)", Distribution::Shifted, 1, 10},
                            {"uniform", "uniform[0,1)", Distribution::Uniform, 1, 10},
                            {"outliers", "outliers", Distribution::Outliers, 1, 4},
                            {"times4", "Q, K, V times 4", Distribution::Normal, 4, 4}};

// Logits of both signs and about that size. With ±1e4 they are near 1e9, and equal ones are exactly equal.
constexpr Input logits[] = {{"1e1", "10", Distribution::Normal, 3.1622777f, 2, true},
                            {"1e3", "1e3", Distribution::Normal, 31.622777f, 2, true},
                            {"1e4", "1e4", Distribution::Normal, 100, 2, true},
                            {"1e6", "1e6", Distribution::Normal, 1000, 2, true},
                            {"signs", "Q, K of ±1e4", Distribution::Normal, 1e4f, 2, true, true}};

using Sizes = std::array<std::int64_t, 4>;

// Whose passes they are: the newest that takes all types.
const Phase& phase() {
  return *bench::backward_phases(Type::Float32).back();
}

// A forward and a backward pass of one input.
template <class T>
struct Pass {
  Sizes shape;
  std::vector<T> q, k, v, dout, o, dq, dk, dv;
  std::vector<std::int16_t> o_lo;
  std::vector<float> m, l;

  Pass(const Input& input, const Sizes& s) : shape(s) {
    const std::size_t n = static_cast<std::size_t>(s[0] * s[1] * s[2] * s[3]);
    std::uint32_t stream = 0;
    for (auto* x : {&q, &k, &v, &dout}) {
      const Random random(1, stream++);
      const bool qk = x == &q || x == &k;
      const float factor = x == &dout || (input.large_logits && !qk) ? 1 : input.factor;
      x->resize(n);
      for (std::size_t i = 0; i < n; ++i) {
        const float y = draw(random, input.distribution, i);
        (*x)[i] = from_float<T>(qk && input.signs ? std::copysign(factor, y) : factor * y);
      }
    }
    for (auto* x : {&o, &dq, &dk, &dv}) x->resize(n);
    o_lo.resize(n);
    for (auto* x : {&m, &l}) x->resize(n / static_cast<std::size_t>(s[3]));
  }

  GradientProblem<T> problem() {
    const auto in = [&](const std::vector<T>& x) { return dense_view<const T>(x.data(), shape); };
    const auto out = [&](auto& x) { return dense_view(x.data(), shape); };
    const Kept kept{sizeof(T) == 2 ? out(o_lo) : View<std::int16_t>{}, m.data(), l.data()};
    return {in(q), in(k), in(v), in(o), kept, in(dout), out(dq), out(dk), out(dv), nullptr, nullptr, {}};
  }

  void run(Where where) {
    const GradientProblem<T> p = problem();
    forward_training(phase(), Problem<T>{p.q, p.k, p.v, dense_view(o.data(), shape), nullptr, {}}, p.kept, where);
    backward(phase(), p, where);
  }
};

// fp32 and fp16 as they are; bf16, which .npy does not know, widened to fp32.
template <class T>
void write(const std::string& path, const std::array<std::int64_t, 4>& shape, const std::vector<T>& x) {
  const std::vector<std::int64_t> axes(shape.begin(), shape.end());
  if constexpr (std::is_same_v<T, half>) {
    write_npy<half>(path, axes, x.data());
  } else {
    std::vector<float> wide(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) wide[i] = to_float(x[i]);
    write_npy<float>(path, axes, wide.data());
  }
}

template <class T>
void write_files(const std::string& directory, Where where, const Input& input, const Sizes& shape) {
  Pass<T> pass(input, shape);
  pass.run(where);
  const std::string start = directory + "/" + input.name + "_" + type_name<T>() + "_";
  write(start + "q.npy", shape, pass.q), write(start + "k.npy", shape, pass.k), write(start + "v.npy", shape, pass.v);
  write(start + "dout.npy", shape, pass.dout), write(start + "o.npy", shape, pass.o);
  write(start + "dq.npy", shape, pass.dq), write(start + "dk.npy", shape, pass.dk);
  write(start + "dv.npy", shape, pass.dv);
  // The P of the backward pass: dV = Pᵀ dO, so where column d of dO has its only 1 in row d, column d of dV is row d of
  // P: the first D rows of each head.
  const std::size_t D = static_cast<std::size_t>(shape[3]), S = static_cast<std::size_t>(shape[2]);
  for (std::size_t i = 0; i < pass.dout.size(); ++i) pass.dout[i] = from_float<T>(i / D % S == i % D ? 1.0f : 0.0f);
  backward(phase(), pass.problem(), where);
  write(start + "p.npy", shape, pass.dv);
  std::printf("%s %s\n", input.name, type_name<T>());
}

// Two rows: the gradients with δ from the O that was returned, as libraries form it, and with the bits that were kept.
template <class T>
void compare_deltas(const Input& input, const Sizes& shape, std::vector<std::string>& rows) {
  Pass<T> pass(input, shape);
  pass.run(Where::Sim);
  for (const bool kept : {false, true}) {
    GradientProblem<T> p = pass.problem();
    if (!kept) p.kept.o_lo = {};
    backward(phase(), p, Where::Sim);
    std::ostringstream row, floors, errors;
    const char* comma = "";
    for (const bench::GradientError& e : bench::gradient_errors(p)) {
      floors << comma << e.floor, errors << comma << e.error;
      comma = ", ";
    }
    row << "{\"input\": " << json_string(input.label) << ", \"type\": \"" << type_name<T>() << "\", \"who\": \""
        << (kept ? "ours" : "δ from rounded O") << "\", \"shape\": [" << shape[0] << ", " << shape[1] << ", "
        << shape[2] << ", " << shape[3] << "], \"bar\": " << input.bar << ", \"floor\": [" << floors.str()
        << "], \"error\": [" << errors.str() << "]}";
    rows.push_back(row.str());
    std::printf("%s\n", rows.back().c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode != "--logits" && mode != "--delta") refuse("mode", "'" + mode + "'", "--logits or --delta", "pass one");
    if (argc < 3) refuse(mode, "alone", mode + (mode == "--delta" ? " OUT.json" : " DIRECTORY"), "name it");
    const auto number = [&](int i, std::int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
    if (mode == "--delta") {
      std::vector<std::string> rows;
      for (const Input& input : inputs) compare_deltas<half>(input, {1, 1, number(3, 1024), number(4, 64)}, rows);
      for (const Input& input : inputs) compare_deltas<bfloat16>(input, {1, 1, number(3, 1024), number(4, 64)}, rows);
      bench::write_file(argv[2], bench::results_text(bench::cpu_environment("one head on the simulator"), rows));
      return 0;
    }
    const std::string machine = argc > 3 ? argv[3] : "gpu";
    if (machine != "gpu" && machine != "sim") refuse("machine", machine, "gpu or sim", "omit it for gpu");
    const Where where = machine == "gpu" ? Where::Gpu : Where::Sim;
    const Sizes shape{number(6, 2), number(7, 8), number(4, 2048), number(5, 128)};
    std::filesystem::create_directories(argv[2]);
    write_file(std::string(argv[2]) + "/phase", phase().name);
    for (const Input& input : logits) {
      write_files<float>(argv[2], where, input, shape);
      write_files<half>(argv[2], where, input, shape);
      write_files<bfloat16>(argv[2], where, input, shape);
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "flash-backward-precision: %s\n", error.what());
    return 2;
  }
}
