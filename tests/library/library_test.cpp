// library_test.cpp: libflashphases without a GPU: what it refuses, by each of its calls, and what it says of itself.
// Results, streams and graphs are tested on a GPU: gpu_test.cpp.
// ctest -L library -R "^library\."
#include <doctest/doctest.h>
#include <flashphases.h>

#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "phases/interface/where.hpp"
#include "tests/skip.hpp"

static_assert(sizeof(flashphases_tensor) == 32 && offsetof(flashphases_forward_args, machine) == 208 &&
                  offsetof(flashphases_forward_args, slopes) == 272 &&
                  offsetof(flashphases_forward_args, mask_shift) == 512 && sizeof(flashphases_forward_args) == 576 &&
                  sizeof(flashphases_input) == 32 && offsetof(flashphases_backward_args, forward) == 24 &&
                  sizeof(flashphases_backward_args) == 208 && sizeof(flashphases_phase) == 84,
              "the layout is an interface: the Python package has it too");

namespace {

alignas(16) char memory[16];  // never read or written

// A problem with nothing wrong but that its memory is the host's.
flashphases_forward_args good() {
  flashphases_forward_args args{};
  args.struct_size = sizeof args;
  args.type = FLASHPHASES_FLOAT16;
  args.B = 2, args.H = 3, args.Sq = 5, args.Sk = 7, args.D = 64;
  args.q = {memory, 3 * 5 * 64, 5 * 64, 64};
  args.o = {memory, 3 * 5 * 64, 5 * 64, 64};
  args.k = args.v = {memory, 3 * 7 * 64, 7 * 64, 64};
  return args;
}

// Each call checks the same and says the same.
void refused(const flashphases_forward_args* args, const std::string& text, int status = FLASHPHASES_BAD_ARGUMENT) {
  INFO(text);
  std::size_t bytes = 12345;
  std::int32_t phase = 12345;
  CHECK(flashphases_workspace(args, &bytes) == status);
  CHECK(std::string(flashphases_error()) == text);
  CHECK(bytes == 12345);
  CHECK(flashphases_chosen_phase(args, &phase) == status);
  CHECK(std::string(flashphases_error()) == text);
  CHECK(phase == 12345);
  CHECK(flashphases_forward(args, nullptr, 0, nullptr) == status);
  CHECK(std::string(flashphases_error()) == text);
}

template <class Change>
void refused_if(const Change& change, const std::string& text) {
  flashphases_forward_args args = good();
  change(args);
  refused(&args, text);
}

using Args = flashphases_forward_args;

}  // namespace

TEST_CASE("the version is the header's") {
  const std::string version = flashphases_version(), mine = std::to_string(FLASHPHASES_VERSION_MAJOR) + "." +
                                                            std::to_string(FLASHPHASES_VERSION_MINOR) + ".";
  CHECK(version.substr(0, mine.size()) == mine);
}

TEST_CASE("a good call is refused only for want of a GPU, and says which want") {
  Args with_scale = good();
  with_scale.has_scale = 1;  // and it is 0
  for (const Args& args : {good(), with_scale}) {
    if (!flash::was_built(flash::Where::Gpu))
      refused(&args, "the library is built without CUDA; expected one with it; configure it with -DFLASH_CUDA=ON",
              FLASHPHASES_NO_GPU);
    else if (!flash::available(flash::Where::Gpu))
      refused(&args, "the GPU is missing; expected a CUDA device; look at nvidia-smi", FLASHPHASES_NO_GPU);
    else
      flash::test::skip("there is a GPU: see gpu_test.cpp");
  }
}

