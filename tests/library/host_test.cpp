// host_test.cpp: what a call of libflashphases costs the host, on a GPU that is none: of CUDA's run-time there is what
// stands in host/cuda_runtime_api.h, which counts. What was checked before is not checked again, and what is checked
// again is still refused.
// ctest -L library -R "^library_host\."
#include <doctest/doctest.h>
#include <flashphases.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "cuda_runtime_api.h"
#include "phases/interface/phase.hpp"

namespace {

struct Counts {
  int get_device = 0, attribute = 0, pointer = 0, memset = 0, planned = 0, launched = 0;
  bool operator==(const Counts&) const = default;
};
Counts counts;
int device = 0;
const void* of_the_host = nullptr;  // this address; all others are the current device's
const void* launched_data = nullptr;
std::string launched_phase;
int capability = 9;

}  // namespace

cudaError_t cudaGetDevice(int* number) {
  ++counts.get_device;
  return *number = device, cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  ++counts.attribute;
  return *value = attribute == cudaDevAttrComputeCapabilityMajor ? capability : 0, cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  ++counts.pointer;
  *attributes = {pointer == of_the_host ? cudaMemoryTypeUnregistered : cudaMemoryTypeDevice, device};
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) {
  return ++counts.memset, cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) {
  return "no error";
}

namespace {

using Args = flashphases_forward_args;
alignas(256) char memory[4096];  // never read or written

template <bool kHopper>
void entry(const flash::AnyProblem& p, const flash::Stream* stream) {
  ++(stream ? counts.launched : counts.planned);
  if (stream) launched_data = p.q.data, launched_phase = kHopper ? "Hopper's" : "for all";
}
// Every pass has a stream entry that only counts, and tells whether its kernel has Hopper's instructions.
void give_entries() {
  for (const flash::Phase* phase : flash::all_phases())
    for (flash::Pass* pass : {phase->forward, phase->backward})
      if (pass)
        pass->stream_entries[static_cast<std::size_t>(flash::Where::Gpu)] =
            pass->features.capability.major == 9 ? entry<true> : entry<false>;
}

Args good() {
  give_entries();
  Args args{};
  args.struct_size = sizeof args, args.type = FLASHPHASES_FLOAT16, args.mask = FLASHPHASES_CAUSAL_TOP_LEFT;
  args.B = 1, args.H = 16, args.Sq = 1024, args.Sk = 1024, args.D = 128;
  args.q = args.k = args.v = {memory, 16 * 1024 * 128, 1024 * 128, 128};
  args.o = {memory, 16 * 1024 * 128, 1024 * 128, 128};
  args.lse = reinterpret_cast<float*>(memory);
  return args;
}
int forward(const Args& args) {
  return flashphases_forward(&args, memory, sizeof memory, nullptr);
}
Counts counted(const std::function<void()>& call) {
  const Counts before = counts;
  call();
  return {counts.get_device - before.get_device, counts.attribute - before.attribute,
          counts.pointer - before.pointer,       counts.memset - before.memset,
          counts.planned - before.planned,       counts.launched - before.launched};
}

}  // namespace

TEST_CASE("a call like one before asks the device for its number and for where the arrays lie, no more") {
  const Args args = good();
  REQUIRE(forward(args) == FLASHPHASES_OK);
  // Q, K, V, O, LSE, the workspace; the counter is cleared.
  const Counts again{.get_device = 1, .pointer = 6, .memset = 1, .launched = 1};
  CHECK(counted([&] { CHECK(forward(args) == FLASHPHASES_OK); }) == again);
  // Other addresses, as far from a multiple of 16.
  Args moved = args;
  moved.q.data = memory + 512, moved.dropout_seed = 0;
  CHECK(counted([&] { CHECK(forward(moved) == FLASHPHASES_OK); }) == again);
  CHECK(launched_data == memory + 512);
  // Whoever keeps the counter 0 saves that step, and asking what a call needs costs no more than the call.
  moved.workspace_is_zero = 1;
  forward(moved);
  const Counts kept{.get_device = 1, .pointer = 6, .launched = 1};
  CHECK(counted([&] { CHECK(forward(moved) == FLASHPHASES_OK); }) == kept);
  std::size_t bytes = 0;
  const Counts asked{.get_device = 1, .pointer = 5};
  CHECK(counted([&] { CHECK(flashphases_workspace(&args, &bytes) == FLASHPHASES_OK); }) == asked);
  CHECK(bytes == 4);
}

TEST_CASE("what a device is, is asked once by each thread, and again where it changes devices") {
  const Args args = good();
  REQUIRE(forward(args) == FLASHPHASES_OK);
  device = 1;
  const Counts other = counted([&] { CHECK(forward(args) == FLASHPHASES_OK); });
  CHECK(other.attribute == 3);
  CHECK(other.planned == 1);  // checked anew: another device may have less shared memory
  device = 0;
  CHECK(forward(args) == FLASHPHASES_OK);
  Counts there;
  std::thread([&] { there = counted([&] { CHECK(forward(args) == FLASHPHASES_OK); }); }).join();
  CHECK(there.attribute == 3);
  CHECK(there.planned == 1);
}

