// npy.hpp: strict reading and writing of NumPy's .npy files, format 1.0 and 2.0 (numpy.lib.format documents it).
// fp16, fp32 and fp64, little endian, C order. A file that is not exactly that is refused with one line.
// Use:  NpyArray q = read_npy("q.npy");  q.shape, q.dtype, q.values<half>();  write_npy("o.npy", shape, data);
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/error.hpp"
#include "sim/number.hpp"

namespace flash {

struct NpyArray {
  std::string dtype;                // "float16", "float32" or "float64"
  std::vector<std::int64_t> shape;  // rank 0 … 8
  std::vector<std::byte> bytes;     // elements in C order

  std::int64_t elements() const;

  // The elements as T; T must be the file's own type (no silent conversion).
  template <class T>
  const T* values() const {
    if (dtype != type_name<T>()) refuse("type", dtype, type_name<T>(), "convert the file with astype");
    return reinterpret_cast<const T*>(bytes.data());
  }
};

// Throws Error: missing, not .npy, unsupported version, type or order, malformed header, truncated or too long.
NpyArray read_npy(const std::string& path);

// Writes format 1.0. The file appears complete or not at all (written beside the target, then renamed).
void write_npy(const std::string& path, const std::string& dtype, const std::vector<std::int64_t>& shape,
               const void* data);

template <class T>
void write_npy(const std::string& path, const std::vector<std::int64_t>& shape, const T* data) {
  write_npy(path, type_name<T>(), shape, data);
}

// Writes a whole file, or nothing: `text` goes to "<path>.partial", which is renamed to `path`.
void write_file(const std::string& path, const std::string& text);

}  // namespace flash
