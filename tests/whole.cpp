// whole.cpp: see whole.hpp. Each matrix by itself and in full, in the order of docs/conventions.md: S, what is seen, P,
// O; then dP, dS and the gradients.
// Use: linked with flash_contract.
#include "tests/whole.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "tests/gradients.hpp"

namespace flash::test {
namespace {

using Matrix = std::vector<double>;  // [rows of the sequence, keys of the sequence]

template <class T>
std::vector<double> numbers(const AnyView& view) {
  return view.given() ? gather64(view_as<const T>(view)) : std::vector<double>{};
}
std::vector<double> numbers(const AnyView& view, Type type) {
  return type == Type::Float32   ? numbers<float>(view)
         : type == Type::Float16 ? numbers<half>(view)
                                 : numbers<bfloat16>(view);
}
template <class T>
std::vector<double> integers(const AnyView& view) {
  std::vector<double> out;
  const View<const T> of = view_as<const T>(view);
  for (std::int64_t b = 0; view.given() && b < of.B(); ++b)
    for (std::int64_t h = 0; h < of.H(); ++h)
      for (std::int64_t s = 0; s < of.S(); ++s)
        for (std::int64_t d = 0; d < of.D(); ++d) out.push_back(of.row(b, h, s)[d]);
  return out;
}

// Where element (b, h, s, d) of an array is that all share along axes of length 1.
std::size_t place(const std::array<std::int64_t, 4>& shape, std::array<std::int64_t, 4> at) {
  std::int64_t place = 0;
  for (int axis = 0; axis < 4; ++axis) place = place * shape[axis] + (shape[axis] == 1 ? 0 : at[axis]);
  return static_cast<std::size_t>(place);
}

// Of rows of n numbers; that no two of them overlap lets the compiler take several numbers at once.
double dot(const double* __restrict x, const double* __restrict y, std::int64_t n) {
  double sums[4] = {};
  std::int64_t d = 0;
  for (; d + 4 <= n; d += 4)
    for (int i = 0; i < 4; ++i) sums[i] += x[d + i] * y[d + i];
  for (; d < n; ++d) sums[0] += x[d] * y[d];
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}
void add(double* __restrict to, double factor, const double* __restrict x, std::int64_t n) {
  for (std::int64_t d = 0; d < n; ++d) to[d] += factor * x[d];
}
// The same, and the same sum of positive terms; gives the sum of the terms' squares.
double add(double* __restrict to, double* __restrict positive, double factor, double largest,
           const double* __restrict x, std::int64_t n) {
  double squares[4] = {};
  std::int64_t d = 0;
  for (; d + 4 <= n; d += 4)
    for (int i = 0; i < 4; ++i) {
      const double term = factor * x[d + i];
      to[d + i] += term, positive[d + i] += std::abs(largest * x[d + i]), squares[i] += term * term;
    }
  for (; d < n; ++d) {
    const double term = factor * x[d];
    to[d] += term, positive[d] += std::abs(largest * x[d]), squares[0] += term * term;
  }
  return squares[0] + squares[1] + (squares[2] + squares[3]);
}

// One head of one sequence, and where its rows and keys are in the dense tensors.
struct OfHead {
  const WideInputs& in;
  std::int64_t n, h, b, first_row, rows, first_key, keys;

  OfHead(const WideInputs& in, std::int64_t n, std::int64_t h) : in(in), n(n), h(h) {
    const auto at = [](const std::vector<double>& x, std::int64_t i) { return static_cast<std::int64_t>(x[i]); };
    b = in.packed ? 0 : n;
    first_row = in.packed ? at(in.ends_q, n) : 0, first_key = in.packed ? at(in.ends_k, n) : 0;
    rows = in.packed ? at(in.ends_q, n + 1) - first_row : in.shape.Sq;
    keys = in.packed ? at(in.ends_k, n + 1) - first_key : in.shape.Sk;
    if (!in.used_q.empty()) rows = at(in.used_q, n);
    if (!in.used_k.empty()) keys = at(in.used_k, n);
  }
  std::size_t row(std::int64_t i, std::int64_t columns = 1) const {
    return static_cast<std::size_t>(((b * in.shape.H + h) * in.shape.Sq + first_row + i) * columns);
  }
  std::size_t key(std::int64_t j, std::int64_t columns) const {
    const std::int64_t hk = h * in.shape.Hk / in.shape.H;
    return static_cast<std::size_t>(((b * in.shape.Hk + hk) * in.shape.Sk + first_key + j) * columns);
  }

