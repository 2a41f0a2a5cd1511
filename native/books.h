// The code books of the IQ1, IQ2 and IQ3 kinds, and stored blocks of these kinds.
//
// A point is a word: nibble j of its bytes, low ones first, is the level of value j. Those of IQ1
// are there twice, the second time with bit 3 of every level set: the shift of a point is a bit of
// its index. The books are made of src/headrace/weights/codecs/code_books.hex, which says what they
// are.

#pragma once

#include <cstdint>

#include "codecs.h"

namespace headrace {

template <int kPoints>
struct Book {
  uint32_t points[kPoints];
};

// The same points as bytes of two planes. Eight levels: the first four and the others, two bits
// each. Four: their two low bits, and the third of level j in bit 2 + j.
template <int kPoints>
struct ByteBook {
  uint8_t planes[2][kPoints];
};

extern const Book<4096> kIq1Book;
extern const Book<1024> kIq2SBook;
extern const Book<512> kIq2XsBook;
extern const Book<256> kIq2XxsBook;
extern const Book<512> kIq3SBook;
extern const Book<256> kIq3XxsBook;

extern const ByteBook<1024> kIq2SByteBook;
extern const ByteBook<512> kIq2XsByteBook;
extern const ByteBook<256> kIq2XxsByteBook;
extern const ByteBook<512> kIq3SByteBook;
extern const ByteBook<256> kIq3XxsByteBook;

constexpr int kIq1ShiftBit = 11;  // of an index

template <Codec C>
static inline const uint32_t* points_of() {
  if constexpr (C == Codec::iq1_m || C == Codec::iq1_s) return kIq1Book.points;
  if constexpr (C == Codec::iq2_s) return kIq2SBook.points;
  if constexpr (C == Codec::iq2_xs) return kIq2XsBook.points;
  if constexpr (C == Codec::iq2_xxs) return kIq2XxsBook.points;
  if constexpr (C == Codec::iq3_s) return kIq3SBook.points;
  if constexpr (C == Codec::iq3_xxs) return kIq3XxsBook.points;
  return nullptr;
}
template <Codec C>
static inline const uint8_t* planes_of() {
  if constexpr (C == Codec::iq2_s) return kIq2SByteBook.planes[0];
  if constexpr (C == Codec::iq2_xs) return kIq2XsByteBook.planes[0];
  if constexpr (C == Codec::iq2_xxs) return kIq2XxsByteBook.planes[0];
  if constexpr (C == Codec::iq3_s) return kIq3SByteBook.planes[0];
  if constexpr (C == Codec::iq3_xxs) return kIq3XxsByteBook.planes[0];
  return nullptr;
}

}  // namespace headrace

