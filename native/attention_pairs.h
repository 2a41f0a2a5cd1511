// q.K and p.V of attention over bf16 K and V by VDPBF16PS, which takes both as they are stored: in
// the place of chains.h at levels that have it, with an arithmetic of its own (docs/kernels.md).
//
// The instruction multiplies operands that are denormal as zeros and flushes sums that are. What
// lies beyond the first and the last position seen is made zero in V before it is multiplied, for
// zero times what a stranger left there may be NaN.

#pragma once

#include "attention_chains.h"
#include "linear_bf16.h"

namespace {

// Rows that go together, and while K and V stream from memory.
constexpr int kPairSpanRows = 6, kFewRows = 3;

struct PairProducts {
  using Q = uint16_t;
  // 6 rows x 4 panels = 24 sums of 32 registers: 10 loads for 24 products, and a core does two of
  // either a cycle. Few rows take 8 panels of V at a time, all that heads of 128 have: memory gives
  // the more the longer the pieces are that are read in their order.
  template <int MR>
  static constexpr int kPanels = MR > kFewRows ? 4 : 8;
  // p of a row: bf16, in the place of its scores.
  static constexpr int64_t kWeights = kSpan * sizeof(float) / sizeof(uint16_t);

  HEADRACE_INLINE void store_q(uint16_t* to, F q, int64_t n) {
    uint16_t half[kLanes];
    store_bf16(half, q);
    for (int64_t i = 0; i < n && i < kLanes; ++i) to[i] = half[i];
  }

  // The line of the next span that lies where this one does, into the second level: the first one
  // holds little more than a span of K and V.
  template <bool Stream>
  HEADRACE_INLINE void ask_far(const uint16_t* at, int64_t ahead) {
    if constexpr (Stream) prefetch_far(reinterpret_cast<const uint8_t*>(at) + ahead);
  }

