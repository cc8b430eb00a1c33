// 27.1 which-place: a list of tiles, the longest sequences first: where do a sequence's tiles begin?
// An exercise of phase 27; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 27.1     Prove it: ./flash exercise --check 27.1

//# question
// Sequences have different lengths, and each has tiles of 32 tokens, the last one perhaps not full. All tiles are to
// stand in one list, those of the longest sequence first; of equally long ones the earlier sequence comes first.
// Thread n writes down where in the list the tiles of sequence n begin: behind those of all that come before it.

//# predict 324 How many bytes of `lengths` do all nine threads read together?

//# hint
// A sequence of 33 tokens has two tiles, and an empty one has none.
//# hint
// Go through all sequences, and add up the tiles of those that come before yours. Your own is not one of them.
//# hint
// Another comes before yours if it is longer, or if it is as long and has a smaller number.

//# because
// Nine threads read nine numbers of 4 bytes each: their own, and the other eight.
//# next
// phases/27-lengths/sequences.cuh: the same by a block for each sequence, for tiles of rows and of keys.

//# code

constexpr int N = 9, R = 32;

__global__ void places_of(const int* lengths /*[N]*/, float* place /*[N]*/) {
  const int n = threadIdx.x, mine = lengths[n];
  int tiles = 0;
  for (int other = 0; other < N; ++other) {
    if (other == n) continue;
    const int its = lengths[other];
    //# hole Does it come before sequence n? Then its tiles count.
    if (its > mine || (its == mine && other < n)) tiles += (its + R - 1) / R;
    //# skeleton: in the order of their numbers
    //| if (other < n) tiles += (its + R - 1) / R;
    //# also not-behind
    //| if (!(its < mine || (its == mine && other > n))) tiles += (its + 31) / 32;
    //# wrong equals-together: equally long
    //| if (its > mine) tiles += (its + R - 1) / R;
    //# wrong shortest-first: The shortest
    //| if (its < mine || (its == mine && other < n)) tiles += (its + R - 1) / R;
    //# wrong whole-tiles: not full
    //| if (its > mine || (its == mine && other < n)) tiles += its / R;
    //# wrong tokens: tokens, not tiles
    //| if (its > mine || (its == mine && other < n)) tiles += its;
    //# end
  }
  place[n] = static_cast<float>(tiles);
}

//# judge

void judge(Trial& t) {
  const std::vector<int> lengths = {33, 64, 100, 0, 64, 7, 250, 100, 0};
  const auto on_device = t.upload("lengths", lengths);
  const auto place = t.alloc("place", N);
  places_of<<<1, N>>>(on_device.data(), place.data());
  t.findings();
  const auto places = [&](auto before, auto tiles) {
    Doubles all(N);
    for (int n = 0; n < N; ++n)
      for (int other = 0; other < N; ++other)
        if (other != n && before(lengths[other], lengths[n], other < n)) all[n] += tiles(lengths[other]);
    return all;
  };
  const auto longer = [](int its, int mine, bool first) { return its > mine || (its == mine && first); };
  const auto shorter = [](int its, int mine, bool first) { return its < mine || (its == mine && first); };
  const auto in_tiles = [](int length) { return (length + R - 1) / R; };
  t.answer("place", t.download(place), places(longer, in_tiles), 1,
           {{places([](int, int, bool first) { return first; }, in_tiles),
             "The tiles stand in the order of their numbers: the longest sequence is to come first."},
            {places([](int its, int mine, bool) { return its > mine; }, in_tiles),
             "Two sequences that are equally long have their tiles in one place."},
            {places(shorter, in_tiles), "The shortest sequence comes first, not the longest."},
            {places(longer, [](int length) { return length / R; }), "A last tile that is not full is a tile, too."},
            {places(longer, [](int length) { return length; }), "These are tokens, not tiles."}},
           1e-6, "sequence");
  t.predicted(t.traffic("lengths").read_bytes);
}
