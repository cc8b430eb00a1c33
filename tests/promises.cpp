// promises.cpp: the promises of docs/conventions.md that all phases give, as test cases for the phase under test.
// Each is tried for each element type that the phase declares. Kernels promise more: kernel_promises.cpp.
// ./flash test 07 runs them for phase 07, beside phase_07_test.cpp.
#include "tests/promises.hpp"

#include "phases/interface/validate.hpp"
#include "tests/skip.hpp"

namespace flash::test {

namespace {

// O (and LSE) of one run, dense.
template <class T>
struct Result {
  std::vector<double> o;
  std::vector<float> lse;
};

template <class T>
Result<T> run_case(Inputs<T>& in, const Forward<T>& forward, bool want_lse) {
  forward(in.problem(want_lse));
  return {gather(in.o.view), std::vector<float>(in.lse.begin() + guard, in.lse.end() - guard)};
}

// NaN in a key or value never reaches a row that cannot see it: those rows keep their bits, and their LSE too.
template <class T>
void check_poison(const Forward<T>& forward, const Features& can) {
  if (!can.meets(Demand::Causal)) return;
  for (const Mask causal : {Mask::top_left(), Mask::bottom_right()})
    for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{70, 70}, {40, 75}, {75, 40}}) {
      const Case c{.B = 1, .Sq = Sq, .Sk = Sk, .D = 32, .mask = causal, .block_q = 32, .block_k = 16};
      Inputs<T> clean(c);
      const Result<T> a = run_case(clean, forward, can.meets(Demand::Lse));
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
        for (const bool in_v : {false, true})
          for (const std::int64_t key : {std::int64_t{0}, std::int64_t{17}, Sk / 2, Sk - 1}) {
            INFO(text(c) << ", " << bad << " in " << (in_v ? "V" : "K") << "[" << key << "]");
            Inputs<T> poisoned(c);
            for (std::int64_t d = 0; d < c.D; ++d)
              (in_v ? poisoned.v : poisoned.k).view.row(0, 1, key)[d] = from_float<T>(bad);
            const Result<T> b = run_case(poisoned, forward, can.meets(Demand::Lse));
            std::int64_t touched = 0;
            for (std::int64_t row = 0; row < c.B * c.H * Sq; ++row) {
              const std::int64_t i = row % Sq;
              bool blind = row / Sq == 0 || !sees(causal, i, key, Sq, Sk);
              // Of a tile that some row of the Q tile sees, values may reach the others (Features says so).
              const Blocks first = can.tensor_cores ? blocks_for(can, c.D)[0] : Blocks{1, 1};
              if (row / Sq == 1 && in_v && can.tensor_cores)
                blind = !sees(causal, i / first.Br * first.Br + first.Br - 1, key / first.Bc * first.Bc, Sq, Sk);
              if (!blind) continue;
              for (std::int64_t d = row * c.D; d < (row + 1) * c.D; ++d) touched += !(a.o[d] == b.o[d]);
              if (can.meets(Demand::Lse)) touched += !(a.lse[row] == b.lse[row]);
            }
            CHECK(touched == 0);
          }
    }
}

// Inputs whose answer is known without a reference: one key takes all, so that O is a row of V, bit for bit.
template <class T>
void check_one_hot(const Forward<T>& forward, const Features& can) {
  const Case c{.Sq = 45, .Sk = 37, .D = 40, .block_q = 16, .block_k = 16};
  Inputs<T> in(c);
  const auto partner = [&](std::int64_t i) { return (5 * i + 3) % c.Sk; };  // the key that row i looks for
  in.q.fill(c.Sq, [](std::uint64_t, std::int64_t) { return 0.0f; });
  in.k.fill(c.Sk, [](std::uint64_t, std::int64_t) { return 0.0f; });
  for (std::int64_t head = 0; head < c.B * c.H; ++head) {
    for (std::int64_t i = 0; i < c.Sq; ++i)
      in.q.view.row(head / c.H, head % c.H, i)[partner(i)] = from_float<T>(1000.0f);
    for (std::int64_t j = 0; j < c.Sk; ++j) in.k.view.row(head / c.H, head % c.H, j)[j] = from_float<T>(1.0f);
  }
  run_case(in, forward,
           can.meets(Demand::Lse));  // logits: 1000/sqrt(40) = 158 for the partner, else 0, and exp(-158) is 0 in fp32
  std::int64_t wrong = 0;
  for (std::int64_t head = 0; head < c.B * c.H; ++head)
    for (std::int64_t i = 0; i < c.Sq; ++i)
      wrong += std::memcmp(in.o.view.row(head / c.H, head % c.H, i), in.v.view.row(head / c.H, head % c.H, partner(i)),
                           static_cast<std::size_t>(c.D) * sizeof(T)) != 0;
  CHECK(wrong == 0);
}

