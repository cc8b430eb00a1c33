// npy_test.cpp: proof of phases/common/npy.hpp: files that NumPy wrote are read, all else is refused with one line.
// And what is written is a .npy file, complete or absent.
// ctest -L common
#include "phases/common/npy.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace flash;
namespace fs = std::filesystem;

namespace {

// A directory of this test's own, gone at its end.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("npy_test." + std::to_string(getpid()));
  Folder() { fs::create_directory(path); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string get(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A .npy file of format major.0 with this header text and these data bytes.
std::string npy(const std::string& header, std::size_t data_bytes, char major = 1) {
  std::string text = std::string("\x93NUMPY") + major + '\0';
  text += static_cast<char>(header.size() & 0xff);
  text += static_cast<char>(header.size() >> 8);
  if (major != 1) text += std::string(2, '\0');
  return text + header + std::string(data_bytes, '\x01');
}

const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";

// The file is refused with exactly "<path>: <line>".
void refused(const std::string& content, const std::string& line) {
  const Folder folder;
  const std::string path = folder / "x.npy";
  put(path, content);
  CHECK_THROWS_WITH_AS(read_npy(path), (path + ": " + line).c_str(), Error);
}

void header_refused(const std::string& header, const std::string& line) {
  INFO(header);
  refused(npy(header, 24), line);
}

const std::string malformed = "malformed .npy header; write it again with numpy.save";

}  // namespace

TEST_CASE_TEMPLATE("what is written can be read", T, half, float, double) {
  const Folder folder;
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{}, {5}, {2, 3}, {0, 4}, {2, 3, 4, 5}, {1, 1, 1, 1, 1, 1, 1, 7}}) {
    std::size_t n = 1;
    for (const std::int64_t s : shape) n *= static_cast<std::size_t>(s);
    std::vector<T> data;
    for (std::size_t i = 0; i < n; ++i) data.push_back(from_float<T>(static_cast<float>(i) / 7));
    write_npy(folder / "x.npy", shape, data.data());
    const NpyArray array = read_npy(folder / "x.npy");
    CHECK(array.dtype == type_name<T>());
    CHECK(array.shape == shape);
    CHECK(array.elements() == static_cast<std::int64_t>(n));
    REQUIRE(array.bytes.size() == n * sizeof(T));
    if (n) CHECK(std::memcmp(array.values<T>(), data.data(), n * sizeof(T)) == 0);
  }
}

TEST_CASE("the bytes are those that NumPy writes") {
  const Folder folder;
  const float data[] = {1, 2};
  write_npy(folder / "x.npy", {1, 2}, data);
  const std::string text = get(folder / "x.npy");
  REQUIRE(text.size() == 128 + 8);  // the header is padded to a multiple of 64 bytes
  CHECK(text.substr(0, 10) == std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  CHECK(text.substr(10, 62) == "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }   ");
  CHECK(text[127] == '\n');
  CHECK(text.substr(128) == std::string("\x00\x00\x80\x3f\x00\x00\x00\x40", 8));
}

TEST_CASE("real files of the repository") {
  // Found from the source tree; elsewhere there is nothing to test.
  const fs::path data = fs::path(__FILE__).parent_path().parent_path() / "docs" / "data";
  REQUIRE(fs::exists(data / "minilm_q.npy"));
  const NpyArray q = read_npy((data / "minilm_q.npy").string());
  CHECK(q.dtype == "float16");
  REQUIRE(q.shape.size() == 4);
  CHECK(q.shape[1] == 12);
  CHECK(q.shape[3] == 32);
}

TEST_CASE("keys in any order, spaces anywhere, format 2.0") {
  const Folder folder;
  for (const std::string& text :
       {npy("{'shape': (2, 3), 'fortran_order': False, 'descr': '<f4'}\n", 24),
        npy("{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 2 , 3 , ) , }      \n", 24), npy(good, 24, 2)}) {
    put(folder / "x.npy", text);
    CHECK(read_npy(folder / "x.npy").shape == std::vector<std::int64_t>{2, 3});
  }
}

TEST_CASE("missing, a directory, not a .npy file") {
  const Folder folder;
  CHECK_THROWS_WITH_AS(
      read_npy(folder / "none.npy"),
      ((folder / "none.npy") + ": cannot be opened (No such file or directory); check the path").c_str(), Error);
  CHECK_THROWS_WITH_AS(read_npy(folder.path.string()),
                       (folder.path.string() + ": is a directory; pass a .npy file").c_str(), Error);
  refused("", "is not a .npy file; save it with numpy.save");
  refused("\x93NUMPY", "is not a .npy file; save it with numpy.save");
  refused("PK\x03\x04 an .npz file", "is not a .npy file; save it with numpy.save");
  refused(npy(good, 24, 3), "is .npy version 3.0, expected 1.0 or 2.0; save it with numpy.save");
}

TEST_CASE("truncated anywhere, or too long") {
  const std::string whole = npy(good, 24);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const Folder folder;
    put(folder / "x.npy", whole.substr(0, n));
    CHECK_THROWS_AS(read_npy(folder / "x.npy"), Error);
  }
  refused(whole.substr(0, 40), "is truncated in its header; copy it again");
  refused(npy(good, 20), "holds 20 bytes of data, its header promises 24; it is truncated: copy it again");
  refused(npy(good, 25), "holds 25 bytes of data, its header promises 24; cut it or save it again");
}

