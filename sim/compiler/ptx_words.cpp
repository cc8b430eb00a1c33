// ptx_words.cpp: which words of PTX inline assembly may have: instructions, types, special registers, and what each is
// in C++ (sim/cuda/inline_ptx.hpp). Use: see ptx_words.hpp.
#include "sim/compiler/ptx_words.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace flash::compiler {
namespace {

using Text = std::string_view;
using Pair = std::pair<Text, Text>;

// Types of registers and of instructions, as C++ has them.
constexpr Pair kTypes[] = {{"pred", "bool"},          {"b8", "unsigned char"}, {"u8", "unsigned char"},
                           {"b16", "unsigned short"}, {"s16", "short"},        {"u16", "unsigned short"},
                           {"b32", "unsigned"},       {"s32", "int"},          {"u32", "unsigned"},
                           {"b64", "std::uint64_t"},  {"s64", "std::int64_t"}, {"u64", "std::uint64_t"},
                           {"f32", "float"},          {"f64", "double"}};

// Instructions of many types, which are named last: add.s32 is add<int>.
constexpr Pair kTyped[] = {{"mov", "mov"},
                           {"selp", "selp"},
                           {"add", "add"},
                           {"add.rn", "add"},
                           {"sub", "sub"},
                           {"sub.rn", "sub"},
                           {"mul", "mul"},
                           {"mul.rn", "mul"},
                           {"mul.lo", "mul"},
                           {"mad.lo", "mad"},
                           {"fma.rn", "mad"},
                           {"min", "min"},
                           {"max", "max"},
                           {"neg", "neg"},
                           {"and", "bit_and"},
                           {"or", "bit_or"},
                           {"xor", "bit_xor"},
                           {"not", "bit_not"},
                           {"shl", "shl"},
                           {"shr", "shr"},
                           {"setp.eq", "setp_eq"},
                           {"setp.ne", "setp_ne"},
                           {"setp.lt", "setp_lt"},
                           {"setp.le", "setp_le"},
                           {"setp.gt", "setp_gt"},
                           {"setp.ge", "setp_ge"},
                           {"ld.global", "ld"},
                           {"ld.shared", "ld"},
                           {"st.global", "st"},
                           {"st.shared", "st"},
                           {"red.global.add", "red_add"}};

// All others.
constexpr Pair kOthers[] = {
    {"ldmatrix.sync.m8n8.x1.shared.b16", "ldmatrix<false>"},
    {"ldmatrix.sync.m8n8.x2.shared.b16", "ldmatrix<false>"},
    {"ldmatrix.sync.m8n8.x4.shared.b16", "ldmatrix<false>"},
    {"ldmatrix.sync.m8n8.x1.trans.shared.b16", "ldmatrix<true>"},
    {"ldmatrix.sync.m8n8.x2.trans.shared.b16", "ldmatrix<true>"},
    {"ldmatrix.sync.m8n8.x4.trans.shared.b16", "ldmatrix<true>"},
    {"mma.sync.m16n8k16.row.col.f32.f16.f16.f32", "mma<::flash::__half>"},
    {"mma.sync.m16n8k16.row.col.f32.bf16.bf16.f32", "mma<::flash::__nv_bfloat16>"},
    {"mma.sync.m16n8k16.row.col.f16.f16.f16.f16", "mma_f16"},
    {"mma.sync.m16n8k32.row.col.s32.s8.s8.s32", "mma_s8"},
    {"setmaxnreg.inc.sync.u32", "setmaxnreg_inc"},
    {"setmaxnreg.dec.sync.u32", "setmaxnreg_dec"},
    {"cp.async.bulk.tensor.2d.shared.global.mbarrier::complete_tx::bytes", "cp_async_bulk_tensor<2>"},
    {"cp.async.bulk.tensor.3d.shared.global.mbarrier::complete_tx::bytes", "cp_async_bulk_tensor<3>"},
    {"cp.async.shared.global", "cp_async"},
    {"cp.async.commit_group", "cp_async_commit"},
    {"cp.async.wait_group", "cp_async_wait"},
    {"cp.async.wait_all", "cp_async_wait_all"},
    {"bar.sync", "bar_sync"},
    {"barrier.sync", "bar_sync"},
    {"bar.arrive", "bar_arrive"},
    {"membar.cta", "__threadfence_block"},
    {"membar.gl", "__threadfence"},
    {"membar.sys", "__threadfence_system"},
    {"fence.acq_rel.cta", "__threadfence_block"},
    {"fence.acq_rel.gpu", "__threadfence"},
    {"fence.acq_rel.sys", "__threadfence_system"},
    {"ex2.approx.f32", "ex2<false>"},
    {"ex2.approx.ftz.f32", "ex2<true>"},
    {"lg2.approx.f32", "lg2<false>"},
    {"lg2.approx.ftz.f32", "lg2<true>"},
    {"rcp.approx.f32", "rcp<false>"},
    {"rcp.approx.ftz.f32", "rcp<true>"},
    {"sqrt.approx.f32", "sqrt<false>"},
    {"sqrt.approx.ftz.f32", "sqrt<true>"},
    {"rsqrt.approx.f32", "rsqrt<false>"},
    {"rsqrt.approx.ftz.f32", "rsqrt<true>"},
    {"cvt.rn.f16x2.f32", "cvt_f16x2"},
    {"cvt.rn.bf16x2.f32", "cvt_bf16x2"},
    {"prmt.b32", "prmt"},
    {"bfind.u32", "bfind"},
    {"popc.b32", "popc"},
    {"clz.b32", "clz"},
    {"brev.b32", "brev"},
    {"elect.sync", "elect"},
    {"mbarrier.init.shared.b64", "mbarrier_init"},
    {"mbarrier.inval.shared.b64", "mbarrier_inval"},
    {"mbarrier.arrive.shared.b64", "mbarrier_arrive"},
    {"mbarrier.arrive.expect_tx.shared.b64", "mbarrier_arrive_expect_tx"},
    {"mbarrier.try_wait.parity.shared.b64", "mbarrier_try_wait"},
    {"mbarrier.test_wait.parity.shared.b64", "mbarrier_try_wait"},
    {"fence.mbarrier_init.release", "fence_mbarrier_init"},
    {"fence.proxy.async", "fence_proxy_async"},
    {"fence.proxy.async.shared", "fence_proxy_async"},
    {"cp.async.bulk.shared.global.mbarrier::complete_tx::bytes", "cp_async_bulk"}};

// %laneid and its kind.
constexpr Pair kSpecial[] = {{"laneid", "lane()"},
                             {"warpid", "warp()"},
                             {"tid.x", "threadIdx.x"},
                             {"tid.y", "threadIdx.y"},
                             {"tid.z", "threadIdx.z"},
                             {"ntid.x", "blockDim.x"},
                             {"ntid.y", "blockDim.y"},
                             {"ntid.z", "blockDim.z"},
                             {"ctaid.x", "blockIdx.x"},
                             {"ctaid.y", "blockIdx.y"},
                             {"ctaid.z", "blockIdx.z"},
                             {"nctaid.x", "gridDim.x"},
                             {"nctaid.y", "gridDim.y"},
                             {"nctaid.z", "gridDim.z"},
                             {"clock", "clock64()"},
                             {"clock64", "clock64()"},
                             {"globaltimer", "clock64()"},
                             {"lanemask_eq", "lanemask_eq()"},
                             {"lanemask_lt", "lanemask_lt()"},
                             {"lanemask_le", "lanemask_le()"},
                             {"lanemask_gt", "lanemask_gt()"},
                             {"lanemask_ge", "lanemask_ge()"}};

// Words of an opcode that change nothing here: hints to caches, what all lanes of a warp do in any case, scopes of what
// is the block's.
constexpr Text kHints[] = {
    ".aligned",     "::cta",        "::cluster",       ".L2::64B", ".L2::128B", ".L2::256B", ".nc", ".release.cta",
    ".acquire.cta", ".relaxed.cta", ".cluster",        ".ca",      ".cg",       ".cs",       ".wb", ".v2",
    ".v4",          ".uni",         ".L1::no_allocate"};

template <std::size_t kCount>
std::optional<std::string> look_up(const Pair (&table)[kCount], Text name) {
  const auto at =
      std::find_if(std::begin(table), std::end(table), [&](const Pair& pair) { return pair.first == name; });
  return at == std::end(table) ? std::nullopt : std::optional<std::string>(at->second);
}

}  // namespace

std::optional<std::string> ptx_function(std::string opcode) {
  for (const Text hint : kHints)
    for (std::size_t at = 0; (at = opcode.find(hint, at)) != std::string::npos;) {
      const std::size_t end = at + hint.size();
      if (end == opcode.size() || opcode[end] == '.' || opcode[end] == ':')
        opcode.erase(at, hint.size());
      else
        at = end;
    }
  if (const auto other = look_up(kOthers, opcode)) return other;
  const std::size_t dot = opcode.rfind('.');
  if (dot == std::string::npos) return {};
  const auto type = look_up(kTypes, Text(opcode).substr(dot + 1)), typed = look_up(kTyped, Text(opcode).substr(0, dot));
  if (!type || !typed) return {};
  return *typed + "<" + *type + ">";
}

std::optional<std::string> ptx_type(Text name) {
  return look_up(kTypes, name);
}
std::optional<std::string> ptx_special_register(Text name) {
  return look_up(kSpecial, name);
}

}  // namespace flash::compiler