// All logits equal, S_k a power of two and V small integers: every sum is exact, so O is the mean of V, bit for bit,
// whatever the logits' common value.
template <class T>
void check_exact_mean(const Forward<T>& forward, const Features& can) {
  for (const Input input : {Input::Equal, Input::LowEqual}) {
    const Case c{.Sq = 19, .Sk = 64, .D = 32, .input = input, .block_q = 16, .block_k = 32};
    INFO(text(c));
    Inputs<T> in(c);
    in.q.fill(c.Sq, [&](std::uint64_t, std::int64_t) { return input == Input::Equal ? 0.5f : 512.0f; });
    in.k.fill(c.Sk, [&](std::uint64_t, std::int64_t) { return input == Input::Equal ? 0.25f : -512.0f; });
    in.v.fill(c.Sk, [](std::uint64_t i, std::int64_t) { return static_cast<float>(i * 37 % 17) - 8; });
    forward(in.problem(can.meets(Demand::Lse)));
    std::int64_t wrong = 0;
    for (std::int64_t head = 0; head < c.B * c.H; ++head)
      for (std::int64_t d = 0; d < c.D; ++d) {
        float sum = 0;
        for (std::int64_t j = 0; j < c.Sk; ++j) sum += to_float(in.v.view.row(head / c.H, head % c.H, j)[d]);
        for (std::int64_t i = 0; i < c.Sq; ++i)
          wrong += !(to_float(in.o.view.row(head / c.H, head % c.H, i)[d]) ==
                     to_float(from_float<T>(sum / static_cast<float>(c.Sk))));
      }
    CHECK(wrong == 0);
  }
}

// V's range (docs/conventions.md): a row of n keys is promised O up to |V| = (1 - n·2^-22)·FLT_MAX / n, and a little
// beyond FLT_MAX / n the elements of O are, for these logits, right or infinite. Returns whether any was infinite
// there. All logits equal is the worst case, l = n; rising ones rescale O with every key.
template <class T>
bool check_range_of_v(const Forward<T>& forward, const Features& can) {
  constexpr double largest = std::numeric_limits<float>::max();
  bool overflowed = false;
  for (const std::int64_t n : {1, 7, 100})
    for (const Input input : {Input::Equal, Input::Rising}) {
      const Case c{.Sq = 5, .Sk = n, .D = 16, .input = input, .block_q = 16, .block_k = 16};
      const double promised = (1 - static_cast<double>(n) * 0x1p-22) * largest / static_cast<double>(n);
      T edge = from_float<T>(static_cast<float>(promised));
      if (!(to_float(edge) <= promised)) edge = from_float<T>(static_cast<float>(promised * (1 - 0x1p-7)));
      if (std::is_same_v<T, half>) edge = from_float<T>(65504.0f);  // fp16's largest, far inside
      Inputs<T> in(c);
      const Random random(c.seed, 5);
      const auto fill = [&](float v) {  // columns of +v, of -v, and of anything between
        in.v.fill(c.Sk, [&](std::uint64_t i, std::int64_t) {
          const auto column = static_cast<std::int64_t>(i) % c.D;
          return column == 0 ? v : column == 1 ? -v : v * (2 * random.uniform(i) - 1);
        });
      };
      fill(to_float(edge));
      forward(in.problem(can.meets(Demand::Lse)));
      const Reference want = reference(in.problem(false));
      INFO(text(c) << ", |V| up to " << to_float(edge));
      const double bar = bars<T>(c, want).relative;
      CHECK(distance(gather(in.o.view), want.o, c.D).relative <= bar);

      if (n == 1 || std::is_same_v<T, half>) continue;  // no number of T is beyond
      fill(static_cast<float>(1.01 * largest / static_cast<double>(n)));
      forward(in.problem(can.meets(Demand::Lse)));
      const std::vector<double> exact = reference(in.problem(false)).o, got = gather(in.o.view);
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        if (i % c.D > 1) continue;  // the columns whose sum does not cancel
        overflowed = overflowed || std::isinf(got[i]);
        wrong += std::isinf(got[i]) ? (got[i] > 0) != (exact[i] > 0)
                                    : !(std::abs(got[i] - exact[i]) <= 2 * bar * std::abs(exact[i]));
      }
      INFO("beyond");
      CHECK(wrong == 0);
    }
  return overflowed;
}

