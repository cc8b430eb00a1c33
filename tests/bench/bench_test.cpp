// bench_test.cpp: what can be proved about the benchmarks without a GPU: the work that a case is, the sanity law, the
// statistics, the naive baseline (on the simulator), and the reader of results. Tables of them: tables_test.py.
// ctest --test-dir build -L bench
#include <doctest/doctest.h>

#include "phases/arrays/random.hpp"
#include "phases/library/measured.hpp"
#include "tests/bench/ceilings.hpp"
#include "tests/bench/forward_check.hpp"
#include "tests/bench/results.hpp"
#include "tests/folder.hpp"
#include "tests/reference.hpp"

using namespace flash;
using namespace flash::bench;

TEST_CASE("FLOPs are 4·D for every pair that meets, counted one by one") {
  for (const bool causal : {false, true}) {
    const Case c{"test", 2, 3, 37, 16, causal};
    std::uint64_t pairs = 0;
    for (std::int64_t i = 0; i < c.N; ++i)
      for (std::int64_t j = 0; j < c.N; ++j)
        pairs += test::sees(causal ? Mask::top_left() : Mask::none(), i, j, c.N, c.N);
    CHECK(visible_pairs(c) == 6 * pairs);
    CHECK(flops(c) == 4 * 16 * 6 * pairs);
  }
  // The usual formula, 2·2·Z·H·N²·D.
  CHECK(flops({"steps", 4, 12, 4096, 64, false}) == 206158430208u);
  CHECK(least_bytes({"steps", 4, 12, 4096, 64, false}) == 4u * 4 * 12 * 4096 * 64 * 2);
}

TEST_CASE("The plan holds the sweeps") {
  int steps = 0, naive_rows = 0, beside_naive = 0;
  for (const Measurement& e : plan()) {
    CHECK_MESSAGE((!e.at.causal || e.kernel->forward->features.meets(Demand::Causal)), e.kernel->name);
    steps += e.at.sweep == "steps";
    naive_rows += e.kernel == &naive::phase;
    beside_naive += e.at.sweep == "naive-vs-flash" && std::string(e.kernel->name) == "08-lse";
  }
  CHECK(steps == 31);      // 256 … 4096 in steps of 128
  CHECK(naive_rows == 6);  // 512 … 8192 and one more
  CHECK(beside_naive == 6);
  // Series come with growing N, or the sanity law would look at nothing.
  const std::vector<Case> all = cases();
  for (std::size_t i = 1; i < all.size(); ++i)
    if (same_series(all[i - 1], all[i])) CHECK(all[i - 1].N < all[i].N);
}

TEST_CASE("A backward pass counts as 2.5 forward passes") {
  Row row;
  row.at = {"kernels", 1, 1, 512, 64, false}, row.timing.median_ms = 2;
  CHECK(json_row(row).find("\"flops\": 67108864,") != std::string::npos);
  CHECK(tflops(row) == 67108864 / 2e9);
  row.work = 2.5;
  CHECK(json_row(row).find("\"flops\": 167772160,") != std::string::npos);
  CHECK(tflops(row) == 167772160 / 2e9);
}

TEST_CASE("The sanity law refuses times that do not grow, and NaN") {
  CHECK(grows(512, 1.0, 1024, 4.0));
  CHECK(grows(512, 1.0, 1024, 1.7));
  CHECK_FALSE(grows(512, 1.0, 1024, 1.5));
  CHECK_FALSE(grows(512, 1.0, 1024, 1.0));
  CHECK_FALSE(grows(512, 1.0, 1024, std::nan("")));
}

TEST_CASE("Median and quantiles, and when there are samples enough") {
  const Timing t = summarise({5, 1, 2, 3, 4, 6, 7, 8, 9, 10, 1000});
  CHECK(t.samples == 11);
  CHECK(t.median_ms == 6);
  CHECK(t.p10_ms == 2);
  CHECK(t.p90_ms == 10);
  CHECK(summarise({3}).median_ms == 3);
  CHECK(summarise({1, 2}).median_ms == 1.5);

  CHECK(enough(std::vector<double>(10, 1.0), 100));          // no spread
  CHECK_FALSE(enough(std::vector<double>(9, 1.0), 100));     // too few to tell
  CHECK_FALSE(enough({1, 2, 1, 2, 1, 2, 1, 2, 1, 2}, 100));  // spread
  CHECK(enough({1, 2, 1, 2, 1, 2, 1, 2, 1, 2}, 10));         // as many as asked for
  CHECK(enough({150, 100, 150}, 100));                       // long
  CHECK_FALSE(enough({1000, 1000}, 100));
}

