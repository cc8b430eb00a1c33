// headers.cpp: which headers a program of ./flash check may not include, each refused in one line that names it: those
// of libraries whose functions run on a GPU alone, and all of an installed CUDA, whose words are nvcc's. Of some of
// them sim/cuda/include has our own.
// Use: refuse_headers(source) where the preprocessor has come to an end, refusal_of(its messages) where not: main.cpp.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>

#include "sim/compiler/source.hpp"

namespace flash::compiler {
namespace {

// Of a header, <cub/cub.cuh>, what is not there and what to do. The names end with / or are the begin of a file's name.
struct Thing {
  std::string_view header, sentence;
};
constexpr std::string_view kLibrary = " is not simulated; call a kernel of your own";
constexpr Thing kThings[] = {{"thrust/", "Thrust"},
                             {"cub/", "CUB"},
                             {"cublas", "cuBLAS"},
                             {"curand", "cuRAND"},
                             {"cufft", "cuFFT"},
                             {"cusparse", "cuSPARSE"},
                             {"cusolver", "cuSOLVER"},
                             {"npp", "NPP"},
                             {"nvjpeg", "nvJPEG"},
                             {"cudnn", "cuDNN"},
                             {"nccl", "NCCL"},
                             {"nvrtc", "NVRTC"},
                             {"nvshmem", "NVSHMEM"},
                             {"cutensor", "cuTENSOR"},
                             {"cutlass/", "CUTLASS"},
                             {"cute/", "CUTLASS"},
                             {"torch/", "PyTorch"},
                             {"ATen/", "PyTorch"},
                             {"cuda_gl_interop", "OpenGL"},
                             {"nvToolsExt", "NVTX"},
                             {"nvtx3/", "NVTX"},
                             {"cuda/std/", "this part of libcu++"},
                             {"cuda/", "this part of libcu++"},
                             {"cooperative_groups/", "this part of cooperative groups"}};

// What to say of a header that CUDA or one of its libraries has; none: it is nobody's whom we know.
std::optional<std::string> refusal(std::string_view header) {
  const std::string begin = "<" + std::string(header) + "> is not there: ";
  if (header.starts_with("helper_") || header == "exception.h")
    return begin + "NVIDIA's samples have it in their folder Common; name that, -I …/cuda-samples/Common";
  for (const Thing& thing : kThings)
    if (header.starts_with(thing.header)) return begin + std::string(thing.sentence) + std::string(kLibrary);
  return {};
}

// The folder of an installed CUDA's headers that a file lies in; empty: in none.
std::filesystem::path cuda_folder(const std::filesystem::path& file) {
  for (std::filesystem::path folder = file.parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    if (std::filesystem::exists(folder / "cuda_runtime.h") && std::filesystem::exists(folder / "driver_types.h"))
      return folder;
  return {};
}

// What to say of a file that was found in an installed CUDA; none: it lies elsewhere.
std::optional<std::string> refusal_of_file(const std::filesystem::path& file) {
  const std::filesystem::path folder = cuda_folder(file);
  if (folder.empty()) return {};
  const std::string header = file.lexically_relative(folder).string();
  if (const std::optional<std::string> known = refusal(header)) return known;
  // Where a system has put them among all others, by their names.
  const bool among_others = folder == "/usr/include" || folder == "/usr/local/include";
  constexpr std::string_view kNames[] = {"cu",      "crt/",     "nv/",      "sm_",      "vector_", "device_",
                                         "driver_", "texture_", "surface_", "channel_", "host_",   "library_types.h"};
  const auto begins = [&](std::string_view name) { return header.starts_with(name); };
  if (among_others && std::none_of(std::begin(kNames), std::end(kNames), begins)) return {};
  return "<" + header + "> is not there: the headers of an installed CUDA are not used; leave it out";
}

}  // namespace

void refuse_headers(const Source& source) {
  for (const Source::Entry& entry : source.entries())
    if (const std::optional<std::string> why = refusal_of_file(entry.file))
      throw Malformed(entry.from + ": error: " + *why);
}

// g++ says "a.cu:3:10: fatal error: cub/cub.cuh: No such file or directory", and of what is wrong in a header "In file
// included from b.h:2,\n from a.cu:3:\nc.h:1:2: error: …".
std::string refusal_of(const std::string& messages) {
  std::istringstream lines(messages);
  std::vector<std::string> from;  // where includes stand, the innermost first
  for (std::string line; std::getline(lines, line);) {
    const std::size_t error = line.find(": fatal error: "), missing = line.find(": No such file or directory");
    if (error != std::string::npos && missing != std::string::npos) {
      const std::size_t name = error + 15;
      if (const std::optional<std::string> why = refusal(line.substr(name, missing - name))) {
        const std::string place = line.substr(0, error);
        return place.substr(0, place.rfind(':')) + ": error: " + *why;
      }
    }
    const std::size_t includes = line.find("from ");
    if (includes != std::string::npos && (line.ends_with(',') || line.ends_with(':'))) {
      from.push_back(line.substr(includes + 5, line.size() - includes - 6));
      continue;
    }
    std::string file = line.substr(0, line.find(':'));
    for (const std::string& place : from) {
      const std::size_t colon = place.find(':');
      const std::string by = place.substr(0, colon);
      const std::optional<std::string> why = refusal_of_file(file);
      if (why && cuda_folder(by).empty())
        return by + place.substr(colon, place.find(':', colon + 1) - colon) + ": error: " + *why;
      file = by;
    }
    from.clear();
  }
  return {};
}

}  // namespace flash::compiler
