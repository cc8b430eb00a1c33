// naive.cu: attention in three kernels, S = scale·QKᵀ, P = softmax(S), O = PV, each through device memory.
// The products are tiled as well as the phases' are (plain CUDA cores, 4x4 results per thread), so that what the
// comparison shows is the way of S and P through memory and not a clumsy product. Declared in naive.hpp.
#include "phases/interface/kernel_phase.cuh"
#include "tests/bench/naive.hpp"

namespace flash::naive::inline FLASH_MACHINE {

// 64 x 64 results per block, 16 of the inner dimension at a time.
struct MatmulTiles {
  alignas(16) float A[16][64 + 4];  // transposed: A[k][i]
  alignas(16) float B[16][64 + 4];
};

// C = factor · A · B, or factor · A · Bᵀ, for each head (blockIdx.z).
template <bool transposed, class TA, class TB, class TC>
__global__ void __launch_bounds__(256)
    matmul(const TA* A /*[heads, rows, depth]*/, const TB* B /*[heads, depth, cols], transposed: [heads, cols, depth]*/,
           TC* C /*[heads, rows, cols]*/, std::int64_t rows, std::int64_t cols, std::int64_t depth, float factor) {
  MatmulTiles& tiles = shared<MatmulTiles>();
  A += blockIdx.z * rows * depth;
  B += blockIdx.z * cols * depth;
  C += blockIdx.z * rows * cols;
  const std::int64_t first_row = std::int64_t{blockIdx.y} * 64, first_col = std::int64_t{blockIdx.x} * 64;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float c[4][4] = {};

  for (std::int64_t k0 = 0; k0 < depth; k0 += 16) {
    // Load both tiles, zeros beyond the edges; neighbouring threads read neighbouring addresses.
    for (int i = threadIdx.x; i < 64 * 16; i += 256) {
      const int k = i % 16, r = i / 16;
      const bool inside = first_row + r < rows && k0 + k < depth;
      tiles.A[k][r] = inside ? widen(A[(first_row + r) * depth + k0 + k]) : 0.0f;
    }
    for (int i = threadIdx.x; i < 64 * 16; i += 256) {
      const int k = transposed ? i % 16 : i / 64, col = transposed ? i / 16 : i % 64;
      const bool inside = first_col + col < cols && k0 + k < depth;
      const std::int64_t at = transposed ? (first_col + col) * depth + k0 + k : (k0 + k) * cols + first_col + col;
      tiles.B[k][col] = inside ? widen(B[at]) : 0.0f;
    }
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      const float4 a4 = load4(&tiles.A[k][4 * ty]), b4 = load4(&tiles.B[k][4 * tx]);
      const float a[4] = {a4.x, a4.y, a4.z, a4.w}, b[4] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
      for (int y = 0; y < 4; ++y)
#pragma unroll
        for (int x = 0; x < 4; ++x) c[y][x] = fmaf(a[y], b[x], c[y][x]);
    }
    __syncthreads();  // all have read them
  }

#pragma unroll
  for (int y = 0; y < 4; ++y)
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      const std::int64_t row = first_row + 4 * ty + y, col = first_col + 4 * tx + x;
      if (row < rows && col < cols) C[row * cols + col] = round_to<TC>(factor * c[y][x]);
    }
}

struct Partial {
  float of_warp[8];
};

// One number from the numbers of all 256 threads, for all of them: their maximum or their sum.
template <bool maximum>
__device__ float reduce(Partial& partial, float x) {
  const auto join = [](float a, float b) { return maximum ? fmaxf(a, b) : a + b; };
  for (int distance = 16; distance > 0; distance /= 2) x = join(x, __shfl_xor_sync(0xffffffffu, x, distance));
  __syncthreads();  // the numbers of the last call have been read
  if (threadIdx.x % 32 == 0) partial.of_warp[threadIdx.x / 32] = x;
  __syncthreads();  // all warps have written theirs
  x = partial.of_warp[0];
  for (int warp = 1; warp < 8; ++warp) x = join(x, partial.of_warp[warp]);
  return x;
}

// P = softmax(S), one block per row.
template <class T>
__global__ void __launch_bounds__(256)
    softmax(const float* S /*[rows of all heads, cols]*/, T* P /*[rows of all heads, cols]*/, std::int64_t cols) {
  Partial& partial = shared<Partial>();
  S += blockIdx.x * cols;
  P += blockIdx.x * cols;
  float m = -INFINITY;
  for (std::int64_t j = threadIdx.x; j < cols; j += 256) m = fmaxf(m, S[j]);
  m = reduce<true>(partial, m);
  float l = 0;
  for (std::int64_t j = threadIdx.x; j < cols; j += 256) l += expf(S[j] - m);
  l = reduce<false>(partial, l);
  for (std::int64_t j = threadIdx.x; j < cols; j += 256) P[j] = round_to<T>(expf(S[j] - m) / l);
}

// Dense tensors only. OutOfMemory where S and P do not fit.
template <class T>
void launch(const AnyProblem& p, const Stream& stream) {
  const std::int64_t heads = p.B() * p.H(), Sq = p.Sq(), Sk = p.Sk(), D = p.D();
  const auto tiles = [](std::int64_t n) { return static_cast<unsigned>((n + 63) / 64); };
  using E = device_t<T>;
  const auto at = [](const AnyView& view) { return static_cast<const E*>(view.data); };
  auto* const S = static_cast<float*>(stream.workspace[0]);
  auto* const P = static_cast<E*>(stream.workspace[1]);
  const dim3 scores(tiles(Sk), tiles(Sq), static_cast<unsigned>(heads));
  const dim3 outputs(tiles(D), tiles(Sq), static_cast<unsigned>(heads));
  matmul<true, E, E, float><<<scores, 256, sizeof(MatmulTiles)>>>(at(p.q), at(p.k), S, Sq, Sk, D, p.scale());
  softmax<E><<<static_cast<unsigned>(heads * Sq), 256, sizeof(Partial)>>>(S, P, Sk);
  matmul<false, E, E, E><<<outputs, 256, sizeof(MatmulTiles)>>>(P, at(p.v), static_cast<E*>(p.o.data), Sq, D, Sk, 1.0f);
}

Run run(const AnyProblem& p, const MachineOptions& options) {
  for (const AnyView& view : {p.q, p.k, p.v, p.o})
    if (view.stride != dense_strides(view.shape))
      refuse("a stride", "not that of a dense tensor", "dense Q, K, V and O", "use a phase");
  return run_on_device(p, features.workspace(p), options, p.type == Type::Float32 ? launch<float> : launch<half>);
}

static const Added added(forward_pass, this_machine, run);

}  // namespace flash::naive::inline FLASH_MACHINE
