// memory.hpp: the two-level memory of the FlashAttention papers, as a machine that counts.
// HBM is large and slow: every byte that moves between it and the chip is counted, array by array.
// SRAM is small: tiles are allocated from a fixed number of bytes, and going over it is an error.
// Use:  Memory memory(192 * 1024);  Tile K_j = memory.tile("K_j", Bc, d);  memory.load(K_j, K, j * Bc);
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <source_location>
#include <string>
#include <type_traits>

#include "sim/error.hpp"
#include "sim/ledger.hpp"
#include "sim/number.hpp"

namespace flash {

// A matrix in HBM: `rows` rows of `cols` contiguous elements, `stride` elements apart. Made by Memory::matrix.
template <class T>
struct Matrix {
  T* data;
  std::int64_t rows, cols, stride;
  ArrayTraffic* traffic;

  // Columns first … first + count - 1, as a matrix.
  Matrix columns(std::int64_t first, std::int64_t count) const { return {data + first, rows, count, stride, traffic}; }
  std::uint64_t bytes(std::int64_t count) const { return static_cast<std::uint64_t>(count * cols) * sizeof(T); }
};

class Memory;

// Whoever wants to know what moves; the recording that the player plays does. Rows are those of a matrix and of a tile;
// a site is the phase's line that says so.
class MemoryObserver {
 public:
  using Site = std::source_location;
  virtual ~MemoryObserver() = default;
  virtual void begins() = 0;  // another task
  virtual void tile(const char* name, std::int64_t rows, std::int64_t cols, std::int64_t at, const float* data) = 0;
  virtual void freed(const float* data) = 0;
  // The phase is at this line, and nothing of it has happened, or (`counts`) it has counted what it did.
  virtual void reaches(const Site& site, bool counts) = 0;
  // `tile`: its begin in SRAM; -1: none, the matrix passes by.
  virtual void moved(bool read, const ArrayTraffic& array, std::int64_t element_bytes, std::int64_t cols,
                     std::int64_t all_rows, std::int64_t first, std::int64_t rows, std::int64_t tile,
                     const Site& site) = 0;
  // A product begins, or is done; its result has so many rows, its operands begin somewhere in these tiles.
  virtual void product(bool done, std::int64_t rows, const float* a, const float* b, const Site& site) = 0;
  virtual void value(const char* name, std::int64_t row, float value, const Site& site) = 0;
};
inline constinit thread_local MemoryObserver* memory_observer = nullptr;  // of what the thread's Memory does

// A row-major block of fp32 numbers in SRAM. `rows` is how many of its rows the last load filled. `cols` may be made
// smaller, for a ragged edge: rows then lie closer together.
class Tile {
 public:
  std::int64_t capacity_rows, rows, cols;
  float* data() const { return data_.get(); }

 private:
  friend class Memory;
  struct Return {  // gives the bytes back to the SRAM that they came from
    Memory* memory;
    std::int64_t bytes;
    void operator()(float* data) const;
  };
  std::unique_ptr<float[], Return> data_;

  std::int64_t at_;  // in SRAM

  Tile(std::int64_t r, std::int64_t c, float* data, Return back, std::int64_t at)
      : capacity_rows(r), rows(r), cols(c), data_(data, back), at_(at) {
    std::fill_n(data, r * c, std::numeric_limits<float>::quiet_NaN());
  }
};

// One chip's view of both levels. Not thread-safe: each thread owns one, and `add` sums the ledgers.
class Memory {
 public:
  using Site = std::source_location;
  explicit Memory(std::int64_t sram_bytes) : capacity_(sram_bytes) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Names a matrix that lives in HBM. Two matrices of one name share a counter (the heads of one tensor).
  template <class T>
  Matrix<T> matrix(const std::string& name, T* data, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
    return {data, rows, cols, stride, &traffic(name)};
  }

  // Allocates a tile of fp32 numbers in SRAM; freed when it goes out of scope. Fresh tiles hold NaN.
  Tile tile(const char* name, std::int64_t rows, std::int64_t cols) {
    std::int64_t bytes = 0;
    const bool huge = __builtin_mul_overflow(rows, cols, &bytes) ||
                      __builtin_mul_overflow(bytes, static_cast<std::int64_t>(sizeof(float)), &bytes);
    if (huge || bytes > capacity_ - used_)
      throw Error("tile " + std::string(name) + " [" + std::to_string(rows) + ", " + std::to_string(cols) + "] needs " +
                  (huge ? "over 2^63" : std::to_string(bytes)) + " bytes of SRAM; " +
                  std::to_string(capacity_ - used_) + " of " + std::to_string(capacity_) +
                  " are free; use smaller blocks or a larger --sram");
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    Tile made(rows, cols, take(bytes), {this, bytes}, used_ - bytes);
    if (observer_) observer_->tile(name, rows, cols, used_ - bytes, made.data());
    return made;
  }

