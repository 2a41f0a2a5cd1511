// Packed blocks of the quantised kinds as operands: bytes ready for dot4, scales and mins as f32.
//
// One reader for all kinds, made of what codecs.h says of each: planes of bits, a table perhaps, one
// of four ways to store scales. Few rows read operands straight into registers; many rows read
// them from an UnpackedTile, which is the same for every kind with as many groups, with or without
// mins.

#pragma once

#include "kernels.h"

namespace {

using headrace::Codec;
using headrace::CodecFacts;
using headrace::facts;
using headrace::kLanes;
using headrace::kTile;
using headrace::Scales;
using headrace::Table;

constexpr int kFours = kTile / 4;  // operands of dot4 in a tile
constexpr int64_t kFourBytes = 4 * kLanes;

// Calls fn<i>() for i in [kFirst, kEnd).
template <int kFirst, int kEnd, class Fn>
HEADRACE_INLINE void unrolled(const Fn& fn) {
  if constexpr (kFirst < kEnd) {
    fn.template operator()<kFirst>();
    unrolled<kFirst + 1, kEnd>(fn);
  }
}

// What a byte of the kind means zero by, as this level reads it.
static constexpr int32_t level_zero(const CodecFacts& f) {
  return kSignedBytes && f.most > 127 ? f.zero - 128 : f.zero;
}

template <Codec C>
struct Packed {
  static constexpr CodecFacts kFacts = facts(C);
  static constexpr int kTiles = kFacts.tiles;
  static constexpr int kGroups = kFacts.groups;
  static constexpr bool kMins = kFacts.mins;
  static constexpr bool kWide = kFacts.most > 127;
  static constexpr bool kStarts = level_zero(kFacts) != 0;
  static constexpr int64_t kHeaderBytes = headrace::header_bytes(kFacts);
  static constexpr int64_t kTileBytes = headrace::tile_bytes(kFacts);
  static constexpr int64_t kBlockBytes = headrace::block_bytes(kFacts);
  static constexpr int64_t kBytesAt = (kMins ? 4 : 2) * kLanes;  // of scales that are bytes

  F d, m;  // of the block

  HEADRACE_INLINE Packed open(const uint8_t* block) {
    Packed p;
    if constexpr (kFacts.scales == Scales::exponent) {
      p.d = load_half_e8m0(block);
    } else {
      p.d = load_f16(reinterpret_cast<const uint16_t*>(block));
    }
    p.m = kMins ? load_f16(reinterpret_cast<const uint16_t*>(block) + kLanes) : zero();
    return p;
  }

  // Of a group of the block, counted through its tiles.
  HEADRACE_INLINE F scale(const Packed& p, const uint8_t* block, int64_t group) {
    const uint8_t* at = block + kBytesAt + group * kLanes;
    if constexpr (kFacts.scales == Scales::bytes) {
      return mul(p.d, load_i8(reinterpret_cast<const int8_t*>(at)));
    } else if constexpr (kFacts.scales == Scales::nibbles) {
      return mul(p.d, load_low_nibbles(at));
    } else {
      return p.d;
    }
  }
  HEADRACE_INLINE F min(const Packed& p, const uint8_t* block, int64_t group) {
    const uint8_t* at = block + kBytesAt + group * kLanes;
    if constexpr (kFacts.scales == Scales::bytes) {
      return mul(p.m, load_u8(at + kTiles * kGroups * kLanes));
    } else if constexpr (kFacts.scales == Scales::nibbles) {
      return mul(p.m, load_high_nibbles(at));
    } else {
      return p.m;
    }
  }

  // Values k = 4 * kFour .. 4 * kFour + 3 of a tile.
  template <int kFour>
  HEADRACE_INLINE Bytes four(const uint8_t* tile) {
    constexpr int kLow = kFacts.low_bits, kHigh = kFacts.high_bits;
    Bytes x = load_bytes(tile + kFour % kLow * kFourBytes);
    if constexpr (kLow < 8) {
      x = field<kFour / kLow * kLow>(x, splat_byte((1 << kLow) - 1));
    }
    if constexpr (kHigh > 0) {
      const Bytes high = load_bytes(tile + (kLow + kFour % kHigh) * kFourBytes);
      constexpr uint8_t kMask = ((1 << kHigh) - 1) << kLow;
      x = with_field<kFour / kHigh * kHigh - kLow>(x, high, splat_byte(kMask));
    }
    if constexpr (kFacts.table != Table::none) {
      const Bytes table = load_table(headrace::table_of(kFacts.table));
      return lookup(kSignedBytes && kWide ? flip_top(table) : table, x);
    } else {
      return kSignedBytes && kWide ? flip_top(x) : x;
    }
  }
};

// A tile of 16 outputs, unpacked. `bytes` is also the 8 x 64 operand of a tile product (k by four,
// then 16 outputs, then 4 of k); each group is 8 / kGroups of its rows.
template <int kGroups, bool kMins>
struct UnpackedTile {
  uint8_t bytes[kFours][kFourBytes];
  float factors[kGroups * (kMins ? 2 : 1)][kLanes];  // scales of the groups, then their mins
};

template <class P>
using UnpackedTileOf = UnpackedTile<P::kGroups, P::kMins>;

// `blocks` packed blocks, one after another.
template <Codec C>
HEADRACE_APART void unpack(const uint8_t* block, int64_t blocks,
                           UnpackedTileOf<Packed<C>>* to) {
  using P = Packed<C>;
  for (int64_t b = 0; b < blocks; ++b, block += P::kBlockBytes) {
    const P p = P::open(block);
    const uint8_t* tile = block + P::kHeaderBytes;
    for (int t = 0; t < P::kTiles; ++t, tile += P::kTileBytes, ++to) {
      unrolled<0, kFours>([&]<int kFour>() __attribute__((always_inline)) {
        store_bytes(to->bytes[kFour], P::template four<kFour>(tile));
      });
      for (int g = 0; g < P::kGroups; ++g) {
        const int64_t group = t * P::kGroups + g;
        store(to->factors[g], P::scale(p, block, group));
        if constexpr (P::kMins) store(to->factors[P::kGroups + g], P::min(p, block, group));
      }
    }
  }
}

}  // namespace
