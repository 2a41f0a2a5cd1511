// Causal attention of some tokens, seen by one kv head, with an online softmax. They are of one request
// or of several whose block tables begin alike: then a span that these share is read once for all.
//
// Spans of 64 positions at multiples of 64 are visited in ascending order, from the one in which a
// window begins. For each row (one q head of one token) and span: 64 scores, their maximum,
// p = exp(score - maximum), then the sums of p and of p * v, older sums scaled by exp(old maximum -
// new). Which rows are computed together changes nothing: every row's sums are its own. Positions
// outside the interval a token sees are left out of its sums, or have p = 0 where others of the item
// see them and all that p meets is finite; those within it that its mask lacks have p = 0.

#pragma once

#include <type_traits>

#include "activation.h"
#include "attention_chains.h"
#include "attention_span.h"
#include "decoded.h"
#include "elementwise.h"
#include "kernels.h"
#include "kv_readers.h"
#include "latent.h"
#include "linear.h"
#include "rotate.h"

namespace {

using headrace::AttentionItem;
using headrace::AttentionRun;

// Scratch of an item, after each other: q [rows][head_dim] as its products take it, in room for
// floats, then per row the sums of p * v [v_panels * 16], of p [16] and [16] of which four are
// used: the maximum, the slope of its head, its position and its token (int32). Then K and V of a span
// where they are decoded or latent.
struct RowState {
  void* q;
  float* mixed;
  float* total;
  float* most;
  uint8_t* keys;
  uint8_t* values;
};
constexpr int64_t kSlope = 1, kPosition = 2, kToken = 3;

HEADRACE_INLINE int32_t token_of(const RowState& s, int64_t row) {
  int32_t token;
  __builtin_memcpy(&token, s.most + row * kLanes + kToken, sizeof token);
  return token;
}

HEADRACE_INLINE int64_t padded(int64_t width) { return (width + kLanes - 1) / kLanes * kLanes; }

static bool narrow(KvCodec codec) { return facts(codec).value_bits < 16; }

// Bytes of a group of 16 tokens that is made ready for the kernels: decoded to bf16, or latent values
// in the layout of V.
static int64_t made_k_bytes(const KvLayer& kv) {
  return narrow(kv.k_codec) ? kv_group_bytes(KvCodec::bf16, kv.head_dim) : 0;
}
static int64_t made_v_bytes(const KvLayer& kv) {
  const bool decoded = narrow(kv.v_codec);
  if (!decoded && !kv.latent) return 0;
  return kv_group_bytes(decoded ? KvCodec::bf16 : kv.v_codec, kv.v_panels * kLanes);
}

static int64_t attention_scratch_bytes(int64_t rows, const KvLayer& kv) {
  const int64_t values = rows * (padded(kv.head_dim) + padded(kv.value_dim) + 2 * kLanes);
  return values * static_cast<int64_t>(sizeof(float)) + kGroups * (made_k_bytes(kv) + made_v_bytes(kv));
}

// How far the positions of a group lie behind (below zero) that of a row.
HEADRACE_INLINE F distances(const SpanGroups& span, int64_t group, const float* most) {
  alignas(64) static const float lane[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                 8, 9, 10, 11, 12, 13, 14, 15};
  int32_t position;
  __builtin_memcpy(&position, most + kPosition, sizeof position);
  return add(load(lane), splat(static_cast<float>(span.start + group * kLanes - position)));
}

// q.K of one row, of groups [first, end), become its p; returns what older sums have to be scaled by.
template <class Products, class V>
HEADRACE_INLINE float soften(const AttentionArgs& a, const SpanGroups& span, float* scores,
                             const Seen& seen, int64_t first, int64_t end, float* most,
                             float* total) {
  const F none = splat(-__builtin_inff());
  F high = none;
  for (int64_t g = first; g < end; ++g) {
    F s = mul(load(scores + g * kLanes), splat(a.scale));
    if (a.softcap != 0.0f) s = soft_capped(s, splat(a.softcap));
    if (a.slopes != nullptr) s = add(s, mul(splat(most[kSlope]), distances(span, g, most)));
    store(scores + g * kLanes, s);
    high = at_least(Seen::keep(seen, g, s, none), high);
  }
  const float top = largest(high), now = top > *most ? top : *most;
  const F shift = splat(now);
  // exp(0) is 1, so an unchanged maximum needs no exponential.
  const F keep = now == *most ? splat(1.0f) : exp(sub(splat(*most), shift));
  store(total, Products::template weigh<V>(a, span, seen, first, end, shift, scores,
                                           mul(load(total), keep)));
  *most = now;
  float kept[kLanes];
  store(kept, keep);
  return kept[0];
}

// What a token sees of the span from `start`; nothing where begin is kSpan.
HEADRACE_INLINE Seen seen_of(const AttentionArgs& a, int64_t token, int64_t start) {
  const int64_t position = a.batch.positions[token];
  const int64_t begin = first_seen(a.sees, position) - start, end = position + 1 - start;
  const uint64_t* masks = a.sees.masks;
  return Seen::of(begin > 0 ? begin : 0, end,
                  masks == nullptr ? kWhole : masks[token * a.sees.mask_spans + start / kSpan]);
}

// Rows of an item that see something of a span, from `row` on. What the first sees is `seen`; where
// others do not see the same, each is asked for its own.
struct SpanRows {
  int64_t row;
  int64_t rows;
  Seen seen;
  bool alike;
};

// One span for MR rows from `row` on, that see this of it. Which readers these are is looked up here,
// so that every level has each of them once for K and once for V, and not once for each pair.
template <class Way, int MR, bool Stream>
static void span_rows(const AttentionArgs& a, const SpanGroups& span, const Seen* seen,
                      const RowState& s, int64_t row) {
  alignas(64) float scores[MR * kSpan];
  float keep[MR];
  Seen all = seen[0];
  for (int i = 1; i < MR; ++i) all = Seen::hull(all, seen[i]);
  const int64_t first = Seen::first_group(all), end = Seen::end_group(all);
  with_reader(a.kv.k_codec, [&]<class K>() {
    using Products = typename Way::template Products<K>;
    const auto* q = static_cast<const typename Products::Q*>(s.q) + row * a.kv.head_dim;
    constexpr bool kDecoded = kNarrow<K> && MR > Way::kDirect;
    if (kDecoded || (kNarrow<K> && span.k_decoded)) {
      Products::template score<MR, BF16Pairs, Stream>(span, first, end, q, a.kv.head_dim, scores);
    } else if constexpr (!kDecoded) {
      Products::template score<MR, typename K::Keys, Stream>(span, first, end, q, a.kv.head_dim,
                                                             scores);
    }
    if constexpr (kNarrow<K>) {
      for (int64_t g = first; g < end && !span.near; ++g) {
        ask_scales<Stream, K>(span.k[g], span.k_ahead[g]);
        for (int i = 0; i < MR; ++i) {
          float* sums = scores + i * kSpan + g * kLanes;
          store(sums, K::scored(span.k[g], a.kv.k_scale, load(sums)));
        }
      }
    }
  });
  with_reader(a.kv.v_codec, [&]<class V>() {
    using Products = typename Way::template Products<V>;
    for (int64_t g = first; g < end; ++g) ask_scales<Stream, V>(span.v[g], span.v_ahead[g]);
    for (int i = 0; i < MR; ++i) {
      keep[i] = soften<Products, V>(a, span, scores + i * kSpan, seen[i], first, end,
                                    s.most + (row + i) * kLanes, s.total + (row + i) * kLanes);
    }
    float* mixed = s.mixed + row * a.kv.v_panels * kLanes;
    constexpr bool kDecoded = kNarrow<V> && MR > Way::kDirect;
    if (kDecoded || (kNarrow<V> && span.v_decoded)) {
      Products::template mix<MR, BF16Pairs, Stream>(span, all, scores, keep, mixed,
                                                    a.kv.v_panels);
    } else if constexpr (!kDecoded) {
      Products::template mix<MR, typename V::Values, Stream>(span, all, scores, keep, mixed,
                                                             a.kv.v_panels);
    }
  });
}

// The values of a group where the kernels read them: behind its scales, or made ready in `to`. Latent
// ones are a part of the keys, whose values and scales are there already.
HEADRACE_INLINE void make_keys(const KvLayer& kv, SpanGroups& span, int64_t g, uint8_t* to) {
  with_reader(kv.k_codec, [&]<class K>() {
    span.k_values[g] = span.k[g] + kv_scales_bytes(K::kCodec);
    if constexpr (kNarrow<K>) {
      if (!span.k_decoded) return;
      using Keys = typename K::Keys;
      decode_pairs<Keys>(values_of<K>(span.k[g]), span.k_ahead[g], kv.head_dim / 2,
                         reinterpret_cast<uint16_t*>(to));
      span.k_values[g] = to;
    }
  });
}
HEADRACE_INLINE void make_values(const KvLayer& kv, SpanGroups& span, int64_t g, uint8_t* to) {
  with_reader(kv.v_codec, [&]<class V>() {
    if (kv.latent) {
      span.v[g] = span.k[g];
      span.v_values[g] = to;
      using As = std::conditional_t<kNarrow<V>, KvReader<KvCodec::bf16>, V>;
      unpack_values<As>(kv, span.k_values[g], to);
      return;
    }
    span.v_values[g] = span.v[g] + kv_scales_bytes(V::kCodec);
    if constexpr (kNarrow<V>) {
      if (!span.v_decoded) return;
      decode_pairs<typename V::Values>(values_of<V>(span.v[g]), span.v_ahead[g],
                                       kv.v_panels * (kLanes / 2), reinterpret_cast<uint16_t*>(to));
      span.v_values[g] = to;
    }
  });
}

// One span for all rows that see something of it, in blocks about as large as each other.
template <class Way>
HEADRACE_APART void span_all(const AttentionArgs& a, const SpanGroups& span, const SpanRows& of,
                             const RowState& s, bool stream) {
  const int64_t most = stream ? Way::kFew : Way::kRows;
  for (int64_t i = 0, now; i < of.rows; i += now) {
    const int64_t left = of.rows - i, blocks = (left + most - 1) / most;
    now = (left + blocks - 1) / blocks;
    Seen seen[Way::kRows];
    for (int64_t j = 0; j < now; ++j) {
      seen[j] = of.alike ? of.seen : seen_of(a, token_of(s, of.row + i + j), span.start);
    }
    // Of many rows the first ask for the next span.
    const bool asks = stream || (Way::kAsks && i == 0 && !span.k_decoded && !span.v_decoded);
    with_rows<Way::kRows>(now, [&]<int MR>() {
      const auto go = asks ? span_rows<Way, MR, true> : span_rows<Way, MR, false>;
      go(a, span, seen, s, of.row + i);
    });
  }
}

// q of every row of a run, from row `first` on (rounded as K's codec has it, turned as K is), and empty sums,
// or those of its head's sink: a score seen first, of a position without a value.
template <class Way, class K>
HEADRACE_INLINE void start_rows(const AttentionArgs& a, const AttentionItem& item,
                                const AttentionRun& run, int64_t first, const RowState& s) {
  using Products = typename Way::template Products<K>;
  const int64_t d = a.kv.head_dim, width = a.kv.v_panels * kLanes;
  const int64_t heads = item.q_end - item.q_begin;
  alignas(64) float turned[kNarrow<K> ? headrace::kMostRotated : 1];
  for (int64_t row = first; row < first + (run.end - run.begin) * heads; ++row) {
    const auto token = static_cast<int32_t>(run.begin + (row - first) / heads);
    const int64_t head = item.head * a.group + item.q_begin + (row - first) % heads;
    const float* from = a.qkv + token * a.row_width + head * d;
    auto* q = static_cast<typename Products::Q*>(s.q) + row * d;
    if constexpr (kNarrow<K>) {
      if (a.kv.k_rotated) {
        for (int64_t i = 0; i < d; i += kLanes) store_n(turned + i, load_n(from + i, d - i), d - i);
        rotate(turned, d);
        from = turned;
      }
    }
    for (int64_t i = 0; i < d; i += kLanes) {
      Products::store_q(q + i, K::rounded(load_n(from + i, d - i)), d - i);
    }
    for (int64_t i = 0; i < width; i += kLanes) store(s.mixed + row * width + i, zero());
    float* most = s.most + row * kLanes;
    store(s.total + row * kLanes, zero());
    if (a.sinks != nullptr) s.total[row * kLanes] = 1.0f;
    most[0] = a.sinks != nullptr ? a.sinks[head] : -__builtin_inff();
    most[kSlope] = a.slopes != nullptr ? a.slopes[head] : 0.0f;
    __builtin_memcpy(most + kPosition, a.batch.positions + token, sizeof(int32_t));
    __builtin_memcpy(most + kToken, &token, sizeof token);
  }
}

// Where the groups of the span from `start` lie that hold some of positions [first, known). The
// block table is not read for others.
HEADRACE_INLINE void find_groups(const AttentionArgs& a, int64_t request, int64_t head,
                                 int64_t start, int64_t first, int64_t known, SpanGroups* span) {
  const KvLayer& kv = a.kv;
  span->start = start;
  const int32_t* table = a.batch.block_tables + request * a.batch.table_width;
  const int64_t per_block = kv.block_size / kLanes;
  for (int64_t g = 0; g < kGroups && start + g * kLanes < known; ++g) {
    if (start + (g + 1) * kLanes <= first) continue;
    const int64_t at = start / kLanes + g;
    const int64_t page = table[at / per_block] * kv.page_bytes;
    const int64_t group = head * per_block + at % per_block;
    span->k[g] = kv.k + page + group * kv.k_group_bytes;
    if (!kv.latent) span->v[g] = kv.v + page + group * kv.v_group_bytes;
  }
}

// The span of some tokens of a request, in which all of them are, as it is kept in bf16.
HEADRACE_INLINE SpanGroups near_groups(const AttentionArgs& a, int64_t request, int64_t head,
                                       int64_t start, int64_t first, int64_t known,
                                       uint8_t* values) {
  using Near = KvReader<KvCodec::bf16>;
  AttentionArgs near = a;
  near.kv = near_layer(a.kv);
  near.batch = near_batch(a.batch);
  SpanGroups span = {};
  find_groups(near, request, head, start, first, known, &span);
  span.near = span.k_decoded = span.v_decoded = true;
  for (int64_t g = 0; g < kGroups; ++g) {
    if (span.k[g] == nullptr) continue;
    span.k_values[g] = span.k[g];
    span.v_values[g] = span.v[g];
    if (!a.kv.latent) continue;
    span.v_values[g] = values + g * made_v_bytes(a.kv);
    unpack_values<Near>(near.kv, span.k[g], values + g * made_v_bytes(a.kv));
  }
  return span;
}

// Whether what p meets in the groups that hold positions [first, known) is finite.
static bool span_is_finite(const KvLayer& kv, const SpanGroups& span, int64_t first,
                           int64_t known) {
  bool finite = true;
  for (int64_t g = 0; g < kGroups; ++g) {
    const int64_t at = span.start + g * kLanes;
    if (at >= known || at + kLanes <= first) continue;
    with_reader(kv.v_codec, [&]<class V>() {
      using Near = KvReader<KvCodec::bf16>;
      finite &= span.near ? meets_finite<Near>(span.v[g], span.v_values[g], 1, kv.v_panels)
                          : meets_finite<V>(span.v[g], span.v_values[g], kv.v_scale, kv.v_panels);
    });
  }
  return finite;
}

// Some rows of an item and the spans that they go through: those at positions [from, to) of which they
// see something, as the block table of `request` has them. Their tokens are of that request, or the
// spans lie before those that the tokens are in.
struct Walk {
  int64_t request;
  int64_t row;
  int64_t rows;
  int64_t from;
  int64_t to;
  int64_t known;  // positions that the request has
};

template <class Way>
static void walk(const AttentionArgs& a, const AttentionItem& item, const RowState& s,
                 const Walk& w) {
  const KvLayer& kv = a.kv;
  const int64_t heads = item.q_end - item.q_begin, tokens = w.rows / heads;
  const auto token_at = [&](int64_t i) { return token_of(s, w.row + i * heads); };
  const auto position_at = [&](int64_t i) { return a.batch.positions[token_at(i)]; };
  int64_t first = w.known;
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t seen = first_seen(a.sees, position_at(i));
    if (seen < first) first = seen;
  }
  if (first < w.from) first = w.from;
  if (first >= w.to) return;
  const bool many = kv.latent || w.rows >= Way::kDecodedRows;
  SpanGroups span = {}, next = {};
  next.k_decoded = many && narrow(kv.k_codec);
  next.v_decoded = many && narrow(kv.v_codec);
  const bool stream = w.rows <= kStreamRows && !next.k_decoded;
  const int64_t known = w.known;
  find_groups(a, w.request, item.head, first / kSpan * kSpan, first, known, &next);
  int64_t seeing = 0;  // the first token that the span's start does not lie behind
  for (int64_t start = first / kSpan * kSpan; start < w.to; start += kSpan) {
    span = next;
    find_groups(a, w.request, item.head, start + kSpan, first, known, &next);
    while (position_at(seeing) < start) ++seeing;
    // The first token that reads this span as it is stored for good.
    int64_t behind = seeing;
    while (kv.near_k != nullptr && behind < tokens && position_at(behind) < start + kSpan) ++behind;
    for (int64_t g = 0; g < kGroups && behind < tokens; ++g) {
      if (span.k[g] == nullptr) continue;
      span.k_ahead[g] = next.k[g] - span.k[g];
      if (!kv.latent) span.v_ahead[g] = next.v[g] - span.v[g];
      // At the end a span has groups of the one before that nothing sees.
      if (start + g * kLanes >= known) continue;
      make_keys(kv, span, g, s.keys + g * made_k_bytes(kv));
      make_values(kv, span, g, s.values + g * made_v_bytes(kv));
    }
    // Tokens that see the same of the span go together, and others with them where what they do not
    // see of each other's values may be multiplied by zero.
    const auto go = [&](const SpanGroups& of, int64_t from, int64_t to, bool streamed) {
      bool asked = false, finite = false;
      for (int64_t token = from, end; token < to; token = end) {
        end = token + 1;
        const Seen seen = seen_of(a, token_at(token), start);
        if (seen.begin >= kSpan) continue;
        SpanRows all{w.row + token * heads, 0, seen, true};
        for (; end < to; ++end) {
          const Seen other = seen_of(a, token_at(end), start);
          if (Seen::same(seen, other)) continue;
          if (other.begin >= kSpan) break;
          if (!asked) finite = span_is_finite(kv, of, first, known);
          asked = true;
          if (!finite) break;
          all.alike = false;
        }
        all.rows = (end - token) * heads;
        if (!all.alike || seen.shown != 0) span_all<Way>(a, of, all, s, streamed);
      }
    };
    go(span, behind, tokens, stream);
    if (behind > seeing) {
      go(near_groups(a, w.request, item.head, start, first, known, s.values), seeing, behind,
         false);
    }
  }
}

