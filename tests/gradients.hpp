// gradients.hpp: what the backward pass should give, in fp64 with plain loops, and how far a gradient may be from it.
// Shares no code with phase 09 (not even the mask or the scale); the bars are the contract's, NaN fails.
// Use: GradientReference want = gradient_reference(problem);  GradientErrors e = gradient_errors(problem, want);
#pragma once
#include <cmath>
#include <vector>

#include "phases/interface/problem.hpp"
#include "tests/contract.hpp"

namespace flash::test {

template <class T>
double as_double(T x) {
  if constexpr (std::is_same_v<T, double>) return x;
  // g++ would make one conversion of two, and from half to double that is a call of a function, not an instruction.
  const volatile float narrow = to_float(x);
  return static_cast<double>(narrow);
}

// A strided tensor as dense fp64, without a detour through fp32.
template <class T>
std::vector<double> gather64(const View<T>& x);

// The exact gradients of the inputs as stored, and for each the norm of G: the same sums with every term positive, dP's
// and δ's too. A dot product's error goes by that sum, not by its result, which may cancel (docs/conventions.md).
struct GradientReference {
  std::vector<double> dq, dk, dv;  // dense
  double max_abs_logit = 0;        // as in the forward pass's reference
  double gq = 0, gk = 0, gv = 0;   // ‖G‖ of dQ, dK, dV
  // The root of the sum of the squares of all terms: what errors of chance in P and dS become, each in proportion to
  // its number.
  double rq = 0, rk = 0, rv = 0;
  std::vector<double> p, dp, delta, ds;  // [B, H, Sq, Sk]; delta [B, H, Sq]: the steps, for the derivation's tests
};

// Straight from docs/backward.md, one number at a time. O and LSE are computed here, not taken from the problem; P too,
// unless `given` says what the forward pass had, [B, H, Sq, Sk].
template <class T>
GradientReference gradient_reference(const GradientProblem<T>& p, bool keep_steps = false,
                                     const std::vector<double>* given = nullptr);

struct GradientError {
  double relative = 0;  // ‖got - want‖ / ‖want‖
  double share = 0;     // ‖got - want‖ / what is allowed: at most 1, and NaN is not
  double floor = 0;     // relative error of the exact gradient rounded to T
};

// ‖got - want‖ against bar·‖want‖ + 4·2^-24·‖G‖, all as the contract words it; `more` is added to either type's bar.
// `rounded`: of a backward pass on tensor cores the root of the sum of squares of the terms, else 0. There P and dS are
// rounded to T before the products, and where a gradient cancels these errors remain. The root of the sum of squares of
// two such roundings, dS's and that of the forward pass's P, is √2 · 0.85 · u of `rounded`, u = 2^-12 in fp16 and 2^-9
// in bf16. 1.5 is allowed instead of 1.2, and 2 below 500 numbers, too few to average; beside them the gradient's own
// rounding.
template <class T>
GradientError gradient_error(const std::vector<double>& got, const std::vector<double>& want, double g, double bar_fp32,
                             double floors, double more = 0, double rounded = 0);

struct GradientErrors {
  GradientError dq, dk, dv;
  double worst_share() const {  // NaN if any is
    double worst = 0;
    for (const GradientError* e : {&dq, &dk, &dv})
      if (!std::isnan(worst) && !(e->share <= worst)) worst = e->share;
    return worst;
  }
};

// How many rounding floors fp16 and bf16 may be away: 2 for N(0,1), 10 where a mean makes dP and δ nearly equal; 4.
// A forward pass on tensor cores (`backward` false) that keeps O's low bits is held to 2 floors where there is a mean,
// for N(1,1) to 2.4; a backward pass that gets them to 2 there and for large logits, to 3 with outliers; one
// that does not sum dS's rows to 2.4 for uniform[0,1), of which rounding dS is 2.24.
double floors(Input input, const Features& can, bool low_bits, bool backward = true);

// dQ, dK, dV as they are now in the problem's memory, against fp64. With the large logits of Q*60, dQ and dK get in
// fp32 what O is allowed for them, 4·2^-24·max|S|: P is exp of a number that fp32 rounds to 2^-24 of its size.
// `can`: the features of the pass; of a backward pass `backward`, which may have tensor cores of its own.
template <class T>
GradientErrors gradient_errors(const GradientProblem<T>& p, const GradientReference& want, Input input,
                               const Features& can, bool backward = true);

// At large logits fp32 itself limits P, in the forward pass as in the backward pass. Beside the contract's bar dV may
// be twice as far off as O was in the same run, dQ and dK four times, `more` on top.
template <class T>
GradientErrors gradient_errors_beside_o(const GradientProblem<T>& p, const GradientReference& want, double error_of_o,
                                        double more = 0, bool tensor_cores = false);

// A problem's numbers in fp64, dense, with room for the gradients: each can be moved a little, for finite differences.
struct WideProblem {
  std::array<std::int64_t, 4> rows, keys;
  std::vector<double> q, k, v, dout, dq, dk, dv;
  std::vector<float> dlse;
  Options options;

  template <class T>
  explicit WideProblem(const GradientProblem<T>& p);
  GradientProblem<double> problem();
  // L = Σ dO ∘ O + Σ dLSE ∘ LSE, whose gradients with respect to O and LSE are dO and dLSE. For ordinary logits.
  double loss();
};

// (f(x + h) - f(x - h)) / 2h for each element of x.
std::vector<double> finite_differences(std::vector<double>& x, const std::function<double()>& f);
double largest_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace flash::test
