// recording.cpp: see recording.hpp. The JSON is made for the page alone: short keys, spans as first, length, first, …
// Use: see recording.hpp.
#include "sim/report/recording.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <string_view>

#include "sim/report/json.hpp"
#include "sim/report/lines.hpp"

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

std::string json(std::uint64_t n) {
  return std::to_string(n);
}

// Five digits, which any compiler's order of adding leaves as they are, almost always; infinities and NaN are none in
// JSON, so they are text.
std::string json(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", static_cast<double>(value));
  return std::isfinite(value) ? text : json_string(text);
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
         json(place.element_bytes) + "," + json(place.columns) +
         (place.heads ? "," + json(place.head_rows) + "," + json(place.heads) : "") + "]";
}

// `rank`: of the step's block. What few parts have is an object behind the others: r, in which block; f, from which
// block's chip; d, it adds.
std::string json(const Recording::Part& part, unsigned rank) {
  std::string out = "[" + json(static_cast<std::uint64_t>(part.kind)) + "," + json(std::uint64_t{part.place}) + "," +
                    json(part.bytes) + "," + json(part.spans),
              more;
  const auto add = [&](const char* name, std::uint64_t n) { more += (more.empty() ? "" : ",") + (name + json(n)); };
  if (part.kind > Recording::Kind::write && part.rank != rank) add("\"r\":", part.rank);
  if (part.from_rank >= 0) add("\"f\":", static_cast<std::uint64_t>(part.from_rank));
  if (part.adds) add("\"d\":", 1);
  if (part.source >= 0 || !more.empty()) out += "," + std::to_string(part.source) + "," + json(part.from);
  return out + (more.empty() ? "]" : ",{" + more + "}]");
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

using Sets = std::map<std::vector<std::size_t>, std::size_t>;  // of lines that a step stands at, numbered

std::string json(const Recording::Step& step, const Sets& sets) {
  std::string out = "{\"l\":" + json(std::uint64_t{step.launch}) + ",\"b\":" + json(step.block) +
                    ",\"w\":" + std::to_string(step.warp);
  if (step.rank) out += ",\"h\":" + std::to_string(step.rank);
  const auto requests = [](const auto& request) { return json(request); };
  const auto parts = [&](const auto& part) { return json(part, step.rank); };
  // Of another block's mbarrier the rank follows.
  const auto rank = [&](unsigned rank) { return rank == step.rank ? "" : "," + std::to_string(rank); };
  if (!step.also.empty()) out += ",\"u\":" + list_of(step.also, [](int warp) { return std::to_string(warp); });
  if (!step.label.empty()) out += ",\"k\":" + json_string(step.label);
  if (!step.parts.empty()) out += ",\"p\":" + list_of(step.parts, parts);
  if (!step.values.empty()) out += ",\"v\":" + json(step.values);
  if (!step.requests.empty()) out += ",\"q\":" + list_of(step.requests, requests);
  if (!step.arrivals.empty())  // [mbarrier, arrivals, bytes expected (below 0: come), rank]
    out += ",\"m\":" + list_of(step.arrivals, [&](const Recording::Arrival& a) {
             return "[" + json(std::uint64_t{a.mbarrier}) + "," + std::to_string(a.count) + "," +
                    std::to_string(a.expected - a.come) + rank(a.rank) + "]";
           });
  if (!step.waited.empty())
    out += ",\"g\":" + list_of(step.waited, [&](const Recording::Waited& wait) {
             return "[" + json(std::uint64_t{wait.mbarrier}) + rank(wait.rank) + "]";
           });
  if (!step.made.empty())
    out += ",\"i\":" + list_of(step.made, [](const Recording::Made& made) {
             return "[" + json(std::uint64_t{made.mbarrier}) + "," + std::to_string(made.arrivals) + "]";
           });
  if (!step.wgmma.empty())
    out += ",\"x\":" + list_of(step.wgmma, [](const Recording::Wgmma& x) {
             return "[" + std::to_string(x.count) + "," + std::to_string(x.columns) + "]";
           });
  if (!step.at.empty()) out += ",\"s\":" + json(std::uint64_t{sets.at(step.at)});
  if (!step.waits.empty()) out += ",\"a\":" + json_string(step.waits);
  if (step.released) out += ",\"r\":1";
  if (step.ended) out += ",\"e\":1";
  if (step.blocks) out += ",\"n\":" + json(step.blocks);
  return out + "}";
}

}  // namespace

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

