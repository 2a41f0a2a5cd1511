// Readers of K and V in eight bits and fewer: FP8 without a scale, whole numbers with one per token
// and head. The values of a token are rounded when it is written, from its own row alone.

#pragma once

#include "chains.h"
#include "kernels.h"
#include "kv_floats.h"

namespace {

// The largest magnitude of a head; NaN when one is NaN.
HEADRACE_INLINE float most_of(const float* x, int64_t width) {
  float most = 0;
  for (int64_t d = 0; d < width; d += 2 * kLanes) {
    const int64_t rest = width - d - kLanes;
    const F low = load_n(x + d, width - d), high = rest > 0 ? load_n(x + d + kLanes, rest) : zero();
    const float found = largest_magnitude(low, high);
    // NaN goes on as it is.
    most = found <= most ? most : found;
    if (found != found) return found;
  }
  return most;
}

// The scales of the tokens of a group; what is stored is multiplied by them.
struct Scaled {
  HEADRACE_INLINE void write_scale(uint8_t* group, int64_t lane, float scale) {
    reinterpret_cast<float*>(group)[lane] = scale;
  }
  HEADRACE_INLINE F rounded(F x) { return x; }
  HEADRACE_INLINE F scored(const uint8_t* group, float /*scale*/, F sums) {
    return mul(sums, load(reinterpret_cast<const float*>(group)));
  }
  HEADRACE_INLINE F weighed(const uint8_t* group, float /*scale*/, F p) {
    return mul(p, load(reinterpret_cast<const float*>(group)));
  }
};

// d = amax / 127, q = nearest(x * (127 / amax)), as activations are rounded: zeros where d is zero,
// and a NaN or an infinity makes d one, and so what is read.
template <>
struct KvReader<KvCodec::int8> : Scaled {
  static constexpr KvCodec kCodec = KvCodec::int8;
  using Keys = Int8Pairs;
  using Values = Int8Pairs;
  using T = int8_t;

  static constexpr int64_t key_at(int64_t d, int64_t token) { return d * kLanes + token; }
  static constexpr int64_t value_at(int64_t token, int64_t d) { return token * kLanes + d; }

  // Writes the scale and calls put(d, the 16 whole numbers from d on, how many).
  template <class Put>
  HEADRACE_INLINE void quantise(uint8_t* group, int64_t lane, const float* x, int64_t width,
                                const Put& put) {
    const float most = most_of(x, width), scale = most / 127.0f;
    const F inverse = splat(scale == 0.0f ? 0.0f : 127.0f / most);
    write_scale(group, lane, scale);
    for (int64_t d = 0; d < width; d += kLanes) {
      int8_t whole[kLanes];
      store_i8(whole, mul(load_n(x + d, width - d), inverse));
      put(d, whole, width - d < kLanes ? width - d : kLanes);
    }
  }

  HEADRACE_INLINE void write_key(uint8_t* group, int64_t lane, const float* k, int64_t width,
                                 float /*scale*/) {
    int8_t* to = reinterpret_cast<int8_t*>(group + kv_scales_bytes(kCodec));
    quantise(group, lane, k, width, [&](int64_t d, const int8_t* whole, int64_t n) {
      for (int64_t i = 0; i < n; ++i) to[key_at(d + i, lane)] = whole[i];
    });
  }

  // Zeros past the width.
  HEADRACE_INLINE void write_value(uint8_t* group, int64_t lane, const float* v, int64_t width,
                                   float /*scale*/) {
    int8_t* to = reinterpret_cast<int8_t*>(group + kv_scales_bytes(kCodec));
    quantise(group, lane, v, width, [&](int64_t d, const int8_t* whole, int64_t) {
      __builtin_memcpy(to + d * kLanes + value_at(lane, 0), whole, kLanes);
    });
  }
};

// Of x / m * -8, with m the value of the largest magnitude (the positive one of two), q = nearest(f
// x) in [-8, 7] for the factor f of kFactors that leaves the least squared error, and d the scale
// with which these q come nearest to x; stored as q + 8. Zeros, NaN and infinities as in eight
// bits.
template <>
struct KvReader<KvCodec::int4> : Scaled {
  static constexpr KvCodec kCodec = KvCodec::int4;
  using Keys = Int4Pairs;
  using Values = Int4Rows;
  using T = uint8_t;

