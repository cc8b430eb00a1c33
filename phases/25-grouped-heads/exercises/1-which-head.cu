// 25.1 which-head: four heads of Q, two of K: whose keys does a head read?
// An exercise of phase 25; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 25.1     Prove it: ./flash exercise --check 25.1

//# question
// Q has B * H heads, K has B * Hk, and Hk divides H: heads of Q that stand side by side share a head of K. Block x
// computes, for head x of Q's B * H heads, the product of its one query with all keys of the head that it reads:
//     scores[x][j] = Q[x] · K[b][hk][j]
// Say which b and which hk that is. Both tensors are contiguous.

//# predict 20480 How many bytes of K do all blocks read together?

//# hint
// x counts the heads of batch entry 0 first. How many are there in an entry: H, or Hk?
//# hint
// With H = 4 and Hk = 2, heads 0 and 1 of Q read head 0 of K, and heads 2 and 3 read head 1.
//# hint
// H / Hk heads of Q share one: the head within its batch entry is divided by that.

//# because
// Eight heads of Q read 10 keys of 64 numbers of 4 bytes each. K has half as many bytes: each is asked for twice, and
// whether it comes from HBM twice is a matter of the L2 cache.
//# next
// phases/25-grouped-heads/grouped.cuh: the same in one line of a kernel's variant.

//# code

constexpr int H = 4, Hk = 2, Sk = 10, D = 64;

__global__ void scores_of(const float* Q /*[B, H, D]*/, const float* K /*[B, Hk, Sk, D]*/,
                          float* scores /*[B, H, Sk]*/) {
  const int x = blockIdx.x, j = threadIdx.x;
  //# hole Which batch entry, and which of its heads of K?
  const int b = x / H, hk = x % H / (H / Hk);
  //# skeleton: as if each head of Q had keys of its own
  //| const int b = x / H, hk = x % H;
  //# also by-hk
  //| const int b = x / H, hk = (x - b * H) * Hk / H;
  //# also all-at-once
  //| const int b = 0, hk = x / (H / Hk);
  //# wrong in-turns: in turns
  //| const int b = x / H, hk = x % Hk;
  //# wrong group-as-divisor: The number of heads of K is not
  //| const int b = x / H, hk = x % H / H;
  //# wrong entry-of-k: x counts heads of Q
  //| const int b = x / Hk % 2, hk = x % H / (H / Hk);
  //# wrong first-entry: batch entry 0
  //| const int b = 0, hk = x % H / (H / Hk);
  //# end
  const float* key = K + ((b * Hk + hk) * Sk + j) * D;
  float sum = 0;
  for (int d = 0; d < D; ++d) sum = fmaf(Q[x * D + d], key[d], sum);
  scores[x * Sk + j] = sum;
}

//# judge

void judge(Trial& t) {
  constexpr int B = 2;
  const Floats Q = t.normal("Q", B * H * D);
  Floats K = t.normal("K", B * Hk * Sk * D);
  K.resize(2 * K.size());  // room for what mistakes read
  for (std::size_t i = K.size() / 2; i < K.size(); ++i) K[i] = 3;
  const auto q = t.upload("Q", Q), k = t.upload("K", K), scores = t.alloc("scores", B * H * Sk);
  scores_of<<<B * H, Sk>>>(q.data(), k.data(), scores.data());
  t.findings();
  const auto answer = [&](auto head) {
    Doubles want(B * H * Sk);
    for (int x = 0; x < B * H; ++x)
      for (int j = 0; j < Sk; ++j)
        for (int d = 0; d < D; ++d) want[x * Sk + j] += double(Q[x * D + d]) * K[(head(x) * Sk + j) * D + d];
    return want;
  };
  t.answer("scores", t.download(scores), answer([](int x) { return x / H * Hk + x % H / (H / Hk); }), Sk,
           {{answer([](int x) { return x / H * Hk + x % H; }),
             "This reads as if each head of Q had keys of its own: K has fewer heads."},
            {answer([](int x) { return x / H * Hk + x % Hk; }),
             "The heads of K are given out in turns, 0 1 0 1: heads of Q that share one stand side by side."},
            {answer([](int x) { return x / H * Hk; }),
             "The number of heads of K is not what to divide by: how many heads of Q share one?"},
            {answer([](int x) { return x / Hk % 2 * Hk + x % H / (H / Hk); }),
             "x counts heads of Q, and of these a batch entry has H."},
            {answer([](int x) { return x % H / (H / Hk); }), "All blocks read the keys of batch entry 0."}},
           1e-5, "head");
  t.predicted(t.traffic("K").read_bytes);
}
