// ptx_words.hpp: the words of PTX that inline assembly of programs may have. Use: inline_ptx.cpp.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace flash::compiler {

// The function of sim/cuda/inline_ptx.hpp for an instruction, "ldmatrix.sync.aligned.m8n8.x4.shared.b16"; none: it is
// not known. A hint is a whole word: .ca is none in .cast.
std::optional<std::string> ptx_function(std::string opcode);
// The C++ type of a register, "b32"; the name of a special one, "laneid".
std::optional<std::string> ptx_type(std::string_view name);
std::optional<std::string> ptx_special_register(std::string_view name);

}  // namespace flash::compiler
