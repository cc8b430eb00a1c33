// app_test.cpp: ./flash run as its user sees it: every phase on every machine, .npy in, .npy and a report out.
// What comes back is compared with fp64 attention and with counts that are derived here, from the sizes alone.
// ctest -L common -R "^app\."
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>
#include <functional>
#include <set>

#include "phases/arrays/tensor.hpp"
#include "phases/interface/operands.hpp"
#include "phases/library/json.hpp"
#include "phases/pages/text.hpp"
#include "tests/features.hpp"
#include "tests/gradients.hpp"
#include "tests/program.hpp"
#include "tests/reference.hpp"

using namespace flash;
using namespace flash::test;

namespace {

// All sizes differ, and no tile divides them. Rows of halves have a multiple of 16 bytes, as phases that copy by TMA
// want it.
constexpr std::int64_t B = 2, H = 3, Sq = 70, Sk = 150, D = 24;

// The tiles that a phase is asked for: 32 x 64, or what it lists instead.
struct Tiles {
  std::int64_t Br = 32, Bc = 64;
  explicit Tiles(const Promise& phase) {
    bool listed = phase.blocks.empty();
    for (const auto& blocks : phase.blocks) listed = listed || (blocks[0] == Br && blocks[1] == Bc);
    if (!listed) Br = phase.blocks[0][0], Bc = phase.blocks[0][1];
  }
  std::vector<std::string> words() const { return {"--block-q", std::to_string(Br), "--block-k", std::to_string(Bc)}; }
};

const std::vector<Promise>& phases() {
  static const std::vector<Promise> all = phases_of(Session().run({"help"}).out);
  return all;
}

Mask causal_of(const std::string& word) {
  return word == "top-left" ? Mask::top_left() : word == "bottom-right" ? Mask::bottom_right() : Mask::none();
}

// Q, K, V, dO and dLSE as files of a session, and what attention gives for them.
template <class T>
struct Given {
  Tensor<T> q = random_tensor<T>({B, H, Sq, D}, 7, 0), k = random_tensor<T>({B, H, Sk, D}, 7, 1),
            v = random_tensor<T>({B, H, Sk, D}, 7, 2), dout = random_tensor<T>({B, H, Sq, D}, 7, 3), o = dout;
  Tensor<float> dlse = random_tensor<float>({B, H, Sq, 1}, 7, 4);

  explicit Given(const Session& s) {
    write_npy<T>(s / "q.npy", {B, H, Sq, D}, q.data());
    write_npy<T>(s / "k.npy", {B, H, Sk, D}, k.data());
    write_npy<T>(s / "v.npy", {B, H, Sk, D}, v.data());
    write_npy<T>(s / "do.npy", {B, H, Sq, D}, dout.data());
    write_npy<float>(s / "dlse.npy", {B, H, Sq}, dlse.data());
  }
  Problem<T> problem(const std::string& causal, std::optional<float> scale = {}) {
    return {view(std::as_const(q)),
            view(std::as_const(k)),
            view(std::as_const(v)),
            view(o),
            nullptr,
            {.scale = scale, .mask = causal_of(causal)}};
  }
};

const std::vector<std::string> files = {"--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", "o.npy"};

template <class T>
bool takes(const Promise& phase) {
  return std::count(phase.types.begin(), phase.types.end(), type_name<T>()) == 1;
}

std::vector<std::string> join(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::string> run_words(const std::string& phase, const std::vector<std::string>& more = {}) {
  return join(join({"run", "--phase", phase}, files), more);
}

// Does this build, on this computer, have the machine? The program says so itself when it has not.
bool refused_machine(const Answer& r, const std::string& machine) {
  const bool here = !contains(r.err, "machine is " + machine + "; expected sim");
  if (!here) {
    CHECK(machine != "sim");
    CHECK(r.status == 2);
    if (machine == "gpu")
      CHECK((contains(r.err, "no CUDA device was found") || contains(r.err, "this build has no CUDA")));
    else
      CHECK(contains(r.err, "machine is checked; expected sim in a build with AddressSanitizer"));
  }
  return !here;
}

template <class T>
std::vector<double> values_of(const NpyArray& array) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < array.elements(); ++i)
    out.push_back(static_cast<double>(to_float(array.values<T>()[i])));
  return out;
}

template <class T>
NpyArray load(const Session& s, const std::string& name) {
  return read_npy(s / name, std::is_same_v<T, bfloat16> ? NpyType::Bfloat16 : NpyType::Named);
}

template <class T>
void check_output(const Session& s, const std::string& name, const std::vector<std::int64_t>& shape,
                  const std::vector<double>& want, std::int64_t cols) {
  const NpyArray got = load<T>(s, name);
  REQUIRE(got.shape == shape);
  const double relative = distance(values_of<T>(got), want, cols).relative;
  const double floor = rounding_floor<T>(want, cols).relative;
  INFO(name << " is off by " << relative << ", rounding alone by " << floor);
  CHECK(relative <= (sizeof(T) == 2 ? 1.5 * floor + 0x1p-24 : 2e-6));
}

void check_lse(const Session& s, const std::vector<std::int64_t>& shape, const std::vector<double>& want) {
  const NpyArray lse = read_npy(s / "lse.npy");
  REQUIRE(lse.dtype == "float32");
  REQUIRE(lse.shape == shape);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double got = lse.values<float>()[i];
    if (want[i] == -INFINITY)
      CHECK(got == -INFINITY);
    else
      CHECK(std::abs(got - want[i]) <= 2e-6 * std::max(1.0, std::abs(want[i])));
  }
}

// ---- What a run costs, counted pair by pair -------------------------------------------------------------------------

struct Counts {
  std::uint64_t pairs = 0;                          // (i, j) with j visible from i, of all heads
  std::uint64_t full = 0, masked = 0, skipped = 0;  // tiles of Br x Bc: seen whole by each row, in part, not at all
  std::uint64_t key_rows = 0;                       // rows of K that a walk over each Q tile's seen tiles loads
  std::uint64_t keys = 0;                           // those of them that some row of the Q tile sees
};

Counts count(Mask causal, const Tiles& tiles) {
  const auto [Br, Bc] = tiles;
  Counts c;
  for (std::int64_t i0 = 0; i0 < Sq; i0 += Br)
    for (std::int64_t j0 = 0; j0 < Sk; j0 += Bc) {
      std::int64_t seen = 0, there = 0;
      for (std::int64_t j = j0; j < j0 + Bc; ++j) {
        const std::int64_t before = seen;
        for (std::int64_t i = i0; i < std::min(i0 + Br, Sq); ++i) ++there, seen += j < Sk && sees(causal, i, j, Sq, Sk);
        c.keys += seen > before;
      }
      c.pairs += static_cast<std::uint64_t>(B * H * seen);
      ++(seen == there ? c.full : seen ? c.masked : c.skipped);
      if (seen) c.key_rows += static_cast<std::uint64_t>(std::min(Bc, Sk - j0));
    }
  const std::uint64_t heads = B * H;
  c.full *= heads, c.masked *= heads, c.skipped *= heads, c.key_rows *= heads, c.keys *= heads;
  return c;
}

std::uint64_t number(const Json& report, const std::string& name) {
  const Json& value = report.at(name);
  INFO(name);
  REQUIRE(value.kind == Json::Number);
  return static_cast<std::uint64_t>(value.number);
}

struct Traffic {
  std::uint64_t read = 0, written = 0;
};

Traffic traffic(const Json& report, const std::string& array) {
  const Json* found = report.at("arrays").find(array);
  if (!found) return {};
  return {number(*found, "read_bytes"), number(*found, "written_bytes")};
}

// The whole of an array of [B, H, S, D], in bytes.
std::uint64_t bytes(std::int64_t S, std::size_t element, std::int64_t columns = D) {
  return static_cast<std::uint64_t>(B * H * S * columns) * element;
}

