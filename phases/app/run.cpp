// run.cpp: ./flash run, one phase, the one that is named or the fastest that can, on Q, K, V from .npy files and what
// else bears on a score; writes O, and LSE, gradients and a JSON report if asked.
// Everything is checked before anything is computed; files appear whole or not at all.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <sstream>

#include "phases/app/commands.hpp"
#include "phases/app/files.hpp"
#include "phases/app/options.hpp"
#include "phases/app/player.hpp"
#include "phases/app/problem_options.hpp"
#include "phases/app/run_backward.hpp"
#include "phases/definition/phase.hpp"
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

Options parse_options(const Arguments& args) {
  Options options;
  if (args.has("scale")) options.scale = args.number<float>("scale", 0);
  options.mask = parse_mask(args);
  options.softcap = args.number<float>("softcap", 0);
  options.dropout = {args.number<float>("dropout", 0), args.number<std::uint64_t>("seed", 0)};
  if (args.has("seed") && !args.has("dropout"))
    refuse("--seed", "given", "--dropout with it", "add --dropout P or omit it");
  options.block_q = args.number<std::int64_t>("block-q", 0);
  options.block_k = args.number<std::int64_t>("block-k", 0);
  options.sram_bytes = args.number<std::int64_t>("sram", options.sram_bytes);
  options.threads = args.number<int>("threads", 0);
  if (args.has("dout")) options.mode = backward_mode(args);
  options.ring = parse_ring(args);
  return options;
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

// What a problem asks for: the words of ./flash help.
std::string demands_of(const AnyProblem& p) {
  std::string out = "[";
  for (const DemandRow& row : demands::rows)
    if (row.asked(p)) out += (out.size() > 1 ? ", " : "") + json_string(row.word);
  return out + "]";
}

std::string report_json(const Phase& phase, const std::string& why, const Arguments& args, const AnyProblem& p,
                        const Run& run) {
  const auto shape = [](const AnyView& v) { return json_list({v.shape.begin(), v.shape.end()}); };
  // What the machine did not count is null, not 0.
  const auto count = [&](std::uint64_t n) { return run.counted ? std::to_string(n) : "null"; };
  const Ledger& l = run.ledger;
  std::ostringstream out;
  out << "{\n  \"phase\": " << json_string(phase.name) << ",\n  \"chosen\": " << json_string(why)
      << ",\n  \"machine\": " << json_string(args.text("machine", "sim"))
      << ",\n  \"type\": " << json_string(name(p.type)) << ",\n  \"shapes\": {\"q\": " << shape(p.q)
      << ", \"k\": " << shape(p.k) << ", \"v\": " << shape(p.v) << "},\n  \"options\": {\"scale\": " << p.scale()
      << ", \"causal\": " << json_string(args.text("causal", "none"))
      << ", \"window\": " << json_string(args.text("window", "none")) << ", \"softcap\": " << p.options.softcap
      << ", \"dropout\": " << p.options.dropout.p << ", \"asks\": " << demands_of(p)
      << ", \"block_q\": " << p.options.block_q << ", \"block_k\": " << p.options.block_k
      << ", \"sram\": " << p.options.sram_bytes << ", \"threads\": " << p.options.threads
      << "},\n  \"seconds\": " << run.milliseconds / 1e3 << ",\n  \"hbm_read_bytes\": " << count(l.hbm_read_bytes())
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
        << ", \"masked_left\": " << run.tiles.masked_left << ", \"masked_both\": " << run.tiles.masked_both
        << ", \"skipped\": " << run.tiles.skipped << ", \"skipped_left\": " << run.tiles.skipped_left << "}";
  out << "\n}\n";
  return out.str();
}

// `named`: the phase that was asked for; null: the fastest.
int run_phase(const Phase* named, const Arguments& args, Where where, const Options& options, ProblemFiles& files) {
  const bool training = args.has("dout");
  std::string why = "by --phase";
  if (!named) {
    const Choice choice =
        choose_phase(files.problem(training ? Direction::Backward : Direction::Forward, options), where);
    named = choice.phase, why = choice.why();
  }
  const Phase& phase = *named;
  require(phase.name, phase.forward->features, where);
  Recording recording;
  MachineOptions machine;
  if (args.has("player")) machine.recording = &recording;
  if (machine.recording && phase.kernel() && where != Where::Checked)
    refuse("--player", std::string("of machine ") + name(where), "one of machine checked, which sees each access",
           "add --machine checked");
  if (machine.recording && !phase.forward->features.records)
    refuse("--player", "given", std::string("none for phase ") + phase.name + ", which writes down no steps",
           "choose another phase: ./flash help");
  validate(files.problem(Direction::Forward, options), phase);
  if (training) validate(files.problem(Direction::Backward, options), phase);
  files.allocate();  // not before: a wrong shape may be a large one
  const AnyProblem p = files.problem(Direction::Forward, options);

  Run run;
  {
    const ProgressLine progress(isatty(STDERR_FILENO));
    const auto write_player = [&](Blocks blocks) {
      describe(recording, phase, p, blocks);
      write_file(args.text("player"), player_page({to_json(recording)}));
    };
    try {
      run = training ? run_training(phase, files, options, where, machine) : enter(phase, p, where, machine);
    } catch (const Error&) {
      if (!recording.finding.empty()) write_player({options.block_q, options.block_k});  // it plays up to there
      throw;
    }
    if (machine.recording) write_player(phase.kernel() ? run.blocks : Blocks{options.block_q, options.block_k});
  }
  files.write();
  if (args.has("report")) write_file(args.text("report"), report_json(phase, why, args, p, run));
  std::printf("phase %s%s on %s: %.3f s", phase.name,
              args.text("phase", "auto") == "auto" ? (" (" + why + ")").c_str() : "", name(where),
              run.milliseconds / 1e3);
  if (run.counted)
    std::printf(", HBM %s bytes read, %s written", grouped(run.ledger.hbm_read_bytes()).c_str(),
                grouped(run.ledger.hbm_written_bytes()).c_str());
  std::printf(" -> %s%s\n", args.text("o").c_str(),
              run.counted || !phase.kernel() ? "" : "   (--machine checked counts bytes)");
  return 0;
}

}  // namespace

