// npy_test.cpp: proof of phases/arrays/npy.hpp: files that NumPy wrote are read, anything else is refused with one
// line. And what is written is a .npy file, complete or absent.
// ctest -L common
#include "phases/arrays/npy.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "phases/arrays/random.hpp"
#include "phases/arrays/tensor.hpp"
#include "tests/folder.hpp"

using namespace flash;
using namespace flash::test;
namespace fs = std::filesystem;

namespace {

// A .npy file of format major.minor with this header text and these data bytes.
std::string npy(const std::string& header, std::size_t data_bytes, char major = 1, char minor = 0) {
  std::string text = std::string("\x93NUMPY") + major + minor;
  for (int byte = 0; byte < (major == 1 ? 2 : 4); ++byte) text += static_cast<char>(header.size() >> 8 * byte & 0xff);
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

template <class T>
constexpr NpyType npy_type = std::is_same_v<T, bfloat16> ? NpyType::Bfloat16 : NpyType::Named;

TEST_CASE_TEMPLATE("what is written can be read", T, half, bfloat16, float, double) {
  const Folder folder;
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{}, {5}, {2, 3}, {0, 4}, {2, 3, 4, 5}, {1, 1, 1, 1, 1, 1, 1, 7}}) {
    std::size_t n = 1;
    for (const std::int64_t s : shape) n *= static_cast<std::size_t>(s);
    std::vector<T> data;
    for (std::size_t i = 0; i < n; ++i) data.push_back(from_float<T>(static_cast<float>(i) / 7));
    write_npy(folder / "x.npy", shape, data.data());
    const NpyArray array = read_npy(folder / "x.npy", npy_type<T>);
    CHECK(array.dtype == type_name<T>());
    CHECK(array.descr == descr_of<T>());
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
  const fs::path data = FLASH_DATA_DIR;
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
        npy("{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 2 , 3 , ) , }      \n", 24), npy(good, 24, 2),
        npy(good + std::string(70000, ' '), 24, 2)}) {  // a length of more than two bytes
    put(folder / "x.npy", text);
    CHECK(read_npy(folder / "x.npy").shape == std::vector<std::int64_t>{2, 3});
  }
}

TEST_CASE("missing, a directory, not a .npy file") {
  const Folder folder;
  CHECK_THROWS_WITH_AS(
      read_npy(folder / "none.npy"),
      ((folder / "none.npy") + ": cannot be opened (No such file or directory); check the path").c_str(), Error);
  CHECK_THROWS_WITH_AS(read_npy(folder.path().string()),
                       (folder.path().string() + ": is a directory; pass a .npy file").c_str(), Error);
  refused("", "is not a .npy file; save it with numpy.save");
  refused("\x93NUMPY", "is not a .npy file; save it with numpy.save");
  refused("PK\x03\x04 an .npz file", "is not a .npy file; save it with numpy.save");
  refused(npy(good, 24, 3), "is .npy version 3.0, expected 1.0 or 2.0; save it with numpy.save");
  refused(npy(good, 24, 1, 1), "is .npy version 1.1, expected 1.0 or 2.0; save it with numpy.save");
  refused(npy(good, 24, 2, 9), "is .npy version 2.9, expected 1.0 or 2.0; save it with numpy.save");
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
                   "has type '" + type + "', expected '<f4' or '<f2'; convert it with astype(np.float32)");
  header_refused("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n",
                 "is in Fortran order, expected C order; convert it with np.ascontiguousarray");
  header_refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }\n", malformed);
}

TEST_CASE("numbers that count or choose are read where they are asked for, and nothing else is then") {
  const Folder folder;
  const std::vector<std::tuple<NpyType, std::string, std::string, std::string>> types = {
      {NpyType::Int32, "<i4", "int32", "int32"},
      {NpyType::Bool, "|b1", "bool", "bool_"},
      {NpyType::Uint8, "|u1", "uint8", "uint8"}};
  for (const auto& [type, descr, name, in_numpy] : types) {
    const std::size_t size = descr == "<i4" ? 4 : 1;
    put(folder / "x.npy", npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (2, 3), }\n", 6 * size));
    const NpyArray array = read_npy(folder / "x.npy", type);
    CHECK(array.dtype == name);
    CHECK(array.bytes.size() == 6 * size);
    for (const std::string other : {"<i4", "|b1", "|u1", "<i8", "<f4", "<f2"}) {
      if (other == descr) continue;
      put(folder / "x.npy", npy("{'descr': '" + other + "', 'fortran_order': False, 'shape': (2, 3), }\n", 24));
      CHECK_THROWS_WITH_AS(read_npy(folder / "x.npy", type),
                           ((folder / "x.npy") + ": has type '" + other + "', expected '" + descr +
                            "'; convert it with astype(np." + in_numpy + ")")
                               .c_str(),
                           Error);
    }
  }
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
  // A product of 0 is no excuse: whoever lays the array out multiplies the others.
  for (const std::string shape : {"4294967296, 4294967296", "0, 4611686018427387904", "4611686018427387904, 0",
                                  "4294967296, 0, 1073741824", "0, 0, 3037000500, 3037000500"})
    header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }\n",
                   "promises over 2^63 bytes; check its header");
}

