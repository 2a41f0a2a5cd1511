// The F16 scales of blocks and the codes of their groups' scales, fitted in turns.

#pragma once

#include "encode/lanes.h"

namespace {

// Those of as many blocks as the lanes hold: a scale, or a scale and a minimum.
template <int PerBlock, int Scales>
struct BlockScales {
  static constexpr int kAtOnce = kLanes / PerBlock;
  float d[Scales][kAtOnce];
  V codes[Scales];  // whole numbers
};

// Takes the neighbours of codes where that is better; the errors. error_at: of codes.
template <class ErrorAt>
V improve_codes(V& codes, float low, float high, ErrorAt error_at) {
  V error = error_at(codes);
  const V start = codes;
  for (int step = -headrace::kCodeReach; step <= headrace::kCodeReach; ++step) {
    if (step == 0) continue;
    const V other = clip(start + static_cast<float>(step), low, high);
    const V wrong = error_at(other);
    const Mask better = wrong < error;
    error = select(better, wrong, error);
    codes = select(better, other, codes);
  }
  return error;
}

// improve: makes the codes better at the scales as they are, and gives the errors of the groups.
// refit: the scales that fit best while all else stays. A block keeps what is better as a whole.
template <int PerBlock, int Scales, class Improve, class Refit>
void fit_in_turns(BlockScales<PerBlock, Scales>& s, Improve improve, Refit refit) {
  constexpr int kAtOnce = kLanes / PerBlock;
  double errors[kAtOnce];
  block_sums<PerBlock>(improve(), errors);
  for (int round = 0; round < headrace::kRounds; ++round) {
    const BlockScales<PerBlock, Scales> before = s;
    float next[Scales][kAtOnce];
    refit(next);
    std::memcpy(s.d, next, sizeof(next));
    double wrong[kAtOnce];
    block_sums<PerBlock>(improve(), wrong);
    float kept[kAtOnce] = {};
    for (int b = 0; b < kAtOnce; ++b) {
      if (wrong[b] < errors[b]) {
        errors[b] = wrong[b];
        continue;
      }
      kept[b] = 1.0f;
      for (int k = 0; k < Scales; ++k) s.d[k][b] = before.d[k][b];
    }
    const Mask keep = spread<PerBlock>(kept) != 0.0f;
    for (int k = 0; k < Scales; ++k) s.codes[k] = select(keep, before.codes[k], s.codes[k]);
  }
}

}  // namespace
