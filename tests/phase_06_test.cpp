// phase_06_test.cpp: proof of phase 06, all heads in one grid: the contract on the simulator, clean checked runs, counters equal
// to formulas; the same bits as phase 05 on one head; strides; other grids; more than 65,535 heads.
// ./flash test 06
#include <doctest/doctest.h>
#include <sys/mman.h>

#include "phases/05-first-kernel/attention.hpp"
#include "phases/06-4d-grid/attention.hpp"
#include "tests/kernel_phases.hpp"

using namespace flash;
using namespace flash::test;

namespace {
const auto run = [](const auto& p, Where where, const MachineOptions& o) { return phase06::forward(p, where, o); };
const auto before = [](const auto& p, Where where, const MachineOptions& o) { return phase05::forward(p, where, o); };
constexpr Features features = phase06::features;
}  // namespace

TEST_CASE_TEMPLATE("contract", T, FLASH_TEST_TYPES) {
  check_contract<T>(on(Where::Sim, run), features, kernel_domain());
}
TEST_CASE("published shapes") {
  check_published<half>(on(Where::Sim, run), features);
}
TEST_CASE_TEMPLATE("promises", T, FLASH_TEST_TYPES) {
  check_promises<T>(on(Where::Sim, run), features);
}
TEST_CASE_TEMPLATE("bad input", T, FLASH_TEST_TYPES) {
  check_kernel_refusals<T>(run, features);
}
TEST_CASE_TEMPLATE("checked: clean", T, FLASH_TEST_TYPES) {
  check_clean<T>(run, features);
}
TEST_CASE_TEMPLATE("checked: counters equal formulas", T, FLASH_TEST_TYPES) {
  check_counters<T>(run, features);
}
TEST_CASE_TEMPLATE("any schedule gives the same bits", T, FLASH_TEST_TYPES) {
  check_schedules<T>(run, features);
}
TEST_CASE_TEMPLATE("gpu", T, FLASH_TEST_TYPES) {
  check_on_gpu<T>(run, features);
}

TEST_CASE_TEMPLATE("bit for bit as phase 05", T, FLASH_TEST_TYPES) {
  check_same_bits<T>(before, run, {Causal::None}, 1);
  check_same_bits<T>(before, run, {Causal::None}, 2);
}

// All heads in one launch: as many blocks as phase 05 had in all its launches.
TEST_CASE("one launch for all heads") {
  Inputs<float> in({.B = 2, .H = 3, .Sq = 100, .Sk = 20, .D = 16, .block_q = 64, .block_k = 32});
  const Run r = run(in.problem(false), Where::Sim, {});
  REQUIRE(r.kernels.size() == 1);
  CHECK(r.kernels[0].grid == std::array<unsigned, 3>{2, 6, 1});
}

// K and V have strides of their own: zeros, so that all heads and batches share one K, and V is Q's neighbour.
TEST_CASE_TEMPLATE("heads that share K and V by a stride of 0", T, FLASH_TEST_TYPES) {
  const Case c{.B = 2, .H = 3, .Sq = 33, .Sk = 50, .D = 24, .block_q = 16, .block_k = 16};
  Inputs<T> shared(c), copied(c);
  for (std::int64_t b = 0; b < c.B; ++b)
    for (std::int64_t h = 0; h < c.H; ++h)
      for (std::int64_t s = 0; s < c.Sk; ++s) {
        std::copy_n(copied.k.view.row(0, 0, s), c.D, copied.k.view.row(b, h, s));
        std::copy_n(copied.v.view.row(b, 0, s), c.D, copied.v.view.row(b, h, s));
      }
  Problem<T> p = shared.problem(false);
  p.k.stride[0] = p.k.stride[1] = 0;
  p.v.stride[1] = 0;
  run(p, Where::Sim, {});
  run(copied.problem(false), Where::Sim, {});
  CHECK(same_bits(shared.o.memory, copied.o.memory));
}

// CUDA's grid.y ends at 65,535.
TEST_CASE("65,792 heads") {
  const Case c{.B = 257, .H = 256, .Sq = 1, .Sk = 2, .D = 3, .block_q = 16, .block_k = 16};
  Inputs<float> in(c);
  const Run r = run(in.problem(false), Where::Sim, {});
  CHECK(r.kernels[0].grid == std::array<unsigned, 3>{1, 65535, 2});
  const Problem<float> p = in.problem(false);
  CHECK(distance(gather(in.o.view), reference(p).o, c.D).relative <= 2e-6);
}

// ---- Other grids ----