  bool sees(std::int64_t i, std::int64_t j) const {
    if (!test::sees(in.options.mask, i, j, rows, keys)) return false;
    if (!in.bias.empty() && in.bias[place(in.bias_shape, {n, h, i, j})] == -INFINITY) return false;
    const double block = in.blocks.empty() ? 1 : in.blocks[place(in.blocks_shape, {n, h, i / 64, j / 64})];
    if (block != 1) return block == 2;
    if (!in.allowed.empty() && in.allowed[place(in.allowed_shape, {n, h, i, j})] == 0) return false;
    if (in.document_q.empty()) return true;
    const std::int64_t batch = in.documents_shape[0] == 1 ? 0 : n;
    return in.document_q[batch * in.shape.Sq + i] == in.document_k[batch * in.shape.Sk + j];
  }
  // The logit of a pair, and its derivative by scale · q·k.
  std::pair<double, double> logit(std::int64_t i, std::int64_t j) const {
    double s = dot(&in.q[row(i, in.shape.D)], &in.k[key(j, in.shape.D)], in.shape.D) * in.scale, derivative = 1;
    if (const auto cap = static_cast<double>(in.options.softcap); cap != 0) {
      derivative = 1 / (std::cosh(s / cap) * std::cosh(s / cap));
      s = cap * std::tanh(s / cap);
    }
    if (!in.slopes.empty())
      s -= in.slopes[place(in.slopes_shape, {n, h, 0, 0})] * static_cast<double>(std::abs(i + keys - rows - j));
    if (!in.bias.empty()) s += in.bias[place(in.bias_shape, {n, h, i, j})];
    return {s, derivative};
  }
};

}  // namespace

// Philox 4x32-10 of Salmon et al., from the paper's definition of a round: (L, R) -> (mulhi(R) ^ k ^ L, mullo(R)).
bool is_kept(const Dropout& dropout, std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t j) {
  std::uint64_t x[4] = {static_cast<std::uint64_t>(j / 8), static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(h),
                        static_cast<std::uint64_t>(n)};
  std::uint64_t k0 = dropout.seed & 0xffffffff, k1 = dropout.seed >> 32;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = x[0] * 0xD2511F53u, p1 = x[2] * 0xCD9E8D57u;
    const std::uint64_t y[4] = {(p1 >> 32) ^ x[1] ^ k0, p1 & 0xffffffff, (p0 >> 32) ^ x[3] ^ k1, p0 & 0xffffffff};
    std::copy_n(y, 4, x);
    k0 = (k0 + 0x9E3779B9u) & 0xffffffff, k1 = (k1 + 0xBB67AE85u) & 0xffffffff;
  }
  const std::uint64_t word = x[j % 8 / 2], bits = j % 2 ? word >> 16 : word & 0xffff;
  return static_cast<double>(bits) >= std::floor(static_cast<double>(dropout.p) * 65536 + 0.5);
}

