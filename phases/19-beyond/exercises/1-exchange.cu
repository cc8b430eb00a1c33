// 19.1 exchange: what four lanes hold of a row is scattered: how do they store 16 bytes each?
// An exercise of phase 19; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 19.1     Prove it: ./flash exercise --check 19.1

//# question
// A product leaves its rows scattered over lanes. Of 32 columns lane t of four has columns 8 e + 2 t and the next one,
// for e = 0 to 3: that pair is w[e]. To store 16 bytes, lane t needs the four pairs of group t, in order:
//     lane 0 has A0 B0 C0 D0     and needs A0 A1 A2 A3
//     lane 1 has A1 B1 C1 D1     and needs B0 B1 B2 B3
//     lane 2 has A2 B2 C2 D2     and needs C0 C1 C2 C3
//     lane 3 has A3 B3 C3 D3     and needs D0 D1 D2 D3
// __shfl_xor_sync(0xffffffffu, x, 1) returns what lane ^ 1 has given as its x. Let the lanes exchange their pairs.

//# predict 32 Stored as they are, 4 bytes at a time, how many sectors of 32 bytes do 8 rows of 32 halves touch in all?

//# hint
// This is a 4 x 4 matrix that is to be transposed. Transpose its 2 x 2 blocks first: lane 0 gives B0 and gets A1,
// lane 1 gives A1 and gets B0. The same goes for C and D.
//# hint
// An even lane gives w[1] and w[3], an odd one w[0] and w[2]; what they get comes to the same places. Then exchange the
// blocks in the same way: with lane ^ 2, w[2] and w[3] for w[0] and w[1].
//# hint
// const unsigned x = __shfl_xor_sync(0xffffffffu, odd ? w[0] : w[1], 1); (odd ? w[0] : w[1]) = x; with odd = t & 1. The
// same for w[2] and w[3]. Then with upper = t & 2 and lane ^ 2: w[0] or w[2], and w[1] or w[3].

//# because
// Four lanes store 4 bytes each, 16 bytes of a row: half a sector. So each of the 16 sectors is touched twice, and by
// four instructions instead of one. The exchange costs four shuffles.
//# next
// phases/19-beyond/notebook.cpp, "O out of registers": at D = 256 no shared memory is left for O on its way out.

//# code

