// Sixteen lanes in four NEON registers (base ARMv8-A; the dot product of ARMv8.2 where
// HEADRACE_DOTPROD says so). Include first in a level's unit. Names and meanings are those of
// vec_avx512.h.

#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "codecs.h"

#define HEADRACE_INLINE static inline __attribute__((always_inline))
// For inner loops: inlined into their callers they run out of registers.
#define HEADRACE_APART static __attribute__((noinline))

namespace {

#ifdef HEADRACE_DOTPROD
constexpr const char* kLevel = "neon_dotprod";
#else
constexpr const char* kLevel = "neon";
#endif
// 3 rows x (even, odd) x 4 registers = 24 accumulators, which leaves 8 of 32 registers for weights
// and broadcasts. Counted, not measured: no such machine was at hand.
constexpr int kBlockRows = 3;
constexpr int kBlockPanels = 1;
constexpr int kTilesAtOnce = 1;  // of activations; more would be moved to memory
constexpr int kStreamRows = 3;
constexpr int kDotBlockRows = kBlockRows, kDotStreamRows = kStreamRows;
constexpr int kSpanRows = 3;
constexpr int kProbeChains = 6;

struct F {
  float32x4_t a, b, c, d;
};
struct I {
  int32x4_t a, b, c, d;
};
struct M {  // all bits of a lane, or none
  uint32x4_t a, b, c, d;
};
struct Bytes {  // 16 x 4 bytes
  uint8x16_t a, b, c, d;
};
using Quads = Bytes;
using ISum = I;

// Products of two signed bytes are summed in 32 bits, in pairs of 16 bits never: nothing saturates.
static_assert(128 * headrace::kQuantBound <= headrace::kHighestSum);
constexpr bool kSignedBytes = true;
constexpr bool kWideDiffers = false;
constexpr bool kSumsIn16 = false;
#ifdef HEADRACE_DOTPROD
constexpr bool kDotIsOne = true;
#else
constexpr bool kDotIsOne = false;
#endif

template <class To, class From, class Fn>
HEADRACE_INLINE To each(const From& x, const Fn& fn) {
  return {fn(x.a), fn(x.b), fn(x.c), fn(x.d)};
}
template <class To, class X, class Y, class Fn>
HEADRACE_INLINE To each(const X& x, const Y& y, const Fn& fn) {
  return {fn(x.a, y.a), fn(x.b, y.b), fn(x.c, y.c), fn(x.d, y.d)};
}

HEADRACE_INLINE M first(int64_t n) {
  static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const int32x4_t many = vdupq_n_s32(static_cast<int32_t>(n > 16 ? 16 : n));
  return {vcgtq_s32(many, vld1q_s32(lanes)), vcgtq_s32(many, vld1q_s32(lanes + 4)),
          vcgtq_s32(many, vld1q_s32(lanes + 8)), vcgtq_s32(many, vld1q_s32(lanes + 12))};
}
// Lanes of the bits that are set, the lowest for lane 0.
HEADRACE_INLINE M lanes(uint64_t bits) {
  static const int32_t of[16] = {1,   2,   4,    8,    16,   32,   64,    128,
                                 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  const int32x4_t all = vdupq_n_s32(static_cast<int32_t>(bits & 0xffff));
  return {vtstq_s32(all, vld1q_s32(of)), vtstq_s32(all, vld1q_s32(of + 4)),
          vtstq_s32(all, vld1q_s32(of + 8)), vtstq_s32(all, vld1q_s32(of + 12))};
}

HEADRACE_INLINE F splat(float x) {
  const float32x4_t all = vdupq_n_f32(x);
  return {all, all, all, all};
}
HEADRACE_INLINE F zero() { return splat(0.0f); }
HEADRACE_INLINE F load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
HEADRACE_INLINE F load_n(const float* p, int64_t n) {
  if (n >= 16) return load(p);
  float lanes[16] = {};
  __builtin_memcpy(lanes, p, static_cast<uint64_t>(n) * sizeof(float));
  return load(lanes);
}
HEADRACE_INLINE void store(float* p, F x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
  vst1q_f32(p + 8, x.c);
  vst1q_f32(p + 12, x.d);
}
HEADRACE_INLINE void store_n(float* p, F x, int64_t n) {
  if (n >= 16) return store(p, x);
  float lanes[16];
  store(lanes, x);
  __builtin_memcpy(p, lanes, static_cast<uint64_t>(n) * sizeof(float));
}

HEADRACE_INLINE F add(F x, F y) { return each<F>(x, y, vaddq_f32); }
HEADRACE_INLINE F sub(F x, F y) { return each<F>(x, y, vsubq_f32); }
HEADRACE_INLINE F mul(F x, F y) { return each<F>(x, y, vmulq_f32); }
HEADRACE_INLINE F div(F x, F y) { return each<F>(x, y, vdivq_f32); }
HEADRACE_INLINE F fma(F x, F y, F z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
          vfmaq_f32(z.d, x.d, y.d)};
}
HEADRACE_INLINE F fnma(F x, F y, F z) {
  return {vfmsq_f32(z.a, x.a, y.a), vfmsq_f32(z.b, x.b, y.b), vfmsq_f32(z.c, x.c, y.c),
          vfmsq_f32(z.d, x.d, y.d)};
}
HEADRACE_INLINE F select(M m, F yes, F no) {
  return {vbslq_f32(m.a, yes.a, no.a), vbslq_f32(m.b, yes.b, no.b), vbslq_f32(m.c, yes.c, no.c),
          vbslq_f32(m.d, yes.d, no.d)};
}
// Compared rather than FMAX: that gives NaN where either is.
HEADRACE_INLINE F at_least(F limit, F x) { return select(each<M>(x, limit, vcltq_f32), limit, x); }
HEADRACE_INLINE F at_most(F limit, F x) { return select(each<M>(x, limit, vcgtq_f32), limit, x); }
HEADRACE_INLINE M is_number(F x) { return each<M>(x, x, vceqq_f32); }
HEADRACE_INLINE bool any_nan(F x, F y) {
  const M good = each<M>(is_number(x), is_number(y), vandq_u32);
  return vminvq_u32(vandq_u32(vandq_u32(good.a, good.b), vandq_u32(good.c, good.d))) == 0;
}

HEADRACE_INLINE M above(F x, F bound) { return each<M>(x, bound, vcgtq_f32); }
HEADRACE_INLINE M reaches(F x, F bound) { return each<M>(x, bound, vcgeq_f32); }
HEADRACE_INLINE M both(M x, M y) { return each<M>(x, y, vandq_u32); }
HEADRACE_INLINE int64_t count(M m) {
  const uint32x4_t ones = vaddq_u32(vaddq_u32(vshrq_n_u32(m.a, 31), vshrq_n_u32(m.b, 31)),
                                    vaddq_u32(vshrq_n_u32(m.c, 31), vshrq_n_u32(m.d, 31)));
  return vaddvq_u32(ones);
}
HEADRACE_INLINE int64_t compress(float* p, F x, M m) {
  float from[16];
  uint32_t kept[16];
  store(from, x);
  vst1q_u32(kept, m.a);
  vst1q_u32(kept + 4, m.b);
  vst1q_u32(kept + 8, m.c);
  vst1q_u32(kept + 12, m.d);
  int64_t number = 0;
  for (int i = 0; i < 16; ++i) {
    p[number] = from[i];
    number += kept[i] & 1;
  }
  return number;
}

// Sums of x * 2^42, each rounded to a whole number (ties to even), for x in [0, 1].
struct FixedSum {
  int64x2_t a, b;
};
HEADRACE_INLINE FixedSum no_sum() { return {vdupq_n_s64(0), vdupq_n_s64(0)}; }
HEADRACE_INLINE FixedSum add_part(FixedSum sum, float32x4_t x) {
  const float64x2_t low = vmulq_n_f64(vcvt_f64_f32(vget_low_f32(x)), 0x1p42);
  const float64x2_t high = vmulq_n_f64(vcvt_high_f64_f32(x), 0x1p42);
  return {vaddq_s64(sum.a, vcvtnq_s64_f64(low)), vaddq_s64(sum.b, vcvtnq_s64_f64(high))};
}
HEADRACE_INLINE FixedSum add_fixed(FixedSum sum, F x) {
  return add_part(add_part(add_part(add_part(sum, x.a), x.b), x.c), x.d);
}
HEADRACE_INLINE int64_t total(FixedSum sum) { return vaddvq_s64(vaddq_s64(sum.a, sum.b)); }

HEADRACE_INLINE F nearest(F x) {
  return each<F>(x, [](float32x4_t v) { return vrndnq_f32(v); });
}
HEADRACE_INLINE I nearest_whole(F x) {
  return each<I>(x, [](float32x4_t v) { return vcvtnq_s32_f32(v); });
}
HEADRACE_INLINE float32x4_t power_of_two(int32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}
// In two steps, since 2^n alone may be out of range.
HEADRACE_INLINE F scale_by_power(F x, F n) {
  return each<F>(x, nearest_whole(n), [](float32x4_t v, int32x4_t power) {
    const int32x4_t low = vshrq_n_s32(power, 1), high = vsubq_s32(power, low);
    return vmulq_f32(vmulq_f32(v, power_of_two(low)), power_of_two(high));
  });
}

HEADRACE_INLINE float sum(F x) {
  const float32x4_t quarter = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
  const float32x2_t pair = vadd_f32(vget_low_f32(quarter), vget_high_f32(quarter));
  return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}
HEADRACE_INLINE float largest(F x) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.b), vmaxq_f32(x.c, x.d)));
}

