// variables.hpp: the __shared__ and __device__ variables of a program, as the compiler's tables name them
// (sim/compiler/assembly.cpp): which shared arrays a kernel uses, where they lie, how large they are.
// Use: SharedLayout layout(launch); the machine makes one per launch, DeviceMemory knows the device variables.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/simt.hpp"

namespace flash::simt {

// One line of the table flash_shared: this function uses that array, itself or through what it calls.
struct SharedUse {
  const void* function;
  const char* name;
  struct Place {
    std::int64_t word;  // as the linker wrote it
    operator std::ptrdiff_t() const;
  } at;                // from the thread pointer
  std::int64_t bytes;  // -1: an extern array, as large as the launch says
};

// One line of the table flash_device.
struct DeviceVariable {
  std::byte* begin;
  const char* name;
  std::size_t bytes;
  std::uint32_t element_bytes;  // 0: not known
  std::uint32_t constant;       // __constant__
};
std::vector<DeviceVariable> device_variables();  // by address
// cudaMemcpyToSymbol and cudaMemcpyFromSymbol. Refuses what is no device variable, and more bytes than it has.
void copy_to_variable(const void* variable, std::size_t offset, const void* from, std::size_t bytes);
void copy_from_variable(void* to, const void* variable, std::size_t offset, std::size_t bytes);

// The shared variables of one launch. They lie in a region of each worker's thread-local memory, with gaps.
class SharedLayout {
 public:
  struct Array {
    const char* name;
    std::size_t at, bytes;  // from the region's begin
  };

  explicit SharedLayout(const Launch& launch);

  bool empty() const { return arrays_.empty(); }
  const std::vector<Array>& arrays() const { return arrays_; }
  std::size_t static_bytes() const { return static_bytes_; }
  std::size_t extent() const { return pieces_.size() * 16; }
  // The region of the calling thread.
  std::byte* region() const;
  // Do these bytes of the region lie in one of the arrays?
  bool holds(std::size_t offset, std::size_t bytes) const {
    const std::uint8_t piece = pieces_[offset / 16];
    return piece == kWhole || (piece == kPart && in_array(offset, bytes));
  }
  // The array that an address means which is in none: the nearest, if it is near.
  const Array* nearest(std::ptrdiff_t offset) const;

 private:
  static constexpr std::uint8_t kNone = 0, kPart = 1, kWhole = 2;
  bool in_array(std::size_t offset, std::size_t bytes) const;

  std::vector<Array> arrays_;         // by address
  std::vector<std::uint8_t> pieces_;  // per 16 bytes of the region: how much of them belongs to an array
  std::ptrdiff_t begin_ = 0;          // of the region, from the thread pointer
  std::size_t static_bytes_ = 0;
};

}  // namespace flash::simt
