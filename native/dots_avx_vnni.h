// Dot products of bytes by VPDPBUSD, for level_avx_vnni.cpp: behind vec_avx2.h.

#pragma once

#include "vec_avx2.h"

namespace {

constexpr const char* kLevel = "avx_vnni";

// The instruction adds four products in 32 bits, of unsigned bytes up to 255.
constexpr bool kSignedBytes = false;
constexpr bool kWideDiffers = false;
constexpr bool kSumsIn16 = false;
constexpr bool kDotIsOne = true;
// 5 x 2 registers of sums: gcc 12 stores those of 6 in every round.
constexpr int kProbeChains = 5;
// 4 rows x 2 registers of sums, and as many of totals, of which some lie in memory: that costs less
// than a pass of three rows and one of one, where 4 or 8 rows come.
constexpr int kDotBlockRows = 4, kDotStreamRows = 4;

HEADRACE_INLINE ISum dot4(ISum sum, Quads w, const int8_t* x) {
  const __m256i four = splat_four(x);
  return {_mm256_dpbusd_avx_epi32(sum.a, w.a, four), _mm256_dpbusd_avx_epi32(sum.b, w.b, four)};
}
HEADRACE_INLINE ISum dot4_wide(ISum sum, Quads w, const int8_t* x) { return dot4(sum, w, x); }
HEADRACE_INLINE ISum dot2(ISum sum, Pairs w, const int16_t* x) {
  const __m256i two = splat_two(x);
  return {_mm256_dpwssd_avx_epi32(sum.a, w.a, two), _mm256_dpwssd_avx_epi32(sum.b, w.b, two)};
}

}  // namespace
