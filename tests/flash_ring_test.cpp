// flash_ring_test.cpp: flash-ring, run by mpirun as a user does: the bits of threads, on 1 to 4 ranks in every layout,
// files of all ranks or of each; bad input; ranks that hang, are killed, disagree or have no memory: the others end,
// and nothing unfinished is left.
// ctest --test-dir build -R flash_ring; without MPI it says so and is skipped.
#include <doctest/doctest.h>

#include <chrono>

#include "phases/30-ring/phase.hpp"
#include "phases/30-ring/shares.hpp"
#include "phases/arrays/npy_rows.hpp"
#include "phases/arrays/tensor.hpp"
#include "tests/program.hpp"
#include "tests/skip.hpp"

using namespace flash;
using namespace flash::test;

namespace {

constexpr const char* no_mpi = "no MPI here (apt-get install libopenmpi-dev openmpi-bin)";
bool without_mpi() {
  if (std::string(FLASH_RING_FILE).empty()) skip(no_mpi);
  return std::string(FLASH_RING_FILE).empty();
}

// flash-ring, or the one beside FLASH_PROGRAM: one that is wrong on purpose.
std::string program() {
  const char* other = std::getenv("FLASH_PROGRAM");
  return other ? std::filesystem::path(other).parent_path() / "flash-ring" : std::filesystem::path(FLASH_RING_FILE);
}
struct Shell : Session {
  Shell() : Session(FLASH_PROGRAM_FILE) {}  // whatever FLASH_PROGRAM is
};

// A shell's word.
std::string quoted(const std::string& text) {
  return "'" + text + "'";
}

// As root, on fewer cores than ranks, in a container.
const std::string machine =
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
    "OMPI_MCA_btl_vader_single_copy_mechanism=none; ";
std::string command(int ranks, const std::string& words, const std::string& rank_2 = ":") {
  const std::string shell = "if [ \"$OMPI_COMM_WORLD_RANK\" = 2 ]; then " + rank_2 + "; fi; exec \"$0\" " + words;
  return quoted(FLASH_MPIEXEC) + " -n " + std::to_string(ranks) + " sh -c " + quoted(shell) + " " + quoted(program());
}

// In the session's folder. `rank_2`: what rank 2's shell does before it becomes flash-ring.
Answer ring(const Shell& session, int ranks, const std::string& words, const std::string& rank_2 = ":") {
  return session.run({"-c", machine + "exec " + command(ranks, words, rank_2)});
}

// For a rank's shell: a signal to the rank itself, once it has worked for half a second. The process of $$ is its
// keeper, and the rank the last of its children; this shell is one, too.
std::string signalled(const char* signal) {
  return std::string(
             "{ (sleep 1; for p in $(cat /proc/$$/task/$$/children); do rank=$p; done; "
             "while set -- $(cat /proc/$rank/stat) && [ ${14:-50} -lt 50 ]; do sleep 0.1; done; kill -") +
         signal + " $rank) & }";
}

// The lines that flash-ring itself has written.
std::vector<std::string> said(const Answer& answer) {
  std::vector<std::string> lines;
  for (const std::string& line : lines_of(answer.err))
    if (line.rfind("flash-ring: ", 0) == 0) lines.push_back(line.substr(12));
  return lines;
}

struct Small {
  std::array<std::int64_t, 4> rows{2, 4, 37, 16}, keys{2, 2, 50, 16}, values{2, 2, 50, 8}, out{2, 4, 37, 8};
  Tensor<float> q = random_tensor<float>(rows, 30, 0), k = random_tensor<float>(keys, 30, 1),
                v = random_tensor<float>(values, 30, 2), dout = random_tensor<float>(out, 30, 3),
                o = make_tensor<float>(out), dq = make_tensor<float>(rows), dk = make_tensor<float>(keys),
                dv = make_tensor<float>(values), lse = make_tensor<float>({2, 4, 37, 1}), m = lse, l = lse;

