// large_logits.cpp: what every backward pass promises where logits are large and m and l were kept: its P is the
// forward pass's (docs/backward.md, "P must be the forward's"). Beside backward_promises.cpp, for the phase under test.
// ./flash test 09
#include <sstream>

#include "tests/backward_promises.hpp"

namespace flash::test {

std::string text(const LargeCase& l) {
  static constexpr const char* names[] = {"spread", "offset", "signs"};
  std::ostringstream s;
  s << names[static_cast<int>(l.large)] << " " << l.size << " " << text(l.c);
  return s.str();
}

std::vector<LargeCase> large_cases() {
  std::vector<LargeCase> cases;
  const Case shapes[] = {{.B = 1, .H = 2, .Sq = 70, .Sk = 83, .D = 64, .mask = Mask::none()},
                         {.B = 2, .H = 1, .Sq = 61, .Sk = 50, .D = 40, .mask = Mask::top_left()},
                         {.B = 1, .H = 2, .Sq = 50, .Sk = 131, .D = 33, .mask = Mask::bottom_right()}};
  for (const auto& [large, size] : {std::pair{Large::Spread, 1e3f},
                                    {Large::Spread, 1e4f},
                                    {Large::Spread, 1e6f},
                                    {Large::Offset, 1e3f},
                                    {Large::Offset, 1e4f},
                                    {Large::Offset, 1e6f},
                                    {Large::Signs, 1e4f}}) {
    // The forward passes on tensor cores subtract m before they scale, and keep it scaled and rounded: by 2^-24 of
    // 1e6, which is 6 % of P. Their m tells P up to logits of 1e4, or where one key takes all.
    if (large == Large::Offset && size > 1e4f && features_under_test().tensor_cores) continue;
    Case c = shapes[cases.size() % std::size(shapes)];
    c.seed = cases.size() + 1, c.layout = Layout::Mixed;
    cases.push_back({large, size, within(c)});
  }
  return cases;
}

template <class T>
void make_large(GradientInputs<T>& in, const LargeCase& l) {
  const Case& c = in.in.c;
  const Random of_q(c.seed, 0), of_k(c.seed, 1);
  const float feature = std::sqrt(l.size * std::sqrt(static_cast<float>(c.D)));
  const auto value = [&](const Random& random, std::uint64_t i) {
    const float x = random.normal(i);
    if (l.large == Large::Spread) return std::sqrt(l.size) * x;
    if (l.large == Large::Signs) return std::copysign(l.size, x);
    return i % static_cast<std::uint64_t>(c.D) == 0 ? feature : x;
  };
  in.in.q.fill(c.Sq, [&](std::uint64_t i, std::int64_t) { return value(of_q, i); });
  in.in.k.fill(c.Sk, [&](std::uint64_t i, std::int64_t) { return value(of_k, i); });
}

template void make_large(GradientInputs<float>&, const LargeCase&);
template void make_large(GradientInputs<half>&, const LargeCase&);
template void make_large(GradientInputs<bfloat16>&, const LargeCase&);

namespace {
// By how much rounding to T may change a number, relative to it.
template <class T>
constexpr double rounding = std::is_same_v<T, float>  ? 0x1p-24
                            : std::is_same_v<T, half> ? 0x1p-11
                                                      : 0x1p-8;

// The P of the backward pass, [B, H, Sq, Sk]: dV = Pᵀ dO, and where dO has its only 1 of column d in row i, column d of
// dV is row i of P. D rows at a time.
template <class T>
std::vector<double> p_of_backward(GradientInputs<T>& in, BackwardMode mode, const Kept& kept) {
  const Case& c = in.in.c;
  std::vector<double> P(static_cast<std::size_t>(c.B * c.H * c.Sq * c.Sk));
  GradientProblem<T> p = in.problem();
  p.kept = kept;
  for (std::int64_t first = 0; first < c.Sq; first += c.D) {
    in.dout.fill(c.Sq, [&](std::uint64_t i, std::int64_t row) {
      return row - first == static_cast<std::int64_t>(i) % c.D ? 1.0f : 0.0f;
    });
    run_backward(p, Where::Sim, mode);
    for (std::int64_t head = 0; head < c.B * c.H; ++head)
      for (std::int64_t i = first; i < std::min(first + c.D, c.Sq); ++i)
        for (std::int64_t j = 0; j < c.Sk; ++j)
          P[(head * c.Sq + i) * c.Sk + j] = to_float(in.dv.view.row(head / c.H, head % c.H, j)[i - first]);
  }
  return P;
}

// The P of the forward pass: O = P V, and where V has its only 1 of column d in row j, column d of O is column j of P.
// Leaves in `in` what the forward pass writes beside O.
template <class T>
std::vector<double> p_of_forward(GradientInputs<T>& in) {
  const Case& c = in.in.c;
  std::vector<double> P(static_cast<std::size_t>(c.B * c.H * c.Sq * c.Sk));
  for (std::int64_t first = 0; first < c.Sk; first += c.D) {
    in.in.v.fill(c.Sk, [&](std::uint64_t i, std::int64_t row) {
      return row - first == static_cast<std::int64_t>(i) % c.D ? 1.0f : 0.0f;
    });
    run_training(in, Where::Sim);
    for (std::int64_t head = 0; head < c.B * c.H; ++head)
      for (std::int64_t i = 0; i < c.Sq; ++i)
        for (std::int64_t j = first; j < std::min(first + c.D, c.Sk); ++j)
          P[(head * c.Sq + i) * c.Sk + j] = to_float(in.in.o.view.row(head / c.H, head % c.H, i)[j - first]);
  }
  return P;
}

// How far the sum of a row of P is from 1, at worst; rows that see no key aside.
double worst_row_sum(const std::vector<double>& P, const Case& c) {
  double worst = 0;
  for (std::int64_t row = 0; row < c.B * c.H * c.Sq; ++row) {
    if (!sees(c.mask, row % c.Sq, 0, c.Sq, c.Sk)) continue;
    double sum = 0;
    for (std::int64_t j = 0; j < c.Sk; ++j) sum += P[row * c.Sk + j];
    if (!(std::abs(sum - 1) <= worst)) worst = std::abs(sum - 1);
  }
  return worst;
}
// Of the types that both passes have, the one that hides least.
bool widest_type(Type type) {
  return both_have_type(type) && (type == Type::Float32 || !both_have_type(Type::Float32));
}
}  // namespace

// P itself: each row sums to 1, and each element is the forward pass's. fp32 shows it best. In the other types O and dV
// are rounded, and so may P be before either product: tried only where a phase has no fp32.
TEST_CASE_TEMPLATE("large logits: the backward pass has the forward's P, whose rows sum to 1" * only_if(widest_type) *
                       only_if(keeps()),
                   T, float, half, bfloat16) {
  constexpr bool wide = std::is_same_v<T, float>;
  const double more = wide ? 0 : 2 * rounding<T>;  // P's rounding, and that of O or dV
  double worst_kept = 0, worst_alone = 0, worst_element = 0;
  for (const LargeCase& l : large_cases()) {
    GradientInputs<T> in(l.c);
    make_large(in, l);
    const std::vector<double> forward = p_of_forward(in);
    for (const BackwardMode mode : modes()) {
      INFO(text(l) << " " << std::string(name(mode)));
      const std::vector<double> P = p_of_backward(in, mode, in.kept());
      const double off = worst_row_sum(P, l.c);
      CHECK(off <= 1e-6 + more);
      int different = 0;
      for (std::size_t i = 0; i < P.size(); ++i) {
        different += !(std::abs(P[i] - forward[i]) <= 1e-6 + 2 * more * forward[i]);
        worst_element = std::max(worst_element, std::abs(P[i] - forward[i]));
      }
      CHECK(different == 0);
      worst_kept = std::max(worst_kept, off);
      worst_alone = std::max(worst_alone, worst_row_sum(p_of_backward(in, mode, {}), l.c));
    }
  }
  MESSAGE("row sums of P are off by " << worst_kept << " at most, elements by " << worst_element
                                      << "; from LSE alone the sums are off by " << worst_alone);
  CHECK_FALSE(worst_alone <= 1e-2);  // or these logits would prove nothing
}

// Inputs that fp16 and bf16 hold give them the P that fp32 has: what they store of dV is the rounded fp32. On tensor
// cores P itself is rounded.
TEST_CASE_TEMPLATE("large logits: fp16 and bf16 have the P of fp32" *
                       only_if(!features_under_test().tensor_cores && !backward_under_test().tensor_cores) *
                       only_if(both_have_type(flash::Type::Float32)) * only_if(both_have_type) * only_if(keeps()),
                   T, half, bfloat16) {
  for (const LargeCase& l : large_cases()) {
    INFO(text(l));
    GradientInputs<T> in(l.c);
    make_large(in, l);
    GradientInputs<float> wide(l.c);
    const auto copy = [&](const View<T>& from, const View<float>& to) {
      for (std::int64_t head = 0; head < l.c.B * l.c.H; ++head)
        for (std::int64_t s = 0; s < from.S(); ++s)
          for (std::int64_t d = 0; d < l.c.D; ++d)
            to.row(head / l.c.H, head % l.c.H, s)[d] = to_float(from.row(head / l.c.H, head % l.c.H, s)[d]);
    };
    copy(in.in.q.view, wide.in.q.view), copy(in.in.k.view, wide.in.k.view), copy(in.in.v.view, wide.in.v.view);
    copy(in.dout.view, wide.dout.view);
    run_both(in, Where::Sim);
    run_both(wide, Where::Sim);
    CHECK(same_bits(in.m, wide.m));
    CHECK(same_bits(in.l, wide.l));
    int different = 0;
    for (std::int64_t head = 0; head < l.c.B * l.c.H; ++head)
      for (std::int64_t j = 0; j < l.c.Sk; ++j)
        for (std::int64_t d = 0; d < l.c.D; ++d)
          different += !(to_float(in.dv.view.row(head / l.c.H, head % l.c.H, j)[d]) ==
                         to_float(from_float<T>(wide.dv.view.row(head / l.c.H, head % l.c.H, j)[d])));
    CHECK(different == 0);
  }
}

// The gradients are those of the forward pass's P: in fp64 from that very P they differ by the contract's bar alone. O
// tells P exactly in fp32 alone.
TEST_CASE("large logits: the gradients are those of the forward's P" * only_if(both_have_type(Type::Float32)) *
          only_if(keeps())) {
  for (const LargeCase& l : large_cases())
    for (const BackwardMode mode : modes()) {
      INFO(text(l) << " " << std::string(name(mode)));
      GradientInputs<float> of_p(l.c), in(l.c);
      make_large(of_p, l), make_large(in, l);
      const std::vector<double> P = p_of_forward(of_p);
      run_both(in, Where::Sim, mode, true);
      const GradientProblem<float> p = in.problem(true);
      CHECK(gradient_errors_beside_o(p, gradient_reference(p, false, &P), 0).worst_share() <= 1);
    }
}

// And so they are about as right as O is. A spread of logits leaves one key, or two that are nearly equal: there fp32's
// rounding of the logits is all of dQ and dK and little of O, and they are allowed what O is allowed for such logits.
// From LSE alone the bar must be missed, or this test could not tell the difference.
TEST_CASE_TEMPLATE("large logits: dV, dQ and dK are as precise as O" * only_if(both_have_type) * only_if(keeps()), T,
                   float, half, bfloat16) {
  double worst = 0, worst_alone = 0;
  for (const LargeCase& l : large_cases()) {
    const BackwardMode mode = l.c.seed % 2 ? modes().front() : modes().back();
    const bool with_dlse = l.c.seed / 2 % 2 == 1;
    GradientInputs<T> in(l.c);
    make_large(in, l);
    run_both(in, Where::Sim, mode, with_dlse);
    GradientProblem<T> p = in.problem(with_dlse);
    const GradientReference want = gradient_reference(p);
    const double error_of_o = distance(gather(in.in.o.view), reference(in.forward()).o, l.c.D).relative;
    const double more = l.large == Large::Spread ? 4 * 0x1p-24 * want.max_abs_logit : 0;
    const GradientErrors ours = gradient_errors_beside_o(p, want, error_of_o, more, backward_under_test().tensor_cores);
    p.kept.m = p.kept.l = nullptr;
    run_backward(p, Where::Sim, mode);
    const GradientErrors alone =
        gradient_errors_beside_o(p, want, error_of_o, more, backward_under_test().tensor_cores);
    INFO(type_name<T>() << " " << text(l) << ": O is off by " << error_of_o << ", dQ " << ours.dq.relative << ", dK "
                        << ours.dk.relative << ", dV " << ours.dv.relative << "; from LSE alone " << alone.dq.relative
                        << ", " << alone.dk.relative << ", " << alone.dv.relative);
    CHECK(ours.worst_share() <= 1);
    if (!(ours.worst_share() <= worst)) worst = ours.worst_share();
    if (!(alone.worst_share() <= worst_alone)) worst_alone = alone.worst_share();
  }
  MESSAGE(std::string(type_name<T>()) << ": of the bar " << worst << " at most; from LSE alone " << worst_alone);
  CHECK_FALSE(worst_alone <= 10);
}

}  // namespace flash::test
