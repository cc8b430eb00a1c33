// 28.1 derivative: a modifier that bends a score needs a derivative: write a softcap's.
// An exercise of phase 28; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 28.1     Prove it: ./flash exercise --check 28.1

//# question
// A modifier makes cap * tanh(s / cap) of a score s. The backward pass asks for its derivative by s, and multiplies dS
// by it. Both get the score as it came in, scale * q·k. Write the derivative. A kernel calls both for each of 256
// scores, a thread for each, and stores what they say.

//# predict 3072 How many bytes does the kernel read and write together?

//# hint
// What is the derivative of tanh, if you already have t = tanh(x)?
//# hint
// It is 1 - t * t. Then the chain rule: what does the cap in front do, and the one inside?
//# hint
// cap in front multiplies, and s / cap divides by the same: they cancel.

//# because
// 256 scores of 4 bytes are read, and two numbers of 4 bytes are written for each. In a kernel of phase 28 none of
// these bytes move: a modifier gets its score in a register.
//# next
// phases/28-modifiers/modifiers.cuh: the softcap that is given, whose tanh is good enough for LSE.

//# code

struct Softcap {
  float cap;

  __device__ float operator()(float s, int b, int h, int i, int j) const {
    return cap * tanhf(s / cap);
  }
  __device__ float derivative(float s, int b, int h, int i, int j) const {
    //# hole The derivative of operator() by s.
    const float t = tanhf(s / cap);
    return 1 - t * t;
    //# skeleton: as if nothing were bent
    //| return 1;
    //# wrong cap-in-front: The cap inside tanh divides
    //| const float t = tanhf(s / cap);
    //| return cap * (1 - t * t);
    //# wrong not-squared: the square of tanh
    //| return 1 - tanhf(s / cap);
    //# wrong of-the-result: comes in, not of what goes out
    //| const float t = tanhf((*this)(s, b, h, i, j) / cap);
    //| return 1 - t * t;
    //# also by-cosh
    //| const float c = coshf(s / cap);
    //| return 1 / (c * c);
    //# end
  }
};

__global__ void apply(const float* s /*[256]*/, float* changed /*[256]*/, float* derivative /*[256]*/, float cap) {
  const int i = threadIdx.x;
  const Softcap modifier{cap};
  const float score = s[i];
  changed[i] = modifier(score, 0, 0, 0, i);
  derivative[i] = modifier.derivative(score, 0, 0, 0, i);
}

//# judge

void judge(Trial& t) {
  constexpr int N = 256;
  constexpr double cap = 2;
  const Floats s = t.normal("s", N);
  const auto in = t.upload("s", s), changed = t.alloc("changed", N), derivative = t.alloc("derivative", N);
  apply<<<1, N>>>(in.data(), changed.data(), derivative.data(), float(cap));
  t.findings();
  const auto answer = [&](auto f) {
    Doubles want(N);
    for (int i = 0; i < N; ++i) want[i] = f(double(s[i]));
    return want;
  };
  const auto slope = [](double x) { return 1 - std::tanh(x) * std::tanh(x); };
  t.answer("derivative", t.download(derivative), answer([&](double x) { return slope(x / cap); }), N,
           {{answer([](double) { return 1.0; }), "This is as if nothing were bent: the derivative is 1 at 0 alone."},
            {answer([&](double x) { return cap * slope(x / cap); }),
             "The cap inside tanh divides, and the one in front multiplies: together they leave the derivative alone."},
            {answer([&](double x) { return 1 - std::tanh(x / cap); }), "It is 1 minus the square of tanh."},
            {answer([&](double x) { return slope(std::tanh(x / cap)); }),
             "The derivative is that of the score that comes in, not of what goes out."}});
  t.predicted(t.traffic("s").read_bytes + t.traffic("changed").written_bytes + t.traffic("derivative").written_bytes);
}
