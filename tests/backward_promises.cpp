// backward_promises.cpp: the promises of docs/conventions.md and docs/backward.md that all backward passes give, as
// test cases for the phase under test: against fp64 and finite differences, bits, masks, bytes and bad input. Which
// cases are tried is chosen by the features of its passes. Compiled once, linked into the test of each such phase.
// ./flash test 09 runs them for phase 09, beside phase_09_test.cpp.
#include "tests/backward_promises.hpp"

#include <bit>
#include <sstream>

namespace flash::test {

void backward_promises() {}

std::vector<Mask> masks() {
  if (!features_under_test().meets(Demand::Causal) || !backward_under_test().meets(Demand::Causal))
    return {Mask::none()};
  return {Mask::none(), Mask::top_left(), Mask::bottom_right()};
}

Case within(Case c) {
  const Features &forward = features_under_test(), &backward = backward_under_test();
  if (masks().size() == 1) c.mask = Mask::none();
  c.granule = std::max(granule(forward), granule(backward));
  c.D = std::min<std::int64_t>({c.D, forward.largest_D(), backward.largest_D()});
  c.D = (c.D + c.granule - 1) / c.granule * c.granule;
  return c;
}

template <class T>
GradientInputs<T>::GradientInputs(const Case& c)
    : in(c),
      o_lo({c.B, c.H, c.Sq, c.D}, c.layout, 1, c.granule),
      dout({c.B, c.H, c.Sq, c.D}, c.layout, 2, c.granule),
      dq({c.B, c.H, c.Sq, c.D}, c.layout, 3, c.granule),
      dk({c.B, c.H, c.Sk, c.D}, c.layout, 0, c.granule),
      dv({c.B, c.H, c.Sk, c.D}, c.layout, 2, c.granule),
      m(static_cast<std::size_t>(c.B * c.H * c.Sq + 1), NAN),  // + 1: never a null pointer
      l(m) {
  const Random random(c.seed, 3), random_lse(c.seed, 4);
  const Distribution d = c.input == Input::Uniform    ? Distribution::Uniform
                         : c.input == Input::Shifted  ? Distribution::Shifted
                         : c.input == Input::Outliers ? Distribution::Outliers
                                                      : Distribution::Normal;
  dout.fill(c.Sq, [&](std::uint64_t i, std::int64_t) { return draw(random, d, i); });
  for (std::int64_t i = 0; i < c.B * c.H * c.Sq; ++i) dlse.push_back(random_lse.normal(static_cast<std::uint64_t>(i)));
}

template <class T>
void GradientInputs<T>::forget() {
  for (Strided<T>* x : {&dq, &dk, &dv}) fill_with_poison(x->memory.data(), x->memory.size() * sizeof(T));
}

template <class T>
Kept GradientInputs<T>::kept() {
  if (!keeps()) return {};
  return {sizeof(T) == 2 ? o_lo.view : View<std::int16_t>{}, m.data(), l.data()};
}

template <class T>
GradientProblem<T> GradientInputs<T>::problem(bool with_dlse) {
  const Problem<T> f = forward();
  return {
      f.q,      f.k, f.v, f.o, kept(), dout.view, dq.view, dk.view, dv.view, f.lse, with_dlse ? dlse.data() : nullptr,
      f.options};
}

template <class T>
Run run_training(GradientInputs<T>& in, Where where, const MachineOptions& options) {
  const Problem<T> p = with_listed_blocks(in.forward(), features_under_test());
  return flash::forward_training(phase_under_test(), p, in.kept(), where, options);
}

template <class T>
Run run_backward(const GradientProblem<T>& p, Where where, BackwardMode mode, const MachineOptions& options) {
  const GradientProblem<T> listed = with_listed_blocks(p, backward_under_test());
  return flash::backward(phase_under_test(), listed, where, options, mode);
}

template <class T>
Run run_both(GradientInputs<T>& in, Where where, BackwardMode mode, bool with_dlse, const MachineOptions& options) {
  run_training(in, where, options);
  return run_backward(in.problem(with_dlse), where, mode, options);
}

void Worst::note(const GradientErrors& e, const Case& c) {
  ++cases;
  const auto keep = [&](double share, double& worst, std::string& where) {
    if (!(share <= worst)) worst = share, where = text(c);
  };
  keep(e.dq.share, q, q_case), keep(e.dk.share, k, k_case), keep(e.dv.share, v, v_case);
}

std::string Worst::line() const {
  std::ostringstream s;
  s.precision(2);
  s << cases << " cases; of its bar dQ reaches at most " << q << " (" << q_case << "), dK " << k << " (" << k_case
    << "), dV " << v << " (" << v_case << ")";
  return s.str();
}

template <class T>
Complaints examine_gradients(GradientInputs<T>& in, bool with_dlse, Worst* worst, const GradientReference* known) {
  Complaints complaints;
  const Case& c = in.in.c;
  const auto complain = [&](const std::string& what) {
    complaints.push_back(std::string(type_name<T>()) + " " + text(c) + ": " + what);
  };
  const GradientProblem<T> p = in.problem(with_dlse);
  const GradientReference want = known ? *known : gradient_reference(p);
  if (c.input != Input::LowEqual && c.input != Input::LowVaried && c.input != Input::Denormals) {  // these have no bar
    const GradientErrors errors = gradient_errors(p, want, c.input, backward_under_test());
    const auto judge = [&](const char* name, const GradientError& e) {
      std::ostringstream s;
      s << name << "'s relative error is " << e.relative << ", " << e.share << " of what is allowed; floor " << e.floor;
      if (!(e.share <= 1)) complain(s.str());
    };
    judge("dQ", errors.dq), judge("dK", errors.dk), judge("dV", errors.dv);
    if (worst) worst->note(errors, c);
  }
  for (const auto& [name, got] : {std::pair{"dQ", gather64(p.dq)}, {"dK", gather64(p.dk)}, {"dV", gather64(p.dv)}})
    if (!std::all_of(got.begin(), got.end(), [](double x) { return std::isfinite(x); }))
      complain(std::string(name) + " is not finite");

  // Exactly 0 for a row that sees no key, and for a key that no row sees.
  for (std::int64_t head = 0; head < c.B * c.H; ++head) {
    const auto zero = [&](const View<T>& x, std::int64_t row) {
      const T* data = x.row(head / c.H, head % c.H, row);
      return std::all_of(data, data + c.D, [](T y) { return as_double(y) == 0; });
    };
    for (std::int64_t i = 0; i < c.Sq; ++i) {
      bool any = false;
      for (std::int64_t j = 0; j < c.Sk; ++j) any = any || sees(c.mask, i, j, c.Sq, c.Sk);
      if (!any && !zero(p.dq, i)) complain("dQ of row " + std::to_string(i) + ", which sees no key, is not 0");
    }
    for (std::int64_t j = 0; j < c.Sk; ++j) {
      bool any = false;
      for (std::int64_t i = 0; i < c.Sq; ++i) any = any || sees(c.mask, i, j, c.Sq, c.Sk);
      if (!any && !(zero(p.dk, j) && zero(p.dv, j)))
        complain("dK or dV of key " + std::to_string(j) + ", which no row sees, is not 0");
    }
  }
  if (!in.dq.gaps_intact() || !in.dk.gaps_intact() || !in.dv.gaps_intact())
    complain("something was written outside the gradients' rows");
  return complaints;
}

#define FLASH_INSTANTIATE(T)                                                                           \
  template struct GradientInputs<T>;                                                                   \
  template Run run_training<T>(GradientInputs<T>&, Where, const MachineOptions&);                      \
  template Run run_backward<T>(const GradientProblem<T>&, Where, BackwardMode, const MachineOptions&); \
  template Run run_both<T>(GradientInputs<T>&, Where, BackwardMode, bool, const MachineOptions&);      \
  template Complaints examine_gradients<T>(GradientInputs<T>&, bool, Worst*, const GradientReference*);
FLASH_INSTANTIATE(float)
FLASH_INSTANTIATE(half)
FLASH_INSTANTIATE(bfloat16)

namespace {

bool skipped_backward_without(Where where) {
  return skipped_without(features_under_test(), where) || skipped_without(backward_under_test(), where);
}
// The contract's list, as far as both passes go.
std::vector<Case> gradient_cases() {
  Domain all;
  all.evenly = true;
  Domain domain = restrict_to(restrict_to(all, features_under_test()), backward_under_test());
  domain.granule = within({}).granule;
  return pairwise(domain);
}

template <class T>
void check_same_gradients(const GradientInputs<T>& a, const GradientInputs<T>& b) {
  CHECK(same_bits(a.dq.memory, b.dq.memory));
  CHECK(same_bits(a.dk.memory, b.dk.memory));
  CHECK(same_bits(a.dv.memory, b.dv.memory));
}

// --- Against fp64 ----------------------------------------------------------------------------------------------------

// Where a pass has fp16 and bf16 alone, every other case is one's, the rest the other's.
template <class T>
bool takes(const Case& c) {
  return backward_under_test().types.contains(Type::Float32) || c.seed % 2 == (type_of<T> == Type::Float16 ? 0 : 1);
}

// The contract's gradient bars on every case of the list. From the same forward pass, of every third case each: the
// one-pass variant; and for a caller with somebody else's LSE alone, at the logits of the list.
template <class T>
void check_gradients(Where where) {
  Worst worst, one_pass, alone;
  for (const Case& c : gradient_cases()) {
    if (!takes<T>(c)) continue;
    GradientInputs<T> in(c);
    const bool with_dlse = c.seed / 2 % 2 == 0;
    run_training(in, where);
    GradientProblem<T> p = in.problem(with_dlse);
    const GradientReference want = gradient_reference(p);
    const auto run = [&](const char* how, BackwardMode mode, Worst& of) {
      INFO(how);
      in.forget();
      run_backward(p, where, mode);
      expect_none(examine_gradients(in, with_dlse, &of, &want));
    };
    run("deterministic", BackwardMode::Deterministic, worst);
    if (c.seed % 3 == 1 && modes().size() > 1) run("one-pass variant", BackwardMode::Atomic, one_pass);
    p.kept.m = p.kept.l = nullptr;
    if (c.seed % 3 == 2 && where == Where::Sim) run("from LSE alone", BackwardMode::Deterministic, alone);
  }
  for (const auto& [how, of] : {std::pair{"", &worst}, {"one-pass variant: ", &one_pass}, {"from LSE alone: ", &alone}})
    MESSAGE(std::string(type_name<T>()) << ": " << std::string(how) << of->line());
}
}  // namespace

TEST_CASE_TEMPLATE("backward: the contract on the simulator" * only_if(both_have_type), T, float, half, bfloat16) {
  check_gradients<T>(Where::Sim);
}

// With no reference in between: the gradients are what a little more of each number does to the loss.
TEST_CASE_TEMPLATE("gradient check: against finite differences in fp64" * only_if(both_have_type), T, float, half,
                   bfloat16) {
  for (const Mask mask : masks())
    for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{5, 5}, {7, 4}, {3, 8}, {1, 1}})
      for (const BackwardMode mode : modes()) {
        Case c = within({.B = 1, .Sq = Sq, .Sk = Sk, .D = 6, .mask = mask, .seed = 7});
        if (Sq == 5) c.scale = -0.7f;
        INFO(text(c) << " " << std::string(name(mode)));
        GradientInputs<T> in(c);
        run_both(in, Where::Sim, mode, true);
        const GradientProblem<T> p = in.problem(true);
        const GradientReference size = gradient_reference(p);
        WideProblem wide(p);
        const double most = floors(c.input, backward_under_test(), keeps());
        const auto near = [&](const View<T>& got, std::vector<double>& x, double g, double r) {
          const std::vector<double> want = finite_differences(x, [&] { return wide.loss(); });
          const double rounded = backward_under_test().tensor_cores ? r : 0;
          CHECK(gradient_error<T>(gather64(got), want, g, 5e-6, most, 0, rounded).share <= 1);
        };
        near(p.dq, wide.q, size.gq, size.rq), near(p.dk, wide.k, size.gk, size.rk),
            near(p.dv, wide.v, size.gv, size.rv);
      }
}

