// Sixteen lanes in two AVX2 registers. Include first in a level's unit, before its dots_*.h: dot
// products of bytes. Names and meanings are those of vec_avx512.h.

#pragma once

#include <immintrin.h>

#include <cstdint>

#define HEADRACE_INLINE static inline __attribute__((always_inline))
// For inner loops: inlined into their callers they run out of registers.
#define HEADRACE_APART static __attribute__((noinline))

namespace {

// 3 rows x (even, odd) x 2 registers = 12 accumulators, which leaves 4 of 16 registers for weights
// and a broadcast.
constexpr int kBlockRows = 3;
constexpr int kBlockPanels = 1;
constexpr int kTilesAtOnce = 1;  // of activations; more would be moved to memory
constexpr int kStreamRows = 3;
constexpr int kSpanRows = 3;

struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};
using M = I;      // all bits of a lane, or none
using Bytes = I;  // 16 x 4 bytes
using Quads = I;
using ISum = I;

HEADRACE_INLINE I whole(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
HEADRACE_INLINE I as_bits(F x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
HEADRACE_INLINE F as_float(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
HEADRACE_INLINE I both(I x, I y) {
  return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
HEADRACE_INLINE I sum_whole(I x, I y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}

HEADRACE_INLINE M first(int64_t n) {
  const __m256i many = _mm256_set1_epi32(static_cast<int32_t>(n > 16 ? 16 : n));
  return {_mm256_cmpgt_epi32(many, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
          _mm256_cmpgt_epi32(many, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}
// Lanes of the bits that are set, the lowest for lane 0.
HEADRACE_INLINE M lanes(uint64_t bits) {
  const __m256i all = _mm256_set1_epi32(static_cast<int32_t>(bits & 0xffff));
  const __m256i low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i high = _mm256_slli_epi32(low, 8);
  return {_mm256_cmpeq_epi32(_mm256_and_si256(all, low), low),
          _mm256_cmpeq_epi32(_mm256_and_si256(all, high), high)};
}

HEADRACE_INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
HEADRACE_INLINE F splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
HEADRACE_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
HEADRACE_INLINE F load_n(const float* p, int64_t n) {
  if (n >= 16) return load(p);
  const M m = first(n);
  return {_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}
HEADRACE_INLINE void store(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
HEADRACE_INLINE void store_n(float* p, F x, int64_t n) {
  if (n >= 16) return store(p, x);
  const M m = first(n);
  _mm256_maskstore_ps(p, m.a, x.a);
  _mm256_maskstore_ps(p + 8, m.b, x.b);
}

HEADRACE_INLINE F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
HEADRACE_INLINE F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
HEADRACE_INLINE F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
HEADRACE_INLINE F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
HEADRACE_INLINE F fma(F x, F y, F z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
HEADRACE_INLINE F fnma(F x, F y, F z) {
  return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
HEADRACE_INLINE F at_least(F limit, F x) {
  return {_mm256_max_ps(limit.a, x.a), _mm256_max_ps(limit.b, x.b)};
}
HEADRACE_INLINE F at_most(F limit, F x) {
  return {_mm256_min_ps(limit.a, x.a), _mm256_min_ps(limit.b, x.b)};
}
HEADRACE_INLINE F select(M m, F yes, F no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_castsi256_ps(m.a)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_castsi256_ps(m.b))};
}
HEADRACE_INLINE M is_nan(F x) {
  return {_mm256_castps_si256(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q)),
          _mm256_castps_si256(_mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))};
}
HEADRACE_INLINE bool any_nan(F x, F y) {
  const M nan = {_mm256_castps_si256(_mm256_cmp_ps(x.a, y.a, _CMP_UNORD_Q)),
                 _mm256_castps_si256(_mm256_cmp_ps(x.b, y.b, _CMP_UNORD_Q))};
  return _mm256_movemask_epi8(_mm256_or_si256(nan.a, nan.b)) != 0;
}

template <int kCompare>
HEADRACE_INLINE M compare(F x, F y) {
  return {_mm256_castps_si256(_mm256_cmp_ps(x.a, y.a, kCompare)),
          _mm256_castps_si256(_mm256_cmp_ps(x.b, y.b, kCompare))};
}
HEADRACE_INLINE M above(F x, F bound) { return compare<_CMP_GT_OQ>(x, bound); }
HEADRACE_INLINE M reaches(F x, F bound) { return compare<_CMP_GE_OQ>(x, bound); }
HEADRACE_INLINE uint32_t bits_of(M m) {
  const int low = _mm256_movemask_ps(_mm256_castsi256_ps(m.a));
  const int high = _mm256_movemask_ps(_mm256_castsi256_ps(m.b));
  return static_cast<uint32_t>(low | high << 8);
}
HEADRACE_INLINE int64_t count(M m) { return __builtin_popcount(bits_of(m)); }
HEADRACE_INLINE int64_t compress(float* p, F x, M m) {
  alignas(32) float from[16];
  store(from, x);
  int64_t number = 0;
  for (uint32_t left = bits_of(m); left != 0; left &= left - 1) {
    p[number++] = from[__builtin_ctz(left)];
  }
  return number;
}

// A whole number n as the double 1.5 * 2^52 + n, whose lowest bits are n: adding x * 2^42 to the
// first of them rounds it.
struct FixedSum {
  __m256i a, b;
};
HEADRACE_INLINE FixedSum no_sum() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
HEADRACE_INLINE __m256i to_fixed(__m128 x) {
  const __m256d magic = _mm256_set1_pd(0x1.8p52);
  const __m256d scaled = _mm256_mul_pd(_mm256_cvtps_pd(x), _mm256_set1_pd(0x1p42));
  return _mm256_sub_epi64(_mm256_castpd_si256(_mm256_add_pd(scaled, magic)),
                          _mm256_castpd_si256(magic));
}
HEADRACE_INLINE FixedSum add_fixed(FixedSum sum, F x) {
  const __m256i a = _mm256_add_epi64(to_fixed(_mm256_castps256_ps128(x.a)),
                                     to_fixed(_mm256_castps256_ps128(x.b)));
  const __m256i b = _mm256_add_epi64(to_fixed(_mm256_extractf128_ps(x.a, 1)),
                                     to_fixed(_mm256_extractf128_ps(x.b, 1)));
  return {_mm256_add_epi64(sum.a, a), _mm256_add_epi64(sum.b, b)};
}
HEADRACE_INLINE int64_t total(FixedSum sum) {
  alignas(32) int64_t lanes_of[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes_of), _mm256_add_epi64(sum.a, sum.b));
  return (lanes_of[0] + lanes_of[1]) + (lanes_of[2] + lanes_of[3]);
}

HEADRACE_INLINE F nearest(F x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kMode), _mm256_round_ps(x.b, kMode)};
}
HEADRACE_INLINE I nearest_whole(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
HEADRACE_INLINE __m256 scale_half(__m256 x, __m256i power) {
  const __m256i bias = _mm256_set1_epi32(127), low = _mm256_srai_epi32(power, 1);
  const __m256i high = _mm256_sub_epi32(power, low);
  const __m256i one = _mm256_slli_epi32(_mm256_add_epi32(low, bias), 23);
  const __m256i two = _mm256_slli_epi32(_mm256_add_epi32(high, bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_castsi256_ps(one)), _mm256_castsi256_ps(two));
}
// In two steps, since 2^n alone may be out of range.
HEADRACE_INLINE F scale_by_power(F x, F n) {
  const I power = nearest_whole(n);
  return {scale_half(x.a, power.a), scale_half(x.b, power.b)};
}

HEADRACE_INLINE float sum(F x) {
  const __m256 half = _mm256_add_ps(x.a, x.b);
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
HEADRACE_INLINE float largest(F x) {
  const __m256 half = _mm256_max_ps(x.a, x.b);
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

HEADRACE_INLINE __m128i load_16(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
HEADRACE_INLINE __m128i load_8(const void* p) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(p));
}
HEADRACE_INLINE F load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(load_16(p)), _mm256_cvtph_ps(load_16(p + 8))};
}
HEADRACE_INLINE F load_bf16(const uint16_t* p) {
  return as_float({_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(p)), 16),
                   _mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(p + 8)), 16)});
}
HEADRACE_INLINE F whole_to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
HEADRACE_INLINE void load_f8_pairs(const uint8_t* p, F& first_of, F& second_of) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i kept = _mm256_set1_epi16(static_cast<int16_t>(0xbf80));
  const __m256i high = _mm256_and_si256(_mm256_srai_epi16(pairs, 1), kept);
  const __m256i low =
      _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(pairs, 8), 1), kept);
  first_of = {_mm256_cvtph_ps(_mm256_castsi256_si128(low)),
              _mm256_cvtph_ps(_mm256_extracti128_si256(low, 1))};
  second_of = {_mm256_cvtph_ps(_mm256_castsi256_si128(high)),
               _mm256_cvtph_ps(_mm256_extracti128_si256(high, 1))};
}
HEADRACE_INLINE F load_i8(const int8_t* p) {
  return whole_to_float({_mm256_cvtepi8_epi32(load_8(p)), _mm256_cvtepi8_epi32(load_8(p + 8))});
}
HEADRACE_INLINE F load_u8(const uint8_t* p) {
  return whole_to_float({_mm256_cvtepu8_epi32(load_8(p)), _mm256_cvtepu8_epi32(load_8(p + 8))});
}
HEADRACE_INLINE F signed_to_float(__m128i nibbles) {
  const __m128i x = _mm_sub_epi8(nibbles, _mm_set1_epi8(8));
  return whole_to_float({_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))});
}
HEADRACE_INLINE void load_i4_pairs(const uint8_t* p, F& low, F& high) {
  const __m128i x = load_16(p), mask = _mm_set1_epi8(15);
  low = signed_to_float(_mm_and_si128(x, mask));
  high = signed_to_float(_mm_and_si128(_mm_srli_epi32(x, 4), mask));
}
HEADRACE_INLINE void load_i4_rows(const uint8_t* p, F& first_of, F& second_of) {
  const __m128i x = load_16(p), mask = _mm_set1_epi8(15);
  const __m128i low = _mm_and_si128(x, mask), high = _mm_and_si128(_mm_srli_epi32(x, 4), mask);
  first_of = signed_to_float(_mm_unpacklo_epi64(low, high));
  second_of = signed_to_float(_mm_unpackhi_epi64(low, high));
}
// 16 bytes of two codes each: what a table of 16 has for the lower halves and for the upper ones.
HEADRACE_INLINE __m256 looked_up(__m256i codes, __m256 first_of, __m256 last_of) {
  const __m256 above = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28));  // its sign: bit 3
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(first_of, codes),
                          _mm256_permutevar8x32_ps(last_of, codes), above);
}
HEADRACE_INLINE void load_table_pairs(const uint8_t* p, const float* table, F& low, F& high) {
  const __m256 first_of = _mm256_load_ps(table), last_of = _mm256_load_ps(table + 8);
  const __m256i a = _mm256_cvtepu8_epi32(load_8(p)), b = _mm256_cvtepu8_epi32(load_8(p + 8));
  low = {looked_up(a, first_of, last_of), looked_up(b, first_of, last_of)};
  high = {looked_up(_mm256_srli_epi32(a, 4), first_of, last_of),
          looked_up(_mm256_srli_epi32(b, 4), first_of, last_of)};
}
HEADRACE_INLINE F bytes_to_float(__m128i x) {
  return whole_to_float({_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))});
}
HEADRACE_INLINE F load_low_nibbles(const uint8_t* p) {
  return bytes_to_float(_mm_and_si128(load_16(p), _mm_set1_epi8(15)));
}
HEADRACE_INLINE F load_high_nibbles(const uint8_t* p) {
  return bytes_to_float(_mm_and_si128(_mm_srli_epi32(load_16(p), 4), _mm_set1_epi8(15)));
}
// 16 exponents: 2^(e - 128), and 0 for e = 0 and 1, whose powers would be denormal.
HEADRACE_INLINE F load_half_e8m0(const uint8_t* p) {
  const __m128i biased = _mm_subs_epu8(load_16(p), _mm_set1_epi8(1));
  return as_float({_mm256_slli_epi32(_mm256_cvtepu8_epi32(biased), 23),
                   _mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_srli_si128(biased, 8)), 23)});
}
HEADRACE_INLINE F load_half_e4m3(const uint8_t* p) {
  const __m256i half = _mm256_slli_epi16(_mm256_cvtepu8_epi16(load_16(p)), 7);
  const __m256 factor = _mm256_set1_ps(128.0f);
  return {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), factor),
          _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), factor)};
}

