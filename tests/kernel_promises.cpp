// kernel_promises.cpp: what every kernel phase promises beyond promises.cpp: clean checked runs, the same bits on both
// simulators and under every schedule, any number of heads, block sizes and machines refused by name; and on a GPU all
// that is promised on the simulator. Compiled once, linked into the test of each phase that has a kernel.
// ./flash test 07
#include <algorithm>
#include <cmath>
#include <cstring>

#include "sim/machine.hpp"
#include "tests/promises.hpp"

namespace flash::test {
namespace {

template <class T>
Run run(const Problem<T>& p, Where where, const MachineOptions& options = {}) {
  return flash::forward(phase_under_test(), p, where, options);
}

// Do its blocks draw their Q tiles from a counter?
bool draws() {
  const Workspace workspace = features_under_test().workspace({});
  return workspace.size() == 1 && workspace[0].name == std::string("counter");
}

}  // namespace

// No finding on the contract's cases and each head dimension, and the bits of the fast machine. What is checked does
// not depend on the order of threads, what waits for what may: under three orders where there are several K/V tiles or
// the head dimension is new, else under one of them after the other. So with bf16 after fp16: it waits in the same
// places.
TEST_CASE_TEMPLATE("checked: clean" * only_if(has_type), T, float, half, bfloat16) {
  if (skipped_without(Where::Checked)) return;
  const Features& can = features_under_test();
  std::vector<Case> cases = pairwise(checked_domain(can));
  for (const int D : can.head_dims)  // each is code of its own; four K/V tiles
    cases.push_back({.B = 1,
                     .H = 1,
                     .Sq = 40,
                     .Sk = 4 * blocks_for(can, D)[0].Bc - 10,
                     .D = D,
                     .mask = can.meets(Demand::Causal) ? Mask::bottom_right() : Mask::none()});
  constexpr Order orders[] = {Order::forward, Order::reverse, Order::random};
  const bool all_orders = !(std::is_same_v<T, bfloat16> && has_type(Type::Float16));
  std::size_t number = 0;
  for (const Case& c : cases) {
    INFO(text(c));
    ++number;
    Inputs<T> fast(c);
    const Run quick = run(with_listed_blocks(fast.problem(can.meets(Demand::Lse)), can), Where::Sim);
    CHECK(!quick.counted);
    for (const Order order : orders) {
      if (!(all_orders && (c.Sk >= 200 || c.D >= 64)) && order != orders[number % 3]) continue;
      Inputs<T> checked(c);
      Run watched;
      CHECK_NOTHROW(watched = run(with_listed_blocks(checked.problem(can.meets(Demand::Lse)), can), Where::Checked,
                                  {.order = order, .seed = 7}));
      CHECK(watched.counted);
      CHECK(watched.tiles == quick.tiles);
      CHECK(same_bits(fast.o.memory, checked.o.memory));
      CHECK(same_bits(fast.lse, checked.lse));
    }
  }
  check_empty<T>(Where::Checked);  // Sk = 0: a block without any tile
}

// What is left to others: the blocks that stay are fewer, one at least, and the bits are the same.
TEST_CASE("spare multiprocessors" * only_if(features_under_test().meets(Demand::SpareMultiprocessors))) {
  const Case c{.B = 1, .H = 2, .Sq = 300, .Sk = 150, .D = 64, .mask = Mask::bottom_right()};
  Inputs<bfloat16> all(c);
  const Run of_all = run(all.problem(true), Where::Sim);
  for (const int spare : {1, 1000}) {
    Inputs<bfloat16> fewer(c);
    Problem<bfloat16> p = fewer.problem(true);
    p.options.spare_multiprocessors = spare;
    check_fewer_blocks(of_all, run(p, Where::Sim));
    CHECK(same_bits(all.o.memory, fewer.o.memory));
    CHECK(same_bits(all.lse, fewer.lse));
  }
}

// sim = checked, any order, any number of worker threads: each two of these meet.
TEST_CASE_TEMPLATE("any schedule gives the same bits" * only_if(has_type), T, float, half, bfloat16) {
  if (skipped_without(Where::Checked)) return;
  const Features& can = features_under_test();
  for (const Blocks& blocks : blocks_for(can, 20)) {
    const Case c{.B = 1,
                 .Sq = 45,
                 .Sk = 130,
                 .D = next_D(20, can),
                 .mask = can.meets(Demand::Causal) ? Mask::bottom_right() : Mask::none(),
                 .block_q = blocks.Br,
                 .block_k = blocks.Bc,
                 .layout = Layout::Mixed,
                 .granule = granule(can)};
    INFO(text(c));
    Inputs<T> first(c);
    run(first.problem(can.meets(Demand::Lse)), Where::Sim, {.threads = 1});
    const Ledger ledger = run(first.problem(can.meets(Demand::Lse)), Where::Checked, {.threads = 1}).ledger;
    for (const Order order : {Order::forward, Order::reverse, Order::random})
      for (const int threads : {1, 2}) {
        const bool checks = (order == Order::reverse) == (threads == 1);
        Inputs<T> again(c);
        const Run r = run(again.problem(can.meets(Demand::Lse)), checks ? Where::Checked : Where::Sim,
                          {.order = order, .seed = 3, .threads = threads});
        CHECK(same_bits(first.o.memory, again.o.memory));
        CHECK(same_bits(first.lse, again.lse));
        if (checks) CHECK(r.ledger == ledger);
      }
  }
}

// Bit for bit as the phase before, where that is declared, on cases that both can do.
TEST_CASE_TEMPLATE("same bits as the phase before" * only_if(features_under_test().same_bits) *
                       only_if(phase_before_has_type_too),
                   T, float, half, bfloat16) {
  const Features& can = features_under_test();
  const Features& could = phase_before()->forward->features;
  for (const Blocks& blocks : blocks_for(can, 16))
    for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
      for (const std::int64_t D : {16, 40, 128})
        for (const Input input : {Input::Normal, Input::Outliers, Input::Rising}) {
          if (causal != Mask::none() && !(can.meets(Demand::Causal) && could.meets(Demand::Causal))) continue;
          if (D > can.largest_D() || !could.blocks.contains(blocks)) continue;
          const Case c{.B = 1,
                       .Sq = 77,
                       .Sk = 101,
                       .D = D,
                       .input = input,
                       .mask = causal,
                       .block_q = blocks.Br,
                       .block_k = blocks.Bc,
                       .layout = Layout::Mixed,
                       .granule = granule(can)};
          INFO(text(c));
          Inputs<T> a(c), b(c);
          flash::forward(*phase_before(), a.problem(false), Where::Sim);
          run(b.problem(false), Where::Sim);
          CHECK(same_bits(a.o.memory, b.o.memory));
        }
}

// What became of the tiles, from the definition of the mask alone: loops over rows and keys.
TEST_CASE("tiles whole, masked and skipped" * only_if(features_under_test().meets(Demand::Causal)) *
          only_if(has_type(Type::Float16))) {
  const Features& can = features_under_test();
  for (const Blocks& blocks : blocks_for(can, 16))
    for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{128, 128}, {53, 200}, {300, 100}, {256, 40}})
      for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()}) {
        const Case c{.B = 1, .Sq = Sq, .Sk = Sk, .mask = causal, .block_q = blocks.Br, .block_k = blocks.Bc};
        INFO(text(c));
        TileCounts want;
        for (std::int64_t i = 0; i < Sq; i += blocks.Br)
          for (std::int64_t j = 0; j < Sk; j += blocks.Bc) {
            std::int64_t pairs = 0;
            const std::int64_t rows = std::min(blocks.Br, Sq - i), keys = std::min(blocks.Bc, Sk - j);
            for (std::int64_t r = 0; r < rows; ++r)
              for (std::int64_t k = 0; k < keys; ++k) pairs += sees(causal, i + r, j + k, Sq, Sk);
            const std::int64_t heads = c.B * c.H;
            (pairs == 0 ? want.skipped : pairs == rows * blocks.Bc ? want.full : want.masked) += heads;
          }
        Inputs<half> in(c);
        CHECK(run(in.problem(can.meets(Demand::Lse)), Where::Sim).tiles == want);
      }
}

