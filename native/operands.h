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

// The larger of two magnitudes; NaN where one is.
HEADRACE_INLINE float larger(float most, float amax) {
  return amax > most || amax != amax ? amax : most;
}

// The largest magnitude of a row; NaN where one is among its values.
HEADRACE_INLINE float largest_of_row(const RowReader& r, int64_t tiles) {
  float most = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    most = larger(most, largest_magnitude(RowReader::at(r, t * kTile),
                                          RowReader::at(r, t * kTile + kLanes)));
  }
  return most;
}

// The tiles of one block of 256 from the t-th of the row on, rounded by one scale.
template <int64_t kTiles>
HEADRACE_INLINE void quantise_tiles(const RowReader& r, int64_t t, const CodecFacts& f, int64_t first,
                                    const Operand& to) {
  F low[kTiles], high[kTiles];
  float most = 0;
HEADRACE_UNROLL
  for (int64_t i = 0; i < kTiles; ++i) {
    low[i] = RowReader::at(r, (t + i) * kTile);
    high[i] = RowReader::at(r, (t + i) * kTile + kLanes);
    most = larger(most, largest_magnitude(low[i], high[i]));
  }
HEADRACE_UNROLL
  for (int64_t i = 0; i < kTiles; ++i) quantise_block(low[i], high[i], most, f, first + i, to);
}

static void prepare(const PrepareArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    RowReader r{a.x + row * a.stride, a.width, a.norm.weight != nullptr, {}};
    if (r.normed) r.norm = measure(a.norm, r.x, a.width);
    const CodecFacts& f = headrace::facts(a.codec);
    if (headrace::sums_blocks(f)) {
      for (int64_t t = 0; t < a.tiles; t += headrace::kBlockOfTiles) {
        quantise_tiles<headrace::kBlockOfTiles>(r, t, f, row * a.tiles + t, a.to);
      }
      continue;
    }
    const bool whole_row = f.whole_row;
    const float of_row = whole_row ? largest_of_row(r, a.tiles) : 0.0f;
    for (int64_t t = 0; t < a.tiles; ++t) {
      const F low = RowReader::at(r, t * kTile), high = RowReader::at(r, t * kTile + kLanes);
      if (headrace::is_quantised(a.codec)) {
        quantise_block(low, high, whole_row ? of_row : largest_magnitude(low, high),
                       f, row * a.tiles + t, a.to);
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
