// learn_attention.cu: calls the attention kernels of gau-nernst/learn-cuda's 07_attention: one head of 128, 128
// queries, 256 keys.
// Use: flash check learn_attention.cu CLONE/07_attention/attention_v*.cu -- 1 2 3 4 5
#include "bfloat16.hpp"

using Attention = void(const __nv_bfloat16* Q, const __nv_bfloat16* K, const __nv_bfloat16* V, __nv_bfloat16* O, int bs,
                       int len_q, int len_kv, int dim);
Attention attention_v1, attention_v2, attention_v3, attention_v4, attention_v5;

int main(int argc, char** argv) {
  const int len_q = 128, len_kv = 256, dim = 128;
  const auto q = rounded(filled(len_q * dim, 1)), k = rounded(filled(len_kv * dim, 2)),
             v = rounded(filled(len_kv * dim, 3));
  Floats s(len_q * len_kv), columns(dim * len_kv);
  for (int i = 0; i < len_kv; ++i)
    for (int d = 0; d < dim; ++d) columns[d * len_kv + i] = k[i * dim + d];
  const auto scores = product(q, columns, s, len_q, len_kv, dim, 1 / std::sqrt(dim), 0);
  const auto p = softmax_of({scores.begin(), scores.end()}, len_q, len_kv);
  const auto wanted = product({p.begin(), p.end()}, v, Floats(len_q * dim), len_q, dim, len_kv, 1, 0);
  __nv_bfloat16 *d_q = uploaded_bf16(q), *d_k = uploaded_bf16(k), *d_v = uploaded_bf16(v);
  Attention* const all[] = {attention_v1, attention_v2, attention_v3, attention_v4, attention_v5};
  for (int i = 1; i < argc; ++i) {
    const int kernel = std::atoi(argv[i]);
    __nv_bfloat16* d_o;
    cudaMalloc(&d_o, len_q * dim * sizeof(__nv_bfloat16));
    all[kernel - 1](d_q, d_k, d_v, d_o, 1, len_q, len_kv, dim);
    agrees("attention", kernel, downloaded_bf16(d_o, len_q * dim), wanted, 4e-3);  // |O| is below 0.5
  }
  return wrong;
}
