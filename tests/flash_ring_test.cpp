// flash_ring_test.cpp: flash-ring, run by mpirun as a user does: the bits of threads, on 1 to 4 ranks in every layout,
// files of all ranks or of each, the definition or a kernel phase; bad input, and ranks that disagree.
// ctest --test-dir build -R flash_ring; without MPI it says so and is skipped.
#include "tests/flash_ring.hpp"
#include "phases/20-backward-tensor-cores/phase.hpp"

using namespace flash;
using namespace flash::test;

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
  // Rank 0, who says so, comes last: the others must not have ended by then.
  refused(3, inputs + "--timeout $([ $OMPI_COMM_WORLD_RANK = 0 ] && sleep 1; echo 0)",
          "rank 0: --timeout is 0; expected seconds, more than 0; omit it for 60");
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

// The bits of threads whose ranks call the same phase.
TEST_CASE("flash-ring: a kernel phase on a simulator, forward and backward") {
  if (without_mpi()) return;
  Shell session;
  Halves x(session, {1, 2, 40, 64}, 33);
  x.on_threads(RingLayout::ZigZag, phase30::HostWorker(phase20::phase));
  for (const char* machine : {"sim", "checked"}) {
    if (std::string(machine) == "checked" && !was_built(Where::Checked)) continue;
    const Answer answer = ring(session, 2,
                               inputs + "--causal top-left --layout zig-zag --machine " + machine +
                                   " --phase 20 --dout do.npy --dq dq.npy --dk dk.npy --dv dv.npy");
    INFO(machine << ": " << answer.err);
    REQUIRE(answer.status == 0);
    CHECK(contains(answer.out, std::string("by 20-backward-tensor-cores on ") + machine));
    for (const auto& [name, array] : x.results()) {
      const NpyArray file = read_npy(session / (std::string(name) + ".npy"));
      INFO(name);
      CHECK(file.dtype == "float16");
      CHECK(std::memcmp(file.bytes.data(), array->data(), array->size() * sizeof(half)) == 0);
    }
  }

  const auto refused = [&](const std::string& words, const std::string& line) {
    const Answer answer = ring(session, 2, inputs + words);
    INFO(answer.err);
    CHECK(answer.status == 2);
    REQUIRE(said(answer).size() == 1);
    CHECK(contains(said(answer)[0], line));
  };
  refused("--machine cpu", "--machine is 'cpu'; expected host, sim, checked or gpu; omit it for host");
  refused("--phase 20",
          "--phase is 20; expected --machine with it: on the host it is the definition; add --machine sim");
  refused("--machine sim --phase 04", "expected host with phase 04-tiled-v2, which is no kernel; omit it");
  refused("--machine sim --phase 20 --window 3,0 --align top-left --layout striped",
          "window is 3 keys to the left; expected none in phase 20-backward-tensor-cores");
  if (!was_built(Where::Gpu))
    refused("--machine gpu", "--machine is gpu; expected host, sim or checked: this flash-ring was built without CUDA");
}
