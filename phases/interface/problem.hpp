// problem.hpp: what every phase takes, one attention problem: O = softmax(Q Kᵀ · scale) V, and its options.
// Plain pointers, sizes and 64-bit strides: no Eigen, no xtensor, so that CPU phases and kernels share it.
// Conventions are those of docs/conventions.md: tensors [B, H, S, D], y = query row i, x = key column j.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "phases/interface/features.hpp"
#include "sim/error.hpp"
#include "sim/number.hpp"

namespace flash {

// A strided [B, H, S, D] tensor that somebody else owns. Strides count elements; the last one must be 1.
template <class T>
struct View {
  T* data = nullptr;
  std::array<std::int64_t, 4> shape{};   // [B, H, S, D]
  std::array<std::int64_t, 4> stride{};  // elements

  std::int64_t B() const { return shape[0]; }
  std::int64_t H() const { return shape[1]; }
  std::int64_t S() const { return shape[2]; }
  std::int64_t D() const { return shape[3]; }
  T* head(std::int64_t b, std::int64_t h) const { return data + b * stride[0] + h * stride[1]; }       // -> [S, D]
  T* row(std::int64_t b, std::int64_t h, std::int64_t s) const { return head(b, h) + s * stride[2]; }  // -> [D]
  std::int64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  // Elements between the first and one past the last that the view can touch.
  std::int64_t span() const {
    std::int64_t last = 0;
    for (int i = 0; i < 4; ++i) last += (shape[i] - 1) * stride[i];
    return elements() == 0 ? 0 : last + 1;
  }
  template <class U>
  requires(!std::is_same_v<U, T> && (std::is_same_v<U, const T> || std::is_same_v<U, const void>)) operator View<U>()
      const {
    return {data, shape, stride};
  }
};

// Row-major strides for a shape.
inline std::array<std::int64_t, 4> dense_strides(const std::array<std::int64_t, 4>& shape) {
  return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
}

template <class T>
View<T> dense_view(T* data, const std::array<std::int64_t, 4>& shape) {
  return {data, shape, dense_strides(shape)};
}

// Which keys j a query row i may see. Without a mask: all.
enum class Causal {
  None,
  TopLeft,      // j <= i                 (PyTorch SDPA's is_causal, Triton's tutorial)
  BottomRight,  // j <= i + S_k - S_q     (flash-attn since 2.1)
};

struct Options {
  std::optional<float> scale = {};  // default 1/sqrt(D); any finite number
  Causal causal = Causal::None;
  std::int64_t block_q = 0;              // rows of a Q tile (Br); 0: the phase chooses
  std::int64_t block_k = 0;              // rows of a K/V tile (Bc); 0: the phase chooses
  std::int64_t sram_bytes = 192 * 1024;  // on-chip memory of the two-level model (an A100's L1)
  int threads = 1;                       // CPU phases that run in parallel; 0: all cores
};

// Number of keys that query row i sees: keys 0 … visible(i) - 1.
inline std::int64_t visible(Causal causal, std::int64_t i, std::int64_t Sq, std::int64_t Sk) {
  if (causal == Causal::None) return Sk;
  const std::int64_t last = causal == Causal::TopLeft ? i : i + Sk - Sq;
  return std::clamp<std::int64_t>(last + 1, 0, Sk);
}

// A problem without its data: what formulas need.
struct Sizes {
  std::int64_t B, H, Sq, Sk, D;
  std::int64_t element_bytes;
  bool lse;  // is it wanted?
  Options options;

  std::int64_t visible(std::int64_t i) const { return flash::visible(options.causal, i, Sq, Sk); }
};

template <class T>
struct Problem {
  View<const T> q;       // [B, H, S_q, D]
  View<const T> k, v;    // [B, H, S_k, D]
  View<T> o;             // [B, H, S_q, D]
  float* lse = nullptr;  // [B, H, S_q] dense, natural log; nullptr: not wanted
  Options options;