WideInputs::WideInputs(const AnyProblem& p)
    : shape{p.q.B(), p.q.H(), p.k.H(), p.q.S(), p.k.S(), p.q.D(), p.v.D()},
      options(p.options),
      scale(p.options.scale ? static_cast<double>(*p.options.scale)
                            : static_cast<float>(1 / std::sqrt(static_cast<double>(p.q.D())))),
      packed(p.first_rows.given()),
      rounds_o(p.backward() && p.type != Type::Float32 && !p.o_lo.given()),
      q(numbers(p.q, p.type)),
      k(numbers(p.k, p.type)),
      v(numbers(p.v, p.type)),
      dout(p.dout.given() ? numbers(p.dout, p.type) : std::vector<double>{}),
      dlse(numbers<float>(p.dlse)),
      slopes(numbers<float>(p.slopes)),
      bias(p.bias.given() ? numbers(p.bias, p.type) : std::vector<double>{}),
      sinks(numbers<float>(p.sinks)),
      allowed(integers<std::uint8_t>(p.allowed)),
      document_q(integers<std::int32_t>(p.document_q)),
      document_k(integers<std::int32_t>(p.document_k)),
      blocks(integers<std::uint8_t>(p.blocks)),
      slopes_shape(p.slopes.shape),
      bias_shape(p.bias.shape),
      allowed_shape(p.allowed.shape),
      documents_shape(p.document_q.shape),
      blocks_shape(p.blocks.shape),
      ends_q(integers<std::int32_t>(p.first_rows)),
      ends_k(integers<std::int32_t>(p.first_keys)),
      used_q(integers<std::int32_t>(p.rows_of)),
      used_k(integers<std::int32_t>(p.keys_of)) {
  shape.N = packed ? static_cast<std::int64_t>(ends_q.size()) - 1 : shape.B;
}

double WideInputs::loss() const {
  WideInputs in = *this;
  in.dout.clear();
  const Whole got(in);
  double sum = 0;
  for (std::size_t i = 0; i < got.o.size(); ++i)
    if (got.o[i] != 0) sum += dout[i] * got.o[i];  // dO of no sequence is poison
  for (std::size_t i = 0; i < dlse.size(); ++i)
    if (got.lse[i] > -INFINITY) sum += dlse[i] * got.lse[i];
  return sum;
}

