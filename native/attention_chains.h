// q.K and p.V of attention by the chains of chains.h: in float32, whatever K and V are stored in.

#pragma once

#include "attention_span.h"
#include "chains.h"
#include "row_blocks.h"

namespace {

// What a way to multiply offers attention.h, for `MR` rows each:
//   Q        what q is kept in
//   score    q.K of groups [first, end), into scores [MR][64]
//   weigh    scores of a row become p, as they meet V; returns the sums of p
//   mix      mixed = mixed * keep + p . V over an interval of the span
struct ChainProducts {
  using Q = float;

  HEADRACE_INLINE void store_q(float* to, F q, int64_t n) { store_n(to, q, n); }

  // Sums wait in memory between tiles: the chains need all the registers.
  template <int MR, int NP, class Keys, Streams S>
  HEADRACE_APART void score_groups(const SpanGroups& span, int64_t g, const float* q, int64_t d,
                                   const NextGroups& next, float* scores) {
    using T = typename Keys::T;
    using C = Chains<MR, NP, Keys>;
    const T* k = reinterpret_cast<const T*>(span.k_values[g]);
    const int64_t apart = NP == 1 ? 0 : reinterpret_cast<const T*>(span.k_values[g + NP - 1]) - k;
    for (int64_t begin = 0; begin < d; begin += kTile) {
      const int64_t pairs = (d - begin < kTile ? d - begin : kTile) / 2;
      C c;
      C::clear(c);
      for (int64_t p = 0; p < pairs; ++p) {
        for (int j = 0; j < NP; ++j) {
          prefetch_ahead<S != Streams::no, Keys>(k + j * apart, span.k_ahead[g + j], p);
        }
        if constexpr (S == Streams::no) NextGroups::prefetch(next, begin / 2 + p);
        C::pair(c, q + begin + 2 * p, d, k, apart);
        k += Keys::kPair;
      }
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) {
          float* sum = scores + i * kSpan + (g + j) * kLanes;
          const F tile = add(c.e[i][j], c.o[i][j]);
          store(sum, begin == 0 ? tile : add(load(sum), tile));
        }
      }
    }
  }

  template <int MR, class Keys, Streams S>
  HEADRACE_INLINE void score(const SpanGroups& span, int64_t first, int64_t end, const float* q,
                             int64_t d, const NextGroups& next, float* scores) {
    for (int64_t g = first; g < end; g += kBlockPanels) {
      with_panels(end - g < kBlockPanels ? end - g : kBlockPanels, [&]<int NP>() {
        score_groups<MR, NP, Keys, S>(span, g, q, d, g == first ? next : NextGroups{}, scores);
      });
    }
  }

  template <class V>
  HEADRACE_INLINE F weigh(const AttentionArgs& a, const SpanGroups& span, const Seen& seen,
                          int64_t first, int64_t end, F shift, float* scores, F sums) {
    for (int64_t g = first; g < end; ++g) {
      F p = V::rounded(exp(sub(load(scores + g * kLanes), shift)));
      p = Seen::keep(seen, g, p, zero());
      store(scores + g * kLanes, span.near ? p : V::weighed(span.v[g], a.kv.v_scale, p));
      sums = add(sums, p);
    }
    return sums;
  }

  template <int MR, int NP, class Values, Streams S>
  HEADRACE_APART void mix_panels(const SpanGroups& span, const Seen& seen, int64_t panel,
                                 const float* p, const float* keep, float* mixed, int64_t width) {
    using T = typename Values::T;
    using C = Chains<MR, NP, Values>;
    constexpr int64_t kPanel = 8 * Values::kPair;
    const int64_t first_tile = seen.begin / kTile * kTile;
    for (int64_t begin = first_tile; begin < seen.end; begin += kTile) {
      C c;
      C::clear(c);
      const int64_t end = seen.end - begin < kTile ? seen.end : begin + kTile;
      const int64_t from = begin < seen.begin ? seen.begin : begin;
      for (int64_t at = from / kLanes * kLanes; at < end; at += kLanes) {
        const T* v = reinterpret_cast<const T*>(span.v_values[at / kLanes]) + panel * kPanel;
        const int64_t n = end - at < kLanes ? end - at : kLanes;
        int64_t t = from > at ? from - at : 0;
        v += t / 2 * Values::kPair;
        if (t % 2 != 0) {
          C::single_odd(c, p + at + t, kSpan, v, kPanel);
          v += Values::kPair;
          ++t;
        }
        for (; t + 2 <= n; t += 2) {
          for (int j = 0; j < NP; ++j) {
            prefetch_ahead<S != Streams::no, Values>(v + j * kPanel, span.v_ahead[at / kLanes],
                                                     t / 2);
          }
          C::pair(c, p + at + t, kSpan, v, kPanel);
          v += Values::kPair;
        }
        if (t < n) C::single(c, p + at + n - 1, kSpan, v, kPanel);
      }
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) {
          float* sum = mixed + i * width + (panel + j) * kLanes;
          const F older = begin == first_tile ? mul(load(sum), splat(keep[i])) : load(sum);
          store(sum, add(older, add(c.e[i][j], c.o[i][j])));
        }
      }
    }
  }

  template <int MR, class Values, Streams S>
  HEADRACE_INLINE void mix(const SpanGroups& span, const Seen& seen, const float* p,
                           const float* keep, float* mixed, int64_t panels) {
    for (int64_t panel = 0; panel < panels; panel += kBlockPanels) {
      const int64_t left = panels - panel;
      with_panels(left < kBlockPanels ? left : kBlockPanels, [&]<int NP>() {
        mix_panels<MR, NP, Values, S>(span, seen, panel, p, keep, mixed, panels * kLanes);
      });
    }
  }
};

// How a level multiplies: rows that go together, where there are many and where K and V stream from
// memory; how many of those may read codes as they are stored, and from how many rows on K and V of
// few bits are decoded a span at a time; and the way for K or V of a reader.
struct ByChains {
  static constexpr int kRows = kSpanRows, kFew = kSpanRows, kDirect = kSpanRows;
  static constexpr int64_t kDecodedRows = 4 * kSpanRows;
  template <class Reader>
  using Products = ChainProducts;
};

}  // namespace
