// gpu_test.cpp: libflashphases on a GPU: the bits of the phases' own runs, streams beside each other, captured graphs,
// and streams that stay usable after what was refused. Skipped where there is no GPU.
// ctest -L library -R "^library_gpu\."
#include <doctest/doctest.h>
#include <flashphases.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "phases/arrays/random.hpp"
#include "phases/library/automatic.hpp"
#include "tests/skip.hpp"

#ifndef FLASH_HAVE_CUDA

TEST_CASE("gpu: bits, streams, graphs, refusals") {
  flash::test::skip("no CUDA in this build");
}

#else

#include <cuda_runtime_api.h>

using namespace flash;

namespace {

bool skipped() {
  if (available(Where::Gpu)) return false;
  test::skip("no GPU");
  return true;
}

// A problem in the host's memory and its copy in the device's: Q, K, V and O lie [B, S, H, D] in memory, with gaps.
template <class T>
class Twin {
 public:
  Twin(std::int64_t B, std::int64_t H, std::int64_t Sq, std::int64_t Sk, std::int64_t D, const Options& options,
       bool lse, std::uint64_t seed, std::int64_t gap = 8)
      : B_(B), H_(H), Sq_(Sq), Sk_(Sk), D_(D), width_(H * D + gap), options_(options) {
    for (const std::int64_t S : {Sq, Sk, Sk, Sq}) host_.emplace_back(static_cast<std::size_t>(B * S * width_));
    lse_.assign(lse ? static_cast<std::size_t>(B * H * Sq) : 0, -1);
    for (const auto& array : host_) device_.push_back(allocate(array.size() * sizeof(T)));
    device_lse_ = static_cast<float*>(allocate(lse_.size() * sizeof(float)));
    workspace_ = allocate(workspace_bytes);
    check(cudaMemset(workspace_, 0x77, workspace_bytes));  // the library clears what must be 0
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    fill(seed);
  }
  Twin(const Twin&) = delete;
  ~Twin() {
    for (void* array : device_) cudaFree(array);
    cudaFree(device_lse_);
    cudaFree(workspace_);
    cudaStreamDestroy(stream);
  }

  // Other inputs, there and here, and outputs that no run leaves behind.
  void fill(std::uint64_t seed) {
    for (std::size_t i = 0; i < 3; ++i) {
      const Random random(seed, static_cast<std::uint32_t>(i));
      for (std::size_t e = 0; e < host_[i].size(); ++e) host_[i][e] = from_float<T>(random.normal(e));
    }
    std::memset(host_[3].data(), 0x5a, host_[3].size() * sizeof(T));
    for (float& x : lse_) x = -1;
    check(cudaStreamSynchronize(stream));
    for (std::size_t i = 0; i < 4; ++i)
      check(cudaMemcpy(device_[i], host_[i].data(), host_[i].size() * sizeof(T), cudaMemcpyHostToDevice));
    check(cudaMemcpy(device_lse_, lse_.data(), lse_.size() * sizeof(float), cudaMemcpyHostToDevice));
    check(cudaDeviceSynchronize());
  }

  flashphases_forward_args args(int phase = 0) const {
    flashphases_forward_args a{};
    a.struct_size = sizeof a;
    a.phase = phase;
    a.type = static_cast<int>(type_of<T>);
    a.mask = options_.mask == Mask::none() ? 0 : options_.mask == Mask::top_left() ? 1 : 2;
    a.has_scale = options_.scale.has_value();
    a.scale = options_.scale.value_or(0);
    a.block_q = static_cast<int>(options_.block_q), a.block_k = static_cast<int>(options_.block_k);
    a.B = B_, a.H = H_, a.Sq = Sq_, a.Sk = Sk_, a.D = D_;
    a.q = {device_[0], Sq_ * width_, D_, width_};
    a.k = {device_[1], Sk_ * width_, D_, width_};
    a.v = {device_[2], Sk_ * width_, D_, width_};
    a.o = {device_[3], Sq_ * width_, D_, width_};
    a.lse = lse_.empty() ? nullptr : device_lse_;
    return a;
  }
  int enqueue(int phase = 0) const { return enqueue(args(phase)); }
  int enqueue(const flashphases_forward_args& a) const {
    return flashphases_forward(&a, workspace_, workspace_bytes, stream);
  }

