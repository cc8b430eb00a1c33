// launches.cpp: turns CUDA's launches into C++: kernel<<<grid, block>>>(x) becomes a call of launch.hpp's
// on_this_machine(grid, block).kernel(…)(x); __launch_bounds__ and __cluster_dims__ checks where the kernel begins; the
// cast of cudaLaunchKernel((void*)kernel, …) goes. The text is preprocessed, so launches that macros make are seen too.
// Use: rewrite_launches(source); main.cpp does.
#include <algorithm>
#include <map>
#include <optional>

#include "sim/compiler/source.hpp"

namespace flash::compiler {
namespace {

class Launches {
 public:
  explicit Launches(Source& source) : source_(source) {}

  // Throws Malformed.
  void rewrite() {
    for (std::size_t i = 0; i < source_.size(); ++i)
      if (opens_launch(i))
        launch(i);
      else if (at(i) == "flash_launch_bounds")
        check_at_begin(i, "check_launch_bounds");
      else if (at(i) == "flash_cluster_dims")
        check_at_begin(i, "check_cluster_dims");
      else if (at(i) == "cudaLaunchKernel" || at(i) == "cudaLaunchCooperativeKernel")
        uncast(i + 1);
  }

 private:
  std::string_view at(std::size_t i) const { return source_.at(i); }
  bool touch(std::size_t i) const { return source_.touch(i); }
  // Three in a row. The preprocessor may put a blank after or before the pair when they come from a macro.
  bool triple(std::size_t i, std::string_view angle) const {
    return at(i) == angle && at(i + 1) == angle && at(i + 2) == angle && (touch(i) || touch(i + 1));
  }
  // `operator<<<int>` and `operator<< <>` are no launches.
  bool opens_launch(std::size_t i) const { return triple(i, "<") && (i == 0 || at(i - 1) != "operator"); }
  bool closes_launch(std::size_t i) const { return triple(i, ">") && at(i + 3) == "("; }

  // A name that an expression may contain: not a number, not `return` and its kind.
  bool is_name(std::size_t i) const {
    static constexpr std::string_view kKeywords[] = {"return", "else",   "do",       "case",     "if",       "while",
                                                     "for",    "switch", "co_yield", "co_await", "co_return"};
    return source_.token(i).kind == Kind::word && !is_digit(at(i)[0]) &&
           std::find(std::begin(kKeywords), std::end(kKeywords), at(i)) == std::end(kKeywords);
  }

  // The token that opens what token i closes; none when a statement begins in between.
  std::optional<std::size_t> opening(std::size_t i) const {
    static constexpr std::string_view kOpen = "([<", kClose = ")]>";
    const std::string_view close = at(i), open = kOpen.substr(kClose.find(close), 1);
    for (std::size_t depth = 1; i > 0 && depth > 0;) {
      const std::string_view token = at(--i);
      if (token == open && --depth == 0) return i;
      if (token == close) ++depth;
      if (close == ">" && (token == ")" || token == "]")) {  // (a > b) is no bracket
        const std::optional<std::size_t> inner = opening(i);
        if (!inner) return {};
        i = *inner;
      }
      if (close == ">" && (token == ";" || token == "{" || token == "}")) return {};
    }
    return {};
  }

  // The first token of the expression that ends before token `end`: k, ns::k<T, 32>, (*f), table[i], a.f, get(1).
  std::optional<std::size_t> kernel_begin(std::size_t end) const {
    for (std::size_t first = end; first > 0;) {
      std::size_t p = first - 1;
      // Subscripts, calls, template arguments: to the left of them stands what they belong to.
      while (at(p) == "]" || at(p) == ")" || at(p) == ">") {
        const std::optional<std::size_t> open = opening(p);
        if (!open) return {};
        const bool belongs = *open > 0 && (is_name(*open - 1) || at(*open - 1) == "]" || at(*open - 1) == ">");
        if (at(p) == ")" && !belongs) return *open;  // (*f)
        if (!belongs && !(at(p) == "]" && *open > 0 && at(*open - 1) == ")")) return {};
        p = *open - 1;
      }
      if (!is_name(p)) return {};
      first = p;
      // What is it a member of?
      if (first > 0 && at(first - 1) == "template") --first;
      if (first == 0) return first;
      if (at(first - 1) == "." || at(first - 1) == "->") {
        --first;
      } else if (at(first - 1) == "::") {
        --first;
        if (first == 0 || !(is_name(first - 1) || at(first - 1) == ">")) return first;  // ::k
      } else {
        return first;
      }
    }
    return {};
  }

