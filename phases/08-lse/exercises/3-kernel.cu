// 08.3 kernel: your own attention kernel, and its launch
// An exercise of phase 08; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 08.3     Prove it: ./flash exercise --check 08.3

//# question
// The capstone of part 2: an empty file and a promise. Compute O = softmax(scale Q K^T) V for several heads, and LSE,
// the natural logarithm of each row's sum of exp(s), where s are its scaled scores. If `causal`, row i sees the keys 0
// to i only. Write the kernel, and launch() with its grid. Tiles, threads and their work are your choice. Promise that
//     - O and LSE are right for any number of heads, any N from 1 on, and scores of any size;
//     - the checked simulator finds nothing: no race, no read of unwritten memory, no access out of bounds;
//     - K and V are read at most once for every 32 rows of Q; if `causal`, only the keys that one of these rows sees;
//     - the loads of K and V are coalesced, and shared memory has no bank conflicts;
//     - each element of Q is read once, each element of O and LSE is written once.

//# predict 10624 One head, N = 70, causal, D = 16: how many bytes of K will your kernel read?

//# hint
// A block for 32 rows of a head, a thread for each row: q, o, m and l are the thread's own. A tile of K and V lies in
// shared memory; all threads fill it together, neighbours with neighbours, and all read the same element at a time.
//# hint
// Two barriers for each tile. A thread whose row does not exist must fill and wait like the others; it only stores
// nothing. And the last tile of keys is not full.
//# hint
// The rows of block x end at 32 (x + 1), and so do the keys that they see. In the last tile a row sees
// min(keys, row + 1 - first_key) keys. Exercises 05.6, 05.8, 07.1, 07.2 and 08.1 are the parts.

//# because
// With 32 rows to a block there are three: they see 32, 64 and 70 keys of 64 bytes. Larger blocks read less, and leave
// more of the GPU idle.
//# next
// phases/08-lse/attention.cuh, and its figures in README.md: a right kernel is not yet a fast one. Part 3 makes it so;
// its capstone is exercise 13.3.

//# code

constexpr int D = 16;

//# hole Write launch(), and above it your kernel.
constexpr int Br = 32, Bc = 32;

__global__ void attention(const float* Q, const float* K, const float* V, float* O, float* LSE, int N, float scale,
                          bool causal) {
  __shared__ float k[Bc][D], v[Bc][D];
  const int head = blockIdx.y, first_row = blockIdx.x * Br, row = first_row + threadIdx.x;
  Q += head * N * D;
  K += head * N * D;
  V += head * N * D;
  O += head * N * D;
  float q[D], o[D] = {}, m = -INFINITY, l = 0;
  for (int d = 0; d < D; ++d) q[d] = row < N ? scale * Q[row * D + d] : 0;

  const int end = causal ? min(first_row + Br, N) : N;  // of the keys that the block's rows see
  for (int first_key = 0; first_key < end; first_key += Bc) {
    const int keys = min(Bc, end - first_key);
    for (int i = threadIdx.x; i < keys * D; i += Br) {
      k[i / D][i % D] = K[first_key * D + i];
      v[i / D][i % D] = V[first_key * D + i];
    }
    __syncthreads();  // the tile is complete

    const int seen = causal ? min(keys, row + 1 - first_key) : keys;  // by this row
    float s[Bc], m_new = m;
    for (int j = 0; j < seen; ++j) {
      s[j] = 0;
      for (int d = 0; d < D; ++d) s[j] += q[d] * k[j][d];
      m_new = fmaxf(m_new, s[j]);
    }
    const float alpha = expf(m - m_new);
    m = m_new;
    l *= alpha;
    for (int d = 0; d < D; ++d) o[d] *= alpha;
    for (int j = 0; j < seen; ++j) {
      const float p = expf(s[j] - m);
      l += p;
      for (int d = 0; d < D; ++d) o[d] += p * v[j][d];
    }
    __syncthreads();  // all have read it
  }
  if (row >= N) return;
  for (int d = 0; d < D; ++d) O[row * D + d] = o[d] / l;
  LSE[head * N + row] = m + logf(l);
}

