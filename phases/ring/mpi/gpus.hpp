// Phase 30: ranks of flash-ring on GPUs of any number of hosts: MPI tells them who they are and what NCCL must know,
// and NCCL moves the keys. A program that was built without CUDA or NCCL says so.
// Use: take_gpu(comm);  const auto nccl = nccl_comm(comm, 60, worker.stream());
#pragma once
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>

#include "phases/interface/where.hpp"
#include "phases/ring/mpi/comm.hpp"
#ifdef FLASH_HAVE_NCCL
#include "phases/ring/nccl/comm.hpp"
#endif

namespace flash::phase30 {

#ifdef FLASH_HAVE_NCCL

inline void must(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw MachineError(std::string(what) + ": " + cudaGetErrorString(status));
}

// Makes the next GPU of its host the rank's own: of so many that it sees, by its place among the host's ranks. A
// scheduler may also let each rank see one alone. Refuses, on all ranks alike, a host without one and a GPU of two.
inline void take_gpu(Comm& comm) {
  using Name = std::array<char, 256>;
  Name host{};
  gethostname(host.data(), host.size() - 1);
  const std::vector<Name> hosts = gather(comm, host, "naming the hosts");
  const auto before = std::count(hosts.begin(), hosts.begin() + comm.rank, host);
  int seen = 0;
  Name gpu{};  // "": none
  if (cudaGetDeviceCount(&seen) == cudaSuccess && seen > 0) {
    const int device = static_cast<int>(before % seen);
    must(cudaSetDevice(device), "cudaSetDevice");
    must(cudaDeviceGetPCIBusId(gpu.data(), static_cast<int>(gpu.size()), device), "cudaDeviceGetPCIBusId");
  }
  const std::vector<Name> gpus = gather(comm, gpu, "naming the GPUs");
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    const std::string name = "rank " + std::to_string(rank), on = std::string(" on ") + hosts[rank].data();
    if (!gpus[rank][0]) refuse(name + on, "without a GPU", "one for each rank", "see nvidia-smi there");
    for (std::size_t other = 0; other < rank; ++other)
      if (gpus[other] == gpus[rank] && hosts[other] == hosts[rank])
        refuse(name + "'s GPU" + on, std::string(gpus[rank].data()) + ", rank " + std::to_string(other) + "'s",
               "one for each rank", "start as many ranks there as it has GPUs");
  }
}

// Among the same ranks. `stream`: of the worker.
inline std::unique_ptr<Comm> nccl_comm(Comm& comm, double limit_seconds, void* stream) {
  ncclUniqueId id{};
  if (comm.rank == 0 && ncclGetUniqueId(&id) != ncclSuccess) throw MachineError("ncclGetUniqueId failed");
  id = gather(comm, id, "naming NCCL's meeting")[0];
  return std::make_unique<NcclComm>(id, comm.rank, comm.size, limit_seconds, stream);
}

#else

inline void take_gpu(Comm&) {
  refuse("--machine", "gpu", "host, sim or checked: this flash-ring was built without CUDA or without NCCL",
         "install both and build it again with -DFLASH_CUDA=ON");
}
inline std::unique_ptr<Comm> nccl_comm(Comm&, double, void*) {
  return nullptr;
}

#endif

}  // namespace flash::phase30
