// problem.hpp: what every phase takes, one attention problem: O = softmax(Q Kᵀ · scale) V or its gradients; options.
// Types alone: no refusal (validate.cpp), no Eigen, no xtensor, so that CPU phases and kernels share it.
// Conventions are those of docs/conventions.md: tensors [B, H, S, D], y = query row i, x = key column j.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "phases/interface/mask.hpp"
#include "sim/number.hpp"

namespace flash {

enum class Type : std::uint8_t { Float32, Float16, BFloat16, Int16, Int32, Byte };
template <class T>
inline constexpr Type type_of = Type::Float32;
template <>
inline constexpr Type type_of<half> = Type::Float16;
template <>
inline constexpr Type type_of<bfloat16> = Type::BFloat16;
template <>
inline constexpr Type type_of<std::int16_t> = Type::Int16;

inline const char* name(Type type) {
  static constexpr const char* names[] = {"float32", "float16", "bfloat16", "int16", "int32", "bool"};
  return names[static_cast<int>(type)];
}
constexpr std::int64_t bytes_of(Type type) {
  return type == Type::Float32 || type == Type::Int32 ? 4 : type == Type::Byte ? 1 : 2;
}

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
  bool given() const { return shape[3] > 0 || data; }  // what may be left out is left as it was made
  template <class U>
  requires(!std::is_same_v<U, T> && std::is_same_v<U, const T>) operator View<U>() const {
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

// A view of whatever type; AnyProblem knows which, and which arrays are only read.
using AnyView = View<void>;
template <class T>
AnyView any_of(const View<T>& view) {
  return {const_cast<std::remove_const_t<T>*>(view.data), view.shape, view.stride};
}
template <class T>
View<T> view_as(const AnyView& view) {
  return {static_cast<T*>(view.data), view.shape, view.stride};
}

// How dQ is summed over the keys. Deterministic: each row by its own block, same input, same bits. Atomic: in the pass
// that makes dK and dV, by atomic additions in whatever order they come; 5 matrix products in place of 7.
enum class BackwardMode : std::uint8_t { Deterministic, Atomic };

// Which numbers of P are left out of P V, by (b, h, i, j) and the seed alone; the others count as much more
// (docs/conventions.md).
struct Dropout {
  float p = 0;  // the share that is left out, in steps of 2^-16; 0: none
  std::uint64_t seed = 0;

  constexpr bool given() const { return threshold() > 0; }
  constexpr std::uint32_t threshold() const { return static_cast<std::uint32_t>(double{p} * 65536 + 0.5); }  // of 65536
  constexpr float factor() const { return 65536.0f / static_cast<float>(65536 - threshold()); }  // of what is left
};

// How a sequence lies on the ranks of a ring: in one piece each; in a piece from the front and one from the back; each
// n-th token. Ulysses is no ring: in one piece each, too, and the ranks change rows for heads.
enum class RingLayout : std::uint8_t { Contiguous, ZigZag, Striped, Ulysses };
inline const char* name(RingLayout layout) {
  static constexpr const char* names[] = {"contiguous", "zig-zag", "striped", "ulysses"};
  return names[static_cast<int>(layout)];
}
struct RingOptions {
  int ranks = 0;  // 0: the phase chooses
  RingLayout layout = RingLayout::Striped;
};

struct Options {
  std::optional<float> scale = {};  // default 1/sqrt(D); any finite number
  Mask mask = {};
  float softcap = 0;  // S becomes softcap · tanh(S / softcap); 0: it stays
  Dropout dropout = {};
  std::int64_t block_q = 0;              // rows of a Q tile (Br); 0: the phase chooses
  std::int64_t block_k = 0;              // rows of a K/V tile (Bc); 0: the phase chooses
  std::int64_t sram_bytes = 192 * 1024;  // on-chip memory of the two-level model (an A100's L1)
  int threads = 1;                       // CPU phases that run in parallel; 0: all cores
  BackwardMode mode = BackwardMode::Deterministic;
  RingOptions ring = {};          // over how many ranks the sequence is spread
  int spare_multiprocessors = 0;  // that blocks which stay leave to others
  bool all_keys = true;  // of the rows; false: they see others in other calls, and a row of dS sums to anything
};

// Hk: heads of K and V; Dv: columns of V and O; N: sequences.
struct Shape {
  std::int64_t B, H, Hk, Sq, Sk, D, Dv, N = B;
};

// Rows `first_row` … and keys `first_key` … of batch entry b that attend to each other and to nothing else.
struct Sequence {
  std::int64_t b, first_row, rows, first_key, keys;
};
// A block mask has a number for each block of so many rows and keys.
inline constexpr std::int64_t mask_block = 64;
enum class BlockKind : std::uint8_t { None, Ask, Whole };  // seen by no row; as mask and documents say; whole

// What the training forward pass keeps for the backward pass, beside O and LSE: with it the backward pass works with
// the P and the δ that the forward pass had. What is null is not kept; docs/backward.md says what that costs.
struct Kept {
  View<std::int16_t> o_lo;  // [B, H, Sq, D], what rounding took from O; fp16 and bf16 only
  float* m = nullptr;       // [B, H, Sq] dense, the row's largest logit, in base 2: max_j S_ij · log2 e
  float* l = nullptr;       // [B, H, Sq] dense, Σ_j exp2(S_ij · log2 e - m_i); m and l go together
};

enum class Direction : std::uint8_t { Forward, Backward };

template <class T>
struct Problem;
template <class T>
struct GradientProblem;

// A problem of any type and either direction, as passes take it. Arrays that it does not have, by its direction or
// because nobody wants them, are not given(). Formulas look at shapes and options alone: `data` may be null for them.
struct AnyProblem {
  Direction direction = Direction::Forward;
  Type type = Type::Float32;  // of Q, K, V, dO, dQ, dK, dV
  Type out = Type::Float32;   // of O: `type`, or fp32
  AnyView q, k, v;            // [B, H, Sq, D], [B, Hk, Sk, D], [B, Hk, Sk, Dv]
  AnyView o, o_lo;            // [B, H, Sq, Dv]
  AnyView lse, m, l;          // [B, H, Sq, 1], dense
  AnyView dout, dlse;         // as O, as LSE
  AnyView dq, dk, dv;         // as Q, K, V
  // What else may bear on a score; docs/conventions.md has the formulas. Where an axis is 1, all share what is there.
  AnyView slopes;                  // [B|1, H, 1, 1], fp32: ALiBi
  AnyView bias, dbias;             // [B|1, H|1, Sq|1, Sk], of `type`, and fp32: is added to S
  AnyView allowed;                 // likewise, bytes: 0 hides the key
  AnyView document_q, document_k;  // [B|1, 1, Sq, 1] and [B|1, 1, Sk, 1], int32: a row sees the keys of its document
  AnyView blocks;                  // [B|1, H|1, ⌈Sq/64⌉, ⌈Sk/64⌉], BlockKind
  AnyView sinks, dsinks;           // [1, H, 1, 1], fp32: a logit that only the denominator sees
  AnyView first_rows, first_keys;  // [1, 1, N + 1, 1], int32: sequences packed one behind the other (cu_seqlens)
  AnyView rows_of, keys_of;        // [1, 1, N, 1], int32: how long each is (seqused)
  Options options;

  AnyProblem() = default;
  template <class T>
  AnyProblem(const Problem<T>& p);
  template <class T>
  AnyProblem(const GradientProblem<T>& p);
  // Without data, dense: what a formula is asked about.
  AnyProblem(const Shape& shape, Type type, const Options& options, bool with_lse = false);

  Shape shape() const { return {q.B(), q.H(), k.H(), q.S(), k.S(), q.D(), v.D(), sequences()}; }
  std::int64_t B() const { return q.B(); }
  std::int64_t H() const { return q.H(); }
  std::int64_t Sq() const { return q.S(); }
  std::int64_t Sk() const { return k.S(); }
  std::int64_t D() const { return q.D(); }
  std::int64_t Dv() const { return v.D(); }
  std::int64_t widest() const { return std::max(D(), Dv()); }  // what a kernel that has one size for both is made for
  std::int64_t row_bytes() const { return D() * bytes_of(type); }     // of Q, K
  std::int64_t v_row_bytes() const { return Dv() * bytes_of(type); }  // of V
  float scale() const {
    return options.scale ? *options.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(D())));
  }
  KeyRange<std::int64_t> visible(std::int64_t i) const { return options.mask.visible(i, Sq(), Sk()); }
  // The keys that some of the rows first … last see.
  KeyRange<std::int64_t> seen(std::int64_t first, std::int64_t last) const {
    return options.mask.band(Sq(), Sk()).seen(first, last);
  }
  bool backward() const { return direction == Direction::Backward; }
  // Sequences are batch entries, or pieces of the only one.
  bool packed() const { return first_rows.given(); }
  std::int64_t sequences() const { return packed() ? first_rows.S() - 1 : B(); }
  // Reads the lengths, which must be the host's.
  Sequence sequence(std::int64_t n) const;
};

