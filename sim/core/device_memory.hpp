// device_memory.hpp: the simulated GPU's memory: named arrays in one large reserved range of addresses.
// Each array is followed by at least 64 KiB that belong to nobody, so that an index a little too large is noticed;
// a table from address to array makes the look-up one load. The program's __device__ and __constant__ variables are
// arrays, too, wherever the linker has put them. Use: Machine::alloc and upload.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/padding.hpp"

namespace flash::simt {

struct DeviceArray {
  std::string name;
  std::byte* begin;
  std::size_t bytes, element_bytes;
  bool initialised;  // uploaded as a whole: no read of it is uninitialised
  bool live;
  Padding padding;                          // of an element
  bool variable = false, constant = false;  // a __device__ or __constant__ variable of the program; the latter
  bool managed = false;                     // the host may follow a pointer to it, too: cudaMallocManaged
  bool of_kernel = false;                   // allocated by a kernel
  bool untyped = false;                     // nobody has told what its elements are: cudaMalloc((void**)&p, bytes)

  // Which element an access is to; without a type, counted in units of the access.
  std::ptrdiff_t index(const std::byte* at, std::size_t access_bytes) const {
    const auto unit = static_cast<std::ptrdiff_t>(untyped ? access_bytes : element_bytes), offset = at - begin;
    return offset / unit - (offset % unit < 0 ? 1 : 0);
  }
};

class DeviceMemory {
 public:
  DeviceMemory();
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // A new array, filled with 0xff bytes (NaN in each floating-point type). Of a large one only the pages that are
  // written take memory. Refuses what goes beyond kTotal.
  std::byte* allocate(const std::string& name, std::size_t bytes, std::size_t element_bytes, Padding padding);
  // The same for a kernel, null if there is no room; several workers, one at a time, after make_room().
  std::byte* allocate_in_kernel(const std::string& name, std::size_t bytes);
  bool release_in_kernel(const void* begin);                        // false if no kernel allocated it
  void make_room() { arrays.reserve(arrays.size() + kOfKernels); }  // so that they stay where they are
  // Frees it. Its addresses are used again when all others have been.
  void release(const void* begin);
  // Fills the array that begins there with zeros, page by page as they are touched.
  void clear(const std::byte* begin);
  // Bytes of the arrays that live, the program's variables left out.
  std::size_t used() const { return used_; }

  bool contains(const void* address) const {
    return in_reserved(address) || (in_variables(address) < variable_bytes_ && variable_at(address) < variables_);
  }
  // The array whose bytes or red zone hold an address of this range; arrays.size() when none ever did.
  std::size_t owner(const void* address) const {
    if (!in_reserved(address)) return variable_at(address);
    return owner_[offset(address) / kGranule] - std::size_t{1};
  }
  // A number below kSpan for each address: where the checks keep what they know of it.
  std::size_t offset(const void* address) const {
    if (!in_reserved(address)) return kReserved + in_variables(address);
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - base_);
  }
  std::vector<DeviceArray> arrays;  // variables, then in order of allocation, the last freed ones included

  // The device has as much memory as an A100. There are more addresses, for red zones and for those not used again.
  static constexpr std::size_t kTotal = std::size_t{40} << 30, kReserved = std::size_t{48} << 30, kGranule = 64 * 1024;
  static constexpr std::size_t kSpan = kReserved + (std::size_t{2} << 30);  // variables lie in the program's 2 GiB

 private:
  std::size_t find_room(std::size_t granules) const;
  void end_life(DeviceArray& array);
  void forget_freed();
  static constexpr std::size_t kOfKernels = 1 << 14;  // allocations of one launch
  bool in_reserved(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - base_) < kReserved;
  }
  std::size_t in_variables(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - variables_begin_);
  }
  // The variable whose bytes or red zone hold an address; arrays.size() when none does.
  std::size_t variable_at(const void* address) const;

  std::byte* base_;
  std::uint32_t* owner_;  // per granule: index into arrays + 1, 0 = none
  std::size_t next_ = 1;  // granule behind the youngest array
  std::size_t live_ = 0;  // arrays
  std::size_t used_ = 0;
  std::size_t variables_ = 0;  // the first so many arrays are variables
  const std::byte* variables_begin_ = nullptr;
  std::size_t variable_bytes_ = 0;  // from the first one's red zone to the last one's
};

}  // namespace flash::simt
