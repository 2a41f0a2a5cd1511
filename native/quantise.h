// Activations as 8-bit tiles of 32: the one form that every quantised kind of weights meets. The scale is
// that of the tile, of its block of 256 where the kind sums blocks, of the row where its format rounds one.

#pragma once

#include "kernels.h"
#include "unpack.h"

namespace {

using headrace::Operand;

// d = amax / 127, q = nearest(x * (127 / amax)). Where d is zero (with denormals flushed, an amax
// below 1.5e-36) the block is zero; a NaN or infinity makes d one, and so the sum. `block` counts
// through the tiles of all rows; amax is of all that share the scale.
HEADRACE_INLINE void quantise_block(F a, F b, float amax, const CodecFacts& f, int64_t block,
                                    const Operand& to) {
  const float scale = amax / 127.0f;
  const F inverse = splat(scale == 0.0f ? 0.0f : 127.0f / amax);
  int8_t* q = to.q + block * kTile;
  int32_t sums[2];
  sums[0] = sum_of(store_i8(q, mul(a, inverse)));
  sums[1] = sum_of(store_i8(q + kLanes, mul(b, inverse)));
  if (f.groups == 1) sums[0] += sums[1];
  to.d[block] = scale;
  for (int64_t g = 0; g < f.groups; ++g) {
    to.start[block * f.groups + g] = -level_zero(f) * sums[g];
    if (headrace::sums_blocks(f)) {
      to.whole_sums[block * f.groups + g] = static_cast<int16_t>(sums[g]);  // 32 * 127 at most
    } else {
      to.sums[block * f.groups + g] = scale * static_cast<float>(sums[g]);
    }
  }
}

}  // namespace
