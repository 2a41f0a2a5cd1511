// What filters keep of a row of scores, found without sorting the row: by the largest of its
// blocks, and then by samples between which ever fewer scores lie.
//
// Amounts (counts, and weights in fixed point) are whole numbers, so that what is kept depends on
// nothing but the row: not on which blocks were passed over, nor on where a sample fell.

#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels.h"

namespace headrace {

// What a thread needs beside the row. Reserved before threads start, since they must not throw.
struct SampleScratch {
  struct Entry {
    float score;
    int32_t id;
  };

  // For rows of n logits and the k best of them; with scores where a row has a chain or a mask.
  void reserve(int64_t n, int64_t k, bool scored);

  std::vector<float> scores;  // of rows with a chain or a mask
  std::vector<int32_t> ids;   // of the scores, where a mask leaves few
  std::vector<float> highest;  // of each block
  std::vector<int64_t> sums;   // of each block
  std::vector<float> taken, nearer;  // scores that a search has still to do with
  std::vector<int64_t> taken_sums;
  std::vector<Entry> best;
};

// A row: scores x[n] without NaN or +inf, the largest of each block and of all.
struct Row {
  const float* x;
  int64_t n;
  const float* highest;
  float most;
};

// Of a row: scores above `bound`, and of those that equal `edge`, which lies just above what
// `bound` drops, the ones up to the id `last`.
struct Kept {
  float bound = -std::numeric_limits<float>::infinity();
  float edge = std::numeric_limits<float>::infinity();
  int64_t last = -1;

  bool has(float score, int64_t id) const { return score > bound || (score == edge && id <= last); }
};

// The largest float below x that is normal or zero: what lies between is read as zero.
float below(float x);

// The weight of a score of `weight`, as sums have it.
int64_t fixed(float weight);

// Those scores of `kept` that are among the k largest or equal to the least of these, which is
// returned; all of them, and -inf, where they are fewer.
float keep_top_k(const Kernels& kernels, const Row& row, int64_t k, Kept& kept,
                SampleScratch& scratch);

// The scores of `kept` ahead of which, largest first and lower ids first among equals, less than
// top_p of the weight of all of them lies. kept.last is -1.
void keep_top_p(const Kernels& kernels, const Row& row, Weighing weighing, double top_p, Kept& kept,
                SampleScratch& scratch);

// A score below which every weight is less than min_p, or rounds to 0.
float weightless(float most, float temperature, float min_p);

}  // namespace headrace
