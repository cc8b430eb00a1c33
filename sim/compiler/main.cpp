// main.cpp: the program flash-launches, through which kernel files are compiled by g++: it turns CUDA into C++.
// It preprocesses the file, rewrites launches (launches.cpp), variables (variables.cpp) and, in programs, inline
// assembly (inline_ptx.cpp), hands that to the compiler, and puts red zones and tables into what it makes
// (assembly.cpp) where the file has __shared__ or __device__ variables.
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
// that we can remove what it left. What it says on stderr goes to the file `messages`, where one is named.
int run(const Words& command, const char* messages = nullptr) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
    if (messages && !std::freopen(messages, "w", stderr)) _exit(127);
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
  Words preprocess(const std::string& text, const Words& more = {}) const {
    Words words{compiler.back()};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), more.begin(), more.end());
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
  // What an option that begins like this says behind it; empty: there is none.
  std::string value(std::string_view begin) const {
    for (const std::string& option : options)
      if (option.starts_with(begin)) return option.substr(begin.size());
    return {};
  }
  // A program of ./flash check; a part of one that is the host's alone.
  bool is_program() const { return has("-DFLASH_PROGRAM"); }
  bool is_host() const { return is_program() && !has("-D__CUDACC__"); }
  // What __CUDA_ARCH__ is in kernels, and nowhere else: -DFLASH_ARCH=900.
  Words architecture() const {
    const std::string value = this->value("-DFLASH_ARCH=");
    return value.empty() ? Words() : Words{"-D__CUDA_ARCH__=" + value};
  }
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
  return command.has("-DFLASH_CHECKED") && command.is_program() &&
         preprocessed.find("/sim/dialect/hopper.hpp\"") == std::string::npos;
}

// The names of files for what lies between, which are removed in the end.
struct Between {
  std::string text, host_text, messages, assembly;

  explicit Between(const std::string& object)
      : text(object + ".launches.ii"),
        host_text(object + ".host.ii"),
        messages(object + ".messages"),
        assembly(object + ".launches.s") {}
  ~Between() {
    for (const std::string& file : {text, host_text, messages, assembly}) std::remove(file.c_str());
  }
};

// Runs the preprocessor, whose messages about headers that are not ours become one line.
int preprocess(const Command& command, const Between& between) {
  if (!command.is_program()) return run(command.preprocess(between.text));
  const int status = run(command.preprocess(between.text, command.architecture()), between.messages.c_str());
  const std::string messages = content(between.messages);
  const std::string refusal = status == 0 ? std::string() : refusal_of(messages);
  if (!refusal.empty()) throw Malformed(refusal);
  std::cerr << messages;
  return status;
}

// __CUDA_ARCH__, where the files mention it: it may decide about device code.
void judge_architecture(const Command& command, const Between& between, const Source& source) {
  if (!command.value("-D__CUDA_ARCH__=").empty() || command.is_host()) return;
  const std::string mention = mention_of_architecture(source);
  if (mention.empty()) return;
  if (!command.is_program())
    throw Malformed(mention +
                    ": error: __CUDA_ARCH__ has no value here: host and device code are compiled as one; "
                    "leave it out");
  if (run(command.preprocess(between.host_text), between.messages.c_str()) != 0)
    throw Malformed(mention + ": error: without __CUDA_ARCH__, as it is on the host, this does not compile");
  const std::string host_text = content(between.host_text);
  refuse_choices(source, Source(host_text));
}

// Compiles what the preprocessor has left.
int translate(Command& command, const Between& between) {
  const std::string &text = between.text, &assembly = between.assembly;
  const std::string preprocessed = content(text);
  if (announces_parameters(command, preprocessed)) command.options.push_back("-fno-elide-constructors");
  Source source(preprocessed);
  if (command.is_program()) refuse_headers(source);
  judge_architecture(command, between, source);
  if (!command.is_host()) refuse_words(source), rewrite_assembly(source, command.is_program());
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
  const Between between(command.object);
  int status = 0;
  try {
    status = preprocess(command, between);
    if (status == 0) status = translate(command, between);
    if (status == 0 && command.has("-DFLASH_CHECKED")) status = run(command.keep_copies());
  } catch (const Malformed& error) {
    std::cerr << error.what() << "\n";
    status = 1;
  }
  return status;
}
