// report.cpp: see report.hpp. Names of the hardware's metrics stand beside ours where there is one.
// Two byte counts, never mixed: requested bytes (what the lanes asked for) and sectors (32 bytes each, no cache).
// Use: see report.hpp.
#include "sim/report/report.hpp"

#include <iomanip>
#include <map>
#include <ostream>
#include <sstream>

#include "sim/report/json.hpp"

namespace flash {
namespace {

std::string shape(const std::array<unsigned, 3>& s) {
  return "(" + std::to_string(s[0]) + "," + std::to_string(s[1]) + "," + std::to_string(s[2]) + ")";
}

double ratio(std::uint64_t a, std::uint64_t b) {
  return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
}

// Arrays of one name, x, x#2, x#3 …, as one where more than four were used.
std::vector<ArrayTraffic> folded(const std::vector<ArrayTraffic>& arrays) {
  const auto stem = [](const ArrayTraffic& a) { return a.name.substr(0, a.name.find('#')); };
  std::map<std::string, int> used;
  for (const ArrayTraffic& a : arrays) used[stem(a)] += a.read_requests + a.write_requests + a.reduce_requests > 0;
  Ledger result;
  for (const ArrayTraffic& a : arrays) {
    const int count = used[stem(a)];
    if (count <= 4) {
      result.arrays.push_back(a);
      continue;
    }
    Ledger one;
    one.arrays = {a};
    one.arrays[0].name = stem(a) + " (" + std::to_string(count) + " arrays)";
    result.add(one);
  }
  return result.arrays;
}

std::string list(const std::array<unsigned, 3>& s) {
  return "[" + std::to_string(s[0]) + ", " + std::to_string(s[1]) + ", " + std::to_string(s[2]) + "]";
}

}  // namespace

void print_report(std::ostream& out, const KernelReport& report) {
  const Ledger& l = report.ledger;
  std::ostringstream text;
  text << std::fixed << std::setprecision(2);
  text << report.kernel << "  grid " << shape(report.grid) << "  block " << shape(report.block) << "\n";
  if (report.checked_blocks)
    text << "  a sample: " << report.checked_blocks
         << " blocks were checked, and their loads and stores counted; races "
         << "with other blocks are not seen\n";
  text << "  " << std::left << std::setw(20) << "global memory" << std::right << std::setw(8) << "" << std::setw(16)
       << "requested bytes" << std::setw(12) << "requests" << std::setw(12) << "sectors" << std::setw(13)
       << "sectors/req"
       << "\n";
  const auto row = [&](const std::string& name, const char* op, std::uint64_t bytes, std::uint64_t requests,
                       std::uint64_t sectors) {
    if (requests == 0) return;
    text << "  " << std::left << std::setw(20) << name << std::setw(8) << op << std::right << std::setw(16) << bytes
         << std::setw(12) << requests << std::setw(12) << sectors << std::setw(13) << ratio(sectors, requests) << "\n";
  };
  for (const ArrayTraffic& a : folded(l.arrays)) {
    row(a.name, "load", a.read_bytes, a.read_requests, a.read_sectors);
    row(a.name, "store", a.written_bytes, a.write_requests, a.write_sectors);
    row(a.name, "reduce", a.reduced_bytes, a.reduce_requests, a.reduce_sectors);
  }
  const auto value = [&](const char* name, std::uint64_t number, const char* metric) {
    text << "  " << std::left << std::setw(28) << name << std::right << std::setw(16) << number << "  " << metric
         << "\n";
  };
  value("shared load requests", l.shared_read_requests, "smsp__inst_executed_op_shared_ld");
  value("shared store requests", l.shared_write_requests, "smsp__inst_executed_op_shared_st");
  value("shared wavefronts", l.shared_wavefronts, "l1tex__data_pipe_lsu_wavefronts_mem_shared");
  value("bank conflicts", l.bank_conflicts(), "l1tex__data_bank_conflicts_pipe_lsu_mem_shared");
  if (l.cluster_read_bytes) value("bytes from cluster's blocks", l.cluster_read_bytes, "");
  if (l.cluster_written_bytes) value("bytes to cluster's blocks", l.cluster_written_bytes, "");
  if (l.wgmma_shared_bytes) value("shared bytes read by wgmma", l.wgmma_shared_bytes, "");
  value("shared memory per block", l.shared_bytes_peak, "launch__shared_mem_per_block");
  value("barriers of all blocks", l.barriers, "");
  if (l.async_bytes_peak) value("bytes in flight per block", l.async_bytes_peak, "");
  value("FLOP", l.flops, "");
  if (l.tensor_flops) value("tensor FLOP", l.tensor_flops, "");
  value("exp calls", l.exps, "");
  for (const UnorderedAdditions& u : report.unordered)
    value("additions in no fixed order", u.elements,
          ("elements of " + u.array + ", " + u.first + (u.first == u.second ? "" : " and " + u.second)).c_str());
  out << text.str();
}

std::string to_json(const std::vector<KernelReport>& reports) {
  std::ostringstream out;
  out << "[";
  const char* separator = "\n";
  for (const KernelReport& r : reports) {
    const Ledger& l = r.ledger;
    out << separator << "  {\"kernel\": " << json_string(r.kernel) << ", \"grid\": " << list(r.grid)
        << ", \"block\": " << list(r.block);
    if (r.checked_blocks) out << ", \"checked_blocks\": " << r.checked_blocks;
    out << ",\n   \"flops\": " << l.flops << ", \"tensor_flops\": " << l.tensor_flops << ", \"exps\": " << l.exps
        << ", \"barriers\": " << l.barriers << ", \"shared_bytes_peak\": " << l.shared_bytes_peak
        << ", \"async_bytes_peak\": " << l.async_bytes_peak
        << ",\n   \"shared_read_requests\": " << l.shared_read_requests
        << ", \"shared_write_requests\": " << l.shared_write_requests
        << ", \"shared_wavefronts\": " << l.shared_wavefronts << ", \"bank_conflicts\": " << l.bank_conflicts()
        << ", \"wgmma_shared_bytes\": " << l.wgmma_shared_bytes;
    if (l.cluster_read_bytes + l.cluster_written_bytes > 0)
      out << ", \"cluster_read_bytes\": " << l.cluster_read_bytes
          << ", \"cluster_written_bytes\": " << l.cluster_written_bytes;
    out << ",\n   \"arrays\": [";
    const char* comma = "";
    for (const ArrayTraffic& a : l.arrays) {
      out << comma << "\n    {\"name\": " << json_string(a.name) << ", \"read_bytes\": " << a.read_bytes
          << ", \"read_requests\": " << a.read_requests << ", \"read_sectors\": " << a.read_sectors
          << ", \"written_bytes\": " << a.written_bytes << ", \"write_requests\": " << a.write_requests
          << ", \"write_sectors\": " << a.write_sectors;
      if (a.reduce_requests)
        out << ", \"reduced_bytes\": " << a.reduced_bytes << ", \"reduce_requests\": " << a.reduce_requests
            << ", \"reduce_sectors\": " << a.reduce_sectors;
      out << "}";
      comma = ",";
    }
    out << "]";
    comma = ",\n   \"unordered_additions\": [";
    for (const UnorderedAdditions& u : r.unordered) {
      out << comma << "\n    {\"name\": " << json_string(u.array) << ", \"elements\": " << u.elements
          << ", \"first\": " << json_string(u.first) << ", \"second\": " << json_string(u.second) << "}";
      comma = ",";
    }
    out << (r.unordered.empty() ? "}" : "]}");
    separator = ",\n";
  }
  out << "\n]\n";
  return out.str();
}

}  // namespace flash
