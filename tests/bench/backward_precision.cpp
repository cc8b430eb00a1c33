// backward_precision.cpp: inputs of five distributions and phase 09's gradients of them, as .npy files, so that another
// program can judge them and run other libraries on the very same numbers (precision_h200.py).
// flash-backward-precision DIRECTORY [gpu|sim] [S] [D] [B] [H]      default: gpu 2048 128 2 8, about 1.2 GB of files
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "phases/09-backward/phase.hpp"
#include "phases/common/npy.hpp"
#include "phases/common/random.hpp"

using namespace flash;

namespace {

struct Input {
  const char* name;
  Distribution distribution;  // of Q, K, V and dO
  float factor;               // of Q, K and V
};

constexpr Input inputs[] = {{"normal", Distribution::Normal, 1},
                            {"shifted", Distribution::Shifted, 1},
                            {"uniform", Distribution::Uniform, 1},
                            {"outliers", Distribution::Outliers, 1},
                            {"times4", Distribution::Normal, 4}};

// fp16 as it is; bf16, which .npy does not know, widened to fp32.
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
void run(const std::string& directory, Where where, const Input& input, const std::array<std::int64_t, 4>& shape) {
  const std::size_t n = static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
  const auto draw_all = [&](std::uint32_t stream, float factor) {
    std::vector<T> x(n);
    for (std::size_t i = 0; i < n; ++i)
      x[i] = from_float<T>(factor * draw(Random(1, stream), input.distribution, static_cast<std::uint64_t>(i)));
    return x;
  };
  const std::vector<T> q = draw_all(0, input.factor), k = draw_all(1, input.factor), v = draw_all(2, input.factor),
                       dout = draw_all(3, 1);
  std::vector<T> o(n), dq(n), dk(n), dv(n);
  std::vector<std::int16_t> o_lo(n);
  std::vector<float> m(n / static_cast<std::size_t>(shape[3])), l(m);
  const auto in = [&](const std::vector<T>& x) { return dense_view<const T>(x.data(), shape); };
  const auto out = [&](auto& x) { return dense_view(x.data(), shape); };
  const Options options;
  const phase09::Kept kept{sizeof(T) == 2 ? out(o_lo) : View<std::int16_t>{}, m.data(), l.data()};
  phase09::forward_training<T>({in(q), in(k), in(v), out(o), nullptr, options}, kept, where);
  phase09::backward<T>(
      {in(q), in(k), in(v), in(o), kept, in(dout), out(dq), out(dk), out(dv), nullptr, nullptr, options}, where);
  const std::string start = directory + "/" + input.name + "_" + type_name<T>() + "_";
  write(start + "q.npy", shape, q), write(start + "k.npy", shape, k), write(start + "v.npy", shape, v);
  write(start + "dout.npy", shape, dout);
  write(start + "dq.npy", shape, dq), write(start + "dk.npy", shape, dk), write(start + "dv.npy", shape, dv);
  std::printf("%s %s\n", input.name, type_name<T>());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) refuse("arguments", "missing", "DIRECTORY [gpu|sim] [S] [D] [B] [H]", "name a directory");
    const std::string where = argc > 2 ? argv[2] : "gpu";
    if (where != "gpu" && where != "sim") refuse("machine", where, "gpu or sim", "omit it for gpu");
    const auto number = [&](int i, std::int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
    const std::array<std::int64_t, 4> shape{number(5, 2), number(6, 8), number(3, 2048), number(4, 128)};
    std::filesystem::create_directories(argv[1]);
    for (const Input& input : inputs) {
      run<half>(argv[1], where == "gpu" ? Where::Gpu : Where::Sim, input, shape);
      run<bfloat16>(argv[1], where == "gpu" ? Where::Gpu : Where::Sim, input, shape);
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