// A lane of a tensor core has rows eight apart, and lanes agree on how they go on. Half of the rows see equal scores of
// a million, half of them scores that become large with half of the keys; the former must not hang on the latter. Of
// the former P is 1, and V is 0 for half of the keys: O is 1/2, exactly.
TEST_CASE_TEMPLATE("a row with huge scores beside one whose scores become large" * only_if(has_type) *
                       only_if(features_under_test().tensor_cores),
                   T, half, bfloat16) {
  const Features& can = features_under_test();
  const Case c{.B = 1, .H = 1, .Sq = 128, .Sk = 512, .D = 64};
  const auto row_and_column = [&](std::uint64_t i) { return std::pair(i / 64, i % 64); };
  for (const std::uint64_t huge : {0, 8})        // these rows of 16, and the seven behind
    for (const std::int64_t large : {0, 256}) {  // these keys, and those behind as many
      CAPTURE(huge);
      CAPTURE(large);
      Inputs<T> in(c);
      in.q.fill(c.Sq, [&](std::uint64_t i, std::int64_t) {
        const auto [row, column] = row_and_column(i);
        if (row / 8 * 8 % 16 == huge) return column < 32 ? 1000.0f + 8.0f * static_cast<float>(row) : 0.0f;
        return column < 32 ? 0.0f : 10.0f;
      });
      in.k.fill(c.Sk, [&](std::uint64_t i, std::int64_t j) {
        return i % 64 < 32 || (j >= large && j < large + 256) ? 100.0f : 0.0f;
      });
      in.v.fill(c.Sk, [&](std::uint64_t, std::int64_t j) { return j < 256 ? 0.0f : 1.0f; });
      run(in.problem(can.meets(Demand::Lse)), Where::Sim);
      int others = 0;
      for (std::int64_t row = 0; row < c.Sq; ++row)
        for (std::int64_t d = 0; d < c.D; ++d) {
          const bool is_huge = static_cast<std::uint64_t>(row) / 8 * 8 % 16 == huge;
          others += to_float(in.o.view.row(0, 0, row)[d]) != (is_huge ? 0.5f : large == 256 ? 1.0f : 0.0f);
        }
      CHECK(others == 0);
    }
}

