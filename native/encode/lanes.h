// Lanes of floats for the searches: a lane holds one group of 16 or 32 values.
//
// All that is added up within a group is added in the order of its values, and nothing is added
// across lanes but in order and as doubles. So neither the width of a machine's vectors nor the
// number of blocks at a time shows in a result. Included in the units of encode/ that are compiled
// for one kind of machine each; all it defines has internal linkage.

#pragma once

#include <cstdint>
#include <cstring>

#include "encode/kinds.h"

namespace {

// The lanes lie in kParts vectors of the machine's width, HEADRACE_LANES floats: what compilers
// make of wider vectors than a machine has is slow.
constexpr int kLanes = 16, kWidth = HEADRACE_LANES, kParts = kLanes / kWidth;
typedef float Part __attribute__((vector_size(4 * kWidth)));
typedef int32_t MaskPart __attribute__((vector_size(4 * kWidth)));

struct V {
  Part part[kParts];
};
struct Mask {
  MaskPart part[kParts];
};

inline V splat(float value) {
  V v;
  for (Part& part : v.part) part = Part{} + value;
  return v;
}

#define HEADRACE_LANEWISE(Result, op)                                           \
  inline Result operator op(const V& a, const V& b) {                           \
    Result r;                                                                   \
    for (int i = 0; i < kParts; ++i) r.part[i] = a.part[i] op b.part[i];        \
    return r;                                                                   \
  }                                                                             \
  inline Result operator op(const V& a, float b) { return a op splat(b); }      \
  inline Result operator op(float a, const V& b) { return splat(a) op b; }
HEADRACE_LANEWISE(V, +)
HEADRACE_LANEWISE(V, -)
HEADRACE_LANEWISE(V, *)
HEADRACE_LANEWISE(V, /)
HEADRACE_LANEWISE(Mask, <)
HEADRACE_LANEWISE(Mask, >)
HEADRACE_LANEWISE(Mask, !=)
#undef HEADRACE_LANEWISE

inline V operator-(const V& v) {
  V r;
  for (int i = 0; i < kParts; ++i) r.part[i] = -v.part[i];
  return r;
}
inline Mask operator&(const Mask& a, const Mask& b) {
  Mask r;
  for (int i = 0; i < kParts; ++i) r.part[i] = a.part[i] & b.part[i];
  return r;
}
inline V select(const Mask& mask, const V& yes, const V& no) {
  V r;
  for (int i = 0; i < kParts; ++i) r.part[i] = mask.part[i] ? yes.part[i] : no.part[i];
  return r;
}

constexpr int kBlock = 256;
// Groups whose magnitudes are all below this are stored as zeros: F16 scales end at 6e-8.
constexpr float kNothing = 1e-15f;

inline V pack(const float* lanes) {
  V v;
  std::memcpy(&v, lanes, sizeof(V));
  return v;
}
inline void unpack(V v, float* lanes) { std::memcpy(lanes, &v, sizeof(V)); }
inline V least(const V& a, const V& b) { return select(a < b, a, b); }
inline V most(const V& a, const V& b) { return select(a > b, a, b); }
inline V clip(V v, float low, float high) { return least(most(v, splat(low)), splat(high)); }
// The nearest whole numbers, halves to even, of magnitudes below 2^22.
inline V nearest(V v) { return (v + 12582912.0f) - 12582912.0f; }
// 1 / v, and 0 for 0.
inline V inverse(V v) {
  const Mask some = v != 0.0f;
  return select(some, 1.0f / select(some, v, splat(1.0f)), splat(0.0f));
}

// The float32 that a float16 nearest to `value` holds; infinity beyond its range.
inline float half(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint32_t sign = bits & 0x80000000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude < 0x38800000u) {  // below 2^-14: multiples of 2^-24
    float m;
    std::memcpy(&m, &magnitude, 4);
    m = (m + 0.75f) - 0.75f;  // the last bit of 0.75 is 2^-24
    std::memcpy(&magnitude, &m, 4);
  } else {
    magnitude = (magnitude + 0xfffu + (magnitude >> 13 & 1u)) & ~0x1fffu;
    if (magnitude >= 0x47800000u) magnitude = 0x7f800000u;
  }
  bits = sign | magnitude;
  std::memcpy(&value, &bits, 4);
  return value;
}

// The values and weights of kLanes groups of N, value i of every group side by side.
template <int N>
struct Groups {
  alignas(64) float values[N][kLanes];
  alignas(64) float weights[N][kLanes];

  V x(int i) const { return pack(values[i]); }
  V w(int i) const { return pack(weights[i]); }

  void load(const float* from, const float* weighed, int64_t groups) {
    for (int i = 0; i < N; ++i) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const bool there = lane < groups;
        values[i][lane] = there ? from[lane * N + i] : 0.0f;
        weights[i][lane] = there && weighed != nullptr ? weighed[lane * N + i] : 1.0f;
      }
    }
  }
};

// Sums over the groups of each block, in order.
template <int PerBlock>
void block_sums(V v, double* sums) {
  float lanes[kLanes];
  unpack(v, lanes);
  for (int b = 0; b < kLanes / PerBlock; ++b) {
    sums[b] = 0.0;
    for (int j = 0; j < PerBlock; ++j) sums[b] += static_cast<double>(lanes[b * PerBlock + j]);
  }
}

template <int PerBlock>
V spread(const float* values) {
  float lanes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = values[lane / PerBlock];
  return pack(lanes);
}

}  // namespace
