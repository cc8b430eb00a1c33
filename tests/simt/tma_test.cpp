// tma_test.cpp: boxes of tensors by TMA are what plain loops over their elements say, wherever they lie: inside, across
// an edge, wholly outside; and tensor maps that the driver would refuse are refused.
// Run: ctest -L simt, or simt_tma_test; the GPU takes part where there is one of compute capability 9.0.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "phases/interface/where.hpp"
#include "sim/core/tensor_map.hpp"
#include "sim/error.hpp"
#include "tests/simt/tma.hpp"
#include "tests/skip.hpp"

namespace {

using flash::BoxCase, flash::BoxResult, flash::RingResult, flash::Completion, flash::MachineOptions, flash::Order;

// The same by a loop: each element of the box, its place in the tensor, whether it is inside and whether a store
// reaches it, which writes all of the 16 bytes in which a row's last element lies.
template <class Use>
void for_each_element(const BoxCase& c, const Use& use) {
  std::size_t i = 0;
  std::size_t elements = 1;
  for (unsigned axis = 0; axis < c.rank; ++axis) elements *= c.box[axis];
  for (; i < elements; ++i) {
    bool reached = true;
    std::size_t index = 0, rest = i;
    const std::int64_t x = c.at[0] + static_cast<std::int64_t>(i % c.box[0]);
    for (unsigned axis = 0; axis < c.rank; rest /= c.box[axis], ++axis) {
      const std::int64_t at = c.at[axis] + static_cast<std::int64_t>(rest % c.box[axis]);
      const std::uint64_t size = axis == 0 ? flash::whole_pieces(c.sizes[0]) : c.sizes[axis];
      reached = reached && at >= 0 && at < static_cast<std::int64_t>(size);
      index += static_cast<std::size_t>(at) * c.strides[axis];
    }
    use(i, reached && x < static_cast<std::int64_t>(c.sizes[0]), reached, index & flash::kLargestIndex);
  }
}

std::vector<BoxCase> cases() {
  std::vector<BoxCase> all{
      {2, {64, 64, 1, 1}, {1, 64, 0, 0}, {64, 64, 1, 1}, {0, 0, 0, 0}},   // all of it
      {2, {64, 70, 1, 1}, {1, 64, 0, 0}, {64, 64, 1, 1}, {0, 64, 0, 0}},  // six rows of the last tile
      {2, {40, 10, 1, 1}, {1, 48, 0, 0}, {64, 16, 1, 1}, {0, 0, 0, 0}},   // rows shorter than the box
      {2, {33, 10, 1, 1}, {1, 40, 0, 0}, {64, 16, 1, 1}, {8, -3, 0, 0}},  // an odd size; before the begin
      {2, {64, 8, 1, 1}, {1, 64, 0, 0}, {64, 8, 1, 1}, {64, 0, 0, 0}},    // outside to the right
      {2, {64, 8, 1, 1}, {1, 64, 0, 0}, {64, 8, 1, 1}, {0, -8, 0, 0}},    // and above
      {2, {64, 8, 1, 1}, {1, 64, 0, 0}, {64, 8, 1, 1}, {2000000000, 2000000000, 0, 0}},
      {3, {64, 20, 3, 1}, {1, 64, 1280, 0}, {64, 16, 2, 1}, {0, 8, 2, 0}},      // edges of y and z
      {3, {128, 20, 3, 1}, {1, 384, 128, 0}, {64, 32, 1, 1}, {64, 0, 1, 0}},    // [rows, heads, 128]: a panel
      {4, {64, 20, 3, 2}, {1, 64, 1280, 3840}, {64, 16, 1, 1}, {0, 16, 2, 1}},  // [B, H, N, 64]
      {4, {64, 20, 3, 2}, {1, 192, 64, 3840}, {64, 16, 1, 1}, {0, 16, 2, 1}},   // [B, N, H, 64]
      {4, {48, 5, 3, 2}, {1, 48, 240, 720}, {64, 4, 3, 2}, {-8, 3, -1, 1}},     // edges of all four
      {2, {32, 40, 1, 1}, {1, 32, 0, 0}, {32, 24, 1, 1}, {0, 20, 0, 0}},        // rows of 64 bytes
      {2, {8, 40, 1, 1}, {1, 8, 0, 0}, {8, 24, 1, 1}, {0, 20, 0, 0}},           // of 16
      {3, {64, 4, 4, 1}, {1, 0, 64, 0}, {64, 4, 2, 1}, {0, 0, 1, 0}},           // a stride of 0: rows repeat
      {5, {64, 9, 3, 2, 2}, {1, 64, 576, 1728, 3456}, {64, 4, 2, 1, 2}, {0, 7, 2, 1, 0}},
  };
  // Two axes of one stride: a box that begins n before the end of the first has n rows of two heads of 20, from `row`
  // on. The last axis takes the first one's 2^30 rows back: addresses are numbers modulo 2^64.
  for (const auto& [row, n] : {std::pair{0, 16}, {0, 5}, {7, 13}, {19, 1}, {3, 0}})
    for (int h = 0; h < 2; ++h)
      all.push_back({5,
                     {64, 1 << 30, 21, 2, (1 << 30) + 1},
                     {1, 64, 64, 1280, (std::uint64_t{1} << 33) - 64},
                     {64, 16, 1, 1, 1},
                     {0, (1 << 30) - n, row + n, h, 1 << 30},
                     1,
                     false,
                     true,
                     2560});
  std::mt19937 random(1);
  const auto upto = [&random](unsigned n) { return static_cast<unsigned>(random() % n); };
  for (int i = 0; i < 40; ++i) {
    BoxCase c{2 + upto(4), {1 + upto(80), 1 + upto(20), 1 + upto(5), 1 + upto(3), 1 + upto(2)}, {}, {}, {}};
    c.box = {8 * (1 + upto(8)), 1 + upto(8), 1 + upto(3), 1 + upto(2), 1};
    c.strides[0] = 1;
    std::uint64_t stride = (c.sizes[0] + 7) / 8 * 8 + 8 * upto(3);
    for (unsigned axis = 1; axis < 5; ++axis) c.strides[axis] = stride, stride *= c.sizes[axis];
    for (unsigned axis = 0; axis < 5; ++axis)
      c.at[axis] = static_cast<int>(upto(static_cast<unsigned>(c.sizes[axis]) + 20)) - 10;
    c.at[0] = c.at[0] / 8 * 8;
    all.push_back(c);
  }
  for (BoxCase& c : all) c.stores = std::all_of(c.at.begin(), c.at.end(), [](int at) { return at >= 0; });
  return all;
}

void is_right(const BoxCase& c, const BoxResult& result) {
  std::vector<std::uint16_t> out(flash::extent(c), flash::kUntouched);
  bool right = true;
  for_each_element(c, [&](std::size_t i, bool inside, bool reached, std::size_t index) {
    const auto expected = inside ? static_cast<std::uint16_t>(index) : std::uint16_t{0};
    right = right && result.seen[i] == expected;
    if (reached && c.stores) out[index] = expected;
  });
  CHECK(right);
  CHECK(result.out == out);
}

std::vector<MachineOptions> schedules() {
  std::vector<MachineOptions> all;
  for (const Order order : {Order::forward, Order::reverse, Order::random})
    for (const Completion completion : {Completion::late, Completion::eager, Completion::random})
      all.push_back({.order = order, .seed = 5, .completion = completion, .keep_going = true});
  return all;
}

}  // namespace

