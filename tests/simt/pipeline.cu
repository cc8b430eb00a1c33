// pipeline.cu: launches the attention kernel of pipeline.cuh.
// Run: simt_pipeline_test, which compares it with an exact result under every schedule.
#include "gpu/hopper.cuh"
#include "tests/simt/pipeline.cuh"
#include "tests/simt/pipeline.hpp"

namespace flash::inline FLASH_MACHINE {

Attended attend(const std::vector<std::uint16_t>& q, const std::vector<std::uint16_t>& k,
                const std::vector<std::uint16_t>& v, const MachineOptions& options) {
  Machine m(options);
  Attended result;
  result.o.resize(q.size());
  const auto upload = [&](const char* name, const std::vector<std::uint16_t>& of) {
    return m.upload(name, of.data(), of.size());
  };
  const Array<std::uint16_t> on_q = upload("q", q), on_k = upload("k", k), on_v = upload("v", v), o = upload("o", q);
  const auto map = [](const Array<std::uint16_t>& of, std::size_t elements) {
    return tensor_map<__half, 2>(reinterpret_cast<const __half*>(of.data()), {64, elements / 64}, {128}, {64, 64});
  };
  const auto blocks = static_cast<unsigned>((q.size() / 64 + 127) / 128);
  launch<Pipeline>(m, attention, dim3(blocks), dim3(384), map(on_q, q.size()), map(on_k, k.size()), map(on_v, v.size()),
                   map(o, q.size()), static_cast<int>(k.size() / 64));
  m.download(result.o.data(), o);
  result.findings = m.findings(), result.ledger = m.reports().back().ledger;
  return result;
}

}  // namespace flash::inline FLASH_MACHINE