HEADRACE_INLINE I load_pairs(const uint16_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16))};
}
HEADRACE_INLINE F even(I pairs) {
  return as_float({_mm256_slli_epi32(pairs.a, 16), _mm256_slli_epi32(pairs.b, 16)});
}
HEADRACE_INLINE F odd(I pairs) { return as_float(both(pairs, whole(-65536))); }

HEADRACE_INLINE F round_bf16(F x) {
  const I bits = as_bits(x);
  const I upper = {_mm256_srli_epi32(bits.a, 16), _mm256_srli_epi32(bits.b, 16)};
  const I rounded = sum_whole(sum_whole(bits, whole(0x7fff)), both(upper, whole(1)));
  const I quiet = {_mm256_or_si256(bits.a, _mm256_set1_epi32(0x400000)),
                   _mm256_or_si256(bits.b, _mm256_set1_epi32(0x400000))};
  return as_float(both(as_bits(select(is_nan(x), as_float(quiet), as_float(rounded))),
                       whole(-65536)));
}
HEADRACE_INLINE void store_bf16(uint16_t* p, F x) {
  const I bits = as_bits(x);
  const __m256i half =
      _mm256_packus_epi32(_mm256_srli_epi32(bits.a, 16), _mm256_srli_epi32(bits.b, 16));
  // Packing works within halves of a register.
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(half, 0xd8));
}

