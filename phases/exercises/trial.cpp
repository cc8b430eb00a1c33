// trial.cpp: see trial.hpp. Compiled once, optimised, and linked to each attempt.
// Sentences name what the reader can see: rows, elements, lines of the file.
// Use: see trial.hpp.
#include "phases/exercises/trial.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>

#include "phases/arrays/random.hpp"
#include "sim/error.hpp"

namespace flash::exercise {
namespace {

constexpr const char* kKinds[] = {"right",       "does not compile",  "finding", "wrong answer",
                                  "wrong count", "no prediction yet", "crash"};

constexpr double kSeconds = 2;  // for a launch; a right one takes a twentieth of one

std::string number(double x) {
  std::ostringstream out;
  out.precision(5);
  if (std::isnan(x)) return "nan";  // without the sign that some have
  out << x;
  return out.str();
}

// Is each element of the row what it should be? NaN never is.
bool row_is_right(const float* got, const double* exact, std::size_t columns, double bar) {
  double error = 0, size = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    if (std::isinf(exact[c])) {
      if (static_cast<double>(got[c]) != exact[c]) return false;
      continue;
    }
    const double difference = static_cast<double>(got[c]) - exact[c];
    error += difference * difference;
    size += exact[c] * exact[c];
  }
  return std::sqrt(error) <= bar * std::sqrt(size) + 1e-30;
}

std::vector<std::size_t> wrong_rows(const Floats& got, const Doubles& exact, std::size_t columns, double bar) {
  std::vector<std::size_t> rows;
  for (std::size_t r = 0; r < exact.size() / columns; ++r)
    if (!row_is_right(&got[r * columns], &exact[r * columns], columns, bar)) rows.push_back(r);
  return rows;
}

// "row 3", "rows 32 to 99", "7 of 100 rows, the first is 3"
std::string which(const std::vector<std::size_t>& rows, std::size_t all, const std::string& row) {
  if (all == 1) return "";
  if (rows.size() == all) return " in every " + row;
  if (rows.size() == 1) return " in " + row + " " + std::to_string(rows[0]) + " alone";
  if (rows.back() - rows.front() + 1 == rows.size())
    return " in " + row + "s " + std::to_string(rows.front()) + " to " + std::to_string(rows.back()) +
           " (the others are right)";
  return " in " + std::to_string(rows.size()) + " of " + std::to_string(all) + " " + row + "s, the first is " +
         std::to_string(rows.front());
}

// The factor between two rows, NaN where there is none.
double factor(const float* got, const double* exact, std::size_t columns) {
  double dot = 0, square = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    dot += static_cast<double>(got[c]) * exact[c];
    square += exact[c] * exact[c];
  }
  const double f = dot / square;
  for (std::size_t c = 0; c < columns; ++c)
    if (!(std::abs(static_cast<double>(got[c]) - f * exact[c]) <= 1e-4 * std::abs(f * exact[c]) + 1e-12))
      return std::numeric_limits<double>::quiet_NaN();
  return f;
}

}  // namespace

const char* name(Verdict::Kind kind) {
  return kKinds[static_cast<int>(kind)];
}

Verdict::Kind kind_named(const std::string& name) {
  const auto found = std::find(std::begin(kKinds), std::end(kKinds), name);
  if (found == std::end(kKinds)) refuse("verdict", "'" + name + "'", "right, finding or the like", "try again");
  return static_cast<Verdict::Kind>(found - std::begin(kKinds));
}

Trial::Trial(Order order)
    : machine({.order = order, .threads = 1, .trace = "memory", .keep_going = true, .timeout = kSeconds}) {}

Floats Trial::normal(const std::string& name, std::size_t n) {
  const Random random(13, std::accumulate(name.begin(), name.end(), std::uint32_t{0}, [](std::uint32_t sum, char c) {
                        return 31 * sum + static_cast<unsigned char>(c);
                      }));
  Floats values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = random.normal(i);
  return values;
}

