// run.cpp: ./flash run, one phase, the one that is named or the fastest that can, on Q, K, V from .npy files; writes O,
// and LSE and a JSON report if asked.
// Everything is checked before anything is computed; files appear whole or not at all.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <sstream>

#include "phases/app/commands.hpp"
#include "phases/app/options.hpp"
#include "phases/app/player.hpp"
#include "phases/app/run_backward.hpp"
#include "phases/arrays/tensor.hpp"
#include "phases/interface/phase.hpp"
#include "phases/interface/progress.hpp"
#include "phases/interface/validate.hpp"
#include "phases/library/automatic.hpp"
#include "phases/pages/text.hpp"
#include "sim/report/json.hpp"

namespace flash {
namespace {

Where parse_machine(const std::string& text) {
  for (const Where where : {Where::Sim, Where::Checked, Where::Gpu})
    if (text == name(where)) return where;
  refuse("--machine", "'" + text + "'", "sim, checked or gpu", "omit it for sim");
}

Mask parse_causal(const std::string& text) {
  if (text == "none") return Mask::none();
  if (text == "top-left") return Mask::top_left();
  if (text == "bottom-right") return Mask::bottom_right();
  refuse("--causal", "'" + text + "'", "none, top-left or bottom-right", "see docs/conventions.md");
}

// Refuses a path that could not be written later, before the work is done.
void check_writable(const std::string& flag, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path parent = std::filesystem::absolute(path).parent_path();
  if (!std::filesystem::is_directory(parent))
    refuse("--" + flag, path, "a file in an existing folder", "create " + parent.string());
  if (std::filesystem::is_directory(path)) refuse("--" + flag, path, "a file, not a folder", "add a file name");
  if (const std::string why = why_not_writable(path); !why.empty())
    refuse("--" + flag, path, "a path that can be written (" + why + ")", "choose another output path");
}

// By whatever names or links. Devices and pipes keep nothing that could be overwritten.
bool same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (fs::exists(a, none) && fs::exists(b, none)) return fs::is_regular_file(a, none) && fs::equivalent(a, b, none);
  return fs::weakly_canonical(fs::absolute(a), none) == fs::weakly_canonical(fs::absolute(b), none);
}

std::string json_list(const std::vector<std::int64_t>& list) {
  std::string out = "[";
  for (const std::int64_t n : list) out += (out.size() > 1 ? ", " : "") + std::to_string(n);
  return out + "]";
}

template <class T>
std::string report_json(const Phase& phase, const std::string& why, const Arguments& args, const Problem<T>& p,
                        const Run& run) {
  const auto shape = [](const View<const T>& v) { return json_list({v.shape.begin(), v.shape.end()}); };
  // What the machine did not count is null, not 0.
  const auto count = [&](std::uint64_t n) { return run.counted ? std::to_string(n) : "null"; };
  const Ledger& l = run.ledger;
  std::ostringstream out;
  out << "{\n  \"phase\": " << json_string(phase.name) << ",\n  \"chosen\": " << json_string(why)
      << ",\n  \"machine\": " << json_string(args.text("machine", "sim"))
      << ",\n  \"type\": " << json_string(type_name<T>()) << ",\n  \"shapes\": {\"q\": " << shape(p.q)
      << ", \"k\": " << shape(p.k) << ", \"v\": " << shape(p.v) << "},\n  \"options\": {\"scale\": " << p.scale()
      << ", \"causal\": " << json_string(args.text("causal", "none")) << ", \"block_q\": " << p.options.block_q
      << ", \"block_k\": " << p.options.block_k << ", \"sram\": " << p.options.sram_bytes
      << ", \"threads\": " << p.options.threads << "},\n  \"seconds\": " << run.milliseconds / 1e3
      << ",\n  \"hbm_read_bytes\": " << count(l.hbm_read_bytes())
      << ",\n  \"hbm_written_bytes\": " << count(l.hbm_written_bytes()) << ",\n  \"arrays\": {";
  for (std::size_t i = 0; i < l.arrays.size(); ++i)
    out << (i ? ",\n    " : "\n    ") << json_string(l.arrays[i].name)
        << ": {\"read_bytes\": " << count(l.arrays[i].read_bytes)
        << ", \"written_bytes\": " << count(l.arrays[i].written_bytes) << "}";
  out << "\n  },\n  \"shared_bytes_peak\": " << count(l.shared_bytes_peak) << ",\n  \"flops\": " << count(l.flops)
      << ",\n  \"tensor_flops\": " << count(l.tensor_flops) << ",\n  \"exps\": " << count(l.exps)
      << ",\n  \"rescales\": " << (phase.kernel() ? "null" : count(l.rescales));  // kernels do not count them
  if (phase.kernel())
    out << ",\n  \"bank_conflicts\": " << count(l.bank_conflicts()) << ",\n  \"barriers\": " << count(l.barriers);
  if (phase.kernel() && phase.forward->features.meets(Demand::Causal))
    out << ",\n  \"tiles\": {\"full\": " << run.tiles.full << ", \"masked\": " << run.tiles.masked
        << ", \"skipped\": " << run.tiles.skipped << "}";
  out << "\n}\n";
  return out.str();
}

// `named`: the phase that was asked for; null: the fastest.
template <class T>
int run_typed(const Phase* named, const Arguments& args, NpyType type, const NpyArray& q_file, const NpyArray& k_file,
              const NpyArray& v_file) {
  const Tensor<T> q = to_tensor<T>(q_file, args.text("q")), k = to_tensor<T>(k_file, args.text("k")),
                  v = to_tensor<T>(v_file, args.text("v"));
  Tensor<T> o = make_tensor<T>(shape_of(q));
  std::vector<float> lse;
  Problem<T> p;
  p.q = view(q);
  p.k = view(k);
  p.v = view(v);
  p.o = view(o);
  if (args.has("lse")) {
    lse.resize(1);  // its size is allowed to be large once the shapes are known to be good
    p.lse = lse.data();
  }
  if (args.has("scale")) p.options.scale = args.number<float>("scale", 0);
  p.options.mask = parse_causal(args.text("causal", "none"));
  p.options.block_q = args.number<std::int64_t>("block-q", 0);
  p.options.block_k = args.number<std::int64_t>("block-k", 0);
  p.options.sram_bytes = args.number<std::int64_t>("sram", p.options.sram_bytes);
  p.options.threads = args.number<int>("threads", 0);
  const Where where = parse_machine(args.text("machine", "sim"));
  std::string why = "by --phase";
  if (!named) {
    AnyProblem asked(p);
    if (args.has("dout")) asked.direction = Direction::Backward, asked.options.mode = backward_mode(args);
    const Choice choice = choose_phase(asked, where);
    named = choice.phase, why = choice.why();
  }
  const Phase& phase = *named;
  require(phase.name, phase.forward->features, where);
  Recording recording;
  MachineOptions options;
  if (args.has("player")) options.recording = &recording;
  if (options.recording && phase.kernel() && where != Where::Checked)
    refuse("--player", std::string("of machine ") + name(where), "one of machine checked, which sees each access",
           "add --machine checked");
  validate(p, phase);
  if (p.lse) {
    lse.resize(static_cast<std::size_t>(p.B() * p.H() * p.Sq()) + 1);  // + 1: never a null pointer
    p.lse = lse.data();
  }

  Run run;
  Gradients<T> gradients;
  {
    const ProgressLine progress(isatty(STDERR_FILENO));
    const auto write_player = [&](Blocks blocks) {
      describe(recording, phase, p, blocks);
      write_file(args.text("player"), player_page({to_json(recording)}));
    };
    try {
      if (args.has("dout")) {
        gradients = run_backward(phase, p, args, where, type, options);
        run = gradients.run;
      } else {
        run = forward(phase, p, where, options);
      }
    } catch (const Error&) {
      if (!recording.finding.empty()) write_player({p.options.block_q, p.options.block_k});  // it plays up to there
      throw;
    }
    if (options.recording) write_player(phase.kernel() ? run.blocks : Blocks{p.options.block_q, p.options.block_k});
  }
  std::vector<std::int64_t> lse_shape(q_file.shape.begin(), q_file.shape.end() - 1);
  write_npy(args.text("o"), q_file.descr, q_file.shape, o.data());
  if (p.lse) write_npy<float>(args.text("lse"), lse_shape, lse.data());
  if (args.has("dout")) write_gradients(gradients, args, q_file, k_file, v_file);
  if (args.has("report")) write_file(args.text("report"), report_json(phase, why, args, p, run));
  std::printf("phase %s%s on %s: %.3f s", phase.name,
              args.text("phase", "auto") == "auto" ? (" (" + why + ")").c_str() : "", name(where),
              run.milliseconds / 1e3);
  if (run.counted)
    std::printf(", HBM %s bytes read, %s written", grouped(run.ledger.hbm_read_bytes()).c_str(),
                grouped(run.ledger.hbm_written_bytes()).c_str());
  std::printf(" -> %s%s\n", args.text("o").c_str(), run.counted ? "" : "   (--machine checked counts bytes)");
  return 0;
}

}  // namespace

