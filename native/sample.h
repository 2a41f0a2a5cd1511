// From a row of logits to a token, and the log probabilities of the raw distribution.
//
// A row is the work of one thread; sums are in double, in ascending order of id, so a result
// depends on nothing but its row.

#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"

namespace headrace {

struct SampleRow {
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  double uniform;
};

// What a thread needs beside the row; grows to the vocabulary and stays.
struct SampleScratch {
  struct Bucket {
    int64_t count;
    double mass;
  };
  std::vector<float> weights;
  std::vector<Bucket> buckets;
};

constexpr int32_t kNoToken = -1;   // NaN or +inf among the logits
constexpr int32_t kAllMasked = -2;  // -inf everywhere

// An id in [0, n), or one of the above.
int32_t sample_row(const Kernels& kernels, const float* logits, int64_t n, const SampleRow& row,
                   SampleScratch& scratch);

// Returns 0, or one of the above. ids, values: k each.
int32_t top_logprobs_row(const Kernels& kernels, const float* logits, int64_t n, int32_t chosen,
                         int64_t k, float* logprob, int32_t* rank, int32_t* ids, float* values,
                         SampleScratch& scratch);

}  // namespace headrace
