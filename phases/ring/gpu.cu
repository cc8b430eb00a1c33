// Phase 30: see gpu.hpp.
#include "phases/30-ring/merge.cuh"
#include "phases/interface/kernel_phase.cuh"
#include "phases/interface/validate.hpp"
#include "phases/ring/gpu.hpp"
#include "phases/ring/move.cuh"

namespace flash::phase30::inline FLASH_MACHINE {
namespace {

// Calls f.template operator()<T>() with the kernel's type of the elements; 16 bits that are no number as such.
template <class F>
void with_element(Type type, const F& f) {
  switch (type) {
    case Type::Float32:
      return f.template operator()<float>();
    case Type::Float16:
      return f.template operator()<device_t<half>>();
    case Type::BFloat16:
      return f.template operator()<device_t<bfloat16>>();
    default:
      refuse("type", name(type), "a type of Q or O", "move numbers");
  }
}

class Device : public GpuWorker {
 public:
  Device(const Phase& phase, const MachineOptions& options) : GpuWorker(phase), machine_(options) {
#ifdef __CUDACC__
    int least = 0, greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities");
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, least), "stream");
    // What is freed stays with this process: the next step wants as much.
    cudaMemPool_t pool = nullptr;
    check_cuda(cudaDeviceGetDefaultMemPool(&pool, current_device()), "memory pool");
    std::uint64_t most = UINT64_MAX;
    check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most), "memory pool");
#endif
  }
  ~Device() override {
#ifdef __CUDACC__
    cudaStreamDestroy(stream_);
#endif
  }
  void* stream() const override {
    return stream_;
  }
  const std::vector<Finding>& findings() const override {
    return machine_.findings();
  }

  void upload(const Dense& to, const void* from) const override {
#ifdef __CUDACC__
    check_cuda(cudaMemcpyAsync(to.memory.get(), from, to.bytes(), cudaMemcpyHostToDevice, stream_), "upload");
#else
    machine_.copy_in(to.memory.get(), from, to.bytes());
#endif
  }
  void download(void* to, const Dense& from) const override {
#ifdef __CUDACC__
    check_cuda(cudaMemcpyAsync(to, from.memory.get(), from.bytes(), cudaMemcpyDeviceToHost, stream_), "download");
    check_cuda(cudaStreamSynchronize(stream_), "download");
#else
    machine_.copy_out(to, from.memory.get(), from.bytes());
#endif
  }
  void zero(const Dense& array) const override {
#ifdef __CUDACC__
    check_cuda(cudaMemsetAsync(array.memory.get(), 0, array.bytes(), stream_), "memset");
#else
    const std::vector<std::byte> zeros(array.bytes());
    upload(array, zeros.data());
#endif
  }
  void arrived([[maybe_unused]] Room room) const override {
#ifndef __CUDACC__
    const std::vector<std::byte> bytes(room.begin(), room.end());
    machine_.copy_in(room.data(), bytes.data(), bytes.size());
#endif
  }

  void copy(const AnyView& from, Type type, const AnyView& to, Type to_type) const override {
    if (type == to_type)
      return bytes_of(type) == 4 ? move<float, float>(from, to) : move<std::uint16_t, std::uint16_t>(from, to);
    if (to_type == Type::Float32) return with_element(type, [&]<class T>() { move<T, float>(from, to); });
    if (type != Type::Float32) refuse("copy", name(type), "float32", std::string("for ") + name(to_type));
    with_element(to_type, [&]<class T>() { move<float, T>(from, to); });
  }
  void restore(const AnyView&, Type type, const AnyView&, const Dense&) const override {
    refuse("type", name(type), "float32 with this phase on a GPU", "choose phase 20 or later for 16 bits");
  }
  void add(const Dense& part, const AnyView& sum) const override {
    with_element(part.type, [&]<class T>() { move<T, float, true>(part.view(), sum); });
  }
  void call(const AnyProblem& part) const override {
    validate(part, phase);
    const Pass& pass = pass_of(phase, part.direction);
    require(phase.name, pass.features, this_machine);
    if (!pass.stream_entries[static_cast<std::size_t>(this_machine)])
      refuse("phase", phase.name, "one that this program was linked with", "link the phase's kernel");
    flash::Stream stream{stream_, {}};
    std::vector<Dense> pieces;
    for (const Piece& piece : pass.features.workspace(part)) {
      pieces.push_back(dense(Type::Float32, {1, 1, 1, piece.count}));
      stream.workspace[pieces.size() - 1] = pieces.back().memory.get();
      if (piece.zeroed) zero(pieces.back());
    }
    mark(stream_, "attention");
    pass.on_stream(this_machine, part, &stream);
    mark(stream_, "");
  }

  void merge(const Merged& to, const Set& set) const override {
    const std::int64_t heads = set.o.shape[0] * set.o.shape[1], rows = heads * set.o.shape[2];
    if (rows == 0) return;
    mark(stream_, "merge");
    if (set.o.memory == to.o.memory)
      begin_rows<<<static_cast<unsigned>((rows + 255) / 256), 256, 0, stream_>>>(rows_of(to), rows_of(set), rows);
    else
      with_width(to.o.shape[3] % 4 == 0, [&]<int kWidth>() {
        merge_rows<kWidth><<<blocks_of(rows), 32 * kMergeWarps, 0, stream_>>>(rows_of(to), rows_of(set), heads);
      });
    check_cuda(cudaGetLastError(), "merge");
    mark(stream_, "");
  }
  void finish(const Merged& from, const std::optional<Set>& last, const AnyProblem& mine) const override {
    const std::int64_t heads = mine.B() * mine.H(), rows = heads * mine.Sq();
    if (rows == 0) return;
    const SetRows set = last ? rows_of(*last) : SetRows{nullptr, nullptr, nullptr, 0, 0};
    const auto numbers = [](const AnyView& view) { return static_cast<float*>(view.data); };
    mark(stream_, "merge");
    with_element(mine.out, [&]<class T>() {
      with_width(starts_by_four<T>(mine.o) && starts_by_four<std::int16_t>(mine.o_lo), [&]<int kWidth>() {
        finish_rows<T, kWidth><<<blocks_of(rows), 32 * kMergeWarps, 0, stream_>>>(
            rows_of(from), set,
            RowResults<T>{heads_of<T>(mine.o), heads_of<std::int16_t>(mine.o_lo), numbers(mine.lse), numbers(mine.m),
                          numbers(mine.l)},
            heads, static_cast<int>(mine.H()));
      });
    });
    check_cuda(cudaGetLastError(), "finish");
    mark(stream_, "");
  }

 protected:
  std::shared_ptr<void> allocate(std::size_t bytes) const override {
#ifdef __CUDACC__
    void* data = nullptr;
    const cudaError_t status = cudaMallocAsync(&data, bytes, stream_);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // not an error of the next launch
      throw OutOfMemory("cudaMallocAsync: out of memory, " + std::to_string(bytes) + " bytes wanted");
    }
    check_cuda(status, "cudaMallocAsync");
    return {data, [stream = stream_](void* memory) { cudaFreeAsync(memory, stream); }};
