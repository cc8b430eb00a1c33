// 02.1 rescale: one more key, and the maximum grows: what are the old sums worth now?
// An exercise of phase 02; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 02.1     Prove it: ./flash exercise --check 02.1

//# question
// A row of attention meets its keys one by one. All that it remembers of those that passed is
//     m = max s_j      l = sum exp(s_j - m)      o = sum exp(s_j - m) v_j
// A key with score s and value v arrives. Where s > m, the new maximum is s, and l and o were made with the old one.
// Bring them up to date, then add the key.
// This is plain C++; one thread of the simulator runs it for each row, 64 keys a row.

//# predict 128 How many times does your code call exp for a row of 64 keys whose scores rise from key to key?

//# hint
// Write l for the keys so far with the new maximum: sum exp(s_j - m_new). How does it differ from sum exp(s_j - m)?
//# hint
// exp(s_j - m_new) = exp(s_j - m) * exp(m - m_new). The second factor is the same for all old keys.
//# hint
// With alpha = exp(m - m_new) and p = exp(s - m_new): l = alpha * l + p, and o[d] = alpha * o[d] + p * v[d] for each d.
// Before the first key m is -infinity, so alpha is exp(-infinity) = 0: there is nothing to rescale.

//# because
// 128: two for each key, its own weight and alpha. One of the two is always exp(0), so 64 will do with an if. Phase 03
// pays for alpha once per tile of keys, and phase 13 only when the maximum has grown by a lot.
//# next
// phases/02-online-softmax/notebook.cpp shows how rarely the maximum moves. Exercise 02.2 joins two halves of a row.

//# code

constexpr int D = 8;
struct State {
  float m = -INFINITY, l = 0, o[D] = {};
};

// One more key, with score s and value v.
__device__ void add_key(State& state, float s, const float* v /*[D]*/) {
  const float m_new = fmaxf(state.m, s);
  const float p = expf(s - m_new);
  //# hole Bring state.l and state.o up to date with the new maximum, then add the key to them.
  const float alpha = expf(state.m - m_new);
  state.l = alpha * state.l + p;
  for (int d = 0; d < D; ++d) state.o[d] = alpha * state.o[d] + p * v[d];
  //# skeleton: Neither l nor o was brought up to date
  //| state.l = state.l + p;
  //| for (int d = 0; d < D; ++d) state.o[d] = state.o[d] + p * v[d];
  //# wrong l-forgotten: l was not rescaled
  //| const float alpha = expf(state.m - m_new);
  //| state.l = state.l + p;
  //| for (int d = 0; d < D; ++d) state.o[d] = alpha * state.o[d] + p * v[d];
  //# wrong o-forgotten: o was not rescaled
  //| const float alpha = expf(state.m - m_new);
  //| state.l = alpha * state.l + p;
  //| for (int d = 0; d < D; ++d) state.o[d] = state.o[d] + p * v[d];
  //# wrong alpha-upside-down: alpha is upside down
  //| const float alpha = state.m == -INFINITY ? 0.0f : expf(m_new - state.m);
  //| state.l = alpha * state.l + p;
  //| for (int d = 0; d < D; ++d) state.o[d] = alpha * state.o[d] + p * v[d];
  //# wrong exp-in-the-loop: exp is called inside the loop over d
  //| state.l = expf(state.m - m_new) * state.l + p;
  //| for (int d = 0; d < D; ++d) state.o[d] = expf(state.m - m_new) * state.o[d] + p * v[d];
  //# also one-exp
  //| const float alpha = s > state.m ? expf(state.m - s) : 1.0f;
  //| state.l = alpha * state.l + p;
  //| for (int d = 0; d < D; ++d) state.o[d] = alpha * state.o[d] + p * v[d];
  //# wrong alpha-infinite: Is alpha upside down
  //| const float alpha = expf(m_new - state.m);
  //| state.l = alpha * state.l + p;
  //| for (int d = 0; d < D; ++d) state.o[d] = alpha * state.o[d] + p * v[d];
  //# wrong divided-by-alpha: Is alpha upside down
  //| const float alpha = expf(state.m - m_new);
  //| state.l = state.l / alpha + p;
  //| for (int d = 0; d < D; ++d) state.o[d] = state.o[d] / alpha + p * v[d];
  //# wrong p-scaled-too: The new key was rescaled, too
  //| const float alpha = expf(state.m - m_new);
  //| state.l = alpha * (state.l + p);
  //| for (int d = 0; d < D; ++d) state.o[d] = alpha * (state.o[d] + p * v[d]);
  //# also only-when-it-grows
  //| if (s > state.m) {
  //|   const float alpha = expf(state.m - s);
  //|   state.l *= alpha;
  //|   for (float& x : state.o) x *= alpha;
  //| }
  //| state.l += p;
  //| for (int d = 0; d < D; ++d) state.o[d] += p * v[d];
  //# end
  state.m = m_new;
}