  std::int64_t B() const { return q.B(); }
  std::int64_t H() const { return q.H(); }
  std::int64_t Sq() const { return q.S(); }
  std::int64_t Sk() const { return k.S(); }
  std::int64_t D() const { return q.D(); }
  float scale() const {
    return options.scale ? *options.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(D())));
  }
  std::int64_t visible(std::int64_t i) const { return flash::visible(options.causal, i, Sq(), Sk()); }
  Sizes sizes() const { return {B(), H(), Sq(), Sk(), D(), sizeof(T), lse != nullptr, options}; }
};

inline constexpr std::int64_t max_head_dim = 256;
inline constexpr std::int64_t max_block = 1 << 20;  // rows of a tile; keeps the product of two tile sizes far from 2^63

inline std::string shape_text(const std::array<std::int64_t, 4>& s) {
  std::string text = "[";
  for (int i = 0; i < 4; ++i) text += (i ? ", " : "") + std::to_string(s[i]);
  return text + "]";
}

inline constexpr const char* axis_names[] = {"batch size B", "number of heads H", "sequence length S",
                                             "head dimension D"};

// A tensor of whatever type, for what looks at sizes and strides alone: compiled once, not for each type.
using AnyView = View<const void>;

// Checks one tensor: sizes, last stride, extent, pointer.
inline void check_view(const char* name, const AnyView& view) {
  std::int64_t elements = 1;
  for (int i = 0; i < 4; ++i) {
    if (view.shape[i] < 0)
      refuse(std::string(name) + "'s " + axis_names[i], view.shape[i], "0 or more", "correct the shape");
    if (__builtin_mul_overflow(elements, std::max<std::int64_t>(view.shape[i], 1), &elements))
      refuse(std::string(name) + "'s number of elements " + shape_text(view.shape), "over 2^63", "less than 2^63",
             "split the batch");
  }
  if (view.shape[3] > 1 && view.stride[3] != 1)
    refuse(std::string(name) + "'s last stride", view.stride[3], "1 (D contiguous)", "pass a contiguous copy");
  std::int64_t reach = 0;
  for (int i = 0; i < 4; ++i) {
    std::int64_t step = 0;
    if (view.stride[i] < 0 && view.shape[i] > 1)
      refuse(std::string(name) + "'s stride of " + axis_names[i], view.stride[i], "0 or more", "pass a copy");
    if (__builtin_mul_overflow(std::max<std::int64_t>(view.shape[i] - 1, 0), view.stride[i], &step) ||
        __builtin_add_overflow(reach, step, &reach) || reach > INT64_MAX / 8)
      refuse(std::string(name) + "'s extent in memory", "over 2^63 bytes", "less than 2^63 bytes",
             "correct shape and strides");
  }
  if (!view.data && view.elements() > 0) refuse(std::string(name) + "'s data", "null", "a pointer", "allocate it");
}

// Checks that a tensor's axis i is as long as another's.
inline void check_size(const char* name, const AnyView& view, int i, const char* other, std::int64_t want) {
  if (view.shape[i] != want)
    refuse(std::string(name) + "'s " + axis_names[i], view.shape[i], std::to_string(want) + " as in " + other,
           "make the shapes agree");
}

// Checks that a tensor that is written does not overlap itself: two rows on one address would overwrite each other.
// From the smallest stride up, each must step over all that the smaller ones reach.
inline void check_written(const char* name, const AnyView& view) {
  if (view.elements() == 0) return;
  std::array<int, 4> axes = {3, 2, 1, 0};
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return view.stride[a] < view.stride[b]; });
  std::int64_t reach = 0;  // largest offset so far
  for (const int i : axes) {
    if (view.shape[i] == 1) continue;
    if (view.stride[i] <= reach)
      refuse(std::string(name) + "'s stride of " + axis_names[i], view.stride[i],
             "at least " + std::to_string(reach + 1), "give each row its own memory");
    reach += (view.shape[i] - 1) * view.stride[i];
  }
}

