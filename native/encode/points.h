// The search behind the kinds whose runs of values are points of a code book: IQ1, IQ2 and IQ3.
//
// src/headrace/weights/codecs/points.py defines it, and this gives the same bits, as search.h does:
// a lane holds one group of 16 or 32 values. The nearest point of a run is found exactly. What each
// level of each value costs is added up to tables of the costs of half a run, so that a point costs
// one addition and one comparison, for all lanes at once.

#pragma once

#include "encode/block_scales.h"

namespace {

using headrace::PointFacts;
using headrace::PointTask;

constexpr int kMostHalves = 81;  // 3^4; 8^2 are fewer

// The points of a book as the numbers of their two halves, and where each high half begins.
struct Halves {
  int points, highs;
  uint8_t low[headrace::kMostPoints], high[headrace::kMostPoints];
  uint8_t high_of[kMostHalves];
  int first[kMostHalves + 1];
};

template <int Length, int Levels>
void read_halves(const uint8_t* book, int points, Halves& h) {
  h.points = points;
  h.highs = 0;
  for (int p = 0; p < points; ++p) {
    int part[2] = {0, 0};
    for (int i = Length - 1; i >= 0; --i) {
      int& number = part[2 * i / Length];
      number = number * Levels + book[p * Length + i];
    }
    h.low[p] = static_cast<uint8_t>(part[0]);
    h.high[p] = static_cast<uint8_t>(part[1]);
    if (p == 0 || part[1] != h.high[p - 1]) {
      h.high_of[h.highs] = static_cast<uint8_t>(part[1]);
      h.first[h.highs++] = p;
    }
  }
  h.first[h.highs] = points;
}

inline V magnitude_of(const V& x) { return select(x < 0.0f, -x, x); }

// The nearest points of a group and what belongs to them, as lanes of whole numbers.
template <int N, int Length>
struct Nearest {
  V index[N / Length];
  V negative[N];      // 1 where the sign bit is set
  V shifted[N / 8];   // 1 where the points are shifted down
  V q[N];             // the values of the points, with sign or shift
};

template <int N, int Length, int Levels, headrace::PointSigns Signs>
struct Points {
  static constexpr int kRuns = N / Length, kHalf = Length / 2;
  static constexpr int kCombined = Length == 8 ? Levels * Levels * Levels * Levels
                                               : Levels * Levels;
  static constexpr bool kShifts =
      Signs == headrace::PointSigns::shift_each || Signs == headrace::PointSigns::shift_all;
  const PointFacts& facts;
  const Halves& book;

  // What half a run costs at each combination of levels.
  void half_costs(const V* a, const V* w, float shift, V* costs) const {
    V each[kHalf][Levels];
    for (int i = 0; i < kHalf; ++i) {
      const V twice = a[i] + a[i];
      for (int l = 0; l < Levels; ++l) {
        const float level = facts.levels[l] + shift;
        each[i][l] = ((level - twice) * level) * w[i];
      }
    }
    if constexpr (kHalf == 2) {
      for (int l1 = 0; l1 < Levels; ++l1) {
        for (int l0 = 0; l0 < Levels; ++l0) costs[l1 * Levels + l0] = each[0][l0] + each[1][l1];
      }
    } else {
      V low[Levels * Levels], high[Levels * Levels];
      for (int l1 = 0; l1 < Levels; ++l1) {
        for (int l0 = 0; l0 < Levels; ++l0) {
          low[l1 * Levels + l0] = each[0][l0] + each[1][l1];
          high[l1 * Levels + l0] = each[2][l0] + each[3][l1];
        }
      }
      for (int h = 0; h < Levels * Levels; ++h) {
        for (int l = 0; l < Levels * Levels; ++l) costs[h * Levels * Levels + l] = low[l] + high[h];
      }
    }
  }

  // The least cost of a run. Rounding keeps order, so the high half may be added to the least low
  // one.
  V least_cost(const V* low, const V* high) const {
    V best;
    for (int h = 0; h < book.highs; ++h) {
      V cost = low[book.low[book.first[h]]];
      for (int p = book.first[h] + 1; p < book.first[h + 1]; ++p) {
        cost = least(low[book.low[p]], cost);
      }
      cost = cost + high[book.high_of[h]];
      best = h == 0 ? cost : least(cost, best);
    }
    return best;
  }