// What holds for every phase that counts, whatever its way.
void check_counts(const Json& report, const Promise& phase, const std::string& causal, std::size_t element, bool lse) {
  const auto [Br, Bc] = Tiles(phase);
  const Counts c = count(causal_of(causal), Tiles(phase));
  // Inputs are read, at least once each where every key is seen by some row; outputs are written. Never the reverse.
  for (const std::string input : {"Q", "K", "V"}) {
    INFO(input);
    CHECK(traffic(report, input).read >= bytes(input == "Q" ? Sq : Sk, element));
    CHECK(traffic(report, input).written == 0);
  }
  CHECK(traffic(report, "O").written >= bytes(Sq, element));
  CHECK(traffic(report, "LSE").written == (lse ? bytes(Sq, 4, 1) : 0));
  std::uint64_t read = 0, written = 0;
  for (const auto& [name, value] : report.at("arrays").fields)
    read += number(value, "read_bytes"), written += number(value, "written_bytes");
  CHECK(number(report, "hbm_read_bytes") == read);
  CHECK(number(report, "hbm_written_bytes") == written);
  // Two products of 2·D FLOPs for each pair that meets, and one exp. Whole tiles may be computed, with D padded to 64
  // at most and, for each pair, a handful of operations and exps more.
  const std::uint64_t tiles = static_cast<std::uint64_t>(B * H * ((Sq + Br - 1) / Br) * ((Sk + Bc - 1) / Bc));
  const std::uint64_t flops = number(report, "flops") + number(report, "tensor_flops"), exps = number(report, "exps");
  CHECK(flops >= 4 * D * c.pairs);
  CHECK(flops <= (4 * 64 + 8) * tiles * Br * Bc);
  CHECK(exps >= c.pairs);
  CHECK(exps <= 2 * tiles * Br * Bc);
  if (phase.kernel()) {
    CHECK(report.at("rescales").kind == Json::Null);
    CHECK(number(report, "shared_bytes_peak") > 0);
    CHECK(number(report, "barriers") > 0);
    CHECK(report.find("bank_conflicts"));
  } else {
    CHECK(report.at("rescales").kind == Json::Number);
    CHECK_FALSE(report.find("barriers"));
  }
}

// FlashAttention-2's way, which is that of every phase with tiles but 03: Q, O and LSE once, K and V once per Q tile.
// The phases on tensor cores, which take no fp32, leave out the keys of a tile that nobody sees.
void check_v2_bytes(const Json& report, const Promise& phase, const std::string& causal, std::size_t element) {
  const Counts c = count(causal_of(causal), Tiles(phase));
  const std::uint64_t keys = (takes<float>(phase) ? c.key_rows : c.keys) * D * element;
  CHECK(traffic(report, "Q").read == bytes(Sq, element));
  CHECK(traffic(report, "K").read == keys);
  CHECK(traffic(report, "V").read == keys);
  CHECK(traffic(report, "O").read == 0);
  CHECK(traffic(report, "O").written == bytes(Sq, element));
}

// The phases before 04 go other ways: exact bytes, FLOPs and exps of each, with all keys visible, in fp32.
struct OtherWay {
  std::map<std::string, Traffic> arrays;
  std::uint64_t exps, rescales;
};
const std::map<std::string, OtherWay> other_ways = [] {
  const std::uint64_t pairs = B * H * Sq * Sk, tiles = (Sk + 63) / 64, rows = B * H * Sq;
  const std::uint64_t q = bytes(Sq, 4), k = bytes(Sk, 4), s = 4 * pairs;
  return std::map<std::string, OtherWay>{
      {"01-naive",
       {{{"Q", {q, 0}}, {"K", {k, 0}}, {"V", {k, 0}}, {"O", {0, q}}, {"S", {s, s}}, {"P", {s, s}}}, pairs, 0}},
      // K and V pass once per row; an exp for the weight and one for the rescaling, a rescaling per key and a division
      {"02-online-softmax",
       {{{"Q", {q, 0}}, {"K", {Sq * k, 0}}, {"V", {Sq * k, 0}}, {"O", {0, q}}}, 2 * pairs, pairs + rows}},
      // per K/V tile Q once, O, l and m there and back, after they were set; 2 exps and 2 rescalings more per row
      {"03-tiled-v1",
       {{{"Q", {tiles * q, 0}},
         {"K", {k, 0}},
         {"V", {k, 0}},
         {"O", {tiles * q, (tiles + 1) * q}},
         {"l", {tiles * 4 * rows, (tiles + 1) * 4 * rows}},
         {"m", {tiles * 4 * rows, (tiles + 1) * 4 * rows}}},
        pairs + 2 * tiles * rows,
        2 * tiles * rows}}};
}();

void check_other_way(const Json& report, const OtherWay& way, bool lse) {
  for (const auto& [array, want] : way.arrays) {
    INFO(array);
    CHECK(traffic(report, array).read == want.read);
    CHECK(traffic(report, array).written == want.written);
  }
  CHECK(report.at("arrays").fields.size() == way.arrays.size() + (lse ? 1 : 0));
  CHECK(number(report, "flops") == static_cast<std::uint64_t>(4 * D * B * H * Sq * Sk));
  CHECK(number(report, "exps") == way.exps);
  CHECK(number(report, "rescales") == way.rescales);
}

void check_tiles(const Json& report, const Promise& phase, const std::string& causal) {
  const Counts c = count(causal_of(causal), Tiles(phase));
  CHECK(number(report.at("tiles"), "full") == c.full);
  CHECK(number(report.at("tiles"), "masked") == c.masked);
  CHECK(number(report.at("tiles"), "skipped") == c.skipped);
}

// What the report says of the question itself.
template <class T>
void check_question(const Json& report, const Promise& phase, const std::string& machine, const std::string& causal) {
  CHECK(report.at("phase").text == phase.name);
  CHECK(report.at("machine").text == machine);
  CHECK(report.at("type").text == type_name<T>());
  const auto shape = [&](const char* name) {
    std::vector<std::int64_t> sizes;
    for (const Json& size : report.at("shapes").at(name).items) sizes.push_back(static_cast<std::int64_t>(size.number));
    return sizes;
  };
  CHECK(shape("q") == std::vector<std::int64_t>{B, H, Sq, D});
  CHECK(shape("k") == std::vector<std::int64_t>{B, H, Sk, D});
  CHECK(shape("v") == std::vector<std::int64_t>{B, H, Sk, D});
  CHECK(std::abs(report.at("options").at("scale").number - 1 / std::sqrt(24.0)) <= 1e-6);
  CHECK(report.at("options").at("causal").text == causal);
  CHECK(number(report.at("options"), "block_q") == static_cast<std::uint64_t>(Tiles(phase).Br));
  CHECK(number(report.at("options"), "block_k") == static_cast<std::uint64_t>(Tiles(phase).Bc));
  CHECK(number(report.at("options"), "sram") == 100000);
  CHECK(number(report.at("options"), "threads") == 2);
  CHECK(report.at("seconds").number > 0);
}

template <class T>
void try_phase(const Promise& phase, const std::string& machine, const std::string& causal) {
  const std::string what = phase.name + " on " + machine + ", " + type_name<T>() + ", causal " + causal;
  INFO(what);
  const Session s;
  Given<T> in(s);
  std::vector<std::string> words =
      run_words(phase.name, join(Tiles(phase).words(), {"--machine", machine, "--causal", causal, "--sram", "100000",
                                                        "--threads", "2", "--report", "r.json"}));
  if (phase.lse) words = join(words, {"--lse", "lse.npy"});
  if (std::is_same_v<T, bfloat16>) words = join(words, {"--type", "bf16"});
  const std::map<std::string, std::string> before = s.files();
  const auto begin = std::chrono::steady_clock::now();
  const Answer r = s.run(words);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const bool typed = takes<T>(phase);
  const bool no_machine = refused_machine(r, machine);
  if (!typed && !no_machine) CHECK(contains(r.err, std::string("type is ") + type_name<T>() + "; expected "));
  if (!typed || no_machine) {
    CHECK(r.status == 2);
    CHECK(s.files() == before);
    return;
  }
  CHECK(r.err == "");
  REQUIRE(r.status == 0);

  const Reference want = reference(in.problem(causal));
  check_output<T>(s, "o.npy", {B, H, Sq, D}, want.o, D);
  if (phase.lse) check_lse(s, {B, H, Sq}, want.lse);
  const Json report = parse_json(get(s / "r.json"), "r.json");
  check_question<T>(report, phase, machine, causal);
  CHECK(report.at("seconds").number <= seconds.count());  // of the whole process
  const bool counted = machine == "checked" || (!phase.kernel() && phase.counts);
  if (counted) {
    check_counts(report, phase, causal, sizeof(T), phase.lse);
    const auto way = other_ways.find(phase.name);
    if (way == other_ways.end())
      check_v2_bytes(report, phase, causal, sizeof(T));
    else if (causal == "none" && sizeof(T) == 4)
      check_other_way(report, way->second, phase.lse);
    CHECK(contains(r.out, "HBM " + grouped(number(report, "hbm_read_bytes")) + " bytes read, " +
                              grouped(number(report, "hbm_written_bytes")) + " written -> o.npy"));
  } else {
    for (const char* unknown :
         {"hbm_read_bytes", "hbm_written_bytes", "shared_bytes_peak", "flops", "exps", "rescales"})
      CHECK(report.at(unknown).kind == Json::Null);
    for (const char* unknown : {"bank_conflicts", "barriers"})
      if (phase.kernel()) CHECK(report.at(unknown).kind == Json::Null);
    CHECK_FALSE(contains(r.out, "HBM"));
  }
  CHECK(contains(r.out, "phase " + phase.name + " on " + machine + ": "));
  // A kernel that knows masks says what became of the tiles, on any machine.
  CHECK((report.find("tiles") != nullptr) == (phase.kernel() && phase.causal));
  if (report.find("tiles")) check_tiles(report, phase, causal);
  CHECK(s.files().size() == before.size() + 2 + (phase.lse ? 1 : 0));  // O, the report, LSE: nothing else
}

