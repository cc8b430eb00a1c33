// exercise_test.cpp: how the files of exercises are read, what is made of them, and what verdicts say.
// Attempts themselves are compiled and run by exercises_test.sh and by ./flash exercise --check.
// ctest --test-dir build -R '^exercise\.'
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>

#include "phases/exercises/attempt.hpp"
#include "phases/exercises/translation.hpp"
#include "sim/error.hpp"
#include "tests/folder.hpp"

using namespace flash;
using namespace flash::exercise;
using flash::test::Folder;

namespace {

const std::string kFile =
    "// 07.3 halves: two of them\n"
    "// second line\n"
    "//# question\n"
    "// What is half?\n"
    "//# predict 21 How many?\n"
    "//# hint\n// one\n//# hint\n// two\n//# hint\n// three\n// and more\n"
    "//# because\n// of that\n//# next\n// the next\n"
    "//# code\n"
    "\n"
    "int half(int n) {\n"
    "  //# hole Halve it.\n"
    "  return n / 2;\n"
    "  //# skeleton: nothing is\n"
    "  //| return n;\n"
    "  //# wrong twice: too much\n"
    "  //| if (n)\n"
    "  //|   return 2 * n;\n"
    "  //|\n"
    "  //| return 0;\n"
    "  //# wrong both: both holes\n"
    "  //| return n;\n"
    "  //# also shifted\n"
    "  //| return n >> 1;\n"
    "  //# end\n"
    "}\n"
    "//# hole The rest.\n"
    "  int rest;\n"
    "  //# skeleton:\n"
    "  //|\n"
    "  //# wrong both:\n"
    "  //| int nothing;\n"
    "  //# end\n"
    "//# judge\n"
    "void judge(Trial&) {}\n";

// The file with `from` replaced by `to`, read; in phases/07-x/exercises/3-halves.cu.
Exercise read(const std::string& from = "", const std::string& to = "") {
  const Folder folder;
  const std::filesystem::path path = folder.path() / "07-x" / "exercises" / "3-halves.cu";
  std::filesystem::create_directories(path.parent_path());
  std::string text = kFile;
  if (!from.empty()) {
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), to);
  }
  std::ofstream(path) << text;
  return read_exercise(path);
}

// What reading the file says when it is changed so.
std::string refusal(const std::string& from, const std::string& to) {
  try {
    read(from, to);
  } catch (const Error& error) {
    return std::string(error.what()).substr(std::string(error.what()).find("3-halves.cu"));
  }
  return "accepted";
}

Verdict verdict(const std::function<void()>& judged) {
  try {
    judged();
  } catch (const Verdict& v) {
    return v;
  }
  return {};
}
std::string said(const std::function<void()>& judged) {
  const Verdict v = verdict(judged);
  return std::string(name(v.kind)) + ": " + v.sentence;
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an exercise is read from one file") {
  const Exercise e = read();
  CHECK(e.id == "07.3");
  CHECK(e.name == "halves");
  CHECK(e.title == "two of them");
  CHECK(e.question == Lines{"What is half?"});
  CHECK(e.prediction == 21);
  CHECK(e.asked == "How many?");
  CHECK(e.hints == std::vector<Lines>{{"one"}, {"two"}, {"three", "and more"}});
  CHECK(e.because == Lines{"of that"});
  CHECK(e.next == Lines{"the next"});
  CHECK(e.variants() == Lines{"twice", "both", "shifted"});
  CHECK(e.expected("skeleton") == "nothing is");
  CHECK(e.expected("both") == "both holes");
  CHECK(e.expected("shifted") == "right: Right");
  CHECK(e.judge == Lines{"void judge(Trial&) {}"});
  CHECK(e.judge_line == 43);
  CHECK(e.copy_name() == "07.3-halves.cu");
}

TEST_CASE("solution, skeleton and wrong variants are made from the file") {
  const Exercise e = read();
  const std::string solution = e.source(""), skeleton = e.source("skeleton");
  CHECK(holds(solution,
              "constexpr long long prediction = 21;\n\nint half(int n) {\n  // Halve it.\n  return n / 2;\n}\n"
              "  // The rest.\n  int rest;\n"));
  CHECK(holds(skeleton,
              "// Before you run it, predict:\n// How many?\nconstexpr long long prediction = unknown;\n\n"
              "int half(int n) {\n  // TODO: Halve it.\n  return n;\n}\n  // TODO: The rest.\n"));
  for (const char* secret : {"n / 2", "rest;", "21", "of that", "three", "too much", "judge", "//#", "//|"})
    CHECK_MESSAGE(!holds(skeleton, secret), secret);
  CHECK(holds(e.source("twice"), "  if (n)\n    return 2 * n;\n\n  return 0;\n}\n  // The rest.\n  int rest;\n"));
  CHECK(holds(e.source("both"), "  return n;\n}\n  // The rest.\n  int nothing;\n"));
}

