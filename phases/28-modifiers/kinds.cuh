// kinds.cuh: a block mask from a predicate: a kernel asks it once for every pair, and the mask serves all layers.
// Use: make_block_mask(SameDocument{documents_q, documents_k, Sq, Sk}, kinds, B, H, Sq, Sk, stream);
#pragma once
#include "phases/interface/device.cuh"
#include "phases/interface/problem.hpp"
#include "sim/error.hpp"

namespace flash::inline FLASH_MACHINE {

// #region predicate: does query i see key j of head h of batch entry b? A struct that a reader can write
struct SameDocument {
  const std::int32_t *document_q, *document_k;  // [B, Sq], [B, Sk]
  std::int64_t q_stride, k_stride;              // from one batch entry to the next

  __device__ bool operator()(int b, int /*h*/, int i, int j) const {
    return document_q[b * q_stride + i] == document_k[b * k_stride + j];
  }
};
// #endregion

// #region find-kinds
// What lies beyond the last row or key has no say. 256 threads: a key each, and every fourth row.
template <class Sees>
__global__ void __launch_bounds__(256)
    find_kinds(Sees sees, std::uint8_t* kinds /*[B, H, ⌈Sq/64⌉, ⌈Sk/64⌉]*/, int H, int Sq, int Sk) {
  const int rows = (Sq + 63) / 64, columns = (Sk + 63) / 64, number = blockIdx.x;
  const int first_row = number / columns % rows * 64, head = number / columns / rows, b = head / H, h = head % H;
  const int j = number % columns * 64 + static_cast<int>(threadIdx.x) % 64;
  bool any = false, all = true;
  for (int i = first_row + static_cast<int>(threadIdx.x) / 64; j < Sk && i < min(first_row + 64, Sq); i += 4) {
    const bool seen = sees(b, h, i, j);
    any |= seen, all &= seen;
  }
  any = __syncthreads_or(any), all = !__syncthreads_or(!all);
  if (threadIdx.x == 0)
    kinds[number] = static_cast<std::uint8_t>(!any ? BlockKind::None : all ? BlockKind::Whole : BlockKind::Ask);
}

// `kinds`: device memory for all of them, dense. H is 1 where heads share the mask, B where entries do. In a block that
// is seen in part attention asks the mask or the documents: those must say what the predicate says.
template <class Sees>
void make_block_mask(const Sees& sees, std::uint8_t* kinds, std::int64_t B, std::int64_t H, std::int64_t Sq,
                     std::int64_t Sk, cudaStream_t stream = nullptr) {
  const std::int64_t blocks = B * H * ((Sq + 63) / 64) * ((Sk + 63) / 64);
  if (blocks == 0) return;
  if (std::max({Sq, Sk, blocks}) > INT32_MAX)
    refuse("blocks of the mask", blocks, "at most 2147483647, and so for rows and keys",
           "make it of fewer heads at a time");
  find_kinds<<<static_cast<unsigned>(blocks), 256, 0, stream>>>(sees, kinds, static_cast<int>(H), static_cast<int>(Sq),
                                                                static_cast<int>(Sk));
}
// #endregion

}  // namespace flash::inline FLASH_MACHINE
