// npy.cpp: see npy.hpp. The header of a .npy file is a Python dictionary literal, padded with spaces:
//   \x93NUMPY 01 00 <header length, 2 bytes> {'descr': '<f4', 'fortran_order': False, 'shape': (1, 12, 50, 32), }\n
// Only that dictionary is accepted, its keys in any order; nothing in it is evaluated.
#include "phases/arrays/npy.hpp"

#include "phases/arrays/npy_rows.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

static_assert(std::endian::native == std::endian::little, "the reader assumes a little-endian machine");

namespace flash {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& problem, const std::string& remedy) {
  throw Error(path + ": " + problem + "; " + remedy);
}

// A cursor over the header text that takes exactly what it is told to expect.
struct Parser {
  const std::string& path;
  const std::string& text;
  std::size_t at = 0;

  [[noreturn]] void bad() const { fail(path, "malformed .npy header", "write it again with numpy.save"); }
  void skip_spaces() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n')) ++at;
  }
  bool accept(const std::string& token) {
    skip_spaces();
    if (text.compare(at, token.size(), token) != 0) return false;
    at += token.size();
    return true;
  }
  void expect(const std::string& token) {
    if (!accept(token)) bad();
  }
  std::string quoted() {
    expect("'");
    const std::size_t end = text.find('\'', at);
    if (end == std::string::npos) bad();
    std::string word = text.substr(at, end - at);
    at = end + 1;
    return word;
  }
  std::int64_t integer() {
    skip_spaces();
    std::int64_t n = 0;
    const std::size_t begin = at;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
      if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, text[at] - '0', &n)) bad();
    if (at == begin) bad();
    return n;
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> items;
    expect("(");
    while (!accept(")")) {
      items.push_back(integer());
      if (accept(")")) {
        if (items.size() == 1) bad();  // "(3)" is a number in Python; a tuple of one is "(3,)"
        break;
      }
      expect(",");
    }
    if (items.size() > 8) bad();
    return items;
  }
};

// "float32" for '<f4', "" for a type that is not ours.
std::string type_of(const std::string& descr, NpyType type) {
  if (type == NpyType::Bfloat16) return descr == "|V2" || descr == "<V2" || descr == "<u2" ? "bfloat16" : "";
  if (type == NpyType::Int32) return descr == "<i4" ? "int32" : "";
  if (type == NpyType::Bool) return descr == "|b1" ? "bool" : "";
  if (type == NpyType::Uint8) return descr == "|u1" ? "uint8" : "";
  return descr == "<f2" ? "float16" : descr == "<f4" ? "float32" : descr == "<f8" ? "float64" : "";
}

[[noreturn]] void refuse_type(const std::string& path, const std::string& descr, NpyType type) {
  if (type == NpyType::Bfloat16)
    fail(path, "has type '" + descr + "', expected '|V2', '<V2' or '<u2' for bfloat16", "omit --type");
  const auto only = [&](NpyType this_one, const char* its_descr, const char* its_name) {
    if (type == this_one)
      fail(path, "has type '" + descr + "', expected '" + its_descr + "'",
           std::string("convert it with astype(np.") + its_name + ")");
  };
  only(NpyType::Int32, "<i4", "int32"), only(NpyType::Bool, "|b1", "bool_"), only(NpyType::Uint8, "|u1", "uint8");
  // (fp64 can be read, too, and run refuses it: nobody is told to convert to it)
  fail(path, "has type '" + descr + "', expected '<f4' or '<f2'",
       type_of(descr, NpyType::Bfloat16).empty() ? "convert it with astype(np.float32)"
                                                 : "pass --type bf16 if it holds bfloat16");
}

std::int64_t element_size(const std::string& descr) {
  return descr.back() - '0';
}

// A file that exists and is no regular one: a device, a pipe, a folder.
bool is_special(const std::string& path) {
  std::error_code none;  // what cannot be asked about is for fopen to refuse
  const auto status = std::filesystem::status(path, none);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

// Where write_file writes first. Beside the target, since only within one file system can a file take another's name.
std::string unfinished(const std::string& target) {
  return target + ".flash-unfinished";
}

// The path with its links followed.
std::string target_of(const std::string& path) {
  std::error_code failed;
  const std::string target = std::filesystem::weakly_canonical(path, failed).string();
  return failed ? path : target;
}

}  // namespace

std::int64_t NpyArray::elements() const {
  std::int64_t n = 1;
  for (std::int64_t s : shape)
    if (__builtin_mul_overflow(n, s, &n)) throw Error("shape has more than 2^63 elements; split the array");
  return n;
}

namespace {

std::ifstream open_npy(const std::string& path) {
  if (std::filesystem::is_directory(path)) fail(path, "is a directory", "pass a .npy file");
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, std::string("cannot be opened (") + std::strerror(errno) + ")", "check the path");
  return file;
}