HEADRACE_INLINE F load_f16(const uint16_t* p) {
  const auto four = [](const uint16_t* at) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(at)));
  };
  return {four(p), four(p + 4), four(p + 8), four(p + 12)};
}
HEADRACE_INLINE F load_bf16(const uint16_t* p) {
  const auto four = [](const uint16_t* at) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(at), 16));
  };
  return {four(p), four(p + 4), four(p + 8), four(p + 12)};
}
HEADRACE_INLINE void load_f8_pairs(const uint8_t* p, F& first_of, F& second_of) {
  const int16x8_t a = vreinterpretq_s16_u8(vld1q_u8(p)), b = vreinterpretq_s16_u8(vld1q_u8(p + 16));
  const int16x8_t kept = vdupq_n_s16(static_cast<int16_t>(0xbf80));
  const auto half = [kept](int16x8_t x) {
    return vreinterpretq_f16_s16(vandq_s16(vshrq_n_s16(x, 1), kept));
  };
  const auto all = [](float16x8_t x, float16x8_t y) {
    return F{vcvt_f32_f16(vget_low_f16(x)), vcvt_f32_f16(vget_high_f16(x)),
             vcvt_f32_f16(vget_low_f16(y)), vcvt_f32_f16(vget_high_f16(y))};
  };
  first_of = all(half(vshlq_n_s16(a, 8)), half(vshlq_n_s16(b, 8)));
  second_of = all(half(a), half(b));
}
HEADRACE_INLINE F load_i8(const int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  const auto four = [](int16x4_t v) { return vcvtq_f32_s32(vmovl_s16(v)); };
  return {four(vget_low_s16(low)), four(vget_high_s16(low)), four(vget_low_s16(high)),
          four(vget_high_s16(high))};
}
HEADRACE_INLINE F signed_to_float(uint8x16_t nibbles) {
  const int8x16_t x = vsubq_s8(vreinterpretq_s8_u8(nibbles), vdupq_n_s8(8));
  const int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_s8(vget_high_s8(x));
  const auto four = [](int16x4_t v) { return vcvtq_f32_s32(vmovl_s16(v)); };
  return {four(vget_low_s16(low)), four(vget_high_s16(low)), four(vget_low_s16(high)),
          four(vget_high_s16(high))};
}
HEADRACE_INLINE void load_i4_pairs(const uint8_t* p, F& low, F& high) {
  const uint8x16_t x = vld1q_u8(p);
  low = signed_to_float(vandq_u8(x, vdupq_n_u8(15)));
  high = signed_to_float(vshrq_n_u8(x, 4));
}
HEADRACE_INLINE void load_i4_rows(const uint8_t* p, F& first_of, F& second_of) {
  const uint8x16_t x = vld1q_u8(p), low = vandq_u8(x, vdupq_n_u8(15)), high = vshrq_n_u8(x, 4);
  first_of = signed_to_float(vcombine_u8(vget_low_u8(low), vget_low_u8(high)));
  second_of = signed_to_float(vcombine_u8(vget_high_u8(low), vget_high_u8(high)));
}
HEADRACE_INLINE I widen(uint8x16_t bytes) {
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
  const auto four = [](uint16x4_t v) { return vreinterpretq_s32_u32(vmovl_u16(v)); };
  return {four(vget_low_u16(low)), four(vget_high_u16(low)), four(vget_low_u16(high)),
          four(vget_high_u16(high))};
}
// 16 bytes of two codes each: what a table of 16 has for the lower halves and for the upper ones.
// The table is 64 bytes, of which each lane takes four.
HEADRACE_INLINE void load_table_pairs(const uint8_t* p, const float* table, F& low, F& high) {
  const uint8x16x4_t entries = vld1q_u8_x4(reinterpret_cast<const uint8_t*>(table));
  const uint8x16_t x = vld1q_u8(p);
  const auto taken = [&](uint8x16_t codes) {
    return each<F>(widen(codes), [&](int32x4_t code) {
      const int32x4_t at = vmlaq_n_s32(vdupq_n_s32(0x03020100), code, 0x04040404);
      return vreinterpretq_f32_u8(vqtbl4q_u8(entries, vreinterpretq_u8_s32(at)));
    });
  };
  low = taken(vandq_u8(x, vdupq_n_u8(15)));
  high = taken(vshrq_n_u8(x, 4));
}
HEADRACE_INLINE F bytes_to_float(uint8x16_t bytes) {
  return each<F>(widen(bytes), [](int32x4_t v) { return vcvtq_f32_s32(v); });
}
HEADRACE_INLINE F load_u8(const uint8_t* p) { return bytes_to_float(vld1q_u8(p)); }
HEADRACE_INLINE F load_low_nibbles(const uint8_t* p) {
  return bytes_to_float(vandq_u8(vld1q_u8(p), vdupq_n_u8(15)));
}
HEADRACE_INLINE F load_high_nibbles(const uint8_t* p) {
  return bytes_to_float(vshrq_n_u8(vld1q_u8(p), 4));
}
// 16 exponents: 2^(e - 128), and 0 for e = 0 and 1, whose powers would be denormal.
HEADRACE_INLINE F load_half_e8m0(const uint8_t* p) {
  return each<F>(widen(vqsubq_u8(vld1q_u8(p), vdupq_n_u8(1))), [](int32x4_t v) {
    return vreinterpretq_f32_s32(vshlq_n_s32(v, 23));
  });
}
HEADRACE_INLINE F load_half_e4m3(const uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  uint16_t half[16];
  vst1q_u16(half, vshll_n_u8(vget_low_u8(bytes), 7));
  vst1q_u16(half + 8, vshll_n_u8(vget_high_u8(bytes), 7));
  return mul(load_f16(half), splat(128.0f));
}