TEST_CASE("a variant may be the solution with a few words changed") {
  const std::string lines = "  //| if (n)\n  //|   return 2 * n;\n  //|\n  //| return 0;\n";
  CHECK(holds(read(lines, "  //~ n / 2 ==> 2 * n\n").source("twice"), "  return 2 * n;\n}\n  // The rest.\n"));
  CHECK(holds(read(lines, "  //~ return  ==> return -\n  //~ / 2 ==>\n").source("twice"), "  return -n ;\n}\n"));
  CHECK(holds(refusal(lines, "  //~ n / 3 ==> 3\n"), "3-halves.cu:25: expected 'n / 3' in the solution"));
  CHECK(holds(refusal(lines, "  //~ n ==> m\n"), "3-halves.cu:25: expected 'n' once in the solution"));
  CHECK(holds(refusal(lines, "  //~ n / 2\n"), "3-halves.cu:25: expected //~ OLD ==> NEW"));
}

TEST_CASE("a malformed exercise is refused with its line") {
  CHECK(refusal("// 07.3 halves", "// 07.4 halves") ==
        "3-halves.cu:1: expected a first line that begins with // 07.3 halves: ; docs/exercises.md has the format");
  CHECK(holds(refusal("//# predict 21 How", "//# predict some How"), "3-halves.cu:5: expected //# predict NUMBER"));
  CHECK(holds(refusal("//# because", "//# perhaps"), "3-halves.cu:13: expected question, predict, hint"));
  CHECK(holds(refusal("//# hint\n// two\n", ""), "expected three times //# hint"));
  CHECK(holds(refusal("  //# end\n", ""), "3-halves.cu:33: expected //| before a variant's line"));
  CHECK(holds(refusal("//| return n;", "return n;"), "3-halves.cu:23: expected //| before a variant's line"));
  CHECK(holds(refusal("skeleton: nothing is", "skeleton:"), "expected //# skeleton: with the sentence"));
  CHECK(holds(refusal("both: both holes", "both:"), "expected the sentence that both must get"));
  CHECK(holds(refusal("//# wrong twice: too much\n", ""), "expected two //# wrong variants"));
  CHECK(holds(refusal("//# judge\n", ""), "expected //# judge"));
}

TEST_CASE("an answer's verdict names the rows, the element and what they have in common") {
  const double inf = std::numeric_limits<double>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Doubles exact{1, 2, 3, 4, 5, 6};
  const auto of = [&](const Floats& got, const std::vector<Mistake>& mistakes = {}) {
    return said([&] { Trial::answer("O", got, exact, 2, mistakes); });
  };
  CHECK(of({1, 2, 3, 4, 5, 6}) == "right: ");
  CHECK(of({1, 2, 3, 4, 5, 6.5f}) == "wrong answer: O is wrong in row 2 alone: O[2][1] is 6.5, exactly 6.");
  CHECK(of({1, 2, 3, 4.5f, 5, 6.5f}) ==
        "wrong answer: O is wrong in rows 1 to 2 (the others are right): O[1][1] is 4.5, exactly 4.");
  CHECK(of({0, 2, 3, 4, 5, 7}) == "wrong answer: O is wrong in 2 of 3 rows, the first is 0: O[0][0] is 0, exactly 1.");
  CHECK(holds(of({2, 4, 6, 8, 10, 12}), "in every row: O[0][0] is 2, exactly 1; the whole row is 2 times the exact"));
  CHECK(holds(of({1, nan, 3, 4, 5, 6}), "O[0][1] is nan, exactly 2: look for 0/0"));
  CHECK(holds(of({1, 2, 3, std::bit_cast<float>(0xffffffffu), 5, 6}), "O[1][1] was never written."));
  const Verdict v = verdict([&] {
    Trial::answer("O", {2, 4, 6, 8, 10, 12}, exact, 2,
                  {{times(exact, 3), "Three times too large."}, {times(exact, 2), "It was not halved."}});
  });
  CHECK(v.sentence == "It was not halved.");
  CHECK(v.details == "O[0][0] is 2, exactly 1.");
  CHECK(said([&] { Trial::answer("LSE", {-INFINITY}, {-inf}, 1); }) == "right: ");
  CHECK(said([&] { Trial::answer("LSE", {-1e30f}, {-inf}, 1); }) ==
        "wrong answer: LSE is wrong: LSE[0] is -1e+30, exactly -inf.");
}

TEST_CASE("the nearest mistake is told, and none that makes no difference") {
  const Doubles exact{1, 2};
  const auto of = [&](const Floats& got) {
    return said([&] {
      Trial::answer("O", got, exact, 1, {{exact, "None."}, {{1, 2.2}, "Far."}, {{1, 2.1}, "Near."}}, 0.003);
    });
  };
  CHECK(of({1, 2.1f}) == "wrong answer: Near.");
  CHECK(of({1, 2.3f}) == "wrong answer: Far.");
  CHECK(holds(of({1, 2.03f}), "O is wrong in row 1 alone"));
}

