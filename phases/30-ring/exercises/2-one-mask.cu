// 30.2 one-mask: what do the rows of one rank see of the keys of another, when tokens are dealt out like cards?
// An exercise of phase 30; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 30.2     Prove it: ./flash exercise --check 30.2

//# question
// Striped: rank r of n holds the tokens r, r + n, r + 2 n, … as its rows and keys 0, 1, 2, … The mask is causal: token
// t sees the tokens up to t. Row i of rank `rank` meets the keys of rank `from`, of which there are more than enough.
// How many of them does it see?
// This is plain C++; one thread of the simulator runs it for each row.

//# predict 10 Rank 1 of 4 has 5 rows. How many pairs do they make with the keys of rank 3?

//# hint
// Row i is token i n + rank, key j is token j n + from. Write the mask with these two.
//# hint
// j n + from <= i n + rank. Both ranks are less than n, so they decide only where i and j are equal.
//# hint
// Equal numbers: the key is seen if from <= rank. So it is i + 1 keys, or i.

//# because
// Rank 3's key of the same number comes later than rank 1's row: rows see 0 + 1 + 2 + 3 + 4 keys.
//# next
// phases/30-ring/shares.hpp: the same for windows, in one line. A kernel needs nothing new for it: the mask is a causal
// one, perhaps one row further down.

//# code

__device__ int keys_seen(int i, int rank, int from) {
  //# hole So many keys of rank `from` are seen by row i of rank `rank`.
  return from <= rank ? i + 1 : i;
  //# skeleton: the same triangle
  //| return i + 1;
  //# wrong not-its-own: does not see itself
  //| return from < rank ? i + 1 : i;
  //# wrong turned-round: turned round
  //| return from >= rank ? i + 1 : i;
  //# wrong always-less: never sees
  //| return i;
  //# also by-comparison
  //| return i + (from <= rank);
  //# end
}

__global__ void count(int n, int rows, float* seen /*[n, n, rows]*/) {
  const int pair = static_cast<int>(blockIdx.x) / rows, i = static_cast<int>(blockIdx.x) % rows;
  seen[blockIdx.x] = static_cast<float>(keys_seen(i, pair / n, pair % n));
}

//# judge

void judge(Trial& t) {
  constexpr int n = 4, rows = 5, all = n * n * rows;
  const auto out = t.alloc("seen", all);
  count<<<all, 1>>>(n, rows, out.data());
  t.findings();
  const auto rule = [](auto seen) {
    Doubles numbers;
    for (int rank = 0; rank < n; ++rank)
      for (int from = 0; from < n; ++from)
        for (int i = 0; i < rows; ++i) numbers.push_back(seen(i, rank, from));
    return numbers;
  };
  // By the tokens themselves.
  const Doubles exact = rule([](int i, int rank, int from) {
    int seen = 0;
    for (int j = 0; j < 2 * rows; ++j) seen += j * n + from <= i * n + rank;
    return seen;
  });
  const Floats got = t.download(out);
  t.answer("keys seen", got, exact, all,
           {{rule([](int i, int, int) { return i + 1; }),
             "It is not the same triangle for each rank: of a later rank's keys the one of the same number comes after "
             "the row."},
            {rule([](int i, int rank, int from) { return from < rank ? i + 1 : i; }),
             "A row does not see itself: of its own rank's keys the one of the same number is its own token."},
            {rule([](int i, int rank, int from) { return from >= rank ? i + 1 : i; }),
             "It is turned round: a rank with a smaller number has the earlier token of two with the same number."},
            {rule([](int i, int, int) { return i; }),
             "A row never sees a key of its own number, but from <= rank says that it comes no later."}},
           1e-5, "list");
  double pairs = 0;
  for (int i = 0; i < rows; ++i) pairs += got[(1 * n + 3) * rows + i];
  t.predicted(static_cast<std::uint64_t>(pairs));
}
