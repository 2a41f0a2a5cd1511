// The tile registers of AMX: eight of them, 16 rows of 64 bytes. Every instruction is inline
// assembly, so that no compiler has to know them and none can get them wrong: gcc 12's
// _tile_loadconfig declares 8 of the 64 bytes read as its operand, and the stores to the others
// vanish. Loads and stores of tiles clobber memory.
//
// tests/soft_tiles.h computes the same in plain C++.

#pragma once

#include <cstdint>

namespace {

// What LDTILECFG reads (Intel's manual, volume 1, chapter 18): palette 1 and the shape of each
// tile.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

struct HardwareTiles {
  static void configure(const TileConfig& config) {
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  static void release() { asm volatile("tilerelease" : : : "memory"); }

  template <int kTo>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTo));
  }
  template <int kTo>
  static void load(const void* from, int64_t row_stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 : : "r"(from), "r"(row_stride), "i"(kTo) : "memory");
  }
  template <int kFrom>
  static void store(void* to, int64_t row_stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 : : "r"(to), "r"(row_stride), "i"(kFrom) : "memory");
  }
  // sum += a * b: f32 of bf16 pairs, with denormals as zero (TDPBF16PS).
  template <int kSum, int kA, int kB>
  static void multiply_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
  // sum += a * b: int32 of signed bytes times signed ones (TDPBSSD).
  template <int kSum, int kA, int kB>
  static void multiply_signed() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
  // And of signed bytes times unsigned ones (TDPBSUD).
  template <int kSum, int kA, int kB>
  static void multiply_int8() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
};

}  // namespace
