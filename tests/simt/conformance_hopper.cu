// conformance_hopper.cu: as conformance.cu for Hopper's copies of bytes, bulk reductions and mbarriers, which need
// sm_90a: copies of every size up to 1 KiB; additions that round, or of subnormals, infinities, NaN and zeros;
// what mbarrier_test_wait answers, and an mbarrier that is made anew; blocks that count and wait for counts.
// Run: simt_conformance_test (against docs/results/conformance-hopper-h200.txt); record.cpp makes that file on a GPU.
#include "gpu/hopper.cuh"
#include "tests/simt/conformance.cuh"

namespace flash::inline FLASH_MACHINE {

constexpr unsigned kWords = 256;
struct HopperLine {
  alignas(16) unsigned in[kWords], out[kWords];
  std::uint64_t full;
  unsigned turn;
};

// Block b copies 16 (b + 1) bytes, changes them, and copies them back.
__global__ void bulk_copies(const unsigned* in /*[kWords]*/, unsigned* out /*[64][kWords]*/) {
  HopperLine& s = shared<HopperLine>();
  const unsigned t = threadIdx.x, words = 4 * (blockIdx.x + 1);
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&s.full, 4 * words);
    cp_async_bulk(s.in, in, 4 * words, &s.full);
  }
  __syncthreads();
  while (!mbarrier_test_wait(&s.full, 0)) {
  }
  for (unsigned i = t; i < words; i += blockDim.x) s.out[i] = s.in[i] ^ blockIdx.x;
  fence_proxy_async();
  __syncthreads();
  if (t != 0) return;
  cp_async_bulk_store(out + blockIdx.x * kWords, s.out, 4 * words);
  cp_async_bulk_commit();
  cp_async_bulk_wait<0>();
}

// Which floats: random words of which `keep` stay and `set` are 1, of the second operand `keep_b` and `set_b`.
struct SummandKind {
  unsigned keep, set, keep_b, set_b;
};
// Each block adds 256 floats to 256 others. `to` holds the latter.
__global__ void bulk_sums(SummandKind kind, float* to /*[16][kWords]*/) {
  HopperLine& s = shared<HopperLine>();
  const unsigned t = threadIdx.x;
  for (unsigned i = t; i < kWords; i += blockDim.x) s.out[i] = (mix(blockIdx.x * kWords + i) & kind.keep) | kind.set;
  fence_proxy_async();
  __syncthreads();
  if (t != 0) return;
  cp_reduce_async_bulk_add(to + blockIdx.x * kWords, reinterpret_cast<float*>(s.out), 4 * kWords);
  cp_async_bulk_commit();
  cp_async_bulk_wait<0>();
}

// Every pair of these: zeros, the smallest and largest numbers of each kind, infinities, NaN quiet and signalling.
__device__ const unsigned kSpecials[16] = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x807fffff,
                                           0x00800000, 0x80800000, 0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff,
                                           0x7f800000, 0xff800000, 0x7fc00123, 0xff800001};
__global__ void bulk_specials(float* to /*[kWords]*/) {
  HopperLine& s = shared<HopperLine>();
  const unsigned t = threadIdx.x;
  for (unsigned i = t; i < kWords; i += blockDim.x) s.out[i] = kSpecials[i / 16];
  fence_proxy_async();
  __syncthreads();
  if (t != 0) return;
  cp_reduce_async_bulk_add(to, reinterpret_cast<float*>(s.out), 4 * kWords);
  cp_async_bulk_commit();
  cp_async_bulk_wait<0>();
}

// The answers for both parities before and after each of three phases; twice, of an mbarrier that is made anew.
__global__ void mbarrier_answers(unsigned* out /*[32]*/) {
  HopperLine& s = shared<HopperLine>();
  if (threadIdx.x != 0) return;
  for (unsigned life = 0; life < 2; ++life) {
    mbarrier_init(&s.full, 2);
    fence_mbarrier_init();
    for (unsigned phase = 0; phase < 4; ++phase) {
      unsigned* const answers = out + (life * 4 + phase) * 4;
      answers[0] = mbarrier_test_wait(&s.full, 0);
      answers[1] = mbarrier_test_wait(&s.full, 1);
      mbarrier_arrive(&s.full);
      answers[2] = mbarrier_test_wait(&s.full, phase & 1);
      mbarrier_arrive(&s.full);
      answers[3] = mbarrier_try_wait(&s.full, phase & 1);
    }
    mbarrier_inval(&s.full);
  }
}

