// ablation.cu: one Hopper phase's kernel with one size of blocks, as a library for ablations_h200.py to load.
// PHASE, HEADER, HEAD_DIM, BLOCK_Q and BLOCK_K are given on the compiler's command line; bf16, contiguous tensors.
// Use: ablations_h200.py compiles it once for each patch in ablations/, and once for each kernel as it is.
#include HEADER

// Enqueues O = softmax(Q Kᵀ / √D) V and LSE. q, k, v, o: [B, H, N, D]; lse: [B, H, N]; counter: 0 before and after.
// Returns a cudaError_t, or -1 if the launch was refused.
extern "C" int run(const void* q, const void* k, const void* v, void* o, float* lse, unsigned* counter, int B, int H,
                   int N, int causal, void* stream) try {
  using T = __nv_bfloat16;
  const auto tensor = [&]<class U>(U* data) {
    const std::int64_t head = std::int64_t{N} * HEAD_DIM;
    return flash::Heads<U>{data, H * head, head, HEAD_DIM, N, HEAD_DIM};
  };
  flash::DeviceProblem<T> p{};
  p.Q = tensor(static_cast<const T*>(q)), p.K = tensor(static_cast<const T*>(k));
  p.V = tensor(static_cast<const T*>(v)), p.O = tensor(static_cast<T*>(o));
  p.LSE = lse, p.counter = counter, p.B = B, p.H = p.Hk = H, p.stream = static_cast<cudaStream_t>(stream);
  p.scale_log2 = flash::scale_log2(1 / std::sqrt(static_cast<float>(HEAD_DIM)));
  p.band = (causal ? flash::Mask::top_left() : flash::Mask::none()).band(N, N);
  flash::PHASE::Attention::launch<T, HEAD_DIM, BLOCK_Q, BLOCK_K>(p);
  return static_cast<int>(cudaGetLastError());
} catch (const std::exception&) {
  return -1;
}
