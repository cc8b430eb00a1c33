// bench_test.cpp: what can be proved about the benchmarks without a GPU: the work that a case is, the sanity law, the
// statistics, the naive baseline (on the simulator), the reader of results, and that a stale table is seen.
// ctest --test-dir build -L bench
#include <doctest/doctest.h>

#include "phases/arrays/random.hpp"
#include "phases/library/measured.hpp"
#include "tests/bench/ceilings.hpp"
#include "tests/bench/forward_check.hpp"
#include "tests/bench/results.hpp"
#include "tests/bench/staircase.hpp"
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
  CHECK_THROWS_WITH_AS(measured_source({folder / "first.json", folder / "other.json"}),
                       "other.json is of H, the files before it of G", Error);
  CHECK_THROWS_AS(measured_source({folder / "none.json"}), Error);
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
    const std::string table = predictions_table(rows_of("{\"claim\": \"c\", " + prediction + "}, " + measured), {});
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

TEST_CASE("A prediction of what is not measured yet says so") {
  const std::string claim = R"({"claim": "c", "low": 1, "of": "TFLOP/s", "rows": {"sweep": "s", "kernel": "a"}})";
  const auto has = [](const std::string& table, const char* line) { return table.find(line) != table.npos; };
  CHECK(has(predictions_table(rows_of(claim), {}), "| c: at least 1 TFLOP/s | not yet |  |\n"));
  CHECK(has(predictions_table(rows_of(claim + R"(, {"sweep": "s", "kernel": "a", "tflops": 2})"), {}),
            "| 2.00 | as predicted |\n"));
  // Measured, but not this one: a claim about nothing.
  CHECK_THROWS_AS(predictions_table(rows_of(claim + R"(, {"sweep": "s", "kernel": "b", "tflops": 2})"), {}), Error);
  CHECK(has(predictions_table(rows_of(claim), {{"about", {"a"}}}), "not yet"));
  CHECK_FALSE(has(predictions_table(rows_of(claim), {{"about", {"b"}}}), "not yet"));
}

// Two phases and two libraries at N = 512 and 1024, D = 64; D = 128 of one alone.
static std::string beside_rows() {
  std::string text;
  const auto add = [&](const char* kernel, int N, int D, double tflops) {
    std::ostringstream row;
    row << "{\"sweep\": \"beside\", \"kernel\": \"" << kernel << "\", \"B\": " << 2048 / N << ", \"H\": 4, \"N\": " << N
        << ", \"D\": " << D << R"(, "causal": false, "type": "bfloat16", "cublas_tflops": 700, "tflops": )" << tflops
        << ", \"median_ms\": " << 1 / tflops << "}";
    text += (text.empty() ? "" : ", ") + row.str();
  };
  add("08-lse", 512, 64, 10), add("13-a", 512, 64, 110), add("torch flash", 512, 64, 100);
  add("torch cudnn", 512, 64, 200), add("13-a", 1024, 64, 130), add("torch flash", 1024, 64, 100);
  add("13-a", 512, 128, 300);
  return text;
}

TEST_CASE("Side by side: speeds, and in brackets how many times the libraries'") {
  CHECK(beside_tables(rows_of(beside_rows()), {}) ==
        "D 64, no mask, bfloat16; B·N = 2048, H = 4\n\n"
        "| N | 08-lse | 13-a | torch flash | torch cudnn | cuBLAS |\n|---|---:|---:|---:|---:|---:|\n"
        "| 512 | 10.0 (0.10, 0.05) | 110 (1.10, 0.55) | 100 | 200 | 700 |\n| 1024 |  | 130 | 100 |  | 700 |\n\n"
        "D 128, no mask, bfloat16; B·N = 2048, H = 4\n\n| N | 13-a | cuBLAS |\n|---|---:|---:|\n"
        "| 512 | 300 | 700 |\n\n");
  CHECK_THROWS_AS(beside_tables(rows_of(beside_rows()), {{"D", {"256"}}}), Error);
}

TEST_CASE("The fastest phase of each shape, in microseconds, beside cuDNN") {
  CHECK(fastest_table(rows_of(beside_rows()), {}) ==
        "| the fastest phase | N = 512: µs | N = 1024: µs |\n|---|---:|---:|\n"
        "| D 64, no mask, bfloat16, H 4 | 13-a 9.09 (0.55) | 13-a 7.69 |\n"
        "| D 128, no mask, bfloat16, H 4 | 13-a 3.33 |  |\n\n");
  CHECK_THROWS_AS(fastest_table(rows_of(beside_rows()), {{"D", {"256"}}}), Error);
}