HEADRACE_INLINE int32_t largest_of(__m256i x) {
  const __m128i half = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  const __m128i pair = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(pair, _mm_shuffle_epi32(pair, 0xb1)));
}
HEADRACE_INLINE float largest_magnitude(F x, F y) {
  const I sign = whole(0x7fffffff), p = both(as_bits(x), sign), q = both(as_bits(y), sign);
  const __m256i most = _mm256_max_epi32(_mm256_max_epi32(p.a, p.b), _mm256_max_epi32(q.a, q.b));
  const int32_t bits = largest_of(most);
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
HEADRACE_INLINE I store_i8(int8_t* p, F x) {
  const I n = nearest_whole(x);
  const __m256i half = _mm256_permute4x64_epi64(_mm256_packs_epi32(n.a, n.b), 0xd8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  return n;
}
HEADRACE_INLINE int32_t sum_of(I x) {
  const __m256i both_halves = _mm256_add_epi32(x.a, x.b);
  const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(both_halves),
                                     _mm256_extracti128_si256(both_halves, 1));
  const __m128i pair = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32(pair, 0xb1)));
}

HEADRACE_INLINE Bytes load_bytes(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
HEADRACE_INLINE void store_bytes(uint8_t* p, Bytes x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), x.b);
}
HEADRACE_INLINE Bytes splat_byte(uint8_t x) {
  const __m256i all = _mm256_set1_epi8(static_cast<char>(x));
  return {all, all};
}
HEADRACE_INLINE Bytes flip_top(Bytes x) {
  const Bytes top = splat_byte(0x80);
  return {_mm256_xor_si256(x.a, top.a), _mm256_xor_si256(x.b, top.b)};
}
template <int kRight>
HEADRACE_INLINE Bytes field(Bytes x, Bytes mask) {
  if constexpr (kRight > 0) x = {_mm256_srli_epi32(x.a, kRight), _mm256_srli_epi32(x.b, kRight)};
  if constexpr (kRight < 0) x = {_mm256_slli_epi32(x.a, -kRight), _mm256_slli_epi32(x.b, -kRight)};
  return both(x, mask);
}
template <int kRight>
HEADRACE_INLINE Bytes with_field(Bytes base, Bytes x, Bytes mask) {
  const Bytes more = field<kRight>(x, mask);
  return {_mm256_or_si256(base.a, more.a), _mm256_or_si256(base.b, more.b)};
}
HEADRACE_INLINE Bytes load_table(const uint8_t* sixteen) {
  const __m256i table = _mm256_broadcastsi128_si256(load_16(sixteen));
  return {table, table};
}
HEADRACE_INLINE Bytes lookup(Bytes table, Bytes index) {
  return {_mm256_shuffle_epi8(table.a, index.a), _mm256_shuffle_epi8(table.b, index.b)};
}

