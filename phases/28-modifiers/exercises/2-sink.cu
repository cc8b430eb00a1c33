// 28.2 sink: four lanes share a row of scores: let it begin with a sink.
// An exercise of phase 28; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 28.2     Prove it: ./flash exercise --check 28.2

//# question
// Lane t of four has the scores t, t + 4, t + 8 … of a row, and goes through them by online softmax: m is the largest
// that it has met, l the sum of exp(score - m). In the end the four are brought together, and LSE = m + log l goes out.
// Let each row begin with a sink, a logit that no key has. It belongs into LSE, once. Row 3 sees no key at all:
// LSE is its sink.

//# predict 4096 How many bytes of scores are read?

//# hint
// A sink is as good as one more key. What are m and l of a row that has met one key?
//# hint
// m is its logit, and l is exp(0) = 1. But in the end the l of four lanes are added up.
//# hint
// All four lanes begin with m = sink, and one of them with l = 1.

//# because
// Sixteen rows of 64 scores of 4 bytes; the one that sees no key has scores of minus infinity, which are read, too. The
// sink costs nothing in the loop: it is a beginning.
//# next
// phases/28-modifiers/modified.cuh, `begin_rows`: the same for the rows of a warpgroup.

//# code

constexpr int N = 64;

// Lane t of row `row`: threadIdx.x = row * 4 + t.
__global__ void lse_of_rows(const float* scores /*[16, N]*/, const float* sinks /*[16]*/, float* lse /*[16]*/) {
  const int row = threadIdx.x / 4, t = threadIdx.x % 4;
  const float sink = sinks[row];
  //# hole m and l, before the first score.
  float m = sink, l = t == 0 ? 1.0f : 0.0f;
  //# skeleton: without its sink
  //| float m = -INFINITY, l = 0;
  //# wrong in-all-lanes: four times
  //| float m = sink, l = 1;
  //# wrong as-maximum-alone: without its sink
  //| float m = sink, l = 0;
  //# wrong as-a-number: exp(sink) itself
  //| float m = sink, l = t == 0 ? expf(sink) : 0.0f;
  //# also in-the-last-lane
  //| float m = sink, l = t == 3 ? 1.0f : 0.0f;
  //# also in-quarters
  //| float m = sink, l = 0.25f;
  //# end
  for (int j = t; j < N; j += 4) {
    const float s = scores[row * N + j], m_new = fmaxf(m, s);
    if (m_new == -INFINITY) continue;
    l = l * expf(m - m_new) + expf(s - m_new);
    m = m_new;
  }
  for (int distance = 1; distance < 4; distance *= 2) {
    const float other_m = __shfl_xor_sync(0xffffffffu, m, distance);
    const float other_l = __shfl_xor_sync(0xffffffffu, l, distance);
    const float m_new = fmaxf(m, other_m);
    if (m_new > -INFINITY) l = l * expf(m - m_new) + other_l * expf(other_m - m_new), m = m_new;
  }
  if (t == 0) lse[row] = m + logf(l);
}

//# judge

void judge(Trial& t) {
  constexpr int kRows = 16;
  Floats scores = t.normal("scores", kRows * N);
  Floats sinks = t.normal("sinks", kRows);
  for (float& x : sinks) x += 4;
  for (int j = 0; j < N; ++j) scores[3 * N + j] = -INFINITY;
  const auto s = t.upload("scores", scores), of_rows = t.upload("sinks", sinks), lse = t.alloc("lse", kRows);
  lse_of_rows<<<1, kRows * 4>>>(s.data(), of_rows.data(), lse.data());
  t.findings();
  const auto answer = [&](auto weight) {
    Doubles want(kRows);
    for (int row = 0; row < kRows; ++row) {
      double sum = weight(double(sinks[row]));
      for (int j = 0; j < N; ++j) sum += std::exp(double(scores[row * N + j]));
      want[row] = std::log(sum);
    }
    return want;
  };
  t.answer("lse", t.download(lse), answer([](double sink) { return std::exp(sink); }), 1,
           {{answer([](double) { return 0.0; }), "This is LSE without its sink: a sink that was met has l = 1."},
            {answer([](double sink) { return 4 * std::exp(sink); }),
             "The sink counts four times: the l of four lanes are added up."},
            {answer([](double sink) { return std::exp(2 * sink); }),
             "l counts from m on, so that a sink that is m counts 1, not exp(sink) itself."}});
  t.predicted(t.traffic("scores").read_bytes);
}
