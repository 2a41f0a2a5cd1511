#include "books.h"

namespace headrace {
namespace {

// k<name>[]: the bits of each book of code_books.hex (native/CMakeLists.txt makes them).
#include "code_books.inc"

// Points of kLength levels: the numbers of base kLevels whose bits are set, in ascending order.
template <int kPoints, int kLevels, int kLength, int kBytes>
constexpr Book<kPoints> read_book(const uint8_t (&bits)[kBytes]) {
  Book<kPoints> book = {};
  int count = 0;
  for (int number = 0; number < 8 * kBytes; ++number) {
    if ((bits[number / 8] >> (number % 8) & 1) == 0) continue;
    uint32_t word = 0;
    for (int i = 0, left = number; i < kLength; ++i, left /= kLevels) {
      word |= static_cast<uint32_t>(left % kLevels) << (8 * (i % 4) + 4 * (i / 4));
    }
    book.points[count++] = word;
  }
  if (count != kPoints) throw "a book has another number of points";  // at compile time
  return book;
}

constexpr Book<4096> with_shifts(const Book<2048>& book) {
  Book<4096> both = {};
  for (int i = 0; i < 2048; ++i) {
    both.points[i] = book.points[i];
    both.points[i | 1 << kIq1ShiftBit] = book.points[i] | 0x88888888;
  }
  return both;
}

template <int kLength, int kPoints>
constexpr ByteBook<kPoints> as_planes(const Book<kPoints>& book) {
  ByteBook<kPoints> bytes = {};
  for (int p = 0; p < kPoints; ++p) {
    for (int i = 0; i < kLength; ++i) {
      const uint32_t level = book.points[p] >> (8 * (i % 4) + 4 * (i / 4)) & 15;
      if (kLength == 8) {
        bytes.planes[i / 4][p] |= static_cast<uint8_t>(level << (2 * (i % 4)));
      } else {
        bytes.planes[0][p] |= static_cast<uint8_t>((level & 3) << (2 * i));
        bytes.planes[1][p] |= static_cast<uint8_t>((level >> 2) << (2 + i));
      }
    }
  }
  return bytes;
}

}  // namespace

constexpr Book<4096> kIq1Book = with_shifts(read_book<2048, 3, 8>(kIQ1_S));
constexpr Book<1024> kIq2SBook = read_book<1024, 3, 8>(kIQ2_S);
constexpr Book<512> kIq2XsBook = read_book<512, 3, 8>(kIQ2_XS);
constexpr Book<256> kIq2XxsBook = read_book<256, 3, 8>(kIQ2_XXS);
constexpr Book<512> kIq3SBook = read_book<512, 8, 4>(kIQ3_S);
constexpr Book<256> kIq3XxsBook = read_book<256, 8, 4>(kIQ3_XXS);

alignas(64) constinit const ByteBook<1024> kIq2SByteBook = as_planes<8>(kIq2SBook);
alignas(64) constinit const ByteBook<512> kIq2XsByteBook = as_planes<8>(kIq2XsBook);
alignas(64) constinit const ByteBook<256> kIq2XxsByteBook = as_planes<8>(kIq2XxsBook);
alignas(64) constinit const ByteBook<512> kIq3SByteBook = as_planes<4>(kIq3SBook);
alignas(64) constinit const ByteBook<256> kIq3XxsByteBook = as_planes<4>(kIq3XxsBook);

}  // namespace headrace
