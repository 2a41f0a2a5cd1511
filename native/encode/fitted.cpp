#include "encode/fitted.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headrace {
namespace {

// Doubled values of E2M1 and the middles between them, below which a ratio takes the lower one.
constexpr float kDoubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};
constexpr float kMiddles[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
constexpr int kUnits = 127, kReach = 8;

// Whether any weight counts; without one all count alike.
bool some(const float* weights, int64_t count) {
  if (weights == nullptr) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (weights[i] > 0) return true;
  }
  return false;
}

// The first code whose middle to the next one is not below `wanted`.
int nearest_unit(const float* units, float wanted) {
  int low = 0, high = kUnits - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if ((units[middle] + units[middle + 1]) * 0.5f < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

void find_run(const float* x, const float* w, const float* units, uint8_t& scale, uint8_t* codes) {
  float magnitudes[kNvRun], peak = 0;
  for (int i = 0; i < kNvRun; ++i) {
    magnitudes[i] = std::fabs(x[i]);
    peak = std::max(peak, magnitudes[i]);
  }
  const int start = nearest_unit(units, peak / kDoubled[7]);
  double least = std::numeric_limits<double>::infinity();
  for (int turn = 0; turn <= 2 * kReach; ++turn) {
    // 0, -1, 1, -2, 2, ...: of equal errors the first that is tried counts.
    const int step = turn % 2 == 0 ? turn / 2 : -(turn / 2 + 1);
    const int code = std::clamp(start + step, 0, kUnits - 1);
    const float unit = units[code], divisor = unit > 0 ? unit : 1.0f;
    uint8_t levels[kNvRun];
    double errors[kNvRun];
    for (int i = 0; i < kNvRun; ++i) {
      const float ratio = magnitudes[i] / divisor;
      int level = 0;
      for (const float middle : kMiddles) level += middle < ratio;
      levels[i] = static_cast<uint8_t>(level);
      const float off = unit * kDoubled[level] - magnitudes[i];
      errors[i] = (w == nullptr ? 1.0 : static_cast<double>(w[i])) * off * off;
    }
    double error = errors[0];
    for (int i = 1; i < kNvRun; ++i) error += errors[i];
    if (error < least) {
      least = error;
      scale = static_cast<uint8_t>(code);
      // Zero has no sign here.
      for (int i = 0; i < kNvRun; ++i) {
        codes[i] = static_cast<uint8_t>(levels[i] | (x[i] < 0 && levels[i] > 0 ? 8 : 0));
      }
    }
  }
}

struct Change {
  double at;    // the scale below which a value takes its next level
  double rise;  // of sum(w x q)
  double square;  // of sum(w q^2)
};

struct Best {
  double scale = 0, explained = 0;
};

// Of one sign of d > 0; `turn` is 1, or -1 for values turned around.
Best best_scale(const float* values, const float* w, double turn) {
  Change changes[2 * kTernaryRun];
  for (int i = 0; i < kTernaryRun; ++i) {
    const double x = turn * values[i], weight = w == nullptr ? 1.0 : static_cast<double>(w[i]);
    const double product = weight * x;
    const bool up = x > 0;
    changes[i] = {up ? 2 * x : -2 * x, std::fabs(product), weight};
    changes[kTernaryRun + i] = {up ? 2 * x / 3 : 0.0, up ? product : 0.0, up ? 3 * weight : 0.0};
  }
  std::stable_sort(changes, changes + 2 * kTernaryRun,
                   [](const Change& a, const Change& b) { return a.at > b.at; });
  double product = 0, norm = 0, of_best = 0, norm_of_best = 0;
  Best best;
  best.explained = -1;
  for (const Change& change : changes) {
    product += change.rise;
    norm += change.square;
    const double explained = norm > 0 ? product * product / norm : 0.0;
    if (explained > best.explained) {
      best.explained = explained;
      of_best = product;
      norm_of_best = norm;
    }
  }
  best.scale = norm_of_best > 0 ? of_best / norm_of_best : 0.0;
  return best;
}

}  // namespace

void find_nvfp4(const NvTask& task) {
  for (int64_t run = 0; run < task.runs; ++run) {
    const float* w = task.weights == nullptr ? nullptr : task.weights + run * kNvRun;
    find_run(task.values + run * kNvRun, some(w, kNvRun) ? w : nullptr, task.units,
             task.scales[run], task.codes + run * kNvRun);
  }
}

void find_q2_0(const TernaryTask& task) {
  for (int64_t block = 0; block < task.blocks; ++block) {
    const float* x = task.values + block * kTernaryRun;
    const float* w = task.weights == nullptr ? nullptr : task.weights + block * kTernaryRun;
    if (!some(w, kTernaryRun)) w = nullptr;
    const Best up = best_scale(x, w, 1), down = best_scale(x, w, -1);
    task.scales[block] =
        static_cast<float>(up.explained >= down.explained ? up.scale : -down.scale);
  }
}

}  // namespace headrace
