// flash_ring_gpu_test.cpp: flash-ring with two GPUs of this host and NCCL: the results of ranks that are threads and
// call the same kernels, ranks that are killed or hang, and ranks without a GPU of their own.
// ctest --test-dir build -R flash_ring_gpu; without MPI, NCCL or two GPUs it says so and is skipped.
#include "phases/24-backward-fused/phase.hpp"
#include "tests/flash_ring.hpp"

using namespace flash;
using namespace flash::test;

namespace {

bool without_gpus(const Shell& session) {
  if (without_mpi()) return true;
  const bool few = session.run({"-c", "test $(nvidia-smi -L | grep -c ^GPU) -ge 2"}).status != 0;
#ifdef FLASH_HAVE_NCCL
  if (few) skip("no two GPUs");
  return few;
#else
  skip(few ? "no two GPUs" : "no NCCL in this build");
  return true;
#endif
}

// |x - y| / |y| in units of T's rounding, 2^-11 for half.
template <class T>
double distance(const T* x, const Tensor<T>& y) {
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(y.size()); ++i) {
    const double a = to_float(x[i]), b = to_float(y.data()[i]);
    difference += (a - b) * (a - b), norm += b * b;
  }
  return std::sqrt(difference / norm) * 2048;
}

}  // namespace

// The engine and the merge differ: the host's exp2 is not the GPU's, to the last bit of fp32. A tenth of what rounding
// to half does is far less than any key that is lost.
TEST_CASE("gpu: flash-ring: what threads compute by the same kernels, forward and backward, and again the same bits") {
  Shell session;
  if (without_gpus(session)) return;
  Halves x(session, {2, 4, 700, 128}, 34);
  for (const RingLayout layout : all_layouts) {
    x.on_threads(layout, phase30::HostWorker(phase24::phase, Where::Gpu));
    std::map<std::string, std::string> first;
    for (int round = 0; round < 2; ++round) {
      const Answer answer =
          ring(session, 2,
               inputs + "--machine gpu --phase 24 --causal top-left --layout " + std::string(name(layout)) +
                   " --lse lse.npy --dout do.npy --dq dq.npy --dk dk.npy --dv dv.npy");
      INFO(answer.err);
      REQUIRE(answer.status == 0);
      CHECK(contains(answer.out, "by 24-backward-fused on gpu"));
      for (const auto& [name, array] : x.results()) {
        const NpyArray file = read_npy(session / (std::string(name) + ".npy"));
        const double away = distance(reinterpret_cast<const half*>(file.bytes.data()), *array);
        INFO(name << " of " << std::string(flash::name(layout)));
        MESSAGE(name, " of ", std::string(flash::name(layout)), ": ", away, " units of rounding");
        CHECK(away < 0.1);
      }
      if (round == 0) first = session.files();
    }
    CHECK(session.files() == first);
  }
}

TEST_CASE("gpu: flash-ring: a rank that is killed or hangs ends the other in time, with a line that names it") {
  Shell session;
  if (without_gpus(session)) return;
  save_zeros(session, "<f2", {1, 1, 4 << 20, 128}, 4 << 20);  // long in computing rather than in reading
  const std::string gradients = "--dout q.npy --dq dq.npy --dk dk.npy --dv dv.npy ";
  const auto ends = [&](const std::string& fault, const std::string& names) {
    const auto begin = std::chrono::steady_clock::now();
    const Answer answer = ring(session, 2, inputs + gradients + "--machine gpu --causal top-left --timeout 5", fault);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    MESSAGE(fault, ": ", seconds.count(), " s: ", answer.err);
    CHECK(answer.status == 3);
    CHECK(contains(answer.err, names));
    CHECK(seconds.count() < 60);  // 5 s are asked for; then the driver gives the memory back
    CHECK_FALSE(std::filesystem::exists(session / "o.npy"));
    CHECK_FALSE(std::filesystem::exists(session / "o.npy.flash-unfinished"));
  };
  // The rank is the last child of its keeper, $$. It begins after two seconds, and computes after twelve.
  const auto after = [](const char* seconds, const char* signal) {
    return std::string("{ (sleep ") + seconds +
           "; for p in $(cat /proc/$$/task/$$/children); do rank=$p; done; kill -" + signal + " $rank) & }";
  };
  ends(after("2", "STOP"), "see what");
  ends(after("12", "STOP"), "see what");
  ends(after("12", "KILL"), "flash-ring: rank 1 was ended by signal 9 (Killed); expected it to finish");
}

TEST_CASE("gpu: flash-ring: a rank without a GPU of its own is refused") {
  Shell session;
  if (without_gpus(session)) return;
  save_zeros(session, "<f2", {1, 2, 256, 64}, 256);
  for (const auto& [gpus, line] :
       {std::pair{"''", "without a GPU; expected one for each rank; see nvidia-smi there"},
        {"0", "rank 0's; expected one for each rank; start as many ranks there as it has GPUs"}}) {
    const Answer answer =
        ring(session, 2, inputs + "--machine gpu", std::string("export CUDA_VISIBLE_DEVICES=") + gpus);
    INFO(answer.err);
    CHECK(answer.status == 2);
    REQUIRE(said(answer).size() == 1);
    CHECK(contains(said(answer)[0], "rank 1"));
    CHECK(contains(said(answer)[0], line));
    CHECK(session.files().size() == 3);
  }
}
