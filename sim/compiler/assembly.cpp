// assembly.cpp: what of __shared__ and __device__ variables can only be done once g++ has laid them out: red zones, so
// that an overrun reaches no neighbour; one memory behind all extern __shared__ names; and tables of names and sizes.
// The text is g++ -S output; a kernel's shared arrays are those that it, or a function that it calls, mentions.
// Use: with_tables(assembly, variables); main.cpp does. The simulator's side: sim/core/variables.hpp.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include <cxxabi.h>

#include "sim/compiler/source.hpp"

namespace flash::compiler {
namespace {

constexpr const char* kRedZone = "\t.zero\t2048\n";
constexpr std::string_view kDynamic = "flash_dynamic_shared";  // sim/core/dynamic_shared.cpp

// Where a thread-local variable lies. On ARM no relocation puts that into data; two instructions can hold it.
std::string thread_offset(const std::string& symbol, bool arm) {
  if (!arm) return "\t.quad\t" + symbol + "@tpoff\n";
  return "\tmovz\tx0, #:tprel_g1:" + symbol + "\n\tmovk\tx0, #:tprel_g0_nc:" + symbol + "\n";
}

bool in_symbol(char c) {
  return in_word(c) || c == '.';
}

// "transpose(float const*)::tile" is "tile"; so are tile.0 and the other symbols that are not mangled.
std::string short_name(const std::string& symbol) {
  const std::unique_ptr<char, void (*)(void*)> plain(
      symbol.starts_with("_Z") ? abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr) : nullptr, std::free);
  std::string name = plain ? plain.get() : symbol.substr(0, symbol.find('.'));
  if (const std::size_t at = name.rfind("::"); at != std::string::npos) name.erase(0, at + 2);
  if (const std::size_t at = name.find('['); at != std::string::npos) name.resize(at);  // [abi:…]
  return name;
}

class Assembly {
 public:
  Assembly(const std::string& text, const Variables& variables)
      : text_(text), dynamic_(variables.dynamic), arm_(text.find("\t.arch armv") != std::string::npos) {}

  std::string with_tables() {
    read();
    std::ostringstream out;
    write(out);
    return out.str();
  }

 private:
  struct Object {
    std::string bytes, section;  // as the directives say
    bool thread_local_ = false;
  };
  struct Function {
    std::string section;
    std::set<std::string> mentions;
  };

  // Calls line(text, section) for each line; `section` is the directive that begins the current one.
  template <class Line>
  void for_lines(Line line) const {
    std::string section = "\t.text", before = section;
    std::istringstream in(text_);
    for (std::string text; std::getline(in, text);) {
      const std::string word = text.substr(0, text.find_first_of(" \t", 1));
      if (word == "\t.section" || word == "\t.text" || word == "\t.data" || word == "\t.bss")
        before = std::exchange(section, text);
      else if (word == "\t.previous")
        std::swap(section, before);
      line(text, section);
    }
  }
  // g++ repeats the flags only where it must.
  static bool is_thread_local(const std::string& section) {
    return section.starts_with("\t.section\t.tbss") || section.starts_with("\t.section\t.tdata");
  }
  // Behind a symbol: @tpoff or @gottpoff(…), not @PLT.
  static bool is_offset(std::string_view rest) {
    return rest.starts_with('@') && rest.find("plt") == rest.npos && rest.find("PLT") == rest.npos;
  }
  static bool is_device(const std::string& section) {
    return section.starts_with("\t.section\t.bss.flash.") || section.starts_with("\t.section\t.data.flash.");
  }

  void read() {
    std::map<std::string, std::string> sizes;
    for_lines([&](const std::string& line, const std::string& section) {
      const auto argument = [&](const char* directive) {
        return line.starts_with(directive) ? line.substr(std::char_traits<char>::length(directive)) : std::string();
      };
      if (const std::string rest = argument("\t.type\t"); !rest.empty()) {
        const std::string symbol = rest.substr(0, rest.find(','));
        if (rest.find("function") != std::string::npos)
          functions_[symbol].section = section;
        else if (is_thread_local(section) || is_device(section))
          objects_[symbol] = {"0", section, is_thread_local(section)};
      } else if (const std::string size = argument("\t.size\t"); !size.empty()) {
        const std::size_t comma = size.find(',');
        const auto object = objects_.find(size.substr(0, comma));
        if (object != objects_.end()) object->second.bytes = size.substr(comma + 2);
      } else if (const std::string global = argument(arm_ ? "\t.global\t" : "\t.globl\t") + argument("\t.weak\t");
                 !global.empty()) {
        globals_.insert(global);
      } else if (const std::string names = argument("\t.set\t"); !names.empty()) {
        // A constructor's second name: a function that does no more than the other.
        const std::size_t comma = names.find(',');
        Function& other = functions_[names.substr(0, comma)];
        other.section = section, other.mentions = {names.substr(comma + 1)};
      }
    });

    // What each function mentions.
    Function* function = nullptr;
    for_lines([&](const std::string& line, const std::string&) {
      if (line.empty() || line[0] == '.') return;
      if (line[0] != '\t') {
        const auto found = functions_.find(line.substr(0, line.find(':')));
        if (found != functions_.end()) function = &found->second;
        return;
      }
      if (!function || line[1] == '.') return;
      for (std::size_t i = line.find_first_of(" \t", 1); i < line.size();) {
        if (line[i] == '$') ++i;  // an immediate operand: $tile@tpoff
        std::size_t end = i;
        while (end < line.size() && in_symbol(line[end])) ++end;
        const std::string word = line.substr(i, end - i);
        const bool own = functions_.count(word) || (objects_.count(word) && objects_.at(word).thread_local_);
        if (own) function->mentions.insert(word);
        // The TLS symbol of an extern array, defined nowhere here.
        const std::string_view all = line;
        const bool offset = arm_ ? all.substr(0, i).ends_with(":gottprel:") : is_offset(all.substr(end));
        if (!own && offset && dynamic_.count(short_name(word)) && !objects_.count(word)) {
          function->mentions.insert(word);
          aliases_.insert(word);
        }
        i = std::max(end, i + 1);
      }
    });
  }

