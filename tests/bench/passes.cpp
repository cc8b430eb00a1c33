// passes.cpp: libflash-passes.so: a pass of a phase on device memory, for the benchmarks in Python, which give it
// PyTorch's tensors: forward passes that keep what training needs, backward passes. Nothing is promised to other
// programs: libflashphases is for them.
// cmake --build build --target flash-passes      called by passes.py
#include <cstdio>
#include <string>

#include "phases/interface/operands.hpp"
#include "phases/interface/validate.hpp"

using namespace flash;

namespace {

thread_local std::string last_error;

// What passes.py fills in, field by field.
struct Request {
  std::int32_t phase, backward, type, causal, atomic;
  std::int32_t block_q, block_k;  // 0: the phase chooses
  std::int64_t B, H, Sq, Sk, D;
  void* arrays[std::size(operands)];  // device memory, dense, in the order of operands.hpp; null: not given
};

AnyProblem problem_of(const Request& r) {
  AnyProblem p({r.B, r.H, r.H, r.Sq, r.Sk, r.D, r.D}, static_cast<Type>(r.type),
               {.mask = r.causal ? Mask::top_left() : Mask::none(),
                .block_q = r.block_q,
                .block_k = r.block_k,
                .mode = r.atomic ? BackwardMode::Atomic : BackwardMode::Deterministic});
  p.direction = r.backward ? Direction::Backward : Direction::Forward;
  for (std::size_t i = 0; i < std::size(operands); ++i) {
    if (!r.arrays[i]) continue;
    std::array<std::int64_t, 4> shape;
    for (std::size_t axis = 0; axis < 4; ++axis) shape[axis] = length_of(operands[i].shape[axis], p.shape());
    p.*operands[i].view = {r.arrays[i], shape, dense_strides(shape)};
  }
  return p;
}

template <class F>
int guarded(const F& call) noexcept {
  try {
    return call();
  } catch (const std::exception& e) {
    last_error = e.what();
    return -1;
  }
}

}  // namespace

extern "C" {

// The arrays' names, in their order.
const char* flash_pass_arrays() {
  static const std::string names = [] {
    std::string text;
    for (const Operand& operand : operands) text += std::string(text.empty() ? "" : " ") + operand.name;
    return text;
  }();
  return names.c_str();
}

const char* flash_pass_error() {
  return last_error.c_str();
}

// The number of pieces of its workspace, their bytes, and whether they must be 0; -1: an error.
int flash_pass_workspace(const Request* request, std::int64_t* bytes, std::int32_t* zeroed) {
  return guarded([&] {
    const AnyProblem p = problem_of(*request);
    const Workspace workspace = pass_of(find_phase(std::to_string(request->phase)), p.direction).features.workspace(p);
    for (int i = 0; i < workspace.size(); ++i) bytes[i] = workspace[i].count * 4, zeroed[i] = workspace[i].zeroed;
    return workspace.size();
  });
}

// Enqueues the pass; 0, or -1: an error.
int flash_pass_enqueue(const Request* request, void* const* workspace, void* stream) {
  return guarded([&] {
    const AnyProblem p = problem_of(*request);
    const std::string number = std::to_string(request->phase);
    const Phase& phase = find_phase(number);
    validate(p, phase);
    const Pass& pass = pass_of(phase, p.direction);
    require(phase.name, pass.features, Where::Gpu);
    if (!pass.stream_entries[static_cast<std::size_t>(Where::Gpu)])
      throw Error(std::string(phase.name) + " is not linked with its kernels");
    Stream given{stream, {}};
    const int pieces = pass.features.workspace(p).size();
    for (int i = 0; i < pieces; ++i) given.workspace[static_cast<std::size_t>(i)] = workspace[i];
    pass.on_stream(Where::Gpu, p, &given);
    return 0;
  });
}
}
