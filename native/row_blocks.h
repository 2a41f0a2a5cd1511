// What products of float and of quantised weights share: blocks of rows and of panels, what is
// prefetched, and the end of a row's sum.

#pragma once

#include "kernels.h"

namespace {

using headrace::kLanes;
using headrace::LinearArgs;
using headrace::PanelRange;

// Rows that go through a k block together; their sums wait in scratch (48 x 32 f32 = 6 KiB).
constexpr int64_t kChunkRows = 48;

// As few chunks of `rows` as can be, of `most` each: how many rows they take, the last one perhaps
// fewer.
HEADRACE_INLINE int64_t chunk_rows(int64_t rows, int64_t most) {
  const int64_t chunks = (rows + most - 1) / most;
  return (rows + chunks - 1) / chunks;
}
// How far ahead weights are prefetched while they stream: what memory has to have under way, 40
// GB/s for 100 ns, and as much again, since a kernel of several rows takes its bytes unevenly. A
// loop that only reads is served by 1 KiB already; products of 1 to 8 rows gain up to two fifths
// from 2 to 8 KiB (docs/kernels.md), and nothing from 16.
constexpr int64_t kPrefetchBytes = 8192;

// How far ahead of `at` to prefetch where the weights of a call end at `end`: what lies behind them
// is another thread's.
HEADRACE_INLINE int64_t prefetch_distance(const void* at, const uint8_t* end) {
  return end - static_cast<const uint8_t*>(at) > kPrefetchBytes ? kPrefetchBytes : 0;
}

// Calls fn<MR>() for MR = rows, rows <= Most.
template <int Most, class Fn>
HEADRACE_INLINE void with_rows(int64_t rows, const Fn& fn) {
  if (rows == Most) {
    fn.template operator()<Most>();
  } else if constexpr (Most > 1) {
    with_rows<Most - 1>(rows, fn);
  }
}

// Calls fn<NP>() for NP = panels, panels <= kBlockPanels.
template <class Fn>
HEADRACE_INLINE void with_panels(int64_t panels, const Fn& fn) {
  if (kBlockPanels > 1 && panels == kBlockPanels) {
    fn.template operator()<kBlockPanels>();
  } else {
    fn.template operator()<1>();
  }
}

// Lines of y that rows will soon write, from a column on, and those of what is added to them:
// prefetched while the last block of k is computed, so that `finish` does not wait for memory.
struct Outputs {
  const float* y;
  int64_t stride;         // of y
  const float* residual;  // or null
  int64_t residual_stride;
  int64_t rows;  // 0: none are prefetched

  HEADRACE_INLINE Outputs of(const LinearArgs& a, int64_t panel, int64_t row, int64_t rows) {
    const int64_t column = panel * kLanes;
    return {a.y + row * a.y_stride + column, a.y_stride,
            a.residual == nullptr ? nullptr : a.residual + row * a.weight.out + column,
            a.weight.out, rows};
  }
  template <int NP>
  HEADRACE_INLINE void prefetch_row(const float* y, const float* residual) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) {
      prefetch_to_write(y + j * kLanes);
      prefetch(residual + j * kLanes);
    }
  }
  // Where nothing is added, the lines of y are prefetched twice.
  HEADRACE_INLINE const float* added(const Outputs& o) {
    return o.residual == nullptr ? o.y : o.residual;
  }
  HEADRACE_INLINE int64_t added_stride(const Outputs& o) {
    return o.residual == nullptr ? o.stride : o.residual_stride;
  }
  HEADRACE_INLINE void prefetch_all(const Outputs& o, int64_t panels) {
    with_panels(panels, [&]<int NP>() {
      for (int64_t row = 0; row < o.rows; ++row) {
        Outputs::prefetch_row<NP>(o.y + row * o.stride,
                                  Outputs::added(o) + row * Outputs::added_stride(o));
      }
    });
  }
};

// The weights the next block of k will want, prefetched while this one is computed: into the second
// level, some by each block of rows, and a few lines at a time, for more than the core can have
// under way stop it.
struct NextBlock {
  const uint8_t* at;
  int64_t panel;  // bytes from one panel to the next
  int64_t bytes;  // of each
  Outputs outputs = {};  // of the rows that prefetch

  // The part of rows [done, done + more) of `all`.
  HEADRACE_INLINE NextBlock share(const NextBlock& n, int64_t done, int64_t more, int64_t all) {
    const int64_t begin = n.bytes * done / all / 64 * 64;
    return {n.at + begin, n.panel, n.bytes * (done + more) / all - begin, {}};
  }
  // For all of it at once.
  HEADRACE_INLINE void prefetch_all(const NextBlock& n, int64_t count) {
    with_panels(count, [&]<int NP>() {
      for (int64_t at = 0; at < n.bytes; at += 64) {
HEADRACE_UNROLL
        for (int j = 0; j < NP; ++j) prefetch_far(n.at + j * n.panel + at);
      }
    });
  }
};

// Where a loop that prefetches the next block, or the next panels, has come to. Each of its steps
// prefetches as much of the weights, a line perhaps several times, and the outputs of one row,
// behind the last of them those of rows that come next: steps that differed cost more, by
// mispredicted branches, than what is prefetched in vain.
struct Prefetcher {
  const uint8_t* weights;
  int64_t panel, step;
  const float* y;
  int64_t stride;
  const float* residual;
  int64_t residual_stride;

