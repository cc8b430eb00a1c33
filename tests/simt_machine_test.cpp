// simt_machine_test.cpp: the simulator itself: launches, limits, schedules, waiting, what the checks let pass, trace.
// The detectors have their own tests (simt/museum_test.cpp), the intrinsics too (simt/conformance_test.cpp).
// Run: ctest -L simt, or simt_machine_test
#include "tests/simt_machine.hpp"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <numeric>
#include <sstream>
#include <utility>

#include "sim/checks/checker.hpp"
#include "sim/core/stuck.hpp"
#include "sim/error.hpp"
#include "sim/machine.hpp"
#include "sim/report/report.hpp"
#include "tests/folder.hpp"
#include "tests/simt/machines.hpp"

namespace {

using flash::Finding, flash::KernelReport, flash::MachineOptions, flash::Order, flash::Profile;

std::vector<MachineOptions> schedules() {
  std::vector<MachineOptions> all{{}, {.order = Order::reverse}};
  for (std::uint64_t seed = 0; seed < 20; ++seed) all.push_back({.order = Order::random, .seed = seed});
  return all;
}

std::vector<float> numbers(std::size_t n) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i * 2654435761u % 1000) - 500.0f;
  return v;
}

template <class Machine>
void launch_shape(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz) {
  Machine m;
  const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  run_nothing(m, grid, block);
}

}  // namespace

TEST_CASE_TEMPLATE("transpose and block sum", Machine, MACHINES) {
  const int n = 96;
  const std::vector<float> in = numbers(n * n);
  std::vector<float> out(in.size()), sums(in.size() / 256);
  Machine m;
  run_transpose(m, in.data(), out.data(), n);
  int wrong = 0;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) wrong += !(out[i * n + j] == in[j * n + i]);
  CHECK(wrong == 0);
  run_block_sum(m, in.data(), sums.data(), static_cast<int>(sums.size()));
  for (std::size_t b = 0; b < sums.size(); ++b) {
    float sum = 0;  // small integers: exact in any order
    for (int i = 0; i < 256; ++i) sum += in[b * 256 + i];
    CHECK(sums[b] == sum);
  }
  REQUIRE(m.reports().size() == 2);
  CHECK(m.reports()[0].kernel == "transpose");
  CHECK(m.reports()[0].grid == std::array<unsigned, 3>{3, 3, 1});
  CHECK(m.reports()[0].ledger.shared_bytes_peak == 32 * 33 * 4);
  CHECK(m.reports()[1].ledger.barriers == sums.size());
}

TEST_CASE_TEMPLATE("grids and blocks of three dimensions", Machine, MACHINES) {
  for (const MachineOptions& options : schedules()) {
    Machine m(options);
    const std::vector<unsigned> place = run_number_threads(m);
    for (unsigned i = 0; i < place.size(); ++i) CHECK(place[i] == i);
  }
}

TEST_CASE("launch limits are the hardware's") {
  CHECK_NOTHROW(launch_shape<Sim>(1, 1, 1, 1024, 1, 1));
  CHECK_NOTHROW(launch_shape<Sim>(1, 1, 1, 4, 4, 64));
  CHECK_NOTHROW(launch_shape<Sim>(1, 65535, 1, 1, 1, 1));
  CHECK_THROWS_WITH_AS(launch_shape<Sim>(1, 1, 1, 1025, 1, 1),
                       "block.x is 1025; expected 1 to 1024; use a smaller block and more blocks", flash::Error);
  CHECK_THROWS_WITH_AS(launch_shape<Sim>(1, 1, 1, 1, 1, 65), doctest::Contains("block.z is 65; expected 1 to 64"),
                       flash::Error);
  CHECK_THROWS_WITH_AS(launch_shape<Sim>(1, 1, 1, 32, 33, 1),
                       "threads per block is 1056; expected at most 1024; use a smaller block and more blocks",
                       flash::Error);
  CHECK_THROWS_WITH_AS(launch_shape<Sim>(1, 65536, 1, 1, 1, 1),
                       doctest::Contains("grid.y is 65536; expected 1 to 65535"), flash::Error);
  CHECK_THROWS_WITH_AS(launch_shape<Sim>(1, 1, 65536, 1, 1, 1),
                       doctest::Contains("grid.z is 65536; expected 1 to 65535"), flash::Error);
  CHECK_THROWS_WITH_AS(launch_shape<Sim>(1u << 31, 1, 1, 1, 1, 1), doctest::Contains("grid.x is 2147483648"),
                       flash::Error);
  CHECK_THROWS_WITH_AS(launch_shape<Sim>(0, 1, 1, 1, 1, 1),
                       "grid.x is 0; expected 1 to 2147483647; skip the launch when there is no work", flash::Error);
}

