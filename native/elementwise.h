// Exponential, the largest of a row, rotary embedding, and the writing of K and V.

#pragma once

#include "kernels.h"
#include "norm.h"

namespace {

using headrace::KvLayer;
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

// One K head of one token: a column of its group. `size` values of d belong to one store.
HEADRACE_INLINE void write_k(const KvLayer& kv, uint8_t* group, int64_t lane, const float* k) {
  for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
    const int64_t left = kv.head_dim - d, n = left < kLanes ? left : kLanes;
    const F v = load_n(k + d, n);
    if (kv.k_bf16) {
      uint16_t half[kLanes];
      store_bf16(half, round_bf16(v));
      uint16_t* to = reinterpret_cast<uint16_t*>(group) + lane * 2;
      for (int64_t i = 0; i < n; ++i) to[(d + i) / 2 * 32 + (d + i) % 2] = half[i];
    } else {
      float* to = reinterpret_cast<float*>(group) + lane;
      for (int64_t i = 0; i < n; ++i) to[(d + i) * kLanes] = k[d + i];
    }
  }
}

// One V head of one token: a row of each panel of its group, zeros past value_dim.
HEADRACE_INLINE void write_v(const KvLayer& kv, uint8_t* group, int64_t lane, const float* v) {
  for (int64_t panel = 0; panel < kv.v_panels; ++panel) {
    const F x = load_n(v + panel * kLanes, kv.value_dim - panel * kLanes);
    if (kv.v_bf16) {
      uint16_t half[kLanes];
      store_bf16(half, round_bf16(x));
      uint16_t* to = reinterpret_cast<uint16_t*>(group) + (panel * 8 + lane / 2) * 32 + lane % 2;
      for (int64_t i = 0; i < kLanes; ++i) to[2 * i] = half[i];
    } else {
      store(reinterpret_cast<float*>(group) + (panel * kLanes + lane) * kLanes, x);
    }
  }
}

static void kv_write(const KvWriteArgs& a, int64_t token_begin, int64_t token_end) {
  const KvLayer& kv = a.kv;
  const int64_t groups = kv.block_size / kLanes;
  for (int64_t token = token_begin; token < token_end; ++token) {
    const int64_t position = a.batch.positions[token], slot = position % kv.block_size;
    const int64_t block = a.batch.block_tables[a.request_of[token] * a.batch.table_width +
                                               position / kv.block_size];
    const float* row = a.qkv + token * a.row_width;
    for (int64_t h = 0; h < kv.heads; ++h) {
      const int64_t page = block * kv.page_bytes, group = h * groups + slot / kLanes;
      write_k(kv, kv.k + page + group * kv.k_group_bytes, slot % kLanes,
              row + a.k_column + h * kv.head_dim);
      if (kv.latent) continue;
      write_v(kv, kv.v + page + group * kv.v_group_bytes, slot % kLanes,
              row + a.v_column + h * kv.value_dim);
    }
  }
}

}  // namespace
