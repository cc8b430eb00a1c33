// Phase 30: rows of tensors of any type, in and out of memory of our own: what the ring cuts out, sends and adds up.
// Nothing of it is the algorithm (ring.hpp).
// Use: Array part(Type::Float32, {B, H, rows, D});  copy(part.view(), part.type, mine.o, mine.out);
#pragma once
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "phases/30-ring/shares.hpp"
#include "phases/definition/scores.hpp"

namespace flash::phase30 {

// Rows first … first + count - 1 of all heads.
inline AnyView rows_of(AnyView view, Type type, std::int64_t first, std::int64_t count) {
  if (view.data) view.data = static_cast<std::byte*>(view.data) + first * view.stride[2] * bytes_of(type);
  view.shape[2] = count;
  return view;
}

// Where row s of head (b, h) begins.
inline std::byte* row_at(const AnyView& view, Type type, std::int64_t b, std::int64_t h, std::int64_t s) {
  return static_cast<std::byte*>(view.data) +
         (b * view.stride[0] + h * view.stride[1] + s * view.stride[2]) * bytes_of(type);
}

template <class F>
void for_each_row(const AnyView& view, const F& f) {
  for (std::int64_t b = 0; b < view.B(); ++b)
    for (std::int64_t h = 0; h < view.H(); ++h)
      for (std::int64_t s = 0; s < view.S(); ++s) f(b, h, s);
}

// `to` gets the numbers of `from`, rounded once; what that takes from O goes to `low` where it is given.
inline void copy(const AnyView& from, Type type, const AnyView& to, Type to_type, const AnyView& low = {}) {
  for_each_row(to, [&](std::int64_t b, std::int64_t h, std::int64_t s) {
    if (type == to_type && !low.given()) {  // bits, whatever they mean
      std::memcpy(row_at(to, type, b, h, s), row_at(from, type, b, h, s),
                  static_cast<std::size_t>(to.D() * bytes_of(type)));
      return;
    }
    float row[definition::kWidth], rounded[definition::kWidth];
    definition::load_row(row, from, type, b, h, s);
    definition::store_row(to, to_type, b, h, s, row);
    if (!low.given()) return;
    definition::load_row(rounded, to, to_type, b, h, s);
    for (std::int64_t d = 0; d < to.D(); ++d)
      view_as<std::int16_t>(low).row(b, h, s)[d] = definition::low_bits(row[d], rounded[d]);
  });
}

// A dense array.
struct Array {
  Type type = Type::Float32;
  std::array<std::int64_t, 4> shape{};
  std::vector<std::byte> bytes;  // zeros at first, and 16 more: never a null pointer

  Array() = default;
  Array(Type type, const std::array<std::int64_t, 4>& shape)
      : type(type),
        shape(shape),
        bytes(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3] * bytes_of(type)) + 16) {}
  AnyView view() { return any_of(dense_view(static_cast<void*>(bytes.data()), shape)); }
};

// Adds to O in fp32 what rounding took from it.
inline void restore(const AnyView& o, const AnyView& low) {
  for_each_row(o, [&](std::int64_t b, std::int64_t h, std::int64_t s) {
    float* row = view_as<float>(o).row(b, h, s);
    for (std::int64_t d = 0; d < o.D(); ++d)
      row[d] = definition::restored(row[d], view_as<std::int16_t>(low).row(b, h, s)[d]);
  });
}

// Adds what a call has left to rows of a sum in fp32.
inline void add(const AnyView& part, Type type, const AnyView& sum) {
  for_each_row(sum, [&](std::int64_t b, std::int64_t h, std::int64_t s) {
    float row[definition::kWidth];
    definition::load_row(row, part, type, b, h, s);
    for (std::int64_t d = 0; d < sum.D(); ++d) view_as<float>(sum).row(b, h, s)[d] += row[d];
  });
}

}  // namespace flash::phase30
