// cxx17.hpp: what the simulator's headers, which are C++20, need where a program is compiled as C++17, nvcc's default.
// The machine was compiled as C++20: std::source_location has the name and the layout that it has there.
// Use: cuda_runtime.h includes it first; -fconcepts gives C++17 `requires` (sim/cuda/check.sh).
#pragma once
#if __cplusplus < 202002L
#include <type_traits>

#define constinit __constinit
#define consteval constexpr

namespace std {

struct source_location {
  struct __impl {  // g++'s own
    const char *_M_file_name, *_M_function_name;
    unsigned _M_line, _M_column;
  };
  static constexpr source_location current(const void* where = __builtin_source_location()) noexcept {
    source_location result;
    result._M_impl = static_cast<const __impl*>(where);
    return result;
  }
  constexpr unsigned line() const noexcept { return _M_impl ? _M_impl->_M_line : 0; }
  constexpr unsigned column() const noexcept { return _M_impl ? _M_impl->_M_column : 0; }
  constexpr const char* file_name() const noexcept { return _M_impl ? _M_impl->_M_file_name : ""; }
  constexpr const char* function_name() const noexcept { return _M_impl ? _M_impl->_M_function_name : ""; }

 private:
  const __impl* _M_impl = nullptr;
};

template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}
template <class T>
using remove_cvref_t = remove_cv_t<remove_reference_t<T>>;

}  // namespace std
#endif