  // m becomes -8 or 7, or is cut to it from up to 3.5 beyond.
  static constexpr float kFactors[] = {
      1.0f,     -0.875f,  1.0625f,  -0.9375f, 1.125f,  -1.0f,    1.1875f, -1.0625f,
      1.25f,    -1.125f,  1.3125f,  -1.1875f, 1.375f,  -1.25f,   1.4375f, -1.3125f,
  };

  // Of K the pair of dimensions (d, d + 1) of a token is a byte, of V dimensions d and d + 8.
  static constexpr int64_t key_at(int64_t d, int64_t token) { return d / 2 * kLanes + token; }
  static constexpr int64_t value_at(int64_t token, int64_t d) {
    return token * (kLanes / 2) + d % (kLanes / 2);
  }

  HEADRACE_INLINE F whole_of(F x, float factor) {
    return at_most(splat(7.0f), at_least(splat(-8.0f), nearest(mul(x, splat(factor)))));
  }

  template <class Put>
  HEADRACE_INLINE void quantise(uint8_t* group, int64_t lane, const float* x, int64_t width,
                                const Put& put) {
    const float most = most_of(x, width);
    F high = splat(-__builtin_inff());
    for (int64_t d = 0; d < width; d += kLanes) {
      const int64_t left = width - d;
      const F v = load_n(x + d, left);
      high = at_least(left < kLanes ? select(first(left), v, high) : v, high);
    }
    const float extreme = largest(high) == most ? most : -most, step = extreme / -8.0f;
    const F inverse = splat(step == 0.0f ? 0.0f : -8.0f / extreme);
    // With s = sum(q x) and n = sum(q q) the scale s / n leaves sum(x x) - s s / n.
    float scale = step, factor = kFactors[0], best = 0;
    if (step - step == 0.0f && step != 0.0f) {
      for (const float f : kFactors) {
        F products = zero(), squares = zero();
        for (int64_t d = 0; d < width; d += kLanes) {
          const F v = mul(load_n(x + d, width - d), inverse), q = whole_of(v, f);
          products = add(products, mul(q, v));
          squares = add(squares, mul(q, q));
        }
        const float s = sum(products), n = sum(squares), found = s * s / n;
        if (!(found > best)) continue;
        best = found;
        factor = f;
        scale = s / n * step;
      }
    }
    write_scale(group, lane, scale);
    for (int64_t d = 0; d < width; d += kLanes) {
      int8_t whole[kLanes];
      store_i8(whole, whole_of(mul(load_n(x + d, width - d), inverse), factor));
      put(d, whole, width - d < kLanes ? width - d : kLanes);
    }
  }
  static constexpr uint8_t byte_of(int8_t low, int8_t high) {
    return static_cast<uint8_t>((low + 8) & 15) | static_cast<uint8_t>(((high + 8) & 15) << 4);
  }

  HEADRACE_INLINE void write_key(uint8_t* group, int64_t lane, const float* k, int64_t width,
                                 float /*scale*/) {
    uint8_t* to = group + kv_scales_bytes(kCodec);
    quantise(group, lane, k, width, [&](int64_t d, const int8_t* whole, int64_t n) {
      for (int64_t i = 0; i < n; i += 2) to[key_at(d + i, lane)] = byte_of(whole[i], whole[i + 1]);
    });
  }