// Each is within its bar of fp64, and so within both bars of every other.
TEST_CASE_TEMPLATE("block sizes and the one-pass variant agree" * only_if(both_have_type) *
                       only_if(backward_under_test().kernel),
                   T, float, half, bfloat16) {
  Case c = within({.B = 1, .H = 2, .Sq = 130, .Sk = 97, .D = 48, .mask = Mask::top_left()});
  for (const Blocks& blocks : blocks_for(backward_under_test(), c.D))
    for (const BackwardMode mode : modes()) {
      c.block_q = blocks.Br, c.block_k = blocks.Bc;
      GradientInputs<T> in(c);
      CHECK(run_both(in, Where::Sim, mode).blocks == blocks);
      expect_none(examine_gradients(in, false));
    }
}

TEST_CASE_TEMPLATE("empty tensors" * only_if(both_have_type), T, float, half, bfloat16) {
  for (const BackwardMode mode : modes())
    for (const Mask mask : masks())
      for (const auto& [B, Sq, Sk] : {std::array<std::int64_t, 3>{2, 0, 20}, {2, 20, 0}, {2, 0, 0}, {0, 5, 5}}) {
        GradientInputs<T> in(within({.B = B, .Sq = Sq, .Sk = Sk, .mask = mask, .layout = Layout::Padded}));
        INFO(text(in.in.c));
        run_both(in, Where::Sim, mode, true);
        expect_none(examine_gradients(in, true));
      }
}

