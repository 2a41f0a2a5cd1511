// y = W x for rows of x and panels of 16 outputs, over every codec.
//
// A call takes some panels and some rows. Few rows, or any number where that costs nothing: panels
// stream from memory, and operands are made in registers. Others: k is cut into blocks whose
// weights fit in the first-level cache, unpacked or decoded to f32 once, and every block of rows
// runs over them. The order in which a sum is built is the same in both, so the result is.

#pragma once

#include "chains.h"
#include "kernels.h"
#include "linear_int8.h"
#include "linear_scaled.h"
#include "row_blocks.h"

namespace {

using headrace::is_quantised;
using headrace::LinearArgs;

// Tiles of a k block: 4 x 32 k x 32 outputs x 4 bytes = 16 KiB of weights beside the sums and the
// rows in a 32 or 48 KiB first-level cache.
constexpr int64_t kBlockTiles = 4;

struct LinearScratch {
  alignas(64) float sums[kMostInt8Rows * kBlockPanels * kLanes];
  union {
    alignas(64) float weights[kBlockPanels * kBlockTiles * kTile * kLanes];
    alignas(64) uint8_t unpacked[kUnpackedBytes];
  };
};

// sums[i][j] of MR rows and NP panels over `tiles` tiles. `end`, where they stream: that of all
// weights of the call; elsewhere `upcoming` is prefetched.
template <int MR, int NP, class Pairs, bool Stream>
static void float_tiles(const float* x, int64_t stride, const typename Pairs::T* w, int64_t panel,
                        int64_t tiles, const uint8_t* end, const NextBlock& upcoming, float* sums) {
  using C = Chains<MR, NP, Pairs>;
  constexpr int64_t kPairBytes = Pairs::kPair * sizeof(typename Pairs::T);
  F total[MR][NP];
HEADRACE_UNROLL
  for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) total[i][j] = load(sums + (i * kBlockPanels + j) * kLanes);
  }
  Prefetcher prefetcher = Prefetcher::of<NP>(upcoming, tiles, sums);
  for (int64_t t = 0; t < tiles; ++t) {
    if constexpr (!Stream) Prefetcher::advance<NP>(prefetcher);
    C c;
    C::clear(c);
    const int64_t ahead = Stream ? prefetch_distance(w, end) : 0;
    for (int p = 0; p < kTile / 2; ++p) {
      for (int64_t b = 0; Stream && b < kPairBytes; b += 64) {
        prefetch(reinterpret_cast<const char*>(w) + ahead + b);
      }
      C::pair(c, x + 2 * p, stride, w, panel);
      w += Pairs::kPair;
    }
    x += kTile;
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) total[i][j] = add(total[i][j], add(c.e[i][j], c.o[i][j]));
    }
  }
HEADRACE_UNROLL
  for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) store(sums + (i * kBlockPanels + j) * kLanes, total[i][j]);
  }
}

template <class Pairs>
HEADRACE_INLINE const typename Pairs::T* panel_at(const LinearArgs& a, int64_t panel) {
  return reinterpret_cast<const typename Pairs::T*>(a.weight.panels + panel * a.weight.panel_bytes);
}

// Few rows: each panel is read once, front to back, and prefetches the next ones up to `reach`.
template <class Pairs>
static void stream_float(const LinearArgs& a, int64_t panel, int64_t reach, int64_t row,
                         int64_t rows, float* sums) {
  const float* x = a.x.values + row * a.x.stride;
  with_rows<kStreamRows>(rows, [&]<int MR>() {
    float_tiles<MR, 1, Pairs, true>(x, a.x.stride, panel_at<Pairs>(a, panel), 0, a.weight.tiles,
                                    a.weight.panels + reach * a.weight.panel_bytes, {}, sums);
  });
}

// Weights of `tiles` tiles of `count` panels as f32, one panel after another.
template <class Pairs>
static void decode_block(const LinearArgs& a, int64_t panel, int64_t count, int64_t tile,
                         int64_t tiles, float* to) {
  for (int64_t j = 0; j < count; ++j) {
    const typename Pairs::T* w = panel_at<Pairs>(a, panel + j) + tile * (kTile / 2) * Pairs::kPair;
    for (int64_t p = 0; p < tiles * kTile / 2; ++p) {
      F e, o;
      Pairs::read(w + p * Pairs::kPair, e, o);
      store(to, e);
      store(to + kLanes, o);
      to += 2 * kLanes;
    }
  }
}

