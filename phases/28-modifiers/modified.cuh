// modified.cuh: the variant whose scores are changed: a modifier stands between S = scale · Q Kᵀ and the mask, and its
// derivative between dP and dS. A modifier is a struct that a reader can write; those given are in modifiers.cuh.
// Use: phase19::Attention::launch<T, D, Br, Bc, Modified<Grouped<int>, Softcap>>(with_scores_of<Softcap>(p));
#pragma once
#include "phases/10-tensor-cores/rows.cuh"
#include "phases/13-instruction-diet/training.cuh"  // unpack
#include "phases/28-modifiers/quick.cuh"
#include "phases/interface/variant.cuh"

namespace flash::inline FLASH_MACHINE {

// #region places: which query and which key an element of a product is of
// A lane has two rows of a product, 8 apart (phases/10-tensor-cores/rows.cuh). A row of S is a query; kTransposed: of
// Sᵀ, as backward kernels make it, a key.
template <bool kTransposed>
constexpr int query_of(int element) {
  return kTransposed ? column_of(element) : 8 * row_of(element);
}
template <bool kTransposed>
constexpr int key_of(int element) {
  return kTransposed ? 8 * row_of(element) : column_of(element);
}
// #endregion

// #region modified
// What a modifier must have: of(p), and float operator()(float s, int b, int h, int i, int j), which gets scale · q·k
// of query i and key j of head h of batch entry b. What it may have:
//   float derivative(float s, int b, int h, int i, int j)   else that is 1
//   bool bends()                                            is the derivative other than 1?
//   float sink(h)                                           a logit that only the denominator sees; -inf: none
// And where it must be fast:
//   apply<kTransposed>(s, note, b, h, i, j)                 all of a lane's elements at once; it need not be a function
//                                                           of one score then. i, j: those of the first
//   float unit(p)                                           apply() takes products q·k as they are, and what it makes
//                                                           of them is to be multiplied by that
//   enter(b, h)                                             comes first, once a Q tile: what a head's scores share
//   lean(s, offset, i, j)                                   a softmax of its own (quick.cuh)
//   fetch(b, h, i, j), add(s), fetch_next(b, h, i, j), take(ds, b, h, i, j)   in place of apply(): loads begin tiles
//                                                           ahead, or before S is waited for; and dSᵀ is handed out
//                                                           (bias.cuh)
//   shared_bytes                                            that much memory of a block, behind the kernel's own
//   waits                                                   false: it has registers enough while PV goes on
struct NoNote {
  __device__ void operator()(int, float, float) const {}
};
template <class M>
concept ChangesAll = requires(const M& m, float (&s)[4]) {
  m.template apply<false>(s, NoNote(), 0, 0, 0, 0);
};
template <class M>
concept HasDerivative = requires(const M& m) {
  m.derivative(0.0f, 0, 0, 0, 0);
};
template <class M, class T>
concept HasUnit = requires(const DeviceProblem<T>& p) {
  M::unit(p);
};
template <class M>
concept Enters = requires(M& m) {
  m.enter(0, 0);
};
template <class M>
concept SaysBends = requires(const M& m) {
  m.bends();
};
template <class M>
concept HasSink = requires(const M& m) {
  m.sink(0);
};
template <class M>
concept Fetches = requires(M& m, float (&s)[64]) {
  m.template fetch<64>(0, 0, 0, 0), m.add(s);
};
template <class M>
constexpr bool must_wait() {
  if constexpr (requires { M::waits; })
    return M::waits;
  else
    return !HasLean<M>;
}
template <class M>
constexpr std::size_t shared_bytes_of() {
  if constexpr (requires { M::shared_bytes; })
    return M::shared_bytes;
  else
    return 0;
}
template <class Base, class Modifier>
struct Modified : Base {
  static constexpr bool modifies = true;
  static constexpr std::size_t shared_bytes = shared_bytes_of<Modifier>();
  static constexpr bool waits = must_wait<Modifier>();  // must PV be there before scores change? It has registers then
  Modifier modifier;
  float scale;

  template <class T>
  static Modified of(const DeviceProblem<T>& p) {
    return {Base::of(p), Modifier::of(p), p.scale};
  }

