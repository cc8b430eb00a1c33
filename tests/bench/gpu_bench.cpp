// gpu_bench.cpp: ./flash bench on a GPU: the sweeps (cases.hpp) through the kernel phases, verified, then timed.
// Inputs N(0,1) in fp16. A wrong result is not timed; it, or a time that N does not raise, refuses the results file.
// flash-gpu-bench [NN] [--dry-run] [--out results.json]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "phases/arrays/random.hpp"
#include "phases/pages/text.hpp"
#include "tests/bench/forward_check.hpp"
#include "tests/bench/results.hpp"

namespace {

using namespace flash;
using namespace flash::bench;

// ---- Inputs and outputs, shared by all cases: a case takes the first B·H·N·D elements -------------------------------

struct Tensors {
  std::vector<half> q, k, v, o, o_again;
  std::vector<float> lse;

  explicit Tensors(const std::vector<Measurement>& entries) {
    std::size_t elements = 0, rows = 0;
    for (const Measurement& e : entries) {
      rows = std::max(rows, static_cast<std::size_t>(e.at.B * e.at.H * e.at.N));
      elements = std::max(elements, static_cast<std::size_t>(e.at.B * e.at.H * e.at.N * e.at.D));
    }
    std::uint32_t stream = 0;
    for (std::vector<half>* x : {&q, &k, &v}) {
      const Random random(2026, stream++);
      x->resize(elements);
      in_parallel(elements, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) (*x)[i] = from_float<half>(random.normal(i));
      });
    }
    o.resize(elements), o_again.resize(elements), lse.resize(rows);
  }

  Problem<half> problem(const Measurement& e, std::vector<half>& out) {
    const std::array<std::int64_t, 4> shape{e.at.B, e.at.H, e.at.N, e.at.D};
    Problem<half> p;
    p.q = dense_view<const half>(q.data(), shape);
    p.k = dense_view<const half>(k.data(), shape);
    p.v = dense_view<const half>(v.data(), shape);
    p.o = dense_view(out.data(), shape);
    if (e.kernel->forward->features.meets(Demand::Lse)) p.lse = lse.data();
    p.options.mask = e.at.causal ? Mask::top_left() : Mask::none();
    return p;
  }
};

// ---- The three ways to use the program ------------------------------------------------------------------------------

std::string text(const Case& c) {
  std::ostringstream s;
  s << c.sweep << "  B" << c.B << " H" << c.H << " D" << c.D << (c.causal ? " causal" : " full  ") << "  N " << c.N;
  return s.str();
}

void dry_run(const std::vector<Measurement>& entries) {
  std::uint64_t all = 0;
  for (const Measurement& e : entries) {
    std::printf("%-46s %-16s %9.3f TFLOP %10.1f MB\n", text(e.at).c_str(), e.kernel->name,
                static_cast<double>(flops(e.at)) * 1e-12, static_cast<double>(least_bytes(e.at)) * 1e-6);
    all += flops(e.at);
  }
  std::printf("%zu measurements, %.1f TFLOP if each ran once\n", entries.size(), static_cast<double>(all) * 1e-12);
}

#ifdef FLASH_HAVE_CUDA

Row measure(const Measurement& e, Tensors& tensors) {
  Row row{.at = e.at, .kernel = e.kernel->name};
  const auto elements = static_cast<std::size_t>(e.at.B * e.at.H * e.at.N * e.at.D);
  try {
    const Problem<half> first = tensors.problem(e, tensors.o);
    forward(*e.kernel, first, Where::Gpu);
    const Verdict verdict = verify(first, 1e-5);
    row.error = verdict.error, row.floor = verdict.floor;
    row.timing = forward(*e.kernel, tensors.problem(e, tensors.o_again), Where::Gpu, {.samples = 100}).timing;
    if (std::memcmp(tensors.o.data(), tensors.o_again.data(), elements * sizeof(half)) != 0)
      throw Error("the timed launches gave other bits than the verified one");
  } catch (const OutOfMemory&) {
    row.wanted = naive::extra_bytes(tensors.problem(e, tensors.o));
  } catch (const Error& error) {
    throw Error(std::string(e.kernel->name) + ", " + text(e.at) + ": " + error.what() + "; not timed");
  }
  return row;
}