TEST_CASE("type and order that are not ours") {
  for (const std::string type : {"<i4", ">f4", "|u1", "<c8", "<f16", "|b1", "<U3", "f4", ""})
    header_refused("{'descr': '" + type + "', 'fortran_order': False, 'shape': (2, 3), }\n",
                   "has type '" + type + "', expected '<f2', '<f4' or '<f8'; convert it with astype(np.float32)");
  header_refused("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n",
                 "is in Fortran order, expected C order; convert it with np.ascontiguousarray");
  header_refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }\n", malformed);
}

TEST_CASE("malformed headers") {
  for (const std::string header :
       {"",
        "{",
        "{}",
        "[]",
        "{'descr': '<f4', 'fortran_order': False, }\n",
        "{'descr': '<f4', 'shape': (2, 3), }\n",
        "{'fortran_order': False, 'shape': (2, 3), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1, }\n",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'shape': (2, 3), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } x\n",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 6, }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0, 3), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (,), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 3), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 2, 3), }\n"})
    header_refused(header, malformed);
}

TEST_CASE("sizes over 2^63") {
  header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 1), }\n",
                 "promises over 2^63 bytes; check its header");
  header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n",
                 "promises over 2^63 bytes; check its header");
}

TEST_CASE("values are handed out in the file's own type only") {
  const Folder folder;
  const float data[] = {1, 2};
  write_npy(folder / "x.npy", {2}, data);
  const NpyArray array = read_npy(folder / "x.npy");
  CHECK(array.values<float>()[1] == 2);
  CHECK_THROWS_WITH_AS(array.values<half>(), "type is float32; expected float16; convert the file with astype", Error);
}

TEST_CASE("a path that cannot be written leaves nothing behind") {
  const Folder folder;
  const float data[] = {1, 2};
  const std::string path = folder / "none/x.npy";
  CHECK_THROWS_WITH_AS(write_npy(path, {2}, data),
                       (path + ": cannot be written (No such file or directory); choose another output path").c_str(),
                       Error);
  fs::create_directory(folder / "taken.npy");  // the target is a directory: the rename fails, the partial file goes
  CHECK_THROWS_AS(write_npy(folder / "taken.npy", {2}, data), Error);
  CHECK(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()) == 1);
}

TEST_CASE("an existing file is replaced as a whole") {
  const Folder folder;
  const float data[] = {1, 2};
  put(folder / "x.npy", std::string(10000, 'x'));
  write_npy(folder / "x.npy", {2}, data);
  CHECK(read_npy(folder / "x.npy").shape == std::vector<std::int64_t>{2});
  CHECK(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()) == 1);
}
