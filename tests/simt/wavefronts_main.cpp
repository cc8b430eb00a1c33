// wavefronts_main.cpp: launches the patterns of docs/results/wavefronts-h200.csv on a GPU, in order, for Nsight; with
// the argument ptx those of wavefronts-ptx-h200.csv.
// nvcc -std=c++20 -arch=sm_90 -fmad=false -I. -x cu tests/simt/wavefronts{,_ptx}.cu tests/simt/wavefronts_main.cpp
// of=l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum,l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum
// ncu --csv --metrics $of ./a.out
#include "tests/simt/wavefronts.hpp"

int main(int argc, char**) {
  using namespace flash;
  return argc > 1 ? on_gpu::run_ptx_wavefronts({}, read_patterns("docs/results/wavefronts-ptx-h200.csv")).empty()
                  : on_gpu::run_wavefronts({}, read_patterns("docs/results/wavefronts-h200.csv")).empty();
}