// What keeps TMA from copying these tensors: the first thing that is not as it wants it, or nothing.
struct TmaObstacle {
  std::string what, expected;
  std::int64_t value;
};
inline std::optional<TmaObstacle> tma_obstacle(const AnyView& q, const AnyView& k, const AnyView& v, const AnyView& o,
                                               Type type) {
  const std::int64_t element = type == Type::Float32 ? 4 : 2, most_rows = std::int64_t{1} << 30;
  for (const auto& [name, view] : {std::pair<std::string, const AnyView*>{"Q", &q}, {"K", &k}, {"V", &v}, {"O", &o}}) {
    if (view->elements() == 0) continue;
    if (view->S() > most_rows) return TmaObstacle{name + "'s " + axis_names[2], "at most 2^30", view->S()};
    const auto odd = [&](const std::string& what, std::int64_t bytes) {
      return TmaObstacle{name + what, "a multiple of 16", bytes};
    };
    if (view->D() * element % 16) return odd("'s bytes in a row", view->D() * element);
    for (int i = 0; i < 3; ++i)
      if (view->shape[i] > 1 && view->stride[i] * element % 16)
        return odd(std::string("'s stride of ") + axis_names[i] + " in bytes", view->stride[i] * element);
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view->data));
    if (address % 16) return odd("'s address", address);
  }
  return {};
}

// Checks sizes, strides, scale and features; throws Error with one line. Reads no element, writes nothing.
inline void validate(const AnyView& q, const AnyView& k, const AnyView& v, const AnyView& o, Type type, bool lse,
                     const Options& options, const Features& can) {
  check_view("Q", q);
  check_view("K", k);
  check_view("V", v);
  check_view("O", o);
  if (!can.types.contains(type)) {
    std::string types;
    for (const Type t : can.types) types += (types.empty() ? "" : " or ") + std::string(name(t));
    refuse("type", name(type), types + " in phase " + can.phase, "convert, or choose another phase: ./flash help");
  }
  const std::int64_t largest = std::min<std::int64_t>(max_head_dim, can.largest_D());
  if (q.D() < 1 || q.D() > largest)
    refuse("Q's head dimension D", q.D(), "1 to " + std::to_string(largest), "split the head");
  for (int i : {0, 1, 3}) {
    check_size("K", k, i, "Q", q.shape[i]);
    check_size("V", v, i, "Q", q.shape[i]);
  }
  check_size("V", v, 2, "K", k.shape[2]);
  for (int i : {0, 1, 2, 3}) check_size("O", o, i, "Q", q.shape[i]);
  check_written("O", o);
  if (options.scale && !std::isfinite(*options.scale))
    refuse("scale", *options.scale, "a finite number", "omit it for 1/sqrt(D)");
  if (options.block_q < 0 || options.block_q > max_block)
    refuse("block_q", options.block_q, "0 (automatic) to " + std::to_string(max_block), "omit --block-q");
  if (options.block_k < 0 || options.block_k > max_block)
    refuse("block_k", options.block_k, "0 (automatic) to " + std::to_string(max_block), "omit --block-k");
  if (options.sram_bytes < 1) refuse("sram", options.sram_bytes, "at least 1 byte", "pass --sram 196608");
  if (options.threads < 0) refuse("threads", options.threads, "0 (all cores) or more", "omit --threads");
  if (can.tensor_maps)
    if (const auto obstacle = tma_obstacle(q, k, v, o, type))
      refuse(obstacle->what, obstacle->value, obstacle->expected + " for TMA in phase " + can.phase,
             "choose a phase that copies without it: ./flash help");
  if (options.causal != Causal::None && !can.causal)
    refuse("causal", options.causal == Causal::TopLeft ? "top-left" : "bottom-right",
           std::string("none in phase ") + can.phase, "choose a phase that has it: ./flash help");
  if (lse && !can.lse)
    refuse("lse", "wanted", std::string("no LSE from phase ") + can.phase, "choose a phase that has it: ./flash help");
}

template <class T>
void validate(const Problem<T>& p, const Features& can) {
  validate(p.q, p.k, p.v, p.o, type_of<T>, p.lse != nullptr, p.options, can);
}

}  // namespace flash