const Ledger& Trial::ledger() const {
  if (machine.reports().empty()) throw Verdict{Verdict::Kind::WrongAnswer, "No kernel was launched.", ""};
  return machine.reports().back().ledger;
}

ArrayTraffic Trial::traffic(const std::string& name) const {
  for (const ArrayTraffic& traffic : ledger().arrays)
    if (traffic.name == name) return traffic;
  return {};
}

void Trial::findings(const std::vector<Sign>& its_own) const {
  const auto& all = machine.findings();
  if (all.empty()) return;
  std::vector<Sign> signs = its_own;
  signs.push_back(
      {"no end: ", "A loop in your code does not end: it was stopped after " + number(kSeconds) + " seconds."});
  const Finding* told = &all.front();
  std::string sentence;
  for (const Sign& sign : signs) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Finding& f) { return f.text.find(sign.sign) != f.text.npos; });
    if (found == all.end()) continue;
    told = &*found;
    sentence = sign.sentence;
    break;
  }
  if (sentence.empty()) {
    sentence = told->text.substr(0, told->text.find('\n')) + ".";
    const std::size_t remedy = told->text.find("remedy: ");
    if (remedy != std::string::npos) {
      const std::string line = told->text.substr(remedy + 8);
      sentence += " To mend it, " + line.substr(0, line.find('\n')) + ".";
    }
  }
  throw Verdict{Verdict::Kind::Finding, sentence, told->text};
}

void Trial::answer(const std::string& name, const Floats& got, const Doubles& exact, std::size_t columns,
                   const std::vector<Mistake>& mistakes, double bar, const char* row) {
  const std::size_t rows = exact.size() / columns;
  const auto wrong = wrong_rows(got, exact, columns, bar);
  if (wrong.empty()) return;
  const std::size_t r = wrong.front();
  const float* mine = &got[r * columns];
  const double* theirs = &exact[r * columns];
  std::size_t c = 0;
  while (c + 1 < columns && row_is_right(mine + c, theirs + c, 1, bar)) ++c;
  std::string element = name + "[" + std::to_string(r) + "]";
  if (columns > 1) element += "[" + std::to_string(c) + "]";
  const std::string seen = element + " is " + number(static_cast<double>(mine[c])) + ", exactly " + number(theirs[c]);

  // The nearer, the better; a mistake that makes no difference here is none.
  for (const double tolerance : {bar, 20 * bar})
    for (const Mistake& mistake : mistakes) {
      const Floats values(mistake.values.begin(), mistake.values.end());
      if (wrong_rows(got, mistake.values, columns, tolerance).empty() &&
          !wrong_rows(values, exact, columns, tolerance).empty())
        throw Verdict{Verdict::Kind::WrongAnswer, mistake.sentence, seen + "."};
    }

  std::string sentence = name + " is wrong" + which(wrong, rows, row) + ": ";
  if (std::bit_cast<std::uint32_t>(mine[c]) == 0xffffffffu) {
    sentence += element + " was never written.";
  } else {
    sentence += seen;
    if (std::isnan(mine[c])) {
      sentence += ": look for 0/0, -inf - -inf or 0 * inf.";
    } else if (const double f = factor(mine, theirs, columns); f == 0 && columns > 1) {
      sentence += "; the whole " + std::string(row) + " is 0.";
    } else if (columns > 1 && std::isfinite(f)) {
      sentence += "; the whole " + std::string(row) + " is " + number(f) +
                  " times the exact one: a factor or a divisor is missing, or there is one too many.";
    } else {
      sentence += ".";
    }
  }
  throw Verdict{Verdict::Kind::WrongAnswer, sentence, ""};
}

int Trial::uses(const std::string& text) const {
  int times = 0;
  for (std::size_t at = code_.find(text); at != std::string::npos; at = code_.find(text, at + 1)) ++times;
  return times;
}