// Any finite scale: 0 (the mean of V), 1 (unscaled), negative, tiny, large.
template <class T>
void check_scales(const Forward<T>& forward, const Features& can) {
  for (const float scale : {0.0f, 1.0f, -1.0f, 1e-30f, 4.0f, -4.0f})
    check_forward<T>(
        {.B = 1, .Sq = 33, .Sk = 41, .D = 24, .input = Input::QKV4, .scale = scale, .block_q = 16, .block_k = 16},
        forward, can);
}

// S_q = 0, S_k = 0, B = 0 and H = 0 are legal: nothing to write, or O = 0 and LSE = -inf.
template <class T>
void check_empty(const Forward<T>& forward, const Features& can) {
  for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
    if (causal == Mask::none() || can.meets(Demand::Causal)) {
      check_forward<T>({.Sq = 0, .Sk = 20, .mask = causal}, forward, can);
      check_forward<T>({.Sq = 20, .Sk = 0, .mask = causal, .layout = Layout::Padded, .granule = granule(can)}, forward,
                       can);
      check_forward<T>({.Sq = 0, .Sk = 0, .mask = causal}, forward, can);
      check_forward<T>({.B = 0, .mask = causal}, forward, can);
      check_forward<T>({.H = 0, .mask = causal}, forward, can);
    }
  // Tensors without elements need no memory.
  Problem<T> p;
  p.q.shape = p.k.shape = p.v.shape = p.o.shape = {0, 2, 3, 4};
  p.q.stride = p.k.stride = p.v.stride = p.o.stride = dense_strides(p.q.shape);
  CHECK_NOTHROW(forward(p));
}

// A batch entry or a head gives the same bits alone as in company.
template <class T>
void check_batch_invariance(const Forward<T>& forward, const Features& can) {
  const Case c{.B = 3,
               .H = 2,
               .Sq = 50,
               .Sk = 61,
               .D = 32,
               .block_q = 16,
               .block_k = 16,
               .layout = Layout::Mixed,
               .granule = granule(can)};
  Inputs<T> together(c), alone(c);
  forward(together.problem(can.meets(Demand::Lse)));
  for (std::int64_t b = 0; b < c.B; ++b)
    for (std::int64_t h = 0; h < c.H; ++h) {
      Problem<T> p = alone.problem(can.meets(Demand::Lse));
      for (auto* view : {&p.q, &p.k, &p.v}) {
        view->data = view->head(b, h);
        view->shape[0] = view->shape[1] = 1;
      }
      p.o.data = p.o.head(b, h);
      p.o.shape[0] = p.o.shape[1] = 1;
      if (p.lse) p.lse += (b * c.H + h) * c.Sq;
      forward(p);
    }
  CHECK(same_bits(together.o.memory, alone.o.memory));
  CHECK(same_bits(together.lse, alone.lse));
}

// O's bits do not depend on whether LSE is wanted, and without it nothing is written there.
template <class T>
void check_lse_is_a_by_product(const Forward<T>& forward, const Features& can) {
  if (!can.meets(Demand::Lse)) return;
  const Case c{.Sq = 50, .Sk = 61, .D = 32, .mask = Mask::bottom_right(), .block_q = 16, .block_k = 16};
  Inputs<T> with(c), without(c);
  forward(with.problem(true));
  forward(without.problem(false));
  CHECK(same_bits(with.o.memory, without.o.memory));
  CHECK(is_poison(without.lse.data(), without.lse.size() * sizeof(float)));
}

