// 30.4 lost-exchange: a rank of the ring has stopped: who can know which one it is?
// An exercise of phase 30; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 30.4     Prove it: ./flash exercise --check 30.4

//# question
// n ranks are a ring: in each exchange a rank sends to the next one, rank + 1, and receives from the one before; behind
// the last comes rank 0. One rank never begins an exchange, so some halves of it never happen. A rank knows of its own
// two halves alone: has what it sent been taken, and has it received? When the limit is over, whom does it name? Return
// that rank, or -1 where both halves are over and there is nobody to wait for.
// This is plain C++; one thread of the simulator runs it for each rank.

//# predict 2 Of six ranks one has stopped. How many of the others can name it in this exchange?

//# hint
// What has not been received was not sent. Who should have sent it?
//# hint
// What was sent and is not taken waits for the next rank. Behind rank n - 1 comes rank 0.
//# hint
// The rank before is (rank + n - 1) % n, so that it is no negative number; the next one is (rank + 1) % n.

//# because
// Two: the one behind it gets nothing, and what the one before it sends is not taken. The others have both halves, and
// wait in the next exchange, for a rank that waits itself.
//# next
// phases/30-ring/comm.hpp: the message names the rank. Whoever is further on waits a little longer, so that one of the
// two neighbours speaks first.

//# code

__device__ int missing(int rank, int n, bool sent, bool received) {
  //# hole The rank that this one waits for, or -1.
  if (!received) return (rank + n - 1) % n;
  if (!sent) return (rank + 1) % n;
  return -1;
  //# skeleton: Nobody is named
  //| return -1;
  //# wrong turned-round: wrong neighbour
  //| if (!received) return (rank + 1) % n;
  //| if (!sent) return (rank + n - 1) % n;
  //| return -1;
  //# wrong received-alone: what was sent
  //| return received ? -1 : (rank + n - 1) % n;
  //# wrong sent-alone: what was not received
  //| return sent ? -1 : (rank + 1) % n;
  //# wrong end-of-the-ring: end of the ring
  //| if (!received) return rank - 1;
  //| if (!sent) return rank + 1;
  //| return -1;
  //# also sent-first
  //| return !sent ? (rank + 1) % n : !received ? (rank == 0 ? n - 1 : rank - 1) : -1;
  //# end
}

__global__ void name(int n, const float* halves /*[cases, n, 2]*/, float* named /*[cases, n]*/) {
  const int i = static_cast<int>(blockIdx.x);
  named[i] = static_cast<float>(missing(i % n, n, halves[2 * i] != 0, halves[2 * i + 1] != 0));
}

//# judge

void judge(Trial& t) {
  constexpr int n = 6;  // case `lost`: that rank has stopped
  Floats halves(n * n * 2, 1);
  for (int lost = 0; lost < n; ++lost) {
    halves[(lost * n + (lost + n - 1) % n) * 2] = 0;  // not taken
    halves[(lost * n + (lost + 1) % n) * 2 + 1] = 0;  // nothing came
  }
  const auto on_halves = t.upload("halves", halves);
  const auto named = t.alloc("named", n * n);
  name<<<n * n, 1>>>(n, on_halves.data(), named.data());
  t.findings();
  const auto rule = [&](auto of) {
    Doubles all;
    for (int i = 0; i < n * n; ++i)
      all.push_back(i / n == i % n ? -1 : of(i % n, halves[2 * i] != 0, halves[2 * i + 1] != 0));
    return all;
  };
  const auto before = [](int rank) { return (rank + n - 1) % n; };
  const auto next = [](int rank) { return (rank + 1) % n; };
  Floats got = t.download(named);
  for (int lost = 0; lost < n; ++lost) got[lost * n + lost] = -1;  // it has stopped: whatever it would say
  t.answer(
      "the ranks named", got,
      rule([&](int r, bool sent, bool received) { return !received ? before(r)
                                                         : !sent   ? next(r)
                                                                   : -1; }), n * n,
      {{rule([](int, bool, bool) { return -1; }), "Nobody is named: all would wait for ever."},
       {rule([&](int r, bool sent, bool received) { return !received ? next(r)
                                                           : !sent   ? before(r)
                                                                     : -1; }),
        "That is the wrong neighbour: what comes, comes from the rank before, and what goes, goes to the next one."},
       {rule([&](int r, bool, bool received) { return received ? -1 : before(r); }),
        "The rank before the lost one would wait for ever: what was sent is not taken."},
       {rule([&](int r, bool sent, bool) { return sent ? -1 : next(r); }),
        "The rank behind the lost one would wait for ever: it must name the sender of what was not received."},
       {rule([](int r, bool sent, bool received) { return !received ? r - 1
                                                          : !sent   ? r + 1
                                                                    : -1; }),
        "At the end of the ring it goes on at the other end: there is no rank -1, and no rank n."}},
      1e-5, "list");
  int able = 0;
  for (int rank = 0; rank < n; ++rank) able += got[2 * n + rank] == 2;
  t.predicted(static_cast<std::uint64_t>(able));
}
