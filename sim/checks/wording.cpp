// wording.cpp: what is said when something is wrong with an access: which two, of what, and what to do about it.
// Findings of one check alone are worded where that check is.
// Use: see checker.hpp.
#include <cstring>
#include <string>
#include <utility>

#include "sim/checks/accesses.hpp"
#include "sim/checks/checker.hpp"
#include "sim/checks/keys.hpp"
#include "sim/core/code_names.hpp"
#include "sim/core/copies.hpp"
#include "sim/core/outside.hpp"

namespace flash::simt {
namespace {

// The struct that the running kernel takes its shared memory for.
std::string shared_name(const Worker& worker) {
  return worker.shared_struct ? type_name(worker.shared_struct) : "memory";
}

// "float4" for "'const struct float4'".
std::string plain_type(std::string name) {
  for (const char* word : {"'", "const ", "volatile ", "struct "})
    for (std::size_t at; (at = name.find(word)) != std::string::npos;) name.erase(at, std::strlen(word));
  return as_written(name);
}

}  // namespace

const char* name_of(Access access) {
  if (is_atomic(access)) return "atomic";
  if (is_volatile(access)) return is_write(access) ? "volatile write" : "volatile read";
  return is_write(access) ? "write" : "read";
}

// What made the access: an instruction that copies, or the kind of access.
const char* Checker::named(Epoch epoch, Access access_) const {
  if (const char* const instruction = async_site(site_index_of(epoch)).instruction) return instruction;
  return is_of_copy(epoch) ? "cp.async" : name_of(access_);
}

AsyncSite Checker::async_site(unsigned site) const {
  if (const auto own = async_sites_.find(site); own != async_sites_.end()) return own->second;
  const std::lock_guard lock(global_.mutex);
  const auto others = global_.async_sites.find(site);
  return others == global_.async_sites.end() ? AsyncSite{} : others->second;
}

std::string Checker::element(const void* address, std::size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(address);
  if (worker_.cluster && worker_.cluster->nearest_owner(address)) return worker_.place(address);
  if (layout_ ? static_cast<std::size_t>(at - worker_.shared) < worker_.shared_bytes
              : static_cast<std::size_t>(at - (worker_.shared - kSharedBefore)) < kSharedRegion)
    return worker_.place(address);
  const DeviceArray& array = global_.memory.arrays[global_.memory.owner(address)];
  return array.name + "[" + std::to_string(array.index(at, bytes)) + "]";
}

FindingSide Checker::side(const char* what, Epoch epoch, unsigned block) const {
  FindingSide side{what, nullptr, {}, true, block, thread_of(epoch) % kCompanion};
  const std::uintptr_t key = global_.site_key(site_index_of(epoch));
  if (key & kSourceLocation)
    side.site = site_at(key);
  else
    side.pc = reinterpret_cast<const void*>(key & kAddressBits);
  return side;
}

void Checker::race(const Wrong& wrong, Access access_, Epoch mine, const void* address, std::size_t bytes) {
  const Outside outside;
  const bool copied = is_of_copy(wrong.earlier);
  const char* const before = named(wrong.earlier, wrong.before);
  const char* const now = named(mine, access_);
  const bool of_launch = !global_.memory.contains(address) || wrong.earlier >= global_.own_begin;
  const std::uintptr_t kinds = static_cast<std::uintptr_t>(wrong.before) << 8 | static_cast<std::uintptr_t>(access_) |
                               std::uintptr_t{of_launch} << 16;
  const std::uintptr_t sites = std::uintptr_t{site_index_of(mine)} << 16 | site_index_of(wrong.earlier);
  RawFinding* finding = worker_.findings.repeated("race", sites, kinds, worker_.block);
  if (!finding || wrong.distance > finding->distance) {
    FindingSide later_side = side(now, mine), earlier_side = side(before, wrong.earlier);
    if (global_.memory.contains(address) || worker_.cluster)
      earlier_side.block = global_.block_of(clock_of(wrong.earlier));
    if (!of_launch) {
      earlier_side.grid = global_.grid_of(clock_of(wrong.earlier));
      earlier_side.what += " of an earlier launch";
    }
    const bool flag = asked_ && (is_plain(wrong.before) || is_of_companion(wrong.earlier)) && is_plain(access_);
    RawFinding found{
        "race",
        std::string(now) + " after " + before + " of " + element(address, bytes) + " (" + counted(bytes) + ")",
        !of_launch
            ? "the launches are in streams without order: record an event behind the earlier one and let the later "
              "one's stream wait for it (cudaStreamWaitEvent), or wait for its stream"
        : is_of_companion(wrong.earlier) && wrong.distance < 3
            ? std::string(async_site(site_index_of(wrong.earlier)).remedy) + " before this " + now
        : is_of_companion(mine) && wrong.distance < 3 ? "put __syncthreads() or an mbarrier between the two; a "
                                                        "lane that arrives for its warp needs __syncwarp() first"
        : copied && wrong.distance < 3
            ? std::string("put ") + (wrong.distance == 1 ? "__syncwarp()" : "__syncthreads()") +
                  " between the copying thread's cp_async_wait and this " + (is_of_copy(mine) ? "copy" : now)
        : wrong.distance == 1 ? "put __syncwarp() between the two"
        : is_in_cluster(earlier_side.block) && wrong.distance == 3
            ? std::string("put a barrier of the cluster between the two; or mbarrier_arrive_cluster there, "
                          "mbarrier_wait_cluster here")
        : wrong.distance == 2 ? std::string("put __syncthreads() between the two") +
                                    (flag ? "; with a flag: __threadfence() before it is set and after it is read" : "")
        : flag && known_as(wrong.earlier) & kInOrder
            ? "a flag needs cp_async_bulk_wait (not _read) and __threadfence() before it is set, __threadfence() after"
        : flag ? "if a flag orders the blocks: __threadfence() before it is set and after it is read; else split the "
                 "kernel"
               : "blocks are unordered: give each block its own elements, use an atomic, or split the kernel",
        {std::move(later_side), std::move(earlier_side)},
        worker_.block};
    found.distance = wrong.distance;
    found.same_value =
        finding ? finding->same_value : wrong.before == Access::write && access_ == Access::write && copy_.bytes == 0;
    if (finding) found.count = finding->count;
    finding = finding ? &(*finding = std::move(found)) : &worker_.findings.add(std::move(found));
  }
  if (!finding->same_value) return;
  forget_settled();
  stored_ = {finding, address, bytes, {}, false};
  std::memcpy(stored_.before.data(), address, bytes);
}

// The store that hooks announced has been made since.
void Checker::see_what_was_stored() {
  if (RawFinding* const finding = std::exchange(stored_.finding, nullptr))
    finding->same_value &= std::memcmp(stored_.before.data(), stored_.address, stored_.bytes) == 0;
}

void Checker::assumes_lockstep(Epoch earlier, Access before, Access access_, Epoch mine, const void* address,
                               std::size_t bytes) {
  const Outside outside;
  if (worker_.findings.repeated("lockstep assumed", site_index_of(mine), site_index_of(earlier), worker_.block)) return;
  worker_.findings.add({"lockstep assumed",
                        std::string(name_of(access_)) + " after " + name_of(before) + " of " + element(address, bytes) +
                            " (" + std::to_string(bytes) + " bytes)",
                        "put __syncwarp() between the two: lanes need not run in step",
                        {side(name_of(access_), mine), side(name_of(before), earlier)},
                        worker_.block});
}

void Checker::disturbs_copy(const Copy& copy, Access access_, Epoch mine, const void* address, std::size_t bytes) {
  const Outside outside;
  const std::uintptr_t sites = std::uintptr_t{site_index_of(mine)} << 32 | copy.site.line();
  if (worker_.findings.repeated("asynchronous copy", sites, copy.site.column(), worker_.block)) return;
  const bool of_source = global_.memory.contains(address);
  const char* const now = named(mine, access_);
  std::string remedy;
  if (is_of_copy(mine))
    remedy = "copy to another place, or let the other copy's thread wait for it first (cp_async_wait)";
  else if (!home_->worker_.copies.is_committed(copy))
    remedy = "commit the copy's group (cp_async_commit) before the wait";
  else if (copy.left > 0)
    remedy =
        "wait for the copy's group, too: the last cp_async_wait<" + std::to_string(copy.left) + "> left it under way";
  else if (copy.thread == thread_of(mine) && home_ == this)
    remedy = std::string("let the thread wait for its copy (cp_async_wait) before this ") + now;
  else
    remedy = "let the copying thread wait for its copy (cp_async_wait), then __syncthreads()";
  worker_.findings.add({"asynchronous copy",
                        std::string(now) + " of " + element(address, bytes) + " (" + counted(bytes) + ") while " +
                            (is_of_copy(mine) ? "another " : "cp.async ") + (of_source ? "reads it" : "writes it"),
                        remedy,
                        {side(now, mine), {"cp.async", nullptr, copy.site, true, home_->worker_.block, copy.thread}},
                        worker_.block});
}

void Checker::misaligned(const void* address, const char* type, unsigned alignment, std::uintptr_t key) {
  const auto* at = static_cast<const std::byte*>(address);
  const auto in_shared = static_cast<std::size_t>(at - shared_);
  if (in_shared >= shared_bytes_ && !global_.memory.contains(address)) return;
  active_worker = nullptr;
  std::string where = "byte " + std::to_string(in_shared) + " of shared " + shared_name(worker_);
  if (global_.memory.contains(address)) {
    const std::size_t owner = global_.memory.owner(address);
    if (owner >= global_.memory.arrays.size()) bad_address(address, 1, Access::read, key);
    const DeviceArray& array = global_.memory.arrays[owner];
    where = "byte " + std::to_string(at - array.begin) + " of " + array.name;
  }
  worker_.findings.add({"misaligned",
                        "use of " + plain_type(type) + " at " + where,
                        "its type needs an address that is a multiple of " + std::to_string(alignment),
                        {side("uses", running_ | Epoch{site(key)} << kThreadBits)},
                        worker_.block});
  worker_.stop_block();
}

void Checker::bad_address(const void* address, std::size_t bytes, Access access_, std::uintptr_t key) {
  active_worker = nullptr;
  const auto* at = static_cast<const std::byte*>(address);
  const std::string size = " (" + counted(bytes) + ")";
  std::string what = std::string(name_of(access_)), kind = "out of bounds",
              remedy = "guard the access or fix the index";
  std::string name;
  std::ptrdiff_t begin = 0, limit = 0;
  const DeviceArray* global = nullptr;
  const std::byte* base = nullptr;
  bool freed = false;
  const Worker* const near = worker_.cluster ? worker_.cluster->nearest_owner(address) : nullptr;
  const Worker& owner = near ? *near : worker_;
  const std::string whose = &owner == &worker_ ? "" : " of block " + owner.coordinates();
  const auto in_region = static_cast<std::size_t>(at - (owner.shared - kSharedBefore));
  const SharedLayout::Array* array = layout_ ? layout_->nearest(at - owner.shared) : nullptr;
  if (array) {
    base = owner.shared + array->at, limit = static_cast<std::ptrdiff_t>(array->bytes), name = array->name;
  } else if (!layout_ && in_region < kSharedRegion) {
    base = owner.shared, limit = static_cast<std::ptrdiff_t>(worker_.launch->shared_bytes);
    name = limit ? shared_name(worker_) : "";
  } else if (global_.memory.contains(address) && global_.memory.owner(address) < global_.memory.arrays.size()) {
    // The nearest array: an index below 0 of one is beyond the red zone of the one before.
    const std::vector<DeviceArray>& arrays = global_.memory.arrays;
    std::size_t i = global_.memory.owner(address);
    if (i + 1 < arrays.size() && arrays[i + 1].begin - at < at - (arrays[i].begin + arrays[i].bytes)) ++i;
    global = &arrays[i];
    base = global->begin, limit = static_cast<std::ptrdiff_t>(global->bytes), name = global->name;
    begin = global->index(at, bytes);
    freed = !global->live;
  }
  const bool constant = global && is_write(access_) && at >= base && at + bytes <= base + limit && global->constant;
  if (constant) {
    what += " of " + name + "[" + std::to_string(begin) + "]" + size + "; " + name + " is __constant__";
    remedy = "only the host writes it (cudaMemcpyToSymbol); declare it __device__";
  } else if (freed) {
    kind = "use after free";
    what += " of " + name + "[" + std::to_string(begin) + "]" + size + "; " + name + " was freed";
    remedy = "free an array after the last kernel that uses it";
  } else if (base && at >= base && at + bytes <= base + limit) {
    kind = "misaligned";
    what += " of " + counted(bytes) + " at byte " + std::to_string(at - base) + " of " +
            (global ? name : "shared " + name + whose);
    remedy = "an n-byte access needs an address that is a multiple of n";
  } else if (global) {
    what += " of " + name + "[" + std::to_string(begin) + "]" + size + "; " + name + " has ";
    what +=
        global->untyped ? counted(global->bytes) : std::to_string(global->bytes / global->element_bytes) + " elements";
  } else if (base && !name.empty()) {
    const std::ptrdiff_t offset = at - base;
    what += " of shared " + name + (offset < 0 ? "" : "+") + std::to_string(offset) + whose + size + "; " + name +
            " has " +
            std::to_string(worker_.shared_struct ? static_cast<std::ptrdiff_t>(worker_.shared_struct_bytes) : limit) +
            " bytes";
    if (worker_.shared_struct && worker_.shared_struct_bytes < worker_.launch->shared_bytes)
      what += ", the block " + std::to_string(limit);
  } else {
    what += " of " + counted(bytes) + " at an address outside every device array";
  }
  const Epoch mine = running_ | Epoch{site(key)} << kThreadBits;
  worker_.findings.add({kind, what, remedy, {side(named(mine, access_), mine)}, worker_.block});
  worker_.stop_block();
}

}  // namespace flash::simt