TEST_CASE_TEMPLATE("more threads than __launch_bounds__ allows are refused", Machine, MACHINES) {
  Machine m;
  CHECK_NOTHROW(run_bounded(m, 64));
  CHECK_THROWS_WITH_AS(run_bounded(m, 65),
                       "threads in a block of bounded<32> is 65; expected at most 64, as its __launch_bounds__ says; "
                       "launch fewer or raise the bound",
                       flash::Error);
}

TEST_CASE("shared memory limits follow the profile") {
  Sim a100({.profile = Profile::sm_80}), h100({.profile = Profile::sm_90});
  CHECK(run_shared(a100, 163) == 7);
  CHECK_THROWS_WITH_AS(
      run_shared(a100, 164),
      "dynamic shared memory of touch_last<164> is 167936 bytes; expected 0 to 166912 on sm_80; use smaller tiles",
      flash::Error);
  CHECK(run_shared(h100, 227) == 7);
  CHECK_THROWS_AS(run_shared(h100, 228), flash::Error);
}

TEST_CASE_TEMPLATE("shared<S> with a larger struct than the launch gives room for is refused", Machine, MACHINES) {
  Machine m;
  CHECK_THROWS_WITH_AS(run_wrong_struct(m),
                       "the shared struct Bytes<2> is 2048 bytes; expected at most the 1024 that the launch gives; "
                       "launch with <<<grid, block, sizeof(Bytes<2>)>>>",
                       flash::Error);
  CHECK(run_shared(m, 163) == 7);  // the machine is still usable
}

TEST_CASE_TEMPLATE("every schedule gives the same bits and the same counters", Machine, MACHINES) {
  const int n = 64;
  const std::vector<float> in = numbers(n * n);
  std::vector<float> transposed(in.size()), sums(in.size() / 256), first_transposed, first_sums;
  std::vector<flash::Ledger> ledgers;
  for (const MachineOptions& options : schedules()) {
    CAPTURE(options.seed);
    Machine m(options);
    run_transpose(m, in.data(), transposed.data(), n);
    run_block_sum(m, in.data(), sums.data(), static_cast<int>(sums.size()));
    if (ledgers.empty()) {
      first_transposed = transposed, first_sums = sums;
      for (const KernelReport& r : m.reports()) ledgers.push_back(r.ledger);
    }
    CHECK(transposed == first_transposed);
    CHECK(sums == first_sums);
    for (std::size_t i = 0; i < ledgers.size(); ++i) CHECK(m.reports()[i].ledger == ledgers[i]);
  }
}

TEST_CASE_TEMPLATE("fresh memory is NaN", Machine, MACHINES) {
  Machine m({.keep_going = true});
  CHECK(run_fresh(m));
}

TEST_CASE_TEMPLATE("order, seed and threads decide the schedule", Machine, MACHINES) {
  const auto sequence = [](Order order, std::uint64_t seed) {
    Machine m({.order = order, .seed = seed, .threads = 1});
    return run_sequence(m, 3, 40);
  };
  std::vector<unsigned> forward(3 * 40);
  std::iota(forward.begin(), forward.end(), 0u);
  const std::vector<unsigned> reverse(forward.rbegin(), forward.rend()), first = sequence(Order::random, 1);
  CHECK(sequence(Order::forward, 0) == forward);
  CHECK(sequence(Order::reverse, 0) == reverse);
  CHECK(first == sequence(Order::random, 1));
  CHECK(first != sequence(Order::random, 2));
  // Both the blocks and the threads of each are shuffled.
  std::vector<unsigned> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == forward);
  CHECK_FALSE(std::is_sorted(first.begin(), first.begin() + 40));
  std::vector<bool> blocks_in_turn;
  for (std::uint64_t seed = 0; seed < 8; ++seed) blocks_in_turn.push_back(sequence(Order::random, seed)[0] < 40);
  CHECK(std::count(blocks_in_turn.begin(), blocks_in_turn.end(), true) < 8);
  Machine two({.threads = 2}), one({.threads = 1});
  CHECK(run_rendezvous(two) == 2);
  CHECK_THROWS_WITH_AS(run_rendezvous(one), doctest::Contains("deadlock"), flash::Error);
}

