// y = W x for rows of x and panels of 16 outputs, over every codec.
//
// A call takes some panels and some rows. Few rows: panels stream from memory, once or twice over
// (what matters is bandwidth). Many rows: k is cut into blocks whose weights fit in
// the first-level cache, decoded to f32 once, and every block of rows runs over them (what matters
// is multiplies). The order in which a sum is built is the same in both, so the result is.

#pragma once

#include "chains.h"
#include "kernels.h"

namespace {

using headrace::kQ8BlockBytes;
using headrace::LinearArgs;

// Rows that go through a k block together; their sums wait in scratch (96 x 32 f32 = 12 KiB).
constexpr int64_t kChunkRows = 48;
// Tiles of a k block: 4 x 32 k x 32 outputs x 4 bytes = 16 KiB of weights beside the sums and the
// rows in a 32 or 48 KiB first-level cache; for Q8_0 16 blocks x 2 panels = 17 KiB.
constexpr int64_t kBlockTiles = 4;
constexpr int64_t kQ8BlockTiles = 32;
// How far ahead weights are asked for while they stream. One core alone reads 28 GB/s without and
// 41 GB/s with it on the machine of docs/kernels.md; any distance from 1 to 8 KiB does.
constexpr int64_t kPrefetchBytes = 2048;

struct LinearScratch {
  alignas(64) float sums[kChunkRows * kBlockPanels * kLanes];
  alignas(64) float weights[kBlockPanels * kBlockTiles * kTile * kLanes];
};

// sums[i][j] of MR rows and NP panels over `tiles` tiles.
template <int MR, int NP, class Pairs, bool Stream>
static void float_tiles(const float* x, int64_t stride, const typename Pairs::T* w, int64_t panel,
                        int64_t tiles, float* sums) {
  using C = Chains<MR, NP, Pairs>;
  constexpr int64_t kPairBytes = Pairs::kPair * sizeof(typename Pairs::T);
  F total[MR][NP];
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NP; ++j) total[i][j] = load(sums + (i * kBlockPanels + j) * kLanes);
  }
  for (int64_t t = 0; t < tiles; ++t) {
    C c;
    C::clear(c);
    for (int p = 0; p < kTile / 2; ++p) {
      if (Stream) {
        const char* ahead = reinterpret_cast<const char*>(w) + kPrefetchBytes;
        for (int64_t b = 0; b < kPairBytes; b += 64) prefetch(ahead + b);
      }
      C::pair(c, x + 2 * p, stride, w, panel);
      w += Pairs::kPair;
    }
    x += kTile;
    for (int i = 0; i < MR; ++i) {
      for (int j = 0; j < NP; ++j) total[i][j] = add(total[i][j], add(c.e[i][j], c.o[i][j]));
    }
  }
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NP; ++j) store(sums + (i * kBlockPanels + j) * kLanes, total[i][j]);
  }
}

// The same over Q8_0 blocks: an exact integer sum, then total += sum * (dw * dx).
template <int MR, int NP, bool Stream>
static void q8_tiles(const int8_t* q, const float* d, const int32_t* offset, int64_t tiles_of_row,
                     const uint8_t* w, int64_t panel, int64_t tiles, float* sums) {
  F total[MR][NP];
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NP; ++j) total[i][j] = load(sums + (i * kBlockPanels + j) * kLanes);
  }
  for (int64_t t = 0; t < tiles; ++t) {
    if (Stream) {
      for (int64_t b = 0; b < kQ8BlockBytes; b += 64) prefetch(w + kPrefetchBytes + b);
    }
    ISum s[MR][NP];
    for (int i = 0; i < MR; ++i) {
      const ISum start = isum(offset[i * tiles_of_row + t]);
      for (int j = 0; j < NP; ++j) s[i][j] = start;
    }
#pragma GCC unroll 8
    for (int four = 0; four < 8; ++four) {
      Bytes b[NP];
      for (int j = 0; j < NP; ++j) b[j] = load_bytes(w + j * panel + 32 + four * 64);
      for (int i = 0; i < MR; ++i) {
        const int8_t* x = q + (i * tiles_of_row + t) * kTile + four * 4;
        for (int j = 0; j < NP; ++j) s[i][j] = dot4(s[i][j], b[j], x);
      }
    }
    for (int j = 0; j < NP; ++j) {
      const F dw = load_f16(reinterpret_cast<const uint16_t*>(w + j * panel));
      for (int i = 0; i < MR; ++i) {
        const F scale = mul(dw, splat(d[i * tiles_of_row + t]));
        total[i][j] = fma(to_float(s[i][j]), scale, total[i][j]);
      }
    }
    w += kQ8BlockBytes;
  }
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NP; ++j) store(sums + (i * kBlockPanels + j) * kLanes, total[i][j]);
  }
}

