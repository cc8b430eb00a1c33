// passes.cpp: libflash-passes.so: a pass of a phase on device memory, for the benchmarks in Python, which give it
// PyTorch's tensors: forward passes that keep what training needs, backward passes. Nothing is promised to other
// programs: libflashphases is for them.
// cmake --build build --target flash-passes      called by passes.py
#include <array>
#include <cstdio>
#include <string>

#include "phases/interface/operands.hpp"
#include "phases/interface/validate.hpp"

using namespace flash;

namespace {

thread_local std::string last_error;

// What passes.py fills in, field by field.
struct Request {
  char phase[8];  // its number, as in "25m"
  std::int32_t backward, type, out, bottom_right, atomic;
  std::int32_t block_q, block_k;  // 0: the phase chooses
  std::int64_t left, right;       // Mask's; -1: no bound
  float softcap, dropout;
  std::uint64_t seed;
  std::int64_t shapes[std::size(operands)][4], strides[std::size(operands)][4];  // in elements
  void* arrays[std::size(operands)];  // device memory, in the order of operands.hpp; null: not given
};

AnyProblem problem_of(const Request& r) {
  AnyProblem p;
  p.direction = r.backward ? Direction::Backward : Direction::Forward;
  p.type = static_cast<Type>(r.type), p.out = static_cast<Type>(r.out);
  const auto distance = [](std::int64_t keys) { return keys < 0 ? Mask::all : keys; };
  p.options.mask = {.left = distance(r.left),
                    .right = distance(r.right),
                    .alignment = r.bottom_right ? Alignment::BottomRight : Alignment::TopLeft};
  p.options.softcap = r.softcap, p.options.dropout = {r.dropout, r.seed};
  p.options.block_q = r.block_q, p.options.block_k = r.block_k;
  p.options.mode = r.atomic ? BackwardMode::Atomic : BackwardMode::Deterministic;
  for (std::size_t i = 0; i < std::size(operands); ++i)
    if (r.arrays[i]) p.*operands[i].view = {r.arrays[i], std::to_array(r.shapes[i]), std::to_array(r.strides[i])};
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
    const Workspace workspace = pass_of(find_phase(request->phase), p.direction).features.workspace(p);
    for (int i = 0; i < workspace.size(); ++i) bytes[i] = workspace[i].count * 4, zeroed[i] = workspace[i].zeroed;
    return workspace.size();
  });
}

// Enqueues the pass; 0, or -1: an error.
int flash_pass_enqueue(const Request* request, void* const* workspace, void* stream) {
  return guarded([&] {
    const AnyProblem p = problem_of(*request);
    const Phase& phase = find_phase(request->phase);
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
