// 29.1 sixteen-bits: four words for eight keys: which 16 bits are a key's?
// An exercise of phase 29; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 29.1     Prove it: ./flash exercise --check 29.1

//# question
// A call of the generator makes four words. They serve the eight keys 8 · octet … 8 · octet + 7 of a row: word k is for
// keys 2 k and 2 k + 1 of them, its lower 16 bits for the even key. Thread (row, octet) makes one call, and writes for
// each of its eight keys whether it is kept: its 16 bits are at least the threshold.
// Find the 16 bits of key e.

//# predict 64 How many calls are made for 16 rows and 32 keys?

//# hint
// Keys 0 and 1 share word 0, keys 6 and 7 share word 3.
//# hint
// So key e's word is e / 2. Which half of it: that is a matter of e % 2.
//# hint
// An odd key's bits begin 16 further up: shift them down. An even key's bits have the odd key's above them.

//# because
// 16 rows of 4 groups of 8 keys: 64 calls for 512 keys. With a call for each key it would be 512.
//# next
// phases/29-dropout/philox.cuh: there both halves of a word are compared at once.

//# code

constexpr int kRows = 16, kKeys = 32;

// Stands for Philox here: a cheap function of the place. It counts its calls.
__device__ void generate(unsigned (&word)[4], unsigned octet, unsigned row, float* calls) {
  atomicAdd(calls, 1.0f);
  for (unsigned k = 0; k < 4; ++k) {
    unsigned x = octet * 4 + k + 1000 * row;
    x = (x ^ x >> 16) * 0x7feb352du, x = (x ^ x >> 15) * 0x846ca68bu;
    word[k] = x ^ x >> 16;
  }
}

__global__ void write_kept(float* kept /*[kRows, kKeys]*/, float* calls, unsigned threshold /*of 65536*/) {
  const int row = threadIdx.x / (kKeys / 8), octet = threadIdx.x % (kKeys / 8);
  unsigned word[4];
  generate(word, octet, row, calls);
  for (int e = 0; e < 8; ++e) {
    //# hole The 16 bits of key e of the eight.
    const unsigned bits = word[e / 2] >> e % 2 * 16 & 0xffff;
    //# skeleton: bits of the first word
    //| const unsigned bits = word[0] & 0xffff;
    //# also two-steps
    //| const unsigned pair = word[e / 2], bits = e % 2 ? pair >> 16 : pair & 0xffff;
    //# wrong word-of-four: Word k is for keys 2 k and 2 k + 1
    //| const unsigned bits = word[e % 4] >> e / 4 * 16 & 0xffff;
    //# wrong halves-turned: the lower 16 bits
    //| const unsigned bits = word[e / 2] >> (1 - e % 2) * 16 & 0xffff;
    //# wrong whole-word: have the odd key's above them
    //| const unsigned bits = word[e / 2] >> e % 2 * 16;
    //# end
    kept[row * kKeys + octet * 8 + e] = bits >= threshold;
  }
}

//# judge

void judge(Trial& t) {
  constexpr unsigned threshold = 20000;
  const auto kept = t.alloc("kept", kRows * kKeys), calls = t.upload("calls", Floats{0});
  write_kept<<<1, kRows * kKeys / 8>>>(kept.data(), calls.data(), threshold);
  t.findings();
  const auto answer = [&](auto bits) {
    Doubles want(kRows * kKeys);
    for (unsigned i = 0; i < kRows * kKeys; ++i) {
      const unsigned row = i / kKeys, octet = i % kKeys / 8;
      unsigned word[4];
      for (unsigned k = 0; k < 4; ++k) {
        unsigned x = octet * 4 + k + 1000 * row;
        x = (x ^ x >> 16) * 0x7feb352du, x = (x ^ x >> 15) * 0x846ca68bu;
        word[k] = x ^ x >> 16;
      }
      want[i] = bits(word, i % 8) >= threshold;
    }
    return want;
  };
  t.answer("kept", t.download(kept),
           answer([](const unsigned* word, unsigned e) { return word[e / 2] >> e % 2 * 16 & 0xffff; }), kKeys,
           {{answer([](const unsigned* word, unsigned) { return word[0] & 0xffff; }),
             "All keys have the bits of the first word: each pair has a word of its own."},
            {answer([](const unsigned* word, unsigned e) { return word[e % 4] >> e / 4 * 16 & 0xffff; }),
             "Word k is for keys 2 k and 2 k + 1, which are neighbours."},
            {answer([](const unsigned* word, unsigned e) { return word[e / 2] >> (1 - e % 2) * 16 & 0xffff; }),
             "The even key has the lower 16 bits, not the upper ones."},
            {answer([](const unsigned* word, unsigned e) { return word[e / 2] >> e % 2 * 16; }),
             "An even key's 16 bits have the odd key's above them: these are still there."}},
           1e-5, "row");
  t.predicted(static_cast<std::uint64_t>(t.download(calls)[0]));
}
