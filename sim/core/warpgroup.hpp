// warpgroup.hpp: wgmma, the matrix products of a warpgroup (four warps, the first a multiple of four), which run beside
// its threads. PTX ISA, "Asynchronous wgmma Instructions": a product may read its operands and write its accumulators
// at any time between its issue and the wait for its group. So when it does is a choice (Completion); until the wait
// its accumulators hold NaN. Products of one warpgroup run in the order in which they were issued.
// Use: Worker hands over what the 128 threads gave when all of them have come to the instruction.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/core/async.hpp"
#include "sim/core/simt.hpp"

namespace flash::simt {

constexpr unsigned kWarpgroupThreads = 128;

// What the 64 bits of a matrix descriptor say: PTX ISA, "Matrix Descriptor Format". An address is one of the block's
// shared memory, whose first byte has address 0.
struct DescribedMatrix {
  unsigned start, leading, stride;  // bytes
  unsigned base_offset, swizzle;    // 1: of 128 bytes
};
constexpr DescribedMatrix described(std::uint64_t descriptor) {
  const auto field = [descriptor](int at, int bits) {
    return static_cast<unsigned>(descriptor >> at & ((1u << bits) - 1));
  };
  return {field(0, 14) * 16, field(16, 14) * 16, field(32, 14) * 16, field(49, 3), field(62, 2)};
}

// The addresses of the 16-byte chunks that one product reads of a matrix of rows · 16 elements in the 128-byte swizzle.
// K-major: chunks 2 r and 2 r + 1 are row r's. Eight rows lie 128 bytes apart, the next eight `stride` further on;
// `leading` has no meaning. MN-major: chunk k · rows / 8 + j has elements 8 j … 8 j + 7 of row k of the transposed
// matrix. 64 elements lie side by side, the next 64 `leading` further on; eight rows lie 128 bytes apart, the next
// eight `stride` further on. The swizzle is one of the address, whatever the tile's: bits 4 to 6 ^= bits 7 to 9.
std::vector<unsigned> chunks_of(const DescribedMatrix& matrix, unsigned rows, bool mn_major);

// The accumulators of one product, or of several, one after the other, in the same registers.
struct Accumulators {
  std::array<float*, kWarpgroupThreads> registers;
  unsigned columns = 0, under_way = 0;  // the latter: products
  std::vector<float> values;            // [columns][64], and room to align them
  // For the checks, of the products since the registers were read: have some been added; which elements are sums of
  // unwritten memory alone ([columns][64], or empty: none).
  bool summed = false;
  std::vector<bool> unwritten;

  float* matrix();
  void load();          // from the registers
  void poison() const;  // the registers
  void store();         // to the registers
};

struct Product {
  WgmmaOperands of;                                       // of the first thread
  std::array<const std::uint32_t*, kWarpgroupThreads> a;  // where A is in registers
  std::vector<const std::byte*> a_chunks, b_chunks;       // as chunks_of() says
  Site site;
  Accumulators* accumulators = nullptr;
  std::uint64_t group = 0;    // counted from 0
  bool has_run = false;       // its numbers are there, although nobody may know it yet
  AsyncRanges::Id async = 0;  // what the checks call it
};

// The products that one warpgroup has not waited for.
class Products {
 public:
  using Operands = std::array<const WgmmaOperands*, kWarpgroupThreads>;
  // Begins to multiply: takes the accumulators over and poisons them, unless products in these registers are under way.
  void issue(const Operands& operands, Product product);
  void commit() { ++committed_; }
  // Runs the first products that have not run, at most so many, and shows what their registers hold then.
  void run_early(std::size_t most);
  // All but those of the last `pending` groups are done: calls ended(product) for each, in order of issue.
  template <class Ended>
  void wait(std::uint64_t pending, const Ended& ended);
  void begin_block() { *this = {}; }

  bool is_committed(const Product& product) const { return product.group < committed_; }
  const std::vector<Product>& under_way() const { return products_; }
  // The last wait left so many groups under way; a group below `waited` was committed then.
  std::uint64_t left() const { return left_; }
  std::uint64_t waited() const { return waited_; }
  // The product under way that writes, or reads, this register of a thread, which is counted in the warpgroup.
  const Product* accumulating(unsigned thread, const void* address) const;
  const Product* reading(unsigned thread, const void* address) const;

 private:
  static void run(Product& product);
  std::vector<Product> products_;  // in order of issue
  std::vector<std::unique_ptr<Accumulators>> accumulators_;
  std::uint64_t committed_ = 0, left_ = 0, waited_ = 0;
};

template <class Ended>
void Products::wait(std::uint64_t pending, const Ended& ended) {
  std::size_t done = 0;
  for (; done < products_.size() && products_[done].group + pending < committed_; ++done) {
    Product& product = products_[done];
    if (!product.has_run) run(product);
    if (--product.accumulators->under_way == 0) product.accumulators->store();
    ended(product);
  }
  products_.erase(products_.begin(), products_.begin() + static_cast<std::ptrdiff_t>(done));
  left_ = pending, waited_ = committed_;
}

}  // namespace flash::simt
