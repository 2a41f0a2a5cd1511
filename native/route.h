// From a token's router logits to its experts and their weights: in float64, by single operations
// in an order of their own, so that every level and the reference have the same bits
// (docs/kernels.md, Routing).

#pragma once

#include <cstdint>
#include <vector>

namespace headrace {

enum class RouterScore : int32_t { softmax, sigmoid, softmax_of_chosen, sparsemixer };

struct Routing {
  int64_t experts;
  int64_t chosen;  // of a token; at most what the chosen groups hold
  RouterScore score;
  bool normalised;
  double epsilon;
  double scale;
  int64_t groups;  // equal, of neighbouring experts
  int64_t chosen_groups;
  bool top2;  // a group's score: the sum of its two best, not its best
  double jitter;
};

// One thread's memory for a row.
struct RouteScratch {
  std::vector<double> logits, scores, rank, groups, chosen;
  std::vector<uint8_t> left;
  std::vector<int32_t> best_groups;

  void reserve(const Routing& routing);
};

// One row: logits f32[experts] and bias (or null), experts and weights [chosen].
void route_row(const Routing& routing, const float* logits, const float* bias,
               RouteScratch& scratch, int32_t* experts, float* weights);

}  // namespace headrace
