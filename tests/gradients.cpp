// gradients.cpp: see gradients.hpp. Compiled once for each type and optimised: tests spend much of their time here.
// Straight from docs/backward.md, one number at a time.
// Use: linked with flash_contract.
#include "tests/gradients.hpp"

namespace flash::test {

template <class T>
std::vector<double> gather64(const View<T>& x) {
  std::vector<double> out;
  for (std::int64_t b = 0; b < x.B(); ++b)
    for (std::int64_t h = 0; h < x.H(); ++h)
      for (std::int64_t s = 0; s < x.S(); ++s)
        for (std::int64_t d = 0; d < x.D(); ++d) out.push_back(as_double(x.row(b, h, s)[d]));
  return out;
}

template <class T>
GradientReference gradient_reference(const GradientProblem<T>& p, bool keep_steps, const std::vector<double>* given) {
  const std::int64_t heads = p.q.shape[0] * p.q.shape[1], Sq = p.q.shape[2], Sk = p.k.shape[2], D = p.q.shape[3];
  const double scale = p.options.scale ? *p.options.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(D)));
  const std::vector<double> Q = gather64(p.q), K = gather64(p.k), V = gather64(p.v), dO = gather64(p.dout);
  GradientReference r;
  r.dq.resize(Q.size());
  r.dk.resize(K.size());
  r.dv.resize(V.size());
  std::vector<double> Gq(Q.size()), Gk(K.size()), Gv(V.size());
  const auto add_square = [](double& sum, double x) { sum += x * x; };  // rq, rk and rv, until the end
  std::vector<double> P(static_cast<std::size_t>(Sk)), dP(P.size()), dS(P.size()), size_dp(P.size());
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t i = 0; i < Sq; ++i) {
      const std::int64_t row = (head * Sq + i) * D;
      const auto key = [&](std::int64_t j) { return (head * Sk + j) * D; };
      double m = -INFINITY, l = 0, delta = 0, size_delta = 0, dlse = 0;
      for (std::int64_t j = 0; j < Sk; ++j) {
        P[j] = dP[j] = dS[j] = size_dp[j] = 0;
        if (!sees(p.options.mask, i, j, Sq, Sk)) continue;
        double s = 0;
        for (std::int64_t d = 0; d < D; ++d) {
          s += Q[row + d] * K[key(j) + d];
          dP[j] += dO[row + d] * V[key(j) + d];
          size_dp[j] += std::abs(dO[row + d] * V[key(j) + d]);
        }
        P[j] = scale * s;
        r.max_abs_logit = std::max(r.max_abs_logit, std::abs(P[j]));
        m = std::max(m, P[j]);
      }
      for (std::int64_t j = 0; j < Sk; ++j)
        if (sees(p.options.mask, i, j, Sq, Sk)) l += P[j] = std::exp(P[j] - m);
      for (std::int64_t j = 0; j < Sk; ++j)
        if (sees(p.options.mask, i, j, Sq, Sk)) {
          P[j] = given ? (*given)[static_cast<std::size_t>((head * Sq + i) * Sk + j)] : P[j] / l;
          delta += P[j] * dP[j], size_delta += P[j] * size_dp[j];
        }
      if (p.dlse) dlse = p.dlse[head * Sq + i];
      for (std::int64_t j = 0; j < Sk; ++j) {
        if (!sees(p.options.mask, i, j, Sq, Sk)) continue;
        dS[j] = P[j] * (dP[j] - delta + dlse);
        const double size = P[j] * (size_dp[j] + size_delta + std::abs(dlse));
        for (std::int64_t d = 0; d < D; ++d) {
          r.dq[row + d] += scale * dS[j] * K[key(j) + d];
          r.dk[key(j) + d] += scale * dS[j] * Q[row + d];
          r.dv[key(j) + d] += P[j] * dO[row + d];
          Gq[row + d] += std::abs(scale * size * K[key(j) + d]);
          Gk[key(j) + d] += std::abs(scale * size * Q[row + d]);
          Gv[key(j) + d] += std::abs(P[j] * dO[row + d]);
          add_square(r.rq, scale * dS[j] * K[key(j) + d]);
          add_square(r.rk, scale * dS[j] * Q[row + d]);
          add_square(r.rv, P[j] * dO[row + d]);
        }
      }
      if (!keep_steps) continue;
      r.p.insert(r.p.end(), P.begin(), P.end());
      r.dp.insert(r.dp.end(), dP.begin(), dP.end());
      r.ds.insert(r.ds.end(), dS.begin(), dS.end());
      r.delta.push_back(delta);
    }
  const auto norm = [](const std::vector<double>& x) {
    double sum = 0;
    for (const double y : x) sum += y * y;
    return std::sqrt(sum);
  };
  r.gq = norm(Gq);
  r.gk = norm(Gk);
  r.gv = norm(Gv);
  for (double* sum : {&r.rq, &r.rk, &r.rv}) *sum = std::sqrt(*sum);
  return r;
}

