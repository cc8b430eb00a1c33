// tensor_kernels.cpp: see tensor_kernels.hpp. The formulas are loops over rows and keys: they share no code with the
// kernels. ./flash test 10
#include "tests/tensor_kernels.hpp"

namespace flash::test {

template <class T>
void check_tensor_kernel(const std::function<SharedLoads(std::int64_t)>& loads, bool asynchronous) {
  if (skipped_without(Where::Checked)) return;
  constexpr std::int64_t kTile = 64, kThreads = 2 * kTile;
  for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{53, 100}, {130, 53}, {128, 128}, {20, 0}})
    for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
      for (const std::int64_t D : {64, 128}) {
        if (D == 128 && Sq != 53) continue;
        const Case c{.H = 1, .Sq = Sq, .Sk = Sk, .D = D, .mask = causal, .block_q = kTile, .block_k = kTile};
        INFO(text(c));
        // Tiles and keys of which a row of the Q tile sees something.
        std::int64_t tiles = 0, keys_read = 0, busy = 0;  // busy: Q tiles that see anything
        for (std::int64_t i = 0; i < Sq; i += kTile) {
          const std::int64_t before = tiles;
          for (std::int64_t j = 0; j < Sk; ++j) {
            bool seen = false;
            for (std::int64_t r = i; r < std::min(i + kTile, Sq); ++r) seen = seen || sees(causal, r, j, Sq, Sk);
            tiles += seen && j % kTile == 0;
            keys_read += seen;
          }
          busy += tiles > before;
        }
        const std::int64_t heads = c.B * c.H, q_tiles = (Sq + kTile - 1) / kTile, row = D * 2;
        Inputs<T> in(c);
        const Run got = flash::forward(phase_under_test(), in.problem(true), Where::Checked);
        check_traffic(got.ledger, {{"Q", heads * Sq * row, 0},
                                   {"K", heads * keys_read * row, 0},
                                   {"V", heads * keys_read * row, 0},
                                   {"O", 0, heads * Sq * row},
                                   {"LSE", 0, heads * Sq * 4}});
        const auto count = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
        CHECK(got.ledger.tensor_flops == count(heads * tiles * 4 * kTile * kTile * D));
        CHECK(got.ledger.exps == count(heads * tiles * (kTile * kTile + kThreads * 2)));  // P; alpha in each lane
        CHECK(got.ledger.barriers == count(heads * tiles * (asynchronous ? 1 : 2)));
        CHECK(got.ledger.shared_bytes_peak == count((asynchronous ? 5 : 3) * kTile * row));
        // The most at a time: Q and the first tile of K and V, or two of these; a block without keys has Q alone.
        const std::int64_t in_flight = !asynchronous ? 0 : tiles == 0 ? 1 : 3;
        CHECK(got.ledger.async_bytes_peak == count(in_flight * kTile * row));
        const SharedLoads each = loads(D);
        const std::int64_t once = heads * busy * each.once;
        CHECK(got.ledger.shared_read_requests == count(heads * tiles * each.requests + once));
        // 16 bytes a lane; what cp.async writes is no request.
        const std::int64_t stores = asynchronous ? 0 : heads * (q_tiles + 2 * tiles) * kTile * row / 16 / 32;
        CHECK(got.ledger.shared_write_requests == count(stores));
        CHECK(got.ledger.shared_wavefronts == count(heads * tiles * each.wavefronts + 4 * (stores + once)));
      }
}

template <class T>
void check_completions() {
  if (skipped_without(Where::Checked)) return;
  const Case c{.Sq = 70, .Sk = 150, .D = 64, .mask = Mask::bottom_right()};
  Inputs<T> late(c);
  const Run first = flash::forward(phase_under_test(), late.problem(true), Where::Checked);
  for (const Where where : {Where::Sim, Where::Checked})
    for (const Completion completion : {Completion::eager, Completion::random})
      for (const Order order : {Order::forward, Order::random}) {
        Inputs<T> again(c);
        const Run run = flash::forward(phase_under_test(), again.problem(true), where,
                                       {.order = order, .seed = 3, .completion = completion});
        CHECK(same_bits(late.o.memory, again.o.memory));
        CHECK(same_bits(late.lse, again.lse));
        if (where == Where::Checked) CHECK(run.ledger == first.ledger);
      }
}

template void check_tensor_kernel<half>(const std::function<SharedLoads(std::int64_t)>&, bool);
template void check_tensor_kernel<bfloat16>(const std::function<SharedLoads(std::int64_t)>&, bool);
template void check_completions<half>();
template void check_completions<bfloat16>();

}  // namespace flash::test