// Many rows: blocks of k, and of rows within each.
template <class Pairs>
static void block_float(const LinearArgs& a, int64_t panel, int64_t count, int64_t row,
                        int64_t rows, LinearScratch* s) {
  constexpr bool kDecoded = sizeof(typename Pairs::T) == sizeof(float);
  constexpr int64_t kTileElements = kTile * kLanes;
  constexpr int64_t kTileBytes = kTileElements * sizeof(typename Pairs::T);
  for (int64_t tile = 0; tile < a.weight.tiles; tile += kBlockTiles) {
    const int64_t left = a.weight.tiles - tile, tiles = left < kBlockTiles ? left : kBlockTiles;
    const float* w = s->weights;
    int64_t next = tiles * kTile * kLanes;
    if constexpr (kDecoded) {
      w = panel_at<Pairs>(a, panel) + tile * kTile * kLanes;
      next = a.weight.panel_bytes / static_cast<int64_t>(sizeof(float));
    } else {
      decode_block<Pairs>(a, panel, count, tile, tiles, s->weights);
    }
    const bool ends = tile + tiles == a.weight.tiles;
    const NextBlock ahead = {
        reinterpret_cast<const uint8_t*>(panel_at<Pairs>(a, ends ? panel + count : panel) +
                                         (ends ? 0 : tile + tiles) * kTileElements),
        a.weight.panel_bytes, tiles * kTileBytes};
    over_rows(a, panel, count, row, rows, kBlockRows, tile == 0, ends, ahead, s->sums,
              [&](int64_t i, int64_t n, const NextBlock& upcoming, float* sums) {
      const float* x = a.x.values + (row + i) * a.x.stride + tile * kTile;
      with_rows<kBlockRows>(n, [&]<int MR>() {
        with_panels(count, [&]<int NP>() {
          float_tiles<MR, NP, F32Pairs, false>(x, a.x.stride, w, next, tiles, nullptr, upcoming,
                                               sums);
        });
      });
    });
  }
}

// Some rows meet a panel, or two, front to back, and prefetch what is `upcoming`; `reach` as in
// PanelRange.
template <bool kFloats, int kFirst, int kEnd>
static void stream_panels(const LinearArgs& a, int64_t panel, int64_t count, int64_t reach,
                          int64_t row, int64_t rows, const Ahead& upcoming, float* sums) {
  const Codec codec = a.weight.codec;
  if constexpr (kFloats) {
    if (codec == Codec::f32) return stream_float<F32Pairs>(a, panel, reach, row, rows, sums);
    if (codec == Codec::f16) return stream_float<F16Pairs>(a, panel, reach, row, rows, sums);
    if (codec == Codec::bf16) return stream_float<BF16Pairs>(a, panel, reach, row, rows, sums);
    if (codec == Codec::f8_e4m3) return stream_scaled<F8Scaled>(a, panel, reach, row, rows, sums);
    if (codec == Codec::nf4) return stream_scaled<Nf4Scaled>(a, panel, reach, row, rows, sums);
  }
  headrace::with_quantised<kFirst, kEnd>(codec, [&]<Codec C>() {
    stream_int8<C>(a, panel, count, row, rows, upcoming, sums);
  });
}

// Some panels, a block of k at a time, and all rows.
template <bool kFloats, int kFirst, int kEnd>
static void block_panels(const LinearArgs& a, int64_t panel, int64_t count, int64_t row,
                         int64_t rows, LinearScratch* s) {
  const Codec codec = a.weight.codec;
  if constexpr (kFloats) {
    if (codec == Codec::f32) return block_float<F32Pairs>(a, panel, count, row, rows, s);
    if (codec == Codec::f16) return block_float<F16Pairs>(a, panel, count, row, rows, s);
    if (codec == Codec::bf16) return block_float<BF16Pairs>(a, panel, count, row, rows, s);
    if (codec == Codec::f8_e4m3) {
      return block_scaled<F8Scaled>(a, panel, count, row, rows, s->weights, s->sums);
    }
    if (codec == Codec::nf4) {
      return block_scaled<Nf4Scaled>(a, panel, count, row, rows, s->weights, s->sums);
    }
  }
  headrace::with_quantised<kFirst, kEnd>(codec, [&]<Codec C>() {
    block_int8<C>(a, panel, count, row, rows, s->unpacked, s->sums);
  });
}

