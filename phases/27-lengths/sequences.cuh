// sequences.cuh: the kernel in front of those of phase 27: where each sequence lies, what its mask is, and lists of all
// tiles, those of the longest sequences first. It clears what belongs to no sequence, too.
// Use: found_sequences<int>(p, Br, Bc, false, workspace);  the variant of lengths.cuh reads what it has found
#pragma once
#include "phases/interface/kernel_phase.cuh"

namespace flash::inline FLASH_MACHINE {

// #region found: what the kernels behind it read
template <class Int>
struct alignas(16) SequenceOf {
  Band<Int> band;                // its own mask: Sq rows, Sk keys
  Int first_row, first_key;      // where they begin in the tensors
  int b;                         // the tensors' batch entry
  int row_section, key_section;  // heads whose tiles are done in turns: those that the L2 cache holds

  // Keys that some row sees.
  __device__ Int seen() const { return band.Sq > 0 ? band.end(band.Sq - 1) : 0; }
};
struct Tile {
  int sequence, number;  // which of the sequence's
};
// In the workspace: sequences, how many tiles of rows and of keys there are, the tiles.
template <class Int>
struct Found {
  SequenceOf<Int>* sequences;  // [N]
  int* counts;                 // [2]
  Tile *row_tiles, *key_tiles;
  int Br, Bc;                  // so many rows of Q, and of K and V
  Int all_rows;                // of the tensor Q
  bool packed;                 // one behind the other, or each a batch entry
  Int entry_rows, entry_keys;  // for TMA: rows of Q and of K from one batch entry to the next
};
// #endregion

// #region sizes: of the workspace, and how many tiles there are at most
// Of S tokens in N sequences: one is begun for each sequence, and one for each `rows` tokens.
constexpr std::int64_t most_tiles(std::int64_t S, std::int64_t N, std::int64_t rows) {
  return S / rows + N;
}
// #endregion

// #region given: what the problem says
// What is not wanted is null. O, dQ, dK, dV in units of 16 bits.
struct Idle {
  std::uint16_t* data;  // [B, heads, S, units]
  std::int64_t b_stride, h_stride, stride;
  int units, heads;
  bool of_keys;
};
template <class Int>
struct Lengths {
  SequenceArrays given;
  Int Sq, Sk;  // the tensors'
  int N, H, Hk, D;
  Mask mask;
  Found<Int> found;
  Idle idle[3];
  float *LSE, *m, *l;  // [B, H, Sq]

