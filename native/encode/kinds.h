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

// Stretches tried of the factor that takes a group's extreme to the last level: first, first +
// step...
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

// ---- the kinds whose runs of values are points of a code book ----

enum class PointSigns {
  even,        // a sign for each value, of eight an even number negative
  free,        // a sign for each value
  shift_all,   // points with signs of their own, shifted one way or the other in a group
  shift_each,  // ... or each run for itself
};
constexpr int kPointKinds = 7, kMostPoints = 2048;
constexpr float kPointShift = 0.125f;

struct PointFacts {
  const char* name;
  int64_t groups;  // scales in a block of 256
  int length;      // values of a point
  int points;      // of the book
  int num_levels;
  float levels[8];
  int codes;   // a scale is unit * d * (2 c + 1), c from 0 to this
  float unit;  // a power of two
  Steps steps;
};

// The steps are in src/headrace/weights/codecs/points.py, which says how they were found.
constexpr PointFacts kPointFacts[kPointKinds] = {
    {"IQ3_XXS", 8, 4, 256, 8, {4, 12, 20, 28, 36, 44, 52, 62}, 15, 0.25f, {0.6f, 0.06f, 10}},
    {"IQ3_S", 8, 4, 512, 8, {1, 3, 5, 7, 9, 11, 13, 15}, 15, 1.0f, {0.6f, 0.06f, 10}},
    {"IQ2_XXS", 8, 8, 256, 3, {8, 25, 43}, 15, 0.125f, {0.7f, 0.08f, 12}},
    {"IQ2_XS", 16, 8, 512, 3, {8, 25, 43}, 15, 0.125f, {0.7f, 0.08f, 12}},
    {"IQ2_S", 16, 8, 1024, 3, {8, 25, 43}, 15, 0.125f, {0.7f, 0.08f, 12}},
    {"IQ1_S", 8, 8, 2048, 3, {-1, 0, 1}, 7, 1.0f, {1.0f, 0.12f, 10}},
    {"IQ1_M", 16, 8, 2048, 3, {-1, 0, 1}, 7, 1.0f, {1.0f, 0.12f, 10}}};

struct PointTask {
  int kind;  // its number in kPointFacts
  int64_t blocks;
  const float* values;   // [blocks, 256]
  const float* weights;  // the same, or nullptr: all 1
  const uint8_t* book;   // [points, length]: numbers of levels, in ascending order
  uint16_t* points;      // [blocks, 256 / length]: indices
  uint8_t* signs;        // [blocks, 32]: of eight values each, or whether they are shifted down
  uint8_t* scales;       // [blocks, groups]
  float* d;              // [blocks], each what an F16 holds
};

}  // namespace headrace