// ---- counts: red_release_add, wait_at_least ---------------------------------------------------------------------
// In which place this block has begun: it may wait for those before it.
__device__ inline unsigned turn_of_block(HopperLine& s, unsigned* tickets) {
  if (threadIdx.x == 0) s.turn = atomicAdd(tickets, 1u);
  __syncthreads();
  return s.turn;
}

// A line goes from block to block. Each waits for its turn, changes what the one before it has left, and counts.
__global__ void counted_turns(unsigned* counts /*[2]*/, unsigned* line /*[64]*/, unsigned* out /*[blocks][64]*/) {
  const unsigned t = threadIdx.x, turn = turn_of_block(shared<HopperLine>(), counts);
  wait_at_least(counts + 1, turn);
  const unsigned mine = mix(line[t ^ 21] + turn);
  __syncthreads();  // all have read the line
  line[t] = out[turn * 64 + t] = mine;
  __syncthreads();  // all have written it
  if (t == 0) red_release_add(counts + 1, 1);
}

// All blocks but the last store a line and count it, each by another number, from `first` on; the last waits for all.
__global__ void counted_lines(unsigned first, unsigned* counts /*[2]*/, unsigned* out /*[blocks][64]*/) {
  const unsigned t = threadIdx.x, turn = turn_of_block(shared<HopperLine>(), counts), last = gridDim.x - 1;
  if (turn < last) {
    out[turn * 64 + t] = mix(turn * 64 + t);
    __syncthreads();
    if (t == 0) red_release_add(counts + 1, turn + 1);
    return;
  }
  if (t == 0) {
    wait_at_least(counts + 1, first + last * (last + 1) / 2);
    wait_at_least(counts + 1, first);
  }
  __syncthreads();
  unsigned sum = atomicAdd(counts + 1, 0u);
  for (unsigned of = 0; of < last; ++of) sum = sum * 31 + out[of * 64 + (t + of) % 64];
  out[last * 64 + t] = sum;
}

// Reductions in turn, so that their order, on which the bits depend, is always the same. The last block copies the sum.
__global__ void counted_reductions(unsigned* counts /*[2]*/, float* sum /*[kWords]*/, unsigned* out /*[kWords]*/) {
  HopperLine& s = shared<HopperLine>();
  const unsigned t = threadIdx.x, turn = turn_of_block(s, counts);
  for (unsigned i = t; i < kWords; i += blockDim.x) s.out[i] = (mix(turn * kWords + i) & 0x83ffffff) | 0x3c000000;
  fence_proxy_async();
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  const bool last = turn == gridDim.x - 1;
  if (t == 0) {
    wait_at_least(counts + 1, turn);
    fence_proxy_async_global();
    cp_reduce_async_bulk_add(sum, reinterpret_cast<float*>(s.out), 4 * kWords);
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
    red_release_add(counts + 1, 1);
    if (last) {
      fence_proxy_async_global();
      mbarrier_arrive_expect_tx(&s.full, 4 * kWords);
      cp_async_bulk(s.in, sum, 4 * kWords, &s.full);
    }
  }
  if (!last) return;
  mbarrier_wait(&s.full, 0);
  for (unsigned i = t; i < kWords; i += blockDim.x) out[i] = s.in[i];
}

