// Packed blocks of IQ2 and IQ3 as operands where a processor looks up 64 bytes at a time (AVX-512
// VBMI): the same bytes as those of unpack_books.h, without a gather.
//
// A point is a byte in each of two planes (books.h). 64 indices meet both planes at once; a byte of
// a plane then becomes the four bytes of an operand by four shifts of one instruction.

#pragma once

#include "unpack_books.h"

namespace {

// Eight shifts of a multishift: `first` plus 0, 1, 2 and 3 times `step`, in both words of each
// eight bytes.
constexpr int64_t shifts_of(int first, int step) {
  int64_t shifts = 0;
  for (int i = 0; i < 8; ++i) {
    shifts |= static_cast<int64_t>(first + i % 4 * step + (i < 4 ? 0 : 32)) << (8 * i);
  }
  return shifts;
}
template <int kFirst, int kStep>
HEADRACE_INLINE Bytes shifted(Bytes x) {
  return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(shifts_of(kFirst, kStep)), x);
}

template <Codec C>
struct PackedByteBooks : PackedBooks<C> {
  using Base = PackedBooks<C>;
  static constexpr headrace::BookFacts kBook = Base::kBook;
  static constexpr bool kLong = Base::kLong;
  static constexpr int kWords = kBook.words();
  static constexpr int kEntries = 256 << kBook.high_bits;
  static_assert(kBook.high_bits <= 2 && kBook.shifts == 0);

  struct Tile : Base::Words {
    Bytes low[kWords], high[kWords];  // a byte of each plane for each index
  };

  HEADRACE_INLINE PackedByteBooks open(const uint8_t* block) { return {Base::open(block)}; }

  // Entries at the indices whose bits from the eighth on are in `above`.
  HEADRACE_INLINE Bytes look_up(const uint8_t* plane, Bytes index, Bytes above) {
    constexpr int kHalves = kEntries / 128;
    const __mmask64 eighth = _mm512_movepi8_mask(index);
    Bytes found[kHalves / 2];
    for (int i = 0; i < kHalves / 2; ++i) {
      const uint8_t* at = plane + 256 * i;
      const Bytes low = _mm512_permutex2var_epi8(load_bytes(at), index, load_bytes(at + 64));
      const Bytes high =
          _mm512_permutex2var_epi8(load_bytes(at + 128), index, load_bytes(at + 192));
      found[i] = _mm512_mask_blend_epi8(eighth, low, high);
    }
    if constexpr (kHalves == 2) return found[0];
    const __mmask64 ninth = _mm512_test_epi8_mask(above, splat_byte(1));
    const Bytes first = _mm512_mask_blend_epi8(ninth, found[0], found[1]);
    if constexpr (kHalves == 4) return first;
    const Bytes second =
        _mm512_mask_blend_epi8(ninth, found[kHalves / 2 - 2], found[kHalves / 2 - 1]);
    return _mm512_mask_blend_epi8(_mm512_test_epi8_mask(above, splat_byte(2)), first, second);
  }

  HEADRACE_INLINE Tile open_tile(const uint8_t* block, const uint8_t* tile, int64_t t) {
    Tile x;
    static_cast<typename Base::Words&>(x) = Base::open_words(block, tile, t);
    const uint8_t* planes = headrace::planes_of<C>();
    unrolled<0, kWords>([&]<int kWord>() __attribute__((always_inline)) {
      Bytes above = x.indices[kWord];
      if constexpr (Base::kHighInSigns) {
        above = shifted<25 + 8 * kWord, 2>(x.stored_signs);
      } else if constexpr (kBook.high_bits > 0) {
        above = shifted<4 * kWord * kBook.high_bits, kBook.high_bits>(x.more);
      }
      x.low[kWord] = look_up(planes, x.indices[kWord], above);
      x.high[kWord] = look_up(planes + kEntries, x.indices[kWord], above);
    });
    return x;
  }

  template <int kGroup>
  HEADRACE_INLINE F scale(const PackedByteBooks& p, const Tile& x, const uint8_t* b, int64_t g) {
    return Base::template scale<kGroup>(p, x, b, g);
  }

  template <int kFour>
  HEADRACE_INLINE Bytes four(const Tile& x) {
    Bytes codes;
    if constexpr (kLong) {
      const Bytes plane = kFour % 2 == 0 ? x.low[0] : x.high[0];
      codes = field<0>(shifted<kFour / 2 * 8, 2>(plane), splat_byte(3));
    } else {
      codes = field<0>(shifted<kFour % 4 * 8, 2>(x.low[kFour / 4]), splat_byte(3));
      codes = with_field<0>(codes, shifted<kFour % 4 * 8, 1>(x.high[kFour / 4]), splat_byte(4));
    }
    codes = with_field<kFour - 3>(codes, x.signs, splat_byte(8));
    return lookup(load_table(headrace::table_of(Base::kFacts.table)), codes);
  }
};

}  // namespace
