// code_names.hpp: what a reader calls the program's code: lines of calls and accesses, names of kernels and types.
// Symbols are looked up with libbacktrace, else with addr2line: seldom, and after the launch where that is possible.
// Use: site_of(pc) is "reduce.cu:31".
#pragma once
#include <string>
#include <vector>

#include "sim/core/simt.hpp"

namespace flash::simt {

// "reduce.cu:31" for a program counter (the call's return address) or a source location; "?" when unknown.
std::string site_of(const void* return_address);
std::string site_of(const Site& site);
// Is the code before this address the kernel's or a function's of its program: neither the simulator's nor a library's?
// `kernel`: an address in the code that launches it; a shared library of its own is no part of the program.
bool is_kernels(const void* return_address, const void* kernel);
// All lines that the call at this return address stands for: several where functions are inlined.
std::string calls_of(const void* return_address);
// The lines that the calls at these return addresses stand for, with whole paths, innermost first.
struct CodeLine {
  std::string file;
  unsigned line = 0;
};
std::vector<std::vector<CodeLine>> lines_of(const std::vector<const void*>& return_addresses);
// "transpose" or "forward<float, 64>" for the address of a kernel.
std::string function_name(const void* function);
// "Smem<__half>" without the namespaces of the machines and the simulator's own types.
std::string as_written(std::string name);
// The same from a function's __PRETTY_FUNCTION__, "... [with S = flash::on_checked::Smem<float>]".
std::string type_name(const std::string& pretty_function);

}  // namespace flash::simt
