// exercise.hpp: one file of an exercise, read: its question, hints, code with holes, wrong solutions and judge.
// The file is the truth; the reader's copy, the solution and the wrong variants are made from it.
// Use: const Exercise e = read_exercise(path); out << e.source("skeleton"); docs/exercises.md has the format.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace flash::exercise {

using Lines = std::vector<std::string>;

// What a variant that is right, too, is told.
inline const std::string kRight = "right: Right";

// What may stand in a hole, and what the verdict on it must say.
struct Variant {
  std::string name;      // "skeleton", or what a learner did
  std::string sentence;  // a part of "kind: sentence"
  Lines lines;
};

// A stretch of code: text, or a hole where `task` is not empty; `lines` are the solution then.
struct Stretch {
  std::string task, indent;
  Lines lines;
  std::vector<Variant> variants;
};

// What stands around an exercise in the reader's file, in the reader's language.
struct Phrases {
  std::string exercise = "Exercise", try_it = "Try it: ", hint = "A hint: ", predict = "Before you run it, predict:";
};

struct Exercise {
  std::filesystem::path file;
  std::string id, name, title;  // "05.6", "two-barriers", "a tile is filled by all and read by all"
  Lines question;
  std::string asked;         // what to predict
  long long prediction = 0;  // and what is right
  std::vector<Lines> hints;  // three, each says more
  Lines because;             // why the count is so: told when it is right
  Lines next;                // what to read now
  std::vector<Stretch> code;
  Lines judge;
  std::size_t judge_line = 0;  // of its first line in the file
  Phrases phrases = {};

  // The names of the variants but the skeleton, in their order, each once.
  Lines variants() const;
  // What the verdict on "skeleton" or a variant must say.
  std::string expected(const std::string& variant) const;
  // The file as a reader has it: "" solved, "skeleton", or with a variant's lines.
  std::string source(const std::string& variant) const;
  // "05.6-two-barriers.cu"
  std::string copy_name() const { return id + "-" + name + ".cu"; }
};

// Reads and checks one. Refuses (flash::Error) what is malformed: file:line, and what is expected there.
Exercise read_exercise(const std::filesystem::path& file);

// All of them, by id: phases/NN-name/exercises/K-name.cu below the root.
std::vector<Exercise> read_exercises(const std::filesystem::path& root);

}  // namespace flash::exercise
