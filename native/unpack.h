// Packed blocks of the quantised kinds as operands: bytes ready for dot4, scales and mins as f32.
//
// Few rows read operands straight into registers (Packed); many rows read them from an
// UnpackedTile, which is the same for every kind with as many groups, with or without mins.

#pragma once

#include "kernels.h"
#include "unpack_books.h"
#ifdef HEADRACE_BYTE_BOOKS
#include "unpack_byte_books.h"
#endif
#include "unpack_planes.h"

namespace {

template <bool kBook>
struct PackedOf {
  template <Codec C>
  using Type = PackedPlanes<C>;
};
template <>
struct PackedOf<true> {
#ifdef HEADRACE_BYTE_BOOKS
  template <Codec C>
  using Type = PackedByteBooks<C>;
#else
  template <Codec C>
  using Type = PackedBooks<C>;
#endif
};
template <Codec C>
using Packed = typename PackedOf<(facts(C).book.length > 0)>::template Type<C>;

// A tile of 16 outputs, unpacked. `bytes` is also the 8 x 64 operand of a tile product (k by four,
// then 16 outputs, then 4 of k); each group is 8 / kGroups of its rows.
template <int kGroups, bool kMins>
struct UnpackedTile {
  static constexpr int64_t kTiles = 1;

  uint8_t bytes[kFours][kFourBytes];
  float factors[kGroups * (kMins ? 2 : 1)][kLanes];  // scales of the groups, then their mins
};

// A block of a kind that sums blocks, unpacked: factors of its tiles are whole numbers.
struct UnpackedBlock {
  static constexpr int64_t kTiles = headrace::kBlockOfTiles;
  static constexpr int64_t kWholeMins = kTiles * kLanes;

  UnpackedTile<1, false> tiles[kTiles];
  float d[kLanes];
  float m[kLanes];
  uint8_t mins[kWholeMins];  // [two tiles][16][2]
};

template <bool kBlocks>
struct UnpackedKind {
  template <int kGroups, bool kMins>
  using Type = UnpackedTile<kGroups, kMins>;
};
template <>
struct UnpackedKind<true> {
  template <int kGroups, bool kMins>
  using Type = UnpackedBlock;
};
template <class P>
using UnpackedOf = typename UnpackedKind<P::kBlocks>::template Type<P::kGroups, P::kMins>;

// The tile at `tile`, the t-th of its block.
template <class P, bool kMins>
HEADRACE_INLINE void unpack_tile(const P& p, const uint8_t* block, const uint8_t* tile, int t,
                                 UnpackedTile<P::kGroups, kMins>& to) {
  const auto x = P::open_tile(block, tile, t);
  unrolled<0, kFours>([&]<int kFour>() __attribute__((always_inline)) {
    store_bytes(to.bytes[kFour], P::template four<kFour>(x));
  });
  unrolled<0, P::kGroups>([&]<int g>() __attribute__((always_inline)) {
    const int64_t group = t * P::kGroups + g;
    store(to.factors[g], P::template scale<g>(p, x, block, group));
    if constexpr (kMins) store(to.factors[P::kGroups + g], P::min(p, block, group));
  });
}

// `blocks` packed blocks, one after another.
template <Codec C>
HEADRACE_APART void unpack(const uint8_t* block, int64_t blocks, UnpackedOf<Packed<C>>* to) {
  using P = Packed<C>;
  for (int64_t b = 0; b < blocks; ++b, block += P::kBlockBytes) {
    const P p = P::open(block);
    const uint8_t* tile = block + P::kHeaderBytes;
    for (int t = 0; t < P::kTiles; ++t, tile += P::kTileBytes) {
      if constexpr (P::kBlocks) {
        unpack_tile(p, block, tile, t, to->tiles[t]);
      } else {
        unpack_tile(p, block, tile, t, *to++);
      }
    }
    if constexpr (P::kBlocks) {
      store(to->d, p.d);
      store(to->m, p.m);
      if constexpr (P::kMins) {
        __builtin_memcpy(to->mins, P::whole_mins(block), UnpackedBlock::kWholeMins);
      }
      ++to;
    }
  }
}

}  // namespace
