// 27.2 whole-tiles: sequences lie one behind the other: where may whole tiles of each begin?
// An exercise of phase 27; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 27.2     Prove it: ./flash exercise --check 27.2

//# question
// Sequence n has the tokens ends[n] to ends[n + 1] - 1. For each token a number is kept in `kept`, in whole tiles of 16
// for each sequence: no two sequences share a tile, so that a block may write all of a tile. Block n writes the tiles
// of its sequence: n + 1 for each token, and 0 behind the last one. `kept` has total / 16 + N tiles, rounded down.
// Say where the block's first tile begins. It may look at the ends of its own sequence alone.

//# predict 256 The sequences have 5, 0, 20 and 3 tokens. How many bytes of `kept` do all blocks write?

//# hint
// If each sequence began where its first token is, rounded down to a tile, the one before it might still be there.
//# hint
// Each sequence before yours may need one tile more than its tokens fill.
//# hint
// ends[n] / 16 tiles are full before yours at most, and n sequences may each have begun one more.

//# because
// 5, 0, 20 and 3 tokens have 1, 0, 2 and 1 tiles, and a tile has 16 numbers of 4 bytes.
//# next
// phases/27-lengths/lengths.cuh, padded_row(): the same with tiles of 128 rows.

//# code

constexpr int N = 4, R = 16;

__global__ void keep(const int* ends /*[N + 1]*/, float* kept /*[(total / R + N) * R]*/) {
  const int n = blockIdx.x, length = ends[n + 1] - ends[n];
  //# hole At which number does the first tile begin?
  const int first = (ends[n] / R + n) * R;
  //# skeleton: one behind the other
  //| const int first = ends[n];
  //# also by-tiles
  //| const int first = ends[n] / R * R + n * R;
  //# wrong rounded-down: share a tile
  //| const int first = ends[n] / R * R;
  //# wrong rounded-up: share a tile
  //| const int first = (ends[n] + R - 1) / R * R;
  //# wrong one-too-far: beyond
  //| const int first = (ends[n] / R + n + 1) * R;
  //# end
  for (int i = threadIdx.x; i < (length + R - 1) / R * R; i += blockDim.x)
    kept[first + i] = i < length ? static_cast<float>(n + 1) : 0.0f;
}

//# judge

void judge(Trial& t) {
  const std::vector<int> ends = {0, 5, 5, 25, 28};
  constexpr int kTiles = 28 / R + N;
  const auto on_device = t.upload("ends", ends);
  const Floats nothing(kTiles * R, -1.0f);
  const auto kept = t.upload("kept", nothing);
  keep<<<N, R>>>(on_device.data(), kept.data());
  t.findings({{"race", "Two sequences share a tile, or begin one behind the other in the middle of one."},
              {"out of bounds", "The last sequence's tiles end beyond the memory."}});
  const auto all = [&](auto first) {
    Doubles want(nothing.begin(), nothing.end());
    for (int n = 0; n < N; ++n)
      for (int i = 0; i < (ends[n + 1] - ends[n] + R - 1) / R * R; ++i)
        if (first(n) + i < kTiles * R) want[first(n) + i] = i < ends[n + 1] - ends[n] ? n + 1 : 0;
    return want;
  };
  t.answer("kept", t.download(kept), all([&](int n) { return (ends[n] / R + n) * R; }), R, {}, 1e-6, "tile");
  t.predicted(t.traffic("kept").written_bytes);
}