  Problem<T> problem() {
    const auto view = [&](auto* data, std::int64_t S) {
      return View<std::remove_pointer_t<decltype(data)>>{data, {B_, H_, S, D_}, {S * width_, D_, width_, 1}};
    };
    Problem<T> p;
    p.q = view(std::as_const(host_[0]).data(), Sq_);
    p.k = view(std::as_const(host_[1]).data(), Sk_);
    p.v = view(std::as_const(host_[2]).data(), Sk_);
    p.o = view(host_[3].data(), Sq_);
    p.lse = lse_.empty() ? nullptr : lse_.data();
    p.options = options_;
    return p;
  }
  // What the stream's work has left is what the phase's own run gives, gaps of O included.
  bool same_as(const Phase& phase) {
    flash::forward(phase, problem(), Where::Gpu);
    check(cudaStreamSynchronize(stream));
    std::vector<T> o(host_[3].size());
    std::vector<float> lse(lse_.size());
    check(cudaMemcpy(o.data(), device_[3], o.size() * sizeof(T), cudaMemcpyDeviceToHost));
    check(cudaMemcpy(lse.data(), device_lse_, lse.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return std::memcmp(o.data(), host_[3].data(), o.size() * sizeof(T)) == 0 &&
           (lse.empty() || std::memcmp(lse.data(), lse_.data(), lse.size() * sizeof(float)) == 0);
  }
  bool o_is_untouched() const {
    std::vector<T> o(host_[3].size());
    check(cudaMemcpyAsync(o.data(), device_[3], o.size() * sizeof(T), cudaMemcpyDeviceToHost, other_stream()));
    check(cudaStreamSynchronize(other_stream()));
    const auto* bytes = reinterpret_cast<const unsigned char*>(o.data());
    return std::all_of(bytes, bytes + o.size() * sizeof(T), [](unsigned char byte) { return byte == 0x5a; });
  }

  static void check(cudaError_t status) {
    INFO(cudaGetErrorString(status));
    REQUIRE(status == cudaSuccess);
  }

  void* workspace(std::ptrdiff_t offset) const { return static_cast<char*>(workspace_) + offset; }

  cudaStream_t stream = nullptr;
  static constexpr std::size_t workspace_bytes = 4 << 20;  // more than any forward pass here wants

 private:
  static void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes));
    return memory;
  }
  static cudaStream_t other_stream() {
    static const cudaStream_t stream = [] {
      cudaStream_t made = nullptr;
      check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
      return made;
    }();
    return stream;
  }

  std::int64_t B_, H_, Sq_, Sk_, D_, width_;
  Options options_;
  std::vector<std::vector<T>> host_;  // Q, K, V, O
  std::vector<void*> device_;
  std::vector<float> lse_;
  float* device_lse_ = nullptr;
  void* workspace_ = nullptr;
};

void check_ok(int status) {
  INFO(std::string(flashphases_error()));
  CHECK(status == FLASHPHASES_OK);
}

int number_of(const Phase& phase) {
  return std::atoi(phase.name);
}
// Does its number name this one? Of 25 and 25m it names the last that this GPU runs.
bool is_named(const Phase& phase) {
  const Phase* named = nullptr;
  for (const Phase* other : all_phases())
    if (other->kernel() && number_of(*other) == number_of(phase) && available(other->forward->features, Where::Gpu))
      named = other;
  return named == &phase;
}

// Do this GPU's kernels reach the host's memory? Then none of it is refused.
bool reads_host_memory() {
  int reads = 0;
  Twin<float>::check(cudaDeviceGetAttribute(&reads, cudaDevAttrPageableMemoryAccess, 0));
  return reads != 0;
}

// Work on a stream that waits until it is released, or until the test ends.
struct Gate {
  std::atomic<bool> open = false;
  Gate() = default;
  Gate(const Gate&) = delete;
  ~Gate() { open = true, cudaDeviceSynchronize(); }
  void close(cudaStream_t stream) {
    const auto wait = [](void* gate) {
      while (!static_cast<Gate*>(gate)->open) {
      }
    };
    Twin<float>::check(cudaLaunchHostFunc(stream, wait, this));
  }
};

}  // namespace

