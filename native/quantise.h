// Activations as 8-bit tiles of 32: the one form that every quantised kind of weights meets. The
// scale is that of the tile, of its block of 256 where the kind sums blocks, of the row where its
// format rounds one.

#pragma once

#include "kernels.h"
#include "unpack.h"

namespace {

using headrace::Operand;

// What kTilesAtOnce tiles need that are rounded at once, each for itself; a level whose tiles are
// two registers has an overload for as many, which takes the lanes of all together.

// Largest magnitude of each tile's 32 values; NaN when one is NaN.
template <int N>
HEADRACE_INLINE void largest_magnitudes(const F (&low)[N], const F (&high)[N], float (&most)[N]) {
HEADRACE_UNROLL
  for (int i = 0; i < N; ++i) most[i] = largest_magnitude(low[i], high[i]);
}

// Sum of each tile's 32 whole numbers.
template <int N>
HEADRACE_INLINE void tile_sums(const I (&low)[N], const I (&high)[N], int32_t (&sums)[N]) {
HEADRACE_UNROLL
  for (int i = 0; i < N; ++i) sums[i] = sum_of(low[i]) + sum_of(high[i]);
}

// d = amax / 127, q = nearest(x * (127 / amax)), of N tiles. Where d is zero (with denormals
// flushed, an amax below 1.5e-36) the tile is zero; a NaN or infinity makes d one, and so the sum.
// `first` counts through the tiles of all rows; amax is of all that share the scale.
template <int N>
HEADRACE_INLINE void quantise(const F (&low)[N], const F (&high)[N], const float (&amax)[N],
                              const CodecFacts& f, int64_t first, const Operand& to) {
  float scale[N], inverse[N];
  for (int i = 0; i < N; ++i) {
    scale[i] = amax[i] / 127.0f;
    const float quotient = 127.0f / amax[i];  // taken or not: a loop without branches
    inverse[i] = scale[i] == 0.0f ? 0.0f : quotient;
  }
  I a[N], b[N];
HEADRACE_UNROLL
  for (int i = 0; i < N; ++i) {
    int8_t* q = to.q + (first + i) * kTile;
    a[i] = store_i8(q, mul(low[i], splat(inverse[i])));
    b[i] = store_i8(q + kLanes, mul(high[i], splat(inverse[i])));
  }
  for (int i = 0; i < N; ++i) to.d[first + i] = scale[i];
  const int32_t zero = level_zero(f);
  if (f.groups == 1) {
    int32_t sums[N];
    tile_sums(a, b, sums);
    for (int i = 0; i < N; ++i) to.start[first + i] = -zero * sums[i];
    if (headrace::sums_blocks(f)) {  // 32 * 127 at most
      for (int i = 0; i < N; ++i) to.whole_sums[first + i] = static_cast<int16_t>(sums[i]);
    } else {
      for (int i = 0; i < N; ++i) to.sums[first + i] = scale[i] * static_cast<float>(sums[i]);
    }
    return;
  }
  for (int i = 0; i < N; ++i) {
    const int32_t sums[2] = {sum_of(a[i]), sum_of(b[i])};
    for (int g = 0; g < 2; ++g) {
      to.start[(first + i) * 2 + g] = -zero * sums[g];
      to.sums[(first + i) * 2 + g] = scale[i] * static_cast<float>(sums[g]);
    }
  }
}

}  // namespace