// Refused: exactly this line on stderr, exit status 2, no file new, gone or changed.
void refused(const Session& s, const std::vector<std::string>& words, const std::string& line) {
  std::string all;
  for (const std::string& word : words) all += word + " ";
  INFO(all);
  const std::map<std::string, std::string> before = s.files();
  const Answer r = s.run(words);
  CHECK(r.err == "flash: " + line + "\n");
  CHECK(r.out == "");
  CHECK(r.status == 2);
  CHECK(s.files() == before);
}

}  // namespace

TEST_CASE("help: the flags, and a line for each phase with what it can do") {
  const Session s;
  const Answer help = s.run({"help"});
  CHECK(help.status == 0);
  CHECK(help.err == "");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{}, {"--help"}, {"run", "--help"}})
    CHECK(s.run(words).out == help.out);
  CHECK(help.out.rfind("usage: ./flash run --q Q.npy ", 0) == 0);
  REQUIRE(phases().size() >= 9);
  std::set<std::string> names;
  for (const auto& folder : std::filesystem::directory_iterator(FLASH_SOURCE_DIR "/phases"))
    if (std::isdigit(folder.path().filename().string()[0])) names.insert(folder.path().filename().string());
  std::set<std::string> seen;
  for (const Promise& p : phases()) {
    std::string folder = p.name;
    if (folder[2] == 'm') folder.erase(2, 1);  // 25m stands in 25's
    CHECK(names.count(folder) == 1);
    CHECK(seen.insert(p.name).second);
    CHECK(p.machines[0] == "sim");
    CHECK(p.change.size() > 20);
  }
  for (const std::string& name : names) CHECK(seen.count(name) == 1);  // each folder has its line
  // By formula: Q and O once, K and V once for each of 128 Q tiles, fp32.
  const std::size_t kernel = help.out.find("\n  05-first-kernel");
  CHECK(help.out.find("HBM bytes: 541,065,216 for a head with N = 8192, D = 64\n", kernel) <
        help.out.find("\n  06-", kernel));
  CHECK(contains(help.out, "HBM bytes: those of "));  // a phase whose forward pass is another's
  CHECK(contains(help.out, "\nwhat no phase can, --phase auto leaves on machine sim to\n  definition "));
}

TEST_CASE_TEMPLATE("every phase on every machine: O, LSE and the report", T, float, half, bfloat16) {
  // Checking and counting takes its time, and what is counted depends on the type's size alone. A mask reaches the
  // phases of both 16-bit types in the same way.
  const bool is_bfloat16 = std::is_same_v<T, bfloat16>;
  for (const Promise& phase : phases())
    for (const std::string& machine : phase.machines) {
      if (is_bfloat16 && machine == "checked") continue;
      const bool all_masks = phase.causal && (sizeof(T) == 4 || (machine == "sim" && !is_bfloat16));
      const std::string one = phase.causal ? "bottom-right" : "none";
      for (const char* causal : {"none", "top-left", "bottom-right"})
        if (all_masks || causal == one) try_phase<T>(phase, machine, causal);
    }
}

TEST_CASE("what a phase's line in the help denies is refused") {
  for (const Promise& phase : phases()) {
    const Session s;
    const Given<float> in(s);
    if (!phase.causal)
      for (const char* causal : {"top-left", "bottom-right"})
        refused(s, run_words(phase.name, {"--causal", causal}),
                std::string("causal is ") + causal + "; expected none in phase " + phase.name +
                    "; choose a phase that has it: ./flash help");
    if (!phase.lse)
      refused(s, run_words(phase.name, {"--lse", "lse.npy"}),
              "LSE is wanted; expected none in phase " + phase.name + "; choose a phase that has it: ./flash help");
    if (!phase.kernel())
      for (const char* machine : {"checked", "gpu"})
        refused(s, run_words(phase.name, {"--machine", machine}),
                std::string("machine is ") + machine + "; expected sim for phase " + phase.name +
                    ", which is a CPU phase; choose a kernel phase: ./flash help");
  }
}

TEST_CASE("options change the result as they should") {
  const Session s;
  Given<float> in(s);
  const Reference plain = reference(in.problem("none"));
  REQUIRE(s.run(run_words("4", {"--scale=-0.5", "--lse=lse.npy"})).status == 0);
  const Reference scaled = reference(in.problem("none", -0.5f));
  REQUIRE(
      s.run({"run", "--phase", "04", "--q", "q.npy", "--k=k.npy", "--v=v.npy", "--scale=-0.5", "--o=a=b.npy"}).status ==
      0);
  CHECK(get(s / "a=b.npy") == get(s / "o.npy"));  // the first = ends the name
  CHECK(distance(scaled.o, plain.o, D).relative > 0.1);
  check_output<float>(s, "o.npy", {B, H, Sq, D}, scaled.o, D);
  check_lse(s, {B, H, Sq}, scaled.lse);
  // 04 chooses 128 x 64 by itself: Q is one tile, so K passes once; with rows of 32 it passes three times.
  for (const auto& [more, passes] : {std::pair{std::vector<std::string>{}, 1}, {{"--block-q", "32"}, 3}}) {
    REQUIRE(s.run(run_words("04-tiled-v2", join(more, {"--report", "r.json"}))).status == 0);
    const Json report = parse_json(get(s / "r.json"), "r.json");
    CHECK(traffic(report, "K").read == bytes(Sk, 4) * static_cast<std::uint64_t>(passes));
    CHECK(number(report.at("options"), "threads") == 0);
  }
}

TEST_CASE_TEMPLATE("files of [S, D] are one head, and LSE is [S] then", T, float, half) {
  const Session s;
  Given<T> in(s);
  write_npy<T>(s / "q.npy", {Sq, D}, in.q.data());
  write_npy<T>(s / "k.npy", {Sk, D}, in.k.data());
  write_npy<T>(s / "v.npy", {Sk, D}, in.v.data());
  write_npy<T>(s / "do.npy", {Sq, D}, in.dout.data());
  Reference want = reference(in.problem("bottom-right"));
  want.o.resize(Sq * D);  // of the first head
  want.lse.resize(Sq);
  for (const Promise& phase : phases()) {
    if (!phase.causal || !phase.lse || !takes<T>(phase)) continue;
    INFO(phase.name);
    const Answer r = s.run(run_words(phase.name, {"--causal", "bottom-right", "--lse", "lse.npy"}));
    CHECK(r.err == "");
    check_output<T>(s, "o.npy", {Sq, D}, want.o, D);
    check_lse(s, {Sq}, want.lse);
  }
  REQUIRE(s.run(run_words("09", {"--dout", "do.npy", "--dq", "dq.npy", "--dk", "dk.npy", "--dv", "dv.npy"})).status ==
          0);
  CHECK(read_npy(s / "dq.npy").shape == std::vector<std::int64_t>{Sq, D});
  CHECK(read_npy(s / "dk.npy").shape == std::vector<std::int64_t>{Sk, D});
  CHECK(read_npy(s / "dv.npy").shape == std::vector<std::int64_t>{Sk, D});
}

// ---- Without --phase ------------------------------------------------------------------------------------------------

namespace {

// The phase that docs/results says is the fastest for the sizes of this file, D 24, 6 heads of one Q tile each, 150
// keys: nearest to them stand D 16, else 64, then the fewest rows and keys, of the same type if two are as near.
// In proportion to the tiles. Of those within 2 % of the highest figure the last one.
std::string fastest(bool causal, const std::string& type, const std::function<bool(const Promise&)>& can) {
  std::map<std::string, double> tflops;
  std::map<std::string, std::array<double, 3>> distance;
  std::istringstream files(FLASH_MEASURED);
  for (std::string name; std::getline(files, name, ':');) {
    const Json file = read_json(name);
    for (const Json& row : file.at("rows").items) {
      const std::string &sweep = row.at("sweep").text, &measured = row.at("type").text, &kernel = row.at("kernel").text;
      if ((sweep != "kernels" && sweep != "beside" && sweep != "few") || row.at("causal").truth != causal) continue;
      const double N = row.at("N").number, rows = row.at("B").number * row.at("H").number * N;
      const std::array<double, 3> here{row.at("D").number, rows * N, measured == type ? 0.0 : 1.0};
      if (distance.count(kernel) && distance[kernel] < here) continue;
      distance[kernel] = here;
      tflops[kernel] = row.at("tflops").number * std::min(1.0, 6 / (rows / 128));
    }
  }
  double best = 0;
  for (const Promise& phase : phases())
    if (can(phase)) best = std::max(best, tflops[phase.name]);
  std::string name;
  for (const Promise& phase : phases())
    if (can(phase) && tflops[phase.name] >= 0.98 * best) name = phase.name;
  return name;
}

}  // namespace

