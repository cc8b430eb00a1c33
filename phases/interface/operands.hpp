// operands.hpp: every array of a problem, once: its name, where it is, its type, its shape, who writes it.
// validate(), the way to a device and back, the ledger's names, the C interface's and ./flash run's checks walk it.
// Use: for (const Operand& operand : operands) if (is_given(operand, p)) check(operand.name, p.*operand.view);
#pragma once
#include "phases/interface/problem.hpp"

namespace flash {

enum class Role : std::uint8_t { None, In, Out };

// The lengths that a problem has, and the array that says how long each is.
enum class Length : std::uint8_t { B, H, Hk, Sq, Sk, D, Dv, One, N, Ends, RowBlocks, KeyBlocks };
constexpr std::int64_t length_of(Length length, const Shape& s) {
  const auto blocks = [](std::int64_t S) { return (S + mask_block - 1) / mask_block; };
  const std::int64_t lengths[] = {s.B, s.H, s.Hk, s.Sq, s.Sk, s.D, s.Dv, 1, s.N, s.N + 1, blocks(s.Sq), blocks(s.Sk)};
  return lengths[static_cast<int>(length)];
}
constexpr const char* defined_by(Length length) {
  constexpr const char* names[] = {
      "Q",        "Q",       "K", "Q", "K", "Q", "V", "a row's number", "the sequences", "the sequences' ends",
      "Q in 64s", "K in 64s"};
  return names[static_cast<int>(length)];
}

// What an array's elements are.
enum class Element : std::uint8_t { Input, Output, Float32, Int16, Int32, Byte };
constexpr Type type_of_elements(Element element, const AnyProblem& p) {
  const Type types[] = {p.type, p.out, Type::Float32, Type::Int16, Type::Int32, Type::Byte};
  return types[static_cast<int>(element)];
}

struct Operand {
  const char* name;
  AnyView AnyProblem::*view;
  std::array<Length, 4> shape;
  Element element;
  Role forward, backward;
  bool optional = false;
  int shared = 0;  // of how many axes from the first on each may be 1 instead: all share what is there

  constexpr Role role(Direction direction) const { return direction == Direction::Forward ? forward : backward; }
};

namespace lists {
using enum Length;
using enum Element;
using enum Role;
using P = AnyProblem;
inline constexpr Operand operands[] = {
    {"Q", &P::q, {B, H, Sq, D}, Input, In, In},
    {"K", &P::k, {B, Hk, Sk, D}, Input, In, In},
    {"V", &P::v, {B, Hk, Sk, Dv}, Input, In, In},
    {"O", &P::o, {B, H, Sq, Dv}, Output, Out, In},
    {"O_lo", &P::o_lo, {B, H, Sq, Dv}, Int16, Out, In, true},
    {"LSE", &P::lse, {B, H, Sq, One}, Float32, Out, In, true},
    {"m", &P::m, {B, H, Sq, One}, Float32, Out, In, true},
    {"l", &P::l, {B, H, Sq, One}, Float32, Out, In, true},
    {"dO", &P::dout, {B, H, Sq, Dv}, Input, None, In},
    {"dLSE", &P::dlse, {B, H, Sq, One}, Float32, None, In, true},
    {"dQ", &P::dq, {B, H, Sq, D}, Input, None, Out},
    {"dK", &P::dk, {B, Hk, Sk, D}, Input, None, Out},
    {"dV", &P::dv, {B, Hk, Sk, Dv}, Input, None, Out},
    {"slopes", &P::slopes, {B, H, One, One}, Float32, In, In, true, 1},
    {"bias", &P::bias, {B, H, Sq, Sk}, Input, In, In, true, 3},
    {"dbias", &P::dbias, {B, H, Sq, Sk}, Float32, None, Out, true, 3},
    {"mask", &P::allowed, {B, H, Sq, Sk}, Byte, In, In, true, 3},
    {"doc_q", &P::document_q, {B, One, Sq, One}, Int32, In, In, true, 1},
    {"doc_k", &P::document_k, {B, One, Sk, One}, Int32, In, In, true, 1},
    {"block_mask", &P::blocks, {B, H, RowBlocks, KeyBlocks}, Byte, In, In, true, 2},
    {"sinks", &P::sinks, {One, H, One, One}, Float32, In, In, true},
    {"dsinks", &P::dsinks, {One, H, One, One}, Float32, None, Out, true},
    {"cu_seqlens_q", &P::first_rows, {One, One, Ends, One}, Int32, In, In, true},
    {"cu_seqlens_k", &P::first_keys, {One, One, Ends, One}, Int32, In, In, true},
    {"seqused_q", &P::rows_of, {One, One, N, One}, Int32, In, In, true},
    {"seqused_k", &P::keys_of, {One, One, N, One}, Int32, In, In, true},
};
}  // namespace lists
using lists::operands;

// Does the problem have it?
inline bool is_given(const Operand& operand, const AnyProblem& p) {
  return operand.role(p.direction) != Role::None && (!operand.optional || (p.*operand.view).given());
}
inline bool is_written(const Operand& operand, const AnyProblem& p) {
  return operand.role(p.direction) == Role::Out && is_given(operand, p);
}
// What a pass writes, each array once.
inline std::uint64_t bytes_written(const AnyProblem& p) {
  std::int64_t bytes = 0;
  for (const Operand& operand : operands)
    if (is_written(operand, p)) bytes += (p.*operand.view).elements() * bytes_of(type_of_elements(operand.element, p));
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace flash
