// From a row of logits to a token, and the log probabilities of the raw distribution.
//
// A row is the work of one thread; weights are summed as whole numbers, so a result depends on
// nothing but its row.

#pragma once

#include <cstdint>

#include "kernels.h"
#include "row_filters.h"

namespace headrace {

// What the tokens so far do to a row's scores; the arithmetic is that of `Penalties` in
// ops/interface.py. ids: distinct, of which those at n and above are of no token and skipped.
struct Penalties {
  const int32_t* ids;
  const int32_t* counts;
  int64_t size;
  float repetition;
  float frequency;
  float presence;
};

// Numbered as ops/cpu/backend.py sends them.
enum class Stage : int32_t { penalties, temperature, min_p, top_k, top_p };
constexpr int kStages = 5;

// An explicit order of stages, each applied to the scores that the one before it left.
struct Chain {
  Stage stages[kStages];
  int count;  // 0: the default order, as one pass
  Penalties penalties;
};

struct SampleRow {
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  double uniform;
  Chain chain{};
  const uint32_t* mask = nullptr;  // bits of the ids that may come, the lowest first; null for all
};

constexpr int32_t kNoToken = -1;   // NaN or +inf among the logits
constexpr int32_t kAllMasked = -2;  // -inf everywhere

// An id in [0, n), or one of the above: of ids without a bit the logits are not looked at.
int32_t sample_row(const Kernels& kernels, const float* logits, int64_t n, const SampleRow& row,
                   SampleScratch& scratch);

// Returns 0, or one of the above. ids, values: k each.
int32_t top_logprobs_row(const Kernels& kernels, const float* logits, int64_t n, int32_t chosen,
                         int64_t k, float* logprob, int32_t* rank, int32_t* ids, float* values,
                         SampleScratch& scratch);

}  // namespace headrace