  explicit Small(const Shell& session) {
    save(session / "q.npy", q), save(session / "k.npy", k), save(session / "v.npy", v), save(session / "do.npy", dout);
  }
  static void save(const std::string& path, const Tensor<float>& x) {
    const auto shape = shape_of(x);
    write_npy(path, {shape.begin(), shape.end()}, x.data());
  }
  AnyProblem problem(const Options& options, Direction direction) {
    AnyProblem p;
    p.direction = direction, p.options = options;
    p.q = any_of(view(q)), p.k = any_of(view(k)), p.v = any_of(view(v)), p.o = any_of(view(o));
    p.lse = any_of(view(lse)), p.m = any_of(view(m)), p.l = any_of(view(l));
    if (direction == Direction::Forward) return p;
    p.dout = any_of(view(dout)), p.dq = any_of(view(dq)), p.dk = any_of(view(dk)), p.dv = any_of(view(dv));
    return p;
  }
};

bool same(const std::string& path, const Tensor<float>& x, std::size_t rank = 4) {
  const NpyArray file = read_npy(path);
  return file.shape.size() == rank && file.bytes.size() == x.size() * sizeof(float) &&
         std::memcmp(file.bytes.data(), x.data(), file.bytes.size()) == 0;
}

constexpr RingLayout all_layouts[] = {RingLayout::Contiguous, RingLayout::ZigZag, RingLayout::Striped,
                                      RingLayout::Ulysses};

// Some rows of x, as a rank's own file has them.
std::vector<float> rows_of(const Tensor<float>& x, const phase30::Share& share) {
  const auto shape = shape_of(x);
  std::vector<float> out;
  for (std::int64_t head = 0; head < shape[0] * shape[1]; ++head)
    for (std::int64_t i = 0; i < share.size(); ++i) {
      const float* row = x.data() + (head * shape[2] + share[i]) * shape[3];
      out.insert(out.end(), row, row + shape[3]);
    }
  return out;
}
void save_rows(const std::string& path, const Tensor<float>& x, const phase30::Share& share) {
  const auto shape = shape_of(x);
  write_npy(path, {shape[0], shape[1], share.size(), shape[3]}, rows_of(x, share).data());
}

const std::string inputs = "--q q.npy --k k.npy --v v.npy --o o.npy ";

// Large enough to be stopped in the middle: seconds.
void save_large(const Shell& session) {
  for (const std::uint32_t stream : {0u, 1u, 2u})
    Small::save(session / (std::string(1, "qkv"[stream]) + ".npy"), random_tensor<float>({1, 4, 8000, 64}, 31, stream));
}

// Larger ones, of zeros: they take no room.
void save_zeros(const Session& session, std::int64_t rows, std::int64_t keys, std::int64_t D) {
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) {
    const std::vector<std::int64_t> shape = {1, 4, *name == 'q' ? rows : keys, D};
    const std::string header = npy_header("<f4", shape);
    put(session / name, header);
    std::filesystem::resize_file(session / name, header.size() + static_cast<std::size_t>(4 * shape[2] * D * 4));
  }
}

}  // namespace

TEST_CASE("flash-ring: the bits of threads, forward and backward") {
  if (without_mpi()) return;
  struct Asked {
    const char* words;
    Mask mask;
  };
  const Asked masks[] = {{"", Mask::none()},
                         {"--causal bottom-right", Mask::bottom_right()},
                         {"--window 9,3 --align top-left", {.left = 9, .right = 3}}};
  int number = 0;
  for (const RingLayout layout : all_layouts)
    for (int ranks = 1; ranks <= 4; ++ranks) {
      if (layout == RingLayout::Ulysses && ranks > 2) continue;  // K has two heads
      Asked asked = masks[number++ % 3];
      if (layout == RingLayout::ZigZag && asked.mask.is_window()) asked = masks[1];
      Shell session;
      Small x(session);
      const Answer answer = ring(session, ranks,
                                 inputs + asked.words + " --layout " + name(layout) +
                                     " --lse lse.npy --dout do.npy --dq dq.npy --dk dk.npy --dv dv.npy");
      INFO(answer.err);
      REQUIRE(answer.status == 0);
      const Options options{.mask = asked.mask, .ring = {ranks, layout}};
      enter(phase30::phase, x.problem(options, Direction::Forward));
      enter(phase30::phase, x.problem(options, Direction::Backward));
      CHECK(same(session / "o.npy", x.o));
      CHECK(same(session / "lse.npy", x.lse, 3));
      CHECK(same(session / "dq.npy", x.dq));
      CHECK(same(session / "dk.npy", x.dk));
      CHECK(same(session / "dv.npy", x.dv));
      CHECK(session.files().size() == 9);  // nothing else is left
    }
}

