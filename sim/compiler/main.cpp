// main.cpp: the program flash-launches, through which kernel files are compiled by g++: it turns CUDA into C++.
// It preprocesses the file, rewrites launches (launches.cpp) and variables (variables.cpp), hands that to the compiler
// and puts red zones and tables into the assembly (assembly.cpp) where the file has __shared__ or __device__ variables.
// Use: cmake/kernels.cmake sets it before the compiler: flash-launches [--by g++] [ccache] g++ … -o file.o -c file.cpp
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "sim/compiler/source.hpp"

using namespace flash::compiler;

namespace {

using Words = std::vector<std::string>;

// Runs a command and waits; its exit status, or 128 + the signal that ended it. An interrupt ends the command only, so
// that we can remove what it left.
int run(const Words& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
    execvp(arguments[0], arguments.data());
    std::cerr << "flash-launches: cannot run " << command[0] << ": " << std::strerror(errno) << "\n";
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) {
    std::cerr << "flash-launches: cannot run " << command[0] << ": " << std::strerror(errno) << "\n";
    return 127;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A compiler's command, taken apart.
struct Command {
  Words compiler;              // ccache g++
  Words options;               // without -c and -o
  std::string source, object;  // of -c and -o; empty: nothing is compiled

  explicit Command(const Words& words) {
    std::size_t i = 0;
    while (i < words.size() && words[i][0] != '-') compiler.push_back(words[i++]);
    for (; i < words.size(); ++i) {
      if (words[i] == "-c" && i + 1 < words.size()) {
        source = words[++i];
      } else if (words[i] == "-o" && i + 1 < words.size()) {
        object = words[++i];
      } else {
        options.push_back(words[i]);
      }
    }
  }

  // From the source to text; writes the list of dependencies too, if it was asked for. Not through ccache.
  Words preprocess(const std::string& text) const {
    Words words{compiler.back()};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"-E", "-o", text, source});
    return words;
  }

  // From that text to the object, or to assembly text: without the preprocessor's options, and without the warning that
  // a comment which is gone now, "fall through", would have silenced.
  Words compile(const std::string& text, const char* mode, const std::string& result) const {
    static constexpr std::string_view kWithValue[] = {"-I",       "-isystem", "-iquote", "-idirafter", "-D", "-U",
                                                      "-include", "-imacros", "-MF",     "-MT",        "-MQ"};
    Words words = compiler;
    for (std::size_t i = 0; i < options.size(); ++i) {
      const std::string& option = options[i];
      if (std::find(std::begin(kWithValue), std::end(kWithValue), option) != std::end(kWithValue)) {
        ++i;
      } else if (!(option.starts_with("-I") || option.starts_with("-D") || option.starts_with("-U") ||
                   option.starts_with("-M"))) {
        words.push_back(option);
      }
    }
    words.insert(words.end(), {"-Wno-implicit-fallthrough", "-x", "c++-cpp-output", "-o", result, mode, text});
    return words;
  }
  Words assemble(const std::string& assembly) const {
    return {compiler.back(), "-x", "assembler", "-o", object, "-c", assembly};
  }
  // Of functions of headers, which several files compile, the linker throws all copies but one away, and lets the debug
  // information of each file name that one. Then a finding in another function of the file may lose its line. Without
  // the groups that mark them as copies all of them stay, and each file's lines are its own.
  Words keep_copies() const { return {tool("objcopy"), "--remove-section=.group", object}; }

  // aarch64-linux-gnu-objcopy for aarch64-linux-gnu-g++, else the one of this computer.
  std::string tool(const std::string& name) const {
    const std::string& path = compiler.back();
    const std::size_t file = path.rfind('/') + 1, end = path.rfind("-g++");
    return end == std::string::npos || end < file ? name : path.substr(0, end + 1) + name;
  }

  bool has(const char* option) const { return std::find(options.begin(), options.end(), option) != options.end(); }
};

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text << std::flush;
  if (!out) throw Malformed("flash-launches: cannot write " + path);
}

// g++ -fsanitize=thread announces what assignments access, but not a struct that g++ itself takes from memory for a
// function's parameter: f(x[i]) with a float4. With this option it makes a copy first, which is announced. Not where
// accumulators of wgmma may be: no copy may be made of them.
bool announces_parameters(const Command& command, const std::string& preprocessed) {
  return command.has("-DFLASH_CHECKED") && command.has("-DFLASH_PROGRAM") &&
         preprocessed.find("/sim/dialect/hopper.hpp\"") == std::string::npos;
}

// Compiles what the preprocessor has left in `text`; `assembly`: a file for what lies between.
int translate(Command& command, const std::string& text, const std::string& assembly) {
  const std::string preprocessed = content(text);
  if (announces_parameters(command, preprocessed)) command.options.push_back("-fno-elide-constructors");
  Source source(preprocessed);
  const auto gives_arch = [](const std::string& option) { return option.starts_with("-D__CUDA_ARCH__="); };
  refuse_words(source, std::any_of(command.options.begin(), command.options.end(), gives_arch));
  rewrite_launches(source);
  const Variables variables = rewrite_variables(source);
  write(text, source.rewritten());
  if (!variables.any_shared && !variables.any_device) return run(command.compile(text, "-c", command.object));
  const int status = run(command.compile(text, "-S", assembly));
  if (status != 0) return status;
  write(assembly, with_tables(content(assembly), variables));
  return run(command.assemble(assembly));
}

}  // namespace

int main(int argc, char** argv) {
  Words words(argv + 1, argv + argc);
  // Kernel files are g++'s, also where the rest of the build is another compiler's: the last word before the options.
  if (words.size() > 3 && words[0] == "--by") {
    std::size_t i = 2;
    while (i + 1 < words.size() && words[i + 1][0] != '-') ++i;
    words[i] = words[1];
    words.erase(words.begin(), words.begin() + 2);
  }
  Command command(words);
  if (command.compiler.empty()) {
    std::cerr << "usage: flash-launches [--by g++] [ccache] g++ [options] -o file.o -c file.cpp\n";
    return 2;
  }
  if (command.source.empty() || command.object.empty()) return run(words);  // nothing to compile

  for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  const std::string text = command.object + ".launches.ii", assembly = command.object + ".launches.s";
  int status = run(command.preprocess(text));
  try {
    if (status == 0) status = translate(command, text, assembly);
    if (status == 0 && command.has("-DFLASH_CHECKED")) status = run(command.keep_copies());
  } catch (const Malformed& error) {
    std::cerr << error.what() << "\n";
    status = 1;
  }
  std::remove(text.c_str());
  std::remove(assembly.c_str());
  return status;
}
