// forward_check.hpp: is O right? For benchmarks of forward kernels: sampled rows against fp64, before they are timed.
// The tests have a reference of their own (tests/reference.hpp) that shares no code with it. Dense tensors.
// Use: const Verdict v = verify(problem, 1e-5);  v.error, v.floor
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <sstream>
#include <thread>
#include <vector>

#include "phases/arrays/random.hpp"
#include "phases/interface/problem.hpp"
#include "sim/error.hpp"

namespace flash::bench {

// f(begin, end) for parts of 0 … count - 1, on all cores.
template <class F>
void in_parallel(std::size_t count, const F& f) {
  const std::size_t workers = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < workers; ++w)
    threads.emplace_back([&, w] { f(count * w / workers, count * (w + 1) / workers); });
  for (std::thread& t : threads) t.join();
}

// N(0,1) in bf16, made by all cores.
inline std::vector<bfloat16> random_numbers(std::size_t count, std::uint32_t stream) {
  const Random random(13, stream);
  std::vector<bfloat16> x(count);
  in_parallel(count, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) x[i] = from_float<bfloat16>(random.normal(i));
  });
  return x;
}

struct Verdict {
  double error, floor;
};

// One row of O in fp64, and how far the kernel's is from it.
struct RowCheck {
  double difference = 0, rounding = 0, norm = 0;  // squares: got - want, T(want) - want, want
  bool lse_is_right = true;
};

template <class T>
RowCheck check_row(const Problem<T>& p, std::int64_t b, std::int64_t h, std::int64_t i, double lse_bar) {
  const auto wide = [](T x) { return static_cast<double>(to_float(x)); };
  const std::int64_t keys = p.visible(i).end, D = p.D();
  std::vector<double> s(static_cast<std::size_t>(keys)), o(static_cast<std::size_t>(D));
  double m = -INFINITY, l = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    for (std::int64_t d = 0; d < D; ++d) s[j] += wide(p.q.row(b, h, i)[d]) * wide(p.k.row(b, h, j)[d]);
    s[j] *= static_cast<double>(p.scale());
    m = std::max(m, s[j]);
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    const double e = std::exp(s[j] - m);
    l += e;
    for (std::int64_t d = 0; d < D; ++d) o[d] += e * wide(p.v.row(b, h, j)[d]);
  }
  RowCheck check;
  for (std::int64_t d = 0; d < D; ++d) {
    const double want = o[d] / l, got = wide(p.o.row(b, h, i)[d]);
    const double rounded = wide(from_float<T>(static_cast<float>(want)));
    check.difference += (got - want) * (got - want);
    check.rounding += (rounded - want) * (rounded - want);
    check.norm += want * want;
  }
  if (p.lse) {
    const double want = m + std::log(l), got = static_cast<double>(p.lse[(b * p.H() + h) * p.Sq() + i]);
    check.lse_is_right = std::abs(got - want) <= lse_bar * std::max(1.0, std::abs(want));
  }
  return check;
}

// Every element must be a number (memory starts as NaN), and 32 rows, first and last among them, are computed again in
// fp64. The bar is the contract's: at most 1.5 times what rounding the exact result to T would cost. LSE: within
// lse_bar, relative where |LSE| > 1. Throws an Error that says what is wrong.
template <class T>
Verdict verify(const Problem<T>& p, double lse_bar) {
  std::atomic<bool> finite = true;
  in_parallel(static_cast<std::size_t>(p.o.elements()), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      if (!std::isfinite(to_float(p.o.data[i]))) finite = false;
  });
  if (!finite) throw Error("O has elements that are no finite numbers");

  const Random random(2026, 100);
  const auto pick = [&](std::int64_t n, std::uint64_t i) {
    return std::min(n - 1, static_cast<std::int64_t>(random.uniform(i) * static_cast<float>(n)));
  };
  std::vector<RowCheck> checks(32);
  in_parallel(checks.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r)
      checks[r] = check_row(p, pick(p.B(), 3 * r), pick(p.H(), 3 * r + 1),
                            r == 0   ? 0
                            : r == 1 ? p.Sq() - 1
                                     : pick(p.Sq(), 3 * r + 2),
                            lse_bar);
  });
  RowCheck sum;
  for (const RowCheck& check : checks) {
    if (!check.lse_is_right) throw Error("the LSE is wrong");
    sum.difference += check.difference, sum.rounding += check.rounding, sum.norm += check.norm;
  }
  const Verdict v{std::sqrt(sum.difference / sum.norm), std::sqrt(sum.rounding / sum.norm)};
  if (!(v.error <= 1.5 * v.floor + 0x1p-24)) {
    std::ostringstream text;
    text << "relative error " << v.error << ", more than 1.5 times the rounding floor " << v.floor;
    throw Error(text.str());
  }
  return v;
}

}  // namespace flash::bench
