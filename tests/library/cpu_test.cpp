// cpu_test.cpp: libflashphases on the CPU: each field of the struct alone and each two, both directions, against fp64
// (tests/whole.hpp); what is refused there; and structs of programs that know fewer fields.
// ctest -L library -R "^library_cpu\."
#include <doctest/doctest.h>
#include <flashphases.h>

#include <functional>
#include <optional>

#include "phases/interface/operands.hpp"
#include "phases/interface/where.hpp"
#include "tests/features.hpp"

using namespace flash;
using namespace flash::test;
using Args = flashphases_forward_args;

namespace {

// An axis that all share has stride 0 here.
flashphases_tensor tensor_of(const AnyView& view, const Shape& s, Length rows = Length::Sq) {
  if (!view.given()) return {};
  const auto stride = [&](int axis, std::int64_t size) {
    return view.shape[static_cast<std::size_t>(axis)] == 1 && size != 1 ? 0
                                                                        : view.stride[static_cast<std::size_t>(axis)];
  };
  return {view.data, stride(0, s.B), stride(1, s.H), stride(2, length_of(rows, s))};
}
flashphases_input input_of(const AnyView& view, const Shape& s, Length rows = Length::Sq) {
  const flashphases_tensor t = tensor_of(view, s, rows);
  return {t.data, t.stride_b, t.stride_h, t.stride_s};
}
// All strides as they are.
flashphases_tensor whole(const AnyView& view) {
  return {view.data, view.stride[0], view.stride[1], view.stride[2]};
}

// The problem as a C program would write it down.
Args args_of(const AnyProblem& p) {
  const Shape s = p.shape();
  Args a{};
  a.struct_size = sizeof a;
  a.machine = FLASHPHASES_CPU;
  a.threads = 1;
  a.type = static_cast<int>(p.type);
  a.wide_output = p.out != p.type;
  const Mask& mask = p.options.mask;
  const bool window = mask.is_window();
  a.mask = (mask.alignment == Alignment::BottomRight ? FLASHPHASES_CAUSAL_BOTTOM_RIGHT : FLASHPHASES_CAUSAL_TOP_LEFT) +
           (window ? 2 : 0);
  if (!mask.is_causal() && !window) a.mask = FLASHPHASES_MASK_NONE;
  if (window) a.window_left = mask.left, a.window_right = mask.right;
  a.B = s.B, a.H = s.H, a.Sq = s.Sq, a.Sk = s.Sk, a.D = s.D;
  if (s.Hk != s.H) a.Hk = s.Hk;
  if (s.Dv != s.D) a.Dv = s.Dv;
  a.q = input_of(p.q, s), a.o = tensor_of(p.o, s);
  for (const auto& [to, from] : {std::pair(&a.k, &p.k), {&a.v, &p.v}})
    *to = {from->data, from->stride[0], from->stride[1], from->stride[2]};
  a.lse = static_cast<float*>(p.lse.data);
  a.m = static_cast<float*>(p.m.data), a.l = static_cast<float*>(p.l.data);
  a.o_lo = whole(p.o_lo);
  a.mask_shift = mask.shift;
  a.softcap = p.options.softcap;
  a.dropout = p.options.dropout.p, a.dropout_seed = p.options.dropout.seed;
  a.slopes = input_of(p.slopes, s, Length::One), a.bias = input_of(p.bias, s), a.bool_mask = input_of(p.allowed, s);
  a.doc_q = input_of(p.document_q, s), a.doc_k = input_of(p.document_k, s, Length::Sk);
  a.block_mask = input_of(p.blocks, s, Length::RowBlocks);
  a.sinks = static_cast<const float*>(p.sinks.data);
  if (p.packed()) a.N = s.N;
  a.cu_seqlens_q = static_cast<const std::int32_t*>(p.first_rows.data);
  a.cu_seqlens_k = static_cast<const std::int32_t*>(p.first_keys.data);
  a.seqused_q = static_cast<const std::int32_t*>(p.rows_of.data);
  a.seqused_k = static_cast<const std::int32_t*>(p.keys_of.data);
  return a;
}

flashphases_backward_args gradients_of(const AnyProblem& p, const Args& forward) {
  flashphases_backward_args g{};
  g.struct_size = sizeof g;
  g.forward = &forward;
  const flashphases_tensor dout = whole(p.dout);
  g.dout = {dout.data, dout.stride_b, dout.stride_h, dout.stride_s};
  g.dlse = static_cast<const float*>(p.dlse.data);
  g.dq = whole(p.dq), g.dk = whole(p.dk), g.dv = whole(p.dv);
  g.dbias = tensor_of(p.dbias, p.shape());
  g.dsinks = static_cast<float*>(p.dsinks.data);
  return g;
}

int backward(const flashphases_backward_args& g) {
  return flashphases_backward(&g, nullptr, 0, nullptr);
}
int forward(const Args& a) {
  return flashphases_forward(&a, nullptr, 0, nullptr);
}

std::string said() {
  return flashphases_error();
}

}  // namespace