  // Of a loop of so many steps. `there`: lines that are in the cache, in the place of outputs that
  // are not prefetched, or null where a loop prefetches none.
  template <int NP>
  HEADRACE_INLINE Prefetcher of(const NextBlock& n, int64_t steps, const float* there) {
    const Outputs& o = n.outputs;
    const int64_t step = (n.bytes + steps - 1) / steps;
    if (o.rows == 0) return {n.at, n.panel, step, there, 0, there, 0};
    const float* residual = Outputs::added(o);
    const int64_t residual_stride = Outputs::added_stride(o);
    // A short block has fewer steps than rows.
    for (int64_t row = steps; row < o.rows; ++row) {
      Outputs::prefetch_row<NP>(o.y + row * o.stride, residual + row * residual_stride);
    }
    return {n.at, n.panel, step, o.y, o.stride, residual, residual_stride};
  }
  template <int NP>
  HEADRACE_INLINE void advance(Prefetcher& a) {
    if (a.y != nullptr) Outputs::prefetch_row<NP>(a.y, a.residual);
    for (int64_t line = 0; line < a.step; line += 64) {
HEADRACE_UNROLL
      for (int j = 0; j < NP; ++j) prefetch_far(a.weights + j * a.panel + line);
    }
    a.y += a.stride;
    a.residual += a.residual_stride;
    a.weights += a.step;
  }
};

HEADRACE_INLINE void clear_sums(float* sums, int64_t rows) {
  for (int64_t i = 0; i < rows * kBlockPanels; ++i) store(sums + i * kLanes, zero());
}

// y = sums * scale + residual of whole panels without a bias, which most are: nothing is checked
// for each row.
template <int NP, bool kResidual>
static void finish_whole(const LinearArgs& a, const float* sums, int64_t panel, int64_t row,
                         int64_t rows) {
  const F scale = splat(a.scale);
  float* y = a.y + row * a.y_stride + panel * kLanes;
  const float* residual = kResidual ? a.residual + row * a.weight.out + panel * kLanes : nullptr;
  for (int64_t i = 0; i < rows; ++i, sums += kBlockPanels * kLanes, y += a.y_stride) {
HEADRACE_UNROLL
    for (int j = 0; j < NP; ++j) {
      F v = mul(load(sums + j * kLanes), scale);  // by 1 it stays what it is
      if constexpr (kResidual) v = add(v, load(residual + j * kLanes));
      store(y + j * kLanes, v);
    }
    if constexpr (kResidual) residual += a.weight.out;
  }
}

// y = (sums + bias) * scale + residual of `rows` rows from `row` and of panels [panel, panel +
// count).
static void finish(const LinearArgs& a, const float* sums, int64_t panel, int64_t count,
                   int64_t row, int64_t rows) {
  const int64_t out = a.weight.out;
  if (a.weight.bias == nullptr && (panel + count) * kLanes <= out) {
    return with_panels(count, [&]<int NP>() {
      const auto go = a.residual == nullptr ? finish_whole<NP, false> : finish_whole<NP, true>;
      go(a, sums, panel, row, rows);
    });
  }
  const F scale = splat(a.scale);
  for (int64_t j = 0; j < count; ++j) {
    const int64_t column = (panel + j) * kLanes, left = out - column;
    const F bias = a.weight.bias == nullptr ? zero() : load_n(a.weight.bias + column, left);
    const float* residual = a.residual == nullptr ? nullptr : a.residual + row * out + column;
    const float* from = sums + j * kLanes;
    float* y = a.y + row * a.y_stride + column;
    for (int64_t i = 0; i < rows; ++i, from += kBlockPanels * kLanes, y += a.y_stride) {
      F v = load_n(from, left);
      if (a.weight.bias != nullptr) v = add(v, bias);
      v = mul(v, scale);
      if (residual != nullptr) v = add(v, load_n(residual + i * out, left));
      store_n(y, v, left);
    }
  }
}

// Blocks of at most `most` of `rows` rows from `row` on go over one block of k, which is the first
// one (or the last) where it begins (or ends) a row: fn(i, n, upcoming, sums) adds to the sums of n
// rows from the i-th on and prefetches the part of the next block that is theirs. Sums begin at
// zero, and become y as soon as they are whole: written by all rows at the end, they would have
// left the first-level cache, as would the lines of y that were prefetched.
template <class Fn>
HEADRACE_INLINE void over_rows(const LinearArgs& a, int64_t panel, int64_t count, int64_t row,
                               int64_t rows, int64_t most, bool begins, bool ends,
                               const NextBlock& ahead, float* all_sums, const Fn& fn) {
  for (int64_t i = 0, n; i < rows; i += n) {
    n = chunk_rows(rows - i, most);
    float* sums = all_sums + i * kBlockPanels * kLanes;
    if (begins) clear_sums(sums, n);
    NextBlock upcoming = NextBlock::share(ahead, i, n, rows);
    if (ends) upcoming.outputs = Outputs::of(a, panel, row + i, n);
    fn(i, n, upcoming, sums);
    if (ends) finish(a, sums, panel, count, row + i, n);
  }
}

}  // namespace