  // HBM -> SRAM: rows first … first + capacity - 1 of the matrix, or as many as there are. Returns how many.
  template <class T>
  std::int64_t load(Tile& tile, const Matrix<T>& from, std::int64_t first, Site site = Site::current()) {
    if (observer_) observer_->reaches(site, false);
    tile.rows = std::clamp<std::int64_t>(from.rows - first, 0, tile.capacity_rows);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const T* source = from.data + (first + r) * from.stride;
      float* target = tile.data() + r * tile.cols;
      if constexpr (std::is_same_v<std::remove_const_t<T>, float>)
        std::memcpy(target, source, static_cast<std::size_t>(tile.cols) * sizeof(float));
      else
        for (std::int64_t c = 0; c < tile.cols; ++c) target[c] = to_float(source[c]);
    }
    from.traffic->read_bytes += from.bytes(tile.rows);
    tell(true, from, first, tile.rows, tile.at_, site);
    return tile.rows;
  }

  // SRAM -> HBM: the tile's filled rows to rows first … of the matrix, rounded to its type.
  template <class T>
  void store(const Tile& tile, const Matrix<T>& to, std::int64_t first, Site site = Site::current()) {
    if (observer_) observer_->reaches(site, false);
    for (std::int64_t r = 0; r < tile.rows; ++r)
      for (std::int64_t c = 0; c < tile.cols; ++c)
        to.data[(first + r) * to.stride + c] = from_float<T>(tile.data()[r * tile.cols + c]);
    to.traffic->written_bytes += to.bytes(tile.rows);
    tell(false, to, first, tile.rows, tile.at_, site);
  }

  // A whole matrix passes by once, as in an ideal matrix product: counted, nothing is copied.
  template <class T>
  void count_read(const Matrix<T>& m, Site site = Site::current()) {
    m.traffic->read_bytes += m.bytes(m.rows);
    tell(true, m, 0, m.rows, -1, site);
  }
  template <class T>
  void count_write(const Matrix<T>& m, Site site = Site::current()) {
    m.traffic->written_bytes += m.bytes(m.rows);
    tell(false, m, 0, m.rows, -1, site);
  }

  // Shows a number of this row to the observer.
  void show(const char* name, std::int64_t row, float value, Site site = Site::current()) {
    if (observer_) observer_->value(name, row, value, site);
  }
  // Tells the observer of a product, before and after it.
  void tell_product(bool done, std::int64_t rows, const float* a, const float* b, const Site& site) {
    if (observer_) observer_->product(done, rows, a, b, site);
  }

  // Arithmetic is counted by who does it: product() in matrix.hpp, by the sizes of its operands; exps and rescales by
  // the phases, beside the statement that does them.
  void count_matmul(std::int64_t m, std::int64_t n, std::int64_t k) {
    flops_ += 2 * as_count(m) * as_count(n) * as_count(k);
  }
  void count_exps(std::int64_t n, Site site = Site::current()) {
    exps_ += as_count(n);
    if (observer_) observer_->reaches(site, true);
  }
  void count_rescales(std::int64_t n, Site site = Site::current()) {
    rescales_ += as_count(n);
    if (observer_) observer_->reaches(site, true);
  }

  std::int64_t sram_bytes() const { return capacity_; }

  Ledger ledger() const {
    Ledger ledger;
    ledger.arrays.assign(arrays_.begin(), arrays_.end());
    ledger.flops = flops_;
    ledger.exps = exps_;
    ledger.rescales = rescales_;
    ledger.shared_bytes_peak = as_count(peak_);
    return ledger;
  }

 private:
  static std::uint64_t as_count(std::int64_t n) { return static_cast<std::uint64_t>(n); }
  ArrayTraffic& traffic(const std::string& name) {
    for (ArrayTraffic& a : arrays_)
      if (a.name == name) return a;
    return arrays_.emplace_back(ArrayTraffic{name});
  }

  // The host memory behind tiles. One task's tiles are as large as the next one's, so what a tile gives back is kept
  // for the next of its size: fresh pages cost more than a load. A size that is not there starts another pattern of
  // tiles: all that is kept goes, so that the host never holds more than the SRAM has.
  struct Free {
    void operator()(float* data) const { ::operator delete[](data, std::align_val_t(64)); }
  };
  friend struct Tile::Return;
  float* take(std::int64_t bytes) {
    const auto found = kept_.find(bytes);
    if (found == kept_.end()) {
      kept_.clear();
      return static_cast<float*>(::operator new[](static_cast<std::size_t>(bytes), std::align_val_t(64)));
    }
    float* data = found->second.release();
    kept_.erase(found);
    return data;
  }
  std::multimap<std::int64_t, std::unique_ptr<float[], Free>> kept_;

  template <class T>
  void tell(bool read, const Matrix<T>& m, std::int64_t first, std::int64_t rows, std::int64_t tile, const Site& site) {
    if (observer_) observer_->moved(read, *m.traffic, sizeof(T), m.cols, m.rows, first, rows, tile, site);
  }
  MemoryObserver* const observer_ = memory_observer;

  std::int64_t capacity_, used_ = 0, peak_ = 0;
  std::deque<ArrayTraffic> arrays_;  // a deque keeps addresses valid while it grows
  std::uint64_t flops_ = 0, exps_ = 0, rescales_ = 0;
};

inline void Tile::Return::operator()(float* data) const {
  if (memory->observer_) memory->observer_->freed(data);
  memory->used_ -= bytes;
  memory->kept_.emplace(bytes, data);
}

}  // namespace flash