TEST_CASE_TEMPLATE("gpu: each phase gives the bits of its own run, whatever type, mask, width, strides", T, float, half,
                   bfloat16) {
  if (skipped()) return;
  int tried = 0;
  for (const Phase* phase : all_phases()) {
    const Features& can = phase->forward->features;
    if (!can.kernel || !can.types.contains(type_of<T>) || !is_named(*phase)) continue;
    for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()})
      for (const std::int64_t D : {64, 40, 33, 200}) {
        if ((causal != Mask::none() && !can.meets(Demand::Causal)) || D > can.largest_D() ||
            (can.tensor_maps() && D % 8))
          continue;
        INFO(std::string(phase->name) << ", mask " << std::string(name(causal)) << ", D " << D);
        const std::optional<float> scale = D == 40   ? std::optional(-0.3f)
                                           : D == 33 ? std::optional(0.0f)  // the mean of V, not 1/sqrt(D)
                                                     : std::nullopt;
        Twin<T> twin(2, 3, 150, 210, D, {.scale = scale, .mask = causal}, can.meets(Demand::Lse),
                     static_cast<std::uint64_t>(D));
        check_ok(twin.enqueue(number_of(*phase)));
        CHECK(twin.same_as(*phase));
        ++tried;
      }
  }
  CHECK(tried >= 8);
}

TEST_CASE_TEMPLATE("gpu: phase 0 is the chosen one, blocks can be asked for, no rows are no work", T, float, half) {
  if (skipped()) return;
  Twin<T> twin(2, 3, 300, 300, 64, {.mask = Mask::top_left()}, true, 1);
  const Phase& phase = *choose_phase(twin.problem(), Where::Gpu).phase;
  flashphases_forward_args args = twin.args();
  std::int32_t chosen = 0;
  std::size_t bytes = 1;
  check_ok(flashphases_chosen_phase(&args, &chosen));
  CHECK(chosen == number_of(phase));
  check_ok(flashphases_workspace(&args, &bytes));
  CHECK(bytes <= Twin<T>::workspace_bytes);
  check_ok(twin.enqueue());
  CHECK(twin.same_as(phase));

  for (const auto& [Br, Bc] : find_phase("08").forward->features.blocks) {
    Twin<T> tiled(2, 3, 300, 300, 64, {.block_q = Br, .block_k = Bc}, true, 2);
    check_ok(tiled.enqueue(8));
    CHECK(tiled.same_as(find_phase("08")));
  }
  for (std::int64_t flashphases_forward_args::*size : {&flashphases_forward_args::B, &flashphases_forward_args::Sq}) {
    twin.fill(3);
    args = twin.args();
    args.*size = 0;
    check_ok(twin.enqueue(args));
    Twin<T>::check(cudaStreamSynchronize(twin.stream));
    CHECK(twin.o_is_untouched());
  }
}

TEST_CASE("gpu: a call returns at once, waits for its own stream alone, and holds up no other") {
  if (skipped()) return;
  Twin<half> one(2, 4, 600, 600, 64, {}, true, 1), two(1, 7, 333, 700, 64, {.mask = Mask::bottom_right()}, true, 2);
  const Phase &of_one = *choose_phase(one.problem(), Where::Gpu).phase,
              &of_two = *choose_phase(two.problem(), Where::Gpu).phase;
  for (Twin<half>* each : {&one, &two}) {  // a kernel's first launch loads it, and may wait for that
    check_ok(each->enqueue());
    Twin<half>::check(cudaDeviceSynchronize());
    each->fill(3);
  }
  Gate gate;
  gate.close(one.stream);
  check_ok(one.enqueue());  // comes back though the stream stands still
  check_ok(two.enqueue());
  const cudaError_t passed = cudaStreamSynchronize(two.stream);
  const bool untouched = one.o_is_untouched();
  gate.open = true;
  CHECK(passed == cudaSuccess);
  CHECK(untouched);
  CHECK(two.same_as(of_two));
  CHECK(one.same_as(of_one));

  // Many rounds of both at once.
  for (int round = 0; round < 50; ++round) {
    check_ok(one.enqueue());
    check_ok(two.enqueue());
  }
  CHECK(two.same_as(of_two));
  CHECK(one.same_as(of_one));
}

