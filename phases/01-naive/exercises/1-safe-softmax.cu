// 01.1 safe-softmax: softmax as the textbook writes it overflows: which number helps?
// An exercise of phase 01; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 01.1     Prove it: ./flash exercise --check 01.1

//# question
// P_j = exp(S_j) / sum over k of exp(S_k), for each row of S. Four rows come: scores around 0, around 100 and around
// -200, and scores from -100 to 100 in no order. The formula is right, and the kernel below computes it; fp32
// disagrees. Make it right for all four, with one call of expf for each score.
// This is plain C++; one thread of the simulator runs it for each row.

//# predict 89 What is the smallest whole number x for which expf(x) is infinite in fp32?

//# hint
// exp(S_j - c) / sum exp(S_k - c) is the same number for any c. Which c makes no term overflow?
//# hint
// And which c makes sure that not all terms become 0? What is the largest term then?
//# hint
// c is the row's maximum m: the largest term is exp(0) = 1. Let m begin at -INFINITY, not at 0.

//# because
// fp32's largest number is about 3.4e38, and its logarithm is 88.72. fp16 ends at 65504: there it would be 12.
//# next
// phases/01-naive/notebook.cpp. The maximum costs one more pass over the row; exercise 02.1 does without that pass.

//# code

__global__ void softmax(const float* S /*[rows, n]*/, float* P /*[rows, n]*/, int n) {
  const float* s = S + blockIdx.x * n;  // my row
  float* p = P + blockIdx.x * n;
  //# hole Compute p[j], whatever size the scores have.
  float m = -INFINITY, sum = 0;
  for (int j = 0; j < n; ++j) m = fmaxf(m, s[j]);
  for (int j = 0; j < n; ++j) sum += p[j] = expf(s[j] - m);
  for (int j = 0; j < n; ++j) p[j] /= sum;
  //# skeleton: The row around 100 overflows
  //| float sum = 0;
  //| for (int j = 0; j < n; ++j) sum += p[j] = expf(s[j]);
  //| for (int j = 0; j < n; ++j) p[j] /= sum;
  //# wrong maximum-from-0: In the row around -200 all terms are 0
  //| float m = 0, sum = 0;
  //| for (int j = 0; j < n; ++j) m = fmaxf(m, s[j]);
  //| for (int j = 0; j < n; ++j) sum += p[j] = expf(s[j] - m);
  //| for (int j = 0; j < n; ++j) p[j] /= sum;
  //# wrong not-divided: its sum is not 1
  //| float m = -INFINITY;
  //| for (int j = 0; j < n; ++j) m = fmaxf(m, s[j]);
  //| for (int j = 0; j < n; ++j) p[j] = expf(s[j] - m);
  //# wrong sum-without-maximum: The row around 100 overflows
  //| float m = -INFINITY, sum = 0;
  //| for (int j = 0; j < n; ++j) m = fmaxf(m, s[j]), sum += expf(s[j]);
  //| for (int j = 0; j < n; ++j) p[j] = expf(s[j] - m) / sum;
  //# wrong minimum: what you subtract leaves terms that are too large
  //| float m = INFINITY, sum = 0;
  //| for (int j = 0; j < n; ++j) m = fminf(m, s[j]);
  //| for (int j = 0; j < n; ++j) sum += p[j] = expf(s[j] - m);
  //| for (int j = 0; j < n; ++j) p[j] /= sum;
  //# wrong mean: what you subtract leaves terms that are too large
  //| float m = 0, sum = 0;
  //| for (int j = 0; j < n; ++j) m += s[j] / n;
  //| for (int j = 0; j < n; ++j) sum += p[j] = expf(s[j] - m);
  //| for (int j = 0; j < n; ++j) p[j] /= sum;
  //# wrong first-score: what you subtract leaves terms that are too large
  //| float sum = 0;
  //| const float m = s[0];
  //| for (int j = 0; j < n; ++j) sum += p[j] = expf(s[j] - m);
  //| for (int j = 0; j < n; ++j) p[j] /= sum;
  //# wrong last-score: what you subtract leaves terms that are too large
  //| float sum = 0;
  //| const float m = s[n - 1];
  //| for (int j = 0; j < n; ++j) sum += p[j] = expf(s[j] - m);
  //| for (int j = 0; j < n; ++j) p[j] /= sum;
  //# wrong largest-size: In the row around -200 all terms are 0
  //| float m = 0, sum = 0;
  //| for (int j = 0; j < n; ++j) m = fmaxf(m, fabsf(s[j]));
  //| for (int j = 0; j < n; ++j) sum += p[j] = expf(s[j] - m);
  //| for (int j = 0; j < n; ++j) p[j] /= sum;
  //# wrong clamped: The row around 100 overflows
  //| float sum = 0;
  //| for (int j = 0; j < n; ++j) sum += p[j] = expf(fminf(s[j], 88));
  //| for (int j = 0; j < n; ++j) p[j] /= sum;
  //# wrong epsilon: In the row around -200 all terms are 0
  //| float sum = 0;
  //| for (int j = 0; j < n; ++j) sum += p[j] = expf(s[j] - 100);
  //| for (int j = 0; j < n; ++j) p[j] /= sum + 1e-9f;
  //# wrong in-fp64: Keep exp(s[j] - m) in p
  //| double sum = 0;
  //| for (int j = 0; j < n; ++j) sum += exp(double(s[j]));
  //| for (int j = 0; j < n; ++j) p[j] = float(exp(double(s[j])) / sum);
  //# wrong log-sum: Keep exp(s[j] - m) in p
  //| float m = -INFINITY, sum = 0;
  //| for (int j = 0; j < n; ++j) m = fmaxf(m, s[j]);
  //| for (int j = 0; j < n; ++j) sum += expf(s[j] - m);
  //| for (int j = 0; j < n; ++j) p[j] = expf(s[j] - m - logf(sum));
  //# wrong online: Keep
  //| float m = -INFINITY, sum = 0;
  //| for (int j = 0; j < n; ++j) {
  //|   const float larger = fmaxf(m, s[j]);
  //|   sum = sum * expf(m - larger) + expf(s[j] - larger);
  //|   m = larger;
  //| }
  //| for (int j = 0; j < n; ++j) p[j] = expf(s[j] - m) / sum;
  //# wrong divided-by-a-part: P is wrong in every row
  //| float m = -INFINITY, sum = 0;
  //| for (int j = 0; j < n; ++j) m = fmaxf(m, s[j]);
  //| for (int j = 0; j < n; ++j) p[j] = expf(s[j] - m);
  //| for (int j = 0; j < n; ++j) p[j] /= sum += p[j];
  //# also sum-from-p
  //| float m = s[0], sum = 0;
  //| for (int j = 1; j < n; ++j)
  //|   if (s[j] > m) m = s[j];
  //| for (int j = 0; j < n; ++j) p[j] = expf(s[j] - m);
  //| for (int j = 0; j < n; ++j) sum += p[j];
  //| for (int j = 0; j < n; ++j) p[j] *= 1 / sum;
  //# wrong exp-twice: Keep exp(s[j] - m) in p
  //| float m = -INFINITY, sum = 0;
  //| for (int j = 0; j < n; ++j) m = fmaxf(m, s[j]);
  //| for (int j = 0; j < n; ++j) sum += expf(s[j] - m);
  //| for (int j = 0; j < n; ++j) p[j] = expf(s[j] - m) / sum;
  //# end
}

