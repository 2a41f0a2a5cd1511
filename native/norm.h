// Norms of rows: RMS, and layer norm, which is the same of x - mean(x).
//
// Sums over a row are kept per lane (k mod 16) and then taken over the lanes. A layer norm takes
// the mean first and then, in a second pass, the squares of the differences: one pass over x and
// x^2 would lose what a large mean leaves of the variance. An RMS norm is the case of mean 0, and x
// - 0 is x, so both are one code.

#pragma once

#include "kernels.h"

namespace {

using headrace::kLanes;
using headrace::NormArgs;
using headrace::NormWeights;

HEADRACE_INLINE F load_left(const float* p, int64_t left) {
  return left >= kLanes ? load(p) : load_n(p, left);
}

// What a row's values become: (x - mean) * scale * weight + bias.
struct RowNorm {
  const float* weight;
  const float* bias;  // or null
  F mean;
  F scale;

  // 16 values from k on, `left` of which exist; zeros after them.
  HEADRACE_INLINE F at(const RowNorm& r, F x, int64_t k, int64_t left) {
    const F scaled = mul(sub(x, r.mean), r.scale);
    F y = mul(scaled, load_left(r.weight + k, left));
    if (r.bias != nullptr) y = add(y, load_left(r.bias + k, left));
    return left >= kLanes ? y : select(first(left), y, zero());
  }
};

HEADRACE_INLINE RowNorm measure(const NormWeights& norm, const float* x, int64_t width) {
  const float count = static_cast<float>(width);
  F mean = zero(), squares = zero();
  if (norm.centred) {
    F total = zero();
    for (int64_t k = 0; k < width; k += kLanes) total = add(total, load_left(x + k, width - k));
    mean = splat(sum(total) / count);
  }
  int64_t k = 0;
  for (; k + kLanes <= width; k += kLanes) {
    const F d = sub(load(x + k), mean);
    squares = fma(d, d, squares);
  }
  if (k < width) {
    const F d = select(first(width - k), sub(load_n(x + k, width - k), mean), zero());
    squares = fma(d, d, squares);
  }
  const float scale = 1.0f / __builtin_sqrtf(sum(squares) / count + norm.eps);
  return {norm.weight, norm.bias, mean, splat(scale)};
}

// y = residual + the norm of x; y may be x, residual null.
HEADRACE_INLINE void norm_row(const NormWeights& norm, const float* x, const float* residual,
                              int64_t width, float* y) {
  const RowNorm row = measure(norm, x, width);
  for (int64_t k = 0; k < width; k += kLanes) {
    const int64_t left = width - k;
    F v = RowNorm::at(row, load_left(x + k, left), k, left);
    if (residual != nullptr) v = add(v, load_left(residual + k, left));
    store_n(y + k, v, left);
  }
}

static void norm(const NormArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t group = 0; group < a.groups; ++group) {
      const int64_t column = group * a.width, at = row * a.stride + column;
      NormWeights part = a.norm;
      part.weight += column;
      if (part.bias != nullptr) part.bias += column;
      norm_row(part, a.x + at, a.residual == nullptr ? nullptr : a.residual + at, a.width,
               a.y + at);
    }
  }
}

}  // namespace
