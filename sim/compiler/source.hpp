// source.hpp: a preprocessed source file as tokens, and the edits that are made in it: what all rewriting steps share.
// Each edit keeps the lines of the text, so that errors, findings and debuggers name the lines of the user's file.
// Use: Source source(text); rewrite_launches(source); result = source.rewritten();
#pragma once
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace flash::compiler {

enum class Kind { word, literal, punctuation };  // a word is a name, a keyword or a number

struct Token {
  std::size_t begin, end;  // its place in the text
  Kind kind;
};

// A line that begins with #: a line marker, # 12 "file", or a pragma.
struct Directive {
  std::size_t begin, end;
};

// What cannot be translated: "file:line: error: …".
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

bool in_word(char c);
bool is_digit(char c);

class Source {
 public:
  // `text` must outlive the source. It was preprocessed: comments are gone.
  explicit Source(std::string_view text);

  std::size_t size() const { return tokens_.size(); }
  // Token i; "" beyond the end.
  std::string_view at(std::size_t i) const {
    return i < tokens_.size() ? text_.substr(tokens_[i].begin, tokens_[i].end - tokens_[i].begin) : std::string_view();
  }
  const Token& token(std::size_t i) const { return tokens_[i]; }
  // Do tokens i and i + 1 touch each other?
  bool touch(std::size_t i) const { return i + 1 < tokens_.size() && tokens_[i].end == tokens_[i + 1].begin; }
  // The token that closes the bracket which token i, one of ( [ {, opens; size() when there is none.
  std::size_t closing(std::size_t i) const;

  // Replaces the text from `begin` to `end`. Edits never overlap.
  void replace(std::size_t begin, std::size_t end, std::string by) { edits_[begin] = {end, std::move(by)}; }
  void replace_token(std::size_t i, std::string by) { replace(tokens_[i].begin, tokens_[i].end, std::move(by)); }
  std::string rewritten() const;

  // What of this part of the text makes the compiler count lines.
  std::string line_breaks(std::size_t begin, std::size_t end) const;
  // An error at a token: "file:line: error: what".
  Malformed malformed(std::size_t token, const std::string& what) const;
  // Does it come from one of the system's headers, or from one of ours that says so?
  bool of_system(std::size_t token) const;
  // The files that the text was made of, without those.
  std::set<std::string> files() const;
  // Each include: the file that it led to, and where it stands, "file:line".
  struct Entry {
    std::string file, from;
  };
  std::vector<Entry> entries() const;

 private:
  struct Edit {
    std::size_t end;
    std::string text;
  };
  std::size_t newlines(std::size_t begin, std::size_t end) const;

  std::string_view text_;
  std::vector<Token> tokens_;
  std::vector<Directive> directives_;
  std::map<std::size_t, Edit> edits_;  // by where they begin
};

// Refuses the headers of CUDA and its libraries that are not ours (headers.cpp).
void refuse_headers(const Source& source);
// The line that refuses one, made of what the preprocessor says when it fails; empty: it failed for another cause.
std::string refusal_of(const std::string& messages);

// kernel<<<grid, block>>>(x) becomes a call of launch.hpp's on_this_machine(grid, block).kernel(…)(x).
void rewrite_launches(Source& source);

// asm("…") becomes calls of sim/cuda/inline_ptx.hpp, where the file is of a program; else it is refused
// (inline_ptx.cpp).
void rewrite_assembly(Source& source, bool simulated);

// Refuses what would compile and mean something else than in CUDA: textures (words.cpp).
void refuse_words(const Source& source);
// "file:line" of the first __CUDA_ARCH__ in the files that the text was made of; empty: they do not mention it.
std::string mention_of_architecture(const Source& source);
// Refuses host code that __CUDA_ARCH__ decides about: the text with it and without it (architecture.cpp).
void refuse_choices(const Source& device, const Source& host);

// What the rest of the translation must know of the variables that a file declares.
struct Variables {
  bool any_shared = false, any_device = false;
  std::set<std::string> dynamic;  // names of extern __shared__ arrays
};
// __shared__, __device__, __constant__ and __managed__ become C++; see variables.cpp.
Variables rewrite_variables(Source& source);

// Red zones around these variables in g++'s assembly text, and the tables that tell the simulator of them.
std::string with_tables(const std::string& assembly, const Variables& variables);

}  // namespace flash::compiler