template <class T>
void check_far_strides(std::int64_t D) {
  const Case c{.B = 2, .H = 2, .Sq = 36, .Sk = 18, .D = D};  // rows of more than one warp
  Inputs<T> near(c);
  const Features& can = features_under_test();
  const Result<T> want = run_case(near, on<T>(phase_under_test(), Where::Sim), can.meets(Demand::Lse));
  FarApart far(granule(can));
  Problem<T> p = near.problem(false);
  p.q = far(p.q);
  p.k = far(p.k);
  p.v = far(p.v);
  const View<T> o = p.o = far(p.o);  // with the results in it: they must be written again
  for (std::int64_t b = 0; b < o.B(); ++b)
    for (std::int64_t h = 0; h < o.H(); ++h)
      for (std::int64_t i = 0; i < o.S(); ++i)
        fill_with_poison(o.row(b, h, i), static_cast<std::size_t>(o.D()) * sizeof(T));
  flash::forward(phase_under_test(), p, Where::Sim, {.in_place = true});
  CHECK(gather(o) == want.o);
}

// Every refusal that all phases share. O = [2, 3, 4, 8], K = V = [2, 3, 5, 8] before each is broken.
template <class T>
void check_refusals(const Forward<T>& forward, const Features& can) {
  using P = Problem<T>;
  const auto refused = [&](const std::string& message, const auto& break_it) {
    check_refused<T>(forward, can, message, break_it);
  };
  static constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();

  // Shapes: each dimension of K, V and O.
  refused("K's batch size B is 1; expected 2 as in Q; make the shapes agree", [](P& p) { p.k.shape[0] = 1; });
  refused("V's batch size B is 1; expected 2 as in Q; make the shapes agree", [](P& p) { p.v.shape[0] = 1; });
  refused("O's batch size B is 1; expected 2 as in Q; make the shapes agree", [](P& p) { p.o.shape[0] = 1; });
  // With grouped heads K says how many V has, and with Dv V says how wide O is.
  const bool grouped = can.meets(Demand::FewerHeads), other_Dv = can.meets(Demand::OtherDv);
  refused(std::string(grouped ? "V's number of heads H is 3; expected 1 as in K"
                              : "K's number of heads H is 1; expected 3 as in Q") +
              "; make the shapes agree",
          [](P& p) { p.k.shape[1] = 1; });
  refused(
      "V's number of heads H is 2; expected 3 as in " + std::string(grouped ? "K" : "Q") + "; make the shapes agree",
      [](P& p) { p.v.shape[1] = 2; });
  if (grouped)
    refused("K's number of heads H is 2; expected a divisor of 3, Q's; repeat heads",
            [](P& p) { p.k.shape[1] = p.v.shape[1] = 2; });
  refused("O's number of heads H is 1; expected 3 as in Q; make the shapes agree", [](P& p) { p.o.shape[1] = 1; });
  refused("V's sequence length S is 4; expected 5 as in K; make the shapes agree", [](P& p) { p.v.shape[2] = 4; });
  refused("O's sequence length S is 3; expected 4 as in Q; make the shapes agree", [](P& p) { p.o.shape[2] = 3; });
  refused("K's head dimension D is 7; expected 8 as in Q; make the shapes agree", [](P& p) { p.k.shape[3] = 7; });
  refused(std::string(other_Dv ? "O's head dimension D is 8; expected 7 as in V"
                               : "V's head dimension D is 7; expected 8 as in Q") +
              "; make the shapes agree",
          [](P& p) { p.v.shape[3] = 7; });
  refused(
      "O's head dimension D is 7; expected 8 as in " + std::string(other_Dv ? "V" : "Q") + "; make the shapes agree",
      [](P& p) { p.o.shape[3] = 7; });
  refused("Q's sequence length S is -1; expected 0 or more; correct the shape", [](P& p) { p.q.shape[2] = -1; });
  const auto set_d = [](P& p, std::int64_t D) {
    for (auto* shape : {&p.q.shape, &p.k.shape, &p.v.shape, &p.o.shape}) (*shape)[3] = D;
  };
  const std::string D_limit = "; expected 1 to " + std::to_string(can.largest_D()) + "; split the head";
  refused("Q's head dimension D is 0" + D_limit, [&](P& p) { set_d(p, 0); });
  refused("Q's head dimension D is " + std::to_string(can.largest_D() + 1) + D_limit,
          [&](P& p) { set_d(p, can.largest_D() + 1); });
  refused(
      "Q's number of elements [4294967296, 4294967296, 4, 8] is over 2^63; expected less than 2^63; split the batch",
      [](P& p) { p.q.shape[0] = p.q.shape[1] = std::int64_t{1} << 32; });

  // Strides and pointers.
  refused("K's last stride is 2; expected 1 (D contiguous); pass a contiguous copy", [](P& p) { p.k.stride[3] = 2; });
  refused("O's last stride is 0; expected 1 (D contiguous); pass a contiguous copy", [](P& p) { p.o.stride[3] = 0; });
  refused("V's stride of sequence length S is -8; expected 0 or more; pass a copy", [](P& p) { p.v.stride[2] = -8; });
  refused("O's stride of number of heads H is 0; expected at least 1; give each row its own memory",
          [](P& p) { p.o.stride[1] = 0; });
  refused("O's stride of sequence length S is 7; expected at least 8; give each row its own memory",
          [](P& p) { p.o.stride[2] = 7; });
  refused("O's stride of batch size B is 95; expected at least 96; give each row its own memory",
          [](P& p) { p.o.stride[0] = 95; });
  refused("V's extent in memory is over 2^63 bytes; expected less than 2^63 bytes; correct shape and strides",
          [](P& p) { p.v.stride[0] = std::int64_t{1} << 61; });
  refused("K's data is null; expected a pointer; allocate it", [](P& p) { p.k.data = nullptr; });

  // Options.
  refused("scale is nan; expected a finite number; omit it for 1/sqrt(D)", [](P& p) { p.options.scale = nan; });
  refused("scale is inf; expected a finite number; omit it for 1/sqrt(D)", [](P& p) { p.options.scale = inf; });
  refused("scale is -inf; expected a finite number; omit it for 1/sqrt(D)", [](P& p) { p.options.scale = -inf; });
  refused("block_q is -1; expected 0 (automatic) to 1048576; omit --block-q", [](P& p) { p.options.block_q = -1; });
  refused("block_k is -64; expected 0 (automatic) to 1048576; omit --block-k", [](P& p) { p.options.block_k = -64; });
  refused("block_q is 4611686018427387904; expected 0 (automatic) to 1048576; omit --block-q",
          [](P& p) { p.options.block_q = std::int64_t{1} << 62; });
  refused("block_k is 1048577; expected 0 (automatic) to 1048576; omit --block-k",
          [](P& p) { p.options.block_k = 1048577; });
  refused("sram is 0; expected at least 1 byte; pass --sram 196608", [](P& p) { p.options.sram_bytes = 0; });
  refused("threads is -2; expected 0 (all cores) or more; omit --threads", [](P& p) { p.options.threads = -2; });

  // A feature that the phase lacks: refused by name, with who has it.
  const std::string phase = phase_under_test().name;
  if (can.tensor_maps()) {
    const auto not_16 = [&](const std::string& what, int value, const auto& break_it) {
      refused(what + " is " + std::to_string(value) + "; expected a multiple of 16 for TMA in phase " + phase +
                  "; choose a phase that copies without it: ./flash help",
              break_it);
    };
    not_16("Q's bytes in a row", 14, [&](P& p) { set_d(p, 7); });
    not_16("K's stride of sequence length S in bytes", 24, [](P& p) { p.k.stride[2] = 12; });
    not_16("V's stride of number of heads H in bytes", 90, [](P& p) { p.v.stride[1] = 45; });
    not_16("O's stride of batch size B in bytes", 202, [](P& p) { p.o.stride[0] = 101; });
    refused("K's sequence length S is 1073741825; expected at most 2^30 for TMA in phase " + phase +
                "; choose a phase that copies without it: ./flash help",
            [](P& p) { p.k.shape[2] = p.v.shape[2] = (std::int64_t{1} << 30) + 1; });
  }
  if (!can.meets(Demand::Causal)) {
    refused("causal is top-left; expected none in phase " + phase + "; choose a phase that has it: ./flash help",
            [](P& p) { p.options.mask = Mask::top_left(); });
    refused("causal is bottom-right; expected none in phase " + phase + "; choose a phase that has it: ./flash help",
            [](P& p) { p.options.mask = Mask::bottom_right(); });
  }
  if (!can.meets(Demand::Lse)) {
    float lse[24] = {};
    refused("LSE is wanted; expected none in phase " + phase + "; choose a phase that has it: ./flash help",
            [&](P& p) { p.lse = lse; });
    CHECK(std::all_of(lse, lse + 24, [](float x) { return x == 0; }));
  }
}

}  // namespace

