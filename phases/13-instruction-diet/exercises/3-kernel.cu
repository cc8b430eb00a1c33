// 13.3 kernel: your own attention kernel for tensor cores
// An exercise of phase 13; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 13.3     Prove it: ./flash exercise --check 13.3

//# question
// The capstone of part 3: an empty file and a promise. Compute O = softmax(scale Q K^T) V for one head of 64 columns,
// in halves, with both products on tensor cores. Write the kernel, and launch() with its grid. Promise that
//     - O is right for any N from 1 on, and scores of any size: P may be rounded to half, scores and sums may not;
//     - both products are made by mma_m16n8k16, and the checked simulator finds nothing;
//     - K and V are read at most once for every 64 rows of Q, and their loads are coalesced;
//     - each element of Q is read once, each element of O is written once;
//     - shared memory has no bank conflicts.
// Useful words of gpu/ptx.cuh, which pages 10 to 12 explain: mma_m16n8k16<__half>(d, a, b, c),
// ldmatrix_x4(registers, row) and ldmatrix_x4_trans, cp_async_16(shared, global, bytes), cp_async_commit(),
// cp_async_wait<0>().

//# predict 1024 N = 100: how many times do your warps call mma_m16n8k16, all together?

//# hint
// A warp for 16 rows: Q as left operands in registers, S and O as results, two rows to a lane. Four warps share a tile
// of K and V. P is a left operand where S lies, once each two neighbours are packed into a register.
//# hint
// Put the 16 bytes of column group c in row r at column group c ^ r % 8: then neither stores nor ldmatrix conflict.
// Lane i gives ldmatrix row i % 8 of matrix i / 8. For K that is key n + i % 8 + i / 16 * 8, column d + i / 8 % 2 * 8.
// For V, transposed, it is key n + i % 16, column d + i / 16 * 8.
//# hint
// A row lies in four lanes: maximum and sum want __shfl_xor_sync with 1 and 2. Keys from N on get -infinity before the
// maximum is taken, and zeros for their rows of V: 0 times what happens to lie there could be NaN.

//# because
// Four warps of 16 rows and tiles of 32 keys make 128 rows and 128 keys of 100. An mma takes 16 rows, 8 keys and 16
// columns: 8 * 16 * 4 for S, and as many for P V. Smaller tiles waste less at the edges, and more elsewhere.
//# next
// phases/13-instruction-diet/attention.cuh: the same products, and few instructions between them. Exercise 19.2 is the
// capstone of part 4.

//# code

constexpr int D = 64;

//# hole Write launch(), and above it your kernel.
constexpr int Br = 64, Bc = 32;  // rows of a block, 16 to a warp; keys of a tile

// Where an element of a tile lies: groups of 8 columns change places by their row.
__device__ int at(int row, int column) {
  return row * D + (column / 8 ^ row % 8) * 8 + column % 8;
}

// Rows first to first + Bc - 1, zeros from row N on.
__device__ void load(__half* tile, const __half* from, int first, int N) {
  for (int i = threadIdx.x; i < Bc * D / 8; i += 2 * Br) {
    const int row = i / (D / 8), column = i % (D / 8) * 8;
    const auto* eight = reinterpret_cast<const uint4*>(&from[(first + row) * D + column]);
    auto* place = reinterpret_cast<uint4*>(&tile[at(row, column)]);
    *place = first + row < N ? *eight : make_uint4(0, 0, 0, 0);
  }
}

