// 01.1 safe-softmax: softmax as the textbook writes it overflows: which number helps?
// An exercise of phase 01; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 01.1     Prove it: ./flash exercise --check 01.1

//# question
// P_j = exp(S_j) / sum over k of exp(S_k), for each row of S. Three rows come: scores around 0, around 100 and around
// -200. The formula is right, and the kernel below computes it; fp32 disagrees. Make it right for all three.
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
  //# wrong maximum-from-0: The row around -200 becomes 0 / 0
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
  //# wrong exp-twice: Keep exp(s[j] - m) in p
  //| float m = -INFINITY, sum = 0;
  //| for (int j = 0; j < n; ++j) m = fmaxf(m, s[j]);
  //| for (int j = 0; j < n; ++j) sum += expf(s[j] - m);
  //| for (int j = 0; j < n; ++j) p[j] = expf(s[j] - m) / sum;
  //# end
}

//# judge

void judge(Trial& t) {
  constexpr int kRows = 3, n = 40;
  constexpr float kCentre[kRows] = {0, 100, -200};
  Floats S = t.normal("S", kRows * n);
  for (int i = 0; i < kRows * n; ++i) S[i] += kCentre[i / n];
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
           "The row around 100 overflows: exp of it is infinite. Subtract a number that makes no term large.");
  t.expect(!finite(0) || finite(2),
           "The row around -200 becomes 0 / 0: all its terms are 0. Is what you subtract the row's maximum?");
  t.answer("P", P, exact, n, {{weights, "P has the right proportions, but its sum is not 1: divide by it."}});
  t.count("the number of exps", t.ledger().exps, kRows * n, "Keep exp(s[j] - m) in p until the sum is known.");
  int x = 0;
  while (std::isfinite(std::exp(static_cast<float>(x)))) ++x;
  t.predicted(x);
}
