// trial.hpp: what a judge of an exercise says: the inputs, the exact answer, what is right, what a mistake looks like.
// The first thing that is wrong ends the trial with one sentence, in this order: findings of the checked machine, the
// answer, what was counted, the prediction. Use: void judge(Trial& t) at the end of an exercise's file.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/machine.hpp"

namespace flash::exercise {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

// Of a prediction: not made yet.
constexpr long long unknown = -1;

// How a trial ended. Thrown by Trial where something is wrong.
struct Verdict {
  enum class Kind { Right, NotCompiled, Finding, WrongAnswer, WrongCount, NoPrediction, Crash };
  Kind kind = Kind::Right;
  std::string sentence;
  std::string details = "";  // more lines, for who wants to know
};
// "wrong answer"; the inverse refuses other words.
const char* name(Verdict::Kind kind);
Verdict::Kind kind_named(const std::string& name);

// What a finding means in this exercise: one whose text holds `sign`.
struct Sign {
  std::string sign, sentence;
};
// What a known mistake would compute.
struct Mistake {
  Doubles values;
  std::string sentence;
};

class Trial {
 public:
  explicit Trial(Order order = Order::forward);  // of the blocks

  // The one that findings and counts are asked of. Launches on it; keeps going after findings.
  on_checked::Machine machine;

  // n numbers, N(0, 1), the same on every machine; another name gives others.
  static Floats normal(const std::string& name, std::size_t n);

  // Arrays of the device, which findings and traffic call so.
  template <class T>
  on_checked::Array<T> upload(const std::string& name, const std::vector<T>& host) {
    return machine.upload(name, host.data(), host.size());
  }
  on_checked::Array<float> alloc(const std::string& name, std::size_t n) { return machine.alloc<float>(name, n); }
  template <class T, bool kChecked>
  std::vector<T> download(const simt::Array<T, kChecked>& array) {
    std::vector<T> host(array.size());
    machine.download(host.data(), array);
    return host;
  }
  // What the last launch has cost.
  const Ledger& ledger() const;
  ArrayTraffic traffic(const std::string& name) const;

  // No defect was found so far. Of several findings the first that has a sign is told, else the first.
  void findings(const std::vector<Sign>& signs = {}) const;
  // `got` [rows, columns] is `exact`: each row's relative error is at most `bar`, equal where exact is infinite. Else
  // the sentence of the mistake that computes `got`; else which rows are wrong, and how. A `row` is called so.
  static void answer(const std::string& name, const Floats& got, const Doubles& exact, std::size_t columns,
                     const std::vector<Mistake>& mistakes = {}, double bar = 1e-5, const char* row = "row");
  // Something about the answer that no list of numbers says.
  static void expect(bool good, const std::string& sentence);
  // What was counted is within the budget: an answer may be cheaper than ours. `more` says what costs too much.
  static void count(const std::string& what, std::uint64_t counted, std::uint64_t budget, const std::string& more);
  // Something else that was counted is as it must be.
  static void demand(bool good, const std::string& sentence);
  // How often does the reader's code, without its comments, hold this text?
  int uses(const std::string& text) const;
  // What the reader was asked to predict.
  void predicted(std::uint64_t counted) { counted_ = static_cast<long long>(counted); }

 private:
  friend int grade(void (*judge)(Trial&), long long prediction, char** files);
  long long counted_ = unknown;
  std::string code_;
};

// Softmax attention in fp64 of Q [heads, Sq, D], K [heads, Sk, D], V [heads, Sk, D]: O [heads, Sq, D], and of each row
// LSE and m, its largest score. Row i of a head sees the keys j < visible(i), all when it is empty; one that sees none
// has O = 0, LSE = m = -inf.
struct Exact {
  Doubles O, LSE, m;
};
Exact exact_attention(const Floats& Q, const Floats& K, const Floats& V, int D, double scale,
                      const std::function<int(int)>& visible = {}, int heads = 1);
// What O becomes by the slips that are made most in online softmax, with their sentences; and LSE.
std::vector<Mistake> slips(const Floats& Q, const Floats& K, const Floats& V, int D, double scale,
                           const std::function<int(int)>& visible = {}, int heads = 1);
std::vector<Mistake> slips_of_lse(const Exact& exact);

// Each element of values times `factor`.
Doubles times(Doubles values, double factor);

// A right answer's verdict, by the prediction: none, the counted one, another one.
Verdict of_prediction(long long prediction, long long counted);

// main() of a trial: calls the judge and writes the verdict to the first file; the second is the reader's. 0: it could.
int grade(void (*judge)(Trial&), long long prediction, char** files);

}  // namespace flash::exercise