// What a file of `size` bytes says of itself; `raw`: these bytes, or its first ones, the whole header among them.
NpyHeader parse_header(const std::string& path, const std::vector<char>& raw, std::size_t size, NpyType type) {
  // Magic, version, header length.
  if (raw.size() < 10 || std::memcmp(raw.data(), "\x93NUMPY", 6) != 0)
    fail(path, "is not a .npy file", "save it with numpy.save");
  const int major = static_cast<unsigned char>(raw[6]), minor = static_cast<unsigned char>(raw[7]);
  if ((major != 1 && major != 2) || minor != 0)
    fail(path, "is .npy version " + std::to_string(major) + "." + std::to_string(minor) + ", expected 1.0 or 2.0",
         "save it with numpy.save");
  std::uint32_t length = 0;
  const std::size_t length_bytes = major == 1 ? 2 : 4, start = 8 + length_bytes;
  if (raw.size() >= start) std::memcpy(&length, raw.data() + 8, length_bytes);
  if (raw.size() < start || raw.size() - start < length) fail(path, "is truncated in its header", "copy it again");

  // The dictionary: three keys, each once.
  const std::string text(raw.data() + start, length);
  Parser in{path, text};
  NpyHeader header{{}, start + length};
  NpyArray& array = header.array;
  bool has_order = false, has_shape = false;
  in.expect("{");
  while (!in.accept("}")) {
    const std::string key = in.quoted();
    in.expect(":");
    if (key == "descr" && array.dtype.empty()) {
      array.descr = in.quoted();
      array.dtype = type_of(array.descr, type);
      if (array.dtype.empty()) refuse_type(path, array.descr, type);
    } else if (key == "fortran_order" && !has_order) {
      has_order = true;
      if (in.accept("True"))
        fail(path, "is in Fortran order, expected C order", "convert it with np.ascontiguousarray");
      in.expect("False");
    } else if (key == "shape" && !has_shape) {
      has_shape = true;
      array.shape = in.tuple();
    } else {
      in.bad();
    }
    if (!in.accept(",")) {
      in.expect("}");
      break;
    }
  }
  in.skip_spaces();
  if (array.dtype.empty() || !has_order || !has_shape || in.at != text.size()) in.bad();

  // Exactly the elements that the shape promises.
  const std::size_t have = size - start - length;
  // Zeros are left out of the product, as NumPy leaves them out: the strides of [0, 2^62, 2^62] would overflow too.
  std::int64_t want = element_size(array.descr);
  bool empty = false;
  for (const std::int64_t s : array.shape) {
    empty = empty || s == 0;
    if (__builtin_mul_overflow(want, std::max<std::int64_t>(s, 1), &want))
      fail(path, "promises over 2^63 bytes", "check its header");
  }
  if (empty) want = 0;
  if (have != static_cast<std::size_t>(want))
    fail(path, "holds " + std::to_string(have) + " bytes of data, its header promises " + std::to_string(want),
         have < static_cast<std::size_t>(want) ? "it is truncated: copy it again" : "cut it or save it again");
  return header;
}

}  // namespace

NpyArray read_npy(const std::string& path, NpyType type) {
  std::ifstream file = open_npy(path);
  const std::vector<char> raw{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  NpyHeader header = parse_header(path, raw, raw.size(), type);
  header.array.bytes.resize(raw.size() - header.data_at);
  if (raw.size() > header.data_at)
    std::memcpy(header.array.bytes.data(), raw.data() + header.data_at, raw.size() - header.data_at);
  return std::move(header.array);
}

NpyHeader read_npy_header(const std::string& path, NpyType type) {
  std::ifstream file = open_npy(path);
  std::vector<char> raw(std::size_t{1} << 16);  // a header of eight dimensions has less than a thousand bytes
  raw.resize(static_cast<std::size_t>(file.read(raw.data(), static_cast<std::streamsize>(raw.size())).gcount()));
  return parse_header(path, raw, std::filesystem::file_size(path), type);
}

std::string unfinished_name(const std::string& path) {
  return unfinished(target_of(path));
}

void write_file(const std::string& path, const std::string& text) {
  const bool special = is_special(path);
  const std::string target = special ? path : target_of(path), name = special ? path : unfinished(target);
  std::FILE* file = std::fopen(name.c_str(), "wb");
  if (!file) fail(path, std::string("cannot be written (") + std::strerror(errno) + ")", "choose another output path");
  bool good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int reason = errno;
  if (std::fclose(file) != 0 && good) good = false, reason = errno;  // the rest of the text meets a full disk here
  if (good && !special && std::rename(name.c_str(), target.c_str()) != 0) good = false, reason = errno;
  if (good) return;
  if (!special) std::remove(name.c_str());
  fail(path, std::string("cannot be written (") + std::strerror(reason) + ")",
       "choose another output path or free some space");
}

std::string why_not_writable(const std::string& path) {
  if (is_special(path)) return access(path.c_str(), W_OK) == 0 ? "" : std::strerror(errno);
  const std::string name = unfinished(target_of(path));
  std::FILE* file = std::fopen(name.c_str(), "wb");
  if (!file) return std::strerror(errno);
  std::fclose(file);
  std::remove(name.c_str());
  return "";
}

std::string npy_header(const std::string& descr, const std::vector<std::int64_t>& shape) {
  std::string tuple;
  for (const std::int64_t& s : shape)
    tuple += std::to_string(s) + (shape.size() == 1 ? "," : &s == &shape.back() ? "" : ", ");
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + tuple + "), }";
  header.append(64 - (10 + header.size() + 1) % 64, ' ');  // data starts at a multiple of 64 bytes
  header += '\n';
  std::string text = std::string("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 0xff);
  text += static_cast<char>(header.size() >> 8);
  return text + header;
}

void write_npy(const std::string& path, const std::string& descr, const std::vector<std::int64_t>& shape,
               const void* data) {
  std::int64_t bytes = element_size(descr);
  for (const std::int64_t s : shape) bytes *= s;
  std::string text = npy_header(descr, shape);
  text.append(static_cast<const char*>(data), static_cast<std::size_t>(bytes));
  write_file(path, text);
}

}  // namespace flash
