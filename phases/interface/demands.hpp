// demands.hpp: what a problem may ask of a phase, once: its word, and when it is asked. validate() refuses by this
// table, `auto` chooses by it, --help prints it, and the tests of all phases choose their cases by it.
// Use: if (const std::optional<Refusal> r = unmet(p, features.meets)) …
#pragma once
#include <optional>
#include <string>

#include "phases/interface/features.hpp"
#include "phases/interface/limits.hpp"
#include "phases/interface/operands.hpp"

namespace flash {

// What refuse() says, but for the phase that cannot.
struct Refusal {
  std::string argument, value, expected, remedy;
};

// A new feature is one enumerator of Demand, one row here, and the phase that has it.
struct DemandRow {
  Demand demand;
  const char* word;  // in ./flash help
  std::optional<Refusal> (*asked)(const AnyProblem& p);
};

namespace demands {

inline constexpr const char* another = "choose a phase that has it: ./flash help";

inline std::optional<Refusal> when(bool asked, const Refusal& refusal) {
  return asked ? std::optional(refusal) : std::nullopt;
}

inline std::string distance(std::int64_t keys) {
  return keys >= Mask::all ? "all" : std::to_string(keys);
}

// An array that may be left out.
template <AnyView AnyProblem::*view>
std::optional<Refusal> array_given(const AnyProblem& p) {
  for (const Operand& operand : operands)
    if (operand.view == view) return when((p.*view).given(), {operand.name, "given", "none", another});
  return {};
}

inline Refusal no_tma(const std::string& what, std::int64_t value, const std::string& expected) {
  return {what, std::to_string(value), expected + " for TMA", "choose a phase that copies without it: ./flash help"};
}

// #region entries: of a batch, whose sequences TMA's boxes end in
// To such boxes batch entries are rows of one tensor, so many each, all that have rows and all that have keys.
inline std::optional<Refusal> entries_obstacle(const AnyProblem& p) {
  for (const Operand& operand : operands) {
    const AnyView& view = p.*operand.view;
    const Length rows = operand.shape[2], width = operand.shape[3];
    const bool copied = (width == Length::D || width == Length::Dv) && operand.element != Element::Int16;
    if (p.B() <= 1 || !copied || !is_given(operand, p) || view.elements() == 0) continue;
    const AnyView& first = rows == Length::Sq ? p.q : p.k;
    const std::int64_t entry = first.stride[2] > 0 ? first.stride[0] / first.stride[2] : 0;
    if (view.stride[0] == entry * view.stride[2] && p.B() * entry < std::int64_t{1} << 30) continue;
    return no_tma(std::string(operand.name) + "'s stride of B", view.stride[0],
                  "as many of its rows as in " + std::string(rows == Length::Sq ? "Q" : "K") + ", " +
                      std::to_string(entry) + ",");
  }
  return {};
}
// #endregion

// The first thing that keeps TMA from copying the tensors: it wants bases, strides and rows in multiples of 16 bytes,
// and counts rows in 32 bits. Where sequences have lengths of their own it wants batch entries as above.
inline std::optional<Refusal> tma_obstacle(const AnyProblem& p) {
  constexpr std::int64_t most_rows = std::int64_t{1} << 30;
  for (const Operand& operand : operands) {
    const AnyView& view = p.*operand.view;
    const bool copied = operand.shape[3] == Length::D || operand.shape[3] == Length::Dv;
    if (!is_given(operand, p) || !copied || view.elements() == 0) continue;
    const std::string name = operand.name;
    const std::int64_t element = bytes_of(type_of_elements(operand.element, p));
    if (view.S() > most_rows) return no_tma(name + "'s sequence length S", view.S(), "at most 2^30");
    const auto odd = [&](const std::string& what, std::int64_t bytes) {
      return no_tma(name + what, bytes, "a multiple of 16");
    };
    if (view.D() * element % 16) return odd("'s bytes in a row", view.D() * element);
    for (int i = 0; i < 3; ++i)
      if (view.shape[i] > 1 && view.stride[i] * element % 16)
        return odd(std::string("'s stride of ") + axis_names[i] + " in bytes", view.stride[i] * element);
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data));
    if (address % 16) return odd("'s address", address);
  }
  return p.rows_of.given() || p.keys_of.given() ? entries_obstacle(p) : std::nullopt;
}

