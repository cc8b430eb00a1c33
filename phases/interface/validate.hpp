// validate.hpp: what is refused, in one line each, for those few who must ask before they compute.
// It walks the list of arrays and the table of demands; a phase's features say the rest. A header, so that phase 04
// stays a library of headers. Use: validate(p, phase);
#pragma once
#include <algorithm>

#include "phases/interface/demands.hpp"
#include "phases/interface/phase.hpp"

namespace flash {
namespace checks {

// One tensor: sizes, last stride, extent, pointer.
inline void check_view(const std::string& name, const AnyView& view) {
  std::int64_t elements = 1;
  for (int i = 0; i < 4; ++i) {
    if (view.shape[i] < 0) refuse(name + "'s " + axis_names[i], view.shape[i], "0 or more", "correct the shape");
    if (__builtin_mul_overflow(elements, std::max<std::int64_t>(view.shape[i], 1), &elements))
      refuse(name + "'s number of elements " + shape_text(view.shape), "over 2^63", "less than 2^63",
             "split the batch");
  }
  if (view.shape[3] > 1 && view.stride[3] != 1)
    refuse(name + "'s last stride", view.stride[3], "1 (D contiguous)", "pass a contiguous copy");
  std::int64_t reach = 0;
  for (int i = 0; i < 4; ++i) {
    std::int64_t step = 0;
    if (view.stride[i] < 0 && view.shape[i] > 1)
      refuse(name + "'s stride of " + axis_names[i], view.stride[i], "0 or more", "pass a copy");
    if (__builtin_mul_overflow(std::max<std::int64_t>(view.shape[i] - 1, 0), view.stride[i], &step) ||
        __builtin_add_overflow(reach, step, &reach) || reach > INT64_MAX / 8)
      refuse(name + "'s extent in memory", "over 2^63 bytes", "less than 2^63 bytes", "correct shape and strides");
  }
  if (!view.data && view.elements() > 0) refuse(name + "'s data", "null", "a pointer", "allocate it");
}

// A tensor that is written does not overlap itself: two rows on one address would overwrite each other. From the
// smallest stride up, each must step over all that the smaller ones reach.
inline void check_written(const std::string& name, const AnyView& view) {
  if (view.elements() == 0) return;
  std::array<int, 4> axes = {3, 2, 1, 0};
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return view.stride[a] < view.stride[b]; });
  std::int64_t reach = 0;  // largest offset so far
  for (const int i : axes) {
    if (view.shape[i] == 1) continue;
    if (view.stride[i] <= reach)
      refuse(name + "'s stride of " + axis_names[i], view.stride[i], "at least " + std::to_string(reach + 1),
             "give each row its own memory");
    reach += (view.shape[i] - 1) * view.stride[i];
  }
}

inline void check_options(const Options& options) {
  if (options.scale && !std::isfinite(*options.scale))
    refuse("scale", *options.scale, "a finite number", "omit it for 1/sqrt(D)");
  if (options.block_q < 0 || options.block_q > max_block)
    refuse("block_q", options.block_q, "0 (automatic) to " + std::to_string(max_block), "omit --block-q");
  if (options.block_k < 0 || options.block_k > max_block)
    refuse("block_k", options.block_k, "0 (automatic) to " + std::to_string(max_block), "omit --block-k");
  if (options.sram_bytes < 1) refuse("sram", options.sram_bytes, "at least 1 byte", "pass --sram 196608");
  if (options.threads < 0) refuse("threads", options.threads, "0 (all cores) or more", "omit --threads");
}

// m, l and O_lo go together as docs/backward.md says, and the backward pass needs what a forward pass has left.
inline void check_kept(const AnyProblem& p) {
  if (p.m.given() != p.l.given())
    refuse(p.m.given() ? "l" : "m", "null", std::string("a pointer beside ") + (p.m.given() ? "m" : "l"),
           "keep both or neither");
  if (p.o_lo.given() && p.out == Type::Float32)
    refuse("O_lo", "given", std::string("none for ") + name(p.out), "omit it: O itself is precise enough");
  if (p.backward() && !p.lse.given() && !p.m.given() && p.q.elements() > 0)
    refuse("LSE's data", "null", "a pointer", "run forward_training with LSE, or with m and l, first");
}

// Each length is what the array says that defines it; to a phase without grouped heads K's heads are Q's.
inline void check_shapes(const AnyProblem& p, const Demands& meets) {
  const auto known = [&](Length length) {
    if (length == Length::Hk && !meets(Demand::FewerHeads)) return Length::H;
    if (length == Length::Dv && !meets(Demand::OtherDv)) return Length::D;
    return length;
  };
  const Shape shape = p.shape();
  for (const Operand& operand : operands)
    for (int i = 0; i < 4; ++i) {
      if (!is_given(operand, p)) continue;
      const Length length = known(operand.shape[i]);
      const std::int64_t is = (p.*operand.view).shape[i], want = length_of(length, shape);
      if (is != want)
        refuse(std::string(operand.name) + "'s " + axis_names[i], is,
               std::to_string(want) + " as in " + defined_by(length), "make the shapes agree");
    }
  for (const Operand& operand : operands) {
    const AnyView& view = p.*operand.view;
    if (operand.shape[3] != Length::One || !is_given(operand, p) || view.elements() == 0) continue;
    if (view.stride != dense_strides(view.shape))
      refuse(std::string(operand.name) + "'s strides", shape_text(view.stride), "those of a dense [B, H, S]",
             "copy it");
  }
  if (shape.Hk != shape.H && (shape.Hk <= 0 || shape.H % shape.Hk != 0))
    refuse("K's number of heads H", shape.Hk, "a divisor of " + std::to_string(shape.H) + ", Q's", "repeat heads");
}

}  // namespace checks

// Checks sizes, strides, options and what the phase can; throws Error with one line. Reads no element, writes nothing.
inline void validate(const AnyProblem& p, const Phase& phase) {
  const Features& can = pass_of(phase, p.direction).features;
  const std::string in_phase = std::string(" in phase ") + phase.name;
  for (const Operand& operand : operands)
    if (is_given(operand, p)) checks::check_view(operand.name, p.*operand.view);
  if (!can.types.contains(p.type)) {
    std::string types;
    for (const Type t : can.types) types += (types.empty() ? "" : " or ") + std::string(name(t));
    refuse("type", name(p.type), types + in_phase, "convert, or choose another phase: ./flash help");
  }
  const std::int64_t largest = std::min<std::int64_t>(max_head_dim, can.largest_D());
  if (p.D() < 1 || p.D() > largest)
    refuse("Q's head dimension D", p.D(), "1 to " + std::to_string(largest), "split the head");
  checks::check_shapes(p, can.meets);
  for (const Operand& operand : operands)
    if (is_written(operand, p)) checks::check_written(operand.name, p.*operand.view);
  checks::check_options(p.options);
  checks::check_kept(p);
  if (const std::optional<Refusal> r = unmet(p, can.meets))
    refuse(r->argument, r->value, r->expected + in_phase, r->remedy);
}

}  // namespace flash
