// tensor.hpp: owning 4-D tensors [B, H, S, D], held by xtensor.
// Phases never see it: they take the View that view() makes of a tensor.
// Use:  Tensor<float> q = load_tensor<float>("q.npy");  problem.q = view(q);
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "phases/arrays/npy.hpp"
#include "phases/arrays/random.hpp"
#include "phases/arrays/xtensor.hpp"
#include "phases/interface/limits.hpp"
#include "phases/interface/problem.hpp"

namespace flash {

template <class T>
using Tensor = xt::xtensor<T, 4>;  // row-major

template <class T>
Tensor<T> make_tensor(const std::array<std::int64_t, 4>& shape) {
  typename Tensor<T>::shape_type extents;
  for (std::size_t i = 0; i < 4; ++i) extents[i] = static_cast<std::size_t>(shape[i]);
  return Tensor<T>(extents);
}

template <class T>
std::array<std::int64_t, 4> shape_of(const Tensor<T>& t) {
  std::array<std::int64_t, 4> shape;
  for (std::size_t i = 0; i < 4; ++i) shape[i] = static_cast<std::int64_t>(t.shape(i));
  return shape;
}

template <class T>
View<T> view(Tensor<T>& t) {
  return dense_view(t.data(), shape_of(t));
}
template <class T>
View<const T> view(const Tensor<T>& t) {
  return dense_view(t.data(), shape_of(t));
}

// A tensor of random numbers; `stream` tells Q, K, V of one seed apart.
template <class T>
Tensor<T> random_tensor(const std::array<std::int64_t, 4>& shape, std::uint64_t seed, std::uint32_t stream,
                        Distribution distribution = Distribution::Normal) {
  Tensor<T> t = make_tensor<T>(shape);
  const Random random(seed, stream);
  for (std::size_t i = 0; i < t.size(); ++i) t.data()[i] = from_float<T>(draw(random, distribution, i));
  return t;
}

// [B, H, S, D], or [S, D] as [1, 1, S, D]; other ranks are refused.
template <class T>
Tensor<T> to_tensor(const NpyArray& array, const std::string& path) {
  const auto& s = array.shape;
  if (s.size() != 4 && s.size() != 2)
    refuse(path + "'s rank", s.size(), "4 ([B, H, S, D]) or 2 ([S, D])", "reshape it");
  Tensor<T> t = s.size() == 4 ? make_tensor<T>({s[0], s[1], s[2], s[3]}) : make_tensor<T>({1, 1, s[0], s[1]});
  std::copy_n(array.values<T>(), t.size(), t.data());
  return t;
}

template <class T>
Tensor<T> load_tensor(const std::string& path) {
  return to_tensor<T>(read_npy(path), path);
}

}  // namespace flash