  // S becomes what the softmax is of. `note` gets the derivatives, two neighbours at a time. m: the head's modifier.
  template <bool kTransposed = false, int N, class Note>
  __device__ __forceinline__ void change(const Modifier& m, float (&s)[N], const Note& note, int b, int h, int i,
                                         int j) const {
    if constexpr (Fetches<Modifier>) {
      m.add(s);
    } else if constexpr (ChangesAll<Modifier>) {
      m.template apply<kTransposed>(s, note, b, h, i, j);
    } else {
#pragma unroll
      for (int e = 0; e < N; e += 2) {
        const int i0 = i + query_of<kTransposed>(e), i1 = i + query_of<kTransposed>(e + 1);
        const int j0 = j + key_of<kTransposed>(e), j1 = j + key_of<kTransposed>(e + 1);
        const float left = s[e] * scale, right = s[e + 1] * scale;
        if constexpr (HasDerivative<Modifier>)
          note(e, m.derivative(left, b, h, i0, j0), m.derivative(right, b, h, i1, j1));
        s[e] = m(left, b, h, i0, j0), s[e + 1] = m(right, b, h, i1, j1);
      }
    }
  }
  __device__ __forceinline__ Modifier of_head(int b, int h) const {
    Modifier m = modifier;
    if constexpr (Enters<Modifier>) m.enter(b, h);
    return m;
  }
  // Does dS differ from the gradient of what the softmax is of?
  __device__ __forceinline__ bool bends() const {
    if constexpr (SaysBends<Modifier>)
      return modifier.bends();
    else
      return HasDerivative<Modifier>;
  }
  __device__ float sink(int h) const {
    if constexpr (HasSink<Modifier>)
      return modifier.sink(h);
    else
      return -INFINITY;
  }
  // A row of P sums to less than 1 where there is a sink; and what the derivative makes of a row's sum nobody knows.
  __device__ bool knows_sums() const {
    return !bends() && sink(0) == -INFINITY;
  }
  // #endregion

  // #region forward
  // query, key: of the lane's first element. Before a Q tile's first S is waited for; softmax() does it for the others.
  template <int N>
  __device__ __forceinline__ void fetch(int head, int H, int query, int key) {
    if constexpr (Fetches<Modifier>) modifier.template fetch<N>(head / H, head % H, query, key);
  }
  // Behind begin_rows.
  template <int N>
  __device__ __forceinline__ void score(float (&s)[N], int head, int H, std::int64_t query, std::int64_t key) const {
    change(modifier, s, NoNote(), head / H, head % H, static_cast<int>(query), static_cast<int>(key));
  }
  // The same, and where the modifier has a softmax of its own, that too: true. whole: nothing of the tile is hidden.
  template <bool kCarry, int N, class Rows, class F>
  __device__ __forceinline__ bool softmax(float (&s)[N], Rows& rows, float (&alpha)[2], float c, int head, int H,
                                          int query, int key, bool whole, const F& before_exponentials) {
    if constexpr (HasLean<Modifier>)
      if (whole) return quick_softmax<kCarry>(s, rows, alpha, c, modifier, query, key, before_exponentials);
    score(s, head, H, query, key);
    if constexpr (Fetches<Modifier>) modifier.template fetch_next<N>(head / H, head % H, query, key);
    return false;
  }
  // A row begins with its sink, as with a key whose V is 0: one of the four lanes that share the row counts it.
  __device__ __forceinline__ void begin_row(float& m, float& l, float& rounded_l, int h) const {
    m = sink(h), l = rounded_l = m > -INFINITY && threadIdx.x % 4 == 0 ? 1.0f : 0.0f;
  }
  template <class Rows>
  __device__ __forceinline__ void begin_rows(Rows& rows, int head, int H, float c) {
    if constexpr (Enters<Modifier>) modifier.enter(head / H, head % H);
    if constexpr (HasSink<Modifier>)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        begin_row(rows.m[r], rows.l[r], rows.rounded_l[r], head % H), rows.base[r] = c * rows.m[r];
  }
  template <int kRowTiles>
  __device__ __forceinline__ void begin_rows(float (&m)[2][2], float (&l)[kRowTiles][2],
                                             float (&rounded_l)[kRowTiles][2], int head, int H) {
    if constexpr (Enters<Modifier>) modifier.enter(head / H, head % H);
    if constexpr (HasSink<Modifier>)
#pragma unroll
      for (int i = 0; i < 2 * kRowTiles; ++i)
        begin_row(m[i / 2][i % 2], l[i / 2][i % 2], rounded_l[i / 2][i % 2], head % H);
  }
  // #endregion

