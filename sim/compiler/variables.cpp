// variables.cpp: __shared__ variables become thread-local ones (a block belongs to one thread of the simulator),
// __device__, __constant__ and __managed__ ones get a section of their own. g++ lays both out as it does any variable;
// assembly.cpp puts red zones around them and tells the simulator their names. On functions these words say nothing.
// Use: rewrite_variables(source); main.cpp does.
#include <algorithm>
#include <utility>
#include <vector>

#include "sim/compiler/source.hpp"

namespace flash::compiler {
namespace {

// How many bytes an element of a type has, by the words of its name; 0: not known, findings give the offset in bytes.
int element_bytes(const std::vector<std::string_view>& words) {
  static constexpr std::pair<std::string_view, int> kTypes[] = {
      {"*", 8},        {"char", 1},   {"short", 2},   {"long", 8},   {"bool", 1},     {"int8_t", 1},   {"uint8_t", 1},
      {"half", 2},     {"__half", 2}, {"double", 8},  {"int", 4},    {"unsigned", 4}, {"float", 4},    {"int32_t", 4},
      {"uint32_t", 4}, {"half2", 4},  {"__half2", 4}, {"size_t", 8}, {"int64_t", 8},  {"uint64_t", 8}, {"float2", 8},
      {"int2", 8},     {"uint2", 8},  {"float3", 12}, {"int3", 12},  {"float4", 16},  {"int4", 16},    {"uint4", 16}};
  if (std::find(words.begin(), words.end(), "<") != words.end()) return 0;
  for (const auto& [name, bytes] : kTypes)  // "unsigned char": the first of the list counts
    if (std::find(words.begin(), words.end(), name) != words.end()) return bytes;
  return 0;
}

class Rewriter {
 public:
  explicit Rewriter(Source& source) : source_(source) {}

  Variables rewrite() {
    for (std::size_t i = 0; i < source_.size(); ++i) {
      const std::string_view word = at(i);
      if (word == "__noinline__" && i > 0 && at(i - 1) != "(" &&
          at(i - 1) != ",") {  // not __attribute__((__noinline__))
        source_.replace_token(i, "__attribute__((__noinline__))");
      } else if (word == "__host__") {
        source_.replace_token(i, "");
      } else if (word == "__shared__") {
        shared(i);
      } else if (word == "__device__" || word == "__constant__" || word == "__managed__") {
        std::size_t last = i;
        while (at(last + 1) == "__device__" || at(last + 1) == "__constant__" || at(last + 1) == "__managed__" ||
               at(last + 1) == "__shared__")
          ++last;
        if (at(last) == "__shared__") {  // __device__ __shared__
          source_.replace_token(i, "");
          continue;
        }
        if (is_variable(last + 1))
          device(i, last);
        else
          for (std::size_t j = i; j <= last; ++j) source_.replace_token(j, "");
        i = last;
      }
    }
    return found_;
  }

 private:
  std::string_view at(std::size_t i) const { return source_.at(i); }

  // Behind a specifier: does a variable's name come, or a function's?
  bool is_variable(std::size_t i) const {
    for (; i < source_.size(); ++i) {
      const std::string_view word = at(i);
      if (word == "__attribute__" || word == "alignas" || word == "decltype" || word == "noexcept") {
        i = source_.closing(i + 1);
      } else if (word == "operator") {
        return false;
      } else if (word == "<") {  // template arguments
        int depth = 0;
        do {
          depth += (at(i) == "<") - (at(i) == ">");
          if (at(i) == "(") i = source_.closing(i);
        } while (depth > 0 && ++i < source_.size());
      } else if (word == "(") {
        return at(i + 1) == "*";  // a pointer to a function
      } else if (word == ";" || word == "=" || word == "[" || word == "{") {
        // `struct` and `{`: the type is defined here, and the name comes behind it.
        return true;
      }
    }
    return false;
  }

  // The ; that ends the declaration, and what stands in it outside of brackets.
  struct Declaration {
    std::size_t end, name;  // the first declared name
    bool is_extern = false, initialised = false;
  };
  Declaration declaration(std::size_t i) const {
    Declaration d{i, i, false, false};
    for (std::size_t back = i; back > 0 && source_.token(back - 1).kind == Kind::word; --back)
      d.is_extern |= at(back - 1) == "extern";
    bool named = false;
    for (; d.end < source_.size() && at(d.end) != ";"; ++d.end) {
      const std::string_view word = at(d.end);
      d.is_extern |= word == "extern";
      if (word == "=") d.initialised = true;
      if (word == "__attribute__" || word == "alignas" || word == "decltype") {
        d.end = source_.closing(d.end + 1);
      } else if (word == "(" || word == "[" || word == "{") {
        named |= word == "[";
        if (word == "{" && d.end > i && (named || d.initialised)) d.initialised = true;
        d.end = source_.closing(d.end);
      } else if (word == "=" || word == ",") {
        named = true;
      } else if (!named && source_.token(d.end).kind == Kind::word) {
        d.name = d.end;
      }
    }
    if (d.end >= source_.size()) throw source_.malformed(i, "this declaration has no end; write ; behind it");
    return d;
  }

  // g++ takes alignas only in front of the other words of a declaration.
  void align(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (at(i) != "alignas") continue;
      source_.replace_token(i, "__attribute__((__aligned__");
      source_.replace_token(source_.closing(i + 1), ")))");
    }
  }

  void shared(std::size_t i) {
    const Declaration d = declaration(i);
    if (d.initialised)
      throw source_.malformed(i, "a __shared__ variable cannot be initialised; assign to it in the kernel");
    if (d.is_extern) {
      found_.dynamic.emplace(at(d.name));
      source_.replace_token(i, "__constinit thread_local");
    } else {
      // `used`: the optimiser would drop arrays that are only written.
      source_.replace_token(i, "__attribute__((__used__)) __constinit thread_local");
    }
    found_.any_shared = true;
    align(i + 1, d.end);
  }

  // A section for each, so that g++ need not put constants, templates and others into one; its name says what it holds:
  // .bss.flash.<d or c>.<bytes of an element>.<number>.
  void device(std::size_t first, std::size_t last) {
    bool constant = false;
    for (std::size_t i = first; i <= last; ++i) {
      constant |= at(i) == "__constant__";
      source_.replace_token(i, "");
    }
    const Declaration d = declaration(last + 1);
    std::vector<std::string_view> type;
    for (std::size_t i = last + 1; i < d.name; ++i) type.push_back(at(i));
    source_.replace_token(last, std::string("__attribute__((__section__(\"") + (d.initialised ? ".data" : ".bss") +
                                    ".flash." + (constant ? "c." : "d.") + std::to_string(element_bytes(type)) + "." +
                                    std::to_string(++sections_) + "\")))");
    found_.any_device = true;
    align(last + 1, d.end);
  }

  Source& source_;
  Variables found_;
  int sections_ = 0;
};

}  // namespace

Variables rewrite_variables(Source& source) {
  return Rewriter(source).rewrite();
}

}  // namespace flash::compiler
