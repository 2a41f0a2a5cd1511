// The kinds of weights and the facts about each: stored blocks, packed blocks, range of the bytes.
//
// Plain constants with internal linkage, for every dispatch level and for what is shared by them.
// docs/kernels.md shows the layouts and defines the arithmetic.

#pragma once

#include <cstdint>

namespace headrace {

// Lanes of a vector. Part of the arithmetic (sums over a row are kept per lane), at every level.
constexpr int64_t kLanes = 16;
// Values of k that are summed on their own before they join the row's sum; also the block in which
// activations are quantised.
constexpr int64_t kTile = 32;
// The magnitude of a quantised activation, at most: prepare never makes a -128.
constexpr int kQuantBound = 127;
// What 16 bits hold, at most, where products of bytes are added in them.
constexpr int kHighestSum = 32767;
// Values of a row of F8_E4M3 that share a scale, from multiples of it on; the last run may be
// shorter. Of NF4 it is a block.
constexpr int64_t kRun = 128;
constexpr int64_t kNf4Run = 64;
static constexpr int64_t runs_of(int64_t width) { return (width + kRun - 1) / kRun; }

enum class Codec : int32_t {
  f32, f16, bf16, f8_e4m3, nf4, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k,
  iq4_nl, iq4_xs, mxfp4, nvfp4, q1_0, q2_0, tq1_0, tq2_0, iq3_s, iq3_xxs, iq2_s, iq2_xs, iq2_xxs,
  iq1_m, iq1_s,
  i4_32, i4_128, u4_32, u4_128, e2m1_64, e2m1_128, i8_32, i8_128, u8_32, u8_128,
  w8a8_32, w8a8_128, w4a8_32, w4a8_128
};
constexpr int kCodecs = 44;

// How a packed block holds the scales of its groups.
enum class Scales : uint8_t {
  none,      // no quantised kind
  half,      // f16 d[16], where there are mins f16 m[16]: one group
  single,    // f32 d[16], where there are mins u8 z[16]: one group, whose min is d * z
  exponent,  // u8 e[16]: 2^(e - 128)
  small,     // u8 [group][16]: half of an E4M3 number without a sign
  folded,    // f32 d[16], u8 [group][16]: d times half of such a number
  bytes,     // f16 d[16] (m[16]), i8 scale[group][16] (u8 min[group][16], or where
             // blocks are summed [two tiles][16][2]): d * scale, m * min
  nibbles,   // f16 d[16], m[16], u8 [group][16]: the scale in the low nibble, the min in the high
  odd,       // f16 d[16], and s in bits of a tile's own (BookFacts): d * factor * (2 s + 1)
};

// What four bits stand for.
enum class Table : uint8_t { none, nonlinear, float4, bit, iq1, iq2, iq3_xxs, iq3_s };

// How the kinds with a code book hold signs: not at all, one for each value, or seven for eight
// values, whose eighth makes the number of negative ones even.
enum class Signs : uint8_t { none, each, even };

// Kinds whose codes are looked up some at a time, in a book of points (books.h). The code of a
// value is its level in the point, plus 8 where its sign, or the shift of its point, is set.
//
// A packed tile has one or two words of eight-bit indices for each output, then a word of signs
// where there are any, as a plane of one bit. What else it has are bits: the high bits of each
// index, the s of each group, the shift (of the tile, or of each point). They lie in the header, as
// u16 [tile][16] and u8 [tile][16]; but where signs are even the first four of them are where the
// eighth signs would be, bit i in bit 25 + 2 i of that word.
struct BookFacts {
  int length = 0;  // values of a point; 0: no book
  int high_bits = 0, scale_bits = 0;
  Signs signs = Signs::none;
  int shifts = 0;  // of a tile: 1, or one for each point
  float factor = 1;

  constexpr int points() const { return static_cast<int>(kTile) / length; }  // of a tile
  constexpr int words() const { return points() / 4; }                       // of indices
  constexpr int bits(int64_t groups) const {
    return high_bits * points() + scale_bits * static_cast<int>(groups) + shifts;
  }
  constexpr int header_bits(int64_t groups) const {
    return bits(groups) - (signs == Signs::even ? 4 : 0);
  }
};

struct CodecFacts {
  const char* name;  // as in GGUF; F8_E4M3 as in safetensors; I4, U4 and E2M1 are folders', as
                     // are NF4, I8, U8 and those that round rows to 8 bits
  int64_t stored_elements, stored_bytes;  // of one stored block

