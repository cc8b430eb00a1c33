// n_body.cu: the gravity of all bodies on each: every block walks over all bodies in tiles of shared memory, a position
// and a mass as one float4.
// ./flash check tests/simt/programs/n_body.cu; nvcc -arch=native n_body.cu. With an argument: threads without a body
// return before they have done their part of the tile.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                             \
  do {                                                                                         \
    const cudaError_t e = (call);                                                              \
    if (e != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

constexpr float kSoftening = 0.01f;

__device__ float3 operator+(float3 a, float3 b) {
  return make_float3(a.x + b.x, a.y + b.y, a.z + b.z);
}

__device__ __forceinline__ float3 pull(float4 on, float4 from) {
  const float dx = from.x - on.x, dy = from.y - on.y, dz = from.z - on.z;
  const float inverse = rsqrtf(fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, kSoftening))));
  const float strength = from.w * inverse * inverse * inverse;
  return make_float3(strength * dx, strength * dy, strength * dz);
}

__global__ void n_body(const float4* __restrict__ bodies, float3* __restrict__ forces, int n, bool broken) {
  extern __shared__ float4 tile[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (broken && i >= n) return;
  const float4 mine = i < n ? bodies[i] : make_float4(0, 0, 0, 0);
  float3 force = make_float3(0, 0, 0);
  for (int first = 0; first < n; first += blockDim.x) {
    const int j = first + threadIdx.x;
    tile[threadIdx.x] = j < n ? bodies[j] : make_float4(0, 0, 0, 0);
    __syncthreads();
    for (int k = 0; k < blockDim.x; ++k) {
      const float4 other = tile[k];  //@ uninitialised
      force = force + pull(mine, other);
    }
    __syncthreads();
  }
  if (i < n) forces[i] = force;
}

int main(int argc, char**) {
  const bool broken = argc > 1;
  const int n = 150, threads = 64;
  std::vector<float4> bodies(n);
  std::vector<float3> forces(n);
  for (int i = 0; i < n; ++i)
    bodies[i] = make_float4(i * 7 % 31 / 8.0f, i * 11 % 37 / 8.0f, i * 13 % 41 / 8.0f, 1 + i % 3);
  float4* d_bodies;
  float3* d_forces;
  CUDA(cudaMalloc(&d_bodies, n * sizeof(float4)));
  CUDA(cudaMalloc(&d_forces, n * sizeof(float3)));
  CUDA(cudaMemcpy(d_bodies, bodies.data(), n * sizeof(float4), cudaMemcpyHostToDevice));
  n_body<<<(n + threads - 1) / threads, threads, threads * sizeof(float4)>>>(d_bodies, d_forces, n, broken);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(forces.data(), d_forces, n * sizeof(float3), cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < n; ++i) {
    double x = 0, y = 0, z = 0;
    for (const float4& b : bodies) {
      const double dx = b.x - bodies[i].x, dy = b.y - bodies[i].y, dz = b.z - bodies[i].z;
      const double strength = b.w / std::pow(dx * dx + dy * dy + dz * dz + kSoftening, 1.5);
      x += strength * dx, y += strength * dy, z += strength * dz;
    }
    wrong += !(std::fabs(forces[i].x - x) + std::fabs(forces[i].y - y) + std::fabs(forces[i].z - z) <= 2e-3);
  }
  CUDA(cudaFree(d_bodies));
  CUDA(cudaFree(d_forces));
  std::printf("n_body: %s\n", wrong ? "WRONG" : "right");
  return wrong != 0;
}