// All logits of a row overflow to -inf: O = 0 and LSE = -inf, as if the row saw nothing, and its gradients are 0. fp16
// has no numbers that are large enough.
TEST_CASE_TEMPLATE("a row whose logits are all -inf has gradient 0" * only_if(both_have_type), T, float, bfloat16) {
  for (const BackwardMode mode : modes()) {
    GradientInputs<T> in(within({.B = 1, .H = 1, .Sq = 3, .Sk = 5, .D = 4}));
    in.in.q.fill(3, [](std::uint64_t, std::int64_t s) { return s == 1 ? 1e30f : 0.0f; });
    in.in.k.fill(5, [](std::uint64_t, std::int64_t) { return -1e30f; });
    run_both(in, Where::Sim, mode);
    const std::int64_t D = in.in.c.D;
    for (std::int64_t d = 0; d < D; ++d) CHECK(to_float(in.dq.view.row(0, 0, 1)[d]) == 0);
    for (std::int64_t j = 0; j < 5; ++j)
      for (std::int64_t d = 0; d < D; ++d) {
        CHECK(std::isfinite(to_float(in.dk.view.row(0, 0, j)[d])));
        CHECK(std::isfinite(to_float(in.dv.view.row(0, 0, j)[d])));
      }
  }
}

// CUDA's grid.y ends at 65,535: more heads than that, each with gradients of its own. Phases that copy by TMA number
// their blocks in x alone, or draw them from a counter.
TEST_CASE("backward: 65,792 heads" * only_if(both_have_type(Type::Float16)) * only_if(backward_under_test().kernel) *
          only_if(!features_under_test().tensor_maps() && !backward_under_test().tensor_maps())) {
  // On tensor cores a head is whole tiles, however small it is: ten minutes for the simulator.
  const Where where = backward_under_test().tensor_cores ? Where::Gpu : Where::Sim;
  if (skipped_backward_without(where)) return;
  Case c = within({.B = 257, .H = 256, .Sq = 1, .Sk = 2, .D = 3});
  const Blocks smallest = smallest_blocks(backward_under_test(), c.D);
  c.block_q = smallest.Br, c.block_k = smallest.Bc;
  for (const BackwardMode mode : modes()) {
    GradientInputs<half> in(c);
    run_both(in, where, mode);
    expect_none(examine_gradients(in, false));
  }
}

TEST_CASE_TEMPLATE("backward: gpu" * only_if(both_have_type) * only_if(backward_under_test().kernel), T, float, half,
                   bfloat16) {
  if (skipped_backward_without(Where::Gpu)) return;
  check_gradients<T>(Where::Gpu);
  const Case c = within({.B = 2, .H = 3, .Sq = 300, .Sk = 200, .D = 64, .mask = Mask::bottom_right()});
  GradientInputs<T> first(c), again(c);
  run_both(first, Where::Gpu);
  run_both(again, Where::Gpu);
  check_same_gradients(first, again);  // deterministic: the same bits in every run
}

// --- What the forward pass keeps -------------------------------------------------------------------------------------

// Large enough for the means to matter; 2048 keys and D = 128 also for what tensor cores cut off O. The last column is
// what libraries do: δ from the rounded O. On uniform inputs it must miss the bar, or this test could not tell the
// difference. Where keys have no mean dQ is to be no worse than theirs: 6.3 floors for 512 keys and D = 128, in fp64
// with these roundings alone, and 8.8 where the mean of 64 keys is taken for one.
TEST_CASE_TEMPLATE("precision: delta keeps what rounding cuts off" * only_if(both_have_type) * only_if(keeps()), T,
                   half, bfloat16) {
  struct Moved {
    Input input;
    float of_k = 0, of_v = 0;  // added to all of K, of V
    std::int64_t Sk = 1024, D = 64;
  };
  for (const auto& [input, of_k, of_v, Sk, D] : {Moved{Input::Normal},
                                                 {Input::Shifted},
                                                 {Input::Uniform},
                                                 {Input::Outliers},
                                                 {Input::QKV4},
                                                 {Input::Normal, 4, 0},
                                                 {Input::Normal, 0, 4},
                                                 {Input::Normal, 0, 4, 512, 128},
                                                 {Input::Uniform, 0, 0, 2048, 128}}) {
    GradientInputs<T> in(within({.B = 1, .H = 1, .Sq = 128, .Sk = Sk, .D = D, .input = input}));
    const auto add = [](const Strided<T>& x, float shift) {
      for (std::int64_t i = 0; i < x.view.S(); ++i)
        for (std::int64_t d = 0; d < x.view.D(); ++d) {
          T& number = x.view.row(0, 0, i)[d];
          number = from_float<T>(to_float(number) + shift);
        }
    };
    add(in.in.k, of_k), add(in.in.v, of_v);
    run_both(in, Where::Sim);
    const GradientProblem<T> p = in.problem();
    const GradientReference want = gradient_reference(p);
    const GradientErrors ours = gradient_errors(p, want, input, backward_under_test());
    GradientProblem<T> rounded = p;
    rounded.kept.o_lo = {};
    run_backward(rounded, Where::Sim);
    const GradientErrors theirs = gradient_errors(p, want, input, backward_under_test());
    const double most = floors(input, backward_under_test(), true);
    std::ostringstream s;
    s.precision(3);
    s << type_name<T>() << " " << name(input) << ", K + " << of_k << ", V + " << of_v << ", " << Sk
      << " keys, D = " << D << ": error over floor of dQ " << ours.dq.relative / ours.dq.floor << ", dK "
      << ours.dk.relative / ours.dk.floor << ", dV " << ours.dv.relative / ours.dv.floor << " (floor " << ours.dq.floor
      << "); dQ with δ from the rounded O " << theirs.dq.relative / theirs.dq.floor;
    MESSAGE(s.str());
    for (const GradientError& e : {ours.dq, ours.dk, ours.dv}) CHECK(e.relative <= most * e.floor);
    for (const BackwardMode mode : modes())  // the others have the same dK and dV
      if (mode != BackwardMode::Deterministic && input == Input::Uniform) {
        run_backward(p, Where::Sim, mode);
        const GradientError dq = gradient_errors(p, want, input, backward_under_test()).dq;
        CHECK(dq.relative <= most * dq.floor);
      }
    if (input == Input::Uniform) CHECK_FALSE(theirs.dq.relative <= most * theirs.dq.floor);
    if (Sk == 512) CHECK(theirs.dq.relative <= 7.5 * theirs.dq.floor);
  }
}

