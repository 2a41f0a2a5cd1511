// A Hadamard transform of a head: outliers of a few dimensions spread over all of them before they
// are rounded to few bits, and scores stay, since q and K are turned alike.
//
// The head is cut into blocks of the largest power of two that divides its width. In each, for
// strides 1, 2, 4, ... the pairs (a, b) so far apart become (a + b, a - b); at the end all are
// multiplied by 1 / sqrt(block). The matrix is its own inverse.

#pragma once

#include "kernels.h"

namespace {

typedef float Eight __attribute__((vector_size(32)));
typedef int32_t EightLanes __attribute__((vector_size(32)));

// Strides 1, 2 and 4 of eight values. Products by 1 and -1 are exact, fused or not.
HEADRACE_INLINE Eight turn_eight(Eight x) {
  x = __builtin_shuffle(x, EightLanes{1, 0, 3, 2, 5, 4, 7, 6}) +
      x * Eight{1, -1, 1, -1, 1, -1, 1, -1};
  x = __builtin_shuffle(x, EightLanes{2, 3, 0, 1, 6, 7, 4, 5}) +
      x * Eight{1, 1, -1, -1, 1, 1, -1, -1};
  return __builtin_shuffle(x, EightLanes{4, 5, 6, 7, 0, 1, 2, 3}) +
         x * Eight{1, 1, 1, 1, -1, -1, -1, -1};
}

HEADRACE_INLINE Eight load_eight(const float* p) {
  Eight x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
HEADRACE_INLINE void store_eight(float* p, Eight x) { __builtin_memcpy(p, &x, sizeof x); }

// 1 / sqrt(block) of a power of two, rounded once.
HEADRACE_INLINE float turned_scale(int64_t block) {
  float scale = 1.0f;
  for (; block >= 4; block /= 4) scale *= 0.5f;
  return block == 2 ? scale * 0x1.6a09e6p-1f : scale;
}

HEADRACE_INLINE void turn_pairs(float* x, int64_t block, int64_t stride) {
  for (int64_t at = 0; at < block; at += 2 * stride) {
    for (int64_t i = at; i < at + stride; ++i) {
      const float a = x[i], b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
}

// In place.
static void rotate(float* x, int64_t width) {
  const int64_t block = width & -width;
  const float scale = turned_scale(block);
  for (float* const end = x + width; x < end; x += block) {
    if (block < 8) {
      for (int64_t stride = 1; stride < block; stride *= 2) turn_pairs(x, block, stride);
      for (int64_t i = 0; i < block; ++i) x[i] *= scale;
      continue;
    }
    for (int64_t i = 0; i < block; i += 8) store_eight(x + i, turn_eight(load_eight(x + i)));
    for (int64_t stride = 8; stride < block; stride *= 2) {
      for (int64_t at = 0; at < block; at += 2 * stride) {
        for (int64_t i = at; i < at + stride; i += 8) {
          const Eight a = load_eight(x + i), b = load_eight(x + i + stride);
          store_eight(x + i, a + b);
          store_eight(x + i + stride, a - b);
        }
      }
    }
    for (int64_t i = 0; i < block; i += 8) store_eight(x + i, load_eight(x + i) * scale);
  }
}

}  // namespace
