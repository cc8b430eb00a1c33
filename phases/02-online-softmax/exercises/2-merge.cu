// 02.2 merge: two halves of a row, each with a maximum of its own: what is the state of the whole?
// An exercise of phase 02; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 02.2     Prove it: ./flash exercise --check 02.2

//# question
// Two workers have seen different keys of the same row. Each has a state
//     m = max s_j      l = sum exp(s_j - m)      o = sum exp(s_j - m) v_j
// Write the state of all keys. A worker may have seen no key at all: then m = -infinity, l = 0 and o = 0; and perhaps
// both have seen none.
// This is plain C++; one thread of the simulator runs it for each row.

//# predict 40 How many bytes must one worker send for a row with D = 8, in fp32?

//# hint
// First the new maximum. Each half's l and o were made with its own: exercise 02.1 says how to bring one up to date.
//# hint
// With m = max(a.m, b.m): alpha = exp(a.m - m), beta = exp(b.m - m), and l = alpha * a.l + beta * b.l; o likewise.
//# hint
// If both are empty, a.m - m is -infinity - -infinity: NaN. Return b where a is empty, or subtract 0 instead of m.

//# because
// m, l and o: 4 * (1 + 1 + 8) bytes, however many keys there were. That is why split-KV and ring attention are cheap.
//# next
// phases/02-online-softmax/notebook.cpp: merge is associative, so any tree of workers will do. Exercise 08.2 merges
// finished outputs.

//# code

constexpr int D = 8;
struct State {
  float m, l, o[D];
};

__device__ State merge(const State& a, const State& b) {
  State both = {-INFINITY, 0, {}};
  //# hole The state of the keys of a and of b.
  both.m = fmaxf(a.m, b.m);
  if (both.m == -INFINITY) return both;
  const float alpha = expf(a.m - both.m), beta = expf(b.m - both.m);
  both.l = alpha * a.l + beta * b.l;
  for (int d = 0; d < D; ++d) both.o[d] = alpha * a.o[d] + beta * b.o[d];
  //# skeleton: The states were added as they are
  //| both.m = fmaxf(a.m, b.m);
  //| both.l = a.l + b.l;
  //| for (int d = 0; d < D; ++d) both.o[d] = a.o[d] + b.o[d];
  //# wrong empty-halves: Two empty halves give NaN
  //| both.m = fmaxf(a.m, b.m);
  //| const float alpha = expf(a.m - both.m), beta = expf(b.m - both.m);
  //| both.l = alpha * a.l + beta * b.l;
  //| for (int d = 0; d < D; ++d) both.o[d] = alpha * a.o[d] + beta * b.o[d];
  //# wrong b-not-rescaled: b was added as it is
  //| both.m = fmaxf(a.m, b.m);
  //| const float alpha = a.m == -INFINITY ? 0.0f : expf(a.m - both.m);
  //| both.l = alpha * a.l + b.l;
  //| for (int d = 0; d < D; ++d) both.o[d] = alpha * a.o[d] + b.o[d];
  //# wrong m-forgotten: m is not the maximum of both
  //| const float m = fmaxf(a.m, b.m);
  //| if (m == -INFINITY) return both;
  //| const float alpha = expf(a.m - m), beta = expf(b.m - m);
  //| both.m = a.m;
  //| both.l = alpha * a.l + beta * b.l;
  //| for (int d = 0; d < D; ++d) both.o[d] = alpha * a.o[d] + beta * b.o[d];
  //# wrong a-not-rescaled: a was added as it is
  //| both.m = fmaxf(a.m, b.m);
  //| const float beta = b.m == -INFINITY ? 0.0f : expf(b.m - both.m);
  //| both.l = a.l + beta * b.l;
  //| for (int d = 0; d < D; ++d) both.o[d] = a.o[d] + beta * b.o[d];
  //# wrong l-not-rescaled: l was added as it is
  //| both.m = fmaxf(a.m, b.m);
  //| if (both.m == -INFINITY) return both;
  //| const float alpha = expf(a.m - both.m), beta = expf(b.m - both.m);
  //| both.l = a.l + b.l;
  //| for (int d = 0; d < D; ++d) both.o[d] = alpha * a.o[d] + beta * b.o[d];
  //# wrong o-not-rescaled: o was added as it is
  //| both.m = fmaxf(a.m, b.m);
  //| if (both.m == -INFINITY) return both;
  //| const float alpha = expf(a.m - both.m), beta = expf(b.m - both.m);
  //| both.l = alpha * a.l + beta * b.l;
  //| for (int d = 0; d < D; ++d) both.o[d] = a.o[d] + b.o[d];
  //# wrong upside-down: upside down
  //| both.m = fmaxf(a.m, b.m);
  //| if (both.m == -INFINITY) return both;
  //| const float alpha = expf(both.m - a.m), beta = expf(both.m - b.m);
  //| both.l = alpha * a.l + beta * b.l;
  //| for (int d = 0; d < D; ++d) both.o[d] = alpha * a.o[d] + beta * b.o[d];
  //# wrong upside-down-guarded: upside down
  //| if (a.l == 0) return b;
  //| if (b.l == 0) return a;
  //| both.m = fmaxf(a.m, b.m);
  //| const float alpha = expf(both.m - a.m), beta = expf(both.m - b.m);
  //| both.l = alpha * a.l + beta * b.l;
  //| for (int d = 0; d < D; ++d) both.o[d] = alpha * a.o[d] + beta * b.o[d];
  //# also one-exp
  //| if (a.l == 0) return b;
  //| if (b.l == 0) return a;
  //| const State &large = a.m < b.m ? b : a, &small = a.m < b.m ? a : b;
  //| const float factor = expf(small.m - large.m);
  //| both.m = large.m;
  //| both.l = large.l + factor * small.l;
  //| for (int d = 0; d < D; ++d) both.o[d] = large.o[d] + factor * small.o[d];
  //# also factor-of-the-empty
  //| both.m = fmaxf(a.m, b.m);
  //| const float alpha = a.m == -INFINITY ? 1.0f : expf(a.m - both.m);
  //| const float beta = b.m == -INFINITY ? 1.0f : expf(b.m - both.m);
  //| both.l = alpha * a.l + beta * b.l;
  //| for (int d = 0; d < D; ++d) both.o[d] = alpha * a.o[d] + beta * b.o[d];
  //# end
  return both;
}

