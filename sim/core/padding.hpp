// padding.hpp: which bytes of a type are padding: nobody writes them, and a struct that is copied as a whole takes them
// along, so the checks must not call them uninitialised. The compiler knows them (__builtin_clear_padding).
// Use: padding_of<T>() goes with the memory: Machine::alloc and shared<S>() pass it on.
#pragma once
#include <cstring>
#include <type_traits>

#include "sim/core/layouts.hpp"

namespace flash::simt {

// Sets bytes[i] to 1 where byte i of the type is padding, else to 0.
using Padding = void (*)(unsigned char* bytes);

template <class T>
__attribute__((no_sanitize("thread"))) void mark_padding(unsigned char* bytes) {
  alignas(T) static unsigned char object[sizeof(T)];  // too large for a stack; all writers write the same
  std::memset(object, 1, sizeof(T));
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(reinterpret_cast<T*>(object));
#endif
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = !object[i];
}

// Null where the type says nothing: plain bytes may hold anything.
template <class T>
constexpr Padding padding_of() {
  note_layout<T>();
  if constexpr (sizeof(T) == 1 || !std::is_trivially_copyable_v<T>)
    return nullptr;
  else
    return mark_padding<T>;
}

}  // namespace flash::simt
