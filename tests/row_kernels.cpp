// row_kernels.cpp: see row_kernels.hpp. Compiled once, linked into the tests of those phases.
// The formulas are loops over rows and keys: they share no code with the kernels.
// ./flash test 05
#include "tests/row_kernels.hpp"

namespace flash::test {
namespace {

// What a run must count, from the definition of the mask alone: loops over rows and keys.
struct Expected {
  std::int64_t q_rows = 0, kv_rows = 0, o_rows = 0;  // rows of D elements read or written
  std::int64_t flops = 0, exps = 0, barriers = 0, blocks = 0;
};

template <class T>
Expected expected(const Problem<T>& p, std::int64_t Br, std::int64_t Bc, std::int64_t D) {
  const std::int64_t Sq = p.Sq(), Sk = p.Sk();
  const Mask causal = p.options.mask;
  Expected e;
  for (std::int64_t i = 0; i < Sq; i += Br) {
    ++e.blocks;
    for (std::int64_t j = 0; j < Sk; j += Bc) {
      std::int64_t pairs = 0, idle_pairs = 0;  // pairs of the tile that are seen; by threads beyond the last row
      const std::int64_t rows = std::min(Br, Sq - i), keys = std::min(Bc, Sk - j);
      for (std::int64_t r = 0; r < Br; ++r)
        for (std::int64_t k = 0; k < keys; ++k) (r < rows ? pairs : idle_pairs) += sees(causal, i + r, j + k, Sq, Sk);
      if (pairs == 0) continue;
      e.kv_rows += keys;
      e.barriers += 2;
      e.exps += Br * (Bc + 1);                                       // P and alpha
      e.flops += 2 * (Br * Bc * D + (pairs + idle_pairs) * D + Br);  // QK^T, PV, l
    }
  }
  e.q_rows = e.o_rows = Sq;
  if (p.lse) e.flops += 2 * Sq;  // LSE = ln 2 · m + ln l
  const std::int64_t heads = p.B() * p.H();
  for (std::int64_t* n : {&e.q_rows, &e.kv_rows, &e.o_rows, &e.flops, &e.exps, &e.barriers, &e.blocks}) *n *= heads;
  return e;
}

}  // namespace

// Blocks of each size, ragged and not, every mask that the phase has, D padded and not.
template <class T>
void check_row_kernel() {
  const Features& can = features_under_test();
  if (skipped_without(Where::Checked)) return;
  for (const auto& [Br, Bc] : can.blocks)
    for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{53, 100}, {100, 53}, {128, 128}, {20, 0}})
      for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
        for (const std::int64_t true_D : {24, 128}) {
          if (causal != Mask::none() && !can.meets(Demand::Causal)) continue;
          if (true_D > can.largest_D() || (true_D == 128 && Sq != 53)) continue;
          const Case c{.H = 1,
                       .Sq = Sq,
                       .Sk = Sk,
                       .D = true_D,
                       .mask = causal,
                       .block_q = Br,
                       .block_k = Bc,
                       .layout = Layout::Padded};
          INFO(text(c));
          Inputs<T> in(c);
          const Problem<T> p = in.problem(can.meets(Demand::Lse));
          const Run got = flash::forward(phase_under_test(), p, Where::Checked);
          const std::int64_t D = can.padded(c.D);
          const Expected want = expected(p, Br, Bc, D);
          const std::int64_t row = c.D * static_cast<std::int64_t>(sizeof(T)), heads = c.B * c.H;
          check_traffic(got.ledger, {{"Q", want.q_rows * row, 0},
                                     {"K", want.kv_rows * row, 0},
                                     {"V", want.kv_rows * row, 0},
                                     {"O", 0, want.o_rows * row},
                                     {"LSE", 0, can.meets(Demand::Lse) ? heads * Sq * 4 : 0}});
          CHECK(got.ledger.flops == static_cast<std::uint64_t>(want.flops));
          CHECK(got.ledger.exps == static_cast<std::uint64_t>(want.exps));
          CHECK(got.ledger.barriers == static_cast<std::uint64_t>(want.barriers));
          CHECK(got.ledger.bank_conflicts() == 0);
          CHECK(got.ledger.shared_bytes_peak == static_cast<std::uint64_t>(4 * (Br * (D + 4) + 2 * Bc * D + Bc * Br)));
          std::int64_t blocks = 0;
          for (const KernelReport& k : got.kernels) blocks += std::int64_t{k.grid[0]} * k.grid[1] * k.grid[2];
          CHECK(blocks == want.blocks);
        }
}

template void check_row_kernel<float>();
template void check_row_kernel<half>();
template void check_row_kernel<bfloat16>();

}  // namespace flash::test