  // Quantised kinds: a stored block is `tiles` tiles of k, a tile one group or two of 16, each with
  // a scale (and a min). A value is scale * (byte - zero) - min; bytes are at most `most`.
  int64_t tiles, groups;
  bool mins;
  int32_t zero, most;
  Scales scales;
  int low_bits, high_bits;  // what is packed of each value: two planes, or one
  Table table;
  BookFacts book = {};
  bool whole_row = false;  // whether one scale is that of a whole row of activations
};

constexpr CodecFacts kCodecFacts[kCodecs] = {
    {"F32", 1, 4, 0, 0, false, 0, 0, Scales::none, 0, 0, Table::none},
    {"F16", 1, 2, 0, 0, false, 0, 0, Scales::none, 0, 0, Table::none},
    {"BF16", 1, 2, 0, 0, false, 0, 0, Scales::none, 0, 0, Table::none},
    {"F8_E4M3", 1, 1, 0, 0, false, 0, 0, Scales::none, 0, 0, Table::none},
    {"NF4", kNf4Run, 36, 0, 0, false, 0, 0, Scales::none, 0, 0, Table::none},
    {"Q8_0", 32, 34, 1, 1, false, 128, 255, Scales::half, 8, 0, Table::none},
    {"Q4_0", 32, 18, 1, 1, false, 8, 15, Scales::half, 4, 0, Table::none},
    {"Q4_1", 32, 20, 1, 1, true, 0, 15, Scales::half, 4, 0, Table::none},
    {"Q5_0", 32, 22, 1, 1, false, 16, 31, Scales::half, 4, 1, Table::none},
    {"Q5_1", 32, 24, 1, 1, true, 0, 31, Scales::half, 4, 1, Table::none},
    {"Q2_K", 256, 84, 8, 2, true, 0, 3, Scales::nibbles, 2, 0, Table::none},
    {"Q3_K", 256, 110, 8, 2, false, 4, 7, Scales::bytes, 2, 1, Table::none},
    {"Q4_K", 256, 144, 8, 1, true, 0, 15, Scales::bytes, 4, 0, Table::none},
    {"Q5_K", 256, 176, 8, 1, true, 0, 31, Scales::bytes, 4, 1, Table::none},
    {"Q6_K", 256, 210, 8, 2, false, 32, 63, Scales::bytes, 4, 2, Table::none},
    {"IQ4_NL", 32, 18, 1, 1, false, 128, 241, Scales::half, 4, 0, Table::nonlinear},
    {"IQ4_XS", 256, 136, 8, 1, false, 128, 241, Scales::bytes, 4, 0, Table::nonlinear},
    {"MXFP4", 32, 17, 1, 1, false, 12, 24, Scales::exponent, 4, 0, Table::float4},
    {"NVFP4", 64, 36, 2, 2, false, 12, 24, Scales::small, 4, 0, Table::float4},
    {"Q1_0", 128, 18, 4, 1, false, 1, 2, Scales::half, 1, 0, Table::bit},
    {"Q2_0", 64, 18, 2, 1, false, 1, 3, Scales::half, 2, 0, Table::none},
    {"TQ1_0", 256, 54, 8, 1, false, 1, 3, Scales::half, 2, 0, Table::none},
    {"TQ2_0", 256, 66, 8, 1, false, 1, 3, Scales::half, 2, 0, Table::none},
    {"IQ3_S", 256, 110, 8, 1, false, 15, 30, Scales::odd, 0, 0, Table::iq3_s,
     {4, 1, 4, Signs::each, 0, 1.0f}},
    {"IQ3_XXS", 256, 98, 8, 1, false, 62, 124, Scales::odd, 0, 0, Table::iq3_xxs,
     {4, 0, 4, Signs::even, 0, 0.25f}},
    {"IQ2_S", 256, 82, 8, 2, false, 43, 86, Scales::odd, 0, 0, Table::iq2,
     {8, 2, 4, Signs::each, 0, 0.125f}},
    {"IQ2_XS", 256, 74, 8, 2, false, 43, 86, Scales::odd, 0, 0, Table::iq2,
     {8, 1, 4, Signs::even, 0, 0.125f}},
    {"IQ2_XXS", 256, 66, 8, 1, false, 43, 86, Scales::odd, 0, 0, Table::iq2,
     {8, 0, 4, Signs::even, 0, 0.125f}},
    {"IQ1_M", 256, 56, 8, 2, false, 9, 18, Scales::odd, 0, 0, Table::iq1,
     {8, 3, 3, Signs::none, 4, 0.125f}},
    {"IQ1_S", 256, 50, 8, 1, false, 9, 18, Scales::odd, 0, 0, Table::iq1,
     {8, 3, 3, Signs::none, 1, 0.125f}},
    {"I4_32", 32, 20, 1, 1, false, 8, 15, Scales::single, 4, 0, Table::none},
    {"I4_128", 128, 68, 4, 1, false, 8, 15, Scales::single, 4, 0, Table::none},
    {"U4_32", 32, 21, 1, 1, true, 0, 15, Scales::single, 4, 0, Table::none},
    {"U4_128", 128, 69, 4, 1, true, 0, 15, Scales::single, 4, 0, Table::none},
    {"E2M1_64", 64, 40, 2, 2, false, 12, 24, Scales::folded, 4, 0, Table::float4},
    {"E2M1_128", 128, 76, 4, 2, false, 12, 24, Scales::folded, 4, 0, Table::float4},
    {"I8_32", 32, 36, 1, 1, false, 128, 255, Scales::single, 8, 0, Table::none},
    {"I8_128", 128, 132, 4, 1, false, 128, 255, Scales::single, 8, 0, Table::none},
    {"U8_32", 32, 37, 1, 1, true, 0, 255, Scales::single, 8, 0, Table::none},
    {"U8_128", 128, 133, 4, 1, true, 0, 255, Scales::single, 8, 0, Table::none},
    {"W8A8_32", 32, 36, 1, 1, false, 128, 255, Scales::single, 8, 0, Table::none, {}, true},
    {"W8A8_128", 128, 132, 4, 1, false, 128, 255, Scales::single, 8, 0, Table::none, {}, true},
    {"W4A8_32", 32, 20, 1, 1, false, 8, 15, Scales::single, 4, 0, Table::none, {}, true},
    {"W4A8_128", 128, 68, 4, 1, false, 8, 15, Scales::single, 4, 0, Table::none, {}, true},
};

static constexpr const CodecFacts& facts(Codec codec) {
  return kCodecFacts[static_cast<int>(codec)];
}
static constexpr bool is_quantised(Codec codec) { return facts(codec).groups > 0; }
// Whether bytes of a kind are more than signed ones may be.
static constexpr bool has_wide_bytes(const CodecFacts& f) { return f.most > 127; }

// Whether activations share a scale over the blocks of a kind, of 256 with one scale and whole
// numbers that multiply it for the tiles: then sums of a block are whole numbers, which meet floats
// once. The coarser rounding shows less than that of four bits does, but beside that of more bits
// it would show (docs/kernels.md).
static constexpr bool sums_blocks(const CodecFacts& f) {
  return f.scales == Scales::bytes && f.groups == 1 && f.low_bits + f.high_bits == 4;
}
constexpr int64_t kBlockOfTiles = 8;  // tiles of such a block

// Whether products round activations to bfloat16.
static constexpr bool rounds_activations(Codec codec) {
  return codec == Codec::bf16 || codec == Codec::f8_e4m3;
}

// Numbers of NF4 (bitsandbytes functional.py, get_4bit_type("nf4")), by code.
alignas(64) constexpr float kNf4Table[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f};

// Entries as bytes, zero point included. IQ4_NL's and IQ4_XS's levels (ggml-common.h,
// kvalues_iq4nl) and twice the numbers of E2M1 (OCP Microscaling Formats 1.0, section 5.3.3).
constexpr uint8_t kNonlinearTable[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                         129, 141, 153, 166, 181, 197, 217, 241};
constexpr uint8_t kFloat4Table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
constexpr uint8_t kBitTable[16] = {0, 2};
// Levels of the books: eight, or three, then the same with the sign set. In eighths for IQ1, whose
// shift of an eighth is in the table (IQ1S_DELTA).
constexpr uint8_t kIq1Table[16] = {2, 10, 18, 9, 9, 9, 9, 9, 0, 8, 16, 9, 9, 9, 9, 9};
constexpr uint8_t kIq2Table[16] = {51, 68, 86, 43, 43, 43, 43, 43, 35, 18, 0, 43, 43, 43, 43, 43};
constexpr uint8_t kIq3XxsTable[16] = {66, 74, 82, 90, 98, 106, 114, 124,
                                      58, 50, 42, 34, 26, 18,  10,  0};
constexpr uint8_t kIq3STable[16] = {16, 18, 20, 22, 24, 26, 28, 30, 14, 12, 10, 8, 6, 4, 2, 0};

static constexpr const uint8_t* table_of(Table table) {
  switch (table) {
    case Table::none: return nullptr;
    case Table::nonlinear: return kNonlinearTable;
    case Table::float4: return kFloat4Table;
    case Table::bit: return kBitTable;
    case Table::iq1: return kIq1Table;
    case Table::iq2: return kIq2Table;
    case Table::iq3_xxs: return kIq3XxsTable;
    case Table::iq3_s: return kIq3STable;
  }
  return nullptr;
}

// Bytes of a packed block of 16 outputs: a header of scales, then the tiles. A plane of B bits is B
// vectors of 64 bytes [16 outputs][4 of k]; vector v holds, from its lowest bits on, the values
// k = 4f .. 4f + 3 of f = v, v + B, v + 2B, ... below 8.
static constexpr int64_t header_bytes(const CodecFacts& f) {
  const int64_t halves = f.mins ? 4 * kLanes : 2 * kLanes, groups = f.tiles * f.groups * kLanes;
  switch (f.scales) {
    case Scales::none: return 0;
    case Scales::half: return halves;
    case Scales::single: return f.mins ? 5 * kLanes : 4 * kLanes;
    case Scales::exponent: return kLanes;
    case Scales::small: return groups;
    case Scales::folded: return 4 * kLanes + groups;
    case Scales::odd: return halves + f.tiles * kLanes * ((f.book.header_bits(f.groups) + 7) / 8);
    case Scales::bytes: return halves + (f.mins ? 2 : 1) * groups;
    case Scales::nibbles: return halves + groups;
  }
  return 0;
}
static constexpr int64_t tile_bytes(const CodecFacts& f) {
  if (f.book.length != 0) {
    return 4 * kLanes * (f.book.words() + (f.book.signs == Signs::none ? 0 : 1));
  }
  return 4 * kLanes * (f.low_bits + f.high_bits);
}
static constexpr int64_t block_bytes(const CodecFacts& f) {
  return header_bytes(f) + f.tiles * tile_bytes(f);
}

// The kind whose blocks and kernels a kind shares: only the rounding of activations differs.
static constexpr Codec blocks_of(Codec codec) {
  switch (codec) {
    case Codec::w8a8_32: return Codec::i8_32;
    case Codec::w8a8_128: return Codec::i8_128;
    case Codec::w4a8_32: return Codec::i4_32;
    case Codec::w4a8_128: return Codec::i4_128;
    default: return codec;
  }
}
constexpr int kFirstQuantised = static_cast<int>(Codec::q8_0);
// Those that share another kind's blocks are the last.
constexpr int kBlockKinds = static_cast<int>(Codec::w8a8_32);

template <int kFirst, int kEnd, class Fn>
static inline __attribute__((always_inline)) void with_blocks(Codec codec, const Fn& fn) {
  if constexpr (kFirst < kEnd) {
    if (static_cast<int>(codec) == kFirst) {
      fn.template operator()<static_cast<Codec>(kFirst)>();
    } else {
      with_blocks<kFirst + 1, kEnd>(codec, fn);
    }
  }
}

// Calls fn<C>() for C = the kind of blocks of codec, a quantised one, of those from kFirst to
// before kEnd.
template <int kFirst = kFirstQuantised, int kEnd = kBlockKinds, class Fn>
static inline __attribute__((always_inline)) void with_quantised(Codec codec, const Fn& fn) {
  with_blocks<kFirst, kEnd>(blocks_of(codec), fn);
}

// The kinds whose books are small enough for tables of bytes.
static constexpr bool has_byte_book(Codec codec) {
  return codec >= Codec::iq3_s && codec <= Codec::iq2_xxs;
}

}  // namespace headrace