  template <int MR, int NP>
  HEADRACE_INLINE void clear(F (&c)[MR][NP]) {
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) c[i][j] = zero();
    }
  }

  template <int MR, int NP, bool Stream>
  HEADRACE_APART void score_groups(const SpanGroups& span, int64_t g, const uint16_t* q, int64_t d,
                                   float* scores) {
    const uint16_t* k[NP];
    for (int j = 0; j < NP; ++j) k[j] = reinterpret_cast<const uint16_t*>(span.k_values[g + j]);
    for (int64_t begin = 0; begin < d; begin += kPairBlock) {
      const int64_t pairs = (d - begin < kPairBlock ? d - begin : kPairBlock) / 2;
      F c[MR][NP];
      clear(c);
      const int64_t first = begin / 2 * kPairOutputs;
      for (int64_t p = 0; p < pairs; ++p) {
        I of[NP];
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) {
          const uint16_t* at = k[j] + first + p * kPairOutputs;
          ask_far<Stream>(at, span.k_ahead[g + j]);
          of[j] = load_pairs(at);
        }
HEADRACE_UNROLL
        for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
          for (int j = 0; j < NP; ++j) {
            c[i][j] = add_pairs(c[i][j], of[j], q + i * d + begin + 2 * p);
          }
        }
      }
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) {
          float* sum = scores + i * kSpan + (g + j) * kLanes;
          store(sum, begin == 0 ? c[i][j] : add(load(sum), c[i][j]));
        }
      }
    }
  }

  template <int MR, class Keys, bool Stream>
  HEADRACE_INLINE void score(const SpanGroups& span, int64_t first, int64_t end, const uint16_t* q,
                             int64_t d, float* scores) {
    with_rows<kGroups>(end - first, [&]<int NP>() {
      score_groups<MR, NP, Stream>(span, first, q, d, scores);
    });
  }

  // Two groups at a time: 16 pairs of neighbours, whose sums are added to the lanes as p . 1.
  template <class V>
  HEADRACE_INLINE F weigh(const AttentionArgs& /*a*/, const SpanGroups& /*span*/, const Seen& seen,
                          int64_t first, int64_t end, F shift, float* scores, F sums) {
    const uint16_t ones[2] = {0x3f80, 0x3f80};
    for (int64_t g = first / 2 * 2; g < end; g += 2) {
      F p[2];
      for (int j = 0; j < 2; ++j) {
        p[j] = Seen::keep(seen, g + j, exp(sub(load(scores + (g + j) * kLanes), shift)), zero());
      }
      const I pairs = reinterpret_cast<I>(_mm512_cvtne2ps_pbh(p[1], p[0]));
      _mm512_storeu_si512(reinterpret_cast<uint16_t*>(scores) + g * kLanes, pairs);
      sums = add_pairs(sums, pairs, ones);
    }
    return sums;
  }

  // Adds a pair of tokens, of whose values those of `kept` stay.
  template <int MR, int NP, bool Stream, bool Edge>
  HEADRACE_INLINE void add_tokens(F (&c)[MR][NP], const uint16_t* p, const uint16_t* v,
                                  int64_t ahead, I kept) {
    constexpr int64_t kPanel = kLanes / 2 * kPairOutputs;
    I of[NP];
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) {
      ask_far<Stream>(v + j * kPanel, ahead);
      of[j] = load_pairs(v + j * kPanel);
      if constexpr (Edge) of[j] = _mm512_and_si512(of[j], kept);
    }
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) c[i][j] = add_pairs(c[i][j], of[j], p + i * kWeights);
    }
  }

  template <int MR, int NP, bool Stream>
  HEADRACE_APART void mix_panels(const SpanGroups& span, const Seen& seen, int64_t panel,
                                 const uint16_t* p, const float* keep, float* mixed,
                                 int64_t width) {
    constexpr int64_t kPanel = kLanes / 2 * kPairOutputs;
    const I first_only = _mm512_set1_epi32(0xffff), second_only = _mm512_set1_epi32(-65536);
    F c[MR][NP];
    clear(c);
    for (int64_t at = seen.begin / kLanes * kLanes; at < seen.end; at += kLanes) {
      const uint16_t* v =
          reinterpret_cast<const uint16_t*>(span.v_values[at / kLanes]) + panel * kPanel;
      const int64_t ahead = span.v_ahead[at / kLanes];
      const int64_t n = seen.end - at < kLanes ? seen.end - at : kLanes;
      int64_t t = seen.begin > at ? seen.begin - at : 0;
      v += t / 2 * kPairOutputs;
      if (t % 2 != 0) {
        add_tokens<MR, NP, Stream, true>(c, p + at + t - 1, v, ahead, second_only);
        v += kPairOutputs;
        ++t;
      }
      for (; t + 2 <= n; t += 2, v += kPairOutputs) {
        add_tokens<MR, NP, Stream, false>(c, p + at + t, v, ahead, first_only);
      }
      if (t < n) add_tokens<MR, NP, Stream, true>(c, p + at + t, v, ahead, first_only);
    }
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) {
        float* sum = mixed + i * width + (panel + j) * kLanes;
        store(sum, fma(load(sum), splat(keep[i]), c[i][j]));
      }
    }
  }

  template <int MR, class Values, bool Stream>
  HEADRACE_INLINE void mix(const SpanGroups& span, const Seen& seen, const float* p,
                           const float* keep, float* mixed, int64_t panels) {
    for (int64_t panel = 0; panel < panels; panel += kPanels<MR>) {
      const int64_t left = panels - panel;
      with_rows<kPanels<MR>>(left < kPanels<MR> ? left : kPanels<MR>, [&]<int NP>() {
        mix_panels<MR, NP, Stream>(span, seen, panel, reinterpret_cast<const uint16_t*>(p), keep,
                                   mixed, panels * kLanes);
      });
    }
  }
};

// Pairs where K, or V, is bf16; chains for the others.
struct ByPairs {
  static constexpr int kRows = kPairSpanRows, kFew = kFewRows;
  static constexpr bool kAsks = true;
  template <class Reader>
  using Products =
      std::conditional_t<Reader::kCodec == KvCodec::bf16, PairProducts, ChainProducts>;
};

}  // namespace