HEADRACE_INLINE I load_pairs(const uint16_t* p) {
  const auto four = [](const uint16_t* at) { return vreinterpretq_s32_u16(vld1q_u16(at)); };
  return {four(p), four(p + 8), four(p + 16), four(p + 24)};
}
HEADRACE_INLINE F even(I pairs) {
  return each<F>(pairs, [](int32x4_t v) { return vreinterpretq_f32_s32(vshlq_n_s32(v, 16)); });
}
HEADRACE_INLINE float32x4_t upper_half(uint32x4_t bits) {
  return vreinterpretq_f32_u32(vandq_u32(bits, vdupq_n_u32(0xffff0000)));
}
HEADRACE_INLINE F odd(I pairs) {
  return each<F>(pairs, [](int32x4_t v) { return upper_half(vreinterpretq_u32_s32(v)); });
}

HEADRACE_INLINE F round_bf16(F x) {
  return each<F>(x, [](float32x4_t v) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v);
    const uint32x4_t lowest = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), lowest);
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return upper_half(vbslq_u32(vceqq_f32(v, v), rounded, quiet));
  });
}
HEADRACE_INLINE void store_bf16(uint16_t* p, F x) {
  const auto four = [](uint16_t* at, float32x4_t v) {
    vst1_u16(at, vshrn_n_u32(vreinterpretq_u32_f32(v), 16));
  };
  four(p, x.a);
  four(p + 4, x.b);
  four(p + 8, x.c);
  four(p + 12, x.d);
}

