// Phase 30: what flash-ring is asked to do, as one rank sees it: the whole problem's shapes from the files' headers,
// and this rank's rows of each array. A path with %r in it is one of each rank, and %r its number.
// Use: Job job(words, rank, ranks);  job.read(lengths of all ranks);  job.compute(comm);  job.create();  job.write(); …
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>

#include "phases/30-ring/phase.hpp"
#include "phases/30-ring/ulysses.hpp"
#include "phases/app/problem_options.hpp"
#include "phases/definition/phase.hpp"
#include "phases/interface/progress.hpp"
#include "phases/interface/validate.hpp"
#include "phases/library/automatic.hpp"
#include "phases/ring/gpu.hpp"
#include "phases/ring/local.hpp"
#include "phases/ring/mpi/files.hpp"

namespace flash::phase30 {

// Of each operand: how many rows its file of this rank has, 0 where all ranks have one file.
using Lengths = std::array<std::int64_t, std::size(operands)>;

class Job {
 public:
  static std::set<std::string> flags() {
    return {"q",    "k",      "v",       "o",       "lse",     "dout",  "dlse",    "dq",
            "dk",   "dv",     "causal",  "window",  "align",   "scale", "softcap", "layout",
            "type", "o-type", "timeout", "threads", "machine", "phase"};
  }

  // How long a rank waits for another. Throws Error.
  static double limit_seconds(const std::vector<std::string>& words) {
    const double limit = Arguments(words, flags()).number<double>("timeout", 60);
    if (!(limit > 0 && limit < 1e9)) refuse("--timeout", limit, "seconds, more than 0", "omit it for 60");
    return limit;
  }

  // Reads words and headers. Throws Error where they are wrong; what all ranks must know first is for read().
  Job(const std::vector<std::string>& words, int rank, int ranks) : args_(words, flags()), rank_(rank), ranks_(ranks) {
    limit_seconds(words);
    if (!args_.positional.empty())
      refuse("argument", "'" + args_.positional[0] + "'", "--flag value", "see flash-ring --help");
    for (const char* flag : {"q", "k", "v", "o"}) args_.required(flag);
    backward_ = args_.has("dout");
    for (const char* flag : {"dq", "dk", "dv"}) {
      if (backward_) args_.required(flag);
      if (!backward_ && args_.has(flag))
        refuse(std::string("--") + flag, "given", "--dout with it", "add --dout dO.npy or omit it");
    }
    if (args_.has("type") && args_.text("type") != "bf16")
      refuse("--type", "'" + args_.text("type") + "'", "bf16", "omit it for float16 and float32, which the files name");
    if (args_.has("o-type") && args_.text("o-type") != "float32")
      refuse("--o-type", "'" + args_.text("o-type") + "'", "float32", "omit it for the type of Q");
    read_machine();
    Options options;
    if (args_.has("scale")) options.scale = args_.number<float>("scale", 0);
    options.mask = parse_mask(args_), options.softcap = args_.number<float>("softcap", 0);
    options.threads = args_.number<int>("threads", 1);
    options.ring = {ranks, parse_layout(args_)};

    there_.options = options, back_.direction = Direction::Backward;
    for (const Operand& operand : operands) open(operand);
    there_.type = type_, there_.out = out_;
    back_.type = type_, back_.out = out_, back_.options = options;
  }

