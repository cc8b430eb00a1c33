// layer_norm.cu: each row minus its mean, over its standard deviation, by one warp: Welford's statistics, merged by
// shuffles; rows as float4.
// ./flash check tests/simt/programs/layer_norm.cu; nvcc -arch=native layer_norm.cu. With an argument: lanes without
// work leave before the shuffle that waits for them.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

__constant__ float epsilon = 1e-5f;

struct Statistics {
  float count, mean, squares;
  __device__ void add(float x) {
    count += 1;
    const float delta = x - mean;
    mean += delta / count;
    squares = fmaf(delta, x - mean, squares);
  }
  __device__ void merge(const Statistics& other) {
    const float total = count + other.count;
    if (total == 0) return;
    const float delta = other.mean - mean;
    mean += delta * other.count / total;
    squares += other.squares + delta * delta * count * other.count / total;
    count = total;
  }
};

__global__ void layer_norm(const float4* in /*[rows][columns / 4]*/, const float* gamma, const float* beta,
                           float* out /*[rows][columns]*/, int rows, int columns, bool broken) {
  const int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y, vectors = columns / 4;
  if (row >= rows) return;  // whole warps
  if (broken && lane >= vectors) return;
  Statistics s{};
  for (int i = lane; i < vectors; i += 32) {
    const float4 v = in[row * vectors + i];
    s.add(v.x), s.add(v.y), s.add(v.z), s.add(v.w);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    Statistics other;
    other.count = __shfl_xor_sync(0xffffffffu, s.count, offset);  //@ warp operation
    other.mean = __shfl_xor_sync(0xffffffffu, s.mean, offset);
    other.squares = __shfl_xor_sync(0xffffffffu, s.squares, offset);
    s.merge(other);
  }
  const float scale = rsqrtf(s.squares / s.count + epsilon);
  const float* x = reinterpret_cast<const float*>(in + row * vectors);
  for (int i = lane; i < columns; i += 32)
    out[row * columns + i] = fmaf((x[i] - s.mean) * scale, __ldg(&gamma[i]), __ldg(&beta[i]));
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int rows = 10, columns = 100;
  std::vector<float> in(rows * columns), gamma(columns), beta(columns), out(rows * columns);
  for (int i = 0; i < rows * columns; ++i) in[i] = static_cast<float>(i * 29 % 83) / 4 + 100;
  for (int i = 0; i < columns; ++i) gamma[i] = 1 + i / 64.0f, beta[i] = i / 32.0f;
  float *d_in, *d_gamma, *d_beta, *d_out;
  CUDA(cudaMalloc(&d_in, in.size() * sizeof(float)));
  CUDA(cudaMalloc(&d_gamma, columns * sizeof(float)));
  CUDA(cudaMalloc(&d_beta, columns * sizeof(float)));
  CUDA(cudaMalloc(&d_out, out.size() * sizeof(float)));
  CUDA(cudaMemcpy(d_in, in.data(), in.size() * sizeof(float), cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(d_gamma, gamma.data(), columns * sizeof(float), cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(d_beta, beta.data(), columns * sizeof(float), cudaMemcpyHostToDevice));
  const dim3 block(32, 4);
  layer_norm<<<(rows + 3) / 4, block>>>(reinterpret_cast<const float4*>(d_in), d_gamma, d_beta, d_out, rows, columns,
                                        broken);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(out.data(), d_out, out.size() * sizeof(float), cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int r = 0; r < rows; ++r) {
    const float* x = &in[r * columns];
    double mean = 0, variance = 0;
    for (int c = 0; c < columns; ++c) mean += x[c] / columns;
    for (int c = 0; c < columns; ++c) variance += (x[c] - mean) * (x[c] - mean) / columns;
    for (int c = 0; c < columns; ++c) {
      const double expected = (x[c] - mean) / std::sqrt(variance + 1e-5) * gamma[c] + beta[c];
      wrong += !(std::fabs(out[r * columns + c] - expected) <= 1e-4);
    }
  }
  for (float* array : {d_in, d_gamma, d_beta, d_out}) CUDA(cudaFree(array));
  std::printf("layer_norm: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
