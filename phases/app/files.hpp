// files.hpp: the arrays of a problem as .npy files, by the list of operands (phases/interface/operands.hpp): the flag
// that names each, its type and shape in a file, memory for what is read and for what is written.
// Use: ProblemFiles files(args, type, out);  validate(files.problem(Direction::Forward, options), phase);
//      files.allocate();  enter(phase, files.problem(…));  files.write();
#pragma once
#include <map>
#include <string>
#include <vector>

#include "phases/app/options.hpp"
#include "phases/arrays/npy.hpp"
#include "phases/interface/operands.hpp"

namespace flash {

// The words by which files are given, without "--": "q", "lse", "cu-seqlens-q".
std::vector<std::string> file_flags();
// Those of them that are written.
std::vector<std::string> output_flags();

class ProblemFiles {
 public:
  // Reads all inputs that the words name; types and ranks that are not theirs are refused. With --dout it holds what
  // the forward pass keeps for the backward pass, too. wide_output: O is fp32, whatever Q is.
  ProblemFiles(const Arguments& args, NpyType type, bool wide_output);

  // The arrays of one direction. Until allocate() has been called, what is written has no memory of its own.
  AnyProblem problem(Direction direction, const Options& options) const;
  void allocate();
  void write() const;  // in the shapes and types of the files that they belong to

 private:
  struct Array {
    std::string path;  // "" for what is kept from pass to pass
    NpyArray file;     // of what is written without its bytes
    AnyView view;
    bool written = false;
  };
  void add(const Operand& operand, Array array);
  void add_input(const Operand& operand, const std::string& path, NpyArray file);
  void promise(const Operand& operand, const std::string& path);

  Type type_, out_;
  bool one_head_ = false;  // Q is [S, D]
  std::map<const Operand*, Array> arrays_;
};

}  // namespace flash
