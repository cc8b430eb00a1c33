// tiles.cuh: words for whole tiles, of phases 14 to 19: which keys a tile of rows sees, copies by TMA, products by
// wgmma, and how O is stored. A product lies in the registers as phases/10-tensor-cores/rows.cuh says.
// Use: load_tile(tile, &map, &full, first_row, h, b); begin_scores<T>(s, Q, K); wgmma_wait<0>(s);
#pragma once
#include "gpu/hopper.cuh"
#include "phases/10-tensor-cores/rows.cuh"
#include "phases/11-swizzle/fragments.cuh"
#include "phases/interface/kernel_phase.cuh"

namespace flash::inline FLASH_MACHINE {

// #region uniform: the same number in all lanes, and the compiler knows it
// A number that is the same in all lanes. By this the compiler knows it too, and keeps what follows from it, such as
// the addresses of wgmma's operands, in registers of the warp rather than of each lane.
__device__ inline int uniform(int number) {
  return static_cast<int>(__reduce_max_sync(0xffffffffu, static_cast<unsigned>(number)));
}
// #endregion

// #region keys: what a block does, and which keys it sees
// What a block does: a Q tile of a head.
struct Work {
  int head, q_tile;
};
// A block's where each has one. Without a mask they go through a head's Q tiles, then through the next one's; with one,
// as in phase 13, the longest Q tiles of all heads come first.
__device__ inline Work work_of_block(unsigned heads, bool longest_first) {
  const unsigned block = blockIdx.x, q_tiles = gridDim.x / heads;
  const unsigned head = longest_first ? block % heads : block / q_tiles;
  const unsigned q_tile = longest_first ? q_tiles - 1 - block / heads : block % q_tiles;
  return {static_cast<int>(head), static_cast<int>(q_tile)};
}

// Of Br rows: K/V tiles 0 … full - 1 are seen whole by each of them, full … seen - 1 in part, the others by none.
struct TileRange {
  int full, seen;
};
template <int Br, int Bc>
__device__ TileRange tile_range(int first_row, const Band<int>& band) {
  const int keys = band.end(min(first_row + Br, band.Sq) - 1);
  return {band.end(first_row) / Bc, (keys + Bc - 1) / Bc};
}
// #endregion

// #region load-tile: one thread begins to copy a tile
// A tile is D / 64 panels of 64 columns: a row of a panel has 128 bytes, in which TMA and wgmma swizzle 16-byte pieces
// alike, by the row's number modulo 8, as phase 11 did: an element is at panel[row][swizzled(row, column)].
//
// One thread begins to copy rows first … first + kRows - 1 of head (b, h) into a tile: TMA knows from the map where
// they are, writes zeros for what is outside of the tensor, and tells the barrier each byte that has arrived.
template <int kPanels, int kRows>
__device__ void load_tile(std::uint16_t (&tile)[kPanels][kRows][64], const TensorMap* map, std::uint64_t* full,
                          int first, int h, int b) {
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) cp_async_bulk_tensor(tile[panel], map, full, 64 * panel, first, h, b);
}
// #endregion

// #region products: S and PV are begun, 16 columns or keys at a time
// Begins S = Q Kᵀ for the warpgroup's 64 rows, 16 columns of Q and K at a time. Both lie as their rows do (K-major):
// 16 columns further on is 32 bytes further on, within a panel. Warp w has rows 16 w to 16 w + 15 of the 64.
template <class T, int kPanels, int Bc>
__device__ void begin_scores(float (&s)[Bc / 2], const std::uint16_t (&Q)[kPanels][64][64],
                             const std::uint16_t (&K)[kPanels][Bc][64]) {
  const MatrixDescriptor q = matrix_descriptor(Q), k = matrix_descriptor(K);
  wgmma_fence();
#pragma unroll
  for (int d = 0; d < kPanels * 64; d += 16)
    wgmma_m64nNk16<T>(s, q + (d / 64 * sizeof Q[0] + d % 64 * 2), k + (d / 64 * sizeof K[0] + d % 64 * 2), d != 0);
  wgmma_commit();
}

// Begins O += P V, 16 keys at a time. P comes from registers; of V (MN-major: its rows are keys) the panels are
// sizeof V[0] bytes apart, and 16 keys are 16 rows of 128 bytes.
template <class T, int kPanels, int Bc>
__device__ void begin_output(float (&o)[kPanels * 32], const unsigned (&p)[Bc / 16][4],
                             const std::uint16_t (&V)[kPanels][Bc][64]) {
  const MatrixDescriptor v = matrix_descriptor(V, sizeof V[0]);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < Bc; k += 16) wgmma_m64nNk16<T, Major::MN>(o, p[k / 16], v + k * 128, true);
  wgmma_commit();
}
// #endregion

