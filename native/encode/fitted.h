// The kinds whose best scale is found among all that there are: NVFP4 and Q2_0.
//
// src/headrace/weights/codecs/tables.py and few_bits.py define what is found, and this gives the
// same bits: one operation of float32 or double at a time, sums in the order of values.

#pragma once

#include <cstdint>

namespace headrace {

constexpr int kNvRun = 16;       // values of NVFP4 that share a scale
constexpr int kTernaryRun = 64;  // values of a block of Q2_0

struct NvTask {
  int64_t runs;
  const float* values;   // [runs, 16], magnitudes of at most 12 times the largest unit
  const float* weights;  // the same, or nullptr: all 1
  const float* units;    // [127]: what each code of a scale stands for, ascending from 0
  uint8_t* scales;       // [runs]: codes
  uint8_t* codes;        // [runs, 16]: numbers of E2M1
};

// The scale of the least weighed squared error of seventeen around that of the extreme.
void find_nvfp4(const NvTask& task);

struct TernaryTask {
  int64_t blocks;
  const float* values;   // [blocks, 64]
  const float* weights;  // the same, or nullptr: all 1
  float* scales;         // [blocks]; negative where the level without a partner is a negative one
};

// The scale of the least weighed squared error over levels -1 to 2.
void find_q2_0(const TernaryTask& task);

}  // namespace headrace
