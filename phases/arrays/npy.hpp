// npy.hpp: strict reading and writing of NumPy's .npy files, format 1.0 and 2.0 (numpy.lib.format documents it).
// fp16, bf16, fp32 and fp64; int32, bool and uint8 where they are asked for; little endian, C order. A file that is not
// exactly that is refused with one line.
// Use:  NpyArray q = read_npy("q.npy");  q.shape, q.dtype, q.values<half>();  write_npy("o.npy", shape, data);
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "sim/error.hpp"
#include "sim/number.hpp"

namespace flash {

struct NpyArray {
  std::string descr;                // the type as the file words it: "<f4"
  std::string dtype;                // "float16", "bfloat16", "float32", "float64", "int32", "bool" or "uint8"
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

// NumPy has no name for bfloat16. A file of it says "|V2" or "<V2", two bytes of something (ml_dtypes' bfloat16), or
// "<u2" (a torch tensor viewed as uint16), so the caller has to say that bfloat16 is meant. So it is with numbers that
// count or choose.
enum class NpyType { Named, Bfloat16, Int32, Bool, Uint8 };

// Throws Error: missing, not .npy, unsupported version, type or order, malformed header, truncated or too long, or
// sizes whose product, zeros left out, is over 2^63 bytes.
NpyArray read_npy(const std::string& path, NpyType type = NpyType::Named);

// How this type is called in a file that we write of our own accord.
template <class T>
constexpr const char* descr_of() {
  if constexpr (std::is_same_v<T, half>) return "<f2";
  if constexpr (std::is_same_v<T, bfloat16>) return "<V2";
  if constexpr (std::is_same_v<T, float>) return "<f4";
  return "<f8";
}

// Writes format 1.0, complete or not at all (write_file).
void write_npy(const std::string& path, const std::string& descr, const std::vector<std::int64_t>& shape,
               const void* data);

template <class T>
void write_npy(const std::string& path, const std::vector<std::int64_t>& shape, const T* data) {
  write_npy(path, descr_of<T>(), shape, data);
}

// Writes a whole file, or nothing: `text` goes to "<path>.flash-unfinished", which then takes the name `path`. A link
// stays one: the file that it points to is replaced. A device or a pipe is written into.
void write_file(const std::string& path, const std::string& text);

// Why write_file could not write there, or "" if it can. Creates nothing, and removes what a run that was killed left.
std::string why_not_writable(const std::string& path);

}  // namespace flash
