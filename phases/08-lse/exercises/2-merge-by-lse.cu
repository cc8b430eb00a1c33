// 08.2 merge-by-lse: two finished outputs of a row, each with its LSE: what is the output for all keys?
// An exercise of phase 08; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 08.2     Prove it: ./flash exercise --check 08.2

//# question
// Each half of the keys was attended to on its own: O_a and O_b are divided by their l already, and m and l are gone.
// There is LSE_a and LSE_b instead, natural. Write O and LSE for all keys. A half may have seen no key: then its LSE is
// -infinity. LSEs can be large: 100 and more. A thread has one row, and calls exp for the row, not for each column.

//# predict 2 How many times does your code call exp for a row, if both of its halves have keys?

//# hint
// O_a * exp(LSE_a) is the sum before the division. What is the divisor of the sum of both?
//# hint
// The weights are exp(LSE_a) and exp(LSE_b), over their sum. exp(100) is too large for fp32: exercise 01.1 has a cure.
//# hint
// With m = max(LSE_a, LSE_b), a = exp(LSE_a - m) and b = exp(LSE_b - m): O = (a * O_a + b * O_b) / (a + b), and
// LSE = m + log(a + b). Where m is -infinity: O = 0, LSE = -infinity.

//# because
// Two weights, one for each half. One exp would do, since the larger half's weight is exp(0) = 1; and it is three where
// LSE is made first and the weights are exp(LSE_a - LSE) and exp(LSE_b - LSE). Nobody will notice.
//# next
// phases/08-lse/notebook.cpp merges the halves of a whole problem. Split-KV decoding does just this.

//# code

constexpr int D = 8;

