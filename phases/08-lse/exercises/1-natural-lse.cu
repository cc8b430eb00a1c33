// 08.1 natural-lse: the kernel counts in base 2, the world in base e: what is written as LSE?
// An exercise of phase 08; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 08.1     Prove it: ./flash exercise --check 08.1

//# question
// The kernel uses exp2f, which a GPU has in hardware: its scores s2 are the true ones times log2(e). A row ends with
//     m = max s2_j      l = sum 2^(s2_j - m)
// LSE is the natural logarithm of the sum of exp(s_j) over the true scores s_j, in fp32. Write it, from m and l.
// A row that has seen no key has m = -infinity and l = 0; its LSE is -infinity. You may want kLn2, and logf, log2f.

//# predict 8 D = 8: how many times more bytes does the kernel write for O than for LSE?

//# hint
// 2^(s2_j) = exp(s_j). So the sum of exp(s_j) is the sum of 2^(s2_j), which is 2^m * l.
//# hint
// log2 of that is m + log2(l). How does one get from log2(x) to ln(x)?
//# hint
// LSE = kLn2 * m + logf(l). And -infinity + -infinity is -infinity: the empty row needs no if.

//# because
// One number a row against D. That is all that the backward pass needs in order to have P again.
//# next
// docs/conventions.md lists whose LSE has which base: serving systems have broken on it. Exercise 08.2 needs it.

//# code

constexpr int D = 8;
constexpr float kLn2 = 0.693147181f;

// A thread per row; row i sees keys 0 to i - 1, so row 0 sees none.
__global__ void attention(const float* Q /*[N, D]*/, const float* K /*[N, D]*/, const float* V /*[N, D]*/,
                          float* O /*[N, D]*/, float* LSE /*[N]*/, float scale_log2 /*scale * log2(e)*/) {
  const int i = threadIdx.x;
  float m = -INFINITY, l = 0, o[D] = {};
  for (int j = 0; j < i; ++j) {
    float s2 = 0;
    for (int d = 0; d < D; ++d) s2 = fmaf(Q[i * D + d], K[j * D + d], s2);
    s2 *= scale_log2;
    const float m_new = fmaxf(m, s2), alpha = exp2f(m - m_new), p = exp2f(s2 - m_new);
    l = fmaf(l, alpha, p);
    for (int d = 0; d < D; ++d) o[d] = fmaf(o[d], alpha, p * V[j * D + d]);
    m = m_new;
  }
  for (int d = 0; d < D; ++d) O[i * D + d] = l == 0 ? 0.0f : o[d] / l;
  //# hole Write LSE[i], the natural one.
  LSE[i] = kLn2 * m + logf(l);
  //# skeleton: That is in base 2
  //| LSE[i] = m + log2f(l);
  //# wrong mixed-bases: m is still in base 2
  //| LSE[i] = m + logf(l);
  //# wrong wrong-way: the wrong way
  //| LSE[i] = (m + log2f(l)) / kLn2;
  //# wrong l-forgotten: the logarithm of l is missing
  //| LSE[i] = kLn2 * m;
  //# wrong empty-row: The row that has seen no key
  //| LSE[i] = l == 0 ? 0.0f : kLn2 * m + logf(l);
  //# wrong log2-of-l: log l is still in base 2
  //| LSE[i] = kLn2 * m + log2f(l);
  //# wrong ln2-of-both-twice: log l is natural already
  //| LSE[i] = kLn2 * (m + logf(l));
  //# wrong l-alone: That is log l alone
  //| LSE[i] = logf(l);
  //# wrong overflow: 2^m is infinite
  //| LSE[i] = logf(exp2f(m) * l);
  //# also in-base-2-first
  //| LSE[i] = kLn2 * (m + log2f(l));
  //# also divided
  //| LSE[i] = (m + log2f(l)) / 1.44269504f;
  //# also fma
  //| LSE[i] = l == 0 ? -INFINITY : fmaf(m, kLn2, logf(l));
  //# end
}

//# judge

void judge(Trial& t) {
  constexpr int N = 40;
  const double scale = 1 / std::sqrt(D), ln2 = std::log(2.0);
  Floats Q = t.normal("Q", N * D);
  for (int d = 0; d < D; ++d) Q[(N - 1) * D + d] *= 60;  // the last row: exp of its scores is infinite in fp32
  const Floats K = t.normal("K", N * D), V = t.normal("V", N * D);
  const auto q = t.upload("Q", Q), k = t.upload("K", K), v = t.upload("V", V);
  const auto o = t.alloc("O", N * D), lse = t.alloc("LSE", N);
  attention<<<1, N>>>(q.data(), k.data(), v.data(), o.data(), lse.data(), float(scale / ln2));
  t.findings();
  const Exact exact = exact_attention(Q, K, V, D, scale, [](int i) { return i; });
  t.answer("O", t.download(o), exact.O, D);
  const Floats got = t.download(lse);
  Doubles maximum(N, -INFINITY), mixed(N), l_in_2(N), l_twice(N), l_alone(N);
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j < i; ++j) {
      double s = 0;
      for (int d = 0; d < D; ++d) s += scale * Q[i * D + d] * K[j * D + d];
      maximum[i] = std::max(maximum[i], s);
    }
    l_alone[i] = i == 0 ? -INFINITY : exact.LSE[i] - maximum[i];
    mixed[i] = maximum[i] / ln2 + l_alone[i];
    l_in_2[i] = maximum[i] + l_alone[i] / ln2;
    l_twice[i] = maximum[i] + l_alone[i] * ln2;
  }
  t.expect(got[0] == -INFINITY,
           "The row that has seen no key must have LSE = -infinity: whoever merges it with others gives "
           "it the weight exp(-infinity) = 0.");
  t.expect(!std::isinf(got[N - 1]),
           "2^m is infinite where scores are large, as in the last row: m * ln 2 needs no exponential.");
  const Doubles& e = exact.LSE;
  t.answer("LSE", got, e, 1,
           {{times(e, 1 / ln2), "That is in base 2: log2 of the sum. The natural logarithm is ln 2 times as large."},
            {times(e, 1 / ln2 / ln2), "The base was changed the wrong way: ln x = ln 2 * log2 x."},
            {mixed, "m is still in base 2, and log l is natural: bring both to one base before they are added."},
            {l_in_2, "log l is still in base 2, and ln 2 * m is natural: ln 2 belongs to both, or take logf(l)."},
            {l_twice, "log l is natural already: ln 2 belongs to m alone."},
            {l_alone, "That is log l alone: m was taken out of the sum, and must come back to it."},
            {maximum, "That is the maximum alone: the logarithm of l is missing."}},
           1e-4);
  t.predicted(t.traffic("O").written_bytes / t.traffic("LSE").written_bytes);
}