TEST_CASE_TEMPLATE("as many blocks run at a time as the program has cores", Machine, MACHINES) {
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (std::size_t core = 0; CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  Machine m;
  CHECK_THROWS_WITH_AS(run_rendezvous(m), doctest::Contains("deadlock"), flash::Error);
  CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
}

TEST_CASE_TEMPLATE("a thread that spins lets others run", Machine, MACHINES) {
  for (const MachineOptions& options : schedules()) {
    Machine m(options);
    CHECK(run_hand_over(m) == 42);
  }
}

TEST_CASE_TEMPLATE("threads that count in memory do not wait", Machine, MACHINES) {
  for (const Order order : {Order::forward, Order::reverse}) {
    Machine m({.order = order});
    CHECK(run_counting(m) == 1'200'000u);  // more atomics than a block may repeat without changing memory
  }
}

TEST_CASE_TEMPLATE("a deadlock is reported with who waits where", Machine, MACHINES) {
  Machine m({.threads = 1, .keep_going = true});
  run_crossed(m);
  REQUIRE(m.findings().size() == 1);
  const auto line = [](const char* mark) { return flash::test::line_of("simt_machine.cu", mark); };
  CHECK(m.findings()[0].text ==
        "deadlock: no thread of the block can go on\n"
        "  1 spin on an atomic       " +
            line("spin") +
            "  block (0,0,0) warp 0 lane 0\n"
            "  39 wait at __syncthreads  " +
            line("wait") +
            "  block (0,0,0) warp 0 lane 1\n"
            "  remedy: these wait for one another: let all threads come to both places, in one order");
  Machine strict({.threads = 1});
  CHECK_THROWS_WITH_AS(run_crossed(strict), "kernel crossed has 1 finding: deadlock: no thread of the block can go on",
                       flash::Error);
}

// What workers ask, one after another: an operating system may stop one of them between its look and the others'.
TEST_CASE("blocks wait in vain when each has looked again since the last that went on") {
  flash::simt::Stuck stuck(3);
  flash::simt::Stuck::Look looks[3];
  for (std::size_t w = 0; w < 3; ++w) looks[w].worker = w;
  const auto hopeless = [&](std::size_t w) {
    bool found = false;
    for (int i = 0; i < 100; ++i) found |= stuck.hopeless(looks[w]);
    return found;
  };
  CHECK_FALSE(hopeless(0));  // the last one runs
  CHECK_FALSE(hopeless(1));
  CHECK_FALSE(hopeless(2));  // nobody has looked since it was stuck
  CHECK_FALSE(hopeless(0));
  stuck.goes_on(looks[1]);   // and helps the first one
  CHECK_FALSE(hopeless(2));  // runs again
  CHECK_FALSE(hopeless(1));
  CHECK_FALSE(hopeless(2));  // the first one has not looked since
  CHECK_FALSE(stuck.found());
  CHECK_FALSE(hopeless(0));
  CHECK(hopeless(1));
  CHECK(stuck.found());

  flash::simt::Stuck last(2);
  looks[0] = {}, looks[1] = {.worker = 1};
  CHECK_FALSE(last.hopeless(looks[0]));
  last.done(looks[1]);  // of two, the other one has no more blocks
  bool found = false;
  for (int i = 0; i < 100; ++i) found |= last.hopeless(looks[0]);
  CHECK(found);
}

// Worker 0 has seen that the other one is stuck, and is stopped before it sees how often that one has looked.
TEST_CASE("blocks wait in vain only when nobody has gone on while one counted the others' looks") {
  std::function<void()> meanwhile;
  flash::simt::Stuck stuck(2, [&] {
    if (const auto act = std::exchange(meanwhile, nullptr)) act();
  });
  flash::simt::Stuck::Look looks[] = {{.worker = 0}, {.worker = 1}};
  CHECK_FALSE(stuck.hopeless(looks[1]));
  for (int i = 0; i < 20; ++i) CHECK_FALSE(stuck.hopeless(looks[0]));  // the other one has not looked since
  bool found = false;
  meanwhile = [&] {
    stuck.goes_on(looks[1]);  // and does what the first one waits for; then it waits again
    for (int i = 0; i < 20; ++i) found |= stuck.hopeless(looks[1]);
  };
  CHECK_FALSE(stuck.hopeless(looks[0]));
  CHECK_FALSE(meanwhile);
  meanwhile = [&] {
    stuck.goes_on(looks[1]);
    stuck.done(looks[1]);  // it was its last block
  };
  CHECK_FALSE(stuck.hopeless(looks[0]));
  CHECK_FALSE(meanwhile);
  CHECK_FALSE(found);
  CHECK_FALSE(stuck.found());
  for (int i = 0; i < 20; ++i) found |= stuck.hopeless(looks[0]);  // now nobody can help
  CHECK(found);
}

TEST_CASE_TEMPLATE("two halves of a warp with masks of their own", Machine, MACHINES) {
  for (const MachineOptions& options : schedules()) {
    Machine m(options);
    const std::vector<int> sums = run_half_warps(m);
    for (int lane = 0; lane < 32; ++lane) CHECK(sums[lane] == (lane < 16 ? 120 : 376) + (lane % 2 ? 0 : 16000));
  }
}

// Rounded once, from whatever type: y is above the tie that it would become as a float.
TEST_CASE_TEMPLATE("numbers become halfs and halfs numbers", Machine, MACHINES) {
  Machine m;
  CHECK(run_halves(m, 1.5f, 1 + 0x1p-11 + 0x1p-40, 2049) ==
        std::vector<unsigned>{0x3e00, 0x3e00, 0x3e00, 0x3c01, 0x6800, 0x7c00, 0x3fc0, 0x3fc0, 0x3f80, 0x4500, 0x3e00,
                              0x3f80, 0x45000000, 0xc5000000, 1, 0x4000, 0x4000, 12});
  const std::vector<unsigned> more = run_halves(m, -65519.996f, 1 + 0x1p-8 + 0x1p-40, -65520);
  CHECK(std::vector<unsigned>(more.begin(), more.begin() + 10) ==
        std::vector<unsigned>{0xfbff, 0xfbff, 0xfbff, 0x3c04, 0xfc00, 0x7c00, 0xc780, 0xc780, 0x3f81, 0xc780});
}

TEST_CASE_TEMPLATE("allowed: constants, arguments, locals by reference, odd structs, printf", Machine, MACHINES) {
  Machine m;
  const int table[] = {3, 1, 4, 1};
  const std::vector<int> out = run_allowed(m);
  for (int i = 0; i < 32; ++i) CHECK(out[i] == i * table[i % 4] + 6);
}

TEST_CASE_TEMPLATE("trace: marks and barriers, the same under every schedule", Machine, MACHINES) {
  std::string first;
  for (MachineOptions options : schedules()) {
    options.trace = "memory";
    Machine m(options);
    run_marked(m);
    std::ostringstream text;
    int loads = 0, barriers = 0;
    std::vector<flash::TraceEvent> events = m.trace();
    std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.warp, a.begin, a.name) < std::tuple(b.warp, b.begin, b.name);
    });
    for (const flash::TraceEvent& e : events) {
      loads += e.name == "load", barriers += e.name == "barrier";
      CHECK(e.end > e.begin);
      text << e.warp << " " << e.name << " " << e.value << " " << e.begin << " " << e.end << "\n";
    }
    CHECK(loads == 2 * 4);
    CHECK(barriers == 2 * 8);
    if (first.empty()) first = text.str();
    CHECK(text.str() == first);
  }
}

