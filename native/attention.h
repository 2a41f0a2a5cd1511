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

// Where the span's groups of 16 tokens lie, and how far from each the same group of the next span
// does (0 where there is none).
struct SpanGroups {
  const uint8_t* k[kGroups];
  const uint8_t* v[kGroups];
  int64_t k_ahead[kGroups];
  int64_t v_ahead[kGroups];
};

// With few rows attention waits for memory, and groups lie scattered: those of the next span are
// asked for while these are computed.
template <bool Stream, class Pairs>
HEADRACE_INLINE void ask_ahead(const typename Pairs::T* at, int64_t ahead) {
  if constexpr (Stream) {
    constexpr int64_t kBytes = Pairs::kPair * sizeof(typename Pairs::T);
    for (int64_t b = 0; b < kBytes; b += 64) {
      prefetch(reinterpret_cast<const uint8_t*>(at) + ahead + b);
    }
  }
}

// q.K [MR][64] of groups [g, g + NP). Sums wait in memory between tiles: the chains need all the
// registers.
template <int MR, int NP, class Pairs, bool Stream>
HEADRACE_APART void score_groups(const SpanGroups& span, int64_t g, const float* q, int64_t d,
                                 float* scores) {
  using C = Chains<MR, NP, Pairs>;
  using T = typename Pairs::T;
  const T* k = reinterpret_cast<const T*>(span.k[g]);
  const int64_t apart = NP == 1 ? 0 : reinterpret_cast<const T*>(span.k[g + NP - 1]) - k;
  for (int64_t begin = 0; begin < d; begin += kTile) {
    const int64_t pairs = (d - begin < kTile ? d - begin : kTile) / 2;
    C c;
    C::clear(c);
    for (int64_t p = 0; p < pairs; ++p) {
      for (int j = 0; j < NP; ++j) ask_ahead<Stream, Pairs>(k + j * apart, span.k_ahead[g + j]);
      C::pair(c, q + begin + 2 * p, d, k, apart);
      k += Pairs::kPair;
    }
    for (int i = 0; i < MR; ++i) {
      for (int j = 0; j < NP; ++j) {
        float* sum = scores + i * kSpan + (g + j) * kLanes;
        const F tile = add(c.e[i][j], c.o[i][j]);
        store(sum, begin == 0 ? tile : add(load(sum), tile));
      }
    }
  }
}