  __device__ bool packed() const { return given.first_rows; }
  __device__ Int first_row(int n) const { return packed() ? given.first_rows[n] : 0; }
  __device__ Int first_key(int n) const { return packed() ? given.first_keys[n] : 0; }
  // Where the next one begins, or the batch entry ends. Number N is what is left over.
  __device__ Int end_of_rows(int n) const { return packed() && n < N ? given.first_rows[n + 1] : Sq; }
  __device__ Int end_of_keys(int n) const { return packed() && n < N ? given.first_keys[n + 1] : Sk; }
  __device__ Int rows(int n) const { return given.rows_of ? given.rows_of[n] : end_of_rows(n) - first_row(n); }
  __device__ Int all_keys(int n) const { return given.keys_of ? given.keys_of[n] : end_of_keys(n) - first_key(n); }
  // With a window keys at the front of a sequence may be seen by no row. They are left out: the sequence's keys, and
  // its mask, begin behind them.
  __device__ Band<Int> band(int n) const {
    Band<Int> band = mask.template band<Int>(rows(n), all_keys(n));
    const Int front = min(band.begin(0), band.Sk);
    band.left += front, band.right -= front, band.Sk -= front;
    return band;
  }
};
// #endregion

// #region heads-in-cache: as in phases 17 and 23
// Heads in sections as equal as may be, each with no more than fill so much of the cache.
__device__ inline int heads_in_sections(std::int64_t heads, std::int64_t bytes_of_head, std::int64_t cache) {
  const std::int64_t most = max(cache / max(bytes_of_head, std::int64_t{1}), std::int64_t{1});
  const std::int64_t sections = (heads + most - 1) / most;
  return static_cast<int>((heads + sections - 1) / sections);
}
// #endregion

// #region find: a block for each sequence
// Each counts the tiles of those that come before it: of rows those with more keys, of keys those with more rows; of
// equals the earlier ones. Block N, which comes behind all, has the sum. In y blocks share what is to be cleared.
template <class Int>
struct Before {
  int tiles[2];
};
template <class Int>
__global__ void __launch_bounds__(128) find_sequences(Lengths<Int> a) {
  const int n = blockIdx.x;
  const bool exists = n < a.N;
  const Band<Int> band = exists ? a.band(n) : Band<Int>{};
  const Int rows = band.Sq, keys = band.Sk, front = exists ? a.all_keys(n) - keys : 0;
  if (blockIdx.y == 0) {
    auto& before = shared<Before<Int>>().tiles;
    if (threadIdx.x < 2) before[threadIdx.x] = 0;
    __syncthreads();  // the sums are 0
    const auto tiles = [](Int length, int of) { return static_cast<int>((length + of - 1) / of); };
    int row_tiles = 0, key_tiles = 0;
    for (int other = threadIdx.x; other < a.N; other += 128) {
      const Int its_rows = a.rows(other), its_keys = a.band(other).Sk;
      const auto is_before = [&](Int its, Int mine) { return !exists || its > mine || (its == mine && other < n); };
      if (is_before(its_keys, keys)) row_tiles += tiles(its_rows, a.found.Br);
      if (is_before(its_rows, rows)) key_tiles += tiles(its_keys, a.found.Bc);
    }
    atomicAdd(&before[0], row_tiles), atomicAdd(&before[1], key_tiles);
    __syncthreads();  // the sums are complete
    if (!exists) {
      if (threadIdx.x < 2) a.found.counts[threadIdx.x] = before[threadIdx.x];
    } else {
      for (int i = threadIdx.x; i < tiles(rows, a.found.Br); i += 128) a.found.row_tiles[before[0] + i] = {n, i};
      for (int i = threadIdx.x; i < tiles(keys, a.found.Bc); i += 128) a.found.key_tiles[before[1] + i] = {n, i};
      if (threadIdx.x == 0) {
        const int group = a.H / a.Hk;
        SequenceOf<Int>& to = a.found.sequences[n];
        to.band = band;
        to.first_row = a.first_row(n), to.first_key = a.first_key(n) + front, to.b = a.packed() ? 0 : n;
        // Without a mask head by head: neighbours then share K and V anyway.
        to.row_section = a.mask.is_causal() ? group * heads_in_sections(a.Hk, std::int64_t{keys} * a.D * 4,
                                                                        keys <= 1024 ? 8 << 20 : 32 << 20)
                                            : 1;
        to.key_section = heads_in_sections(a.Hk, std::int64_t{rows} * group * a.D * 8, 32 << 20);
      }
    }
  }
  // Behind each sequence, and in front of its keys: O, dQ, dK, dV are 0 there, LSE and m -inf, l 0.
  if (!exists && !a.packed()) return;
  const int b = a.packed() ? 0 : n;
  const std::int64_t first_thread = blockIdx.y * 128 + threadIdx.x, threads = gridDim.y * 128;
  const Int idle_row = a.first_row(n) + rows, idle_rows = a.end_of_rows(n) - idle_row;
  const Int first_key = a.first_key(n), idle_key = first_key + front + keys;
  const auto clear = [&](const Idle& x, std::int64_t first, std::int64_t count) {
    if (!x.data || count <= 0) return;
    std::uint16_t* const data = x.data + b * x.b_stride + first * x.stride;
    const bool in_eights = (reinterpret_cast<std::uintptr_t>(data) / 2 | x.h_stride | x.stride | x.units) % 8 == 0;
    const int at_once = in_eights ? 8 : 1, pieces = x.units / at_once;
    for (std::int64_t i = first_thread; i < count * x.heads * pieces; i += threads) {
      const std::int64_t row = i / pieces % count, head = i / pieces / count;
      std::uint16_t* const to = data + head * x.h_stride + row * x.stride + i % pieces * at_once;
      if (in_eights)
        store8(to, make_uint4(0, 0, 0, 0));
      else
        *to = 0;
    }
  };
  for (const Idle& x : a.idle) {
    clear(x, x.of_keys ? idle_key : idle_row, x.of_keys ? a.end_of_keys(n) - idle_key : idle_rows);
    if (x.of_keys) clear(x, first_key, front);
  }
  for (std::int64_t i = first_thread; i < std::int64_t{idle_rows} * a.H; i += threads) {
    const std::int64_t row = (b * std::int64_t{a.H} + i / idle_rows) * a.Sq + idle_row + i % idle_rows;
    if (a.LSE) a.LSE[row] = -INFINITY;
    if (a.m) a.m[row] = -INFINITY, a.l[row] = 0;
  }
}
// #endregion

// #region launch-find: the host's side
template <class T>
Idle idle_of(const Heads<T>& x, int heads, bool of_keys) {
  constexpr int kUnits = sizeof(T) / 2;
  return {reinterpret_cast<std::uint16_t*>(x.data),
          x.b_stride * kUnits,
          x.h_stride * kUnits,
          x.stride * kUnits,
          x.cols * kUnits,
          heads,
          of_keys};
}
// Launches it: tiles of Br rows and of Bc keys. `backward`: what is cleared are gradients.
template <class Int, class T>
Found<Int> found_sequences(const DeviceProblem<T>& p, int Br, int Bc, bool backward, void* workspace) {
  const std::int64_t N = p.sequences.N;
  auto* const sequences = static_cast<SequenceOf<Int>*>(workspace);
  auto* const counts = reinterpret_cast<int*>(sequences + N);
  auto* const row_tiles = reinterpret_cast<Tile*>(counts + 4);
  const Found<Int> found{sequences,
                         counts,
                         row_tiles,
                         row_tiles + most_tiles(p.B * p.Q.rows, N, Br),
                         Br,
                         Bc,
                         static_cast<Int>(p.Q.rows),
                         p.sequences.first_rows != nullptr,
                         static_cast<Int>(entry_of(p.Q, p.B)),
                         static_cast<Int>(entry_of(p.K, p.B))};
  Lengths<Int> a{p.sequences,
                 static_cast<Int>(p.Q.rows),
                 static_cast<Int>(p.K.rows),
                 static_cast<int>(N),
                 p.H,
                 p.Hk,
                 std::max(p.K.cols, p.V.cols),
                 p.mask,
                 found,
                 {},
                 nullptr,
                 nullptr,
                 nullptr};
  if (backward) {
    a.idle[0] = idle_of(p.dQ, p.H, false), a.idle[1] = idle_of(p.dK, p.Hk, true), a.idle[2] = idle_of(p.dV, p.Hk, true);
  } else {
    a.idle[0] = idle_of(p.O, p.H, false), a.idle[1] = idle_of(p.O_wide, p.H, false);
    a.idle[2] = idle_of(p.O_lo, p.H, false), a.LSE = p.LSE, a.m = p.m, a.l = p.l;
  }
  const std::int64_t parts = std::max<std::int64_t>(8 * multiprocessors() / (N + 1), 1);
  const dim3 grid(static_cast<unsigned>(N + 1), static_cast<unsigned>(parts));
  find_sequences<Int><<<grid, 128, sizeof(Before<Int>), p.stream>>>(a);
  return found;
}
// Finds them, and calls launch() with the problem that kernels of earlier phases are launched for: of one batch entry,
// as long as all tiles that there may be. Blocks beyond those that there are find nothing to do.
template <class Int, class T, class F>
void with_sequences(DeviceProblem<T> p, int Br, int Bc, bool backward, void* workspace, const F& launch) {
  const Found<Int> found = found_sequences<Int>(p, Br, Bc, backward, workspace);
  if (p.sequences.N == 0) return;  // all has been cleared
  p.found = &found, p.cut_batch = p.B;
  p.Q.rows = most_tiles(p.B * p.Q.rows, p.sequences.N, Br) * Br;
  p.K.rows = most_tiles(p.B * p.K.rows, p.sequences.N, Bc) * Bc;
  p.B = 1, p.mask.alignment = Alignment::TopLeft, p.mask.shift = 0;
  p.band = p.mask.band(p.Q.rows, p.K.rows);  // is there a mask? Each sequence has its own
  launch(p);
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