TEST_CASE("trace: the file is written when the machine goes") {
  const flash::test::Folder folder;
  const std::string path = folder / "trace.json";
  {
    Sim m({.trace = path});
    run_marked(m);
  }
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  CHECK(text.str().find("\"name\": \"load\", \"ph\": \"X\", \"pid\": 0, \"tid\": 1") != std::string::npos);
  CHECK(text.str().find("0 marked block (0,0,0)") != std::string::npos);
}

#ifndef FLASH_NO_CHECKED_KERNELS
TEST_CASE("races between distant blocks are found whatever worker runs them") {
  for (int repeat = 0; repeat < 50; ++repeat) {
    Checked m({.threads = 1 + repeat % 4, .keep_going = true});
    run_distant_blocks(m);
    CHECK(m.findings().size() == 1);
  }
}

TEST_CASE("the last block may read what others released") {
  for (MachineOptions options : schedules()) {
    options.keep_going = true;
    Checked with(options), without(options);
    CHECK(run_last_block(with, true) == 32 * 64);
    CHECK(with.findings().empty());
    run_last_block(without, false);
    REQUIRE(without.findings().size() == 1);
    CHECK(without.findings()[0].text.find("race: read after write of partial[") == 0);
  }
}

#ifndef FLASH_NO_CHECKED_KERNELS
TEST_CASE("what the checks keep of each byte of global memory") {
  const auto resident = [] {  // bytes of this process that are in memory
    double size = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> size >> pages;
    return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
  };
  const auto bytes = [&](bool halves, bool writes) {
    Checked m({.threads = 1});
    return run_elements(m, halves, writes, resident);
  };
  bytes(false, false);  // what a first launch takes besides
  // A quarter more where a word has several cells.
  CHECK(bytes(false, false) == doctest::Approx(4).epsilon(0.05));
  CHECK(bytes(false, true) == doctest::Approx(2).epsilon(0.1));
  CHECK(bytes(true, false) == doctest::Approx(8.25).epsilon(0.05));
  CHECK(bytes(true, true) == doctest::Approx(4.25).epsilon(0.1));
}

