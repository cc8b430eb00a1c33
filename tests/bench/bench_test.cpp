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
  // Seed 004's own figure: 2·2·Z·H·N²·D.
  CHECK(flops({"004", 4, 12, 4096, 64, false}) == 206158430208u);
  CHECK(least_bytes({"004", 4, 12, 4096, 64, false}) == 4u * 4 * 12 * 4096 * 64 * 2);
}

TEST_CASE("The plan holds the seeds' sweeps") {
  int steps = 0, naive_rows = 0;
  for (const Measurement& e : plan()) {
    CHECK_MESSAGE((!e.at.causal || e.kernel->features.causal), e.kernel->features.phase);
    steps += e.at.sweep == "004";
    naive_rows += e.kernel == &naive::phase;
  }
  CHECK(steps == 31);      // 256 … 4096 in steps of 128
  CHECK(naive_rows == 6);  // 512 … 8192 and one more
  // Series come with growing N, or the sanity law would look at nothing.
  const std::vector<Case> all = cases();
  for (std::size_t i = 1; i < all.size(); ++i)
    if (same_series(all[i - 1], all[i])) CHECK(all[i - 1].N < all[i].N);
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
void check_naive(Run (*run)(const Problem<T>&, const MachineOptions&), double bar) {
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
  run(p, {});
  const test::Reference want = test::reference(p);
  const test::Distance floor = test::rounding_floor<T>(want.o, 19);
  const double error = test::distance(test::gather(View<const T>(p.o)), want.o, 19).relative;
  CHECK_MESSAGE(error <= bar + 1.5 * floor.relative, error);
  CHECK(naive::extra_bytes(p) == 2 * 70 * 90 * (4 + sizeof(T)));
}

TEST_CASE("The naive baseline is right, on ragged tiles too") {
  check_naive<float>(naive::on_sim::run<float>, 2e-6);
  check_naive<half>(naive::on_sim::run<half>, 0x1p-24);
#ifndef FLASH_NO_CHECKED_KERNELS
  check_naive<float>(naive::on_checked::run<float>, 2e-6);
  check_naive<half>(naive::on_checked::run<half>, 0x1p-24);
#endif
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
  const Case small{"003", 4, 32, 512, 64, false}, large{"003", 4, 32, 16384, 64, false};
  const auto write = [&](double ms) {
    Row one{.at = small, .kernel = "naive", .timing = {.samples = 3, .median_ms = ms, .p10_ms = 1, .p90_ms = 3}};
    Row two{.at = large, .kernel = "naive"};
    one.timing.sm_mhz = 1980;
    two.wanted = 206158430208u;
    write_file(folder / "test.json",
               results_text({{"gpu", "G"}, {"driver", "1"}, {"cuda", "13.0"}, {"commit", "abc"}, {"date", "d"}},
                            {json_row(one), json_row(two)}));
  };
  const std::string page = "before\n<!-- results 003 test.json none.json -->\nold\n<!-- end of results -->\nafter\n";
  write(2);
  const std::string fresh = renewed(page, folder);
  CHECK(fresh ==
        "before\n<!-- results 003 test.json none.json -->\n\n"
        "B4 H32 D64 full, float16: TFLOP/s (median time)\n\n| N | naive |\n|---|---:|\n| 512 | 4.29 (2.00 ms) |\n"
        "| 16384 | out of memory (wants 206 GB) |\n\n"
        "test.json: G, driver 1, CUDA 13.0; SM clock 1980 to 1980 MHz while timed; commit abc, d\n"
        "Not measured yet: none.json in docs/results.\n\n<!-- end of results -->\nafter\n");
  CHECK(renewed(fresh, folder) == fresh);  // not stale
  write(4);
  CHECK(renewed(fresh, folder) != fresh);
  CHECK_THROWS_AS(renewed("<!-- results 003 test.json -->\nno end", folder), Error);
  CHECK_THROWS_AS(renewed("<!-- results 001 test.json -->\n<!-- end of results -->", folder), Error);
}
