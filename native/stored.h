// Stored blocks of the quantised kinds, read one at a time: the only place that knows their layout.
//
// Sources: ggml-common.h and ggml-quants.c (layouts), gguf-py quants.py (order of operations).
// Scalar code, used where weights are packed and where rows of a table are looked up. Every
// function has internal linkage: levels include this too.

#pragma once

#include <cstdint>

#include "books.h"
#include "codecs.h"

namespace {

using headrace::Codec;

// A block as unsigned numbers: `q` is 4 values a word, in the order of k (codes where the kind has
// a table); `scales` and `mins` one of each group. d and m are halves (MXFP4: d is the exponent;
// NVFP4 has its scales alone, of seven bits); a value is (d * scale) * (q - zero) - m * min,
// without scale and min where the kind has none, and times the factor of a book. Kinds of a float32
// scale have it in `single`, and a zero point in mins[0]: a value is single * (q - zero) - single *
// mins[0]; E2M1's is (single * scale) * (q - zero).
struct StoredBlock {
  float single;
  uint16_t d, m;
  uint8_t scales[16], mins[16];
  uint32_t q[64];
};

static inline uint16_t stored_u16(const uint8_t* p) {
  uint16_t x;
  __builtin_memcpy(&x, p, 2);
  return x;
}
static inline uint32_t stored_u32(const uint8_t* p) {
  uint32_t x;
  __builtin_memcpy(&x, p, 4);
  return x;
}

// 32 values: low nibbles are the first 16, high nibbles the others.
static inline void read_nibbles(const uint8_t* p, uint32_t* q) {
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = stored_u32(p + 4 * i);
    q[i] = word & 0x0f0f0f0f;
    q[i + 4] = (word >> 4) & 0x0f0f0f0f;
  }
}

// A fifth bit of 32 values: bit k of `bits` belongs to value k. The product copies four bits to
// four bytes. Four words are written at a time, as they are read again.
static inline void add_fifth_bits(uint32_t bits, uint32_t* q) {
  using Four = uint32_t __attribute__((vector_size(16)));
  const auto spread = [bits](int i) {
    return ((((bits >> (4 * i)) & 15) * 0x00204081) & 0x01010101) << 4;
  };
  for (int i = 0; i < 8; i += 4) {
    Four words;
    __builtin_memcpy(&words, q + i, sizeof(words));
    words |= Four{spread(i), spread(i + 1), spread(i + 2), spread(i + 3)};
    __builtin_memcpy(q + i, &words, sizeof(words));
  }
}

// 256 values: of each 32 bytes, low nibbles are 32 values and high nibbles the next 32.
static inline void read_long_nibbles(const uint8_t* p, uint32_t* q) {
  for (int chunk = 0; chunk < 4; ++chunk) {
    for (int i = 0; i < 8; ++i) {
      const uint32_t word = stored_u32(p + 32 * chunk + 4 * i);
      q[16 * chunk + i] = word & 0x0f0f0f0f;
      q[16 * chunk + 8 + i] = (word >> 4) & 0x0f0f0f0f;
    }
  }
}

// 256 values: of each 32 bytes, the pairs of bits from the lowest on are 32 values each.
static inline void read_pairs(const uint8_t* p, uint32_t* q) {
  for (int half = 0; half < 2; ++half) {
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 8; ++i) {
        q[32 * half + 8 * j + i] = (stored_u32(p + 32 * half + 4 * i) >> (2 * j)) & 0x03030303;
      }
    }
  }
}

// Bit t of byte l, as bit `to` of value 32 t + l.
static inline void add_bits(const uint8_t* p, int to, uint32_t* q) {
  for (int t = 0; t < 8; ++t) {
    for (int i = 0; i < 8; ++i) {
      q[8 * t + i] |= ((stored_u32(p + 4 * i) >> t) & 0x01010101) << to;
    }
  }
}

