// where.cpp: see where.hpp. The only file that asks whether there is a GPU.
// What was built is said by definitions that come with the kernels' libraries (cmake/kernels.cmake).
// Use: require(phase.name, pass.features, Where::Gpu);
#include "phases/interface/where.hpp"

#include "phases/interface/capability.hpp"

#ifdef FLASH_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace flash {
namespace {

#ifdef FLASH_HAVE_CUDA
constexpr bool gpu_was_built = true;
// Compute capability of the calling thread's device; 0.0 where there is none.
Capability device_capability() {
  Capability found{0, 0};
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&found.major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&found.minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    cudaGetLastError();  // not an error of the next launch
    return {0, 0};
  }
  return found;
}
#else
constexpr bool gpu_was_built = false;
Capability device_capability() {
  return {0, 0};
}
#endif

std::string text(const Capability& c) {
  return std::to_string(c.major) + "." + std::to_string(c.minor);
}

}  // namespace

bool was_built(Where where) {
  if (where == Where::Gpu) return gpu_was_built;
#ifdef FLASH_NO_CHECKED_KERNELS
  if (where == Where::Checked) return false;
#endif
  return true;
}

bool available(Where where) {
  return was_built(where) && (where != Where::Gpu || device_capability().major > 0);
}

bool available(const Features& can, Where where) {
  if (!can.kernel) return where == Where::Sim;
  return available(where) && (where != Where::Gpu || runs_on(can, device_capability()));
}

void require(const char* phase, const Features& can, Where where) {
  if (available(can, where)) return;
  if (!can.kernel)
    refuse("machine", name(where), std::string("sim for phase ") + phase + ", which is a CPU phase",
           "choose a kernel phase: ./flash help");
  if (where == Where::Checked)
    refuse("machine", "checked", "sim in a build with AddressSanitizer", "use a build without it");
  if (!was_built(where))
    refuse("machine", "gpu", "sim or checked here", "this build has no CUDA: configure with -DFLASH_CUDA=ON");
  if (!available(where)) refuse("machine", "gpu", "sim or checked here", "no CUDA device was found");
  refuse("this GPU's compute capability", text(device_capability()),
         text(can.capability) + (can.capability.exactly ? "" : " or higher") + " for phase " + phase,
         "choose another phase, or the simulator");
}

}  // namespace flash