std::vector<Family> run_hopper_conformance(const MachineOptions& options) {
  Machine m(options);
  std::vector<Family> all;
  const auto on_host = [](unsigned x) {  // mix(), which is the device's
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
  };
  {
    std::vector<unsigned> words(kWords);
    for (unsigned i = 0; i < kWords; ++i) words[i] = on_host(i);
    Family family{"bulk_copies", std::vector<std::uint32_t>(64 * kWords), 0};
    const auto in = m.upload("in", words.data(), words.size());
    const auto out = m.upload("out", family.words.data(), family.words.size());
    launch<HopperLine>(m, bulk_copies, dim3(64), dim3(64), in.data(), out.data());
    m.download(family.words.data(), out);
    all.push_back(std::move(family));
  }
  const auto sums = [&](const char* name, SummandKind kind) {
    Family family{name, std::vector<std::uint32_t>(16 * kWords), 0};
    for (unsigned i = 0; i < family.words.size(); ++i) family.words[i] = (on_host(~i) & kind.keep_b) | kind.set_b;
    const auto to = m.upload("to", family.words.data(), family.words.size());
    launch<HopperLine>(m, bulk_sums, dim3(16), dim3(64), kind, reinterpret_cast<float*>(to.data()));
    m.download(family.words.data(), to);
    all.push_back(std::move(family));
  };
  sums("bulk_sums", {0x83ffffff, 0x3c000000, 0x83ffffff, 0x3c000000});
  sums("bulk_sums_any_bits", {0xffffffff, 0, 0xffffffff, 0});
  sums("bulk_sums_ties", {0x80ffff00, 0x3f000000, 0x80ffffff, 0x4b000000});
  sums("bulk_sums_cancelling", {0x007fffff, 0x3f800000, 0x007fffff, 0xbf800000});
  sums("bulk_sums_subnormal", {0x807fffff, 0, 0x80ffffff, 0});
  sums("bulk_sums_large", {0x80ffffff, 0x7e000000, 0x80ffffff, 0x7e000000});
  {
    Family family{"bulk_specials", std::vector<std::uint32_t>(kWords), 0};
    constexpr unsigned specials[16] = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x807fffff,
                                       0x00800000, 0x80800000, 0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff,
                                       0x7f800000, 0xff800000, 0x7fc00123, 0xff800001};
    for (unsigned i = 0; i < kWords; ++i) family.words[i] = specials[i % 16];
    const auto to = m.upload("to", family.words.data(), family.words.size());
    launch<HopperLine>(m, bulk_specials, dim3(1), dim3(64), reinterpret_cast<float*>(to.data()));
    m.download(family.words.data(), to);
    all.push_back(std::move(family));
  }
  {
    Family family{"mbarrier_answers", std::vector<std::uint32_t>(32), 0};
    const auto out = m.upload("out", family.words.data(), family.words.size());
    launch<HopperLine>(m, mbarrier_answers, dim3(1), dim3(32), out.data());
    m.download(family.words.data(), out);
    all.push_back(std::move(family));
  }
  constexpr unsigned kBlocks = 24;
  const auto counted = [&](const char* name, std::size_t words, unsigned first, auto&& run) {
    Family family{name, std::vector<std::uint32_t>(words), 0};
    const std::vector<unsigned> zeros(kWords), start{0, first};
    const auto counts = m.upload("counts", start.data(), start.size());
    const auto line = m.upload("line", zeros.data(), zeros.size());
    const auto out = m.upload("out", family.words.data(), words);
    run(counts.data(), line.data(), out.data());
    m.download(family.words.data(), out);
    all.push_back(std::move(family));
  };
  counted("counted_turns", kBlocks * 64, 0, [&](unsigned* counts, unsigned* line, unsigned* out) {
    launch<HopperLine>(m, counted_turns, dim3(kBlocks), dim3(64), counts, line, out);
  });
  constexpr unsigned kFirst = 0x7ffffff8;  // the count passes 2^31: it has no sign
  counted("counted_lines", kBlocks * 64, kFirst, [&](unsigned* counts, unsigned*, unsigned* out) {
    launch<HopperLine>(m, counted_lines, dim3(kBlocks), dim3(64), kFirst, counts, out);
  });
  counted("counted_reductions", kWords, 0, [&](unsigned* counts, unsigned* line, unsigned* out) {
    launch<HopperLine>(m, counted_reductions, dim3(kBlocks), dim3(64), counts, reinterpret_cast<float*>(line), out);
  });
  return all;
}

}  // namespace flash::inline FLASH_MACHINE
