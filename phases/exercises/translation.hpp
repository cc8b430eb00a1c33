// translation.hpp: what readers are told in their language: an exercise's texts and its verdicts' sentences, from .po.
// English text is the key (msgid); in sentences, numbers are ⟦1⟧, ⟦2⟧ …, which a translation may put in another order.
// English text is the key (msgid); in sentences numbers are ⟦1⟧, ⟦2⟧ …, which a translation may put in another order.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "phases/exercises/exercise.hpp"

namespace flash::exercise {

// A .po file, read: translations by their English text. Those that are empty or fuzzy are not there.
class Catalog {
 public:
  Catalog() = default;  // English
  explicit Catalog(const std::filesystem::path& po);

  // The translation, or the English text where there is none.
  std::string text(const std::string& english) const;
  // The same of a sentence in which numbers stand.
  std::string sentence(const std::string& english) const;
  // An exercise whose texts are translated; its code, apart from tasks, is the same.
  Exercise of(Exercise exercise) const;
  bool has(const std::string& message) const { return texts_.count(message) != 0; }

  // A file with these messages, each with the translation that it has here; what nobody asks for any more stays behind
  // as comments, "#~ ".
  std::string renewed(const Lines& messages) const;

 private:
  std::map<std::string, std::string> texts_;
};

// What a translator of the exercise meets, in its order: title, question, hints, tasks …; each once.
Lines messages_of(const Exercise& exercise);

// "race of ⟦1⟧ rows", and the numbers that were there.
std::string with_places(const std::string& sentence, Lines& numbers);

// A text with its places filled, and whether two texts have the same places.
std::string filled(std::string text, const Lines& values);
bool same_places(const std::string& a, const std::string& b);

// "zh_CN" or "" for English: as $FLASH_LANG says, or else $LANGUAGE, $LC_ALL, $LC_MESSAGES, $LANG.
std::string language();

}  // namespace flash::exercise
