// features.hpp: problems with any set of the features of docs/conventions.md, in memory with poison around it, and how
// far their results are from whole.hpp's. Used by the definition's proof and by phases that have such features, which
// share the walk through all pairs of them.
// Use: FeatureInputs<half> in({{Feature::Window, Feature::Sinks}}); …; expect_none(in.complaints());
#pragma once
#include <set>

#include "phases/interface/phase.hpp"
#include "tests/contract.hpp"
#include "tests/gradients.hpp"
#include "tests/whole.hpp"

namespace flash::test {

enum class Feature {
  GroupedHeads,
  OtherDv,
  Causal,  // bottom-right, with Sq != Sk
  Window,  // both bounds
  Packed,  // sequences of several lengths, empty ones among them, and rows of none
  Used,    // padded batch entries, or packed ones, and how much of each is used
  Softcap,
  Alibi,
  Bias,  // some of it -inf
  BoolMask,
  Documents,
  BlockMask,
  Sinks,
  Dropout,
  LseGradient,
  WideOutput,
};
inline constexpr int features = static_cast<int>(Feature::WideOutput) + 1;
const char* name(Feature feature);

using FeatureSet = std::set<Feature>;
// Is the set refused, as conventions.md says?
bool is_refused(const FeatureSet& set);
// None, each alone, each two that are not refused.
std::vector<FeatureSet> singles_and_pairs();

struct FeatureCase {
  FeatureSet on = {};
  std::int64_t B = 2, H = 4, Sq = 70, Sk = 90, D = 16;
  Layout layout = Layout::Mixed;
  std::uint64_t seed = 1;
  bool keeps = true;              // m, l and O's low bits go from the forward pass to the backward pass; else LSE alone
  int sharing = 0;                // of the axes B, H and Sq of bias and masks those that are 1, as bits
  std::int64_t Dv = 0;            // where V has another D; 0: D / 2 + 8
  std::optional<Mask> mask = {};  // in place of that of `on`
  std::optional<float> scale = {};  // in place of 1/sqrt(D)

  bool has(Feature feature) const { return on.count(feature) > 0; }
};
std::string text(const FeatureCase& c);

template <class T>
struct FeatureInputs {
  FeatureCase c;
  Shape shape;
  Strided<T> q, k, v, o, dout, dq, dk, dv;
  Strided<float> o_wide;
  Strided<std::int16_t> o_lo;
  std::vector<float> lse, m, l, dlse, slopes, dbias, sinks, dsinks;
  std::vector<T> bias;
  std::vector<std::uint8_t> allowed, blocks;
  std::vector<std::int32_t> document_q, document_k, first_rows, first_keys, rows_of, keys_of;

  explicit FeatureInputs(const FeatureCase& c);
  AnyProblem problem();    // forward
  AnyProblem gradients();  // backward
  // What is wrong with what the two passes have left, in words. floors: how many rounding floors gradients in fp16 and
  // bf16 may be away. tensor_cores: P is rounded before it is multiplied; O in fp32 is no better than O rounded.
  Complaints complaints(bool backward = true, double floors = 2, bool tensor_cores = false);
  // All that they have written, as bytes.
  std::vector<unsigned char> results();

 private:
  std::array<std::int64_t, 4> shared_shape() const;
  std::array<std::int64_t, 4> shape_of_blocks() const;
  AnyProblem arrays();
};

// ---- Phases that have such features, from 25 on ---------------------------------------------------------------------

AnyProblem with_blocks(AnyProblem p, Blocks blocks);
// Has the phase a backward pass for it? Only the forward pass can leave O in fp32; `widest` is the larger of D and Dv.
bool goes_back(const Phase& phase, const FeatureSet& on, std::int64_t widest);

// Of singles_and_pairs(), how many a phase computes and how many it refuses.
struct Pairs {
  int computed, refused;
  bool operator==(const Pairs&) const = default;
};
// Each of them: computed, within the bars, where all its features are in `met`; else refused by name, nothing written.
// With `fresh`, what the phase adds, those without any of it are left out: there it has the bits of the phase before.
template <class T>
Pairs check_pairs(const Phase& phase, Where where, const FeatureCase& sizes, const FeatureSet& met,
                  const FeatureSet& fresh = {}, BackwardMode mode = BackwardMode::Deterministic);

}  // namespace flash::test
