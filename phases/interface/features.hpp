// features.hpp: what a phase can do in one direction, known when it is compiled: demands, types, sizes, bytes.
// The compiler instantiates what is listed here; validate() and require() refuse the rest by name.
// Use: inline constexpr Features features{.kernel = true, .meets = {Demand::Causal}, .blocks = {{64, 32}}, …};
#pragma once
#include <cstdint>
#include <initializer_list>

#include "phases/interface/problem.hpp"

namespace flash {

// At most eight values in the order in which they were listed.
template <class T>
class Few {
 public:
  constexpr Few() = default;  // nvcc makes a list of one element of {}
  constexpr Few(std::initializer_list<T> values) {
    for (const T& value : values) add(value);
  }
  constexpr void add(const T& value) { values_[count_++] = value; }
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

// What a problem may ask of a phase; demands.hpp says when it is asked.
enum class Demand : std::uint8_t {
  Causal,
  Window,
  Lse,
  Kept,
  WideOutput,
  FewerHeads,
  OtherDv,
  Lengths,
  Softcap,
  Alibi,
  Bias,
  BoolMask,
  Documents,
  BlockMask,
  Sinks,
  Dropout,
  AnyStride,
  Atomic,
  SpareMultiprocessors,
  Ranks
};

// A set of demands.
class Demands {
 public:
  constexpr Demands() = default;  // none; nvcc makes a list of one element of {}
  constexpr Demands(std::initializer_list<Demand> list) {
    for (const Demand demand : list) add(demand);
  }
  constexpr void add(Demand demand) { bits_ |= 1u << static_cast<unsigned>(demand); }
  constexpr bool operator()(Demand demand) const { return bits_ >> static_cast<unsigned>(demand) & 1; }

 private:
  std::uint32_t bits_ = 0;
};

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

// HBM traffic, without any cache.
struct HbmBytes {
  std::uint64_t read = 0, written = 0;
  bool operator==(const HbmBytes&) const = default;
};

// Device memory that a pass needs beside its arrays, a piece for each purpose. `zeroed`: it is 0 before the first
// launch, and each launch leaves it so.
struct Piece {
  const char* name;    // in the ledger
  std::int64_t count;  // numbers of 4 bytes
  bool zeroed = false;
};
using Workspace = Few<Piece>;
inline Workspace no_workspace(const AnyProblem&) {
  return {};
}

struct Features {
  bool kernel = false;     // CUDA C++, for the simulator and the GPU; else C++ for the CPU with the two-level memory
  Demands meets = {};      // what a problem may ask of it
  bool records = true;     // can the player show what it does?
  bool tiles = true;       // does it go by tiles that the caller can choose (--block-q, --block-k)?
  bool same_bits = false;  // as the phase before, wherever both can run
  // The products are made by mma. It rounds towards zero, once per 16 columns (LSE's bar is wider by that), and it
  // multiplies by P = 0 the values that a row does not see but another row of its tile does: NaN there spreads.
  bool tensor_cores = false;
  Few<Type> types = {Type::Float32, Type::Float16, Type::BFloat16};
  // Of a kernel: the head dimensions and blocks that are instantiated. D is padded to the next of these; of the blocks
  // the first that fits is taken, unless the caller asks for one.
  Few<int> head_dims = {16, 32, 64, 128, 256};
  Few<Blocks> blocks = {};
  bool (*has)(int D, Blocks blocks) = all_blocks;  // is this one of them instantiated for this D?
  Capability capability = {7, 5};
  // What it moves, from the sizes alone; `blocks` are those that a kernel runs with. Null: no formula.
  HbmBytes (*hbm_bytes)(const AnyProblem& p, Blocks blocks) = nullptr;
  Workspace (*workspace)(const AnyProblem& p) = no_workspace;

  constexpr int largest_D() const { return head_dims[head_dims.size() - 1]; }
  constexpr int padded(std::int64_t D) const {
    for (const int d : head_dims)
      if (D <= d) return d;
    return largest_D();
  }
  // Does it copy by TMA, with what that wants of strides?
  constexpr bool tensor_maps() const { return !meets(Demand::AnyStride); }
};

}  // namespace flash