// Five digits of base 3 of each of `count` bytes, the first of all of them first; `digits` of them.
static inline void read_digits(const uint8_t* p, int count, int digits, uint8_t* to) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  for (int n = 0; n < digits; ++n) {
    for (int i = 0; i < count; ++i) {
      *to++ = static_cast<uint8_t>(static_cast<uint8_t>(p[i] * kPowers[n]) * 3 >> 8);
    }
  }
}

// Eight scales and mins of 6 bits in 12 bytes (Q4_K, Q5_K).
static inline void read_scales_and_mins(const uint8_t* p, StoredBlock& b) {
  for (int j = 0; j < 4; ++j) {
    b.scales[j] = p[j] & 63;
    b.mins[j] = p[j + 4] & 63;
    b.scales[j + 4] = static_cast<uint8_t>((p[j + 8] & 15) | (p[j] >> 6) << 4);
    b.mins[j + 4] = static_cast<uint8_t>((p[j + 8] >> 4) | (p[j + 4] >> 6) << 4);
  }
}

// Reads the block of codec C at p. Signed scales are two's complement in `scales`.
template <Codec C>
static inline void read_block(const uint8_t* p, StoredBlock& b) {
  if constexpr (C == Codec::q8_0) {
    b.d = stored_u16(p);
    for (int i = 0; i < 8; ++i) b.q[i] = stored_u32(p + 2 + 4 * i) ^ 0x80808080;
  } else if constexpr (C == Codec::q4_0 || C == Codec::iq4_nl) {
    b.d = stored_u16(p);
    read_nibbles(p + 2, b.q);
  } else if constexpr (C == Codec::q4_1) {
    b.d = stored_u16(p);
    b.m = stored_u16(p + 2) ^ 0x8000;  // these mins are added
    read_nibbles(p + 4, b.q);
  } else if constexpr (C == Codec::q5_0) {
    b.d = stored_u16(p);
    read_nibbles(p + 6, b.q);
    add_fifth_bits(stored_u32(p + 2), b.q);
  } else if constexpr (C == Codec::q5_1) {
    b.d = stored_u16(p);
    b.m = stored_u16(p + 2) ^ 0x8000;
    read_nibbles(p + 8, b.q);
    add_fifth_bits(stored_u32(p + 4), b.q);
  } else if constexpr (C == Codec::mxfp4) {
    b.d = p[0];
    read_nibbles(p + 1, b.q);
  } else if constexpr (C == Codec::nvfp4) {
    b.d = 0;
    for (int g = 0; g < 4; ++g) {
      b.scales[g] = p[g] == 0x7f ? 0 : p[g] & 0x7f;  // only without a sign is the highest a NaN
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = stored_u32(p + 4 + 8 * g + 4 * i);
        b.q[4 * g + i] = word & 0x0f0f0f0f;
        b.q[4 * g + 2 + i] = (word >> 4) & 0x0f0f0f0f;
      }
    }
  } else if constexpr (C == Codec::q1_0) {
    b.d = stored_u16(p);
    for (int i = 0; i < 32; ++i) {
      b.q[i] = ((p[2 + i / 2] >> (i % 2 * 4) & 15) * 0x00204081) & 0x01010101;
    }
  } else if constexpr (C == Codec::q2_0) {
    b.d = stored_u16(p);
    for (int i = 0; i < 16; ++i) {
      const uint32_t four = p[2 + i];
      b.q[i] = (four | four << 6 | four << 12 | four << 18) & 0x03030303;
    }
  } else if constexpr (C == Codec::tq1_0) {
    b.d = stored_u16(p + 52);
    uint8_t* q = reinterpret_cast<uint8_t*>(b.q);
    read_digits(p, 32, 5, q);
    read_digits(p + 32, 16, 5, q + 160);
    read_digits(p + 48, 4, 4, q + 240);
  } else if constexpr (C == Codec::tq2_0) {
    b.d = stored_u16(p + 64);
    read_pairs(p, b.q);
  } else if constexpr (headrace::facts(C).book.length != 0) {
    BookBlock book;
    read_book_block<C>(p, book);
    read_points<C>(book, b);
  } else if constexpr (headrace::facts(C).scales == headrace::Scales::folded) {
    constexpr headrace::CodecFacts f = headrace::facts(C);
    __builtin_memcpy(&b.single, p, 4);
    __builtin_memcpy(b.scales, p + 4, f.tiles * f.groups);
    for (int64_t t = 0; t < f.tiles; ++t) {
      read_nibbles(p + 4 + f.tiles * f.groups + 16 * t, b.q + 8 * t);
    }
  } else if constexpr (headrace::facts(C).scales == headrace::Scales::single) {
    constexpr headrace::CodecFacts f = headrace::facts(C);
    __builtin_memcpy(&b.single, p, 4);
    if constexpr (f.mins) b.mins[0] = p[4];
    const uint8_t* q = p + (f.mins ? 5 : 4);
    if constexpr (f.low_bits == 8) {
      __builtin_memcpy(b.q, q, f.stored_elements);
    } else {
      for (int64_t t = 0; t < f.tiles; ++t) read_nibbles(q + 16 * t, b.q + 8 * t);
    }
  } else if constexpr (C == Codec::q2_k) {
    b.d = stored_u16(p + 80);
    b.m = stored_u16(p + 82);
    for (int g = 0; g < 16; ++g) {
      b.scales[g] = p[g] & 15;
      b.mins[g] = p[g] >> 4;
    }
    read_pairs(p + 16, b.q);
  } else if constexpr (C == Codec::q3_k) {
    b.d = stored_u16(p + 108);
    const uint8_t* s = p + 96;
    for (int g = 0; g < 16; ++g) {
      const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4, high = (s[8 + g % 4] >> (g / 4 * 2)) & 3;
      b.scales[g] = static_cast<uint8_t>((low | high << 4) - 32);
    }
    read_pairs(p + 32, b.q);
    add_bits(p, 2, b.q);
  } else if constexpr (C == Codec::q4_k || C == Codec::q5_k) {
    b.d = stored_u16(p);
    b.m = stored_u16(p + 2);
    read_scales_and_mins(p + 4, b);
    read_long_nibbles(p + (C == Codec::q5_k ? 48 : 16), b.q);
    if constexpr (C == Codec::q5_k) add_bits(p + 16, 4, b.q);
  } else if constexpr (C == Codec::q6_k) {
    b.d = stored_u16(p + 208);
    __builtin_memcpy(b.scales, p + 192, 16);
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 8; ++i) {
        const uint8_t* low = p + 64 * half + 4 * i;
        const uint32_t a = stored_u32(low), c = stored_u32(low + 32);
        const uint32_t h = stored_u32(p + 128 + 32 * half + 4 * i);
        uint32_t* q = b.q + 32 * half + i;
        q[0] = (a & 0x0f0f0f0f) | (h & 0x03030303) << 4;
        q[8] = (c & 0x0f0f0f0f) | ((h >> 2) & 0x03030303) << 4;
        q[16] = ((a >> 4) & 0x0f0f0f0f) | ((h >> 4) & 0x03030303) << 4;
        q[24] = ((c >> 4) & 0x0f0f0f0f) | ((h >> 6) & 0x03030303) << 4;
      }
    }
  } else {
    static_assert(C == Codec::iq4_xs);
    b.d = stored_u16(p);
    const int high = stored_u16(p + 2);
    for (int t = 0; t < 8; ++t) {
      const int low = (p[4 + t / 2] >> (t % 2 * 4)) & 15;
      b.scales[t] = static_cast<uint8_t>((low | ((high >> (2 * t)) & 3) << 4) - 32);
      read_nibbles(p + 8 + 16 * t, b.q + 8 * t);
    }
  }
}

}  // namespace
