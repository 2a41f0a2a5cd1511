// y = W x for BF16 weights by VDPBF16PS: products of pairs, at twice the rate of f32.
//
// Its own arithmetic: k is cut into blocks of 128, each one chain from zero over the pairs (k, k +
// 1) in ascending order, where the instruction adds the odd product and then the even one (two
// fused roundings); then sum = sum + chain. Few rows stream, many rows run over a block of weights
// in the first-level cache; both build every sum in that order. Activations are bf16 as well.

#pragma once

#include "kernels.h"
#include "row_blocks.h"

namespace {

using headrace::kTile;

// 12 rows x 2 panels = 24 chains of 32 registers.
constexpr int kPairRows = 12;
constexpr int kPairStreamRows = 16;
constexpr int64_t kPairBlock = 128;
constexpr int64_t kPairOutputs = 2 * kLanes;  // bf16 of a pair of k
constexpr int64_t kPairBytes = kPairOutputs * static_cast<int64_t>(sizeof(uint16_t));

// Pairs of a step that prefetches some of the next block: of a tile, so that blocks are whole
// turns.
constexpr int64_t kStepPairs = 4;
static_assert(kTile / 2 % kStepPairs == 0);

struct PairScratch {
  alignas(64) float sums[kChunkRows * kBlockPanels * kLanes];
};

HEADRACE_INLINE F add_pairs(F sum, I w, const uint16_t* x) {
  int32_t pair;
  __builtin_memcpy(&pair, x, sizeof pair);
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w),
                          reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)));
}

template <int MR, int NP>
HEADRACE_INLINE void add_pair(F (&c)[MR][NP], const uint16_t* x, int64_t stride, const uint16_t* w,
                              int64_t panel) {
  I of[NP];
HEADRACE_UNROLL
  for (int j = 0; j < NP; ++j) of[j] = load_pairs(w + j * panel);
HEADRACE_UNROLL
  for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) c[i][j] = add_pairs(c[i][j], of[j], x + i * stride);
  }
}

// One block of k, or the shorter last one, for MR rows and NP panels: sums += chains. Where weights
// stream, all of `upcoming` is prefetched, each line as nearly as it is needed.
template <int MR, int NP, bool Stream>
static void pair_block(const uint16_t* x, int64_t stride, const uint16_t* w, int64_t panel,
                       int64_t pairs, const NextBlock& upcoming, float* sums) {
  F c[MR][NP];
HEADRACE_UNROLL
  for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) c[i][j] = zero();
  }
  if constexpr (Stream) {
    for (int64_t p = 0; p < pairs; ++p, x += 2, w += kPairOutputs) {
      for (int j = 0; j < NP; ++j) prefetch(upcoming.at + p * kPairBytes + j * upcoming.panel);
      add_pair(c, x, stride, w, panel);
    }
  } else {
    Prefetcher prefetcher = Prefetcher::of<NP>(upcoming, pairs / kStepPairs, sums);
    for (int64_t p = 0; p < pairs; p += kStepPairs) {
      Prefetcher::advance<NP>(prefetcher);
HEADRACE_UNROLL
      for (int64_t i = 0; i < kStepPairs; ++i, x += 2, w += kPairOutputs) {
        add_pair(c, x, stride, w, panel);
      }
    }
  }
HEADRACE_UNROLL
  for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) {
      float* sum = sums + (i * kBlockPanels + j) * kLanes;
      store(sum, add(load(sum), c[i][j]));
    }
  }
}

HEADRACE_INLINE const uint16_t* pairs_at(const LinearArgs& a, int64_t panel, int64_t k) {
  return reinterpret_cast<const uint16_t*>(a.weight.panels + panel * a.weight.panel_bytes) +
         k * kLanes;
}

// Many rows: blocks of k, and of rows within each.
static void block_pairs(const LinearArgs& a, int64_t panel, int64_t count, int64_t row,
                        int64_t rows, bool few, float* all_sums) {
  const int64_t all = a.weight.tiles * kTile, stride = a.x.stride;
  const int64_t apart = a.weight.panel_bytes / static_cast<int64_t>(sizeof(uint16_t));
  for (int64_t k = 0; k < all; k += kPairBlock) {
    const int64_t n = all - k < kPairBlock ? all - k : kPairBlock;
    const bool ends = k + n == all;
    const uint16_t* next = ends ? pairs_at(a, panel + count, 0) : pairs_at(a, panel, k + n);
    const NextBlock ahead = {reinterpret_cast<const uint8_t*>(next), a.weight.panel_bytes,
                             n / 2 * kPairBytes};
    over_rows(a, panel, count, row, rows, kPairRows, k == 0, ends, ahead, all_sums,
              [&](int64_t i, int64_t of, NextBlock upcoming, float* sums) {
      // Of few rows the first ones prefetch all of it as they go.
      const bool stream = few && i == 0;
      if (few) upcoming = stream ? ahead : NextBlock{};
      const uint16_t* x = a.x.half + (row + i) * stride + k;
      with_rows<kPairRows>(of, [&]<int MR>() {
        with_panels(count, [&]<int NP>() {
          const auto block = stream ? pair_block<MR, NP, true> : pair_block<MR, NP, false>;
          block(x, stride, pairs_at(a, panel, k), apart, n / 2, upcoming, sums);
        });
      });
    });
  }
}

static void linear_pairs(const LinearArgs& a, const PanelRange& panels, int64_t row_begin,
                         int64_t row_end, void* scratch) {
  float* sums = static_cast<PairScratch*>(scratch)->sums;
  const bool few = row_end - row_begin <= kPairStreamRows;
  const int64_t chunk = chunk_rows(row_end - row_begin, kChunkRows);
  for (int64_t row = row_begin; row < row_end; row += chunk) {
    const int64_t rows = row_end - row < chunk ? row_end - row : chunk;
    for (int64_t panel = panels.begin; panel < panels.end; panel += kBlockPanels) {
      const int64_t count = panels.end - panel < kBlockPanels ? panels.end - panel : kBlockPanels;
      block_pairs(a, panel, count, row, rows, few, sums);
    }
  }
}

// Multiplies alone, for the probe. An instruction takes six cycles where a core begins two a cycle:
// 12 chains are just enough, and one that waits is a cycle lost.
constexpr int kPairChains = 16;

static float probe_pairs(int64_t rounds) {
  const uint16_t one[2] = {0x3f80, 0};
  F c[kPairChains];
  for (int i = 0; i < kPairChains; ++i) c[i] = splat(static_cast<float>(i));
  const I w = reinterpret_cast<I>(splat(0x1p-20f));
  for (int64_t round = 0; round < rounds; ++round) {
HEADRACE_UNROLL
    for (int i = 0; i < kPairChains; ++i) c[i] = add_pairs(c[i], w, one);
  }
  for (int i = 1; i < kPairChains; ++i) c[0] = add(c[0], c[i]);
  return sum(c[0]);
}

}  // namespace
