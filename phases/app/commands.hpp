// commands.hpp: what the program behind ./flash can do. Each command takes the words after its name.
#pragma once
#include <string>
#include <vector>

namespace flash {

int run_command(const std::vector<std::string>& words);   // one phase on the user's .npy files
int tour_command(const std::vector<std::string>& words);  // every phase on the real input, one table, one report

}  // namespace flash
