// Passes over a row of scores: the largest of its blocks, sums of weights, what lies above a bound.

#pragma once

#include "elementwise.h"
#include "kernels.h"

namespace {

using headrace::kRowBlock;
using headrace::Weighing;

static_assert(kRowBlock % kLanes == 0);

static float highest(const float* x, int64_t n, float* highest_of) {
  const F none = splat(-__builtin_inff());
  F most = none;
  bool nan = false;
  for (int64_t begin = 0; begin < n; begin += kRowBlock) {
    F own = none;
    if (n - begin >= kRowBlock) {
      F second = none;
      for (int64_t i = begin; i < begin + kRowBlock; i += 2 * kLanes) {
        const F v = load(x + i), w = load(x + i + kLanes);
        nan |= any_nan(v, w);
        own = at_least(v, own);
        second = at_least(w, second);
      }
      own = at_least(own, second);
    } else {
      for (int64_t i = begin; i < n; i += kLanes) {
        const F v = select(first(n - i), load_n(x + i, n - i), none);
        nan |= any_nan(v, v);
        own = at_least(v, own);
      }
    }
    *highest_of++ = largest(own);
    most = at_least(own, most);
  }
  return nan ? __builtin_nanf("") : largest(most);
}

template <bool kDivided>
HEADRACE_INLINE F weight_of(const Weighing& w, F x) {
  F shifted = sub(x, splat(w.most));
  if constexpr (kDivided) shifted = div(shifted, splat(w.temperature));
  const F weight = select(above(x, splat(w.bound)), exp(shifted), zero());
  return select(reaches(weight, splat(w.least)), weight, zero());
}

template <bool kDivided>
static void weigh_blocks(const Weighing& w, const float* x, int64_t n, const float* highest_of,
                         int64_t* sums) {
  for (int64_t begin = 0, block = 0; begin < n; begin += kRowBlock, ++block) {
    sums[block] = 0;
    if (highest_of != nullptr && !(highest_of[block] > w.bound)) continue;
    FixedSum sum = no_sum();
    if (n - begin >= kRowBlock) {
      for (int64_t i = begin; i < begin + kRowBlock; i += kLanes) {
        sum = add_fixed(sum, weight_of<kDivided>(w, load(x + i)));
      }
    } else {
      for (int64_t i = begin; i < n; i += kLanes) {
        const F weight = weight_of<kDivided>(w, load_n(x + i, n - i));
        sum = add_fixed(sum, select(first(n - i), weight, zero()));
      }
    }
    sums[block] = total(sum);
  }
}

static void weigh(const Weighing& w, const float* x, int64_t n, const float* highest_of,
                  int64_t* sums) {
  // Divided by 1 a number is what it was.
  if (w.temperature == 1.0f) return weigh_blocks<false>(w, x, n, highest_of, sums);
  weigh_blocks<true>(w, x, n, highest_of, sums);
}

static int64_t count_above(const float* x, int64_t n, const float* highest_of, float bound) {
  const F least = splat(bound);
  int64_t number = 0;
  for (int64_t begin = 0, block = 0; begin < n; begin += kRowBlock, ++block) {
    if (highest_of != nullptr && !(highest_of[block] > bound)) continue;
    const int64_t end = n - begin < kRowBlock ? n : begin + kRowBlock;
    for (int64_t i = begin; i < end; i += kLanes) {
      number += count(both(first(end - i), above(load_n(x + i, end - i), least)));
    }
  }
  return number;
}

static int64_t take(const float* x, int64_t n, const float* highest_of, float bound, float most,
                    float* to) {
  const F least = splat(bound), limit = splat(most);
  int64_t number = 0;
  for (int64_t begin = 0, block = 0; begin < n; begin += kRowBlock, ++block) {
    if (highest_of != nullptr && !(highest_of[block] > bound)) continue;
    const int64_t end = n - begin < kRowBlock ? n : begin + kRowBlock;
    for (int64_t i = begin; i < end; i += kLanes) {
      const F v = load_n(x + i, end - i);
      const M kept = both(first(end - i), both(above(v, least), reaches(limit, v)));
      number += compress(to + number, v, kept);
    }
  }
  return number;
}

static void mask_scores(const float* x, int64_t n, const uint32_t* mask, float* y) {
  const F none = splat(-__builtin_inff());
  for (int64_t i = 0; i < n; i += kLanes) {
    const uint32_t bits = mask[i / 32] >> i % 32;
    store_n(y + i, select(lanes(bits & 0xffffu), load_n(x + i, n - i), none), n - i);
  }
}

}  // namespace