template <class T>
GradientError gradient_error(const std::vector<double>& got, const std::vector<double>& want, double g, double bar_fp32,
                             double floors, double more, double rounded) {
  double difference = 0, size = 0, rounding = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double rounded = as_double(from_float<T>(static_cast<float>(want[i])));
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    rounding += (rounded - want[i]) * (rounded - want[i]);
    size += want[i] * want[i];
  }
  GradientError e;
  const double unit = std::is_same_v<T, half> ? 0x1p-12 : 0x1p-9;
  const double often = want.size() < 16 ? 4 : want.size() < 500 ? 2 : 1.5;
  const double narrow = std::max(floors * std::sqrt(rounding), std::hypot(std::sqrt(rounding), often * unit * rounded));
  const double allowed =
      (sizeof(T) == 2 ? narrow : bar_fp32 * std::sqrt(size)) + more * std::sqrt(size) + 4 * 0x1p-24 * g;
  e.relative = ratio(difference, size);
  e.floor = ratio(rounding, size);
  e.share = difference == 0 ? 0 : std::sqrt(difference) / allowed;
  return e;
}

double floors(Input input, const Features& can, bool low_bits, bool backward) {
  const bool mean = input == Input::Uniform || input == Input::Shifted;
  const bool normal = input == Input::Normal || input == Input::Halved;
  if (can.tensor_cores && low_bits && backward && input == Input::Outliers) return 3;
  if (can.tensor_cores && low_bits && backward && (mean || input == Input::Q4 || input == Input::QKV4)) return 2;
  if (can.tensor_cores && low_bits && mean) return input == Input::Uniform ? 2 : 2.4;
  return normal ? 2 : mean ? 10 : 4;
}

template <class T>
GradientErrors gradient_errors(const GradientProblem<T>& p, const GradientReference& want, Input input,
                               const Features& can, bool backward) {
  const bool shifted = input == Input::Uniform || input == Input::Shifted;
  const double bar = 5e-6 + (input == Input::Q60 ? 4 * 0x1p-24 * want.max_abs_logit : 0);
  const double dq_bar = shifted ? 1e-4 * std::max(1.0, static_cast<double>(p.Sk()) / 1024) : bar;
  const double most = floors(input, can, p.kept.o_lo.given(), backward), rounds = backward && can.tensor_cores ? 1 : 0;
  return {gradient_error<T>(gather64(p.dq), want.dq, want.gq, dq_bar, most, 0, rounds * want.rq),
          gradient_error<T>(gather64(p.dk), want.dk, want.gk, bar, most, 0, rounds * want.rk),
          gradient_error<T>(gather64(p.dv), want.dv, want.gv, 5e-6, most, 0, rounds * want.rv)};
}

template <class T>
GradientErrors gradient_errors_beside_o(const GradientProblem<T>& p, const GradientReference& want, double error_of_o,
                                        double more, bool tensor_cores) {
  const double rounds = tensor_cores ? 1 : 0;
  return {gradient_error<T>(gather64(p.dq), want.dq, want.gq, 5e-6, 2, 4 * error_of_o + more, rounds * want.rq),
          gradient_error<T>(gather64(p.dk), want.dk, want.gk, 5e-6, 2, 4 * error_of_o + more, rounds * want.rk),
          gradient_error<T>(gather64(p.dv), want.dv, want.gv, 5e-6, 2, 2 * error_of_o, rounds * want.rv)};
}

