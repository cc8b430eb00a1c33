// record.cpp: runs the conformance suite on one machine and prints one line per family: name, words, hash, and the
// words themselves where they are few or may differ. What an H200 prints is docs/results/conformance-h200.txt.
// With -DFLASH_RECORD=run_wgmma_conformance: conformance_wgmma.cu's families, which need sm_90a, and their file; with
// run_hopper_conformance those of conformance_hopper.cu.
// Run: conformance "where it was recorded" [words.bin]     (words.bin gets all words, for finding a difference)
#include <cstdio>

#include "tests/simt/conformance.hpp"

#ifndef FLASH_RECORD
#define FLASH_RECORD run_conformance
#endif
#ifndef FLASH_RECORD_MACHINE
#define FLASH_RECORD_MACHINE on_gpu
#endif

int main(int argc, char** argv) {
  std::printf("# %s\n# name words hash, then the words themselves where they are few or need not be equal\n",
              argc > 1 ? argv[1] : "(no note)");
  std::FILE* all = argc > 2 ? std::fopen(argv[2], "wb") : nullptr;
  for (const flash::Family& family : flash::FLASH_RECORD_MACHINE::FLASH_RECORD({})) {
    const std::size_t count = family.words.size();
    std::printf("%s %zu %016llx", family.name.c_str(), count,
                static_cast<unsigned long long>(flash::hash_words(family.words.data(), count)));
    if (family.max_ulp > 0 || count <= 64)
      for (std::uint32_t word : family.words) std::printf(" %08x", word);
    std::printf("\n");
    if (all != nullptr && std::fwrite(family.words.data(), 4, count, all) != count) return 1;
  }
  return all != nullptr && std::fclose(all) != 0;
}