HEADRACE_INLINE float largest_magnitude(F x, F y) {
  const auto bits = [](float32x4_t v) { return vreinterpretq_u32_f32(vabsq_f32(v)); };
  const auto most = [&](const F& v) {
    return vmaxq_u32(vmaxq_u32(bits(v.a), bits(v.b)), vmaxq_u32(bits(v.c), bits(v.d)));
  };
  const uint32_t found = vmaxvq_u32(vmaxq_u32(most(x), most(y)));
  float value;
  __builtin_memcpy(&value, &found, sizeof value);
  return value;
}
HEADRACE_INLINE I store_i8(int8_t* p, F x) {
  const I n = nearest_whole(x);
  const int16x8_t low = vcombine_s16(vqmovn_s32(n.a), vqmovn_s32(n.b));
  const int16x8_t high = vcombine_s16(vqmovn_s32(n.c), vqmovn_s32(n.d));
  vst1q_s8(p, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
  return n;
}
HEADRACE_INLINE int32_t sum_of(I x) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(x.a, x.b), vaddq_s32(x.c, x.d)));
}

HEADRACE_INLINE Bytes load_bytes(const uint8_t* p) {
  return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
}
HEADRACE_INLINE void store_bytes(uint8_t* p, Bytes x) {
  vst1q_u8(p, x.a);
  vst1q_u8(p + 16, x.b);
  vst1q_u8(p + 32, x.c);
  vst1q_u8(p + 48, x.d);
}
HEADRACE_INLINE Bytes splat_byte(uint8_t x) {
  const uint8x16_t all = vdupq_n_u8(x);
  return {all, all, all, all};
}
HEADRACE_INLINE Bytes flip_top(Bytes x) { return each<Bytes>(x, splat_byte(0x80), veorq_u8); }
// Shifts within bytes do: the mask leaves out what would cross from a neighbour.
template <int kRight>
HEADRACE_INLINE Bytes field(Bytes x, Bytes mask) {
  return each<Bytes>(x, mask, [](uint8x16_t v, uint8x16_t m) {
    if constexpr (kRight > 0) v = vshrq_n_u8(v, kRight);
    if constexpr (kRight < 0) v = vshlq_n_u8(v, -kRight);
    return vandq_u8(v, m);
  });
}
template <int kRight>
HEADRACE_INLINE Bytes with_field(Bytes base, Bytes x, Bytes mask) {
  return each<Bytes>(base, field<kRight>(x, mask), vorrq_u8);
}
HEADRACE_INLINE Bytes load_table(const uint8_t* sixteen) {
  const uint8x16_t table = vld1q_u8(sixteen);
  return {table, table, table, table};
}
HEADRACE_INLINE Bytes lookup(Bytes table, Bytes index) {
  return each<Bytes>(table, index, vqtbl1q_u8);
}