  // The first token of the >>> that ends the configuration which begins at token i.
  std::optional<std::size_t> configuration_end(std::size_t i) const {
    // At first take "name<" for the begin of template arguments, as in k<<<1, Traits<Traits<A<T>>>(1)>>>; if that leads
    // nowhere, one of them was a comparison: then the first >>>( it is.
    for (const bool templates : {true, false}) {
      int depth = 0, angles = 0;
      for (std::size_t j = i; j < source_.size() && depth >= 0; ++j) {
        const std::string_view token = at(j);
        if (token == "(" || token == "[" || token == "{") ++depth;
        if (token == ")" || token == "]" || token == "}") --depth;
        if (depth > 0) continue;
        if (token == ";") break;
        if (angles == 0 && closes_launch(j)) return j;
        if (token == "<" && at(j + 1) == "<") {  // a shift
          ++j;
        } else if (templates && token == "<" && is_name(j - 1)) {
          ++angles;
        } else if (token == ">" && angles > 0) {
          --angles;
        }
      }
    }
    return {};
  }

  // Rewrites the launch whose <<< begins at token i.
  void launch(std::size_t i) {
    const std::optional<std::size_t> first = kernel_begin(i);
    if (!first) throw malformed(i, "there is no kernel's name before <<<");
    const std::optional<std::size_t> close = configuration_end(i + 3);
    if (!close) throw malformed(i, "there is no >>>(arguments) after <<<");

    // Line breaks and line markers inside the kernel's expression move in front of it; it comes on one line.
    const std::size_t begin = source_.token(*first).begin, end = source_.token(i + 2).end;
    const std::string kernel = one_line(*first, i);
    source_.replace(begin, end, source_.line_breaks(begin, end) + "::flash::on_this_machine(");
    source_.replace(source_.token(*close).begin, source_.token(*close + 2).end,
                    ").kernel(" + quoted(kernel) + ", [&](auto flash_use) -> decltype(flash_use(" + kernel +
                        ")) { return flash_use(" + kernel + "); }, [&](auto... flash_arguments) { " + kernel +
                        "(flash_arguments...); })");
  }

  // An attribute of a kernel, such as __launch_bounds__(n, …), becomes one of the first statements of its body; of a
  // declaration, nothing.
  void check_at_begin(std::size_t i, const char* check) {
    std::size_t close = i + 1;
    for (int depth = 0; close < source_.size(); ++close) {
      if (at(close) == "(") ++depth;
      if (at(close) == ")" && --depth == 0) break;
    }
    const std::size_t begin = source_.token(i).begin, end = source_.token(std::min(close, source_.size() - 1)).end;
    source_.replace(begin, end, source_.line_breaks(begin, end));
    const std::string values = one_line(i + 2, close);
    int depth = 0;
    for (std::size_t j = close + 1; j < source_.size() && !(depth == 0 && at(j) == ";"); ++j) {
      if (depth == 0 && at(j) == "{") {
        const std::size_t body = source_.token(j).end;
        std::string& statements = first_statements_[body];
        statements += std::string(" ::flash::simt::") + check + "(" + values + ");";
        source_.replace(body, body, statements);
        return;
      }
      if (at(j) == "(") ++depth;
      if (at(j) == ")") --depth;
    }
  }

  // ((void*)kernel, …): without the cast the kernel has its parameters' types, which the launch needs.
  void uncast(std::size_t i) {
    if (at(i) != "(" || at(i + 1) != "(") return;
    const std::size_t close = source_.closing(i + 1);
    bool is_void = false;
    for (std::size_t j = i + 2; j < close; ++j) {
      if (at(j) != "void" && at(j) != "const" && at(j) != "*") return;
      is_void |= at(j) == "void";
    }
    for (std::size_t j = i + 1; is_void && j <= close; ++j) source_.replace_token(j, "");
  }

  // Tokens first … end - 1, as one would write them: "k<T, 32>".
  std::string one_line(std::size_t first, std::size_t end) const {
    std::string line;
    for (std::size_t t = first; t < end; ++t) {
      const std::string_view token = at(t);
      if (!line.empty() && (line.back() == ',' || (in_word(line.back()) && in_word(token[0])))) line += ' ';
      line += token;
    }
    return line;
  }

  static std::string quoted(const std::string& text) {
    std::string literal = "\"";
    for (char c : text) literal.append(c == '"' || c == '\\' ? "\\" : "").push_back(c);
    return literal + "\"";
  }

  Malformed malformed(std::size_t token, const std::string& what) const {
    return source_.malformed(token,
                             "not a launch: " + what + "; write kernel<<<grid, block, bytes, stream>>>(arguments)");
  }

  Source& source_;
  std::map<std::size_t, std::string> first_statements_;  // by where a body begins
};

}  // namespace

void rewrite_launches(Source& source) {
  Launches(source).rewrite();
}

}  // namespace flash::compiler
