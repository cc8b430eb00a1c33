// tour_test.cpp: ./flash tour as its user sees it: every phase has its section and its row, and the numbers are right.
// Bytes and exps are derived here from the sizes that the tour names, not from the program's own formulas.
// ctest -L common -R "^tour\."
#include <doctest/doctest.h>

#include <cmath>

#include "phases/pages/text.hpp"
#include "tests/markup.hpp"
#include "tests/program.hpp"

using namespace flash;
using namespace flash::test;

namespace {

constexpr std::uint64_t heads = 12, N = 50, D = 32, f = 4;  // one layer of all-MiniLM-L6-v2 on 50 tokens, in fp32

struct Cost {
  std::uint64_t read, written, exps;  // exps 0: the data decide
};

// Q once, O once, K and V once per tile of Br queries. A kernel's threads take one row each and all keys of a tile,
// there or not; phase 04 takes those that are there. One exp more per row and tile for the rescaling.
Cost v2(std::uint64_t Br, std::uint64_t Bc, bool kernel, bool lse) {
  const std::uint64_t Tr = (N + Br - 1) / Br, Tc = (N + Bc - 1) / Bc;
  return {heads * (N * D + Tr * 2 * N * D) * f, heads * (N * D + (lse ? N : 0)) * f,
          heads * (kernel ? Tr * Br * Tc * (Bc + 1) : N * (N + Tc))};
}

// The same in fp16. A lane rescales two rows of a tile; in phase 13 it does so only where a maximum has grown.
Cost tensor(std::uint64_t Br, std::uint64_t Bc, bool always) {
  const std::uint64_t Tr = (N + Br - 1) / Br, Tc = (N + Bc - 1) / Bc, threads = 2 * Br;
  return {heads * (N * D + Tr * 2 * N * D) * 2, heads * (N * D * 2 + N * 4),
          always ? heads * Tr * Tc * (Br * Bc + 2 * threads) : 0};
}

// What the phases cost on this input with 16,384 bytes on chip. A phase that is not here must keep within what holds
// for all: it moves each tensor at least once, and no more than phase 02, which loads every key for every row.
const std::map<std::string, Cost> costs = [] {
  const std::uint64_t row = N * D * f;                                  // bytes of a head of Q, K, V or O
  const std::uint64_t state = row + 2 * N * f, passes = (N + 15) / 16;  // 03: over Q, O, l, m, one per K/V tile
  return std::map<std::string, Cost>{
      {"01-naive", {heads * (3 * row + 2 * N * N * f), heads * (row + 2 * N * N * f), heads * N * N}},
      {"02-online-softmax", {heads * (row + 2 * N * row), heads * row, heads * 2 * N * N}},
      {"03-tiled-v1",
       {heads * (2 * row + passes * (row + state)), heads * (1 + passes) * state, heads * N * (N + 2 * passes)}},
      {"04-tiled-v2", v2(16, 16, false, false)},
      {"05-first-kernel", v2(16, 16, true, false)},
      {"06-4d-grid", v2(16, 16, true, false)},
      {"07-causal", v2(16, 16, true, false)},
      {"08-lse", v2(16, 16, true, true)},
      {"09-backward", v2(16, 16, true, true)},
      {"10-tensor-cores", tensor(16, 16, true)},
      {"11-swizzle", tensor(16, 16, true)},
      {"12-async-copies", tensor(16, 16, true)},
      {"13-instruction-diet", tensor(32, 16, false)}};
}();

// "1,234" -> 1234
std::uint64_t plain(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ','), text.end());
  REQUIRE(!text.empty());
  REQUIRE(text.find_first_not_of("0123456789") == std::string::npos);
  return std::stoull(text);
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// The rows of the table at the end: phase, tiles, HBM bytes, predicted, on chip, FLOPs, exps, rescales, error, and the
// milliseconds of a CPU or of the simulator.
std::vector<std::vector<std::string>> table_of(const std::string& out) {
  std::vector<std::vector<std::string>> rows;
  bool table = false;
  for (const std::string& line : lines_of(out)) {
    if (table && line.empty()) break;
    if (table) rows.push_back(words_of(line));
    table = table || line.rfind("phase  ", 0) == 0;
  }
  return rows;
}

// The rows of the report's table, cell by cell.
std::vector<std::vector<std::string>> table_of_html(const std::string& html) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t at = 0; (at = html.find("<tr><td>", at)) != std::string::npos; ++at) {
    std::vector<std::string> cells;
    for (const Element& cell : elements(html.substr(at, html.find("</tr>", at) - at), "td")) cells.push_back(cell.text);
    rows.push_back(cells);
  }
  return rows;
}

