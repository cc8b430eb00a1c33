// ring_bench: phase 30 on the GPUs of this host, by NCCL, beside one that has the whole sequence: both directions,
// checked against each other and then timed in turns, on the GPUs' own clocks. Ranks are threads, each with a GPU.
// Run: ring_bench --gpus 2 --rows 65536 --heads 16 --layout zig-zag [--backward 1] [--rounds 11] [--phase 24]
//      a line of JSON; --spare 8: multiprocessors that kernels leave to NCCL; --rest 100: ms before each turn, in which
//      the GPUs cool down: without it the one that has the whole sequence never rests
//      --trace FILE: what each stream did in one more turn, in ns of the GPUs' clocks
//      ring_bench --what one --rows 500000 --heads 256 --rounds 0: has one GPU room for it? --what ring --group 8: two?
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <map>

#include "phases/20-backward-tensor-cores/phase.hpp"
#include "phases/24-backward-fused/phase.hpp"
#include "phases/30-ring/ulysses.hpp"
#include "phases/ring/gpu.hpp"
#include "phases/ring/nccl/comm.hpp"

namespace {

using namespace flash;
using namespace flash::phase30;
using bf16 = __nv_bfloat16;

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw MachineError(std::string(what) + ": " + cudaGetErrorString(status));
}

// Numbers in [-1.7, 1.7) by their place in the whole sequence, whichever rank has them.
struct Place {
  std::int64_t first, count, second, step, S, rows;  // Share, of S tokens a head

  // Which number of the whole is the rank's i-th.
  __device__ std::int64_t operator()(std::int64_t i, int D) const {
    const std::int64_t row = i / D % rows, head = i / D / rows;
    return (head * S + (row < count ? first + row * step : second + (row - count) * step)) * D + i % D;
  }
};
__global__ void fill(bf16* data, Place at, std::int64_t heads, int D, unsigned seed) {
  const std::int64_t n = heads * at.rows * D;
  for (std::int64_t i = blockIdx.x * std::int64_t{256} + threadIdx.x; i < n; i += std::int64_t{gridDim.x} * 256) {
    const std::int64_t number = at(i, D);
    unsigned x = static_cast<unsigned>(number) * 0x9E3779B9u + static_cast<unsigned>(number >> 32) + seed * 0x85EBCA6Bu;
    x = (x ^ x >> 16) * 0x7FEB352Du, x = (x ^ x >> 15) * 0x846CA68Bu, x ^= x >> 16;
    data[i] = __float2bfloat16((static_cast<float>(x >> 8) * 0x1p-24f - 0.5f) * 3.4f);
  }
}
// Σ (a - b)² and Σ b² over rows of a rank (a) and of the whole (b).
template <class T>
__global__ void compare(const T* mine, const T* whole, Place at, std::int64_t heads, int D, double* sums) {
  double off = 0, norm = 0;
  const std::int64_t n = heads * at.rows * D;
  for (std::int64_t i = blockIdx.x * std::int64_t{256} + threadIdx.x; i < n; i += std::int64_t{gridDim.x} * 256) {
    const double x = static_cast<double>(static_cast<float>(mine[i])),
                 y = static_cast<double>(static_cast<float>(whole[at(i, D)]));
    off += (x - y) * (x - y), norm += y * y;
  }
  atomicAdd(&sums[0], off), atomicAdd(&sums[1], norm);
}

struct Settings {
  std::map<std::string, std::string> words = {
      {"gpus", "2"},     {"rows", "65536"}, {"heads", "16"},  {"heads-k", "0"}, {"dim", "128"},  {"layout", "zig-zag"},
      {"causal", "1"},   {"backward", "0"}, {"rounds", "11"}, {"group", "0"},   {"phase", "24"}, {"what", "both"},
      {"timeout", "60"}, {"trace", ""},     {"spare", "0"},   {"rest", "0"}};
  Settings(int count, char** arguments) {
    for (int i = 1; i < count; i += 2) {
      const std::string flag = arguments[i];
      if (flag.rfind("--", 0) != 0 || !words.count(flag.substr(2)) || i + 1 == count)
        refuse("argument", "'" + flag + "'", "--flag value", "see the head of phases/ring/nccl/bench.cu");
      words[flag.substr(2)] = arguments[i + 1];
    }
  }
  std::int64_t number(const std::string& flag) const { return std::stoll(words.at(flag)); }
  RingLayout layout() const {
    for (const RingLayout layout :
         {RingLayout::Contiguous, RingLayout::ZigZag, RingLayout::Striped, RingLayout::Ulysses})
      if (words.at("layout") == name(layout)) return layout;
    refuse("--layout", words.at("layout"), "contiguous, zig-zag, striped or ulysses", "omit it for zig-zag");
  }
};