// Of more rows than these the outputs no longer lie in the cache, so that they are worth
// prefetching.
constexpr int64_t kManyOutputs = 48;

// What rows [done, done + rows) of a pass of `all` prefetch as they meet some panels: their share
// of the panels after these, none of another thread's, and of many rows their outputs.
HEADRACE_INLINE Ahead ahead_of(const LinearArgs& a, int64_t panel, int64_t count, int64_t reach,
                               int64_t first_row, int64_t done, int64_t rows, int64_t all) {
  const uint8_t* const next = a.weight.panels + (panel + count) * a.weight.panel_bytes;
  const int64_t left = reach - panel - count, after = left < count ? left : count;
  // Two panels lie behind each other: a step prefetches a line of each half of what comes.
  const int64_t half = a.weight.panel_bytes * after / kBlockPanels;
  Ahead ahead = {a.weight.panels + reach * a.weight.panel_bytes,
                 NextBlock::share({next, half, half}, done, rows, all)};
  if (all > kManyOutputs) ahead.next.outputs = Outputs::of(a, panel, first_row + done, rows);
  return ahead;
}

// Every panel, or every two, meet all rows of a pass, some at a time, before the next ones are
// read.
template <bool kFloats, int kFirst, int kEnd>
static void linear_stream(const LinearArgs& a, const PanelRange& panels, int64_t row_begin,
                          int64_t row_end, LinearScratch* s) {
  const bool pair = panels_pair(a.weight.codec, row_end - row_begin);
  const int64_t step = pair ? kBlockPanels : 1;
  const int64_t together = pair ? kDotBlockRows : rows_streamed(a.weight.codec);
  const int64_t most = pair ? most_int8_rows(a.weight.tiles) : row_end - row_begin;
  const int64_t pass = chunk_rows(row_end - row_begin, most);
  for (int64_t begin = row_begin; begin < row_end; begin += pass) {
    const int64_t all = row_end - begin < pass ? row_end - begin : pass;
    const int64_t chunk = chunk_rows(all, together);
    for (int64_t panel = panels.begin, count; panel < panels.end; panel += count) {
      count = panels.end - panel < step ? panels.end - panel : step;
      for (int64_t done = 0; done < all; done += chunk) {
        const int64_t rows = all - done < chunk ? all - done : chunk;
        clear_sums(s->sums, rows);
        stream_panels<kFloats, kFirst, kEnd>(
            a, panel, count, panels.reach, begin + done, rows,
            ahead_of(a, panel, count, panels.reach, begin, done, rows, all), s->sums);
        finish(a, s->sums, panel, count, begin + done, rows);
      }
    }
  }
}

template <bool kFloats, int kFirst, int kEnd>
static void linear_unpacked(const LinearArgs& a, const PanelRange& panels, int64_t row_begin,
                            int64_t row_end, LinearScratch* s) {
  const int64_t most = is_quantised(a.weight.codec) ? most_int8_rows(a.weight.tiles) : kChunkRows;
  const int64_t chunk = chunk_rows(row_end - row_begin, most);
  for (int64_t row = row_begin; row < row_end; row += chunk) {
    const int64_t rows = row_end - row < chunk ? row_end - row : chunk;
    for (int64_t panel = panels.begin; panel < panels.end; panel += kBlockPanels) {
      const int64_t left = panels.end - panel, count = left < kBlockPanels ? left : kBlockPanels;
      block_panels<kFloats, kFirst, kEnd>(a, panel, count, row, rows, s);
    }
  }
}

// Of floats, and of the quantised kinds from kFirst to before kEnd.
template <bool kFloats, int kFirst, int kEnd>
static void linear_of(const LinearArgs& a, const PanelRange& panels, int64_t row_begin,
                      int64_t row_end, void* scratch) {
  const bool stream = streams_rows(a.weight.codec, row_end - row_begin, a.unpacks_beside_dots);
  const auto linear =
      stream ? linear_stream<kFloats, kFirst, kEnd> : linear_unpacked<kFloats, kFirst, kEnd>;
  linear(a, panels, row_begin, row_end, static_cast<LinearScratch*>(scratch));
}

}  // namespace
