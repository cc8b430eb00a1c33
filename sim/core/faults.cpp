// faults.cpp: see faults.hpp. The handler itself only looks and redirects; words are found after it has returned, on
// the fiber, whose own frames are abandoned: the block stops.
// Use: see faults.hpp.
#include "sim/core/faults.hpp"

#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <thread>
#include <utility>

#include "sim/core/block.hpp"

namespace flash::simt {
namespace {

constexpr int kTimeIsUp = SIGURG;  // ignored where nobody handles it, and hardly used
#if defined(__SANITIZE_ADDRESS__)  // its own handlers say more
constexpr int kSignals[] = {kTimeIsUp, SIGINT};
#else
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, kTimeIsUp, SIGINT};
#endif
struct sigaction before[NSIG];  // what the program had

std::atomic<bool> interruptions{false};
std::atomic<int> running{0};  // launches

}  // namespace

static std::atomic<bool> forked{false};

// One thread for all launches of the program. It sleeps until the first deadline or Ctrl-C, and then asks again every
// millisecond: a thread that is in the simulator's own code does not stop there.
struct Watch {
  std::mutex mutex;
  std::vector<Watched*> launches;  // that run
  sem_t wake;

  Watch() {
    sem_init(&wake, 0, 0);
    std::thread([this] { run(); }).detach();
  }
  static Watch& instance() {
    // Never destroyed: its thread ends with the program. A process that was forked has none: it gets one of its own.
    static Watch* watch = [] {
      pthread_atfork(nullptr, nullptr, [] { forked = true; });
      return new Watch;
    }();
    if (forked.exchange(false)) watch = new Watch, running = 0;
    return *watch;
  }
  void run() {
    using Clock = std::chrono::steady_clock;
    for (auto next = Clock::time_point::max();;) {
      if (next == Clock::time_point::max()) {
        sem_wait(&wake);
      } else {
        const auto ns = next.time_since_epoch() / std::chrono::nanoseconds(1);
        const timespec until{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
        sem_clockwait(&wake, CLOCK_MONOTONIC, &until);
      }
      const std::lock_guard lock(mutex);
      const bool interrupt = interruptions.exchange(false);
      next = Clock::time_point::max();
      for (Watched* launch : launches) {
        launch->interrupted_ |= interrupt;
        if (launch->interrupted_ || Clock::now() >= launch->deadline_) {
          launch->over_ = true;
          for (const pthread_t thread : launch->threads_) pthread_kill(thread, kTimeIsUp);
          next = std::min(next, Clock::now() + std::chrono::milliseconds(1));
        } else {
          next = std::min(next, launch->deadline_);
        }
      }
    }
  }
};

namespace {

// What the handler found, for explain().
struct Fault {
  int signal = 0;
  const std::byte* address = nullptr;
  const void* pc = nullptr;
  const void *const *sp = nullptr, *const *stack_end = nullptr;
};
thread_local Fault fault;

// The line that runs; where that is the simulator's own code, the caller's: the first word on the stack that is an
// address in a kernel. A side's program counter is the one after the call or access.
const void* line_of_kernel() {
  const void* after = static_cast<const char*>(fault.pc) + 1;
  if (site_of(after) != "?") return after;
  for (const void* const* word = fault.sp; word < fault.stack_end; ++word)
    if (site_of(*word) != "?") return *word;
  return after;
}

RawFinding described(const Worker& worker) {
  RawFinding finding{"out of bounds", "", "", {worker.side("runs", line_of_kernel())}, worker.block};
  std::ostringstream what;
  if (fault.signal == kTimeIsUp) {
    finding.kind = kNoEnd;
    what << "a thread still runs when the launch is to end (its time is over, or Ctrl-C)";
    finding.remedy = "see that the loop ends, or give it more time";
  } else if (fault.signal == SIGFPE) {
    finding.kind = "division by zero";
    what << "of an integer (or the least number by -1)";
    finding.remedy = "test the divisor: a GPU goes on with some number";
  } else if (fault.address < worker.stack && fault.address >= worker.stack - kStackGuard) {
    finding.kind = "stack overflow";
    what << "local variables and calls need more than the thread's " << (worker.stack_bytes + kStackGuard) / 1024
         << " KiB";
    finding.remedy = "use smaller local arrays or less recursion: a GPU gives a thread 512 KiB at most";
  } else {
    // The processor does not say which address when it is none that a pointer can have.
    what << "access to ";
    fault.address ? what << static_cast<const void*>(fault.address) << "," : what << "null or";
    what << " an address outside every device array";
    finding.remedy = "guard the access or fix the index; the checked simulator names the nearest array";
  }
  finding.what = what.str();
  return finding;
}

// On the fiber again, at the top of its stack: a finding, and the end of the block. The fiber never goes on, so nothing
// that has a destructor may live here then.
[[noreturn]] void explain() {
  Worker& worker = *running_worker;
  active_worker = nullptr;
  worker.findings.add(described(worker));
  worker.stop_block();
}

// To whom it went before.
void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& old = before[signal];
  if (old.sa_flags & SA_SIGINFO) return old.sa_sigaction(signal, info, context);
  if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) return old.sa_handler(signal);
  sigaction(signal, &old, nullptr);  // what faulted faults again
  if (info->si_code <= 0) raise(signal);
}