TEST_CASE_TEMPLATE("on the CPU every field alone and every two", T, float, half, bfloat16) {
  int cases = 0;
  for (const FeatureSet& on : singles_and_pairs()) {
    const auto number = static_cast<std::uint64_t>(cases++);
    // dbias and dsinks are in fp32, and as precise as O is known (docs/backward.md).
    const bool needs_kept = sizeof(T) == 2 && (on.count(Feature::Bias) || on.count(Feature::Sinks));
    const FeatureCase c{.on = on,
                        .Sq = 40,
                        .Sk = 70,
                        .D = 24,
                        .layout = static_cast<Layout>(number % 5),
                        .seed = number,
                        .keeps = needs_kept || number % 2 == 0,
                        .sharing = static_cast<int>(number * 3 % 8)};
    FeatureInputs<T> in(c);
    const Args a = args_of(in.problem());
    int status = forward(a);
    if (status == FLASHPHASES_OK) status = backward(gradients_of(in.gradients(), a));
    if (status != FLASHPHASES_OK) {
      FAIL_CHECK(text(c) << ": " << status << ", " << said());
      continue;
    }
    expect_none(in.complaints());
  }
  CHECK(cases > 100);
}

TEST_CASE("on the CPU the definition is chosen, and needs no workspace") {
  FeatureInputs<float> in({.on = {Feature::Softcap}, .keeps = false});
  Args a = args_of(in.problem());
  std::int32_t phase = 0;
  std::size_t bytes = 1;
  const std::vector<unsigned char> before = in.results();
  CHECK(flashphases_chosen_phase(&a, &phase) == FLASHPHASES_OK);
  CHECK(phase == FLASHPHASES_DEFINITION);
  CHECK(flashphases_workspace(&a, &bytes) == FLASHPHASES_OK);
  CHECK(bytes == 0);
  CHECK(in.results() == before);  // neither has computed
  REQUIRE(forward(a) == FLASHPHASES_OK);
  const std::vector<unsigned char> one = in.results();
  CHECK(one != before);
  for (const int threads : {0, 3}) {
    a.threads = threads;
    REQUIRE(forward(a) == FLASHPHASES_OK);
    CHECK(in.results() == one);
  }
}

TEST_CASE("the backward pass on the CPU: chosen, without a workspace, and it writes gradients alone") {
  FeatureInputs<half> in({.on = {Feature::GroupedHeads, Feature::LseGradient}});
  const Args a = args_of(in.problem());
  const flashphases_backward_args g = gradients_of(in.gradients(), a);
  REQUIRE(forward(a) == FLASHPHASES_OK);
  const std::vector<unsigned char> before = in.results();
  std::int32_t phase = 0;
  std::size_t bytes = 1;
  CHECK(flashphases_backward_chosen_phase(&g, &phase) == FLASHPHASES_OK);
  CHECK(phase == FLASHPHASES_DEFINITION);
  CHECK(flashphases_backward_workspace(&g, &bytes) == FLASHPHASES_OK);
  CHECK(bytes == 0);
  CHECK(in.results() == before);
  const std::vector<half> o = in.o.memory;
  const std::vector<float> m = in.m;
  REQUIRE(backward(g) == FLASHPHASES_OK);
  CHECK(std::memcmp(o.data(), in.o.memory.data(), o.size() * sizeof(half)) == 0);
  CHECK(m == in.m);
  CHECK(in.results() != before);
}

