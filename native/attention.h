// Causal attention of some tokens, seen by some kv heads, with an online softmax. They are of one
// request or of several whose block tables begin alike: then a span that these share is read once
// for all. Of few tokens kv heads go through each span one after the other, for their K, and their
// V, lie behind each other.
//
// Spans of 64 positions at multiples of 64 are visited in ascending order, from the one in which a
// window begins. For each row (one q head of one token) and span: 64 scores, their maximum, p =
// exp(score - maximum), then the sums of p and of p * v, older sums scaled by exp(old maximum -
// new). Which rows are computed together changes nothing: every row's sums are its own. Positions
// outside the interval a token sees are left out of its sums, or have p = 0 where others of the
// item see them and all that p meets is finite; those within it that its mask lacks have p = 0.
//
// The sums begin anew in each part of a long context, and are joined (attention_parts.h).

#pragma once

#include "attention_parts.h"
#include "attention_rows.h"
#include "attention_walk.h"
#include "elementwise.h"
#include "kernels.h"
#include "kv_readers.h"
#include "rotate.h"

namespace {

static int64_t attention_scratch_bytes(int64_t rows, const KvLayer& kv) {
  const int64_t values = rows * (padded(kv.head_dim) + 2 * sums_width(kv));
  return values * static_cast<int64_t>(sizeof(float)) +
         kGroups * (made_k_bytes(kv) + made_v_bytes(kv));
}

// Rows of q, and of y, lie scattered over memory: so many of them ahead are prefetched.
constexpr int64_t kRowsAhead = 6;

HEADRACE_INLINE void prefetch_row(const float* row, int64_t width) {
  for (int64_t i = 0; i < width; i += kLanes) prefetch(row + i);
}

// q of every row of a run and a kv head, from row `first` on (rounded as K's codec has it, turned
// as K is), and empty sums.
template <class Way, class K>
HEADRACE_INLINE void start_rows(const AttentionArgs& a, const AttentionItem& item, int64_t kv_head,
                                const AttentionRun& run, int64_t first, const RowState& s) {
  using Products = typename Way::template Products<K>;
  const int64_t d = a.kv.head_dim, width = a.kv.v_panels * kLanes;
  const int64_t heads = item.q_end - item.q_begin, end = first + (run.end - run.begin) * heads;
  const auto token_at = [&](int64_t row) {
    return static_cast<int32_t>(run.begin + (row - first) / heads);
  };
  const auto head_at = [&](int64_t row) {
    return kv_head * a.group + item.q_begin + (row - first) % heads;
  };
  const auto q_at = [&](int64_t row) {
    return a.qkv + token_at(row) * a.row_width + head_at(row) * d;
  };
  alignas(64) float turned[kNarrow<K> ? headrace::kMostRotated : 1];
  for (int64_t row = first; row < end; ++row) {
    const int32_t token = token_at(row);
    const int64_t head = head_at(row);
    const float* from = q_at(row);
    if (row + kRowsAhead < end) prefetch_row(q_at(row + kRowsAhead), d);
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
    empty_sums(sums_of(s, row, width), width);
    if (s.joined != nullptr) begin_sums(sums_at(s.joined + row * sums_width(a.kv), width));
    float* most = s.most + row * kLanes;
    most[kSlope] = a.slopes != nullptr ? a.slopes[head] : 0.0f;
    __builtin_memcpy(most + kPosition, a.batch.positions + token, sizeof(int32_t));
    __builtin_memcpy(most + kToken, &token, sizeof token);
  }
}

template <class Way>
static void attention(const AttentionArgs& a, const AttentionItem& item, const AttentionItem* after,
                      void* scratch) {
  const KvLayer& kv = a.kv;
  const int64_t heads = item.q_end - item.q_begin, width = kv.v_panels * kLanes;
  RowState s;
  s.of_head = rows_of_head(item);
  const int64_t rows = s.of_head * item.heads;
  s.q = scratch;
  s.mixed = static_cast<float*>(scratch) + rows * padded(kv.head_dim);
  s.total = s.mixed + rows * width;
  s.most = s.total + rows * kLanes;
  float* const joined = s.most + rows * kLanes;
  s.joined = item.sums == nullptr ? joined : nullptr;
  s.keys = reinterpret_cast<uint8_t*>(joined + rows * sums_width(kv));
  s.values = s.keys + kGroups * made_k_bytes(kv);
  SpanGroups begins = {};
  if (after != nullptr) begins = first_groups(a, *after);
  s.after = after == nullptr ? nullptr : &begins;
  for (int64_t i = 0, row = 0; i < item.count; ++i) {
    const AttentionRun& run = item.runs[i];
    with_reader(kv.k_codec, [&]<class K>() {
      for (int64_t h = 0; h < item.heads; ++h) {
        start_rows<Way, K>(a, item, item.head + h, run, row + h * s.of_head, s);
      }
    });
    const int64_t of_run = (run.end - run.begin) * heads;
    if (item.from > 0) {
      walk<Way>(a, item, s, {run.request, row, of_run, 0, item.from,
                             int64_t{a.batch.positions[run.end - 1]} + 1});
    }
    row += of_run;
  }
  const int64_t each = sums_width(kv);
  if (item.sums != nullptr) {
    const int64_t known = int64_t{a.batch.positions[item.runs->end - 1]} + 1;
    walk<Way>(a, item, s, {item.runs->request, 0, s.of_head, item.begin,
                           item.end < known ? item.end : known, known});
    for (int64_t row = 0; row < rows; ++row) {
      copy_sums(sums_of(s, row, width), sums_at(item.sums + row * each, width), width);
    }
    return;
  }
  walk_runs<Way>(a, item, s, 0, item.count, 0, item.from);

  const auto y_at = [&](int64_t row) {
    const int64_t head = q_head_of(a, item, s.of_head, row);
    return a.y + (token_of(s, row) * kv.heads * a.group + head) * kv.value_dim;
  };
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; row + kRowsAhead < rows && i < kv.value_dim; i += kLanes) {
      prefetch_to_write(y_at(row + kRowsAhead) + i);
    }
    const RowSums all = sums_at(s.joined + row * each, width);
    join_sums(all, sums_of(s, row, width), width);
    write_row(a, token_of(s, row), q_head_of(a, item, s.of_head, row), all);
  }
}

}  // namespace