__global__ void merge_rows(const State* left /*[rows]*/, const State* right /*[rows]*/, State* both /*[rows]*/) {
  both[blockIdx.x] = merge(left[blockIdx.x], right[blockIdx.x]);
}

//# judge

// Rows 0 to 2: two halves; 3: the left one is empty; 4: the right one; 5: both.
void judge(Trial& t) {
  constexpr int kRows = 6, kKeys = 20;
  const Floats S = t.normal("S", kRows * 2 * kKeys), V = t.normal("V", 2 * kKeys * D);
  const auto state = [&](int row, int half, double out[D + 2]) {
    std::fill_n(out, D + 2, 0.0);
    out[0] = -INFINITY;
    if (row == 5 || (row == 3 && half == 0) || (row == 4 && half == 1)) return;
    const float* s = &S[(row * 2 + half) * kKeys];
    out[0] = *std::max_element(s, s + kKeys);
    for (int j = 0; j < kKeys; ++j) {
      const double p = std::exp(s[j] - out[0]);
      out[1] += p;
      for (int d = 0; d < D; ++d) out[2 + d] += p * V[(half * kKeys + j) * D + d];
    }
  };
  // The states, and what comes of them when the halves are weighted by functions of m_half - m.
  std::vector<State> left(kRows), right(kRows);
  const auto merged = [&](auto weight_a, auto weight_b) {
    Doubles result(kRows * (D + 2));
    for (int r = 0; r < kRows; ++r) {
      double a[D + 2], b[D + 2], *both = &result[r * (D + 2)];
      state(r, 0, a), state(r, 1, b);
      left[r] = {float(a[0]), float(a[1]), {}}, right[r] = {float(b[0]), float(b[1]), {}};
      for (int d = 0; d < D; ++d) left[r].o[d] = a[2 + d], right[r].o[d] = b[2 + d];
      both[0] = std::max(a[0], b[0]);
      for (int i = 1; i < D + 2; ++i)
        both[i] = (a[1] ? weight_a(a[0] - both[0]) * a[i] : 0) + (b[1] ? weight_b(b[0] - both[0]) * b[i] : 0);
    }
    return result;
  };
  const auto right_weight = [](double x) { return std::exp(x); };
  const auto none = [](double) { return 1.0; };
  const Doubles exact = merged(right_weight, right_weight);
  const auto a = t.upload("left", left), b = t.upload("right", right);
  const auto out = t.machine.alloc<State>("both", kRows);
  merge_rows<<<kRows, 1>>>(a.data(), b.data(), out.data());
  t.findings();
  Floats got;
  for (const State& s : t.download(out)) {
    got.push_back(s.m), got.push_back(s.l);
    got.insert(got.end(), s.o, s.o + D);
  }
  t.expect(!std::isnan(got[5 * (D + 2) + 1]),
           "Two empty halves give NaN: m - m is -infinity - -infinity there. The state of no key is m = -infinity, "
           "l = 0, o = 0.");
  const Doubles as_they_are = merged(none, none), b_as_it_is = merged(right_weight, none);
  bool m_is_right = true;
  for (int r = 0; r < kRows; ++r) m_is_right &= got[r * (D + 2)] == exact[r * (D + 2)];
  t.expect(m_is_right, "m is not the maximum of both halves: l and o are worth nothing without the m they belong to.");
  const Doubles inverse = merged([](double x) { return std::exp(-x); }, [](double x) { return std::exp(-x); });
  Doubles l_as_it_is = exact, o_as_it_is = as_they_are;
  for (int r = 0; r < kRows; ++r) std::swap(l_as_it_is[r * (D + 2) + 1], o_as_it_is[r * (D + 2) + 1]);
  // First the rows of two halves: mistakes are the same there, whatever is done for empty ones.
  const auto halves = [](const auto& all) { return std::vector(all.begin(), all.begin() + 3 * (D + 2)); };
  t.answer("(m, l, o)", halves(got), halves(exact), D + 2,
           {{halves(as_they_are),
             "The states were added as they are, but each half's l and o were made with its own maximum."},
            {halves(b_as_it_is), "b was added as it is: right only while b has the larger maximum."},
            {halves(merged(none, right_weight)), "a was added as it is: right only while a has the larger maximum."},
            {halves(inverse), "The factors are upside down: each half's sums must count for less, so exp(a.m - m)."},
            {halves(l_as_it_is), "l was added as it is: it is a sum of exp(s - m) like o, with the half's own m."},
            {halves(o_as_it_is), "o was added as it is: it was made with the half's own m, as l was."}});
  t.answer("(m, l, o)", got, exact, D + 2);
  t.predicted(sizeof(State));
}