// A row whose scores are infinite is lost. The others, of the same lanes too, keep to their bars, and have the bits
// that they have without it. Phases 10 to 13 do not promise the bits: in 13 a warp rounds all its rows in one way or
// all in the other, whatever the reason.
TEST_CASE_TEMPLATE("a row of infinite scores leaves the others as they are" * only_if(has_type), T, float, half,
                   bfloat16) {
  const Features& can = features_under_test();
  const Case c{.B = 1, .H = 1, .Sq = 64, .Sk = 150, .D = 64};
  Inputs<T> finite(c), infinite(c);
  const auto lost = [](std::int64_t row) { return row == 5 || row == 27; };
  for (const std::int64_t row : {5, 27})
    for (std::int64_t d = 0; d < c.D; ++d) infinite.q.view.row(0, 0, row)[d] = from_float<T>(d == 0 ? INFINITY : 0.0f);
  const Problem<T> before = finite.problem(can.meets(Demand::Lse)), p = infinite.problem(can.meets(Demand::Lse));
  run(before, Where::Sim);
  run(p, Where::Sim);
  const auto row_of = [&](const Problem<T>& of, std::int64_t row) { return of.o.row(0, 0, row); };
  int others = 0;
  for (std::int64_t row = 0; row < c.Sq; ++row)
    others += !lost(row) && std::memcmp(row_of(before, row), row_of(p, row), std::size_t{64} * sizeof(T)) != 0;
  if (!can.tensor_cores || can.tensor_maps()) CHECK(others == 0);

  const Reference want = reference(before);
  for (const std::int64_t row : {5, 27}) std::copy_n(row_of(before, row), c.D, row_of(p, row));
  CHECK(distance(gather(p.o), want.o, c.D).relative <= bars<T>(c, want).relative);
  for (std::int64_t row = 0; p.lse && row < c.Sq; ++row)
    if (!lost(row)) CHECK(std::abs(p.lse[row] - want.lse[row]) <= lse_bar(want.lse[row]));
}

