// main.cpp: attention in another project: one call of phase 04 on plain arrays, and a check of its result.
// With Q = 0 every key weighs the same: O is the mean of V, and LSE is log of the number of keys.
// Run by CTest: ctest --test-dir build/default -L install
#include <cmath>
#include <cstdio>
#include <vector>

#include "phases/04-tiled-v2/attention.hpp"

int main() {
  const std::int64_t B = 1, H = 2, Sq = 3, Sk = 100, D = 8;
  std::vector<float> q(B * H * Sq * D, 0), k(B * H * Sk * D, 1), v(B * H * Sk * D), o(q.size()), lse(B * H * Sq);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i / D % Sk);  // row j holds j

  flash::Problem<float> problem;
  problem.q = flash::dense_view<const float>(q.data(), {B, H, Sq, D});
  problem.k = flash::dense_view<const float>(k.data(), {B, H, Sk, D});
  problem.v = flash::dense_view<const float>(v.data(), {B, H, Sk, D});
  problem.o = flash::dense_view(o.data(), {B, H, Sq, D});
  problem.lse = lse.data();
  flash::phase04::attention(problem);

  float worst = 0;
  for (float x : o) worst = std::fmax(worst, std::fabs(x - 49.5f));
  for (float x : lse) worst = std::fmax(worst, std::fabs(x - std::log(100.0f)));
  std::printf("O = %g, LSE = %g, worst error %g\n", o[0], lse[0], worst);
  return !(worst <= 1e-4f);
}
