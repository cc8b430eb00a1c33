// features.hpp: what a phase says of itself, known when it is compiled: name, change, types, sizes, masks, machines.
// The compiler instantiates what is listed here, validate() and require() refuse the rest by name.
// Use: inline constexpr Features features{.phase = "07-causal", .change = "…", .kernel = true, .causal = true};
#pragma once
#include <cstdint>
#include <initializer_list>

#include "sim/number.hpp"

namespace flash {

// At most eight values in the order in which they were listed.
template <class T>
class Few {
 public:
  constexpr Few(std::initializer_list<T> values) {
    for (const T& value : values) values_[count_++] = value;
  }
  constexpr const T* begin() const { return values_; }
  constexpr const T* end() const { return values_ + count_; }
  constexpr int size() const { return count_; }
  constexpr const T& operator[](int i) const { return values_[i]; }
  constexpr bool contains(const T& wanted) const {
    for (const T& value : *this)
      if (value == wanted) return true;
    return false;
  }

 private:
  T values_[8]{};
  int count_ = 0;
};

enum class Type { Float32, Float16, BFloat16 };
template <class T>
inline constexpr Type type_of = Type::Float32;
template <>
inline constexpr Type type_of<half> = Type::Float16;
template <>
inline constexpr Type type_of<bfloat16> = Type::BFloat16;

inline const char* name(Type type) {
  static constexpr const char* names[] = {"float32", "float16", "bfloat16"};
  return names[static_cast<int>(type)];
}

// Rows of a Q tile, rows of a K/V tile.
struct Blocks {
  std::int64_t Br, Bc;
  constexpr bool operator==(const Blocks&) const = default;
};

constexpr bool all_blocks(int, Blocks) {
  return true;
}

// The GPUs that a kernel runs on: from this compute capability on, or this one alone (as code for sm_90a).
struct Capability {
  int major, minor;
  bool exactly = false;
};

struct Features {
  const char* phase;    // "07-causal"
  const char* change;   // what is new since the phase before, one sentence
  bool kernel = false;  // CUDA C++, for the simulator and the GPU; else C++ for the CPU with the two-level memory
  bool causal = false, lse = false, backward = false;
  bool tiles = true;       // does it go by tiles that the caller can choose (--block-q, --block-k)?
  bool same_bits = false;  // as the phase before, wherever both can run
  // The products are made by mma. It rounds towards zero, once per 16 columns (LSE's bar is wider by that), and it
  // multiplies by P = 0 the values that a row does not see but another row of its tile does: NaN there spreads.
  bool tensor_cores = false;
  // Whole tiles are copied by TMA, which wants bases, strides and rows in multiples of 16 bytes, and at most 2^30 rows.
  bool tensor_maps = false;
  Few<Type> types = {Type::Float32, Type::Float16, Type::BFloat16};
  // Of a kernel: the head dimensions and blocks that are instantiated. D is padded to the next of these; of the blocks
  // the first that fits is taken, unless the caller asks for one.
  Few<int> head_dims = {16, 32, 64, 128, 256};
  Few<Blocks> blocks = {};
  bool (*has)(int D, Blocks blocks) = all_blocks;  // is this one of them instantiated for this D?
  Capability capability = {7, 5};

  constexpr int largest_D() const { return head_dims[head_dims.size() - 1]; }
  constexpr int padded(std::int64_t D) const {
    for (const int d : head_dims)
      if (D <= d) return d;
    return largest_D();
  }
};

}  // namespace flash
