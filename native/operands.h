// Rows of activations made ready: norm, then rounding as the codec of the weights demands.

#pragma once

#include "kernels.h"
#include "norm.h"

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

// A block of 32: d = amax / 127, q = nearest(x * (127 / amax)). Where d is zero (with denormals
// flushed, an amax below 1.5e-36) the block is zero; a NaN or infinity makes d one, and so the sum.
HEADRACE_INLINE void quantise_block(F a, F b, int8_t* q, float* d, int32_t* offset) {
  const float amax = largest_magnitude(a, b);
  const float scale = amax / 127.0f;
  const F inverse = splat(scale == 0.0f ? 0.0f : 127.0f / amax);
  const I low = store_i8(q, mul(a, inverse));
  const I high = store_i8(q + kLanes, mul(b, inverse));
  *d = scale;
  *offset = -128 * sum_of(low, high);
}

static void prepare(const PrepareArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    RowReader r{a.x + row * a.width, a.width, a.norm.weight != nullptr, {}};
    if (r.normed) r.norm = measure(a.norm, r.x, a.width);
    for (int64_t t = 0; t < a.tiles; ++t) {
      const F low = RowReader::at(r, t * kTile), high = RowReader::at(r, t * kTile + kLanes);
      if (a.codec == Codec::q8_0) {
        const int64_t block = row * a.tiles + t;
        quantise_block(low, high, a.to.q + block * kTile, a.to.d + block, a.to.offset + block);
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
