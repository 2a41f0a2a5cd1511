// Readers of K and V: all that the kernels of a level know about a kind of kv_codecs.h.
//
// A reader has
//   kCodec               its line in the table
//   T, kPair, read       how pairs are read, as in chains.h: of K two dimensions of 16 tokens, of V
//                        two tokens of 16 dimensions
//   key_at, value_at     where a value lies: of K in its group, of V in a panel of 16 dimensions
//   write_key, _value    how one head of a token is stored, in lane `lane` of a group
//   rounded              what q and p become before they meet what is stored
//   scored, weighed      what the scales of a group's tokens do to its sums q.K, and to p before V
// in which `group` is where a group of 16 tokens begins.

#pragma once

#include "chains.h"
#include "kernels.h"

namespace {

using headrace::KvCodec;
using headrace::KvLayer;

template <KvCodec>
struct KvReader;

// Of kinds without scales.
struct Unscaled {
  HEADRACE_INLINE F scored(const uint8_t* /*group*/, F sums) { return sums; }
  HEADRACE_INLINE F weighed(const uint8_t* /*group*/, F p) { return p; }
};

template <>
struct KvReader<KvCodec::f32> : F32Pairs, Unscaled {
  static constexpr KvCodec kCodec = KvCodec::f32;

  static constexpr int64_t key_at(int64_t d, int64_t token) { return d * kLanes + token; }
  static constexpr int64_t value_at(int64_t token, int64_t d) { return token * kLanes + d; }

  HEADRACE_INLINE F rounded(F x) { return x; }

  HEADRACE_INLINE void write_key(uint8_t* group, int64_t lane, const float* k, int64_t width) {
    float* to = reinterpret_cast<float*>(group);
    for (int64_t d = 0; d < width; ++d) to[key_at(d, lane)] = k[d];
  }

  // Zeros past the width.
  HEADRACE_INLINE void write_value(uint8_t* group, int64_t lane, const float* v, int64_t width) {
    float* panel = reinterpret_cast<float*>(group);
    for (int64_t d = 0; d < width; d += kLanes, panel += kLanes * kLanes) {
      store(panel + value_at(lane, 0), load_n(v + d, width - d));
    }
  }
};

template <>
struct KvReader<KvCodec::bf16> : BF16Pairs, Unscaled {
  static constexpr KvCodec kCodec = KvCodec::bf16;

  static constexpr int64_t key_at(int64_t d, int64_t token) {
    return d / 2 * kPair + 2 * token + d % 2;
  }
  static constexpr int64_t value_at(int64_t token, int64_t d) {
    return token / 2 * kPair + 2 * d + token % 2;
  }

  HEADRACE_INLINE F rounded(F x) { return round_bf16(x); }

  HEADRACE_INLINE void write_key(uint8_t* group, int64_t lane, const float* k, int64_t width) {
    uint16_t* to = reinterpret_cast<uint16_t*>(group);
    for (int64_t d = 0; d < width; d += kLanes) {
      const int64_t left = width - d, n = left < kLanes ? left : kLanes;
      uint16_t half[kLanes];
      store_bf16(half, round_bf16(load_n(k + d, n)));
      for (int64_t i = 0; i < n; ++i) to[key_at(d + i, lane)] = half[i];
    }
  }

  // Zeros past the width.
  HEADRACE_INLINE void write_value(uint8_t* group, int64_t lane, const float* v, int64_t width) {
    uint16_t* panel = reinterpret_cast<uint16_t*>(group);
    for (int64_t d = 0; d < width; d += kLanes, panel += kLanes * kLanes) {
      uint16_t half[kLanes];
      store_bf16(half, round_bf16(load_n(v + d, width - d)));
      for (int64_t i = 0; i < kLanes; ++i) panel[value_at(lane, i)] = half[i];
    }
  }
};

// The values of a group, behind its scales.
template <class Reader>
HEADRACE_INLINE const typename Reader::T* values_of(const uint8_t* group) {
  return reinterpret_cast<const typename Reader::T*>(group + kv_scales_bytes(Reader::kCodec));
}

// Calls fn<the reader of `codec`>().
template <int kFirst = 0, class Fn>
HEADRACE_INLINE void with_reader(KvCodec codec, const Fn& fn) {
  using Reader = KvReader<static_cast<KvCodec>(kFirst)>;
  constexpr int64_t kBytes = sizeof(typename Reader::T);
  static_assert(kBytes == facts(Reader::kCodec).value_bytes);
  if constexpr (kFirst + 1 < headrace::kKvCodecs) {
    if (static_cast<int>(codec) != kFirst) {
      with_reader<kFirst + 1>(codec, fn);
      return;
    }
  }
  fn.template operator()<Reader>();
}

// Calls fn<K, V>() for the readers of a layer.
template <class Fn>
HEADRACE_INLINE void with_readers(const KvLayer& kv, const Fn& fn) {
  with_reader(kv.k_codec, [&]<class K>() {
    with_reader(kv.v_codec, [&]<class V>() { fn.template operator()<K, V>(); });
  });
}

}  // namespace
