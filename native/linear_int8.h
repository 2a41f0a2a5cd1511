// y = W x for quantised weights: an exact integer sum for each group of a tile, then its scale.
//
// Operands go from the packed block into registers for some rows at a time (stream_tiles, one for
// each kind), or a block of k is unpacked once and every block of rows runs over it (unpacked_sums,
// one for each number of groups, with and without mins). streams_rows has which. Both build a row's
// sum in one order.

#pragma once

#include "int8_rows.h"
#include "linear_blocks.h"
#include "row_blocks.h"
#include "unpack.h"

namespace {

using headrace::LinearArgs;

// Tiles of a k block of many rows: 16 x 2 panels x 576 to 768 bytes = 18 to 24 KiB, in the
// first-level cache. A multiple of the 8 tiles of a block of 256.
constexpr int64_t kUnpackedTiles = 16;

// Whether few rows of a kind meet two panels side by side: where more rows than a weight has bits
// multiply it, what binds is no longer memory but the loads of the rows, one for each dot product,
// which two panels share. Operands are then made for kDotBlockRows rows at a time instead of
// kDotStreamRows, which those of a code book do not pay.
HEADRACE_INLINE bool panels_pair(Codec codec, int64_t rows) {
  const CodecFacts& f = facts(codec);
  return kBlockPanels > 1 && f.groups > 0 && f.book.length == 0 &&
         rows > headrace::tile_bytes(f) / (2 * kTile);
}

// Rows that meet one panel together while it streams from memory.
HEADRACE_INLINE int64_t rows_streamed(Codec codec) {
  return headrace::is_quantised(codec) ? kDotStreamRows : kStreamRows;
}

// Whether operands of so many rows are made in registers, for some rows at a time: as long as that
// costs less than an unpacked copy, whose making and reading the first rows wait for. With one
// panel that is for two passes of rows, or one where a byte takes a code book or two planes. With
// two, seen at avx512, up to 48 rows, fewer where scales of two groups, or minimums, leave fewer
// instructions that nothing else waits for. Where shifts and masks run beside dot products
// (`beside_dots`), any number of rows of one plane of at most four bits, of which a copy is twice
// as long or more.
HEADRACE_INLINE bool streams_rows(Codec codec, int64_t rows, bool beside_dots) {
  const CodecFacts& f = facts(codec);
  if (!panels_pair(codec, rows)) {
    return rows <= (f.book.length > 0 || f.high_bits > 0 ? 1 : 2) * rows_streamed(codec);
  }
  if (f.groups == 1 && f.low_bits <= 4 && f.high_bits == 0 && beside_dots) return true;
  return rows <= (f.groups == 1 && !f.mins ? 48 : 24);
}

// Rows that go over weights together, unpacked or not: the more, the less unpacking and reading. At
// most what a pass has; with wide rows as many as leave half of a second-level cache to all else;
// but 192 are worth unpacking for.
constexpr int64_t kMostInt8Rows = 512, kLeastInt8Rows = 192, kInt8RowsBytes = 512 << 10;

HEADRACE_INLINE int64_t most_int8_rows(int64_t tiles) {
  const int64_t fit = kInt8RowsBytes / (tiles * kTile);
  return fit < kLeastInt8Rows ? kLeastInt8Rows : fit < kMostInt8Rows ? fit : kMostInt8Rows;
}

// sums[i][j] of MR rows and NP panels, `panel` bytes apart.
template <int MR, int NP, Codec C>
static void stream_tiles(const Int8Rows& x, const uint8_t* block, int64_t panel, int64_t blocks,
                         const Ahead& upcoming, float* sums) {
  using P = Packed<C>;
  constexpr int G = P::kGroups, kOfGroup = kFours / G, kDots = dots_in_16(C);
  F total[MR][NP];
HEADRACE_UNROLL
  for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) total[i][j] = zero();
  }
  const int8_t* q = x.q;
  const float* d = x.d;
  const int32_t* start = x.start;
  const float* msum = x.sums;
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
    for (int t = 0; t < P::kTiles; ++t, tile += P::kTileBytes) {
      for (int64_t at = 0; NP == 1 && at < P::kTileBytes; at += 64) prefetch(tile + ahead + at);
      if constexpr (NP > 1) Prefetcher::advance<NP>(prefetcher);
      decltype(P::open_tile(block, tile, t)) w_tile[NP];
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) w_tile[j] = P::open_tile(block + j * panel, tile + j * panel, t);
      unrolled<0, G>([&]<int g>() __attribute__((always_inline)) {
        ISum s[MR][NP];
HEADRACE_UNROLL
        for (int i = 0; i < MR; ++i) {
          const ISum from = isum(P::kStarts ? start[i * tiles * G + g] : 0);
HEADRACE_UNROLL
          for (int j = 0; j < NP; ++j) s[i][j] = from;
        }
        add_dots<kDots, g * kOfGroup, (g + 1) * kOfGroup>(
            s, q, tiles * kTile,
            [&]<int kFour>(int j) { return quads(P::template four<kFour>(w_tile[j])); });
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) {
          const F scale = P::template scale<g>(p[j], w_tile[j], block + j * panel, t * G + g);
HEADRACE_UNROLL
          for (int i = 0; i < MR; ++i) {
            total[i][j] = fma(to_float(s[i][j]), mul(scale, splat(d[i * tiles])), total[i][j]);
          }
        }
        if constexpr (P::kMins) {
HEADRACE_UNROLL
          for (int j = 0; j < NP; ++j) {
            const F min = P::min(p[j], block + j * panel, t * G + g);
HEADRACE_UNROLL
            for (int i = 0; i < MR; ++i) {
              total[i][j] = fnma(min, splat(msum[i * tiles * G + g]), total[i][j]);
            }
          }
        }
      });
      q += kTile;
      d += 1;
      start += G;
      msum += G;
    }
  }
