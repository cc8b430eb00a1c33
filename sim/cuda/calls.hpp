// calls.hpp: what the bodies of CUDA's calls share: their errors, and whether a stream may be used.
// Use: api.cpp, device.cpp, memory.cpp, streams.cpp.
#pragma once
#include <functional>
#include <string>

#include "sim/cuda/api.hpp"

namespace flash::cuda {

// Notes the error for cudaGetLastError, and gives it back.
cudaError_t failed(cudaError_t error);
// The call is a defect of the program: says so, counts it, gives it CUDA's error.
cudaError_t defect(const char* call, simt::Site site, const std::string& what, cudaError_t error);

// Does the work in the stream: at once, or, while the stream is captured, whenever the graph is launched. Whether it
// launches kernels, and whether the host waits for it.
enum class In { works, launches, waits };
cudaError_t in_stream(cudaStream_t stream, const char* call, simt::Site site, std::function<cudaError_t()> work,
                      In how = In::works);
// What is over for the host from here on.
void host_waits_for(cudaStream_t stream);
void host_waits_for_all();
bool is_captured(cudaStream_t stream);
// The host waits for a stream, or for all of the device. An error while one is captured.
cudaError_t wait_for(cudaStream_t stream);
cudaError_t wait_for_all();
// All streams and events are gone.
void reset_streams();

}  // namespace flash::cuda