template <class T>
void check_contract(Where where) {
  const Features& can = features_under_test();
  Figures figures;
  std::size_t number = 0;
  for (Case c : pairwise(restrict_to({}, can))) {
    c.twice = runs_twice(can, where, number++);
    INFO(text(c));
    expect_none(examine<T>(c, on<T>(phase_under_test(), where), can, &figures));
  }
  MESSAGE(std::string(phase_under_test().name) << " " << std::string(type_name<T>()) << ": " << text(figures));
}

template <class T>
void check_published(Where where) {
  const Features& can = features_under_test();
  Figures figures;
  std::size_t number = 0;
  for (Case c : published_cases()) {
    c.twice = runs_twice(can, where, number++);
    if ((c.mask == Mask::none() || can.meets(Demand::Causal)) && c.D <= can.largest_D())
      check_forward<T>(c, on<T>(phase_under_test(), where), can, &figures);
  }
  MESSAGE(std::string(phase_under_test().name)
          << " " << std::string(type_name<T>()) << ": published shapes: " << text(figures));
}

template <class T>
void check_long(Where where, std::int64_t Sk) {
  const Features& can = features_under_test();
  Figures figures;
  for (Case c : long_cases(Sk)) {
    // The simulator takes as long for rows that are not there, and small tiles of keys are more of them.
    if (can.kernel && where == Where::Sim)
      c.block_q = smallest_blocks(can, c.D).Br, c.block_k = smallest_blocks(can, c.D).Bc;
    check_forward<T>(c, on<T>(phase_under_test(), where), can, &figures);
  }
  MESSAGE(std::string(phase_under_test().name) << " " << std::string(type_name<T>()) << ": " << text(figures));
}

