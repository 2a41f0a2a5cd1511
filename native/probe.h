// Loops that only read memory, or only multiply: what the kernels are measured against.

#pragma once

#include "int8_rows.h"
#include "kernels.h"
#include "row_blocks.h"

namespace {

using headrace::Codec;
using headrace::kProbeBytes;
using headrace::Operands;

// A footprint this large comes from memory or the last cache, where prefetcher ahead pays; below it
// that would only take the place of loads.
constexpr int64_t kAskedBytes = 1 << 20;

template <bool Ask>
static float read_all(const uint8_t* p, int64_t bytes) {
  constexpr int kSums = 8;
  static_assert(kSums * kLanes * sizeof(float) == kProbeBytes);
  F sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = zero();
  for (int64_t at = 0; at < bytes; at += kProbeBytes) {
HEADRACE_UNROLL
    for (int i = 0; i < kSums; ++i) {
      if (Ask) prefetch(p + at + i * 64 + kPrefetchBytes);
      sums[i] = add(sums[i], load(reinterpret_cast<const float*>(p + at + i * 64)));
    }
  }
  for (int i = 1; i < kSums; ++i) sums[0] = add(sums[0], sums[i]);
  return sum(sums[0]);
}

static float probe_read(const uint8_t* p, int64_t bytes) {
  return bytes < kAskedBytes ? read_all<false>(p, bytes) : read_all<true>(p, bytes);
}

static float multiply_floats(int64_t rounds) {
  const F by = splat(0.999f);
  F f[kProbeChains];
  for (int i = 0; i < kProbeChains; ++i) f[i] = splat(1.0f + static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
HEADRACE_UNROLL
    for (int i = 0; i < kProbeChains; ++i) f[i] = fma(f[i], by, by);
  }
  float total = 0;
  for (int i = 0; i < kProbeChains; ++i) total += sum(f[i]);
  return total;
}

// A chain of bytes takes the quickest way that the kernels have: where they add dot products in 16
// bits before they widen them, as many of these as they add at most, which are those of a tile of
// bytes of four bits. Their sums take registers beside those in 32 bits, so that as many chains fit
// as the kernels take rows.
constexpr int kByteDots = dots_in_16(Codec::q4_0);
constexpr int kByteChains = kSumsIn16 ? kDotBlockRows : kProbeChains;
constexpr int64_t kByteOps = kByteChains * kByteDots * kLanes * 4 * 2;

// Bytes are 1, so that what comes back is half of the operations. Loops over chains are unrolled,
// or the chains would lie in memory.
static float multiply_bytes(int64_t rounds) {
  uint8_t ones[64];
  __builtin_memset(ones, 1, sizeof(ones));
  // Bytes that could differ, or registers of a chain that add the same would be taken for one.
  asm volatile("" : : "r"(ones) : "memory");
  const Quads w = quads(load_bytes(ones));
  int8_t x[kByteChains][kByteDots * 4];
  __builtin_memset(x, 1, sizeof(x));
  ISum n[kByteChains][1];
  // Nor are chains, which begin apart.
HEADRACE_UNROLL
  for (int i = 0; i < kByteChains; ++i) n[i][0] = isum(i);
  for (int64_t round = 0; round < rounds; ++round) {
    // Bytes that could have changed: where a dot product is several instructions, products of
    // others would be computed once, and only added in every round.
    if constexpr (!kDotIsOne) asm volatile("" : : "r"(x) : "memory");
    add_dots<kByteDots, 0, kByteDots>(n, x[0], kDotIsOne ? 0 : sizeof(x[0]),
                                      [&]<int>(int) { return w; });
  }
  float total = 0;
HEADRACE_UNROLL
  for (int i = 0; i < kByteChains; ++i) {
    total += sum(to_float(n[i][0])) - static_cast<float>(i * kLanes);
  }
  return total;
}

static float probe_multiply(Operands kind, int64_t rounds) {
  return kind == Operands::int8 ? multiply_bytes(rounds) : multiply_floats(rounds);
}

}  // namespace