  // The shared arrays that a function reaches, itself or through others.
  std::set<std::string> arrays_of(const std::string& name) const {
    std::set<std::string> arrays, seen;
    std::vector<std::string> open{name};
    while (!open.empty()) {
      const std::string next = open.back();
      open.pop_back();
      if (!seen.insert(next).second) continue;
      const auto function = functions_.find(next);
      if (function != functions_.end())
        open.insert(open.end(), function->second.mentions.begin(), function->second.mentions.end());
      else if (objects_.count(next) || aliases_.count(next))
        arrays.insert(next);
    }
    return arrays;
  }

  void write(std::ostringstream& out) const {
    std::string align;
    std::set<std::string> sections;
    for_lines([&](const std::string& line, const std::string& section) {
      if (line.starts_with(arm_ ? "\t.align\t" : "\t.align ")) align = line;
      if (line.ends_with(':') && objects_.count(line.substr(0, line.size() - 1))) {
        // At least 16 bytes: the simulator looks addresses up by 16 bytes.
        out << kRedZone << "\t.balign 16\n" << align << "\n";
        sections.insert(section);
      }
      out << line << "\n";
    });
    for (const std::string& section : sections) {
      const bool group =
          section.find("comdat") != std::string::npos;  // known by all its attributes, others by their name
      out << (group ? section : section.substr(0, section.find(','))) << "\n" << kRedZone;
    }
    for (const std::string& alias : aliases_) out << "\t.set\t" << alias << "," << kDynamic << "\n";

    // struct SharedUse and struct DeviceVariable of sim/core/variables.hpp.
    out << "\t.section\tflash_shared,\"aw\",@progbits\n\t.balign 8\n";
    for (const auto& [name, function] : functions_) {
      // A local symbol of a group may be discarded with it.
      if (name[0] == '.') continue;
      if (!globals_.count(name) && function.section.find("comdat") != std::string::npos) continue;
      for (const std::string& array : arrays_of(name)) {
        const bool dynamic = aliases_.count(array) != 0;
        out << "\t.quad\t" << name << ", " << label(short_name(array)) << "\n"
            << thread_offset(dynamic ? std::string(kDynamic) : array, arm_) << "\t.quad\t"
            << (dynamic ? "-1" : objects_.at(array).bytes) << "\n";
      }
    }
    out << "\t.section\tflash_device,\"aw\",@progbits\n\t.balign 8\n";
    for (const auto& [name, object] : objects_) {
      if (object.thread_local_) continue;
      // .bss.flash.d.4.1
      const std::size_t kind = object.section.find(".flash.") + 7;
      out << "\t.quad\t" << name << ", " << label(short_name(name)) << ", " << object.bytes << "\n\t.long\t"
          << std::atoi(object.section.c_str() + kind + 2) << ", " << (object.section[kind] == 'c') << "\n";
    }
    out << "\t.section\t.rodata.flash,\"a\",@progbits\n";
    for (const auto& [text, number] : labels_) out << ".Lflash" << number << ":\n\t.string\t\"" << text << "\"\n";
  }

  std::string label(const std::string& text) const {
    return ".Lflash" + std::to_string(labels_.try_emplace(text, labels_.size()).first->second);
  }

  const std::string& text_;
  const std::set<std::string>& dynamic_;
  const bool arm_;
  std::map<std::string, Object> objects_;
  std::map<std::string, Function> functions_;
  std::set<std::string> globals_, aliases_;
  mutable std::map<std::string, std::size_t> labels_;  // texts of the tables
};

}  // namespace

std::string with_tables(const std::string& assembly, const Variables& variables) {
  return Assembly(assembly, variables).with_tables();
}

}  // namespace flash::compiler
