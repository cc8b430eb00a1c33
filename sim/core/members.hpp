// members.hpp: the members of a struct: names, places, shapes. C++20 has no question for them, but it can bind to them
// and print where a pointer leads that is a template's argument: "&never<S>.value.S::K". Up to eight members, or none.
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
constexpr std::size_t kMostMembers = 8;
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
  return requires { S{ToUnion()}; } || requires { S{{}, ToUnion()}; } || requires { S{{}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, ToUnion()}; } || requires { S{{}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, ToUnion()}; } || requires { S{{}, {}, {}, {}, {}, {}, ToUnion()}; } ||
         requires { S{{}, {}, {}, {}, {}, {}, {}, ToUnion()}; };
  // clang-format on
}

template <class S>
consteval std::size_t member_count() {
  if constexpr (!std::is_aggregate_v<S> || !std::is_class_v<S> || requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 0;
  // clang-format off
  else if constexpr (has_union<S>()) return 0;
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
  if constexpr (n == 1) { auto& [a] = s; return pointers(a); }
  else if constexpr (n == 2) { auto& [a, b] = s; return pointers(a, b); }
  else if constexpr (n == 3) { auto& [a, b, c] = s; return pointers(a, b, c); }
  else if constexpr (n == 4) { auto& [a, b, c, d] = s; return pointers(a, b, c, d); }
  else if constexpr (n == 5) { auto& [a, b, c, d, e] = s; return pointers(a, b, c, d, e); }
  else if constexpr (n == 6) { auto& [a, b, c, d, e, f] = s; return pointers(a, b, c, d, e, f); }
  else if constexpr (n == 7) { auto& [a, b, c, d, e, f, g] = s; return pointers(a, b, c, d, e, f, g); }
  else if constexpr (n == 8) { auto& [a, b, c, d, e, f, g, h] = s; return pointers(a, b, c, d, e, f, g, h); }
  else return std::tuple<>();
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