TEST_CASE("rows further down: a shifted mask is that of a longer sequence") {
  for (const std::int64_t shift : {-31, -1, 1, 25}) {
    const Mask top_left = Mask::top_left().shifted(shift),
               window{.left = 9, .right = 4, .alignment = Alignment::BottomRight, .shift = shift};
    for (const Mask& mask : {top_left, window}) {
      FeatureInputs<float> in({.Sq = 30, .Sk = 50, .mask = mask});
      const Args a = args_of(in.problem());
      CHECK(a.mask_shift == shift);
      REQUIRE(forward(a) == FLASHPHASES_OK);
      REQUIRE(backward(gradients_of(in.gradients(), a)) == FLASHPHASES_OK);
      expect_none(in.complaints());
    }
  }
}

TEST_CASE("what a phase can do is said of each, and of the definition all") {
  flashphases_phase info{};
  info.struct_size = sizeof info;
  REQUIRE(flashphases_phase_info(FLASHPHASES_DEFINITION, &info) == FLASHPHASES_OK);
  CHECK(info.name == std::string("definition"));
  CHECK(info.forward.types == 7);
  CHECK(info.forward.can == (FLASHPHASES_CAN_ATOMIC - 1));
  CHECK(info.backward.can == info.forward.can);
  CHECK(info.forward.largest_D == 256);
  CHECK(info.forward.capability == 0);
  std::vector<std::int32_t> numbers;
  while (info.next) {
    numbers.push_back(info.next);
    REQUIRE(flashphases_phase_info(info.next, &info) == FLASHPHASES_OK);
    CHECK(info.number == numbers.back());
    CHECK(std::atoi(info.name) == info.number);
    CHECK(info.forward.capability >= 75);
    if (info.number == 8) {
      CHECK(info.name == std::string("08-lse"));
      CHECK(info.forward.types == 7);
      CHECK(info.forward.can == (FLASHPHASES_CAN_CAUSAL | FLASHPHASES_CAN_LSE | FLASHPHASES_CAN_ANY_STRIDE));
      CHECK(info.backward.largest_D == 0);
      CHECK(info.backward.can == 0);
    }
    if (info.number == 24) {
      CHECK(info.backward.types == (1u << FLASHPHASES_FLOAT16 | 1u << FLASHPHASES_BFLOAT16));
      CHECK((info.backward.can & FLASHPHASES_CAN_ATOMIC) != 0);
      CHECK((info.backward.can & FLASHPHASES_CAN_ANY_STRIDE) == 0);
      CHECK(info.backward.capability == 90);
      CHECK(info.backward.this_capability_alone == 1);
    }
  }
  CHECK(numbers.size() > 20);
  CHECK(numbers.front() == 5);
  CHECK(std::is_sorted(numbers.begin(), numbers.end()));
  CHECK(std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end());
  CHECK(flashphases_phase_info(4, &info) == FLASHPHASES_BAD_ARGUMENT);
  CHECK(said().rfind("phase is 4; expected 0 (the fastest measured) or one of 5 6", 0) == 0);
  info.struct_size = 83;
  CHECK(flashphases_phase_info(8, &info) == FLASHPHASES_BAD_ARGUMENT);
  CHECK(said() == "struct_size is 83; expected 84 to 4096; set it to sizeof(flashphases_phase)");
  CHECK(flashphases_phase_info(8, nullptr) == FLASHPHASES_BAD_ARGUMENT);
}

