// folder.hpp: a folder of a test's own among the temporary files, with a name that no other process has.
// It and all that is in it are gone when the test case ends, passed or failed.
// Use:  const Folder folder;  write_npy(folder / "x.npy", shape, data);
#pragma once
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "sim/error.hpp"

namespace flash::test {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "flash test XXXXXX").string();  // a space on purpose
    if (!mkdtemp(name.data())) throw Error(name + ": " + std::strerror(errno));
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;  // a destructor has nobody to tell
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string get(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace flash::test