__global__ void attention(const __half* Q, const __half* K, const __half* V, __half* O, int N, float scale) {
  __shared__ alignas(16) __half k[Bc * D], v[Bc * D];
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first_row = blockIdx.x * Br + threadIdx.x / 32 * 16;  // of the warp
  unsigned q[D / 16][4];
  for (int i = 0; i < D / 4; ++i) {
    const int row = first_row + g + i % 2 * 8, column = i / 4 * 16 + i / 2 % 2 * 8 + 2 * t;
    const auto* two = reinterpret_cast<const unsigned*>(&Q[row * D + column]);
    q[i / 4][i % 4] = row < N ? *two : 0;
  }
  float o[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {};

  for (int first_key = 0; first_key < N; first_key += Bc) {
    load(k, K, first_key, N);
    load(v, V, first_key, N);
    __syncthreads();  // the tiles are complete

    // S = Q K^T
    float s[Bc / 8][4] = {};
    for (int n = 0; n < Bc; n += 16)
      for (int d = 0; d < D; d += 16) {
        unsigned b[4];
        ldmatrix_x4(b, &k[at(n + lane % 8 + lane / 16 * 8, d + lane / 8 % 2 * 8)]);
        mma_m16n8k16<__half>(s[n / 8], q[d / 16], {b[0], b[1]}, s[n / 8]);
        mma_m16n8k16<__half>(s[n / 8 + 1], q[d / 16], {b[2], b[3]}, s[n / 8 + 1]);
      }

    // Rows g and g + 8: scale, mask, the new maximum; the old state counts less; P = exp(S - m).
    for (int r = 0; r < 2; ++r) {
      float top = m[r];
      for (int j = 0; j < Bc / 4; ++j) {
        float& x = s[j / 2][2 * r + j % 2];
        x = first_key + j / 2 * 8 + 2 * t + j % 2 < N ? scale * x : -INFINITY;
        top = fmaxf(top, x);
      }
      for (int offset = 1; offset <= 2; offset *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, offset));
      const float alpha = expf(m[r] - top);
      m[r] = top;
      l[r] *= alpha;
      for (int n = 0; n < D / 4; ++n) o[n / 2][2 * r + n % 2] *= alpha;
      for (int j = 0; j < Bc / 4; ++j) l[r] += s[j / 2][2 * r + j % 2] = expf(s[j / 2][2 * r + j % 2] - top);
    }

    // O += P V
    for (int n = 0; n < Bc; n += 16) {
      unsigned p[4];
      for (int i = 0; i < 4; ++i) {
        const float* two = &s[n / 8 + i / 2][i % 2 * 2];
        const __half2 packed = __floats2half2_rn(two[0], two[1]);
        p[i] = *reinterpret_cast<const unsigned*>(&packed);
      }
      for (int d = 0; d < D; d += 16) {
        unsigned b[4];
        ldmatrix_x4_trans(b, &v[at(n + lane % 16, d + lane / 16 * 8)]);
        mma_m16n8k16<__half>(o[d / 8], p, {b[0], b[1]}, o[d / 8]);
        mma_m16n8k16<__half>(o[d / 8 + 1], p, {b[2], b[3]}, o[d / 8 + 1]);
      }
    }
    __syncthreads();  // all have read the tiles
  }

  for (int r = 0; r < 2; ++r) {
    for (int offset = 1; offset <= 2; offset *= 2) l[r] += __shfl_xor_sync(0xffffffffu, l[r], offset);
    const int row = first_row + g + r * 8;
    for (int n = 0; n < D / 8 && row < N; ++n)
      *reinterpret_cast<__half2*>(&O[row * D + n * 8 + 2 * t]) =
          __floats2half2_rn(o[n][2 * r] / l[r], o[n][2 * r + 1] / l[r]);
  }
}