// Kernels that move 16 bytes at a time look at strides and at where a head begins: here the second one begins one
// element beyond 16 bytes, in Q, K, V or O. TMA refuses that.
TEST_CASE_TEMPLATE("a head may begin anywhere" * only_if(has_type) * only_if(!features_under_test().tensor_maps()), T,
                   float, half, bfloat16) {
  const Features& can = features_under_test();
  const Case c{.B = 1, .H = 2, .Sq = 50, .Sk = 61, .D = 64};
  Inputs<T> in(c);
  const Problem<T> given = in.problem(false);
  run(given, Where::Sim);
  const std::vector<double> want = gather(given.o);
  std::vector<T> copy(2 * 64 * 64);
  for (const Where where : {Where::Sim, Where::Checked})
    for (int moved = 0; moved < 4 && available(can, where); ++moved) {
      CAPTURE(moved);
      Problem<T> p = given;
      const auto move = [&](auto& view) {
        auto to = view;
        to.data = copy.data(), to.stride = {2 * 64 * 64, view.S() * 64 + 1, 64, 1};
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t row = 0; row < view.S(); ++row)
            std::copy_n(view.row(0, h, row), c.D, copy.data() + h * to.stride[1] + row * 64);
        view = to;
      };
      moved == 0 ? move(p.q) : moved == 1 ? move(p.k) : moved == 2 ? move(p.v) : move(p.o);
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t row = 0; row < c.Sq; ++row) std::fill_n(p.o.row(0, h, row), c.D, from_float<T>(-1));
      run(p, where);
      CHECK(gather(p.o) == want);
    }
}

// A stride that is never gone, that of a batch of one, may be anything: PyTorch makes such.
TEST_CASE_TEMPLATE("any stride of an axis of length 1" * only_if(has_type), T, float, half, bfloat16) {
  const Features& can = features_under_test();
  const Case c{.B = 1, .H = 1, .Sq = 50, .Sk = 61, .D = 64};
  Inputs<T> in(c);
  Problem<T> p = in.problem(false);
  run(p, Where::Sim);
  const std::vector<double> want = gather(p.o);
  p.q.stride[0] = 7, p.q.stride[1] = 3, p.k.stride[0] = 1, p.k.stride[1] = 5, p.v.stride[0] = 12345;
  p.o.stride[0] = 100'001, p.o.stride[1] = 50'001;
  for (const Where where : {Where::Sim, Where::Checked}) {
    if (!available(can, where)) continue;
    for (std::int64_t row = 0; row < c.Sq; ++row) std::fill_n(p.o.row(0, 0, row), c.D, from_float<T>(-1));
    run(p, where);
    CHECK(gather(p.o) == want);
  }
}

// CUDA's grid.y ends at 65,535: more heads than that, each with an answer of its own. Phases that copy by TMA number
// their blocks in x alone, or draw them from a counter; their tiles are too large for so many on the simulator.
TEST_CASE("65,792 heads" * only_if(has_type(Type::Float16)) * only_if(!features_under_test().tensor_maps())) {
  const Features& can = features_under_test();
  const Blocks smallest = smallest_blocks(can, 3);
  const Case c{
      .B = 257, .H = 256, .Sq = 1, .Sk = 2, .D = next_D(3, can), .block_q = smallest.Br, .block_k = smallest.Bc};
  Inputs<half> in(c);
  const Problem<half> p = in.problem(can.meets(Demand::Lse));
  run(p, Where::Sim);
  const Reference want = reference(p);
  CHECK(distance(gather(in.o.view), want.o, c.D).relative <= bars<half>(c, want).relative);
  for (std::size_t i = 0; can.meets(Demand::Lse) && i < want.lse.size(); ++i)
    if (!(std::abs(p.lse[i] - want.lse[i]) <= lse_bar(want.lse[i]))) FAIL_CHECK("LSE of head " << i);
}