__global__ void merge(const float* O_a /*[N, D]*/, const float* LSE_a /*[N]*/, const float* O_b, const float* LSE_b,
                      float* O /*[N, D]*/, float* LSE /*[N]*/) {
  const int i = threadIdx.x;
  //# hole Weigh the two outputs by their LSE.
  const float m = fmaxf(LSE_a[i], LSE_b[i]), m_safe = m == -INFINITY ? 0.0f : m;
  const float a = expf(LSE_a[i] - m_safe), b = expf(LSE_b[i] - m_safe), sum = a + b;
  for (int d = 0; d < D; ++d) O[i * D + d] = sum == 0 ? 0.0f : (a * O_a[i * D + d] + b * O_b[i * D + d]) / sum;
  LSE[i] = m_safe + logf(sum);
  //# skeleton: That is the mean of both outputs
  //| for (int d = 0; d < D; ++d) O[i * D + d] = (O_a[i * D + d] + O_b[i * D + d]) / 2;
  //| LSE[i] = fmaxf(LSE_a[i], LSE_b[i]);
  //# also sigmoid
  //| const float larger = fmaxf(LSE_a[i], LSE_b[i]), smaller = fminf(LSE_a[i], LSE_b[i]);
  //| const float ratio = smaller == -INFINITY ? 0.0f : expf(smaller - larger), share = 1 / (1 + ratio);
  //| const bool a_is_larger = LSE_a[i] == larger;
  //| for (int d = 0; d < D; ++d) {
  //|   const float a = O_a[i * D + d], b = O_b[i * D + d];
  //|   O[i * D + d] = share * (a_is_larger ? a : b) + (1 - share) * (a_is_larger ? b : a);
  //| }
  //| LSE[i] = larger == -INFINITY ? larger : larger + log1pf(ratio);
  //# wrong overflow: Where LSE is 100, exp of it is infinite
  //| const float a = expf(LSE_a[i]), b = expf(LSE_b[i]), sum = a + b;
  //| for (int d = 0; d < D; ++d) O[i * D + d] = sum == 0 ? 0.0f : (a * O_a[i * D + d] + b * O_b[i * D + d]) / sum;
  //| LSE[i] = logf(sum);
  //# wrong empty-row: The row of which neither half has a key is NaN
  //| const float m = fmaxf(LSE_a[i], LSE_b[i]);
  //| const float a = expf(LSE_a[i] - m), b = expf(LSE_b[i] - m), sum = a + b;
  //| for (int d = 0; d < D; ++d) O[i * D + d] = (a * O_a[i * D + d] + b * O_b[i * D + d]) / sum;
  //| LSE[i] = m + logf(sum);
  //# wrong not-divided: the sum of the weights is missing as divisor
  //| const float m = fmaxf(LSE_a[i], LSE_b[i]), m_safe = m == -INFINITY ? 0.0f : m;
  //| const float a = expf(LSE_a[i] - m_safe), b = expf(LSE_b[i] - m_safe), sum = a + b;
  //| for (int d = 0; d < D; ++d) O[i * D + d] = a * O_a[i * D + d] + b * O_b[i * D + d];
  //| LSE[i] = m_safe + logf(sum);
  //# wrong lse-of-the-larger: LSE is that of the larger half alone
  //| const float m = fmaxf(LSE_a[i], LSE_b[i]), m_safe = m == -INFINITY ? 0.0f : m;
  //| const float a = expf(LSE_a[i] - m_safe), b = expf(LSE_b[i] - m_safe), sum = a + b;
  //| for (int d = 0; d < D; ++d) O[i * D + d] = sum == 0 ? 0.0f : (a * O_a[i * D + d] + b * O_b[i * D + d]) / sum;
  //| LSE[i] = m;
  //# also logaddexp
  //| const float x = LSE_a[i], y = LSE_b[i], m = fmaxf(x, y);
  //| const float lse = m == -INFINITY ? m : m + log1pf(expf(-fabsf(x - y)));
  //| const float a = m == -INFINITY ? 0.0f : expf(x - lse), b = m == -INFINITY ? 0.0f : expf(y - lse);
  //| for (int d = 0; d < D; ++d) O[i * D + d] = a * O_a[i * D + d] + b * O_b[i * D + d];
  //| LSE[i] = lse;
  //# also empty-halves-apart
  //| float a = 1, b = 0, m = LSE_a[i];
  //| if (LSE_a[i] == -INFINITY) {
  //|   a = 0, b = 1, m = LSE_b[i];
  //| } else if (LSE_b[i] != -INFINITY) {
  //|   m = fmaxf(LSE_a[i], LSE_b[i]);
  //|   a = expf(LSE_a[i] - m), b = expf(LSE_b[i] - m);
  //| }
  //| for (int d = 0; d < D; ++d) O[i * D + d] = (a * O_a[i * D + d] + b * O_b[i * D + d]) / (a + b);
  //| LSE[i] = m + logf(a + b);
  //# wrong weights-swapped: The weights have changed places
  //| const float m = fmaxf(LSE_a[i], LSE_b[i]), m_safe = m == -INFINITY ? 0.0f : m;
  //| const float b = expf(LSE_a[i] - m_safe), a = expf(LSE_b[i] - m_safe), sum = a + b;
  //| for (int d = 0; d < D; ++d) O[i * D + d] = sum == 0 ? 0.0f : (a * O_a[i * D + d] + b * O_b[i * D + d]) / sum;
  //| LSE[i] = m_safe + logf(sum);
  //# wrong log-forgotten: must come back
  //| const float m = fmaxf(LSE_a[i], LSE_b[i]), m_safe = m == -INFINITY ? 0.0f : m;
  //| const float a = expf(LSE_a[i] - m_safe), b = expf(LSE_b[i] - m_safe), sum = a + b;
  //| for (int d = 0; d < D; ++d) O[i * D + d] = sum == 0 ? 0.0f : (a * O_a[i * D + d] + b * O_b[i * D + d]) / sum;
  //| LSE[i] = logf(sum);
  //# wrong exp-per-column: its weights are the same for all columns
  //| const float m = fmaxf(LSE_a[i], LSE_b[i]), m_safe = m == -INFINITY ? 0.0f : m;
  //| float sum = expf(LSE_a[i] - m_safe) + expf(LSE_b[i] - m_safe);
  //| for (int d = 0; d < D; ++d)
  //|   O[i * D + d] =
  //|       sum == 0 ? 0 : (expf(LSE_a[i] - m_safe) * O_a[i * D + d] + expf(LSE_b[i] - m_safe) * O_b[i * D + d]) / sum;
  //| LSE[i] = m_safe + logf(sum);
  //# end
}