TEST_CASE("gradients: what is refused, by each call, before anything is written") {
  using Gradients = flashphases_backward_args;
  struct Refused {
    FeatureSet on;
    std::string message;
    std::function<void(Gradients&, Args&)> break_it;
  };
  const std::vector<Refused> all = {
      {{}, "forward is null; expected a pointer", [](Gradients& g, Args&) { g.forward = nullptr; }},
      {{},
       "struct_size is 200; expected 208 to 4096; set it to sizeof(flashphases_backward_args)",
       [](Gradients& g, Args&) { g.struct_size = 200; }},
      {{}, "struct_size is 3; expected 208, 512, or 576", [](Gradients&, Args& a) { a.struct_size = 3; }},
      {{}, "mode is 2; expected 0 (deterministic) or 1", [](Gradients& g, Args&) { g.mode = 2; }},
      {{}, "mode is atomic; expected deterministic in phase definition", [](Gradients& g, Args&) { g.mode = 1; }},
      {{}, "phase is 24; expected 0 on the CPU", [](Gradients& g, Args&) { g.phase = 24; }},
      {{}, "workspace_is_zero is 2; expected 0 or 1", [](Gradients& g, Args&) { g.workspace_is_zero = 2; }},
      {{},
       "spare_multiprocessors is 8; expected 0 in phase definition",
       [](Gradients&, Args& a) { a.spare_multiprocessors = 8; }},
      {{}, "mask_shift is 3; expected 0 where there is no mask", [](Gradients&, Args& a) { a.mask_shift = 3; }},
      {{Feature::Causal}, "mask_shift is ", [](Gradients&, Args& a) { a.mask_shift = INT64_MIN; }},
      {{}, "block_q is -3; expected 0 (automatic)", [](Gradients& g, Args&) { g.block_q = -3; }},
      {{}, "dO's data is null; expected a pointer", [](Gradients& g, Args&) { g.dout.data = nullptr; }},
      {{}, "dQ's data is null; expected a pointer", [](Gradients& g, Args&) { g.dq.data = nullptr; }},
      {{}, "dK's stride of sequence length S is 0", [](Gradients& g, Args&) { g.dk.stride_s = 0; }},
      {{}, "dV's address modulo 2 is 1", [](Gradients& g, Args&) { g.dv.data = static_cast<char*>(g.dv.data) + 1; }},
      {{}, "l is null; expected a pointer beside m", [](Gradients&, Args& a) { a.l = nullptr; }},
      {{}, "O_lo's data is null; expected a pointer beside", [](Gradients&, Args& a) { a.o_lo.data = nullptr; }},
      {{Feature::WideOutput},
       "O_lo is given; expected none for float32",
       [](Gradients&, Args& a) {
         a.o_lo = {a.o.data, a.o.stride_b, a.o.stride_h, a.o.stride_s};
       }},
      {{},
       "LSE's data is null; expected a pointer",
       [](Gradients&, Args& a) { a.lse = a.m = a.l = nullptr, a.o_lo = {}; }},
      {{Feature::Bias}, "bias is null; expected a pointer beside dbias", [](Gradients&, Args& a) { a.bias = {}; }},
      {{Feature::Sinks}, "sinks is null; expected a pointer beside", [](Gradients&, Args& a) { a.sinks = nullptr; }},
  };
  for (const Refused& refused : all) {
    FeatureInputs<half> in({.on = refused.on});
    Args a = args_of(in.problem());
    REQUIRE(forward(a) == FLASHPHASES_OK);
    Gradients g = gradients_of(in.gradients(), a);
    refused.break_it(g, a);
    const std::vector<unsigned char> before = in.results();
    std::size_t bytes = 0;
    std::int32_t phase = 0;
    for (const std::function<int()>& call : std::initializer_list<std::function<int()>>{
             [&] { return backward(g); }, [&] { return flashphases_backward_workspace(&g, &bytes); },
             [&] { return flashphases_backward_chosen_phase(&g, &phase); }}) {
      CHECK(call() == FLASHPHASES_BAD_ARGUMENT);
      CHECK(said().rfind(refused.message, 0) == 0);
      if (said().rfind(refused.message, 0) != 0) MESSAGE(said());
    }
    CHECK(in.results() == before);
  }
}