  // The same with the first point that has it.
  V least_cost(const V* low, const V* high, V& index) const {
    V best = low[book.low[0]] + high[book.high[0]];
    index = splat(0.0f);
    for (int p = 1; p < book.points; ++p) {
      const V cost = low[book.low[p]] + high[book.high[p]];
      const Mask better = cost < best;
      best = select(better, cost, best);
      index = select(better, splat(static_cast<float>(p)), index);
    }
    return best;
  }

  // a: values over the scale as the book has them. The signs of eight values come with them.
  void magnitudes(const Groups<N>& g, V factor, V* a, V* negative) const {
    for (int i = 0; i < N; ++i) {
      if constexpr (kShifts) {
        a[i] = g.x(i) * factor;
        negative[i] = splat(0.0f);
      } else {
        a[i] = magnitude_of(g.x(i)) * factor;
        negative[i] = select(g.x(i) < 0.0f, splat(1.0f), splat(0.0f));
      }
    }
    if constexpr (Signs == headrace::PointSigns::even) {
      // The value that loses least by the other sign takes it where an odd number is negative.
      const float lowest = facts.levels[0];
      for (int first = 0; first < N; first += 8) {
        V count = splat(0.0f), which = splat(0.0f), burden = splat(0.0f);
        for (int i = 0; i < 8; ++i) {
          const V size = a[first + i];
          const V loss = (g.w(first + i) * size) * most(size, splat(lowest));
          const Mask less = loss < burden;
          if (i == 0) {
            burden = loss;
          } else {
            burden = select(less, loss, burden);
            which = select(less, splat(static_cast<float>(i)), which);
          }
          count = count + negative[first + i];
        }
        const V odd = count - 2.0f * nearest(count * 0.5f - 0.25f);
        for (int i = 0; i < 8; ++i) {
          const Mask turned = (odd > 0.5f) & (magnitude_of(which - static_cast<float>(i)) < 0.5f);
          a[first + i] = select(turned, -a[first + i], a[first + i]);
          negative[first + i] =
              select(turned, 1.0f - negative[first + i], negative[first + i]);
        }
      }
    }
  }

  // Sum of w * q * (q - 2 a) of the nearest points, which a scale's square takes to the error, less
  // what zeros would cost.
  template <bool Tracked>
  V cost_of(const Groups<N>& g, V factor, Nearest<N, Length>* found) const {
    V a[N], negative[N], w[N];
    magnitudes(g, factor, a, negative);
    for (int i = 0; i < N; ++i) w[i] = g.w(i);
    V low[kCombined], high[kCombined];
    V total = splat(0.0f), down_total = splat(0.0f);
    V index[kRuns], down_index[kRuns], down[kRuns];
    for (int r = 0; r < kRuns; ++r) {
      const auto run_cost = [&](float shift, V& at) {
        half_costs(a + r * Length, w + r * Length, shift, low);
        half_costs(a + r * Length + kHalf, w + r * Length + kHalf, shift, high);
        if constexpr (Tracked) return least_cost(low, high, at);
        return least_cost(low, high);
      };
      V cost = run_cost(kShifts ? headrace::kPointShift : 0.0f, index[r]);
      if constexpr (kShifts) {
        const V other = run_cost(-headrace::kPointShift, down_index[r]);
        if constexpr (Signs == headrace::PointSigns::shift_each) {
          const Mask better = other < cost;
          cost = select(better, other, cost);
          down[r] = select(better, splat(1.0f), splat(0.0f));
        } else {
          down_total = down_total + other;
        }
      }
      total = total + cost;
    }
    if constexpr (Signs == headrace::PointSigns::shift_all) {
      const Mask better = down_total < total;
      total = select(better, down_total, total);
      for (V& d : down) d = select(better, splat(1.0f), splat(0.0f));
    }
    if constexpr (Tracked) {
      for (int r = 0; r < kRuns; ++r) {
        if constexpr (kShifts) {
          index[r] = select(down[r] > 0.5f, down_index[r], index[r]);
          found->shifted[r] = down[r];
        }
        found->index[r] = index[r];
      }
      look_up(*found, negative);
    }
    return total;
  }

