// sectors.cpp: flash-sectors, the checked simulator's counters of the kernel phases beside Nsight Compute's, as JSON.
// `launch` runs the cases on the GPU, for ncu_phases.sh to profile; `join` runs them on the checked simulator, writes
// both counts; without a GPU, `print` shows ours. CASE: 07:1,2,500,300,64,causal,float16 (B,H,Sq,Sk,D), or a list; from
// phase 25 on 25:1,4/2,… for H/Hk, and window, lengths, bias or dropout in place of the mask.
// flash-sectors print|launch|join NCU.csv [CASE…]
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <optional>

#include "phases/arrays/random.hpp"
#include "tests/bench/results.hpp"

namespace {

using namespace flash;
using namespace flash::bench;

struct Setting {
  std::string phase;  // "07"
  std::int64_t B, H, Sq, Sk, D;
  std::string asked;  // what is asked for: full, causal, …
  std::string type;
  std::int64_t Hk = H;
};

// Rows see 256 keys; a fifth of the rows and of the keys is not there.
constexpr const char* features[] = {"full", "causal", "window", "lengths", "bias", "dropout"};
constexpr std::int64_t window = 256;
std::int64_t shortened(std::int64_t length) {
  return length - length / 5;
}

Setting parse(const std::string& word) {
  std::istringstream in(word);
  Setting s{};
  char comma[5] = {}, slash = '/';
  std::getline(in, s.phase, ':');
  in >> s.B >> comma[0] >> s.H;
  s.Hk = s.H;
  if (in.peek() == '/') in >> slash >> s.Hk;
  in >> comma[1] >> s.Sq >> comma[2] >> s.Sk >> comma[3] >> s.D >> comma[4];
  std::getline(in, s.asked, ',');
  std::getline(in, s.type);
  const bool known = std::find(std::begin(features), std::end(features), s.asked) != std::end(features) &&
                     (s.type == "float16" || s.type == "float32");
  if (!in || !known || std::string(comma, 5) != ",,,,,")
    refuse("case", "'" + word + "'", "such as 07:1,2,500,300,64,causal,float16", "correct it");
  return s;
}

// Even and ragged, both types, another D, of tensor cores a larger one; the mask where the phase has one. Of a phase
// that gives a feature to earlier kernels, the feature.
std::vector<Setting> shapes() {
  std::vector<Setting> all;
  for (const Phase* kernel : kernels()) {
    if (kernel == &naive::phase) continue;
    const std::string phase = std::string(kernel->name, std::strchr(kernel->name, '-'));
    const Features& can = kernel->forward->features;
    if (can.meets(Demand::FewerHeads)) {
      const char* feature = can.meets(Demand::Dropout)   ? "dropout"
                            : can.meets(Demand::Bias)    ? "bias"
                            : can.meets(Demand::Lengths) ? "lengths"
                            : can.meets(Demand::Window)  ? "window"
                                                         : "full";
      all.push_back({phase, 1, 4, 1024, 1024, 128, feature, "float16", 2});
      all.push_back({phase, 1, 4, 500, 300, 64, feature, "float16", 1});
      continue;
    }
    all.push_back({phase, 1, 2, 512, 512, 64, "full", "float16"});
    all.push_back({phase, 1, 2, 500, 300, 64, "full", "float16"});
    if (can.types.contains(Type::Float32)) all.push_back({phase, 1, 2, 512, 512, 64, "full", "float32"});
    all.push_back({phase, 1, 2, 256, 256, 128, "full", "float16"});
    if (can.tensor_cores) all.push_back({phase, 1, 2, 2048, 2048, 128, "full", "float16"});
    if (can.tensor_cores && can.head_dims.contains(256)) all.push_back({phase, 1, 2, 512, 512, 256, "full", "float16"});
    if (!can.meets(Demand::Causal)) continue;
    all.push_back({phase, 1, 2, 512, 512, 64, "causal", "float16"});
    all.push_back({phase, 1, 2, 500, 300, 64, "causal", "float16"});
  }
  return all;
}

std::string text(const Setting& s) {
  std::ostringstream out;
  out << s.phase << " B" << s.B << " H" << s.H;
  if (s.Hk != s.H) out << " Hk" << s.Hk;
  out << " Sq" << s.Sq << " Sk" << s.Sk << " D" << s.D << " " << s.asked << " " << s.type;
  return out.str();
}

template <class T>
Run run(const Setting& s, Where where) {
  const std::array<std::int64_t, 4> rows{s.B, s.H, s.Sq, s.D}, keys{s.B, s.Hk, s.Sk, s.D};
  const auto filled = [](const std::array<std::int64_t, 4>& shape, std::uint32_t stream) {
    std::vector<T> x(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = from_float<T>(Random(2026, stream).normal(i));
    return x;
  };
  const std::vector<T> q = filled(rows, 0), k = filled(keys, 1), v = filled(keys, 2);
  std::vector<T> o(q.size());
  std::vector<float> lse(static_cast<std::size_t>(s.B * s.H * s.Sq));
  Problem<T> typed;
  typed.q = dense_view(q.data(), rows), typed.k = dense_view(k.data(), keys), typed.v = dense_view(v.data(), keys);
  typed.o = dense_view(o.data(), rows);
  const Phase& phase = find_phase(s.phase);
  if (phase.forward->features.meets(Demand::Lse)) typed.lse = lse.data();
  AnyProblem p = typed;
  std::vector<std::int32_t> rows_of, keys_of;
  std::vector<T> bias;
  if (s.asked == "causal") p.options.mask = Mask::top_left();
  if (s.asked == "window") p.options.mask = {window - 1, 0, Alignment::TopLeft};
  if (s.asked == "dropout") p.options.dropout = {0.25f, 2026};
  if (s.asked == "lengths") {
    const auto all_of = [&](std::int64_t length) {
      return std::vector(static_cast<std::size_t>(s.B), static_cast<std::int32_t>(shortened(length)));
    };
    rows_of = all_of(s.Sq), keys_of = all_of(s.Sk);
    p.rows_of = any_of(dense_view(rows_of.data(), {1, 1, s.B, 1}));
    p.keys_of = any_of(dense_view(keys_of.data(), {1, 1, s.B, 1}));
  }
  if (s.asked == "bias") {
    bias = filled({1, s.H, s.Sq, s.Sk}, 3);
    p.bias = any_of(dense_view(bias.data(), {1, s.H, s.Sq, s.Sk}));
  }
  return enter(phase, p, where);
}

Run run(const Setting& s, Where where) {
  return s.type == "float16" ? run<half>(s, where) : run<float>(s, where);
}

// One counter: its name in the table, ours (if we have it) and Nsight Compute's (if it has it), which are added up.
struct Counter {
  const char* name;
  std::function<std::optional<std::uint64_t>(const Ledger&)> ours;
  std::vector<std::string> metrics;
};

// A warp's request moves 512 bytes at most; where there are more to each, TMA copied boxes.
bool by_tma(std::uint64_t bytes, std::uint64_t requests) {
  return bytes > 512 * requests;
}

// Of loads or stores of warps. The counter of phases 17 to 19 is drawn from by atomics, which Nsight Compute counts
// elsewhere: each reads and writes once. What is stored to it beside them counts.
std::uint64_t loads(const Ledger& ledger, std::uint64_t ArrayTraffic::*field) {
  std::uint64_t total = 0;
  for (const ArrayTraffic& array : ledger.arrays)
    if (array.name != "counter" && !by_tma(array.read_bytes, array.read_requests)) total += array.*field;
  return total;
}
std::uint64_t stores(const Ledger& ledger, std::uint64_t ArrayTraffic::*field, std::uint64_t ArrayTraffic::*drawn) {
  std::uint64_t total = 0;
  for (const ArrayTraffic& array : ledger.arrays)
    if (!by_tma(array.written_bytes, array.write_requests))
      total += array.*field - (array.name == "counter" ? array.*drawn : 0);
  return total;
}

bool multiplies_by_warpgroups(const Ledger& ledger) {
  return ledger.wgmma_shared_bytes > 0;
}

const std::vector<Counter>& counters() {
  static const std::vector<Counter> all = {
      {"global load requests",
       [](const Ledger& l) { return loads(l, &ArrayTraffic::read_requests); },
       {"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"}},
      {"global load sectors",
       [](const Ledger& l) { return loads(l, &ArrayTraffic::read_sectors); },
       {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"}},
      {"global store requests",
       [](const Ledger& l) { return stores(l, &ArrayTraffic::write_requests, &ArrayTraffic::read_requests); },
       {"l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"}},
      {"global store sectors",
       [](const Ledger& l) { return stores(l, &ArrayTraffic::write_sectors, &ArrayTraffic::read_sectors); },
       {"l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"}},
      {"shared wavefronts",
       [](const Ledger& l) { return l.shared_wavefronts; },
       {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"}},
      {"shared bank conflicts",
       [](const Ledger& l) { return l.bank_conflicts(); },
       {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"}},
      {"mma instructions",
       [](const Ledger& l) {
         return multiplies_by_warpgroups(l) ? std::nullopt : std::optional(l.tensor_flops / (2 * 16 * 8 * 16));
       },
       {"sm__inst_executed_pipe_tensor_op_hmma.sum"}},
      // Nsight Compute counts whole boxes, with the zeros for what is outside of the tensor; the simulator does not.
      {"TMA bytes read",
       [](const Ledger& l) {
         std::uint64_t bytes = 0;
         for (const ArrayTraffic& a : l.arrays) bytes += by_tma(a.read_bytes, a.read_requests) ? a.read_bytes : 0;
         return bytes;
       },
       {"l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"}},
      {"TMA bytes written",
       [](const Ledger& l) {
         std::uint64_t bytes = 0;
         for (const ArrayTraffic& a : l.arrays)
           bytes += by_tma(a.written_bytes, a.write_requests) ? a.written_bytes : 0;
         return bytes;
       },
       {"l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum"}},
      {"wgmma FLOP",
       [](const Ledger& l) { return multiplies_by_warpgroups(l) ? l.tensor_flops : 0; },
       {"sm__ops_path_tensor_op_hgmma_src_fp16.sum"}},
      {"wgmma shared bytes",
       [](const Ledger& l) { return l.wgmma_shared_bytes; },
       {"sm__sass_data_bytes_mem_shared_op_gmma.sum"}},
      // What Nsight Compute knows of cp.async alone; the simulator counts it among the loads.
      {"cp.async requests", nullptr, {"sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts.sum"}},
      {"cp.async wavefronts", nullptr, {"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum"}},
      {"bytes requested", [](const Ledger& l) { return l.hbm_bytes(); }, {}},
      {"bytes from and to DRAM", nullptr, {"dram__bytes_read.sum", "dram__bytes_write.sum"}},
  };
  return all;
}

// The launches in Nsight Compute's CSV (--csv --print-units base), each a map from metric to value.
std::vector<std::map<std::string, double>> read_ncu(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> head;
  std::vector<std::map<std::string, double>> launches;
  std::string last_id;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] != '"') continue;  // what ncu and the program say
    std::vector<std::string> cells;
    bool inside = false;
    for (const char c : line) {
      if (c == '"') {
        inside = !inside;
        if (inside) cells.emplace_back();
      } else if (inside) {
        cells.back() += c;
      }
    }
    if (head.empty()) {
      head = cells;
      continue;
    }
    const auto cell = [&](const std::string& name) {
      const auto at = std::find(head.begin(), head.end(), name);
      if (at == head.end() || cells.size() != head.size()) throw Error(path + ": no column '" + name + "' in: " + line);
      return cells[static_cast<std::size_t>(at - head.begin())];
    };
    if (cell("ID") != last_id) {
      last_id = cell("ID");
      launches.emplace_back();
    }
    std::string value = cell("Metric Value");
    std::erase(value, ',');
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (end != value.c_str()) launches.back()[cell("Metric Name")] = number;  // else "n/a": not known
  }
  if (launches.empty()) throw Error(path + ": no launches; expected ncu's CSV");
  return launches;
}

void print(const std::vector<Setting>& list) {
  for (const Setting& shape : list) {
    const Ledger ledger = run(shape, Where::Checked).ledger;
    std::cout << text(shape) << "\n";
    for (const Counter& counter : counters())
      if (const auto ours = counter.ours ? counter.ours(ledger) : std::nullopt)
        std::cout << "  " << counter.name << " " << *ours << "\n";
  }
}

void join(const std::vector<Setting>& list, const std::string& path) {
  const std::vector<std::map<std::string, double>> launches = read_ncu(path);
  std::vector<std::string> rows;
  std::size_t at = 0;
  for (const Setting& shape : list) {
    const Run ours = run(shape, Where::Checked);
    const std::size_t end = at + ours.kernels.size();
    if (end > launches.size()) throw Error(path + ": fewer launches than the cases have");
    for (const Counter& counter : counters()) {
      double theirs = 0;
      bool known = !counter.metrics.empty();
      for (const std::string& metric : counter.metrics)
        for (std::size_t i = at; i < end; ++i) {
          const auto found = launches[i].find(metric);
          known = known && found != launches[i].end();
          if (known) theirs += found->second;
        }
      std::ostringstream row;
      row.precision(15);
      row << "{\"case\": " << json_string(text(shape)) << ", \"counter\": " << json_string(counter.name)
          << ", \"simulator\": ";
      if (const auto value = counter.ours ? counter.ours(ours.ledger) : std::nullopt)
        row << *value;
      else
        row << "null";
      row << ", \"gpu\": ";
      if (known)
        row << theirs;
      else
        row << "null";
      rows.push_back(row.str() + "}");
    }
    at = end;
  }
  if (at != launches.size()) throw Error(path + ": more launches than the cases have");
  std::cout << results_text(environment(), rows);
}

}  // namespace

int main(int count, char** words) try {
  const std::string mode = count > 1 ? words[1] : "";
  int first = 2;
  if (mode == "join" && count < 3) refuse("file", "missing", "Nsight Compute's CSV", "flash-sectors join ncu.csv");
  if (mode == "join") first = 3;
  std::vector<Setting> list;
  for (int i = first; i < count; ++i) list.push_back(parse(words[i]));
  if (list.empty()) list = shapes();
  if (mode == "print") {
    print(list);
  } else if (mode == "launch") {
    for (const Setting& shape : list) run(shape, Where::Gpu);
  } else if (mode == "join") {
    join(list, words[2]);
  } else {
    refuse("mode", "'" + mode + "'", "print, launch or join", "pass one");
  }
} catch (const flash::Error& e) {
  std::fprintf(stderr, "flash-sectors: %s\n", e.what());
  return 2;
}
