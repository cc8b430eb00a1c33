// races_test.cpp: random programs against an exact verdict: every race is found, and nothing else is said.
// The verdict keeps every access and compares vector clocks; it shares no line and no shortcut with the simulator.
// Run: simt_races_test; more programs: FLASH_PROGRAMS=180000 simt_races_test; another sequence: FLASH_SEED=2
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <sstream>

#include "sim/checks/additions.hpp"
#include "sim/machine.hpp"
#include "tests/simt/races.hpp"

namespace {

using flash::Do, flash::MachineOptions, flash::Operation, flash::Order, flash::Program;
using Clock = std::vector<unsigned>;  // per thread: how many of its operations are known to be over

void join(Clock& into, const Clock& from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

bool plain(Do what) {
  return what == Do::read || what == Do::write;
}
bool atomic(Do what) {
  return what == Do::atomic_add || what == Do::atomic_exchange || what == Do::float_add;
}
bool changes(Do what) {
  return what == Do::write || what == Do::volatile_write || atomic(what);
}

// What the model of docs/simulator.md says about one execution.
class Verdict {
 public:
  Verdict(const Program& program, const std::vector<unsigned>& order)
      : program_(program), count_(program.blocks * program.threads), threads_(count_, Thread(count_)) {
    for (unsigned t : order) step(t, program.at(t, threads_[t].done++));
    for (const auto& [offset, additions] : additions_) unordered += in_no_order(additions);
  }
  bool race = false, lockstep = false;
  unsigned unordered = 0;  // elements to which floats are added in an order that nothing fixes

 private:
  struct Thread {
    explicit Thread(unsigned count)
        : known(count), seen(count), seen_near(count), released(count), released_near(count) {}
    unsigned done = 0;
    Clock known;            // ordered before
    Clock seen, seen_near;  // given by the device's or the own block's fences to what was read since the last fence
    Clock released, released_near;  // known at the last fence of device scope; at the last one of any
    bool fenced = false;
  };
  struct Past {
    Do what;
    unsigned thread, when;
    bool flag;                                            // a volatile store after a fence
    bool block_scope;                                     // of an atomic
    std::vector<std::pair<unsigned, unsigned>> observed;  // by an atomic: threads and times of others
  };
  // PTX, observation order: a read comes after the strong write whose value it gets, and after those that the writer,
  // if it is a read-modify-write, comes after. What has made the present value of a word since the last store:
  struct Writer {
    unsigned thread;
    bool block_scope;
    Clock released, released_near;
  };

  void step(unsigned t, const Operation& op) {
    Thread& me = threads_[t];
    me.known[t] = me.done;
    if (op.what == Do::barrier || op.what == Do::syncwarp) return meet(t, op);
    if (op.what == Do::fence) {
      join(me.known, me.seen_near);
      me.seen_near.assign(count_, 0);
      me.released_near = me.known, me.fenced = true;
      if (op.block_scope) return;
      join(me.known, me.seen);
      me.seen.assign(count_, 0);
      me.released = me.released_near = me.known;
      return;
    }
    note(t, op);
    for (unsigned byte = op.offset; byte < op.offset + op.bytes; ++byte) {
      const bool flag = me.fenced && op.what == Do::volatile_write;
      for (const Past& past : pasts_[byte])
        if (me.known[past.thread] < past.when && !observed(past, byte, me)) judge(past, op.what, flag, t);
      // A later store of the thread is what others see, also where it is a flag.
      if (op.what == Do::volatile_write)
        for (Past& past : pasts_[byte]) past.flag |= past.thread == t && past.what == Do::volatile_write;
      std::vector<std::pair<unsigned, unsigned>> chain;
      if (atomic(op.what)) chain = observed_by(t, op.block_scope, byte);
      pasts_[byte].push_back({op.what, t, me.done, flag, op.block_scope, chain});
    }
    if (plain(op.what)) return;
    std::vector<Writer>& writers = writers_[op.offset];
    if (op.what != Do::volatile_write) {
      Writer reader{t, op.block_scope, {}, {}};
      for (std::size_t i = writers.size(); i-- > 0 && strong(reader, writers[i]); reader = writers[i]) {
        join(me.seen, writers[i].released);
        if (block_of(writers[i].thread) == block_of(t)) join(me.seen_near, writers[i].released_near);
      }
    }
    if (op.what == Do::volatile_write) writers.clear();
    if (op.what != Do::volatile_read) writers.push_back({t, op.block_scope, me.released, me.released_near});
  }

  // An addition of a float: onto which value, and after which of those before it.
  struct Addition {
    unsigned thread, when;
    bool onto_zero;
    std::vector<bool> after;
  };

  // Two without order are allowed where they come onto 0, and all others before or after both.
  static bool in_no_order(const std::vector<Addition>& all) {
    const auto ordered = [&](std::size_t i, std::size_t j) { return i < j ? all[j].after[i] : all[i].after[j]; };
    for (std::size_t j = 0; j < all.size(); ++j)
      for (std::size_t i = 0; i < j; ++i) {
        if (ordered(i, j)) continue;
        if (!all[i].onto_zero || i + 1 != j) return true;
        for (std::size_t k = 0; k < all.size(); ++k)
          if (k != i && k != j && !(ordered(k, i) && ordered(k, j))) return true;
      }
    return false;
  }

  void note(unsigned t, const Operation& op) {
    if (op.what == Do::float_add) {
      std::vector<Addition>& all = additions_[op.offset];
      Addition own{t, threads_[t].done, !holds_value_[op.offset / 4], {}};
      for (const Addition& other : all) own.after.push_back(threads_[t].known[other.thread] >= other.when);
      all.push_back(std::move(own));
    }
    if (changes(op.what))
      for (unsigned byte = op.offset; byte < op.offset + op.bytes; byte += 4)
        holds_value_[byte / 4] = op.what != Do::write || !program_.clears;
  }

  // Each scope includes the other's thread.
  bool strong(const Writer& a, const Writer& b) const {
    return (!a.block_scope && !b.block_scope) || block_of(a.thread) == block_of(b.thread);
  }

  // The atomics that an atomic comes after which now reads the byte.
  std::vector<std::pair<unsigned, unsigned>> observed_by(unsigned t, bool block_scope, unsigned byte) const {
    for (std::size_t i = pasts_[byte].size(); i-- > 0;) {
      const Past& last = pasts_[byte][i];
      if (!changes(last.what)) continue;
      if (!atomic(last.what) || !strong({t, block_scope, {}, {}}, {last.thread, last.block_scope, {}, {}})) return {};
      std::vector<std::pair<unsigned, unsigned>> all = last.observed;
      all.emplace_back(last.thread, last.when);
      return all;
    }
    return {};
  }

  // Did an atomic observe it that is ordered before this thread's next operation?
  bool observed(const Past& past, unsigned byte, const Thread& me) const {
    if (!atomic(past.what)) return false;
    for (const Past& other : pasts_[byte])
      if (me.known[other.thread] >= other.when &&
          std::count(other.observed.begin(), other.observed.end(), std::pair(past.thread, past.when)) > 0)
        return true;
    return false;
  }

  void judge(const Past& past, Do now, bool flag, unsigned t) {
    if (!changes(past.what) && !changes(now)) return;
    if (plain(past.what) || plain(now)) {
      // Two reads are no race, nor are an atomic and a volatile access; a volatile read and a plain one neither.
      race = true;
      return;
    }
    const bool store = past.what == Do::volatile_write, store_now = now == Do::volatile_write;
    const bool load = past.what == Do::volatile_read, load_now = now == Do::volatile_read;
    if (((store && load_now) || (load && store_now)) && warp_of(past.thread) == warp_of(t) && !past.flag && !flag)
      lockstep = true;
  }

  unsigned block_of(unsigned t) const { return t / program_.threads; }
  unsigned warp_of(unsigned t) const { return t / program_.threads * 32 + t % program_.threads / 32; }

  // The last one to come takes all others with it.
  void meet(unsigned t, const Operation& op) {
    const bool barrier = op.what == Do::barrier;
    const unsigned block = t / program_.threads * program_.threads;
    std::vector<unsigned>& waiting = waiting_[{barrier ? block : count_ + warp_of(t), barrier ? 0 : op.mask}];
    waiting.push_back(t);
    std::size_t expected = static_cast<std::size_t>(std::popcount(op.mask));
    if (barrier)
      for (unsigned u = block; u < block + program_.threads; ++u) expected += has_barrier(u);
    if (waiting.size() < expected) return;
    Clock known(count_), released(count_), released_near(count_);
    for (unsigned u : waiting) {
      join(known, threads_[u].known), join(known, threads_[u].seen), join(known, threads_[u].seen_near);
      join(released, threads_[u].released), join(released_near, threads_[u].released_near);
    }
    for (unsigned u : waiting) {
      Thread& thread = threads_[u];
      thread.known = known, thread.released = released, thread.released_near = released_near;
      thread.seen.assign(count_, 0), thread.seen_near.assign(count_, 0);
      thread.fenced = false;
    }
    waiting.clear();
  }

  // Threads without operations exit at once; the others take part in all barriers of their block.
  bool has_barrier(unsigned t) const { return program_.at(t, 0).what != Do::end; }

  const Program& program_;
  unsigned count_;
  std::vector<Thread> threads_;
  std::array<std::vector<Past>, Program::kBytes> pasts_;
  std::map<unsigned, std::vector<Addition>> additions_;  // by address
  std::array<bool, Program::kBytes / 4> holds_value_{};  // other than 0
  std::map<unsigned, std::vector<Writer>> writers_;      // by address
  std::map<std::pair<unsigned, unsigned>, std::vector<unsigned>> waiting_;
};

// A few threads of two warps or of three blocks; steps in one sequence, of which each thread takes its own part, so
// that nobody waits for ever.
Program random_program(std::mt19937_64& random) {
  const auto any = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  Program p;
  p.in_shared = any(2);
  p.blocks = p.in_shared ? 1 : 1 + 2 * any(2);
  std::vector<unsigned> active;
  if (p.blocks == 1) {
    active = {0, 1, 2, 32, 33};
    if (any(2)) active = {0, 1, 2, 3};
  } else {
    p.threads = 34;
    active = {0, 1, 33, 34, 68, 69};
  }
  // The more synchronisation, the fewer races: about half of all programs have one.
  const unsigned steps = 3 + any(10), kinds = 1 + any(4), bytes = any(3) ? 4 : Program::kBytes;
  std::map<unsigned, std::vector<Operation>> lists;
  const auto any_thread = [&] { return active[any(static_cast<unsigned>(active.size()))]; };
  const auto fence = [&] { return Operation{.what = Do::fence, .block_scope = any(3) == 0}; };
  for (unsigned s = 0; s < steps; ++s) {
    const unsigned t = any_thread(), block = t / p.threads;
    Operation op;
    if (any(12) == 0) {  // a message to another thread: data, fence, flag; flag, fence, data
      const unsigned reader = any_thread();
      const Operation flag{.what = Do::atomic_add, .offset = 12, .block_scope = any(3) == 0}, data{Do::write, 8};
      for (const Operation& part : {data, fence(), flag}) lists[t].push_back(part);
      for (const Operation& part : {flag, fence(), {Do::read, 8}}) lists[reader].push_back(part);
      continue;
    }
    if (const unsigned chance = any(10); chance < 2) {
      op.what = Do::barrier;
      for (unsigned u : active)
        if (u / p.threads == block) lists[u].push_back(op);
      continue;
    } else if (chance < 4) {
      op.what = Do::syncwarp;
      for (unsigned u : active)
        if (u / p.threads == block && u % p.threads / 32 == t % p.threads / 32 && (u == t || any(4)))
          op.mask |= 1u << u % p.threads % 32;
      for (unsigned u : active)
        if (u / p.threads == block && u % p.threads / 32 == t % p.threads / 32 && op.mask >> u % p.threads % 32 & 1)
          lists[u].push_back(op);
      continue;
    } else if (chance < 5) {
      op = fence();
    } else if (const unsigned kind = any(kinds); kind == 0) {
      op.what = any(3) ? Do::read : Do::write;
      op.bytes = static_cast<std::uint8_t>(1u << any(4));
      if (bytes < op.bytes) op.bytes = 4;
      op.offset = static_cast<std::uint8_t>(any(bytes / op.bytes) * op.bytes);
    } else {
      const Do unusual[] = {Do::atomic_add, Do::atomic_exchange, Do::volatile_read, Do::volatile_write};
      op.what = unusual[any(4)];
      op.offset = static_cast<std::uint8_t>(any(bytes / 4) * 4);
      op.block_scope = atomic(op.what) && any(4) == 0;
    }
    lists[t].push_back(op);
    // A thread often resets with a plain store what it counted with an atomic.
    if (!atomic(op.what) || any(3) > 0) continue;
    op.what = any(2) ? Do::read : Do::write, op.block_scope = false;
    lists[t].push_back(op);
  }
  for (const auto& [t, list] : lists) p.length = std::max(p.length, static_cast<unsigned>(list.size()));
  p.length = std::max(p.length, 1u);
  p.operations.resize(std::size_t{p.blocks} * p.threads * p.length);
  for (const auto& [t, list] : lists)
    std::copy(list.begin(), list.end(), p.operations.begin() + static_cast<std::ptrdiff_t>(t) * p.length);
  return p;
}

// The same with floats, in the first 8 bytes many more of them: only plain stores stay what they are.
Program of_floats(Program program, bool clears) {
  program.clears = clears;
  for (Operation& op : program.operations) {
    const bool access = op.what >= Do::read && op.what < Do::fence;
    const bool adds = atomic(op.what) ? op.offset < 12 : access && op.what != Do::write && op.offset < 8;
    if (adds) op.what = Do::float_add;
    if (adds || op.what == Do::write) op.bytes = 4, op.offset = static_cast<std::uint8_t>(op.offset / 4 * 4);
  }
  return program;
}

std::string listing(const Program& p) {
  const char* names[] = {"end",      "read",  "write",    "volatile read", "volatile write", "add",
                         "exchange", "fence", "syncwarp", "barrier",       "float add"};
  std::ostringstream text;
  text << (p.in_shared ? "shared" : "global") << ", " << p.blocks << " blocks of " << p.threads << "\n";
  for (unsigned t = 0; t < p.blocks * p.threads; ++t) {
    if (p.at(t, 0).what == Do::end) continue;
    text << "  thread " << t << ":";
    for (unsigned i = 0; i < p.length && p.at(t, i).what != Do::end; ++i) {
      const Operation& op = p.at(t, i);
      text << " " << names[static_cast<int>(op.what)];
      if (op.block_scope) text << " of the block";
      if (op.what < Do::fence || op.what == Do::float_add) text << "@" << int{op.offset} << "+" << int{op.bytes};
      if (op.what == Do::syncwarp) text << "(" << std::hex << op.mask << std::dec << ")";
      text << ";";
    }
    text << "\n";
  }
  return text.str();
}

unsigned long from_environment(const char* name, unsigned long otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoul(text, nullptr, 10) : otherwise;
}

}  // namespace

TEST_CASE("findings come block by block in each order, and those of a launch are counted for it alone") {
  Program program{.blocks = 3, .length = 1, .operations = std::vector<Operation>(3 * 64)};
  for (unsigned block = 0; block < 3; ++block) {  // a race of two warps in each, and no two are alike
    const auto offset = static_cast<std::uint8_t>(4 * block);
    program.operations[64 * block] = {block == 2 ? Do::atomic_add : Do::write, offset};
    program.operations[64 * block + 32] = {block == 1 ? Do::read : Do::write, offset};
  }
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    CAPTURE(static_cast<int>(order));
    flash::on_checked::Machine machine({.order = order, .threads = 1, .keep_going = true});
    run_program(machine, program);
    run_program(machine, program);
    const std::vector<flash::Finding>& found = machine.findings();  // of both launches
    REQUIRE(found.size() == 6);
    for (std::size_t i = 0; i < found.size(); ++i) {
      CAPTURE(found[i].text);
      CHECK(found[i].kind == "race");
      CHECK(found[i].text.find("block (" + std::to_string(i % 3) + ",0,0)") != std::string::npos);
      CHECK(found[i].count == 1);
    }
  }
}

