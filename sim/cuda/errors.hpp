// errors.hpp: CUDA's error codes, with the numbers and texts that CUDA gives them.
// Use: through <cuda_runtime.h>.
#pragma once

// NOLINTBEGIN: CUDA's names
#define FLASH_CUDA_ERRORS(X)                                                                              \
  X(cudaSuccess, 0, "no error")                                                                           \
  X(cudaErrorInvalidValue, 1, "invalid argument")                                                         \
  X(cudaErrorMemoryAllocation, 2, "out of memory")                                                        \
  X(cudaErrorInitializationError, 3, "initialization error")                                              \
  X(cudaErrorCudartUnloading, 4, "driver shutting down")                                                  \
  X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                   \
  X(cudaErrorInvalidPitchValue, 12, "invalid pitch argument")                                             \
  X(cudaErrorInvalidSymbol, 13, "invalid device symbol")                                                  \
  X(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                                          \
  X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                             \
  X(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")      \
  X(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                                        \
  X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                         \
  X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                                \
  X(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device")     \
  X(cudaErrorUnsupportedLimit, 215, "limit is not supported on this architecture")                        \
  X(cudaErrorPeerAccessUnsupported, 217, "peer access is not supported between these two devices")        \
  X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                       \
  X(cudaErrorIllegalState, 401, "the operation cannot be performed in the present state")               \
  X(cudaErrorSymbolNotFound, 500, "named symbol not found")                                               \
  X(cudaErrorNotReady, 600, "device not ready")                                                           \
  X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                             \
  X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")                        \
  X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                               \
  X(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")                             \
  X(cudaErrorPeerAccessNotEnabled, 705, "peer access has not been enabled")                               \
  X(cudaErrorAssert, 710, "device-side assert triggered")                                                 \
  X(cudaErrorHostMemoryAlreadyRegistered, 712, "part or all of the requested memory range is already mapped") \
  X(cudaErrorHostMemoryNotRegistered, 713, "pointer does not correspond to a registered memory region")   \
  X(cudaErrorMisalignedAddress, 716, "misaligned address")                                                \
  X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                            \
  X(cudaErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch")                     \
  X(cudaErrorNotPermitted, 800, "operation not permitted")                                                \
  X(cudaErrorNotSupported, 801, "operation not supported")                                                \
  X(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")           \
  X(cudaErrorStreamCaptureInvalidated, 901, "operation failed due to a previous error during capture")    \
  X(cudaErrorStreamCaptureMerge, 902, "operation would result in a merge of separate capture sequences")  \
  X(cudaErrorStreamCaptureUnmatched, 903, "capture was not ended in the same stream as it began")         \
  X(cudaErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")                            \
  X(cudaErrorStreamCaptureIsolation, 905, "dependency created on uncaptured work in another stream")      \
  X(cudaErrorStreamCaptureImplicit, 906,                                                                   \
    "operation would make the legacy stream depend on a capturing blocking stream")                       \
  X(cudaErrorCapturedEvent, 907, "operation not permitted on an event last recorded in a capturing stream") \
  X(cudaErrorUnknown, 999, "unknown error")

enum cudaError_t {
#define FLASH_ERROR(name, number, text) name = number,
  FLASH_CUDA_ERRORS(FLASH_ERROR)
#undef FLASH_ERROR
};
using cudaError = cudaError_t;
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
// NOLINTEND
