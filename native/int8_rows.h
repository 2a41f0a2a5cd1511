// What products of quantised weights share: rows of activations, a dot product of bytes, what a
// pass over panels prefetches.

#pragma once

#include "kernels.h"
#include "row_blocks.h"
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

// In the place of a number of dot products whose sums are added in 16 bits, where there are none:
// of wide bytes, and of those of which each is widened as it is.
constexpr int kWideDots = 0, kWidenedDots = 1;

// Dot products of a kind, of a group at most, whose sums fit 16 bits at a level that adds them
// there: each adds two products of a byte and an activation. Wide bytes are those only of which a
// level multiplies otherwise.
constexpr int dots_in_16(Codec codec) {
  const CodecFacts& f = headrace::facts(codec);
  if (kWideDiffers && headrace::has_wide_bytes(f)) return kWideDots;
  if (!kSumsIn16) return kWidenedDots;
  int dots = kFours / static_cast<int>(f.groups);
  while (dots > 1 && dots * 2 * headrace::kQuantBound * f.most > headrace::kHighestSum) dots /= 2;
  return dots;
}

// s[i][j] += the dot products [kFirst, kEnd) of a tile, kDots at a time as dots_in_16 has it:
// quad<k>(j) of panel j with row i of x.
template <int kDots, int kFirst, int kEnd, int MR, int NP, class Quad>
HEADRACE_INLINE void add_dots(ISum (&s)[MR][NP], const int8_t* x, int64_t row_bytes,
                              const Quad& quad) {
  constexpr int kTogether = kDots > kWidenedDots ? kDots : kEnd - kFirst;
  unrolled<0, (kEnd - kFirst) / kTogether>([&]<int kPart>() __attribute__((always_inline)) {
    [[maybe_unused]] Quads sums[MR][NP];
    unrolled<0, kTogether>([&]<int kDot>() __attribute__((always_inline)) {
      constexpr int kFour = kFirst + kPart * kTogether + kDot;
      Quads w[NP];
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) w[j] = quad.template operator()<kFour>(j);
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) {
        const int8_t* of_row = x + i * row_bytes + kFour * 4;
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) {
          if constexpr (kDots > kWidenedDots) {
            const Quads product = products16(w[j], of_row);
            sums[i][j] = kDot == 0 ? product : add16(sums[i][j], product);
          } else {
            s[i][j] = dot<kDots == kWideDots>(s[i][j], w[j], of_row);
          }
        }
      }
    });
    if constexpr (kDots > kWidenedDots) {
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) s[i][j] = widen16(s[i][j], sums[i][j]);
      }
    }
  });
}

// What some rows prefetch as they meet panels. One panel: kPrefetchBytes ahead of itself, up to
// `end`. Two: `next`, their share of the two after them, and their outputs.
struct Ahead {
  const uint8_t* end;
  NextBlock next;
};

}  // namespace