TEST_CASE("a freed array leaves nothing behind for the next one at its address") {
  flash::simt::DeviceMemory memory;
  flash::simt::GlobalShadow shadow(memory);
  const std::byte* array = memory.allocate("a", 3 << 16, 4, nullptr);
  const std::size_t last = memory.offset(array) / 4 + (3 << 16) / 4 - 1;
  auto& plane = shadow.cells.planes[0];
  plane.write[last] = plane.readers[last].one = plane.atomics[last].one = 1;
  plane.loads[last].one = plane.stores[last].one = 1;
  shadow.cells.set(last, flash::simt::Cells::kUnusual);
  shadow.forget(array);
  CHECK((plane.write[last] | plane.readers[last].one | plane.atomics[last].one) == 0);
  CHECK((plane.loads[last].one | plane.stores[last].one | shadow.cells.state[last]) == 0);
}

TEST_CASE("addresses are used again as late as possible, and then they are") {
  flash::simt::DeviceMemory memory;
  const std::byte* kept = memory.allocate("kept", 4, 4, nullptr);
  const std::byte* first = memory.allocate("first", 4, 4, nullptr);
  memory.release(first);
  CHECK(memory.arrays[memory.owner(first)].name == "first");
  const std::byte *last = first, *now = memory.allocate("next", 4, 4, nullptr);
  CHECK(now > first);
  while (now > last) {  // until it goes back to the start
    memory.release(now);
    last = now, now = memory.allocate("next", std::size_t{1} << 30, 4, nullptr);
  }
  CHECK(now == first);
  CHECK(memory.arrays[memory.owner(kept)].live);
}

