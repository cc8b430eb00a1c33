// block_mask.cu: phase 28's kernel that makes a block mask from a predicate, launched with two of them: the documents
// that it has, and one as a reader would write it.
// Run: block_mask_test
#include "phases/28-modifiers/kinds.cuh"

namespace flash::inline FLASH_MACHINE {

// Of every `stride` keys a row sees those that come before its own place, in head 1; all of them in head 0.
struct Strided {
  int stride;
  __device__ bool operator()(int /*b*/, int h, int i, int j) const { return h == 0 || j % stride <= i % stride; }
};

void run_document_blocks(Machine& m, const std::int32_t* q, const std::int32_t* k, std::uint8_t* kinds, int B, int Sq,
                         int Sk) {
  const Array<std::int32_t> document_q = m.upload("document_q", q, B * Sq),
                            document_k = m.upload("document_k", k, B * Sk);
  const Array<std::uint8_t> to = m.alloc<std::uint8_t>("kinds", B * ((Sq + 63) / 64) * ((Sk + 63) / 64));
  make_block_mask(SameDocument{document_q.data(), document_k.data(), Sq, Sk}, to.data(), B, 1, Sq, Sk);
  m.download(kinds, to);
}
void run_strided_blocks(Machine& m, int stride, std::uint8_t* kinds, int B, int H, int Sq, int Sk) {
  const Array<std::uint8_t> to = m.alloc<std::uint8_t>("kinds", B * H * ((Sq + 63) / 64) * ((Sk + 63) / 64));
  make_block_mask(Strided{stride}, to.data(), B, H, Sq, Sk);
  m.download(kinds, to);
}

}  // namespace flash::inline FLASH_MACHINE
