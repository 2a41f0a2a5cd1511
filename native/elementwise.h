// Exponential, the largest of a row, rotary embedding, and the writing of K and V.

#pragma once

#include "kernels.h"
#include "kv_readers.h"
#include "norm.h"

namespace {

using headrace::KvWriteArgs;
using headrace::RopeArgs;

// e^x = 2^n * e^r with n = nearest(x / ln 2), |r| <= ln 2 / 2. ln 2 is split so that n times its
// upper part is exact; the polynomial 1 + r + r^2 * p(r) is a minimax fit (relative error 3e-9).
// Below -104 the result is zero (denormals are flushed), above 89 it is infinity; exp(0) is 1.
HEADRACE_INLINE F exp(F x) {
  const F bounded = at_most(splat(89.0f), at_least(splat(-104.0f), x));
  const F n = nearest(mul(bounded, splat(1.44269504f)));
  const F r = fnma(n, splat(-2.12194440e-4f), fnma(n, splat(0.693359375f), bounded));
  F p = splat(0x1.6a215ap-10f);
  p = fma(p, r, splat(0x1.123b9ap-7f));
  p = fma(p, r, splat(0x1.5558fcp-5f));
  p = fma(p, r, splat(0x1.555490p-3f));
  p = fma(p, r, splat(0x1.fffffcp-2f));
  p = fma(mul(r, r), p, r);
  return scale_by_power(add(p, splat(1.0f)), n);
}

static void exp_shifted(const float* x, int64_t n, float shift, float divisor, float* y) {
  const F d = splat(divisor), s = splat(shift);
  for (int64_t i = 0; i < n; i += kLanes) {
    store_n(y + i, exp(div(sub(load_n(x + i, n - i), s), d)), n - i);
  }
}

static float highest(const float* x, int64_t n) {
  F most = splat(-__builtin_inff());
  bool nan = false;
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t left = n - i;
    const F v = left >= kLanes ? load(x + i)
                               : select(first(left), load_n(x + i, left), most);
    nan |= any_nan(v);
    most = at_least(v, most);
  }
  return nan ? __builtin_nanf("") : largest(most);
}

static void rope(const RopeArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* cos = a.cos + a.positions[row] * a.half;
    const float* sin = a.sin + a.positions[row] * a.half;
    for (int64_t h = 0; h < a.num_q_heads + a.num_k_heads; ++h) {
      float* head = a.qkv + row * a.row_width + h * a.head_dim;
      const bool is_q = h < a.num_q_heads;
      const float* weight = is_q ? a.q_weight : a.k_weight;
      if (weight != nullptr) {
        const NormWeights rms = {weight, nullptr, is_q ? a.q_eps : a.k_eps, false};
        norm_row(rms, head, nullptr, a.head_dim, head);
      }
      for (int64_t i = 0; i < a.half; i += kLanes) {
        const int64_t left = a.half - i;
        const F c = load_n(cos + i, left), s = load_n(sin + i, left);
        const F low = load_n(head + i, left), high = load_n(head + a.half + i, left);
        store_n(head + i, fnma(high, s, mul(low, c)), left);
        store_n(head + a.half + i, fma(low, s, mul(high, c)), left);
      }
    }
  }
}

template <class K, class V>
static void write_tokens(const KvWriteArgs& a, int64_t token_begin, int64_t token_end) {
  const KvLayer& kv = a.kv;
  const int64_t groups = kv.block_size / kLanes;
  for (int64_t token = token_begin; token < token_end; ++token) {
    const int64_t position = a.batch.positions[token], slot = position % kv.block_size;
    const int64_t block = a.batch.block_tables[a.request_of[token] * a.batch.table_width +
                                               position / kv.block_size];
    const float* row = a.qkv + token * a.row_width;
    for (int64_t h = 0; h < kv.heads; ++h) {
      const int64_t page = block * kv.page_bytes, group = h * groups + slot / kLanes;
      K::write_key(kv.k + page + group * kv.k_group_bytes, slot % kLanes,
                   row + a.k_column + h * kv.head_dim, kv.head_dim);
      if (kv.latent) continue;
      V::write_value(kv.v + page + group * kv.v_group_bytes, slot % kLanes,
                     row + a.v_column + h * kv.value_dim, kv.value_dim);
    }
  }
}

static void kv_write(const KvWriteArgs& a, int64_t token_begin, int64_t token_end) {
  with_readers(a.kv, [&]<class K, class V>() { write_tokens<K, V>(a, token_begin, token_end); });
}

}  // namespace
