// program.hpp: runs flash-phases as a user does: a process of its own in a folder of its own, words in, text and files
// out. Also what its help says of the phases, so that a new phase is tried without a word here.
// Use:  Session s;  Answer r = s.run({"tour", "04"});  r.status, r.out, r.err;  s.files()
#pragma once
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/folder.hpp"

namespace flash::test {

struct Answer {
  int status = 0;        // the exit status; 128 + n if signal n ended it
  std::string out, err;  // what it wrote
};

class Session {
 public:
  Session() = default;
  explicit Session(const std::string& program) : program_(program) {}  // another one, which lies beside flash-phases

  // In the session's folder. `file_limit`: the most bytes that it may write into one file: then the disk is full.
  Answer run(const std::vector<std::string>& words, rlim_t file_limit = RLIM_INFINITY) const {
    const std::string out = talk_ / "out", err = talk_ / "err";
    const pid_t child = fork();
    if (child < 0) throw Error(std::string("fork: ") + std::strerror(errno));
    if (child == 0) {
      const std::string file = program();
      std::vector<char*> argv{const_cast<char*>(file.c_str())};
      for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      const bool ready = chdir(folder_.path().c_str()) == 0 && dup2(open("/dev/null", O_RDONLY), 0) == 0 &&
                         dup2(open(out.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), 1) == 1 &&
                         dup2(open(err.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), 2) == 2;
      if (file_limit != RLIM_INFINITY) {
        const rlimit limit{file_limit, file_limit};
        setrlimit(RLIMIT_FSIZE, &limit);
        signal(SIGXFSZ, SIG_IGN);  // or the kernel would kill it
      }
      if (ready) execv(file.c_str(), argv.data());
      _exit(127);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child) throw Error(std::string("waitpid: ") + std::strerror(errno));
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), get(out), get(err)};
  }

  std::string operator/(const std::string& name) const { return folder_ / name; }

  // Every file in the folder, by its path there, with what it holds.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path()))
      if (!entry.is_directory()) all[entry.path().lexically_relative(folder_.path()).string()] = get(entry.path());
    return all;
  }

 private:
  // FLASH_PROGRAM in the environment names another program to judge: one that is wrong on purpose.
  std::string program() const {
    const char* other = std::getenv("FLASH_PROGRAM");
    const std::filesystem::path flash = other ? other : FLASH_PROGRAM_FILE;
    return program_.empty() ? flash.string() : (flash.parent_path() / program_).string();
  }

  std::string program_;
  Folder folder_, talk_;  // talk_: its output, so that the folder holds the user's files alone
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// What the help says of a phase: "  NAME  change", "      machines: …", and a line for each direction that it has:
// "      forward:   types: …; blocks: …; also: …, …". The blocks and types are those of the forward pass.
struct Promise {
  std::string name, change;  // "04-tiled-v2"
  std::vector<std::string> machines, types;
  std::vector<std::array<std::int64_t, 2>> blocks;  // {Br, Bc}; none: any
  bool causal = false, lse = false, gradients = false, counts = false;  // counts: bytes, and so predicts them

  bool kernel() const { return machines.size() > 1; }
};

inline std::vector<Promise> phases_of(const std::string& help) {
  std::vector<Promise> phases;
  const std::size_t begin = std::min(help.size(), help.find("\nphases\n") + 8), end = help.find("\n\n", begin);
  std::istringstream table(help.substr(begin, end == std::string::npos ? end : end + 1 - begin));
  for (std::string name, line; table >> name;) {
    Promise p;
    p.name = name;
    std::getline(table >> std::ws, p.change);
    while (table.peek() == ' ' && std::getline(table, line) && line.rfind("      ", 0) == 0) {
      std::string key, direction;
      std::istringstream words(line);
      for (std::string word; words >> word;) {
        if (word.back() == ';' || word.back() == ',') word.pop_back();
        if (word == "bytes:") p.counts = true;
        if (word == "forward:" || word == "gradients:")
          direction = word;
        else if (word.back() == ':')
          key = word;
        else if (key == "machines:")
          p.machines.push_back(word);
        else if (direction == "gradients:")
          p.gradients = true;
        else if (key == "types:")
          p.types.push_back(word);
        else if (key == "blocks:" && word != "any")
          p.blocks.push_back({std::stoll(word), std::stoll(word.substr(word.find('x') + 1))});
        else if (key == "also:")
          p.causal |= word == "causal", p.lse |= word == "LSE";
      }
      if (!table.good() || table.peek() != ' ') break;
      const auto here = table.tellg();
      std::string next;
      std::getline(table, next);
      table.seekg(here);
      if (next.rfind("      ", 0) != 0) break;
    }
    phases.push_back(p);
  }
  return phases;
}

}  // namespace flash::test