// Calls fn<MR>() for MR = rows, rows <= Most.
template <int Most, class Fn>
HEADRACE_INLINE void with_rows(int64_t rows, const Fn& fn) {
  if (rows == Most) {
    fn.template operator()<Most>();
  } else if constexpr (Most > 1) {
    with_rows<Most - 1>(rows, fn);
  }
}

// Calls fn<NP>() for NP = panels, panels <= kBlockPanels.
template <class Fn>
HEADRACE_INLINE void with_panels(int64_t panels, const Fn& fn) {
  if (kBlockPanels > 1 && panels == kBlockPanels) {
    fn.template operator()<kBlockPanels>();
  } else {
    fn.template operator()<1>();
  }
}

// How many of `left` rows the next block takes: as few blocks as can be, all about as large.
HEADRACE_INLINE int64_t block_rows(int64_t left) {
  const int64_t blocks = (left + kBlockRows - 1) / kBlockRows;
  return (left + blocks - 1) / blocks;
}

// The weights the next block of k will want, asked for in steps while this one is computed.
struct NextBlock {
  const uint8_t* at;
  int64_t panel;  // bytes from one panel to the next
  int64_t bytes;  // of each

  HEADRACE_INLINE void ask(const NextBlock& n, int64_t count, int64_t done, int64_t more,
                           int64_t all) {
    const int64_t begin = n.bytes * done / all / 64 * 64, end = n.bytes * (done + more) / all;
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t b = begin; b < end; b += 64) prefetch_far(n.at + j * n.panel + b);
    }
  }
};

HEADRACE_INLINE void clear_sums(float* sums, int64_t rows) {
  for (int64_t i = 0; i < rows * kBlockPanels; ++i) store(sums + i * kLanes, zero());
}

// y = (sums + bias) * scale + residual of `rows` rows from `row` and of panels [panel, panel + count).
static void finish(const LinearArgs& a, const float* sums, int64_t panel, int64_t count,
                   int64_t row, int64_t rows) {
  const float *bias = a.weight.bias, *residual = a.residual;
  float* y = a.y;
  const int64_t out = a.weight.out;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < count; ++j) {
      const int64_t column = (panel + j) * kLanes, left = out - column;
      const int64_t at = (row + i) * out + column;
      F v = load(sums + (i * kBlockPanels + j) * kLanes);
      if (bias != nullptr) v = add(v, load_n(bias + column, left));
      v = mul(v, splat(a.scale));  // by 1 it stays what it is
      if (residual != nullptr) v = add(v, load_n(residual + at, left));
      store_n(y + at, v, left);
    }
  }
}

// Lines of y that will be written soon: while the last block of k is computed, so that the stores
// do not wait for memory.
HEADRACE_INLINE void ask_output(const LinearArgs& a, int64_t panel, int64_t count, int64_t row,
                                int64_t rows) {
  for (int64_t i = row; i < row + rows; ++i) {
    for (int64_t j = 0; j < count; ++j) {
      prefetch_to_write(a.y + i * a.weight.out + (panel + j) * kLanes);
    }
  }
}

template <class Pairs>
HEADRACE_INLINE const typename Pairs::T* panel_at(const LinearArgs& a, int64_t panel) {
  return reinterpret_cast<const typename Pairs::T*>(a.weight.panels + panel * a.weight.panel_bytes);
}

// Few rows: each panel is read once, front to back.
template <class Pairs>
static void stream_float(const LinearArgs& a, int64_t panel, int64_t row, int64_t rows,
                         float* sums) {
  const float* x = a.x.values + row * a.x.stride;
  with_rows<kStreamRows>(rows, [&]<int MR>() {
    float_tiles<MR, 1, Pairs, true>(x, a.x.stride, panel_at<Pairs>(a, panel), 0, a.weight.tiles,
                                    sums);
  });
}