int run_command(const std::vector<std::string>& words) {
  const std::vector<std::string> arrays = file_flags();
  std::set<std::string> flags = {"phase", "causal",  "window",  "align",   "scale", "softcap", "dropout",
                                 "seed",  "machine", "block-q", "block-k", "sram",  "threads", "report",
                                 "mode",  "type",    "o-type",  "player",  "ranks", "layout"};
  flags.insert(arrays.begin(), arrays.end());
  const Arguments args(words, flags);
  if (!args.positional.empty())
    refuse("argument", "'" + args.positional[0] + "'", "--flag value", "see ./flash run --help");
  const std::string wanted = args.text("phase", "auto");
  const Phase* phase = wanted == "auto"                   ? nullptr
                       : wanted == definition::phase.name ? &definition::phase
                                                          : &find_phase(wanted);
  const Where where = parse_machine(args.text("machine", "sim"));
  if (phase) require(phase->name, phase->forward->features, where);
  for (const char* name : {"q", "k", "v", "o"}) args.required(name);
  check_backward(args, phase);
  std::vector<std::string> outputs = output_flags(), all = arrays;
  for (const char* page : {"report", "player"}) outputs.push_back(page), all.push_back(page);
  for (const std::string& name : outputs) {
    check_writable(name, args.text(name));
    for (const std::string& other : all)
      if (name != other && args.has(name) && args.has(other) && same_file(args.text(name), args.text(other)))
        refuse("--" + name, args.text(name), "a file other than --" + other, "choose another output path");
  }

  if (args.has("type") && args.text("type") != "bf16")
    refuse("--type", "'" + args.text("type") + "'", "bf16", "omit it for float16 and float32, which the files name");
  if (args.has("o-type") && args.text("o-type") != "float32")
    refuse("--o-type", "'" + args.text("o-type") + "'", "float32", "omit it for the type of Q");
  const Options options = parse_options(args);
  ProblemFiles files(args, args.has("type") ? NpyType::Bfloat16 : NpyType::Named, args.has("o-type"));
  return run_phase(phase, args, where, options, files);
}

}  // namespace flash
