// The way of an item of attention through its spans: those that several requests share once for all
// of them, the others for each, near ones as they are kept in bf16. Spans are visited in ascending
// order.

#pragma once

#include "attention_parts.h"
#include "attention_rows.h"
#include "attention_span.h"
#include "kernels.h"
#include "kv_readers.h"
#include "latent.h"
#include "linear.h"

namespace {

using headrace::AttentionItem;
using headrace::AttentionRun;

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

// The first span of an item, or of its first run.
HEADRACE_INLINE SpanGroups first_groups(const AttentionArgs& a, const AttentionItem& item) {
  const int32_t* const at = a.batch.positions;
  const int64_t known = int64_t{at[item.runs->end - 1]} + 1;
  int64_t first = first_seen(a.sees, at[item.runs->begin]);
  if (first < item.begin) first = item.begin;
  SpanGroups span = {};
  find_groups(a, item.runs->request, item.head, first / kSpan * kSpan, first, known, &span);
  return span;
}

// Prefetches a group where no product of this item, which would do so on its way, meets the one
// before it.
HEADRACE_INLINE void prefetch_group(const KvLayer& kv, const SpanGroups& span, int64_t g) {
  for (int64_t i = 0; i < kv.k_group_bytes; i += 64) prefetch_far(span.k[g] + i);
  if (kv.latent) return;
  for (int64_t i = 0; i < kv.v_group_bytes; i += 64) prefetch_far(span.v[g] + i);
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

// Some rows of an item, of its first kv head and likewise of each, and the spans that they go
// through: those at positions [from, to) of which they see something, as the block table of
// `request` has them. Their tokens are of that request, or the spans lie before those that the
// tokens are in.
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
  // Whether the next walk is of this request, too: behind spans that several share.
  const bool goes_on = item.sums == nullptr && w.to < known;
  find_groups(a, w.request, item.head, first / kSpan * kSpan, first, known, &next);
  int64_t seeing = 0;  // the first token that the span's start does not lie behind
  for (int64_t start = first / kSpan * kSpan; start < w.to; start += kSpan) {
    while (position_at(seeing) < start) ++seeing;
    // The first token that reads this span as it is stored for good.
    int64_t behind = seeing;
    while (kv.near_k != nullptr && behind < tokens && position_at(behind) < start + kSpan) ++behind;
    for (int64_t h = 0; h < item.heads; ++h) {
      const int64_t row = w.row + h * s.of_head;
      if (start % kPart == 0 && s.joined != nullptr) end_part(a, s, row, w.rows, start);
      span = next;
      if (h + 1 < item.heads) {
        find_groups(a, w.request, item.head + h + 1, start, first, known, &next);
      } else if (start + kSpan < w.to || goes_on) {
        find_groups(a, w.request, item.head, start + kSpan, first, known, &next);
      } else if (stream && s.after != nullptr) {
        for (int64_t g = 0; g < kGroups; ++g) {
          if (s.after->k[g] == nullptr) continue;  // behind the window's beginning
          next.k[g] = s.after->k[g];
          next.v[g] = s.after->v[g];
          if (start + g * kLanes >= known) prefetch_group(kv, *s.after, g);
        }
      }
      for (int64_t g = 0; g < kGroups && behind < tokens; ++g) {
        if (span.k[g] == nullptr) continue;
        span.k_ahead[g] = next.k[g] - span.k[g];
        if (!kv.latent) span.v_ahead[g] = next.v[g] - span.v[g];
        // At the end a span has groups of the one before that nothing sees.
        if (start + g * kLanes >= known) continue;
        make_keys(kv, span, g, s.keys + g * made_k_bytes(kv));
        make_values(kv, span, g, s.values + g * made_v_bytes(kv));
      }
      // Tokens that see the same of the span go together, and others with them where what they do
      // not see of each other's values may be multiplied by zero.
      const auto go = [&](const SpanGroups& of, int64_t from, int64_t to, bool streamed) {
        bool checked = false, finite = false;
        for (int64_t token = from, end; token < to; token = end) {
          end = token + 1;
          const Seen seen = seen_of(a, token_at(token), start);
          if (seen.begin >= kSpan) continue;
          SpanRows all{row + token * heads, 0, seen, true};
          for (; end < to; ++end) {
            const Seen other = seen_of(a, token_at(end), start);
            if (Seen::same(seen, other)) continue;
            if (other.begin >= kSpan) break;
            if (!checked) finite = span_is_finite(kv, of, first, known);
            checked = true;
            if (!finite) break;
            all.alike = false;
          }
          all.rows = (end - token) * heads;
          if (!all.alike || seen.shown != 0) span_all<Way>(a, of, all, s, streamed);
        }
      };
      go(span, behind, tokens, stream);
      if (behind > seeing) {
        go(near_groups(a, w.request, item.head + h, start, first, known, s.values), seeing, behind,
           false);
      }
    }
  }
}

// Runs [first, end) of an item, which share what comes before position `from`, from there on:
// together as far as they share more, and then in those parts that do. Their rows begin at `row`.
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

}  // namespace
