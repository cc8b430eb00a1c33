// registers.hpp: what threads do with the registers of wgmma. Accumulators and A's fragments are arrays on a fiber's
// stack here, whose accesses the compiler reports like any other. For each word of the stack: whose product it belongs
// to, or where it was accessed since the thread's last wgmma_fence.
// Use: Checker::access() tells of accesses to the stack; Worker of fences, products and waits (sim/core/observer.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace flash::simt {

class RegisterLog {
 public:
  // Of a word: a product under way writes it; one reads it; a product has written it, but no wait has named it.
  enum class State : std::uint8_t { free, accumulator, a, unnamed };
  struct Word {
    std::uint32_t fences = 0;  // how many the thread had made when it was accessed last
    std::uint16_t site = 0;    // where that was
    State state = State::free;
  };

  void begin_block(std::size_t threads) { threads_.clear(), threads_.resize(threads); }
  void fence(unsigned thread) { ++threads_[thread].fences; }
  // Before a thread's first fence nothing is watched.
  bool fenced(unsigned thread) const { return threads_[thread].fences > 0; }
  bool since_fence(unsigned thread, const Word& word) const { return word.fences == threads_[thread].fences; }
  // The word at an address of the thread's stack, which ends at `top`.
  Word& word(unsigned thread, const void* address, const std::byte* top) {
    std::vector<Word>& words = threads_[thread].words;
    const auto i = static_cast<std::size_t>(top - static_cast<const std::byte*>(address) - 1) / 4;
    if (i >= words.size()) words.resize(2 * i + 64);
    return words[i];
  }
  void accessed(unsigned thread, Word& word, unsigned site) {
    word.fences = threads_[thread].fences, word.site = static_cast<std::uint16_t>(site);
  }

 private:
  struct Thread {
    std::uint32_t fences = 0;
    std::vector<Word> words;  // from the top of the stack downwards
  };
  std::vector<Thread> threads_;
};

}  // namespace flash::simt
