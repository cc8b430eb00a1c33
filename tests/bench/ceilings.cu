// ceilings.cu: one kernel that issues a fixed mix of mma, ldmatrix and ex2 and reads the clock before and after. Like a
// phase's kernel it runs on the simulator too, which counts what it issues: a test holds the formulas to that.
// Use: ceilings.hpp declares what is here; flash-ceilings (ceilings_bench.cpp) times it.
#include "tests/bench/ceilings.hpp"

#include <algorithm>
#include <type_traits>

#include "phases/interface/kernel_phase.cuh"

namespace flash::ceilings::inline FLASH_MACHINE {

// Shared memory: 128 rows of 128 bytes, whose pieces of 16 bytes change places as in phase 11.
struct Rows {
  alignas(16) std::uint16_t bits[128][64];
};

template <int kMma, int kLdmatrix, int kEx2>
__global__ void issue(float* out /*[blocks, threads]*/, long long* cycles /*[blocks]*/, int turns) {
  Rows& rows = shared<Rows>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  // bfloat16 numbers from ±1 to ±2, in no order: zeros would draw less power.
  for (int i = threadIdx.x; i < 128 * 64; i += blockDim.x)
    rows.bits[i / 64][i % 64] = static_cast<std::uint16_t>(0x3f80u ^ (i * 2654435761u >> 16 & 0x807fu));
  __syncthreads();  // the rows are complete

  // Where the lane's row is in each of four squares of 16 x 16, side by side; ldmatrix number i reads 16 i rows below.
  const int row = warp % 4 * 16 + lane % 16;
  const std::uint16_t* square[groups_per_turn];
  for (int u = 0; u < groups_per_turn; ++u) square[u] = &rows.bits[row][(u * 16 + lane / 16 * 8) ^ row % 8 * 8];

  // Four squares of the group that is multiplied, and of the next, which are on their way meanwhile.
  unsigned a[4], b[2][4][4];
  ldmatrix_x4(a, square[0]);
  for (int i = 0; i < 8; ++i) ldmatrix_x4(b[i / 4][i % 4], square[i % 4]);
  float c[kMma > 0 ? kMma : 1][4] = {}, e[kEx2 > 0 ? kEx2 : 1] = {};
  unsigned seen = 0;

  __syncthreads();  // all warps begin together
  const long long begin = clock64();
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn)
#pragma unroll
    for (int u = 0; u < groups_per_turn; ++u) {
#pragma unroll
      for (int i = 0; i < kLdmatrix; ++i)
        ldmatrix_x4(b[(u + 1) % 2][i], square[(u + 1) % groups_per_turn] + i * 16 * 64);
#pragma unroll
      for (int i = 0; i < kMma; ++i) {
        const unsigned(&four)[4] = b[u % 2][i / 2 % (kLdmatrix > 0 ? kLdmatrix : 4)];
        mma_m16n8k16<__nv_bfloat16>(c[i], a, {four[i % 2 * 2], four[i % 2 * 2 + 1]}, c[i]);
      }
#pragma unroll
      for (int i = 0; i < kEx2; ++i) e[i] = ex2_approx_ftz(-e[i]);
      // Each register that is loaded must be used, or the compiler leaves the load out.
      if (kMma == 0)
#pragma unroll
        for (const auto& four : b[u % 2]) seen ^= four[0] ^ four[1] ^ four[2] ^ four[3];
    }
  __syncthreads();  // all warps are done
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;

  float sum = static_cast<float>(seen);
  for (int i = 0; i < kMma; ++i) sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
  for (int i = 0; i < kEx2; ++i) sum += e[i];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

static Measured measure(const Load& load, int samples) {
  Machine m(MachineOptions{.samples = samples});
  const int threads = load.warps * 32;
  const auto out = m.alloc<float>("out", static_cast<std::size_t>(load.blocks) * threads);
  const auto cycles = m.alloc<long long>("cycles", load.blocks);
  bool known = false;
  const auto launch = [&]<int kMma, int kLdmatrix, int kEx2>(std::integer_sequence<int, kMma, kLdmatrix, kEx2>) {
    if (load.mix.mma != kMma || load.mix.ldmatrix != kLdmatrix || load.mix.ex2 != kEx2) return;
    issue<kMma, kLdmatrix, kEx2><<<load.blocks, threads, sizeof(Rows)>>>(out.data(), cycles.data(), load.turns);
    known = true;
  };
  Measured measured{timed(m,
                          [&] {
                            [&]<std::size_t... i>(std::index_sequence<i...>) {
                              (launch(std::integer_sequence<int, mixes[i].mma, mixes[i].ldmatrix, mixes[i].ex2>()),
                               ...);
                            }
                            (std::make_index_sequence<mixes.size()>());
                          }),
                    0};
  if (!known) refuse("mix", name(load.mix), "one of ceilings::mixes", "add it there");
  std::vector<long long> each(load.blocks);
  m.download(each.data(), cycles);
  std::nth_element(each.begin(), each.begin() + each.size() / 2, each.end());
  measured.cycles = static_cast<double>(each[each.size() / 2]);
  return measured;
}

static const bool added = [] {
  measure_by_machine[static_cast<std::size_t>(this_machine)] = measure;
  return true;
}();

}  // namespace flash::ceilings::inline FLASH_MACHINE
