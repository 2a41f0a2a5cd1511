// K and V of few bits as bf16, for many rows: a span is decoded once and then read as often as
// there are rows, at the speed of bf16. What is stored is exact in bf16, so no bit of a result
// changes.

#pragma once

#include "kernels.h"
#include "kv_readers.h"

namespace {

// Whether what a reader stores is decoded where many rows meet it.
template <class Reader>
constexpr bool kNarrow = facts(Reader::kCodec).value_bits < 16;

// Groups lie scattered, and few rows wait for memory: the lines of a group `ahead` are prefetched
// while this one is computed. `pair`: how many came before it in the group.
template <bool Stream, class Pairs>
HEADRACE_INLINE void prefetch_ahead(const typename Pairs::T* at, int64_t ahead, int64_t pair) {
  if constexpr (Stream) {
    constexpr int64_t kLine = 64;
    const uint8_t* next = reinterpret_cast<const uint8_t*>(at) + ahead;
    if constexpr (kPair<Pairs> < kLine) {
      if (pair % (kLine / kPair<Pairs>) == 0) prefetch(next);
    } else {
      for (int64_t b = 0; b < kPair<Pairs>; b += kLine) prefetch(next + b);
    }
  }
}

// The line of a group's scales, where it has some.
template <bool Stream, class Reader>
HEADRACE_INLINE void prefetch_scales(const uint8_t* group, int64_t ahead) {
  if constexpr (Stream && kv_scales_bytes(Reader::kCodec) > 0) prefetch(group + ahead);
}

typedef uint32_t Sixteen __attribute__((vector_size(64)));

// Values as BF16Pairs reads them, from pairs that lie behind each other.
template <class Pairs>
static void decode_pairs(const typename Pairs::T* from, int64_t ahead, int64_t pairs,
                         uint16_t* to) {
  for (int64_t p = 0; p < pairs; ++p, from += Pairs::kPair, to += BF16Pairs::kPair) {
    prefetch_ahead<true, Pairs>(from, ahead, p);
    F even_of, odd_of;
    Pairs::read(from, even_of, odd_of);
    Sixteen e, o;
    store(reinterpret_cast<float*>(&e), even_of);
    store(reinterpret_cast<float*>(&o), odd_of);
    e = (e >> 16) | (o & 0xffff0000u);
    __builtin_memcpy(to, &e, sizeof e);
  }
}

}  // namespace
