// Packed blocks of the kinds without a code book as operands: made of what codecs.h says of each,
// planes of bits, a table perhaps, one of the ways to store scales.

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
  return kSignedBytes && headrace::has_wide_bytes(f) ? f.zero - 128 : f.zero;
}

template <Codec C>
struct PackedPlanes {
  static constexpr CodecFacts kFacts = facts(C);
  static constexpr int kTiles = kFacts.tiles;
  static constexpr int kGroups = kFacts.groups;
  static constexpr bool kMins = kFacts.mins;
  static constexpr bool kWide = headrace::has_wide_bytes(kFacts);
  static constexpr bool kStarts = level_zero(kFacts) != 0;
  static constexpr bool kBlocks = headrace::sums_blocks(kFacts);
  static constexpr int64_t kHeaderBytes = headrace::header_bytes(kFacts);
  static constexpr int64_t kTileBytes = headrace::tile_bytes(kFacts);
  static constexpr int64_t kBlockBytes = headrace::block_bytes(kFacts);
  static constexpr int64_t kBytesAt = (kMins ? 4 : 2) * kLanes;  // of scales that are bytes

  F d, m;  // of the block

  using Tile = const uint8_t*;

  HEADRACE_INLINE PackedPlanes open(const uint8_t* block) {
    PackedPlanes p;
    if constexpr (kFacts.scales == Scales::exponent) {
      p.d = load_half_e8m0(block);
    } else if constexpr (kFacts.scales == Scales::small) {
      p.d = zero();
    } else if constexpr (kFacts.scales == Scales::single || kFacts.scales == Scales::folded) {
      p.d = load(reinterpret_cast<const float*>(block));
    } else {
      p.d = load_f16(reinterpret_cast<const uint16_t*>(block));
    }
    if constexpr (!kMins) {
      p.m = zero();
    } else if constexpr (kFacts.scales == Scales::single) {
      p.m = mul(p.d, load_u8(block + 4 * kLanes));
    } else {
      p.m = load_f16(reinterpret_cast<const uint16_t*>(block) + kLanes);
    }
    return p;
  }

  // What the functions below take of the tile at `tile`, the t-th of its block.
  HEADRACE_INLINE Tile open_tile(const uint8_t*, const uint8_t* tile, int64_t) { return tile; }

  // Of the group kGroup of a tile, and counted through the tiles of its block; of kinds that sum
  // blocks the whole number that multiplies d.
  template <int kGroup>
  HEADRACE_INLINE F scale(const PackedPlanes& p, Tile, const uint8_t* block, int64_t group) {
    const uint8_t* at = block + kBytesAt + group * kLanes;
    if constexpr (kFacts.scales == Scales::bytes) {
      const F whole = load_i8(reinterpret_cast<const int8_t*>(at));
      return kBlocks ? whole : mul(p.d, whole);
    } else if constexpr (kFacts.scales == Scales::nibbles) {
      return mul(p.d, load_low_nibbles(at));
    } else if constexpr (kFacts.scales == Scales::small) {
      return load_half_e4m3(block + group * kLanes);
    } else if constexpr (kFacts.scales == Scales::folded) {
      return mul(p.d, load_half_e4m3(block + (4 + group) * kLanes));
    } else {
      return p.d;
    }
  }
  HEADRACE_INLINE F min(const PackedPlanes& p, const uint8_t* block, int64_t group) {
    const uint8_t* at = block + kBytesAt + group * kLanes;
    if constexpr (kFacts.scales == Scales::bytes) {
      return mul(p.m, load_u8(at + kTiles * kGroups * kLanes));
    } else if constexpr (kFacts.scales == Scales::nibbles) {
      return mul(p.m, load_high_nibbles(at));
    } else {
      return p.m;
    }
  }

  // Of kinds that sum blocks: the whole numbers that multiply m, u8 [two tiles][16][2].
  HEADRACE_INLINE const uint8_t* whole_mins(const uint8_t* block) {
    return block + kBytesAt + kTiles * kGroups * kLanes;
  }

  // Values k = 4 * kFour .. 4 * kFour + 3 of a tile.
  template <int kFour>
  HEADRACE_INLINE Bytes four(Tile tile) {
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

}  // namespace
