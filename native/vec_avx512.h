// Sixteen lanes in one AVX-512 register. Include first in a level's unit.
//
// What a level has to offer the kernels: the types and functions below, all with internal linkage.
// vec_portable.h has the same names with the same meaning in plain C++.

#pragma once

#include <immintrin.h>

#include <cstdint>

#define HEADRACE_INLINE static inline __attribute__((always_inline))
// For inner loops: inlined into their callers they run out of registers.
#define HEADRACE_APART static __attribute__((noinline))

namespace {

constexpr const char* kLevel = "avx512";
// Register block of the matrix kernels: 6 rows x 2 panels x (even, odd) = 24 accumulators, which
// leaves 8 of 32 registers for weights, broadcasts and the row sums.
constexpr int kBlockRows = 6;
constexpr int kBlockPanels = 2;
// Tiles of activations that are rounded at once: their largest and their sums are found together.
constexpr int kTilesAtOnce = 4;
// Rows that are still taken in one pass while weights stream from memory: 8 x (even, odd) + 8.
constexpr int kStreamRows = 8;
// Both of quantised weights: their sums of a group and their totals take a register each, as sums
// over even and over odd k of floats do.
constexpr int kDotBlockRows = kBlockRows, kDotStreamRows = kStreamRows;
// Rows of attention that go together: 4 x 2 panels x (even, odd) and 8 sums that stay in registers.
constexpr int kSpanRows = 4;
// Chains of the probe: as registers they hide latency (4) times multiplies per cycle (2), and fit.
constexpr int kProbeChains = 12;

using F = __m512;      // 16 x f32
using I = __m512i;     // 16 x 32 bits
using M = __mmask16;   // 16 x bool
using Bytes = __m512i;  // 16 x 4 bytes
using Quads = __m512i;  // bytes made ready for dot4
using ISum = __m512i;   // 16 exact integer sums

// How dot4_wide reads bytes above 127: unsigned here. A level whose exact products take signed
// bytes says true, and is handed such bytes with their top bit flipped.
constexpr bool kSignedBytes = false;
// Whether dot4_wide is another computation than dot4: the kernels are compiled twice where it is.
constexpr bool kWideDiffers = false;
constexpr bool kSumsIn16 = false;
// Whether dot4 is one instruction, its sum included.
constexpr bool kDotIsOne = true;

HEADRACE_INLINE M first(int64_t n) { return static_cast<M>(n >= 16 ? 0xffff : (1u << n) - 1); }
// Lanes of the bits that are set, the lowest for lane 0.
HEADRACE_INLINE M lanes(uint64_t bits) { return static_cast<M>(bits); }

HEADRACE_INLINE F zero() { return _mm512_setzero_ps(); }
HEADRACE_INLINE F splat(float x) { return _mm512_set1_ps(x); }
HEADRACE_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
HEADRACE_INLINE F load_n(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
HEADRACE_INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x); }
HEADRACE_INLINE void store_n(float* p, F x, int64_t n) { _mm512_mask_storeu_ps(p, first(n), x); }

HEADRACE_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
HEADRACE_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
HEADRACE_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
HEADRACE_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
HEADRACE_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
HEADRACE_INLINE F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a * b
// The larger (smaller) one; `x` where either is NaN.
HEADRACE_INLINE F at_least(F limit, F x) { return _mm512_max_ps(limit, x); }
HEADRACE_INLINE F at_most(F limit, F x) { return _mm512_min_ps(limit, x); }
HEADRACE_INLINE F select(M m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }
// Whether any lane of either is NaN.
HEADRACE_INLINE bool any_nan(F x, F y) { return _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q) != 0; }
// Lanes whose x is above the bound; whose x is that or more; the lanes of two sets that are in
// both.
HEADRACE_INLINE M above(F x, F bound) { return _mm512_cmp_ps_mask(x, bound, _CMP_GT_OQ); }
HEADRACE_INLINE M reaches(F x, F bound) { return _mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ); }
HEADRACE_INLINE M both(M a, M b) { return static_cast<M>(a & b); }
HEADRACE_INLINE int64_t count(M m) { return __builtin_popcount(m); }
// The lanes of x in m, in their order; how many they are. All of sixteen places are written.
HEADRACE_INLINE int64_t compress(float* p, F x, M m) {
  _mm512_storeu_ps(p, _mm512_maskz_compress_ps(m, x));
  return count(m);
}

