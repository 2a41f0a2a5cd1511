// y = W x for weights of F8_E4M3 and NF4: the chains of chains.h over each tile of 32, whose sum
// meets the scale of its run before it joins the row's sum.
//
// A panel is the scales of all runs, [run][16 outputs], then the values, [k / 2][16 outputs][2 of
// k]; of NF4 the two share a byte. F8_E4M3 is read as 2^-8 of what it is, and its scales are stored
// 2^8 times as large. Few rows stream; for many rows a block of k is decoded once. Both build a
// row's sum in one order.

#pragma once

#include "chains.h"
#include "kernels.h"
#include "row_blocks.h"

namespace {

using headrace::LinearArgs;

struct F8Scaled {
  using Pairs = F8Pairs;
  static constexpr int64_t kRunTiles = headrace::kRun / kTile;
  static constexpr int64_t kTileBytes = kTile * kLanes;
};
struct Nf4Scaled {
  using Pairs = Nf4Pairs;
  static constexpr int64_t kRunTiles = headrace::kNf4Run / kTile;
  static constexpr int64_t kTileBytes = kTile * kLanes / 2;
};
// Tiles of a k block of many rows, as f32: 4 x 32 k x 32 outputs x 4 bytes = 16 KiB, whole runs.
constexpr int64_t kScaledTiles = 4;
static_assert(kScaledTiles % F8Scaled::kRunTiles == 0 && kScaledTiles % Nf4Scaled::kRunTiles == 0);

HEADRACE_INLINE const float* run_scales(const LinearArgs& a, int64_t panel) {
  return reinterpret_cast<const float*>(a.weight.panels + panel * a.weight.panel_bytes);
}
template <class S>
HEADRACE_INLINE const uint8_t* scaled_values(const LinearArgs& a, int64_t panel, int64_t tile) {
  const int64_t runs = (a.weight.tiles + S::kRunTiles - 1) / S::kRunTiles;
  return a.weight.panels + panel * a.weight.panel_bytes +
         runs * kLanes * static_cast<int64_t>(sizeof(float)) + tile * S::kTileBytes;
}

// sums[i][j] of MR rows and NP panels over `tiles` tiles, the first of which begins a run. Values
// of the panels are `panel` apart, their scales `scale_panel`. `end`, where they stream: that of
// all weights of the call; elsewhere `upcoming` is prefetched.
template <int MR, int NP, class Pairs, int64_t kRunTiles, bool Stream>
static void scaled_tiles(const float* x, int64_t stride, const typename Pairs::T* w, int64_t panel,
                         const float* scales, int64_t scale_panel, int64_t tiles,
                         const uint8_t* end, const NextBlock& upcoming, float* sums) {
  using C = Chains<MR, NP, Pairs>;
  constexpr int kLineBytes = 64;
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
      if (Stream && p % (kLineBytes / Pairs::kPair) == 0) {
        prefetch(reinterpret_cast<const char*>(w) + ahead);
      }
      C::pair(c, x + 2 * p, stride, w, panel);
      w += Pairs::kPair;
    }
    x += kTile;
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) {
      const F scale = load(scales + t / kRunTiles * kLanes + j * scale_panel);
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) {
        total[i][j] = fma(add(c.e[i][j], c.o[i][j]), scale, total[i][j]);
      }
    }
  }
HEADRACE_UNROLL
  for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) store(sums + (i * kBlockPanels + j) * kLanes, total[i][j]);
  }
}

// Few rows: each panel is read once, front to back, and prefetches the next ones up to `reach`.
template <class S>
static void stream_scaled(const LinearArgs& a, int64_t panel, int64_t reach, int64_t row,
                          int64_t rows, float* sums) {
  const float* x = a.x.values + row * a.x.stride;
  with_rows<kStreamRows>(rows, [&]<int MR>() {
    scaled_tiles<MR, 1, typename S::Pairs, S::kRunTiles, true>(
        x, a.x.stride, scaled_values<S>(a, panel, 0), 0, run_scales(a, panel), 0, a.weight.tiles,
        a.weight.panels + reach * a.weight.panel_bytes, {}, sums);
  });
}

// Many rows: a block of k at a time, decoded to f32, and blocks of rows within it.
template <class S>
static void block_scaled(const LinearArgs& a, int64_t panel, int64_t count, int64_t row,
                         int64_t rows, float* weights, float* all_sums) {
  using Pairs = typename S::Pairs;
  const int64_t all = a.weight.tiles, stride = a.weight.panel_bytes;
  for (int64_t tile = 0; tile < all; tile += kScaledTiles) {
    const int64_t tiles = all - tile < kScaledTiles ? all - tile : kScaledTiles;
    const int64_t of_panel = tiles * kTile * kLanes;
    for (int64_t j = 0; j < count; ++j) {
      const uint8_t* w = scaled_values<S>(a, panel + j, tile);
      float* to = weights + j * of_panel;
      for (int64_t p = 0; p < tiles * kTile / 2; ++p, w += Pairs::kPair, to += 2 * kLanes) {
        F e, o;
        Pairs::read(w, e, o);
        store(to, e);
        store(to + kLanes, o);
      }
    }
    const bool ends = tile + tiles == all;
    const NextBlock ahead = {
        ends ? scaled_values<S>(a, panel + count, 0) : scaled_values<S>(a, panel, tile + tiles),
        stride, tiles * S::kTileBytes};
    const float* scales = run_scales(a, panel) + tile / S::kRunTiles * kLanes;
    over_rows(a, panel, count, row, rows, kBlockRows, tile == 0, ends, ahead, all_sums,
              [&](int64_t i, int64_t n, const NextBlock& upcoming, float* sums) {
      const float* x = a.x.values + (row + i) * a.x.stride + tile * kTile;
      with_rows<kBlockRows>(n, [&]<int MR>() {
        with_panels(count, [&]<int NP>() {
          scaled_tiles<MR, NP, F32Pairs, S::kRunTiles, false>(
              x, a.x.stride, weights, of_panel, scales,
              stride / static_cast<int64_t>(sizeof(float)), tiles, nullptr, upcoming,
              sums);
        });
      });
    });
  }
}

}  // namespace
