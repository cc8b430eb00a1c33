// gradients.hpp: what a backward pass takes: the forward's inputs and results, dO, and room for dQ, dK, dV.
// Plain pointers, sizes and strides like problem.hpp; shared by all phases that have gradients.
// Use:  GradientProblem<float> p{q, k, v, o, kept, dout, dq, dk, dv, lse};  backward(phase, p, Where::Sim);
#pragma once
#include "phases/interface/problem.hpp"

namespace flash {

// How dQ is summed over the keys. Deterministic: each row by its own block, same input, same bits. Atomic: in the pass
// that makes dK and dV, by atomic additions in whatever order they come; 5 matrix products in place of 7.
enum class BackwardMode { Deterministic, Atomic };

// What the training forward pass keeps for the backward pass, beside O and LSE: with it the backward pass works with
// the P and the δ that the forward pass had. What is null is not kept; docs/backward.md says what that costs.
struct Kept {
  View<std::int16_t> o_lo;  // [B, H, Sq, D], what rounding took from O; fp16 and bf16 only
  float* m = nullptr;       // [B, H, Sq] dense, the row's largest logit, in base 2: max_j S_ij · log2 e
  float* l = nullptr;       // [B, H, Sq] dense, Σ_j exp2(S_ij · log2 e - m_i); m and l go together
};

template <class T>
struct GradientProblem {
  View<const T> q;              // [B, H, Sq, D]
  View<const T> k, v;           // [B, H, Sk, D]
  View<const T> o;              // [B, H, Sq, D], as the forward pass wrote it
  Kept kept;                    // as forward_training filled it; only read
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
  // The forward problem whose gradients are asked for. Its O is only looked at.
  Problem<T> forward() const { return {q, k, v, View<T>{const_cast<T*>(o.data), o.shape, o.stride}, nullptr, options}; }
  float scale() const { return forward().scale(); }
  KeyRange<std::int64_t> visible(std::int64_t i) const { return forward().visible(i); }
};

inline void check_backward(const Features& can) {
  if (!can.backward)
    refuse("backward", "wanted", std::string("none from phase ") + can.phase,
           "choose a phase that has it: ./flash help");
}

// Checks what is kept for a problem with this Q.
inline void validate(const Kept& kept, const AnyView& q, bool two_bytes, const char* type) {
  if (!kept.m != !kept.l)
    refuse(kept.m ? "l" : "m", "null", std::string("a pointer beside ") + (kept.m ? "m" : "l"), "keep both or neither");
  if (!kept.o_lo.data) return;
  if (!two_bytes) refuse("O_lo", "given", std::string("none for ") + type, "omit it: O itself is precise enough");
  check_view("O_lo", kept.o_lo);
  for (int i : {0, 1, 2, 3}) check_size("O_lo", kept.o_lo, i, "Q", q.shape[i]);
  check_written("O_lo", kept.o_lo);
}
template <class T>
void validate(const Kept& kept, const View<const T>& q) {
  validate(kept, q, sizeof(T) == 2, type_name<T>());
}

// Checks sizes, strides and options; throws Error with one line. Reads no element, writes nothing.
// The naive backward repeats the forward pass and needs neither O nor LSE.
template <class T>
void validate(const GradientProblem<T>& p, const Features& can, bool needs_forward = true) {
  const auto check_like = [](const char* name, const AnyView& view, const char* other, const AnyView& want) {
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
  validate(forward, can);
  validate(p.kept, p.q);
  if (needs_forward && !p.lse && !p.kept.m && p.q.elements() > 0)
    refuse("LSE's data", "null", "a pointer", "run forward_training with LSE, or with m and l, first");
}

}  // namespace flash
