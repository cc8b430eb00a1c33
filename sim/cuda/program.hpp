// program.hpp: a CUDA program that runs on the simulator by itself: its one machine, and what is reported at its end.
// The environment says how (./flash check sets it): FLASH_CHECK="order=reverse completion=eager seed=7 profile=sm_80
// threads=1 timeout=60 sample=16 progress=10", FLASH_CHECK_JSON=file for the report, FLASH_CHECK_PLAYER=file for the
// player, FLASH_CHECK_STATUS=file for the number of findings.
// Use: program().run(launch);
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "sim/machine.hpp"

namespace flash::simt {
struct Launch;
}

namespace flash::cuda {

class Program {
 public:
  Program();
  simt::MachineCore& machine() { return *machine_; }
  void run(simt::Launch& launch);
  // Host code follows a pointer: a finding if it is the device's.
  void host_accessed(const void* address, bool writes, const void* return_address);
  // Prints it, unless it was seen before.
  void add_finding(const Finding& finding);
  // How often an array of this name was allocated, this time included.
  int number_of(const std::string& name) { return ++names_[name]; }
  // What ended a kernel on the device, as cudaDeviceSynchronize tells it: a failed assert.
  bool assertion_failed() const { return assertion_failed_; }
  // The report: as a table on stderr, or as JSON.
  void finish() const;

 private:
  struct Kernel {
    KernelReport total;
    std::uint64_t launches = 0;
  };
  void say_status() const;

  std::mutex mutex_;  // launches of several threads of the host come one after another
  std::unique_ptr<simt::MachineCore, void (*)(simt::MachineCore*)> machine_;
  std::vector<Kernel> kernels_;  // in the order of their first launch
  std::vector<Finding> findings_;
  std::set<std::string> seen_;
  bool assertion_failed_ = false;
  std::map<std::string, int> names_;
};

Program& program();

}  // namespace flash::cuda
