// conformance_wgmma.cu: as conformance.cu for wgmma and stmatrix, which need sm_90a: products in each form (A in shared
// memory or in registers, A and B K-major or MN-major, every N) by the kinds of operands that could tell one rounding
// from another, descriptors whose fields do not matter, or do, and matrices that begin anywhere in a row of the
// swizzle. And atomic additions of floats, which treat numbers as no other instruction does.
// Run: simt_conformance_test (against docs/results/conformance-wgmma-h200.txt); record.cpp makes that file on a GPU.
#include <utility>

#include "gpu/hopper.cuh"
#include "tests/simt/conformance.cuh"

namespace flash::inline FLASH_MACHINE {

// Elements: 16 bits of which `keep` stay random and `set` are 1; those of C likewise, 32 bits.
struct WgmmaOperandKind {
  unsigned keep, set, keep_c, set_c;
  bool cancel;      // the products of columns 2i and 2i + 1 are each other's negative, up to a bit now and then
  bool accumulate;  // else D = A B, and C is not read
  bool specials;    // of 256 pairs of elements one keeps its highest bit of the exponent, and may be no number
};

struct WgmmaTiles {
  alignas(1024) unsigned short a[64 * 64];
  alignas(1024) unsigned short b[256 * 64];
};

constexpr int kProducts = 8;

// What no other descriptor says: the leading distance where it has no meaning; that A and B begin so many bytes further
// on, and how many steps of 16 there are; and how many blocks.
struct WgmmaPlaces {
  unsigned leading = 16, at_a = 0, at_b = 0, steps = 4, blocks = 1;
};

// Elements 2i and 2i + 1 of A's rows, or of B's columns: a word.
__device__ inline unsigned operands(WgmmaOperandKind kind, unsigned seed, unsigned n, bool of_b) {
  unsigned word = (mix(seed + n + (of_b ? 32768 : 0)) & (kind.keep << 16 | kind.keep)) | kind.set << 16 | kind.set;
  if (kind.cancel) word = (word & 0xffffu) | (word << 16 ^ (of_b ? 0x80000000u : 0));
  if (kind.cancel && !of_b && mix(seed + n) % 64 == 0) word ^= 1u;
  if (kind.specials && mix(seed + n + 49152) % 256 != 0) word &= 0xbfffbfffu;
  return word;
}

// Where element k of a row of A or of a column of B lies, in panels of 64 of them.
__device__ inline unsigned place_of(Major major, unsigned i, unsigned k) {
  return major == Major::K ? i * 64 + (k / 8 ^ i % 8) * 8 + k % 8
                           : i / 64 * 4096 + k * 64 + (i % 64 / 8 ^ k % 8) * 8 + i % 8;
}

// All of A, and `columns` of B. No template, so that it is compiled once.
__device__ inline void fill(WgmmaTiles& s, WgmmaOperandKind kind, unsigned seed, Major a, Major b, unsigned columns) {
  for (unsigned n = threadIdx.x; n < (64 + columns) * 32; n += 128) {
    const bool of_b = n >= 64 * 32;
    const unsigned pair = of_b ? n - 64 * 32 : n, word = operands(kind, seed, pair, of_b);
    for (unsigned half = 0; half < 2; ++half)
      (of_b ? s.b : s.a)[place_of(of_b ? b : a, pair / 32, pair % 32 * 2 + half)] =
          static_cast<unsigned short>(word >> 16 * half);
  }
}

// Each block multiplies eight times 64 columns of A with 64 rows of B; D of one is C of the next but for every fourth,
// where C is random.
template <class T, Major kA, Major kB, bool kRegistersA, int kN>
__global__ void wgmma_products(WgmmaOperandKind kind, WgmmaPlaces places,
                               unsigned* out /*[blocks][kProducts][kN / 2][128]*/) {
  WgmmaTiles& s = shared<WgmmaTiles>();
  const unsigned t = threadIdx.x, lane = t % 32;
  float d[kN / 2];
  for (unsigned i = 0; i < kProducts; ++i) {
    const unsigned seed = (blockIdx.x * kProducts + i) * 65536;
    __syncthreads();
    fill(s, kind, seed, kA, kB, kN < 64 ? 64 : kN);  // a whole panel, of which 32 columns are a part
    fence_proxy_async();
    __syncthreads();
    if (i % 4 == 0)
      for (unsigned n = 0; n < kN / 2; ++n)
        d[n] = __uint_as_float((mix(seed + 24576 + n * 128 + t) & kind.keep_c) | kind.set_c);
    unsigned a[4][4] = {};
    for (unsigned step = 0; kRegistersA && step < 4; ++step)
      for (unsigned r = 0; r < 4; ++r)
        a[step][r] =
            operands(kind, seed, (t / 32 * 16 + lane / 4 + r % 2 * 8) * 32 + step * 8 + lane % 4 + r / 2 * 4, false);
    const MatrixDescriptor of_a = matrix_descriptor(s.a, places.leading) + places.at_a;
    const MatrixDescriptor of_b = matrix_descriptor(s.b, kB == Major::K ? places.leading : 8192) + places.at_b;
    wgmma_fence();
#pragma unroll
    for (unsigned step = 0; step < 4; ++step) {
      if (step >= places.steps) break;
      const unsigned at_b = kB == Major::K ? step * 32 : step * 2048;
      const bool accumulate = kind.accumulate || step > 0;
      if constexpr (kRegistersA)
        wgmma_m64nNk16<T, kB>(d, a[step], of_b + at_b, accumulate);
      else
        wgmma_m64nNk16<T, kB, kA>(d, of_a + step * (kA == Major::K ? 32 : 2048), of_b + at_b, accumulate);
    }
    wgmma_commit();
    wgmma_wait<0>(d, a);
#pragma unroll
    for (unsigned n = 0; n < kN / 2; ++n)
      out[((blockIdx.x * kProducts + i) * (kN / 2) + n) * 128 + t] = __float_as_uint(d[n]);
  }
}

struct Stored {
  alignas(16) unsigned short rows[64][8];
};

// Rows in a scrambled order.
__global__ void matrix_stores(unsigned* out /*[256]*/) {
  Stored& s = shared<Stored>();
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < 512; i += 32) s.rows[i / 8][i % 8] = 0;
  __syncwarp();
  const unsigned registers[4] = {mix(lane), mix(lane + 32), mix(lane + 64), mix(lane + 96)};
  stmatrix_x4(s.rows[(lane * 5 + 3) % 64], registers);
  __syncwarp();
  for (unsigned i = lane; i < 256; i += 32)
    out[i] = s.rows[i / 4][i % 4 * 2] | static_cast<unsigned>(s.rows[i / 4][i % 4 * 2 + 1]) << 16;
}