TEST_CASE_TEMPLATE("without --phase: the one measured fastest, on each machine, named with the reason", T, float, half,
                   bfloat16) {
  const Session s;
  Given<T> in(s);
  const std::vector<std::string> type =
      std::is_same_v<T, bfloat16> ? std::vector<std::string>{"--type", "bf16"} : std::vector<std::string>{};
  for (const char* machine : {"sim", "checked", "gpu"})
    for (const bool causal : {false, true}) {
      const std::string what = std::string(machine) + (causal ? ", causal" : "");
      INFO(what);
      std::vector<std::string> words = join(join({"run"}, files), type);
      words = join(words, {"--machine", machine, "--report", "r.json", "--lse", "lse.npy"});
      if (causal) words = join(words, {"--causal", "bottom-right", "--phase", "auto"});
      const Answer r = s.run(words);
      if (refused_machine(r, machine)) continue;
      CHECK(r.err == "");
      REQUIRE(r.status == 0);
      const Reference want = reference(in.problem(causal ? "bottom-right" : "none"));
      check_output<T>(s, "o.npy", {B, H, Sq, D}, want.o, D);
      const Json report = parse_json(get(s / "r.json"), "r.json");
      const std::string phase = report.at("phase").text, why = report.at("chosen").text;
      CHECK(why.rfind("auto: ", 0) == 0);
      CHECK(contains(why, " TFLOP/s at B·H "));
      CHECK(contains(why, ", N 512, D "));
      CHECK(contains(r.out, "phase " + phase + " (" + why + ") on " + machine + ": "));
      if (std::string(machine) == "gpu") continue;  // an older GPU may lack what the measured one has
      CHECK(phase == fastest(causal, type_name<T>(), [&](const Promise& p) {
              return p.kernel() && p.lse && takes<T>(p) && (p.causal || !causal);
            }));
    }
  const Answer named = s.run(join(run_words("08", type), {"--report", "r.json"}));
  REQUIRE(named.status == 0);
  CHECK(parse_json(get(s / "r.json"), "r.json").at("chosen").text == "by --phase");
  CHECK_FALSE(contains(named.out, "auto"));
}

TEST_CASE("without --phase: blocks and gradients are asked for, and what no phase can do is refused") {
  const Session s;
  Given<float> in(s);
  const std::vector<std::string> run = join({"run"}, files);
  const auto phase_of = [&](const std::vector<std::string>& more) {
    const Answer r = s.run(join(join(run, more), {"--report", "r.json"}));
    CHECK(r.err == "");
    REQUIRE(r.status == 0);
    return parse_json(get(s / "r.json"), "r.json").at("phase").text;
  };
  const auto lists = [](const Promise& phase, std::int64_t Br, std::int64_t Bc) {
    return std::count(phase.blocks.begin(), phase.blocks.end(), std::array{Br, Bc}) == 1;
  };
  CHECK(phase_of({"--block-q", "32", "--block-k", "64"}) ==
        fastest(false, "float32", [&](const Promise& p) { return takes<float>(p) && lists(p, 32, 64); }));
  const std::string backward = phase_of({"--dout", "do.npy", "--dq", "dq.npy", "--dk", "dk.npy", "--dv", "dv.npy"});
  CHECK(std::count_if(phases().begin(), phases().end(),
                      [&](const Promise& p) { return p.gradients && p.name == backward; }) == 1);
  check_output<float>(s, "o.npy", {B, H, Sq, D}, reference(in.problem("none")).o, D);

  std::filesystem::remove(s / "r.json");
  refused(s, join(run, {"--dq", "dq.npy"}), "--dq is given; expected --dout with it; add --dout dO.npy or omit it");
  refused(s, join(run, {"--scale", "nan"}), "scale is nan; expected a finite number; omit it for 1/sqrt(D)");
  const Answer blocks = s.run(join(run, {"--block-q", "7"}));
  CHECK(blocks.status == 2);
  CHECK(blocks.err.rfind("flash: block size is 7xany; expected one of ", 0) == 0);
  const std::vector<float> wide(2 * 257);
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write_npy<float>(s / name, {2, 257}, wide.data());
  refused(s, run, "Q's head dimension D is 257; expected 1 to 256; split the head");
}

// ---- Gradients ------------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("gradients: of Q, K and V, for dO and for dLSE", T, float, half, bfloat16) {
  const std::vector<std::string> gradients = {"--dout", "do.npy", "--dq", "dq.npy", "--dk", "dk.npy", "--dv", "dv.npy"};
  for (const bool with_dlse : {false, true})
    for (const char* mode : {"deterministic", "atomic"}) {
      const std::string what = std::string(mode) + (with_dlse ? ", dLSE" : "");
      INFO(what);
      const Session s;
      Given<T> in(s);
      std::vector<std::string> words = run_words("09", join(gradients, {"--mode", mode, "--causal", "bottom-right"}));
      if (with_dlse) words = join(words, {"--dlse", "dlse.npy"});
      if (std::is_same_v<T, bfloat16>) words = join(words, {"--type", "bf16"});
      const Answer r = s.run(words);
      CHECK(r.err == "");
      REQUIRE(r.status == 0);
      GradientProblem<T> problem;
      problem.q = view(std::as_const(in.q));
      problem.k = view(std::as_const(in.k));
      problem.v = view(std::as_const(in.v));
      problem.dout = view(std::as_const(in.dout));
      problem.dlse = with_dlse ? in.dlse.data() : nullptr;
      problem.options.mask = Mask::bottom_right();
      const GradientReference want = gradient_reference(problem);
      const auto share = [&](const char* name, std::int64_t S, const std::vector<double>& exact, double g) {
        const NpyArray got = load<T>(s, name);
        REQUIRE(got.shape == std::vector<std::int64_t>{B, H, S, D});
        return gradient_error<T>(values_of<T>(got), exact, g, 5e-6, 2).share;
      };
      CHECK(share("dq.npy", Sq, want.dq, want.gq) <= 1);
      CHECK(share("dk.npy", Sk, want.dk, want.gk) <= 1);
      CHECK(share("dv.npy", Sk, want.dv, want.gv) <= 1);
      check_output<T>(s, "o.npy", {B, H, Sq, D}, reference(in.problem("bottom-right")).o, D);
    }
}

TEST_CASE("with --dout the report holds the forward and the backward pass together") {
  const Session s;
  const Given<float> in(s);
  const Promise* phase = nullptr;
  for (const Promise& p : phases())
    if (p.gradients && !phase) phase = &p;
  REQUIRE(phase);
  const std::vector<std::string> common =
      join(Tiles(*phase).words(), {"--machine", "checked", "--causal", "bottom-right", "--lse", "lse.npy"});
  const Answer first = s.run(run_words(phase->name, join(common, {"--report", "forward.json"})));
  if (refused_machine(first, "checked")) return;
  REQUIRE(s.run(run_words(phase->name, join(common, {"--report", "both.json", "--dout", "do.npy", "--dq", "dq.npy",
                                                     "--dk", "dk.npy", "--dv", "dv.npy"})))
              .status == 0);
  const Json forward = parse_json(get(s / "forward.json"), "forward.json"),
             both = parse_json(get(s / "both.json"), "both.json");
  // The forward pass as it was, and on top what the backward pass cannot do without: each input, O and dO once more,
  // the gradients written, five products where the forward pass has two, and the weights once more.
  CHECK(traffic(both, "O").written == traffic(forward, "O").written);
  CHECK(traffic(both, "LSE").written == traffic(forward, "LSE").written);
  for (const std::string input : {"Q", "K", "V", "O", "dO"}) {
    INFO(input);
    const std::int64_t rows = input == "K" || input == "V" ? Sk : Sq;
    CHECK(traffic(both, input).read >= traffic(forward, input).read + bytes(rows, 4));
  }
  CHECK(traffic(both, "dQ").written == bytes(Sq, 4));
  CHECK(traffic(both, "dK").written == bytes(Sk, 4));
  CHECK(traffic(both, "dV").written == bytes(Sk, 4));
  const std::uint64_t pairs = count(Mask::bottom_right(), Tiles(*phase)).pairs;
  CHECK(number(both, "flops") >= number(forward, "flops") + 5 * 2 * D * pairs);
  CHECK(number(both, "exps") >= number(forward, "exps") + pairs);
  CHECK(number(both, "barriers") > number(forward, "barriers"));
  std::uint64_t read = 0, written = 0;
  for (const auto& [name, value] : both.at("arrays").fields)
    read += number(value, "read_bytes"), written += number(value, "written_bytes");
  CHECK(number(both, "hbm_read_bytes") == read);
  CHECK(number(both, "hbm_written_bytes") == written);
}