// LSE of more than 2^31 rows, and m and l, of which only the first and the last are done: blocks that draw their Q
// tiles begin with the first ones, and the counter stands before the last two of the last head. Rows of Q and O lie on
// one another.
TEST_CASE("rows of LSE beyond 2^31" * only_if(draws())) {
  const Features& can = features_under_test();
  const std::int64_t H = 1024, Sq = (1 << 21) + 4165, D = 64;
  const auto [Br, Bc] = blocks_for(can, D)[0];
  REQUIRE((H - 1) * Sq > std::int64_t{1} << 31);
  FarApart memory(8);
  const auto rows = [&] { return static_cast<float*>(memory.reserve(static_cast<std::size_t>(H * Sq) * 4)); };
  std::vector<half> q(H * D), o(H * D), kv(D, from_float<half>(0.5f));
  for (std::int64_t h = 0; h < H; ++h) std::fill_n(&q[h * D], D, from_float<half>(h % 8 / 8.0f));
  AnyProblem p({1, H, H, Sq, 1, D, D}, Type::Float16, {.scale = 1.0f, .block_q = Br, .block_k = Bc}, true);
  p.q = {q.data(), {1, H, Sq, D}, {H * D, D, 0, 1}};
  p.o = {o.data(), {1, H, Sq, D}, {H * D, D, 0, 1}};
  p.k = {kv.data(), {1, H, 1, D}, {D, 0, D, 1}};
  p.v = p.k;
  p.lse.data = rows();
  if (can.meets(Demand::Kept)) p.m = p.l = p.lse, p.m.data = rows(), p.l.data = rows();

  const on_sim::Machine machine({.threads = 1});
  unsigned counter = static_cast<unsigned>(H * ((Sq + Br - 1) / Br)) - 4;  // two blocks: the first number is 2
  const Stream stream{nullptr, {&counter}};
  phase_under_test().forward->on_stream(Where::Sim, p, &stream);
  CHECK(counter == 0);  // all that was to be done is done
  for (const auto& [h, row] : {std::pair{std::int64_t{0}, std::int64_t{0}}, {H - 1, Sq - Br - 1}, {H - 1, Sq - 1}}) {
    CAPTURE(h);
    CAPTURE(row);
    const auto at = [&](const AnyView& view) { return static_cast<const float*>(view.data)[h * Sq + row]; };
    const float score = 32 * (h % 8 / 8.0f);
    CHECK(at(p.lse) == doctest::Approx(score));
    if (!can.meets(Demand::Kept)) continue;
    CHECK(at(p.m) == doctest::Approx(score * 1.44269504f));
    CHECK(at(p.l) == 1);
  }
}

// Each D is padded to the next instantiated one and no further: as much shared memory as that one.
TEST_CASE("head dimensions are padded to the next one" * only_if(has_type(Type::Float16))) {
  const Features& can = features_under_test();
  const auto shared_bytes = [&](std::int64_t D) {
    const Case c{.B = 1, .H = 1, .Sq = 3, .Sk = 3, .D = next_D(D, can)};
    Inputs<half> in(c);
    return run(in.problem(can.meets(Demand::Lse)), Where::Sim).ledger.shared_bytes_peak;
  };
  std::uint64_t last = 0;
  std::int64_t last_D = 0;
  for (const std::int64_t D : can.head_dims) {
    CHECK(shared_bytes(D) != last);
    CHECK(shared_bytes(last_D + 1) == shared_bytes(D));
    last = shared_bytes(D), last_D = D;
  }
}

