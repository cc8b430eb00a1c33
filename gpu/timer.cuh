// timer.cuh: how long work on the GPU takes: warm-up, cold L2, CUDA events, median and spread, SM clock.
// It knows nothing of what it times. Launches inside `work` must not wait for the device, or the wait is timed too.
// Use: Timing t = time_on_gpu([&] { kernel<<<grid, block>>>(arguments); }, 100);
#pragma once
#include <vector>

#include "gpu/cuda.cuh"
#include "gpu/timing.hpp"

namespace flash::inline on_gpu {

class Event {
 public:
  Event() { check_cuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  void record() { check_cuda(cudaEventRecord(event_), "cudaEventRecord"); }
  // Waits for this event.
  double milliseconds_since(const Event& begin) const {
    float milliseconds = 0;
    check_cuda(cudaEventSynchronize(event_), "timed work");
    check_cuda(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "cudaEventElapsedTime");
    return milliseconds;
  }

 private:
  cudaEvent_t event_;
};

// One thread that idles for a number of SM clock cycles.
static __global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {}
}

// The SM clock at this moment: cycles by the chip's counter over time by events. Needs no management library.
inline double sm_clock_mhz() {
  constexpr long long cycles = 2'000'000;  // about a millisecond
  Event begin, end;
  begin.record();
  spin<<<1, 1>>>(cycles);
  check_cuda(cudaGetLastError(), "clock probe");
  end.record();
  return static_cast<double>(cycles) / end.milliseconds_since(begin) / 1000;
}

template <class Work>
Timing time_on_gpu(const Work& work, int most_samples) {
  int device = 0, l2_bytes = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device), "size of the L2 cache");
  const Array<char> other("the L2 flush", 2 * static_cast<std::size_t>(l2_bytes));
  Event begin, end;
  const auto sample = [&] {
    // Write twice what the L2 cache holds, so that each sample finds its inputs in device memory. The GPU is busy with
    // it while the host launches the work, so that launching costs nothing here.
    check_cuda(cudaMemsetAsync(other.data(), 0, other.size()), "L2 flush");
    begin.record();
    work();
    end.record();
    return end.milliseconds_since(begin);
  };

  // Warm-up: clocks need some tens of milliseconds to rise.
  double warm = 0;
  for (int i = 0; i < 1000 && warm < 50; ++i) warm += sample();

  std::vector<double> samples;
  do samples.push_back(sample());
  while (!enough(samples, most_samples));
  Timing timing = summarise(samples);
  timing.sm_mhz = sm_clock_mhz();
  return timing;
}

}  // namespace flash::inline on_gpu