TEST_CASE("null pointers and other versions of the struct") {
  refused(nullptr, "args is null; expected a pointer; pass one");
  const Args args = good();
  CHECK(flashphases_workspace(&args, nullptr) == FLASHPHASES_BAD_ARGUMENT);
  CHECK(flashphases_error() == std::string("bytes is null; expected a pointer; pass one"));
  CHECK(flashphases_chosen_phase(&args, nullptr) == FLASHPHASES_BAD_ARGUMENT);
  CHECK(flashphases_error() == std::string("phase is null; expected a pointer; pass one"));
  for (const std::uint32_t size : {0u, 207u, 511u, 513u, 4097u, 4294967295u})
    refused_if([&](Args& a) { a.struct_size = size; },
               "struct_size is " + std::to_string(size) +
                   "; expected 208, 512, or 576 to 4096; set it to sizeof(flashphases_forward_args)");
  // A program of a later version: what it adds is taken as long as it asks for nothing.
  struct {
    Args args = good();
    std::int32_t later[2] = {0, 0};
  } next;
  next.args.struct_size = sizeof next;
  next.args.type = 9;
  refused(&next.args, "type is 9; expected 0 (float32), 1 (float16) or 2 (bfloat16); see enum flashphases_type");
  for (const auto& [value, byte] : {std::pair(1, "byte 580"), std::pair(256, "byte 581")}) {
    next.later[1] = value;
    refused(&next.args, std::string(byte) + " of the arguments is 1; expected 0 for version " + flashphases_version() +
                            "; use a newer libflashphases");
  }
}

TEST_CASE("enumerations, scale, phase and blocks") {
  for (const int type : {-1, 3})
    refused_if([&](Args& a) { a.type = type; },
               "type is " + std::to_string(type) +
                   "; expected 0 (float32), 1 (float16) or 2 (bfloat16); see enum flashphases_type");
  for (const int mask : {-1, 5})
    refused_if(
        [&](Args& a) { a.mask = mask; },
        "mask is " + std::to_string(mask) +
            "; expected 0 (none), 1 (top-left), 2 (bottom-right) or a window, 3 or 4; see enum flashphases_mask");
  refused_if([](Args& a) { a.has_scale = 2; },
             "has_scale is 2; expected 0 (1/sqrt(D)) or 1 (scale); set it to 1 to give a scale");
  refused_if([](Args& a) { a.scale = 0.5f; },
             "scale is 0.5; expected 0 where has_scale is 0; set has_scale to 1 to use it");
  refused_if([](Args& a) { a.has_scale = 1, a.scale = NAN; },
             "scale is nan; expected a finite number; omit it for 1/sqrt(D)");
  refused_if([](Args& a) { a.has_scale = 1, a.scale = -INFINITY; },
             "scale is -inf; expected a finite number; omit it for 1/sqrt(D)");
  for (const int phase : {-1, 4, 99}) {
    Args args = good();
    args.phase = phase;
    std::size_t bytes = 0;
    CHECK(flashphases_workspace(&args, &bytes) == FLASHPHASES_BAD_ARGUMENT);
    const std::string text = flashphases_error(), begin = "phase is " + std::to_string(phase) +
                                                          "; expected 0 (the fastest measured) or one of 5 6 7 8 9 ";
    CHECK(text.substr(0, begin.size()) == begin);
  }
  refused_if([](Args& a) { a.block_q = -1; }, "block_q is -1; expected 0 (automatic) to 1048576; omit --block-q");
  refused_if([](Args& a) { a.block_k = 1 << 21; },
             "block_k is 2097152; expected 0 (automatic) to 1048576; omit --block-k");
  // What the phase that was asked for cannot do.
  refused_if([](Args& a) { a.phase = 6, a.mask = FLASHPHASES_CAUSAL_TOP_LEFT; },
             "causal is top-left; expected none in phase 06-4d-grid; choose a phase that has it: ./flash help");
  float lse = 0;
  refused_if([&](Args& a) { a.phase = 7, a.lse = &lse; },
             "LSE is wanted; expected none in phase 07-causal; choose a phase that has it: ./flash help");
  refused_if(
      [](Args& a) { a.phase = 10, a.type = FLASHPHASES_FLOAT32; },
      "type is float32; expected float16 or bfloat16 in phase 10-tensor-cores; convert, or choose another phase: "
      "./flash help");
}