// Where P is rounded to T for P·V, O in fp32 is off by that: training_promises.cpp says how far.
TEST_CASE_TEMPLATE("forward: O and O_lo together hold the fp32 result" * only_if(!features_under_test().tensor_cores) *
                       only_if(both_have_type) * only_if(keeps()),
                   T, half, bfloat16) {
  for (const Input input : {Input::Normal, Input::Uniform, Input::QKV4}) {
    const Case c =
        within({.Sq = 70, .Sk = 50, .D = 40, .input = input, .mask = Mask::top_left(), .layout = Layout::Mixed});
    GradientInputs<T> in(c);
    run_training(in, Where::Sim);
    const Reference want = reference(in.forward());
    std::vector<double> got;
    for (std::int64_t head = 0; head < c.B * c.H; ++head)
      for (std::int64_t s = 0; s < c.Sq; ++s)
        for (std::int64_t d = 0; d < c.D; ++d) {
          const float o = to_float(in.in.o.view.row(head / c.H, head % c.H, s)[d]);
          const std::int16_t lo = in.o_lo.view.row(head / c.H, head % c.H, s)[d];
          got.push_back(std::bit_cast<float>(std::bit_cast<std::int32_t>(o) + lo));
        }
    CHECK(distance(got, want.o, c.D).relative <= 2e-6);
    CHECK(in.o_lo.gaps_intact());
  }
}

// As in the forward pass.
TEST_CASE("backward: spare multiprocessors" *
          only_if(both_have_type(Type::BFloat16) && backward_under_test().meets(Demand::SpareMultiprocessors))) {
  const Case c = within({.B = 1, .H = 2, .Sq = 150, .Sk = 300, .D = 64, .mask = Mask::top_left()});
  GradientInputs<bfloat16> all(c), fewer(c);
  const Run of_all = run_both(all, Where::Sim);
  run_training(fewer, Where::Sim);
  GradientProblem<bfloat16> p = fewer.problem();
  p.options.spare_multiprocessors = 1;
  check_fewer_blocks(of_all, run_backward(p, Where::Sim));
  check_same_gradients(all, fewer);
}

// What the backward pass is spared costs the forward pass 2·D + 8 bytes per row; what nobody wants costs nothing.
TEST_CASE("forward: bytes of what is kept" * only_if(both_have_type(Type::Float16)) * only_if(keeps()) *
          only_if(backward_under_test().kernel)) {
  if (skipped_backward_without(Where::Checked)) return;
  const Case c = within({.B = 2, .H = 3, .Sq = 37, .Sk = 20, .D = 24, .layout = Layout::Padded});
  GradientInputs<half> in(c);
  const auto written = [&](const Kept& kept, bool lse, const char* name) {
    Problem<half> p = in.forward();
    if (!lse) p.lse = nullptr;
    const Run run = flash::forward_training(phase_under_test(), p, kept, Where::Checked);
    for (const ArrayTraffic& a : run.ledger.arrays)
      if (a.name == name) return a.written_bytes;
    return std::uint64_t{0};
  };
  const auto rows = static_cast<std::uint64_t>(c.B * c.H * c.Sq);
  CHECK(written(in.kept(), true, "O_lo") == rows * static_cast<std::uint64_t>(c.D) * 2);
  for (const char* name : {"LSE", "m", "l"}) CHECK(written(in.kept(), true, name) == rows * 4);
  CHECK(written(in.kept(), false, "LSE") == 0);
  for (const char* name : {"O_lo", "m", "l"}) CHECK(written({}, true, name) == 0);
}

// --- Where things are and who sees them ------------------------------------------------------------------------------

// Each tensor's rows, heads and batch entries further apart than 2^31 elements: the same bits as close together.
TEST_CASE_TEMPLATE("backward: strides over 2^31" * only_if(both_have_type), T, float, half, bfloat16) {
  const Case c = within({.B = 2, .H = 2, .Sq = 18, .Sk = 18, .D = 8, .mask = Mask::top_left()});
  GradientInputs<T> near(c);
  FarApart far(c.granule);
  GradientProblem<T> p = near.problem();
  const View<T> o = far(near.in.o.view), dq = p.dq = far(p.dq), dk = p.dk = far(p.dk), dv = p.dv = far(p.dv);
  p.q = far(p.q), p.k = far(p.k), p.v = far(p.v), p.o = o, p.dout = far(p.dout);
  if (p.kept.o_lo.data) p.kept.o_lo = far(p.kept.o_lo);
  const Problem<T> forward{p.q, p.k, p.v, o, near.forward().lse, p.options};
  flash::forward_training(phase_under_test(), forward, p.kept, Where::Sim, {.in_place = true});
  run_backward(p, Where::Sim, BackwardMode::Deterministic, {.in_place = true});
  run_both(near, Where::Sim);
  CHECK(gather64(dq) == gather64(near.dq.view));
  CHECK(gather64(dk) == gather64(near.dk.view));
  CHECK(gather64(dv) == gather64(near.dv.view));
}

