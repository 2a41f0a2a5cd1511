#include "route.h"

#include <bit>
#include <cmath>
#include <limits>

namespace headrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kSmallest = 0x1p-126;  // of normal float32
// Beyond it exp is 0 or infinity, so that no result is a denormal float64.
constexpr double kFurthest = 500;

// 1 / 13!, 1 / 12!, ... 1.
constexpr double kTerms[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0,
                             1.0 / 3628800.0,    1.0 / 362880.0,    1.0 / 40320.0,
                             1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,
                             1.0 / 24.0,         1.0 / 6.0,         1.0 / 2.0,
                             1.0,                1.0};

double exp(double x) {
  if (!(std::fabs(x) <= kFurthest)) return x < 0 ? 0.0 : (x > 0 ? kInfinity : kNaN);
  constexpr double kMagic = 0x1.8p52;  // adding it leaves no fraction
  const double n = (x * 0x1.71547652b82fep+0 + kMagic) - kMagic;
  const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  double p = kTerms[0];
  for (int k = 1; k < 14; ++k) p = p * r + kTerms[k];
  return p * std::bit_cast<double>((static_cast<int64_t>(n) + 1023) << 52);
}

// Denormals are zero.
double wide(float x) { return std::fabs(x) < static_cast<float>(kSmallest) ? 0.0 : x; }

// values[0, n): exp(value - the largest) / the sum of all; NaN where all are -inf.
void softmax(double* values, int64_t n) {
  double highest = values[0], total = 0;
  for (int64_t i = 1; i < n; ++i) highest = values[i] > highest ? values[i] : highest;
  for (int64_t i = 0; i < n; ++i) {
    values[i] = exp(values[i] - highest);
    total = i == 0 ? values[0] : total + values[i];
  }
  for (int64_t i = 0; i < n; ++i) values[i] = values[i] / total;
}

// Keeps the best `most` indices in `best`, best first, the lower index first among equals; indices
// come in ascending order. Returns how many there are now.
int64_t keep_best(const double* rank, int32_t index, int32_t* best, int64_t count, int64_t most) {
  if (count == most && !(rank[index] > rank[best[count - 1]])) return count;
  int64_t at = count < most ? count : count - 1;
  for (; at > 0 && rank[index] > rank[best[at - 1]]; --at) best[at] = best[at - 1];
  best[at] = index;
  return count < most ? count + 1 : count;
}

// Best and second best of a group, or the best alone.
double score_of_group(const double* rank, int64_t size, bool top2) {
  double best = rank[0], second = -kInfinity;
  for (int64_t i = 1; i < size; ++i) {
    if (rank[i] > best) {
      second = best;
      best = rank[i];
    } else if (rank[i] > second) {
      second = rank[i];
    }
  }
  return top2 && size > 1 ? best + second : best;
}

// Marks the experts of the groups with the best of `rank` in `left`.
void choose_groups(const Routing& r, const double* rank, RouteScratch& s) {
  const int64_t size = r.experts / r.groups;
  int64_t count = 0;
  for (int64_t g = 0; g < r.groups; ++g) {
    s.groups[static_cast<size_t>(g)] = score_of_group(rank + g * size, size, r.top2);
    count = keep_best(s.groups.data(), static_cast<int32_t>(g), s.best_groups.data(), count,
                      r.chosen_groups);
  }
  for (int64_t e = 0; e < r.experts; ++e) s.left[static_cast<size_t>(e)] = 0;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < size; ++j) {
      s.left[static_cast<size_t>(s.best_groups[static_cast<size_t>(i)] * size + j)] = 1;
    }
  }
}

void choose(const Routing& r, const float* bias, RouteScratch& s, int32_t* experts) {
  for (int64_t e = 0; e < r.experts; ++e) {
    const size_t i = static_cast<size_t>(e);
    s.scores[i] = r.score == RouterScore::sigmoid ? 1.0 / (1.0 + exp(-s.logits[i])) : s.logits[i];
  }
  if (r.score == RouterScore::softmax) softmax(s.scores.data(), r.experts);
  for (int64_t e = 0; e < r.experts; ++e) {
    const size_t i = static_cast<size_t>(e);
    s.rank[i] = s.scores[i] + (bias == nullptr ? 0.0 : wide(bias[e]));
  }
  // Scores grow with logits, but those of large logits may be rounded to the same number.
  const double* rank = bias == nullptr ? s.logits.data() : s.rank.data();
  if (r.groups > 1) choose_groups(r, r.top2 ? s.rank.data() : rank, s);
  int64_t count = 0;
  for (int64_t e = 0; e < r.experts; ++e) {
    if (r.groups > 1 && s.left[static_cast<size_t>(e)] == 0) continue;
    count = keep_best(rank, static_cast<int32_t>(e), experts, count, r.chosen);
  }
  for (int64_t i = 0; i < r.chosen; ++i) {
    s.chosen[static_cast<size_t>(i)] = s.scores[static_cast<size_t>(experts[i])];
  }
  if (r.score == RouterScore::softmax_of_chosen) softmax(s.chosen.data(), r.chosen);
}

