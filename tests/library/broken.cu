// broken.cu: phase 08 as it must not be: a kernel whose threads all write one number of shared memory. In a library of
// its own, so that a finding of the checked simulator can be seen to come out of libflashphases.
// Use: libflashphases-broken.so (tests/library/CMakeLists.txt), which simulated_test.py loads.
#include "phases/08-lse/phase.hpp"
#include "phases/interface/kernel_phase.cuh"

namespace flash::broken::inline FLASH_MACHINE {

struct Mail {
  float number;
};

template <class T>
__global__ void racing(Heads<T> O) {
  Mail& mail = shared<Mail>();
  mail.number = static_cast<float>(threadIdx.x);
  __syncthreads();
  O.head(0, 0).data[threadIdx.x] = round_to<T>(mail.number);
}

struct Attention {
  template <int D, int Br, int Bc>
  using Shared = Mail;
  template <class T, int D, int Br, int Bc>
  static void launch(const DeviceProblem<T>& p) {
    racing<T><<<1, 16, sizeof(Mail), p.stream>>>(p.O);
  }
};

static const Added added = added_pass<phase08::features, Attention>(phase08::forward_pass);

}  // namespace flash::broken::inline FLASH_MACHINE