__global__ void rows(const float* S /*[rows, keys]*/, const float* V /*[keys, D]*/, float* O /*[rows, D]*/, int keys) {
  const int row = blockIdx.x;
  State state;
  for (int j = 0; j < keys; ++j) add_key(state, S[row * keys + j], V + j * D);
  for (int d = 0; d < D; ++d) O[row * D + d] = state.o[d] / state.l;
}

//# judge

void judge(Trial& t) {
  constexpr int kRows = 3, kKeys = 64;
  Floats S = t.normal("S", kRows * kKeys);
  const Floats V = t.normal("V", kKeys * D);
  std::sort(S.begin(), S.begin() + kKeys, std::greater<>());  // row 0: the first key is the largest, m never moves
  std::sort(S.begin() + kKeys, S.begin() + 2 * kKeys);        // row 1: m moves with each key
  const auto s = t.upload("S", S), v = t.upload("V", V);
  const auto o = t.alloc("O", kRows * D);
  rows<<<kRows, 1>>>(s.data(), v.data(), o.data(), kKeys);
  t.findings();

  // What the state becomes when l and o are rescaled by functions of m - m_new.
  const auto answer = [&](auto l_factor, auto o_factor, bool rescale_p = false) {
    Doubles O(kRows * D);
    for (int r = 0; r < kRows; ++r) {
      double m = -INFINITY, l = 0, sum[D] = {};
      for (int j = 0; j < kKeys; ++j) {
        const double score = S[r * kKeys + j], m_new = std::max(m, score), step = m - m_new;
        const double p = std::exp(score - m_new) * (rescale_p ? std::exp(step) : 1);
        l = l_factor(step) * l + p;
        for (int d = 0; d < D; ++d) sum[d] = o_factor(step) * sum[d] + p * V[j * D + d];
        m = m_new;
      }
      for (int d = 0; d < D; ++d) O[r * D + d] = sum[d] / l;
    }
    return O;
  };
  const auto right = [](double step) { return std::exp(step); };
  const auto none = [](double) { return 1.0; };
  const auto inverse = [](double step) { return std::isinf(step) ? 0.0 : std::exp(-step); };
  const std::string row0 = " Row 0, whose first key is the largest, does not notice.";
  const Floats got = t.download(o);
  t.expect(!std::all_of(got.begin(), got.end(), [](float x) { return std::isnan(x); }),
           "O is NaN from the first key on. m is -infinity there: exp(m - m_new) is 0, but exp(m_new - m) is infinite, "
           "and 0 * infinity is NaN. Is alpha upside down?");
  t.answer(
      "O", got, answer(right, right), D,
      {{answer(none, none), "Neither l nor o was brought up to date when the maximum grew." + row0},
       {answer(none, right), "l was not rescaled when the maximum grew, so O is divided by too much." + row0},
       {answer(right, none), "o was not rescaled when the maximum grew: old keys keep too much weight." + row0},
       {answer(right, right, true),
        "The new key was rescaled, too: its p is made with the new maximum already, and alpha is for the old sums."},
       {answer(inverse, inverse), "alpha is upside down: old sums must count for less, so exp(m - m_new)." + row0}});
  t.count("the number of exps", t.ledger().exps, 2 * kRows * kKeys,
          "Perhaps exp is called inside the loop over d: alpha is the same for all of o.");
  rows<<<1, 1>>>(s.data() + kKeys, v.data(), o.data(), kKeys);  // row 1 alone
  t.predicted(t.ledger().exps);
}
