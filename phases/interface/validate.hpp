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
  if (options.spare_multiprocessors < 0)
    refuse("spare_multiprocessors", options.spare_multiprocessors, "0 or more", "pass 0");
  if (!(options.softcap >= 0 && std::isfinite(options.softcap)))
    refuse("softcap", options.softcap, "more than 0, or 0 for none", "omit it");
  if (!(options.dropout.p >= 0 && options.dropout.p < 1 && options.dropout.threshold() < 65536))
    refuse("dropout", options.dropout.p, "0 to 65535/65536", "omit it for none");
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

// Arrays that go together, or cannot.
inline void check_scores(const AnyProblem& p) {
  const auto needs = [](const AnyView& given, const char* name, const AnyView& other, const char* its_name) {
    if (given.given() && !other.given())
      refuse(its_name, "null", std::string("a pointer beside ") + name, std::string("pass it, or omit ") + name);
  };
  needs(p.dbias, "dbias", p.bias, "bias"), needs(p.dsinks, "dsinks", p.sinks, "sinks");
  needs(p.document_q, "doc_q", p.document_k, "doc_k"), needs(p.document_k, "doc_k", p.document_q, "doc_q");
  needs(p.first_rows, "cu_seqlens_q", p.first_keys, "cu_seqlens_k");
  needs(p.first_keys, "cu_seqlens_k", p.first_rows, "cu_seqlens_q");
  if (p.slopes.given() && p.options.mask.shift != 0)
    refuse("slopes", "given", "none with a shifted mask", "add the shift as a bias");
  if (!p.packed()) return;
  if (p.first_rows.S() < 1) refuse("cu_seqlens_q's number of elements", 0, "at least 1, a 0", "pass N + 1 of them");
  if (p.B() != 1) refuse("Q's batch size B", p.B(), "1 with cu_seqlens_q", "pack the sequences into one");
  const std::pair<const char*, const AnyView*> of_rows_and_keys[] = {
      {"bias", &p.bias}, {"mask", &p.allowed}, {"doc_q", &p.document_q}, {"block_mask", &p.blocks}};
  for (const auto& [name, view] : of_rows_and_keys)
    if (view->given())
      refuse(name, "given", "none with cu_seqlens_q", "pad the sequences and pass seqused_q and seqused_k");
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
      if (is != want && !(is == 1 && i < operand.shared))
        refuse(std::string(operand.name) + "'s " + axis_names[i], is,
               std::to_string(want) + (i < operand.shared ? " or 1" : "") + " as in " + defined_by(length),
               "make the shapes agree");
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
  if (can.meets(Demand::OtherDv) && (p.Dv() < 1 || p.Dv() > largest))
    refuse("V's head dimension D", p.Dv(), "1 to " + std::to_string(largest), "split the head");
  checks::check_shapes(p, can.meets);
  for (const Operand& operand : operands)
    if (is_written(operand, p)) checks::check_written(operand.name, p.*operand.view);
  checks::check_options(p.options);
  checks::check_kept(p);
  checks::check_scores(p);
  if (const std::optional<Refusal> r = unmet(p, can.meets))
    refuse(r->argument, r->value, r->expected + in_phase, r->remedy);
}

// The values of cu_seqlens, seqused and the block mask, which must be the host's: kernels take them as they are.
inline void check_lengths(const AnyProblem& p) {
  const auto check = [](const char* name, const AnyView& of, auto least, auto most) {
    for (std::int64_t i = 0; i < of.elements(); ++i)
      if (const std::int64_t is = static_cast<const std::int32_t*>(of.data)[i]; is < least(i) || is > most(i))
        refuse(std::string(name) + "[" + std::to_string(i) + "]", is,
               std::to_string(least(i)) + " to " + std::to_string(most(i)), "correct the lengths");
  };
  const auto check_ends = [&](const char* name, const AnyView& ends, std::int64_t S) {
    const auto* const values = static_cast<const std::int32_t*>(ends.data);
    check(
        name, ends, [&](std::int64_t i) { return i > 0 ? values[i - 1] : 0; },
        [&](std::int64_t i) { return i > 0 ? S : 0; });
  };
  check_ends("cu_seqlens_q", p.first_rows, p.Sq()), check_ends("cu_seqlens_k", p.first_keys, p.Sk());
  AnyProblem whole = p;  // without the lengths that are checked against it
  whole.rows_of = whole.keys_of = {};
  const auto none = [](std::int64_t) { return std::int64_t{0}; };
  check("seqused_q", p.rows_of, none, [&](std::int64_t n) { return whole.sequence(n).rows; });
  check("seqused_k", p.keys_of, none, [&](std::int64_t n) { return whole.sequence(n).keys; });
  for (std::int64_t b = 0; b < p.blocks.B(); ++b)
    for (std::int64_t h = 0; h < p.blocks.H(); ++h)
      for (std::int64_t i = 0; i < p.blocks.S(); ++i)
        for (std::int64_t j = 0; j < p.blocks.D(); ++j)
          if (const int is = view_as<const std::uint8_t>(p.blocks).row(b, h, i)[j]; is > 2)
            refuse("block_mask" + shape_text({b, h, i, j}), is, "0 (none), 1 (ask) or 2 (whole)", "correct the blocks");
}

}  // namespace flash
