// inline_ptx.cpp: asm("…" : outputs : inputs) in a program's kernels becomes C++: a block with a call of a function of
// sim/cuda/inline_ptx.hpp for each instruction of PTX. What ptx_words.cpp does not have is refused by its name.
// PTX ISA, "Instruction Statements": [label:] [@p] opcode operand, …; operands are %0, registers that .reg declares,
// numbers, [addresses + 16], {vectors}. Use: rewrite_assembly(source, simulated); main.cpp does.
#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sim/compiler/ptx_words.hpp"
#include "sim/compiler/source.hpp"

namespace flash::compiler {
namespace {

using Text = std::string_view;

std::string trimmed(Text text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return std::string(text);
}

// What a string literal says.
std::string unescaped(Text literal) {
  if (literal[0] != '"')
    return std::string(literal.substr(literal.find('(') + 1, literal.rfind(')') - literal.find('(') - 1));
  std::string result;
  for (std::size_t i = 1; i + 1 < literal.size(); ++i) {
    if (literal[i] != '\\') {
      result += literal[i];
    } else {
      ++i;
      result += literal[i] == 'n' ? '\n' : literal[i] == 't' || literal[i] == 'r' ? ' ' : literal[i];
    }
  }
  return result;
}

// One asm statement.
class Statement {
 public:
  Statement(const Source& source, std::size_t word) : source_(source), word_(word) {
    std::size_t i = word + 1;
    while (at(i) == "volatile" || at(i) == "__volatile__") ++i;
    if (at(i) != "(") throw refused("asm " + std::string(at(i)));
    close_ = source.closing(i);
    for (++i; i < close_ && source.token(i).kind == Kind::literal; ++i) ptx_ += unescaped(at(i));
    for (int section = 0; i < close_; ++i) {
      section += at(i) == ":" ? 1 : at(i) == "::" ? 2 : 0;
      if (section < 3 && at(i) != ":" && at(i) != "::" && at(i) != ",") i = read_operand(i);
    }
    without_comments();
  }
  std::size_t close() const { return close_; }

  // The same in C++, without a semicolon.
  std::string translated() {
    for (std::size_t begin = 0; begin < ptx_.size();) {
      const std::size_t end = end_of_statement(begin);
      translate(trimmed(Text(ptx_).substr(begin, end - begin)));
      begin = end + (end < ptx_.size() && ptx_[end] == ';');
    }
    std::string begin = "do { ";
    for (const std::string& label : labels_) begin += "__label__ flash_l_" + label + "; ";
    for (std::size_t i = 0; i < operands_.size(); ++i)
      begin += "[[maybe_unused]] auto&& flash_" + std::to_string(i) + " = (" + operands_[i] + "); ";
    return begin + body_ + "} while (0)";
  }

 private:
  Text at(std::size_t i) const { return source_.at(i); }
  Malformed refused(const std::string& what) const {
    return source_.malformed(word_, "inline assembly: " + what + " is not simulated; write the operation in CUDA C++");
  }

  // "=r"(expression): the token that closes it.
  std::size_t read_operand(std::size_t i) {
    if (at(i) == "[")
      throw source_.malformed(word_,
                              "inline assembly: the operand [" + std::string(at(i + 1)) +
                                  "] has a name, which nvcc refuses; write %0, %1, … in the order of the operands");
    std::string operand;
    const Text constraint = at(i);
    if (constraint.find_first_not_of("\"=+&rlfdhn") != Text::npos || at(i + 1) != "(")
      throw refused("the operand " + std::string(constraint));
    const std::size_t close = source_.closing(i + 1);
    for (std::size_t t = i + 2; t < close; ++t) {
      operand += at(t);
      if (!source_.touch(t)) operand += ' ';
    }
    operands_.push_back(std::move(operand));
    return close;
  }

  // Nor the %= by which labels differ from copy to copy: each block has its own.
  void without_comments() {
    for (std::size_t at; (at = ptx_.find("%=")) != std::string::npos;) ptx_.erase(at, 2);
    for (const auto& [open, end] : {std::pair<Text, Text>{"//", "\n"}, {"/*", "*/"}})
      for (std::size_t begin; (begin = ptx_.find(open)) != std::string::npos;) {
        const std::size_t last = ptx_.find(end, begin + 2);
        ptx_.erase(begin, last == std::string::npos ? last : last + end.size() - begin);
      }
  }

  // Braces around statements and labels are statements of their own here.
  std::size_t end_of_statement(std::size_t begin) const {
    std::size_t i = begin;
    while (i < ptx_.size() && std::isspace(static_cast<unsigned char>(ptx_[i]))) ++i;
    if (i < ptx_.size() && (ptx_[i] == '{' || ptx_[i] == '}')) return i + 1;
    std::size_t word = i;
    while (word < ptx_.size() && (in_word(ptx_[word]) || ptx_[word] == '%')) ++word;
    if (word > i && word < ptx_.size() && ptx_[word] == ':' && ptx_.compare(word, 2, "::") != 0) return word + 1;
    return std::min(ptx_.find(';', i), ptx_.size());
  }