HEADRACE_INLINE Bytes as_bytes(I x) {
  return {vreinterpretq_u8_s32(x.a), vreinterpretq_u8_s32(x.b), vreinterpretq_u8_s32(x.c),
          vreinterpretq_u8_s32(x.d)};
}
HEADRACE_INLINE Bytes widen_u8(const uint8_t* p) { return as_bytes(widen(vld1q_u8(p))); }
HEADRACE_INLINE Bytes widen_u16(const uint8_t* p) {
  const uint16x8_t low = vreinterpretq_u16_u8(vld1q_u8(p));
  const uint16x8_t high = vreinterpretq_u16_u8(vld1q_u8(p + 16));
  const auto four = [](uint16x4_t v) { return vreinterpretq_u8_u32(vmovl_u16(v)); };
  return {four(vget_low_u16(low)), four(vget_high_u16(low)), four(vget_low_u16(high)),
          four(vget_high_u16(high))};
}
template <int kRight>
HEADRACE_INLINE Bytes word_field(Bytes x, uint32_t mask) {
  const uint32x4_t all = vdupq_n_u32(mask);
  const auto four = [all](uint8x16_t v) {
    uint32x4_t words = vreinterpretq_u32_u8(v);
    if constexpr (kRight > 0) words = vshrq_n_u32(words, kRight);
    if constexpr (kRight < 0) words = vshlq_n_u32(words, -kRight);
    return vreinterpretq_u8_u32(vandq_u32(words, all));
  };
  return {four(x.a), four(x.b), four(x.c), four(x.d)};
}
template <int kRight>
HEADRACE_INLINE Bytes with_word_field(Bytes base, Bytes x, uint32_t mask) {
  return each<Bytes>(base, word_field<kRight>(x, mask), vorrq_u8);
}
HEADRACE_INLINE Bytes differing(Bytes x, Bytes y) { return each<Bytes>(x, y, veorq_u8); }
HEADRACE_INLINE F words_to_float(Bytes x) {
  const auto four = [](uint8x16_t v) { return vcvtq_f32_u32(vreinterpretq_u32_u8(v)); };
  return {four(x.a), four(x.b), four(x.c), four(x.d)};
}
HEADRACE_INLINE Bytes gather(const uint32_t* table, Bytes index) {
  const auto four = [table](uint8x16_t v) {
    const uint32x4_t at = vreinterpretq_u32_u8(v);
    uint32x4_t x = vdupq_n_u32(table[vgetq_lane_u32(at, 0)]);
    x = vsetq_lane_u32(table[vgetq_lane_u32(at, 1)], x, 1);
    x = vsetq_lane_u32(table[vgetq_lane_u32(at, 2)], x, 2);
    x = vsetq_lane_u32(table[vgetq_lane_u32(at, 3)], x, 3);
    return vreinterpretq_u8_u32(x);
  };
  return {four(index.a), four(index.b), four(index.c), four(index.d)};
}

