// Causal attention of some tokens of one request, seen by one kv head, with an online softmax.
//
// Spans of 64 positions at multiples of 64 are visited in ascending order. For each row (one q head
// of one token) and span: 64 scores, their maximum, p = exp(score - maximum), then the sums of p
// and of p * v, older sums scaled by exp(old maximum - new). Which rows are computed together
// changes nothing: every row's sums are its own. Positions past a token's own are left out of its
// sums (not multiplied by zero: what lies there may be anything).

#pragma once

#include "chains.h"
#include "elementwise.h"
#include "kernels.h"
#include "linear.h"

namespace {

using headrace::AttentionArgs;
using headrace::AttentionItem;

constexpr int64_t kGroups = kSpan / kLanes;

// Scratch of an item, after each other: q [rows][head_dim], then per row the sums of p * v
// [panels * 16], of p [16] and the maximum.
struct RowState {
  float* q;
  float* mixed;
  float* total;
  float* most;
};

static int64_t attention_scratch_bytes(int64_t rows, int64_t head_dim) {
  const int64_t padded = (head_dim + kLanes - 1) / kLanes * kLanes;
  return rows * (2 * padded + 2 * kLanes) * static_cast<int64_t>(sizeof(float));
}

// Where the span's groups of 16 tokens lie.
struct SpanGroups {
  const uint8_t* k[kGroups];
  const uint8_t* v[kGroups];
};

// scores [MR][64] of the first `groups` groups.
template <int MR, class Pairs>
HEADRACE_INLINE void score_span(const AttentionArgs& a, const SpanGroups& span, int64_t groups,
                                const float* q, float* scores) {
  using C = Chains<MR, 1, Pairs>;
  using T = typename Pairs::T;
  const F scale = splat(a.scale);
  const int64_t d = a.kv.head_dim;
  for (int64_t g = 0; g < groups; ++g) {
    const T* k = reinterpret_cast<const T*>(span.k[g]);
    F sums[MR];
    for (int i = 0; i < MR; ++i) sums[i] = zero();
    for (int64_t begin = 0; begin < d; begin += kTile) {
      const int64_t end = d - begin < kTile ? d : begin + kTile;
      C c;
      C::clear(c);
      for (int64_t at = begin; at < end; at += 2) {
        C::pair(c, q + at, d, k, 0);
        k += Pairs::kPair;
      }
      for (int i = 0; i < MR; ++i) sums[i] = add(sums[i], add(c.e[i][0], c.o[i][0]));
    }
    for (int i = 0; i < MR; ++i) store(scores + i * kSpan + g * kLanes, mul(sums[i], scale));
  }
}

// Scores of one row become its p; returns what older sums have to be scaled by.
HEADRACE_INLINE float soften(float* scores, int64_t tokens, bool round, float* most, float* total) {
  const int64_t groups = (tokens + kLanes - 1) / kLanes;
  const F none = splat(-__builtin_inff());
  F high = none;
  for (int64_t g = 0; g < groups; ++g) {
    const F s = select(first(tokens - g * kLanes), load(scores + g * kLanes), none);
    high = at_least(s, high);
  }
  const float top = largest(high), now = top > *most ? top : *most;
  const F shift = splat(now);
  const F keep = exp(sub(splat(*most), shift));
  F sum_p = mul(load(total), keep);
  for (int64_t g = 0; g < groups; ++g) {
    F p = exp(sub(load(scores + g * kLanes), shift));
    if (round) p = round_bf16(p);
    p = select(first(tokens - g * kLanes), p, zero());
    store(scores + g * kLanes, p);
    sum_p = add(sum_p, p);
  }
  store(total, sum_p);
  *most = now;
  float kept[kLanes];
  store(kept, keep);
  return kept[0];
}

// mixed = mixed * keep + p . V over the first `tokens` tokens, for MR rows and NP panels of d.
template <int MR, int NP, class Pairs>
HEADRACE_INLINE void mix_panels(const AttentionArgs& a, const SpanGroups& span, int64_t tokens,
                                int64_t panel, const float* p, const float* keep, float* mixed) {
  using C = Chains<MR, NP, Pairs>;
  using T = typename Pairs::T;
  const int64_t width = a.kv.d_panels * kLanes;
  constexpr int64_t kPanel = 8 * Pairs::kPair;
  F sums[MR][NP];
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NP; ++j) {
      sums[i][j] = mul(load(mixed + i * width + (panel + j) * kLanes), splat(keep[i]));
    }
  }
  for (int64_t begin = 0; begin < tokens; begin += kTile) {
    C c;
    C::clear(c);
    const int64_t end = tokens - begin < kTile ? tokens : begin + kTile;
    for (int64_t at = begin; at < end; at += kLanes) {
      const T* v = reinterpret_cast<const T*>(span.v[at / kLanes]) + panel * kPanel;
      const int64_t n = end - at < kLanes ? end - at : kLanes;
      int64_t t = 0;
      for (; t + 2 <= n; t += 2) {
        C::pair(c, p + at + t, kSpan, v, kPanel);
        v += Pairs::kPair;
      }
      if (t < n) C::single(c, p + at + t, kSpan, v, kPanel);
    }
    for (int i = 0; i < MR; ++i) {
      for (int j = 0; j < NP; ++j) sums[i][j] = add(sums[i][j], add(c.e[i][j], c.o[i][j]));
    }
  }
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NP; ++j) store(mixed + i * width + (panel + j) * kLanes, sums[i][j]);
  }
}

