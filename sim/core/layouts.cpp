// layouts.cpp: see layouts.hpp. Two types of one name compare equal, unless one of them is the file's own.
// Use: see layouts.hpp.
#include "sim/core/layouts.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <typeindex>
#include <unordered_map>

#include "sim/error.hpp"
#include "sim/report/findings.hpp"

namespace flash::simt {
namespace {

struct Known {
  Layout layout;
  const char* file;
};
struct Two {
  const std::type_info* type = nullptr;
  Known first, second;
};
struct Notes {
  std::unordered_map<std::type_index, Known> known;
  Two two;  // the first pair that was found
};
Notes& notes() {
  static Notes all;
  return all;
}

bool differ(const Layout& a, const Layout& b) {
  return a.bytes != b.bytes || a.alignment != b.alignment ||
         (a.members != 0 && b.members != 0 && a.members != b.members);
}

}  // namespace

bool take_note(const std::type_info& type, Layout layout, const char* file) {
  Known& known = notes().known.try_emplace(type, Known{layout, file}).first->second;
  if (differ(known.layout, layout) && !notes().two.type) notes().two = {&type, known, {layout, file}};
  if (known.layout.members == 0) known.layout.members = layout.members;
  return true;
}

void refuse_two_layouts() {
  const Two& two = notes().two;
  if (!two.type) return;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(two.type->name(), nullptr, nullptr, nullptr),
                                                    std::free);
  const auto in = [](const Known& one) { return counted(one.layout.bytes) + " in " + one.file; };
  const bool one_size = two.first.layout.bytes == two.second.layout.bytes;
  refuse("struct " + as_written(name ? name.get() : two.type->name()),
         in(two.first) + " and " +
             (one_size ? std::string("in ") + two.second.file + ", of other members there" : in(two.second)),
         "one definition in a program", "give one of the two another name, or put each into an unnamed namespace");
}

}  // namespace flash::simt