HEADRACE_INLINE Quads quads(Bytes x) { return x; }
HEADRACE_INLINE ISum isum(int32_t start) {
  const int32x4_t all = vdupq_n_s32(start);
  return {all, all, all, all};
}
// sum + 4 products in each of 4 lanes.
HEADRACE_INLINE int32x4_t add_products(int32x4_t sum, uint8x16_t w, int8x16_t x) {
  const int8x16_t v = vreinterpretq_s8_u8(w);
#ifdef HEADRACE_DOTPROD
  return vdotq_s32(sum, v, x);
#else
  const int16x8_t low = vmull_s8(vget_low_s8(v), vget_low_s8(x));
  const int16x8_t high = vmull_s8(vget_high_s8(v), vget_high_s8(x));
  return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}
HEADRACE_INLINE ISum dot4(ISum sum, Quads w, const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  const int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(four));
  return each<ISum>(sum, w, [&](int32x4_t s, uint8x16_t v) { return add_products(s, v, all); });
}
HEADRACE_INLINE ISum dot4_wide(ISum sum, Quads w, const int8_t* x) { return dot4(sum, w, x); }
struct Pairs {  // 16 x 2 whole numbers of 16 bits
  int16x8_t a, b, c, d;
};
HEADRACE_INLINE Pairs load_u8_pairs(const uint8_t* p) {
  const auto wide = [](uint8x8_t v) { return vreinterpretq_s16_u16(vmovl_u8(v)); };
  return {wide(vld1_u8(p)), wide(vld1_u8(p + 8)), wide(vld1_u8(p + 16)), wide(vld1_u8(p + 24))};
}
HEADRACE_INLINE ISum dot2(ISum sum, Pairs w, const int16_t* x) {
  int32_t two;
  __builtin_memcpy(&two, x, 4);
  const int16x4_t all = vreinterpret_s16_s32(vdup_n_s32(two));
  return each<ISum>(sum, w, [&](int32x4_t s, int16x8_t v) {
    const int32x4_t low = vmull_s16(vget_low_s16(v), all), high = vmull_s16(vget_high_s16(v), all);
    return vaddq_s32(s, vpaddq_s32(low, high));
  });
}
HEADRACE_INLINE F to_float(ISum sum) {
  return each<F>(sum, [](int32x4_t v) { return vcvtq_f32_s32(v); });
}

HEADRACE_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }
HEADRACE_INLINE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }
HEADRACE_INLINE void prefetch_to_write(const void* p) { __builtin_prefetch(p, 1); }

}  // namespace