TEST_CASE("on a GPU gradients are a phase's that has them, and what it cannot is refused by its name") {
  FeatureInputs<half> in({.on = {Feature::Softcap}});
  Args a = args_of(in.problem());
  flashphases_backward_args g = gradients_of(in.gradients(), a);
  a.machine = FLASHPHASES_GPU;
  g.phase = 9;
  CHECK(backward(g) == FLASHPHASES_BAD_ARGUMENT);
  CHECK(said().rfind("softcap is 1.5", 0) == 0);
  CHECK(said().find("; expected none in phase 09-backward; choose a phase") != std::string::npos);
  g.phase = 8;
  CHECK(backward(g) == FLASHPHASES_BAD_ARGUMENT);
  CHECK(said().rfind("phase of the backward pass is 8; expected 0 (the fastest measured) or one of 9 20 ", 0) == 0);
}

TEST_CASE("windows without a bound, and one of the row's own key") {
  FeatureInputs<float> in({.on = {Feature::Window}, .Sq = 30, .Sk = 50, .keeps = false});
  const auto results = [&](const Args& a) {
    REQUIRE(forward(a) == FLASHPHASES_OK);
    return in.results();
  };
  Args a = args_of(in.problem());
  CHECK(a.mask == FLASHPHASES_WINDOW_BOTTOM_RIGHT);
  a.window_left = a.window_right = -1;
  Args plain = a;
  plain.mask = FLASHPHASES_MASK_NONE, plain.window_left = plain.window_right = 0;
  CHECK(results(a) == results(plain));
  for (const auto& [window, causal] : {std::pair(FLASHPHASES_WINDOW_TOP_LEFT, FLASHPHASES_CAUSAL_TOP_LEFT),
                                       std::pair(FLASHPHASES_WINDOW_BOTTOM_RIGHT, FLASHPHASES_CAUSAL_BOTTOM_RIGHT)}) {
    a.mask = window, a.window_left = -1, a.window_right = 0;
    plain.mask = causal;
    CHECK(results(a) == results(plain));
  }
  // O is V's row on the diagonal.
  a.mask = FLASHPHASES_WINDOW_TOP_LEFT, a.window_left = a.window_right = 0;
  results(a);
  CHECK(std::equal(in.o.view.row(1, 2, 7), in.o.view.row(1, 2, 7) + in.c.D, in.v.view.row(1, 2, 7)));
}