void handler(int signal, siginfo_t* info, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  auto &pc = registers.gregs[REG_RIP], &sp = registers.gregs[REG_RSP];
#elif defined(__aarch64__)
  auto &pc = registers.pc, &sp = registers.sp;
#endif
  // Does this OS thread run a fiber? Its stack pointer lies there, or in the guard that it has just hit.
  Worker* const worker = running_worker;
  const auto in_fiber = [&](std::uintptr_t address) {
    const auto stack = reinterpret_cast<std::uintptr_t>(worker->stack);
    return address - (stack - kStackGuard) < worker->stack_bytes + kStackGuard;
  };
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  const bool ours = worker && worker->stack && in_fiber(static_cast<std::uintptr_t>(sp));
  if (signal == kTimeIsUp) {
    if (running == 0 && before[signal].sa_handler != SIG_DFL) return pass_on(signal, info, context);
    // In the simulator's own code (active_worker is null) locks may be held: the watchdog asks again.
    if (!ours || !active_worker) return;
  } else if (!ours) {
    return pass_on(signal, info, context);
  }
  // In the guard there is nothing to read, and above the stack neither; 4 KiB hold the caller's frame.
  const auto words = std::max(static_cast<std::uintptr_t>(sp), reinterpret_cast<std::uintptr_t>(worker->stack));
  const auto first = (words + 7) / 8 * 8;
  const auto top = reinterpret_cast<std::uintptr_t>(worker->stack) + worker->stack_bytes - 256;
  const auto pointer = [](std::uintptr_t at) { return reinterpret_cast<const void* const*>(at); };
  fault = {signal, address, reinterpret_cast<const void*>(pc), pointer(first), pointer(std::min(first + 4096, top))};
  pc = static_cast<decltype(pc + 0)>(reinterpret_cast<std::uintptr_t>(&explain));
  sp = static_cast<decltype(sp + 0)>(top / 16 * 16 - 8);  // as after a call
}

// Ctrl-C.
void interrupted(int signal, siginfo_t* info, void* context) {
  if (running == 0) return pass_on(signal, info, context);
  interruptions = true;
  sem_post(&Watch::instance().wake);
}

// A stack for signals, of each OS thread that runs blocks: the fault may be that its own is full. It stays until the
// thread ends. A program that has one keeps it.
class SignalStack {
 public:
  void enter() {
    if (given_) return;
    stack_t old{};
    given_ = sigaltstack(nullptr, &old) == 0 && old.ss_flags & SS_DISABLE && room_ != MAP_FAILED;
    const stack_t stack{room_, 0, kBytes};
    if (given_) sigaltstack(&stack, nullptr);
  }
  ~SignalStack() {
    const stack_t none{nullptr, SS_DISABLE, 0};
    if (given_) sigaltstack(&none, nullptr);
    if (room_ != MAP_FAILED) munmap(room_, kBytes);
  }

 private:
  static constexpr std::size_t kBytes = 64 * 1024;
  void* const room_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  bool given_ = false;
};
thread_local SignalStack signal_stack;

// From the first machine's begin to the last one's end.
void handle(bool begins) {
  struct sigaction ours {};
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  for (const int signal : kSignals) {
    if (!begins) {
      sigaction(signal, &before[signal], nullptr);
      continue;
    }
    ours.sa_sigaction = signal == SIGINT ? interrupted : handler;
    sigaction(signal, &ours, &before[signal]);
    // A program with an answer of its own to Ctrl-C keeps it.
    if (signal == SIGINT && before[SIGINT].sa_handler != SIG_DFL) sigaction(SIGINT, &before[SIGINT], nullptr);
  }
}

std::mutex handlers_mutex;
int handlers_count = 0;

}  // namespace

Handlers::Handlers() {
  const std::lock_guard lock(handlers_mutex);
  if (handlers_count++ == 0) handle(true);
}

Handlers::~Handlers() {
  const std::lock_guard lock(handlers_mutex);
  if (--handlers_count == 0) handle(false);
}

Watched::Watched(double seconds) : deadline_(std::chrono::steady_clock::time_point::max()) {
  if (seconds > 0)
    deadline_ = std::chrono::steady_clock::now() +
                std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  Watch& watch = Watch::instance();
  const std::lock_guard lock(watch.mutex);
  watch.launches.push_back(this);
  ++running;
  if (seconds > 0) sem_post(&watch.wake);
}

Watched::~Watched() {
  Watch& watch = Watch::instance();
  const std::lock_guard lock(watch.mutex);
  std::erase(watch.launches, this);
  --running;
}

void Watched::enter() {
  signal_stack.enter();
  const std::lock_guard lock(Watch::instance().mutex);
  threads_.push_back(pthread_self());
}

void Watched::leave() {
  const std::lock_guard lock(Watch::instance().mutex);
  std::erase_if(threads_, [](pthread_t thread) { return pthread_equal(thread, pthread_self()) != 0; });
}

}  // namespace flash::simt
