// Packed blocks of the kinds with a code book, by the names of unpack_planes.h.
//
// Sixteen indices, one of each output, are looked up at a time; a point of eight levels is two
// operands, one in the low and one in the high nibbles of its bytes.

#pragma once

#include "books.h"
#include "unpack_planes.h"

namespace {

using headrace::Signs;

template <Codec C>
struct PackedBooks {
  static constexpr CodecFacts kFacts = facts(C);
  static constexpr headrace::BookFacts kBook = kFacts.book;
  static constexpr int kTiles = kFacts.tiles;
  static constexpr int kGroups = kFacts.groups;
  static constexpr bool kMins = false;
  static constexpr bool kWide = false;
  static constexpr bool kStarts = true;
  static constexpr bool kBlocks = false;
  static constexpr int64_t kHeaderBytes = headrace::header_bytes(kFacts);
  static constexpr int64_t kTileBytes = headrace::tile_bytes(kFacts);
  static constexpr int64_t kBlockBytes = headrace::block_bytes(kFacts);
  static_assert(!headrace::has_wide_bytes(kFacts) && !kFacts.mins);

  static constexpr bool kEven = kBook.signs == Signs::even;
  static constexpr bool kLong = kBook.length == 8;
  static constexpr int kPoints = kBook.points();
  static constexpr int kMoreBytes = (kBook.header_bits(kGroups) + 7) / 8;
  // Where even signs are, they have taken up to four bits of what follows the indices.
  static constexpr int kHighBits = kBook.high_bits * kPoints;
  static constexpr bool kHighInSigns = kEven && kHighBits == 4;
  static constexpr bool kScaleInSigns = kEven && kHighBits == 0;
  static_assert(!kEven || kHighInSigns || (kScaleInSigns && kBook.scale_bits * kGroups == 4));
  static constexpr int kScalesAt = kHighInSigns ? 0 : kHighBits;
  static constexpr int kShiftsAt = kHighBits + kBook.scale_bits * kGroups;
  // In a word of even signs: the bits of the eighth signs.
  static constexpr uint32_t kEighths = 0xaa000000;

  F d;  // of the block, times the kind's factor

  struct Words {
    Bytes indices[kBook.words()];
    Bytes signs, stored_signs, more;
  };
  struct Tile : Words {
    Bytes points[kLong ? kPoints : 1];
  };

  HEADRACE_INLINE PackedBooks open(const uint8_t* block) {
    return {mul(load_f16(reinterpret_cast<const uint16_t*>(block)), splat(kBook.factor))};
  }

  // All of a tile but its points.
  HEADRACE_INLINE Words open_words(const uint8_t* block, const uint8_t* tile, int64_t t) {
    Words x;
    for (int i = 0; i < kBook.words(); ++i) x.indices[i] = load_bytes(tile + i * kFourBytes);
    const uint8_t* at = block + 2 * kLanes;
    if constexpr (kMoreBytes >= 2) {
      x.more = widen_u16(at + t * 2 * kLanes);
      at += kTiles * 2 * kLanes;
    }
    if constexpr (kMoreBytes == 1) x.more = widen_u8(at + t * kLanes);
    if constexpr (kMoreBytes == 3) {
      x.more = with_word_field<-16>(x.more, widen_u8(at + t * kLanes), 0xff0000);
    }
    if constexpr (kBook.signs != Signs::none) {
      x.stored_signs = load_bytes(tile + kBook.words() * kFourBytes);
      x.signs = x.stored_signs;
    }
    if constexpr (kEven) {
      // Bits 2 i and 2 i + 1 of the four bytes are those of the i-th eight values.
      const Bytes seven = word_field<0>(x.stored_signs, ~kEighths);
      Bytes odd = differing(seven, word_field<16>(seven, 0xffff));
      odd = differing(odd, word_field<8>(odd, 0xff));
      odd = differing(odd, word_field<1>(odd, 0x7f));
      x.signs = with_word_field<-25>(seven, odd, kEighths);
    }
    return x;
  }

  HEADRACE_INLINE Tile open_tile(const uint8_t* block, const uint8_t* tile, int64_t t) {
    Tile x;
    static_cast<Words&>(x) = open_words(block, tile, t);
    if constexpr (kLong) {
      unrolled<0, kPoints>([&]<int kPoint>() __attribute__((always_inline)) {
        x.points[kPoint] = point<kPoint>(x);
      });
    }
    return x;
  }

  template <int kPoint>
  HEADRACE_INLINE Bytes point(const Words& x) {
    constexpr uint32_t kHighMask = (1u << kBook.high_bits) - 1;
    Bytes index = word_field<kPoint % 4 * 8>(x.indices[kPoint / 4], 0xff);
    if constexpr (kHighInSigns) {
      index = with_word_field<25 + 2 * kPoint - 8>(index, x.stored_signs, 1u << 8);
    } else if constexpr (kHighBits > 0) {
      index = with_word_field<kPoint * kBook.high_bits - 8>(index, x.more, kHighMask << 8);
    }
    if constexpr (kBook.shifts > 0) {
      constexpr int kAt = kShiftsAt + (kBook.shifts == 1 ? 0 : kPoint);
      index = with_word_field<kAt - headrace::kIq1ShiftBit>(index, x.more,
                                                            1u << headrace::kIq1ShiftBit);
    }
    return gather(headrace::points_of<C>(), index);
  }

  template <int kGroup>
  HEADRACE_INLINE F scale(const PackedBooks& p, const Words& x, const uint8_t*, int64_t) {
    constexpr uint32_t kMask = (1u << kBook.scale_bits) - 1;
    Bytes twice;
    if constexpr (kScaleInSigns) {
      // Bits 25, 27, 29 and 31 brought together.
      const Bytes apart = word_field<25>(x.stored_signs, 0x55);
      const Bytes pairs = word_field<0>(with_word_field<1>(apart, apart, 0x22), 0x33);
      twice = word_field<-1>(with_word_field<2>(word_field<0>(pairs, 0x03), pairs, 0x0c), 0x1e);
    } else {
      twice = word_field<kScalesAt + kGroup * kBook.scale_bits - 1>(x.more, kMask << 1);
    }
    return mul(p.d, add(words_to_float(twice), splat(1.0f)));
  }
  HEADRACE_INLINE F min(const PackedBooks&, const uint8_t*, int64_t) { return zero(); }

  template <int kFour>
  HEADRACE_INLINE Bytes four(const Tile& x) {
    Bytes codes;
    if constexpr (kLong) {
      codes = field<kFour % 2 * 4>(x.points[kFour / 2], splat_byte(15));
    } else {
      codes = point<kFour>(x);
    }
    if constexpr (kBook.signs != Signs::none) {
      codes = with_field<kFour - 3>(codes, x.signs, splat_byte(8));
    }
    return lookup(load_table(headrace::table_of(kFacts.table)), codes);
  }
};

}  // namespace