// What the tour says of one phase: from its heading to the next.
std::string section(const std::string& out, const std::string& phase) {
  const std::size_t begin = out.find("\nPhase " + phase + "  (");
  if (begin == std::string::npos) return "";
  return out.substr(begin, std::min(out.find("\nPhase ", begin + 1), out.find("\nphase ", begin + 1)) - begin);
}

bool takes_fp32(const Promise& phase) {
  return std::count(phase.types.begin(), phase.types.end(), "float32") > 0;
}

bool checked_kernels(const std::string& out) {
  return !contains(out, "(not counted in this build)");
}

void check_row(const Promise& phase, const std::vector<std::string>& row, const std::string& text, bool counted) {
  INFO(phase.name);
  REQUIRE(row.size() == 11);
  CHECK(row[0] == phase.name);
  const bool by_lengths = phase.name.find("-lengths") != std::string::npos;
  // 16 x 16, or what the phase lists instead.
  std::int64_t Br = 16, Bc = 16;
  if (phase.name == "01-naive" || phase.name == "02-online-softmax" || !(phase.counts || by_lengths)) {
    CHECK(row[1] == "-");
  } else if (phase.blocks.empty() || std::count(phase.blocks.begin(), phase.blocks.end(), std::array{Br, Bc})) {
    CHECK(row[1] == "16x16");
  } else {
    const std::size_t by = row[1].find('x');
    Br = std::stoll(row[1]), Bc = std::stoll(row[1].substr(by + 1));
    CHECK(std::count(phase.blocks.begin(), phase.blocks.end(), std::array{Br, Bc}) == 1);
  }
  const auto whole = [](std::int64_t tile) { return static_cast<std::uint64_t>((N + tile - 1) / tile * tile); };
  const std::uint64_t in_tiles =
      heads * std::max<std::uint64_t>(64, whole(Br)) * std::max<std::uint64_t>(64, whole(Bc));
  CHECK(contains(text, "  input       as float16") != takes_fp32(phase));
  if (!phase.counts && !by_lengths) {
    CHECK(row[3] == "-");
    CHECK(contains(text, "  HBM bytes   and arithmetic are not counted in this phase\n"));
    CHECK(std::stod(row[8]) <= 2e-6);
    return;
  }
  // Phase 27 has no formula: its bytes go by the sequences' lengths.
  CHECK((row[3] == "-") == by_lengths);
  if (row[3] == "-" && !counted) return;
  const std::uint64_t predicted = plain(row[3] == "-" ? row[2] : row[3]), pairs = heads * N * N;
  const std::uint64_t all_tensors = 4 * heads * N * D * (takes_fp32(phase) ? f : 2);
  CHECK(predicted >= all_tensors);
  CHECK(predicted <= costs.at("02-online-softmax").read + costs.at("02-online-softmax").written);
  const auto cost = costs.find(phase.name);
  if (cost != costs.end()) CHECK(predicted == cost->second.read + cost->second.written);
  CHECK(std::stod(row[8]) <= (takes_fp32(phase) ? 2e-6 : 0x1p-11));  // of fp16: one rounding of each element
  CHECK(std::stod(row[8]) > 0);
  CHECK((row[7] == "-") == phase.kernel());
  CHECK((row[9] == "-") == phase.kernel());
  CHECK((row[10] == "-") != phase.kernel());
  CHECK(std::stod(row[phase.kernel() ? 10 : 9]) >= 0);
  if (phase.kernel() && !counted) return;
  CHECK(plain(row[2]) == predicted);
  const std::uint64_t flops = plain(row[5]), exps = plain(row[6]);
  CHECK(flops >= 4 * D * pairs);
  // Whole tiles, which the tensor cores' phases take with D = 64.
  CHECK(flops <= (takes_fp32(phase) ? 2 * 4 * D * pairs : (4 * 64 + 4) * in_tiles));
  CHECK(exps >= pairs);
  CHECK(exps <= std::max(4 * pairs, 2 * in_tiles));
  if (cost != costs.end()) {
    if (cost->second.exps) CHECK(exps == cost->second.exps);
    CHECK(contains(text, "predicted " + grouped(predicted) + ", counted " + grouped(predicted) + " (" +
                             grouped(cost->second.read) + " read, " + grouped(cost->second.written) + " written)\n"));
  }
  if (!phase.kernel()) CHECK(flops == 4 * D * pairs);
  CHECK(contains(text, grouped(flops) + " FLOPs, " + grouped(exps) + " exps"));
  CHECK(contains(text, " of the FLOPs on tensor cores") != takes_fp32(phase));
  // The arrays' bytes make up the total.
  std::uint64_t read = 0, written = 0;
  for (const std::string& line : lines_of(text)) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() == 5 && words[2] == "read" && words[4] == "written")
      read += plain(words[1]), written += plain(words[3]);
  }
  CHECK(read + written == predicted);
}

}  // namespace

