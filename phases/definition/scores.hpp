// scores.hpp: what the definition does in both directions: numbers in fp32 out of any type, products of small tiles,
// and what becomes of a score: scale, softcap, bias, masks. Included by forward.cpp and backward.cpp, and by phase 30.
// Use: load_tile(…); multiply(s, q, kt, rows, D); finish_scores(head, i, first_key, s[r], nullptr);
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "phases/arrays/random.hpp"  // philox
#include "phases/interface/limits.hpp"
#include "phases/interface/problem.hpp"

namespace flash::definition {

inline constexpr int kRows = 32, kKeys = 64, kWidth = max_head_dim;  // of a tile of rows; of keys; columns at most
static_assert(kKeys == mask_block, "a tile of keys is a block of a block mask");
inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float log2_e = 1.44269504f;

using RowTile = float[kRows][kWidth];     // rows of Q, dO, O …
using KeyTile = float[kKeys][kWidth];     // rows of K or V
using Transposed = float[kWidth][kKeys];  // the same, a column for each key
using Scores = float[kRows][kKeys];

// ---- Numbers in and out ---------------------------------------------------------------------------------------------

// n elements of a row in fp32, and zeros up to the next multiple of 16.
inline void load_row(float* to, const AnyView& from, Type type, std::int64_t b, std::int64_t h, std::int64_t s) {
  const std::int64_t n = from.D();
  const auto load = [&]<class T>(const View<T>& view) {
    const T* row = view.row(b, h, s);
    for (std::int64_t d = 0; d < n; ++d) to[d] = to_float(row[d]);
  };
  type == Type::Float32   ? load(view_as<float>(from))
  : type == Type::Float16 ? load(view_as<half>(from))
                          : load(view_as<bfloat16>(from));
  for (std::int64_t d = n; d % 16 != 0; ++d) to[d] = 0;
}
inline void store_row(const AnyView& to, Type type, std::int64_t b, std::int64_t h, std::int64_t s, const float* from) {
  const auto store = [&]<class T>(const View<T>& view) {
    for (std::int64_t d = 0; d < view.D(); ++d) view.row(b, h, s)[d] = from_float<T>(from[d]);
  };
  type == Type::Float32   ? store(view_as<float>(to))
  : type == Type::Float16 ? store(view_as<half>(to))
                          : store(view_as<bfloat16>(to));
}
// What rounding took from O: the distance between two bit patterns (docs/backward.md); and O again.
inline std::int16_t low_bits(float exact, float rounded) {
  const std::int64_t distance = std::int64_t{std::bit_cast<std::int32_t>(exact)} - std::bit_cast<std::int32_t>(rounded);
  return static_cast<std::int16_t>(std::clamp<std::int64_t>(distance, -32768, 32767));
}
inline float restored(float rounded, std::int16_t low) {
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(rounded) + low);
}
// Element (b, h, s, d) of an array whose axes of length 1 are shared by all.
template <class T>
const T& shared_at(const AnyView& view, std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) {
  const auto at = [&](int axis, std::int64_t i) { return view.shape[axis] == 1 ? 0 : i * view.stride[axis]; };
  return static_cast<const T*>(view.data)[at(0, b) + at(1, h) + at(2, s) + d * view.stride[3]];
}

// ---- Arithmetic: inner loops of a constant length, for the vectoriser ----------------------------------------------

// 2^x for x <= 0 or little more, off by 2^-23 of it; 0 below 2^-126; NaN of NaN; 1 of 0 exactly.
inline float exp2_of(float x) {
  const float shifted = x + 0x1.8p23f, f = x - (shifted - 0x1.8p23f);  // its last bits are the nearest integer
  float y = 1.52527338e-5f;                                            // ln(2)^k / k!
  for (const float c :
       {1.54035304e-4f, 1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f, 0.240226507f, 0.693147181f, 1.f})
    y = y * f + c;
  const float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000u);
  return x < -126 ? 0 : y * power;
}