TEST_CASE("on the CPU: what is refused, by each call, before anything is written") {
  struct Refused {
    FeatureSet on;
    std::string message;
    std::function<void(Args&, FeatureInputs<float>&)> break_it;
  };
  const std::vector<Refused> all = {
      {{}, "machine is 4; expected 0 (GPU), 1 (CPU), 2 (simulator) or 3 (checked simulator); see enum",
       [](Args& a, auto&) { a.machine = 4; }},
      {{}, "machine is 3 (checked); expected 0 (GPU) or 1 (CPU): this library holds no simulator; use libflashphases-",
       [](Args& a, auto&) { a.machine = FLASHPHASES_CHECKED; }},
      {{}, "phase is 8; expected 0 on the CPU", [](Args& a, auto&) { a.phase = 8; }},
      {{}, "workspace_is_zero is -1; expected 0 or 1", [](Args& a, auto&) { a.workspace_is_zero = -1; }},
      {{}, "spare_multiprocessors is 4; expected 0 in phase def", [](Args& a, auto&) { a.spare_multiprocessors = 4; }},
      {{}, "mask_shift is -2; expected 0 where there is no", [](Args& a, auto&) { a.mask_shift = -2; }},
      {{}, "threads is -1; expected 0 (all cores) or more", [](Args& a, auto&) { a.threads = -1; }},
      {{}, "wide_output is 2; expected 0 (of the type of Q) or 1", [](Args& a, auto&) { a.wide_output = 2; }},
      {{}, "softcap is -1; expected more than 0", [](Args& a, auto&) { a.softcap = -1; }},
      {{}, "dropout is 1; expected 0 to 65535/65536", [](Args& a, auto&) { a.dropout = 1; }},
      {{}, "window_left is 3; expected 0 where mask is no window", [](Args& a, auto&) { a.window_left = 3; }},
      {{}, "window_right is -1; expected 0 where mask is no", [](Args& a, auto&) { a.window_right = -1; }},
      {{Feature::Window}, "window_left is -2; expected 0 or more, or -1", [](Args& a, auto&) { a.window_left = -2; }},
      {{Feature::Window}, "window_right is -2; expected 0 or", [](Args& a, auto&) { a.window_right = -2; }},
      {{}, "mask is 5; expected 0 (none), 1 (top-left), 2 (bottom-right) or a", [](Args& a, auto&) { a.mask = 5; }},
      {{}, "K's number of heads H is 3; expected a divisor of 4", [](Args& a, auto&) { a.Hk = 3; }},
      {{}, "K's number of heads H is -1; expected 0 or more", [](Args& a, auto&) { a.Hk = -1; }},
      {{}, "V's head dimension D is -2; expected 0 or more", [](Args& a, auto&) { a.Dv = -2; }},
      {{}, "V's head dimension D is 257; expected 1 to 256", [](Args& a, auto&) { a.Dv = 257; }},
      {{}, "N is 2; expected 0 without cu_seqlens_q", [](Args& a, auto&) { a.N = 2; }},
      {{Feature::Packed}, "N is -1; expected 0 or more", [](Args& a, auto&) { a.N = -1; }},
      {{Feature::Packed}, "cu_seqlens_k is null; expected", [](Args& a, auto&) { a.cu_seqlens_k = nullptr; }},
      {{Feature::Packed}, "cu_seqlens_q[5] is 1000; expected", [](Args&, auto& in) { in.first_rows[5] = 1000; }},
      {{Feature::Used}, "seqused_k[0] is -1; expected 0 to 90", [](Args&, auto& in) { in.keys_of[0] = -1; }},
      {{Feature::BlockMask},
       "block_mask[0, 0, 1, 0] is 3; expected 0 (none), 1 (ask) or 2 (whole); correct the blocks",
       [](Args&, auto& in) { in.blocks[2] = 3; }},
      {{Feature::Bias},
       "bias's data is null; expected a pointer beside its strides",
       [](Args& a, auto&) { a.bias.data = nullptr; }},
      {{Feature::Bias},
       "bias's address modulo 4 is 1; expected 0",
       [](Args& a, auto&) { a.bias.data = static_cast<const char*>(a.bias.data) + 1; }},
      {{Feature::Alibi},
       "slopes's strides is [4, 2, 1, 1]; expected those of",
       [](Args& a, auto&) { a.slopes.stride_h = 2; }},
      {{Feature::Documents},
       "doc_q's sequence length S is 1; expected 70",
       [](Args& a, auto&) { a.doc_q.stride_s = 0; }},
      {{Feature::Documents}, "doc_k is null; expected a pointer beside", [](Args& a, auto&) { a.doc_k = {}; }},
  };
  for (const Refused& refused : all) {
    FeatureInputs<float> in({.on = refused.on, .keeps = false});
    Args a = args_of(in.problem());
    refused.break_it(a, in);
    const std::vector<unsigned char> before = in.results();
    std::size_t bytes = 0;
    std::int32_t phase = 0;
    for (const std::function<int()>& call : std::initializer_list<std::function<int()>>{
             [&] { return forward(a); }, [&] { return flashphases_workspace(&a, &bytes); },
             [&] { return flashphases_chosen_phase(&a, &phase); }}) {
      CHECK(call() == FLASHPHASES_BAD_ARGUMENT);
      CHECK(said().rfind(refused.message, 0) == 0);
      if (said().rfind(refused.message, 0) != 0) MESSAGE(said());
    }
    CHECK(in.results() == before);
  }
}