std::string to_json(const Recording& r, Told* told) {
  std::string out = "{\"title\":" + json_string(r.title) + ",\"note\":" + json_string(r.note);
  std::vector<std::string> files;
  std::string lines;
  for (const Recording::Line& line : r.lines) {
    if (files.empty() || files.back() != line.file) files.push_back(line.file);
    lines += (lines.empty() ? "[" : ",\n[") + json(std::uint64_t{files.size() - 1}) + "," + std::to_string(line.number);
    if (!told || told->insert({line.file, line.number}).second) lines += "," + json_string(line.text);
    lines += "]";
  }
  Sets sets;
  std::string all_sets;
  for (const Recording::Step& step : r.steps)
    if (!step.at.empty() && sets.emplace(step.at, sets.size()).second)
      all_sets += (all_sets.empty() ? "" : ",") + list_of(step.at, [](std::size_t n) { return std::to_string(n); });
  out += ",\n\"files\":" + list_of(files, [](const auto& file) { return json_string(file); }) + ",\n\"lines\":[" +
         lines + "],\n\"sets\":[" + all_sets + "]";
  const auto places = [](const auto& place) { return json(place); };
  const auto three = [](const std::array<unsigned, 3>& n) {
    return list_of(n, [](unsigned i) { return std::to_string(i); });
  };
  const std::array<unsigned, 3> none{1, 1, 1};
  out += ",\n\"arrays\":" + list_of(r.arrays, places);
  out += ",\n\"launches\":" + list_of(r.launches, [&](const Recording::Launch& l) {
           return "{\"kernel\":" + json_string(l.kernel) + ",\"grid\":" + three(l.grid) +
                  ",\"block\":" + three(l.block) + (l.cluster == none ? "" : ",\"cluster\":" + three(l.cluster)) +
                  (l.ranks ? ",\"ranks\":1" : "") + ",\"bytes\":" + json(l.chip_bytes) +
                  ",\"chip\":" + list_of(l.chip, places) + ",\"mbarriers\":" +
                  list_of(l.mbarriers,
                          [](const Recording::Mbarrier& m) {
                            return "[" + json_string(m.name) + "," + std::to_string(m.arrivals) +
                                   (m.of_cluster ? ",1]" : "]");
                          }) +
                  "}";
         });
  out += ",\n\"ledger\":{";
  for (std::size_t i = 0; i < r.ledger.arrays.size(); ++i) {
    const ArrayTraffic& a = r.ledger.arrays[i];
    out += (i ? "," : "") + json_string(a.name) + ":[" + json(a.read_bytes) + "," +
           json(a.written_bytes + a.reduced_bytes) + "]";
  }
  out += "},\n\"finding\":" + list_of(r.finding, [](const Recording::Finding& f) {
           return "{\"kind\":" + json_string(f.kind) + ",\"text\":" + json_string(f.text) + ",\"threads\":" +
                  list_of(f.threads,
                          [](const auto& t) { return "[" + json(t.first) + "," + std::to_string(t.second) + "]"; }) +
                  ",\"chip\":" + (f.on_chip ? "1" : "0") + ",\"place\":" + std::to_string(f.place) +
                  (f.rank ? ",\"rank\":" + std::to_string(f.rank) : "") +
                  ",\"span\":" + json(Recording::Spans{f.span}) + "}";
         });
  out += ",\n\"steps\":[";
  for (std::size_t i = 0; i < r.steps.size(); ++i) out += (i ? ",\n" : "\n") + json(r.steps[i], sets);
  return out + "]}";
}

std::string json_array(const std::vector<std::string>& recordings) {
  std::string all;
  for (const std::string& recording : recordings) all += (all.empty() ? "[" : ",\n") + recording;
  all += recordings.empty() ? "[]" : "]";
  // "</script>" would end the script that holds them; in a string of JSON "<\/" is the same text.
  for (std::size_t at = 0; (at = all.find("</", at)) != std::string::npos; ++at) all.replace(at, 2, "<\\/");
  return all;
}

std::string player_page(const std::vector<std::string>& recordings) {
  std::string page(&flash_player_begin, &flash_player_end);
  const std::string here = "[/* recordings */]";
  return page.replace(page.find(here), here.size(), json_array(recordings));
}

}  // namespace flash
