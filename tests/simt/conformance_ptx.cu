// conformance_ptx.cu: as conformance.cu for the instructions of gpu/ptx.cuh, which need compute capability 8.0:
// mma by the kinds of operands that could tell one rounding from another, ldmatrix, cp.async.
// Run: simt_conformance_test (against docs/results/conformance-h200.txt); record.cpp makes that file on a GPU.
#include "tests/simt/conformance.cuh"

namespace flash::inline FLASH_MACHINE {

// Which operands. Elements: 16 bits of which `keep` stay random and `set` are 1; C likewise of 32 bits.
struct Operands {
  unsigned keep, set, keep_c, set_c;
  bool cancel;  // the products of columns 2i and 2i + 1 are each other's negative, up to a bit now and then
};

// Each warp multiplies 64 times; D of one is C of the next but for every fourth, where C is random.
template <class T>
__global__ void products(Operands kind, unsigned* out /*[blocks][64][4][32]*/) {
  const unsigned lane = threadIdx.x;
  float d[4] = {};
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned seed = (blockIdx.x * 64 + i) * 10 * 32 + lane;
    const auto two = [&](unsigned n) {
      const unsigned word = mix(seed + n * 32);
      return (word & (kind.keep << 16 | kind.keep)) | kind.set << 16 | kind.set;
    };
    unsigned a[4] = {two(0), two(1), two(2), two(3)}, b[2] = {two(4), two(5)};
    if (kind.cancel) {
      for (unsigned& word : a) word = (word & 0xffffu) | word << 16;
      for (unsigned& word : b) word = (word & 0xffffu) | (word << 16 ^ 0x80000000u);
      if (mix(seed) % 8 == 0) a[i % 4] ^= 1u;
    }
    float c[4];
    for (unsigned n = 0; n < 4; ++n)
      c[n] = i % 4 == 0 ? __uint_as_float((mix(seed + (6 + n) * 32) & kind.keep_c) | kind.set_c) : d[n];
    mma_m16n8k16<T>(d, a, b, c);
    for (unsigned n = 0; n < 4; ++n) out[((blockIdx.x * 64 + i) * 4 + n) * 32 + lane] = __float_as_uint(d[n]);
  }
}

struct Matrices {
  alignas(16) unsigned short rows[64][8];
};

// Rows in a scrambled order, plain and transposed.
__global__ void matrix_loads(unsigned* out /*[2][4][32]*/) {
  Matrices& matrices = shared<Matrices>();
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < 512; i += 32) matrices.rows[i / 8][i % 8] = static_cast<unsigned short>(mix(i));
  __syncwarp();
  unsigned registers[4];
  ldmatrix_x4(registers, matrices.rows[(lane * 5 + 3) % 64]);
  for (unsigned i = 0; i < 4; ++i) out[i * 32 + lane] = registers[i];
  ldmatrix_x4_trans(registers, matrices.rows[lane * 7 % 64]);
  for (unsigned i = 0; i < 4; ++i) out[128 + i * 32 + lane] = registers[i];
}

struct Landing {
  alignas(16) uint4 slots[3][32];
};

// Three groups, of which the first two are waited for one after the other; sources of 0 to 16 bytes.
__global__ void copies(const uint4* in /*[3][32]*/, uint4* out /*[3][32]*/) {
  Landing& landing = shared<Landing>();
  const unsigned lane = threadIdx.x;
  for (unsigned group = 0; group < 3; ++group) {
    cp_async_16(&landing.slots[group][lane], &in[group * 32 + lane], group == 0 ? 16 : (lane + group) % 17);
    cp_async_commit();
  }
  cp_async_wait<2>();
  out[lane] = landing.slots[0][lane];
  cp_async_wait<1>();
  out[32 + lane] = landing.slots[1][lane];
  cp_async_wait<0>();
  out[64 + lane] = landing.slots[2][lane];
}

std::vector<Family> run_ptx_conformance(const MachineOptions& options) {
  Machine m(options);
  std::vector<Family> all;
  const auto mma = [&]<class T>(T, const char* name, Operands kind) {
    all.push_back(collect<unsigned>(m, name, 16 * 64 * 128, dim3(16), dim3(32), products<T>, kind));
  };
  // fp16: sign, 5 bits of exponent, 10 of fraction; bf16: 8 and 7.
  mma(__half{}, "mma_half_near_one", {0x8fff, 0x3000, 0x81ffffff, 0x3c000000, false});
  mma(__half{}, "mma_half_any_bits", {0xffff, 0, 0xffffffff, 0, false});
  mma(__half{}, "mma_half_finite", {0xbfff, 0, 0xbfffffff, 0, false});
  mma(__half{}, "mma_half_subnormal", {0x87ff, 0, 0x807fffff, 0x30000000, false});
  mma(__half{}, "mma_half_cancelling", {0x9fff, 0x2000, 0x83ffffff, 0x34000000, true});
  mma(__half{}, "mma_half_zeros", {0xbc00, 0, 0x80000000, 0, false});
  mma(__half{}, "mma_half_large", {0x8bff, 0x7000, 0x80ffffff, 0x7e000000, false});
  mma(__nv_bfloat16{}, "mma_bfloat16_near_one", {0x83ff, 0x3c00, 0x81ffffff, 0x3c000000, false});
  mma(__nv_bfloat16{}, "mma_bfloat16_any_bits", {0xffff, 0, 0xffffffff, 0, false});
  mma(__nv_bfloat16{}, "mma_bfloat16_finite", {0xbfff, 0, 0xbfffffff, 0, false});
  mma(__nv_bfloat16{}, "mma_bfloat16_subnormal", {0x80ff, 0, 0x80ffffff, 0, false});
  mma(__nv_bfloat16{}, "mma_bfloat16_small", {0x83ff, 0x1c00, 0x83ffffff, 0, false});
  mma(__nv_bfloat16{}, "mma_bfloat16_cancelling", {0x87ff, 0x3800, 0x83ffffff, 0x34000000, true});
  mma(__nv_bfloat16{}, "mma_bfloat16_large", {0x80ff, 0x5f00, 0x80ffffff, 0x7e000000, false});
  {
    Family family{"ldmatrix", std::vector<std::uint32_t>(256), 0};
    const Array<unsigned> out = m.upload("ldmatrix", family.words.data(), family.words.size());
    launch<Matrices>(m, matrix_loads, dim3(1), dim3(32), out.data());
    m.download(family.words.data(), out);
    all.push_back(std::move(family));
  }
  {
    Family family{"cp_async", std::vector<std::uint32_t>(3 * 32 * 4), 0};
    for (unsigned i = 0; i < family.words.size(); ++i) family.words[i] = i * 0x9e3779b9u + 1;
    const Array<std::uint32_t> in = m.upload("cp_async_in", family.words.data(), family.words.size());
    const Array<std::uint32_t> out = m.upload("cp_async", family.words.data(), family.words.size());
    launch<Landing>(m, copies, dim3(1), dim3(32), reinterpret_cast<const uint4*>(in.data()),
                    reinterpret_cast<uint4*>(out.data()));
    m.download(family.words.data(), out);
    all.push_back(std::move(family));
  }
  return all;
}

}  // namespace flash::inline FLASH_MACHINE
