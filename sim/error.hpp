// error.hpp: the one error type. Bad input is refused with one line: argument, value, limit, remedy.
// Thrown by every library function here; the command line prints what() and exits with 2.
// Use: refuse("block_k", 512, "a multiple of 16 up to 256", "pass --block-k 128");
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace flash {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A machine's memory is too small; says how much was wanted.
struct OutOfMemory : Error {
  using Error::Error;
};

// A machine failed, whatever it was given: a call of CUDA's returned an error.
struct MachineError : Error {
  using Error::Error;
};

// Throws Error("<argument> is <value>; expected <limit>; <remedy>").
template <class Value>
[[noreturn]] void refuse(const std::string& argument, const Value& value, const std::string& limit,
                         const std::string& remedy) {
  std::ostringstream line;
  line << argument << " is " << value << "; expected " << limit << "; " << remedy;
  throw Error(line.str());
}

}  // namespace flash