template <class T>
void check_promises(Where where) {
  const Features& can = features_under_test();
  const Forward<T> forward = on<T>(phase_under_test(), where);
  check_poison<T>(forward, can);
  check_one_hot<T>(forward, can);
  check_exact_mean<T>(forward, can);
  check_scales<T>(forward, can);
  check_empty<T>(forward, can);
  check_batch_invariance<T>(forward, can);
  check_lse_is_a_by_product<T>(forward, can);
}

template <class T>
void check_empty(Where where) {
  check_empty<T>(on<T>(phase_under_test(), where), features_under_test());
}

template <class T>
bool check_range_of_v(Where where) {
  return check_range_of_v<T>(on<T>(phase_under_test(), where), features_under_test());
}

#define FLASH_INSTANTIATE(T)                        \
  template void check_contract<T>(Where);           \
  template void check_published<T>(Where);          \
  template void check_long<T>(Where, std::int64_t); \
  template void check_promises<T>(Where);           \
  template bool check_range_of_v<T>(Where);         \
  template void check_empty<T>(Where);
FLASH_INSTANTIATE(float)
FLASH_INSTANTIATE(half)
FLASH_INSTANTIATE(bfloat16)

TEST_CASE_TEMPLATE("contract" * only_if(has_type), T, float, half, bfloat16) {
  check_contract<T>(Where::Sim);
}
TEST_CASE("published shapes" * only_if(has_type(Type::Float16))) {
  check_published<half>(Where::Sim);
}
TEST_CASE_TEMPLATE("long sequences" * only_if(has_type), T, float, half, bfloat16) {
  check_long<T>(Where::Sim, std::int64_t{1} << 15);
}
TEST_CASE_TEMPLATE("promises" * only_if(has_type), T, float, half, bfloat16) {
  check_promises<T>(Where::Sim);
}
TEST_CASE_TEMPLATE("range of V" * only_if(has_type), T, float, half, bfloat16) {
  const bool beyond = check_range_of_v<T>(Where::Sim);
  MESSAGE(std::string(type_name<T>()) << " beyond FLT_MAX / n: " << std::string(beyond ? "infinite" : "right"));
}
TEST_CASE_TEMPLATE("strides over 2^31" * only_if(has_type), T, float, half, bfloat16) {
  check_far_strides<T>(8);
  check_far_strides<T>(features_under_test().largest_D());
}
TEST_CASE_TEMPLATE("bad input" * only_if(has_type), T, float, half, bfloat16) {
  check_refusals<T>(on<T>(phase_under_test(), Where::Sim), features_under_test());
}