// The arrays of a rank, or of one GPU that has all.
struct Arrays {
  Place at;
  std::vector<Dense> memory;
  AnyProblem there, back;

  Arrays(const GpuWorker& worker, const Settings& s, const Share& share, const Options& options)
      : at{share.first, share.count, share.second, share.step, s.number("rows"), share.size()} {
    const std::int64_t H = s.number("heads"), Hk = s.number("heads-k") ? s.number("heads-k") : H, D = s.number("dim");
    const auto array = [&](std::int64_t heads, unsigned seed) {
      const Dense& x = memory.emplace_back(worker.dense(Type::BFloat16, {1, heads, at.rows, D}));
      if (seed)
        fill<<<1056, 256, 0, static_cast<cudaStream_t>(worker.stream())>>>(static_cast<bf16*>(x.memory.get()), at,
                                                                           heads, static_cast<int>(D), seed);
      return x.view();
    };
    there.type = there.out = Type::BFloat16, there.options = options;
    there.q = array(H, 1), there.k = array(Hk, 2), there.v = array(Hk, 3), there.o = array(H, 0);
    there.lse = memory.emplace_back(worker.dense(Type::Float32, {1, H, at.rows, 1})).view();
    if (!s.number("backward")) return;
    back = there, back.direction = Direction::Backward;
    back.dout = array(H, 4), back.dq = array(H, 0), back.dk = array(Hk, 0), back.dv = array(Hk, 0);
  }
};

struct Events {
  cudaEvent_t begin = nullptr, end = nullptr;
  Events() { check(cudaEventCreate(&begin), "event"), check(cudaEventCreate(&end), "event"); }
  ~Events() { cudaEventDestroy(begin), cudaEventDestroy(end); }
};

// What the streams of a GPU did, by events. Its clock says when the first of them was, in ns; the clocks of two GPUs of
// a host were found up to half a millisecond apart.
__global__ void read_clock(unsigned long long* to) {
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(*to));
}
class Trace {
 public:
  explicit Trace(cudaStream_t compute) : compute_(compute) {
    unsigned long long* clock = nullptr;
    check(cudaMallocHost(&clock, sizeof *clock), "cudaMallocHost");
    read_clock<<<1, 1, 0, compute>>>(clock);
    (*this)(compute, "");
    check(cudaStreamSynchronize(compute), "kernels");
    begin_ = *clock;
    check(cudaFreeHost(clock), "cudaFreeHost");
  }
  void operator()(void* stream, const char* what) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "event");
    check(cudaEventRecord(event, static_cast<cudaStream_t>(stream)), "event");
    marks_.push_back({stream, what, event});
  }
  // Lines of {"gpu", "stream", "what", "begin", "end"}, when all is done.
  std::string lines(int gpu) const {
    const auto time = [&](const Mark& mark) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, marks_[0].event, mark.event), "time");
      return std::to_string(begin_ + static_cast<unsigned long long>(ms * 1e6));
    };
    std::string text;
    for (std::size_t i = 0; i < marks_.size(); ++i) {
      if (marks_[i].what.empty()) continue;
      std::size_t end = i + 1;
      while (end < marks_.size() && marks_[end].stream != marks_[i].stream) ++end;
      if (end == marks_.size()) continue;
      text += "{\"gpu\": " + std::to_string(gpu) + ", \"stream\": \"" +
              (marks_[i].stream == compute_ ? "compute" : "transfer") + "\", \"what\": \"" + marks_[i].what +
              "\", \"begin\": " + time(marks_[i]) + ", \"end\": " + time(marks_[end]) + "}\n";
    }
    return text;
  }

 private:
  struct Mark {
    void* stream;
    std::string what;
    cudaEvent_t event;
  };
  cudaStream_t compute_;
  unsigned long long begin_ = 0;
  std::vector<Mark> marks_;
};

