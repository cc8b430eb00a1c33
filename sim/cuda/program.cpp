// program.cpp: see program.hpp. The report is written when the program leaves main or calls exit; findings are printed
// as soon as a launch has ended, so that those of a program that crashes later are seen.
// Use: see program.hpp.
#include "sim/cuda/program.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "sim/core/block.hpp"
#include "sim/core/code_names.hpp"
#include "sim/core/device_memory.hpp"
#include "sim/cuda/order.hpp"
#include "sim/report/causes.hpp"
#include "sim/report/json.hpp"
#include "sim/report/recording.hpp"
#include "sim/report/report.hpp"

// Whether the program's kernels were compiled with checks: cuda_runtime.h defines it in the program.
extern "C" bool flash_program_is_checked;

namespace flash::cuda {
namespace {

Recording recording;  // of all launches, where FLASH_CHECK_PLAYER asks for it

MachineOptions options() {
  MachineOptions result;
  if (std::getenv("FLASH_CHECK_PLAYER")) result.recording = &recording;
  result.keep_going = true;
  result.progress = 10;
  const char* text = std::getenv("FLASH_CHECK");
  std::istringstream words(text ? text : "");
  for (std::string word; words >> word;) {
    const std::string value = word.substr(word.find('=') + 1);
    if (word.starts_with("order=")) {
      result.order = value == "random" ? Order::random : value == "reverse" ? Order::reverse : Order::forward;
    } else if (word.starts_with("completion=")) {
      result.completion = value == "random"  ? Completion::random
                          : value == "eager" ? Completion::eager
                                             : Completion::late;
    } else if (word.starts_with("deterministic=")) {
      result.deterministic = value == "yes";
    } else if (word.starts_with("seed=")) {
      result.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (word.starts_with("threads=")) {
      result.threads = std::atoi(value.c_str());
    } else if (word.starts_with("sample=")) {
      result.checked_blocks = std::strtoull(value.c_str(), nullptr, 10);
    } else if (word.starts_with("progress=")) {
      result.progress = std::atof(value.c_str());
    } else if (word.starts_with("timeout=")) {
      result.timeout = std::atof(value.c_str());
    } else if (word.starts_with("profile=")) {
      result.profile = value == "sm_80" ? Profile::sm_80 : Profile::sm_90;
    }
  }
  return result;
}

template <bool kChecked>
std::unique_ptr<simt::MachineCore, void (*)(simt::MachineCore*)> make() {
  return {new simt::BasicMachine<kChecked>(options()),
          [](simt::MachineCore* m) { delete static_cast<simt::BasicMachine<kChecked>*>(m); }};
}

}  // namespace

Program::Program() : machine_(flash_program_is_checked ? make<true>() : make<false>()) {}

void Program::run(simt::Launch& launch) {
  const std::lock_guard lock(mutex_);
  launch.number = turn().operation, launch.all_over = turn().all_over;
  launch.beside = turn().beside.data(), launch.beside_count = turn().beside.size();
  machine_->run(launch);
  const KernelReport& report = machine_->reports().back();
  const auto same = [&](const Kernel& kernel) {
    return kernel.total.kernel == report.kernel && kernel.total.grid == report.grid &&
           kernel.total.block == report.block;
  };
  const auto known = std::find_if(kernels_.begin(), kernels_.end(), same);
  if (known == kernels_.end()) {
    kernels_.push_back({report, 1});
  } else {
    known->total.ledger.add(report.ledger);
    known->total.checked_blocks = std::max(known->total.checked_blocks, report.checked_blocks);
    for (const UnorderedAdditions& unordered : report.unordered) {  // of several launches the one with most elements
      const auto array = std::find_if(known->total.unordered.begin(), known->total.unordered.end(),
                                      [&](const UnorderedAdditions& other) { return other.array == unordered.array; });
      if (array == known->total.unordered.end())
        known->total.unordered.push_back(unordered);
      else if (array->elements < unordered.elements)
        *array = unordered;
    }
    ++known->launches;
  }
  for (Finding& finding : by_cause(machine_->findings())) {
    // Of lockstep the kernel is part of the cause, whatever its template arguments are.
    if (finding.kind == "lockstep assumed") finding.cause += "|" + report.kernel.substr(0, report.kernel.find('<'));
    assertion_failed_ |= finding.kind == "assertion";
    add_finding(finding);
  }
  machine_->clear();
}

void Program::host_accessed(const void* address, bool writes, const void* return_address) {
  const simt::DeviceArray* array = machine_->array_at(address);
  if (!array || array->managed) return;
  const std::string index = std::to_string(array->index(static_cast<const std::byte*>(address), 1));
  const std::string element = array->untyped ? "byte " + index + " of " + array->name : array->name + "[" + index + "]";
  add_finding({"host access",
               "host access: host code " + std::string(writes ? "writes " : "reads ") + element +
                   ", which is device memory\n  " + (writes ? "writes  " : "reads  ") + simt::site_of(return_address) +
                   (array->variable ? "\n  remedy: copy it with cudaMemcpyToSymbol or cudaMemcpyFromSymbol"
                                    : "\n  remedy: copy it with cudaMemcpy, or allocate it with cudaMallocManaged")});
}

void Program::add_finding(const Finding& finding) {
  // The same defect in a later launch, at another place of the array, is no new one.
  std::string key = finding.cause;
  if (key.empty()) {
    key = finding.kind;
    std::istringstream lines(finding.text);
    std::string line;
    std::getline(lines, line);
    if (finding.kind == "call") key += line;
    while (std::getline(lines, line)) key += line.substr(0, line.find("  block"));
    key.resize(std::min(key.size(), key.find("  seen")));
  }
  if (!seen_.insert(key).second) return;
  findings_.push_back(finding);
  std::cerr << finding.text << "\n" << std::flush;
  say_status();
}

void Program::say_status() const {
  if (const char* path = std::getenv("FLASH_CHECK_STATUS")) std::ofstream(path) << findings_.size() << "\n";
}

void Program::finish() const {
  say_status();
  if (const char* path = std::getenv("FLASH_CHECK_PLAYER"); path && !recording.launches.empty()) {
    recording.title = recording.launches[0].kernel;
    std::ofstream(path) << player_page({to_json(recording)});
  }
  std::vector<KernelReport> reports;
  for (const Kernel& kernel : kernels_) reports.push_back(kernel.total);
  if (const char* path = std::getenv("FLASH_CHECK_JSON")) {
    std::ofstream out(path);
    out << "{\"findings\": [";
    for (std::size_t i = 0; i < findings_.size(); ++i)
      out << (i ? ",\n  " : "\n  ") << "{\"kind\": " << json_string(findings_[i].kind)
          << ", \"count\": " << findings_[i].count << ", \"text\": " << json_string(findings_[i].text) << "}";
    out << "\n],\n\"launches\": [";
    for (std::size_t i = 0; i < kernels_.size(); ++i) out << (i ? ", " : "") << kernels_[i].launches;
    out << "],\n\"kernels\": " << to_json(reports) << "}\n";
    return;
  }
  for (const Kernel& kernel : kernels_) {
    if (kernel.launches > 1) std::cerr << "of " << kernel.launches << " launches: ";
    print_report(std::cerr, kernel.total);
  }
}

Program& program() {
  // Never destroyed: other static objects may free device memory when the program ends.
  static Program* const the_program = [] {
    auto* made = new Program;
    std::atexit([] {
      simt::host_watched = nullptr;
      program().finish();
    });
    simt::host_accessed = [](const void* address, bool writes, const void* return_address) {
      const auto watched = std::exchange(simt::host_watched, nullptr);  // what follows is no program's access
      program().host_accessed(address, writes, return_address);
      simt::host_watched = watched;
    };
    simt::host_watched = &made->machine().memory();
    return made;
  }();
  return *the_program;
}

}  // namespace flash::cuda
