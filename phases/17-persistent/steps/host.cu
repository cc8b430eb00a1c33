// host.cu: the kernels of the staircase get their entry points, as phases do; and the kernel of draw.cuh is launched,
// with a counter that is 0 before, as for the phase. Compiled once per machine.
// Use: steps.hpp declares what is here.
#include "phases/17-persistent/steps/1-output.cuh"
#include "phases/17-persistent/steps/2-keys.cuh"
#include "phases/17-persistent/steps/3-stays.cuh"
#include "phases/17-persistent/steps/4-threads.cuh"
#include "phases/17-persistent/steps/draw.cuh"
#include "phases/17-persistent/steps/steps.hpp"

namespace flash::phase17::inline FLASH_MACHINE {

static const Added added_output = added_pass<first_size, output::Attention>(output_pass);
static const Added added_keys = added_pass<one_size, keys::Attention>(keys_pass);
static const Added added_stays = added_pass<one_size, stays::Attention>(stays_pass);
static const Added added_threads = added_pass<one_size, threads::Attention>(threads_pass);

static Drawn draw_with(unsigned heads, unsigned q_tiles, unsigned section, unsigned blocks) {
  Machine m;
  const std::size_t tiles = std::size_t{heads} * q_tiles;
  Drawn drawn{std::vector<int>(tiles), std::vector<unsigned>(tiles), 0};
  const auto counter = m.upload("counter", &drawn.counter, 1), times = m.upload("times", drawn.times.data(), tiles);
  const auto order = m.alloc<int>("order", tiles);
  draw_all<<<blocks, 1>>>(Schedule{heads, q_tiles, section}, counter.data(), order.data(), times.data());
  m.download(drawn.order.data(), order), m.download(drawn.times.data(), times), m.download(&drawn.counter, counter);
  return drawn;
}

static const bool added = [] {
  asked_by_machine[static_cast<std::size_t>(this_machine)] = {draw_with, section_of};
  return true;
}();

}  // namespace flash::phase17::inline FLASH_MACHINE
