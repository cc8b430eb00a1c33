// streams.cpp: see streams.hpp. Handles are checked against those that there are, so that a stream that was destroyed,
// or never made, is CUDA's error and no crash.
// Use: through <cuda_runtime.h>; in_stream() and wait_for() for the calls of the other files.
#include "sim/cuda/streams.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "sim/cuda/calls.hpp"
#include "sim/cuda/order.hpp"
#include "sim/cuda/program.hpp"

using flash::cuda::defect, flash::cuda::failed, flash::cuda::Known, flash::cuda::program;

namespace {

// What a graph does, one after the other; nullptr for the stream that it is launched in.
using Work = std::function<cudaError_t()>;
using Operations = std::vector<Work>;

// The capture of one stream, and of those that have waited for an event of it.
struct Capture {
  cudaStream_t origin;
  Operations operations;
  std::set<cudaStream_t> unjoined;  // streams with work that the origin has not waited for
  std::set<cudaStream_t> streams;
  bool invalid = false;
};

}  // namespace

struct CUstream_st {
  unsigned flags = cudaStreamDefault;
  int priority = 0;
  unsigned number = 0;
  std::shared_ptr<Capture> capture = nullptr;
  Known known = {};  // what its next operation comes after
};
struct CUevent_st {
  unsigned flags = cudaEventDefault;
  std::chrono::steady_clock::time_point time{};
  bool recorded = false;
  std::shared_ptr<Capture> capture = nullptr;  // recorded in a captured stream,
  std::set<cudaStream_t> behind{};             // behind the work of these
  Known known = {};                            // what is over when it is
};
struct CUgraph_st {
  Operations operations;
};
struct CUgraphExec_st {
  Operations operations;
};

namespace {

constexpr int kGreatestPriority = -5;  // as on an H200; the least is 0

std::recursive_mutex mutex;  // of all handles
std::set<cudaStream_t> streams;
std::set<cudaEvent_t> events;
std::set<cudaGraph_t> graphs;
std::set<cudaGraphExec_t> execs;
CUstream_st legacy, per_thread{.number = 1};
unsigned streams_made = 1;
bool in_host_function = false;
std::uint64_t operations = 0;
Known host;       // what the host has waited for
Known destroyed;  // what streams did that are gone
flash::cuda::Launches launches;
thread_local flash::cuda::Turn now;  // of the calling thread of the host

// The stream; null: there is none of this handle.
cudaStream_t found(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) return &legacy;
  if (stream == cudaStreamPerThread) return &per_thread;
  return streams.contains(stream) ? stream : nullptr;
}

bool any_capture() {
  for (const cudaStream_t stream : streams)
    if (stream->capture) return true;
  return per_thread.capture != nullptr;
}

// The legacy stream waits for all blocking ones: not for one that is captured.
bool blocking_capture() {
  for (const cudaStream_t stream : streams)
    if (stream->capture && !(stream->flags & cudaStreamNonBlocking)) return stream->capture->invalid = true;
  return per_thread.capture != nullptr && (per_thread.capture->invalid = true);
}

// What an operation in this stream comes after.
Known before(cudaStream_t stream) {
  Known known = stream->known;
  known.join(host);
  if (stream->flags & cudaStreamNonBlocking) return known;
  if (stream != &legacy) {
    known.join(legacy.known);
    return known;
  }
  known.join(per_thread.known);
  for (const cudaStream_t other : streams)
    if (!(other->flags & cudaStreamNonBlocking)) known.join(other->known);
  return known;
}

void begin_operation(cudaStream_t stream) {
  stream->known = before(stream);
  now.operation = ++operations;
  now.beside = launches.beside(stream->known);
  now.all_over = launches.empty();
  stream->known.learn(stream->number, now.operation);
}

void host_waits(const Known& known) {
  host.join(known);
  launches.forget(host);
}

void call(cudaHostFn_t function, void* data) {
  in_host_function = true;
  function(data);
  in_host_function = false;
}

void leave_capture(Capture& capture) {
  for (const cudaStream_t stream : capture.streams)
    if (found(stream) && stream->capture.get() == &capture) stream->capture = nullptr;
}

}  // namespace