TEST_CASE("the tour: a section and a row for every phase, bytes as derived, and a report") {
  const Session s;
  const std::vector<Promise> phases = phases_of(s.run({"help"}).out);
  const Answer r = s.run({"tour"});
  CHECK(r.err == "");
  CHECK(r.status == 0);
  CHECK(contains(r.out, "[1, 12, 50, 32] = [B, H, S, D]"));
  CHECK(contains(r.out, "16,384 bytes of SRAM"));
  CHECK(contains(r.out, "alice was beginning to get very tired of sitting by her sister on the bank"));
  CHECK_FALSE(contains(r.out, "<--"));  // how the tour marks what is wrong
  const bool counted = checked_kernels(r.out);

  const auto all_rows = table_of(r.out);
  REQUIRE(all_rows.size() == phases.size() + 1);  // the backward pass has a row of its own, behind the phase with one
  auto rows = all_rows;
  const auto own =
      std::find_if(rows.begin() + 1, rows.end(), [](const auto& row) { return row.at(0) == "backward-pass"; });
  REQUIRE(own != rows.end());
  CHECK((own - 1)->at(0) == "09-backward");
  const std::vector<std::string> backward = *own;
  rows.erase(own);
  REQUIRE(backward.size() == 11);
  CHECK(backward[0] == "backward-pass");
  CHECK(backward[3] == "-");  // no formula
  CHECK(std::stod(backward[8]) <= 5e-6);
  CHECK(std::stod(backward[8]) > 0);
  if (counted) CHECK(plain(backward[5]) >= 10 * D * heads * N * N);  // five products at least
  std::size_t at = 0;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const std::string text = section(r.out, phases[i].name);
    INFO(phases[i].name);
    REQUIRE(text != "");
    CHECK(contains(text, "(" + std::to_string(i + 1) + " of " + std::to_string(phases.size()) + ")"));
    CHECK(contains(text, phases[i].change));
    CHECK(r.out.find(text) >= at);  // in order
    at = r.out.find(text);
    check_row(phases[i], rows[i], text, counted);
  }

  REQUIRE(s.files().size() == 1);
  const std::string html = s.files().at("flash-tour/report.html");
  CHECK(contains(r.out, "report: " + (s / "flash-tour/report.html")));
  // Of what the definition's line in the help lists, what no phase's line does.
  const std::string help = s.run({"help"}).out, defined = help.substr(help.find("\n  definition "));
  std::vector<std::string> left;
  std::string forward = defined.substr(defined.find("also: ") + 6);
  forward.resize(forward.find('\n'));
  for (std::size_t begin = 0; begin < forward.size();) {
    const std::size_t end = std::min(forward.find(", ", begin), forward.size());
    const std::string word = forward.substr(begin, end - begin);
    begin = end + 2;
    const std::vector<std::string> lines = lines_of(help.substr(0, help.find("\n  definition ")));
    if (std::none_of(lines.begin(), lines.end(), [&](const std::string& line) {
          return line.rfind("      forward:", 0) == 0 && contains(line + ",", " " + word + ",");
        }))
      left.push_back(word);
  }
  std::string words;
  for (const std::string& word : left) words += (words.empty() ? "" : ", ") + word;
  CHECK(contains(r.out, "(./flash run --help): " + words + ".\n") == !words.empty());
  CHECK(well_formed(html));
  CHECK(table_of_html(html) == all_rows);
  CHECK(elements(html, "th").size() == 11);
  // Bytes against N, and P of three heads. Where bytes were counted: a picture of them, and of the walk over the tiles.
  std::size_t pictures = 4;
  for (const Promise& phase : phases)
    if (phase.kernel() ? counted : phase.counts) pictures += phase.name < "03" ? 1 : 2;
  CHECK(elements(html, "svg").size() == pictures + counted);  // and of the backward pass
  for (const Promise& phase : phases) CHECK(contains(html, "<h2>" + phase.name + "</h2>\n<p>"));
  CHECK(contains(html, "03-tiled-v1: the tiles of S"));
  CHECK(contains(html, ">K, V outside: down the columns<"));
  CHECK(contains(html, ">Q outside: along the rows<"));
  CHECK(contains(html, "name=\"viewport\""));
  CHECK(contains(html, "prefers-color-scheme:dark"));
}

