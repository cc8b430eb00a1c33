// flash-ring: attention over a sequence that is spread over MPI processes; each reads its rows of the files and writes
// its rows of the results. The algorithm is ring.hpp's or ulysses.hpp's, the calls are the definition's.
// mpirun -n 4 flash-ring --q q.npy --k k.npy --v v.npy --o o.npy [--lse lse.npy] [--causal bottom-right] …
#include <cinttypes>
#include <cstdio>
#include <new>

#include "phases/ring/mpi/comm.hpp"
#include "phases/ring/mpi/gpus.hpp"
#include "phases/ring/mpi/job.hpp"

namespace flash::phase30 {
namespace {

constexpr const char* usage =
    "usage: mpirun -n N flash-ring --q Q.npy --k K.npy --v V.npy --o O.npy [--lse LSE.npy]\n"
    "         [--causal none|top-left|bottom-right] [--window L,R [--align top-left|bottom-right]]\n"
    "         [--layout contiguous|zig-zag|striped|ulysses] [--scale X] [--softcap X] [--type bf16]\n"
    "         [--o-type float32]\n"
    "         [--dout dO.npy --dq dQ.npy --dk dK.npy --dv dV.npy [--dlse dLSE.npy]]\n"
    "         [--timeout SECONDS] [--threads N] [--machine host|sim|checked|gpu [--phase NN]]\n"
    "  all ranks see the same files, or each has its own: with --q q.%r.npy rank 0 reads q.0.npy, which holds its\n"
    "  rows alone, in the order of the layout; with --o o.%r.npy it writes such a file\n"
    "  --timeout (60): how long a rank waits for another, and then ends the job, status 3\n"
    "  --machine (host): who computes: the definition on the host, or a kernel phase, on a simulator or on a GPU that\n"
    "  each rank has for itself, with NCCL for messages; --phase: which, else the one that was measured fastest\n";

// 0 and a rank's job in words, or 2 and what is wrong.
struct Word {
  int status = 0;
  char text[1020] = {};
};

// The same verdict on all ranks: the first that failed, or whose job is another than rank 0's.
void agree(Comm& comm, int status, const std::string& text, const std::string& step) {
  Word mine{status, {}};
  std::snprintf(mine.text, sizeof mine.text, "%s", text.c_str());
  const std::vector<Word> words = gather(comm, mine, step);
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].status)
      throw Error((comm.size > 1 ? "rank " + std::to_string(rank) + ": " : "") + words[rank].text);
    if (std::strcmp(words[rank].text, words[0].text) != 0)
      throw Error("rank " + std::to_string(rank) + "'s job is '" + words[rank].text + "'; expected '" + words[0].text +
                  "' as in rank 0; give all ranks the same words, files and program");
  }
}

// What is wrong on this rank alone is told to all before anybody goes on.
template <class F>
void together(Comm& comm, const std::string& step, const F& f) {
  std::string text;
  int status = 0;
  try {
    text = f();
  } catch (const Error& e) {
    text = e.what(), status = 2;
  } catch (const std::bad_alloc&) {
    text = "out of memory; expected room for its rows; use more ranks or hosts", status = 1;
  }
  agree(comm, status, text, step);
}

// Does somebody look on? Under mpirun a rank's stderr is a pipe to mpirun, which writes on: then it is mpirun's that
// must be a terminal. To be asked before the rank has a keeper between itself and mpirun.
bool on_terminal() {
  if (isatty(STDERR_FILENO)) return true;
  const int file = open(("/proc/" + std::to_string(getppid()) + "/fd/2").c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK);
  const bool terminal = file >= 0 && isatty(file);
  if (file >= 0) close(file);
  return terminal;
}

int run(const std::vector<std::string>& words, Comm& comm, double limit, bool terminal) {
  std::unique_ptr<Job> job;
  together(comm, "opening the files", [&] {
    job = std::make_unique<Job>(words, comm.rank, comm.size);
    return job->own_files();
  });
  const bool on_gpus = job->machine() == Where::Gpu;
  if (on_gpus) take_gpu(comm);
  const std::vector<Lengths> lengths = gather(comm, job->lengths(), "adding up the files' rows");
  together(comm, "reading the files", [&] {
    job->read(lengths);
    return job->text();
  });
  const auto begin = std::chrono::steady_clock::now();
  // The others wait for a rank that cannot go on here: they cannot be told by messages.
  const auto no_room = [&] {
    return RankLost("rank " + std::to_string(comm.rank) +
                    " is out of memory; expected room for its rows and two blocks of keys; use more ranks or hosts");
  };
  std::string findings;
  try {
    const ProgressLine progress(terminal && comm.rank == 0);
    const std::unique_ptr<GpuWorker> worker = job->worker();
    const std::unique_ptr<Comm> nccl = on_gpus ? nccl_comm(comm, limit, worker->stream()) : nullptr;
    job->compute(nccl ? *nccl : comm, worker.get());
    if (worker && !worker->findings().empty()) findings = worker->findings()[0].text;
  } catch (const std::bad_alloc&) {
    throw no_room();
  } catch (const OutOfMemory&) {
    throw no_room();
  } catch (const MachineError& e) {
    throw RankLost("rank " + std::to_string(comm.rank) + " cannot go on: " + e.what());
  }
  together(comm, "the checks", [&] { return findings.empty() ? std::string() : throw Error(findings); });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const auto nothing = [](auto f) { return [f] { return f(), std::string(); }; };
  together(comm, "making the files", nothing([&] { job->create(); }));
  together(comm, "writing the files", nothing([&] { job->write(); }));
  together(comm, "naming the files", nothing([&] { job->publish(); }));
  if (comm.rank == 0)
    std::printf("phase 30-ring on %d ranks, %s: %.3f s, rank 0 has sent %" PRIu64 " bytes -> %s\n", comm.size,
                job->text().c_str(), seconds.count(), job->bytes_sent(), job->output().c_str());
  return 0;
}

}  // namespace
}  // namespace flash::phase30

int main(int count, char** arguments) {
  using namespace flash::phase30;
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.empty() || words[0] == "--help") return std::printf("%s", usage), 0;
  double limit = 60;
  try {
    limit = Job::limit_seconds(words);
  } catch (const flash::Error&) {
    // Job says what is wrong, when all ranks know it: mpirun ends the others as soon as one has ended with status 2.
  }
  const bool terminal = on_terminal();
  Keeper::begin();
  {
    Watchdog watchdog(limit, rank_name(), "MPI_Init");
    MPI_Init(nullptr, nullptr);
  }
  int status = 0;
  try {
    MpiComm comm(limit);
    try {
      status = run(words, comm, limit, terminal);
    } catch (const RankLost& e) {
      std::fprintf(stderr, "flash-ring: %s\n", e.what());
      std::fflush(stderr);
      MPI_Abort(MPI_COMM_WORLD, kLost);
    } catch (const flash::Error& e) {  // all ranks know it
      if (comm.rank == 0) std::fprintf(stderr, "flash-ring: %s\n", e.what());
      status = 2;
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "flash-ring: %s\n", e.what());
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, kLost);
  }
  Watchdog watchdog(limit, rank_name(), "MPI_Finalize");
  MPI_Finalize();
  return status;
}
