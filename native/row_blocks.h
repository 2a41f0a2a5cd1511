// What products of float and of quantised weights share: blocks of rows and of panels, what is asked
// for ahead of time, and the end of a row's sum.

#pragma once

#include "kernels.h"

namespace {

using headrace::kLanes;
using headrace::LinearArgs;

// Rows that go through a k block together; their sums wait in scratch (48 x 32 f32 = 6 KiB).
constexpr int64_t kChunkRows = 48;

// As few chunks of `rows` as can be, of `most` each: how many rows they take, the last one perhaps fewer.
HEADRACE_INLINE int64_t chunk_rows(int64_t rows, int64_t most) {
  const int64_t chunks = (rows + most - 1) / most;
  return (rows + chunks - 1) / chunks;
}
// How far ahead weights are asked for while they stream: what memory has to have under way, 40 GB/s for
// 100 ns, and as much again, since a kernel of several rows takes its bytes unevenly. A loop that only
// reads is served by 1 KiB already; products of 1 to 8 rows gain up to two fifths from 2 to 8 KiB
// (docs/kernels.md), and nothing from 16.
constexpr int64_t kPrefetchBytes = 8192;

// How far ahead of `at` to ask where the weights of a call end at `end`: what lies behind them is another
// thread's.
HEADRACE_INLINE int64_t asked_ahead(const void* at, const uint8_t* end) {
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

// How many of `left` rows the next block takes: as few blocks as can be, all about as large.
HEADRACE_INLINE int64_t block_rows(int64_t left) { return chunk_rows(left, kBlockRows); }

// The weights the next block of k will want, asked for in steps while this one is computed.
struct NextBlock {
  const uint8_t* at;
  int64_t panel;  // bytes from one panel to the next
  int64_t bytes;  // of each

  HEADRACE_INLINE void ask(const NextBlock& n, int64_t count, int64_t done, int64_t more,
                           int64_t all) {
    const int64_t begin = n.bytes * done / all / 64 * 64, end = n.bytes * (done + more) / all;
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t b = begin; b < end; b += 64) prefetch_far(n.at + j * n.panel + b);
    }
  }
};

HEADRACE_INLINE void clear_sums(float* sums, int64_t rows) {
  for (int64_t i = 0; i < rows * kBlockPanels; ++i) store(sums + i * kLanes, zero());
}

// y = (sums + bias) * scale + residual of `rows` rows from `row` and of panels [panel, panel + count).
static void finish(const LinearArgs& a, const float* sums, int64_t panel, int64_t count,
                   int64_t row, int64_t rows) {
  const float *bias = a.weight.bias, *residual = a.residual;
  float* y = a.y;
  const int64_t out = a.weight.out;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < count; ++j) {
      const int64_t column = (panel + j) * kLanes, left = out - column;
      F v = load(sums + (i * kBlockPanels + j) * kLanes);
      if (bias != nullptr) v = add(v, load_n(bias + column, left));
      v = mul(v, splat(a.scale));  // by 1 it stays what it is
      if (residual != nullptr) v = add(v, load_n(residual + (row + i) * out + column, left));
      store_n(y + (row + i) * a.y_stride + column, v, left);
    }
  }
}

// Lines of y that will be written soon: while the last block of k is computed, so that the stores
// do not wait for memory.
HEADRACE_INLINE void ask_output(const LinearArgs& a, int64_t panel, int64_t count, int64_t row,
                                int64_t rows) {
  for (int64_t i = row; i < row + rows; ++i) {
    for (int64_t j = 0; j < count; ++j) {
      prefetch_to_write(a.y + i * a.y_stride + (panel + j) * kLanes);
    }
  }
}

}  // namespace