namespace {
// May a value of key j reach what is computed of row i, or the other way round? It may where row i sees key j. Tensor
// cores multiply by P = 0 what a row of a tile does not see (Features says so): there it may where any row of i's tile
// sees any key of j's.
bool may_reach(const Features& can, Blocks blocks, const Case& c, std::int64_t i, std::int64_t j) {
  if (!can.tensor_cores) return sees(c.mask, i, j, c.Sq, c.Sk);
  const std::int64_t last_row = std::min(i / blocks.Br * blocks.Br + blocks.Br, c.Sq) - 1;
  return sees(c.mask, last_row, j / blocks.Bc * blocks.Bc, c.Sq, c.Sk);
}

enum class Poisoned { K, V, Q, dO };

// NaN in some places and infinity in the others; with the next `number` the other way round.
template <class T>
void check_poison(const Case& c, BackwardMode mode, int number) {
  GradientInputs<T> clean(c);
  const Blocks of_forward = run_training(clean, Where::Sim).blocks;
  const Blocks of_backward = run_backward(clean.problem(), Where::Sim, mode).blocks;
  const auto reaches = [&](std::int64_t i, std::int64_t j) {
    return may_reach(features_under_test(), of_forward, c, i, j) ||
           may_reach(backward_under_test(), of_backward, c, i, j);
  };
  for (const Poisoned tensor : {Poisoned::K, Poisoned::V, Poisoned::Q, Poisoned::dO}) {
    const bool of_keys = tensor == Poisoned::K || tensor == Poisoned::V;
    for (const std::int64_t place : {std::int64_t{1}, std::int64_t{17}, (of_keys ? c.Sk : c.Sq) - 1}) {
      const float bad = number++ % 2 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
      INFO(text(c) << ", " << bad << " in " << static_cast<int>(tensor) << "[" << place << "]");
      GradientInputs<T> poisoned(c);
      Strided<T>* tensors[] = {&poisoned.in.k, &poisoned.in.v, &poisoned.in.q, &poisoned.dout};
      T* row = tensors[static_cast<int>(tensor)]->view.row(0, 1, place);
      std::fill(row, row + c.D, from_float<T>(bad));
      // A bad key or value spoils the rows that see it; a bad row of Q or dO spoils itself. A spoilt row spoils the
      // keys that it sees.
      const auto spoilt_row = [&](std::int64_t i) { return of_keys ? reaches(i, place) : i == place; };
      const auto spoilt_key = [&](std::int64_t j) {
        for (std::int64_t i = 0; i < c.Sq; ++i)
          if (spoilt_row(i) && reaches(i, j)) return true;
        return false;
      };
      if (tensor != Poisoned::dO) run_training(poisoned, Where::Sim);
      // What the forward pass made of other rows is its own promise: there a large number may change their last bits.
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t i = 0; i < c.Sq; ++i) {
          if (h == 1 && spoilt_row(i) && tensor != Poisoned::dO) continue;
          const auto row = static_cast<std::size_t>(h * c.Sq + i);
          std::copy_n(clean.in.o.view.row(0, h, i), c.D, poisoned.in.o.view.row(0, h, i));
          std::copy_n(clean.o_lo.view.row(0, h, i), c.D, poisoned.o_lo.view.row(0, h, i));
          poisoned.m[row] = clean.m[row], poisoned.l[row] = clean.l[row];
          poisoned.forward().lse[row] = clean.forward().lse[row];
        }
      run_backward(poisoned.problem(), Where::Sim, mode);
      int touched = 0;
      const auto compare = [&](const View<T>& a, const View<T>& b, std::int64_t h, std::int64_t s) {
        for (std::int64_t d = 0; d < c.D; ++d) {
          const double x = as_double(a.row(0, h, s)[d]), y = as_double(b.row(0, h, s)[d]);
          touched += mode == BackwardMode::Atomic ? !(std::abs(x - y) <= 1e-3 * (1 + std::abs(x))) : !(x == y);
        }
      };
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t i = 0; i < c.Sq; ++i)
          if (h == 0 || !spoilt_row(i)) compare(clean.dq.view, poisoned.dq.view, h, i);
        for (std::int64_t j = 0; j < c.Sk; ++j)
          if (h == 0 || !spoilt_key(j)) {
            compare(clean.dk.view, poisoned.dk.view, h, j);
            compare(clean.dv.view, poisoned.dv.view, h, j);
          }
      }
      CHECK(touched == 0);
    }
  }
}
}  // namespace

// NaN or Inf in one key, value, row of Q or row of dO reaches only the gradients that see it.
TEST_CASE_TEMPLATE("poison stays where it is seen" * only_if(masks().size() > 1) * only_if(both_have_type), T, float,
                   half) {
  std::size_t number = 0;  // modes go round: each mask and each shape meets each of them
  for (const Mask mask : masks())
    for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{40, 40}, {25, 45}, {45, 25}})
      if (mask != Mask::none()) {
        const BackwardMode mode = modes()[number % modes().size()];
        check_poison<T>(
            within({.B = 1, .H = 2, .Sq = Sq, .Sk = Sk, .D = 32, .mask = mask, .block_q = 16, .block_k = 16}), mode,
            static_cast<int>(number++ / 2));
      }
}