TEST_CASE("a box comes and goes as a loop over its elements would take it") {
  const std::vector<BoxCase> all = cases();
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    const BoxCase& c = all[i];
    const BoxResult first = flash::on_checked::run_box({.keep_going = true}, c);
    is_right(c, first);
    // Where a stride is 0 two of the box's elements are stored to one place: a race.
    CHECK(first.findings.empty() == (c.strides[1] != 0));
    for (const MachineOptions& options : schedules()) {
      const BoxResult other = flash::on_checked::run_box(options, c);
      is_right(c, other);
      CHECK(other.ledger == first.ledger);
      is_right(c, flash::on_sim::run_box(options, c));
    }
  }
}

TEST_CASE("boxes of two blocks side by side are no race, and two on one place are") {
  const BoxCase beside{2, {40, 8, 1, 1}, {1, 40, 0, 0}, {8, 8, 1, 1}, {8, 0, 0, 0}, 2};
  BoxCase both = beside;
  both.blocks = 1, both.box[0] = 16;
  for (MachineOptions options : schedules()) {
    const BoxResult result = flash::on_checked::run_box(options, beside);
    CHECK(result.findings.empty());
    CHECK(result.out == flash::on_checked::run_box(options, both).out);
    BoxCase in_place = beside;
    in_place.in_place = true;
    CHECK(flash::on_checked::run_box(options, in_place).findings.empty());
  }
  BoxCase same = beside;
  same.at = {}, same.strides[1] = 8, same.sizes = {16, 8, 1, 1};  // rows overlap
  const BoxResult result = flash::on_checked::run_box({.threads = 1, .keep_going = true}, same);
  REQUIRE(!result.findings.empty());
  CHECK(result.findings[0].kind == "race");
}