// c = X Yᵀ: so many rows of X, the keys' columns of Yᵀ. D is padded with zeros to a multiple of 4.
[[gnu::noinline]] inline void multiply(Scores& c, const RowTile& x, const Transposed& yt, int rows, std::int64_t D) {
  for (int r = 0; r < rows; ++r) {
    float sum[kKeys] = {};
    for (std::int64_t d = 0; d < D; d += 4) {
      const float x0 = x[r][d], x1 = x[r][d + 1], x2 = x[r][d + 2], x3 = x[r][d + 3];
      for (int j = 0; j < kKeys; ++j)
        sum[j] += x0 * yt[d][j] + x1 * yt[d + 1][j] + x2 * yt[d + 2][j] + x3 * yt[d + 3][j];
    }
    std::memcpy(c[r], sum, sizeof sum);
  }
}
// to += Σ_k factor_k · row k of a tile, D columns. What is multiplied by 0 is left out: what is hidden may be NaN.
// `stride`: from one factor to the next.
[[gnu::noinline]] inline void add_rows(float* __restrict to, const float* factors, int stride,
                                       const float (*rows)[kWidth], int count, std::int64_t D) {
  const auto add_one = [&](int k) {
    const float f = factors[k * stride], *x = rows[k];
    for (std::int64_t d = 0; f != 0 && d < D; d += 16)
      for (int e = 0; e < 16; ++e) to[d + e] += f * x[d + e];
  };
  int k = 0;
  for (; k + 4 <= count; k += 4) {
    const float *f = factors + k * stride, f0 = f[0], f1 = f[stride], f2 = f[2 * stride], f3 = f[3 * stride];
    if (f0 == 0 || f1 == 0 || f2 == 0 || f3 == 0) {
      for (int i = 0; i < 4; ++i) add_one(k + i);
      continue;
    }
    const float *x0 = rows[k], *x1 = rows[k + 1], *x2 = rows[k + 2], *x3 = rows[k + 3];
    for (std::int64_t d = 0; d < D; d += 16)
      for (int e = 0; e < 16; ++e) to[d + e] += f0 * x0[d + e] + f1 * x1[d + e] + f2 * x2[d + e] + f3 * x3[d + e];
  }
  for (; k < count; ++k) add_one(k);
}

// ---- One head of one sequence ---------------------------------------------------------------------------------------

struct Head {
  const AnyProblem& p;
  std::int64_t n, h, hk;  // sequence; head of Q; and of K and V
  Sequence at;
  Band<std::int64_t> band;
  float scale;

  Head(const AnyProblem& p, std::int64_t n, std::int64_t h)
      : p(p),
        n(n),
        h(h),
        hk(h / (p.H() / p.shape().Hk)),
        at(p.sequence(n)),
        band(p.options.mask.band(at.rows, at.keys)),
        scale(p.scale()) {}
  // Where row i's LSE and the like are.
  std::int64_t number(std::int64_t i) const { return (at.b * p.H() + h) * p.Sq() + at.first_row + i; }
  void load(float* to, const AnyView& from, Type type, std::int64_t i) const {
    load_row(to, from, type, at.b, h, at.first_row + i);
  }
  // Keys first_key … of K or V; zeros beyond the end. Either form may be left out.
  void load_keys(const AnyView& from, std::int64_t first_key, KeyTile* tile, Transposed* transposed) const {
    float row[kWidth];
    for (int j = 0; j < kKeys; ++j) {
      if (first_key + j < at.keys)
        load_row(row, from, p.type, at.b, hk, at.first_key + first_key + j);
      else
        std::fill_n(row, kWidth, 0.0f);
      if (tile) std::memcpy((*tile)[j], row, sizeof row);
      for (std::int64_t d = 0; transposed && d < (from.D() + 3) / 4 * 4; ++d) (*transposed)[d][j] = row[d];
    }
  }
  // Does any of rows i … i + count - 1 see a key of the tile?
  bool sees(std::int64_t i, std::int64_t count, std::int64_t first_key) const {
    return band.end(i + count - 1) > first_key && i - band.left < first_key + kKeys &&
           (!p.blocks.given() || any_block(i, count, first_key));
  }
  BlockKind block(std::int64_t i, std::int64_t first_key) const {
    return static_cast<BlockKind>(shared_at<std::uint8_t>(p.blocks, n, h, i / mask_block, first_key / mask_block));
  }
  bool any_block(std::int64_t i, std::int64_t count, std::int64_t first_key) const {
    return block(i, first_key) != BlockKind::None || block(i + count - 1, first_key) != BlockKind::None;
  }
  float sink() const { return p.sinks.given() ? shared_at<float>(p.sinks, 0, h, 0, 0) * log2_e : -infinity; }
};

// ---- What becomes of a score ----------------------------------------------------------------------------------------

