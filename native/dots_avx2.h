// Dot products of bytes by VPMADDUBSW and VPMADDWD, for level_avx2.cpp: behind vec_avx2.h.

#pragma once

#include "codecs.h"
#include "vec_avx2.h"

namespace {

constexpr const char* kLevel = "avx2";

using headrace::kHighestSum;
using headrace::kQuantBound;

// VPMADDUBSW adds two products of an unsigned and a signed byte in 16 bits, saturating.
// dot4: bytes of weights up to 127.
static_assert(2 * 127 * kQuantBound <= kHighestSum);
// dot4_wide: magnitudes of signed bytes, up to 128; unsigned bytes (255) would saturate.
static_assert(2 * 128 * kQuantBound <= kHighestSum && 2 * 255 * kQuantBound > kHighestSum);
constexpr bool kSignedBytes = true;
constexpr bool kWideDiffers = true;
constexpr bool kSumsIn16 = true;  // dot products of small bytes, before they are widened
constexpr bool kDotIsOne = false;
constexpr int kProbeChains = 6;
constexpr int kDotBlockRows = kBlockRows, kDotStreamRows = kStreamRows;

HEADRACE_INLINE __m256i add_products(__m256i sum, __m256i unsigned_bytes, __m256i signed_bytes) {
  const __m256i pairs = _mm256_maddubs_epi16(unsigned_bytes, signed_bytes);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
// The two sums of two products that a dot product has, in 16 bits: added to others there, and then
// widened.
HEADRACE_INLINE I products16(Quads w, const int8_t* x) {
  const __m256i four = splat_four(x);
  return {_mm256_maddubs_epi16(w.a, four), _mm256_maddubs_epi16(w.b, four)};
}
HEADRACE_INLINE I add16(I x, I y) {
  return {_mm256_add_epi16(x.a, y.a), _mm256_add_epi16(x.b, y.b)};
}
HEADRACE_INLINE ISum widen16(ISum sum, I x) {
  const __m256i one = _mm256_set1_epi16(1);
  return {_mm256_add_epi32(sum.a, _mm256_madd_epi16(x.a, one)),
          _mm256_add_epi32(sum.b, _mm256_madd_epi16(x.b, one))};
}
HEADRACE_INLINE ISum dot4(ISum sum, Quads w, const int8_t* x) {
  const __m256i four = splat_four(x);
  return {add_products(sum.a, w.a, four), add_products(sum.b, w.b, four)};
}
// The sign of each weight goes over to its activation: |w| * (sign of w * x).
HEADRACE_INLINE ISum dot4_wide(ISum sum, Quads w, const int8_t* x) {
  const __m256i four = splat_four(x);
  return {add_products(sum.a, _mm256_abs_epi8(w.a), _mm256_sign_epi8(four, w.a)),
          add_products(sum.b, _mm256_abs_epi8(w.b), _mm256_sign_epi8(four, w.b))};
}
HEADRACE_INLINE ISum dot2(ISum sum, Pairs w, const int16_t* x) {
  const __m256i two = splat_two(x);
  return {_mm256_add_epi32(sum.a, _mm256_madd_epi16(w.a, two)),
          _mm256_add_epi32(sum.b, _mm256_madd_epi16(w.b, two))};
}

}  // namespace