//# judge

void judge(Trial& t) {
  constexpr int kRows = 4, n = 40;
  constexpr float kCentre[kRows] = {0, 100, -200, 0};
  Floats S = t.normal("S", kRows * n);
  for (int i = 0; i < kRows * n; ++i) S[i] += kCentre[i / n];
  for (int j = 0; j < n; ++j) S[3 * n + j] = float((7 * j + 12) % n * 200) / (n - 1) - 100;  // ends with neither
  const auto s = t.upload("S", S);
  const auto p = t.alloc("P", kRows * n);
  softmax<<<kRows, 1>>>(s.data(), p.data(), n);
  t.findings();
  const Floats P = t.download(p);
  Doubles exact(kRows * n), weights(kRows * n);
  for (int r = 0; r < kRows; ++r) {
    const double m = *std::max_element(&S[r * n], &S[r * n] + n);
    double sum = 0;
    for (int j = 0; j < n; ++j) sum += weights[r * n + j] = std::exp(S[r * n + j] - m);
    for (int j = 0; j < n; ++j) exact[r * n + j] = weights[r * n + j] / sum;
  }
  const auto finite = [&](int row) {
    return std::all_of(&P[row * n], &P[row * n] + n, [](float x) { return std::isfinite(x) && x != 0; });
  };
  t.expect(!finite(0) || finite(1),
           "The row around 100 overflows: exp of its scores is infinite, or their sum. Subtract a number that makes no "
           "term large.");
  t.expect(!finite(0) || finite(2),
           "In the row around -200 all terms are 0, and so is their sum. Is what you subtract the row's maximum?");
  const Doubles first_exact(exact.begin(), exact.begin() + 3 * n),
      first_weights(weights.begin(), weights.begin() + 3 * n);
  const Floats first(P.begin(), P.begin() + 3 * n);
  t.answer("P", first, first_exact, n,
           {{first_weights, "P has the right proportions, but its sum is not 1: divide by it."}});
  t.expect(std::all_of(&P[3 * n], &P[4 * n], [](float x) { return std::isfinite(x); }),
           "The row from -100 to 100 overflows: what you subtract leaves terms that are too large. Which number of the "
           "row leaves none above exp(0)?");
  t.answer("P", P, exact, n);
  t.count("the number of exps", t.ledger().exps, kRows * n,
          "The question allows one for each score. Keep exp(s[j] - m) in p until the sum is known.");
  int x = 0;
  while (std::isfinite(std::exp(static_cast<float>(x)))) ++x;
  t.predicted(x);
}