#else
    auto array = std::make_shared<Array<float>>(machine_.alloc<float>("ring", (bytes + 3) / 4));
    machine_.forget_type(array->data());  // it is whatever the ring wants
    return {array, array->data()};
#endif
  }

 private:
  static unsigned blocks_of(std::int64_t rows) {
    constexpr int of_block = kMergeWarps * 32;
    return static_cast<unsigned>((rows + of_block - 1) / of_block);
  }
  static float* numbers(const Dense& array) {
    return static_cast<float*>(array.memory.get());
  }
  static MergedRows rows_of(const Merged& x) {
    return {numbers(x.o),    numbers(x.top), numbers(x.sum),
            numbers(x.unit), x.o.shape[2],   static_cast<int>(x.o.shape[3])};
  }
  static SetRows rows_of(const Set& x) {
    return {numbers(x.o), numbers(x.m.memory ? x.m : x.lse), numbers(x.l), x.first, x.o.shape[2]};
  }
  // Does every row begin at, and have, a multiple of four numbers?
  template <class T>
  static bool starts_by_four(const AnyView& view) {
    const auto first = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data) / sizeof(T));
    return (view.D() | view.stride[0] | view.stride[1] | view.stride[2] | first) % 4 == 0;
  }
  // Calls f.template operator()<numbers at a time>().
  template <class F>
  static void with_width(bool by_four, const F& f) {
    by_four ? f.template operator()<4>() : f.template operator()<1>();
  }
  // Rows of all heads.
  template <class From, class To, bool kAdd = false>
  void move(const AnyView& from, const AnyView& to) const {
    if (to.elements() == 0) return;
    mark(stream_, kAdd ? "sum" : "copy");
    with_width(starts_by_four<From>(from) && starts_by_four<To>(to), [&]<int kWidth>() {
      const std::int64_t heads = to.B() * to.H(), threads = to.S() * (to.D() / kWidth);
      move_rows<From, To, kAdd, kWidth><<<grid_of(threads, 256, heads), 256, 0, stream_>>>(
          heads_of<const From>(from), heads_of<To>(to), heads, static_cast<int>(to.H()));
    });
    check_cuda(cudaGetLastError(), "move");
    mark(stream_, "");
  }

  mutable Machine machine_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace
}  // namespace flash::phase30::inline FLASH_MACHINE

namespace flash::inline FLASH_MACHINE {

std::unique_ptr<phase30::GpuWorker> gpu_worker(const Phase& phase, const MachineOptions& options) {
  return std::make_unique<phase30::Device>(phase, options);
}

}  // namespace flash::inline FLASH_MACHINE