void launch(const __half* Q /*[N, D]*/, const __half* K /*[N, D]*/, const __half* V /*[N, D]*/, __half* O /*[N, D]*/,
            int N, float scale) {
  attention<<<(N + Br - 1) / Br, 2 * Br>>>(Q, K, V, O, N, scale);
}
//# skeleton: No kernel was launched
//| void launch(const __half* Q /*[N, D]*/, const __half* K /*[N, D]*/, const __half* V /*[N, D]*/,
//|             __half* O /*[N, D]*/, int N, float scale) {
//| }
//# wrong first-barrier: before it was filled
//~ __syncthreads();  // the tiles are complete ==>
//# wrong second-barrier: filled again while
//~ __syncthreads();  // all have read the tiles ==>
//# wrong no-swizzle: the number of bank conflicts
//~ (column / 8 ^ row % 8) ==> (column / 8)
//# wrong swizzle-in-pairs: the number of bank conflicts
//~ (column / 8 ^ row % 8) ==> (column / 8 ^ row / 2 % 4)
//# wrong not-scaled: The scores are not scaled
//~ scale * x ==> x
//# wrong not-masked: Keys from N on count
//~ x = first_key + j / 2 * 8 + 2 * t + j % 2 < N ? scale * x : -INFINITY; ==> x = scale * x;
//# wrong one-key-too-many: Keys from N on count
//~ j % 2 < N ? ==> j % 2 <= N ?
//# wrong v-as-it-lies: V's 8 x 8 matrices are not transposed
//~ ldmatrix_x4_trans ==> ldmatrix_x4
//# wrong k-transposed: K's 8 x 8 matrices are transposed
//~ ldmatrix_x4(b, &k ==> ldmatrix_x4_trans(b, &k
//# wrong k-as-v: K's four matrices come in V's order
//~ lane % 8 + lane / 16 * 8, d + lane / 8 % 2 * 8 ==> lane % 16, d + lane / 16 * 8
//# wrong v-as-k: V's four matrices come in K's order
//~ lane % 16, d + lane / 16 * 8 ==> lane % 8 + lane / 16 * 8, d + lane / 8 % 2 * 8
//# wrong m-from-0: smaller than the m that a row begins with
//~ m[2] = {-INFINITY, -INFINITY} ==> m[2] = {}
//# wrong no-maximum: too large for exp
//~ top = fmaxf(top, x); ==> top = 0;
//# wrong q-quarters: rows 8 to 15 and columns 8 to 15 have changed places
//~ i % 2 * 8, column = i / 4 * 16 + i / 2 % 2 * 8 ==> i / 2 % 2 * 8, column = i / 4 * 16 + i % 2 * 8
//# wrong own-sum: l is the sum of a lane's own keys
//~ for (int offset = 1; offset <= 2; offset *= 2) l[r] += __shfl_xor_sync(0xffffffffu, l[r], offset); ==>
//# wrong o-old: O is not rescaled
//~ for (int n = 0; n < D / 4; ++n) o[n / 2][2 * r + n % 2] *= alpha; ==>
//# wrong l-old: l is not rescaled
//~ l[r] *= alpha; ==>
//# wrong undivided: O was never divided by l
//~ o[n][2 * r] / l[r], o[n][2 * r + 1] / l[r] ==> o[n][2 * r], o[n][2 * r + 1]
//# wrong alpha-inverted: alpha is upside down
//~ expf(m[r] - top) ==> expf(top - m[r])
//# wrong same-row: Some rows of O were never written
//~ row = first_row + g + r * 8; ==> row = first_row + g;
//# wrong q-unguarded: beyond the last row
//~ row < N ? *two : 0 ==> *two
//# wrong o-unguarded: beyond the last row
//~ n < D / 8 && row < N ==> n < D / 8
//# wrong keys-unguarded: beyond the last key
//~ first + row < N ? *eight : make_uint4(0, 0, 0, 0) ==> *eight
//# wrong not-zeroed: Shared memory is read where nobody has filled it
//~ *place = first ==> if (first + row < N) *place = first
//# wrong grid-rounded-down: The last rows of O were never written
//~ (N + Br - 1) / Br ==> max(1, N / Br)
//# wrong one-warp: K is read too often
//~ Br = 64, Bc = 32 ==> Br = 16, Bc = 32
//# wrong rows-by-lane: Neighbouring lanes should load neighbouring elements
//~ row = i / (D / 8), column = i % (D / 8) * 8 ==> row = i % Bc, column = i / Bc * 8
//# wrong no-tensor-cores: the tensor cores have done 0 FLOPs
//| __global__ void attention(const __half* Q, const __half* K, const __half* V, __half* O, int N, float scale) {
//|   __shared__ alignas(16) __half k[D], v[D];
//|   const int row = blockIdx.x * 64 + threadIdx.x;
//|   float q[D], o[D] = {}, m = -INFINITY, l = 0;
//|   for (int d = 0; d < D; ++d) q[d] = row < N ? scale * __half2float(Q[row * D + d]) : 0;
//|   for (int key = 0; key < N; ++key) {
//|     k[threadIdx.x] = K[key * D + threadIdx.x];
//|     v[threadIdx.x] = V[key * D + threadIdx.x];
//|     __syncthreads();
//|     float s = 0;
//|     for (int d = 0; d < D; ++d) s += q[d] * __half2float(k[d]);
//|     const float m_new = fmaxf(m, s), alpha = expf(m - m_new), p = expf(s - m_new);
//|     m = m_new, l = l * alpha + p;
//|     for (int d = 0; d < D; ++d) o[d] = o[d] * alpha + p * __half2float(v[d]);
//|     __syncthreads();
//|   }
//|   for (int d = 0; d < D && row < N; ++d) O[row * D + d] = __float2half(o[d] / l);
//| }
//|
//| void launch(const __half* Q /*[N, D]*/, const __half* K /*[N, D]*/, const __half* V /*[N, D]*/,
//|             __half* O /*[N, D]*/, int N, float scale) {
//|   attention<<<(N + 63) / 64, 64>>>(Q, K, V, O, N, scale);
//| }
//# also larger-tiles
//~ Br = 64, Bc = 32 ==> Br = 128, Bc = 64
//# also padded-rows
//| // Rows of 72 halves instead of a swizzle, fragments read by hand, cp.async, base 2.
//| __device__ unsigned pair(__half low, __half high) {
//|   return __half_as_ushort(low) | unsigned{__half_as_ushort(high)} << 16;
//| }
//| __global__ void attention(const __half* Q, const __half* K, const __half* V, __half* O, int N, float scale) {
//|   __shared__ alignas(16) __half k[16][D + 8], v[16][D + 8];
//|   const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2, first_row = blockIdx.x * 64 + threadIdx.x / 32 * 16;
//|   const int rows[2] = {first_row + g, first_row + g + 8};
//|   unsigned q[D / 16][4] = {};
//|   for (int d = 0; d < D; d += 8)
//|     for (int r = 0; r < 2; ++r)
//|       if (rows[r] < N) q[d / 16][d / 8 % 2 * 2 + r] = *reinterpret_cast<const unsigned*>(&Q[rows[r] * D + d + t]);
//|   float o[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {};
//|   for (int first_key = 0; first_key < N; first_key += 16) {
//|     __syncthreads();
//|     const int key = threadIdx.x / 8, column = threadIdx.x % 8 * 8, from = min(first_key + key, N - 1) * D + column;
//|     cp_async_16(&k[key][column], &K[from], first_key + key < N ? 16 : 0);
//|     cp_async_16(&v[key][column], &V[from], first_key + key < N ? 16 : 0);
//|     cp_async_commit();
//|     cp_async_wait<0>();
//|     __syncthreads();
//|     float s[2][4] = {};
//|     for (int n = 0; n < 2; ++n)
//|       for (int d = 0; d < D; d += 16) {
//|         const __half* from = &k[n * 8 + g][d + t];
//|         mma_m16n8k16<__half>(s[n], q[d / 16], {pair(from[0], from[1]), pair(from[8], from[9])}, s[n]);
//|       }
//|     for (int i = 0; i < 8; ++i) {
//|       float& x = s[i / 4][i % 4];
//|       x = first_key + i / 4 * 8 + t + i % 2 < N ? x * scale * 1.44269504f : -INFINITY;
//|     }
//|     for (int r = 0; r < 2; ++r) {
//|       float top = fmaxf(fmaxf(s[0][2 * r], s[0][2 * r + 1]), fmaxf(s[1][2 * r], s[1][2 * r + 1]));
//|       top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
//|       top = fmaxf(m[r], fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1)));
//|       const float alpha = exp2f(m[r] - top);
//|       m[r] = top, l[r] *= alpha;
//|       for (auto& column : o) column[2 * r] *= alpha, column[2 * r + 1] *= alpha;
//|       for (auto& keys : s)
//|         for (int i = 2 * r; i < 2 * r + 2; ++i) l[r] += keys[i] = exp2f(keys[i] - top);
//|     }
//|     unsigned p[4];
//|     for (int i = 0; i < 4; ++i)
//|       p[i] = pair(__float2half(s[i / 2][i % 2 * 2]), __float2half(s[i / 2][i % 2 * 2 + 1]));
//|     for (int n = 0; n < D / 8; ++n) {
//|       const int d = n * 8 + g;
//|       mma_m16n8k16<__half>(o[n], p, {pair(v[t][d], v[t + 1][d]), pair(v[t + 8][d], v[t + 9][d])}, o[n]);
//|     }
//|   }
//|   for (int r = 0; r < 2; ++r) {
//|     float all = l[r] + __shfl_xor_sync(0xffffffffu, l[r], 1);
//|     all += __shfl_xor_sync(0xffffffffu, all, 2);
//|     for (int n = 0; n < D / 8 && rows[r] < N; ++n)
//|       for (int c = 0; c < 2; ++c) O[rows[r] * D + n * 8 + t + c] = __float2half(o[n][2 * r + c] / all);
//|   }
//| }
//|
//| void launch(const __half* Q /*[N, D]*/, const __half* K /*[N, D]*/, const __half* V /*[N, D]*/,
//|             __half* O /*[N, D]*/, int N, float scale) {
//|   attention<<<(N + 63) / 64, 128>>>(Q, K, V, O, N, scale);
//| }
//# end