TEST_CASE("all of the device's memory costs nothing until it is written, and is NaN again when it was freed") {
  constexpr std::size_t kTotal = flash::simt::DeviceMemory::kTotal;
  const auto resident = [] {  // pages of this process that are in memory
    std::size_t size = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> size >> pages;
    return pages;
  };
  flash::simt::DeviceMemory memory;
  // A page in each of the mapped pieces, the last one shorter, and the bytes beside the borders between them.
  const std::size_t places[] = {0, (8 << 20) - 1, 8 << 20, kTotal / 2 + 5, kTotal - 4096 - 3, kTotal - 100};
  const auto fresh = [&](const std::byte* array) {
    bool all = true;
    for (const std::size_t at : places) all = all && array[at] == std::byte{0xff};
    return all;
  };
  const std::size_t before = resident();
  std::byte* const all = memory.allocate("all", kTotal - 99, 1, nullptr);
  CHECK(fresh(all));
  for (const std::size_t at : places) all[at] = std::byte{1};
  CHECK(resident() - before < (64 << 20) / 4096);
  CHECK(memory.used() == kTotal - 99);
  CHECK_NOTHROW(memory.release(memory.allocate("rest", 99, 1, nullptr)));
  CHECK_THROWS_WITH_AS(memory.allocate("more", 100, 1, nullptr),
                       "device memory for more is 100 bytes; expected at most 99, what is left of 42949672960; use a "
                       "smaller problem or free arrays",
                       flash::Error);
  memory.release(all);
  CHECK(memory.used() == 0);
  std::byte* const again = memory.allocate("again", kTotal - 50, 1, nullptr);
  CHECK(again == all);
  CHECK(fresh(again));
  again[places[1]] = std::byte{1};
  memory.clear(again);
  for (const std::size_t at : places) CHECK(again[at] == std::byte{0});
}

TEST_CASE("39 bits of addresses are too few for the checks, which say so, and enough for the fast machine") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit few{std::min(before.rlim_max, rlim_t{1} << 39), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &few) == 0);
  CHECK_THROWS_WITH_AS(Checked(), doctest::Contains("where a system has 39-bit addresses, take the machine sim"),
                       flash::Error);
  CHECK_NOTHROW(launch_shape<Sim>(1, 1, 1, 32, 1, 1));
  setrlimit(RLIMIT_AS, &before);
}

TEST_CASE("a float3 promises 4-byte alignment: three loads") {
  Checked m;
  run_copy_float3(m);
  for (const flash::ArrayTraffic& a : m.reports()[0].ledger.arrays) {
    // 32 lanes 12 bytes apart lie in 12 sectors, three times.
    CHECK(a.read_requests + a.write_requests == 3);
    CHECK(a.read_sectors + a.write_sectors == 36);
  }
}

TEST_CASE("findings name a user's file, whatever it is called") {
  Checked m({.keep_going = true});
  run_put(m);
  REQUIRE(m.findings().size() == 1);
  CHECK(m.findings()[0].text.find("  write  dialect_like.hpp:9  block") != std::string::npos);
}
#endif

TEST_CASE("report as JSON and as a table") {
  const std::vector<float> in = numbers(32 * 32);
  std::vector<float> out(in.size());
  Checked m;
  run_transpose(m, in.data(), out.data(), 32);
  CHECK(
      flash::to_json(m.reports()) ==
      "[\n  {\"kernel\": \"transpose\", \"grid\": [1, 1, 1], \"block\": [32, 8, 1],\n"
      "   \"flops\": 0, \"tensor_flops\": 0, \"exps\": 0, \"barriers\": 1, \"shared_bytes_peak\": 4224, "
      "\"async_bytes_peak\": 0,\n"
      "   \"shared_read_requests\": 32, \"shared_write_requests\": 32, \"shared_wavefronts\": 64, \"bank_conflicts\": "
      "0, \"wgmma_shared_bytes\": 0,\n"
      "   \"arrays\": [\n"
      "    {\"name\": \"in\", \"read_bytes\": 4096, \"read_requests\": 32, \"read_sectors\": 128, \"written_bytes\": "
      "0, "
      "\"write_requests\": 0, \"write_sectors\": 0},\n"
      "    {\"name\": \"out\", \"read_bytes\": 0, \"read_requests\": 0, \"read_sectors\": 0, \"written_bytes\": 4096, "
      "\"write_requests\": 32, \"write_sectors\": 128}]}\n]\n");
  std::ostringstream table;
  print_report(table, m.reports()[0]);
  CHECK(table.str().find("in                  load                4096          32         128         4.00") !=
        std::string::npos);
}
#endif
