// The rows of an item of attention, and what one span of K and V adds to some of them: 64 scores of
// each, their maximum, p = exp(score - maximum), then the sums of p and of p * v, older sums scaled
// by exp(old maximum - new).

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

namespace {

// Scratch of an item, after each other: q [rows][head_dim] as its products take it, in room for
// floats, then per row the sums of p * v [v_panels * 16], of p [16] and [16] of which four are
// used: the maximum, the slope of its head, its position and its token (int32). Then, of each row,
// such sums over the parts of a long context that are done. Then K and V of a span where they are
// decoded or latent.
struct RowState {
  void* q;
  float* mixed;
  float* total;
  float* most;
  uint8_t* keys;
  uint8_t* values;
  float* joined;  // sums of parts that are done, of each row; null where an item is one part
  int64_t of_head;  // rows of a kv head, which lie behind those of the one before
  const SpanGroups* after;  // where the next item begins, or null
};
constexpr int64_t kSlope = 1, kPosition = 2, kToken = 3;

HEADRACE_INLINE int32_t token_of(const RowState& s, int64_t row) {
  int32_t token;
  __builtin_memcpy(&token, s.most + row * kLanes + kToken, sizeof token);
  return token;
}

HEADRACE_INLINE int64_t padded(int64_t width) { return (width + kLanes - 1) / kLanes * kLanes; }

static bool narrow(KvCodec codec) { return facts(codec).value_bits < 16; }

// Bytes of a group of 16 tokens that is made ready for the kernels: decoded to bf16, or latent
// values in the layout of V.
static int64_t made_k_bytes(const KvLayer& kv) {
  return narrow(kv.k_codec) ? kv_group_bytes(KvCodec::bf16, kv.head_dim) : 0;
}
static int64_t made_v_bytes(const KvLayer& kv) {
  const bool decoded = narrow(kv.v_codec);
  if (!decoded && !kv.latent) return 0;
  return kv_group_bytes(decoded ? KvCodec::bf16 : kv.v_codec, kv.v_panels * kLanes);
}

// How far the positions of a group lie behind (below zero) that of a row.
HEADRACE_INLINE F distances(const SpanGroups& span, int64_t group, const float* most) {
  alignas(64) static const float lane[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                 8, 9, 10, 11, 12, 13, 14, 15};
  int32_t position;
  __builtin_memcpy(&position, most + kPosition, sizeof position);
  return add(load(lane), splat(static_cast<float>(span.start + group * kLanes - position)));
}

// q.K of MR rows, of groups [first, end), become their p; `keep`, of 16, has what older sums of
// each are scaled by. Every step is taken for all rows before the next one: what a row waits for,
// the largest of its scores, others fill, and one exponential serves all of them. kPlain: all rows
// see all of the span, and scores are only scaled, so that all of it is known beforehand.
template <class Products, class V, int MR, bool kPlain>
static void soften(const AttentionArgs& a, const SpanGroups& span, float* scores, const Seen* seen,
                   int64_t begin, int64_t stop, float* most, float* total, float* keep) {
  static_assert(MR <= kLanes);
  const int64_t first = kPlain ? 0 : begin, end = kPlain ? kGroups : stop;
  const auto seen_by = [&](int i) { return kPlain ? Seen{0, kSpan, kWhole} : seen[i]; };
  const F none = splat(-__builtin_inff());
  alignas(64) float before[kLanes] = {}, now[kLanes] = {};
  for (int i = 0; i < MR; ++i) {
    float* of_row = scores + i * kSpan;
    F high = none;
    for (int64_t g = first; g < end; ++g) {
      F s = mul(load(of_row + g * kLanes), splat(a.scale));
      if (!kPlain && a.softcap != 0.0f) s = soft_capped(s, splat(a.softcap));
      if (!kPlain && a.slopes != nullptr) {
        const float* row = most + i * kLanes;
        s = add(s, mul(splat(row[kSlope]), distances(span, g, row)));
      }
      store(of_row + g * kLanes, s);
      high = at_least(Seen::keep(seen_by(i), g, s, none), high);
    }
    const float top = largest(high);
    before[i] = most[i * kLanes];
    now[i] = top > before[i] ? top : before[i];
    most[i * kLanes] = now[i];
  }
  // exp(0) is 1, of a maximum that stays, perhaps at -inf.
  const F was = load(before), is = load(now);
  store(keep, exp(select(reaches(was, is), zero(), sub(was, is))));
  for (int i = 0; i < MR; ++i) {
    float* sums = total + i * kLanes;
    store(sums, Products::template weigh<V>(a, span, seen_by(i), first, end, splat(now[i]),
                                            scores + i * kSpan,
                                            mul(load(sums), splat(keep[i]))));
  }
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
// others do not see the same, what each sees is looked up.
struct SpanRows {
  int64_t row;
  int64_t rows;
  Seen seen;
  bool alike;
};

// One span for MR rows from `row` on, that see this of it. Which readers these are is looked up
// here, so that every level has each of them once for K and once for V, and not once for each pair.
template <class Way, int MR, Streams S>
static void span_rows(const AttentionArgs& a, const SpanGroups& span, const Seen* seen,
                      const RowState& s, int64_t row, const NextGroups& next) {
  alignas(64) float scores[MR * kSpan];
  alignas(64) float keep[kLanes];
  Seen all = seen[0];
  for (int i = 1; i < MR; ++i) all = Seen::hull(all, seen[i]);
  const int64_t first = Seen::first_group(all), end = Seen::end_group(all);
  with_reader(a.kv.k_codec, [&]<class K>() {
    using Products = typename Way::template Products<K>;
    const auto* q = static_cast<const typename Products::Q*>(s.q) + row * a.kv.head_dim;
    constexpr bool kDecoded = kNarrow<K> && MR > Way::kDirect;
    if (kDecoded || (kNarrow<K> && span.k_decoded)) {
      Products::template score<MR, BF16Pairs, S>(span, first, end, q, a.kv.head_dim, next,
                                                 scores);
    } else if constexpr (!kDecoded) {
      Products::template score<MR, typename K::Keys, S>(span, first, end, q, a.kv.head_dim, next,
                                                         scores);
    }
    if constexpr (kNarrow<K>) {
      for (int64_t g = first; g < end && !span.near; ++g) {
        prefetch_scales<S != Streams::no, K>(span.k[g], span.k_ahead[g]);
        for (int i = 0; i < MR; ++i) {
          float* sums = scores + i * kSpan + g * kLanes;
          store(sums, K::scored(span.k[g], a.kv.k_scale, load(sums)));
        }
      }
    }
  });
  with_reader(a.kv.v_codec, [&]<class V>() {
    using Products = typename Way::template Products<V>;
    for (int64_t g = first; g < end; ++g) {
      prefetch_scales<S != Streams::no, V>(span.v[g], span.v_ahead[g]);
    }
    bool plain = a.softcap == 0.0f && a.slopes == nullptr;
    for (int i = 0; i < MR; ++i) plain = plain && seen[i].shown == kWhole;
    const auto softened = plain ? soften<Products, V, MR, true> : soften<Products, V, MR, false>;
    softened(a, span, scores, seen, first, end, s.most + row * kLanes, s.total + row * kLanes,
             keep);
    float* mixed = s.mixed + row * a.kv.v_panels * kLanes;
    constexpr bool kDecoded = kNarrow<V> && MR > Way::kDirect;
    if (kDecoded || (kNarrow<V> && span.v_decoded)) {
      Products::template mix<MR, BF16Pairs, S>(span, all, scores, keep, mixed, a.kv.v_panels);
    } else if constexpr (!kDecoded) {
      Products::template mix<MR, typename V::Values, S>(span, all, scores, keep, mixed,
                                                        a.kv.v_panels);
    }
  });
}

// The values of a group where the kernels read them: behind its scales, or made ready in `to`.
// Latent ones are a part of the keys, whose values and scales are there already.
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
    if (stream) {
      with_rows<Way::kFew>(now, [&]<int MR>() {
        const auto rows = of.rows == now ? span_rows<Way, MR, Streams::once>
                                         : span_rows<Way, MR, Streams::again>;
        rows(a, span, seen, s, of.row + i, NextGroups{});
      });
      continue;
    }
    const NextGroups next = NextGroups::share(a.kv, span, i, now, of.rows);
    with_rows<Way::kRows>(now, [&]<int MR>() {
      span_rows<Way, MR, Streams::no>(a, span, seen, s, of.row + i, next);
    });
  }
}

}  // namespace