// A forward problem as a caller fills it and CPU phases read it.
template <class T>
struct Problem {
  View<const T> q;       // [B, H, S_q, D]
  View<const T> k, v;    // [B, H, S_k, D]
  View<T> o;             // [B, H, S_q, D]
  float* lse = nullptr;  // [B, H, S_q] dense, natural log; nullptr: not wanted
  Options options = {};
  Kept kept = {};  // for a forward pass for training

  std::int64_t B() const { return q.B(); }
  std::int64_t H() const { return q.H(); }
  std::int64_t Sq() const { return q.S(); }
  std::int64_t Sk() const { return k.S(); }
  std::int64_t D() const { return q.D(); }
  float scale() const { return AnyProblem(*this).scale(); }
  KeyRange<std::int64_t> visible(std::int64_t i) const { return options.mask.visible(i, Sq(), Sk()); }
};

// A backward problem: the forward's inputs and results, dO, and room for the gradients.
template <class T>
struct GradientProblem {
  View<const T> q;              // [B, H, Sq, D]
  View<const T> k, v;           // [B, H, Sk, D]
  View<const T> o;              // [B, H, Sq, D], as the forward pass wrote it
  Kept kept;                    // as the forward pass filled it; only read
  View<const T> dout;           // [B, H, Sq, D], dO: the gradient of the loss with respect to O
  View<T> dq;                   // [B, H, Sq, D]
  View<T> dk, dv;               // [B, H, Sk, D]
  const float* lse = nullptr;   // [B, H, Sq] dense, natural log; not read where m and l were kept
  const float* dlse = nullptr;  // [B, H, Sq] dense, the gradient with respect to LSE; nullptr: zero
  Options options;