  // Zeros past the width.
  HEADRACE_INLINE void write_value(uint8_t* group, int64_t lane, const float* v, int64_t width,
                                   float /*scale*/) {
    uint8_t* to = group + kv_scales_bytes(kCodec);
    constexpr int64_t kHalf = kLanes / 2;
    quantise(group, lane, v, width, [&](int64_t d, const int8_t* whole, int64_t) {
      uint8_t* panel = to + d * kHalf + value_at(lane, 0);
      for (int64_t i = 0; i < kHalf; ++i) panel[i] = byte_of(whole[i], whole[i + kHalf]);
    });
  }
};

// The nearest e4m3 (ties to even) to x / scale, at most 448 in magnitude; NaN has the code of NaN,
// which is read as 480. The scale is the layer's, 1 where its checkpoint has none.
template <>
struct KvReader<KvCodec::fp8> {
  static constexpr KvCodec kCodec = KvCodec::fp8;
  using Keys = F8Pairs;
  using Values = F8Pairs;
  using T = uint8_t;
  static constexpr int kPair = Keys::kPair;

  static constexpr int64_t key_at(int64_t d, int64_t token) {
    return d / 2 * kPair + 2 * token + d % 2;
  }
  static constexpr int64_t value_at(int64_t token, int64_t d) {
    return token / 2 * kPair + 2 * d + token % 2;
  }

  // Codes are read as 2^-8 of what they are; powers of two change no digit.
  HEADRACE_INLINE F rounded(F x) { return x; }
  HEADRACE_INLINE F scored(const uint8_t* /*group*/, float scale, F sums) {
    return mul(sums, splat(256.0f * scale));
  }
  HEADRACE_INLINE F weighed(const uint8_t* /*group*/, float scale, F p) {
    return mul(p, splat(256.0f * scale));
  }

  // Without branches, so that 16 of them go side by side.
  HEADRACE_INLINE uint8_t code_of(float x) {
    uint32_t bits, steps;
    __builtin_memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    // Below the least normal number, 2^-6, steps are 2^-9: those of a float at 2^14.
    float small;
    const uint32_t least = size < 0x3c800000 ? size : 0;
    __builtin_memcpy(&small, &least, sizeof small);
    small += 0x1p14f;
    __builtin_memcpy(&steps, &small, sizeof steps);
    const uint32_t most = size < 0x43e00000 ? size : 0x43e00000;
    const uint32_t normal = ((most + 0x7ffff + (most >> 20 & 1)) >> 20) - (120 << 3);
    const uint32_t code = size < 0x3c800000 ? steps - 0x46800000 : normal;
    return static_cast<uint8_t>(sign | (size > 0x7f800000 ? 0x7f : code));
  }
  template <class Put>
  HEADRACE_INLINE void encode(const float* x, int64_t width, float scale, const Put& put) {
    for (int64_t d = 0; d < width; d += kLanes) {
      float values[kLanes];
      uint8_t codes[kLanes];
      store(values, div(load_n(x + d, width - d), splat(scale)));
      for (int64_t i = 0; i < kLanes; ++i) codes[i] = code_of(values[i]);
      put(d, codes, width - d < kLanes ? width - d : kLanes);
    }
  }

  HEADRACE_INLINE void write_key(uint8_t* group, int64_t lane, const float* k, int64_t width,
                                 float scale) {
    encode(k, width, scale, [&](int64_t d, const uint8_t* codes, int64_t n) {
      for (int64_t i = 0; i < n; ++i) group[key_at(d + i, lane)] = codes[i];
    });
  }

  // Zeros past the width.
  HEADRACE_INLINE void write_value(uint8_t* group, int64_t lane, const float* v, int64_t width,
                                   float scale) {
    encode(v, width, scale, [&](int64_t d, const uint8_t* codes, int64_t) {
      uint8_t* panel = group + d * kLanes;
      for (int64_t i = 0; i < kLanes; ++i) panel[value_at(lane, i)] = codes[i];
    });
  }
};

}  // namespace
