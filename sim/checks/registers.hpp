// registers.hpp: what threads do with the registers of wgmma. Accumulators and A's fragments are arrays on a fiber's
// stack here, whose accesses the compiler reports like any other. For each word of the stack: whose product it belongs
// to, or where it was accessed since the thread's last wgmma_fence.
// Use: Checker::access() tells of accesses to the stack; Worker of fences, products and waits (sim/core/observer.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/checks/cells.hpp"

namespace flash::simt {

class RegisterLog {
 public:
  // Of a word: a product under way writes it; one reads it; a product has written it, but no wait has named it.
  enum class State : std::uint32_t { free, accumulator, a, unnamed };
  // As small as can be: there is one for each register of each thread, and the processor's cache is what they wait for.
  struct Word {
    std::uint32_t fences : 15 = 0;       // how many the thread had made when it was accessed last
    std::uint32_t site : kSiteBits = 0;  // where that was
    State state : 2 = State::free;
  };
  static_assert(sizeof(Word) == 4);

  void begin_block(std::size_t threads) {
    threads_.resize(threads);
    for (Thread& thread : threads_) thread.fences = 0, thread.words.clear();  // their memory stays
  }
  void fence(unsigned thread) {
    Thread& own = threads_[thread];
    if (++own.fences < 1u << 15) return;
    own.fences = 1;  // begin to count anew: no access is behind this fence
    for (Word& word : own.words) word.fences = 0;
  }
  // Before a thread's first fence nothing is watched.
  bool fenced(unsigned thread) const { return threads_[thread].fences > 0; }
  bool since_fence(unsigned thread, const Word& word) const { return word.fences == threads_[thread].fences; }
  // The words of the thread's stack, which ends at `top`, from an address on: word(i) is the i-th.
  auto words(unsigned thread, const void* address, const std::byte* top) {
    std::vector<Word>& words = threads_[thread].words;
    const auto first = static_cast<std::size_t>(top - static_cast<const std::byte*>(address) - 1) / 4;
    if (first >= words.size()) words.resize(2 * first + 64);
    return [word = &words[first]](std::size_t i) -> Word& { return *(word - i); };
  }
  void accessed(unsigned thread, Word& word, unsigned site) {
    word.fences = threads_[thread].fences & 0x7fff, word.site = site & ((1u << kSiteBits) - 1);
  }

 private:
  struct Thread {
    std::uint32_t fences = 0;
    std::vector<Word> words;  // from the top of the stack downwards
  };
  std::vector<Thread> threads_;
};

}  // namespace flash::simt
