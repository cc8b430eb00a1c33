// problem_options.hpp: the words of ./flash run and flash-ring that say which keys a row sees, and how a sequence is
// spread over ranks. Bad ones are refused with one line.
// Use: options.mask = parse_mask(args), options.ring = parse_ring(args);
#pragma once
#include <algorithm>
#include <string>

#include "phases/app/options.hpp"
#include "phases/interface/problem.hpp"

namespace flash {

inline Mask parse_causal(const std::string& text) {
  if (text == "none") return Mask::none();
  if (text == "top-left") return Mask::top_left();
  if (text == "bottom-right") return Mask::bottom_right();
  refuse("--causal", "'" + text + "'", "none, top-left or bottom-right", "see docs/conventions.md");
}

// "128" or "all".
inline std::int64_t parse_distance(const std::string& text, const std::string& whole) {
  std::int64_t keys = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), keys);
  if (text == "all") return Mask::all;
  if (error != std::errc() || end != text.data() + text.size() || keys < 0)
    refuse("--window", "'" + whole + "'", "L,R: keys to the left and to the right, each 0 or more, or all",
           "for example --window 1023,0");
  return std::min(keys, Mask::all);
}

// --causal, --window, or both: a row sees what both let it see. A window needs a diagonal, which has a name.
inline Mask parse_mask(const Arguments& args) {
  Mask mask = parse_causal(args.text("causal", "none"));
  const bool causal = mask.is_causal();
  if (args.has("align") && (causal || !args.has("window")))
    refuse("--align", "given", causal ? "none beside --causal, which names it" : "--window with it", "omit --align");
  if (!args.has("window")) return mask;
  const std::string text = args.text("window");
  const std::size_t comma = std::min(text.find(','), text.size());
  mask.left = parse_distance(text.substr(0, comma), text);
  mask.right = std::min(mask.right, parse_distance(text.substr(std::min(comma + 1, text.size())), text));
  if (causal) return mask;
  const std::string align = args.text("align");
  if (align != "top-left" && align != "bottom-right")
    refuse("--align", args.has("align") ? "'" + align + "'" : "missing", "top-left or bottom-right beside --window",
           "see docs/conventions.md");
  mask.alignment = align == "top-left" ? Alignment::TopLeft : Alignment::BottomRight;
  return mask;
}

inline RingLayout parse_layout(const Arguments& args) {
  const std::string text = args.text("layout", name(RingOptions{}.layout));
  using enum RingLayout;
  for (const RingLayout layout : {Contiguous, ZigZag, Striped, Ulysses})
    if (text == name(layout)) return layout;
  refuse("--layout", "'" + text + "'", "contiguous, zig-zag, striped or ulysses", "omit it for striped");
}
inline RingOptions parse_ring(const Arguments& args) {
  if (args.has("layout") && !args.has("ranks"))
    refuse("--layout", "given", "--ranks with it", "add --ranks N or omit it");
  const int ranks = args.number<int>("ranks", 0);
  if (args.has("ranks") && ranks < 1) refuse("--ranks", ranks, "1 or more", "omit it");
  return {ranks, parse_layout(args)};
}

}  // namespace flash
