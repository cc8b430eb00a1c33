// training_gradients.hpp: are the gradients right that another phase's backward pass makes of what this one's forward
// pass kept? For phases on tensor cores without a backward pass of their own: where V has a mean, dQ shows at once
// whether O, its low bits, m and l belong together (docs/backward.md).
// Use: check_training_gradients<half>(phase13::phase, phase09::phase);
#pragma once
#include "tests/gradients.hpp"
#include "tests/promises.hpp"

namespace flash::test {

template <class T>
void check_training_gradients(const Phase& forward, const Phase& backward) {
  const Features& can = forward.forward->features;
  for (const Input input : {Input::Normal, Input::Uniform, Input::Shifted, Input::Outliers})
    for (const int D : can.head_dims) {
      if (D > 128) continue;  // fp32's dot products of a backward pass on CUDA cores take their time
      const Case c{
          .B = 1, .H = 2, .Sq = 150, .Sk = 130, .D = D, .input = input, .mask = Mask::top_left(), .granule = 8};
      INFO(text(c));
      Inputs<T> in(c);
      const std::array<std::int64_t, 4> rows{c.B, c.H, c.Sq, c.D}, keys{c.B, c.H, c.Sk, c.D};
      Strided<std::int16_t> o_lo(rows, Layout::Dense, 1);
      Strided<T> dout(rows, Layout::Dense, 2), dq(rows, Layout::Dense, 3), dk(keys, Layout::Dense, 0),
          dv(keys, Layout::Dense, 2);
      const Random random(7, 3);
      dout.fill(c.Sq, [&](std::uint64_t i, std::int64_t) {
        return draw(random, input == Input::Uniform ? Distribution::Uniform : Distribution::Normal, i);
      });
      std::vector<float> m(static_cast<std::size_t>(c.H * c.Sq)), l(m);
      const Kept kept{o_lo.view, m.data(), l.data()};
      const Problem<T> p = with_listed_blocks(in.problem(true), can);
      flash::forward_training(forward, p, kept, Where::Sim);
      const GradientProblem<T> g{p.q,     p.k,     p.v,     p.o,   kept,    dout.view,
                                 dq.view, dk.view, dv.view, p.lse, nullptr, {.mask = c.mask}};
      flash::backward(backward, g, Where::Sim);
      const GradientErrors errors = gradient_errors(g, gradient_reference(g), input, can, false);
      CHECK(errors.dq.share <= 1);
      CHECK(errors.dk.share <= 1);
      CHECK(errors.dv.share <= 1);
    }
}

}  // namespace flash::test
