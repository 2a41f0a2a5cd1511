// The search behind the kinds whose scales no formula gives: codes of 256 values and of their scales
// that keep the weighted squared error sum w * (y - x)^2 small.
//
// src/headrace/weights/codecs/search.py defines it, and this gives the same bits: a lane holds one
// group of 16 or 32 values, all that is added up within a group is added in the order of its values,
// and nothing is added across lanes but in order and as doubles. So neither the width of a machine's
// vectors nor the number of blocks at a time shows in a result. Included in the units of encode/ that
// are compiled for one kind of machine each; all it defines has internal linkage.

#pragma once

#include <cstdint>
#include <cstring>

#include "encode/kinds.h"

namespace {

// The lanes lie in kParts vectors of the machine's width, HEADRACE_LANES floats: what compilers make of
// wider vectors than a machine has is slow.
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

// ---- levels q of y = scale * q ----

// Whole numbers from -Half to Half - 1.
template <int Half>
struct Line {
  static constexpr float kFirst = -static_cast<float>(Half), kLast = static_cast<float>(Half - 1);
  static V level(V v) { return nearest(clip(v, kFirst, kLast)); }
  static int code(float level) { return static_cast<int>(level) + Half; }
};

// The 16 levels of IQ4_NL and IQ4_XS.
struct Book {
  static constexpr float kFirst = -127.0f, kLast = 113.0f;
  static V level(V v) {
    V q = splat(kFirst);
    for (int i = 0; i < 15; ++i) {
      q = q + select(v > (kLevels[i] + kLevels[i + 1]) * 0.5f, splat(kLevels[i + 1] - kLevels[i]),
                     splat(0.0f));
    }
    return q;
  }
  static int code(float level) {
    int i = 0;
    while (kLevels[i] < level) ++i;
    return i;
  }
  static constexpr float kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
};

// The scales that fit each group best, freely chosen.
template <int N, class Levels>
V fit_scale(const Groups<N>& g, const headrace::Steps& steps) {
  V peak = splat(0.0f), extreme = splat(0.0f);
  for (int i = 0; i < N; ++i) {
    const V magnitude = select(g.x(i) < 0.0f, -g.x(i), g.x(i));
    const Mask larger = magnitude > peak;
    peak = select(larger, magnitude, peak);
    extreme = select(larger, g.x(i), extreme);
  }
  const V unit = inverse(select(peak < kNothing, splat(0.0f), extreme));
  V scale = splat(0.0f), gain = splat(0.0f);
  const auto attempt = [&](V factor) {
    V xq = splat(0.0f), qq = splat(0.0f);
    for (int i = 0; i < N; ++i) {
      const V q = Levels::level(g.x(i) * factor);
      const V wq = g.w(i) * q;
      xq = xq + wq * g.x(i);
      qq = qq + wq * q;
    }
    const V fitted = xq * inverse(qq);
    const V won = fitted * xq;
    const Mask better = won > gain;
    gain = select(better, won, gain);
    scale = select(better, fitted, scale);
  };
  for (int k = 0; k < steps.count; ++k) {
    const float stretch = steps.first + static_cast<float>(k) * steps.step;
    attempt(unit * (Levels::kFirst * stretch));
    attempt(unit * (Levels::kLast * stretch));
  }
  for (int k = 0; k < headrace::kRefits; ++k) attempt(inverse(scale));
  return scale;
}

template <int N, class Levels>
V error_of(const Groups<N>& g, V scale) {
  const V factor = inverse(scale);
  V error = splat(0.0f);
  for (int i = 0; i < N; ++i) {
    const V off = scale * Levels::level(g.x(i) * factor) - g.x(i);
    error = error + g.w(i) * off * off;
  }
  return error;
}

template <int N, class Levels>
void store_levels(const Groups<N>& g, V scale, int64_t groups, uint8_t* quants) {
  const V factor = inverse(scale);
  for (int i = 0; i < N; ++i) {
    float lanes[kLanes];
    unpack(Levels::level(g.x(i) * factor), lanes);
    for (int64_t lane = 0; lane < groups; ++lane) {
      quants[lane * N + i] = static_cast<uint8_t>(Levels::code(lanes[lane]));
    }
  }
}

// Groups with an F16 scale each (IQ4_NL).
template <int N, class Levels>
void search_single(const headrace::Task& t, const headrace::Steps& steps) {
  for (int64_t first = 0; first < t.blocks; first += kLanes) {
    const int64_t groups = t.blocks - first < kLanes ? t.blocks - first : kLanes;
    Groups<N> g;
    g.load(t.values + first * N, t.weights ? t.weights + first * N : nullptr, groups);
    float d[kLanes];
    unpack(fit_scale<N, Levels>(g, steps), d);
    for (float& scale : d) scale = half(scale);
    store_levels<N, Levels>(g, pack(d), groups, t.quants + first * N);
    for (int64_t lane = 0; lane < groups; ++lane) t.d[first + lane] = d[lane];
  }
}

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

// Blocks of 256 with an F16 scale d, whose groups have whole numbers of it from -Codes to Codes - 1.
template <int N, class Levels, int Codes>
void search_around_zero(const headrace::Task& t, const headrace::Steps& steps) {
  constexpr int kPer = kBlock / N, kAtOnce = kLanes / kPer;
  for (int64_t first = 0; first < t.blocks; first += kAtOnce) {
    const int64_t blocks = t.blocks - first < kAtOnce ? t.blocks - first : kAtOnce;
    Groups<N> g;
    g.load(t.values + first * kBlock, t.weights ? t.weights + first * kBlock : nullptr,
           blocks * kPer);
    const V scale = fit_scale<N, Levels>(g, steps);
    float scales[kLanes];
    unpack(scale, scales);
    float d[kAtOnce];
    for (int b = 0; b < kAtOnce; ++b) {
      float extreme = 0.0f;
      for (int j = 0; j < kPer; ++j) {
        const float s = scales[b * kPer + j];
        if ((s < 0 ? -s : s) > (extreme < 0 ? -extreme : extreme)) extreme = s;
      }
      d[b] = half(extreme / -static_cast<float>(Codes));
    }
    V codes = nearest(clip(scale * inverse(spread<kPer>(d)), -Codes, Codes - 1));
    V error;
    const auto improve = [&](V unit) {
      error = error_of<N, Levels>(g, unit * codes);
      const V start = codes;
      for (int step = -headrace::kCodeReach; step <= headrace::kCodeReach; ++step) {
        if (step == 0) continue;
        const V other = clip(start + static_cast<float>(step), -Codes, Codes - 1);
        const V wrong = error_of<N, Levels>(g, unit * other);
        const Mask better = wrong < error;
        error = select(better, wrong, error);
        codes = select(better, other, codes);
      }
    };
    improve(spread<kPer>(d));
    double errors[kAtOnce];
    block_sums<kPer>(error, errors);
    for (int round = 0; round < headrace::kRounds; ++round) {
      // The d that fits best while all else stays.
      const V scaled = spread<kPer>(d) * codes;
      const V factor = inverse(scaled);
      V xq = splat(0.0f), qq = splat(0.0f);
      for (int i = 0; i < N; ++i) {
        const V q = codes * Levels::level(g.x(i) * factor);
        const V wq = g.w(i) * q;
        xq = xq + wq * g.x(i);
        qq = qq + wq * q;
      }
      double tops[kAtOnce], bottoms[kAtOnce];
      block_sums<kPer>(xq, tops);
      block_sums<kPer>(qq, bottoms);
      float next[kAtOnce];
      for (int b = 0; b < kAtOnce; ++b) {
        next[b] = bottoms[b] > 0 ? half(static_cast<float>(tops[b] / bottoms[b])) : d[b];
      }
      const V before = codes;
      improve(spread<kPer>(next));
      double wrong[kAtOnce];
      float kept[kAtOnce] = {};
      block_sums<kPer>(error, wrong);
      for (int b = 0; b < kAtOnce; ++b) {
        if (wrong[b] < errors[b]) {
          errors[b] = wrong[b];
          d[b] = next[b];
        } else {
          kept[b] = 1.0f;
        }
      }
      codes = select(spread<kPer>(kept) != 0.0f, before, codes);
    }
    store_levels<N, Levels>(g, spread<kPer>(d) * codes, blocks * kPer, t.quants + first * kBlock);
    float stored[kLanes];
    unpack(codes, stored);
    for (int64_t b = 0; b < blocks; ++b) {
      t.d[first + b] = d[b];
      for (int j = 0; j < kPer; ++j) {
        t.scales[(first + b) * kPer + j] = static_cast<int8_t>(stored[b * kPer + j]);
      }
    }
  }
}

// ---- y = scale * q - minimum, q from 0 to Top ----

struct Straight {
  V scale, minimum;
};

template <int Top>
inline V rung(V x, V minimum, V factor) {
  return nearest(clip((x + minimum) * factor, 0.0f, static_cast<float>(Top)));
}

// Free: minimums may be above zero, where they are stored as they are.
template <int N, int Top, bool Free>
Straight fit_straight(const Groups<N>& g, const headrace::Steps& steps) {
  V low = Free ? g.x(0) : splat(0.0f), high = g.x(0);
  for (int i = 0; i < N; ++i) {
    low = least(low, g.x(i));
    high = most(high, g.x(i));
  }
  // Sums are of x - low: values far from zero beside their spread would cancel.
  V sw = splat(0.0f), su = splat(0.0f);
  for (int i = 0; i < N; ++i) {
    sw = sw + g.w(i);
    su = su + g.w(i) * (g.x(i) - low);
  }
  // Without a scale: the mean alone, where it may be the minimum.
  V mean = su * inverse(sw);
  if (!Free) mean = least(mean, -low);
  Straight best = {splat(0.0f), -(mean + low)};
  V gain = 2.0f * (mean * su) - mean * mean * sw;
  const V range = high - low;
  const V unit = inverse(select(range < kNothing, splat(0.0f), range));
  const auto attempt = [&](V minimum, V factor) {
    V q1 = splat(0.0f), qq = splat(0.0f), uq = splat(0.0f);
    for (int i = 0; i < N; ++i) {
      const V q = rung<Top>(g.x(i), minimum, factor);
      const V wq = g.w(i) * q;
      q1 = q1 + wq;
      qq = qq + wq * q;
      uq = uq + wq * (g.x(i) - low);
    }
    const V over = inverse(most(sw * qq - q1 * q1, splat(0.0f)));
    V scale = (sw * uq - su * q1) * over;
    V offset = (qq * su - q1 * uq) * over;
    if (!Free) {
      const Mask above = offset > -low;
      scale = select(above, (uq + low * q1) * inverse(qq), scale);
      offset = select(above, -low, offset);
    }
    const V won = 2.0f * (scale * uq + offset * su) -
                  scale * (scale * qq + 2.0f * (offset * q1)) - offset * offset * sw;
    const Mask better = (won > gain) & (scale > 0.0f);
    gain = select(better, won, gain);
    best.scale = select(better, scale, best.scale);
    best.minimum = select(better, -(offset + low), best.minimum);
  };
  for (int k = 0; k < steps.count; ++k) {
    const float stretch = steps.first + static_cast<float>(k) * steps.step;
    attempt(-low, unit * (static_cast<float>(Top) * stretch));
  }
  for (int k = 0; k < headrace::kRefits; ++k) attempt(best.minimum, inverse(best.scale));
  return best;
}

template <int N, int Top>
V error_of(const Groups<N>& g, V scale, V minimum) {
  const V factor = inverse(scale);
  V error = splat(0.0f);
  for (int i = 0; i < N; ++i) {
    const V off = (scale * rung<Top>(g.x(i), minimum, factor) - minimum) - g.x(i);
    error = error + g.w(i) * off * off;
  }
  return error;
}

// Blocks of 256 with F16 scales d and dmin, whose groups have whole numbers of both, 0 to Codes.
template <int N, int Top, int Codes>
void search_from_minimum(const headrace::Task& t, const headrace::Steps& steps) {
  constexpr int kPer = kBlock / N, kAtOnce = kLanes / kPer;
  for (int64_t first = 0; first < t.blocks; first += kAtOnce) {
    const int64_t blocks = t.blocks - first < kAtOnce ? t.blocks - first : kAtOnce;
    Groups<N> g;
    g.load(t.values + first * kBlock, t.weights ? t.weights + first * kBlock : nullptr,
           blocks * kPer);
    const Straight fit = fit_straight<N, Top, false>(g, steps);
    float scales[kLanes], minimums[kLanes];
    unpack(fit.scale, scales);
    unpack(fit.minimum, minimums);
    float d[kAtOnce], dmin[kAtOnce];
    for (int b = 0; b < kAtOnce; ++b) {
      float top = 0.0f, deep = 0.0f;
      for (int j = 0; j < kPer; ++j) {
        const float s = scales[b * kPer + j], m = minimums[b * kPer + j];
        top = s > top ? s : top;
        deep = m > deep ? m : deep;
      }
      d[b] = half(top / static_cast<float>(Codes));
      dmin[b] = half(deep / static_cast<float>(Codes));
    }
    V codes = nearest(clip(fit.scale * inverse(spread<kPer>(d)), 0, Codes));
    V depths = nearest(clip(fit.minimum * inverse(spread<kPer>(dmin)), 0, Codes));
    V error;
    const auto improve = [&](V unit, V deep) {
      error = error_of<N, Top>(g, unit * codes, deep * depths);
      const V start = codes, bottom = depths;
      for (int step = -1; step <= 1; ++step) {
        const V other = clip(start + static_cast<float>(step), 0, Codes);
        for (int sink = -1; sink <= 1; ++sink) {
          if (step == 0 && sink == 0) continue;
          const V depth = clip(bottom + static_cast<float>(sink), 0, Codes);
          const V wrong = error_of<N, Top>(g, unit * other, deep * depth);
          const Mask better = wrong < error;
          error = select(better, wrong, error);
          codes = select(better, other, codes);
          depths = select(better, depth, depths);
        }
      }
    };
    improve(spread<kPer>(d), spread<kPer>(dmin));
    double errors[kAtOnce];
    block_sums<kPer>(error, errors);
    for (int round = 0; round < headrace::kRounds; ++round) {
      // The d and dmin that fit best while all else stays.
      const V scale = spread<kPer>(d) * codes, minimum = spread<kPer>(dmin) * depths;
      const V factor = inverse(scale);
      V qq = splat(0.0f), qm = splat(0.0f), mm = splat(0.0f), xq = splat(0.0f), xm = splat(0.0f);
      for (int i = 0; i < N; ++i) {
        const V q = codes * rung<Top>(g.x(i), minimum, factor);
        const V wq = g.w(i) * q, wm = g.w(i) * depths;
        qq = qq + wq * q;
        qm = qm + wq * depths;
        mm = mm + wm * depths;
        xq = xq + wq * g.x(i);
        xm = xm + wm * g.x(i);
      }
      double a[kAtOnce], b2[kAtOnce], c[kAtOnce], u[kAtOnce], v[kAtOnce];
      block_sums<kPer>(qq, a);
      block_sums<kPer>(qm, b2);
      block_sums<kPer>(mm, c);
      block_sums<kPer>(xq, u);
      block_sums<kPer>(xm, v);
      float next[kAtOnce], deeper[kAtOnce];
      for (int b = 0; b < kAtOnce; ++b) {
        const double det = a[b] * c[b] - b2[b] * b2[b];
        next[b] = d[b];
        deeper[b] = dmin[b];
        if (det > 0) {
          next[b] = half(static_cast<float>((u[b] * c[b] - b2[b] * v[b]) / det));
          deeper[b] = half(static_cast<float>((u[b] * b2[b] - a[b] * v[b]) / det));
        } else if (c[b] == 0 && a[b] > 0) {
          next[b] = half(static_cast<float>(u[b] / a[b]));
        }
      }
      const V before = codes, above = depths;
      improve(spread<kPer>(next), spread<kPer>(deeper));
      double wrong[kAtOnce];
      float kept[kAtOnce] = {};
      block_sums<kPer>(error, wrong);
      for (int b = 0; b < kAtOnce; ++b) {
        if (wrong[b] < errors[b]) {
          errors[b] = wrong[b];
          d[b] = next[b];
          dmin[b] = deeper[b];
        } else {
          kept[b] = 1.0f;
        }
      }
      const Mask keep = spread<kPer>(kept) != 0.0f;
      codes = select(keep, before, codes);
      depths = select(keep, above, depths);
    }
    const V scale = spread<kPer>(d) * codes, minimum = spread<kPer>(dmin) * depths;
    const V factor = inverse(scale);
    for (int i = 0; i < N; ++i) {
      float lanes[kLanes];
      unpack(rung<Top>(g.x(i), minimum, factor), lanes);
      for (int64_t lane = 0; lane < blocks * kPer; ++lane) {
        t.quants[first * kBlock + lane * N + i] = static_cast<uint8_t>(lanes[lane]);
      }
    }
    float stored[kLanes], sunk[kLanes];
    unpack(codes, stored);
    unpack(depths, sunk);
    for (int64_t b = 0; b < blocks; ++b) {
      t.d[first + b] = d[b];
      t.dmin[first + b] = dmin[b];
      for (int j = 0; j < kPer; ++j) {
        t.scales[(first + b) * kPer + j] = static_cast<int8_t>(stored[b * kPer + j]);
        t.minimums[(first + b) * kPer + j] = static_cast<int8_t>(sunk[b * kPer + j]);
      }
    }
  }
}

// Groups with an F16 scale and minimum each (Q4_1, Q5_1).
template <int N, int Top>
void search_single_from_minimum(const headrace::Task& t, const headrace::Steps& steps) {
  for (int64_t first = 0; first < t.blocks; first += kLanes) {
    const int64_t groups = t.blocks - first < kLanes ? t.blocks - first : kLanes;
    Groups<N> g;
    g.load(t.values + first * N, t.weights ? t.weights + first * N : nullptr, groups);
    const Straight fit = fit_straight<N, Top, true>(g, steps);
    float d[kLanes], dmin[kLanes];
    unpack(fit.scale, d);
    unpack(fit.minimum, dmin);
    for (float& scale : d) scale = half(scale);
    for (float& minimum : dmin) minimum = half(minimum);
    const V minimum = pack(dmin), factor = inverse(pack(d));
    for (int i = 0; i < N; ++i) {
      float lanes[kLanes];
      unpack(rung<Top>(g.x(i), minimum, factor), lanes);
      for (int64_t lane = 0; lane < groups; ++lane) {
        t.quants[(first + lane) * N + i] = static_cast<uint8_t>(lanes[lane]);
      }
    }
    for (int64_t lane = 0; lane < groups; ++lane) {
      t.d[first + lane] = d[lane];
      t.dmin[first + lane] = dmin[lane];
    }
  }
}

void search(const headrace::Task& t) {
  using headrace::Kind;
  switch (t.kind) {
    case Kind::q2_k: return search_from_minimum<16, 3, 15>(t, headrace::kSteps[0]);
    case Kind::q3_k: return search_around_zero<16, Line<4>, 32>(t, headrace::kSteps[1]);
    case Kind::q4_k: return search_from_minimum<32, 15, 63>(t, headrace::kSteps[2]);
    case Kind::q5_k: return search_from_minimum<32, 31, 63>(t, headrace::kSteps[3]);
    case Kind::q6_k: return search_around_zero<16, Line<32>, 128>(t, headrace::kSteps[4]);
    case Kind::iq4_nl: return search_single<32, Book>(t, headrace::kSteps[5]);
    case Kind::iq4_xs: return search_around_zero<32, Book, 32>(t, headrace::kSteps[6]);
    case Kind::q4_0: return search_single<32, Line<8>>(t, headrace::kSteps[7]);
    case Kind::q5_0: return search_single<32, Line<16>>(t, headrace::kSteps[8]);
    case Kind::q4_1: return search_single_from_minimum<32, 15>(t, headrace::kSteps[9]);
    case Kind::q5_1: return search_single_from_minimum<32, 31>(t, headrace::kSteps[10]);
  }
}

}  // namespace