// #region store: O goes to HBM from registers
template <class T, int N>
__device__ void store_output(const float (&o)[N], const float (&factor)[2], Head<T> O, int row) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const int at = row + 8 * row_of(i), column = column_of(i) + threadIdx.x % 4 * 2;
    auto* to = reinterpret_cast<std::uint16_t*>(O.data) + at * O.stride + column;
    if (at < O.rows && column < O.cols) store2(to, pack<T>(o[i] * factor[row_of(i)], o[i + 1] * factor[row_of(i)]));
  }
}
// #endregion

// #region maps: tensors as TMA sees them
// A tensor as TMA sees it: columns, rows, heads, batch; boxes of 64 columns and so many rows.
template <class T>
TensorMap map_of(const Heads<T>& x, int B, int H, int box_rows) {
  const auto bytes = [](std::int64_t size, std::int64_t stride) {  // of an axis of length 1 the stride says nothing
    return static_cast<std::uint64_t>(size > 1 ? stride : 8) * sizeof(T);
  };
  return tensor_map<std::remove_const_t<T>, 4>(x.data,
                                               {static_cast<std::uint64_t>(x.cols), static_cast<std::uint64_t>(x.rows),
                                                static_cast<std::uint64_t>(H), static_cast<std::uint64_t>(B)},
                                               {bytes(x.rows, x.stride), bytes(H, x.h_stride), bytes(B, x.b_stride)},
                                               {64, static_cast<std::uint32_t>(box_rows), 1, 1});
}

// A tensor in which sequences end, which the box of a tile is not to cross (phase 27). Rows have two axes, of the same
// stride: the first one ends behind `cut_rows` of them, where a sequence does, and the second one says where that is. A
// box that begins n before the end has n rows of the sequence; for the others TMA writes zeros, or stores nothing. The
// last axis takes cut_rows back, since addresses are numbers modulo 2^64. So coordinates 0 are in the tensor, as they
// must be: a load may read there for what it fills with zeros. Batch entries are rows of it (entry_of).
constexpr int cut_rows = 1 << 30;
template <class T>
TensorMap cut_map_of(const Heads<T>& x, std::int64_t rows, int H, int box_rows) {
  const auto size = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const auto bytes = [&](std::int64_t n, std::int64_t stride) { return size(n > 1 ? stride : 8) * sizeof(T); };
  const std::uint64_t row = bytes(rows, x.stride), head = bytes(H, x.h_stride);
  return tensor_map<std::remove_const_t<T>, 5>(
      x.data, {size(x.cols), size(cut_rows), size(rows + 1), size(H), size(cut_rows) + 1},
      {row, row, head, (std::uint64_t{1} << 34) - row}, {64, static_cast<std::uint32_t>(box_rows), 1, 1, 1});
}
// Rows of a problem's tensor, or keys: cut where the problem says so.
template <class T, class U>
TensorMap map_of(const DeviceProblem<T>& p, Heads<U> x, int H, int box_rows) {
  if (!p.cut_batch) return map_of(x, p.B, H, box_rows);
  if (!x.data) return cut_map_of(p.K.data ? p.K : p.Q, 0, 1, box_rows);  // it has no rows: all are zeros
  // Q and K are said to have rows for all tiles (phase 27): O and V have as many as there are.
  const void *const data = x.data, *const Q = p.Q.data, *const K = p.K.data;
  const std::int64_t rows = data == Q && data == K ? std::max(p.O.rows, p.V.rows)
                            : data == Q            ? p.O.rows
                            : data == K            ? p.V.rows
                                                   : x.rows;
  return cut_map_of(x, (p.cut_batch - 1) * entry_of(x, p.cut_batch) + rows, H, box_rows);
}

// K or V: what some row of Q sees. Other rows are as if they were not there: TMA writes zeros for them (0 · NaN is
// NaN). Where they are the first ones, with a window, TMA counts from the first that is seen (phase 26).
template <class T>
Heads<const T> seen_keys(const DeviceProblem<T>& p, Heads<const T> x) {
  if (p.cut_batch) return x;  // each sequence has its own
  const KeyRange<std::int64_t> seen = p.Q.rows > 0 ? p.band.seen(0, p.Q.rows - 1) : KeyRange<std::int64_t>{};
  x.rows = seen.size(), x.data += seen.begin * x.stride;
  return x;
}
template <class T>
TensorMap map_of_keys(const DeviceProblem<T>& p, const Heads<const T>& x, int box_rows) {
  const Heads<const T> seen = seen_keys(p, x);
  return map_of(p, seen.rows > 0 ? seen : p.Q, p.Hk, box_rows);  // no address where there are no rows
}
// O; where it is not stored by TMA, but in fp32, some map that nobody reads.
template <class T>
TensorMap map_of_output(const DeviceProblem<T>& p) {
  return p.O.data ? map_of(p, p.O, p.H, 64) : map_of(p, p.Q, p.H, 64);
}
// TMA counts rows in 32 bits, and so does the kernel: there are at most 2^30.
inline Band<int> narrow(const Band<std::int64_t>& band) {
  return {static_cast<int>(band.left), static_cast<int>(band.right), static_cast<int>(band.Sq),
          static_cast<int>(band.Sk)};
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
