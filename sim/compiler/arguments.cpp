// arguments.cpp: structs that go to a function by value. g++ -fsanitize=thread announces what assignments access; what
// g++ itself copies from memory into a call's registers or to its stack it does not, nor a result that it puts into
// memory where an object is made. In the text of g++ -S (x86-64) these are the accesses that no hook right before them
// announces; here they get one, flash_by_value (sim/checks/hooks.cpp). Use: with_arguments(assembly); main.cpp does.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "sim/compiler/source.hpp"

namespace flash::compiler {
namespace {

using Text = std::string_view;

enum Register : int { kAx, kBx, kCx, kDx, kSi, kDi, kBp, kSp, kR8, kR12 = kR8 + 4, kRegisters = kR8 + 8, kNone = -1 };
constexpr bool survives_calls(int r) {
  return r == kBx || r == kBp || r == kSp || r >= kR12;
}

// Of %rax, %eax, %ax, %al, %r8, %r8d … the number; kNone: another kind of operand.
int register_of(Text operand) {
  static constexpr std::array<Text, 8> kNames{"ax", "bx", "cx", "dx", "si", "di", "bp", "sp"};
  if (operand.size() < 3 || operand[0] != '%') return kNone;
  Text name = operand.substr(1);
  if (name[0] == 'r' && is_digit(name[1])) return std::atoi(name.data() + 1);
  if (name.size() == 2 && name[1] == 'l') return static_cast<int>(Text("abcd").find(name[0]));
  if (name.size() == 3) name = name[2] == 'l' ? name.substr(0, 2) : name.substr(1);
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? kNone : static_cast<int>(found - kNames.begin());
}

// Registers that a function's result comes in, as bits; 0: none of them.
unsigned results_in(Text operand) {
  if (operand == "%xmm0" || operand == "%xmm1") return operand == "%xmm0" ? 1 : 2;
  const int r = register_of(operand);
  return r == kAx ? 4 : r == kDx ? 8 : 0;
}

// An operand in memory: %fs:number+symbol(base,index,scale).
struct Place {
  bool of_thread = false;
  long number = 0;
  Text symbol, base, index, scale;
};

Text cut(Text& rest, char end) {
  const std::size_t at = std::min(rest.find(end), rest.size());
  const Text first = rest.substr(0, at);
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return first;
}

std::optional<Place> place_of(Text operand) {
  Place place;
  if (operand.starts_with("%fs:"))
    place.of_thread = true, operand.remove_prefix(4);
  else if (operand.empty() || operand[0] == '%' || operand[0] == '$' || operand[0] == '*')
    return {};
  const auto [end, error] = std::from_chars(operand.data(), operand.data() + operand.size(), place.number);
  if (error == std::errc()) operand.remove_prefix(static_cast<std::size_t>(end - operand.data()));
  if (operand.starts_with("+")) operand.remove_prefix(1);
  place.symbol = cut(operand, '(');
  Text inside = cut(operand, ')');
  place.base = cut(inside, ','), place.index = cut(inside, ','), place.scale = cut(inside, ',');
  return place;
}

struct Instruction {
  Text name;
  std::vector<Text> operands;

  explicit Instruction(Text line) {
    Text rest = line.substr(1);
    name = cut(rest, '\t');
    std::size_t begin = 0, depth = 0;
    for (std::size_t at = 0; at <= rest.size() && !rest.empty(); ++at) {
      depth += at < rest.size() ? (rest[at] == '(') - (rest[at] == ')') : 0;
      if (at < rest.size() && (rest[at] != ',' || depth > 0)) continue;
      operands.push_back(rest.substr(begin, at - begin));
      begin = at + 1;
      while (begin < rest.size() && rest[begin] == ' ') ++begin;
    }
  }

  // How much memory it reads or writes.
  long bytes() const {
    const Text plain = name[0] == 'v' ? name.substr(1) : name;
    const auto any = [&](Text kind) {
      return std::any_of(operands.begin(), operands.end(), [=](Text operand) { return operand.starts_with(kind); });
    };
    if (any("%ymm")) return 32;
    if (any("%xmm")) {
      static constexpr std::pair<Text, long> kParts[] = {{"ss", 4}, {"sd", 8}, {"movd", 4}, {"movq", 8}};
      for (const auto& [end, bytes] : kParts)
        if (plain.ends_with(end)) return bytes;
      return plain.starts_with("movh") || plain.starts_with("movl") ? 8 : 16;
    }
    const bool extends = plain.size() == 6 && (plain.starts_with("movz") || plain.starts_with("movs"));
    const char width = extends ? plain[4] : plain.back();
    return width == 'b' ? 1 : width == 'w' ? 2 : width == 'l' ? 4 : 8;
  }
};

// What a register or a word of the frame holds, as far as it is known: a number and multiples of unknowns. Two that are
// equal are the same address.
struct Value {
  static constexpr int kFrame = 0, kThread = 1;  // unknowns: the function's frame; %fs:0
  long number = 0;
  std::map<int, long> unknowns = {};
  long alignment = 0;  // as the compiler has it checked; 0: not known

