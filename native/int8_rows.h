// What products of quantised weights share: rows of activations, a dot product of bytes, what a pass over
// panels asks for.

#pragma once

#include "kernels.h"
#include "unpack.h"

namespace {

using headrace::Operand;

// Rows of quantised activations, from a tile on.
struct Int8Rows {
  const int8_t* q;
  const float* d;
  const int32_t* start;
  const float* sums;
  const int16_t* whole_sums;  // of kinds that sum blocks, in the place of `sums`
  int64_t tiles;              // from one row to the next

  HEADRACE_INLINE Int8Rows at(const Operand& x, int64_t tiles, int64_t groups, int64_t row,
                              int64_t tile) {
    const int64_t at = row * tiles + tile;
    return {x.q + at * kTile,
            x.d + at,
            x.start + at * groups,
            x.sums == nullptr ? nullptr : x.sums + at * groups,
            x.whole_sums == nullptr ? nullptr : x.whole_sums + at * groups,
            tiles};
  }
};

template <bool kWide>
HEADRACE_INLINE ISum dot(ISum sum, const Quads& w, const int8_t* x) {
  return kWide ? dot4_wide(sum, w, x) : dot4(sum, w, x);
}

// What a pass over panels asks for. One panel: kPrefetchBytes ahead of itself, up to `end`. Two: the
// `bytes` from `next` on, the pass's share of the two after them.
struct Ahead {
  const uint8_t* end;
  const uint8_t* next;
  int64_t bytes;
};

}  // namespace