// Kernels refuse by name what they cannot.
TEST_CASE("on a GPU what no kernel has is refused by its name") {
  for (const auto& [feature, message] : {std::pair(Feature::Softcap, "softcap is 1.5"),
                                         {Feature::Alibi, "slopes is given"},
                                         {Feature::Bias, "bias is given"},
                                         {Feature::BoolMask, "mask is given"},
                                         {Feature::Documents, "doc_q is given"},
                                         {Feature::BlockMask, "block_mask is given"},
                                         {Feature::Sinks, "sinks is given"},
                                         {Feature::Dropout, "dropout is 0.17"},
                                         {Feature::Packed, "cu_seqlens_q is given"},
                                         {Feature::Window, "window is 21 keys to the left"},
                                         {Feature::Used, "seqused_q is given"}}) {
    FeatureInputs<float> in({.on = {feature}, .keeps = false});
    Args a = args_of(in.problem());
    a.machine = FLASHPHASES_GPU, a.phase = 8;
    CHECK(forward(a) == FLASHPHASES_BAD_ARGUMENT);
    CHECK(said().rfind(message, 0) == 0);
    CHECK(said().find("; expected none in phase 08-lse; choose a phase that has it: ./flash help") !=
          std::string::npos);
  }
}

// By its number, and as the phase that is chosen: nothing but the GPU is missing.
TEST_CASE("on a GPU sequences of their own lengths are taken") {
  for (const Feature lengths : {Feature::Packed, Feature::Used})
    for (const int phase : {0, 27}) {
      FeatureInputs<half> in({.on = {lengths}, .keeps = false});
      Args a = args_of(in.problem());
      a.machine = FLASHPHASES_GPU, a.phase = phase;
      std::size_t bytes = 0;
      const int status = flashphases_workspace(&a, &bytes);
      INFO(said());
      if (!was_built(Where::Gpu)) CHECK(status == FLASHPHASES_NO_GPU);
      if (status == FLASHPHASES_BAD_ARGUMENT)
        CHECK(said().find("memory is the host's; expected device memory") != std::string::npos);
      if (status == FLASHPHASES_OK) CHECK(bytes > 0);
    }
}

TEST_CASE("a program that knows the first fields alone gets what it always got") {
  FeatureInputs<float> in({.keeps = false});
  Args a = args_of(in.problem());
  a.struct_size = 208;  // so machine and what follows is somebody else's memory
  a.softcap = -1, a.N = -5;
  const std::vector<unsigned char> before = in.results();
  const int status = forward(a);
  CHECK(status != FLASHPHASES_OK);
  CHECK(said().find("softcap") == std::string::npos);
  CHECK(in.results() == before);
  if (!was_built(Where::Gpu)) CHECK(status == FLASHPHASES_NO_GPU);
  for (const std::size_t size : {std::size_t{209}, std::size_t{216}, sizeof a - 1}) {
    a.struct_size = static_cast<std::uint32_t>(size);
    CHECK(forward(a) == FLASHPHASES_BAD_ARGUMENT);
    CHECK(said() == "struct_size is " + std::to_string(size) +
                        "; expected 208, 512, or 576 to 4096; set it to sizeof(flashphases_forward_args)");
  }
  // One that knows all up to seqused_k: what follows is somebody else's memory.
  a = args_of(in.problem());
  REQUIRE(forward(a) == FLASHPHASES_OK);
  const std::vector<unsigned char> computed = in.results();
  a.struct_size = 512;
  a.mask_shift = a.spare_multiprocessors = a.workspace_is_zero = 77, a.m = reinterpret_cast<float*>(1);
  CHECK(forward(a) == FLASHPHASES_OK);
  CHECK(in.results() == computed);
}