HEADRACE_INLINE Bytes widen_u8(const uint8_t* p) {
  return {_mm256_cvtepu8_epi32(load_8(p)), _mm256_cvtepu8_epi32(load_8(p + 8))};
}
HEADRACE_INLINE Bytes widen_u16(const uint8_t* p) {
  return {_mm256_cvtepu16_epi32(load_16(p)), _mm256_cvtepu16_epi32(load_16(p + 16))};
}
template <int kRight>
HEADRACE_INLINE Bytes word_field(Bytes x, uint32_t mask) {
  return field<kRight>(x, whole(static_cast<int32_t>(mask)));
}
template <int kRight>
HEADRACE_INLINE Bytes with_word_field(Bytes base, Bytes x, uint32_t mask) {
  return with_field<kRight>(base, x, whole(static_cast<int32_t>(mask)));
}
HEADRACE_INLINE Bytes differing(Bytes x, Bytes y) {
  return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}
HEADRACE_INLINE F words_to_float(Bytes x) { return whole_to_float(x); }
HEADRACE_INLINE Bytes gather(const uint32_t* table, Bytes index) {
  const int* entries = reinterpret_cast<const int*>(table);
  return {_mm256_i32gather_epi32(entries, index.a, 4), _mm256_i32gather_epi32(entries, index.b, 4)};
}

HEADRACE_INLINE Quads quads(Bytes x) { return x; }
HEADRACE_INLINE ISum isum(int32_t start) { return whole(start); }
// What meets every output in a dot product: four bytes, or two whole numbers of 16 bits.
HEADRACE_INLINE __m256i splat_four(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}
HEADRACE_INLINE __m256i splat_two(const int16_t* x) {
  int32_t two;
  __builtin_memcpy(&two, x, 4);
  return _mm256_set1_epi32(two);
}
using Pairs = I;  // 16 x 2 whole numbers of 16 bits
HEADRACE_INLINE Pairs load_u8_pairs(const uint8_t* p) {
  return {_mm256_cvtepu8_epi16(load_16(p)), _mm256_cvtepu8_epi16(load_16(p + 16))};
}
HEADRACE_INLINE F to_float(ISum sum) { return whole_to_float(sum); }

HEADRACE_INLINE void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
HEADRACE_INLINE void prefetch_far(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}
HEADRACE_INLINE void prefetch_to_write(const void* p) { __builtin_prefetch(p, 1); }

}  // namespace