TEST_CASE("after a good call a bad one is refused as ever, and a good one taken") {
  const Args args = good();
  std::int32_t phase = 0;
  REQUIRE(flashphases_chosen_phase(&args, &phase) == FLASHPHASES_OK);
  const auto refused = [&](const std::function<void(Args&)>& change, const std::string& text) {
    CHECK(forward(args) == FLASHPHASES_OK);
    Args bad = args;
    change(bad);
    CHECK(counted([&] { CHECK(forward(bad) == FLASHPHASES_BAD_ARGUMENT); }).launched == 0);
    CHECK(std::string(flashphases_error()) == text);
    CHECK(counted([&] { CHECK(forward(bad) == FLASHPHASES_BAD_ARGUMENT); }).launched == 0);  // nor the second time
    CHECK(std::string(flashphases_error()) == text);
  };
  refused([](Args& a) { a.q.data = nullptr; }, "Q's data is null; expected a pointer; allocate it");
  refused([](Args& a) { a.q.data = memory + 1; }, "Q's address modulo 2 is 1; expected 0; align it to its elements");
  refused([](Args& a) { a.v.stride_s = -128; },
          "V's stride of sequence length S is -128; expected 0 or more; pass a copy");
  refused([](Args& a) { a.has_scale = 1, a.scale = 1 / 0.f; },
          "scale is inf; expected a finite number; omit it for 1/sqrt(D)");
  refused([](Args& a) { a.spare_multiprocessors = -1; },
          "spare_multiprocessors is -1; expected 0 or more; pass 0");
  refused([](Args& a) { a.type = 3; },
          "type is 3; expected 0 (float32), 1 (float16) or 2 (bfloat16); see enum flashphases_type");
  // Where arrays lie is asked each time.
  of_the_host = memory + 1024;
  refused([](Args& a) { a.k.data = memory + 1024; },
          "K's memory is the host's; expected device memory; copy it with cudaMemcpy");
  of_the_host = nullptr;
  CHECK(flashphases_forward(&args, memory, 3, nullptr) == FLASHPHASES_BAD_ARGUMENT);
  CHECK(std::string(flashphases_error()) == "workspace_bytes is 3; expected 4 or more; ask flashphases_workspace");
  // An address that TMA cannot take: another phase, or, where one is named, a refusal.
  Args odd = args;
  odd.q.data = memory + 2;
  std::int32_t other = 0;
  CHECK(flashphases_chosen_phase(&odd, &other) == FLASHPHASES_OK);
  CHECK(other != phase);
  refused([&](Args& a) { a.phase = phase, a.q.data = memory + 2; },
          "Q's address is " + std::to_string(reinterpret_cast<std::uintptr_t>(memory + 2)) +
              "; expected a multiple of 16 for TMA in phase 19-beyond; choose a phase that copies without it: "
              "./flash help");
}

TEST_CASE("a number that two phases have names that with Hopper's instructions where it runs and can do it") {
  Args args = good();
  args.phase = 25, args.Hk = 4;
  args.k = args.v = {memory, 4 * 1024 * 128, 1024 * 128, 128};
  REQUIRE(forward(args) == FLASHPHASES_OK);
  CHECK(launched_phase == "Hopper's");
  args.phase = 0;
  REQUIRE(forward(args) == FLASHPHASES_OK);
  CHECK(launched_phase == "Hopper's");
  args.phase = 25, args.q.stride_s = 130, args.q.stride_h = 1024 * 130, args.q.stride_b = 16 * 1024 * 130;
  REQUIRE(forward(args) == FLASHPHASES_OK);  // TMA cannot copy that
  CHECK(launched_phase == "for all");
  device = 2, capability = 8;
  args = good(), args.phase = 25;
  REQUIRE(forward(args) == FLASHPHASES_OK);
  CHECK(launched_phase == "for all");
  device = 0, capability = 9;
}

TEST_CASE("a phase that the library does not hold is refused by its number, and auto takes the best of the others") {
  Args args = good();
  std::int32_t best = 0, other = 0;
  REQUIRE(flashphases_chosen_phase(&args, &best) == FLASHPHASES_OK);
  device = 3;  // nothing is remembered of it
  for (const flash::Phase* phase : flash::all_phases())
    if (std::atoi(phase->name) == best)
      phase->forward->stream_entries[static_cast<std::size_t>(flash::Where::Gpu)] = nullptr;
  CHECK(flashphases_chosen_phase(&args, &other) == FLASHPHASES_OK);
  CHECK(other != best);
  args.phase = best;
  CHECK(forward(args) == FLASHPHASES_BAD_ARGUMENT);
  CHECK(std::string(flashphases_error()) ==
        "phase is 19-beyond; expected one that this library holds for the GPU; pass 0, or build it with "
        "-DFLASHPHASES_GPU= for all");
  device = 0;
}
