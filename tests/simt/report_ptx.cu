// report_ptx.cu: as report.cu, with the instructions of gpu/ptx.cuh, which need compute capability 8.0: tiles that
// cp.async brings one ahead, ldmatrix and mma on them. Its trace has copies and waits.
// Use: report.hpp.
#include "gpu/kernel.cuh"
#include "tests/simt/report.hpp"

namespace flash::inline FLASH_MACHINE {

constexpr int kTiles = 3;

// Three stages, of which two are filled at a time: one barrier per tile is enough.
struct TileStages {
  alignas(16) uint4 row[3][64];
};
__global__ void tiles_ahead(const uint4* in /*[2, kTiles, 64]*/, float* out /*[2, 64]*/) {
  TileStages& s = shared<TileStages>();
  const int t = threadIdx.x;
  const auto begin_copy = [&](int tile) {
    if (tile < kTiles) cp_async_16(&s.row[tile % 3][t], &in[(blockIdx.x * kTiles + tile) * 64 + t]);
    cp_async_commit();
  };
  float d[4] = {};
  begin_copy(0);
  for (int tile = 0; tile < kTiles; ++tile) {
    trace_mark("tile", tile);
    begin_copy(tile + 1);
    cp_async_wait<1>();
    __syncthreads();
    unsigned a[4];
    ldmatrix_x4(a, &s.row[tile % 3][t]);
    const unsigned b[2] = {a[0], a[1]};
    mma_m16n8k16<__half>(d, a, b, d);
  }
  out[blockIdx.x * 64 + t] = d[0];
}

__global__ void clear(float* out) {
  out[threadIdx.x] = 0;
}

Traced run_tiles_ahead(const MachineOptions& options) {
  Machine m(options);
  const std::vector<unsigned> zeros(2 * kTiles * 64 * 4);
  const auto in = m.upload("in", zeros.data(), zeros.size());
  const auto out = m.alloc<float>("out", 2 * 64);
  launch<TileStages>(m, tiles_ahead, dim3(2), dim3(64), reinterpret_cast<const uint4*>(in.data()), out.data());
  launch(m, clear, dim3(1), dim3(64), out.data());
  return {m.reports(), m.trace()};
}

}  // namespace flash::inline FLASH_MACHINE
