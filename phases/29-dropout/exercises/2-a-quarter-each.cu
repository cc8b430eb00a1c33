// 29.2 a-quarter-each: four lanes share a row: each calls once, and they exchange.
// An exercise of phase 29; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 29.2     Prove it: ./flash exercise --check 29.2

//# question
// A warp has 8 rows of 32 keys, as fragments have them: lane 4 g + t has row g, and keys 2 t and 2 t + 1 of each of the
// four groups of 8 keys. A call of the generator makes the four words of a group; word t is for lane t of the four. So
// each lane needs one word of four calls.
// Lane t calls for group t alone. Give each lane its word of each group: mine[n] is word t of group n, which lane n of
// the four has made.

//# predict 32 How many calls does the warp make?

//# hint
// __shfl_sync(mask, x, lane) gives the x of that lane. Which x a lane gives is its own matter: it knows not who asks.
//# hint
// The lanes that ask lane n want four different words of it. Ask four times, for word 0, 1, 2, 3, and keep the one.
//# hint
// The lane that has group n of the same row is lane - t + n.

//# because
// 8 rows of 4 groups. If each lane made its four calls itself there would be 128, and three quarters of what they make
// would be thrown away.
//# next
// phases/29-dropout/flags.cuh: there lanes exchange answers, not words: 32 of them in a register, by two shuffles.

//# code

constexpr int kRows = 8, kGroups = 4;

// Stands for Philox here: a cheap function of the place. It counts its calls.
__device__ void generate(unsigned (&word)[4], unsigned group, unsigned row, float* calls) {
  atomicAdd(calls, 1.0f);
  for (unsigned k = 0; k < 4; ++k) word[k] = 100 * row + 10 * group + k;
}

__global__ void exchange(float* words /*[kRows, kGroups, 4]*/, float* calls) {
  const int lane = threadIdx.x, row = lane / 4, t = lane % 4;
  unsigned mine[kGroups] = {};
  //# hole One call a lane; then mine[n] is word t of group n.
  unsigned word[4];
  generate(word, t, row, calls);
  for (int n = 0; n < kGroups; ++n)
    for (int k = 0; k < 4; ++k) {
      const unsigned x = __shfl_sync(0xffffffffu, word[k], lane - t + n);
      if (k == t) mine[n] = x;
    }
  //# skeleton: those of group 0
  //| unsigned word[4];
  //| generate(word, 0, row, calls);
  //| for (int n = 0; n < kGroups; ++n) mine[n] = word[t];
  //# also width-of-four
  //| unsigned word[4];
  //| generate(word, t, row, calls);
  //| for (int n = 0; n < kGroups; ++n)
  //|   for (int k = 0; k < 4; ++k) {
  //|     const unsigned x = __shfl_sync(0xffffffffu, word[k], n, 4);
  //|     if (k == t) mine[n] = x;
  //|   }
  //# wrong word-of-the-giver: chooses the word
  //| unsigned word[4];
  //| generate(word, t, row, calls);
  //| for (int n = 0; n < kGroups; ++n) mine[n] = __shfl_sync(0xffffffffu, word[t], lane - t + n);
  //# wrong own-group: its own group
  //| unsigned word[4];
  //| generate(word, t, row, calls);
  //| for (int n = 0; n < kGroups; ++n) mine[n] = word[t];
  //# wrong first-row: row 0
  //| unsigned word[4];
  //| generate(word, t, row, calls);
  //| for (int n = 0; n < kGroups; ++n)
  //|   for (int k = 0; k < 4; ++k) {
  //|     const unsigned x = __shfl_sync(0xffffffffu, word[k], n);
  //|     if (k == t) mine[n] = x;
  //|   }
  //# wrong four-calls: one call
  //| for (int n = 0; n < kGroups; ++n) {
  //|   unsigned word[4];
  //|   generate(word, n, row, calls);
  //|   mine[n] = word[t];
  //| }
  //# end
  for (int n = 0; n < kGroups; ++n) words[(row * kGroups + n) * 4 + t] = mine[n];
}

//# judge

void judge(Trial& t) {
  constexpr int n = kRows * kGroups * 4;
  const auto words = t.alloc("words", n), calls = t.upload("calls", Floats{0});
  exchange<<<1, 32>>>(words.data(), calls.data());
  t.findings();
  const auto answer = [&](auto of) {
    Doubles want(n);
    for (int i = 0; i < n; ++i) want[i] = of(i / 16, i / 4 % 4, i % 4);
    return want;
  };
  t.answer("words", t.download(words), answer([](int r, int g, int k) { return 100 * r + 10 * g + k; }), 16,
           {{answer([](int r, int, int k) { return 100 * r + k; }), "All words are those of group 0."},
            {answer([](int r, int g, int) { return 100 * r + 10 * g + g; }),
             "A lane that gives chooses the word, and it chooses its own number: those that ask want another one."},
            {answer([](int r, int, int k) { return 100 * r + 10 * k + k; }), "Each lane has words of its own group."},
            {answer([](int, int g, int k) { return 10 * g + k; }), "All lanes ask those of row 0."}},
           1e-5, "row");
  const auto made = static_cast<std::uint64_t>(t.download(calls)[0]);
  t.count("calls", made, 32, "Each lane should make one call, for its own group.");
  t.predicted(made);
}