  Value operator+(const Value& other) const {
    Value sum{number + other.number, unknowns};
    for (const auto& [unknown, times] : other.unknowns)
      if ((sum.unknowns[unknown] += times) == 0) sum.unknowns.erase(unknown);
    return sum;
  }
  Value operator*(long factor) const {
    Value product{number * factor};
    for (const auto& [unknown, times] : unknowns) product.unknowns[unknown] = times * factor;
    return product;
  }
};

struct Access {
  Value address;
  long bytes;
  std::size_t line = 0;  // before which it would be announced, as this place
  Place place = {};
};

// Divisions and the like, which do not name the registers that they change.
bool uses_ax_and_dx(const Instruction& i) {
  for (const Text name :
       {"cltq", "cltd", "cqto", "cwtl", "mulq", "mull", "imulq", "imull", "divq", "divl", "idivq", "idivl"})
    if (i.name == name && i.operands.size() <= 1) return true;
  return false;
}

class Arguments {
 public:
  explicit Arguments(const std::string& text) : text_(text) {}

  std::string with_hooks() {
    std::vector<Text> lines;
    for (Text rest = text_; !rest.empty();) lines.push_back(cut(rest, '\n'));
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (lines[i].starts_with("\tj") && !(i > 0 && lines[i - 1].starts_with("\tcall\t__ubsan_")))
        targets_.insert(lines[i].substr(lines[i].rfind('\t') + 1));
    for (line_ = 0; line_ < lines.size(); ++line_) look_at(lines[line_]);
    if (hooks_.empty()) return text_;
    std::string result;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      for (auto [hook, end] = hooks_.equal_range(i); hook != end; ++hook) result.append(hook->second);
      result.append(lines[i]).append("\n");
    }
    return result;
  }

 private:
  void look_at(Text line) {
    if (line.empty() || line[0] == '#') return;
    if (line[0] != '\t') {
      if (line[0] == '.' && (line.size() < 3 || !is_digit(line[2]))) return;  // .LBB4 is for the debugger, .L4 a target
      return label(cut(line, ':'));
    }
    if (line.size() < 2 || line[1] == '.') return;
    const Instruction instruction(line);
    const auto& [name, operands] = instruction;
    if (name == "call") return call(operands[0]);
    if (name[0] == 'j' || name == "ret") return begins();
    if (name.starts_with("rep ")) return copies(name);
    if (uses_ax_and_dx(instruction)) values_.erase(kAx), values_.erase(kDx);
    if (operands.empty() || name == "lock") return;

    // A check of alignment; the struct at the address in this register is used behind it.
    if (name == "testb" && operands[0][0] == '$') {
      const auto slot = place_of(operands[1]) ? slot_of(*place_of(operands[1])) : std::optional<long>();
      const Value checked = slot ? at(*slot) : of(operands[1]);
      for (auto& [where, value] : values_)
        if (between(checked, value) == 0) value.alignment = std::atol(operands[0].data() + 1) + 1;
    }
    if (name.starts_with("test") || name.starts_with("cmp") || name.starts_with("nop")) return;

    const bool pushes = name.starts_with("push");
    if (!name.starts_with("lea"))
      for (std::size_t i = 0; i + !pushes < operands.size(); ++i)
        if (const auto place = place_of(operands[i])) note(loads_, *place, instruction.bytes());
    if (pushes) return;
    if (const auto place = place_of(operands.back())) {
      if (operands.size() == 2 && results_ & results_in(operands[0])) note(stores_, *place, instruction.bytes());
      if (const auto slot = slot_of(*place)) values_[*slot] = name == "movq" ? of(operands[0]) : unknown();
      return;
    }
    results_ &= ~results_in(operands.back());
    const int target = register_of(operands.back());
    if (target == kNone || target == kSp || target == kBp) return;
    const Value value = moved(name, operands);
    values_[target] = value;
  }

