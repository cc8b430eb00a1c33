// Phase 30: ranks that are GPUs, by NCCL: messages travel on a stream of their own, of higher priority than kernels,
// whose few blocks must find room beside a kernel that fills the GPU. Nothing waits for ever: calls return at once, and
// the communicator is aborted where an exchange is not over in time.
// Use: NcclComm comm(id, rank, size, 60, worker.stream());  id: of ncclGetUniqueId, the same on all ranks
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>
#include <utility>

#include "phases/30-ring/comm.hpp"

namespace flash::phase30 {

class NcclComm : public Comm {
 public:
  // On the current device. `compute`: what was asked of it before an exchange begins is done before it begins.
  NcclComm(const ncclUniqueId& id, int rank, int size, double limit_seconds, void* compute)
      : Comm(rank, size, limit_seconds), compute_(static_cast<cudaStream_t>(compute)), limit_(limit_seconds) {
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities");
    check(cudaStreamCreateWithPriority(&transfer_, cudaStreamNonBlocking, greatest), "stream");
    for (cudaEvent_t* event : {&ready_, &done_})
      check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "event");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(ncclCommInitRankConfig(&comm_, size, id, rank, &config), "ncclCommInitRankConfig");
    settle("the beginning of NCCL");
  }
  ~NcclComm() override {
    if (comm_) ncclCommAbort(comm_);
    cudaEventDestroy(ready_), cudaEventDestroy(done_), cudaStreamDestroy(transfer_);
  }

  // As GpuWorker's.
  std::function<void(void* stream, const char* what)> mark = [](void*, const char*) {};

  void withdraw() override {
    if (over_ || !comm_) return;
    ncclCommAbort(std::exchange(comm_, nullptr));  // ends the kernel that waits for a peer
    cudaStreamSynchronize(transfer_);
  }

 protected:
  void start(const std::vector<Bytes>& send, const std::vector<Room>& receive) override {
    check(cudaEventRecord(ready_, compute_), "event");
    check(cudaStreamWaitEvent(transfer_, ready_, 0), "wait for the kernels");
    over_ = false;
    mark(transfer_, "exchange");
    check(ncclGroupStart(), "ncclGroupStart");
    for (const Bytes& piece : send)
      if (!piece.empty()) check(ncclSend(piece.data(), piece.size(), ncclUint8, to_, comm_, transfer_), "ncclSend");
    for (const Room& piece : receive)
      if (!piece.empty()) check(ncclRecv(piece.data(), piece.size(), ncclUint8, from_, comm_, transfer_), "ncclRecv");
    check(ncclGroupEnd(), "ncclGroupEnd");
    settle("the beginning of an exchange");
    mark(transfer_, "");
    check(cudaEventRecord(done_, transfer_), "event");
  }
  bool progress() override {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    check(state, "an exchange");
    const cudaError_t status = cudaEventQuery(done_);
    if (status != cudaErrorNotReady) check(status, "an exchange");
    return over_ = status == cudaSuccess;
  }
  // NCCL does not tell one half from the other.
  bool has_sent() override { return over_; }
  bool has_received() override { return over_; }

 private:
  static void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw MachineError(std::string(what) + ": " + cudaGetErrorString(status));
  }
  void check(ncclResult_t status, const char* what) const {
    if (status == ncclSuccess || status == ncclInProgress) return;
    throw RankLost("rank " + std::to_string(rank) + " cannot go on in " + what + ": " + ncclGetErrorString(status) +
                   "; expected success; see what the other ranks do");
  }
  // A communicator that does not block knows by its state when a call is done, and wants no other before.
  void settle(const char* what) {
    const auto begin = std::chrono::steady_clock::now();
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress;) {
      check(ncclCommGetAsyncError(comm_, &state), what);
      check(state, what);
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
      if (waited.count() <= limit_) continue;
      ncclCommAbort(std::exchange(comm_, nullptr));
      char limit[32];
      std::snprintf(limit, sizeof limit, "%g s", limit_);
      throw RankLost("rank " + std::to_string(rank) + " has waited " + limit + " in " + what +
                     "; expected all ranks there; see which is not");
    }
  }

  cudaStream_t compute_, transfer_ = nullptr;
  cudaEvent_t ready_ = nullptr, done_ = nullptr;
  ncclComm_t comm_ = nullptr;
  double limit_;
  bool over_ = true;
};

}  // namespace flash::phase30
