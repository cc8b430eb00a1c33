// 30.1 even-shares: which rank holds a token, so that a causal mask gives all of them the same work?
// An exercise of phase 30; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 30.1     Prove it: ./flash exercise --check 30.1

//# question
// Row i of a causal mask sees i + 1 keys, so in contiguous pieces the last rank has the most work by far. Zig-zag cuts
// the S tokens into 2 n pieces of the same length; each of n ranks holds two of them, one from the front and one from
// the back, such that all have the same number of pairs of a row and a key. Piece r in front is rank r's. Write the
// rank of a token. 2 n divides S.
// This is plain C++; one thread of the simulator runs it for each token.

//# predict 34 How many pairs does each of 4 ranks have, with 16 tokens?

//# hint
// Which piece does the token lie in? There are 2 n of them, of S / (2 n) tokens.
//# hint
// The piece with the least work belongs to the piece with the most: 0 and 2 n - 1, 1 and 2 n - 2, and so on.
//# hint
// Pieces 0 to n - 1 are those of ranks 0 to n - 1; then the ranks come in falling order.

//# because
// 16 rows see 1 + 2 + ... + 16 = 136 keys; a fourth of that is 34.
//# next
// phases/30-ring/shares.hpp: pieces of different lengths, rows and keys of different numbers. Exercise 30.2 asks what
// the rows of a rank see.

//# code

__device__ int rank_of(int token, int n, int S) {
  //# hole The rank that holds the token.
  const int piece = token / (S / (2 * n));
  return piece < n ? piece : 2 * n - 1 - piece;
  //# skeleton: contiguous pieces
  //| return token / (S / n);
  //# wrong rising-twice: in the same order
  //| const int piece = token / (S / (2 * n));
  //| return piece % n;
  //# wrong one-too-far: is no rank
  //| const int piece = token / (S / (2 * n));
  //| return piece < n ? piece : 2 * n - piece;
  //# wrong turned-round: from the back
  //| const int piece = token / (S / (2 * n));
  //| return piece < n ? n - 1 - piece : piece - n;
  //# also by-the-smaller
  //| const int piece = token / (S / (2 * n)), from_the_end = 2 * n - 1 - piece;
  //| return piece < from_the_end ? piece : from_the_end;
  //# end
}

__global__ void ranks_of(int n, int S, float* rank /*[S]*/) {
  rank[blockIdx.x] = static_cast<float>(rank_of(static_cast<int>(blockIdx.x), n, S));
}

//# judge

void judge(Trial& t) {
  std::uint64_t pairs_of_4 = 0;
  for (const auto& [n, S] : {std::pair{4, 16}, {3, 30}, {1, 8}}) {
    const auto out = t.alloc("rank", static_cast<std::size_t>(S));
    ranks_of<<<S, 1>>>(n, S, out.data());
    t.findings();
    const Floats got = t.download(out);
    std::vector<std::uint64_t> pairs(static_cast<std::size_t>(n));
    for (int i = 0; i < S; ++i) {
      t.expect(got[i] >= 0 && got[i] < n, "What a token got is no rank: they are 0 to n - 1. The last piece is number "
                                          "2 n - 1, and belongs to rank 0.");
      pairs[static_cast<std::size_t>(got[i])] += i + 1;
    }
    const auto rule = [n = n, S = S](auto rank) {
      Doubles all;
      for (int i = 0; i < S; ++i) all.push_back(rank(i / (S / (2 * n))));
      return all;
    };
    const std::vector<Mistake> mistakes = {
        {rule([n = n](int piece) { return piece / 2; }),
         "These are contiguous pieces: the last rank has all the rows that see much."},
        {rule([n = n](int piece) { return piece % n; }),
         "The second pieces come in the same order as the first: a later rank has more work twice."},
        {rule([n = n](int piece) { return piece < n ? n - 1 - piece : piece - n; }),
         "Even, but numbered from the back: it is rank 0 that holds the first and the last piece."}};
    t.answer("rank", got, rule([n = n](int piece) { return piece < n ? piece : 2 * n - 1 - piece; }),
             static_cast<std::size_t>(S), n > 1 ? mistakes : std::vector<Mistake>{}, 1e-5, "list");
    if (n == 4) pairs_of_4 = pairs[0];
  }
  t.predicted(pairs_of_4);
}