TEST_CASE("words that many threads have read are looked at again when one has written them") {
  for (const bool in_shared : {true, false}) {
    CAPTURE(in_shared);
    Program program{.in_shared = in_shared, .blocks = in_shared ? 1u : 4u, .length = 11, .operations = {}};
    const unsigned writer = in_shared ? 40 : 2 * program.threads + 40, all = program.blocks * program.threads;
    for (unsigned t = 0; t < all; ++t) {
      std::vector<Operation> list(8, {Do::read, 0});
      if (in_shared) list.insert(list.begin(), {Do::barrier});
      if (in_shared && t == 0) list.insert(list.begin(), {Do::write, 0});  // as a whole, not byte by byte
      if (t == writer) list.push_back({Do::write, 0});
      list.resize(program.length);
      program.operations.insert(program.operations.end(), list.begin(), list.end());
    }
    flash::on_checked::Machine machine({.threads = 1, .keep_going = true});
    run_program(machine, program);
    std::uint64_t reads = 0, writes = 0;
    for (const flash::Finding& f : machine.findings())
      (f.text.find("read after write") != std::string::npos ? reads : writes) += f.count;
    CHECK(writes == 1);
    CHECK(reads == 8 * (all - writer - 1));  // of all that come later
  }
}

// After the second barrier thread 0 reads, waits so long that thread 1 reads, too, and writes.
TEST_CASE("what a warp has read before a barrier is read anew behind it") {
  std::vector<Operation> reads{{Do::barrier}, {Do::read, 0}, {Do::barrier}, {Do::read, 0}}, writes{{Do::write, 0}};
  writes.insert(writes.end(), reads.begin(), reads.end());
  writes.insert(writes.end(), 100, {Do::atomic_add, 4});
  writes.push_back({Do::write, 0});
  Program program{.in_shared = true, .length = static_cast<unsigned>(writes.size()), .operations = writes};
  reads.resize(writes.size());
  program.operations.insert(program.operations.end(), reads.begin(), reads.end());
  program.operations.resize(program.threads * writes.size());
  flash::on_checked::Machine machine({.threads = 1, .keep_going = true});
  const std::vector<unsigned> order = run_program(machine, program);
  REQUIRE(order.back() == 0);
  REQUIRE(machine.findings().size() == 1);
  CHECK(machine.findings()[0].text.find("write after read") != std::string::npos);
}