HEADRACE_INLINE void stream_q8(const LinearArgs& a, int64_t panel, int64_t row, int64_t rows,
                               float* sums) {
  const int64_t tiles = a.weight.tiles;
  const uint8_t* w = a.weight.panels + panel * a.weight.panel_bytes;
  with_rows<kStreamRows>(rows, [&]<int MR>() {
    q8_tiles<MR, 1, true>(a.x.q + row * tiles * kTile, a.x.d + row * tiles,
                          a.x.offset + row * tiles, tiles, w, 0, tiles, sums);
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
    for (int64_t i = 0, n; i < rows; i += n) {
      n = block_rows(rows - i);
      NextBlock::ask(ahead, count, i, n, rows);
      if (ends) ask_output(a, panel, count, row + i, n);
      const float* x = a.x.values + (row + i) * a.x.stride + tile * kTile;
      float* sums = s->sums + i * kBlockPanels * kLanes;
      with_rows<kBlockRows>(n, [&]<int MR>() {
        with_panels(count, [&]<int NP>() {
          float_tiles<MR, NP, F32Pairs, false>(x, a.x.stride, w, next, tiles, sums);
        });
      });
    }
  }
}

static void block_q8(const LinearArgs& a, int64_t panel, int64_t count, int64_t row, int64_t rows,
                     LinearScratch* s) {
  const int64_t all = a.weight.tiles;
  for (int64_t tile = 0; tile < all; tile += kQ8BlockTiles) {
    const int64_t tiles = all - tile < kQ8BlockTiles ? all - tile : kQ8BlockTiles;
    const uint8_t* w = a.weight.panels + panel * a.weight.panel_bytes + tile * kQ8BlockBytes;
    const bool ends = tile + tiles == all;
    const NextBlock ahead = {
        a.weight.panels + (ends ? panel + count : panel) * a.weight.panel_bytes +
            (ends ? 0 : tile + tiles) * kQ8BlockBytes,
        a.weight.panel_bytes, tiles * kQ8BlockBytes};
    for (int64_t i = 0, n; i < rows; i += n) {
      n = block_rows(rows - i);
      NextBlock::ask(ahead, count, i, n, rows);
      if (ends) ask_output(a, panel, count, row + i, n);
      const int64_t at = (row + i) * all + tile;
      const int8_t* q = a.x.q + at * kTile;
      const float* d = a.x.d + at;
      const int32_t* offset = a.x.offset + at;
      float* sums = s->sums + i * kBlockPanels * kLanes;
      with_rows<kBlockRows>(n, [&]<int MR>() {
        with_panels(count, [&]<int NP>() {
          q8_tiles<MR, NP, false>(q, d, offset, all, w, a.weight.panel_bytes, tiles, sums);
        });
      });
    }
  }
}

static void linear(const LinearArgs& a, int64_t panel_begin, int64_t panel_end, int64_t row_begin,
                   int64_t row_end, void* scratch) {
  LinearScratch* s = static_cast<LinearScratch*>(scratch);
  const Codec codec = a.weight.codec;
  const int64_t all = row_end - row_begin, halves = all > kStreamRows ? 2 : 1;
  const bool few = all <= 2 * kStreamRows;
  const int64_t step = few ? 1 : kBlockPanels, chunk = few ? (all + halves - 1) / halves : kChunkRows;
  for (int64_t row = row_begin; row < row_end; row += chunk) {
    const int64_t rows = row_end - row < chunk ? row_end - row : chunk;
    for (int64_t panel = panel_begin; panel < panel_end; panel += step) {
      const int64_t count = panel_end - panel < step ? panel_end - panel : step;
      clear_sums(s->sums, rows);
      if (few) {
        if (codec == Codec::f32) stream_float<F32Pairs>(a, panel, row, rows, s->sums);
        if (codec == Codec::f16) stream_float<F16Pairs>(a, panel, row, rows, s->sums);
        if (codec == Codec::bf16) stream_float<BF16Pairs>(a, panel, row, rows, s->sums);
        if (codec == Codec::q8_0) stream_q8(a, panel, row, rows, s->sums);
      } else {
        if (codec == Codec::f32) block_float<F32Pairs>(a, panel, count, row, rows, s);
        if (codec == Codec::f16) block_float<F16Pairs>(a, panel, count, row, rows, s);
        if (codec == Codec::bf16) block_float<BF16Pairs>(a, panel, count, row, rows, s);
        if (codec == Codec::q8_0) block_q8(a, panel, count, row, rows, s);
      }
      finish(a, s->sums, panel, count, row, rows);
    }
  }
}

}  // namespace
