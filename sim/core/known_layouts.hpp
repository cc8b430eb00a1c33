// known_layouts.hpp: the table behind layouts.hpp, which kernel files need not read.
// Use: Layouts all; all.note(typeid(S), {384, 4, 7}, "a.cu"); all.refuse_two();
#pragma once
#include <typeindex>
#include <typeinfo>
#include <unordered_map>

#include "sim/core/layouts.hpp"

namespace flash::simt {

// What files mean by the names of their structs.
class Layouts {
 public:
  void note(const std::type_info& type, Layout layout, const char* file);
  // Throws Error with one line that names the first struct of two layouts, and both files.
  void refuse_two() const;

 private:
  struct Known {
    Layout layout;
    const char* file;
  };
  std::unordered_map<std::type_index, Known> known_;
  const std::type_info* two_ = nullptr;
  Known first_{}, second_{};  // of that type
};

}  // namespace flash::simt
