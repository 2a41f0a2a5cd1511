// The chains of sampling stages of a call, as they come from Python.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "arguments.h"
#include "sample.h"
#include "view.h"

namespace headrace {

// The chains of R rows. stages: int32[R, kStages], -1 past the last of a row; strengths: f32[R, 3],
// repetition, frequency and presence; ids, counts: of row i at [start[i], start[i + 1]).
class ChainsView {
 public:
  ChainsView(nanobind::handle stages, nanobind::handle strengths, nanobind::handle start,
             nanobind::handle ids, nanobind::handle counts, int64_t rows, int64_t width)
      : stages_(stages, "stages", 2), strengths_(strengths, "strengths", 2),
        start_(start, "penalties_start", 1), ids_(ids, "penalised id", 1),
        counts_(counts, "counts", 1) {
    stages_.require(0, rows);
    stages_.require(1, kStages);
    strengths_.require(0, rows);
    strengths_.require(1, 3);
    start_.require(0, rows + 1);
    ids_.require_below(width);
    counts_.require(0, ids_.size(0));
    const int32_t* at = start_.data();
    for (int64_t i = 0; i < rows; ++i) {
      if (at[i] < 0 || at[i] > at[i + 1] || at[i + 1] > ids_.size(0)) {
        refuse("penalties_start does not ascend within the ids");
      }
    }
    for (int64_t i = 0; i < counts_.size(0); ++i) {
      check_range("counts", counts_.data()[i], counts_.data()[i] >= 0, "[0, inf)");
    }
  }

  Chain row(int64_t i) const {
    Chain chain{};
    for (const int32_t* at = stages_.data() + i * kStages; chain.count < kStages; ++chain.count) {
      const int32_t stage = at[chain.count];
      if (stage == -1) break;
      check_range("stage", stage, stage >= 0 && stage < kStages, "[0, 5)");
      if (std::find(at, at + chain.count, stage) != at + chain.count) {
        refuse("stage " + std::to_string(stage) + " comes twice");
      }
      chain.stages[chain.count] = static_cast<Stage>(stage);
    }
    const float* by = strengths_.data() + i * 3;
    check_range("repetition", by[0], by[0] > 0 && by[0] <= 3.4e38f, "(0, inf)");
    check_range("frequency", by[1], std::abs(by[1]) <= 3.4e38f, "(-inf, inf)");
    check_range("presence", by[2], std::abs(by[2]) <= 3.4e38f, "(-inf, inf)");
    const int64_t from = start_.data()[i], to = start_.data()[i + 1];
    chain.penalties = {ids_.data() + from, counts_.data() + from, to - from, by[0], by[1], by[2]};
    return chain;
  }

 private:
  View<int32_t> stages_;
  View<float> strengths_;
  View<int32_t> start_, ids_, counts_;
};

}  // namespace headrace
