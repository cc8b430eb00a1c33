// timing.hpp: what a timer tells, how it is drawn from samples, and when there are samples enough. No CUDA here.
// The median, since a GPU's samples have outliers to one side; p10 and p90 show their spread.
// Use: gpu/timer.cuh takes the samples; Timing t = summarise(samples);
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace flash {

struct Timing {
  int samples = 0;  // 0: nothing was timed
  double median_ms = 0, p10_ms = 0, p90_ms = 0;
  double sm_mhz = 0;  // clock of the multiprocessors just after the last sample
};

// Quantiles between neighbouring samples are interpolated.
inline Timing summarise(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto quantile = [&](double q) {
    const double at = q * static_cast<double>(samples.size() - 1);
    const std::size_t low = static_cast<std::size_t>(at), high = std::min(low + 1, samples.size() - 1);
    return samples[low] + (at - static_cast<double>(low)) * (samples[high] - samples[low]);
  };
  return {static_cast<int>(samples.size()), quantile(0.5), quantile(0.1), quantile(0.9)};
}

// Enough: `most` samples; or 10 or more whose mean is known to half a percent (standard error); or 3 or more that
// took 300 ms together, for work so long that one sample is as good as the next.
inline bool enough(const std::vector<double>& samples, int most) {
  const double n = static_cast<double>(samples.size());
  double sum = 0, squares = 0;
  for (const double x : samples) sum += x;
  for (const double x : samples) squares += (x - sum / n) * (x - sum / n);
  if (samples.size() >= static_cast<std::size_t>(most)) return true;
  if (samples.size() >= 10 && std::sqrt(squares / (n - 1) / n) <= 0.005 * sum / n) return true;
  return samples.size() >= 3 && sum >= 300;
}

}  // namespace flash
