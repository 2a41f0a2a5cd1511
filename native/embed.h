// Table lookup: the rows of some ids, decoded, then scaled and added to a residual where there is
// one.

#pragma once

#include "kernels.h"
#include "norm.h"
#include "stored.h"
#include "unpack.h"

namespace {

using headrace::EmbedArgs;

// Sixteen times a half, as a vector has no other way to one.
HEADRACE_INLINE F splat_half(uint16_t half) {
  uint16_t same[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) same[i] = half;
  return load_f16(same);
}

// One stored block, decoded as gguf-py does: (d * scale) * (q - zero) - m * min.
template <Codec C>
static void embed_block(const uint8_t* from, float* y) {
  using P = Packed<C>;
  StoredBlock block;
  read_block<C>(from, block);
  F d = zero();
  if constexpr (P::kFacts.scales == Scales::exponent) {
    uint8_t same[kLanes];
    __builtin_memset(same, block.d, sizeof same);
    d = load_half_e8m0(same);
  } else if constexpr (P::kFacts.scales == Scales::single ||
                       P::kFacts.scales == Scales::folded) {
    d = splat(block.single);
  } else {
    d = mul(splat_half(block.d), splat(P::kFacts.book.factor));  // by 1 it stays what it is
  }
  F m = zero();
  if constexpr (P::kMins && P::kFacts.scales == Scales::single) {
    m = mul(d, splat(static_cast<float>(block.mins[0])));
  } else if constexpr (P::kMins) {
    m = splat_half(block.m);
  }
  constexpr Scales kScales = P::kFacts.scales;
  constexpr bool kScaled =
      kScales == Scales::bytes || kScales == Scales::nibbles || kScales == Scales::odd;
  for (int64_t i = 0; i < P::kTiles * kTile; i += kLanes) {
    const int64_t group = i * P::kGroups / kTile;
    uint8_t q[kLanes];
    __builtin_memcpy(q, block.q + i / 4, kLanes);
    if constexpr (P::kFacts.table != Table::none) {
      for (int64_t j = 0; j < kLanes; ++j) q[j] = headrace::table_of(P::kFacts.table)[q[j]];
    }
    F scale = d, min = m;
    if constexpr (kScaled) {
      scale = mul(d, splat(static_cast<float>(static_cast<int8_t>(block.scales[group]))));
      if constexpr (P::kMins) min = mul(m, splat(static_cast<float>(block.mins[group])));
    }
    if constexpr (kScales == Scales::small || kScales == Scales::folded) {
      uint8_t same[kLanes];
      __builtin_memset(same, block.scales[group], sizeof same);
      scale = load_half_e4m3(same);
      if constexpr (kScales == Scales::folded) scale = mul(d, scale);
    }
    F v = mul(scale, sub(load_u8(q), splat(static_cast<float>(P::kFacts.zero))));
    if constexpr (P::kMins) v = sub(v, min);
    store(y + i, v);
  }
}

// The values of one stored row.
static void decode_row(Codec codec, const uint8_t* from, int64_t width, float* y) {
  if (headrace::is_quantised(codec)) {
    headrace::with_quantised(codec, [&]<Codec C>() {
      const CodecFacts& f = facts(C);
      for (int64_t b = 0; b < width / f.stored_elements; ++b) {
        embed_block<C>(from + b * f.stored_bytes, y + b * f.stored_elements);
      }
    });
  } else if (codec == Codec::nf4) {
    for (int64_t b = 0; b < width / headrace::kNf4Run; ++b, from += facts(codec).stored_bytes) {
      float scale;
      __builtin_memcpy(&scale, from, sizeof scale);
      for (int64_t i = 0; i < headrace::kNf4Run; ++i) {
        const int code = from[sizeof scale + i / 2] >> (i % 2 * 4) & 15;
        *y++ = scale * headrace::kNf4Table[code];
      }
    }
  } else if (codec == Codec::f32) {
    __builtin_memcpy(y, from, static_cast<uint64_t>(width) * sizeof(float));
  } else {
    for (int64_t i = 0; i < width; i += kLanes) {
      const int64_t left = width - i, n = left < kLanes ? left : kLanes;
      uint16_t half[kLanes] = {};
      __builtin_memcpy(half, from + 2 * i, static_cast<uint64_t>(n) * 2);
      store_n(y + i, codec == Codec::f16 ? load_f16(half) : load_bf16(half), n);
    }
  }
}

// A row at a time, so that it is in the cache when it is scaled.
static void embed(const EmbedArgs& a, int64_t row_begin, int64_t row_end) {
  const F scale = splat(a.scale);
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t id = a.ids[row];
    float* y = a.y + row * a.width;
    decode_row(a.codec, a.table + (a.order == nullptr ? id : a.order[id]) * a.row_bytes, a.width,
               y);
    if (a.scale == 1.0f && a.residual == nullptr) continue;
    for (int64_t i = 0; i < a.width; i += kLanes) {
      const int64_t left = a.width - i;
      F v = mul(load_left(y + i, left), scale);
      if (a.residual != nullptr) v = add(v, load_left(a.residual + row * a.width + i, left));
      store_n(y + i, v, left);
    }
  }
}

}  // namespace
