// mathematics.cpp: see mathematics.hpp. Each function of a float is the one of a double, rounded.
// Use: see mathematics.hpp.
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numbers>

#include "sim/core/mathematics.hpp"
namespace {

using Wide = long double;
constexpr Wide kPi = std::numbers::pi_v<Wide>, kInverseRootPi = std::numbers::inv_sqrtpi_v<Wide>;
constexpr Wide kRootHalf = std::numbers::sqrt2_v<Wide> / 2;

Wide length(std::initializer_list<double> vector) {
  Wide sum = 0;
  for (const double x : vector) {
    if (std::isinf(x)) return std::numeric_limits<Wide>::infinity();  // whatever the others are
    sum += static_cast<Wide>(x) * x;
  }
  return std::sqrt(sum);
}

// erfc(x) = y, where 0 < y < 2: a first guess, then Halley's steps, which triple the digits. Near y = 1 `x_of_erf` is
// 1 - y without its rounding.
Wide inverse_erfc(Wide y, Wide x_of_erf) {
  if (std::fabs(x_of_erf) < 1e-6L) return x_of_erf / (2 * kInverseRootPi) * (1 + kPi * x_of_erf * x_of_erf / 12);
  const Wide tail = y < 1 ? y : 2 - y, t = std::sqrt(-2 * std::log(tail / 2));
  Wide x = -kRootHalf * ((2.30753L + t * 0.27061L) / (1 + t * (0.99229L + t * 0.04481L)) - t);
  if (y >= 1) x = -x;
  for (int i = 0; i < 4; ++i) {
    const Wide miss = std::fabs(x_of_erf) < 0.5L ? x_of_erf - std::erf(x) : std::erfc(x) - y;
    x += miss / (2 * kInverseRootPi * std::exp(-x * x) - x * miss);
  }
  return x;
}

double from_erfc(Wide y, Wide x_of_erf) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!(y >= 0 && y <= 2)) return std::numeric_limits<double>::quiet_NaN();
  if (y == 0) return kInfinity;
  if (y == 2) return -kInfinity;
  return static_cast<double>(inverse_erfc(y, x_of_erf));
}

}  // namespace

double rcbrt(double x) {
  return static_cast<double>(1 / std::cbrt(static_cast<Wide>(x)));
}
double rhypot(double x, double y) {
  return static_cast<double>(1 / length({x, y}));
}
double norm3d(double x, double y, double z) {
  return static_cast<double>(length({x, y, z}));
}
double norm4d(double x, double y, double z, double w) {
  return static_cast<double>(length({x, y, z, w}));
}
double rnorm3d(double x, double y, double z) {
  return static_cast<double>(1 / length({x, y, z}));
}
double rnorm4d(double x, double y, double z, double w) {
  return static_cast<double>(1 / length({x, y, z, w}));
}

#if !defined(__GLIBC_PREREQ) || !__GLIBC_PREREQ(2, 41)
double sinpi(double x) {
  const double turned = std::fmod(x, 2);         // exact
  const double halves = std::round(2 * turned);  // the nearest multiple of pi / 2, and the rest, at most pi / 4
  const Wide rest = kPi * (turned - halves / 2);
  const int quarter = std::isfinite(x) ? static_cast<int>(halves) & 3 : 0;
  const Wide y = quarter & 1 ? std::cos(rest) : std::sin(rest);
  return y == 0 ? std::copysign(0.0, x) : static_cast<double>(quarter & 2 ? -y : y);
}
double cospi(double x) {
  const double turned = std::fmod(std::fabs(x), 2), halves = std::round(2 * turned);
  const Wide rest = kPi * (turned - halves / 2);
  const int quarter = std::isfinite(x) ? static_cast<int>(halves) & 3 : 0;
  const Wide y = quarter & 1 ? -std::sin(rest) : std::cos(rest);
  return y == 0 ? 0.0 : static_cast<double>(quarter & 2 ? -y : y);
}
float sinpif(float x) {
  return static_cast<float>(sinpi(x));
}
float cospif(float x) {
  return static_cast<float>(cospi(x));
}
#endif

double erfcx(double x) {
  const Wide wide = x;
  if (x < 10) return static_cast<double>(std::exp(wide * wide) * std::erfc(wide));
  // 1 - 1/(2x²) + 1·3/(2x²)² - …
  Wide term = 1, sum = 1;
  for (int n = 1; n <= 24; ++n) sum += term *= -(2 * n - 1) / (2 * wide * wide);
  return static_cast<double>(kInverseRootPi / wide * sum);
}
double erfinv(double x) {
  return from_erfc(1 - static_cast<Wide>(x), x);
}
double erfcinv(double y) {
  return from_erfc(y, 1 - static_cast<Wide>(y));
}
double normcdf(double x) {
  return static_cast<double>(std::erfc(-kRootHalf * x) / 2);
}
double normcdfinv(double p) {
  return -from_erfc(2 * static_cast<Wide>(p), 1 - 2 * static_cast<Wide>(p)) * std::numbers::sqrt2;
}

float rcbrtf(float x) {
  return static_cast<float>(rcbrt(x));
}
float rhypotf(float x, float y) {
  return static_cast<float>(rhypot(x, y));
}
float norm3df(float x, float y, float z) {
  return static_cast<float>(norm3d(x, y, z));
}
float norm4df(float x, float y, float z, float w) {
  return static_cast<float>(norm4d(x, y, z, w));
}
float rnorm3df(float x, float y, float z) {
  return static_cast<float>(rnorm3d(x, y, z));
}
float rnorm4df(float x, float y, float z, float w) {
  return static_cast<float>(rnorm4d(x, y, z, w));
}
float erfcxf(float x) {
  return static_cast<float>(erfcx(x));
}
float erfinvf(float x) {
  return static_cast<float>(erfinv(x));
}
float erfcinvf(float x) {
  return static_cast<float>(erfcinv(x));
}
float normcdff(float x) {
  return static_cast<float>(normcdf(x));
}
float normcdfinvf(float x) {
  return static_cast<float>(normcdfinv(x));
}
