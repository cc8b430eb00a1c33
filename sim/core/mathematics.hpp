// mathematics.hpp: CUDA's functions that the C library does not have: sinpi, norms, inverses of the error function. The
// programming guide gives error bounds for them alone; here a float is computed as a double and rounded, a double as a
// long double. Global and plain, as the C library's: they touch no memory, so that no check misses anything.
// Use: the words of a kernel, through sim/dialect/dialect.hpp.
#pragma once

// 1 over the cube root; 1 over the length.
float rcbrtf(float x);
double rcbrt(double x);
float rhypotf(float x, float y);
double rhypot(double x, double y);
// Lengths of vectors, and 1 over them.
float norm3df(float x, float y, float z);
double norm3d(double x, double y, double z);
float norm4df(float x, float y, float z, float w);
double norm4d(double x, double y, double z, double w);
float rnorm3df(float x, float y, float z);
double rnorm3d(double x, double y, double z);
float rnorm4df(float x, float y, float z, float w);
double rnorm4d(double x, double y, double z, double w);
// sin and cos of pi x: exact where they are 0, 1 or -1.
#if !defined(__GLIBC_PREREQ) || !__GLIBC_PREREQ(2, 41)
float sinpif(float x);
double sinpi(double x);
float cospif(float x);
double cospi(double x);
#endif
// exp(x²) erfc(x); the inverses of erf and erfc; the normal distribution and its inverse.
float erfcxf(float x);
double erfcx(double x);
float erfinvf(float x);
double erfinv(double x);
float erfcinvf(float x);
double erfcinv(double x);
float normcdff(float x);
double normcdf(double x);
float normcdfinvf(float x);
double normcdfinv(double x);
