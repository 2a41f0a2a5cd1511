// q.K and p.V of attention by VDPBF16PS over K and V that are bf16, or of few bits and so exact in
// it: in the place of chains.h at levels that have it, with an arithmetic of its own
// (docs/kernels.md). bf16 is taken as it is stored. Codes become bf16 in registers for few rows,
// and once for many (decoded.h).
//
// The instruction multiplies operands that are denormal as zeros and flushes sums that are. What
// lies beyond the first and the last position seen is made zero in V before it is multiplied, for
// zero times what a stranger left there may be NaN.

#pragma once

#include <type_traits>

#include "attention_chains.h"
#include "linear_bf16.h"

namespace {

// Rows that go together, and while K and V stream from memory.
constexpr int kPairSpanRows = 6, kFewRows = 3;

// 16 pairs of bf16 from where a pair of `Pairs` lies.
template <class Pairs>
HEADRACE_INLINE I pairs_from(const typename Pairs::T* at) {
  if constexpr (std::is_same_v<Pairs, BF16Pairs>) {
    return load_pairs(at);
  } else {
    F even_of, odd_of;
    Pairs::read(at, even_of, odd_of);
    const I e = _mm512_srli_epi32(_mm512_castps_si512(even_of), 16);
    const I o = _mm512_castps_si512(odd_of);
    return _mm512_or_si512(e, _mm512_and_si512(o, _mm512_set1_epi32(-65536)));
  }
}

struct PairProducts {
  using Q = uint16_t;
  // 6 rows x 4 panels = 24 sums of 32 registers: 10 loads for 24 products, and a core does two of
  // either a cycle. Few rows take 8 panels of bf16 V at a time, all that heads of 128 have: memory
  // gives the more the longer the pieces are that are read in their order. Codes need registers
  // themselves.
  template <int MR, class Values>
  static constexpr int kPanels = MR > kFewRows || !std::is_same_v<Values, BF16Pairs> ? 4 : 8;
  // p of a row: bf16, in the place of its scores.
  static constexpr int64_t kWeights = kSpan * sizeof(float) / sizeof(uint16_t);

  HEADRACE_INLINE void store_q(uint16_t* to, F q, int64_t n) {
    if (n >= kLanes) return store_bf16(to, round_bf16(q));
    uint16_t half[kLanes];
    store_bf16(half, round_bf16(q));
    for (int64_t i = 0; i < n; ++i) to[i] = half[i];
  }

  static constexpr int64_t kLine = 64;
  template <class Pairs>
  static constexpr int64_t kEvery = kLine / kPair<Pairs>;

  // The line of the next span that lies where this one does. Where other blocks of rows meet this
  // span first, into the second level: the first one holds little more than a span of K and V.
  template <Streams S, class Pairs>
  HEADRACE_INLINE void prefetch_line(const typename Pairs::T* at, int64_t ahead, int64_t pair) {
    if constexpr (S == Streams::once) prefetch_ahead<true, Pairs>(at, ahead, pair);
    if constexpr (S == Streams::again) {
      if (pair % kEvery<Pairs> == 0) prefetch_far(reinterpret_cast<const uint8_t*>(at) + ahead);
    }
  }

  // NP pairs of the next span's K, from pair `n` on of those of NP groups of 16 tokens, `of_group`
  // each, into the second level: one group after the other, for memory gives more in this order
  // than in that in which pairs of several groups meet q. Steps of three pairs miss one or two
  // where a group ends.
  template <class Pairs, int NP>
  HEADRACE_INLINE void prefetch_in_order(const typename Pairs::T* const (&k)[NP],
                                         const int64_t* ahead, int64_t n, int64_t of_group) {
    // Both are small, and 32 bits divide faster than 64.
    const uint32_t group = static_cast<uint32_t>(n) / static_cast<uint32_t>(of_group);
    const auto* at = reinterpret_cast<const uint8_t*>(k[group]) + ahead[group] +
                     (n - group * of_group) * kPair<Pairs>;
    for (int64_t b = 0; b < NP * kPair<Pairs>; b += kLine) prefetch_far(at + b);
  }