TEST_CASE("gpu: a phase that draws its work wants a workspace, and leaves it as it was") {
  if (skipped()) return;
  for (const Phase* phase : all_phases()) {
    if (!phase->kernel() || !is_named(*phase)) continue;
    INFO(std::string(phase->name));
    // More tiles than multiprocessors: the first of each block is its own, and the counter gives out the others.
    Twin<half> twin(2, 60, 300, 300, 64, {}, phase->forward->features.meets(Demand::Lse), 4);
    const flashphases_forward_args args = twin.args(number_of(*phase));
    std::size_t bytes = 1;
    check_ok(flashphases_workspace(&args, &bytes));
    if (bytes == 0) continue;
    CHECK(flashphases_forward(&args, nullptr, 0, twin.stream) == FLASHPHASES_BAD_ARGUMENT);
    CHECK(flashphases_error() ==
          "workspace_bytes is 0; expected " + std::to_string(bytes) + " or more; ask flashphases_workspace");
    CHECK(flashphases_forward(&args, nullptr, bytes, twin.stream) == FLASHPHASES_BAD_ARGUMENT);
    CHECK(flashphases_error() == std::string("workspace is null; expected a pointer; pass one"));
    CHECK(flashphases_forward(&args, twin.workspace(2), bytes, twin.stream) == FLASHPHASES_BAD_ARGUMENT);
    CHECK(flashphases_error() ==
          std::string("workspace's address modulo 4 is 2; expected 0; align it to its elements"));
    if (!reads_host_memory()) {
      std::vector<unsigned> host(bytes / sizeof(unsigned) + 1);
      CHECK(flashphases_forward(&args, host.data(), bytes, twin.stream) == FLASHPHASES_BAD_ARGUMENT);
      CHECK(flashphases_error() ==
            std::string("workspace's memory is the host's; expected device memory; copy it with cudaMemcpy"));
    }
    CHECK(twin.o_is_untouched());
    for (int round = 0; round < 20; ++round) check_ok(twin.enqueue(args));  // one after the other, on one counter
    CHECK(twin.same_as(*phase));
    flashphases_forward_args promised = args;  // each call has left it 0
    promised.workspace_is_zero = 1;
    twin.fill(5);
    for (int round = 0; round < 20; ++round) check_ok(twin.enqueue(promised));
    CHECK(twin.same_as(*phase));
  }
}

