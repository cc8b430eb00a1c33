// npy_rows.hpp: .npy files of which a process reads or writes some rows alone: what the header says, and what it is.
// As strict as npy.hpp, whose functions take a whole file.
// Use: const NpyHeader q = read_npy_header("q.npy");  file.seekg(q.data_at + row * bytes_of_row);
#pragma once
#include "phases/arrays/npy.hpp"

namespace flash {

struct NpyHeader {
  NpyArray array;           // without its bytes
  std::size_t data_at = 0;  // where they begin in the file
};
// Throws Error as read_npy does: a file that is too short or too long is refused, though its data are not read.
NpyHeader read_npy_header(const std::string& path, NpyType type = NpyType::Named);

// The header of format 1.0 that write_npy writes.
std::string npy_header(const std::string& descr, const std::vector<std::int64_t>& shape);

// What a file is called until it is whole (write_file).
std::string unfinished_name(const std::string& path);

}  // namespace flash