TEST_CASE("flash-ring: a rank's own files hold its rows alone, in the order of the layout") {
  if (without_mpi()) return;
  for (const RingLayout layout : all_layouts) {
    INFO(std::string(name(layout)));
    const int ranks = layout == RingLayout::Ulysses ? 2 : 3;
    Shell session;
    Small x(session);
    const Options options{.mask = Mask::bottom_right(), .ring = {ranks, layout}};
    const phase30::Split split(x.problem(options, Direction::Forward), ranks);
    const auto file = [&](const char* array, int rank) {
      return session / (std::string(array) + "." + std::to_string(rank) + ".npy");
    };
    for (int rank = 0; rank < ranks; ++rank) {
      save_rows(file("q", rank), x.q, split.rows(rank)), save_rows(file("do", rank), x.dout, split.rows(rank));
      save_rows(file("k", rank), x.k, split.keys(rank)), save_rows(file("v", rank), x.v, split.keys(rank));
    }
    // What a job leaves whose keepers, too, were killed.
    put(session / "o.1.npy.flash-unfinished", "?"), put(session / "o.npy.flash-unfinished", "?");
    const std::string asked = "--causal bottom-right --layout " + std::string(name(layout));
    const Answer own = ring(session, ranks,
                            "--q q.%r.npy --k k.%r.npy --v v.%r.npy --o o.%r.npy --lse lse.%r.npy --dout do.%r.npy "
                            "--dq dq.%r.npy --dk dk.%r.npy --dv dv.%r.npy " +
                                asked);
    INFO(own.err);
    REQUIRE(own.status == 0);
    const Answer mixed = ring(session, ranks, "--q q.npy --k k.%r.npy --v v.npy --o o.npy " + asked);
    INFO(mixed.err);
    REQUIRE(mixed.status == 0);
    enter(phase30::phase, x.problem(options, Direction::Forward));
    enter(phase30::phase, x.problem(options, Direction::Backward));
    CHECK(same(session / "o.npy", x.o));
    for (int rank = 0; rank < ranks; ++rank) {
      const auto holds = [&](const char* array, const Tensor<float>& all, const phase30::Share& share) {
        const std::vector<float> rows = rows_of(all, share);
        const NpyArray found = read_npy(file(array, rank));
        CHECK(found.shape.size() == (shape_of(all)[3] == 1 ? 3 : 4));
        CHECK(found.shape[2] == share.size());
        CHECK(found.bytes.size() == rows.size() * sizeof(float));
        CHECK(std::memcmp(found.bytes.data(), rows.data(), found.bytes.size()) == 0);
      };
      holds("o", x.o, split.rows(rank)), holds("lse", x.lse, split.rows(rank)), holds("dq", x.dq, split.rows(rank));
      holds("dk", x.dk, split.keys(rank)), holds("dv", x.dv, split.keys(rank));
    }
    CHECK(session.files().size() == 5 + static_cast<std::size_t>(9 * ranks));  // nothing unfinished
  }
}

TEST_CASE("flash-ring: a rank's own file that is not its part is refused") {
  if (without_mpi()) return;
  Shell session;
  Small x(session);
  const phase30::Split split(RingLayout::Contiguous, 3, 37, 50, Mask::none());  // 13, 12, 12 and 17, 17, 16
  for (const int rank : {0, 1, 2}) {
    const std::string end = "." + std::to_string(rank) + ".npy";
    save_rows(session / ("q" + end), x.q, split.rows(2 - rank));  // the last piece first
    save_rows(session / ("k" + end), x.k, split.keys(rank));
    save_rows(session / ("v" + end), x.v, split.keys(rank / 2));
  }
  const auto refused = [&](const std::string& words, const std::string& line, const std::string& rank_2 = ":") {
    const std::size_t before = session.files().size();
    const Answer answer = ring(session, 3, words + " --o o.%r.npy --layout contiguous", rank_2);
    INFO(answer.err);
    CHECK(answer.status == 2);
    REQUIRE(said(answer).size() == 1);
    CHECK(said(answer)[0] == line);
    CHECK(session.files().size() == before);
  };
  refused("--q q.%r.npy --k k.npy --v v.npy",
          "rank 0: number of rows S of q.0.npy is 12; expected 13, rank 0's of the 37 of all ranks in layout "
          "contiguous; cut the array as the layout does");
  refused("--q q.npy --k k.%r.npy --v v.%r.npy",
          "rank 0: V's sequence length S is 51; expected 50 as in K; make the shapes agree");
  refused("--q q.npy --k q.1%r.npy --v v.npy",
          "rank 0: q.10.npy: cannot be opened (No such file or directory); check the path");
  const std::string version = FLASHPHASES_VERSION;
  refused("--q q.npy --k ${k:-k.%r.npy} --v v.npy",
          "rank 2's job is '" + version + ", files of each rank: --o'; expected '" + version +
              ", files of each rank: --k --o' as in rank 0; give all ranks the same words, files and program",
          "k=k.npy");
}