  void look_up(Nearest<N, Length>& found, const V* negative) const {
    alignas(64) float levels[N][kLanes];
    for (int r = 0; r < kRuns; ++r) {
      float at[kLanes];
      unpack(found.index[r], at);
      for (int lane = 0; lane < kLanes; ++lane) {
        const int p = static_cast<int>(at[lane]);
        int low = book.low[p], high = book.high[p];
        for (int i = 0; i < kHalf; ++i, low /= Levels, high /= Levels) {
          levels[r * Length + i][lane] = facts.levels[low % Levels];
          levels[r * Length + kHalf + i][lane] = facts.levels[high % Levels];
        }
      }
    }
    for (int i = 0; i < N; ++i) {
      V q = pack(levels[i]);
      if constexpr (kShifts) {
        q = q + select(found.shifted[i / Length] > 0.5f, splat(-headrace::kPointShift),
                       splat(headrace::kPointShift));
      } else {
        q = select(negative[i] > 0.5f, -q, q);
      }
      found.q[i] = q;
      found.negative[i] = negative[i];
    }
  }

  // The scales that fit each group best, freely chosen.
  V fit_scale(const Groups<N>& g, Nearest<N, Length>& at) const {
    V peak = splat(0.0f);
    for (int i = 0; i < N; ++i) peak = most(magnitude_of(g.x(i)), peak);
    const V unit = inverse(select(peak < kNothing, splat(0.0f), peak));
    V scale = splat(0.0f), gain = splat(0.0f);
    for (int k = 0; k < facts.steps.count; ++k) {
      const float stretch = facts.steps.first + static_cast<float>(k) * facts.steps.step;
      const V factor = unit * (facts.levels[Levels - 1] * stretch);
      const V tried = inverse(factor);
      const V won = -((cost_of<false>(g, factor, nullptr) * tried) * tried);
      const Mask better = won > gain;
      gain = select(better, won, gain);
      scale = select(better, tried, scale);
    }
    for (int k = 0; k < headrace::kRefits; ++k) {
      cost_of<true>(g, inverse(scale), &at);
      V xq = splat(0.0f), qq = splat(0.0f);
      for (int i = 0; i < N; ++i) {
        const V wq = g.w(i) * at.q[i];
        xq = xq + wq * g.x(i);
        qq = qq + wq * at.q[i];
      }
      const V fitted = xq * inverse(qq);
      const V won = fitted * xq;
      const Mask better = (won > gain) & (fitted > 0.0f);
      gain = select(better, won, gain);
      scale = select(better, fitted, scale);
    }
    return scale;
  }

