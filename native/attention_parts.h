// Parts of a long context in attention. The sums of a row over the positions of a part are its own,
// and are joined to those of the parts before, in ascending order: by whoever went through all of
// them, or from memory where threads had a part each. Bits do not depend on which.
//
// Of two parts the maximum is the larger one, and the sums of p and of p * v of either are scaled
// by exp(its maximum - that one) before they are added. A row's first part is taken as it is: the
// first in which it sees something. Its sink belongs to no part: it is added to the sum of p when
// all are joined.

#pragma once

#include "attention_rows.h"

namespace {

using headrace::AttentionItem;
using headrace::kPart;

// Floats of the sums of a row: of p * v, then of p [16] and [16] of which the maximum is used.
static int64_t sums_width(const KvLayer& kv) { return padded(kv.value_dim) + 2 * kLanes; }

// The sums of a row, where they are kept or joined.
struct RowSums {
  float* mixed;
  float* total;
  float* most;
};
HEADRACE_INLINE RowSums sums_at(float* at, int64_t width) {
  return {at, at + width, at + width + kLanes};
}
HEADRACE_INLINE RowSums sums_of(const RowState& s, int64_t row, int64_t width) {
  return {s.mixed + row * width, s.total + row * kLanes, s.most + row * kLanes};
}

// Rows of an item that each of its kv heads has.
HEADRACE_INLINE int64_t rows_of_head(const AttentionItem& item) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < item.count; ++i) tokens += item.runs[i].end - item.runs[i].begin;
  return tokens * (item.q_end - item.q_begin);
}

// The q head of a row, of `of_head` for each kv head.
HEADRACE_INLINE int64_t q_head_of(const AttentionArgs& a, const AttentionItem& item,
                                  int64_t of_head, int64_t row) {
  const int64_t kv_head = item.head + row / of_head;
  return kv_head * a.group + item.q_begin + row % of_head % (item.q_end - item.q_begin);
}

// Nothing is joined yet; what `mixed` holds is not read.
HEADRACE_INLINE void begin_sums(const RowSums& s) {
  store(s.total, zero());
  *s.most = -__builtin_inff();
}

HEADRACE_INLINE void empty_sums(const RowSums& s, int64_t width) {
  for (int64_t i = 0; i < width; i += kLanes) store(s.mixed + i, zero());
  begin_sums(s);
}

HEADRACE_INLINE void copy_sums(const RowSums& from, const RowSums& to, int64_t width) {
  for (int64_t i = 0; i < width; i += kLanes) store(to.mixed + i, load(from.mixed + i));
  store(to.total, load(from.total));
  *to.most = *from.most;
}

// What a mask hides whole has no sums; a NaN among them is none of that kind.
HEADRACE_INLINE bool is_empty(const RowSums& s) {
  return *s.most == -__builtin_inff() && sum(load(s.total)) == 0.0f;
}

// `later` is added to `to`.
HEADRACE_INLINE void join_sums(const RowSums& to, const RowSums& later, int64_t width) {
  if (is_empty(later)) return;
  if (is_empty(to)) return copy_sums(later, to, width);
  const float most = *later.most > *to.most ? *later.most : *to.most;
  const F before = exp(sub(splat(*to.most), splat(most)));
  const F now = exp(sub(splat(*later.most), splat(most)));
  for (int64_t i = 0; i < width; i += kLanes) {
    store(to.mixed + i, add(mul(load(to.mixed + i), before), mul(load(later.mixed + i), now)));
  }
  store(to.total, add(mul(load(to.total), before), mul(load(later.total), now)));
  *to.most = most;
}

// Rows [row, row + count) whose tokens saw something before position `start`, where a part
// begins, and go on in it: their sums join those of the parts before.
static void end_part(const AttentionArgs& a, const RowState& s, int64_t row, int64_t count,
                     int64_t start) {
  const int64_t width = a.kv.v_panels * kLanes;
  for (int64_t i = row; i < row + count; ++i) {
    const int64_t position = a.batch.positions[token_of(s, i)];
    const int64_t first = first_seen(a.sees, position);
    if (position < start || first >= start) continue;
    const RowSums part = sums_of(s, i, width);
    join_sums(sums_at(s.joined + i * sums_width(a.kv), width), part, width);
    empty_sums(part, width);
  }
}

// The attention of a q head of a token. A sink so far above the largest score that its weight is
// infinite leaves nothing of the values.
HEADRACE_INLINE void write_row(const AttentionArgs& a, int64_t token, int64_t q_head,
                               const RowSums& of) {
  const KvLayer& kv = a.kv;
  F whole = splat(sum(load(of.total)));
  if (a.sinks != nullptr) whole = add(whole, exp(sub(splat(a.sinks[q_head]), splat(*of.most))));
  float* y = a.y + (token * kv.heads * a.group + q_head) * kv.value_dim;
  for (int64_t i = 0; i < kv.value_dim; i += kLanes) {
    store_n(y + i, div(load(of.mixed + i), whole), kv.value_dim - i);
  }
  if (kv.v_rotated) rotate(y, kv.value_dim);
}

// The rows of an item of which threads had a part each: `sums` has those of all its rows in the
// part of `begin`, and then in those that follow.
static void join_parts(const AttentionArgs& a, const AttentionItem& item, float* sums) {
  const int64_t width = a.kv.v_panels * kLanes, each = sums_width(a.kv);
  const int64_t heads = item.q_end - item.q_begin, first_token = item.runs->begin;
  const int64_t of_head = rows_of_head(item), rows = of_head * item.heads;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t token = first_token + row % of_head / heads, position = a.batch.positions[token];
    const auto part_at = [&](int64_t part) {
      return sums_at(sums + ((part - item.begin / kPart) * rows + row) * each, width);
    };
    const int64_t first = first_seen(a.sees, position) / kPart, last = position / kPart;
    const RowSums all = part_at(first);
    for (int64_t part = first + 1; part <= last; ++part) join_sums(all, part_at(part), width);
    write_row(a, token, q_head_of(a, item, of_head, row), all);
  }
}

}  // namespace
