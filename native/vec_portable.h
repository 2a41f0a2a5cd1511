// Sixteen lanes in plain C++ (the compiler's vector types), for any machine. Include first in
// level_portable.cpp. Names and meanings are those of vec_avx512.h; a product and a sum are two
// roundings here.

#pragma once

#include <cstdint>

#define HEADRACE_INLINE static inline __attribute__((always_inline))
// For inner loops: inlined into their callers they run out of registers.
#define HEADRACE_APART static __attribute__((noinline))

namespace {

constexpr const char* kLevel = "portable";
// A vector takes four 16-byte registers of sixteen: more than one row at a time only spills.
constexpr int kBlockRows = 2;
constexpr int kBlockPanels = 1;
constexpr int kTilesAtOnce = 1;  // of activations; more would be moved to memory
constexpr int kStreamRows = 2;
constexpr int kDotBlockRows = kBlockRows, kDotStreamRows = kStreamRows;
constexpr int kSpanRows = 2;
constexpr int kProbeChains = 3;

typedef float F __attribute__((vector_size(64)));
typedef int32_t I __attribute__((vector_size(64)));
using M = I;  // all bits of a lane, or none
typedef uint16_t Half __attribute__((vector_size(32)));
typedef int8_t Byte __attribute__((vector_size(16)));
typedef uint8_t UByte __attribute__((vector_size(16)));
typedef uint8_t Bytes __attribute__((vector_size(64)));
struct Quads {
  F b[4];
};
using ISum = F;  // whole numbers below 2^24 are exact in f32

constexpr bool kSignedBytes = false;
constexpr bool kWideDiffers = false;
constexpr bool kSumsIn16 = false;
constexpr bool kDotIsOne = false;

HEADRACE_INLINE F as_float(I x) { return reinterpret_cast<F>(x); }
HEADRACE_INLINE I as_bits(F x) { return reinterpret_cast<I>(x); }
HEADRACE_INLINE F zero() { return F{}; }
HEADRACE_INLINE F splat(float x) { return F{} + x; }
HEADRACE_INLINE I whole(int32_t x) { return I{} + x; }

HEADRACE_INLINE M first(int64_t n) {
  const I lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return lane < whole(static_cast<int32_t>(n > 16 ? 16 : n));
}
// Lanes of the bits that are set, the lowest for lane 0.
HEADRACE_INLINE M lanes(uint64_t bits) {
  const I of = {1,   2,   4,    8,    16,   32,   64,    128,
                256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  return (whole(static_cast<int32_t>(bits & 0xffff)) & of) == of;
}

template <class V, class T>
HEADRACE_INLINE V load_as(const T* p) {
  V x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
HEADRACE_INLINE F load(const float* p) { return load_as<F>(p); }
HEADRACE_INLINE F load_n(const float* p, int64_t n) {
  if (n >= 16) return load(p);
  F x = {};
  __builtin_memcpy(&x, p, static_cast<uint64_t>(n) * sizeof(float));
  return x;
}
HEADRACE_INLINE void store(float* p, F x) { __builtin_memcpy(p, &x, sizeof x); }
HEADRACE_INLINE void store_n(float* p, F x, int64_t n) {
  __builtin_memcpy(p, &x, static_cast<uint64_t>(n >= 16 ? 16 : n) * sizeof(float));
}

HEADRACE_INLINE F add(F a, F b) { return a + b; }
HEADRACE_INLINE F sub(F a, F b) { return a - b; }
HEADRACE_INLINE F mul(F a, F b) { return a * b; }
HEADRACE_INLINE F div(F a, F b) { return a / b; }
HEADRACE_INLINE F fma(F a, F b, F c) { return a * b + c; }
HEADRACE_INLINE F fnma(F a, F b, F c) { return c - a * b; }
HEADRACE_INLINE F select(M m, F yes, F no) {
  return as_float((m & as_bits(yes)) | (~m & as_bits(no)));
}
HEADRACE_INLINE F at_least(F limit, F x) { return select(x < limit, limit, x); }
HEADRACE_INLINE F at_most(F limit, F x) { return select(x > limit, limit, x); }
HEADRACE_INLINE bool any_nan(F x, F y) {
  const M nan = (x != x) | (y != y);
  int32_t found = 0;
  for (int i = 0; i < 16; ++i) found |= nan[i];
  return found != 0;
}

HEADRACE_INLINE M above(F x, F bound) { return x > bound; }
HEADRACE_INLINE M reaches(F x, F bound) { return x >= bound; }
HEADRACE_INLINE M both(M x, M y) { return x & y; }
HEADRACE_INLINE int64_t count(M m) {
  int64_t number = 0;
  for (int i = 0; i < 16; ++i) number -= m[i];
  return number;
}
HEADRACE_INLINE int64_t compress(float* p, F x, M m) {
  int64_t number = 0;
  for (int i = 0; i < 16; ++i) {
    p[number] = x[i];
    number -= m[i];
  }
  return number;
}

// A whole number n as the double 1.5 * 2^52 + n, whose lowest bits are n: adding x * 2^42 to the
// first of them rounds it.
typedef double Doubles __attribute__((vector_size(128)));
typedef int64_t FixedSum __attribute__((vector_size(128)));
HEADRACE_INLINE FixedSum no_sum() { return FixedSum{}; }
HEADRACE_INLINE FixedSum add_fixed(FixedSum sum, F x) {
  const Doubles magic = Doubles{} + 0x1.8p52;
  const Doubles rounded = __builtin_convertvector(x, Doubles) * 0x1p42 + magic;
  return sum + (reinterpret_cast<FixedSum>(rounded) - reinterpret_cast<FixedSum>(magic));
}
HEADRACE_INLINE int64_t total(FixedSum sum) {
  int64_t all = 0;
  for (int i = 0; i < 16; ++i) all += sum[i];
  return all;
}

// 1.5 * 2^23: adding it leaves no fraction bits, and the number itself in the lowest bits.
constexpr float kMagic = 12582912.0f;
HEADRACE_INLINE F nearest(F x) { return (x + kMagic) - kMagic; }  // |x| < 2^22
HEADRACE_INLINE I nearest_whole(F x) { return as_bits(x + kMagic) - as_bits(splat(kMagic)); }
// In two steps, since 2^n alone may be out of range.
HEADRACE_INLINE F scale_by_power(F x, F n) {
  const I power = nearest_whole(n), low = power >> 1, high = power - low;
  return x * as_float((low + 127) << 23) * as_float((high + 127) << 23);
}

HEADRACE_INLINE float sum(F x) {
  float a[8], b[4];
  for (int i = 0; i < 8; ++i) a[i] = x[i] + x[i + 8];
  for (int i = 0; i < 4; ++i) b[i] = a[i] + a[i + 4];
  return (b[0] + b[2]) + (b[1] + b[3]);
}
HEADRACE_INLINE float largest(F x) {
  float most = x[0];
  for (int i = 1; i < 16; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

// A half with a zero exponent is a count of 2^-24; the others only need a new exponent. No
// subnormal f32 appears, so the result does not depend on denormals being flushed.
HEADRACE_INLINE F load_f16(const uint16_t* p) {
  const I bits = __builtin_convertvector(load_as<Half>(p), I);
  const I sign = (bits & 0x8000) << 16, exponent = bits & 0x7c00, rest = bits & 0x7fff;
  const I moved = (rest << 13) + (exponent == 0x7c00 ? whole((255 - 31) << 23) : whole(112 << 23));
  const I small = as_bits(__builtin_convertvector(rest, F) * 0x1p-24f);
  return as_float((exponent == 0 ? small : moved) | sign);
}
HEADRACE_INLINE F load_bf16(const uint16_t* p) {
  return as_float(__builtin_convertvector(load_as<Half>(p), I) << 16);
}
// 2^-8 of what a code stands for: a count of 2^-9 below the least exponent, else a new exponent.
HEADRACE_INLINE F from_f8(I code) {
  const I size = code & 0x7f;
  const I small = as_bits(__builtin_convertvector(size, F) * 0x1p-17f);
  return as_float((size < 8 ? small : (size << 20) + (112 << 23)) | (code & 0x80) << 24);
}
HEADRACE_INLINE void load_f8_pairs(const uint8_t* p, F& first_of, F& second_of) {
  const I pairs = __builtin_convertvector(load_as<Half>(p), I);
  first_of = from_f8(pairs & 0xff);
  second_of = from_f8(pairs >> 8);
}
// By way of 16 bits: compilers take single steps as instructions, and whole ones number by number.
HEADRACE_INLINE F bytes_to_float(Byte x) {
  typedef int16_t Short __attribute__((vector_size(32)));
  return __builtin_convertvector(__builtin_convertvector(__builtin_convertvector(x, Short), I), F);
}
HEADRACE_INLINE F load_i8(const int8_t* p) { return bytes_to_float(load_as<Byte>(p)); }
HEADRACE_INLINE F load_u8(const uint8_t* p) {
  return __builtin_convertvector(load_as<UByte>(p), F);
}
HEADRACE_INLINE F load_low_nibbles(const uint8_t* p) {
  return __builtin_convertvector(load_as<UByte>(p) & 15, F);
}
HEADRACE_INLINE F load_high_nibbles(const uint8_t* p) {
  return __builtin_convertvector(load_as<UByte>(p) >> 4, F);
}
HEADRACE_INLINE F signed_to_float(UByte nibbles) {
  return bytes_to_float(reinterpret_cast<Byte>(nibbles) - 8);
}
HEADRACE_INLINE void load_i4_pairs(const uint8_t* p, F& low, F& high) {
  const UByte x = load_as<UByte>(p);
  low = signed_to_float(x & 15);
  high = signed_to_float(x >> 4);
}
HEADRACE_INLINE void load_i4_rows(const uint8_t* p, F& first_of, F& second_of) {
  const UByte x = load_as<UByte>(p), low = x & 15, high = x >> 4;
  first_of = signed_to_float(
      __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23));
  second_of = signed_to_float(__builtin_shufflevector(low, high, 8, 9, 10, 11, 12, 13, 14, 15, 24,
                                                      25, 26, 27, 28, 29, 30, 31));
}
// 16 bytes of two codes each: what a table of 16 has for the lower halves and for the upper ones.
HEADRACE_INLINE void load_table_pairs(const uint8_t* p, const float* table, F& low, F& high) {
  for (int i = 0; i < 16; ++i) {
    low[i] = table[p[i] & 15];
    high[i] = table[p[i] >> 4];
  }
}
HEADRACE_INLINE F load_half_e8m0(const uint8_t* p) {
  const I e = __builtin_convertvector(load_as<UByte>(p), I);
  return as_float((e - 1 + (e == 0 ? whole(1) : whole(0))) << 23);
}
HEADRACE_INLINE F load_half_e4m3(const uint8_t* p) {
  const Half half = __builtin_convertvector(load_as<UByte>(p), Half) << 7;
  return load_f16(reinterpret_cast<const uint16_t*>(&half)) * 128.0f;
}

HEADRACE_INLINE I load_pairs(const uint16_t* p) { return load_as<I>(p); }
HEADRACE_INLINE F even(I pairs) { return as_float(pairs << 16); }
HEADRACE_INLINE F odd(I pairs) { return as_float(pairs & -65536); }

HEADRACE_INLINE F round_bf16(F x) {
  const I bits = as_bits(x);
  const I rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return as_float((x != x ? bits | 0x400000 : rounded) & -65536);
}
HEADRACE_INLINE void store_bf16(uint16_t* p, F x) {
  const Half half = __builtin_convertvector((as_bits(x) >> 16) & 0xffff, Half);
  __builtin_memcpy(p, &half, sizeof half);
}

HEADRACE_INLINE float largest_magnitude(F a, F b) {
  const I x = as_bits(a) & 0x7fffffff, y = as_bits(b) & 0x7fffffff;
  const I most = x > y ? x : y;
  int32_t bits = most[0];
  for (int i = 1; i < 16; ++i) bits = most[i] > bits ? most[i] : bits;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
HEADRACE_INLINE I store_i8(int8_t* p, F x) {
  const I n = nearest_whole(x);
  const Byte bytes = __builtin_convertvector(n, Byte);
  __builtin_memcpy(p, &bytes, sizeof bytes);
  return n;
}
HEADRACE_INLINE int32_t sum_of(I a) {
  int32_t total = 0;
  for (int i = 0; i < 16; ++i) total += a[i];
  return total;
}

HEADRACE_INLINE Bytes load_bytes(const uint8_t* p) { return load_as<Bytes>(p); }
HEADRACE_INLINE void store_bytes(uint8_t* p, Bytes x) { __builtin_memcpy(p, &x, sizeof x); }
HEADRACE_INLINE Bytes splat_byte(uint8_t x) { return Bytes{} + x; }
HEADRACE_INLINE Bytes flip_top(Bytes x) { return x ^ 0x80; }
template <int kRight>
HEADRACE_INLINE Bytes field(Bytes x, Bytes mask) {
  const I words = reinterpret_cast<I>(x);
  const I moved =
      kRight < 0 ? words << (kRight < 0 ? -kRight : 0) : words >> (kRight < 0 ? 0 : kRight);
  return reinterpret_cast<Bytes>(moved) & mask;
}
template <int kRight>
HEADRACE_INLINE Bytes with_field(Bytes base, Bytes x, Bytes mask) {
  return base | field<kRight>(x, mask);
}
HEADRACE_INLINE Bytes load_table(const uint8_t* sixteen) {
  Bytes table;
  for (int i = 0; i < 4; ++i) {
    __builtin_memcpy(reinterpret_cast<uint8_t*>(&table) + 16 * i, sixteen, 16);
  }
  return table;
}
// Out of line, like quads: without an instruction for it the code is long.
HEADRACE_APART Bytes lookup(const Bytes& table, const Bytes& index) {
  Bytes x;
  for (int i = 0; i < 64; ++i) {
    reinterpret_cast<uint8_t*>(&x)[i] =
        reinterpret_cast<const uint8_t*>(&table)[reinterpret_cast<const uint8_t*>(&index)[i] & 15];
  }
  return x;
}

HEADRACE_INLINE Bytes widen_u8(const uint8_t* p) {
  return reinterpret_cast<Bytes>(__builtin_convertvector(load_as<UByte>(p), I));
}
HEADRACE_INLINE Bytes widen_u16(const uint8_t* p) {
  return reinterpret_cast<Bytes>(__builtin_convertvector(load_as<Half>(p), I));
}
template <int kRight>
HEADRACE_INLINE Bytes word_field(Bytes x, uint32_t mask) {
  return field<kRight>(x, reinterpret_cast<Bytes>(whole(static_cast<int32_t>(mask))));
}
template <int kRight>
HEADRACE_INLINE Bytes with_word_field(Bytes base, Bytes x, uint32_t mask) {
  return base | word_field<kRight>(x, mask);
}
HEADRACE_INLINE Bytes differing(Bytes x, Bytes y) { return x ^ y; }
HEADRACE_INLINE F words_to_float(Bytes x) {
  return __builtin_convertvector(reinterpret_cast<I>(x), F);
}
HEADRACE_APART Bytes gather(const uint32_t* table, const Bytes& index) {
  const I at = reinterpret_cast<I>(index);
  I x;
  for (int i = 0; i < 16; ++i) x[i] = static_cast<int32_t>(table[at[i]]);
  return reinterpret_cast<Bytes>(x);
}

HEADRACE_APART Quads quads(const Bytes& x) {
  const I four = load_as<I>(reinterpret_cast<const uint8_t*>(&x));
  Quads w;
  for (int j = 0; j < 4; ++j) w.b[j] = __builtin_convertvector((four >> (8 * j)) & 0xff, F);
  return w;
}
HEADRACE_INLINE ISum isum(int32_t start) { return splat(static_cast<float>(start)); }
HEADRACE_INLINE ISum dot4(ISum sum, const Quads& w, const int8_t* x) {
  for (int j = 0; j < 4; ++j) sum += w.b[j] * static_cast<float>(x[j]);
  return sum;
}
HEADRACE_INLINE ISum dot4_wide(ISum sum, const Quads& w, const int8_t* x) {
  return dot4(sum, w, x);
}
struct Pairs {
  F first, second;
};
HEADRACE_INLINE Pairs load_u8_pairs(const uint8_t* p) {
  const I pairs = __builtin_convertvector(load_as<Half>(p), I);
  return {__builtin_convertvector(pairs & 0xff, F), __builtin_convertvector(pairs >> 8, F)};
}
HEADRACE_INLINE ISum dot2(ISum sum, const Pairs& w, const int16_t* x) {
  return sum + w.first * static_cast<float>(x[0]) + w.second * static_cast<float>(x[1]);
}
HEADRACE_INLINE F to_float(ISum sum) { return sum; }

HEADRACE_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }
HEADRACE_INLINE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }
HEADRACE_INLINE void prefetch_to_write(const void* p) { __builtin_prefetch(p, 1); }

}  // namespace
