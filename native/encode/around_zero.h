// Searches for kinds whose levels lie around zero: y = scale * q.

#pragma once

#include "encode/block_scales.h"

namespace {

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

// Blocks of 256 with an F16 scale d, whose groups have whole numbers of it from -Codes to Codes -
// 1.
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
    BlockScales<kPer, 1> s;
    float(&d)[kAtOnce] = s.d[0];
    for (int b = 0; b < kAtOnce; ++b) {
      float extreme = 0.0f;
      for (int j = 0; j < kPer; ++j) {
        const float scale_of = scales[b * kPer + j];
        if ((scale_of < 0 ? -scale_of : scale_of) > (extreme < 0 ? -extreme : extreme)) {
          extreme = scale_of;
        }
      }
      d[b] = half(extreme / -static_cast<float>(Codes));
    }
    V& codes = s.codes[0];
    codes = nearest(clip(scale * inverse(spread<kPer>(d)), -Codes, Codes - 1));
    const auto improve = [&] {
      const V unit = spread<kPer>(d);
      return improve_codes(codes, -Codes, Codes - 1, [&](V code) {
        return error_of<N, Levels>(g, unit * code);
      });
    };
    fit_in_turns(s, improve, [&](float (&next)[1][kAtOnce]) {
      const V factor = inverse(spread<kPer>(d) * codes);
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
      for (int b = 0; b < kAtOnce; ++b) {
        next[0][b] = bottoms[b] > 0 ? half(static_cast<float>(tops[b] / bottoms[b])) : d[b];
      }
    });
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

}  // namespace
