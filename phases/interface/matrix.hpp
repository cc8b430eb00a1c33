// matrix.hpp: Eigen's view of tiles and heads, and the loop that spreads independent tasks over threads.
// All matrices are row-major: y is the row (query i), x is the column (key j or feature d).
// Use:  mat(S).noalias() = mat(Q_i) * mat(K_j).transpose();
#pragma once
#include <Eigen/Core>
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "phases/interface/progress.hpp"
#include "sim/ledger.hpp"
#include "sim/memory/memory.hpp"

#ifdef FLASH_BLAS  // cmake/blas.cmake
extern "C" void openblas_set_num_threads(int);
#endif

namespace flash {

inline constexpr float infinity = std::numeric_limits<float>::infinity();

template <class Scalar>
using RowMajor = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// The filled rows of a tile: [tile.rows, tile.cols].
inline Eigen::Map<RowMajor<float>, Eigen::Aligned64> mat(const Tile& tile) {
  return {tile.data(), tile.rows, tile.cols};
}

// out = a · b and out += a · b. The FLOPs are counted by the sizes of what is multiplied.
template <class Out, class A, class B>
void product(Memory& memory, Out&& out, const A& a, const B& b, Memory::Site site = Memory::Site::current()) {
  memory.tell_product(false, out.rows(), a.data(), b.data(), site);
  out.noalias() = a * b;
  memory.count_matmul(a.rows(), b.cols(), a.cols());
  memory.tell_product(true, out.rows(), a.data(), b.data(), site);
}
template <class Out, class A, class B>
void add_product(Memory& memory, Out&& out, const A& a, const B& b, Memory::Site site = Memory::Site::current()) {
  memory.tell_product(false, out.rows(), a.data(), b.data(), site);
  out.noalias() += a * b;
  memory.count_matmul(a.rows(), b.cols(), a.cols());
  memory.tell_product(true, out.rows(), a.data(), b.data(), site);
}

// Runs task(memory, t) for t = 0 … tasks-1 on `threads` threads (0: all cores). Tasks must not share output, so the
// result does not depend on who runs what. Each thread has a Memory of its own; returns the sum of their ledgers.
template <class Task>
Ledger run_tasks(int threads, std::int64_t tasks, std::int64_t sram_bytes, const Task& task) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  threads = static_cast<int>(std::min<std::int64_t>(threads, std::max<std::int64_t>(tasks, 1)));
#ifdef FLASH_BLAS
  openblas_set_num_threads(1);  // the threads are ours; each does its own products
#endif
  std::atomic<std::int64_t> next = 0;
  tasks_done = 0;
  tasks_total = tasks;
  std::vector<Ledger> ledgers(static_cast<std::size_t>(threads));
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&](int worker) {
    try {
      Memory memory(sram_bytes);
      for (std::int64_t t; (t = next++) < tasks; ++tasks_done) {
        if (memory_observer) memory_observer->begins();
        task(memory, t);
      }
      ledgers[static_cast<std::size_t>(worker)] = memory.ledger();
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      next = tasks;
    }
  };
  std::vector<std::thread> others;
  for (int worker = 1; worker < threads; ++worker) others.emplace_back(work, worker);
  work(0);
  for (std::thread& t : others) t.join();
  if (failure) std::rethrow_exception(failure);
  Ledger total;
  for (const Ledger& l : ledgers) total.add(l);
  return total;
}

}  // namespace flash