// Each demand of the table: a problem that asks it and nothing else that is special is refused by a phase that does not
// meet it, by the argument that the table names; and asks it in the eyes of the table, or nothing would be tried.
TEST_CASE("what the phase does not meet is refused by name") {
  const Phase& phase = phase_under_test();
  const Type type = features_under_test().types[features_under_test().types.size() - 1];  // 16 bits
  std::vector<unsigned char> memory(1 << 16);
  const auto dense = [&](std::int64_t B, std::int64_t H, std::int64_t S, std::int64_t D) {
    static std::size_t used = 0;
    used = (used + 4096) % memory.size();
    const auto base = (reinterpret_cast<std::uintptr_t>(memory.data()) + 15) / 16 * 16;
    return AnyView{
        reinterpret_cast<void*>(base + (used < 4096 * 15 ? used : 0)), {B, H, S, D}, dense_strides({B, H, S, D})};
  };
  for (const Pass* pass : {phase.forward, phase.backward}) {
    if (!pass) continue;
    for (const DemandRow& row : demands::rows) {
      AnyProblem p({2, 4, 4, 5, 6, 8, 8}, type, {});
      p.direction = pass == phase.forward ? Direction::Forward : Direction::Backward;
      for (const Operand& operand : operands) {
        std::array<std::int64_t, 4> shape{};
        for (int i = 0; i < 4; ++i) shape[i] = length_of(operand.shape[i], {2, 4, 4, 5, 6, 8, 8, 2});
        if (!operand.optional || operand.view == &AnyProblem::lse)
          p.*operand.view = dense(shape[0], shape[1], shape[2], shape[3]);
      }
      if (!p.backward() && row.demand != Demand::Lse) p.lse = {};
      switch (row.demand) {
        case Demand::Causal:
          p.options.mask = Mask::bottom_right();
          break;
        case Demand::Window:
          p.options.mask.left = 3;
          break;
        case Demand::Lse:
          break;
        case Demand::Kept:
          p.m = p.l = dense(2, 4, 5, 1);
          break;
        case Demand::WideOutput:
          p.out = Type::Float32;
          break;
        case Demand::FewerHeads:
          p.k = dense(2, 2, 6, 8), p.v = dense(2, 2, 6, 8);
          if (p.backward()) p.dk = dense(2, 2, 6, 8), p.dv = dense(2, 2, 6, 8);
          break;
        case Demand::OtherDv:
          p.v = dense(2, 4, 6, 16), p.o = dense(2, 4, 5, 16);
          if (p.backward()) p.dv = dense(2, 4, 6, 16), p.dout = dense(2, 4, 5, 16);
          break;
        case Demand::Lengths:
          p.keys_of = dense(1, 1, 2, 1);
          break;
        case Demand::Softcap:
          p.options.softcap = 30;
          break;
        case Demand::Alibi:
          p.slopes = dense(1, 4, 1, 1);
          break;
        case Demand::Bias:
          p.bias = dense(1, 4, 1, 6);
          break;
        case Demand::BoolMask:
          p.allowed = dense(2, 1, 5, 6);
          break;
        case Demand::Documents:
          p.document_q = dense(1, 1, 5, 1), p.document_k = dense(1, 1, 6, 1);
          break;
        case Demand::BlockMask:
          p.blocks = dense(1, 4, 1, 1);
          break;
        case Demand::Sinks:
          p.sinks = dense(1, 4, 1, 1);
          break;
        case Demand::Dropout:
          p.options.dropout.p = 0.1f;
          break;
        case Demand::AnyStride:
          p.k.stride[2] = 12, p.k.stride[1] = 72, p.k.stride[0] = 288;
          break;
        case Demand::Atomic:
          p.options.mode = BackwardMode::Atomic;
          break;
        case Demand::SpareMultiprocessors:
          p.options.spare_multiprocessors = 1;
          break;
        case Demand::Ranks:
          p.options.ring.ranks = 3;
          break;
      }
      INFO(phase.name << ": " << row.word << (p.backward() ? ", backward" : ""));
      const std::optional<Refusal> asked = row.asked(p);
      if (!asked) {  // it can be asked in one direction alone, or says nothing to this type
        CHECK((row.demand == Demand::Lse || row.demand == Demand::Atomic ||
               (row.demand == Demand::WideOutput && type == Type::Float32)));
        continue;
      }
      if (pass->features.meets(row.demand)) {
        CHECK_NOTHROW(validate(p, phase));
        continue;
      }
      std::string said;
      try {
        validate(p, phase);
      } catch (const Error& e) {
        said = e.what();
      }
      CHECK(said.rfind(asked->argument + " is " + asked->value + "; expected " + asked->expected, 0) == 0);
    }
  }
}