TEST_CASE("flash-ring: bad input is one line and status 2, and nothing is written") {
  if (without_mpi()) return;
  Shell session;
  Small x(session);
  const auto refused = [&](int ranks, const std::string& words, const std::string& line,
                           const std::string& rank_2 = ":") {
    const Answer answer = ring(session, ranks, words, rank_2);
    INFO(answer.err);
    CHECK(answer.status == 2);
    REQUIRE(said(answer).size() == 1);
    CHECK(said(answer)[0] == line);
    CHECK(session.files().size() == 4);
  };
  refused(1, "--q q.npy --k k.npy --v v.npy", "--o is missing; expected --o VALUE; add it");
  refused(3, "--q q.npy --k none.npy --v v.npy --o o.npy",
          "rank 0: none.npy: cannot be opened (No such file or directory); check the path");
  refused(3, inputs + "--layout zig-zag --window 3,0 --align top-left",
          "rank 0: layout is zig-zag; expected contiguous or striped with a window; pass --layout striped");
  refused(3, inputs + "--layout ulysses",
          "rank 0: Q's number of heads H is 4; expected a multiple of the 3 ranks in layout ulysses; pass --layout "
          "striped");
  refused(3, inputs + "--dq dq.npy", "rank 0: --dq is given; expected --dout with it; add --dout dO.npy or omit it");
  refused(3, inputs + "--timeout 0", "--timeout is 0; expected seconds, more than 0; omit it for 60");
  // Rank 2 alone.
  refused(4, "--q q.npy --k k.npy --v ${v:-v}.npy --o o.npy",
          "rank 2: V's number of heads H is 4; expected 2 as in K; make the shapes agree", "v=q");
}

TEST_CASE("flash-ring: ranks that disagree are named, and end with status 2") {
  if (without_mpi()) return;
  Shell session;
  Small x(session);
  const Answer answer = ring(session, 4, inputs + "--scale ${s:-1}", "s=2");
  INFO(answer.err);
  CHECK(answer.status == 2);
  REQUIRE(said(answer).size() == 1);
  CHECK(said(answer)[0].rfind("rank 2's job is '", 0) == 0);
  CHECK(contains(said(answer)[0], "as in rank 0; give all ranks the same words, files and program"));
  CHECK(session.files().size() == 4);
}

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
  save_zeros(session, 400000, 400000, 16);
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

// Room for data, of which a rank without rows takes 20 to 40 MiB here: a limit on addresses (ulimit -v) would as soon
// meet what MPI maps.
TEST_CASE("flash-ring: a rank with less memory says so, and ends the others") {
  if (without_mpi()) return;
  const auto ends = [](std::int64_t keys, int status, const std::string& line) {
    Shell session;
    save_zeros(session, 8, keys, 64);
    const Answer answer = ring(session, 4, inputs + "--timeout 20", "ulimit -d 200000");  // 195 MiB
    INFO(answer.err);
    CHECK(answer.status == status);
    REQUIRE(said(answer).size() == 1);
    CHECK(said(answer)[0] == line);
    CHECK_FALSE(std::filesystem::exists(session / "o.npy"));
  };
  // Its K and V are 293 MiB; or 117, and as much again is to come.
  ends(600000, 2, "rank 2: out of memory; expected room for its rows; use more ranks or hosts");
  ends(240000, 3,
       "rank 2 is out of memory; expected room for its rows and two blocks of keys; use more ranks or hosts");
}
