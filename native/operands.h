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

static void prepare(const PrepareArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    RowReader r{a.x + row * a.stride, a.width, a.norm.weight != nullptr, {}};
    if (r.normed) r.norm = measure(a.norm, r.x, a.width);
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
        const bool round = headrace::rounds_activations(a.codec);
        store(to, round ? round_bf16(low) : low);
        store(to + kLanes, round ? round_bf16(high) : high);
      }
    }
  }
}

}  // namespace
