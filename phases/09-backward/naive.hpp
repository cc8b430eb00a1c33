// The backward pass as the derivation reads (docs/backward.md), in Eigen: P, dP and dS are whole matrices in HBM.
// First step of phase 09, as phase 01 is of the forward pass. In fp64 too, for the gradient check.
// Run it: ./flash tour 09     Test it: ./flash test 09
#pragma once
#include "phases/09-backward/phase.hpp"

namespace flash::phase09 {

// Where δ_i = Σ_j P_ij dP_ij = Σ_d dO_id O_id comes from. On paper the two sums are equal.
enum class Delta {
  FromP,  // δ = rowsum(P ∘ dP): two matrices of N² numbers
  FromO,  // δ = rowsum(dO ∘ O) of the O that the problem brings, with its low-order bits if those were kept
};

// dQ, dK, dV for each of the B·H heads. Returns what it cost. Seven kernels, each reading its inputs once and writing
// its result once: S | P | dV | dP | dS | dQ | dK.
// T: float, half, bfloat16, or double, which is calculated in fp64.
template <class T>
Ledger naive_backward(const GradientProblem<T>& p, Delta delta_from = Delta::FromP);

}  // namespace flash::phase09
