// bias.cuh: a bias for each pair, for who asks for nothing else: copied two tiles ahead, or loaded while tensor cores
// make S, it is there when S is. The modifier for all that may be asked together is in combined.cuh.
// Use: phase19::Attention::launch_here<T, D, Br, Bc, Modified<Grouped<int>, Bias<T>>>(with_scores_of<Bias<T>>(p));
#pragma once
#include "phases/28-modifiers/masks.cuh"

namespace flash::inline FLASH_MACHINE {

// #region dbias: who makes the gradient of a bias
// Where dS is made it is stored, if each number of dbias is one row's, head's and batch entry's alone. If heads or
// entries share it, it is added there: to 0, in whatever order, which for two of them is no matter. Elsewhere a kernel
// behind the others adds in one order (gradients.cuh).
enum class BiasGradient { Stored, Added, Left };
inline BiasGradient bias_gradient_of(const AnyProblem& p, BackwardMode mode) {
  if (!p.dbias.given() || p.dbias.S() != p.Sq()) return BiasGradient::Left;
  const std::int64_t sharing = p.B() / p.dbias.B() * (p.H() / p.dbias.H());
  if (sharing == 1) return BiasGradient::Stored;
  return sharing == 2 || mode == BackwardMode::Atomic ? BiasGradient::Added : BiasGradient::Left;
}
// #endregion

// #region rooms: a warp's own 16 rows of two tiles, which nobody else waits for
// Pieces of 16 bytes change places by XOR with the row, so that ldmatrix has no bank conflicts.
struct BiasRooms {
  alignas(1024) std::uint16_t tiles[8][2][16][128];  // [warp][stage][row][key]
};
template <class T>
__device__ __forceinline__ BiasRooms& bias_rooms();  // attention.cuh: behind the kernel's own tiles
// #endregion

// #region bias
// Modified: fetch() comes first, add() when S is there, then fetch_next().
template <class T>
struct Bias {
  static constexpr bool waits = false;  // Modified: it has registers enough while PV goes on
  static constexpr std::size_t shared_bytes = sizeof(BiasRooms);
  PairArray<std::uint16_t> pairs;
  PairArray<float> dbias;  // null where nobody asks, or where it is left to another kernel
  bool adds;               // to what is there: it is shared
  int Sq, Sk;
  float scale;
  int stage;  // where the next tile is

  template <class U>
  static Bias of(const DeviceProblem<U>& p) {
    const BiasGradient gradient = bias_gradient_of(*p.all, p.mode);
    return {PairArray<std::uint16_t>::of(p.all->bias),
            PairArray<float>::of(gradient == BiasGradient::Left ? AnyView{} : p.all->dbias),
            gradient == BiasGradient::Added,
            static_cast<int>(p.band.Sq),
            static_cast<int>(p.band.Sk),
            p.scale,
            0};
  }
  // Eight neighbours are one access, of Sᵀ two.
  static bool takes(const AnyView& bias) {
    const auto pairs = PairArray<std::uint16_t>::of(bias);
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(pairs.data) / 2);
    const bool eights = (address | pairs.b_stride | pairs.h_stride | pairs.stride) % 8 == 0;
    return bias.elements() > 0 && eights && bias.shape[3] % 2 == 0;
  }
  __device__ constexpr bool bends() const { return false; }

  // s becomes scale · s + bias. What a bias of -inf hides is hidden, NaN too; that is rare, so it is looked for in all
  // of a lane's numbers at once: the largest pattern of bits among negative numbers is that of -inf.
  template <int N, class F>
  __device__ __forceinline__ void add(float (&s)[N], const F& word) const {
    unsigned lowest = 0;
#pragma unroll
    for (int e = 0; e < N; e += 2) {
      const float2 x = unpack<T>(word(e / 2));
      lowest = __vimax3_u32(lowest, __float_as_uint(x.x), __float_as_uint(x.y));
      s[e] = fmaf(s[e], scale, x.x), s[e + 1] = fmaf(s[e + 1], scale, x.y);
    }
    if (!__any_sync(0xffffffffu, lowest >= 0xff800000u)) return;
#pragma unroll
    for (int e = 0; e < N; e += 2) {
      const float2 x = unpack<T>(word(e / 2));
      if (x.x == -INFINITY) s[e] = -INFINITY;
      if (x.y == -INFINITY) s[e + 1] = -INFINITY;
    }
  }

