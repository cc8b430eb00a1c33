// learn_softmax.cu: calls the softmaxes of gau-nernst/learn-cuda's 04_softmax/softmax.cu with 8 rows of 4096.
// Use: flash check learn_softmax.cu CLONE/04_softmax/softmax.cu
#include "verify.hpp"

using Softmax = void(const float* input, float* output, float* workspace, int M, int N);
Softmax softmax_naive, softmax_naive_split, softmax_online, softmax_online_split;

int main() {
  const int rows = 8, columns = 4096;
  const auto x = filled(rows * columns, 1);
  const auto wanted = softmax_of(x, rows, columns);
  float *d_x = uploaded(x), *d_y, *workspace;
  cudaMalloc(&d_y, rows * columns * sizeof(float)), cudaMalloc(&workspace, 2 * rows * sizeof(float));
  int number = 0;
  for (Softmax* softmax : {softmax_naive, softmax_naive_split, softmax_online, softmax_online_split}) {
    softmax(d_x, d_y, workspace, rows, columns);
    agrees("softmax", ++number, downloaded(d_y, rows * columns), wanted, 1e-5);
  }
  return wrong;
}