// Sums of x * 2^42, each rounded to a whole number (ties to even), for x in [0, 1].
struct FixedSum {
  __m512i a, b;
};
HEADRACE_INLINE FixedSum no_sum() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
HEADRACE_INLINE FixedSum add_fixed(FixedSum sum, F x) {
  const F scaled = _mm512_mul_ps(x, _mm512_set1_ps(0x1p42f));
  const __m256 low = _mm512_castps512_ps256(scaled), high = _mm512_extractf32x8_ps(scaled, 1);
  return {_mm512_add_epi64(sum.a, _mm512_cvtps_epi64(low)),
          _mm512_add_epi64(sum.b, _mm512_cvtps_epi64(high))};
}
HEADRACE_INLINE int64_t total(FixedSum sum) {
  return _mm512_reduce_add_epi64(_mm512_add_epi64(sum.a, sum.b));
}

// Nearest even.
HEADRACE_INLINE F nearest(F x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// x * 2^n for whole n.
HEADRACE_INLINE F scale_by_power(F x, F n) { return _mm512_scalef_ps(x, n); }

// Sum of the lanes, halves first: (i, i + 8), (i, i + 4), (i, i + 2), (0, 1).
HEADRACE_INLINE float sum(F x) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 quarter =
      _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
HEADRACE_INLINE float largest(F x) { return _mm512_reduce_max_ps(x); }

HEADRACE_INLINE F load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HEADRACE_INLINE F load_bf16(const uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
// 16 pairs of e4m3, the first and the second of each pair as 2^-8 of what they are: shifted by one
// bit they are halves, whose exponents are 8 less. NaN codes are 480.
HEADRACE_INLINE void load_f8_pairs(const uint8_t* p, F& first_of, F& second_of) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i kept = _mm256_set1_epi16(static_cast<int16_t>(0xbf80));
  const __m256i high = _mm256_srai_epi16(pairs, 1);
  const __m256i low = _mm256_srai_epi16(_mm256_slli_epi16(pairs, 8), 1);
  first_of = _mm512_cvtph_ps(_mm256_and_si256(low, kept));
  second_of = _mm512_cvtph_ps(_mm256_and_si256(high, kept));
}
HEADRACE_INLINE F load_i8(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
// 16 bytes of two numbers each, stored 8 above what they are: the lower halves and the upper ones;
// and two rows of eight bytes, in each the lower halves and then the upper ones.
HEADRACE_INLINE F signed_to_float(__m128i nibbles) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_sub_epi8(nibbles, _mm_set1_epi8(8))));
}
HEADRACE_INLINE void load_i4_pairs(const uint8_t* p, F& low, F& high) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), mask = _mm_set1_epi8(15);
  low = signed_to_float(_mm_and_si128(x, mask));
  high = signed_to_float(_mm_and_si128(_mm_srli_epi32(x, 4), mask));
}
HEADRACE_INLINE void load_i4_rows(const uint8_t* p, F& first_of, F& second_of) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), mask = _mm_set1_epi8(15);
  const __m128i low = _mm_and_si128(x, mask), high = _mm_and_si128(_mm_srli_epi32(x, 4), mask);
  first_of = signed_to_float(_mm_unpacklo_epi64(low, high));
  second_of = signed_to_float(_mm_unpackhi_epi64(low, high));
}
// 16 bytes of two codes each: what a table of 16 has for the lower halves and for the upper ones.
HEADRACE_INLINE void load_table_pairs(const uint8_t* p, const float* table, F& low, F& high) {
  const F entries = _mm512_load_ps(table);
  const I codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  low = _mm512_permutexvar_ps(codes, entries);  // which reads four bits
  high = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), entries);
}
HEADRACE_INLINE F load_u8(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}
HEADRACE_INLINE F load_low_nibbles(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_cvtepu8_epi32(bytes), _mm512_set1_epi32(15)));
}
HEADRACE_INLINE F load_high_nibbles(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_cvtepu8_epi32(bytes), 4));
}
// 16 exponents: 2^(e - 128), and 0 for e = 0 and 1, whose powers would be denormal.
HEADRACE_INLINE F load_half_e8m0(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i biased = _mm_subs_epu8(bytes, _mm_set1_epi8(1));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(biased), 23));
}
// 16 halves of E4M3 numbers without a sign (seven bits): as halves they are 2^8 / 2 too small.
HEADRACE_INLINE F load_half_e4m3(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i half = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 7);
  return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(128.0f));
}

