// promises_parts.cpp: what the promises of all phases are made of (promises.hpp), without a test case: which cases a
// phase can be tried on, tensors far apart, what a machine that is not there says.
// Use: part of flash_contract.
#include <sys/mman.h>

#include "tests/promises.hpp"
#include "tests/skip.hpp"

namespace flash::test {

Domain restrict_to(Domain domain, const Features& can) {
  if (!can.meets(Demand::Causal)) domain.causals = {Mask::none()};
  std::erase_if(domain.dims, [&](std::int64_t D) { return D > can.largest_D(); });
  for (std::int64_t& D : domain.dims) D = next_D(D, can);
  domain.granule = granule(can);
  if (can.kernel) {
    domain.blocks = {{0, 0}};
    for (const Blocks& blocks : can.blocks) domain.blocks.push_back({blocks.Br, blocks.Bc});
  }
  return domain;
}

Domain checked_domain(const Features& can) {
  Domain domain;
  domain.batch_heads = {{1, 2}, {2, 1}};
  domain.lengths = {{1, 1}, {1, 97}, {97, 1}, {17, 53}, {70, 40}, {33, 200}, {65, 65}};
  domain.dims = {16, 33, 40};
  domain.inputs = {Input::Normal, Input::Rising, Input::LowEqual};
  domain = restrict_to(domain, can);
  domain.dims.erase(std::unique(domain.dims.begin(), domain.dims.end()), domain.dims.end());
  if (can.kernel)  // not those of larger head dimensions alone
    std::erase_if(domain.blocks, [&](const auto& blocks) {
      return blocks.first > 0 && !can.has(can.padded(40), {blocks.first, blocks.second});
    });
  return domain;
}

std::string text(const std::vector<Blocks>& list) {
  std::string out;
  for (const Blocks& blocks : list)
    out += (out.empty() ? "" : ", ") + std::to_string(blocks.Br) + "x" + std::to_string(blocks.Bc);
  return out;
}

FarApart::~FarApart() {
  for (const auto& [map, bytes] : maps_) munmap(map, bytes);
}

void* FarApart::reserve(std::size_t bytes) {
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(map != MAP_FAILED);
  maps_.emplace_back(map, bytes);
  return map;
}

bool skipped_without(const Features& can, Where where) {
  if (available(can, where)) return false;
  if (where == Where::Gpu)
    skip("no GPU that can run this phase");
  else
    skip("no checked machine in a build with sanitizers");
  return true;
}

}  // namespace flash::test