namespace {

// A block as it is stored: an index for each point; eight sign bits for each eight values, which
// where signs are even include the eighth; s of each group; the shift of each tile or of each
// point.
struct BookBlock {
  uint16_t d;
  uint16_t index[64];
  uint8_t signs[32], scales[16], shifts[32];
};

static inline uint8_t even_signs(uint32_t seven) {
  return static_cast<uint8_t>(seven | static_cast<uint32_t>(__builtin_parity(seven)) << 7);
}
static inline uint32_t book_word(const uint8_t* p, int bytes) {
  uint32_t x = 0;
  __builtin_memcpy(&x, p, static_cast<uint64_t>(bytes));
  return x;
}

template <headrace::Codec C>
static inline void read_book_block(const uint8_t* p, BookBlock& b) {
  using headrace::Codec;
  b.d = static_cast<uint16_t>(book_word(p, 2));
  if constexpr (C == Codec::iq2_xxs || C == Codec::iq3_xxs) {
    for (int t = 0; t < 8; ++t) {
      // IQ2_XXS: each word after its four indices; IQ3_XXS: after all indices.
      const uint32_t word =
          book_word(C == Codec::iq2_xxs ? p + 2 + 8 * t + 4 : p + 66 + 4 * t, 4);
      for (int i = 0; i < 4; ++i) b.signs[4 * t + i] = even_signs(word >> (7 * i) & 127);
      b.scales[t] = static_cast<uint8_t>(word >> 28);
      if constexpr (C == Codec::iq2_xxs) {
        for (int i = 0; i < 4; ++i) b.index[4 * t + i] = p[2 + 8 * t + i];
      } else {
        for (int i = 0; i < 8; ++i) b.index[8 * t + i] = p[2 + 8 * t + i];
      }
    }
  } else if constexpr (C == Codec::iq2_xs) {
    for (int i = 0; i < 32; ++i) {
      const uint32_t code = book_word(p + 2 + 2 * i, 2);
      b.index[i] = code & 511;
      b.signs[i] = even_signs(code >> 9);
    }
    for (int g = 0; g < 16; ++g) b.scales[g] = p[66 + g / 2] >> (g % 2 * 4) & 15;
  } else if constexpr (C == Codec::iq2_s) {
    for (int i = 0; i < 32; ++i) {
      b.index[i] = static_cast<uint16_t>(p[2 + i] | (p[66 + i / 4] >> (i % 4 * 2) & 3) << 8);
      b.signs[i] = p[34 + i];
    }
    for (int g = 0; g < 16; ++g) b.scales[g] = p[74 + g / 2] >> (g % 2 * 4) & 15;
  } else if constexpr (C == Codec::iq3_s) {
    for (int i = 0; i < 64; ++i) {
      b.index[i] = static_cast<uint16_t>(p[2 + i] | (p[66 + i / 8] >> (i % 8) & 1) << 8);
    }
    for (int i = 0; i < 32; ++i) b.signs[i] = p[74 + i];
    for (int t = 0; t < 8; ++t) b.scales[t] = p[106 + t / 2] >> (t % 2 * 4) & 15;
  } else if constexpr (C == Codec::iq1_s) {
    for (int t = 0; t < 8; ++t) {
      const uint32_t word = book_word(p + 34 + 2 * t, 2);
      for (int i = 0; i < 4; ++i) {
        b.index[4 * t + i] = static_cast<uint16_t>(p[2 + 4 * t + i] | (word >> (3 * i) & 7) << 8);
      }
      b.scales[t] = word >> 12 & 7;
      b.shifts[t] = static_cast<uint8_t>(word >> 15);
    }
  } else {
    static_assert(C == Codec::iq1_m);
    // d is in the high four bits of the words that hold the scales.
    b.d = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = book_word(p + 48 + 2 * i, 2);
      b.d = static_cast<uint16_t>(b.d | word >> 12 << (4 * i));
      for (int j = 0; j < 4; ++j) b.scales[4 * i + j] = word >> (3 * j) & 7;
    }
    for (int i = 0; i < 32; ++i) {
      const uint32_t high = p[32 + i / 2] >> (i % 2 * 4);
      b.index[i] = static_cast<uint16_t>(p[i] | (high & 7) << 8);
      b.shifts[i] = high >> 3 & 1;
    }
  }
}

// The codes of its values, and 2 s + 1 of its groups, into a StoredBlock.
template <headrace::Codec C, class Block>
static inline void read_points(const BookBlock& book, Block& b) {
  constexpr headrace::CodecFacts f = headrace::facts(C);
  constexpr int kLength = f.book.length, kFours = kLength / 4;
  b.d = book.d;
  for (int i = 0; i < 256 / kLength; ++i) {
    uint32_t index = book.index[i];
    if constexpr (f.book.shifts > 0) {
      index |= static_cast<uint32_t>(book.shifts[f.book.shifts == 1 ? i / 4 : i])
               << headrace::kIq1ShiftBit;
    }
    const uint32_t point = headrace::points_of<C>()[index];
    for (int j = 0; j < kFours; ++j) b.q[kFours * i + j] = point >> (4 * j) & 0x0f0f0f0f;
  }
  if constexpr (f.book.signs != headrace::Signs::none) {
    for (int i = 0; i < 64; ++i) {
      const uint32_t four = book.signs[i / 2] >> (i % 2 * 4) & 15;
      b.q[i] |= ((four * 0x00204081) & 0x01010101) << 3;
    }
  }
  for (int64_t g = 0; g < f.tiles * f.groups; ++g) {
    b.scales[g] = static_cast<uint8_t>(2 * book.scales[g] + 1);
  }
}

}  // namespace