// Nor does it by a mean of keys (docs/backward.md, (7)), which rows of other tiles share with those that see it.
TEST_CASE("keys that are NaN leave dQ of other tiles alone" * only_if(masks().size() > 1) *
          only_if(both_have_type(Type::Float16))) {
  const Case c =
      within({.B = 1, .H = 1, .Sq = 300, .Sk = 300, .D = 64, .input = Input::Uniform, .mask = Mask::top_left()});
  for (const BackwardMode mode : modes()) {
    GradientInputs<half> clean(c), spoilt(c);
    for (std::int64_t j = 292; j < c.Sk; ++j)  // not each key counts for the mean
      std::fill_n(spoilt.in.k.view.row(0, 0, j), c.D, from_float<half>(NAN));
    run_both(clean, Where::Sim, mode), run_both(spoilt, Where::Sim, mode);
    double furthest = 0;
    for (std::int64_t i = 0; i < 128; ++i)
      for (std::int64_t d = 0; d < c.D; ++d) {
        const double x = as_double(clean.dq.view.row(0, 0, i)[d]), y = as_double(spoilt.dq.view.row(0, 0, i)[d]);
        if (!(std::abs(x - y) <= furthest)) furthest = std::abs(x - y);
      }
    CHECK(furthest <= 1e-3);
  }
}

// --- Schedules, counts and blocks ------------------------------------------------------------------------------------

namespace {
// No finding, gradients within their bars, and the bits of the fast machine. What the forward pass keeps is checked by
// its own promises (training_promises.cpp). `from_lse`: for a caller that has only O and LSE, too.
template <class T>
void check_clean(const Case& c, BackwardMode mode, bool with_dlse, bool from_lse, MachineOptions options) {
  options.deterministic = mode == BackwardMode::Deterministic;
  INFO(std::string(type_name<T>()) << " " << text(c) << " order " << static_cast<int>(options.order));
  GradientInputs<T> checked(c), sim(c);
  run_training(checked, Where::Sim);
  REQUIRE_NOTHROW(run_backward(checked.problem(with_dlse), Where::Checked, mode, options));
  expect_none(examine_gradients(checked, with_dlse));
  run_both(sim, Where::Sim, mode, with_dlse);
  CHECK(same_bits(checked.dk.memory, sim.dk.memory));
  CHECK(same_bits(checked.dv.memory, sim.dv.memory));
  if (mode == BackwardMode::Deterministic) CHECK(same_bits(checked.dq.memory, sim.dq.memory));
  if (!from_lse) return;
  GradientProblem<T> p = checked.problem(with_dlse);
  p.kept = {};
  REQUIRE_NOTHROW(run_backward(p, Where::Checked, mode, options));
}

void check_clean(Type type, const Case& c, BackwardMode mode, bool with_dlse, bool from_lse,
                 const MachineOptions& options) {
  if (type == Type::Float32) check_clean<float>(c, mode, with_dlse, from_lse, options);
  if (type == Type::Float16) check_clean<half>(c, mode, with_dlse, from_lse, options);
  if (type == Type::BFloat16) check_clean<bfloat16>(c, mode, with_dlse, from_lse, options);
}
}  // namespace

// Types and orders go round.
TEST_CASE("backward: checked: clean, and the same bits as the fast simulator" * only_if(backward_under_test().kernel)) {
  if (skipped_backward_without(Where::Checked)) return;
  const Features& can = backward_under_test();
  constexpr Order orders[] = {Order::forward, Order::reverse, Order::random};
  for (const BackwardMode mode : modes()) {
    int number = 0;
    const auto check = [&](const Case& c) {
      const Type type = can.types[number % can.types.size()];
      // What is made of LSE alone is the same in every mode: there only the first case asks for it again.
      const bool from_lse = mode == modes().front() ? number % 3 != 1 : number == 0;
      check_clean(type, within(c), mode, number % 2 == 1, from_lse,
                  {.order = orders[(number + number / 3) % 3], .seed = 5});
      ++number;
    };
    // Three tiles in both directions, the last ones ragged; with a mask, and with rows that see nothing.
    const Blocks small = smallest_blocks(backward_under_test(), 64);
    Case c{.B = 1,
           .H = 1,
           .Sq = 2 * small.Br + 2,
           .Sk = 2 * small.Bc + 13,
           .D = 64,
           .block_q = small.Br,
           .block_k = small.Bc};
    check(c);
    check(c);
    c.mask = Mask::bottom_right(), c.layout = Layout::Mixed, c.H = 2;
    check(c);
    std::swap(c.Sq, c.Sk), c.D = 33;
    check(c);
    // Each head dimension is code of its own; each block size too.
    c.mask = Mask::top_left(), c.H = 1;
    for (int d = 0; d < can.head_dims.size(); ++d) {
      c.D = d ? can.head_dims[d - 1] + 2 : can.head_dims[0];
      const std::vector<Blocks> listed = blocks_for(can, c.D);
      const Blocks blocks = listed[static_cast<std::size_t>(d) % listed.size()];
      c.block_q = blocks.Br, c.block_k = blocks.Bc;
      check(c);
    }
  }
}

TEST_CASE_TEMPLATE("deterministic: the same bits in every run, order, company and number of workers" *
                       only_if(both_have_type),
                   T, float, half, bfloat16) {
  const Case c =
      within({.B = 2, .H = 2, .Sq = 70, .Sk = 83, .D = 64, .mask = Mask::bottom_right(), .block_q = 16, .block_k = 16});
  GradientInputs<T> first(c);
  run_both(first, Where::Sim, BackwardMode::Deterministic, true);
  for (const MachineOptions& options : {MachineOptions{}, MachineOptions{.order = Order::reverse, .threads = 1},
                                        MachineOptions{.order = Order::random, .seed = 3}}) {
    GradientInputs<T> again(c);
    run_both(again, Where::Sim, BackwardMode::Deterministic, true, options);
    check_same_gradients(first, again);
  }
  // A head alone.
  GradientInputs<T> alone(c);
  run_training(alone, Where::Sim);
  for (std::int64_t b = 0; b < c.B; ++b)
    for (std::int64_t h = 0; h < c.H; ++h) {
      GradientProblem<T> p = alone.problem(true);
      const auto cut = [&](auto& view) {
        if (!view.data) return;
        view.data = view.head(b, h);
        view.shape[0] = view.shape[1] = 1;
      };
      cut(p.q), cut(p.k), cut(p.v), cut(p.o), cut(p.kept.o_lo), cut(p.dout), cut(p.dq), cut(p.dk), cut(p.dv);
      const std::int64_t rows = (b * c.H + h) * c.Sq;
      if (p.kept.m) p.kept.m += rows, p.kept.l += rows;
      p.lse += rows, p.dlse += rows;
      run_backward(p, Where::Sim);
    }
  check_same_gradients(first, alone);
}

