// The sum every product of the house is made of: two chains over k, one of the even and one of the
// odd terms of a tile of 32, added to each other and then to the row's sum. Used by the matrix
// kernels (16 outputs a panel), by q.K (16 tokens a panel) and by p.V (16 dimensions a panel).

#pragma once

#include "kernels.h"

namespace {

using headrace::kLanes;
using headrace::kSpan;
using headrace::kTile;

// How a panel's operands for a pair (k, k + 1) are read. Pairs are `kPair` elements apart.
struct F32Pairs {
  using T = float;
  static constexpr int kPair = 32;
  HEADRACE_INLINE void read(const T* p, F& e, F& o) {
    e = load(p);
    o = load(p + 16);
  }
};
struct F16Pairs {
  using T = uint16_t;
  static constexpr int kPair = 32;
  HEADRACE_INLINE void read(const T* p, F& e, F& o) {
    e = load_f16(p);
    o = load_f16(p + 16);
  }
};
struct BF16Pairs {
  using T = uint16_t;
  static constexpr int kPair = 32;
  HEADRACE_INLINE void read(const T* p, F& e, F& o) {
    const I pairs = load_pairs(p);
    e = even(pairs);
    o = odd(pairs);
  }
};

// F8_E4M3, as 2^-8 of what the values are.
struct F8Pairs {
  using T = uint8_t;
  static constexpr int kPair = 32;
  HEADRACE_INLINE void read(const T* p, F& e, F& o) { load_f8_pairs(p, e, o); }
};

// NF4, without their scales: two neighbours of k in a byte, the first in the low half.
struct Nf4Pairs {
  using T = uint8_t;
  static constexpr int kPair = 16;
  HEADRACE_INLINE void read(const T* p, F& e, F& o) {
    load_table_pairs(p, headrace::kNf4Table, e, o);
  }
};

// Whole numbers of eight bits, and of four: those of K, and those of V, whose rows of 16 dimensions
// are eight bytes each, with the first eight in the lower halves.
struct Int8Pairs {
  using T = int8_t;
  static constexpr int kPair = 32;
  HEADRACE_INLINE void read(const T* p, F& e, F& o) {
    e = load_i8(p);
    o = load_i8(p + 16);
  }
};
struct Int4Pairs {
  using T = uint8_t;
  static constexpr int kPair = 16;
  HEADRACE_INLINE void read(const T* p, F& e, F& o) { load_i4_pairs(p, e, o); }
};
struct Int4Rows {
  using T = uint8_t;
  static constexpr int kPair = 16;
  HEADRACE_INLINE void read(const T* p, F& e, F& o) { load_i4_rows(p, e, o); }
};

// Chains of `MR` rows of x with `NP` panels. Rows of x are `stride` apart, panels `panel` apart.
template <int MR, int NP, class Pairs>
struct Chains {
  F e[MR][NP];
  F o[MR][NP];

  HEADRACE_INLINE void clear(Chains& c) {
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) {
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) {
        c.e[i][j] = zero();
        c.o[i][j] = zero();
      }
    }
  }

  HEADRACE_INLINE void pair(Chains& c, const float* x, int64_t stride,
                            const typename Pairs::T* w, int64_t panel) {
    F we[NP], wo[NP];
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) Pairs::read(w + j * panel, we[j], wo[j]);
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) {
      const F xe = splat(x[i * stride]);
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) c.e[i][j] = fma(xe, we[j], c.e[i][j]);
      const F xo = splat(x[i * stride + 1]);
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) c.o[i][j] = fma(xo, wo[j], c.o[i][j]);
    }
  }

  // A first term without a partner, x the odd one: only the odd chain sees it.
  HEADRACE_INLINE void single_odd(Chains& c, const float* x, int64_t stride,
                                  const typename Pairs::T* w, int64_t panel) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) {
      F we, wo;
      Pairs::read(w + j * panel, we, wo);
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) c.o[i][j] = fma(splat(x[i * stride]), wo, c.o[i][j]);
    }
  }

  // A last term without a partner: only the even chain sees it.
  HEADRACE_INLINE void single(Chains& c, const float* x, int64_t stride,
                              const typename Pairs::T* w, int64_t panel) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) {
      F we, wo;
      Pairs::read(w + j * panel, we, wo);
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) c.e[i][j] = fma(splat(x[i * stride]), we, c.e[i][j]);
    }
  }
};

}  // namespace
