// async.cpp: the list of asynchronous operations under way and who of them uses which word. See async.hpp.
#include "sim/core/async.hpp"

#include <algorithm>
#include <utility>

namespace flash::simt {

void AsyncRanges::begin_block(const std::byte* shared, std::size_t shared_bytes) {
  shared_ = shared, shared_bytes_ = shared_bytes;
  if (!operations_.empty()) std::fill(users_.begin(), users_.end(), std::uint16_t{0});
  operations_.clear();
}

AsyncRanges::Id AsyncRanges::begin(AsyncOperation operation) {
  count(operation, 1);
  const std::byte *begin = nullptr, *end = nullptr;
  for (const AsyncPiece& piece : operation.pieces) {
    begin = begin ? std::min(begin, piece.begin) : piece.begin;
    end = std::max(end, piece.begin + piece.bytes);
  }
  operations_.emplace(++last_, UnderWay{std::move(operation), begin, end});
  return last_;
}

AsyncOperation AsyncRanges::end(Id id) {
  AsyncOperation operation = std::move(operations_.extract(id).mapped().operation);
  count(operation, -1);
  return operation;
}

const AsyncOperation* AsyncRanges::sending() const {
  for (const auto& [id, under_way] : operations_)
    if (under_way.operation.sends) return &under_way.operation;
  return nullptr;
}

void AsyncRanges::count(const AsyncOperation& operation, int change) {
  for (const AsyncPiece& piece : operation.pieces) {
    const auto offset = static_cast<std::size_t>(piece.begin - shared_);
    if (offset >= shared_bytes_) return;  // global memory
    const std::size_t first = offset / 4, end = first + piece.bytes / 4;
    if (end > users_.size()) users_.resize(end);
    for (std::size_t word = first; word < end; ++word) users_[word] = static_cast<std::uint16_t>(users_[word] + change);
  }
}

const AsyncOperation* AsyncRanges::disturbed(const void* address, std::size_t bytes, bool writes, bool atomic) const {
  const auto* at = static_cast<const std::byte*>(address);
  for (const auto& [id, under_way] : operations_) {
    const AsyncOperation& operation = under_way.operation;
    if ((!writes && !operation.writes) || (atomic && operation.adds != 0) || at >= under_way.end ||
        under_way.begin >= at + bytes)
      continue;
    for (const AsyncPiece& piece : operation.pieces)
      if (at < piece.begin + piece.bytes && piece.begin < at + bytes) return &operation;
  }
  return nullptr;
}

}  // namespace flash::simt
