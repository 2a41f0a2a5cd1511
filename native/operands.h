// Rows of activations made ready: RMS norm, then rounding as the codec of the weights demands.

#pragma once

#include "kernels.h"
#include "quantise.h"

namespace {

using headrace::Codec;
using headrace::NormArgs;
using headrace::PrepareArgs;

// 1 / sqrt(mean(x^2) + eps): squares are summed per lane, then over the lanes.
HEADRACE_INLINE float inverse_rms(const float* x, int64_t width, float eps) {
  F squares = zero();
  int64_t k = 0;
  for (; k + kLanes <= width; k += kLanes) {
    const F v = load(x + k);
    squares = fma(v, v, squares);
  }
  if (k < width) {
    const F v = load_n(x + k, width - k);
    squares = fma(v, v, squares);
  }
  return 1.0f / __builtin_sqrtf(sum(squares) / static_cast<float>(width) + eps);
}

HEADRACE_INLINE void norm_row(const float* x, const float* weight, int64_t width, float eps,
                              float* y) {
  const F scale = splat(inverse_rms(x, width, eps));
  int64_t k = 0;
  for (; k + kLanes <= width; k += kLanes) {
    store(y + k, mul(mul(load(x + k), scale), load(weight + k)));
  }
  if (k < width) {
    const int64_t n = width - k;
    store_n(y + k, mul(mul(load_n(x + k, n), scale), load_n(weight + k, n)), n);
  }
}

static void rms_norm(const NormArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    norm_row(a.x + row * a.width, a.weight, a.width, a.eps, a.y + row * a.width);
  }
}

// Sixteen values of a row from k on, normed; zeros past the row's end.
struct RowReader {
  const float* x;
  const float* weight;  // null: no norm
  int64_t width;
  F scale;

  HEADRACE_INLINE F at(const RowReader& r, int64_t k) {
    const int64_t left = r.width - k;
    if (left >= kLanes) {
      const F v = load(r.x + k);
      return r.weight == nullptr ? v : mul(mul(v, r.scale), load(r.weight + k));
    }
    const int64_t n = left > 0 ? left : 0;
    const F v = load_n(r.x + k, n);
    return r.weight == nullptr ? v : mul(mul(v, r.scale), load_n(r.weight + k, n));
  }
};

static void prepare(const PrepareArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    RowReader r{a.x + row * a.width, a.norm_weight, a.width, zero()};
    if (a.norm_weight != nullptr) r.scale = splat(inverse_rms(r.x, a.width, a.eps));
    for (int64_t t = 0; t < a.tiles; ++t) {
      const F low = RowReader::at(r, t * kTile), high = RowReader::at(r, t * kTile + kLanes);
      if (headrace::is_quantised(a.codec)) {
        quantise_block(low, high, headrace::facts(a.codec), row * a.tiles + t, a.to);
      } else if (a.to.half != nullptr) {
        uint16_t* to = a.to.half + row * a.to.stride + t * kTile;
        store_bf16(to, round_bf16(low));
        store_bf16(to + kLanes, round_bf16(high));
      } else {
        float* to = a.to.values + row * a.to.stride + t * kTile;
        const bool round = a.codec == Codec::bf16;
        store(to, round ? round_bf16(low) : low);
        store(to + kLanes, round ? round_bf16(high) : high);
      }
    }
  }
}

}  // namespace