TEST_CASE("a ring of tiles, from a warp that loads to warps that compute, is right under every schedule") {
  const auto is_right = [](const RingResult& result) {
    std::vector<std::uint16_t> out(result.out.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t item = i / 128, half = i / 64 % 2, x = i % 64;
      unsigned sum = 0;
      for (std::size_t row = 0; row < flash::kRows; ++row)
        if (row / 4 % 2 == half) sum += result.k[row * 64 + x];
      out[i] = static_cast<std::uint16_t>(sum * result.q[item * 64 + x]);
    }
    return out == result.out;
  };
  const RingResult first = flash::on_checked::run_ring({});
  CHECK(is_right(first));
  CHECK(first.ledger.arrays[1].read_bytes == flash::kItems * flash::kRows * 128);
  for (MachineOptions options : schedules())
    for (options.seed = 0; options.seed < 4; ++options.seed) {
      const RingResult other = flash::on_checked::run_ring(options);
      CHECK(is_right(other));
      CHECK(other.ledger == first.ledger);
      for (const flash::Finding& finding : other.findings) MESSAGE(finding.text);
      CHECK(other.findings.empty());
      CHECK(is_right(flash::on_sim::run_ring(options)));
    }
}

// An H200 stops such a kernel: "an illegal instruction was encountered".
TEST_CASE("a store does not begin before its tensor") {
  for (const auto& [x, y, words] : {std::tuple{-8, 0, "-8 of x"}, {0, -3, "-3 of y"}}) {
    const BoxCase c{2, {64, 10, 1, 1}, {1, 64, 0, 0}, {64, 4, 1, 1}, {x, y, 0, 0}};
    const BoxResult result = flash::on_checked::run_box({.keep_going = true}, c);
    REQUIRE(result.findings.size() == 1);
    CHECK(result.findings[0].text.starts_with("out of bounds: cp.async.bulk.tensor (store) to a box that begins at " +
                                              std::string(words) + "\n"));
    CHECK_THROWS(flash::on_sim::run_box({}, c));
  }
}

TEST_CASE("a box begins at a multiple of 16 bytes of its rows, to be loaded or stored") {
  for (const int x : {4, -1, 65}) {
    const BoxCase c{2, {64, 10, 1, 1}, {1, 64, 0, 0}, {64, 4, 1, 1}, {x, 0, 0, 0}};
    const BoxResult result = flash::on_checked::run_box({.keep_going = true}, c);
    REQUIRE(!result.findings.empty());
    CHECK(result.findings[0].text.starts_with("misaligned: cp.async.bulk.tensor of a box that begins at " +
                                              std::to_string(x) + " of x\n"));
    CHECK_THROWS(flash::on_sim::run_box({}, c));
  }
}

TEST_CASE("a row may end with half of a word, and a store writes all of its last 16 bytes") {
  for (const MachineOptions& options : schedules())
    for (const auto& [stores, free] : {std::pair{false, 9}, {true, 16}}) {
      CHECK(flash::on_checked::run_odd_rows(options, stores, free).empty());
      CHECK(!flash::on_checked::run_odd_rows(options, stores, free - 1).empty());
    }
}