TEST_CASE("phase 07 of the tour: with a mask, tiles beyond the diagonal are never loaded") {
  const Session s;
  const Answer r = s.run({"tour", "07"});
  REQUIRE(r.status == 0);
  // 4 x 4 tiles of 16 x 16, the last ones of 2 rows or keys; none is whole on the diagonal or at the end.
  std::uint64_t whole = 0, masked = 0, skipped = 0, keys = 0;
  for (std::uint64_t i = 0; i < N; i += 16)
    for (std::uint64_t j = 0; j < N; j += 16) {
      ++(j > std::min(i + 15, N - 1) ? skipped : j + 15 <= i ? whole : masked);
      if (j <= std::min(i + 15, N - 1)) keys += std::min<std::uint64_t>(16, N - j);
    }
  CHECK(contains(r.out, "with a causal mask: " + std::to_string(heads * whole) + " tiles whole, " +
                            std::to_string(heads * masked) + " masked, " + std::to_string(heads * skipped) +
                            " never loaded; error "));
  const std::string bytes = grouped(heads * (2 * N * D + 2 * keys * D) * f);
  if (checked_kernels(r.out))
    CHECK(contains(r.out, "HBM bytes predicted " + bytes + ", counted " + bytes + ", without the mask " +
                              grouped(costs.at("07-causal").read + costs.at("07-causal").written) + "\n"));
}

TEST_CASE("one phase of the tour: its section and row alone, in the folder that was asked for") {
  const Session s;
  const std::vector<Promise> phases = phases_of(s.run({"help"}).out);
  for (const Promise& phase : phases) {
    INFO(phase.name);
    const Answer r = s.run({"tour", phase.name.substr(0, phase.name.find('-')), "--out", "a/b " + phase.name});
    CHECK(r.err == "");
    CHECK(r.status == 0);
    CHECK_FALSE(contains(r.out, "<--"));
    const auto rows = table_of(r.out);
    REQUIRE(rows.size() == (phase.name == "09-backward" ? 2 : 1));
    check_row(phase, rows[0], section(r.out, phase.name), checked_kernels(r.out));
    for (const Promise& other : phases)
      if (other.name != phase.name) CHECK(section(r.out, other.name) == "");
    CHECK(well_formed(s.files().at("a/b " + phase.name + "/report.html")));
  }
  CHECK(s.files().size() == phases.size());
}

TEST_CASE("a prediction that is missed is marked, and the tour fails") {
  const Session s("flash-wrong-prediction");
  const Answer r = s.run({"tour", "01"});
  const std::uint64_t counted = costs.at("01-naive").read + costs.at("01-naive").written;
  CHECK(contains(r.out, "predicted " + grouped(counted + 1) + ", counted " + grouped(counted)));
  CHECK(contains(r.out, "  <-- THEY DIFFER\n"));
  CHECK(r.err == "flash: 01-naive missed its prediction or its error bar\n");
  CHECK(r.status == 1);
}

TEST_CASE("a tour that cannot be given is refused in one line") {
  const Session s;
  put(s / "file", "");
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad = {
      {{"tour", "77"}, "phase is '77'; expected one of 01 02 03 "},
      {{"tour", "01", "02"}, "argument is '02'; expected at most one phase; omit it"},
      {{"tour", "--fast", "1"}, "flag is --fast; expected one of --out; see ./flash run --help"},
      {{"tour", "01", "--out"}, "--out is without a value; expected --out VALUE; add the value"},
      {{"tour", "01", "--out", "file"},
       "--out is file; expected a folder that can be made (Not a directory); choose another"},
      {{"tour", "01", "--out", "file/x"},
       "--out is file/x; expected a folder that can be made (Not a directory); choose another"}};
  for (const auto& [words, line] : bad) {
    const Answer r = s.run(words);
    INFO(line);
    CHECK(r.err.rfind("flash: " + line, 0) == 0);
    CHECK(lines_of(r.err).size() == 1);
    CHECK(r.out == "");
    CHECK(r.status == 2);
  }
  CHECK(s.files().size() == 1);
}