  // Rows i … and keys j … of a tile, a warp's share of it: half a warp has a row. Keys beyond the end are zeros; rows
  // beyond it are the last one, whatever becomes of them. Before the first key there is nothing, but a group of copies.
  __device__ __forceinline__ void copy(std::uint16_t (&room)[16][128], int b, int h, int i, int j) const {
    const int first = threadIdx.x % 32 / 16, key = threadIdx.x % 16 * 8;
    if (j >= 0) {
      const std::uint16_t* const from = pairs.head(b, h) + j + key;
      const unsigned bytes = 2 * max(min(Sk - j - key, 8), 0);
#pragma unroll
      for (int row = 0; row < 16; row += 2) {
        const int mine = first + row;
        cp_async_16(&room[mine][key ^ mine % 8 * 8], from + min(i + mine, Sq - 1) * pairs.stride, bytes);
      }
    }
    cp_async_commit();
  }
  __device__ __forceinline__ auto& room_of(int stage) const {
    return bias_rooms<T>().tiles[threadIdx.x / 32][stage];
  }

  // i, j: of the lane's first element.
  template <int N>
  __device__ __forceinline__ void fetch(int b, int h, int i, int j) const {
    static_assert(N == 64);
    const int row = i - lane_row(), key = j - lane_column();
    copy(room_of(stage), b, h, row, key);
    copy(room_of(stage ^ 1), b, h, row, key - 2 * N);
  }
  template <int N>
  __device__ __forceinline__ void fetch_next(int b, int h, int i, int j) {
    copy(room_of(stage), b, h, i - lane_row(), j - lane_column() - 4 * N);
    stage ^= 1;
  }
  // The tile of this stage has been copied by all lanes, and read by all before fetch_next() copies into it.
  template <int N>
  __device__ __forceinline__ void add(float (&s)[N]) const {
    const int lane = threadIdx.x % 32, row = lane % 16;
    const std::uint16_t* const from = room_of(stage)[row];
    cp_async_wait<1>();
    __syncwarp();
    unsigned words[4];  // of two rows and two groups of eight keys
    add(s, [&](int k) {
      if (k % 4 == 0) ldmatrix_x4(words, from + ((k / 4 * 16 + lane / 16 * 8) ^ row % 8 * 8));
      return words[k % 4];
    });
    __syncwarp();
  }

  // Of Sᵀ, whose neighbours are two queries: they are loaded as neighbouring keys of a query, and change places in the
  // warp when they are there. Eight queries and eight keys are 32 words; a lane's two numbers lie in two of them.
  template <int N>
  __device__ __forceinline__ void fetch(unsigned (&room)[N / 8][4], int b, int h, int i, int j) const {
    const std::uint16_t* const head = pairs.head(b, h);
    const int query = i - lane_column() + lane_row(), key = j - lane_row() + lane_column();
    const int keys[2] = {min(key, Sk - 2), min(key + 8, Sk - 2)};
#pragma unroll
    for (int n = 0; n < N / 4; ++n) {
      const std::uint16_t* const row = head + min(query + 8 * n, Sq - 1) * pairs.stride;
#pragma unroll
      for (int r = 0; r < 2; ++r) room[n / 2][n % 2 * 2 + r] = load2(row + keys[r]);
    }
  }
  template <int N>
  __device__ __forceinline__ void add(float (&s)[N], const unsigned (&room)[N / 8][4]) const {
    const int lane = threadIdx.x % 32, from = lane % 4 * 8 + lane / 8;  // query 2 t, keys g - g % 2 and the next one
    const unsigned half = lane / 4 % 2 ? 0x7632 : 0x5410;               // key g of both
    unsigned mine[N / 2];
#pragma unroll
    for (int k = 0; k < N / 2; ++k) {
      const unsigned word = room[k / 4][k % 4];
      const unsigned first = __shfl_sync(0xffffffffu, word, from), second = __shfl_sync(0xffffffffu, word, from + 4);
      mine[k] = prmt(first, second, half);
    }
    add(s, [&](int k) { return mine[k]; });
  }
  // dbias is dS. Eight lanes have neighbouring keys.
  template <int N>
  __device__ __forceinline__ void take(const float (&ds)[N], int b, int h, int i, int j) const {
    if (!dbias.data) return;
    float* const to = const_cast<float*>(dbias.head(b, h)) + i * dbias.stride + j;
    const bool whole = i + query_of<true>(N - 1) < Sq && j + key_of<true>(N - 1) < Sk;
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const int query = query_of<true>(e), key = key_of<true>(e);
      float* const here = to + query * dbias.stride + key;
      if (!whole && (i + query >= Sq || j + key >= Sk)) continue;
      if (adds)
        atomicAdd(here, ds[e]);
      else
        *here = ds[e];
    }
  }
};
// #endregion

}  // namespace flash::inline FLASH_MACHINE
