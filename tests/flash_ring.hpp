// flash_ring.hpp: flash-ring, run by mpirun as a user does: a folder with arrays, a command, what it has said.
// Use: Shell session; Small x(session); const Answer answer = ring(session, 4, inputs + "--layout striped");
#pragma once
#include <doctest/doctest.h>

#include "phases/30-ring/phase.hpp"
#include "phases/30-ring/shares.hpp"
#include "phases/30-ring/ulysses.hpp"
#include "phases/arrays/npy_rows.hpp"
#include "phases/arrays/tensor.hpp"
#include "phases/ring/host.hpp"
#include "phases/ring/local.hpp"
#include "phases/ring/threads.hpp"
#include "tests/program.hpp"
#include "tests/skip.hpp"

namespace flash::test {

inline constexpr const char* no_mpi = "no MPI here (apt-get install libopenmpi-dev openmpi-bin)";
inline bool without_mpi() {
  if (std::string(FLASH_RING_FILE).empty()) skip(no_mpi);
  return std::string(FLASH_RING_FILE).empty();
}

// flash-ring, or the one beside FLASH_PROGRAM: one that is wrong on purpose.
inline std::string program() {
  const char* other = std::getenv("FLASH_PROGRAM");
  return other ? std::filesystem::path(other).parent_path() / "flash-ring" : std::filesystem::path(FLASH_RING_FILE);
}
struct Shell : Session {
  Shell() : Session(FLASH_PROGRAM_FILE) {}  // whatever FLASH_PROGRAM is
};

// A shell's word.
inline std::string quoted(const std::string& text) {
  return "'" + text + "'";
}

// As root, on fewer cores than ranks, in a container.
inline const std::string machine =
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
    "OMPI_MCA_btl_vader_single_copy_mechanism=none; ";
inline std::string command(int ranks, const std::string& words, const std::string& fault = ":") {
  const std::string rank = std::to_string(std::min(2, ranks - 1));
  const std::string shell =
      "if [ \"$OMPI_COMM_WORLD_RANK\" = " + rank + " ]; then " + fault + "; fi; exec \"$0\" " + words;
  return quoted(FLASH_MPIEXEC) + " -n " + std::to_string(ranks) + " sh -c " + quoted(shell) + " " + quoted(program());
}

// In the session's folder. `fault`: what a shell does before it becomes flash-ring's rank 2, or the last of two.
inline Answer ring(const Shell& session, int ranks, const std::string& words, const std::string& fault = ":") {
  return session.run({"-c", machine + "exec " + command(ranks, words, fault)});
}

// The lines that flash-ring itself has written.
inline std::vector<std::string> said(const Answer& answer) {
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

inline bool same(const std::string& path, const Tensor<float>& x, std::size_t rank = 4) {
  const NpyArray file = read_npy(path);
  return file.shape.size() == rank && file.bytes.size() == x.size() * sizeof(float) &&
         std::memcmp(file.bytes.data(), x.data(), file.bytes.size()) == 0;
}

inline constexpr RingLayout all_layouts[] = {RingLayout::Contiguous, RingLayout::ZigZag, RingLayout::Striped,
                                             RingLayout::Ulysses};

// Some rows of x, as a rank's own file has them.
inline std::vector<float> rows_of(const Tensor<float>& x, const phase30::Share& share) {
  const auto shape = shape_of(x);
  std::vector<float> out;
  for (std::int64_t head = 0; head < shape[0] * shape[1]; ++head)
    for (std::int64_t i = 0; i < share.size(); ++i) {
      const float* row = x.data() + (head * shape[2] + share[i]) * shape[3];
      out.insert(out.end(), row, row + shape[3]);
    }
  return out;
}
inline void save_rows(const std::string& path, const Tensor<float>& x, const phase30::Share& share) {
  const auto shape = shape_of(x);
  write_npy(path, {shape[0], shape[1], share.size(), shape[3]}, rows_of(x, share).data());
}

// A causal problem in half, both passes: as files, and as two ranks that are threads and call a phase compute it.
struct Halves {
  std::array<std::int64_t, 4> shape;  // [B, H, S, D]
  Tensor<half> q, k, v, dout, o, dq, dk, dv;
  Tensor<float> lse, m, l;
  Tensor<std::int16_t> o_lo;

  Halves(const Shell& session, const std::array<std::int64_t, 4>& shape, std::uint64_t seed) : shape(shape) {
    std::uint32_t stream = 0;
    for (Tensor<half>* x : {&q, &k, &v, &dout}) *x = random_tensor<half>(shape, seed, stream++);
    o = dq = dk = dv = q;
    lse = m = l = make_tensor<float>({shape[0], shape[1], shape[2], 1});
    o_lo = make_tensor<std::int16_t>(shape);
    for (const auto& [name, array] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}, {"do", &dout}})
      write_npy(session / (std::string(name) + ".npy"), {shape.begin(), shape.end()}, array->data());
  }
  void on_threads(RingLayout layout, const phase30::HostWorker& worker) {
    AnyProblem there;
    there.type = there.out = Type::Float16, there.options = {.mask = Mask::top_left(), .ring = {2, layout}};
    there.q = any_of(view(q)), there.k = any_of(view(k)), there.v = any_of(view(v)), there.o = any_of(view(o));
    there.o_lo = any_of(view(o_lo));
    there.lse = any_of(view(lse)), there.m = any_of(view(m)), there.l = any_of(view(l));
    AnyProblem back = there;
    back.direction = Direction::Backward, back.dout = any_of(view(dout));
    back.dq = any_of(view(dq)), back.dk = any_of(view(dk)), back.dv = any_of(view(dv));
    for (const AnyProblem* whole : {&there, &back}) {
      const phase30::Split split(*whole, 2);
      std::vector<phase30::Local> local;
      for (const int rank : {0, 1}) local.emplace_back(*whole, split, rank);
      phase30::on_threads(2, 60, [&](phase30::Comm& comm) {
        phase30::on_rank(comm, split, local[static_cast<std::size_t>(comm.rank)].problem(), worker);
      });
      for (phase30::Local& mine : local) mine.put_back(*whole);
    }
  }
  auto results() const {
    return std::array{std::pair{"o", &o}, std::pair{"dq", &dq}, std::pair{"dk", &dk}, std::pair{"dv", &dv}};
  }
};

// Large arrays, of zeros: they take no room.
inline void save_zeros(const Session& session, const std::string& dtype, std::array<std::int64_t, 4> shape,
                       std::int64_t keys) {
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) {
    if (*name != 'q') shape[2] = keys;
    const std::string header = npy_header(dtype, {shape.begin(), shape.end()});
    put(session / name, header);
    std::filesystem::resize_file(
        session / name,
        header.size() + static_cast<std::size_t>((dtype.back() - '0') * shape[0] * shape[1] * shape[2] * shape[3]));
  }
}

inline const std::string inputs = "--q q.npy --k k.npy --v v.npy --o o.npy ";

}  // namespace flash::test
