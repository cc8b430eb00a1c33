// flash_ring_faults_test.cpp: flash-ring, where ranks hang, are killed, told to end, or have no memory or disk: the
// others end, one line names the rank, and nothing unfinished is left. What a terminal shows meanwhile.
// ctest --test-dir build -R flash_ring_faults; without MPI it says so and is skipped.
#include <chrono>

#include "tests/flash_ring.hpp"

using namespace flash;
using namespace flash::test;

namespace {

// For a rank's shell: a signal to the rank itself, once it has worked for half a second. The process of $$ is its
// keeper, and the rank the last of its children; this shell is one, too.
std::string signalled(const char* signal) {
  return std::string(
             "{ (sleep 1; for p in $(cat /proc/$$/task/$$/children); do rank=$p; done; "
             "while set -- $(cat /proc/$rank/stat) && [ ${14:-50} -lt 50 ]; do sleep 0.1; done; kill -") +
         signal + " $rank) & }";
}

// Large enough to be stopped in the middle: seconds.
void save_large(const Shell& session) {
  for (const std::uint32_t stream : {0u, 1u, 2u})
    Small::save(session / (std::string(1, "qkv"[stream]) + ".npy"), random_tensor<float>({1, 4, 8000, 64}, 31, stream));
}

}  // namespace

TEST_CASE("flash-ring: a rank that hangs or is killed ends the others in time, with one line that names it") {
  if (without_mpi()) return;
  Shell session;
  save_large(session);
  const auto ends = [&](const std::string& fault, int status, const std::string& names) {
    const auto begin = std::chrono::steady_clock::now();
    const Answer answer = ring(session, 4, inputs + "--timeout 5", fault);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    INFO(fault << ": " << answer.err);
    CHECK(answer.status == status);
    CHECK(contains(answer.err, names));
    CHECK(seconds.count() < 40);  // 5 s are asked for; the machine may be busy
    CHECK(session.files().size() == 3);
  };
  ends("kill -STOP $$", 3, "has waited 5 s in MPI_Init; expected all ranks there");
  ends(signalled("STOP"), 3, "see what rank 2 does");
  ends(signalled("KILL"), 3, "flash-ring: rank 2 was ended by signal 9 (Killed); expected it to finish");
  ends(signalled("SEGV"), 3, "flash-ring: rank 2 was ended by signal 11 (Segmentation fault); expected it to finish");
  // Its keeper, and the rank with it: nobody is left who could speak, and Open MPI 4.1 says so in its own words.
  ends("{ (sleep 1; kill -KILL $$) & }", 128 + SIGKILL, "process rank 2 ");
}

TEST_CASE("flash-ring: a job that is told to end, or has no room for a file, leaves nothing unfinished") {
  if (without_mpi()) return;
  Shell session;
  save_zeros(session, "<f4", {1, 4, 400000, 16}, 400000);
  // A row sees its own key alone: most of the time goes into writing rows, one by one. mpirun takes a second of it.
  const std::string words = "--q q.npy --k k.npy --v v.npy --window 0,0 --align top-left ";
  const Answer told = session.run(
      {"-c", machine + command(4, words + "--o o.npy --lse lse.npy --dout q.npy --dq dq.npy --dk dk.npy --dv dv.npy") +
                 " & job=$!; while kill -0 $job && ! [ -e o.npy.flash-unfinished ]; do sleep 0.01; done; "
                 "kill -TERM $job; wait $job"});
  INFO(told.err);
  CHECK(told.status != 0);
  CHECK(session.files().size() == 3);
  // Files of each rank: the others have made theirs. 5 MiB are enough for what MPI makes.
  const Answer full = ring(session, 4, words + "--o o.%r.npy --lse lse.%r.npy", "ulimit -f 10240");
  INFO(full.err);
  CHECK(full.status == 3);
  REQUIRE(said(full).size() == 1);
  CHECK(contains(said(full)[0], "rank 2 was ended by signal 25 (File size limit exceeded)"));
  CHECK(session.files().size() == 3);
}

TEST_CASE("flash-ring: a terminal shows the step, anything else nothing") {
  if (without_mpi()) return;
  Shell session;
  if (session.run({"-c", "command -v script"}).status != 0) return skip("no script (apt-get install bsdutils)");
  save_large(session);
  put(session / "job.sh", machine + command(2, inputs + "--layout contiguous"));  // seconds
  const Answer terminal = session.run({"-c", "exec script -qec 'sh job.sh' /dev/null"});
  INFO(terminal.out);
  CHECK(terminal.status == 0);
  CHECK(contains(terminal.out, "\rstep 1 of 2, "));
  const Answer file = session.run({"-c", "exec script -qec 'sh job.sh 2>err.txt' /dev/null"});
  CHECK(file.status == 0);
  CHECK_FALSE(contains(file.out, "step"));
  CHECK(session.files()["err.txt"].empty());
}

// Room for data, of which a rank without rows takes 90 to 120 MiB here, most of it the simulator's tables: a limit on
// addresses (ulimit -v) would as soon meet what MPI maps.
TEST_CASE("flash-ring: a rank with less memory says so, and ends the others") {
  if (without_mpi()) return;
  const auto ends = [](std::int64_t keys, int status, const std::string& line) {
    Shell session;
    save_zeros(session, "<f4", {1, 4, 8, 64}, keys);
    const Answer answer = ring(session, 4, inputs + "--timeout 20", "ulimit -d 400000");  // 391 MiB
    INFO(answer.err);
    CHECK(answer.status == status);
    REQUIRE(said(answer).size() == 1);
    CHECK(said(answer)[0] == line);
    CHECK_FALSE(std::filesystem::exists(session / "o.npy"));
  };
  // Its K and V are 439 MiB; or 195, and as much again is to come.
  ends(900000, 2, "rank 2: out of memory; expected room for its rows; use more ranks or hosts");
  ends(400000, 3,
       "rank 2 is out of memory; expected room for its rows and two blocks of keys; use more ranks or hosts");
}