TEST_CASE("three grids: the same bits, the same bytes, another number and order of blocks") {
  if (skipped_without(Where::Checked)) return;
  using phase06::Grid;
  const Case c{.B = 2, .H = 3, .Sq = 100, .Sk = 150, .D = 24, .block_q = 64, .block_k = 32, .layout = Layout::Mixed};
  Inputs<float> two(c);
  const Run base = run(two.problem(false), Where::Checked, {});
  for (const auto& [shape, grid] : {std::pair{Grid::One, std::array<unsigned, 3>{2, 1, 1}},
                                    {Grid::Two, std::array<unsigned, 3>{2, 6, 1}},
                                    {Grid::Three, std::array<unsigned, 3>{2, 3, 2}}}) {
    Inputs<float> in(c);
    const Run r = phase06::forward_variant(in.problem(false), shape, Where::Checked);
    CHECK(r.kernels[0].grid == grid);
    CHECK(same_bits(in.o.memory, two.o.memory));
    CHECK(r.ledger == base.ledger);
  }
}

TEST_CASE("three grids: K and V in flight") {
  using phase06::Grid;
  using phase06::heads_in_flight;
  // B = 4, H = 32, 2048 rows in tiles of 64; an H100 runs 132 blocks at a time, one on each multiprocessor.
  CHECK(heads_in_flight(Grid::One, 4, 32, 32, 132) == 1);  // best for the cache, but there are 32 blocks for 132 places
  CHECK(heads_in_flight(Grid::Two, 4, 32, 32, 132) == 5);
  CHECK(heads_in_flight(Grid::Three, 4, 32, 32, 132) == 128);  // all of them: 25 times the working set
}

TEST_CASE("a grid of (batch, head, Q tile) ends at 65,535 heads") {
  Inputs<float> in({.B = 1, .H = 65536, .Sq = 1, .Sk = 1, .D = 1, .block_q = 16, .block_k = 16});
  CHECK_NOTHROW(run(in.problem(false), Where::Sim, {}));
  CHECK_THROWS_WITH_AS(phase06::forward_variant(in.problem(false), phase06::Grid::Three, Where::Sim),
                       "grid.y is 65536; expected 1 to 65535; put the long axis on grid.x", Error);
}

// ---- Offsets beyond 2^31 elements ----
// The host copies a view's whole span, so this launches the kernel on memory that is reserved and hardly used: rows,
// heads and batches lie 2^31 elements and more apart. The fast simulator follows any pointer.
#include "tests/phase_06_kernel.hpp"

TEST_CASE_TEMPLATE("strides over 2^31", T, FLASH_TEST_TYPES) {
  const Case c{.B = 2, .H = 2, .Sq = 3, .Sk = 18, .D = 8, .block_q = 16, .block_k = 16};
  Inputs<T> near(c);
  const Problem<T> p = near.problem(false);
  run(p, Where::Sim, {});

  constexpr std::int64_t row = (std::int64_t{1} << 28) + 3, head = 20 * row, batch = 2 * head + 7;  // row 8: 2^31
  constexpr std::size_t bytes = static_cast<std::size_t>(2 * batch) * sizeof(T);
  std::vector<void*> maps;
  const auto far = [&]<class U>(const View<U>& view) {
    void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(map != MAP_FAILED);
    maps.push_back(map);
    const View<T> moved{static_cast<T*>(map), view.shape, {batch, head, row, 1}};
    for (std::int64_t b = 0; b < c.B; ++b)
      for (std::int64_t h = 0; h < c.H; ++h)
        for (std::int64_t s = 0; s < view.S(); ++s) std::copy_n(view.row(b, h, s), c.D, moved.row(b, h, s));
    return moved;
  };
  const View<T> q = far(p.q), k = far(p.k), v = far(p.v), o = far(p.o);
  const auto tensor = []<class U>(const View<U>& x) {
    return phase06::on_sim::Tensor<U>{x.data, x.stride[0], x.stride[1], x.stride[2], x.S(), static_cast<int>(x.D())};
  };
  on_sim::Machine m;
  on_sim::launch<phase06::on_sim::Tiles<16, 16, 16>>(
      m, phase06::on_sim::attention<T, 16, 16, 16>, on_sim::dim3(1, 4), on_sim::dim3(16), tensor(View<const T>(q)),
      tensor(View<const T>(k)), tensor(View<const T>(v)), tensor(o), on_sim::scale_log2(p.scale()), 2, 2);
  CHECK(gather(o) == gather(p.o));
  for (void* map : maps) munmap(map, bytes);
}
