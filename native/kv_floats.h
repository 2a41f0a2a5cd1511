// Readers of K and V as floats of 32 and of 16 bits, without scales.

#pragma once

#include "chains.h"
#include "kernels.h"

namespace {

using headrace::KvCodec;

template <KvCodec>
struct KvReader;

// Of kinds without scales.
struct Unscaled {
  HEADRACE_INLINE F scored(const uint8_t* /*group*/, float /*scale*/, F sums) { return sums; }
  HEADRACE_INLINE F weighed(const uint8_t* /*group*/, float /*scale*/, F p) { return p; }
};

template <>
struct KvReader<KvCodec::f32> : Unscaled {
  static constexpr KvCodec kCodec = KvCodec::f32;
  using Keys = F32Pairs;
  using Values = F32Pairs;
  using T = float;

  static constexpr int64_t key_at(int64_t d, int64_t token) { return d * kLanes + token; }
  static constexpr int64_t value_at(int64_t token, int64_t d) { return token * kLanes + d; }

  HEADRACE_INLINE F rounded(F x) { return x; }

  HEADRACE_INLINE void write_key(uint8_t* group, int64_t lane, const float* k, int64_t width,
                                 float /*scale*/) {
    float* to = reinterpret_cast<float*>(group);
    for (int64_t d = 0; d < width; ++d) to[key_at(d, lane)] = k[d];
  }

  // Zeros past the width.
  HEADRACE_INLINE void write_value(uint8_t* group, int64_t lane, const float* v, int64_t width,
                                   float /*scale*/) {
    float* panel = reinterpret_cast<float*>(group);
    for (int64_t d = 0; d < width; d += kLanes, panel += kLanes * kLanes) {
      store(panel + value_at(lane, 0), load_n(v + d, width - d));
    }
  }
};

template <>
struct KvReader<KvCodec::bf16> : Unscaled {
  static constexpr KvCodec kCodec = KvCodec::bf16;
  using Keys = BF16Pairs;
  using Values = BF16Pairs;
  using T = uint16_t;
  static constexpr int kPair = Keys::kPair;

  static constexpr int64_t key_at(int64_t d, int64_t token) {
    return d / 2 * kPair + 2 * token + d % 2;
  }
  static constexpr int64_t value_at(int64_t token, int64_t d) {
    return token / 2 * kPair + 2 * d + token % 2;
  }

  HEADRACE_INLINE F rounded(F x) { return round_bf16(x); }

  HEADRACE_INLINE void write_key(uint8_t* group, int64_t lane, const float* k, int64_t width,
                                 float /*scale*/) {
    uint16_t* to = reinterpret_cast<uint16_t*>(group);
    for (int64_t d = 0; d < width; d += kLanes) {
      const int64_t left = width - d, n = left < kLanes ? left : kLanes;
      uint16_t half[kLanes];
      store_bf16(half, round_bf16(load_n(k + d, n)));
      for (int64_t i = 0; i < n; ++i) to[key_at(d + i, lane)] = half[i];
    }
  }

  // Zeros past the width.
  HEADRACE_INLINE void write_value(uint8_t* group, int64_t lane, const float* v, int64_t width,
                                   float /*scale*/) {
    uint16_t* panel = reinterpret_cast<uint16_t*>(group);
    for (int64_t d = 0; d < width; d += kLanes, panel += kLanes * kLanes) {
      uint16_t half[kLanes];
      store_bf16(half, round_bf16(load_n(v + d, width - d)));
      for (int64_t i = 0; i < kLanes; ++i) panel[value_at(lane, i)] = half[i];
    }
  }
};

}  // namespace
