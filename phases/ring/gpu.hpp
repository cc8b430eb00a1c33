// Phase 30: a worker whose memory is a GPU's: kernels compute, merge and move rows on one stream, and the host goes on.
// On the simulator it is the same, for tests. Each thread has its own.
// Use: const auto worker = on_gpu::gpu_worker(phase19::phase);  Dense q = worker->dense(…);  worker->upload(q, data);
#pragma once
#include <functional>
#include <memory>

#include "phases/interface/operands.hpp"
#include "phases/ring/worker.hpp"
#include "sim/machine_options.hpp"

namespace flash::phase30 {

class GpuWorker : public Worker {
 public:
  using Worker::Worker;
  virtual void upload(const Dense& to, const void* from) const = 0;
  virtual void download(void* to, const Dense& from) const = 0;  // waits for all that was asked before
  virtual void* stream() const = 0;                              // a cudaStream_t, of low priority
  virtual const std::vector<Finding>& findings() const = 0;      // of the checked simulator

  // Called on the host before what is enqueued on a stream, with its name, and behind it, with "".
  std::function<void(void* stream, const char* what)> mark = [](void*, const char*) {};
};

// A rank's arrays, dense in the host's memory, in a worker's memory: what is read is copied, what is written comes back
// when it is asked for.
class Uploaded {
 public:
  Uploaded(const GpuWorker& worker, const AnyProblem& mine) : worker_(worker), mine_(mine), problem_(mine) {
    for (const Operand& operand : operands) {
      if (!is_given(operand, mine)) continue;
      const AnyView& host = mine.*operand.view;
      Held& held =
          held_.emplace_back(Held{&operand, worker.dense(type_of_elements(operand.element, mine), host.shape)});
      (problem_.*operand.view) = held.array.view();
      if (!is_written(operand, mine) && host.elements()) worker.upload(held.array, host.data);
    }
  }
  const AnyProblem& problem() const { return problem_; }
  void download() const {
    for (const Held& held : held_)
      if (is_written(*held.operand, mine_) && held.array.bytes())
        worker_.download((mine_.*held.operand->view).data, held.array);
  }

 private:
  struct Held {
    const Operand* operand;
    Dense array;
  };
  const GpuWorker& worker_;
  AnyProblem mine_, problem_;
  std::vector<Held> held_;
};

}  // namespace flash::phase30

// On the current device, or on a simulator of its own. `phase`: its passes must be kernels.
namespace flash::on_sim {
std::unique_ptr<phase30::GpuWorker> gpu_worker(const Phase& phase, const MachineOptions& options = {});
}
namespace flash::on_checked {
std::unique_ptr<phase30::GpuWorker> gpu_worker(const Phase& phase, const MachineOptions& options = {});
}
namespace flash::on_gpu {
std::unique_ptr<phase30::GpuWorker> gpu_worker(const Phase& phase, const MachineOptions& options = {});
}