TEST_CASE_TEMPLATE("gpu: gradients are the bits of the phase's own, whatever the workspace held", T, half, bfloat16) {
  if (skipped()) return;
  const std::int64_t B = 2, H = 3, Sq = 150, Sk = 210, D = 64, rows = B * H * Sq, of_q = rows * D,
                     of_k = B * H * Sk * D;
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  // Q, K, V, dO are drawn; O, O_lo, m, l are what the forward pass of phase 09 leaves.
  std::vector<std::vector<T>> in;
  for (const std::int64_t n : {of_q, of_k, of_k, of_q}) {
    const Random random(11, static_cast<std::uint32_t>(in.size()));
    in.emplace_back(size(n));
    for (std::size_t e = 0; e < in.back().size(); ++e) in.back()[e] = from_float<T>(random.normal(e));
  }
  std::vector<T> o(size(of_q)), dq(size(of_q)), dk(size(of_k)), dv(size(of_k));
  std::vector<std::int16_t> o_lo(size(of_q));
  std::vector<float> m(size(rows)), l(size(rows));
  GradientProblem<T> p;
  const std::array<std::int64_t, 4> q_shape = {B, H, Sq, D}, k_shape = {B, H, Sk, D};
  p.q = dense_view(std::as_const(in[0]).data(), q_shape), p.k = dense_view(std::as_const(in[1]).data(), k_shape);
  p.v = dense_view(std::as_const(in[2]).data(), k_shape), p.dout = dense_view(std::as_const(in[3]).data(), q_shape);
  p.o = dense_view(std::as_const(o).data(), q_shape);
  p.kept = {dense_view(o_lo.data(), q_shape), m.data(), l.data()};
  p.dq = dense_view(dq.data(), q_shape), p.dk = dense_view(dk.data(), k_shape), p.dv = dense_view(dv.data(), k_shape);
  p.options.mask = Mask::bottom_right();
  flash::forward_training(find_phase("09"),
                          Problem<T>{p.q, p.k, p.v, dense_view(o.data(), q_shape), nullptr, p.options}, p.kept,
                          Where::Gpu);

  std::vector<void*> allocated;
  const auto on_device = [&](const void* data, std::size_t bytes) {
    void* memory = nullptr;
    Twin<T>::check(cudaMalloc(&memory, bytes));
    Twin<T>::check(data ? cudaMemcpy(memory, data, bytes, cudaMemcpyHostToDevice) : cudaMemset(memory, 0x77, bytes));
    return allocated.emplace_back(memory);
  };
  const auto copied = [&](const auto& array) { return on_device(array.data(), array.size() * sizeof array[0]); };
  const auto input = [&](void* data, std::int64_t S) { return flashphases_input{data, H * S * D, S * D, D}; };
  const auto output = [&](void* data, std::int64_t S) { return flashphases_tensor{data, H * S * D, S * D, D}; };
  flashphases_forward_args args{};
  args.struct_size = sizeof args;
  args.type = static_cast<int>(type_of<T>), args.mask = FLASHPHASES_CAUSAL_BOTTOM_RIGHT;
  args.B = B, args.H = H, args.Sq = Sq, args.Sk = Sk, args.D = D;
  args.q = input(copied(in[0]), Sq), args.k = input(copied(in[1]), Sk), args.v = input(copied(in[2]), Sk);
  args.o = output(copied(o), Sq), args.o_lo = output(copied(o_lo), Sq);
  args.m = static_cast<float*>(copied(m)), args.l = static_cast<float*>(copied(l));
  flashphases_backward_args grad{};
  grad.struct_size = sizeof grad, grad.forward = &args;
  grad.dout = input(copied(in[3]), Sq);
  grad.dq = output(on_device(nullptr, dq.size() * sizeof(T)), Sq);
  grad.dk = output(on_device(nullptr, dk.size() * sizeof(T)), Sk);
  grad.dv = output(on_device(nullptr, dv.size() * sizeof(T)), Sk);

  const auto same = [&](const std::vector<T>& here, const flashphases_tensor& there) {
    std::vector<T> got(here.size());
    Twin<T>::check(cudaMemcpy(got.data(), there.data, got.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return std::memcmp(got.data(), here.data(), got.size() * sizeof(T)) == 0;
  };
  int tried = 0;
  for (const Phase* phase : all_phases()) {
    if (!phase->kernel() || !phase->backward || !available(phase->backward->features, Where::Gpu)) continue;
    if (!phase->backward->features.types.contains(type_of<T>) || !is_named(*phase)) continue;
    INFO(phase->name);
    grad.phase = number_of(*phase);
    std::int32_t chosen = 0;
    std::size_t bytes = 0;
    check_ok(flashphases_backward_chosen_phase(&grad, &chosen));
    CHECK(chosen == grad.phase);
    check_ok(flashphases_backward_workspace(&grad, &bytes));
    CHECK(bytes > 0);
    void* const workspace = on_device(nullptr, bytes);
    CHECK(flashphases_backward(&grad, workspace, bytes - 1, nullptr) == FLASHPHASES_BAD_ARGUMENT);
    for (int round = 0; round < 3; ++round) check_ok(flashphases_backward(&grad, workspace, bytes, nullptr));
    Twin<T>::check(cudaDeviceSynchronize());
    flash::backward(*phase, p, Where::Gpu);
    CHECK(same(dq, grad.dq));
    CHECK(same(dk, grad.dk));
    CHECK(same(dv, grad.dv));
    ++tried;
  }
  CHECK(tried >= 1);
  for (void* memory : allocated) cudaFree(memory);
}

TEST_CASE("gpu: a captured graph, launched again on other inputs, and refusals do not end the capture") {
  if (skipped()) return;
  for (const Phase* phase : all_phases()) {
    const Features& can = phase->forward->features;
    if (!can.kernel || !is_named(*phase)) continue;
    INFO(std::string(phase->name));
    // The largest D: that kernel has not run yet in this process, so that its loading is captured over too.
    Twin<half> twin(1, 2, 200, 170, std::min(248, can.largest_D()), {}, can.meets(Demand::Lse), 5);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    Twin<half>::check(cudaStreamBeginCapture(twin.stream, cudaStreamCaptureModeGlobal));
    check_ok(twin.enqueue(number_of(*phase)));
    flashphases_forward_args wrong = twin.args(number_of(*phase));
    wrong.D = 257;
    CHECK(flashphases_forward(&wrong, nullptr, 0, twin.stream) == FLASHPHASES_BAD_ARGUMENT);
    Twin<half>::check(cudaStreamEndCapture(twin.stream, &graph));
    CHECK(twin.o_is_untouched());  // captured, not run
    Twin<half>::check(cudaGraphInstantiate(&executable, graph, 0));
    for (const std::uint64_t seed : {6, 7}) {
      twin.fill(seed);
      Twin<half>::check(cudaGraphLaunch(executable, twin.stream));
      CHECK(twin.same_as(*phase));
    }
    Twin<half>::check(cudaGraphExecDestroy(executable));
    Twin<half>::check(cudaGraphDestroy(graph));
  }
}

TEST_CASE("gpu: what is refused or fails leaves the stream, and the program's own last error, as they were") {
  if (skipped()) return;
  Twin<half> twin(2, 3, 100, 100, 64, {}, false, 8);
  const auto refused = [&](const flashphases_forward_args& args, int status, const std::string& begin) {
    CHECK(twin.enqueue(args) == status);
    const std::string text = flashphases_error();
    INFO(text);
    CHECK(text.substr(0, begin.size()) == begin);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    twin.fill(9);
    check_ok(twin.enqueue());
    CHECK(flashphases_error() == text);  // of the last call that was refused, not of the last call
    CHECK(twin.same_as(*choose_phase(twin.problem(), Where::Gpu).phase));
  };
  flashphases_forward_args args = twin.args();
  args.k.stride_s = -1;
  refused(args, FLASHPHASES_BAD_ARGUMENT, "K's stride of sequence length S is -1");
  args = twin.args();
  args.v.data = static_cast<const char*>(args.v.data) + 1;
  refused(args, FLASHPHASES_BAD_ARGUMENT, "V's address modulo 2 is 1");
  if (!reads_host_memory()) {
    std::vector<half> host(2 * 3 * 100 * 72);
    args = twin.args();
    args.k.data = host.data();
    refused(args, FLASHPHASES_BAD_ARGUMENT, "K's memory is the host's; expected device memory");
  }

  // Each call refuses blocks that the phase does not list.
  args = twin.args(8);
  args.block_q = 7;
  std::size_t bytes = 1;
  std::int32_t phase = 1;
  CHECK(flashphases_workspace(&args, &bytes) == FLASHPHASES_BAD_ARGUMENT);
  CHECK(flashphases_chosen_phase(&args, &phase) == FLASHPHASES_BAD_ARGUMENT);
  refused(args, FLASHPHASES_BAD_ARGUMENT, "block size is 7xany; expected one of 64x32");

  // More Q tiles than a grid has in y: a phase may lay its grid out otherwise and run; if not, the launch says so.
  void* rows = nullptr;
  const std::int64_t many = std::int64_t{65535} * 128 + 1;
  Twin<half>::check(cudaMalloc(&rows, static_cast<std::size_t>(many) * sizeof(half)));
  Twin<half>::check(cudaMemset(rows, 0, static_cast<std::size_t>(many) * sizeof(half)));
  for (const Phase* phase : all_phases()) {
    if (!phase->forward->features.meets(Demand::Causal) || !phase->kernel() ||
        !available(phase->forward->features, Where::Gpu))
      continue;
    if (phase->forward->features.tensor_maps()) continue;  // rows of one element are not for TMA
    args = twin.args(number_of(*phase));
    args.mask = FLASHPHASES_CAUSAL_TOP_LEFT;
    args.B = args.H = args.Sk = args.D = 1;
    args.Sq = many;
    args.q.stride_s = 0;
    args.o = {rows, many, many, 1};
    const int status = twin.enqueue(args);
    Twin<half>::check(cudaStreamSynchronize(twin.stream));
    INFO(std::string(phase->name) << ": " << std::string(flashphases_error()));
    if (status != FLASHPHASES_OK) refused(args, FLASHPHASES_CUDA_ERROR, "launch: ");
  }
  cudaFree(rows);
}

#endif