TEST_CASE("what usual slips compute: heads, tiles, LSE") {
  // Two heads of one query; one key and two columns would not show a rescaling: two keys, tiles of one.
  const Floats Q{1, 1}, K{0, std::log(3.0f), 0, 0}, V{1, 5, 2, 4};
  const Exact exact = exact_attention(Q, K, V, 1, 1, {}, 2);
  CHECK(exact.O[0] == doctest::Approx(0.25 * 1 + 0.75 * 5));
  CHECK(exact.O[1] == doctest::Approx(3));
  CHECK(exact.m[0] == doctest::Approx(std::log(3.0)));
  const auto told = [&](float first, float second) {
    return said([&] { Trial::answer("O", {first, second}, exact.O, 1, slips(Q, K, V, 1, 1, {}, 2), 1e-3); });
  };
  // Sums with m = log 3: l = 1/3 + 1, o = 1/3 + 5; not rescaled: l = 1 + 1, o = 1 + 5.
  CHECK(holds(told((1 / 3.0f + 5) / 2, 3), "l is not rescaled"));
  CHECK(holds(told(6 / (4 / 3.0f), 3), "O is not rescaled"));
  CHECK(holds(told(1 / 3.0f + 5, 6), "O was never divided by l"));
  const auto lse = [&](double first, double second) {
    const Floats got{static_cast<float>(first), static_cast<float>(second)};
    return said([&] { Trial::answer("LSE", got, exact.LSE, 1, slips_of_lse(exact), 1e-3); });
  };
  CHECK(lse(std::log(4.0), std::log(2.0)) == "right: ");
  CHECK(holds(lse(std::log(4 / 3.0), std::log(2.0)), "LSE lacks the maximum"));
  CHECK(holds(lse(2, 1), "LSE is in base 2"));
}

TEST_CASE("counts and predictions have verdicts of their own") {
  const auto count = [](std::uint64_t n) { return said([&] { Trial::count("the number of exps", n, 4, "More."); }); };
  CHECK(count(4) == "right: ");
  CHECK(count(5) == "wrong count: The answer is right, but the number of exps is 5 where 4 will do. More.");
  CHECK(count(3) == "right: ");
  CHECK(said([] { Trial::demand(false, "it waits."); }) == "wrong count: The answer is right, but it waits.");
  CHECK(of_prediction(unknown, 7).kind == Verdict::Kind::NoPrediction);
  CHECK(of_prediction(7, 7).sentence == "Right, and as you predicted: 7.");
  CHECK(of_prediction(8, 7).sentence == "Right. You predicted 8; it is 7.");
  CHECK(of_prediction(8, 7).kind == Verdict::Kind::Right);
  CHECK(kind_named("wrong count") == Verdict::Kind::WrongCount);
  CHECK_THROWS_WITH_AS(kind_named("fine"), doctest::Contains("verdict is 'fine'"), Error);
}

TEST_CASE("the exact answer is softmax attention, with its LSE") {
  // One query, three keys of which it sees two: scores 0 and log 3.
  const Floats Q{1}, K{0, std::log(3.0f), 100}, V{1, 5, 1000};
  const Exact seen = exact_attention(Q, K, V, 1, 1, [](int) { return 2; });
  CHECK(seen.O[0] == doctest::Approx(0.25 * 1 + 0.75 * 5));
  CHECK(seen.LSE[0] == doctest::Approx(std::log(4.0)));
  const Exact blind = exact_attention(Q, K, V, 1, 1, [](int) { return 0; });
  CHECK(blind.O[0] == 0);
  CHECK(blind.LSE[0] == -std::numeric_limits<double>::infinity());
}

TEST_CASE("numbers in a sentence are places, names are not") {
  Lines numbers;
  CHECK(with_places("O is wrong in rows 1 to 2: O[1][0] is -0.5, exactly 1e-05; fp32 and m2 stay, 2^8 too.", numbers) ==
        "O is wrong in rows ⟦1⟧ to ⟦2⟧: O[⟦3⟧][⟦4⟧] is ⟦5⟧, exactly ⟦6⟧; fp32 and m2 stay, ⟦7⟧^⟦8⟧ too.");
  CHECK(numbers == Lines{"1", "2", "1", "0", "-0.5", "1e-05", "2", "8"});
  numbers.clear();
  CHECK(with_places("nan, -inf and -infinity", numbers) == "⟦1⟧, ⟦2⟧ and -infinity");
  CHECK(numbers == Lines{"nan", "-inf"});
  CHECK(filled("⟦2⟧ of ⟦1⟧", {"3", "4"}) == "4 of 3");
  CHECK(same_places("⟦1⟧ ⟦2⟧", "⟦2⟧⟦1⟧"));
  CHECK_FALSE(same_places("⟦1⟧ ⟦2⟧", "⟦1⟧"));
}