Whole::Whole(const WideInputs& in) {
  const Shape& s = in.shape;
  const auto rows = static_cast<std::size_t>(s.B * s.H * s.Sq), keys = static_cast<std::size_t>(s.B * s.Hk * s.Sk);
  o.resize(rows * s.Dv), lse.resize(rows, -INFINITY);
  const bool gradients = !in.dout.empty();
  Matrix Gq, Gk, Gv, Gbias, Gsinks;
  if (gradients) {
    dq.resize(in.q.size()), dk.resize(in.k.size()), dv.resize(keys * s.Dv);
    dbias.resize(in.bias.size()), dsinks.resize(in.sinks.size());
    Gq = dq, Gk = dk, Gv = dv, Gbias = dbias, Gsinks = dsinks;
  }
  // n terms factor · x[d] from a place on: added to a gradient, to the same sum of positive terms, and their squares.
  const auto add_terms = [](Matrix& to, Matrix& G, Size& size, std::size_t at, double factor, double positive,
                            const double* x,
                            std::int64_t n) { size.r += add(&to[at], &G[at], factor, positive, x, n); };
  for (std::int64_t n = 0; n < s.N; ++n)
    for (std::int64_t h = 0; h < s.H; ++h) {
      const OfHead head(in, n, h);
      const auto size = static_cast<std::size_t>(head.rows * head.keys);
      Matrix S(size, -INFINITY), derivative(size), P(size), share(size, 1), dP(size);
      const auto at = [&](std::int64_t i, std::int64_t j) { return static_cast<std::size_t>(i * head.keys + j); };
      for (std::int64_t i = 0; i < head.rows; ++i)
        for (std::int64_t j = 0; j < head.keys; ++j)
          if (head.sees(i, j)) {
            std::tie(S[at(i, j)], derivative[at(i, j)]) = head.logit(i, j);
            max_abs_logit = std::max(max_abs_logit, std::abs(S[at(i, j)]));
          }
      if (const Dropout& dropout = in.options.dropout; dropout.p != 0)
        for (std::int64_t i = 0; i < head.rows; ++i)
          for (std::int64_t j = 0; j < head.keys; ++j)
            share[at(i, j)] = is_kept(dropout, n, h, i, j)
                                  ? 1 / (1 - std::floor(static_cast<double>(dropout.p) * 65536 + 0.5) / 65536)
                                  : 0;
      std::vector<double> sink_share(static_cast<std::size_t>(head.rows));  // of the denominator
      for (std::int64_t i = 0; i < head.rows; ++i) {
        double m = in.sinks.empty() ? -INFINITY : in.sinks[h], l = 0;
        for (std::int64_t j = 0; j < head.keys; ++j) m = std::max(m, S[at(i, j)]);
        if (m == -INFINITY) continue;
        for (std::int64_t j = 0; j < head.keys; ++j) l += P[at(i, j)] = std::exp(S[at(i, j)] - m);
        if (!in.sinks.empty()) l += sink_share[i] = std::exp(in.sinks[h] - m);
        for (std::int64_t j = 0; j < head.keys; ++j) P[at(i, j)] /= l;
        sink_share[i] /= l;
        lse[head.row(i)] = m + std::log(l);
      }
      for (std::int64_t i = 0; i < head.rows; ++i)
        for (std::int64_t j = 0; j < head.keys; ++j)
          if (S[at(i, j)] > -INFINITY && share[at(i, j)] > 0)
            add(&o[head.row(i, s.Dv)], share[at(i, j)] * P[at(i, j)], &in.v[head.key(j, s.Dv)], s.Dv);
      if (!gradients) continue;

      for (std::int64_t i = 0; i < head.rows; ++i) {
        const double* dout = &in.dout[head.row(i, s.Dv)];
        double delta = 0;
        for (std::int64_t j = 0; j < head.keys; ++j) {
          if (S[at(i, j)] == -INFINITY) continue;
          dP[at(i, j)] = share[at(i, j)] * dot(dout, &in.v[head.key(j, s.Dv)], s.Dv);
          delta += P[at(i, j)] * dP[at(i, j)];
        }
        const double dlse = in.dlse.empty() ? 0 : in.dlse[head.row(i)];
        const double least = std::abs(delta) + std::abs(dlse);
        double squares = 0;  // of dS: what the rounding of P leaves in delta, and of O
        for (std::int64_t j = 0; j < head.keys; ++j) {
          if (S[at(i, j)] == -INFINITY) continue;
          const double p = P[at(i, j)], dS = p * (dP[at(i, j)] - delta + dlse);
          squares += p * (dP[at(i, j)] - delta) * p * (dP[at(i, j)] - delta);
          const double positive = p * (std::abs(dP[at(i, j)]) + least), factor = in.scale * derivative[at(i, j)];
          if (!in.bias.empty()) {
            const std::size_t bias = place(in.bias_shape, {n, h, i, j});
            dbias[bias] += dS, Gbias[bias] += positive, size_bias.r += dS * dS;
          }
          const std::size_t q = head.row(i, s.D), k = head.key(j, s.D);
          add_terms(dq, Gq, size_q, q, factor * dS, factor * positive, &in.k[k], s.D);
          add_terms(dk, Gk, size_k, k, factor * dS, factor * positive, &in.q[q], s.D);
          const double kept = share[at(i, j)] * p;
          add_terms(dv, Gv, size_v, head.key(j, s.Dv), kept, kept, dout, s.Dv);
        }
        if (in.sinks.empty()) continue;
        // No product with P is in it but delta, so its R is of what delta is off by: docs/conventions.md.
        dsinks[h] += sink_share[i] * (dlse - delta), Gsinks[h] += sink_share[i] * least;
        for (std::int64_t d = 0; in.rounds_o && d < s.Dv; ++d) {
          const double term = o[head.row(i, s.Dv) + static_cast<std::size_t>(d)] * dout[d];
          squares += term * term;
        }
        size_sinks.r += sink_share[i] * sink_share[i] * squares;
      }
    }
  const auto finish = [](Size& size, const Matrix& G) {
    for (const double x : G) size.g += x * x;
    size.g = std::sqrt(size.g), size.r = std::sqrt(size.r);
  };
  finish(size_q, Gq), finish(size_k, Gk), finish(size_v, Gv), finish(size_bias, Gbias), finish(size_sinks, Gsinks);
}

}  // namespace flash::test