namespace flash::cuda {

const Turn& turn() {
  return now;
}

std::vector<std::uint64_t> Launches::beside(const Known& known) const {
  std::vector<std::uint64_t> result;
  for (const auto& [stream, operations_of] : of_)
    for (auto last = operations_of.rbegin(); last != operations_of.rend() && *last > known.of(stream); ++last)
      result.push_back(*last);
  std::sort(result.begin(), result.end());
  return result;
}

void Launches::forget(const Known& known) {
  for (auto of = of_.begin(); of != of_.end();) {
    auto& [stream, all] = *of;
    all.erase(all.begin(), std::upper_bound(all.begin(), all.end(), known.of(stream)));
    of = all.empty() ? of_.erase(of) : std::next(of);
  }
}

void host_waits_for(cudaStream_t handle) {
  const std::lock_guard lock(mutex);
  if (const cudaStream_t stream = found(handle)) host_waits(before(stream));
}

void host_waits_for_all() {
  const std::lock_guard lock(mutex);
  for (const cudaStream_t stream : streams) host.join(stream->known);
  host.join(per_thread.known);
  host.join(destroyed);
  host_waits(legacy.known);
}

cudaError_t in_stream(cudaStream_t handle, const char* call, simt::Site site, std::function<cudaError_t()> work,
                      In how) {
  if (in_host_function) return defect(call, site, "a host function makes a call of CUDA", cudaErrorNotPermitted);
  {
    const std::lock_guard lock(mutex);
    const cudaStream_t stream = found(handle);
    if (!stream) return defect(call, site, "the stream was destroyed, or never made", cudaErrorInvalidResourceHandle);
    if (stream == &legacy && blocking_capture()) return failed(cudaErrorStreamCaptureImplicit);
    if (Capture* const capture = stream->capture.get()) {
      if (capture->invalid) return failed(cudaErrorStreamCaptureInvalidated);
      capture->operations.push_back(std::move(work));
      if (stream != capture->origin) capture->unjoined.insert(stream);
      return cudaSuccess;
    }
    begin_operation(stream);
    if (how == In::launches) launches.add(stream->number, now.operation);
  }
  const cudaError_t error = work();
  if (how == In::waits) host_waits_for(handle);
  return error;
}

bool is_captured(cudaStream_t handle) {
  const std::lock_guard lock(mutex);
  const cudaStream_t stream = found(handle);
  return stream && stream->capture;
}

cudaError_t wait_for(cudaStream_t handle) {
  if (in_host_function) return failed(cudaErrorNotPermitted);
  const std::lock_guard lock(mutex);
  const cudaStream_t stream = found(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  if (stream->capture) {
    stream->capture->invalid = true;
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  if (stream == &legacy && blocking_capture()) return failed(cudaErrorStreamCaptureImplicit);
  host_waits_for(handle);
  // Every launch is over when its call returns. A failed assert ends a GPU's context: from then on this is the answer.
  return program().assertion_failed() ? failed(cudaErrorAssert) : cudaSuccess;
}

cudaError_t wait_for_all() {
  const std::lock_guard lock(mutex);
  if (any_capture()) {
    for (const cudaStream_t stream : streams)
      if (stream->capture) stream->capture->invalid = true;
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  host_waits_for_all();
  return wait_for(nullptr);
}

void reset_streams() {
  const std::lock_guard lock(mutex);
  host_waits_for_all();
  for (const cudaStream_t stream : streams) delete stream;
  for (const cudaEvent_t event : events) delete event;
  streams.clear(), events.clear();
}

}  // namespace flash::cuda

// ---- streams ------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (!stream || flags > cudaStreamNonBlocking) return failed(cudaErrorInvalidValue);
  const std::lock_guard lock(mutex);
  *stream = new CUstream_st{flags, std::clamp(priority, kGreatestPriority, 0), ++streams_made};
  streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (streams.erase(stream) == 0) return failed(cudaErrorInvalidResourceHandle);
  destroyed.join(stream->known);
  if (!(stream->flags & cudaStreamNonBlocking)) legacy.known.join(stream->known);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  const std::lock_guard lock(mutex);
  const cudaStream_t stream = found(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  *flags = stream->flags;
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  const std::lock_guard lock(mutex);
  const cudaStream_t stream = found(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  *priority = stream->priority;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = kGreatestPriority;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return flash::cuda::wait_for(stream);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return flash::cuda::wait_for(stream);
}

// ---- events -------------------------------------------------------------------------------------------------------

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags) {
  return cudaEventCreateWithFlags(event, flags);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (!event || flags > 7) return failed(cudaErrorInvalidValue);
  const std::lock_guard lock(mutex);
  *event = new CUevent_st{flags};
  events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  if (events.erase(event) == 0) return failed(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  const std::lock_guard lock(mutex);
  const cudaStream_t stream = found(handle);
  if (!stream || !events.contains(event)) return failed(cudaErrorInvalidResourceHandle);
  if (stream == &legacy && blocking_capture()) return failed(cudaErrorStreamCaptureImplicit);
  event->capture = stream->capture;
  if (event->capture) {
    event->behind = {stream};
    return cudaSuccess;
  }
  begin_operation(stream);
  event->known = stream->known;
  event->time = std::chrono::steady_clock::now(), event->recorded = true;
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return flags > 1 ? failed(cudaErrorInvalidValue) : cudaEventRecord(event, stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  const std::lock_guard lock(mutex);
  const cudaStream_t stream = found(handle);
  if (!stream || !events.contains(event)) return failed(cudaErrorInvalidResourceHandle);
  if (flags > 1) return failed(cudaErrorInvalidValue);
  if (!event->capture) {
    if (!stream->capture) {
      stream->known.join(event->known);
      return cudaSuccess;
    }
    stream->capture->invalid = true;
    return failed(cudaErrorStreamCaptureIsolation);
  }
  if (stream->capture && stream->capture != event->capture) {
    stream->capture->invalid = event->capture->invalid = true;
    return failed(cudaErrorStreamCaptureMerge);
  }
  if (stream == &legacy) return failed(cudaErrorStreamCaptureImplicit);
  stream->capture = event->capture;
  stream->capture->streams.insert(stream);
  if (stream == stream->capture->origin)
    for (const cudaStream_t joined : event->behind) stream->capture->unjoined.erase(joined);
  else
    stream->capture->unjoined.insert(stream);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  if (!events.contains(event)) return failed(cudaErrorInvalidResourceHandle);
  if (event->capture) {
    event->capture->invalid = true;
    return failed(cudaErrorCapturedEvent);
  }
  host_waits(event->known);
  return program().assertion_failed() ? failed(cudaErrorAssert) : cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return cudaEventSynchronize(event);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(mutex);
  for (const cudaEvent_t event : {begin, end})
    if (!events.contains(event) || !event->recorded || event->flags & cudaEventDisableTiming)
      return failed(cudaErrorInvalidResourceHandle);
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

// ---- functions of the host ------------------------------------------------------------------------------------------

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data, flash::simt::Site site) {
  if (!function) return failed(cudaErrorInvalidValue);
  return flash::cuda::in_stream(stream, "cudaLaunchHostFunc", site, [=] { return call(function, data), cudaSuccess; });
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned flags,
                                  flash::simt::Site site) {
  if (!callback || flags != 0) return failed(cudaErrorInvalidValue);
  {
    const std::lock_guard lock(mutex);
    if (const cudaStream_t known = found(stream); known && known->capture) {
      known->capture->invalid = true;
      return failed(cudaErrorStreamCaptureUnsupported);
    }
  }
  return flash::cuda::in_stream(stream, "cudaStreamAddCallback", site, [=] {
    in_host_function = true;
    callback(stream, cudaSuccess, data);
    in_host_function = false;
    return cudaSuccess;
  });
}

// ---- graphs -------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(mutex);
  const cudaStream_t stream = found(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed) return failed(cudaErrorInvalidValue);
  if (stream == &legacy) return failed(cudaErrorStreamCaptureUnsupported);
  if (stream->capture) return failed(cudaErrorIllegalState);
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream, stream->capture->streams = {stream};
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const std::lock_guard lock(mutex);
  const cudaStream_t stream = found(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  if (!graph) return failed(cudaErrorInvalidValue);
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return failed(cudaErrorIllegalState);
  if (capture->origin != stream) return failed(cudaErrorStreamCaptureUnmatched);
  leave_capture(*capture);
  if (capture->invalid) return failed(cudaErrorStreamCaptureInvalidated);
  if (!capture->unjoined.empty()) return failed(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{std::move(capture->operations)};
  graphs.insert(*graph);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(mutex);
  const cudaStream_t stream = found(handle);
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  if (!status) return failed(cudaErrorInvalidValue);
  if (stream == &legacy && blocking_capture()) return failed(cudaErrorStreamCaptureImplicit);
  *status = !stream->capture           ? cudaStreamCaptureStatusNone
            : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  const std::lock_guard lock(mutex);
  if (!graphs.contains(graph) || !count) return failed(cudaErrorInvalidValue);
  if (nodes) return failed(cudaErrorNotSupported);  // a node by itself has no meaning here
  *count = graph->operations.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  const std::lock_guard lock(mutex);
  if (!exec || !graphs.contains(graph)) return failed(cudaErrorInvalidValue);
  *exec = new CUgraphExec_st{graph->operations};
  execs.insert(*exec);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, cudaGraphNode_t*, char*, std::size_t) {
  return cudaGraphInstantiate(exec, graph);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream, flash::simt::Site site) {
  {
    const std::lock_guard lock(mutex);
    if (!execs.contains(exec)) return failed(cudaErrorInvalidValue);
  }
  return flash::cuda::in_stream(
      stream, "cudaGraphLaunch", site,
      [operations = exec->operations] {
        for (const Work& work : operations)
          if (const cudaError_t error = work(); error != cudaSuccess) return error;
        return cudaSuccess;
      },
      flash::cuda::In::launches);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t) {
  const std::lock_guard lock(mutex);
  return execs.contains(exec) ? cudaSuccess : failed(cudaErrorInvalidValue);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const std::lock_guard lock(mutex);
  if (execs.erase(exec) == 0) return failed(cudaErrorInvalidValue);
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::lock_guard lock(mutex);
  if (graphs.erase(graph) == 0) return failed(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}
