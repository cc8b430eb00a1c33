// backward_promises.hpp: what every backward pass promises: test cases that are compiled once (backward_promises.cpp,
// large_logits.cpp) and linked into the test of each phase that has such a pass. Here is what they are made of, for a
// phase's own test. Use:  GradientInputs<half> in(c); run_both(in, Where::Sim); examine_gradients(in, false)
#pragma once
#include "tests/gradients.hpp"
#include "tests/promises.hpp"

namespace flash::test {

inline const Features& backward_under_test() {
  return phase_under_test().backward->features;
}
// Does the forward pass keep for the backward pass what docs/backward.md says?
inline bool keeps() {
  return features_under_test().meets(Demand::Kept) && backward_under_test().meets(Demand::Kept);
}
inline std::vector<BackwardMode> modes() {
  if (!backward_under_test().meets(Demand::Atomic)) return {BackwardMode::Deterministic};
  return {BackwardMode::Deterministic, BackwardMode::Atomic};
}
inline const char* name(BackwardMode mode) {
  return mode == BackwardMode::Atomic ? "atomic" : "deterministic";
}
// The masks that both passes have; a case with a mask, a head dimension and gaps that both take.
std::vector<Mask> masks();
Case within(Case c);

inline bool both_have_type(Type type) {
  return has_type(type) && backward_under_test().types.contains(type);
}

// A case with everything that the backward pass takes and gives, each array in poison of its own.
template <class T>
struct GradientInputs {
  Inputs<T> in;
  Strided<std::int16_t> o_lo;
  Strided<T> dout, dq, dk, dv;
  std::vector<float> m, l, dlse;

  explicit GradientInputs(const Case& c);
  Problem<T> forward() { return in.problem(true); }
  // Makes the gradients poison again, for another run.
  void forget();
  // fp16 and bf16 keep O's low-order bits, fp32 has none.
  Kept kept();
  GradientProblem<T> problem(bool with_dlse = false);
};

// The forward pass for training, the backward pass, and one after the other on the same machine. They throw when the
// checked machine finds anything.
template <class T>
Run run_training(GradientInputs<T>& in, Where where, const MachineOptions& options = {});
template <class T>
Run run_backward(const GradientProblem<T>& p, Where where, BackwardMode mode = BackwardMode::Deterministic,
                 const MachineOptions& options = {});
template <class T>
Run run_both(GradientInputs<T>& in, Where where, BackwardMode mode = BackwardMode::Deterministic,
             bool with_dlse = false, const MachineOptions& options = {});

// The worst shares of their bars, as text for the log.
struct Worst {
  int cases = 0;
  double q = 0, k = 0, v = 0;
  std::string q_case, k_case, v_case;
  void note(const GradientErrors& e, const Case& c);
  std::string line() const;
};

// What is wrong with the gradients that lie in `in`; `known`: what they should be, where it is known already.
template <class T>
Complaints examine_gradients(GradientInputs<T>& in, bool with_dlse, Worst* worst = nullptr,
                             const GradientReference* known = nullptr);

// How Q and K are made large (large_logits.cpp).
enum class Large {
  Spread,  // N(0, size): logits as large as `size`, of both signs; a key or two take all
  Offset,  // one feature adds `size` to the logits of N(0,1): all keys count, as far as fp32 can tell them apart
  Signs    // each number is +size or -size: equal logits are exactly equal, and many are
};
struct LargeCase {
  Large large;
  float size;
  Case c;
};
std::string text(const LargeCase& l);
// Each size of logits with each kind of inputs, masks and ragged shapes going round.
std::vector<LargeCase> large_cases();
template <class T>
void make_large(GradientInputs<T>& in, const LargeCase& l);

}  // namespace flash::test
