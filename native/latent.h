// Latent values made ready for p.V: they lie in the layout of keys, a column for each token, and
// are copied, bit for bit, to the layout of values. Generic vectors: every level compiles its own.

#pragma once

#include "kernels.h"
#include "kv_readers.h"

namespace {

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
HEADRACE_INLINE void unpack_panel(const float* k, int64_t d, float* panel) {
  const uint32_t* words = reinterpret_cast<const uint32_t*>(k);
  Words of[8];
  for (int64_t token = 0; token < kLanes; token += 8) {
    for (int64_t part = 0; part < kLanes; part += 8) {
      transpose(words + (d + part) * kLanes + token, kLanes, of);
      float* to = panel + token * kLanes + part;
HEADRACE_UNROLL
      for (int c = 0; c < 8; ++c) __builtin_memcpy(to + c * kLanes, &of[c], sizeof(Words));
    }
  }
}

HEADRACE_INLINE void unpack_panel(const uint16_t* k, int64_t d, uint16_t* panel) {
  const uint32_t* pairs = reinterpret_cast<const uint32_t*>(k);
  Words of[8];
  for (int64_t token = 0; token < kLanes; token += 8) {
    transpose(pairs + d / 2 * kLanes + token, kLanes, of);
    uint16_t* to = panel + token / 2 * 32;
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
  }
}

// `count` dimensions from d on, where the above cannot: fewer than a panel, or from an odd one on.
// Zeros past them.
template <class Reader>
static void unpack_rest(const typename Reader::T* k, int64_t d, int64_t count,
                        typename Reader::T* panel) {
  for (int64_t token = 0; token < kLanes; ++token) {
    for (int64_t i = 0; i < kLanes; ++i) {
      panel[Reader::value_at(token, i)] =
          i < count ? k[Reader::key_at(d + i, token)] : typename Reader::T{};
    }
  }
}

// The values of a group of 16 tokens from those of its keys, behind the scales of either.
template <class Reader>
static void unpack_values(const KvLayer& kv, const uint8_t* k, uint8_t* v) {
  using T = typename Reader::T;
  const T* keys = reinterpret_cast<const T*>(k);
  T* to = reinterpret_cast<T*>(v);
  for (int64_t panel = 0; panel < kv.v_panels; ++panel, to += kLanes * kLanes) {
    const int64_t d = kv.head_dim - kv.value_dim + panel * kLanes, left = kv.head_dim - d;
    if (left >= kLanes && d % 2 == 0) {
      unpack_panel(keys, d, to);
    } else {
      unpack_rest<Reader>(keys, d, left < kLanes ? left : kLanes, to);
    }
  }
}

}  // namespace