// ---- What models ask for --------------------------------------------------------------------------------------------

namespace {

// By which flag an array is given, and which axes its file has; what is passed on between passes has none.
struct ArrayFile {
  std::string flag;
  std::vector<std::size_t> axes;
};
const std::map<std::string, ArrayFile> array_files = {
    {"Q", {"q", {0, 1, 2, 3}}},
    {"K", {"k", {0, 1, 2, 3}}},
    {"V", {"v", {0, 1, 2, 3}}},
    {"O", {"o", {0, 1, 2, 3}}},
    {"LSE", {"lse", {0, 1, 2}}},
    {"dO", {"dout", {0, 1, 2, 3}}},
    {"dLSE", {"dlse", {0, 1, 2}}},
    {"dQ", {"dq", {0, 1, 2, 3}}},
    {"dK", {"dk", {0, 1, 2, 3}}},
    {"dV", {"dv", {0, 1, 2, 3}}},
    {"slopes", {"alibi", {1}}},
    {"bias", {"bias", {0, 1, 2, 3}}},
    {"dbias", {"dbias", {0, 1, 2, 3}}},
    {"mask", {"mask", {0, 1, 2, 3}}},
    {"doc_q", {"doc-q", {0, 2}}},
    {"doc_k", {"doc-k", {0, 2}}},
    {"block_mask", {"block-mask", {0, 1, 2, 3}}},
    {"sinks", {"sinks", {1}}},
    {"dsinks", {"dsinks", {1}}},
    {"cu_seqlens_q", {"cu-seqlens-q", {2}}},
    {"cu_seqlens_k", {"cu-seqlens-k", {2}}},
    {"seqused_q", {"seqused-q", {2}}},
    {"seqused_k", {"seqused-k", {2}}},
};

// f(an element's place in memory, its place in a dense file), for all of an array.
template <class F>
void for_each_element(const AnyView& view, std::size_t element, const F& f) {
  std::size_t n = 0;
  for (std::int64_t b = 0; b < view.B(); ++b)
    for (std::int64_t h = 0; h < view.H(); ++h)
      for (std::int64_t s = 0; s < view.S(); ++s)
        for (std::int64_t d = 0; d < view.D(); ++d, n += element)
          f(static_cast<std::byte*>(view.data) +
                (b * view.stride[0] + h * view.stride[1] + s * view.stride[2] + d * view.stride[3]) *
                    static_cast<std::int64_t>(element),
            n);
}

std::vector<std::int64_t> file_shape(const ArrayFile& file, const AnyView& view) {
  std::vector<std::int64_t> shape;
  for (const std::size_t axis : file.axes) shape.push_back(view.shape[axis]);
  return shape;
}

std::size_t element_bytes(const Operand& operand, const AnyProblem& p) {
  return static_cast<std::size_t>(bytes_of(type_of_elements(operand.element, p)));
}

// Writes the inputs of a problem and returns the words that name them and the outputs; its options, too.
std::vector<std::string> words_of(const Session& s, const AnyProblem& p, const FeatureSet& on) {
  std::vector<std::string> words;
  for (const Operand& operand : operands) {
    const auto file = array_files.find(operand.name);
    if (file == array_files.end() || !is_given(operand, p)) continue;
    const std::string name = file->second.flag + ".npy";
    words = join(words, {"--" + file->second.flag, name});
    if (operand.forward == Role::Out || operand.backward == Role::Out) continue;
    const AnyView& view = p.*operand.view;
    const std::size_t element = element_bytes(operand, p);
    std::vector<std::byte> dense(static_cast<std::size_t>(view.elements()) * element);
    for_each_element(view, element, [&](const std::byte* at, std::size_t n) { std::memcpy(&dense[n], at, element); });
    const Type type = type_of_elements(operand.element, p);
    const bool blocks = std::string(operand.name) == "block_mask";
    const char* const descr[] = {"<f4", "<f2", "<V2", "<i2", "<i4", blocks ? "|u1" : "|b1"};
    write_npy(s / name, descr[static_cast<int>(type)], file_shape(file->second, view), dense.data());
  }
  if (p.type == Type::BFloat16) words = join(words, {"--type", "bf16"});
  if (p.out != p.type) words = join(words, {"--o-type", "float32"});
  if (on.count(Feature::Causal)) words = join(words, {"--causal", "bottom-right"});
  if (on.count(Feature::Window)) words = join(words, {"--window", "21,6", "--align", "bottom-right"});
  if (on.count(Feature::Softcap)) words = join(words, {"--softcap", "1.5"});
  if (on.count(Feature::Dropout))
    words = join(words, {"--dropout", "0.17", "--seed", std::to_string(p.options.dropout.seed)});
  return words;
}

// Takes what the program has written for what the passes were to write.
void fetch(const Session& s, const AnyProblem& p) {
  for (const Operand& operand : operands) {
    const auto file = array_files.find(operand.name);
    if (file == array_files.end() || !is_given(operand, p)) continue;
    if (operand.forward != Role::Out && operand.backward != Role::Out) continue;
    const AnyView& view = p.*operand.view;
    const std::size_t element = element_bytes(operand, p);
    const bool bf16 = type_of_elements(operand.element, p) == Type::BFloat16;
    const NpyArray got = read_npy(s / (file->second.flag + ".npy"), bf16 ? NpyType::Bfloat16 : NpyType::Named);
    INFO(operand.name);
    REQUIRE(got.shape == file_shape(file->second, view));
    REQUIRE(got.bytes.size() == static_cast<std::size_t>(view.elements()) * element);
    for_each_element(view, element, [&](std::byte* at, std::size_t n) { std::memcpy(at, &got.bytes[n], element); });
  }
}

}  // namespace

TEST_CASE_TEMPLATE("what models ask for, from files: O, LSE and gradients", T, float, half, bfloat16) {
  std::vector<FeatureSet> sets;
  for (int a = 0; a < features; ++a)
    for (const int b : {a, (a + 5) % features})
      if (const FeatureSet set = {static_cast<Feature>(a), static_cast<Feature>(b)}; !is_refused(set))
        sets.push_back(set);
  std::uint64_t number = 0;
  for (const FeatureSet& on : sets) {
    FeatureInputs<T> in({.on = on,
                         .Sq = 40,
                         .D = 24,
                         .layout = static_cast<Layout>(number % 5),
                         .seed = number,
                         .keeps = false,
                         .sharing = static_cast<int>(number % 8)});
    ++number;
    INFO(text(in.c));
    const Session s;
    const AnyProblem p = in.gradients();
    const std::vector<std::string> words = words_of(s, p, on);
    const Answer r = s.run(join({"run", "--phase", "definition", "--report", "r.json"}, words));
    CHECK(r.err == "");
    REQUIRE(r.status == 0);
    CHECK(contains(r.out, "phase definition on sim: "));
    CHECK_FALSE(contains(r.out, "checked"));  // which would not count its bytes either
    fetch(s, p);
    expect_none(in.complaints());
    const Json asks = parse_json(get(s / "r.json"), "r.json").at("options").at("asks");
    const std::map<Feature, std::string> named = {{Feature::GroupedHeads, "grouped heads"},
                                                  {Feature::OtherDv, "Dv"},
                                                  {Feature::Causal, "causal"},
                                                  {Feature::Window, "window"},
                                                  {Feature::Packed, "lengths"},
                                                  {Feature::Used, "lengths"},
                                                  {Feature::Softcap, "softcap"},
                                                  {Feature::Alibi, "ALiBi"},
                                                  {Feature::Bias, "bias"},
                                                  {Feature::BoolMask, "bool mask"},
                                                  {Feature::Documents, "documents"},
                                                  {Feature::BlockMask, "block mask"},
                                                  {Feature::Sinks, "sinks"},
                                                  {Feature::Dropout, "dropout"}};
    for (const Feature feature : on)
      if (named.count(feature))
        CHECK(std::count_if(asks.items.begin(), asks.items.end(),
                            [&](const Json& word) { return word.text == named.at(feature); }) == 1);
  }
}