// A backward pass of which CMakeLists.txt says nothing (GRADIENTS) would be proved by nothing.
TEST_CASE("a backward pass brings its promises" * only_if(phase_under_test().backward != nullptr)) {
  CHECK_MESSAGE(backward_promises, "they are not linked: say GRADIENTS in CMakeLists.txt");
}

// A type that the phase does not declare is refused by name.
TEST_CASE_TEMPLATE("types" * only_if(lacks_type), T, float, half, bfloat16) {
  const Features& can = features_under_test();
  std::string types;
  for (const Type type : can.types) types += (types.empty() ? "" : " or ") + std::string(name(type));
  check_refused<T>(on<T>(phase_under_test(), Where::Sim), can,
                   "type is " + std::string(type_name<T>()) + "; expected " + types + " in phase " +
                       phase_under_test().name + "; convert, or choose another phase: ./flash help",
                   [](Problem<T>&) {});
}

// The same problem through the phase before.
TEST_CASE_TEMPLATE("equals the phase before" * only_if(phase_before_has_type_too), T, float, half, bfloat16) {
  const Features &can = features_under_test(), &could = phase_before()->forward->features;
  constexpr std::int64_t D = 40;
  const auto has_more_keys = [](const Features& phase) {  // than rows, in some blocks
    return !(listed_blocks(phase, D, {16, 24}) == listed_blocks(phase, D, {16, 16}));
  };
  for (const Input input : {Input::Normal, Input::Shifted, Input::Outliers, Input::Q60, Input::Rising, Input::LowEqual})
    for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
      for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{61, 83}, {83, 61}})
        for (const auto& [Br, Bc] : {std::pair<std::int64_t, std::int64_t>{16, 16}, {16, 24}}) {
          if (causal != Mask::none() && !(can.meets(Demand::Causal) && could.meets(Demand::Causal))) continue;
          if (Bc > Br && !(has_more_keys(can) || has_more_keys(could))) continue;  // the same blocks again
          check_equals_previous<T>(
              {.B = 1, .Sq = Sq, .Sk = Sk, .D = D, .input = input, .mask = causal, .block_q = Br, .block_k = Bc},
              on<T>(*phase_before(), Where::Sim), on<T>(phase_under_test(), Where::Sim));
        }
}

// Predicted = counted, read and written, as integers: each block size or budget, ragged and not, each mask; each of
// these with LSE and without.
TEST_CASE_TEMPLATE("bytes equal the formula" * only_if(has_type) * only_if(features_under_test().hbm_bytes != nullptr),
                   T, float, half, bfloat16) {
  const Features& can = features_under_test();
  const Where where = can.kernel ? Where::Checked : Where::Sim;
  if (skipped_without(where)) return;
  std::vector<Blocks> all = {{0, 0}, {16, 48}, {13, 7}};
  if (can.kernel) all = blocks_for(can, 24);
  std::size_t number = 0;
  for (const Blocks& blocks : all)
    for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{53, 100}, {100, 53}, {64, 64}, {20, 0}, {0, 20}})
      for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()}) {
        const bool lse = can.meets(Demand::Lse) && number % 2 == 1;
        const bool batches = number++ / 2 % 2 == 1;
        if (causal != Mask::none() && !can.meets(Demand::Causal)) continue;
        const Case c{.B = batches ? 3 : 1,
                     .H = batches ? 1 : 2,
                     .Sq = Sq,
                     .Sk = Sk,
                     .D = 24,
                     .mask = causal,
                     .block_q = blocks.Br,
                     .block_k = blocks.Bc,
                     .layout = Layout::Padded,
                     .granule = granule(can),
                     .sram_bytes = 32 * 1024};
        INFO(text(c) << (lse ? ", LSE" : ""));
        Inputs<T> in(c);
        const Problem<T> p = in.problem(lse);
        const Run run = flash::forward(phase_under_test(), p, where);
        CHECK(run.counted);
        const HbmBytes counted{run.ledger.hbm_read_bytes(), run.ledger.hbm_written_bytes()};
        const HbmBytes predicted = phase_under_test().forward->features.hbm_bytes(p, run.blocks);
        CHECK(predicted.read == counted.read);
        CHECK(predicted.written == counted.written);
        if (can.kernel) CHECK(run.blocks == blocks);
      }
}

}  // namespace flash::test
