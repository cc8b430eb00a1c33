// host.cu: launches the kernels of mask.cuh. Compiled once per machine.
// Use: steps.hpp declares what is here.
#include "phases/29-dropout/steps/mask.cuh"
#include "phases/29-dropout/steps/steps.hpp"
#include "phases/interface/kernel_phase.cuh"

namespace flash::phase29::inline FLASH_MACHINE {

static std::vector<std::uint8_t> mask_of(Fragment fragment, const Dropout& dropout,
                                         const std::array<std::int64_t, 4>& shape) {
  const auto size = [&](int axis) { return static_cast<int>(shape[static_cast<std::size_t>(axis)]); };
  const auto blocks = [&](int axis, int tile) { return static_cast<unsigned>((size(axis) + tile - 1) / tile); };
  const auto heads = static_cast<unsigned>(size(0) * size(1));
  Machine m;
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
  const auto to = m.alloc<std::uint8_t>("mask", mask.size());
  const auto write = [&](auto kernel, dim3 grid) {
    kernel<<<grid, 32>>>(Keeper::of(dropout), to.data(), size(1), size(2), size(3));
  };
  if (fragment == Fragment::Rows)
    write(write_mask<RowFlags>, dim3(blocks(3, 64), blocks(2, 16), heads));
  else
    write(write_mask<KeyFlags>, dim3(blocks(3, 16), blocks(2, 64), heads));
  m.download(mask.data(), to);
  return mask;
}

static Words philox_of(const Words& counter, const std::array<std::uint32_t, 2>& key) {
  Machine m;
  Words words{};
  const auto to = m.alloc<unsigned>("words", words.size());
  one_call<<<1, 1>>>(make_uint4(counter[0], counter[1], counter[2], counter[3]), make_uint2(key[0], key[1]), to.data());
  m.download(words.data(), to);
  return words;
}

static const bool added = [] {
  asked_by_machine[static_cast<std::size_t>(this_machine)] = {mask_of, philox_of};
  return true;
}();

}  // namespace flash::phase29::inline FLASH_MACHINE
