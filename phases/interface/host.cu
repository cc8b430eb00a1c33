// host.cu: the host's side of all kernel phases, compiled once for each machine: what kernel_phase.cuh declares.
// Arrays go to the device with their gaps, so that strides hold there too, and come back row by row.
// Use: linked with every kernel phase (cmake/phases.cmake).
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "phases/interface/kernel_phase.cuh"
#include "phases/interface/operands.hpp"
#ifdef __CUDACC__
#include "gpu/timer.cuh"
#endif

namespace flash::inline FLASH_MACHINE {

#ifdef __CUDACC__
namespace {

// Of the current device. It never changes: each thread asks once, and again where it changes devices.
template <cudaDeviceAttr kAttribute>
int of_device(const char* what) {
  thread_local int device = -1, value = 0;
  if (const int current = current_device(); current != device) {
    check_cuda(cudaDeviceGetAttribute(&value, kAttribute, current), what);
    device = current;
  }
  return value;
}

}  // namespace
#endif

// Shared memory that a block may have, in bytes.
std::int64_t shared_memory_of(const MachineOptions& options) {
  const auto limit = static_cast<std::int64_t>(shared_memory_limit(options.profile));
#ifdef __CUDACC__
  return std::min<std::int64_t>(of_device<cudaDevAttrMaxSharedMemoryPerBlockOptin>("shared memory per block"), limit);
#else
  return limit;
#endif
}

namespace {
thread_local int spare_multiprocessors = 0;
}
SpareMultiprocessors::SpareMultiprocessors(int count) {
  spare_multiprocessors = count;
}
SpareMultiprocessors::~SpareMultiprocessors() {
  spare_multiprocessors = 0;
}

// Multiprocessors for this thread's launch: one at least.
int multiprocessors() {
#ifdef __CUDACC__
  const int all = of_device<cudaDevAttrMultiProcessorCount>("number of multiprocessors");
#else
  const int all = simulated_multiprocessors;
#endif
  return std::max(all - spare_multiprocessors, 1);
}

// What becomes of the K/V tiles of all Q tiles, by the mask alone. Tiles first … end - 1 have keys that some row sees.
// Those before `left` are cut on the left: the last row does not see them whole. Those from `right` on are cut on the
// right: the first row does not.
TileCounts count_tiles(const AnyProblem& p, Blocks blocks) {
  const Band<std::int64_t> band = p.options.mask.band(p.Sq(), p.Sk());
  const std::int64_t Bc = blocks.Bc, all = (p.Sk() + Bc - 1) / Bc;
  TileCounts counts;
  for (std::int64_t first_row = 0; first_row < p.Sq(); first_row += blocks.Br) {
    const std::int64_t last_row = std::min(first_row + blocks.Br, p.Sq()) - 1;
    const KeyRange<std::int64_t> seen = band.seen(first_row, last_row);
    const std::int64_t first = seen.begin / Bc, end = (seen.end + Bc - 1) / Bc;
    const auto between = [&](std::int64_t tile) { return std::clamp(tile, first, end); };
    const std::int64_t left = between((band.begin(last_row) + Bc - 1) / Bc), right = between(band.end(first_row) / Bc);
    const auto add = [&](std::uint64_t& to, std::int64_t tiles) {
      to += static_cast<std::uint64_t>(p.B() * p.H() * std::max<std::int64_t>(tiles, 0));
    };
    add(counts.full, right - left), add(counts.masked, end - first - std::max<std::int64_t>(right - left, 0));
    add(counts.masked_left, left - first), add(counts.masked_both, left - right);
    add(counts.skipped, all - (end - first)), add(counts.skipped_left, band.begin(first_row) < p.Sk() ? first : all);
  }
  return counts;
}

Run timed(Machine& m, const std::function<void()>& launches) {
  const auto begin = std::chrono::steady_clock::now();
  launches();
  check_cuda(cudaGetLastError(), "launch");
  check_cuda(cudaDeviceSynchronize(), "kernel");
  Run run;
  run.kernels = m.reports();
  run.trace = m.trace();
  run.counted = this_machine == Where::Checked;
  run.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  for (const KernelReport& kernel : run.kernels) run.ledger.add(kernel.ledger);
#ifdef __CUDACC__
  if (m.options().samples > 0) run.timing = time_on_gpu(launches, m.options().samples);
#endif
  return run;
}

namespace {

// An array's memory on the device, gaps included; `data` is where it begins.
struct OnDevice {
  std::shared_ptr<void> owner;
  void* data = nullptr;
};

// What is written is not copied in: what no thread writes stays poison.
template <class T>
OnDevice allocate(Machine& m, const char* name, const AnyView& view, bool written) {
  using U = device_t<T>;
  const auto span = static_cast<std::size_t>(view.span());
  auto array = std::make_shared<Array<U>>(written ? m.template alloc<T>(name, span)
                                                  : m.upload(name, static_cast<const T*>(view.data), span));
  return {array, array->data()};
}

// Copies the rows back and leaves the host's gaps alone.
template <class T>
void download(Machine& m, const OnDevice& from, const AnyView& any) {
  const View<T> view = view_as<T>(any);
  if (view.span() == 0) return;
  std::vector<T> span(static_cast<std::size_t>(view.span()));
  m.download(span.data(), *static_cast<Array<device_t<T>>*>(from.owner.get()));
  for (std::int64_t b = 0; b < view.B(); ++b)
    for (std::int64_t h = 0; h < view.H(); ++h)
      for (std::int64_t s = 0; s < view.S(); ++s)
        std::memcpy(view.row(b, h, s), &span[static_cast<std::size_t>(view.row(b, h, s) - view.data)],
                    static_cast<std::size_t>(view.D()) * sizeof(T));
}

// Calls f.template operator()<T>() with the host's type of the elements.
template <class F>
void with_type(Type type, const F& f) {
  switch (type) {
    case Type::Float32:
      return f.template operator()<float>();
    case Type::Float16:
      return f.template operator()<half>();
    case Type::BFloat16:
      return f.template operator()<bfloat16>();
    case Type::Int16:
      return f.template operator()<std::int16_t>();
    case Type::Int32:
      return f.template operator()<std::int32_t>();
    case Type::Byte:
      return f.template operator()<std::uint8_t>();
  }
}

}  // namespace

// MachineOptions::in_place: the kernel works on the caller's own memory (the simulator follows any pointer).
Run run_on_device(const AnyProblem& p, const Workspace& workspace, const MachineOptions& options,
                  const Launches& launches) {
  Machine m(options);
  AnyProblem device = p;
  std::array<OnDevice, std::size(operands)> memory;
  for (std::size_t i = 0; i < std::size(operands) && !options.in_place; ++i) {
    const Operand& operand = operands[i];
    if (!is_given(operand, p)) continue;
    with_type(type_of_elements(operand.element, p),
              [&]<class T>() { memory[i] = allocate<T>(m, operand.name, p.*operand.view, is_written(operand, p)); });
    (device.*operand.view).data = memory[i].data;
  }
  Stream stream{nullptr, {}};
  std::vector<Array<float>> pieces;
  for (const Piece& piece : workspace) {
    const auto count = static_cast<std::size_t>(piece.count);
    pieces.push_back(piece.zeroed ? m.upload(piece.name, std::vector<float>(count).data(), count)
                                  : m.alloc<float>(piece.name, count));
    stream.workspace[pieces.size() - 1] = pieces.back().data();
  }
  const Run run = timed(m, [&] { launches(device, stream); });
  for (std::size_t i = 0; i < std::size(operands) && !options.in_place; ++i)
    if (is_written(operands[i], p))
      with_type(type_of_elements(operands[i].element, p),
                [&]<class T>() { download<T>(m, memory[i], p.*operands[i].view); });
  return run;
}

}  // namespace flash::inline FLASH_MACHINE
