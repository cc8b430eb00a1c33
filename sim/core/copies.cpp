// copies.cpp: when the bytes of asynchronous copies arrive. The rule and its use: copies.hpp.
#include "sim/core/copies.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace flash::simt {

void Copies::begin_block(std::size_t threads, Completion completion, std::uint64_t seed) {
  threads_.resize(threads);
  for (OfThread& thread : threads_) {
    thread.copies.clear(), thread.committed = thread.bytes = thread.most_bytes = 0;
    thread.waits_by_arrival = false;
  }
  under_way_ = 0;
  completion_ = completion;
  if (completion == Completion::random) random_.seed(seed);
}

void Copies::issue(Copy copy, unsigned thread) {
  OfThread& own = threads_[thread];
  copy.thread = thread, copy.group = own.committed;
  std::memset(copy.to, 0xff, copy.bytes);
  if (completion_ == Completion::eager) arrive(copy);
  own.copies.push_back(copy);
  own.bytes += copy.bytes, own.most_bytes = std::max(own.most_bytes, own.bytes);
  ++under_way_;
  maybe_arrive();
}

// The source is read when the bytes arrive, so that one that was overwritten too early shows.
void Copies::arrive(Copy& copy) {
  if (std::exchange(copy.arrived, true)) return;
  std::memcpy(copy.to, copy.from, copy.source_bytes);
  std::memset(copy.to + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
}

// Completion::random: now one copy, now another, in no order. Of two copies to one place the later one may come first.
void Copies::maybe_arrive() {
  if (completion_ != Completion::random || under_way_ == 0) return;
  OfThread& some = threads_[random_() % threads_.size()];
  if (!some.copies.empty()) arrive(some.copies[random_() % some.copies.size()]);
}

const Copy* Copies::writing(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  for (const OfThread& thread : threads_)
    for (const Copy& copy : thread.copies)
      if (static_cast<std::size_t>(at - copy.to) < copy.bytes) return &copy;
  return nullptr;
}

const Copy* Copies::reading(const void* address, std::size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(address);
  for (const OfThread& thread : threads_)
    for (const Copy& copy : thread.copies)
      if (at < copy.from + copy.source_bytes && copy.from < at + bytes) return &copy;
  return nullptr;
}

std::uint64_t Copies::most_bytes() const {
  std::uint64_t bytes = 0;
  for (const OfThread& thread : threads_) bytes += thread.most_bytes;
  return bytes;
}

}  // namespace flash::simt