HEADRACE_UNROLL
  for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) store(sums + (i * kBlockPanels + j) * kLanes, total[i][j]);
  }
}

// sums[i][j] of MR rows and NP panels, `panel` tiles apart, over `tiles` tiles. Where no sum starts
// at anything but zero (kStarts), a kernel that knows it has registers left for the addresses of
// the rest.
template <int MR, int NP, int G, bool kMins, int kDots, bool kStarts>
static void unpacked_sums(const Int8Rows& x, const UnpackedTile<G, kMins>* w, int64_t panel,
                          int64_t tiles, const NextBlock& upcoming, float* sums) {
  constexpr int kOfGroup = kFours / G;
  F total[MR][NP];
HEADRACE_UNROLL
  for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) total[i][j] = load(sums + (i * kBlockPanels + j) * kLanes);
  }
  const int64_t step = x.tiles;
  const int8_t* q = x.q;
  const float* d = x.d;
  const int32_t* start = x.start;
  const float* msum = x.sums;
  Prefetcher prefetcher = Prefetcher::of<NP>(upcoming, tiles, sums);
  for (int64_t t = 0; t < tiles; ++t, ++w) {
    Prefetcher::advance<NP>(prefetcher);
HEADRACE_UNROLL
    for (int g = 0; g < G; ++g) {
      ISum s[MR][NP];
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) {
        const ISum from = isum(kStarts ? start[i * step * G + g] : 0);
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) s[i][j] = from;
      }
      add_dots<kDots, 0, kOfGroup>(s, q + g * kOfGroup * 4, step * kTile, [&]<int kFour>(int j) {
        return quads(load_bytes(w[j * panel].bytes[g * kOfGroup + kFour]));
      });
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) {
        const F scale = load(w[j * panel].factors[g]);
HEADRACE_UNROLL
        for (int i = 0; i < MR; ++i) {
          total[i][j] = fma(to_float(s[i][j]), mul(scale, splat(d[i * step])), total[i][j]);
        }
      }
      if constexpr (kMins) {
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) {
          const F min = load(w[j * panel].factors[G + g]);
HEADRACE_UNROLL
          for (int i = 0; i < MR; ++i) {
            total[i][j] = fnma(min, splat(msum[i * step * G + g]), total[i][j]);
          }
        }
      }
    }
    q += kTile;
    d += 1;
    start += G;
    msum += G;
  }
HEADRACE_UNROLL
  for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) store(sums + (i * kBlockPanels + j) * kLanes, total[i][j]);
  }
}