void launch(const float* Q /*[heads, N, D]*/, const float* K /*[heads, N, D]*/, const float* V /*[heads, N, D]*/,
            float* O /*[heads, N, D]*/, float* LSE /*[heads, N]*/, int heads, int N, float scale, bool causal) {
  attention<<<dim3((N + Br - 1) / Br, heads), Br>>>(Q, K, V, O, LSE, N, scale, causal);
}
//# skeleton: No kernel was launched
//| void launch(const float* Q /*[heads, N, D]*/, const float* K /*[heads, N, D]*/, const float* V /*[heads, N, D]*/,
//|             float* O /*[heads, N, D]*/, float* LSE /*[heads, N]*/, int heads, int N, float scale, bool causal) {
//| }
//# wrong first-barrier: before it was filled
//~ __syncthreads();  // the tile is complete ==>
//# wrong second-barrier: filled again while another thread still reads it
//~ __syncthreads();  // all have read it ==>
//# wrong rows-leave: do threads without a row help
//~ float q[D], ==> if (row >= N) return; float q[D],
//# wrong own-head: Two blocks write the same rows of O
//~ O += head * N * D; ==>
//# wrong head-0: All heads use the keys of head 0
//~ K += head * N * D; ==>
//# wrong q-unguarded: beyond the last row
//~ row < N ? scale * Q[row * D + d] : 0 ==> scale * Q[row * D + d]
//# wrong o-unguarded: what lies behind row N - 1 is the next head's
//~ if (row >= N) return; ==>
//# wrong keys-unguarded: beyond the last key
//~ keys = min(Bc, end - first_key) ==> keys = Bc
//# wrong grid-rounded-down: The last rows of O were never written
//~ (N + Br - 1) / Br ==> max(1, N / Br)
//# wrong one-head: The last head was never written
//~ , heads), Br ==> , 1), Br
//# wrong not-scaled: The scores are not scaled
//~ scale * Q[row ==> Q[row
//# wrong not-causal: Rows see keys behind their own
//~ seen = causal ? min(keys, row + 1 - first_key) : keys ==> seen = keys
//# wrong not-oneself: A row sees its own key; if row 0 sees none
//~ row + 1 - first_key ==> row - first_key
//# wrong one-too-many: Each row sees one key too many
//~ row + 1 - first_key ==> row + 2 - first_key
//# wrong all-keys: with keys that none of its rows sees
//~ end = causal ? min(first_row + Br, N) : N ==> end = N
//# wrong o-old: O is not rescaled
//~ for (int d = 0; d < D; ++d) o[d] *= alpha; ==>
//# wrong alpha-inverted: alpha is upside down
//~ expf(m - m_new) ==> expf(m_new - m)
//# wrong no-maximum: are too large for exp
//~ m_new = fmaxf(m_new, s[j]) ==> m_new = 0
//# wrong m-from-0: smaller than the m that a row begins with
//~ m = -INFINITY, ==> m = 0,
//# wrong l-old: l is not rescaled
//~ l *= alpha; ==>
//# wrong undivided: O was never divided by l
//~ o[d] / l ==> o[d]
//# wrong lse-base-2: LSE adds log2(l)
//~ logf(l) ==> log2f(l)
//# wrong few-rows: K is read too often
//~ Br = 32, Bc = 32 ==> Br = 16, Bc = 16
//# wrong no-tile: K is read too often
//~ s[j] += q[d] * k[j][d] ==> s[j] += q[d] * K[(first_key + j) * D + d]
//# wrong row-a-thread: Neighbouring lanes should load neighbouring elements
//| constexpr int Br = 32, Bc = 32;
//|
//| __global__ void attention(const float* Q, const float* K, const float* V, float* O, float* LSE, int N, float scale,
//|                           bool causal) {
//|   __shared__ float k[Bc][D + 1], v[Bc][D + 1];
//|   const int head = blockIdx.y, first_row = blockIdx.x * Br, row = first_row + threadIdx.x;
//|   float q[D], o[D] = {}, m = -INFINITY, l = 0;
//|   for (int d = 0; d < D; ++d) q[d] = row < N ? scale * Q[(head * N + row) * D + d] : 0;
//|   const int end = causal ? min(first_row + Br, N) : N;
//|   for (int first_key = 0; first_key < end; first_key += Bc) {
//|     const int keys = min(Bc, end - first_key), key = head * N + first_key + threadIdx.x;
//|     for (int d = 0; d < D && threadIdx.x < keys; ++d) k[threadIdx.x][d] = K[key * D + d];
//|     for (int d = 0; d < D && threadIdx.x < keys; ++d) v[threadIdx.x][d] = V[key * D + d];
//|     __syncthreads();
//|     for (int j = 0; j < keys && (!causal || first_key + j <= row); ++j) {
//|       float s = 0;
//|       for (int d = 0; d < D; ++d) s += q[d] * k[j][d];
//|       const float m_new = fmaxf(m, s), alpha = expf(m - m_new), p = expf(s - m_new);
//|       m = m_new, l = l * alpha + p;
//|       for (int d = 0; d < D; ++d) o[d] = o[d] * alpha + p * v[j][d];
//|     }
//|     __syncthreads();
//|   }
//|   if (row >= N) return;
//|   for (int d = 0; d < D; ++d) O[(head * N + row) * D + d] = o[d] / l;
//|   LSE[head * N + row] = m + logf(l);
//| }
//|
//| void launch(const float* Q /*[heads, N, D]*/, const float* K /*[heads, N, D]*/, const float* V /*[heads, N, D]*/,
//|             float* O /*[heads, N, D]*/, float* LSE /*[heads, N]*/, int heads, int N, float scale, bool causal) {
//|   attention<<<dim3((N + Br - 1) / Br, heads), Br>>>(Q, K, V, O, LSE, N, scale, causal);
//| }
//# wrong columns: the number of bank conflicts
//| constexpr int Br = 32, Bc = 32;
//|
//| __global__ void attention(const float* Q, const float* K, const float* V, float* O, float* LSE, int N, float scale,
//|                           bool causal) {
//|   __shared__ float k[D][Bc], v[D][Bc];
//|   const int head = blockIdx.y, first_row = blockIdx.x * Br, row = first_row + threadIdx.x;
//|   float q[D], o[D] = {}, m = -INFINITY, l = 0;
//|   for (int d = 0; d < D; ++d) q[d] = row < N ? scale * Q[(head * N + row) * D + d] : 0;
//|   const int end = causal ? min(first_row + Br, N) : N;
//|   for (int first_key = 0; first_key < end; first_key += Bc) {
//|     const int keys = min(Bc, end - first_key);
//|     for (int i = threadIdx.x; i < keys * D; i += Br) k[i % D][i / D] = K[(head * N + first_key) * D + i];
//|     for (int i = threadIdx.x; i < keys * D; i += Br) v[i % D][i / D] = V[(head * N + first_key) * D + i];
//|     __syncthreads();
//|     for (int j = 0; j < keys && (!causal || first_key + j <= row); ++j) {
//|       float s = 0;
//|       for (int d = 0; d < D; ++d) s += q[d] * k[d][j];
//|       const float m_new = fmaxf(m, s), alpha = expf(m - m_new), p = expf(s - m_new);
//|       m = m_new, l = l * alpha + p;
//|       for (int d = 0; d < D; ++d) o[d] = o[d] * alpha + p * v[d][j];
//|     }
//|     __syncthreads();
//|   }
//|   if (row >= N) return;
//|   for (int d = 0; d < D; ++d) O[(head * N + row) * D + d] = o[d] / l;
//|   LSE[head * N + row] = m + logf(l);
//| }
//|
//| void launch(const float* Q /*[heads, N, D]*/, const float* K /*[heads, N, D]*/, const float* V /*[heads, N, D]*/,
//|             float* O /*[heads, N, D]*/, float* LSE /*[heads, N]*/, int heads, int N, float scale, bool causal) {
//|   attention<<<dim3((N + Br - 1) / Br, heads), Br>>>(Q, K, V, O, LSE, N, scale, causal);
//| }
//# also four-threads-a-row
//| // A row has four lanes, each with 4 of its 16 columns. A block: 32 rows, 128 threads, tiles of 16 keys.
//| __global__ void attention(const float* Q, const float* K, const float* V, float* O, float* LSE, int N, float scale,
//|                           bool causal) {
//|   __shared__ float k[16 * D], v[16 * D];
//|   const int part = threadIdx.x % 4 * 4, row = blockIdx.x * 32 + threadIdx.x / 4, offset = blockIdx.y * N;
//|   float q[4] = {}, o[4] = {}, m = -1e38f, l = 0;
//|   if (row < N)
//|     for (int d = 0; d < 4; ++d) q[d] = Q[(offset + row) * D + part + d] * scale;
//|   const int end = causal ? min(int(blockIdx.x + 1) * 32, N) : N;
//|   for (int first_key = 0; first_key < end; first_key += 16) {
//|     __syncthreads();
//|     for (int i = threadIdx.x; i < min(16, end - first_key) * D; i += 128) {
//|       k[i] = K[(offset + first_key) * D + i];
//|       v[i] = V[(offset + first_key) * D + i];
//|     }
//|     __syncthreads();
//|     for (int j = 0; j < min(16, end - first_key); ++j) {
//|       float s = 0;
//|       for (int d = 0; d < 4; ++d) s = fmaf(q[d], k[j * D + part + d], s);
//|       s += __shfl_xor_sync(0xffffffffu, s, 1);
//|       s += __shfl_xor_sync(0xffffffffu, s, 2);
//|       if (causal && first_key + j > row) continue;
//|       if (s > m) {
//|         const float alpha = expf(m - s);
//|         m = s, l *= alpha;
//|         for (int d = 0; d < 4; ++d) o[d] *= alpha;
//|       }
//|       const float p = expf(s - m);
//|       l += p;
//|       for (int d = 0; d < 4; ++d) o[d] = fmaf(p, v[j * D + part + d], o[d]);
//|     }
//|   }
//|   if (row >= N) return;
//|   for (int d = 0; d < 4; ++d) O[(offset + row) * D + part + d] = o[d] / l;
//|   if (part == 0) LSE[offset + row] = m + logf(l);
//| }
//|
//| void launch(const float* Q /*[heads, N, D]*/, const float* K /*[heads, N, D]*/, const float* V /*[heads, N, D]*/,
//|             float* O /*[heads, N, D]*/, float* LSE /*[heads, N]*/, int heads, int N, float scale, bool causal) {
//|   attention<<<dim3((N + 31) / 32, heads), 128>>>(Q, K, V, O, LSE, N, scale, causal);
//| }
//# also larger-blocks
//| // 64 rows, keys masked by -infinity, base 2, one grid for all heads.
//| __global__ void attention(const float* Q, const float* K, const float* V, float* O, float* LSE, int N, float scale,
//|                           bool causal) {
//|   __shared__ float4 k[32][D / 4], v[32][D / 4];
//|   const int blocks = (N + 63) / 64, head = blockIdx.x / blocks, first_row = blockIdx.x % blocks * 64;
//|   const int row = first_row + threadIdx.x, last_row = min(first_row + 64, N) - 1;
//|   const auto* q_row = reinterpret_cast<const float4*>(Q + (head * N + min(row, N - 1)) * D);
//|   float q[D], o[D] = {}, m = -INFINITY, l = 0;
//|   for (int d = 0; d < D / 4 && row < N; ++d) {
//|     const float4 four = q_row[d];
//|     q[4 * d] = four.x, q[4 * d + 1] = four.y, q[4 * d + 2] = four.z, q[4 * d + 3] = four.w;
//|   }
//|   for (int tile = 0; tile <= (causal ? last_row : N - 1) / 32; ++tile) {
//|     for (int i = threadIdx.x; i < 32 * D / 4; i += 64) {
//|       const int key = tile * 32 + i / (D / 4);
//|       if (key >= N) break;
//|       k[i / (D / 4)][i % (D / 4)] = reinterpret_cast<const float4*>(K + (head * N + key) * D)[i % (D / 4)];
//|       v[i / (D / 4)][i % (D / 4)] = reinterpret_cast<const float4*>(V + (head * N + key) * D)[i % (D / 4)];
//|     }
//|     __syncthreads();
//|     float s[32], top = m;
//|     for (int j = 0; j < 32 && row < N; ++j) {
//|       const int key = tile * 32 + j;
//|       s[j] = -INFINITY;
//|       if (key >= N || (causal && key > row)) continue;
//|       s[j] = 0;
//|       for (int d = 0; d < D / 4; ++d) {
//|         const float4 four = k[j][d];
//|         s[j] += q[4 * d] * four.x + q[4 * d + 1] * four.y + q[4 * d + 2] * four.z + q[4 * d + 3] * four.w;
//|       }
//|       top = fmaxf(top, s[j] *= scale * 1.44269504f);
//|     }
//|     const float alpha = exp2f(m - top);
//|     m = top, l *= alpha;
//|     for (float& x : o) x *= alpha;
//|     for (int j = 0; j < 32 && row < N; ++j) {
//|       if (s[j] == -INFINITY) continue;
//|       const float p = exp2f(s[j] - m);
//|       l += p;
//|       for (int d = 0; d < D / 4; ++d) {
//|         const float4 four = v[j][d];
//|         o[4 * d] += p * four.x, o[4 * d + 1] += p * four.y, o[4 * d + 2] += p * four.z, o[4 * d + 3] += p * four.w;
//|       }
//|     }
//|     __syncthreads();
//|   }
//|   if (row >= N) return;
//|   for (int d = 0; d < D; ++d) O[(head * N + row) * D + d] = o[d] / l;
//|   LSE[head * N + row] = 0.693147181f * m + logf(l);
//| }
//|
//| void launch(const float* Q /*[heads, N, D]*/, const float* K /*[heads, N, D]*/, const float* V /*[heads, N, D]*/,
//|             float* O /*[heads, N, D]*/, float* LSE /*[heads, N]*/, int heads, int N, float scale, bool causal) {
//|   attention<<<(N + 63) / 64 * heads, 64>>>(Q, K, V, O, LSE, N, scale, causal);
//| }
//# end

