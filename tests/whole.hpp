// whole.hpp: what attention with everything that a problem may ask should give: fp64, whole matrices, one head of one
// sequence after another. A reading of docs/conventions.md of its own, which shares no code with phases/definition.
// Use: const Whole want(problem);  want.o, want.dq …;  WideInputs(problem).loss() for finite differences.
#pragma once
#include <vector>

#include "phases/interface/problem.hpp"

namespace flash::test {

// A problem's numbers in fp64, dense, each in the shape that it has there: they can be moved for finite differences.
struct WideInputs {
  Shape shape;
  Options options;
  double scale;
  bool packed;
  bool rounds_o;  // a backward pass gets O without its low bits
  std::vector<double> q, k, v, dout, dlse, slopes, bias, sinks;  // what is not given is empty
  std::vector<double> allowed, document_q, document_k, blocks;
  std::array<std::int64_t, 4> slopes_shape, bias_shape, allowed_shape, documents_shape, blocks_shape;
  std::vector<double> ends_q, ends_k, used_q, used_k;

  explicit WideInputs(const AnyProblem& p);
  // L = Σ dO ∘ O + Σ dLSE ∘ LSE, whose gradients with respect to O and LSE are dO and dLSE.
  double loss() const;
};

// The exact answer, dense, in the shapes of the problem's arrays. Rows and keys of no sequence: 0, LSE -inf.
struct Whole {
  std::vector<double> o, lse, dq, dk, dv, dbias, dsinks;
  double max_abs_logit = 0;
  // Of each gradient the norm of its formula with every term positive; and the root of the sum of the terms' squares,
  // which errors of chance in P and dS are in proportion to.
  struct Size {
    double g = 0, r = 0;
  };
  Size size_q, size_k, size_v, size_bias, size_sinks;

  explicit Whole(const WideInputs& in);  // gradients where dO is there
  explicit Whole(const AnyProblem& p) : Whole(WideInputs(p)) {}
};

// Is P_ij of sequence n, head h multiplied by V?
bool is_kept(const Dropout& dropout, std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t j);

}  // namespace flash::test
