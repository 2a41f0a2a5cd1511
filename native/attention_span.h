// What the kernels of attention know of a span of 64 positions: where its K and V lie, and what a
// token sees of it.

#pragma once

#include "chains.h"
#include "decoded.h"
#include "kernels.h"
#include "kv_readers.h"

namespace {

using headrace::AttentionArgs;

constexpr int64_t kGroups = kSpan / kLanes;

// Where the span's groups of 16 tokens lie, their values (behind the scales, or made ready
// elsewhere), and how far from each group the same one of the next span is (0 where there is none).
struct SpanGroups {
  int64_t start;   // the first position
  bool near;       // of tokens of this span: K and V in bf16, without scales
  bool k_decoded;  // values are bf16
  bool v_decoded;
  const uint8_t* k[kGroups];
  const uint8_t* v[kGroups];
  const uint8_t* k_values[kGroups];
  const uint8_t* v_values[kGroups];
  int64_t k_ahead[kGroups];
  int64_t v_ahead[kGroups];
};

// Groups of the next span that a block of many rows prefetches, into the second level: each block
// some of them, and of each as many lines at every pair of q . K, for all at once are more than a
// core can have under way.
struct NextGroups {
  const uint8_t* at[2 * kGroups];
  int64_t step[2 * kGroups];  // bytes of each at a pair
  int64_t count;

  // Those of rows [done, done + more) of `all`. What is decoded prefetches itself.
  HEADRACE_INLINE NextGroups share(const headrace::KvLayer& kv, const SpanGroups& span,
                                   int64_t done, int64_t more, int64_t all) {
    NextGroups next;
    next.count = 0;
    const int64_t pairs = kv.head_dim / 2;
    for (int64_t i = 2 * kGroups * done / all; i < 2 * kGroups * (done + more) / all; ++i) {
      const int64_t g = i % kGroups;
      const bool of_k = i < kGroups;
      const int64_t ahead = of_k ? span.k_ahead[g] : span.v_ahead[g];
      if (ahead == 0 || (of_k ? span.k_decoded : span.v_decoded)) continue;
      next.at[next.count] = (of_k ? span.k[g] : span.v[g]) + ahead;
      next.step[next.count++] = ((of_k ? kv.k_group_bytes : kv.v_group_bytes) + pairs - 1) / pairs;
    }
    return next;
  }
  HEADRACE_INLINE void prefetch(const NextGroups& n, int64_t pair) {
    for (int64_t i = 0; i < n.count; ++i) {
      const uint8_t* at = n.at[i] + pair * n.step[i];
      for (int64_t b = 0; b < n.step[i]; b += 64) prefetch_far(at + b);
    }
  }
};

// Whether K and V stream from memory as a block of rows meets them, and so prefetch those of the
// next span: not of many rows (NextGroups); once, where no other block meets the same; or again for
// each block.
enum class Streams { no, once, again };

constexpr uint64_t kWhole = ~uint64_t{0};

// Positions of a span that a token sees, a bit for each: those of `shown`, all of which lie in
// [begin, end). Products run over all of the interval.
struct Seen {
  int64_t begin;
  int64_t end;
  uint64_t shown;

  // Of the interval what is in the mask; nothing where it begins behind the span.
  HEADRACE_INLINE Seen of(int64_t begin, int64_t end, uint64_t mask) {
    if (begin >= kSpan) return {kSpan, kSpan, 0};
    const uint64_t before_end = end >= kSpan ? kWhole : (uint64_t{1} << end) - 1;
    return {begin, end < kSpan ? end : kSpan, mask & before_end & kWhole << begin};
  }
  HEADRACE_INLINE bool same(const Seen& s, const Seen& other) {
    return s.begin == other.begin && s.end == other.end && s.shown == other.shown;
  }
  // The interval of both; what each of them is shown is its own.
  HEADRACE_INLINE Seen hull(const Seen& s, const Seen& other) {
    return {s.begin < other.begin ? s.begin : other.begin, s.end > other.end ? s.end : other.end,
            s.shown | other.shown};
  }
  HEADRACE_INLINE int64_t first_group(const Seen& s) { return s.begin / kLanes; }
  HEADRACE_INLINE int64_t end_group(const Seen& s) { return (s.end + kLanes - 1) / kLanes; }
  // `x` in the lanes of the group that are seen, `other` elsewhere.
  HEADRACE_INLINE F keep(const Seen& s, int64_t group, F x, F other) {
    return s.shown == kWhole ? x : select(lanes(s.shown >> group * kLanes), x, other);
  }
};

// Whether nothing that p meets in a group is NaN or infinite: zero times it is then zero, so that
// tokens that see different parts of the group may go through it together. Codes always are.
template <class V>
static bool meets_finite(const uint8_t* group, const uint8_t* values, float scale,
                         int64_t panels) {
  // Several sums: one would wait for itself.
  constexpr int64_t kSums = 4;
  F sums[kSums] = {V::weighed(group, scale, zero()), zero(), zero(), zero()};
  if constexpr (!kNarrow<V>) {
    const auto* v = reinterpret_cast<const typename V::T*>(values);
    static_assert(kLanes / 2 % kSums == 0);
    for (int64_t pair = 0; pair < panels * (kLanes / 2); pair += kSums) {
HEADRACE_UNROLL
      for (int64_t i = 0; i < kSums; ++i, v += V::Values::kPair) {
        F e, o;
        V::Values::read(v, e, o);
        sums[i] = fma(o, zero(), fma(e, zero(), sums[i]));
      }
    }
  }
  const F sum = add(add(sums[0], sums[1]), add(sums[2], sums[3]));
  return !any_nan(sum, sum);
}

}  // namespace