// Predicted = counted, read and written, as integers: each block size, ragged and not, each mask and mode; low bits of
// O, m and l, and dLSE are there and are not.
TEST_CASE("backward: bytes equal the formula" * only_if(backward_under_test().hbm_bytes != nullptr) *
          only_if(both_have_type(Type::Float16))) {
  const Features& can = backward_under_test();
  const Where where = can.kernel ? Where::Checked : Where::Sim;
  if (skipped_backward_without(where)) return;
  constexpr std::pair<std::int64_t, std::int64_t> shapes[] = {{53, 100}, {100, 53}, {64, 64}, {20, 0}, {0, 20}};
  const std::vector<Blocks> listed = can.kernel ? blocks_for(can, 40) : std::vector<Blocks>{{0, 0}};
  int number = 0;
  const auto check = [&](const Blocks& blocks, std::pair<std::int64_t, std::int64_t> shape, Mask mask) {
    for (const BackwardMode mode : modes()) {
      const Case c = within({.B = 1,
                             .H = 1 + number / 2 % 2,
                             .Sq = shape.first,
                             .Sk = shape.second,
                             .D = number % 5 ? 24 : 40,
                             .mask = mask,
                             .block_q = blocks.Br,
                             .block_k = blocks.Bc,
                             .layout = Layout::Padded});
      GradientInputs<half> in(c);
      run_training(in, Where::Sim);
      GradientProblem<half> p = in.problem((number + number / 2) % 2 == 0);
      p.options.mode = mode;
      if (number % 3 == 0) p.kept.o_lo = {};
      if ((number + number / 4) % 4 == 0) p.kept.m = p.kept.l = nullptr;
      INFO(text(c) << " " << std::string(name(mode)) << ", number " << number);
      ++number;
      const Run run = run_backward(p, where, mode);
      const HbmBytes predicted = can.hbm_bytes(p, run.blocks);
      CHECK(predicted.read == run.ledger.hbm_read_bytes());
      CHECK(predicted.written == run.ledger.hbm_written_bytes());
    }
  };
  // Where there are as many block sizes as masks, masks go round, so that each shape meets each of them.
  const std::size_t kinds = masks().size();
  for (std::size_t b = 0; b < listed.size(); ++b)
    for (std::size_t s = 0; s < std::size(shapes); ++s)
      for (std::size_t m = 0; m < kinds; ++m)
        if (listed.size() < kinds || (b + s) % kinds == m) check(listed[b], shapes[s], masks()[m]);
}

// The backward pass needs more shared memory than the forward one. Without a wish the first blocks that fit are taken;
// where listed ones do not fit, they are refused with the bytes.
TEST_CASE("backward: blocks fall back to what fits" * only_if(both_have_type(Type::Float16)) *
          only_if(backward_under_test().kernel)) {
  const Features& can = backward_under_test();
  const Case c = within({.B = 1, .H = 1, .Sq = 20, .Sk = 30, .D = can.largest_D()});
  const bool hopper = std::max(can.capability.major, features_under_test().capability.major) >= 9;
  for (const Profile profile : {Profile::sm_80, Profile::sm_90}) {
    if (hopper && profile == Profile::sm_80) continue;  // it has none of the instructions
    const std::size_t limit = profile == Profile::sm_80 ? 163 * 1024 : 227 * 1024;
    GradientInputs<half> in(c);
    run_training(in, Where::Sim);
    GradientProblem<half> p = in.problem();
    Blocks first{0, 0};
    for (const Blocks& each : blocks_for(can, c.D)) {
      p.options.block_q = each.Br, p.options.block_k = each.Bc;
      const std::string size = std::to_string(each.Br) + "x" + std::to_string(each.Bc);
      try {
        const Run run = run_backward(p, Where::Sim, BackwardMode::Deterministic, {.profile = profile});
        CHECK(run.blocks == each);
        CHECK(run.ledger.shared_bytes_peak <= limit);
        if (first.Br == 0) first = each;
      } catch (const Error& e) {
        const std::string line = e.what(), begin = "shared memory for blocks " + size + " at D = ";
        CHECK(line.substr(0, begin.size()) == begin);
        CHECK(line.find("; expected at most " + std::to_string(limit) + " on this machine; choose smaller blocks of " +
                        text(blocks_for(can, c.D))) != std::string::npos);
      }
    }
    if (first.Br == 0) continue;
    CHECK(run_both(in, Where::Sim, BackwardMode::Deterministic, false, {.profile = profile}).blocks == first);
    expect_none(examine_gradients(in, false));
  }
}

// --- Bad input -------------------------------------------------------------------------------------------------------

