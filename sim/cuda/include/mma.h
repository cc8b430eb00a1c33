// mma.h: in place of CUDA's header of this name, for programs that ./flash check compiles: nvcuda::wmma, matrix products
// of a warp on the tensor cores: 16 x 16 x 16 of half or bfloat16, accumulated as float or half. CUDA does not say which
// lane has which element; here it is as in mma.m16n8k16, of which one product is two (mma_m16n8k16).
// Use: #include <mma.h>, as with nvcc; not here: other shapes and types. half accumulators are rounded after each product.
#pragma once
#include <cuda_runtime.h>

#include "sim/dialect/ptx.hpp"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
struct u4;
struct s4;
struct b1;
}  // namespace precision

template <class Use, int kM, int kN, int kK, class T, class Layout = void>
class fragment {
  static_assert(kM == 16 && kN == 16 && kK == 16, "wmma is simulated for 16 x 16 x 16");
  static constexpr bool kAccumulates = ::std::is_same_v<Use, accumulator>;
  static_assert(::std::is_same_v<T, __half> ||
                    (kAccumulates ? ::std::is_same_v<T, float> : ::std::is_same_v<T, __nv_bfloat16>),
                "wmma is simulated for half and bfloat16, with accumulators of float or half");

 public:
  using element_type = T;
  static constexpr int num_elements = 8;
  T x[num_elements];

  // Not CUDA's by this name: where element i of this lane lies, [row][column].
  FLASH_INLINE static int row(int i) {
    const int lane = flash_lane();
    if (::std::is_same_v<Use, matrix_b>) return lane % 4 * 2 + i % 2 + i / 2 % 2 * 8;
    return lane / 4 + i / 2 % 2 * 8;
  }
  FLASH_INLINE static int column(int i) {
    const int lane = flash_lane();
    if (::std::is_same_v<Use, matrix_b>) return lane / 4 + i / 4 * 8;
    return lane % 4 * 2 + i % 2 + i / 4 * 8;
  }

 private:
  FLASH_INLINE static int flash_lane() {
    return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
  }
};

template <class Use, int kM, int kN, int kK, class T, class Layout, class Value>
FLASH_INLINE void fill_fragment(fragment<Use, kM, kN, kK, T, Layout>& f, const Value& value) {
  for (T& x : f.x) x = static_cast<T>(value);
}

// Elements i and i + 1 are neighbours in a row, or of B in a column: two of 16 bits are one access where memory has them
// beside each other, at a multiple of 4 bytes, as `ld` and the matrix's address must let them be.
template <class Use, int kM, int kN, int kK, class T, class Layout>
FLASH_INLINE void flash_load(fragment<Use, kM, kN, kK, T, Layout>& f, const T* p, unsigned ld, bool rows) {
  const bool pairs = rows != ::std::is_same_v<Use, matrix_b> && sizeof(T) == 2;
  for (int i = 0; i < 8; i += pairs ? 2 : 1) {
    const unsigned row = static_cast<unsigned>(f.row(i)), column = static_cast<unsigned>(f.column(i));
    const T* const from = p + (rows ? row * ld + column : column * ld + row);
    if (pairs) {
      const unsigned both = *reinterpret_cast<const unsigned*>(from);
      __builtin_memcpy(&f.x[i], &both, sizeof both);
    } else {
      f.x[i] = *from;
    }
  }
}
template <class Use, int kM, int kN, int kK, class T, class Layout>
FLASH_INLINE void load_matrix_sync(fragment<Use, kM, kN, kK, T, Layout>& f, const T* p, unsigned ld) {
  flash_load(f, p, ld, ::std::is_same_v<Layout, row_major>);
}
template <int kM, int kN, int kK, class T>
FLASH_INLINE void load_matrix_sync(fragment<accumulator, kM, kN, kK, T>& f, const T* p, unsigned ld, layout_t layout) {
  flash_load(f, p, ld, layout == mem_row_major);
}
template <int kM, int kN, int kK, class T>
FLASH_INLINE void store_matrix_sync(T* p, const fragment<accumulator, kM, kN, kK, T>& f, unsigned ld, layout_t layout) {
  for (int i = 0; i < 8; ++i) {
    const unsigned row = static_cast<unsigned>(f.row(i)), column = static_cast<unsigned>(f.column(i));
    p[layout == mem_row_major ? row * ld + column : column * ld + row] = f.x[i];
  }
}

template <int kM, int kN, int kK, class T, class C, class D, class LayoutA, class LayoutB>
FLASH_INLINE void mma_sync(fragment<accumulator, kM, kN, kK, D>& d, const fragment<matrix_a, kM, kN, kK, T, LayoutA>& a,
                           const fragment<matrix_b, kM, kN, kK, T, LayoutB>& b,
                           const fragment<accumulator, kM, kN, kK, C>& c, bool = false, FLASH_SITE) {
  unsigned a_words[4], b_words[2];
  __builtin_memcpy(a_words, a.x, sizeof a_words);
  for (int half = 0; half < 2; ++half) {  // columns 0 to 7, 8 to 15
    float sum[4];
    for (int i = 0; i < 4; ++i) sum[i] = static_cast<float>(c.x[4 * half + i]);
    __builtin_memcpy(b_words, b.x + 4 * half, sizeof b_words);
    flash::mma_m16n8k16<T>(sum, a_words, b_words, sum, site);
    for (int i = 0; i < 4; ++i) d.x[4 * half + i] = static_cast<D>(sum[i]);
  }
}

}  // namespace nvcuda::wmma