  // #region backward: dS = P ∘ (dP - δ) · f'(s)
  // Before S is waited for: what is loaded waits where derivatives come.
  template <int N>
  __device__ __forceinline__ void fetch_again(unsigned (&room)[N][4], int b, int h, int query, int key) const {
    if constexpr (Fetches<Modifier>) modifier.template fetch<8 * N>(room, b, h, query, key);
  }
  // S again, and its derivatives, rounded to T as P and dS are, in the registers of a product that is rounded later.
  template <class T, bool kTransposed = false, int N>
  __device__ __forceinline__ void score_again(float (&s)[N], unsigned (&derivative)[N / 8][4], int b, int h,
                                              std::int64_t query, std::int64_t key) const {
    if constexpr (Fetches<Modifier>) return modifier.add(s, derivative);
    const auto note = [&](int e, float left, float right) { derivative[e / 8][e / 2 % 4] = pack<T>(left, right); };
    change<kTransposed>(of_head(b, h), s, note, b, h, static_cast<int>(query), static_cast<int>(key));
  }
  template <int N>
  __device__ __forceinline__ void take_gradient(const float (&ds)[N], int b, int h, int query, int key) const {
    if constexpr (Fetches<Modifier>) modifier.take(ds, b, h, query, key);
  }
  // x becomes x · f'(s).
  template <class T, int N>
  __device__ __forceinline__ void weigh(float (&x)[N], const unsigned (&derivative)[N / 8][4]) const {
    if (!bends()) return;
#pragma unroll
    for (int e = 0; e < N; e += 2) {
      const float2 both = unpack<T>(derivative[e / 8][e / 2 % 4]);
      x[e] *= both.x, x[e + 1] *= both.y;
    }
  }
  // P is rounded for dV, in place of the derivatives; and for dS it becomes P · f'(s).
  template <class T, int N>
  __device__ __forceinline__ void round_and_weigh(unsigned (&p)[N / 8][4], float (&s)[N]) const {
    const bool weighs = bends();
#pragma unroll
    for (int e = 0; e < N; e += 2) {
      unsigned& here = p[e / 8][e / 2 % 4];
      const unsigned derivative = here;
      here = pack<T>(s[e], s[e + 1]);
      if (!weighs) continue;
      const float2 both = unpack<T>(derivative);
      s[e] *= both.x, s[e + 1] *= both.y;
    }
  }
  // The same for several row tiles of Sᵀ, 16 keys each. query, key: of the warp's first.
  template <class T, int kRowTiles, int N>
  __device__ __forceinline__ void scores_again(float (&s)[kRowTiles][N], unsigned (&derivative)[kRowTiles][N / 8][4],
                                               int b, int h, std::int64_t query, std::int64_t key) const {
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt)
      score_again<T, true>(s[rt], derivative[rt], b, h, query + lane_column(), key + 16 * rt + lane_row());
  }
  template <class T, int kRowTiles, int N>
  __device__ __forceinline__ void round_and_weigh(unsigned (&p)[kRowTiles][N / 8][4], float (&s)[kRowTiles][N]) const {
#pragma unroll
    for (int rt = 0; rt < kRowTiles; ++rt) round_and_weigh<T>(p[rt], s[rt]);
  }
};
// #endregion

// #region unit: the host's side
// What kernels with a modifier are launched with: c is log2 e, times the modifier's unit.
template <class Modifier, class T>
DeviceProblem<T> with_scores_of(DeviceProblem<T> p) {
  if constexpr (HasUnit<Modifier, T>)
    p.scale_log2 = scale_log2(Modifier::unit(p));
  else
    p.scale_log2 = scale_log2(1);
  return p;
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