//# judge

void judge(Trial& t) {
  for (const int N : {128, 100, 1, 40}) {
    const bool whole = N == 128, large = N == 40;
    const std::string with = "N = " + std::to_string(N) + ": ";
    const float scale = 0.25f;
    Floats rounded[3];
    std::vector<__half> halves[3];
    for (int i = 0; i < 3; ++i)
      for (float x : t.normal(std::string(1, "QKV"[i]), N * D)) {
        const int n = halves[i].size(), row = n / D, column = n % D;
        if (large && i == 0) x = row == 1 || column == 0 ? 0 : 100 * x;
        if (large && i == 0 && n == D) x = -60000;  // row 1: all scores are the same, below -10^5
        if (large && i == 1 && column == 0) x = 20;
        halves[i].push_back(__float2half(x));
        rounded[i].push_back(__half2float(halves[i].back()));
      }
    const auto& [Q, K, V] = rounded;
    const auto q = t.upload("Q", halves[0]), k = t.upload("K", halves[1]), v = t.upload("V", halves[2]);
    const auto o = t.machine.alloc<__half>("O", N * D);
    launch(q.data(), k.data(), v.data(), o.data(), N, scale);
    t.ledger();  // (something was launched)
    const auto edge = [&](const std::string& access, const std::string& name, const std::string& of) {
      const std::string beyond = whole ? with + "an index goes beyond the end of " + name + "."
                                       : with + "your code goes beyond the last " + of + ".";
      return Sign{"out of bounds: " + access + " of " + name + "[", beyond};
    };
    t.findings(
        {edge("read", "K", "key"),
         edge("read", "V", "key"),
         edge("read", "Q", "row"),
         edge("write", "O", "row"),
         {"out of bounds", ""},
         {"while cp.async", ""},
         {"uninitialised: read of shared", whole ? "Shared memory is read before it was filled: let all threads "
                                                   "wait in between."
                                                 : with + "Shared memory is read where nobody has filled it: the "
                                                          "last tile is not full, and the rest wants zeros."},
         {"write after write of O", "Two lanes claim the same element of O."},
         {"race: write after read of shared",
          "Shared memory is filled again while another thread still reads it: let all threads wait before "
          "that."}});

    std::vector<bool> written;
    Floats O;
    for (const __half x : t.download(o)) {
      O.push_back(__half2float(x));
      if (O.size() % D == 0) written.push_back(__half_as_ushort(x) != 0xffff);
    }
    const auto none = std::find(written.begin(), written.end(), false);
    t.expect(none == written.end() || std::find(none, written.end(), true) != written.end(),
             with + "The last rows of O were never written: is the number of blocks rounded up?");
    t.expect(none == written.end(),
             with + "Some rows of O were never written: a lane has numbers of two rows, 8 apart.");
    t.expect(!large || !std::isnan(O[D]) || std::isnan(O[0]),
             with +
                 "Row 1's scores are all below -10^5, and all equal: they are smaller than the m that a row begins "
                 "with. -INFINITY is below each score.");
    t.expect(!large || std::none_of(O.begin(), O.end(), [](float x) { return std::isnan(x); }),
             with + "Scores of some hundred are too large for exp: subtract the largest of all scores so far.");
    t.expect(std::any_of(O.begin(), O.end(), [](float x) { return !std::isnan(x); }),
             with +
                 "O is NaN. Before the first tile m is -infinity: exp(m - m_new) is 0 then, but exp(m_new - m) is "
                 "infinite, which means that alpha is upside down, or that -infinity was subtracted from itself.");

    const Exact exact = exact_attention(Q, K, V, D, scale);
    std::vector<Mistake> mistakes = slips(Q, K, V, D, scale);
    // Keys beyond the last one, with zeros in K and V.
    for (const int more : {1, 4, 12, 28}) {
      Doubles values = exact.O;
      for (int i = 0; i < N * D; ++i) values[i] /= 1 + more * std::exp(-exact.LSE[i / D]);
      mistakes.push_back({values, with + "Keys from N on count: their scores are 0, and exp(0 - m) is not."});
    }
    // As if a matrix's element (r, c) were another one's, in groups of rows and columns.
    const auto moved = [&](const Floats& from, auto element) {
      Floats to = from;
      for (int i = 0; i < N * D; ++i) {
        const auto [r, c] = element(i / D, i % D);
        if (r < N) to[i] = from[r * D + c];
      }
      return to;
    };
    const auto turned = [](int r, int c) { return std::pair(r / 8 * 8 + c % 8, c / 8 * 8 + r % 8); };
    const auto quarters = [](int r, int c) {
      return r / 8 % 2 == c / 8 % 2 ? std::pair(r, c) : std::pair(r ^ 8, c ^ 8);
    };
    mistakes.push_back({exact_attention(Q, K, moved(V, turned), D, scale).O,
                        "V's 8 x 8 matrices are not transposed: the right operand wants two keys of a column in a "
                        "register, and V has two columns of a key there (ldmatrix_x4_trans)."});
    mistakes.push_back(
        {exact_attention(Q, moved(K, turned), V, D, scale).O,
         "K's 8 x 8 matrices are transposed: K^T is the right operand, and two columns of a key lie side "
         "by side in K as it is."});
    mistakes.push_back(
        {exact_attention(Q, moved(K, quarters), V, D, scale).O,
         "K's four matrices come in V's order: the first two of K are the same 8 keys, 8 columns apart."});
    mistakes.push_back(
        {exact_attention(Q, K, moved(V, quarters), D, scale).O,
         "V's four matrices come in K's order: the first two of V are the same 8 columns, 8 keys apart."});
    mistakes.push_back({exact_attention(moved(Q, quarters), K, V, D, scale).O,
                        "In Q's registers rows 8 to 15 and columns 8 to 15 have changed places: a[1] is 8 rows down, "
                        "a[2] is 8 columns further on."});
    Doubles own = exact.O;
    for (int i = 0; i < N; ++i) {
      double l[4] = {};
      for (int j = 0; j < N; ++j) {
        double s = 0;
        for (int d = 0; d < D; ++d) s += double(scale) * Q[i * D + d] * K[j * D + d];
        l[j % 8 / 2] += std::exp(s - exact.LSE[i]);
      }
      for (int d = 0; d < D; ++d) own[i * D + d] /= l[d % 8 / 2];
    }
    mistakes.push_back({own, "l is the sum of a lane's own keys: the row's others are in three more lanes."});
    t.answer("O", O, exact.O, D, mistakes, 2e-3);

    const std::uint64_t row = 2 * D, flops = 4ull * N * N * D;
    t.demand(t.ledger().tensor_flops >= flops, with + "the tensor cores have done " +
                                                   std::to_string(t.ledger().tensor_flops) + " FLOPs of the " +
                                                   std::to_string(flops) + " that both products take.");
    for (const std::string name : {"K", "V"}) {
      const ArrayTraffic traffic = t.traffic(name);
      t.count(with + "the bytes read of " + name, traffic.read_bytes, (N + 63) / 64 * N * row,
              name + " is read too often: once for 64 rows was promised.");
      t.count(with + "the number of sectors that the loads of " + name + " touch", traffic.read_sectors,
              traffic.read_bytes / 32, "Neighbouring lanes should load neighbouring elements.");
    }
    t.count(with + "the bytes read of Q", t.traffic("Q").read_bytes, N * row, "Each element is needed once.");
    t.count(with + "the traffic of O in bytes", t.traffic("O").written_bytes + t.traffic("O").read_bytes, N * row,
            "O can stay in registers until it is done.");
    t.count(with + "the number of bank conflicts", t.ledger().bank_conflicts(), 0,
            "Eight rows of a matrix begin in the same banks, unless they are swizzled or padded.");
    if (N == 100) t.predicted(t.ledger().tensor_flops / (2 * 16 * 8 * 16));
  }
}
