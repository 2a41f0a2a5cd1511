// The kinds that are encoded by search, and what a search is given and gives.

#pragma once

#include <cstdint>

namespace headrace {

enum class Kind { q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, q4_0, q5_0, q4_1, q5_1 };
constexpr int kKinds = 11;

struct KindFacts {
  const char* name;
  int64_t elements;  // values in a block
  int64_t groups;    // scales in a block; 0 where d is the only one
  bool minimums;
};

constexpr KindFacts kKindFacts[kKinds] = {
    {"Q2_K", 256, 16, true}, {"Q3_K", 256, 16, false}, {"Q4_K", 256, 8, true},
    {"Q5_K", 256, 8, true},  {"Q6_K", 256, 16, false}, {"IQ4_NL", 32, 0, false},
    {"IQ4_XS", 256, 8, false}, {"Q4_0", 32, 0, false}, {"Q5_0", 32, 0, false},
    {"Q4_1", 32, 0, true},   {"Q5_1", 32, 0, true}};

// Stretches tried of the factor that takes a group's extreme to the last level: first, first + step...
struct Steps {
  float first, step;
  int count;
};

// Found by trying: the tables of src/headrace/weights/codecs/search.py, which says how.
constexpr Steps kSteps[kKinds] = {{0.9f, 0.05f, 14}, {0.8f, 0.05f, 10}, {0.94f, 0.02f, 14},
                                  {0.96f, 0.01f, 14}, {0.97f, 0.01f, 8}, {0.85f, 0.03f, 10},
                                  {0.85f, 0.03f, 10}, {0.85f, 0.03f, 10}, {0.93f, 0.02f, 9},
                                  {0.94f, 0.02f, 14}, {0.96f, 0.01f, 14}};
constexpr int kRefits = 3;     // of the best stretch: levels by the fitted scale, and fitted again
constexpr int kCodeReach = 1;  // neighbours of a scale's code that are tried
constexpr int kRounds = 2;     // of fitting d (and dmin) again to the codes

struct Task {
  Kind kind;
  int64_t blocks;
  const float* values;   // [blocks, elements]
  const float* weights;  // the same, or nullptr: all 1
  uint8_t* quants;       // [blocks, elements]: codes from 0
  int8_t* scales;        // [blocks, groups]
  int8_t* minimums;      // [blocks, groups]
  float* d;              // [blocks], each what an F16 holds
  float* dmin;           // [blocks]
};

}  // namespace headrace