// Some rows: `count` panels front to back. `upcoming`: what these rows prefetch.
template <Codec C>
static void stream_int8(const LinearArgs& a, int64_t panel, int64_t count, int64_t row,
                        int64_t rows, const Ahead& upcoming, float* sums) {
  using P = Packed<C>;
  const Int8Rows x = Int8Rows::at(a.x, a.weight.tiles, P::kGroups, row, 0);
  const uint8_t* w = a.weight.panels + panel * a.weight.panel_bytes;
  const auto stream = [&]<int MR, int NP>() {
    constexpr auto of_kind = [] {
      if constexpr (P::kBlocks) {
        return stream_blocks<MR, NP, C>;
      } else {
        return stream_tiles<MR, NP, C>;
      }
    }();
    of_kind(x, w, a.weight.panel_bytes, a.weight.tiles / P::kTiles, upcoming, sums);
  };
  if (kBlockPanels > 1 && count == kBlockPanels) {
    with_rows<kDotBlockRows>(rows, [&]<int MR>() {
      stream.template operator()<MR, kBlockPanels>();
    });
  } else {
    with_rows<kDotStreamRows>(rows, [&]<int MR>() { stream.template operator()<MR, 1>(); });
  }
}

// One block of k over all rows: `w` is of tiles or of blocks, as the kind sums them.
template <int G, bool kMins, int kDots, bool kStarts, class Unpacked>
static void unpacked_rows(const LinearArgs& a, const Unpacked* w, int64_t panel, int64_t count,
                          int64_t row, int64_t rows, int64_t tile, int64_t tiles,
                          const NextBlock& ahead, float* all_sums) {
  constexpr int64_t kPanel = kUnpackedTiles / Unpacked::kTiles;
  over_rows(a, panel, count, row, rows, kDotBlockRows, tile == 0, tile + tiles == a.weight.tiles,
            ahead, all_sums, [&](int64_t i, int64_t n, const NextBlock& upcoming, float* sums) {
    const Int8Rows x = Int8Rows::at(a.x, a.weight.tiles, G, row + i, tile);
    with_rows<kDotBlockRows>(n, [&]<int MR>() {
      with_panels(count, [&]<int NP>() {
        unpacked_sums<MR, NP, G, kMins, kDots, kStarts>(x, w, kPanel, tiles / Unpacked::kTiles,
                                                        upcoming, sums);
      });
    });
  });
}

// Bytes of the unpacked tiles of a k block: the largest kind, two groups with mins.
constexpr int64_t kUnpackedBytes = kBlockPanels * kUnpackedTiles * sizeof(UnpackedTile<2, true>);
static_assert(sizeof(UnpackedBlock) <= 8 * sizeof(UnpackedTile<2, true>));

// Rows over an unpacked copy: blocks of k, and of rows within each.
template <Codec C>
static void block_int8(const LinearArgs& a, int64_t panel, int64_t count, int64_t row, int64_t rows,
                       uint8_t* unpacked, float* sums) {
  using P = Packed<C>;
  using Unpacked = UnpackedOf<P>;
  Unpacked* w = reinterpret_cast<Unpacked*>(unpacked);
  const int64_t all = a.weight.tiles, stride = a.weight.panel_bytes;
  for (int64_t tile = 0; tile < all; tile += kUnpackedTiles) {
    const int64_t tiles = all - tile < kUnpackedTiles ? all - tile : kUnpackedTiles;
    const uint8_t* from = a.weight.panels + panel * stride + tile / P::kTiles * P::kBlockBytes;
    for (int64_t j = 0; j < count; ++j) {
      unpack<C>(from + j * stride, tiles / P::kTiles, w + j * (kUnpackedTiles / Unpacked::kTiles));
    }
    const bool ends = tile + tiles == all;
    const int64_t bytes = tiles / P::kTiles * P::kBlockBytes;
    const NextBlock ahead = {
        ends ? a.weight.panels + (panel + count) * stride : from + bytes, stride, bytes};
    constexpr int kDots = dots_in_16(C);
    unpacked_rows<P::kGroups, P::kMins, kDots, P::kStarts>(
        a, w, panel, count, row, rows, tile, tiles, ahead, sums);
  }
}

}  // namespace
