// faults.cpp: see faults.hpp. The handler itself only notes where the thread is, by which calls, and redirects; words
// are found after it has returned, on the fiber, whose own frames are abandoned: the block stops.
// Use: see faults.hpp.
#include "sim/core/faults.hpp"

#include <dlfcn.h>
#include <link.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <thread>
#include <utility>

#include "sim/core/block.hpp"
#include "sim/core/code_names.hpp"

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
  static constexpr int kMostCalls = 128;
  int signal = 0;
  const std::byte* address = nullptr;
  const void* pc = nullptr;
  const void* calls[kMostCalls];  // the return addresses of the calls that are under way, innermost first
  int call_count = 0;
};
thread_local Fault fault;

// Where the code of the library lies that has this function; nowhere, if that is the program itself.
struct CodeOf {
  std::uintptr_t begin = 0, end = 0;

  explicit CodeOf(const char* function) {
    const auto contains = [](const dl_phdr_info& object, const void* address) {
      for (const auto* segment = object.dlpi_phdr; segment != object.dlpi_phdr + object.dlpi_phnum; ++segment)
        if (segment->p_type == PT_LOAD &&
            reinterpret_cast<std::uintptr_t>(address) - object.dlpi_addr - segment->p_vaddr < segment->p_memsz)
          return segment;
      return static_cast<decltype(object.dlpi_phdr)>(nullptr);
    };
    struct Search {
      decltype(contains)& in;
      const void* function;
      CodeOf& found;
    } search{contains, dlsym(RTLD_DEFAULT, function), *this};
    const auto look = [](dl_phdr_info* object, std::size_t, void* data) {
      const Search& s = *static_cast<Search*>(data);
      const auto* segment = s.in(*object, s.function);
      if (!segment || s.in(*object, reinterpret_cast<const void*>(&running))) return 0;
      s.found.begin = object->dlpi_addr + segment->p_vaddr, s.found.end = s.found.begin + segment->p_memsz;
      return 1;
    };
    dl_iterate_phdr(look, &search);
  }
  bool has(std::uintptr_t pc) const { return pc - begin < end - begin; }
};

// There a thread may hold the heap's lock, or that of stdout.
bool holds_lock(std::uintptr_t pc) {
  static const CodeOf library("abort"), heap("malloc");
  return library.has(pc) || heap.has(pc);
}

// Where the handler goes on when it follows calls on a stack that the kernel has overwritten, and faults itself.
thread_local sigjmp_buf lost;
thread_local volatile bool following = false;

// Notes the calls that led to the interrupted instruction. The unwinder reads the compiler's tables, so that it finds
// its way out of functions without frame pointers, the C library's too. It begins with the handler's own calls.
void follow_calls() {
  const auto note = [](_Unwind_Context* frame, void*) {
    int interrupted = 0;
    const auto* const pc = reinterpret_cast<const char*>(_Unwind_GetIPInfo(frame, &interrupted));
    if (interrupted && pc == fault.pc) {
      fault.call_count = 0;
    } else if (fault.call_count < Fault::kMostCalls) {
      fault.calls[fault.call_count++] = pc + interrupted;
    } else {
      return _URC_END_OF_STACK;
    }
    return _URC_NO_REASON;
  };
  sigset_t faults;
  sigemptyset(&faults), sigaddset(&faults, SIGSEGV), sigaddset(&faults, SIGBUS);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);  // until the handler returns
  following = true;
  if (sigsetjmp(lost, 0) == 0) _Unwind_Backtrace(note, nullptr);
  following = false;
}

// The line of the kernel that runs: the interrupted instruction's, or, where that is code of the simulator or of a
// library, the innermost call's that comes from the kernel. A side's program counter is the one after the instruction.
const void* line_of_kernel(const Launch& launch) {
  const auto* const program = reinterpret_cast<const void*>(launch.invoke);
  const void* const after = static_cast<const char*>(fault.pc) + 1;
  if (is_kernels(after, program)) return after;
  for (int i = 0; i < fault.call_count; ++i)
    if (is_kernels(fault.calls[i], program)) return fault.calls[i];
  // The thread is about to call the kernel: the kernel's first line.
  return launch.kernel ? static_cast<const char*>(launch.kernel) + 1 : after;
}

RawFinding described(const Worker& worker) {
  RawFinding finding{"out of bounds", "", "", {worker.side("runs", line_of_kernel(*worker.launch))}, worker.block};
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
  if (following && (signal == SIGSEGV || signal == SIGBUS)) siglongjmp(lost, 1);
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  auto &pc = registers.gregs[REG_RIP], &sp = registers.gregs[REG_RSP];
#elif defined(__aarch64__)
  auto &pc = registers.pc, &sp = registers.sp;
#endif
  // Does this OS thread run a fiber? Its stack pointer lies there, in the guard that it has just hit, or up to a page
  // below the word of the guard that it has tried.
  Worker* const worker = running_worker;
  const auto in_fiber = [&](std::uintptr_t address) {
    const auto stack = reinterpret_cast<std::uintptr_t>(worker->stack);
    return address - (stack - kStackGuard) < worker->stack_bytes + kStackGuard;
  };
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  const bool ours = worker && worker->stack &&
                    (in_fiber(static_cast<std::uintptr_t>(sp)) ||
                     (signal == SIGSEGV && in_fiber(reinterpret_cast<std::uintptr_t>(address))));
  if (signal == kTimeIsUp) {
    if (running == 0 && before[signal].sa_handler != SIG_DFL) return pass_on(signal, info, context);
    // In the simulator's own code (active_worker is null) and in the C library locks may be held: the watchdog asks
    // again.
    if (!ours || !active_worker || holds_lock(static_cast<std::uintptr_t>(pc))) return;
  } else if (!ours) {
    return pass_on(signal, info, context);
  }
  const auto top = reinterpret_cast<std::uintptr_t>(worker->stack) + worker->stack_bytes - 256;
  fault.signal = signal, fault.address = address, fault.pc = reinterpret_cast<const void*>(pc);
  fault.call_count = 0;
  follow_calls();
  pc = static_cast<decltype(pc + 0)>(reinterpret_cast<std::uintptr_t>(&explain));
#if defined(__x86_64__)
  sp = static_cast<decltype(sp + 0)>(top / 16 * 16 - 8);  // as after a call
#else
  sp = top / 16 * 16;
#endif
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
  holds_lock(0);  // a handler may not look for libraries
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

#if defined(__aarch64__) && !defined(__SANITIZE_ADDRESS__)
// What -fsanitize=integer-divide-by-zero calls, since this processor divides by zero without a word: as if it had said
// so (cmake/kernels.cmake).
extern "C" void __ubsan_handle_divrem_overflow(void*, void*, void*) {
  raise(SIGFPE);
}
#endif

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