// ---- atomic additions of floats ------------------------------------------------------------------------------------

constexpr unsigned kAddends = 32, kSums = kAddends * kAddends;

// Zeros, the smallest and largest subnormal and normal numbers, halves of units in the last place, infinities, NaN.
__device__ inline unsigned addend(unsigned i) {
  constexpr unsigned some[16] = {0u,          1u,          0x400000u,   0x7fffffu,   0x800000u,   0x800001u,
                                 0x800003u,   0x1000000u,  0x3f800000u, 0x3f800001u, 0x33800000u, 0x33800001u,
                                 0x7f7fffffu, 0x73000000u, 0x7f800000u, 0x7fc12345u};
  return some[i % 16] | i / 16 << 31;
}

enum class Add { global, global_unused, shared, float2s, float4s, red };

// Word i: what is left of addend i / 32 when addend i % 32 was added to it, once.
template <Add kAdd>
__global__ void atomic_sums(float4* scratch /*[kSums]*/, unsigned* out /*[kSums]*/) {
  __shared__ float own[128];
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float before = __uint_as_float(addend(i / kAddends)), v = __uint_as_float(addend(i % kAddends));
  float4& at = scratch[i];
  at = make_float4(before, before, before, before);
  own[threadIdx.x] = before;
  __syncthreads();
  float* const place = kAdd == Add::shared ? &own[threadIdx.x] : &at.w;
  unsigned old = addend(i / kAddends);
  if (kAdd == Add::global) old = __float_as_uint(atomicAdd(place, v));
  if (kAdd == Add::global_unused || kAdd == Add::shared) atomicAdd(place, v);
  if (kAdd == Add::float2s) atomicAdd(reinterpret_cast<float2*>(&at.z), make_float2(v, v));
  if (kAdd == Add::float4s) atomicAdd(&at, make_float4(v, v, v, v));
  if (kAdd == Add::red) red_add_v4(&at.x, make_float4(v, v, v, v));
  __syncthreads();
  out[i] = old == addend(i / kAddends) ? __float_as_uint(*place) : 0xdeadu;
}