  // What the instruction leaves in its register.
  Value moved(Text name, const std::vector<Text>& operands) {
    const auto place = place_of(operands[0]);
    const Text last = operands.back();
    if (name == "leaq") return address_of(*place);
    if (name == "movq" && place && slot_of(*place)) return at(*slot_of(*place));
    if (name == "movq" && operands[0] == "%fs:0") return {0, {{Value::kThread, 1}}};
    if (name == "addq" && operands[0] == "%fs:0") return of(last) + Value{0, {{Value::kThread, 1}}};
    if (name == "movq" && place && of_linker(*place)) return unknown_of(place->symbol);
    if (std::any_of(operands.begin(), operands.end(), [](Text o) { return place_of(o).has_value(); })) return unknown();
    if (name == "movq" || (name == "movl" && operands[0][0] == '$')) return of(operands[0]);
    if (name == "addq") return of(last) + of(operands[0]);
    if (name == "subq" && operands.size() == 2) return of(last) + of(operands[0]) * -1;
    if (name == "salq" && operands.size() == 2 && operands[0][0] == '$')
      return of(last) * (1l << (of(operands[0]).number & 63));
    // The same of the same is the same, but for what looks at flags or at the stack.
    static constexpr Text kPure[] = {"lea", "mov", "add", "sub", "imul", "sal", "sar",
                                     "shr", "and", "or",  "xor", "neg",  "not"};
    if (std::none_of(std::begin(kPure), std::end(kPure), [=](Text pure) { return name.starts_with(pure); }))
      return unknown();
    std::vector<std::pair<long, std::map<int, long>>> inputs;
    for (const Text operand : operands) {
      const Value value = of(operand);
      inputs.push_back({value.number, value.unknowns});
    }
    const auto [found, fresh] = results_of_.try_emplace({name, inputs}, unknowns_ + 1);
    if (fresh) ++unknowns_;
    return {0, {{found->second, 1}}};
  }

  void call(Text function) {
    const Text name = cut(function, '@');
    if (name == "memcpy") {  // the compiler's: the kernel's is flash_memcpy
      if (at(kDx).unknowns.empty()) note(loads_, {false, 0, {}, "%rsi", {}, {}}, at(kDx).number);
      return forget_registers();  // the call for which it copies is still to come
    }
    announce(stores_, true);
    if (name.starts_with("__tsan_")) {
      loads_.clear();
      const std::size_t digit = name.find_first_of("0123456789");
      announced_.push_back({at(kDi), digit == Text::npos ? at(kSi).number : std::atol(name.data() + digit)});
    } else {
      if (!name.starts_with("__ubsan_")) announce(loads_, false);
      loads_.clear(), announced_.clear();
    }
    forget_registers();
    results_ = name.starts_with("__") ? 0 : 15;
  }

  // rep movsq and the like: of a large struct; %rcx says how often.
  void copies(Text name) {
    if (!name.starts_with("rep movs") || !at(kCx).unknowns.empty()) return;
    const long bytes = at(kCx).number * Instruction("\t" + std::string(name.substr(4))).bytes();
    note(loads_, {false, 0, {}, "%rsi", {}, {}}, bytes);
    values_[kSi] = at(kSi) + Value{bytes};
    values_[kDi] = unknown();
  }

  void begins() {
    announce(stores_, true);
    results_ = 0;
    loads_.clear(), announced_.clear();
  }

  void label(Text name) {
    begins();
    if (name[0] != '.') {
      values_.clear();
      own_atomic_ = name.find("13exchange_with") != Text::npos;  // sim/dialect/operations.hpp
    }
    if (!targets_.contains(name)) return forget_registers();  // one comes here from ubsan's function alone
    // An alignment has been checked on all ways, or the worst is a wrong number of requests.
    for (auto& [where, value] : values_) {
      const long alignment = value.alignment;
      value = unknown(), value.alignment = alignment;
    }
    values_.erase(kSp), values_.erase(kBp);
  }

  void forget_registers() {
    for (int r = 0; r < kRegisters; ++r)
      if (!survives_calls(r)) values_.erase(r);
  }

  // An entry of the linker's table: where a variable is.
  static bool of_linker(const Place& place) {
    return place.symbol.find("@GOT") != Text::npos || place.symbol.find("@gottpoff") != Text::npos;
  }
  Value unknown_of(Text symbol) {
    const auto [found, fresh] = symbols_.try_emplace(symbol, unknowns_ + 1);
    if (fresh) ++unknowns_;
    return {0, {{found->second, 1}}};
  }
  Value unknown() { return {0, {{++unknowns_, 1}}}; }
  Value& at(long key) {
    const auto [found, fresh] = values_.try_emplace(key);
    if (fresh) found->second = key == kSp || key == kBp ? Value{0, {{Value::kFrame, 1}}} : unknown();
    return found->second;
  }
  Value of(Text operand) {
    if (operand[0] == '$') return {std::atol(operand.data() + 1)};
    const int r = register_of(operand);
    return r == kNone ? unknown() : at(r);
  }
  // Words of the frame are known by their distance from %rbp.
  std::optional<long> slot_of(const Place& place) const {
    if (place.base != "%rbp" || !place.index.empty() || place.of_thread) return {};
    return place.number - (1l << 32);
  }
  Value address_of(const Place& place) {
    Value address{place.number};
    if (place.symbol.starts_with(".")) {  // a constant of the compiler's: as little as the frame
      address = address + Value{0, {{Value::kFrame, 1}}};
    } else if (!place.symbol.empty()) {
      address = address + unknown_of(place.symbol);
    }
    if (place.of_thread) address = address + Value{0, {{Value::kThread, 1}}};
    if (register_of(place.base) != kNone) address = address + of(place.base);
    if (!place.index.empty()) address = address + of(place.index) * (place.scale.empty() ? 1 : place.scale[0] - '0');
    return address;
  }