TEST_CASE("without --phase: what no phase has is done by the definition, on the CPU, and says so") {
  using Set = FeatureSet;
  // Each of these has a phase, but no phase has the last two.
  const std::vector<Set> sets = {{Feature::GroupedHeads},
                                 {Feature::OtherDv},
                                 {Feature::Window},
                                 {Feature::Packed},
                                 {Feature::Softcap},
                                 {Feature::Alibi},
                                 {Feature::Bias},
                                 {Feature::BoolMask},
                                 {Feature::Documents},
                                 {Feature::BlockMask},
                                 {Feature::Sinks},
                                 {Feature::Dropout},
                                 {Feature::Window, Feature::Softcap}};
  for (const Set& on : sets)
    for (const bool gradients : {false, true}) {
      FeatureInputs<half> in({.on = on, .Sq = 40, .D = 24, .keeps = false});
      const Session s;
      const AnyProblem p = gradients ? in.gradients() : in.problem();
      const std::vector<std::string> words = join({"run", "--report", "r.json"}, words_of(s, p, in.c.on));
      const Answer r = s.run(words);
      INFO(text(in.c) << (gradients ? ", gradients" : ""));
      CHECK(r.err == "");
      REQUIRE(r.status == 0);
      const Json report = parse_json(get(s / "r.json"), "r.json");
      const bool defined = report.at("phase").text == "definition";
      CHECK(defined == (on.size() == 2));
      const std::string why = report.at("chosen").text;
      CHECK(contains(why, "auto: no phase has ") == defined);
      fetch(s, p);
      // On tensor cores O has the rounding of P in it.
      expect_none(defined ? in.complaints(gradients) : in.complaints(gradients, 2, true));
      if (!defined) continue;
      CHECK(why.rfind("auto: no phase has all of ", 0) == 0);
      CHECK(contains(why, "window, "));
      CHECK(contains(why, "softcap, "));
      CHECK(contains(why, ", float16, D 24"));
      CHECK(contains(r.out, "phase definition (" + why + ") on sim: "));
      // The other machines have no definition: there a phase refuses it by its name.
      for (const char* machine : {"checked", "gpu"}) {
        const Answer other = s.run(join(words, {"--machine", machine}));
        CHECK(other.status == 2);
        CHECK(lines_of(other.err).size() == 1);
        CHECK_FALSE(contains(other.err, "definition"));
      }
    }
}

TEST_CASE("windows: causal ones, ones without a bound, and those that make no sense") {
  const Session s;
  Given<float> in(s);
  const auto output = [&](const std::vector<std::string>& more) {
    const Answer r = s.run(run_words("definition", more));
    CHECK(r.err == "");
    REQUIRE(r.status == 0);
    return get(s / "o.npy");
  };
  const std::string plain = output({}), causal = output({"--causal", "bottom-right"});
  CHECK(output({"--window", "all,all", "--align", "top-left"}) == plain);
  CHECK(output({"--window", "all,0", "--align", "bottom-right"}) == causal);
  CHECK(output({"--window", "all,7", "--causal", "bottom-right"}) == causal);
  CHECK(output({"--window", "9,all", "--causal", "bottom-right"}) ==
        output({"--window", "9,0", "--align", "bottom-right"}));
  CHECK(output({"--window", "9,0", "--align", "top-left"}) != output({"--window", "9,0", "--align", "bottom-right"}));
  output({"--window", "0,0", "--align", "top-left"});  // O is V's row on the diagonal
  const NpyArray o = read_npy(s / "o.npy");
  for (std::int64_t i = 0; i < Sq; ++i)
    CHECK(std::equal(o.values<float>() + i * D, o.values<float>() + (i + 1) * D, in.v.data() + i * D));
  for (const char* window : {"3", "", ",", "-1,0", "1,2,3", "3,x", "3, 4", "all,-1", "1.5,2"})
    refused(s, run_words("definition", {"--window", window, "--align", "top-left"}),
            std::string("--window is '") + window +
                "'; expected L,R: keys to the left and to the right, each 0 or more, or all; for example --window "
                "1023,0");
  const std::string diagonal = "; expected top-left or bottom-right beside --window; see docs/conventions.md";
  refused(s, run_words("definition", {"--window", "3,3"}), "--align is missing" + diagonal);
  refused(s, run_words("definition", {"--window", "3,3", "--align", "left"}), "--align is 'left'" + diagonal);
  refused(s, run_words("definition", {"--window", "3,3", "--align", "top-left", "--causal", "top-left"}),
          "--align is given; expected none beside --causal, which names it; omit --align");
  refused(s, run_words("definition", {"--align", "top-left"}),
          "--align is given; expected --window with it; omit --align");
}

TEST_CASE("what models ask for and cannot have is refused") {
  const Session s;
  const Given<float> in(s);
  const std::vector<float> numbers(100000, 0.5f);
  const auto file = [&](const char* descr, const std::vector<std::int64_t>& shape) {
    write_npy(s / "x.npy", descr, shape, numbers.data());
  };
  const auto refused_by_definition = [&](const std::vector<std::string>& words, const std::string& line) {
    refused(s, run_words("definition", words), line);
  };
  refused_by_definition({"--machine", "checked"},
                        "machine is checked; expected sim for phase definition, which is a CPU phase; choose a kernel "
                        "phase: ./flash help");
  refused_by_definition({"--player", "p.html"},
                        "--player is given; expected none for phase definition, which writes down no steps; choose "
                        "another phase: ./flash help");
  refused(s, run_words("08", {"--softcap", "1.5"}),
          "softcap is 1.500000; expected none in phase 08-lse; choose a phase that has it: ./flash help");
  refused_by_definition({"--softcap", "-1"}, "softcap is -1; expected more than 0, or 0 for none; omit it");
  refused_by_definition({"--softcap", "2x"}, "--softcap is '2x'; expected a number; for example --softcap 64");
  refused_by_definition({"--dropout", "1"}, "dropout is 1; expected 0 to 65535/65536; omit it for none");
  refused_by_definition({"--seed", "1"}, "--seed is given; expected --dropout with it; add --dropout P or omit it");
  refused_by_definition({"--o-type", "half"}, "--o-type is 'half'; expected float32; omit it for the type of Q");
  for (const char* flag : {"dbias", "dsinks"}) {
    refused_by_definition(
        {std::string("--") + flag, "d.npy"},
        std::string("--") + flag + " is given; expected --dout with it; add --dout dO.npy or omit it");
    refused_by_definition(
        {std::string("--") + flag, "d.npy", "--dout", "do.npy", "--dq", "dq.npy", "--dk", "dk.npy", "--dv", "dv.npy"},
        std::string("--") + flag + " is given; expected --" + (flag + 1) + " with it; add it, or omit --" + flag);
  }
  file("<f4", {B, H, Sq, Sk});
  refused_by_definition({"--mask", "x.npy"}, "x.npy: has type '<f4', expected '|b1'; convert it with astype(np.bool_)");
  refused_by_definition({"--block-mask", "x.npy"},
                        "x.npy: has type '<f4', expected '|u1'; convert it with astype(np.uint8)");
  refused_by_definition({"--cu-seqlens-q", "x.npy"},
                        "x.npy: has type '<f4', expected '<i4'; convert it with astype(np.int32)");
  refused_by_definition({"--alibi", "x.npy"},
                        "x.npy's rank is 4; expected 1 to 2 ([B, H], or the last of these axes); reshape it");
  refused_by_definition({"--sinks", "x.npy"}, "x.npy's rank is 4; expected 1 ([H]); reshape it");
  refused_by_definition({"--o", "x.npy", "--bias", "x.npy"}, "--o is given twice; expected once; remove one");
  file("<f4", {H, Sk, Sk});
  refused_by_definition({"--bias", "x.npy"},
                        "bias's sequence length S is 150; expected 70 or 1 as in Q; make the shapes agree");
  file("<f2", {Sq, Sk});
  refused_by_definition({"--bias", "x.npy"},
                        "x.npy's type is float16; expected float32; convert it with astype(np.float32)");
  file("<i4", {Sq});
  refused_by_definition({"--doc-q", "x.npy"}, "doc_k is null; expected a pointer beside doc_q; pass it, or omit doc_q");
  refused_by_definition({"--cu-seqlens-q", "x.npy"},
                        "cu_seqlens_k is null; expected a pointer beside cu_seqlens_q; pass it, or omit cu_seqlens_q");
  file("|u1", {2, 3});  // 0, 0, 0, 63 (0.5f is 00 00 00 3f)
  refused_by_definition({"--block-mask", "x.npy"},
                        "block_mask[0, 0, 1, 0] is 63; expected 0 (none), 1 (ask) or 2 (whole); correct the blocks");
  refused_by_definition({"--dout", "do.npy", "--dq", "dq.npy", "--dk", "dk.npy", "--dv", "dv.npy", "--mode", "atomic"},
                        "mode is atomic; expected deterministic in phase definition; choose a phase that has it: "
                        "./flash help");
  file("<f4", {H});
  refused_by_definition({"--sinks", "x.npy", "--dsinks", "./x.npy", "--dout", "do.npy", "--dq", "dq.npy", "--dk",
                         "dk.npy", "--dv", "dv.npy"},
                        "--dsinks is ./x.npy; expected a file other than --sinks; choose another output path");
}