// Each choice is made among the logits that are left; its score is a softmax over those close by.
void sparsemixer(const Routing& r, RouteScratch& s, int32_t* experts) {
  for (int64_t e = 0; e < r.experts; ++e) s.left[static_cast<size_t>(e)] = 1;
  for (int64_t choice = 0; choice < r.chosen; ++choice) {
    int64_t best = -1;
    for (int64_t e = 0; e < r.experts; ++e) {
      if (s.left[static_cast<size_t>(e)] == 0) continue;
      if (best < 0 || s.logits[static_cast<size_t>(e)] > s.logits[static_cast<size_t>(best)]) {
        best = e;
      }
    }
    const double highest = s.logits[static_cast<size_t>(best)];
    double total = 0;
    for (int64_t e = 0; e < r.experts && highest > -kInfinity; ++e) {
      const double logit = s.logits[static_cast<size_t>(e)], size = std::fabs(logit);
      const double distance = (highest - logit) / (size > highest ? size : highest);
      if (s.left[static_cast<size_t>(e)] == 0 || distance > 2 * r.jitter) continue;
      total = total + exp(logit - highest);
    }
    experts[choice] = static_cast<int32_t>(best);
    s.chosen[static_cast<size_t>(choice)] = highest > -kInfinity ? 1.0 / total : 0.0;
    s.left[static_cast<size_t>(best)] = 0;
  }
}

}  // namespace

void RouteScratch::reserve(const Routing& routing) {
  const size_t experts = static_cast<size_t>(routing.experts);
  for (std::vector<double>* values : {&logits, &scores, &rank}) {
    if (values->size() < experts) values->resize(experts);
  }
  if (left.size() < experts) left.resize(experts);
  if (groups.size() < static_cast<size_t>(routing.groups)) {
    groups.resize(static_cast<size_t>(routing.groups));
  }
  if (best_groups.size() < static_cast<size_t>(routing.chosen_groups)) {
    best_groups.resize(static_cast<size_t>(routing.chosen_groups));
  }
  if (chosen.size() < static_cast<size_t>(routing.chosen)) {
    chosen.resize(static_cast<size_t>(routing.chosen));
  }
}

void route_row(const Routing& r, const float* logits, const float* bias, RouteScratch& s,
               int32_t* experts, float* weights) {
  bool usable = true;
  double highest = -kInfinity;
  for (int64_t e = 0; e < r.experts; ++e) {
    const double logit = wide(logits[e]);
    s.logits[static_cast<size_t>(e)] = logit;
    usable &= logit == logit;
    highest = logit > highest ? logit : highest;
  }
  if (r.score != RouterScore::sigmoid) usable &= std::fabs(highest) < kInfinity;
  if (!usable) {
    for (int64_t i = 0; i < r.chosen; ++i) {
      experts[i] = static_cast<int32_t>(i);
      weights[i] = std::numeric_limits<float>::quiet_NaN();
    }
    return;
  }
  if (r.score == RouterScore::sparsemixer) {
    sparsemixer(r, s, experts);
  } else {
    choose(r, bias, s, experts);
  }
  double divisor = 1;
  if (r.normalised) {
    divisor = s.chosen[0];
    for (int64_t i = 1; i < r.chosen; ++i) divisor = divisor + s.chosen[static_cast<size_t>(i)];
    divisor = divisor + r.epsilon;
  }
  for (int64_t i = 0; i < r.chosen; ++i) {
    const double share = divisor == 0 ? 0.0 : s.chosen[static_cast<size_t>(i)] / divisor;
    const double weight = share * r.scale;
    weights[i] = std::fabs(weight) < kSmallest ? 0.0f : static_cast<float>(weight);
  }
}

}  // namespace headrace