//# judge

// Rows 0 to 3: both halves have keys; 4: LSEs around 100; 5: the left one is empty; 6: both are.
void judge(Trial& t) {
  constexpr int N = 7;
  Floats O_a = t.normal("O_a", N * D), O_b = t.normal("O_b", N * D);
  Floats LSE_a = t.normal("LSE_a", N), LSE_b = t.normal("LSE_b", N);
  for (int i = 0; i < N; ++i) LSE_a[i] += 3, LSE_b[i] += 3;
  LSE_a[4] += 100, LSE_b[4] += 100;
  LSE_a[5] = LSE_a[6] = LSE_b[6] = -INFINITY;
  for (int d = 0; d < D; ++d) O_a[5 * D + d] = O_a[6 * D + d] = O_b[6 * D + d] = 0;
  const auto o_a = t.upload("O_a", O_a), o_b = t.upload("O_b", O_b);
  const auto lse_a = t.upload("LSE_a", LSE_a), lse_b = t.upload("LSE_b", LSE_b);
  const auto o = t.alloc("O", N * D), lse = t.alloc("LSE", N);
  merge<<<1, N>>>(o_a.data(), lse_a.data(), o_b.data(), lse_b.data(), o.data(), lse.data());
  t.findings();
  Doubles exact(N * D), mean(N * D), undivided(N * D), exact_lse(N), larger(N), swapped(N * D), sum_alone(N);
  for (int i = 0; i < N; ++i) {
    const double m = std::max(LSE_a[i], LSE_b[i]), a = i == 6 ? 0 : std::exp(LSE_a[i] - m),
                 b = i == 6 ? 0 : std::exp(LSE_b[i] - m);
    larger[i] = m;
    sum_alone[i] = i == 6 ? -INFINITY : std::log(a + b);
    exact_lse[i] = i == 6 ? -INFINITY : m + std::log(a + b);
    for (int e = i * D; e < (i + 1) * D; ++e) {
      undivided[e] = a * O_a[e] + b * O_b[e];
      exact[e] = i == 6 ? 0 : undivided[e] / (a + b);
      swapped[e] = i == 6 ? 0 : (b * O_a[e] + a * O_b[e]) / (a + b);
      mean[e] = (double(O_a[e]) + O_b[e]) / 2;
    }
  }
  const Floats O = t.download(o), got_lse = t.download(lse);
  t.expect(std::isfinite(O[4 * D]),
           "Where LSE is 100, exp of it is infinite: subtract the larger LSE from both first.");
  t.expect(!std::isnan(O[6 * D]) && !std::isnan(got_lse[6]),
           "The row of which neither half has a key is NaN: -infinity - -infinity, or 0 / 0.");
  t.answer("O", O, exact, D,
           {{mean, "That is the mean of both outputs: the half whose keys weigh more must count for more."},
            {swapped, "The weights have changed places: exp(LSE_a - m) belongs to O_a."},
            {undivided, "The weights are right, but the sum of the weights is missing as divisor."}});
  t.answer(
      "LSE", got_lse, exact_lse, 1,
      {{sum_alone, "m is missing in LSE: it was taken out of both halves, and must come back, as m + log(a + b)."},
       {larger, "LSE is that of the larger half alone: the sum of the weights belongs to it, as m + log(a + b)."}});
  merge<<<1, 1>>>(o_a.data(), lse_a.data(), o_b.data(), lse_b.data(), o.data(), lse.data());  // row 0 alone
  const std::uint64_t exps = t.ledger().exps;
  t.demand(exps <= 4,
           "exp is called " + std::to_string(exps) + " times for a row: its weights are the same for all columns.");
  t.predicted(exps);
}