  // An access to memory that may be a kernel's: not to the frame, nor to the compiler's constants and tables.
  void note(std::vector<Access>& accesses, const Place& place, long bytes) {
    const Value address = address_of(place);
    const bool of_thread = place.of_thread && place.symbol.empty() && place.base.empty();
    if (own_atomic_ || of_linker(place) || of_thread || address.unknowns.contains(Value::kFrame) ||
        address.unknowns.empty())
      return;
    for (const Access& before : announced_)
      if (const auto distance = between(before.address, address))
        if (*distance >= 0 && *distance + bytes <= before.bytes) return;
    Access access{address, bytes, line_, place};
    if (register_of(place.base) != kNone && place.number == 0 && place.index.empty())
      access.address.alignment = of(place.base).alignment;
    accesses.push_back(access);
  }

  // How many bytes from one address to the other, if that is known.
  static std::optional<long> between(const Value& from, const Value& to) {
    if (from.unknowns != to.unknowns) return {};
    return to.number - from.number;
  }

  // A hook for each run of bytes that were noted. What is read twice is two structs.
  void announce(std::vector<Access>& accesses, bool writes) {
    while (!accesses.empty()) {
      Access run = accesses[0];
      std::set<long> begins{run.address.number};
      accesses.erase(accesses.begin());
      for (std::size_t i = 0; i < accesses.size();) {
        const Access& next = accesses[i];
        const auto distance = between(run.address, next.address);
        if (!distance || *distance > run.bytes || *distance + next.bytes < 0 ||
            !begins.insert(next.address.number).second) {
          ++i;
          continue;
        }
        const long before = std::max(-*distance, 0l), end = std::max(run.bytes, *distance + next.bytes);
        run.address.number -= before, run.place.number -= before, run.bytes = before + end;
        run.address.alignment = std::max(run.address.alignment, next.address.alignment);
        accesses.erase(accesses.begin() + static_cast<long>(i)), i = 0;
      }
      insert(run, writes);
    }
  }

  // The struct is accessed in pieces as wide as its alignment lets them be, or, where it is not known, its size.
  void insert(const Access& access, bool writes) {
    const Place& place = access.place;
    const long alignment = access.address.alignment;
    const long widest = std::min(alignment ? alignment : access.bytes & -access.bytes, 16l);
    std::string operand = std::to_string(place.number);
    if (!place.symbol.empty()) operand.append("+").append(place.symbol);
    if (!place.base.empty() || !place.index.empty()) operand.append("(").append(place.base);
    if (!place.index.empty()) operand.append(",").append(place.index).append(",").append(place.scale);
    if (!place.base.empty() || !place.index.empty()) operand.append(")");
    const long how = access.bytes << 8 | widest << 2 | (place.of_thread ? 2 : 0) | (writes ? 1 : 0);
    hooks_.emplace(access.line, "\tpushq\t%rdi\n\tleaq\t" + operand + ", %rdi\n\tpushq\t$" + std::to_string(how) +
                                    "\n\tcall\tflash_by_value@PLT\n\tleaq\t8(%rsp), %rsp\n\tpopq\t%rdi\n");
  }

  const std::string& text_;
  std::set<Text> targets_;  // labels to which jumps lead, other than those back from a check
  std::size_t line_ = 0;
  bool own_atomic_ = false;
  int unknowns_ = Value::kThread;
  std::map<Text, int> symbols_;
  std::map<std::pair<Text, std::vector<std::pair<long, std::map<int, long>>>>, int> results_of_;  // unknowns
  std::map<long, Value> values_;                   // by register and by word of the frame
  std::vector<Access> announced_;                  // by hooks since the last call of another function
  std::vector<Access> loads_;                      // not announced, since then
  std::vector<Access> stores_;                     // of results
  unsigned results_ = 0;                           // registers that still have what the last call returned
  std::multimap<std::size_t, std::string> hooks_;  // by the line before which they stand
};

}  // namespace

std::string with_arguments(const std::string& assembly) {
#if defined(__x86_64__)
  return Arguments(assembly).with_hooks();
#else
  return assembly;
#endif
}

}  // namespace flash::compiler