inline const DemandRow rows[] = {
    {Demand::Causal, "causal",
     [](const AnyProblem& p) {
       const Mask& mask = p.options.mask;
       return when(mask.is_causal(), {"causal", name(mask), "none", another});
     }},
    {Demand::Window, "window",
     [](const AnyProblem& p) {
       return when(p.options.mask.is_window(),
                   {"window", distance(p.options.mask.left) + " keys to the left", "none", another});
     }},
    {Demand::Lse, "LSE",
     [](const AnyProblem& p) {
       return when(!p.backward() && p.lse.given(), {"LSE", "wanted", "none", another});
     }},
    {Demand::Kept, "training",
     [](const AnyProblem& p) {
       const char* which = p.m.given() ? "m" : "O_lo";
       return when(p.m.given() || p.o_lo.given(), {which, p.backward() ? "given" : "wanted", "none", another});
     }},
    {Demand::WideOutput, "O in float32",
     [](const AnyProblem& p) {
       return when(p.out != p.type, {"O's type", name(p.out), std::string(name(p.type)) + ", that of Q,", another});
     }},
    {Demand::FewerHeads, "grouped heads",
     [](const AnyProblem& p) {
       return when(p.shape().Hk != p.shape().H, {"K's number of heads H", std::to_string(p.shape().Hk),
                                                 std::to_string(p.shape().H) + " as in Q", another});
     }},
    {Demand::OtherDv, "Dv",
     [](const AnyProblem& p) {
       return when(p.shape().Dv != p.shape().D, {"V's head dimension D", std::to_string(p.shape().Dv),
                                                 std::to_string(p.shape().D) + " as in Q", another});
     }},
    {Demand::Lengths, "lengths",
     [](const AnyProblem& p) {
       for (const auto asked : {array_given<&AnyProblem::first_rows>, array_given<&AnyProblem::rows_of>})
         if (const std::optional<Refusal> refusal = asked(p)) return refusal;
       return array_given<&AnyProblem::keys_of>(p);
     }},
    {Demand::Softcap, "softcap",
     [](const AnyProblem& p) {
       return when(p.options.softcap != 0, {"softcap", std::to_string(p.options.softcap), "none", another});
     }},
    {Demand::Alibi, "ALiBi", array_given<&AnyProblem::slopes>},
    {Demand::Bias, "bias", array_given<&AnyProblem::bias>},
    {Demand::BoolMask, "bool mask", array_given<&AnyProblem::allowed>},
    {Demand::Documents, "documents", array_given<&AnyProblem::document_q>},
    {Demand::BlockMask, "block mask", array_given<&AnyProblem::blocks>},
    {Demand::Sinks, "sinks", array_given<&AnyProblem::sinks>},
    {Demand::Dropout, "dropout",
     [](const AnyProblem& p) {
       return when(p.options.dropout.given(), {"dropout", std::to_string(p.options.dropout.p), "none", another});
     }},
    {Demand::AnyStride, "any stride", tma_obstacle},
    {Demand::Atomic, "atomic",
     [](const AnyProblem& p) {
       return when(p.backward() && p.options.mode == BackwardMode::Atomic,
                   {"mode", "atomic", "deterministic", another});
     }},
    {Demand::SpareMultiprocessors, "spare multiprocessors",
     [](const AnyProblem& p) {
       const int spare = p.options.spare_multiprocessors;
       return when(spare != 0, {"spare_multiprocessors", std::to_string(spare), "0", another});
     }},
    {Demand::Ranks, "ranks",
     [](const AnyProblem& p) {
       return when(p.options.ring.ranks != 0, {"ranks", std::to_string(p.options.ring.ranks), "none", another});
     }},
};

}  // namespace demands

// What phases from 25 on meet by variants of earlier kernels. A variant costs something where nobody asks for it, too.
inline constexpr Demands met_by_variants = {Demand::Window,    Demand::FewerHeads, Demand::OtherDv, Demand::Lengths,
                                            Demand::Softcap,   Demand::Alibi,      Demand::Bias,    Demand::BoolMask,
                                            Demand::Documents, Demand::BlockMask,  Demand::Sinks,   Demand::Dropout};

// Of the demands that the problem asks the first that is not met.
inline std::optional<Refusal> unmet(const AnyProblem& p, const Demands& meets) {
  for (const DemandRow& row : demands::rows)
    if (!meets(row.demand))
      if (std::optional<Refusal> refusal = row.asked(p)) return refusal;
  return {};
}

}  // namespace flash