template <class T>
void check_naive(Where where, double bar) {
  const std::array<std::int64_t, 4> rows{1, 2, 70, 19}, keys{1, 2, 90, 19};
  const auto filled = [](const std::array<std::int64_t, 4>& shape, std::uint32_t stream) {
    std::vector<T> x(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = from_float<T>(Random(7, stream).normal(i));
    return x;
  };
  const std::vector<T> q = filled(rows, 0), k = filled(keys, 1), v = filled(keys, 2);
  std::vector<T> o(q.size());
  Problem<T> p;
  p.q = dense_view(q.data(), rows), p.k = dense_view(k.data(), keys), p.v = dense_view(v.data(), keys);
  p.o = dense_view(o.data(), rows);
  forward(naive::phase, p, where);
  const test::Reference want = test::reference(p);
  const test::Distance floor = test::rounding_floor<T>(want.o, 19);
  const double error = test::distance(test::gather(View<const T>(p.o)), want.o, 19).relative;
  CHECK_MESSAGE(error <= bar + 1.5 * floor.relative, error);
  CHECK(naive::extra_bytes(p) == 2 * 70 * 90 * (4 + sizeof(T)));
}

TEST_CASE("The naive baseline is right, on ragged tiles too") {
  for (const Where where : {Where::Sim, Where::Checked}) {
    if (!was_built(where)) continue;
    check_naive<float>(where, 2e-6);
    check_naive<half>(where, 0x1p-24);
  }
}

TEST_CASE("The ceilings' loads are what their formulas say, counted, ldmatrix without bank conflicts") {
  if (!was_built(Where::Checked)) return;
  for (const ceilings::Mix& mix : ceilings::mixes) {
    const ceilings::Load once{mix, 2, 5, 1}, often{mix, 2, 5, 4};
    const Ledger first = ceilings::measure_on(Where::Checked)(once, 0).run.ledger,
                 last = ceilings::measure_on(Where::Checked)(often, 0).run.ledger;
    INFO(ceilings::name(mix));
    // What surrounds the loop is in both.
    CHECK(last.tensor_flops - first.tensor_flops == ceilings::mma_flops(often) - ceilings::mma_flops(once));
    CHECK(last.exps - first.exps == ceilings::ex2_count(often) - ceilings::ex2_count(once));
    const std::uint64_t wavefronts = last.shared_wavefronts - first.shared_wavefronts;
    CHECK(128 * wavefronts == ceilings::ldmatrix_bytes(often) - ceilings::ldmatrix_bytes(once));
    CHECK(last.bank_conflicts() == 0);
  }
}

TEST_CASE("The JSON reader takes what is written and refuses the rest") {
  const Json file =
      parse_json(results_text({{"gpu", "a \"b\" \\"}}, {"{\"x\": -1.5e3, \"y\": [true, false, null]}"}), "f");
  CHECK(file.at("environment").at("gpu").text == "a \"b\" \\");
  CHECK(file.at("rows").items.at(0).at("x").number == -1500);
  CHECK(file.at("rows").items.at(0).at("y").items.at(0).truth);
  for (const char* bad : {"", "{", "{\"a\": 1,}", "{\"a\" 1}", "{\"a\": 1} x", "{\"a\": 1, \"a\": 2}", "[1 2]",
                          "\"\\u0041\"", "\"open", "nul", "{a: 1}", "[1,]", "NaN"})
    CHECK_THROWS_AS_MESSAGE(parse_json(bad, "f"), Error, bad);
}

TEST_CASE("The figures by which a phase is chosen: of our phases, the later file's, of one GPU") {
  const test::Folder temporary;
  const std::filesystem::path& folder = temporary.path();
  const auto write = [&](const std::string& name, const std::string& gpu,
                         const std::vector<std::pair<std::string, double>>& times) {
    std::vector<std::string> rows;
    for (const auto& [kernel, ms] : times)
      for (const std::string sweep : {name == "second.json" ? "few" : "kernels", "steps"}) {
        Row row{.at = {sweep, 4, 32, 512, 64, kernel == "08-lse"}, .kernel = kernel};
        row.timing = {.samples = 3, .median_ms = sweep == "steps" ? 1e-3 : ms, .p10_ms = 1, .p90_ms = 3};
        rows.push_back(json_row(row));
      }
    write_file(folder / name, results_text({{"gpu", gpu}}, rows));
  };
  write("first.json", "G", {{"08-lse", 2}, {"06-4d-grid", 2}, {"torch flash", 1}});
  write("second.json", "G", {{"06-4d-grid", 4}});
  write("other.json", "H", {{"06-4d-grid", 4}});
  const std::string text = measured_source({folder / "first.json", folder / "second.json"});
  // 4 · 4 · 32 · 512² · 64 FLOPs in 4 ms; with a mask half of the pairs and half a diagonal in 2 ms.
  CHECK(text.find("docs/results: first.json second.json\n") != std::string::npos);
  CHECK(text.find("measured_gpu = \"G\";\n") != std::string::npos);
  CHECK(text.find("[] = {\n"
                  "    {\"06-4d-grid\", Type::Float16, false, 64, 512, 128, 2.14748},\n"
                  "    {\"08-lse\", Type::Float16, true, 64, 512, 128, 2.15168},\n"
                  "};\n") != std::string::npos);
  // Backward passes: the mode, the first of several blocks, and no step on the way to a phase.
  const auto backward_row = [](const std::string& sweep, const std::string& kernel, double tflops) {
    return "{\"sweep\": \"" + sweep + "\", \"kernel\": \"" + kernel +
           "\", \"type\": \"bfloat16\", \"causal\": false, \"D\": 64, \"N\": 512, \"B\": 4, \"H\": 32, \"tflops\": " +
           std::to_string(tflops) + "}";
  };
  write_file(folder / "backward.json",
             results_text({{"gpu", "G"}}, {backward_row("kernels", "09 deterministic 64x32", 3),
                                           backward_row("kernels", "09 atomic 64x32", 4),
                                           backward_row("kernels", "09 deterministic 32x64", 5),
                                           backward_row("backward", "20-backward-tensor-cores", 6),
                                           backward_row("backward", "20-backward-tensor-cores 32x64", 7),
                                           backward_row("backward", "20-backward-tensor-cores deterministic", 2),
                                           backward_row("backward", "21-backward-wgmma/1-scalar", 8),
                                           backward_row("backward", "torch cudnn", 9)}));
  const std::string backward = measured_source({folder / "second.json", folder / "backward.json"});
  const std::string at = "Type::BFloat16, false, 64, 512, 128, ", direction = ", Direction::Backward, BackwardMode::";
  CHECK(backward.find("[] = {\n"
                      "    {\"06-4d-grid\", Type::Float16, false, 64, 512, 128, 2.14748},\n"
                      "    {\"09\", " +
                      at + "4" + direction +
                      "Atomic},\n"
                      "    {\"09\", " +
                      at + "3" + direction +
                      "Deterministic},\n"
                      "    {\"20-backward-tensor-cores\", " +
                      at + "6" + direction +
                      "Atomic},\n"
                      "    {\"20-backward-tensor-cores\", " +
                      at + "2" + direction +
                      "Deterministic},\n"
                      "};\n") != std::string::npos);
  CHECK_THROWS_WITH_AS(measured_source({folder / "first.json", folder / "other.json"}),
                       "other.json is of H, the files before it of G", Error);
  CHECK_THROWS_AS(measured_source({folder / "none.json"}), Error);
}

// The mean of two values that are seen alike, so that O and LSE are known without a kernel.
TEST_CASE_TEMPLATE("A forward result is verified before it is timed", T, half, bfloat16) {
  constexpr std::int64_t N = 2, D = 8;
  const std::vector<T> q(2 * N * D), k = q;  // zeros: all keys weigh the same
  std::vector<T> v, o;
  for (std::int64_t i = 0; i < 2 * N * D; ++i) {
    v.push_back(from_float<T>(i / D % N == 0 ? 1.0f : 3.0f));
    o.push_back(from_float<T>(2.0f));
  }
  std::vector<float> lse(2 * N, std::log(2.0f));
  const std::array<std::int64_t, 4> shape{1, 2, N, D};
  const Problem<T> p{dense_view(q.data(), shape),
                     dense_view(k.data(), shape),
                     dense_view(v.data(), shape),
                     dense_view(o.data(), shape),
                     lse.data(),
                     {}};
  CHECK(verify(p, 1e-6).error == 0);
  o[D] = from_float<T>(2.125f);
  CHECK_THROWS_AS(verify(p, 1e-6), Error);
  o[D] = from_float<T>(NAN);
  CHECK_THROWS_WITH_AS(verify(p, 1e-6), "O has elements that are no finite numbers", Error);
  o[D] = from_float<T>(2.0f);
  lse[1] += 1e-4f;
  CHECK_THROWS_WITH_AS(verify(p, 1e-6), "the LSE is wrong", Error);
  CHECK(verify(p, 1e-3).floor == 0);
}
