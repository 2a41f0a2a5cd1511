// Loops that only read memory, or only multiply: what the kernels are measured against.

#pragma once

#include "kernels.h"
#include "row_blocks.h"

namespace {

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

// Loops over chains are unrolled, or the chains would lie in memory. Products are added as the
// quickest kinds of weights have it (int8_rows.h): in 16 bits, as many as those of the least bytes,
// where the level has such sums, or the rate would be no limit of theirs.
template <int kChains>
static float multiply_bytes(int64_t rounds) {
  const uint8_t ones[64] = {1};
  const Quads w = quads(load_bytes(ones));
  int8_t x[kChains][4] = {};
  ISum n[kChains];
HEADRACE_UNROLL
  for (int i = 0; i < kChains; ++i) {
    n[i] = isum(i);
    x[i][0] = static_cast<int8_t>(i);
  }
  // Bytes that could have changed: where a dot product is several instructions, products of others
  // would be computed once, and only added in every round.
  const auto changed = [&] {
    if constexpr (!kDotIsOne) asm volatile("" : : "r"(x) : "memory");
  };
  int64_t round = 0;
  if constexpr (kSumsIn16) {
    for (; round + kFours <= rounds; round += kFours) {
      Quads sums[kChains];
HEADRACE_UNROLL
      for (int four = 0; four < kFours; ++four) {
        changed();
HEADRACE_UNROLL
        for (int i = 0; i < kChains; ++i) {
          const Quads product = products16(w, x[i]);
          sums[i] = four == 0 ? product : add16(sums[i], product);
        }
      }
HEADRACE_UNROLL
      for (int i = 0; i < kChains; ++i) n[i] = widen16(n[i], sums[i]);
    }
  }
  for (; round < rounds; ++round) {
    changed();
HEADRACE_UNROLL
    for (int i = 0; i < kChains; ++i) n[i] = dot4(n[i], w, x[kDotIsOne ? 0 : i]);
  }
  float total = 0;
HEADRACE_UNROLL
  for (int i = 0; i < kChains; ++i) total += sum(to_float(n[i]));
  return total;
}

static float probe_multiply(Operands kind, int64_t rounds) {
  return kind == Operands::int8 ? multiply_bytes<kProbeChains>(rounds) : multiply_floats(rounds);
}

}  // namespace