  void translate(std::string text) {
    if (text.empty()) return;
    if (text == "{" || text == "}") {
      body_ += text + " ";
    } else if (text.back() == ':') {
      text.pop_back();
      labels_.push_back(text);
      body_ += "flash_l_" + text + ": ; ";
    } else if (text.starts_with(".reg")) {
      declare(text);
    } else {
      if (text[0] == '@') {
        const bool negated = text[1] == '!';
        const std::size_t blank = std::min(text.find_first_of(" \t\n"), text.size());
        body_ += std::string("if (") + (negated ? "!" : "") +
                 operand(text.substr(negated ? 2 : 1, blank - (negated ? 2 : 1))) + ") ";
        text = trimmed(Text(text).substr(blank));
      }
      instruct(text);
    }
  }

  // .reg .b32 a, b
  void declare(const std::string& text) {
    const std::string rest = trimmed(Text(text).substr(4));
    const std::size_t blank = std::min(rest.find_first_of(" \t\n"), rest.size());
    const auto type = rest.starts_with('.') ? ptx_type(Text(rest).substr(1, blank - 1)) : std::nullopt;
    if (!type || rest.find('<') != std::string::npos) throw refused(text);
    std::string name;
    for (const char c : rest.substr(blank) + ",") {
      if (c != ',') {
        name += c;
      } else if (name = trimmed(name); !name.empty()) {
        registers_[name] = "flash_r" + std::to_string(declared_++);
        body_ += *type + " " + registers_[name] + "; ";
        name.clear();
      }
    }
  }

  void instruct(const std::string& text) {
    const std::size_t blank = std::min(text.find_first_of(" \t\n"), text.size());
    const std::string opcode = text.substr(0, blank), operands = trimmed(Text(text).substr(blank));
    if (opcode == "bra" || opcode == "bra.uni") {
      body_ += "goto flash_l_" + operands + "; ";
      return;
    }
    std::optional<std::string> function = ptx_function(opcode);
    if (!function) throw refused(opcode);
    if (function->starts_with("mov<") && operands.find('{') != std::string::npos)
      *function = (operands[0] == '{' ? "unpack" : "pack") + function->substr(3);
    // Vectors, addresses and pairs p|q are taken apart: their order says all.
    std::string arguments, one;
    for (const char c : operands + ",") {
      if (Text("[]{},|").find(c) == Text::npos) {
        one += c;
      } else if (one = trimmed(one); !one.empty()) {
        arguments += (arguments.empty() ? "" : ", ") + operand(one);
        one.clear();
      }
    }
    body_ += "::flash::ptx::" + *function + "(" + arguments + "); ";
  }

  // %0, %laneid, a register, a number, _, or such a thing with an offset behind + or -.
  std::string operand(std::string text) {
    if (const std::size_t sign = text.find_first_of("+-", 1); sign != std::string::npos) {
      const std::string offset = trimmed(Text(text).substr(sign + 1));
      return "::flash::ptx::at(" + operand(trimmed(Text(text).substr(0, sign))) + ", " + text[sign] + operand(offset) +
             ")";
    }
    if (const auto known = registers_.find(text); known != registers_.end()) return known->second;
    if (text == "_") return "::flash::ptx::sink";
    if (text.starts_with("0f") || text.starts_with("0F")) return "::flash::ptx::float_of(0x" + text.substr(2) + "u)";
    if (is_digit(text[0]) || (text[0] == '-' && text.size() > 1)) return text;
    const std::size_t name = text.find_first_not_of('%');
    if (name == 0 || name == std::string::npos) throw refused("the operand " + text);
    if (is_digit(text[name])) {
      const std::size_t number = std::stoul(text.substr(name, 4));
      if (number < operands_.size()) return "flash_" + std::to_string(number);
    } else if (const auto special = ptx_special_register(Text(text).substr(name))) {
      return "::flash::ptx::" + *special;
    }
    throw refused("the operand " + text);
  }

  const Source& source_;
  std::size_t word_, close_ = 0;
  std::string ptx_, body_;
  std::vector<std::string> operands_;  // their expressions
  std::vector<std::string> labels_;
  std::size_t declared_ = 0;
  std::map<std::string, std::string> registers_;  // that .reg declares: their names in C++
};

}  // namespace

void rewrite_assembly(Source& source, bool simulated) {
  for (std::size_t i = 0; i < source.size(); ++i) {
    if ((source.at(i) != "asm" && source.at(i) != "__asm__" && source.at(i) != "__asm") || source.of_system(i))
      continue;
    if (!simulated) throw source.malformed(i, "inline assembly is not simulated; write the operation in CUDA C++");
    Statement statement(source, i);
    const std::size_t begin = source.token(i).begin, end = source.token(statement.close()).end;
    source.replace(begin, end, statement.translated() + source.line_breaks(begin, end));
    i = statement.close();
  }
}

}  // namespace flash::compiler
