// What the backward pass takes: the forward's inputs and results, dO, and room for dQ, dK, dV.
// Plain pointers, sizes and strides like phases/common/problem.hpp; shared by the naive backward and the kernels.
// Use:  GradientProblem<float> p{q, k, v, o, {}, dout, dq, dk, dv, lse};  phase09::backward(p, Where::Sim);
#pragma once
#include "phases/common/problem.hpp"

namespace flash::phase09 {

inline constexpr Features features{.phase = "09-backward", .causal = true, .lse = true};

// How dQ is summed over the keys. Deterministic: each row by its own block, same input, same bits. Atomic: in the pass
// that makes dK and dV, by atomic additions in whatever order they come; 5 matrix products in place of 7.
enum class Mode { Deterministic, Atomic };

template <class T>
struct GradientProblem {
  View<const T> q;                // [B, H, Sq, D]
  View<const T> k, v;             // [B, H, Sk, D]
  View<const T> o;                // [B, H, Sq, D], as the forward pass wrote it
  View<const std::int16_t> o_lo;  // [B, H, Sq, D], what rounding took from O (forward_training); no data: not kept
  View<const T> dout;             // [B, H, Sq, D], dO: the gradient of the loss with respect to O
  View<T> dq;                     // [B, H, Sq, D]
  View<T> dk, dv;                 // [B, H, Sk, D]
  const float* lse = nullptr;     // [B, H, Sq] dense, natural log
  const float* dlse = nullptr;    // [B, H, Sq] dense, the gradient with respect to LSE; nullptr: zero
  Options options;

  std::int64_t B() const { return q.B(); }
  std::int64_t H() const { return q.H(); }
  std::int64_t Sq() const { return q.S(); }
  std::int64_t Sk() const { return k.S(); }
  std::int64_t D() const { return q.D(); }
  // The forward problem whose gradients are asked for. Its O is only looked at.
  Problem<T> forward() const { return {q, k, v, View<T>{const_cast<T*>(o.data), o.shape, o.stride}, nullptr, options}; }
  float scale() const { return forward().scale(); }
  std::int64_t visible(std::int64_t i) const { return forward().visible(i); }
};

// Checks sizes, strides and options; throws Error with one line. Reads no element, writes nothing.
// The naive backward repeats the forward pass and needs neither O nor LSE.
template <class T>
void validate(const GradientProblem<T>& p, bool needs_forward = true) {
  const auto check_like = [](const char* name, const auto& view, const char* other, const auto& want) {
    check_view(name, view);
    for (int i : {0, 1, 2, 3}) check_size(name, view, i, other, want.shape[i]);
  };
  check_like("dO", p.dout, "Q", p.q);
  check_like("dQ", p.dq, "Q", p.q);
  check_like("dK", p.dk, "K", p.k);
  check_like("dV", p.dv, "V", p.v);
  check_written("dQ", p.dq);
  check_written("dK", p.dk);
  check_written("dV", p.dv);
  Problem<T> forward = p.forward();
  if (!needs_forward) forward.o = p.dq;
  flash::validate(forward, features);
  if (p.o_lo.data) check_like("O_lo", p.o_lo, "Q", p.q);
  if (p.o_lo.data && sizeof(T) != 2)
    refuse("O_lo", "given", std::string("none for ") + type_name<T>(), "omit it: O itself is precise enough");
  if (needs_forward && !p.lse && p.q.elements() > 0)
    refuse("LSE's data", "null", "a pointer", "run forward_training with LSE first");
}

}  // namespace flash::phase09