TEST_CASE("tiles and mbarriers may be __shared__ variables, and a phase has no more than 2^20 - 1 bytes") {
  for (const BoxResult& result :
       {flash::on_sim::run_static_tile({}, 1024), flash::on_checked::run_static_tile({}, 1024)})
    for (std::size_t i = 0; i < result.seen.size(); ++i) CHECK(result.seen[i] == i);
  // At once, and by two arrivals, each of which expects less.
  for (const auto& [bytes, more] : {std::pair{1u << 20, 0u}, {(1u << 20) - 1024, 1024u}}) {
    const BoxResult refused = flash::on_checked::run_static_tile({.threads = 1, .keep_going = true}, bytes, more);
    REQUIRE(refused.findings.size() == 1);
    CHECK(refused.findings[0].text.starts_with("mbarrier: mbarrier shared full+0 is to expect 1048576 bytes\n"));
  }
}

TEST_CASE("the trace shows each load until its mbarrier's phase is complete, and who waits for it") {
  for (const bool checked : {false, true}) {
    const MachineOptions options{.trace = "memory"};
    const RingResult ring = checked ? flash::on_checked::run_ring(options) : flash::on_sim::run_ring(options);
    std::vector<flash::TraceEvent> loads, waits;
    for (const flash::TraceEvent& event : ring.trace) {
      if (event.name == "copy") loads.push_back(event);
      if (event.name == "wait" && event.warp < 4) waits.push_back(event);
    }
    const std::size_t boxes = (flash::kRows + 7) / 8;
    CHECK(loads.size() == flash::kItems * (1 + boxes));
    for (const flash::TraceEvent& load : loads) {
      CHECK(load.warp == 4);
      CHECK(load.beside);
      CHECK((load.value == 128 || load.value == 8 * 128));
      CHECK(load.begin < load.end);
      bool awaited = false;
      for (const flash::TraceEvent& wait : waits) awaited |= wait.block == load.block && wait.end >= load.end;
      CHECK(awaited);
    }
    // Each of the four warps waits for a tile of q, the boxes, and twice for the other three, in each item.
    CHECK(waits.size() == 4 * flash::kItems * (1 + boxes + 2));
    // While one box is used the next one is on its way.
    bool ahead = false;
    for (const flash::TraceEvent& one : loads)
      for (const flash::TraceEvent& other : loads)
        ahead |= one.block == other.block && one.begin < other.begin && other.begin < one.end;
    CHECK(ahead);
  }
}

TEST_CASE("what a box moves is counted: bytes inside the tensor, sectors, one request") {
  const BoxResult full = flash::on_checked::run_box({}, cases()[0]);
  const flash::ArrayTraffic& in = full.ledger.arrays[0];
  CHECK(in.read_bytes == 64 * 64 * 2);
  CHECK(in.read_sectors == 64 * 64 * 2 / 32);
  CHECK(in.read_requests == 1);
  CHECK(full.ledger.arrays[1].written_bytes == 64 * 64 * 2);
  const BoxResult edge = flash::on_checked::run_box({}, cases()[1]);
  CHECK(edge.ledger.arrays[0].read_bytes == 6 * 128);
  CHECK(edge.ledger.arrays[1].written_bytes == 6 * 128);
  CHECK(edge.ledger.arrays[1].write_sectors == 6 * 4);
  CHECK(flash::on_checked::run_box({}, cases()[4]).ledger.arrays[0].read_bytes == 0);
  // The box was fetched into the L2 cache before: that brings the multiprocessor nothing.
  const flash::ArrayTraffic fetched = flash::on_checked::run_box({}, cases()[9]).ledger.arrays[0];
  CHECK(fetched.read_bytes == 4 * 128);
  CHECK(fetched.read_requests == 1);
}