TEST_CASE_TEMPLATE("block sizes" * only_if(has_type), T, float, half, bfloat16) {
  const Features& can = features_under_test();
  const Forward<T> forward = [](const Problem<T>& p) { run(p, Where::Sim); };
  const auto blocks = [](std::int64_t q, std::int64_t k) {
    return [=](Problem<T>& p) {
      p.options.block_q = q;
      p.options.block_k = k;
    };
  };
  const std::string list = "; expected one of " + text(blocks_for(can, 8)) + "; omit --block-q and --block-k";
  check_refused<T>(forward, can, "block size is 48x33" + list, blocks(48, 33));
  check_refused<T>(forward, can, "block size is anyx1280" + list, blocks(0, 1280));
  check_refused<T>(forward, can, "block size is 1280xany" + list, blocks(1280, 0));

  // Without a wish the first that fits is taken; where a listed one does not fit, it is refused with the bytes.
  Inputs<T> in({.Sq = 33, .Sk = 40, .D = can.largest_D()});
  for (const Profile profile : {Profile::sm_80, Profile::sm_90}) {
    Problem<T> p = in.problem(can.meets(Demand::Lse));
    Blocks first{0, 0};
    for (const Blocks& each : blocks_for(can, p.D())) {
      p.options.block_q = each.Br, p.options.block_k = each.Bc;
      const std::size_t limit = profile == Profile::sm_80 ? 163 * 1024 : 227 * 1024;
      const std::string size = std::to_string(each.Br) + "x" + std::to_string(each.Bc);
      try {
        const Run r = run(p, Where::Sim, {.profile = profile});
        CHECK(r.blocks == each);
        CHECK(r.ledger.shared_bytes_peak <= limit);
        if (first.Br == 0) first = each;
      } catch (const Error& e) {
        const std::string line = e.what(), begin = "shared memory for blocks " + size + " at D = ";
        CHECK(line.substr(0, begin.size()) == begin);
        CHECK(line.find(" bytes; expected at most " + std::to_string(limit) +
                        " on this machine; choose smaller "
                        "blocks of " +
                        text(blocks_for(can, p.D()))) != std::string::npos);
      }
    }
    if (first.Br == 0) continue;
    p.options.block_q = p.options.block_k = 0;
    CHECK(run(p, Where::Sim, {.profile = profile}).blocks == first);
  }
}

TEST_CASE_TEMPLATE("more heads than a kernel can number are refused" * only_if(has_type), T, float, half, bfloat16) {
  for (const auto& [B, H] : {std::array{std::int64_t{1} << 31, std::int64_t{1}}, {1 << 16, 1 << 15}}) {
    T none[1]{};  // no rows: such a problem needs no memory
    Problem<T> p;
    p.q = p.k = p.v = dense_view<const T>(none, {B, H, 0, 8});
    p.o = dense_view(none, {B, H, 0, 8});
    const std::string line =
        "B x H is " + std::to_string(B) + " x " + std::to_string(H) + "; expected at most 2147483647; split the batch";
    CHECK_THROWS_WITH_AS(run(p, Where::Sim), line.c_str(), Error);
  }
}

TEST_CASE("a machine that this build does not hold is refused by name" * only_if(!was_built(Where::Gpu))) {
  Inputs<float> in({.Sq = 3, .Sk = 4});
  CHECK_THROWS_WITH_AS(require(phase_under_test().name, features_under_test(), Where::Gpu),
                       "machine is gpu; expected sim or checked here; this build has no CUDA: configure with "
                       "-DFLASH_CUDA=ON",
                       Error);
}

TEST_CASE_TEMPLATE("gpu" * only_if(has_type), T, float, half, bfloat16) {
  if (skipped_without(Where::Gpu)) return;
  check_contract<T>(Where::Gpu);
  check_published<T>(Where::Gpu);
  check_promises<T>(Where::Gpu);
}

TEST_CASE_TEMPLATE("gpu: long sequences" * only_if(has_type), T, float, half, bfloat16) {
  if (skipped_without(Where::Gpu)) return;
  for (const int exponent : {15, 17, 20}) check_long<T>(Where::Gpu, std::int64_t{1} << exponent);
}

}  // namespace flash::test
