// members.hpp: the members of a struct: names, places, shapes. C++20 has no question for them, but it can bind to them
// and print where a pointer leads that is a template's argument: "&never<S>.value.S::K". Up to 16 members, or none.
// None of a struct with a union either: if it is anonymous, nothing can bind to it.
// Use: members_of<S>() goes with shared memory: shared<S>() passes it on, the recording shows it.
#pragma once
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace flash::simt {

struct Member {
  const char* pretty;  // "... [with auto p = (& … ::K)]"
  std::size_t at, bytes, element_bytes, columns;
};
constexpr std::size_t kMostMembers = 16;
using Members = std::size_t (*)(Member* out);  // writes that many at most, returns how many

template <class S>
struct Never {
  S value;
};
template <class S>
extern const Never<S> never;  // is nowhere: only its address is used, and only by the compiler

template <auto p>
constexpr const char* pretty_pointer() {
  return __PRETTY_FUNCTION__;
}

// Becomes a union and nothing else.
struct ToUnion {
  template <class T>
  requires std::is_union_v<T>
  operator T() const;
};

template <class S>
consteval bool has_union() {
  // clang-format off
  return requires { S{ToUnion()}; } ||
         requires { S{{}, ToUnion()}; } ||
         requires { S{{}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, ToUnion()}; };
  // clang-format on
}

template <class S>
consteval std::size_t member_count() {
  // clang-format off
  if constexpr (!std::is_aggregate_v<S> || !std::is_class_v<S>) return 0;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 0;
  else if constexpr (has_union<S>()) return 0;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 16;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 15;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 14;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 13;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 12;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 11;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 10;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 9;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}, {}}; }) return 8;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}}; }) return 7;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}}; }) return 6;
  else if constexpr (requires { S{{}, {}, {}, {}, {}}; }) return 5;
  else if constexpr (requires { S{{}, {}, {}, {}}; }) return 4;
  else if constexpr (requires { S{{}, {}, {}}; }) return 3;
  else if constexpr (requires { S{{}, {}}; }) return 2;
  else if constexpr (requires { S{{}}; }) return 1;
  else return 0;
  // clang-format on
}

// Pointers to all members of an object.
template <class S>
constexpr auto member_pointers(const S& s) {
  constexpr std::size_t n = member_count<S>();
  const auto pointers = [](const auto&... member) { return std::make_tuple(&member...); };
  // clang-format off
#define FLASH_BIND(count, ...) if constexpr (n == count) { auto& [__VA_ARGS__] = s; return pointers(__VA_ARGS__); }
  FLASH_BIND(1, a)
  else FLASH_BIND(2, a, b)
  else FLASH_BIND(3, a, b, c)
  else FLASH_BIND(4, a, b, c, d)
  else FLASH_BIND(5, a, b, c, d, e)
  else FLASH_BIND(6, a, b, c, d, e, f)
  else FLASH_BIND(7, a, b, c, d, e, f, g)
  else FLASH_BIND(8, a, b, c, d, e, f, g, h)
  else FLASH_BIND(9, a, b, c, d, e, f, g, h, i)
  else FLASH_BIND(10, a, b, c, d, e, f, g, h, i, j)
  else FLASH_BIND(11, a, b, c, d, e, f, g, h, i, j, k)
  else FLASH_BIND(12, a, b, c, d, e, f, g, h, i, j, k, l)
  else FLASH_BIND(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
  else FLASH_BIND(14, a, b, c, d, e, f, g, h, i, j, k, l, m, o)
  else FLASH_BIND(15, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p)
  else FLASH_BIND(16, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q)
  else return std::tuple<>();
#undef FLASH_BIND
  // clang-format on
}

template <class S>
std::size_t members(Member* out) {
  alignas(S) static unsigned char nowhere[sizeof(S)];
  const auto pointers = member_pointers(*reinterpret_cast<const S*>(nowhere));
  const auto one = [&]<std::size_t i>() {
    using M = std::remove_cvref_t<decltype(*std::get<i>(pointers))>;
    constexpr std::size_t kRank = std::rank_v<M>;
    out[i] = {pretty_pointer<std::get<i>(member_pointers(never<S>.value))>(),
              static_cast<std::size_t>(reinterpret_cast<const unsigned char*>(std::get<i>(pointers)) - nowhere),
              sizeof(M), sizeof(std::remove_all_extents_t<M>), kRank == 0 ? 1 : std::extent_v<M, kRank - !!kRank>};
  };
  constexpr std::size_t n = std::tuple_size_v<decltype(pointers)>;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (one.template operator()<i>(), ...);
  }
  (std::make_index_sequence<n>());
  return n;
}

template <class S>
constexpr Members members_of() {
  return members<S>;
}

}  // namespace flash::simt