//# judge

void judge(Trial& t) {
  struct Case {
    int heads, N;
    bool causal, large;
  };
  for (const auto& [heads, N, causal, large] :
       {Case{3, 64, false, false}, Case{3, 64, true, false}, Case{2, 70, false, false}, Case{1, 70, true, false},
        Case{2, 1, true, false}, Case{1, 40, false, true}}) {
    const bool whole = N == 64;
    const std::string with = "N = " + std::to_string(N) + (causal ? ", causal" : "") +
                             (heads > 1 ? ", " + std::to_string(heads) + " heads: " : ": ");
    const float scale = 0.35f;
    Floats Q = t.normal("Q", heads * N * D), K = t.normal("K", heads * N * D);
    const Floats V = t.normal("V", heads * N * D);
    for (int j = 0; large && j < N; ++j) K[j * D] = 20;  // row 1: all scores below -10^36
    for (int i = 0; large && i < N * D; ++i) Q[i] = i == D ? -1e36f : i / D == 1 || i % D == 0 ? 0 : 300 * Q[i];
    const auto q = t.upload("Q", Q), k = t.upload("K", K), v = t.upload("V", V);
    const auto o = t.alloc("O", heads * N * D), lse = t.alloc("LSE", heads * N);
    launch(q.data(), k.data(), v.data(), o.data(), lse.data(), heads, N, scale, causal);
    t.ledger();  // (something was launched)
    const auto edge = [&](const std::string& access, const std::string& name, const std::string& of) {
      const std::string beyond = whole ? with + "an index goes beyond the end of " + name + "."
                                       : with + "your code goes beyond the last " + of + ".";
      return Sign{"out of bounds: " + access + " of " + name + "[", beyond};
    };
    const std::string divergent = with +
                                  "Not all threads come to the barrier: a thread without a row must fill and "
                                  "wait like the others.";
    const std::string found = t.machine.findings().empty() ? "" : t.machine.findings()[0].text;
    const bool of_shared = found.find(" of shared ") != std::string::npos;
    t.findings({{"barrier divergence", divergent},
                {"barrier skipped", divergent},
                {"deadlock", divergent},
                {"out of bounds: read of shared", ""},
                {"out of bounds: write of shared", ""},
                edge("read", "K", "key"),
                edge("read", "V", "key"),
                edge("read", "Q", "row"),
                {"blocks are unordered",
                 whole ? "Two blocks write the same rows of O or LSE: each head has rows of its own."
                       : with + "Two blocks write the same rows: what lies behind row N - 1 is the next head's."},
                edge("write", "O", "row"),
                edge("write", "LSE", "row"),
                {"uninitialised: read of shared", whole ? "Shared memory is read before it was filled: let all threads "
                                                          "wait in between."
                                                        : with + "Shared memory is read where nobody has filled it: is "
                                                                 "a tile full, and do threads without a row help?"},
                {of_shared ? "race: write after read" : "race of nothing",
                 "Shared memory is filled again while another thread still reads it: let all threads wait before "
                 "that."}});

    const auto up_to = [&](int more) { return [&, more](int i) { return causal ? i + more : N; }; };
    const Exact exact = exact_attention(Q, K, V, D, scale, up_to(1), heads);
    const Floats O = t.download(o);
    const auto unwritten = [&](int from, int to) {
      return std::all_of(&O[from], &O[from] + (to - from), [](float x) { return std::bit_cast<unsigned>(x) == ~0u; });
    };
    t.expect(!unwritten(0, heads * N * D), with + "Nothing was written to O.");
    t.expect(!unwritten((heads - 1) * N * D, heads * N * D),
             with +
                 "The last head was never written: does the grid have blocks for each head, in the direction that "
                 "the kernel takes for heads?");
    t.expect(!unwritten((heads * N - 1) * D, heads * N * D),
             with + "The last rows of O were never written: is the number of blocks rounded up?");
    std::vector<Mistake> mistakes = slips(Q, K, V, D, scale, up_to(1), heads);
    Floats keys_0 = K;
    for (int i = 0; i < heads * N * D; ++i) keys_0[i] = K[i % (N * D)];
    mistakes.push_back(
        {exact_attention(Q, keys_0, V, D, scale, up_to(1), heads).O, with + "All heads use the keys of head 0."});
    for (const int more : {2, N})  // within the rows' own tile
      for (const int tile : {16, 32, 64, 128})
        mistakes.push_back(
            {exact_attention(
                 Q, K, V, D, scale, [&](int i) { return std::min(i + more, (i / tile + 1) * tile); }, heads)
                 .O,
             with + (more == 2 ? "Each row sees one key too many: the last one of row i is key i."
                               : "Rows see keys behind their own: the last one of row i is key i.")});
    t.expect(!large || !std::isnan(O[D]) || std::isnan(O[0]),
             with +
                 "Row 1's scores are all below -10^36, and all equal: they are smaller than the m that a row begins "
                 "with. -INFINITY is below each score.");
    t.expect(!large || std::none_of(O.begin(), O.end(), [](float x) { return std::isnan(x); }),
             with + "Scores of some hundred are too large for exp: subtract the largest of all scores so far.");
    t.expect(std::any_of(O.begin(), O.end(), [](float x) { return !std::isnan(x); }),
             with +
                 "O is NaN. Before the first tile m is -infinity: exp(m - m_new) is 0 then, but exp(m_new - m) is "
                 "infinite, which means that alpha is upside down, or that -infinity was subtracted from itself.");
    t.expect(!causal || !std::isnan(O[0]) || std::isnan(O[D]),
             with + "Row 0 alone is NaN. A row sees its own key; if row 0 sees none, l is 0.");
    t.answer("O", O, exact.O, D, mistakes, large ? 1e-3 : 1e-4);
    t.answer("LSE", t.download(lse), exact.LSE, 1, slips_of_lse(exact), large ? 1e-3 : 1e-4);
    const std::uint64_t row = D * 4, rows = std::uint64_t(heads) * N;
    std::uint64_t keys = 0;  // that groups of 32 rows see, added up
    for (int first = 0; first < N; first += 32) keys += heads * std::uint64_t(causal ? std::min(first + 32, N) : N);
    const std::string often = causal ? "once for 32 rows was promised, and none with keys that none of its rows sees."
                                     : "once for 32 rows was promised.";
    for (const std::string name : {"K", "V"}) {
      const ArrayTraffic moved = t.traffic(name);
      t.count(with + "the bytes read of " + name, moved.read_bytes, keys * row, name + " is read too often: " + often);
      t.count(with + "the number of sectors that the loads of " + name + " touch", moved.read_sectors,
              moved.read_bytes / 32, "Neighbouring lanes should load neighbouring elements.");
    }
    t.count(with + "the number of bank conflicts", t.ledger().bank_conflicts(), 0,
            "Lanes of a warp want different words of one bank at a time.");
    t.count(with + "the bytes read of Q", t.traffic("Q").read_bytes, rows * row, "Each element is needed once.");
    t.count(with + "the traffic of O in bytes", t.traffic("O").written_bytes + t.traffic("O").read_bytes, rows * row,
            "O can stay in registers until it is done.");
    t.count(with + "the traffic of LSE in bytes", t.traffic("LSE").written_bytes + t.traffic("LSE").read_bytes,
            rows * 4, "One thread of a row's may write it.");
    if (causal && N == 70) t.predicted(t.traffic("K").read_bytes);
  }
}
