// Latent values made ready for p.V: they lie in the layout of keys, a column for each token, and
// are copied, bit for bit, to the layout of values. Generic vectors: every level compiles its own.

#pragma once

#include "kernels.h"

namespace {

using headrace::kLanes;
using headrace::KvLayer;

typedef uint32_t Words __attribute__((vector_size(32)));
typedef uint16_t Halves __attribute__((vector_size(32)));

// to[c][i] = from[i][c] of 8 x 8 words; rows are `apart` words from each other.
HEADRACE_INLINE void transpose(const uint32_t* from, int64_t apart, Words* to) {
  Words r[8], t[8], u[8];
HEADRACE_UNROLL
  for (int i = 0; i < 8; ++i) __builtin_memcpy(&r[i], from + i * apart, sizeof(Words));
HEADRACE_UNROLL
  for (int i = 0; i < 8; i += 2) {
    t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
HEADRACE_UNROLL
  for (int i = 0; i < 8; i += 4) {
HEADRACE_UNROLL
    for (int j = 0; j < 2; ++j) {
      u[i + 2 * j] = __builtin_shufflevector(t[i + j], t[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      u[i + 2 * j + 1] =
          __builtin_shufflevector(t[i + j], t[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
HEADRACE_UNROLL
  for (int i = 0; i < 4; ++i) {
    to[i] = __builtin_shufflevector(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    to[i + 4] = __builtin_shufflevector(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// A panel of 16 dimensions that begins at the even dimension d.
HEADRACE_INLINE void unpack_panel(const uint32_t* k, bool half, int64_t d, uint8_t* panel) {
  Words of[8];
  for (int64_t token = 0; token < kLanes; token += 8) {
    if (half) {
      transpose(k + d / 2 * kLanes + token, kLanes, of);
      uint16_t* to = reinterpret_cast<uint16_t*>(panel) + token / 2 * 32;
HEADRACE_UNROLL
      for (int c = 0; c < 8; c += 2) {
        Halves a, b;
        __builtin_memcpy(&a, &of[c], sizeof a);
        __builtin_memcpy(&b, &of[c + 1], sizeof b);
        const Halves low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21,
                                                   6, 22, 7, 23);
        const Halves high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                                    29, 14, 30, 15, 31);
        __builtin_memcpy(to + c / 2 * 32, &low, sizeof low);
        __builtin_memcpy(to + c / 2 * 32 + 16, &high, sizeof high);
      }
      continue;
    }
    for (int64_t part = 0; part < kLanes; part += 8) {
      transpose(k + (d + part) * kLanes + token, kLanes, of);
      uint32_t* to = reinterpret_cast<uint32_t*>(panel) + token * kLanes + part;
HEADRACE_UNROLL
      for (int c = 0; c < 8; ++c) __builtin_memcpy(to + c * kLanes, &of[c], sizeof(Words));
    }
  }
}

// `count` dimensions from d on, fewer than a panel or from an odd one on; zeros past them.
static void unpack_rest(const uint8_t* k, bool half, int64_t d, int64_t count, uint8_t* panel) {
  for (int64_t token = 0; token < kLanes; ++token) {
    for (int64_t i = 0; i < kLanes; ++i) {
      const int64_t at = d + i;
      if (half) {
        uint16_t* to = reinterpret_cast<uint16_t*>(panel);
        const uint16_t* from = reinterpret_cast<const uint16_t*>(k);
        to[token / 2 * 32 + 2 * i + token % 2] =
            i < count ? from[at / 2 * 32 + 2 * token + at % 2] : uint16_t{0};
      } else {
        uint32_t* to = reinterpret_cast<uint32_t*>(panel);
        const uint32_t* from = reinterpret_cast<const uint32_t*>(k);
        to[token * kLanes + i] = i < count ? from[at * kLanes + token] : 0u;
      }
    }
  }
}

// The values of a group of 16 tokens, from its keys.
static void unpack_values(const KvLayer& kv, const uint8_t* k, uint8_t* v) {
  const int64_t first = kv.head_dim - kv.value_dim;
  const int64_t panel_bytes = kv.v_group_bytes / kv.v_panels;
  for (int64_t panel = 0; panel < kv.v_panels; ++panel) {
    const int64_t d = first + panel * kLanes, left = kv.head_dim - d;
    uint8_t* to = v + panel * panel_bytes;
    if (left >= kLanes && d % 2 == 0) {
      unpack_panel(reinterpret_cast<const uint32_t*>(k), kv.v_bf16, d, to);
    } else {
      unpack_rest(k, kv.v_bf16, d, left < kLanes ? left : kLanes, to);
    }
  }
}

}  // namespace
