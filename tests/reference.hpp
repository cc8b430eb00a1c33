// reference.hpp: what attention should give, in fp64 with plain loops, and how far a result is from it.
// Shares no code with the phases (not even the mask or the scale): two independent readings of docs/conventions.md.
// Use: Reference want = reference(problem); Distance d = distance(got, want.o, D); CHECK(d.relative <= 2e-6);
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "phases/interface/problem.hpp"

namespace flash::test {

struct Reference {
  std::vector<double> o;    // [B, H, Sq, D]
  std::vector<double> lse;  // [B, H, Sq], natural log; -inf where the row sees no key
  // [B, H, Sq]: Σ_j P_ij Σ_d |scale · q_d · k_jd|. 2^-24 times it is what one rounding of the running sums of q·k in
  // fp32 may do to the row's LSE: no fp32 accumulation can promise less.
  std::vector<double> condition;
  double max_abs_logit = 0;  // largest |scale · q·k| among visible pairs: sets fp32's bar for large logits
};

// May query row i see key j? One pair at a time, as the contract words it.
inline bool sees(const Mask& mask, std::int64_t i, std::int64_t j, std::int64_t Sq, std::int64_t Sk) {
  const std::int64_t key = mask.alignment == Alignment::BottomRight ? i + mask.shift + Sk - Sq : i + mask.shift;
  return (mask.left == Mask::all || j >= key - mask.left) && (mask.right == Mask::all || j <= key + mask.right);
}

// A strided [B, H, S, D] tensor as dense fp64.
template <class T>
std::vector<double> gather(const View<T>& x) {
  std::vector<double> out;
  for (std::int64_t b = 0; b < x.shape[0]; ++b)
    for (std::int64_t h = 0; h < x.shape[1]; ++h)
      for (std::int64_t s = 0; s < x.shape[2]; ++s)
        for (std::int64_t d = 0; d < x.shape[3]; ++d)
          out.push_back(static_cast<double>(
              to_float(x.data[b * x.stride[0] + h * x.stride[1] + s * x.stride[2] + d * x.stride[3]])));
  return out;
}

// fp64 attention of the inputs as they are stored, that is after their rounding to T.
template <class T>
Reference reference(const Problem<T>& p) {
  const std::int64_t heads = p.q.shape[0] * p.q.shape[1], Sq = p.q.shape[2], Sk = p.k.shape[2], D = p.q.shape[3];
  const double scale = p.options.scale ? *p.options.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(D)));
  const std::vector<double> Q = gather(p.q), K = gather(p.k), V = gather(p.v);
  constexpr double infinite = std::numeric_limits<double>::infinity();
  Reference r;
  for (std::int64_t head = 0; head < heads; ++head) {
    // Kᵀ, so that the loop over keys is the inner one, without a sum that it waits for: each key's own sum runs over d.
    std::vector<double> Kt(static_cast<std::size_t>(D * Sk));
    for (std::int64_t j = 0; j < Sk; ++j)
      for (std::int64_t d = 0; d < D; ++d) Kt[d * Sk + j] = K[(head * Sk + j) * D + d];
    for (std::int64_t i = 0; i < Sq; ++i) {
      const double* q = Q.data() + (head * Sq + i) * D;
      std::vector<double> s(static_cast<std::size_t>(Sk)), size(s.size()), o(static_cast<std::size_t>(D));
      double m = -infinite, l = 0, condition = 0;
      for (std::int64_t d = 0; d < D; ++d) {
        const double* k = Kt.data() + d * Sk;
        for (std::int64_t j = 0; j < Sk; ++j) {
          s[j] += q[d] * k[j];
          size[j] += std::abs(scale * q[d] * k[j]);
        }
      }
      for (std::int64_t j = 0; j < Sk; ++j) {
        if (!sees(p.options.mask, i, j, Sq, Sk)) continue;
        s[j] *= scale;
        m = std::max(m, s[j]);
        r.max_abs_logit = std::max(r.max_abs_logit, std::abs(s[j]));
      }
      for (std::int64_t j = 0; j < Sk; ++j) {
        if (!sees(p.options.mask, i, j, Sq, Sk)) continue;
        const double* v = V.data() + (head * Sk + j) * D;
        const double e = std::exp(s[j] - m);
        l += e;
        condition += e * size[j];
        for (std::int64_t d = 0; d < D; ++d) o[d] += e * v[d];
      }
      const bool empty = l == 0;  // no visible key: O = 0, LSE = -inf
      for (const double x : o) r.o.push_back(empty ? 0 : x / l);
      r.lse.push_back(empty ? -infinite : m + std::log(l));
      r.condition.push_back(empty ? 0 : condition / l);
    }
  }
  return r;
}

// How far `got` is from `want`. NaN anywhere in `got` makes all three NaN, and NaN <= bar is false.
struct Distance {
  double relative = 0;   // relF: ‖got - want‖ / ‖want‖ over the whole tensor (Frobenius)
  double worst_row = 0;  // the largest such ratio of a single row
  double max_abs = 0;
};

// ‖difference‖ / ‖want‖; where the exact answer is 0, only 0 is right.
inline double ratio(double difference2, double want2) {
  if (want2 == 0) return difference2 == 0 ? 0 : difference2 * std::numeric_limits<double>::infinity();
  return std::sqrt(difference2 / want2);
}

inline Distance distance(const std::vector<double>& got, const std::vector<double>& want, std::int64_t cols) {
  // Squares of denormals vanish even in fp64's range of fp32's (2^-149)², so measure in units of the largest element.
  double unit = 0;
  for (const double w : want) unit = std::max(unit, std::abs(w));
  if (unit == 0) unit = 1;
  Distance d;
  double all_difference = 0, all_want = 0;
  for (std::size_t first = 0; first < want.size(); first += static_cast<std::size_t>(cols)) {
    double row_difference = 0, row_want = 0;
    for (std::size_t i = first; i < first + static_cast<std::size_t>(cols); ++i) {
      const double difference = (got[i] - want[i]) / unit;
      row_difference += difference * difference;
      row_want += want[i] / unit * (want[i] / unit);
      if (std::isnan(difference)) return {difference, difference, difference};
      d.max_abs = std::max(d.max_abs, std::abs(difference) * unit);
    }
    d.worst_row = std::max(d.worst_row, ratio(row_difference, row_want));
    all_difference += row_difference;
    all_want += row_want;
  }
  d.relative = ratio(all_difference, all_want);
  return d;
}

// The rounding floor: the error of the exact answer after rounding to T, which no result in T can beat on average.
template <class T>
Distance rounding_floor(const std::vector<double>& want, std::int64_t cols) {
  std::vector<double> rounded(want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    rounded[i] = static_cast<double>(to_float(from_float<T>(static_cast<float>(want[i]))));
  return distance(rounded, want, cols);
}

}  // namespace flash::test