  template <int MR, int NP>
  HEADRACE_INLINE void clear(F (&c)[MR][NP]) {
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) c[i][j] = zero();
    }
  }

  template <int MR, int NP, class Keys, Streams S>
  HEADRACE_APART void score_groups(const SpanGroups& span, int64_t g, const uint16_t* q, int64_t d,
                                   const NextGroups& next, float* scores) {
    using T = typename Keys::T;
    const T* k[NP];
    for (int j = 0; j < NP; ++j) k[j] = reinterpret_cast<const T*>(span.k_values[g + j]);
    for (int64_t begin = 0; begin < d; begin += kPairBlock) {
      const int64_t pairs = (d - begin < kPairBlock ? d - begin : kPairBlock) / 2;
      F c[MR][NP];
      clear(c);
      const int64_t first = begin / 2 * Keys::kPair;
      for (int64_t p = 0; p < pairs; ++p) {
        if constexpr (S == Streams::again) {
          prefetch_in_order<Keys>(k, span.k_ahead + g, (begin / 2 + p) * NP, d / 2);
        }
        if constexpr (S == Streams::no) NextGroups::prefetch(next, begin / 2 + p);
        I of[NP];
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) {
          const T* at = k[j] + first + p * Keys::kPair;
          if constexpr (S == Streams::once) {
            prefetch_line<S, Keys>(at, span.k_ahead[g + j], begin / 2 + p);
          }
          of[j] = pairs_from<Keys>(at);
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

  template <int MR, class Keys, Streams S>
  HEADRACE_INLINE void score(const SpanGroups& span, int64_t first, int64_t end, const uint16_t* q,
                             int64_t d, const NextGroups& next, float* scores) {
    with_rows<kGroups>(end - first, [&]<int NP>() {
      score_groups<MR, NP, Keys, S>(span, first, q, d, next, scores);
    });
  }

  // Two groups at a time: 16 pairs of neighbours. Of bf16 V the rounded p are summed, added to the
  // lanes as p . 1; of the others p before its token's scale and its rounding.
  template <class V>
  HEADRACE_INLINE F weigh(const AttentionArgs& a, const SpanGroups& span, const Seen& seen,
                          int64_t first, int64_t end, F shift, float* scores, F sums) {
    const uint16_t ones[2] = {0x3f80, 0x3f80};
    for (int64_t g = first / 2 * 2; g < end; g += 2) {
      F p[2];
      for (int j = 0; j < 2; ++j) {
        const int64_t group = g + j;
        p[j] = Seen::keep(seen, group, exp(sub(load(scores + group * kLanes), shift)), zero());
        if constexpr (kNarrow<V>) {
          if (group < first || group >= end) continue;
          sums = add(sums, p[j]);
          if (span.near) continue;
          // What a stranger left as a scale may be NaN.
          p[j] = Seen::keep(seen, group, V::weighed(span.v[group], a.kv.v_scale, p[j]), zero());
        }
      }
      const I pairs = reinterpret_cast<I>(_mm512_cvtne2ps_pbh(p[1], p[0]));
      _mm512_storeu_si512(reinterpret_cast<uint16_t*>(scores) + g * kLanes, pairs);
      if constexpr (!kNarrow<V>) sums = add_pairs(sums, pairs, ones);
    }
    return sums;
  }

  // Adds a pair of tokens, of whose values those of `kept` stay.
  template <int MR, int NP, class Values, Streams S, bool Edge>
  HEADRACE_INLINE void add_tokens(F (&c)[MR][NP], const uint16_t* p, const typename Values::T* v,
                                  int64_t ahead, int64_t pair, I kept) {
    constexpr int64_t kPanel = kLanes / 2 * Values::kPair;
    I of[NP];
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) {
      prefetch_line<S, Values>(v + j * kPanel, ahead, pair);
      of[j] = pairs_from<Values>(v + j * kPanel);
      if constexpr (Edge) of[j] = _mm512_and_si512(of[j], kept);
    }
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) c[i][j] = add_pairs(c[i][j], of[j], p + i * kWeights);
    }
  }

  template <int MR, int NP, class Values, Streams S>
  HEADRACE_APART void mix_panels(const SpanGroups& span, const Seen& seen, int64_t panel,
                                 const uint16_t* p, const float* keep, float* mixed,
                                 int64_t width) {
    using T = typename Values::T;
    constexpr int64_t kPanel = kLanes / 2 * Values::kPair;
    const I first_only = _mm512_set1_epi32(0xffff), second_only = _mm512_set1_epi32(-65536);
    F c[MR][NP];
    clear(c);
    for (int64_t at = seen.begin / kLanes * kLanes; at < seen.end; at += kLanes) {
      const T* v = reinterpret_cast<const T*>(span.v_values[at / kLanes]) + panel * kPanel;
      const int64_t ahead = span.v_ahead[at / kLanes];
      const int64_t n = seen.end - at < kLanes ? seen.end - at : kLanes;
      int64_t t = seen.begin > at ? seen.begin - at : 0;
      v += t / 2 * Values::kPair;
      if (t % 2 != 0) {
        add_tokens<MR, NP, Values, S, true>(c, p + at + t - 1, v, ahead, t / 2, second_only);
        v += Values::kPair;
        ++t;
      }
      for (; t + 2 <= n; t += 2, v += Values::kPair) {
        add_tokens<MR, NP, Values, S, false>(c, p + at + t, v, ahead, t / 2, first_only);
      }
      if (t < n) {
        add_tokens<MR, NP, Values, S, true>(c, p + at + t, v, ahead, t / 2, first_only);
      }
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

  template <int MR, class Values, Streams S>
  HEADRACE_INLINE void mix(const SpanGroups& span, const Seen& seen, const float* p,
                           const float* keep, float* mixed, int64_t panels) {
    constexpr int kMost = kPanels<MR, Values>;
    for (int64_t panel = 0; panel < panels; panel += kMost) {
      const int64_t left = panels - panel;
      with_rows<kMost>(left < kMost ? left : kMost, [&]<int NP>() {
        mix_panels<MR, NP, Values, S>(span, seen, panel, reinterpret_cast<const uint16_t*>(p),
                                      keep, mixed, panels * kLanes);
      });
    }
  }
};

// Pairs, but chains where K, or V, is f32.
struct ByPairs {
  static constexpr int kRows = kPairSpanRows, kFew = kFewRows, kDirect = kFewRows;
  static constexpr int64_t kDecodedRows = kFewRows + 1;
  template <class Reader>
  using Products = std::conditional_t<Reader::kCodec == KvCodec::f32, ChainProducts, PairProducts>;
};

}  // namespace
