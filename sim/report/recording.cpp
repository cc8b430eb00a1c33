// recording.cpp: see recording.hpp. The JSON is made for the page alone: short keys, spans as first, length, first, …
// Use: see recording.hpp.
#include "sim/report/recording.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "sim/report/json.hpp"

// The page, as it is in the sources.
asm(".section .rodata\n"
    ".global flash_player_begin, flash_player_end\n"
    "flash_player_begin: .incbin \"" FLASH_PLAYER_HTML
    "\"\n"
    "flash_player_end: .byte 0\n"
    ".previous\n");
extern "C" const char flash_player_begin, flash_player_end;

namespace flash {
namespace {

constexpr std::size_t kUntidy = 1024;  // spans that are kept before they are joined

std::string json(std::uint64_t n) {
  return std::to_string(n);
}

// The shortest decimal that is this number; infinities and NaN are none in JSON, so they are text.
std::string json(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  const std::string number(text, end);
  return std::isfinite(value) ? number : json_string(number);
}

template <class List, class One>
std::string list_of(const List& list, const One& one) {
  std::string out = "[";
  for (const auto& each : list) out += (out.size() > 1 ? "," : "") + one(each);
  return out + "]";
}

std::string json(const Recording::Spans& spans) {
  return list_of(spans, [](const auto& span) { return json(span.first) + "," + json(span.end - span.first); });
}

std::string json(const Recording::Place& place) {
  return "[" + json_string(place.name) + "," + json(place.at) + "," + json(place.bytes) + "," +
         json(place.element_bytes) + "," + json(place.columns) + "]";
}

std::string json(const Recording::Part& part) {
  std::string out = "[" + json(static_cast<std::uint64_t>(part.kind)) + "," + json(std::uint64_t{part.place}) + "," +
                    json(part.bytes) + "," + json(part.spans);
  if (part.source >= 0) out += "," + json(static_cast<std::uint64_t>(part.source)) + "," + json(part.from);
  return out + "]";
}

// The lanes' addresses, or the first one and the distance to the next where that is all there is to say.
std::string json(const std::array<std::int64_t, 32>& lanes) {
  bool even = lanes[0] >= 0;
  for (std::size_t i = 1; i < lanes.size(); ++i)
    even &= lanes[i] >= 0 && lanes[i] - lanes[i - 1] == lanes[1] - lanes[0];
  if (even) return "[" + std::to_string(lanes[0]) + "," + std::to_string(lanes[1] - lanes[0]) + "]";
  return list_of(lanes, [](auto at) { return std::to_string(at); });
}

std::string json(const Recording::Request& request) {
  return "[" + json(std::uint64_t{request.place}) + "," + json(std::uint64_t{request.bytes}) + "," +
         json(std::uint64_t{request.wavefronts}) + "," + json(std::uint64_t{request.ideal}) + "," +
         (request.write ? "1," : "0,") + json(request.lanes) + "]";
}

// By name: [name, [row, row, …], [value, value, …]].
std::string json(const std::vector<Recording::Value>& values) {
  struct Named {
    std::string name, rows, numbers;
  };
  std::vector<Named> all;  // in the order of their first appearance
  for (const Recording::Value& v : values) {
    auto known = std::find_if(all.begin(), all.end(), [&](const Named& n) { return n.name == v.name; });
    if (known == all.end()) known = all.insert(known, {v.name, "", ""});
    known->rows += (known->rows.empty() ? "" : ",") + std::to_string(v.row);
    known->numbers += (known->numbers.empty() ? "" : ",") + json(v.value);
  }
  return list_of(all,
                 [](const Named& n) { return "[" + json_string(n.name) + ",[" + n.rows + "],[" + n.numbers + "]]"; });
}

std::string json(const Recording::Step& step) {
  std::string out = "{\"l\":" + json(std::uint64_t{step.launch}) + ",\"b\":" + json(step.block) +
                    ",\"w\":" + std::to_string(step.warp);
  const auto parts = [](const auto& part) { return json(part); };
  if (!step.also.empty()) out += ",\"u\":" + list_of(step.also, [](int warp) { return std::to_string(warp); });
  if (!step.label.empty()) out += ",\"k\":" + json_string(step.label);
  if (!step.parts.empty()) out += ",\"p\":" + list_of(step.parts, parts);
  if (!step.values.empty()) out += ",\"v\":" + json(step.values);
  if (!step.requests.empty()) out += ",\"q\":" + list_of(step.requests, parts);
  if (!step.arrivals.empty())  // [mbarrier, arrivals, bytes expected (below 0: come)]
    out += ",\"m\":" + list_of(step.arrivals, [](const Recording::Arrival& a) {
             return "[" + json(std::uint64_t{a.mbarrier}) + "," + std::to_string(a.count) + "," +
                    std::to_string(a.expected - a.come) + "]";
           });
  if (!step.waited.empty())
    out += ",\"g\":" + list_of(step.waited, [](const auto& wait) { return json(std::uint64_t{wait.mbarrier}); });
  if (!step.wgmma.empty())
    out += ",\"x\":" + list_of(step.wgmma, [](const Recording::Wgmma& x) {
             return "[" + std::to_string(x.count) + "," + std::to_string(x.columns) + "]";
           });
  if (!step.waits.empty()) out += ",\"a\":" + json_string(step.waits);
  if (step.released) out += ",\"r\":1";
  if (step.ended) out += ",\"e\":1";
  if (step.blocks) out += ",\"n\":" + json(step.blocks);
  return out + "}";
}

}  // namespace

void add_span(Recording::Spans& spans, std::uint64_t first, std::uint64_t end) {
  if (!spans.empty() && spans.back().first <= first && first <= spans.back().end) {
    spans.back().end = std::max(spans.back().end, end);
    return;
  }
  spans.push_back({first, end});
  if (spans.size() >= kUntidy && (spans.size() & (spans.size() - 1)) == 0) tidy(spans);
}

void tidy(Recording::Spans& spans) {
  std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Recording::Spans joined;
  for (const Recording::Span& span : spans)
    if (!joined.empty() && span.first <= joined.back().end)
      joined.back().end = std::max(joined.back().end, span.end);
    else
      joined.push_back(span);
  spans = std::move(joined);
}

std::vector<ArrayTraffic> Recording::traffic(std::size_t count) const {
  std::vector<ArrayTraffic> all;
  for (const Place& array : arrays) all.push_back({array.name});
  for (std::size_t i = 0; i < count; ++i)
    for (const Part& part : steps[i].parts) {
      if (part.kind == Kind::read) all[part.place].read_bytes += part.bytes;
      if (part.kind == Kind::write) all[part.place].written_bytes += part.bytes;
    }
  return all;
}

std::string to_json(const Recording& r) {
  std::string out = "{\"title\":" + json_string(r.title) + ",\"note\":" + json_string(r.note);
  const auto places = [](const auto& place) { return json(place); };
  const auto three = [](const std::array<unsigned, 3>& n) {
    return list_of(n, [](unsigned i) { return std::to_string(i); });
  };
  out += ",\n\"arrays\":" + list_of(r.arrays, places);
  out += ",\n\"launches\":" + list_of(r.launches, [&](const Recording::Launch& l) {
           return "{\"kernel\":" + json_string(l.kernel) + ",\"grid\":" + three(l.grid) +
                  ",\"block\":" + three(l.block) + ",\"bytes\":" + json(l.chip_bytes) +
                  ",\"chip\":" + list_of(l.chip, places) + ",\"mbarriers\":" +
                  list_of(l.mbarriers,
                          [](const Recording::Mbarrier& m) {
                            return "[" + json_string(m.name) + "," + std::to_string(m.arrivals) + "]";
                          }) +
                  "}";
         });
  out += ",\n\"ledger\":{";
  for (std::size_t i = 0; i < r.ledger.arrays.size(); ++i) {
    const ArrayTraffic& a = r.ledger.arrays[i];
    out += (i ? "," : "") + json_string(a.name) + ":[" + json(a.read_bytes) + "," + json(a.written_bytes) + "]";
  }
  out += "},\n\"finding\":" + list_of(r.finding, [](const Recording::Finding& f) {
           return "{\"kind\":" + json_string(f.kind) + ",\"text\":" + json_string(f.text) + ",\"threads\":" +
                  list_of(f.threads,
                          [](const auto& t) { return "[" + json(t.first) + "," + std::to_string(t.second) + "]"; }) +
                  ",\"chip\":" + (f.on_chip ? "1" : "0") + ",\"place\":" + std::to_string(f.place) +
                  ",\"span\":" + json(Recording::Spans{f.span}) + "}";
         });
  out += ",\n\"steps\":[";
  for (std::size_t i = 0; i < r.steps.size(); ++i) out += (i ? ",\n" : "\n") + json(r.steps[i]);
  return out + "]}";
}

std::string player_page(const std::vector<std::string>& recordings) {
  std::string page(&flash_player_begin, &flash_player_end);
  const std::string here = "/* recordings */";
  std::string all;
  for (const std::string& recording : recordings) all += (all.empty() ? "" : ",\n") + recording;
  // "</script>" would end the script that holds them.
  for (std::size_t at = 0; (at = all.find("</", at)) != std::string::npos; ++at) all.replace(at, 2, "<\\/");
  return page.replace(page.find(here), here.size(), all);
}

}  // namespace flash