  // Which files are a rank's own, the same on all ranks.
  std::string own_files() const {
    std::string out = std::string(FLASHPHASES_VERSION) + ", files of each rank:";
    for (const auto& [operand, file] : files_)
      if (file.own) out += " --" + flag_of(*operand);
    return out;
  }
  Lengths lengths() const {
    Lengths all{};
    for (const auto& [operand, file] : files_)
      if (file.own && file.is_read) all[static_cast<std::size_t>(operand - operands)] = file.shape[2];
    return all;
  }
  // What all ranks' files together are, and this rank's rows of them. Everything else that can be refused is refused
  // here.
  void read(const std::vector<Lengths>& of_ranks) {
    for (auto& [operand, file] : files_) {
      if (!file.is_read) {
        const Shape s = there_.shape();
        for (int i = 0; i < 4; ++i) file.shape[i] = length_of(operand->shape[i], s);
      } else if (file.own) {
        file.shape[2] = 0;
        for (const Lengths& rank : of_ranks) file.shape[2] += rank[static_cast<std::size_t>(operand - operands)];
      }
      const AnyView view{nowhere, file.shape, dense_strides(file.shape)};
      if (operand->forward != Role::None) there_.*operand->view = view;
      if (backward_ && operand->backward != Role::None) back_.*operand->view = view;
    }
    validate(there_, phase);
    if (backward_) validate(back_, phase);
    if (there_.options.ring.layout == RingLayout::Ulysses) check_heads(there_, ranks_);
    split_ = std::make_unique<Split>(there_, ranks_);
    if (machine_) choose();
    for (auto& [operand, file] : files_) hold(*operand, file);
  }

  // The job in words, the same on all ranks.
  std::string text() const {
    std::string out = std::string(FLASHPHASES_VERSION) + " " + name(type_) + " " + shape_text(there_.q.shape) + " " +
                      shape_text(there_.k.shape) + " " + shape_text(there_.v.shape);
    const Options& o = there_.options;
    const Mask& m = o.mask;
    for (const std::int64_t number : {m.left, m.right, static_cast<std::int64_t>(m.alignment)})
      out += " " + (number == Mask::all ? "all" : std::to_string(number));
    return out + " " + std::to_string(there_.scale()) + " " + std::to_string(o.softcap) + " " + name(o.ring.layout) +
           (backward_ ? " backward" : "") +
           (phase_ ? std::string(" by ") + phase_->name + " on " + name(*machine_) : "");
  }
  // Where kernels compute; nothing: the definition does, on the host.
  std::optional<Where> machine() const { return machine_; }
  // Null: it is the host's.
  std::unique_ptr<GpuWorker> worker() const {
    if (!machine_) return nullptr;
    if (*machine_ == Where::Sim) return on_sim::gpu_worker(*phase_, {.threads = there_.options.threads});
#ifndef FLASH_NO_CHECKED_KERNELS
    if (*machine_ == Where::Checked) return on_checked::gpu_worker(*phase_);
#endif
#ifdef FLASH_HAVE_CUDA
    return on_gpu::gpu_worker(*phase_);
#else
    return nullptr;  // choose() has refused it
#endif
  }
  std::uint64_t bytes_sent() const {
    return sent_;
  }
  std::string output() const {
    return args_.text("o");
  }

  // `gpu`: worker()'s.
  void compute(Comm& comm, const GpuWorker* gpu) {
    const std::uint64_t before = comm.bytes_sent;
    const HostWorker host{definition::phase};
    const auto pass = [&](const AnyProblem& mine) {
      if (!gpu) return on_rank(comm, *split_, mine, host);
      const Uploaded there(*gpu, mine);
      on_rank(comm, *split_, there.problem(), *gpu);
      there.download();
    };
    // For who looks on: the ring has a step for each rank, there and back; the other way is one step.
    const bool ring = there_.options.ring.layout != RingLayout::Ulysses;
    steps_done = 0, steps_total = ring ? (backward_ ? 2 : 1) * ranks_ : 0;
    pass(local(there_));
    steps_done = ranks_;
    if (backward_) pass(local(back_));
    sent_ = comm.bytes_sent - before;
  }

  void create() const {
    for (const auto& [operand, file] : files_)
      if (is_made_here(file)) file.result->create(elements(shape_of(file)) * bytes_of(file.array.type));
  }
  void write() const {
    for (const auto& [operand, file] : files_)
      if (file.result) file.result->write(shape_of(file)[2], share_of(*operand, file), file.array);
  }
  void publish() const {
    for (const auto& [operand, file] : files_)
      if (is_made_here(file)) file.result->publish();
  }

