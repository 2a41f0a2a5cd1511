// Exponential, rotary embedding, and the writing of K and V.

#pragma once

#include "kernels.h"
#include "kv_readers.h"
#include "norm.h"
#include "rotate.h"

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

// Heads of a row whose memory is prefetched: the loop over one waits for its norm.
constexpr int64_t kHeadsAhead = 4;

static void rope(const RopeArgs& a, int64_t row_begin, int64_t row_end) {
  const int64_t heads = a.num_q_heads + a.num_k_heads;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* cos = a.cos + a.positions[row] * a.half;
    const float* sin = a.sin + a.positions[row] * a.half;
    for (int64_t h = 0; h < heads; ++h) {
      float* head = a.qkv + row * a.row_width + h * a.head_dim;
      if (h + kHeadsAhead < heads || row + 1 < row_end) {
        const float* ahead = head + kHeadsAhead * a.head_dim;
        if (h + kHeadsAhead >= heads) ahead += a.row_width - heads * a.head_dim;
        for (int64_t i = 0; i < a.head_dim; i += kLanes) prefetch(ahead + i);
      }
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

// A head as it is stored: x, or turned, which then lies in `to`.
HEADRACE_INLINE const float* turned(bool rotated, const float* x, int64_t width, float* to) {
  if (!rotated) return x;
  for (int64_t i = 0; i < width; i += kLanes) store_n(to + i, load_n(x + i, width - i), width - i);
  rotate(to, width);
  return to;
}

// Calls put(the group's number within a layer's part of a block, which of the 16 tokens it is, the
// block, the row) for each token.
template <class Put>
HEADRACE_INLINE void for_slots(const KvWriteArgs& a, int64_t begin, int64_t end, const Put& put) {
  const int64_t size = a.kv.block_size;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t position = a.batch.positions[token], slot = position % size;
    const int32_t* table = a.batch.block_tables + a.request_of[token] * a.batch.table_width;
    put(slot / kLanes, slot % kLanes, table[position / size], a.qkv + token * a.row_width);
  }
}

template <class K>
static void write_keys(const KvWriteArgs& a, int64_t begin, int64_t end) {
  const KvLayer& kv = a.kv;
  float head[headrace::kMostRotated];
  for_slots(a, begin, end, [&](int64_t group, int64_t lane, int64_t block, const float* row) {
    uint8_t* at = kv.k + block * kv.page_bytes + group * kv.k_group_bytes;
    const float* k = row + a.k_column;
    for (int64_t h = 0; h < kv.heads; ++h, k += kv.head_dim) {
      K::write_key(at, lane, turned(kv.k_rotated, k, kv.head_dim, head), kv.head_dim, kv.k_scale);
      at += kv.block_size / kLanes * kv.k_group_bytes;
    }
  });
}

template <class V>
static void write_values(const KvWriteArgs& a, int64_t begin, int64_t end) {
  const KvLayer& kv = a.kv;
  float head[headrace::kMostRotated];
  for_slots(a, begin, end, [&](int64_t group, int64_t lane, int64_t block, const float* row) {
    uint8_t* at = kv.v + block * kv.page_bytes + group * kv.v_group_bytes;
    const float* v = row + a.v_column;
    for (int64_t h = 0; h < kv.heads; ++h, v += kv.value_dim) {
      V::write_value(at, lane, turned(kv.v_rotated, v, kv.value_dim, head), kv.value_dim,
                     kv.v_scale);
      at += kv.block_size / kLanes * kv.v_group_bytes;
    }
  });
}

static void kv_write(const KvWriteArgs& a, int64_t token_begin, int64_t token_end) {
  with_reader(a.kv.k_codec, [&]<class K>() { write_keys<K>(a, token_begin, token_end); });
  if (!a.kv.latent) {
    with_reader(a.kv.v_codec, [&]<class V>() { write_values<V>(a, token_begin, token_end); });
  }
  if (a.kv.near_k == nullptr) return;
  using Near = KvReader<KvCodec::bf16>;
  KvWriteArgs near = a;
  near.kv = near_layer(a.kv);
  near.batch = near_batch(a.batch);
  write_keys<Near>(near, token_begin, token_end);
  if (!a.kv.latent) write_values<Near>(near, token_begin, token_end);
}

}  // namespace