TEST_CASE("random programs: each race is found, and no other") {
  const unsigned long programs = from_environment("FLASH_PROGRAMS", 6'000), seed = from_environment("FLASH_SEED", 1);
  std::mt19937_64 random(seed);
  std::optional<flash::on_checked::Machine> machine;
  unsigned long racy = 0, missed = 0, accused = 0, lockstep = 0;
  for (unsigned long i = 0; i < programs; ++i) {
    const Program program = random_program(random);
    if (i % 64 == 0)
      machine.emplace(
          MachineOptions{.order = static_cast<Order>(i / 64 % 3), .seed = i, .threads = 1, .keep_going = true});
    machine->clear();
    const Verdict verdict(program, run_program(*machine, program));
    bool race = false, step = false, other = false;
    std::string text;
    for (const flash::Finding& f : machine->findings()) {
      race |= f.kind == "race", step |= f.kind == "lockstep assumed";
      other |= f.kind != "race" && f.kind != "lockstep assumed";
      text += f.text + "\n";
    }
    racy += verdict.race, lockstep += !verdict.race && verdict.lockstep;
    const bool right = race == verdict.race && (race || step == verdict.lockstep) && !other;
    missed += (verdict.race && !race) || (!verdict.race && verdict.lockstep && !step);
    accused += !right && !((verdict.race && !race) || (!verdict.race && verdict.lockstep && !step));
    if (!right && missed + accused <= 5)
      FAIL_CHECK("program ", i, ", race: ", verdict.race, ", lockstep: ", verdict.lockstep, "\n", listing(program),
                 text);
  }
  MESSAGE(programs, " programs, ", racy, " with a race, ", lockstep, " that assume lockstep: ", missed, " missed, ",
          accused, " accused falsely");
  CHECK(missed + accused == 0);
  CHECK(racy > programs / 5);  // neither rare nor the rule
  CHECK(racy < programs * 4 / 5);
}

TEST_CASE("random programs: additions of floats in no fixed order are found, and no others") {
  std::mt19937_64 random(from_environment("FLASH_SEED", 2));
  std::optional<flash::on_checked::Machine> machine;
  const unsigned long programs = from_environment("FLASH_PROGRAMS", 6'000);
  unsigned long judged = 0, told = 0, wrong = 0;
  for (unsigned long i = 0; i < programs; ++i) {
    const Program program = of_floats(random_program(random), i % 2);
    if (i % 64 == 0)
      machine.emplace(MachineOptions{.order = static_cast<Order>(i / 64 % 3),
                                     .seed = i,
                                     .threads = 1,
                                     .keep_going = true,
                                     .deterministic = i / 64 % 2 == 0});
    machine->clear();
    const Verdict verdict(program, run_program(*machine, program));
    if (verdict.race || verdict.lockstep) continue;
    ++judged, told += verdict.unordered > 0;
    std::uint64_t elements = 0, found = 0;
    std::string text;
    for (const flash::UnorderedAdditions& u : machine->reports()[0].unordered) elements += u.elements;
    for (const flash::Finding& f : machine->findings()) found += f.count, text += f.text + "\n";
    const bool right =
        elements == verdict.unordered && found == (machine->options().deterministic ? verdict.unordered : 0);
    wrong += !right;
    if (!right && wrong <= 5)
      FAIL_CHECK("program ", i, ": ", verdict.unordered, " elements, told ", elements, ", found ", found, "\n",
                 listing(program), text);
  }
  MESSAGE(judged, " programs without a race, ", told, " with additions in no fixed order, ", wrong, " judged wrongly");
  CHECK(wrong == 0);
  CHECK(told > judged / 20);
}

TEST_CASE("with several workers, too, the last atomic comes after the others") {
  flash::on_checked::Machine machine({.threads = 4, .keep_going = true});
  take_tickets(machine, 4, 200'000);
  CHECK(machine.findings().empty());
}

TEST_CASE("blocks that wait for each other are a deadlock when there are more of them than workers") {
  flash::on_checked::Machine machine({.threads = 3, .keep_going = true});
  meet_all(machine, 3);
  CHECK(machine.findings().empty());
  meet_all(machine, 12);
  REQUIRE(machine.findings().size() == 1);
  CHECK(machine.findings()[0].kind == "deadlock");
}

TEST_CASE("a long launch says how far it is, where it is asked to, and takes that back") {
  std::ostringstream said;
  std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
  for (const bool asked : {false, true}) {
    flash::on_checked::Machine machine({.threads = 1, .progress = asked ? 0.1 : 0});
    take_tickets(machine, 800'000, 1);  // half a second; it speaks after a tenth
    CHECK((said.str().find(" of 800000 blocks") != std::string::npos) == asked);
  }
  std::cerr.rdbuf(before);
  CHECK(said.str().ends_with(isatty(STDERR_FILENO) ? "\r\033[K" : " of 800000 blocks have run\n"));
}