TEST_CASE("of a box that is partly written each element is known, through shared memory and back") {
  for (const int written : {64 * 5, 64 * 5 + 1, 64 * 4 + 33, 64 * 4 + 10})
    for (const MachineOptions& options : schedules()) {
      CAPTURE(written);
      CHECK(flash::on_checked::run_partly_written(options, written, written).empty());
      const int one = written % 64 < 8 ? 9 - written % 64 : 1;  // the box begins at column 8
      const auto found = flash::on_checked::run_partly_written(options, written, written + one);
      REQUIRE(found.size() == 2);  // where it lies in shared memory, and where the store has brought it
      const std::string from = "copied from in[" + std::to_string(written < 64 * 5 ? written : 64 * 5 + 8) + "]";
      for (const flash::Finding& finding : found) {
        CHECK(finding.kind == "uninitialised");
        CHECK(finding.text.find(from) != std::string::npos);
        CHECK(finding.count == 1);
      }
      CHECK(found[0].text.find("read of shared Tiles+") != std::string::npos);
      CHECK(found[1].text.find("read of copied[") != std::string::npos);
    }
}

TEST_CASE("a prefetch needs a coordinate for each dimension, as a load does") {
  const std::vector<flash::Finding> refused = flash::on_checked::run_wrong_prefetch({.keep_going = true});
  REQUIRE(refused.size() == 1);
  CHECK(
      refused[0].text.starts_with("asynchronous copy: cp.async.bulk.prefetch.tensor with 4 coordinates, its tensor "
                                  "map has 2 dimensions\n"));
  CHECK(refused[0].text.find("\n  fetches  ") != std::string::npos);
}

TEST_CASE("a tensor map that the driver refuses is refused") {
  const auto make = [](std::size_t offset, std::array<std::uint64_t, 2> sizes, std::uint64_t stride,
                       std::array<std::uint32_t, 2> box) {
    alignas(16) static const std::byte data[32]{};
    flash::simt::make_tensor_map(data + offset, 2, sizes.data(), &stride, box.data());
  };
  CHECK_NOTHROW(make(0, {64, 64}, 128, {64, 64}));
  CHECK_NOTHROW(make(16, {std::uint64_t{1} << 32, 1}, (std::uint64_t{1} << 40) - 16, {8, 256}));
  using flash::MachineError, doctest::Contains;
  CHECK_THROWS_WITH_AS(make(8, {64, 64}, 128, {64, 64}), Contains("a multiple of 16; begin"), MachineError);
  CHECK_THROWS_WITH_AS(make(0, {0, 64}, 128, {64, 64}),
                       "tensor_map: the size of x is 0; expected 1 to 2^32; make no map of an empty tensor",
                       MachineError);
  CHECK_THROWS_WITH_AS(make(0, {64, (std::uint64_t{1} << 32) + 1}, 128, {64, 64}), Contains("the size of y is"),
                       MachineError);
  CHECK_THROWS_WITH_AS(make(0, {64, 64}, 120, {64, 64}),
                       "tensor_map: the stride of y is 120; expected a multiple of 16 bytes below 2^40; pad the rows",
                       MachineError);
  CHECK_THROWS_WITH_AS(make(0, {64, 64}, std::uint64_t{1} << 40, {64, 64}), Contains("the stride of y"), MachineError);
  CHECK_THROWS_WITH_AS(make(0, {64, 64}, 128, {64, 257}), Contains("the box of y is 257; expected 1 to 256"),
                       MachineError);
  CHECK_THROWS_WITH_AS(make(0, {64, 64}, 128, {64, 0}), Contains("the box of y is 0"), MachineError);
  CHECK_THROWS_WITH_AS(make(0, {64, 64}, 128, {72, 64}), Contains("the box of x is 72"), MachineError);
  CHECK_THROWS_WITH_AS(make(0, {64, 64}, 128, {12, 64}), Contains("a multiple of 8 elements up to 64"), MachineError);
}

#ifdef FLASH_HAVE_CUDA
TEST_CASE("the GPU agrees") {
  const flash::Features hopper{.kernel = true, .capability = {9, 0, true}};
  if (!flash::available(hopper, flash::Where::Gpu)) return flash::test::skip("no GPU of compute capability 9.0");
  for (const BoxCase& c : cases()) is_right(c, flash::on_gpu::run_box({}, c));
}
#endif
