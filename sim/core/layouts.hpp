// layouts.hpp: two kernel files may each define a struct of the same name. C++ takes them for one: the linker keeps one
// of the functions that both have made for it, and memory is overwritten. A program with such a pair gets no machine.
// Structs of one layout pass, and so do those of unnamed namespaces, which are two types.
// Use: note_layout<S>() where a function depends on S; a machine begins with refuse_two_layouts().
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <typeinfo>

// The kernel file, by which reports name what is compiled (cmake/kernels.cmake).
#if !defined(FLASH_KERNEL_FILE)
#define FLASH_KERNEL_FILE __BASE_FILE__
#endif

namespace flash::simt {

struct Layout {
  std::size_t bytes, alignment;
  std::uint64_t members;  // a hash of their sizes; 0: not known
};
// Called before main() begins. The result says nothing.
bool take_note(const std::type_info& type, Layout layout, const char* file);
// Throws Error with one line that names the struct and both files.
void refuse_two_layouts();

// The layout is part of the variable's name, so that each layout has a variable of its own, which notes it.
template <class S, std::size_t kBytes, std::size_t kAlignment, std::uint64_t kMembers>
struct Noted {
  static const bool once;
};
template <class S, std::size_t kBytes, std::size_t kAlignment, std::uint64_t kMembers>
const bool Noted<S, kBytes, kAlignment, kMembers>::once = take_note(typeid(S), {kBytes, kAlignment, kMembers},
                                                                    FLASH_KERNEL_FILE);

// Whatever else the program does with S, it does with this layout.
template <class S, std::uint64_t kMembers = 0>
constexpr void note_layout() {
  if constexpr (std::is_class_v<S> || std::is_union_v<S>) (void)&Noted<S, sizeof(S), alignof(S), kMembers>::once;
}

}  // namespace flash::simt