void Trial::expect(bool good, const std::string& sentence) {
  if (!good) throw Verdict{Verdict::Kind::WrongAnswer, sentence, ""};
}

void Trial::count(const std::string& what, std::uint64_t counted, std::uint64_t budget, const std::string& more) {
  demand(counted <= budget,
         what + " is " + std::to_string(counted) + " where " + std::to_string(budget) + " will do. " + more);
}

void Trial::demand(bool good, const std::string& sentence) {
  if (!good) throw Verdict{Verdict::Kind::WrongCount, "The answer is right, but " + sentence, ""};
}

Exact exact_attention(const Floats& Q, const Floats& K, const Floats& V, int D, double scale,
                      const std::function<int(int)>& visible, int heads) {
  const int Sq = static_cast<int>(Q.size()) / D / heads, Sk = static_cast<int>(K.size()) / D / heads;
  Exact exact{Doubles(Q.size()), Doubles(Q.size() / D), Doubles(Q.size() / D)};
  for (int row = 0; row < heads * Sq; ++row) {
    const int keys = visible ? std::clamp(visible(row % Sq), 0, Sk) : Sk;
    const float *q = &Q[row * D], *k = &K[row / Sq * Sk * D], *v = &V[row / Sq * Sk * D];
    Doubles s(static_cast<std::size_t>(keys));
    for (int j = 0; j < keys; ++j)
      for (int d = 0; d < D; ++d) s[j] += scale * static_cast<double>(q[d]) * static_cast<double>(k[j * D + d]);
    const double m = keys ? *std::max_element(s.begin(), s.end()) : -std::numeric_limits<double>::infinity();
    double l = 0;
    for (double& x : s) l += x = std::exp(x - m);
    for (int j = 0; j < keys; ++j)
      for (int d = 0; d < D; ++d) exact.O[row * D + d] += s[j] / l * static_cast<double>(v[j * D + d]);
    exact.m[row] = m;
    exact.LSE[row] = m + std::log(l);
  }
  return exact;
}

namespace {

enum class Slip { Unscaled, Undivided, DividedEachTime, OldL, OldO, Inverted, TailDropped };

// Of one row.
void slip(Slip which, int tile, const float* q, const float* k, const float* v, int D, double scale, int keys,
          double* o) {
  double m = -std::numeric_limits<double>::infinity(), l = 0;
  for (int first = 0; first < keys; first += tile) {
    const int end = std::min(first + tile, keys);
    if (which == Slip::TailDropped && end < first + tile) break;
    Doubles s(static_cast<std::size_t>(end - first));
    double m_new = m;
    for (int j = first; j < end; ++j) {
      double& x = s[j - first];
      for (int d = 0; d < D; ++d) x += static_cast<double>(q[d]) * static_cast<double>(k[j * D + d]);
      m_new = std::max(m_new, x *= which == Slip::Unscaled ? 1 : scale);
    }
    const double alpha = first == 0 ? 0 : std::exp(which == Slip::Inverted ? m_new - m : m - m_new);
    m = m_new;
    l *= which == Slip::OldL ? 1 : alpha;
    for (int d = 0; d < D; ++d) o[d] *= which == Slip::OldO ? 1 : alpha;
    for (int j = first; j < end; ++j) {
      const double p = std::exp(s[j - first] - m);
      l += p;
      for (int d = 0; d < D; ++d) o[d] += p * static_cast<double>(v[j * D + d]);
    }
    for (int d = 0; d < D && which == Slip::DividedEachTime; ++d) o[d] /= l;
  }
  for (int d = 0; d < D && which != Slip::DividedEachTime && which != Slip::Undivided; ++d) o[d] /= l;
}

}  // namespace