// One warp, 8 rows of 32 halves. Lanes 4 r to 4 r + 3 have row r, four pairs each.
template <bool kExchange>
__global__ void store_rows(const unsigned* pairs /*[32, 4]*/, __half* O /*[8, 32]*/) {
  const int row = threadIdx.x / 4, t = threadIdx.x % 4;
  unsigned w[4];
  for (int e = 0; e < 4; ++e) w[e] = pairs[threadIdx.x * 4 + e];
  if (!kExchange) {
    for (int e = 0; e < 4; ++e) *reinterpret_cast<unsigned*>(&O[row * 32 + e * 8 + t * 2]) = w[e];
    return;
  }
  //# hole Let the four lanes exchange their pairs: lane t gets those of group t.
  const bool odd = t & 1, upper = t & 2;
  const unsigned x0 = __shfl_xor_sync(0xffffffffu, odd ? w[0] : w[1], 1);
  const unsigned x1 = __shfl_xor_sync(0xffffffffu, odd ? w[2] : w[3], 1);
  (odd ? w[0] : w[1]) = x0, (odd ? w[2] : w[3]) = x1;
  const unsigned y0 = __shfl_xor_sync(0xffffffffu, upper ? w[0] : w[2], 2);
  const unsigned y1 = __shfl_xor_sync(0xffffffffu, upper ? w[1] : w[3], 2);
  (upper ? w[0] : w[2]) = y0, (upper ? w[1] : w[3]) = y1;
  //# skeleton: Nothing has been exchanged
  //|
  //# also two-apart-first
  //| for (int apart = 2; apart > 0; apart /= 2)
  //|   for (int e = 0; e < 4; ++e) {
  //|     if (e & apart) continue;
  //|     unsigned& mine = t & apart ? w[e] : w[e + apart];
  //|     mine = __shfl_xor_sync(0xffffffffu, mine, apart);
  //|   }
  //# also sixteen-shuffles
  //| unsigned all[4];
  //| for (int e = 0; e < 4; ++e)
  //|   for (int from = 0; from < 4; ++from) {
  //|     const unsigned x = __shfl_sync(0xffffffffu, w[e], from, 4);
  //|     if (e == t) all[from] = x;
  //|   }
  //| for (int e = 0; e < 4; ++e) w[e] = all[e];
  //# wrong neighbours-only: The 2 x 2 blocks are transposed
  //| const bool odd = t & 1;
  //| const unsigned x0 = __shfl_xor_sync(0xffffffffu, odd ? w[0] : w[1], 1);
  //| const unsigned x1 = __shfl_xor_sync(0xffffffffu, odd ? w[2] : w[3], 1);
  //| (odd ? w[0] : w[1]) = x0, (odd ? w[2] : w[3]) = x1;
  //# wrong blocks-only: The 2 x 2 blocks have changed places
  //| const bool upper = t & 2;
  //| const unsigned y0 = __shfl_xor_sync(0xffffffffu, upper ? w[0] : w[2], 2);
  //| const unsigned y1 = __shfl_xor_sync(0xffffffffu, upper ? w[1] : w[3], 2);
  //| (upper ? w[0] : w[2]) = y0, (upper ? w[1] : w[3]) = y1;
  //# wrong lanes-upside-down: Each lane has given away
  //| const bool odd = t & 1, upper = t & 2;
  //| const unsigned x0 = __shfl_xor_sync(0xffffffffu, odd ? w[1] : w[0], 1);
  //| const unsigned x1 = __shfl_xor_sync(0xffffffffu, odd ? w[3] : w[2], 1);
  //| (odd ? w[1] : w[0]) = x0, (odd ? w[3] : w[2]) = x1;
  //| const unsigned y0 = __shfl_xor_sync(0xffffffffu, upper ? w[2] : w[0], 2);
  //| const unsigned y1 = __shfl_xor_sync(0xffffffffu, upper ? w[3] : w[1], 2);
  //| (upper ? w[2] : w[0]) = y0, (upper ? w[3] : w[1]) = y1;
  //# wrong same-register: Each lane still has a pair of each group
  //| for (int e = 1; e < 4; ++e) w[e] = __shfl_xor_sync(0xffffffffu, w[e], e);
  //# wrong in-a-row: All four lanes have got the same pairs
  //| for (int e = 0; e < 4; ++e) w[e] = __shfl_sync(0xffffffffu, w[t], e, 4);
  //# wrong broadcast: Nothing has been exchanged
  //| for (int e = 0; e < 4; ++e) w[e] = __shfl_sync(0xffffffffu, w[e], t, 4);
  //# wrong steps-swapped-registers: Each step has exchanged the pairs of the other
  //| const bool odd = t & 1, upper = t & 2;
  //| const unsigned x0 = __shfl_xor_sync(0xffffffffu, odd ? w[0] : w[2], 1);
  //| const unsigned x1 = __shfl_xor_sync(0xffffffffu, odd ? w[1] : w[3], 1);
  //| (odd ? w[0] : w[2]) = x0, (odd ? w[1] : w[3]) = x1;
  //| const unsigned y0 = __shfl_xor_sync(0xffffffffu, upper ? w[0] : w[1], 2);
  //| const unsigned y1 = __shfl_xor_sync(0xffffffffu, upper ? w[2] : w[3], 2);
  //| (upper ? w[0] : w[1]) = y0, (upper ? w[2] : w[3]) = y1;
  //# wrong divergent: the same call
  //| const bool odd = t & 1, upper = t & 2;
  //| if (odd) w[0] = __shfl_xor_sync(0xffffffffu, w[0], 1), w[2] = __shfl_xor_sync(0xffffffffu, w[2], 1);
  //| else w[1] = __shfl_xor_sync(0xffffffffu, w[1], 1), w[3] = __shfl_xor_sync(0xffffffffu, w[3], 1);
  //| if (upper) w[0] = __shfl_xor_sync(0xffffffffu, w[0], 2), w[1] = __shfl_xor_sync(0xffffffffu, w[1], 2);
  //| else w[2] = __shfl_xor_sync(0xffffffffu, w[2], 2), w[3] = __shfl_xor_sync(0xffffffffu, w[3], 2);
  //# end
  *reinterpret_cast<uint4*>(&O[row * 32 + t * 8]) = make_uint4(w[0], w[1], w[2], w[3]);
}