TEST_CASE("a file with any byte wrong is read or refused, and can become a tensor if it is read") {
  const Folder folder;
  int read = 0, refused = 0;
  const auto attempt = [&](const std::string& text) {
    put(folder / "x.npy", text);
    try {
      const Tensor<float> tensor = load_tensor<float>(folder / "x.npy");
      CHECK(tensor.size() * sizeof(float) <= text.size());
      ++read;
    } catch (const Error&) {  // anything else is a failure
      ++refused;
    }
  };
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0, 3, 4), }      \n";
  for (unsigned i = 0; i < 4000; ++i) {
    std::string text = npy(header, 0);
    const auto number = [&](unsigned n) { return philox({i, n / 4, 0, 0}, {1, 2})[n % 4]; };
    if (i % 2) {  // a byte of the file becomes any other
      text[number(0) % text.size()] = static_cast<char>(number(1));
    } else {  // the shape becomes other numbers of up to 19 digits, one of them 0
      std::string shape;
      for (unsigned axis = 0; axis < 4; ++axis) {
        const std::uint64_t wide = std::uint64_t{number(2 * axis)} << 32 | number(2 * axis + 1);
        shape += (axis ? ", " : "") + std::to_string(axis == 1 ? 0 : (wide >> 1) >> wide % 63);
      }
      text = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }\n", 0);
    }
    attempt(text);
  }
  MESSAGE(read << " read, " << refused << " refused");
  CHECK(read >= 100);
  CHECK(refused >= 1000);
}

TEST_CASE("bfloat16 goes by names that are not its own, so it must be asked for") {
  const Folder folder;
  const std::string path = folder / "x.npy";
  for (const std::string descr : {"|V2", "<V2", "<u2"}) {
    put(path, npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (2, 3), }\n", 12));
    const NpyArray array = read_npy(path, NpyType::Bfloat16);
    CHECK(array.descr == descr);
    CHECK(array.values<bfloat16>()[5].bits == 0x0101);
    CHECK_THROWS_WITH_AS(
        read_npy(path),
        (path + ": has type '" + descr + "', expected '<f4' or '<f2'; pass --type bf16 if it holds bfloat16")
            .c_str(),
        Error);
    write_npy(folder / "y.npy", descr, {2, 3}, array.bytes.data());
    CHECK(read_npy(folder / "y.npy", NpyType::Bfloat16).descr == descr);
  }
  for (const std::string descr : {"<f2", "<f4", ">V2", "|V1", "|V4", "<u4", "|u2"}) {
    put(path, npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (2, 3), }\n", 12));
    CHECK_THROWS_WITH_AS(
        read_npy(path, NpyType::Bfloat16),
        (path + ": has type '" + descr + "', expected '|V2', '<V2' or '<u2' for bfloat16; omit --type").c_str(), Error);
  }
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
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("an existing file is replaced as a whole") {
  const Folder folder;
  const float data[] = {1, 2};
  put(folder / "x.npy", std::string(10000, 'x'));
  write_npy(folder / "x.npy", {2}, data);
  CHECK(read_npy(folder / "x.npy").shape == std::vector<std::int64_t>{2});
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

// In a child process that may write no more than `limit` bytes into one file, as if the disk were full then: is the
// file refused with the line that is right for it?
static bool refused_by_full_disk(const std::string& path, std::size_t elements, rlim_t limit) {
  const std::vector<float> data(elements, 1);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);  // or the kernel would kill it
    const rlimit bytes{limit, limit};
    setrlimit(RLIMIT_FSIZE, &bytes);
    try {
      write_npy(path, {static_cast<std::int64_t>(elements)}, data.data());
      _exit(0);
    } catch (const Error& e) {
      const std::string line =
          path + ": cannot be written (File too large); choose another output path or free some space";
      _exit(e.what() == line ? 2 : 1);
    }
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 2;
}

TEST_CASE("a full disk: one line, and nothing is left of the new file or lost of the old") {
  const Folder folder;
  put(folder / "x.npy", "old");
  CHECK(refused_by_full_disk(folder / "x.npy", 1 << 16, 1 << 17));
  CHECK(refused_by_full_disk(folder / "x.npy", 1, 100));  // so small that only closing the file meets it
  CHECK(get(folder / "x.npy") == "old");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

// Never tried on a real device: a writer that is wrong would replace it for the whole system.
TEST_CASE("a pipe is written into, and stays one") {
  const Folder folder;
  const std::string pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);  // a writer would wait for one
  REQUIRE(reader >= 0);
  CHECK(why_not_writable(pipe) == "");
  const float data[] = {1, 2};
  write_npy(pipe, {2}, data);
  std::string text(200, ' ');
  const ssize_t bytes = read(reader, text.data(), text.size());
  close(reader);
  CHECK(bytes == 128 + 8);
  CHECK(text.substr(0, 6) == "\x93NUMPY");
  CHECK(fs::is_fifo(pipe));
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("a link stays a link, and what it points to is replaced") {
  const Folder folder;
  const float data[] = {1, 2};
  fs::create_directory(folder / "there");
  put(folder / "there/x.npy", "old");
  fs::create_symlink("there/x.npy", folder / "link.npy");
  write_npy(folder / "link.npy", {2}, data);
  CHECK(fs::is_symlink(folder / "link.npy"));
  CHECK(read_npy(folder / "there/x.npy").shape == std::vector<std::int64_t>{2});
  CHECK(std::distance(fs::directory_iterator(folder.path() / "there"), fs::directory_iterator()) == 1);
}

TEST_CASE("whether a file could be written is known before, and a killed run's leftover goes") {
  const Folder folder;
  put(folder / "x.npy.flash-unfinished", "half of it");
  put(folder / "x.npy", "old");
  CHECK(why_not_writable(folder / "x.npy") == "");
  CHECK(get(folder / "x.npy") == "old");
  CHECK_FALSE(fs::exists(folder / "x.npy.flash-unfinished"));
  CHECK(why_not_writable(folder / "none/x.npy") == "No such file or directory");
  CHECK(why_not_writable(folder / std::string(250, 'x')) == "File name too long");  // with the ending, not without
}
