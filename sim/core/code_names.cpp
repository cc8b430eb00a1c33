// code_names.cpp: turns program counters into file:line, addresses into names, with libbacktrace, else addr2line.
// Use: see code_names.hpp.
#include "sim/core/code_names.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#if __has_include(<backtrace.h>)
#include <backtrace.h>
#define FLASH_LIBBACKTRACE 1
#endif

namespace flash::simt {
namespace {

std::string last_component(std::string path) {
  return path.substr(path.find_last_of('/') + 1);
}

// The simulator's own code: its headers are inlined into kernels, and the line that matters is the kernel's.
bool is_simulator(const std::string& path) {
  const auto has = [&](const char* part) { return path.find(part) != std::string::npos; };
  return has("/sim/dialect/") || has("/sim/checks/") || path.ends_with("/sim/core/simt.hpp") ||
         path.ends_with("/sim/number.hpp");
}
// Code that kernels call and that nobody means to read about: the C++ library's, and all else of the simulator.
bool is_library(const std::string& path) {
  using Path = std::filesystem::path;
  static const std::string root = Path(__FILE__).lexically_normal().parent_path().parent_path() / "";  // sim/
  return path.find("/include/c++/") != std::string::npos || path.starts_with("/usr/include/") ||
         Path(path).lexically_normal().string().starts_with(root);
}

// T::T(const T&), T::operator=(T&&) and their like, as the linker names them: the line of a copy is where it is made,
// not where the struct begins.
bool is_copy(std::string_view function) {
  const std::size_t type = std::min(function.rfind('S'), function.size());
  const std::string_view before = function.substr(0, type);
  for (const char* sign : {"aSERK", "aSEO", "C1ERK", "C2ERK", "C4ERK", "C1EO", "C2EO", "C4EO"})
    if (before.ends_with(sign)) return function.ends_with('_');
  return false;
}

// Frames of one address, innermost first.
class Frames {
 public:
  explicit Frames(std::vector<CodeLine>& lines) : lines_(lines) {}
  void add(const std::string& file, unsigned line, std::string_view function) {
    if (is_simulator(file)) return;
    if (copies_) lines_.pop_back();
    lines_.push_back({file, line});
    copies_ = is_copy(function);
  }

