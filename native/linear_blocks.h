// Sums of the kinds that sum blocks (codecs.h): what a tile adds is a whole number, and a block of
// 256 meets floats once. From packed blocks (stream_blocks) and from unpacked ones (unpacked_sums),
// in one order.
//
// A product of a tile's sum and its scale is below 2^24 (the most is IQ4_XS's, 32 * 127 * 127 *
// 32), so it is exact in f32; their sum rounds only where it passes 2^24. Mins sum to at most 8 *
// 63 * 32 * 127 < 2^21.

#pragma once

#include "int8_rows.h"
#include "kernels.h"
#include "row_blocks.h"
#include "unpack.h"

namespace {

// What the sums of a block meet: scales, and whole mins as UnpackedBlock has them.
struct BlockFactors {
  F d, m;
  const uint8_t* mins;
};

// sums += ((part * d) - m * (the sum of whole mins times those of x)) * (the scale of x), of one
// block.
template <int MR, int NP, bool kMins>
HEADRACE_INLINE void add_block(const F (&part)[MR][NP], const BlockFactors (&w)[NP], const float* d,
                               const int16_t* whole_sums, int64_t tiles, float* sums) {
HEADRACE_UNROLL
  for (int j = 0; j < NP; ++j) {
    F scaled[MR];
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) scaled[i] = mul(part[i][j], w[j].d);
    if constexpr (kMins) {
      ISum least[MR];
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) least[i] = isum(0);
HEADRACE_UNROLL
      for (int p = 0; p < headrace::kBlockOfTiles / 2; ++p) {
        const Pairs pairs = load_u8_pairs(w[j].mins + p * 2 * kLanes);
HEADRACE_UNROLL
        for (int i = 0; i < MR; ++i) {
          least[i] = dot2(least[i], pairs, whole_sums + i * tiles + 2 * p);
        }
      }
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) scaled[i] = fnma(to_float(least[i]), w[j].m, scaled[i]);
    }
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) {
      float* const sum = sums + (i * kBlockPanels + j) * kLanes;
      store(sum, fma(scaled[i], splat(d[i * tiles]), load(sum)));
    }
  }
}

// As stream_tiles, of kinds that sum blocks; sums begin at zero.
template <int MR, int NP, Codec C>
static void stream_blocks(const Int8Rows& x, const uint8_t* block, int64_t panel, int64_t blocks,
                          const Ahead& upcoming, float* sums) {
  using P = Packed<C>;
  static_assert(P::kGroups == 1 && P::kTiles == headrace::kBlockOfTiles);
  constexpr int kDots = dots_in_16(C);
  const int8_t* q = x.q;
  const float* d = x.d;
  const int32_t* start = x.start;
  const int16_t* whole_sums = x.whole_sums;
  const int64_t tiles = x.tiles;
  Prefetcher prefetcher{};
  if constexpr (NP > 1) prefetcher = Prefetcher::of<NP>(upcoming.next, blocks * P::kTiles, nullptr);
  for (int64_t b = 0; b < blocks; ++b, block += P::kBlockBytes) {
    P p[NP];
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) p[j] = P::open(block + j * panel);
    const uint8_t* tile = block + P::kHeaderBytes;
    const int64_t ahead = NP == 1 ? prefetch_distance(block, upcoming.end) : 0;
    for (int64_t at = 0; NP == 1 && at < P::kHeaderBytes; at += 64) prefetch(block + ahead + at);
    F part[MR][NP];
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) part[i][j] = zero();
    }
    for (int t = 0; t < P::kTiles; ++t, tile += P::kTileBytes) {
      for (int64_t at = 0; NP == 1 && at < P::kTileBytes; at += 64) prefetch(tile + ahead + at);
      if constexpr (NP > 1) Prefetcher::advance<NP>(prefetcher);
      typename P::Tile w_tile[NP];
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) w_tile[j] = P::open_tile(block + j * panel, tile + j * panel, t);
      ISum s[MR][NP];
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) {
        const ISum from = isum(P::kStarts ? start[i * tiles] : 0);
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) s[i][j] = from;
      }
      add_dots<kDots, 0, kFours>(s, q, tiles * kTile, [&]<int kFour>(int j) {
        return quads(P::template four<kFour>(w_tile[j]));
      });
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) {
        const F scale = P::template scale<0>(p[j], w_tile[j], block + j * panel, t);
HEADRACE_UNROLL
        for (int i = 0; i < MR; ++i) part[i][j] = fma(to_float(s[i][j]), scale, part[i][j]);
      }
      q += kTile;
      start += 1;
    }
    BlockFactors factors[NP];
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) factors[j] = {p[j].d, p[j].m, P::whole_mins(block + j * panel)};
    add_block<MR, NP, P::kMins>(part, factors, d, whole_sums, tiles, sums);
    d += P::kTiles;
    whole_sums += P::kTiles;
  }
}

// As that of tiles, of `blocks` blocks of kinds that sum them.
template <int MR, int NP, int, bool kMins, int kDots, bool kStarts>
static void unpacked_sums(const Int8Rows& x, const UnpackedBlock* w, int64_t panel, int64_t blocks,
                          const NextBlock& upcoming, float* sums) {
  constexpr int64_t kTiles = headrace::kBlockOfTiles;
  const int64_t step = x.tiles;
  const int8_t* q = x.q;
  const float* d = x.d;
  const int32_t* start = x.start;
  const int16_t* whole_sums = x.whole_sums;
  Prefetcher prefetcher = Prefetcher::of<NP>(upcoming, blocks * kTiles, sums);
  for (int64_t b = 0; b < blocks; ++b, ++w) {
    F part[MR][NP];
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) part[i][j] = zero();
    }
    for (int64_t t = 0; t < kTiles; ++t) {
      Prefetcher::advance<NP>(prefetcher);
      ISum s[MR][NP];
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) {
        const ISum from = isum(kStarts ? start[i * step] : 0);
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) s[i][j] = from;
      }
      add_dots<kDots, 0, kFours>(s, q, step * kTile, [&]<int kFour>(int j) {
        return quads(load_bytes(w[j * panel].tiles[t].bytes[kFour]));
      });
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) {
        const F scale = load(w[j * panel].tiles[t].factors[0]);
HEADRACE_UNROLL
        for (int i = 0; i < MR; ++i) part[i][j] = fma(to_float(s[i][j]), scale, part[i][j]);
      }
      q += kTile;
      start += 1;
    }
    BlockFactors factors[NP];
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) {
      const UnpackedBlock& of = w[j * panel];
      factors[j] = {load(of.d), load(of.m), of.mins};
    }
    add_block<MR, NP, kMins>(part, factors, d, whole_sums, step, sums);
    d += kTiles;
    whole_sums += kTiles;
  }
}

}  // namespace
