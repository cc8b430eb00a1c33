// Phase 30: who looks after a rank. mpirun starts a keeper; the rank is its child. When something kills the rank, its
// keeper lives: it says which rank that was, removes what the rank left unfinished, and ends the job with status 3.
// Use: Keeper::begin();  before threads and MPI_Init; it returns in the rank.  Keeper::unfinished("o.npy.…");
#pragma once
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "phases/ring/watchdog.hpp"
#include "sim/error.hpp"

namespace flash::phase30 {

// This rank's number as the program that started it says it, or "?": before MPI_Init nobody else does.
inline const char* rank_name() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(variable)) return rank;
  return "?";
}

// Why so: a killed rank cannot speak, and the others do not hear of it. Open MPI 4.1 ends the job with status 137. With
// --enable-recovery it lets the others go on to their limit, but then ends with status 0, whatever theirs is.
class Keeper {
 public:
  // Returns in the rank alone. The keeper ends as the rank does.
  static void begin() {
    int pipe[2];
    sigset_t passed, before;
    sigemptyset(&passed);
    for (const int signal : signals) sigaddset(&passed, signal);
    sigprocmask(SIG_BLOCK, &passed, &before);  // until there is somebody to pass them on to
    if (pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0 || (rank_ = fork()) < 0) {
      std::fprintf(stderr, "flash-ring: rank %s has no second process (%s); expected room for it; see ulimit -u\n",
                   rank_name(), std::strerror(errno));
      std::_Exit(kLost);
    }
    if (rank_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody is left without a keeper
      close(pipe[0]), names_ = pipe[1];
      sigprocmask(SIG_SETMASK, &before, nullptr);
      return;
    }
    prctl(PR_SET_NAME, "ring-keeper");  // killall flash-ring means the ranks
    close(pipe[1]);
    struct sigaction action {};
    action.sa_handler = pass_on;  // and waitpid is interrupted
    for (const int signal : signals) sigaction(signal, &action, nullptr);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    // A job that is told to end has a second: the files go before the rank has let go of its memory, and what it made
    // since goes behind it.
    int status = 0;
    std::string names;
    while (waitpid(rank_, &status, 0) < 0 && errno == EINTR) remove_unfinished(pipe[0], names);
    remove_unfinished(pipe[0], names);
    if (WIFEXITED(status)) std::_Exit(WEXITSTATUS(status));
    if (told_) {  // to end: by mpirun, which does so to all, or by somebody's Ctrl-C
      std::signal(told_, SIG_DFL);
      raise(told_);
    }
    std::fprintf(stderr, "flash-ring: rank %s was ended by signal %d (%s); expected it to finish; see who ended it\n",
                 rank_name(), WTERMSIG(status), strsignal(WTERMSIG(status)));
    std::_Exit(kLost);
  }
  // By the rank: a file that is to go when the rank has ended and it still has this name.
  static void unfinished(const std::string& path) {
    if (write(names_, path.c_str(), path.size() + 1) < 0)
      refuse("the keeper of rank " + std::string(rank_name()), std::strerror(errno), "it to listen", "start again");
  }

 private:
  static constexpr int signals[] = {SIGINT, SIGTERM, SIGHUP};

  static void pass_on(int signal) { told_ = signal, kill(rank_, signal); }
  // `names`: those that were read before. A file that is open here loses its name at once, however long it takes to let
  // go of its pages, which the system does when the keeper ends: mpirun's SIGKILL comes soon behind its SIGTERM.
  static void remove_unfinished(int pipe, std::string& names) {
    char part[4096];
    for (ssize_t n; (n = read(pipe, part, sizeof part)) > 0 || (n < 0 && errno == EINTR);)
      if (n > 0) names.append(part, static_cast<std::size_t>(n));
    for (std::size_t at = 0; at < names.size(); at += std::strlen(&names[at]) + 1) {
      open(&names[at], O_RDONLY | O_CLOEXEC);  // and stays so
      unlink(&names[at]);
    }
  }

  static inline pid_t rank_ = 0;
  static inline int names_ = -1;
  static inline volatile std::sig_atomic_t told_ = 0;
};

}  // namespace flash::phase30
