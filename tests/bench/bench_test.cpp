// bench_test.cpp: what can be proved about the benchmarks without a GPU: the work that a case is, the sanity law, the
// statistics, the naive baseline (on the simulator), the reader of results, and that a stale table is seen.
// ctest --test-dir build -L bench
#include <doctest/doctest.h>

#include "phases/common/random.hpp"
#include "tests/bench/results.hpp"
#include "tests/bench/tables.hpp"
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
        pairs += test::sees(causal ? Causal::TopLeft : Causal::None, i, j, c.N, c.N);
    CHECK(visible_pairs(c) == 6 * pairs);
    CHECK(flops(c) == 4 * 16 * 6 * pairs);
  }
  // The usual formula, 2·2·Z·H·N²·D.
  CHECK(flops({"steps", 4, 12, 4096, 64, false}) == 206158430208u);
  CHECK(least_bytes({"steps", 4, 12, 4096, 64, false}) == 4u * 4 * 12 * 4096 * 64 * 2);
}

TEST_CASE("The plan holds the sweeps") {
  int steps = 0, naive_rows = 0;
  for (const Measurement& e : plan()) {
    CHECK_MESSAGE((!e.at.causal || e.kernel->features.causal), e.kernel->features.phase);
    steps += e.at.sweep == "steps";
    naive_rows += e.kernel == &naive::phase;
  }
  CHECK(steps == 31);      // 256 … 4096 in steps of 128
  CHECK(naive_rows == 6);  // 512 … 8192 and one more
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

TEST_CASE("Median and quantiles; when there are samples enough") {
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

TEST_CASE("A table that differs from the results is stale, and is renewed") {
  const test::Folder temporary;
  const std::filesystem::path& folder = temporary.path();
  const Case small{"naive-vs-flash", 4, 32, 512, 64, false}, large{"naive-vs-flash", 4, 32, 16384, 64, false};
  const auto write = [&](double ms) {
    Row one{.at = small, .kernel = "naive", .timing = {.samples = 3, .median_ms = ms, .p10_ms = 1, .p90_ms = 3}};
    Row two{.at = large, .kernel = "naive"};
    one.timing.sm_mhz = 1980;
    two.wanted = 206158430208u;
    write_file(folder / "test.json",
               results_text({{"gpu", "G"}, {"driver", "1"}, {"cuda", "13.0"}, {"commit", "abc"}, {"date", "d"}},
                            {json_row(one), json_row(two)}));
  };
  const std::string page =
      "before\n<!-- results naive-vs-flash test.json none.json -->\nold\n<!-- end of results -->\nafter\n";
  write(2);
  const std::string fresh = renewed(page, folder);
  CHECK(fresh ==
        "before\n<!-- results naive-vs-flash test.json none.json -->\n\n"
        "B4 H32 D64 full, float16: TFLOP/s (median time)\n\n| N | naive |\n|---|---:|\n| 512 | 4.29 (2.00 ms) |\n"
        "| 16384 | out of memory (wants 206 GB) |\n\n"
        "test.json: G, driver 1, CUDA 13.0;\nSM clock 1980 to 1980 MHz while timed; commit abc, d\n"
        "Not measured yet: none.json in docs/results.\n\n<!-- end of results -->\nafter\n");
  CHECK(renewed(fresh, folder) == fresh);  // not stale
  write(4);
  CHECK(renewed(fresh, folder) != fresh);
  CHECK_THROWS_AS(renewed("<!-- results naive-vs-flash test.json -->\nno end", folder), Error);
  CHECK_THROWS_AS(renewed("<!-- results kernels test.json -->\n<!-- end of results -->", folder), Error);
}

static std::vector<Json> rows_of(const std::string& rows) {
  return parse_json("[" + rows + "]", "rows").items;
}

TEST_CASE("A prediction's verdict follows from its range and the rows that it selects") {
  const std::string measured =
      R"({"sweep": "s", "kernel": "a", "B": 1, "H": 1, "D": 64, "causal": false, "N": 1, "tflops": 1, "median_ms": 4},
         {"sweep": "s", "kernel": "a", "B": 1, "H": 1, "D": 64, "causal": false, "N": 2, "tflops": 3, "median_ms": 8},
         {"sweep": "s", "kernel": "08-lse", "B": 1, "H": 1, "D": 64, "causal": false, "N": 2, "tflops": 6,
          "median_ms": 16},
         {"sweep": "s", "kernel": "a", "B": 1, "H": 1, "D": 64, "causal": false, "N": 4, "out_of_memory_bytes": 5e9})";
  const auto line = [&](const std::string& prediction) {
    const std::string table = predictions_table(rows_of("{\"claim\": \"c\", " + prediction + "}, " + measured));
    return table.substr(table.find("\n", table.find("---")) + 1);
  };
  const std::string tflops = R"("of": "TFLOP/s", "rows": {"kernel": "a", "N": [1, 2]})";
  CHECK(line(R"("low": 1, "high": 3, )" + tflops) == "| c: 1 to 3 TFLOP/s | 1.00 to 3.00 | as predicted |\n\n");
  CHECK(line(R"("low": 2, "high": 3, )" + tflops) ==
        "| c: 2 to 3 TFLOP/s | 1.00 to 3.00 | **wrong**: 1 of 2 below |\n\n");
  CHECK(line(R"("high": 0.5, )" + tflops) == "| c: at most 0.5 TFLOP/s | 1.00 to 3.00 | **wrong**: 2 of 2 above |\n\n");
  CHECK(line(R"("low": 2, "high": 2.5, )" + tflops) ==
        "| c: 2 to 2.5 TFLOP/s | 1.00 to 3.00 | **wrong**: 2 of 2 outside |\n\n");
  CHECK(line(R"("low": 3, "of": "times the TFLOP/s at N/2", "rows": {"kernel": "a", "N": 2})") ==
        "| c: at least 3 times the TFLOP/s at N/2 | 3.00 | as predicted |\n\n");
  CHECK(line(R"("high": 1, "of": "times 08-lse's time", "rows": {"kernel": "a", "N": 2})") ==
        "| c: at most 1 times 08-lse's time | 0.500 | as predicted |\n\n");
  CHECK(line(R"("low": 5, "of": "GB wanted", "rows": {"N": 4, "causal": false})") ==
        "| c: at least 5 GB wanted | 5.00 | as predicted |\n\n");
  for (const char* bad : {R"("low": 1, "of": "TFLOP/s", "rows": {"N": 4}})",                   // was not timed
                          R"("low": 1, "of": "times the TFLOP/s at N/2", "rows": {"N": 1}})",  // no half of it
                          R"("low": 1, "of": "TFLOP/s", "rows": {"N": 3}})",                   // no such row
                          R"("low": 1, "of": "luck", "rows": {"N": 2}})"})
    CHECK_THROWS_AS_MESSAGE(line(bad), Error, bad);
}

TEST_CASE("Gradients: errors in floors, and the bar holds for all three or not at all") {
  const std::vector<Json> rows = rows_of(
      R"({"input": "i", "type": "t", "who": "a", "bar": 2, "floor": [1e-4, 1e-4, 1e-4], "error": [1e-4, 2e-4, 1e-4]},
         {"input": "i", "type": "t", "who": "b", "bar": 2, "floor": [1e-4, 1e-4, 1e-4], "error": [3e-2, 1e-4, 1e-4]},
         {"input": "j", "type": "t", "who": "b", "bar": 2, "floor": [0, 1, 1], "error": [0, 1, 1]})");
  const std::string table = gradients_table(rows);
  CHECK(table.find("| i | t | a | 1.00e-04 (1.00 ×) | 2.00e-04 (2.00 ×) | 1.00e-04 (1.00 ×) | yes |\n") != table.npos);
  CHECK(table.find("| i | t | b | 3.00e-02 (300.00 ×) | 1.00e-04 (1.00 ×) | 1.00e-04 (1.00 ×) | no |\n") != table.npos);
  CHECK(table.rfind("| no |\n\n") == table.size() - 8);  // 0/0 is within no bar
  CHECK(dq_table({rows[0], rows[1]}) == "| inputs, dO alike | t: a | t: b |\n|---|---:|---:|\n| i | 1.00 | 300 |\n\n");
}

TEST_CASE("The CPU beside another library: a line per D and mask, a column per N, the memory of the worst") {
  CHECK(cpu_table(rows_of(
            R"({"D": 64, "N": 8, "causal": false, "ratio": 0.876, "ours_mib": 1, "torch_mib": 3},
               {"D": 64, "N": 16, "causal": true, "ratio": 2, "ours_mib": 2, "torch_mib": 2.5})")) ==
        "| torch's time / ours | N = 8 | N = 16 |\n|---|---:|---:|\n| D 64, no mask | 0.88 |  |\n"
        "| D 64, causal |  | 2.00 |\n\nMemory beyond Q, K, V and O: at most 0.80 of torch's.\n\n");
}

TEST_CASE(
    "Phase 13's steps: speed beside prediction and step before, judged where there is both; instructions per mma") {
  const std::string predicted = R"({"kernel": "0-a", "N": 512, "causal": false, "predicted": 100},
                                   {"kernel": "1-b", "N": 512, "causal": false, "predicted": 200})";
  const std::string measured = R"({"kernel": "0-a", "N": 512, "causal": false, "tflops": 109},
                                  {"kernel": "1-b", "N": 512, "causal": false, "tflops": 218},
                                  {"kernel": "0-a", "N": 2048, "causal": false, "tflops": 50},
                                  {"kernel": "0-a", "N": 512, "causal": true, "tflops": 70}, )";
  const std::string table = diet_table(rows_of(measured + predicted));
  CHECK(table.find("\n| 0-a | 109 (100) |  | 50.0 |  | yes |\n| 1-b | 218 (200) | × 2.00 |  |  | yes |\n") !=
        std::string::npos);
  CHECK(table.find("\n| 0-a | 70.0 |  |  |  |  |\n") != std::string::npos);  // causal, not predicted
  CHECK(diet_table(rows_of(predicted)).find("\n| 1-b | (200) |  |  |\n") != std::string::npos);
  const std::string wrong = R"({"kernel": "0-a", "N": 512, "causal": false, "tflops": 89}, )";
  CHECK(diet_table(rows_of(wrong + predicted)).find("| 89.0 (100) |  | **0 of 1** |") != std::string::npos);
  CHECK(sass_table(rows_of(R"({"kernel": "0-a", "registers": 9, "spilled": 8, "instructions": 300, "mma": 128})"))
            .find("\n| 0-a | 9 | 8 | 300 | 128 | 2.34 |\n") != std::string::npos);
}

TEST_CASE("Sanitizer, mutants, simulators: what is missing, survived or slow shows") {
  CHECK(sanitizer_table(rows_of(R"({"phase": "05", "type": "t", "tool": "a", "found": 0},
                                   {"phase": "06", "type": "t", "tool": "b", "found": 3})")) ==
        "| phase | type | a | b |\n|---|---:|---:|---:|\n| 05 | t | 0 | not run |\n| 06 | t | not run | 3 |\n\n");
  CHECK(mutants_table(rows_of(R"({"kind": "k", "mutant": "x", "verdict": "caught", "by": "T<a>"},
                                 {"kind": "k", "mutant": "y", "verdict": "SURVIVED", "by": ""})")) ==
        "k: 1 of 2 caught\n\n| wrong version | noticed by |\n|---|---|\n| x | `T<a>` |\n| y | **SURVIVED** |\n\n");
  CHECK(simulators_table(rows_of(
            R"({"simulator": "s", "checks": "none", "ours": true, "gflops": 10, "slowest": 9, "fastest": 11},
               {"simulator": "o", "checks": "all", "ours": false, "gflops": 0.02, "slowest": 0, "fastest": 0.03})")) ==
        "| simulator | checks that are on | GFLOP/s | rounds | s is faster by |\n|---|---|---:|---:|---:|\n"
        "| s | none | 10 | 9 to 11 |  |\n| o | all | 0.02 | 0 to 0.03 | × 500 |\n\n");
  CHECK(speed_table(rows_of(R"({"build": "a", "N": 64, "threads": 1, "gflops": 2},
                               {"build": "b", "N": 64, "threads": 8, "gflops": 0.5})")) ==
        "| GFLOP/s, N = 64 | 1 thread | 8 threads |\n|---|---:|---:|\n| a | 2.00 |  |\n| b |  | 0.500 |\n\n");
}