// One span for MR rows that see the same `tokens` of it.
template <int MR, class KPairs, class VPairs>
static void span_rows(const AttentionArgs& a, const SpanGroups& span, int64_t tokens,
                      const RowState& s) {
  alignas(64) float scores[MR * kSpan];
  float keep[MR];
  score_span<MR, KPairs>(a, span, (tokens + kLanes - 1) / kLanes, s.q, scores);
  for (int i = 0; i < MR; ++i) {
    keep[i] = soften(scores + i * kSpan, tokens, a.kv.v_bf16, s.most + i * kLanes,
                     s.total + i * kLanes);
  }
  int64_t panel = 0;
  for (; panel + 2 <= a.kv.d_panels; panel += 2) {
    mix_panels<MR, 2, VPairs>(a, span, tokens, panel, scores, keep, s.mixed);
  }
  if (panel < a.kv.d_panels) {
    mix_panels<MR, 1, VPairs>(a, span, tokens, panel, scores, keep, s.mixed);
  }
}

// One span for `rows` rows from `row` on.
template <class KPairs, class VPairs>
static void span_all(const AttentionArgs& a, const SpanGroups& span, int64_t tokens,
                     const RowState& s, int64_t row, int64_t rows) {
  const int64_t width = a.kv.d_panels * kLanes;
  for (int64_t i = row; i < row + rows; i += kBlockRows) {
    const int64_t left = row + rows - i;
    const RowState at{s.q + i * a.kv.head_dim, s.mixed + i * width, s.total + i * kLanes,
                      s.most + i * kLanes};
    with_rows<kBlockRows>(left < kBlockRows ? left : kBlockRows, [&]<int MR>() {
      span_rows<MR, KPairs, VPairs>(a, span, tokens, at);
    });
  }
}

HEADRACE_INLINE void run_span(const AttentionArgs& a, const SpanGroups& span, int64_t tokens,
                              const RowState& s, int64_t row, int64_t rows) {
  if (a.kv.k_bf16) {
    if (a.kv.v_bf16) return span_all<BF16Pairs, BF16Pairs>(a, span, tokens, s, row, rows);
    return span_all<BF16Pairs, F32Pairs>(a, span, tokens, s, row, rows);
  }
  if (a.kv.v_bf16) return span_all<F32Pairs, BF16Pairs>(a, span, tokens, s, row, rows);
  return span_all<F32Pairs, F32Pairs>(a, span, tokens, s, row, rows);
}

// q of every row of the item (rounded where K is), and empty sums.
HEADRACE_INLINE void start_rows(const AttentionArgs& a, const AttentionItem& item,
                                const RowState& s) {
  const int64_t d = a.kv.head_dim, width = a.kv.d_panels * kLanes;
  for (int64_t row = 0; row < (item.end - item.begin) * a.group; ++row) {
    const float* from = a.qkv + (item.begin + row / a.group) * a.row_width +
                        (item.head * a.group + row % a.group) * d;
    for (int64_t i = 0; i < d; i += kLanes) {
      const F q = load_n(from + i, d - i);
      store_n(s.q + row * d + i, a.kv.k_bf16 ? round_bf16(q) : q, d - i);
    }
    for (int64_t i = 0; i < width; i += kLanes) store(s.mixed + row * width + i, zero());
    store(s.total + row * kLanes, zero());
    s.most[row * kLanes] = -__builtin_inff();
  }
}

static void attention(const AttentionArgs& a, const AttentionItem& item, void* scratch) {
  const KvLayer& kv = a.kv;
  const int64_t tokens = item.end - item.begin, rows = tokens * a.group;
  const int64_t d = kv.head_dim, width = kv.d_panels * kLanes;
  RowState s;
  s.q = static_cast<float*>(scratch);
  s.mixed = s.q + rows * width;
  s.total = s.mixed + rows * width;
  s.most = s.total + rows * kLanes;
  start_rows(a, item, s);

  const int32_t* positions = a.batch.positions + item.begin;
  const int32_t* table = a.batch.block_tables + item.request * a.batch.table_width;
  const int64_t groups_of_block = kv.block_size / kLanes;
  const int64_t last = positions[tokens - 1];
  int64_t seeing = 0;  // the first token that sees anything of the span
  for (int64_t start = 0; start <= last; start += kSpan) {
    const int64_t known = last + 1 - start;
    SpanGroups span;
    for (int64_t g = 0; g < kGroups && g * kLanes < known; ++g) {
      const int64_t at = start / kLanes + g, block = table[at / groups_of_block];
      const int64_t group = (block * kv.heads + item.head) * groups_of_block + at % groups_of_block;
      span.k[g] = kv.k + group * kv.k_group_bytes;
      span.v[g] = kv.v + group * kv.v_group_bytes;
    }
    while (positions[seeing] < start) ++seeing;
    int64_t token = seeing;
    for (; token < tokens && positions[token] + 1 < start + kSpan; ++token) {
      run_span(a, span, positions[token] + 1 - start, s, token * a.group, a.group);
    }
    if (token < tokens) run_span(a, span, kSpan, s, token * a.group, (tokens - token) * a.group);
  }

  for (int64_t row = 0; row < rows; ++row) {
    const F whole = splat(sum(load(s.total + row * kLanes)));
    float* y = a.y + ((item.begin + row / a.group) * kv.heads * a.group + item.head * a.group +
                      row % a.group) * d;
    for (int64_t i = 0; i < d; i += kLanes) {
      store_n(y + i, div(load(s.mixed + row * width + i), whole), d - i);
    }
  }
}

}  // namespace