int run_command(const std::vector<std::string>& words) {
  const Arguments args(
      words, {"phase", "q",       "k",      "v",    "o",    "lse", "causal", "scale", "machine", "block-q", "block-k",
              "sram",  "threads", "report", "dout", "dlse", "dq",  "dk",     "dv",    "mode",    "type",    "player"});
  if (!args.positional.empty())
    refuse("argument", "'" + args.positional[0] + "'", "--flag value", "see ./flash run --help");
  const std::string wanted = args.text("phase", "auto");
  const Phase* phase = wanted == "auto" ? nullptr : &find_phase(wanted);
  const Where where = parse_machine(args.text("machine", "sim"));
  if (phase) require(phase->name, phase->forward->features, where);
  for (const char* name : {"q", "k", "v", "o"}) args.required(name);
  check_backward(args, phase);
  for (const char* name : {"o", "lse", "report", "player", "dq", "dk", "dv"}) {
    check_writable(name, args.text(name));
    for (const char* other : {"q", "k", "v", "o", "lse", "report", "player", "dout", "dlse", "dq", "dk", "dv"})
      if (std::string(name) != other && args.has(name) && args.has(other) &&
          same_file(args.text(name), args.text(other)))
        refuse(std::string("--") + name, args.text(name), std::string("a file other than --") + other,
               "choose another output path");
  }

  if (args.has("type") && args.text("type") != "bf16")
    refuse("--type", "'" + args.text("type") + "'", "bf16", "omit it for float16 and float32, which the files name");
  const NpyType type = args.has("type") ? NpyType::Bfloat16 : NpyType::Named;
  const NpyArray q = read_npy(args.text("q"), type), k = read_npy(args.text("k"), type),
                 v = read_npy(args.text("v"), type);
  if (q.dtype != k.dtype || q.dtype != v.dtype)
    refuse("types of q, k, v", q.dtype + ", " + k.dtype + ", " + v.dtype, "one type", "convert with astype");
  if (q.shape.size() != k.shape.size() || q.shape.size() != v.shape.size())
    refuse(
        "ranks of q, k, v",
        std::to_string(q.shape.size()) + ", " + std::to_string(k.shape.size()) + ", " + std::to_string(v.shape.size()),
        "one rank", "reshape to [B, H, S, D]");
  if (q.dtype == "float32") return run_typed<float>(phase, args, type, q, k, v);
  if (q.dtype == "float16") return run_typed<half>(phase, args, type, q, k, v);
  if (q.dtype == "bfloat16") return run_typed<bfloat16>(phase, args, type, q, k, v);
  refuse("type of q, k, v", q.dtype, "float32 or float16", "convert with astype(np.float32)");
}

}  // namespace flash
