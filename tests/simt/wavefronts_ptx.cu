// wavefronts_ptx.cu: as wavefronts.cu for ldmatrix, which needs compute capability 7.5: a lane's row is at its index,
// in units of 16 bytes.
// Use: wavefronts.hpp.
#include "gpu/kernel.cuh"
#include "tests/simt/wavefronts.hpp"

namespace flash::inline FLASH_MACHINE {

struct Rows {
  alignas(128) uint4 rows[2048];
};

__global__ void load_matrices(const int* index /*[32]*/, uint4* out /*[32]*/) {
  Rows& s = shared<Rows>();
  for (unsigned i = threadIdx.x; i < 8192; i += 32) reinterpret_cast<unsigned*>(s.rows)[i] = i;
  __syncwarp();  // the words are there before another lane's are read
  unsigned registers[4];
  ldmatrix_x4(registers, &s.rows[index[threadIdx.x]]);
  out[threadIdx.x] = make_uint4(registers[0], registers[1], registers[2], registers[3]);
}

std::vector<Ledger> run_ptx_wavefronts(const MachineOptions& options, const std::vector<WavefrontPattern>& patterns) {
  Machine m(options);
  const std::vector<unsigned> zeros(128);
  auto words = m.upload("words", zeros.data(), zeros.size());
  auto* rows = reinterpret_cast<uint4*>(words.data());
  for (const WavefrontPattern& p : patterns) {
    const auto index = m.upload("index", p.index.data(), p.index.size());
    launch<Rows>(m, load_matrices, dim3(1), dim3(32), index.data(), rows);
  }
  std::vector<Ledger> ledgers;
  for (const KernelReport& report : m.reports()) ledgers.push_back(report.ledger);
  return ledgers;
}

}  // namespace flash::inline FLASH_MACHINE
