// words.cpp: refuses what g++ would compile although it means something else than in CUDA, each with its remedy.
// Textures are not there: one line instead of the compiler's many. And it finds
// __CUDA_ARCH__, which the preprocessor leaves no trace of.
// Use: refuse_words(source), mention_of_architecture(source); main.cpp does.
#include <algorithm>
#include <fstream>
#include <iterator>

#include "sim/compiler/source.hpp"

namespace flash::compiler {
namespace {

// The line of the first such word outside of comments and literals; 0: there is none.
long line_of(const std::string& text, std::string_view word) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (rest.starts_with("//")) {
      i = std::min(text.find('\n', i), text.size());
    } else if (rest.starts_with("/*")) {
      i = std::min(text.find("*/", i + 2), text.size());
    } else if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"' && text[i] != '\n'; ++i) i += text[i] == '\\';
    } else if (in_word(text[i])) {
      std::size_t end = i;
      while (end < text.size() && in_word(text[end])) ++end;
      if (rest.substr(0, end - i) == word)
        return 1 + std::count(text.begin(), text.begin() + static_cast<long>(i), '\n');
      i = end - 1;
    }
  }
  return 0;
}

}  // namespace

void refuse_words(const Source& source) {
  static constexpr std::string_view kTextures[] = {"cudaTextureObject_t",
                                                   "cudaSurfaceObject_t",
                                                   "cudaArray_t",
                                                   "textureReference",
                                                   "tex1Dfetch",
                                                   "tex1D",
                                                   "tex2D",
                                                   "tex3D",
                                                   "surf2Dread"};
  static constexpr std::string_view kGraphs = "cudaGraphAdd";  // cudaGraphAddKernelNode and its kind
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::string_view word = source.at(i);
    if ((word.starts_with(kGraphs) || word == "cudaGraphCreate" || word == "cudaKernelNodeParams") &&
        !source.of_system(i))
      throw source.malformed(i, std::string(word) + ": graphs are made by capture here; write cudaStreamBeginCapture");
    if (std::find(std::begin(kTextures), std::end(kTextures), word) != std::end(kTextures) && !source.of_system(i))
      throw source.malformed(i, std::string(word) + ": textures are not simulated; read the array itself");
  }
}

std::string mention_of_architecture(const Source& source) {
  for (const std::string& file : source.files()) {
    std::ifstream in(file, std::ios::binary);
    const long line = line_of({std::istreambuf_iterator<char>(in), {}}, "__CUDA_ARCH__");
    if (line > 0) return file + ":" + std::to_string(line);
  }
  return {};
}

}  // namespace flash::compiler
