// cpu_test.cpp: libflashphases on the CPU: each field of the struct alone and each two, against fp64 (tests/whole.hpp);
// what is refused there; and structs of programs that know fewer fields.
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
  if (mask == Mask::none()) a.mask = FLASHPHASES_MASK_NONE;
  if (window) a.window_left = mask.left, a.window_right = mask.right;
  a.B = s.B, a.H = s.H, a.Sq = s.Sq, a.Sk = s.Sk, a.D = s.D;
  if (s.Hk != s.H) a.Hk = s.Hk;
  if (s.Dv != s.D) a.Dv = s.Dv;
  a.q = tensor_of(p.q, s), a.o = tensor_of(p.o, s);
  for (const auto& [to, from] : {std::pair(&a.k, &p.k), {&a.v, &p.v}})
    *to = {from->data, from->stride[0], from->stride[1], from->stride[2]};
  a.lse = static_cast<float*>(p.lse.data);
  a.softcap = p.options.softcap;
  a.dropout = p.options.dropout.p, a.dropout_seed = p.options.dropout.seed;
  a.slopes = tensor_of(p.slopes, s, Length::One), a.bias = tensor_of(p.bias, s), a.bool_mask = tensor_of(p.allowed, s);
  a.doc_q = tensor_of(p.document_q, s), a.doc_k = tensor_of(p.document_k, s, Length::Sk);
  a.block_mask = tensor_of(p.blocks, s, Length::RowBlocks);
  a.sinks = static_cast<const float*>(p.sinks.data);
  if (p.packed()) a.N = s.N;
  a.cu_seqlens_q = static_cast<const std::int32_t*>(p.first_rows.data);
  a.cu_seqlens_k = static_cast<const std::int32_t*>(p.first_keys.data);
  a.seqused_q = static_cast<const std::int32_t*>(p.rows_of.data);
  a.seqused_k = static_cast<const std::int32_t*>(p.keys_of.data);
  return a;
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
    const FeatureCase c{.on = on,
                        .Sq = 40,
                        .Sk = 70,
                        .D = 24,
                        .layout = static_cast<Layout>(number % 5),
                        .seed = number,
                        .keeps = false,
                        .sharing = static_cast<int>(number * 3 % 8)};
    FeatureInputs<T> in(c);
    const Args a = args_of(in.problem());
    if (const int status = forward(a); status != FLASHPHASES_OK) {
      FAIL_CHECK(text(c) << ": " << status << ", " << said());
      continue;
    }
    expect_none(in.complaints(false));
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
      {{}, "machine is 2; expected 0 (GPU) or 1 (CPU); see enum", [](Args& a, auto&) { a.machine = 2; }},
      {{}, "phase is 8; expected 0 on the CPU", [](Args& a, auto&) { a.phase = 8; }},
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
       [](Args& a, auto&) { a.bias.data = static_cast<char*>(a.bias.data) + 1; }},
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
    CHECK(said() == "struct_size is " + std::to_string(size) + "; expected 208, or " + std::to_string(sizeof a) +
                        " or more; set it to sizeof(flashphases_forward_args)");
  }
}