TEST_CASE("bad input is refused with one line, and nothing is written" * only_if(both_have_type(Type::Float16))) {
  const Case c{.B = 2, .H = 3, .Sq = 4, .Sk = 5, .D = 8};
  using P = GradientProblem<half>;
  const auto refused = [&](const std::string& message, const auto& break_it) {
    GradientInputs<half> in(c);
    P p = in.problem();
    break_it(p);
    CHECK_THROWS_WITH_AS(flash::backward(phase_under_test(), p, Where::Sim), message.c_str(), Error);
    for (const Strided<half>* x : {&in.dq, &in.dk, &in.dv})
      CHECK(is_poison(x->memory.data(), x->memory.size() * sizeof(half)));
  };
  for (int i = 0; i < 4; ++i) {
    const std::string axis = axis_names[i];
    const std::string q = std::array{"2", "3", "4", "8"}[i], k = std::array{"2", "3", "5", "8"}[i];
    const std::string of_o = i == 3 && backward_under_test().meets(Demand::OtherDv) ? "V" : "Q";
    refused("dO's " + axis + " is 1; expected " + q + " as in " + of_o + "; make the shapes agree",
            [i](P& p) { p.dout.shape[i] = 1; });
    refused("dQ's " + axis + " is 1; expected " + q + " as in Q; make the shapes agree",
            [i](P& p) { p.dq.shape[i] = 1; });
    // Who says how long the axis is.
    const std::string heads = backward_under_test().meets(Demand::FewerHeads) ? "K" : "Q";
    const std::string wide = backward_under_test().meets(Demand::OtherDv) ? "V" : "Q";
    refused("dK's " + axis + " is 1; expected " + k + " as in " + std::array<std::string, 4>{"Q", heads, "K", "Q"}[i] +
                "; make the shapes agree",
            [i](P& p) { p.dk.shape[i] = 1; });
    refused("dV's " + axis + " is 1; expected " + k + " as in " + std::array<std::string, 4>{"Q", heads, "K", wide}[i] +
                "; make the shapes agree",
            [i](P& p) { p.dv.shape[i] = 1; });
    if (keeps())
      refused("O_lo's " + axis + " is 1; expected " + q + " as in " + of_o + "; make the shapes agree",
              [i](P& p) { p.kept.o_lo.shape[i] = 1; });
  }
  refused("dO's data is null; expected a pointer; allocate it", [](P& p) { p.dout.data = nullptr; });
  refused("dK's data is null; expected a pointer; allocate it", [](P& p) { p.dk.data = nullptr; });
  refused("O's data is null; expected a pointer; allocate it", [](P& p) { p.o.data = nullptr; });
  refused("LSE's data is null; expected a pointer; run forward_training with LSE, or with m and l, first",
          [](P& p) { p.lse = p.kept.m = p.kept.l = nullptr; });
  refused("dV's last stride is 2; expected 1 (D contiguous); pass a contiguous copy", [](P& p) { p.dv.stride[3] = 2; });
  refused("dQ's stride of sequence length S is 0; expected at least 1; give each row its own memory",
          [](P& p) { p.dq.stride[2] = 0; });
  refused("dK's stride of number of heads H is 39; expected at least 40; give each row its own memory",
          [](P& p) { p.dk.stride[1] = 39; });
  refused("dV's stride of sequence length S is 7; expected at least 8; give each row its own memory",
          [](P& p) { p.dv.stride[2] = 7; });
  refused("scale is nan; expected a finite number; omit it for 1/sqrt(D)", [](P& p) { p.options.scale = NAN; });
  if (backward_under_test().kernel)
    refused("block size is 48xany; expected one of " + text(blocks_for(backward_under_test(), c.D)) +
                "; omit --block-q and --block-k",
            [](P& p) { p.options.block_q = 48; });
  // A feature that the pass lacks: refused by name.
  const std::int64_t largest = backward_under_test().largest_D();
  if (largest < 256)
    refused("Q's head dimension D is 256; expected 1 to " + std::to_string(largest) + "; split the head",
            [](P& p) { p.q.shape[3] = 256; });
  if (backward_under_test().tensor_maps()) {
    const std::string odd =
        "'s stride of sequence length S in bytes is 24; expected a multiple of 16 for TMA in phase " +
        std::string(phase_under_test().name) + "; choose a phase that copies without it: ./flash help";
    refused("dO" + odd, [](P& p) { p.dout.stride = {1000, 200, 12, 1}; });
    refused("dQ" + odd, [](P& p) { p.dq.stride = {1000, 200, 12, 1}; });
    refused("dV" + odd, [](P& p) { p.dv.stride = {1000, 200, 12, 1}; });
  }
  if (!keeps()) return;
  refused("m is null; expected a pointer beside l; keep both or neither", [](P& p) { p.kept.m = nullptr; });
  refused("l is null; expected a pointer beside m; keep both or neither", [](P& p) { p.kept.l = nullptr; });
}

// The forward pass writes what is kept: O's low bits need Q's shape and memory of their own.
TEST_CASE("bad input for what is kept is refused with one line, and nothing is written" *
          only_if(both_have_type(Type::Float16)) * only_if(keeps())) {
  const auto refused = [](const std::string& message, const auto& break_it) {
    GradientInputs<half> in({.B = 2, .H = 3, .Sq = 4, .Sk = 5, .D = 8});
    Kept kept = in.kept();
    break_it(kept);
    CHECK_THROWS_WITH_AS(flash::forward_training(phase_under_test(), in.forward(), kept, Where::Sim), message.c_str(),
                         Error);
    CHECK(is_poison(in.in.o.memory.data(), in.in.o.memory.size() * sizeof(half)));
    CHECK(is_poison(in.o_lo.memory.data(), in.o_lo.memory.size() * sizeof(std::int16_t)));
    CHECK(is_poison(in.in.lse.data(), in.in.lse.size() * sizeof(float)));
    CHECK(std::isnan(in.m[0]));
  };
  for (int i = 0; i < 4; ++i)
    refused("O_lo's " + std::string(axis_names[i]) + " is 1; expected " + std::array{"2", "3", "4", "8"}[i] +
                " as in " + (i == 3 && features_under_test().meets(Demand::OtherDv) ? "V" : "Q") +
                "; make the shapes agree",
            [i](Kept& kept) { kept.o_lo.shape[i] = 1; });
  refused("O_lo's stride of sequence length S is 7; expected at least 8; give each row its own memory",
          [](Kept& kept) { kept.o_lo.stride[2] = 7; });
  refused("O_lo's stride of batch size B is 0; expected at least 1; give each row its own memory",
          [](Kept& kept) { kept.o_lo.stride[0] = 0; });
  refused("O_lo's last stride is 2; expected 1 (D contiguous); pass a contiguous copy",
          [](Kept& kept) { kept.o_lo.stride[3] = 2; });
  refused("m is null; expected a pointer beside l; keep both or neither", [](Kept& kept) { kept.m = nullptr; });
  refused("l is null; expected a pointer beside m; keep both or neither", [](Kept& kept) { kept.l = nullptr; });
}

TEST_CASE("low bits of an O in fp32 are refused" * only_if(both_have_type(Type::Float32)) * only_if(keeps())) {
  GradientInputs<float> in({});
  GradientProblem<float> p = in.problem();
  p.kept.o_lo = in.o_lo.view;
  constexpr const char* line = "O_lo is given; expected none for float32; omit it: O itself is precise enough";
  CHECK_THROWS_WITH_AS(flash::backward(phase_under_test(), p, Where::Sim), line, Error);
  CHECK_THROWS_WITH_AS(flash::forward_training(phase_under_test(), in.forward(), {in.o_lo.view}, Where::Sim), line,
                       Error);
}

}  // namespace flash::test
