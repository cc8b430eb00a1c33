// transpose.cu: a matrix transposed: element by element, through a tile of shared memory, and through one with a column
// more, so that no banks conflict. Rows and columns need not be multiples of the tile.
// ./flash check tests/simt/programs/transpose.cu; nvcc -arch=native transpose.cu. With an argument: the edge is not
// checked.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

constexpr int kTile = 32, kRows = 8;

__global__ void naive(const float* in, float* out, int rows, int columns) {
  const int x = blockIdx.x * kTile + threadIdx.x;
  for (int y = blockIdx.y * kTile + threadIdx.y; y < blockIdx.y * kTile + kTile; y += kRows)
    if (x < columns && y < rows) out[x * rows + y] = in[y * columns + x];
}

template <class T, int kPadding>
__global__ void tiled(const T* in, T* out, int rows, int columns, bool broken) {
  __shared__ T tile[kTile][kTile + kPadding];
  int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  for (int j = 0; j < kTile; j += kRows)
    if (x < columns && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * columns + x];
  __syncthreads();
  x = blockIdx.y * kTile + threadIdx.x, y = blockIdx.x * kTile + threadIdx.y;
  for (int j = 0; j < kTile; j += kRows)
    if (broken || (x < rows && y + j < columns))
      out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];  //@ uninitialised
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int rows = 70, columns = 100;
  std::vector<float> in(rows * columns), out(rows * columns);
  for (int i = 0; i < rows * columns; ++i) in[i] = static_cast<float>(i);
  float *d_in, *d_out;
  CUDA(cudaMalloc((void**)&d_in, in.size() * sizeof(float)));
  CUDA(cudaMalloc((void**)&d_out, out.size() * sizeof(float)));
  CUDA(cudaMemcpy(d_in, in.data(), in.size() * sizeof(float), cudaMemcpyHostToDevice));
  const dim3 grid((columns + kTile - 1) / kTile, (rows + kTile - 1) / kTile), block(kTile, kRows);
  int wrong = 0;
  for (int kernel = 0; kernel < 3; ++kernel) {
    CUDA(cudaMemset(d_out, 0xff, out.size() * sizeof(float)));
    if (kernel == 0) naive<<<grid, block>>>(d_in, d_out, rows, columns);
    if (kernel == 1) tiled<float, 0><<<grid, block>>>(d_in, d_out, rows, columns, false);
    if (kernel == 2) tiled<float, 1><<<grid, block>>>(d_in, d_out, rows, columns, broken);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(out.data(), d_out, out.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (int y = 0; y < rows; ++y)
      for (int x = 0; x < columns; ++x) wrong += out[x * rows + y] != in[y * columns + x];
  }
  CUDA(cudaFree(d_in));
  CUDA(cudaFree(d_out));
  std::printf("transpose: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