// Of row i and keys first_key …: q·k becomes the logit, in base 2, -inf where the row does not see the key, whatever is
// there. derivative: of what follows the scale, where it is not 1.
inline void finish_scores(const Head& head, std::int64_t i, std::int64_t first_key, float* s, float* derivative) {
  const AnyProblem& p = head.p;
  const int keys = static_cast<int>(std::min<std::int64_t>(kKeys, head.at.keys - first_key));
  for (int j = 0; j < kKeys; ++j) s[j] *= head.scale;
  if (const float cap = p.options.softcap; cap != 0)
    for (int j = 0; j < kKeys; ++j) {
      const float t = std::tanh(s[j] / cap);
      s[j] = cap * t;
      if (derivative) derivative[j] = 1 - t * t;
    }
  if (p.slopes.given()) {
    const float slope = shared_at<float>(p.slopes, head.n, head.h, 0, 0);
    const std::int64_t nearest = i + head.at.keys - head.at.rows - first_key;
    for (int j = 0; j < kKeys; ++j) s[j] -= slope * static_cast<float>(std::abs(nearest - j));
  }
  if (p.bias.given()) {
    float bias[kKeys];
    AnyView row = p.bias;  // the tile's columns of it
    row.data = static_cast<char*>(row.data) + first_key * bytes_of(p.type);
    row.shape[3] = keys;
    load_row(bias, row, p.type, row.B() == 1 ? 0 : head.n, row.H() == 1 ? 0 : head.h, row.S() == 1 ? 0 : i);
    for (int j = 0; j < keys; ++j) s[j] = bias[j] == -infinity ? -infinity : s[j] + bias[j];
  }
  for (int j = 0; j < kKeys; ++j) s[j] *= log2_e;
  const KeyRange<std::int64_t> seen = head.band.visible(i);
  for (int j = 0; j < kKeys; ++j)
    if (!seen.contains(first_key + j)) s[j] = -infinity;
  const BlockKind kind = p.blocks.given() ? head.block(i, first_key) : BlockKind::Ask;
  if (kind == BlockKind::Whole) return;
  const auto is_hidden = [&](std::int64_t j) {
    return kind == BlockKind::None ||
           (p.allowed.given() && shared_at<std::uint8_t>(p.allowed, head.n, head.h, i, j) == 0) ||
           (p.document_q.given() && shared_at<std::int32_t>(p.document_q, head.n, 0, i, 0) !=
                                        shared_at<std::int32_t>(p.document_k, head.n, 0, j, 0));
  };
  if (p.blocks.given() || p.allowed.given() || p.document_q.given())
    for (int j = 0; j < keys; ++j)
      if (is_hidden(first_key + j)) s[j] = -infinity;
}

// By what P's numbers are multiplied on their way to V: 0 for those that dropout leaves out. A call of Philox has 16
// bits for each of 8 keys.
inline void drop(const Head& head, std::int64_t i, std::int64_t first_key, float* factor) {
  const Dropout& dropout = head.p.options.dropout;
  for (int j = 0; j < kKeys; j += 8) {
    const std::array<std::uint32_t, 4> words =
        philox({static_cast<std::uint32_t>((first_key + j) / 8), static_cast<std::uint32_t>(i),
                static_cast<std::uint32_t>(head.h), static_cast<std::uint32_t>(head.n)},
               {static_cast<std::uint32_t>(dropout.seed), static_cast<std::uint32_t>(dropout.seed >> 32)});
    for (int k = 0; k < 8; ++k)
      factor[j + k] = (words[k / 2] >> k % 2 * 16 & 0xffff) < dropout.threshold() ? 0 : dropout.factor();
  }
}

// ---- Threads --------------------------------------------------------------------------------------------------------

// task(t) for t = 0 … tasks - 1. No two write to the same place, so it does not matter who does which.
template <class Task>
void for_all(int threads, std::int64_t tasks, const Task& task) {
  if (threads == 0) threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  threads = static_cast<int>(std::clamp<std::int64_t>(tasks, 1, threads));
  std::atomic<std::int64_t> next = 0;
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&] {
    try {
      for (std::int64_t t; (t = next++) < tasks;) task(t);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      next = tasks;
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
  if (failure) std::rethrow_exception(failure);
}

// A task for each tile of rows of each head of each sequence: task(head, first row, rows).
template <class Task>
void for_all_rows(const AnyProblem& p, int threads, const Task& task) {
  std::vector<std::pair<std::int64_t, std::int64_t>> tiles;  // sequence, first row
  for (std::int64_t n = 0; n < p.sequences(); ++n)
    for (std::int64_t i = 0, rows = p.sequence(n).rows; i < rows; i += kRows) tiles.emplace_back(n, i);
  const auto count = static_cast<std::int64_t>(tiles.size());
  for_all(threads, count * p.H(), [&](std::int64_t t) {
    const auto [n, first] = tiles[static_cast<std::size_t>(t % count)];
    const Head head(p, n, t / count);
    task(head, first, static_cast<int>(std::min<std::int64_t>(kRows, head.at.rows - first)));
  });
}

// Calls f(b, h, s) for the rows of a tensor's heads that belong to no sequence.
template <class F>
void for_each_idle(const AnyProblem& p, const AnyView& tensor, bool rows, const F& f) {
  if (!p.packed() && !(rows ? p.rows_of : p.keys_of).given()) return;
  std::vector<bool> taken(static_cast<std::size_t>(p.B() * tensor.S()));
  for (std::int64_t n = 0; n < p.sequences(); ++n) {
    const Sequence at = p.sequence(n);
    const std::int64_t first = at.b * tensor.S() + (rows ? at.first_row : at.first_key);
    std::fill_n(taken.begin() + first, rows ? at.rows : at.keys, true);
  }
  for (std::int64_t b = 0; b < p.B(); ++b)
    for (std::int64_t s = 0; s < tensor.S(); ++s)
      for (std::int64_t h = 0; h < tensor.H() && !taken[static_cast<std::size_t>(b * tensor.S() + s)]; ++h) f(b, h, s);
}

}  // namespace flash::definition
