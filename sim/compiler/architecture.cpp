// architecture.cpp: nvcc compiles a file once for the host, where __CUDA_ARCH__ is not defined, and once for each GPU;
// g++ compiles it once, with __CUDA_ARCH__. That is right where the word decides about device code alone: the same text
// without it must have the same host code. Both are compared, declaration by declaration.
// Use: refuse_choices(with __CUDA_ARCH__, without it); main.cpp does, where a file mentions the word.
#include <map>

#include "sim/compiler/source.hpp"

namespace flash::compiler {
namespace {

// A declaration at namespace scope or in a class: a function with its body, a variable, a type.
struct Declaration {
  std::size_t token = 0;  // the first one
  bool device = false, host = false;
};
using Declarations = std::map<std::string, Declaration>;  // by their text

class Reader {
 public:
  explicit Reader(const Source& source) : source_(source) {}

  Declarations read() {
    for (std::size_t i = 0; i < source_.size(); ++i) {
      const std::string_view token = source_.at(i);
      if (token == "}") {  // of a namespace or a class
        begin(i + 1);
      } else if (token == ";") {
        end(i);
      } else if (token == "{") {
        if (!has_parameters_ && opens_scope_) {
          begin(i + 1);
        } else {
          i = source_.closing(i);
          if (has_parameters_) end(i);
        }
      } else if (token == "__attribute__" || token == "alignas" || token == "decltype") {
        device_ |= source_.at(i + 3) == "noinline";  // __global__
        i = source_.closing(i + 1);
      } else if (token == "(") {
        has_parameters_ = true;
        i = source_.closing(i);
      } else {
        opens_scope_ |= token == "namespace" || token == "class" || token == "struct" || token == "union" ||
                        (token == "extern" && source_.token(i + 1).kind == Kind::literal);
        device_ |= token == "__device__";
        host_ |= token == "__host__";
      }
    }
    return std::move(found_);
  }

 private:
  void begin(std::size_t i) {
    first_ = i;
    has_parameters_ = opens_scope_ = device_ = host_ = false;
  }
  void end(std::size_t last) {
    std::string text;
    for (std::size_t i = first_; i <= last && i < source_.size(); ++i) text.append(source_.at(i)).append(1, ' ');
    found_.try_emplace(std::move(text), Declaration{first_, device_, host_});
    begin(last + 1);
  }

  const Source& source_;
  Declarations found_;
  std::size_t first_ = 0;
  bool has_parameters_ = false, opens_scope_ = false, device_ = false, host_ = false;
};

// Refuses host code that `one` has and `other` has not.
void refuse_difference(const Source& source, const Declarations& one, const Declarations& other) {
  for (const auto& [text, declaration] : one)
    if ((!declaration.device || declaration.host) && !other.count(text))
      throw source.malformed(declaration.token,
                             "__CUDA_ARCH__ decides what this is on the host, where it is not defined; host and "
                             "device code are compiled as one here; leave it out, or see --arch");
}

}  // namespace

void refuse_choices(const Source& device, const Source& host) {
  const Declarations on_device = Reader(device).read(), on_host = Reader(host).read();
  refuse_difference(device, on_device, on_host);
  refuse_difference(host, on_host, on_device);
}

}  // namespace flash::compiler
