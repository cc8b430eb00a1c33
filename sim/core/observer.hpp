// observer.hpp: what the scheduler tells whoever watches its blocks: when threads synchronise, switch, or use atomics.
// The checked machine's Checker (sim/checks) watches; the fast machine has none. sim/core knows no more than this.
// Use: worker.observer = std::make_unique<Checker>(worker, shadow);
#pragma once
#include <cstddef>

#include "sim/core/simt.hpp"

namespace flash::simt {

struct Copy;

class Observer {
 public:
  virtual ~Observer() = default;

  virtual void begin_block() = 0;
  virtual void end_block() = 0;
  virtual void switched() = 0;  // another thread runs from here on

  // All threads that have not exited are at the barrier, the site is the first one's.
  virtual void block_barrier(bool some_exited, Site site) = 0;
  virtual void warp_sync(unsigned warp, unsigned lanes) = 0;
  virtual void thread_ends() = 0;  // the running one
  // All lanes of the warp are at one place, or have exited: their accesses up to here are grouped into requests.
  virtual void converge(unsigned warp) = 0;
  // Requests of the warp since it last met.
  virtual std::size_t pending(unsigned warp) const = 0;

  // `reads`: the old value matters, unlike to atomicExch.
  virtual void atomic(const void* address, std::size_t bytes, bool reads, Scope scope, Site site) = 0;
  virtual void after_atomic(const void* address) = 0;
  virtual void fence(Scope scope) = 0;

  virtual void matrix_row(const void* row, Site site) = 0;  // of ldmatrix
  virtual void copy_begins(const Copy& copy) = 0;
  virtual void copy_ends(const Copy& copy) = 0;  // for its thread, which runs
};

}  // namespace flash::simt
