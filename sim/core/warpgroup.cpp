// warpgroup.cpp: what a product of wgmma reads, and when it does. See warpgroup.hpp; its numbers: tensor_core.cpp.
// An accumulator's register 4 j + i of warp w, lane l is row 16 w + l / 4 + 8 (i / 2), column 8 j + 2 (l % 4) + i % 2;
// a register of A holds elements as one of mma.m16n8k16's A does, of rows 16 w … 16 w + 15.
// Use: see warpgroup.hpp; sim/core/warpgroup_ops.cpp.
#include "sim/core/warpgroup.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sim/core/tensor_core.hpp"

namespace flash::simt {
namespace {

constexpr int kRows = 64;

// Calls each(thread, register, element of [columns][64]) for all of a warpgroup's accumulators.
template <class Each>
void for_each_accumulator(unsigned columns, const Each& each) {
  for (int thread = 0; thread < static_cast<int>(kWarpgroupThreads); ++thread) {
    const int lane = thread % 32, row = thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
    for (int r = 0; r < static_cast<int>(columns) / 2; ++r)
      each(static_cast<std::size_t>(thread), r, (column + r / 4 * 8 + r % 2) * kRows + row + r / 2 % 2 * 8);
  }
}

}  // namespace

std::vector<unsigned> chunks_of(const DescribedMatrix& matrix, unsigned rows, bool mn_major) {
  constexpr unsigned kRow = 128, kAddresses = 1u << 18;
  std::vector<unsigned> chunks(2 * rows);
  for (unsigned i = 0; i < chunks.size(); ++i) {
    unsigned address = matrix.start;
    if (mn_major) {
      const unsigned k = i / (rows / 8), j = i % (rows / 8);
      address += k / 8 * matrix.stride + k % 8 * kRow + j / 8 * matrix.leading + j % 8 * 16;
    } else {
      const unsigned row = i / 2;
      address += row / 8 * matrix.stride + row % 8 * kRow + i % 2 * 16;
    }
    chunks[i] = (address ^ (address >> 7 & 7) << 4) % kAddresses;
  }
  return chunks;
}

float* Accumulators::matrix() {
  values.resize(columns * kRows + 8);
  const auto address = reinterpret_cast<std::uintptr_t>(values.data());
  return values.data() + (-address & 31) / sizeof(float);
}

void Accumulators::load() {
  float* const to = matrix();
  for_each_accumulator(columns, [&](std::size_t thread, int r, int element) { to[element] = registers[thread][r]; });
}

void Accumulators::poison() const {
  for (float* const of_thread : registers) std::memset(of_thread, 0xff, columns / 2 * sizeof(float));
}

void Accumulators::store() {
  const float* const from = matrix();
  for_each_accumulator(columns, [&](std::size_t thread, int r, int element) { registers[thread][r] = from[element]; });
}

void Products::issue(const Operands& operands, Product product) {
  product.of = *operands[0];
  for (std::size_t i = 0; i < operands.size(); ++i) product.a[i] = operands[i]->a;
  product.group = committed_;
  Accumulators* own = nullptr;
  for (const auto& some : accumulators_) {
    if (some->under_way > 0 && some->registers[0] == product.of.d && some->columns == product.of.columns)
      own = some.get();
    if (own) break;
  }
  if (!own) {
    const auto is_free = [](const auto& some) { return some->under_way == 0; };
    auto place = std::find_if(accumulators_.begin(), accumulators_.end(), is_free);
    if (place == accumulators_.end()) place = accumulators_.insert(place, std::make_unique<Accumulators>());
    own = place->get();
    own->columns = product.of.columns;
    for (std::size_t i = 0; i < operands.size(); ++i) own->registers[i] = operands[i]->d;
    own->load();
    own->poison();
  }
  ++own->under_way;
  product.accumulators = own;
  products_.push_back(std::move(product));
}

void Products::run_early(std::size_t most) {
  for (Product& product : products_) {
    if (product.has_run) continue;
    if (most-- == 0) return;
    run(product);
    product.accumulators->store();
  }
}

// The operands are read now, so that what was overwritten too early shows.
void Products::run(Product& product) {
  product.has_run = true;
  const int columns = static_cast<int>(product.of.columns);
  alignas(32) std::uint16_t a[kMmaDepth * kRows], b[256 * kMmaDepth];
  if (product.of.a) {
    for (int thread = 0; thread < static_cast<int>(kWarpgroupThreads); ++thread) {
      const int lane = thread % 32, row = thread / 32 * 16 + lane / 4, k = lane % 4 * 2;
      for (int r = 0; r < 4; ++r)
        for (int i = 0; i < 2; ++i)
          a[(k + i + r / 2 * 8) * kRows + row + r % 2 * 8] =
              static_cast<std::uint16_t>(product.a[static_cast<std::size_t>(thread)][r] >> 16 * i);
    }
  } else {
    for (int i = 0; i < 2 * kRows; ++i) {
      std::uint16_t chunk[8];
      std::memcpy(chunk, product.a_chunks[static_cast<std::size_t>(i)], sizeof chunk);
      for (int j = 0; j < 8; ++j) a[product.of.a_mn_major ? i * 8 + j : (i % 2 * 8 + j) * kRows + i / 2] = chunk[j];
    }
  }
  for (int i = 0; i < 2 * columns; ++i) {
    std::uint16_t chunk[8];
    std::memcpy(chunk, product.b_chunks[static_cast<std::size_t>(i)], sizeof chunk);
    const int k = i / (columns / 8), first = i % (columns / 8) * 8;  // MN-major
    for (int j = 0; j < 8; ++j) b[product.of.b_mn_major ? (first + j) * kMmaDepth + k : i * 8 + j] = chunk[j];
  }
  float* const d = product.accumulators->matrix();
  if (!product.of.accumulate) std::fill(d, d + columns * kRows, 0.0f);
  wgmma_m64nNk16(a, b, d, columns, product.of.bfloat16 ? MmaType::bfloat16 : MmaType::half);
}

const Product* Products::accumulating(unsigned thread, const void* address) const {
  for (const Product& product : products_) {
    const float* const d = product.accumulators->registers[thread];
    if (address >= d && address < d + product.of.columns / 2) return &product;
  }
  return nullptr;
}

const Product* Products::reading(unsigned thread, const void* address) const {
  for (const Product& product : products_)
    if (product.of.a && address >= product.a[thread] && address < product.a[thread] + 4) return &product;
  return nullptr;
}

}  // namespace flash::simt
