// tensor_map.hpp: how a tensor lies in global memory and which box of it one TMA instruction moves, as the driver's
// cuTensorMapEncodeTiled describes it: 16-bit elements, 128-byte swizzle, zeros outside. Plain types, for kernels too.
// Use: tensor_map(…) of sim/dialect/hopper.hpp makes one on the host; a kernel takes it by value.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace flash::simt {

constexpr unsigned kMostDimensions = 5;

struct alignas(64) TensorMap {
  const void* data;                        // of the element whose coordinates are 0
  std::uint64_t sizes[kMostDimensions];    // elements; x, y, z, w, v
  std::uint64_t strides[kMostDimensions];  // bytes from one element to the next; of x: its size
  std::uint32_t box[kMostDimensions];      // elements
  std::uint32_t rank;                      // 2 to 5; of the other dimensions sizes and boxes are 1
  std::uint32_t reserved[4];
};
static_assert(sizeof(TensorMap) == 128);

// Refuses (MachineError) what the driver refuses. `strides`: of y and so on, in bytes.
TensorMap make_tensor_map(const void* data, unsigned rank, const std::uint64_t* sizes, const std::uint64_t* strides,
                          const std::uint32_t* box);

// Where the 16 bytes at a shared address go: bits 4 to 6 of the address are XORed with bits 7 to 9.
constexpr std::uintptr_t swizzled(std::uintptr_t address) {
  return address ^ (address >> 3 & 0x70);
}

constexpr std::size_t kSwizzleBytes = 128;

// A box of a tensor and its tile in shared memory: rows of box[0] elements, swizzled, each at a multiple of 128 bytes
// (an H200 leaves the rest of shorter ones alone). Or a line: a multiple of 16 bytes that follow one another in global
// memory and, not swizzled, in shared memory.
class TensorBox {
 public:
  TensorBox(const TensorMap& map, const int* coordinates, std::byte* tile);
  TensorBox(const void* global, std::byte* shared, std::size_t bytes);  // a line
  bool is_line() const { return line_; }
  std::size_t bytes() const { return rows_ * row_bytes_; }
  std::byte* tile() const { return tile_; }
  std::byte* tile_end() const { return tile_ + rows_ * pitch(); }
  // Calls piece(begin, bytes) for each run of elements in global memory that lies inside the tensor.
  template <class Use>
  void for_each_run(const Use& use) const {
    if (line_) return use(line_, bytes());
    for (std::size_t row = 0; row < rows_; ++row)
      if (const Run run = run_of(row); run.bytes > 0) use(run.global, run.bytes);
  }
  // Does some of it lie outside the tensor?
  bool is_cut() const {
    std::size_t inside = 0;
    for_each_run([&](const std::byte*, std::size_t bytes) { inside += bytes; });
    return inside < bytes();
  }
  // The same for each 16 bytes of the tile: calls use(begin). Where `inside`: for those alone that hold such elements.
  template <class Use>
  void for_each_piece(bool inside, const Use& use) const {
    for (std::size_t row = 0; row < rows_; ++row) {
      const Run run = run_of(row);
      for (std::size_t at = 0; at < row_bytes_; at += 16)
        if (!inside || (run.bytes > 0 && at + 16 > run.skipped && at < run.skipped + run.bytes)) use(place(row, at));
    }
  }
  // And for each run of elements inside the tensor that lies in 16 bytes of the tile: use(tile, global, bytes).
  template <class Use>
  void for_each_pair(const Use& use) const {
    for (std::size_t row = 0; row < rows_; ++row) {
      const Run run = run_of(row);
      for (std::size_t at = run.skipped, end = at + run.bytes, next; at < end; at = next) {
        next = std::min(at / 16 * 16 + 16, end);
        use(place(row, at / 16 * 16) + at % 16, run.global + (at - run.skipped), next - at);
      }
    }
  }
  void load() const;                         // global memory to the tile
  void read(std::byte* bytes) const;         // the tile, row by row
  void store(const std::byte* bytes) const;  // those rows to global memory

 private:
  struct Run {
    std::byte* global;
    std::size_t skipped, bytes;  // of the row: before the tensor's first element, and of the tensor
  };
  Run run_of(std::size_t row) const;
  std::size_t pitch() const { return line_ ? row_bytes_ : kSwizzleBytes; }  // from row to row of the tile
  std::byte* place(std::size_t row, std::size_t at) const {
    if (line_) return tile_ + row * row_bytes_ + at;
    return reinterpret_cast<std::byte*>(swizzled(reinterpret_cast<std::uintptr_t>(tile_ + row * pitch() + at)));
  }
  TensorMap map_{};
  std::byte* line_ = nullptr;  // in global memory
  std::int64_t coordinates_[kMostDimensions] = {};
  std::byte* tile_;
  std::size_t rows_ = 1, row_bytes_ = 0;
};

}  // namespace flash::simt