std::vector<Mistake> slips(const Floats& Q, const Floats& K, const Floats& V, int D, double scale,
                           const std::function<int(int)>& visible, int heads) {
  const int Sq = static_cast<int>(Q.size()) / D / heads, Sk = static_cast<int>(K.size()) / D / heads;
  std::vector<Mistake> all;
  const auto add = [&](Slip which, int tile, const char* sentence) {
    Doubles O(Q.size());
    for (int row = 0; row < heads * Sq; ++row)
      slip(which, tile, &Q[row * D], &K[row / Sq * Sk * D], &V[row / Sq * Sk * D], D, scale,
           visible ? std::clamp(visible(row % Sq), 0, Sk) : Sk, &O[row * D]);
    all.push_back({O, sentence});
  };
  add(Slip::Unscaled, Sk, "The scores are not scaled.");
  add(Slip::Undivided, Sk, "O was never divided by l: it is a sum of weights times values, not yet a mean.");
  for (const int tile : {1, 4, 8, 16, 32, 64, 128}) {
    add(Slip::OldL, tile, "l is not rescaled when the maximum grows: the old sum counts alpha times.");
    add(Slip::OldO, tile, "O is not rescaled when the maximum grows: the old sums count alpha times.");
    add(Slip::DividedEachTime, tile,
        "O is divided by l after each tile, and the next tile adds undivided terms to it: divide once, at the end.");
    add(Slip::Inverted, tile,
        "alpha is upside down: it is exp(old maximum - new maximum), never more than 1, and the old sums count less.");
    add(Slip::TailDropped, tile, "The last keys, which fill no whole tile, are missing.");
  }
  return all;
}

std::vector<Mistake> slips_of_lse(const Exact& exact) {
  const double log2_e = 1 / std::log(2.0);
  Doubles l_alone, base_2, l_itself, mixed;
  for (std::size_t i = 0; i < exact.m.size(); ++i) {
    const double m = exact.m[i], log_l = exact.LSE[i] - m;
    l_alone.push_back(log_l);
    base_2.push_back(m + log_l * log2_e);
    l_itself.push_back(m + std::exp(log_l));
    mixed.push_back(m * log2_e + log_l);
  }
  return {{l_alone, "LSE lacks the maximum: l is a sum of exp(s - m), so m must be added to its logarithm."},
          {base_2, "LSE adds log2(l) to the maximum: l is a sum of exp, whose inverse is the natural logarithm."},
          {l_itself, "LSE adds l itself to the maximum, not its logarithm."},
          {mixed, "LSE adds a maximum in base 2 to a natural logarithm: times ln 2 the maximum is natural, too."},
          {times(exact.LSE, log2_e), "LSE is in base 2: times ln 2 it is the natural one."}};
}

Doubles times(Doubles values, double factor) {
  for (double& x : values) x *= factor;
  return values;
}

Verdict of_prediction(long long prediction, long long counted) {
  if (prediction == unknown)
    return {Verdict::Kind::NoPrediction, "The code is right. Before you see the count: write your prediction, too.",
            ""};
  if (prediction == counted)
    return {Verdict::Kind::Right, "Right, and as you predicted: " + std::to_string(counted) + ".", ""};
  return {Verdict::Kind::Right,
          "Right. You predicted " + std::to_string(prediction) + "; it is " + std::to_string(counted) + ".", ""};
}

int grade(void (*judge)(Trial&), long long prediction, char** files) {
  Verdict verdict;
  try {
    Trial trial;
    std::ifstream in(files[1]);
    for (std::string line; std::getline(in, line);) trial.code_ += line.substr(0, line.find("//")) + "\n";
    judge(trial);
    verdict = of_prediction(prediction, trial.counted_);
  } catch (const Verdict& ended) {
    verdict = ended;
  } catch (const Error& error) {  // a launch that the hardware would refuse
    verdict = {Verdict::Kind::Finding, std::string("The launch is refused: ") + error.what(), ""};
  }
  std::ofstream out(files[0]);
  out << name(verdict.kind) << "\n" << verdict.sentence << "\n" << verdict.details << std::flush;
  return out ? 0 : 1;
}

}  // namespace flash::exercise
