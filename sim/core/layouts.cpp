// layouts.cpp: see layouts.hpp. Two types of one name compare equal, unless one of them is the file's own.
// Use: see layouts.hpp.
#include "sim/core/layouts.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "sim/core/code_names.hpp"
#include "sim/core/findings.hpp"
#include "sim/core/known_layouts.hpp"
#include "sim/error.hpp"

namespace flash::simt {
namespace {

bool differ(const Layout& a, const Layout& b) {
  return a.bytes != b.bytes || a.alignment != b.alignment ||
         (a.members != 0 && b.members != 0 && a.members != b.members);
}

Layouts& layouts() {
  static Layouts all;
  return all;
}

}  // namespace

void Layouts::note(const std::type_info& type, Layout layout, const char* file) {
  Known& known = known_.try_emplace(type, Known{layout, file}).first->second;
  if (differ(known.layout, layout) && !two_) two_ = &type, first_ = known, second_ = {layout, file};
  if (known.layout.members == 0) known = {layout, file};
}

void Layouts::refuse_two() const {
  if (!two_) return;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(two_->name(), nullptr, nullptr, nullptr),
                                                    std::free);
  const auto in = [](const Known& one) { return counted(one.layout.bytes) + " in " + one.file; };
  const bool one_size = first_.layout.bytes == second_.layout.bytes;
  refuse(
      "struct " + as_written(name ? name.get() : two_->name()),
      in(first_) + " and " + (one_size ? std::string("in ") + second_.file + ", of other members there" : in(second_)),
      "one definition in a program", "give one of the two another name, or put each into an unnamed namespace");
}

bool take_note(const std::type_info& type, Layout layout, const char* file) {
  layouts().note(type, layout, file);
  return true;
}

void refuse_two_layouts() {
  layouts().refuse_two();
}

}  // namespace flash::simt
