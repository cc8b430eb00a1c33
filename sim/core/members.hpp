// members.hpp: the members of a struct: names, places, shapes. C++20 has no question for them, but it can bind to them
// and print where a pointer leads that is a template's argument: "&never<S>.value.S::K". Up to 16 members, or none.
// None of a struct with a union either: if it is anonymous, nothing can bind to it.
// A member that is itself a struct with mbarriers (std::uint64_t), or an array of them, counts as its members.
// Use: members_of<S>() goes with shared memory: shared<S>() passes it on, the recording shows it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sim/core/layouts.hpp"

namespace flash::simt {

struct Member {
  const char* pretty;  // "... [with auto p = (& … ::K)]"
  std::size_t at, bytes, element_bytes, columns;
  const char* within = nullptr;  // of a member of a member: that member's `pretty`,
  int element = -1;              // and of an array of them, which
};
constexpr std::size_t kMostOfOne = 16, kMostMembers = 64;
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
consteval bool has_mbarriers() {
  constexpr auto any = []<class... M>(std::tuple<M...>*) {
    return (std::is_same_v<std::remove_all_extents_t<std::remove_cvref_t<std::remove_pointer_t<M>>>, std::uint64_t> ||
            ...);
  };
  return any(static_cast<decltype(member_pointers(std::declval<const S&>()))*>(nullptr));
}

template <class S>
std::size_t members(Member* out) {
  alignas(S) static unsigned char nowhere[sizeof(S)];
  const auto pointers = member_pointers(*reinterpret_cast<const S*>(nowhere));
  std::size_t count = 0;
  const auto one = [&]<std::size_t i>() {
    using M = std::remove_cvref_t<decltype(*std::get<i>(pointers))>;
    using Element = std::remove_all_extents_t<M>;
    constexpr std::size_t kRank = std::rank_v<M>;
    const char* pretty = pretty_pointer<std::get<i>(member_pointers(never<S>.value))>();
    const auto at = static_cast<std::size_t>(reinterpret_cast<const unsigned char*>(std::get<i>(pointers)) - nowhere);
    if constexpr (member_count<Element>() > 0 && has_mbarriers<Element>()) {
      for (std::size_t e = 0; e < sizeof(M) / sizeof(Element) && count + kMostOfOne <= kMostMembers; ++e) {
        const std::size_t end = count + members<Element>(out + count);
        for (; count < end; ++count) {
          out[count].at += at + e * sizeof(Element);
          out[count].within = pretty, out[count].element = kRank == 0 ? -1 : static_cast<int>(e);
        }
      }
    } else if (count < kMostMembers) {
      out[count++] = {pretty, at, sizeof(M), sizeof(Element), kRank == 0 ? 1 : std::extent_v<M, kRank - !!kRank>};
    }
  };
  constexpr std::size_t n = std::tuple_size_v<decltype(pointers)>;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (one.template operator()<i>(), ...);
  }
  (std::make_index_sequence<n>());
  return count;
}

// A hash of the members' sizes, for note_layout(); 0: they are not known.
template <class S>
consteval std::uint64_t members_hash() {
  std::uint64_t hash = 0;
  const auto mix = [&](std::uint64_t value) { hash = (hash ^ (value + 1)) * 0x100000001b3u; };
  const auto one = [&]<class M>() {
    using Element = std::remove_all_extents_t<M>;
    mix(sizeof(M)), mix(sizeof(Element)), mix(alignof(M));
    if constexpr (member_count<Element>() > 0) mix(members_hash<Element>());
  };
  const auto each = [&]<class... M>(std::tuple<M...>*) {
    (one.template operator()<std::remove_cvref_t<std::remove_pointer_t<M>>>(), ...);
  };
  each(static_cast<decltype(member_pointers(std::declval<const S&>()))*>(nullptr));
  return hash;
}

template <class S>
constexpr Members members_of() {
  note_layout<S, members_hash<S>()>();
  return members<S>;
}

}  // namespace flash::simt
