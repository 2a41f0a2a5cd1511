// Searches for kinds whose levels count from a minimum: y = scale * q - minimum, q from 0 to Top.

#pragma once

#include "encode/block_scales.h"

namespace {

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
    BlockScales<kPer, 2> s;
    float(&d)[kAtOnce] = s.d[0], (&dmin)[kAtOnce] = s.d[1];
    for (int b = 0; b < kAtOnce; ++b) {
      float top = 0.0f, deep = 0.0f;
      for (int j = 0; j < kPer; ++j) {
        const float scale_of = scales[b * kPer + j], minimum_of = minimums[b * kPer + j];
        top = scale_of > top ? scale_of : top;
        deep = minimum_of > deep ? minimum_of : deep;
      }
      d[b] = half(top / static_cast<float>(Codes));
      dmin[b] = half(deep / static_cast<float>(Codes));
    }
    V &codes = s.codes[0], &depths = s.codes[1];
    codes = nearest(clip(fit.scale * inverse(spread<kPer>(d)), 0, Codes));
    depths = nearest(clip(fit.minimum * inverse(spread<kPer>(dmin)), 0, Codes));
    const auto improve = [&] {
      const V unit = spread<kPer>(d), deep = spread<kPer>(dmin);
      V error = error_of<N, Top>(g, unit * codes, deep * depths);
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
      return error;
    };
    fit_in_turns(s, improve, [&](float (&next)[2][kAtOnce]) {
      const V minimum = spread<kPer>(dmin) * depths;
      const V factor = inverse(spread<kPer>(d) * codes);
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
      for (int b = 0; b < kAtOnce; ++b) {
        const double det = a[b] * c[b] - b2[b] * b2[b];
        next[0][b] = d[b];
        next[1][b] = dmin[b];
        if (det > 0) {
          next[0][b] = half(static_cast<float>((u[b] * c[b] - b2[b] * v[b]) / det));
          next[1][b] = half(static_cast<float>((u[b] * b2[b] - a[b] * v[b]) / det));
        } else if (c[b] == 0 && a[b] > 0) {
          next[0][b] = half(static_cast<float>(u[b] / a[b]));
        }
      }
    });
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

}  // namespace