 private:
  struct File {
    std::string path;                     // "": kept from the forward pass to the backward pass
    bool own, is_read;                    // own: it has this rank's rows alone
    NpyHeader header;                     // of what is read
    std::array<std::int64_t, 4> shape{};  // of the whole; before read() of the file
    std::optional<Result> result = {};    // of what is written
    Array array = {};                     // this rank's rows
  };

  // Of arrays that are only asked about shapes; as good a place as one of a GPU's.
  alignas(256) static inline std::byte nowhere[1];

  void read_machine() {
    const std::string machine = args_.text("machine", "host");
    for (const Where where : {Where::Sim, Where::Checked, Where::Gpu})
      if (machine == name(where)) machine_ = where;
    if (machine != "host" && !machine_)
      refuse("--machine", "'" + machine + "'", "host, sim, checked or gpu", "omit it for host");
    if (!machine_ && args_.has("phase"))
      refuse("--phase", args_.text("phase"), "--machine with it: on the host it is the definition",
             "add --machine sim or gpu");
  }
  // What a rank's calls ask of their phase: ring.hpp, ulysses.hpp.
  AnyProblem call_of(AnyProblem p, bool kept) const {
    const bool ring = p.options.ring.layout != RingLayout::Ulysses;
    p.options.ring = {};
    if (!ring || p.backward()) return p;
    p.out = Type::Float32, p.o_lo = {};
    const AnyView numbers{nowhere, {p.B(), p.H(), p.Sq(), 1}, dense_strides({p.B(), p.H(), p.Sq(), 1})};
    p.m = p.l = kept ? numbers : AnyView{}, p.lse = kept ? AnyView{} : numbers;
    return p;
  }
  void choose() {
    phase_ = args_.has("phase") ? &find_phase(args_.text("phase"))
                                : choose_phase(call_of(backward_ ? back_ : there_, false), *machine_).phase;
    if (!phase_->kernel())
      refuse("--machine", name(*machine_), std::string("host with phase ") + phase_->name + ", which is no kernel",
             "omit it, or choose another phase: ./flash help");
    require(phase_->name, pass_of(*phase_, backward_ ? Direction::Backward : Direction::Forward).features, *machine_);
    validate(call_of(there_, phase_->forward->features.meets(Demand::Kept)), *phase_);
    if (backward_) validate(call_of(back_, false), *phase_);
  }

  static std::int64_t elements(const std::array<std::int64_t, 4>& s) {
    return s[0] * s[1] * s[2] * s[3];
  }
  static std::string flag_of(const Operand& operand) {
    if (operand.view == &AnyProblem::dout) return "dout";
    std::string flag;
    for (const char* c = operand.name; *c; ++c) flag += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    return flag;
  }
  // A path that is given, with the rank's number for %r.
  std::string path_of(const std::string& flag) const {
    std::string path = args_.text(flag);
    for (std::size_t at; (at = path.find("%r")) != std::string::npos;) path.replace(at, 2, std::to_string(rank_));
    return path;
  }
  // An array's file, and what its header says.
  void open(const Operand& operand) {
    const bool given = flags().count(flag_of(operand)) && args_.has(flag_of(operand));
    const bool kept =
        backward_ && (operand.view == &AnyProblem::lse || operand.view == &AnyProblem::m ||
                      operand.view == &AnyProblem::l || (operand.view == &AnyProblem::o_lo && out_ != Type::Float32));
    if (!given && !kept) return;
    if ((operand.forward == Role::None) && !backward_)
      refuse("--" + flag_of(operand), "given", "--dout with it", "add --dout dO.npy or omit it");
    const bool is_read = operand.forward == Role::In || (operand.forward == Role::None && operand.backward == Role::In);
    const bool own = given && args_.text(flag_of(operand)).find("%r") != std::string::npos;
    File file{given ? path_of(flag_of(operand)) : "", own, is_read, {}};
    if (is_read) {
      const NpyType as = args_.has("type") && operand.element == Element::Input ? NpyType::Bfloat16 : NpyType::Named;
      file.header = read_npy_header(file.path, as);
      std::vector<std::int64_t> shape = file.header.array.shape;
      if (operand.shape[3] == Length::One) shape.push_back(1);
      if (shape.size() != 4)
        refuse(file.path + "'s rank", file.header.array.shape.size(),
               operand.shape[3] == Length::One ? "3 ([B, H, S])" : "4 ([B, H, S, D])", "reshape it");
      std::copy(shape.begin(), shape.end(), file.shape.begin());
      const std::string& dtype = file.header.array.dtype;
      if (operand.view == &AnyProblem::q) {
        if (dtype == "float64") refuse("type of q", dtype, "float32 or float16", "convert with astype(np.float32)");
        type_ = dtype == "float32" ? Type::Float32 : dtype == "float16" ? Type::Float16 : Type::BFloat16;
        out_ = args_.has("o-type") ? Type::Float32 : type_;
        descr_ = file.header.array.descr;
      }
      AnyProblem of_type;
      of_type.type = type_, of_type.out = out_;
      if (const Type want = type_of_elements(operand.element, of_type); dtype != name(want))
        refuse(file.path + "'s type", dtype, name(want), std::string("convert it with astype(np.") + name(want) + ")");
    }
    files_.emplace(&operand, std::move(file));
  }

