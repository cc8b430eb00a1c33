// Phase 30: a rank's rows of .npy files. A file holds the rows of all ranks, and all of them see it; or those of one.
// The results get their names when all rows of all ranks are there.
// Use: load(path, header, share, array);  Results results;  results.create(…);  results.write(…);  results.publish();
#pragma once
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "phases/arrays/npy_rows.hpp"
#include "phases/ring/mpi/keeper.hpp"
#include "phases/ring/rows.hpp"

namespace flash::phase30 {

// f(byte in the file's data, byte in the array, bytes): the runs of a [B, H, S, …] file that a share's rows are.
template <class F>
void for_each_run(const Array& array, std::int64_t S, const Share& share, const F& f) {
  const std::int64_t row = array.shape[3] * bytes_of(array.type), heads = array.shape[0] * array.shape[1];
  const std::int64_t together = share.step == 1 ? std::max<std::int64_t>(share.count, 1) : 1;
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t i = 0; i < share.size();) {
      const std::int64_t n =
          i < share.count ? std::min(together, share.count - i) : (share.step == 1 ? share.size() - i : 1);
      f((head * S + share[i]) * row, (head * share.size() + i) * row, n * row);
      i += n;
    }
}

// The share's rows of a file of S rows a head.
inline void load(const std::string& path, const NpyHeader& header, std::int64_t S, const Share& share, Array& array) {
  std::ifstream file(path, std::ios::binary);
  for_each_run(array, S, share, [&](std::int64_t there, std::int64_t here, std::int64_t bytes) {
    file.seekg(static_cast<std::streamoff>(header.data_at) + there);
    file.read(reinterpret_cast<char*>(array.bytes.data() + here), bytes);
  });
  if (!file) throw Error(path + ": cannot be read to its end; check the file");
}

// One result: a file under another name until it is whole.
class Result {
 public:
  Result(const std::string& path, const std::string& descr, const std::vector<std::int64_t>& shape)
      : path_(path), unfinished_(unfinished_name(path)), header_(npy_header(descr, shape)) {}

  // By one rank, which then ends with a file that has its name, or none. The file has its full length at once: a disk
  // that is too small says so now or when rows are written.
  void create(std::int64_t bytes) const {
    Keeper::unfinished(unfinished_);
    std::ofstream file(unfinished_, std::ios::binary | std::ios::trunc);
    if (!(file << header_ << std::flush)) fail();
    file.close();
    std::error_code failed;
    std::filesystem::resize_file(unfinished_, header_.size() + static_cast<std::size_t>(bytes), failed);
    if (failed) errno = failed.value(), fail();
  }
  // By each rank, its rows.
  void write(std::int64_t S, const Share& share, const Array& array) const {
    std::fstream file(unfinished_, std::ios::binary | std::ios::in | std::ios::out);
    for_each_run(array, S, share, [&](std::int64_t there, std::int64_t here, std::int64_t bytes) {
      file.seekp(static_cast<std::streamoff>(header_.size()) + there);
      file.write(reinterpret_cast<const char*>(array.bytes.data() + here), bytes);
    });
    if (!file.flush()) fail();
  }
  // By the rank that made it, when all have written.
  void publish() const {
    std::error_code failed;
    std::filesystem::rename(unfinished_, std::filesystem::weakly_canonical(path_), failed);
    if (failed) errno = failed.value(), fail();
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(path_ + ": cannot be written (" + std::strerror(errno) +
                "); choose another output path or free some space");
  }

  std::string path_, unfinished_, header_;
};

}  // namespace flash::phase30