std::vector<Family> run_wgmma_conformance(const MachineOptions& options) {
  Machine m(options);
  std::vector<Family> all;
  const auto run = [&](void (*kernel)(WgmmaOperandKind, WgmmaPlaces, unsigned*), int N, const std::string& name,
                       WgmmaOperandKind kind, WgmmaPlaces places) {
    Family family{name, std::vector<std::uint32_t>(places.blocks * kProducts * N / 2 * 128), 0};
    const Array<unsigned> out = m.upload(name.c_str(), family.words.data(), family.words.size());
    launch<WgmmaTiles>(m, kernel, dim3(places.blocks), dim3(128), kind, places, out.data());
    m.download(family.words.data(), out);
    all.push_back(std::move(family));
  };
  const auto collect_of = [&]<class T, Major kA, Major kB, bool kRegistersA, int kN>(
                              const std::string& name, WgmmaOperandKind kind, WgmmaPlaces places) {
    run(wgmma_products<T, kA, kB, kRegistersA, kN>, kN, name, kind, places);
  };
  const auto collect_wgmma = [&]<class T, Major kB, bool kRegistersA, int kN>(const std::string& name,
                                                                              WgmmaOperandKind kind, unsigned leading) {
    collect_of.template operator()<T, Major::K, kB, kRegistersA, kN>(name, kind, {.leading = leading, .blocks = 2});
  };
  // Every form, with numbers near 1.
  const auto forms = [&]<class T>(T, const std::string& type, WgmmaOperandKind kind) {
    const auto sizes = [&]<Major kB, bool kRegistersA>(const std::string& form) {
      collect_wgmma.template operator()<T, kB, kRegistersA, 64>(type + form + "_n64", kind, 16);
      collect_wgmma.template operator()<T, kB, kRegistersA, 80>(type + form + "_n80", kind, 16);
      collect_wgmma.template operator()<T, kB, kRegistersA, 96>(type + form + "_n96", kind, 16);
      collect_wgmma.template operator()<T, kB, kRegistersA, 128>(type + form + "_n128", kind, 16);
      collect_wgmma.template operator()<T, kB, kRegistersA, 256>(type + form + "_n256", kind, 16);
    };
    sizes.template operator()<Major::K, false>("_ss_k");
    sizes.template operator()<Major::MN, false>("_ss_mn");
    sizes.template operator()<Major::K, true>("_rs_k");
    sizes.template operator()<Major::MN, true>("_rs_mn");
  };
  forms(__half{}, "wgmma_half", {0x8fff, 0x3000, 0x81ffffff, 0x3c000000, false, true, false});
  forms(__nv_bfloat16{}, "wgmma_bfloat16", {0x83ff, 0x3c00, 0x81ffffff, 0x3c000000, false, true, false});
  // Every kind of operands, in two forms. fp16: sign, 5 bits of exponent, 10 of fraction; bf16: 8 and 7.
  const auto kinds = [&]<class T>(T, const std::string& name, WgmmaOperandKind kind) {
    collect_wgmma.template operator()<T, Major::K, false, 64>(name + "_ss", kind, 16);
    collect_wgmma.template operator()<T, Major::MN, true, 96>(name + "_rs", kind, 16);
  };
  kinds(__half{}, "wgmma_half_any_bits", {0xffff, 0, 0xbfffffff, 0, false, true, true});
  kinds(__half{}, "wgmma_half_finite", {0xbfff, 0, 0xbfffffff, 0, false, true, false});
  kinds(__half{}, "wgmma_half_subnormal", {0x87ff, 0, 0x807fffff, 0x30000000, false, true, false});
  kinds(__half{}, "wgmma_half_cancelling", {0x9fff, 0x2000, 0x83ffffff, 0x34000000, true, true, false});
  kinds(__half{}, "wgmma_half_zeros", {0xbc00, 0, 0x80000000, 0, false, true, false});
  kinds(__half{}, "wgmma_half_large", {0x8bff, 0x7000, 0x80ffffff, 0x7e000000, false, true, false});
  kinds(__half{}, "wgmma_half_no_c", {0x8fff, 0x3000, 0xffffffff, 0x7fc00000, false, false, false});
  kinds(__nv_bfloat16{}, "wgmma_bfloat16_any_bits", {0xffff, 0, 0xbfffffff, 0, false, true, true});
  kinds(__nv_bfloat16{}, "wgmma_bfloat16_finite", {0xbfff, 0, 0xbfffffff, 0, false, true, false});
  kinds(__nv_bfloat16{}, "wgmma_bfloat16_subnormal", {0x80ff, 0, 0x80ffffff, 0, false, true, false});
  kinds(__nv_bfloat16{}, "wgmma_bfloat16_small", {0x83ff, 0x1c00, 0x83ffffff, 0, false, true, false});
  kinds(__nv_bfloat16{}, "wgmma_bfloat16_cancelling", {0x87ff, 0x3800, 0x83ffffff, 0x34000000, true, true, false});
  kinds(__nv_bfloat16{}, "wgmma_bfloat16_large", {0x80ff, 0x5e00, 0x80ffffff, 0x7e000000, false, true, false});
  kinds(__nv_bfloat16{}, "wgmma_bfloat16_no_c", {0x83ff, 0x3c00, 0xffffffff, 0x7fc00000, false, false, false});
  // K-major: the leading distance has no meaning.
  collect_wgmma.template operator()<__half, Major::K, false, 64>(
      "wgmma_half_leading", {0x8fff, 0x3000, 0x81ffffff, 0x3c000000, false, true, false}, 1232);
  // A that is MN-major, and the sizes that a backward pass adds.
  const auto more_forms = [&]<class T>(T, const std::string& type, WgmmaOperandKind kind) {
    const auto sizes = [&]<Major kB, int... kN>(const std::string& form, std::integer_sequence<int, kN...>) {
      (collect_of.template operator()<T, Major::MN, kB, false, kN>(type + form + "_n" + std::to_string(kN), kind, {}),
       ...);
    };
    constexpr std::integer_sequence<int, 32, 64, 80, 96, 128, 192, 256> all_sizes;
    sizes.template operator()<Major::K>("_at_k", all_sizes);
    sizes.template operator()<Major::MN>("_at_mn", all_sizes);
    const auto new_sizes = [&]<Major kB, bool kRegistersA>(const std::string& form) {
      collect_of.template operator()<T, Major::K, kB, kRegistersA, 32>(type + form + "_n32", kind, {});
      collect_of.template operator()<T, Major::K, kB, kRegistersA, 192>(type + form + "_n192", kind, {});
    };
    new_sizes.template operator()<Major::K, false>("_ss_k");
    new_sizes.template operator()<Major::MN, false>("_ss_mn");
    new_sizes.template operator()<Major::K, true>("_rs_k");
    new_sizes.template operator()<Major::MN, true>("_rs_mn");
  };
  constexpr WgmmaOperandKind half_near_1{0x8fff, 0x3000, 0x81ffffff, 0x3c000000, false, true, false};
  more_forms(__half{}, "wgmma_half", half_near_1);
  more_forms(__nv_bfloat16{}, "wgmma_bfloat16", {0x83ff, 0x3c00, 0x81ffffff, 0x3c000000, false, true, false});
  // One panel of A: the leading distance has no meaning. Matrices that begin in the middle of a row, or of a panel.
  const auto places = [&]<Major kA, Major kB, int kN>(const std::string& name, WgmmaPlaces at) {
    collect_of.template operator()<__half, kA, kB, false, kN>("wgmma_half" + name, half_near_1, at);
  };
  places.template operator()<Major::MN, Major::K, 64>("_at_leading", {.leading = 1232});
  places.template operator()<Major::K, Major::K, 64>("_begin_16_48", {.at_a = 16, .at_b = 48, .steps = 2});
  places.template operator()<Major::K, Major::K, 32>("_begin_80_96", {.at_a = 80, .at_b = 96, .steps = 1});
  places.template operator()<Major::MN, Major::K, 64>("_at_begin_4096", {.at_a = 4096, .at_b = 64, .steps = 2});
  places.template operator()<Major::MN, Major::MN, 32>("_at_begin_2048", {.at_a = 2048, .at_b = 64, .steps = 2});
  places.template operator()<Major::MN, Major::MN, 64>("_at_begin_48", {.at_a = 48, .at_b = 16, .steps = 3});
  // Sums.
  const auto sums = [&]<Add kAdd>(const char* name) {
    Family family{name, std::vector<std::uint32_t>(kSums), 0};
    const Array<float4> scratch = m.template alloc<float4>("scratch", kSums);
    const Array<unsigned> out = m.upload(name, family.words.data(), family.words.size());
    launch(m, atomic_sums<kAdd>, dim3(kSums / 128), dim3(128), scratch.data(), out.data());
    m.download(family.words.data(), out);
    all.push_back(std::move(family));
  };
  sums.template operator()<Add::global>("add_global");
  sums.template operator()<Add::global_unused>("add_global_unused");
  sums.template operator()<Add::shared>("add_shared");
  sums.template operator()<Add::float2s>("add_float2");
  sums.template operator()<Add::float4s>("add_float4");
  sums.template operator()<Add::red>("add_red_v4");
  {
    Family family{"stmatrix", std::vector<std::uint32_t>(256), 0};
    const Array<unsigned> out = m.upload("stmatrix", family.words.data(), family.words.size());
    launch<Stored>(m, matrix_stores, dim3(1), dim3(32), out.data());
    m.download(family.words.data(), out);
    all.push_back(std::move(family));
  }
  return all;
}

}  // namespace flash::inline FLASH_MACHINE