  std::int64_t B() const { return q.B(); }
  std::int64_t H() const { return q.H(); }
  std::int64_t Sq() const { return q.S(); }
  std::int64_t Sk() const { return k.S(); }
  std::int64_t D() const { return q.D(); }
  float scale() const { return AnyProblem(*this).scale(); }
  KeyRange<std::int64_t> visible(std::int64_t i) const { return options.mask.visible(i, Sq(), Sk()); }
};

// One number for each row of Q, or nothing.
inline AnyView row_view(const float* data, const AnyView& q) {
  if (!data) return {};
  return any_of(dense_view(data, {q.B(), q.H(), q.S(), 1}));
}

template <class T>
AnyProblem::AnyProblem(const Problem<T>& p)
    : type(type_of<T>),
      out(type_of<T>),
      q(any_of(p.q)),
      k(any_of(p.k)),
      v(any_of(p.v)),
      o(any_of(p.o)),
      o_lo(any_of(p.kept.o_lo)),
      lse(row_view(p.lse, q)),
      m(row_view(p.kept.m, q)),
      l(row_view(p.kept.l, q)),
      options(p.options) {}

template <class T>
AnyProblem::AnyProblem(const GradientProblem<T>& p)
    : direction(Direction::Backward),
      type(type_of<T>),
      out(type_of<T>),
      q(any_of(p.q)),
      k(any_of(p.k)),
      v(any_of(p.v)),
      o(any_of(p.o)),
      o_lo(any_of(p.kept.o_lo)),
      lse(row_view(p.lse, q)),
      m(row_view(p.kept.m, q)),
      l(row_view(p.kept.l, q)),
      dout(any_of(p.dout)),
      dlse(row_view(p.dlse, q)),
      dq(any_of(p.dq)),
      dk(any_of(p.dk)),
      dv(any_of(p.dv)),
      options(p.options) {}

inline Sequence AnyProblem::sequence(std::int64_t n) const {
  const auto number = [](const AnyView& of, std::int64_t i) { return static_cast<const std::int32_t*>(of.data)[i]; };
  Sequence s{packed() ? 0 : n, 0, Sq(), 0, Sk()};
  if (packed()) {
    s.first_row = number(first_rows, n), s.rows = number(first_rows, n + 1) - s.first_row;
    s.first_key = number(first_keys, n), s.keys = number(first_keys, n + 1) - s.first_key;
  }
  if (rows_of.given()) s.rows = number(rows_of, n);
  if (keys_of.given()) s.keys = number(keys_of, n);
  return s;
}

inline AnyProblem::AnyProblem(const Shape& s, Type type, const Options& options, bool with_lse)
    : type(type), out(type), options(options) {
  const auto dense = [](std::int64_t B, std::int64_t H, std::int64_t S, std::int64_t D) {
    return AnyView{nullptr, {B, H, S, D}, dense_strides({B, H, S, D})};
  };
  q = dense(s.B, s.H, s.Sq, s.D), k = dense(s.B, s.Hk, s.Sk, s.D), v = dense(s.B, s.Hk, s.Sk, s.Dv);
  o = dense(s.B, s.H, s.Sq, s.Dv);
  if (with_lse) lse = dense(s.B, s.H, s.Sq, 1);
}

// The typed form of a forward problem whose type is T.
template <class T>
Problem<T> problem_as(const AnyProblem& p) {
  return {view_as<const T>(p.q),
          view_as<const T>(p.k),
          view_as<const T>(p.v),
          view_as<T>(p.o),
          static_cast<float*>(p.lse.data),
          p.options,
          {view_as<std::int16_t>(p.o_lo), static_cast<float*>(p.m.data), static_cast<float*>(p.l.data)}};
}

}  // namespace flash
