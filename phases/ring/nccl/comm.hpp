// Phase 30: ranks that are GPUs, by NCCL: messages travel on a stream of their own, of higher priority than kernels,
// whose few blocks must find room beside a kernel that fills the GPU. Nothing waits for ever: where NCCL waits for
// others, in its beginning and in the first exchange with each rank, a clock runs beside it; later calls return at
// once, and the communicator is aborted where an exchange is not over in time. (A communicator that does not block
// would start a thread for each exchange.)
// Use: NcclComm comm(id, rank, size, 60, worker.stream());  id: of ncclGetUniqueId, the same on all ranks
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "phases/30-ring/comm.hpp"
#include "phases/ring/watchdog.hpp"

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
    Watchdog watchdog(limit_, std::to_string(rank), "the beginning of NCCL");
    check(ncclCommInitRank(&comm_, size, id, rank), "ncclCommInitRank");
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
  void start() override {
    check(cudaEventRecord(ready_, compute_), "event");
    check(cudaStreamWaitEvent(transfer_, ready_, 0), "wait for the kernels");
    over_ = false;
    mark(transfer_, "exchange");
    std::optional<Watchdog> watchdog;
    if (has_new_peers()) watchdog.emplace(limit_, std::to_string(rank), "the first exchange with a rank");
    check(ncclGroupStart(), "ncclGroupStart");
    for (const Outgoing& message : send_)
      for (const Bytes& piece : message.pieces)
        if (!piece.empty())
          check(ncclSend(piece.data(), piece.size(), ncclUint8, message.to, comm_, transfer_), "ncclSend");
    for (const Incoming& message : receive_)
      for (const Room& piece : message.pieces)
        if (!piece.empty())
          check(ncclRecv(piece.data(), piece.size(), ncclUint8, message.from, comm_, transfer_), "ncclRecv");
    check(ncclGroupEnd(), "ncclGroupEnd");
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
  // NCCL does not tell one message from another.
  bool has_sent(std::size_t) override { return over_; }
  bool has_received(std::size_t) override { return over_; }

 private:
  static void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw MachineError(std::string(what) + ": " + cudaGetErrorString(status));
  }
  void check(ncclResult_t status, const char* what) const {
    if (status == ncclSuccess) return;
    throw RankLost("rank " + std::to_string(rank) + " cannot go on in " + what + ": " + ncclGetErrorString(status) +
                   "; expected success; see what the other ranks do");
  }
  bool has_new_peers() {
    const std::size_t before = peers_.size();
    for (const Outgoing& message : send_) peers_.insert(message.to);
    for (const Incoming& message : receive_) peers_.insert(message.from);
    return peers_.size() > before;
  }

  cudaStream_t compute_, transfer_ = nullptr;
  cudaEvent_t ready_ = nullptr, done_ = nullptr;
  ncclComm_t comm_ = nullptr;
  double limit_;
  std::set<int> peers_;  // with whom there was an exchange
  bool over_ = true;
};

}  // namespace flash::phase30
