// files.cpp: see files.hpp.
// One way for all arrays: what differs between them is said by the list of operands.
// ./flash run --q q.npy … --bias bias.npy --cu-seqlens-q ends.npy
#include "phases/app/files.hpp"

#include <algorithm>
#include <cctype>

#include "phases/interface/limits.hpp"

namespace flash {
namespace {

alignas(16) std::byte nowhere[16];  // where an array is that has no memory yet, or no elements

// "" for what is kept from one pass to the other: no file holds it.
std::string flag_of(const Operand& operand) {
  for (const auto kept : {&AnyProblem::o_lo, &AnyProblem::m, &AnyProblem::l})
    if (operand.view == kept) return "";
  if (operand.view == &AnyProblem::dout) return "dout";
  if (operand.view == &AnyProblem::slopes) return "alibi";
  std::string flag;
  for (const char* c = operand.name; *c; ++c)
    flag += *c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  return flag;
}

bool is_output(const Operand& operand) {
  return operand.forward == Role::Out || operand.backward == Role::Out;
}

// The file whose shape and type an output has.
AnyView AnyProblem::*model_of(const Operand& operand) {
  using P = AnyProblem;
  const std::pair<AnyView P::*, AnyView P::*> models[] = {
      {&P::dk, &P::k}, {&P::dv, &P::v}, {&P::dbias, &P::bias}, {&P::dsinks, &P::sinks}};
  for (const auto& [output, model] : models)
    if (operand.view == output) return model;
  return &P::q;
}

const Operand& operand_of(AnyView AnyProblem::*view) {
  return *std::find_if(std::begin(operands), std::end(operands), [&](const Operand& o) { return o.view == view; });
}

// The axes that a file of the array has at most: those that are not 1 by the operand's own word.
std::vector<std::size_t> axes_of(const Operand& operand) {
  std::vector<std::size_t> axes;
  for (std::size_t i = 0; i < 4; ++i)
    if (operand.shape[i] != Length::One) axes.push_back(i);
  return axes;
}

// "[B, H, Sq, Sk]"
std::string axes_text(const Operand& operand) {
  constexpr const char* names[] = {"B", "H", "Hk", "Sq", "Sk", "D", "Dv", "1", "N", "N + 1", "Sq/64", "Sk/64"};
  std::string text = "[";
  for (const std::size_t i : axes_of(operand))
    text += (text.size() > 1 ? ", " : "") + std::string(names[static_cast<int>(operand.shape[i])]);
  return text + "]";
}

// What its file must be of, where Q's is of `type`.
NpyType npy_type_of(const Operand& operand, NpyType type) {
  if (operand.element == Element::Int32) return NpyType::Int32;
  if (operand.element == Element::Byte) return operand.view == &AnyProblem::allowed ? NpyType::Bool : NpyType::Uint8;
  return operand.element == Element::Input ? type : NpyType::Named;
}

bool is_tensor(const Operand& operand) {
  return operand.shape[3] == Length::D || operand.shape[3] == Length::Dv;
}

// The shape of an array whose file has this one. What may be left out are the first axes: those that all may share, and
// B and H where Q is [S, D].
std::array<std::int64_t, 4> shape_in(const std::vector<std::int64_t>& file, const Operand& operand,
                                     const std::string& path, bool one_head) {
  const std::vector<std::size_t> axes = axes_of(operand);
  const std::size_t rank = file.size(), most = axes.size();
  if (is_tensor(operand) && rank != 4 && rank != 2)
    refuse(path + "'s rank", rank, "4 ([B, H, S, D]) or 2 ([S, D])", "reshape it");
  std::size_t least = is_tensor(operand) ? 2 : 0;
  for (const std::size_t i : axes)
    if (!is_tensor(operand) && static_cast<int>(i) >= operand.shared && !(one_head && i < 2)) ++least;
  if (rank < least || rank > most)
    refuse(path + "'s rank", rank,
           (least < most ? std::to_string(least) + " to " : "") + std::to_string(most) + " (" + axes_text(operand) +
               (least < most ? ", or the last of these axes)" : ")"),
           "reshape it");
  std::array<std::int64_t, 4> shape = {1, 1, 1, 1};
  for (std::size_t i = 0; i < rank; ++i) shape[axes[most - rank + i]] = file[i];
  return shape;
}

}  // namespace

std::vector<std::string> file_flags() {
  std::vector<std::string> flags;
  for (const Operand& operand : operands)
    if (const std::string flag = flag_of(operand); !flag.empty()) flags.push_back(flag);
  return flags;
}

std::vector<std::string> output_flags() {
  std::vector<std::string> flags;
  for (const Operand& operand : operands)
    if (const std::string flag = flag_of(operand); !flag.empty() && is_output(operand)) flags.push_back(flag);
  return flags;
}

ProblemFiles::ProblemFiles(const Arguments& args, NpyType type, bool wide_output) {
  NpyArray q = read_npy(args.text("q"), type), k = read_npy(args.text("k"), type), v = read_npy(args.text("v"), type);
  if (q.dtype != k.dtype || q.dtype != v.dtype)
    refuse("types of q, k, v", q.dtype + ", " + k.dtype + ", " + v.dtype, "one type", "convert with astype");
  if (q.shape.size() != k.shape.size() || q.shape.size() != v.shape.size())
    refuse(
        "ranks of q, k, v",
        std::to_string(q.shape.size()) + ", " + std::to_string(k.shape.size()) + ", " + std::to_string(v.shape.size()),
        "one rank", "reshape to [B, H, S, D]");
  if (q.dtype == "float64") refuse("type of q, k, v", q.dtype, "float32 or float16", "convert with astype(np.float32)");
  type_ = q.dtype == "float32" ? Type::Float32 : q.dtype == "float16" ? Type::Float16 : Type::BFloat16;
  out_ = wide_output ? Type::Float32 : type_;
  one_head_ = q.shape.size() == 2;
  add_input(operand_of(&AnyProblem::q), args.text("q"), std::move(q));
  add_input(operand_of(&AnyProblem::k), args.text("k"), std::move(k));
  add_input(operand_of(&AnyProblem::v), args.text("v"), std::move(v));
  for (const Operand& operand : operands) {
    const std::string flag = flag_of(operand);
    if (flag.empty() || !args.has(flag) || is_output(operand) || arrays_.count(&operand)) continue;
    add_input(operand, args.text(flag), read_npy(args.text(flag), npy_type_of(operand, type)));
  }
  for (const Operand& operand : operands) {
    const std::string flag = flag_of(operand);
    const bool kept =
        flag.empty() && args.has("dout") && (operand.element == Element::Float32 || out_ != Type::Float32);
    if (kept || (!flag.empty() && args.has(flag) && is_output(operand))) promise(operand, args.text(flag));
  }
}

void ProblemFiles::add(const Operand& operand, Array array) {
  array.view.stride = dense_strides(array.view.shape);
  array.view.data = array.file.bytes.empty() ? nowhere : array.file.bytes.data();
  arrays_.emplace(&operand, std::move(array));
}

void ProblemFiles::add_input(const Operand& operand, const std::string& path, NpyArray file) {
  Array array{path, std::move(file), {}};
  AnyProblem of_type;
  of_type.type = type_, of_type.out = out_;
  const Type want = type_of_elements(operand.element, of_type);
  if (operand.element != Element::Byte && array.file.dtype != name(want))
    refuse(path + "'s type", array.file.dtype, name(want),
           std::string("convert it with astype(np.") + name(want) + ")");
  array.view.shape = shape_in(array.file.shape, operand, path, one_head_);
  add(operand, std::move(array));
}

// An output's shape and type, and room for it later.
void ProblemFiles::promise(const Operand& operand, const std::string& path) {
  const auto model = arrays_.find(&operand_of(model_of(operand)));
  if (model == arrays_.end())
    refuse("--" + flag_of(operand), "given", "--" + flag_of(operand_of(model_of(operand))) + " with it",
           "add it, or omit --" + flag_of(operand));
  Array array{path, {}, model->second.view, true};
  array.file.descr = model->second.file.descr, array.file.shape = model->second.file.shape;
  if (operand.shape[3] == Length::Dv && array.view.shape[3] > 0)  // a Q without columns is refused for that alone
    array.file.shape.back() = array.view.shape[3] = arrays_.at(&operand_of(&AnyProblem::v)).view.shape[3];
  if (operand.shape[3] == Length::One && operand.shape[2] == Length::Sq)
    array.view.shape[3] = 1, array.file.shape.pop_back();
  if (operand.element == Element::Float32 || (operand.element == Element::Output && out_ != type_))
    array.file.descr = descr_of<float>();
  add(operand, std::move(array));
}

AnyProblem ProblemFiles::problem(Direction direction, const Options& options) const {
  AnyProblem p;
  p.direction = direction, p.type = type_, p.out = out_, p.options = options;
  for (const auto& [operand, array] : arrays_)
    if (operand->role(direction) != Role::None) p.*operand->view = array.view;
  return p;
}

void ProblemFiles::allocate() {
  AnyProblem of_type;
  of_type.type = type_, of_type.out = out_;
  for (auto& [operand, array] : arrays_) {
    if (!array.written || array.view.elements() == 0) continue;
    array.file.bytes.resize(
        static_cast<std::size_t>(array.view.elements() * bytes_of(type_of_elements(operand->element, of_type))));
    array.view.data = array.file.bytes.data();
  }
}

void ProblemFiles::write() const {
  for (const auto& [operand, array] : arrays_)
    if (array.written && !array.path.empty())
      write_npy(array.path, array.file.descr, array.file.shape, array.view.data);
}

}  // namespace flash