TEST_CASE("Ratios of two kernels, as a table and as a range, of the rows that the words choose") {
  const std::vector<Json> rows = rows_of(beside_rows());
  const Words words{{"kernel", {"13-a"}}, {"over", {"torch flash"}}};
  CHECK(ratios_table(rows, words) ==
        "| 13-a / torch flash | N = 512 | N = 1024 |\n|---|---:|---:|\n| D 64, no mask, bfloat16 | 1.10 | 1.30 |\n\n");
  CHECK(range_text(rows, words) == "1.10 to 1.30");
  CHECK(range_text(rows, {{"kernel", {"13-a"}}, {"over", {"torch flash"}}, {"N", {"512", "2048"}}}) == "1.10 to 1.10");
  for (const Words& bad : {Words{{"kernel", {"13-a"}}},                                                  // over what?
                           Words{{"kernel", {"13-a"}}, {"over", {"13-b"}}},                              // not there
                           Words{{"kernel", {"13-a"}}, {"over", {"torch flash"}}, {"D", {"128"}}},       // not both
                           Words{{"kernel", {"13-a"}}, {"over", {"torch flash"}}, {"mask", {"none"}}}})  // no field
    CHECK_THROWS_AS(range_text(rows, bad), Error);
}

TEST_CASE("A range within a sentence is renewed, files behind else serve until those before it are there") {
  const test::Folder temporary;
  const auto write = [&](const char* name, const std::string& rows) {
    write_file(temporary.path() / name, "{\"environment\": {}, \"rows\": [" + rows + "]}");
  };
  const std::string row = R"("sweep": "s", "B": 1, "H": 1, "N": 1, "D": 1, "causal": true, "type": "t", "tflops": )";
  const auto pair = [&](const char* a, const char* b) {
    return R"({"kernel": "a", )" + row + a + R"(}, {"kernel": "b c", )" + row + b + "}";
  };
  write("old.json", pair("3", "2"));
  const std::string marker = "x <!-- range kernel=a over=b_c causal=true\nnew.json else old.json -->";
  const std::string page = marker + "?<!-- end --> y\n";
  CHECK(renewed(page, temporary.path()) == marker + "1.50 to 1.50<!-- end --> y\n");
  write("new.json", pair("5", "2"));
  CHECK(renewed(page, temporary.path()) == marker + "2.50 to 2.50<!-- end --> y\n");
  CHECK_THROWS_AS(renewed("<!-- range kernel=a over=b_c none.json -->?<!-- end -->", temporary.path()), Error);
  CHECK_THROWS_AS(renewed("<!-- range kernel=a over=b_c old.json -->?", temporary.path()), Error);
  CHECK_THROWS_AS(renewed("<!-- range kernel=a over=b_c -->?<!-- end -->", temporary.path()), Error);

  const auto table = [&](const std::string& words) {
    const std::string text = "<!-- results " + words + " -->\n<!-- end of results -->";
    return renewed(text, temporary.path());
  };
  CHECK(table("ratios kernel=a over=b_c new.json else old.json").find("| 2.50 |") != std::string::npos);
  CHECK(table("ratios kernel=a over=b_c none.json else old.json").find("| 1.50 |") != std::string::npos);
  CHECK(table("picture link=p.svg alt=Steps_of_13 none.json").find("Not measured yet: none.json") != std::string::npos);
  CHECK(table("picture link=p.svg alt=Steps_of_13 new.json").find("![Steps of 13](p.svg)\n") != std::string::npos);
}

