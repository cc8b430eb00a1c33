// options.hpp: command-line words for run, tour and bench: a list of "--name value" pairs, each known by name.
// An unknown flag, a missing value or a malformed number is refused with one line.
#pragma once
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/error.hpp"

namespace flash {

class Arguments {
 public:
  // `words` after the command; `flags` are the names allowed, without "--". Other words become positional.
  Arguments(const std::vector<std::string>& words, const std::set<std::string>& flags) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i].rfind("--", 0) != 0) {
        positional.push_back(words[i]);
        continue;
      }
      std::string name = words[i].substr(2), value;
      const std::size_t equals = name.find('=');
      const bool inline_value = equals != std::string::npos;
      if (inline_value) value = name.substr(equals + 1), name = name.substr(0, equals);
      if (!flags.count(name)) {
        std::string known;
        for (const std::string& f : flags) known += " --" + f;
        refuse("flag", "--" + name, "one of" + known, "see ./flash run --help");
      }
      if (!inline_value) {
        if (i + 1 == words.size()) refuse("--" + name, "without a value", "--" + name + " VALUE", "add the value");
        value = words[++i];
      }
      if (!values_.emplace(name, value).second) refuse("--" + name, "given twice", "once", "remove one");
    }
  }

  std::vector<std::string> positional;

  bool has(const std::string& name) const { return values_.count(name) > 0; }
  std::string text(const std::string& name, const std::string& otherwise = "") const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  std::string required(const std::string& name) const {
    if (!has(name)) refuse("--" + name, "missing", "--" + name + " VALUE", "add it");
    return text(name);
  }
  // A number of type N (std::int64_t, float …), all of the text.
  template <class N>
  N number(const std::string& name, N otherwise) const {
    if (!has(name)) return otherwise;
    const std::string value = text(name);
    N n{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (error != std::errc() || end != value.data() + value.size())
      refuse("--" + name, "'" + value + "'", "a number", "for example --" + name + " 64");
    return n;
  }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace flash