// ---- Files ----------------------------------------------------------------------------------------------------------

TEST_CASE("bfloat16 files of every name: each result has the name of the file that it belongs to") {
  const Session s;
  const Given<bfloat16> in(s);
  write_npy(s / "q.npy", "|V2", {B, H, Sq, D}, in.q.data());
  write_npy(s / "k.npy", "<u2", {B, H, Sk, D}, in.k.data());
  write_npy(s / "v.npy", "<V2", {B, H, Sk, D}, in.v.data());
  REQUIRE(s.run(run_words("09",
                          {"--type", "bf16", "--dout", "do.npy", "--dq", "dq.npy", "--dk", "dk.npy", "--dv", "dv.npy"}))
              .status == 0);
  for (const auto& [name, descr] :
       std::map<std::string, std::string>{{"o.npy", "|V2"}, {"dq.npy", "|V2"}, {"dk.npy", "<u2"}, {"dv.npy", "<V2"}})
    CHECK(read_npy(s / name, NpyType::Bfloat16).descr == descr);
  refused(s, run_words("04"), "q.npy: has type '|V2', expected '<f4' or '<f2'; pass --type bf16 if it holds bfloat16");
  write_npy<half>(s / "q.npy", {1}, reinterpret_cast<const half*>(in.q.data()));
  refused(s, run_words("04", {"--type", "bf16"}),
          "q.npy: has type '<f2', expected '|V2', '<V2' or '<u2' for bfloat16; omit --type");
}

