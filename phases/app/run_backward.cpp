// run_backward.cpp: see run_backward.hpp.
// The forward pass runs first, since only it knows m, l and the bits of O that δ needs (docs/backward.md).
// ./flash run … --dout dO.npy --dq dQ.npy --dk dK.npy --dv dV.npy [--dlse dLSE.npy] [--mode atomic]
#include "phases/app/run_backward.hpp"

#include "phases/interface/validate.hpp"

namespace flash {

BackwardMode backward_mode(const Arguments& args) {
  const std::string text = args.text("mode", "deterministic");
  if (text == "deterministic") return BackwardMode::Deterministic;
  if (text == "atomic") return BackwardMode::Atomic;
  refuse("--mode", "'" + text + "'", "deterministic or atomic", "omit it for deterministic");
}

void check_backward(const Arguments& args, const Phase* phase) {
  if (!args.has("dout")) {
    for (const char* flag : backward_flags)
      if (args.has(flag)) refuse(std::string("--") + flag, "given", "--dout with it", "add --dout dO.npy or omit it");
    return;
  }
  if (phase && !phase->backward)
    refuse("--dout", "given", std::string("none for phase ") + phase->name,
           "choose a phase with gradients: ./flash help");
  for (const char* flag : {"dq", "dk", "dv"}) args.required(flag);
  backward_mode(args);
}

template <class T>
Gradients<T> run_backward(const Phase& phase, const Problem<T>& p, const Arguments& args, Where where, NpyType type,
                          const MachineOptions& options) {
  const BackwardMode mode = backward_mode(args);
  const Tensor<T> dout = to_tensor<T>(read_npy(args.text("dout"), type), args.text("dout"));
  const std::size_t rows = static_cast<std::size_t>(p.B() * p.H() * p.Sq());
  Gradients<T> g{make_tensor<T>(p.q.shape), make_tensor<T>(p.k.shape), make_tensor<T>(p.v.shape), {}};
  Tensor<std::int16_t> o_lo = make_tensor<std::int16_t>(p.o.shape);
  std::vector<float> m(rows + 1), l(rows + 1);  // + 1: never a null pointer
  NpyArray dlse;
  if (args.has("dlse")) {
    dlse = read_npy(args.text("dlse"));
    if (dlse.elements() != static_cast<std::int64_t>(rows))
      refuse("--dlse's number of elements", dlse.elements(), std::to_string(rows) + " (B·H·Sq)", "pass [B, H, Sq]");
  }

  const Kept kept{sizeof(T) == 2 ? view(o_lo) : View<std::int16_t>{}, m.data(), l.data()};
  const GradientProblem<T> problem{p.q,
                                   p.k,
                                   p.v,
                                   p.o,
                                   kept,
                                   view(dout),
                                   view(g.dq),
                                   view(g.dk),
                                   view(g.dv),
                                   p.lse,
                                   args.has("dlse") ? dlse.values<float>() : nullptr,
                                   p.options};
  validate(problem, phase);  // before anything is computed
  g.run = forward_training(phase, p, kept, where, options);
  const Run second = backward(phase, problem, where, options, mode);
  g.run.ledger.add(second.ledger);
  g.run.milliseconds += second.milliseconds;
  g.run.tiles = second.tiles;
  g.run.kernels.insert(g.run.kernels.end(), second.kernels.begin(), second.kernels.end());
  return g;
}

template <class T>
void write_gradients(const Gradients<T>& g, const Arguments& args, const NpyArray& q, const NpyArray& k,
                     const NpyArray& v) {
  write_npy(args.text("dq"), q.descr, q.shape, g.dq.data());
  write_npy(args.text("dk"), k.descr, k.shape, g.dk.data());
  write_npy(args.text("dv"), v.descr, v.shape, g.dv.data());
}

#define FLASH_FOR(T)                                                                                     \
  template Gradients<T> run_backward(const Phase&, const Problem<T>&, const Arguments&, Where, NpyType,  \
                                     const MachineOptions&);                                             \
  template void write_gradients(const Gradients<T>&, const Arguments&, const NpyArray&, const NpyArray&, \
                                const NpyArray&);
FLASH_FOR(float)
FLASH_FOR(half)
FLASH_FOR(bfloat16)
#undef FLASH_FOR

}  // namespace flash