 private:
  std::vector<CodeLine>& lines_;
  bool copies_ = false;  // the last one
};

#if FLASH_LIBBACKTRACE
backtrace_state* symbols() {
  // The path that the program was started with; libbacktrace alone would ask /proc, which a bare chroot lacks.
  static backtrace_state* state = backtrace_create_state(
      reinterpret_cast<const char*>(getauxval(AT_EXECFN)), 1, [](void*, const char*, int) {}, nullptr);
  return state;
}
#endif

// The lines that each of these calls or accesses stands for, innermost first, the simulator's own left out.
std::vector<std::vector<CodeLine>> looked_up(const std::vector<const void*>& return_addresses) {
  std::vector<std::vector<CodeLine>> all(return_addresses.size());
#if FLASH_LIBBACKTRACE
  const auto take = [](void* data, std::uintptr_t, const char* file, int line, const char* function) {
    if (file) static_cast<Frames*>(data)->add(file, static_cast<unsigned>(line), function ? function : "");
    return 0;
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    Frames frames(all[i]);
    backtrace_pcinfo(
        symbols(), reinterpret_cast<std::uintptr_t>(return_addresses[i]) - 1, take, [](void*, const char*, int) {},
        &frames);
  }
#else
  // A program reads its symbols for as many of them as a command line takes.
  constexpr std::size_t kAtOnce = 1000;
  for (std::size_t first = 0; first < all.size();) {
    Dl_info info{};
    if (dladdr(return_addresses[first], &info) == 0) {
      ++first;
      continue;
    }
    std::string command = std::string("addr2line -a -f -i -e '") + info.dli_fname + "'";
    std::size_t end = first;
    for (Dl_info other{}; end < all.size() && end < first + kAtOnce; ++end) {
      if (dladdr(return_addresses[end], &other) == 0 || other.dli_fbase != info.dli_fbase) break;
      char address[24];
      std::snprintf(address, sizeof address, " 0x%zx",
                    reinterpret_cast<std::uintptr_t>(return_addresses[end]) - 1 -
                        reinterpret_cast<std::uintptr_t>(info.dli_fbase));
      command += address;
    }
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"), pclose);
    char line[512];
    std::size_t next = first;
    std::optional<Frames> frames;  // of the address before that
    std::string function;          // its name stands before its line
    while (pipe && std::fgets(line, sizeof line, pipe.get())) {
      if (std::strncmp(line, "0x", 2) == 0) {
        frames.reset();
        if (next < end) frames.emplace(all[next++]);
        continue;
      }
      const std::string text = std::string(line, std::string(line).find_first_of(" \n"));
      const std::size_t colon = text.rfind(':');
      if (colon == std::string::npos)
        function = text;
      else if (frames)
        frames->add(text.substr(0, colon), static_cast<unsigned>(std::atoi(text.c_str() + colon + 1)), function);
    }
    first = end;
  }
#endif
  // Where the library's code is part of a kernel's function, the line that matters is the kernel's.
  for (std::vector<CodeLine>& lines : all) {
    const auto of_library = [](const CodeLine& line) { return is_library(line.file); };
    if (!std::all_of(lines.begin(), lines.end(), of_library)) std::erase_if(lines, of_library);
  }
  return all;
}

// Workers ask, too.
const std::vector<std::string>& sites_of(const void* return_address) {
  static std::mutex mutex;
  static std::map<const void*, std::vector<std::string>> known;
  const std::lock_guard lock(mutex);
  const auto [position, fresh] = known.try_emplace(return_address);
  std::vector<std::vector<CodeLine>> found;
  if (fresh) found = looked_up({return_address});
  for (const std::vector<CodeLine>& all : found)
    for (const CodeLine& at : all)
      position->second.push_back(last_component(at.file) + ":" + (at.line ? std::to_string(at.line) : "?"));
  return position->second;
}

}  // namespace

std::vector<std::vector<CodeLine>> lines_of(const std::vector<const void*>& return_addresses) {
  return looked_up(return_addresses);
}

std::string site_of(const void* return_address) {
  const std::vector<std::string>& sites = sites_of(return_address);
  return sites.empty() ? "?" : sites[0];
}

bool is_kernels(const void* return_address, const void* kernel) {
  Dl_info here{}, there{};
  if (dladdr(return_address, &here) == 0 || dladdr(kernel, &there) == 0 || here.dli_fbase != there.dli_fbase)
    return false;
  const std::vector<std::vector<CodeLine>> all = looked_up({return_address});
  return !all[0].empty() && !is_library(all[0][0].file);
}

std::string calls_of(const void* return_address) {
  std::string all;
  for (const std::string& site : sites_of(return_address)) all += site + "\n";
  return all;
}

std::string site_of(const Site& site) {
  return site.line() == 0 ? "?" : last_component(site.file_name()) + ":" + std::to_string(site.line());
}

std::string as_written(std::string name) {
  const auto replace = [&name](const std::string& text, const char* by) {
    for (std::size_t at; (at = name.find(text)) != std::string::npos;) name.replace(at, text.size(), by);
  };
  for (const char* prefix : {"flash::on_sim::", "flash::on_checked::", "(anonymous namespace)::", "flash::"})
    replace(prefix, "");
  // What sim/dialect/dialect_half.hpp makes of these types.
  replace("Narrow<half, __half_raw>", "__half"), replace("Narrow<bfloat16, __nv_bfloat16_raw>", "__nv_bfloat16");
  return name;
}

std::string type_name(const std::string& pretty_function) {
  const std::size_t begin = pretty_function.find("S = ") + 4;
  return as_written(pretty_function.substr(begin, pretty_function.find_last_of(']') - begin));
}

std::string function_name(const void* function) {
  static std::map<const void*, std::string> known;
  const auto [position, fresh] = known.try_emplace(function);
  std::string& name = position->second;
  if (!fresh) return name;
#if FLASH_LIBBACKTRACE
  const auto take = [](void* data, std::uintptr_t, const char* symbol, std::uintptr_t, std::uintptr_t) {
    if (symbol) *static_cast<std::string*>(data) = symbol;
  };
  backtrace_syminfo(
      symbols(), reinterpret_cast<std::uintptr_t>(function), take, [](void*, const char*, int) {}, &name);
#endif
  if (name.empty()) return name = "kernel";
  const std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr),
                                                     std::free);
  if (plain) name = as_written(plain.get());
  // "void forward<float, 64>(float const*, int)": drop the parameters and, for templates, the result type.
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    depth += (name[i] == ')') - (name[i] == '(');
    if (name[i] == '(' && depth == 0) {
      name.resize(i);
      break;
    }
  }
  if (name.starts_with("void ")) name.erase(0, 5);
  return name;
}

}  // namespace flash::simt