  // Room for this rank's rows; those that are read are read.
  void hold(const Operand& operand, File& file) {
    std::array<std::int64_t, 4> shape = file.shape;
    shape[2] = share(operand).size();
    if (file.is_read && file.own && file.header.array.shape[2] != shape[2])
      refuse("number of rows S of " + file.path, file.header.array.shape[2],
             std::to_string(shape[2]) + ", rank " + std::to_string(rank_) + "'s of the " +
                 std::to_string(file.shape[2]) + " of all ranks in layout " + name(there_.options.ring.layout),
             "cut the array as the layout does");
    file.array = Array(type_of_elements(operand.element, there_), shape);
    if (file.is_read) {
      load(file.path, file.header, shape_of(file)[2], share_of(operand, file), file.array);
    } else if (!file.path.empty()) {
      const std::array<std::int64_t, 4> all = shape_of(file);
      std::vector<std::int64_t> written(all.begin(), all.end());
      if (operand.shape[3] == Length::One) written.pop_back();
      const bool narrow = file.array.type != Type::Float32;
      file.result.emplace(file.path, narrow ? descr_ : descr_of<float>(), written);
      if (!is_made_here(file)) return;
      if (const std::string why = why_not_writable(file.path); !why.empty())
        refuse("--" + flag_of(operand), file.path, "a path that can be written (" + why + ")",
               "choose another output path");
    }
  }
  // Of what the file holds; which of its rows are this rank's; and whether this rank makes it.
  static const std::array<std::int64_t, 4>& shape_of(const File& file) {
    return file.own ? file.array.shape : file.shape;
  }
  Share share_of(const Operand& operand, const File& file) const {
    return file.own ? Share{.count = file.array.shape[2]} : share(operand);
  }
  bool is_made_here(const File& file) const {
    return file.result && (file.own || rank_ == 0);
  }

  Share share(const Operand& operand) const {
    return operand.shape[2] == Length::Sq ? split_->rows(rank_) : split_->keys(rank_);
  }
  // This rank's arrays in place of the whole's.
  AnyProblem local(const AnyProblem& whole) {
    AnyProblem mine = whole;
    for (auto& [operand, file] : files_)
      if ((whole.*operand->view).given()) mine.*operand->view = file.array.view();
    return mine;
  }

  Arguments args_;
  int rank_, ranks_;
  bool backward_ = false;
  Type type_ = Type::Float32, out_ = Type::Float32;
  std::string descr_;
  AnyProblem there_, back_;
  std::unique_ptr<Split> split_;
  std::map<const Operand*, File> files_;
  std::optional<Where> machine_;
  const Phase* phase_ = nullptr;  // whose kernels compute
  std::uint64_t sent_ = 0;
};

}  // namespace flash::phase30
