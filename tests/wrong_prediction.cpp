// wrong_prediction.cpp: makes phase 01 predict one byte too many, in a copy of the program behind ./flash: the tour has
// to say so and to fail. tour_test.cpp runs it.
#include "phases/01-naive/phase.hpp"

namespace {

using namespace flash;

const Features wrong = [] {
  Features features = phase01::features;
  features.hbm_bytes = [](const AnyProblem& p, Blocks blocks) {
    HbmBytes bytes = phase01::hbm_bytes(p, blocks);
    ++bytes.read;
    return bytes;
  };
  return features;
}();
Pass pass{.features = wrong, .entries = {[](const AnyProblem& p, const MachineOptions& options) {
                               return phase01::forward_pass.entries[0](p, options);
                             }}};
[[maybe_unused]] const Pass* const set = phase01::phase.forward = &pass;

}  // namespace
