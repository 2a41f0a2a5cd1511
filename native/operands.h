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

// N tiles of a row from the t-th on.
template <int N>
HEADRACE_INLINE void read_tiles(const RowReader& r, int64_t t, F (&low)[N], F (&high)[N]) {
HEADRACE_UNROLL
  for (int i = 0; i < N; ++i) {
    low[i] = RowReader::at(r, (t + i) * kTile);
    high[i] = RowReader::at(r, (t + i) * kTile + kLanes);
  }
}

// N tiles of a row from the t-th on, rounded by a scale of each or, where there is one, by that of
// the row. `first` counts through the tiles of all rows.
template <int N>
HEADRACE_INLINE void quantise_tiles(const RowReader& r, int64_t t, const float* of_row,
                                    const CodecFacts& f, int64_t first, const Operand& to) {
  F low[N], high[N];
  float most[N];
  read_tiles(r, t, low, high);
  if (of_row == nullptr) {
    largest_magnitudes(low, high, most);
  } else {
    for (int i = 0; i < N; ++i) most[i] = *of_row;
  }
  quantise(low, high, most, f, first + t, to);
}

// The tiles of one block of 256 from the t-th of a row on, rounded by one scale.
HEADRACE_INLINE void quantise_block(const RowReader& r, int64_t t, const CodecFacts& f,
                                    int64_t first, const Operand& to) {
  constexpr int N = kTilesAtOnce, kParts = headrace::kBlockOfTiles / N;
  F low[kParts][N], high[kParts][N];
  float most = 0, each[N];
HEADRACE_UNROLL
  for (int part = 0; part < kParts; ++part) {
    read_tiles(r, t + part * N, low[part], high[part]);
    largest_magnitudes(low[part], high[part], each);
    for (int i = 0; i < N; ++i) most = larger(most, each[i]);
  }
  for (int i = 0; i < N; ++i) each[i] = most;
HEADRACE_UNROLL
  for (int part = 0; part < kParts; ++part) {
    quantise(low[part], high[part], each, f, first + t + part * N, to);
  }
}

static void prepare(const PrepareArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    RowReader r{a.x + row * a.stride, a.width, a.norm.weight != nullptr, {}};
    if (r.normed) r.norm = measure(a.norm, r.x, a.width);
    const CodecFacts& f = headrace::facts(a.codec);
    const int64_t first = row * a.tiles;
    if (headrace::sums_blocks(f)) {
      for (int64_t t = 0; t < a.tiles; t += headrace::kBlockOfTiles) {
        quantise_block(r, t, f, first, a.to);
      }
      continue;
    }
    if (headrace::is_quantised(a.codec)) {
      const float most = f.whole_row ? largest_of_row(r, a.tiles) : 0.0f;
      const float* of_row = f.whole_row ? &most : nullptr;
      int64_t t = 0;
      for (; t + kTilesAtOnce <= a.tiles; t += kTilesAtOnce) {
        quantise_tiles<kTilesAtOnce>(r, t, of_row, f, first, a.to);
      }
      for (; t < a.tiles; ++t) quantise_tiles<1>(r, t, of_row, f, first, a.to);
      continue;
    }
    for (int64_t t = 0; t < a.tiles; ++t) {
      const F low = RowReader::at(r, t * kTile), high = RowReader::at(r, t * kTile + kLanes);
      if (a.to.half != nullptr) {
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
