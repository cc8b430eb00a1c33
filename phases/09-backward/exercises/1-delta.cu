// 09.1 delta: the gradient goes back through the softmax: what does a row's scores take from each other?
// An exercise of phase 09; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 09.1     Prove it: ./flash exercise --check 09.1

//# question
// The forward pass of a row is P = softmax(S), O = P V. Given is dO, and with it dP_j = dO . v_j. Softmax turns dP into
//     dS_j = P_j * (dP_j - delta)      delta = sum over k of P_k dP_k
// which is also dO . O. With S = scale * q . k_j, the query's gradient is dq = scale * sum over j of dS_j k_j.
// Compute delta and dS. A thread has a row; P comes from LSE, as in the real kernel.

//# predict 0 What is the sum of a row of dS?

//# hint
// The weights of a row add up to 1: more for one key is less for all others. That is what delta says.
//# hint
// delta is the mean of dP, weighted by P. Or the product of two rows that are at hand: dO and O.
//# hint
// First delta += dO[d] * O[d] over all d. Then dS = P * (dP[j] - delta), and dq[d] += scale * dS * K[j * D + d].

//# because
// sum P_j dP_j - delta * sum P_j = delta - delta. So adding the same row to all keys does not change dq: see the page's
// exercise.
//# next
// docs/backward.md; phases/09-backward/notebook.cpp shows why delta must not be made of a rounded O.

//# code

constexpr int D = 8;

__global__ void query_gradient(const float* Q /*[N, D]*/, const float* K /*[N, D]*/, const float* V /*[N, D]*/,
                               const float* O /*[N, D]*/, const float* LSE /*[N]*/, const float* dO /*[N, D]*/,
                               float* dQ /*[N, D]*/, float* sum_dS /*[N]*/, int N, float scale) {
  const int i = threadIdx.x;
  float dq[D] = {}, sum = 0, delta = 0;
  //# hole What is delta?
  for (int d = 0; d < D; ++d) delta = fmaf(dO[i * D + d], O[i * D + d], delta);
  //# skeleton: delta is 0
  //|
  //# also from-dp
  //| for (int j = 0; j < N; ++j) {
  //|   float s = 0, dP = 0;
  //|   for (int d = 0; d < D; ++d) s = fmaf(Q[i * D + d], K[j * D + d], s), dP = fmaf(dO[i * D + d], V[j * D + d], dP);
  //|   delta = fmaf(expf(scale * s - LSE[i]), dP, delta);
  //| }
  //# wrong plain-sum: the sum of dO alone
  //| for (int d = 0; d < D; ++d) delta += dO[i * D + d];
  //# wrong mean: divided by D
  //| for (int d = 0; d < D; ++d) delta = fmaf(dO[i * D + d], O[i * D + d] / D, delta);
  //# wrong negative: delta has the wrong sign
  //| for (int d = 0; d < D; ++d) delta = fmaf(-dO[i * D + d], O[i * D + d], delta);
  //# wrong unweighted-mean: delta is the plain mean of dP
  //| for (int j = 0; j < N; ++j)
  //|   for (int d = 0; d < D; ++d) delta = fmaf(dO[i * D + d], V[j * D + d] / N, delta);
  //# end
  for (int j = 0; j < N; ++j) {
    float s = 0, dP = 0;
    for (int d = 0; d < D; ++d) s = fmaf(Q[i * D + d], K[j * D + d], s), dP = fmaf(dO[i * D + d], V[j * D + d], dP);
    const float P = expf(scale * s - LSE[i]);
    //# hole What is dS?
    const float dS = P * (dP - delta);
    //# skeleton:
    //| const float dS = P * (dP - delta);
    //# wrong p-forgotten: P is missing
    //| const float dS = dP - delta;
    //# wrong sign: the other way round
    //| const float dS = P * (delta - dP);
    //# wrong scale-twice: scale is in it twice
    //| const float dS = scale * P * (dP - delta);
    //# wrong outside-the-bracket: delta is outside the bracket
    //| const float dS = P * dP - delta;
    //# wrong plus: delta has the wrong sign
    //| const float dS = P * (dP + delta);
    //# wrong one-minus: a score of its own
    //| const float dS = P * (1 - P) * dP;
    //# end
    sum += dS;
    for (int d = 0; d < D; ++d) dq[d] = fmaf(scale * dS, K[j * D + d], dq[d]);
  }
  for (int d = 0; d < D; ++d) dQ[i * D + d] = dq[d];
  sum_dS[i] = sum;
}