TEST_CASE("The picture of the tensor-core phases: a bar per kernel and N, a line where it was predicted") {
  const auto row = [](const char* kernel, int N, const char* more) {
    return R"(, {"kernel": ")" + std::string(kernel) + R"(", "N": )" + std::to_string(N) +
           R"(, "D": 128, "causal": false, "type": "bfloat16", "tflops": )" + more + "}";
  };
  const std::string prediction =
      R"({"claim": "c", "low": 40, "high": 60, "of": "TFLOP/s", "rows": {"kernel": "13-diet", "D": 128, "N": 8192}})";
  const std::string rows = prediction + row("13-diet", 2048, "80") + row("torch cudnn", 2048, "90") +
                           row("torch flash", 2048, "70") + row("13a-scale", 2048, "60") + row("13-diet", 8192, "100") +
                           row("13-diet", 4096, "95") + row("torch math", 2048, "1");
  const std::string picture = tensor_core_staircase(rows_of(rows));
  const auto at = [&](const std::string& text) { return picture.find(text); };
  const auto bars = [&](const char* colour) {
    std::size_t count = 0;
    for (std::size_t i = 0; (i = picture.find("width=\"38\" ", i)) != std::string::npos; ++i)
      count += picture.compare(picture.find("fill=", i), 14, std::string("fill=\"") + colour + "\"") == 0;
    return count;
  };
  CHECK(bars("#f0c875") == 2);
  CHECK(bars("#e69f00") == 1);
  CHECK(at(">13a<") < at(">13<"));
  CHECK(at(">13<") < at(">FlashAttention-2<"));
  CHECK(at(">FlashAttention-2<") < at(">cuDNN<"));
  CHECK(at("math") == std::string::npos);
  // 100 is 210 pixels above 300; the prediction, 50, is half way.
  CHECK(at("y=\"90\" width=\"38\" height=\"210\"") != std::string::npos);
  CHECK(at("y1=\"195\"") != std::string::npos);
  CHECK_THROWS_AS(tensor_core_staircase(rows_of(prediction)), Error);
}

TEST_CASE("The picture of speeds over N: a line per phase from a number on, libraries dashed") {
  const auto row = [](const char* kernel, int N, const char* causal, const char* tflops) {
    return R"({"kernel": ")" + std::string(kernel) + R"(", "N": )" + std::to_string(N) + R"(, "D": 128, "causal": )" +
           causal + R"(, "type": "bfloat16", "tflops": )" + tflops + "}";
  };
  const std::string rows = row("12-old", 512, "false", "50") + ", " + row("13-diet", 512, "false", "200") + ", " +
                           row("13-diet", 2048, "false", "300") + ", " + row("14-new", 512, "true", "250") + ", " +
                           row("torch cudnn", 512, "false", "280") + ", " + row("torch flash", 512, "false", "210");
  const std::string picture = speed_lines("13", rows_of(rows));
  const auto at = [&](const std::string& text) { return picture.find(text); };
  CHECK(at(">Phases 13 to 14 over N<") != std::string::npos);
  CHECK(at(">12<") == std::string::npos);
  // 200 and 300 are the ends of the axis, 270 pixels apart; N = 512 and 2048 of the panel, 12 pixels inside it.
  CHECK(at("points=\"56,354 296,84 \"") != std::string::npos);
  CHECK(at("stroke-dasharray") != std::string::npos);
  CHECK_THROWS_AS(speed_lines("15", rows_of(row("13-diet", 512, "false", "200"))), Error);
}

TEST_CASE("Ceilings: a line per mix and number of warps, what a mix does not contain stays empty") {
  CHECK(
      ceilings_table(rows_of(
          R"({"mix": "8 mma + 2 ex2", "warps": 16, "sm_mhz": 1801.2, "mma_flop_per_clk": 2608.4, "tflops": 620.5,
                "ex2_per_clk": 5.094},
               {"mix": "4 ldmatrix", "warps": 4, "sm_mhz": 1980, "ldmatrix_bytes_per_clk": 127.9})")) ==
      "| a warp issues, over and over | warps per SM | mma: FLOP/clk/SM | TFLOP/s | ldmatrix: B/clk/SM | ex2/clk/SM | "
      "SM clock, MHz |\n|---|---:|---:|---:|---:|---:|---:|\n"
      "| 8 mma + 2 ex2 | 16 | 2608 | 620 |  | 5.1 | 1801 |\n| 4 ldmatrix | 4 |  |  | 128 |  | 1980 |\n\n");
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
    "Phase 13's steps: speed beside prediction and step before, judged where there is both, and instructions per mma") {
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
  CHECK(sass_table(rows_of(R"({"kernel": "0-a", "registers": 9, "spilled": 8, "instructions": 300, "mma": 128,
                                "ldmatrix": 64, "waited_for": 31})"))
            .find("\n| 0-a | 9 | 8 | 300 | 128 | 2.34 | 31 of 64 |\n") != std::string::npos);
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