// Where all ranks meet: they are there at the same time up to less than a microsecond.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks) {}
  void operator()() {
    const std::int64_t all = (came_++ / ranks_ + 1) * ranks_;
    while (came_ < all) std::this_thread::yield();
  }

 private:
  const std::int64_t ranks_;
  std::atomic<std::int64_t> came_ = 0;
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? 0 : x[x.size() / 2];
}

// What all ranks send in a turn, by the ring's formula; 0: Ulysses, which has another.
std::uint64_t bytes_of_turn(const Settings& s, const Mask& mask, int ranks) {
  if (s.layout() == RingLayout::Ulysses) return 0;
  const std::int64_t H = s.number("heads"), Hk = s.number("heads-k") ? s.number("heads-k") : H, D = s.number("dim");
  AnyProblem p({1, H, Hk, s.number("rows"), s.number("rows"), D, D}, Type::BFloat16, {.mask = mask});
  std::uint64_t bytes = bytes_sent(p, s.layout(), ranks);
  p.direction = Direction::Backward;
  if (s.number("backward")) bytes += bytes_sent(p, s.layout(), ranks, Type::BFloat16);
  return bytes;
}

void bench(const Settings& s) {
  const int n = static_cast<int>(s.number("gpus"));
  const std::int64_t S = s.number("rows"), group = s.number("group"), rounds = s.number("rounds");
  const bool alone = s.words.at("what") != "ring", together = s.words.at("what") != "one";
  const bool back = s.number("backward");
  const bool hopper = s.words.at("phase") == "24";
  if (!hopper && s.words.at("phase") != "20")
    refuse("--phase", s.words.at("phase"), "24 (with 19) or 20 (with 13)", "omit it for 24");
  const Phase& phase = hopper ? phase24::phase : phase20::phase;
  Options options;
  options.mask = s.number("causal") ? Mask::top_left() : Mask::none();
  options.ring.layout = s.layout();
  const Split split(s.layout(), n, S, S, options.mask);
  ncclUniqueId id{};
  if (together && ncclGetUniqueId(&id) != ncclSuccess) throw MachineError("ncclGetUniqueId failed");

  Meeting meet(n);
  std::vector<double> one_ms, ring_ms, ratios, errors;
  std::vector<double> last(static_cast<std::size_t>(n));
  std::atomic<std::uint64_t> sent = 0;  // by all, in a turn
  const auto one_gpu = [&](int rank) {
    check(cudaSetDevice(rank), "cudaSetDevice");
    const auto worker = on_gpu::gpu_worker(phase);
    const auto stream = static_cast<cudaStream_t>(worker->stream());
    std::optional<NcclComm> comm;
    std::optional<Arrays> mine, all;
    if (together) comm.emplace(id, rank, n, static_cast<double>(s.number("timeout")), stream);
    if (together) mine.emplace(*worker, s, split.rows(rank), options);
    if (together && n > 1)  // a call that stands beside an exchange
      for (AnyProblem* p : {&mine->there, &mine->back})
        p->options.spare_multiprocessors = static_cast<int>(s.number("spare"));
    if (alone && rank == 0) all.emplace(*worker, s, Share{0, S}, options);
    const Events events;
    const auto timed = [&](const auto& body) {
      check(cudaEventRecord(events.begin, stream), "event");
      body();
      check(cudaEventRecord(events.end, stream), "event");
      check(cudaEventSynchronize(events.end), "kernels");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, events.begin, events.end), "time");
      return static_cast<double>(ms);
    };
    const auto turn = [&] {
      for (const AnyProblem* p : {&mine->there, &mine->back})
        if (p == &mine->there || back)
          group ? in_groups(*comm, split, *p, *worker, group, on_rank) : on_rank(*comm, split, *p, *worker);
    };
    const auto whole = [&] {
      worker->call(all->there);
      if (back) worker->call(all->back);
    };
    // The first of each is timed where there is no other.
    if (together) last[static_cast<std::size_t>(rank)] = timed(turn), sent += comm->bytes_sent;
    const double first = all ? timed(whole) : 0;
    meet();
    if (rank == 0 && rounds == 0)
      one_ms.push_back(first), ring_ms.push_back(*std::max_element(last.begin(), last.end()));
    if (all && together) {  // equal before they are timed
      const Dense sums = worker->dense(Type::Float32, {1, 1, 1, 4});
      const auto apart = [&]<class T>(const AnyView& x, const AnyView& y) {
        double host[2];
        worker->zero(sums);
        compare<T><<<1056, 256, 0, stream>>>(static_cast<const T*>(x.data), static_cast<const T*>(y.data), mine->at,
                                             x.H(), static_cast<int>(x.D()), static_cast<double*>(sums.memory.get()));
        worker->download(host, sums);
        errors.push_back(std::sqrt(host[0] / host[1]));
      };
      apart.template operator()<bf16>(mine->there.o, all->there.o);
      apart.template operator()<float>(mine->there.lse, all->there.lse);
      for (const auto array : {&AnyProblem::dq, &AnyProblem::dk, &AnyProblem::dv})
        if (back) apart.template operator()<bf16>(mine->back.*array, all->back.*array);
      for (const double error : errors)
        if (!(error < 0.01)) throw MachineError("the ring and one call are " + std::to_string(error) + " apart");
    }
    const auto rest = [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(s.number("rest")));
      meet();
    };
    for (std::int64_t round = 0; round < rounds; ++round) {
      rest();
      if (all) one_ms.push_back(timed(whole));
      rest();
      if (together) last[static_cast<std::size_t>(rank)] = timed(turn);
      meet();
      if (rank == 0 && together) ring_ms.push_back(*std::max_element(last.begin(), last.end()));
      if (all && together) ratios.push_back(one_ms.back() / ring_ms.back());
    }
    if (s.words.at("trace").empty() || !together) return;
    Trace trace(stream);
    worker->mark = comm->mark = [&](void* on, const char* what) { trace(on, what); };
    meet();
    timed(turn);
    check(cudaDeviceSynchronize(), "kernels");
    worker->mark = comm->mark = [](void*, const char*) {};
    for (int turn_of = 0; turn_of < n; ++turn_of) {
      meet();
      if (turn_of == rank)
        std::ofstream(s.words.at("trace"), rank ? std::ios::app : std::ios::trunc) << trace.lines(rank);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      try {
        one_gpu(rank);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "ring_bench: GPU %d: %s\n", rank, e.what());
        std::fflush(stderr);
        std::_Exit(3);  // the others wait for this one
      }
    });
  for (std::thread& thread : threads) thread.join();
  const std::uint64_t formula = together ? bytes_of_turn(s, options.mask, n) : 0;
  if (formula && sent != formula)
    throw MachineError("the ranks have sent " + std::to_string(sent) + " bytes; the formula says " +
                       std::to_string(formula));

  std::printf("{");
  for (const auto& [flag, value] : s.words) std::printf("\"%s\": \"%s\", ", flag.c_str(), value.c_str());
  std::printf("\"one_ms\": %.4f, \"ring_ms\": %.4f, \"ratio\": %.3f, \"sent\": %llu, \"apart\": [", median(one_ms),
              median(ring_ms), median(ratios), static_cast<unsigned long long>(sent.load()));
  for (std::size_t i = 0; i < errors.size(); ++i) std::printf("%s%.2e", i ? ", " : "", errors[i]);
  std::printf("]}\n");
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const Settings settings(count, arguments);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < settings.number("gpus")) {
      std::printf("skipped: %d GPUs found, %s wanted\n", devices, settings.words.at("gpus").c_str());
      return 77;
    }
    bench(settings);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ring_bench: %s\n", e.what());
    return 2;
  }
  return 0;
}
