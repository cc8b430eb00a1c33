// 07.1 mask-bound: a causal row sees the past: up to which key, when queries and keys differ in number?
// An exercise of phase 07; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 07.1     Prove it: ./flash exercise --check 07.1

//# question
// The mask is bottom-right: the last query sees the last key. So query i sees key j if j <= i + Sk - Sq.
// Write how many keys row i sees: it sees the keys 0 to visible - 1. The kernel calls it for Sq = 5, Sk = 9, and for
// Sq = 9, Sk = 5, where the first rows see none; those have O = 0.

//# predict 4 Sq = 9 and Sk = 5: how many rows see no key?

//# hint
// Write down for Sq = Sk = 3 which keys rows 0, 1 and 2 see. How many are they?
//# hint
// j <= x means x + 1 keys, counted from 0. And there are Sk of them at most.
//# hint
// min(i + 1 + Sk - Sq, Sk). Negative numbers mean none; max(0, ...) says so.

//# because
// Row i sees i + 1 - 4 keys: none for i < 4. With top-left, j <= i, each row would see at least one.
//# next
// phases/07-causal/notebook.cpp draws both masks. flash-attn has bottom-right since 2.1, PyTorch's is_causal top-left.

//# code

constexpr int D = 8;

__device__ int visible(int i, int Sq, int Sk) {
  //# hole How many keys does row i see?
  return max(0, min(i + 1 + Sk - Sq, Sk));
  //# skeleton: All keys are seen
  //| return Sk;
  //# also negative
  //| const int n = i + 1 + Sk - Sq;
  //| return n > Sk ? Sk : n;
  //# wrong off-by-one: Each row misses its last key
  //| return max(0, min(i + Sk - Sq, Sk));
  //# wrong top-left: That is top-left
  //| return min(i + 1, Sk);
  //# wrong shift-reversed: Sq and Sk have changed places
  //| return max(0, min(i + 1 + Sq - Sk, Sk));
  //# wrong one-too-many: Each row sees one key of the future
  //| return max(0, min(i + 2 + Sk - Sq, Sk));
  //# wrong at-least-one: A row that sees no key
  //| return max(1, min(i + 1 + Sk - Sq, Sk));
  //# also unclamped
  //| return i + 1 + Sk - Sq;
  //# end
}

// A thread per row.
__global__ void attention(const float* Q /*[Sq, D]*/, const float* K /*[Sk, D]*/, const float* V /*[Sk, D]*/,
                          float* O /*[Sq, D]*/, int Sq, int Sk, float scale) {
  const int i = threadIdx.x;
  float m = -INFINITY, l = 0, o[D] = {};
  for (int j = 0; j < visible(i, Sq, Sk); ++j) {
    float s = 0;
    for (int d = 0; d < D; ++d) s = fmaf(Q[i * D + d], K[j * D + d], s);
    s *= scale;
    const float m_new = fmaxf(m, s), alpha = expf(m - m_new), p = expf(s - m_new);
    l = fmaf(l, alpha, p);
    for (int d = 0; d < D; ++d) o[d] = fmaf(o[d], alpha, p * V[j * D + d]);
    m = m_new;
  }
  for (int d = 0; d < D; ++d) O[i * D + d] = l == 0 ? 0.0f : o[d] / l;
}

//# judge

void judge(Trial& t) {
  const double scale = 1 / std::sqrt(D);
  int blind = 0;
  for (const auto& [Sq, Sk] : {std::pair{5, 9}, std::pair{9, 5}}) {
    const Floats Q = t.normal("Q", Sq * D), K = t.normal("K", Sk * D), V = t.normal("V", Sk * D);
    const auto q = t.upload("Q", Q), k = t.upload("K", K), v = t.upload("V", V);
    const auto o = t.alloc("O", Sq * D);
    attention<<<1, Sq>>>(q.data(), k.data(), v.data(), o.data(), Sq, Sk, float(scale));
    t.findings({{"out of bounds", "A row sees keys that are not there: " + std::to_string(Sk) + " is the most."}});
    // Row i sees i + shift + 1 keys.
    const auto masked = [&](int shift) {
      return exact_attention(Q, K, V, D, scale, [=](int i) { return i + shift + 1; });
    };
    const Exact exact = masked(Sk - Sq);
    t.answer("O", t.download(o), exact.O, D,
             {{exact_attention(Q, K, V, D, scale, [=](int i) { return std::max(1, i + Sk - Sq + 1); }).O,
               "A row that sees no key is given one: where i + Sk - Sq is negative, there is none."},
              {masked(Sk).O, "All keys are seen, those of the future, too."},
              {masked(Sk - Sq - 1).O, "Each row misses its last key: j <= x is x + 1 keys."},
              {masked(Sk - Sq + 1).O, "Each row sees one key of the future: j <= x is x + 1 keys, no more."},
              {masked(0).O, "That is top-left, j <= i: right only where Sq = Sk."},
              {masked(Sq - Sk).O, "Sq and Sk have changed places: the last query sees the last key."}});
    blind = std::count(exact.LSE.begin(), exact.LSE.end(), -INFINITY);
  }
  t.predicted(blind);
}