TEST_CASE("an exercise is told in the reader's language") {
  const Folder folder;
  const auto po = folder.path() / "07.3.po";
  const Exercise english = read("What is half?", "What is half\n// of it?\n//     x / 2");
  const Lines messages = messages_of(english);
  CHECK(messages == Lines{"two of them", "What is half of it?", "    x / 2", "How many?", "Halve it.", "The rest.",
                          "one", "two", "three and more", "of that", "the next"});
  std::ofstream(po) << "# a comment\nmsgid \"\"\nmsgstr \"\"\n\"Language: zh_CN\\n\"\n\n"
                       "msgid \"What is half of it?\"\nmsgstr \"\"\n\"一半\"\n\"是多少\\\"？\\\"\"\n\n"
                       "#, fuzzy\nmsgid \"How many?\"\nmsgstr \"几个？\"\n\n"
                       "msgid \"two of them\"\nmsgstr \"\"\n\nmsgid \"Halve it.\"\nmsgstr \"除以二。\"\n\n"
                       "msgid \"⟦1⟧ of ⟦2⟧\"\nmsgstr \"⟦2⟧ 之 ⟦1⟧\"\n";
  const Catalog catalog(po);
  const Exercise chinese = catalog.of(english);
  CHECK(chinese.question == Lines{"一半是多少\"？\"", "    x / 2"});
  CHECK(chinese.asked == "How many?");
  CHECK(chinese.title == "two of them");
  CHECK(holds(chinese.source("skeleton"), "// TODO: 除以二。\n"));
  CHECK(catalog.sentence("3 of 4") == "4 之 3");
  CHECK(catalog.sentence("3 from 4") == "3 from 4");
  const std::string renewed = catalog.renewed(messages);
  CHECK(holds(renewed, "msgid \"two of them\"\nmsgstr \"\"\n"));
  CHECK(holds(renewed, "msgid \"Halve it.\"\nmsgstr \"除以二。\"\n"));
  CHECK(holds(renewed, "#~ msgid \"⟦1⟧ of ⟦2⟧\"\n#~ msgstr \"⟦2⟧ 之 ⟦1⟧\"\n"));
  std::ofstream(po) << renewed;
  CHECK(Catalog(po).renewed(messages).find("#~") == std::string::npos);
  CHECK(holds(Catalog(po).text("What is half of it?"), "？"));
}

TEST_CASE("a translated paragraph is broken into lines, not before a closing mark") {
  const Folder folder;
  const auto po = folder.path() / "07.3.po";
  std::string text;
  for (int i = 0; i < 58; ++i) text += "字";  // 116 columns
  std::ofstream(po) << "msgid \"What is half?\"\nmsgstr \"" << text << "。字\"\n";
  const Lines lines = Catalog(po).of(read()).question;
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].size() == 57 * 3);
  CHECK(lines[1] == "字。字");
}

TEST_CASE("no message names the namespace that keeps attempts apart") {
  CHECK(without_attempts("race: write after read of shared attempt0::Tiles+128 (4 bytes)") ==
        "race: write after read of shared Tiles+128 (4 bytes)");
  CHECK(without_attempts("attempt12::f<attempt12::S>") == "f<S>");
  CHECK(without_attempts("attempt::f, attempt1, attempts: attempt2") == "attempt::f, attempt1, attempts: attempt2");
  CHECK(first_error("/x/05.2-a.cu:31:7: error: 'attempt0::x' is private\n", "05.2-a.cu") == "line 31: 'x' is private");
}

TEST_CASE("of a compiler's messages the reader sees the first error") {
  CHECK(first_error("In file included from a.cu:5:\n/x/05.2-a.cu: In function 'f':\n/x/05.2-a.cu:31:7: error: 'y' was\n"
                    "/x/05.2-a.cu:32:7: error: more\n",
                    "05.2-a.cu") == "line 31: 'y' was");
  CHECK(holds(first_error("/r/2-a.cu:80:3: error: too few arguments\n", "05.2-a.cu"),
              "where the judge calls your code: too few arguments; keep the names"));
  CHECK(first_error("/usr/bin/ld: /tmp/a.o: in function `f()':\n/tmp/05.2-a.cu:7: undefined reference to `g(int)'\n"
                    "collect2: error: ld returned 1 exit status\n",
                    "05.2-a.cu") == "`g(int)' is declared and called, but nowhere defined");
  CHECK(first_error("\n05.2-a.cu:7: inline assembly is refused\n", "05.2-a.cu") ==
        "05.2-a.cu:7: inline assembly is refused");
}