// 16 pairs of bf16, and the first or second of each pair as f32.
HEADRACE_INLINE I load_pairs(const uint16_t* p) { return _mm512_loadu_si512(p); }
HEADRACE_INLINE F even(I pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
HEADRACE_INLINE F odd(I pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-65536)));
}

// Nearest bf16, ties to even, still as f32. NaN stays NaN.
HEADRACE_INLINE F round_bf16(F x) {
  const I bits = _mm512_castps_si512(x);
  const I lowest = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const I rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), lowest);
  const I quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const M nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const I chosen = _mm512_mask_blend_epi32(nan, rounded, quiet);
  return _mm512_castsi512_ps(_mm512_and_si512(chosen, _mm512_set1_epi32(-65536)));
}
// 16 values that are bf16 already.
HEADRACE_INLINE void store_bf16(uint16_t* p, F x) {
  const __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x), 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), half);
}

// Largest magnitude of 32 values; NaN when one is NaN (as bits, NaN is above infinity).
HEADRACE_INLINE float largest_magnitude(F a, F b) {
  const I sign = _mm512_set1_epi32(0x7fffffff);
  const I x = _mm512_and_si512(_mm512_castps_si512(a), sign);
  const I y = _mm512_and_si512(_mm512_castps_si512(b), sign);
  return _mm_cvtss_f32(
      _mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(_mm512_max_epi32(x, y)))));
}
// 16 whole numbers in [-127, 127] as bytes; returns their lanes for summing.
HEADRACE_INLINE I store_i8(int8_t* p, F x) {
  const I whole = _mm512_cvtps_epi32(x);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(whole));
  return whole;
}
HEADRACE_INLINE int32_t sum_of(I a) { return _mm512_reduce_add_epi32(a); }

// What `join` makes of each of four registers' lanes: of two at a time, then within what is left.
template <class Join, class JoinFour>
HEADRACE_INLINE __m128i over_lanes_of_four(const I (&x)[4], const Join& join,
                                           const JoinFour& join_four) {
  const I ab = join(_mm512_unpacklo_epi32(x[0], x[1]), _mm512_unpackhi_epi32(x[0], x[1]));
  const I cd = join(_mm512_unpacklo_epi32(x[2], x[3]), _mm512_unpackhi_epi32(x[2], x[3]));
  const I abcd = join(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  return join_four(
      join_four(_mm512_castsi512_si128(abcd), _mm512_extracti32x4_epi32(abcd, 1)),
      join_four(_mm512_extracti32x4_epi32(abcd, 2), _mm512_extracti32x4_epi32(abcd, 3)));
}
HEADRACE_INLINE void largest_magnitudes(const F (&low)[4], const F (&high)[4], float (&most)[4]) {
  const I sign = _mm512_set1_epi32(0x7fffffff);
  I of[4];
  for (int i = 0; i < 4; ++i) {
    of[i] = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(low[i]), sign),
                             _mm512_and_si512(_mm512_castps_si512(high[i]), sign));
  }
  const __m128i found = over_lanes_of_four(
      of, [](I a, I b) { return _mm512_max_epi32(a, b); },
      [](__m128i a, __m128i b) { return _mm_max_epi32(a, b); });
  _mm_storeu_ps(most, _mm_castsi128_ps(found));
}
HEADRACE_INLINE void tile_sums(const I (&low)[4], const I (&high)[4], int32_t (&sums)[4]) {
  I of[4];
  for (int i = 0; i < 4; ++i) of[i] = _mm512_add_epi32(low[i], high[i]);
  const __m128i found = over_lanes_of_four(
      of, [](I a, I b) { return _mm512_add_epi32(a, b); },
      [](__m128i a, __m128i b) { return _mm_add_epi32(a, b); });
  _mm_storeu_si128(reinterpret_cast<__m128i*>(sums), found);
}

