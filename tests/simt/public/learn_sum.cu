// learn_sum.cu: calls the sums of gau-nernst/learn-cuda's 03_sum/sum.cu with 8 rows of 4096.
// Use: flash check learn_sum.cu CLONE/03_sum/sum.cu
#include "verify.hpp"

using OfBlocks = void(const float* input, float* output, int M, int N, int BLOCK_SIZE);
using OfTiles = void(const float* input, float* output, int M, int N, int TILE_SIZE, int BLOCK_SIZE);
OfBlocks sum_v1, sum_v2;
OfTiles sum_v3, sum_v4a, sum_v4b, sum_v4c, sum_v5, sum_v6;

const int rows = 8, columns = 4096;

template <class Sum>
void check(int number, const Sum& sum) {
  const auto x = filled(rows * columns, 1);
  std::vector<double> wanted(rows);
  for (int i = 0; i < rows * columns; ++i) wanted[i / columns] += x[i];
  float *d_x = uploaded(x), *d_sums = uploaded(std::vector<float>(rows));
  sum(d_x, d_sums);
  agrees("sum", number, downloaded(d_sums, rows), wanted, 1e-3);
}

int main() {
  int number = 0;
  for (OfBlocks* sum : {sum_v1, sum_v2}) check(++number, [=](float* x, float* y) { sum(x, y, rows, columns, 128); });
  for (OfTiles* sum : {sum_v3, sum_v4a, sum_v4b, sum_v4c, sum_v5, sum_v6})
    check(++number, [=](float* x, float* y) { sum(x, y, rows, columns, 1024, 128); });
  return wrong;
}
