// 30.3 merge: a step of the ring leaves O, m and l for its keys alone: what are they worth beside what was there?
// An exercise of phase 30; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 30.3     Prove it: ./flash exercise --check 30.3

//# question
// A row meets its keys a set at a time. A call for one set leaves
//     m = max s_j      l = sum 2^(s_j - m)      part = sum 2^(s_j - m) v_j / l
// with s_j counted in base 2, and l = 0 where the mask hides the whole set. The row's state is top, the largest m so
// far, sum, which is l for top, and acc, which is O times sum. Add a set to it. O = acc / sum comes at the end, once.
// This is plain C++; one thread of the simulator runs it for each row.

//# predict 50 Two sets of a row: m = 3, l = 1, and m = 1, l = 4. What share of O comes from the second, in percent?

//# hint
// part was divided by l. What must it be multiplied by to become sum 2^(s_j - m) v_j again? And for another maximum?
//# hint
// The set's weight is l * 2^(m - m_new). What was there before has the factor 2^(top - m_new).
//# hint
// A set that nobody sees has m = -infinity, and -infinity - -infinity is no number. It adds nothing: leave at once.

//# because
// Its weight is 4 * 2^(1 - 3) = 1, and the first set has 1 as well: they are worth the same.
//# next
// phases/30-ring/ring.hpp: the same, but weights are counted in l of the row's first set, so that equal sets lose
// nothing. A backward pass needs no merge: dQ, dK and dV of the sets are summands.

//# code

constexpr int D = 4;
struct Row {
  float top = -INFINITY, sum = 0, acc[D] = {};
};

__device__ void add_set(Row& row, float m, float l, const float* part /*[D]*/) {
  const float m_new = fmaxf(row.top, m);
  //# hole Add the set to row.sum and row.acc.
  if (l == 0) return;
  const float keep = exp2f(row.top - m_new), weight = l * exp2f(m - m_new);
  row.sum = keep * row.sum + weight;
  for (int d = 0; d < D; ++d) row.acc[d] = keep * row.acc[d] + weight * part[d];
  //# skeleton: all sets count alike
  //| row.sum = row.sum + 1;
  //| for (int d = 0; d < D; ++d) row.acc[d] = row.acc[d] + part[d];
  //# wrong l-alone: maximum is forgotten
  //| row.sum = row.sum + l;
  //| for (int d = 0; d < D; ++d) row.acc[d] = row.acc[d] + l * part[d];
  //# wrong l-forgotten: l is forgotten
  //| if (l == 0) return;
  //| const float keep = exp2f(row.top - m_new), weight = exp2f(m - m_new);
  //| row.sum = keep * row.sum + weight;
  //| for (int d = 0; d < D; ++d) row.acc[d] = keep * row.acc[d] + weight * part[d];
  //# wrong old-kept: was not brought up to date
  //~ const float keep = exp2f(row.top - m_new), ==> const float keep = 1,
  //# wrong base-e: base
  //| if (l == 0) return;
  //| const float keep = expf(row.top - m_new), weight = l * expf(m - m_new);
  //| row.sum = keep * row.sum + weight;
  //| for (int d = 0; d < D; ++d) row.acc[d] = keep * row.acc[d] + weight * part[d];
  //# wrong unseen: -inf - -inf
  //~ if (l == 0) return; ==> if (l < 0) return;
  //# also by-share
  //| if (l == 0) return;
  //| const float weight = l * exp2f(m - m_new), sum = exp2f(row.top - m_new) * row.sum + weight;
  //| for (int d = 0; d < D; ++d) row.acc[d] = exp2f(row.top - m_new) * row.acc[d] + weight * part[d];
  //| row.sum = sum;
  //# end
  row.top = m_new;
}

__global__ void merge(int sets, const float* m /*[rows, sets]*/, const float* l, const float* part /*[rows, sets, D]*/,
                      float* O /*[rows, D]*/) {
  const int r = static_cast<int>(blockIdx.x);
  Row row;
  for (int n = r * sets; n < (r + 1) * sets; ++n) add_set(row, m[n], l[n], part + n * D);
  for (int d = 0; d < D; ++d) O[r * D + d] = row.acc[d] / row.sum;
}

//# judge

void judge(Trial& t) {
  constexpr int kRows = 4, kSets = 3;
  // Row 0: a set is hidden first. Row 1: the maximum grows. Row 2: it does not. Row 3: the two sets of the question.
  const Floats m = {-INFINITY, 2, 5, -3, 0, 6, 4, 1, 2, 3, 1, -INFINITY}, l = {0, 3, 1, 2, 5, 1.5f, 1, 7, 2, 1, 4, 0};
  Floats part = t.normal("part", kRows * kSets * D);
  for (int d = 0; d < D; ++d) part[d] = 0, part[(3 * kSets) * D + d] = 0, part[(3 * kSets + 1) * D + d] = 100;
  for (int d = 0; d < D; ++d) part[(3 * kSets + 2) * D + d] = 0;
  const auto on_m = t.upload("m", m), on_l = t.upload("l", l), on_part = t.upload("part", part);
  const auto o = t.alloc("O", kRows * D);
  merge<<<kRows, 1>>>(kSets, on_m.data(), on_l.data(), on_part.data(), o.data());
  t.findings();
  // O by weights of the sets, which may go by what the largest m was before and is now.
  const auto by = [&](auto keep, auto weight) {
    Doubles O;
    for (int r = 0; r < kRows; ++r) {
      double top = -INFINITY, sum = 0, acc[D] = {};
      for (int n = r * kSets; n < (r + 1) * kSets; ++n) {
        const double now = std::max<double>(top, m[n]), k = std::isinf(now) ? 1 : keep(top, now);
        const double w = weight(m[n], l[n], now);
        sum = k * sum + w;
        for (int d = 0; d < D; ++d) acc[d] = k * acc[d] + w * part[n * D + d];
        top = now;
      }
      for (const double x : acc) O.push_back(x / sum);
    }
    return O;
  };
  const auto to_now = [](double top, double now) { return std::exp2(top - now); };
  const auto nothing = [](double, double) { return 1.0; };
  const auto right = [](double m, double l, double now) { return l == 0 ? 0 : l * std::exp2(m - now); };
  const Floats got = t.download(o);
  t.answer(
      "O", got, by(to_now, right), D,
      {{by(nothing, [](double, double, double) { return 1.0; }),
        "So all sets count alike, even one that the row does not see: O of a set is a mean, and its weight is "
        "missing."},
       {by(nothing, [](double, double l, double) { return l; }),
        "The maximum is forgotten: l of each set is counted from a maximum of its own."},
       {by(to_now, [](double m, double l, double now) { return l == 0 ? 0 : std::exp2(m - now); }),
        "l is forgotten: a set of many keys is worth more than a set of one with the same maximum."},
       {by(nothing, right), "What was there before was not brought up to date: it was counted from the old maximum."},
       {by([](double top, double now) { return std::exp(top - now); },
           [](double m, double l, double now) { return l == 0 ? 0 : l * std::exp(m - now); }),
        "That is another base: m is in base 2, so that the factor is 2^(m - m_new)."}},
      1e-5);
  t.predicted(static_cast<std::uint64_t>(std::lround(got[3 * D])));
}