// The row's line, and whether it obeys the sanity law beside the last shorter one of its series.
bool report(const Row& row, const std::vector<Row>& before) {
  std::printf("%-46s %-16s ", text(row.at).c_str(), row.kernel.c_str());
  if (row.wanted) {
    std::printf("out of memory: S and P want %s bytes\n", grouped(*row.wanted).c_str());
    return true;
  }
  std::printf("%10.3f ms (%.3f to %.3f, %3d samples) %7.2f TFLOP/s %5.0f MHz  error %.1e\n", row.timing.median_ms,
              row.timing.p10_ms, row.timing.p90_ms, row.timing.samples, tflops(row), row.timing.sm_mhz, row.error);
  std::fflush(stdout);
  for (auto last = before.rbegin(); last != before.rend(); ++last)
    if (last->kernel == row.kernel && same_series(last->at, row.at) && !last->wanted) {
      if (grows(last->at.N, last->timing.median_ms, row.at.N, row.timing.median_ms)) return true;
      std::printf("  ^ took %.3f ms at N = %lld: time must grow with N\n", last->timing.median_ms,
                  static_cast<long long>(last->at.N));
      return false;
    }
  return true;
}

void time_all(const std::vector<Measurement>& entries, const std::string& out) {
  const Environment where = environment();
  for (const auto& [name, value] : where) std::printf("%s %s; ", name.c_str(), value.c_str());
  std::printf("\nmedian (p10 to p90); FLOPs are 4·D per visible pair; error: fp16's relative error, sampled\n");
  Tensors tensors(entries);
  std::vector<Row> rows;
  int wrong = 0;
  for (const Measurement& e : entries) {
    try {
      const Row row = measure(e, tensors);
      wrong += !report(row, rows);
      rows.push_back(row);
    } catch (const Error& error) {
      std::printf("%s\n", error.what());
      ++wrong;
    }
  }
  // What breaks a law is kept for whoever looks for the cause, but not under the name that was asked for.
  const std::string path = wrong ? out + ".refused" : out;
  if (!out.empty()) {
    std::vector<std::string> lines;
    for (const Row& row : rows) lines.push_back(json_row(row));
    write_file(path, results_text(where, lines));
  }
  if (wrong) throw Error(std::to_string(wrong) + " measurements are wrong or do not grow with N; see above");
}

#endif

}  // namespace

int main(int count, char** words) try {
  std::vector<Measurement> entries = plan();
  std::string out;
  bool dry = false;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--dry-run") {
      dry = true;
    } else if (word == "--out" && i + 1 < count) {
      out = words[++i];
    } else {
      std::erase_if(entries, [&](const Measurement& e) {
        const std::string name = e.kernel->name;
        return name.substr(0, name.find('-')) != word;
      });
      if (entries.empty())
        refuse("argument", "'" + word + "'", "a kernel phase, --dry-run or --out FILE", "correct it");
    }
  }
  if (dry) {
    dry_run(entries);
    return entries.empty() ? 1 : 0;
  }
#ifdef FLASH_HAVE_CUDA
  if (available(Where::Gpu)) {
    time_all(entries, out);
    return 0;
  }
#endif
  std::printf("no GPU: %s; --dry-run lists what would be timed\n",
              was_built(Where::Gpu) ? "no CUDA device was found" : "this build has no CUDA");
  return out.empty() ? 0 : 2;
} catch (const flash::Error& e) {
  std::fprintf(stderr, "flash-gpu-bench: %s\n", e.what());
  return 2;
}
