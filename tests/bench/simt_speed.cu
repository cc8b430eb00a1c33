// simt_speed.cu: the reference forward pass for timing the simulator: one thread per query row, K and V tiles in
// shared memory, fp32, Br 64, Bc 32, D 64. Ordinary code, not tuned for the simulator.
// Build: flash_add_kernel(simt_speed_kernel simt_speed.cu); the program is simt_speed.cpp.
#include "gpu/kernel.cuh"

namespace flash::inline FLASH_MACHINE {

constexpr int kBr = 64, kBc = 32, kD = 64;

struct Tiles {
  float k[kBc][kD], v[kBc][kD];
};

__global__ void __launch_bounds__(kBr)
    reference_forward(const float* q /*[n, D]*/, const float* k /*[n, D]*/, const float* v /*[n, D]*/,
                      float* o /*[n, D]*/, int n, float scale_log2) {
  Tiles& s = shared<Tiles>();
  const int row = blockIdx.x * kBr + threadIdx.x;
  float query[kD], sum[kD] = {}, m = -INFINITY, l = 0.0f;
  for (int d = 0; d < kD; ++d) query[d] = q[row * kD + d] * scale_log2;

  for (int j0 = 0; j0 < n; j0 += kBc) {
    for (int e = threadIdx.x; e < kBc * kD; e += kBr) {
      s.k[e / kD][e % kD] = k[j0 * kD + e];
      s.v[e / kD][e % kD] = v[j0 * kD + e];
    }
    __syncthreads();  // the tiles are written

    float scores[kBc], highest = m;
    for (int j = 0; j < kBc; ++j) {
      float part[4] = {};  // four chains of additions: one would wait for its own last result
      for (int d = 0; d < kD; d += 4)
        for (int c = 0; c < 4; ++c) part[c] = fmaf(query[d + c], s.k[j][d + c], part[c]);
      scores[j] = (part[0] + part[1]) + (part[2] + part[3]);
      highest = fmaxf(highest, scores[j]);
    }
    const float correction = exp2f(m - highest);
    m = highest;
    l *= correction;
    for (int d = 0; d < kD; ++d) sum[d] *= correction;
    for (int j = 0; j < kBc; ++j) {
      const float p = exp2f(scores[j] - m);
      l += p;
      for (int d = 0; d < kD; ++d) sum[d] = fmaf(p, s.v[j][d], sum[d]);
    }
    __syncthreads();  // all rows have read the tiles
  }
  for (int d = 0; d < kD; ++d) o[row * kD + d] = sum[d] / l;
}

// q, k, v, o: [n, D]; n a multiple of 64. Returns the reported work in FLOP (0 where the machine does not count).
std::uint64_t run_reference_forward(Machine& m, const float* q, const float* k, const float* v, float* o, int n) {
  const size_t count = size_t(n) * kD;
  Array<float> device_q = m.upload("q", q, count), device_k = m.upload("k", k, count),
               device_v = m.upload("v", v, count);
  Array<float> device_o = m.alloc<float>("o", count);
  launch<Tiles>(m, reference_forward, dim3(n / kBr), dim3(kBr), device_q.data(), device_k.data(), device_v.data(),
                device_o.data(), n, 0.125f * 1.4426950408889634f);
  m.download(o, device_o);
  return m.reports().back().ledger.flops;
}

}  // namespace flash::inline FLASH_MACHINE
