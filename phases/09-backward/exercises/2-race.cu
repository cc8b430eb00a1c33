// 09.2 race: each block adds to the same dV: what happens when two come at once?
// An exercise of phase 09; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 09.2     Prove it: ./flash exercise --check 09.2

//# question
// dV_j = sum over i of P_ij dO_i. Here a block has 8 rows i, so each block has a part of every dV_j, and all blocks add
// their parts to the same array, which was set to 0 before. There are 4 blocks, and they run when they like.
// Make the sum right, whatever their order.

//# predict 4 How many times is each element of dV added to, in all?

//# hint
// x += y is three steps: read, add, write. What if another block reads between this one's read and its write?
//# hint
// __syncthreads() orders the threads of one block, and here two blocks meet. Which operation reads, adds and writes
// as one?
//# hint
// atomicAdd(&dV[j * D + d], sum)

//# because
// Once by each block. The sum is right, but fp32's rounding depends on who comes first: the last bits may change from
// run to run. That is why phase 09 has a deterministic mode, in which each block owns its keys.
//# next
// phases/09-backward/notebook.cpp: two kernels instead of one, and no atomics at all.

//# code

constexpr int D = 8, Br = 8;

// Block b has the rows b * Br to b * Br + 7; a thread has a key.
__global__ void value_gradient(const float* P /*[N, keys]*/, const float* dO /*[N, D]*/, float* dV /*[keys, D]*/,
                               int keys) {
  const int j = threadIdx.x, first_row = blockIdx.x * Br;
  for (int d = 0; d < D; ++d) {
    float sum = 0;
    for (int i = first_row; i < first_row + Br; ++i) sum = fmaf(P[i * keys + j], dO[i * D + d], sum);
    //# hole Add `sum` to dV[j * D + d], into which other blocks add as well.
    atomicAdd(&dV[j * D + d], sum);
    //# skeleton: Two blocks read, add and write
    //| dV[j * D + d] += sum;
    //# wrong barrier: A barrier orders the threads of one block
    //| __syncthreads();
    //| dV[j * D + d] += sum;
    //| __syncthreads();
    //# wrong overwritten: The last block to come overwrites
    //| atomicExch(&dV[j * D + d], sum);
    //# wrong first-block-only: Only one block's part is in dV
    //| if (blockIdx.x == 0) dV[j * D + d] += sum;
    //# wrong row-by-row: Add a block's part once
    //| for (int i = first_row; i < first_row + Br; ++i) atomicAdd(&dV[j * D + d], P[i * keys + j] * dO[i * D + d]);
    //# also compare-and-swap
    //| unsigned* const place = reinterpret_cast<unsigned*>(&dV[j * D + d]);
    //| unsigned seen = *place, before;
    //| do {
    //|   before = seen;
    //|   seen = atomicCAS(place, before, __float_as_uint(__uint_as_float(before) + sum));
    //| } while (seen != before);
    //# also compare-and-swap-atomically-read
    //| unsigned* const place = reinterpret_cast<unsigned*>(&dV[j * D + d]);
    //| unsigned seen = atomicAdd(place, 0u), before;
    //| do {
    //|   before = seen;
    //|   seen = atomicCAS(place, before, __float_as_uint(__uint_as_float(before) + sum));
    //| } while (seen != before);
    //# wrong fence: Two blocks read, add and write
    //| __threadfence();
    //| dV[j * D + d] += sum;
    //| __threadfence();
    //# wrong stored: overwrites what the others have left
    //| dV[j * D + d] = sum;
    //# wrong add-of-the-sum: dV is read beside the atomic
    //| atomicAdd(&dV[j * D + d], dV[j * D + d] + sum);
    //# wrong cas-once: must be tried again
    //| unsigned* const place = reinterpret_cast<unsigned*>(&dV[j * D + d]);
    //| const unsigned before = atomicAdd(place, 0u);
    //| atomicCAS(place, before, __float_as_uint(__uint_as_float(before) + sum));
    //# wrong exchange-what-was-read: dV is read beside the atomic
    //| atomicExch(&dV[j * D + d], dV[j * D + d] + sum);
    //# end
  }
}

//# judge

void judge(Trial& t) {
  constexpr int N = 32, kKeys = 32, kBlocks = N / Br;
  const Floats P = t.normal("P", N * kKeys), dO = t.normal("dO", N * D);
  const auto p = t.upload("P", P), d_o = t.upload("dO", dO), dv = t.upload("dV", Floats(kKeys * D));
  value_gradient<<<kBlocks, kKeys>>>(p.data(), d_o.data(), dv.data(), kKeys);
  // A loop around atomicCAS may read an old number at first: it finds out, and tries again.
  const bool loop = t.uses("atomicCAS") && (t.uses("while") || t.uses("for (") > 2);
  const auto& found = t.machine.findings();
  const bool only_old = std::all_of(found.begin(), found.end(), [](const Finding& f) {
    return f.text.find("race: read after atomic") == 0 || f.text.find("race: atomic after read") == 0;
  });
  const std::string overwritten =
      "The last block to come overwrites what the others have left: their parts must be added.";
  if (!loop || !only_old)
    t.findings({{"race: read after atomic",
                 "dV is read beside the atomic: when that comes, another block may have added more. "
                 "Let one operation read, add and write."},
                {"race: read after write",
                 t.uses("__syncthreads")
                     ? "A barrier orders the threads of one block; these are two blocks, and nothing orders them."
                     : "Two blocks read, add and write the same element, and one of the additions can get lost."},
                {"race: write after write", overwritten}});
  const auto part = [&](int begin, int end) {
    Doubles dV(kKeys * D);
    for (int i = begin * Br; i < end * Br; ++i)
      for (int j = 0; j < kKeys; ++j)
        for (int d = 0; d < D; ++d) dV[j * D + d] += double(P[i * kKeys + j]) * dO[i * D + d];
    return dV;
  };
  t.answer("dV", t.download(dv), part(0, kBlocks), D,
           {{part(kBlocks - 1, kBlocks), overwritten},
            {part(0, 1), "Only one block's part is in dV: each block has other rows."}},
           1e-5, "key");
  t.expect(!t.uses("atomicCAS") || loop,
           "atomicCAS writes only where it finds what it was told: else it must be tried again, until it does.");
  std::uint64_t additions = t.traffic("dV").written_bytes / (kKeys * D * 4);
  if (loop && additions == 2 * kBlocks) additions /= 2;  // what it adds to was read by an atomic, too
  t.count("the number of additions to an element", additions, kBlocks,
          "Add a block's part once, when it is complete: atomics are slow.");
  t.predicted(additions);
}