  void run(const PointTask& t) const {
    constexpr int kPer = kBlock / N, kAtOnce = kLanes / kPer;
    const float codes_most = static_cast<float>(facts.codes);
    for (int64_t first = 0; first < t.blocks; first += kAtOnce) {
      const int64_t blocks = t.blocks - first < kAtOnce ? t.blocks - first : kAtOnce;
      Groups<N> g;
      g.load(t.values + first * kBlock, t.weights ? t.weights + first * kBlock : nullptr,
             blocks * kPer);
      Nearest<N, Length> at;
      const V scale = fit_scale(g, at);
      BlockScales<kPer, 1> s;
      float(&d)[kAtOnce] = s.d[0];
      float scales[kLanes];
      unpack(scale, scales);
      for (int b = 0; b < kAtOnce; ++b) {
        float top = 0.0f;
        for (int j = 0; j < kPer; ++j) {
          top = scales[b * kPer + j] > top ? scales[b * kPer + j] : top;
        }
        d[b] = half(top / ((2.0f * codes_most + 1.0f) * facts.unit));
      }
      const auto unit_of = [&](const float* of) { return spread<kPer>(of) * facts.unit; };
      V& codes = s.codes[0];
      codes = nearest(clip((scale * inverse(unit_of(d)) - 1.0f) * 0.5f, 0.0f, codes_most));
      const auto improve = [&] {
        const V unit = unit_of(d);
        return improve_codes(codes, 0.0f, codes_most, [&](V code) {
          const V scaled = unit * (2.0f * code + 1.0f);
          return (cost_of<false>(g, inverse(scaled), nullptr) * scaled) * scaled;
        });
      };
      fit_in_turns(s, improve, [&](float (&next)[1][kAtOnce]) {
        const V odd = 2.0f * codes + 1.0f;
        cost_of<true>(g, inverse(unit_of(d) * odd), &at);
        V xq = splat(0.0f), qq = splat(0.0f);
        for (int i = 0; i < N; ++i) {
          const V q = odd * at.q[i];
          const V wq = g.w(i) * q;
          xq = xq + wq * g.x(i);
          qq = qq + wq * q;
        }
        double tops[kAtOnce], bottoms[kAtOnce];
        block_sums<kPer>(xq, tops);
        block_sums<kPer>(qq, bottoms);
        for (int b = 0; b < kAtOnce; ++b) {
          next[0][b] = tops[b] > 0 ? half(static_cast<float>(
                                         tops[b] / (bottoms[b] * static_cast<double>(facts.unit))))
                                   : d[b];
        }
      });
      cost_of<true>(g, inverse(unit_of(d) * (2.0f * codes + 1.0f)), &at);
      store(t, first, blocks, codes, d, at);
    }
  }

  void store(const PointTask& t, int64_t first, int64_t blocks, V codes, const float* d,
             const Nearest<N, Length>& at) const {
    constexpr int kPer = kBlock / N;
    float stored[kLanes];
    unpack(codes, stored);
    for (int64_t b = 0; b < blocks; ++b) {
      t.d[first + b] = d[b];
      for (int j = 0; j < kPer; ++j) {
        t.scales[(first + b) * kPer + j] = static_cast<uint8_t>(stored[b * kPer + j]);
      }
    }
    for (int r = 0; r < kRuns; ++r) {
      unpack(at.index[r], stored);
      for (int64_t lane = 0; lane < blocks * kPer; ++lane) {
        t.points[(first * kPer + lane) * kRuns + r] = static_cast<uint16_t>(stored[lane]);
      }
    }
    for (int run = 0; run < N / 8; ++run) {
      uint8_t bits[kLanes] = {};
      for (int i = 0; i < (kShifts ? 1 : 8); ++i) {
        unpack(kShifts ? at.shifted[run] : at.negative[run * 8 + i], stored);
        for (int lane = 0; lane < kLanes; ++lane) {
          bits[lane] = static_cast<uint8_t>(bits[lane] | (stored[lane] > 0.5f ? 1 << i : 0));
        }
      }
      for (int64_t lane = 0; lane < blocks * kPer; ++lane) {
        t.signs[(first * kPer + lane) * (N / 8) + run] = bits[lane];
      }
    }
  }
};

template <int N, int Length, int Levels, headrace::PointSigns Signs>
void search_points_of(const PointTask& t) {
  const PointFacts& facts = headrace::kPointFacts[t.kind];
  Halves book;
  read_halves<Length, Levels>(t.book, facts.points, book);
  Points<N, Length, Levels, Signs>{facts, book}.run(t);
}

void search_points(const PointTask& t) {
  using headrace::PointSigns;
  switch (t.kind) {
    case 0: return search_points_of<32, 4, 8, PointSigns::even>(t);        // IQ3_XXS
    case 1: return search_points_of<32, 4, 8, PointSigns::free>(t);        // IQ3_S
    case 2: return search_points_of<32, 8, 3, PointSigns::even>(t);        // IQ2_XXS
    case 3: return search_points_of<16, 8, 3, PointSigns::even>(t);        // IQ2_XS
    case 4: return search_points_of<16, 8, 3, PointSigns::free>(t);        // IQ2_S
    case 5: return search_points_of<32, 8, 3, PointSigns::shift_all>(t);   // IQ1_S
    case 6: return search_points_of<16, 8, 3, PointSigns::shift_each>(t);  // IQ1_M
  }
}

}  // namespace