// q.K of one row become its p; returns what older sums have to be scaled by.
HEADRACE_INLINE float soften(float* scores, int64_t tokens, float scale, bool round, float* most,
                             float* total) {
  const int64_t groups = (tokens + kLanes - 1) / kLanes;
  const F none = splat(-__builtin_inff());
  F high = none;
  for (int64_t g = 0; g < groups; ++g) {
    const F s = mul(load(scores + g * kLanes), splat(scale));
    store(scores + g * kLanes, s);
    high = at_least(select(first(tokens - g * kLanes), s, none), high);
  }
  const float top = largest(high), now = top > *most ? top : *most;
  const F shift = splat(now);
  // exp(0) is 1, so an unchanged maximum needs no exponential.
  const F keep = now == *most ? splat(1.0f) : exp(sub(splat(*most), shift));
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
template <int MR, int NP, class Pairs, bool Stream>
HEADRACE_APART void mix_panels(const SpanGroups& span, int64_t tokens, int64_t panel,
                               const float* p, const float* keep, float* mixed, int64_t width) {
  using C = Chains<MR, NP, Pairs>;
  using T = typename Pairs::T;
  constexpr int64_t kPanel = 8 * Pairs::kPair;
  for (int64_t begin = 0; begin < tokens; begin += kTile) {
    C c;
    C::clear(c);
    const int64_t end = tokens - begin < kTile ? tokens : begin + kTile;
    for (int64_t at = begin; at < end; at += kLanes) {
      const T* v = reinterpret_cast<const T*>(span.v[at / kLanes]) + panel * kPanel;
      const int64_t n = end - at < kLanes ? end - at : kLanes;
      for (int64_t t = 0; t + 2 <= n; t += 2) {
        for (int j = 0; j < NP; ++j) {
          ask_ahead<Stream, Pairs>(v + j * kPanel, span.v_ahead[at / kLanes]);
        }
        C::pair(c, p + at + t, kSpan, v, kPanel);
        v += Pairs::kPair;
      }
      if (n % 2 != 0) C::single(c, p + at + n - 1, kSpan, v, kPanel);
    }
    for (int i = 0; i < MR; ++i) {
      for (int j = 0; j < NP; ++j) {
        float* sum = mixed + i * width + (panel + j) * kLanes;
        const F older = begin == 0 ? mul(load(sum), splat(keep[i])) : load(sum);
        store(sum, add(older, add(c.e[i][j], c.o[i][j])));
      }
    }
  }
}

// One span for MR rows that see the same `tokens` of it.
template <int MR, class KPairs, class VPairs, bool Stream>
static void span_rows(const AttentionArgs& a, const SpanGroups& span, int64_t tokens,
                      const RowState& s) {
  alignas(64) float scores[MR * kSpan];
  float keep[MR];
  const int64_t groups = (tokens + kLanes - 1) / kLanes;
  for (int64_t g = 0; g < groups; g += kBlockPanels) {
    with_panels(groups - g < kBlockPanels ? groups - g : kBlockPanels, [&]<int NP>() {
      score_groups<MR, NP, KPairs, Stream>(span, g, s.q, a.kv.head_dim, scores);
    });
  }
  for (int i = 0; i < MR; ++i) {
    keep[i] = soften(scores + i * kSpan, tokens, a.scale, a.kv.v_bf16, s.most + i * kLanes,
                     s.total + i * kLanes);
  }
  const int64_t width = a.kv.d_panels * kLanes;
  for (int64_t panel = 0; panel < a.kv.d_panels; panel += kBlockPanels) {
    const int64_t left = a.kv.d_panels - panel;
    with_panels(left < kBlockPanels ? left : kBlockPanels, [&]<int NP>() {
      mix_panels<MR, NP, VPairs, Stream>(span, tokens, panel, scores, keep, s.mixed, width);
    });
  }
}

// One span for `rows` rows from `row` on.
template <class KPairs, class VPairs>
static void span_all(const AttentionArgs& a, const SpanGroups& span, int64_t tokens,
                     const RowState& s, int64_t row, int64_t rows, bool stream) {
  const int64_t width = a.kv.d_panels * kLanes;
  for (int64_t i = row; i < row + rows; i += kSpanRows) {
    const int64_t left = row + rows - i;
    const RowState at{s.q + i * a.kv.head_dim, s.mixed + i * width, s.total + i * kLanes,
                      s.most + i * kLanes};
    with_rows<kSpanRows>(left < kSpanRows ? left : kSpanRows, [&]<int MR>() {
      if (stream) {
        span_rows<MR, KPairs, VPairs, true>(a, span, tokens, at);
      } else {
        span_rows<MR, KPairs, VPairs, false>(a, span, tokens, at);
      }
    });
  }
}

HEADRACE_INLINE void run_span(const AttentionArgs& a, const SpanGroups& span, int64_t tokens,
                              const RowState& s, int64_t row, int64_t rows, bool stream) {
  if (a.kv.k_bf16) {
    if (a.kv.v_bf16) return span_all<BF16Pairs, BF16Pairs>(a, span, tokens, s, row, rows, stream);
    return span_all<BF16Pairs, F32Pairs>(a, span, tokens, s, row, rows, stream);
  }
  if (a.kv.v_bf16) return span_all<F32Pairs, BF16Pairs>(a, span, tokens, s, row, rows, stream);
  return span_all<F32Pairs, F32Pairs>(a, span, tokens, s, row, rows, stream);
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

// Where the groups of the span from `start` lie; `known` positions of the request exist.
HEADRACE_INLINE void find_groups(const AttentionArgs& a, const AttentionItem& item, int64_t start,
                                 int64_t known, SpanGroups* span) {
  const KvLayer& kv = a.kv;
  const int32_t* table = a.batch.block_tables + item.request * a.batch.table_width;
  const int64_t per_block = kv.block_size / kLanes;
  for (int64_t g = 0; g < kGroups && start + g * kLanes < known; ++g) {
    const int64_t at = start / kLanes + g;
    const int64_t group = (table[at / per_block] * kv.heads + item.head) * per_block +
                          at % per_block;
    span->k[g] = kv.k + group * kv.k_group_bytes;
    span->v[g] = kv.v + group * kv.v_group_bytes;
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
  const int64_t known = positions[tokens - 1] + 1;
  const bool stream = rows <= kStreamRows;
  SpanGroups span = {}, next = {};
  find_groups(a, item, 0, known, &next);
  int64_t seeing = 0;  // the first token that sees anything of the span
  for (int64_t start = 0; start < known; start += kSpan) {
    span = next;
    find_groups(a, item, start + kSpan, known, &next);
    for (int64_t g = 0; g < kGroups; ++g) {
      span.k_ahead[g] = next.k[g] - span.k[g];
      span.v_ahead[g] = next.v[g] - span.v[g];
    }
    while (positions[seeing] < start) ++seeing;
    int64_t token = seeing;
    for (; token < tokens && positions[token] + 1 < start + kSpan; ++token) {
      run_span(a, span, positions[token] + 1 - start, s, token * a.group, a.group, stream);
    }
    if (token < tokens) {
      run_span(a, span, kSpan, s, token * a.group, (tokens - token) * a.group, stream);
    }
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
