// 05.7 bank-conflict: a tile is written by rows and read by columns: where must the rows begin?
// An exercise of phase 05; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 05.7     Prove it: ./flash exercise --check 05.7

//# question
// A block transposes a tile of 32 x 32 floats through shared memory. A warp writes a row of the tile, and then reads a
// column. Shared memory has 32 banks of 4 bytes; a bank delivers one word at a time. Element (r, c) lies at
// r * pitch + c, and its bank is that modulo 32.
// Choose the pitch, so that no bank is asked twice, with as little memory as that takes.

//# predict 32 With pitch = 32, in how many turns (wavefronts) does a warp get its column of 32 floats?

//# hint
// With pitch = 32, which bank has element (r, 0)? And with another pitch?
//# hint
// The 32 addresses r * pitch must be different modulo 32. For which pitch does r * pitch run through all banks?
//# hint
// Any odd number will do, and 33 is the smallest that a row fits into.

//# because
// All 32 elements of a column lie in one bank, and a bank delivers one word at a time. With 33 it is one turn.
//# next
// phases/05-first-kernel/steps/5-padded.cuh; exercise 11.1 does it without a spare column.

//# code

//# hole How many floats from one row of the tile to the next?
constexpr int pitch = 33;
//# skeleton: All rows begin in one bank
//| constexpr int pitch = 32;
//# wrong two-spare: Rows begin in 16 different banks
//| constexpr int pitch = 34;
//# wrong for-float4: Rows begin in 8 different banks
//| constexpr int pitch = 36;
//# wrong too-short: Rows overlap
//| constexpr int pitch = 31;
//# wrong too-long: is 4480 where 4224 will do
//| constexpr int pitch = 35;
//# wrong odd-but-long: is 8320 where 4224 will do
//| constexpr int pitch = 65;
//# end

// A block has 32 x 8 threads; pitch is a template's argument so that the judge can try others.
template <int pitch>
__global__ void transpose(const float* in /*[32, 32]*/, float* out /*[32, 32]*/) {
  __shared__ float tile[32 * pitch];
  for (int r = threadIdx.y; r < 32; r += 8) tile[r * pitch + threadIdx.x] = in[r * 32 + threadIdx.x];
  __syncthreads();
  for (int r = threadIdx.y; r < 32; r += 8) out[r * 32 + threadIdx.x] = tile[threadIdx.x * pitch + r];
}

//# judge

void judge(Trial& t) {
  const Floats In = t.normal("in", 32 * 32);
  const auto in = t.upload("in", In);
  const auto out = t.alloc("out", 32 * 32);
  transpose<pitch><<<1, dim3(32, 8)>>>(in.data(), out.data());
  t.findings({{"race", "Rows overlap: a row has 32 floats, so the next one begins 32 or more behind it."},
              {"out of bounds", "Rows overlap: a row has 32 floats, so the next one begins 32 or more behind it."}});
  Doubles exact(32 * 32);
  for (int i = 0; i < 32 * 32; ++i) exact[i] = In[i % 32 * 32 + i / 32];
  t.answer("out", t.download(out), exact, 32);
  int banks = 0;
  for (int b = 0, seen[32] = {}; b < 32; ++b) banks += !seen[b * pitch % 32]++;
  t.count("the number of bank conflicts", t.ledger().bank_conflicts(), 0,
          (banks > 1 ? "Rows begin in " + std::to_string(banks) + " different banks" : "All rows begin in one bank") +
              ", and the 32 elements of a column must share that.");
  t.count("the shared memory in bytes", t.ledger().shared_bytes_peak, 32 * 33 * 4,
          "There is a smaller pitch without conflicts.");
  transpose<32><<<1, dim3(32, 8)>>>(in.data(), out.data());
  t.predicted((t.ledger().shared_wavefronts - t.ledger().shared_write_requests) / t.ledger().shared_read_requests);
}