//# judge

void judge(Trial& t) {
  constexpr int N = 24;
  const double scale = 1 / std::sqrt(D);
  const Floats Q = t.normal("Q", N * D), K = t.normal("K", N * D), V = t.normal("V", N * D), dO = t.normal("dO", N * D);
  const Exact exact = exact_attention(Q, K, V, D, scale);
  const Floats O(exact.O.begin(), exact.O.end()), LSE(exact.LSE.begin(), exact.LSE.end());
  const auto q = t.upload("Q", Q), k = t.upload("K", K), v = t.upload("V", V), o = t.upload("O", O);
  const auto lse = t.upload("LSE", LSE), d_o = t.upload("dO", dO);
  const auto dq = t.alloc("dQ", N * D), sum = t.alloc("sum_dS", N);
  query_gradient<<<1, N>>>(q.data(), k.data(), v.data(), o.data(), lse.data(), d_o.data(), dq.data(), sum.data(), N,
                           float(scale));
  t.findings();
  // dQ with dS = f(P, dP, delta).
  const auto gradient = [&](auto f, auto delta_of) {
    Doubles dQ(N * D);
    for (int i = 0; i < N; ++i) {
      const double delta = delta_of(i);
      for (int j = 0; j < N; ++j) {
        double s = 0, dP = 0;
        for (int d = 0; d < D; ++d)
          s += scale * Q[i * D + d] * K[j * D + d], dP += double(dO[i * D + d]) * V[j * D + d];
        const double dS = f(std::exp(s - exact.LSE[i]), dP, delta);
        for (int d = 0; d < D; ++d) dQ[i * D + d] += scale * dS * K[j * D + d];
      }
    }
    return dQ;
  };
  const auto right = [](double P, double dP, double delta) { return P * (dP - delta); };
  const auto delta = [&](int i) {
    double x = 0;
    for (int d = 0; d < D; ++d) x += dO[i * D + d] * exact.O[i * D + d];
    return x;
  };
  const auto none = [](int) { return 0.0; };
  const auto plain = [&](int i) { return std::accumulate(&dO[i * D], &dO[i * D] + D, 0.0); };
  const auto mean = [&](int i) { return delta(i) / D; };
  const auto plain_mean = [&](int i) {
    double x = 0;
    for (int e = 0; e < N * D; ++e) x += double(dO[i * D + e % D]) * V[e] / N;
    return x;
  };
  const Doubles dQ = gradient(right, delta);
  t.answer("dQ", t.download(dq), dQ, D,
           {{gradient(right, none),
             "delta is 0 here: softmax's weights add up to 1, so what one key gains the others lose."},
            {gradient(right, plain), "delta is the sum of dO alone: each term is dO times O."},
            {gradient(right, mean), "delta is divided by D: it is a sum over the columns, no mean."},
            {gradient([](double P, double dP, double delta) { return P * (dP + delta); }, delta),
             "delta has the wrong sign: it is subtracted, so that a row of dS adds up to 0."},
            {gradient(right, plain_mean), "delta is the plain mean of dP: each key counts for its weight P in it."},
            {gradient([](double P, double dP, double) { return P * (1 - P) * dP; }, delta),
             "That is what P_j takes from a score of its own; the other keys' scores move P_j, too, and delta says how "
             "much."},
            {gradient([](double, double dP, double delta) { return dP - delta; }, delta),
             "P is missing: a key without weight has no gradient."},
            {times(dQ, -1), "The difference is the other way round: dS grows with dP."},
            {times(dQ, scale), "scale is in it twice: dq multiplies by it below."},
            {gradient([](double P, double dP, double delta) { return P * dP - delta; }, delta),
             "delta is outside the bracket: P multiplies it, too."}},
           2e-5);
  double largest = 0;
  for (const float x : t.download(sum)) largest = std::max(largest, std::abs(double(x)));
  t.predicted(std::llround(largest));
}
