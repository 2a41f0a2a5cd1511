// Loops that only read memory, or only multiply: what the kernels are measured against.

#pragma once

#include "kernels.h"
#include "linear.h"

namespace {

// Independent chains: at least latency (4) times multiplies per cycle (2).
constexpr int kProbeChains = 12;

static float probe_read(const uint8_t* p, int64_t bytes) {
  F sums[4] = {zero(), zero(), zero(), zero()};
  for (int64_t at = 0; at < bytes; at += 256) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      prefetch(p + at + i * 64 + kPrefetchBytes);
      sums[i] = add(sums[i], load(reinterpret_cast<const float*>(p + at + i * 64)));
    }
  }
  return sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

static float probe_multiply(bool int8, int64_t rounds) {
  const uint8_t ones[64] = {1};
  const Quads w = quads(load_bytes(ones));
  const int8_t x[4] = {1, 0, 1, 0};
  const F by = splat(0.999f);
  F f[kProbeChains];
  ISum n[kProbeChains];
  for (int i = 0; i < kProbeChains; ++i) {
    f[i] = splat(1.0f + static_cast<float>(i));
    n[i] = isum(i);
  }
  for (int64_t round = 0; round < rounds; ++round) {
    if (int8) {
#pragma GCC unroll 12
      for (int i = 0; i < kProbeChains; ++i) n[i] = dot4(n[i], w, x);
    } else {
#pragma GCC unroll 12
      for (int i = 0; i < kProbeChains; ++i) f[i] = fma(f[i], by, by);
    }
  }
  float total = 0;
  for (int i = 0; i < kProbeChains; ++i) total += sum(f[i]) + sum(to_float(n[i]));
  return total;
}

}  // namespace
