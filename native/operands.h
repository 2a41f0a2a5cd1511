// Rows of activations made ready: norm, then rounding as the codec of the weights demands.

#pragma once

#include "kernels.h"
#include "norm.h"
#include "quantise.h"

namespace {

using headrace::Codec;
using headrace::kTile;
using headrace::PrepareArgs;

// Sixteen values of a row from k on, normed; zeros past the row's end.
struct RowReader {
  const float* x;
  int64_t width;
  bool normed;
  RowNorm norm;

  HEADRACE_INLINE F at(const RowReader& r, int64_t k) {
    const int64_t left = r.width - k;
    if (left <= 0) return zero();
    const F v = load_left(r.x + k, left);
    return r.normed ? RowNorm::at(r.norm, v, k, left) : v;
  }
};

// The largest magnitude of a row; NaN where one is among its values.
HEADRACE_INLINE float largest_of_row(const RowReader& r, int64_t tiles) {
  float most = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    const float amax = largest_magnitude(RowReader::at(r, t * kTile),
                                         RowReader::at(r, t * kTile + kLanes));
    if (amax > most || amax != amax) most = amax;
  }
  return most;
}

static void prepare(const PrepareArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    RowReader r{a.x + row * a.stride, a.width, a.norm.weight != nullptr, {}};
    if (r.normed) r.norm = measure(a.norm, r.x, a.width);
    const bool whole_row = headrace::facts(a.codec).whole_row;
    const float of_row = whole_row ? largest_of_row(r, a.tiles) : 0.0f;
    for (int64_t t = 0; t < a.tiles; ++t) {
      const F low = RowReader::at(r, t * kTile), high = RowReader::at(r, t * kTile + kLanes);
      if (headrace::is_quantised(a.codec)) {
        quantise_block(low, high, whole_row ? of_row : largest_magnitude(low, high),
                       headrace::facts(a.codec), row * a.tiles + t, a.to);
      } else if (a.to.half != nullptr) {
        uint16_t* to = a.to.half + row * a.to.stride + t * kTile;
        store_bf16(to, round_bf16(low));
        store_bf16(to + kLanes, round_bf16(high));
      } else {
        float* to = a.to.values + row * a.to.stride + t * kTile;
        const bool round = headrace::rounds_activations(a.codec);
        store(to, round ? round_bf16(low) : low);
        store(to + kLanes, round ? round_bf16(high) : high);
      }
    }
  }
}

}  // namespace