// Runs [first, end) of an item, which share what comes before position `from`, from there on: together
// as far as they share more, and then in those parts that do. Their rows begin at `row`.
template <class Way>
static void walk_runs(const AttentionArgs& a, const AttentionItem& item, const RowState& s,
                      int64_t first, int64_t end, int64_t row, int64_t from) {
  const int64_t heads = item.q_end - item.q_begin;
  const AttentionRun& run = item.runs[first];
  const int64_t known = int64_t{a.batch.positions[run.end - 1]} + 1;
  int64_t rows = (run.end - run.begin) * heads, to = known;
  for (int64_t i = first + 1; i < end; ++i) {
    rows += (item.runs[i].end - item.runs[i].begin) * heads;
    if (item.runs[i].shared < to) to = item.runs[i].shared;
  }
  walk<Way>(a, item, s, {run.request, row, rows, from, to, known});
  for (int64_t i = first, next; first + 1 < end && i < end; i = next) {
    rows = 0;
    for (next = i; next < end && (next == i || item.runs[next].shared > to); ++next) {
      rows += (item.runs[next].end - item.runs[next].begin) * heads;
    }
    walk_runs<Way>(a, item, s, i, next, row, to);
    row += rows;
  }
}

template <class Way>
static void attention(const AttentionArgs& a, const AttentionItem& item, void* scratch) {
  const KvLayer& kv = a.kv;
  const int64_t heads = item.q_end - item.q_begin, width = kv.v_panels * kLanes;
  int64_t rows = 0;
  for (int64_t i = 0; i < item.count; ++i) {
    rows += (item.runs[i].end - item.runs[i].begin) * heads;
  }
  RowState s;
  s.q = scratch;
  s.mixed = static_cast<float*>(scratch) + rows * padded(kv.head_dim);
  s.total = s.mixed + rows * width;
  s.most = s.total + rows * kLanes;
  s.keys = reinterpret_cast<uint8_t*>(s.most + rows * kLanes);
  s.values = s.keys + kGroups * made_k_bytes(kv);
  for (int64_t i = 0, row = 0; i < item.count; ++i) {
    const AttentionRun& run = item.runs[i];
    with_reader(kv.k_codec, [&]<class K>() { start_rows<Way, K>(a, item, run, row, s); });
    const int64_t of_run = (run.end - run.begin) * heads;
    if (item.from > 0) {
      walk<Way>(a, item, s, {run.request, row, of_run, 0, item.from,
                             int64_t{a.batch.positions[run.end - 1]} + 1});
    }
    row += of_run;
  }
  walk_runs<Way>(a, item, s, 0, item.count, 0, item.from);

  for (int64_t row = 0; row < rows; ++row) {
    const F whole = splat(sum(load(s.total + row * kLanes)));
    const int64_t head = item.head * a.group + item.q_begin + row % heads;
    float* y = a.y + (token_of(s, row) * kv.heads * a.group + head) * kv.value_dim;
    for (int64_t i = 0; i < kv.value_dim; i += kLanes) {
      store_n(y + i, div(load(s.mixed + row * width + i), whole), kv.value_dim - i);
    }
    if (kv.v_rotated) rotate(y, kv.value_dim);
  }
}

}  // namespace
