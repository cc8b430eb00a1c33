// symbols.hpp: copies between host and __device__ or __constant__ variables, each of which has one place.
// It has no namespace of its own: it is included where CUDA's words stand, after cudaError_t. flash::cuda::copy_symbol
// does the work: in a program of its own sim/cuda/api.cpp's, else launch.hpp's.
// Use: cudaMemcpyToSymbol(variable, &host, sizeof host);
#pragma once

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};

template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, std::size_t bytes, std::size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyHostToDevice,
                               flash::simt::Site site = flash::simt::Site::current()) {
  return flash::cuda::copy_symbol(const_cast<std::remove_const_t<T>*>(&symbol), from, nullptr, bytes, offset, site);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, std::size_t bytes, std::size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost,
                                 flash::simt::Site site = flash::simt::Site::current()) {
  return flash::cuda::copy_symbol(const_cast<T*>(&symbol), nullptr, to, bytes, offset, site);
}
