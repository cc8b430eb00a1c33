// tensor_map.cpp: what a tensor map may be, and which bytes a box of it is. See tensor_map.hpp.
// Limits: CUDA Driver API, cuTensorMapEncodeTiled.
#include "sim/core/tensor_map.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "sim/error.hpp"

namespace flash::simt {
namespace {

constexpr const char* kAxes[] = {"x", "y", "z", "w", "v"};
constexpr std::size_t kElementBytes = 2;

[[noreturn]] void refuse_map(const std::string& what, std::uint64_t value, const std::string& limit) {
  throw MachineError("tensor_map: " + what + " is " + std::to_string(value) + "; expected " + limit);
}

}  // namespace

TensorMap make_tensor_map(const void* data, unsigned rank, const std::uint64_t* sizes, const std::uint64_t* strides,
                          const std::uint32_t* box) {
  TensorMap map{data, {1, 1, 1, 1, 1}, {kElementBytes}, {1, 1, 1, 1, 1}, rank, {}};
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0)
    refuse_map("the address of the data", reinterpret_cast<std::uintptr_t>(data),
               "a multiple of 16; begin the tensor at an aligned element");
  for (unsigned axis = 0; axis < rank; ++axis) {
    const std::string of_axis = std::string(" of ") + kAxes[axis];
    if (sizes[axis] < 1 || sizes[axis] > std::uint64_t{1} << 32)
      refuse_map("the size" + of_axis, sizes[axis], "1 to 2^32; make no map of an empty tensor");
    if (box[axis] < 1 || box[axis] > 256)
      refuse_map("the box" + of_axis, box[axis], "1 to 256; move a larger tile by several copies");
    if (axis > 0 && (strides[axis - 1] % 16 != 0 || strides[axis - 1] >= std::uint64_t{1} << 40))
      refuse_map("the stride" + of_axis, strides[axis - 1], "a multiple of 16 bytes below 2^40; pad the rows");
    map.sizes[axis] = sizes[axis], map.box[axis] = box[axis];
    if (axis > 0) map.strides[axis] = strides[axis - 1];
  }
  if (const std::size_t bytes = box[0] * kElementBytes; bytes % 16 != 0 || bytes > kSwizzleBytes)
    refuse_map("the box of x", box[0],
               "a multiple of 8 elements up to 64, as the swizzle has 128 bytes; move wider tiles as several panels");
  return map;
}

TensorBox::TensorBox(const TensorMap& map, const int* coordinates, std::byte* tile)
    : map_(map), tile_(tile), row_bytes_(map.box[0] * kElementBytes) {
  for (unsigned axis = 0; axis < map.rank; ++axis) {
    coordinates_[axis] = coordinates[axis];
    if (axis > 0) rows_ *= map.box[axis];
  }
}

TensorBox::TensorBox(const void* global, std::byte* shared, std::size_t bytes)
    : line_(static_cast<std::byte*>(const_cast<void*>(global))), tile_(shared), rows_(bytes / 16), row_bytes_(16) {}

TensorBox::Run TensorBox::run_of(std::size_t row) const {
  if (line_) return {line_ + row * row_bytes_, 0, row_bytes_};
  auto base = reinterpret_cast<std::uintptr_t>(map_.data);  // of the row; a number, since it may go round
  for (unsigned axis = 1; axis < map_.rank; ++axis) {
    const std::int64_t at = coordinates_[axis] + static_cast<std::int64_t>(row % map_.box[axis]);
    row /= map_.box[axis];
    if (at < 0 || at >= static_cast<std::int64_t>(map_.sizes[axis])) return {};
    base += static_cast<std::uint64_t>(at) * map_.strides[axis];
  }
  const std::int64_t first = std::max<std::int64_t>(coordinates_[0], 0);
  const std::int64_t end =
      std::min(coordinates_[0] + static_cast<std::int64_t>(map_.box[0]), static_cast<std::int64_t>(map_.sizes[0]));
  if (first >= end) return {};
  return {reinterpret_cast<std::byte*>(base) + static_cast<std::size_t>(first) * kElementBytes,
          static_cast<std::size_t>(first - coordinates_[0]) * kElementBytes,
          static_cast<std::size_t>(end - first) * kElementBytes};
}

void TensorBox::load() const {
  for (std::size_t row = 0; row < rows_; ++row) {
    std::array<std::byte, kSwizzleBytes> bytes{};  // zeros outside
    if (const Run run = run_of(row); run.bytes > 0) std::memcpy(bytes.data() + run.skipped, run.global, run.bytes);
    for (std::size_t at = 0; at < row_bytes_; at += 16) std::memcpy(place(row, at), bytes.data() + at, 16);
  }
}

void TensorBox::read(std::byte* bytes) const {
  for (std::size_t row = 0; row < rows_; ++row)
    for (std::size_t at = 0; at < row_bytes_; at += 16) std::memcpy(bytes + row * row_bytes_ + at, place(row, at), 16);
}

void TensorBox::store(const std::byte* bytes) const {
  for (std::size_t row = 0; row < rows_; ++row)
    if (const Run run = run_of(row); run.bytes > 0)
      std::memcpy(run.global, bytes + row * row_bytes_ + run.skipped, run.bytes);
}

}  // namespace flash::simt