TEST_CASE("an output may not be an input or another output, by any name") {
  namespace fs = std::filesystem;
  const Session s;
  const Given<float> in(s);
  fs::create_directory(s / "sub");
  fs::create_symlink("q.npy", s / "link.npy");
  fs::create_symlink("..", s / "sub/up");
  fs::create_hard_link(s / "k.npy", s / "hard.npy");
  const auto with_o = [](const std::string& o) {
    return std::vector<std::string>{"run", "--phase", "04", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", o};
  };
  for (const std::string& same : {std::string("q.npy"), std::string("./q.npy"), std::string("sub/../q.npy"),
                                  std::string("sub/up/q.npy"), std::string("link.npy"), s / "q.npy"})
    refused(s, with_o(same), "--o is " + same + "; expected a file other than --q; choose another output path");
  refused(s, with_o("hard.npy"), "--o is hard.npy; expected a file other than --k; choose another output path");
  refused(s, with_o("v.npy"), "--o is v.npy; expected a file other than --v; choose another output path");
  for (const char* flag : {"lse", "report"})  // neither is there yet
    refused(s, run_words("04", {std::string("--") + flag, "./o.npy"}),
            std::string("--o is o.npy; expected a file other than --") + flag + "; choose another output path");
  const std::vector<std::string> gradients = {"--dq", "dq.npy", "--dk", "dk.npy", "--dv", "dv.npy"};
  refused(s, run_words("09", join(gradients, {"--dout", "o.npy"})),
          "--o is o.npy; expected a file other than --dout; choose another output path");
  refused(s, run_words("09", {"--dout", "do.npy", "--dq", "do.npy", "--dk", "dk.npy", "--dv", "dv.npy"}),
          "--dq is do.npy; expected a file other than --dout; choose another output path");
  refused(s, run_words("09", {"--dout", "do.npy", "--dq", "dq.npy", "--dk", "g.npy", "--dv", "g.npy"}),
          "--dk is g.npy; expected a file other than --dv; choose another output path");
  REQUIRE(mkfifo((s / "pipe").c_str(), 0600) == 0);
  const int reader = open((s / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  CHECK(s.run(run_words("04", {"--lse", "pipe", "--report", "pipe"})).status == 0);  // a pipe keeps nothing
  close(reader);
}

TEST_CASE("files as they come: one for all three inputs, an old output, a leftover") {
  namespace fs = std::filesystem;
  const Session s;
  Given<float> in(s);
  put(s / "o.npy", "old");
  put(s / "o.npy.flash-unfinished", "what a killed run left");
  const Answer r = s.run({"run", "--phase", "04", "--q", "k.npy", "--k", "k.npy", "--v", "k.npy", "--o", "o.npy"});
  CHECK(r.err == "");
  REQUIRE(r.status == 0);
  Problem<float> p = in.problem("none");
  p.q = p.v = p.k;
  check_output<float>(s, "o.npy", {B, H, Sk, D}, reference(p).o, D);
  CHECK_FALSE(fs::exists(s / "o.npy.flash-unfinished"));
}

TEST_CASE("a full disk, or a file that cannot be written: one line, and no half of anything") {
  const Session s;
  const Given<float> in(s);
  const std::map<std::string, std::string> before = s.files();
  const Answer r = s.run(run_words("04"), 10000);
  CHECK(r.err == "flash: o.npy: cannot be written (File too large); choose another output path or free some space\n");
  CHECK(r.status == 2);
  CHECK(s.files() == before);
  const std::string name(250, 'x');  // a name of 255 is allowed, but there is no room for ".flash-unfinished"
  const auto to = [](const std::string& o) {
    return std::vector<std::string>{"run", "--phase", "04", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", o};
  };
  refused(s, to(name),
          "--o is " + name + "; expected a path that can be written (File name too long); choose another output path");
  refused(s, to("none/o.npy"), "--o is none/o.npy; expected a file in an existing folder; create " + (s / "none"));
  refused(s, to("."), "--o is .; expected a file, not a folder; add a file name");
}

TEST_CASE("--player: a page that holds the run, O as without it, and a refusal where no access is seen") {
  const Session s;
  Given<float> in(s);
  for (const auto& [phase, machine] : {std::pair{"04", "sim"}, {"07", "checked"}, {"09", "checked"}, {"30", "sim"}}) {
    CAPTURE(phase);
    std::vector<std::string> words = {"--player", "player.html", "--machine", machine};
    if (phase == std::string("09"))
      words = join(words, {"--dout", "do.npy", "--dq", "dq.npy", "--dk", "dk.npy", "--dv", "dv.npy"});
    const Answer r = s.run(run_words(phase, words));
    CHECK(r.err == "");
    REQUIRE(r.status == 0);
    const std::string page = s.files().at("player.html");
    CHECK(page.find("\"title\":\"" + std::string(phase)) != std::string::npos);
    CHECK(page.find("</html>") != std::string::npos);
    check_output<float>(s, "o.npy", {B, H, Sq, D}, reference(in.problem("none")).o, D);
  }
  refused(s, run_words("07", {"--player", "p.html"}),
          "--player is of machine sim; expected one of machine checked, which sees each access; add --machine checked");
  refused(s, run_words("04", {"--player", "none/p.html"}),
          "--player is none/p.html; expected a file in an existing folder; create " + (s / "none"));
  refused(s, run_words("04", {"--player", "q.npy"}),
          "--player is q.npy; expected a file other than --q; choose another output path");
  refused(s, run_words("30", {"--player", "p.html", "--ranks", "17"}),
          "--player is of 17 ranks; expected at most 16; pass --ranks 4");
}

// ---- Bad input ------------------------------------------------------------------------------------------------------

TEST_CASE("words that make no sense are refused") {
  const Session s;
  const Given<float> in(s);
  std::string numbers;
  for (const Promise& phase : phases())
    numbers += (numbers.empty() ? "" : " ") + phase.name.substr(0, phase.name.find('-'));
  refused(s, {"walk"}, "command is 'walk'; expected run, tour or help; see ./flash run --help");
  for (const char* phase : {"0", "99", "4x", "04-tiled", "-1", ""})
    refused(s, run_words(phase),
            "phase is '" + std::string(phase) + "'; expected one of " + numbers + "; run ./flash help for the list");
  for (std::size_t left_out = 0; left_out < files.size(); left_out += 2) {
    std::vector<std::string> words = run_words("04");
    words.erase(words.begin() + 3 + static_cast<std::ptrdiff_t>(left_out),
                words.begin() + 5 + static_cast<std::ptrdiff_t>(left_out));
    refused(s, words, files[left_out] + " is missing; expected " + files[left_out] + " VALUE; add it");
  }
  refused(s, run_words("04", {"--scale"}), "--scale is without a value; expected --scale VALUE; add the value");
  refused(s, run_words("04", {"--q", "k.npy"}), "--q is given twice; expected once; remove one");
  refused(s, run_words("04", {"o2.npy"}), "argument is 'o2.npy'; expected --flag value; see ./flash run --help");
  const Answer unknown = s.run(run_words("04", {"--fast", "1"}));
  CHECK(unknown.status == 2);
  CHECK(unknown.err.rfind("flash: flag is --fast; expected one of --alibi --align --bias --block-k ", 0) == 0);
  CHECK(lines_of(unknown.err).size() == 1);
  refused(s, run_words("07", {"--machine", "tpu"}),
          "--machine is 'tpu'; expected sim, checked or gpu; omit it for sim");
  refused(s, run_words("04", {"--causal", "yes"}),
          "--causal is 'yes'; expected none, top-left or bottom-right; see docs/conventions.md");
  refused(s, run_words("04", {"--type", "fp8"}),
          "--type is 'fp8'; expected bf16; omit it for float16 and float32, which the files name");
}

TEST_CASE("numbers are read whole, and refused outside their limits") {
  const Session s;
  const Given<float> in(s);
  for (const char* flag : {"block-q", "block-k", "sram", "threads", "scale"})
    for (const char* value :
         {"64x", "", " 64", "0x40", "x", "64 ", "+64", "99999999999999999999999999999999999999999999999"}) {
      if (std::string(flag) == "scale" && std::string(value) == "0x40") continue;
      refused(s, run_words("04", {std::string("--") + flag, value}),
              std::string("--") + flag + " is '" + value + "'; expected a number; for example --" + flag + " 64");
    }
  for (const char* flag : {"block-q", "block-k", "sram", "threads"})
    refused(s, run_words("04", {std::string("--") + flag, "1.5"}),
            std::string("--") + flag + " is '1.5'; expected a number; for example --" + flag + " 64");
  refused(s, run_words("04", {"--threads", "4294967297"}),  // not 1
          "--threads is '4294967297'; expected a number; for example --threads 64");
  for (const char* value : {"nan", "inf", "-inf"})
    refused(s, run_words("04", {"--scale", value}),
            std::string("scale is ") + value + "; expected a finite number; omit it for 1/sqrt(D)");
  refused(s, run_words("04", {"--block-q", "-1"}), "block_q is -1; expected 0 (automatic) to 1048576; omit --block-q");
  refused(s, run_words("04", {"--block-k", "1048577"}),
          "block_k is 1048577; expected 0 (automatic) to 1048576; omit --block-k");
  refused(s, run_words("04", {"--sram", "0"}), "sram is 0; expected at least 1 byte; pass --sram 196608");
  refused(s, run_words("04", {"--threads", "-1"}), "threads is -1; expected 0 (all cores) or more; omit --threads");
  const Answer small = s.run(run_words("04", {"--sram", "100"}));
  CHECK(small.status == 2);
  CHECK(contains(small.err, "bytes of SRAM"));
  CHECK(lines_of(small.err).size() == 1);
}

TEST_CASE("gradient flags that do not belong together are refused") {
  const Session s;
  const Given<float> in(s);
  for (const char* flag : {"dlse", "dq", "dk", "dv", "mode"})
    refused(s, run_words("09", {std::string("--") + flag, "x"}),
            std::string("--") + flag + " is given; expected --dout with it; add --dout dO.npy or omit it");
  const std::vector<std::string> all = {"--dout", "do.npy", "--dq", "dq.npy", "--dk", "dk.npy", "--dv", "dv.npy"};
  refused(s, run_words("04", all),
          "--dout is given; expected none for phase 04-tiled-v2; choose a phase with gradients: ./flash help");
  for (const std::size_t left_out : {2, 4, 6}) {
    std::vector<std::string> words = all;
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(left_out),
                words.begin() + static_cast<std::ptrdiff_t>(left_out) + 2);
    refused(s, run_words("09", words), all[left_out] + " is missing; expected " + all[left_out] + " VALUE; add it");
  }
  refused(s, run_words("09", join(all, {"--mode", "fast"})),
          "--mode is 'fast'; expected deterministic or atomic; omit it for deterministic");
  refused(s, run_words("09", join(all, {"--dlse", "q.npy"})), "q.npy's rank is 4; expected 3 ([B, H, Sq]); reshape it");
  const std::vector<std::string> wrong = {"--dout", "k.npy", "--dq", "dq.npy", "--dk", "dk.npy", "--dv", "dv.npy"};
  refused(s, run_words("09", wrong), "dO's sequence length S is 150; expected 70 as in Q; make the shapes agree");
}

TEST_CASE("files that do not go together are refused") {
  const Session s;
  const Given<float> in(s);
  const std::vector<float> data(100000);
  const auto with_q = [&](const std::vector<std::int64_t>& shape, const std::string& line) {
    write_npy<float>(s / "q.npy", shape, data.data());
    refused(s, run_words("04", {"--lse", "lse.npy"}), line);
  };
  const std::string agree = "; make the shapes agree";
  with_q({B + 1, H, Sq, D}, "K's batch size B is 2; expected 3 as in Q" + agree);
  with_q({B, H + 1, Sq, D}, "K's number of heads H is 3; expected 4 as in Q" + agree);
  with_q({B, H, Sq, D + 1}, "K's head dimension D is 24; expected 25 as in Q" + agree);
  with_q({B, H, Sq, 0}, "Q's head dimension D is 0; expected 1 to 256; split the head");
  with_q({B, H, 1, 257}, "Q's head dimension D is 257; expected 1 to 256; split the head");
  with_q({Sq, D}, "ranks of q, k, v is 2, 4, 4; expected one rank; reshape to [B, H, S, D]");
  // Sizes that only a 0 keeps in memory: refused before anything of theirs is allocated.
  with_q({1 << 20, 1 << 20, 1 << 20, 0}, "Q's head dimension D is 0; expected 1 to 256; split the head");
  put(s / "q.npy", [] {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904, 4, 20), }\n";
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header;
  }());
  refused(s, run_words("04"), "q.npy: promises over 2^63 bytes; check its header");
  write_npy<float>(s / "q.npy", {B, H, Sq, D}, in.q.data());
  write_npy<float>(s / "v.npy", {B, H, Sk - 1, D}, data.data());
  refused(s, run_words("04"), "V's sequence length S is 149; expected 150 as in K" + agree);
  write_npy<half>(s / "v.npy", {B, H, Sk, D}, reinterpret_cast<const half*>(data.data()));
  refused(s, run_words("04"), "types of q, k, v is float32, float32, float16; expected one type; convert with astype");
  write_npy<float>(s / "v.npy", {B * H, Sk, D}, data.data());
  refused(s, run_words("04"), "ranks of q, k, v is 4, 4, 3; expected one rank; reshape to [B, H, S, D]");
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write_npy<float>(s / name, {B, Sk, D}, data.data());
  refused(s, run_words("04"), "q.npy's rank is 3; expected 4 ([B, H, S, D]) or 2 ([S, D]); reshape it");
  const std::vector<double> wide(100000);
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write_npy<double>(s / name, {1, 1, 5, 4}, wide.data());
  refused(s, run_words("04"),
          "type of q, k, v is float64; expected float32 or float16; convert with astype(np.float32)");
  std::filesystem::remove(s / "q.npy");
  refused(s, run_words("04"), "q.npy: cannot be opened (No such file or directory); check the path");
  put(s / "q.npy", "no");
  refused(s, run_words("04"), "q.npy: is not a .npy file; save it with numpy.save");
}

TEST_CASE_TEMPLATE("no rows, no keys, no heads", T, float, half) {
  const Session s;
  const std::vector<T> data(10000, from_float<T>(1));
  for (const Promise& phase : phases())
    for (const auto& [q, k] : std::vector<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>>{
             {{2, 3, 0, 8}, {2, 3, 5, 8}}, {{2, 3, 5, 8}, {2, 3, 0, 8}}, {{0, 3, 5, 8}, {0, 3, 5, 8}}}) {
      if (!takes<T>(phase)) continue;
      INFO(phase.name << " " << shape_text({q[0], q[1], q[2], q[3]}) << " " << shape_text({k[0], k[1], k[2], k[3]}));
      write_npy<T>(s / "q.npy", q, data.data());
      write_npy<T>(s / "k.npy", k, data.data());
      write_npy<T>(s / "v.npy", k, data.data());
      const Answer r = s.run(phase.lse ? run_words(phase.name, {"--lse", "lse.npy"}) : run_words(phase.name));
      CHECK(r.err == "");
      REQUIRE(r.status == 0);
      const NpyArray o = read_npy(s / "o.npy");
      CHECK(o.shape == q);
      for (std::int64_t i = 0; i < o.elements(); ++i) CHECK(to_float(o.values<T>()[i]) == 0);
      if (phase.lse)
        check_lse(s, {q[0], q[1], q[2]}, std::vector<double>(static_cast<std::size_t>(q[0] * q[1] * q[2]), -INFINITY));
    }
}