template <class T>
WideProblem::WideProblem(const GradientProblem<T>& p)
    : rows(p.q.shape),
      keys(p.k.shape),
      q(gather64(p.q)),
      k(gather64(p.k)),
      v(gather64(p.v)),
      dout(gather64(p.dout)),
      dq(q.size()),
      dk(k.size()),
      dv(v.size()),
      options(p.options) {
  if (p.dlse) dlse.assign(p.dlse, p.dlse + rows[0] * rows[1] * rows[2]);
}

GradientProblem<double> WideProblem::problem() {
  GradientProblem<double> p;
  p.q = dense_view<const double>(q.data(), rows);
  p.k = dense_view<const double>(k.data(), keys);
  p.v = dense_view<const double>(v.data(), keys);
  p.dout = dense_view<const double>(dout.data(), rows);
  p.dq = dense_view(dq.data(), rows);
  p.dk = dense_view(dk.data(), keys);
  p.dv = dense_view(dv.data(), keys);
  if (!dlse.empty()) p.dlse = dlse.data();
  p.options = options;
  return p;
}

double WideProblem::loss() {
  const GradientProblem<double> p = problem();
  const std::int64_t Sq = rows[2], Sk = keys[2], D = rows[3];
  double sum = 0;
  for (std::int64_t head = 0; head < rows[0] * rows[1]; ++head)
    for (std::int64_t i = 0; i < Sq; ++i) {
      const double *q_i = &q[(head * Sq + i) * D], *dout_i = &dout[(head * Sq + i) * D];
      std::vector<double> e(static_cast<std::size_t>(Sk));
      double l = 0;
      for (std::int64_t j = 0; j < Sk; ++j) {
        if (!sees(options.mask, i, j, Sq, Sk)) continue;
        double s = 0;
        for (std::int64_t d = 0; d < D; ++d) s += q_i[d] * k[(head * Sk + j) * D + d];
        l += e[j] = std::exp(s * p.scale());
      }
      if (l == 0) continue;
      if (p.dlse) sum += dlse[head * Sq + i] * std::log(l);
      for (std::int64_t j = 0; j < Sk; ++j)
        for (std::int64_t d = 0; e[j] > 0 && d < D; ++d) sum += dout_i[d] * e[j] / l * v[(head * Sk + j) * D + d];
    }
  return sum;
}

std::vector<double> finite_differences(std::vector<double>& x, const std::function<double()>& f) {
  constexpr double h = 1e-5;
  std::vector<double> out;
  for (double& element : x) {
    const double before = element;
    element = before + h;
    const double up = f();
    element = before - h;
    const double down = f();
    element = before;
    out.push_back((up - down) / (2 * h));
  }
  return out;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= largest)) largest = std::abs(a[i] - b[i]);
  return largest;
}

template std::vector<double> gather64(const View<double>&);
template std::vector<double> gather64(const View<const double>&);
#define FLASH_GRADIENTS(T)                                                                                             \
  template GradientReference gradient_reference(const GradientProblem<T>&, bool, const std::vector<double>*);          \
  template GradientError gradient_error<T>(const std::vector<double>&, const std::vector<double>&, double, double,     \
                                           double, double, double);                                                    \
  template GradientErrors gradient_errors(const GradientProblem<T>&, const GradientReference&, Input, const Features&, \
                                          bool);                                                                       \
  template WideProblem::WideProblem(const GradientProblem<T>&);                                                        \
  template GradientErrors gradient_errors_beside_o(const GradientProblem<T>&, const GradientReference&, double,        \
                                                   double, bool);
FLASH_GRADIENTS(float)
FLASH_GRADIENTS(half)
FLASH_GRADIENTS(bfloat16)
template GradientReference gradient_reference(const GradientProblem<double>&, bool, const std::vector<double>*);
#undef FLASH_GRADIENTS

}  // namespace flash::test