TEST_CASE("what no phase has in float32 is refused as the type, with what it was asked for") {
  const auto grouped = [](Args& a) {
    a.Hk = 1, a.type = FLASHPHASES_FLOAT32;
    a.k = a.v = {memory, 7 * 64, 7 * 64, 64};
  };
  refused_if(grouped, "type is float32; expected float16 or bfloat16 with grouped heads; convert Q, K and V");
  refused_if([&](Args& a) { grouped(a), a.softcap = 2; },
             "type is float32; expected float16 or bfloat16 with grouped heads, softcap; convert Q, K and V");
  // A phase that is named answers for itself.
  refused_if([&](Args& a) { grouped(a), a.phase = 9; },
             "K's number of heads H is 1; expected 3 as in Q; make the shapes agree");
}

TEST_CASE("sizes, strides and pointers") {
  const std::string shape = "; expected 0 or more; correct the shape";
  refused_if([](Args& a) { a.B = -1; }, "Q's batch size B is -1" + shape);
  refused_if([](Args& a) { a.H = -2; }, "Q's number of heads H is -2" + shape);
  refused_if([](Args& a) { a.Sq = -3; }, "Q's sequence length S is -3" + shape);
  refused_if([](Args& a) { a.Sk = -4; }, "K's sequence length S is -4" + shape);
  for (const int D : {0, 257})
    refused_if(
        [&](Args& a) {
          a.D = D;
          a.q = a.k = a.v = {memory, 100000, 10000, 1000};
          a.o = {memory, 100000, 10000, 1000};
        },
        "Q's head dimension D is " + std::to_string(D) + "; expected 1 to 256; split the head");
  refused_if([](Args& a) { a.B = std::int64_t{1} << 62; },
             "Q's number of elements [4611686018427387904, 3, 5, 64] is over 2^63; expected less than 2^63; split the "
             "batch");
  const auto data = [](const char* name) {
    return std::string(name) + "'s data is null; expected a pointer; allocate it";
  };
  refused_if([](Args& a) { a.q.data = nullptr; }, data("Q"));
  refused_if([](Args& a) { a.k.data = nullptr; }, data("K"));
  refused_if([](Args& a) { a.v.data = nullptr; }, data("V"));
  refused_if([](Args& a) { a.o.data = nullptr; }, data("O"));
  refused_if([](Args& a) { a.k.stride_s = -64; },
             "K's stride of sequence length S is -64; expected 0 or more; pass a copy");
  refused_if([](Args& a) { a.v.stride_b = INT64_MAX; },
             "V's extent in memory is over 2^63 bytes; expected less than 2^63 bytes; correct shape and strides");
  refused_if([](Args& a) { a.o.stride_h = 0; },
             "O's stride of number of heads H is 0; expected at least 1; give each row its own memory");
  const auto odd = [](const char* name) {
    return std::string(name) + "'s address modulo 2 is 1; expected 0; align it to its elements";
  };
  refused_if([](Args& a) { a.q.data = memory + 1; }, odd("Q"));
  refused_if([](Args& a) { a.o.data = memory + 1; }, odd("O"));
  refused_if([](Args& a) { a.lse = reinterpret_cast<float*>(memory + 2); },
             "LSE's address modulo 4 is 2; expected 0; align it to its elements");
  refused_if([](Args& a) { a.type = FLASHPHASES_FLOAT32, a.v.data = memory + 2; },
             "V's address modulo 4 is 2; expected 0; align it to its elements");
}

TEST_CASE("each thread has its own error, which a call that succeeds or another thread does not touch") {
  std::string here, there, fresh = "?";
  Args args = good();
  args.type = 7;
  flashphases_workspace(&args, nullptr);
  here = flashphases_error();
  std::thread([&] {
    fresh = flashphases_error();
    std::size_t bytes = 0;
    flashphases_workspace(nullptr, &bytes);
    there = flashphases_error();
  }).join();
  CHECK(fresh == "");
  CHECK(there == "args is null; expected a pointer; pass one");
  CHECK(here == "bytes is null; expected a pointer; pass one");
  CHECK(flashphases_error() == here);
}
