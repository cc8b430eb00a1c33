// 06.1 strides: Q, K and V packed into one tensor: where does row j of head (b, h) begin?
// An exercise of phase 06; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 06.1     Prove it: ./flash exercise --check 06.1

//# question
// A linear layer gives Q, K and V in one tensor, [B, S, 3, H, D]. V is a view of it: element (b, h, j, d) lies at
//     b * b_stride + h * h_stride + j * stride + d
// with strides that the caller knows. A block computes the mean of the values of one head: block x belongs to head
// x % H of batch entry x / H. Say where row j of that head begins. The kernel may not assume any layout.

//# predict 72 H = 3, D = 8: how many elements lie between one row of V's head and the next row of the same head?

//# hint
// blockIdx.x counts all heads of batch entry 0 first, then those of entry 1. There are B = 2 and H = 3 here.
//# hint
// b = blockIdx.x / H and h = blockIdx.x % H. Only strides say where things are, in 64 bits; the sizes S and D do not.
//# hint
// V.data + b * V.b_stride + h * V.h_stride + j * V.stride

//# because
// Between two positions lie Q, K and V of all heads: 3 * 3 * 8. The rows of one head are far apart, and each is still
// contiguous: that is all that a kernel needs.
//# next
// phases/06-4d-grid/notebook.cpp; phases/interface/device.cuh has the tensor that all kernels of the course take.

//# code

constexpr int D = 8;
struct Tensor4 {
  const float* data;
  std::int64_t b_stride, h_stride, stride;  // elements from one batch entry, head, row to the next
};

__global__ void mean_of_values(Tensor4 V /*[B, H, S, D]*/, float* mean /*[B, H, D], contiguous*/, int H, int S) {
  const int d = threadIdx.x;
  float sum = 0;
  for (int j = 0; j < S; ++j) {
    //# hole Where does row j of this block's head begin?
    const int b = blockIdx.x / H, h = blockIdx.x % H;
    const float* row = V.data + b * V.b_stride + h * V.h_stride + j * V.stride;
    //# skeleton: as if V were contiguous
    //| const float* row = V.data + (blockIdx.x * S + j) * D;
    //# wrong contiguous-rows: rows of a head as if they followed one another
    //| const int b = blockIdx.x / H, h = blockIdx.x % H;
    //| const float* row = V.data + b * V.b_stride + h * V.h_stride + j * D;
    //# wrong b-and-h-swapped: b and h have changed places
    //| const int b = blockIdx.x % H, h = blockIdx.x / H;
    //| const float* row = V.data + b * V.b_stride + h * V.h_stride + j * V.stride;
    //# wrong head-counts-all: b is counted twice
    //| const int b = blockIdx.x / H, h = blockIdx.x;
    //| const float* row = V.data + b * V.b_stride + h * V.h_stride + j * V.stride;
    //# wrong first-batch: the heads of batch entry 0
    //| const int h = blockIdx.x % H;
    //| const float* row = V.data + h * V.h_stride + j * V.stride;
    //# wrong packed-by-heart: those of another layout are not
    //| const int b = blockIdx.x / H, h = blockIdx.x % H;
    //| const float* row = V.data + ((b * S + j) * 3 * H + h) * D;
    //# wrong packed-batches: those of another layout are not
    //| const int b = blockIdx.x / H, h = blockIdx.x % H;
    //| const float* row = V.data + b * S * V.stride + h * V.h_stride + j * V.stride;
    //# wrong offset-in-32-bits: has too few bits
    //| const int b = blockIdx.x / H, h = blockIdx.x % H;
    //| const int offset = b * V.b_stride + h * V.h_stride + j * V.stride;
    //| const float* row = V.data + offset;
    //# wrong strides-in-32-bits: has too few bits
    //| const int b = blockIdx.x / H, h = blockIdx.x % H, b_stride = V.b_stride;
    //| const float* row = V.data + b * b_stride + h * V.h_stride + j * V.stride;
    //# also moved
    //| const int b = blockIdx.x / H, h = blockIdx.x - b * H;
    //| const float* row = &V.data[j * V.stride + b * V.b_stride + h * V.h_stride];
    //# end
    sum += row[d];
  }
  mean[blockIdx.x * D + d] = sum / S;
}

//# judge

void judge(Trial& t) {
  constexpr int B = 2, H = 3, S = 10, kRow = 3 * H * D;
  Floats QKV = t.normal("QKV", B * S * kRow);
  for (float& value : QKV) value += 4;  // so that no mean is near 0
  // b and h swapped, and the like, reach beyond: there is room for that, so that the answer tells.
  Floats room = QKV;
  room.resize(4 * QKV.size(), 4);
  const auto qkv = t.upload("QKV", room);
  const auto mean = t.alloc("mean", B * H * D);
  const Tensor4 V{qkv.data() + 2 * H * D, S * kRow, D, kRow};
  mean_of_values<<<B * H, D>>>(V, mean.data(), H, S);
  t.findings();
  const auto answer = [&](auto offset) {
    Doubles result(B * H * D);
    for (int x = 0; x < B * H; ++x)
      for (int d = 0; d < D; ++d) {
        double sum = 0;
        for (int j = 0; j < S; ++j) sum += room[2 * H * D + offset(x, j) + d];
        result[x * D + d] = sum / S;
      }
    return result;
  };
  const auto at = [](int b, int h, int j) { return b * S * kRow + h * D + j * kRow; };
  t.answer("mean", t.download(mean), answer([&](int x, int j) { return at(x / H, x % H, j); }), D,
           {{answer([](int x, int j) { return (x * S + j) * D; }),
             "This reads as if V were contiguous, [B, H, S, D]: use its strides."},
            {answer([](int x, int j) { return x / H * S * kRow + x % H * D + j * D; }),
             "This reads the rows of a head as if they followed one another: the next one is stride elements on."},
            {answer([&](int x, int j) { return at(x % H, x / H, j); }),
             "b and h have changed places: block x is head x % H of batch entry x / H."},
            {answer([&](int x, int j) { return at(x / H, x, j); }),
             "b is counted twice: a head's number begins at 0 again in each batch entry."},
            {answer([&](int x, int j) { return at(0, x % H, j); }),
             "All blocks read the heads of batch entry 0: which entry is block x's?"}},
           1e-5, "head");
  // Another layout: [H, S, D] for each batch entry, 8 GiB apart: so many zones of 64 KiB are passed in between.
  const Floats Values = t.normal("V", B * H * S * D);
  const auto first = t.upload("first", Values);
  for (int i = 0; i < 1 << 17; ++i) t.alloc("gap", 0);
  const auto second = t.upload("second", Floats(Values.begin() + H * S * D, Values.end()));
  mean_of_values<<<B * H, D>>>({first.data(), second.data() - first.data(), S * D, D}, mean.data(), H, S);
  const std::string another =
      "The means of the packed tensor are right, those of another layout are not: each head's rows lie together there. "
      "Strides say where things are; S, H and D do not.";
  t.findings({{"outside every device array",
               "A number has too few bits: in another layout the batch entries are 2^31 elements apart and more, and "
               "an int is negative there. Calculate with the strides' 64 bits."},
              {"", another}});
  const Floats got = t.download(mean);
  for (int x = 0; x < B * H; ++x)
    for (int d = 0; d < D; ++d) {
      double sum = 0;
      for (int j = 0; j < S; ++j) sum += Values[(x * S + j) * D + d];
      t.expect(std::abs(got[x * D + d] - sum / S) < 1e-5, another);
    }
  t.predicted(V.stride);
}