//# judge

void judge(Trial& t) {
  constexpr int kSize = 8 * 32;
  std::vector<unsigned> pairs;  // the elements are their own numbers
  for (int lane = 0; lane < 32; ++lane)
    for (int e = 0; e < 4; ++e) {
      const int i = lane / 4 * 32 + e * 8 + lane % 4 * 2;
      const auto bits = [](int element) { return unsigned{__half_as_ushort(__float2half(float(element)))}; };
      pairs.push_back(bits(i) | bits(i + 1) << 16);
    }
  const auto in = t.upload("pairs", pairs);
  const auto plain = t.machine.alloc<__half>("plain", kSize), out = t.machine.alloc<__half>("O", kSize);
  store_rows<false><<<1, 32>>>(in.data(), plain.data());
  const std::uint64_t before = t.traffic("plain").write_sectors;
  store_rows<true><<<1, 32>>>(in.data(), out.data());
  t.findings();
  // What is stored if w[k] of lane g becomes pair `pair` of group `group`.
  const auto stored = [&](auto group, auto pair) {
    Doubles O(kSize);
    for (int i = 0; i < kSize; ++i) {
      const int g = i % 32 / 8, k = i % 8 / 2;
      O[i] = i / 32 * 32 + group(g, k) * 8 + pair(g, k) * 2 + i % 2;
    }
    return O;
  };
  const auto lane = [](int g, int) { return g; };
  const auto place = [](int, int k) { return k; };
  Floats got;
  for (const __half x : t.download(out)) got.push_back(__half2float(x));
  const Doubles exact = stored(lane, place);
  t.answer(
      "O", got, exact, 32,
      {{stored(place, lane), "Nothing has been exchanged: lane t still has a pair of each group."},
       {stored([](int g, int k) { return k / 2 * 2 + g % 2; }, [](int g, int k) { return g / 2 * 2 + k % 2; }),
        "The 2 x 2 blocks are transposed, but they are not in their places: lanes that are two apart must "
        "exchange, too."},
       {stored([](int g, int k) { return g / 2 * 2 + k % 2; }, [](int g, int k) { return k / 2 * 2 + g % 2; }),
        "The 2 x 2 blocks have changed places, but each must be transposed, too: by neighbouring lanes."},
       {stored([](int, int k) { return k; }, [](int, int k) { return k; }),
        "All four lanes have got the same pairs: a shuffle returns the register that the other lane has chosen, and "
        "each has chosen that of its own number."},
       {stored([](int g, int) { return g / 2 + g % 2 * 2; }, [](int, int k) { return k / 2 + k % 2 * 2; }),
        "Each step has exchanged the pairs of the other: with lane ^ 1 go w[0] and w[1], w[2] and w[3]; with lane ^ 2 "
        "go w[0] and w[2], w[1] and w[3]."},
       {stored([](int g, int) { return 3 - g; }, [](int, int k) { return 3 - k; }),
        "Each lane has given away the pairs that it needs itself: an even lane keeps w[0] and w[2]."},
       {stored(place, [](int g, int k) { return g ^ k; }),
        "Each lane still has a pair of each group: what a lane gives must be what its partner needs, and that is "
        "another register than the one it wants."}});
  t.predicted(before);
}