HEADRACE_INLINE Bytes load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
HEADRACE_INLINE void store_bytes(uint8_t* p, Bytes x) { _mm512_storeu_si512(p, x); }
HEADRACE_INLINE Bytes splat_byte(uint8_t x) { return _mm512_set1_epi8(static_cast<char>(x)); }
HEADRACE_INLINE Bytes flip_top(Bytes x) { return _mm512_xor_si512(x, splat_byte(0x80)); }
// (x >> kRight) & mask in each byte, to the left where kRight is negative. The mask must leave out
// what crosses from a neighbouring byte.
template <int kRight>
HEADRACE_INLINE Bytes field(Bytes x, Bytes mask) {
  if constexpr (kRight > 0) x = _mm512_srli_epi32(x, kRight);
  if constexpr (kRight < 0) x = _mm512_slli_epi32(x, -kRight);
  return _mm512_and_si512(x, mask);
}
// base | field<kRight>(x, mask).
template <int kRight>
HEADRACE_INLINE Bytes with_field(Bytes base, Bytes x, Bytes mask) {
  if constexpr (kRight > 0) x = _mm512_srli_epi32(x, kRight);
  if constexpr (kRight < 0) x = _mm512_slli_epi32(x, -kRight);
  return _mm512_ternarylogic_epi32(base, x, mask, 0xf8);
}
// A table of 16 bytes, and its entries at indices below 16.
HEADRACE_INLINE Bytes load_table(const uint8_t* sixteen) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen)));
}
HEADRACE_INLINE Bytes lookup(Bytes table, Bytes index) {
  return _mm512_shuffle_epi8(table, index);
}

// Bytes as 16 words: bytes and halves widened, (x >> kRight) & mask as field's but of words, base |
// it, bits that differ, small numbers as f32, and table entries at indices that are in the table.
HEADRACE_INLINE Bytes widen_u8(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEADRACE_INLINE Bytes widen_u16(const uint8_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
template <int kRight>
HEADRACE_INLINE Bytes word_field(Bytes x, uint32_t mask) {
  return field<kRight>(x, _mm512_set1_epi32(static_cast<int32_t>(mask)));
}
template <int kRight>
HEADRACE_INLINE Bytes with_word_field(Bytes base, Bytes x, uint32_t mask) {
  return with_field<kRight>(base, x, _mm512_set1_epi32(static_cast<int32_t>(mask)));
}
HEADRACE_INLINE Bytes differing(Bytes x, Bytes y) { return _mm512_xor_si512(x, y); }
HEADRACE_INLINE F words_to_float(Bytes x) { return _mm512_cvtepi32_ps(x); }
HEADRACE_INLINE Bytes gather(const uint32_t* table, Bytes index) {
  return _mm512_i32gather_epi32(index, table, 4);
}

// Kept in a register: gcc 12 would load it again for each dot product where rows are few.
HEADRACE_INLINE Quads quads(Bytes x) {
  asm("" : "+v"(x));
  return x;
}
HEADRACE_INLINE ISum isum(int32_t start) { return _mm512_set1_epi32(start); }
// Adds, in each lane, 4 bytes of w times the 4 signed bytes at x, which are never -128. dot4: the
// bytes of w are at most 127; dot4_wide: they are anything, unsigned or signed as kSignedBytes
// says.
HEADRACE_INLINE ISum dot4(ISum sum, Quads w, const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four));
}
HEADRACE_INLINE ISum dot4_wide(ISum sum, Quads w, const int8_t* x) { return dot4(sum, w, x); }
// 16 pairs of bytes as whole numbers, and the sum of each pair's products with the two at x in each
// lane.
using Pairs = __m512i;
HEADRACE_INLINE Pairs load_u8_pairs(const uint8_t* p) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HEADRACE_INLINE ISum dot2(ISum sum, Pairs w, const int16_t* x) {
  int32_t two;
  __builtin_memcpy(&two, x, 4);
  return _mm512_dpwssd_epi32(sum, w, _mm512_set1_epi32(two));
}
HEADRACE_INLINE F to_float(ISum sum) { return _mm512_cvtepi32_ps(sum); }

HEADRACE_INLINE void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
// Into the second level only.
HEADRACE_INLINE void prefetch_far(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}
HEADRACE_INLINE void prefetch_to_write(const void* p) { __builtin_prefetch(p, 1); }

}  // namespace
